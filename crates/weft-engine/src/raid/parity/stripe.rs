//! One stripe of the stripe cache: a strip of `stripe_size` bytes on every slot.
//!
//! A stripe has at most one *operation* in flight. While none is in flight the stripe can be
//! handled: it takes its next step ([`super::plan`]), or rests.
//!
//! ```text
//! Idle ── read ──▶ Reading ──▶ Idle        CopyingOut, Recovering, Comparing likewise
//!   │
//!   ├── write ──▶ Computing ──▶ Writing ──▶ Idle     the writers are answered here
//!   └── correct ▶ Rewriting ──▶ Rereading ──▶ Idle   after a read error
//! ```
//!
//! Source   md-raid.md §1.3, §2.2, §2.10; block states as in raid5.h

use std::ops::Range;

use weft_units::{FRAME_BYTES, Sectors, Slot, StripeId, Time};

use super::plan::Mode;
use crate::contract::frame::{Frame, Segment};
use crate::contract::input::{Attr, Class, Purpose, SyncAction};
use crate::contract::token::RequestId;
use crate::layout::geometry::{Geometry, Placement};
use crate::layout::slot_set::SlotSet;

/// Bytes of a client request within one strip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SubRequest {
    pub(crate) request: RequestId,
    pub(crate) slot: Slot,
    /// First byte within the strip.
    pub(crate) offset: u32,
    /// Length in bytes.
    pub(crate) len: u32,
    /// The client's memory; `None` for a write of zeros.
    pub(crate) memory: Option<Segment>,
    pub(crate) fua: bool,
}

/// Operation in flight for a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Stored parity at the slots `parity` is being compared with the data. `whole` is true if
    /// every strip was read from its member.
    Comparing { parity: SlotSet, whole: bool },
    /// New data is being drained into the stripe, and parity computed.
    Computing(Mode),
    /// Readers are being served from valid strips.
    CopyingOut,
    /// No operation.
    Idle,
    /// P and Q disagree with the data, and the wrong strip is being located.
    Locating,
    /// Strips that a member had no space for are being written again.
    WritingDeferred,
    /// Strips are being read from their members.
    Reading,
    /// Strips that a sync found wrong are being computed.
    Regenerating(SlotSet),
    /// Lost strips are being computed.
    Recovering(SlotSet),
    /// A corrected strip is being read back.
    Rereading(Slot),
    /// A strip that could not be read is being written again.
    Rewriting(Slot),
    /// Strips that a member had no space for are being copied from the memory of their writers.
    Saving,
    /// A sync is writing strips.
    SyncWriting,
    /// Data and parity are being written to the members.
    Writing,
}

/// Progress of the sync of a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResyncState {
    /// A sync was requested; it begins when the stripe is next handled.
    Requested,
    /// Strips are being read or computed until all are valid.
    Filling,
    /// Parity was compared, or the stripe has no parity to compare; corrections may follow.
    Compared,
}

/// Role of a stripe in a batch: adjacent filled stripes that are written together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Batch {
    /// First stripe of a batch, with its followers in ascending order.
    Head(Vec<StripeId>),
    /// Another stripe of a batch, with the head of the batch.
    Follower(StripeId),
    /// Not in a batch.
    #[default]
    None,
}

/// Slots of a stripe that a set of sub-requests touches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Touched {
    slots: SlotSet,
    /// Slots with a strip that a single sub-request covers completely.
    covered: SlotSet,
    /// Whether any of the sub-requests must be durable (FUA).
    durable: bool,
}

impl Touched {
    /// Collects the slots that `sub_requests`, all of one stripe, touch. `strip_bytes` is the size
    /// of a strip.
    #[inline(always)]
    pub(crate) fn by(sub_requests: &[SubRequest], strip_bytes: u64) -> Self {
        let mut touched = Self::default();
        for SubRequest { slot, offset, len, memory, fua, .. } in sub_requests {
            let end = u64::from(*offset) + u64::from(*len);
            assert!(end <= strip_bytes, "a sub-request lies within its strip");
            assert!(memory.is_none_or(|memory| memory.len == *len), "memory has equal length");
            touched.slots.insert(*slot);
            if u64::from(*len) == strip_bytes {
                touched.covered.insert(*slot);
            }
            touched.durable |= fua;
        }
        touched
    }

