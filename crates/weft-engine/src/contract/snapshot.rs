//! Snapshot of an engine: counters and states at one moment, for people and tests.

use weft_units::{Bytes, ClientId, Group, MemberIndex, SectorRange, Sectors, Slot};

use crate::contract::error::ReplyError;
use crate::contract::input::{Class, Purpose, SyncAction};
use crate::contract::member::MemberState;
use crate::contract::stripe_waits::StripeWaits;
use crate::knobs::Knobs;

/// State and counters of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Volumes, in order of [`weft_units::VolumeId`].
    pub volumes: Vec<VolumeSnapshot>,
    /// Outstanding credit of each client that has any.
    pub clients: Vec<(ClientId, Bytes)>,
    /// Number of `Submit`s and `Compute`s without their `Done`.
    pub tokens_outstanding: usize,
    /// Client frames that the engine holds.
    pub frames_held: u32,
    /// The write-back cache, if there is one.
    pub write_back: Option<WriteBackSnapshot>,
}

/// The write-back cache, in pages of 4 KiB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteBackSnapshot {
    /// Rule by which clients are throttled, as in the knob `dirty_throttle`.
    pub throttle: &'static str,
    /// Limit of pages that are dirty or being written.
    pub limit_pages: u64,
    /// Number of dirty pages above which they are written at once.
    pub background_pages: u64,
    /// Dirty pages.
    pub dirty_pages: u64,
    /// Pages that are being written; a page that is dirty again counts twice.
    pub writeback_pages: u64,
    /// Requests that wait for room, or behind one that waits.
    pub requests_waiting: usize,
    /// Writes that are kept unanswered, because the throttle makes their clients pause.
    pub answers_delayed: usize,
    /// Pauses of clients so far.
    pub pauses: u64,
    /// Volumes, in order of [`weft_units::VolumeId`].
    pub volumes: Vec<WriteBackVolume>,
}

/// Pages of one volume in the write-back cache, of 4 KiB each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteBackVolume {
    /// Dirty pages.
    pub dirty_pages: u64,
    /// Pages that are being written.
    pub writeback_pages: u64,
    /// Pages written so far.
    pub written_pages: u64,
    /// Error of the last write-back, if it failed: its pages stay dirty and are tried again.
    pub failing: Option<ReplyError>,
}

/// One volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeSnapshot {
    /// md's `array_state`: `clean`, `active`, `active-idle`, `readonly`, `broken` …
    pub array_state: &'static str,
    /// Size in bytes.
    pub size: Bytes,
    /// Unit of requests, a power of two: the first byte and the length of a request are multiples.
    pub request_unit: Bytes,
    /// Slots without a member that is in sync.
    pub degraded: usize,
    /// Update count of the superblocks.
    pub events: u64,
    /// Time at which superblocks were last written, in seconds since 1970; `None` for a bare
    /// member.
    pub updated_secs: Option<u64>,
    /// The write-intent bitmap, if the array has one.
    pub bitmap: Option<BitmapSnapshot>,
    /// `sync_action`.
    pub sync_action: SyncAction,
    /// Data sectors of each member that the running or last sync has passed, and their total.
    pub sync_completed: Option<(Sectors, Sectors)>,
    /// Stripes that the running or last sync has covered.
    pub sync_stripes: u64,
    /// md's `mismatch_cnt`, in sectors.
    pub mismatch_cnt: u64,
    /// Places of the mismatches that the running or last check found.
    pub mismatches: Mismatches,
    /// A member has no space: writes are refused until it has.
    pub no_space: bool,
    /// First data sector of the members from which parity may be wrong; `None` if there is none.
    pub resync_from: Option<Sectors>,
    /// Counters of the array's level.
    pub raid: RaidSnapshot,
    /// Client requests not answered yet.
    pub requests_active: usize,
    /// Present knobs.
    pub knobs: Knobs,
    /// Every member, failed ones included until they are removed.
    pub members: Vec<MemberSnapshot>,
    /// Sectors that members moved for each party: the array itself, resyncs, clients.
    pub accounts: Vec<AccountSnapshot>,
}

/// Sectors that all members moved for one party, and its requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountSnapshot {
    /// The party.
    pub party: Party,
    /// The client is gone.
    pub gone: bool,
    /// I/O class of its last request.
    pub class: Class,
    /// Weight of its last request; 0 for the default.
    pub weight: u16,
    /// Its group.
    pub group: Group,
    /// Reads of the volume.
    pub reads: u64,
    /// Other requests of the volume.
    pub writes: u64,
    /// Bytes of the reads.
    pub bytes_read: Bytes,
    /// Bytes of the other requests.
    pub bytes_written: Bytes,
    /// Sectors that members read and wrote for it.
    pub sectors: Sectors,
    /// Sectors within the last seconds in which the volume was active: two to four.
    pub sectors_recently: Sectors,
    /// Sectors by purpose; purposes without any are left out.
    pub by_purpose: Vec<PurposeSectors>,
}

