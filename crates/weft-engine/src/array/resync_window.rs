//! Resync, recovery, check and repair: the loop over all stripes.
//!
//! All four are one loop: it starts the sync of stripes in order, with a window of at most 64
//! unfinished stripes, as long as the cache has room. Clients need stripes as well, so a sync never
//! waits for a stripe to become free: it takes only free ones.
//!
//! With a write-intent bitmap, a resync and the recovery of a returned member cover only the
//! stripes of chunks that are dirty when the sync begins; later writes go to every member anyway.
//!
//! A resync or recovery that is stopped records how far it got, so that the next one continues
//! there; a check or repair starts from the beginning, or where it is told to
//! ([`Verb::SyncRange`](crate::Verb::SyncRange)).
//!
//! Source   md-raid.md §6.1, §6.2

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

use weft_units::{SectorRange, Sectors, Time, VolumeId};

use crate::array::Array;
use crate::array::outbox::Outbox;
use crate::array::sync_pace::Pace;
use crate::array::write_intent::Lease;
use crate::contract::input::SyncAction;
use crate::contract::member::MemberState;
use crate::contract::output::Notice;
use crate::contract::snapshot::{Mismatch, Mismatches, WrongStrip};
use crate::layout::slot_set::SlotSet;
use crate::mutant::Mutant;

/// Range that a sync of an array covers, and effect of the sync, as defined by the personality.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pass {
    /// Number of sectors of a unit, the part of a sync that is started and finished as a whole: one
    /// stripe, or one section of a mirror.
    pub(crate) unit: Sectors,
    /// Number of sectors that the sync covers, counted on each member or in the array.
    pub(crate) size: Sectors,
    /// Whether all copies and parity agree once the sync has covered everything.
    pub(crate) settles: Settles,
    /// Whether the sync counts sectors of members while the bits of the bitmap stand for sectors of
    /// the array, so that ranges have to be mapped between the two.
    pub(crate) maps: bool,
}

/// Whether all copies, and parity, agree after a sync has covered everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settles {
    No,
    /// The copies agree, unless a member under recovery was partly rebuilt before. The rebuilt part
    /// of such a member is read by clients and by the sync, but the sync neither writes nor
    /// compares it.
    UnlessPartlyRebuilt,
    Yes,
}

/// Sectors that a sync was asked to cover, counted as [`Pass::size`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) from: Sectors,
    /// Sector at which the sync ends; `None` for the end of the pass.
    pub(crate) to: Option<Sectors>,
}

impl Wanted {
    /// The sectors from `from` to the end of the pass.
    pub(crate) fn all_from(from: Sectors) -> Self {
        Self { from, to: None }
    }
}

/// A resync, recovery, check or repair in progress.
#[derive(Clone, Debug)]
pub(crate) struct Resync {
    pub(crate) action: SyncAction,
    /// Lease that keeps the array dirty while the sync may change parity; `None` for a sync that
    /// changes none.
    pub(crate) lease: Option<Lease>,
    /// Slots that were under recovery when the sync began and are still under recovery.
    slots: SlotSet,
    /// Whether at least one of `slots` already held rebuilt data when the recovery began.
    partly_rebuilt: bool,
    /// Whether a member was being replaced when the recovery began.
    replaces: bool,
    /// Sectors that the sync covers.
    pub(crate) wanted: Wanted,
    /// Time at which the sync ended; `None` while it runs.
    pub(crate) ended: Option<Time>,
    /// Number of the next unit of the sync to start; see [`Pass::unit`].
    next: u64,
    end: u64,
    /// Units that have to be synced, as ranges of their numbers in order, beginning with the range
    /// that contains `next`; `None`: all units.
    only: Option<VecDeque<Range<u64>>>,
    /// Sectors of the array that have to be synced, if units are counted in sectors of the members;
    /// `None`: all sectors.
    only_array: Option<Vec<SectorRange>>,
    window: BTreeSet<u64>,
    pass: Pass,
    pub(crate) units: u64,
    pub(crate) mismatch_cnt: u64,
    /// Mismatches that a check has found.
    pub(crate) mismatches: Mismatches,
    stopping: bool,
    failed: bool,
    pub(crate) pace: Pace,
}

