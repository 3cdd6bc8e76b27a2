//! How does a row, or a batch of full rows, get written?
//!
//! New data is taken in and parity computed in one computation; then data and parity go to the
//! members, highest slot first and rows ascending within a slot, so that a batch reaches each member
//! as one run. The writers are answered when every member has answered.
//!
//! Source   md-raid.md §1.7, §2.4

use weft_units::{Bytes, FRAME_BYTES, RowId, Slot};

use super::{Event, Rows, Surroundings, exponent};
use crate::array::MemberRequest;
use crate::error::ReplyError;
use crate::frame::{Part, Parts, ZERO_FRAME};
use crate::mutant::Mutant;
use crate::outbox::{RowRun, Who};
use crate::output::ComputeOp;
use crate::raid::parity::plan::Mode;
use crate::raid::parity::row::{Batch, Operation, Piece};
use crate::raid::slot_set::SlotSet;
use crate::sched::merge::{self, Kind};

impl Rows {
    /// Takes in what is written and computes parity: of one row, or of a batch.
    pub(super) fn take_in(&mut self, id: RowId, mode: Mode, cx: &mut Surroundings<'_>) {
        let mut ops = cx.out.ops();
        let mut before: Option<RowId> = None;
        for id in self.batch_of(id) {
            let goes_on = before.is_some_and(|before| self.goes_on(id, before, &mut ops));
            if goes_on {
                let row = self.cache.row_mut(id);
                let (new_parity, lent) =
                    (row.placement().parity().and(cx.membership().present()), row.to_write());
                row.take_in(new_parity, lent);
            } else {
                self.take_in_row(id, mode, &mut ops, cx);
            }
            cx.out.work.followers += u32::from(before.is_some());
            before = Some(id);
        }
        let row = self.cache.row_mut(id);
        let data = SlotSet::first(row.members).without(row.placement().parity());
        if row.written() == data {
            row.full_write = true;
            self.cache.full_row_writes += 1;
        }
        self.compute(id, Operation::Computing(mode), ops, cx);
    }

    /// Makes a computation longer by a row, if the row goes on in memory where the last one of it ended.
    fn goes_on(&self, id: RowId, before: RowId, ops: &mut [ComputeOp]) -> bool {
        let (row, before) = (self.cache.row(id), self.cache.row(before));
        let Some(ComputeOp::Pq { data, p, q }) = ops.last_mut() else { return false };
        if !row.goes_on_after(before, self.cache.block_frames()) {
            return false;
        }
        let block_bytes = self.cache.block_bytes() as u32;
        let parts = data.iter_mut().map(|source| &mut source.part).chain(p).chain(q);
        parts.for_each(|part| part.len += block_bytes);
        true
    }

    fn take_in_row(
        &mut self,
        id: RowId,
        mode: Mode,
        ops: &mut Vec<ComputeOp>,
        cx: &mut Surroundings<'_>,
    ) {
        let block_bytes = self.cache.block_bytes();
        let auto = cx.knobs.stripe_size.is_auto();
        let placement = self.cache.row(id).placement();
        let present = cx.membership().present();
        let p = Some(placement.p).filter(|p| present.contains(*p));
        let q = placement.q.filter(|q| present.contains(*q));
        let row = self.cache.row(id);
        let written = row.to_write();
        let full = written == SlotSet::first(row.members).without(placement.parity());
        let lends = cx.knobs.skip_copy || (auto && full);
        let mut lent = SlotSet::EMPTY;
        // Two for each piece, or one and the parity; zeros may take more.
        ops.reserve(2 * row.writes().len());
        for piece in row.writes() {
            let lender = piece.whole_block(block_bytes).filter(|_| lends);
            if lender.is_some() {
                lent.insert(piece.slot);
            }
            if lender.is_some() && mode == Mode::Reconstruct {
                continue;
            }
            let mut take = |new: Part, offset: u32| {
                let here = |slot: Slot| row.part(slot, offset, new.len);
                let to = here(piece.slot);
                if mode == Mode::ReadModifyWrite {
                    let exponent = exponent(placement, piece.slot, cx);
                    let old = if cx.is_planted(Mutant::RmwNewAsOld) { new } else { to };
                    let (p, q) = (p.map(here), q.map(here));
                    ops.push(ComputeOp::UpdatePq { exponent, old, new, p, q });
                }
                if lender.is_some() {
                    return;
                }
                ops.push(if new.is_zero() {
                    ComputeOp::Zero { to }
                } else {
                    ComputeOp::Copy { from: new, to }
                });
            };
            match piece.memory {
                Some(memory) => take(memory, piece.offset),
                None => piece.zeros().for_each(|(part, offset)| take(part, offset)),
            }
        }
        // Without a member to write parity to there is none to compute, and nothing was read for it.
        if mode == Mode::Reconstruct && (p.is_some() || q.is_some()) {
            let mut data = self.sources(id, self.data_slots(id), cx);
            for piece in row.writes().iter().filter(|piece| lent.contains(piece.slot)) {
                let mine = self.whole(id, piece.slot);
                let source = data.iter_mut().find(|source| source.part == mine);
                source.expect("data is written").part = piece.memory.expect("it lends memory");
            }
            let whole = |slot: Slot| self.whole(id, slot);
            ops.push(ComputeOp::Pq { data, p: p.map(whole), q: q.map(whole) });
        }
        self.cache.row_mut(id).take_in(placement.parity().and(present), lent);
    }

