//! Cost of schedulers: insertion, dispatch and completion of a request, on the state machine alone.
//!
//! Every process keeps its number of requests outstanding. A batch, as large as the member's depth
//! and at most 64, is dispatched, completed, and reinserted at other offsets; time advances by 10
//! us a request. No member, no array and no clock is in the loop. A figure is the thread's CPU time
//! for one request. It includes the few nanoseconds of the loop itself, which the figure of `none`
//! shows.
//!
//! Source   io-schedulers.md §3.5; the kernel's hooks under their lock, with two jobs of random
//!          reads on null_blk: 0.64 us (mq-deadline) and 1.8 us (bfq)

use std::hint::black_box;
use std::time::{Duration, Instant};

use weft_engine::knobs::{Knobs, SchedulerKind};
use weft_engine::sched::{BareScheduler, Direction, QueuedRequest, Receipt};
use weft_engine::{Attr, DeviceTraits, Origin};
use weft_units::rng::Rng;
use weft_units::{ClientId, Group, Sectors, Span, Time};

use crate::rounds::{in_turns, thread_cpu};
use crate::{BenchError, Effort, Sheet, SheetRow};

/// Offsets of the requests of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// Random blocks of 4 KiB.
    Random,
    /// Sequential blocks of 4 KiB, which can be merged.
    Sequential,
    /// Sequential requests of 128 KiB.
    Streams,
}

/// Load on a scheduler: its processes and their requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SchedLoad {
    pub(crate) processes: u32,
    /// Number of outstanding requests of each process.
    pub(crate) outstanding: u32,
    pub(crate) pattern: Pattern,
    /// Share of writes, in percent.
    pub(crate) writes: u64,
    /// Largest number of requests that the member holds at once.
    pub(crate) depth: u32,
    /// Whether writes are asynchronous.
    pub(crate) background: bool,
    /// Whether every other process has twice the weight.
    pub(crate) weights: bool,
}

impl SchedLoad {
    /// A load of random reads of 4 KiB by processes of equal weight, at the queue depth of a disk.
    pub(crate) const fn reads(processes: u32, outstanding: u32) -> Self {
        let (pattern, depth) = (Pattern::Random, 32);
        Self {
            processes,
            outstanding,
            pattern,
            writes: 0,
            depth,
            background: false,
            weights: false,
        }
    }

    fn name(&self) -> String {
        let pattern = match self.pattern {
            Pattern::Random => "random 4K",
            Pattern::Sequential => "sequential 4K",
            Pattern::Streams => "sequential 128K",
        };
        let Self { processes, outstanding, writes, depth, .. } = self;
        let of = if self.background { "async writes" } else { "writes" };
        let writes = if *writes > 0 { format!(", {writes} % {of}") } else { String::new() };
        let weights = if self.weights { ", weights 40 and 80" } else { "" };
        format!("{processes} x {outstanding} {pattern}{writes}{weights}, depth {depth}")
    }
}

/// A scheduler with its load.
pub(crate) struct Loaded {
    scheduler: BareScheduler,
    load: SchedLoad,
    now: Time,
    rng: Rng,
    /// Requests by id. An id is the number of the request's process plus a multiple of the number
    /// of processes.
    requests: Vec<QueuedRequest>,
    /// Sector at which the next sequential request of each process begins.
    next: Vec<u64>,
    receipts: Vec<Receipt>,
    ids: Vec<u64>,
    /// Whether the times of insertion, dispatch and completion are measured, in batches of at least
    /// 32 requests; their sums are in `split`.
    timed: bool,
    split: [Duration; 3],
    count: u64,
    /// Number of requests dispatched to the member so far. It is smaller than `count` if requests
    /// were merged.
    dispatched: u64,
}

impl Loaded {
    pub(crate) fn new(knobs: &Knobs, load: SchedLoad) -> Self {
        let device = DeviceTraits { depth: Some(load.depth), ..DeviceTraits::default() };
        let count = load.processes * load.outstanding;
        let mut loaded = Self {
            scheduler: BareScheduler::new(knobs, device),
            load,
            now: Time(0),
            rng: Rng::new(1),
            requests: (0..count).map(|id| request_of(id, load)).collect(),
            next: (0..load.processes).map(|process| u64::from(process) << 32).collect(),
            receipts: Vec::new(),
            ids: (0..u64::from(count)).collect(),
            timed: false,
            split: [Duration::ZERO; 3],
            count: 0,
            dispatched: 0,
        };
        loaded.insert();
        loaded
    }

