//! Configuration of an engine: volumes, their members, memory.

use weft_units::Bytes;

use crate::assemble::Assembly;
use crate::knobs::Knobs;

/// Configuration of an engine.
#[derive(Clone, Debug)]
pub struct Config {
    /// The volumes; [`weft_units::VolumeId`] counts them.
    pub volumes: Vec<VolumeConfig>,
    /// Frames `1 ..= cache_frames` are the engine's. At least one stripe of the widest array.
    pub cache_frames: u32,
    /// Frames after those are the driver's, for payload of requests.
    pub client_frames: u32,
    /// How much payload a client may have outstanding; see [`crate::ClientRequest::payload`].
    pub client_credit: Bytes,
    /// Stripes decided per turn (md: `MAX_STRIPE_BATCH`, 8).
    pub turn_stripes_max: u32,
    /// Seconds since the Unix epoch at `Time(0)`: superblocks carry the time of their last update.
    pub epoch_secs: u64,
}

/// One volume.
#[derive(Clone, Debug)]
pub struct VolumeConfig {
    /// The array below it, as [`crate::assemble::assemble`] found it.
    pub assembly: Assembly,
    /// Its knobs at the start.
    pub knobs: Knobs,
    /// Stripe-cache stripes when fewer than the knobs allow: tests with a cache of two.
    pub stripes_max: Option<u32>,
}

impl Config {
    /// A configuration for one volume, with memory for a full stripe cache and 64 MiB of payload.
    #[must_use]
    pub fn for_volume(assembly: Assembly, knobs: Knobs) -> Self {
        let stripe_frames = assembly.stripe_frames(knobs.stripe_size);
        let cache_frames = stripe_frames * knobs.cache_stripes(stripe_frames);
        Self {
            volumes: vec![VolumeConfig { assembly, knobs, stripes_max: None }],
            cache_frames,
            client_frames: 16_384,
            client_credit: Bytes::mib(32),
            turn_stripes_max: 8,
            epoch_secs: 0,
        }
    }

    /// Frames of the whole slab: zero frame, cache, payload.
    #[must_use]
    pub fn frames_total(&self) -> u32 {
        self.client_frames_first() + self.client_frames
    }

    /// The first frame of the driver's part.
    #[must_use]
    pub fn client_frames_first(&self) -> u32 {
        1 + self.cache_frames
    }
}
