//! Tests of new arrays at the limits of what can be created.

use weft_ondisk::{Level, Minor, NewArray, NewMember, Super1, Uuid};
use weft_units::Sectors;

const GIB: u64 = 1 << 21;

fn member(id: u8, size: u64) -> NewMember {
    NewMember { size: Sectors(size), device_uuid: Uuid([id; 16]) }
}

fn array(level: Level, members: u8, size: u64) -> NewArray {
    NewArray::in_sync(level, members.into(), Sectors(size))
}

/// `legal`, or the text of the error.
fn said(array: &NewArray) -> String {
    array.plan().map_or_else(|error| error.to_string(), |_| "legal".to_owned())
}

#[test]
fn chunks_sizes_and_offsets_are_legal_up_to_their_edges() {
    type Change = fn(&mut NewArray);
    const POWER: &str = "a power of two, at least 4 KiB and less than 2 GiB";
    const MULTIPLE: &str = "a multiple of 4 KiB, at least 4 KiB and less than 2 GiB";
    const NONE: &str = "none, for the level does not spread data in chunks";
    let chunk = |found, of: &str| format!("chunk: found {found} sectors, expected {of}");
    let table: [(Level, Change, String); 22] = [
        (Level::Raid5, |it| it.chunk = Some(Sectors(8)), "legal".into()),
        (Level::Raid5, |it| it.chunk = Some(Sectors(4)), chunk(4, POWER)),
        (Level::Raid5, |it| it.chunk = Some(Sectors(1 << 21)), "legal".into()),
        (Level::Raid5, |it| it.chunk = Some(Sectors(1 << 22)), chunk(1 << 22, POWER)),
        (Level::Raid0, |it| it.chunk = Some(Sectors(24)), "legal".into()),
        (Level::Raid0, |it| it.chunk = Some(Sectors(0)), chunk(0, MULTIPLE)),
        (Level::Raid0, |it| it.chunk = Some(Sectors(12)), chunk(12, MULTIPLE)),
        (Level::Raid0, |it| it.chunk = Some(Sectors(1 << 22)), chunk(1 << 22, MULTIPLE)),
        (Level::Raid1, |it| it.chunk = Some(Sectors(0)), "legal".into()),
        (Level::Raid1, |it| it.chunk = Some(Sectors(8)), chunk(8, NONE)),
        (Level::Raid5, |it| it.size = Some(Sectors(1024)), "legal".into()),
        (
            Level::Raid5,
            |it| it.size = Some(Sectors(1023)),
            "size: found 1023 sectors, expected at least the chunk, 1024 sectors".into(),
        ),
        (Level::Raid1, |it| it.size = Some(Sectors(10)), "legal".into()),
        (
            Level::Raid1,
            |it| it.size = Some(Sectors(9)),
            "size: found 9 sectors, expected at least 10 sectors".into(),
        ),
        (
            Level::Raid0,
            |it| it.size = Some(Sectors(4096)),
            "size: found 4096 sectors, expected none, for raid0 uses all of each member".into(),
        ),
        (
            Level::Raid0,
            |it| it.slots[1] = None,
            "missing members: found 1, expected at most 0 for raid0".into(),
        ),
        (Level::Raid5, |it| it.data_offset = Some(Sectors(16)), "legal".into()),
        (
            Level::Raid5,
            |it| it.data_offset = Some(Sectors(15)),
            "data offset: found 15 sectors, expected at least 16 sectors for version 1.2".into(),
        ),
        (
            Level::Raid5,
            |it| (it.minor, it.data_offset) = (Minor::V1_1, Some(Sectors(8))),
            "legal".into(),
        ),
        (
            Level::Raid5,
            |it| (it.minor, it.data_offset) = (Minor::V1_1, Some(Sectors(7))),
            "data offset: found 7 sectors, expected at least 8 sectors for version 1.1".into(),
        ),
        (
            Level::Raid5,
            |it| (it.minor, it.data_offset) = (Minor::V1_0, Some(Sectors(0))),
            "legal".into(),
        ),
        (
            Level::Raid5,
            |it| (it.minor, it.data_offset) = (Minor::V1_0, Some(Sectors(8))),
            "data offset: found 8 sectors, expected only 0 sectors for version 1.0".into(),
        ),
    ];
    for (level, change, expected) in table {
        let mut changed = array(level, 3, 16 * GIB);
        change(&mut changed);
        assert_eq!(said(&changed), expected, "{level}");
    }
}

#[test]
fn options_that_a_level_has_no_use_for_are_refused() {
    type Change = fn(&mut NewArray);
    let table: [(Level, Change, &str); 3] = [
        (
            Level::Linear,
            |it| it.size = Some(Sectors(4096)),
            "size: found 4096 sectors, expected none, for linear uses all of each member",
        ),
        (
            Level::Linear,
            |it| it.chunk = Some(Sectors(8)),
            "chunk: found 8 sectors, expected none, for the level does not spread data in chunks",
        ),
        (
            Level::Raid10,
            |it| it.layout = Some(0x104),
            "layout: found near=4, expected 2 or more copies of a chunk, each on a member of its own, \
             with 3 members",
        ),
    ];
    for (level, change, expected) in table {
        let mut changed = array(level, 3, 16 * GIB);
        assert_eq!(said(&changed), "legal", "{level}");
        change(&mut changed);
        assert_eq!(said(&changed), expected, "{level}");
    }
}

