//! Tests of damaged superblocks: each error names the field.
//!
//! Each row breaks one field of a superblock that mdadm wrote, corrects the checksum, and names the
//! field that the error must report.

#[allow(dead_code, reason = "each test uses its part")]
mod fixture;

use fixture::Fixture;
use weft_ondisk::{
    Features, Minor, ResyncOffset, Role, SUPER_BYTES, Super1, Superblock, SuperblockError, Uuid,
    Version, csum_v1,
};
use weft_units::{Sectors, Slot};

/// Byte offset in a superblock and the bytes to write there.
type Edit = (usize, Vec<u8>);

fn u8_at(byte: usize, value: u8) -> Edit {
    (byte, vec![value])
}

fn u16_at(byte: usize, value: u16) -> Edit {
    (byte, value.to_le_bytes().to_vec())
}

fn u32_at(byte: usize, value: u32) -> Edit {
    (byte, value.to_le_bytes().to_vec())
}

fn i32_at(byte: usize, value: i32) -> Edit {
    (byte, value.to_le_bytes().to_vec())
}

fn u64_at(byte: usize, value: u64) -> Edit {
    (byte, value.to_le_bytes().to_vec())
}

fn role_at(number: usize, code: u16) -> Edit {
    u16_at(256 + 2 * number, code)
}

fn edited(fixture: &Fixture, edits: &[Edit]) -> [u8; SUPER_BYTES] {
    let mut block = fixture.block;
    for (byte, bytes) in edits {
        block[*byte..byte + bytes.len()].copy_from_slice(bytes);
    }
    if let Some(sum) = csum_v1(&block) {
        block[216..220].copy_from_slice(&sum.to_le_bytes());
    }
    block
}

fn parse(fixture: &Fixture, edits: &[Edit]) -> Result<Super1, SuperblockError> {
    Super1::parse(&edited(fixture, edits), fixture.minor, fixture.member_size)
}

/// Checks rows of edits and the field that the error names. An empty field stands for a superblock
/// that is accepted.
fn check(array: &str, member: usize, rows: &[(&[Edit], &str)]) {
    let fixture = fixture::member(array, member);
    for (edits, field) in rows {
        let found = parse(&fixture, edits);
        let named = found.as_ref().err().map_or("", |error| error.at().unwrap().field);
        assert_eq!(named, *field, "{array} {edits:?}: {found:?}");
        if let Err(error) = found {
            let (message, at) = (error.to_string(), error.at().unwrap());
            let start = format!("superblock {field} at byte {}: found ", at.byte);
            assert!(message.starts_with(&start), "{message}");
            assert!(message.contains(", expected "), "{message}");
            assert!(message.contains("; "), "{message}");
            assert!(!message.ends_with('.'), "{message}");
        }
    }
}

const SLOT_5: usize = 5;

