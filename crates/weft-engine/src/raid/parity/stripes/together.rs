//! Stripes of a sync that take their steps together.
//!
//! Adjacent stripes that only a sync has work for, and that are in the same state, are read by one
//! request to each member, computed by one computation and filled by one request, as long as their
//! memory is adjacent too and no member has bad blocks. Each of them stays a stripe of its own: it
//! counts what is in flight for it, and the answer to a request for several is handled stripe by
//! stripe. A stripe that is not like the one before it is handled alone.
//!
//! md handles each stripe of a sync separately, as fixed stripe sizes do
//! ([`crate::raid::parity::stripe_size`]), and as all do if a member is a rotating disk: there a
//! stream of reads beside a recovery got 12.6 MB/s instead of 13.3, because longer requests of the
//! sync were ahead of its own.

use smallvec::SmallVec;
use weft_units::{Bytes, StripeId};

use super::{Access, Stripes};
use crate::array::outbox::JobId;
use crate::contract::frame::Segment;
use crate::contract::input::{Fault, SyncAction, Value};
use crate::contract::output::{ComputeOp, Differs};
use crate::layout::slot_set::SlotSet;
use crate::raid::parity::plan::StripeStep;
use crate::raid::parity::stripe::{Operation, ResyncState};
use crate::raid::parity::stripe_part::{StripIo, StripsIo};
use crate::raid::{Answer, Cx};
use crate::sched::request::{MemberRequest, MergeKind};

impl Stripes {
    /// Handles the first of the picked stripes `ids`, together with those that take the same step
    /// of a sync beside it. Returns the number of stripes handled.
    #[inline]
    pub(crate) fn handle_first(&mut self, ids: &[StripeId], cx: &mut Cx<'_>) -> usize {
        if self.cache.stripe(ids[0]).sync.is_some() {
            let ids = &ids[..self.alike(ids, cx)];
            if ids.len() > 1 {
                self.handle_together(ids, cx);
                return ids.len();
            }
        }
        self.handle(ids[0], cx);
        1
    }

    /// Number of stripes, from the first of `ids` on, that can take their next step together.
    fn alike(&self, ids: &[StripeId], cx: &Cx<'_>) -> usize {
        let (head, height) = (self.cache.stripe(ids[0]), self.cache.height());
        let together = self.cache.syncs_together() && cx.membership().with_bad().is_empty();
        if !together || !head.is_only_synced() {
            return 1;
        }
        let full_stripe = self.full_stripe_of(head.key);
        let goes_on = |(nth, id): &(u32, StripeId)| {
            let stripe = self.cache.stripe(*id);
            id.0 == ids[0].0 + nth
                && stripe.key == head.key + u64::from(*nth)
                && self.full_stripe_of(stripe.key) == full_stripe
                && stripe.sync == head.sync
                && stripe.uptodate == head.uptodate
                && stripe.is_only_synced()
        };
        let followers = (1..).zip(ids[1..].iter().copied()).take_while(goes_on).count();
        let last = ids[followers];
        // The recovery of a member and a resync have each come to some sector: below it and above
        // it, other strips can be read. If first and last stripe agree, all between them do.
        let is_pending = |id: StripeId| {
            let sector = self.cache.stripe(id).sector(height);
            cx.membership().resync_from.is_some_and(|from| sector >= from)
        };
        let readable = |id: StripeId| self.readable(id, cx.membership());
        if is_pending(ids[0]) == is_pending(last) && readable(ids[0]) == readable(last) {
            1 + followers
        } else {
            1
        }
    }

