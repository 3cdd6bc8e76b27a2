//! `weft detail`: what is known of an array?
//!
//! In the shape of `mdadm --detail`: from the superblocks of its members, or from the running
//! volume.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use weft_engine::assemble::{Assembly, Options, SlotState, assemble};
use weft_ondisk::Super1;

use crate::look;
use crate::member::{self, MemberArg};
use crate::outcome::{Exit, Failure, Outcome};
use crate::size;
use crate::terminal::{print_json, stdout};

use super::assemble::refusal;
use super::examine;

/// Prints what is known of an array, as mdadm --detail
///
/// Reads only.
#[derive(Debug, Args)]
#[command(visible_alias = "D")]
pub(crate) struct Detail {
    /// Say with the exit status how the array is: 0 well, 1 degraded, 2 unusable, 4 unknown
    #[arg(short, long)]
    test: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// The members of an array
    #[arg(value_name = "MEMBER", required = true, value_parser = MemberArg::parser())]
    members: Vec<MemberArg>,
}

pub(crate) fn run(arguments: &Detail) -> Outcome {
    let members = &arguments.members;
    let result =
        member::paths(members).map_err(Failure::Usage).and_then(|paths| of_members(&paths));
    let detail = match result {
        // mdadm's own codes: no information, unusable.
        Err(Failure::Failed(message)) if arguments.test => {
            crate::terminal::complain(&message);
            return Ok(Exit::Of(4));
        }
        Err(Failure::Refused(message)) if arguments.test => {
            crate::terminal::complain(&message);
            return Ok(Exit::Of(2));
        }
        other => other?,
    };
    if arguments.json {
        print_json(&detail.to_json())?;
    } else {
        detail.print()?;
    }
    Ok(if arguments.test && detail.degraded > 0 { Exit::Of(1) } else { Exit::Done })
}

/// What is printed, wherever it comes from.
struct Facts {
    name: String,
    superblock: Super1,
    creation: String,
    update: String,
    array_sectors: u64,
    used_sectors: u64,
    state: String,
    events: u64,
    degraded: usize,
    rows: Vec<Row>,
}

/// A line of the table of members.
struct Row {
    number: Option<u32>,
    device: Option<(u32, u32)>,
    slot: Option<usize>,
    state: &'static str,
    label: String,
}

fn of_members(paths: &[PathBuf]) -> Result<Facts, Failure> {
    let opened = look::open_all(paths)?;
    let candidates = look::candidates(&opened);
    let options = Options { read_only: true, ..Options::default() };
    let assembly = assemble(&candidates, &options).map_err(|refused| refusal(&refused))?;
    let number_of = |label: &str| {
        opened.iter().find(|looked| looked.label == label).and_then(look::Looked::device_number)
    };
    let freshest = assembly
        .members()
        .map(|(_, member)| &member.superblock)
        .max_by_key(|superblock| superblock.events)
        .ok_or_else(|| Failure::failed("no member of an array among what was named"))?;
    Ok(Facts::new(&assembly, freshest, number_of))
}

impl Facts {
    fn new(
        assembly: &Assembly,
        freshest: &Super1,
        number_of: impl Fn(&str) -> Option<(u32, u32)>,
    ) -> Self {
        let mut rows = Vec::new();
        for (state, slot) in assembly.slots.iter().enumerate().map(|(slot, state)| (state, slot)) {
            let (member, state) = match state {
                SlotState::InSync(member) => (Some(member), "active sync"),
                SlotState::Missing => (None, "removed"),
                SlotState::Rebuilding { member, .. } => (Some(member), "spare rebuilding"),
            };
            rows.push(Row {
                number: member.map(|member| member.superblock.dev_number),
                device: member.and_then(|member| number_of(&member.info.label)),
                slot: Some(slot),
                state,
                label: member.map(|member| member.info.label.clone()).unwrap_or_default(),
            });
        }
        for spare in &assembly.spares {
            rows.push(Row {
                number: Some(spare.superblock.dev_number),
                device: number_of(&spare.info.label),
                slot: None,
                state: "spare",
                label: spare.info.label.clone(),
            });
        }
        let degraded = assembly.degraded();
        let mut state =
            String::from(if assembly.resync_from.is_some() { "active" } else { "clean" });
        if degraded > 0 {
            state.push_str(", degraded");
        }
        if assembly.resync_from.is_some() && degraded == 0 {
            state.push_str(", Not Started");
        }
        let described = freshest.describe(weft_units::Sectors::ZERO);
        let line = |name: &str| {
            let found = described.iter().find(|(field, _)| field == name);
            found.map(|(_, value)| value.clone()).unwrap_or_default()
        };
        Self {
            name: freshest.name(),
            superblock: freshest.clone(),
            creation: line("Creation Time"),
            update: line("Update Time"),
            array_sectors: assembly.geometry.array_size().0,
            used_sectors: assembly.geometry.member_size().0,
            state,
            events: assembly.events,
            degraded,
            rows,
        }
    }

