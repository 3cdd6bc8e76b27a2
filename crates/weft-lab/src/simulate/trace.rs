//! Replay of a trace on a simulated volume, in an open or a closed loop.
//!
//! A trace is read twice: first for its shape, so misfits are reported before anything runs, and
//! then for the replay. It is not held in memory. Requests are submitted at their own times (open
//! loop), even if the volume falls behind, or with a fixed number in flight (closed loop). In an
//! open loop, the time from the due time of a request to its submission is its submission latency:
//! a caller is blocked while the volume has no free stripes, as in md.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;

use serde_json::{Value, json};
use weft_engine::{Flags, RequestOp};
use weft_sim::machine::{Machine, Pid};
use weft_sim::workload::jobs::{Ask, Ended, Io, Job as Direct, Pace as JobPace, Plug};
use weft_units::{ByteRange, Bytes, Span, Time};

use super::clients::{self, By, Client, OfClient};
use super::jobs::record;
use super::{Outcome, SimulateError, Volume, Watch, run_watched};
use crate::fio_json::JobResult;
use crate::replay::shape::{Align, Changes, Fit, Options, Pace, Placement, Shaped};
use crate::replay::{Assume, Counts, Format, Op, ReadOptions, Record, ReplayError, Trace};

/// A trace, with the options of its replay.
#[derive(Clone, Debug)]
pub struct Replay {
    /// Files of the trace.
    pub paths: Vec<PathBuf>,
    /// Options for reading the trace.
    pub read: ReadOptions,
    /// Rule that determines when requests are submitted. `None`: at their recorded times, or one
    /// after the other if the trace has no times.
    pub pace: Option<Pace>,
    /// Time scale of the replay, in percent of the trace's times.
    pub time_percent: u32,
    /// Divisor of offsets; 1 leaves them unchanged.
    pub offset_divisor: u64,
    /// Treatment of ranges that do not consist of whole blocks.
    pub align: Align,
    /// Treatment of ranges beyond the end of the volume.
    pub fit: Fit,
    /// Name of the only device to replay; `None` for all.
    pub device: Option<String>,
    /// Criterion that separates clients; `None` for one client.
    pub by: Option<By>,
    /// Shape of the trace, found by reading it once.
    pub shape: TraceShape,
}

/// Shape of a trace: counts, sizes and span.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TraceShape {
    /// Formats of the trace's files.
    pub formats: Vec<&'static str>,
    /// Counts of lines read, and of lines that are not requests.
    pub counts: Counts,
    /// Number and bytes of reads.
    pub reads: Requests,
    /// Number and bytes of writes.
    pub writes: Requests,
    /// Number and bytes of discards.
    pub discards: Requests,
    /// Number of flushes; their bytes are zero.
    pub flushes: Requests,
    /// Name, end of the last request, and number of requests of each device.
    pub devices: Vec<(String, Bytes, u64)>,
    /// Number and bytes of the requests of each device.
    pub by_device: Vec<Requests>,
    /// Name and requests of each process, by its id; empty if the trace records no processes. The
    /// name is empty if the trace does not record it.
    pub processes: BTreeMap<u32, (String, Requests)>,
    /// Time from the first request to the last.
    pub span: Span,
    /// Number of reads and writes that begin where the previous request on the device ended.
    pub sequential: u64,
    /// Number of requests with at least one of the flags sync, FUA and preflush.
    pub flagged: u64,
}

/// Number and bytes of the requests of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// Number of requests.
    pub count: u64,
    /// Bytes of all these requests together.
    pub bytes: u64,
}

impl Requests {
    pub(super) fn add(&mut self, bytes: Bytes) {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(bytes.0);
    }
}

/// Outcome of a replay, with the changes to the trace.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// Outcome of the simulation, as for jobs.
    pub outcome: Outcome,
    /// Counts of requests that did not fit the volume and were dropped, cut or split.
    pub changes: Changes,
    /// Rule by which requests were submitted.
    pub pace: Pace,
}

