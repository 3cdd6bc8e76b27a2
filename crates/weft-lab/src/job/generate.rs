//! Generator of a job's requests, in order.
//!
//! A pass covers the region once; passes follow each other until all bytes are done, or forever if
//! the job is `time_based`. Each random block is used once per pass, except with `norandommap`,
//! `blockalign`, other distributions or a `percentage_random` below 100, as in fio; a request is
//! cut where a used block begins. No request exceeds the region. Pauses and rates are left to the
//! runner.
//!
//! Differences from fio: fio's numbers come from other generators, so single offsets differ while
//! counts, shares and the set of offsets agree (compared with fio 3.33 in a test); fio lets a
//! sequential job's last block of an odd size exceed the region, and ends `randwrite:n` early; and
//! the first pass of a job backwards (`read:-8k`) with an `offset` begins elsewhere in fio.

use super::distribution::Draw;
use super::rng::Rng;
use super::{Blocks, Direction, Distribution, Job, JobError};
use weft_units::Bytes;

/// Largest number of blocks in a map: 256 TiB in blocks of 4 KiB. A map of this size takes 256 MiB
/// at first and grows with the blocks that are used.
const MAP_BLOCKS_MAX: u64 = 1 << 36;

/// A request that a clone of a job issues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Io {
    /// A call of fdatasync.
    DataSync,
    /// A call of fsync.
    Sync,
    /// A read, write or trim.
    Transfer {
        /// Direction of the transfer.
        direction: Direction,
        /// Offset of the first byte on the volume.
        offset: Bytes,
        /// Length in bytes.
        length: Bytes,
    },
}

/// Generator of the requests of one clone of a job.
///
/// The sequence is a function of job, clone, volume and seed, the same on every machine. `randseed`
/// in the job replaces the seed.
#[derive(Clone, Debug)]
pub struct Generator {
    /// First byte of the region on the volume; `length` is its size.
    start: u64,
    length: u64,
    /// Bytes left to transfer; `None` if the job is endless.
    left: Option<u64>,
    /// Bytes to transfer in one of the job's `loops`.
    per_loop: u64,
    directions: Vec<Direction>,
    read_percent: u8,
    blocks: [Blocks; 3],
    align: [u64; 3],
    grain: u64,
    random: bool,
    random_percent: u8,
    step: u64,
    /// Bytes from the end of a sequential request back to the start of the next; 0 if the job goes
    /// forwards.
    back: u64,
    /// Sequential requests that are left before the next request at a random offset.
    following: u64,
    /// Next offset of each direction, in bytes from the start of the region.
    next: [u64; 3],
    draw: Draw,
    uniform: bool,
    map: Option<Map>,
    fsync: u64,
    fdatasync: u64,
    final_syncs: u32,
    writes: u64,
    queued: Vec<Io>,
    offsets: Rng,
    sizes: Rng,
    mix: Rng,
}

/// Part of the volume that a clone works on.
struct Region {
    start: u64,
    length: u64,
    /// Bytes to transfer in each loop, unless `io_size` says otherwise.
    size: u64,
}

impl Region {
    /// The region of a clone (0-based) on a volume of `volume` bytes. Fails if the job has several
    /// files, or if the region is empty or does not fit the volume.
    fn of(job: &Job, clone: u32, volume: Bytes) -> Result<Self, JobError> {
        let target = &job.target;
        if target.filenames.len() > 1 || target.file_count > 1 {
            let found = target.filenames.len().max(target.file_count as usize);
            let option = if target.file_count > 1 { "nrfiles" } else { "filename" };
            return Err(fault(job, option, format!("{found} files"), "one, the volume"));
        }
        let bytes = |size: Option<super::Size>| size.map(|size| size.of(volume).0);
        let increment = bytes(target.offset_increment).unwrap_or(0);
        let start = increment
            .checked_mul(u64::from(clone))
            .and_then(|more| more.checked_add(bytes(target.offset).unwrap_or(0)));
        let start = start.filter(|start| *start < volume.0).ok_or_else(|| {
            fault(job, "offset", format!("clone {clone} beyond the end"), "a place on the volume")
        })?;
        let room = volume.0 - start;
        let size = bytes(target.size).unwrap_or(room);
        let length = target.file_size.map_or(size, |size| size.0 - start.min(size.0));
        if length > room || length == 0 {
            let found = format!("{length} bytes from byte {start}");
            let expected = format!("1..={room} bytes on a volume of {} bytes", volume.0);
            return Err(fault(job, "size", found, &expected));
        }
        Ok(Self { start, length, size })
    }
}

/// Error of an option that does not fit the volume.
fn fault(job: &Job, option: &str, found: String, expected: &str) -> JobError {
    JobError::Job {
        job: job.name.clone(),
        option: option.to_owned(),
        found,
        expected: expected.to_owned(),
    }
}

