//! `weft replay`: runs a trace on a simulated array.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use weft_lab::fio_json::document;
use weft_lab::replay::shape::{Align, Changes, Fit, Pace};
use weft_lab::replay::{Assume, Event, Format, ReadOptions, ReplayError};
use weft_lab::simulate::clients::By;
use weft_lab::simulate::sweep::Load;
use weft_lab::simulate::trace::{self, Requests, TraceShape};
use weft_lab::simulate::{SimulateError, Volume, Watch};
use weft_terminal::outcome::{Failure, Outcome as Ending};
use weft_terminal::terminal::{print_json, stdout};
use weft_units::Bytes;

use crate::simulated::{
    self, Compared, Simulated, compare, ended, header, print_csv, print_models, print_outcome,
    source,
};
use crate::size;

/// Replays a trace on a simulated array
///
/// Reads what weft serve records, fio's iologs (versions 2 and 3), blktrace files, the text of
/// blkparse and of bcc's biosnoop, the traces of MSR Cambridge, Alibaba, Tencent, SPC (UMass),
/// FIU and SYSTOR, packed with gzip or zstd or not; which of them it is, its contents say.
/// Requests come at their times unless --depth is given.
#[derive(Debug, Args)]
pub(crate) struct Replay {
    /// Files of one trace; NAME stands for NAME.blktrace.0, NAME.blktrace.1, …
    traces: Vec<PathBuf>,
    /// Requests come at the trace's times, whether the volume keeps up or not (the default for a
    /// trace with times)
    #[arg(long, conflicts_with = "depth")]
    open_loop: bool,
    /// Keep this many requests in flight, whatever the trace's times
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    depth: Option<u32>,
    /// Factor on the trace's times: 0.5 is twice as fast
    #[arg(long, value_name = "X", default_value = "1", value_parser = percent, conflicts_with = "depth")]
    time_scale: u32,
    /// Let requests beyond the end of the volume go on at its start
    #[arg(long, conflicts_with = "clip")]
    wrap: bool,
    /// Leave out requests beyond the end of the volume, and count them
    #[arg(long)]
    clip: bool,
    /// Ranges are made of whole blocks of this size: the start is rounded down, the end up
    #[arg(long, value_name = "SIZE", value_parser = block, num_args = 0..=1, default_missing_value = "4096")]
    align: Option<Bytes>,
    /// Divide offsets by N, so that the trace of a larger device fits
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    divide: u64,
    /// Replay only this device of the trace; otherwise its devices are placed side by side on the
    /// volume
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Make each process or each device of the trace a client of the schedulers, with results and a
    /// share of its own. If there are more than 8, those with the least traffic are one client.
    /// --depth applies to each client
    #[arg(long, value_name = "WHAT", value_parser = ["device", "process"])]
    by: Option<String>,
    /// Format of the trace, if its contents do not show it
    #[arg(long, value_name = "FORMAT", value_parser = format_named)]
    format: Option<Format>,
    /// For formats that do not say whether a process waits for a write: sync or async
    #[arg(long, value_name = "HOW", default_value = "async", value_parser = ["sync", "async"])]
    assume: String,
    /// Event of block traces that counts as the request: its arrival at the block layer (queue) or
    /// at the device (issue)
    #[arg(long, value_name = "EVENT", default_value = "queue", value_parser = ["queue", "issue"])]
    event: String,
    /// Print one JSON object: in the shape of fio's output, or the comparison
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    simulated: Simulated,
}