impl TraceShape {
    /// Reads a trace from its first record to its last.
    ///
    /// # Errors
    /// The trace cannot be read, or has no request.
    pub fn of(paths: &[PathBuf], read: &ReadOptions) -> Result<Self, SimulateError> {
        let mut trace = Trace::open(paths, read)?;
        let mut shape = Self::default();
        let mut ends: Vec<(u64, u64, u64)> = Vec::new();
        let mut last = Time(0);
        while let Some(record) = trace.next().transpose()? {
            let Record { time, device, op, flags, offset, length, .. } = record;
            let at = device.0 as usize;
            clients::count(&mut shape.processes, &record);
            shape.by_device.resize(shape.by_device.len().max(at + 1), Requests::default());
            shape.by_device[at].add(length);
            ends.resize(ends.len().max(at + 1), (0, 0, u64::MAX));
            let (end, requests, follows) = &mut ends[at];
            *requests += 1;
            last = last.max(time);
            shape.flagged += u64::from(flags.sync || flags.fua || flags.preflush);
            match op {
                Op::Read => shape.reads.add(length),
                Op::Write => shape.writes.add(length),
                Op::Discard => shape.discards.add(length),
                Op::Flush => shape.flushes.add(Bytes::ZERO),
            }
            if op != Op::Flush {
                let to = offset.0.saturating_add(length.0);
                *end = to.max(*end);
                shape.sequential += u64::from(op != Op::Discard && *follows == offset.0);
                *follows = to;
            }
        }
        let names = trace.devices().names().iter().cloned();
        shape.devices =
            names.zip(ends).map(|(name, (end, count, _))| (name, Bytes(end), count)).collect();
        for (pid, (name, _)) in &mut shape.processes {
            trace.process(*pid).unwrap_or_default().clone_into(name);
        }
        shape.counts = trace.counts().clone();
        shape.formats = trace.formats().iter().map(|format| format.name()).collect();
        shape.formats.dedup();
        shape.span = last.since(Time(0));
        if shape.counts.records == 0 {
            let path = paths.first().map_or("trace", |path| path.to_str().unwrap_or("trace"));
            return Err(SimulateError::Empty { trace: path.to_owned(), lines: shape.counts.lines });
        }
        Ok(shape)
    }

    /// Number of requests of all kinds.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.counts.records
    }

    /// The shape as JSON.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let of = |requests: Requests| json!({"requests": requests.count, "bytes": requests.bytes});
        let devices: Vec<Value> = self
            .devices
            .iter()
            .map(|(name, end, count)| json!({"name": name, "end": end.0, "requests": count}))
            .collect();
        json!({
            "formats": self.formats,
            "lines": self.counts.lines,
            "requests": self.counts.records,
            "out_of_order": self.counts.out_of_order,
            "left_out": self.counts.skipped,
            "reads": of(self.reads),
            "writes": of(self.writes),
            "discards": of(self.discards),
            "flushes": self.flushes.count,
            "sequential": self.sequential,
            "flagged": self.flagged,
            "span_ns": self.span.0,
            "devices": devices,
        })
    }
}

impl Replay {
    /// A replay of the files of one trace, without changes.
    ///
    /// # Errors
    /// See [`TraceShape::of`].
    pub fn of(paths: Vec<PathBuf>, read: ReadOptions) -> Result<Self, SimulateError> {
        let shape = TraceShape::of(&paths, &read)?;
        Ok(Self {
            paths,
            read,
            pace: None,
            time_percent: 100,
            offset_divisor: 1,
            align: Align::Keep,
            fit: Fit::Exact,
            device: None,
            by: None,
            shape,
        })
    }

    /// Rule by which requests are submitted: [`Replay::pace`], or the default for this trace.
    #[must_use]
    pub fn paced(&self) -> Pace {
        // A trace without times is replayed one request after the other, not all at once.
        let timeless = self.shape.span == Span::ZERO && self.shape.requests() > 1;
        let own = if timeless { Pace::ClosedLoop { depth: 1 } } else { Pace::OpenLoop };
        self.pace.unwrap_or(own)
    }

