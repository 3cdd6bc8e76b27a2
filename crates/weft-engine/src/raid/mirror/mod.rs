//! Mirror: RAID 1 and RAID 10, where each chunk is on several members.
//!
//! A write goes to every copy. A member that fails to write its copy is failed, and the write is
//! answered once the superblocks of the other members record the failure. If the array cannot run
//! without the member, the client gets the error and the member stays in use, as in md; with the
//! knob `fail_last_dev` it is failed, and the array is broken.
//!
//! A read goes to one copy (`read_balance`), and to another copy if the member fails to read it,
//! has bad blocks there or does not answer. Where copies may differ because the array was not
//! stopped cleanly, reads take the first readable copy and wait for its member, so that two reads
//! agree.
//!
//! Source   md-raid.md §5.4 and §5.5

mod mirror_part;
mod read_balance;
mod sync;

use std::collections::VecDeque;
use std::mem;

use weft_units::{ByteRange, Bytes, FRAME_BYTES, MemberIndex, SectorRange, Sectors, Slot, Time};

use self::mirror_part::{CopyIo, MirrorPart};
use self::read_balance::{ReadBalance, Readable};
use self::sync::{COPIES_TO_VOTE, Correction, MirrorSync};
use super::clear::Clears;
use super::personality::{Discards, RaidLevel, Requests, Settings};
use super::straight::{self, StraightPart, Target, Targets};
use super::{Answer, ArrayIo, ArrayView, Cx, Event, PartOutcome, StripeMemory};
use crate::array::membership::{ReadAround, Report};
use crate::array::outbox::{CompletionTarget, JobId};
use crate::array::resync_window::{Pass, Resync};
use crate::contract::error::ReplyError;
use crate::contract::input::{Fault, SyncAction, Value};
use crate::contract::token::RequestId;
use crate::knobs::Knobs;
use crate::layout::Layout;
use crate::layout::mirrors::{Copy, Mirrors};
use crate::layout::slot_set::SlotSet;
use crate::mutant::Mutant;

/// Personality of RAID 1 and RAID 10.
#[derive(Clone, Debug)]
pub(crate) struct Mirror {
    places: Mirrors,
    /// Reads that wait to be repeated on another copy, and writes that wait to be repeated block by
    /// block.
    again: VecDeque<(ArrayIo, StraightPart)>,
    /// Parts among `again` that are writes, each with the member that failed to write its copy.
    to_write_again: Vec<(StraightPart, MemberIndex)>,
    /// Blocks that are being written again, each with the member that failed to write it.
    second_writes: Vec<(StraightPart, MemberIndex)>,
    failed_reads: Vec<FailedRead>,
    clears: Clears,
    /// Slots of members that had no space for a copy and have not been asked to write it again. A
    /// slot moves to [`MirrorSync::unproven`] when a new attempt is made.
    lack_space: SlotSet,
    mirror_sync: MirrorSync,
    balance: ReadBalance,
    events: Vec<Event>,
}

/// Part of a client's read that members failed to read.
#[derive(Clone, Debug)]
struct FailedRead {
    part: StraightPart,
    /// Slot of the member to which the first read of the part was sent, possibly in a member
    /// request that other parts were merged into.
    first: Slot,
    /// Slots of all members that failed to read the part.
    slots: SlotSet,
    /// Whether the part was read from the first member once more, in a member request of its own.
    is_asked_again: bool,
}

impl Mirror {
    pub(crate) fn new(memory: StripeMemory, places: Mirrors) -> Self {
        Self {
            mirror_sync: MirrorSync::new(memory, &places),
            balance: ReadBalance::new(&places),
            places,
            again: VecDeque::new(),
            to_write_again: Vec::new(),
            second_writes: Vec::new(),
            failed_reads: Vec::new(),
            clears: Clears::default(),
            lack_space: SlotSet::EMPTY,
            events: Vec::new(),
        }
    }

    /// Handles the result of writing the copy of `range` on the member at `position`. Returns the
    /// result for the client.
    #[inline]
    fn copy_written(
        &mut self,
        position: Option<usize>,
        range: ByteRange,
        result: Result<(), Fault>,
        cx: &mut Cx<'_>,
    ) -> Result<(), Fault> {
        if result.is_ok() && self.lack_space.is_empty() && self.mirror_sync.unproven.is_empty() {
            return Ok(());
        }
        self.copy_differs(position, range, result, cx)
    }

