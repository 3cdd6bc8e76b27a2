//! Weight raising: temporarily increases the weight of interactive and soft real-time queues.
//!
//! A queue is *interactive* if it starts, or becomes busy again after 2 s: a program is starting,
//! or a user clicked. Its weight is raised 30-fold for as long as such a start takes on this
//! member, 3 to 25 s, or until the queue has been served 60 MB. A queue is *soft real-time* if it
//! issues its requests in batches and transfers no more in each batch than a media player would
//! (7000 sectors/s). Its weight is raised 3000-fold for 300 ms, renewed at each batch. When its
//! batches end, a soft real-time queue returns to interactive raising if the time for that is not
//! over.
//!
//! Only a queue of the default weight is raised. An administrator who gives a client a weight of
//! its own (`--weight`) has fixed its share relative to the others, and raising must not override
//! that. A shared queue is never raised anew, because it is unknown which of its processes is
//! interactive.
//!
//! What may fail here: a queue that is wrongly taken for interactive gets 97 % of a member against
//! another one of the default weight, for up to 25 s. For a volume with clients of equal rank, set
//! `low_latency=0` or give them weights. With `fairness=requests` no queue is raised.
//!
//! Inputs   the history of a queue that becomes busy ([`Activation`]), the time, its service
//! Answer   [`Raising::coefficient`], the factor of its weight
//! Knob     `low_latency` (flag, default 1, as the kernel's)
//! Source   io-schedulers.md §2.10; kernel documentation, `bfq-iosched.rst`
//! Measured statement B12: one raised queue against another has 96.8 % within 0.5; Linux 6.12: 96.6

use weft_units::{Sectors, Span, Time};

use super::QueueId;
use super::burst::mark_fades;
use super::queue::BfqQueue;
use super::scheduler::Bfq;

/// State of a queue's weight raising.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Raising {
    raised: Raised,
    /// Time at which the raising began or was last renewed. While the queue is not raised: time at
    /// which a raising ended, the queue became busy, or a background write was added, whichever is
    /// last.
    since: Time,
    /// Time for which the weight stays raised.
    lasts: Span,
    /// Time at which an interactive raising began that is now interrupted by soft real-time
    /// raising; `None` if none is interrupted.
    interactive_since: Option<Time>,
    /// Number of sectors served since the raising began.
    served_raised: Sectors,
    /// Number of sectors served since the queue became busy.
    served_busy: Sectors,
    /// Time at which the queue became busy.
    busy_since: Time,
    /// Earliest start of the next batch with which the queue still counts as soft real-time.
    soft_rt_next_start: Time,
}

/// Reason for which a weight is raised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Raised {
    /// The weight is not raised.
    #[default]
    No,
    /// The queue is taken for interactive: a user waits for a program to start.
    Interactive,
    /// The queue issues requests in periodic batches, as a media player does.
    SoftRealTime,
}

/// Properties, at the time when a queue becomes busy, on which raising depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Activation {
    /// Whether the queue holds reads and sync writes.
    pub(super) sync: bool,
    /// Whether the queue serves several processes, and may be split again.
    pub(super) shared: bool,
    /// Whether the queue started in a large burst.
    pub(super) in_burst: bool,
    pub(super) default_weight: bool,
    /// Number of the queue's requests in flight at the member.
    pub(super) in_flight: u32,
    /// Time since the queue was last busy; `None` if it never was.
    pub(super) idle: Option<Span>,
    /// Whether each of the queue's last 32 requests was far from the previous one.
    pub(super) totally_seeky: bool,
}

impl Raising {
    /// State of a new queue, not raised.
    pub(super) fn new(now: Time) -> Self {
        Self {
            raised: Raised::No,
            since: now,
            lasts: Span::ZERO,
            interactive_since: None,
            served_raised: Sectors::ZERO,
            served_busy: Sectors::ZERO,
            busy_since: now,
            soft_rt_next_start: now,
        }
    }

