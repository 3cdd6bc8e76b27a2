//! Plan of a stripe: the next step from the state of its strips.
//!
//! One pure function takes the state of a stripe's strips and returns the next step. The rules and
//! their order are md's, so that the member requests are md's too (`plan_rule=md`). First comes
//! *fill*, which makes valid the strips that a reader, a partial write or a sync needs. Then comes
//! the *dirtying decision* between reconstruct-write (parity from all data) and read-modify-write
//! (parity from old data and old parity), whichever reads less.
//!
//! `plan_rule=least` decides differently (`plan/least.rs`): the fewest reads for the same result.
//!
//! A read step may come with a delay: a partial write reads its own strip at once and waits for the
//! permission to preread the others.
//!
//! Source   md-raid.md §2.2 to §2.6 (every entry of its tables was traced on Linux 6.12; the traces
//!          are replayed by weft-crash's tests)

mod least;

use weft_units::Slot;

use crate::knobs::{PlanRule, RmwLevel};
use crate::layout::slot_set::SlotSet;

/// State of a stripe's strips while no operation of the stripe is in flight.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Every slot of the array.
    pub all: SlotSet,
    /// Slot that holds P in this stripe.
    pub p: Slot,
    /// Slot that holds Q; `None` with one parity.
    pub q: Option<Slot>,
    /// Strips with valid content in the cache.
    pub uptodate: SlotSet,
    /// Strips that can be read from their members.
    pub insync: SlotSet,
    /// Strips that can be written to their members.
    pub writable: SlotSet,
    /// Strips that a request reads.
    pub to_read: SlotSet,
    /// Strips that a request writes.
    pub to_write: SlotSet,
    /// Strips that requests write from end to end.
    pub overwrite: SlotSet,
    /// Whether every strip is to be valid, for a sync or for the correction of a read error.
    pub wants_all: bool,
    /// Whether the stripe has the permission to preread.
    pub preread: bool,
    /// Whether a resync has not passed this stripe yet, so that parity may not match the data.
    pub resync_pending: bool,
    /// Value of the knob `rmw_level`.
    pub rmw_level: RmwLevel,
    /// Value of the knob `plan_rule`.
    pub rule: PlanRule,
}

/// Next step of a stripe: a read, a computation, a write, or none. [`Facts::plan`] decides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StripeStep {
    /// Read these strips. With `delay`, the stripe then waits for the permission to read further
    /// strips.
    Read {
        /// Strips to read now. May be empty only with `delay`.
        strips: SlotSet,
        /// Whether the stripe waits for the permission to preread.
        delay: bool,
    },
    /// Compute these strips, one or two, from the others.
    Recover(SlotSet),
    /// Drain the writers and compute parity in the given mode.
    Write(Mode),
    /// No step: no reader or writer is left, or a sync has all of its strips.
    Rest,
}

/// Way in which parity is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// From the old data, the old parity and the new data.
    ReadModifyWrite,
    /// From all data of the stripe.
    Reconstruct,
}

impl Facts {
    /// Slots of the data strips.
    #[must_use]
    pub fn data(&self) -> SlotSet {
        self.all.without(self.parity())
    }

    /// Slots of the parity strips.
    #[must_use]
    pub fn parity(&self) -> SlotSet {
        let mut parity = SlotSet::only(self.p);
        if let Some(q) = self.q {
            parity.insert(q);
        }
        parity
    }

    /// Strips that cannot be read from their member.
    #[must_use]
    pub fn failed(&self) -> SlotSet {
        self.all.without(self.insync)
    }

    /// Decides the next step of the stripe.
    ///
    /// Shape    no more strips have failed ([`Facts::failed`]) than there are parities
    #[inline]
    #[must_use]
    pub fn plan(&self) -> StripeStep {
        match self.rule {
            PlanRule::Least => self.least(),
            PlanRule::Md => self.as_md(),
        }
    }

    #[inline(always)]
    fn as_md(&self) -> StripeStep {
        let partial = self.to_write.without(self.overwrite);
        let failed = self.failed();
        let wants_fill = !self.to_read.is_empty()
            || !partial.is_empty()
            || (!self.to_write.is_empty() && !failed.is_empty())
            || (self.wants_all && self.uptodate != self.all);
        let mut reads = SlotSet::EMPTY;
        if wants_fill {
            match self.fill(partial) {
                Fill::Recover(lost) => return StripeStep::Recover(lost),
                Fill::Read(strips) => reads = strips,
            }
        }
        if self.to_write.is_empty() || self.wants_all {
            return if reads.is_empty() {
                StripeStep::Rest
            } else {
                StripeStep::Read { strips: reads, delay: false }
            };
        }
        self.dirty(reads)
    }

