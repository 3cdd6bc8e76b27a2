//! `weft grow`: changes the shape of a running volume: its members, and how much of them it uses.

use std::io::Write;

use clap::Args;
use serde_json::json;
use weft_export::control::{Command, GrowSize};
use weft_terminal::outcome::{Exit, Outcome};
use weft_terminal::terminal::{print_json, stdout};

use crate::size;
use crate::target::Target;

/// Gives a running array more members, or more of each member
///
/// With --raid-devices, RAID 4, 5 and 6 are spread over more members, which are spares that weft
/// add adds before. Data and parity are copied to their new places while the volume is in use;
/// weft wait ends when that is done. A crash, or weft stop, costs nothing: the next weft serve, or
/// the kernel, goes on. No backup file is needed, because data moves down into the room before it
/// on each member; refused (exit status 3) where that is too small, where a member is missing or
/// being rebuilt, and with metadata 0.90.
///
/// RAID 1 gets another number of mirrors at once. Spares fill more of them; for fewer, weft fail
/// and weft remove take members away before.
///
/// With --size, an array with mirrors or parity uses more of each member at once, after members
/// were replaced by larger ones, and what was added is resynced. The volume is larger from then on
/// for clients that connect anew.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("shape").required(true))]
pub(crate) struct Grow {
    /// Name or control socket of a running volume
    target: String,
    /// Number of members that the array has afterwards, without spares
    #[arg(long, short = 'n', value_name = "COUNT", group = "shape")]
    raid_devices: Option<u16>,
    /// Data on each member, in KiB if no unit is given; max: as much as every member has room for,
    /// by its size when the volume was started
    #[arg(long, short = 'z', value_name = "SIZE", value_parser = size_of_data, group = "shape")]
    size: Option<GrowSize>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn size_of_data(text: &str) -> Result<GrowSize, String> {
    if text == "max" {
        return Ok(GrowSize::Max);
    }
    size::kib(text)
        .map(|bytes| GrowSize::Bytes(bytes.0))
        .map_err(|error| format!("{error}, or max"))
}

pub(crate) fn run(arguments: &Grow) -> Outcome {
    let mut target = Target::connect(&arguments.target)?;
    let Grow { raid_devices, size, .. } = *arguments;
    target.ask(Command::Grow { raid_devices, size })?;
    if arguments.json {
        let volume = &target.name;
        let mut object = json!({"schema": "weft.grow/1", "volume": volume});
        match (raid_devices, size) {
            (Some(count), _) => object["raid_devices"] = count.into(),
            (None, Some(GrowSize::Bytes(bytes))) => object["size"] = bytes.into(),
            (None, _) => object["size"] = "max".into(),
        }
        print_json(&object)?;
    } else {
        let mut out = stdout();
        match raid_devices {
            Some(count) => writeln!(out, "growing {} to {count} members", target.name)?,
            None => writeln!(out, "growing the data on each member of {}", target.name)?,
        }
        out.flush()?;
    }
    Ok(Exit::Done)
}