/// The largest arrays end below 8 EiB.
#[test]
fn an_array_has_as_many_bytes_as_a_block_device_can() {
    let most = i64::MAX as u64 / 512;
    for (level, members, data_members) in [
        (Level::Raid1, 3, 1),
        (Level::Raid4, 4, 3),
        (Level::Raid5, 4, 3),
        (Level::Raid6, 5, 3),
        (Level::Raid10, 4, 4),
    ] {
        // Whole chunks (for mirrors, the unit that their size is rounded down to), with room for
        // the metadata.
        let edge = most / data_members / 1024 * 1024;
        for (size, legal) in [(edge, true), (edge + 1024, false)] {
            let mut changed = array(level, members, 1 << 60);
            changed.size = Some(Sectors(size));
            let found = said(&changed);
            let expected = if legal {
                "legal".to_owned()
            } else {
                format!(
                    "data of a member: found {size} sectors, expected at most {} sectors, for an \
                     array ends below 8 EiB; set a smaller size",
                    most / data_members
                )
            };
            assert_eq!(found, expected, "{level}");
        }
    }
    // RAID0 has no size: each member counts in full.
    assert_eq!(said(&array(Level::Raid0, 4, most / 4)), "legal");
    assert!(said(&array(Level::Raid0, 4, most / 4 + 1)).starts_with("data of a member: found"));
}

/// The space for a bitmap grows with the member: at version 1.0 it lies between data and
/// superblock.
#[test]
fn data_ends_where_bitmap_and_log_begin() {
    for (size, bitmap) in [
        (1024, 8),
        (2 * GIB, 8),
        (8 * GIB + 8, 8),
        (8 * GIB + 1032, 128),
        (200 * GIB, 128),
        (200 * GIB + 1024, 256),
    ] {
        let mut changed = array(Level::Raid5, 3, 300 * GIB);
        changed.minor = Minor::V1_0;
        changed.chunk = Some(Sectors(8));
        changed.size = Some(Sectors(size));
        let planned = &changed.plan().unwrap()[0];
        assert_eq!(planned.super_offset.0 - planned.data_size.0, bitmap + 8, "{size}");
        assert_eq!((planned.bblog_offset, planned.bblog_size), (-8, 8));
    }
    // In the other versions the log lies behind the superblock, if there is room before the data.
    for (data_offset, bblog_offset) in [(16, 0), (23, 0), (24, 8), (31, 15), (32, 16), (48, 16)] {
        let mut changed = array(Level::Raid5, 3, GIB);
        changed.data_offset = Some(Sectors(data_offset));
        let planned = &changed.plan().unwrap()[0];
        let size = if bblog_offset == 0 { 0 } else { 8 };
        assert_eq!(
            (planned.bblog_offset, planned.bblog_size),
            (bblog_offset, size),
            "{data_offset}"
        );
        assert_eq!(planned.data_size, Sectors(GIB - data_offset));
    }
}

#[test]
fn spares_take_numbers_behind_the_slots_and_lengthen_the_table() {
    let mut raid1 = array(Level::Raid1, 127, GIB);
    let entries = |array: &NewArray| array.plan().unwrap()[0].roles.len();
    raid1.spares.push(member(200, GIB));
    assert_eq!(entries(&raid1), 128);
    raid1.spares.push(member(201, GIB));
    assert_eq!(entries(&raid1), 384);
    let planned = raid1.plan().unwrap();
    let numbers: Vec<u32> =
        planned[126..].iter().map(|planned: &Super1| planned.dev_number).collect();
    assert_eq!(numbers, [126, 127, 128]);
    // With a member to rebuild, that member has the last number.
    let mut raid5 = NewArray { assume_clean: false, ..array(Level::Raid5, 3, GIB) };
    raid5.spares.push(member(9, GIB));
    let numbers: Vec<u32> = raid5.plan().unwrap().iter().map(|it| it.dev_number).collect();
    assert_eq!(numbers, [0, 1, 4, 3]);
}

#[test]
fn as_many_slots_as_there_are_numbers() {
    let with = |slots: usize, spares: usize| {
        let mut array = NewArray::new(Level::Raid1, vec![member(1, GIB); slots]);
        array.spares = vec![member(2, GIB); spares];
        said(&array)
    };
    assert_eq!(with(1919, 0), "legal");
    assert_eq!(with(1918, 1), "legal");
    assert_eq!(with(1920, 0), "raid devices: found 1920, expected 1..=1919 for raid1");
    assert_eq!(with(1919, 1), "raid devices: found 1919, expected 1..=1918 for raid1");
    assert_eq!(with(0, 0), "raid devices: found 0, expected 1..=1919 for raid1");
}

#[test]
fn a_mirror_of_chunks_needs_one_holder_of_each() {
    // With near and offset copies on 5 members, each row starts at another member.
    for (near, missing, legal) in [
        (0x102, &[0, 2][..], true),
        (0x102, &[0, 4], false),
        (0x102, &[1, 2], false),
        (0x103, &[0, 1], true),
        (0x103, &[4, 0, 1], false),
    ] {
        let mut raid10 = array(Level::Raid10, 5, GIB);
        raid10.layout = Some(near);
        missing.iter().for_each(|slot: &usize| raid10.slots[*slot] = None);
        let found = said(&raid10);
        let refused = format!("missing members: found {}, expected at most ", missing.len());
        assert_eq!(found == "legal", legal, "{near:#x} {missing:?}: {found}");
        assert!(legal || found.starts_with(&refused), "{near:#x} {missing:?}: {found}");
    }
}
