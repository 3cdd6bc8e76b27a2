//! JSON of `weft reproduce`.
//!
//! Source   reference.md: the schema `weft.reproduce/2`

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use weft_lab::experiment::{
    CaseRuns, ClaimKind, Control, Counts, Curve, Dependence, Effort, Experiment, Measured, Metric,
    NO_VERDICTS, Outcome as Found, OwnPolicy, PublishedRow, Tally,
};
use weft_lab::statistics::{Band, Estimate, Verdict, gain_percent};
use weft_lab::text::hex;

use super::text::unit;

/// The whole JSON document of `weft reproduce`.
pub(super) fn to_json(
    experiments: &[Experiment],
    found: &[Found],
    controls: &[Vec<Control>],
    effort: Effort,
) -> Value {
    let all = || experiments.iter().zip(found);
    let texts: Vec<Value> = all()
        .zip(controls)
        .map(|((known, found), controls)| text(known, found, controls))
        .collect();
    let rows: Vec<Value> =
        all().flat_map(|(known, found)| found.rows.iter().map(|of| row(known, of))).collect();
    let mut sheet = json!({
        "schema": "weft.reproduce/2",
        "seed": effort.seed,
        "runs": effort.runs,
        "size": effort.size.word(),
        "experiments": texts,
        "rows": rows,
    });
    let tally = Tally::of(found.iter().map(|found| found.rows.as_slice()));
    let counts = |counts: Counts| {
        json!({
            "all": counts.all(),
            "agrees": counts.agree,
            "agrees_otherwise": counts.otherwise,
            "direction": counts.direction,
            "undecided": counts.undecided,
            "differs": counts.differ,
        })
    };
    sheet["no_verdicts"] = if tally.is_some() { "" } else { NO_VERDICTS }.into();
    sheet["summary"] = tally
        .map(|tally| {
            json!({
                "published_figures": counts(tally.figures),
                "claims": counts(tally.claims),
                "not_counted": tally.uncounted,
            })
        })
        .into();
    sheet["result_sha256"] = hex(&Sha256::digest(sheet.to_string())).into();
    sheet
}

fn text(experiment: &Experiment, found: &Found, controls: &[Control]) -> Value {
    let columns: serde_json::Map<String, Value> = experiment
        .columns()
        .map(|(name, column)| (name.to_owned(), column.about.clone().into()))
        .collect();
    let fits: Vec<Value> = experiment
        .fits()
        .iter()
        .map(|fit| {
            json!({
                "parameter": fit.parameter,
                "about": fit.about,
                "value": fit.value,
                "to_baseline_of": fit.row,
            })
        })
        .collect();
    let controls: Vec<Value> = controls
        .iter()
        .map(|control| {
            json!({
                "name": control.name,
                "about": control.about,
                "gain_pct": gain_percent(control.ratio.value),
                "ci95": interval(&control.ratio),
                "expected": control.expected(),
                "holds": control.holds(),
            })
        })
        .collect();
    json!({
        "patch": experiment.patch(),
        "name": experiment.name(),
        "sha256": experiment.hash,
        "costs": experiment.costs(),
        "assumptions": experiment.assumptions(),
        "columns": columns,
        "fitted": fits,
        "controls": controls,
        "cases": found.cases.iter().map(case).collect::<Vec<_>>(),
        "curves": found.curves().iter().map(curve).collect::<Vec<_>>(),
        "own_policies": found.own_policies.iter().map(own_policy).collect::<Vec<_>>(),
        "beside": found.beside.iter().map(|of| row(experiment, of)).collect::<Vec<_>>(),
    })
}

/// JSON of a policy of weft's own, with every quantity in which it is compared with the best of the
/// other columns.
fn own_policy(policy: &OwnPolicy) -> Value {
    let quantities = policy.quantities.iter().map(|of| {
        json!({
            "case": of.case,
            "metric": of.metric.name(),
            "best": of.best,
            "gain_pct": gain_percent(of.to_best.value),
            "ci95": interval(&of.to_best),
            "answer": of.answer().word(),
        })
    });
    json!({
        "column": policy.column,
        "is_beyond": policy.is_beyond(),
        "quantities": quantities.collect::<Vec<_>>(),
    })
}

