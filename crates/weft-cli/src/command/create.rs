//! `weft create`: creates an array on its members.

use std::io::Write;

use clap::Args;
use serde_json::{Value, json};
use weft_engine::layout::Layout;
use weft_ondisk::layout_id::Layouts;
use weft_ondisk::{Features, Role, SUPER_BYTES, Super1};
use weft_terminal::outcome::{Exit, Failure, Outcome};
use weft_terminal::terminal::{print_json, stdout};
use weft_units::Sectors;

use crate::member::MemberArg;
use crate::new_array::{InitialSync, MemberWrite, NewArrayOptions, Planned};
use crate::size;

/// Makes a new array on files or block devices
///
/// Refuses members that hold an array, a file system, a partition table or an encrypted volume
/// (exit status 3), unless --force is given. Members that are freshly made sparse files need no
/// initial sync. Sizes take K, M, G, T (binary) or sectors with s.
#[derive(Debug, Args)]
pub(crate) struct Create {
    #[command(flatten)]
    array: NewArrayOptions,
    /// Print what would be written and where; write nothing
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Create) -> Outcome {
    let planned = Planned::of(&arguments.array)?;
    if !arguments.dry_run {
        planned.write()?;
    }
    if arguments.json {
        print_json(&to_json(arguments, &planned))?;
    } else {
        print_text(arguments, &planned)?;
    }
    Ok(Exit::Done)
}

/// Text for the role of a member in the new array.
fn role_text(superblock: &Super1, sync: InitialSync) -> String {
    match superblock.own_role() {
        Ok(Role::Active(slot)) => format!("slot {}", slot.0),
        Ok(Role::Spare)
            if sync == InitialSync::Recovery
                && superblock.dev_number > superblock.raid_disks - 1 =>
        {
            "spare".to_owned()
        }
        Ok(role) => role.to_string(),
        Err(error) => error.to_string(),
    }
}

/// Number of sectors of a member's data that the array uses.
fn used(superblock: &Super1) -> Sectors {
    match superblock.chunk {
        Sectors::ZERO => superblock.used_size(),
        chunk => superblock.used_size().round_down(chunk),
    }
}

/// Text about the new array: name, level, members, chunk, layout and size.
fn title(writes: &[MemberWrite], array: &Layout) -> String {
    let Some(first) = writes.first().map(|write| &write.superblock) else { return String::new() };
    let used = || writes.iter().map(|write| used(&write.superblock));
    let [least, most] = [used().min(), used().max()].map(Option::unwrap_or_default);
    let each = if least == most {
        format!("{} each", size::human(most.bytes()))
    } else {
        format!("{} to {}", size::human(least.bytes()), size::human(most.bytes()))
    };
    let chunk = match first.chunk {
        Sectors::ZERO => String::new(),
        chunk => format!(", chunk {}", size::human(chunk.bytes())),
    };
    format!(
        "{} ({}): {}, {} of {each}{chunk}{}; {} for data",
        first.name(),
        first.set_uuid,
        first.level,
        counted(array.members().into(), "member"),
        layout_name(first).map(|layout| format!(", {layout}")).unwrap_or_default(),
        size::human(array.array_size().bytes()),
    )
}

/// Name of the layout; `None` if the level has no layouts, or the layout makes no difference: in a
/// RAID 0 of equal members, which has one zone only.
fn layout_name(first: &Super1) -> Option<String> {
    let said = first.level.row().layouts != Layouts::Zones
        || first.feature_map.contains(Features::RAID0_LAYOUT);
    first.level.row().layouts.name(first.layout).filter(|_| said)
}