    fn or(self, other: Self) -> Self {
        Self {
            slots: self.slots.or(other.slots),
            covered: self.covered.or(other.covered),
            durable: self.durable | other.durable,
        }
    }
}

impl Batch {
    /// Followers of the batch that this stripe heads; empty if it heads none.
    pub(crate) fn followers(&self) -> &[StripeId] {
        match self {
            Self::Head(followers) => followers,
            Self::Follower(_) | Self::None => &[],
        }
    }
}

impl SubRequest {
    /// The sub-request's memory, if a member can write the whole strip from it: the sub-request
    /// covers the strip, and its memory is aligned to frames. `None` otherwise.
    pub(crate) fn whole_strip(&self, strip_bytes: u64) -> Option<Segment> {
        self.memory.filter(|part| u64::from(self.len) == strip_bytes && part.offset == 0)
    }
}

/// Start of a wait, in time and in bytes drained. Values are ordered by time: at a later start, at
/// least as many bytes have been drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Since {
    pub(crate) at: Time,
    /// Bytes that had been drained into all stripes when the wait began.
    pub(crate) drained: u64,
}

/// Purposes of the member requests that a stripe sends together, by slot of the strip.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Purposes {
    here: Purpose,
    /// Slots of the strips with the purpose `here`.
    at: SlotSet,
    /// Slots of strips that are read only for their old content, which a write then replaces.
    old: SlotSet,
    others: Purpose,
}

impl Purposes {
    /// Purpose of the member request for the strip at `slot`.
    #[inline(always)]
    pub(crate) fn of(&self, slot: Slot) -> Purpose {
        if self.at.contains(slot) {
            self.here
        } else if self.old.contains(slot) {
            Purpose::RmwRead
        } else {
            self.others
        }
    }
}

