//! Tests of a member queue: merging, sorting, depth, expiry, plug, and requests that bypass the
//! scheduler.

use weft_units::Bytes;
use weft_units::rng::Rng;

use super::*;
use crate::contract::frame::Frame;
use crate::contract::input::Class;
use crate::knobs::{KnobRow, TABLE};
use crate::sched::request::{MemberRequest, MergeKind};

const MQ: SchedulerKind = SchedulerKind::MqDeadline;

fn settings(scheduler: SchedulerKind, depth: u32) -> QueueSettings {
    let (mq_deadline, max) = (MqDeadlineKnobs::default(), Sectors(1024));
    QueueSettings {
        scheduler,
        bfq: BfqKnobs::default(),
        kyber: KyberKnobs::default(),
        mq_deadline,
        max,
        nomerges: NoMerges::Allowed,
        depth,
        nr_requests: 0,
        rotational: None,
        plugs: false,
    }
}

/// Names of the member-queue knobs that do not change the settings returned by `of`, whatever value
/// they have.
fn without_effect(of: impl Fn(&Knobs) -> QueueSettings) -> Vec<&'static str> {
    let knobs = Knobs::default();
    let is_without = |row: &&KnobRow| {
        let default = knobs.show(row.name).unwrap();
        let drawn = [row.draws.queues, row.draws.mixed, row.draws.one_queue, &["1", "2", "8"]];
        let other = drawn.concat().into_iter().find_map(|value| {
            let knob = knobs.parse(row.name, value).ok().filter(|_| value != default)?;
            knob.is_of_queues().then(|| {
                let mut other = knobs;
                other.set(knob);
                other
            })
        });
        other.is_some_and(|other| of(&other) == of(&knobs))
    };
    TABLE.iter().filter(is_without).map(|row| row.name).collect()
}

#[test]
fn every_knob_of_queues_is_a_setting_of_theirs() {
    assert_eq!(without_effect(QueueSettings::of), [""; 0]);
    let forgets = |knobs: &Knobs| {
        let kyber = KyberKnobs::default();
        QueueSettings { kyber, nomerges: NoMerges::Allowed, ..QueueSettings::of(knobs) }
    };
    assert_eq!(without_effect(forgets), ["nomerges", "read_lat_nsec", "write_lat_nsec"]);
}

/// A queue and the commands that it sent, each as first sector, length in sectors, and owners.
struct Bench {
    queue: MemberQueue<u32>,
    now: Time,
    turn: u64,
    asked: u32,
    sent: Vec<(u64, u64, Vec<u32>)>,
    /// Commands in flight: whether each is a write, and its receipt.
    at_member: Vec<(bool, Option<Receipt>)>,
}

impl Bench {
    fn new(settings: QueueSettings) -> Self {
        Self::on(DeviceTraits::default(), settings)
    }

    fn on(device: DeviceTraits, settings: QueueSettings) -> Self {
        let mut queue = MemberQueue::new(device);
        queue.configure(settings, 0);
        let (sent, at_member) = (Vec::new(), Vec::new());
        Self { queue, now: Time(0), turn: 1, asked: 0, sent, at_member }
    }

    fn stage(&mut self, op: MemberOp) -> u32 {
        let owner = self.asked;
        self.asked += 1;
        self.queue.stage(Waiting { op, attr: Attr::NONE, owner, since: self.now });
        owner
    }

    /// Stages a request of 4 KiB, which is merged within the turn as by `Outbox::stage`. Returns
    /// whether it was merged.
    fn ask(&mut self, write: bool, at: u64) -> bool {
        let kind = MergeKind { fua: false, stripes: true, attr: Attr::NONE };
        let (at, max) = (Sectors(at), Bytes::kib(512));
        let request = MemberRequest { write, sector: at, bytes: Bytes(4096), max, kind };
        let part = Segment { frame: Frame(1000 + at.0 as u32), offset: 0, len: 4096 };
        let next = self.queue.next_place();
        let last = &mut self.queue.last[usize::from(write)];
        if let Some(place) = last.merge(self.turn, at, &request, next) {
            self.queue.append(place, &[part]);
            return true;
        }
        let parts = Segments::from_slice(&[part]);
        self.stage(if write {
            MemberOp::Write { at, from: parts, fua: false }
        } else {
            MemberOp::Read { at, into: parts }
        });
        false
    }

    fn write(&mut self, at: u64) -> bool {
        self.ask(true, at)
    }

    /// Ends the turn. With `last`, the submitter has no more requests.
    fn end_turn(&mut self, last: bool) {
        self.turn += 1;
        self.queue.unplug(self.now);
        if last {
            self.queue.end_plug();
        }
        self.run();
    }

