//! ext4 as evidence: blocks with a content that the superblock, a group descriptor or an inode
//! predicts. Each check is within one block of the file system and so on one member.
//!
//! Source   Linux documentation, "ext4 Data Structures and Algorithms"

use weft_ondisk::crc::crc32c_raw;
use weft_ondisk::ext::is_sparse_group;
use weft_units::fields::{le16, le32};

use super::inside::Check;

/// Fields of a superblock that the checks need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Super {
    pub(super) uuid: [u8; 16],
    block: u64,
    blocks: u64,
    first: u64,
    group_blocks: u64,
    group_inodes: u64,
    inode: usize,
    descriptor: usize,
    has_sums: bool,
    /// Checksum with which those of metadata begin: that of the UUID which the file system was made
    /// with.
    seed: u32,
    /// Block group in which this superblock, primary or backup, lies.
    group: u64,
}

/// Structure of ext4 that a check expects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Landmark {
    /// Backup of the superblock in this block group.
    Backup(u64),
    /// Block or inode bitmap: number of its bits, and number of bits that are 0.
    Bitmap(usize, u32),
    /// Block of group descriptors; the number is that of the first group described.
    Descriptors(u64),
    /// First block of the directory with this inode number.
    Folder(u32),
    /// Block of an inode table; the number is that of its first inode.
    Inodes(u64),
    /// Last block of a file: the first bytes, as many as given, are the file's, and the rest are
    /// zeros.
    Tail(usize),
}

