//! Configuration of an engine: volumes, their members, and memory.

use std::ops::Range;

use weft_units::{Bytes, FRAME_BYTES};

use crate::assemble::Assembly;
use crate::contract::member::MemberInfo;
use crate::knobs::{Knobs, PoolKnobs};
use crate::page_cache::PoolConfig;

/// Configuration of an engine.
#[derive(Clone, Debug)]
pub struct Config {
    /// The volumes, in order of [`weft_units::VolumeId`].
    pub volumes: Vec<VolumeConfig>,
    /// Number of frames for stripe caches and scratch space: the frames `1 ..= cache_frames`. Must
    /// suffice for at least one stripe of the widest array.
    pub cache_frames: u32,
    /// Number of frames for the payload of requests. They are the last frames of the slab and
    /// belong to the driver.
    pub client_frames: u32,
    /// Bytes of payload that each client may have outstanding; see
    /// [`crate::ClientRequest::payload`].
    pub client_credit: Bytes,
    /// Largest number of times that a volume picks stripes to handle in one turn (md:
    /// `MAX_STRIPE_BATCH`, 8). Each time, the volume picks one stripe or, with `stripe_size=auto`,
    /// a run of adjacent ones.
    pub turn_stripes_max: u32,
    /// Wall-clock time at the engine's `Time(0)`, in seconds since 1970; superblocks record update
    /// times by it.
    pub epoch_secs: u64,
    /// Write-back cache above all volumes; `None` without one. With a cache, a crash loses writes
    /// that were not flushed, even if only the process dies.
    pub write_back: Option<WriteBackConfig>,
}

/// Size of an engine's write-back cache. Its limits and its throttle are knobs ([`PoolKnobs`]),
/// which start with the values of the first volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteBackConfig {
    /// Number of 4 KiB pages, which is also the upper bound of the knob `dirty_bytes`.
    pub pages: u32,
}

impl WriteBackConfig {
    /// Configuration of a cache of `size` bytes, but at least 32 KiB.
    #[must_use]
    pub fn of(size: Bytes) -> Self {
        let pages = u32::try_from(size.0 / FRAME_BYTES).unwrap_or(u32::MAX / 2).max(8);
        Self { pages }
    }

    /// Number of frames for the pages, and for the write-back buffers that hold copies of pages
    /// under writeback.
    #[must_use]
    pub fn frames(&self) -> u32 {
        self.pages + BUFFERS * self.buffer_pages()
    }

    /// Number of pages of one write-back buffer, at least one. All buffers together are at most
    /// half as large as the cache, except in a cache of fewer than 16 pages.
    pub(crate) fn buffer_pages(&self) -> u32 {
        (self.pages / (2 * BUFFERS)).clamp(1, BUFFER_PAGES_MAX)
    }

    /// Configuration of the pool of dirty pages, for a cache of this size with these knobs.
    pub(crate) fn pool(&self, knobs: &PoolKnobs) -> PoolConfig {
        let pages = self.pages.into();
        PoolConfig {
            dirty: knobs.dirty,
            background: knobs.background,
            expire_centisecs: knobs.expire_centisecs.into(),
            writeback_centisecs: knobs.writeback_centisecs.into(),
            ..PoolConfig::new(knobs.kernel(), 1, pages, pages)
        }
    }
}

/// Number of write-back buffers, which is also the largest number of writes of the largest size
/// that can be in flight at the same time: each of them fills one buffer.
pub(crate) const BUFFERS: u32 = 8;

/// Largest size of a write by the cache, in pages (2 MiB). Eight such writes keep a queue full and
/// cover a full stripe of most arrays.
const BUFFER_PAGES_MAX: u32 = 512;

/// Configuration of one volume.
#[derive(Clone, Debug)]
pub struct VolumeConfig {
    /// Members of the volume: those of an array, or a single one without metadata.
    pub source: VolumeSource,
    /// Initial values of the knobs.
    pub knobs: Knobs,
    /// Additional limit on the number of stripes in the stripe cache; `None` for no such limit.
    /// Tests use it for a cache of two stripes.
    pub stripes_max: Option<u32>,
}

/// Members of a volume: those of an array, or a single one without metadata.
#[derive(Clone, Debug)]
pub enum VolumeSource {
    /// Members of an array, as [`crate::assemble::assemble`] returned it.
    Array(Box<Assembly>),
    /// One member without metadata.
    Single {
        /// The only member.
        member: MemberInfo,
        /// Whether writes are refused.
        read_only: bool,
    },
}

impl VolumeSource {
    /// Assembly of the array; `None` for a single member.
    #[must_use]
    pub fn assembly(&self) -> Option<&Assembly> {
        match self {
            Self::Array(assembly) => Some(assembly),
            Self::Single { .. } => None,
        }
    }

    /// Makes a reshape that is under way wait until a command continues it.
    pub fn hold_reshape(&mut self) {
        if let Self::Array(assembly) = self
            && let Some(reshape) = &mut assembly.reshape
        {
            reshape.held = true;
        }
    }

    pub(crate) fn members(&self) -> Vec<&MemberInfo> {
        match self {
            Self::Array(assembly) => assembly.members().map(|(_, member)| &member.info).collect(),
            Self::Single { member, .. } => vec![member],
        }
    }

    /// Smallest number of frames with which the volume can work: those of one stripe of the stripe
    /// cache, or of one unit of a mirror's resync. 0 for RAID 0, linear and a single member.
    pub(crate) fn frames_min(&self, knobs: &Knobs) -> u32 {
        self.assembly().map_or(0, |assembly| assembly.cache_frames(knobs.stripe_size, 1))
    }
}

impl Config {
    /// Configuration for one volume, with memory for the stripe cache that `knobs` ask for and 64
    /// MiB of payload.
    #[must_use]
    pub fn for_volume(assembly: Assembly, knobs: Knobs) -> Self {
        let stripe_frames = assembly.stripe_frames(knobs.stripe_size);
        let stripes = knobs.cache_stripes(stripe_frames);
        let cache_frames = assembly.cache_frames(knobs.stripe_size, stripes);
        Self::of(VolumeSource::Array(Box::new(assembly)), knobs, cache_frames)
    }

    /// Configuration for one member as it is, without metadata, with 64 MiB of payload.
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
            write_back: None,
        }
    }

    /// Adds a write-back cache to this configuration.
    #[must_use]
    pub fn with_write_back(self, cache: WriteBackConfig) -> Self {
        Self { write_back: Some(cache), ..self }
    }

    /// Number of frames of the write-back cache; 0 without one. They follow the frames of the
    /// stripe caches in the slab.
    #[must_use]
    pub fn write_back_frames(&self) -> u32 {
        self.write_back.as_ref().map_or(0, WriteBackConfig::frames)
    }

    /// Frame numbers of the write-back cache's pages; empty without a cache. No member reads or
    /// writes these frames directly: a page is copied to a write-back buffer before it is written.
    #[must_use]
    pub fn write_back_page_frames(&self) -> Range<u32> {
        let first = 1 + self.cache_frames;
        first..first + self.write_back.as_ref().map_or(0, |cache| cache.pages)
    }

    /// Number of frames of the whole slab: zero frame, stripe caches, write-back cache, payload.
    #[must_use]
    pub fn frames_total(&self) -> u32 {
        self.client_frames_first() + self.client_frames
    }

    /// Number of the first frame for payload, which belongs to the driver.
    #[must_use]
    pub fn client_frames_first(&self) -> u32 {
        1 + self.cache_frames + self.write_back_frames()
    }
}
