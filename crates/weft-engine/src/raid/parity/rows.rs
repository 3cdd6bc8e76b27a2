//! What happens to a row, from the arrival of a request to the answer?
//!
//! Rows are handled one step at a time: [`super::plan`] says which, [`super::cache`] says whose turn
//! it is, and this file carries it out: member requests, computations, and what follows when they
//! are done. Full rows of one chunk that lie side by side go as one batch, written member by member.
//!
//! Memory that a member request was given up on is *pinned*: the member may still read or fill it.
//! Such a row is retired; what it had to do is moved to a fresh one.
//!
//! Source   md-raid.md §1.4, §1.7, §2.2 to §2.10, §6.2

mod correct;
mod surroundings;
mod sync;
mod write;

use std::collections::VecDeque;
use std::ops::Range;

use smallvec::{SmallVec, smallvec};
use weft_units::{Bytes, MemberIndex, RowId, SectorRange, Sectors, Slot, Span, Time, VolumeId};

use super::cache::{Acquired, Cache};
use super::plan::{Facts, Step};
use super::priority::{Patience, Variant, patience_for_others};
use super::row::{Batch, Operation, Piece, Row, RowSyncState};
use super::waits::RowWaits;
use crate::array::MemberRequest;
use crate::error::ReplyError;
use crate::frame::Part;
use crate::input::{Attr, Fault, Located, SyncAction, Value};
use crate::knobs::{CacheForm, CheckReads, Knobs, PriorityRule, Writes};
use crate::membership::{Around, Membership, Report};
use crate::mutant::Mutant;
use crate::outbox::{RowPart, RowRun, Who};
use crate::output::{ComputeOp, Differs, Source, Sources};
use crate::raid::geometry::{Geometry, Placement};
use crate::raid::slot_set::SlotSet;
use crate::ranges::RequestId;
use crate::sched::merge::Kind;

pub(crate) use self::surroundings::Surroundings;

/// The rows of a volume.
#[derive(Clone, Debug)]
pub(crate) struct Rows {
    volume: VolumeId,
    pub(crate) cache: Cache,
    rows_per_chunk: u64,
    /// Rows that requests of this turn were attached to, in order.
    plug: Vec<RowId>,
    /// Rows that members had no space for.
    owing: Vec<RowId>,
    /// Work of retired rows, waiting for fresh ones.
    displaced: VecDeque<Displaced>,
    pub(crate) waits: RowWaits,
    /// How long prereads take, once one was measured.
    preread: Option<Span>,
    /// For the volume.
    pub(crate) events: Vec<Event>,
}

/// What the rows of a volume have to tell it.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A request is attached, to rows that have so many pieces of it: the `whole` request, or a piece of it
    /// that was read in vain before.
    Attached { request: RequestId, pieces: u32, whole: bool },
    /// Pieces of a request are done.
    PiecesDone { request: RequestId, pieces: u32, result: Result<(), ReplyError> },
    /// A member write from the memory of a request was given up, and may go on using it.
    Pinned { request: RequestId },
    /// A sync is done with a row. `wrong` is the slot whose block alone explains the mismatch.
    SyncDone { key: u64, mismatch: bool, wrong: Option<Slot>, ok: bool },
    /// There was no space behind a member; parity may be wrong from this data sector.
    NoSpace { slot: Slot, sector: Sectors },
    /// Such a write is done at last.
    Unpinned { request: RequestId },
    /// A write reached every member: there is space.
    Written,
}

/// How pieces come to a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) write: bool,
    /// Do not wait for more of the row.
    pub(crate) sync: bool,
    /// More of the row is likely to follow.
    pub(crate) streams: bool,
    /// A request waits for the one that they are of.
    pub(crate) waited_for: bool,
    /// The member failed to read it once.
    pub(crate) retried: bool,
    pub(crate) attr: Attr,
}

/// How a member answered for a part of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) result: Result<(), Fault>,
    /// Whose answer it is; nobody's if nobody was asked.
    pub(crate) member: Option<MemberIndex>,
    /// It did not: the request was given up, and pins memory until it is done.
    pub(crate) given_up: bool,
}

