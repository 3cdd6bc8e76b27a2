//! Tests of mq-deadline: order, deadlines, classes, merging, counters.

use weft_units::rng::Rng;

use super::*;
use crate::contract::input::{Attr, Class};

const MAX: Sectors = Sectors(1024);

fn request(id: u64, direction: Direction, first: u64, len: u64) -> QueuedRequest {
    let (first, len) = (Sectors(first), Sectors(len));
    QueuedRequest { id, direction, attr: Attr::NONE, first, len, discard: false, merges: true }
}

fn at(millis: u64) -> Time {
    Time(0) + Span::millis(millis)
}

fn queue(settings: MqDeadlineKnobs) -> MqDeadline {
    MqDeadline::new(settings, MAX, NoMerges::Allowed)
}

/// Dispatches all requests. Returns their directions and first sectors.
fn drain(queue: &mut MqDeadline, now: Time) -> Vec<(Direction, u64)> {
    std::iter::from_fn(|| queue.dispatch(now)).map(|next| (next.direction, next.first.0)).collect()
}

/// Sets the sector from which best-effort reads continue.
fn sweep_from(queue: &mut MqDeadline, sector: u64) {
    let reads = &mut queue.per_prio[1].of[0];
    reads.latest_pos = Sectors(sector);
    reads.next = reads.sorted.at(reads.sorted.at_or_beyond(sector)).map_or(NONE, |found| found.1);
}

/// Runs of requests of one direction in `order`, each with its length.
fn runs(order: &[(Direction, u64)]) -> Vec<(Direction, usize)> {
    order.chunk_by(|a, b| a.0 == b.0).map(|run| (run[0].0, run.len())).collect()
}

fn backlogged(settings: MqDeadlineKnobs, count: u64, gap: u64) -> MqDeadline {
    let mut queue = self::queue(settings);
    for i in 0..count {
        queue.insert(&request(i, Direction::Read, 1000 + gap * i, 4), at(0));
        queue.insert(&request(100 + i, Direction::Write, 5000 + gap * i, 4), at(0));
    }
    queue
}

use Direction::{Read as R, Write as W};

#[test]
fn statement_d1_and_d2_batches_alternate_as_in_linux() {
    let order = drain(&mut backlogged(MqDeadlineKnobs::default(), 40, 8), at(1));
    assert_eq!(runs(&order), [(W, 16), (R, 32), (W, 16), (R, 8), (W, 8)]);
    let settings = MqDeadlineKnobs { fifo_batch: 4, ..MqDeadlineKnobs::default() };
    let order = drain(&mut backlogged(settings, 20, 8), at(1));
    let expected = [(W, 4), (R, 8), (W, 4), (R, 8), (W, 4), (R, 4), (W, 8)];
    assert_eq!(runs(&order), expected);
}

#[test]
fn statement_d4_writes_first_when_they_may_not_starve() {
    let settings = MqDeadlineKnobs { writes_starved: 0, ..MqDeadlineKnobs::default() };
    let order = drain(&mut backlogged(settings, 20, 8), at(1));
    assert_eq!(runs(&order), [(W, 20), (R, 20)]);
}

#[test]
fn statement_d5_batches_of_one() {
    let settings = MqDeadlineKnobs { fifo_batch: 1, ..MqDeadlineKnobs::default() };
    let mut queue = self::queue(settings);
    for i in 0..4 {
        queue.insert(&request(i, R, 100 + 8 * i, 4), at(0));
        queue.insert(&request(10 + i, W, 500 + 8 * i, 4), at(0));
    }
    let expected = [(W, 500), (R, 100), (R, 108), (W, 508), (R, 116), (R, 124), (W, 516), (W, 524)];
    assert_eq!(drain(&mut queue, at(1)), expected);
}

#[test]
fn statement_d6_and_d7_late_ones_go_first_and_the_sweep_is_one_way() {
    let settings = MqDeadlineKnobs { fifo_batch: 4, ..MqDeadlineKnobs::default() };
    let mut queue = self::queue(settings);
    queue.insert(&request(0, R, 900, 4), at(0));
    for i in 0..12 {
        queue.insert(&request(1 + i, R, 100 + 8 * i, 4), at(100));
    }
    // A new instance starts with direction write, so the first batch is chosen anew.
    let order: Vec<u64> = (0..13)
        .map(|n| queue.dispatch(at(496 + n)).expect("thirteen are queued").first.0)
        .collect();
    assert_eq!(order[..6], [100, 108, 116, 124, 900, 132]);
    let mut queue = self::queue(MqDeadlineKnobs::default());
    for (id, first) in [(0, 6000), (1, 300), (2, 100), (3, 200), (4, 7000)] {
        queue.insert(&request(id, R, first, 4), at(id));
    }
    sweep_from(&mut queue, 5000);
    let order: Vec<u64> = drain(&mut queue, at(5)).iter().map(|next| next.1).collect();
    assert_eq!(order, [6000, 7000, 300, 100, 200]);
}

