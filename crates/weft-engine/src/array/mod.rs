//! Array of one volume: membership, clean state, superblock updates and flush rounds.
//!
//! A personality asks the array which members can be read and written, and reports failures to it.
//!
//! Superblock updates are in `superblock_update`, the clean state and the leases of writes in
//! `write_intent`, and members without space in `space`. The addition, removal and return of
//! members are in `spare`, the replacement of members that still work in `replace` and `twin`, the
//! bad blocks of members in `bad_blocks`, and changes of the geometry in `reshape`.
//!
//! Source   md-raid.md §6

pub(crate) mod bad_blocks;
pub mod flush;
pub(crate) mod issuer;
pub(crate) mod member;
pub(crate) mod membership;
pub(crate) mod outbox;
mod replace;
pub(crate) mod reshape;
mod resize;
pub(crate) mod resync_window;
pub(crate) mod served;
mod space;
mod spare;
pub(crate) mod superblock_update;
pub(crate) mod sync_pace;
pub(crate) mod twin;
mod write_errors;
pub(crate) mod write_intent;

use smallvec::smallvec;
use weft_ondisk::{Features, Role, Superblock};
use weft_units::{Bytes, FRAME_BYTES, MemberIndex, SectorRange, Sectors, Slot, Time, VolumeId};

use self::superblock_update::{Corrections, FlushFor, NEVER, SuperblockUpdates};
use self::write_intent::bitmap::IntentBitmap;
use self::write_intent::bitmap_change::BitmapChange;
use self::write_intent::{CleanState, WriteIntent};

use crate::array::bad_blocks::BadLog;
use crate::array::flush::flush_batch::FlushBatch;
use crate::array::issuer::Issuer;
use crate::array::member::Member;
use crate::array::membership::{Membership, Report};
use crate::array::outbox::{CompletionTarget, Outbox, Outstanding, Owner, PassedRequest};
use crate::array::reshape::Reshape;
use crate::array::resize::Resize;
use crate::array::twin::Twins;
use crate::assemble::{Assembly, Replacement, SlotState};
use crate::config::VolumeSource;
use crate::contract::frame::Segment;
use crate::contract::input::{Attr, Class, ClientRequest, Fault, Replace, RequestOp};
use crate::contract::member::{MemberInfo, MemberState};
use crate::contract::output::{MemberOp, Notice};
use crate::contract::token::RequestId;
use crate::knobs::Knobs;
use crate::layout::Layout;
use crate::layout::slot_set::SlotSet;
use crate::layout::tolerance::Tolerance;
use crate::mutant::Mutant;
use crate::sched::member_queue::QueueSettings;
use crate::sched::request::MemberRequest;