/// Work of a retired row.
#[derive(Clone, Debug)]
struct Displaced {
    key: u64,
    reads: Vec<Piece>,
    writes: Vec<Piece>,
    sync: Option<SyncAction>,
    /// See [`super::row::Row::given_up`].
    given_up: u8,
}

impl Rows {
    pub(crate) fn new(volume: VolumeId, cache: Cache, chunk: Sectors) -> Self {
        let rows_per_chunk = chunk.0 / cache.height().0;
        assert!(rows_per_chunk.is_power_of_two(), "a row is never higher than the chunk");
        Self {
            volume,
            cache,
            rows_per_chunk,
            plug: Vec::new(),
            owing: Vec::new(),
            displaced: VecDeque::new(),
            waits: RowWaits::default(),
            preread: None,
            events: Vec::new(),
        }
    }

    /// How often a read of a row was given up since it has been worked on.
    pub(crate) fn given_up(&self, id: RowId) -> u8 {
        self.cache.row(id).given_up
    }

    /// Rows of one chunk.
    pub(crate) fn rows_per_chunk(&self) -> u64 {
        self.rows_per_chunk
    }

    // Arrivals.

    /// Attaches a client's pieces to a row that was acquired.
    pub(crate) fn attach(&mut self, id: RowId, pieces: &[Piece], arrival: Arrival) {
        let Arrival { write, sync, streams, waited_for, retried, attr } = arrival;
        let block_bytes = self.cache.block_bytes();
        let row = self.cache.row_mut(id);
        row.attr = attr;
        assert!(row.batch == Batch::None, "a batch is covered by writes that exclude others");
        for piece in pieces {
            row.attach(*piece, write, block_bytes);
            // What is being read now may be read together with what failed: that is no second time.
            if retried && row.in_flight == 0 {
                row.retried.insert(piece.slot);
            }
        }
        row.handle = true;
        row.delayed = false;
        row.arrivals += 1;
        row.streams |= streams;
        row.waited_for |= waited_for;
        if write {
            self.join_batch(id);
        } else {
            row.batch_ready = false;
        }
        if write && sync && !matches!(self.cache.row(id).batch, Batch::Follower(_)) {
            self.cache.permit_preread(id);
        }
        self.hold_until_release(id);
    }

    /// Asks for a row to be synced. It was acquired.
    pub(crate) fn attach_sync(&mut self, id: RowId, action: SyncAction) {
        let row = self.cache.row_mut(id);
        assert!(row.sync.is_none());
        row.sync = Some((action, RowSyncState::Requested));
        row.handle = true;
        self.hold_until_release(id);
    }

    /// Ends the arrivals of a turn: rows go to their lists. In the form of 2008, before the patch, whoever
    /// brought a request takes the first step of its row, without asking for its place in the order; with
    /// the patch its row waits for its turn. How many did.
    pub(crate) fn release_plug(&mut self, cx: &mut Surroundings<'_>, may_move: bool) -> u32 {
        let mut handled = 0;
        let writes = cx.knobs.writes;
        let before_the_patch =
            self.cache.form() == CacheForm::Of2008 && cx.knobs.priority == PriorityRule::Fifo;
        let at_arrival = may_move && before_the_patch;
        let by_chunk_rows = self.cache.goes_by_chunk_rows();
        let mut plug = std::mem::take(&mut self.plug);
        for id in plug.drain(..) {
            let row = self.cache.row_mut(id);
            row.plugged = false;
            let streams = std::mem::take(&mut row.streams);
            let arrivals = std::mem::take(&mut row.arrivals);
            cx.out.work.attaches += arrivals;
            let alone = arrivals == 1;
            let at_once = match writes {
                // A write that came alone has nothing to wait for that is known of.
                Writes::Auto if by_chunk_rows => !streams,
                Writes::Auto => alone,
                Writes::Gather => false,
                Writes::Sync => true,
            };
            let follows = matches!(row.batch, Batch::Follower(_));
            if at_once && !follows && !row.to_write().is_empty() {
                self.cache.permit_preread(id);
            }
            self.cache.release(id);
            if at_arrival && self.cache.take_ready(id) {
                self.handle(id, cx);
                handled += 1;
            }
        }
        // For its allocation; nothing arrives while rows are handled.
        self.plug = plug;
        handled
    }

