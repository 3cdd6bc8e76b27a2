//! Plan with the fewest reads (`plan_rule=least`).
//!
//! md's rules look at one strip at a time. This plan first determines the strips that are needed,
//! then chooses the fewest reads that make all of them valid:
//!
//! - a lost data strip is computed from the other data and from only as many parities as data is
//!   lost, not from all strips (RAID 6 with one member missing: one read less);
//! - parity without a member to write it to is neither read nor computed, and nothing is read for
//!   it (RAID 5 without the member of P: no read at all);
//! - the strip of a partial write and the strips that its parity needs are read together.
//!
//! Inputs   [`Facts`]
//! Answer   [`StripeStep`], as md's rule gives
//! Knob     `plan_rule=least`
//! Source   weft's own; what md does instead is md-raid.md §2.3, §2.6, §2.7 and §8, rows 10 to 12
//! Compare  [`PlanRule::Md`](crate::knobs::PlanRule::Md)

use super::{Facts, Mode, StripeStep};
use crate::knobs::RmwLevel;
use crate::layout::slot_set::SlotSet;

/// Reads from members, and then computations, by which wanted strips become valid.
#[derive(Clone, Copy, Debug, Default)]
struct Fetch {
    /// Strips to read from their members first.
    reads: SlotSet,
    /// Strips to compute after the reads.
    lost: SlotSet,
}

impl Facts {
    pub(super) fn least(&self) -> StripeStep {
        let partial = self.to_write.without(self.overwrite);
        let wanted = if self.wants_all { self.all } else { self.to_read.or(partial) };
        let first = self.fetch(wanted, self.uptodate);
        let writes = !self.to_write.is_empty() && !self.wants_all;
        if !first.lost.is_empty() || !writes {
            return first.step().unwrap_or(StripeStep::Rest);
        }
        let uptodate = self.uptodate.or(first.reads);
        let (mode, second) = self.write(uptodate);
        let more = second.reads;
        if !more.is_empty() && !self.preread {
            return StripeStep::Read { strips: first.reads, delay: true };
        }
        let fetch = Fetch { reads: first.reads.or(more), lost: second.lost };
        fetch.step().unwrap_or(StripeStep::Write(mode))
    }

    /// Fewest reads and computations that make the strips `wanted` valid, given that `uptodate`
    /// already are.
    fn fetch(&self, wanted: SlotSet, uptodate: SlotSet) -> Fetch {
        let wanted = wanted.without(uptodate);
        let reads = wanted.and(self.insync);
        let lost = wanted.without(self.insync);
        if lost.is_empty() {
            return Fetch { reads, lost };
        }
        // All data that cannot be read is computed together; each lost data strip needs one parity.
        let unknown = self.data().without(uptodate).without(self.insync);
        let mut sources = self.data().without(unknown);
        let mut lost = lost.or(unknown);
        let mut left = unknown.count();
        // Valid parity costs nothing; P is cheaper to compute with than Q.
        let candidates = [self.p].into_iter().chain(self.q);
        let valid = candidates.clone().filter(|slot| uptodate.contains(*slot));
        let readable =
            candidates.filter(|slot| !uptodate.contains(*slot) && self.insync.contains(*slot));
        if left == 1 && self.unread(uptodate).contains(self.p) {
            sources.insert(self.p);
            left = 0;
        }
        for slot in valid.chain(readable) {
            if left == 0 {
                break;
            }
            sources.insert(slot);
            left -= 1;
        }
        debug_assert_eq!(left, 0, "no more is lost than there is parity: {self:?}");
        // To recover one data strip from Q, P is not read but computed along with it.
        let from_q = unknown.count() == 1 && !sources.contains(self.p);
        if from_q && !uptodate.contains(self.p) {
            lost.insert(self.p);
        }
        let reads = reads.or(sources.without(uptodate)).without(lost);
        Fetch { reads, lost }
    }

