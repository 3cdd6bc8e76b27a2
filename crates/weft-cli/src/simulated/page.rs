//! Pages of a sweep and of an advice: charts and tables, and how to repeat them.

use std::ffi::OsStr;
use std::path::Path;

use weft_lab::report::{self, Bars, Block, Group, Report, Section, Setting};
use weft_lab::simulate::Volume;
use weft_lab::simulate::advise::{Advice, Goal, Step};
use weft_lab::simulate::sweep::{Metric, PERCENTS};
use weft_lab::statistics::Estimate;
use weft_ondisk::Level;
use weft_terminal::terminal::quoted;

use super::sweep::{Compared, Found, alike, iops, verdicts};
use super::{Simulated, shares, source};
use crate::size;

/// The page, as HTML.
pub(super) fn page(simulated: &Simulated, what: &Compared, found: &Found) -> String {
    let Found { settings, swept, effects, runs } = found;
    let runs = *runs;
    let caches = settings.caches();
    let milliseconds = |of: Estimate| value(of, 1e6, runs);
    // The file name without its folder.
    let file = what.title.rsplit('/').next().unwrap_or(&what.title);
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
            let mut remarks = Vec::new();
            if !best.is_empty() {
                remarks.push(format!("best {}", best.join(", ")));
            }
            if let Some(cache) = caches.as_ref().and_then(|caches| caches[setting]) {
                let (bytes, stripes) = (size::human(cache.bytes), cache.stripes);
                remarks.push(format!("stripe cache {bytes}, {stripes} stripes"));
            }
            if let Some(other) = effects.same(setting, &settings.names) {
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
        let mut facts = what.facts.clone();
        facts.push(("Job".to_owned(), job.job.clone()));
        facts.extend(volume_facts(&settings.volumes));
        if !settings.knobs.is_empty() {
            facts.push(("Swept".to_owned(), settings.knob.clone()));
        }
        facts.push(("Seed".to_owned(), simulated.seed.to_string()));
        facts.push(("Runs of each setting".to_owned(), runs.to_string()));
        facts.push(("Costs of CPU work".to_owned(), simulated.costs.clone()));
        facts.push(("weft".to_owned(), env!("CARGO_PKG_VERSION").to_owned()));
        let mut lines = verdicts(job, &settings.names, runs);
        lines.extend(effects.lines());
        if !settings.cache_rule.is_empty() {
            lines.push(settings.cache_rule.clone());
        }
        report::Sweep {
            title: if job.job == file { file.to_owned() } else { format!("{file}: {}", job.job) },
            summary: sentences(&lines),
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
    first.sections.push(repeat(what, &settings.volumes));
    first.html()
}

/// Page of an advice: its result in a line, what was tried, and how to repeat it.
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
    facts.extend(volume_facts(std::slice::from_ref(&advice.volume)));
    facts.push(("Goal".to_owned(), metric.clone()));
    facts.push(("Seed".to_owned(), simulated.seed.to_string()));
    facts.push(("Costs of CPU work".to_owned(), simulated.costs.clone()));
    facts.push(("weft".to_owned(), env!("CARGO_PKG_VERSION").to_owned()));
    let tried = Section {
        title: "What was tried".to_owned(),
        blocks: advice.steps.iter().flat_map(step).collect(),
    };
    let repeat = repeat(what, std::slice::from_ref(&advice.volume));
    Report {
        title: format!("{}: advice", what.title.rsplit('/').next().unwrap_or(&what.title)),
        summary: sentences(&[result.to_owned()]),
        facts,
        sections: vec![tried, repeat],
    }
    .html()
}

/// Section that says how to repeat the page: the command line as it was given, and the load.
fn repeat(what: &Compared, volumes: &[Volume]) -> Section {
    let words: Vec<String> = std::env::args_os().skip(1).map(|word| quoted(&word)).collect();
    let mut blocks = vec![
        Block::Text("This command gives the same page, to the digit, wherever it runs:".to_owned()),
        Block::Code(format!("weft {}", words.join(" "))),
    ];
    for (name, text) in what.sources.iter().chain(&drives_of_files(volumes)) {
        blocks.push(Block::Text(format!("{}:", quoted(OsStr::new(name)))));
        blocks.push(Block::Code(text.trim_end().to_owned()));
    }
    Section { title: "How to repeat it".to_owned(), blocks }
}

/// Texts of drives that are no models of weft, by the names of their files.
fn drives_of_files(volumes: &[Volume]) -> Vec<(String, String)> {
    let members = volumes.iter().flat_map(|volume| &volume.members);
    let mut texts: Vec<(String, String)> = Vec::new();
    for (name, _) in members {
        // Changes by --drive follow the name of the file.
        let file = name.find(".toml").map(|end| &name[..end + ".toml".len()]);
        let Some(file) = file.filter(|file| texts.iter().all(|(known, _)| known != file)) else {
            continue;
        };
        texts.extend(source::text(Path::new(file)));
    }
    texts
}

/// Facts about the volumes: what they have in common, or each of their values.
fn volume_facts(volumes: &[Volume]) -> Vec<(String, String)> {
    let each = |of: &dyn Fn(&Volume) -> String| {
        let mut values: Vec<String> = Vec::new();
        for value in volumes.iter().map(of) {
            if !values.contains(&value) {
                values.push(value);
            }
        }
        values.join("; ")
    };
    let drives = |volume: &Volume| {
        let mut names: Vec<&str> = volume.members.iter().map(|(name, _)| name.as_str()).collect();
        names.dedup();
        names.join(", ")
    };
    let cache = |volume: &Volume| {
        volume.stripe_cache().map_or("none".to_owned(), |cache| {
            format!("{}, {} stripes", size::human(cache.bytes), cache.stripes)
        })
    };
    let level = |volume: &Volume| volume.level.map_or("single", Level::name).to_owned();
    let facts: [(&str, String); 5] = [
        ("Level", each(&level)),
        ("Members", each(&|volume| volume.members.len().to_string())),
        ("Drives", each(&drives)),
        ("Chunk", each(&|volume| size::human(volume.chunk))),
        ("Stripe cache", each(&cache)),
    ];
    facts.into_iter().map(|(name, fact)| (name.to_owned(), fact)).collect()
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
