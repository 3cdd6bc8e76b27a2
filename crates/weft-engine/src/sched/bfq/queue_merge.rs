//! Queue merging (patch 003): decides whether the queues of two processes are merged.
//!
//! Each process has a queue of its own, and the member serves one queue at a time. Several
//! processes may read one file in turn: each of their queues has gaps, but together they form one
//! sequential stream. A queue that has a request within 4 MiB of where another queue reads is
//! therefore *merged* into that one: from then on, requests of its process go to the other queue,
//! where they are sorted by sector. A shared queue that turns out to be seeky is *split* again, and
//! each process gets back the state that its own queue had learned.
//!
//! Finding such queues takes a position index: all queues are ordered by the first sector of their
//! next request, and the index is updated at each request. This was about 10 % of BFQ's time per
//! request in 2019. On flash that processes many requests at once, merging gains nothing, since the
//! device reorders requests itself. It even loses, because a shared queue is hardly ever empty, and
//! may have a higher weight than the processes that it serves. Patch 003 therefore disables all of
//! it, including the index, on non-rotational members that queue internally ([`HwTag`]); until that
//! is known, on all non-rotational members.
//!
//! Inputs   the queue of a new request and its first sector; queue in service, other busy queues
//! Answer   [`Merging::cooperator`]: the queue to merge it into
//! Knobs    `merge_queues` ([`MergeRule`]), `merge_position`, `merge_weight`, `stable_merge`
//! Compare  [`MergeRule::Always`] is the behaviour before the patch; with
//!          [`MergePosition::Stale`] also the false merges of that time; [`MergeRule::Gain`] is
//!          weft's own
//! Source   io-schedulers.md §2.12, §5.3 item 7; "block, bfq: do not merge queues on flash storage
//!          with queueing", P. Valente, March 2019 (Linux 5.2)
//! Measured instructions of a request with merging relative to without, as callgrind counts them on
//!          flash of depth 32, including the loop around the scheduler: 1.04 with 32 or 256 readers
//!          that keep one request outstanding and read in far strides, 1.06 with 32 such readers of
//!          four requests, 1.07 with 32 sequential readers of four requests
//! See it   `weft reproduce 003`

use weft_units::{Group, Sectors, Span, Time};

use super::QueueId;
use super::hw_tag::{HwTag, Sample};
use super::merge_gain::MergeGain;
use super::position_index::{Peers, PositionIndex, is_close};
use crate::knobs::{MergeKnobs, MergePosition, MergeRule};
use crate::sched::IoPriority;

/// Merging of the queues of one member.
#[derive(Clone, Debug)]
pub(super) struct Merging {
    knobs: MergeKnobs,
    rotational: bool,
    hw_tag: HwTag,
    gain: MergeGain,
    /// Whether queues are merged by position. While this is false, no code for merging by position
    /// runs.
    on: bool,
    index: PositionIndex,
    /// End of the last request dispatched from the queue in service; `None` if no request was.
    in_service_end: Option<Sectors>,
}

/// Queue with the properties on which merging depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Party {
    pub(super) queue: QueueId,
    pub(super) group: Group,
    pub(super) class: IoPriority,
    /// Whether the queue holds reads and sync writes.
    pub(super) sync: bool,
    pub(super) seeky: bool,
    /// Time of the first service since the queue became busy; `None` if it was not served yet.
    pub(super) first_service: Option<Time>,
}

impl Merging {
    /// Creates the state for a member about which only `rotational` is known.
    pub(super) fn new(knobs: MergeKnobs, rotational: bool) -> Self {
        let mut merging = Self {
            knobs,
            rotational,
            hw_tag: HwTag::default(),
            gain: MergeGain::new(rotational),
            on: false,
            index: PositionIndex::default(),
            in_service_end: None,
        };
        merging.decide();
        merging
    }

    /// Whether queues are merged by position.
    #[inline]
    pub(super) fn on(&self) -> bool {
        self.on
    }

    /// Flag of patch 003: whether the member is non-rotational and queues internally. For a
    /// non-rotational member this is true as long as internal queueing is undecided.
    pub(super) fn nonrot_with_queueing(&self) -> bool {
        !self.rotational && self.hw_tag.queues() != Some(false)
    }

    /// Whether the member queues internally; `None` until decided.
    pub(super) fn hw_tag(&self) -> Option<bool> {
        self.hw_tag.queues()
    }

