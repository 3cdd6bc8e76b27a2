//! Context of a personality: its access to the array, and the actions that it can order.
//!
//! An `ArrayView` answers questions about the array and changes nothing; its methods identify a
//! member by position or by slot. `Cx` can also order actions: requests to members, computations,
//! and reports about members. Neither exposes the array or a member itself, so this list of methods
//! is all that a level can do to the array.

use weft_units::{Bytes, MemberIndex, SectorRange, Sectors, Slot, Time};

use crate::array::Array;
use crate::array::membership::{Membership, Report};
use crate::array::outbox::{CompletionTarget, JobId, Outbox};
use crate::contract::frame::Segment;
use crate::contract::input::{Attr, Class, Fault};
use crate::contract::output::ComputeOp;
use crate::contract::token::RequestId;
use crate::knobs::Knobs;
use crate::layout::slot_set::SlotSet;
use crate::mutant::Mutant;
use crate::sched::request::MemberRequest;

/// The array as a personality sees it.
#[derive(Clone, Copy)]
pub(crate) struct ArrayView<'a> {
    array: &'a Array,
}

/// State of a member on which the choice of the member to read from depends.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadState {
    /// Number of outstanding requests.
    pub(super) pending: u32,
    /// Whether the member is a rotating disk.
    pub(super) rotational: bool,
    /// Whether a request has been outstanding for longer than `read_around`.
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
}

impl<'a> ArrayView<'a> {
    #[inline]
    pub(crate) fn of(array: &'a Array) -> Self {
        Self { array }
    }

    /// Slots of the array, and which of them can be read and written.
    #[inline]
    pub(super) fn membership(self) -> &'a Membership {
        &self.array.membership
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

    /// Whether every member frees discarded sectors, so that discards are worth it.
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

    /// Slot of the member at `position`; `None` if it failed.
    #[inline]
    pub(super) fn slot_of(self, position: usize) -> Option<Slot> {
        self.array.members[position].slot
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

    /// Whether the superblocks durably record that writes may be in flight.
    pub(super) fn is_dirty(self) -> bool {
        self.array.is_dirty()
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
        Self { array, knobs, out }
    }

    #[inline]
    pub(super) fn view(&self) -> ArrayView<'_> {
        ArrayView { array: self.array }
    }

    /// Slots of the array, and which of them can be read and written.
    #[inline]
    pub(super) fn membership(&self) -> &Membership {
        &self.array.membership
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
        self.array.stage(position, request, parts, completion, self.out);
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
        self.array.stage(position, request, parts, completion, self.out);
    }

    /// Largest length in bytes that `request` may have at the member at `slot` without being split
    /// into two member requests: the room left in an earlier request to which it would be appended,
    /// or the maximum of a new one. `None` if the slot has no member.
    pub(super) fn room(&self, slot: Slot, request: &MemberRequest) -> Option<u64> {
        let position = self.array.position_at(slot)?;
        Some(self.array.room(position, request, self.out))
    }

    /// Sends a discard to the member at `position`, and to its replacement. The answer goes to
    /// [`super::Personality::discard_done`].
    pub(super) fn discard(&mut self, position: usize, discard: &MemberDiscard) {
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
        self.out.compute(self.array.volume, job, ops);
    }

    // Reports on members.

    /// Records that `sectors` of the data of `member` were written, so that they are not bad.
    #[cold]
    pub(super) fn written_over(&mut self, member: Option<MemberIndex>, sectors: SectorRange) {
        self.array.written_over(member, sectors);
    }

    /// Passes a report about a member to the array.
    pub(super) fn report(&mut self, report: Report) {
        self.array.report(report, self.out);
    }

    /// Fails the member at `position`, which did not write data that other members wrote.
    pub(super) fn fail(&mut self, position: usize) {
        self.array.fail(position, self.out);
    }

    /// Fails the member that is filled to replace the one at `slot`, if there is one.
    #[cold]
    pub(super) fn fail_replacement(&mut self, slot: Slot) {
        self.array.fail_replacements(SlotSet::only(slot), self.out);
    }

    /// Fails the member at `position` because of `fault`, the error of a write.
    pub(super) fn fail_for(&mut self, position: usize, fault: Fault) {
        self.array.fail_for(position, fault, self.out);
    }

    /// Fails the member at `position`, which is gone or useless, even if the array cannot run
    /// without it.
    pub(super) fn lose(&mut self, position: usize) {
        self.array.lose(position, self.out);
    }

    /// Records that the member in sync at `slot` failed to write `sectors` of its data. `lost`
    /// tells that the other members do not give it. Returns whether the member stays in use, with
    /// bad blocks.
    #[cold]
    pub(super) fn records_unwritten(
        &mut self,
        slot: Slot,
        sectors: SectorRange,
        lost: bool,
    ) -> bool {
        let position = self.array.position_at(slot);
        self.array.membership.records_unwritten(slot)
            && position.is_some_and(|it| self.array.records_bad(it, sectors, lost, self.out))
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
    /// keep to write it later.
    pub(super) fn resync_for_space(&mut self, sector: Sectors, missed: SlotSet) {
        self.array.resync_for_space(sector, missed);
    }

    /// Records that copies of the array's data may differ from `sector` on, because a member that
    /// the array needs failed to write its copy.
    pub(super) fn copies_may_differ(&mut self, sector: Sectors) {
        self.array.copies_may_differ(sector);
    }

    // Counters of the turn's work.

    pub(super) fn count_attaches(&mut self, count: u32) {
        self.out.work.attaches += count;
    }

    pub(super) fn count_follower(&mut self) {
        self.out.work.followers += 1;
    }
}
