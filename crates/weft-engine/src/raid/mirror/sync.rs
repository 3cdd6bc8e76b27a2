//! Resync, recovery, check and repair of mirrors, and correction of read errors.
//!
//! A sync proceeds in units of 64 KiB, or of a chunk if that is smaller. A *part* is an array range
//! within a unit, or a range that is corrected after a read error. A unit of a recovery has several
//! parts if the slots under recovery hold different ranges. Only the range of a part is locked
//! against clients, not the whole array. If copies may differ and the first one cannot be read as a
//! whole, the part is read again in *sections* of one block (the granularity of requests) each.
//! After the lock, the part goes through these steps:
//!
//! ```text
//! read ──▶ compare ──▶ write ──▶ read back what could not be read before
//! ```
//!
//! A recovery, and a resync of RAID 1, read the first copy and write it to the others. The first
//! copy is also the one that clients read where copies may differ, even on a member under recovery
//! below its recovery offset: another source would change data that was read before. A check, a
//! repair and a resync of RAID 10 read every copy and compare it with the first. A check writes
//! only copies that could not be read.
//!
//! A check and a correction of three copies or more take the *vote*: the content that more than
//! half of the copies have is right. A range without such a content is read again and decided in
//! sections of 4 KiB, because different copies may be wrong in different blocks. A correction
//! writes only what is outvoted. Where copies may differ since a crash there is no vote, for
//! clients read the first copy there.
//!
//! Source   md-raid.md §6.3 (md: `raid1_sync_request`, `raid10_sync_request`, `fix_read_error`); md
//!          does not vote

use std::collections::VecDeque;

use smallvec::SmallVec;
use weft_ondisk::Level;
use weft_units::{ByteRange, Bytes, FRAME_BYTES, SectorRange, Sectors, Slot};

use super::mirror_part::CopyIo;
use crate::array::membership::{Membership, ReadAround, Report};
use crate::array::outbox::JobId;
use crate::array::resync_window::{Pass, Resync, Settles};
use crate::contract::frame::{Run, Segment};
use crate::contract::input::{Attr, Fault, SyncAction, Value};
use crate::contract::output::{ComputeOp, Source};
use crate::contract::token::RequestId;
use crate::layout::mirrors::{Copies, Copy, Mirrors, RESYNC_UNITS_MAX};
use crate::layout::slot_set::SlotSet;
use crate::raid::{Answer, ArrayView, Cx, Event, StripeMemory};
use crate::sched::request::{MemberRequest, MergeKind};

/// Ranges of a mirror with copies that are being made equal by a sync or a correction, and the
/// memory for them.
#[derive(Clone, Debug)]
pub(super) struct MirrorSync {
    memory: StripeMemory,
    /// Number of frames for one copy of a unit, the part of the array that a sync handles at a
    /// time.
    unit_frames: u32,
    /// Number of copies of each chunk. A part has an area of `unit_frames` frames for each copy.
    copies: u32,
    /// Parts in progress, by index; `None` at an unused index. A part is a range of the array with
    /// copies that are being made equal. Each index has memory for every copy of a unit.
    parts: Vec<Option<Part>>,
    free: Vec<u32>,
    /// Units of a sync, of 64 KiB or less, that have parts in progress.
    units: Vec<Unit>,
    /// Ranges of the last unit that wait for memory, each with its task.
    rest: VecDeque<(Task, ByteRange)>,
    /// Slots of members that had no space for a copy and may have some by now. A resync writes
    /// their copies even if these do not differ, to find out whether they have space.
    pub(super) unproven: SlotSet,
    /// Slots of members that missed a write for lack of space since the copies were last equal. At
    /// least one other member has the missed data.
    pub(super) behind: SlotSet,
    /// Ranges of the array that wait for memory to be corrected.
    to_correct: VecDeque<(Correction, ByteRange)>,
}

/// Unit of a sync, with the combined result of its parts. It consists of one part, or in a recovery
/// of one part for each range that members under recovery hold.
#[derive(Clone, Copy, Debug)]
struct Unit {
    key: u64,
    parts: u32,
    mismatch: bool,
    wrong: Option<Slot>,
    /// Whether a part has copies that differ, and none is known to be wrong.
    undecided: bool,
    ok: bool,
}