    /// Mode in which parity is computed with the fewest reads, and the fetch of the strips for it,
    /// given that `uptodate` are already valid.
    fn write(&self, uptodate: SlotSet) -> (Mode, Fetch) {
        let parity = self.parity().and(self.writable);
        if parity.is_empty() {
            return (Mode::Reconstruct, Fetch::default());
        }
        let reconstruct = self.fetch(self.data().without(self.overwrite), uptodate);
        // Ahead of the resync, old parity may not match the data, and a read-modify-write would
        // keep the mismatch. The mismatch matters only if parity still covers another failure.
        let redundant = || self.failed().count() < self.parity().count();
        let forced = self.rmw_level == RmwLevel::Never || (self.resync_pending && redundant());
        let old = self.to_write.or(parity).without(uptodate);
        if forced || !old.without(self.insync).is_empty() {
            return (Mode::Reconstruct, reconstruct);
        }
        let (modify, anew) = (old.count(), reconstruct.reads.count());
        let computes = u32::from(!reconstruct.lost.is_empty());
        let tie = self.rmw_level == RmwLevel::Tie;
        if modify < anew + computes || (modify == anew && tie) {
            (Mode::ReadModifyWrite, Fetch { reads: old, lost: SlotSet::EMPTY })
        } else {
            (Mode::Reconstruct, reconstruct)
        }
    }
}

impl Fetch {
    /// Next of the reads and computations, as a step of the stripe; `None` if no strip has to be
    /// read or computed.
    fn step(self) -> Option<StripeStep> {
        if !self.reads.is_empty() {
            return Some(StripeStep::Read { strips: self.reads, delay: false });
        }
        (!self.lost.is_empty()).then_some(StripeStep::Recover(self.lost))
    }
}

#[cfg(test)]
mod tests {
    use weft_units::Slot;

    use super::*;
    use crate::knobs::PlanRule;
    use crate::raid::parity::plan::tests::{cold, without, writing};

    fn least(facts: Facts) -> Facts {
        Facts { rule: PlanRule::Least, ..facts }
    }

    /// Follows a stripe until it has no work left, and returns the number of strips read. Asserts
    /// that every step can be carried out.
    fn follow(mut facts: Facts) -> u32 {
        let mut reads = 0;
        for _ in 0..8 {
            match facts.plan() {
                StripeStep::Read { strips, delay } => {
                    assert!(!(delay && facts.preread) && (delay || !strips.is_empty()));
                    assert!(strips.and(facts.uptodate).is_empty(), "{facts:?}");
                    assert!(strips.without(facts.insync).is_empty(), "{facts:?}");
                    facts.preread |= delay;
                    reads += strips.count();
                    facts.uptodate = facts.uptodate.or(strips);
                }
                StripeStep::Recover(lost) => {
                    check_recovery(&facts, lost);
                    facts.uptodate = facts.uptodate.or(lost);
                }
                StripeStep::Write(mode) => {
                    check_write(&facts, mode);
                    return reads;
                }
                StripeStep::Rest => {
                    let wanted = if facts.wants_all { facts.all } else { facts.to_read };
                    assert!(wanted.without(facts.uptodate).is_empty(), "{facts:?}");
                    return reads;
                }
            }
        }
        panic!("no end after eight steps: {facts:?}");
    }

    /// Asserts the preconditions of `Stripes::recover`.
    fn check_recovery(facts: &Facts, lost: SlotSet) {
        assert!(lost.and(facts.uptodate).is_empty(), "{facts:?} {lost:?}");
        let data = lost.and(facts.data());
        assert!(
            facts.data().without(data).without(facts.uptodate).is_empty(),
            "{facts:?} {lost:?}"
        );
        let p = !lost.contains(facts.p);
        let needs_q = !data.is_empty() && (!p || data.count() == 2);
        let valid = |slot: Slot| facts.uptodate.contains(slot);
        assert!(data.count() <= 2);
        assert!(data.is_empty() || !p || valid(facts.p), "{facts:?} {lost:?}");
        assert!(data.count() < 2 || p, "two from both");
        assert!(!needs_q || facts.q.is_some_and(valid), "{facts:?} {lost:?}");
    }

    fn check_write(facts: &Facts, mode: Mode) {
        let parity = facts.parity().and(facts.writable);
        let partial = facts.to_write.without(facts.overwrite);
        assert!(partial.without(facts.uptodate).is_empty(), "{facts:?}");
        match mode {
            Mode::ReadModifyWrite => {
                let old = facts.to_write.or(parity);
                assert!(old.without(facts.uptodate).is_empty(), "{facts:?}");
            }
            Mode::Reconstruct if parity.is_empty() => {}
            Mode::Reconstruct => {
                let others = facts.data().without(facts.overwrite);
                assert!(others.without(facts.uptodate).is_empty(), "{facts:?}");
            }
        }
    }

