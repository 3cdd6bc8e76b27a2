//! Context of a personality: its access to the array, and the actions that it can order.
//!
//! An `ArrayView` answers questions about the array and changes nothing; its methods identify a
//! member by position or by slot. `Cx` can also order actions: requests to members, computations,
//! and reports about members. Neither exposes the array or a member itself, so this list of methods
//! is all that a level can do to the array.

use std::ops::{Deref, DerefMut};

use weft_units::{Bytes, MemberIndex, SectorRange, Sectors, Slot, Time};

use super::straight::StraightPart;
use crate::array::Array;
use crate::array::membership::{Membership, Report};
use crate::array::outbox::{CompletionTarget, JobId, Outbox};
use crate::array::reshape::{Reshape, Side};
use crate::contract::frame::Segment;
use crate::contract::input::{Attr, Class, Fault};
use crate::contract::output::ComputeOp;
use crate::contract::token::RequestId;
use crate::knobs::Knobs;
use crate::layout::slot_set::SlotSet;
use crate::mutant::Mutant;
use crate::sched::request::MemberRequest;

/// View of the array for a personality, which can read it but not change it.
#[derive(Clone, Copy)]
pub(crate) struct ArrayView<'a> {
    array: &'a Array,
    /// Whether the view shows the geometry before a reshape. Always false for the view of a [`Cx`],
    /// which exchanges the memberships of the array instead.
    before: bool,
}

/// Properties of a member that decide whether it serves a read.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadState {
    /// Number of outstanding requests of the member.
    pub(super) pending: u32,
    /// Whether the member is a rotating disk.
    pub(super) rotational: bool,
    /// Whether a request to the member has been outstanding for longer than `read_around`.
    pub(super) stalled: bool,
    pub(super) write_mostly: bool,
}

/// Discard of a range of one member's data, on behalf of a client request.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemberDiscard {
    pub(super) request: RequestId,
    /// First data sector on the member.
    pub(super) first: Sectors,
    pub(super) len: Sectors,
    /// Number of sectors by which the discard raises the member's counter of written sectors.
    pub(super) counted: Sectors,
    pub(super) fua: bool,
    pub(super) attr: Attr,
}

/// Array, knobs and outbox that a personality works with.
pub(crate) struct Cx<'a> {
    array: &'a mut Array,
    pub(crate) knobs: &'a Knobs,
    out: &'a mut Outbox,
    /// Geometry that the context is for during a reshape; `None` without a reshape, and for the
    /// array as a whole.
    side: Option<Side>,
}

/// Context for one of the two geometries that an array has during a reshape. While it exists, the
/// array's membership is that of the geometry.
pub(super) struct SideCx<'a>(Cx<'a>);

impl<'a> Deref for SideCx<'a> {
    type Target = Cx<'a>;

    fn deref(&self) -> &Cx<'a> {
        &self.0
    }
}

impl DerefMut for SideCx<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl Drop for SideCx<'_> {
    fn drop(&mut self) {
        if self.0.side == Some(Side::Before) {
            self.0.array.swap_memberships();
        }
    }
}

impl<'a> ArrayView<'a> {
    #[inline]
    pub(crate) fn of(array: &'a Array) -> Self {
        Self { array, before: false }
    }

    /// The array in one of the two geometries that it has during a reshape.
    pub(super) fn on(self, side: Side) -> Self {
        Self { before: side == Side::Before, ..self }
    }

