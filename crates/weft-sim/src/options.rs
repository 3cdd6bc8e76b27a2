//! Options of a simulated world: array, members, memory, payload, seed.

use std::collections::BTreeSet;

use weft_engine::WriteBackConfig;
use weft_engine::knobs::{CACHES_PASSED_MAX, Knobs};
use weft_engine::layout::Layout;
use weft_engine::layout::level::LevelRow;
use weft_ondisk::{Level, Version, layout_id};
use weft_units::{Bytes, Sectors, Span};

use crate::checker::Array;
use crate::payload::PayloadMode;

/// Options of a world. Printed with every failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// RAID level.
    pub level: Level,
    /// Slots.
    pub members: usize,
    /// Layout; the level's default if none.
    pub layout: Option<u32>,
    /// Chunk.
    pub chunk: Sectors,
    /// Full stripes: with the chunk, the data of each member.
    pub full_stripes: u64,
    /// Data of each member beyond that, for RAID 0 and linear: nothing where the list ends.
    pub more_data: Vec<Sectors>,
    /// Disks that wait as spares.
    pub spares: usize,
    /// Whether the engine serves a bare volume beside the array.
    pub bare: bool,
    /// Version of the superblocks, and with it their place.
    pub version: Version,
    /// Number of the first member: those below it were given to others that are gone. Not of 0.90,
    /// whose numbers are places.
    pub first_number: u16,
    /// Whether the array is made clean: parity of zeros is zero.
    pub assume_clean: bool,
    /// Bytes of a chunk of the write-intent bitmap, if there is one. Not of 1.0.
    pub bitmap: Option<Bytes>,
    /// Logical block of every disk.
    pub logical_block: u32,
    /// Whether disks give up what is discarded.
    pub discards: bool,
    /// Disks that turn.
    pub rotational: Vec<usize>,
    /// Members that are read where no other has the data. Of RAID 1, not of 0.90.
    pub write_mostly: Vec<usize>,
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
    /// Whether clients send what they have no credit for. It is refused.
    pub greedy: bool,
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
    /// Whether clients differ in I/O class, weight and group.
    pub classes: bool,
    /// Write-back cache above the array.
    pub write_back: Option<WriteBackConfig>,
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
            more_data: Vec::new(),
            spares: 0,
            bare: false,
            version: Version::V1_2,
            first_number: 0,
            assume_clean: true,
            bitmap: None,
            logical_block: 512,
            discards: false,
            rotational: Vec::new(),
            write_mostly: Vec::new(),
            one_space: false,
            torn_writes: false,
            payload: PayloadMode::Bytes,
            knobs: Knobs { stripe_cache_size: 32, ..Knobs::md() },
            stripes_max: None,
            cache_stripes: None,
            client_frames: 1024,
            client_credit: Bytes::mib(32),
            greedy: false,
            seed: 0,
            defer_computes: false,
            latency: Span(10_000),
            checked: true,
            data_promised: true,
            disks_lie: false,
            only: None,
            lost_work_every: 8,
            logged: false,
            classes: false,
            write_back: None,
        }
    }
}

impl Options {
    /// Parity strips of a full stripe: members that a level with parity can do without.
    #[must_use]
    pub fn parities(&self) -> usize {
        LevelRow::of(self.level).parities.into()
    }

    /// Data of a member.
    #[must_use]
    pub fn data_of(&self, member: usize) -> Sectors {
        let more = self.more_data.get(member).copied().unwrap_or_default();
        Sectors(self.chunk.0 * self.full_stripes) + more
    }

    /// Whether every byte is known without these disks. Disks that came later than the first
    /// members count only with parity, each as a member: in another place one stands for a disk
    /// that is lost already.
    #[must_use]
    pub fn survives(&self, array: &Array, lost: &BTreeSet<usize>) -> bool {
        if array.has_parity() {
            return lost.len() <= self.parities();
        }
        array.suffices(|slot| !lost.contains(&slot.index()))
    }

    /// Layout of the array.
    ///
    /// # Panics
    /// The options make no array.
    #[must_use]
    pub fn array_layout(&self) -> Layout {
        let number = self.layout.unwrap_or_else(|| match self.level {
            Level::Raid0 => layout_id::RAID0_ORIGINAL,
            level => layout_id::default_of(level),
        });
        let sizes: Vec<Sectors> = (0..self.members).map(|member| self.data_of(member)).collect();
        let chunk = if self.level.is_striped() { self.chunk } else { Sectors::ZERO };
        Layout::new(self.level, number, self.members as u32, chunk, sizes[0], &sizes)
            .unwrap_or_else(|error| panic!("{self:?}: {error}"))
    }
}

/// What one member request may be at most: what merging makes, or what a stripe or a chunk is.
/// Without parity, and of a bare volume, what a client wrote to one member goes there as it is, and
/// zeroes by the MiB.
pub(crate) fn member_bytes_max(knobs: &Knobs, options: &Options) -> u64 {
    let has_parity = LevelRow::of(options.level).parities > 0;
    let least = if has_parity && !options.bare { 0 } else { 1 << 20 };
    let (stripe, chunk) = (knobs.stripe_size.bytes().0, options.chunk.bytes().0);
    knobs.max_sectors.0.max(stripe).max(chunk).max(least)
}

/// Bytes that may be written while a stripe waits: as many as fill so many stripes again and again.
pub(crate) fn passed_max(stripes: u32, options: &Options) -> Bytes {
    let strip = options.knobs.stripe_size.at_most(options.chunk.bytes()).bytes().0;
    Bytes(CACHES_PASSED_MAX * u64::from(stripes) * strip * options.members as u64)
}
