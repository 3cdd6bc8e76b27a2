//! Fio jobs on a simulated volume.
//!
//! Each clone of a job is a process of the machine. Jobs run together up to a job with `stonewall`,
//! which waits for all jobs before it. Every option that the parser accepts either takes effect
//! here or is an error that names it. A request's latency is the time from submission to
//! completion; a late submission under a rate is not added to the latency, as in fio.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use weft_engine::page_cache::PoolConfig;
use weft_engine::{Class, Flags, RequestOp};
use weft_sim::machine::{Machine, Pid};
use weft_sim::workload::dd;
use weft_sim::workload::jobs::{Ask, Buffered, Device, Ended, Io, Job as Direct, Pace, Plug};
use weft_units::{ByteRange, Bytes, Span, Time};

use super::pace::Rates;
use super::{Outcome, SimulateError, Stop, Volume, Watch, run_watched};
use crate::fio_json::JobResult;
use crate::job::generate::{self, Generator};
use crate::job::{Blocks, Direction, Engine, Job, JobError, Sync};

/// Runs jobs on a new volume that is in sync.
///
/// # Errors
/// A job does not fit the volume, or no such volume exists.
pub fn run(volume: &Volume, jobs: &[Job], watch: Watch<'_>) -> Result<Outcome, SimulateError> {
    let mut machine = volume.machine()?;
    let clones = plan(jobs, machine.host.size(), volume.seed)?;
    let device = jobs.iter().any(is_buffered).then(|| add_page_cache(&mut machine, volume));
    let count = clones.len();
    let mut runs: Vec<Run> = Vec::new();
    let mut stop = Stop::Done;
    let mut clones = clones.into_iter().peekable();
    while clones.peek().is_some() && stop == Stop::Done {
        let mut any = false;
        while let Some(clone) = clones.next_if(|next| !(any && next.first && next.job.stonewall)) {
            runs.push(start(&mut machine, volume, device.as_ref(), clone));
            any = true;
        }
        let done = |now: Time| runs.iter().map(|run| run.done(now)).sum::<f64>() / count as f64;
        stop = run_watched(&mut machine, &done, watch)?;
    }
    let results = runs.iter().map(|run| run.result(&machine, stop)).collect();
    Ok(Outcome::of(&machine, volume, together(jobs, results), stop))
}

/// One of the `numjobs` clones of a job, before it starts.
struct Clone<'a> {
    job: &'a Job,
    /// Whether the clone is the first of its job.
    first: bool,
    number: u32,
    requests: Generator,
    rates: Rates,
    goal: Goal,
}

/// Condition under which a clone is done.
#[derive(Clone, Copy, Debug)]
enum Goal {
    Bytes(u64),
    Time(Span),
}

/// Prepares all clones, so any error in the jobs is found before the first request.
fn plan(jobs: &[Job], size: Bytes, seed: u64) -> Result<Vec<Clone<'_>>, SimulateError> {
    let mut clones = Vec::new();
    for (place, job) in (0_u64..).zip(jobs) {
        check(job)?;
        let all = clones.len() as u64 + u64::from(job.clone_count);
        if all > CLONES_MAX {
            return Err(SimulateError::Job(JobError::Job {
                job: job.name.clone(),
                option: "numjobs".to_owned(),
                found: format!("{all} jobs in all"),
                expected: format!("at most {CLONES_MAX}, as many as fio has"),
            }));
        }
        // The generator issues no final fsyncs: `last_flushes` of the pace issues them, so that
        // they also follow a job that ends by its run time.
        let mut asked = job.clone();
        (asked.durability.end_fsync, asked.durability.fsync_on_close) = (false, false);
        for number in 0..job.clone_count {
            let seed = seed ^ place.wrapping_mul(0xd1b5_4a32_d192_ed03);
            let requests = Generator::new(&asked, number, size, seed)?;
            let rates = Rates::new(&job.pace, seed ^ u64::from(number) << 32);
            let goal = match job.pace.runtime {
                Some(time) if job.pace.time_based => {
                    Goal::Time(Span(job.start_delay.0 + job.pace.ramp_time.0 + time.0))
                }
                _ => Goal::Bytes(requests.bytes().unwrap_or(u64::MAX)),
            };
            clones.push(Clone { job, first: number == 0, number, requests, rates, goal });
        }
    }
    Ok(clones)
}

/// Largest number of clones in a simulation.
///
/// Source   fio(1), `--max-jobs`
const CLONES_MAX: u64 = 4096;