    /// Processes `count` requests, rounded up to whole batches.
    pub(crate) fn run(&mut self, count: u64) {
        let until = self.count + count;
        let batch = self.load.depth.min(64) as usize;
        // A clock reading costs as much as a request, so small batches are not split.
        let splits = self.timed && batch >= 32;
        while self.count < until {
            let began = splits.then(Instant::now);
            self.dispatch(batch);
            let dispatched = splits.then(Instant::now);
            for receipt in self.receipts.drain(..) {
                self.scheduler.completed(receipt, self.now);
            }
            let completed = splits.then(Instant::now);
            self.count += self.ids.len() as u64;
            self.now = self.now + Span(10_000 * self.ids.len() as u64);
            self.insert();
            if let (Some(began), Some(dispatched), Some(completed)) = (began, dispatched, completed)
            {
                let [insert, dispatch, complete] = &mut self.split;
                *insert += completed.elapsed();
                *dispatch += dispatched - began;
                *complete += completed - dispatched;
            }
        }
    }

    fn dispatch(&mut self, batch: usize) {
        while self.ids.len() < batch {
            match self.scheduler.dispatch(self.now) {
                Some(next) => {
                    self.dispatched += 1;
                    self.receipts.push(next.receipt);
                    self.ids.extend_from_slice(self.scheduler.sent());
                }
                None if !self.receipts.is_empty() => return,
                // The scheduler reserves the member for a process without further requests.
                None => {
                    let wake = self.scheduler.next_wake(self.now);
                    self.now = wake.unwrap_or(self.now).max(self.now + Span(1000));
                }
            }
        }
    }

    fn insert(&mut self) {
        let Self { scheduler, load, now, rng, requests, next, .. } = self;
        for id in self.ids.drain(..) {
            let id = usize::try_from(id).expect("ids count requests");
            let request = &mut requests[id];
            match load.pattern {
                Pattern::Random => request.first = Sectors(rng.below(1 << 30) * 8),
                Pattern::Sequential | Pattern::Streams => {
                    let len = if load.pattern == Pattern::Streams { 256 } else { 8 };
                    let at = &mut next[id % load.processes as usize];
                    (request.first, request.len) = (Sectors(*at), Sectors(len));
                    *at += len;
                }
            }
            if load.writes > 0 {
                let write = rng.percent(load.writes);
                request.direction = if write { Direction::Write } else { Direction::Read };
                request.attr.background = write && load.background;
            }
            scheduler.insert(black_box(request), *now);
        }
    }

    /// CPU time of a request in nanoseconds, measured over `count` requests.
    fn figure(&mut self, count: u64) -> f64 {
        let (began, before) = (thread_cpu(), self.count);
        self.run(count);
        let spent = thread_cpu().saturating_sub(began);
        spent.as_secs_f64() * 1e9 / (self.count - before) as f64
    }

    /// Shares of insertion, dispatch and completion in the measured time; their sum is 1.
    fn parts(&self) -> [f64; 3] {
        let whole: Duration = self.split.iter().sum();
        self.split.map(|part| part.as_secs_f64() / whole.as_secs_f64().max(1e-9))
    }
}

fn request_of(id: u32, load: SchedLoad) -> QueuedRequest {
    let client = id % load.processes;
    let weight = if load.weights { 40 + 40 * (client % 2) as u16 } else { 0 };
    let origin = Origin::Client(ClientId(client), Group::ROOT);
    let attr = Attr { origin, weight, ..Attr::NONE };
    let (direction, first, len) = (Direction::Read, Sectors(0), Sectors(8));
    QueuedRequest { id: u64::from(id), direction, attr, first, len, discard: false, merges: true }
}

/// A scheduler with its knobs, under the name that rows use.
struct SchedCase {
    name: String,
    knobs: Knobs,
}

