//! Snapshot of an engine: counters and states at one moment, for status reports and tests.

use weft_ondisk::Level;
use weft_units::{Bytes, ClientId, Group, MemberIndex, SectorRange, Sectors, Slot, Time};

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
    /// Outstanding payload in bytes of each client that has any.
    pub clients: Vec<(ClientId, Bytes)>,
    /// Number of `Submit`s and `Compute`s without their `Done` so far.
    pub tokens_outstanding: usize,
    /// Number of client frames that the engine holds.
    pub frames_held: u32,
    /// State of the write-back cache; `None` if there is none.
    pub write_back: Option<WriteBackSnapshot>,
}

/// Work in progress of all volumes together. A snapshot has these counts too; taking them alone is
/// cheap enough to be done at every step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Number of client requests that are not answered yet.
    pub requests_active: usize,
    /// Number of stripes in use in the stripe caches.
    pub stripe_cache_active: u32,
    /// Number of `Submit`s and `Compute`s without their `Done` so far.
    pub tokens_outstanding: usize,
    /// Number of client frames that the engine holds.
    pub frames_held: u32,
    /// Number of pages of the write-back cache that are dirty or under writeback; 0 without a
    /// cache.
    pub write_back_pages: u64,
    /// Dirty limit of the write-back cache in pages; 0 without a cache.
    pub limit_pages: u64,
}

/// State of the write-back cache. Pages are of 4 KiB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteBackSnapshot {
    /// Name of the rule by which clients are throttled, as in the knob `dirty_throttle`.
    pub throttle: &'static str,
    /// Dirty limit: the largest number of pages that are dirty or under writeback.
    pub limit_pages: u64,
    /// Background threshold: above this number of dirty pages, writeback starts at once.
    pub background_pages: u64,
    /// Number of dirty pages.
    pub dirty_pages: u64,
    /// Number of pages under writeback. A page that became dirty again since is also counted in
    /// `dirty_pages`.
    pub writeback_pages: u64,
    /// Number of requests that wait until the dirty limit permits more pages, or that wait behind
    /// such a request.
    pub requests_waiting: usize,
    /// Number of writes that are complete but not answered yet, because the throttle makes their
    /// clients pause.
    pub answers_delayed: usize,
    /// Number of pauses that the throttle has imposed on clients since the engine started.
    pub pauses: u64,
    /// Counts of the runs of pages that were written only in part since the engine started.
    pub partly_written: PartlyWritten,
    /// State of each volume in the cache, in order of [`weft_units::VolumeId`].
    pub volumes: Vec<WriteBackVolume>,
}

/// Numbers of runs of dirty pages that the cache wrote in several parts, and in which an earlier
/// part failed although the last one succeeded. Such a run counts as failed. A run has several
/// parts if some of its pages were replaced on the volume while it waited to be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartlyWritten {
    /// Number of runs in which a part failed because a member had no space.
    pub lacks: u64,
    /// Number of runs in which a part failed for any other reason.
    pub errors: u64,
}

impl std::ops::AddAssign for PartlyWritten {
    fn add_assign(&mut self, other: Self) {
        self.lacks += other.lacks;
        self.errors += other.errors;
    }
}

/// State of one volume in the write-back cache. Pages are of 4 KiB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteBackVolume {
    /// Number of dirty pages.
    pub dirty_pages: u64,
    /// Number of pages under writeback.
    pub writeback_pages: u64,
    /// Number of pages written since the engine started.
    pub written_pages: u64,
    /// Error of the last write-back if it failed; the pages stay dirty and are tried again. `None`
    /// if it succeeded.
    pub failing: Option<ReplyError>,
}

/// Identity of a sync, by which an observer tells it from another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastSync {
    /// Number of the sync among those that the engine has started for the volume, from 1 on.
    pub number: u64,
    /// Action of the sync: md's `last_sync_action`.
    pub action: SyncAction,
    /// Sector at which the sync began, counted as [`VolumeSnapshot::sync_completed`].
    pub from: Sectors,
    /// Sector at which the sync was asked to end; `None` for the end of the array.
    pub to: Option<Sectors>,
    /// Time at which the sync ended; `None` while it runs.
    pub ended: Option<Time>,
}