    fn run(&mut self) {
        while let Some(command) = self.queue.dispatch(self.now) {
            let (at, len) = match &command.op {
                MemberOp::Read { at, into: parts } | MemberOp::Write { at, from: parts, .. } => {
                    (at.0, length(parts).0)
                }
                MemberOp::WriteMetadata { at, .. } | MemberOp::Discard { at, .. } => (at.0, 0),
                MemberOp::Flush => (u64::MAX, 0),
            };
            self.sent.push((at, len, command.owners.to_vec()));
            if command.takes_room {
                let write = !matches!(command.op, MemberOp::Read { .. });
                self.at_member.push((write, command.scheduled));
            }
        }
    }

    /// Completes the first command in flight.
    fn end_one(&mut self) {
        let (write, scheduled) = self.at_member.remove(0);
        self.queue.ended(scheduled, write, self.now);
        self.run();
    }

    /// Changes the settings while commands are in flight.
    fn configure(&mut self, settings: QueueSettings) {
        self.at_member.iter_mut().for_each(|(_, scheduled)| *scheduled = None);
        self.queue.configure(settings, self.at_member.len() as u32);
    }

    fn drain(&mut self) {
        while !self.at_member.is_empty() {
            self.end_one();
        }
    }

    /// Number of requests waiting in the scheduler.
    fn in_scheduler(&self) -> usize {
        self.queue.scheduler.waiting()
    }

    fn places(&self) -> Vec<u64> {
        self.sent.iter().map(|sent| sent.0).collect()
    }
}

#[test]
fn with_none_and_no_bound_nothing_comes_here() {
    let known = DeviceTraits { depth: Some(8), ..DeviceTraits::default() };
    let passes = |device, settings| {
        let mut queue = MemberQueue::<u32>::new(device);
        queue.configure(settings, 0);
        queue.passes()
    };
    let (none, mq) = (SchedulerKind::None, MQ);
    let behind_a_kernel = DeviceTraits { host_queue: true, ..known };
    assert!(!passes(known, settings(none, 0)) && passes(behind_a_kernel, settings(none, 0)));
    assert!(MemberQueue::<u32>::new(DeviceTraits::default()).passes());
    assert!(passes(DeviceTraits::default(), settings(none, 0)));
    assert!(!passes(DeviceTraits::default(), settings(none, 4)));
    assert!(!passes(DeviceTraits::default(), settings(mq, 0)));
    assert!(!passes(known, settings(none, 0)));
}

#[test]
fn a_knob_goes_beyond_the_depth_of_a_device_only_where_the_kernel_keeps_the_rest() {
    let known = DeviceTraits { depth: Some(8), ..DeviceTraits::default() };
    let depth = |host_queue, depth| {
        let mut queue = MemberQueue::<u32>::new(DeviceTraits { host_queue, ..known });
        queue.configure(settings(MQ, depth), 0);
        queue.depth()
    };
    assert_eq!([depth(false, 0), depth(false, 4), depth(false, 64)], [Some(8), Some(4), Some(8)]);
    assert_eq!([depth(true, 0), depth(true, 4), depth(true, 64)], [Some(8), Some(4), Some(64)]);
    assert_eq!(MemberQueue::<u32>::new(DeviceTraits::default()).depth(), None);
}

#[test]
fn depth_bounds_what_the_member_has_and_the_rest_waits() {
    for (scheduler, expected) in
        [(SchedulerKind::None, vec![800, 0, 400, 1200]), (MQ, vec![0, 400, 800, 1200])]
    {
        let mut bench = Bench::new(settings(scheduler, 2));
        for at in [800, 0, 400, 1200] {
            bench.write(at);
        }
        bench.end_turn(true);
        assert_eq!(bench.places(), expected[..2], "{scheduler:?}");
        assert_eq!(bench.queue.next_wake(bench.now), None, "an answer is what it waits for");
        bench.end_one();
        assert_eq!(bench.places(), expected[..3], "{scheduler:?}");
        bench.drain();
        assert_eq!(bench.places(), expected, "{scheduler:?}");
        assert!(bench.queue.is_empty());
    }
}

#[test]
fn a_scheduler_has_something_to_choose_from_though_the_depth_is_not_known() {
    let mut bench = Bench::new(settings(MQ, 0));
    for at in 0..100 {
        bench.write(at * 80);
    }
    bench.end_turn(true);
    assert_eq!(bench.sent.len(), DEPTH_UNKNOWN as usize);
    assert_eq!(bench.in_scheduler(), DEPTH_UNKNOWN as usize, "twice the depth have tokens");
    bench.drain();
    assert_eq!(bench.sent.len(), 100);
}

