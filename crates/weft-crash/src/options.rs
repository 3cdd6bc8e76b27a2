//! Options of a simulated world: array, members, memory, payload, seed.

use std::collections::BTreeSet;

use weft_engine::WriteBackConfig;
use weft_engine::knobs::{CACHES_PASSED_MAX, Knobs};
use weft_engine::layout::Layout;
use weft_ondisk::layout_id::Raid10;
use weft_ondisk::{Level, Redundancy, Version};
use weft_units::{Bytes, Sectors, Span};

use crate::array::Array;
use crate::payload::PayloadMode;

/// Options of a world. They are printed with every failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// RAID level of the array.
    pub level: Level,
    /// Number of slots, and so of members when the script starts.
    pub members: usize,
    /// Number of the layout; `None` for the level's default.
    pub layout: Option<u32>,
    /// Size of a chunk.
    pub chunk: Sectors,
    /// Number of full stripes of the array, which with `chunk` determines the data size of each
    /// member.
    pub full_stripes: u64,
    /// Data size of each member beyond that of `full_stripes`, by member, for RAID 0 and linear;
    /// zero for members beyond the end of the list.
    pub more_data: Vec<Sectors>,
    /// Number of spare disks.
    pub spares: usize,
    /// Whether the engine also serves a bare volume: a disk of its own that is exported unchanged.
    pub bare: bool,
    /// Number of members of a second array (RAID 1), which the engine serves beside the first; 0 if
    /// there is none. Must be 0 if `bare` is true.
    pub beside: usize,
    /// Version of the superblocks, which determines their position.
    pub version: Version,
    /// Device number of the first member. The numbers below it count as those of former members. 0
    /// for version 0.90, where device numbers are slots.
    pub first_number: u16,
    /// Whether the array is created clean, which is right because its data and parity are zeros.
    pub assume_clean: bool,
    /// Bytes of a chunk of the write-intent bitmap; `None` without bitmap. Not for version 1.0.
    pub bitmap: Option<Bytes>,
    /// Logical block size of every disk, in bytes.
    pub logical_block: u32,
    /// Whether disks support discards.
    pub discards: bool,
    /// Numbers of the disks that are rotational.
    pub rotational: Vec<usize>,
    /// Numbers of the write-mostly members, which are read only if no other member has the data.
    /// For RAID 1, not for version 0.90.
    pub write_mostly: Vec<usize>,
    /// Whether all disks take their space from one file system, as sparse files do.
    pub one_space: bool,
    /// Whether a failed or aborted write may have been stored, in part or as a whole. If false,
    /// nothing of it was stored.
    pub torn_writes: bool,
    /// Representation of payload: complete, as tags, or absent.
    pub payload: PayloadMode,
    /// Knobs of the volumes at each start of an engine.
    pub knobs: Knobs,
    /// Number of stripes in the stripe cache; `None`: the value of the knob `stripe_cache_size`.
    pub stripes_max: Option<u32>,
    /// Number of stripes for which the stripe cache has frames; `None` if it has frames for all of
    /// its stripes.
    pub cache_stripes: Option<u32>,
    /// Number of frames for client payload.
    pub client_frames: u32,
    /// Bytes that a client may have outstanding (its credit).
    pub client_credit: Bytes,
    /// Whether clients send requests beyond their credit, which the engine refuses.
    pub greedy: bool,
    /// Seed of every random choice.
    pub seed: u64,
    /// Whether computations complete in a chosen order, as member requests do. If false they
    /// complete at once.
    pub defer_computes: bool,
    /// Virtual time that passes with each completion, if `drives` is empty.
    pub latency: Span,
    /// Names of the drive models that determine when requests of disks complete, by the disks'
    /// numbers. If there are more disks than models, the list is used again from its beginning.
    /// Without models there are no drives, and requests complete in any order.
    pub drives: Vec<&'static str>,
    /// Whether the checkers run.
    pub checked: bool,
    /// Whether the promises cover data. They do not if more members have faults than the level
    /// survives. Without the promises, all checkers still count until the power is cut or the
    /// process crashes. From then on only I2 and the checkers that do not judge data count, and I2
    /// accepts all content of members in sync as if it had been written.
    pub data_promised: bool,
    /// Whether disks may lie about flushes. Violations by checkers of data are then ignored.
    pub disks_lie: bool,
    /// Beginning of the name of the only checker that counts; `None` if all count.
    pub only: Option<&'static str>,
    /// Sampling rate of the check for lost wake-ups, which is expensive: one state in this many is
    /// checked.
    pub lost_work_every: u64,
    /// Whether requests and completions are recorded in [`crate::World::log`].
    pub logged: bool,
    /// Whether clients differ in I/O class, weight and group.
    pub classes: bool,
    /// Configuration of the write-back cache above the array; `None` without a cache.
    pub write_back: Option<WriteBackConfig>,
}