/// Entry of the stripe cache.
#[derive(Clone, Debug)]
pub(crate) struct Stripe {
    /// Stripe number: data sector on the members divided by the stripe height.
    pub(crate) key: u64,
    /// Whether lookups by `key` find the stripe.
    pub(crate) hashed: bool,
    /// Class of the inactive list that the stripe belongs to; it never changes.
    pub(crate) class: u8,
    pub(crate) placement: Option<Placement>,
    /// Whether a client used the stripe since the entry was last reused.
    pub(crate) served: bool,
    /// Slots of the data strips, from `placement`.
    pub(crate) data: SlotSet,
    pub(crate) parity: SlotSet,
    /// First frame of slot 0's strip. The strip of the next slot is `stride` frames further. The
    /// next stripe's strip of the same slot follows directly, so that adjacent stripes form runs of
    /// memory.
    pub(crate) frames: Frame,
    stride: u32,
    /// Number of strips in the stripe, parity included.
    pub(crate) members: u16,
    reads: Vec<SubRequest>,
    readers: SlotSet,
    writes: Vec<SubRequest>,
    writers: Touched,
    /// Sub-requests that the operation in flight serves or has drained. They are answered when it
    /// ends.
    taken: Vec<SubRequest>,
    /// Slots that the drained sub-requests in `taken` touch.
    drained: Touched,
    pub(crate) uptodate: SlotSet,
    /// Strips that could not be read, not even when the read was repeated.
    pub(crate) read_error: SlotSet,
    /// Strips in `read_error` that could not be read back after a rewrite, or for which their
    /// member had no space.
    pub(crate) uncorrectable: SlotSet,
    /// Strips that failed to be read once, and are read again in a request of their own.
    pub(crate) retried: SlotSet,
    /// Number of reads of the stripe that were given up because a member was slow. Each of them
    /// doubles the time that the next read may take.
    pub(crate) given_up: u8,
    /// Slots of the parity strips that are computed for the write in flight, on members that were
    /// present when the write began.
    pub(crate) new_parity: SlotSet,
    /// Slots of strips for which their member had no space. The stripe stays in the cache until the
    /// member has stored them: the stripe holds the only copy, which the other strips may not
    /// reproduce.
    pub(crate) deferred: SlotSet,
    /// Slots that the write in flight writes from zero-copy pages. The stripe's own memory for them
    /// is stale.
    pub(crate) zero_copy: SlotSet,
    /// Whether the stripe is a follower in a batch, and each strip of its write in flight lies in
    /// memory directly after the same strip of the stripe before it.
    pub(crate) goes_on: bool,
    /// Slots on which the operation in flight failed.
    pub(crate) faults: SlotSet,
    /// Slot of a member that had no space for a write of a sync or correction, so that the stripe
    /// is not in sync; `None` if there is none.
    pub(crate) no_space: Option<Slot>,
    pub(crate) operation: Operation,
    pub(crate) in_flight: u32,
    /// Number of stripes after this one that the computation in flight is for too.
    pub(crate) computed_with: u32,
    /// Number of given-up member requests that may still use the stripe's memory.
    pub(crate) pins: u32,
    /// Whether the stripe may have work to do, so that it goes to the handle list or the delayed
    /// list.
    pub(crate) handle: bool,
    pub(crate) delayed: bool,
    /// Whether the stripe has the permission to preread. `Cache::preread_active` is the number of
    /// such stripes.
    pub(crate) preread: bool,
    pub(crate) io_started: bool,
    /// Whether the stripe may head or join a batch: it has not been handled since its first write,
    /// and no request reads it.
    pub(crate) batch_ready: bool,
    /// Whether the stripe has a full-stripe write in flight. `Cache::full_stripe_writes` is the
    /// number of such stripes.
    pub(crate) full_write: bool,
    pub(crate) batch: Batch,
    pub(crate) sync: Option<(SyncAction, ResyncState)>,
    /// Whether a sync found strips that disagree with the others, and is writing the corrected
    /// ones.
    pub(crate) mismatch: bool,
    /// Slot of the strip that P and Q located as wrong, and that is being written again; `None` if
    /// there is none.
    pub(crate) located: Option<Slot>,
    /// Whether requests were attached to the stripe in this turn: it is put on a list once all
    /// requests of the turn have arrived.
    pub(crate) plugged: bool,
    /// Attributes for the stripe's member requests: those of its client with the highest priority.
    pub(crate) attr: Attr,
    /// Number of requests attached in this turn.
    pub(crate) arrivals: u32,
    /// Whether a request attached in this turn belongs to a stream that will fill the stripe.
    pub(crate) streams: bool,
    /// Start of the wait for the permission to preread; `None` if the stripe does not wait.
    pub(crate) waits_since: Option<Since>,
    /// Whether another client request waits for a request that is attached to this stripe.
    pub(crate) waited_for: bool,
    /// Latest end of the stripe's wait to be filled; `None` unless a client request waits for the
    /// stripe's data.
    pub(crate) due: Option<Time>,
    /// Start of the preread in progress, if the stripe waited to be filled before it; `None`
    /// otherwise.
    pub(crate) reads_since: Option<Time>,
}

impl Stripe {
    /// Whether the stripe has work in flight or to do. Memory that a given-up request may still use
    /// does not count as work.
    pub(crate) fn may_be_written(&self) -> bool {
        let waits = !self.writes.is_empty() || !self.deferred.is_empty();
        self.in_flight > 0 || waits || self.handle || self.delayed
    }

