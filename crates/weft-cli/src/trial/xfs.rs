//! XFS as evidence: the four headers of each allocation group, blocks of its trees, inodes,
//! directories and the ends of files.
//!
//! Source   "XFS Algorithms & Data Structures", "Allocation Groups", "On-disk Inode", "Directories"

use weft_units::fields::{be16, be32, be64};

use super::inside::Check;

/// Fields of a superblock that the checks need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Super {
    pub(super) uuid: [u8; 16],
    block: u64,
    blocks: u64,
    group_blocks: u64,
    groups: u64,
    /// Number of bits of a block number within an allocation group. An inode number within the
    /// group has `inodes_each_bits` more, which select an inode of the block.
    group_bits: u32,
    inodes_each_bits: u32,
    sector: u64,
    inode: u64,
    has_sums: bool,
    /// Allocation group in which this superblock, primary or backup, lies.
    group: u64,
    /// UUID in the headers of blocks and inodes. With [`META_UUID`] it differs from the UUID of the
    /// file system, `uuid`.
    block_uuid: [u8; 16],
}

/// Structure of XFS that a check expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Landmark {
    /// First block of a directory, which begins at this byte of the file system.
    Directory(u64),
    /// Header of an allocation group: magic of the header, and number of the group.
    Header([u8; 4], u64),
    /// Block of inodes; the number is that of its first inode.
    Inodes(u64),
    /// Copy of the superblock.
    Superblock,
    /// Last block of a file: the first bytes, as many as given, are the file's, and the rest are
    /// zeros.
    Tail(usize),
    /// Block of a B+tree of an allocation group, which begins at this byte of the file system.
    Tree(Tree, u64),
}

/// B+tree of an allocation group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tree {
    FreeByPlace,
    FreeBySize,
    Inodes,
}

impl Tree {
    /// Magic of the blocks of this tree; `has_sums` says whether the file system has checksums.
    fn magic(self, has_sums: bool) -> &'static [u8; 4] {
        match (self, has_sums) {
            (Self::FreeByPlace, false) => b"ABTB",
            (Self::FreeByPlace, true) => b"AB3B",
            (Self::FreeBySize, false) => b"ABTC",
            (Self::FreeBySize, true) => b"AB3C",
            (Self::Inodes, false) => b"IABT",
            (Self::Inodes, true) => b"IAB3",
        }
    }
}

