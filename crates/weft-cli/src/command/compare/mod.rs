//! `weft compare`: comparison of sets of runs, case by case.
//!
//! The comparison follows the script that the author of patch 001 (`weft reproduce`) attached to
//! his mail, and takes results of weft, of fio, and copies of `/proc/vmstat`. Without repeats its
//! table equals the table of the mail, to the column.

mod print;
mod remarks;
mod verdict;

use weft_terminal::outcome::{Exit, Failure, Outcome};
use weft_terminal::terminal::{complain, print_json, stdout};

use std::io::Write as _;
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use weft_lab::compare::{
    By, CompareError, Comparison, Copies, Field, GroupChange, Order, Row, Select, Sets,
    lower_is_better,
};
use weft_lab::report::Report;

use crate::result_kinds;
use verdict::Verdict;

/// Compares sets of runs, case by case
///
/// A run is a folder with vmstat-end (and vmstat-begin), copies of /proc/vmstat; a job in a JSON
/// output of fio, NAME.json; or a result folder of weft reproduce. Each argument is a set of runs.
/// Runs with the same path below their sets are one case; folders named run1, run-2 and so on are
/// repeats of it. Within a set, runs with the same seed or the same bytes count once. Run folders
/// with names as xfs-10dd-1M-24p-16384M-100M:10-KERNEL, given one by one, are split by kernel. The
/// first set is what the others are compared with. With repeats, the change is that of geometric
/// means, ± is the standard deviation in percent, and * marks a change with a 95 % interval that
/// does not contain 0.
#[derive(Debug, Args)]
pub(crate) struct Compare {
    /// Folders with runs, or JSON outputs of fio
    #[arg(required = true)]
    runs: Vec<PathBuf>,
    /// Figure to compare, such as nr_written, bw_bytes, write.clat_ns.percentile.99 or throughput;
    /// `list` lists all
    #[arg(long, value_name = "NAME")]
    metric: Option<String>,
    /// Make a set of each argument, each column of an experiment, or each value of a part of
    /// the names of run folders [default: kernel for run folders of several kernels, else argument]
    #[arg(long, value_name = "WHAT", value_parser = PossibleValuesParser::new(By::all().into_iter().map(By::name)))]
    by: Option<String>,
    /// The set that the others are compared with [default: the first that is found]
    #[arg(long, value_name = "SET")]
    base: Option<String>,
    /// Only cases with this text in their names; may be given several times, for cases with any of
    /// the texts
    #[arg(long, value_name = "WORDS")]
    only: Vec<String>,
    /// Only cases that changed by so many percent, up or down
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    at_least: Option<f64>,
    /// Only cases that every set has
    #[arg(long)]
    common: bool,
    /// Order of cases: by name, by their change in the last set, or by their value in the first
    /// set
    #[arg(long, value_name = "ORDER", default_value = "case")]
    sort: Sort,
    /// Reverse the order
    #[arg(long)]
    reverse: bool,
    /// Groups of the geometric means: the folder of a case, or a part of the names of run folders
    #[arg(long, value_name = "WHAT", default_value = "folder", value_parser = PossibleValuesParser::new(groups()))]
    group: String,
    /// Which way is better, for colours, where the metric's name does not say it
    #[arg(long, value_name = "WAY", value_parser = ["higher", "lower"])]
    better: Option<String>,
    /// End with status 5 if a case is worse by more than so many percent, with its whole interval
    /// beyond that; which way is worse, --better and the metric's name say
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    fail_above: Option<f64>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Print a page of HTML
    #[arg(long, conflicts_with = "json")]
    html: bool,
    /// Write the page of HTML to a file, beside the table
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// Overwrite the page that --report names
    #[arg(long, requires = "report")]
    force: bool,
}

/// Values of `--sort`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Sort {
    Case,
    Change,
    Value,
}

/// Values of `--group`.
fn groups() -> impl Iterator<Item = &'static str> {
    std::iter::once("folder").chain(Field::ALL.map(Field::name))
}

fn percent(text: &str) -> Result<f64, String> {
    let percent = text.trim_end_matches('%').parse().ok();
    let fits = percent.filter(|percent: &f64| percent.is_finite() && *percent >= 0.0);
    fits.ok_or_else(|| format!("found {text:?}, expected a number of percent, 0 or more"))
}

