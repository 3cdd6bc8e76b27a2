//! `weft get`: prints the knobs of a running volume.

use std::io::Write;

use clap::Args;
use serde_json::{Map, Value, json};
use weft_engine::knobs::TABLE;
use weft_export::control::Command;

use crate::knobs::BITMAP;
use crate::outcome::{Exit, Outcome};
use crate::target::Target;
use crate::terminal::{print_json, stdout};

/// Prints knobs of a running volume, and whether it has a write-intent bitmap
#[derive(Debug, Args)]
#[command(after_long_help = crate::knobs::table_of_running())]
pub(crate) struct Get {
    /// Name or control socket of a running volume
    target: String,
    /// Names [default: all, with their meaning]
    knobs: Vec<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Get) -> Outcome {
    let mut target = Target::connect(&arguments.target)?;
    let knobs = target.ask(Command::Get { knobs: arguments.knobs.clone() })?.knobs;
    if arguments.json {
        let values: Map<String, Value> =
            knobs.into_iter().map(|(name, value)| (name, Value::String(value))).collect();
        print_json(&json!({"schema": "weft.get/1", "volume": target.name, "knobs": values}))?;
        return Ok(Exit::Done);
    }
    let mut out = stdout();
    let settings: Vec<(String, String)> =
        knobs.into_iter().map(|(name, value)| (format!("{name}={value}"), name)).collect();
    let width = settings.iter().map(|(setting, _)| setting.len()).max().unwrap_or(0);
    for (setting, name) in &settings {
        // What was asked for by name goes to scripts.
        let row = TABLE.iter().find(|row| row.name == name);
        let about = match row {
            _ if !arguments.knobs.is_empty() => None,
            Some(row) => Some((row.doc, row.unit, row.range)),
            None if name == BITMAP.name => Some((BITMAP.doc, BITMAP.unit, BITMAP.range)),
            None => None,
        };
        match about {
            None => writeln!(out, "{setting}")?,
            Some((doc, unit, range)) => {
                writeln!(out, "{setting:<width$}  # {doc} ({unit}, {range})")?;
            }
        }
    }
    out.flush()?;
    Ok(Exit::Done)
}