    /// Strips that a sync has to read, although they could be computed: they may be wrong on their
    /// members, and the sync would find that computed strips agree. (md computes P of RAID 6.)
    fn unread(&self, uptodate: SlotSet) -> SlotSet {
        let is_unchecked = self.wants_all && self.resync_pending;
        if is_unchecked { self.insync.without(uptodate) } else { SlotSet::EMPTY }
    }

    /// Reads or computations that make valid the strips needed by a reader, a partial write or a
    /// sync. `partial` are the strips that a request writes only in part.
    fn fill(&self, partial: SlotSet) -> Fill {
        let failed = self.failed();
        let missing = self.all.without(self.uptodate);
        let unread = self.unread(self.uptodate);
        let mut reads = SlotSet::EMPTY;
        for slot in missing.descending() {
            if !self.needs(slot, partial) {
                continue;
            }
            let others_missing = missing.count() - 1;
            let computable = failed.contains(slot) || (self.q.is_some() && slot == self.p);
            let computable = computable && !unread.contains(slot);
            if others_missing == 0 && computable {
                return Fill::Recover(missing);
            }
            let has_failed = !missing.and(failed).is_empty() && missing.and(unread).is_empty();
            if others_missing == 1 && failed.count() >= 2 && has_failed {
                return Fill::Recover(missing);
            }
            if self.insync.contains(slot) {
                reads.insert(slot);
            }
        }
        Fill::Read(reads)
    }

    fn needs(&self, slot: Slot, partial: SlotSet) -> bool {
        let failed = self.failed();
        if self.to_read.contains(slot) || partial.contains(slot) || self.wants_all {
            return true;
        }
        // A lost strip is computed from all other strips.
        if !failed.and(self.to_read).is_empty() {
            return true;
        }
        if failed.is_empty() || self.to_write.is_empty() {
            return false;
        }
        if self.insync.contains(slot) && !self.preread {
            return false;
        }
        let lost = failed.without(self.uptodate);
        if !lost.and(partial).is_empty() {
            return true;
        }
        let reconstruct = self.rmw_level == RmwLevel::Never
            || self.resync_pending
            || (failed.count() >= 2 && !lost.and(self.to_write.or(self.parity())).is_empty());
        reconstruct && !lost.and(self.data()).without(self.overwrite).is_empty()
    }

    /// Chooses read-modify-write or reconstruct-write, or first reads strips that the chosen mode
    /// lacks. `reads` are the strips that the fill step reads anyway.
    #[inline(always)]
    fn dirty(&self, reads: SlotSet) -> StripeStep {
        let cost = |wanted: SlotSet| {
            let lost = wanted.without(self.insync);
            if lost.is_empty() {
                return wanted.count();
            }
            let never = 2 * self.all.count();
            wanted.and(self.insync).count() + lost.count() * never
        };
        let missing = self.all.without(self.uptodate).without(reads);
        let rmw_reads = missing.and(self.to_write.or(self.parity()));
        let rcw_reads = missing.and(self.data()).without(self.overwrite);
        if reads.is_empty() && rcw_reads.is_empty() {
            return StripeStep::Write(Mode::Reconstruct);
        }
        let forced =
            self.rmw_level == RmwLevel::Never || (self.resync_pending && self.failed().is_empty());
        let (rmw, mut rcw) = if forced { (2, 1) } else { (cost(rmw_reads), cost(rcw_reads)) };
        let tie_goes_to_rmw = self.rmw_level == RmwLevel::Tie;
        let mut strips = reads;
        let mut delay = false;
        if (rmw < rcw || (rmw == rcw && tie_goes_to_rmw)) && rmw > 0 {
            self.preread(rmw_reads, &mut strips, &mut delay);
        }
        if (rcw < rmw || (rcw == rmw && !tie_goes_to_rmw)) && rcw > 0 {
            rcw = u32::from(!rcw_reads.is_empty());
            self.preread(rcw_reads, &mut strips, &mut delay);
        }
        if strips.is_empty() && (rcw == 0 || rmw == 0) {
            return StripeStep::Write(if rcw == 0 {
                Mode::Reconstruct
            } else {
                Mode::ReadModifyWrite
            });
        }
        // If there is nothing to read now, the stripe waits for the permission to preread.
        delay |= strips.is_empty();
        assert!(!(delay && self.preread), "a stripe with every permission has a next step");
        StripeStep::Read { strips, delay }
    }

