//! Page cache, write side: dirty pages, their flushers, and the throttling of writers.
//!
//! A library of values in, decisions out, like all of the engine: it has no clock, sleeps on no
//! timer and sees no payload. The simulator's processes write into it (`dd`, `tiobench`, `dbench`,
//! `fio`), and the engine's write-back cache (`write_back/`) goes by it: a volume is one file,
//! each of its clients a writer, and a pause is an answer that is delayed; the cache keeps the hard
//! limit besides. It is the kernel's, in two versions of before patch 001 and four with it, and
//! weft's own ([`Kernel`]).
//!
//! ```text
//! cache.rs       joins what follows; the API
//! index.rs       per file: which pages are dirty, which under writeback
//! queue.rs       per device: which dirty file is next
//! pass.rs        turns of files: shared by flushers and throttled writers
//! flusher.rs     per device: background, periodic and sync work
//! fsync.rs       per call: what was dirty, written and waited for
//! pool.rs        limits and counts of all; proportion.rs and bandwidth.rs keep shares and speeds
//! throttle/      what a policy is told and answers: the kernels before, ◆ patch 001, weft's own
//! ```
//!
//! Not modelled: what is resident, so reads are taken to hit; the errors of the kernel's per-CPU
//! counters; memory cgroups; writers with real-time priority.
//!
//! `dd` on a slow device, with a limit of 100 MiB. It writes at the speed of memory at first, then
//! as fast as the device is, because it has to write back what it dirties and to sleep:
//!
//! ```
//! use weft_engine::page_cache::*;
//! use weft_units::{Span, Time};
//!
//! const MIB: u64 = 1 << 20;
//! let config = PoolConfig {
//!     dirty: Amount::Bytes(100 * MIB),
//!     background: Amount::Bytes(50 * MIB),
//!     ..PoolConfig::new(Kernel::V3_1, 1, 262_144, 200_000)
//! };
//! let mut cache = PageCache::new(config);
//! let bdi = cache.add_bdi(Time(0));
//! let (file, dd) = (cache.add_inode(bdi), cache.add_writer(0));
//!
//! // The device: one write after the other, 64 MiB/s, so 61 µs for a page.
//! let (mut now, mut device_free) = (Time(0), Time(0));
//! let mut in_flight = std::collections::VecDeque::new();
//! let mut flusher_until = None;
//! let (mut sleeps, mut most, mut finished) = (0, 0, Vec::new());
//!
//! let mut at = 0;
//! while at < 300 * 256 {
//!     // dd takes 1 MiB at a time, and memory takes no time.
//!     let end = (at + 256) / 256 * 256;
//!     let written = cache.write(now, dd, file, at..end);
//!     at += written.pages;
//!     finished.push((at, now));
//!     most = most.max(cache.pool().counts().total());
//!     let mut submit = |now: Time, out: WriteOut, in_flight: &mut std::collections::VecDeque<_>| {
//!         device_free = device_free.max(now) + Span(61_000 * (out.pages.end - out.pages.start));
//!         in_flight.push_back((device_free, out));
//!     };
//!     let mut wait = written.balance;
//!     while wait {
//!         match cache.balance(now, dd, 256) {
//!             Balance::Continue => wait = false,
//!             Balance::Write(out) => submit(now, out, &mut in_flight),
//!             Balance::Sleep { until, .. } => {
//!                 sleeps += 1;
//!                 now = until;
//!             }
//!         }
//!         while in_flight.front().is_some_and(|(done, _)| *done <= now) {
//!             let (_, out) = in_flight.pop_front().unwrap();
//!             cache.written(now, out.inode, out.pages);
//!         }
//!         while let Some(wake) = cache.wake() {
//!             assert_eq!(wake, Wake::Flusher(bdi));
//!             flusher_until = Some(now);
//!         }
//!         // The flusher submits at most 8 MiB ahead of the device.
//!         while flusher_until.is_some_and(|until| until <= now) && in_flight.len() < 8 {
//!             match cache.flush(now, bdi, 256) {
//!                 Flush::Write(out) => submit(now, out, &mut in_flight),
//!                 Flush::Sleep { until, .. } => flusher_until = until,
//!             }
//!         }
//!     }
//! }
//! // The first 75 MiB (half-way between the limits) went at once; all of it took the device's time for
//! // what is not still in memory.
//! assert!(finished.iter().any(|&(pages, now)| pages >= 75 * 256 && now == Time(0)));
//! assert!(sleeps > 10);
//! assert!(most < 105 * 256, "{most} pages");
//! let seconds = now.0 as f64 / 1e9;
//! assert!((2.9..3.6).contains(&seconds), "{seconds}");
//! ```

mod bandwidth;
mod cache;
mod flusher;
mod fsync;
mod id;
mod index;
mod pass;
mod pool;
mod proportion;
mod queue;
#[cfg(test)]
mod tests;
mod throttle;
mod ticks;

pub use bandwidth::Bandwidth;
pub use cache::{Balance, PageCache, Wake, Written};
pub use flusher::Flush;
pub use fsync::{Fsync, SyncStep};
pub use id::{BdiId, InodeId, WriterId};
pub use index::{Discarded, PageState, Pages};
pub use pass::{Reason, WriteOut};
pub use pool::{Amount, BdiRatios, Counts, Kernel, PAGE_BYTES, Pool, PoolConfig, Thresholds};
pub use proportion::{Fraction, Proportion, Share};
pub use throttle::{Answer, DirtyThrottle, Facts, Pace, ThrottleEpisode, ThrottleStep};
pub use ticks::TickRate;