    /// Parity is computed: data and parity go to the members.
    pub(super) fn write_out(&mut self, id: RowId, cx: &mut Surroundings<'_>) {
        let rows = self.batch_of(id);
        let present = cx.membership().present();
        for id in &rows {
            let row = self.cache.row_mut(*id);
            row.uptodate = row.uptodate.or(row.written().without(row.lent)).or(row.new_parity);
            row.io_started = true;
        }
        if let [alone] = rows[..] {
            let row = self.cache.row(alone);
            let slots = row.written().or(row.new_parity).and(present);
            let fua = row.written_durably();
            self.stage(alone, slots, Some(fua), cx.knobs.max_sectors, cx);
        } else {
            self.stage_batch(id, &rows, cx);
        }
        for row_id in &rows {
            self.cache.forbid_preread(*row_id);
        }
        let row = self.cache.row_mut(id);
        row.operation = Operation::Writing;
        if cx.is_planted(Mutant::AckBeforeParity) {
            self.answer_writers(&rows, &Ok(()));
        }
        if self.cache.row(id).in_flight == 0 {
            self.written(id, cx);
        }
    }

    /// Sends a batch slot by slot, so that each member gets one run.
    fn stage_batch(&mut self, head: RowId, rows: &[RowId], cx: &mut Surroundings<'_>) {
        let row = self.cache.row(head);
        let (parity, written) = (row.new_parity, row.written().or(row.new_parity));
        for slot in written.and(cx.membership().present()).descending() {
            let without_tail = parity.contains(slot) && cx.is_planted(Mutant::FullRowWithoutTail);
            let end = rows.len() - usize::from(without_tail);
            let mut first = 0;
            while first < end {
                first += self.stage_run(head, slot, first, &rows[first..end], cx);
            }
        }
    }

    /// Sends the blocks of one slot, as many as fit into one request. How many.
    fn stage_run(
        &mut self,
        head: RowId,
        slot: Slot,
        first: usize,
        rows: &[RowId],
        cx: &mut Surroundings<'_>,
    ) -> usize {
        assert!(!cx.membership().read_only, "no write while read-only");
        let (height, frames) = (self.cache.height(), self.cache.block_frames());
        let row = self.cache.row(rows[0]);
        let attr = row.member_attr();
        let block = MemberRequest {
            write: true,
            sector: row.sector(height),
            bytes: height.bytes(),
            max: cx.knobs.max_sectors,
            kind: Kind { fua: row.written_durably(), rows: true, attr },
        };
        let Some(room) = cx.room(slot, &block) else { return rows.len() };
        let room = room / height.bytes().0;
        let mut parts = Parts::new();
        let mut count = 0;
        for id in rows.iter().take((room as usize).max(1)) {
            let row = self.cache.row(*id);
            if row.member_attr() != attr {
                break;
            }
            merge::append(&mut parts, row.memory(slot, frames).0);
            count += 1;
        }
        let bytes = Bytes(height.bytes().0 * count as u64);
        let request = MemberRequest { bytes, ..block };
        let (first, rows) = (first as u32, count as u32);
        let run = RowRun { head, slot, first, count: rows };
        cx.stage(slot, &request, &parts, Who::Rows(run));
        self.cache.row_mut(head).in_flight += 1;
        count
    }

    /// Every member has answered: the writers are answered.
    pub(super) fn written(&mut self, id: RowId, cx: &mut Surroundings<'_>) {
        let row = self.cache.row(id);
        let may_owe = row.batch != Batch::None || !row.owed.is_empty();
        if may_owe && self.save_lent(id, &self.batch_of(id), cx) {
            return;
        }
        let row = self.cache.row_mut(id);
        let followers = match std::mem::take(&mut row.batch) {
            Batch::Head(followers) => followers,
            Batch::Follower(_) | Batch::None => Vec::new(),
        };
        if std::mem::take(&mut row.full_write) {
            self.cache.full_row_writes -= 1;
        }
        let mut owing = self.owe(id);
        for id in &followers {
            owing |= self.owe(*id);
        }
        let result = if owing {
            Err(ReplyError::NoSpace)
        } else {
            if self.owing.is_empty() {
                self.events.push(Event::Written);
            }
            Ok(())
        };
        self.row_written(id, &result);
        for id in &followers {
            self.row_written(*id, &result);
        }
        // In order, so that rows that were used together are used together again, side by side.
        self.rest_or_continue(id);
        for id in followers {
            self.cache.row_mut(id).batch = Batch::None;
            self.rest_or_continue(id);
        }
    }

