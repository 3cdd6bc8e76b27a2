//! Tests of all 70 kinds of broken metadata in the reference (spec/md-ondisk.md §11).
//!
//! Rows that the bytes of one member decide are checked. The other rows are listed by name.

#[allow(dead_code, reason = "each test uses its part")]
mod area;
#[allow(dead_code, reason = "each test uses its part")]
mod fixture;

use std::collections::BTreeSet;
use std::fmt::Display;
use weft_ondisk::{
    BadBlockContext, BadBlocks, Bitmap, BitmapContext, BitmapHeader, ByteOrder, JournalScan, Level,
    MetaBlock, Minor, Payload, PplContext, PplEntry, PplHeader, PplScan, SUPER_BYTES, Super1,
    Super090, Superblock, SuperblockError, Uuid, Version, csum_090, csum_v1, journal_seed,
};
use weft_units::{Sectors, Slot};

/// Rows that one member alone cannot decide, each with its condition.
const SET_LEVEL: [(u8, &str); 14] = [
    (27, "RAID0 with several zones and no layout: the other members' sizes say how many zones"),
    (33, "two members with the same slot and events"),
    (34, "two members with the same number or device uuid"),
    (35, "members of two arrays"),
    (36, "level, layout, chunk, size, raid_disks or ctime differ within one array"),
    (37, "versions differ within one array"),
    (38, "events behind by 2 or more"),
    (39, "events behind by 1, and faulty for the freshest"),
    (40, "members that list each other as missing"),
    (41, "array features differ at the same events"),
    (42, "bitmaps of members differ"),
    (59, "journal feature and journal members do not go together"),
    (69, "a member listed twice"),
    (70, "a read that fails: nothing here reads, a short block is named in row 1"),
];

/// Outcome of a check as text: an error, a warning, or `accepted`.
trait Said {
    fn said(self) -> String;
}

impl<T, E: Display> Said for Result<T, E> {
    fn said(self) -> String {
        self.map_or_else(|error| error.to_string(), |_| "accepted".to_owned())
    }
}

impl Said for Vec<String> {
    fn said(self) -> String {
        self.join("; also ")
    }
}

#[derive(Default)]
struct Table {
    rows: BTreeSet<u8>,
    cases: usize,
    /// All cases with an unexpected outcome.
    wrong: String,
}

