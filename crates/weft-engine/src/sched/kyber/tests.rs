//! Tests of kyber: turns of domains, tokens, histograms, evaluation of latencies, merging.

use super::*;
use crate::contract::input::Attr;

const MAX: Sectors = Sectors(1024);
const MS: u64 = 1_000_000;

/// Domain of a request in these tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    R,
    W,
    D,
}

use Kind::{D, R, W};

fn request(id: u64, kind: Kind, first: u64) -> QueuedRequest {
    QueuedRequest {
        id,
        direction: if kind == R { Direction::Read } else { Direction::Write },
        attr: Attr::NONE,
        first: Sectors(first),
        len: Sectors(8),
        discard: kind == D,
        merges: kind != D,
    }
}

fn kyber() -> Kyber {
    Kyber::new(KyberKnobs::default(), MAX, NoMerges::Allowed)
}

/// A scheduler that merges nothing, with the given number of requests in each domain.
fn loaded(counts: [u64; DOMAINS]) -> Kyber {
    let mut kyber = Kyber::new(KyberKnobs::default(), MAX, NoMerges::Never);
    for (kind, count) in [R, W, D].into_iter().zip(counts) {
        (0..count).for_each(|id| kyber.insert(&request(id, kind, id * 8), Time(0)));
    }
    kyber
}

/// Dispatches requests until none can be dispatched. Returns the runs of requests of one domain,
/// and the receipts.
fn drain(kyber: &mut Kyber, now: Time) -> (Vec<(usize, usize)>, Vec<Receipt>) {
    let (mut domains, mut receipts) = (Vec::new(), Vec::new());
    while let Some(next) = kyber.dispatch(now) {
        domains.push(kyber.current);
        receipts.push(next.receipt);
    }
    let runs = domains.chunk_by(|a, b| a == b).map(|run| (run[0], run.len())).collect();
    (runs, receipts)
}

/// Number of tokens of each domain.
fn tokens(kyber: &Kyber) -> [u32; DOMAINS] {
    kyber.domains.each_ref().map(|domain| domain.tokens)
}

/// Counts `count` requests of a domain, each of which waited for the time `waited` and then was at
/// the member for `at_member`.
fn ended(kyber: &mut Kyber, domain: usize, count: u32, waited: u64, at_member: u64) {
    let domain = &mut kyber.domains[domain];
    for _ in 0..count {
        domain.of_member.count(Span(at_member), domain.target);
        domain.total.count(Span(waited + at_member), domain.target);
    }
}

fn at(millis: u64) -> Time {
    Time(millis * MS)
}

#[test]
fn statement_k1_a_domain_without_a_token_waits_and_the_others_go_on() {
    let mut kyber = loaded([300; DOMAINS]);
    let (_, receipts) = drain(&mut kyber, Time(0));
    assert_eq!(kyber.domains.each_ref().map(|domain| domain.out), [256, 128, 64]);
    assert_eq!((receipts.len(), kyber.waiting()), (448, 452));
    for (kind, direction) in [(READ, Direction::Read), (WRITE, Direction::Write)] {
        let is_of =
            |of: &&Receipt| kyber.at_member[of.0 as usize].is_some_and(|it| it.domain == kind);
        let ends = *receipts.iter().find(is_of).unwrap();
        kyber.completed(ends, at(1));
        assert!(kyber.dispatch(at(1)).is_some_and(|next| next.direction == direction));
        assert_eq!((kyber.current, kyber.dispatch(at(1))), (kind, None));
    }
}

#[test]
fn statement_k2_domains_take_turns_in_batches() {
    let (runs, _) = drain(&mut loaded([40, 20, 3]), Time(0));
    let expected = [(0, 16), (1, 8), (2, 1), (0, 16), (1, 8), (2, 1), (0, 8), (1, 4), (2, 1)];
    assert_eq!(runs, expected);
    // A domain alone gets one batch after another.
    assert_eq!(drain(&mut loaded([0, 40, 0]), Time(0)).0, [(1, 40)]);
}