#[test]
fn neighbours_are_merged_within_a_turn_by_any_and_across_turns_by_schedulers() {
    for scheduler in SchedulerKind::ALL {
        let expected = match scheduler {
            SchedulerKind::None => vec![(900, 8), (0, 16), (16, 8)],
            _ => vec![(900, 8), (0, 24)],
        };
        let mut bench = Bench::new(QueueSettings { nr_requests: 8, ..settings(scheduler, 1) });
        bench.write(900);
        bench.end_turn(true);
        assert!(!bench.write(0) && bench.write(8));
        bench.end_turn(true);
        assert!(!bench.write(16), "another turn's is out of reach");
        bench.end_turn(true);
        bench.drain();
        let sent: Vec<_> = bench.sent.iter().map(|sent| (sent.0, sent.1)).collect();
        assert_eq!(sent, expected, "{scheduler:?}");
        let owners: usize = bench.sent.iter().map(|sent| sent.2.len()).sum();
        assert_eq!(owners, 3, "a request that a turn made goes with its own");
    }
}

#[test]
fn a_merged_command_has_its_parts_in_the_order_of_their_places() {
    let mut bench = Bench::new(settings(MQ, 1));
    bench.write(900);
    bench.end_turn(true);
    for at in [16, 0, 8] {
        bench.ask(false, at);
        bench.end_turn(true);
    }
    bench.drain();
    assert_eq!(bench.sent[1], (0, 24, vec![2, 3, 1]));
}

#[test]
fn a_read_that_has_waited_too_long_begins_the_next_batch() {
    let mut one = settings(MQ, 1);
    one.mq_deadline.fifo_batch = 1;
    let mut bench = Bench::new(one);
    bench.ask(false, 500);
    bench.end_turn(true);
    bench.ask(false, 100);
    bench.end_turn(true);
    bench.now = Time(0) + Span::millis(400);
    bench.ask(false, 600);
    bench.ask(false, 700);
    bench.end_turn(true);
    bench.end_one();
    assert_eq!(bench.places(), [500, 600], "the sweep goes up");
    bench.now = Time(0) + Span::millis(501);
    bench.end_one();
    assert_eq!(bench.places(), [500, 600, 100]);
}

#[test]
fn a_lower_class_waits_for_a_higher_one_and_says_until_when() {
    let mut bench = Bench::new(settings(MQ, 4));
    let attr = |class| Attr { class, ..Attr::NONE };
    for (owner, class) in [(0, Class::RealTime(0)), (1, Class::BestEffort(4))] {
        let part = Segment { frame: Frame(1), offset: 0, len: 4096 };
        let at = Sectors(u64::from(owner) * 80);
        let op = MemberOp::Read { at, into: Segments::from_slice(&[part]) };
        bench.queue.stage(Waiting { op, attr: attr(class), owner, since: bench.now });
    }
    bench.end_turn(true);
    assert_eq!(bench.places(), [0]);
    let wake = bench.queue.next_wake(bench.now).expect("it ages");
    assert_eq!(wake, Time(0) + Span::secs(10));
    bench.now = wake;
    bench.run();
    assert_eq!(bench.places(), [0, 80]);
    assert_eq!(bench.queue.next_wake(bench.now), None);
}

#[test]
fn flushes_superblocks_and_fua_pass_the_scheduler_by() {
    let mut bench = Bench::new(settings(MQ, 1));
    bench.write(800);
    bench.end_turn(true);
    bench.write(80);
    let part = Segment { frame: Frame(1), offset: 0, len: 4096 };
    let from = Segments::from_slice(&[part]);
    bench.stage(MemberOp::Write { at: Sectors(400), from, fua: true });
    bench.stage(MemberOp::WriteMetadata { at: Sectors(8), bytes: vec![0; 4096].into() });
    bench.stage(MemberOp::Flush);
    bench.end_turn(true);
    bench.drain();
    assert_eq!(bench.places(), [800, 400, 8, u64::MAX, 80]);
}

/// A SATA drive, for which a flush is not an NCQ command.
const SATA: DeviceTraits = DeviceTraits {
    depth: Some(32),
    host_queue: false,
    write_cache: true,
    rotational: false,
    flush_queueable: false,
};

#[test]
fn a_flush_that_is_no_queued_command_is_at_the_member_alone() {
    for scheduler in SchedulerKind::ALL {
        for (device, rounds) in
            [(SATA, vec![2, 1, 1, 2]), (DeviceTraits { flush_queueable: true, ..SATA }, vec![6])]
        {
            let mut bench = Bench::on(device, settings(scheduler, 0));
            bench.write(800);
            bench.write(1600);
            bench.end_turn(true);
            let part = Segment { frame: Frame(1), offset: 0, len: 4096 };
            let from = Segments::from_slice(&[part]);
            bench.stage(MemberOp::Flush);
            bench.stage(MemberOp::Write { at: Sectors(400), from, fua: true });
            bench.write(2400);
            bench.write(3200);
            bench.end_turn(true);
            let mut found = Vec::new();
            while !bench.at_member.is_empty() {
                let sent = bench.at_member.len();
                assert!(bench.queue.next_wake(bench.now).is_none(), "no wake-up is needed");
                found.push(sent);
                (0..sent).for_each(|_| bench.end_one());
            }
            assert_eq!(found, rounds, "{scheduler:?} {device:?}");
        }
    }
}

