//! `weft assemble`: prints which members would be used and whether the array may be served.
//!
//! The decision is that of `serve` and `cat`. Nothing is written.

use std::io::Write;

use clap::Args;
use weft_engine::assemble::{Assembly, Candidate, Refused, assemble};
use weft_terminal::outcome::{Exit, Failure, Outcome};
use weft_terminal::terminal::{print_json, stdout};

use crate::assembly::{AssemblyOptions, Selection, lines, missing, sentence, title, to_json};
use crate::look;
use crate::member::{self, MemberArg};
use crate::reading::ReadingOptions;
use crate::states;

/// Says which members would be believed, whether the array could be served, and why
///
/// Reads only. Exit status: 0 when serve would start, 3 when it would refuse.
#[derive(Debug, Args)]
#[command(after_long_help = weft_engine::assemble::states::as_text())]
pub(crate) struct Assemble {
    #[command(flatten)]
    assembly: AssemblyOptions,
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    reading: ReadingOptions,
    /// Alias of --array, as in mdadm. (For serve it names the volume.)
    #[arg(short = 'N', long, hide = true, conflicts_with = "array")]
    name: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Files, block devices, or parts of them: PATH, PATH#N (partition N), PATH@OFFSET[+LENGTH]
    #[arg(value_name = "MEMBER", required = true, value_parser = MemberArg::parser())]
    members: Vec<MemberArg>,
}

pub(crate) fn run(arguments: &Assemble) -> Outcome {
    let paths = member::paths(&arguments.members).map_err(Failure::Usage)?;
    let paths = member::present(paths, arguments.assembly.run);
    let mut options = arguments.assembly.options(&arguments.selection)?;
    options.name = arguments.name.clone().or(options.name);
    let wait = arguments.assembly.member_wait();
    let opened = look::open_all_with(&paths, &arguments.reading.of(&paths)?)?;
    let candidates = look::candidates_within(&opened, &options, wait);
    let decision = assemble(&candidates, &options);
    if arguments.json {
        print_json(&to_json(&candidates, &decision))?;
    } else {
        print_text(&candidates, &decision)?;
    }
    match decision {
        Ok(_) => Ok(Exit::Done),
        // The table has shown the findings for each member.
        Err(refused) => Err(Failure::Refused(sentence(&refused, candidates.len()))),
    }
}

fn print_text(
    candidates: &[Candidate],
    decision: &Result<Assembly, Refused>,
) -> Result<(), Failure> {
    let mut out = stdout();
    if let Ok(assembly) = decision {
        writeln!(out, "{}", title(assembly))?;
    }
    let lines = lines(candidates, decision);
    let width = lines.iter().map(|line| line.label.chars().count()).max().unwrap_or(0).max(6);
    writeln!(
        out,
        "  {:<width$}  {:>4}  {:<10}  {:>8}  reason",
        "member", "slot", "state", "events"
    )?;
    for line in &lines {
        let slot = line.slot.map_or("-".to_owned(), |slot| slot.to_string());
        let events = line.events.map_or("-".to_owned(), |events| events.to_string());
        let text = format!(
            "  {:<width$}  {slot:>4}  {:<10}  {events:>8}  {}",
            line.label, line.state, line.reason
        );
        writeln!(out, "{}", text.trim_end())?;
    }
    if let Ok(assembly) = decision {
        for (slot, _) in missing(assembly) {
            writeln!(out, "  {:<width$}  {slot:>4}  missing", "-")?;
        }
        for note in &assembly.notes {
            writeln!(out, "note: {note}")?;
        }
        for line in states::lines(&assembly.states) {
            writeln!(out, "{line}")?;
        }
        let mode = if assembly.read_only { "read-only" } else { "for reading and writing" };
        let degraded = if assembly.degraded() > 0 { ", degraded" } else { "" };
        writeln!(out, "decision: can be served {mode}{degraded}; nothing was written")?;
    } else {
        let state = decision.as_ref().err().map_or("", |refused| refused.state.id());
        writeln!(out, "decision: refused ({state}); nothing was written")?;
    }
    out.flush()?;
    Ok(())
}