/// Returns an error if the job goes through the page cache with blocks that are not whole pages of
/// 4096 bytes.
fn check(job: &Job) -> Result<(), JobError> {
    let fault = |option: &str, found: String, expected: &str| {
        let (option, expected) = (option.to_owned(), expected.to_owned());
        Err(JobError::Job { job: job.name.clone(), option, found, expected })
    };
    if is_buffered(job) {
        let odd = |blocks: &Blocks| -> Option<u64> {
            let sizes: Vec<Bytes> = match blocks {
                Blocks::Range { low, .. } => vec![*low],
                Blocks::Split(sizes) => sizes.iter().map(|(size, _)| *size).collect(),
            };
            sizes.iter().map(|size| size.0).find(|size| !size.is_multiple_of(4096))
        };
        let used = job.pattern.directions.iter().map(|way| &job.pattern.blocks[*way as usize]);
        if let Some(odd) = used.into_iter().find_map(odd) {
            let expected = "whole pages of 4096 bytes, or direct=1";
            return fault("bs", format!("{odd} bytes"), expected);
        }
    }
    Ok(())
}

/// Whether the job goes through the page cache. A trim always bypasses it.
fn is_buffered(job: &Job) -> bool {
    !job.submission.direct && job.pattern.directions != [Direction::Trim]
}

fn add_page_cache(machine: &mut Machine, volume: &Volume) -> Device {
    let pages = volume.memory.0 / 4096;
    // The kernel and its programs take about an eighth of memory.
    let config = PoolConfig::new(volume.kernel, volume.cpus, pages, pages / 8 * 7);
    machine.add_page_cache(config, Box::new(dd::Device), BIO);
    Device::new(&mut machine.host, usize::try_from(pages / 8 * 7).unwrap_or(usize::MAX))
}

/// Largest request of writeback.
///
/// Source   Linux `BIO_MAX_VECS`, 256 pages of 4 KiB
const BIO: Bytes = Bytes(1 << 20);

/// A clone during and after its run.
struct Run<'a> {
    job: &'a Job,
    pid: Pid,
    buffered: bool,
    found: Rc<RefCell<JobResult>>,
    bytes: Rc<Cell<u64>>,
    goal: Goal,
    started: Time,
}

fn start<'a>(
    machine: &mut Machine,
    volume: &Volume,
    device: Option<&Device>,
    clone: Clone<'a>,
) -> Run<'a> {
    let Clone { job, number, requests, goal, rates, .. } = clone;
    let started = machine.host.now();
    let found = Rc::new(RefCell::new(JobResult::new(job)));
    let bytes = Rc::new(Cell::new(0));
    let counted_from = started + job.start_delay + job.pace.ramp_time;
    let watcher = {
        let found = Rc::clone(&found);
        Box::new(move |ended: &Ended| {
            record(&mut found.borrow_mut(), ended, Span::ZERO, counted_from);
        })
    };
    let flags = flags(job);
    let mut rates = rates;
    let asked = Rc::clone(&bytes);
    let asks = Box::new(requests.map(move |io| ask(io, flags, &mut rates, &asked)));
    let pace = pace(job);
    let buffered = device.filter(|_| is_buffered(job));
    let pid = machine.add_with(|pid| match buffered {
        Some(device) => {
            let cpu = number % volume.cpus.max(1);
            Box::new(Buffered::new(pid, pace, device, cpu, asks).watched(watcher))
        }
        None => Box::new(Direct::of(pid, pace, asks).watched(watcher)),
    });
    machine.host.set_class(pid, class(job));
    Run { job, pid, buffered: buffered.is_some(), found, bytes, goal, started }
}

fn ask(io: generate::Io, flags: Flags, rates: &mut Rates, asked: &Cell<u64>) -> Ask {
    match io {
        generate::Io::DataSync | generate::Io::Sync => {
            let io = Io { op: RequestOp::Flush, range: ByteRange::new(0, 0) };
            Ask { io, flags: Flags::NONE, due: Span::ZERO }
        }
        generate::Io::Transfer { direction, offset, length } => {
            asked.set(asked.get() + length.0);
            let (op, flags) = match direction {
                Direction::Read => (RequestOp::Read, Flags::NONE),
                Direction::Write => (RequestOp::Write, flags),
                Direction::Trim => (RequestOp::Trim, Flags::NONE),
            };
            let due = rates.due(direction, length.0);
            Ask { io: Io { op, range: ByteRange::new(offset.0, length.0) }, flags, due }
        }
    }
}

/// Flags of the job's writes.
fn flags(job: &Job) -> Flags {
    // `O_DSYNC` and `O_SYNC` are equal here: no file changes its size.
    let fua = job.submission.sync != Sync::None;
    Flags { sync: true, fua, ..Flags::NONE }
}

fn pace(job: &Job) -> Pace {
    let submission = &job.submission;
    // Synchronous engines have one request in flight, regardless of the depth.
    let one =
        submission.engine == Engine::Synchronous || job.pattern.directions == [Direction::Trim];
    let depth = if one { 1 } else { submission.depth };
    let plug = if submission.batch <= 1 { Plug::Request } else { Plug::Several(submission.batch) };
    let durability = &job.durability;
    let writes = job.pattern.directions.contains(&Direction::Write);
    let flushes = u32::from(durability.end_fsync) + u32::from(durability.fsync_on_close);
    Pace {
        plug,
        answers: submission.complete_min.clamp(1, depth),
        low: submission.depth_low.min(depth),
        apart: submission.serialize_overlap,
        delay: job.start_delay,
        think: job.pace.think_time,
        think_after: job.pace.think_blocks.max(1),
        warm_up: job.pace.ramp_time,
        run_time: job.pace.runtime,
        last_flushes: if writes { flushes } else { 0 },
        ..Pace::depth(depth)
    }
}