impl Generator {
    /// The requests of clone `clone` (0-based) on a volume of `volume` bytes.
    ///
    /// # Errors
    /// The job does not fit the volume, or has several files.
    pub fn new(job: &Job, clone: u32, volume: Bytes, seed: u64) -> Result<Self, JobError> {
        let pattern = &job.pattern;
        let fault = |option, found, expected: &str| fault(job, option, found, expected);
        let Region { start, length, size } = Region::of(job, clone, volume)?;
        let blocks = pattern.blocks.clone();
        let used = |at: usize| pattern.directions.iter().any(|d| *d as usize == at);
        let smallest = (0..3).filter(|at| used(*at)).map(|at| blocks[at].smallest().0);
        let grain = smallest.min().filter(|grain| *grain > 0).expect("a size above 0");
        if grain > length {
            let expected = format!("at most the region of {length} bytes");
            return Err(fault("bs", format!("{grain} bytes"), &expected));
        }
        let align = match pattern.block_align {
            Some(align) => align.map(|align| align.0),
            None => blocks.each_ref().map(|blocks| blocks.smallest().0),
        };
        let uniform = pattern.distribution == Distribution::Uniform;
        let mapped = pattern.random
            && pattern.random_map
            && pattern.block_align.is_none()
            && pattern.random_percent == 100
            && uniform;
        let count = length / grain;
        if mapped && count > MAP_BLOCKS_MAX {
            let expected = format!("at most {MAP_BLOCKS_MAX} blocks, or norandommap");
            return Err(fault("bs", format!("{count} blocks"), &expected));
        }
        let total = job.target.io_size.map_or(size, |size| size.of(volume).0);
        let seed = pattern.seed.unwrap_or(seed);
        let mut seeds = Rng::new(seed ^ u64::from(clone).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let (offsets, sizes, mix) =
            (Rng::new(seeds.next()), Rng::new(seeds.next()), Rng::new(seeds.next()));
        // All clones share the same popular blocks.
        let draw = Draw::new(&pattern.distribution, count, Rng::new(seed).next());
        let durability = &job.durability;
        Ok(Self {
            start,
            length,
            left: (!job.pace.time_based).then_some(total.saturating_mul(job.loops)),
            per_loop: total,
            directions: pattern.directions.clone(),
            read_percent: pattern.read_percent,
            blocks,
            align,
            grain,
            random: pattern.random,
            random_percent: pattern.random_percent,
            step: pattern.step.max(0).unsigned_abs(),
            back: pattern.step.min(0).unsigned_abs(),
            following: 0,
            next: [0; 3],
            draw,
            uniform,
            map: mapped.then(|| Map::new(count)),
            fsync: durability.fsync,
            fdatasync: durability.fdatasync,
            final_syncs: u32::from(durability.end_fsync) + u32::from(durability.fsync_on_close),
            writes: 0,
            queued: Vec::new(),
            offsets,
            sizes,
            mix,
        })
    }

    /// Number of bytes left to transfer; `None` if the job is endless.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        self.left
    }

    fn direction(&mut self) -> Direction {
        match self.directions.as_slice() {
            [one] => *one,
            _ if self.mix.percent(self.read_percent) => Direction::Read,
            _ => Direction::Write,
        }
    }

    /// Draws the size in bytes of the next request of this direction.
    fn size(&mut self, direction: Direction) -> u64 {
        match &self.blocks[direction as usize] {
            Blocks::Range { low, high } => {
                let steps = (high.0 / low.0).max(1);
                low.0 * (1 + self.sizes.below(steps))
            }
            Blocks::Split(sizes) => {
                let mut draw = self.sizes.below(100);
                let mut sizes = sizes.iter();
                loop {
                    let (size, percent) = sizes.next().expect("percentages add up to 100");
                    match draw.checked_sub(u64::from(*percent)) {
                        Some(rest) => draw = rest,
                        None => return size.0,
                    }
                }
            }
        }
    }

    /// Chooses offset (from the start of the region) and length of the next transfer; `None` at the
    /// end of a pass that skipped some bytes.
    fn place(&mut self, direction: Direction) -> Option<(u64, u64)> {
        let at = direction as usize;
        let wanted = self.size(direction).min(self.length);
        let random = self.random && self.following == 0 && {
            self.random_percent == 100 || self.mix.percent(self.random_percent)
        };
        if random {
            self.following = self.step.saturating_sub(1);
            let (offset, length) = match &mut self.map {
                Some(map) => {
                    let (block, count) = map.take(&mut self.offsets, wanted.div_ceil(self.grain));
                    let offset = block * self.grain;
                    (offset, wanted.min(count * self.grain))
                }
                None => (self.unmapped(at, wanted), wanted),
            };
            self.next[at] = offset + length;
            return Some((offset, length));
        }
        self.following = self.following.saturating_sub(1);
        let offset = self.next[at];
        let room = self.length.saturating_sub(offset);
        let gap = if self.random { 0 } else { self.step };
        if room < wanted.min(self.grain) {
            self.next[at] = 0;
            // With gaps a pass ends here; without gaps it continues from the start.
            if gap > 0 {
                return None;
            }
            return self.follow(at, 0, wanted);
        }
        let placed = self.follow(at, offset, wanted);
        self.next[at] = match self.next[at].checked_sub(self.back) {
            Some(next) => next.saturating_add(gap),
            // A job that goes backwards continues at the end once it has passed the start.
            None => self.length.saturating_sub(self.back),
        };
        placed
    }