    pub(crate) fn new(class: u8, frames: Frame, stride: u32, members: u16) -> Self {
        Self {
            key: 0,
            hashed: false,
            served: false,
            class,
            placement: None,
            data: SlotSet::EMPTY,
            parity: SlotSet::EMPTY,
            frames,
            stride,
            members,
            reads: Vec::new(),
            readers: SlotSet::EMPTY,
            writes: Vec::new(),
            writers: Touched::default(),
            taken: Vec::new(),
            drained: Touched::default(),
            uptodate: SlotSet::EMPTY,
            read_error: SlotSet::EMPTY,
            uncorrectable: SlotSet::EMPTY,
            retried: SlotSet::EMPTY,
            given_up: 0,
            new_parity: SlotSet::EMPTY,
            deferred: SlotSet::EMPTY,
            zero_copy: SlotSet::EMPTY,
            goes_on: false,
            faults: SlotSet::EMPTY,
            no_space: None,
            operation: Operation::Idle,
            in_flight: 0,
            computed_with: 0,
            pins: 0,
            handle: false,
            delayed: false,
            preread: false,
            io_started: false,
            batch_ready: false,
            full_write: false,
            batch: Batch::None,
            sync: None,
            mismatch: false,
            located: None,
            plugged: false,
            attr: Attr::default(),
            arrivals: 0,
            streams: false,
            waits_since: None,
            waited_for: false,
            due: None,
            reads_since: None,
        }
    }

    /// Reuses the entry for the stripe number `key`, and resets its state.
    pub(crate) fn reuse(&mut self, key: u64, placement: Placement) {
        assert_eq!(self.in_flight, 0, "a stripe that is reused has nothing in flight");
        assert_eq!(self.pins, 0, "no member uses the memory of a stripe that is reused");
        assert!(!self.has_work(), "a stripe that is reused has no work");
        assert!(self.deferred.is_empty(), "a stripe with a deferred write is not reused");
        assert!(self.zero_copy.is_empty(), "a stripe that is reused has no zero-copy pages");
        self.key = key;
        self.hashed = true;
        self.served = false;
        self.placement = Some(placement);
        self.parity = placement.parity();
        self.data = SlotSet::first(self.members).without(self.parity);
        self.uptodate = SlotSet::EMPTY;
        self.read_error = SlotSet::EMPTY;
        self.uncorrectable = SlotSet::EMPTY;
        self.retried = SlotSet::EMPTY;
        self.given_up = 0;
        self.new_parity = SlotSet::EMPTY;
        self.faults = SlotSet::EMPTY;
        self.no_space = None;
        self.operation = Operation::Idle;
        self.handle = false;
        self.delayed = false;
        self.io_started = false;
        self.batch_ready = true;
        self.mismatch = false;
        self.arrivals = 0;
        self.streams = false;
        self.waits_since = None;
        (self.waited_for, self.due) = (false, None);
        self.reads_since = None;
    }

    /// Places of data and parity in the stripe.
    pub(crate) fn placement(&self) -> &Placement {
        self.placement.as_ref().expect("a stripe that is handled stands for a place")
    }

    /// Attaches sub-requests of a client, which touch the strips in `touched`.
    #[inline]
    pub(crate) fn attach(&mut self, sub_requests: &[SubRequest], touched: Touched, write: bool) {
        self.served = true;
        if write {
            self.writers = self.writers.or(touched);
            self.writes.extend_from_slice(sub_requests);
        } else {
            self.readers = self.readers.or(touched.slots);
            self.reads.extend_from_slice(sub_requests);
        }
    }

    /// Records that reads of the strips in `touched` failed once, so that the reads are repeated
    /// alone.
    pub(crate) fn repeat(&mut self, touched: Touched) {
        self.retried = self.retried.or(touched.slots);
    }

    /// Sub-requests of reads that no operation serves yet.
    pub(crate) fn reads(&self) -> &[SubRequest] {
        &self.reads
    }

    /// Sub-requests of writes that have not been drained yet.
    pub(crate) fn writes(&self) -> &[SubRequest] {
        &self.writes
    }

