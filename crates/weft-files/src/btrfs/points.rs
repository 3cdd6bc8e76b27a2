//! Points of a btrfs: tree blocks and sectors of data, as other blocks name them by address and
//! checksum.
//!
//! This module reads no device. The bytes of one superblock give the positions of the next blocks,
//! and the bytes of a block give those of the blocks and sectors below it. A file system can
//! therefore be recognised on an array with a geometry that is not known yet.

use super::block::{Block, Key};
use super::chunks::Chunks;
use super::kinds;
use super::subvolumes::root_of;
use super::superblock::Superblock;
use crate::bytes::{le64, part};

/// Parts of a btrfs that are known so far: its superblock, its chunks, and points in chunks that
/// are not known yet.
#[derive(Clone, Debug)]
pub struct Points {
    superblock: Superblock,
    chunks: Chunks,
    /// Points in chunks that are not known yet.
    waiting: Vec<Point>,
}

/// Tree block or sector of data that another block names, by its logical address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Point {
    /// Tree block: its logical address.
    Block(u64),
    /// Sector of data: its logical address, and its checksum.
    Sector(u64, Vec<u8>),
}

impl Points {
    /// Reads a superblock. `None` if the bytes are not a superblock, or if the file system has
    /// several devices, because a block may then be on another device.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let superblock = Superblock::parse(le64(part(bytes, 0x30, 8), 0), bytes).ok()?;
        if superblock.devices != 1 || !Superblock::PLACES.contains(&superblock.place) {
            return None;
        }
        let mut chunks = Chunks::default();
        chunks.add_system(&superblock.system_chunks).ok()?;
        Some(Self { superblock, chunks, waiting: Vec::new() })
    }

    /// Byte offset of the superblock in the file system, as the superblock records it.
    #[must_use]
    pub fn place(&self) -> u64 {
        self.superblock.place
    }

    /// UUID of the file system.
    #[must_use]
    pub fn uuid(&self) -> [u8; 16] {
        self.superblock.uuid
    }

    /// Size of the file system in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.superblock.total_bytes
    }

    /// Size of a tree block and of a sector of data, in bytes.
    #[must_use]
    pub fn lens(&self) -> (u64, u64) {
        (self.superblock.node_bytes, self.superblock.sector_bytes)
    }

    /// Byte offsets of the superblocks that lie within the file system.
    pub fn superblocks(&self) -> impl Iterator<Item = u64> {
        let size = self.size();
        Superblock::PLACES.into_iter().filter(move |place| place + Superblock::BYTES <= size)
    }

    /// Whether the bytes are a superblock of this file system that records `place` as its byte
    /// offset.
    #[must_use]
    pub fn is_superblock(&self, place: u64, bytes: &[u8]) -> bool {
        Superblock::parse(place, bytes).is_ok_and(|it| it.uuid == self.superblock.uuid)
    }

    /// Root blocks of the chunk tree and of the root tree, as far as their chunks are known.
    #[must_use]
    pub fn roots(&mut self) -> Vec<Point> {
        let roots = [self.superblock.chunks.at, self.superblock.roots.at];
        self.known(roots.map(Point::Block).to_vec())
    }

    /// Byte offsets of a point, one for each copy. Empty for a point in no known chunk, or in a
    /// chunk of a profile with parity.
    #[must_use]
    pub fn places(&self, point: &Point) -> Vec<u64> {
        let (Point::Block(at) | Point::Sector(at, _)) = point;
        let copies = self.chunks.copies(*at);
        copies.map_or(Vec::new(), |it| it.places.iter().map(|place| place.at).collect())
    }

    /// Whether the bytes may be the first ones of the block at a logical address.
    #[must_use]
    pub fn begins(&self, at: u64, bytes: &[u8]) -> bool {
        part(bytes, 0x20, 16) == self.superblock.block_uuid
            && part(bytes, 0x30, 8) == at.to_le_bytes()
    }

    /// Whether the bytes are the tree block or sector of a point.
    #[must_use]
    pub fn holds(&self, point: &Point, bytes: &[u8]) -> bool {
        match point {
            Point::Block(at) => Block::parse(&self.superblock, *at, bytes.to_vec()).is_ok(),
            Point::Sector(_, sum) => self.superblock.sum.of_bytes(bytes) == *sum,
        }
    }

    /// Points that the tree block at the logical address `at`, with these bytes, names. A block of
    /// the chunk tree also gives the earlier points in its chunks. Empty for bytes that are not
    /// this tree block.
    pub fn below(&mut self, at: u64, bytes: &[u8]) -> Vec<Point> {
        let Ok(block) = Block::parse(&self.superblock, at, bytes.to_vec()) else {
            return Vec::new();
        };
        let mut points = std::mem::take(&mut self.waiting);
        for index in 0..block.count {
            if block.level > 0 {
                points.push(Point::Block(block.pointer(index).0));
                continue;
            }
            let (key, item) = (block.key(index), block.item(index));
            match key.kind {
                kinds::CHUNK_ITEM => {
                    // A chunk that contradicts others is ignored, and so are the points in it.
                    let _ = self.chunks.add(key.offset, item);
                }
                kinds::ROOT_ITEM => {
                    points.extend(root_of(item).map(|root| Point::Block(root.at)));
                }
                kinds::EXTENT_CSUM => points.extend(self.some_sectors(key, item)),
                _ => {}
            }
        }
        self.known(points)
    }

    /// Some of the sectors that an item of checksums covers, spread over the item.
    fn some_sectors(&self, key: Key, item: &[u8]) -> Vec<Point> {
        let len = self.superblock.sum.len();
        let step = (item.len() / len).div_ceil(SECTORS_EACH).max(1);
        let sums = item.chunks_exact(len).zip(0_u64..).step_by(step);
        let address =
            |number: u64| key.offset.checked_add(number.checked_mul(self.superblock.sector_bytes)?);
        sums.filter_map(|(sum, number)| Some(Point::Sector(address(number)?, sum.to_vec())))
            .collect()
    }

    /// Returns the points that lie in known chunks, and keeps the others until their chunks are
    /// known.
    fn known(&mut self, points: Vec<Point>) -> Vec<Point> {
        let (known, waiting) = points.into_iter().partition(|it| !self.places(it).is_empty());
        self.waiting = waiting;
        self.waiting.truncate(WAITING_MAX);
        known
    }
}

/// Largest number of sectors that are taken from one item of checksums.
const SECTORS_EACH: usize = 16;
/// Largest number of points that are kept until their chunks are known.
const WAITING_MAX: usize = 4096;
