//! Workload of `dd` beside writers of single blocks.
//!
//! `dd` streams onto the front half of the device, through its page cache. Each writer writes
//! blocks of 4 KiB to random places of the back half, with direct I/O, and waits for each answer.
//! The work of all processes is fixed, so a policy cannot gain by delaying the writers until `dd`
//! is done.

use weft_engine::{Flags, RequestOp};
use weft_units::rng::Rng;
use weft_units::{ByteRange, Bytes, Span, Time};

use super::dd::Dd;
use super::jobs::{Ask, Found, Io, Job, Pace};
use crate::machine::{Machine, Pid};

/// Parameters of the workload.
#[derive(Clone, Copy, Debug)]
pub struct Mixed {
    /// Number of MiB that `dd` writes, in blocks of 1 MiB.
    pub mib: u64,
    /// Number of writers of single blocks.
    pub writers: u64,
    /// Number of writes of each writer.
    pub writes: u64,
    /// Whether the writes carry the `sync` flag, as those of `O_DIRECT` do today, so that the
    /// stripe of such a write is preread at once. The md of 2008 had no such flag.
    pub sync_flag: bool,
    /// Seed of the writers' offsets.
    pub seed: u64,
}

/// The processes of the workload on a machine.
#[derive(Clone, Debug)]
pub struct Running {
    dd: Pid,
    writers: Vec<Pid>,
}

/// Latencies of the writers' requests.
#[derive(Clone, Debug)]
pub struct Answers {
    /// Mean latency of the requests.
    pub mean: Span,
    /// Latency that 99 % of the requests do not exceed.
    pub p99: Span,
}

impl Mixed {
    /// Adds the processes to a machine that has a page cache for its device.
    ///
    /// # Panics
    /// Panics if the device is too small for `dd` to stay in its front half.
    pub fn add_to(self, machine: &mut Machine) -> Running {
        let blocks = machine.host.size().0 / BLOCK.0 / 2;
        assert!(Bytes::mib(self.mib).0 <= blocks * BLOCK.0, "dd stays in the front half");
        let dd = machine.add_with(|pid| Box::new(Dd::new(pid, Bytes::mib(1), self.mib)));
        let writers = (1..=self.writers).map(|writer| {
            let mut rng = Rng::new(self.seed ^ (writer << 40));
            let asks = (0..self.writes).map(move |_| {
                let range = ByteRange::new((blocks + rng.below(blocks)) * BLOCK.0, BLOCK.0);
                let io = Io { op: RequestOp::Write, range };
                let flags = Flags { sync: self.sync_flag, ..Flags::NONE };
                Ask { io, flags, due: Span::ZERO }
            });
            machine.add_with(|pid| Box::new(Job::of(pid, Pace::depth(1), Box::new(asks))))
        });
        Running { dd, writers: writers.collect() }
    }
}

impl Running {
    /// The process `dd`, with its times.
    #[must_use]
    pub fn dd<'a>(&self, machine: &'a Machine) -> &'a Dd {
        machine.process(self.dd)
    }

    /// Number of bytes written so far: by `dd` to the page cache, and by the writers to the volume.
    #[must_use]
    pub fn done(&self, machine: &Machine) -> Bytes {
        let of = |job: &Job| job.found(RequestOp::Write).bytes.0;
        Bytes(self.dd(machine).done().0 + self.jobs(machine).map(of).sum::<u64>())
    }

    /// Time at which the last process was done; `None` if `dd` is not done. To be called after the
    /// run has ended.
    #[must_use]
    pub fn ended(&self, machine: &Machine) -> Option<Time> {
        let closed = self.dd(machine).closed?;
        Some(self.jobs(machine).map(|job| Time(0) + job.measured()).fold(closed, Time::max))
    }

    /// Latencies of the writers' requests.
    #[must_use]
    pub fn answers(&self, machine: &Machine) -> Answers {
        let found: Found = self.jobs(machine).map(|job| job.found(RequestOp::Write)).sum();
        Answers { mean: found.mean(), p99: found.p99() }
    }

    fn jobs<'a>(&'a self, machine: &'a Machine) -> impl Iterator<Item = &'a Job> {
        self.writers.iter().map(|pid| machine.process(*pid))
    }
}

const BLOCK: Bytes = Bytes::kib(4);