#[test]
fn statement_k3_within_a_domain_the_oldest_goes_first() {
    let mut kyber = kyber();
    for (id, first) in [900, 100, 5000, 300].into_iter().enumerate() {
        let class = if id == 3 { Class::RealTime(0) } else { Class::Idle };
        let attr = Attr { class, ..Attr::NONE };
        kyber.insert(&QueuedRequest { attr, ..request(id as u64, R, first) }, at(id as u64));
    }
    let order: Vec<u64> = std::iter::from_fn(|| kyber.dispatch(at(9000))).map(|it| it.id).collect();
    assert_eq!(order, [0, 1, 2, 3]);
}

#[test]
fn statement_k4_buckets_are_quarters_of_the_target() {
    let bucket = |latency: u64, target: u64| {
        let mut histogram = Histogram::default();
        histogram.count(Span(latency), Span(target));
        histogram.0.iter().position(|count| *count == 1)
    };
    let hour = 3_600_000 * MS;
    let buckets = [
        (0, 0),
        (500_000, 0),
        (500_001, 1),
        (2 * MS, 3),
        (2 * MS + 1, 4),
        (3_500_000, 6),
        (3_500_001, 7),
        (hour, 7),
    ];
    for (latency, expected) in buckets {
        assert_eq!(bucket(latency, 2 * MS), Some(expected), "{latency}");
    }
    assert_eq!([0, 1, 2, 8, 9].map(|latency| bucket(latency, 0).unwrap()), [0, 0, 1, 7, 7]);
    assert_eq!(bucket(u64::MAX, u64::MAX), Some(4));
    assert!(!is_bad(Some(3)) && is_bad(Some(4)) && !is_bad(None));
}

/// Discards have their own target, which no knob changes.
#[test]
fn each_domain_goes_by_its_own_target() {
    let (read_lat, write_lat) = (Span::millis(1), Span::millis(7));
    let knobs = KyberKnobs { read_lat, write_lat };
    let kyber = Kyber::new(knobs, MAX, NoMerges::Allowed);
    let targets = kyber.domains.map(|domain| domain.target);
    assert_eq!(targets, [read_lat, write_lat, Span::secs(5)]);
    assert_eq!(
        KyberKnobs::default(),
        KyberKnobs { read_lat: Span(2 * MS), write_lat: Span(10 * MS) }
    );
}

#[test]
fn a_percentile_is_the_bucket_of_its_rank() {
    let of = |counts: [u32; BUCKETS], percent| {
        Histogram(counts).percentile(percent, &mut Some(Time(0)), Time(0))
    };
    let mut counts = [0; BUCKETS];
    (counts[0], counts[2], counts[7]) = (90, 9, 1);
    assert_eq!([90, 91, 99, 100].map(|percent| of(counts, percent)), [0, 2, 2, 7].map(Some));
    assert_eq!(of([0, 1, 0, 0, 0, 0, 0, 0], 1), Some(1), "the rank of few is 1 at least");
    assert_eq!(of([0; BUCKETS], 90), None);
}

#[test]
fn statement_k5_few_samples_wait_a_second_for_more() {
    let (mut histogram, mut patience) = (Histogram::default(), None);
    histogram.0[3] = 500;
    assert_eq!(histogram.percentile(90, &mut patience, at(0)), Some(3));
    assert_eq!((histogram.0, patience), ([0; BUCKETS], None), "begins anew");
    histogram.0[5] = 499;
    for now in [100, 700, 1099] {
        assert_eq!(histogram.percentile(90, &mut patience, at(now)), None, "{now}");
    }
    assert_eq!(histogram.percentile(90, &mut patience, at(1100)), Some(5));
    assert_eq!(histogram.0, [0; BUCKETS]);
}