    /// Gives displaced work fresh rows, as far as there are any.
    pub(crate) fn place_displaced(&mut self, geometry: &Geometry) {
        while let Some(work) = self.displaced.front() {
            let Acquired::Row(id) = self.cache.acquire(work.key, geometry) else { return };
            let work = self.displaced.pop_front().expect("there is a front");
            let block_bytes = self.cache.block_bytes();
            let row = self.cache.row_mut(id);
            row.batch_ready = false;
            row.given_up = row.given_up.max(work.given_up);
            work.reads.into_iter().for_each(|piece| row.attach(piece, false, block_bytes));
            work.writes.into_iter().for_each(|piece| row.attach(piece, true, block_bytes));
            if let Some(action) = work.sync {
                row.sync = Some((action, RowSyncState::Requested));
            }
            row.handle = true;
            if !row.to_write().is_empty() {
                self.cache.permit_preread(id);
            }
            self.hold_until_release(id);
        }
    }

    /// Ends displaced work that will find no row.
    pub(crate) fn end_displaced(&mut self) {
        for Displaced { key, reads, writes, sync, given_up: _ } in
            std::mem::take(&mut self.displaced)
        {
            for piece in reads.into_iter().chain(writes) {
                let (request, result) = (piece.request, Err(ReplyError::Io));
                self.events.push(Event::PiecesDone { request, pieces: 1, result });
            }
            if sync.is_some() {
                self.events.push(Event::SyncDone { key, mismatch: false, wrong: None, ok: false });
            }
        }
    }

    /// Whether displaced work waits.
    pub(crate) fn has_displaced(&self) -> bool {
        !self.displaced.is_empty()
    }

    fn hold_until_release(&mut self, id: RowId) {
        if !std::mem::replace(&mut self.cache.row_mut(id).plugged, true) {
            self.plug.push(id);
        }
    }

    /// Appends a full row to the batch of the row below it, if the two may go as one.
    fn join_batch(&mut self, id: RowId) {
        let key = self.cache.row(id).key;
        // The first row of a chunk has another placement below it, or at least another chunk.
        let first = key & (self.rows_per_chunk - 1) == 0;
        if !self.cache.batches() || first || !self.may_batch(id) {
            return;
        }
        let Some(before) = self.cache.find(key - 1).filter(|before| self.may_batch(*before)) else {
            return;
        };
        let head = match &self.cache.row(before).batch {
            Batch::Follower(head) => *head,
            Batch::Head(_) | Batch::None => before,
        };
        let fua = |row: &Row| row.writes().iter().any(|piece| piece.fua);
        if fua(self.cache.row(before)) != fua(self.cache.row(id)) {
            return;
        }
        match &mut self.cache.row_mut(head).batch {
            Batch::Head(followers) => followers.push(id),
            batch => *batch = Batch::Head(vec![id]),
        }
        self.cache.row_mut(id).batch = Batch::Follower(head);
        self.cache.forbid_preread(id);
    }

    /// A full row that was never handled and is not read.
    fn may_batch(&self, id: RowId) -> bool {
        let row = self.cache.row(id);
        let data = self.data_slots(id);
        row.batch_ready
            && row.to_write() == data
            && row.sync.is_none()
            && row.overwrite(self.cache.block_bytes()) == data
    }

    /// Delayed rows that have waited long enough become held ones. `moved` says when the stream was last
    /// seen that will bring these bytes of the volume.
    pub(crate) fn activate(
        &mut self,
        knobs: &Knobs,
        wait_max: Span,
        geometry: &Geometry,
        now: Time,
        moved: impl Fn(Range<u64>) -> Option<Time>,
    ) {
        let (activation, variant) = (knobs.activation(), knobs.priority_variant());
        self.cache.end_overdue(variant, wait_max, now);
        let Variant::Stream { wait_max } = variant else {
            self.cache.activate_delayed(activation, variant, now);
            return;
        };
        let (height, preread) = (self.cache.height(), self.preread);
        self.cache.activate_each(activation, variant, now, &|row| {
            let moved = row.lacks(geometry, height).and_then(&moved);
            Patience::new(row.waits_since.unwrap_or(now), moved, preread, wait_max)
        });
    }