/// One array: its members, the state that superblocks record, and the updates in progress.
#[derive(Clone, Debug)]
pub(crate) struct Array {
    pub(crate) volume: VolumeId,
    /// Size of the array as clients see it.
    pub(crate) size: Sectors,
    /// Number of data sectors that the array uses of each member.
    pub(crate) member_size: Sectors,
    /// Whether the array has no superblocks: its updates write none.
    pub(super) is_built: bool,
    /// Granularity of requests, a power of two: the first byte and the length of a request must be
    /// multiples of it.
    pub(crate) request_unit: Bytes,
    pub(crate) members: Vec<Member>,
    pub(crate) membership: Membership,
    /// Membership of the geometry before a reshape; not used without a reshape.
    pub(crate) membership_before: Membership,
    /// I/O class for the member requests of the running sync.
    pub(crate) sync_class: Class,
    /// For each slot, the position of its member in `members`; `None` if the slot is empty or its
    /// member failed.
    slots: Vec<Option<usize>>,
    /// Position in `members` of the member with each [`MemberIndex`]; `None` after it has left.
    positions: Vec<Option<usize>>,
    /// Role of each member number, as recorded in superblocks.
    roles: Vec<Role>,
    /// Layout of the data; `None` for a member without metadata.
    layout: Option<Layout>,
    /// Write-intent bitmap; `None` if the array has none.
    bitmap: Option<Box<IntentBitmap>>,
    /// Addition or removal of the bitmap that the next superblock update has to make; `None` if the
    /// bitmap stays as it is.
    bitmap_change: Option<BitmapChange>,
    events: u64,
    epoch_secs: u64,
    intent: WriteIntent,
    updates: SuperblockUpdates,
    pub(crate) flushes: FlushBatch<FlushFor>,
    /// Client requests for which all member flushes have ended, each with the result of the
    /// flushes.
    flushed: Vec<(RequestId, Result<(), Fault>)>,
    /// Result of the last round of member flushes. The result is an error only if the flush failed
    /// on a member that the array cannot run without; any other member with a failed flush is
    /// failed instead.
    flush_result: Result<(), Fault>,
    corrections: Corrections,
    /// Number of flushes requested so far to make corrected strips durable.
    corrections_flushes: u64,
    /// Whether `resync_from` is set only because members had no space, while the array still has
    /// redundancy.
    resyncs_for_space: bool,
    /// First sector of the array from which copies may differ: one member has written its copy
    /// there, and another one, which the array cannot run without, failed to write its own. `None`
    /// if there is no such sector.
    unwritten_from: Option<Sectors>,
    /// Slots of members that may lack data of a write because they had no space for it. The level
    /// of the array does not keep such data to write it later, so only a resync makes these members
    /// agree with the others.
    missed_for_space: SlotSet,
    /// Members that are to be replaced, each with the spare that was named for it, if one was.
    to_replace: Vec<Replace>,
    /// Writes in progress to a member that is being replaced and to its replacement.
    twins: Twins,
    /// Reshape under way; `None` if there is none.
    reshape: Option<Box<Reshape>>,
    /// Number of the superblock update that records the end of the last reshape; 0 if there was
    /// none. The next reshape begins after that update.
    reshape_ended: u64,
    /// Change of the layout that moves no data; `None` if there is none.
    resize: Option<Box<Resize>>,
}

impl Array {
    /// Creates the array of a volume, without requests.
    pub(crate) fn new(volume: VolumeId, source: &VolumeSource, epoch_secs: u64, now: Time) -> Self {
        match source {
            VolumeSource::Array(assembly) => Self::assembled(volume, assembly, epoch_secs, now),
            VolumeSource::Single { member, read_only } => {
                Self::single(volume, member, *read_only, now)
            }
        }
    }

    /// Creates the array of a single member without metadata.
    fn single(volume: VolumeId, member: &MemberInfo, read_only: bool, now: Time) -> Self {
        let (size, slot) = (member.size, Some(Slot(0)));
        let tolerance = Tolerance::AnyOf { data_members: 1 };
        let membership = Membership::new(1, tolerance, read_only, None);
        let members = vec![Member::new(member.clone(), None, slot, MemberState::InSync, size)];
        let intent = WriteIntent::new(CleanState::Dirty, now);
        let mut array = Self::of_members(volume, members, membership, intent);
        (array.size, array.member_size) = (size, size);
        array.request_unit = Bytes(member.logical_block.into());
        array.slots = vec![Some(0)];
        array.recount();
        array.index_members();
        array
    }

