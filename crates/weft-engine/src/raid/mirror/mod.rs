//! Mirror: RAID 1 and RAID 10, where each chunk is on several members.
//!
//! A write goes to every copy. A member that fails to write its copy is failed, and the write is
//! answered once the superblocks of the others record that. If the array cannot do without the
//! member, the client gets the error and the member stays in use, as in md.
//!
//! A read goes to one copy (`read_balance`), and to another one if the member fails to read it, has
//! bad blocks there or does not answer. Where copies may differ because the array was not stopped,
//! reads take the first copy that can be read, and wait for it, so that two reads agree.
//!
//! Source   md-raid.md §5.4 and §5.5

mod read_balance;
mod sync;

use std::collections::VecDeque;

use weft_units::{ByteRange, Bytes, FRAME_BYTES, SectorRange, Sectors, Slot, VolumeId};

use self::read_balance::{ReadBalance, Readable};
use self::sync::Copier;
use super::clear::Clears;
use super::straight::{self, Target, Targets};
use super::{Answer, ArrayIo, Cx, Event, StripeMemory, Told};
use crate::array::Array;
use crate::array::membership::{Around, Report};
use crate::array::outbox::{CopyIo, JobId, StraightPart, Who};
use crate::array::resync_window::{Pass, Resync};
use crate::contract::error::ReplyError;
use crate::contract::input::{Fault, SyncAction, Value};
use crate::contract::token::RequestId;
use crate::layout::mirrors::{Copy, Mirrors};
use crate::layout::slot_set::SlotSet;
use crate::mutant::Mutant;

/// Personality of RAID 1 and RAID 10.
#[derive(Clone, Debug)]
pub(crate) struct Mirror {
    places: Mirrors,
    /// Reads that are repeated on another copy.
    again: VecDeque<(ArrayIo, StraightPart)>,
    /// Members that failed to read a part, by that part.
    asked: Vec<(StraightPart, SlotSet)>,
    clears: Clears,
    /// Members that had no space for a copy a moment ago, and have written none since. Later they
    /// are [`Copier::unproven`].
    lack_space: SlotSet,
    copier: Copier,
    balance: ReadBalance,
    events: Vec<Event>,
}

impl Mirror {
    pub(crate) fn new(volume: VolumeId, memory: StripeMemory, places: Mirrors) -> Self {
        Self {
            copier: Copier::new(volume, memory, &places),
            balance: ReadBalance::new(&places),
            places,
            again: VecDeque::new(),
            asked: Vec::new(),
            clears: Clears::default(),
            lack_space: SlotSet::EMPTY,
            events: Vec::new(),
        }
    }

    // Writes.

    /// See [`super::Personality::submit`]: a write to every copy.
    pub(crate) fn submit(&mut self, io: &ArrayIo, cx: &mut Cx<'_>) -> u64 {
        assert!(io.writes, "a read goes to its member at once");
        if io.zeroes || io.discarded.is_some() {
            let targets = |range, array: &Array| targets(&self.places, range, array);
            self.clears.begin(io, targets, &mut self.events, cx);
            return 1;
        }
        let (mut start, end, mut sub_requests) = (io.range.start, io.range.end(), 0);
        while start < end {
            let range = in_chunk(&self.places, start, end);
            let memory = straight::memory(io, range);
            for copy in copies_written(&self.places, start.sectors_floor(), cx.array) {
                let Some(position) = cx.array.position_at(copy.slot) else { continue };
                let target = Target { position, sector: copy.sector, range };
                straight::send(io, &target, &[memory], cx.knobs.max_sectors, cx);
                sub_requests += 1;
            }
            start = range.end();
        }
        if cx.membership().broken {
            // Some of the range has no copy left.
            let (request, result) = (io.id, Err(ReplyError::Io));
            self.events.push(Event::SubRequestsDone { request, sub_requests: 1, result });
            sub_requests += 1;
        }
        if cx.is_planted(Mutant::AckBeforeAllCopies) {
            let targets = targets(&self.places, io.range, cx.array);
            let first = |at: usize| at == 0 || targets[at - 1].range != targets[at].range;
            return (0..targets.len()).filter(|at| first(*at)).count() as u64;
        }
        sub_requests
    }