/// Sectors that members moved for one purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PurposeSectors {
    /// The purpose.
    pub purpose: Purpose,
    /// Sectors read.
    pub read: Sectors,
    /// Sectors written.
    pub written: Sectors,
}

impl PurposeSectors {
    /// Whether any sectors were moved.
    #[must_use]
    pub fn is_some(&self) -> bool {
        self.read + self.written > Sectors::ZERO
    }
}

/// Party that member requests are charged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Party {
    /// A client.
    Client(ClientId),
    /// The array itself.
    Metadata,
    /// Clients that are not counted one by one, because there are too many, or were.
    Others,
    /// Resync, recovery, check and repair.
    Resync,
}

/// Counters of a write-intent bitmap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BitmapSnapshot {
    /// Bytes of a chunk.
    pub chunk: Bytes,
    /// Number of chunks.
    pub chunks: u64,
    /// Chunks with a set bit.
    pub dirty: u64,
    /// Pages of 2,048 chunks, as md counts them.
    pub pages: u64,
    /// Pages with a chunk that has its bit set.
    pub pages_dirty: u64,
    /// Update count at which bits were last cleared: a member that left before then is copied as a
    /// whole when it comes back.
    pub events_cleared: u64,
}

/// Counters of a level: for RAID 4, 5 and 6, of the stripe cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RaidSnapshot {
    /// Stripes of the cache in use.
    pub stripe_cache_active: u32,
    /// Waits of stripes until they were read or filled.
    pub stripe_waits: StripeWaits,
}

/// Stripes of one strip per member in which a check found that data and parity disagree, or that
/// were not corrected. With P and Q the two differences tell the wrong strip, if it is a single
/// one; with one parity nothing does.
///
/// Source   H. P. Anvin, "The mathematics of RAID-6", §4, "single-disk corruption recovery"
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mismatches {
    /// Number of mismatches that each member alone explains.
    pub by_member: Vec<(MemberIndex, u64)>,
    /// Stripes that no member alone explains, or that have too few strips to tell.
    pub not_located: u64,
    /// The first mismatches that were found, at most [`Mismatches::LISTED`].
    pub first: Vec<Mismatch>,
}

/// A stripe in which data and parity disagree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Data sector of the members at which it begins.
    pub sector: Sectors,
    /// The strip that alone explains the mismatch.
    pub wrong: Option<WrongStrip>,
}

/// A member's strip of a stripe that is wrong by the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongStrip {
    /// The member.
    pub member: MemberIndex,
    /// Its slot.
    pub slot: Slot,
    /// First sector of the strip on the member.
    pub at: Sectors,
}

impl Mismatches {
    /// Largest number of mismatches that are listed; all are counted.
    pub const LISTED: usize = 64;

    pub(crate) fn add(&mut self, mismatch: Mismatch) {
        match mismatch.wrong {
            None => self.not_located += 1,
            Some(WrongStrip { member, .. }) => {
                match self.by_member.iter_mut().find(|(index, _)| *index == member) {
                    Some((_, count)) => *count += 1,
                    None => self.by_member.push((member, 1)),
                }
            }
        }
        if self.first.len() < Self::LISTED {
            self.first.push(mismatch);
        }
    }
}

/// One member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberSnapshot {
    /// The member.
    pub member: MemberIndex,
    /// Its label.
    pub label: String,
    /// Its slot, if it has one.
    pub slot: Option<Slot>,
    /// Its entry of `dev_roles`.
    pub dev_number: u32,
    /// State of the member.
    pub state: MemberState,
    /// Whether a mirror reads it only when no other can be read.
    pub write_mostly: bool,
    /// Sectors of the member that hold data of the array; `None` for a member without metadata.
    pub data: Option<SectorRange>,
    /// Requests and sectors since the start.
    pub reads: u64,
    /// Writes since the start.
    pub writes: u64,
    /// Flushes since the start.
    pub flushes: u64,
    /// Sectors read.
    pub sectors_read: u64,
    /// Sectors written.
    pub sectors_written: u64,
    /// Sectors read and written, by party; parties without any are left out.
    pub served: Vec<(Party, Sectors)>,
    /// Sectors that could not be read and were written again.
    pub corrected: u64,
    /// Requests outstanding.
    pub in_flight: u32,
    /// Largest number of requests that it has at once; `None`: no limit.
    pub queue_depth: Option<u32>,
    /// Knobs of its queue, where they differ from the volume's.
    pub queue_knobs: Option<Box<Knobs>>,
}

/// Stripes of a stripe cache by state, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StripesInUse {
    /// Stripes in use: on a list below, or with something in flight.
    pub active: u32,
    /// Delayed stripes: they wait for a permission to preread.
    pub delayed: u32,
    /// Stripes on the handle list.
    pub ready: u32,
    /// Stripes on the hold list: they may preread, and stripes on the handle list go before them.
    pub held: u32,
    /// Stripes with a permission to preread, used or not: those on the hold list and others.
    pub prereading: u32,
}
