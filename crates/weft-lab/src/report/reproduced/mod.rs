//! Report of reproduced patches: figures, mechanism, and all measurements.
//!
//! | part | file |
//! |---|---|
//! | published beside measured | `figures.rs` |
//! | mechanism of the patch | `why.rs` |
//! | dirty pages, disks and waits over time | `dirty.rs` |
//! | other measurements | `beside.rs` |

mod beside;
mod dirty;
mod figures;
mod why;

use super::{Block, Report, Section, number};
use crate::experiment::{
    CaseRuns, Control, Effort, Experiment, Measured, Metric, NO_VERDICTS, Outcome, Size, Tally,
};
use crate::report::Value;
use crate::statistics::mean;

/// An experiment and its results.
struct Found<'a> {
    experiment: &'a Experiment,
    outcome: &'a Outcome,
    /// Results of the controls; empty if they were not run.
    controls: &'a [Control],
}

impl Report {
    /// The page of some experiments: the results of each, and its controls if they were run.
    #[must_use]
    pub fn reproduced(
        experiments: &[Experiment],
        found: &[Outcome],
        controls: &[Vec<Control>],
        effort: Effort,
    ) -> Self {
        let controls = controls.iter().map(Vec::as_slice).chain(std::iter::repeat(&[][..]));
        let found: Vec<Found<'_>> = experiments
            .iter()
            .zip(found)
            .zip(controls)
            .map(|((experiment, outcome), controls)| Found { experiment, outcome, controls })
            .collect();
        Self {
            title: title(&found),
            summary: summary(&found),
            facts: facts(&found, effort),
            sections: found.iter().flat_map(Found::sections).collect(),
        }
    }
}

fn title(found: &[Found<'_>]) -> String {
    let names: Vec<String> = found
        .iter()
        .map(|of| format!("{} ({})", of.experiment.patch(), of.experiment.name()))
        .collect();
    let patches = if names.len() == 1 { "Patch" } else { "Patches" };
    format!("{patches} {}, reproduced", names.join(" and "))
}

fn summary(found: &[Found<'_>]) -> String {
    let tally = Tally::of(found.iter().map(|of| of.outcome.rows.as_slice()));
    let tally = tally.map_or(NO_VERDICTS.to_owned(), |tally| tally.to_string());
    format!(
        "{}. The engine that serves volumes ran on simulated disks, as it was before each patch and \
         with it; only the patch differs between the two runs of a pair.",
        beside::first_up(&tally)
    )
}

fn facts(found: &[Found<'_>], effort: Effort) -> Vec<(String, String)> {
    let size = match effort.size {
        Size::Quick => "quick: fewer and shorter runs, the same limits and caches",
        Size::Default => "default",
        Size::Full => "full: as much as was published",
    };
    let mut facts = vec![
        ("weft".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        ("size".to_owned(), size.to_owned()),
        ("runs".to_owned(), format!("{} of each column, in pairs of one seed", effort.runs)),
        ("first seed".to_owned(), format!("{:#x}", effort.seed)),
    ];
    for of in found {
        let patch = of.experiment.patch();
        let (origin, hash) = (of.experiment.origin().to_owned(), &of.experiment.hash);
        facts.push((origin, format!("SHA-256 {hash}")));
        facts.push((format!("CPU costs, {patch}"), of.experiment.costs().to_owned()));
    }
    facts
}

impl Found<'_> {
    fn sections(&self) -> Vec<Section> {
        let heading = |what: &str| format!("Patch {}: {what}", self.experiment.patch());
        let section = |what: &str, blocks| Section { title: heading(what), blocks };
        let mut sections = vec![section("what came out", self.figures())];
        sections.push(section("why", self.why()));
        sections.push(section("all that was measured", self.beside()));
        sections.push(section("taken for granted", self.assumptions()));
        sections
    }

    fn assumptions(&self) -> Vec<Block> {
        let fitted = self.experiment.fits().iter().map(|fit| {
            let (name, about, value) = (&fit.parameter, &fit.about, number(fit.value));
            format!(
                "{name} = {value}: {about}. Fitted to the baseline of {}, and to nothing else.",
                fit.row
            )
        });
        let fitted: Vec<String> = fitted.collect();
        let fitted = if fitted.is_empty() {
            vec![Block::Text("Nothing is fitted: every figure is predicted.".to_owned())]
        } else {
            vec![Block::Text("Fitted:".to_owned()), Block::List(fitted)]
        };
        let assumed = [
            Block::Text("Assumed:".to_owned()),
            Block::List(self.experiment.assumptions().to_vec()),
        ];
        fitted.into_iter().chain(assumed).collect()
    }

    /// Columns that were run, in the order in which they are shown: before the patch, with the
    /// patch, others, weft's own.
    fn columns(&self) -> Vec<&str> {
        let rows = &self.outcome.rows;
        let rank = |name: &str| match name {
            "baseline" => 0,
            "patched" => 1,
            _ if rows.iter().any(|row| row.row.beyond.as_deref() == Some(name)) => 3,
            _ => 2,
        };
        let ran = |name: &str| self.outcome.cases.iter().any(|case| !case.column(name).is_empty());
        let names = self.experiment.columns().map(|(name, _)| name);
        let mut columns: Vec<&str> = names.filter(|name| ran(name)).collect();
        columns.sort_by_key(|name| rank(name));
        columns
    }

    /// Cases by load: each group has one load in different circumstances.
    fn loads(&self) -> Vec<Vec<&CaseRuns>> {
        let mut loads: Vec<(String, Vec<&CaseRuns>)> = Vec::new();
        for case in &self.outcome.cases {
            let text = self.experiment.cases().iter().find(|known| known.name == case.name);
            let load = text.map_or(String::new(), |text| format!("{:?}", text.load));
            match loads.iter_mut().find(|known| known.0 == load) {
                Some((_, cases)) => cases.push(case),
                None => loads.push((load, vec![case])),
            }
        }
        loads.into_iter().map(|(_, cases)| cases).collect()
    }

    fn rows(&self) -> &[Measured] {
        &self.outcome.rows
    }

    /// All comparisons of the experiment: the rows, then the comparisons beside them, which have no
    /// published figure.
    fn compared(&self) -> impl Iterator<Item = &Measured> {
        self.outcome.rows.iter().chain(&self.outcome.beside)
    }
}

/// A name in the form of the experiment's text (`a_b`), as words for readers.
fn words(name: &str) -> String {
    name.replace('_', " ").replace(" kib", " KiB")
}

/// Measured values of a column in a case, run by run.
fn runs(case: &CaseRuns, column: &str, metric: Metric) -> Vec<f64> {
    let samples = case.column(column).iter();
    samples.filter_map(|sample| sample.values.get(&metric).copied()).collect()
}

/// Mean of runs, with its interval if there are two runs or more; `None` without runs.
fn value(runs: &[f64]) -> Option<Value> {
    let first = *runs.first()?;
    Some(mean(runs).map_or(Value::exact(first), Value::from))
}