#[test]
fn requests_that_wait_for_a_flush_alone_are_not_withheld_by_bfq() {
    let knobs = BfqKnobs { low_latency: false, ..BfqKnobs::default() };
    let bfq = QueueSettings { bfq: knobs, ..settings(SchedulerKind::Bfq, 0) };
    let mut bench = Bench::on(SATA, bfq);
    bench.stage(MemberOp::Flush);
    bench.write(800);
    bench.end_turn(true);
    assert_eq!((bench.at_member.len(), bench.in_scheduler()), (1, 1));
    bench.now = Time(5_000_000);
    bench.drain();
    assert_eq!(bench.places(), [u64::MAX, 800]);
    assert_eq!(bench.queue.bfq_stats().map(|stats| stats.withheld), Some(Span::ZERO));
    assert!(Bench::on(SATA, settings(MQ, 0)).queue.bfq_stats().is_none(), "another scheduler's");
}

/// Statement M13: a flush is sent at once, even if requests wait in BFQ or the member is kept idle.
#[test]
fn statement_m13_a_flush_never_enters_a_queue_of_bfq() {
    for depth in [1, 8] {
        let mut bench = Bench::new(settings(SchedulerKind::Bfq, depth));
        (0..4).for_each(|at| {
            bench.write(at * 800);
        });
        bench.end_turn(true);
        let before = bench.in_scheduler();
        let flush = bench.stage(MemberOp::Flush);
        bench.end_turn(true);
        assert_eq!(bench.in_scheduler(), before, "depth {depth}");
        bench.drain();
        let sent = bench.sent.iter().position(|(_, _, owners)| *owners == [flush]).unwrap();
        assert_eq!(sent as u32, depth.min(4), "behind what the member had, before what waited");
    }
}

#[test]
fn a_member_without_a_write_cache_is_told_to_flush_at_once() {
    let mut bench = Bench::new(settings(MQ, 1));
    bench.queue = MemberQueue::new(DeviceTraits {
        depth: Some(1),
        write_cache: false,
        ..DeviceTraits::default()
    });
    bench.queue.configure(settings(MQ, 1), 0);
    bench.write(800);
    bench.write(80);
    bench.stage(MemberOp::Flush);
    bench.end_turn(true);
    assert_eq!(bench.places(), [u64::MAX, 80], "it takes no room");
    assert_eq!(bench.at_member.len(), 1);
}

fn plugs() -> QueueSettings {
    QueueSettings { plugs: true, ..settings(MQ, 64) }
}

#[test]
fn a_queue_of_2008_keeps_what_comes_until_it_is_unplugged() {
    let asked = |places: &[u64], settings| {
        let mut bench = Bench::new(settings);
        for at in places {
            bench.write(*at);
            bench.end_turn(false);
        }
        bench
    };
    assert_eq!(asked(&[0, 8, 16], settings(MQ, 64)).sent.len(), 3, "today's is not plugged");
    let mut bench = asked(&[0, 8, 16], plugs());
    assert_eq!((bench.sent.len(), bench.queue.next_wake(Time(0))), (0, Some(Time(3_000_000))));
    bench.end_turn(true);
    assert_eq!(bench.sent, [(0, 24, vec![0, 1, 2])]);
    let mut bench = asked(&[0, 8, 16], plugs());
    bench.now = Time(2_999_999);
    bench.run();
    assert_eq!(bench.sent.len(), 0, "the queue stays plugged");
    bench.now = Time(3_000_000);
    bench.run();
    assert_eq!(bench.sent.len(), 1);
    // The limit is four requests, and merged requests count as one.
    assert_eq!(asked(&[0, 8, 16, 24, 32], plugs()).sent.len(), 0);
    assert_eq!(asked(&[0, 80, 160], plugs()).sent.len(), 0);
    assert_eq!(asked(&[0, 80, 160, 240], plugs()).sent.len(), 4);
}

#[test]
fn a_plug_is_timed_by_the_first_request() {
    let mut bench = Bench::new(plugs());
    for (at, millis) in [(0, 0), (80, 1), (160, 2)] {
        bench.now = Time(0) + Span::millis(millis);
        bench.write(at);
        bench.end_turn(false);
    }
    assert_eq!(bench.queue.next_wake(bench.now), Some(Time(0) + UNPLUG_DELAY));
}

