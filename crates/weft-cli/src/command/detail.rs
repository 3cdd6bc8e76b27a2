//! `weft detail`: describes an array in the form of `mdadm --detail`.
//!
//! The facts come from the superblocks of its members, or from the running volume.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use weft_engine::assemble::states::AssemblyState;
use weft_engine::assemble::{Assembly, Options, SlotState, assemble};
use weft_export::control::{ArrayStatus, MemberStatus, ReshapeStatus, VolumeStatus};
use weft_ondisk::layout_id::{Layouts, Raid10};
use weft_ondisk::{Features, Level, MdTime, Redundancy, Superblock};
use weft_terminal::outcome::{Exit, Failure, Outcome};
use weft_terminal::terminal::{complain, print_json, stdout};

use crate::assembly::{Selection, refusal, tell_dropped};
use crate::look;
use crate::member::{self, MemberArg};
use crate::sync_action::last_check;
use crate::target::{self, Target, only_volume};
use crate::{size, states, superblock_json};

/// Prints what is known of an array, as mdadm --detail
///
/// Reads only.
#[derive(Debug, Args)]
pub(crate) struct Detail {
    /// Set the exit status by the state of the array: 0 normal, 1 degraded, 2 unusable, 4 unknown
    #[arg(short, long)]
    test: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    selection: Selection,
    /// Name or control socket of a running volume [default: the only one], or the members of an
    /// array
    #[arg(value_name = "TARGET|MEMBER", value_parser = MemberArg::parser())]
    members: Vec<MemberArg>,
}