    /// Handles a member's answer for the write of its copy of a range.
    #[inline]
    fn copy_written(
        &mut self,
        position: Option<usize>,
        range: ByteRange,
        result: Result<(), Fault>,
        cx: &mut Cx<'_>,
    ) -> Result<(), Fault> {
        if result.is_ok() && self.lack_space.is_empty() && self.copier.unproven.is_empty() {
            return Ok(());
        }
        self.copy_differs(position, range, result, cx)
    }

    /// Like [`Mirror::copy_written`], if the copy was not written or some member lacks space.
    #[cold]
    fn copy_differs(
        &mut self,
        position: Option<usize>,
        range: ByteRange,
        result: Result<(), Fault>,
        cx: &mut Cx<'_>,
    ) -> Result<(), Fault> {
        // A member that failed in the meantime needs no error report.
        let slot = position.and_then(|position| cx.array.members[position].slot);
        let (Some(position), Some(slot)) = (position, slot) else { return Ok(()) };
        let Err(fault) = result else {
            if self.lack_space.contains(slot) || self.copier.unproven.contains(slot) {
                // A later lack of space is a new one.
                cx.array.members[position].full_since = None;
                self.found_space(slot);
            }
            return Ok(());
        };
        let spare = cx.membership().is_rebuilding(slot);
        if fault == Fault::NoSpace && !spare {
            let sector = range.start.sectors_floor();
            self.lack_space.insert(slot);
            // At once: a read that waited for this write goes out before the volume sees the event.
            if cx.membership().present().contains(slot) {
                self.falls_behind(slot, cx.array);
                cx.array.resync_for_space(sector, false);
            }
            self.copier.unproven.remove(slot);
            self.events.push(Event::NoSpace { slot, sector });
            return Err(fault);
        }
        let is_needed = cx.array.breaks(position);
        if !is_needed || fault == Fault::Gone {
            cx.array.fail_for(position, fault, cx.out);
        }
        if !is_needed {
            return Ok(());
        }
        // The error goes to the client. A copy on a member that is being rebuilt does not count,
        // and may now differ from the copy that counts: that member fails.
        for copy in self.places.copies(range.start.sectors_floor()) {
            if cx.membership().is_rebuilding(copy.slot)
                && let Some(position) = cx.array.position_at(copy.slot)
            {
                cx.array.fail(position, cx.out);
            }
        }
        if self.is_elsewhere(range, slot, cx.array) {
            self.falls_behind(slot, cx.array);
            cx.array.copies_may_differ(range.start.sectors_floor());
        }
        Err(fault)
    }

    /// Whether a member in sync, other than the one at `slot`, has a copy of a range within a
    /// chunk.
    fn is_elsewhere(&self, range: ByteRange, slot: Slot, array: &Array) -> bool {
        let others = self.places.copies_of(range.start.sectors_floor());
        let in_sync = |copy: Copy| {
            let end = copy.sector + range.len.sectors_ceil();
            array.membership.in_sync(end).contains(copy.slot)
        };
        others.filter(|copy| copy.slot != slot).any(in_sync)
    }

    /// Notes that a member lacks data that others have. If copies may differ only for this reason,
    /// clients read from a member that lacks nothing, and a resync copies from it: a read may have
    /// seen the data that was being written.
    fn falls_behind(&mut self, slot: Slot, array: &Array) {
        let behind = &mut self.copier.behind;
        if array.membership.resync_from.is_none() {
            *behind = SlotSet::EMPTY;
        } else if !array.resyncs_only_for_space() {
            return;
        }
        let others = array.membership.present().without(*behind).without(SlotSet::only(slot));
        if !others.is_empty() {
            behind.insert(slot);
        }
    }

    /// Notes that a member which had no space has written a copy, so it has some.
    fn found_space(&mut self, slot: Slot) {
        self.lack_space.remove(slot);
        self.copier.unproven.remove(slot);
        if self.lack_space.is_empty() && self.copier.unproven.is_empty() {
            self.events.push(Event::Written);
        }
    }