    /// Slow path of [`Mirror::copy_written`], for a failed write and while some member lacks space.
    /// Returns the result for the client.
    #[cold]
    fn copy_differs(
        &mut self,
        position: Option<usize>,
        range: ByteRange,
        result: Result<(), Fault>,
        cx: &mut Cx<'_>,
    ) -> Result<(), Fault> {
        // A member that failed in the meantime needs no error report.
        let slot = position.and_then(|position| cx.view().slot_of(position));
        let (Some(position), Some(slot)) = (position, slot) else { return Ok(()) };
        let Err(fault) = result else {
            if self.lack_space.contains(slot) || self.mirror_sync.unproven.contains(slot) {
                // The member has space again, so the next lack of space counts as a new one.
                cx.has_space(position);
                self.found_space(slot);
            }
            return Ok(());
        };
        let spare = cx.membership().is_rebuilding(slot);
        if fault == Fault::NoSpace && !spare {
            let sector = range.start.sectors_floor();
            self.lack_space.insert(slot);
            // The resync is recorded here and not when the volume handles the event, because a read
            // that waited for this write may start before then.
            if cx.membership().present().contains(slot) {
                self.falls_behind(slot, cx.view());
                cx.resync_for_space(sector, SlotSet::only(slot));
            }
            self.mirror_sync.unproven.remove(slot);
            self.events.push(Event::NoSpace { slot, sector });
            if !self.is_elsewhere(range, Some(slot), cx.view()) {
                cx.fail_replacement(slot);
            }
            return Err(fault);
        }
        let is_elsewhere = self.is_elsewhere(range, Some(slot), cx.view());
        if fault == Fault::Io && is_elsewhere && self.record_unwritten(slot, range, cx) {
            return Ok(());
        }
        let breaks = cx.view().breaks(position);
        let is_needed = breaks || !(spare || is_elsewhere);
        if !is_needed || fault == Fault::Gone || (breaks && cx.view().fails_last(cx.knobs)) {
            cx.fail_for(position, fault);
        }
        if !is_needed {
            return Ok(());
        }
        // The client gets the error. A member under recovery, or the replacement of this member,
        // may have stored the new data. Such a copy is not in sync and may now differ from the copy
        // in sync, so its member is failed.
        cx.fail_replacement(slot);
        for copy in self.places.copies(range.start.sectors_floor()) {
            if cx.membership().is_rebuilding(copy.slot)
                && let Some(position) = cx.view().position_at(copy.slot)
            {
                cx.fail(position);
            }
        }
        if is_elsewhere {
            self.falls_behind(slot, cx.view());
            cx.copies_may_differ(range.start.sectors_floor());
        }
        Err(fault)
    }

    /// Records the copy of `range` on the member in sync at `slot` as bad blocks, after it failed
    /// to be written. Returns whether the member stays in use. The blocks of a zeroed or synced
    /// range are then rewritten one by one, because the write may have failed for one of them.
    fn record_unwritten(&mut self, slot: Slot, range: ByteRange, cx: &mut Cx<'_>) -> bool {
        let mut copies = self.places.copies_of(range.start.sectors_floor());
        if range.len > copies.left_in_chunk().bytes() {
            // A discard of several chunks.
            return false;
        }
        let Some(copy) = copies.find(|copy| copy.slot == slot) else { return false };
        let sectors = SectorRange { start: copy.sector, len: range.len.sectors_ceil() };
        let recorded = cx.records_unwritten(slot, sectors, false);
        if recorded && range.len > Bytes(FRAME_BYTES) {
            let correction = Correction { slot, replaced: SlotSet::EMPTY };
            self.mirror_sync.correct(correction, range, FRAME_BYTES);
        }
        recorded
    }

    /// Whether an in-sync member other than the one at `slot` has a valid copy of `range`. For a
    /// discard of several chunks, only the first chunk is checked.
    fn is_elsewhere(&self, range: ByteRange, slot: Option<Slot>, array: ArrayView<'_>) -> bool {
        let others = self.places.copies_of(range.start.sectors_floor());
        let len = range.len.sectors_ceil().min(others.left_in_chunk());
        let is_valid = |copy: Copy| {
            let sectors = SectorRange { start: copy.sector, len };
            array.membership().readable(sectors, ReadAround::Never).contains(copy.slot)
        };
        others.filter(|copy| Some(copy.slot) != slot).any(is_valid)
    }

    /// Records that the member at `slot` missed data that other members have. While lack of space
    /// is the only reason why copies may differ, clients read from a member that has missed no data
    /// and a resync copies from that member, because a read may already have returned the data that
    /// was being written.
    fn falls_behind(&mut self, slot: Slot, array: ArrayView<'_>) {
        let behind = &mut self.mirror_sync.behind;
        if array.membership().resync_from.is_none() {
            *behind = SlotSet::EMPTY;
        } else if !array.resyncs_only_for_space() {
            return;
        }
        let others = array.membership().present().without(*behind).without(SlotSet::only(slot));
        if !others.is_empty() {
            behind.insert(slot);
        }
    }

