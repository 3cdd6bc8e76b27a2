//! Text of a sweep: table, bars, and the best setting by each metric.
//!
//! Every combination of the values of `--sweep` is run `--runs` times.

use std::io::Write;

use serde_json::{Value, json};
use weft_lab::experiment::{Results, ResultsError};
use weft_lab::fio_json::document;
use weft_lab::report::{self, Setting};
use weft_lab::simulate::part::Description;
use weft_lab::simulate::sweep::{Load, Metric, PERCENTS, Swept, sweep};
use weft_lab::simulate::{Outcome, Volume};
use weft_lab::statistics::Estimate;
use weft_terminal::outcome::{Exit, Failure, Outcome as Ending};
use weft_terminal::result_file::ResultFile;
use weft_terminal::terminal::{columns, print_json, stdout, style};

use super::advice::advised;
use super::sheet::{count, nanoseconds};
use super::{INTERRUPTED, Simulated, bar, csv, failure, header, parts, shares};
use crate::knobs;
use crate::result_kinds;
use crate::size;

/// Comparison that the user asked for: its load, and facts for the output.
pub(crate) struct Compared {
    /// Name of the load for output.
    pub(crate) title: String,
    /// Load to run.
    pub(crate) load: Load,
    /// Further facts about the sweep for its output, as name and value.
    pub(crate) facts: Vec<(String, String)>,
    /// Text that precedes the comparison.
    pub(crate) head: String,
}

/// Form of a sweep's output.
pub(crate) struct Form {
    /// One JSON object.
    pub(crate) json: bool,
    /// Comma-separated values.
    pub(crate) csv: bool,
    /// Page of HTML, beside the other output.
    pub(crate) page: Option<ResultFile>,
}

/// Settings to be compared: the swept knobs, and every combination of their values.
pub(super) struct Settings {
    pub(super) knob: String,
    pub(super) names: Vec<String>,
    volumes: Vec<Volume>,
}

/// Simulates every setting and prints the comparison; with `--advise`, searches for the best
/// setting instead.
pub(crate) fn compare(simulated: &Simulated, what: &Compared, as_json: bool) -> Ending {
    if let Some(goal) = simulated.advise {
        return advised(simulated, goal, what, as_json);
    }
    let runs = simulated.runs.unwrap_or(1);
    let settings = settings(simulated)?;
    if simulated.list {
        return parts::print_list(simulated, &settings);
    }
    let number = simulated.part.map(|part| part.of(&settings)).transpose()?;
    let file = result_kinds::report(simulated.report.as_deref(), simulated.force)?;
    let results = simulated.results.as_deref().map(Results::at).transpose();
    let results = results.map_err(Failure::usage)?;
    let mut kept = Ok(());
    let bar = bar("sweep");
    let mut keep = |setting: usize, run: u64, volume: &Volume, outcome: &Outcome| {
        if let (Some(results), Ok(())) = (&results, &kept) {
            kept = settings.keep(results, setting, run, (volume, outcome));
        }
    };
    let progress = |done| bar.is_at(done);
    let swept = sweep(&what.load, &settings.volumes, runs, &progress, &mut keep);
    bar.finish();
    let swept = swept.map_err(|error| {
        let (setting, error) = *error;
        match failure(error) {
            Failure::Usage(text) => Failure::Usage(settings.told(setting, &text)),
            Failure::Failed(text) => Failure::Failed(settings.told(setting, &text)),
            other => other,
        }
    })?;
    let Some(swept) = swept else { return Ok(Exit::Of(INTERRUPTED)) };
    kept.map_err(Failure::failed)?;
    let about = parts::description(simulated, what, &settings);
    if let Some(number) = number {
        return parts::print_part(number, about, &settings, swept);
    }
    print_swept(Form { json: as_json, csv: simulated.csv, page: file }, &about, &settings, &swept)
}

