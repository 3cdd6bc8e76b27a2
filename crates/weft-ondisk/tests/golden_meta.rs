//! Golden tests of bitmaps, logs and journals that mdadm and the kernel wrote.

#[allow(dead_code, reason = "each test uses its part")]
mod area;

use weft_ondisk::probe::superblocks_anywhere;
use weft_ondisk::{
    BadBlockContext, BadBlocks, Bitmap, BitmapContext, ByteOrder, Candidates, DeviceIdentity,
    JournalScan, JournalState, Level, Minor, Payload, PplContext, PplHeader, PplRecompute, PplScan,
    Role, SUPER_BYTES, Super090, Superblock, SuperblockError, Trust, Version, csum_090,
    journal_block_checksum, journal_seed,
};
use weft_units::{SectorRange, Sectors, Slot};

#[test]
fn every_old_superblock_is_written_back_as_it_was() {
    let areas = area::of_kind("super090");
    assert_eq!(areas.len(), 4 + 24);
    for area in areas {
        assert_eq!(Super090::position(area.member_size), Some(area.start));
        let parsed = area.super090();
        let mut block: [u8; SUPER_BYTES] = area.bytes.clone().try_into().unwrap();
        // All fields are written: none of these bytes survives.
        for byte in (0..64).chain(128..200).chain(256..272).chain(512..532).chain(3968..3988) {
            block[byte] ^= 0x5a;
        }
        parsed.encode_into(&mut block);
        assert!(block[..] == area.bytes, "{}/{}", area.array, area.member);
        assert!(parsed.encode()[..] == area.bytes, "{}/{}", area.array, area.member);
        assert_eq!(parsed.warnings(), Vec::<String>::new());
    }
}

/// The lines that mdadm printed, without device names and empty lines. In a far layout the kernel
/// uses whole chunks in each section, 31 of 63 here; mdadm 4.2 divides sectors instead.
fn examined(text: &str) -> Vec<String> {
    let far = text.contains("Layout : far=2");
    let text = if far {
        text.replace("8064 (7.88 MiB 8.26 MB)", "7936 (7.75 MiB 8.13 MB)")
    } else {
        text.to_owned()
    };
    text.lines()
        .skip(1)
        .take_while(|line| !line.contains("Filename"))
        .filter(|line| !line.is_empty())
        .map(|line| line.split("   /dev/").next().unwrap().to_owned())
        .collect()
}

#[test]
fn every_line_of_mdadm_examine_is_the_same() {
    let mut compared = 0;
    for area in area::of_kind("super090") {
        let parsed = area.super090();
        let lines = parsed.describe().into_iter();
        let described: Vec<String> = lines
            .map(|(name, value)| format!("{name:>15} : {value}"))
            .chain(parsed.describe_disks())
            .collect();
        let expected = examined(&area.text("examine"));
        assert_eq!(described, expected, "{}/{}", area.array, area.member);
        compared += expected.len();
    }
    assert_eq!(compared, 711);
}

/// The superblock `block` in the opposite byte order.
fn swapped(block: &[u8]) -> Vec<u8> {
    let mut swapped = block.to_vec();
    for word in swapped.chunks_exact_mut(4) {
        word.reverse();
    }
    // Pairs of words form one number of 64 bits.
    for byte in [156, 164, 176] {
        let (low, high) = (byte..byte + 4, byte + 4..byte + 8);
        let low: Vec<u8> = swapped[low].to_vec();
        swapped.copy_within(high, byte);
        swapped[byte + 4..byte + 8].copy_from_slice(&low);
    }
    swapped
}

#[test]
fn both_byte_orders_say_the_same() {
    for area in area::of_kind("super090") {
        let little = area.super090();
        let bytes = swapped(&area.bytes);
        let big = Super090::parse(&bytes, area.member_size).unwrap();
        assert_eq!(big.order, ByteOrder::Big);
        assert_eq!(Super090 { order: ByteOrder::Little, ..big.clone() }, little);
        assert!(big.encode()[..] == bytes);
        assert_eq!(big.describe(), little.describe());
        assert_eq!(csum_090(&bytes, ByteOrder::Big), csum_090(&area.bytes, ByteOrder::Little));
        assert!(big.warnings()[0].contains("big-endian"), "{:?}", big.warnings());
    }
}