    /// A request waits for one whose pieces are in these rows: they wait no longer than it takes to fill rows
    /// that are about to be filled.
    pub(crate) fn hurry(&mut self, request: RequestId, keys: &Range<u64>, now: Time) {
        let due = now + patience_for_others(self.preread);
        for id in self.cache.rows_of(keys) {
            if self.cache.row(id).writes().iter().any(|piece| piece.request == request) {
                self.cache.hurry(id, due);
            }
        }
    }

    // Handling.

    /// Takes the next step of a row that was picked.
    pub(crate) fn handle(&mut self, id: RowId, cx: &mut Surroundings<'_>) {
        let row = self.cache.row_mut(id);
        debug_assert_eq!(row.in_flight, 0);
        row.handle = false;
        row.delayed = false;
        row.batch_ready = false;
        if row.pins > 0 {
            self.set_aside(id);
            return;
        }
        if let Some((action, RowSyncState::Requested)) = row.sync
            && row.batch == Batch::None
        {
            row.sync = Some((action, RowSyncState::Filling));
            let requested = matches!(action, SyncAction::Check | SyncAction::Repair);
            if requested && cx.knobs.check_reads == CheckReads::Media {
                // The media do not have what their member had no space for.
                row.uptodate = row.uptodate.and(row.owed);
            }
            if action == SyncAction::Recover {
                self.forget_lost_parity(id, cx);
            }
        }
        if self.copy_out(id, cx) {
            return;
        }
        let facts = self.facts(id, cx);
        let written_in_vain = cx.membership().broken && !facts.to_write.is_empty();
        let failed = facts.failed();
        if written_in_vain || (!failed.is_empty() && failed.count() > facts.parity().count()) {
            self.fail_row(id, &facts, cx);
            return;
        }
        match facts.plan() {
            Step::Read { blocks, delay } => {
                let row = self.cache.row_mut(id);
                if delay {
                    row.handle = true;
                    row.delayed = true;
                    row.waits_since.get_or_insert(cx.out.now);
                    if row.waited_for {
                        row.due.get_or_insert(cx.out.now + patience_for_others(self.preread));
                    }
                } else if let Some(since) = row.waits_since.take() {
                    row.reads_since = Some(cx.out.now);
                    self.waits.preread.record(since, cx.out.now);
                }
                self.read(id, blocks, cx);
            }
            // P of RAID 6 is computed where all else is here, but not to get around a read that
            // failed.
            Step::Recover(lost) if !self.to_repeat(id, lost, &facts).is_empty() => {
                self.read(id, self.to_repeat(id, lost, &facts), cx);
            }
            Step::Recover(lost) => self.recover(id, lost, cx),
            Step::Write(mode) => {
                if let Some(since) = self.cache.row_mut(id).waits_since.take() {
                    self.waits.filled.record(since, cx.out.now);
                }
                self.take_in(id, mode, cx);
            }
            // A block is made good before parity is compared, so that a sync ends with all of it.
            Step::Rest if self.correct(id, cx) => {}
            Step::Rest if facts.syncing => self.sync_compare(id, &facts, cx),
            Step::Rest => self.rest(id),
        }
    }

    /// Slots whose member is read in a row.
    #[inline]
    fn readable(&self, id: RowId, membership: &Membership) -> SlotSet {
        let (row, height) = (self.cache.row(id), self.cache.height());
        let around = match row.sync {
            Some((action, _)) if action != SyncAction::Recover => Around::Never,
            // What a member has no space for is here, and the others add up to it.
            _ if !row.owed.is_empty() => Around::Always,
            _ => Around::WhereChecked,
        };
        membership.readable(SectorRange::new(row.sector(height).0, height.0), around)
    }

    /// Whether a row does without a block whose member does not answer.
    pub(crate) fn reads_around(&self, part: RowPart, membership: &Membership) -> bool {
        !self.readable(part.row, membership).contains(part.slot)
    }