    /// Records that the member at `slot`, which had run out of space, wrote a copy and so has space
    /// again.
    fn found_space(&mut self, slot: Slot) {
        self.lack_space.remove(slot);
        self.mirror_sync.unproven.remove(slot);
        if self.lack_space.is_empty() && self.mirror_sync.unproven.is_empty() {
            self.events.push(Event::Written);
        }
    }

    fn clear_done(&mut self, request: RequestId, result: Result<(), Fault>, cx: &mut Cx<'_>) {
        let targets = |range, array: ArrayView<'_>| targets(&self.places, range, array);
        self.clears.done(request, result, targets, &mut self.events, cx);
    }

    /// Handles a copy of `range` that was written to a member: the member's record of bad blocks in
    /// the range is cleared.
    #[cold]
    fn written_over(&self, range: ByteRange, answer: Answer, cx: &mut Cx<'_>) {
        if answer.result.is_err() || answer.pins {
            return;
        }
        for copy in self.places.copies(range.start.sectors_floor()) {
            if answer.member.is_some() && cx.membership().member_at(copy.slot) == answer.member {
                let sectors = SectorRange::new(copy.sector.0, range.len.sectors_floor().0);
                cx.written_over(answer.member, sectors);
            }
        }
    }

    /// Handles the answer to a write of one copy of a part of a client's write, or the end of a
    /// write that was given up. Returns the consequence for the client's request.
    fn part_written(&mut self, part: StraightPart, answer: Answer, cx: &mut Cx<'_>) -> PartOutcome {
        let request = part.request;
        let is_second = !self.second_writes.is_empty() && self.is_second_write(part, answer);
        if answer.result == Err(Fault::Io) && !is_second && self.is_to_write_again(part, answer, cx)
        {
            return PartOutcome::ToRepeat { part, asked: true };
        }
        if !cx.membership().with_bad().is_empty() {
            self.written_over(range_of(part), answer, cx);
        }
        let position = answer.member.and_then(|member| cx.view().position_of(member));
        let result = self.copy_written(position, range_of(part), answer.result, cx);
        if self.clears.has(request) {
            if answer.pins {
                self.events.push(Event::Pinned { request });
            }
            self.clear_done(request, result, cx);
            return PartOutcome::Nothing;
        }
        if cx.is_planted(Mutant::AckBeforeAllCopies) {
            let targets = targets(&self.places, range_of(part), cx.view());
            if targets.first().map(|target| target.position) != position {
                return PartOutcome::Nothing;
            }
        }
        match result {
            Ok(()) if answer.pins => PartOutcome::WriteGivenUp(request),
            Ok(()) => PartOutcome::Done(request),
            Err(fault) => PartOutcome::Failed(request, fault.into()),
        }
    }

    /// Whether a part of a write is the second attempt at a block. The attempt is then removed from
    /// `second_writes`.
    #[cold]
    fn is_second_write(&mut self, part: StraightPart, answer: Answer) -> bool {
        let before = self.second_writes.len();
        let same = |member| answer.member.is_none_or(|it| it == member);
        self.second_writes.retain(|(of, member)| *of != part || !same(*member));
        self.second_writes.len() < before
    }

    /// Whether the failed write of a copy is repeated block by block, because only one of the
    /// blocks of the member request may have failed.
    #[cold]
    fn is_to_write_again(&mut self, part: StraightPart, answer: Answer, cx: &Cx<'_>) -> bool {
        let position = answer.member.and_then(|member| cx.view().position_of(member));
        let slot = position.and_then(|position| cx.view().slot_of(position));
        let records = slot.is_some_and(|slot| cx.membership().records_unwritten(slot));
        let again = records && !answer.pins && !self.clears.has(part.request);
        if let Some(member) = answer.member.filter(|_| again) {
            self.to_write_again.push((part, member));
        }
        again
    }

    /// Repeats the failed write of a copy, with one member request for each block. Returns the
    /// number of sub-requests.
    #[cold]
    fn write_again(&mut self, io: &ArrayIo, part: StraightPart, cx: &mut Cx<'_>) -> u32 {
        let place = self.to_write_again.iter().position(|(of, _)| *of == part);
        let place = place.expect("a write that is repeated has failed");
        let (_, member) = self.to_write_again.swap_remove(place);
        let range = range_of(part);
        let position = cx.view().position_of(member);
        let slot = position.and_then(|position| cx.view().slot_of(position));
        let mut copies = self.places.copies_of(range.start.sectors_floor());
        let copy = copies.find(|copy| slot == Some(copy.slot));
        let (Some(position), Some(copy)) = (position, copy) else {
            // The member has failed meanwhile.
            if !self.is_elsewhere(range, None, cx.view()) {
                let (request, result) = (part.request, Err(ReplyError::Io));
                self.events.push(Event::SubRequestsDone { request, sub_requests: 0, result });
            }
            return 0;
        };
        let (mut start, mut sub_requests) = (range.start.0, 0);
        while start < range.end().0 {
            let to = ((start / FRAME_BYTES + 1) * FRAME_BYTES).min(range.end().0);
            let here = ByteRange::new(start, to - start);
            let sector = copy.sector + (here.start - range.start).sectors_floor();
            let target = Target { position, sector, range: here };
            straight::send(io, &target, &[straight::memory(io, here)], here.len, cx);
            let block =
                StraightPart { request: part.request, start: here.start, len: here.len.0 as u32 };
            self.second_writes.push((block, member));
            (start, sub_requests) = (to, sub_requests + 1);
        }
        sub_requests
    }