#[test]
fn roles_are_those_of_the_table() {
    let active = |slot| Role::Active(Slot(slot));
    for (array, roles) in [
        ("raid5-4-v090", vec![active(0), active(1), active(2), active(3), Role::Spare]),
        ("v090-failed", vec![active(0), active(1), active(2), Role::Spare, Role::Faulty]),
        ("v090-removed", vec![active(0), active(1), Role::Faulty, active(3), Role::Spare]),
    ] {
        let parsed = area::one(array, 0, "super090").superblock();
        let found: Vec<Role> = (0..5).map(|number| parsed.role(number).unwrap()).collect();
        assert_eq!(found, roles, "{array}");
        assert!(parsed.role(27).is_err());
        assert_eq!(parsed.identity(), DeviceIdentity::Number(0));
        assert_eq!(parsed.version(), Version::V0_90);
    }
    // The failed member does not record its failure: the others do.
    let failed = area::one("v090-failed", 1, "super090").superblock();
    assert_eq!(failed.own_role(), Ok(active(1)));
    assert_eq!((failed.events(), failed.dirty_from()), (2, Some(Sectors(0))));
    // A spare that took a slot carries the number of the slot.
    let spare = area::one("v090-failed", 4, "super090").superblock();
    assert_eq!((spare.dev_number(), spare.own_role()), (1, Ok(active(1))));
    assert_eq!((spare.events(), spare.dirty_from()), (22, None));
}

#[test]
fn the_superblock_is_found_among_all_places() {
    for area in area::all().into_iter().filter(|area| area.kind.starts_with("super")) {
        let nothing = [0; SUPER_BYTES];
        let superblock = area.superblock();
        let blocks = Version::ALL.map(|version| {
            let here = version == superblock.version();
            assert!(!here || version.position(area.member_size) == Some(area.start));
            (version, if here { &area.bytes[..] } else { &nothing })
        });
        assert_eq!(Superblock::find(&blocks, area.member_size), Ok(superblock));
    }
}

#[test]
fn of_one_array_the_superblock_created_last_counts() {
    let area = area::one("badblocks", 0, "super1");
    let newer = area.super1();
    let mut older = newer.clone();
    older.minor = Minor::V1_1;
    older.super_offset = Sectors(0);
    older.ctime.secs -= 1;
    let older_block = older.encode();
    let mut damaged = older_block;
    damaged[200] ^= 1;
    let find = |first: &[u8]| {
        let blocks = [(Version::V1_1, first), (Version::V1_2, &area.bytes[..])];
        Candidates::of(&blocks, area.member_size)
    };
    let both = find(&older_block);
    assert_eq!(both.legal, [newer.clone().into(), older.clone().into()]);
    assert_eq!(both.looked, [Sectors(0), Sectors(8)]);
    assert_eq!(both.one(), Ok(newer.clone().into()));
    // Damage is reported only when no other superblock is legal.
    let one = find(&damaged);
    assert_eq!((one.legal.len(), one.damaged[0].0), (1, Version::V1_1));
    assert_eq!(one.one(), Ok(newer.into()));
    older.set_uuid.0[0] ^= 1;
    let ambiguous = find(&older.encode()).one().unwrap_err();
    let SuperblockError::Ambiguous { newest, .. } = ambiguous else { panic!("{ambiguous}") };
    assert_eq!(newest, Version::V1_2);
}

