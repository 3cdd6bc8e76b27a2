//! Page of a sweep: charts and tables, and how to repeat it.

use std::ffi::OsStr;
use std::path::Path;

use weft_lab::report::{self, Block, Section, Setting};
use weft_lab::simulate::Volume;
use weft_lab::simulate::sweep::{Metric, PERCENTS};
use weft_lab::statistics::Estimate;
use weft_ondisk::Level;
use weft_terminal::terminal::quoted;

use super::settings::Settings;
use super::sweep::{Compared, Found, alike, iops, verdicts};
use super::{Simulated, shares};
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
        facts.extend(volume_facts(settings));
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
    first.sections.push(repeat(what, settings));
    first.html()
}

/// Section that says how to repeat the sweep: the command line as it was given, and the load.
fn repeat(what: &Compared, settings: &Settings) -> Section {
    let words: Vec<String> = std::env::args_os().skip(1).map(|word| quoted(&word)).collect();
    let mut blocks = vec![
        Block::Text("This command gives the same page, to the digit, wherever it runs:".to_owned()),
        Block::Code(format!("weft {}", words.join(" "))),
    ];
    for (name, text) in what.sources.iter().chain(&drives_of_files(settings)) {
        blocks.push(Block::Text(format!("{}:", quoted(OsStr::new(name)))));
        blocks.push(Block::Code(text.trim_end().to_owned()));
    }
    Section { title: "How to repeat it".to_owned(), blocks }
}

/// Texts of drives that are no models of weft, by the names of their files.
fn drives_of_files(settings: &Settings) -> Vec<(String, String)> {
    let members = settings.volumes.iter().flat_map(|volume| &volume.members);
    let mut texts: Vec<(String, String)> = Vec::new();
    for (name, _) in members {
        // Changes by --drive follow the name of the file.
        let file = name.find(".toml").map(|end| &name[..end + ".toml".len()]);
        let Some(file) = file.filter(|file| texts.iter().all(|(known, _)| known != file)) else {
            continue;
        };
        let text = Path::new(file).is_file().then(|| std::fs::read_to_string(file));
        texts.extend(text.and_then(Result::ok).map(|text| (file.to_owned(), text)));
    }
    texts
}

/// Facts about the volumes: what they have in common, or each of their values.
fn volume_facts(settings: &Settings) -> Vec<(String, String)> {
    let each = |of: &dyn Fn(&Volume) -> String| {
        let mut values: Vec<String> = Vec::new();
        for value in settings.volumes.iter().map(of) {
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
    let facts: [(&str, String); 6] = [
        ("Level", each(&level)),
        ("Members", each(&|volume| volume.members.len().to_string())),
        ("Drives", each(&drives)),
        ("Chunk", each(&|volume| size::human(volume.chunk))),
        ("Stripe cache", each(&cache)),
        ("Swept", settings.knob.clone()),
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
