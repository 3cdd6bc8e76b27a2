//! Superblock updates, and the flush rounds that superblock updates and clients need.
//!
//! A *superblock update* writes the superblock of every member that is not faulty, each durably and
//! after all earlier writes. Updates are numbered, and a request that depends on a change waits for
//! the first update that starts after the change. Three events depend on an update:
//!
//! - the first write after clean: the dirty state is recorded before the write (I5);
//! - an acknowledgement after a member failed: the failure is recorded before the acknowledgement
//!   (I4d), and no stripe is handled in the meantime, as in md;
//! - the clean state: every member is flushed before any superblock says clean.
//!
//! Bad-block logs that changed are written before the superblocks.
//!
//! With a write-intent bitmap, its header is written first, with the update count of the
//! superblocks that follow. A header with a lower update count than a superblock shows that its
//! bits are out of date.
//!
//! A superblock that fails to be written is written once more before its member is failed: a
//! temporary error must not cost a member, and two such errors in one update must not cost the
//! array. (Data that a failed flush lost stays lost: a driver reports that error again.) If the
//! second attempt fails on a member that the array needs, the member can still be read, and nothing
//! more is written ([`Array::fail`]). A superblock for which its member has no space is written
//! again every second, unchanged, until there is space or the member is failed
//! (`Array::give_up_full`); the update with the present state follows.
//!
//! A member that just joined may hold a superblock from an earlier membership. If superblocks are
//! larger than a block of the member, the old one is wiped first. Otherwise a crash could leave the
//! new first block in front of the old end of the table of roles; the checksum of this mixture is
//! valid if the two tables differ only by exchanged roles, as after a spare took the slot of a
//! member that now returns. The member would then be accepted in its old slot. (md has the same
//! flaw.)
//!
//! Update counts never decrease. (md decrements the count on a clean state, and accepts both
//! values.)
//!
//! Source   md-raid.md §6.6 and §6.7, md-ondisk.md §1.7 and §8.4, reliability.md I4 to I6

use smallvec::SmallVec;
use weft_ondisk::{Features, MdTime, ResyncOffset, Role, Standing, Update, Version};
use weft_units::{Sectors, Slot, Span, Time};

use super::Array;
use super::write_intent::CleanState;
use crate::array::flush::flush_batch::FlightId;
use crate::array::member::{Attempt, Member};
use crate::array::outbox::{Outbox, Owner};
use crate::contract::error::ReplyError;
use crate::contract::input::Fault;
use crate::contract::member::MemberState;
use crate::contract::output::{MemberOp, Notice};
use crate::contract::token::RequestId;
use crate::knobs::{FlushRule, Knobs};
use crate::mutant::Mutant;

/// Durability of strips that were corrected after a read error. A correction does not need the
/// array to be dirty, because a crash leaves nothing inconsistent; but the members are flushed
/// before a superblock records clean. Strips for which a member had no space are treated alike,
/// once they are written and no resync follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Corrections {
    Durable,
    /// The flush with this number is in progress; it covers all corrections so far.
    Flushing(u64),
    Written,
}