impl Resync {
    /// Creates a sync of the sectors `wanted`.
    pub(crate) fn new(
        action: SyncAction,
        wanted: Wanted,
        array: &Array,
        pass: Pass,
        lease: Option<Lease>,
        pace: Pace,
    ) -> Self {
        let unit = pass.unit;
        let slots = array.rebuilding().map_or(SlotSet::EMPTY, |(slots, _)| slots);
        assert!(!matches!(action, SyncAction::Frozen | SyncAction::Idle), "a sync does something");
        assert!(unit > Sectors::ZERO, "a unit is not empty");
        let only = match action {
            SyncAction::Recover => array.to_recover(),
            SyncAction::Resync => array.to_resync(),
            SyncAction::Check
            | SyncAction::Correct
            | SyncAction::Frozen
            | SyncAction::Idle
            | SyncAction::Repair
            | SyncAction::Reshape => None,
        };
        let (only, only_array) = if pass.maps { (None, only) } else { (only, None) };
        let mut sync = Self {
            only_array,
            action,
            lease,
            slots,
            partly_rebuilt: array.is_partly_rebuilt(),
            replaces: array.is_replacing(),
            wanted,
            ended: None,
            next: wanted.from.0 / unit.0,
            end: wanted.to.map_or(pass.size, |to| to.min(pass.size)).0.div_ceil(unit.0),
            only: only.map(|ranges| units_of(&ranges, unit)),
            window: BTreeSet::new(),
            pass,
            units: 0,
            mismatch_cnt: 0,
            mismatches: Mismatches::default(),
            stopping: false,
            failed: false,
            pace,
        };
        sync.skip();
        sync
    }

    /// Whether the sync has to cover any of these sectors of the array.
    pub(crate) fn is_about(&self, sectors: SectorRange) -> bool {
        let meets = |of: &SectorRange| of.start < sectors.end() && sectors.start < of.end();
        self.only_array.as_ref().is_none_or(|ranges| ranges.iter().any(meets))
    }

    /// Advances `next` to the number of the next unit (stripe, or section of a mirror) that has to
    /// be synced.
    fn skip(&mut self) {
        let Some(only) = &mut self.only else { return };
        while only.front().is_some_and(|range| range.end <= self.next) {
            only.pop_front();
        }
        let next = only.front().map_or(self.end, |range| range.start.max(self.next));
        self.next = next.min(self.end).max(self.next);
    }

    /// Starts units in order while fewer than the window permits are unfinished. `ask` starts the
    /// given unit and returns whether it could. If it could not, because requests wait for stripes
    /// or there is no room, the sync starts no more for now.
    pub(crate) fn feed(&mut self, cache_stripes: u32, mut ask: impl FnMut(u64, &Self) -> bool) {
        let stripes_max = window_stripes(cache_stripes);
        while !self.stopping && self.next < self.end && self.window.len() < stripes_max {
            if !self.pace.allows(self.has_all()) || !ask(self.next, self) {
                return;
            }
            self.pace.asked(self.pass.unit.bytes());
            assert!(self.window.insert(self.next), "a resync asks for a unit once");
            self.next += 1;
            self.skip();
        }
    }

    /// Whether the sync can continue without another event. It can end once no unit is left to
    /// start and every started unit is done. Otherwise it can start the next unit if the window and
    /// the pace permit that, `may` returns true for the unit, and `syncs` (a sync of the unit is in
    /// progress) is false for all started units.
    pub(crate) fn has_work(
        &self,
        cache_stripes: u32,
        may: impl FnOnce(u64) -> bool,
        syncs: impl Fn(u64) -> bool,
    ) -> bool {
        if self.stopping || self.next >= self.end {
            return self.window.is_empty();
        }
        self.window.len() < window_stripes(cache_stripes)
            && self.pace.allows(self.has_all())
            && may(self.next)
            && !self.window.iter().any(|key| syncs(*key))
    }

    /// Whether everything that the sync has started is finished.
    pub(crate) fn has_all(&self) -> bool {
        self.window.is_empty()
    }

    /// Time at which the speed limits of the sync let it continue; `None` if they do not delay the
    /// sync. `client_waits` tells whether a client waits for an answer now.
    pub(crate) fn wake(&self, client_waits: bool) -> Option<Time> {
        let goes_on = !self.stopping && self.next < self.end;
        if goes_on { self.pace.wake(self.has_all(), client_waits) } else { None }
    }

    /// Whether the sync covers all sectors, and not only chunks with their bit set in the bitmap.
    fn is_of_all(&self) -> bool {
        self.only.is_none() && self.only_array.is_none()
    }