/// Prints the results of a sweep.
pub(super) fn print_swept(
    form: Form,
    about: &Description,
    settings: &Settings,
    swept: &[Swept],
) -> Ending {
    if form.json {
        print_json(&to_json(about, settings, swept))?;
    } else if form.csv {
        csv::print_swept(swept, &settings.knob, &settings.names, about.runs)?;
    } else {
        for job in swept {
            print(job, settings, about.runs)?;
        }
        shares::print(swept, &settings.knob, &settings.names)?;
    }
    if let Some(file) = form.page {
        file.write(page(about, settings, swept))?;
    }
    Ok(Exit::Done)
}

impl Settings {
    /// Settings whose results are there already.
    pub(super) fn named(knob: String, names: Vec<String>) -> Self {
        Self { knob, names, volumes: Vec::new() }
    }

    /// Writes the result of a run to a file where `weft compare` finds it: in a folder for each
    /// setting, if there are several, with a file for each run.
    fn keep(
        &self,
        results: &Results,
        setting: usize,
        run: u64,
        (volume, outcome): (&Volume, &Outcome),
    ) -> Result<(), ResultsError> {
        let header = header(outcome, volume);
        let mut text = serde_json::to_vec_pretty(&document(&header, &outcome.results))
            .expect("results have text for keys");
        text.push(b'\n');
        let folder = match &self.names[..] {
            [_] => ".".to_owned(),
            names => names[setting].replace([' ', '/'], ""),
        };
        results.keep(&folder, &format!("run{}.json", run + 1), &text)
    }

    fn told(&self, setting: usize, text: &str) -> String {
        match &self.names[..] {
            [_] => text.to_owned(),
            names => format!("{}={}: {text}", self.knob, names[setting]),
        }
    }
}

/// Setting under construction: values of the swept parameters, and the volume that they describe.
#[derive(Clone)]
struct Combination {
    names: Vec<String>,
    simulated: Simulated,
    knobs: Vec<(String, String)>,
}

/// Settings with every combination of the swept values, in order.
fn settings(simulated: &Simulated) -> Result<Settings, Failure> {
    let wrong = |text: &str, why: &str| Failure::usage(format!("--sweep {text}: {why}"));
    let mut knobs = Vec::new();
    let first = Combination { names: Vec::new(), simulated: simulated.clone(), knobs: Vec::new() };
    let mut all = vec![first];
    for text in &simulated.sweep {
        let (name, values) = text
            .split_once('=')
            .ok_or_else(|| wrong(text, "expected KNOB=A,B,…; weft get --help lists the knobs"))?;
        let values: Vec<&str> = values.split(',').map(str::trim).collect();
        if values.iter().any(|value| value.is_empty()) {
            return Err(wrong(text, "found an empty value, expected KNOB=A,B,…"));
        }
        if knobs.contains(&name) {
            return Err(wrong(text, &format!("{name} is swept already")));
        }
        knobs.push(name);
        let mut wider = Vec::new();
        for combination in &all {
            for value in &values {
                let mut with = combination.clone();
                with.names.push((*value).to_owned());
                if !with.simulated.takes(name, value)? {
                    with.knobs.push((name.to_owned(), (*value).to_owned()));
                }
                wider.push(with);
            }
        }
        if wider.len() > SETTINGS_MAX {
            let found = wider.len();
            return Err(Failure::usage(format!(
                "--sweep: found {found} combinations, expected at most {SETTINGS_MAX}"
            )));
        }
        all = wider;
    }
    let (mut names, mut volumes) = (Vec::new(), Vec::new());
    for Combination { names: values, simulated, knobs } in all {
        let mut volume = simulated.volume()?;
        for (name, value) in knobs {
            knobs::set(&mut volume.knobs, &name, &value).map_err(Failure::usage)?;
        }
        names.push(if values.is_empty() { "as given".to_owned() } else { values.join(", ") });
        volumes.push(volume);
    }
    let knob = if knobs.is_empty() { "volume".to_owned() } else { knobs.join(", ") };
    Ok(Settings { knob, names, volumes })
}

/// Largest number of settings in a sweep. More would take hours.
const SETTINGS_MAX: usize = 4096;