    /// Checks every shape of stripe, level, failure within the level, set of readers and writers,
    /// and permission: the stripe always finishes its work, and never reads more than under md's
    /// rule.
    #[test]
    fn least_gets_there_and_never_reads_more_than_md() {
        let (mut looked_at, mut fewer) = (0, 0);
        for (members, parities) in [(3, 1), (4, 1), (5, 1), (4, 2), (5, 2), (6, 2)] {
            let data = members - parities;
            for failed in 0u64..1 << members {
                if failed.count_ones() > u32::from(parities) {
                    continue;
                }
                for bits in 0u32..1 << (2 * data) {
                    for (level, resync_pending, preread, wants_all) in [
                        (RmwLevel::Never, false, true, false),
                        (RmwLevel::Fewer, false, true, false),
                        (RmwLevel::Fewer, false, false, false),
                        (RmwLevel::Fewer, true, false, false),
                        (RmwLevel::Tie, false, true, false),
                        (RmwLevel::Fewer, false, true, true),
                    ] {
                        let reads = [PlanRule::Md, PlanRule::Least].map(|rule| {
                            let lost = (0..members).filter(|slot| failed >> slot & 1 == 1);
                            let lost: Vec<u16> = lost.collect();
                            let mut facts = without(cold(members, parities), &lost);
                            facts.rule = rule;
                            (facts.rmw_level, facts.resync_pending) = (level, resync_pending);
                            (facts.preread, facts.wants_all) = (preread, wants_all);
                            for slot in 0..data {
                                let kind = bits >> (2 * slot) & 3;
                                facts.to_read.set(Slot(slot), kind == 1);
                                facts.to_write.set(Slot(slot), kind >= 2 && !wants_all);
                                facts.overwrite.set(Slot(slot), kind == 3 && !wants_all);
                            }
                            follow(facts)
                        });
                        let [md, least] = reads;
                        assert!(least <= md, "{members}+{parities} {failed:b} {bits:b} {reads:?}");
                        looked_at += 1;
                        fewer += u32::from(least < md);
                    }
                }
            }
        }
        assert!(looked_at > 50_000, "{looked_at}");
        assert!(fewer > 1_000, "{fewer}");
    }

    /// md also reads every strip in this case: `need_this_block`, "parity cannot be trusted".
    #[test]
    fn ahead_of_the_resync_parity_is_computed_anew_while_another_member_may_fail() {
        let reads = |members, parities, lost: &[u16], resync_pending| {
            let facts = writing(without(least(cold(members, parities)), lost), 1);
            follow(Facts { resync_pending, ..facts })
        };
        // The first of four data strips of a RAID 6 is written. The lost strip is the second data
        // strip, then P, then Q.
        for (lost, rmw, rcw) in [(1, 3, 4), (4, 2, 3), (5, 2, 3)] {
            assert_eq!((reads(6, 2, &[lost], false), reads(6, 2, &[lost], true)), (rmw, rcw));
        }
        // The array survives no further failure.
        assert_eq!((reads(5, 1, &[1], false), reads(5, 1, &[1], true)), (2, 2));
        assert_eq!((reads(6, 2, &[1, 2], false), reads(6, 2, &[1, 2], true)), (3, 3));
    }

    /// A member that is being rebuilt takes writes and cannot be read yet.
    #[test]
    fn parity_that_is_being_rebuilt_is_computed_anew() {
        for (members, parities) in [(4, 1), (6, 2)] {
            let mut facts = writing(least(cold(members, parities)), 1);
            facts.insync.remove(facts.p);
            let data = u32::from(members - parities);
            assert_eq!(follow(facts), data - 1);
        }
    }

    /// md-raid.md §8, rows 11 and 12: strips that md reads without need are not read.
    #[test]
    fn what_md_reads_in_vain_is_not_read() {
        let facts = writing(without(least(cold(4, 1)), &[3]), 1);
        assert_eq!(follow(facts), 0, "nothing for a parity that cannot be written");
        let mut facts = without(least(cold(6, 2)), &[0]);
        facts.to_read = SlotSet::only(Slot(0));
        assert_eq!(follow(facts), 4, "D - 2 reads");
    }
}
