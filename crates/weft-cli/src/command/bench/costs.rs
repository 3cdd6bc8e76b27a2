//! `weft bench costs`: what does each kind of work cost on this CPU?
//!
//! Simulations charge CPU time from a table (`--costs`). What the engine does is measured as it
//! does it: several loads go through an engine without members, each is known by how often it did
//! what, and the costs are those that explain the time of all of them best. The rest are loops over
//! the very code, or over the very system call. All of it is this thread's CPU time, but for a hop,
//! which is waited for.

mod direct;
mod of_engine;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use weft_sim::machine::{CostTable, Costs};

use super::rounds::{Effort, median};
use super::sheet::{Sheet, SheetRow};
use crate::outcome::Failure;
use crate::result_file::ResultFile;
use crate::when;
use of_engine::Loads;

/// Measures what work costs on this CPU, for simulations with --costs
///
/// A row for each cost, in nanoseconds, or picoseconds a byte: the median over all rounds, and the
/// quartiles beside it. Then a row for each load that was put through the engine: what the table
/// says that it takes, as a part of what it took. Repeat it on an idle machine.
#[derive(Debug, Args)]
pub(crate) struct OfCosts {
    /// Write the table, for --costs FILE
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

impl OfCosts {
    pub(super) fn measure(&self, effort: Effort, sheet: &mut Sheet) -> Result<(), Failure> {
        let file = self.write.as_deref().map(ResultFile::at).transpose()?;
        let rounds = effort.rounds(25, 3);
        let turn = Duration::from_millis(if effort.quick { 4 } else { 20 });
        let mut loads = Loads::new()?;
        sheet.expect(rounds as usize);
        let mut figures = vec![Vec::new(); KINDS.len()];
        for round in 0..rounds {
            sheet.now(&format!("round {} of {rounds}", round + 1));
            let of_engine = loads.costs(turn)?;
            let direct = direct::costs(turn)?;
            let all = of_engine.iter().chain(&direct);
            figures.iter_mut().zip(all).for_each(|(figures, cost)| figures.push(*cost));
            sheet.step();
        }
        let mut costs = Costs::ZERO;
        for ((kind, figures), field) in KINDS.iter().zip(&figures).zip(fields(&mut costs)) {
            *field = whole(median(figures));
            let (name, unit) = kind;
            sheet.push(SheetRow::fewer(*name, unit, figures, None).with_quartiles(figures));
        }
        for (load, explained) in loads.explained(&costs) {
            let row = SheetRow::faster(format!("of {load}"), "explained", &explained, None);
            sheet.push(row.with_quartiles(&explained));
        }
        let (cpu, date) = (cpu(), when::today());
        sheet.note("cpu", cpu.clone());
        sheet.note("date", date.clone());
        if let Some(file) = file {
            let source = "measured".to_owned();
            let table = CostTable { source, cpu: Some(cpu), date: Some(date), costs };
            let text =
                format!("# What work costs: `weft bench costs --write`.\n{}", table.to_toml());
            file.write(&text)?;
        }
        Ok(())
    }
}

/// What is measured: those of the engine, then the others.
const KINDS: &[(&str, &str)] = &[
    ("turn", "ns"),
    ("input", "ns"),
    ("attach", "ns"),
    ("stripe", "ns"),
    ("follower", "ns"),
    ("merge", "ns"),
    ("operation", "ns"),
    ("submit", "ns"),
    ("xor", "ps/byte"),
    ("copy", "ps/byte"),
    ("syscall", "ns"),
    ("bio", "ns"),
    ("hop", "ns"),
];

/// The costs in the order of `KINDS`.
fn fields(costs: &mut Costs) -> [&mut u64; KINDS.len()] {
    let Costs {
        turn,
        input,
        attach,
        stripe,
        follower,
        submit,
        merge,
        operation,
        xor,
        copy,
        syscall,
        bio,
        hop,
    } = costs;
    [turn, input, attach, stripe, follower, merge, operation, submit, xor, copy, syscall, bio, hop]
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "no cost is below zero")]
fn whole(cost: f64) -> u64 {
    cost.round() as u64
}

/// Which CPU this is, as the system calls it.
fn cpu() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, model)| model.trim().to_owned())
}