    /// Moves the readers of the strips `served` to `taken`; they are answered when the operation
    /// ends.
    pub(crate) fn take_readers(&mut self, served: SlotSet) {
        assert!(self.taken.is_empty(), "sub-requests taken earlier were answered");
        let taken = &mut self.taken;
        self.reads.retain(|sub_request| {
            let serve = served.contains(sub_request.slot);
            if serve {
                taken.push(*sub_request);
            }
            !serve
        });
        self.readers = self.readers.without(served);
    }

    /// Moves all writers to `taken`; they are answered when the operation ends. The operation
    /// computes the parity of the slots `new_parity`, and the slots `zero_copy` are written from
    /// zero-copy pages.
    pub(crate) fn drain(&mut self, new_parity: SlotSet, zero_copy: SlotSet) {
        assert!(self.taken.is_empty(), "sub-requests taken earlier were answered");
        self.handle = false;
        self.delayed = false;
        (self.waited_for, self.due) = (false, None);
        self.batch_ready = false;
        self.new_parity = new_parity;
        self.uptodate = self.uptodate.without(self.writers.slots).without(self.parity);
        self.zero_copy = zero_copy;
        std::mem::swap(&mut self.taken, &mut self.writes);
        self.drained = std::mem::take(&mut self.writers);
    }

    /// Sub-requests that the operation in flight serves.
    pub(crate) fn taken(&self) -> &[SubRequest] {
        &self.taken
    }

    /// Drops the sub-requests in `taken`, which have been answered.
    pub(crate) fn answered(&mut self) {
        self.drained = Touched::default();
        self.taken.clear();
    }

    /// Removes and returns all writers, and the readers of the strips `lost`.
    pub(crate) fn give_up(&mut self, lost: SlotSet) -> Vec<SubRequest> {
        assert!(self.taken.is_empty(), "sub-requests taken earlier were answered");
        let mut given_up = std::mem::take(&mut self.writes);
        self.writers = Touched::default();
        (self.waits_since, self.reads_since) = (None, None);
        (self.waited_for, self.due) = (false, None);
        given_up.extend(self.reads.extract_if(.., |sub_request| lost.contains(sub_request.slot)));
        self.readers = self.readers.without(lost);
        given_up
    }

    /// Removes and returns the readers and the writers that no operation serves yet.
    pub(crate) fn move_out(&mut self) -> (Vec<SubRequest>, Vec<SubRequest>) {
        assert!(self.taken.is_empty(), "sub-requests taken earlier were answered");
        (self.readers, self.writers) = (SlotSet::EMPTY, Touched::default());
        (std::mem::take(&mut self.reads), std::mem::take(&mut self.writes))
    }

    /// Slots of strips that a request reads.
    pub(crate) fn to_read(&self) -> SlotSet {
        self.readers
    }

    /// Slots of strips that a request writes.
    pub(crate) fn to_write(&self) -> SlotSet {
        self.writers.slots
    }

    /// Whether one of the writers must be durable (FUA).
    pub(crate) fn writes_durably(&self) -> bool {
        self.writers.durable
    }

    /// Whether writers together cover every data strip completely.
    #[inline]
    pub(crate) fn is_filled(&self, strip_bytes: u64) -> bool {
        self.writers.slots == self.data
            && (self.writers.covered == self.data || self.overwrite(strip_bytes) == self.data)
    }

    /// Slots of strips that writers cover completely. Writers never overlap each other.
    pub(crate) fn overwrite(&self, strip_bytes: u64) -> SlotSet {
        let mut whole = self.writers.covered;
        for slot in self.writers.slots.without(whole).ascending() {
            let sub_requests = self.writes.iter().filter(|sub_request| sub_request.slot == slot);
            whole.set(
                slot,
                sub_requests.map(|sub_request| u64::from(sub_request.len)).sum::<u64>()
                    == strip_bytes,
            );
        }
        whole
    }

