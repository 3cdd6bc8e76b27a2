//! `weft reproduce`: what was published of a patch, and what weft measures of the same change.
//!
//! The engine that serves volumes runs on simulated disks, before the patch and with it, in the same
//! circumstances several times. What is published is a ratio, so a ratio is what is compared.
//!
//! Source   cli.md, "Experiments": the schema `weft.reproduce/1`

use std::io::Write;

use clap::Args;
use serde_json::{Value, json};
use weft_lab::experiment::{Effort, Experiment, Measured};
use weft_lab::statistics::{Estimate, Verdict, gain_percent};

use crate::outcome::{Exit, Failure, Outcome};
use crate::terminal::{print_json, stdout, steps};

/// Measures a published patch's effect again, on simulated disks
///
/// Of patch 000 (priority) so far the dd rows. Each row is run before the patch and with it; the gain is the
/// mean of paired runs, with its 95 % interval. A row agrees when the whole interval lies in the band that
/// was written down beforehand.
#[derive(Debug, Args)]
pub(crate) struct Reproduce {
    /// Numbers or names of patches; all that there are if none is given
    patches: Vec<String>,
    /// Runs of each variant
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..=1000))]
    runs: Option<u64>,
    /// The first run's seed; the others follow
    #[arg(long, value_name = "S", default_value_t = SEED)]
    seed: u64,
    /// Fewer and shorter runs, with the same limits and caches
    #[arg(long)]
    quick: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Source   experiments.md §4, 3
const SEED: u64 = 0x7765_6674;

pub(crate) fn run(arguments: &Reproduce) -> Outcome {
    let experiments = if arguments.patches.is_empty() {
        Experiment::all().map_err(Failure::failed)?
    } else {
        let named = arguments.patches.iter().map(|name| Experiment::named(name));
        named.collect::<Result<_, _>>().map_err(Failure::usage)?
    };
    let runs = arguments.runs.unwrap_or(if arguments.quick { 5 } else { 10 });
    let effort = Effort { runs, seed: arguments.seed, quick: arguments.quick };
    let mut rows = Vec::new();
    for experiment in &experiments {
        let bar = steps("reproduce", 0);
        let measured = experiment.run(effort, &|done, of| {
            bar.set_length(of as u64);
            bar.set_position(done as u64);
        });
        bar.finish_and_clear();
        let measured = measured.map_err(Failure::failed)?;
        if arguments.json {
            rows.extend(measured.iter().map(|row| to_json(experiment, row)));
        } else {
            print(experiment, &measured, effort)?;
        }
    }
    if arguments.json {
        let hashes: Vec<_> = experiments
            .iter()
            .map(|known| json!({ "patch": known.patch(), "sha256": known.hash }))
            .collect();
        print_json(&json!({
            "schema": "weft.reproduce/1",
            "seed": effort.seed,
            "runs": effort.runs,
            "quick": effort.quick,
            "experiments": hashes,
            "rows": rows,
        }))?;
    }
    Ok(Exit::Done)
}

fn print(experiment: &Experiment, measured: &[Measured], effort: Effort) -> Result<(), Failure> {
    let mut out = stdout();
    let (patch, name) = (experiment.patch(), experiment.name());
    writeln!(out, "patch {patch} ({name}), {} runs of each variant", effort.runs)?;
    writeln!(out, "  published on {}", experiment.published_by())?;
    writeln!(
        out,
        "  {:<28} {:>9} {:>9} {:>10} {:>18} {:>12} {:>16}  verdict",
        "", "baseline", "patched", "published", "measured", "band", "KiB read per MiB"
    )?;
    for row in measured {
        let Estimate { value, low, high, .. } = row.ratio;
        let gain = format!(
            "{:+.1} % ({:+.1}…{:+.1})",
            gain_percent(value),
            gain_percent(low),
            gain_percent(high)
        );
        let [least, most] = row.row.band;
        let band = format!("{:+.0}…{:+.0} %", gain_percent(least), gain_percent(most));
        let prereads = format!("{:.1} → {:.1}", row.prereads.0, row.prereads.1);
        writeln!(
            out,
            "  {:<28} {:>4.0} MB/s {:>4.0} MB/s {:>8.1} % {:>18} {:>12} {:>16}  {}",
            row.row.to_string(),
            row.throughput.0.value,
            row.throughput.1.value,
            row.row.published_gain_pct,
            gain,
            band,
            prereads,
            row.verdict.word()
        )?;
    }
    if measured.iter().any(|row| row.verdict != Verdict::Agrees) {
        writeln!(out, "  where it does not agree: {}", experiment.reason())?;
    }
    writeln!(out, "  taken for granted:")?;
    for assumption in experiment.assumptions() {
        writeln!(out, "  - {assumption}")?;
    }
    writeln!(out, "  experiments/{patch}.toml, sha256 {}", experiment.hash)?;
    Ok(())
}

fn to_json(experiment: &Experiment, measured: &Measured) -> Value {
    let Measured { row, ratio, throughput, prereads, verdict, .. } = measured;
    let reason = if *verdict == Verdict::Agrees { "" } else { experiment.reason() };
    json!({
        "patch": experiment.patch(),
        "experiment": row.experiment,
        "case": row.case,
        "metric": "throughput",
        "unit": "MB/s",
        "better": "higher",
        "published": {
            "baseline": null,
            "patched": null,
            "gain_pct": row.published_gain_pct,
        },
        "measured": {
            "baseline": throughput.0.value,
            "patched": throughput.1.value,
            "gain_pct": gain_percent(ratio.value),
            "ci95": [gain_percent(ratio.low), gain_percent(ratio.high)],
            "preread_kib_per_mib": { "baseline": prereads.0, "patched": prereads.1 },
        },
        "band": row.band,
        "verdict": verdict.word(),
        "reason": reason,
    })
}