pub(crate) fn run(arguments: &Detail) -> Outcome {
    let paths = member::paths(&arguments.members).map_err(Failure::Usage)?;
    let result = match paths.as_slice() {
        [] => of_target(None),
        [one] if target::is_named_by(one) => of_target(Some(&one.to_string_lossy())),
        paths => of_members(paths, arguments.selection.options()?),
    };
    let detail = match result {
        // Exit codes of mdadm: no information, unusable.
        Err(Failure::Failed(message)) if arguments.test => {
            weft_terminal::terminal::complain(&message);
            return Ok(Exit::Of(4));
        }
        Err(Failure::Refused(message)) if arguments.test => {
            weft_terminal::terminal::complain(&message);
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

/// Facts about the array that are printed.
struct Facts {
    array: ArrayStatus,
    slots: usize,
    /// Superblock with the highest event count; `None` for a running volume, for which the server
    /// gives the facts.
    superblock: Option<Superblock>,
    has_bitmap: bool,
    updated: Option<MdTime>,
    array_sectors: u64,
    state: String,
    events: u64,
    degraded: usize,
    /// Reshape under way; `None` if there is none.
    reshape: Option<ReshapeStatus>,
    /// Line about the last check or repair since the start of the server, and the JSON of the last
    /// sync; `None` if there was none.
    last_check: Option<(&'static str, String)>,
    last_sync: Option<Value>,
    states: Vec<AssemblyState>,
    rows: Vec<Row>,
}

/// A line of the table of members.
struct Row {
    number: Option<u32>,
    device: Option<(u32, u32)>,
    slot: Option<usize>,
    state: &'static str,
    /// Whether the member is write-mostly: data is read from it only if no other member with the
    /// data can be read.
    write_mostly: bool,
    /// Whether the member is to be replaced, or is being replaced (md: `want_replacement`).
    want_replacement: bool,
    /// Slot of the member that this spare is reserved to replace; `None` for other members.
    reserved_for: Option<u16>,
    label: String,
}

/// mdadm's term for a spare that is filled to replace a member that still works.
const REPLACEMENT: &str = "spare replacement rebuilding";
/// mdadm's term for a member with all of its data.
const IN_SYNC: &str = "active sync";

fn of_members(paths: &[PathBuf], chosen: Options) -> Result<Facts, Failure> {
    let opened = look::open_all(paths)?;
    // No content is read, so the options accept every risk.
    let options = Options { read_only: true, force_dirty: true, without_journal: true, ..chosen };
    let candidates = look::candidates(&opened, &options);
    let assembly =
        assemble(&candidates, &options).map_err(|refused| refusal(&refused, candidates.len()))?;
    tell_dropped(&assembly.dropped);
    let number_of =
        |label: &str| opened.iter().find(|looked| looked.label == label)?.probe.device_number();
    let freshest = assembly
        .members()
        .map(|(_, member)| &member.superblock)
        .max_by_key(|superblock| superblock.events())
        .ok_or_else(|| Failure::failed("no member of an array among what was named"))?;
    Ok(Facts::new(&assembly, freshest, number_of))
}

fn of_target(name: Option<&str>) -> Result<Facts, Failure> {
    let mut target = Target::named_or_only(name).map_err(|failure| match (failure, name) {
        (Failure::Failed(text), Some(name)) if !Path::new(name).exists() => {
            Failure::Failed(format!("{text}; no file or device has this name either"))
        }
        (failure, _) => failure,
    })?;
    let status = target.status()?;
    let name = &target.name;
    let volume = only_volume(name, &status)?;
    let Some(array) = &volume.array else {
        return Err(Failure::failed(format!("{name}: a bare member, which has no metadata")));
    };
    Ok(Facts::of_running(volume, array))
}

impl Facts {
    /// Facts about a running volume, from its status. No member is opened: a member that hangs
    /// would block the command.
    fn of_running(volume: &VolumeStatus, array: &ArrayStatus) -> Self {
        let row = |slot: Option<u16>, member: Option<&MemberStatus>| Row {
            number: member.map(|member| member.dev_number),
            device: member.and_then(|member| member.device),
            slot: slot.map(usize::from),
            state: match member.map(|member| member.state.as_str()) {
                None => "removed",
                Some("in_sync") => IN_SYNC,
                Some("rebuilding") if member.is_some_and(|it| it.replaces.is_some()) => REPLACEMENT,
                Some("rebuilding") => "spare rebuilding",
                Some("faulty") => "faulty",
                Some(_) => "spare",
            },
            write_mostly: member.is_some_and(|member| member.write_mostly),
            want_replacement: member.is_some_and(|member| member.want_replacement),
            reserved_for: member.and_then(|member| member.reserved_for),
            label: member.map(|member| member.label.clone()).unwrap_or_default(),
        };
        let in_slot = |slot: u16| {
            let in_slot = |member: &&MemberStatus| {
                member.slot == Some(slot)
                    && matches!(member.state.as_str(), "in_sync" | "rebuilding")
            };
            volume.members.iter().find(in_slot)
        };
        let slots = u16::try_from(volume.slots).unwrap_or(u16::MAX);
        let mut rows: Vec<Row> = (0..slots).map(|slot| row(Some(slot), in_slot(slot))).collect();
        let others = volume
            .members
            .iter()
            .filter(|member| !rows.iter().any(|row| row.number == Some(member.dev_number)))
            .collect::<Vec<_>>();
        rows.extend(others.into_iter().map(|member| row(member.replaces, Some(member))));
        let mut state = volume.array_state.clone();
        if volume.degraded > 0 {
            state.push_str(", degraded");
        }
        if volume.no_space {
            state.push_str(", no space");
        }
        match volume.sync_action.as_str() {
            "idle" | "frozen" => {}
            "recover" => state.push_str(", recovering"),
            "resync" => state.push_str(", resyncing"),
            "reshape" => state.push_str(", reshaping"),
            // mdadm's term for both check and repair.
            _ => state.push_str(", checking"),
        }
        Self {
            array: array.clone(),
            slots: volume.slots,
            superblock: None,
            has_bitmap: volume.bitmap.is_some(),
            updated: volume.updated_secs.map(MdTime::from_secs),
            array_sectors: volume.size / 512,
            state,
            events: volume.events,
            degraded: volume.degraded,
            reshape: volume.reshape.clone(),
            last_check: last_check(volume).map(|(action, result)| match action {
                "check" => ("Last Check", result),
                _ => ("Last Repair", result),
            }),
            last_sync: volume.last_sync.as_ref().map(|last| {
                json!({
                    "number": last.number, "action": last.action, "from": last.from, "to": last.to,
                    "ended_secs": last.ended_secs, "sync_completed": volume.sync_completed,
                    "mismatch_cnt": volume.mismatch_cnt,
                })
            }),
            states: states::of_running(volume),
            rows,
        }
    }

    fn new(
        assembly: &Assembly,
        freshest: &Superblock,
        number_of: impl Fn(&str) -> Option<(u32, u32)>,
    ) -> Self {
        let mut rows = Vec::new();
        for (state, slot) in assembly.slots.iter().enumerate().map(|(slot, state)| (state, slot)) {
            let (member, state) = match state {
                SlotState::InSync(member) => (Some(member), IN_SYNC),
                SlotState::Missing => (None, "removed"),
                SlotState::Rebuilding { member, .. } => (Some(member), "spare rebuilding"),
            };
            rows.push(Row {
                number: member.map(|member| member.superblock.dev_number()),
                device: member.and_then(|member| number_of(&member.info.label)),
                slot: Some(slot),
                state,
                write_mostly: member.is_some_and(|member| member.superblock.is_write_mostly()),
                want_replacement: false,
                reserved_for: None,
                label: member.map(|member| member.info.label.clone()).unwrap_or_default(),
            });
        }
        for spare in &assembly.spares {
            rows.push(Row {
                number: Some(spare.superblock.dev_number()),
                device: number_of(&spare.info.label),
                slot: None,
                state: "spare",
                write_mostly: spare.superblock.is_write_mostly(),
                want_replacement: false,
                reserved_for: None,
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
        Self {
            array: ArrayStatus {
                uuid: freshest.set_uuid().to_string(),
                name: freshest.name(),
                metadata: freshest.version().to_string(),
                level: freshest.level().code(),
                layout: freshest.layout(),
                chunk: freshest.chunk().bytes().0,
                member_size: assembly.layout.member_size().bytes().0,
                created_secs: freshest.ctime().secs,
            },
            slots: assembly.slots.len(),
            superblock: Some(freshest.clone()),
            has_bitmap: freshest.features().contains(Features::BITMAP),
            updated: Some(freshest.utime()),
            array_sectors: assembly.layout.array_size().0,
            state,
            events: assembly.events,
            degraded,
            reshape: assembly.reshape.as_ref().map(|it| ReshapeStatus {
                from: assembly.layout.members(),
                to: it.after.members(),
                layout: it.after.layout(),
                chunk: it.after.chunk().bytes().0,
                position: it.position.0,
                end: it.after.array_size().0,
            }),
            last_check: None,
            last_sync: None,
            states: assembly.states.clone(),
            rows,
        }
    }

    fn count(&self, states: &[&str]) -> usize {
        self.rows.iter().filter(|row| states.contains(&row.state)).count()
    }

    /// Letter of the mirror set of a slot, as mdadm prints it. A mirror set is a set of members
    /// that together hold all data once. `None` unless the array is a RAID 10 and the number of
    /// near copies divides the number of slots.
    fn mirror_set(&self, slot: usize) -> Option<char> {
        let parts = Raid10::from_code(self.array.layout)?;
        let near = parts.near as usize;
        let level = Level::from_code(self.array.level)?;
        let is_meant = level.row().redundancy == Redundancy::Copies
            && parts.far == 1
            && near > 0
            && self.slots.is_multiple_of(near);
        let letter = u8::try_from(slot % near.max(1)).ok()?;
        is_meant.then(|| char::from(b'A'.saturating_add(letter)))
    }

    fn print(&self) -> Result<(), Failure> {
        let mut out = stdout();
        writeln!(out, "{}:", self.array.name)?;
        for (index, group) in self.groups().into_iter().enumerate() {
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
            writeln!(out, "{}", self.row_text(row))?;
        }
        out.flush()?;
        // Notes go to standard error: programs parse the text of mdadm on standard output.
        for line in states::lines(&self.states) {
            complain(&format!("note: {line}"));
        }
        Ok(())
    }

    /// Lines about the array, each with name and value, in the groups of mdadm.
    fn groups(&self) -> Vec<Vec<(&'static str, String)>> {
        let array = &self.array;
        let level = Level::from_code(array.level);
        let mut groups: Vec<Vec<(&'static str, String)>> = Vec::new();
        let kib = |sectors: u64| {
            format!("{}{}", sectors / 2, size::mdadm(weft_units::Sectors(sectors).bytes()))
        };
        let present = self.rows.iter().filter(|row| row.number.is_some()).count();
        // Without redundancy each member adds its own size.
        let striped = level.is_some_and(|level| !level.uses_size());
        let mut about = vec![
            ("Version", array.metadata.clone()),
            ("Creation Time", MdTime::from_secs(array.created_secs).to_ctime()),
            ("Raid Level", level.map_or(array.level.to_string(), |level| level.to_string())),
            ("Array Size", kib(self.array_sectors)),
        ];
        if !striped {
            about.push(("Used Dev Size", kib(array.member_size / 512)));
        }
        about.extend([
            ("Raid Devices", self.slots.to_string()),
            ("Total Devices", present.to_string()),
            ("Persistence", "Superblock is persistent".into()),
        ]);
        groups.push(about);
        let has_bitmap = self.has_bitmap;
        if has_bitmap {
            groups.push(vec![("Intent Bitmap", "Internal".to_owned())]);
        }
        let spares = self.count(&["spare", "spare rebuilding", REPLACEMENT]);
        let active = self.count(&[IN_SYNC]);
        let update = self.updated.map(|time| ("Update Time", time.to_ctime()));
        let mut state: Vec<(&'static str, String)> = update.into_iter().collect();
        state.extend([
            // mdadm prints a trailing blank.
            ("State", format!("{} ", self.state)),
            ("Active Devices", active.to_string()),
            ("Working Devices", (active + spares).to_string()),
            ("Failed Devices", self.count(&["faulty"]).to_string()),
            ("Spare Devices", spares.to_string()),
        ]);
        groups.push(state);
        let row = level.map(Level::row);
        let layout = match row.map(|row| row.layouts) {
            // If zones do not matter, md stores no layout.
            Some(Layouts::Zones) if array.layout == 0 => Some("-unknown-".to_owned()),
            _ => level.and_then(|level| level.row().layouts.name(array.layout)),
        };
        let mut shape: Vec<(&'static str, String)> =
            layout.map(|layout| ("Layout", layout)).into_iter().collect();
        if let Some(name) = row.map_or(Some("Chunk Size"), |row| row.chunk.name()) {
            shape.push((name, format!("{}K", array.chunk / 1024)));
        }
        groups.push(shape);
        let policy = match (striped, has_bitmap) {
            (true, _) => "none",
            (false, true) => "bitmap",
            (false, false) => "resync",
        };
        groups.push(vec![("Consistency Policy", policy.into())]);
        groups.extend(self.reshape.as_ref().map(|reshape| reshape_lines(reshape, array)));
        groups.extend(self.last_check.clone().map(|line| vec![line]));
        groups.push(vec![
            ("Name", array.name.clone()),
            ("UUID", array.uuid.clone()),
            ("Events", self.events.to_string()),
        ]);
        groups.retain(|group| !group.is_empty());
        groups
    }

    fn row_text(&self, row: &Row) -> String {
        let number = row.number.map_or("-".to_owned(), |number| number.to_string());
        let slot = row.slot.map_or("-".to_owned(), |slot| slot.to_string());
        let (major, minor) = row.device.unwrap_or((0, 0));
        let set = row.slot.and_then(|slot| self.mirror_set(slot)).filter(|_| row.state == IN_SYNC);
        let set = set.map(|set| format!(" set-{set}")).unwrap_or_default();
        let mostly = if row.write_mostly { " writemostly" } else { "" };
        let wanted = if row.want_replacement { " want_replacement" } else { "" };
        let reserved = row.reserved_for.map(|slot| format!(" reserved for {slot}"));
        let reserved = reserved.unwrap_or_default();
        let line = format!(
            "   {number:>5}   {major:>5}    {minor:>5}    {slot:>5}      {}{set}{mostly}{wanted}\
             {reserved}   {}",
            row.state, row.label
        );
        line.trim_end().to_owned()
    }

    fn to_json(&self) -> Value {
        let members: Vec<Value> = self
            .rows
            .iter()
            .map(|row| {
                json!({
                    "number": row.number, "slot": row.slot, "state": row.state.replace(' ', "_"),
                    "member": row.number.map(|_| row.label.clone()),
                    "want_replacement": row.want_replacement, "reserved_for": row.reserved_for,
                })
            })
            .collect();
        json!({
            "schema": "weft.detail/1",
            "name": self.array.name,
            "uuid": self.array.uuid,
            "array_size_bytes": self.array_sectors * 512,
            "state": self.state,
            "degraded": self.degraded,
            "states": states::to_json(&self.states),
            "events": self.events,
            "last_sync": self.last_sync,
            "superblock": self.superblock.as_ref().map(superblock_json::fields),
            "members": members,
        })
    }
}

/// Lines about a reshape, with the names that mdadm gives them.
fn reshape_lines(reshape: &ReshapeStatus, array: &ArrayStatus) -> Vec<(&'static str, String)> {
    let ReshapeStatus { from, to, layout, chunk, position, end } = *reshape;
    let percent = u128::from(position) * 100 / u128::from(end.max(1));
    let mut lines = vec![("Reshape Status", format!("{percent}% complete"))];
    if from != to {
        let delta = i32::from(to) - i32::from(from);
        lines.push(("Delta Devices", format!("{delta}, ({from}->{to})")));
    }
    if layout != array.layout {
        let layouts = Level::from_code(array.level).map(|level| level.row().layouts);
        let name = layouts.and_then(|layouts| layouts.name(layout));
        lines.push(("New Layout", name.unwrap_or_else(|| layout.to_string())));
    }
    if chunk != array.chunk {
        lines.push(("New Chunksize", format!("{}K", chunk / 1024)));
    }
    lines
}
