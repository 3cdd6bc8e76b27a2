//! Output of `--advise`: the values that were tried, and one line with the result.

use std::io::Write;

use clap::ValueEnum;
use serde_json::{Value, json};
use weft_engine::knobs::{Knobs, SchedulerKind, TABLE};
use weft_lab::simulate::Volume;
use weft_lab::simulate::advise::{Advice, Goal, Other, Step, Wanted, advise};
use weft_lab::statistics::{Estimate, gain_percent};
use weft_ondisk::Level;
use weft_terminal::outcome::{Exit, Failure, Outcome as Ending};
use weft_terminal::terminal::{print_json, stdout};

use super::page::advice_page;
use super::sheet::nanoseconds;
use super::{Compared, INTERRUPTED, Simulated, bar, failure};
use crate::knobs;
use crate::reproduced::{gain, interval};
use crate::result_kinds;

/// Goal of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum GoalArg {
    /// The shortest latency of 99 % of the requests
    P99,
    /// The most MB/s
    #[value(name = "mb/s")]
    Rate,
}

impl GoalArg {
    fn goal(self) -> Goal {
        match self {
            Self::P99 => Goal::P99,
            Self::Rate => Goal::Throughput,
        }
    }
}

/// Searches for the best volume for a load, and prints it.
pub(crate) fn advised(
    simulated: &Simulated,
    goal: GoalArg,
    what: &Compared,
    as_json: bool,
) -> Ending {
    let volume = simulated.volume()?;
    let mut fixed = Vec::new();
    for setting in &simulated.set {
        fixed.push(knobs::split(setting)?.0.to_owned());
    }
    let given = [
        ("raid-devices", simulated.raid_devices.is_some() || simulated.device.len() > 1),
        ("chunk", simulated.chunk.is_some()),
    ];
    fixed.extend(given.iter().filter(|(_, is)| *is).map(|(name, _)| (*name).to_owned()));
    let (goal, runs) = (goal.goal(), simulated.runs.unwrap_or(RUNS));
    if runs < 2 {
        return Err(Failure::usage("--runs: found 1, expected 2 or more: --advise compares"));
    }
    let file = result_kinds::report(simulated.report.as_deref(), simulated.force)?;
    let wanted = Wanted { load: &what.load, volume: &volume, goal, runs, fixed: &fixed };
    let bar = bar("advise");
    let advice = advise(&wanted, &|done| bar.is_at(done));
    bar.finish();
    let Some(advice) = advice.map_err(failure)? else { return Ok(Exit::Of(INTERRUPTED)) };
    if as_json {
        print_json(&to_json(simulated, what, goal, &advice, runs))?;
    } else {
        print(goal, &advice, runs)?;
    }
    if let Some(file) = file {
        file.write(advice_page(simulated, what, (goal, &advice, &result(goal, &advice))))?;
    }
    Ok(Exit::Done)
}

/// Default number of runs of each setting.
const RUNS: u64 = 3;

fn print(goal: Goal, advice: &Advice, runs: u64) -> Result<(), Failure> {
    let mut out = stdout();
    writeln!(out, "goal: {}, {runs} runs of each setting", goal.metric().name())?;
    for Step { name, values, taken, left_out } in &advice.steps {
        let named = values.iter().enumerate().map(|(at, (value, of))| {
            let mark = if at == *taken { "*" } else { "" };
            format!("{value}{mark} {}", told(goal, of.value))
        });
        writeln!(out, "  {name}: {}", named.collect::<Vec<_>>().join(", "))?;
        for (value, why) in left_out {
            writeln!(out, "    without {value}: {why}")?;
        }
    }
    writeln!(out, "{}", result(goal, advice))?;
    Ok(())
}

/// Line with the result: the volume to use, or the advice to keep the defaults.
fn result(goal: Goal, advice: &Advice) -> String {
    let (metric, runs) = (goal.metric().name(), advice.runs);
    let value = told(goal, advice.value.value);
    if advice.given.is_some() {
        let (words, against) = (words(&advice.volume), against(advice));
        return format!("use this: {words} ({metric} {value}; {against}, by {runs} other seeds)");
    }
    let next = advice.next.as_ref().map(|next| {
        let (gain, found) = (gain(&next.ratio.inverse()), told(goal, next.value.value));
        format!("{}: {metric} {found}, {gain} against {value}; ", list(next))
    });
    let next = next.unwrap_or_default();
    let md = gain(&advice.md.ratio);
    format!(
        "keep the defaults; nothing that was tried is better ({next}the defaults {md} against md \
         untuned, by {runs} other seeds)"
    )
}

