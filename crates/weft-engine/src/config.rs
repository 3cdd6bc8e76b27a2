//! Configuration of an engine: volumes, their members, memory.

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
    /// Frames `1 ..= cache_frames` belong to the engine. At least one stripe of the widest array.
    pub cache_frames: u32,
    /// Number of frames after those, which belong to the driver, for payload of requests.
    pub client_frames: u32,
    /// Payload that a client may have outstanding; see [`crate::ClientRequest::payload`].
    pub client_credit: Bytes,
    /// Stripes decided per turn (md: `MAX_STRIPE_BATCH`, 8).
    pub turn_stripes_max: u32,
    /// Seconds since the Unix epoch at `Time(0)`: superblocks carry the time of their last update.
    pub epoch_secs: u64,
    /// Write-back cache above all volumes, if there is one. A crash then loses data that was not
    /// flushed, even if only the process dies.
    pub write_back: Option<WriteBackConfig>,
}

/// The write-back cache of an engine. Its limits and its throttle are knobs, at the start those of
/// the first volume: [`PoolKnobs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteBackConfig {
    /// Number of 4 KiB pages that it has memory for: the largest `dirty_bytes`.
    pub pages: u32,
}

impl WriteBackConfig {
    /// A cache of this many bytes, at least 32 KiB.
    #[must_use]
    pub fn of(size: Bytes) -> Self {
        let pages = u32::try_from(size.0 / FRAME_BYTES).unwrap_or(u32::MAX / 2).max(8);
        Self { pages }
    }

    /// Frames of its pages and of the copies that are being written.
    #[must_use]
    pub fn frames(&self) -> u32 {
        self.pages + BUFFERS * self.buffer_pages()
    }

    /// Pages of a buffer; all buffers together are at most half as large as the cache.
    pub(crate) fn buffer_pages(&self) -> u32 {
        (self.pages / (2 * BUFFERS)).clamp(1, BUFFER_PAGES_MAX)
    }

    /// The rules of the pool of pages.
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

/// Number of write-back buffers: this many of the longest writes are under way at one time.
pub(crate) const BUFFERS: u32 = 8;

/// A write of the cache is at most 2 MiB long: eight of them keep a queue full and cover a full
/// stripe of most arrays.
const BUFFER_PAGES_MAX: u32 = 512;

/// One volume.
#[derive(Clone, Debug)]
pub struct VolumeConfig {
    /// Its members.
    pub source: VolumeSource,
    /// Its knobs at the start.
    pub knobs: Knobs,
    /// Limit of stripe-cache stripes below that of the knobs: tests use a cache of two.
    pub stripes_max: Option<u32>,
}

/// Members of a volume, and the description of how they belong together.
#[derive(Clone, Debug)]
pub enum VolumeSource {
    /// An array, as [`crate::assemble::assemble`] found it.
    Array(Box<Assembly>),
    /// One member without metadata.
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
            write_back: None,
        }
    }

    /// This configuration with a write-back cache.
    #[must_use]
    pub fn with_write_back(self, cache: WriteBackConfig) -> Self {
        Self { write_back: Some(cache), ..self }
    }

    /// Frames of the write-back cache, which follow those of stripe caches.
    #[must_use]
    pub fn write_back_frames(&self) -> u32 {
        self.write_back.as_ref().map_or(0, WriteBackConfig::frames)
    }

    /// Frames of the cache's pages, which no member reads or writes: the content of a page is
    /// copied before it is written.
    #[must_use]
    pub fn write_back_page_frames(&self) -> Range<u32> {
        let first = 1 + self.cache_frames;
        first..first + self.write_back.as_ref().map_or(0, |cache| cache.pages)
    }

    /// Frames of the whole slab: zero frame, caches, payload.
    #[must_use]
    pub fn frames_total(&self) -> u32 {
        self.client_frames_first() + self.client_frames
    }

    /// The first frame of the driver's part.
    #[must_use]
    pub fn client_frames_first(&self) -> u32 {
        1 + self.cache_frames + self.write_back_frames()
    }
}
