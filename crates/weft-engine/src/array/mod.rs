//! Array of one volume: membership, clean state, superblock updates and flush rounds.
//!
//! A personality asks the array which members can be read and written, and reports those that
//! failed.
//!
//! A *superblock update* writes the superblock of every member that is not faulty, each durably and
//! after everything before it. Updates are numbered; a request that depends on a change waits
//! for the first update that starts after the change. Three things depend on one:
//!
//! - the first write after clean: the dirty state comes before it (I5);
//! - an acknowledgement after a member failed: the failure comes before it (I4d), and no stripe is
//!   handled meanwhile, as in md;
//! - the clean state: every member is flushed before any superblock says clean.
//!
//! A superblock that is not written is written once more before its member falls: a passing error
//! must not cost a member, and two of them in one update not the array. (What a flush lost is lost
//! all the same: a driver says so again.) One that finds no space is written again every second,
//! until there is some or the member is given up (`Array::give_up_full`).
//!
//! Update counts only go up (md takes one back on a clean state; both are accepted by md).
//!
//! Source   md-raid.md §6.5 to §6.7, md-ondisk.md §1.7 and §8.4, reliability.md I4 to I6

pub mod flush;
pub(crate) mod member;
pub(crate) mod membership;
pub(crate) mod outbox;
pub(crate) mod resync_window;

use weft_ondisk::{Bitmap, Features, MdTime, ResyncOffset, Role, Standing, Superblock, Update};
use weft_units::{Bytes, MemberIndex, Sectors, Slot, Span, Time, VolumeId};

use crate::array::flush::flush_batch::{FlushBatch, Variant};
use crate::array::member::{Attempt, Member};
use crate::array::membership::{Membership, Report};
use crate::array::outbox::{Outbox, Owner, Who};
use crate::assemble::{Assembly, SlotState};
use crate::contract::error::ReplyError;
use crate::contract::frame::Segment;
use crate::contract::input::{Attr, Fault, Origin};
use crate::contract::member::MemberInfo;
use crate::contract::member::MemberState;
use crate::contract::output::{MemberOp, Notice};
use crate::contract::token::RequestId;
use crate::layout::geometry::Geometry;
use crate::layout::slot_set::SlotSet;
use crate::mutant::Mutant;
use crate::sched::member_queue::QueueSettings;
use crate::sched::request::MemberRequest;

/// The coordinator of one array.
#[derive(Clone, Debug)]
pub(crate) struct Array {
    pub(crate) volume: VolumeId,
    pub(crate) geometry: Geometry,
    pub(crate) members: Vec<Member>,
    pub(crate) membership: Membership,
    /// Position in `members` per slot.
    slots: Vec<Option<usize>>,
    /// Position in `members` per [`MemberIndex`].
    positions: Vec<Option<usize>>,
    /// What each number of a member stands for.
    roles: Vec<Role>,
    /// The bitmap that members have, as it was found; it is not kept up to date.
    bitmap: Option<Bitmap>,
    events: u64,
    epoch_secs: u64,
    clean_state: CleanState,
    safe_mode_attempts: u64,
    /// Client writes and syncs that change parity.
    writers: u32,
    last_write: Time,
    updates: SuperblockUpdates,
    pub(crate) flushes: FlushBatch<FlushFor>,
    flushing: u32,
    corrections: Corrections,
    /// `resync_from` says nothing but that members had no space, with redundancy left.
    resyncs_for_space: bool,
    /// A discard is among the reasons: of those only the first member without space is known.
    lacked_space_for_discard: bool,
}

/// Strips that were corrected after a read error. That takes no dirty state, for it changes nothing
/// that a crash could leave half done; but the members are flushed before a superblock says clean.
/// So it is with strips that a member had no space for, once they are written and no resync is to
/// come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Corrections {
    Durable,
    /// The flush that runs covers them.
    Flushing,
    Written,
}

/// What the superblocks say, and are about to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CleanState {
    /// The superblock update of this number will say clean.
    BecomingClean(u64),
    /// The superblock update of this number will say dirty.
    BecomingDirty(u64),
    Clean,
    Dirty,
    /// Dirty, and the members are being flushed so that a superblock update may say clean: the
    /// flush of this number, for one that was asked for before a later write does not cover it.
    EnteringSafeMode(u64),
}

/// Origin of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlushFor {
    Request(RequestId),
    /// The superblock update that is about to say clean, in its so manieth attempt.
    Clean(u64),
    /// Any superblock update that says clean, after strips were corrected.
    Corrections,
}

/// Superblock updates, by number.
#[derive(Clone, Copy, Debug, Default)]
struct SuperblockUpdates {
    wanted: u64,
    started: u64,
    done: u64,
    outstanding: u32,
    /// A member had no space for its superblock: the update is repeated then.
    not_before: Option<Time>,
    /// What is outstanding brings members that lag by one up to the others, before an update would
    /// make it two: then a crash in its middle could not tell them from stale ones.
    catching_up: bool,
    /// What is outstanding are the members that just took a slot, before any other says so: then no
    /// crash finds one in a slot whose own superblock does not say that it is being rebuilt. (md
    /// takes the role of a member that lags by one from the others.)
    introducing: bool,
    /// What was written last says that writes may be in flight.
    said_in_use: bool,
    /// A superblock update is under way, and nothing of it is outstanding: what it writes next says
    /// clean and waits until the members are flushed, as strips were corrected since it began.
    held: bool,
    /// The first superblock update that records every failure so far.
    records_failures: u64,
}

