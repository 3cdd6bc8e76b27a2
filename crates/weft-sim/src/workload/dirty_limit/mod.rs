//! Workload of patch 001: endless `dd`s on the disks of a box, under a limit of dirty pages.
//!
//! A box is a page cache over disks of one model, each with a file system and a flusher of its own,
//! without an array, a volume or an engine's queue. [`DirtyLimit`] describes the box and its
//! writers; [`DirtyLimit::run`] runs it and returns the results ([`Measured`]):
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
//! | writers, flushers, logs and the order of events | `world.rs` |
//! | requests of a disk, merged and sorted | `disk.rs` |
//! | positions of files and of the log | `places.rs` |
//! | results in a window of time, samples | `measured.rs` |
//!
//! Disks behind one adapter share its link, which transfers the data of one request after the
//! other. Each disk thus gets the link's rate divided by the number of busy disks, or its own rate
//! if that is less.
//!
//! A writer spends 4 µs on each page, and 1 µs on each call of `write`. It runs on a CPU of its
//! own; it shares a CPU with other writers only for the kernel's count of dirtied pages. Writing
//! back a page costs its thread 2 µs. Submitting a request to a disk costs 10 µs, and so does
//! waking a flusher. Not modelled: `nr_requests` in batches, CFQ's slices, the memory that programs
//! take, errors of per-CPU counters.
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

/// A box, its writers and the duration of a run.
#[derive(Clone, Debug)]
pub struct DirtyLimit {
    /// Kernel of the box, which determines the behaviour of the page cache.
    pub kernel: Kernel,
    /// Timer ticks per second (`HZ`); a divisor of 10⁹.
    pub hz: u32,
    /// Number of CPUs, to which writers are assigned in turn.
    pub cpus: u32,
    /// Size of the box's memory.
    pub memory: Bytes,
    /// Number of disks, each with a file system of its own.
    pub disks: u16,
    /// Model of the disks.
    pub model: Model,
    /// Bytes per second of the link that the disks share; `None` if each disk has a link of its
    /// own.
    pub link: Option<Bytes>,
    /// File system of each disk.
    pub file_system: FileSystem,
    /// Number of writers per disk, each with a file of its own.
    pub writers: u32,
    /// Bytes of each call of `write`, in whole pages.
    pub block: Bytes,
    /// `vm.dirty_bytes` or `vm.dirty_ratio`.
    pub dirty: Amount,
    /// `vm.dirty_background_bytes` or `vm.dirty_background_ratio`.
    pub background: Amount,
    /// Time after the start of the run that is not counted.
    pub warm_up: Span,
    /// Time after the warm-up that is counted; not zero.
    pub measured: Span,
    /// Additional time for submitting a request. It models nothing in a kernel, and only changes
    /// the order of events.
    pub placebo: Span,
    /// Seed of the angles of the platters and of the times at which writers start.
    pub seed: u64,
}

impl DirtyLimit {
    /// The measured 8-CPU machine with one disk of about the measured rate. The dirty limit is 100
    /// MiB, and one writer writes 4 KiB at a time on XFS. 10 s are measured after 5 s of warm-up.
    ///
    /// # Panics
    /// Panics if weft does not have the drive model any more, as [`DirtyLimit::jbod`] does.
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

    /// The measured 24-CPU machine with ten disks behind a link of 700 MiB/s. Writers write 1 MiB
    /// at a time; everything else is as in [`DirtyLimit::single`].
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

    /// Configuration of the box's page cache.
    ///
    /// # Panics
    /// Panics if `hz` does not divide 10⁹, or if there are no CPUs.
    #[must_use]
    pub fn pool(&self) -> PoolConfig {
        let pages = self.memory.0 / weft_engine::page_cache::PAGE_BYTES;
        PoolConfig {
            ticks: TickRate::new(self.hz),
            dirty: self.dirty,
            background: self.background,
            // The kernel and its programs took about an eighth of the memory then.
            ..PoolConfig::new(self.kernel, self.cpus, pages, pages / 8 * 7)
        }
    }

    /// Runs the box for the warm-up and the measured time, and returns the results.
    ///
    /// # Panics
    /// Panics as [`DirtyLimit::pool`] does, and if there are no disks, no writers or no measured
    /// time.
    #[must_use]
    pub fn run(&self) -> Measured {
        world::run(self)
    }
}