    #[inline]
    fn facts(&self, id: RowId, cx: &Surroundings<'_>) -> Facts {
        let row = self.cache.row(id);
        let sector = row.sector(self.cache.height());
        let placement = row.placement();
        let readable = self.readable(id, cx.membership());
        Facts {
            all: SlotSet::first(row.members),
            p: placement.p,
            q: placement.q,
            uptodate: row.uptodate,
            insync: readable.without(row.read_error),
            writable: cx.membership().present(),
            to_read: row.to_read(),
            to_write: row.to_write(),
            overwrite: row.overwrite(self.cache.block_bytes()),
            syncing: matches!(row.sync, Some((_, RowSyncState::Filling))),
            preread: row.preread,
            resync_pending: cx.membership().resync_from.is_some_and(|from| sector >= from),
            rmw_level: cx.knobs.rmw_level,
            rule: cx.knobs.plan_rule,
        }
    }

    /// Parity that is to be rebuilt may be here from before its member failed, in the middle of a resync
    /// that had not looked at it. It is computed anew: its row is read as a whole anyway.
    fn forget_lost_parity(&mut self, id: RowId, cx: &Surroundings<'_>) {
        let facts = self.facts(id, cx);
        let row = self.cache.row_mut(id);
        row.uptodate = row.uptodate.without(facts.parity().and(facts.failed()).without(row.owed));
    }

    /// Serves readers of valid blocks. Whether there were any.
    fn copy_out(&mut self, id: RowId, cx: &mut Surroundings<'_>) -> bool {
        let row = self.cache.row_mut(id);
        let served = row.to_read().and(row.uptodate);
        if served.is_empty() {
            return false;
        }
        let mut ops = Vec::new();
        for piece in row.reads().iter().filter(|piece| served.contains(piece.slot)) {
            let from = row.part(piece.slot, piece.offset, piece.len);
            ops.push(ComputeOp::Copy { from, to: piece.memory.expect("a reader brings memory") });
        }
        row.take_readers(served);
        self.compute(id, Operation::CopyingOut, ops, cx);
        true
    }

    /// Too many blocks cannot be had: what needs them fails, the rest is read.
    fn fail_row(&mut self, id: RowId, facts: &Facts, cx: &mut Surroundings<'_>) {
        let lost = facts.failed().without(facts.uptodate);
        for id in self.batch_of(id) {
            for piece in self.cache.row_mut(id).give_up(lost) {
                let (request, result) = (piece.request, Err(ReplyError::Io));
                self.events.push(Event::PiecesDone { request, pieces: 1, result });
            }
        }
        self.unbatch(id, |rows, id| rows.rest(id));
        self.cache.forbid_preread(id);
        if self.cache.row(id).sync.is_some() {
            self.sync_finished(id, false, None, false);
        }
        let readable = facts.to_read.and(facts.insync).without(facts.uptodate);
        if readable.is_empty() {
            self.rest(id);
        } else {
            self.read(id, readable, cx);
        }
    }

    /// Blocks whose read failed once, of members that may be read.
    fn to_repeat(&self, id: RowId, blocks: SlotSet, facts: &Facts) -> SlotSet {
        self.cache.row(id).retried.and(blocks).and(facts.insync).without(facts.uptodate)
    }

    fn read(&mut self, id: RowId, blocks: SlotSet, cx: &mut Surroundings<'_>) {
        // A read that is repeated goes alone, so that its neighbours do not fail with it.
        let alone = self.cache.row(id).retried.and(blocks);
        if !alone.is_empty() {
            self.stage(id, alone, None, Bytes::ZERO, cx);
        }
        self.stage(id, blocks.without(alone), None, cx.knobs.max_sectors, cx);
        let row = self.cache.row_mut(id);
        if row.in_flight > 0 {
            row.operation = Operation::Reading;
        } else {
            self.cache.release(id);
        }
    }

    fn recover(&mut self, id: RowId, lost: SlotSet, cx: &mut Surroundings<'_>) {
        let row = self.cache.row(id);
        let placement = row.placement();
        let data = self.data_slots(id);
        let lost_data = lost.and(data);
        let lost_p = lost.contains(placement.p);
        let lost_q = placement.q.is_some_and(|q| lost.contains(q));
        let whole = |slot: Slot| self.whole(id, slot);
        let mut ops = Vec::new();
        if !lost_data.is_empty() {
            // One lost block comes from P when P is there; two need both parities.
            let needs_q = lost_p || lost_data.count() == 2;
            ops.push(ComputeOp::Recover {
                data: self.sources(id, data.without(lost_data), cx),
                p: (!lost_p).then(|| whole(placement.p)),
                q: placement.q.filter(|_| needs_q).map(whole),
                lost: self.sources(id, lost_data, cx).into_iter().collect(),
            });
        }
        if lost_p || lost_q {
            ops.push(ComputeOp::Pq {
                data: self.sources(id, data, cx),
                p: lost_p.then(|| whole(placement.p)),
                q: placement.q.filter(|_| lost_q).map(whole),
            });
        }
        self.compute(id, Operation::Recovering(lost), ops, cx);
    }