    /// Placement of the devices on the volume: only the device to replay, if one is named;
    /// otherwise a single device at the start, and several side by side. Fails if the trace does
    /// not have the named device.
    fn placement(&self, trace: &Trace) -> Result<Placement, SimulateError> {
        if let Some(name) = &self.device {
            let index = self.shape.devices.iter().position(|(known, ..)| known == name);
            let index = index.ok_or_else(|| {
                let known: Vec<&str> =
                    self.shape.devices.iter().take(20).map(|(name, ..)| name.as_str()).collect();
                SimulateError::TraceDevice { found: name.clone(), known: known.join(", ") }
            })?;
            debug_assert!(trace.devices().names().len() <= self.shape.devices.len());
            let index = u32::try_from(index).expect("as many as a trace may have");
            return Ok(Placement::Only(crate::replay::DeviceIndex(index)));
        }
        if self.shape.devices.len() < 2 {
            return Ok(Placement::Overlaid);
        }
        let largest = self.shape.devices.iter().map(|(_, end, _)| end.0).max().unwrap_or(0);
        let stride = largest.max(1).checked_next_multiple_of(1 << 20).unwrap_or(u64::MAX);
        Ok(Placement::SideBySide { stride: Bytes(stride) })
    }

    /// Number of bytes that the volume must have for all requests with this placement.
    fn end(&self, placement: Placement) -> u64 {
        let ends = (0_u64..).zip(&self.shape.devices).map(|(at, (_, end, _))| match placement {
            Placement::Only(device) if u64::from(device.0) != at => 0,
            Placement::SideBySide { stride } => {
                stride.0.saturating_mul(at).saturating_add(end.0) / self.offset_divisor
            }
            Placement::Only(_) | Placement::Overlaid => end.0.div_ceil(self.offset_divisor),
        });
        ends.max().unwrap_or(0)
    }

    /// The clients of the trace, or one client for all requests if clients are not separated. Fails
    /// if the trace does not distinguish clients.
    fn clients(&self) -> Result<Vec<Client>, SimulateError> {
        if let Some(by) = self.by {
            return Client::of(&self.shape, by);
        }
        let name = self.paths.first().and_then(|path| path.file_name()).unwrap_or_default();
        Ok(vec![Client::all(&name.to_string_lossy())])
    }

    /// Replays the trace on a new volume that is in sync.
    ///
    /// # Errors
    /// The trace does not fit the volume, or no such volume exists.
    pub fn run(&self, volume: &Volume, watch: Watch<'_>) -> Result<Replayed, SimulateError> {
        let mut machine = volume.machine()?;
        let pace = self.paced();
        let clients = self.clients()?;
        let mut runs = Vec::with_capacity(clients.len());
        for client in clients {
            runs.push(self.begin(&mut machine, client, pace)?);
        }
        // Each client reads the whole trace.
        let total = self.shape.requests().max(1) as f64 * runs.len() as f64;
        let done = {
            let asks: Vec<Rc<Asks>> = runs.iter().map(|run| Rc::clone(&run.asks)).collect();
            move |_: Time| asks.iter().map(|asks| asks.records.get() as f64).sum::<f64>() / total
        };
        let stop = run_watched(&mut machine, &done, watch)?;
        let mut results = Vec::with_capacity(runs.len());
        let mut changes = Changes::default();
        for Run { pid, found, asks } in runs {
            if let Some(error) = asks.error.take() {
                return Err(error.into());
            }
            changes.add(asks.changes.get());
            let job = machine.process::<Direct>(pid);
            let mut result = found.borrow().clone();
            result.runtime = job.measured();
            job.handed_over().iter().for_each(|(size, count)| result.on_submits(*size, *count));
            job.answered().iter().for_each(|(size, count)| result.on_completes(*size, *count));
            for of in &mut result.directions {
                of.runtime = if of.total.count() > 0 { result.runtime } else { Span::ZERO };
            }
            results.push(result);
        }
        let outcome = Outcome::of(&machine, volume, results, stop);
        Ok(Replayed { outcome, changes, pace })
    }