    /// Factor by which the weight is raised; 1 if it is not.
    #[inline]
    pub(super) fn coefficient(&self) -> u32 {
        match self.raised {
            Raised::No => 1,
            Raised::Interactive => INTERACTIVE,
            Raised::SoftRealTime => INTERACTIVE * SOFT_RT,
        }
    }

    /// Factor by which the time limit of a slot is extended: 30 during interactive raising,
    /// otherwise 1.
    pub(super) fn slot_factor(&self) -> u64 {
        if self.raised == Raised::Interactive { INTERACTIVE.into() } else { 1 }
    }

    #[inline]
    pub(super) fn is_raised(&self) -> bool {
        self.raised != Raised::No
    }

    /// Reason for which the weight is raised at present.
    #[cfg(test)]
    pub(super) fn raised(&self) -> Raised {
        self.raised
    }

    /// Updates the raising when the queue becomes busy. `interactive` is the duration of an
    /// interactive raising on this member ([`interactive_span`]).
    pub(super) fn on_busy(&mut self, queue: &Activation, interactive: Span, now: Time) {
        let starts = may_start(queue) && queue.in_flight == 0;
        let is_interactive = starts && queue.idle.is_none_or(|idle| idle > IDLE_MIN);
        let is_soft_rt = starts && !queue.totally_seeky && now > self.soft_rt_next_start;
        match self.raised {
            _ if is_interactive => self.start(Raised::Interactive, interactive, now),
            Raised::No if is_soft_rt => {
                self.start(Raised::SoftRealTime, SOFT_RT_LASTS, now);
                self.interactive_since = None;
            }
            Raised::No => self.since = now,
            _ if queue.in_burst => self.end(now),
            Raised::Interactive if is_soft_rt => {
                let began = self.since;
                self.start(Raised::SoftRealTime, SOFT_RT_LASTS, now);
                self.interactive_since = Some(began);
            }
            Raised::SoftRealTime if is_soft_rt => self.since = now,
            Raised::Interactive | Raised::SoftRealTime => {}
        }
        (self.busy_since, self.served_busy) = (now, Sectors::ZERO);
    }

    /// Updates the raising for a further request of a busy async queue. A write-back that follows a
    /// pause counts as interactive, because a process may soon wait for it.
    pub(super) fn on_async_request(&mut self, default_weight: bool, interactive: Span, now: Time) {
        if self.is_raised() {
            return;
        }
        if default_weight && now.since(self.since) > ASYNC_PAUSE {
            self.start(Raised::Interactive, interactive, now);
        }
        self.since = now;
    }

    /// Counts the sectors of a dispatched request.
    #[inline]
    pub(super) fn on_service(&mut self, sectors: Sectors) {
        self.served_busy += sectors;
        self.served_raised += sectors;
    }

    /// Ends the raising if it is over. Returns whether the factor has changed.
    #[inline]
    pub(super) fn update(&mut self, in_burst: bool, interactive: Span, now: Time) -> bool {
        self.is_raised() && self.update_raised(in_burst, interactive, now)
    }

    fn update_raised(&mut self, in_burst: bool, interactive: Span, now: Time) -> bool {
        let before = self.raised;
        let over = now.since(self.since) > self.lasts;
        match (self.raised, self.interactive_since) {
            _ if in_burst => self.end(now),
            (Raised::SoftRealTime, Some(began)) if over && now.since(began) <= interactive => {
                self.start(Raised::Interactive, interactive, now);
                self.since = began;
            }
            _ if over => self.end(now),
            (Raised::Interactive, _) if self.served_raised > SERVED_MAX => self.end(now),
            _ => {}
        }
        self.raised != before
    }

    /// Computes the earliest start of the next batch, when the queue has no request queued or in
    /// flight and is not in service.
    pub(super) fn on_drained(&mut self, slice_idle: Span, now: Time) {
        let paced = Span(self.served_busy.0.saturating_mul(1_000_000_000) / SOFT_RT_RATE);
        let next = (self.busy_since + paced).max(now + slice_idle + TICKS);
        self.soft_rt_next_start = self.soft_rt_next_start.max(next);
    }