#[test]
fn only_a_scheduler_of_2008_plugs() {
    let plugs = |stripe_cache_form, scheduler| {
        QueueSettings::of(&Knobs { stripe_cache_form, scheduler, ..Knobs::default() }).plugs
    };
    assert!(!plugs(CacheForm::Today, SchedulerKind::None));
    assert!(!plugs(CacheForm::Today, MQ) && !plugs(CacheForm::Of2008, SchedulerKind::None));
    assert!(plugs(CacheForm::Of2008, MQ));
}

#[test]
fn a_command_that_ends_unplugs_its_queue() {
    let mut bench = Bench::new(plugs());
    for at in [0, 80, 160, 240] {
        bench.write(at);
    }
    bench.end_turn(false);
    bench.write(800);
    bench.end_turn(false);
    assert_eq!(bench.sent.len(), 4);
    bench.end_one();
    assert_eq!(bench.sent.len(), 5);
}

#[test]
fn what_waits_survives_another_scheduler_and_is_counted_right() {
    let mut bench = Bench::new(settings(MQ, 2));
    for at in [800, 0, 400, 1200, 1600] {
        bench.write(at);
    }
    bench.end_turn(true);
    let after = [settings(SchedulerKind::None, 1), settings(MQ, 2), settings(MQ, 0)];
    for settings in after {
        bench.configure(settings);
        bench.end_one();
    }
    bench.drain();
    let mut owners: Vec<u32> = bench.sent.iter().flat_map(|sent| sent.2.clone()).collect();
    owners.sort_unstable();
    assert_eq!(owners, [0, 1, 2, 3, 4]);
    assert_eq!(bench.queue.in_flight, 0);
    // When the last limit is removed, the waiting requests are sent.
    let mut bench = Bench::new(settings(SchedulerKind::None, 1));
    bench.write(0);
    bench.write(800);
    bench.end_turn(true);
    bench.queue.configure(settings(SchedulerKind::None, 0), 1);
    assert!(bench.queue.passes());
    bench.run();
    assert_eq!(bench.sent.len(), 2);
}

#[test]
fn what_is_taken_out_is_whole_and_can_be_put_back() {
    let mut bench = Bench::new(settings(MQ, 1));
    for at in [0, 80, 160, 240] {
        bench.write(at);
    }
    bench.stage(MemberOp::Flush);
    bench.end_turn(true);
    // The flush went first, and the four writes wait.
    let taken = bench.queue.take_waiting();
    assert_eq!((taken.len(), bench.queue.is_empty()), (4, true));
    for request in taken.into_iter().filter(|request| request.owner != 2) {
        bench.queue.put_back(request);
    }
    bench.drain();
    assert_eq!(bench.places(), [u64::MAX, 0, 80, 240]);
}

/// Stages eight reads and eight writes, alternating and far apart, in a queue with `nr_requests`
/// tokens.
fn with_token(nr_requests: u32, async_depth: u32) -> Bench {
    let mut one = QueueSettings { nr_requests, ..settings(MQ, 1) };
    one.mq_deadline.async_depth = async_depth;
    let mut bench = Bench::new(one);
    for number in 0..16 {
        bench.ask(number % 2 == 1, number * 800);
        bench.end_turn(false);
    }
    bench
}

#[test]
fn nr_requests_bounds_the_scheduler_and_the_rest_follows_in_order_of_arrival() {
    // One of the 16 requests is in flight.
    for (nr_requests, scheduled) in [(4, 3), (9, 8), (16, 15), (64, 15), (0, 1)] {
        let mut bench = with_token(nr_requests, 0);
        assert_eq!(bench.in_scheduler(), scheduled, "{nr_requests}");
        assert!(!bench.queue.is_empty() && bench.queue.waiting().count() == 15);
        bench.drain();
        let mut owners: Vec<u32> = bench.sent.iter().flat_map(|sent| sent.2.clone()).collect();
        if nr_requests == 4 {
            // Each completion admits one more request, so none is overtaken more than three times.
            let late = owners.iter().enumerate().map(|(at, owner)| at.abs_diff(*owner as usize));
            assert!(late.max() <= Some(4), "{owners:?}");
        }
        owners.sort_unstable();
        assert!(owners.iter().copied().eq(0..16), "{nr_requests}");
        assert_eq!((bench.queue.tokens.queued, bench.queue.tokens.sent), ([0, 0], [0, 0]));
    }
}

