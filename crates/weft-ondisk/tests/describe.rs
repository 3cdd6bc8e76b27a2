//! Tests of superblocks as text: one line after one change, compared with the line that mdadm
//! prints.

#[allow(dead_code, reason = "each test uses its part")]
mod area;
#[allow(dead_code, reason = "each test uses its part")]
mod fixture;

use weft_ondisk::{Disk090, Features, Level, Minor, Role, Super1, Super090};
use weft_units::Sectors;

/// The value of the line `name`; `None` when there is no such line.
fn line(lines: &[(String, String)], name: &str) -> Option<String> {
    let mut found = lines.iter().filter(|(known, _)| known == name);
    let value = found.next().map(|(_, value)| value.clone());
    assert!(found.next().is_none(), "{name} twice");
    value
}

/// A superblock of version 1.0, 100 sectors behind the data.
fn at_the_end(it: &mut Super1) {
    it.minor = Minor::V1_0;
    it.super_offset = Sectors(it.data_offset.0 + it.size.0 + 100);
}

type Case<T> = (fn(&mut T), &'static str, Option<&'static str>);

const NEW: &[Case<Super1>] = &[
    (|_| {}, "Reshape pos'n", None),
    (|_| {}, "Delta Devices", None),
    (|it| it.reshape.new_offset = 8, "New Offset", None),
    (|it| it.devflags = 1, "Flags", Some("write-mostly")),
    (|it| it.devflags = 2, "Flags", Some("failfast")),
    (|it| it.devflags = 3, "Flags", Some("write-mostly failfast")),
    (|it| it.devflags = 4, "Flags", None),
    (|it| it.bblog_size = 0, "Bad Block Log", None),
    (|it| it.bblog_offset = 0, "Bad Block Log", None),
    (
        |it| (it.bblog_size, it.bblog_offset) = (8, 16),
        "Bad Block Log",
        Some("512 entries available at offset 16 sectors"),
    ),
    (
        |it| {
            (it.bblog_size, it.bblog_offset) = (8, 16);
            it.feature_map.insert(Features::BADBLOCKS);
        },
        "Bad Block Log",
        Some("512 entries available at offset 16 sectors - bad blocks present."),
    ),
    (|it| it.level = Level::Linear, "Rounding", Some("64K")),
    (|it| it.level = Level::Linear, "Chunk Size", None),
    (|it| it.level = Level::Linear, "Layout", None),
    (|it| it.level = Level::Raid1, "Chunk Size", None),
    (|it| it.level = Level::Raid0, "Used Dev Size", None),
    (|it| it.level = Level::Raid0, "Layout", None),
    (|it| it.layout = 99, "Layout", Some("0x63")),
    (|it| it.data_size = it.size, "Used Dev Size", None),
    (|it| it.data_offset = Sectors(0), "Data Offset", None),
    (|it| it.set_recovery_offset(Some(Sectors(64))), "Recovery Offset", Some("64 sectors")),
    (|_| {}, "Recovery Offset", None),
    (
        |it| it.feature_map.insert(Features::REPLACEMENT),
        "Device Role",
        Some("Replacement device 0"),
    ),
    (|it| it.set_role(0, Role::Journal), "Device Role", Some("Journal")),
    (|it| it.set_role(0, Role::Spare), "Device Role", Some("spare")),
    (|it| it.dev_number = 500, "Device Role", Some("none (not in the role table)")),
    (
        |it| it.set_role(3, Role::Active(weft_units::Slot(0))),
        "Array State",
        Some("RAA. ('A' == active, '.' == missing, 'R' == replacing)"),
    ),
    (
        |it| {
            it.feature_map.insert(Features::PPL);
            it.bitmap_offset_raw = [8, 0, 16, 0];
        },
        "PPL",
        Some("16 sectors at offset 8 sectors from superblock"),
    ),
    (|_| {}, "PPL", None),
    (
        |it| {
            it.feature_map.insert(Features::BITMAP);
            it.bitmap_offset_raw = (-16_i32).to_le_bytes();
        },
        "Internal Bitmap",
        Some("-16 sectors from superblock"),
    ),
    // The area that reaches furthest behind the superblock counts, and at least 72 sectors.
    (
        |it| (it.bblog_size, it.bblog_offset) = (8, 16),
        "Unused Space",
        Some("before=1968 sectors, after=0 sectors"),
    ),
    (
        |it| (it.bblog_size, it.bblog_offset) = (8, 65),
        "Unused Space",
        Some("before=1967 sectors, after=0 sectors"),
    ),
    (
        |it| {
            it.feature_map.insert(Features::PPL);
            it.bitmap_offset_raw = [100, 0, 16, 0];
        },
        "Unused Space",
        Some("before=1924 sectors, after=0 sectors"),
    ),
    (
        |it| {
            at_the_end(it);
            (it.bblog_size, it.bblog_offset) = (8, -8);
        },
        "Unused Space",
        Some("before=2048 sectors, after=92 sectors"),
    ),
    (
        |it| {
            at_the_end(it);
            it.feature_map.insert(Features::BITMAP);
            it.bitmap_offset_raw = (-16_i32).to_le_bytes();
        },
        "Unused Space",
        Some("before=2048 sectors, after=84 sectors"),
    ),
    (
        |it| {
            at_the_end(it);
            it.data_offset = Sectors(0);
            it.size = it.super_offset;
            (it.bblog_size, it.bblog_offset) = (0, 0);
        },
        "Unused Space",
        None,
    ),
];