/// Reason for which all members are flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlushFor {
    Request(RequestId),
    /// A superblock update is about to record clean; the number identifies the attempt to become
    /// clean.
    Clean(u64),
    /// Strips were corrected, and must be durable before a superblock update records clean; the
    /// number identifies the flush.
    Corrections(u64),
    /// Superblocks are about to record that the array is reshaped up to this sector.
    Reshape(Sectors),
    /// Bits of the bitmap are about to be cleared. The number identifies the run, which is md's
    /// periodic search for such bits.
    Bitmap(u64),
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SuperblockUpdates {
    pub(super) wanted: u64,
    started: u64,
    pub(super) done: u64,
    pub(super) outstanding: u32,
    /// Earliest time of the next attempt, after a member had no space for its superblock; `None`
    /// without such a limit.
    pub(super) not_before: Option<Time>,
    /// Whether the outstanding writes are for members with superblocks that lag one update behind,
    /// to bring them up to date first. Otherwise the next update would make them lag by two, and
    /// after a crash during it they could not be told from stale members.
    catching_up: bool,
    /// Whether the outstanding writes go to members that just took a slot, before any other
    /// superblock records the new role. After a crash a member thus counts as holder of a slot only
    /// if its own superblock records the slot and how far the member is rebuilt. (md takes the role
    /// of a member that lags by one from the superblocks of the others.)
    introducing: bool,
    /// Whether the outstanding writes are the zeros that wipe the superblock area of members that
    /// just joined.
    wiping: bool,
    /// Whether the outstanding writes are bad-block logs that changed.
    logging: bool,
    /// Whether the superblocks that were written last record the array as dirty.
    said_in_use: bool,
    /// Whether a superblock update has begun but pauses, with no writes outstanding: its
    /// superblocks will record clean, and wait for a flush of the members because strips were
    /// corrected since the update began.
    pub(super) held: bool,
    /// Whether the update was `held` before its first superblock was written: only the header of
    /// the bitmap is written so far.
    begins: bool,
    /// Number of the first superblock update that records all failures so far.
    pub(super) records_failures: u64,
}

impl Array {
    /// Requests a superblock update that has not started yet. Returns the number of that update.
    pub(crate) fn want_update(&mut self) -> u64 {
        if self.updates.wanted == self.updates.started {
            self.updates.wanted += 1;
        }
        self.updates.wanted
    }

    pub(crate) fn update_done(&self, number: u64) -> bool {
        self.updates.done >= number
    }

    /// Number of the last superblock update that was requested.
    pub(crate) fn last_update(&self) -> u64 {
        self.updates.wanted
    }

    /// Whether no superblock update, no flush of members and no write of bitmap pages is in flight
    /// or due.
    pub(crate) fn is_quiet(&self) -> bool {
        self.updates.outstanding == 0
            && self.flushes.is_idle()
            && self.bitmap.as_ref().is_none_or(|bitmap| bitmap.is_quiet())
            && (self.updates.done == self.updates.wanted
                || self.membership.read_only
                || self.membership.broken)
    }

    /// Makes an array of version 0.90 that starts without a member record the failure by two
    /// updates, before a write is acknowledged and before a spare takes the slot.
    ///
    /// A crash may have cut off the last update after only the absent member was written. Then one
    /// update of the other members gives them the same count as the absent member has. A spare that
    /// takes the slot gets the absent member's number too, and only the update count tells the two
    /// apart: the count of the absent member must be behind by more than one.
    pub(super) fn record_absent_members(&mut self) {
        let of_slots = |member: &Member| member.superblock().version() == Version::V0_90;
        let numbers_are_slots = self.members.iter().any(of_slots);
        let absent = self.membership.is_redundant && self.membership.degraded() > 0;
        if numbers_are_slots && absent && !self.membership.read_only {
            self.updates.records_failures = self.want_update() + 1;
        }
    }

    /// Whether every failure is recorded on the other members. In a broken array failures count as
    /// not recorded: the failure that broke the array may have happened in the update that was to
    /// record another failure.
    pub(crate) fn failures_recorded(&self) -> bool {
        self.updates.done >= self.updates.records_failures
            || self.is_planted(Mutant::AckBeforeSuperblock)
            || self.is_planted(Mutant::MissedWriteNotRecorded)
    }

    /// Starts the member flushes and superblock updates that are due.
    pub(crate) fn start_rounds(&mut self, rule: FlushRule, out: &mut Outbox) {
        let mut due = self.takes_update(out.now);
        let goes_on = self.updates.held && self.may_write_superblocks();
        let waits = due && self.waits_for_corrections()
            || goes_on && self.corrections != Corrections::Durable;
        if self.flushes.wants_start() || waits {
            // Every flush also covers corrections, whatever it was requested for.
            let starts = self.flushes.may_start(rule) || waits && self.flushes.is_idle();
            if starts && self.corrections == Corrections::Written && !self.is_correcting(out) {
                self.corrections_flushes += 1;
                self.corrections = Corrections::Flushing(self.corrections_flushes);
                self.flushes.arrive(FlushFor::Corrections(self.corrections_flushes));
            }
            self.start_flushes(rule, out);
            // A round in which every member is clean ends at once, and may have requested an
            // update.
            due = self.takes_update(out.now);
        }
        if due && !self.waits_for_corrections() {
            self.start_superblocks(out);
        }
        if goes_on && self.corrections == Corrections::Durable {
            self.updates.held = false;
            if std::mem::take(&mut self.updates.begins) {
                self.start_superblock_writes(out);
            } else {
                self.try_again(out);
                if self.updates.outstanding == 0 {
                    self.finish_superblocks(out);
                }
            }
        }
        self.write_bitmap_pages(out);
    }

