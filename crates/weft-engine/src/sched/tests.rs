//! Statements X1 to X3 of io-schedulers.md §6, which hold for every scheduler.

use std::collections::{BTreeMap, BTreeSet};

use weft_units::rng::Rng;
use weft_units::{ClientId, Group, Sectors, Span, Time};

use super::{BareScheduler, Direction, QueuedRequest};
use crate::contract::input::{Attr, Class, Origin};
use crate::contract::member::DeviceTraits;
use crate::knobs::{Knobs, SchedulerKind};

const SCHEDULERS: [&[(&str, &str)]; 7] = [
    &[("scheduler", "none")],
    &[("scheduler", "mq-deadline")],
    &[("scheduler", "kyber")],
    &[("scheduler", "kyber"), ("read_lat_nsec", "1"), ("write_lat_nsec", "10000000000")],
    &[("scheduler", "bfq")],
    &[("scheduler", "bfq"), ("fairness", "requests"), ("group_weights", "300,20")],
    &[("scheduler", "bfq"), ("merge_queues", "always"), ("waker", "1"), ("stable_merge", "1")],
];

/// Creates a request with random client, group, sector and flags, and with a random class unless
/// `alike`.
fn request(id: u64, alike: bool, rng: &mut Rng) -> QueuedRequest {
    let group = Group::new(rng.below(3) as u8).unwrap_or_default();
    let client = ClientId(rng.below(6) as u32 * 3 + u32::from(group.number()));
    let classes = [Class::None, Class::BestEffort(6), Class::RealTime(4), Class::Idle];
    let direction = if rng.below(2) == 0 { Direction::Read } else { Direction::Write };
    let discard = direction == Direction::Write && id.is_multiple_of(5);
    QueuedRequest {
        id,
        direction,
        attr: Attr {
            class: if alike { Class::None } else { classes[rng.below(4) as usize] },
            origin: Origin::Client(client, group),
            background: rng.below(4) == 0,
            ..Attr::NONE
        },
        first: Sectors(rng.below(4000) * 8),
        len: Sectors(8),
        discard,
        merges: rng.below(4) > 0 && !discard,
    }
}

/// Submits at least 400 requests, in random batches at random times, and runs until all of them
/// have completed. Returns the numbers of the requests in order of dispatch, with merged requests
/// in one list. With `alike`, all requests have the same class. With `loses`, a planted bug drops
/// request 100.
fn order(settings: &[(&str, &str)], seed: u64, alike: bool, loses: bool) -> Vec<Vec<u64>> {
    let mut knobs = Knobs::default();
    for (name, value) in settings {
        knobs.set(knobs.parse(name, value).unwrap());
    }
    let mut rng = Rng::new(seed);
    let mut scheduler = BareScheduler::new(&knobs, DeviceTraits::default());
    let depth = 1 + rng.below(8) as usize;
    let bound = Span::millis(20);
    let (mut now, mut asked, mut order) = (Time(0), 0, Vec::new());
    let (mut at_member, mut waiting) = (BTreeMap::new(), BTreeSet::new());
    while asked < 400 || !waiting.is_empty() || !at_member.is_empty() {
        if asked < 400 && rng.below(3) == 0 {
            for _ in 0..1 + rng.below(8) {
                let request = request(asked, alike, &mut rng);
                waiting.insert(asked);
                asked += 1;
                if !(loses && request.id == 100) {
                    scheduler.insert(&request, now);
                }
            }
        }
        while at_member.len() < depth {
            let Some(sent) = scheduler.dispatch(now) else {
                if waiting.is_empty() {
                    break;
                }
                let wake = scheduler.next_wake(now);
                let kept = wake.is_some_and(|at| at.since(now) <= bound);
                let keeps = ["bfq", "kyber"].contains(&settings[0].1) || !alike;
                // X3: with requests waiting, the member is idle only while it is kept idle, and
                // never for long. With kyber the member may have fewer requests than it accepts.
                assert!(loses || kept || keeps && !at_member.is_empty(), "{settings:?} {seed}");
                break;
            };
            for id in scheduler.sent() {
                assert!(waiting.remove(id), "{id} is dispatched once: {settings:?} {seed}");
            }
            order.push(scheduler.sent().to_vec());
            let done = (now + Span(50_000 + rng.below(3_000_000)), order.len());
            at_member.insert(done, sent.receipt);
        }
        assert!(loses || scheduler.0.is_empty() == waiting.is_empty(), "{settings:?} {seed}");
        let ends = at_member.first_key_value().map(|(of, _)| of.0);
        let wake = scheduler.next_wake(now).filter(|at| *at > now);
        let arrives = (asked < 400).then(|| now + Span(rng.below(2_000_000)));
        let Some(next) = [ends, wake, arrives].into_iter().flatten().min() else { break };
        now = next.max(now);
        while let Some(entry) = at_member.first_entry().filter(|entry| entry.key().0 <= now) {
            scheduler.completed(entry.remove(), now);
        }
    }
    assert!(waiting.is_empty(), "lost: {waiting:?}, {settings:?} {seed}");
    order
}

#[test]
fn every_scheduler_is_among_those_that_are_tried() {
    let tried = |name: &str| SCHEDULERS.iter().any(|it| it[0] == ("scheduler", name));
    assert!(SchedulerKind::ALL.into_iter().all(|kind| tried(kind.name())));
    assert!(!tried("cfq"));
}

/// Invariant I14 for every scheduler: no request is lost or dispatched twice.
#[test]
fn statements_x1_to_x3_nothing_is_lost_or_doubled_and_the_same_trace_gives_the_same_order() {
    for settings in SCHEDULERS {
        for seed in 0..60 {
            let alike = seed % 2 == 0;
            let first = order(settings, seed, alike, false);
            assert_eq!(first.iter().map(Vec::len).sum::<usize>(), first.concat().len());
            assert!(first.concat().len() >= 400, "{settings:?} {seed}");
            assert_eq!(first, order(settings, seed, alike, false), "{settings:?} {seed}");
            if settings[0].1 != "none" {
                assert_ne!(first, order(settings, seed + 1000, alike, false));
            }
        }
    }
}

#[test]
#[should_panic(expected = "lost: {100}")]
fn a_planted_loss_is_found() {
    order(SCHEDULERS[0], 1, true, true);
}