    /// Starts the process of a client on the machine. Fails if the trace cannot be opened, or does
    /// not fit the volume although it must.
    fn begin(
        &self,
        machine: &mut Machine,
        client: Client,
        pace: Pace,
    ) -> Result<Run, SimulateError> {
        let trace = Trace::open(&self.paths, &self.read)?;
        let placement = self.placement(&trace)?;
        let (end, size) = (self.end(placement), machine.host.size());
        if self.fit == Fit::Exact && end > size.0 {
            return Err(SimulateError::TooLarge { end, size: size.0 });
        }
        let timeless = self.shape.formats.contains(&Format::Tencent.name());
        let options = Options {
            pace,
            time_percent: self.time_percent,
            // A trace with whole seconds only: the requests of a second are spread over it.
            spread: if timeless { Span::secs(1) } else { Span::ZERO },
            placement,
            offset_divisor: self.offset_divisor,
            align: self.align,
            fit: self.fit,
            size,
        };
        let mut found = JobResult::named(&client.name);
        found.lat_percentiles = true;
        let found = Rc::new(RefCell::new(found));
        let watcher = {
            let (found, open) = (Rc::clone(&found), pace == Pace::OpenLoop);
            Box::new(move |ended: &Ended| {
                let late = if open { ended.begun.since(ended.due) } else { Span::ZERO };
                record(&mut found.borrow_mut(), ended, late, Time(0));
            })
        };
        let asks = Rc::new(Asks::default());
        let assumed = self.read.assume == Assume::Sync;
        let shaped = Shaped::new(OfClient { trace, client }, options);
        let feed = Feed { shaped, told: Rc::clone(&asks), assumed };
        let depth = match pace {
            Pace::OpenLoop => OPEN_LOOP_MAX,
            Pace::ClosedLoop { depth } => depth,
        };
        let pace = JobPace { plug: Plug::Request, ..JobPace::depth(depth) };
        let pid = machine
            .add_with(|pid| Box::new(Direct::of(pid, pace, Box::new(feed)).watched(watcher)));
        Ok(Run { pid, found, asks })
    }
}

/// A client that has been started: its process, results and counts.
struct Run {
    pid: Pid,
    found: Rc<RefCell<JobResult>>,
    asks: Rc<Asks>,
}

/// Largest number of requests in flight in an open loop. A volume that reaches it cannot keep up
/// with the trace.
const OPEN_LOOP_MAX: u32 = 1 << 16;

/// Counts and error of a [`Feed`], read after the run.
#[derive(Default)]
struct Asks {
    records: Cell<u64>,
    changes: Cell<Changes>,
    error: RefCell<Option<ReplayError>>,
}

/// Iterator that converts the records of a client's trace to requests of its process.
struct Feed {
    shaped: Shaped<OfClient>,
    told: Rc<Asks>,
    /// Whether every write gets the sync flag, because a process is assumed to wait for it.
    assumed: bool,
}

impl Iterator for Feed {
    type Item = Ask;

    fn next(&mut self) -> Option<Ask> {
        let next = self.shaped.next();
        self.told.changes.set(self.shaped.changes());
        self.told.records.set(self.shaped.from().counts().records);
        let record = match next? {
            Ok(record) => record,
            Err(error) => {
                self.told.error.replace(Some(error));
                return None;
            }
        };
        let crate::replay::Flags { sync, meta, fua, preflush, ahead: _ } = record.flags;
        let op = match record.op {
            Op::Read => RequestOp::Read,
            Op::Write => RequestOp::Write,
            Op::Discard => RequestOp::Trim,
            Op::Flush => RequestOp::Flush,
        };
        let sync = sync || (self.assumed && op == RequestOp::Write);
        // The readahead flag is left out: such requests may be refused, and nothing here repeats
        // them.
        let flags = Flags { sync, fua, preflush, meta, ..Flags::NONE };
        let range = ByteRange::new(record.offset.0, record.length.0);
        let open = matches!(self.shaped.options().pace, Pace::OpenLoop);
        let due = if open { record.time.since(Time(0)) } else { Span::ZERO };
        Some(Ask { io: Io { op, range }, flags, due })
    }
}
