//! `weft grow`: reshapes a running volume to more members.

use std::io::Write;

use clap::Args;
use serde_json::json;
use weft_export::control::Command;
use weft_terminal::outcome::{Exit, Outcome};
use weft_terminal::terminal::{print_json, stdout};

use crate::target::Target;

/// Spreads a running RAID 4, 5 or 6 over more members
///
/// The new members are spares, which weft add adds before. Data and parity are copied to their new
/// places while the volume is in use; weft wait ends when that is done, and the volume is larger
/// from then on, for clients that connect anew. A crash, or weft stop, costs nothing: the next
/// weft serve, or the kernel, goes on. No backup file is needed, because data moves down into the
/// room before it on each member; refused (exit status 3) where that is too small, where a member
/// is missing or being rebuilt, and with metadata 0.90.
#[derive(Debug, Args)]
pub(crate) struct Grow {
    /// Name or control socket of a running volume
    target: String,
    /// Number of members that the array has afterwards, without spares
    #[arg(long, short = 'n', value_name = "COUNT")]
    raid_devices: u16,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Grow) -> Outcome {
    let mut target = Target::connect(&arguments.target)?;
    let raid_devices = arguments.raid_devices;
    target.ask(Command::Grow { raid_devices })?;
    if arguments.json {
        let volume = &target.name;
        print_json(&json!({
            "schema": "weft.grow/1", "volume": volume, "raid_devices": raid_devices
        }))?;
    } else {
        let mut out = stdout();
        writeln!(out, "growing {} to {raid_devices} members", target.name)?;
        out.flush()?;
    }
    Ok(Exit::Done)
}
