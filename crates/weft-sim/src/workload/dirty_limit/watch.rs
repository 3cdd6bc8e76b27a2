//! Sampler of a box: samples over the whole run, and sums over the window of time that is measured.

use std::cell::RefCell;
use std::rc::Rc;

use weft_engine::page_cache::BdiId;
use weft_units::{Span, Time, VolumeId};

use super::measured::{Measured, Record, Sample, jain};
use crate::machine::{Host, Pid, Process, Woken};

/// Time between two samples.
const SAMPLE_EVERY: Span = Span::millis(100);

/// A process that samples the machine and uses no CPU time.
#[derive(Debug)]
pub(super) struct Watch {
    pid: Pid,
    record: Rc<RefCell<Record>>,
    /// Time at which the window begins. `before` has the sums up to then.
    window: Time,
    before: Before,
    /// Time of the next sample.
    next: Time,
    /// Idle time of each disk up to the last sample.
    idle: Vec<Span>,
    samples: Vec<Sample>,
}

/// Sums from the start of the run to the start of the window.
#[derive(Clone, Debug, Default)]
struct Before {
    written: u64,
    dirtied: Vec<u64>,
    disks: Vec<DiskSums>,
}

/// Totals of a disk since the start of the run: idle time, sectors read and written, and jumps.
#[derive(Clone, Copy, Debug)]
struct DiskSums {
    idle: Span,
    sectors: u64,
    /// Number of commands that did not follow the preceding one.
    jumps: u64,
}

impl Watch {
    /// A sampler with a window that begins at the time `window`.
    pub(super) fn new(pid: Pid, window: Time, record: Rc<RefCell<Record>>) -> Self {
        let (before, next) = (Before::default(), Time(0) + SAMPLE_EVERY);
        Self { pid, record, window, before, next, idle: Vec::new(), samples: Vec::new() }
    }

    fn window_begins(&mut self, host: &Host) {
        let mut record = self.record.borrow_mut();
        record.in_window = true;
        self.before = Before {
            written: host.written_pages(),
            dirtied: record.dirtied.clone(),
            disks: sums(host, host.now()),
        };
    }

    fn sample(&mut self, host: &Host) {
        let now = host.now();
        let disks = (0..host.volumes()).map(|disk| disk as u16);
        let idle: Vec<Span> = disks.clone().map(|disk| host.idle(VolumeId(disk), now)).collect();
        self.idle.resize(idle.len(), Span::ZERO);
        let busy = idle.iter().zip(&self.idle);
        let busy = busy.map(|(now, then)| 1.0 - part(now.0 - then.0, SAMPLE_EVERY)).collect();
        let pool = host.page_cache().pool();
        self.samples.push(Sample {
            at: now,
            all: pool.counts(),
            disks: disks.map(|disk| pool.bdi_counts(BdiId(disk)).total()).collect(),
            busy,
            written: host.written_pages(),
            pause_max: self.record.borrow_mut().latest(),
        });
        self.idle = idle;
    }

    /// Results of a run that ended at `end`.
    pub(super) fn measured(&self, host: &Host, end: Time) -> Measured {
        let window = end.since(self.window);
        let pages = host.written_pages() - self.before.written;
        let sums = sums(host, end);
        let pairs = || sums.iter().zip(&self.before.disks);
        let run = |(now, then): (&DiskSums, &DiskSums)| {
            (now.sectors - then.sectors) as f64 * 512.0 / (now.jumps - then.jumps).max(1) as f64
        };
        let record = self.record.borrow();
        let dirtied = record.dirtied.iter().zip(&self.before.dirtied);
        let dirtied: Vec<u64> = dirtied.map(|(now, then)| now - then).collect();
        let thresholds = host.page_cache().pool().thresholds();
        Measured {
            mib_per_second: pages as f64 / 256.0 * 1e9 / window.0 as f64,
            pages,
            pages_since_start: host.written_pages(),
            idle: pairs().map(|(now, then)| part(now.idle.0 - then.idle.0, window)).collect(),
            run_bytes: pairs().map(run).collect(),
            jain: jain(&dirtied),
            pause_p99: record.pause_p99(),
            pause_max: record.pause_max(),
            dirty_max: record.dirty_max,
            limit: thresholds.dirty,
            free_run: thresholds.free_run(),
            flushes: host.flushes_asked(),
            samples: self.samples.clone(),
            pauses: record.first.clone(),
        }
    }
}

fn sums(host: &Host, at: Time) -> Vec<DiskSums> {
    let of = |(traffic, volume): (crate::machine::Traffic, u16)| DiskSums {
        idle: host.idle(VolumeId(volume), at),
        sectors: traffic.sectors_read + traffic.sectors_written,
        jumps: traffic.jumps,
    };
    host.traffic().zip(0..).map(of).collect()
}

fn part(of: u64, all: Span) -> f64 {
    of as f64 / all.0 as f64
}

impl Process for Watch {
    fn run(&mut self, host: &mut Host, woken: Woken) {
        if woken == Woken::Started {
            host.wake_at(self.pid, self.window);
            host.wake_at(self.pid, self.next);
            return;
        }
        let now = host.now();
        if now >= self.window && !self.record.borrow().in_window {
            self.window_begins(host);
        }
        if now >= self.next {
            self.sample(host);
            self.next = now + SAMPLE_EVERY;
            host.wake_at(self.pid, self.next);
        }
    }

    fn is_done(&self) -> bool {
        true
    }
}
