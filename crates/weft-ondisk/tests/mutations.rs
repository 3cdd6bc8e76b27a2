//! Tests of parsers against random damage (F17): real metadata with random bytes changed, 20,000
//! times for each format.
//!
//! Half of the time the checksum is corrected afterwards, so that every check is reached. Metadata
//! that is still accepted is used in calculations and written back. The seed is fixed, so that a
//! failure can be repeated. `WEFT_FUZZ_SEED=n` sets another seed, as `cargo xtask long fuzz` does.

#[allow(dead_code, reason = "each test uses its part")]
mod area;
#[allow(dead_code, reason = "each test uses its part")]
mod fixture;

use weft_ondisk::{
    BadBlockContext, BadBlocks, Bitmap, BitmapContext, BitmapHeader, ByteOrder, JournalScan,
    MetaBlock, PplContext, PplHeader, PplScan, Super1, Super090, Superblock, Version, crc,
    csum_090, csum_v1, journal_seed, raw_entries,
};
use weft_testing::fuzz;
use weft_units::rng::{Rng, mix};
use weft_units::{SectorRange, Sectors, Slot};

const MUTATIONS: usize = 20_000;

struct Random(Rng);

impl Random {
    /// The random stream of one test.
    fn of(test: u64) -> Self {
        Self(Rng::at(mix(fuzz::seed()) ^ mix(0) ^ test))
    }

    fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    fn below(&mut self, end: usize) -> usize {
        self.0.index(end)
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// A number at the limit of the range of some field, or any number.
    fn number(&mut self) -> u64 {
        const EDGES: [u64; 24] = [
            0,
            1,
            2,
            3,
            4,
            5,
            6,
            7,
            8,
            16,
            27,
            90,
            91,
            128,
            148,
            512,
            1920,
            4096,
            65536,
            1 << 31,
            u32::MAX as u64,
            1 << 40,
            u64::MAX - 1,
            u64::MAX,
        ];
        match self.below(4) {
            0 => self.next(),
            1 => 1 << self.below(64),
            _ => *self.pick(&EDGES),
        }
    }

    /// Changes up to four numbers within the byte ranges `hot`.
    fn mutate(&mut self, bytes: &mut [u8], hot: &[std::ops::Range<usize>]) {
        for _ in 0..=self.below(4) {
            let hot = self.pick(hot).clone();
            let len = *self.pick(&[1, 2, 4, 8]);
            let at = (hot.start + self.below(hot.len())) / len * len;
            let value = self.number().to_le_bytes();
            match bytes.get_mut(at..at + len) {
                Some(place) if self.below(3) > 0 => place.copy_from_slice(&value[..len]),
                Some(place) => place[0] ^= 1 << self.below(8),
                None => {}
            }
        }
    }

    fn toss(&mut self) -> bool {
        self.below(2) == 0
    }
}

fn said(error: &impl std::fmt::Display) {
    let message = error.to_string();
    assert!(!message.is_empty() && message.len() < 500, "{message}");
}

/// Calls every query of a superblock.
fn ask(superblock: &Superblock, member_size: Sectors) {
    for (name, value) in superblock.describe(member_size) {
        assert!(!name.is_empty() && value.is_ascii());
    }
    assert!(superblock.describe_disks().len() < 40);
    let _ = (superblock.warnings(), superblock.refuses_writing(), superblock.dirty_from());
    let _ = (superblock.name(), superblock.ctime(), superblock.utime(), superblock.identity());
    let _ = (superblock.array_size(), superblock.used_size(), superblock.layout());
    let _ = (superblock.badblocks_area(), superblock.ppl_area(), superblock.recovery_offset());
    for number in [0, 26, 27, 1919, u32::MAX] {
        if let Err(error) = superblock.role(number) {
            said(&error);
        }
    }
    match superblock.bitmap_room(member_size) {
        Ok(Some(room)) => assert!(room.start.0 + room.len.0 <= member_size.0),
        Ok(None) => {}
        Err(error) => said(&error),
    }
    if let Err(error) = superblock.validate(member_size) {
        said(&error);
    }
}

#[test]
fn version_1_superblocks() {
    let mut random = Random::of(1);
    let fixtures = fixture::all();
    let mut believed = 0;
    for _ in 0..MUTATIONS {
        let fixture = random.pick(&fixtures);
        let mut block = fixture.block;
        random.mutate(&mut block, &[0..256, 64..160, 256..272]);
        if random.below(8) > 0
            && let Some(sum) = csum_v1(&block)
        {
            block[216..220].copy_from_slice(&sum.to_le_bytes());
        }
        let size = if random.below(8) > 0 { fixture.member_size } else { Sectors(random.number()) };
        match Super1::decode(&block, fixture.minor) {
            Ok(decoded) => {
                let mut again = block;
                decoded.encode_into(&mut again);
                assert!(again == block);
                ask(&decoded.into(), size);
            }
            Err(error) => said(&error),
        }
        if let Ok(parsed) = Super1::parse(&block, fixture.minor, size) {
            believed += 1;
            assert!(parsed.data_offset.0 + parsed.used_size().0 <= size.0);
            assert_eq!(parsed.level.uses_size(), parsed.array_size().is_some());
            assert!(parsed.own_role().is_ok());
        }
    }
    assert!(believed > MUTATIONS / 10, "{believed}");
}

#[test]
fn version_0_90_superblocks() {
    let mut random = Random::of(2);
    let areas = area::of_kind("super090");
    let mut believed = 0;
    for _ in 0..MUTATIONS {
        let area = random.pick(&areas);
        let mut block = area.bytes.clone();
        let order = if random.toss() {
            ByteOrder::Little
        } else {
            block.chunks_exact_mut(4).for_each(<[u8]>::reverse);
            ByteOrder::Big
        };
        random.mutate(&mut block, &[0..64, 128..200, 256..272, 512..1100, 3968..3988]);
        if random.below(8) > 0 {
            let sum = csum_090(&block, order).unwrap();
            let big = order == ByteOrder::Big;
            let sum = if big { sum.to_be_bytes() } else { sum.to_le_bytes() };
            block[152..156].copy_from_slice(&sum);
        }
        let size = if random.below(8) > 0 { area.member_size } else { Sectors(random.number()) };
        match Super090::decode(&block, size) {
            Ok(decoded) => {
                let mut again: [u8; 4096] = block.clone().try_into().unwrap();
                decoded.encode_into(&mut again);
                // A stored sum that is right only when folded to 16 bits is replaced by the exact
                // sum.
                let exact = again[152..156] == block[152..156];
                assert!(again[..152] == block[..152] && again[156..] == block[156..]);
                assert!(exact || Super090::decode(&again, size).as_ref() == Ok(&decoded));
                ask(&decoded.into(), size);
            }
            Err(error) => said(&error),
        }
        if let Ok(parsed) = Super090::parse(&block, size) {
            believed += 1;
            assert!(parsed.used_size() <= parsed.super_offset && parsed.super_offset < size);
            assert_eq!(parsed.level.uses_size(), parsed.array_size().is_some());
            let mut changed = parsed.clone();
            changed.set_role(parsed.this_disk.number, parsed.own_role().unwrap());
            changed.set_resync_offset(parsed.resync_offset());
            assert!(Super090::parse(&changed.encode(), size).is_ok());
        }
    }
    assert!(believed > MUTATIONS / 10, "{believed}");
}

#[test]
fn candidates_of_one_member() {
    let mut random = Random::of(3);
    let (fixtures, areas) = (fixture::all(), area::of_kind("super090"));
    for _ in 0..MUTATIONS {
        let mut blocks: Vec<(Version, Vec<u8>)> = Vec::new();
        let fixture = random.pick(&fixtures);
        blocks.push((fixture.minor.into(), fixture.block.to_vec()));
        blocks.push((Version::V0_90, random.pick(&areas).bytes.clone()));
        for (_, block) in &mut blocks {
            if random.toss() {
                random.mutate(block, &[0..256, 64..160]);
            }
        }
        let blocks: Vec<(Version, &[u8])> =
            blocks.iter().map(|(version, block)| (*version, &block[..])).collect();
        match Superblock::find(&blocks, fixture.member_size) {
            Ok(found) => ask(&found, fixture.member_size),
            Err(error) => said(&error),
        }
    }
}

#[test]
fn bitmaps() {
    let mut random = Random::of(4);
    let areas = area::of_kind("bitmap");
    let contexts: Vec<BitmapContext> = areas
        .iter()
        .map(|area| {
            let superblock = area.superblock();
            BitmapContext {
                uuid: superblock.bitmap_uuid(),
                events: superblock.events(),
                sync_size: superblock.size(),
                room: superblock.bitmap_room(area.member_size).unwrap().unwrap().len,
                origin: Some(ByteOrder::Little),
            }
        })
        .collect();
    let mut believed = 0;
    for _ in 0..MUTATIONS {
        let index = random.below(areas.len());
        let (mut bytes, mut context) = (areas[index].bytes.clone(), contexts[index]);
        random.mutate(&mut bytes, &[4..8, 24..72, 256..270, 1024..1040]);
        if random.below(4) == 0 {
            bytes.truncate(random.below(4097));
        }
        if random.below(4) == 0 {
            context.room = Sectors(random.number());
            context.sync_size = Sectors(random.number());
        }
        if let Ok(header) = BitmapHeader::decode(&bytes) {
            assert!(header.encode()[..136] == bytes[..136]);
            let _ = (header.describe(), header.area(context.sync_size));
        }
        match Bitmap::parse(&bytes, &context) {
            Ok(bitmap) => {
                believed += 1;
                let _ = (bitmap.describe(), bitmap.trust.to_string());
                let mut end = 0;
                for range in bitmap.dirty_ranges() {
                    assert!(range.len.0 > 0 && (range.start.0 > end || end == 0));
                    end = range.end().0;
                    assert!(end <= context.sync_size.0);
                }
                let from = random.toss().then(|| Sectors(random.number()));
                let all: u64 = bitmap.dirty_ranges().map(|range| range.len.0).sum();
                let some = bitmap.resync_ranges(random.toss(), random.number(), from);
                assert!(some.map(|range| range.len.0).sum::<u64>() <= all);
            }
            Err(error) => said(&error),
        }
    }
    assert!(believed > MUTATIONS / 10, "{believed}");
}

#[test]
fn bad_block_logs() {
    let mut random = Random::of(5);
    let areas: Vec<_> =
        area::of_kind("bblog").into_iter().map(|area| (area.super1(), area)).collect();
    let mut believed = 0;
    for _ in 0..MUTATIONS {
        let (superblock, area) = random.pick(&areas);
        let mut bytes = area.bytes.clone();
        random.mutate(&mut bytes, &[0..64, 0..4096]);
        let odd = random.below(4) == 0;
        let context = BadBlockContext {
            shift: if odd { u8::try_from(random.below(256)).unwrap() } else { 0 },
            data_offset: superblock.data_offset,
            used_size: if odd { Sectors(random.number()) } else { superblock.used_size() },
            member_size: if random.toss() { area.member_size } else { Sectors(1 << 54) },
        };
        let _ = (BadBlocks::describe(&bytes, context.shift), raw_entries(&bytes).count());
        match BadBlocks::parse(&bytes, &context) {
            Ok(found) => {
                believed += 1;
                let used = context.used_size.0;
                let mut end = None;
                for range in found.ranges() {
                    assert!(range.len.0 > 0 && end.is_none_or(|end| range.start.0 > end));
                    end = Some(range.end().0);
                    assert!(range.end().0 <= used);
                }
                if let Ok(bytes) = found.encode(4096, &context) {
                    let again = BadBlocks::parse(&bytes, &context).unwrap();
                    assert_eq!(again.ranges(), found.ranges());
                }
                let mut changed = found.clone();
                let range = SectorRange::new(random.next() >> 30, random.next() >> 40);
                changed.insert(range);
                assert!(range.len.0 == 0 || changed.first_in(range) == Some(range));
                changed.remove(range);
                assert!(range.len.0 == 0 || changed.first_in(range).is_none());
            }
            Err(error) => said(&error),
        }
    }
    assert!(believed > MUTATIONS / 10, "{believed}");
}

#[test]
fn partial_parity_logs() {
    let mut random = Random::of(6);
    let areas = area::of_kind("ppl");
    let signatures: Vec<u32> =
        areas.iter().map(|area| PplHeader::signature_of(area.superblock().set_uuid())).collect();
    let mut believed = 0;
    for _ in 0..MUTATIONS {
        let index = random.below(areas.len());
        let mut bytes = areas[index].bytes.clone();
        random.mutate(&mut bytes, &[512..608, 536..584]);
        if random.below(8) > 0 {
            bytes[532..536].fill(0);
            let sum = crc::crc32c(&bytes[..4096]);
            bytes[532..536].copy_from_slice(&sum.to_le_bytes());
        }
        if let Err(error) = PplHeader::parse(&bytes, signatures[index]) {
            said(&error);
        }
        let mut scan = PplScan::new(signatures[index], Sectors(2048));
        while let Some(at) = scan.poll() {
            let start = usize::try_from(at.bytes().0).unwrap();
            scan.handle(bytes.get(start..).unwrap_or(&[]));
        }
        let Ok((at, header)) = scan.newest() else { continue };
        let members = u32::try_from(3 + random.below(3)).unwrap();
        let context = PplContext {
            raid_disks: members,
            chunk: Sectors(1 << (3 + random.below(6))),
            array_size: Sectors(if random.toss() { 24_576 } else { random.number() }),
            room: Sectors(2048) - at,
            owner: Slot(u16::try_from(random.below(4)).unwrap()),
        };
        for entry in 0..header.entries.len() + 1 {
            if let Err(error) = header.check_partial(entry, &bytes) {
                said(&error);
            }
        }
        // The layout always agrees with the log, so that the later checks are reached.
        match header.recovery(&context, |_| context.owner) {
            Ok(found) => {
                believed += 1;
                for part in found {
                    assert!(part.stripes.len.0 > 0 && part.stripes.len <= context.chunk);
                    assert!(!part.data.is_empty() && part.data.len() < members as usize);
                    for read in part.data.iter().chain(&part.partial) {
                        assert_eq!(read.len, part.stripes.len);
                    }
                    assert!(part.data.iter().all(|read| read.end() <= context.array_size));
                    assert!(part.partial.is_none_or(|read| read.end() <= context.room));
                }
            }
            Err(error) => said(&error),
        }
    }
    assert!(believed > MUTATIONS / 20, "{believed}");
}

#[test]
fn journals() {
    let mut random = Random::of(7);
    let area = area::one("raid5-4-journal", 4, "journal");
    let superblock = area.super1();
    let (uuid, tail) = (superblock.set_uuid, superblock.journal_tail().unwrap());
    let seed = journal_seed(uuid);
    let mut believed = 0;
    for _ in 0..MUTATIONS {
        let mut bytes = area.bytes[..4096].to_vec();
        random.mutate(&mut bytes, &[0..32, 12..16, 32..392]);
        if random.below(8) > 0 {
            bytes[4..8].fill(0);
            let sum = crc::crc32c_raw(seed, &bytes);
            bytes[4..8].copy_from_slice(&sum.to_le_bytes());
        }
        match MetaBlock::parse(&bytes, seed, tail) {
            Ok(block) => {
                believed += 1;
                // Bytes past `meta_size` and padding are not kept.
                let again = block.encode(seed).unwrap();
                assert_eq!(MetaBlock::parse(&again, seed, tail), Ok(block));
            }
            Err(error) => said(&error),
        }
        let size = if random.toss() { superblock.data_size } else { Sectors(random.number()) };
        let Ok(mut scan) = JournalScan::new(uuid, tail, size) else { continue };
        let mut steps = 0;
        while scan.poll().is_some() {
            scan.handle(&bytes);
            steps += 1;
            assert!(steps < 10);
        }
        if let Err(error) = scan.finish() {
            said(&error);
        }
    }
    assert!(believed > MUTATIONS / 20, "{believed}");
}