    /// Slots of the array, and which of them can be read and written.
    #[inline]
    pub(super) fn membership(self) -> &'a Membership {
        if self.before { &self.array.membership_before } else { &self.array.membership }
    }

    /// Progress of the reshape. Panics if there is none.
    pub(super) fn reshape(self) -> &'a Reshape {
        self.array.reshape()
    }

    /// Whether the copies of the array sectors below `end` may be written, because they overwrite
    /// no sector that a restart of the reshape would read.
    pub(super) fn may_copy_to(self, end: Sectors) -> bool {
        self.array.may_copy_to(end)
    }

    #[inline]
    pub(super) fn is_planted(self, mutant: Mutant) -> bool {
        self.array.is_planted(mutant)
    }

    /// Size of the array as clients see it.
    pub(super) fn size(self) -> Sectors {
        self.array.size
    }

    /// Number of data sectors that the array uses of each member.
    pub(super) fn member_size(self) -> Sectors {
        self.array.member_size
    }

    /// Granularity of requests, a power of two.
    #[inline]
    pub(super) fn request_unit(self) -> Bytes {
        self.array.request_unit
    }

    /// Whether every member failure has been recorded in the superblocks, or can no longer be
    /// recorded.
    #[inline]
    pub(super) fn is_known(self) -> bool {
        self.array.is_known()
    }

    /// Whether every member frees discarded sectors; otherwise a discard would gain nothing.
    pub(super) fn can_discard(self) -> bool {
        self.array.can_discard()
    }

    /// Whether lack of space on a member is the only reason why members may disagree.
    pub(super) fn resyncs_only_for_space(self) -> bool {
        self.array.resyncs_only_for_space()
    }

    /// Slots of the members under recovery, and the lowest recovery offset among them; `None`
    /// without a recovery.
    pub(super) fn rebuilding(self) -> Option<(SlotSet, Sectors)> {
        self.array.rebuilding()
    }

    /// Position of the member at a slot; `None` if the slot has none or the member failed.
    #[inline]
    pub(super) fn position_at(self, slot: Slot) -> Option<usize> {
        self.array.position_at(slot)
    }

    /// Position of the member with an index; `None` if it has left.
    #[inline]
    pub(super) fn position_of(self, index: MemberIndex) -> Option<usize> {
        self.array.position_of(index)
    }

    /// Slot of the member at `position`; `None` for a spare, a replacement and a failed member.
    #[inline]
    pub(super) fn slot_of(self, position: usize) -> Option<Slot> {
        self.array.members[position].slot
    }

    /// Whether a member is a rotating disk.
    pub(super) fn rotates(self) -> bool {
        self.array.members.iter().any(|member| member.info.device.rotational)
    }

    /// Bytes of a logical block of the member at `position`.
    #[inline]
    pub(super) fn logical_block(self, position: usize) -> u64 {
        self.array.members[position].info.logical_block.into()
    }

    #[inline]
    pub(super) fn read_state(self, position: usize) -> ReadState {
        let member = &self.array.members[position];
        ReadState {
            pending: member.in_flight,
            rotational: member.info.device.rotational,
            stalled: member.stalled,
            write_mostly: member.write_mostly,
        }
    }

    /// Whether a request to the member at `position` is sent at once instead of waiting in the
    /// member's queue.
    #[inline]
    pub(super) fn passes(self, position: usize) -> bool {
        self.array.passes(position)
    }

    /// Whether the array would be broken without the member at `position`.
    pub(super) fn breaks(self, position: usize) -> bool {
        self.array.breaks(position)
    }

    /// Whether the array fails members that it needs: a mirror does, with the knob `fail_last_dev`.
    pub(super) fn fails_last(self, knobs: &Knobs) -> bool {
        self.array.fails_last(knobs)
    }

    /// I/O class of the member requests of the running sync.
    #[inline]
    pub(super) fn sync_class(self) -> Class {
        self.array.sync_class
    }
}

impl<'a> Cx<'a> {
    #[inline]
    pub(crate) fn new(array: &'a mut Array, knobs: &'a Knobs, out: &'a mut Outbox) -> Self {
        Self { array, knobs, out, side: None }
    }

