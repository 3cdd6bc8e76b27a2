//! Stripes of `explain`: position of a range in an array with parity, and the plan of the engine.

use weft_engine::knobs::{PlanRule, RmwLevel};
use weft_engine::layout::geometry::Geometry;
use weft_engine::layout::slot_set::SlotSet;
use weft_engine::raid::parity::plan::{Facts, Mode, StripeStep};
use weft_units::{FullStripe, Sectors, Slot};

use super::model::{Array, PIECES_MAX, Range};

/// Array with parity, with the geometry that places its strips.
pub(super) struct ParityArray<'a> {
    pub(super) array: &'a Array,
    pub(super) geometry: &'a Geometry,
}

/// Part of the range that is contiguous on one member.
pub(super) struct Piece {
    pub(super) bytes: std::ops::Range<u64>,
    pub(super) full_stripe: FullStripe,
    pub(super) slot: Slot,
    /// Sector of the member's data at which the part begins.
    pub(super) sector: Sectors,
    pub(super) len: Sectors,
}

/// Stripes of the range that are adjacent and have equal plans.
pub(super) struct Stripes {
    pub(super) full_stripe: FullStripe,
    /// Range of data sectors that the stripes have on each member.
    pub(super) sectors: std::ops::Range<u64>,
    pub(super) count: u64,
    pub(super) read: ReadPlan,
    pub(super) write: WritePlan,
}

#[derive(Clone, PartialEq, Eq)]
pub(super) struct ReadPlan {
    /// Whether the read goes directly to the members, past the stripe cache.
    pub(super) chunk_aligned: bool,
    pub(super) reads: SlotSet,
    pub(super) recovered: SlotSet,
}

#[derive(Clone, PartialEq, Eq)]
pub(super) struct WritePlan {
    pub(super) mode: Option<Mode>,
    pub(super) reads: SlotSet,
    pub(super) recovered: SlotSet,
    pub(super) writes: SlotSet,
    pub(super) why: String,
}

/// Explanation of a range of an array with parity.
pub(super) struct Explained {
    pub(super) range: Range,
    pub(super) pieces: Vec<Piece>,
    pub(super) stripes: Vec<Stripes>,
    /// Bytes at the end of the range that are left out, because there are too many parts.
    pub(super) left_out: u64,
}