    fn assembled(volume: VolumeId, assembly: &Assembly, epoch_secs: u64, now: Time) -> Self {
        let layout = &assembly.layout;
        let mut members = Vec::new();
        let mut slots = vec![None; assembly.slots.len()];
        for (state, slot) in assembly.slots.iter().zip(0u16..) {
            let (member, state) = match state {
                SlotState::InSync(member) => (member, MemberState::InSync),
                SlotState::Rebuilding { member, recovery_offset } => {
                    (member, MemberState::Rebuilding { recovery_offset: *recovery_offset })
                }
                SlotState::Missing => continue,
            };
            slots[usize::from(slot)] = Some(members.len());
            let (info, superblock) = (member.info.clone(), member.superblock.clone());
            let bad = bad_log_of(member);
            let follows = superblock.features().contains(Features::RECOVERY_BITMAP);
            let (slot, size) = (Some(Slot(slot)), layout.size_at(Slot(slot)));
            let mut member = Member::new(info, Some(superblock), slot, state, size);
            member.bad = bad;
            member.follows_bitmap = follows && assembly.bitmap().is_some();
            members.push(member);
        }
        let freshest = members
            .iter()
            .max_by_key(|member| member.superblock().events())
            .expect("an array that was assembled has members");
        // A reserved number in the table of roles belongs to no member.
        let role_of = |number| freshest.superblock().role(number).unwrap_or(Role::Spare);
        let numbers = freshest.superblock().role_count() as u32;
        let mut roles: Vec<Role> = (0..numbers).map(role_of).collect();
        for replacement in &assembly.replacements {
            let member = filled_beside(replacement, layout);
            // A crash may have cut off the binding of the replacement before any superblock but the
            // replacement's own recorded it.
            set_role(&mut roles, member.number, Role::Active(replacement.slot));
            members.push(member);
        }
        for member in &assembly.spares {
            let (info, superblock) = (member.info.clone(), Some(member.superblock.clone()));
            let size = layout.member_size();
            members.push(Member::new(info, superblock, None, MemberState::Spare, size));
        }
        if !assembly.read_only {
            agree_about_bitmap(&mut members, assembly);
        }
        // A number with a role but without a member counts as failed.
        for (role, number) in roles.iter_mut().zip(0u32..) {
            let here = members.iter().any(|it| it.written_slot().is_some() && it.number == number);
            if matches!(role, Role::Active(_)) && !here {
                *role = Role::Faulty;
            }
        }
        let (read_only, resync_from) = (assembly.read_only, assembly.resync_from);
        let membership = Membership::new(slots.len(), layout.tolerance(), read_only, resync_from);
        let says_dirty = resync_from.is_some() && membership.is_redundant;
        let clean_state = if resync_from.is_some() || !membership.is_redundant {
            CleanState::Dirty
        } else {
            CleanState::Clean
        };
        // With parity, a request may cover a part of a logical block: the stripe cache reads and
        // rewrites the rest.
        let blocks = members.iter().map(|member| member.info.logical_block);
        let block = blocks.max().filter(|_| layout.parity().is_none());
        let intent = WriteIntent::new(clean_state, now);
        let mut array = Self {
            size: layout.array_size(),
            member_size: layout.member_size(),
            is_built: assembly.is_built,
            slots,
            roles,
            request_unit: Bytes(block.unwrap_or(1).into()),
            layout: Some(layout.clone()),
            bitmap: Self::bitmap_of(assembly, now),
            events: assembly.events,
            epoch_secs,
            ..Self::of_members(volume, members, membership, intent)
        };
        array.recount();
        array.index_members();
        array.continue_reshape(assembly.reshape.as_ref());
        // The dirty state is recorded before the first write, because a crash from now on must find
        // the array dirty.
        if says_dirty && !array.membership.read_only {
            let number = array.want_update();
            array.intent.state = CleanState::BecomingDirty(number);
        }
        array.record_absent_members();
        array
    }

    /// Bitmap of an array that is assembled for writing; `None` if it has none.
    fn bitmap_of(assembly: &Assembly, now: Time) -> Option<Box<IntentBitmap>> {
        let (bitmap, _) = assembly.united_bitmap()?;
        let in_sync = assembly.slots.iter().filter_map(|state| match state {
            SlotState::InSync(member) => Some(member.superblock.events()),
            SlotState::Missing | SlotState::Rebuilding { .. } => None,
        });
        let least = in_sync.min().unwrap_or(assembly.events);
        let from = assembly.resync_from;
        let needed = bitmap.resync_ranges(assembly.degraded() > 0, assembly.events, from);
        let needed = needed.filter(|_| from.is_some());
        let layout = assembly.layout.clone();
        Some(Box::new(IntentBitmap::new(&bitmap, layout, needed, least, now)))
    }

