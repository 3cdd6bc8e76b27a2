//! Workload of patch 001: endless `dd`s on the disks of a box (a computer with its disks), under a
//! limit of dirty pages.
//!
//! A box is a [`Machine`] of disks of one model under one page cache. Each disk is a volume of its
//! own, with a file system and a flusher. [`DirtyLimit`] describes the box and its writers;
//! [`DirtyLimit::run`] runs it and returns the results ([`Measured`]):
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
//! | writers | `writer.rs` |
//! | log of a file system | `log.rs` |
//! | positions of files | `places.rs` |
//! | samples, and sums over a window of time | `watch.rs` |
//! | results | `measured.rs` |
//!
//! Disks have queues of 128 requests of at most 512 KiB with mq-deadline, which sends writes in one
//! direction as the schedulers of that time did. Writes of a log are of the real-time class,
//! because CFQ served them first. A thread that submits a request sleeps while the queue has no
//! room. Disks behind one adapter share its link, which transfers the data of one request after the
//! other. Each disk thus gets the link's rate divided by the number of busy disks, or its own rate
//! if that is less.
//!
//! A writer spends 4 µs on each page, and 1 µs on each call of `write`. It runs on a CPU of its
//! own; it shares a CPU with other writers only for the kernel's count of dirtied pages. Writing
//! back a page costs its thread 2 µs, and submitting a request 10 µs. Waking a thread takes no
//! time. Not modelled: `nr_requests` in batches, CFQ's slices, the memory that programs take,
//! errors of per-CPU counters.
//!
//! Source   writeback.md §4, §6.1; experiments.md §1.2

mod log;
mod measured;
mod places;
#[cfg(test)]
mod tests;
mod watch;
mod writer;

use std::cell::RefCell;
use std::rc::Rc;

use weft_engine::Class;
use weft_engine::knobs::{Knobs, SchedulerKind};
use weft_engine::page_cache::{Amount, Kernel, PAGE_BYTES, PoolConfig, TickRate};
use weft_units::rng::Rng;
use weft_units::{Bytes, Span, Time, VolumeId};

use self::log::{LOG_EVERY, LogThread};
use self::measured::Record;
use self::places::Layout;
use self::watch::Watch;
use self::writer::Writer;
use crate::drive::{Drive, Model};
use crate::machine::{Costs, Machine, MachineParts, PageCacheParts};

pub use measured::{Measured, Pause, Sample};
pub use places::FileSystem;

/// CPU time to write back a page: changing its state, looking up its position, adding it to a
/// request. `HAND_OVER` is the CPU time to submit a request.
const WRITE_OUT_COST: Span = Span(2_000);
const HAND_OVER: Span = Span(10_000);
/// Largest size of a request (`max_sectors_kb`). `REQUESTS_MAX` is the largest number of requests
/// in a disk's queue and at the disk together (`nr_requests`).
const REQUEST: Bytes = Bytes(512 << 10);
const REQUESTS_MAX: u32 = 128;
/// Time between the starts of successive writers.
const START: Span = Span::millis(1);

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
        assert!(self.disks > 0 && self.writers > 0, "there are disks and writers");
        assert!(self.measured > Span::ZERO, "the measured time is not zero");
        assert!(
            self.block.0 > 0 && self.block.0.is_multiple_of(PAGE_BYTES),
            "blocks of whole pages"
        );
        let mut machine = self.machine();
        let record = Rc::new(RefCell::new(Record::new(self.writers * u32::from(self.disks))));
        let window = Time(0) + self.warm_up;
        self.add_writers(&mut machine, &record);
        let watch = machine.add_with(|pid| Box::new(Watch::new(pid, window, record)));
        let end = window + self.measured;
        machine.run(end);
        machine.process::<Watch>(watch).measured(&machine.host, end)
    }

    /// The box without its writers: disks, page cache, flushers and logs.
    fn machine(&self) -> Machine {
        let knobs = Knobs {
            scheduler: SchedulerKind::MqDeadline,
            nr_requests: REQUESTS_MAX,
            max_sectors: REQUEST,
            ..Knobs::md()
        };
        let mut machine = Machine::of_disks(&MachineParts {
            level: None,
            model: self.model.clone(),
            members: self.disks,
            chunk: REQUEST.sectors_floor(),
            member_size: None,
            knobs,
            write_back: None,
            sync: None,
            costs: Costs { bio: HAND_OVER.0 + self.placebo.0, ..Costs::ZERO },
            flush_hop: Span::ZERO,
            seed: self.seed,
        });
        if let Some(link) = self.link {
            machine.host.share_link(link);
        }
        let size = machine.host.size();
        let layout = Layout::new(self.file_system, self.disks, self.writers, size.sectors_floor());
        machine.add_page_cache_of(PageCacheParts {
            pool: self.pool(),
            places: Box::new(layout),
            bio: REQUEST,
            page: WRITE_OUT_COST,
            sleeps_for_token: true,
        });
        for disk in 0..self.disks {
            // The disks commit one after the other.
            let first = Time(LOG_EVERY.0 - LOG_EVERY.0 / u64::from(self.disks) * u64::from(disk));
            let volume = VolumeId(disk);
            let log = |pid| LogThread::new(pid, volume, self.file_system, size, first);
            let log = machine.add_with(|pid| Box::new(log(pid)));
            machine.host.set_class(log, Class::RealTime(0));
        }
        machine
    }

    /// Adds the writers: the first of each disk, then the second of each, and so on. They start one
    /// millisecond apart, each at a random time within its millisecond.
    fn add_writers(&self, machine: &mut Machine, record: &Rc<RefCell<Record>>) {
        let mut rng = Rng::new(self.seed);
        for nth in 0..self.writers * u32::from(self.disks) {
            let volume = VolumeId((nth % u32::from(self.disks)) as u16);
            let start = Time(u64::from(nth) * START.0 + rng.below(START.0));
            let (on, does) = ((nth % self.cpus, volume), (start, self.block));
            machine.add_with(|pid| Box::new(Writer::new(pid, nth, on, does, Rc::clone(record))));
        }
    }
}