impl Simulated {
    /// Applies a value of a parameter that is not a knob. Returns false if `name` is no such
    /// parameter.
    fn takes(&mut self, name: &str, value: &str) -> Result<bool, Failure> {
        let wrong = |error: String| Failure::usage(format!("--sweep {name}={value}: {error}"));
        match name {
            "kernel" => self.kernel = super::kernel(value).map_err(wrong)?,
            "write-back" | "write_back" => self.write_back = value.parse().map_err(wrong)?,
            "sync" if value == "none" => self.sync = None,
            "sync" => self.sync = Some(super::sync_action(value).map_err(wrong)?),
            "chunk" => self.chunk = Some(size::kib(value).map_err(wrong)?),
            "level" => self.level = value.parse().map_err(wrong)?,
            "raid-devices" | "raid_devices" => {
                let count = value.parse().ok().filter(|count| (2..=64).contains(count));
                self.raid_devices =
                    Some(count.ok_or_else(|| wrong("expected a number, 2..=64".to_owned()))?);
            }
            "device" if self.level.0.is_none() && self.raid_devices.is_none() => {
                self.device = vec![value.to_owned()];
            }
            "device" => {
                // The default number of members for these drives.
                let members = self.raid_devices.unwrap_or(match self.device.len() {
                    1 => 4,
                    count => u16::try_from(count).unwrap_or(u16::MAX),
                });
                (self.raid_devices, self.device) = (Some(members), vec![value.to_owned()]);
            }
            name => {
                let Some(key) = name.strip_prefix("drive.") else { return Ok(false) };
                self.drive.push(format!("{key}={value}"));
            }
        }
        Ok(true)
    }
}

fn print(swept: &Swept, settings: &Settings, runs: u64) -> Result<(), Failure> {
    let mut out = stdout();
    let Settings { knob, names, .. } = settings;
    let (bold, plain) = (style::BOLD, style::PLAIN);
    let many = if runs == 1 { "one run each".to_owned() } else { format!("{runs} runs each") };
    writeln!(out, "{bold}{}{plain}, {many}", swept.job)?;
    let wide = columns() >= 92;
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let width = width.max(knob.chars().count());
    write!(out, "  {knob:<width$}  {:>16}", "MB/s")?;
    if wide {
        write!(out, "  {:>10}  {:>8}", "requests/s", "mean")?;
    }
    for percent in PERCENTS {
        write!(out, "  {:>8}", format!("{percent} %"))?;
    }
    writeln!(out)?;
    for (setting, name) in names.iter().enumerate() {
        let of = |metric| swept.estimate(setting, metric);
        let throughput = of(Metric::Throughput);
        let half = (throughput.high - throughput.low) / 2.0;
        let rate = if runs > 1 {
            format!("{:.1} ± {half:.1}", throughput.value)
        } else {
            format!("{:.1}", throughput.value)
        };
        write!(out, "  {name:<width$}  {rate:>16}")?;
        if wide {
            write!(
                out,
                "  {:>10}  {:>8}",
                count(iops(swept, setting)),
                nanoseconds(of(Metric::Mean).value)
            )?;
        }
        for at in 0..PERCENTS.len() {
            write!(out, "  {:>8}", nanoseconds(of(Metric::Percentile(at)).value))?;
        }
        writeln!(out)?;
    }
    for metric in [Metric::Throughput, Metric::Percentile(1)] {
        print_bars(&mut out, swept, names, width, metric)?;
    }
    for line in verdicts(swept, names, runs) {
        writeln!(out, "  {line}")?;
    }
    Ok(())
}

/// Prints a bar for each setting, with a length in proportion to its value.
fn print_bars(
    out: &mut impl Write,
    swept: &Swept,
    names: &[String],
    width: usize,
    metric: Metric,
) -> Result<(), Failure> {
    let values: Vec<f64> =
        (0..names.len()).map(|setting| swept.estimate(setting, metric).value).collect();
    let most = values.iter().copied().fold(0.0, f64::max);
    if most <= 0.0 {
        return Ok(());
    }
    let room = columns().saturating_sub(width + 16).clamp(8, 60);
    let best = swept.best(metric).map(|best| best.setting);
    let best = best.filter(|_| alike(swept, names, metric).is_none());
    writeln!(out, "  {}", metric.name())?;
    for (setting, (name, value)) in names.iter().zip(&values).enumerate() {
        let told = match metric {
            Metric::Throughput => format!("{value:.1} MB/s"),
            _ => nanoseconds(*value),
        };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "up to 8 × 60")]
        let eighths = (value / most * room as f64 * 8.0).round() as usize;
        let part = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][eighths % 8];
        let bar = format!("{}{part}", "█".repeat(eighths / 8));
        let (green, plain) =
            if best == Some(setting) { (style::GREEN, style::PLAIN) } else { ("", "") };
        writeln!(out, "  {name:<width$}  {green}{bar}{plain} {told}")?;
    }
    Ok(())
}