fn print_text(arguments: &Create, planned: &Planned) -> Result<(), Failure> {
    let Planned { writes, layout, sync, has_chunk_of_ssds } = planned;
    let mut out = stdout();
    let would = if arguments.dry_run { "would create" } else { "created" };
    writeln!(out, "{would} {}", title(writes, layout))?;
    for write in writes {
        let superblock = &write.superblock;
        let role = role_text(superblock, *sync);
        let flag = if superblock.devflags == 0 { "" } else { " (write-mostly)" };
        writeln!(out, "  {role:<8} {}{flag}", write.label)?;
        for foreign in &write.kept {
            writeln!(
                out,
                "           {} at byte {} stays: it is where data is, and may be taken for content",
                foreign.name, foreign.byte
            )?;
        }
        if !arguments.dry_run {
            continue;
        }
        if let Some(bytes) = write.make {
            writeln!(out, "           make a sparse file of {} bytes", bytes.0)?;
        }
        for place in &write.erase {
            let at = place.bytes().0;
            writeln!(out, "           write zeros, bytes {at}..{}", at + SUPER_BYTES as u64)?;
        }
        let at = superblock.super_offset.bytes().0;
        writeln!(
            out,
            "           write superblock {}, bytes {at}..{}",
            superblock.minor,
            at + SUPER_BYTES as u64
        )?;
        let data = superblock.data_offset.bytes().0;
        let end = data + used(superblock).bytes().0;
        writeln!(out, "           data will be at bytes {data}..{end}")?;
    }
    let missing = missing_slots(arguments);
    for slot in &missing {
        writeln!(out, "  slot {slot:<3} missing")?;
    }
    if !missing.is_empty() {
        let all = usize::from(layout.members());
        writeln!(
            out,
            "degraded: {} of {all} slots are filled; weft add fills more",
            all - missing.len()
        )?;
    }
    if *has_chunk_of_ssds {
        writeln!(out, "chunk: every member is an SSD; --chunk 512K makes it mdadm's")?;
    }
    writeln!(out, "initial sync: {}; {}", sync.name(), sync.reason(layout.level()))?;
    if arguments.dry_run {
        writeln!(out, "nothing was written")?;
    } else {
        let members: Vec<String> = writes
            .iter()
            .map(|write| weft_terminal::terminal::quoted(write.path.as_os_str()))
            .collect();
        writeln!(out, "next: weft serve {}", members.join(" "))?;
    }
    out.flush()?;
    Ok(())
}

/// Slots for which the user gave `missing` instead of a member.
fn missing_slots(arguments: &Create) -> Vec<usize> {
    let slotted = arguments.array.members().take(arguments.array.raid_devices).enumerate();
    slotted.filter(|(_, it)| matches!(it.0, MemberArg::Missing)).map(|(slot, _)| slot).collect()
}

/// Text with a number and a noun: `1 member`, `2 members`.
fn counted(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn to_json(arguments: &Create, planned: &Planned) -> Value {
    let Planned { writes, layout, sync, .. } = planned;
    let members: Vec<Value> = writes
        .iter()
        .map(|write| {
            let superblock = &write.superblock;
            let role = superblock.own_role();
            let erased: Vec<u64> = write.erase.iter().map(|place| place.bytes().0).collect();
            json!({
                "member": write.label,
                "slot": role.as_ref().ok().and_then(|role| match role {
                    Role::Active(slot) => Some(slot.0),
                    Role::Faulty | Role::Journal | Role::Spare => None,
                }),
                "device_number": superblock.dev_number,
                "device_uuid": superblock.device_uuid.to_string(),
                "make_bytes": write.make.map(|bytes| bytes.0),
                "erase_offsets_bytes": erased,
                "super_offset_bytes": superblock.super_offset.bytes().0,
                "super_bytes": SUPER_BYTES,
                "data_offset_bytes": superblock.data_offset.bytes().0,
                "data_bytes": used(superblock).bytes().0,
                "write_mostly": superblock.devflags != 0,
            })
        })
        .collect();
    let first = writes.first().map(|write| &write.superblock);
    json!({
        "schema": "weft.create/1",
        "dry_run": arguments.dry_run,
        "name": first.map(Super1::name),
        "uuid": first.map(|superblock| superblock.set_uuid.to_string()),
        "level": layout.level().name(),
        "layout": first.and_then(layout_name),
        "metadata": first.map(|superblock| superblock.minor.to_string()),
        "raid_devices": layout.members(),
        "spare_devices": arguments.array.spare_devices,
        "chunk_bytes": layout.chunk().bytes().0,
        "array_bytes": layout.array_size().bytes().0,
        "initial_sync": sync.name(),
        "initial_sync_reason": sync.reason(layout.level()),
        "missing_slots": missing_slots(arguments),
        "members": members,
    })
}
