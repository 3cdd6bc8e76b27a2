//! Options of a simulated world: array, members, memory, payload, seed.

use weft_engine::knobs::Knobs;
use weft_engine::layout::level::LevelRow;
use weft_ondisk::{Level, Version};
use weft_units::{Bytes, Sectors, Span};

use crate::payload::PayloadMode;

/// Options of a world. Printed with every failure. Printed with every failure.
#[derive(Clone, Debug)]
pub struct Options {
    /// RAID level.
    pub level: Level,
    /// Slots.
    pub members: usize,
    /// Layout; the level's default if none.
    pub layout: Option<u32>,
    /// Chunk.
    pub chunk: Sectors,
    /// Full stripes.
    pub full_stripes: u64,
    /// Disks that wait as spares.
    pub spares: usize,
    /// Version of the superblocks, and with it their place.
    pub version: Version,
    /// Number of the first member: those below it were given to others that are gone. Not of 0.90,
    /// whose numbers are places.
    pub first_number: u16,
    /// Whether the array is made clean: parity of zeros is zero.
    pub assume_clean: bool,
    /// Logical block of every disk.
    pub logical_block: u32,
    /// Whether disks give up what is discarded.
    pub discards: bool,
    /// Whether disks take their space from one file system.
    pub one_space: bool,
    /// Whether a write that fails or is given up may have happened, in part or whole. Else it has
    /// not.
    pub torn_writes: bool,
    /// How the simulation stores payload.
    pub payload: PayloadMode,
    /// Knobs at each start.
    pub knobs: Knobs,
    /// Stripes of the stripe cache, if not `stripe_cache_size`.
    pub stripes_max: Option<u32>,
    /// Stripes' worth of frames, if not enough for every stripe of the cache.
    pub cache_stripes: Option<u32>,
    /// Frames for payload.
    pub client_frames: u32,
    /// Bytes that a client may have outstanding.
    pub client_credit: Bytes,
    /// Seed of every random choice.
    pub seed: u64,
    /// Whether computations wait to be chosen like member requests.
    pub defer_computes: bool,
    /// Virtual time that each completion takes.
    pub latency: Span,
    /// Whether checkers watch.
    pub checked: bool,
    /// Whether data is promised: not when more members are hurt than the level survives. Until the
    /// power goes or the process dies every checker counts all the same; after that I2, where what
    /// members hold that are believed is as good as what was written, and what is not about data.
    pub data_promised: bool,
    /// Whether disks may lie about flushes. Then nothing counts that is about data.
    pub disks_lie: bool,
    /// The checker that counts, by the beginning of its name, if not all do.
    pub only: Option<&'static str>,
    /// One state in so many is looked at for lost wake-ups.
    pub lost_work_every: u64,
    /// Whether everything submitted and answered is kept in the log of the `World`.
    pub logged: bool,
}

impl Options {
    /// An array of this shape, small, with everything checked.
    #[must_use]
    pub fn new(level: Level, members: usize, chunk: Sectors) -> Self {
        Self {
            level,
            members,
            layout: None,
            chunk,
            full_stripes: 16,
            spares: 0,
            version: Version::V1_2,
            first_number: 0,
            assume_clean: true,
            logical_block: 512,
            discards: false,
            one_space: false,
            torn_writes: false,
            payload: PayloadMode::Bytes,
            knobs: Knobs { stripe_cache_size: 32, ..Knobs::md() },
            stripes_max: None,
            cache_stripes: None,
            client_frames: 1024,
            client_credit: Bytes::mib(32),
            seed: 0,
            defer_computes: false,
            latency: Span(10_000),
            checked: true,
            data_promised: true,
            disks_lie: false,
            only: None,
            lost_work_every: 8,
            logged: false,
        }
    }
}

impl Options {
    /// Members that the level can do without.
    #[must_use]
    pub fn parities(&self) -> usize {
        LevelRow::of(self.level).parities.into()
    }
}

/// What one member request may be at most: what merging makes, or what a stripe or a chunk is.
pub(crate) fn member_bytes_max(knobs: &Knobs, chunk: Sectors) -> u64 {
    knobs.max_sectors.0.max(knobs.stripe_size.bytes().0).max(chunk.bytes().0)
}