    /// Smallest range of the volume that contains all bytes which further writes would have to
    /// bring, because no writer covers them and the stripe does not hold them. `None` if there are
    /// no such bytes.
    pub(crate) fn lacks(&self, geometry: &Geometry, height: Sectors) -> Option<Range<u64>> {
        let strip_bytes = height.bytes().0;
        let missing = self.data.without(self.overwrite(strip_bytes)).without(self.uptodate);
        let mut lacks: Option<Range<u64>> = None;
        for slot in missing.ascending() {
            let strip = geometry.array_sector(slot, self.sector(height))?.bytes().0;
            let sub_requests = self.writes.iter().filter(|sub_request| sub_request.slot == slot);
            let brought = sub_requests
                .map(|sub_request| u64::from(sub_request.offset + sub_request.len))
                .max();
            let (start, end) = (strip + brought.unwrap_or(0), strip + strip_bytes);
            let (first, last) = lacks.map_or((start, end), |lacks| (lacks.start, lacks.end));
            lacks = Some(first.min(start)..last.max(end));
        }
        lacks
    }

    /// Slots of strips that had a read error and were not rewritten since.
    pub(crate) fn correctable(&self) -> SlotSet {
        self.read_error.without(self.uncorrectable)
    }

    /// Sub-request with the zero-copy page that is written as the strip of `slot`; `None` if the
    /// strip is written from the stripe's own memory.
    pub(crate) fn zero_copy_from(&self, slot: Slot) -> Option<&SubRequest> {
        if self.zero_copy.contains(slot) { self.written_to(slot) } else { None }
    }

    // Not inlined: callers loop over all strips, and most strips are in the stripe's own memory.
    #[inline(never)]
    fn written_to(&self, slot: Slot) -> Option<&SubRequest> {
        self.taken.iter().find(|sub_request| sub_request.slot == slot)
    }

    /// Memory of the strip at `slot`, of `frames` frames, for the write in flight. If the memory is
    /// a zero-copy page, also the request that owns the page.
    pub(crate) fn memory(&self, slot: Slot, frames: u32) -> (Segment, Option<RequestId>) {
        match self.zero_copy_from(slot) {
            Some(sub_request) => (
                sub_request.memory.expect("a zero-copy page has memory"),
                Some(sub_request.request),
            ),
            None => (self.strip(slot, frames), None),
        }
    }

    /// Attributes of the stripe's member requests, without the purpose ([`Stripe::purposes`]).
    /// `sync` is the I/O class of a sync for which no client waits.
    #[inline(always)]
    pub(crate) fn member_attr(&self, sync: Class) -> Attr {
        let mut attr = self.attr;
        if self.is_for_array() {
            attr = self.array_attr(sync);
        }
        attr
    }

    /// Whether the stripe's member requests are charged to the array instead of a client.
    #[inline(always)]
    fn is_for_array(&self) -> bool {
        self.sync.is_some()
            || matches!(self.operation, Operation::Rewriting(_) | Operation::Rereading(_))
    }

    #[cold]
    #[inline(never)]
    fn array_attr(&self, sync: Class) -> Attr {
        match self.sync {
            Some(_) if self.has_clients() => Attr::sync(Class::None),
            Some(_) => Attr::sync(sync),
            None => Attr::NONE,
        }
    }

    /// Purposes of the member requests for `strips`, where `here` is the purpose for strips that
    /// clients asked for.
    #[inline]
    pub(crate) fn purposes(&self, here: Purpose, strips: SlotSet, write: bool) -> Purposes {
        if !matches!(here, Purpose::User | Purpose::WriteBack) {
            return Purposes { here, at: strips, old: SlotSet::EMPTY, others: here };
        }
        if write {
            let at = self.data;
            return Purposes { here, at, old: SlotSet::EMPTY, others: Purpose::Parity };
        }
        // Only a read-modify-write reads the old content of all written strips along with parity.
        let writers = self.to_write();
        let parity = writers.without(strips.or(self.uptodate)).is_empty();
        let old = match parity {
            _ if writers.is_empty() => SlotSet::EMPTY,
            true => writers.or(self.parity),
            false => writers,
        };
        Purposes { here, at: self.readers, old, others: Purpose::Reconstruct }
    }

