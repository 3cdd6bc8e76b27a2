//! Devices with their chunks and checksums: reads of tree blocks and data by logical address.
//!
//! Bytes with a wrong checksum are read from another copy, if the profile has one.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use super::block::{Block, Key, LEVEL_MAX};
use super::chunks::{Chunks, DevicePosition};
use super::kinds;
use super::superblock::{Root, Superblock};
use crate::source::{ReadError, Shared, Source, inside};
use crate::tree::TreeError;

/// Part of a tree that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lost {
    /// First key that may be in the part.
    pub(super) first: Key,
    /// First key behind the part; `None` if the part goes on to the end of the tree.
    pub(super) end: Option<Key>,
    /// Cause, as a message for the user.
    pub(super) why: String,
}

/// Devices of a file system, with the chunks on them and a cache of tree blocks.
pub(super) struct Volume {
    pub(super) superblock: Superblock,
    devices: BTreeMap<u64, Shared>,
    chunks: Chunks,
    /// Tree of checksums of data; `None` if its root was not found.
    pub(super) sums: Option<Root>,
    /// Items with checksums of data that only the logs have, by the logical address of the first
    /// sector.
    pub(super) log_sums: BTreeMap<u64, Vec<u8>>,
    blocks: RefCell<Blocks>,
}

/// Cache of tree blocks, each with the time of its last use.
#[derive(Default)]
struct Blocks {
    kept: BTreeMap<u64, (u64, Rc<Block>)>,
    clock: u64,
}

impl Volume {
    /// Reads the superblocks and the chunks of the devices. It is an error if a device is missing
    /// or the chunks cannot be read.
    pub(super) fn open(sources: &[Shared]) -> Result<Self, TreeError> {
        let mut devices = BTreeMap::new();
        let mut newest: Option<Superblock> = None;
        for source in sources {
            let found = Superblock::read(&**source)?;
            if newest.as_ref().is_some_and(|it| it.uuid != found.uuid) {
                return Err(TreeError::Refused("devices of several file systems".into()));
            }
            devices.insert(found.device, Rc::clone(source));
            if newest.as_ref().is_none_or(|it| it.generation < found.generation) {
                newest = Some(found);
            }
        }
        let Some(superblock) = newest else {
            return Err(TreeError::Refused("no device".into()));
        };
        if superblock.devices > devices.len() as u64 {
            return Err(TreeError::Refused(format!(
                "btrfs on {} devices, of which {} are here: it is read when all are",
                superblock.devices,
                devices.len()
            )));
        }
        let mut volume = Self {
            superblock,
            devices,
            chunks: Chunks::default(),
            sums: None,
            log_sums: BTreeMap::new(),
            blocks: RefCell::default(),
        };
        volume.chunks.add_system(&volume.superblock.system_chunks)?;
        let mut chunks = volume.chunks.clone();
        let mut wrong = None;
        let whole = Key::new(0, 0, 0)..=Key::new(u64::MAX, u8::MAX, u64::MAX);
        let lost = volume.scan(&volume.superblock.chunks, whole, &mut |key, item| {
            if key.kind == kinds::CHUNK_ITEM
                && let Err(error) = chunks.add(key.offset, item)
            {
                wrong.get_or_insert(error);
            }
            true
        });
        if let Some(lost) = lost.into_iter().next() {
            return Err(TreeError::Refused(format!("tree of chunks: {}", lost.why)));
        }
        if let Some(error) = wrong {
            return Err(error);
        }
        volume.chunks = chunks;
        Ok(volume)
    }

    /// Reads bytes that are contiguous on one device.
    fn read_place(&self, place: DevicePosition, into: &mut [u8]) -> Result<(), String> {
        match self.devices.get(&place.device) {
            Some(device) => device.read_at(place.at, into).map_err(|error| error.to_string()),
            None => Err(format!("device {} is not here", place.device)),
        }
    }

    /// The block that `root` names, from the cache or from the first copy with the right checksum,
    /// generation and level. The error says what is wrong with the first copy.
    fn block(&self, root: &Root) -> Result<Rc<Block>, String> {
        let Root { at, generation, level } = *root;
        let wrong = |why: &str| format!("block at logical address {at}: {why}");
        let fits = |block: &Block| match (block.generation, block.level) {
            found if found == (generation, level) => Ok(()),
            (found, its) => Err(format!(
                "found generation {found} and level {its}, expected {generation} and {level}"
            )),
        };
        let mut blocks = self.blocks.borrow_mut();
        blocks.clock += 1;
        let clock = blocks.clock;
        if let Some((used, block)) = blocks.kept.get_mut(&at) {
            *used = clock;
            return fits(block).map(|()| Rc::clone(block)).map_err(|why| wrong(&why));
        }
        let bytes = self.superblock.node_bytes;
        let copies = self.chunks.copies(at).map_err(|error| error.to_string())?;
        if !at.is_multiple_of(self.superblock.sector_bytes) || copies.len < bytes {
            return Err(wrong("its address is not one of a block"));
        }
        let mut first = None;
        for place in copies.places {
            let mut read = vec![0; usize::try_from(bytes).unwrap_or(0)];
            let block = self
                .read_place(place, &mut read)
                .and_then(|()| Block::parse(&self.superblock, at, read))
                .and_then(|block| fits(&block).map(|()| Rc::new(block)));
            match block {
                Ok(block) => {
                    blocks.keep(at, &block);
                    return Ok(block);
                }
                Err(why) => {
                    first.get_or_insert(why);
                }
            }
        }
        Err(wrong(&first.unwrap_or_default()))
    }