    fn preread(&self, wanted: SlotSet, strips: &mut SlotSet, delay: &mut bool) {
        let here = wanted.and(self.insync);
        if self.preread {
            *strips = strips.or(here);
        } else if !here.is_empty() {
            *delay = true;
        }
    }
}

enum Fill {
    Read(SlotSet),
    Recover(SlotSet),
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stripe of `members` strips with nothing cached: data first, then P and Q, as stripe 0 of a
    /// parity-last layout, under md's rule.
    pub(super) fn cold(members: u16, parities: u16) -> Facts {
        let data = members - parities;
        Facts {
            all: SlotSet::first(members),
            p: Slot(data),
            q: (parities == 2).then_some(Slot(data + 1)),
            uptodate: SlotSet::EMPTY,
            insync: SlotSet::first(members),
            writable: SlotSet::first(members),
            to_read: SlotSet::EMPTY,
            to_write: SlotSet::EMPTY,
            overwrite: SlotSet::EMPTY,
            wants_all: false,
            preread: true,
            resync_pending: false,
            rmw_level: RmwLevel::Fewer,
            rule: PlanRule::Md,
        }
    }

    pub(super) fn writing(mut facts: Facts, full: u16) -> Facts {
        facts.to_write = SlotSet::first(full);
        facts.overwrite = facts.to_write;
        facts
    }

    fn partial(mut facts: Facts) -> Facts {
        facts.to_write = SlotSet::first(1);
        facts.overwrite = SlotSet::EMPTY;
        facts
    }

    pub(super) fn without(mut facts: Facts, failed: &[u16]) -> Facts {
        for slot in failed {
            facts.insync.remove(Slot(*slot));
            facts.writable.remove(Slot(*slot));
        }
        facts
    }

    /// Follows a stripe until it is written. Returns the strips read, the mode in which parity is
    /// computed, and the strips written.
    fn follow(mut facts: Facts) -> (Vec<u16>, Mode, Vec<u16>) {
        let mut reads = SlotSet::EMPTY;
        for _ in 0..8 {
            match facts.plan() {
                StripeStep::Read { strips, delay } => {
                    assert!(!(delay && facts.preread));
                    assert!(delay || !strips.is_empty());
                    facts.preread |= delay;
                    assert!(strips.and(reads).is_empty(), "read twice");
                    reads = reads.or(strips);
                    facts.uptodate = facts.uptodate.or(strips);
                }
                StripeStep::Recover(lost) => facts.uptodate = facts.uptodate.or(lost),
                StripeStep::Write(mode) => {
                    let written = facts.to_write.or(facts.parity()).and(facts.insync);
                    let list = |set: SlotSet| set.ascending().map(|slot| slot.0).collect();
                    return (list(reads), mode, list(written));
                }
                StripeStep::Rest => panic!("a stripe with a writer rests: {facts:?}"),
            }
        }
        panic!("no write after eight steps: {facts:?}");
    }

    const RCW: Mode = Mode::Reconstruct;
    const RMW: Mode = Mode::ReadModifyWrite;

    /// md-raid.md §2.5: the mode and the number of reads for every entry of both tables.
    #[test]
    fn cold_full_strips_choose_as_md_does() {
        let raid5: [(u16, &[(Mode, usize)]); 6] = [
            (3, &[(RCW, 1), (RCW, 0)]),
            (4, &[(RCW, 2), (RCW, 1), (RCW, 0)]),
            (5, &[(RMW, 2), (RCW, 2), (RCW, 1), (RCW, 0)]),
            (6, &[(RMW, 2), (RCW, 3), (RCW, 2), (RCW, 1), (RCW, 0)]),
            (7, &[(RMW, 2), (RMW, 3), (RCW, 3), (RCW, 2), (RCW, 1)]),
            (8, &[(RMW, 2), (RMW, 3), (RCW, 4), (RCW, 3), (RCW, 2)]),
        ];
        let raid6: [(u16, &[(Mode, usize)]); 6] = [
            (4, &[(RCW, 1), (RCW, 0)]),
            (5, &[(RCW, 2), (RCW, 1), (RCW, 0)]),
            (6, &[(RCW, 3), (RCW, 2), (RCW, 1), (RCW, 0)]),
            (7, &[(RMW, 3), (RCW, 3), (RCW, 2), (RCW, 1)]),
            (8, &[(RMW, 3), (RCW, 4), (RCW, 3), (RCW, 2)]),
            (9, &[(RMW, 3), (RMW, 4), (RCW, 4), (RCW, 3)]),
        ];
        let shapes =
            raid5.iter().map(|stripe| (1, stripe)).chain(raid6.iter().map(|stripe| (2, stripe)));
        for (parities, (members, entries)) in shapes {
            for (expected, full) in entries.iter().zip(1..) {
                let (reads, mode, writes) = follow(writing(cold(*members, parities), full));
                assert_eq!((mode, reads.len()), *expected, "{members} members, {full} strips");
                assert_eq!(writes.len(), usize::from(full + parities));
            }
        }
    }

