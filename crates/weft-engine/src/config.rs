//! Configuration of an engine: volumes, their members, memory.

use weft_units::{Bytes, MemberIndex, Sectors};

use crate::assemble::Assembly;
use crate::knobs::Knobs;
use crate::sched::DeviceTraits;

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

/// What is known of a member that was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberInfo {
    /// Its name within the engine. Unique, chosen by the driver.
    pub index: MemberIndex,
    /// Name of the member: a path.
    pub label: String,
    /// All of it.
    pub size: Sectors,
    /// Unit of its I/O in bytes: a power of two, 512 to 4096.
    pub logical_block: u32,
    /// What it takes its space from, a file system as a rule: members with the same number run full
    /// together. None: from nothing that another member takes it from.
    pub space: Option<u64>,
    /// Whether it gives up what it stores for a range that is discarded, and the range reads as
    /// zeroes.
    pub discards: bool,
    /// Traits of the device that its queue goes by.
    pub device: DeviceTraits,
}

impl MemberInfo {
    /// A member of which no more is known than its size: logical blocks of 512 bytes, space of its
    /// own, discards that do not pay, and a device of which nothing is known.
    #[must_use]
    pub fn of_size(index: MemberIndex, label: impl Into<String>, size: Sectors) -> Self {
        let label = label.into();
        let device = DeviceTraits::default();
        Self { index, label, size, logical_block: 512, space: None, discards: false, device }
    }
}

impl Config {
    /// A configuration for one volume, with memory for a full stripe cache and 64 MiB of payload.
    #[must_use]
    pub fn for_volume(assembly: Assembly, knobs: Knobs) -> Self {
        let stripes = knobs.cache_stripes(&assembly.geometry);
        let cache_frames = assembly.stripe_frames(knobs.stripe_size) * stripes;
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