    /// Ends any raising.
    pub(super) fn end(&mut self, now: Time) {
        (self.raised, self.since, self.lasts) = (Raised::No, now, Span::ZERO);
        self.interactive_since = None;
    }

    /// Takes over the raising of another queue (`of`), which is merged into this one, unless this
    /// queue is itself raised.
    pub(super) fn inherit(&mut self, of: &mut Self, now: Time) {
        if self.is_raised() || !of.is_raised() {
            return;
        }
        let (served_busy, busy_since) = (self.served_busy, self.busy_since);
        let soft_rt_next_start = self.soft_rt_next_start;
        *self = Self { served_busy, busy_since, soft_rt_next_start, ..*of };
        of.end(now);
    }

    fn start(&mut self, raised: Raised, lasts: Span, now: Time) {
        if self.raised == Raised::No {
            self.served_raised = Sectors::ZERO;
        }
        (self.raised, self.since, self.lasts) = (raised, now, lasts);
    }
}

impl Bfq {
    /// Duration of an interactive raising on this member, at its current peak rate.
    pub(super) fn interactive_span(&self) -> Span {
        interactive_span(self.rotational, self.peak.rate())
    }

    /// Updates burst detection and raising when the queue `id` becomes busy.
    pub(super) fn on_wake(&mut self, id: QueueId, now: Time) {
        let others_busy = self.busy_queues() > 0;
        let low_latency = self.knobs.low_latency;
        let interactive = self.interactive_span();
        let queue = self.queues.at_mut(id);
        queue.sharing.first_service = None;
        if low_latency {
            if queue.in_burst && mark_fades(now.since(queue.ended)) {
                queue.in_burst = false;
            }
            if queue.sync && !queue.began {
                let (group, queues) = (queue.group, &mut self.queues);
                self.bursts.queue_began(id, group, others_busy, now, |id| {
                    queues.at_mut(id).in_burst = true;
                });
            }
            let queue = self.queues.at_mut(id);
            let activation = queue.activation(now);
            queue.raising.on_busy(&activation, interactive, now);
        }
        self.queues.at_mut(id).began = true;
    }

    /// Updates the raising for a background write that was added to a busy queue.
    pub(super) fn on_async_request(&mut self, id: QueueId, now: Time) {
        let interactive = self.interactive_span();
        self.change_weight(id, |queue| {
            let default_weight = queue.has_default_weight();
            queue.raising.on_async_request(default_weight, interactive, now);
        });
    }

    /// Counts the sectors of a dispatched request, and ends the raising if it is over.
    #[inline]
    pub(super) fn on_raised_service(&mut self, id: QueueId, len: Sectors, now: Time) {
        let queue = self.queues.at_mut(id);
        queue.raising.on_service(len);
        if queue.raising.is_raised() {
            let interactive = self.interactive_span();
            self.change_weight(id, |queue| {
                queue.raising.update(queue.in_burst, interactive, now);
            });
        }
    }

    /// Updates the raising of a queue that is not in service, if it has no request queued or in
    /// flight.
    #[inline]
    pub(super) fn on_drained(&mut self, id: QueueId, now: Time) {
        let slice_idle = self.knobs.slice_idle;
        let queue = self.queues.at_mut(id);
        if queue.sync && !queue.busy && queue.in_driver == 0 {
            queue.raising.on_drained(slice_idle, now);
        }
    }

    /// Applies `change`, which may change the queue's weight, to the queue `id`, and updates the
    /// counts of weights.
    pub(super) fn change_weight(&mut self, id: QueueId, change: impl FnOnce(&mut BfqQueue)) {
        let queue = self.queues.at_mut(id);
        let was_raised = queue.raising.is_raised();
        change(queue);
        let (busy, is_raised) = (queue.busy, queue.raising.is_raised());
        let counts = !is_raised && (busy || queue.counted.is_some());
        let counted = counts.then_some(queue.base_weight);
        let before = std::mem::replace(&mut queue.counted, counted);
        if busy {
            self.raised_busy = self.raised_busy + u32::from(is_raised) - u32::from(was_raised);
        }
        if before != counted {
            before.into_iter().for_each(|weight| self.weights.remove(weight));
            counted.into_iter().for_each(|weight| self.weights.add(weight));
        }
    }
}

