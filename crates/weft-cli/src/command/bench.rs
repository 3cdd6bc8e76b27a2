//! `weft bench`: how fast is weft, next to what else does the same?
//!
//! Each benchmark is a file below `bench/` and fills a [`Sheet`] of rows. A row compares weft with
//! one baseline that was measured in turns with it, in this process or beside it, a few
//! milliseconds apart: machines change their speed, and a number of another day compares nothing.

mod alone;
mod costs;
mod engine;
mod member;
mod nbd;
mod parity;
mod repeat;
mod rounds;
mod sheet;

use clap::{Args, Subcommand};

use crate::outcome::{Exit, Failure, Outcome};
use rounds::Effort;
use sheet::Sheet;

/// Measures how fast weft is, next to what else does the same
///
/// Weft and its baseline take turns within one run; a row tells the median over all rounds and the
/// median ratio of neighbours in time. A ratio above 1 is better for weft. A baseline that is not
/// installed is named on standard error, with what brings it. Exit status: 0, or 1 when something
/// could not be measured or, with --check, is below its mark.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    #[command(subcommand)]
    what: What,
    #[command(flatten)]
    common: Common,
}

/// What is measured.
#[derive(Debug, Subcommand)]
enum What {
    Costs(costs::OfCosts),
    Engine(engine::OfEngine),
    Member(member::OfMember),
    Nbd(nbd::OfNbd),
    Parity(parity::OfParity),
    #[command(hide = true)]
    Repeat(repeat::Repeat),
}

/// What all benchmarks can be told.
#[derive(Debug, Args)]
struct Common {
    /// Print one JSON object
    #[arg(long, global = true)]
    json: bool,
    /// How often each row is measured [default: the benchmark's own]
    #[arg(long, global = true, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Measure shortly, and less of it: for a look, not for a record
    #[arg(long, global = true)]
    quick: bool,
    /// Fail when a row is below its mark
    #[arg(long, global = true)]
    check: bool,
}

pub(crate) fn run(arguments: &Bench) -> Outcome {
    let common = &arguments.common;
    match &arguments.what {
        What::Costs(it) => measure("costs", common, |effort, sheet| it.measure(effort, sheet)),
        What::Engine(it) => measure("engine", common, |effort, sheet| it.measure(effort, sheet)),
        What::Member(it) => measure("member", common, |effort, sheet| it.measure(effort, sheet)),
        What::Nbd(it) => measure("nbd", common, |effort, sheet| it.measure(effort, sheet)),
        What::Parity(it) => measure("parity", common, |effort, sheet| it.measure(effort, sheet)),
        What::Repeat(it) => repeat::run(it),
    }
}

/// Fills a sheet and prints it.
fn measure(
    bench: &'static str,
    common: &Common,
    fill: impl FnOnce(Effort, &mut Sheet) -> Result<(), Failure>,
) -> Outcome {
    let mut sheet = Sheet::new(bench);
    let effort = Effort { rounds: common.rounds, quick: common.quick };
    let filled = fill(effort, &mut sheet);
    sheet.end();
    filled?;
    if common.json {
        sheet.print_json()?;
    } else {
        sheet.print_table()?;
    }
    match sheet.below_mark() {
        0 => Ok(Exit::Done),
        below if common.check => {
            Err(Failure::failed(format!("bench {bench}: {below} rows are below their marks")))
        }
        _ => Ok(Exit::Done),
    }
}