    /// Shortens a range where copies may differ, so that it ends at the first recovery offset, or
    /// the first start or end of bad blocks, within it. Two reads on the same side of such a point
    /// agree, because both take the first copy; a read across it would take another copy.
    #[cold]
    fn up_to_change(&self, range: ByteRange, array: ArrayView<'_>) -> ByteRange {
        if self.around(range, array) == ReadAround::Always {
            return range;
        }
        let left = |copy: Copy| {
            let end = array.membership().recovery_offset(copy.slot)?;
            (end > copy.sector).then(|| (end - copy.sector).bytes())
        };
        let copies = self.places.copies_of(range.start.sectors_floor());
        let len = copies.filter_map(left).fold(range.len, Bytes::min);
        self.up_to_bad(ByteRange { len, ..range }, array)
    }

    /// Shortens a range within one chunk, so that it ends at the first start or end of bad blocks
    /// of a copy within it. Each copy then has all of the range or none of it.
    #[cold]
    fn up_to_bad(&self, range: ByteRange, array: ArrayView<'_>) -> ByteRange {
        let left = |copy: Copy| {
            let sectors = SectorRange::new(copy.sector.0, range.len.sectors_ceil().0);
            let bad = array.membership().bad_in(copy.slot, sectors)?;
            let end = if bad.start > copy.sector { bad.start } else { bad.end() };
            Some((end - copy.sector).bytes())
        };
        let copies = self.places.copies_of(range.start.sectors_floor());
        let len = copies.filter_map(left).fold(range.len, Bytes::min);
        ByteRange { len, ..range }
    }

    /// Reads a range within one chunk from a copy. If no member has all of it, only the part up to
    /// the first start or end of bad blocks is read. Returns the range that is being read; the
    /// error is the part that no member has.
    fn read_beginning(
        &mut self,
        io: &ArrayIo,
        range: ByteRange,
        max: Bytes,
        cx: &mut Cx<'_>,
    ) -> Result<ByteRange, ByteRange> {
        if self.read_copy(io, range, SlotSet::EMPTY, max, cx) {
            return Ok(range);
        }
        let beginning = self.up_to_bad(range, cx.view());
        let shorter = beginning.len < range.len;
        if shorter && self.read_copy(io, beginning, SlotSet::EMPTY, max, cx) {
            return Ok(beginning);
        }
        Err(beginning)
    }

    /// Reads a range from a copy on a member at a slot outside `asked`. The outbox may merge the
    /// read with others up to `max` bytes. Returns whether there is such a copy.
    fn read_copy(
        &mut self,
        io: &ArrayIo,
        range: ByteRange,
        asked: SlotSet,
        max: Bytes,
        cx: &mut Cx<'_>,
    ) -> bool {
        let mut chosen = None;
        if self.around(range, cx.view()) == ReadAround::Always {
            let copies = self.readable(range, asked, ReadAround::Always, cx.view());
            chosen = self.balance.choose(copies);
        }
        // Where copies may differ, two reads agree because both take the first copy. Elsewhere, the
        // read waits for a stalled member if no other has the data.
        let chosen = chosen.or_else(|| self.first(range, asked, cx.view()));
        let Some(Readable { position, slot, sector, .. }) = chosen else { return false };
        self.balance.on_read(slot, sector + range.len.sectors_floor());
        let target = Target { position, sector, range };
        straight::send(io, &target, &[straight::memory(io, range)], max, cx);
        true
    }