    /// Whether a check or repair was asked to leave out a part of the array.
    fn is_of_part(&self) -> bool {
        let Wanted { from, to } = self.wanted;
        let is_asked =
            matches!(self.action, SyncAction::Check | SyncAction::Correct | SyncAction::Repair);
        let unit = self.pass.unit.0;
        let units = |to: Sectors| to.0.div_ceil(unit);
        is_asked && (from.0 >= unit || to.is_some_and(|to| units(to) < units(self.pass.size)))
    }

    /// Whether the sync has started a unit with one of these numbers and not finished it.
    pub(crate) fn waits_for(&self, keys: &Range<u64>) -> bool {
        self.window.range(keys.clone()).next().is_some()
    }

    /// Records that the sync of unit `key` has ended. `mismatch` is true if its copies or its
    /// parity did not agree, `ok` is false if the unit could not be synced.
    pub(crate) fn unit_done(&mut self, key: u64, mismatch: bool, ok: bool) {
        assert!(self.window.remove(&key), "a unit is synced once");
        self.units += 1;
        if mismatch {
            self.mismatch_cnt += self.pass.unit.0;
        }
        // A recovery or a reshape succeeds completely or not at all. A check or a resync goes on
        // after a stripe that cannot be read, to check the parity of the other stripes (as in md).
        if !ok && matches!(self.action, SyncAction::Recover | SyncAction::Reshape) {
            self.failed = true;
            self.rewind(key);
        }
    }

    /// Ends the sync early because unit `key` has to wait until there is space on a member: the
    /// next sync begins at this unit.
    pub(crate) fn unit_put_off(&mut self, key: u64) {
        assert!(self.window.remove(&key), "a unit is synced once");
        self.rewind(key);
    }

    /// Records that a check found a mismatch in unit `key`. `wrong` is the strip that alone
    /// explains the mismatch, if there is one.
    pub(crate) fn found_mismatch(&mut self, key: u64, wrong: Option<WrongStrip>) {
        let sector = self.sector_of(key);
        self.mismatches.add(Mismatch { sector, wrong });
    }

    /// Sector, counted as [`Pass::size`], at which unit `key` begins.
    pub(crate) fn sector_of(&self, key: u64) -> Sectors {
        Sectors(key * self.pass.unit.0)
    }

    /// Ends the sync early, as if it had only come to sector `sector`, counted as [`Pass::size`]:
    /// the next sync continues there.
    pub(crate) fn rewind_to(&mut self, sector: Sectors) {
        self.rewind(sector.0 / self.pass.unit.0);
    }

    fn rewind(&mut self, key: u64) {
        self.stopping = true;
        self.next = self.next.min(key);
    }

    /// Ends the sync early: no more units are started.
    pub(crate) fn stop(&mut self) {
        self.stopping = true;
    }

    /// Sector, counted as [`Pass::size`], up to which every unit is done.
    pub(crate) fn completed(&self) -> Sectors {
        let first = self.window.first().copied().unwrap_or(self.next).min(self.next);
        Sectors(first * self.pass.unit.0).min(self.pass.size)
    }

    /// Number of sectors that a complete sync covers, counted as [`Pass::size`].
    pub(crate) fn total(&self) -> Sectors {
        self.pass.size
    }

    /// Leaves out the slots outside `slots`, which are no longer under recovery: the members that
    /// the sync filled there have failed, and another member may take such a slot before the sync
    /// is over. Returns whether any slot was left out.
    pub(crate) fn leave_out_all_but(&mut self, slots: SlotSet) -> bool {
        let before = self.slots;
        self.slots = before.and(slots);
        self.slots != before
    }