impl Super {
    /// Parses a superblock; `None` if the bytes are not a plausible one.
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < 1024 || le16(bytes, 56) != 0xef53 {
            return None;
        }
        let (incompatible, log) = (le32(bytes, 0x60), le32(bytes, 24));
        let has_sums = le32(bytes, 0x64) & 0x400 != 0;
        if has_sums && crc32c_raw(u32::MAX, &bytes[..1020]) != le32(bytes, 1020) {
            return None;
        }
        let wide = incompatible & 0x80 != 0;
        let high = if wide { u64::from(le32(bytes, 0x150)) << 32 } else { 0 };
        let found = Self {
            uuid: bytes[0x68..0x78].try_into().ok()?,
            block: 1024 << (log.min(7)),
            blocks: high | u64::from(le32(bytes, 4)),
            first: le32(bytes, 20).into(),
            group_blocks: le32(bytes, 32).into(),
            group_inodes: le32(bytes, 40).into(),
            inode: if le32(bytes, 0x4c) == 0 { 128 } else { le16(bytes, 0x58).into() },
            descriptor: if wide { le16(bytes, 0xfe).into() } else { 32 },
            has_sums,
            seed: match incompatible & 0x2000 {
                0 => crc32c_raw(u32::MAX, &bytes[0x68..0x78]),
                _ => le32(bytes, 0x270),
            },
            group: le16(bytes, 0x5a).into(),
        };
        let is_sane = log <= 2
            && (1..=8 * found.block).contains(&found.group_blocks)
            && (1..=8 * found.block).contains(&found.group_inodes)
            && [128, 256, 512, 1024].contains(&found.inode)
            && [32, 64].contains(&found.descriptor)
            && found.blocks > found.first
            && found.group < found.groups()
            && found.blocks < 1 << 48;
        is_sane.then_some(found)
    }

    /// Byte offset of this superblock in the file system.
    pub(super) fn place(&self) -> u64 {
        match self.group {
            0 => 1024,
            group => (self.first + group * self.group_blocks) * self.block,
        }
    }

    /// Size of the file system in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.blocks * self.block
    }

    fn groups(&self) -> u64 {
        (self.blocks - self.first).div_ceil(self.group_blocks)
    }

    fn check(&self, block: u64, weight: u64, what: Landmark) -> Check<Landmark> {
        let len = usize::try_from(self.block).unwrap_or(4096);
        Check { at: block * self.block, len, weight, what }
    }

    /// Checks that follow from the superblock: its backups, and the group descriptors.
    pub(super) fn checks(&self) -> Vec<Check<Landmark>> {
        let groups = self.groups().min(GROUPS_MAX);
        let copies = (1..groups).filter(|it| is_sparse_group(*it)).take(64).map(|group| {
            let block = self.first + group * self.group_blocks;
            let check = self.check(block, 4, Landmark::Backup(group));
            Check { len: 1024, ..check }
        });
        let each = self.block / self.descriptor as u64;
        let tables = self.groups().div_ceil(each).min(64);
        let table = |it| self.check(self.first + 1 + it, 4, Landmark::Descriptors(it * each));
        // Backups and tables alternate, so that even the first few checks lie in many places.
        let mut tables = (0..tables).map(table);
        let mut checks = Vec::new();
        for copy in copies {
            checks.push(copy);
            checks.extend(tables.next());
        }
        checks.extend(tables);
        checks
    }

    /// Whether `bytes` are the structure that the check expects.
    pub(super) fn holds(&self, what: &Landmark, bytes: &[u8]) -> bool {
        match *what {
            Landmark::Backup(group) => {
                le16(bytes, 56) == 0xef53
                    && u64::from(le16(bytes, 0x5a)) == group & 0xffff
                    && bytes[0x68..0x78] == self.uuid
            }
            Landmark::Bitmap(bits, zeros) => {
                let ones: u32 = bytes[..bits / 8].iter().map(|byte| byte.count_ones()).sum();
                u32::try_from(bits).is_ok_and(|bits| bits - ones == zeros)
            }
            Landmark::Descriptors(first) => {
                let last = self.groups() - first;
                let all = bytes.chunks_exact(self.descriptor).zip(0..last);
                all.clone().count() > 0
                    && all.into_iter().all(|(it, _)| self.descriptor(it).is_some())
            }
            Landmark::Folder(inode) => {
                le32(bytes, 0) == inode && le16(bytes, 4) == 12 && bytes[6] == 1 && bytes[8] == b'.'
            }
            Landmark::Inodes(first) => {
                let mut seen = 0;
                for (inode, number) in bytes.chunks_exact(self.inode).zip(first..) {
                    if le16(inode, 0) == 0 {
                        continue;
                    }
                    let is_sane = matches!(le16(inode, 0) >> 12, 1 | 2 | 4 | 6 | 8 | 10 | 12);
                    if !is_sane || self.has_sums && !self.is_summed(inode, number) {
                        return false;
                    }
                    seen += 1;
                }
                seen > 0
            }
            Landmark::Tail(len) => {
                bytes[len - 1] != 0 && bytes[len..].iter().all(|byte| *byte == 0)
            }
        }
    }

    /// Block numbers of the block bitmap, inode bitmap and inode table in a group descriptor;
    /// `None` if they are not plausible.
    fn descriptor(&self, bytes: &[u8]) -> Option<[u64; 3]> {
        let wide = bytes.len() >= 64;
        let at = |low: usize| {
            let high = if wide { u64::from(le32(bytes, 32 + low)) << 32 } else { 0 };
            high | u64::from(le32(bytes, low))
        };
        let all = [at(0), at(4), at(8)];
        let is_sane = all.iter().all(|it| *it > self.first && *it < self.blocks)
            && all[0] != all[1]
            && all[1] != all[2];
        is_sane.then_some(all)
    }

    /// Whether the checksum of an inode, which covers its number, is right.
    fn is_summed(&self, inode: &[u8], number: u64) -> bool {
        let number = u32::try_from(number).unwrap_or(0);
        let sum = crc32c_raw(self.seed, &number.to_le_bytes());
        let sum = crc32c_raw(sum, &inode[100..104]);
        let mut zeroed = inode.to_vec();
        zeroed[124..126].fill(0);
        let is_wide = inode.len() > 132 && le16(inode, 128) >= 4;
        if is_wide {
            zeroed[130..132].fill(0);
        }
        let sum = crc32c_raw(sum, &zeroed);
        let low = u32::from(le16(inode, 124));
        if is_wide { sum == u32::from(le16(inode, 130)) << 16 | low } else { sum & 0xffff == low }
    }

    /// Checks that follow from a block that was found: `bytes` have passed the check of `what`.
    pub(super) fn further(&self, what: &Landmark, bytes: &[u8]) -> Vec<Check<Landmark>> {
        match *what {
            Landmark::Descriptors(first) => {
                let last = self.groups() - first;
                let all = bytes.chunks_exact(self.descriptor).zip(0..last);
                all.flat_map(|(it, group)| self.of_group(it, first + group)).collect()
            }
            Landmark::Inodes(first) => {
                let all = bytes.chunks_exact(self.inode).zip(first..);
                all.filter_map(|(inode, number)| self.of_inode(inode, number)).collect()
            }
            _ => Vec::new(),
        }
    }

    fn of_group(&self, bytes: &[u8], group: u64) -> Vec<Check<Landmark>> {
        let Some([blocks, inodes, table]) = self.descriptor(bytes) else { return Vec::new() };
        let (flags, mut checks) = (le16(bytes, 18), Vec::new());
        let bits = |count: u64| usize::try_from(count).unwrap_or(0);
        let is_last = group + 1 == self.groups();
        if flags & 2 == 0 && !is_last && self.group_blocks.is_multiple_of(8) {
            let what = Landmark::Bitmap(bits(self.group_blocks), le16(bytes, 12).into());
            checks.push(self.check(blocks, 2, what));
        }
        let free = u64::from(le16(bytes, 14));
        if flags & 1 == 0 && free < self.group_inodes {
            let zeros = u32::try_from(free).unwrap_or(0);
            checks.push(self.check(inodes, 2, Landmark::Bitmap(bits(self.group_inodes), zeros)));
            let each = self.block / self.inode as u64;
            let used = self.group_inodes.saturating_sub(le16(bytes, 28).into());
            let used = if flags & 4 == 0 { self.group_inodes - free } else { used };
            let count = used.div_ceil(each).min(48);
            checks.extend((0..count).map(|it| {
                self.check(
                    table + it,
                    2,
                    Landmark::Inodes(1 + group * self.group_inodes + it * each),
                )
            }));
        }
        checks
    }

    /// Check of the first block of a directory, or of the last block of a regular file. `None` if
    /// the inode gives no such block.
    fn of_inode(&self, inode: &[u8], number: u64) -> Option<Check<Landmark>> {
        // Only inodes with one to four extents within the inode are used.
        let count = usize::from(le16(inode, 42));
        if le16(inode, 40) != 0xf30a || le16(inode, 46) != 0 || !(1..=4).contains(&count) {
            return None;
        }
        let at = |extent: usize| {
            let byte = 52 + 12 * extent;
            let start = u64::from(le16(inode, byte + 6)) << 32 | u64::from(le32(inode, byte + 8));
            (u64::from(le32(inode, byte)), u64::from(le16(inode, byte + 4)), start)
        };
        let size = u64::from(le32(inode, 108)) << 32 | u64::from(le32(inode, 4));
        let is_there = |block: &u64| *block < self.blocks;
        match le16(inode, 0) >> 12 {
            4 => {
                let number = u32::try_from(number).ok()?;
                let block = Some(at(0).2).filter(is_there)?;
                Some(self.check(block, 3, Landmark::Folder(number)))
            }
            8 => {
                let (logical, len, start) = at(count - 1);
                let tail = usize::try_from(size % self.block).ok()?;
                let last = size / self.block;
                if len > 0x8000 || tail == 0 || tail as u64 + 16 > self.block {
                    return None;
                }
                let within = last.checked_sub(logical).filter(|it| *it < len)?;
                let block = Some(start + within).filter(is_there)?;
                Some(self.check(block, 2, Landmark::Tail(tail)))
            }
            _ => None,
        }
    }
}

