//! Trace format: text that `biosnoop` of bcc prints, by its Python program or that of libbpf-tools.
//!
//! `TIME(s) COMM PID DISK T SECTOR BYTES LAT(ms)` between blanks, with `QUE(ms)` before the latency
//! (option `-Q`) and `P` before that (`-P`), as the header says. Without a header the columns are
//! those without options. A process's name may contain blanks. `T` is `R` or `W`, or the letters of
//! `rwbs`. Times are those of completion, and the first of them is 0: a request was issued `LAT`
//! before and queued `QUE` before that. [`ByIssue`] puts requests in the order of the chosen event.
//!
//! Python's program has no letter for a discard and a flush: both are `R`. A request without bytes
//! is a flush, and one that is longer than a read can be is a discard; shorter discards count as
//! reads.
//!
//! Source   biosnoop(8) and tools/biosnoop.py, libbpf-tools/biosnoop.c of bcc; experiments.md §5.7

use super::line::{Fault, Fields, LineFormat, LineStep, Separator, range, request_max};
use super::{Assume, Context, Event, Flags, Op, ReadOptions, Record, ReplayError, Source, rwbs};
use std::collections::VecDeque;
use weft_units::{Bytes, Span, Time};

/// Time in nanoseconds that is added to all completions, so that requests issued before the first
/// of them have times above 0: an hour, far above the 30 s after which Linux gives up a request.
const START_NS: u64 = 3_600_000_000_000;

/// Time for which a request waits for others that were issued earlier and completed later; only
/// requests that take longer are out of order.
const WINDOW: Span = Span::secs(1);

/// Largest number of requests that wait: a memory limit of a few MiB.
const WAITING_COUNT_MAX: usize = 1 << 16;

/// Name under which requests of no known disk are counted.
const UNKNOWN: &str = "requests of an unknown disk";

/// Columns of every variant, before the optional ones and the latency.
const COLUMNS: [&str; 7] = ["TIME(s)", "COMM", "PID", "DISK", "T", "SECTOR", "BYTES"];

pub(crate) struct Biosnoop {
    event: Event,
    assume: Assume,
    /// Whether the column `P` exists.
    pattern: bool,
    /// Whether the column `QUE(ms)` exists.
    queued: bool,
}

impl Biosnoop {
    pub(crate) fn new(options: &ReadOptions) -> Self {
        let ReadOptions { event, assume, .. } = *options;
        Self { event, assume, pattern: false, queued: false }
    }

    /// Whether the line is a header. From a header, also takes which of the optional columns exist.
    fn header(&mut self, line: &str) -> bool {
        let names: Vec<&str> = line.split_ascii_whitespace().collect();
        (self.pattern, self.queued) = match names.strip_prefix(&COLUMNS) {
            Some(["LAT(ms)"]) => (false, false),
            Some(["QUE(ms)", "LAT(ms)"]) => (false, true),
            Some(["P", "LAT(ms)"]) => (true, false),
            Some(["P", "QUE(ms)", "LAT(ms)"]) => (true, true),
            _ => return false,
        };
        true
    }

    /// Parses the columns after the size. Returns the time from the chosen event to the completion,
    /// in nanoseconds.
    fn waited(&self, fields: &mut Fields<'_>) -> Result<u64, Fault> {
        if self.pattern {
            fields.next("P")?.one_of(&[("S", ()), ("R", ()), ("?", ())])?;
        }
        let mut queued = 0;
        if self.queued {
            let field = fields.next("QUE(ms)")?;
            // A request that no scheduler had.
            queued = if field.text == "-1.000" { 0 } else { field.milliseconds()? };
        }
        let latency = fields.next("LAT(ms)")?.milliseconds()?;
        fields.end()?;
        let queued = if self.event == Event::Queue { queued } else { 0 };
        Ok(latency.saturating_add(queued))
    }
}

impl LineFormat for Biosnoop {
    fn parse(&mut self, number: u64, line: &str, context: &mut Context) -> Result<LineStep, Fault> {
        if number == 1 && self.header(line) {
            return Ok(LineStep::Skip("header lines"));
        }
        let mut fields = Fields::new(line, Separator::Blank);
        let time = fields.next("TIME(s)")?;
        let completed = time.seconds()?.saturating_add(START_NS);
        let words = fields.rest().split([' ', '\t']).filter(|word| !word.is_empty()).count();
        let after = COLUMNS.len() - 1 + usize::from(self.pattern) + usize::from(self.queued);
        let first = fields.next("COMM")?;
        if words == after && first.text == "?" {
            return Ok(LineStep::Skip(UNKNOWN));
        }
        let mut last = first;
        for _ in after + 1..words {
            last = fields.next("COMM")?;
        }
        let comm = &line[first.column - 1..last.column - 1 + last.text.len()];
        let pid = fields.next("PID")?.number32()?;
        let disk = fields.next("DISK")?;
        let name = disk.name()?;
        let letters = fields.next("T")?;
        let (op, flags) = rwbs::parse(&letters)?;
        let sector = fields.next("SECTOR")?;
        let size = fields.next("BYTES")?;
        let length = Bytes(size.number()?);
        let waited = self.waited(&mut fields)?;
        if comm == "?" && name == "<unknown>" {
            return Ok(LineStep::Skip(UNKNOWN));
        }
        let empty = length == Bytes::ZERO;
        let (op, flags) = match op {
            Some(_) if empty => (None, Flags { preflush: true, ..flags }),
            Some(Op::Read) if length > request_max(Op::Read).0 => (Some(Op::Discard), flags),
            op => (op, flags),
        };
        let Some((op, flags)) = rwbs::request(op, flags, empty) else {
            return Ok(LineStep::Skip("requests without a transfer"));
        };
        let offset = if empty { Bytes::ZERO } else { sector.sectors()? };
        let range = range(op, offset, length, &size)?;
        let begun = completed.checked_sub(waited);
        let begun = begun.ok_or_else(|| time.fault("a completion of a request of at most 1 h"))?;
        let device = disk.device(name, context)?;
        context.name_process(pid, comm);
        let record = self.assume.record(Time(begun), device, op, range);
        let flags = if letters.text.len() > 1 { flags } else { record.flags };
        Ok(LineStep::Record(Record {
            flags,
            pid: Some(pid),
            latency: Some(Span(waited)),
            ..record
        }))
    }
}

/// Requests in the order of their chosen event, read from a source that has them in the order of
/// completion.
pub(crate) struct ByIssue<S> {
    source: S,
    waiting: VecDeque<Record>,
    completed: Time,
    ended: bool,
}

impl<S: Source> ByIssue<S> {
    pub(crate) fn new(source: S) -> Self {
        Self { source, waiting: VecDeque::new(), completed: Time(0), ended: false }
    }

    /// Whether the source has to be read further, because its next request may be older than all
    /// requests that wait.
    fn is_open(&self) -> bool {
        let within = |oldest: &Record| self.completed.since(oldest.time) < WINDOW;
        !self.ended
            && self.waiting.len() < WAITING_COUNT_MAX
            && self.waiting.front().is_none_or(within)
    }
}

impl<S: Source> Source for ByIssue<S> {
    fn next(&mut self, context: &mut Context) -> Result<Option<(Record, u32)>, ReplayError> {
        while self.is_open() {
            let Some((record, _)) = self.source.next(context)? else {
                self.ended = true;
                break;
            };
            self.completed = self.completed.max(record.time + record.latency.unwrap_or_default());
            let at = self.waiting.partition_point(|other| other.time <= record.time);
            self.waiting.insert(at, record);
        }
        Ok(self.waiting.pop_front().map(|record| (record, 0)))
    }
}