#[test]
fn superblocks_are_found_in_odd_places() {
    let (new, old) = (area::one("badblocks", 0, "super1"), area::one("v090-raid4", 1, "super090"));
    let end = area::one("badblocks-v10", 0, "super1");
    let mut bytes = vec![0xfc; 64 << 9];
    for (sector, area) in [(3, &new), (20, &old), (40, &end), (50, &new), (57, &new)] {
        let rest = &mut bytes[sector << 9..];
        let len = rest.len().min(4096);
        rest[..len].copy_from_slice(&area.bytes[..len]);
    }
    bytes[(50 << 9) + 40] ^= 1; // damaged
    let found: Vec<_> = superblocks_anywhere(&bytes, Sectors(10_000))
        .into_iter()
        .map(|found| (found.sector.0 - 10_000, found.superblock.version(), found.member_start))
        .collect();
    let start = Some(Sectors(10_040) - end.start);
    assert_eq!(
        found,
        [
            (3, Version::V1_2, Some(Sectors(9_995))),
            (20, Version::V0_90, None),
            (40, Version::V1_0, start),
        ]
    );
    assert_eq!(superblocks_anywhere(&bytes[..4095], Sectors(0)), []);
}

#[test]
fn versions_are_read_back() {
    for version in Version::ALL {
        assert_eq!(version.to_string().parse(), Ok(version));
        assert_eq!(version.minor().map_or(Version::V0_90, Version::from), version);
    }
    assert!("1.3".parse::<Version>().is_err());
}

#[test]
fn members_are_counted_as_the_kernel_does() {
    for (array, member) in [("raid5-4-v090", 0), ("v090-removed", 0), ("v090-bitmap", 0)] {
        let parsed = area::one(array, member, "super090").super090();
        let mut changed = parsed.clone();
        for number in 0..parsed.raid_disks {
            if !matches!(parsed.role(number), Ok(Role::Faulty)) {
                changed.set_role(number, parsed.role(number).unwrap());
            }
        }
        assert_eq!(changed, parsed, "{array}");
    }
    let mut parsed = area::one("raid5-4-v090", 0, "super090").super090();
    parsed.set_role(2, Role::Faulty);
    let counts = |old: &Super090| {
        [old.nr_disks, old.active_disks, old.working_disks, old.failed_disks, old.spare_disks]
    };
    assert_eq!(counts(&parsed), [4, 3, 3, 1, 0]);
    parsed.set_role(2, Role::Spare);
    assert_eq!(counts(&parsed), [4, 3, 4, 0, 1]);
    let again = Super090::parse(&parsed.encode(), Sectors(4096)).unwrap();
    assert_eq!(again.role(2), Ok(Role::Spare));
    assert_eq!(again, parsed);
    let other = parsed.of_member(3).unwrap();
    assert_eq!(other.own_role(), Ok(Role::Active(Slot(3))));
    assert_eq!(parsed.of_member(27), None);
    assert_eq!(other.of_member(0), Some(parsed));
}

fn lines(described: Vec<(String, String)>) -> Vec<String> {
    described.into_iter().map(|(name, value)| format!("{name:>16} : {value}")).collect()
}

/// The bitmap context according to the superblock of the same member.
fn context(area: &area::Area) -> BitmapContext {
    let superblock = area.superblock();
    let room = superblock.bitmap_room(area.member_size).unwrap().unwrap();
    assert_eq!(room.start, area.start);
    BitmapContext {
        uuid: superblock.bitmap_uuid(),
        events: superblock.events(),
        sync_size: match superblock.level() {
            Level::Raid10 => superblock.array_size().unwrap(),
            _ => superblock.size(),
        },
        room: room.len,
        origin: None,
    }
}

#[test]
fn every_bitmap_is_read_as_mdadm_does() {
    let areas = area::of_kind("bitmap");
    assert_eq!(areas.len(), 3 + 4 + 4 + 2 + 2 + 3 + 3);
    for area in areas {
        let name = format!("{}/{}", area.array, area.member);
        let context = context(&area);
        let bitmap = Bitmap::parse(&area.bytes, &context).unwrap();
        assert_eq!(bitmap.trust, Trust::Full, "{name}");
        assert_eq!(bitmap.warnings, Vec::<String>::new(), "{name}");
        assert!(bitmap.header.encode()[..] == area.bytes[..256], "{name}");
        let text = area.text("bitmap");
        let expected: Vec<String> = text.lines().skip(1).map(str::to_owned).collect();
        let mut described = lines(bitmap.describe());
        if area.superblock().version() == Version::V0_90 {
            // mdadm prints words, which are stored with the lowest byte first.
            let uuid = area.superblock().set_uuid();
            described[2] = format!("{:>16} : {uuid}", "UUID");
        }
        assert_eq!(described, expected, "{name}");
    }
}

