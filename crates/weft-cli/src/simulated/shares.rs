//! Shares of the jobs of a sweep: the fraction of all transferred bytes that each job got, by
//! setting, and its course over time.
//!
//! Jobs are the clients of a simulated volume. The share that a job should get follows from `prio`
//! and `prioclass`, if the scheduler uses them; this module shows the share that it got.

use std::io::Write;

use serde_json::{Value, json};
use weft_lab::report::{self, Axis, Block, Cell, Lines, Section, Series, Table};
use weft_lab::simulate::sweep::{COURSE_STEP, Swept};
use weft_terminal::outcome::Failure;
use weft_terminal::terminal::{stdout, style};

/// Prints a line for each setting, if several jobs ran.
pub(super) fn print(swept: &[Swept], knob: &str, names: &[String]) -> Result<(), Failure> {
    if swept.len() < 2 {
        return Ok(());
    }
    let mut out = stdout();
    let longest = |texts: &mut dyn Iterator<Item = &String>| {
        texts.map(|text| text.chars().count()).max().unwrap_or(0)
    };
    let width = longest(&mut names.iter()).max(knob.chars().count());
    let column = longest(&mut swept.iter().map(|job| &job.job)).max(7);
    writeln!(out, "{}shares{}, of all bytes that were moved", style::BOLD, style::PLAIN)?;
    write!(out, "  {knob:<width$}")?;
    for job in swept {
        write!(out, "  {:>column$}", job.job)?;
    }
    writeln!(out)?;
    for (setting, name) in names.iter().enumerate() {
        write!(out, "  {name:<width$}")?;
        for job in swept {
            write!(out, "  {:>column$}", format!("{:.1} %", job.share(setting) * 100.0))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// JSON of a job's share under one setting; `null` for a job that ran alone.
pub(super) fn to_json(job: &Swept, setting: usize, jobs: usize) -> Value {
    if jobs > 1 { json!(job.share(setting)) } else { Value::Null }
}

/// Section of the report with a table of the shares, and a chart over time for each setting; `None`
/// for a job that ran alone.
pub(super) fn section(swept: &[Swept], knob: &str, names: &[String]) -> Option<Section> {
    if swept.len() < 2 {
        return None;
    }
    let mut columns = vec![knob.to_owned()];
    columns.extend(swept.iter().map(|job| format!("{}, %", job.job)));
    let rows = names.iter().enumerate().map(|(setting, name)| {
        let mut row = vec![Cell::Text(name.clone())];
        let shares = swept.iter().map(|job| report::Value::exact(job.share(setting) * 100.0));
        row.extend(shares.map(|share| Cell::Value(Some(share))));
        row
    });
    let caption = "Of all bytes that were moved.".to_owned();
    let mut blocks = vec![Block::Table(Table { caption, columns, rows: rows.collect() })];
    blocks.extend(names.iter().enumerate().map(|(setting, name)| over_time(swept, setting, name)));
    Some(Section { title: "Shares".to_owned(), blocks })
}

/// Chart of the shares over time, with a line for each job, from the first run.
fn over_time(swept: &[Swept], setting: usize, name: &str) -> Block {
    let steps = swept.iter().map(|job| job.courses[setting].len()).max().unwrap_or(0);
    let at = |job: &Swept, step: usize| job.courses[setting].get(step).copied().unwrap_or(0.0);
    let all: Vec<f64> =
        (0..steps).map(|step| swept.iter().map(|job| at(job, step)).sum()).collect();
    let series = swept.iter().map(|job| {
        let points = all.iter().enumerate().filter(|(_, all)| **all > 0.0).map(|(step, all)| {
            let seconds = (step as f64 + 0.5) * COURSE_STEP.0 as f64 / 1e9;
            (seconds, report::Value::exact(at(job, step) / all * 100.0))
        });
        Series { name: job.job.clone(), points: points.collect() }
    });
    Block::Lines(Lines {
        title: format!("Shares over time, {name}"),
        description: "Each line is a job: its part of what was moved in each half second."
            .to_owned(),
        across: "seconds".to_owned(),
        up: "percent".to_owned(),
        axis: Axis::Linear,
        series: series.collect(),
        ..Lines::default()
    })
}