#[test]
fn each_broken_place_and_size_of_a_raid5_member_is_named() {
    check(
        "raid5-4x64k-ls",
        0,
        &[
            (&[], ""),
            (&[u32_at(0, 0)], "magic"),
            (&[u32_at(4, 0)], "major_version"),
            (&[u32_at(4, 2)], "major_version"),
            (&[u64_at(144, 0)], "super_offset"),
            (&[u64_at(144, u64::MAX)], "super_offset"),
            (&[u32_at(220, 0)], "max_dev"),
            (&[u32_at(220, 1921)], "max_dev"),
            (&[u32_at(220, u32::MAX)], "max_dev"),
            (&[u32_at(160, 128)], "dev_number"),
            (&[u32_at(160, u32::MAX)], "dev_number"),
            (&[u32_at(8, 0x2000)], "feature_map"),
            (&[u32_at(8, 1 << 31)], "feature_map"),
            (&[u32_at(12, 1)], "pad0"),
            (&[u8_at(228, 1)], "pad3"),
            (&[u8_at(255, 1)], "pad3"),
            // raid_disks
            (&[u32_at(92, 0)], "raid_disks"),
            (&[u32_at(92, 1)], "raid_disks"),
            (&[u32_at(92, 1921)], "raid_disks"),
            (&[u32_at(92, u32::MAX)], "raid_disks"),
            (&[u32_at(92, 1920)], ""), // the other slots are missing
            (&[u32_at(92, 3)], "dev_roles"),
            // level and layout
            (&[i32_at(72, -4)], "level"),
            (&[i32_at(72, -100)], "level"),
            (&[i32_at(72, 7)], "level"),
            (&[u32_at(76, 6)], "layout"),
            (&[u32_at(76, 16)], "layout"),
            (&[i32_at(72, 6), u32_at(92, 3)], "raid_disks"),
            (&[i32_at(72, 6), u32_at(76, 7)], "layout"),
            (&[i32_at(72, 4), u32_at(76, 99)], ""), // ignored
            // chunk
            (&[u32_at(88, 0)], "chunksize"),
            (&[u32_at(88, 4)], "chunksize"),
            (&[u32_at(88, 96)], "chunksize"),
            (&[u32_at(88, 4096)], "chunksize"), // more than a member
            (&[u32_at(88, 1 << 22)], "chunksize"),
            (&[u32_at(88, 1 << 31)], "chunksize"),
            // sizes
            (&[u64_at(80, 0)], "size"),
            (&[u64_at(80, 2049)], "data_size"),
            (&[u64_at(80, u64::MAX)], "data_size"),
            (&[u64_at(80, u64::MAX), u64_at(136, u64::MAX)], "size"),
            (&[u64_at(136, 9)], "data_size"),
            (&[u64_at(136, 2047)], "data_size"),
            (&[u64_at(136, 2049)], "data_size"), // past the end of the member
            (&[u64_at(136, u64::MAX)], "data_offset"), // the sum overflows
            (&[u64_at(128, u64::MAX)], "data_offset"),
            (&[u64_at(128, 0)], "data_offset"),
            (&[u64_at(128, 8)], "data_offset"),
            (&[u64_at(128, 9)], ""),
            (&[u64_at(128, 2049)], "data_size"),
            (&[u64_at(80, 2000)], ""), // rounded down, with a warning
        ],
    );
}

#[test]
fn each_broken_feature_role_and_log_of_a_raid5_member_is_named() {
    check(
        "raid5-4x64k-ls",
        0,
        &[
            // features that exclude each other
            (&[u32_at(8, 0x201), i32_at(96, 8)], "feature_map"),
            (&[u32_at(8, 0x401)], "feature_map"),
            (&[u32_at(8, 0x801)], "feature_map"),
            (&[u32_at(8, 0x600)], "feature_map"),
            (&[u32_at(8, 0xa00)], "feature_map"),
            (&[u32_at(8, 0xc00)], "feature_map"),
            (&[u32_at(8, 0x1000)], "feature_map"),
            // progress
            (&[u32_at(8, 2), u64_at(152, 2048)], ""),
            (&[u32_at(8, 2), u64_at(152, 2049)], "recovery_offset"),
            (&[u64_at(208, 5000)], ""), // dirty from the start, with a warning
            // roles
            (&[role_at(0, 4)], "dev_roles"),
            (&[role_at(0, 0xfeff)], "dev_roles"),
            (&[role_at(0, 0xff00)], "dev_roles"),
            (&[role_at(0, 0xfffc)], "dev_roles"),
            (&[role_at(127, 0xff05)], "dev_roles"),
            (&[role_at(SLOT_5, 0)], ""), // a replacement, perhaps
            (&[role_at(SLOT_5, 0), role_at(6, 0)], "dev_roles"),
            (&[role_at(0, 0xffff)], ""),
            (&[role_at(0, 0xfffe)], ""),
            // bad-block log: looked at only with the feature
            (&[u16_at(186, 9)], ""),
            (&[u8_at(185, 64)], ""),
            (&[u32_at(8, 8)], ""),
            (&[u32_at(8, 8), u16_at(186, 9)], "bblog_size"),
            (&[u32_at(8, 8), u16_at(186, 0)], "bblog_size"),
            (&[u32_at(8, 8), u8_at(185, 64)], "bblog_shift"),
            (&[u32_at(8, 8), i32_at(188, 0)], "bblog_offset"),
            (&[u32_at(8, 8), i32_at(188, -7)], "bblog_offset"), // over the superblock
            (&[u32_at(8, 8), i32_at(188, -9)], "bblog_offset"), // before the member
            (&[u32_at(8, 8), i32_at(188, 2033)], "bblog_offset"), // into data
            (&[u32_at(8, 8), i32_at(188, i32::MAX)], "bblog_offset"),
            (&[u32_at(8, 8), i32_at(188, i32::MIN)], "bblog_offset"),
            // logical block size
            (&[u32_at(224, 512)], ""),
            (&[u32_at(224, 65536), u64_at(128, 2048)], ""),
            (&[u32_at(224, 1)], "logical_block_size"),
            (&[u32_at(224, 513)], "logical_block_size"),
            (&[u32_at(224, 131_072)], "logical_block_size"),
            // fields that are only displayed
            (&[(32, vec![0xff; 32])], ""),
            (&[u64_at(64, u64::MAX)], ""),
            (&[u64_at(192, u64::MAX)], ""),
            (&[u64_at(200, u64::MAX)], ""),
        ],
    );
}