/// Parses a factor, such as `0.5`, to a whole percentage.
fn percent(text: &str) -> Result<u32, String> {
    let factor: f64 =
        text.parse().map_err(|_| format!("found {text:?}, expected a number such as 0.5"))?;
    if !(0.01..=10_000.0).contains(&factor) {
        return Err(format!("found {text}, expected 0.01 to 10000"));
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it was looked at")]
    Ok((factor * 100.0).round() as u32)
}

fn block(text: &str) -> Result<Bytes, String> {
    let block = size::bytes(text)?;
    let fits = block.0.is_power_of_two() && (512..=1 << 20).contains(&block.0);
    if fits { Ok(block) } else { Err(format!("found {text}, expected a power of two, 512 to 1M")) }
}

fn format_named(text: &str) -> Result<Format, String> {
    Format::find(text).ok_or_else(|| {
        let known: Vec<&str> = Format::ALL.iter().map(|format| format.name()).collect();
        format!("found {text:?}, expected one of {}", known.join(", "))
    })
}

pub(crate) fn run(arguments: &Replay) -> Ending {
    if arguments.simulated.lists() {
        return print_models();
    }
    if arguments.traces.is_empty() {
        return Err(Failure::usage("replay: found no trace, expected a file, or --device list"));
    }
    let replay = arguments.replay()?;
    let head = text_of(&replay.shape)?;
    if arguments.simulated.is_text(arguments.json) {
        stdout().write_all(head.as_bytes())?;
    }
    let title = arguments.traces[0].display().to_string();
    let Some(volume) = arguments.simulated.alone()? else {
        let mut facts = vec![("Requests".to_owned(), replay.shape.requests().to_string())];
        if arguments.simulated.has_page() {
            facts.extend(arguments.traces.iter().filter_map(|path| source::hash(path)));
        }
        let load = Load::Trace(Box::new(replay));
        let what = Compared { title, load, facts, sources: Vec::new(), head };
        return compare(&arguments.simulated, &what, arguments.json);
    };
    let load = |volume: &Volume, watch: Watch<'_>| replay.run(volume, watch);
    let replayed = simulated::run("replay", &volume, |of| &mut of.outcome, load)?;
    let trace::Replayed { outcome, changes, pace } = replayed;
    if arguments.json {
        let mut header = header(&outcome, &volume);
        if let Value::Object(weft) = &mut header.weft {
            weft.insert("trace".to_owned(), replay.shape.to_json());
            weft.insert("pace".to_owned(), told(pace).into());
            weft.insert("changes".to_owned(), changes_to_json(changes));
        }
        print_json(&document(&header, &outcome.results))?;
    } else if arguments.simulated.is_csv() {
        print_csv(&outcome)?;
    } else {
        print_changes(changes, pace)?;
        print_outcome(&outcome, &volume)?;
    }
    ended(&outcome)
}

impl Replay {
    fn replay(&self) -> Result<trace::Replay, Failure> {
        let assume = if self.assume == "sync" { Assume::Sync } else { Assume::Async };
        let event = if self.event == "issue" { Event::Issue } else { Event::Queue };
        let read = ReadOptions { format: self.format, event, assume };
        let replay = trace::Replay::of(self.traces.clone(), read).map_err(trace_failure)?;
        let open = self.open_loop.then_some(Pace::OpenLoop);
        let fit = match (self.wrap, self.clip) {
            (true, _) => Fit::Wrap,
            (_, true) => Fit::Clip,
            _ => Fit::Exact,
        };
        Ok(trace::Replay {
            pace: self.depth.map(|depth| Pace::ClosedLoop { depth }).or(open),
            time_percent: self.time_scale,
            offset_divisor: self.divide,
            align: self.align.map_or(Align::Keep, Align::Outward),
            fit,
            device: self.only.clone(),
            by: self.by.as_deref().map(|by| if by == "device" { By::Device } else { By::Process }),
            ..replay
        })
    }
}

/// Converts an error of the simulation to a failure. An invalid trace is a failed operation and not
/// a wrong command line.
fn trace_failure(error: SimulateError) -> Failure {
    match error {
        SimulateError::Trace(ReplayError::Io { .. }) => {
            Failure::failed(format!("{error}; name a trace that can be read"))
        }
        error => Failure::failed(error),
    }
}

/// Text about the pace of the replay.
fn told(pace: Pace) -> String {
    match pace {
        Pace::OpenLoop => "at the trace's times".to_owned(),
        Pace::ClosedLoop { depth } => format!("{depth} at a time, whatever their times"),
    }
}

/// Text about the trace, which precedes the results.
fn text_of(shape: &TraceShape) -> Result<String, Failure> {
    let mut out = Vec::new();
    let seconds = shape.span.0 as f64 / 1e9;
    writeln!(
        out,
        "trace: {} requests in {seconds:.3} s, format {}",
        shape.requests(),
        shape.formats.join(", ")
    )?;
    for (name, Requests { count, bytes }) in [
        ("reads", shape.reads),
        ("writes", shape.writes),
        ("discards", shape.discards),
        ("flushes", shape.flushes),
    ] {
        if count > 0 {
            let each = bytes as f64 / 1024.0 / count as f64;
            let moved = size::human(Bytes(bytes));
            let detail =
                if bytes > 0 { format!(", {moved}, {each:.1} KiB each") } else { String::new() };
            writeln!(out, "  {count} {name}{detail}")?;
        }
    }
    let placed = shape.requests() - shape.flushes.count;
    writeln!(
        out,
        "  {:.1} % go on where the one before ended; {} say that a process waits for them",
        shape.sequential as f64 * 100.0 / (placed as f64).max(1.0),
        shape.flagged,
    )?;
    for (name, end, count) in shape.devices.iter().take(DEVICES_TOLD) {
        writeln!(
            out,
            "  device {name}: {count} requests, up to byte {} ({})",
            end.0,
            size::human(*end)
        )?;
    }
    if shape.devices.len() > DEVICES_TOLD {
        writeln!(out, "  and {} devices more", shape.devices.len() - DEVICES_TOLD)?;
    }
    if shape.counts.out_of_order > 0 {
        writeln!(out, "  {} requests are older than the one before", shape.counts.out_of_order)?;
    }
    for (kind, count) in &shape.counts.skipped {
        writeln!(out, "  left out: {count} {kind}")?;
    }
    Ok(String::from_utf8_lossy(&out).into_owned())
}

const DEVICES_TOLD: usize = 8;

fn print_changes(changes: Changes, pace: Pace) -> Result<(), Failure> {
    let mut out = stdout();
    writeln!(out, "replayed {}", told(pace))?;
    for (count, what) in counts(changes) {
        if count > 0 {
            writeln!(out, "  {count} {what}")?;
        }
    }
    Ok(())
}

fn counts(changes: Changes) -> [(u64, &'static str); 6] {
    let Changes { empty, other_device, beyond_end, cut, split, aligned } = changes;
    [
        (empty, "without a byte: left out"),
        (other_device, "of other devices: left out"),
        (beyond_end, "beyond the end: left out"),
        (cut, "cut at the end"),
        (split, "made into two at the end"),
        (aligned, "moved or lengthened to whole blocks"),
    ]
}

fn changes_to_json(changes: Changes) -> Value {
    let Changes { empty, other_device, beyond_end, cut, split, aligned } = changes;
    json!({
        "empty": empty,
        "other_device": other_device,
        "beyond_end": beyond_end,
        "cut": cut,
        "split": split,
        "aligned": aligned,
    })
}
