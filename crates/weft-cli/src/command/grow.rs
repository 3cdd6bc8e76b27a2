//! `weft grow`: changes the shape of a running volume: its members, and how much of them it uses.

use std::io::Write;

use clap::Args;
use serde_json::{Value, json};
use weft_export::control::{Command, GrowSize};
use weft_terminal::outcome::{Exit, Outcome};
use weft_terminal::terminal::{print_json, stdout};
use weft_units::Bytes;

use crate::size;
use crate::target::Target;

/// Gives a running array another shape, or more of each member
///
/// With --raid-devices, RAID 4, 5 and 6 are spread over more members, which are spares that weft
/// add adds before; with --chunk and --layout they get other ones. Data and parity are copied to
/// their new places while the volume is in use; weft wait ends when that is done. A crash, or weft
/// stop, costs nothing: the next weft serve, or the kernel, goes on. No backup file is needed,
/// because data moves down into the room before it on each member; refused (exit status 3) where
/// that is too small, where a member is missing or being rebuilt, and with metadata 0.90 and 1.0.
/// A reshape that stopped, because a part of the array could not be read, goes on when it is asked
/// for again.
///
/// RAID 1 gets another number of mirrors at once. Spares fill more of them; for fewer, weft fail
/// and weft remove take members away before.
///
/// With --size, an array with mirrors or parity uses more of each member at once, after members
/// were replaced by larger ones, and what was added is resynced. The volume is larger from then on
/// for clients that connect anew.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("change").required(true).multiple(true))]
pub(crate) struct Grow {
    /// Name or control socket of a running volume
    target: String,
    /// Number of members that the array has afterwards, without spares
    #[arg(long, short = 'n', value_name = "COUNT", group = "change")]
    raid_devices: Option<u16>,
    /// Chunk that the array has afterwards, in KiB if no unit is given
    #[arg(long, short = 'c', value_parser = size::kib, group = "change")]
    chunk: Option<Bytes>,
    /// Layout that the array has afterwards, such as left-symmetric
    #[arg(long, value_name = "LAYOUT", group = "change")]
    layout: Option<String>,
    /// Data on each member, in KiB if no unit is given; max: as much as every member has room for,
    /// by its size when the volume was started
    #[arg(long, short = 'z', value_name = "SIZE", value_parser = size_of_data, group = "change",
        conflicts_with_all = ["raid_devices", "chunk", "layout"])]
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
    let Grow { raid_devices, chunk, layout, size, .. } = arguments;
    let (raid_devices, chunk, size) = (*raid_devices, chunk.map(|chunk| chunk.0), *size);
    target.ask(Command::Grow { raid_devices, layout: layout.clone(), chunk, size })?;
    if arguments.json {
        let mut object = json!({"schema": "weft.grow/1", "volume": target.name});
        let size = size.map(|size| match size {
            GrowSize::Bytes(bytes) => bytes.into(),
            GrowSize::Max => "max".into(),
        });
        let layout = layout.clone().map(Value::from);
        let fields = [
            ("raid_devices", raid_devices.map(Value::from)),
            ("chunk", chunk.map(Value::from)),
            ("layout", layout),
            ("size", size),
        ];
        for (name, value) in fields {
            if let Some(value) = value {
                object[name] = value;
            }
        }
        print_json(&object)?;
    } else {
        let mut out = stdout();
        let name = &target.name;
        match (raid_devices, size) {
            (Some(count), _) => writeln!(out, "growing {name} to {count} members")?,
            (None, Some(_)) => writeln!(out, "growing the data on each member of {name}")?,
            (None, None) => writeln!(out, "reshaping {name}")?,
        }
        out.flush()?;
    }
    Ok(Exit::Done)
}