/// Range of the array, within one chunk, with copies that are being made equal.
#[derive(Clone, Debug)]
struct Part {
    task: Task,
    range: ByteRange,
    /// End of the locked range, beyond the end of `range` if `range` is only one section of the
    /// locked range.
    end: Bytes,
    copies: Copies,
    /// Request that holds the lock of the range; `None` until the range is locked.
    request: Option<RequestId>,
    step: Step,
    /// Number of member requests or comparisons of the current step (read, compare or write) that
    /// are not done.
    pending: u32,
    /// Number of given-up member requests that may still use the memory of the range's copies.
    pins: u32,
    /// Slots of copies that were read.
    read: SlotSet,
    /// Slots with a member request that was given up: the member may still use the memory of its
    /// copy.
    given_up: SlotSet,
    /// Slots of copies that could not be read.
    unreadable: SlotSet,
    /// Slot of the copy with which others are compared and from which they are written; `None`: the
    /// first one that was read.
    source: Option<Slot>,
    /// Slots of copies that are equal to no more than half of the copies.
    outvoted: SlotSet,
    /// Whether no copy is known to be right: no content is shared by more than half of the copies,
    /// or a sync of the kind `correct` found copies that differ and do not vote.
    undecided: bool,
    /// Slots of copies that differ from the source.
    differ: SlotSet,
    /// Slots of copies that are being written.
    written: SlotSet,
    /// Slots of copies that failed to be written or to be read back.
    failed: SlotSet,
    /// Whether every step so far succeeded on the members that the array cannot run without.
    ok: bool,
    /// Length of the sections in which the part is read because no member has all of it, or because
    /// its copies are to vote block by block. Their member requests are not merged with others, so
    /// that none fails with its neighbours. `None`: the part is read as a whole, or block by block
    /// where copies may differ.
    section: Option<Bytes>,
}

/// Reason for which the copies of a range are made equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    /// Sync of a range of the unit numbered `key`. A recovery writes to the slots in `rebuilding`.
    Sync { key: u64, action: SyncAction, rebuilding: SlotSet },
    /// Correction of a range that a member failed to read.
    Correct(Correction),
}

/// Copy that is corrected after a read error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Correction {
    /// Slot of the member that failed to read.
    pub(super) slot: Slot,
    /// Slots that are not read. Where copies may differ, these are the slots on which a client's
    /// read of the range failed. The client got the content of another copy, which has to replace
    /// the copies at these slots even if they can be read by now. Elsewhere a read error may have
    /// been temporary, and no slot is left out.
    pub(super) replaced: SlotSet,
}

