//! Tests of the metadata of a member as a whole: as Linux wrote it, and longer than the part that
//! is read.

#[allow(dead_code, reason = "each test uses its part")]
mod area;

use area::Area;
use std::io;
use weft_ondisk::{
    BadBlockContext, BadBlocks, BitmapHeader, Features, JOURNAL_BLOCK_BYTES, JournalState, Level,
    Logs, MetaBlock, Metadata, MetadataError, NewArray, PPL_HEADER_BYTES, Role, Super1, Superblock,
    SuperblockError, Uuid, Version, journal_seed, read_superblock_blocks,
};
use weft_units::Sectors;

/// A member with only some areas that are not zero. It records the reads.
struct Member {
    size: Sectors,
    areas: Vec<(Sectors, Vec<u8>)>,
    reads: Vec<(u64, usize)>,
}

impl Member {
    fn read(&mut self, sector: Sectors, len: usize) -> Vec<u8> {
        self.reads.push((sector.0, len));
        let mut bytes = vec![0; len];
        let place = |sector: Sectors| usize::try_from(sector.bytes().0).unwrap();
        for (start, area) in &self.areas {
            for (at, byte) in (place(*start)..).zip(area) {
                if let Some(index) = at.checked_sub(place(sector))
                    && index < len
                {
                    bytes[index] = *byte;
                }
            }
        }
        bytes
    }

    fn metadata(&mut self) -> Result<Metadata, MetadataError> {
        Metadata::read(self.size, |sector, len| Ok(self.read(sector, len)))
    }
}

/// Each member of `fixtures/md-meta` with a stored superblock, and all stored areas of it.
fn members() -> Vec<(String, Vec<Area>)> {
    let mut members: Vec<(String, Vec<Area>)> = Vec::new();
    for area in area::all() {
        let name = format!("{}/{}", area.array, area.member);
        match members.iter_mut().find(|(known, _)| *known == name) {
            Some((_, areas)) => areas.push(area),
            None => members.push((name, vec![area])),
        }
    }
    members.retain(|(_, areas)| areas.iter().any(|area| area.kind.starts_with("super")));
    members
}

#[test]
fn what_linux_wrote_is_read_where_it_is() {
    let mut seen = [0_usize; 4];
    for (name, areas) in members() {
        let size = areas[0].member_size;
        let held = areas.iter().map(|area| (area.start, area.bytes.clone())).collect();
        let mut member = Member { size, areas: held, reads: Vec::new() };
        let Metadata { superblock, logs, .. } = member.metadata().unwrap();
        assert_eq!(superblock, areas[0].superblock(), "{name}");
        let has = |kind: &str| areas.iter().find(|area| area.kind == kind);

        if let Some(area) = has("bblog") {
            let new = superblock.as_v1().unwrap();
            let context = BadBlockContext {
                shift: new.bblog_shift,
                data_offset: new.data_offset,
                used_size: new.used_size(),
                member_size: size,
            };
            // Without the feature the superblock has a place for the log, and nothing is read from
            // it.
            let used = superblock.features().contains(Features::BADBLOCKS);
            let expected = used.then(|| Ok(BadBlocks::parse(&area.bytes, &context).unwrap()));
            assert_eq!(logs.bad_blocks, expected, "{name}");
            seen[0] += usize::from(used);
        }
        if let Some(area) = has("bitmap") {
            let bitmap = logs.bitmap.as_ref().unwrap().as_ref().unwrap();
            assert_eq!(bitmap.header, BitmapHeader::decode(&area.bytes).unwrap(), "{name}");
            seen[1] += 1;
        } else {
            assert_eq!(logs.bitmap.is_some(), superblock.features().contains(Features::BITMAP));
        }
        if has("ppl").is_some() {
            assert!(logs.ppl.as_ref().unwrap().is_ok(), "{name}");
            seen[2] += 1;
        } else {
            assert_eq!(logs.ppl, None, "{name}");
        }
        if has("journal").is_some() {
            // The second block is data: the journal ends there.
            assert!(matches!(logs.journal, Some(Ok(JournalState::Live(_)))), "{name}");
            seen[3] += 1;
        } else {
            assert_eq!(logs.journal, None, "{name}");
        }
    }
    assert_eq!(seen, [3, 21, 7, 1]);
}

const SIZE: Sectors = Sectors(1 << 22);

/// The first superblock of a new RAID5 of large members.
fn new(change: impl FnOnce(&mut Super1)) -> Superblock {
    let array = NewArray::in_sync(Level::Raid5, 4, SIZE);
    let mut superblock = array.plan().unwrap().swap_remove(0);
    change(&mut superblock);
    superblock.into()
}