impl BfqQueue {
    /// Properties of the queue, as it becomes busy, on which raising depends.
    pub(super) fn activation(&self, now: Time) -> Activation {
        Activation {
            sync: self.sync,
            shared: self.sharing.is_shared_for_now(),
            in_burst: self.in_burst,
            default_weight: self.has_default_weight(),
            in_flight: self.in_driver,
            idle: self.began.then(|| now.since(self.ended)),
            totally_seeky: self.seeks.is_totally_seeky(),
        }
    }

    fn has_default_weight(&self) -> bool {
        self.base_weight == WEIGHT_DEFAULT && !self.key.has_weight() && !self.key.is_of_resync()
    }
}

fn may_start(queue: &Activation) -> bool {
    queue.sync && !queue.shared && !queue.in_burst && queue.default_weight
}

/// Duration of an interactive raising: the time that a large program takes to start on a reference
/// device, scaled to the peak rate of this member.
///
/// Units    `peak_rate` in sectors per microsecond, times 2^16; not zero
pub(super) fn interactive_span(rotational: bool, peak_rate: u64) -> Span {
    let (rate, millis) = if rotational { (14_000, 7_000) } else { (33_000, 2_500) };
    Span::millis((rate * millis / peak_rate.max(1)).clamp(3_000, 25_000))
}

/// Weight of level 4, the default level of a process.
const WEIGHT_DEFAULT: u32 = 40;
/// Factor of an interactive queue's weight (`bfq_wr_coeff`).
const INTERACTIVE: u32 = 30;
/// Additional factor of a soft real-time queue's weight.
const SOFT_RT: u32 = 100;
/// Duration of a soft real-time raising (`bfq_wr_rt_max_time`).
const SOFT_RT_LASTS: Span = Span::millis(300);
/// Largest rate of a media player in sectors per second (`bfq_wr_max_softrt_rate`).
const SOFT_RT_RATE: u64 = 7_000;
/// Shortest pause before a batch, in addition to `slice_idle`: four ticks of a kernel with HZ 250.
const TICKS: Span = Span::millis(16);
/// Idle time after which a queue counts as starting again (`bfq_wr_min_idle_time`).
const IDLE_MIN: Span = Span::secs(2);
/// Shortest pause after which the next write-back is raised (`bfq_wr_min_inter_arr_async`).
const ASYNC_PAUSE: Span = Span::millis(500);
/// Number of sectors served after which an interactive raising ends: 60 MB.
const SERVED_MAX: Sectors = Sectors(120_000);

#[cfg(test)]
mod tests {
    use weft_units::{ClientId, Group};

    use super::*;
    use crate::contract::input::{Attr, Origin};
    use crate::contract::member::DeviceTraits;
    use crate::knobs::BfqKnobs;
    use crate::sched::request::{Direction, QueuedRequest};

    const SLICE_IDLE: Span = Span::millis(8);
    const LASTS: Span = Span::millis(3_750);
    const NEW: Activation = Activation {
        sync: true,
        shared: false,
        in_burst: false,
        default_weight: true,
        in_flight: 0,
        idle: None,
        totally_seeky: false,
    };
    const AGAIN: Activation = Activation { idle: Some(Span::millis(100)), ..NEW };

    fn at(millis: u64) -> Time {
        Time(0) + Span::millis(millis)
    }

    fn began(queue: &Activation) -> Raising {
        let mut raising = Raising::new(at(0));
        raising.on_busy(queue, LASTS, at(0));
        raising
    }

