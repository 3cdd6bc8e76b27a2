//! Configuration of an engine: volumes, their members, memory.

use weft_units::Bytes;

use crate::assemble::Assembly;
use crate::contract::member::MemberInfo;
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
    /// Payload that a client may have outstanding; see [`crate::ClientRequest::payload`].
    pub client_credit: Bytes,
    /// Stripes decided per turn (md: `MAX_STRIPE_BATCH`, 8).
    pub turn_stripes_max: u32,
    /// Seconds since the Unix epoch at `Time(0)`: superblocks carry the time of their last update.
    pub epoch_secs: u64,
}

/// One volume.
#[derive(Clone, Debug)]
pub struct VolumeConfig {
    /// Members below it.
    pub source: VolumeSource,
    /// Its knobs at the start.
    pub knobs: Knobs,
    /// Stripe-cache stripes when fewer than the knobs allow: tests with a cache of two.
    pub stripes_max: Option<u32>,
}

/// Members of a volume, and what says how they belong together.
#[derive(Clone, Debug)]
pub enum VolumeSource {
    /// An array, as [`crate::assemble::assemble`] found it.
    Array(Box<Assembly>),
    /// One member as it is, without metadata.
    Single {
        /// The member.
        member: MemberInfo,
        /// Refuse writes.
        read_only: bool,
    },
}

impl VolumeSource {
    /// The assembly of an array.
    #[must_use]
    pub fn assembly(&self) -> Option<&Assembly> {
        match self {
            Self::Array(assembly) => Some(assembly),
            Self::Single { .. } => None,
        }
    }

    /// Every member in use.
    pub(crate) fn members(&self) -> Vec<&MemberInfo> {
        match self {
            Self::Array(assembly) => assembly.members().map(|(_, member)| &member.info).collect(),
            Self::Single { member, .. } => vec![member],
        }
    }

    /// Frames that the engine needs for one stripe of the stripe cache, or for one unit of a
    /// resync of mirrors.
    pub(crate) fn frames_min(&self, knobs: &Knobs) -> u32 {
        self.assembly().map_or(0, |assembly| assembly.cache_frames(knobs.stripe_size, 1))
    }
}

impl Config {
    /// A configuration for one volume, with memory for a full stripe cache and 64 MiB of payload.
    #[must_use]
    pub fn for_volume(assembly: Assembly, knobs: Knobs) -> Self {
        let stripe_frames = assembly.stripe_frames(knobs.stripe_size);
        let stripes = knobs.cache_stripes(stripe_frames);
        let cache_frames = assembly.cache_frames(knobs.stripe_size, stripes);
        Self::of(VolumeSource::Array(Box::new(assembly)), knobs, cache_frames)
    }

    /// A configuration for one member as it is, without metadata, with 64 MiB of payload.
    #[must_use]
    pub fn for_single(member: MemberInfo, read_only: bool) -> Self {
        Self::of(VolumeSource::Single { member, read_only }, Knobs::default(), 0)
    }

    fn of(source: VolumeSource, knobs: Knobs, cache_frames: u32) -> Self {
        Self {
            volumes: vec![VolumeConfig { source, knobs, stripes_max: None }],
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