    /// Whether a superblock update starts at `now`. If so, clears the earliest time for a retry
    /// after lack of space.
    fn takes_update(&mut self, now: Time) -> bool {
        let SuperblockUpdates { wanted, started, done, held, .. } = self.updates;
        assert!(done <= started && started <= wanted, "updates are wanted, started, done in order");
        let idle =
            started == done && self.updates.outstanding == 0 && !held && !self.has_bitmap_round();
        let may = self.updates.not_before.is_none_or(|time| now >= time);
        let due = idle && wanted > started && self.may_write_superblocks() && may;
        if due {
            self.updates.not_before = None;
        }
        due
    }

    fn may_write_superblocks(&self) -> bool {
        let sealed = self.membership.read_only && !self.is_planted(Mutant::WriteWhileReadOnly);
        !sealed && !self.membership.broken
    }

    /// Whether the next superblocks record clean while some corrected strip is not durable.
    fn waits_for_corrections(&self) -> bool {
        !self.says_in_use() && self.corrections != Corrections::Durable
    }

    /// Whether a superblock update that is due waits until corrected strips are durable.
    pub(super) fn update_waits_for_corrections(&self) -> bool {
        self.updates.wanted > self.updates.done && self.waits_for_corrections()
    }

    /// Whether a correction may be in flight. While the array is not dirty, in-sync members are
    /// written only by corrections, and by copies of a reshape, which do not start while an update
    /// waits for corrections.
    fn is_correcting(&self, out: &Outbox) -> bool {
        let mut in_sync = self.members.iter().filter(|it| it.state == MemberState::InSync);
        in_sync.any(|member| out.is_writing_parts(member))
    }

    /// Whether superblocks written now record the array as dirty.
    pub(super) fn says_in_use(&self) -> bool {
        !matches!(self.intent.state, CleanState::Clean | CleanState::BecomingClean(_))
    }

    /// Time of the next attempt at a superblock update that found no space on a member; `None` if
    /// no such update waits.
    pub(crate) fn update_wake(&self) -> Option<Time> {
        // While writes of an update or of bitmap pages are outstanding, their answers wake the
        // array; while the update is held, the answers to a flush do.
        let idle = self.updates.outstanding == 0 && !self.updates.held && !self.has_bitmap_round();
        self.updates.not_before.filter(|_| idle && self.may_write_superblocks())
    }

    fn start_superblocks(&mut self, out: &mut Outbox) {
        assert_eq!(self.updates.outstanding, 0, "one superblock update at a time");
        assert!(!self.membership.broken, "the members of a broken array stay as they are");
        self.updates.catching_up = self.members.iter().any(self.lags());
        if !self.updates.catching_up {
            self.updates.started = self.updates.wanted;
            self.change_bitmap(out.now);
            self.reshape_update_starts();
            self.resize_update_starts();
            if !self.is_planted(Mutant::EventsNotRaised) {
                self.events += 1;
            }
        }
        if !self.write_bitmap_header(out) {
            self.start_superblock_writes(out);
        }
    }

    /// Continues a superblock update after the bitmap pages that precede its superblocks were
    /// answered: they were written, or have to be retried for lack of space.
    pub(super) fn bitmap_header_written(&mut self, out: &mut Outbox) {
        if self.membership.broken {
            // A broken array records nothing more.
            self.updates.catching_up = false;
        } else if self.updates.not_before.is_some() {
            self.finish_superblocks(out);
        } else if self.members.iter().any(|member| self.is_without_bitmap(member)) {
            // A member joined while the header was being written, and its superblock names a
            // bitmap.
            self.write_bitmap_again(out);
        } else if self.waits_for_corrections() {
            (self.updates.held, self.updates.begins) = (true, true);
        } else {
            self.start_superblock_writes(out);
        }
    }

