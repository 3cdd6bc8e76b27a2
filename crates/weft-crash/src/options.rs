//! Options of a simulated world: array, members, memory, payload, seed.

use std::collections::BTreeSet;

use weft_engine::WriteBackConfig;
use weft_engine::knobs::{CACHES_PASSED_MAX, Knobs};
use weft_engine::layout::Layout;
use weft_engine::layout::level::LevelRow;
use weft_ondisk::{Level, Version, layout_id};
use weft_units::{Bytes, Sectors, Span};

use crate::array::Array;
use crate::payload::PayloadMode;

/// Options of a world, which are printed with every failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// RAID level.
    pub level: Level,
    /// Number of slots.
    pub members: usize,
    /// Layout; the level's default if none.
    pub layout: Option<u32>,
    /// Size of a chunk.
    pub chunk: Sectors,
    /// Number of full stripes, which with the chunk gives the data of each member.
    pub full_stripes: u64,
    /// Additional data of each member, for RAID 0 and linear; none for members beyond the list.
    pub more_data: Vec<Sectors>,
    /// Number of spare disks.
    pub spares: usize,
    /// Whether the engine serves a bare volume beside the array.
    pub bare: bool,
    /// Version of the superblocks, which decides their position.
    pub version: Version,
    /// Number of the first member: lower numbers belonged to members that are gone. Not for 0.90,
    /// where numbers are slots.
    pub first_number: u16,
    /// Whether the array is created clean: parity of zeros is zero.
    pub assume_clean: bool,
    /// Bytes of a chunk of the write-intent bitmap, if there is one. Not for 1.0.
    pub bitmap: Option<Bytes>,
    /// Logical block size of every disk.
    pub logical_block: u32,
    /// Whether disks support discards.
    pub discards: bool,
    /// Disks that are rotational.
    pub rotational: Vec<usize>,
    /// Members that are read only if no other has the data. For RAID 1, not for 0.90.
    pub write_mostly: Vec<usize>,
    /// Whether all disks take their space from one file system.
    pub one_space: bool,
    /// Whether a write that fails or is aborted may have happened, in part or whole. Otherwise it
    /// has not.
    pub torn_writes: bool,
    /// Representation of payload.
    pub payload: PayloadMode,
    /// Knobs at each start of an engine.
    pub knobs: Knobs,
    /// Stripes of the stripe cache, if not `stripe_cache_size`.
    pub stripes_max: Option<u32>,
    /// Frames of the stripe cache, as a number of stripes, if fewer than the cache has stripes.
    pub cache_stripes: Option<u32>,
    /// Number of frames for payload.
    pub client_frames: u32,
    /// Bytes that a client may have outstanding.
    pub client_credit: Bytes,
    /// Whether clients send requests beyond their credit, which are refused.
    pub greedy: bool,
    /// Seed of every random choice.
    pub seed: u64,
    /// Whether computations complete in a chosen order, like member requests.
    pub defer_computes: bool,
    /// Virtual time of each completion.
    pub latency: Span,
    /// Whether checkers run.
    pub checked: bool,
    /// Whether the promises cover data; they do not if more members are hurt than the level
    /// survives. Then all checkers still count until the power is cut or the process crashes. After
    /// that I2 counts, which accepts the content of believed members like written content, and
    /// checkers that are not about data.
    pub data_promised: bool,
    /// Whether disks may lie about flushes. Then checkers of data do not count.
    pub disks_lie: bool,
    /// The only checker that counts, by the beginning of its name; all if none.
    pub only: Option<&'static str>,
    /// One state in this many is checked for lost wake-ups.
    pub lost_work_every: u64,
    /// Whether requests and answers are recorded in the log of the `World`.
    pub logged: bool,
    /// Whether clients differ in I/O class, weight and group.
    pub classes: bool,
    /// Configuration of the write-back cache above the array, if there is one.
    pub write_back: Option<WriteBackConfig>,
}

impl Options {
    /// A small array with all checkers on.
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
    /// Number of parity strips of a full stripe: members that a level with parity can lose.
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

    /// Whether every byte can be read without these disks. Disks that joined later count only with
    /// parity, each as a member: otherwise such a disk replaces one that is already lost.
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
    /// Panics if no array can be made of the options.
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

/// Largest member request: the limit of merging, a stripe or a chunk. Without parity, and on a bare
/// volume, a client's write goes to a member unchanged, and zeros go in parts of 1 MiB.
pub(crate) fn member_bytes_max(knobs: &Knobs, options: &Options) -> u64 {
    let has_parity = LevelRow::of(options.level).parities > 0;
    let least = if has_parity && !options.bare { 0 } else { 1 << 20 };
    let (stripe, chunk) = (knobs.stripe_size.bytes().0, options.chunk.bytes().0);
    knobs.max_sectors.0.max(stripe).max(chunk).max(least)
}

/// Bytes that may be written while a stripe waits: enough to fill all stripes of the cache several
/// times.
pub(crate) fn passed_max(stripes: u32, options: &Options) -> Bytes {
    let strip = options.knobs.stripe_size.at_most(options.chunk.bytes()).bytes().0;
    Bytes(CACHES_PASSED_MAX * u64::from(stripes) * strip * options.members as u64)
}