#[test]
fn each_broken_field_of_a_reshape_is_named() {
    // RAID5 from 3 members to 4, 6 full stripes of 3 chunks done.
    let reshape = |extra: &[Edit]| {
        let mut edits = vec![
            u32_at(8, 4),
            i32_at(100, 5),
            u64_at(104, 6 * 384),
            i32_at(112, 1),
            u32_at(116, 2),
        ];
        edits.push(u32_at(120, 128));
        edits.extend_from_slice(extra);
        edits
    };
    check(
        "raid5-4x64k-ls",
        0,
        &[
            (&reshape(&[]), ""),
            (&reshape(&[i32_at(112, 4)]), "delta_disks"),
            (&reshape(&[i32_at(112, i32::MIN)]), "delta_disks"),
            (&reshape(&[i32_at(112, -1), role_at(4, 4)]), ""), // a slot that is going away
            (&reshape(&[i32_at(112, -1), role_at(4, 5)]), "dev_roles"),
            (&reshape(&[i32_at(100, 3)]), "new_level"),
            (&reshape(&[u32_at(120, 0)]), "new_chunk"),
            (&reshape(&[u32_at(120, 100)]), "new_chunk"),
            (&reshape(&[u64_at(104, 383)]), "reshape_position"),
            (&reshape(&[u64_at(104, u64::MAX)]), "reshape_position"),
            (&reshape(&[u32_at(8, 0x44), i32_at(124, -8)]), ""),
            (&reshape(&[u32_at(8, 0x44), i32_at(124, 1)]), "new_offset"),
            (&reshape(&[u32_at(8, 0x44), i32_at(124, i32::MIN)]), "new_offset"),
        ],
    );
}

#[test]
fn each_broken_field_of_other_levels_is_named() {
    check(
        "raid0-uneven",
        1,
        &[
            (&[], ""),
            (&[u32_at(76, 3)], "layout"),
            (&[u32_at(8, 0), u32_at(76, 3)], ""), // without the feature the layout means nothing
            (&[u32_at(88, 0)], "chunksize"),
            (&[u32_at(88, 24)], ""),
            (&[u32_at(88, 24), u32_at(224, 8192)], "chunksize"),
            (&[u32_at(88, 4097)], "chunksize"),
            (&[u64_at(136, 0)], "data_size"),
            (&[i32_at(72, -1)], "feature_map"),
            (&[i32_at(72, -1), u32_at(8, 0)], ""),
            (&[i32_at(72, -1), u32_at(8, 0), u32_at(88, 4097)], "chunksize"),
        ],
    );
    check(
        "raid10-4-n2",
        0,
        &[
            (&[u32_at(76, 0x002)], "layout"),
            (&[u32_at(76, 0x100)], "layout"),
            (&[u32_at(76, 0x101)], "layout"),
            (&[u32_at(76, 0x105)], "layout"),
            (&[u32_at(76, 0x6_0102)], "layout"),
            (&[u32_at(76, 0x8_0102)], "layout"),
            (&[u32_at(88, 0)], "chunksize"),
            (&[u32_at(92, 1)], "raid_disks"),
        ],
    );
    check(
        "raid1-2",
        0,
        &[
            (&[u32_at(92, 0)], "raid_disks"),
            (&[u32_at(76, 7)], ""),
            (&[u64_at(80, 0)], "size"),
            (&[u32_at(8, 0x400)], "feature_map"),
        ],
    );
}

