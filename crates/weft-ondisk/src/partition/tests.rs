//! Tests of partition tables: as partitioners write them, and hostile ones.

use super::*;

const DISK: u64 = 8 << 20;

/// A disk in memory.
#[derive(Clone)]
struct Disk(Vec<u8>);

impl Disk {
    fn new() -> Self {
        Self(vec![0; usize::try_from(DISK).unwrap()])
    }

    fn read(&self, block: Option<u32>) -> Result<Table, TableError> {
        self.read_but(&[], block)
    }

    /// Reads the table from a disk on which the bytes `bad` cannot be read.
    fn read_but(&self, bad: &[u64], block: Option<u32>) -> Result<Table, TableError> {
        let size = self.0.len() as u64;
        let mut reads = 0_u32;
        let mut at = |from: u64, into: &mut [u8]| {
            reads += 1;
            assert!(reads < 2000, "reading does not end");
            if bad.iter().any(|bad| (from..from + into.len() as u64).contains(bad)) {
                return Err(io::Error::other("bad sector"));
            }
            let from = usize::try_from(from).unwrap();
            let part = self.0.get(from..from + into.len()).expect("reads stay within the disk");
            into.copy_from_slice(part);
            Ok(())
        };
        super::read(&mut at, size, block)
    }

    fn put(&mut self, at: u64, bytes: &[u8]) {
        let at = usize::try_from(at).unwrap();
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Writes entry `slot` of the boot sector at `at`.
    fn entry(&mut self, at: u64, slot: u64, kind: u8, start: u32, blocks: u32) -> &mut Self {
        let mut entry = [0; 16];
        entry[4] = kind;
        entry[8..12].copy_from_slice(&start.to_le_bytes());
        entry[12..].copy_from_slice(&blocks.to_le_bytes());
        self.put(at + 446 + 16 * slot, &entry);
        self.put(at + 510, &[0x55, 0xaa]);
        self
    }

    /// Writes both copies of a GPT with these partitions, in blocks, and its protective MBR.
    fn gpt(&mut self, block: u64, partitions: &[(u32, u64, u64)]) -> &mut Self {
        let blocks = DISK / block;
        let mut array = vec![0; 128 * 128];
        for (number, first, last) in partitions {
            let entry = &mut array[128 * (*number as usize - 1)..];
            entry[..16].copy_from_slice(&LINUX_RAID);
            entry[32..40].copy_from_slice(&first.to_le_bytes());
            entry[40..48].copy_from_slice(&last.to_le_bytes());
        }
        let array_blocks = (array.len() as u64).div_ceil(block);
        for (own, other, at) in [(1, blocks - 1, 2), (blocks - 1, 1, blocks - 1 - array_blocks)] {
            self.put(at * block, &array);
            let header = header(own, other, at, 128, 128, crc32fast::hash(&array));
            self.put(own * block, &header);
        }
        self.entry(0, 0, KIND_PROTECTIVE, 1, u32::MAX)
    }
}

const LINUX_RAID: [u8; 16] = [
    0x0f, 0x88, 0x9d, 0xa1, 0xfc, 0x05, 0x3b, 0x4d, 0xa0, 0x06, 0x74, 0x3f, 0x0f, 0x84, 0x91, 0x1e,
];

fn header(own: u64, other: u64, array: u64, entries: u32, entry: u32, crc: u32) -> Vec<u8> {
    let mut header = vec![0; 92];
    header[..8].copy_from_slice(b"EFI PART");
    header[8..12].copy_from_slice(&0x1_0000_u32.to_le_bytes());
    header[12..16].copy_from_slice(&92_u32.to_le_bytes());
    header[24..32].copy_from_slice(&own.to_le_bytes());
    header[32..40].copy_from_slice(&other.to_le_bytes());
    header[72..80].copy_from_slice(&array.to_le_bytes());
    header[80..84].copy_from_slice(&entries.to_le_bytes());
    header[84..88].copy_from_slice(&entry.to_le_bytes());
    header[88..].copy_from_slice(&crc.to_le_bytes());
    let sum = crc32fast::hash(&header);
    header[16..20].copy_from_slice(&sum.to_le_bytes());
    header
}

fn places(table: &Table) -> Vec<(u32, u64, u64)> {
    table.partitions.iter().map(|it| (it.number, it.start, it.len)).collect()
}

#[test]
fn guid_partitions_have_their_index_as_number_with_either_size_of_block() {
    for block in [512, 4096] {
        let mut disk = Disk::new();
        disk.gpt(block, &[(1, 64, 127), (3, 256, 256)]);
        let expected = [(1, 64 * block, 64 * block), (3, 256 * block, block)];
        for given in [None, Some(u32::try_from(block).unwrap())] {
            let table = disk.read(given).unwrap();
            assert_eq!((table.scheme, places(&table)), (Scheme::Gpt, expected.to_vec()));
            assert_eq!(table.notices, [""; 0]);
            assert_eq!(table.partitions[0].kind, "Linux RAID");
        }
    }
}

#[test]
fn the_second_header_stands_in_for_the_first_and_says_so() {
    for block in [512, 4096] {
        let mut whole = Disk::new();
        whole.gpt(block, &[(2, 64, 127)]);
        // Flips a bit of the header, of the signature and of the entries.
        for at in [block + 50, block, 2 * block + 130] {
            let mut disk = whole.clone();
            disk.0[usize::try_from(at).unwrap()] ^= 4;
            let table = disk.read(None).unwrap();
            assert_eq!(places(&table), [(2, 64 * block, 64 * block)], "{at}");
            assert!(table.notices[0].contains("the second one"), "{at}: {:?}", table.notices);
            let end = usize::try_from(DISK - block).unwrap() + 50;
            disk.0[end] ^= 4;
            let error = disk.read(None).unwrap_err().to_string();
            assert!(error.contains("checksum") && error.contains("PATH@OFFSET"), "{error}");
        }
    }
}

#[test]
fn a_sector_that_cannot_be_read_costs_only_what_it_describes() {
    for block in [512, 4096] {
        let mut disk = Disk::new();
        disk.gpt(block, &[(2, 64, 127)]);
        for (bad, says) in [
            (0, "MBR: bad sector; the GUID partition table is whole"),
            (block, "first header cannot be read: bad sector; the second one"),
            (2 * block, "first header has entries at byte"),
        ] {
            let table = disk.read_but(&[bad], Some(u32::try_from(block).unwrap())).unwrap();
            assert_eq!(places(&table), [(2, 64 * block, 64 * block)], "{bad}");
            assert!(table.notices[0].contains(says), "{bad}: {:?}", table.notices);
        }
        // Without any header that can be read, the error of the disk is told.
        let error = disk.read_but(&[block, DISK - 1], Some(u32::try_from(block).unwrap()));
        assert!(matches!(error, Err(TableError::Io(_))), "{error:?}");
        let mut wrong = disk.clone();
        wrong.0[usize::try_from(DISK - block).unwrap() + 50] ^= 4;
        let error = wrong.read_but(&[block], Some(u32::try_from(block).unwrap())).unwrap_err();
        let says = error.to_string();
        assert!(says.contains("first header cannot be read: bad sector; second header"), "{says}");
    }
    let mut disk = Disk::new();
    disk.entry(0, 0, 0xfd, 2048, 100).entry(0, 1, 5, 4096, 4096);
    disk.entry(4096 * 512, 0, 0xfd, 8, 16).entry(4096 * 512, 1, 5, 100, 50);
    let both = disk.read_but(&[], Some(512)).unwrap();
    assert_eq!(both.partitions.iter().map(|it| it.number).collect::<Vec<_>>(), [1, 2, 5]);
    let first = disk.read_but(&[4096 * 512], Some(512)).unwrap();
    assert_eq!(first.partitions.iter().map(|it| it.number).collect::<Vec<_>>(), [1, 2]);
    assert!(first.notices.iter().any(|it| it.contains("which cannot be read: bad sector")));
    let error = disk.read_but(&[0], Some(512)).unwrap_err();
    assert!(matches!(error, TableError::Io(_)), "{error:?}");
}

#[test]
fn the_boot_sector_decides_which_table_counts_as_for_the_kernel() {
    let mut disk = Disk::new();
    disk.gpt(512, &[(1, 2048, 4095)]);
    disk.entry(0, 1, 0xfd, 2048, 100);
    let hybrid = disk.read(None).unwrap();
    assert_eq!(places(&hybrid), [(1, 1 << 20, 1 << 20)]);
    assert!(hybrid.notices[0].contains("hybrid"), "{:?}", hybrid.notices);
    disk.entry(0, 0, 0x83, 4096, 10);
    let plain = disk.read(None).unwrap();
    assert_eq!((plain.scheme, places(&plain)[0]), (Scheme::Mbr, (1, 2 << 20, 5120)));
    assert!(plain.notices.iter().any(|notice| notice.contains("GUID")), "{:?}", plain.notices);
    disk.put(510, &[0, 0]);
    assert_eq!(disk.read(None).unwrap().scheme, Scheme::Gpt);
    disk = Disk::new();
    assert!(matches!(disk.read(None), Err(TableError::Nothing)));
    disk.entry(0, 0, KIND_PROTECTIVE, 1, 100);
    assert!(matches!(disk.read(None), Err(TableError::Damaged { .. })));
    // The boot sector of a FAT file system is signed as well.
    disk.0[446] = 0x33;
    assert!(matches!(disk.read(None), Err(TableError::Nothing)));
}

#[test]
fn logical_partitions_are_numbered_along_their_chain() {
    let mut disk = Disk::new();
    disk.entry(0, 0, 0xfd, 2048, 1000).entry(0, 3, 0x0f, 4096, 8192);
    let at = |block: u64| block * 512;
    // In the order of the chain, which differs from that of the offsets.
    disk.entry(at(4096), 0, 0xfd, 63, 500).entry(at(4096), 1, 5, 4000, 1000);
    disk.entry(at(8096), 0, 0x83, 63, 600).entry(at(8096), 1, 5, 1000, 1000);
    disk.entry(at(5096), 0, 0x83, 63, 700);
    let table = disk.read(None).unwrap();
    let expected = [
        (1, at(2048), at(1000)),
        (4, at(4096), at(8192)),
        (5, at(4096 + 63), at(500)),
        (6, at(8096 + 63), at(600)),
        (7, at(5096 + 63), at(700)),
    ];
    assert_eq!(places(&table), expected);
    assert!(table.partitions[1].is_extended && table.notices.is_empty(), "{table:?}");
    assert!(
        table.summary().contains("5 (bytes 2129408+256000, Linux RAID)"),
        "{}",
        table.summary()
    );
}

#[test]
fn chains_that_do_not_end_end() {
    let (mut looped, mut outside, mut torn) = (Disk::new(), Disk::new(), Disk::new());
    for disk in [&mut looped, &mut outside, &mut torn] {
        disk.entry(0, 0, 5, 2048, 8192).entry(2048 * 512, 0, 0x83, 63, 500);
    }
    looped.entry(2048 * 512, 1, 5, 0, 8192);
    outside.entry(2048 * 512, 1, 5, u32::MAX, u32::MAX);
    torn.entry(2048 * 512, 1, 5, 1000, 1000);
    for (disk, says) in [(looped, "not end"), (outside, "beyond"), (torn, "no table")] {
        let table = disk.read(None).unwrap();
        assert_eq!(table.partitions.len(), 2);
        assert!(table.notices.iter().any(|notice| notice.contains(says)), "{:?}", table.notices);
    }
    // A chain of as many links as the disk has sectors, none of them twice.
    let mut long = Disk::new();
    long.entry(0, 0, 5, 1, 16_000);
    for link in 0..4000_u32 {
        let at = u64::from(1 + link) * 512;
        long.entry(at, 0, 0x83, 1, 1).entry(at, 1, 5, link + 1, 1);
    }
    let table = long.read(None).unwrap();
    assert_eq!(table.partitions.len(), 1 + LOGICAL_MAX);
}

#[test]
fn hostile_headers_are_damaged_and_nothing_more() {
    let huge = u64::MAX;
    for (array, entries, entry) in [
        (2, u32::MAX, 128),
        (2, u32::MAX, u32::MAX),
        (2, 128, 0),
        (2, 128, 127),
        (2, 128, 192),
        (2, 1, 8192),
        (huge, 128, 128),
        (huge / 512, 128, 128),
        (DISK / 512, 128, 128),
        (DISK / 512 - 1, 128, 128),
    ] {
        let mut disk = Disk::new();
        disk.entry(0, 0, KIND_PROTECTIVE, 1, u32::MAX);
        disk.put(512, &header(1, huge, array, entries, entry, 0));
        let error = disk.read(None).unwrap_err();
        assert!(matches!(error, TableError::Damaged { .. }), "{array} {entries} {entry}: {error}");
    }
    let mut disk = Disk::new();
    disk.gpt(512, &[(1, huge, huge), (2, 90, 80), (3, 0, huge), (4, 100, 1 << 40), (5, 9, 9)]);
    let table = disk.read(None).unwrap();
    assert_eq!(table.partitions.iter().map(|it| it.number).collect::<Vec<_>>(), [4, 5]);
    assert!(table.notices.iter().any(|notice| notice.contains("beyond the end")));
    disk.gpt(512, &[(1, 100, 200), (2, 150, 300)]);
    let table = disk.read(None).unwrap();
    assert_eq!(table.notices, ["partitions 1 and 2 overlap"]);
}

#[test]
fn no_byte_of_a_table_can_make_reading_fail_badly() {
    let mut gpt = Disk::new();
    gpt.gpt(512, &[(1, 2048, 4095)]);
    let mut mbr = Disk::new();
    mbr.entry(0, 1, 5, 2048, 8192).entry(2048 * 512, 0, 0x83, 63, 500);
    for mut disk in [gpt, mbr] {
        for at in (440..512).chain(512..512 + 92).chain((2048 * 512 + 440)..(2048 * 512 + 512)) {
            let before = disk.0[at];
            for value in [0, 1, 5, 0x7f, 0x80, 0xee, 0xff] {
                disk.0[at] = value;
                // The result does not matter here; the reader above asserts its bounds.
                let _ = disk.read(None);
                let _ = disk.read(Some(4096));
            }
            disk.0[at] = before;
        }
    }
    for size in [0, 1, 511, 512, 513, 1023, 1024, 4096, 8191] {
        let mut disk = Disk::new();
        disk.gpt(512, &[(1, 2048, 4095)]);
        disk.0.truncate(size);
        let _ = disk.read(None);
    }
}
