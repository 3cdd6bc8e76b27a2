//! Tests of fairness by requests: shares by weight, a member that is kept full, and no starvation.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use weft_units::rng::Rng;
use weft_units::{ClientId, Group, Sectors};

use super::*;
use crate::contract::input::{Attr, Class, Origin};
use crate::contract::member::DeviceTraits;
use crate::knobs::{BfqKnobs, Fairness};
use crate::sched::bfq::Bfq;
use crate::sched::request::{Direction, QueuedRequest, Receipt};

/// Client that keeps a number of 4 KiB requests at random sectors outstanding, and has a think
/// time.
#[derive(Clone, Copy)]
struct Client {
    class: Class,
    weight: u16,
    outstanding: u32,
    think: Span,
}

impl Client {
    fn of(weight: u16, outstanding: u32) -> Self {
        Self { class: Class::None, weight, outstanding, think: Span(100_000) }
    }
}

/// Serves the clients for a second on a member that accepts `depth` requests and takes a
/// millisecond per request. Returns the number of requests served for each client, and the largest
/// number in flight.
fn served(fairness: Fairness, depth: usize, clients: &[Client]) -> (Vec<u64>, usize) {
    let knobs = BfqKnobs { fairness, low_latency: false, ..BfqKnobs::default() };
    let mut bfq = Bfq::new(knobs, Sectors(8), DeviceTraits::default());
    let (mut rng, mut served, mut most) = (Rng::new(1), vec![0; clients.len()], 0);
    // Events by time: a client issues a request (`None`), or a request completes.
    let mut events: BinaryHeap<Reverse<(Time, usize, Option<u32>)>> = BinaryHeap::new();
    for (client, of) in clients.iter().enumerate() {
        (0..of.outstanding).for_each(|_| events.push(Reverse((Time(0), client, None))));
    }
    let (mut at_member, mut id, mut woken, end) = (0, 0, None, Time(0) + Span::secs(1));
    while let Some(Reverse((now, client, done))) = events.pop()
        && now < end
    {
        if let Some(receipt) = done {
            bfq.completed(Receipt(receipt), now);
            at_member -= 1;
            served[client] += 1;
            // The think time is random, from half the mean to one and a half times the mean.
            let think = clients[client].think.0;
            let think = Span(think / 2 + rng.below(think.max(1)));
            events.push(Reverse((now + think, client, None)));
        } else if client < clients.len() {
            let Client { class, weight, .. } = clients[client];
            let origin = Origin::Client(ClientId(client as u32), Group::ROOT);
            bfq.insert(
                &QueuedRequest {
                    id: id << 8 | client as u64,
                    direction: Direction::Read,
                    attr: Attr { class, weight, origin, ..Attr::default() },
                    first: Sectors(rng.below(1 << 20) * 16),
                    len: Sectors(8),
                    discard: false,
                    merges: false,
                },
                now,
            );
            id += 1;
        }
        while at_member < depth
            && let Some(next) = bfq.dispatch(now)
        {
            let client = (next.id & 0xff) as usize;
            let done = Some(next.receipt.0);
            events.push(Reverse((now + Span::millis(1), client, done)));
            at_member += 1;
        }
        most = most.max(at_member);
        // Dispatch is tried again when the scheduler's wake time is due.
        let wake = bfq.next_wake().filter(|wake| at_member < depth && *wake > now);
        if let Some(at) = wake.filter(|_| wake != woken) {
            events.push(Reverse((at, clients.len(), None)));
            woken = wake;
        }
    }
    (served, most)
}

fn share(served: &[u64]) -> f64 {
    served[0] as f64 / served.iter().sum::<u64>() as f64
}

/// Goal of io-schedulers.md §5.3: shares of 66.7:33.3 within 5 %, for any number of outstanding
/// requests.
#[test]
fn weights_hold_on_a_member_of_depth_32_where_slots_lose_them() {
    for outstanding in [1, 4, 16, 64] {
        let clients = [Client::of(80, outstanding), Client::of(40, outstanding)];
        let (served, _) = served(Fairness::Requests, 32, &clients);
        let share = share(&served);
        assert!((0.633..0.7).contains(&share), "{outstanding} outstanding: {served:?}");
    }
    // Control: with slots, the heavier client gets nearly everything.
    let clients = [Client::of(80, 16), Client::of(40, 16)];
    let (served, _) = served(Fairness::Slots, 32, &clients);
    assert!(share(&served) > 0.8, "{served:?}");
}

#[test]
fn a_member_is_kept_full_when_there_is_enough_to_do() {
    let clients = [Client::of(80, 64), Client::of(40, 64), Client::of(20, 64)];
    let (served, most) = served(Fairness::Requests, 32, &clients);
    assert_eq!(most, 32);
    // A second with 32 in flight, a millisecond each.
    let sum: u64 = served.iter().sum();
    assert!(sum > 31_500, "{served:?}");
    for (client, weight) in [(0, 80.0), (1, 40.0), (2, 20.0)] {
        let share = served[client] as f64 / sum as f64;
        assert!((share - weight / 140.0).abs() < 0.01, "{served:?}");
    }
}

/// A client that uses the member only now and then does not hold back others, and is served at
/// once.
#[test]
fn a_client_that_mostly_thinks_holds_back_no_other_client() {
    let thinker = Client { think: Span::millis(20), ..Client::of(80, 1) };
    let clients = [thinker, Client::of(40, 32)];
    let (served, _) = served(Fairness::Requests, 32, &clients);
    assert!(served[0] > 42, "one in 21 ms: {served:?}");
    assert!(served[1] > 25_000, "32 at a time, most of the time: {served:?}");
}