    /// Gives the stripe's member requests the attributes `attr` of a client request, unless those
    /// of another client with higher priority are already set.
    #[inline]
    pub(crate) fn charge(&mut self, attr: Attr) {
        if !self.has_clients() {
            self.attr = attr;
        } else if self.attr != attr {
            self.attr = self.attr.stronger(attr);
        }
    }

    /// Whether this stripe can be computed and written together with the drained stripe `before`,
    /// which is written from zero-copy pages: every strip of this stripe's write lies in memory
    /// directly after the same strip of `before`.
    pub(crate) fn goes_on_after(&self, before: &Self, frames: u32) -> bool {
        let goes_on = |(mine, other): (&SubRequest, &SubRequest)| {
            let (Some(memory), Some(before)) = (mine.memory, other.memory) else { return false };
            mine.slot == other.slot && memory.slab_start() == before.slab_end()
        };
        // Each strip is covered by one writer, so no writer begins within a strip.
        self.frames.0 == before.frames.0 + frames
            && before.zero_copy == before.written()
            && self.to_write() == before.written()
            && self.to_write() == self.writers.covered
            && self.writes.len() == before.taken.len()
            && self.writes.iter().zip(&before.taken).all(goes_on)
    }

    /// Slots of data strips that are being written to the members.
    pub(crate) fn written(&self) -> SlotSet {
        self.drained.slots
    }

    /// Number of followers of the batch that this stripe heads.
    pub(crate) fn followers(&self) -> u64 {
        self.batch.followers().len() as u64
    }

    /// Whether a client or a sync has work for the stripe.
    pub(crate) fn has_work(&self) -> bool {
        self.sync.is_some() || self.has_clients()
    }

    /// Whether the stripe is at rest between two steps of a sync, has no other work, and has met no
    /// failure.
    pub(crate) fn is_only_synced(&self) -> bool {
        let failed = self.read_error.or(self.uncorrectable).or(self.retried).or(self.faults);
        let begins = matches!(self.sync, Some((_, ResyncState::Requested)));
        matches!(self.sync, Some((_, ResyncState::Requested | ResyncState::Filling)))
            && (!begins || self.uptodate.is_empty())
            && !self.has_clients()
            && failed.or(self.deferred).or(self.zero_copy).is_empty()
            && self.batch == Batch::None
            && self.waits_since.is_none()
            && (self.in_flight, self.pins) == (0, 0)
    }

    fn has_clients(&self) -> bool {
        !self.readers.or(self.to_write()).is_empty() || !self.taken.is_empty()
    }

    /// Whether one of the drained writers must be durable (FUA).
    pub(crate) fn written_durably(&self) -> bool {
        self.drained.durable
    }

    /// Memory of the strip at `slot`, of `frames` frames.
    pub(crate) fn strip(&self, slot: Slot, frames: u32) -> Segment {
        Segment { frame: self.first(slot), offset: 0, len: frames * FRAME_BYTES as u32 }
    }

    /// Memory for `len` bytes of the strip at `slot`, from byte `offset` of the strip on.
    pub(crate) fn part(&self, slot: Slot, offset: u32, len: u32) -> Segment {
        Segment::at(self.first(slot), u64::from(offset), u64::from(len))
    }

    fn first(&self, slot: Slot) -> Frame {
        Frame(self.frames.0 + u32::from(slot.0) * self.stride)
    }

    /// First data sector of the stripe on each member.
    pub(crate) fn sector(&self, height: Sectors) -> Sectors {
        Sectors(self.key * height.0)
    }
}