    #[test]
    fn a_start_of_a_program_is_raised_and_nothing_else_is() {
        let table = [
            (NEW, Raised::Interactive),
            (Activation { idle: Some(Span::millis(2_001)), ..NEW }, Raised::Interactive),
            (Activation { idle: Some(Span::secs(2)), ..NEW }, Raised::No),
            (Activation { in_flight: 1, ..NEW }, Raised::No),
            (Activation { in_burst: true, ..NEW }, Raised::No),
            (Activation { shared: true, ..NEW }, Raised::No),
            (Activation { sync: false, ..NEW }, Raised::No),
            (Activation { default_weight: false, ..NEW }, Raised::No),
            (Activation { totally_seeky: true, ..NEW }, Raised::Interactive),
        ];
        for (queue, raised) in table {
            assert_eq!(began(&queue).raised(), raised, "{queue:?}");
        }
        let factors = [Raised::No, Raised::Interactive, Raised::SoftRealTime]
            .map(|raised| Raising { raised, ..Raising::new(at(0)) }.coefficient());
        assert_eq!(factors, [1, 30, 3_000]);
    }

    /// io-schedulers.md §2.10: a raising lasts 10.5 s and 3.75 s at the first estimates, and 3 s on
    /// any flash faster than 215 MB/s.
    #[test]
    fn a_raising_lasts_as_long_as_a_start_takes_on_the_member() {
        let first_estimate = |reference: u64| reference * 2 / 3;
        assert_eq!(interactive_span(true, first_estimate(14_000)).0 / 1_000_000, 10_500);
        assert_eq!(interactive_span(false, first_estimate(33_000)).0 / 1_000_000, 3_750);
        assert_eq!(interactive_span(true, 1), Span::secs(25));
        assert_eq!(interactive_span(false, 27_500), Span::secs(3));
        assert_eq!(interactive_span(false, 5_000_000), Span::secs(3));
    }

    #[test]
    fn an_interactive_raising_ends_by_time_or_by_service_or_in_a_burst() {
        let mut raising = began(&NEW);
        assert!(!raising.update(false, LASTS, at(3_750)));
        assert!(raising.update(false, LASTS, at(3_751)));
        assert_eq!(raising.coefficient(), 1);
        let mut raising = began(&NEW);
        raising.on_service(SERVED_MAX);
        assert!(!raising.update(false, LASTS, at(1)));
        raising.on_service(Sectors(1));
        assert!(raising.update(false, LASTS, at(1)));
        assert!(!raising.is_raised());
        let mut raising = began(&NEW);
        assert!(raising.update(true, LASTS, at(1)));
        let mut raising = began(&NEW);
        raising.on_busy(&Activation { in_burst: true, ..AGAIN }, LASTS, at(100));
        assert!(!raising.is_raised(), "marked while it was raised");
    }

    /// Issues one batch of requests. A player that reads 140 sectors every 50 ms transfers 2800
    /// sectors/s.
    fn player(raising: &mut Raising, turn: u64, sectors: u64, millis: u64) {
        raising.on_busy(&AGAIN, LASTS, at(turn * millis));
        raising.on_service(Sectors(sectors));
        raising.on_drained(SLICE_IDLE, at(turn * millis + 5));
    }

    #[test]
    fn a_player_is_soft_real_time_and_a_reader_is_not() {
        let mut raising = Raising::new(at(0));
        (1..4).for_each(|turn| player(&mut raising, turn, 140, 50));
        assert_eq!(raising.raised(), Raised::SoftRealTime);
        assert!(!raising.update(false, LASTS, at(150 + 300)));
        assert!(raising.update(false, LASTS, at(150 + 301)), "300 ms after its last turn");
        // Turns at 100 MB/s: all are too early except the first, which has no history.
        let mut raising = Raising::new(at(0));
        player(&mut raising, 1, 10_000, 50);
        raising.end(at(60));
        (2..20).for_each(|turn| player(&mut raising, turn, 10_000, 50));
        assert_eq!(raising.raised(), Raised::No);
        // Small turns without a pause between them.
        let mut raising = Raising::new(at(0));
        player(&mut raising, 1, 8, 6);
        raising.end(at(11));
        (2..20).for_each(|turn| player(&mut raising, turn, 8, 6));
        assert_eq!(raising.raised(), Raised::No, "24 ms have to pass");
        let mut raising = Raising::new(at(0));
        raising.on_busy(&Activation { totally_seeky: true, ..AGAIN }, LASTS, at(50));
        assert_eq!(raising.raised(), Raised::No);
    }