#[test]
fn statement_k6_congestion_takes_tokens_by_slack() {
    let mut kyber = kyber();
    for (look, expected) in [(1, 128), (2, 64), (3, 32)] {
        ended(&mut kyber, WRITE, 500, 0, 11 * MS);
        ended(&mut kyber, READ, 500, 0, MS);
        kyber.look_at_latencies(at(look * 100));
        // Writes are beyond their target, but already have the maximum number of tokens.
        assert_eq!(tokens(&kyber), [expected, 128, 64], "look {look}");
    }
    // However fast reads are, one token is left to them.
    for look in 4..9 {
        ended(&mut kyber, WRITE, 500, 0, 11 * MS);
        ended(&mut kyber, READ, 500, 0, 1);
        kyber.look_at_latencies(at(look * 100));
    }
    assert_eq!(tokens(&kyber), [1, 128, 64]);
}

#[test]
fn statement_k7_a_p99_counts_in_one_congested_look() {
    let mut kyber = kyber();
    ended(&mut kyber, READ, 500, 0, MS);
    kyber.look_at_latencies(at(100));
    assert_eq!((tokens(&kyber)[READ], kyber.domains[READ].remembered), (256, Some(1)));
    for look in [2, 3] {
        ended(&mut kyber, WRITE, 500, 0, 11 * MS);
        kyber.look_at_latencies(at(look * 100));
        assert_eq!((tokens(&kyber)[READ], kyber.domains[READ].remembered), (128, None));
    }
    // A percentile that was used in this evaluation is not remembered for the next one.
    ended(&mut kyber, WRITE, 500, 0, 11 * MS);
    ended(&mut kyber, READ, 500, 0, MS);
    kyber.look_at_latencies(at(400));
    assert_eq!((tokens(&kyber)[READ], kyber.domains[READ].remembered), (64, None));
}

#[test]
fn statement_k8_without_congestion_only_late_domains_change() {
    let mut kyber = kyber();
    (kyber.domains[READ].tokens, kyber.domains[WRITE].tokens) = (8, 8);
    for (look, expected) in [(1, 16), (2, 32), (3, 64), (4, 128), (5, 256), (6, 256)] {
        // The member is fast; reads wait here for tokens.
        ended(&mut kyber, READ, 500, 20 * MS, MS);
        ended(&mut kyber, WRITE, 500, 0, MS);
        kyber.look_at_latencies(at(look * 100));
        assert_eq!(tokens(&kyber), [expected, 8, 64], "look {look}");
    }
    // The number of tokens grows in proportion to the excess: the bucket of 2.5 ms ends at 5
    // quarters of the target.
    kyber.domains[READ].tokens = 100;
    ended(&mut kyber, READ, 500, MS, 1_400_000);
    kyber.look_at_latencies(at(700));
    assert_eq!(tokens(&kyber)[READ], 125);
}

#[test]
fn statement_k9_the_first_end_sets_the_time_of_the_look() {
    let mut kyber = loaded([500, 0, 0]);
    assert_eq!(kyber.next_wake(), None, "nothing has ended");
    let (_, receipts) = drain(&mut kyber, at(0));
    assert_eq!(kyber.next_wake(), None, "reads wait, and nothing has ended");
    kyber.completed(receipts[0], at(5));
    kyber.completed(receipts[1], at(50));
    assert_eq!(kyber.look, Some(at(105)));
    assert_eq!(kyber.next_wake(), None, "two tokens are left: no look is needed");
    assert!(kyber.dispatch(at(50)).is_some() && kyber.dispatch(at(50)).is_some());
    assert_eq!(kyber.next_wake(), Some(at(105)));
    assert_eq!(kyber.dispatch(at(104)), None);
    assert_eq!(kyber.look, Some(at(105)));
    assert_eq!(kyber.dispatch(at(105)), None);
    assert_eq!((kyber.look, kyber.next_wake()), (None, None), "until another one ends");
    // The evaluation covers only the requests that ended by then, and the patience begins with it.
    assert_eq!(kyber.domains[READ].patience, Some(at(1105)));
    // An evaluation that is made late counts as of the time at which it was due.
    kyber.completed(receipts[2], at(200));
    kyber.completed(receipts[3], at(900));
    assert_eq!(
        kyber.look,
        Some(at(1000)),
        "that of 300 is made, and the end after it sets another"
    );
}