/// Schedulers to be measured: each of them once, but bfq once with each value of `merge_queues`.
fn ways() -> Vec<SchedCase> {
    let mut ways = Vec::new();
    let base = Knobs::md();
    for kind in SchedulerKind::ALL {
        let knobs = Knobs { scheduler: kind, ..base };
        let merging = ["never", "always"].into_iter().filter_map(|how| {
            let knob = knobs.parse("merge_queues", how).ok()?;
            let mut knobs = knobs;
            knobs.set(knob);
            Some(SchedCase { name: format!("{} merge_queues={how}", kind.name()), knobs })
        });
        let merging: Vec<SchedCase> = merging.collect();
        if kind == SchedulerKind::Bfq && !merging.is_empty() {
            ways.extend(merging);
        } else {
            ways.push(SchedCase { name: kind.name().to_owned(), knobs });
        }
    }
    ways
}

/// Loads to measure: every combination of numbers of processes and of outstanding requests, then
/// variations of two of these loads in depth, pattern, writes and weights. With `quick`, three
/// loads.
fn loads(quick: bool) -> Vec<SchedLoad> {
    let load = SchedLoad::reads;
    if quick {
        return vec![load(6, 4), load(256, 4), load(4096, 1)];
    }
    let mut loads = Vec::new();
    for processes in [1, 6, 32, 256, 4096] {
        loads.extend([1, 4, 32].map(|outstanding| load(processes, outstanding)));
    }
    for processes in [6, 256] {
        let base = load(processes, 4);
        loads.extend([1, 256].map(|depth| SchedLoad { depth, ..base }));
        loads.push(SchedLoad { pattern: Pattern::Sequential, ..base });
        loads.push(SchedLoad { pattern: Pattern::Streams, ..base });
        loads.push(SchedLoad { writes: 30, ..base });
        loads.extend([30, 100].map(|writes| SchedLoad { writes, background: true, ..base }));
        loads.push(SchedLoad { weights: true, ..base });
        loads.push(SchedLoad { weights: true, writes: 30, background: true, ..base });
    }
    loads
}

