//! `weft explain`: shows what a read or write of a range does, member by member.
//!
//! The command shows the members and sectors of the range, the position of parity or copies, and
//! the plan that the engine would follow. Positions come from the engine's layout, plans from its
//! planner, which is queried step by step for a stripe without any cached strips.

mod copies;
mod model;
mod show;
mod stripes;

use weft_terminal::outcome::{Exit, Failure, Outcome};
use weft_terminal::terminal::print_json;

use clap::Args;

use crate::assembly::Selection;
use crate::knobs;
use crate::member::{self, MemberArg};
use model::Array;
use stripes::ParityArray;

/// Says which members a range of an array is on, and how it would be read and written, and why
///
/// As in: weft explain TARGET 1M 64K, or weft explain 1M 64K --members a.img b.img c.img. OFFSET
/// and LENGTH are in bytes, or take K, M, G, T (binary) or sectors with s; LENGTH is 4K if it is
/// left out. Nothing is assumed to be cached.
#[derive(Debug, Args)]
#[command(override_usage = "weft explain [OPTIONS] TARGET OFFSET [LENGTH]\n       \
                            weft explain [OPTIONS] OFFSET [LENGTH] --members MEMBER...")]
pub(crate) struct Explain {
    /// Name or control socket of a running volume (not with --members), then the first byte and the
    /// number of bytes of the range
    #[arg(value_name = "TARGET OFFSET LENGTH", required = true, num_args = 1..=3)]
    what: Vec<String>,
    /// Explain the array of these members, which does not run
    #[arg(long, value_name = "MEMBER", num_args = 1.., value_parser = MemberArg::parser())]
    members: Vec<MemberArg>,
    /// Assume another value of a knob, such as rmw_level or stripe_size
    #[arg(long = "set", value_name = "KNOB=VALUE")]
    knobs: Vec<String>,
    #[command(flatten)]
    selection: Selection,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Explain) -> Outcome {
    let (target, range) = match (arguments.what.as_slice(), arguments.members.is_empty()) {
        ([target, range @ ..], true) if !range.is_empty() => (Some(target), range),
        (range, false) if range.len() <= 2 => (None, range),
        _ => {
            return Err(Failure::usage(
                "expected TARGET OFFSET [LENGTH], or OFFSET [LENGTH] --members MEMBER…",
            ));
        }
    };
    let mut array = match target {
        Some(target) => Array::of_target(target)?,
        None => {
            let paths = member::paths(&arguments.members).map_err(Failure::Usage)?;
            Array::of_members(&paths, arguments.selection.options()?)?
        }
    };
    for setting in &arguments.knobs {
        let (name, value) = knobs::split(setting)?;
        knobs::set(&mut array.knobs, name, value).map_err(Failure::usage)?;
    }
    let range = array.range(range)?;
    match array.layout.parity() {
        Some(geometry) => {
            let parity = ParityArray { array: &array, geometry };
            let explained = parity.explain(range);
            if arguments.json {
                print_json(&parity.to_json(&explained))?;
            } else {
                parity.print(&explained)?;
            }
        }
        None => {
            let explained = array.copies(range);
            if arguments.json {
                print_json(&explained.to_json(&array))?;
            } else {
                explained.print(&array)?;
            }
        }
    }
    Ok(Exit::Done)
}