    /// Creates an array of members. The caller adds layout and slots.
    fn of_members(
        volume: VolumeId,
        members: Vec<Member>,
        membership: Membership,
        intent: WriteIntent,
    ) -> Self {
        Self {
            volume,
            size: Sectors::ZERO,
            member_size: Sectors::ZERO,
            is_built: false,
            request_unit: Bytes(1),
            members,
            membership_before: membership.clone(),
            membership,
            sync_class: Class::None,
            slots: Vec::new(),
            positions: Vec::new(),
            roles: Vec::new(),
            layout: None,
            bitmap: None,
            bitmap_change: None,
            events: 0,
            epoch_secs: 0,
            intent,
            updates: SuperblockUpdates::default(),
            flushes: FlushBatch::default(),
            flushed: Vec::new(),
            flush_result: Ok(()),
            // Members may hold corrections of a former process that were not flushed.
            corrections: Corrections::Written,
            corrections_flushes: 0,
            resyncs_for_space: false,
            unwritten_from: None,
            missed_for_space: SlotSet::EMPTY,
            to_replace: Vec::new(),
            twins: Twins::default(),
            reshape: None,
            reshape_ended: 0,
            resize: None,
        }
    }

    #[cfg(feature = "mutants")]
    pub(crate) fn plant(&mut self, mutant: Mutant) {
        self.membership.plant(mutant);
        self.flushes.plant(mutant);
    }

    #[inline]
    pub(crate) fn is_planted(&self, mutant: Mutant) -> bool {
        self.membership.is_planted(mutant)
    }

    // Members that can be read and written.

    /// Member at `slot`; `None` if the slot is empty or its member failed.
    pub(crate) fn at(&self, slot: Slot) -> Option<&Member> {
        self.slots[slot.index()].map(|position| &self.members[position])
    }

    /// Position in `members` of the member at `slot`; `None` if the slot is empty or its member
    /// failed.
    pub(crate) fn position_at(&self, slot: Slot) -> Option<usize> {
        self.slots[slot.index()]
    }

    pub(crate) fn position_of(&self, index: MemberIndex) -> Option<usize> {
        self.positions.get(index.index()).copied().flatten()
    }

    /// Rebuilds `positions`, after members were added or removed.
    fn index_members(&mut self) {
        self.positions.fill(None);
        for (position, member) in self.members.iter().enumerate() {
            let index = member.info.index.index();
            if self.positions.len() <= index {
                self.positions.resize(index + 1, None);
            }
            let other = self.positions[index].replace(position);
            assert!(other.is_none(), "a member index stands for one member");
        }
    }

    /// Whether other members can supply the data of the member at `position`, while stalled members
    /// are not read.
    pub(crate) fn can_read_around(&self, position: usize) -> bool {
        let slot = self.members[position].slot;
        slot.is_some_and(|slot| self.membership.can_read_around(slot))
    }

    /// Number of slots.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Update count (`events`) that the superblocks have.
    pub(crate) fn events(&self) -> u64 {
        self.events
    }

    /// Time of the last superblock update, in seconds since 1970; `None` for a member without
    /// metadata.
    pub(crate) fn updated_secs(&self) -> Option<u64> {
        let superblocks = self.members.iter().filter_map(Member::superblock_if_any);
        superblocks.map(|superblock| superblock.utime().secs).max()
    }

    fn recount(&mut self) {
        self.check_slots();
        self.membership.recount(&self.members);
        self.recount_before();
        for member in &mut self.members {
            member.to_give_up |= member.stalled && member.in_flight > 0;
        }
    }