#[test]
fn statement_d13_writes_hold_no_more_than_async_depth_and_reads_find_the_rest() {
    for async_depth in [1, 4, 7] {
        let mut bench = with_token(64, async_depth);
        let most = |bench: &Bench| {
            let Tokens { queued, sent, .. } = bench.queue.tokens;
            (queued[1] + sent[1], queued[0] + sent[0])
        };
        assert_eq!(most(&bench), (async_depth, 8), "every read has a token");
        while !bench.at_member.is_empty() {
            bench.end_one();
            assert!(most(&bench).0 <= async_depth);
        }
        assert_eq!(bench.sent.len(), 16);
    }
    // Control: without the limit, all writes hold a token.
    assert_eq!(with_token(64, 0).queue.tokens.queued[1], 8);
}

#[test]
fn statement_k10_writes_hold_no_more_than_three_quarters_of_the_tokens() {
    for (nr_requests, writes) in [(4, 3), (8, 6), (64, 48), (0, 1)] {
        let kyber = QueueSettings { nr_requests, ..settings(SchedulerKind::Kyber, 1) };
        let mut bench = Bench::new(kyber);
        (0..60).for_each(|number| assert!(!bench.ask(number % 4 != 3, number * 800)));
        bench.stage(MemberOp::Discard { at: Sectors(0), len: Sectors(8), fua: false });
        bench.end_turn(true);
        let Tokens { queued, sent, .. } = bench.queue.tokens;
        let reads = 15.min(if nr_requests == 0 { 2 } else { nr_requests } - writes);
        assert_eq!((queued[1] + sent[1], queued[0] + sent[0]), (writes.min(46), reads));
        bench.drain();
        assert_eq!(bench.sent.len(), 61);
    }
}

/// With kyber, discards are a domain of their own: a discard is dispatched after eight writes, not
/// after all of them.
#[test]
fn kyber_is_told_what_discards() {
    let mut bench = Bench::new(settings(SchedulerKind::Kyber, 8));
    (0..12).for_each(|number| assert!(!bench.write(800 + number * 800)));
    bench.stage(MemberOp::Discard { at: Sectors(0), len: Sectors(8), fua: false });
    bench.end_turn(true);
    bench.drain();
    assert_eq!(bench.places().iter().position(|first| *first == 0), Some(8));
}

#[test]
fn kyber_takes_in_what_has_no_token_and_is_woken_for_a_look() {
    let few = QueueSettings { nr_requests: 4, ..settings(SchedulerKind::Kyber, 1) };
    let mut bench = Bench::new(few);
    for at in [9000, 800, 1600, 2400, 3200, 1608] {
        bench.ask(false, at);
        bench.end_turn(true);
    }
    bench.drain();
    assert!(bench.sent.contains(&(1600, 16, vec![2, 5])), "{:?}", bench.sent);
    let many = QueueSettings { nr_requests: 2048, ..settings(SchedulerKind::Kyber, 1024) };
    let mut bench = Bench::new(many);
    (0..300).for_each(|number| assert!(!bench.ask(false, number * 800)));
    bench.end_turn(true);
    assert_eq!((bench.at_member.len(), bench.queue.next_wake(bench.now)), (256, None));
    bench.end_one();
    assert_eq!(bench.queue.next_wake(bench.now), Some(bench.now + Span::millis(100)));
}

/// Tokens that become free are given to waiting requests when the queue sends a command, even if no
/// other request arrives.
#[test]
fn a_request_that_gets_its_token_late_does_not_plug_its_queue() {
    let mut bench = Bench::new(QueueSettings { nr_requests: 2, ..plugs() });
    for at in [0, 100, 200, 300] {
        assert!(!bench.write(at), "they are far from each other");
    }
    bench.end_turn(true);
    assert_eq!(bench.sent.len(), 2, "so many tokens");
    for _ in 0..2 {
        let (write, scheduled) = bench.at_member.remove(0);
        bench.queue.ended(scheduled, write, bench.now);
    }
    bench.run();
    assert_eq!(bench.sent.len(), 4, "each with a token is sent");
    assert_eq!(bench.queue.next_wake(bench.now), None);
}

#[test]
fn a_request_without_a_token_still_becomes_a_part_of_a_queued_one() {
    let mut bench = with_token(4, 0);
    let before = bench.queue.waiting().count();
    bench.ask(false, 1608);
    bench.end_turn(true);
    assert_eq!((bench.in_scheduler(), bench.queue.waiting().count()), (3, before + 1));
    bench.drain();
    assert_eq!(bench.sent.iter().find(|sent| sent.0 == 1600), Some(&(1600, 16, vec![2, 16])));
}

#[test]
fn without_a_scheduler_nr_requests_is_a_depth() {
    let mut bench =
        Bench::new(QueueSettings { nr_requests: 4, ..settings(SchedulerKind::None, 0) });
    (0..9).for_each(|number| assert!(!bench.write(number * 80)));
    bench.end_turn(true);
    assert_eq!(bench.at_member.len(), 4);
    bench.drain();
    assert_eq!(bench.sent.len(), 9);
}

