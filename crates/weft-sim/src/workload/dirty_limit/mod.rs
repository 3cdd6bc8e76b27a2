//! Workload of patch 001: endless `dd`s on the disks of a box, under a limit of dirty pages.
//!
//! A box is a page cache over disks of one model, each with a file system and a flusher of its
//! own; no array, no volume and no engine's queue between. [`DirtyLimit`] says what it is and who
//! writes; [`DirtyLimit::run`] runs it and says what was [`Measured`]:
//!
//! ```
//! use weft_engine::page_cache::{Amount, Kernel};
//! use weft_sim::workload::dirty_limit::{DirtyLimit, FileSystem};
//! use weft_units::{Bytes, Span};
//!
//! // JBOD-2HDD-thresh=10M/xfs-10dd-1M-24p-16384M-10M:10-X
//! let cell = DirtyLimit {
//!     disks: 2,
//!     dirty: Amount::Bytes(10 << 20),
//!     background: Amount::Percent(10),
//!     file_system: FileSystem::Xfs,
//!     writers: 10,
//!     block: Bytes::mib(1),
//!     warm_up: Span::secs(1),
//!     measured: Span::secs(2),
//!     ..DirtyLimit::jbod(Kernel::named("3.1").unwrap())
//! };
//! let measured = cell.run();
//! assert!(measured.mib_per_second > 10.0);
//! assert_eq!(measured.idle.len(), 2);
//! ```
//!
//! | part | file |
//! |---|---|
//! | writers, flushers, logs and the course of events | `world.rs` |
//! | requests of a disk, merged and sorted | `disk.rs` |
//! | places of files, the log | `places.rs` |
//! | counts of a window of time, samples | `measured.rs` |
//!
//! Disks behind one adapter share its link: what is on its way to any of them passes it one
//! request after the other, so each gets the link's rate divided by the disks that have work, or
//! its own rate if that is less.
//!
//! A writer takes 4 µs for a page, and 1 µs for a call of its `write`; it runs on one CPU, which it
//! does not share for its time, only for the kernel's count of dirtied pages. Writing a page out
//! takes whoever does it 2 µs, handing a request to a disk 10 µs, and so does waking a flusher. Not
//! here: `nr_requests` in batches, CFQ's slices, the memory that programs take, errors of per-CPU
//! counters.
//!
//! Source   writeback.md §4, §6.1; experiments.md §1.2

mod disk;
mod measured;
mod places;
#[cfg(test)]
mod tests;
mod world;

use weft_engine::page_cache::{Amount, Kernel, PoolConfig, TickRate};
use weft_units::{Bytes, Span};

use crate::drive::{Drive, Model};

pub use measured::{Measured, Pause, Sample};
pub use places::FileSystem;

/// A box, and who writes on it for how long.
#[derive(Clone, Debug)]
pub struct DirtyLimit {
    /// Kernel whose page cache it is.
    pub kernel: Kernel,
    /// `HZ`; a divisor of 10⁹.
    pub hz: u32,
    /// CPUs, over which writers are dealt in turn.
    pub cpus: u32,
    /// Memory of the box.
    pub memory: Bytes,
    /// Number of disks, each with a file system of its own.
    pub disks: u16,
    /// Their model.
    pub model: Model,
    /// Bytes per second of the link that they share; `None` if each has its own.
    pub link: Option<Bytes>,
    /// File system of each disk.
    pub file_system: FileSystem,
    /// Number of writers per disk, each with a file of its own.
    pub writers: u32,
    /// What a writer writes at a time: whole pages.
    pub block: Bytes,
    /// `vm.dirty_bytes` or `vm.dirty_ratio`.
    pub dirty: Amount,
    /// `vm.dirty_background_bytes` or `vm.dirty_background_ratio`.
    pub background: Amount,
    /// Time before anything is counted.
    pub warm_up: Span,
    /// Time in which everything is counted, after that; not zero.
    pub measured: Span,
    /// Time that handing over a request takes longer than it does: nothing of a kernel, and events
    /// come in another order.
    pub placebo: Span,
    /// Seed of the platters' places and of the writers' first moments.
    pub seed: u64,
}

impl DirtyLimit {
    /// The 8-CPU machine with one disk of about the rate that was measured: limit 100 MiB, one
    /// writer of 4 KiB on XFS, 10 s after 5 s.
    ///
    /// # Panics
    /// Its model has gone, as in [`DirtyLimit::jbod`].
    #[must_use]
    pub fn single(kernel: Kernel) -> Self {
        let model = Drive::model("hdd-2011-reduced").and_then(|model| model.with("rate_mb_s = 61"));
        Self {
            kernel,
            hz: 250,
            cpus: 8,
            memory: Bytes::mib(2942),
            disks: 1,
            model: model.expect("the model is weft's own"),
            link: None,
            file_system: FileSystem::Xfs,
            writers: 1,
            block: Bytes::kib(4),
            dirty: Amount::Bytes(100 << 20),
            background: Amount::Percent(10),
            warm_up: Span::secs(5),
            measured: Span::secs(10),
            placebo: Span::ZERO,
            seed: 1,
        }
    }

    /// The 24-CPU machine with ten disks behind a link of 700 MiB/s: otherwise as
    /// [`DirtyLimit::single`], in blocks of 1 MiB.
    #[must_use]
    pub fn jbod(kernel: Kernel) -> Self {
        let model =
            Drive::model("hdd-2011-reduced").and_then(|model| model.with("rate_mb_s = 123"));
        Self {
            cpus: 24,
            memory: Bytes::mib(16384),
            disks: 10,
            model: model.expect("the model is weft's own"),
            link: Some(Bytes::mib(700)),
            block: Bytes::mib(1),
            ..Self::single(kernel)
        }
    }

    /// Limits and kernel of its page cache.
    ///
    /// # Panics
    /// `hz` does not divide 10⁹, or there are no CPUs.
    #[must_use]
    pub fn pool(&self) -> PoolConfig {
        let pages = self.memory.0 / weft_engine::page_cache::PAGE_BYTES;
        PoolConfig {
            ticks: TickRate::new(self.hz),
            dirty: self.dirty,
            background: self.background,
            // What the kernel and its programs took of a GiB then was about an eighth.
            ..PoolConfig::new(self.kernel, self.cpus, pages, pages / 8 * 7)
        }
    }

    /// Runs it.
    ///
    /// # Panics
    /// As [`DirtyLimit::pool`]; without a disk, a writer or a time to measure.
    #[must_use]
    pub fn run(&self) -> Measured {
        world::run(self)
    }
}