    fn count(&self, states: &[&str]) -> usize {
        self.rows.iter().filter(|row| states.contains(&row.state)).count()
    }

    fn print(&self) -> Result<(), Failure> {
        let mut out = stdout();
        let superblock = &self.superblock;
        writeln!(out, "{}:", self.name)?;
        let mut groups: Vec<Vec<(&str, String)>> = Vec::new();
        let kib = |sectors: u64| {
            format!("{}{}", sectors / 2, size::mdadm(weft_units::Sectors(sectors).bytes()))
        };
        let present = self.rows.iter().filter(|row| row.number.is_some()).count();
        groups.push(vec![
            ("Version", superblock.minor.to_string()),
            ("Creation Time", self.creation.clone()),
            ("Raid Level", superblock.level.to_string()),
            ("Array Size", kib(self.array_sectors)),
            ("Used Dev Size", kib(self.used_sectors)),
            ("Raid Devices", superblock.raid_disks.to_string()),
            ("Total Devices", present.to_string()),
            ("Persistence", "Superblock is persistent".into()),
        ]);
        let spares = self.count(&["spare", "spare rebuilding"]);
        let active = self.count(&["active sync"]);
        groups.push(vec![
            ("Update Time", self.update.clone()),
            // mdadm has a blank after it.
            ("State", format!("{} ", self.state)),
            ("Active Devices", active.to_string()),
            ("Working Devices", (active + spares).to_string()),
            ("Failed Devices", self.count(&["faulty"]).to_string()),
            ("Spare Devices", spares.to_string()),
        ]);
        let layout = weft_ondisk::layout_id::name(superblock.level, superblock.layout);
        let mut shape: Vec<(&str, String)> =
            layout.map(|layout| ("Layout", layout)).into_iter().collect();
        shape.push(("Chunk Size", format!("{}K", superblock.chunk.0 / 2)));
        groups.push(shape);
        groups.push(vec![("Consistency Policy", "resync".into())]);
        groups.push(vec![
            ("Name", self.name.clone()),
            ("UUID", superblock.set_uuid.to_string()),
            ("Events", self.events.to_string()),
        ]);
        for (index, group) in groups.into_iter().enumerate() {
            if index > 0 {
                writeln!(out)?;
            }
            for (name, value) in group {
                writeln!(out, "{name:>18} : {value}")?;
            }
        }
        writeln!(out, "\n    Number   Major   Minor   RaidDevice State")?;
        let mut slotted = true;
        for row in &self.rows {
            if slotted && row.slot.is_none() {
                slotted = false;
                writeln!(out)?;
            }
            let number = row.number.map_or("-".to_owned(), |number| number.to_string());
            let slot = row.slot.map_or("-".to_owned(), |slot| slot.to_string());
            let (major, minor) = row.device.unwrap_or((0, 0));
            let line = format!(
                "   {number:>5}   {major:>5}    {minor:>5}    {slot:>5}      {}   {}",
                row.state, row.label
            );
            writeln!(out, "{}", line.trim_end())?;
        }
        out.flush()?;
        Ok(())
    }

    fn to_json(&self) -> Value {
        let members: Vec<Value> = self
            .rows
            .iter()
            .map(|row| {
                json!({
                    "number": row.number, "slot": row.slot, "state": row.state.replace(' ', "_"),
                    "member": row.number.map(|_| row.label.clone()),
                })
            })
            .collect();
        json!({
            "schema": "weft.detail/1",
            "name": self.name,
            "array_size_bytes": self.array_sectors * 512,
            "state": self.state,
            "degraded": self.degraded,
            "events": self.events,
            "superblock": examine::to_json(&self.superblock),
            "members": members,
        })
    }
}