/// Sentences, one for each metric, about the best setting and whether it is certainly the best.
fn verdicts(swept: &Swept, names: &[String], runs: u64) -> Vec<String> {
    let mut lines = Vec::new();
    for metric in Metric::ALL {
        let Some(best) = swept.best(metric) else { continue };
        if let Some(apart) = alike(swept, names, metric) {
            lines.push(format!("{}: all settings within {apart:.1} %", metric.name()));
            continue;
        }
        let name = &names[best.setting];
        let level: Vec<&str> = best.level_with.iter().map(|at| names[*at].as_str()).collect();
        let how = match (&level[..], best.ahead) {
            (_, None) => String::new(),
            ([], Some(Estimate { value, low, high, .. })) => {
                let [value, low, high] = [value, low, high].map(|of| ((of - 1.0) * 100.0).abs());
                let (low, high) = (low.min(high), low.max(high));
                format!(", by {value:.1} % over the next (95 %: {low:.1} to {high:.1})")
            }
            (level, Some(_)) => format!("; not told apart from {} at 95 %", level.join("; ")),
        };
        lines.push(format!("best {}: {name}{how}", metric.name()));
    }
    if !lines.is_empty() && runs < 3 {
        lines.push(format!(
            "{} of each setting {} whether differences are more than chance: give --runs 3 or more",
            if runs == 1 { "one run" } else { "two runs" },
            if runs == 1 { "cannot say" } else { "hardly say" },
        ));
    }
    lines
}

/// Largest difference between settings in percent, if it is so small that no setting is preferred;
/// otherwise `None`. The rates of a replay at the trace's times are equal for all settings that
/// keep up.
fn alike(swept: &Swept, names: &[String], metric: Metric) -> Option<f64> {
    let values = || (0..names.len()).map(|setting| swept.estimate(setting, metric).value);
    let (low, high) = (values().fold(f64::MAX, f64::min), values().fold(0.0, f64::max));
    let apart = (high / low - 1.0) * 100.0;
    (apart < ALIKE_PERCENT).then_some(apart.max(0.1))
}

/// Difference below which settings count as equal, in percent.
const ALIKE_PERCENT: f64 = 0.5;

pub(super) fn iops(swept: &Swept, setting: usize) -> f64 {
    let samples = &swept.samples[setting];
    samples.iter().map(|sample| sample.iops).sum::<f64>() / samples.len().max(1) as f64
}

fn to_json(about: &Description, settings: &Settings, swept: &[Swept]) -> Value {
    let runs = about.runs;
    let estimate = |of: Estimate| {
        if runs > 1 {
            json!({"value": of.value, "ci95": [of.low, of.high]})
        } else {
            json!({"value": of.value})
        }
    };
    let jobs: Vec<Value> = swept
        .iter()
        .map(|job| {
            let rows: Vec<Value> = settings
                .names
                .iter()
                .enumerate()
                .map(|(setting, name)| {
                    let of = |metric| estimate(job.estimate(setting, metric));
                    json!({
                        "setting": name,
                        "throughput_mb_s": of(Metric::Throughput),
                        "requests_s": iops(job, setting),
                        "mean_ns": of(Metric::Mean),
                        "p50_ns": of(Metric::Percentile(0)),
                        "p99_ns": of(Metric::Percentile(1)),
                        "p99_9_ns": of(Metric::Percentile(2)),
                        "share": shares::to_json(job, setting, swept.len()),
                    })
                })
                .collect();
            let best: Vec<Value> = Metric::ALL
                .iter()
                .filter_map(|metric| {
                    let best = job.best(*metric)?;
                    let level: Vec<&String> =
                        best.level_with.iter().map(|at| &settings.names[*at]).collect();
                    Some(json!({
                        "metric": metric.name(),
                        "setting": settings.names[best.setting],
                        "level_with": level,
                        "ratio_to_next": best.ahead.map(|of| [of.low, of.value, of.high]),
                    }))
                })
                .collect();
            json!({"job": job.job, "settings": rows, "best": best})
        })
        .collect();
    json!({
        "schema": "weft.sweep/1",
        "load": about.load,
        "knob": settings.knob,
        "runs": runs,
        "seed": about.seed,
        "jobs": jobs,
    })
}