    /// Copies of a range that can be read, on members outside `asked`, in md's order. A copy on a
    /// stalled member is left out if `around` allows another copy to be read in its place.
    #[inline]
    fn readable<'a>(
        &'a self,
        range: ByteRange,
        asked: SlotSet,
        around: ReadAround,
        array: ArrayView<'a>,
    ) -> impl Iterator<Item = Readable> + use<'a> {
        let readable = move |copy: Copy| {
            let sectors = SectorRange::new(copy.sector.0, range.len.sectors_floor().0);
            let readable = array.membership().readable(sectors, around).without(asked);
            let position = array.position_at(copy.slot).filter(|_| readable.contains(copy.slot))?;
            let member = array.read_state(position);
            let answers = around != ReadAround::Always || !member.stalled;
            answers.then(|| Readable::new(copy, position, member))
        };
        self.places.copies_of(range.start.sectors_floor()).filter_map(readable)
    }

    /// The first readable copy outside `asked`, even if its member is stalled. Copies on members
    /// that missed data come last. `None` if no copy can be read.
    fn first(&self, range: ByteRange, asked: SlotSet, array: ArrayView<'_>) -> Option<Readable> {
        let copies = self.readable(range, asked, ReadAround::Never, array);
        if array.is_planted(Mutant::MirrorReadUnsynced) {
            return copies.last();
        }
        copies.min_by_key(|copy| self.mirror_sync.behind.contains(copy.slot))
    }

    /// Whether another copy of a range may be read in place of the copy on a stalled member. Where
    /// copies may differ, no other copy may be read, because two reads would return different data.
    /// `resync_from` counts sectors of the array here.
    fn around(&self, range: ByteRange, array: ArrayView<'_>) -> ReadAround {
        let from = array.membership().resync_from;
        let checked = from.is_none_or(|from| range.end() <= from.bytes());
        if checked { ReadAround::Always } else { ReadAround::Never }
    }

    /// Reads `part`, which a member failed to read, from the next copy. Where copies may differ,
    /// the next copy supplies only the blocks that the first copy cannot; where no member has the
    /// whole part, each section may come from another member. Returns the number of sub-requests.
    fn read_rest(&mut self, io: &ArrayIo, part: StraightPart, cx: &mut Cx<'_>) -> u32 {
        let failed = self.failed_reads.iter().position(|read| read.part == part);
        let asked = failed.map_or(SlotSet::EMPTY, |at| self.failed_reads[at].slots);
        let range = range_of(part);
        let agree = self.around(range, cx.view()) == ReadAround::Always;
        let unit = if agree { FRAME_BYTES } else { cx.view().request_unit().0 };
        let splits = failed.is_some() && range.len > Bytes(unit);
        if splits && !agree {
            return self.read_in_parts(io, part, unit, cx);
        }
        // The read is not merged with its neighbours, because they would fail with it again.
        if self.read_copy(io, range, asked, range.len, cx) {
            return 1;
        }
        if splits {
            return self.read_in_parts(io, part, unit, cx);
        }
        // The first read of the part may have failed only because of neighbours that it was merged
        // with.
        if let Some(at) = failed {
            let read = &mut self.failed_reads[at];
            let others = asked.without(SlotSet::only(read.first));
            let was_asked = mem::replace(&mut read.is_asked_again, true);
            if !was_asked && self.read_copy(io, range, others, range.len, cx) {
                return 1;
            }
            self.failed_reads.swap_remove(at);
        }
        let (request, result) = (part.request, Err(ReplyError::Io));
        self.events.push(Event::SubRequestsDone { request, sub_requests: 0, result });
        0
    }

    /// Reads a part of a client's read again in sections that end at multiples of `unit` bytes, so
    /// that each may come from another copy. Returns the number of sections that are being read.
    fn read_in_parts(
        &mut self,
        io: &ArrayIo,
        part: StraightPart,
        unit: u64,
        cx: &mut Cx<'_>,
    ) -> u32 {
        self.failed_reads.retain(|read| read.part != part);
        let range = range_of(part);
        let most = (range.len.0 / SPLIT_INTO).next_multiple_of(unit);
        let (mut start, end) = (range.start.0, range.end().0);
        let mut sub_requests = 0;
        while start < end {
            let to = ((start / unit * unit) + most).min(end);
            let here = ByteRange::new(start, to - start);
            let read = self.read_beginning(io, here, here.len, cx);
            if read.is_ok() {
                sub_requests += 1;
            } else {
                let (request, result) = (part.request, Err(ReplyError::Io));
                self.events.push(Event::SubRequestsDone { request, sub_requests: 0, result });
            }
            start = read.unwrap_or_else(|none| none).end().0;
        }
        sub_requests
    }

    /// Notes that the member at `slot` failed to read a part.
    fn read_failed(&mut self, part: StraightPart, slot: Slot) {
        let known = self.failed_reads.iter_mut().find(|read| read.part == part);
        match known {
            Some(read) => read.slots.insert(slot),
            None => {
                let (first, slots) = (slot, SlotSet::only(slot));
                self.failed_reads.push(FailedRead { part, first, slots, is_asked_again: false });
            }
        }
    }

    /// Begins to correct the copies that members failed to read, now that the copy at slot `read`
    /// has been read. The range is rounded out to blocks of 4 KiB, the sector size of many drives,
    /// except where copies may differ: there the copy that was read replaces the others, so that a
    /// later read finds the same.
    fn read_elsewhere(&mut self, part: StraightPart, read: Option<Slot>, array: ArrayView<'_>) {
        let Some(at) = self.failed_reads.iter().position(|read| read.part == part) else { return };
        let mut slots = self.failed_reads.swap_remove(at).slots;
        if let Some(read) = read {
            slots.remove(read);
        }
        let (mut range, most) = (range_of(part), self.mirror_sync.part_bytes());
        let mut replaced = slots;
        if self.around(range, array) == ReadAround::Always {
            let start = range.start.0 / FRAME_BYTES * FRAME_BYTES;
            range = ByteRange::new(start, range.end().0.next_multiple_of(FRAME_BYTES) - start);
            replaced = SlotSet::EMPTY;
        }
        for slot in slots.ascending() {
            self.mirror_sync.correct(Correction { slot, replaced }, range, most);
        }
    }

    /// Handles a member's answer for a copy of a sync or correction.
    fn copy_done(&mut self, io: CopyIo, answer: Answer, cx: &mut Cx<'_>) {
        if answer.write {
            let position = answer.member.and_then(|member| cx.view().position_of(member));
            let range = self.mirror_sync.range_of(io);
            if !cx.membership().with_bad().is_empty() {
                self.written_over(range, answer, cx);
            }
            let result = self.copy_written(position, range, answer.result, cx);
            if result.is_err_and(|fault| fault != Fault::NoSpace) {
                self.mirror_sync.write_failed(io.place);
            }
        }
        self.mirror_sync.answered(io, answer, self.places.level(), &mut self.events, cx);
    }
}