#[test]
fn statement_d9_classes_are_strict_until_a_request_waited_too_long() {
    let mut queue = self::queue(MqDeadlineKnobs::default());
    let attr = Attr { class: Class::RealTime(0), ..Attr::NONE };
    let real_time = QueuedRequest { attr, ..request(1, R, 0, 4) };
    queue.insert(&real_time, at(0));
    queue.insert(&request(2, R, 100, 4), at(0));
    assert_eq!(queue.dispatch(at(1)).map(|next| next.id), Some(1));
    assert_eq!(queue.dispatch(at(1)), None, "the real-time one is at the member");
    assert_eq!(queue.dispatch(at(10_001)).map(|next| next.id), Some(2), "10 s are over");
    queue.insert(&request(3, R, 100, 4), at(10_001));
    assert_eq!(queue.dispatch(at(10_002)), None);
    queue.completed(Receipt(IoPriority::RealTime as u32));
    assert_eq!(queue.dispatch(at(10_002)).map(|next| next.id), Some(3));
}

#[test]
fn neighbours_become_one_request_up_to_the_limit() {
    let mut queue = MqDeadline::new(MqDeadlineKnobs::default(), Sectors(24), NoMerges::Allowed);
    assert!(!queue.insert(&request(1, W, 100, 8), at(0)));
    assert!(!queue.insert(&request(2, W, 116, 8), at(1)));
    assert!(queue.insert(&request(3, W, 108, 8), at(2)), "fills the gap between both");
    assert!(!queue.insert(&request(4, W, 124, 8), at(3)), "would be too large");
    assert!(!queue.is_empty());
    let next = queue.dispatch(at(4)).unwrap();
    assert_eq!((next.first, next.len, queue.sent()), (Sectors(100), Sectors(24), &[1, 3, 2][..]));
    assert_eq!((queue.dispatch(at(4)).unwrap().id, queue.sent()), (4, &[4][..]));
    assert!(queue.is_empty());
}

#[test]
fn a_gap_is_closed_only_between_requests_that_merge_and_up_to_the_limit() {
    let lengths = |len: u64, merges: bool| {
        let mut queue = queue(MqDeadlineKnobs::default());
        queue.insert(&request(1, W, 0, len), at(0));
        let beyond = request(2, W, len + 8, len);
        queue.insert(&QueuedRequest { merges, ..beyond }, at(0));
        queue.insert(&request(3, W, len, 8), at(0));
        std::iter::from_fn(|| queue.dispatch(at(1))).map(|sent| sent.len.0).collect::<Vec<_>>()
    };
    assert_eq!(lengths(508, true), [1024]);
    assert_eq!(lengths(509, true), [509, 517], "would be too large");
    assert_eq!(lengths(8, false).len(), 2, "the upper one is not merged");
}

#[test]
fn statement_d10_and_d11_front_merges_move_a_request_and_keep_the_better_place() {
    let mut queue = self::queue(MqDeadlineKnobs::default());
    queue.insert(&request(1, R, 1008, 8), at(0));
    assert!(queue.insert(&request(2, R, 1000, 8), at(5)));
    let next = queue.dispatch(at(6)).unwrap();
    assert_eq!((next.first, next.len), (Sectors(1000), Sectors(16)));
    let settings = MqDeadlineKnobs { front_merges: false, ..MqDeadlineKnobs::default() };
    let mut queue = self::queue(settings);
    queue.insert(&request(1, R, 1008, 8), at(0));
    assert!(queue.insert(&request(2, R, 1000, 8), at(0)), "the last one is asked all the same");
    queue.insert(&request(3, R, 5000, 8), at(0));
    assert!(!queue.insert(&request(4, R, 992, 8), at(0)), "another one was in between");
    // A merged request keeps the earlier deadline of the two.
    let settings = MqDeadlineKnobs { fifo_batch: 1, ..MqDeadlineKnobs::default() };
    let mut queue = self::queue(settings);
    queue.insert(&request(1, R, 0, 8), at(100));
    queue.insert(&request(2, R, 2016, 8), at(0));
    queue.insert(&request(3, R, 2000, 8), at(200));
    assert!(queue.insert(&request(4, R, 2008, 8), at(300)));
    sweep_from(&mut queue, 0);
    let next = queue.dispatch(at(501)).unwrap();
    assert_eq!((next.first, next.len), (Sectors(2000), Sectors(24)), "late since 500 ms");
    // With equal deadlines the merged request keeps the FIFO position of the request in front.
    let mut queue = self::queue(settings);
    for (id, first) in [(1, 2000), (2, 0), (3, 2016)] {
        queue.insert(&request(id, R, first, 8), at(0));
    }
    assert!(queue.insert(&request(4, R, 2008, 8), at(0)));
    sweep_from(&mut queue, 0);
    assert_eq!(drain(&mut queue, at(501)), [(R, 2000), (R, 0)]);
}