/// Scheduling class of the job's processes.
///
/// Source   ioprio_set(2): classes 1 real time, 2 best effort, 3 idle; a priority alone is of best
///          effort
fn class(job: &Job) -> Class {
    let level = job.class.prio.unwrap_or(4);
    match (job.class.prio_class, job.class.prio) {
        (Some(1), _) => Class::RealTime(level),
        (Some(3), _) => Class::Idle,
        (Some(2), _) | (_, Some(_)) => Class::BestEffort(level),
        _ => Class::None,
    }
}

/// Adds a completed request, which was submitted `late` after it was due, to the result of its job.
/// The rates of the job are sampled in intervals that count from the time `from`.
pub(super) fn record(result: &mut JobResult, ended: &Ended, late: Span, from: Time) {
    let took = ended.ended.since(ended.begun);
    let direction = match ended.io.op {
        RequestOp::Read => Direction::Read,
        RequestOp::Write => Direction::Write,
        RequestOp::Trim | RequestOp::WriteZeroes => Direction::Trim,
        RequestOp::Flush => {
            result.syncs.record(took);
            return;
        }
    };
    result.on_depth(ended.in_flight);
    let of = result.direction(direction);
    of.record(ended.io.range.len, late, took);
    // Rates are sampled every half second.
    let at = usize::try_from(ended.ended.0.saturating_sub(from.0) / SAMPLE.0).unwrap_or(usize::MAX);
    if at < SAMPLES_MAX {
        let seconds = SAMPLE.0 as f64 / 1e9;
        of.bandwidth.resize(of.bandwidth.len().max(at + 1), 0.0);
        of.iops.resize(of.iops.len().max(at + 1), 0.0);
        of.bandwidth[at] += ended.io.range.len.0 as f64 / seconds;
        of.iops[at] += 1.0 / seconds;
    }
}

/// Interval at which the rates of a job are sampled.
///
/// Source   fio's `bwavgtime` and `iopsavgtime`
const SAMPLE: Span = super::sweep::COURSE_STEP;

/// Largest number of samples that are stored, to bound memory: six days at one sample per 500 ms.
const SAMPLES_MAX: usize = 1 << 20;

impl Run<'_> {
    /// Share of the clone's work that is done, 0 to 1.
    fn done(&self, now: Time) -> f64 {
        let fraction = match self.goal {
            Goal::Bytes(bytes) => self.bytes.get() as f64 / bytes.max(1) as f64,
            Goal::Time(time) => now.since(self.started).0 as f64 / time.0.max(1) as f64,
        };
        fraction.min(1.0)
    }

    fn result(&self, machine: &Machine, stop: Stop) -> JobResult {
        let mut result = self.found.borrow().clone();
        let (measured, batches) = if self.buffered {
            (machine.process::<Buffered>(self.pid).measured(), None)
        } else {
            let job = machine.process::<Direct>(self.pid);
            (job.measured(), Some((job.handed_over().clone(), job.answered().clone())))
        };
        let counts = result.directions.iter().map(|of| of.total.count()).sum::<u64>();
        match batches {
            Some((handed_over, answered)) => {
                handed_over.iter().for_each(|(size, count)| result.on_submits(*size, *count));
                answered.iter().for_each(|(size, count)| result.on_completes(*size, *count));
            }
            None => {
                result.on_submits(1, counts);
                result.on_completes(1, counts);
            }
        }
        result.runtime = measured;
        for of in &mut result.directions {
            of.runtime = if of.total.count() > 0 { measured } else { Span::ZERO };
            // The last sample covers less than a whole interval and is dropped.
            if of.bandwidth.len() > 1 {
                of.bandwidth.pop();
                of.iops.pop();
            }
        }
        if matches!(stop, Stop::Failed(_)) {
            result.error = EIO;
        }
        debug_assert_eq!(result.name, self.job.name);
        result
    }
}

/// Error number of a failed request, as fio reports it.
///
/// Source   errno(3)
const EIO: i32 = 5;

/// Merges the results of clones and jobs that are reported together, and returns all results in
/// order.
fn together(jobs: &[Job], clones: Vec<JobResult>) -> Vec<JobResult> {
    let one = |group: u32| jobs.iter().any(|job| job.group == group && job.group_reporting);
    let mut results: Vec<JobResult> = Vec::new();
    for clone in clones {
        match results.last_mut() {
            Some(last) if last.group == clone.group && one(clone.group) => last.merge(&clone),
            _ => results.push(clone),
        }
    }
    results
}