    /// Calls `visit` for the items of a tree with keys in the range, in ascending order, until
    /// `visit` returns false. Returns the parts of the tree that cannot be read; their items are
    /// not visited.
    pub(super) fn scan(
        &self,
        root: &Root,
        range: std::ops::RangeInclusive<Key>,
        visit: &mut dyn FnMut(Key, &[u8]) -> bool,
    ) -> Vec<Lost> {
        let mut lost = Vec::new();
        if root.level > LEVEL_MAX {
            let why = format!("found a tree of {} levels, expected at most 8", root.level);
            return vec![Lost { first: *range.start(), end: None, why }];
        }
        let walk = Walk { volume: self, range: &range };
        walk.block(root, (None, None), visit, &mut lost);
        lost
    }

    /// Calls `visit` for the items with checksums of the sectors of a range, and perhaps for items
    /// before it. Returns the parts of the tree that cannot be read; their items are not visited.
    fn scan_sums(&self, range: &Range<u64>, visit: &mut dyn FnMut(Key, &[u8])) -> Vec<Lost> {
        let Some(root) = &self.sums else { return Vec::new() };
        let first = Key::new(kinds::SUMS, kinds::EXTENT_CSUM, self.first_sums_of(range.start));
        let last = Key::new(kinds::SUMS, kinds::EXTENT_CSUM, range.end.saturating_sub(1));
        self.scan(root, first..=last, &mut |key, item| {
            visit(key, item);
            true
        })
    }

    /// Least address at which an item with the checksum of a sector may begin: an item has at most
    /// the sums that a leaf has room for.
    fn first_sums_of(&self, sector: u64) -> u64 {
        let most = self.superblock.node_bytes / self.superblock.sum.len() as u64;
        sector.saturating_sub(most * self.superblock.sector_bytes)
    }

    /// First part of the checksum tree that may have sums of a range and cannot be read; `None` if
    /// all can be read.
    pub(super) fn lost_sums(&self, range: &Range<u64>) -> Option<Lost> {
        let start = Key::new(kinds::SUMS, kinds::EXTENT_CSUM, range.start);
        let mut lost = self.scan_sums(range, &mut |_, _| ()).into_iter();
        lost.find(|lost| lost.end.is_none_or(|end| end > start))
    }

    /// Checksums of the sectors of a range, by their logical address.
    fn data_sums(&self, range: &Range<u64>) -> BTreeMap<u64, Vec<u8>> {
        let (sector, len) = (self.superblock.sector_bytes, self.superblock.sum.len());
        let mut sums = BTreeMap::new();
        let mut add = |first: u64, item: &[u8]| {
            for (sum, at) in item.chunks_exact(len).zip((first..).step_by(step(sector))) {
                if range.contains(&at) {
                    sums.insert(at, sum.to_vec());
                }
            }
        };
        self.scan_sums(range, &mut |key, item| add(key.offset, item));
        for (first, item) in self.log_sums.range(self.first_sums_of(range.start)..range.end) {
            add(*first, item);
        }
        sums
    }

    /// Number of bytes from a logical address on, at most `len`, that lie on a device. Bytes in no
    /// chunk, and bytes behind the end of a device that was cut off, end the count.
    pub(super) fn reach(&self, address: u64, len: u64) -> u64 {
        let mut done = 0;
        while done < len {
            let Ok(copies) = self.chunks.copies(address.saturating_add(done)) else { break };
            let left = |place: &DevicePosition| {
                let size = self.devices.get(&place.device).map_or(0, |device| device.size());
                size.saturating_sub(place.at)
            };
            let there = copies.places.iter().map(left).max().unwrap_or(0);
            done += copies.len.min(len - done).min(there);
            if there < copies.len {
                break;
            }
        }
        done
    }

    /// Reads whole sectors of data from the logical address `start` on, and compares the checksums
    /// of those that have one.
    fn read_sectors(&self, start: u64, into: &mut [u8]) -> Result<(), ReadError> {
        let sector = step(self.superblock.sector_bytes);
        let sums = self.data_sums(&(start..start + into.len() as u64));
        let is_right = |at: u64, bytes: &[u8]| {
            sums.get(&at).is_none_or(|sum| self.superblock.sum.of_bytes(bytes) == *sum)
        };
        let mut done = 0;
        while done < into.len() {
            let at = start + done as u64;
            let error = |why| ReadError { range: at..at + (into.len() - done) as u64, why };
            let copies = self.chunks.copies(at).map_err(|why| error(why.to_string()))?;
            let len = usize::try_from(copies.len).unwrap_or(usize::MAX).min(into.len() - done);
            if !len.is_multiple_of(sector) {
                return Err(error("found the end of a chunk within a sector".into()));
            }
            let part = &mut into[done..done + len];
            let Some(first) = copies.places.first() else { break };
            let is_read = self.read_place(*first, part).is_ok();
            for (bytes, offset) in part.chunks_mut(sector).zip((0..).step_by(sector)) {
                let at = at + offset;
                if is_read && is_right(at, bytes) {
                    continue;
                }
                self.read_sector(&copies.places, offset, bytes, &|bytes| is_right(at, bytes))
                    .map_err(|why| ReadError { range: at..at + sector as u64, why })?;
            }
            done += len;
        }
        Ok(())
    }