/// Merging within a turn is limited by the array's limit or the member's, whichever is smaller, and
/// disabled by `nomerges=2`.
#[test]
fn a_queue_limits_what_a_turn_merges() {
    let largest = |max, nomerges| {
        let mut queue = MemberQueue::<u32>::new(DeviceTraits::default());
        queue.configure(QueueSettings { max: Sectors(max), nomerges, ..settings(MQ, 1) }, 0);
        let kind = MergeKind { fua: false, stripes: true, attr: Attr::NONE };
        let (sector, bytes, max) = (Sectors(0), Bytes(4096), Bytes::kib(512));
        let request = MemberRequest { write: true, sector, bytes, max, kind };
        Bytes(queue.last[1].room(1, sector, &request))
    };
    assert_eq!(largest(4096, NoMerges::Allowed), Bytes::kib(512));
    assert_eq!(largest(64, NoMerges::LastOnly), Bytes::kib(32));
    assert_eq!(largest(64, NoMerges::Never), Bytes::ZERO);
}

/// With `nomerges`, adjacent requests of different turns are not merged by any scheduler.
#[test]
fn nomerges_holds_for_every_scheduler() {
    for scheduler in SchedulerKind::ALL.into_iter().filter(|kind| *kind != SchedulerKind::None) {
        let commands = |nomerges| {
            let nr_requests = 8;
            let one = QueueSettings { nomerges, nr_requests, ..settings(scheduler, 1) };
            let mut bench = Bench::new(one);
            for at in [900, 0, 8, 16] {
                bench.write(at);
                bench.end_turn(true);
            }
            bench.drain();
            bench.sent.len()
        };
        assert_eq!((commands(NoMerges::Allowed), commands(NoMerges::Never)), (2, 4));
    }
}

/// Runs a sender that waits for its writes, flushes, waits for the flush, and continues, while the
/// scheduler is changed. Returns an error, or the changes that were made while requests were
/// waiting.
fn switch_under_flushes(seed: u64, planted: Planted) -> Result<Vec<Switch>, String> {
    let mut random = Rng::new(seed);
    let kinds = SchedulerKind::ALL;
    let mut bench = Bench::new(settings(MQ, 2));
    let mut changes = Vec::new();
    for epoch in 0..12u64 {
        let first = bench.asked;
        for _ in 0..4 + random.below(12) {
            let at = epoch * 10_000 + random.below(512) * 8;
            bench.ask(random.percent(60), at);
            bench.end_turn(random.percent(50));
            if random.percent(30) {
                let nr_requests = random.pick(&[0, 4, 64]);
                let depth = 1 + random.below(4) as u32;
                let settings = settings(random.pick(&kinds), depth);
                if !bench.queue.is_empty() {
                    changes.push((bench.queue.settings().scheduler, settings.scheduler));
                }
                match planted {
                    Planted::SwitchLosesOne if !bench.queue.is_empty() => {
                        bench.queue.take_waiting().pop();
                    }
                    Planted::SwitchSendsTwice => {
                        let twice = bench.queue.waiting().next().cloned();
                        twice.into_iter().for_each(|request| bench.queue.put_back(request));
                    }
                    _ => {}
                }
                bench.configure(QueueSettings { nr_requests, ..settings });
                bench.run();
            }
            if random.percent(30) && !bench.at_member.is_empty() {
                bench.end_one();
            }
        }
        if planted != Planted::FlushNotWaitedFor {
            bench.drain();
        }
        bench.stage(MemberOp::Flush);
        bench.end_turn(true);
        if planted != Planted::FlushNotWaitedFor {
            bench.drain();
        }
        let sent = bench.sent.iter().flat_map(|sent| sent.2.clone());
        let mut since: Vec<u32> = sent.filter(|owner| *owner >= first).collect();
        if bench.sent.last().is_none_or(|last| last.0 != u64::MAX) {
            return Err(format!("epoch {epoch}: something is sent after its flush"));
        }
        since.sort_unstable();
        if !since.iter().copied().eq(first..bench.asked) {
            return Err(format!("epoch {epoch}: {} of {}", since.len(), bench.asked - first));
        }
    }
    Ok(changes)
}