    /// See [`super::Personality::discard_done`].
    pub(crate) fn discard_done(
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

    fn clear_done(&mut self, request: RequestId, result: Result<(), Fault>, cx: &mut Cx<'_>) {
        let targets = |range, array: &Array| targets(&self.places, range, array);
        self.clears.done(request, result, targets, &mut self.events, cx);
    }

    /// Handles a part of a write that is done, or was given up.
    fn part_written(&mut self, part: StraightPart, answer: Answer, cx: &mut Cx<'_>) -> Told {
        let request = part.request;
        let position = answer.member.and_then(|member| cx.array.position_of(member));
        let result = self.copy_written(position, range_of(part), answer.result, cx);
        if self.clears.has(request) {
            if answer.given_up {
                self.events.push(Event::Pinned { request });
            }
            self.clear_done(request, result, cx);
            return Told::Nothing;
        }
        if cx.is_planted(Mutant::AckBeforeAllCopies) {
            let targets = targets(&self.places, range_of(part), cx.array);
            if targets.first().map(|target| target.position) != position {
                return Told::Nothing;
            }
        }
        match result {
            Ok(()) if answer.given_up => Told::WriteGivenUp(request),
            Ok(()) => Told::Done(request),
            Err(fault) => Told::Failed(request, fault.into()),
        }
    }

    /// See [`super::Personality::has_deferred`]: copies differ for want of space.
    pub(crate) fn has_deferred(&self) -> bool {
        !self.lack_space.is_empty()
    }

    /// See [`super::Personality::write_deferred`]: a resync writes the missing copies and, like any
    /// write, finds out whether there is space. Until then a member is unproven.
    pub(crate) fn write_deferred(&mut self, cx: &Cx<'_>) {
        if cx.is_planted(Mutant::LackForgotten) {
            self.lack_space = SlotSet::EMPTY;
            return;
        }
        let present = cx.membership().present();
        self.copier.unproven = self.copier.unproven.or(self.lack_space).and(present);
        self.lack_space = SlotSet::EMPTY;
        if self.copier.unproven.is_empty() {
            // The members that lacked space have failed.
            self.events.push(Event::Written);
        }
    }

    /// See [`super::Personality::is_unproven`].
    pub(crate) fn is_unproven(&self) -> bool {
        !self.copier.unproven.is_empty()
    }

    // Reads.

    /// See [`super::Personality::passes`]: a read of one chunk with equal copies, while every
    /// member can be read. Reads that follow each other do not pass, so that they are merged.
    #[inline]
    pub(crate) fn passes(&mut self, range: ByteRange, array: &Array) -> Option<(usize, Sectors)> {
        let start = range.start.sectors_floor();
        let is_whole = array.membership.is_whole_and_answers();
        let agree = is_whole && self.around(range, array) == Around::Always;
        if !agree || range.len > self.places.left_in_chunk(start).bytes() {
            return None;
        }
        let readable = |copy: Copy| {
            let position = array.position_at(copy.slot).expect("every slot has a member");
            Readable::new(copy, position, &array.members[position])
        };
        let copies = self.places.copies_of(start).map(readable);
        let Readable { position, slot, sector, .. } = self.balance.choose(copies)?;
        if self.balance.follows(slot, sector) || !array.passes(position) {
            return None;
        }
        self.balance.on_read(slot, sector + range.len.sectors_floor());
        Some((position, sector))
    }

    /// See [`super::Personality::read_straight`].
    pub(crate) fn read_straight(&mut self, io: &ArrayIo, cx: &mut Cx<'_>) -> u64 {
        let (mut start, end) = (io.range.start.0, io.range.end().0);
        let mut sub_requests = 0;
        while start < end {
            let sector = Bytes(start).sectors_floor();
            let to = (sector + self.places.left_in_chunk(sector)).bytes().0.min(end);
            sub_requests += 1;
            let (mut here, max) = (ByteRange::new(start, to - start), cx.knobs.max_sectors);
            if !cx.membership().is_whole() {
                here = self.up_to_rebuilt(here, cx.array);
            }
            if !self.read_copy(io, here, SlotSet::EMPTY, max, cx) {
                let (request, result) = (io.id, Err(ReplyError::Io));
                self.events.push(Event::SubRequestsDone { request, sub_requests: 1, result });
            }
            start = here.end().0;
        }
        sub_requests
    }

    /// The part of a range up to the recovery offset of a member that is being rebuilt. Where
    /// copies may differ, two reads agree because both take the first copy; a read beyond that
    /// offset would take another.
    #[cold]
    fn up_to_rebuilt(&self, range: ByteRange, array: &Array) -> ByteRange {
        if self.around(range, array) == Around::Always {
            return range;
        }
        let left = |copy: Copy| {
            let end = array.membership.recovery_offset(copy.slot)?;
            (end > copy.sector).then(|| (end - copy.sector).bytes())
        };
        let copies = self.places.copies_of(range.start.sectors_floor());
        let len = copies.filter_map(left).fold(range.len, Bytes::min);
        ByteRange { len, ..range }
    }

    /// Reads a copy from a member that was not asked yet, merged with others up to `max` bytes.
    /// Returns whether there is one.
    fn read_copy(
        &mut self,
        io: &ArrayIo,
        range: ByteRange,
        asked: SlotSet,
        max: Bytes,
        cx: &mut Cx<'_>,
    ) -> bool {
        let mut chosen = None;
        if self.around(range, cx.array) == Around::Always {
            let copies = self.readable(range, asked, Around::Always, cx.array);
            chosen = self.balance.choose(copies);
        }
        // Where copies may differ, this makes two reads agree. Elsewhere the read waits for a
        // member that does not answer if no other one has the data.
        let chosen = chosen.or_else(|| self.first(range, asked, cx.array));
        let Some(Readable { position, slot, sector, .. }) = chosen else { return false };
        self.balance.on_read(slot, sector + range.len.sectors_floor());
        let target = Target { position, sector, range };
        straight::send(io, &target, &[straight::memory(io, range)], max, cx);
        true
    }

    /// Copies that can be read from members that were not asked yet, in md's order. Members that do
    /// not answer are included only where no other copy may stand in for theirs.
    #[inline]
    fn readable<'a>(
        &'a self,
        range: ByteRange,
        asked: SlotSet,
        around: Around,
        array: &'a Array,
    ) -> impl Iterator<Item = Readable> + use<'a> {
        let readable = move |copy: Copy| {
            let sectors = SectorRange::new(copy.sector.0, range.len.sectors_floor().0);
            let readable = array.membership.readable(sectors, around).without(asked);
            let position = array.position_at(copy.slot).filter(|_| readable.contains(copy.slot))?;
            let member = &array.members[position];
            let answers = around != Around::Always || !member.stalled;
            answers.then(|| Readable::new(copy, position, member))
        };
        self.places.copies_of(range.start.sectors_floor()).filter_map(readable)
    }

    /// The first copy that can be read, whether or not its member answers; members that lack data
    /// come last.
    fn first(&self, range: ByteRange, asked: SlotSet, array: &Array) -> Option<Readable> {
        let copies = self.readable(range, asked, Around::Never, array);
        if array.is_planted(Mutant::MirrorReadUnsynced) {
            return copies.last();
        }
        copies.min_by_key(|copy| self.copier.behind.contains(copy.slot))
    }

    /// Whether other copies stand in for a member that does not answer. Where copies may differ
    /// they do not, because two reads would disagree. A resync goes by sectors of the array.
    fn around(&self, range: ByteRange, array: &Array) -> Around {
        let from = array.membership.resync_from;
        let checked = from.is_none_or(|from| range.end() <= from.bytes());
        if checked { Around::Always } else { Around::Never }
    }

    /// See [`super::Personality::gains_by_giving_up`].
    pub(crate) fn gains_by_giving_up(&self, part: &Who, array: &Array) -> bool {
        // A resync needs what the member itself holds.
        let Who::Straight(part) = part else { return false };
        let range = range_of(*part);
        match self.around(range, array) {
            Around::Always => {
                self.readable(range, SlotSet::EMPTY, Around::Always, array).next().is_some()
            }
            Around::Never | Around::WhereChecked => self
                .first(range, SlotSet::EMPTY, array)
                .is_some_and(|copy| !array.members[copy.position].stalled),
        }
    }

    /// See [`super::Personality::read_again`].
    pub(crate) fn read_again(&mut self, part: StraightPart, io: &ArrayIo) {
        self.again.push_back((*io, part));
    }

    /// See [`super::Personality::split_waiting`]: reads other copies.
    pub(crate) fn split_waiting(&mut self, cx: &mut Cx<'_>) {
        while let Some((io, part)) = self.again.pop_front() {
            let sub_requests = self.read_rest(&io, part, cx);
            let (request, whole) = (part.request, false);
            self.events.push(Event::Split { request, sub_requests, whole });
        }
        self.copier.begin_waiting(&self.places, cx.array, &mut self.events);
    }

    /// Reads a part that a member failed to read from the next copy. Where copies may differ,
    /// another copy supplies only what the first one lacks; where no member has all of the part,
    /// each section may come from another member. Returns the number of sub-requests.
    fn read_rest(&mut self, io: &ArrayIo, part: StraightPart, cx: &mut Cx<'_>) -> u32 {
        let asked = self.asked.iter().find(|(of, _)| *of == part);
        let asked = asked.map_or(SlotSet::EMPTY, |(_, slots)| *slots);
        let range = range_of(part);
        let agree = self.around(range, cx.array) == Around::Always;
        let unit = if agree { FRAME_BYTES } else { cx.array.request_unit.0 };
        let failed = !asked.is_empty();
        let splits = failed && range.len > Bytes(unit);
        if splits && !agree {
            return self.read_in_parts(io, part, unit, cx);
        }
        // Alone, because neighbours would fail with it once more.
        if self.read_copy(io, range, asked, range.len, cx) {
            return 1;
        }
        if splits {
            return self.read_in_parts(io, part, unit, cx);
        }
        self.asked.retain(|(of, _)| *of != part);
        let (request, result) = (part.request, Err(ReplyError::Io));
        self.events.push(Event::SubRequestsDone { request, sub_requests: 0, result });
        0
    }

    /// Reads a part again, in sections that end at a multiple of `unit`.
    fn read_in_parts(
        &mut self,
        io: &ArrayIo,
        part: StraightPart,
        unit: u64,
        cx: &mut Cx<'_>,
    ) -> u32 {
        self.asked.retain(|(of, _)| *of != part);
        let range = range_of(part);
        let most = (range.len.0 / SPLIT_INTO).next_multiple_of(unit);
        let (mut start, end) = (range.start.0, range.end().0);
        let mut sub_requests = 0;
        while start < end {
            let to = ((start / unit * unit) + most).min(end);
            let here = ByteRange::new(start, to - start);
            if self.read_copy(io, here, SlotSet::EMPTY, here.len, cx) {
                sub_requests += 1;
            } else {
                let (request, result) = (part.request, Err(ReplyError::Io));
                self.events.push(Event::SubRequestsDone { request, sub_requests: 0, result });
            }
            start = to;
        }
        sub_requests
    }

    /// Corrects the copies that other members failed to read, once one copy was read. The range is
    /// extended to whole blocks of 4 KiB, as a drive may have them, except where copies may differ.
    fn read_elsewhere(&mut self, part: StraightPart, array: &Array) {
        let Some(place) = self.asked.iter().position(|(of, _)| *of == part) else { return };
        let (_, slots) = self.asked.swap_remove(place);
        let (mut range, most) = (range_of(part), self.copier.part_bytes());
        if self.around(range, array) == Around::Always {
            let start = range.start.0 / FRAME_BYTES * FRAME_BYTES;
            range = ByteRange::new(start, range.end().0.next_multiple_of(FRAME_BYTES) - start);
        }
        slots.ascending().for_each(|slot| self.copier.correct(slot, range, most));
    }

    /// See [`super::Personality::read_failed`].
    pub(crate) fn read_failed(&mut self, position: Option<usize>, fault: Fault, cx: &mut Cx<'_>) {
        let Some(position) = position else { return };
        match cx.array.members[position].slot {
            _ if fault == Fault::Gone => cx.array.lose(position, cx.out),
            Some(slot) => cx.report(Report::ReadFailed { slot, most: READ_ERRORS_MAX }),
            None => {}
        }
    }

    /// Whether another turn would find work now.
    pub(crate) fn has_work(&self) -> bool {
        !self.again.is_empty() || self.copier.has_waiting()
    }

    // Resync.

    /// See [`super::Personality::resync_pass`].
    pub(crate) fn resync_pass(&self, action: SyncAction, array: &Array) -> Pass {
        sync::pass(action, &self.places, array)
    }

    /// See [`super::Personality::feed`].
    pub(crate) fn feed(&mut self, sync: &mut Resync, array: &Array) {
        self.copier.feed(sync, &self.places, array, &mut self.events);
    }

    /// See [`super::Personality::would_feed`].
    pub(crate) fn would_feed(&self, sync: &Resync) -> bool {
        self.copier.would_feed(sync)
    }

    /// See [`super::Personality::locked`].
    pub(crate) fn locked(&mut self, part: u32, request: RequestId, cx: &mut Cx<'_>) {
        self.copier.locked(part, request, self.places.level(), &mut self.events, cx);
    }

    /// Handles a member's answer for a copy that is being made equal to others.
    fn copy_done(&mut self, io: CopyIo, answer: Answer, cx: &mut Cx<'_>) {
        if answer.write {
            let position = answer.member.and_then(|member| cx.array.position_of(member));
            let range = self.copier.range_of(io);
            let result = self.copy_written(position, range, answer.result, cx);
            if result.is_err_and(|fault| fault != Fault::NoSpace) {
                self.copier.write_failed(io.place);
            }
        }
        self.copier.answered(io, answer, self.places.level(), &mut self.events, cx);
    }

    /// Frees the memory of a copy from a member request that was given up.
    pub(crate) fn copy_freed(&mut self, io: CopyIo) {
        self.copier.freed(io);
    }

    /// See [`super::Personality::compute_done`].
    pub(crate) fn compute_done(
        &mut self,
        job: JobId,
        value: &Result<Value, Fault>,
        cx: &mut Cx<'_>,
    ) {
        self.copier.compared(job, value, self.places.level(), &mut self.events, cx);
    }

    /// See [`super::Personality::part_done`].
    pub(crate) fn part_done(&mut self, part: Who, answer: Answer, cx: &mut Cx<'_>) -> Told {
        let part = match part {
            Who::Straight(part) => part,
            Who::Copy(part) => {
                self.copy_done(part, answer, cx);
                return Told::Nothing;
            }
            Who::Stripe(_) | Who::Stripes(_) => unreachable!("a mirror has no stripes"),
        };
        if answer.write {
            return self.part_written(part, answer, cx);
        }
        if answer.given_up {
            return Told::GivenUp(part.request);
        }
        if answer.result.is_ok() {
            if !self.asked.is_empty() {
                self.read_elsewhere(part, cx.array);
            }
            return Told::Done(part.request);
        }
        let position = answer.member.and_then(|member| cx.array.position_of(member));
        // A member that failed meanwhile has no slot, and is not asked again.
        if let Some(slot) = position.and_then(|position| cx.array.members[position].slot) {
            match self.asked.iter_mut().find(|(of, _)| *of == part) {
                Some((_, slots)) => slots.insert(slot),
                None => self.asked.push((part, SlotSet::only(slot))),
            }
        }
        Told::ReadFailed { part, asked: answer.member.is_some() }
    }

    /// Events that the volume has not taken yet.
    #[inline]
    pub(crate) fn events(&mut self) -> &mut Vec<Event> {
        &mut self.events
    }
}