impl Options {
    /// Options of a small array, with all checkers on.
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
            beside: 0,
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
            drives: Vec::new(),
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
    /// Number of disks of the volume beside the array: 0 if there is none.
    #[must_use]
    pub fn disks_beside(&self) -> usize {
        self.beside.max(usize::from(self.bare))
    }

    /// Number of parity strips of a full stripe, which is also the number of members that a level
    /// with parity can lose; 0 without parity.
    #[must_use]
    pub fn parities(&self) -> usize {
        self.level.parity_count() as usize
    }

    /// Number of copies of the data; 1 without mirrors.
    #[must_use]
    pub fn copies(&self) -> usize {
        let row = self.level.row();
        match row.redundancy {
            Redundancy::Mirror => self.members,
            Redundancy::Copies => {
                let layout = self.layout.unwrap_or(row.layouts.default_number());
                Raid10::from_code(layout).map_or(1, |parts| parts.copies() as usize)
            }
            Redundancy::None | Redundancy::Parity(_) => 1,
        }
    }

    /// Size of the data area of a member.
    #[must_use]
    pub fn data_of(&self, member: usize) -> Sectors {
        let more = self.more_data.get(member).copied().unwrap_or_default();
        Sectors(self.chunk.0 * self.full_stripes) + more
    }

    /// Name of the drive model of a disk; `None` if there are no drives.
    #[must_use]
    pub fn drive_of(&self, disk: usize) -> Option<&'static str> {
        self.drives.get(disk % self.drives.len().max(1)).copied()
    }

    /// Whether every byte can be read without the disks in `lost`. With parity, each disk in `lost`
    /// counts, even one that joined later. Without parity only the original members count, because
    /// a disk that joined later has replaced one that is already lost.
    #[must_use]
    pub fn survives(&self, array: &Array, lost: &BTreeSet<usize>) -> bool {
        if array.has_parity() {
            return lost.len() <= self.parities();
        }
        array.suffices(|slot| !lost.contains(&slot.index()))
    }

    /// Layout of the array that the options describe.
    ///
    /// # Panics
    /// Panics if no array can be made of the options.
    #[must_use]
    pub fn array_layout(&self) -> Layout {
        let number = self.layout.unwrap_or(self.level.row().layouts.default_number());
        let sizes: Vec<Sectors> = (0..self.members).map(|member| self.data_of(member)).collect();
        let chunk = if self.level.is_striped() { self.chunk } else { Sectors::ZERO };
        Layout::new(self.level, number, self.members as u32, chunk, sizes[0], &sizes)
            .unwrap_or_else(|error| panic!("{self:?}: {error}"))
    }
}

/// Largest member request in bytes: the largest of `max_sectors`, a stripe and a chunk. Without
/// parity, and on a volume beside the array, a client's write goes to a member unchanged and zeros
/// go in parts of 1 MiB, so the result is at least 1 MiB.
pub(crate) fn member_bytes_max(knobs: &Knobs, options: &Options) -> u64 {
    let least = if options.level.has_parity() && options.disks_beside() == 0 { 0 } else { 1 << 20 };
    let (stripe, chunk) = (knobs.stripe_size.bytes().0, options.chunk.bytes().0);
    knobs.max_sectors.0.max(stripe).max(chunk).max(least)
}

/// Bytes of other requests that may be written while a stripe waits: enough to fill all stripes of
/// the cache [`CACHES_PASSED_MAX`] times.
pub(crate) fn passed_max(stripes: u32, options: &Options) -> Bytes {
    let strip = options.knobs.stripe_size.at_most(options.chunk.bytes()).bytes().0;
    Bytes(CACHES_PASSED_MAX * u64::from(stripes) * strip * options.members as u64)
}
