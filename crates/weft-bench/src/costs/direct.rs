//! Direct costs: CPU time of work that can be measured alone in a loop.
//!
//! Strips and blocks are in or near the second-level cache, as in an array under write load, which
//! has just received the client's data.

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use weft_engine::Attr;
use weft_engine::knobs::{MqDeadlineKnobs, NoMerges};
use weft_engine::sched::mq_deadline::MqDeadline;
use weft_engine::sched::{Direction, QueuedRequest};
use weft_nbd::{ClientConnection, ClientEvent, Op, ServerConnection, ServerEvent};
use weft_parity::Parity;
use weft_units::rng::Rng;
use weft_units::{Sectors, Time};

use crate::BenchError;
use crate::rounds::{per_cpu_second, thread_cpu};
use crate::session::session;

/// Measures each cost for the time `turn`: a request through the scheduler, XOR, a copy, a system
/// call, a request over NBD, and a hop to another thread. Returns the costs in this order, in ns,
/// but those of XOR and of the copy in ps per byte.
pub(super) fn costs(turn: Duration) -> Result<[f64; 6], BenchError> {
    Ok([scheduler(turn), xor(turn), copy(turn), syscall(turn), bio(turn)?, hop(turn)])
}

/// Mean CPU time of one call of `work`, in ns. Runs batches of `batch` calls for at least the time
/// `turn`.
fn each(turn: Duration, batch: u32, mut work: impl FnMut()) -> f64 {
    let rate = per_cpu_second(turn, || (0..batch).for_each(|_| work()));
    1e9 / (rate * f64::from(batch))
}

/// CPU time in ns of a request through mq-deadline with 32 queued requests: insertion, dispatch and
/// completion.
fn scheduler(turn: Duration) -> f64 {
    let mut queue = MqDeadline::new(MqDeadlineKnobs::default(), Sectors(1024), NoMerges::Allowed);
    let (mut id, mut rng) = (0u64, Rng::new(1));
    let mut insert = |queue: &mut MqDeadline| {
        id += 1;
        let request = QueuedRequest {
            id,
            direction: if id.is_multiple_of(2) { Direction::Read } else { Direction::Write },
            attr: Attr::default(),
            first: Sectors(rng.below(1 << 34) * 16),
            len: Sectors(8),
            discard: false,
            merges: true,
        };
        queue.insert(&request, Time(id * 1000));
        Time(id * 1000)
    };
    (0..32).for_each(|_| {
        insert(&mut queue);
    });
    each(turn, 500, || {
        let now = insert(&mut queue);
        if let Some(next) = black_box(queue.dispatch(now)) {
            queue.completed(next.receipt);
        }
    })
}

/// CPU time of P over three strips of 4 KiB, in ps per byte read.
fn xor(turn: Duration) -> f64 {
    let parity = Parity::detect();
    let (mut data, mut p) = (block_after_block(), vec![0; BLOCK]);
    let mut at = 0;
    each(turn, 200, || {
        let strips = &data[at..at + 3 * BLOCK];
        let sources = [&strips[..BLOCK], &strips[BLOCK..2 * BLOCK], &strips[2 * BLOCK..]];
        parity.xor(black_box(&sources), &mut p);
        data[at] = data[at].wrapping_add(p[0]);
        at = (at + 3 * BLOCK) % (data.len() - 3 * BLOCK);
    }) * 1000.0
        / (3 * BLOCK) as f64
}

/// CPU time of copying a block of 4 KiB, in ps per byte.
fn copy(turn: Duration) -> f64 {
    let (from, mut to) = (block_after_block(), block_after_block());
    let mut at = 0;
    each(turn, 200, || {
        to[at..at + BLOCK].copy_from_slice(black_box(&from[at..at + BLOCK]));
        black_box(&mut to);
        at = (at + BLOCK) % from.len();
    }) * 1000.0
        / BLOCK as f64
}

/// CPU time in ns of the cheapest real system call: reading the CPU clock of this thread, for which
/// the vDSO has to call the kernel.
fn syscall(turn: Duration) -> f64 {
    each(turn, 200, || {
        black_box(thread_cpu());
    })
}

/// CPU time in ns of encoding and decoding a write request and its reply, without data, on both
/// sides of weft's NBD protocol.
fn bio(turn: Duration) -> Result<f64, BenchError> {
    let (mut client, mut server) = session()?;
    let (mut cookie, mut failed) = (0, false);
    let cost = each(turn, 200, || {
        cookie += 1;
        failed |= write(&mut client, &mut server, cookie).is_none();
    });
    if failed { Err(BenchError::failed("a request was not understood")) } else { Ok(cost) }
}

/// Passes a write request from the client to the server, and its reply back; returns `None` if
/// either side does not accept it.
fn write(client: &mut ClientConnection, server: &mut ServerConnection, cookie: u64) -> Option<()> {
    let write = Op::Write { offset: 4096, len: 4096, fua: false };
    let bytes = client.request(cookie, write).ok()?;
    let (_, Some(ServerEvent::Request(request))) = server.input(black_box(&bytes)) else {
        return None;
    };
    server.payload_consumed(4096);
    let (_, event) = client.input(black_box(&server.reply_header(&request, Ok(()))));
    matches!(event, Some(ClientEvent::Done { .. })).then_some(())
}

/// Time in ns from waking another thread until it runs, as half of a round trip. Unlike the other
/// costs this is elapsed time, not CPU time, because neither thread runs during a wake-up.
fn hop(turn: Duration) -> f64 {
    let here = thread::current();
    let (to_other, other_hears) = std::sync::mpsc::channel::<()>();
    let other = thread::spawn(move || {
        let mut hops = 0u32;
        while other_hears.recv().is_ok() {
            hops += 1;
            here.unpark();
        }
        hops
    });
    let (start, mut count) = (Instant::now(), 0u32);
    while start.elapsed() < turn && to_other.send(()).is_ok() {
        thread::park();
        count += 1;
    }
    let took = start.elapsed().as_nanos() as f64;
    drop(to_other);
    let answered = other.join().unwrap_or(0);
    took / f64::from(2 * answered.min(count).max(1))
}

/// Creates 256 blocks of 4 KiB with a pattern: 1 MiB, which is larger than a first-level cache.
fn block_after_block() -> Vec<u8> {
    (0..256 * BLOCK).map(|byte| (byte * 7 + byte / BLOCK).to_le_bytes()[0]).collect()
}

const BLOCK: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_costs_something_and_less_than_a_second() {
        let costs = costs(Duration::from_millis(1)).unwrap();
        assert!(costs.iter().all(|cost| (0.1..1e9).contains(cost)), "{costs:?}");
    }

    #[test]
    fn twice_the_work_costs_about_twice_as_much() {
        let work = |times: u64| {
            move || {
                black_box((0..times * 2000).fold(0, |sum, it| sum ^ black_box(it)));
            }
        };
        // The best of five tries: other processes may use the CPU.
        let best = |times| {
            let tried = (0..5).map(|_| each(Duration::from_millis(2), 10, work(times)));
            tried.fold(f64::INFINITY, f64::min)
        };
        let ratio = best(2) / best(1);
        assert!((1.2..3.5).contains(&ratio), "{ratio}");
    }
}