impl Requests for Mirror {
    /// Member position and data sector for a read that passes to a member unchanged: a read within
    /// one chunk, where copies are equal, while every member is readable. A read that continues the
    /// last read of its member does not pass, so that both can be merged. `None` for all other
    /// requests.
    #[inline]
    fn passes(
        &mut self,
        range: ByteRange,
        writes: bool,
        is_written: impl FnOnce() -> bool,
        array: ArrayView<'_>,
    ) -> Option<(usize, Sectors)> {
        if writes || is_written() {
            return None;
        }
        let is_whole = array.membership().is_whole_and_answers();
        let agree = is_whole && self.around(range, array) == ReadAround::Always;
        let copies = self.places.copies_of(range.start.sectors_floor());
        if !agree || range.len > copies.left_in_chunk().bytes() {
            return None;
        }
        let readable = |copy: Copy| {
            let position = array.position_at(copy.slot).expect("every slot has a member");
            Readable::new(copy, position, array.read_state(position))
        };
        let Readable { position, slot, sector, .. } = self.balance.choose(copies.map(readable))?;
        if self.balance.follows(slot, sector) || !array.passes(position) {
            return None;
        }
        self.balance.on_read(slot, sector + range.len.sectors_floor());
        Some((position, sector))
    }

    fn has_copies(&self) -> bool {
        true
    }

    /// Sends a read to its members, chunk by chunk. Returns the number of sub-requests; never
    /// `None`.
    #[inline]
    fn read_straight(&mut self, io: &ArrayIo, cx: &mut Cx<'_>) -> Option<u64> {
        let (mut start, end) = (io.range.start.0, io.range.end().0);
        let mut sub_requests = 0;
        while start < end {
            let sector = Bytes(start).sectors_floor();
            let to = (sector + self.places.left_in_chunk(sector)).bytes().0.min(end);
            sub_requests += 1;
            let (mut here, max) = (ByteRange::new(start, to - start), cx.knobs.max_sectors);
            if !cx.membership().is_whole() || !cx.membership().with_bad().is_empty() {
                here = self.up_to_change(here, cx.view());
            }
            let read = self.read_beginning(io, here, max, cx);
            if read.is_err() {
                let (request, result) = (io.id, Err(ReplyError::Io));
                self.events.push(Event::SubRequestsDone { request, sub_requests: 1, result });
            }
            start = read.unwrap_or_else(|none| none).end().0;
        }
        Some(sub_requests)
    }

    /// Sends a write to every copy of its range, or begins to carry out a write-zeroes or trim.
    /// Returns the number of sub-requests.
    #[inline]
    fn submit(&mut self, io: &ArrayIo, cx: &mut Cx<'_>) -> u64 {
        assert!(io.writes, "a read goes to its member at once");
        if io.zeroes() || io.discarded.is_some() {
            let targets = |range, array: ArrayView<'_>| targets(&self.places, range, array);
            self.clears.begin(io, targets, &mut self.events, cx);
            return 1;
        }
        let (mut start, end, mut sub_requests) = (io.range.start, io.range.end(), 0);
        while start < end {
            let (range, copies) = in_chunk(&self.places, start, end, cx.view());
            let memory = straight::memory(io, range);
            for copy in copies {
                let Some(position) = cx.view().position_at(copy.slot) else { continue };
                let target = Target { position, sector: copy.sector, range };
                straight::send(io, &target, &[memory], cx.knobs.max_sectors, cx);
                sub_requests += 1;
            }
            start = range.end();
        }
        if cx.membership().broken {
            let (request, result) = (io.id, Err(ReplyError::Io));
            self.events.push(Event::SubRequestsDone { request, sub_requests: 1, result });
            sub_requests += 1;
        }
        if cx.is_planted(Mutant::AckBeforeAllCopies) {
            let targets = targets(&self.places, io.range, cx.view());
            let first = |at: usize| at == 0 || targets[at - 1].range != targets[at].range;
            return (0..targets.len()).filter(|at| first(*at)).count() as u64;
        }
        sub_requests
    }