/// Text of a value that a search with this goal has measured.
fn told(goal: Goal, value: f64) -> String {
    match goal {
        Goal::Throughput => format!("{value:.1} MB/s"),
        Goal::P99 => nanoseconds(value),
    }
}

/// Text about the gain of the advised volume over the defaults, untuned md, and the next best
/// volume.
fn against(advice: &Advice) -> String {
    let given = advice.given.as_ref().map(|given| gain(&given.ratio));
    let given = given.map_or(String::new(), |gain| format!("{gain} against the defaults, "));
    let mut text = format!("{given}{} against md untuned", gain(&advice.md.ratio));
    // If the next best volume is that of the defaults, the text names it already.
    let is_given =
        |next: &&Other| Some(&next.differs) == advice.given.as_ref().map(|of| &of.differs);
    if let Some(next) = advice.next.as_ref().filter(|next| !is_given(next)) {
        text.push_str(&format!(", {} against the next, {}", gain(&next.ratio), list(next)));
    }
    text
}

fn list(other: &Other) -> String {
    let differs = other.differs.iter().map(|(name, value)| format!("{name}={value}"));
    differs.collect::<Vec<_>>().join(" ")
}

/// One line with the commands that create and serve the advised volume.
fn words(volume: &Volume) -> String {
    [create(volume), serve(volume)].join("; ")
}

fn create(volume: &Volume) -> String {
    let level = volume.level.map_or("single", Level::name);
    let level = level.trim_start_matches("raid");
    let mut text = format!("weft create --level {level} --raid-devices {}", volume.members.len());
    if volume.level.is_some_and(Level::is_striped) {
        text.push_str(&format!(" --chunk {}K", volume.chunk.0 / 1024));
    }
    text + " MEMBER…"
}

/// Command line of `weft serve` for the advised volume. Knobs are listed only if they differ from
/// weft's defaults. Simulated members are disks, which take the scheduler of the host.
fn serve(volume: &Volume) -> String {
    let own = Knobs { scheduler: SchedulerKind::MqDeadline, ..Knobs::default() };
    let mut text = "weft serve".to_owned();
    for row in TABLE {
        let value = volume.knobs.show(row.name);
        if value != own.show(row.name) {
            text.push_str(&format!(" --set {}={}", row.name, value.unwrap_or_default()));
        }
    }
    if let Some(cache) = &volume.write_back {
        text.push_str(&format!(" --write-back {}K", u64::from(cache.pages) * 4));
    }
    text + " MEMBER…"
}

fn to_json(
    simulated: &Simulated,
    what: &Compared,
    goal: Goal,
    advice: &Advice,
    runs: u64,
) -> Value {
    let of = |of: &Estimate| json!({"value": of.value, "ci95": [of.low, of.high]});
    let other = |other: &Other| {
        let differs = other.differs.iter().map(|(name, value)| ((*name).to_owned(), json!(value)));
        json!({
            "differs": differs.collect::<serde_json::Map<_, _>>(),
            "value": of(&other.value),
            "gain_pct": gain_percent(other.ratio.value),
            "ci95": interval(&other.ratio),
        })
    };
    let steps: Vec<Value> = (advice.steps.iter())
        .map(|step| {
            let values = step.values.iter();
            let values = values.map(|(value, found)| json!({"setting": value, "found": of(found)}));
            let left_out = step.left_out.iter();
            let left_out = left_out.map(|(value, why)| json!({"setting": value, "reason": why}));
            json!({
                "name": step.name,
                "values": values.collect::<Vec<_>>(),
                "taken": step.values[step.taken].0,
                "left_out": left_out.collect::<Vec<_>>(),
            })
        })
        .collect();
    let (metric, unit) = match goal {
        Goal::Throughput => ("throughput", "MB/s"),
        Goal::P99 => ("p99", "ns"),
    };
    json!({
        "schema": "weft.advice/1",
        "load": what.title,
        "goal": metric,
        "unit": unit,
        "runs": runs,
        "seed": simulated.seed,
        "use_this": words(&advice.volume),
        "create": create(&advice.volume),
        "serve": serve(&advice.volume),
        "keep_defaults": advice.given.is_none(),
        "value": of(&advice.value),
        "against_defaults": advice.given.as_ref().map(other),
        "against_md": other(&advice.md),
        "against_next": advice.next.as_ref().map(other),
        "confirming_runs": advice.runs,
        "steps": steps,
    })
}
