//! Page cache, write side: dirty pages, their flushers, and the throttling of writers.
//!
//! Like all of the engine, the module maps values to decisions: it has no clock, sleeps on no
//! timer, and sees no payload. The simulator's processes (`dd`, `tiobench`, `dbench`, `fio`) write
//! into it. The engine's write-back cache (`write_back/`) follows its decisions too: a volume
//! corresponds to one file, each of its clients to a writer, and a pause to a delayed reply; that
//! cache enforces the hard limit in addition. The rules are the kernel's, in two versions before
//! patch 001 and four with it, and weft's own ([`Kernel`]).
//!
//! ```text
//! cache.rs       joins all other modules; the API
//! index.rs       per file: which pages are dirty, which under writeback
//! queue.rs       per device: which dirty file is next
//! pass.rs        turns of files, shared by flushers and throttled writers
//! flusher.rs     per device: background, periodic and sync writeback
//! fsync.rs       per call: writes the pages that were dirty, and waits for them
//! pool.rs        total limits and counts; proportion.rs, bandwidth.rs: shares and bandwidths
//! throttle/      throttling policies: the kernels before, ◆ patch 001, weft's own
//! ```
//!
//! Not modelled are: residency (reads are assumed to hit), the errors of the kernel's per-CPU
//! counters, memory cgroups, and writers with real-time priority.
//!
//! Example: `dd` on a slow device with a limit of 100 MiB. It first writes at the speed of memory,
//! then at the speed of the device, because it must write back what it dirties, and sleep:
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
//! // The device executes one write at a time at 64 MiB/s, so 61 µs for a page.
//! let (mut now, mut device_free) = (Time(0), Time(0));
//! let mut in_flight = std::collections::VecDeque::new();
//! let mut flusher_until = None;
//! let (mut sleeps, mut most, mut finished) = (0, 0, Vec::new());
//!
//! let mut at = 0;
//! while at < 300 * 256 {
//!     // dd writes 1 MiB at a time, and copying to memory takes no time.
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
//! // The first 75 MiB (half-way between the limits) were written at once. In total, the device
//! // needed its time for all pages that are not still in memory.
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
pub(crate) mod sparse;
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
