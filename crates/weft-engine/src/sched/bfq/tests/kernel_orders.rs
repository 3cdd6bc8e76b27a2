//! Orders in which Linux 6.12 served five mixes of backlogged queues, compared with weft's BFQ.
//!
//! Source   `fixtures/sched/bfq-orders.csv`, described in `bfq-orders.md` beside it

use weft_units::{ClientId, Group, Sectors, Span, Time};

use super::super::{Bfq, ExpireReason};
use crate::contract::input::{Attr, Class, Origin};
use crate::contract::member::DeviceTraits;
use crate::knobs::BfqKnobs;
use crate::sched::request::{Direction, QueuedRequest, Receipt};

const TRACES: &str = include_str!("../../../../../../fixtures/sched/bfq-orders.csv");

/// A device of depth 1, and a further request that the kernel has already taken from the scheduler.
struct Replay {
    bfq: Bfq,
    at_device: Option<(Sectors, Receipt)>,
    held: Option<(Sectors, Receipt)>,
    expired: [u64; 5],
}

impl Replay {
    fn new() -> Self {
        let knobs = BfqKnobs {
            slice_idle: Span::ZERO,
            low_latency: false,
            max_budget: 64,
            ..BfqKnobs::default()
        };
        let device = DeviceTraits { depth: Some(1), write_cache: false, ..DeviceTraits::default() };
        let bfq = Bfq::new(knobs, Sectors(1024), device);
        Self { bfq, at_device: None, held: None, expired: [0; 5] }
    }

    fn pump(&mut self, now: Time) {
        while self.held.is_none() {
            let Some(next) = self.bfq.dispatch(now) else { return };
            assert_eq!(next.len, Sectors(8));
            let next = Some((next.first, next.receipt));
            *(if self.at_device.is_none() { &mut self.at_device } else { &mut self.held }) = next;
        }
    }

    fn insert(&mut self, sector: u64, class: &str, level: u8, now: Time) {
        let class = match class {
            "rt" => Class::RealTime(level),
            _ => Class::BestEffort(level),
        };
        let origin = Origin::Client(ClientId((sector / 1_000_000) as u32), Group::ROOT);
        self.bfq.insert(
            &QueuedRequest {
                id: sector,
                direction: Direction::Read,
                attr: Attr { class, origin, ..Attr::NONE },
                first: Sectors(sector),
                len: Sectors(8),
                discard: false,
                merges: false,
            },
            now,
        );
        self.pump(now);
    }

    /// Completes the request at the device and starts the next one. Returns the first sector of the
    /// request that is at the device then.
    fn next(&mut self, now: Time) -> Sectors {
        if let Some((_, done)) = self.at_device.take() {
            self.bfq.completed(done, now);
            self.at_device = self.held.take();
            self.pump(now);
        }
        self.at_device.expect("the kernel had a request here").0
    }
}

/// Replays a script. Returns the first sectors in the order of the kernel and in that of weft. Both
/// orders begin when the device is blocked on purpose for the last time.
fn replay(script: &str) -> (Vec<u64>, Vec<u64>, Replay) {
    let mut replay = Replay::new();
    let (mut kernel, mut ours, mut fresh) = (Vec::new(), Vec::new(), true);
    for line in TRACES.lines().skip(1) {
        let mut columns = line.split(',');
        let mut next = || columns.next().expect("six columns");
        if next() != script {
            continue;
        }
        let now = Time(next().parse::<u64>().unwrap() * 1000);
        match (next(), next(), next(), next()) {
            ("insert", sector, class, level) => {
                // The first request of an idle device is issued at once.
                fresh = replay.at_device.is_none();
                replay.insert(sector.parse().unwrap(), class, level.parse().unwrap(), now);
            }
            ("issue", sector, ..) => {
                let sector: u64 = sector.parse().unwrap();
                let here = if std::mem::take(&mut fresh) {
                    replay.at_device.unwrap().0
                } else {
                    replay.next(now)
                };
                if sector < 1_000_000 {
                    kernel.clear();
                    ours.clear();
                } else {
                    kernel.push(sector);
                    ours.push(here.0);
                }
            }
            ("expire", reason, ..) => {
                let reason = match reason {
                    "EXHAUSTED" => ExpireReason::BudgetExhausted,
                    "NO_MORE" => ExpireReason::NoMoreRequests,
                    "PREEMPTED" => ExpireReason::Preempted,
                    other => panic!("found {other}, expected a reason"),
                };
                replay.expired[reason as usize] += 1;
            }
            other => panic!("found {other:?}, expected insert, issue or expire"),
        }
    }
    (kernel, ours, replay)
}

/// Six requests at the end of `c4` are in another order than in Linux. A plain model of the rules
/// gives the same order as weft.
#[test]
fn backlogged_queues_are_served_in_the_kernels_order() {
    let (mut same, mut all) = (0, 0);
    for script in ["c1", "c2", "c3", "c4", "c5"] {
        let (kernel, ours, replay) = replay(script);
        let count = kernel.iter().zip(&ours).filter(|(a, b)| a == b).count();
        (same, all) = (same + count, all + kernel.len());
        // The trace ends before the last slot of the kernel does.
        let mut expired = replay.expired;
        expired[ExpireReason::NoMoreRequests as usize] += 1;
        assert_eq!(replay.bfq.stats().expired, expired, "{script}");
    }
    assert!(all == 1324 && same >= 1318, "{same} of {all}");
}