#[test]
fn nothing_is_lost_and_nothing_comes_twice() {
    let mut queue = MqDeadline::new(MqDeadlineKnobs::default(), Sectors(64), NoMerges::Allowed);
    let (mut random, mut seen, mut most) = (1u64, Vec::<u64>::new(), 0);
    for id in 0..5000u64 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let direction = if random >> 63 == 0 { R } else { W };
        let mut next = request(id, direction, (random >> 40) % 4096 * 4, 4);
        next.merges = id % 7 != 0;
        queue.insert(&next, at(id));
        most = most.max(queue.waiting);
        if id % 3 == 0
            && let Some(next) = queue.dispatch(at(id))
        {
            queue.completed(next.receipt);
            assert_eq!(next.len.0, 4 * queue.sent().len() as u64);
            seen.extend(queue.sent());
        }
    }
    while let Some(next) = queue.dispatch(at(9999)) {
        queue.completed(next.receipt);
        seen.extend(queue.sent());
    }
    seen.sort_unstable();
    assert!(seen.iter().copied().eq(0..5000));
    assert_eq!(queue.requests.len(), most, "records are used again");
    assert_eq!(queue.per_prio[1].queued, 0);
    assert!(queue.per_prio[1].of.iter().all(|of| of.sorted.len() == 0 && of.oldest == NONE));
}

/// Two batches of reads alternate with one batch of writes.
#[test]
fn statement_d3_reads_get_two_thirds_of_what_both_keep_full() {
    for fifo_batch in [1, 4, 16] {
        let settings = MqDeadlineKnobs { fifo_batch, ..MqDeadlineKnobs::default() };
        let (mut queue, mut random) = (self::queue(settings), Rng::new(u64::from(fifo_batch)));
        let mut put = |queue: &mut MqDeadline, id: u64, direction| {
            let mut next = request(id, direction, random.below(1 << 30) * 8, 8);
            next.merges = false;
            queue.insert(&next, at(0));
        };
        for id in 0..64 {
            put(&mut queue, id, if id % 2 == 0 { R } else { W });
        }
        let mut reads = 0;
        for id in 64..64 + 9600 {
            let next = queue.dispatch(at(1)).expect("it is kept full");
            queue.completed(next.receipt);
            reads += u64::from(next.direction == R);
            put(&mut queue, id, next.direction);
        }
        assert!(reads.abs_diff(6400) <= 96, "{reads} of 9600 with batches of {fifo_batch}");
    }
}

/// Dispatches requests in a busy queue until the oldest request of direction `late`, which is past
/// its deadline, is dispatched. Returns the number of dispatches, `fifo_batch` and
/// `writes_starved`.
fn wait_of_a_late_one(seed: u64, late: Direction) -> (u32, u32, u32) {
    let mut random = Rng::new(seed);
    let (batch, starved) = (1 + random.below(20) as u32, 1 + random.below(5) as u32);
    let settings = MqDeadlineKnobs {
        fifo_batch: batch,
        writes_starved: starved,
        read_expire: Span::millis(100),
        write_expire: Span::millis(100),
        ..MqDeadlineKnobs::default()
    };
    let mut queue = self::queue(settings);
    let mut id = 1;
    let mut put = |queue: &mut MqDeadline, random: &mut Rng, direction, now| {
        let mut next = request(id, direction, random.below(1 << 20) * 8, 8);
        (next.merges, id) = (false, id + 1);
        queue.insert(&next, now);
        next.id
    };
    let both = |random: &mut Rng| if random.percent(50) { R } else { W };
    for _ in 0..random.below(64) {
        let direction = both(&mut random);
        put(&mut queue, &mut random, direction, at(0));
    }
    for _ in 0..random.below(64) {
        queue.dispatch(at(1));
        let direction = both(&mut random);
        put(&mut queue, &mut random, direction, at(1));
    }
    // The watched request must be the oldest of its direction: earlier ones are dispatched first.
    while queue.per_prio[1].of[late as usize].oldest != NONE {
        queue.dispatch(at(2));
    }
    let watched = put(&mut queue, &mut random, late, at(3));
    for _ in 0..random.below(2 * u64::from(batch)) {
        let direction = both(&mut random);
        put(&mut queue, &mut random, direction, at(4));
    }
    for further in 0.. {
        // The other direction is always backlogged, and more requests of its own direction arrive.
        for direction in [R, W] {
            put(&mut queue, &mut random, direction, at(200));
        }
        if queue.dispatch(at(200)).expect("it is kept full").id == watched {
            return (further, batch, starved);
        }
    }
    unreachable!("a queue that is kept full goes on")
}

