//! One stripe of the stripe cache: a strip of `stripe_size` bytes on every slot.
//!
//! A stripe is worked on by one *operation* at a time. It is handled when none is in flight; then
//! it takes its next step ([`super::plan`]) or rests.
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

/// A client's bytes within one strip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SubRequest {
    pub(crate) request: RequestId,
    pub(crate) slot: Slot,
    /// First byte within the strip.
    pub(crate) offset: u32,
    /// Bytes.
    pub(crate) len: u32,
    /// The client's memory; `None` writes zeros.
    pub(crate) memory: Option<Segment>,
    pub(crate) fua: bool,
}

/// Operation in flight for a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Stored parity is compared with the data. `whole`: every strip was read from its member.
    Comparing { whole: bool },
    /// New data is drained into the stripe and parity computed.
    Computing(Mode),
    /// Readers are served from valid strips.
    CopyingOut,
    /// Nothing.
    Idle,
    /// P and Q disagree with the data, and tell whose strip is wrong.
    Locating,
    /// Strips that a member had no space for are written again.
    WritingDeferred,
    /// Strips are read from their members.
    Reading,
    /// Strips that disagreed are computed for a sync.
    Regenerating(SlotSet),
    /// Lost strips are computed.
    Recovering(SlotSet),
    /// A corrected strip is read back.
    Rereading(Slot),
    /// A strip that could not be read is written again.
    Rewriting(Slot),
    /// Strips that a member had no space for are copied from the memory of their writers.
    Saving,
    /// A sync writes strips.
    SyncWriting,
    /// Data and parity are on their way to the members.
    Writing,
}

/// Progress of a sync with a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResyncState {
    /// Wanted; begins at the next handling.
    Requested,
    /// Every strip is being made valid.
    Filling,
    /// Parity was compared, or there was none to compare; corrections may follow.
    Compared,
}

/// Stripes that are written as one because they lie side by side and are full.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Batch {
    /// First of a batch, with the stripes that it leads, ascending.
    Head(Vec<StripeId>),
    /// Led by that stripe.
    Follower(StripeId),
    /// On its own.
    #[default]
    None,
}

/// Slots of a stripe that sub-requests are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Touched {
    slots: SlotSet,
    /// Of those, slots that one sub-request covers.
    covered: SlotSet,
    /// One of them is to be durable.
    durable: bool,
}

impl Touched {
    /// By these sub-requests of one stripe, whose strips have so many bytes.
    #[inline(always)]
    pub(crate) fn by(sub_requests: &[SubRequest], strip_bytes: u64) -> Self {
        let mut touched = Self::default();
        for SubRequest { slot, offset, len, memory, fua, .. } in sub_requests {
            let end = u64::from(*offset) + u64::from(*len);
            assert!(end <= strip_bytes, "it lies within its strip");
            assert!(memory.is_none_or(|memory| memory.len == *len), "its memory is as long");
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
    /// Stripes that it leads.
    pub(crate) fn followers(&self) -> &[StripeId] {
        match self {
            Self::Head(followers) => followers,
            Self::Follower(_) | Self::None => &[],
        }
    }
}

impl SubRequest {
    /// Its memory, if a strip can be written from it: whole, and placed as strips are.
    pub(crate) fn whole_strip(&self, strip_bytes: u64) -> Option<Segment> {
        self.memory.filter(|part| u64::from(self.len) == strip_bytes && part.offset == 0)
    }
}

/// Beginning of a wait. A later one has drained no less, so that the order of time is that of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Since {
    pub(crate) at: Time,
    /// Bytes that all stripes had drained by then.
    pub(crate) drained: u64,
}

/// What the strips of one step of a stripe are read or written for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Purposes {
    here: Purpose,
    /// Slots of what somebody named.
    at: SlotSet,
    /// Slots of old content that is replaced.
    old: SlotSet,
    others: Purpose,
}

