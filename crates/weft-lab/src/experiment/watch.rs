//! Course of a run in virtual time: ticks, warm-up and stationarity.
//!
//! A machine runs in ticks of virtual time. After each tick the progress of every process is
//! recorded, which does not affect the run. An endless load is measured after a warm-up of a fifth
//! of its time, and is extended if the measured part has not settled.
//!
//! Source   experiments.md §4 (5)

use weft_engine::StripeWaits;
use weft_engine::sched::bfq::{BfqStats, IdleReason};
use weft_sim::machine::{History, Machine, Ran, Traffic};
use weft_units::{Span, Time};

use super::metric::Metric;
use crate::statistics::Stationarity;

/// Length of a tick, in virtual time.
pub const TICK: Span = Span::millis(100);

/// Factor by which a run that has not settled may be extended, at most.
const EXTENSIONS_MAX: u64 = 4;

/// Totals over the time of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Series {
    /// Totals at the end of each [`TICK`].
    pub points: Vec<Totals>,
}

/// Totals of all processes and members since the start of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Bytes that the load counts as done.
    pub bytes: u64,
    /// Bytes that members read.
    pub read: u64,
    /// Bytes that members wrote.
    pub written: u64,
    /// Number of read requests to members.
    pub reads: u64,
    /// Number of write requests to members.
    pub writes: u64,
    /// Number of flush requests to members.
    pub flushes: u64,
    /// CPU time of the engine's thread, in ns.
    pub engine: u64,
}

/// Internal state of a machine over a whole run: stripes by state, waits and member traffic.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inside {
    /// Stripes by state, commands at the disks, and work of disks and engine, over time; `None` if
    /// the machine was not sampled.
    pub history: Option<History>,
    /// Waiting times of stripes that were preread, and of stripes that writes filled before.
    pub waits: StripeWaits,
    /// Numbers of requests and of sectors, member by member.
    pub members: Vec<Traffic>,
    /// Statistics of the decisions of `bfq`, member by member; empty under other schedulers.
    pub bfq: Vec<BfqStats>,
    /// Virtual time of the whole run.
    pub time: Span,
}

impl Inside {
    pub(super) fn of(machine: &Machine) -> Self {
        let waits = &machine.host.snapshot().volumes[0].raid.stripe_waits;
        Self {
            history: machine.host.history().cloned(),
            waits: waits.clone(),
            members: machine.host.traffic().collect(),
            bfq: machine.host.bfq_stats().copied().collect(),
            time: machine.host.now().since(Time(0)),
        }
    }

    /// Metrics of waits for prereads, commands in the drives, and `bfq`.
    pub(super) fn metrics(&self) -> [(Metric, f64); 9] {
        let preread = &self.waits.preread;
        let [p999, most] = [preread.permille(999), preread.longest()];
        let millis = |span: Span| span.0 as f64 / 1e6;
        let all = self.history.as_ref().and_then(|history| history.joined(1).pop());
        let at_disk = all.map_or(0.0, |all| all.mean(all.at_disks));
        let kept = |reason| self.part_of_time(|stats| stats.plugged[reason as usize]);
        let seconds = self.time.0.max(1) as f64 / 1e9;
        [
            (Metric::PrereadWaitP999, millis(p999)),
            (Metric::PrereadWaitMax, millis(most)),
            (Metric::AtDisk, at_disk),
            (Metric::Plugged, self.part_of_time(|stats| stats.withheld)),
            (Metric::KeptForWeight, kept(IdleReason::Asymmetric)),
            (Metric::KeptForRaised, kept(IdleReason::Raised)),
            (Metric::KeptAlone, kept(IdleReason::Alone)),
            (
                Metric::Injected,
                self.bfq.iter().map(|stats| stats.injected).sum::<u64>() as f64 / seconds,
            ),
            (Metric::QueueMerges, self.queue_merges()),
        ]
    }
}

impl Inside {
    /// Share of the time that `bfq` spent in a state, in percent, averaged over the members.
    fn part_of_time(&self, of: impl Fn(&BfqStats) -> Span) -> f64 {
        let kept: u64 = self.bfq.iter().map(|stats| of(stats).0).sum();
        let time = self.time.0.max(1) as f64 * self.bfq.len().max(1) as f64;
        kept as f64 / time * 100.0
    }