/// Measures all schedulers and fills the sheet.
///
/// # Errors
/// No scheduler causes an error; the type is common to all benchmarks.
pub fn measure(effort: Effort, sheet: &mut Sheet) -> Result<(), BenchError> {
    let (ways, loads) = (ways(), loads(effort.quick));
    let rounds = effort.rounds(9, 5);
    let count = if effort.quick { 20_000 } else { 100_000 };
    sheet.expect(loads.len());
    sheet.note("unit", "CPU ns of one request: insertion, dispatch, completion");
    for load in loads {
        sheet.now(&load.name());
        let mut loaded: Vec<Loaded> =
            ways.iter().map(|way| Loaded::new(&way.knobs, load)).collect();
        loaded.iter_mut().for_each(|loaded| loaded.run(count / 2));
        loaded.iter_mut().for_each(|loaded| loaded.timed = true);
        let mut turns: Vec<_> =
            loaded.iter_mut().map(|loaded| move || Ok(loaded.figure(count))).collect();
        let mut contestants: Vec<crate::rounds::Contestant<'_>> =
            turns.iter_mut().map(|turn| turn as crate::rounds::Contestant<'_>).collect();
        let figures = in_turns(rounds, &mut contestants)?;
        drop(contestants);
        drop(turns);
        add_rows(sheet, load, &ways, &loaded, &figures);
    }
    Ok(())
}

fn add_rows(
    sheet: &mut Sheet,
    load: SchedLoad,
    ways: &[SchedCase],
    loaded: &[Loaded],
    figures: &[Vec<f64>],
) {
    let first = |kind| ways.iter().position(|way: &SchedCase| way.knobs.scheduler == kind);
    let (deadline, bfq) = (first(SchedulerKind::MqDeadline), first(SchedulerKind::Bfq));
    for (index, way) in ways.iter().enumerate() {
        let case = format!("{}, {}", way.name, load.name());
        let kernel = vec![KERNEL_MQ_DEADLINE_NS; figures[index].len()];
        let (baseline, mark) = match way.knobs.scheduler {
            SchedulerKind::MqDeadline => (Some(("kernel mq-deadline", &kernel[..])), Some(1.0)),
            SchedulerKind::Bfq if bfq == Some(index) => {
                (deadline.map(|it| ("mq-deadline", &figures[it][..])), Some(1.0 / 1.5))
            }
            SchedulerKind::Bfq => {
                (bfq.map(|it| (ways[it].name.as_str(), &figures[it][..])), Some(1.0 / 1.1))
            }
            SchedulerKind::Kyber => {
                (deadline.map(|it| ("mq-deadline", &figures[it][..])), Some(1.0))
            }
            SchedulerKind::None => (None, None),
        };
        let marked = load.pattern == Pattern::Random && load.writes == 0 && !load.weights;
        let row = SheetRow::fewer(&case, "ns", &figures[index], baseline);
        sheet.rows.push(SheetRow {
            bench: sheet.bench,
            ..row.mark(mark.filter(|_| marked)).with_quartiles(&figures[index])
        });
        if way.knobs.scheduler == SchedulerKind::None || load.depth < 32 {
            continue;
        }
        for (part, name) in loaded[index].parts().iter().zip(["insert", "dispatch", "complete"]) {
            let figures: Vec<f64> = figures[index].iter().map(|figure| figure * part).collect();
            let row = SheetRow::fewer(format!("{case}: {name}"), "ns", &figures, None);
            sheet.rows.push(SheetRow { bench: sheet.bench, ..row });
        }
    }
    sheet.step();
}

/// CPU time in nanoseconds per request of the hooks of the kernel's mq-deadline, on this project's
/// machine with two jobs of random reads.
const KERNEL_MQ_DEADLINE_NS: f64 = 640.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocations::allocations;

    /// Under every load and scheduler all requests make progress.
    #[test]
    fn every_process_gets_its_requests_done() {
        for pattern in [Pattern::Random, Pattern::Sequential, Pattern::Streams] {
            for way in ways() {
                for (processes, outstanding, depth) in [(1, 1, 1), (6, 4, 32), (40, 1, 256)] {
                    let base = SchedLoad::reads(processes, outstanding);
                    let load = SchedLoad { pattern, writes: 30, depth, ..base };
                    let mut loaded = Loaded::new(&way.knobs, load);
                    loaded.run(2000);
                    assert!(loaded.count >= 2000);
                    assert_eq!(loaded.ids.len(), 0, "{} {}", way.name, load.name());
                }
            }
        }
    }

    /// A warm scheduler does not allocate for requests.
    #[test]
    fn no_scheduler_allocates_for_a_request() {
        let random = [(1, 32), (32, 1), (256, 4), (4096, 1)].map(|it| (Pattern::Random, it, 30));
        // Long runs are merged into one request each.
        let merged = [(4, 32), (32, 32)].map(|it| (Pattern::Sequential, it, 0));
        for way in ways() {
            for (pattern, (processes, outstanding), writes) in random.into_iter().chain(merged) {
                let base = SchedLoad::reads(processes, outstanding);
                let load = SchedLoad { pattern, writes, ..base };
                let mut loaded = Loaded::new(&way.knobs, load);
                let before = allocations();
                loaded.run(60_000);
                let (warm, dispatched) = (allocations(), loaded.dispatched);
                loaded.run(20_000);
                assert_eq!(allocations() - warm, 0, "{}, {}", way.name, load.name());
                // Counterpart: lists that grow to their final size do allocate.
                let grows = loaded.load.processes > 1 || way.knobs.scheduler != SchedulerKind::None;
                assert!(warm > before || !grows, "{}, {}", way.name, load.name());
                let parts = 20_000 / (loaded.dispatched - dispatched);
                let merges = pattern == Pattern::Sequential
                    && way.knobs.scheduler == SchedulerKind::MqDeadline;
                assert!(parts > 4 || !merges, "{parts} parts, {}, {}", way.name, load.name());
            }
        }
    }

    #[test]
    fn names_of_loads_tell_them_apart() {
        let mut names: Vec<String> = loads(false).iter().map(SchedLoad::name).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!((names.len(), count), (33, 33));
    }
}