fn curve(curve: &Curve) -> Value {
    let points = curve.points.iter().map(|(times, ratio)| {
        json!({ "costs_times": times, "ratio": ratio.value, "ci95": [ratio.low, ratio.high] })
    });
    json!({
        "name": curve.name,
        "points": points.collect::<Vec<_>>(),
        "below_one_from": curve.below_one_from,
        "falls": curve.falls,
    })
}

/// JSON of all measurements of a case, run by run.
fn case(case: &CaseRuns) -> Value {
    let columns: serde_json::Map<String, Value> = case
        .columns
        .iter()
        .map(|(name, samples)| {
            let runs: Vec<Value> = samples.iter().map(|sample| values(&sample.values)).collect();
            (name.clone(), runs.into())
        })
        .collect();
    json!({
        "case": case.name,
        "costs_times": case.costs_times,
        "unsettled": case.unsettled(),
        "runs": columns,
    })
}

fn values(values: &std::collections::BTreeMap<Metric, f64>) -> Value {
    let named = values.iter().map(|(metric, value)| (metric.name().to_owned(), json!(value)));
    Value::Object(named.collect())
}

fn row(experiment: &Experiment, measured: &Measured) -> Value {
    let Measured { row, baseline, patched, ratio, .. } = measured;
    let verdict = measured.verdict().filter(|_| row.kind != ClaimKind::Beside);
    let hangs_on = experiment.hangs_on(row);
    let band = match row.band() {
        _ if row.kind == ClaimKind::Beside => Value::Null,
        Band::Above(_) | Band::Below(_) => json!("direction"),
        Band::Inside { low, high } => json!([low, high]),
    };
    let better = if row.metric.higher_is_better() { "higher" } else { "lower" };
    // A row without a magnitude has its direction and its runs.
    let sized = measured.no_magnitude.is_empty();
    let beyond = measured.beyond.as_ref().map(|beyond| {
        json!({
            "name": beyond.side.name,
            "value": beyond.side.mean.value,
            "gain_pct": gain_percent(beyond.ratio.value),
            "ci95": interval(&beyond.ratio),
            "to_better": {
                "column": beyond.to_better.0,
                "gain_pct": gain_percent(beyond.to_better.1.value),
                "ci95": interval(&beyond.to_better.1),
            },
        })
    });
    json!({
        "patch": experiment.patch(),
        "experiment": row.experiment,
        "case": row.case,
        "kind": row.kind.word(),
        "metric": row.metric.name(),
        "unit": unit(measured),
        "better": better,
        "published": {
            "baseline": row.published.baseline,
            "patched": row.published.patched,
            "gain_pct": row.published.gain_percent(),
        },
        "measured": {
            "baseline": baseline.mean.value,
            "patched": patched.mean.value,
            "gain_pct": sized.then(|| gain_percent(ratio.value)),
            "ci95": sized.then(|| interval(ratio)),
            "columns": [baseline.name, patched.name],
            "runs": { "baseline": baseline.runs, "patched": patched.runs },
        },
        "beyond": beyond,
        "band": band,
        "verdict": verdict.map(Verdict::word),
        "reason": measured.reason(),
        "no_magnitude": measured.no_magnitude,
        "note": row.note,
        "cell": row.counted_as(),
        "counted": row.kind != ClaimKind::Beside && row.uncounted.is_empty(),
        "assumed": assumed(row),
        "hangs_on": {
            "assumed": match hangs_on.assumed {
                Dependence::No => Some(false),
                Dependence::Unknown => None,
                Dependence::Yes => Some(true),
            },
            "chosen_afterwards": hangs_on.chosen,
        },
    })
}

/// Ends of the 95 % interval of a gain, in percent.
pub(crate) fn interval(ratio: &Estimate) -> [f64; 2] {
    [gain_percent(ratio.low), gain_percent(ratio.high)]
}

/// JSON of the range in which a row's gain lies under other values of the assumed parameters, as
/// the text of the experiment states it. `None` if it states none.
pub(crate) fn assumed(row: &PublishedRow) -> Option<Value> {
    row.assumed
        .as_ref()
        .map(|assumed| json!({ "gain_pct": assumed.gain_pct, "over": assumed.over }))
}