#[test]
fn bits_are_where_writes_were() {
    let ranges = |array, member| -> Vec<(u64, u64)> {
        let area = area::one(array, member, "bitmap");
        let bitmap = Bitmap::parse(&area.bytes, &context(&area)).unwrap();
        bitmap.dirty_ranges().map(|range| (range.start.0, range.len.0)).collect()
    };
    // Two blocks of 4 KiB at 20 KiB, with a bit for each.
    assert_eq!(ranges("bitmap-raid10-active", 0), [(40, 16)]);
    // Two blocks of 4 KiB at 400 KiB: in stripe 3 of two chunks of 64 KiB. This kernel marks all 8
    // bits of a full stripe.
    assert_eq!(ranges("bitmap-degraded", 0), [(3 * 128, 128)]);
    assert_eq!(ranges("raid5-4-bitmap-stale", 0), [(0, 2048)]);
    assert_eq!(ranges("raid5-4-v11-bitmap", 0), []);
    // The bitmap of the member that left records no later write; only its event count is behind.
    let stale = area::one("raid5-4-bitmap-stale", 1, "bitmap");
    let bitmap = Bitmap::parse(&stale.bytes, &context(&stale)).unwrap();
    assert_eq!(bitmap.header.events, 2);
    let current = area::one("raid5-4-bitmap-stale", 0, "bitmap");
    let current = Bitmap::parse(&current.bytes, &context(&current)).unwrap();
    assert_eq!(current.header.events_cleared, 2);
}

#[test]
fn every_bad_block_log_is_read_as_mdadm_does_and_written_as_the_kernel_does() {
    type Ranges = &'static [(u64, u64)];
    let expected: [(&str, usize, Ranges); 5] = [
        ("badblocks", 0, &[]),
        ("badblocks", 1, &[(12, 2), (16, 8), (52, 8), (252, 600), (1952, 1)]),
        ("badblocks", 2, &[(452, 16)]),
        ("badblocks-v10", 0, &[(16, 8), (1024, 512)]),
        ("badblocks-v10", 1, &[]),
    ];
    for (array, member, ranges) in expected {
        let area = area::one(array, member, "bblog");
        let superblock = area.super1();
        let context = BadBlockContext {
            shift: superblock.bblog_shift,
            data_offset: superblock.data_offset,
            used_size: superblock.used_size(),
            member_size: area.member_size,
        };
        let place = area.superblock().badblocks_area();
        assert_eq!(place.is_some(), !ranges.is_empty(), "{array}/m{member}");
        let Some(place) = place else { continue };
        assert_eq!((place.start, place.len), (area.start, Sectors(8)));
        let found = BadBlocks::parse(&area.bytes, &context).unwrap();
        let said: Vec<_> = found.ranges().iter().map(|bad| (bad.start.0, bad.len.0)).collect();
        assert_eq!(said, ranges, "{array}/m{member}");
        assert_eq!(found.warnings, Vec::<String>::new());
        assert_eq!(found.encode(4096, &context).as_ref(), Ok(&area.bytes), "{array}/m{member}");
        let text = area.text("badblocks");
        let expected: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(BadBlocks::describe(&area.bytes, context.shift), expected);
    }
}

/// The newest log of a member, with its sector in the area.
fn newest_log(area: &area::Area) -> (Sectors, PplHeader) {
    let superblock = area.superblock();
    let place = superblock.ppl_area().unwrap();
    assert_eq!(place.start, area.start);
    let mut scan = PplScan::new(PplHeader::signature_of(superblock.bitmap_uuid()), place.len);
    while let Some(at) = scan.poll() {
        let start = usize::try_from(at.bytes().0).unwrap();
        scan.handle(area.bytes.get(start..start + 4096).unwrap_or(&[0; 4096]));
    }
    scan.newest().unwrap_or_else(|error| panic!("{}/{}: {error}", area.array, area.member))
}

