//! How does a superblock read?
//!
//! For people field by field as `mdadm --examine` prints it, with its alignment, for programs as
//! JSON with sizes in sectors and times in UTC.
//!
//! Source   output of mdadm 4.2, compared on every fixture of levels that weft reads

use std::fmt::Write;

use serde_json::{Value, json};
use weft_ondisk::{Features, Level, MdTime, Minor, ResyncOffset, Role, Super1, layout_id};
use weft_units::{Bytes, Sectors};

use crate::size;
use crate::when;

/// Sectors that mdadm takes a version 1 superblock and what belongs to it to need at least: 32 for
/// itself, 4 for the bitmap's superblock, twice.
const RESERVED: u64 = (32 + 4) * 2;

/// The text of `mdadm --examine`, without the line that names the member.
pub(crate) fn examine(superblock: &Super1, member_size: Sectors) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &dyn std::fmt::Display| {
        // A String takes whatever it is given.
        let _ = writeln!(text, "{name:>15} : {value}");
    };
    let features = superblock.feature_map;
    line("Magic", &"a92b4efc");
    line("Version", &superblock.minor);
    line("Feature Map", &format_args!("{:#x}", features.0));
    line("Array UUID", &superblock.set_uuid);
    line("Name", &format_args!("{}{}", superblock.name(), local_to(&superblock.name())));
    line("Creation Time", &when::asctime(superblock.ctime));
    line("Raid Level", &superblock.level);
    line("Raid Devices", &superblock.raid_disks);
    text.push('\n');
    sizes(&mut text, superblock, member_size);
    text.push('\n');
    places(&mut text, superblock);

    let mut line = |name: &str, value: &dyn std::fmt::Display| {
        let _ = writeln!(text, "{name:>15} : {value}");
    };
    line("Update Time", &when::asctime(superblock.utime));
    if superblock.bblog_size > 0 && superblock.bblog_offset != 0 {
        let present =
            if features.contains(Features::BADBLOCKS) { " - bad blocks present." } else { "" };
        let entries = u64::from(superblock.bblog_size) * 512 / 8;
        let offset = superblock.bblog_offset;
        let log = format!("{entries} entries available at offset {offset} sectors{present}");
        line("Bad Block Log", &log);
    }
    line("Checksum", &format_args!("{:x} - correct", superblock.checksum()));
    line("Events", &superblock.events);
    text.push('\n');
    let mut line = |name: &str, value: &dyn std::fmt::Display| {
        let _ = writeln!(text, "{name:>15} : {value}");
    };
    if matches!(superblock.level, Level::Raid5 | Level::Raid6 | Level::Raid10) {
        let name = layout_id::name(superblock.level, superblock.layout);
        line("Layout", &name.unwrap_or_else(|| "-unknown-".into()));
    }
    match superblock.level {
        Level::Raid0 | Level::Raid4 | Level::Raid5 | Level::Raid6 | Level::Raid10 => {
            line("Chunk Size", &chunk(superblock.chunk));
        }
        Level::Linear => line("Rounding", &chunk(superblock.chunk)),
        Level::Raid1 => {}
    }
    text.push('\n');
    let mut line = |name: &str, value: &dyn std::fmt::Display| {
        let _ = writeln!(text, "{name:>15}: {value}");
    };
    line("Device Role ", &role(superblock));
    line(
        "Array State ",
        &format_args!(
            "{} ('A' == active, '.' == missing, 'R' == replacing)",
            array_state(superblock)
        ),
    );
    text
}

fn sizes(text: &mut String, superblock: &Super1, member_size: Sectors) {
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:>15} : {value}");
    };
    let sectors = |sectors: Sectors| {
        format!("{} sectors{}", sectors.0, size::mdadm(sectors.bytes()))
    };
    line("Avail Dev Size", sectors(superblock.data_size));
    if let Some(array) = superblock.array_size() {
        line("Array Size", format!("{} KiB{}", array.0 / 2, size::mdadm(array.bytes())));
        let used = superblock.size;
        if used != superblock.data_size {
            line("Used Dev Size", sectors(used));
        }
    }
    if superblock.data_offset != Sectors::ZERO {
        line("Data Offset", format!("{} sectors", superblock.data_offset.0));
    }
    line("Super Offset", format!("{} sectors", superblock.super_offset.0));
    if let Some(good_to) = superblock.recovery_offset() {
        line("Recovery Offset", format!("{} sectors", good_to.0));
    }
    if let Some(tail) = superblock.journal_tail() {
        line("Journal Offset", format!("{} sectors", tail.0));
    }
    if !superblock.feature_map.contains(Features::NEW_OFFSET) {
        let (before, after) = unused(superblock, member_size);
        line("Unused Space", format!("before={before} sectors, after={after} sectors"));
    }
    let state = match superblock.resync_offset {
        ResyncOffset::Clean => "clean",
        ResyncOffset::At(_) => "active",
    };
    line("State", state.into());
    line("Device UUID", superblock.device_uuid.to_string());
}