    /// Returns offset and length of the transfer that begins at `offset`. The length is `wanted`
    /// bytes or, if these exceed the region, the whole blocks up to its end. `at` is the index of
    /// the direction.
    fn follow(&mut self, at: usize, offset: u64, wanted: u64) -> Option<(u64, u64)> {
        let room = self.length - offset;
        let length = if wanted <= room { wanted } else { room - room % self.grain.min(room) };
        self.next[at] = offset + length;
        if let Some(map) = &mut self.map {
            map.mark(offset / self.grain, length.div_ceil(self.grain));
        }
        Some((offset, length))
    }

    /// Draws a random offset in the region at which `wanted` bytes fit, without the map of used
    /// blocks. `at` is the index of the direction.
    fn unmapped(&mut self, at: usize, wanted: u64) -> u64 {
        let align = self.align[at].max(1);
        let last = (self.length - wanted) / align;
        if self.uniform {
            return self.offsets.below(last + 1) * align;
        }
        let offset = self.draw.next(&mut self.offsets) * self.grain;
        (offset / align).min(last) * align
    }
}

impl Iterator for Generator {
    type Item = Io;

    fn next(&mut self) -> Option<Io> {
        if let Some(io) = self.queued.pop() {
            return Some(io);
        }
        if self.left == Some(0) {
            if self.final_syncs == 0 || !self.directions.contains(&Direction::Write) {
                return None;
            }
            self.final_syncs -= 1;
            return Some(Io::Sync);
        }
        let direction = self.direction();
        let Some((offset, length)) = self.place(direction) else {
            // Bytes that this pass skipped count as done.
            let passes_left = self.left.map(|left| left.saturating_sub(1) / self.length);
            self.left = passes_left.map(|passes| passes * self.length);
            return self.next();
        };
        let length = self.left.map_or(length, |left| {
            // The last request is cut to the remaining bytes, but not below a block.
            if length <= left { length } else { left.max(self.grain.min(length)) }
        });
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(length);
            // A remainder smaller than a block cannot be transferred.
            if *left < self.grain && !self.length.is_multiple_of(self.grain) {
                *left = 0;
            }
        }
        // As in fio, each loop counts its writes from 0, and no sync follows its last write.
        let loop_ends = self.left.is_some_and(|left| left.is_multiple_of(self.per_loop.max(1)));
        if loop_ends {
            self.writes = 0;
        } else if direction == Direction::Write {
            self.writes += 1;
            let due = |every: u64| every > 0 && self.writes.is_multiple_of(every);
            if due(self.fdatasync) {
                self.queued.push(Io::DataSync);
            }
            if due(self.fsync) {
                self.queued.push(Io::Sync);
            }
        }
        Some(Io::Transfer { direction, offset: Bytes(self.start + offset), length: Bytes(length) })
    }
}

/// Blocks used in a pass: a bitmap of blocks, and two levels above it, in which a bit says that a
/// word of the level below is full.
#[derive(Clone, Debug)]
struct Map {
    count: u64,
    taken: u64,
    /// Bitmap of blocks, in groups of 64 words; `None` for a group that the pass has not used yet.
    blocks: Vec<Option<Box<[u64; 64]>>>,
    /// The two levels above the bitmap of blocks, in words: a bit says that a word of the level
    /// below is full.
    full: [Vec<u64>; 2],
}

impl Map {
    fn new(count: u64) -> Self {
        let words = |bits: u64| usize::try_from(bits.div_ceil(64)).expect("bounded");
        let second = words(words(count) as u64);
        let full = [vec![0; second], vec![0; words(second as u64)]];
        Self { count, taken: 0, blocks: vec![None; second], full }
    }

    /// Word `word` of the bitmap at `level`: 0 for blocks, 1 and 2 for full words; `None` past the
    /// end.
    fn word(&self, level: usize, word: usize) -> Option<u64> {
        match level.checked_sub(1) {
            None => {
                let words = self.blocks.get(word / 64)?;
                Some(words.as_ref().map_or(0, |words| words[word % 64]))
            }
            Some(level) => self.full.get(level)?.get(word).copied(),
        }
    }

