//! Pages of a sweep and of an advice: charts and tables, and how to repeat them.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use weft_lab::report::{self, Bars, Block, Group, Report, Section, Setting};
use weft_lab::simulate::Volume;
use weft_lab::simulate::advise::{Advice, Goal, Step};
use weft_lab::simulate::part;
use weft_lab::simulate::sweep::{Metric, PERCENTS};
use weft_lab::statistics::Estimate;
use weft_ondisk::Level;
use weft_terminal::terminal::quoted;

use super::found::Found;
use super::sweep::{Compared, alike, iops, verdicts};
use super::{Simulated, parts, shares, source};
use crate::size;

/// Page of a sweep, as HTML, with the command that makes it again at the path `at`.
pub(super) fn page(found: &Found, at: &Path) -> String {
    let Found { sweep, knob, settings, names, swept, effects } = found;
    let runs = sweep.runs;
    let caches = found.caches();
    let milliseconds = |of: Estimate| value(of, 1e6, runs);
    // The file name without its folder.
    let file = sweep.load.rsplit('/').next().unwrap_or(&sweep.load);
    let mut pages = swept.iter().map(|job| {
        let rows = names.iter().enumerate().map(|(setting, name)| {
            let of = |metric| job.estimate(setting, metric);
            let samples = job.samples[setting].iter();
            let best: Vec<String> = Metric::ALL
                .iter()
                .filter(|metric| job.best(**metric).is_some_and(|best| best.setting == setting))
                .filter(|metric| alike(job, names, **metric).is_none())
                .map(|metric| metric.name())
                .collect();
            let mut remarks = Vec::new();
            if !best.is_empty() {
                remarks.push(format!("best {}", best.join(", ")));
            }
            if let Some(cache) = caches.as_ref().and_then(|caches| caches[setting]) {
                let (bytes, stripes) = (size::human(cache.bytes), cache.stripes);
                remarks.push(format!("stripe cache {bytes}, {stripes} stripes"));
            }
            if let Some(other) = effects.same(setting, names) {
                remarks.push(format!("the same as {other}, bit for bit"));
            }
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
                remark: remarks.join("; "),
            }
        });
        let mut lines = verdicts(job, names, runs);
        lines.extend(found.lines());
        report::Sweep {
            title: if job.job == file { file.to_owned() } else { format!("{file}: {}", job.job) },
            summary: sentences(&lines),
            facts: facts_of_job(found, &job.job),
            knob: knob.clone(),
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
    first.sections.extend(shares::section(swept, knob, names));
    let drives = settings.iter().flat_map(|setting| &setting.drives);
    let command = parts::command(&sweep.arguments, found.sweeps(), at);
    first.sections.push(repeat(&command, sweep.sources.iter().chain(drives)));
    first.html()
}

/// Facts about a job of a sweep, as name and value.
fn facts_of_job(found: &Found, job: &str) -> Vec<(String, String)> {
    let Found { sweep, knob, settings, .. } = found;
    let mut facts = sweep.facts.clone();
    facts.push(("Job".to_owned(), job.to_owned()));
    facts.extend(facts_of_all(settings));
    if !sweep.knobs.is_empty() {
        facts.push(("Swept".to_owned(), knob.clone()));
    }
    facts.push(("Seed".to_owned(), sweep.seed.to_string()));
    facts.push(("Runs of each setting".to_owned(), sweep.runs.to_string()));
    facts.push(("Costs of CPU work".to_owned(), sweep.costs.clone()));
    facts.push(("weft".to_owned(), sweep.weft.clone()));
    facts
}

/// Page of an advice: its result in a line, the volumes that were tried, and how to repeat it.
pub(super) fn advice_page(
    simulated: &Simulated,
    what: &Compared,
    (goal, advice, result): (Goal, &Advice, &str),
) -> String {
    let unit = match goal {
        Goal::Throughput => 1.0,
        Goal::P99 => 1e6,
    };
    let metric = goal.metric().name();
    let label = if goal == Goal::P99 { "milliseconds" } else { "MB/s" };
    let step = |step: &Step| {
        let of = |at: usize| {
            let (name, found) = &step.values[at];
            let mark = if at == step.taken { " (kept)" } else { "" };
            Group {
                label: format!("{name}{mark}"),
                values: vec![None, Some(value(*found, unit, found.count as u64))],
                ..Group::default()
            }
        };
        let bars = Block::Bars(Bars {
            title: format!("{metric} by {}", step.name),
            unit: label.to_owned(),
            series: vec![String::new(), "measured".to_owned()],
            groups: (0..step.values.len()).map(of).collect(),
            ..Bars::default()
        });
        let left_out = step.left_out.iter().map(|(name, why)| format!("Without {name}: {why}"));
        let left_out: Vec<String> = left_out.collect();
        let list = (!left_out.is_empty()).then_some(Block::List(left_out));
        [bars].into_iter().chain(list)
    };
    let mut facts = what.facts.clone();
    facts.extend(facts_of(&advice.volume));
    facts.push(("Goal".to_owned(), metric.clone()));
    facts.push(("Seed".to_owned(), simulated.seed.to_string()));
    facts.push(("Costs of CPU work".to_owned(), simulated.costs.clone()));
    facts.push(("weft".to_owned(), env!("CARGO_PKG_VERSION").to_owned()));
    let tried = Section {
        title: "What was tried".to_owned(),
        blocks: advice.steps.iter().flat_map(step).collect(),
    };
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let drives = drives_of_files(&advice.volume);
    let repeat = repeat(&words, what.sources.iter().chain(&drives));
    Report {
        title: format!("{}: advice", what.title.rsplit('/').next().unwrap_or(&what.title)),
        summary: sentences(&[result.to_owned()]),
        facts,
        sections: vec![tried, repeat],
    }
    .html()
}

/// Section that says how to make the page again: the command line with the words after `weft`, and
/// the texts of the load and drives, by the names of their files.
fn repeat<'a>(words: &[OsString], sources: impl Iterator<Item = &'a (String, String)>) -> Section {
    let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    let mut blocks = vec![
        Block::Text("This command gives the same page, to the digit, wherever it runs:".to_owned()),
        Block::Code(format!("weft {}", words.join(" "))),
    ];
    let mut told: Vec<&str> = Vec::new();
    for (name, text) in sources {
        if !told.contains(&name.as_str()) {
            told.push(name);
            blocks.push(Block::Text(format!("{}:", quoted(OsStr::new(name)))));
            blocks.push(Block::Code(text.trim_end().to_owned()));
        }
    }
    Section { title: "How to repeat it".to_owned(), blocks }
}

/// Names and texts of the files with drives that are not models of weft.
pub(super) fn drives_of_files(volume: &Volume) -> Vec<(String, String)> {
    let mut texts: Vec<(String, String)> = Vec::new();
    for (name, _) in &volume.members {
        // Changes by --drive follow the name of the file.
        let file = name.find(".toml").map(|end| &name[..end + ".toml".len()]);
        let Some(file) = file.filter(|file| texts.iter().all(|(known, _)| known != file)) else {
            continue;
        };
        texts.extend(source::text(Path::new(file)));
    }
    texts
}

/// Facts about a volume, as name and value.
pub(super) fn facts_of(volume: &Volume) -> Vec<(String, String)> {
    let mut drives: Vec<&str> = volume.members.iter().map(|(name, _)| name.as_str()).collect();
    drives.dedup();
    let cache = volume.stripe_cache().map_or("none".to_owned(), |cache| {
        format!("{}, {} stripes", size::human(cache.bytes), cache.stripes)
    });
    let facts = [
        ("Level", volume.level.map_or("single", Level::name).to_owned()),
        ("Members", volume.members.len().to_string()),
        ("Drives", drives.join(", ")),
        ("Chunk", size::human(volume.chunk)),
        ("Stripe cache", cache),
    ];
    facts.into_iter().map(|(name, fact)| (name.to_owned(), fact)).collect()
}

/// Facts about the volumes of all settings, as name and value. A fact in which they differ has each
/// of its values.
fn facts_of_all(settings: &[part::Setting]) -> Vec<(String, String)> {
    let mut all: Vec<(String, Vec<&str>)> = Vec::new();
    for (name, fact) in settings.iter().flat_map(|setting| &setting.facts) {
        match all.iter_mut().find(|(known, _)| known == name) {
            Some((_, facts)) if facts.contains(&fact.as_str()) => {}
            Some((_, facts)) => facts.push(fact),
            None => all.push((name.clone(), vec![fact])),
        }
    }
    all.into_iter().map(|(name, facts)| (name, facts.join("; "))).collect()
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