/// Bounds the wait of an expired request at the head of its FIFO, in dispatches (I14).
#[test]
fn statement_d8_a_late_head_waits_for_no_more_than_its_bound() {
    let mut reached = [0, 0];
    for seed in 0..3000 {
        for (late, reached) in [R, W].into_iter().zip(&mut reached) {
            let (waited, batch, starved) = wait_of_a_late_one(seed, late);
            let bound = match late {
                R => (batch - 1) + batch,
                W => (batch - 1) + starved * batch,
            };
            assert!(waited <= bound, "seed {seed}: {waited} of {bound}, {batch} {starved}");
            *reached += u32::from(waited == bound);
        }
    }
    assert!(reached[0] > 10 && reached[1] > 10, "bounds are reached: {reached:?}");
}

/// Waiting requests are removed and queued again, as in a requeue. In the end, each class has
/// completed as many requests as were inserted.
#[test]
fn statement_d14_a_requeue_does_not_count_twice() {
    let mut queue = queue(MqDeadlineKnobs::default());
    let classes = [Class::RealTime(0), Class::None, Class::Idle];
    let requests: Vec<QueuedRequest> = (0..60)
        .map(|id| {
            let attr = Attr { class: classes[id as usize % 3], ..Attr::NONE };
            QueuedRequest { attr, ..request(id, if id % 2 == 0 { R } else { W }, id * 64, 8) }
        })
        .collect();
    let (mut sent, mut at_member) = (Vec::new(), Vec::new());
    requests.iter().for_each(|next| assert!(!queue.insert(next, at(0))));
    for round in 0..200 {
        if let Some(next) = queue.dispatch(at(round)) {
            sent.extend(queue.sent());
            at_member.push(next.receipt);
        }
        if round % 7 == 0 {
            queue.clear_waiting();
            let waits = requests.iter().filter(|next| !sent.contains(&next.id));
            waits.for_each(|next| assert!(!queue.insert(next, at(0))));
        }
        if round % 3 == 0 {
            at_member.drain(..).for_each(|receipt| queue.completed(receipt));
        }
    }
    at_member.drain(..).for_each(|receipt| queue.completed(receipt));
    sent.sort_unstable();
    assert!(sent.iter().copied().eq(0..60));
    assert!(queue.is_empty());
    assert_eq!(queue.per_prio.each_ref().map(|level| level.queued), [0, 0, 0]);
}

#[test]
fn nomerges_1_asks_the_last_request_alone_and_2_asks_none() {
    let merged = |nomerges| {
        let mut queue = MqDeadline::new(MqDeadlineKnobs::default(), MAX, nomerges);
        assert!(!queue.insert(&request(1, R, 100, 8), at(0)));
        let last = queue.insert(&request(2, R, 108, 8), at(0));
        queue.insert(&request(3, R, 900, 8), at(0));
        (last, queue.insert(&request(4, R, 116, 8), at(0)))
    };
    assert_eq!(merged(NoMerges::Allowed), (true, true));
    assert_eq!(merged(NoMerges::LastOnly), (true, false));
    assert_eq!(merged(NoMerges::Never), (false, false));
}

/// [`MqDeadline::merge`] never queues a request that it cannot merge.
#[test]
fn a_request_that_cannot_be_merged_is_not_queued_by_merge() {
    let mut queue = queue(MqDeadlineKnobs::default());
    assert!(!queue.merge(&request(1, R, 100, 8)) && queue.is_empty());
    queue.insert(&request(1, R, 100, 8), at(0));
    queue.insert(&request(2, R, 900, 8), at(0));
    assert!(queue.merge(&request(3, R, 108, 8)) && queue.merge(&request(4, R, 92, 8)));
    assert!(!queue.merge(&request(5, W, 116, 8)) && queue.waiting() == 2);
    assert_eq!((queue.dispatch(at(1)).unwrap().id, queue.sent()), (4, &[4, 1, 3][..]));
}