#[test]
fn each_broken_field_of_a_log_or_journal_is_named() {
    check(
        "raid5-4-ppl",
        0,
        &[
            (&[], ""),
            (&[u16_at(96, 0)], "ppl"),    // over the superblock
            (&[u16_at(98, 15)], "ppl"),   // too short
            (&[u16_at(96, 3000)], "ppl"), // into data
            (&[u16_at(96, (-9_i16).cast_unsigned())], "ppl"), // before the member
            (&[i32_at(72, 4)], "feature_map"),
            (&[u32_at(8, 0x808), i32_at(188, 1000)], "bblog_offset"), // over the log
            (&[u32_at(8, 0x808)], ""),
        ],
    );
    check(
        "raid5-4-journal",
        4,
        &[
            (&[], ""),
            (&[u64_at(152, 4)], "journal_tail"),
            (&[u64_at(152, 10_240)], "journal_tail"),
            (&[u64_at(136, 10_248)], "data_size"),
            (&[u64_at(136, 1000), u64_at(152, 8)], ""), // may be smaller than a data member
        ],
    );
}

#[test]
fn metadata_at_the_end_is_kept_clear_of_data() {
    let super_offset = 6128;
    check(
        "raid1-3-v10-bitmap",
        0,
        &[
            (&[], ""),
            (&[u64_at(128, super_offset - 6016)], "data_size"),
            (&[u64_at(128, 1), u64_at(80, super_offset), u64_at(136, super_offset)], "data_offset"),
            (&[u64_at(136, super_offset)], ""),
            (&[u64_at(136, super_offset + 1)], "data_size"),
            (&[u64_at(136, 6145)], "data_size"),
            (&[u32_at(8, 8), i32_at(188, -8)], ""),
            (&[u32_at(8, 8), i32_at(188, -200)], "bblog_offset"),
            (&[u32_at(8, 8), i32_at(188, 10)], "bblog_offset"),
        ],
    );
}

#[test]
fn a_wrong_sum_is_shown_beside_the_right_one() {
    let fixture = fixture::member("raid5-4x64k-ls", 0);
    let mut block = fixture.block;
    block[33] ^= 1;
    let found = Super1::parse(&block, fixture.minor, fixture.member_size).unwrap_err();
    let SuperblockError::Checksum { stored, computed, .. } = found else { panic!("{found}") };
    assert_eq!((stored, computed), (0x969d_7e6f, 0x969d_7d6f));
}

#[test]
fn a_member_of_another_size_is_refused() {
    let fixture = fixture::member("raid5-4x64k-ls", 0);
    let refused = |size| Super1::parse(&fixture.block, Minor::V1_2, Sectors(size)).unwrap_err();
    assert!(matches!(refused(23), SuperblockError::TooSmall { .. }));
    assert!(matches!(
        refused(4095),
        SuperblockError::Truncated { needs: Sectors(4096), has: Sectors(4095), .. }
    ));
    let end = fixture::member("raid1-3-v10-bitmap", 0);
    let found = Super1::parse(&end.block, Minor::V1_0, Sectors(8192)).unwrap_err();
    assert!(matches!(found, SuperblockError::Position { expected: Sectors(8176), .. }), "{found}");
    let found = Super1::parse(&fixture.block[..4095], Minor::V1_2, Sectors(4096)).unwrap_err();
    assert!(matches!(found, SuperblockError::Short { found: 4095 }));
}