    fn has(&self, block: u64) -> bool {
        let (word, bit) = split(block);
        self.word(0, word).is_some_and(|word| word >> bit & 1 == 1)
    }

    fn set(&mut self, block: u64) {
        let (word, bit) = split(block);
        let words = self.blocks[word / 64].get_or_insert_with(|| Box::new([0; 64]));
        words[word % 64] |= 1 << bit;
        let (mut is_full, mut at) = (words[word % 64] == u64::MAX, word as u64);
        for level in &mut self.full {
            if !is_full {
                break;
            }
            let (word, bit) = split(at);
            level[word] |= 1 << bit;
            (is_full, at) = (level[word] == u64::MAX, word as u64);
        }
        self.taken += 1;
    }

    /// Marks sequential blocks as used; some may be used already.
    fn mark(&mut self, first: u64, count: u64) {
        for block in first..(first + count).min(self.count) {
            if !self.has(block) {
                self.set(block);
            }
        }
    }

    /// Picks a free block at random, and marks it and the free blocks after it as used, up to
    /// `wanted` blocks in all. If no block is free, all become free first. Returns the first block
    /// and the number of blocks.
    fn take(&mut self, rng: &mut Rng, wanted: u64) -> (u64, u64) {
        if self.taken == self.count {
            *self = Self::new(self.count);
        }
        let drawn = rng.below(self.count);
        let block = self.free_from(drawn).or_else(|| self.free_from(0)).expect("one is free");
        let mut count = 0;
        while count < wanted && block + count < self.count && !self.has(block + count) {
            self.set(block + count);
            count += 1;
        }
        (block, count)
    }

    /// The first free block at or after `from`; `None` if there is none.
    fn free_from(&self, from: u64) -> Option<u64> {
        let mut at = from;
        let mut level = 0;
        // Ascend until a word has a free bit at or after the position, then descend to that bit.
        loop {
            let (word, bit) = split(at);
            let free = self.word(level, word).map_or(0, |word| !word & (u64::MAX << bit));
            if free != 0 {
                at = word as u64 * 64 + u64::from(free.trailing_zeros());
                if level == 0 {
                    return (at < self.count).then_some(at);
                }
                level -= 1;
                at *= 64;
                if at >= self.count {
                    return None;
                }
            } else if level == 2 {
                // The top level is searched word by word; each covers 2^18 blocks.
                at = (word as u64 + 1) * 64;
                if at >= self.full[1].len() as u64 * 64 {
                    return None;
                }
            } else {
                level += 1;
                at = word as u64 + 1;
            }
        }
    }
}

/// Index of the word with bit `at`, and index of the bit in the word.
fn split(at: u64) -> (usize, u32) {
    (usize::try_from(at / 64).expect("bounded"), u32::try_from(at % 64).expect("below 64"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_gives_each_block_once_and_finds_the_last_ones() {
        for count in [1, 63, 64, 65, 4095, 4097, 300_000] {
            let mut map = Map::new(count);
            let mut rng = Rng::new(count);
            let mut seen = vec![false; usize::try_from(count).unwrap()];
            for _ in 0..count {
                let (block, run) = map.take(&mut rng, 1);
                assert_eq!(run, 1);
                let seen = &mut seen[usize::try_from(block).unwrap()];
                assert!(!std::mem::replace(seen, true), "{block} of {count} twice");
            }
            assert_eq!(map.taken, count);
            map.take(&mut rng, 1);
            assert_eq!(map.taken, 1);
        }
    }

    /// A map of a volume of 256 TiB can be created, and takes memory only for blocks that are used.
    #[test]
    fn the_largest_map_gives_blocks_of_its_whole_range() {
        let mut map = Map::new(MAP_BLOCKS_MAX);
        let mut rng = Rng::new(3);
        let taken: std::collections::BTreeSet<u64> =
            (0..5_000).map(|_| map.take(&mut rng, 1).0).collect();
        assert_eq!((taken.len(), map.taken), (5_000, 5_000));
        let (first, last) = (taken.first().unwrap(), taken.last().unwrap());
        assert!(*first < MAP_BLOCKS_MAX / 100 && *last > MAP_BLOCKS_MAX / 100 * 99);
        assert!(taken.iter().all(|block| map.has(*block)));
        assert!(map.blocks.iter().filter(|words| words.is_some()).count() <= 5_000);
    }

    #[test]
    fn free_from_agrees_with_a_plain_search() {
        let count = 9000;
        let mut map = Map::new(count);
        let mut rng = Rng::new(5);
        for _ in 0..2000 {
            let at = rng.below(count);
            map.mark(at, 1 + rng.below(200));
            let from = rng.below(count);
            let plain = (from..count).find(|block| !map.has(*block));
            assert_eq!(map.free_from(from), plain);
            if map.taken == count {
                break;
            }
        }
    }
}