/// The logs of a member with these areas, and the reads made.
fn logs(superblock: &Superblock, areas: Vec<(Sectors, Vec<u8>)>) -> (Logs, Vec<(u64, usize)>) {
    let mut member = Member { size: SIZE, areas, reads: Vec::new() };
    let logs = Logs::read(superblock, SIZE, |sector, len| Ok(member.read(sector, len))).unwrap();
    (logs, member.reads)
}

#[test]
fn a_superblock_is_looked_for_at_every_place_that_the_member_has() {
    let size = Sectors(65_543);
    let mut member = Member { size, areas: Vec::new(), reads: Vec::new() };
    let blocks = read_superblock_blocks(size, |sector, len| Ok(member.read(sector, len)));
    let versions: Vec<Version> = blocks.read.iter().map(|(version, _)| *version).collect();
    assert_eq!(versions, Version::ALL);
    assert_eq!(member.reads, [(65_520, 4096), (0, 4096), (8, 4096), (65_408, 4096)]);
    // A member too small for 0.90 has three places, and a still smaller member has none.
    let places = |size| read_superblock_blocks(Sectors(size), |_, len| Ok(vec![0; len])).read.len();
    assert_eq!((places(65_543), places(127), places(24), places(23)), (4, 3, 3, 0));
}

// Regression: one bad sector at any of the four places made the whole member unusable.
#[test]
fn a_place_that_cannot_be_read_costs_the_member_only_if_its_superblock_is_there() {
    let mut used = 0;
    for at in Version::ALL {
        let superblock = new(|_| {});
        let bytes = superblock.as_v1().expect("a new superblock is version 1").encode();
        let place = superblock.version().position(SIZE).unwrap();
        let mut member =
            Member { size: SIZE, areas: vec![(place, bytes.to_vec())], reads: Vec::new() };
        let bad = at.position(SIZE).unwrap();
        let found = Metadata::read(SIZE, |sector, len| match sector == bad {
            true => Err(io::Error::other("medium error")),
            false => Ok(member.read(sector, len)),
        });
        if at == superblock.version() {
            let error = found.unwrap_err().to_string();
            let expected = format!("superblock at sector {}: medium error; leave", bad.0);
            assert!(error.starts_with(&expected), "{error}");
            continue;
        }
        let metadata = found.unwrap();
        assert_eq!(metadata.superblock, superblock);
        let expected = format!("superblock of version {at} at sector {}: medium error", bad.0);
        assert_eq!(metadata.unreadable, [expected]);
        used += 1;
    }
    assert_eq!(used, 3);
}

#[test]
fn a_member_that_is_too_small_or_does_not_answer_says_so() {
    for (size, small) in [(23, true), (24, false)] {
        let found = Metadata::read(Sectors(size), |_, len| Ok(vec![0; len]));
        let Err(MetadataError::Superblock(error)) = found else { panic!("{found:?}") };
        assert_eq!(matches!(error, SuperblockError::TooSmall { .. }), small, "{error}");
        assert_eq!(matches!(error, SuperblockError::Absent { .. }), !small, "{error}");
    }
    let bad = |_, _| Err(io::Error::other("it is gone"));
    let error = Metadata::read(Sectors(4096), bad).unwrap_err().to_string();
    assert_eq!(error, "superblock at sector 4080: it is gone; leave the member out");
    let superblock = new(|superblock| {
        superblock.feature_map.insert(Features::BADBLOCKS);
        (superblock.bblog_offset, superblock.bblog_size) = (16, 8);
    });
    let error = Logs::read(&superblock, SIZE, bad).unwrap_err().to_string();
    assert_eq!(error, "bad-block log at sector 24: it is gone; leave the member out");
}

#[test]
fn a_superblock_that_points_to_nothing_costs_no_read() {
    assert_eq!(logs(&new(|_| {}), Vec::new()), (Logs::default(), vec![]));
}

#[test]
fn a_bad_block_log_is_read_as_long_as_it_says_up_to_a_limit() {
    for (sectors, len) in [(8, 4096), (2048, 1 << 20), (2056, 1 << 20)] {
        let superblock = new(|superblock| {
            superblock.feature_map.insert(Features::BADBLOCKS);
            (superblock.bblog_offset, superblock.bblog_size) = (16, sectors);
        });
        let (logs, reads) = logs(&superblock, vec![(Sectors(24), vec![0xff; len])]);
        assert_eq!(logs.bad_blocks, Some(Ok(BadBlocks::default())));
        assert_eq!(reads, [(24, len)]);
    }
}

