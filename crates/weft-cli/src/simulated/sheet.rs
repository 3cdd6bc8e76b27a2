//! Text of a simulation's result: jobs in fio's form, then the members.
//!
//! Requests and bytes of members are data that fio cannot have.

use std::io::Write;

use weft_lab::fio_json::{DirectionResult, JobResult};
use weft_lab::job::PERCENTILES;
use weft_lab::latency::Latencies;
use weft_lab::simulate::faults::told;
use weft_lab::simulate::{
    MemberOutcome, Outcome, Stop, SyncOutcome, Traffic, Volume, WriteBackOutcome,
};
use weft_ondisk::Level;
use weft_terminal::outcome::Failure;
use weft_terminal::terminal::stdout;
use weft_units::{Bytes, Span};

use crate::size;

/// Prints the results of a simulation as text.
pub(crate) fn print_outcome(outcome: &Outcome, volume: &Volume) -> Result<(), Failure> {
    let mut out = stdout();
    for result in &outcome.results {
        print_job(&mut out, result)?;
    }
    print_volume(&mut out, outcome, volume)
}

fn print_job(out: &mut impl Write, result: &JobResult) -> Result<(), Failure> {
    let JobResult { name, group, error, runtime, .. } = result;
    writeln!(out, "{name}: (group {group}): err={error}, {} simulated", time(*runtime))?;
    for (way, of) in ["read", "write", "trim"].iter().zip(&result.directions) {
        if of.total.count() > 0 {
            print_direction(out, way, of, &result.percentiles)?;
        }
    }
    if result.syncs.count() > 0 {
        let count = result.syncs.count();
        writeln!(out, "  sync : {count} of them")?;
        print_latency(out, "lat ", &result.syncs)?;
        print_percentiles(out, &result.syncs, &result.percentiles)?;
    }
    let answered: u64 = result.depth_levels.iter().sum();
    if answered > 0 {
        write!(out, "  in flight:")?;
        for (level, count) in
            ["1", "2", "4", "8", "16", "32", "≥64"].iter().zip(result.depth_levels)
        {
            if count > 0 {
                write!(out, "  {level}: {:.1} %", count as f64 * 100.0 / answered as f64)?;
            }
        }
        writeln!(out)?;
    }
    Ok(())
}

fn print_direction(
    out: &mut impl Write,
    way: &str,
    of: &DirectionResult,
    percentiles: &[f64],
) -> Result<(), Failure> {
    let seconds = (of.runtime.0 as f64 / 1e9).max(1e-9);
    let rate = of.bytes.0 as f64 / seconds;
    writeln!(
        out,
        "  {way:<5}: IOPS={}, BW={:.1} MiB/s ({:.1} MB/s), {} in {}",
        count(of.total.count() as f64 / seconds),
        rate / 1_048_576.0,
        rate / 1e6,
        size::human(of.bytes),
        time(of.runtime),
    )?;
    if of.submission.max() > Span::ZERO {
        print_latency(out, "slat", &of.submission)?;
    }
    print_latency(out, "clat", &of.completion)?;
    print_percentiles(out, &of.completion, percentiles)
}

fn print_latency(out: &mut impl Write, name: &str, of: &Latencies) -> Result<(), Failure> {
    let [least, mean, deviation, most] =
        [of.min().0 as f64, of.mean_ns(), of.deviation_ns(), of.max().0 as f64].map(nanoseconds);
    writeln!(out, "    {name}: min {least}, mean {mean}, max {most}, stdev {deviation}")?;
    Ok(())
}