pub(crate) fn run(arguments: &Compare) -> Outcome {
    let by = By::all().into_iter().find(|by| Some(by.name()) == arguments.by.as_deref());
    let sets = Sets::read(&arguments.runs, by, arguments.base.as_deref()).map_err(failure)?;
    for path in &sets.empty {
        complain(&format!("{}: found no run in it: it is left out", path.display()));
    }
    if arguments.metric.as_deref() == Some("list") {
        return print_metrics(&sets, arguments.json);
    }
    let Some(metric) = arguments.metric.as_deref().or(sets.default_metric()) else {
        let path = arguments.runs[0].display();
        return Err(Failure::failed(format!(
            "{path}: found no metric in any run, expected numbers; leave out runs that have none"
        )));
    };
    let comparison = Comparison::of(&sets, metric, &arguments.select()).map_err(failure)?;
    for (path, remark) in sets.remarks() {
        complain(&format!("{}: {remark}", path.display()));
    }
    let lower = match arguments.better.as_deref() {
        Some(way) => way == "lower",
        None => lower_is_better(metric),
    };
    let file = result_kinds::report(arguments.report.as_deref(), arguments.force)?;
    let mut remarks = remarks::of(&sets, &comparison);
    let verdict = arguments.fail_above.map(|percent| Verdict::of(&comparison, percent, lower));
    let verdict = verdict.transpose()?;
    remarks.extend(verdict.iter().map(Verdict::line));
    let page = || Report::compared(&comparison, &remarks).html();
    if arguments.json {
        print_json(&to_json(&comparison, &remarks, verdict.as_ref()))?;
    } else if arguments.html {
        std::io::stdout().write_all(page().as_bytes())?;
    } else {
        print::print(&mut stdout(), &comparison, &remarks, lower)?;
    }
    if let Some(file) = file {
        file.write(page())?;
    }
    Ok(verdict.map_or(Exit::Done, |verdict| verdict.exit()))
}

fn failure(error: CompareError) -> Failure {
    if error.is_usage() { Failure::usage(error) } else { Failure::failed(error) }
}

impl Compare {
    fn select(&self) -> Select {
        Select {
            only: self.only.clone(),
            at_least: self.at_least,
            common: self.common,
            order: match self.sort {
                Sort::Case => Order::Case,
                Sort::Change => Order::Change,
                Sort::Value => Order::Value,
            },
            reverse: self.reverse,
            group: Field::ALL.into_iter().find(|field| field.name() == self.group),
        }
    }
}

fn print_metrics(sets: &Sets, as_json: bool) -> Outcome {
    let metrics = sets.metrics();
    if as_json {
        print_json(&json!({"schema": "weft.metrics/1", "metrics": metrics}))?;
    } else {
        let mut out = stdout();
        for metric in metrics {
            writeln!(out, "{metric}")?;
        }
    }
    Ok(Exit::Done)
}

fn to_json(comparison: &Comparison, remarks: &[String], verdict: Option<&Verdict>) -> Value {
    let sets: Vec<Value> =
        comparison.sets.iter().map(|(name, runs)| json!({"name": name, "runs": runs})).collect();
    let groups: Vec<Value> = comparison
        .groups
        .iter()
        .map(|group| {
            let changes = group.changes.iter().map(|change| {
                change.map(|GroupChange { percent, cases, interval, is_by_runs }| {
                    let of = if is_by_runs { "runs" } else { "cases" };
                    json!({
                        "gain_pct": percent,
                        "cases": cases,
                        "ci95": interval.map(|(low, high)| [low, high]),
                        "ci95_of": interval.map(|_| of),
                    })
                })
            });
            json!({"group": group.name, "changes": changes.collect::<Vec<_>>()})
        })
        .collect();
    json!({
        "schema": "weft.compare/1",
        "metric": comparison.metric,
        "by": comparison.by.name(),
        "sets": sets,
        "rows": comparison.rows.iter().map(row_to_json).collect::<Vec<_>>(),
        "geometric_means": groups,
        "missing": comparison.missing_count(),
        "copies": comparison.copies.iter().map(copy_to_json).collect::<Vec<_>>(),
        "fail_above": verdict.map(Verdict::to_json),
        "remarks": remarks,
    })
}

fn copy_to_json(copies: &Copies) -> Value {
    let Copies { set, counts, copy, seed, is_same } = copies;
    let [counts, copy] = [counts, copy].map(|path| path.to_string_lossy());
    json!({"set": set, "counts": counts, "copy": copy, "seed": seed, "same_results": is_same})
}

fn row_to_json(row: &Row) -> Value {
    let cells = row.cells.iter().map(|cell| {
        cell.as_ref().map(|cell| {
            json!({"mean": cell.mean, "spread_pct": cell.spread_percent, "values": cell.values})
        })
    });
    let changes = row.changes.iter().map(|change| {
        change.as_ref().map(|change| {
            let interval = change.interval.map(|(low, high)| [low, high]);
            let of_percent = change.percent.is_some();
            json!({
                "gain_pct": change.percent,
                "ci95": interval.filter(|_| of_percent),
                "would_see_pct": change.would_see.filter(|_| of_percent),
                "difference": change.difference,
                "difference_ci95": interval.filter(|_| !of_percent),
                "significant": change.is_sure(),
                "paired": change.is_paired,
            })
        })
    });
    json!({
        "case": row.case,
        "group": row.group,
        "cells": cells.collect::<Vec<_>>(),
        "changes": changes.collect::<Vec<_>>(),
    })
}
