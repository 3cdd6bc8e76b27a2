//! Tests of superblocks at the limits of legal values.
//!
//! Both sides of each limit are tried: a check that is too strict would refuse arrays that the
//! kernel accepts.

#[allow(dead_code, reason = "each test uses its part")]
mod area;
#[allow(dead_code, reason = "each test uses its part")]
mod fixture;

use weft_ondisk::{ByteOrder, Features, Level, Minor, ResyncOffset, Role, Super1, Super090};
use weft_units::{Sectors, Slot};

/// A change to a given number, the last legal number, and the first illegal one.
type Edge<T> = (&'static str, fn(&mut T, i64), i64, i64);

fn sectors(number: i64) -> Sectors {
    Sectors(number.cast_unsigned())
}

fn small<T: TryFrom<i64>>(number: i64) -> T {
    T::try_from(number).ok().expect("the table's numbers fit their fields")
}

/// Puts the superblock `gap` sectors behind the data.
fn at_the_end(it: &mut Super1, gap: i64) {
    it.minor = Minor::V1_0;
    it.super_offset = Minor::V1_0.position(MEMBER).unwrap();
    it.data_offset = Sectors(0);
    it.size = Sectors(128);
    it.data_size = sectors(it.super_offset.0.cast_signed() - gap);
}

fn bad_blocks(it: &mut Super1, offset: i64, size: i64) {
    it.feature_map.insert(Features::BADBLOCKS);
    (it.bblog_offset, it.bblog_size) = (small(offset), small(size));
}

fn parity_log(it: &mut Super1, offset: i64, size: i64) {
    it.feature_map.insert(Features::PPL);
    let ([low, high], [small, large]) =
        (small::<i16>(offset).to_le_bytes(), self::small::<u16>(size).to_le_bytes());
    it.bitmap_offset_raw = [low, high, small, large];
}

const MEMBER: Sectors = Sectors(12_288);

/// Limits of a RAID5 of four members: superblock at sector 8 with 128 roles (one sector), data from
/// sector 2048 on.
const NEW: &[Edge<Super1>] = &[
    ("logical block, least", |it, n| it.logical_block_size = small(n), 512, 256),
    ("logical block, none", |it, n| it.logical_block_size = small(n), 0, 1),
    ("logical block, power", |it, n| it.logical_block_size = small(n), 1024, 1536),
    (
        "logical block, most",
        |it, n| {
            (it.logical_block_size, it.chunk) = (small(n), Sectors(512));
        },
        65_536,
        131_072,
    ),
    (
        "chunk of a logical block",
        |it, n| (it.logical_block_size, it.chunk) = (65_536, sectors(n)),
        128,
        64,
    ),
    ("chunk, least", |it, n| it.chunk = sectors(n), 8, 4),
    (
        "chunk, most",
        |it, n| (it.chunk, it.size, it.data_size) = (sectors(n), sectors(4096), sectors(4096)),
        4096,
        8192,
    ),
    ("slots, least", |it, n| it.raid_disks = small(n), 4, 3),
    ("slots, most", |it, n| it.raid_disks = small(n), 1920, 1921),
    ("size within data", |it, n| it.size = sectors(n), 10_240, 10_241),
    (
        "data, least",
        |it, n| {
            (it.size, it.chunk, it.data_size) = (Sectors(8), Sectors(8), sectors(n));
        },
        10,
        9,
    ),
    ("chunk within size", |it, n| it.chunk = sectors(n), 8192, 16_384),
    ("data within the member", |it, n| it.data_size = sectors(n), 10_240, 10_241),
    (
        "slot of a role",
        |it, n| {
            it.set_role(3, Role::Spare);
            it.set_role(4, Role::Active(Slot(small(n))));
        },
        3,
        4,
    ),
    (
        "members at a slot",
        |it, n| {
            for number in 4..small::<u32>(n) {
                it.set_role(number, Role::Active(Slot(0)));
            }
        },
        5,
        6,
    ),
    ("its own number", |it, n| it.dev_number = small(n), 127, 128),
    ("data behind the superblock", |it, n| it.data_offset = sectors(n), 9, 8),
    ("superblock behind the data", at_the_end, 0, -1),
    ("partial parity log, least", |it, n| parity_log(it, 8, n), 16, 15),
    ("partial parity log behind the superblock", |it, n| parity_log(it, n, 16), 1, 0),
    ("partial parity log before the superblock", |it, n| parity_log(it, n, 16), 2024, -16),
    ("partial parity log before the data", |it, n| parity_log(it, n, 16), 2024, 2025),
    ("bad-block log, least", |it, n| bad_blocks(it, 16, n), 1, 0),
    ("bad-block log, most", |it, n| bad_blocks(it, 16, n), 8, 9),
    (
        "unit of the bad-block log",
        |it, n| {
            bad_blocks(it, 16, 8);
            it.bblog_shift = small(n);
        },
        63,
        64,
    ),
    ("bad-block log behind the superblock", |it, n| bad_blocks(it, n, 8), 1, 0),
    ("bad-block log before the superblock", |it, n| bad_blocks(it, n, 8), -8, -9),
    ("bad-block log ends at the superblock", |it, n| bad_blocks(it, n, 8), -8, -7),
    ("bad-block log before the data", |it, n| bad_blocks(it, n, 8), 2032, 2033),
    (
        "bad-block log behind the partial parity log",
        |it, n| {
            parity_log(it, 8, 16);
            bad_blocks(it, n, 8);
        },
        24,
        23,
    ),
    ("recovered part", |it, n| it.set_recovery_offset(Some(sectors(n))), 10_240, 10_241),
    (
        "tail of a journal, most",
        |it, n| {
            it.set_role(0, Role::Journal);
            it.recovery_offset_raw = n.cast_unsigned();
        },
        10_232,
        10_240,
    ),
    (
        "tail of a journal, blocks",
        |it, n| {
            it.set_role(0, Role::Journal);
            it.recovery_offset_raw = n.cast_unsigned();
        },
        16,
        12,
    ),
];

/// Changes of a superblock with a reshape in progress.
const NEW_RESHAPING: &[Edge<Super1>] = &[
    ("slots before a reshape, least", |it, n| it.reshape.delta_disks = small(n), 3, 4),
    ("slots before a reshape, most", |it, n| it.reshape.delta_disks = small(n), -1916, -1917),
    (
        "position of a reshape, full stripes",
        |it, n| it.reshape.position = n.cast_unsigned(),
        384,
        256,
    ),
    (
        "position of a reshape, most",
        |it, n| {
            it.size = Sectors(384);
            it.reshape.position = n.cast_unsigned();
        },
        4 * 384,
        4 * 384 + 384,
    ),
    (
        "full stripe of a reshape, the larger chunk",
        |it, n| {
            it.reshape.new_chunk = Sectors(256);
            it.reshape.position = n.cast_unsigned();
        },
        768,
        384,
    ),
    (
        "new data of a reshape, end",
        |it, n| {
            it.feature_map.insert(Features::NEW_OFFSET);
            it.size = Sectors(10_240 - 128);
            it.reshape.new_offset = small(n);
        },
        128,
        129,
    ),
    (
        "new data of a reshape, begin",
        |it, n| {
            it.feature_map.insert(Features::NEW_OFFSET);
            it.reshape.new_offset = small(n);
        },
        -2048,
        -2049,
    ),
];

#[test]
fn version_1_is_believed_up_to_each_edge_and_not_beyond() {
    let fixture = fixture::member("raid5-4x64k-ls", 0);
    for (index, (what, change, legal, illegal)) in NEW.iter().chain(NEW_RESHAPING).enumerate() {
        let said = |number| {
            let mut it = fixture.parse();
            (it.size, it.data_size) = (Sectors(10_240), Sectors(10_240));
            assert_eq!((it.data_offset, it.roles.len()), (Sectors(2048), 128));
            if index >= NEW.len() {
                fixture::reshaping(&mut it);
            }
            change(&mut it, number);
            it.validate(MEMBER).map_or_else(|error| error.to_string(), |()| "legal".to_owned())
        };
        assert_eq!(said(*legal), "legal", "{what}: {legal}");
        assert_ne!(said(*illegal), "legal", "{what}: {illegal}");
    }
}

const OLD: &[Edge<Super090>] = &[
    ("persistent", |it, n| it.not_persistent = small(n), 0, 1),
    ("slots, least", |it, n| it.raid_disks = small(n), 4, 3),
    ("slots, most", |it, n| it.raid_disks = small(n), 27, 28),
    ("chunk of whole sectors", |it, n| it.chunk_bytes = small(n), 4096, 4608),
    ("chunk of half a sector", |it, n| it.chunk_bytes = small(n), 8192, 8448),
    ("layout", |it, n| it.layout = small(n), 5, 6),
    ("size, none", |it, n| it.size_kib = small(n), 64, 0),
    ("chunk within size", |it, n| it.size_kib = small(n), 64, 63),
    ("data before the superblock", |it, n| it.size_kib = small(n), 3968 / 2, 3968 / 2 + 1),
    ("slot twice", |it, n| it.disks[3].raid_disk = small(n), 3, 2),
    ("slot of a row", |it, n| it.disks[3].raid_disk = small(n), 3, 4),
    ("its own number", |it, n| it.this_disk.number = small(n), 0, 27),
    ("its own row", |it, n| it.this_disk.number = small(n), 0, 1),
    ("its own slot", |it, n| it.this_disk.raid_disk = small(n), 0, 1),
    ("its own state", |it, n| it.this_disk.state = small(n), 6, 7),
];

/// Changes of a superblock with a reshape in progress.
const OLD_RESHAPING: &[Edge<Super090>] = &[
    ("slots before a reshape, least", |it, n| it.reshape.delta_disks = small(n), 3, 4),
    ("slots before a reshape, most", |it, n| it.reshape.delta_disks = small(n), -23, -24),
    (
        "position of a reshape",
        |it, n| it.reshape.position = u64::from(it.size_kib) * 2 * 4 + n.cast_unsigned(),
        0,
        1,
    ),
    ("no position of a reshape", |it, n| it.reshape.position = n.cast_unsigned(), -1, -2),
    ("level after a reshape", |it, n| it.reshape.new_level = small(n), 10, 11),
    ("chunk after a reshape", |it, n| it.reshape.new_chunk_bytes = small(n), 4096, 4097),
];

#[test]
fn version_0_90_is_believed_up_to_each_edge_and_not_beyond() {
    let area = area::one("raid5-4-v090", 0, "super090");
    for (index, (what, change, legal, illegal)) in OLD.iter().chain(OLD_RESHAPING).enumerate() {
        let said = |number| {
            let mut it = area.super090();
            if index >= OLD.len() {
                area::reshaping(&mut it);
            }
            change(&mut it, number);
            it.validate().map_or_else(|error| error.to_string(), |()| "legal".to_owned())
        };
        assert_eq!(said(*legal), "legal", "{what}: {legal}");
        assert_ne!(said(*illegal), "legal", "{what}: {illegal}");
    }
}

/// Odd values draw a warning, not an error.
#[test]
fn what_is_odd_is_warned_of_from_its_edge_on() {
    let fixture = fixture::member("raid5-4x64k-ls", 0);
    let new = |change: &dyn Fn(&mut Super1)| {
        let mut it = fixture.parse();
        it.resync_offset = ResyncOffset::Clean;
        change(&mut it);
        it.warnings().len()
    };
    let size = fixture.parse().size;
    for (sector, warnings) in [(0, 0), (size.0, 0), (size.0 + 1, 1)] {
        assert_eq!(new(&|it| it.resync_offset = ResyncOffset::At(Sectors(sector))), warnings);
    }
    assert_eq!(new(&|it| it.size = Sectors(it.size.0 - 8)), 1);
    assert_eq!(new(&|it| (it.level, it.size) = (Level::Raid1, Sectors(it.size.0 - 8))), 0);
    assert_eq!(new(&|it| (it.level, it.size) = (Level::Raid0, Sectors(it.size.0 - 8))), 0);

    let area = area::one("raid5-4-v090", 0, "super090");
    let old = |change: &dyn Fn(&mut Super090)| {
        let mut it = area.super090();
        change(&mut it);
        it.warnings().len()
    };
    let size = area.super090().size();
    assert_eq!(old(&|_| {}), 0);
    assert_eq!(old(&|it| it.order = ByteOrder::Big), 1);
    assert_eq!(old(&|it| it.size_kib -= 4), 1);
    assert_eq!(old(&|it| (it.level, it.size_kib) = (Level::Raid1, it.size_kib - 4)), 0);
    for (sector, warnings) in [(0, 0), (size.0, 0), (size.0 + 1, 1)] {
        let offset = ResyncOffset::At(Sectors(sector));
        assert_eq!(old(&|it| it.set_resync_offset(offset)), warnings);
    }
}

/// A checkpoint counts only with the event count stored along with it.
#[test]
fn an_old_checkpoint_is_not_believed() {
    let mut it = area::one("raid5-4-v090", 0, "super090").super090();
    it.set_resync_offset(ResyncOffset::At(Sectors(64)));
    assert_eq!(it.resync_offset(), ResyncOffset::At(Sectors(64)));
    it.events += 1;
    assert_eq!(it.resync_offset(), ResyncOffset::At(Sectors(0)));
    it.set_resync_offset(ResyncOffset::At(Sectors(1 << 32)));
    assert_eq!(it.resync_offset(), ResyncOffset::At(Sectors(0)));
    it.set_resync_offset(ResyncOffset::Clean);
    assert_eq!((it.resync_offset(), it.dirty_from()), (ResyncOffset::Clean, None));
    assert_eq!((it.recovery_cp, it.state & Super090::CLEAN), (u32::MAX, Super090::CLEAN));
}

#[test]
fn an_event_count_that_cannot_increase_refuses_writing() {
    for (events, reasons) in [(u64::MAX - 1, 0), (u64::MAX, 1)] {
        let mut new = fixture::member("raid5-4x64k-ls", 0).parse();
        new.events = events;
        assert_eq!(new.refuses_writing().len(), reasons);
        let mut old = area::one("raid5-4-v090", 0, "super090").super090();
        old.events = events;
        assert_eq!(old.refuses_writing().len(), reasons);
    }
}

/// Metadata that weft does not keep up to date refuses writing.
#[test]
fn what_is_not_kept_up_to_date_is_not_written() {
    let reasons = |change: &dyn Fn(&mut Super1)| {
        let mut it = fixture::member("raid5-4x64k-ls", 0).parse();
        change(&mut it);
        it.validate(Sectors(4096)).unwrap();
        it.refuses_writing().iter().map(|reason| reason.name).collect::<Vec<&str>>()
    };
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
        let found = reasons(&|it| {
            (it.feature_map, it.bitmap_offset_raw) = (Features(features), 8_u32.to_le_bytes());
        });
        assert_eq!(found, names, "{features:#x}");
    }
    let found = reasons(&|it| (it.feature_map, it.events) = (Features(1), u64::MAX));
    assert_eq!(found, ["bitmap_offset", "events"]);
    let found = reasons(&|it| (it.feature_map, it.bblog_shift) = (Features(8), 3));
    assert_eq!(found, ["bblog_shift"]);
    let ppl = fixture::member("raid5-4-ppl", 0).parse();
    assert_eq!(ppl.refuses_writing()[0].name, "MULTI_PPL");
}