/// State and counters of one volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeSnapshot {
    /// md's `array_state`: `clean`, `active`, `active-idle`, `readonly`, `broken` …
    pub array_state: &'static str,
    /// Size of the volume in bytes.
    pub size: Bytes,
    /// Granularity of requests, a power of two: the first byte and the length of a request must be
    /// multiples of it.
    pub request_unit: Bytes,
    /// Number of slots; during a reshape, of the larger geometry.
    pub slots: usize,
    /// Layout of the array; during a reshape, the layout before it. `None` for a single member
    /// without metadata.
    pub layout: Option<LayoutSnapshot>,
    /// Number of slots without an in-sync member.
    pub degraded: usize,
    /// Update count of the superblocks (`events`).
    pub events: u64,
    /// Time of the last superblock update, in seconds since 1970; `None` for a single member
    /// without metadata.
    pub updated_secs: Option<u64>,
    /// State of the write-intent bitmap; `None` if the array has none.
    pub bitmap: Option<BitmapSnapshot>,
    /// md's `sync_action`: the sync that runs, or `idle` or `frozen`.
    pub sync_action: SyncAction,
    /// The running or last sync; `None` if none has run.
    pub last_sync: Option<LastSync>,
    /// Sector up to which the running or last sync has come, and the total: data sectors of each
    /// member, or sectors of the array for a resync or check of RAID 10. The total is that of a
    /// sync of everything, also for a check of a range. `None` if no sync has run.
    pub sync_completed: Option<(Sectors, Sectors)>,
    /// Number of units that the running or last sync has finished; 0 if none has run. A unit is one
    /// stripe, or with RAID 1 and 10 up to 64 KiB of one chunk.
    pub sync_stripes: u64,
    /// Speed of the running sync in bytes per second, on each member, over the last 10 to 20 s;
    /// `None` if none runs.
    pub sync_speed: Option<Bytes>,
    /// md's `mismatch_cnt` of the running or last sync, in sectors.
    pub mismatch_cnt: u64,
    /// Mismatches that the running or last check found, or that a `correct` left uncorrected.
    pub mismatches: Mismatches,
    /// Reshape under way; `None` if there is none.
    pub reshape: Option<ReshapeSnapshot>,
    /// Whether a member has no space. Writes are refused while it has none.
    pub no_space: bool,
    /// First sector, counted as in `sync_completed`, from which a resync has to start, because
    /// parity or copies may be wrong from there on; `None` if no resync is due.
    pub resync_from: Option<Sectors>,
    /// Counters of the RAID level.
    pub raid: RaidSnapshot,
    /// Number of client requests that are not answered yet.
    pub requests_active: usize,
    /// Current values of the knobs.
    pub knobs: Knobs,
    /// Every member, including failed members that have not been removed.
    pub members: Vec<MemberSnapshot>,
    /// Sectors that members have read and written, by account: the array itself, syncs, and each
    /// client.
    pub accounts: Vec<AccountSnapshot>,
}

/// Layout of an array, which changes when it grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayoutSnapshot {
    /// RAID level.
    pub level: Level,
    /// md's number of the layout.
    pub number: u32,
    /// Size of a chunk; 0 for RAID 1 and linear.
    pub chunk: Bytes,
    /// Bytes of data that the array uses of each member.
    pub member_size: Bytes,
}

/// Reshape of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReshapeSnapshot {
    /// Number of slots before the reshape.
    pub from: u16,
    /// Number of slots after the reshape.
    pub to: u16,
    /// md's number of the layout after the reshape.
    pub layout: u32,
    /// Size of a chunk after the reshape.
    pub chunk: Bytes,
    /// Array sector at which the geometry changes, as superblocks record it.
    pub position: Sectors,
    /// Array sector at which the reshape ends.
    pub end: Sectors,
}

/// Account of one client, of all syncs or of the array itself: the requests of its owner, and the
/// sectors that all members have read and written for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountSnapshot {
    /// Owner of the account.
    pub party: Party,
    /// Whether the owner is a client that has disconnected.
    pub gone: bool,
    /// I/O class of the owner's last request.
    pub class: Class,
    /// Weight of the owner's last request; 0 for the default.
    pub weight: u16,
    /// Group that the owner belongs to.
    pub group: Group,
    /// Number of reads of the volume that the owner has sent.
    pub reads: u64,
    /// Number of other requests that the owner has sent: writes, flushes and discards.
    pub writes: u64,
    /// Number of bytes read by `reads`.
    pub bytes_read: Bytes,
    /// Number of bytes that `writes` wrote, zeroed or discarded.
    pub bytes_written: Bytes,
    /// Number of sectors that members have read and written for the account.
    pub sectors: Sectors,
    /// Part of `sectors` from the last two to four seconds in which the volume was active.
    pub sectors_recently: Sectors,
    /// Sectors for the account by purpose. Purposes without sectors are left out.
    pub by_purpose: Vec<PurposeSectors>,
}

/// Sectors that members read and wrote for one purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PurposeSectors {
    /// Purpose of the member requests.
    pub purpose: Purpose,
    /// Number of sectors that were read for the purpose.
    pub read: Sectors,
    /// Number of sectors that were written for the purpose.
    pub written: Sectors,
}

impl PurposeSectors {
    /// Whether any sector was read or written.
    #[must_use]
    pub fn is_some(&self) -> bool {
        self.read + self.written > Sectors::ZERO
    }
}

/// Owner of an account to which member requests are charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Party {
    /// A client.
    Client(ClientId),
    /// The array itself, for its metadata.
    Metadata,
    /// All clients without an account of their own, because there were too many clients.
    Others,
    /// Syncs: resync, recovery, check and repair.
    Resync,
}