    /// Whether some unit of a recovery or reshape could not be synced.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed
    }

    /// Records the sync's progress in the array, so that the next superblock update stores it.
    pub(crate) fn checkpoint(&self, array: &mut Array, out: &mut Outbox) {
        match self.action {
            SyncAction::Recover => array.rebuilt_to(self.slots, self.completed(), false, out),
            SyncAction::Reshape => array.reshaped_to(self.completed()),
            SyncAction::Resync => array.resynced_to(Some(self.completed())),
            SyncAction::Check
            | SyncAction::Correct
            | SyncAction::Frozen
            | SyncAction::Idle
            | SyncAction::Repair => {}
        }
    }

    /// If the sync is over, records its result in the array and sends a notice. Returns whether it
    /// is over.
    pub(crate) fn finish(&self, array: &mut Array, volume: VolumeId, out: &mut Outbox) -> bool {
        if !self.window.is_empty() || !(self.stopping || self.next >= self.end) {
            return false;
        }
        let for_none = self.action == SyncAction::Recover && self.slots.is_empty();
        let broken = array.membership.broken;
        let complete = self.next >= self.end && !self.failed && !for_none && !broken;
        match self.action {
            SyncAction::Recover => {
                array.rebuilt_to(self.slots, self.completed(), complete, out);
                let partly = self.partly_rebuilt && !array.is_planted(Mutant::PartlyRebuiltSettles);
                let settles = match self.pass.settles {
                    Settles::No => false,
                    Settles::UnlessPartlyRebuilt => !partly,
                    Settles::Yes => true,
                };
                // A copy to a replacement compares nothing.
                let settles = settles && !self.replaces;
                let all = self.wanted.from == Sectors::ZERO && self.is_of_all() && settles;
                if complete && array.membership.degraded() == 0 && all {
                    // This recovery has read or written everything that could disagree.
                    array.membership.resync_from = None;
                }
            }
            SyncAction::Resync => {
                array.resynced_to((!complete).then(|| self.completed()));
            }
            SyncAction::Check
            | SyncAction::Correct
            | SyncAction::Frozen
            | SyncAction::Idle
            | SyncAction::Repair
            | SyncAction::Reshape => {}
        }
        if matches!(self.action, SyncAction::Recover | SyncAction::Resync)
            && !array.membership.read_only
        {
            array.want_update();
        }
        array.record_bad_blocks();
        out.notice(Notice::SyncFinished {
            volume,
            action: self.action,
            mismatch_cnt: self.mismatch_cnt,
            stripes: self.units,
            complete: complete && !self.is_of_part(),
        });
        true
    }
}

impl Array {
    /// Slots under recovery, by a member or its replacement, and the lowest recovery offset among
    /// them; `None` without a recovery.
    pub(crate) fn rebuilding(&self) -> Option<(SlotSet, Sectors)> {
        let mut slots = SlotSet::EMPTY;
        let mut least: Option<Sectors> = None;
        for member in &self.members {
            if let (MemberState::Rebuilding { recovery_offset }, Some(slot)) =
                (member.state, member.written_slot())
            {
                slots.insert(slot);
                least = Some(least.map_or(recovery_offset, |least| least.min(recovery_offset)));
            }
        }
        least.map(|least| (slots, least))
    }

    /// Whether a member under recovery already has rebuilt data.
    fn is_partly_rebuilt(&self) -> bool {
        let holds = |state: MemberState| match state {
            MemberState::Rebuilding { recovery_offset } => recovery_offset > Sectors::ZERO,
            MemberState::Faulty | MemberState::InSync | MemberState::Spare => false,
        };
        self.members.iter().any(|member| member.slot.is_some() && holds(member.state))
    }

    /// Raises the recovery offset of the members at `slots` to `to`. With `end` the members become
    /// in sync, and replacements take their slots.
    pub(crate) fn rebuilt_to(&mut self, slots: SlotSet, to: Sectors, end: bool, out: &mut Outbox) {
        for member in &mut self.members {
            let Some(slot) = member.written_slot() else { continue };
            if let MemberState::Rebuilding { recovery_offset } = &mut member.state
                && slots.contains(slot)
            {
                *recovery_offset = to.max(*recovery_offset);
                if end {
                    member.state = MemberState::InSync;
                    member.follows_bitmap = false;
                }
            }
        }
        assert!(to <= self.member_size, "no member is rebuilt past its data");
        if end {
            self.swap(out);
            self.recount();
            self.want_update();
        } else {
            self.membership.rebuilt(&self.members);
        }
    }
}

/// Numbers of the units that cover the given ranges of data sectors, as ranges in order and without
/// repetition.
fn units_of(ranges: &[SectorRange], unit: Sectors) -> VecDeque<Range<u64>> {
    let mut units: VecDeque<Range<u64>> = VecDeque::new();
    for range in ranges {
        let (start, end) = (range.start.0 / unit.0, range.end().0.div_ceil(unit.0));
        match units.back_mut() {
            Some(last) if last.end >= start => last.end = last.end.max(end),
            _ => units.push_back(start..end),
        }
    }
    units
}

/// Largest number of units that a sync may have started and not finished, if the stripe cache has
/// `cache_stripes` stripes.
fn window_stripes(cache_stripes: u32) -> usize {
    WINDOW_STRIPES.min(cache_stripes as usize / 4).max(1)
}

/// Upper bound of the window: enough to keep every member busy with large merged requests (64
/// stripes × 4 KiB are 256 KiB per member), and a quarter of the default cache.
const WINDOW_STRIPES: usize = 64;
