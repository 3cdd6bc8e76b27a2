//! Tests of flush latency: one round per flush against one round that serves many (patch 002).
//!
//! The engine itself selects the requests of a round. Clients and the member are reduced to one
//! number each, so that the result has a closed form.
//!
//! Source   experiments.md §7, statements 22 and 23

use std::collections::VecDeque;

use weft_engine::flush::flush_batch::{FlightId, FlushBatch, Unflushed};
use weft_engine::knobs::FlushRule;
use weft_units::MemberIndex;

/// Starts a round on the only member of the array, which always has unflushed writes.
fn start<R>(flushes: &mut FlushBatch<R>, rule: FlushRule) -> Option<FlightId> {
    let sent = flushes.start(rule, &[(MemberIndex(0), Unflushed::new(true))]);
    assert!(sent.len() <= 1, "one member, one flush");
    sent.first().map(|(_, flight)| *flight)
}

/// Ends a flush of the member. Returns the requests that it serves.
fn end<R>(flushes: &mut FlushBatch<R>, flight: FlightId) -> Vec<R> {
    flushes.ended(flight, None, Ok(()), Ok(()));
    flushes.take_served().into_iter().map(|(request, _)| request).collect()
}

/// Asserts that `found` differs from `expected` by at most the fraction `part`.
fn is_near(found: f64, expected: f64, part: f64) {
    assert!((found / expected - 1.0).abs() <= part, "found {found}, expected {expected} ± {part}");
}

/// Simulates clients that do one operation after the other: first their data, one client at a time,
/// then a flush, if any. Returns operations per second and seconds per operation.
fn closed(clients: u32, data: f64, flush: Option<(FlushRule, f64)>) -> (f64, f64) {
    const SECONDS: f64 = 20.0;
    let round = flush.map_or(0.0, |(_, round)| round);
    let rule = flush.map_or(FlushRule::Batch, |(rule, _)| rule);
    let mut flushes = FlushBatch::default();
    // Times at which data will be written, and at which the operation began.
    let mut moving: VecDeque<(f64, f64)> = VecDeque::new();
    let mut free = 0.0_f64;
    let mut begin = |moving: &mut VecDeque<(f64, f64)>, now: f64| {
        free = free.max(now) + data;
        moving.push_back((free, now));
    };
    (0..clients).for_each(|_| begin(&mut moving, 0.0));
    let mut round_end = f64::INFINITY;
    let mut flight = None;
    let (mut done, mut latencies) = (0.0, 0.0);
    loop {
        let moved = moving.front().map_or(f64::INFINITY, |(moved, _)| *moved);
        let now = moved.min(round_end);
        if now > SECONDS {
            return (done / SECONDS * 2.0, latencies / done);
        }
        let mut over = Vec::new();
        if moved <= round_end {
            let (_, began) = moving.pop_front().expect("a client's data is there");
            if flush.is_some() { flushes.arrive(began) } else { over.push(began) }
        } else {
            over = end(&mut flushes, flight.take().expect("a round runs"));
            round_end = f64::INFINITY;
        }
        if let Some(started) = start(&mut flushes, rule) {
            (round_end, flight) = (now + round, Some(started));
        }
        for began in over {
            // The first half lets the queues reach a steady state.
            if now > SECONDS / 2.0 {
                done += 1.0;
                latencies += now - began;
            }
            begin(&mut moving, now);
        }
    }
}

#[test]
fn experiments_22_one_round_for_each_is_the_limit_and_one_for_all_is_none() {
    const CLIENTS: u32 = 128;
    const DATA: f64 = 1.0 / 18_739.0;
    const ROUND: f64 = 160e-6;
    let (rate, latency) = closed(CLIENTS, DATA, Some((FlushRule::Serial, ROUND)));
    is_near(rate, 6250.0, 0.02);
    is_near(latency, 20.45e-3, 0.02);
    for flush in [None, Some((FlushRule::Batch, ROUND))] {
        let (rate, latency) = closed(CLIENTS, DATA, flush);
        is_near(rate, 18_715.0, 0.02);
        is_near(latency, f64::from(CLIENTS) / 18_715.0, 0.02);
    }
}

/// Request that needs a flush.
#[derive(Clone, Copy)]
enum Needs {
    /// A log write. The next one follows at once.
    Log,
    /// A client: its arrival, and the end of the round that ran then.
    Client(f64, f64),
}

/// Results of clients that arrive at random.
struct Found {
    waits: Vec<f64>,
    /// Largest delay of a client beyond the end of the first round that began after it arrived.
    late: f64,
    rounds_a_second: f64,
}

/// A member with `logs` log writes that always need a flush, and clients that arrive at this rate.
fn open(rule: FlushRule, logs: u32, round: f64, clients_a_second: f64) -> Found {
    const SECONDS: f64 = 400.0;
    let mut flushes = FlushBatch::default();
    (0..logs).for_each(|_| flushes.arrive(Needs::Log));
    let mut flight = start(&mut flushes, rule).expect("the log needs a round");
    let mut round_end = round;
    // The triple 13, 7, 17 of G. Marsaglia, "Xorshift RNGs"; times between clients are exponential.
    let mut seed = 0x7765_6674_u64;
    let mut pause = || {
        for (left, by) in [(true, 13), (false, 7), (true, 17)] {
            seed ^= if left { seed << by } else { seed >> by };
        }
        -(((seed >> 11) as f64 + 0.5) / (1_u64 << 53) as f64).ln() / clients_a_second
    };
    let mut next = pause();
    let mut found = Found { waits: Vec::new(), late: 0.0, rounds_a_second: 0.0 };
    while round_end < SECONDS {
        if next < round_end {
            flushes.arrive(Needs::Client(next, round_end));
            next += pause();
            continue;
        }
        for served in end(&mut flushes, flight) {
            match served {
                Needs::Log => flushes.arrive(Needs::Log),
                Needs::Client(came, ran) => {
                    found.waits.push(round_end - came);
                    found.late = found.late.max(round_end - (ran + round));
                }
            }
        }
        flight = start(&mut flushes, rule).expect("the log always needs a round");
        round_end += round;
    }
    found.rounds_a_second = flushes.counts().rounds as f64 / SECONDS;
    found
}

#[test]
fn experiments_23_waits_for_rounds_of_others_and_for_the_next_round() {
    const ROUND: f64 = 0.444e-3;
    const LOGS: u32 = 5;
    const RATE: f64 = 770.0;
    let mean = |found: &Found| {
        assert!(found.waits.len() > 100_000, "{}", found.waits.len());
        found.waits.iter().sum::<f64>() / found.waits.len() as f64
    };
    let serial = open(FlushRule::Serial, LOGS, ROUND, RATE);
    let expected = (f64::from(LOGS) + 0.5) * ROUND / (1.0 - RATE * ROUND);
    is_near(expected, 3.71e-3, 0.001);
    is_near(mean(&serial), expected, 0.03);
    let batched = open(FlushRule::Batch, LOGS, ROUND, RATE);
    is_near(mean(&batched), 1.5 * ROUND, 0.02);
    let nothing = 1e-9;
    assert!(batched.late < nothing, "{}", batched.late);
    // Counterpart: shows that the test would detect a client served too late.
    assert!(serial.late > ROUND, "{}", serial.late);
    for found in [serial, batched] {
        // One round is still running when the time is over.
        assert!(found.rounds_a_second <= 1.0 / ROUND + 0.01, "{}", found.rounds_a_second);
    }
}