    /// Takes the next step of the stripes `ids` together, or of each alone if the step is not one
    /// of a sync without failures.
    fn handle_together(&mut self, ids: &[StripeId], cx: &mut Cx<'_>) {
        let head = ids[0];
        for id in ids {
            let stripe = self.cache.stripe_mut(*id);
            assert_eq!(stripe.in_flight, 0, "a stripe is handled one step at a time");
            assert!(stripe.handle, "a stripe that is picked may have work");
            if let Some((_, state)) = &mut stripe.sync {
                // A stripe that holds nothing has nothing to forget when its sync begins.
                *state = ResyncState::Filling;
            }
            stripe.handle = false;
            stripe.delayed = false;
            stripe.batch_ready = false;
        }
        let facts = self.facts(head, cx);
        let step = (facts.failed().count() <= facts.parity().count()).then(|| facts.plan());
        match step {
            Some(StripeStep::Read { strips, delay: false }) => {
                self.stage_together(ids, strips, Access::Read, cx);
                for id in ids {
                    let stripe = self.cache.stripe_mut(*id);
                    if stripe.in_flight > 0 {
                        stripe.operation = Operation::Reading;
                    } else {
                        self.cache.release(*id);
                    }
                }
            }
            Some(StripeStep::Recover(lost)) => {
                let ops = self.lost_ops(head, lost, cx);
                self.compute_together(ids, Operation::Recovering(lost), ops, cx);
            }
            Some(StripeStep::Rest) if facts.wants_all => match self.to_compare(facts) {
                Some((parity, whole)) => {
                    let op = self.compare_op(head, parity, cx);
                    let operation = Operation::Comparing { parity, whole };
                    self.compute_together(ids, operation, vec![op], cx);
                }
                None => self.correct_together(ids, cx),
            },
            Some(StripeStep::Rest | StripeStep::Read { .. } | StripeStep::Write(_)) | None => {
                for id in ids {
                    self.cache.stripe_mut(*id).handle = true;
                    self.handle(*id, cx);
                }
            }
        }
    }

    /// Sends a computation for the stripes `ids`, given the one for the first of them.
    fn compute_together(
        &mut self,
        ids: &[StripeId],
        operation: Operation,
        mut ops: Vec<ComputeOp>,
        cx: &mut Cx<'_>,
    ) {
        let count = ids.len() as u32;
        ops.iter_mut().for_each(|op| widen(op, count));
        for id in ids {
            let stripe = self.cache.stripe_mut(*id);
            assert_eq!(stripe.in_flight, 0, "a stripe computes one thing at a time");
            stripe.in_flight = 1;
            stripe.operation = operation;
        }
        self.cache.stripe_mut(ids[0]).computed_with = count - 1;
        cx.compute(JobId(ids[0].0), ops);
    }

    /// Handles a finished computation of the stripe `head` and the `others` stripes after it.
    pub(super) fn computed_together(
        &mut self,
        head: StripeId,
        others: u32,
        value: &Result<Value, Fault>,
        cx: &mut Cx<'_>,
    ) {
        let ids: SmallVec<[StripeId; 16]> = (head.0..=head.0 + others).map(StripeId).collect();
        let operation = self.cache.stripe(head).operation;
        for id in &ids {
            let stripe = self.cache.stripe_mut(*id);
            assert_eq!(stripe.in_flight, 1, "a stripe computes one thing at a time");
            assert_eq!(stripe.operation, operation, "stripes that compute together");
            stripe.in_flight = 0;
            stripe.operation = Operation::Idle;
        }
        match operation {
            Operation::Comparing { parity, whole } => {
                let differs = match value {
                    Ok(Value::Differs(differs)) => *differs,
                    _ => Differs::default(),
                };
                self.compared_together(&ids, differs, (parity, whole), cx);
            }
            Operation::Recovering(lost) => {
                for id in &ids {
                    let stripe = self.cache.stripe_mut(*id);
                    stripe.uptodate = stripe.uptodate.or(lost);
                    stripe.handle = true;
                    self.rest(*id);
                }
            }
            operation => unreachable!("{operation:?} is computed for one stripe"),
        }
    }