    #[test]
    fn what_is_left_of_an_interactive_time_is_resumed_after_soft_real_time() {
        let mut raising = began(&NEW);
        (1..4).for_each(|turn| player(&mut raising, turn, 140, 50));
        assert_eq!(raising.raised(), Raised::SoftRealTime);
        assert!(raising.update(false, LASTS, at(452)));
        assert_eq!(raising.raised(), Raised::Interactive);
        assert!(!raising.update(false, LASTS, at(3_750)));
        assert!(raising.update(false, LASTS, at(3_751)), "it began at 0");
        let mut raising = began(&NEW);
        (70..75).for_each(|turn| player(&mut raising, turn, 140, 50));
        assert!(raising.update(false, LASTS, at(4_100)));
        assert_eq!(raising.raised(), Raised::No, "nothing is left after 3.75 s");
    }

    #[test]
    fn write_back_after_a_pause_is_raised_unless_it_has_a_weight() {
        let mut raising = Raising::new(at(0));
        raising.on_async_request(true, LASTS, at(500));
        assert!(!raising.is_raised());
        raising.on_async_request(true, LASTS, at(1_000));
        assert!(!raising.is_raised(), "500 ms after the last request");
        raising.on_async_request(false, LASTS, at(1_501));
        assert!(!raising.is_raised());
        raising.on_async_request(true, LASTS, at(2_002));
        assert_eq!(raising.raised(), Raised::Interactive);
    }

    #[test]
    fn a_merge_hands_a_raising_over_once() {
        let (mut donor, mut target) = (began(&NEW), Raising::new(at(0)));
        target.inherit(&mut donor, at(10));
        assert_eq!((donor.raised(), target.raised()), (Raised::No, Raised::Interactive));
        assert!(target.update(false, LASTS, at(3_751)), "for what was left of it");
        let (mut donor, mut target) = (began(&NEW), began(&NEW));
        target.inherit(&mut donor, at(10));
        assert!(donor.is_raised() && target.is_raised(), "nothing to hand over");
    }

    #[test]
    fn what_was_served_before_a_raising_does_not_count_in_it() {
        let mut raising = Raising::new(at(0));
        raising.on_service(Sectors(SERVED_MAX.0 + 1));
        raising.on_busy(&NEW, LASTS, at(10));
        assert!(raising.is_raised() && !raising.update(false, LASTS, at(11)));
    }

    #[test]
    fn the_queue_that_takes_a_raising_over_keeps_its_own_batch() {
        let (mut donor, mut target) = (began(&NEW), Raising::new(at(0)));
        target.on_busy(&Activation { default_weight: false, ..NEW }, LASTS, at(40));
        target.on_service(Sectors(7));
        target.soft_rt_next_start = at(50);
        donor.on_busy(&AGAIN, LASTS, at(60));
        target.inherit(&mut donor, at(70));
        let batch = (target.busy_since, target.served_busy, target.soft_rt_next_start);
        assert_eq!(batch, (at(40), Sectors(7), at(50)));
    }

    fn request(id: u64, background: bool) -> QueuedRequest {
        QueuedRequest {
            id,
            direction: Direction::Write,
            attr: Attr { background, ..Attr::NONE },
            first: Sectors(id * 1_000),
            len: Sectors(8),
            discard: false,
            merges: false,
        }
    }

    /// A scheduler for a flash device with one request, which is in flight if `dispatched`.
    fn scheduler(background: bool, dispatched: bool) -> Bfq {
        let mut bfq = Bfq::new(BfqKnobs::default(), Sectors(1024), DeviceTraits::default());
        bfq.insert(&request(0, background), at(0));
        assert_eq!(dispatched.then(|| bfq.dispatch(at(0))).flatten().is_some(), dispatched);
        bfq
    }