    fn repeat(&mut self, part: StraightPart, io: &ArrayIo, _: bool) {
        self.again.push_back((*io, part));
    }

    /// Repeats queued reads on other copies and queued writes block by block, and begins waiting
    /// syncs and corrections of ranges.
    #[inline]
    fn split_waiting(&mut self, _: bool, cx: &mut Cx<'_>) {
        while let Some((io, part)) = self.again.pop_front() {
            let sub_requests = if io.writes {
                self.write_again(&io, part, cx)
            } else {
                self.read_rest(&io, part, cx)
            };
            let (request, whole) = (part.request, false);
            self.events.push(Event::Split { request, sub_requests, whole });
        }
        self.mirror_sync.begin_waiting(&self.places, cx.view(), &mut self.events);
    }

    fn is_quiet(&self) -> bool {
        self.again.is_empty()
            && self.to_write_again.is_empty()
            && self.failed_reads.is_empty()
            && self.lack_space.is_empty()
            && self.mirror_sync.is_quiet()
    }
}

impl Discards for Mirror {
    fn discard_done(
        &mut self,
        request: RequestId,
        position: Option<usize>,
        result: Result<(), Fault>,
        cx: &mut Cx<'_>,
    ) {
        let range = self.clears.step_of(request);
        let result = self.copy_written(position, range, result, cx);
        self.clear_done(request, result, cx);
    }
}

impl Settings for Mirror {
    fn resize(&mut self, layout: &Layout) {
        let Layout::Mirrors(places) = layout else { panic!("mirrors stay mirrors") };
        self.places = places.clone();
        self.mirror_sync.resize(places);
        self.balance = ReadBalance::new(places);
    }
}

impl RaidLevel for Mirror {
    /// Counts a read error of a member, or fails the member if the fault means that it is gone.
    fn read_failed(
        &mut self,
        _: CompletionTarget,
        position: Option<usize>,
        fault: Fault,
        cx: &mut Cx<'_>,
    ) {
        let Some(position) = position else { return };
        match cx.view().slot_of(position) {
            _ if fault == Fault::Gone => cx.lose(position),
            Some(slot) => cx.report(Report::ReadFailed { slot, most: READ_ERRORS_MAX }),
            None => {}
        }
    }

    #[inline(always)]
    fn part_done(
        &mut self,
        part: CompletionTarget,
        answer: Answer,
        cx: &mut Cx<'_>,
    ) -> PartOutcome {
        let part = match MirrorPart::of(part) {
            MirrorPart::Straight(part) => part,
            MirrorPart::Copy(part) => {
                self.copy_done(part, answer, cx);
                return PartOutcome::Nothing;
            }
        };
        if answer.write {
            return self.part_written(part, answer, cx);
        }
        if answer.given_up {
            return PartOutcome::GivenUp(part.request);
        }
        if answer.result.is_ok() && self.failed_reads.is_empty() {
            return PartOutcome::Done(part.request);
        }
        // A member that failed meanwhile has no slot, and is not asked again anyway.
        let position = answer.member.and_then(|member| cx.view().position_of(member));
        let slot = position.and_then(|position| cx.view().slot_of(position));
        if answer.result.is_ok() {
            self.read_elsewhere(part, slot, cx.view());
            return PartOutcome::Done(part.request);
        }
        if let Some(slot) = slot {
            self.read_failed(part, slot);
        }
        PartOutcome::ToRepeat { part, asked: answer.member.is_some() }
    }

    fn part_freed(&mut self, part: CompletionTarget) -> Option<RequestId> {
        match MirrorPart::of(part) {
            MirrorPart::Copy(part) => {
                self.mirror_sync.freed(part);
                None
            }
            MirrorPart::Straight(part) => Some(part.request),
        }
    }

    fn compute_done(&mut self, job: JobId, value: &Result<Value, Fault>, cx: &mut Cx<'_>) {
        self.mirror_sync.compared(job, value, self.places.level(), &mut self.events, cx);
    }

    #[inline]
    fn events(&mut self) -> &mut Vec<Event> {
        &mut self.events
    }