#[test]
fn every_partial_parity_log_is_read_and_written_back() {
    for (array, count, newest) in [
        ("raid5-4-ppl", 4, [7, 5, 3, 1].as_slice()), // only the first log of each is kept
        ("ppl-active", 3, &[0, 4, 5]),
    ] {
        let areas: Vec<_> =
            area::of_kind("ppl").into_iter().filter(|area| area.array == array).collect();
        assert_eq!(areas.len(), count);
        for (area, newest) in areas.iter().zip(newest) {
            let (at, header) = newest_log(area);
            assert_eq!(header.generation, *newest, "{array}/{}", area.member);
            let log = &area.bytes[usize::try_from(at.bytes().0).unwrap()..];
            assert!(header.encode()[..] == log[..4096], "{array}/{}", area.member);
            for index in 0..header.entries.len() {
                let partial = header.partial(index).unwrap();
                let bytes = usize::try_from(partial.start.bytes().0).unwrap();
                assert_eq!(header.check_partial(index, &log[bytes..]), Ok(()));
            }
        }
    }
}

#[test]
fn the_parity_a_log_asks_for_is_the_one_the_kernel_wrote() {
    let area = area::one("ppl-active", 2, "ppl");
    let superblock = area.super1();
    let (at, header) = newest_log(&area);
    assert_eq!(at, Sectors(48));
    let context = PplContext {
        raid_disks: superblock.raid_disks,
        chunk: superblock.chunk,
        array_size: superblock.array_size().unwrap(),
        room: Sectors(2048) - at,
        owner: Slot(2),
    };
    // Left-symmetric layout on three members.
    let parity_slot = |stripe: u64| Slot(2 - u16::try_from(stripe % 3).unwrap());
    let found = header.recovery(&context, parity_slot).unwrap();
    let [PplRecompute { entry: 0, parity_slot: Slot(2), stripes, data, partial: Some(partial) }] =
        &found[..]
    else {
        panic!("{found:?}")
    };
    // 4 KiB of the second data chunk of stripe 0, which lies on member 1.
    assert_eq!((*stripes, &data[..]), (SectorRange::new(8, 8), &[SectorRange::new(136, 8)][..]));
    let start = usize::try_from((at + partial.start).bytes().0).unwrap();
    let partial = &area.bytes[start..start + 4096];
    let written = area::one("ppl-active", 1, "data");
    assert_eq!(written.start, superblock.data_offset + stripes.start);
    let parity: Vec<u8> = written.bytes.iter().zip(partial).map(|(a, b)| a ^ b).collect();
    assert!(parity == area::one("ppl-active", 2, "data").bytes);
}

#[test]
fn a_journal_of_the_kernel_is_live() {
    let area = area::one("raid5-4-journal", 4, "journal");
    let superblock = area.super1();
    assert_eq!(superblock.own_role(), Ok(Role::Journal));
    let tail = superblock.journal_tail().unwrap();
    assert_eq!(area.start, superblock.data_offset + tail);
    let mut scan = JournalScan::new(superblock.set_uuid, tail, superblock.data_size).unwrap();
    scan.handle(&area.bytes);
    // 16 blocks of data follow, and nothing behind them.
    assert_eq!(scan.poll(), Some(tail + Sectors(17 * 8)));
    scan.handle(&[0; 4096]);
    let Ok(JournalState::Live(blocks)) = scan.finish() else { panic!("the journal is not live") };
    let said = JournalState::Live(blocks.clone()).to_string();
    assert_eq!(said, "meta blocks to replay: 1, with 16 blocks of data and parity");
    let [block] = &blocks[..] else { panic!("{blocks:?}") };
    assert_eq!((block.seq, block.payloads.len()), (2_723_304_734, 16));
    let seed = journal_seed(superblock.set_uuid);
    assert!(block.encode(seed).unwrap()[..] == area.bytes[..4096]);
    let Payload::Data { flags: 0, sector: Sectors(28_736), checksums } = &block.payloads[0] else {
        panic!("{:?}", block.payloads[0])
    };
    assert_eq!(journal_block_checksum(seed, &area.bytes[4096..]), checksums[0]);
}