    /// Asserts that slots and members refer to each other.
    fn check_slots(&self) {
        for (position, slot) in self.slots.iter().zip(0u16..) {
            let Some(position) = position else { continue };
            let member = &self.members[*position];
            assert_eq!(member.slot, Some(Slot(slot)), "{:?} is at slot {slot}", member.info.index);
            assert!(!member.is_faulty(), "a faulty member has left its slot");
        }
    }

    pub(crate) fn set_stalled(&mut self, position: usize, stalled: bool) {
        self.members[position].stalled = stalled;
        self.recount();
    }

    /// Whether the superblocks record every member failure, or no failure can be recorded any more
    /// because the array is read-only or broken.
    pub(crate) fn is_known(&self) -> bool {
        self.failures_recorded() || self.membership.broken
    }

    /// Whether every member frees discarded sectors; otherwise a discard would gain nothing.
    pub(crate) fn can_discard(&self) -> bool {
        let slots = self.membership.present();
        slots.ascending().all(|slot| self.at(slot).is_some_and(|member| member.info.discards))
            && (self.membership.replaced().is_empty()
                || self.members.iter().all(|it| it.replaces.is_none() || it.info.discards))
    }

    // Membership.

    /// Fails a member that could not flush, could not write the array's own data, or was declared
    /// failed. A member that the array needs stays in use, as in md (`MD_BROKEN`), because it may
    /// still answer reads; but the array is broken and takes no writes until it is assembled again.
    /// Therefore no flush is acknowledged after a failed one: data that the failed flush covered
    /// may be lost, and a later flush would not report the loss. Superblocks record none of this.
    /// With the knob `fail_last_dev` a mirror takes such a member out of use as well.
    pub(crate) fn fail(&mut self, position: usize, knobs: &Knobs, out: &mut Outbox) {
        let keeps = self.breaks(position) && !self.fails_last(knobs);
        if keeps && !self.members[position].is_faulty() {
            self.declare_broken(out);
        } else {
            self.lose(position, out);
        }
    }

    /// Like [`Array::fail`], after a fault of a member request. A member that is gone is taken out
    /// of use in any case, because it cannot be read either.
    pub(crate) fn fail_for(
        &mut self,
        position: usize,
        fault: Fault,
        knobs: &Knobs,
        out: &mut Outbox,
    ) {
        if fault == Fault::Gone {
            self.lose(position, out);
        } else {
            self.fail(position, knobs, out);
        }
    }

    fn declare_broken(&mut self, out: &mut Outbox) {
        if !std::mem::replace(&mut self.membership.broken, true) {
            out.notice(Notice::Broken(self.volume));
        }
        self.updates.records_failures = NEVER;
    }

    /// Takes a member out of use because it is gone, or because its strips no longer match the
    /// others. If too few members are left the array is broken, and the superblocks of the other
    /// members are left unchanged.
    pub(crate) fn lose(&mut self, position: usize, out: &mut Outbox) {
        let member = &self.members[position];
        if member.is_faulty() {
            return;
        }
        let breaks = self.breaks(position);
        let notice = Notice::MemberFailed {
            volume: self.volume,
            member: member.info.index,
            slot: member.slot,
        };
        let (number, slot) = (member.number as usize, member.slot);
        if let Some(slot) = slot {
            self.slots[slot.index()] = None;
            self.missed_for_space.remove(slot);
        }
        let member = &mut self.members[position];
        member.state = MemberState::Faulty;
        member.to_give_up = member.in_flight > 0;
        member.slot = None;
        if let Some(bitmap) = &mut self.bitmap {
            bitmap.members_changed();
        }
        let member = &mut self.members[position];
        (member.full_since, member.superblock_full_since) = (None, None);
        member.replaces = None;
        let index = member.info.index;
        self.forget_to_replace(index);
        if let Some(slot) = slot.filter(|_| !breaks) {
            self.promote_replacement(slot);
        }
        self.recount();
        assert!(!self.slots.contains(&Some(position)), "a failed member holds no slot");
        out.notice(notice);
        if breaks || self.membership.broken {
            self.declare_broken(out);
            return;
        }
        if let Some(role) = self.roles.get_mut(number) {
            *role = Role::Faulty;
        }
        // A resync for lack of space is cancelled before the superblock update that records the
        // failure, because the array may be stopped right after that update.
        if !self.members.iter().any(|member| member.full_since.is_some()) {
            let left_agree = if self.missed_for_space.is_empty() {
                self.membership.degraded() > 0
            } else {
                !self.membership.has_redundancy()
            };
            self.take_back_resync_for_space(left_agree);
        }
        if !self.membership.read_only {
            let number = self.want_update();
            self.updates.records_failures = self.updates.records_failures.max(number);
        }
    }