#[test]
fn superblocks_of_two_arrays_on_one_member_are_refused() {
    let new = fixture::member("raid5-4x64k-ls", 0);
    let size = new.member_size;
    let mut at_start = new.parse();
    at_start.minor = Minor::V1_1;
    at_start.super_offset = Sectors(0);
    let find = |blocks: &[(Version, &[u8])]| Superblock::find(blocks, size);
    let newer: (Version, &[u8]) = (Version::V1_2, &new.block);
    let same = at_start.encode();
    assert_eq!(find(&[(Version::V1_1, &same), newer]), Ok(at_start.clone().into()));
    at_start.set_uuid = Uuid([7; 16]);
    let block = at_start.encode();
    let found = find(&[(Version::V1_1, &block), newer]).unwrap_err();
    assert!(matches!(found, SuperblockError::Ambiguous { .. }), "{found}");

    // A stale superblock that is damaged does not count, unless there is no other.
    let mut stale = block;
    stale[200] ^= 1;
    let stale: (Version, &[u8]) = (Version::V1_1, &stale);
    assert_eq!(find(&[stale, newer]), Ok(new.parse().into()));
    let found = find(&[stale, (Version::V1_2, &[0; 4096])]).unwrap_err();
    assert!(matches!(found, SuperblockError::Checksum { .. }), "{found}");
    let found = find(&[(Version::V1_1, &[0; 4096]), (Version::V1_2, &[0; 4096])]);
    assert_eq!(
        found.unwrap_err().to_string(),
        "no md superblock found (looked at sectors 0, 8); \
         name a member of an array; superblocks of versions 0.90 and 1.0 lie at the end, where an \
         image that is cut has none: copy the rest too"
    );
    let found = Superblock::find(&[], Sectors(23)).unwrap_err();
    assert!(matches!(found, SuperblockError::TooSmall { .. }), "{found}");
}

#[test]
fn what_is_odd_but_usable_is_said() {
    let fixture = fixture::member("raid5-4x64k-ls", 0);
    assert_eq!(fixture.parse().warnings(), Vec::<String>::new());
    let odd = parse(&fixture, &[u64_at(80, 2000), u64_at(208, 2001)]).unwrap();
    assert_eq!(odd.warnings().len(), 2, "{:?}", odd.warnings());
    assert_eq!(odd.dirty_from(), Some(Sectors(0)));
    assert_eq!(odd.array_size(), Some(Sectors(3 * 15 * 128)));
}

#[test]
fn changes_are_read_back() {
    let fixture = fixture::member("raid5-4x64k-ls", 0);
    let mut changed = fixture.parse();
    changed.events += 1;
    changed.resync_offset = ResyncOffset::At(Sectors(0));
    changed.set_recovery_offset(Some(Sectors(512)));
    changed.set_role(2, Role::Faulty);
    changed.set_role(130, Role::Active(Slot(2)));
    assert_eq!(changed.roles.len(), 131);
    assert_eq!(changed.encoded_len(512), 1024);
    let mut block = fixture.block;
    changed.encode_into(&mut block);
    let read = Super1::parse(&block, fixture.minor, fixture.member_size).unwrap();
    assert_eq!(read, changed);
    assert_eq!(read.recovery_offset(), Some(Sectors(512)));
    assert_eq!(read.role(129).unwrap(), Role::Spare);
    assert_eq!(block[520..], fixture.block[520..]);
    changed.set_recovery_offset(None);
    assert_eq!(changed.feature_map, Features(0));
}

#[test]
fn what_is_not_kept_up_to_date_is_not_written() {
    let fixture = fixture::member("raid5-4x64k-ls", 0);
    for (features, names) in [
        (0, &[][..]),
        (0x2, &[]),
        (0x1, &[]),
        (0x8, &[]),
        (0x10, &[]),
        (0x82, &["RECOVERY_BITMAP"]),
        (0x83, &[]),
        (0x101, &["CLUSTERED"]),
        (0x200, &["JOURNAL"]),
    ] {
        let parsed = parse(&fixture, &[u32_at(8, features), i32_at(96, 8)]).unwrap();
        let found: Vec<&str> = parsed.refuses_writing().iter().map(|reason| reason.name).collect();
        assert_eq!(found, names, "{features:#x}");
    }
    let parsed = parse(&fixture, &[u32_at(8, 1), u64_at(200, u64::MAX)]).unwrap();
    let found: Vec<&str> = parsed.refuses_writing().iter().map(|reason| reason.name).collect();
    assert_eq!(found, ["bitmap_offset", "events"]);
    let logged = parse(&fixture, &[u32_at(8, 8), (185, vec![3])]).unwrap();
    assert_eq!(logged.refuses_writing()[0].name, "bblog_shift");
    let ppl = fixture::member("raid5-4-ppl", 0).parse();
    assert_eq!(ppl.refuses_writing()[0].name, "MULTI_PPL");
}