impl Purposes {
    /// That of a strip.
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

/// An entry of the stripe cache.
#[derive(Clone, Debug)]
pub(crate) struct Stripe {
    /// Stripe number: member sector over stripe height.
    pub(crate) key: u64,
    /// Whether lookups find it.
    pub(crate) hashed: bool,
    /// Class of its inactive list, for life.
    pub(crate) class: u8,
    pub(crate) placement: Option<Placement>,
    /// Slots of data and of parity by it.
    pub(crate) data: SlotSet,
    pub(crate) parity: SlotSet,
    /// Its memory: the strip of slot 0. That of the next slot is `stride` frames further, and
    /// beside a strip is the one of the next stripe, so that stripes in order are runs of memory.
    pub(crate) frames: Frame,
    stride: u32,
    /// Strips, parity included.
    pub(crate) members: u16,
    reads: Vec<SubRequest>,
    readers: SlotSet,
    writes: Vec<SubRequest>,
    writers: Touched,
    /// Served or drained by the operation in flight, to be answered at its end.
    taken: Vec<SubRequest>,
    /// By those of them that were drained.
    drained: Touched,
    pub(crate) uptodate: SlotSet,
    /// Strips that could not be read, twice.
    pub(crate) read_error: SlotSet,
    /// Strips of `read_error` that could not be read after they were written again, or for which
    /// their member had no space.
    pub(crate) uncorrectable: SlotSet,
    /// Strips whose read failed once and is repeated alone.
    pub(crate) retried: SlotSet,
    /// Number of reads of it that were given up as their member was slow. The next is waited for
    /// twice as long.
    pub(crate) given_up: u8,
    /// Parity computed for the write in flight: of members that were there when it began.
    pub(crate) new_parity: SlotSet,
    /// Slots whose member had no space for the strip. The stripe stays until they have it: only it
    /// knows what belongs there, and the others may not add up to it.
    pub(crate) deferred: SlotSet,
    /// Of the write in flight: slots that are written from the memory of their writer. What the
    /// stripe has of them is old.
    pub(crate) zero_copy: SlotSet,
    /// Of the write in flight: in the batch that it follows in, each of its strips lies in memory
    /// right after that of the stripe before it.
    pub(crate) goes_on: bool,
    /// Of the operation in flight: slots whose member did not do it.
    pub(crate) faults: SlotSet,
    /// Slot for which a sync's write or a correction found no space on its member: the stripe is
    /// not in sync.
    pub(crate) no_space: Option<Slot>,
    pub(crate) operation: Operation,
    pub(crate) in_flight: u32,
    /// Member requests that were given up and may still use its memory.
    pub(crate) pins: u32,
    /// There may be something to do.
    pub(crate) handle: bool,
    pub(crate) delayed: bool,
    /// Permitted to preread; counted in the cache.
    pub(crate) preread: bool,
    pub(crate) io_started: bool,
    /// May join or lead a batch: never handled, never read.
    pub(crate) batch_ready: bool,
    /// Counted in the cache.
    pub(crate) full_write: bool,
    pub(crate) batch: Batch,
    pub(crate) sync: Option<(SyncAction, ResyncState)>,
    /// A sync found parity that disagreed and corrects it.
    pub(crate) mismatch: bool,
    /// The strip that P and Q say is wrong, and that is written again.
    pub(crate) located: Option<Slot>,
    /// Waits to be released at the end of the turn's arrivals.
    pub(crate) plugged: bool,
    /// On whose behalf, as far as one can say.
    pub(crate) attr: Attr,
    /// Requests attached in this turn.
    pub(crate) arrivals: u32,
    /// One of them goes on where another one ended.
    pub(crate) streams: bool,
    /// Since when it lacks strips that it was not permitted to read.
    pub(crate) waits_since: Option<Since>,
    /// A request waits for one that it has a sub-request of.
    pub(crate) waited_for: bool,
    /// Therefore it waits at most until then.
    pub(crate) due: Option<Time>,
    /// Since when it is preread after it had waited.
    pub(crate) reads_since: Option<Time>,
}

impl Stripe {
    pub(crate) fn new(class: u8, frames: Frame, stride: u32, members: u16) -> Self {
        Self {
            key: 0,
            hashed: false,
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

    /// Makes it stand for another place. Everything that was known of the old one is forgotten.
    pub(crate) fn reuse(&mut self, key: u64, placement: Placement) {
        assert_eq!(self.in_flight, 0, "nothing of a stripe that is reused is in flight");
        assert_eq!(self.pins, 0, "no member uses the memory of a stripe that is reused");
        assert!(!self.has_work(), "nobody waits for a stripe that is reused");
        assert!(self.deferred.is_empty(), "what only a stripe knows stays in it");
        assert!(self.zero_copy.is_empty(), "the memory of writers went back to them");
        self.key = key;
        self.hashed = true;
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

    /// Slots of data and parity in the stripe.
    pub(crate) fn placement(&self) -> &Placement {
        self.placement.as_ref().expect("a stripe that is handled stands for a place")
    }

    /// A client wants something of these strips.
    #[inline]
    pub(crate) fn attach(&mut self, sub_requests: &[SubRequest], touched: Touched, write: bool) {
        if write {
            self.writers = self.writers.or(touched);
            self.writes.extend_from_slice(sub_requests);
        } else {
            self.readers = self.readers.or(touched.slots);
            self.reads.extend_from_slice(sub_requests);
        }
    }

    /// A sub-request of it failed once, and is repeated.
    pub(crate) fn repeat(&mut self, touched: Touched) {
        self.retried = self.retried.or(touched.slots);
    }

    /// Sub-requests of readers.
    pub(crate) fn reads(&self) -> &[SubRequest] {
        &self.reads
    }

    /// Sub-requests of writers.
    pub(crate) fn writes(&self) -> &[SubRequest] {
        &self.writes
    }

    /// Serves the readers of these strips: they are answered at the end of the operation.
    pub(crate) fn take_readers(&mut self, served: SlotSet) {
        assert!(self.taken.is_empty(), "those taken before were answered");
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

    /// Takes in what all writers brought: they are answered at the end of the operation. These
    /// parities are computed with it; these slots are written from the memory of their writers.
    pub(crate) fn drain(&mut self, new_parity: SlotSet, zero_copy: SlotSet) {
        assert!(self.taken.is_empty(), "those taken before were answered");
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

    /// Sub-requests that the operation serves.
    pub(crate) fn taken(&self) -> &[SubRequest] {
        &self.taken
    }

    /// The operation is over for them.
    pub(crate) fn answered(&mut self) {
        self.drained = Touched::default();
        self.taken.clear();
    }

    /// Gives up every writer, and the readers of these strips.
    pub(crate) fn give_up(&mut self, lost: SlotSet) -> Vec<SubRequest> {
        assert!(self.taken.is_empty(), "those taken before were answered");
        let mut given_up = std::mem::take(&mut self.writes);
        self.writers = Touched::default();
        (self.waits_since, self.reads_since) = (None, None);
        (self.waited_for, self.due) = (false, None);
        given_up.extend(self.reads.extract_if(.., |sub_request| lost.contains(sub_request.slot)));
        self.readers = self.readers.without(lost);
        given_up
    }

    /// Moves everybody who is not being served out: readers, writers.
    pub(crate) fn move_out(&mut self) -> (Vec<SubRequest>, Vec<SubRequest>) {
        assert!(self.taken.is_empty(), "those taken before were answered");
        (self.readers, self.writers) = (SlotSet::EMPTY, Touched::default());
        (std::mem::take(&mut self.reads), std::mem::take(&mut self.writes))
    }

    /// Slots with a reader.
    pub(crate) fn to_read(&self) -> SlotSet {
        self.readers
    }

    /// Slots with a writer.
    pub(crate) fn to_write(&self) -> SlotSet {
        self.writers.slots
    }

    /// Whether one of the writers wants it durable.
    pub(crate) fn writes_durably(&self) -> bool {
        self.writers.durable
    }

    /// Whether every strip of data has writers that cover it.
    #[inline]
    pub(crate) fn is_filled(&self, strip_bytes: u64) -> bool {
        self.writers.slots == self.data
            && (self.writers.covered == self.data || self.overwrite(strip_bytes) == self.data)
    }

    /// Slots whose writers cover the strip. Writers never overlap each other.
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

    /// The bytes of the volume that a writer has to bring to fill it: from the first that is
    /// missing to the last.
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

    /// Strips that could not be read and whose content is known all the same.
    pub(crate) fn correctable(&self) -> SlotSet {
        self.read_error.and(self.uptodate).without(self.uncorrectable)
    }

    /// Sub-request that is being written from a zero-copy page.
    pub(crate) fn zero_copy_from(&self, slot: Slot) -> Option<&SubRequest> {
        if self.zero_copy.contains(slot) { self.written_to(slot) } else { None }
    }

    // Not inlined where strips are gone through, most of which are the stripe's own.
    #[inline(never)]
    fn written_to(&self, slot: Slot) -> Option<&SubRequest> {
        self.taken.iter().find(|sub_request| sub_request.slot == slot)
    }

    /// Memory of a strip of the write in flight, and the request whose zero-copy page it is.
    pub(crate) fn memory(&self, slot: Slot, frames: u32) -> (Segment, Option<RequestId>) {
        match self.zero_copy_from(slot) {
            Some(sub_request) => (
                sub_request.memory.expect("a zero-copy page has memory"),
                Some(sub_request.request),
            ),
            None => (self.strip(slot, frames), None),
        }
    }

    /// On whose behalf its member requests are, and for what, but for [`Stripe::purposes`].
    /// `sync` is the class of a resync that no client waits for.
    #[inline(always)]
    pub(crate) fn member_attr(&self, sync: Class) -> Attr {
        let mut attr = self.attr;
        if self.is_for_array() {
            attr = self.array_attr(sync);
        }
        attr
    }

    /// Whether its member requests are the array's own.
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

    /// What each of these strips is read or written for, if what somebody named is for `here`.
    #[inline]
    pub(crate) fn purposes(&self, here: Purpose, strips: SlotSet, write: bool) -> Purposes {
        if !matches!(here, Purpose::User | Purpose::WriteBack) {
            return Purposes { here, at: strips, old: SlotSet::EMPTY, others: here };
        }
        if write {
            let at = self.data;
            return Purposes { here, at, old: SlotSet::EMPTY, others: Purpose::Parity };
        }
        // Only a read-modify-write has the old content of all that is written, and parity with it.
        let writers = self.to_write();
        let parity = writers.without(strips.or(self.uptodate)).is_empty();
        let old = match parity {
            _ if writers.is_empty() => SlotSet::EMPTY,
            true => writers.or(self.parity),
            false => writers,
        };
        Purposes { here, at: self.readers, old, others: Purpose::Reconstruct }
    }

    /// Takes note of who wants something of it: of several at once, the strongest.
    #[inline]
    pub(crate) fn charge(&mut self, attr: Attr) {
        if !self.has_clients() {
            self.attr = attr;
        } else if self.attr != attr {
            self.attr = self.attr.stronger(attr);
        }
    }

    /// Whether every strip that is written lies in memory right after the same strip of another
    /// stripe, which was drained and is all zero-copy pages, so that both can be computed as one.
    pub(crate) fn goes_on_after(&self, before: &Self, frames: u32) -> bool {
        let goes_on = |(mine, other): (&SubRequest, &SubRequest)| {
            let (Some(memory), Some(before)) = (mine.memory, other.memory) else { return false };
            mine.slot == other.slot && memory.slab_start() == before.slab_end()
        };
        // Where one writer covers each strip, none begins within one.
        self.frames.0 == before.frames.0 + frames
            && before.zero_copy == before.written()
            && self.to_write() == before.written()
            && self.to_write() == self.writers.covered
            && self.writes.len() == before.taken.len()
            && self.writes.iter().zip(&before.taken).all(goes_on)
    }

    /// Slots whose data is on its way to the members.
    pub(crate) fn written(&self) -> SlotSet {
        self.drained.slots
    }

    /// Stripes that are written with it.
    pub(crate) fn followers(&self) -> u64 {
        self.batch.followers().len() as u64
    }

    /// Whether a client or a sync still wants something.
    pub(crate) fn has_work(&self) -> bool {
        self.sync.is_some() || self.has_clients()
    }

    fn has_clients(&self) -> bool {
        !self.readers.or(self.to_write()).is_empty() || !self.taken.is_empty()
    }

    /// Whether somebody who is being written wants it durable.
    pub(crate) fn written_durably(&self) -> bool {
        self.drained.durable
    }

    /// Memory of a whole strip of so many frames.
    pub(crate) fn strip(&self, slot: Slot, frames: u32) -> Segment {
        Segment { frame: self.first(slot), offset: 0, len: frames * FRAME_BYTES as u32 }
    }

    /// Memory of a sub-request of a strip.
    pub(crate) fn part(&self, slot: Slot, offset: u32, len: u32) -> Segment {
        Segment::at(self.first(slot), u64::from(offset), u64::from(len))
    }

    fn first(&self, slot: Slot) -> Frame {
        Frame(self.frames.0 + u32::from(slot.0) * self.stride)
    }

    /// First sector on each member, counted from its data offset.
    pub(crate) fn sector(&self, height: Sectors) -> Sectors {
        Sectors(self.key * height.0)
    }
}