    fn start_superblock_writes(&mut self, out: &mut Outbox) {
        let to_wipe = |position: &usize| self.members[*position].is_to_wipe();
        let to_wipe: Vec<usize> = (0..self.members.len()).filter(to_wipe).collect();
        self.updates.wiping = !to_wipe.is_empty();
        if self.updates.wiping {
            for position in to_wipe {
                self.members[position].attempt = Attempt::First;
                self.send_superblock(position, out);
            }
            return;
        }
        if self.write_bad_logs(out) {
            return;
        }
        let lags = self.lags();
        let catching_up = self.updates.catching_up;
        // A member may be completely rebuilt before any update has recorded its slot.
        let takes_slot = |member: &Member| match member.state {
            MemberState::Rebuilding { .. } => {
                member.superblock().tells_rebuilding()
                    && !member.superblock().features().contains(Features::RECOVERY)
            }
            MemberState::InSync => {
                let superblock = member.superblock();
                superblock.features().contains(Features::REPLACEMENT)
                    || !matches!(superblock.own_role(), Ok(Role::Active(_)))
            }
            MemberState::Faulty | MemberState::Spare => false,
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

    /// Writes the bad-block logs that changed. Returns whether there are any.
    fn write_bad_logs(&mut self, out: &mut Outbox) -> bool {
        let changed = |position: &usize| {
            let member = &self.members[*position];
            member.bad.is_stale() && !member.is_faulty()
        };
        if self.is_planted(Mutant::BadBlocksNotWritten) {
            self.members.iter_mut().for_each(|member| member.bad.take_as_written());
            return false;
        }
        let changed: Vec<usize> = (0..self.members.len()).filter(changed).collect();
        self.updates.logging = !changed.is_empty();
        for position in changed {
            self.members[position].attempt = Attempt::First;
            self.send_superblock(position, out);
        }
        self.updates.logging
    }

    /// Returns a test of members: whether a member's superblock lags behind the update count, or
    /// found no space on the member last time.
    fn lags(&self) -> impl Fn(&Member) -> bool + use<> {
        let events = self.events;
        move |member: &Member| {
            let is_behind = member.superblock().events() < events;
            let is_behind = is_behind || member.superblock_full_since.is_some();
            !member.is_faulty() && member.written_slot().is_some() && is_behind
        }
    }

    /// Writes the superblocks of the members for which `chosen` returns true, highest slot first as
    /// in md, and spares last.
    fn write_superblocks(&mut self, chosen: impl Fn(&Member) -> bool, out: &mut Outbox) {
        assert_eq!(self.updates.outstanding, 0, "the part of the update before it is done");
        self.updates.said_in_use = self.says_in_use();
        let mut positions: Vec<usize> = (0..self.members.len()).collect();
        positions.sort_by_key(|position| {
            std::cmp::Reverse(self.members[*position].slot.map_or(-1, |slot| i32::from(slot.0)))
        });
        for position in positions {
            let member = &self.members[position];
            if member.is_faulty() || !chosen(member) {
                continue;
            }
            if self.is_without_bitmap(member) {
                // A member that joined during the update is written in the next one.
                self.updates.wanted = self.updates.wanted.max(self.updates.started + 1);
            } else {
                self.write_superblock(position, out);
            }
        }
        if self.updates.outstanding == 0 {
            self.finish_superblocks(out);
        }
    }

    /// Writes a member's superblock with the present state. One case is an exception: if the member
    /// had no space for the superblock with the last update count, it gets exactly that superblock
    /// while members are brought up to date. The other members hold that update count with that
    /// content, and md trusts any of several superblocks with equal counts.
    fn write_superblock(&mut self, position: usize, out: &mut Outbox) {
        let member = &mut self.members[position];
        assert!(!member.is_faulty(), "a faulty member gets no superblock");
        member.attempt = Attempt::First;
        let is_encoded = member.superblock().events() == self.events;
        if !(self.updates.catching_up && is_encoded) {
            self.encode_superblock(position, out.now);
        }
        self.send_superblock(position, out);
    }

    fn encode_superblock(&mut self, position: usize, now: Time) {
        let standings = self.standings();
        let member = &self.members[position];
        let in_use = self.says_in_use();
        let logged = member.bad.complete_to();
        let update = Update {
            events: self.events,
            utime: MdTime { secs: self.epoch_secs + now.0 / 1_000_000_000, micros: 0 },
            resync: match self.resync_to_record() {
                _ if in_use => ResyncOffset::At(Sectors::ZERO),
                Some(from) => ResyncOffset::At(from),
                None => ResyncOffset::Clean,
            },
            members: &standings,
            number: member.number,
            recovery_offset: match member.state {
                MemberState::Rebuilding { recovery_offset } => {
                    Some(logged.map_or(recovery_offset, |logged| logged.min(recovery_offset)))
                }
                MemberState::InSync => logged,
                MemberState::Faulty | MemberState::Spare => None,
            },
            recovery_follows_bitmap: member.follows_bitmap,
            has_bad_blocks: member.bad.is_used(),
            is_replacement: member.replaces.is_some(),
        };
        let reshaped_to = self.reshape_position();
        let superblock = self.members[position].superblock_mut();
        superblock.update(&update);
        if let Some(position) = reshaped_to {
            superblock.set_reshape_position(position);
        }
    }

    /// Sends a member's superblock as it was last encoded, zeros if its area is being wiped, or the
    /// member's bad-block log while the logs are written. An array with its geometry given by hand
    /// has no superblocks, and none is sent.
    fn send_superblock(&mut self, position: usize, out: &mut Outbox) {
        if self.is_built {
            return;
        }
        let member = &mut self.members[position];
        let (at, bytes) = if self.updates.logging {
            member.bad.sent();
            member.encode_bad(member.bad.blocks()).expect("bad blocks fit the log of their member")
        } else {
            let superblock = member.superblock();
            let mut bytes = superblock.encode_for(member.info.logical_block);
            if self.updates.wiping {
                bytes.fill(0);
            }
            (superblock.super_offset(), bytes)
        };
        let op = MemberOp::WriteMetadata { at, bytes: bytes.into_boxed_slice() };
        self.submit(position, op, Owner::Superblock, out);
        self.updates.outstanding += 1;
    }

    /// Role of each member as superblocks are to record it, and whether the member is present and
    /// under recovery, in the order of member numbers.
    fn standings(&self) -> Vec<Standing> {
        let standing = |(role, number): (&Role, u32)| {
            let member = self.members.iter().find(|member| member.number == number);
            let rebuilding =
                |member: &Member| matches!(member.state, MemberState::Rebuilding { .. });
            Standing {
                role: *role,
                rebuilding: member.is_some_and(rebuilding),
                present: member.is_some(),
                device: member.map(|member| member.superblock().device()).unwrap_or_default(),
            }
        };
        self.roles.iter().zip(0..).map(standing).collect()
    }

    /// Handles a member's answer for the write of its superblock, or of zeros or the bad-block log
    /// for the same update. `position` is `None` if the member has left the array.
    pub(crate) fn superblock_done(
        &mut self,
        position: Option<usize>,
        result: Result<(), Fault>,
        knobs: &Knobs,
        out: &mut Outbox,
    ) {
        let logging = self.updates.logging;
        if let Some(position) = position.filter(|_| logging) {
            // In an array without redundancy a failed write of the log counts as written: the
            // member stays in use, and the state of the array does not change.
            self.members[position].bad.answered(result.is_ok() || !self.membership.is_redundant);
        }
        match (position, result) {
            // The member still works. The update is repeated later, and nothing relies on the
            // update before then.
            (Some(position), Err(Fault::NoSpace)) => {
                self.retry_update_after(out.now);
                let member = &mut self.members[position];
                member.superblock_full_since.get_or_insert(out.now);
            }
            // The write is retried once, because the error may be temporary.
            (Some(position), Err(Fault::Io))
                if !self.members[position].is_faulty()
                    && self.members[position].attempt == Attempt::First =>
            {
                self.members[position].attempt = Attempt::SecondDue;
                if self.updates.said_in_use || self.corrections == Corrections::Durable {
                    self.try_again(out);
                }
            }
            // Without redundancy the member is needed, and no superblock changes while it is in
            // use.
            (Some(_), Err(_)) if !self.membership.is_redundant => {}
            (Some(position), Err(fault)) => self.fail_for(position, fault, knobs, out),
            (Some(_), Ok(())) if logging => {}
            (Some(position), Ok(())) => {
                let member = &mut self.members[position];
                member.superblock_full_since = None;
                member.superblock_is_old = false;
            }
            (None, Ok(()) | Err(_)) => {}
        }
        assert!(self.updates.outstanding > 0, "a superblock is answered once");
        self.updates.outstanding -= 1;
        if self.updates.outstanding == 0 {
            self.finish_superblocks(out);
        }
    }

    /// Sets the time at which an update that found no space on a member is retried.
    pub(super) fn retry_update_after(&mut self, now: Time) {
        let late = self.is_planted(Mutant::SuperblockRetriedLate);
        let retry = if late { Span::secs(60) } else { UPDATE_RETRY };
        self.updates.not_before = Some(now + retry);
    }

    /// Sends those superblocks again, unchanged, that failed to be written at the first attempt.
    fn try_again(&mut self, out: &mut Outbox) {
        for position in 0..self.members.len() {
            if self.members[position].is_to_try_again() {
                self.members[position].attempt = Attempt::Second;
                self.send_superblock(position, out);
            }
        }
    }

    /// Continues a superblock update after all of its outstanding writes were answered.
    fn finish_superblocks(&mut self, out: &mut Outbox) {
        assert_eq!(self.updates.outstanding, 0, "every member has answered");
        if self.members.iter().any(Member::is_to_try_again) {
            self.updates.held = true;
            return;
        }
        if self.updates.not_before.is_some() {
            // The update starts over. Work that waits for its number keeps waiting.
            self.updates.started = self.updates.done;
            self.updates.catching_up = false;
            self.updates.introducing = false;
            self.updates.wiping = false;
            self.updates.logging = false;
            self.updates.wanted = self.updates.wanted.max(self.updates.done + 1);
            return;
        }
        let wiped = std::mem::take(&mut self.updates.wiping);
        if std::mem::take(&mut self.updates.logging) || wiped {
            if self.membership.broken {
                return;
            }
            if self.waits_for_corrections() {
                // A correction began during these writes.
                (self.updates.held, self.updates.begins) = (true, true);
            } else {
                self.start_superblock_writes(out);
            }
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
            if self.membership.broken {
                // A broken array is not written to.
                return;
            }
            let events = self.events;
            self.write_superblocks(|member| member.superblock().events() < events, out);
            return;
        }
        let recorded_before = self.failures_recorded();
        assert!(self.updates.done <= self.updates.started, "updates are done in order");
        self.updates.done = self.updates.started;
        if self.updates.done + 1 == self.updates.records_failures {
            self.want_update();
        }
        self.reshape_update_done();
        if let Some(bitmap) = &mut self.bitmap {
            bitmap.update_done(self.events);
            bitmap.leaves_with(self.updates.done);
        }
        match self.intent.state {
            CleanState::BecomingClean(number) if self.updates.done >= number => {
                let leased = self.intent.is_leased();
                let planted = self.is_planted(Mutant::NotDirtyWhileBecomingClean);
                assert!(!leased || planted, "no array becomes clean while a lease is out");
                self.intent.state = CleanState::Clean;
                out.notice(Notice::ArrayClean(self.volume));
            }
            CleanState::BecomingDirty(number) if self.updates.done >= number => {
                self.intent.state = CleanState::Dirty;
                self.intent.last_write = out.now;
                out.notice(Notice::ArrayDirty(self.volume));
            }
            _ => {}
        }
        if !recorded_before && self.failures_recorded() {
            out.notice(Notice::FailureRecorded { volume: self.volume });
        }
    }

    // Flush rounds.

    fn start_flushes(&mut self, rule: FlushRule, out: &mut Outbox) {
        let mut slots = self.membership.present();
        if self.is_planted(Mutant::FlushSkipsOneMember) {
            slots.remove(Slot(0));
        }
        let member = |slot: Slot| self.at(slot).expect("a slot that is present has a member");
        let planted = self.is_planted(Mutant::FailedMemberFlushed);
        let is_beside = |it: &&Member| it.replaces.is_some() || (planted && it.is_faulty());
        let replacements = self.members.iter().filter(is_beside);
        let members: SmallVec<[_; 8]> = slots
            .descending()
            .map(|slot| (member(slot).info.index, member(slot).unflushed))
            .chain(replacements.map(|member| (member.info.index, member.unflushed)))
            .collect();
        for (member, flight) in self.flushes.start(rule, &members) {
            let position = self.position_of(member).expect("a flushed member takes part");
            self.submit(position, MemberOp::Flush, Owner::Flush(flight), out);
        }
        self.finish_flushes();
    }

    /// Handles a member's answer for a flush.
    pub(crate) fn flush_done(
        &mut self,
        flight: FlightId,
        position: Option<usize>,
        result: Result<(), Fault>,
        knobs: &Knobs,
        out: &mut Outbox,
    ) {
        // If the array can do without the member, requests wait until its failure is recorded, and
        // get no error.
        let needed = position.is_some_and(|position| self.breaks(position));
        let told = if self.membership.is_redundant && !needed { Ok(()) } else { result };
        let unflushed = position.map(|position| &mut self.members[position].unflushed);
        self.flushes.ended(flight, unflushed, result, told);
        // Data that the member had cached may be lost, and another flush would not bring it back.
        let redundant = self.membership.is_redundant;
        if let (Some(position), Err(fault), true) = (position, result, redundant) {
            self.fail_for(position, fault, knobs, out);
        }
        self.finish_flushes();
    }

    /// Takes the client requests for which the round of flushes has ended, with the result of the
    /// round. Returns none while a member failure is not recorded: the data that follows a flush
    /// must not be written while superblocks still count on the failed member.
    #[inline]
    pub(crate) fn take_flushed(&mut self) -> Vec<(RequestId, Result<(), Fault>)> {
        if self.has_flushed() { std::mem::take(&mut self.flushed) } else { Vec::new() }
    }

    /// Whether [`Array::take_flushed`] would return any request.
    #[inline]
    pub(crate) fn has_flushed(&self) -> bool {
        let planted = self.is_planted(Mutant::FlushBeforeFailureRecorded);
        !self.flushed.is_empty() && (self.is_known() || planted)
    }

    /// Result of the last flush of all members: an error only if a member failed it that the array
    /// cannot run without.
    pub(crate) fn flush_result(&self) -> Result<(), ReplyError> {
        Ok(self.flush_result?)
    }

    fn finish_flushes(&mut self) {
        for (served, result) in self.flushes.take_served() {
            self.flush_result = result;
            match served {
                FlushFor::Clean(attempt) => {
                    if self.intent.state != CleanState::EnteringSafeMode(attempt) {
                        continue;
                    }
                    self.intent.state = if self.membership.is_redundant {
                        CleanState::BecomingClean(self.want_update())
                    } else {
                        CleanState::Clean
                    };
                }
                FlushFor::Bitmap(run) => self.clear_bits(run),
                FlushFor::Corrections(number) => {
                    if self.corrections == Corrections::Flushing(number) {
                        self.corrections = Corrections::Durable;
                    }
                }
                FlushFor::Request(request) => self.flushed.push((request, result)),
                FlushFor::Reshape(copied) => self.reshape_flushed(copied, result.is_ok()),
            }
        }
    }
}

/// Number that no superblock update ever has: a request that waits for it waits forever.
pub(super) const NEVER: u64 = u64::MAX;

/// Time between two attempts at an update, if a superblock found no space on its member.
const UPDATE_RETRY: Span = Span::secs(1);