#[test]
fn the_idle_class_has_what_is_left_and_a_turn_now_and_then() {
    let idle = |outstanding| Client { class: Class::Idle, ..Client::of(0, outstanding) };
    let (alone, _) = served(Fairness::Requests, 32, &[idle(32)]);
    assert!(alone[0] > 25_000, "{alone:?}");
    let (beside, _) = served(Fairness::Requests, 32, &[Client::of(40, 8), idle(32)]);
    assert!((4..20).contains(&beside[1]), "one in 200 ms at least: {beside:?}");
    assert!(beside[0] > 6_500, "{beside:?}");
}

/// No request is lost and no client starves: every client gets about its share, with random
/// weights, numbers of outstanding requests and think times.
#[test]
fn every_request_is_dispatched_once_and_no_client_starves() {
    let mut rng = Rng::new(7);
    for _ in 0..20 {
        let count = 1 + rng.below(6) as usize;
        let clients: Vec<Client> = (0..count)
            .map(|_| Client {
                think: Span(rng.below(3_000_000)),
                ..Client::of(10 + rng.below(90) as u16, 1 + rng.below(40) as u32)
            })
            .collect();
        let depth = 1 + rng.below(40) as usize;
        let (served, _) = served(Fairness::Requests, depth, &clients);
        let least = served.iter().min().expect("there are clients");
        assert!(*least >= 10, "depth {depth}: {served:?}");
    }
}

/// Tags of the queues 0 and 1. Both queues have weight 40, class best effort, and a request.
fn two(group: Group) -> FairRequests {
    let mut fair = FairRequests::new(&BfqKnobs::default().groups);
    for queue in [QueueId(0), QueueId(1)] {
        fair.know(queue);
        fair.begin(queue, group, IoPriority::BestEffort, 40);
    }
    fair
}

#[test]
fn a_queue_that_begins_again_keeps_the_tag_that_it_has_ahead_of_others() {
    let mut fair = two(Group::ROOT);
    fair.dispatched(QueueId(0), 1_000);
    fair.dispatched(QueueId(1), 10);
    fair.end(QueueId(0), false);
    fair.begin(QueueId(0), Group::ROOT, IoPriority::BestEffort, 40);
    assert_eq!(fair.next(Time(0)), Some(QueueId(1)));
}

#[test]
fn the_idle_class_waits_until_the_requests_of_others_have_completed() {
    let mut fair = two(Group::ROOT);
    fair.end(QueueId(1), false);
    fair.begin(QueueId(1), Group::ROOT, IoPriority::Idle, 40);
    fair.dispatched(QueueId(0), 8);
    fair.end(QueueId(0), false);
    assert_eq!(fair.next(Time(0)), None);
    fair.completed(QueueId(0), false, PATIENCE_MAX, Time(1));
    assert_eq!(fair.next(Time(1)), Some(QueueId(1)));
}

#[test]
fn a_queue_holds_others_back_without_a_time_limit_while_it_has_a_request_in_flight() {
    for (thinks, released) in [(false, None), (true, Some(QueueId(1)))] {
        let mut fair = two(Group::ROOT);
        fair.dispatched(QueueId(0), 8);
        fair.dispatched(QueueId(0), 8);
        fair.dispatched(QueueId(1), 1_000);
        fair.end(QueueId(0), true);
        fair.completed(QueueId(0), thinks, PATIENCE_MAX, Time(0));
        fair.on_time(Time(0) + PATIENCE_MAX);
        assert_eq!(fair.next(Time(0) + PATIENCE_MAX), released);
    }
}

/// A completion of a queue that holds nothing back starts no time limit.
#[test]
fn a_queue_that_holds_nothing_back_is_not_waited_for() {
    let mut fair = two(Group::ROOT);
    fair.dispatched(QueueId(0), 8);
    fair.end(QueueId(0), false);
    fair.completed(QueueId(0), true, PATIENCE_MAX, Time(0));
    assert_eq!(fair.next_wake(), None);
}

#[test]
fn a_queue_that_ends_no_longer_counts_in_the_weight_of_its_group() {
    let group = Group::new(1).expect("a valid number");
    let mut fair = two(group);
    assert_eq!(fair.weights[0], 80);
    fair.end(QueueId(1), false);
    assert_eq!(fair.weights[0], 40);
}

/// The client has two requests in flight, and the first completion does not begin a pause.
#[test]
fn a_client_with_another_request_in_flight_is_not_thinking() {
    let knobs = BfqKnobs { fairness: Fairness::Requests, ..BfqKnobs::default() };
    let mut bfq = Bfq::new(knobs, Sectors(8), DeviceTraits::default());
    let read = |bfq: &mut Bfq, client: u32, id: u64, weight: u16| {
        let origin = Origin::Client(ClientId(client), Group::ROOT);
        bfq.insert(
            &QueuedRequest {
                id,
                direction: Direction::Read,
                attr: Attr { weight, origin, ..Attr::default() },
                first: Sectors(id << 20),
                len: Sectors(8),
                discard: false,
                merges: false,
            },
            Time(0),
        );
    };
    (0..2).for_each(|id| read(&mut bfq, 0, id, 1000));
    let sent = [0, 1].map(|_| bfq.dispatch(Time(0)).expect("a request is queued").receipt);
    (2..4).for_each(|id| read(&mut bfq, 1, id, 1));
    assert!(bfq.dispatch(Time(0)).is_some());
    assert_eq!(bfq.dispatch(Time(0)), None, "held back by the heavier client");
    bfq.completed(sent[0], Time(1_000));
    assert_eq!(bfq.next_wake(), None);
    bfq.completed(sent[1], Time(2_000));
    assert_eq!(bfq.next_wake(), Some(Time(2_000) + PATIENCE_MAX));
}