    /// Number of queues in the position index.
    #[cfg(test)]
    pub(super) fn indexed(&self) -> usize {
        self.index.len()
    }

    fn decide(&mut self) {
        self.on = match self.knobs.queues {
            MergeRule::Always => true,
            MergeRule::Gain => self.gain.pays(),
            MergeRule::Never => false,
            MergeRule::Patch => !self.nonrot_with_queueing(),
        };
        if !self.on {
            self.index.clear();
            self.in_service_end = None;
        }
    }

    /// Adds a completion as a sample to the estimate of whether the member queues internally; see
    /// [`HwTag::completed`].
    #[inline]
    pub(super) fn completed(&mut self, sample: Sample) {
        if self.hw_tag.completed(sample) {
            self.decide();
        }
    }

    /// Counts a queued sync request of the process that has the home queue `home`.
    #[inline]
    pub(super) fn queued(&mut self, home: QueueId, first: Sectors, end: Sectors) {
        if self.knobs.queues == MergeRule::Gain && self.gain.queued(home, first, end) {
            self.decide();
        }
    }

    /// Forgets the position of the queue in service (the end of its last request), because another
    /// queue enters service: the position of that queue is unknown until its first dispatch.
    /// Kernels of 2019 to 2021 kept the position of the previous queue ([`MergePosition::Stale`]).
    #[inline]
    pub(super) fn enters_service(&mut self) {
        if self.knobs.position == MergePosition::Own {
            self.in_service_end = None;
        }
    }

    /// Records the end of a request dispatched from the queue in service.
    #[inline]
    pub(super) fn dispatched_in_service(&mut self, end: Sectors) {
        self.in_service_end = Some(end);
    }

    /// Whether the position index contains the queue, with its next request at sector `at`.
    #[inline]
    pub(super) fn is_indexed_at(&self, queue: QueueId, at: Sectors) -> bool {
        self.index.is_at(queue, at)
    }

    /// Updates the position index after a request at sector `at` has become the next request of a
    /// busy queue. May only be called while [`Merging::on`].
    pub(super) fn head_changed(&mut self, party: &Party, at: Sectors, now: Time) {
        if party.merges(now) {
            self.index.put(party.queue, party.peers(), at);
        } else {
            self.index.remove(party.queue);
        }
    }

    /// Removes a queue that has run empty from the index.
    #[inline]
    pub(super) fn emptied(&mut self, queue: QueueId) {
        if self.index.len() > 0 {
            self.index.remove(queue);
        }
    }

    /// Queue into which the queue of `party`, which has a new request at sector `at`, is to be
    /// merged: the queue in service if it reads nearby, otherwise the queue with the nearest next
    /// request. `None` if there is none. `of` returns the properties of a queue. May only be called
    /// while [`Merging::on`] and if another queue is busy.
    pub(super) fn cooperator(
        &self,
        party: &Party,
        at: Sectors,
        in_service: Option<QueueId>,
        of: impl Fn(QueueId) -> Party,
        now: Time,
    ) -> Option<(QueueId, FoundBy)> {
        if !party.merges(now) {
            return None;
        }
        let here = self.in_service_end.is_some_and(|end| is_close(end, at));
        if let Some(other) = in_service.filter(|_| here)
            && of(other).cooperates(party, now)
        {
            return Some((other, FoundBy::InService));
        }
        let near = of(self.index.nearest(party.queue, party.peers(), at)?);
        near.cooperates(party, now).then_some((near.queue, FoundBy::Position))
    }
}

/// Position by which the target of a merge was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FoundBy {
    /// The queue in service has just read nearby.
    InService,
    /// The next request of the queue is nearby.
    Position,
}

impl Party {
    /// Whether the queue may be merged at all. Processes that cooperate start together, so a queue
    /// is not merged later than 100 ms after its first service since it became busy.
    fn merges(&self, now: Time) -> bool {
        self.sync
            && !self.seeky
            && self.class != IoPriority::Idle
            && self.first_service.is_none_or(|first| now.since(first) <= TOO_LATE)
    }

    fn cooperates(&self, with: &Self, now: Time) -> bool {
        self.queue != with.queue && self.peers() == with.peers() && self.merges(now)
    }

    fn peers(&self) -> Peers {
        Peers(self.class as u32 | u32::from(self.group.number()) << 2)
    }
}