fn places(text: &mut String, superblock: &Super1) {
    let mut any = false;
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:>15} : {value}");
    };
    if let Some(offset) = superblock.bitmap_offset() {
        line("Internal Bitmap", format!("{offset} sectors from superblock"));
    }
    if let Some(ppl) = superblock.ppl() {
        let (size, offset) = (ppl.size, ppl.offset);
        line("PPL", format!("{size} sectors at offset {offset} sectors from superblock"));
    }
    if superblock.feature_map.contains(Features::RESHAPE) {
        any = true;
        let reshape = superblock.reshape;
        let position = Sectors(reshape.position);
        let at = format!("{}{}", position.0 / 2, size::mdadm(position.bytes()));
        line("Reshape pos'n", at);
        if reshape.delta_disks != 0 {
            let before = superblock.raid_disks_before().unwrap_or(0);
            let after = superblock.raid_disks;
            line("Delta Devices", format!("{} ({before}->{after})", reshape.delta_disks));
        }
        if reshape.new_level != superblock.level.code() {
            let level = Level::from_code(reshape.new_level);
            line("New Level", level.map_or("-unknown-".into(), |level| level.to_string()));
        }
        if reshape.new_chunk != superblock.chunk {
            line("New Chunksize", chunk(reshape.new_chunk));
        }
    }
    if any {
        text.push('\n');
    }
    let mut flags = String::new();
    if superblock.devflags & 1 != 0 {
        flags.push_str(" write-mostly");
    }
    if superblock.devflags & 2 != 0 {
        flags.push_str(" failfast");
    }
    if !flags.is_empty() {
        let _ = writeln!(text, "{:>15} :{flags}", "Flags");
    }
}

/// What mdadm calls unused: between the end of metadata and data, and after data.
fn unused(superblock: &Super1, member_size: Sectors) -> (u64, u64) {
    let place = superblock.super_offset.0;
    let at = |offset: i32| place.saturating_add_signed(i64::from(offset));
    let log = i64::from(superblock.bblog_size);
    let has_log = superblock.bblog_size > 0 && superblock.bblog_offset != 0;
    let data_end = superblock.data_offset.0.saturating_add(superblock.used_size().0);
    if superblock.minor == Minor::V1_0 {
        let mut metadata = place;
        if has_log {
            metadata = metadata.min(at(superblock.bblog_offset));
        }
        if let Some(offset) = superblock.bitmap_offset() {
            metadata = metadata.min(at(offset));
        }
        return (superblock.data_offset.0, metadata.saturating_sub(data_end));
    }
    let mut metadata = place.saturating_add(RESERVED);
    if has_log {
        metadata = metadata.max(at(superblock.bblog_offset).saturating_add_signed(log));
    }
    (
        superblock.data_offset.0.saturating_sub(metadata),
        member_size.0.saturating_sub(data_end),
    )
}

fn local_to(name: &str) -> String {
    let host = when::hostname();
    match name.split_once(':') {
        Some((first, _)) if first == host => format!("  (local to host {host})"),
        _ => String::new(),
    }
}

fn role(superblock: &Super1) -> String {
    match superblock.own_role() {
        Ok(Role::Active(slot)) if superblock.feature_map.contains(Features::REPLACEMENT) => {
            format!("Replacement device {}", slot.0)
        }
        Ok(Role::Active(slot)) => format!("Active device {}", slot.0),
        Ok(Role::Journal) => "Journal".into(),
        Ok(Role::Faulty | Role::Spare) | Err(_) => "spare".into(),
    }
}