    /// Handles the result of comparing the parity of the stripes `ids`. If it disagrees with the
    /// data somewhere, each stripe is compared alone.
    fn compared_together(
        &mut self,
        ids: &[StripeId],
        differs: Differs,
        (parity, whole): (SlotSet, bool),
        cx: &mut Cx<'_>,
    ) {
        if differs != Differs::default() {
            for id in ids {
                let op = self.compare_op(*id, parity, cx);
                self.compute(*id, Operation::Comparing { parity, whole }, vec![op], cx);
            }
            return;
        }
        if !matches!(self.cache.stripe(ids[0]).sync, Some((SyncAction::Recover, _))) {
            ids.iter().for_each(|id| self.sync_compared(*id, differs, whole, cx));
            return;
        }
        ids.iter().for_each(|id| self.parity_compared(*id));
        self.correct_together(ids, cx);
    }

    /// Writes the strips of members under recovery in the stripes `ids`, in which no strip is
    /// wrong.
    fn correct_together(&mut self, ids: &[StripeId], cx: &mut Cx<'_>) {
        let class = cx.view().sync_class();
        let head = self.cache.stripe(ids[0]);
        let recovers = matches!(head.sync, Some((SyncAction::Recover, _)));
        let (uptodate, attr) = (head.uptodate, head.member_attr(class));
        let like_head = |id: &StripeId| {
            let stripe = self.cache.stripe(*id);
            stripe.uptodate == uptodate && stripe.member_attr(class) == attr
        };
        if !recovers || !cx.membership().replaced().is_empty() || !ids.iter().all(like_head) {
            ids.iter().for_each(|id| self.sync_correct(*id, SlotSet::EMPTY, cx));
            return;
        }
        for id in ids {
            if let Some((_, state)) = &mut self.cache.stripe_mut(*id).sync {
                *state = ResyncState::Compared;
            }
        }
        let fills = cx.membership().filled().and(uptodate).and(cx.membership().present());
        // md completes rebuilt strips one by one, from the lowest slot.
        for slot in fills.ascending() {
            self.stage_together(ids, SlotSet::only(slot), Access::Fill, cx);
        }
        for id in ids {
            let stripe = self.cache.stripe_mut(*id);
            stripe.operation = Operation::SyncWriting;
            if stripe.in_flight == 0 {
                self.sync_written(*id, cx);
            }
        }
    }

    /// Sends a member request for the strips at each of `slots` in the stripes `ids`, highest slot
    /// first, or one for each strip where the member takes no request as long.
    fn stage_together(
        &mut self,
        ids: &[StripeId],
        slots: SlotSet,
        access: Access,
        cx: &mut Cx<'_>,
    ) {
        let count = ids.len() as u32;
        let head = self.cache.stripe(ids[0]);
        let attr = head.member_attr(cx.view().sync_class());
        let purposes = head.purposes(attr.purpose, slots, access != Access::Read);
        let mut request = MemberRequest {
            write: access != Access::Read,
            sector: head.sector(self.cache.height()),
            bytes: Bytes(self.cache.strip_bytes() * u64::from(count)),
            max: cx.knobs.max_sectors,
            kind: MergeKind { fua: false, stripes: true, attr },
        };
        for slot in slots.descending() {
            request.kind.attr.purpose = purposes.of(slot);
            if cx.room(slot, &request).is_some_and(|room| room < request.bytes.0) {
                for id in ids {
                    self.stage(*id, SlotSet::only(slot), access, request.max, cx);
                }
                continue;
            }
            let strip = self.whole(ids[0], slot);
            let memory = Segment { len: strip.len * count, ..strip };
            let completion = StripsIo { first: ids[0], slot, count }.target();
            let sent = if access == Access::Fill {
                cx.stage_fill(slot, &request, &[memory], completion)
            } else {
                cx.stage(slot, &request, &[memory], completion)
            };
            for id in ids {
                let stripe = self.cache.stripe_mut(*id);
                stripe.io_started = true;
                stripe.in_flight += u32::from(sent);
            }
        }
    }