/// Largest number of block groups that are searched for backups of the superblock: 16 TiB with
/// blocks of 4 KiB.
const GROUPS_MAX: u64 = 1 << 17;

#[cfg(test)]
mod tests {
    use weft_units::rng::Rng;

    use super::*;

    /// Superblock of 64 MiB in blocks of 4 KiB, without checksums.
    fn superblock() -> Vec<u8> {
        let mut bytes = vec![0; 1024];
        let mut put =
            |at: usize, value: u32| bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        put(4, 16_384);
        put(24, 2);
        put(32, 8192);
        put(40, 4096);
        put(56, 0xef53);
        put(0x4c, 1);
        put(0x58, 256);
        bytes
    }

    fn byte(rng: &mut Rng) -> u8 {
        // Extreme values are the ones that overflow.
        let all = [0, 1, 0x7f, 0x80, 0xff, rng.below(256).to_le_bytes()[0]];
        all[usize::try_from(rng.below(6)).unwrap()]
    }

    #[test]
    fn damaged_superblocks_and_blocks_are_judged_without_a_panic_or_endless_work() {
        let whole = Super::of(&superblock()).unwrap();
        assert_eq!((whole.groups(), whole.checks().len()), (2, 2));
        let mut rng = Rng::new(5);
        let (mut read, mut held, mut further) = (0, 0, 0);
        for _ in 0..2000 {
            let mut bytes = superblock();
            for _ in 0..rng.below(12) {
                let at = usize::try_from(rng.below(0x180)).unwrap();
                bytes[at] = byte(&mut rng);
            }
            let Some(found) = Super::of(&bytes) else { continue };
            read += 1;
            let mut checks = found.checks();
            let mut done = 0;
            while let Some(check) = checks.get(done).cloned().filter(|_| done < 200) {
                done += 1;
                let mut block: Vec<u8> = (0..check.len).map(|_| byte(&mut rng)).collect();
                if rng.below(2) == 0 {
                    block.fill(0);
                    block[..64].iter_mut().for_each(|it| *it = byte(&mut rng));
                }
                held += u32::from(found.holds(&check.what, &block));
                let more = found.further(&check.what, &block);
                further += more.len();
                checks.extend(more);
            }
        }
        println!("{read} {held} {further}");
        assert!(read > 200 && held > 100 && further > 1000, "{read} {held} {further}");
    }
}