impl Array {
    pub(crate) fn new(volume: VolumeId, assembly: &Assembly, epoch_secs: u64, now: Time) -> Self {
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
            let bad = member.bad_blocks();
            let mut member = Member::new(info, superblock, Some(Slot(slot)), state);
            member.bad = bad;
            members.push(member);
        }
        let freshest = members
            .iter()
            .max_by_key(|member| member.superblock.events())
            .expect("an array that was assembled has members");
        // A reserved number in the table is nobody's.
        let role_of = |number| freshest.superblock.role(number).unwrap_or(Role::Spare);
        let numbers = freshest.superblock.role_count() as u32;
        let mut roles: Vec<Role> = (0..numbers).map(role_of).collect();
        for member in &assembly.spares {
            let info = member.info.clone();
            members.push(Member::new(info, member.superblock.clone(), None, MemberState::Spare));
        }
        // Who has a role but is not here has failed, as far as the members that are here know.
        for (role, number) in roles.iter_mut().zip(0u32..) {
            let here =
                members.iter().any(|member| member.slot.is_some() && member.number == number);
            if matches!(role, Role::Active(_)) && !here {
                *role = Role::Faulty;
            }
        }
        let clean_state =
            if assembly.resync_from.is_some() { CleanState::Dirty } else { CleanState::Clean };
        let mut array = Self {
            volume,
            geometry: assembly.geometry.clone(),
            members,
            membership: Membership::new(
                &assembly.geometry,
                assembly.read_only,
                assembly.resync_from,
            ),
            slots,
            positions: Vec::new(),
            roles,
            bitmap: assembly.bitmap().cloned(),
            events: assembly.events,
            epoch_secs,
            clean_state,
            safe_mode_attempts: 0,
            writers: 0,
            last_write: now,
            updates: SuperblockUpdates::default(),
            flushes: FlushBatch::new(Variant::Batch),
            flushing: 0,
            corrections: Corrections::Durable,
            resyncs_for_space: false,
            lacked_space_for_discard: false,
        };
        array.recount();
        array.index_members();
        // A crash now must find what was found: recorded before the first write.
        if clean_state == CleanState::Dirty && !array.membership.read_only {
            let number = array.want_update();
            array.clean_state = CleanState::BecomingDirty(number);
        }
        array
    }

    #[cfg(feature = "mutants")]
    pub(crate) fn plant(&mut self, mutant: Mutant) {
        self.membership.plant(mutant);
    }

    #[inline]
    pub(crate) fn is_planted(&self, mutant: Mutant) -> bool {
        self.membership.is_planted(mutant)
    }

    // Who can be read and written.

    /// The member at a slot, unless it is faulty.
    pub(crate) fn at(&self, slot: Slot) -> Option<&Member> {
        self.slots[slot.index()].map(|position| &self.members[position])
    }

    /// Where the member at a slot is in `members`, unless it is faulty.
    pub(crate) fn position_at(&self, slot: Slot) -> Option<usize> {
        self.slots[slot.index()]
    }

    pub(crate) fn position_of(&self, index: MemberIndex) -> Option<usize> {
        self.positions.get(index.index()).copied().flatten()
    }

    /// After members came or went.
    fn index_members(&mut self) {
        self.positions.fill(None);
        for (position, member) in self.members.iter().enumerate() {
            let index = member.info.index.index();
            if self.positions.len() <= index {
                self.positions.resize(index + 1, None);
            }
            self.positions[index] = Some(position);
        }
    }

    /// Whether what a member holds can be had from the others.
    pub(crate) fn can_read_around(&self, position: usize) -> bool {
        let slot = self.members[position].slot;
        slot.is_some_and(|slot| self.membership.can_read_around(slot))
    }

    /// Update count of the superblocks.
    pub(crate) fn events(&self) -> u64 {
        self.events
    }

    fn recount(&mut self) {
        self.membership.recount(&self.members);
        for member in &mut self.members {
            member.to_give_up |= member.stalled && member.in_flight > 0;
        }
    }

    pub(crate) fn set_stalled(&mut self, position: usize, stalled: bool) {
        self.members[position].stalled = stalled;
        self.recount();
    }

    // Clean and dirty.

    /// A client write or a sync that changes parity begins. Whether the members say dirty already;
    /// else it waits for [`Array::is_dirty`].
    pub(crate) fn write_begins(&mut self) -> bool {
        self.writers += 1;
        match self.clean_state {
            CleanState::EnteringSafeMode(_) => self.clean_state = CleanState::Dirty,
            CleanState::BecomingClean(_) if self.is_planted(Mutant::NotDirtyWhileBecomingClean) => {
            }
            CleanState::Clean | CleanState::BecomingClean(_) => {
                let number = self.want_update();
                self.clean_state = CleanState::BecomingDirty(number);
            }
            CleanState::Dirty | CleanState::BecomingDirty(_) => {}
        }
        self.is_dirty()
    }

    /// It ended.
    pub(crate) fn write_ends(&mut self, now: Time) {
        self.writers -= 1;
        self.last_write = now;
    }

    /// Whether the members say, durably, that writes may be in flight.
    pub(crate) fn is_dirty(&self) -> bool {
        self.is_planted(Mutant::AckBeforeSuperblock)
            || matches!(self.clean_state, CleanState::Dirty | CleanState::EnteringSafeMode(_))
            || (matches!(self.clean_state, CleanState::BecomingClean(_))
                && self.is_planted(Mutant::NotDirtyWhileBecomingClean))
    }

    /// Begins to mark the array clean once it has been quiet for `delay`; `None` when it stops.
    pub(crate) fn enter_safe_mode(&mut self, delay: Option<Span>, now: Time) {
        if self.clean_state != CleanState::Dirty
            || self.writers > 0
            || self.membership.read_only
            || self.membership.broken
        {
            return;
        }
        if delay.is_none_or(|delay| self.safe_mode_wake(delay).is_some_and(|due| due <= now)) {
            self.safe_mode_attempts += 1;
            self.clean_state = CleanState::EnteringSafeMode(self.safe_mode_attempts);
            self.flushes.arrive(FlushFor::Clean(self.safe_mode_attempts));
        }
    }

    /// Time at which [`Array::enter_safe_mode`] has something to do.
    pub(crate) fn safe_mode_wake(&self, delay: Span) -> Option<Time> {
        // Parity that was not checked yet keeps the array dirty until it stops.
        let waits = self.clean_state == CleanState::Dirty
            && self.writers == 0
            && delay > Span::ZERO
            && self.membership.resync_from.is_none()
            && !self.membership.read_only
            && !self.membership.broken;
        waits.then(|| self.last_write + delay)
    }

    /// Whether nothing of the coordinator's is in flight or waits.
    pub(crate) fn is_quiet(&self) -> bool {
        self.updates.outstanding == 0
            && self.flushes.is_idle()
            && (self.updates.done == self.updates.wanted
                || self.membership.read_only
                || self.membership.broken)
    }

    /// Whether the members say that it was stopped, as far as they may be written.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_quiet()
            && (self.clean_state == CleanState::Clean
                || self.membership.read_only
                || self.membership.broken)
    }

    /// md's word for it.
    pub(crate) fn state_word(&self) -> &'static str {
        match self.clean_state {
            _ if self.membership.read_only => "readonly",
            _ if self.membership.broken => "broken",
            CleanState::BecomingDirty(_) => "write-pending",
            CleanState::Clean | CleanState::BecomingClean(_) => "clean",
            CleanState::EnteringSafeMode(_) => "active-idle",
            CleanState::Dirty => "active",
        }
    }

    // Superblock updates.

    /// Wants a superblock update that starts after now, and says which.
    pub(crate) fn want_update(&mut self) -> u64 {
        if self.updates.wanted == self.updates.started {
            self.updates.wanted += 1;
        }
        self.updates.wanted
    }

    /// Whether a superblock update is done.
    pub(crate) fn update_done(&self, number: u64) -> bool {
        self.updates.done >= number
    }

    /// The last superblock update that was wanted.
    pub(crate) fn last_update(&self) -> u64 {
        self.updates.wanted
    }

    /// Whether every failure is recorded, or never will be.
    pub(crate) fn is_known(&self) -> bool {
        self.failures_recorded() || self.membership.broken
    }

    /// Whether discards pay: every member stores nothing for what is discarded.
    pub(crate) fn can_discard(&self) -> bool {
        let slots = self.membership.present();
        slots.ascending().all(|slot| self.at(slot).is_some_and(|member| member.info.discards))
    }

    /// Whether everything that failed is recorded on the others. Of a broken array it never is: the
    /// member that broke it may have failed in the very update that was to record another's
    /// failure.
    pub(crate) fn failures_recorded(&self) -> bool {
        self.updates.done >= self.updates.records_failures
            || self.is_planted(Mutant::AckBeforeSuperblock)
    }

    /// Starts the flush rounds and superblock updates that are wanted. Whom a round of flushes
    /// served that found no member to ask.
    pub(crate) fn start_rounds(&mut self, out: &mut Outbox) -> Vec<RequestId> {
        let SuperblockUpdates { held, started, .. } = self.updates;
        let idle = started == self.updates.done && self.updates.outstanding == 0 && !held;
        let sealed = self.membership.read_only && !self.is_planted(Mutant::WriteWhileReadOnly);
        let may_write = !sealed && !self.membership.broken;
        let wanted = self.updates.wanted > started && may_write;
        let may = self.updates.not_before.is_none_or(|time| out.now >= time);
        let due = idle && wanted && may;
        let goes_on = held && may_write;
        let corrects = self.corrections == Corrections::Written && self.is_correcting(out);
        if due {
            self.updates.not_before = None;
        }
        let waits = due && self.waits_for_corrections()
            || goes_on && self.corrections != Corrections::Durable;
        if waits && !corrects && self.flushes.is_idle() {
            self.flushes.arrive(FlushFor::Corrections);
        }
        let mut served = Vec::new();
        if self.flushes.start() {
            if self.corrections == Corrections::Written && !corrects {
                self.corrections = Corrections::Flushing;
            }
            self.start_flush(out);
            if self.flushing == 0 {
                served = self.finish_flush();
            }
        }
        if due && !self.waits_for_corrections() {
            self.start_superblocks(out);
        }
        if goes_on && self.corrections == Corrections::Durable {
            self.updates.held = false;
            self.try_again(out);
            if self.updates.outstanding == 0 {
                self.finish_superblocks(out);
            }
        }
        served
    }

    /// Whether what is written next says clean, and a strip that was corrected is not durable.
    fn waits_for_corrections(&self) -> bool {
        !self.says_in_use() && self.corrections != Corrections::Durable
    }

    /// Whether a strip may be being corrected: when the array is not in use, nobody else writes to
    /// members that are in sync.
    fn is_correcting(&self, out: &Outbox) -> bool {
        let mut in_sync = self.members.iter().filter(|it| it.state == MemberState::InSync);
        in_sync.any(|member| out.is_writing_stripes(member))
    }

    /// Whether superblocks say, from now on, that writes may be in flight.
    fn says_in_use(&self) -> bool {
        !matches!(self.clean_state, CleanState::Clean | CleanState::BecomingClean(_))
    }

    /// When a superblock update is due that found no space before.
    pub(crate) fn update_wake(&self) -> Option<Time> {
        // While others of the last superblock update have not answered, their answers are what
        // wakes, and those to a flush while the superblock update is held.
        let SuperblockUpdates { held, outstanding, .. } = self.updates;
        let waits =
            outstanding == 0 && !held && !self.membership.read_only && !self.membership.broken;
        self.updates.not_before.filter(|_| waits)
    }

    fn start_superblocks(&mut self, out: &mut Outbox) {
        let events = self.events;
        let lags = |member: &Member| {
            !member.is_faulty() && member.slot.is_some() && member.superblock.events() < events
        };
        self.updates.catching_up = self.members.iter().any(lags);
        if !self.updates.catching_up {
            self.updates.started = self.updates.wanted;
            if !self.is_planted(Mutant::EventsNotRaised) {
                self.events += 1;
            }
        }
        let catching_up = self.updates.catching_up;
        let takes_slot = |member: &Member| {
            matches!(member.state, MemberState::Rebuilding { .. })
                && member.superblock.tells_rebuilding()
                && !member.superblock.features().contains(Features::RECOVERY)
        };
        self.updates.introducing = !catching_up && self.members.iter().any(takes_slot);
        if catching_up {
            self.write_superblocks(lags, out);
        } else if self.updates.introducing {
            self.write_superblocks(takes_slot, out);
        } else {
            self.write_superblocks(|_| true, out);
        }
    }

    /// Writes those of the members that are chosen, highest slot first, as md; spares after them.
    fn write_superblocks(&mut self, chosen: impl Fn(&Member) -> bool, out: &mut Outbox) {
        self.updates.said_in_use = self.says_in_use();
        let mut positions: Vec<usize> = (0..self.members.len()).collect();
        positions.sort_by_key(|position| {
            std::cmp::Reverse(self.members[*position].slot.map_or(-1, |slot| i32::from(slot.0)))
        });
        for position in positions {
            let member = &self.members[position];
            if !member.is_faulty() && chosen(member) {
                self.write_superblock(position, out);
            }
        }
        if self.updates.outstanding == 0 {
            self.finish_superblocks(out);
        }
    }

    fn write_superblock(&mut self, position: usize, out: &mut Outbox) {
        let standings = self.standings();
        let member = &self.members[position];
        let in_use = self.says_in_use();
        let update = Update {
            events: self.events,
            utime: MdTime { secs: self.epoch_secs + out.now.0 / 1_000_000_000, micros: 0 },
            resync: match self.membership.resync_from {
                _ if in_use => ResyncOffset::At(Sectors::ZERO),
                Some(from) => ResyncOffset::At(from),
                None => ResyncOffset::Clean,
            },
            members: &standings,
            number: member.number,
            recovery_offset: match member.state {
                MemberState::Rebuilding { recovery_offset } => Some(recovery_offset),
                MemberState::Faulty | MemberState::InSync | MemberState::Spare => None,
            },
        };
        self.write_bitmap(position, out);
        let member = &mut self.members[position];
        member.superblock.update(&update);
        member.attempt = Attempt::First;
        self.send_superblock(position, out);
    }

    /// Sends the superblock of a member as it was made last.
    fn send_superblock(&mut self, position: usize, out: &mut Outbox) {
        let Member { info, superblock, .. } = &self.members[position];
        let bytes = superblock.encode_for(info.logical_block).into_boxed_slice();
        let op = MemberOp::WriteMetadata { at: superblock.super_offset(), bytes };
        self.submit(position, op, Owner::Superblock, out);
        self.updates.outstanding += 1;
    }

    /// Gives a new member a bitmap, in the superblock update in which it is first told who it is.
    /// What was there is nobody's, and md would refuse the array or believe it.
    fn write_bitmap(&mut self, position: usize, out: &mut Outbox) {
        let member = &mut self.members[position];
        if !std::mem::take(&mut member.lacks_bitmap) {
            return;
        }
        let room = member.superblock.bitmap_room(member.info.size);
        let (Some(bitmap), Ok(Some(room))) = (&self.bitmap, room) else { return };
        let bytes = bitmap.of_new_member(member.info.logical_block).into_boxed_slice();
        let op = MemberOp::WriteMetadata { at: room.start, bytes };
        self.submit(position, op, Owner::Superblock, out);
        self.updates.outstanding += 1;
    }

    /// Everybody, by number, as superblocks tell it.
    fn standings(&self) -> Vec<Standing> {
        let standing = |(role, number): (&Role, u32)| {
            let member = self.members.iter().find(|member| member.number == number);
            let rebuilding =
                |member: &Member| matches!(member.state, MemberState::Rebuilding { .. });
            Standing {
                role: *role,
                rebuilding: member.is_some_and(rebuilding),
                present: member.is_some(),
                device: member.map(|member| member.superblock.device()).unwrap_or_default(),
            }
        };
        self.roles.iter().zip(0..).map(standing).collect()
    }

    /// A superblock was written, or not.
    pub(crate) fn superblock_done(
        &mut self,
        position: Option<usize>,
        result: Result<(), Fault>,
        out: &mut Outbox,
    ) {
        match (position, result) {
            // The member is well; nothing depends on the superblock update until it is done, later.
            (Some(position), Err(Fault::NoSpace)) => {
                let late = self.is_planted(Mutant::SuperblockRetriedLate);
                let retry = if late { Span::secs(60) } else { UPDATE_RETRY };
                self.updates.not_before = Some(out.now + retry);
                let has_bitmap = self.bitmap.is_some();
                let member = &mut self.members[position];
                member.lacks_bitmap = member.state != MemberState::InSync && has_bitmap;
                member.superblock_full_since.get_or_insert(out.now);
            }
            // Once more: it may have been a passing trouble.
            (Some(position), Err(Fault::Io))
                if !self.members[position].is_faulty()
                    && self.members[position].attempt == Attempt::First =>
            {
                let has_bitmap = self.bitmap.is_some();
                let member = &mut self.members[position];
                member.attempt = Attempt::SecondDue;
                // Which of the two it was is not known.
                member.lacks_bitmap = member.state != MemberState::InSync && has_bitmap;
                if self.updates.said_in_use || self.corrections == Corrections::Durable {
                    self.try_again(out);
                }
            }
            (Some(position), Err(_)) => self.fail(position, out),
            (Some(position), Ok(())) => self.members[position].superblock_full_since = None,
            (None, Ok(()) | Err(_)) => {}
        }
        self.updates.outstanding -= 1;
        if self.updates.outstanding == 0 {
            self.finish_superblocks(out);
        }
    }

    /// Writes the superblocks once more that were not written, as they were.
    fn try_again(&mut self, out: &mut Outbox) {
        for position in 0..self.members.len() {
            if self.members[position].is_to_try_again() {
                self.members[position].attempt = Attempt::Second;
                self.write_bitmap(position, out);
                self.send_superblock(position, out);
            }
        }
    }

    /// What was outstanding of a superblock update was answered: on to the rest of it, if there is
    /// any.
    fn finish_superblocks(&mut self, out: &mut Outbox) {
        if self.members.iter().any(Member::is_to_try_again) {
            self.updates.held = true;
            return;
        }
        if self.updates.not_before.is_some() {
            // Again, from the start: whoever waits for its number goes on waiting.
            self.updates.started = self.updates.done;
            self.updates.catching_up = false;
            self.updates.introducing = false;
            self.updates.wanted = self.updates.wanted.max(self.updates.done + 1);
            return;
        }
        if std::mem::take(&mut self.updates.catching_up) {
            return;
        }
        if self.updates.introducing && self.waits_for_corrections() {
            self.updates.held = true;
            return;
        }
        if std::mem::take(&mut self.updates.introducing) {
            let events = self.events;
            self.write_superblocks(|member| member.superblock.events() < events, out);
            return;
        }
        let recorded_before = self.failures_recorded();
        self.updates.done = self.updates.started;
        match self.clean_state {
            CleanState::BecomingClean(number) if self.updates.done >= number => {
                self.clean_state = CleanState::Clean;
                out.notice(Notice::ArrayClean(self.volume));
            }
            CleanState::BecomingDirty(number) if self.updates.done >= number => {
                self.clean_state = CleanState::Dirty;
                self.last_write = out.now;
                out.notice(Notice::ArrayDirty(self.volume));
            }
            _ => {}
        }
        if !recorded_before && self.failures_recorded() {
            out.notice(Notice::FailureRecorded { volume: self.volume });
        }
    }

    // Flush rounds.

    fn start_flush(&mut self, out: &mut Outbox) {
        let mut slots = self.membership.present();
        if self.is_planted(Mutant::FlushSkipsOneMember) {
            slots.remove(Slot(0));
        }
        for slot in slots.descending() {
            let position = self.slots[slot.index()].expect("a slot that is present has a member");
            self.submit(position, MemberOp::Flush, Owner::Flush, out);
            self.flushing += 1;
        }
    }

    /// A member was flushed, or not. Whom the round served, if this was its last answer.
    pub(crate) fn flush_done(
        &mut self,
        position: Option<usize>,
        result: Result<(), Fault>,
        out: &mut Outbox,
    ) -> Vec<RequestId> {
        // What the member held may be lost, and a second try would not bring it back.
        if let (Some(position), Err(_)) = (position, result) {
            self.fail(position, out);
        }
        self.flushing -= 1;
        if self.flushing > 0 { Vec::new() } else { self.finish_flush() }
    }

    fn finish_flush(&mut self) -> Vec<RequestId> {
        let mut requests = Vec::new();
        if self.corrections == Corrections::Flushing {
            self.corrections = Corrections::Durable;
        }
        for served in self.flushes.finish() {
            match served {
                FlushFor::Clean(attempt) => {
                    if self.clean_state == CleanState::EnteringSafeMode(attempt) {
                        let number = self.want_update();
                        self.clean_state = CleanState::BecomingClean(number);
                    }
                }
                FlushFor::Corrections => {}
                FlushFor::Request(request) => requests.push(request),
            }
        }
        requests
    }

    // Membership.

    /// A member failed, or was declared failed. If too few are left the array is broken, and the
    /// others are not told: they stay as they were.
    pub(crate) fn fail(&mut self, position: usize, out: &mut Outbox) {
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
        let number = member.number as usize;
        if let Some(slot) = member.slot {
            self.slots[slot.index()] = None;
        }
        let member = &mut self.members[position];
        member.state = MemberState::Faulty;
        member.to_give_up = member.in_flight > 0;
        member.slot = None;
        (member.full_since, member.superblock_full_since) = (None, None);
        self.recount();
        out.notice(notice);
        if breaks && !std::mem::replace(&mut self.membership.broken, true) {
            out.notice(Notice::Broken(self.volume));
        }
        if self.membership.broken {
            self.updates.records_failures = NEVER;
            return;
        }
        if let Some(role) = self.roles.get_mut(number) {
            *role = Role::Faulty;
        }
        // Before the superblock update that records the failure: the array may be stopped after it.
        if !self.members.iter().any(|member| member.full_since.is_some()) {
            // Of a discard others may have had no space either.
            let for_discard = self.lacked_space_for_discard;
            let least = if for_discard { self.geometry.parities().into() } else { 1 };
            self.take_back_resync_for_space(least);
        }
        if !self.membership.read_only {
            self.updates.records_failures = self.want_update();
        }
    }

    // Members without space.

    /// A member had no space for strips.
    pub(crate) fn found_no_space(&mut self, slot: Slot, now: Time) {
        if let Some(position) = self.position_at(slot) {
            self.members[position].full_since.get_or_insert(now);
        }
    }

    /// Parity may be wrong from here on, for a member had no space for what was written, or
    /// discarded.
    pub(crate) fn resync_for_space(&mut self, sector: Sectors, discarded: bool) {
        self.lacked_space_for_discard |= discarded;
        let redundant = self.membership.degraded() < usize::from(self.geometry.parities());
        let from = self.membership.resync_from;
        self.resyncs_for_space = redundant && (from.is_none() || self.resyncs_for_space);
        self.membership.resync_from = Some(from.unwrap_or(sector).min(sector));
    }

    /// Members have what they had no space for, or are given up.
    pub(crate) fn found_space(&mut self) {
        for member in &mut self.members {
            member.full_since = None;
        }
        let least = self.geometry.parities().into();
        if self.take_back_resync_for_space(least) {
            // What was written when there was space again was covered by the resync that is not to
            // be. A flush that runs may have begun before it.
            self.corrections = Corrections::Written;
            if !self.says_in_use() {
                self.want_update();
            }
        }
    }

    /// Nobody misses anything for want of space any more: what only a member missed that was given
    /// up is no disagreement among those that are left, if at least so many are not there. Whether
    /// a resync was to be and is not.
    fn take_back_resync_for_space(&mut self, least: usize) -> bool {
        self.lacked_space_for_discard = false;
        let taken_back =
            std::mem::take(&mut self.resyncs_for_space) && self.membership.degraded() >= least;
        if taken_back {
            self.membership.resync_from = None;
        }
        taken_back
    }

    /// Whether every member has space, as far as is known.
    pub(crate) fn nobody_is_full(&self) -> bool {
        self.members.iter().all(|member| member.is_full_since().is_none())
    }

    /// Whether a superblock update waits for space.
    pub(crate) fn update_waits_for_space(&self) -> bool {
        self.updates.not_before.is_some() && self.updates.outstanding == 0 && !self.updates.held
    }

    /// Whether members without space may be given up, of those that are in sync: the others
    /// suffice, who do not share their space with one that is full.
    fn can_do_without_full(&self) -> bool {
        let full = |member: &Member| member.is_full_since().is_some();
        let spaces = || self.members.iter().filter(|it| full(it)).filter_map(|it| it.info.space);
        let has_space = |member: &&Member| {
            let shares = member.info.space.is_some_and(|space| spaces().any(|it| it == space));
            member.state == MemberState::InSync && !full(member) && !shares
        };
        let count = self.members.iter().filter(has_space).count();
        count >= usize::from(self.geometry.data_members())
    }

    /// Fails the members that have had no space for so long, if the others suffice.
    pub(crate) fn give_up_full(&mut self, wait: Span, out: &mut Outbox) {
        let now = out.now;
        let is_due = |member: &Member| {
            !member.is_faulty()
                && wait > Span::ZERO
                && member.is_full_since().is_some_and(|since| since + wait <= now)
        };
        let suffices = self.can_do_without_full();
        for position in 0..self.members.len() {
            let member = &self.members[position];
            if is_due(member) && (suffices || member.state != MemberState::InSync) {
                self.fail(position, out);
                if self.update_waits_for_space() {
                    // It may have been for this one only.
                    self.updates.not_before = None;
                }
            }
        }
    }

    /// Whether a superblock update waits for space and for nothing else, however long that takes.
    pub(crate) fn is_stuck(&self, wait: Span) -> bool {
        let may_give_up = |member: &Member| {
            member.superblock_full_since.is_some()
                && !member.is_faulty()
                && (member.state != MemberState::InSync || self.can_do_without_full())
        };
        self.update_waits_for_space()
            && (wait == Span::ZERO || !self.members.iter().any(may_give_up))
    }

    /// Whether the array would be broken without this member.
    pub(crate) fn breaks(&self, position: usize) -> bool {
        let slot = self.members[position].slot;
        slot.is_some_and(|slot| self.membership.breaks(slot))
    }

    /// Whether the array would be broken without these members.
    pub(crate) fn breaks_without(&self, positions: &[usize]) -> bool {
        let slots = positions.iter().filter_map(|position| self.members[*position].slot);
        self.membership.breaks_without(slots)
    }

    /// Forgets a member that failed, or a spare.
    pub(crate) fn remove(&mut self, position: usize) -> Result<(), ReplyError> {
        let member = &self.members[position];
        match member.state {
            MemberState::Faulty | MemberState::Spare => {}
            MemberState::InSync | MemberState::Rebuilding { .. } => {
                return Err(ReplyError::Busy("the member is in use; fail it first"));
            }
        }
        if member.in_flight > 0 || !(self.failures_recorded() || self.membership.broken) {
            return Err(ReplyError::Busy("requests of the member are outstanding; try again"));
        }
        let number = member.number as usize;
        if let Some(role) = self.roles.get_mut(number)
            && !self.membership.broken
        {
            *role = Role::Spare;
            if !self.membership.read_only {
                self.want_update();
            }
        }
        self.members.remove(position);
        self.index_members();
        for slot in self.slots.iter_mut().flatten() {
            *slot -= usize::from(*slot > position);
        }
        Ok(())
    }

    /// Takes in a new member as a spare.
    pub(crate) fn add(
        &mut self,
        info: MemberInfo,
        device_uuid: weft_ondisk::Uuid,
    ) -> Result<(), ReplyError> {
        if self.membership.read_only || self.membership.broken {
            return Err(ReplyError::ReadOnly);
        }
        if self.position_of(info.index).is_some() {
            return Err(ReplyError::Invalid("the member index is taken"));
        }
        let template = self
            .members
            .iter()
            .find(|member| !member.is_faulty())
            .ok_or(ReplyError::Io)?
            .superblock
            .clone();
        let taken: Vec<u32> = self.members.iter().map(|member| member.number).collect();
        // As md: the first one past those of the slots. So a member that was removed and comes back
        // is not mistaken for the one that took its place.
        let free = |number: &u32| {
            self.roles.get(*number as usize) == Some(&Role::Spare) && !taken.contains(number)
        };
        let slots = self.slots.len() as u32;
        let number = (slots..self.roles.len() as u32)
            .chain(0..slots)
            .find(free)
            .ok_or(ReplyError::Invalid("the role table of the superblock is full"))?;
        let superblock = spare_superblock(&template, &info, number, device_uuid)?;
        if let Some(bitmap) = &self.bitmap {
            room_for_bitmap(&superblock, &info, bitmap)?;
        }
        let mut member = Member::new(info, superblock, None, MemberState::Spare);
        member.number = number;
        member.lacks_bitmap = self.bitmap.is_some();
        self.members.push(member);
        self.index_members();
        self.want_update();
        Ok(())
    }

    /// Gives each empty slot a spare, if there is one. Whether it did.
    pub(crate) fn fill_slots(&mut self) -> bool {
        let mut filled = false;
        for slot in 0..self.slots.len() {
            if self.slots[slot].is_some() {
                continue;
            }
            let spare = self.members.iter().position(|member| member.state == MemberState::Spare);
            let Some(position) = spare else { break };
            let stale = self.is_planted(Mutant::StaleMemberAfterAdd);
            let member = &mut self.members[position];
            member.state = if stale {
                MemberState::InSync
            } else {
                MemberState::Rebuilding { recovery_offset: Sectors::ZERO }
            };
            member.slot = Some(Slot(slot as u16));
            member.lacks_bitmap = self.bitmap.is_some();
            let number = member.number as usize;
            self.slots[slot] = Some(position);
            if self.roles.len() <= number {
                self.roles.resize(number + 1, Role::Spare);
            }
            self.roles[number] = Role::Active(Slot(slot as u16));
            filled = true;
        }
        if filled {
            self.recount();
            self.want_update();
        }
        filled
    }

    /// Whether a slot is empty and a spare is there.
    pub(crate) fn can_fill_slots(&self) -> bool {
        self.slots.contains(&None)
            && self.members.iter().any(|member| member.state == MemberState::Spare)
    }

    /// Slots being rebuilt, and the least recovery offset of their members.
    pub(crate) fn rebuilding(&self) -> Option<(SlotSet, Sectors)> {
        let mut slots = SlotSet::EMPTY;
        let mut least: Option<Sectors> = None;
        for member in &self.members {
            if let (MemberState::Rebuilding { recovery_offset }, Some(slot)) =
                (member.state, member.slot)
            {
                slots.insert(slot);
                least = Some(least.map_or(recovery_offset, |least| least.min(recovery_offset)));
            }
        }
        least.map(|least| (slots, least))
    }

    /// Moves the recovery offset of the members being rebuilt; `end` makes them whole.
    pub(crate) fn rebuilt_to(&mut self, slots: SlotSet, to: Sectors, end: bool) {
        for member in &mut self.members {
            let Some(slot) = member.slot else { continue };
            if let MemberState::Rebuilding { recovery_offset } = &mut member.state
                && slots.contains(slot)
            {
                *recovery_offset = to.max(*recovery_offset);
                if end {
                    member.state = MemberState::InSync;
                }
            }
        }
        if end {
            self.recount();
            self.want_update();
        } else {
            self.membership.rebuilt(&self.members);
        }
    }

    /// Stripes report something of a member.
    pub(crate) fn report(&mut self, report: Report, out: &mut Outbox) {
        let Some(position) = self.position_at(report.slot()) else { return };
        match report {
            Report::Correcting { .. } => self.corrections = Corrections::Written,
            Report::Corrected { sector, sectors, .. } => {
                let member = &mut self.members[position];
                member.counters.corrected += sectors.0;
                let (at, index) = (member.data_sector(sector), member.info.index);
                out.notice(Notice::ReadErrorCorrected { member: index, at, sectors });
            }
            Report::Suspect { .. } => {
                if !self.breaks(position) {
                    self.fail(position, out);
                }
            }
            Report::Failed { .. } => self.fail(position, out),
            Report::ReadFailed { most, .. } => {
                let member = &mut self.members[position];
                member.read_errors += 1;
                if member.read_errors > most && !self.breaks(position) {
                    self.fail(position, out);
                }
            }
        }
    }

    // Requests to members.

    /// Sends a request of the array's own.
    fn submit(&mut self, position: usize, op: MemberOp, owner: Owner, out: &mut Outbox) {
        let written = match &op {
            MemberOp::WriteMetadata { bytes, .. } => Some(Bytes(bytes.len() as u64)),
            _ => None,
        };
        let member = &mut self.members[position];
        out.submit(self.volume, member, op, metadata_attr(), owner);
        match written {
            Some(bytes) => member.sent(true, bytes.sectors_floor()),
            None => member.sent_flush(),
        }
    }

    /// Sends a read or write of these parts, which may be merged with others.
    #[inline]
    pub(crate) fn stage(
        &mut self,
        position: usize,
        request: &MemberRequest,
        parts: &[Segment],
        who: Who,
        out: &mut Outbox,
    ) {
        out.stage(self.volume, &mut self.members[position], request, parts, who);
    }

    /// Sets the queues of the members, also of those that came since.
    /// `in_flight` says how many requests take room at a member.
    pub(crate) fn set_queues(
        &mut self,
        settings: QueueSettings,
        mut in_flight: impl FnMut(MemberIndex) -> u32,
    ) {
        for member in &mut self.members {
            if *member.queue.settings() != settings {
                member.queue.configure(settings, in_flight(member.info.index));
            }
        }
    }

    /// Queues what was staged for the members, and sends what their queues let go. Whoever brought
    /// it is done if `end_plug`.
    pub(crate) fn unplug_queues(&mut self, end_plug: bool, out: &mut Outbox) {
        for member in &mut self.members {
            member.queue.unplug(out.now);
            if end_plug {
                member.queue.end_plug();
            }
            out.dispatch(self.volume, member);
        }
    }

    /// Sends what the queues of the members let go.
    pub(crate) fn run_queues(&mut self, out: &mut Outbox) {
        self.members.iter_mut().for_each(|member| out.dispatch(self.volume, member));
    }

    /// When there may be something to send though no member ends anything.
    pub(crate) fn queue_wake(&self, now: Time) -> Option<Time> {
        self.members.iter().filter_map(|member| member.queue.next_wake(now)).min()
    }

    /// Bytes that a request takes with it; see [`Outbox::room`].
    pub(crate) fn room(&self, position: usize, request: &MemberRequest, out: &Outbox) -> u64 {
        let member = &self.members[position];
        let last = &member.queue.last[usize::from(request.write)];
        out.room(member.data_sector(request.sector), request, last)
    }
}