impl Super {
    /// Parses a superblock; `None` if the bytes are not a plausible one.
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < 512 || !bytes.starts_with(b"XFSB") {
            return None;
        }
        let has_sums = be16(bytes, 100) & 15 == 5;
        let uuid: [u8; 16] = bytes[32..48].try_into().ok()?;
        let has_own = has_sums && be32(bytes, 216) & META_UUID != 0;
        let block_uuid = if has_own { bytes[248..264].try_into().ok()? } else { uuid };
        // The AGF in the next sector says to which allocation group the superblock belongs.
        let sector = usize::from(be16(bytes, 102));
        let behind = bytes.get(sector..).filter(|it| it.starts_with(b"XAGF"));
        let group = behind.map_or(0, |it| be32(it, 8).into());
        let found = Self {
            uuid,
            block: be32(bytes, 4).into(),
            blocks: be64(bytes, 8),
            group_blocks: be32(bytes, 84).into(),
            groups: be32(bytes, 88).into(),
            group_bits: bytes[124].into(),
            inodes_each_bits: bytes[123].into(),
            sector: sector as u64,
            inode: be16(bytes, 104).into(),
            has_sums,
            group,
            block_uuid,
        };
        let is_sane = found.block.is_power_of_two()
            && (512..=65536).contains(&found.block)
            && found.sector.is_power_of_two()
            && (512..=found.block).contains(&found.sector)
            && found.inode.is_power_of_two()
            && (256..=2048.min(found.block)).contains(&found.inode)
            && found.block == found.inode << found.inodes_each_bits.min(16)
            && (64..1 << 31).contains(&found.group_blocks)
            && found.group_bits <= 31
            && found.group_blocks <= 1 << found.group_bits
            && found.blocks < 1 << 46
            && found.blocks.div_ceil(found.group_blocks) == found.groups
            && found.group < found.groups;
        is_sane.then_some(found)
    }

    /// Byte offset of this superblock in the file system.
    pub(super) fn place(&self) -> u64 {
        self.byte(self.group, 0)
    }

    /// Size of the file system in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.blocks * self.block
    }

    /// Byte offset in the file system of a block of an allocation group.
    fn byte(&self, group: u64, block: u64) -> u64 {
        (group * self.group_blocks + block) * self.block
    }

    /// Checks that follow from the superblock: the headers of the allocation groups.
    pub(super) fn checks(&self) -> Vec<Check<Landmark>> {
        let sector = usize::try_from(self.sector).unwrap_or(512);
        let header = |group: u64, number: u64, what| {
            let at = self.byte(group, 0) + number * self.sector;
            Check { at, len: sector, weight: 4, what }
        };
        let of_group = |group| {
            let first = header(group, 0, Landmark::Superblock);
            let rest = [(1, *b"XAGF"), (2, *b"XAGI"), (3, *b"XAFL")];
            let rest = rest.map(|(at, magic)| header(group, at, Landmark::Header(magic, group)));
            let is_there = move |it: &Check<Landmark>| match it.what {
                Landmark::Header(magic, _) => self.has_sums || magic != *b"XAFL",
                _ => true,
            };
            std::iter::once(first).chain(rest).filter(is_there)
        };
        (0..self.groups.min(GROUPS_MAX)).flat_map(of_group).collect()
    }

    /// Whether `bytes` are the structure that the check expects.
    pub(super) fn holds(&self, what: &Landmark, bytes: &[u8]) -> bool {
        match *what {
            Landmark::Superblock => Self::of(bytes).is_some_and(|it| it.uuid == self.uuid),
            Landmark::Header(magic, group) => {
                // The AGFL has no version field before the number of its group.
                let number = if magic == *b"XAFL" { be32(bytes, 4) } else { be32(bytes, 8) };
                bytes.starts_with(&magic) && u64::from(number) == group
            }
            Landmark::Tree(tree, at) => {
                bytes.starts_with(tree.magic(self.has_sums))
                    && (!self.has_sums
                        || be64(bytes, 16) == at / 512 && bytes[32..48] == self.block_uuid)
            }
            Landmark::Inodes(first) => {
                let each = usize::try_from(self.inode).unwrap_or(512);
                bytes.chunks_exact(each).zip(first..).all(|(inode, number)| {
                    let is_own = !self.has_sums
                        || be64(inode, 152) == number && inode[160..176] == self.block_uuid;
                    inode.starts_with(b"IN") && inode[4] == 2 + u8::from(self.has_sums) && is_own
                })
            }
            Landmark::Directory(at) => match self.has_sums {
                true => {
                    (bytes.starts_with(b"XDB3") || bytes.starts_with(b"XDD3"))
                        && be64(bytes, 8) == at / 512
                        && bytes[24..40] == self.block_uuid
                }
                false => bytes.starts_with(b"XD2B") || bytes.starts_with(b"XD2D"),
            },
            Landmark::Tail(len) => {
                bytes[len - 1] != 0 && bytes[len..].iter().all(|byte| *byte == 0)
            }
        }
    }

    /// Checks that follow from a structure that was found: `bytes` have passed the check of `what`.
    pub(super) fn further(&self, what: &Landmark, bytes: &[u8]) -> Vec<Check<Landmark>> {
        match *what {
            Landmark::Header(magic, group) if magic == *b"XAGF" => {
                let roots =
                    [(be32(bytes, 16), Tree::FreeByPlace), (be32(bytes, 20), Tree::FreeBySize)];
                roots.into_iter().filter_map(|(at, tree)| self.tree(group, at, tree)).collect()
            }
            Landmark::Header(magic, group) if magic == *b"XAGI" => {
                self.tree(group, be32(bytes, 20), Tree::Inodes).into_iter().collect()
            }
            Landmark::Tree(Tree::Inodes, at) => self.inodes(at, bytes),
            Landmark::Inodes(_) => {
                let each = usize::try_from(self.inode).unwrap_or(512);
                bytes.chunks_exact(each).filter_map(|inode| self.of_inode(inode)).collect()
            }
            _ => Vec::new(),
        }
    }

    fn tree(&self, group: u64, block: u32, tree: Tree) -> Option<Check<Landmark>> {
        let block = Some(u64::from(block)).filter(|it| *it < self.group_blocks)?;
        let at = self.byte(group, block);
        Some(Check { at, len: self.block_len(), weight: 4, what: Landmark::Tree(tree, at) })
    }

    fn block_len(&self) -> usize {
        usize::try_from(self.block).unwrap_or(4096)
    }

    /// Checks that follow from a block of the inode B+tree: a leaf gives the blocks of inodes that
    /// it lists, an inner block gives the blocks of the tree that it points to.
    fn inodes(&self, at: u64, bytes: &[u8]) -> Vec<Check<Landmark>> {
        let group = at / self.block / self.group_blocks;
        let (level, count) = (be16(bytes, 4), usize::from(be16(bytes, 6)));
        let head = if self.has_sums { 56 } else { 16 };
        if level > 0 {
            // Keys fill the first half of the room, pointers the other one.
            let room = (bytes.len() - head) / 8;
            let pointers = bytes.get(head + 4 * room..).unwrap_or(&[]).chunks_exact(4).take(count);
            let pointers = pointers.map(|it| be32(it, 0));
            return pointers.filter_map(|it| self.tree(group, it, Tree::Inodes)).collect();
        }
        let records = bytes.get(head..).unwrap_or(&[]).chunks_exact(16).take(count);
        let each = 1_u64 << self.inodes_each_bits;
        let of_record = |record: &[u8]| {
            let first = u64::from(be32(record, 0));
            // A record has 64 inodes, less those that are marked as a hole, four by each bit.
            let holes = if self.has_sums { be16(record, 4) } else { 0 };
            let blocks = (0..64_u64).step_by(usize::try_from(each).unwrap_or(8));
            let is_there = move |it: &u64| holes >> (it / 4).min(15) & 1 == 0;
            let check = |it: u64| {
                let number = first + it;
                let block = number >> self.inodes_each_bits;
                let inode = group << (self.group_bits + self.inodes_each_bits) | number;
                (block < self.group_blocks).then(|| Check {
                    at: self.byte(group, block),
                    len: self.block_len(),
                    weight: 2,
                    what: Landmark::Inodes(inode),
                })
            };
            blocks.filter(is_there).filter_map(check).collect::<Vec<_>>()
        };
        records.flat_map(of_record).collect()
    }

    /// Check of the first block of a directory, or of the last block of a regular file. `None` if
    /// the inode gives no such block.
    fn of_inode(&self, inode: &[u8]) -> Option<Check<Landmark>> {
        let (mode, format, size) = (be16(inode, 2), inode[5], be64(inode, 56));
        let has_long_count = self.has_sums && be64(inode, 120) & LONG_COUNT != 0;
        let count = if has_long_count { be64(inode, 24) } else { be32(inode, 76).into() };
        let count = usize::try_from(count).unwrap_or(0);
        // Only inodes with a list of extents within the inode are used.
        let fork = inode.get(if self.has_sums { 176 } else { 100 }..)?;
        if format != 2 || count == 0 || count > fork.len() / 16 {
            return None;
        }
        let extent = |index: usize| {
            let (high, low) = (be64(fork, 16 * index), be64(fork, 16 * index + 8));
            let start = (high & 0x1ff) << 43 | low >> 21;
            ((high & !(1 << 63)) >> 9, start, low & 0x1f_ffff, high >> 63 != 0)
        };
        let place = |start: u64| {
            let (group, block) = (start >> self.group_bits, start & ((1 << self.group_bits) - 1));
            (group < self.groups && block < self.group_blocks).then(|| self.byte(group, block))
        };
        match mode >> 12 {
            4 => {
                let at = place(extent(0).1)?;
                Some(Check { at, len: self.block_len(), weight: 3, what: Landmark::Directory(at) })
            }
            8 => {
                let (logical, start, len, is_unwritten) = extent(count - 1);
                let tail = usize::try_from(size % self.block).ok()?;
                if is_unwritten || tail == 0 || tail as u64 + 16 > self.block {
                    return None;
                }
                let within = (size / self.block).checked_sub(logical).filter(|it| *it < len)?;
                let at = place(start + within)?;
                Some(Check { at, len: self.block_len(), weight: 2, what: Landmark::Tail(tail) })
            }
            _ => None,
        }
    }
}

