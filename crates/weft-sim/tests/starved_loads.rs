//! Tests of loads that a review found starved on simulated drives, for a short simulated time, each
//! beside md's defaults in the same test.

use weft_engine::RequestOp;
use weft_engine::knobs::{Knobs, PriorityRule};
use weft_sim::machine::{Machine, MachineParts, Pid, Seen};
use weft_sim::workload::jobs::{Io, Job, Pace};
use weft_units::rng::Rng;
use weft_units::{ByteRange, Bytes, Span, Time};

fn stream(len: u64) -> Box<dyn Iterator<Item = Io>> {
    let io = move |n: u64| Io { op: RequestOp::Write, range: ByteRange::new(n * len, len) };
    Box::new((0..).map(io))
}

fn random(seed: u64) -> Box<dyn Iterator<Item = Io>> {
    let mut rng = Rng::new(seed);
    let first = 10 << 30;
    let start = move || first + rng.below(1 << 21) * 4096;
    let mut start = start;
    Box::new(std::iter::repeat_with(move || Io {
        op: RequestOp::Write,
        range: ByteRange::new(start(), 4096),
    }))
}

/// Runs clients. Returns the bytes that each wrote, and the longest wait of any request, answered
/// or not.
fn run(knobs: Knobs, clients: Vec<(u32, Box<dyn Iterator<Item = Io>>)>) -> (Vec<u64>, Span) {
    const TIME: Span = Span::millis(400);
    let mut machine =
        Machine::new(&MachineParts::raid5("ssd-sata-dc-2019", Bytes::kib(512), knobs));
    machine.host.watch_requests();
    let pace = |depth| Pace { run_time: Some(TIME), ..Pace::depth(depth) };
    let add = |(depth, asks)| machine.add_with(|pid| Box::new(Job::new(pid, pace(depth), asks)));
    let pids: Vec<Pid> = clients.into_iter().map(add).collect();
    let end = Time(0) + TIME;
    machine.run(end);
    let found = |pid| machine.process::<Job>(pid).found(RequestOp::Write).bytes.0;
    let waited = |seen: &Seen| seen.answered.unwrap_or(end).since(seen.at);
    let longest = machine.host.watched().iter().map(waited).max().expect("something was written");
    assert_eq!(machine.host.answered().1, 0, "no request failed");
    (pids.into_iter().map(found).collect(), longest)
}

/// Bound of a wait on these drives: about the time of writing a full cache.
const TENS_OF_MS: Span = Span::millis(50);

fn own() -> [Knobs; 3] {
    let with = |priority| Knobs { priority, ..Knobs::default() };
    [PriorityRule::Bypass, PriorityRule::Fifo, PriorityRule::Stream].map(with)
}

#[test]
fn a_stream_beside_random_writes_gets_its_share() {
    // The first depth fills no full stripe, the second fills more than one.
    for depth in [8, 40] {
        let load = || vec![(depth, stream(65_536)), (8, random(7))];
        let (md, md_waited) = run(Knobs::md(), load());
        println!("depth {depth}, md: {md:?}, {md_waited:?}");
        for knobs in own() {
            let (found, waited) = run(knobs, load());
            println!("depth {depth}, {:?}: {found:?}, {waited:?}", knobs.priority);
            assert!(waited < TENS_OF_MS, "{waited:?} with {:?}", knobs.priority);
            for (client, of_md) in found.iter().zip(&md) {
                assert!(client * 2 > *of_md, "{found:?}; md {md:?}; {:?}", knobs.priority);
            }
        }
    }
}

#[test]
fn four_writers_of_the_same_stream_do_not_wait_for_each_other_in_a_circle() {
    for depth in [8, 40] {
        let load = || (0..4).map(|_| (depth, stream(65_536))).collect();
        let (md, md_waited) = run(Knobs::md(), load());
        println!("depth {depth}, md: {md:?}, {md_waited:?}");
        for knobs in own() {
            let (found, waited) = run(knobs, load());
            println!("depth {depth}, {:?}: {found:?}, {waited:?}", knobs.priority);
            assert!(waited < TENS_OF_MS, "{waited:?} with {:?}", knobs.priority);
            let (all, of_md) = (found.iter().sum::<u64>(), md.iter().sum::<u64>());
            assert!(all * 2 > of_md, "{found:?}; md {md:?}; {:?}", knobs.priority);
        }
    }
}