#[test]
fn of_a_bitmap_as_much_is_read_as_has_bits() {
    // Sectors to the next area, bytes of a chunk, sectors of data, and the reads: first 4096 bytes,
    // then everything that the header announces, in blocks, if there is room for it, up to a limit.
    for (room, chunksize, size, reads) in [
        (0, 1 << 22, 1 << 21, &[(16, 4096)][..]),
        (0, 1 << 15, (4096 - 256) * 8 * 64, &[(16, 4096)]),
        (0, 1 << 15, (4096 - 256) * 8 * 64 + 1, &[(16, 4096), (16, 8192)]),
        (0, 1 << 9, 1 << 21, &[(16, 4096), (16, 266_240)]),
        (0, 1 << 9, 1 << 24, &[(16, 4096), (16, 1 << 20)]),
        (24, 1 << 9, 1 << 21, &[(16, 4096), (16, 12_288)]),
        (8, 1 << 9, 1 << 21, &[(16, 4096)]),
        (0, 300, 1 << 21, &[(16, 4096)]),
    ] {
        let superblock = new(|superblock| {
            superblock.feature_map.insert(Features::BITMAP);
            superblock.bitmap_offset_raw = 8i32.to_le_bytes();
            superblock.size = Sectors(size);
            // The next area is the bad-block log, if there is one.
            let log = if room > 0 { (8 + room, 8) } else { (0, 0) };
            (superblock.bblog_offset, superblock.bblog_size) = log;
        });
        let header = BitmapHeader {
            version: 4,
            uuid: superblock.bitmap_uuid(),
            events: superblock.events(),
            events_cleared: 0,
            sync_size: superblock.size(),
            state: 0,
            chunksize,
            daemon_sleep: 5,
            write_behind: 0,
            sectors_reserved: 0,
            nodes: 0,
            cluster_name: [0; 64],
        };
        let (logs, found) = logs(&superblock, vec![(Sectors(16), header.encode().to_vec())]);
        assert_eq!(found, reads, "chunks of {chunksize} bytes");
        assert_eq!(logs.bitmap.unwrap().is_ok(), room == 0 && chunksize != 300);
    }
    // An impossible place is reported and not read.
    let nowhere = new(|superblock| superblock.feature_map.insert(Features::BITMAP));
    let (found, reads) = logs(&nowhere, Vec::new());
    assert!(found.bitmap.unwrap().unwrap_err().contains("bitmap_offset at byte 96"));
    assert_eq!(reads, []);
}

#[test]
fn a_partial_parity_log_is_read_from_where_the_superblock_says() {
    let superblock = new(|superblock| {
        superblock.feature_map.insert(Features::PPL);
        superblock.bitmap_offset_raw = [8, 0, 16, 0];
    });
    let (logs, reads) = logs(&superblock, Vec::new());
    assert!(logs.ppl.unwrap().is_err(), "zeros are no log");
    assert_eq!(reads, [(16, PPL_HEADER_BYTES)]);
}

#[test]
fn a_journal_is_read_from_its_tail_until_it_ends_or_is_long_enough() {
    let seed = journal_seed(Uuid([9; 16]));
    let superblock = new(|superblock| {
        superblock.set_role(0, Role::Journal);
        superblock.feature_map.insert(Features::JOURNAL);
        superblock.recovery_offset_raw = 80;
    });
    let data_offset = superblock.data_offset().0;
    for (blocks, read) in [(0, 1), (1, 2), (7, 8), (4095, 4096), (4096, 4096), (5000, 4096)] {
        let mut reads = Vec::new();
        let logs = Logs::read(&superblock, SIZE, |sector, len| {
            reads.push(sector.0);
            assert_eq!(len, JOURNAL_BLOCK_BYTES);
            let position = sector.0 - data_offset;
            let number = (position - 80) / 8;
            let block = MetaBlock::empty(100 + number, Sectors(position)).encode(seed).unwrap();
            Ok(if number < blocks { block.to_vec() } else { vec![0; len] })
        });
        let places: Vec<u64> = (0..read).map(|number| data_offset + 80 + 8 * number).collect();
        assert_eq!(reads, places, "{blocks} blocks");
        match logs.unwrap().journal.unwrap() {
            Err(error) => assert!(blocks == 0 && error.starts_with("journal magic"), "{error}"),
            Ok(JournalState::Empty) => assert_eq!(blocks, 1),
            // An empty block at the tail is not counted.
            Ok(JournalState::Live(live)) => assert_eq!(live.len() as u64, read.min(blocks) - 1),
        }
    }
}