/// Flag of an incompatible feature: blocks have a UUID of their own.
const META_UUID: u32 = 4;
/// Flag of an inode: the number of its extents is stored in 64 bits.
const LONG_COUNT: u64 = 0x10;
/// Largest number of allocation groups, from the first on, that are checked.
const GROUPS_MAX: u64 = 64;

#[cfg(test)]
mod tests {
    use weft_units::rng::Rng;

    use super::*;

    /// Superblock of four groups of 20,480 blocks of 4 KiB, with checksums.
    fn superblock() -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, b"XFSB");
        put(4, &4096_u32.to_be_bytes());
        put(8, &81_920_u64.to_be_bytes());
        put(32, &[7; 16]);
        put(84, &20_480_u32.to_be_bytes());
        put(88, &4_u32.to_be_bytes());
        put(100, &0xb4a5_u16.to_be_bytes());
        put(102, &512_u16.to_be_bytes());
        put(104, &512_u16.to_be_bytes());
        (bytes[123], bytes[124]) = (3, 15);
        bytes
    }

    fn byte(rng: &mut Rng) -> u8 {
        rng.pick(&[0, 1, 0x7f, 0x80, 0xff, rng.clone().below(256).to_le_bytes()[0]])
    }

    #[test]
    fn a_superblock_gives_the_headers_of_its_groups_and_a_copy_its_own_group() {
        let first = Super::of(&superblock()).unwrap();
        assert_eq!((first.bytes(), first.checks().len(), first.place()), (320 << 20, 16, 0));
        let mut copy = superblock();
        copy[512..516].copy_from_slice(b"XAGF");
        copy[523] = 2;
        assert_eq!(Super::of(&copy).unwrap().place(), 160 << 20);
        let header = &copy[512..1024];
        assert!(first.holds(&Landmark::Header(*b"XAGF", 2), header));
        assert!(!first.holds(&Landmark::Header(*b"XAGF", 3), header));
        for (at, value) in [(0, 0), (84, 1), (104, 7), (124, 3)] {
            let mut bytes = superblock();
            bytes[at] = value;
            assert_eq!(Super::of(&bytes), None, "byte {at}");
        }
    }

    #[test]
    fn damaged_blocks_are_judged_without_a_panic() {
        let mut rng = Rng::new(6);
        let (mut read, mut further) = (0, 0);
        for _ in 0..2000 {
            let mut bytes = superblock();
            for _ in 0..rng.below(4) {
                let at = rng.index(264);
                bytes[at] = byte(&mut rng);
            }
            let Some(found) = Super::of(&bytes) else { continue };
            read += 1;
            let mut checks = found.checks();
            let mut done = 0;
            while let Some(check) = checks.get(done).cloned().filter(|_| done < 100) {
                done += 1;
                let mut block: Vec<u8> = vec![0; check.len];
                for word in block.chunks_mut(8) {
                    word.copy_from_slice(&rng.next_u64().to_le_bytes()[..word.len()]);
                }
                for _ in 0..block.len() / 8 {
                    let at = rng.index(block.len());
                    block[at] = byte(&mut rng);
                }
                if let Landmark::Header(magic, _) = check.what {
                    block[..4].copy_from_slice(&magic);
                }
                // Numbers of blocks that are in a group, so that trees have inodes.
                block[16..20].copy_from_slice(&100_u32.to_be_bytes());
                block[20..24].copy_from_slice(&200_u32.to_be_bytes());
                let _ = found.holds(&check.what, &block);
                let more = found.further(&check.what, &block);
                further += more.len();
                checks.extend(more);
            }
        }
        assert!(read > 200 && further > 1000, "{read} {further}");
    }
}