    fn row_written(&mut self, id: RowId, result: &Result<(), ReplyError>) {
        let row = self.cache.row_mut(id);
        let rewritten = row.written().or(row.new_parity);
        row.read_error = row.read_error.without(rewritten);
        row.retried = row.retried.without(rewritten);
        row.faults = SlotSet::EMPTY;
        row.lent = SlotSet::EMPTY;
        self.answer_writers(&[id], result);
    }

    pub(super) fn answer_writers(&mut self, rows: &[RowId], result: &Result<(), ReplyError>) {
        for id in rows {
            for piece in self.cache.row_mut(*id).answered() {
                match self.events.last_mut() {
                    Some(Event::PiecesDone { request, pieces, result: Ok(()) })
                        if *request == piece.request && result.is_ok() =>
                    {
                        *pieces += 1;
                    }
                    _ => {
                        let (request, result) = (piece.request, result.clone());
                        self.events.push(Event::PiecesDone { request, pieces: 1, result });
                    }
                }
            }
        }
    }
}

impl Rows {
    /// Copies what members had no space for from the memory of writers that are about to be answered.
    /// Whether there was any.
    fn save_lent(&mut self, id: RowId, rows: &[RowId], cx: &mut Surroundings<'_>) -> bool {
        if cx.is_planted(Mutant::LentNotSaved) {
            return false;
        }
        let mut ops = Vec::new();
        for id in rows {
            let row = self.cache.row(*id);
            for slot in row.owed.and(row.lent).ascending() {
                let lender = row.lender(slot).expect("writers stay until they are answered");
                let from = lender.memory.expect("it lends memory");
                ops.push(ComputeOp::Copy { from, to: self.whole(*id, slot) });
            }
        }
        if ops.is_empty() {
            return false;
        }
        self.compute(id, Operation::Saving, ops, cx);
        true
    }

    /// What members had no space for is in the rows.
    pub(super) fn saved(&mut self, id: RowId, cx: &mut Surroundings<'_>) {
        for id in self.batch_of(id) {
            let row = self.cache.row_mut(id);
            let saved = row.owed.and(row.lent);
            row.uptodate = row.uptodate.or(saved);
            row.lent = row.lent.without(saved);
        }
        self.written(id, cx);
    }

    /// Remembers a row that a member had no space for, forgets one that it has by now. Whether it has
    /// not.
    fn owe(&mut self, id: RowId) -> bool {
        let row = self.cache.row(id);
        let owed = row.owed;
        if owed.is_empty() {
            if !self.owing.is_empty() {
                self.owing.retain(|other| *other != id);
            }
            return false;
        }
        let sector = row.sector(self.cache.height());
        for slot in owed.ascending() {
            self.events.push(Event::NoSpace { slot, sector });
        }
        if !self.owing.contains(&id) {
            self.owing.push(id);
        }
        true
    }

    /// Writes again what members had no space for, row by row.
    pub(crate) fn pay_off(&mut self, cx: &mut Surroundings<'_>) {
        for id in self.owing.clone() {
            let row = self.cache.row_mut(id);
            if row.in_flight > 0 || row.plugged || row.handle {
                continue;
            }
            // A member that failed meanwhile is rebuilt, or not; either way from the others.
            let owed = row.owed.and(cx.membership().present());
            row.owed = owed;
            row.operation = Operation::PayingOff;
            self.stage(id, owed, Some(false), cx.knobs.max_sectors, cx);
            if self.cache.row(id).in_flight == 0 {
                self.paid_off(id, cx);
            }
        }
    }

    /// Whether rows wait for space.
    pub(crate) fn is_owing(&self) -> bool {
        !self.owing.is_empty()
    }

    /// Whether every row that is in use is at rest, but for a deferred write.
    pub(crate) fn only_owe(&self) -> bool {
        let rests = |id: &RowId| {
            let row = self.cache.row(*id);
            row.in_flight == 0 && !row.handle && !row.plugged
        };
        self.owing.len() == self.cache.active() as usize && self.owing.iter().all(rests)
    }

    /// A row has nothing any more that its member could miss.
    pub(crate) fn no_longer_owing(&mut self, id: RowId) {
        self.owing.retain(|other| *other != id);
        self.rest(id);
    }

    pub(super) fn paid_off(&mut self, id: RowId, cx: &mut Surroundings<'_>) {
        let row = self.cache.row_mut(id);
        row.operation = Operation::Idle;
        row.faults = SlotSet::EMPTY;
        row.owed = row.owed.and(cx.membership().present());
        if row.owed.is_empty() {
            self.owing.retain(|other| *other != id);
            if self.owing.is_empty() {
                self.events.push(Event::Written);
            }
        }
        self.rest_or_continue(id);
    }
}

impl Piece {
    /// Zeros instead of its memory: parts of at most one frame, with offsets within the block.
    fn zeros(&self) -> impl Iterator<Item = (Part, u32)> {
        let frame = FRAME_BYTES as u32;
        (0..self.len.div_ceil(frame)).map(move |nth| {
            let len = frame.min(self.len - nth * frame);
            (Part { frame: ZERO_FRAME, offset: 0, len }, self.offset + nth * frame)
        })
    }
}