    /// Reads one sector from the first of its copies that is right, at `offset` from each of the
    /// places. The error is that of the first copy.
    fn read_sector(
        &self,
        places: &[DevicePosition],
        offset: u64,
        into: &mut [u8],
        is_right: &dyn Fn(&[u8]) -> bool,
    ) -> Result<(), String> {
        let mut first = None;
        for place in places {
            let place = DevicePosition { at: place.at.saturating_add(offset), ..*place };
            match self.read_place(place, into) {
                Ok(()) if is_right(into) => return Ok(()),
                Ok(()) => {
                    first.get_or_insert("the checksum is not that of the bytes".to_owned());
                }
                Err(why) => {
                    first.get_or_insert(why);
                }
            }
        }
        Err(first.unwrap_or_default())
    }
}

/// Source of the data of files, by logical address.
impl Source for Volume {
    fn size(&self) -> u64 {
        self.chunks.end()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), ReadError> {
        let range = inside(self.size(), offset, into.len() as u64)?;
        let sector = self.superblock.sector_bytes;
        let (start, end) = (range.start / sector * sector, range.end.next_multiple_of(sector));
        if start == range.start && end == range.end {
            return self.read_sectors(start, into);
        }
        let mut whole = vec![0; usize::try_from(end - start).unwrap_or(0)];
        self.read_sectors(start, &mut whole)?;
        let within = usize::try_from(range.start - start).unwrap_or(0);
        into.copy_from_slice(&whole[within..within + into.len()]);
        Ok(())
    }
}

impl Blocks {
    fn keep(&mut self, at: u64, block: &Rc<Block>) {
        if self.kept.len() >= BLOCKS_MAX {
            // Half of the blocks are dropped at once, so that the search for old blocks is rare.
            let mut uses: Vec<u64> = self.kept.values().map(|(used, _)| *used).collect();
            uses.sort_unstable();
            let middle = uses.get(uses.len() / 2).copied().unwrap_or(self.clock);
            self.kept.retain(|_, (used, _)| *used > middle);
        }
        self.kept.insert(at, (self.clock, Rc::clone(block)));
    }
}

/// Pass over the blocks of a tree that have keys in a range.
struct Walk<'w> {
    volume: &'w Volume,
    range: &'w std::ops::RangeInclusive<Key>,
}

impl Walk<'_> {
    /// Visits the block at `root` and the blocks below it. The first key of the block must be
    /// `first`, and all of its keys must be below `end`, where these bounds are given. The keys of
    /// sibling blocks do not overlap, so no block is visited twice; each step goes one level down,
    /// so the walk ends whatever the blocks hold. Returns false once `visit` has returned false.
    fn block(
        &self,
        root: &Root,
        (first, end): (Option<Key>, Option<Key>),
        visit: &mut dyn FnMut(Key, &[u8]) -> bool,
        lost: &mut Vec<Lost>,
    ) -> bool {
        let lost_count = lost.len();
        let mut fail = |why: String| {
            let first = first.unwrap_or(*self.range.start()).max(*self.range.start());
            match lost.last_mut() {
                // Further parts are joined to the last one, with everything in between.
                Some(last) if lost_count >= LOST_MAX => last.end = end,
                _ => lost.push(Lost { first, end, why }),
            }
            true
        };
        let block = match self.volume.block(root) {
            Ok(block) => block,
            Err(why) => return fail(why),
        };
        let is_within = block.count == 0
            || (first.is_none_or(|first| block.key(0) == first)
                && end.is_none_or(|end| block.key(block.count - 1) < end));
        if !is_within || (block.count == 0 && first.is_some()) {
            let why = "its keys are not those that the block above it names";
            return fail(format!("block at logical address {}: {why}", root.at));
        }
        for index in block.first_from(*self.range.start())..block.count {
            let key = block.key(index);
            if key > *self.range.end() {
                return true;
            }
            if block.level == 0 {
                if !visit(key, block.item(index)) {
                    return false;
                }
                continue;
            }
            let next = (index + 1 < block.count).then(|| block.key(index + 1)).or(end);
            let (at, generation) = block.pointer(index);
            let below = Root { at, generation, level: block.level - 1 };
            if !self.block(&below, (Some(key), next), visit, lost) {
                return false;
            }
        }
        true
    }
}

fn step(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Largest number of tree blocks in the cache: at most 32 MiB.
const BLOCKS_MAX: usize = 512;
/// Largest number of lost parts of a tree that are recorded one by one; further ones are joined to
/// the last.
const LOST_MAX: usize = 64;