    fn gains_by_giving_up(&self, part: CompletionTarget, array: ArrayView<'_>) -> bool {
        let Some(part) = StraightPart::of(part) else { return false };
        let range = range_of(part);
        match self.around(range, array) {
            ReadAround::Always => {
                self.readable(range, SlotSet::EMPTY, ReadAround::Always, array).next().is_some()
            }
            ReadAround::Never | ReadAround::WhereChecked => self
                .first(range, SlotSet::EMPTY, array)
                .is_some_and(|copy| !array.read_state(copy.position).stalled),
        }
    }

    fn has_work(&self, _: bool, _: Option<&Resync>, _: (ArrayView<'_>, &Knobs), _: Time) -> bool {
        !self.again.is_empty() || self.mirror_sync.has_waiting()
    }

    fn locates(&self) -> bool {
        usize::from(self.places.copies_per_chunk()) >= COPIES_TO_VOTE
    }

    fn resync_pass(&self, action: SyncAction, array: ArrayView<'_>, _: &Knobs) -> Pass {
        sync::pass(action, &self.places, array)
    }

    fn feed(&mut self, sync: &mut Resync, array: ArrayView<'_>) {
        self.mirror_sync.feed(sync, &self.places, array, &mut self.events);
    }

    fn would_feed(&self, sync: &Resync) -> bool {
        self.mirror_sync.would_feed(sync)
    }

    fn locked(&mut self, part: u32, request: RequestId, cx: &mut Cx<'_>) {
        self.mirror_sync.locked(part, request, self.places.level(), &mut self.events, cx);
    }

    fn has_deferred(&self) -> bool {
        !self.lack_space.is_empty()
    }

    /// Marks the members that had no space as unproven, and lets a resync write the copies that
    /// they missed. The resync thereby finds out whether they have space now.
    fn write_deferred(&mut self, cx: &mut Cx<'_>) {
        if cx.is_planted(Mutant::LackForgotten) {
            self.lack_space = SlotSet::EMPTY;
            return;
        }
        let present = cx.membership().present();
        self.mirror_sync.unproven = self.mirror_sync.unproven.or(self.lack_space).and(present);
        self.lack_space = SlotSet::EMPTY;
        if self.mirror_sync.unproven.is_empty() {
            self.events.push(Event::Written);
        }
    }

    fn is_unproven(&self) -> bool {
        !self.mirror_sync.unproven.is_empty()
    }
}

fn range_of(part: StraightPart) -> ByteRange {
    ByteRange::new(part.start.0, part.len.into())
}

/// Members that hold copies of a range, chunk by chunk: all copies of the first chunk, then those
/// of the next.
fn targets(places: &Mirrors, range: ByteRange, array: ArrayView<'_>) -> Targets {
    let (mut start, end) = (range.start, range.end());
    let mut targets = Targets::new();
    while start < end {
        let (range, copies) = in_chunk(places, start, end, array);
        for copy in copies {
            let Some(position) = array.position_at(copy.slot) else { continue };
            targets.push(Target { position, sector: copy.sector, range });
        }
        start = range.end();
    }
    targets
}

/// Part of the range `start .. end` that lies in the chunk of its first byte, and the copies to
/// which a write of it goes.
#[inline]
fn in_chunk<'a>(
    places: &'a Mirrors,
    start: Bytes,
    end: Bytes,
    array: ArrayView<'_>,
) -> (ByteRange, impl Iterator<Item = Copy> + use<'a>) {
    let (sector, is_planted) = (start.sectors_floor(), array.is_planted(Mutant::CopyOnWrongMember));
    let copies = places.copies_of(sector);
    let len = copies.left_in_chunk().bytes().min(Bytes(end.0 - start.0));
    let move_last = move |copy| if is_planted { misplaced(places, sector, copy) } else { copy };
    (ByteRange { start, len }, copies.map(move_last))
}

/// Moves a copy for a planted bug: the last copy of a sector goes to the next member if it lies at
/// another sector than the first copy. Other copies stay.
#[cold]
fn misplaced(places: &Mirrors, sector: Sectors, copy: Copy) -> Copy {
    let copies = places.copies(sector);
    let is_last = copies.last() == Some(&copy) && copies[0].sector != copy.sector;
    let slot = if is_last { (copy.slot.0 + 1) % places.members() } else { copy.slot.0 };
    Copy { slot: Slot(slot), ..copy }
}

/// Number of sections into which a part of a read is divided if no member can read all of it.
const SPLIT_INTO: u64 = 8;

/// Number of consecutive read errors after which a member is failed, if the array can run without
/// it.
///
/// Source   md's `max_read_errors`, which halves the count every hour instead
const READ_ERRORS_MAX: u32 = 20;

#[cfg(test)]
mod tests;