/// A request that waits for a token gets one when the latencies are evaluated, without the end of
/// another request.
#[test]
fn a_look_gives_tokens_to_what_waits() {
    let mut kyber = loaded([600, 0, 0]);
    kyber.domains[READ].tokens = 1;
    let mut now = at(0);
    // The reads are sent one at a time, so that all of them wait for long.
    let mut looked = 0;
    while kyber.domains[READ].tokens == 1 {
        let next = kyber.dispatch(now).unwrap();
        assert_eq!(kyber.dispatch(now), None);
        now = now + Span(MS);
        kyber.completed(next.receipt, now);
        looked += 1;
        assert!(looked < 600);
    }
    assert!(looked >= 500 && kyber.domains[READ].tokens == 2, "{looked}");
    assert!(kyber.dispatch(now).is_some() && kyber.dispatch(now).is_some());
    assert_eq!(kyber.dispatch(now), None);
}

#[test]
fn statement_k11_a_request_joins_one_of_the_last_eight_of_its_domain() {
    let ids = |kyber: &mut Kyber| -> Vec<Vec<u64>> {
        let sent = |kyber: &mut Kyber| kyber.dispatch(at(0)).map(|_| kyber.sent().to_vec());
        std::iter::from_fn(|| sent(kyber)).collect()
    };
    let far = |id| request(id, R, 100_000 + id * 100);
    let mut kyber = kyber();
    kyber.insert(&request(0, R, 1000), at(0));
    (1..8).for_each(|id| kyber.insert(&far(id), at(0)));
    kyber.insert(&request(8, R, 1008), at(0));
    kyber.insert(&request(9, R, 992), at(0));
    // Request 0, into which others were merged, keeps its place, and with `far(10)` it is the ninth
    // from the end: a new request is no longer merged into it.
    kyber.insert(&far(10), at(0));
    kyber.insert(&request(11, R, 1016), at(0));
    let order = ids(&mut kyber);
    assert_eq!((order[0].clone(), order[9].clone()), (vec![9, 0, 8], vec![11]));
    // A request is not merged if it has another domain or another class, if it may not be merged,
    // or if the result would be too large.
    let idle = Attr { class: Class::Idle, ..Attr::NONE };
    let others = [
        request(1, W, 1008),
        request(1, D, 1008),
        QueuedRequest { attr: idle, ..request(1, R, 1008) },
        QueuedRequest { merges: false, ..request(1, R, 1008) },
        QueuedRequest { len: MAX, ..request(1, R, 1008) },
        request(1, R, 1016),
    ];
    for other in others {
        kyber.insert(&request(0, R, 1000), at(0));
        assert!(!kyber.merge(&other));
        kyber.insert(&other, at(0));
        assert_eq!(ids(&mut kyber).len(), 2, "{other:?}");
    }
    // Of several candidates, the newest one is merged into.
    for id in 0..2 {
        kyber.insert(&QueuedRequest { merges: id > 0, ..request(id, W, 0) }, at(0));
    }
    kyber.insert(&request(2, W, 16), at(0));
    assert!(kyber.merge(&request(3, W, 8)));
    assert_eq!(ids(&mut kyber), [vec![0], vec![1], vec![3, 2]]);
    for (nomerges, expected) in [(NoMerges::LastOnly, 2), (NoMerges::Never, 3)] {
        let mut kyber = Kyber::new(KyberKnobs::default(), MAX, nomerges);
        for (id, first) in [0, 1000, 1008].into_iter().enumerate() {
            kyber.insert(&request(id as u64, R, first), at(0));
        }
        assert!(!kyber.merge(&request(3, R, 8)));
        assert_eq!(kyber.waiting(), expected);
    }
}