    /// Handles a member request for the strips at one slot of several stripes that is done, or that
    /// was given up and so pins memory.
    pub(crate) fn strips_done(&mut self, strips: StripsIo, answer: Answer, cx: &mut Cx<'_>) {
        strips.each().for_each(|part| self.done(part, answer, cx));
    }
}

impl StripsIo {
    /// The strips, each by itself.
    pub(crate) fn each(self) -> impl Iterator<Item = StripIo> {
        let Self { first, slot, count } = self;
        let ids = (first.0..first.0 + count).map(StripeId);
        ids.map(move |stripe| StripIo { stripe, slot, zero_copy_from: None })
    }
}

/// Extends a computation of one stripe to `count` stripes with adjacent memory.
fn widen(op: &mut ComputeOp, count: u32) {
    let parts = |op: &mut ComputeOp, act: &mut dyn FnMut(&mut Segment)| match op {
        ComputeOp::Compare { data, p, q } | ComputeOp::Pq { data, p, q } => {
            data.iter_mut().map(|source| &mut source.part).chain(p).chain(q).for_each(act);
        }
        ComputeOp::Recover { data, p, q, lost } => {
            let strips = data.iter_mut().chain(lost).map(|source| &mut source.part);
            strips.chain(p).chain(q).for_each(act);
        }
        ComputeOp::Copy { .. }
        | ComputeOp::Locate { .. }
        | ComputeOp::UpdatePq { .. }
        | ComputeOp::Zero { .. } => unreachable!("computed for one stripe"),
    };
    parts(op, &mut |part| part.len *= count);
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, VecDeque};

    use weft_ondisk::Level;
    use weft_units::{ClientId, Time, VolumeId};

    use super::*;
    use crate::assemble::{Candidate, Options};
    use crate::knobs::{Knobs, StripeSize};
    use crate::raid::tests::assembled;
    use crate::{Command, Config, Engine, Input, MemberOp, Output, Tag, Verb, VolumeSnapshot};

    /// Requests and result of a check of a RAID 5 of four members with chunks of 64 KiB.
    #[derive(Default)]
    struct Seen {
        /// Number of reads of members by their length, and of comparisons by that of a strip.
        reads: BTreeMap<u64, u32>,
        compares: BTreeMap<u32, u32>,
        volume: Option<VolumeSnapshot>,
    }

    /// Checks an array in which the stripes with the numbers `wrong` have parity that disagrees.
    /// The read number `fails` of all reads of members fails.
    fn check(stripe_size: StripeSize, wrong: &[u64], fails: Option<u32>) -> Seen {
        check_with(stripe_size, wrong, fails, |_| ())
    }

    /// Checks an array as [`check`], but with members that `change` has changed.
    fn check_with(
        stripe_size: StripeSize,
        wrong: &[u64],
        fails: Option<u32>,
        change: impl Fn(&mut Vec<Candidate>),
    ) -> Seen {
        let options = Options { run: true, ..Options::default() };
        let array = assembled(Level::Raid5, Some(2), 4, change, &options);
        let knobs = Knobs { stripe_size, ..Knobs::default() };
        let mut engine = Engine::new(Config::for_volume(array, knobs), Time(0)).unwrap();
        let verb = Verb::SyncAction(SyncAction::Check);
        let (client, tag, volume) = (ClientId(9), Tag(99), VolumeId(0));
        engine.handle(Time(0), Input::Admin(Box::new(Command { client, tag, volume, verb })));
        let (mut seen, mut outputs) = (Seen::default(), VecDeque::new());
        // Number of the stripe with a strip in a frame.
        let mut frames = BTreeMap::new();
        loop {
            while engine.run(Time(0), 64, &mut outputs).more {}
            let Some(output) = outputs.pop_front() else { break };
            let (token, result) = match output {
                Output::Submit { token, op: MemberOp::Read { at, into }, .. } => {
                    let mut stripe = (at.0 - 2048) / 8;
                    for part in &into {
                        for frame in part.frame.0..part.frame.0 + part.len / 4096 {
                            frames.insert(frame, stripe);
                            stripe += 1;
                        }
                    }
                    let nth = seen.reads.values().sum::<u32>();
                    let len = into.iter().map(|part| u64::from(part.len)).sum();
                    *seen.reads.entry(len).or_default() += 1;
                    (token, if Some(nth) == fails { Err(Fault::Io) } else { Ok(Value::Nothing) })
                }
                Output::Compute { token, ops } => {
                    let [ComputeOp::Compare { data, p: Some(p), q: None }] = &ops[..] else {
                        panic!("{ops:?} is computed for a check")
                    };
                    assert!(data.iter().all(|source| source.part.len == p.len));
                    *seen.compares.entry(p.len).or_default() += 1;
                    let stripes = (p.frame.0..p.frame.0 + p.len / 4096).map(|it| frames[&it]);
                    let p = stripes.into_iter().any(|stripe| wrong.contains(&stripe));
                    (token, Ok(Value::Differs(Differs { p, q: false })))
                }
                Output::Submit { token, .. } => (token, Ok(Value::Nothing)),
                _ => continue,
            };
            engine.handle(Time(0), Input::Done { token, result });
        }
        let volume = engine.snapshot().volumes.remove(0);
        assert_eq!((volume.sync_action, volume.sync_stripes), (SyncAction::Idle, 768));
        seen.volume = Some(volume);
        seen
    }

    fn mismatches(seen: &Seen) -> u64 {
        seen.volume.as_ref().map_or(0, |volume| volume.mismatch_cnt)
    }

    #[test]
    fn stripes_of_a_check_are_read_and_compared_together_and_a_wrong_one_is_found_alone() {
        let seen = check(StripeSize::AUTO, &[], None);
        // The whole window is started in one turn, in which members merge reads.
        let reads = BTreeMap::from([(64 << 10, 4 * 44), (256 << 10, 4)]);
        assert_eq!(seen.reads, reads);
        assert_eq!(seen.compares, BTreeMap::from([(64 << 10, 48)]));
        assert_eq!(mismatches(&seen), 0);
        // The stripes of a comparison that disagrees are compared once more, each alone. As they
        // end one by one, those that follow begin one by one, until some are at rest together
        // again.
        let seen = check(StripeSize::AUTO, &[5, 700, 703], None);
        let (alone, together) = (seen.compares[&4096], seen.compares[&(64 << 10)]);
        assert_eq!((seen.compares.len(), alone + 16 * together), (2, 768 + 16));
        assert!((16..768 / 3).contains(&alone), "{alone} alone");
        assert_eq!(mismatches(&seen), 3 * 8);
        let seen = check(StripeSize::default(), &[5, 700, 703], None);
        assert_eq!(seen.compares, BTreeMap::from([(4096, 768)]), "md compares each alone");
        assert_eq!(mismatches(&seen), 3 * 8);
    }

    #[test]
    fn stripes_are_compared_alone_where_a_member_rotates() {
        let rotates = |set: &mut Vec<Candidate>| set[2].member.device.rotational = true;
        let seen = check_with(StripeSize::AUTO, &[5], None, rotates);
        assert_eq!(seen.compares, BTreeMap::from([(4096, 768)]));
        assert_eq!(mismatches(&seen), 8);
    }

    #[test]
    fn strips_that_failed_to_be_read_together_are_each_read_alone() {
        let seen = check(StripeSize::AUTO, &[5], Some(2));
        assert_eq!(seen.reads[&(256 << 10)], 4, "one of them failed");
        assert!(seen.reads[&4096] >= 64, "{:?}", seen.reads);
        assert_eq!(mismatches(&seen), 8);
        assert_eq!(seen.volume.map(|volume| volume.degraded), Some(0), "one error fails no member");
    }
}