/// Changes of a superblock with a reshape in progress.
const NEW_RESHAPING: &[Case<Super1>] = &[
    (|_| {}, "Reshape pos'n", Some("0")),
    (|it| it.reshape.position = 20_000, "Reshape pos'n", Some("10000 (9.77 MiB 10.24 MB)")),
    (|_| {}, "Delta Devices", None),
    (|_| {}, "New Level", None),
    (|_| {}, "New Layout", None),
    (|_| {}, "New Chunksize", None),
    (|it| it.reshape.delta_disks = 1, "Delta Devices", Some("1 (3->4)")),
    (|it| it.reshape.new_level = 6, "New Level", Some("raid6")),
    (|it| it.reshape.new_level = 77, "New Level", Some("77")),
    (|it| it.reshape.new_layout = 0, "New Layout", Some("left-asymmetric")),
    (|it| it.reshape.new_layout = 99, "New Layout", Some("0x63")),
    (|it| it.reshape.new_chunk = Sectors(1024), "New Chunksize", Some("512K")),
    (
        |it| {
            it.feature_map.insert(Features::NEW_OFFSET);
            it.reshape.new_offset = -8;
        },
        "New Offset",
        Some("2040 sectors"),
    ),
    (|it| it.feature_map.insert(Features::NEW_OFFSET), "Unused Space", None),
];

#[test]
fn a_superblock_of_version_1_reads_as_its_fields_are() {
    let fixture = fixture::member("raid5-4x64k-ls", 0);
    for (index, (change, name, expected)) in NEW.iter().chain(NEW_RESHAPING).enumerate() {
        let mut superblock = fixture.parse();
        assert_eq!((superblock.data_offset, superblock.chunk), (Sectors(2048), Sectors(128)));
        if index >= NEW.len() {
            fixture::reshaping(&mut superblock);
        }
        change(&mut superblock);
        let lines = superblock.describe(fixture.member_size);
        assert_eq!(line(&lines, name).as_deref(), *expected, "case {index}");
    }
}

const OLD: &[Case<Super090>] = &[
    (|_| {}, "Eedk", None),
    (|it| it.not_persistent = 1, "Eedk", Some("not persistent")),
    (|_| {}, "Reshape pos'n", None),
    (|it| it.state = 0, "State", Some("active")),
    (|it| it.state = 1, "State", Some("clean")),
    (|it| it.state = 1, "Internal Bitmap", None),
    (|it| it.state = 0x101, "Internal Bitmap", Some("present")),
    (|it| it.layout = 99, "Layout", Some("-unknown-")),
    (|it| it.level = Level::Raid4, "Layout", None),
    (|it| it.level = Level::Linear, "Rounding", Some("64K")),
    (|it| it.level = Level::Linear, "Chunk Size", None),
    (|it| it.level = Level::Linear, "Used Dev Size", None),
    (|it| it.level = Level::Raid1, "Chunk Size", None),
];