fn range_of(part: StraightPart) -> ByteRange {
    ByteRange::new(part.start.0, part.len.into())
}

/// Members that hold copies of a range: those of its first chunk, then those of the next.
fn targets(places: &Mirrors, range: ByteRange, array: &Array) -> Targets {
    let (mut start, end) = (range.start, range.end());
    let mut targets = Targets::new();
    while start < end {
        let range = in_chunk(places, start, end);
        for copy in copies_written(places, start.sectors_floor(), array) {
            let Some(position) = array.position_at(copy.slot) else { continue };
            targets.push(Target { position, sector: copy.sector, range });
        }
        start = range.end();
    }
    targets
}

/// The copies of an array sector that a write goes to.
#[inline]
fn copies_written<'a>(
    places: &'a Mirrors,
    sector: Sectors,
    array: &Array,
) -> impl Iterator<Item = Copy> + use<'a> {
    let is_planted = array.is_planted(Mutant::CopyOnWrongMember);
    let move_last = move |copy| if is_planted { misplaced(places, sector, copy) } else { copy };
    places.copies_of(sector).map(move_last)
}

/// For the mutant: the last copy of a sector moves to the next member, if it lies elsewhere than
/// the first; other copies stay.
#[cold]
fn misplaced(places: &Mirrors, sector: Sectors, copy: Copy) -> Copy {
    let copies = places.copies(sector);
    let is_last = copies.last() == Some(&copy) && copies[0].sector != copy.sector;
    let slot = if is_last { (copy.slot.0 + 1) % places.members() } else { copy.slot.0 };
    Copy { slot: Slot(slot), ..copy }
}

/// The part of a range that is in the chunk of its first byte.
#[inline]
fn in_chunk(places: &Mirrors, start: Bytes, end: Bytes) -> ByteRange {
    let left = places.left_in_chunk(start.sectors_floor()).bytes();
    ByteRange { start, len: left.min(Bytes(end.0 - start.0)) }
}

/// Number of sections in which a part is read that no member has as a whole.
const SPLIT_INTO: u64 = 8;

/// Read errors in a row after which a member fails, if the array can do without it.
///
/// Source   md's `max_read_errors`, which halves the count every hour instead
const READ_ERRORS_MAX: u32 = 20;

#[cfg(test)]
mod tests;