    /// Whether the array would be broken without the member at `position`.
    pub(crate) fn breaks(&self, position: usize) -> bool {
        let slot = self.members[position].slot;
        let by_count = self.is_planted(Mutant::ToleratesByCount) && self.membership.degraded() > 0;
        slot.is_some_and(|slot| by_count || self.membership.breaks(slot))
    }

    /// Whether the array fails members that it needs: a mirror does, with the knob `fail_last_dev`.
    ///
    /// Source   md-raid.md §6.7
    pub(crate) fn fails_last(&self, knobs: &Knobs) -> bool {
        let mirrors = matches!(self.layout, Some(Layout::Mirrors(_)));
        knobs.fail_last_dev && mirrors && self.membership.is_redundant
    }

    /// Whether the member at `position` may be failed although it still answers. A member may not
    /// be failed if its superblock records as failed another member that has returned since: after
    /// a restart each of the two would record the other as failed, as if both had been used alone.
    fn may_do_without(&self, position: usize) -> bool {
        let member = &self.members[position];
        let records = |other: &Member| {
            let superblock = member.superblock_if_any();
            let role = |it: &Superblock| it.role(other.number);
            superblock.is_none_or(|it| matches!(role(it), Ok(Role::Active(_))))
        };
        let mut in_sync = self.members.iter().filter(|it| it.state == MemberState::InSync);
        !self.breaks(position) && in_sync.all(records)
    }

    /// Whether the array would be broken without the members at `positions`.
    pub(crate) fn breaks_without(&self, positions: &[usize]) -> bool {
        let slots = positions.iter().filter_map(|position| self.members[*position].slot);
        self.membership.breaks_without(slots)
    }

    /// Handles a personality's report about a member.
    pub(crate) fn report(&mut self, report: Report, knobs: &Knobs, out: &mut Outbox) {
        let filled = matches!(report, Report::Unrecovered { .. });
        let position =
            if filled { self.filled_at(report.slot()) } else { self.position_at(report.slot()) };
        let Some(position) = position else { return };
        match report {
            Report::Correcting { .. } => self.corrections = Corrections::Written,
            Report::Corrected { sector, sectors, .. } => {
                let member = &mut self.members[position];
                member.counters.corrected += sectors.0;
                let (at, index) = (member.data_sector(sector), member.info.index);
                out.notice(Notice::ReadErrorCorrected { member: index, at, sectors });
                self.written_over(Some(index), SectorRange { start: sector, len: sectors });
            }
            Report::Unrecovered { sector, sectors, .. } => {
                let sectors = SectorRange { start: sector, len: sectors };
                if !self.records_bad(position, sectors, true, out) {
                    self.fail(position, knobs, out);
                }
            }
            Report::Suspect { sector, sectors, .. } => {
                let sectors = SectorRange { start: sector, len: sectors };
                if !self.records_bad(position, sectors, false, out) && self.may_do_without(position)
                {
                    self.fail(position, knobs, out);
                }
            }
            Report::Failed { .. } => self.lose(position, out),
            Report::ReadFailed { most, .. } => {
                let member = &mut self.members[position];
                member.read_errors += 1;
                if member.read_errors > most && self.may_do_without(position) {
                    self.fail(position, knobs, out);
                }
            }
        }
    }

    // Requests to members.

