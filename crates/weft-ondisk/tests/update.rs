//! Tests of updates of superblocks: both formats, from one list of members.

#[allow(dead_code, reason = "each test uses its part")]
mod area;
#[allow(dead_code, reason = "each test uses its part")]
mod fixture;

use weft_ondisk::{
    Disk090, Features, MdTime, Minor, ResyncOffset, Role, SpareError, Standing, Super090,
    Superblock, Update, Uuid,
};
use weft_units::{Sectors, Slot};

fn standing(role: Role) -> Standing {
    Standing { role, rebuilding: false, present: true, device: Disk090::default() }
}

/// Four slots: the member of slot 2 has failed and a spare has taken over, another member is being
/// rebuilt for slot 3, one spare waits, and one is gone.
fn members() -> Vec<Standing> {
    let active = |slot| standing(Role::Active(Slot(slot)));
    let device = |minor, state| Disk090 { number: 9, major: 8, minor, raid_disk: 9, state };
    vec![
        Standing { device: device(1, Disk090::WRITE_MOSTLY | Disk090::SYNC), ..active(0) },
        Standing { device: device(17, Disk090::FAIL_FAST | Disk090::REMOVED), ..active(1) },
        standing(Role::Faulty),
        standing(Role::Spare),
        active(2),
        Standing { rebuilding: true, ..active(3) },
        Standing { present: false, ..standing(Role::Spare) },
    ]
}

fn update(members: &[Standing], number: u32, recovery_offset: Option<Sectors>) -> Update<'_> {
    let (utime, resync) = (MdTime::from_secs(77), ResyncOffset::At(Sectors(64)));
    Update {
        events: 50,
        utime,
        resync,
        members,
        number,
        recovery_offset,
        recovery_follows_bitmap: false,
        is_replacement: false,
        has_bad_blocks: false,
    }
}

#[test]
fn version_1_says_by_number_which_role_a_member_has() {
    let members = members();
    let mut superblock = Superblock::from(fixture::member("raid5-4x64k-ls", 0).parse());
    assert!(superblock.tells_rebuilding());
    assert_eq!(superblock.device(), Disk090::default());
    superblock.update(&update(&members, 0, Some(Sectors(800))));
    let new = superblock.as_v1().unwrap();
    assert_eq!((new.events, new.utime.secs), (50, 77));
    assert_eq!(new.roles, [0, 1, 0xfffe, 0xffff, 2, 3, 0xffff]);
    assert_eq!(new.resync_offset, ResyncOffset::At(Sectors(64)));
    assert!(new.feature_map.contains(Features::RECOVERY));
    assert_eq!(new.recovery_offset(), Some(Sectors(800)));

    superblock.update(&Update { has_bad_blocks: true, ..update(&members, 0, None) });
    let new = superblock.as_v1().unwrap();
    assert_eq!((new.recovery_offset(), new.recovery_offset_raw), (None, 0));
    assert!(new.feature_map.contains(Features::BADBLOCKS));
    let spare = superblock.of_spare(Sectors(1 << 20), 3, Uuid([7; 16])).unwrap();
    assert!(!spare.features().contains(Features::BADBLOCKS), "a log is of one member");
    superblock.update(&update(&members, 0, None));
    assert!(!superblock.features().contains(Features::BADBLOCKS));
}

#[test]
fn version_0_90_says_by_slot_and_behind_the_slots_which_role_a_member_has() {
    let area = area::one("raid5-4-v090", 0, "super090");
    let members = members();
    let table = |number| {
        let mut superblock = area.superblock();
        assert!(!superblock.tells_rebuilding());
        superblock.update(&update(&members, number, None));
        superblock.as_v0_90().unwrap().clone()
    };
    let old: Super090 = table(0);
    let in_sync = Disk090::ACTIVE | Disk090::SYNC;
    let gone = Disk090::REMOVED | Disk090::FAULTY;
    // Number and slot equal the position; the earlier flags of the device remain where they still
    // matter.
    let rows = [
        (8, 1, in_sync | Disk090::WRITE_MOSTLY),
        (8, 17, in_sync | Disk090::FAIL_FAST),
        (0, 0, in_sync),
        (0, 0, gone),
        (0, 0, Disk090::FAULTY),
        (0, 0, 0),
        (0, 0, 0),
    ];
    for (position, (major, minor, state)) in (0..).zip(rows) {
        let expected = Disk090 { number: position, major, minor, raid_disk: position, state };
        assert_eq!(old.disks[position as usize], expected, "row {position}");
    }
    assert!(old.disks[rows.len()..].iter().all(|disk| *disk == Disk090::default()));
    // Three members are active, one waits and one is being rebuilt; one failed and one slot is
    // empty.
    assert_eq!((old.active_disks, old.working_disks, old.spare_disks), (3, 5, 2));
    assert_eq!((old.failed_disks, old.nr_disks), (2, 6));
    assert_eq!((old.events, old.utime, old.cp_events), (50, 77, 50));
    assert_eq!((old.recovery_cp, old.state & Super090::CLEAN), (64, 0));
    for (number, row) in [(0, 0), (1, 1), (2, 4), (3, 5), (4, 2), (5, 6)] {
        assert_eq!(table(number).this_disk, old.disks[row], "number {number}");
    }
    // An absent member keeps the row that it had.
    assert_eq!(table(6).this_disk, area.super090().this_disk);
}