    /// A computation of a row is done.
    pub(crate) fn computed(
        &mut self,
        id: RowId,
        value: &Result<Value, Fault>,
        cx: &mut Surroundings<'_>,
    ) {
        // See `Input::Done`: a driver that cannot compute must not go on.
        assert!(value.is_ok(), "a computation has no way to fail");
        let row = self.cache.row_mut(id);
        row.in_flight -= 1;
        debug_assert_eq!(row.in_flight, 0);
        match std::mem::replace(&mut row.operation, Operation::Idle) {
            Operation::Comparing { whole } => {
                let differs = match value {
                    Ok(Value::Differs(differs)) => *differs,
                    _ => Differs::default(),
                };
                self.sync_compared(id, differs, whole, cx);
            }
            Operation::Locating => {
                let located = match value {
                    Ok(Value::Located(located)) => *located,
                    _ => Located::Unknown,
                };
                self.sync_located(id, located);
            }
            Operation::Computing(_) => self.write_out(id, cx),
            Operation::CopyingOut => {
                self.answer_writers(&[id], &Ok(()));
                self.rest_or_continue(id);
            }
            Operation::Recovering(lost) => {
                row.uptodate = row.uptodate.or(lost);
                row.handle = true;
                self.rest(id);
            }
            Operation::Regenerating(differs) => self.sync_correct(id, differs, cx),
            Operation::Saving => self.saved(id, cx),
            operation @ (Operation::Idle
            | Operation::PayingOff
            | Operation::Reading
            | Operation::Rereading(_)
            | Operation::Rewriting(_)
            | Operation::SyncWriting
            | Operation::Writing) => unreachable!("{operation:?} computes nothing"),
        }
    }

    /// A member request that was given up is done at last.
    pub(crate) fn unpin(&mut self, part: RowPart) {
        if let Some(request) = part.lender {
            self.events.push(Event::Unpinned { request });
            return;
        }
        let row = self.cache.row_mut(part.row);
        row.pins -= 1;
        if row.pins == 0 && row.in_flight == 0 {
            self.rest(part.row);
        }
    }

    /// A member request of a row is done, or was given up, in which case it pins memory.
    pub(crate) fn done(&mut self, part: RowPart, answer: Answer, cx: &mut Surroundings<'_>) {
        let head = self.head_of(part.row);
        let operation = self.cache.row(head).operation;
        if answer.given_up {
            self.pin(part);
            if operation == Operation::Reading {
                let row = self.cache.row_mut(part.row);
                row.given_up = row.given_up.saturating_add(1);
            }
        }
        match (answer.result, operation) {
            (Ok(()), Operation::Reading) => {
                let row = self.cache.row_mut(part.row);
                row.uptodate.insert(part.slot);
                row.retried.remove(part.slot);
            }
            (Ok(()), Operation::Writing | Operation::PayingOff) => {
                self.cache.row_mut(part.row).owed.remove(part.slot);
            }
            (Ok(()), _) => {}
            (Err(fault), operation) => self.part_failed(part, fault, operation, answer, cx),
        }
        self.one_done(head, cx);
    }

    /// The same for a run of rows of a batch.
    pub(crate) fn run_done(&mut self, run: RowRun, answer: Answer, cx: &mut Surroundings<'_>) {
        let operation = self.cache.row(run.head).operation;
        debug_assert_eq!(operation, Operation::Writing, "batches are written, nothing else");
        if answer.given_up {
            let parts: Vec<RowPart> = self.parts_of(run).collect();
            parts.into_iter().for_each(|part| self.pin(part));
        }
        if let Err(fault) = answer.result {
            let parts: Vec<RowPart> = self.parts_of(run).collect();
            for part in parts {
                self.part_failed(part, fault, operation, answer, cx);
            }
        }
        self.one_done(run.head, cx);
    }