/// State of a write-intent bitmap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BitmapSnapshot {
    /// Number of bytes of the array that one bit covers.
    pub chunk: Bytes,
    /// Number of chunks, one bit each.
    pub chunks: u64,
    /// Number of chunks with their bit set.
    pub dirty: u64,
    /// Number of pages of the in-memory bitmap, each of 2,048 chunks, as md counts them.
    pub pages: u64,
    /// Number of pages of the in-memory bitmap with at least one set bit.
    pub pages_dirty: u64,
    /// Update count (`events`) at which bits were last cleared. A member that left the array before
    /// that update is copied completely when it returns.
    pub events_cleared: u64,
}

/// Counters of the stripe cache of RAID 4, 5 and 6; zero for other levels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RaidSnapshot {
    /// Number of stripes of the stripe cache that are in use.
    pub stripe_cache_active: u32,
    /// Histograms of the times for which stripes waited for more data, until they were preread or
    /// filled.
    pub stripe_waits: StripeWaits,
}

/// Mismatches that a check found or that a `correct` left uncorrected. One stripe of one strip per
/// member counts once, and so does one unit of a mirror's sync. A single wrong strip can be located
/// with P and Q, but not with one parity.
///
/// Source   H. P. Anvin, "The mathematics of RAID-6", §4, "single-disk corruption recovery"
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mismatches {
    /// For each member, the number of mismatches that are explained by a wrong strip on that member
    /// alone.
    pub by_member: Vec<(MemberIndex, u64)>,
    /// Number of mismatches that no single strip explains, or that cannot be located because there
    /// is only one parity.
    pub not_located: u64,
    /// The mismatches that were found first, at most [`Mismatches::LISTED`].
    pub first: Vec<Mismatch>,
}

/// Stripe in which data and parity disagree, or unit of a mirror in which copies disagree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Data sector of the members at which the stripe begins.
    pub sector: Sectors,
    /// The strip that alone explains the mismatch; `None` if no single strip does.
    pub wrong: Option<WrongStrip>,
}

/// Strip of a member that disagrees with the rest of its stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongStrip {
    /// Member that holds the strip.
    pub member: MemberIndex,
    /// Slot of that member.
    pub slot: Slot,
    /// First sector of the strip, from the start of the member.
    pub at: Sectors,
}

impl Mismatches {
    /// Largest number of mismatches that are listed in `first`. The counters include all
    /// mismatches.
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

/// State and counters of one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberSnapshot {
    /// Index of the member.
    pub member: MemberIndex,
    /// Name of the member: its path.
    pub label: String,
    /// Slot of the member; `None` for a spare or a failed member.
    pub slot: Option<Slot>,
    /// Slot that this member takes over from another member when it is filled as a replacement;
    /// `None` if it is no replacement.
    pub replaces: Option<Slot>,
    /// Whether the member is to be replaced, or is being replaced (md: `want_replacement`).
    pub want_replacement: bool,
    /// Slot for which this spare is reserved: it is to replace the member there, and is not bound
    /// yet. `None` if it is reserved for none.
    pub reserved_for: Option<Slot>,
    /// Index of the member in the superblock's `dev_roles`.
    pub dev_number: u32,
    /// State of the member in the array.
    pub state: MemberState,
    /// Whether a mirror reads the member only when no other can be read (md: `write-mostly`).
    pub write_mostly: bool,
    /// Sectors of the member that hold data of the array; `None` for a member without metadata.
    pub data: Option<SectorRange>,
    /// Number of read requests since the engine started.
    pub reads: u64,
    /// Number of write requests since the engine started.
    pub writes: u64,
    /// Number of flushes since the engine started.
    pub flushes: u64,
    /// Number of sectors read since the engine started.
    pub sectors_read: u64,
    /// Number of sectors written since the engine started.
    pub sectors_written: u64,
    /// Number of sectors read and written, by owner of the account. Owners without sectors are left
    /// out.
    pub served: Vec<(Party, Sectors)>,
    /// Number of sectors that could not be read and were rewritten with correct data.
    pub corrected: u64,
    /// Ranges that hold no valid data, in sectors from the start of the member as in md's bad-block
    /// log.
    pub bad_blocks: Vec<SectorRange>,
    /// Number of requests that the member has not answered yet.
    pub in_flight: u32,
    /// Largest number of requests that are sent to the member at once; `None`: no limit.
    pub queue_depth: Option<u32>,
    /// Knobs of the member's queue; `None` if the volume's apply.
    pub queue_knobs: Option<Box<Knobs>>,
}

/// Numbers of stripes of the stripe cache in each state, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StripesInUse {
    /// Number of stripes in use: on one of the lists below, or with member requests in flight.
    pub active: u32,
    /// Number of stripes on the delayed list, which are incomplete and may not preread yet.
    pub delayed: u32,
    /// Number of stripes on the handle list, which are handled in the next turns.
    pub ready: u32,
    /// Number of stripes on the hold list, which may preread, but are handled after stripes on the
    /// handle list.
    pub held: u32,
    /// Number of stripes with the permission to preread, whether on the hold list or already
    /// handled.
    pub prereading: u32,
}