#[test]
fn more_members_than_rows_are_left_out() {
    let mut superblock = area::one("raid5-4-v090", 0, "super090").superblock();
    let members = [vec![standing(Role::Active(Slot(0)))], vec![standing(Role::Spare); 40]].concat();
    superblock.update(&update(&members, 0, None));
    let old = superblock.as_v0_90().unwrap();
    assert_eq!((old.active_disks, old.spare_disks, old.failed_disks), (1, 23, 3));
}

#[test]
fn a_block_is_as_long_as_it_has_to_be() {
    let new = Superblock::from(fixture::member("raid5-4x64k-ls", 0).parse());
    let long = Superblock::from(fixture::member("raid6-130", 0).parse());
    let old = area::one("raid5-4-v090", 0, "super090").superblock();
    for (superblock, logical_block, len) in [
        (&new, 512, 512),
        (&new, 4096, 4096),
        (&long, 512, 1024),
        (&long, 4096, 4096),
        (&old, 512, 4096),
    ] {
        let bytes = superblock.encode_for(logical_block);
        assert_eq!(bytes.len(), len, "{} {logical_block}", superblock.version());
        let mut block = bytes;
        block.resize(4096, 0);
        let again = Superblock::decode(&block, superblock.version(), Sectors(8192)).unwrap();
        assert_eq!(again.set_uuid(), superblock.set_uuid());
    }
}

#[test]
fn a_spare_needs_room_for_metadata_and_for_as_much_data_as_the_others() {
    let fixture = fixture::member("raid5-4x64k-ls", 0);
    let superblock = Superblock::from(fixture.parse());
    let (size, offset) = (superblock.size(), superblock.data_offset());
    let spare = |sectors| superblock.of_spare(Sectors(sectors), 7, Uuid([8; 16]));
    let enough = spare(offset.0 + size.0).unwrap();
    let new = enough.as_v1().unwrap();
    assert_eq!((new.dev_number, new.device_uuid, new.data_size), (7, Uuid([8; 16]), size));
    assert_eq!((new.devflags, new.cnt_corrected_read), (0, 0));
    assert_eq!((new.super_offset, new.data_offset), (Sectors(8), offset));
    let found = Sectors(size.0 - 1);
    assert_eq!(spare(offset.0 + size.0 - 1), Err(SpareError::Data { found, expected: size }));
    assert_eq!(spare(23), Err(SpareError::TooSmall { found: Sectors(23) }));

    // With the superblock at the end, data ends at the superblock.
    let mut last = fixture.parse();
    (last.minor, last.data_offset) = (Minor::V1_0, Sectors(0));
    let last = Superblock::from(last);
    assert!(last.of_spare(Sectors(size.0 + 16), 7, Uuid([8; 16])).is_ok());
    let short = last.of_spare(Sectors(size.0 + 8), 7, Uuid([8; 16]));
    assert_eq!(short, Err(SpareError::Data { found: Sectors(size.0 - 8), expected: size }));

    let area = area::one("raid5-4-v090", 0, "super090");
    let old = area.superblock();
    let spare = old.of_spare(area.member_size, 5, Uuid([8; 16])).unwrap();
    let row = Disk090 { number: 5, raid_disk: 5, ..Disk090::default() };
    assert_eq!(spare.as_v0_90().unwrap().this_disk, row);
    assert_eq!(spare.device(), row);
    // The superblock lies at the last multiple of 64 KiB that fits, and the data before it.
    let needed = old.size().0 + 128;
    assert!(old.of_spare(Sectors(needed), 5, Uuid([8; 16])).is_ok());
    assert!(old.of_spare(Sectors(needed - 128), 5, Uuid([8; 16])).is_err());
    assert_eq!(
        old.of_spare(Sectors(needed + 1280), 5, Uuid([8; 16])).unwrap().super_offset(),
        Sectors(needed + 1280 - 128)
    );
}