    /// The blocks of a run, each for itself.
    pub(crate) fn parts_of(&self, run: RowRun) -> impl Iterator<Item = RowPart> {
        let rows = self.batch_of(run.head);
        let (first, count) = (run.first as usize, run.count as usize);
        rows.into_iter().skip(first).take(count).map(move |row| {
            let lender = self.cache.row(row).lender(run.slot).map(|piece| piece.request);
            RowPart { row, slot: run.slot, lender }
        })
    }

    /// A member request that was given up may still use a block.
    fn pin(&mut self, part: RowPart) {
        match part.lender {
            Some(request) => self.events.push(Event::Pinned { request }),
            None => self.cache.row_mut(part.row).pins += 1,
        }
    }

    /// A member request of the operation in flight is over.
    fn one_done(&mut self, head: RowId, cx: &mut Surroundings<'_>) {
        let row = self.cache.row_mut(head);
        row.in_flight -= 1;
        if row.in_flight > 0 {
            return;
        }
        match std::mem::replace(&mut row.operation, Operation::Idle) {
            Operation::Reading => {
                row.handle = true;
                if let Some(since) = row.reads_since.take() {
                    let took = cx.out.now.since(since);
                    let known = self.preread.unwrap_or(took).0;
                    self.preread = Some(Span(known - known / 8 + took.0 / 8));
                }
                self.rest(head);
            }
            Operation::PayingOff => self.paid_off(head, cx),
            Operation::Rereading(slot) => self.reread(head, slot, cx),
            Operation::Rewriting(slot) => self.rewritten(head, slot, cx),
            Operation::SyncWriting => self.sync_written(head, cx),
            Operation::Writing => self.written(head, cx),
            operation @ (Operation::Comparing { .. }
            | Operation::Computing(_)
            | Operation::CopyingOut
            | Operation::Idle
            | Operation::Locating
            | Operation::Recovering(_)
            | Operation::Regenerating(_)
            | Operation::Saving) => {
                unreachable!("{operation:?} has no member requests")
            }
        }
    }

    /// A member did not do its part of the operation.
    #[cold]
    fn part_failed(
        &mut self,
        part: RowPart,
        fault: Fault,
        operation: Operation,
        answer: Answer,
        cx: &mut Surroundings<'_>,
    ) {
        // A member that failed may answer late, when another has its slot: not that one's doing.
        let still_there = answer.member.is_some_and(|member| {
            !answer.given_up && cx.membership().member_at(part.slot) == Some(member)
        });
        let row = self.cache.row_mut(part.row);
        match (fault, operation) {
            (_, Operation::Reading) if !still_there => {}
            (Fault::Gone, Operation::Reading) => cx.report(Report::Failed { slot: part.slot }),
            (_, Operation::Reading) => self.read_failed(part, cx),
            (Fault::NoSpace, Operation::Writing | Operation::PayingOff) if still_there => {
                row.owed.insert(part.slot);
            }
            (Fault::NoSpace, Operation::SyncWriting) if still_there => {
                row.no_space = Some(part.slot);
            }
            (fault, _) => {
                row.faults.insert(part.slot);
                // What cannot be read back, or has no space, is for the row to judge.
                let judged = matches!(operation, Operation::Rereading(_));
                if still_there && !judged && fault != Fault::NoSpace {
                    cx.report(Report::Failed { slot: part.slot });
                }
            }
        }
    }

    /// Handles a row again if somebody waits, or if a correction may be due.
    fn rest_or_continue(&mut self, id: RowId) {
        let row = self.cache.row_mut(id);
        row.handle |= !row.correctable().is_empty();
        self.rest(id);
    }

    /// Nothing of the row is in flight: to its list, or out of the way if its memory is pinned.
    fn rest(&mut self, id: RowId) {
        let row = self.cache.row_mut(id);
        if row.in_flight > 0 {
            return;
        }
        if row.pins > 0 {
            self.set_aside(id);
            return;
        }
        row.handle |= row.has_work();
        self.cache.release(id);
    }

    /// Does without a row whose memory is pinned. One that owes cannot be done without: what belongs
    /// there is known to it only, and the others do not add up to it. It waits for its memory or for
    /// space.
    fn set_aside(&mut self, id: RowId) {
        self.unbatch(id, |rows, id| rows.rest(id));
        let row = self.cache.row_mut(id);
        if row.owed.is_empty() {
            self.displace(id);
        } else {
            row.handle = false;
        }
    }