impl Table {
    /// Checks what edits of a version 1 superblock of RAID5 are answered.
    fn raid5(&mut self, cases: &[Case<'_>]) {
        self.super1(RAID5, 0, cases);
    }

    /// Checks what edits of a version 1 superblock of this array's member are answered.
    fn super1(&mut self, array: &str, member: usize, cases: &[Case<'_>]) {
        for (row, edits, expected) in cases {
            let found = edited(array, member, edits);
            if let Err(error) = &found {
                let (message, at) = (error.to_string(), error.at().unwrap());
                let start = format!("superblock {} at byte {}: found ", at.field, at.byte);
                assert!(message.starts_with(&start) && message.contains("; "), "{message}");
            }
            let superblock = if *expected == ACCEPTED { "" } else { "superblock " };
            let what = format!("{array} {member} {edits:?}");
            self.row(*row, &what, found, &format!("{superblock}{expected}"));
        }
    }

    /// Checks that the outcome of case `what` of a row begins with `expected`.
    fn row(&mut self, row: u8, what: &str, found: impl Said, expected: &str) {
        let said = found.said();
        let named = said.contains(": found ") && said.contains(", expected ");
        let whole = said == "accepted" || said.starts_with("no md superblock");
        let style = (named || whole) && !said.ends_with('.') && said.len() < 400;
        if !said.starts_with(expected) || !style {
            self.wrong.push_str(&format!("row {row}, {what}:\n  {said}\n  {expected}\n"));
        }
        self.rows.insert(row);
        self.cases += 1;
    }
}

const ACCEPTED: &str = "accepted";
const RAID5: &str = "raid5-4x64k-ls";

/// Byte offset in a structure and the bytes to write there.
type Edit = (usize, Vec<u8>);

/// Row of the reference, edits of a superblock, and the beginning of what they are answered, which
/// is [`ACCEPTED`] or an error behind the word `superblock`.
type Case<'a> = (u8, &'a [Edit], &'a str);

fn w8(byte: usize, value: u8) -> Edit {
    (byte, vec![value])
}

fn w16(byte: usize, value: u16) -> Edit {
    (byte, value.to_le_bytes().to_vec())
}

fn w32(byte: usize, value: u32) -> Edit {
    (byte, value.to_le_bytes().to_vec())
}

fn i32(byte: usize, value: i32) -> Edit {
    w32(byte, value.cast_unsigned())
}

/// The role of the member with this number.
fn role(number: usize, code: u16) -> Edit {
    w16(256 + 2 * number, code)
}

fn w64(byte: usize, value: u64) -> Edit {
    (byte, value.to_le_bytes().to_vec())
}

fn edit(bytes: &mut [u8], edits: &[Edit]) {
    for (byte, value) in edits {
        bytes[*byte..byte + value.len()].copy_from_slice(value);
    }
}

/// A version 1 superblock of this array's member with fields changed and the checksum corrected.
fn edited(array: &str, member: usize, edits: &[Edit]) -> Result<Super1, SuperblockError> {
    let fixture = fixture::member(array, member);
    let mut block = fixture.block;
    edit(&mut block, edits);
    if let Some(sum) = csum_v1(&block) {
        edit(&mut block, &[w32(216, sum)]);
    }
    Super1::parse(&block, fixture.minor, fixture.member_size)
}

fn new(array: &str, edits: &[Edit]) -> Result<Super1, SuperblockError> {
    edited(array, 0, edits)
}

fn raid5(edits: &[Edit]) -> Result<Super1, SuperblockError> {
    new(RAID5, edits)
}

/// A 0.90 superblock with fields changed and the checksum corrected.
fn old(edits: &[Edit]) -> Result<Super090, SuperblockError> {
    let area = area::one("raid5-4-v090", 0, "super090");
    let mut block = area.bytes.clone();
    edit(&mut block, edits);
    let sum = csum_090(&block, ByteOrder::Little).unwrap();
    edit(&mut block, &[w32(152, sum)]);
    Super090::parse(&block, area.member_size)
}

/// The bitmap of a member with bytes changed, parsed in a context that may be changed too.
fn bitmap(
    edits: &[Edit],
    change: impl Fn(&mut BitmapContext),
) -> Result<Bitmap, weft_ondisk::LogError> {
    let area = area::one("raid5-4-v11-bitmap", 0, "bitmap");
    let superblock = area.superblock();
    let mut context = BitmapContext {
        uuid: superblock.bitmap_uuid(),
        events: superblock.events(),
        sync_size: superblock.size(),
        room: superblock.bitmap_room(area.member_size).unwrap().unwrap().len,
        origin: None,
    };
    change(&mut context);
    let mut bytes = area.bytes.clone();
    edit(&mut bytes, edits);
    Bitmap::parse(&bytes, &context)
}

/// Checks the place of the bitmap for a given `bitmap_offset`.
fn bitmap_place(array: &str, offset: i32) -> Result<(), SuperblockError> {
    let size = fixture::member(array, 0).member_size;
    let parsed = new(array, &[w32(96, offset.cast_unsigned())])?;
    parsed.bitmap_room(size).map(|_| ())
}

fn bad_blocks(edits: &[Edit]) -> Result<BadBlocks, weft_ondisk::LogError> {
    let area = area::one("badblocks", 1, "bblog");
    let superblock = area.super1();
    let context = BadBlockContext {
        shift: superblock.bblog_shift,
        data_offset: superblock.data_offset,
        used_size: superblock.used_size(),
        member_size: area.member_size,
    };
    let mut bytes = area.bytes.clone();
    edit(&mut bytes, edits);
    BadBlocks::parse(&bytes, &context)
}

/// The newest log of a member with bytes changed.
fn ppl(edits: &[Edit]) -> Result<(Sectors, PplHeader), weft_ondisk::LogError> {
    let area = area::one("raid5-4-ppl", 0, "ppl");
    let mut bytes = area.bytes.clone();
    edit(&mut bytes, edits);
    let signature = PplHeader::signature_of(area.superblock().set_uuid());
    let mut scan = PplScan::new(signature, Sectors(8));
    scan.handle(&bytes);
    scan.newest()
}

/// Result of the recovery of one entry in the log of slot 3, on four members with chunks of 64 KiB.
fn ppl_entry(
    data_sector: u64,
    pp_size: u32,
    data_size: u32,
    parity_disk: u32,
) -> Result<usize, weft_ondisk::LogError> {
    let entry = PplEntry {
        data_sector: Sectors(data_sector),
        pp_size,
        data_size,
        parity_disk,
        checksum: 0,
    };
    let header = PplHeader { signature: 1, generation: 1, entries: vec![entry] };
    let context = PplContext {
        raid_disks: 4,
        chunk: Sectors(128),
        array_size: Sectors(3 * 4096),
        room: Sectors(2048),
        owner: Slot(3),
    };
    let slot = |row: u64| Slot(3 - u16::try_from(row % 4).unwrap());
    header.recovery(&context, slot).map(|found| found.len())
}

/// A meta block of a ring of 64 sectors with 4 bytes changed and the checksum corrected.
fn journal(edits: &[Edit], payload: Payload) -> Result<weft_ondisk::JournalState, impl Display> {
    let uuid = Uuid([7; 16]);
    let seed = journal_seed(uuid);
    let block = MetaBlock { seq: 1, position: Sectors(8), payloads: vec![payload] };
    let mut bytes = block.encode(seed).unwrap();
    edit(&mut bytes, edits);
    let mut summed = bytes;
    summed[4..8].fill(0);
    let sum = weft_ondisk::crc::crc32c_raw(seed, &summed);
    edit(&mut bytes, &[w32(4, sum)]);
    let mut scan = JournalScan::new(uuid, Sectors(8), Sectors(64)).unwrap();
    scan.handle(&bytes);
    while scan.poll().is_some() {
        scan.handle(&[0; 4096]);
    }
    scan.finish()
}

fn data(blocks: usize) -> Payload {
    Payload::Data { flags: 0, sector: Sectors(0), checksums: vec![0; blocks] }
}

/// The superblock found in these blocks of a member of `size` sectors.
fn find(blocks: &[(Version, &[u8])], size: u64) -> Result<Superblock, SuperblockError> {
    Superblock::find(blocks, Sectors(size))
}

/// Edits of a reshape of RAID5 from 3 members to 4, 6 full stripes of 3 chunks done, and these
/// edits.
fn reshape(changes: &[Edit]) -> Vec<Edit> {
    let at = [w32(8, 4), w32(100, 5), w64(104, 6 * 384), w32(112, 1), w32(116, 2), w32(120, 128)];
    [&at[..], changes].concat()
}

fn old_reshape(change: Edit) -> Result<Super090, SuperblockError> {
    let grow = [w32(8, 91), w64(176, 384), w32(184, 5), w32(188, 1), w32(192, 2), w32(196, 65536)];
    old(&[&grow[..], &[change]].concat())
}

#[test]
fn every_row_of_the_reference_is_decided() {
    let mut table = Table::default();
    identity(&mut table);
    checksums_and_padding(&mut table);
    other_places(&mut table);
    two_superblocks(&mut table);
    geometry(&mut table);
    layouts(&mut table);
    chunks_and_sizes(&mut table);
    areas(&mut table);
    features(&mut table);
    progress_and_roles(&mut table);
    bitmaps(&mut table);
    bad_block_logs(&mut table);
    partial_parity_logs(&mut table);
    partial_parity_entries(&mut table);
    journals(&mut table);
    reshapes(&mut table);
    old_superblocks(&mut table);

    assert!(table.wrong.is_empty(), "{}", table.wrong);
    let elsewhere: BTreeSet<u8> = SET_LEVEL.iter().map(|(row, _)| *row).collect();
    let all: BTreeSet<u8> = table.rows.union(&elsewhere).copied().collect();
    assert_eq!(all, (1..=70).collect());
    assert_eq!(table.rows.intersection(&elsewhere).count(), 0, "rows in both lists");
    assert_eq!(table.cases, 280);
}

fn identity(table: &mut Table) {
    let nothing: &[u8] = &[0; SUPER_BYTES];
    let blocks = Version::ALL.map(|version| (version, nothing));
    let nowhere = "no md superblock found (looked at sectors 4080, 0, 8, 3968)";
    table.row(1, "no magic anywhere", find(&blocks, 4096), nowhere);
    let nowhere = "no md superblock found (looked at sectors 0, 8); name a member of an array; \
                   superblocks of versions 0.90 and 1.0 lie at the end, where an image that is cut \
                   has none: copy the rest too";
    table.row(1, "no magic at the start", find(&blocks[1..3], 4096), nowhere);
    let magic = "0.90 superblock magic at byte 0: found 0x00000000, expected 0xa92b4efc";
    table.row(1, "magic of 0.90", old(&[w32(0, 0)]), magic);
    let short = "superblock: found 4095 bytes, expected 4096";
    let parsed = Superblock::parse(&nothing[1..], Version::V0_90, Sectors(4096));
    table.row(1, "short, 0.90", parsed, short);
    let block = fixture::member(RAID5, 0).block;
    table.row(1, "short", Super1::parse(&block[..4095], Minor::V1_2, Sectors(4096)), short);
    let small = "member: found 23 sectors, expected at least 24 sectors";
    table.row(2, "nothing read", find(&[], 23), small);
    table.row(2, "v1", Super1::parse(&block, Minor::V1_2, Sectors(23)), small);
    let small = Superblock::parse(nothing, Version::V0_90, Sectors(127));
    table.row(2, "0.90", small, "member: found 127 sectors, expected at least 128 sectors");
    let major = "0.90 superblock major_version at byte 4: found 1, expected 0";
    table.row(3, "0.90", old(&[w32(4, 1)]), major);
    let minor = "0.90 superblock minor_version at byte 8: found 92, expected 90, or 91";
    table.row(4, "unknown", old(&[w32(8, 92)]), minor);
    let reshaping = old_reshape(w32(36, 4)).unwrap().refuses_writing();
    assert_eq!(reshaping[0].name, "RESHAPE");
    table.raid5(&[
        (1, &[w32(0, 0)], "magic at byte 0: found 0x00000000, expected 0xa92b4efc"),
        (3, &[w32(4, 0)], "major_version at byte 4: found 0, expected 1"),
        (3, &[w32(4, 2)], "major_version at byte 4: found 2, expected 1"),
        (5, &[w64(144, 0)], "super_offset at byte 144: found 0 sectors, expected 8 sectors"),
        (5, &[w64(144, 16)], "super_offset at byte 144: found 16 sectors, expected 8 sectors"),
        (5, &[w64(144, u64::MAX)], "super_offset at byte 144: found 18446744073709551615 sect"),
        (7, &[w32(220, 0)], "max_dev at byte 220: found 0, expected 1..=1920"),
        (7, &[w32(220, 1921)], "max_dev at byte 220: found 1921, expected 1..=1920"),
        (7, &[w32(220, u32::MAX)], "max_dev at byte 220: found 4294967295, expected 1..=1920"),
        (8, &[w32(160, 128)], "dev_number at byte 160: found 128, expected less than 128"),
        (8, &[w32(160, u32::MAX)], "dev_number at byte 160: found 4294967295, expected less"),
        (9, &[w32(8, 0x2000)], "feature_map at byte 8: found unknown features 0x2000, expecte"),
        (9, &[w32(8, 1 << 31)], "feature_map at byte 8: found unknown features 0x80000000, ex"),
    ]);
}

fn checksums_and_padding(table: &mut Table) {
    let fixture = fixture::member(RAID5, 0);
    let mut block = fixture.block;
    block[33] ^= 1;
    let damaged = Super1::parse(&block, fixture.minor, fixture.member_size);
    let sum = "superblock sb_csum at byte 216: found 0x969d7e6f, expected 0x969d7d6f";
    table.row(6, "v1", damaged, sum);
    let area = area::one("raid5-4-v090", 0, "super090");
    let mut block = area.bytes.clone();
    block[300] ^= 1;
    let damaged = Super090::parse(&block, area.member_size);
    let sum = "0.90 superblock sb_csum at byte 152: found 0xe6e559f9, expected 0xe6e559fa";
    table.row(6, "0.90", damaged, sum);
    edit(&mut block, &[w32(152, 0x40e0)]); // 0xe6e5 + 0x59fa = 0x140df, and its halves 1 + 0x40df
    table.row(6, "0.90, folded", Super090::parse(&block, area.member_size), ACCEPTED);
    let power = "logical_block_size at byte 224: found";
    let pad3 = "pad3 at byte 228: found 1 bytes that are not 0, expected 0";
    table.raid5(&[
        (10, &[w32(12, 1)], "pad0 at byte 12: found 0x1, expected 0"),
        (10, &[w8(228, 1)], pad3),
        (10, &[w8(252, 1)], pad3),
        (10, &[w8(255, 1)], pad3),
        (10, &[w32(224, 512)], ACCEPTED),
        (10, &[w32(224, 4096)], ACCEPTED),
        (10, &[w32(224, 65536)], ACCEPTED),
        (10, &[w32(224, 1)], &format!("{power} 1, expected 0 or a power of two")),
        (10, &[w32(224, 513)], &format!("{power} 513, expected 0 or a power of two")),
        (10, &[w32(224, 1000)], &format!("{power} 1000, expected 0 or a power of two")),
        (10, &[w32(224, 131_072)], &format!("{power} 131072, expected 0 or a power of two")),
    ]);
}

/// Superblocks of members that were copied, cut or grown.
fn other_places(table: &mut Table) {
    let start = fixture::member(RAID5, 0);
    let cut = Super1::parse(&start.block, Minor::V1_2, Sectors(4095));
    let needs = "superblock data_size at byte 136: found 4096 sectors needed, expected no more";
    table.row(24, "cut", cut, needs);
    let end = fixture::member("raid1-3-v10-bitmap", 0);
    let grown = Super1::parse(&end.block, Minor::V1_0, Sectors(8192));
    let place = "superblock super_offset at byte 144: found 6128 sectors, expected 8176 sectors";
    table.row(5, "grown", grown, place);
}

fn two_superblocks(table: &mut Table) {
    let fixture = fixture::member(RAID5, 0);
    let new: (Version, &[u8]) = (Version::V1_2, &fixture.block);
    let mut other = fixture.parse();
    other.minor = Minor::V1_1;
    other.super_offset = Sectors(0);
    let same = find(&[(Version::V1_1, &other.encode()), new], 4096);
    assert_eq!(same, Ok(other.clone().into()));
    table.row(66, "two of one array", same, ACCEPTED);
    other.set_uuid = Uuid([9; 16]);
    other.ctime.secs += 1;
    let other = other.encode();
    let ambiguous = "superblock: found version 1.1 of array 09090909:09090909:09090909:09090909 \
                     and version 1.2 of array a61dfb7a";
    let found = find(&[new, (Version::V1_1, &other)], 4096);
    assert!(found.as_ref().is_err_and(|error| error.to_string().contains("1.1 being the newer")));
    table.row(66, "two arrays", found, ambiguous);
    let old = area::one("raid5-4-v090", 0, "super090").bytes;
    let found = find(&[new, (Version::V0_90, &old)], 4096);
    table.row(66, "two versions", found, "superblock: found version 0.90 of array 0a1");
    // A stale superblock that is damaged does not count, unless there is no other.
    let mut damaged = other;
    damaged[200] ^= 1;
    let damaged: (Version, &[u8]) = (Version::V1_1, &damaged);
    let found = find(&[damaged, new], 4096);
    assert_eq!(found, Ok(fixture.parse().into()));
    table.row(66, "one is damaged", found, ACCEPTED);
    let found = find(&[damaged, (Version::V1_2, &[0; SUPER_BYTES])], 4096);
    table.row(6, "no other", found, "superblock sb_csum at byte 216: found ");
}

fn geometry(table: &mut Table) {
    for disks in [0, 1, 1921, u32::MAX] {
        let expected = format!("raid_disks at byte 92: found {disks}, expected 2..=1920");
        table.raid5(&[(11, &[w32(92, disks)], &expected)]);
    }
    for disks in [0, 1, 1921] {
        let expected =
            format!("0.90 superblock raid_disks at byte 40: found {disks}, expected 2..");
        table.row(11, "0.90", old(&[w32(40, disks)]), &expected);
    }
    let most = "0.90 superblock raid_disks at byte 40: found 28, expected 2..=27 for raid5";
    table.row(11, "0.90", old(&[w32(40, 28)]), most);
    let raid6 = "raid_disks at byte 92: found 3, expected 4..=1920 for raid6";
    table.raid5(&[
        (11, &[w32(92, 200)], ACCEPTED), // more than roles: the other slots are missing
        (11, &[w32(92, 1920)], ACCEPTED),
        (11, &[w32(72, 6), w32(92, 3)], raid6),
    ]);
    let raid6 = "0.90 superblock raid_disks at byte 40: found 3, expected 4..=27 for raid6";
    table.row(11, "RAID6", old(&[w32(28, 6), w32(40, 3)]), raid6);
    let raid10 = "raid_disks at byte 92: found 1, expected 2..=1920";
    table.super1("raid10-4-n2", 0, &[(11, &[w32(92, 1)], raid10)]);
    let raid1 = "raid_disks at byte 92: found 0, expected 1..=1920";
    table.super1("raid1-2", 0, &[(11, &[w32(92, 0)], raid1)]);
    for level in [-100, -5, -4, 2, 7] {
        let expected = format!("level at byte 72: found {level}, expected -1 (linear)");
        table.raid5(&[(12, &[i32(72, level)], &expected)]);
        let expected = format!("0.90 superblock level at byte 28: found {level}, expected -1");
        table.row(12, "0.90", old(&[i32(28, level)]), &expected);
    }
    table.super1("raid0-uneven", 1, &[(12, &[i32(72, -1), w32(8, 0)], ACCEPTED)]);
}

fn layouts(table: &mut Table) {
    table.raid5(&[
        (13, &[w32(76, 6)], "layout at byte 76: found 0x6, expected a layout of raid5 with 4 mem"),
        (13, &[w32(76, 16)], "layout at byte 76: found 0x10, expected a layout of raid5 with 4"),
        (13, &[w32(72, 6), w32(76, 7)], "layout at byte 76: found 0x7, expected a layout of rai"),
        (13, &[w32(72, 4), w32(76, 99)], ACCEPTED), // ignored
    ]);
    table.super1(
        "raid0-uneven",
        1,
        &[
            (13, &[w32(76, 3)], "layout at byte 76: found 0x3, expected a layout of raid0"),
            (13, &[w32(8, 0), w32(76, 3)], ACCEPTED), // without the feature it means nothing
        ],
    );
    table.super1("raid1-2", 0, &[(13, &[w32(76, 7)], ACCEPTED)]);
    let layout = "0.90 superblock layout at byte 256: found 0x6, expected a layout of raid5";
    table.row(13, "0.90", old(&[w32(256, 6)]), layout);
    for layout in [0x100, 0x002, 0x101, 0x105, 0x8_0102, 0x6_0102] {
        let expected = format!("layout at byte 76: found {layout:#x}, expected a layout");
        table.super1("raid10-4-n2", 0, &[(14, &[w32(76, layout)], &expected)]);
        let expected = format!("0.90 superblock layout at byte 256: found {layout:#x}, expected");
        table.row(14, "0.90", old(&[w32(28, 10), w32(256, layout)]), &expected);
    }
    // Far sets.
    for layout in [0x2_0502, 0x2_0202, 0x2_0002] {
        let expected = format!("layout at byte 76: found {layout:#x}, expected a layout");
        table.super1("raid10-4-n2", 0, &[(15, &[w32(76, layout)], &expected)]);
    }
}

fn chunks_and_sizes(table: &mut Table) {
    let chunk = "chunksize at byte 88: found 0, expected";
    for array in ["raid0-3x64k", "raid4-4x32k", RAID5, "raid6-4x16k", "raid10-4-n2"] {
        table.super1(array, 0, &[(16, &[w32(88, 0)], chunk)]);
    }
    table.raid5(&[
        (17, &[w32(88, 4)], "chunksize at byte 88: found 4, expected a power of"),
        (17, &[w32(88, 96)], "chunksize at byte 88: found 96, expected a power of"),
        (18, &[w32(88, 4096)], "chunksize at byte 88: found 4096, expected at most size, 2048"),
        (18, &[w32(88, 1 << 22)], "chunksize at byte 88: found 4194304, expected less than 41943"),
        (18, &[w32(88, 1 << 31)], "chunksize at byte 88: found 2147483648, expected less than 41"),
        (20, &[w64(80, 0)], "size at byte 80: found 0, expected more"),
    ]);
    let size = "size at byte 80: found 0, expected more";
    table.super1("raid1-2", 0, &[(20, &[w64(80, 0)], size)]);
    let blocks = "chunksize at byte 88: found 12, expected a multiple of the logical block";
    let most = "chunksize at byte 88: found 4096, expected at most data_size, 2048";
    let less = "chunksize at byte 88: found 128, expected at most data_size, 100";
    let least = "data_size at byte 136: found 0, expected at least 10";
    table.super1(
        "raid0-3x64k",
        0,
        &[
            (17, &[w32(88, 24)], ACCEPTED),
            (17, &[w32(88, 12), w32(224, 4096)], blocks),
            (18, &[w32(88, 4096)], most),
            (26, &[w64(136, 0)], least),
            (26, &[w64(136, 100)], less),
        ],
    );
    let linear = "chunksize at byte 88: found 4097, expected at most data_size, 4096";
    let edits = [i32(72, -1), w32(8, 0), w32(88, 4097)];
    table.super1("raid0-uneven", 1, &[(18, &edits, linear)]);
    let odd = raid5(&[w64(80, 2000)]).unwrap();
    assert_eq!(odd.array_size(), Some(Sectors(3 * 15 * 128)));
    let rounded = "superblock size at byte 80: found 2000, expected a multiple of the chunk, 128";
    table.row(19, "v1", odd.warnings(), rounded);
    let both = raid5(&[w64(80, 2000), w64(208, 2001)]).unwrap().warnings();
    assert_eq!(both.len(), 2, "{both:?}");
    assert_eq!(raid5(&[]).unwrap().warnings(), Vec::<String>::new());
    old_chunks_and_sizes(table);
}

fn old_chunks_and_sizes(table: &mut Table) {
    for (row, edit, expected) in [
        (16, w32(260, 0), "chunk_size at byte 260: found 0, expected a power of two"),
        (17, w32(260, 65537), "chunk_size at byte 260: found 65537, expected a multiple of 512"),
        (17, w32(260, 96 * 512), "chunk_size at byte 260: found 96, expected a power of two"),
        (18, w32(260, 1 << 21), "chunk_size at byte 260: found 2097152, expected at most size"),
        (20, w32(32, 0), "size at byte 32: found 0, expected more for raid5"),
    ] {
        table.row(row, "0.90", old(&[edit]), &format!("0.90 superblock {expected}"));
    }
    let rounded =
        "0.90 superblock size at byte 32: found 1000, expected a multiple of the chunk, 64";
    table.row(19, "0.90", old(&[w32(32, 1000)]).unwrap().warnings(), rounded);
    let chunk =
        "0.90 superblock chunk_size at byte 260: found 65536, expected at most the superblock";
    let area = area::one("raid5-4-v090", 0, "super090");
    let mut block = area.bytes.clone();
    edit(&mut block, &[w32(28, 0)]);
    let sum = csum_090(&block, ByteOrder::Little).unwrap();
    edit(&mut block, &[w32(152, sum)]);
    table.row(26, "0.90", Super090::parse(&block, Sectors(255)), chunk);
}

fn areas(table: &mut Table) {
    let clear = |offset: u64| {
        format!(
            "data_offset at byte 128: found data at sectors {offset}..{}, expected it clear of the \
             superblock at sectors 8..9",
            offset + 2048
        )
    };
    let huge = [w64(80, u64::MAX), w64(136, u64::MAX)];
    let moved = [w32(8, 0x44), w32(100, 5), w32(112, 1), w32(120, 128), w32(124, 1 << 31)];
    table.raid5(&[
        (21, &[w64(136, 9)], "data_size at byte 136: found 9, expected at least"),
        (21, &[w64(136, 2047)], "data_size at byte 136: found 2047, expected at least 2048"),
        (21, &[w64(80, 2049)], "data_size at byte 136: found 2048, expected at least 2049"),
        (21, &[w64(80, u64::MAX)], "data_size at byte 136: found 2048, expected at least 18446"),
        (22, &[w64(128, 0)], &clear(0)),
        (22, &[w64(128, 8)], &clear(8)),
        (22, &[w64(128, 9)], ACCEPTED),
        (24, &[w64(136, 2049)], "data_size at byte 136: found 4097 sectors needed, expected no"),
        (24, &[w64(128, 2049)], "data_size at byte 136: found 4097 sectors needed, expected no"),
        (25, &[w64(128, u64::MAX)], "data_offset at byte 128: found 18446744073709551615, expec"),
        (25, &[w64(136, u64::MAX)], "data_offset at byte 128: found 2048, expected data_offset"),
        (25, &huge, "size at byte 80: found 18446744073709551615, expected size * raid_di"),
        (25, &moved, "new_offset at byte 124: found "),
    ]);
    let journal = "data_size at byte 136: found 12296 sectors needed, expected no";
    table.super1("raid5-4-journal", 4, &[(24, &[w64(136, 10_248)], journal)]);
    let into = "data_size at byte 136: found data at sectors 0..6129, expected it clear";
    let sum = [w64(128, 1), w64(80, 6128), w64(136, 6128)];
    table.super1(
        "raid1-3-v10-bitmap",
        0,
        &[
            (23, &[w64(136, 6128)], ACCEPTED),
            (23, &[w64(136, 6129)], into),
            (24, &[w64(128, 112)], "data_size at byte 136: found 6224 sectors needed, expected no"),
            (23, &sum, "data_offset at byte 128: found data at sectors 1..6129, expected it cle"),
            (
                24,
                &[w64(136, 6145)],
                "data_size at byte 136: found 6145 sectors needed, expected no",
            ),
        ],
    );
    let into = "0.90 superblock size at byte 32: found data at sectors 0..3970, expected it clear of \
                the superblock at sectors 3968..4096";
    table.row(23, "0.90", old(&[w32(32, 1985)]), into);
    table.row(23, "0.90, all of it", old(&[w32(32, 1984)]), ACCEPTED);
}

fn features(table: &mut Table) {
    for (array, member, edit, rule) in [
        (RAID5, 0, w32(8, 0x201), "0x201 (BITMAP, JOURNAL), expected no BITMAP with JOURNAL"),
        (RAID5, 0, w32(8, 0x401), "PPL with BITMAP"),
        (RAID5, 0, w32(8, 0x600), "PPL with JOURNAL"),
        (RAID5, 0, w32(8, 0xc00), "PPL with MULTI_PPL"),
        (RAID5, 0, w32(8, 0x801), "MULTI_PPL with BITMAP"),
        (RAID5, 0, w32(8, 0xa00), "MULTI_PPL with JOURNAL"),
        (RAID5, 0, w32(8, 0x1000), "RAID0_LAYOUT on another level"),
        ("raid0-uneven", 1, i32(72, -1), "RAID0_LAYOUT on another level"),
        ("raid1-2", 0, w32(8, 0x400), "no PPL or MULTI"),
    ] {
        let edits = [edit];
        let found = edited(array, member, &edits);
        assert!(found.as_ref().is_err_and(|error| error.to_string().contains(rule)), "{found:?}");
        table.super1(array, member, &[(28, &edits, "feature_map at byte 8: found 0x")]);
    }
}

fn progress_and_roles(table: &mut Table) {
    for code in [4, 0xfeff, 0xff00, 0xfffc] {
        for number in [0, 2] {
            let byte = 256 + 2 * number;
            let expected = format!("dev_roles at byte {byte}: found {code:#06x}, expected a slot");
            table.raid5(&[(31, &[role(number, code)], &expected)]);
        }
    }
    table.raid5(&[
        (29, &[w32(8, 2), w64(152, 2048)], ACCEPTED),
        (29, &[w32(8, 2), w64(152, 2049)], "recovery_offset at byte 152: found 2049, expected at"),
        (31, &[role(127, 0xff05)], "dev_roles at byte 510: found 0xff05, expected a slot below 4"),
        (31, &[w32(92, 3)], "dev_roles at byte 262: found 0x0003, expected a slot below 3"),
        (31, &[role(0, 0xffff)], ACCEPTED),
        (31, &[role(0, 0xfffe)], ACCEPTED),
        (31, &reshape(&[i32(112, -1), role(4, 4)]), ACCEPTED), // a slot that is going away
        (31, &reshape(&[i32(112, -1), role(4, 5)]), "dev_roles at byte 264: found 0x0005, expect"),
        (32, &[role(5, 0)], ACCEPTED), // a replacement, perhaps
        (32, &[role(4, 0), role(5, 0)], "dev_roles at byte 266: found slot 0 for the third time"),
        (64, &[w64(64, u64::MAX), w64(192, u64::MAX)], ACCEPTED),
    ]);
    let dirty = raid5(&[w64(208, 2049)]).unwrap();
    assert_eq!(dirty.dirty_from(), Some(Sectors(0)));
    let said = "superblock resync_offset at byte 208: found 2049, expected no more than the array";
    table.row(30, "v1", dirty.warnings(), said);
    let dirty = old(&[w32(132, 0), w32(172, 3969)]).unwrap();
    assert_eq!(dirty.dirty_from(), Some(Sectors(0)));
    let said = "0.90 superblock recovery_cp at byte 172: found 3969, expected no more than";
    table.row(30, "0.90", dirty.warnings(), said);
    assert_eq!(old(&[w32(132, 0), w32(172, 128)]).unwrap().dirty_from(), Some(Sectors(128)));
    let other = old(&[w32(132, 0), w32(172, 128), w32(164, 7)]).unwrap();
    assert_eq!(other.dirty_from(), Some(Sectors(0)));
    let slot = "0.90 superblock disks.raid_disk at byte 652: found 4, expected a slot below 4";
    table.row(31, "0.90", old(&[w32(652, 4)]), slot);
    let twice = "0.90 superblock disks.raid_disk at byte 652: found slot 0 for the second time";
    table.row(32, "0.90", old(&[w32(652, 0)]), twice);
    let named = raid5(&[(32, b"\xffa\n\x1b[2J".to_vec()), (39, vec![b'x'; 25])]);
    assert_eq!(named.as_ref().unwrap().name(), format!("\\xffa\\n\\x1b[2J{}", "x".repeat(25)));
    table.row(63, "name", named, ACCEPTED);
    let last = |reasons: Vec<weft_ondisk::Reason>| {
        let reason = reasons.last().unwrap();
        vec![format!("{}: found {}, expected none", reason.name, reason.what)]
    };
    let events = "events: found an event count that cannot increase";
    table.row(65, "v1", last(raid5(&[w64(200, u64::MAX)]).unwrap().refuses_writing()), events);
    table.row(65, "0.90", last(old(&[w64(156, u64::MAX)]).unwrap().refuses_writing()), events);
}

fn bitmaps(table: &mut Table) {
    const ARRAY: &str = "raid5-4-v11-bitmap";
    let nowhere = "superblock bitmap_offset at byte 96: found 0, expected a place with BITMAP";
    table.row(43, "offset", bitmap_place(ARRAY, 0), nowhere);
    for (array, offset, other) in [
        (ARRAY, 2041, "data at sectors 2048.."),
        (ARRAY, 9, "the bad-block log at sectors 16..24"),
        ("raid5-4-bitmap-stale", -1, "the superblock at sectors 8..9"),
        ("raid1-3-v10-bitmap", -5, "the superblock at sectors 6128..6129"),
        ("raid1-3-v10-bitmap", -15, "the bad-block log at sectors 6120..6128"),
        ("raid1-3-v10-bitmap", -200, "data at sectors 0..6016"),
    ] {
        let found = bitmap_place(array, offset);
        assert!(found.as_ref().is_err_and(|e| e.to_string().contains(other)), "{found:?}");
        let expected = "superblock bitmap_offset at byte 96: found the bitmap at sectors ";
        table.row(44, other, found, expected);
    }
    let before = "superblock bitmap_offset at byte 96: found -2, expected an area that begins on";
    table.row(44, "before the member", bitmap_place("raid5-4-bitmap-stale", -10), before);
    let after = "superblock bitmap_offset at byte 96: found 6150 sectors needed, expected no more";
    table.row(44, "after the member", bitmap_place("raid1-3-v10-bitmap", 14), after);
    // Very old tools put the bitmap behind the roles of the superblock.
    assert_eq!(bitmap_place(ARRAY, 2), Ok(()));
    let same = |_: &mut BitmapContext| {};
    table.row(45, "good", bitmap(&[], same), "accepted");
    let magic = "bitmap magic at byte 0: found 0x00000000, expected 0x6d746962; without it all";
    table.row(45, "magic", bitmap(&[w32(0, 0)], same), magic);
    for version in [0, 2, 7] {
        let expected = format!("bitmap version at byte 4: found {version}, expected 3, 4, 5 or 6");
        table.row(45, "version", bitmap(&[w32(4, version)], same), &expected);
    }
    let host =
        "bitmap version at byte 4: found 3, bits in the order of the machine that wrote them";
    table.row(45, "version 3", bitmap(&[w32(4, 3)], same), host);
    let uuid =
        "bitmap uuid at byte 8: found 00000000:308098cf:c223b0bb:73e9c957, expected a9d67d3e";
    table.row(45, "uuid", bitmap(&[w32(8, 0)], same), uuid);
    for chunk in [0, 1, 511, 300, 65537] {
        let expected =
            format!("bitmap chunksize at byte 52: found {chunk}, expected a power of two");
        table.row(46, "chunksize", bitmap(&[w32(52, chunk)], same), &expected);
    }
    let other = bitmap(&[w64(40, 5000)], same).unwrap();
    let size = "bitmap sync_size at byte 40: found 5000, expected 4096; chunks past the smaller";
    table.row(47, "sync_size", other.warnings, size);
    let huge = |context: &mut BitmapContext| context.sync_size = Sectors(u64::MAX);
    let room = "bitmap chunksize at byte 52: found 65536, expected chunks large enough";
    table.row(48, "many bits", bitmap(&[], huge), room);
    let small = |context: &mut BitmapContext| context.room = Sectors(0);
    table.row(48, "no room", bitmap(&[], small), room);
    let later = |context: &mut BitmapContext| context.events = 3;
    for (what, found, expected) in [
        (
            "events",
            bitmap(&[], later),
            "stale: bitmap events at byte 24: found 2, expected at least 3",
        ),
        (
            "flag",
            bitmap(&[w32(48, 2)], same),
            "stale: bitmap state at byte 48: found the stale flag",
        ),
    ] {
        let found = found.unwrap();
        assert_eq!(found.dirty_ranges().map(|range| range.len.0).sum::<u64>(), 4096);
        table.row(49, what, vec![found.trust.to_string()], expected);
    }
    let sleep = "bitmap daemon_sleep at byte 56: found 0, expected at least 1 second";
    table.row(50, "daemon_sleep", bitmap(&[w32(56, 0)], same), sleep);
    let behind = "bitmap write_behind at byte 60: found 16384, expected at most 16383";
    table.row(50, "write_behind", bitmap(&[w32(60, 16384)], same), behind);
    assert!(BitmapHeader::decode(&[0; 255]).is_err());
}

fn bad_block_logs(table: &mut Table) {
    let log = |change: Edit| [w32(8, 8), change];
    let offset = "bblog_offset at byte 188: found";
    let superblock =
        format!("{offset} the bad-block log at sectors 1..9, expected it clear of the s");
    let data = |begin: u64| {
        format!(
            "{offset} the bad-block log at sectors {begin}..{}, expected it clear of data at \
             sectors 2048..4096",
            begin + 8
        )
    };
    table.raid5(&[
        (51, &[w16(186, 9)], ACCEPTED), // looked at only with the feature
        (51, &[w8(185, 64)], ACCEPTED),
        (51, &[w32(8, 8)], ACCEPTED),
        (51, &log(w16(186, 9)), "bblog_size at byte 186: found 9, expected 1"),
        (51, &log(w16(186, 0)), "bblog_size at byte 186: found 0, expected 1"),
        (51, &log(w8(185, 64)), "bblog_shift at byte 185: found 64, expe"),
        (51, &log(w32(188, 0)), "bblog_offset at byte 188: found 0, expected"),
        (51, &log(i32(188, -7)), &superblock),
        (51, &log(i32(188, -9)), &format!("{offset} -1, expected an area that begins on")),
        (51, &log(w32(188, 2033)), &data(2041)),
        (51, &log(w32(188, 2040)), &data(2048)),
        (51, &log(i32(188, i32::MAX)), offset),
        (51, &log(i32(188, i32::MIN)), offset),
    ]);
    table.super1(
        "raid5-4-ppl",
        0,
        &[
            (51, &[w32(8, 0x808)], ACCEPTED),
            (51, &[w32(8, 0x808), w32(188, 1000)], &format!("{offset} the bad-block log at sec")),
        ],
    );
    table.super1(
        "raid1-3-v10-bitmap",
        0,
        &[
            (51, &log(i32(188, -8)), ACCEPTED),
            (51, &log(i32(188, -200)), &format!("{offset} the bad-block log at sec")),
            (51, &log(i32(188, 10)), offset),
        ],
    );
    let empty = "bad-block log entry at byte 8: found block 2064, length 0, expected a length";
    table.row(52, "length", bad_blocks(&[w64(8, 2064 << 10)]), empty);
    let past = "bad-block log entry at byte 0: found block 8192, length 1, expected an end within";
    table.row(52, "past the end", bad_blocks(&[w64(0, 8192 << 10 | 1)]), past);
    let huge =
        "bad-block log entry at byte 0: found block 18014398509481983, length 1022, expected";
    table.row(52, "overflow", bad_blocks(&[w64(0, u64::MAX - 1)]), huge);
    let unsorted = bad_blocks(&[w64(0, 3000 << 10 | 1)]).unwrap();
    let order = "bad-block log entry at byte 8: found block 2064, length 8, expected it after";
    table.row(52, "unsorted", unsorted.warnings, order);
    let outside = bad_blocks(&[w64(0, 100 << 10 | 1)]).unwrap();
    let data = "bad-block log entry at byte 0: found block 100, length 1, expected it in the data";
    table.row(52, "outside", outside.warnings, data);
    let full = |index: usize| w64(8 * index, (2048 + 2 * index as u64) << 10 | 1);
    let full = bad_blocks(&(0..512).map(full).collect::<Vec<_>>());
    assert!(full.as_ref().unwrap().full);
    table.row(53, "full", full, "accepted");
}

fn partial_parity_logs(table: &mut Table) {
    let level = "feature_map at byte 8: found 0x800 (MULTI_PPL), expected no PPL or MULTI";
    table.super1(
        "raid5-4-ppl",
        0,
        &[
            (54, &[w16(96, 0)], "ppl at byte 96: found the partial parity log at sectors 8..2056,"),
            (54, &[w16(96, 3000)], "ppl at byte 96: found the partial parity log at sectors 3008"),
            (54, &[w16(96, u16::MAX - 8)], "ppl at byte 96: found -1, expected an area that begi"),
            (54, &[w16(98, 15)], "ppl at byte 96: found 15, expected a size of at least 16"),
            (54, &[w32(72, 4)], level),
        ],
    );
    let sum = "partial parity log checksum at byte 532: found 0xaa8714de, expected 0x";
    table.row(55, "checksum", ppl(&[w32(528, 2)]), sum);
    let other = PplHeader::empty(5).encode();
    let signature =
        "partial parity log signature at byte 512: found 0x00000005, expected 0x98ea0c88";
    table.row(55, "signature", ppl(&[(0, other.to_vec())]), signature);
    let mut many = PplHeader::empty(1).encode();
    edit(&mut many, &[w32(528, 149), w32(532, 0)]);
    let sum = weft_ondisk::crc::crc32c(&many);
    edit(&mut many, &[w32(532, sum)]);
    let count = "partial parity log entries_count at byte 528: found 149, expected at most 148";
    table.row(56, "entries_count", PplHeader::parse(&many, 1), count);
}

fn partial_parity_entries(table: &mut Table) {
    table.row(56, "good", ppl_entry(0, 4096, 4096, 3), "accepted");
    for (what, found, expected) in [
        (
            "past the area",
            ppl_entry(0, 1 << 20, 65536, 3),
            "pp_size at byte 544: found 2056 sectors",
        ),
        (
            "pp_size",
            ppl_entry(0, 4097, 4096, 3),
            "pp_size at byte 544: found 4097, expected a mult",
        ),
        (
            "data_size",
            ppl_entry(0, 0, 100, 3),
            "data_size at byte 548: found 100, expected a multi",
        ),
        (
            "disks",
            ppl_entry(0, 4096, 16384, 3),
            "data_size at byte 548: found 16384, expected stri",
        ),
        (
            "array",
            ppl_entry(12_288, 512, 512, 3),
            "data_sector at byte 536: found 12288, expected ",
        ),
        ("overflow", ppl_entry(u64::MAX, 512, 512, 3), "data_sector at byte 536: found 184467440"),
    ] {
        table.row(56, what, found, &format!("partial parity log entries.{expected}"));
    }
    let entry = PplEntry {
        data_sector: Sectors(0),
        pp_size: 512,
        data_size: 512,
        parity_disk: 3,
        checksum: 1,
    };
    let header = PplHeader { signature: 1, generation: 1, entries: vec![entry] };
    let partial = "partial parity log entries.checksum at byte 556: found 0x00000001, expected 0x";
    table.row(57, "partial parity", header.check_partial(0, &[0; 512]), partial);
    for slot in [2, 4, u32::MAX] {
        let expected = format!(
            "partial parity log entries.parity_disk at byte 552: found {slot}, expected 3, by the l"
        );
        table.row(58, "parity_disk", ppl_entry(0, 512, 512, slot), &expected);
    }
}

fn journals(table: &mut Table) {
    for tail in [4, 10_240, u64::MAX] {
        let expected =
            format!("journal_tail at byte 152: found {tail}, expected a multiple of 8 below");
        table.super1("raid5-4-journal", 4, &[(60, &[w64(152, tail)], &expected)]);
    }
    // A journal may be smaller than a data member.
    let small = [w64(136, 1000), w64(152, 8)];
    table.super1("raid5-4-journal", 4, &[(60, &small, ACCEPTED)]);
    let flush = Payload::Flush { flags: 0, stripes: vec![8] };
    for (what, found, expected) in [
        (
            "small",
            journal(&[w32(12, 31)], data(1)),
            "meta_size at byte 12: found 31, expected 32..=",
        ),
        ("large", journal(&[w32(12, 4097)], data(1)), "meta_size at byte 12: found 4097, expected"),
        ("past", journal(&[w32(12, 50)], data(1)), "payload.size at byte 36: found 18 bytes left"),
        ("flush past", journal(&[w32(36, 16)], flush), "payload.size at byte 36: found 16 bytes l"),
        ("type", journal(&[w16(32, 3)], data(1)), "payload.type at byte 32: found 3, expected 0 ("),
        ("size", journal(&[w32(36, 7)], data(1)), "payload.size at byte 36: found 7, expected a m"),
        (
            "long",
            journal(&[], data(8)),
            "meta_size at byte 12: found 72 sectors of blocks, expected",
        ),
    ] {
        table.row(61, what, found, &format!("journal {expected}"));
    }
}

fn reshapes(table: &mut Table) {
    let begin = "reshape_position at byte 104: found";
    let moved = |offset| reshape(&[w32(8, 0x44), i32(124, offset)]);
    table.raid5(&[
        (62, &reshape(&[]), ACCEPTED),
        (62, &reshape(&[i32(112, 4)]), "delta_disks at byte 112: found 4, expected 4 - delta_di"),
        (62, &reshape(&[i32(112, i32::MIN)]), "delta_disks at byte 112: found -2147483648, expe"),
        (62, &reshape(&[w64(104, 383)]), &format!("{begin} 383, expected a multiple")),
        (62, &reshape(&[w64(104, 385)]), &format!("{begin} 385, expected a multiple")),
        (62, &reshape(&[w64(104, 384 * 99)]), &format!("{begin} 38016, expected at most")),
        (62, &reshape(&[w64(104, u64::MAX)]), &format!("{begin} 18446744073709551615, expected")),
        (62, &reshape(&[w32(120, 0)]), "new_chunk at byte 120: found 0, expected a power of two"),
        (62, &reshape(&[w32(120, 100)]), "new_chunk at byte 120: found 100, expected a power of"),
        (62, &reshape(&[w32(100, 3)]), "new_level at byte 100: found 3, expected -1 (linear)"),
        (62, &moved(-8), ACCEPTED),
        (62, &moved(1), "new_offset at byte 124: found"),
    ]);
    table.row(62, "good", old_reshape(w32(36, 4)), "accepted");
    for (what, change, expected) in [
        (
            "delta",
            w32(188, 4),
            "delta_disks at byte 188: found 4, expected 4 - delta_disks in 1..=",
        ),
        (
            "past",
            w64(176, 1 << 40),
            "reshape_position at byte 176: found 1099511627776, expected at",
        ),
        ("chunk", w32(196, 0), "new_chunk at byte 196: found 0, expected a power of two"),
        ("level", w32(184, 3), "new_level at byte 184: found 3, expected -1 (linear)"),
    ] {
        table.row(62, what, old_reshape(change), &format!("0.90 superblock {expected}"));
    }
}

fn old_superblocks(table: &mut Table) {
    let this = |byte: usize, value| w32(3968 + byte, value);
    for (what, edits, expected) in [
        ("not_persistent", w32(48, 1), "not_persistent at byte 48: found 1, expected 0"),
        ("number", this(0, 27), "this_disk at byte 3968: found 27, expected a number below 27"),
        ("number", this(0, u32::MAX), "this_disk at byte 3968: found 4294967295, expected a numbe"),
        (
            "other",
            this(0, 1),
            "this_disk at byte 3968: found number 1, slot 0, state 0x6, expected",
        ),
        ("slot", this(12, 1), "this_disk at byte 3968: found number 0, slot 1, state 0x6, expecte"),
        (
            "state",
            this(16, 0),
            "this_disk at byte 3968: found number 0, slot 0, state 0x0, expecte",
        ),
    ] {
        table.row(67, what, old(&[edits]), &format!("0.90 superblock {expected}"));
    }
    let area = area::one("raid5-4-v090", 0, "super090");
    let mut big = area.bytes.clone();
    for word in big.chunks_exact_mut(4) {
        word.reverse();
    }
    edit(&mut big, &[(156, vec![0, 0, 0, 0, 0, 0, 0, 1]), (164, vec![0, 0, 0, 0, 0, 0, 0, 1])]);
    let found = Super090::parse(&big, area.member_size).unwrap();
    assert_eq!((found.level, found.events, found.dirty_from()), (Level::Raid5, 1, None));
    let order =
        "0.90 superblock magic at byte 0: found a big-endian superblock; the array was made";
    let warning = found.warnings().remove(0);
    table.row(68, "swapped", vec![format!("{warning}, expected one of this machine")], order);
}