    #[test]
    fn write_back_that_joins_a_busy_queue_after_a_pause_is_raised() {
        for (millis, raised) in [(500, false), (501, true)] {
            let mut bfq = scheduler(true, false);
            bfq.insert(&request(1, true), at(millis));
            assert_eq!(bfq.queues.at(QueueId(0)).raising.is_raised(), raised, "{millis}");
        }
        let mut sync = scheduler(false, false);
        sync.queues.at_mut(QueueId(0)).raising.end(at(0));
        sync.insert(&request(1, false), at(501));
        assert!(!sync.queues.at(QueueId(0)).raising.is_raised(), "it is no write-back");
    }

    #[test]
    fn the_mark_of_a_burst_stays_until_the_queue_was_idle_for_ten_seconds() {
        for (seconds, marked) in [(10, true), (11, false)] {
            let mut bfq = scheduler(false, false);
            bfq.queues.at_mut(QueueId(0)).in_burst = true;
            bfq.on_wake(QueueId(0), Time(0) + Span::secs(seconds));
            assert_eq!(bfq.queues.at(QueueId(0)).in_burst, marked, "{seconds}");
        }
    }

    #[test]
    fn a_burst_begins_only_on_an_idle_member() {
        /// Inserts a request of each of eight clients into a scheduler with one request. Returns
        /// whether each of `queues` is marked as part of a large burst.
        fn joined<const N: usize>(background: bool, queues: [u32; N]) -> [bool; N] {
            let mut bfq = scheduler(background, false);
            for client in 1..9 {
                let origin = Origin::Client(ClientId(client), Group::ROOT);
                let attr = Attr { origin, ..Attr::NONE };
                bfq.insert(&QueuedRequest { attr, ..request(client.into(), false) }, at(1));
            }
            queues.map(|queue| bfq.queues.at(QueueId(queue)).in_burst)
        }
        assert_eq!(joined(false, [0, 6, 7, 8]), [true; 4], "nine began together");
        assert_eq!(joined(true, [1, 7, 8]), [false; 3], "write-back was busy before them");
    }

    #[test]
    fn the_next_batch_is_dated_only_when_nothing_is_queued_or_in_flight() {
        let mut bfq = scheduler(false, true);
        let next = |bfq: &Bfq| bfq.queues.at(QueueId(0)).raising.soft_rt_next_start;
        let before = next(&bfq);
        bfq.queues.at_mut(QueueId(0)).busy = false;
        bfq.on_drained(QueueId(0), at(50));
        assert_eq!(next(&bfq), before, "in flight");
        let queue = bfq.queues.at_mut(QueueId(0));
        (queue.in_driver, queue.busy) = (0, true);
        bfq.on_drained(QueueId(0), at(50));
        assert_eq!(next(&bfq), before, "busy");
        let queue = bfq.queues.at_mut(QueueId(0));
        (queue.busy, queue.sync) = (false, false);
        bfq.on_drained(QueueId(0), at(50));
        assert_eq!(next(&bfq), before, "nothing waits for it");
        bfq.queues.at_mut(QueueId(0)).sync = true;
        bfq.on_drained(QueueId(0), at(50));
        assert_eq!(next(&bfq), at(50) + SLICE_IDLE + TICKS);
    }

    #[test]
    fn a_weight_is_counted_while_it_is_not_raised() {
        let mut bfq = scheduler(false, false);
        let counted = |bfq: &Bfq| bfq.queues.at(QueueId(0)).counted;
        assert_eq!((counted(&bfq), bfq.raised_busy), (None, 1));
        bfq.change_weight(QueueId(0), |queue| queue.raising.end(at(1)));
        assert_eq!((counted(&bfq), bfq.raised_busy), (Some(WEIGHT_DEFAULT), 0));
        bfq.change_weight(QueueId(0), |queue| {
            queue.raising.start(Raised::Interactive, LASTS, at(2));
        });
        assert_eq!((counted(&bfq), bfq.raised_busy), (None, 1));
    }
}