    /// Sends a request of the array itself: a metadata write or a flush.
    fn submit(&mut self, position: usize, op: MemberOp, owner: Owner, out: &mut Outbox) {
        let may_write = !self.membership.read_only || self.is_planted(Mutant::WriteWhileReadOnly);
        let member = &mut self.members[position];
        let written = match &op {
            MemberOp::WriteMetadata { at, bytes } => {
                let bytes = Bytes(bytes.len() as u64);
                let end = *at + bytes.sectors_floor();
                assert!(end <= member.info.size, "metadata lies within its member");
                assert!(may_write, "no metadata is written while read-only");
                Some(bytes)
            }
            _ => None,
        };
        out.submit(self.volume, member, op, &Attr::NONE, owner);
        match written {
            Some(bytes) => member.sent(&Attr::NONE, true, bytes.sectors_floor()),
            None => member.sent_flush(),
        }
    }

    /// Whether the queue of the member at `position` holds no requests back, so that a request is
    /// sent to the member at once.
    #[inline]
    pub(crate) fn passes(&self, position: usize) -> bool {
        self.members[position].queue.passes()
    }

    /// Sends a client's read or write unchanged to the member at `position`; it starts at data
    /// sector `sector`.
    #[inline]
    pub(crate) fn pass(
        &mut self,
        position: usize,
        sector: Sectors,
        request: &ClientRequest,
        issuer: Issuer,
        out: &mut Outbox,
    ) {
        let ClientRequest { frames, attr, range, .. } = *request;
        let (write, length) = (request.op == RequestOp::Write, range.len.sectors_floor());
        assert!(!write || !self.membership.read_only, "no write while read-only");
        let member = &mut self.members[position];
        assert!(sector + length <= member.data_size, "a request lies within the member's data");
        let at = member.data_sector(sector);
        let part = frames.part(range.start.0 % FRAME_BYTES, range.len.0);
        let op = || {
            if write {
                MemberOp::Write { at, from: smallvec![part], fua: request.flags.fua }
            } else {
                MemberOp::Read { at, into: smallvec![part] }
            }
        };
        let (start, len) = (range.start, range.len.0 as u32);
        let passed = PassedRequest { issuer, frames, start, len, attr, gone: false };
        assert!(member.queue.passes(), "a passed request waits in no queue");
        let (to, owner) = (Some(member.info.index), Owner::Passed(passed));
        let outstanding = Outstanding::new(self.volume, to, write, owner, out.now);
        let fua = write && request.flags.fua;
        out.send(member, op, &request.attr, Outstanding { fua, ..outstanding });
        member.sent(&request.attr, write, length);
    }

    /// Adds a read or write of data, with `parts` as its memory, to the member requests of this
    /// turn. Before the member gets the request, it may be merged with the requests staged before
    /// and after it.
    #[inline(always)]
    pub(crate) fn stage(
        &mut self,
        position: usize,
        request: &MemberRequest,
        parts: &[Segment],
        completion: CompletionTarget,
        out: &mut Outbox,
    ) {
        let end = request.sector + request.bytes.sectors_floor();
        assert!(!request.write || !self.membership.read_only, "no write while read-only");
        let member = &mut self.members[position];
        assert!(end <= member.data_size, "a request lies within the member's data");
        if request.write && !self.membership.replaced().is_empty() {
            self.stage_twins(position, request, parts, completion, out);
            return;
        }
        out.stage(self.volume, member, request, parts, completion);
    }

    /// Sets the queues of all members, including new ones, to the values of their knobs.
    /// `in_flight` returns the number of a member's requests that count against its queue depth.
    pub(crate) fn set_queues(
        &mut self,
        knobs: &Knobs,
        mut in_flight: impl FnMut(MemberIndex) -> u32,
    ) {
        let forgets = self.is_planted(Mutant::QueueSwitchForgets);
        for member in &mut self.members {
            let settings = QueueSettings::of(member.knobs.as_deref().unwrap_or(knobs));
            if *member.queue.settings() != settings {
                let in_flight = in_flight(member.info.index);
                if forgets {
                    member.queue.forget_last();
                }
                member.queue.configure(settings, in_flight);
            }
        }
    }