/// Time after the first service of a busy queue from which the queue is not merged any more
/// (`bfq_merge_time_limit`).
const TOO_LATE: Span = Span::millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    const FLASH: bool = false;
    const DISK: bool = true;
    const ONE: QueueId = QueueId(1);
    const TWO: QueueId = QueueId(2);

    fn at(millis: u64) -> Time {
        Time(0) + Span::millis(millis)
    }

    fn mib(count: u64) -> Sectors {
        Sectors(count * 2048)
    }

    fn party(queue: QueueId) -> Party {
        let class = IoPriority::BestEffort;
        let group = Group::ROOT;
        Party { queue, group, class, sync: true, seeky: false, first_service: None }
    }

    fn merging(rule: MergeRule, rotational: bool) -> Merging {
        Merging::new(MergeKnobs { queues: rule, ..MergeKnobs::default() }, rotational)
    }

    /// Adds enough completions, with `in_driver` requests in flight, to decide on internal
    /// queueing.
    fn decide(merging: &mut Merging, in_driver: u32) {
        let sample = Sample { in_driver, queued: 4, in_service_has_few: false };
        (0..33).for_each(|_| merging.completed(sample));
    }

    /// Queue into which `one` is merged; `None` if it is not merged. The request of `one` begins at
    /// 10 MiB, and the next request of `other` is `apart` from it.
    fn found(one: Party, other: Party, apart: Sectors, now: Time) -> Option<QueueId> {
        let mut merging = merging(MergeRule::Always, DISK);
        merging.head_changed(&other, mib(10) + apart, at(0));
        let other = |queue| if queue == other.queue { other } else { party(queue) };
        let found = merging.cooperator(&one, mib(10), None, other, now)?;
        assert_eq!(found.1, FoundBy::Position);
        Some(found.0)
    }

    /// io-schedulers.md §6, decision table: rotational, hw_tag, and whether queues are merged.
    #[test]
    fn statement_m1_m2_m3_the_patch_decides_by_rotation_and_internal_queueing() {
        let table = [
            (DISK, None, true),
            (DISK, Some(1), true),
            (DISK, Some(32), true),
            (FLASH, None, false),
            (FLASH, Some(32), false),
            (FLASH, Some(1), true),
        ];
        for (rotational, in_driver, on) in table {
            let mut merging = merging(MergeRule::Patch, rotational);
            if let Some(in_driver) = in_driver {
                decide(&mut merging, in_driver);
            }
            assert_eq!(merging.on(), on, "{rotational} {in_driver:?}");
            assert_eq!(merging.nonrot_with_queueing(), !on);
        }
        for rotational in [DISK, FLASH] {
            for in_driver in [1, 32] {
                for (rule, on) in [(MergeRule::Always, true), (MergeRule::Never, false)] {
                    let mut merging = merging(rule, rotational);
                    decide(&mut merging, in_driver);
                    assert_eq!(merging.on(), on, "{rule:?}");
                }
            }
        }
    }

    #[test]
    fn what_is_switched_off_leaves_no_index_behind() {
        let mut merging = merging(MergeRule::Patch, FLASH);
        decide(&mut merging, 1);
        merging.head_changed(&party(ONE), mib(1), at(0));
        assert_eq!(merging.indexed(), 1);
        decide(&mut merging, 32);
        assert!(!merging.on());
        assert_eq!(merging.indexed(), 0);
    }

    #[test]
    fn merging_by_gain_starts_as_the_patch_and_follows_what_is_seen() {
        for rotational in [DISK, FLASH] {
            let mut merging = merging(MergeRule::Gain, rotational);
            assert_eq!(merging.on(), rotational);
            let reads = |merging: &mut Merging, step: u64| {
                for number in 0..256 {
                    let first = Sectors(number * step);
                    merging.queued(QueueId(number as u32 % 3), first, first + Sectors(32));
                }
                merging.on()
            };
            assert!(reads(&mut merging, 32), "three readers in turns");
            assert!(!reads(&mut merging, 100_000), "three readers at random");
        }
        let mut patch = merging(MergeRule::Patch, FLASH);
        (0..512).for_each(|n| {
            patch.queued(
                QueueId(n % 3),
                Sectors(32 * u64::from(n)),
                Sectors(32 * u64::from(n + 1)),
            );
        });
        assert!(!patch.on(), "other rules ignore the gain");
    }

    #[test]
    fn statement_m5_4_mib_is_near_and_5_is_not() {
        assert_eq!(found(party(ONE), party(TWO), mib(3), at(0)), Some(TWO));
        assert_eq!(found(party(ONE), party(TWO), mib(4), at(0)), Some(TWO));
        assert_eq!(found(party(ONE), party(TWO), mib(5), at(0)), None);
    }

    #[test]
    fn statement_m6_100_ms_after_the_first_service_it_is_too_late() {
        let served = |queue| Party { first_service: Some(at(0)), ..party(queue) };
        assert_eq!(found(served(ONE), party(TWO), mib(1), at(100)), Some(TWO));
        assert_eq!(found(served(ONE), party(TWO), mib(1), at(101)), None);
        assert_eq!(found(party(ONE), served(TWO), mib(1), at(101)), None);
        assert_eq!(found(party(ONE), party(TWO), mib(1), at(101)), Some(TWO), "busy again");
    }

    #[test]
    fn statement_m7_async_idle_seeky_and_other_class_or_group_queues_are_never_merged() {
        let unfit = |queue| {
            [
                Party { sync: false, ..party(queue) },
                Party { seeky: true, ..party(queue) },
                Party { class: IoPriority::Idle, ..party(queue) },
                Party { class: IoPriority::RealTime, ..party(queue) },
                Party { group: Group::new(1).unwrap(), ..party(queue) },
            ]
        };
        for (one, two) in unfit(ONE).into_iter().zip(unfit(TWO)) {
            assert_eq!(found(one, party(TWO), mib(1), at(0)), None, "{one:?}");
            assert_eq!(found(party(ONE), two, mib(1), at(0)), None, "{two:?}");
        }
        let idle = |queue| Party { class: IoPriority::Idle, ..party(queue) };
        assert_eq!(found(idle(ONE), idle(TWO), mib(1), at(0)), None, "two of the idle class");
        let real_time = |queue| Party { class: IoPriority::RealTime, ..party(queue) };
        assert_eq!(found(real_time(ONE), real_time(TWO), mib(1), at(0)), Some(TWO));
    }

    /// A queue becomes seeky, or exceeds its time limit, after it was indexed.
    #[test]
    fn a_queue_that_has_changed_since_it_was_indexed_is_not_merged_into() {
        let mut merging = merging(MergeRule::Always, DISK);
        merging.head_changed(&party(TWO), mib(1), at(0));
        let now_seeky = |queue| Party { seeky: true, ..party(queue) };
        assert_eq!(merging.cooperator(&party(ONE), mib(1), None, now_seeky, at(1)), None);
        merging.head_changed(&now_seeky(TWO), mib(1), at(2));
        assert_eq!(merging.indexed(), 0);
        merging.head_changed(&party(TWO), mib(1), at(3));
        merging.emptied(TWO);
        assert_eq!(merging.indexed(), 0);
    }

    /// Queue found by a queue with a request at 100 MiB, when `TWO` has just entered service after
    /// another queue that read there.
    fn found_in_service(position: MergePosition) -> Option<(QueueId, FoundBy)> {
        let knobs = MergeKnobs { queues: MergeRule::Always, position, ..MergeKnobs::default() };
        let mut merging = Merging::new(knobs, DISK);
        merging.enters_service();
        merging.dispatched_in_service(mib(100));
        merging.enters_service();
        merging.cooperator(&party(ONE), mib(100), Some(TWO), party, at(0))
    }

    #[test]
    fn statement_m12b_a_queue_fresh_in_service_attracts_no_other_but_in_stale_mode() {
        assert_eq!(found_in_service(MergePosition::Own), None);
        let stale = found_in_service(MergePosition::Stale);
        assert_eq!(stale, Some((TWO, FoundBy::InService)), "wherever it reads");
    }

    #[test]
    fn the_queue_in_service_goes_before_one_that_waits_nearer() {
        let mut merging = merging(MergeRule::Always, DISK);
        let near = QueueId(3);
        merging.head_changed(&party(near), mib(100), at(0));
        merging.enters_service();
        merging.dispatched_in_service(mib(99));
        let find = |in_service, two_is_seeky| {
            let of = |queue| Party { seeky: two_is_seeky && queue == TWO, ..party(queue) };
            merging.cooperator(&party(ONE), mib(100), Some(in_service), of, at(0))
        };
        assert_eq!(find(TWO, false), Some((TWO, FoundBy::InService)));
        assert_eq!(find(ONE, false), Some((near, FoundBy::Position)), "in service itself");
        assert_eq!(find(TWO, true), Some((near, FoundBy::Position)));
    }
}