/// A letter for each slot.
pub(crate) fn array_state(superblock: &Super1) -> String {
    let mut counts = vec![0_u32; superblock.slots() as usize];
    for code in &superblock.roles {
        if let Some(count) = counts.get_mut(usize::from(*code)) {
            *count += 1;
        }
    }
    let letter = |count: u32| match count {
        0 => '.',
        1 => 'A',
        _ => 'R',
    };
    counts.into_iter().map(letter).collect()
}

/// A chunk as mdadm prints it: `64K`, `1M`.
pub(crate) fn chunk(chunk: Sectors) -> String {
    let kib = chunk.0 / 2;
    if kib >= 1 << 20 && kib.is_multiple_of(1 << 20) {
        format!("{}G", kib >> 20)
    } else if kib >= 1 << 10 && kib.is_multiple_of(1 << 10) {
        format!("{}M", kib >> 10)
    } else {
        format!("{kib}K")
    }
}

/// Every field, for programs. Sizes and places are in sectors unless the name says otherwise.
pub(crate) fn json(superblock: &Super1) -> Value {
    let features: Vec<&str> = feature_names(superblock.feature_map);
    let role = match superblock.own_role() {
        Ok(Role::Active(slot)) => json!({"kind": "active", "slot": slot.0}),
        Ok(role) => json!({"kind": role.to_string()}),
        Err(error) => json!({"kind": "invalid", "error": error.to_string()}),
    };
    json!({
        "metadata": superblock.minor.to_string(),
        "feature_map": superblock.feature_map.0,
        "features": features,
        "array_uuid": superblock.set_uuid.to_string(),
        "name": superblock.name(),
        "creation_time": when::rfc3339(superblock.ctime),
        "level": superblock.level.name(),
        "raid_devices": superblock.raid_disks,
        "layout": layout_id::name(superblock.level, superblock.layout),
        "layout_code": superblock.layout,
        "chunk_bytes": superblock.chunk.bytes().0,
        "avail_dev_sectors": superblock.data_size.0,
        "used_dev_sectors": superblock.used_size().0,
        "array_bytes": superblock.array_size().map(Sectors::bytes).map(|Bytes(bytes)| bytes),
        "data_offset_sectors": superblock.data_offset.0,
        "super_offset_sectors": superblock.super_offset.0,
        "recovery_offset_sectors": superblock.recovery_offset().map(|at| at.0),
        "resync_offset_sectors": superblock.dirty_from().map(|at| at.0),
        "state": if superblock.resync_offset.is_clean() { "clean" } else { "active" },
        "device_uuid": superblock.device_uuid.to_string(),
        "device_number": superblock.dev_number,
        "device_role": role,
        "update_time": when::rfc3339(superblock.utime),
        "bad_block_log": (superblock.bblog_size > 0).then(|| json!({
            "offset_sectors": superblock.bblog_offset,
            "sectors": superblock.bblog_size,
            "in_use": superblock.feature_map.contains(Features::BADBLOCKS),
        })),
        "bitmap_offset_sectors": superblock.bitmap_offset(),
        "checksum": format!("{:08x}", superblock.checksum()),
        "events": superblock.events,
        "array_state": array_state(superblock),
        "corrected_reads": superblock.cnt_corrected_read,
    })
}

fn feature_names(features: Features) -> Vec<&'static str> {
    [
        (Features::BITMAP, "bitmap"),
        (Features::RECOVERY, "recovery"),
        (Features::RESHAPE, "reshape"),
        (Features::BADBLOCKS, "bad-blocks"),
        (Features::REPLACEMENT, "replacement"),
        (Features::RESHAPE_BACK, "reshape-back"),
        (Features::NEW_OFFSET, "new-offset"),
        (Features::RECOVERY_BITMAP, "recovery-bitmap"),
        (Features::CLUSTERED, "clustered"),
        (Features::JOURNAL, "journal"),
        (Features::PPL, "ppl"),
        (Features::MULTI_PPL, "multi-ppl"),
        (Features::RAID0_LAYOUT, "raid0-layout"),
    ]
    .into_iter()
    .filter_map(|(feature, name)| features.contains(feature).then_some(name))
    .collect()
}

/// Now, for a new superblock.
pub(crate) fn now() -> MdTime {
    MdTime::from_secs(when::epoch_secs())
}