impl Task {
    /// Slots that count as unreadable without being read.
    fn replaced(self) -> SlotSet {
        match self {
            Self::Correct(correction) => correction.replaced,
            Self::Sync { .. } => SlotSet::EMPTY,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The range is not locked yet.
    Locking,
    Reading,
    Comparing,
    Writing,
    ReadingBack,
    /// All steps of the range, or of its current section, are done. Given-up member requests may
    /// still use its memory.
    Over,
}

impl MirrorSync {
    pub(super) fn new(memory: StripeMemory, places: &Mirrors) -> Self {
        let unit_frames = places.resync_unit().bytes().0.div_ceil(FRAME_BYTES) as u32;
        let copies = u32::from(places.copies_per_chunk());
        let parts = (memory.frames / (unit_frames * copies)).min(RESYNC_UNITS_MAX);
        Self {
            memory,
            unit_frames,
            copies,
            parts: vec![None; parts as usize],
            free: (0..parts).rev().collect(),
            units: Vec::new(),
            rest: VecDeque::new(),
            unproven: SlotSet::EMPTY,
            behind: SlotSet::EMPTY,
            to_correct: VecDeque::new(),
        }
    }

    /// Whether no range is being synced or corrected or waits for either, and every member is known
    /// to have space.
    pub(super) fn is_quiet(&self) -> bool {
        self.free.len() == self.parts.len()
            && self.rest.is_empty()
            && self.to_correct.is_empty()
            && self.unproven.is_empty()
    }

    /// Divides the memory anew, for the layout `places`. No range may be in progress or waiting
    /// ([`MirrorSync::is_quiet`]).
    pub(super) fn resize(&mut self, places: &Mirrors) {
        *self = Self::new(self.memory, places);
    }

    // Units of a resync.

    /// Starts the sync of the next units (of 64 KiB or less), as many as there is memory for.
    pub(super) fn feed(
        &mut self,
        sync: &mut Resync,
        places: &Mirrors,
        array: ArrayView<'_>,
        events: &mut Vec<Event>,
    ) {
        let window = self.parts.len() as u32 * 4;
        sync.feed(window, |key, sync| self.begin_unit(key, sync, places, array, events));
    }

    /// Whether [`MirrorSync::feed`] would start a unit.
    pub(super) fn would_feed(&self, sync: &Resync) -> bool {
        // Units that the bitmap skips are done at once while others are in progress, so there may
        // be room for the next unit without an answer from a member.
        sync.has_work(self.parts.len() as u32 * 4, |_| self.has_room(), |_| false)
    }

    /// Whether there is memory to begin a unit of a sync. If it suffices for only some of the
    /// unit's ranges, the others wait.
    fn has_room(&self) -> bool {
        !self.free.is_empty() && self.rest.is_empty()
    }

    /// Begins unit number `key` of a sync. Returns whether there was memory for at least one of its
    /// ranges.
    fn begin_unit(
        &mut self,
        key: u64,
        sync: &Resync,
        places: &Mirrors,
        array: ArrayView<'_>,
        events: &mut Vec<Event>,
    ) -> bool {
        let action = sync.action;
        let unit = places.resync_unit();
        let mut ranges: SmallVec<[(ByteRange, SlotSet); 2]> = SmallVec::new();
        if action == SyncAction::Recover {
            let rebuilding = array.rebuilding().map_or(SlotSet::EMPTY, |(slots, _)| slots);
            for slot in rebuilding.ascending() {
                let Some(start) = places.array_sector(slot, Sectors(key * unit.0)) else {
                    continue;
                };
                let range = part_range(start, unit, array);
                if !sync.is_about(SectorRange::new(start.0, unit.0)) {
                    continue;
                }
                match ranges.iter_mut().find(|(other, _)| *other == range) {
                    Some((_, slots)) => slots.insert(slot),
                    None => ranges.push((range, SlotSet::only(slot))),
                }
            }
        } else {
            ranges.push((part_range(Sectors(key * unit.0), unit, array), SlotSet::EMPTY));
        }
        ranges.retain(|(range, _)| range.len > Bytes::ZERO);
        if !self.has_room() {
            return false;
        }
        if ranges.is_empty() {
            events.push(Event::SyncDone { unit: key, mismatch: false, wrong: None, ok: true });
            return true;
        }
        let parts = ranges.len() as u32;
        let (mismatch, wrong, undecided, ok) = (false, None, false, true);
        self.units.push(Unit { key, parts, mismatch, wrong, undecided, ok });
        let task = |rebuilding| Task::Sync { key, action, rebuilding };
        self.rest.extend(ranges.into_iter().map(|(range, slots)| (task(slots), range)));
        self.begin_rest(places, events);
        true
    }

    /// Begins the waiting ranges of the last unit, as many as there is memory for.
    fn begin_rest(&mut self, places: &Mirrors, events: &mut Vec<Event>) {
        while !self.free.is_empty()
            && let Some((task, range)) = self.rest.pop_front()
        {
            self.lock(task, range, places, events);
        }
    }

    /// Begins to sync or correct a range: asks the volume to lock it.
    fn lock(&mut self, task: Task, range: ByteRange, places: &Mirrors, events: &mut Vec<Event>) {
        let place = self.free.pop().expect("there is memory for it");
        let writes = !matches!(task, Task::Sync { action: SyncAction::Check, .. });
        let mut copies = places.copies(range.start.sectors_floor());
        copies.sort_by_key(|copy| self.behind.contains(copy.slot));
        let before = self.parts[place as usize].replace(Part {
            task,
            range,
            end: range.end(),
            copies,
            request: None,
            step: Step::Locking,
            pending: 0,
            pins: 0,
            read: SlotSet::EMPTY,
            given_up: SlotSet::EMPTY,
            unreadable: task.replaced(),
            source: None,
            outvoted: SlotSet::EMPTY,
            undecided: false,
            differ: SlotSet::EMPTY,
            written: SlotSet::EMPTY,
            failed: SlotSet::EMPTY,
            ok: true,
            section: None,
        });
        assert!(before.is_none(), "memory is used by one part");
        events.push(Event::Lock { part: place, range, writes });
    }

    /// Begins to read the copies of the range at index `place`, after it was locked by `request`.
    pub(super) fn locked(
        &mut self,
        place: u32,
        request: RequestId,
        level: Level,
        events: &mut Vec<Event>,
        cx: &mut Cx<'_>,
    ) {
        let part = self.part(place);
        assert_eq!(part.step, Step::Locking, "a range is locked once");
        part.request = Some(request);
        part.step = Step::Reading;
        self.read(place, level, events, cx);
    }

    // Steps.

    /// Reads the copies of a part that are still to be read: all of them, or only the next one for
    /// a correction and for a sync that trusts a single copy.
    ///
    /// Below its recovery offset, a slot under recovery is itself a source of the recovery. Clients
    /// read this copy if it is the first, also where copies may differ, and a recovery from another
    /// copy would replace data that clients have read. The recovery neither writes nor compares
    /// this copy, so it ends no pending resync ([`Settles::UnlessPartlyRebuilt`]). The resync then
    /// makes all copies equal to this one.
    fn read(&mut self, place: u32, level: Level, events: &mut Vec<Event>, cx: &mut Cx<'_>) {
        let part = self.part(place);
        assert_eq!((part.step, part.pending), (Step::Reading, 0), "the step before is over");
        if matches!(part.task, Task::Sync { .. }) && !cx.membership().with_bad().is_empty() {
            part.meet_bad_blocks(cx.membership());
        }
        let mut sources: SmallVec<[Slot; 4]> = SmallVec::new();
        let asked = part.read.or(part.unreadable).or(part.given_up);
        for copy in &part.copies {
            let sectors = SectorRange::new(copy.sector.0, part.range.len.sectors_floor().0);
            let readable = cx.membership().readable(sectors, ReadAround::Never);
            if readable.contains(copy.slot) && !asked.contains(copy.slot) {
                sources.push(copy.slot);
            }
        }
        match part.task {
            // The member that failed comes first, because its error may have been temporary.
            Task::Correct(Correction { slot, .. }) => {
                sources.sort_by_key(|other| *other != slot);
                sources.truncate(1);
            }
            Task::Sync { action, .. } if reads_one(action, level) => sources.truncate(1),
            // The last copy is read first, as in md.
            Task::Sync { .. } => sources.reverse(),
        }
        if sources.is_empty() {
            self.no_copy(place, level, events, cx);
            return;
        }
        for slot in sources {
            self.stage(place, slot, false, cx);
        }
    }

    /// Handles a range that no member has as a whole. A sync reads the range again in sections,
    /// each from a member that has the section. A section is a block of 4 KiB, the sector size of
    /// many drives, or, where copies may differ, a block of the granularity of requests. A recovery
    /// records a section that no member has as bad on the members that it fills.
    fn no_copy(&mut self, place: u32, level: Level, events: &mut Vec<Event>, cx: &mut Cx<'_>) {
        let part = self.part(place);
        // A member with a given-up read may still have the data.
        let syncs = matches!(part.task, Task::Sync { .. }) && part.given_up.is_empty();
        if syncs && !cx.membership().broken && part.section.is_none() {
            let differ = part.may_differ(cx.view());
            let len = if differ { cx.view().request_unit() } else { Bytes(FRAME_BYTES) };
            part.divide(len);
            self.read(place, level, events, cx);
            return;
        }
        let filled = part.filled(cx.membership()).filter(|_| syncs);
        part.ok = filled.is_some();
        let sectors = part.range.len.sectors_floor();
        let filled = filled.unwrap_or(SlotSet::EMPTY);
        let copies = part.copies.clone();
        for Copy { slot, sector, .. } in copies {
            if filled.contains(slot) {
                cx.report(Report::Unrecovered { slot, sector, sectors });
            }
        }
        self.finish(place, level, events, cx);
    }

    /// Submits the read or write of one copy, on the member at `slot`, of the range at index
    /// `place`.
    fn stage(&mut self, place: u32, slot: Slot, write: bool, cx: &mut Cx<'_>) {
        let memory = self.memory(place, if write { self.source(place) } else { slot });
        let part = self.part(place);
        let copy = part.copies.iter().find(|copy| copy.slot == slot).expect("the slot has a copy");
        let max = match part.task {
            // A block is not merged with its neighbours, which would fail with it.
            Task::Correct(_) if part.range.len <= Bytes(FRAME_BYTES) => part.range.len,
            Task::Correct(_) | Task::Sync { .. } => part.section.unwrap_or(cx.knobs.max_sectors),
        };
        let request = MemberRequest {
            write,
            sector: copy.sector,
            bytes: part.range.len,
            max,
            kind: MergeKind {
                fua: false,
                stripes: false,
                attr: Attr::sync(cx.view().sync_class()),
            },
        };
        let completion = CopyIo { place, slot }.target();
        let fills = write && part.fills();
        let staged = if fills {
            cx.stage_fill(slot, &request, &[memory], completion)
        } else {
            cx.stage(slot, &request, &[memory], completion)
        };
        if staged {
            self.part(place).pending += 1;
        } else {
            let part = self.part(place);
            let slots = if write { &mut part.failed } else { &mut part.unreadable };
            slots.insert(slot);
        }
    }

    /// Handles a member's answer to a read or write of a copy.
    pub(super) fn answered(
        &mut self,
        io: CopyIo,
        answer: Answer,
        level: Level,
        events: &mut Vec<Event>,
        cx: &mut Cx<'_>,
    ) {
        let CopyIo { place, slot } = io;
        let part = self.part(place);
        assert!(part.pending > 0, "a member answers once");
        part.pending -= 1;
        part.pins += u32::from(answer.pins);
        match (part.step, answer.result) {
            (Step::Reading, Ok(())) => part.read.insert(slot),
            (Step::Reading, Err(_)) if answer.given_up => part.given_up.insert(slot),
            (Step::Reading, Err(_)) => part.unreadable.insert(slot),
            (Step::Writing | Step::ReadingBack, Err(_)) => part.failed.insert(slot),
            (Step::Writing | Step::ReadingBack, Ok(())) => {}
            (Step::Comparing | Step::Locking | Step::Over, _) => {
                unreachable!("no member request is outstanding")
            }
        }
        if part.pending == 0 {
            self.next_step(place, level, events, cx);
        }
    }

    /// Records that a member that the array needs could not write its copy of the range at index
    /// `place`.
    pub(super) fn write_failed(&mut self, place: u32) {
        self.part(place).ok = false;
    }

    /// Handles a finished comparison of two copies of a range.
    pub(super) fn compared(
        &mut self,
        job: JobId,
        value: &Result<Value, Fault>,
        level: Level,
        events: &mut Vec<Event>,
        cx: &mut Cx<'_>,
    ) {
        let (place, nth) = (job.0 / self.copies, job.0 % self.copies);
        let part = self.part(place);
        assert!(part.step == Step::Comparing && part.pending > 0, "a comparison is done once");
        part.pending -= 1;
        let slot = part.copies[nth as usize].slot;
        match value {
            Ok(Value::Differs(differs)) => part.differ.set(slot, differs.p),
            Ok(Value::Nothing | Value::Located(_)) | Err(_) => part.ok = false,
        }
        if part.pending == 0 {
            self.next_step(place, level, events, cx);
        }
    }

    fn next_step(&mut self, place: u32, level: Level, events: &mut Vec<Event>, cx: &mut Cx<'_>) {
        let part = self.part(place);
        match part.step {
            Step::Reading if part.is_to_be_divided(cx.view()) => {
                part.take_section(part.range.start, cx.view().request_unit());
                self.read(place, level, events, cx);
            }
            Step::Reading => {
                let only = part.copies.iter().filter(|copy| part.read.contains(copy.slot)).count();
                match part.task {
                    // The read error was temporary: the member has read the range.
                    Task::Correct(it) if part.read.contains(it.slot) => {
                        self.finish(place, level, events, cx);
                    }
                    _ if only == 0 => self.read(place, level, events, cx),
                    _ if only == 1 => self.write(place, level, events, cx),
                    _ => self.compare(place, cx),
                }
            }
            Step::Comparing => self.vote(place, level, events, cx),
            Step::Writing => self.read_back(place, level, events, cx),
            Step::ReadingBack => self.finish(place, level, events, cx),
            Step::Locking | Step::Over => unreachable!("no member request is outstanding"),
        }
    }

    /// Compares every other copy of a range that was read, and is not outvoted, with the source.
    fn compare(&mut self, place: u32, cx: &mut Cx<'_>) {
        let source = self.source(place);
        let first = self.memory(place, source);
        let others: SmallVec<[(u32, Slot); 4]> = {
            let part = self.part(place);
            part.step = Step::Comparing;
            let copies = part.copies.iter().zip(0..);
            part.differ = SlotSet::EMPTY;
            let read = part.read.without(part.outvoted).without(SlotSet::only(source));
            copies.filter(|it| read.contains(it.0.slot)).map(|it| (it.1, it.0.slot)).collect()
        };
        for (nth, slot) in others {
            let other = self.memory(place, slot);
            let data = SmallVec::from_slice(&[Source { exponent: 0, part: first }]);
            let mut ops = cx.ops();
            ops.push(ComputeOp::Compare { data, p: Some(other), q: None });
            cx.compute(JobId(place * self.copies + nth), ops);
            self.part(place).pending += 1;
        }
    }

    /// Decides by a vote which of the compared copies are right, if the copies of the part vote
    /// (`Part::votes`), and goes on to write. Without a vote, the source counts as right, except in
    /// a sync of the kind `correct`, which then writes nothing. A copy that could not be read
    /// counts as a copy that agrees with no other.
    fn vote(&mut self, place: u32, level: Level, events: &mut Vec<Event>, cx: &mut Cx<'_>) {
        let part = self.part(place);
        if part.differ.or(part.outvoted).is_empty() {
            self.write(place, level, events, cx);
            return;
        }
        if !part.votes(cx.view()) {
            part.undecided = matches!(part.task, Task::Sync { action: SyncAction::Correct, .. });
            self.write(place, level, events, cx);
            return;
        }
        let unread = part.unreadable.or(part.given_up);
        let all = part.read.or(unread);
        let is_majority = |slots: SlotSet| slots.count() * 2 > all.count();
        let equal = part.read.without(part.outvoted).without(part.differ);
        let outvoted = part.outvoted.or(equal);
        let rest = part.read.without(outvoted);
        let divides = part.section.is_none() && part.range.len > Bytes(FRAME_BYTES);
        if divides && (!unread.is_empty() || !is_majority(equal) && !is_majority(rest)) {
            part.divide(Bytes(FRAME_BYTES));
            self.read(place, level, events, cx);
            return;
        }
        if is_majority(equal) {
            part.differ = part.read.without(equal);
        } else if is_majority(rest) {
            part.outvoted = outvoted;
            let mut slots = part.copies.iter().map(|copy| copy.slot);
            part.source = slots.find(|slot| rest.contains(*slot));
            self.compare(place, cx);
            return;
        } else {
            part.undecided = true;
            part.source = None;
            let source = self.source(place);
            let part = self.part(place);
            part.differ = part.read.without(SlotSet::only(source));
        }
        self.write(place, level, events, cx);
    }

    /// Writes the source of a part over the copies that have to be made equal to it. A resync also
    /// writes copies on members that may have space again, to find out whether they have.
    fn write(&mut self, place: u32, level: Level, events: &mut Vec<Event>, cx: &mut Cx<'_>) {
        let source = self.source(place);
        let present = cx.membership().present();
        let unproven = self.unproven;
        let part = self.part(place);
        let of_copies: SlotSet = part.copies.iter().map(|copy| copy.slot).collect();
        let wanted = match part.task {
            Task::Correct(it) => SlotSet::only(it.slot),
            Task::Sync { action: SyncAction::Recover, rebuilding, .. } => rebuilding,
            // Nothing is written: a copy written from one of the differing copies would be a vote
            // for that copy.
            Task::Sync { .. } if part.undecided => SlotSet::EMPTY,
            Task::Sync { action: SyncAction::Check, .. } => part.unreadable,
            Task::Sync { action, .. } if reads_one(action, level) => of_copies,
            Task::Sync { .. } => part.unreadable.or(part.differ),
        };
        let fills = part.fills();
        // The source is not written over itself. In a recovery, the replacement of the source's
        // member, if there is one, still gets the data.
        let mut wanted = wanted.without(SlotSet::only(source).without(if fills {
            cx.membership().replaced()
        } else {
            SlotSet::EMPTY
        }));
        if let Task::Sync { action: SyncAction::Resync, .. } = part.task {
            // The source itself is rewritten too, if its member is unproven.
            wanted = wanted.or(unproven.and(of_copies));
        }
        // Slots with a given-up request are left out: such a slot may have a new member, which is
        // rebuilt anyway. A recovery writes them nevertheless, because the new member may be the
        // replacement that it fills.
        let given_up = if fills { SlotSet::EMPTY } else { part.given_up };
        let wanted = wanted.without(given_up).and(present);
        part.step = Step::Writing;
        part.written = wanted;
        // A broken array is not written to.
        part.ok &= !cx.membership().broken;
        if cx.membership().read_only || !part.ok {
            part.written = SlotSet::EMPTY;
            self.finish(place, level, events, cx);
            return;
        }
        let unreadable = part.unreadable;
        for slot in wanted.ascending() {
            if unreadable.contains(slot) {
                cx.report(Report::Correcting { slot });
            }
            self.stage(place, slot, true, cx);
        }
        if self.part(place).pending == 0 {
            self.read_back(place, level, events, cx);
        }
    }

    /// Reads back the copies that were rewritten after a read error.
    fn read_back(&mut self, place: u32, level: Level, events: &mut Vec<Event>, cx: &mut Cx<'_>) {
        let replaced = cx.membership().replaced();
        let part = self.part(place);
        part.step = Step::ReadingBack;
        let again = part.unreadable.and(part.written).without(part.failed);
        // A replacement is not read before it has the slot.
        let again = again.without(if part.fills() { replaced } else { SlotSet::EMPTY });
        part.written = again;
        for slot in again.ascending() {
            self.stage(place, slot, false, cx);
        }
        if self.part(place).pending == 0 {
            self.finish(place, level, events, cx);
        }
    }

    /// Ends the steps of a part (a locked range of the array) for `range`, which is all of the part
    /// or one section (a block of the part that is read on its own). If sections remain, the next
    /// one follows. Otherwise the lock is released, and the memory is freed unless a given-up
    /// member request may still use it.
    fn finish(&mut self, place: u32, level: Level, events: &mut Vec<Event>, cx: &mut Cx<'_>) {
        let part = self.parts[place as usize].as_mut().expect("a part is under way");
        assert_eq!(part.pending, 0, "every member has answered");
        let verified = if part.step == Step::ReadingBack { part.written } else { SlotSet::EMPTY };
        part.step = Step::Over;
        let sectors = part.range.len.sectors_floor();
        // Only a block of the range may have failed.
        let suspect = if part.range.len > Bytes(FRAME_BYTES) {
            verified.and(part.failed)
        } else {
            SlotSet::EMPTY
        };
        for copy in part.copies.iter().filter(|it| verified.without(suspect).contains(it.slot)) {
            let (slot, sector) = (copy.slot, copy.sector);
            cx.report(if part.failed.contains(slot) {
                Report::Suspect { slot, sector, sectors }
            } else {
                Report::Corrected { slot, sector, sectors }
            });
        }
        let is_whole = part.range.end() >= part.end;
        let more = !is_whole && !cx.membership().broken;
        part.ok &= is_whole || more;
        // A member with a given-up request may still use the memory, so no section follows.
        let goes_on = more && part.pins == 0;
        let rest = ByteRange { start: part.range.end(), len: part.end - part.range.end() };
        if let Some(request) = part.request.filter(|_| !goes_on) {
            events.push(Event::SubRequestsDone { request, sub_requests: 1, result: Ok(()) });
        }
        let (wrong, ok) = (part.wrong(), part.ok);
        let (range, differ) = (part.range, part.differ);
        // A range that no member has as a whole, or that a member could not keep as a whole, is
        // corrected block by block. In the first case, a sync has already read the range block by
        // block.
        let slots = match part.task {
            Task::Correct(it) if !ok && range.len > Bytes(FRAME_BYTES) => SlotSet::only(it.slot),
            Task::Correct(_) | Task::Sync { .. } => suspect,
        };
        let (task, replaced) = (part.task, part.task.replaced());
        match task {
            Task::Sync { key, .. } => {
                let nth = self.units.iter().position(|unit| unit.key == key);
                let nth = nth.expect("a unit stays until its parts are over");
                let unit = &mut self.units[nth];
                unit.parts -= u32::from(!more);
                unit.mismatch |= !differ.is_empty();
                unit.undecided |= !differ.is_empty() && wrong.is_none();
                // A check names one copy, or none if different ones are wrong.
                let names = matches!(task, Task::Sync { action: SyncAction::Check, .. });
                unit.undecided |= names && wrong.is_some_and(|it| unit.wrong.unwrap_or(it) != it);
                unit.wrong = unit.wrong.or(wrong);
                unit.ok &= ok;
                if unit.parts == 0 {
                    let Unit { key, mismatch, wrong, undecided, ok, .. } =
                        self.units.swap_remove(nth);
                    let wrong = wrong.filter(|_| !undecided);
                    events.push(Event::SyncDone { unit: key, mismatch, wrong, ok });
                }
                if more && !goes_on {
                    self.rest.push_back((task, rest));
                }
            }
            Task::Correct(it) if more && !goes_on => self.correct(it, rest, FRAME_BYTES),
            Task::Correct(_) => {}
        }
        for slot in slots.ascending() {
            self.correct(Correction { slot, replaced }, range, FRAME_BYTES);
        }
        if goes_on {
            let unit = cx.view().request_unit();
            let part = self.part(place);
            let len = part.section.unwrap_or(unit).min(rest.len);
            part.take_section(range.end(), len);
            self.read(place, level, events, cx);
        } else {
            self.free_if_unused(place);
        }
    }

    /// Handles the late answer to a given-up member request of a copy, which no longer pins memory.
    /// The memory of a finished part is free once no request pins it.
    pub(super) fn freed(&mut self, io: CopyIo) {
        let part = self.part(io.place);
        assert!(part.pins > 0, "memory is freed as often as it was pinned");
        part.pins -= 1;
        self.free_if_unused(io.place);
    }

    fn free_if_unused(&mut self, place: u32) {
        let part = self.part(place);
        if part.step == Step::Over && part.pins == 0 {
            self.parts[place as usize] = None;
            self.free.push(place);
        }
    }

    // Correction of read errors.

    /// Queues the correction of a range of the array that a member failed to read and that others
    /// hold. The range is divided into parts of at most `most` bytes.
    pub(super) fn correct(&mut self, correction: Correction, range: ByteRange, most: u64) {
        let (mut start, end) = (range.start.0, range.end().0);
        while start < end && self.to_correct.len() < CORRECTIONS_MAX {
            let len = (most - start % most).min(end - start);
            self.to_correct.push_back((correction, ByteRange::new(start, len)));
            start += len;
        }
    }

    /// Largest number of bytes that are synced or corrected as one range: the size of a unit.
    pub(super) fn part_bytes(&self) -> u64 {
        u64::from(self.unit_frames) * FRAME_BYTES
    }

    /// Begins ranges that wait to be synced or corrected, as many as there is memory for.
    pub(super) fn begin_waiting(
        &mut self,
        places: &Mirrors,
        array: ArrayView<'_>,
        events: &mut Vec<Event>,
    ) {
        self.begin_rest(places, events);
        while self.has_waiting()
            && let Some((it, range)) = self.to_correct.pop_front()
        {
            let len = range.len.sectors_ceil();
            let range = part_range(range.start.sectors_floor(), len, array);
            let sealed = array.membership().read_only || array.membership().broken;
            if range.len > Bytes::ZERO && array.position_at(it.slot).is_some() && !sealed {
                self.lock(Task::Correct(it), range, places, events);
            }
        }
    }

    /// Whether a range that waits to be synced or corrected could begin.
    pub(super) fn has_waiting(&self) -> bool {
        !self.free.is_empty() && (!self.to_correct.is_empty() || !self.rest.is_empty())
    }

    // Memory.

    fn part(&mut self, place: u32) -> &mut Part {
        self.parts[place as usize].as_mut().expect("a part is under way")
    }

    /// Slot of the copy to which the others are made equal: the first one that was read, unless it
    /// is outvoted.
    fn source(&self, place: u32) -> Slot {
        let part = self.parts[place as usize].as_ref().expect("a part is under way");
        let mut read = part.copies.iter().filter(|copy| part.read.contains(copy.slot));
        let first = || read.next().expect("a copy was read").slot;
        part.source.unwrap_or_else(first)
    }

    /// Memory of the copy at `slot` of the range at index `place`.
    fn memory(&self, place: u32, slot: Slot) -> Segment {
        let part = self.parts[place as usize].as_ref().expect("a part is under way");
        let nth = part.copies.iter().position(|copy| copy.slot == slot).expect("it has a copy");
        let frames = (place * self.copies + nth as u32) * self.unit_frames;
        Run::new(self.memory.first.0 + frames, self.unit_frames).part(0, part.range.len.0)
    }

    /// Range of the array to which the copy of `io` belongs.
    pub(super) fn range_of(&self, io: CopyIo) -> ByteRange {
        self.parts[io.place as usize].as_ref().expect("a part is under way").range
    }
}

impl Part {
    /// Data sectors of a copy of the part.
    fn sectors_of(&self, copy: &Copy) -> SectorRange {
        SectorRange { start: copy.sector, len: self.range.len.sectors_floor() }
    }

    /// Whether more than half of the copies decide about the others.
    fn votes(&self, array: ArrayView<'_>) -> bool {
        let Task::Sync { action, .. } = self.task else { return false };
        matches!(action, SyncAction::Check | SyncAction::Correct)
            && self.copies.len() >= COPIES_TO_VOTE
            && !self.may_differ(array)
    }

    /// Slot of the copy that is wrong: the only one that differs from several equal ones. A check
    /// names a copy only if the unit has the same sectors on every member. After a correction the
    /// first one stands for all copies that were outvoted. `None` if no copy can be named.
    fn wrong(&self) -> Option<Slot> {
        let several = self.read.without(self.differ).count() > 1;
        let mut differ = self.differ.ascending();
        let first = differ.next().filter(|_| several && !self.undecided)?;
        if let Task::Sync { action: SyncAction::Correct, .. } = self.task {
            return Some(first);
        }
        let sector = self.range.start.sectors_floor();
        let told = self.copies.iter().all(|copy| copy.sector == sector);
        (differ.next().is_none() && told).then_some(first)
    }

    /// Whether the part belongs to a recovery, which writes only to the members that it fills.
    fn fills(&self) -> bool {
        matches!(self.task, Task::Sync { action: SyncAction::Recover, .. })
    }

    /// Counts copies with bad blocks as unreadable, so that a sync rewrites them.
    #[cold]
    fn meet_bad_blocks(&mut self, membership: &Membership) {
        for copy in &self.copies {
            if membership.bad_in_sync(self.sectors_of(copy)).contains(copy.slot) {
                self.unreadable.insert(copy.slot);
            }
        }
    }

    /// Slots that the recovery of the part fills; `None` if the part belongs to no recovery, or if
    /// one of their members cannot record bad blocks.
    fn filled(&self, membership: &Membership) -> Option<SlotSet> {
        let Task::Sync { action: SyncAction::Recover, rebuilding, .. } = self.task else {
            return None;
        };
        let mut filled = SlotSet::EMPTY;
        for copy in self.copies.iter().filter(|copy| rebuilding.contains(copy.slot)) {
            let slots = membership.records_unrecovered(self.sectors_of(copy))?;
            filled.set(copy.slot, slots.contains(copy.slot));
        }
        Some(filled)
    }

    /// Whether the part (a locked range of the array) has to be read again in sections of one
    /// block. Where copies may differ, another copy supplies only the blocks that the first copy
    /// lacks. Reads of clients follow the same rule, and may already have returned the rest of the
    /// first copy.
    fn is_to_be_divided(&self, array: ArrayView<'_>) -> bool {
        let mut before = self.copies.iter().take_while(|copy| !self.read.contains(copy.slot));
        self.range.len > array.request_unit()
            && self.may_differ(array)
            && before.any(|copy| self.unreadable.contains(copy.slot))
    }

    /// Whether the copies of the part may differ, because a resync has not made them equal yet.
    fn may_differ(&self, array: ArrayView<'_>) -> bool {
        let from = array.membership().resync_from;
        from.is_some_and(|from| from.bytes() < self.range.end())
    }

    /// Starts the steps of the part again, in sections of `len` bytes each.
    fn divide(&mut self, len: Bytes) {
        self.section = Some(len);
        self.take_section(self.range.start, len.min(self.range.len));
    }

    /// Starts the steps of the part again, for a section of `len` bytes from `start` on, which lies
    /// in the locked range.
    fn take_section(&mut self, start: Bytes, len: Bytes) {
        let on = start.sectors_floor() - self.range.start.sectors_floor();
        self.copies.iter_mut().for_each(|copy| copy.sector += on);
        self.range = ByteRange { start, len };
        self.step = Step::Reading;
        self.read = SlotSet::EMPTY;
        self.unreadable = self.task.replaced();
        self.source = None;
        self.outvoted = SlotSet::EMPTY;
        self.undecided = false;
        self.differ = SlotSet::EMPTY;
        self.written = SlotSet::EMPTY;
        self.failed = SlotSet::EMPTY;
        self.ok = true;
    }
}

/// Whether a sync reads only the first copy and trusts it.
///
/// Source   md's RAID 10 compares in a resync, its RAID 1 does not
fn reads_one(action: SyncAction, level: Level) -> bool {
    action == SyncAction::Recover || (action == SyncAction::Resync && level.is_mirror())
}

/// Range of `len` sectors from `start` on, limited to the array's size rounded down to whole
/// request units.
fn part_range(start: Sectors, len: Sectors, array: ArrayView<'_>) -> ByteRange {
    let unit = array.request_unit().0;
    let end = (start + len).min(array.size()).bytes().0 / unit * unit;
    let start = start.bytes().0;
    ByteRange::new(start, end.saturating_sub(start))
}

/// Unit, size and effect of a sync of a mirror.
pub(super) fn pass(action: SyncAction, places: &Mirrors, array: ArrayView<'_>) -> Pass {
    let recovers = action == SyncAction::Recover;
    // If two members in sync hold the same data, their copies may still differ.
    let settles = recovers && !array.membership().has_redundancy();
    Pass {
        unit: places.resync_unit(),
        size: if recovers { places.member_size() } else { places.array_size() },
        settles: if settles { Settles::UnlessPartlyRebuilt } else { Settles::No },
        maps: recovers && places.level().syncs_array(),
    }
}

/// Smallest number of copies with which a majority can outvote a wrong copy.
pub(super) const COPIES_TO_VOTE: usize = 3;

/// Largest number of corrections that may wait. A read error beyond that is corrected when its
/// range is next read.
const CORRECTIONS_MAX: usize = 64;