/// Changes of a superblock with a reshape in progress.
const OLD_RESHAPING: &[Case<Super090>] = &[
    (|_| {}, "Version", Some("0.91.00")),
    (|_| {}, "Reshape pos'n", Some("0")),
    (|it| it.reshape.position = u64::MAX, "Reshape pos'n", None),
    (|it| it.reshape.position = 20_000, "Reshape pos'n", Some("10000 (9.77 MiB 10.24 MB)")),
    (|_| {}, "Delta Devices", None),
    (|_| {}, "New Level", None),
    (|_| {}, "New Layout", None),
    (|_| {}, "New Chunksize", None),
    (|it| it.reshape.delta_disks = -1, "Delta Devices", Some("-1 (5->4)")),
    (|it| it.reshape.new_level = 6, "New Level", Some("raid6")),
    (|it| it.reshape.new_level = 77, "New Level", Some("-unknown-")),
    (|it| it.reshape.new_layout = 0, "New Layout", Some("left-asymmetric")),
    (|it| it.reshape.new_layout = 99, "New Layout", Some("-unknown-")),
    (
        |it| {
            it.level = Level::Raid4;
            it.reshape.new_layout = 0;
        },
        "New Layout",
        None,
    ),
    (
        |it| {
            it.level = Level::Raid10;
            it.reshape.new_layout = 0x102;
        },
        "New Layout",
        Some("near=2, far=1"),
    ),
    (
        |it| {
            it.level = Level::Raid10;
            it.reshape.new_layout = 0x1_0201;
        },
        "New Layout",
        Some("near=1, offset=2"),
    ),
    (|it| it.reshape.new_chunk_bytes = 4096, "New Chunksize", Some("4096")),
];

#[test]
fn an_old_superblock_reads_as_its_fields_are() {
    let area = area::one("raid5-4-v090", 0, "super090");
    for (index, (change, name, expected)) in OLD.iter().chain(OLD_RESHAPING).enumerate() {
        let mut superblock = area.super090();
        assert_eq!((superblock.chunk_bytes, superblock.raid_disks), (65_536, 4));
        if index >= OLD.len() {
            area::reshaping(&mut superblock);
        }
        change(&mut superblock);
        let lines = superblock.describe();
        assert_eq!(line(&lines, name).as_deref(), *expected, "case {index}");
    }
}

#[test]
fn rows_of_the_old_table_say_what_a_member_does() {
    let area = area::one("raid5-4-v090", 0, "super090");
    for (state, said) in [
        (Disk090::ACTIVE | Disk090::SYNC, "active sync"),
        (Disk090::ACTIVE, "active"),
        (0, "spare"),
        (Disk090::FAULTY, "faulty"),
        (Disk090::FAULTY | Disk090::REMOVED, "faulty removed"),
        (Disk090::REMOVED, "removed"),
        (Disk090::SYNC, "sync"),
        (Disk090::ACTIVE | Disk090::SYNC | Disk090::WRITE_MOSTLY, "active sync write-mostly"),
        (Disk090::ACTIVE | Disk090::SYNC | Disk090::FAIL_FAST, "active sync failfast"),
    ] {
        let mut superblock = area.super090();
        superblock.spare_disks = 1;
        superblock.disks[2].state = state;
        let lines = superblock.describe_disks();
        // The heading, the changed row, four slots and a spare.
        assert_eq!(lines.len(), 7);
        assert!(lines[4].starts_with("   2     2 "), "{}", lines[4]);
        let words: Vec<&str> = lines[4].split_whitespace().skip(5).collect();
        assert_eq!(words.join(" "), said);
    }
}