    /// Adds the requests that were staged in this turn to the queues of their members, and sends
    /// the requests that the queues dispatch. `end_plug` is true if no more requests of this plug
    /// follow, so that waiting for them to merge is useless.
    pub(crate) fn unplug_queues(&mut self, end_plug: bool, out: &mut Outbox) {
        let starves = self.is_planted(Mutant::QueueStarves);
        for member in &mut self.members {
            member.queue.unplug(out.now);
            if starves {
                member.queue.starve_one();
            }
            if end_plug {
                member.queue.end_plug();
            }
            out.dispatch(self.volume, member);
        }
    }

    /// Sends the requests that the queues of the members dispatch.
    pub(crate) fn run_queues(&mut self, out: &mut Outbox) {
        self.members.iter_mut().for_each(|member| out.dispatch(self.volume, member));
    }

    /// Takes the waiting requests of a sync out of the I/O class idle, so that they are served
    /// along with client requests.
    pub(crate) fn promote_syncs(&mut self, out: &mut Outbox) {
        for member in self.members.iter_mut().filter(|member| !member.queue.passes()) {
            out.promote_syncs(member);
        }
    }

    /// Time at which a queue may dispatch even if no member completes a request; `None` if no queue
    /// will.
    pub(crate) fn queue_wake(&self, now: Time) -> Option<Time> {
        if self.is_planted(Mutant::IdleTimerNotSet) {
            return None;
        }
        self.members.iter().filter_map(|member| member.queue.next_wake(now)).min()
    }

    /// Number of bytes that may be read or written at the position of `request`, counting from its
    /// start, without beginning another member request; see [`Outbox::room`].
    pub(crate) fn room(&self, position: usize, request: &MemberRequest, out: &Outbox) -> u64 {
        let member = &self.members[position];
        let last = &member.queue.last[usize::from(request.write)];
        out.room(member.data_sector(request.sector), request, last)
    }
}

/// Sets the role of the member with this number, and extends the table if it is too short.
fn set_role(roles: &mut Vec<Role>, number: u32, role: Role) {
    let number = number as usize;
    if roles.len() <= number {
        roles.resize(number + 1, Role::Spare);
    }
    roles[number] = role;
}

/// Bad-block log of a member, with the list that assembly found on the member.
fn bad_log_of(member: &crate::assemble::Member) -> BadLog {
    let is_list = member.superblock.features().contains(Features::BADBLOCKS);
    BadLog::new(member.bad_blocks(), is_list)
}

/// Creates the replacement for the member at a slot: a member that is filled beside that member.
fn filled_beside(replacement: &Replacement, layout: &Layout) -> Member {
    let Replacement { slot, member, recovery_offset } = replacement;
    let (info, superblock) = (member.info.clone(), member.superblock.clone());
    let state = MemberState::Rebuilding { recovery_offset: *recovery_offset };
    let size = layout.size_at(*slot);
    let mut filled = Member::new(info, Some(superblock), None, state, size);
    (filled.replaces, filled.bad) = (Some(*slot), bad_log_of(member));
    filled
}

/// Makes all superblocks agree on whether there is a bitmap, because a crash may have interrupted
/// its addition or removal between two superblocks. Every member gets the whole bitmap again,
/// because the copies may differ.
fn agree_about_bitmap(members: &mut [Member], assembly: &Assembly) {
    let offset = assembly.bitmap_offset();
    for member in members {
        if member.superblock().bitmap_offset().is_some() != offset.is_some() {
            member.superblock_mut().set_bitmap(offset);
        }
        if offset.is_some() {
            member.needs_bitmap();
            // A spare gets the bitmap when it takes a slot.
            member.lacks_bitmap = member.written_slot().is_some();
        }
    }
}