    /// The context for one of the two geometries that the array has during a reshape.
    pub(super) fn on(&mut self, side: Side) -> SideCx<'_> {
        if side == Side::Before {
            self.array.swap_memberships();
        }
        SideCx(Cx { array: self.array, knobs: self.knobs, out: self.out, side: Some(side) })
    }

    /// Calls `act` with the array's own membership in place, even in a context for the geometry
    /// before a reshape. Returns the result of `act`.
    fn whole<T>(&mut self, act: impl FnOnce(&mut Array, &mut Outbox) -> T) -> T {
        if self.side != Some(Side::Before) {
            return act(self.array, self.out);
        }
        self.array.swap_memberships();
        let result = act(self.array, self.out);
        self.array.swap_memberships();
        result
    }

    #[inline]
    pub(super) fn view(&self) -> ArrayView<'_> {
        ArrayView { array: self.array, before: false }
    }

    /// Slots of the array, and which of them can be read and written.
    #[inline]
    pub(super) fn membership(&self) -> &Membership {
        &self.array.membership
    }

    /// Whether data may be written: the superblocks durably record that writes may be in flight.
    /// Copies of a reshape may be written without that record: after a crash, all data past the
    /// recorded position is copied again.
    #[inline]
    pub(super) fn may_write(&self) -> bool {
        self.array.is_dirty() || self.side == Some(Side::After)
    }

    /// Number of sectors to add to a data sector of the member at `position`, as the personality
    /// counts it, to get the array's data sector. Zero unless the context is for one of the two
    /// geometries of a reshape.
    #[cold]
    fn shift(&self, position: usize) -> Sectors {
        self.side.map_or(Sectors::ZERO, |side| self.array.members[position].shift(side))
    }

    /// [`Cx::shift`] of the member at `slot`; zero if the slot has no member.
    fn shift_at(&self, slot: Slot) -> Sectors {
        self.array.position_at(slot).map_or(Sectors::ZERO, |position| self.shift(position))
    }

    /// Discards the copies of a reshape past the recorded position, so that they are made again.
    /// Returns `false` if that is not possible, because a newer position is being recorded.
    pub(super) fn forget_copied(&mut self) -> bool {
        self.array.forget_copied()
    }

    /// Requests that the superblocks record how far the reshape has come.
    pub(super) fn record_reshape(&mut self) {
        self.array.record_reshape();
    }

    #[inline]
    pub(super) fn is_planted(&self, mutant: Mutant) -> bool {
        self.membership().is_planted(mutant)
    }

    #[inline]
    pub(super) fn now(&self) -> Time {
        self.out.now
    }

    // Requests to members.

    /// Orders a read or write of the member at `slot`, with `parts` as its memory; it may be merged
    /// with other requests. The answer goes to `completion`. Returns whether the slot has a member.
    #[inline(always)]
    pub(super) fn stage(
        &mut self,
        slot: Slot,
        request: &MemberRequest,
        parts: &[Segment],
        completion: CompletionTarget,
    ) -> bool {
        let Some(position) = self.array.position_at(slot) else { return false };
        self.stage_at(position, request, parts, completion);
        true
    }

    /// Like [`Cx::stage`] for a write that fills the member at `slot`: it goes to the slot's
    /// replacement if there is one.
    pub(super) fn stage_fill(
        &mut self,
        slot: Slot,
        request: &MemberRequest,
        parts: &[Segment],
        completion: CompletionTarget,
    ) -> bool {
        self.array.stage_fill(slot, request, parts, completion, self.out)
    }

    /// Like [`Cx::stage`], for the member at `position`.
    #[inline(always)]
    pub(super) fn stage_at(
        &mut self,
        position: usize,
        request: &MemberRequest,
        parts: &[Segment],
        completion: CompletionTarget,
    ) {
        match self.side {
            None => self.array.stage(position, request, parts, completion, self.out),
            Some(side) => self.stage_on(side, position, request, parts, completion),
        }
    }

    #[cold]
    fn stage_on(
        &mut self,
        side: Side,
        position: usize,
        request: &MemberRequest,
        parts: &[Segment],
        completion: CompletionTarget,
    ) {
        let request = MemberRequest { sector: request.sector + self.shift(position), ..*request };
        // A read past the stripe cache is the same on both sides, and may outlast the reshape.
        let is_straight = StraightPart::of(completion).is_some();
        let completion = if is_straight { completion } else { side.mark(completion) };
        self.array.stage(position, &request, parts, completion, self.out);
    }

    /// Largest length in bytes that `request` may have at the member at `slot` without being split
    /// into two member requests: the room left in an earlier request to which it would be appended,
    /// or the maximum of a new one. `None` if the slot has no member.
    pub(super) fn room(&self, slot: Slot, request: &MemberRequest) -> Option<u64> {
        let position = self.array.position_at(slot)?;
        if self.side.is_none() {
            return Some(self.array.room(position, request, self.out));
        }
        let sector = request.sector + self.shift(position);
        Some(self.array.room(position, &MemberRequest { sector, ..*request }, self.out))
    }

    /// Sends a discard to the member at `position`, and to its replacement. The answer goes to
    /// [`super::Personality::discard_done`].
    pub(super) fn discard(&mut self, position: usize, discard: &MemberDiscard) {
        assert!(self.side.is_none(), "nothing is discarded during a reshape");
        let MemberDiscard { request, first, len, counted, fua, attr } = *discard;
        let sectors = SectorRange { start: first, len };
        self.array.discard(position, (sectors, counted), (request, fua, &attr), self.out);
    }

    // Computations.

    /// Returns an empty list of compute operations, which reuses the allocation of an earlier list
    /// if possible.
    pub(super) fn ops(&mut self) -> Vec<ComputeOp> {
        self.out.ops()
    }

    /// Starts a computation. Its result goes to [`super::Personality::compute_done`].
    pub(super) fn compute(&mut self, job: JobId, ops: Vec<ComputeOp>) {
        let job = self.side.map_or(job, |side| side.mark_job(job));
        self.out.compute(self.array.volume, job, ops);
    }

    // Reports on members.

    /// Records that `sectors` of the data of `member` were written and are no longer bad.
    #[cold]
    pub(super) fn written_over(&mut self, member: Option<MemberIndex>, sectors: SectorRange) {
        let position = member.and_then(|member| self.array.position_of(member));
        let shift = position.map_or(Sectors::ZERO, |position| self.shift(position));
        self.whole(|array, _| array.written_over(member, sectors.moved_up(shift)));
    }

    /// Passes a report about a member to the array.
    pub(super) fn report(&mut self, report: Report) {
        let report = report.moved_up(self.shift_at(report.slot()));
        let knobs = self.knobs;
        self.whole(|array, out| array.report(report, knobs, out));
    }

    /// Fails the member at `position`, which did not write data that other members wrote. If the
    /// array needs the member, the array is broken instead.
    pub(super) fn fail(&mut self, position: usize) {
        let knobs = self.knobs;
        self.whole(|array, out| array.fail(position, knobs, out));
    }

    /// Fails the member that is filled to replace the one at `slot`, if there is one.
    #[cold]
    pub(super) fn fail_replacement(&mut self, slot: Slot) {
        self.whole(|array, out| array.fail_replacements(SlotSet::only(slot), out));
    }

    /// Fails the member at `position` because of `fault`, the error of a write. If the array needs
    /// the member and the member is not gone, the array is broken instead.
    pub(super) fn fail_for(&mut self, position: usize, fault: Fault) {
        let knobs = self.knobs;
        self.whole(|array, out| array.fail_for(position, fault, knobs, out));
    }

    /// Fails the member at `position`, which is gone or useless, even if the array cannot run
    /// without it.
    pub(super) fn lose(&mut self, position: usize) {
        self.whole(|array, out| array.lose(position, out));
    }

    /// Records that the member in sync at `slot` failed to write `sectors` of its data. `lost` is
    /// true if the other members cannot supply the data either. Returns whether the member stays in
    /// use, with bad blocks.
    #[cold]
    pub(super) fn records_unwritten(
        &mut self,
        slot: Slot,
        sectors: SectorRange,
        lost: bool,
    ) -> bool {
        let position = self.array.position_at(slot);
        let sectors = sectors.moved_up(self.shift_at(slot));
        self.whole(|array, out| {
            array.membership.records_unwritten(slot)
                && position.is_some_and(|it| array.records_bad(it, sectors, lost, out))
        })
    }

    /// Counts a read error of the member at `position`.
    pub(super) fn count_read_error(&mut self, position: usize) {
        self.array.members[position].read_errors += 1;
    }

    /// Records that the member at `position` cannot discard.
    pub(super) fn cannot_discard(&mut self, position: usize) {
        self.array.members[position].info.discards = false;
    }

    /// Records that the member at `position` has space again, so that the next lack of space counts
    /// as a new one.
    pub(super) fn has_space(&mut self, position: usize) {
        self.array.members[position].full_since = None;
    }

    /// Records that members may disagree from `sector` on, because a member had no space for a
    /// write or a discard. The members at the slots `missed` may lack data that the level does not
    /// keep for a later write.
    pub(super) fn resync_for_space(&mut self, sector: Sectors, missed: SlotSet) {
        self.whole(|array, _| array.resync_for_space(sector, missed));
    }

    /// Records that copies of the array's data may differ from `sector` on, because a member that
    /// the array needs failed to write its copy.
    pub(super) fn copies_may_differ(&mut self, sector: Sectors) {
        self.whole(|array, _| array.copies_may_differ(sector));
    }

    // Counters of the turn's work.

    pub(super) fn count_attaches(&mut self, count: u32) {
        self.out.work.attaches += count;
    }

    pub(super) fn count_follower(&mut self) {
        self.out.work.followers += 1;
    }
}