fn page(about: &Description, settings: &Settings, swept: &[Swept]) -> String {
    let runs = about.runs;
    let milliseconds = |of: Estimate| value(of, 1e6, runs);
    // The file name without its folder.
    let file = about.load.rsplit('/').next().unwrap_or(&about.load);
    let mut pages = swept.iter().map(|job| {
        let rows = settings.names.iter().enumerate().map(|(setting, name)| {
            let of = |metric| job.estimate(setting, metric);
            let samples = job.samples[setting].iter();
            let best: Vec<String> = Metric::ALL
                .iter()
                .filter(|metric| job.best(**metric).is_some_and(|best| best.setting == setting))
                .filter(|metric| alike(job, &settings.names, **metric).is_none())
                .map(|metric| metric.name())
                .collect();
            let remark =
                if best.is_empty() { String::new() } else { format!("best {}", best.join(", ")) };
            Setting {
                name: name.clone(),
                throughput: value(of(Metric::Throughput), 1.0, runs),
                // A single run is not drawn: it is the mean itself.
                runs: samples.map(|sample| sample.throughput).filter(|_| runs > 1).collect(),
                operations: Some(report::Value::exact(iops(job, setting))),
                mean: Some(milliseconds(of(Metric::Mean))),
                percentiles: PERCENTS
                    .iter()
                    .enumerate()
                    .map(|(at, percent)| (*percent, milliseconds(of(Metric::Percentile(at)))))
                    .collect(),
                remark,
            }
        });
        let mut facts = about.facts.clone();
        facts.push(("Job".to_owned(), job.job.clone()));
        facts.push(("Seed".to_owned(), about.seed.to_string()));
        facts.push(("Runs of each setting".to_owned(), runs.to_string()));
        facts.push(("Drives".to_owned(), about.devices.join(", ")));
        facts.push(("Costs of CPU work".to_owned(), about.costs.clone()));
        facts.push(("weft".to_owned(), about.weft.clone()));
        report::Sweep {
            title: if job.job == file { file.to_owned() } else { format!("{file}: {}", job.job) },
            summary: sentences(&verdicts(job, &settings.names, runs)),
            facts,
            knob: settings.knob.clone(),
            settings: rows.collect(),
            assumptions: vec![
                "Drives are models, and the array is new and in sync.".to_owned(),
                "Trims take no time.".to_owned(),
                "A run with the same seed has the same requests under every setting.".to_owned(),
            ],
        }
        .report()
    });
    // The sections of all jobs go on one page.
    let Some(mut first) = pages.next() else { return String::new() };
    for more in pages {
        for mut section in more.sections {
            section.title = format!("{}: {}", more.title, section.title);
            first.sections.push(section);
        }
    }
    first.sections.extend(shares::section(swept, &settings.knob, &settings.names));
    first.html()
}

/// Joins the lines as sentences of one text.
fn sentences(lines: &[String]) -> String {
    let sentences = lines.iter().map(|line| {
        let mut letters = line.chars();
        let first = letters.next().map(|first| first.to_uppercase().to_string());
        format!("{}{}.", first.unwrap_or_default(), letters.as_str())
    });
    sentences.collect::<Vec<_>>().join(" ")
}

fn value(of: Estimate, unit: f64, runs: u64) -> report::Value {
    let interval = (runs > 1).then_some((of.low / unit, of.high / unit));
    report::Value { value: of.value / unit, interval }
}