    /// Retires a row whose memory is pinned, and keeps its work for another.
    fn displace(&mut self, id: RowId) {
        let row = self.cache.row_mut(id);
        let (reads, writes) = row.move_out();
        let sync = row.sync.take().map(|(action, _)| action);
        let work = Displaced { key: row.key, reads, writes, sync, given_up: row.given_up };
        self.owing.retain(|other| *other != id);
        self.cache.retire(id);
        if !(work.reads.is_empty() && work.writes.is_empty() && work.sync.is_none()) {
            self.displaced.push_back(work);
        }
    }

    /// Makes every row of a batch stand on its own, and does something with each follower.
    fn unbatch(&mut self, id: RowId, mut with: impl FnMut(&mut Self, RowId)) {
        if let Batch::Head(followers) = std::mem::take(&mut self.cache.row_mut(id).batch) {
            for follower in followers {
                self.cache.row_mut(follower).batch = Batch::None;
                with(self, follower);
            }
        }
    }

    /// The rows that go as one with this one: itself, and what it leads.
    #[inline]
    fn batch_of(&self, id: RowId) -> SmallVec<[RowId; 4]> {
        let mut rows = smallvec![id];
        if let Batch::Head(followers) = &self.cache.row(id).batch {
            rows.extend_from_slice(followers);
        }
        rows
    }

    fn head_of(&self, id: RowId) -> RowId {
        match self.cache.row(id).batch {
            Batch::Follower(head) => head,
            Batch::Head(_) | Batch::None => id,
        }
    }

    // Outputs.

    /// Sends a computation of a row.
    fn compute(
        &mut self,
        id: RowId,
        operation: Operation,
        ops: Vec<ComputeOp>,
        cx: &mut Surroundings<'_>,
    ) {
        let row = self.cache.row_mut(id);
        assert_eq!(row.in_flight, 0);
        row.in_flight = 1;
        row.operation = operation;
        cx.out.compute(self.volume, id, ops);
    }

    /// Sends reads or writes (with or without FUA) of whole blocks, highest slot first.
    fn stage(
        &mut self,
        id: RowId,
        slots: SlotSet,
        write: Option<bool>,
        max: Bytes,
        cx: &mut Surroundings<'_>,
    ) {
        assert!(write.is_none() || !cx.membership().read_only, "no write while read-only");
        let (height, frames) = (self.cache.height(), self.cache.block_frames());
        let row = self.cache.row_mut(id);
        row.io_started = true;
        let request = MemberRequest {
            write: write.is_some(),
            sector: row.sector(height),
            bytes: height.bytes(),
            max,
            kind: Kind { fua: write == Some(true), rows: true, attr: row.member_attr() },
        };
        let mut sent = 0;
        for slot in slots.descending() {
            let (memory, lender) = row.memory(slot, frames);
            let who = Who::Row(RowPart { row: id, slot, lender });
            sent += u32::from(cx.stage(slot, &request, &[memory], who));
        }
        row.in_flight += sent;
    }

    fn whole(&self, id: RowId, slot: Slot) -> Part {
        self.cache.row(id).block(slot, self.cache.block_frames())
    }

    #[inline]
    fn data_slots(&self, id: RowId) -> SlotSet {
        let row = self.cache.row(id);
        SlotSet::first(row.members).without(row.placement().parity())
    }

    fn sources(&self, id: RowId, slots: SlotSet, cx: &Surroundings<'_>) -> Sources {
        let (row, frames) = (self.cache.row(id), self.cache.block_frames());
        let placement = row.placement();
        let mut sources = Sources::new();
        for slot in slots.ascending() {
            let exponent = exponent(placement, slot, cx);
            sources.push(Source { exponent, part: row.block(slot, frames) });
        }
        sources
    }
}

fn exponent(placement: Placement, slot: Slot, cx: &Surroundings<'_>) -> u8 {
    let exponent = placement.exponent(slot);
    let wrong = exponent >= 2 && cx.is_planted(Mutant::WrongQExponent);
    exponent + u8::from(wrong)
}