/// Prints the percentiles that the job asks for, or the usual ones of fio's list.
fn print_percentiles(
    out: &mut impl Write,
    of: &Latencies,
    percentiles: &[f64],
) -> Result<(), Failure> {
    let told: &[f64] =
        if percentiles == PERCENTILES { &[50.0, 90.0, 99.0, 99.9, 99.99] } else { percentiles };
    for (nth, line) in told.chunks(5).enumerate() {
        write!(out, "    {}", if nth == 0 { "percentiles:" } else { "            " })?;
        for percent in line {
            let value = nanoseconds(of.percentile(*percent).0 as f64);
            write!(out, "  {percent} %: {value}")?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn print_volume(out: &mut impl Write, outcome: &Outcome, volume: &Volume) -> Result<(), Failure> {
    match volume.level {
        Some(level) => write!(out, "volume: {level} of {} members, ", volume.members.len())?,
        None => write!(out, "volume: a single member, ")?,
    }
    if volume.level.is_some_and(Level::is_striped) {
        write!(out, "chunk {}, ", size::human(volume.chunk))?;
    }
    write!(out, "{}, ", size::human(outcome.size))?;
    if volume.level.is_some_and(Level::has_parity) {
        write!(out, "stripe_size {}, ", volume.knobs.show("stripe_size").unwrap_or_default())?;
    }
    writeln!(out, "simulated for {}", time(outcome.elapsed))?;
    let names = outcome.members.iter().map(|member| member.model.chars().count());
    let width = names.max().unwrap_or(0).max(26);
    writeln!(
        out,
        "  {:<3} {:<width$} {:>9} {:>9} {:>10} {:>9} {:>10} {:>8}",
        "", "member", "reads", "KiB each", "MiB", "writes", "MiB", "flushes"
    )?;
    for (index, member) in outcome.members.iter().enumerate() {
        let MemberOutcome { model, traffic, .. } = member;
        let Traffic { reads, writes, flushes, sectors_read, sectors_written, .. } = *traffic;
        let each = sectors_read as f64 / 2.0 / (reads as f64).max(1.0);
        let [read, written] = [sectors_read, sectors_written].map(|it| it as f64 / 2048.0);
        writeln!(
            out,
            "  {index:<3} {model:<width$} {reads:>9} {each:>9.1} {read:>10.1} {writes:>9} \
             {written:>10.1} {flushes:>8}{}",
            remark(member),
        )?;
    }
    let (read, written) = outcome.moved();
    let (client_read, client_written) = outcome.client;
    let per = |part: Bytes, of: Bytes| part.0 as f64 / (of.0 as f64).max(1.0);
    if client_written > Bytes::ZERO {
        writeln!(
            out,
            "  for each MiB that the volume wrote, members wrote {:.2} MiB and read {:.2} MiB \
             beforehand",
            per(written, client_written),
            outcome.prereads(),
        )?;
    } else if client_read > Bytes::ZERO {
        writeln!(
            out,
            "  for each MiB that was read, members read {:.2} MiB",
            per(read, client_read)
        )?;
    }
    if outcome.engine_work > Span::ZERO {
        let costs = &volume.costs;
        let share = outcome.engine_work.0 as f64 * 100.0 / (outcome.elapsed.0 as f64).max(1.0);
        let cpu = costs.cpu.as_deref().map_or(String::new(), |cpu| format!(", {cpu}"));
        writeln!(
            out,
            "  the engine's thread was busy for {share:.1} % of the time (costs: {}{cpu})",
            costs.source
        )?;
    }
    if let Some(WriteBackOutcome { limit, dirty_max, dirty, written }) = outcome.write_back {
        let [limit, most, left, written] = [limit, dirty_max, dirty, written].map(size::human);
        writeln!(
            out,
            "  write-back cache of {limit}: {written} written back, {left} dirty at the end, \
             {most} at most"
        )?;
    }
    if let Some(sync) = &outcome.sync {
        print_sync(out, sync)?;
    }
    print_faults(out, outcome, volume)?;
    if outcome.dirty > Bytes::ZERO {
        writeln!(out, "  {} were dirty in the page cache at the end", size::human(outcome.dirty))?;
    }
    if let Stop::Interrupted(_) = outcome.stop {
        writeln!(out, "  interrupted: these figures end there")?;
    }
    Ok(())
}

/// Remark about the state of a member that does not hold all of its data; empty for other members.
fn remark(member: &MemberOutcome) -> &'static str {
    match (member.in_sync, member.rebuilding) {
        (true, _) => "",
        (_, true) => "  rebuilding",
        _ => "  failed",
    }
}

/// Prints the progress of a sync that ran beside the load, and what it cost the load.
fn print_sync(out: &mut impl Write, sync: &SyncOutcome) -> Result<(), Failure> {
    let [completed, total] = [sync.completed, sync.total].map(|of| size::human(of.bytes()));
    write!(
        out,
        "{}: {completed} of {total} of each member in {}, {:.1} MB/s",
        sync.action,
        time(sync.took),
        sync.speed() / 1e6
    )?;
    match sync.left() {
        _ if sync.finished => writeln!(out, "; it ended before the load")?,
        Some(left) => writeln!(out, "; the rest would take {}", time(left))?,
        None => writeln!(out)?,
    }
    for (name, without, with) in &sync.jobs {
        let change = (with.rate / without.rate.max(1e-9) - 1.0) * 100.0;
        let [before, after] = [without.p99, with.p99].map(time);
        writeln!(
            out,
            "  {name}: {:.1} MB/s with it, {:.1} without ({change:+.1} %); 99 % within {after}, \
             {before} without",
            with.rate, without.rate
        )?;
    }
    Ok(())
}

/// Prints the planned faults, and the number that occurred.
fn print_faults(out: &mut impl Write, outcome: &Outcome, volume: &Volume) -> Result<(), Failure> {
    if volume.faults.is_empty() {
        return Ok(());
    }
    let planned: Vec<String> = volume.faults.iter().map(told).collect();
    writeln!(out, "faults: {}", planned.join("; "))?;
    for (at, what) in outcome.events.iter().take(EVENTS_TOLD) {
        writeln!(out, "  {:.3} s: {what}", at.0 as f64 / 1e9)?;
    }
    if outcome.events.len() > EVENTS_TOLD {
        writeln!(out, "  and {} events more", outcome.events.len() - EVENTS_TOLD)?;
    }
    let corrected: u64 = outcome.members.iter().map(|member| member.corrected).sum();
    writeln!(
        out,
        "  {} computed from other members; {} reads failed, {} were written again",
        size::human(outcome.recovered),
        outcome.unreadable,
        size::human(Bytes(corrected * 512)),
    )?;
    Ok(())
}

const EVENTS_TOLD: usize = 10;

/// Text of a span: `12.5 s` or `35.0 ms`.
fn time(span: Span) -> String {
    nanoseconds(span.0 as f64)
}

/// Text of a span in nanoseconds, with three digits and a suitable unit.
pub(crate) fn nanoseconds(value: f64) -> String {
    let (value, unit) = match value {
        v if v >= 1e9 => (v / 1e9, "s"),
        v if v >= 1e6 => (v / 1e6, "ms"),
        v if v >= 1e3 => (v / 1e3, "µs"),
        v => (v, "ns"),
    };
    let digits = if value >= 100.0 || unit == "ns" {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.digits$} {unit}")
}

/// Text of a rate, shortened from 10,000 on: `98.0`, `9876`, `24.4k`, `1.25M`.
pub(crate) fn count(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{:.2}M", v / 1e6),
        v if v >= 1e5 => format!("{:.0}k", v / 1e3),
        v if v >= 1e4 => format!("{:.1}k", v / 1e3),
        v if v >= 100.0 => format!("{v:.0}"),
        v => format!("{v:.1}"),
    }
}