    /// Number of merges of `bfq` queues per second, over all members.
    fn queue_merges(&self) -> f64 {
        let merged = self.bfq.iter().map(|of| {
            of.merges_in_service + of.merges_by_position + of.merges_followed + of.merges_stable
        });
        merged.sum::<u64>() as f64 / (self.time.0.max(1) as f64 / 1e9)
    }
}

impl Totals {
    /// Totals of a machine; `bytes` is the progress of its load.
    pub(super) fn of(machine: &Machine, bytes: u64) -> Self {
        let engine = machine.host.engine_work().0;
        let mut totals = Self { bytes, engine, ..Self::default() };
        for member in machine.host.traffic() {
            totals.read += member.sectors_read * 512;
            totals.written += member.sectors_written * 512;
            totals.reads += member.reads;
            totals.writes += member.writes;
            totals.flushes += member.flushes;
        }
        totals
    }

    /// Growth of the totals since `then`.
    #[must_use]
    pub fn since(&self, then: &Self) -> Self {
        Self {
            bytes: self.bytes - then.bytes,
            read: self.read - then.read,
            written: self.written - then.written,
            reads: self.reads - then.reads,
            writes: self.writes - then.writes,
            flushes: self.flushes - then.flushes,
            engine: self.engine - then.engine,
        }
    }

    /// KiB read by members for each MiB done.
    pub(super) fn prereads(&self) -> f64 {
        self.read as f64 * 1024.0 / self.bytes.max(1) as f64
    }

    /// Mean size of a request to a member, in KiB.
    pub(super) fn member_request(&self) -> f64 {
        (self.read + self.written) as f64 / 1024.0 / (self.reads + self.writes).max(1) as f64
    }
}

impl Series {
    /// Runs until all processes have ended or until time `until`. `bytes` returns the progress of
    /// the load and is called after each tick.
    pub(super) fn watch(
        &mut self,
        machine: &mut Machine,
        until: Time,
        mut bytes: impl FnMut(&Machine) -> u64,
    ) {
        while !machine.is_over() {
            let at = Time(TICK.0 * (self.points.len() as u64 + 1)).min(until);
            assert_ne!(machine.run(at), Ran::Stuck, "a process waits, but no event is left");
            self.points.push(Totals::of(machine, bytes(machine)));
            if at == until {
                return;
            }
        }
    }

    /// Runs for a warm-up of a fifth of `time`, then for `time`. While the run has not settled, its
    /// time is doubled, up to [`longest`]. `bytes` returns the progress of the load. Returns the
    /// results after the warm-up.
    pub(super) fn watch_steady(
        &mut self,
        machine: &mut Machine,
        time: Span,
        mut bytes: impl FnMut(&Machine) -> u64,
    ) -> Steady {
        let begins = Time(0) + warm_up(time);
        self.watch(machine, begins, &mut bytes);
        let before = Totals::of(machine, bytes(machine));
        let first = self.points.len();
        let mut measured = time;
        loop {
            self.watch(machine, begins + measured, &mut bytes);
            let mut last = before.bytes;
            let rates: Vec<f64> = self.points[first..]
                .iter()
                .map(|point| {
                    let rate = point.bytes - last;
                    last = point.bytes;
                    rate as f64
                })
                .collect();
            // A run too short to judge whether it has settled counts as unsettled.
            let settled = Stationarity::of(&rates).is_ok_and(|found| found.holds());
            if settled || measured.0 >= longest(time).0 {
                let done = Totals::of(machine, bytes(machine)).since(&before);
                return Steady { done, measured, settled };
            }
            measured = Span(measured.0 * 2);
        }
    }
}

/// Results of the measured part of an endless run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steady {
    pub(super) done: Totals,
    pub(super) measured: Span,
    pub(super) settled: bool,
}

impl Steady {
    pub(super) fn seconds(&self) -> f64 {
        self.measured.0 as f64 / 1e9
    }

    /// Throughput in 10^6 bytes per second.
    pub(super) fn throughput(&self) -> f64 {
        self.done.bytes as f64 / 1e6 / self.seconds()
    }

    /// Share of the time in which the engine's thread worked, in percent.
    pub(super) fn engine_busy(&self) -> f64 {
        self.done.engine as f64 / self.measured.0 as f64 * 100.0
    }
}

/// Length of the warm-up of an endless run, before it is measured for `time`.
pub(super) fn warm_up(time: Span) -> Span {
    Span(time.0 / 5)
}

/// Longest time for which an endless run is measured if it has not settled after `time`.
pub(super) fn longest(time: Span) -> Span {
    Span(time.0 * EXTENSIONS_MAX)
}