/// The superblock of a new spare, after that of a member.
fn spare_superblock(
    template: &Superblock,
    info: &MemberInfo,
    number: u32,
    device_uuid: weft_ondisk::Uuid,
) -> Result<Superblock, ReplyError> {
    let data_offset = template.data_offset();
    if !data_offset.bytes().0.is_multiple_of(u64::from(info.logical_block)) {
        return Err(ReplyError::Refused(format!(
            "{}: found logical blocks of {} bytes, which data_offset {data_offset} does not fit; use \
             a member with smaller blocks",
            info.label, info.logical_block
        )));
    }
    template
        .of_spare(info.size, number, device_uuid)
        .map_err(|error| ReplyError::Refused(format!("{}: {error}", info.label)))
}

/// Whether a new member has room for the bitmap that the others have.
fn room_for_bitmap(
    superblock: &Superblock,
    info: &MemberInfo,
    bitmap: &Bitmap,
) -> Result<(), ReplyError> {
    let label = &info.label;
    let needed = Bytes(bitmap.of_new_member(info.logical_block).len() as u64).sectors_floor();
    match superblock.bitmap_room(info.size) {
        Ok(Some(room)) if room.len >= needed => Ok(()),
        Ok(room) => Err(ReplyError::Refused(format!(
            "{label}: found {} for the bitmap, expected at least {needed}; use a larger member",
            room.map_or(Sectors::ZERO, |room| room.len)
        ))),
        Err(error) => Err(ReplyError::Refused(format!("{label}: {error}; use a larger member"))),
    }
}

/// What a coordinator's own member request is for.
const fn metadata_attr() -> Attr {
    Attr { class: crate::contract::input::Class::None, weight: 0, origin: Origin::Metadata }
}

/// A superblock update that does not come.
const NEVER: u64 = u64::MAX;

/// How long after a superblock found no space the update is repeated.
const UPDATE_RETRY: Span = Span::secs(1);