#[test]
fn statement_x4_another_scheduler_under_load_loses_doubles_and_reorders_nothing() {
    let all: Vec<Switch> = (0..60)
        .flat_map(|seed| {
            switch_under_flushes(seed, Planted::Nothing).unwrap_or_else(|e| panic!("{e}"))
        })
        .collect();
    for from in SchedulerKind::ALL {
        for to in SchedulerKind::ALL {
            let count = all.iter().filter(|change| **change == (from, to)).count();
            assert!(count > 40, "{count} changes from {from:?} to {to:?} with requests waiting");
        }
    }
    let wrong = [Planted::SwitchLosesOne, Planted::SwitchSendsTwice, Planted::FlushNotWaitedFor];
    for planted in wrong {
        let found = (0..60).filter(|seed| switch_under_flushes(*seed, planted).is_err()).count();
        assert!(found >= 50, "{planted:?} was found {found} times in 60");
    }
}

/// Scheduler before and after a change.
type Switch = (SchedulerKind, SchedulerKind);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Planted {
    Nothing,
    /// The queue is not informed that a command has completed.
    EndNotTold,
    /// A flush is sent along with other commands to a device on which it cannot be queued.
    FlushNotAlone,
    /// A request that was removed is not put back.
    NotPutBack,
    /// The sender flushes while its writes are waiting or in flight.
    FlushNotWaitedFor,
    /// The new scheduler does not get all waiting requests.
    SwitchLosesOne,
    /// The new scheduler gets a waiting request twice.
    SwitchSendsTwice,
}

/// Issues and completes random requests while the settings change. Returns an error, or the numbers
/// of requests and of commands sent.
fn at_random(seed: u64, planted: Planted) -> Result<(usize, usize), String> {
    let mut random = seed;
    let mut below = move |bound: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888);
        (random >> 33) % bound
    };
    let alone = seed.is_multiple_of(2);
    let device = DeviceTraits {
        depth: None,
        flush_queueable: !alone || planted == Planted::FlushNotAlone,
        ..SATA
    };
    let (mut bench, mut depth) = (Bench::on(device, settings(MQ, 3)), 3);
    for step in 0..400 {
        bench.now = Time(step * 1_000_000);
        for _ in 0..below(6) {
            bench.ask(below(2) == 0, below(64) * 8);
        }
        if below(8) == 0 {
            bench.stage(MemberOp::Flush);
        }
        bench.end_turn(below(2) == 0);
        if bench.at_member.len() as u32 > depth {
            return Err(format!("{} at the member, depth {depth}", bench.at_member.len()));
        }
        let is_flush = |(write, of): &(bool, Option<Receipt>)| *write && of.is_none();
        if alone && bench.at_member.iter().any(is_flush) && bench.at_member.len() > 1 {
            return Err("a flush is at the member with others".into());
        }
        for _ in 0..below(6) {
            if bench.at_member.is_empty() {
                break;
            }
            if planted == Planted::EndNotTold && step >= 396 {
                bench.at_member.remove(0);
            } else {
                bench.end_one();
            }
        }
        if below(20) == 0 {
            let mut taken = bench.queue.take_waiting();
            if planted == Planted::NotPutBack {
                taken.pop();
            }
            taken.into_iter().for_each(|request| bench.queue.put_back(request));
        }
        // A smaller depth applies from the next command on.
        if below(40) == 0 && bench.at_member.is_empty() {
            depth = 1 + below(4) as u32;
            let nr_requests = [0, 0, 4, 9][below(4) as usize];
            let plugs = below(2) == 0;
            let scheduler = [SchedulerKind::None, MQ, SchedulerKind::Kyber][below(3) as usize];
            let settings = settings(scheduler, depth);
            bench.queue.configure(QueueSettings { plugs, nr_requests, ..settings }, 0);
        }
    }
    bench.end_turn(true);
    bench.drain();
    let mut owners: Vec<u32> = bench.sent.iter().flat_map(|sent| sent.2.clone()).collect();
    owners.sort_unstable();
    if !owners.iter().copied().eq(0..bench.asked) {
        return Err(format!("{} of {} requests were sent", owners.len(), bench.asked));
    }
    match (bench.queue.is_empty(), bench.queue.in_flight) {
        (true, 0) => Ok((owners.len(), bench.sent.len())),
        found => Err(format!("empty and in flight at the end: {found:?}")),
    }
}

#[test]
fn nothing_is_lost_sent_twice_or_beyond_the_depth_and_planted_faults_are_found() {
    let (mut requests, mut commands) = (0, 0);
    for seed in 1..=50 {
        let sent = at_random(seed, Planted::Nothing).unwrap_or_else(|wrong| panic!("{wrong}"));
        (requests, commands) = (requests + sent.0, commands + sent.1);
    }
    assert!(requests > 20_000 && commands * 100 < requests * 95, "{requests} in {commands}");
    for planted in [Planted::EndNotTold, Planted::FlushNotAlone, Planted::NotPutBack] {
        let found = (1..=50).filter(|seed| at_random(*seed, planted).is_err()).count();
        assert!(found >= 10, "{planted:?} was found {found} times in 50");
    }
}