impl ParityArray<'_> {
    pub(super) fn explain(&self, range: Range) -> Explained {
        let chunk = self.geometry.chunk().0;
        let mut pieces = Vec::new();
        let mut at = range.sectors.start;
        while at < range.sectors.end && pieces.len() < PIECES_MAX {
            let position = self.geometry.locate(Sectors(at));
            let len = (chunk - at % chunk).min(range.sectors.end - at);
            pieces.push(Piece {
                // An incomplete sector at either end is read and written as a whole.
                bytes: (at * 512).max(range.bytes.start)..((at + len) * 512).min(range.bytes.end),
                full_stripe: position.full_stripe,
                slot: position.slot,
                sector: position.sector,
                len: Sectors(len),
            });
            at += len;
        }
        let stripes = self.stripes(&pieces);
        Explained { left_out: range.bytes.end.saturating_sub(at * 512), range, pieces, stripes }
    }

    /// Divides the parts into stripes, plans each, and joins adjacent stripes with equal plans.
    fn stripes(&self, pieces: &[Piece]) -> Vec<Stripes> {
        let stripe_sectors =
            self.array.knobs.stripe_size.at_most(self.geometry.chunk().bytes()).bytes().0 / 512;
        let mut found: Vec<Stripes> = Vec::new();
        let mut rest = pieces;
        while let Some(first) = rest.first() {
            let full_stripe = first.full_stripe;
            let count = rest.iter().take_while(|piece| piece.full_stripe == full_stripe).count();
            let (together, others) = rest.split_at(count);
            rest = others;
            let start = together.iter().map(|piece| piece.sector.0).min().unwrap_or(0);
            let end = together.iter().map(|piece| piece.sector.0 + piece.len.0).max().unwrap_or(0);
            let mut stripe = start / stripe_sectors * stripe_sectors;
            while stripe < end {
                let sectors = stripe..stripe + stripe_sectors;
                stripe += stripe_sectors;
                let Some((touched, whole)) = touched(together, &sectors) else { continue };
                let (read, write) =
                    (self.plan_read(&sectors, touched), self.plan_write(&sectors, touched, whole));
                match found.last_mut() {
                    Some(last)
                        if last.full_stripe == full_stripe
                            && last.sectors.end == sectors.start
                            && (&last.read, &last.write) == (&read, &write) =>
                    {
                        last.sectors.end = sectors.end;
                        last.count += 1;
                    }
                    _ => found.push(Stripes { full_stripe, sectors, count: 1, read, write }),
                }
            }
        }
        found
    }

    /// Facts for the planner about a stripe at these data sectors, without cached strips or pending
    /// requests.
    fn facts(&self, sectors: &std::ops::Range<u64>) -> Facts {
        let placement =
            self.geometry.placement(self.geometry.full_stripe_of(Sectors(sectors.start)));
        let slots = self.array.slots.iter().zip(0_u16..);
        Facts {
            all: SlotSet::first(self.geometry.members()),
            p: placement.p,
            q: placement.q,
            uptodate: SlotSet::EMPTY,
            insync: slots
                .filter(|(held, _)| held.label.is_some() && held.recovery_offset.0 >= sectors.end)
                .map(|(_, slot)| Slot(slot))
                .collect(),
            writable: (0_u16..)
                .zip(self.array.slots.iter())
                .filter(|(_, held)| held.label.is_some())
                .map(|(slot, _)| Slot(slot))
                .collect(),
            to_read: SlotSet::EMPTY,
            to_write: SlotSet::EMPTY,
            overwrite: SlotSet::EMPTY,
            wants_all: false,
            preread: true,
            resync_pending: self.array.resync_from.is_some_and(|from| from.0 < sectors.end),
            rmw_level: self.array.knobs.rmw_level,
            rule: self.array.knobs.plan_rule,
        }
    }

    fn plan_read(&self, sectors: &std::ops::Range<u64>, touched: SlotSet) -> ReadPlan {
        let mut facts = self.facts(sectors);
        let degraded =
            self.array.slots.iter().any(|held| held.recovery_offset < self.geometry.member_size());
        let healthy = self.array.knobs.plan_rule == PlanRule::Least
            && touched.without(facts.insync).is_empty();
        if !degraded || healthy {
            return ReadPlan { chunk_aligned: true, reads: touched, recovered: SlotSet::EMPTY };
        }
        facts.to_read = touched;
        let (reads, recovered, _) =
            follow(facts, |facts| facts.to_read.without(facts.uptodate).is_empty());
        ReadPlan { chunk_aligned: false, reads, recovered }
    }

    fn plan_write(
        &self,
        sectors: &std::ops::Range<u64>,
        touched: SlotSet,
        whole: SlotSet,
    ) -> WritePlan {
        let mut facts = self.facts(sectors);
        (facts.to_write, facts.overwrite) = (touched, whole);
        let (reads, recovered, mode) = follow(facts, |_| false);
        let writes = touched.or(facts.parity()).and(facts.insync);
        WritePlan { mode, reads, recovered, writes, why: self.why(&facts, mode) }
    }

    /// Reason, in words, why the planner chose this mode for a write.
    fn why(&self, facts: &Facts, mode: Option<Mode>) -> String {
        let rmw = facts.to_write.or(facts.parity());
        let rcw = facts.data().without(facts.overwrite);
        let lost = facts.failed();
        if rcw.is_empty() {
            return "every data strip is overwritten, so nothing has to be read".into();
        }
        if facts.rmw_level == RmwLevel::Never {
            return "rmw_level 0 forbids read-modify-write".into();
        }
        if facts.resync_pending {
            return "resync has not been here, so the old parity is not to be trusted".into();
        }
        if !lost.and(rmw).is_empty() && mode == Some(Mode::Reconstruct) {
            return format!(
                "read-modify-write would need what {} held",
                self.array.list(lost.and(rmw))
            );
        }
        if !lost.and(rcw).is_empty() && mode == Some(Mode::ReadModifyWrite) {
            return format!(
                "reconstruct-write would need what {} held",
                self.array.list(lost.and(rcw))
            );
        }
        let (rmw, rcw) = (rmw.count(), rcw.count());
        let level = match facts.rmw_level {
            RmwLevel::Never => 0,
            RmwLevel::Fewer => 1,
            RmwLevel::Tie => 2,
        };
        let tie =
            if rmw == rcw { format!("; rmw_level {level} decides the tie") } else { String::new() };
        format!("read-modify-write would read {rmw} strips, reconstruct-write {rcw}{tie}")
    }

    /// Content of a slot in a full stripe, as text: `D7`, `P`, `Q`.
    pub(super) fn role(&self, full_stripe: FullStripe, slot: Slot) -> String {
        let placement = self.geometry.placement(full_stripe);
        match placement.data_index(slot) {
            Some(index) => {
                let first = full_stripe.0 * u64::from(self.geometry.data_members());
                format!("D{}", first + u64::from(index))
            }
            None if slot == placement.p => "P".into(),
            None => "Q".into(),
        }
    }
}

/// Slots that the parts `pieces` touch in the stripe at the data sectors `stripe`, and slots that
/// they cover completely; `None` if they touch none.
fn touched(pieces: &[Piece], stripe: &std::ops::Range<u64>) -> Option<(SlotSet, SlotSet)> {
    let (mut touched, mut whole) = (SlotSet::EMPTY, SlotSet::EMPTY);
    for piece in pieces {
        let (start, end) = (piece.sector.0, piece.sector.0 + piece.len.0);
        if start < stripe.end && stripe.start < end {
            touched.insert(piece.slot);
            whole.set(piece.slot, start <= stripe.start && stripe.end <= end);
        }
    }
    (!touched.is_empty()).then_some((touched, whole))
}

/// Plans a stripe step by step as the engine does, until `done` holds or the stripe is written.
/// Returns the strips read, the strips recovered, and the mode in which parity is made; `None` if
/// the stripe is not written.
fn follow(mut facts: Facts, done: impl Fn(&Facts) -> bool) -> (SlotSet, SlotSet, Option<Mode>) {
    let (mut reads, mut recovered) = (SlotSet::EMPTY, SlotSet::EMPTY);
    // A stripe needs a few steps; the limit guards against a planner that loops.
    for _ in 0..STEPS_MAX {
        if done(&facts) {
            break;
        }
        match facts.plan() {
            StripeStep::Read { strips, .. } => {
                reads = reads.or(strips);
                facts.uptodate = facts.uptodate.or(strips);
            }
            StripeStep::Recover(strips) => {
                recovered = recovered.or(strips);
                facts.uptodate = facts.uptodate.or(strips);
            }
            StripeStep::Write(mode) => return (reads, recovered, Some(mode)),
            StripeStep::Rest => break,
        }
    }
    (reads, recovered, None)
}

/// Largest number of steps in the plan of a stripe.
const STEPS_MAX: usize = 8;