    /// md-raid.md §2.6: the table of RAID 5 on four members and the list of RAID 6 on six.
    /// Statement 14.
    #[test]
    fn statement_14_degraded_writes_choose_as_md_does() {
        type Case = (&'static [u16], bool, Mode, &'static [u16], &'static [u16]);
        let raid5: [Case; 6] = [
            (&[0], true, RCW, &[1, 2], &[3]),
            (&[1], true, RMW, &[0, 3], &[0, 3]),
            (&[3], true, RCW, &[1, 2], &[0]),
            (&[0], false, RCW, &[1, 2, 3], &[3]),
            (&[1], false, RMW, &[0, 3], &[0, 3]),
            (&[3], false, RCW, &[0, 1, 2], &[0]),
        ];
        let raid6: [Case; 20] = [
            (&[0], true, RCW, &[1, 2, 3], &[4, 5]),
            (&[1], true, RMW, &[0, 4, 5], &[0, 4, 5]),
            (&[4], true, RCW, &[1, 2, 3], &[0, 5]),
            (&[5], true, RCW, &[1, 2, 3], &[0, 4]),
            (&[0, 1], true, RCW, &[2, 3, 4, 5], &[4, 5]),
            (&[1, 2], true, RMW, &[0, 4, 5], &[0, 4, 5]),
            (&[1, 4], true, RCW, &[0, 2, 3, 5], &[0, 5]),
            (&[4, 5], true, RCW, &[1, 2, 3], &[0]),
            (&[0, 4], true, RCW, &[1, 2, 3], &[5]),
            (&[0, 5], true, RCW, &[1, 2, 3], &[4]),
            (&[0], false, RCW, &[1, 2, 3, 4, 5], &[4, 5]),
            (&[1], false, RMW, &[0, 4, 5], &[0, 4, 5]),
            (&[1, 2], false, RMW, &[0, 4, 5], &[0, 4, 5]),
            (&[4], false, RCW, &[0, 1, 2, 3], &[0, 5]),
            (&[5], false, RCW, &[0, 1, 2, 3], &[0, 4]),
            (&[4, 5], false, RCW, &[0, 1, 2, 3], &[0]),
            (&[0, 1], false, RCW, &[2, 3, 4, 5], &[4, 5]),
            (&[0, 4], false, RCW, &[1, 2, 3, 5], &[5]),
            (&[0, 5], false, RCW, &[1, 2, 3, 4], &[4]),
            (&[1, 4], false, RCW, &[0, 2, 3, 5], &[0, 5]),
        ];
        let stripes = raid5
            .iter()
            .map(|stripe| (4, 1, stripe))
            .chain(raid6.iter().map(|stripe| (6, 2, stripe)));
        for (members, parities, (failed, full, mode, reads, writes)) in stripes {
            let facts = cold(members, parities);
            let facts = if *full { writing(facts, 1) } else { partial(facts) };
            let found = follow(without(facts, failed));
            let expected = (reads.to_vec(), *mode, writes.to_vec());
            assert_eq!(found, expected, "{members} members without {failed:?}, full {full}");
        }
    }

    #[test]
    fn without_permission_a_stripe_is_delayed_and_reads_only_its_own_strip() {
        let mut facts = writing(cold(4, 1), 1);
        facts.preread = false;
        assert_eq!(facts.plan(), StripeStep::Read { strips: SlotSet::EMPTY, delay: true });
        let mut facts = partial(cold(4, 1));
        facts.preread = false;
        assert_eq!(facts.plan(), StripeStep::Read { strips: SlotSet::only(Slot(0)), delay: true });
    }

    /// md-raid.md §2.12, invariant 2: a partial write to a missing member must ask for permission.
    #[test]
    fn a_partial_write_to_a_lost_strip_is_delayed_not_forgotten() {
        let mut facts = without(partial(cold(4, 1)), &[0]);
        facts.preread = false;
        assert_eq!(facts.plan(), StripeStep::Read { strips: SlotSet::EMPTY, delay: true });
    }

    /// md-raid.md §9, statement 30: ahead of the resync, all data is read and parity computed from
    /// it.
    #[test]
    fn statement_30_ahead_of_the_resync_all_data_is_read() {
        let mut facts = writing(cold(5, 1), 1);
        facts.resync_pending = true;
        assert_eq!(follow(facts), (vec![1, 2, 3], RCW, vec![0, 4]));
        facts.resync_pending = false;
        assert_eq!(follow(facts), (vec![0, 4], RMW, vec![0, 4]));
    }

    /// Ahead of the resync parity cannot be trusted: a lost strip is computed from all other strips
    /// while that is possible, and parity is computed from all data. md: `need_this_block`, "parity
    /// cannot be trusted".
    #[test]
    fn ahead_of_the_resync_a_degraded_stripe_is_read_as_a_whole() {
        for (members, parities, others) in
            [(4, 1, vec![0, 2, 3]), (5, 1, vec![0, 2, 3, 4]), (6, 2, vec![0, 2, 3, 4, 5])]
        {
            let degraded = |pending, full| {
                let facts = cold(members, parities);
                let facts = if full { writing(facts, 1) } else { partial(facts) };
                Facts { resync_pending: pending, ..without(facts, &[1]) }
            };
            let data = members - parities;
            let written: Vec<u16> = std::iter::once(0).chain(data..members).collect();
            for full in [true, false] {
                let found = follow(degraded(true, full));
                assert_eq!(found, (others.clone(), RCW, written.clone()), "{members}, {full}");
                let found = follow(degraded(false, full));
                assert_eq!(found, (written.clone(), RMW, written.clone()), "{members}, {full}");
            }
        }
    }

    /// md-raid.md §9, statement 6: `rmw_level` decides a tie, and can forbid read-modify-write.
    #[test]
    fn statement_6_rmw_level_decides_ties_and_forbids() {
        let mut facts = writing(cold(4, 1), 1);
        facts.rmw_level = RmwLevel::Tie;
        assert_eq!(follow(facts), (vec![0, 3], RMW, vec![0, 3]));
        let mut facts = writing(cold(5, 1), 1);
        facts.rmw_level = RmwLevel::Never;
        assert_eq!(follow(facts), (vec![1, 2, 3], RCW, vec![0, 4]));
    }

    /// For every failure within the level and every set of writers, a write is reached and no strip
    /// is read twice (`follow` asserts both). md-raid.md §2.12, invariant 1.
    #[test]
    fn every_stripe_within_the_level_reaches_its_write() {
        let mut looked_at = 0;
        for (members, parities) in [(3, 1), (4, 1), (5, 1), (4, 2), (5, 2), (6, 2), (7, 2)] {
            let failures = (0..members)
                .flat_map(|a| (a..members).map(move |b| vec![a, b]))
                .chain([vec![]])
                .filter(|failed| {
                    let distinct: std::collections::BTreeSet<_> = failed.iter().collect();
                    distinct.len() <= usize::from(parities)
                });
            for failed in failures {
                let data = members - parities;
                for bits in 1u32..1 << (2 * data) {
                    for (level, resync_pending) in [
                        (RmwLevel::Never, false),
                        (RmwLevel::Fewer, false),
                        (RmwLevel::Fewer, true),
                        (RmwLevel::Tie, false),
                    ] {
                        let mut facts = without(cold(members, parities), &failed);
                        facts.preread = bits % 2 == 0;
                        facts.rmw_level = level;
                        facts.resync_pending = resync_pending;
                        for slot in 0..data {
                            let kind = bits >> (2 * slot) & 3;
                            facts.to_write.set(Slot(slot), kind & 1 == 1);
                            facts.overwrite.set(Slot(slot), kind == 3);
                        }
                        if facts.to_write.is_empty() {
                            continue;
                        }
                        follow(facts);
                        looked_at += 1;
                    }
                }
            }
        }
        assert!(looked_at > 100_000, "{looked_at}");
    }
}