#[test]
fn statement_k12_few_samples_give_a_p90_each_second_but_no_p99() {
    let mut kyber = kyber();
    kyber.domains[READ].tokens = 8;
    let (mut p90s, mut p99_at) = (0, None);
    for look in 1..100 {
        ended(&mut kyber, READ, 10, 20 * MS, MS);
        let before = kyber.domains[READ].of_member.0;
        kyber.look_at_latencies(at(look * 100));
        let emptied = before != [0; BUCKETS] && kyber.domains[READ].of_member.0 == [0; BUCKETS];
        p90s += u32::from(emptied);
        if kyber.domains[READ].tokens > 8 && p99_at.is_none() {
            p99_at = Some(look);
        }
    }
    assert!((8..=10).contains(&p90s), "{p90s} in 9.9 s");
    assert_eq!(p99_at, Some(50), "when 500 have come together");
}

#[test]
fn what_is_dropped_keeps_the_tokens_of_what_is_at_the_member() {
    let mut kyber = loaded([300, 0, 0]);
    let (_, receipts) = drain(&mut kyber, at(0));
    kyber.clear_waiting();
    assert!(kyber.is_empty() && kyber.domains[READ].out == 256);
    receipts.into_iter().for_each(|receipt| kyber.completed(receipt, at(1)));
    assert_eq!(kyber.domains[READ].out, 0);
    kyber.insert(&request(0, R, 0), at(1));
    assert!(kyber.dispatch(at(1)).is_some_and(|next| next.id == 0 && kyber.sent() == [0]));
}

#[test]
#[should_panic(expected = "a request is completed once")]
fn a_request_that_is_completed_twice_is_found() {
    let mut kyber = loaded([1, 0, 0]);
    let receipt = kyber.dispatch(at(0)).unwrap().receipt;
    kyber.completed(receipt, at(1));
    kyber.completed(receipt, at(1));
}

/// Serves a reader with one request and writers with `writers` requests, until the time `until`, on
/// a member that takes 200 us for a request and holds up to 128. Returns the longest latency of the
/// last 200 reads.
fn beside_writers(kyber: &mut Kyber, writers: usize, now: &mut Time, until: Time) -> Span {
    let mut at_member: VecDeque<(Kind, Receipt)> = VecDeque::new();
    let (mut id, mut reads, mut asked) = (0, VecDeque::new(), Time(0));
    let (mut reading, mut writing) = (false, 0);
    while *now < until {
        for kind in [R, W] {
            while if kind == R { !reading } else { writing < writers } {
                kyber.insert(&request(id, kind, id * 64), *now);
                id += 1;
                if kind == R {
                    (reading, asked) = (true, *now);
                } else {
                    writing += 1;
                }
            }
        }
        while at_member.len() < 128
            && let Some(next) = kyber.dispatch(*now)
        {
            let domain = &kyber.domains[kyber.current];
            assert!(domain.out <= domain.tokens, "{domain:?}");
            let kind = if next.direction == Direction::Read { R } else { W };
            at_member.push_back((kind, next.receipt));
        }
        *now = *now + Span(MS / 5);
        let (kind, receipt) = at_member.pop_front().expect("the member is never idle");
        kyber.completed(receipt, *now);
        if kind == R {
            reading = false;
            reads.push_back(now.since(asked));
        } else {
            writing -= 1;
        }
    }
    reads.into_iter().rev().take(200).max().unwrap()
}

/// With few writers, writes lose tokens until reads are within their target. With many writers,
/// writes would exceed their own target, and get tokens back.
#[test]
fn writes_give_way_to_reads_until_they_are_late_themselves() {
    let (mut kyber, mut now) = (kyber(), Time(0));
    let before = beside_writers(&mut kyber.clone(), 32, &mut now.clone(), at(90));
    assert!(before > Span(6 * MS), "{before:?}");
    let slowest = beside_writers(&mut kyber, 32, &mut now, at(60_000));
    assert!(slowest < Span(2_500_000), "{slowest:?}");
    assert!((2..=12).contains(&tokens(&kyber)[WRITE]), "{:?}", tokens(&kyber));
    let few = tokens(&kyber)[WRITE];
    let mut kyber = self::kyber();
    kyber.domains[WRITE].tokens = few;
    beside_writers(&mut kyber, 128, &mut now, at(120_000));
    assert_eq!(tokens(&kyber)[WRITE], 128);
}
