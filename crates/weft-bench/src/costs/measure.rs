//! Rounds of cost measurements, and the table of their medians.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use weft_ondisk::MdTime;
use weft_sim::machine::{CostTable, Costs};

use crate::BenchError;
use crate::rounds::{Effort, median};
use crate::sheet::{Sheet, SheetRow};

use super::direct;
use super::of_engine::Loads;

/// Fills a row for each cost (ns, or ps/byte), and one for each load of the engine: the time
/// predicted by the costs as a share of the measured time. Returns the cost table, with the name of
/// this CPU and today's date.
///
/// # Errors
/// The engine refuses a load or stops responding.
pub fn measure(effort: Effort, sheet: &mut Sheet) -> Result<CostTable, BenchError> {
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
    let (cpu, date) = (cpu(), today());
    sheet.note("cpu", cpu.clone());
    sheet.note("date", date.clone());
    Ok(CostTable { source: "measured".to_owned(), cpu: Some(cpu), date: Some(date), costs })
}

/// Today's date in UTC, as `2026-11-20`.
fn today() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |span| span.as_secs());
    let now = MdTime::from_secs(now).to_rfc3339();
    now.split('T').next().unwrap_or_default().to_owned()
}

/// Kinds of cost with their units: those of the engine, then those that are measured directly.
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

/// Fields of `costs`, in the order of `KINDS`.
pub(super) fn fields(costs: &mut Costs) -> [&mut u64; KINDS.len()] {
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
pub(super) fn whole(cost: f64) -> u64 {
    cost.round() as u64
}

/// Name of this CPU, as reported by the system.
fn cpu() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, model)| model.trim().to_owned())
}
