//! List of queued requests sorted by first sector, stored without an allocation per request.
//!
//! Request indices are stored in blocks of [`BLOCK`], in ascending order of their sectors; requests
//! at the same sector keep the order of insertion. A lookup takes two binary searches, and an
//! insertion moves the entries of at most one block. Empty blocks are reused, so the list allocates
//! nothing until it is longer than ever before. The blocks are ordered by an array: with 4,096
//! requests it has about 200 entries.
//!
//! Source   io-schedulers.md §3.6, "order inside a queue"

/// Request indices, sorted by sector.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sorted {
    /// First sector of each block that is in use, in ascending order.
    firsts: Vec<u64>,
    /// Index in `blocks` of each block that is in use, in the order of `firsts`.
    order: Vec<u32>,
    blocks: Vec<Block>,
    free: Vec<u32>,
    len: usize,
}

#[derive(Clone, Debug)]
struct Block {
    len: usize,
    sectors: [u64; BLOCK],
    names: [u32; BLOCK],
}

/// Position in the list, valid until the list changes. The position behind the last entry of a
/// block means the same as the position of the first entry of the next block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Position {
    block: usize,
    entry: usize,
}

impl Sorted {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Position of the first entry with a larger sector than `sector`. Another entry for `sector`
    /// is inserted there.
    #[inline]
    pub(crate) fn beyond(&self, sector: u64) -> Position {
        let blocks = self.firsts.partition_point(|first| *first <= sector);
        let Some(block) = blocks.checked_sub(1) else { return Position { block: 0, entry: 0 } };
        let entry = self.block(block).sectors().partition_point(|found| *found <= sector);
        Position { block, entry }
    }

    /// Position of the first entry at `sector` or at a larger sector.
    #[inline]
    pub(crate) fn at_or_beyond(&self, sector: u64) -> Position {
        let blocks = self.firsts.partition_point(|first| *first < sector);
        let Some(block) = blocks.checked_sub(1) else { return Position { block: 0, entry: 0 } };
        let entry = self.block(block).sectors().partition_point(|found| *found < sector);
        Position { block, entry }
    }

    /// Sector and request index at a position; `None` behind the last entry.
    #[inline]
    pub(crate) fn at(&self, position: Position) -> Option<(u64, u32)> {
        let Position { mut block, mut entry } = position;
        if block < self.order.len() && entry == self.block(block).len {
            (block, entry) = (block + 1, 0);
        }
        let found = &self.blocks[*self.order.get(block)? as usize];
        Some((found.sectors[entry], found.names[entry]))
    }

    /// Entry just before a position; `None` at the start.
    #[inline]
    pub(crate) fn before(&self, position: Position) -> Option<(u64, u32)> {
        self.at(self.step_back(position)?)
    }

    /// Position just before another one; `None` at the start.
    #[inline]
    pub(crate) fn step_back(&self, position: Position) -> Option<Position> {
        match position {
            Position { block: 0, entry: 0 } => None,
            Position { block, entry: 0 } => {
                Some(Position { block: block - 1, entry: self.block(block - 1).len - 1 })
            }
            Position { block, entry } => Some(Position { block, entry: entry - 1 }),
        }
    }

    /// Position just after another one, which must not be the end of the list.
    #[inline]
    pub(crate) fn step(&self, position: Position) -> Position {
        let Position { block, entry } = position;
        if entry == self.block(block).len {
            return Position { block: block + 1, entry: 1 };
        }
        Position { block, entry: entry + 1 }
    }

    /// Inserts an entry at the position that [`Sorted::beyond`] returned for its sector.
    #[inline]
    pub(crate) fn insert(&mut self, position: Position, sector: u64, name: u32) {
        let Position { mut block, mut entry } = position;
        self.len += 1;
        if self.order.is_empty() {
            self.add_block(0, sector);
        } else if self.block(block).len == BLOCK {
            let last = block + 1 == self.order.len();
            if entry == BLOCK && last {
                // An ascending sequence fills its blocks.
                self.add_block(block + 1, sector);
            } else {
                self.split(block);
            }
            if entry > self.block(block).len || self.block(block).len == BLOCK {
                entry -= self.block(block).len;
                block += 1;
            }
        }
        let place = self.order[block] as usize;
        let Block { len, sectors, names } = &mut self.blocks[place];
        sectors.copy_within(entry..*len, entry + 1);
        names.copy_within(entry..*len, entry + 1);
        (sectors[entry], names[entry]) = (sector, name);
        *len += 1;
        if entry == 0 {
            self.firsts[block] = sector;
        }
    }

    /// Removes an entry, which must be in the list. Returns the position of the entry after it.
    #[inline]
    pub(crate) fn remove(&mut self, sector: u64, name: u32) -> Position {
        let mut position = self.at_or_beyond(sector);
        loop {
            let found = self.at(position).expect("a removed entry is in the list");
            assert_eq!(found.0, sector, "a removed entry is in the list");
            if found.1 == name {
                break;
            }
            position = self.step(position);
        }
        if position.entry == self.block(position.block).len {
            position = Position { block: position.block + 1, entry: 0 };
        }
        let Position { block, entry } = position;
        self.len -= 1;
        let place = self.order[block] as usize;
        let Block { len, sectors, names } = &mut self.blocks[place];
        sectors.copy_within(entry + 1..*len, entry);
        names.copy_within(entry + 1..*len, entry);
        *len -= 1;
        match (*len, entry) {
            (0, _) => {
                self.free.push(place as u32);
                self.order.remove(block);
                self.firsts.remove(block);
            }
            (_, 0) => self.firsts[block] = sectors[0],
            _ => {}
        }
        position
    }

    /// Removes every entry.
    pub(crate) fn clear(&mut self) {
        self.free.append(&mut self.order);
        self.firsts.clear();
        self.len = 0;
    }

    #[inline]
    fn block(&self, block: usize) -> &Block {
        &self.blocks[self.order[block] as usize]
    }

    #[cold]
    fn add_block(&mut self, at: usize, first: u64) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.blocks.push(Block { len: 0, sectors: [0; BLOCK], names: [0; BLOCK] });
            self.blocks.len() as u32 - 1
        });
        self.blocks[place as usize].len = 0;
        self.order.insert(at, place);
        self.firsts.insert(at, first);
    }

    /// Moves the upper half of a block to a new block.
    #[cold]
    fn split(&mut self, block: usize) {
        let from = self.order[block] as usize;
        let (sectors, names) = (self.blocks[from].sectors, self.blocks[from].names);
        self.blocks[from].len = BLOCK / 2;
        self.add_block(block + 1, sectors[BLOCK / 2]);
        let to = self.order[block + 1] as usize;
        let Block { len, sectors: upper, names: upper_names } = &mut self.blocks[to];
        *len = BLOCK - BLOCK / 2;
        upper[..*len].copy_from_slice(&sectors[BLOCK / 2..]);
        upper_names[..*len].copy_from_slice(&names[BLOCK / 2..]);
    }
}

impl Block {
    #[inline]
    fn sectors(&self) -> &[u64] {
        &self.sectors[..self.len]
    }
}

/// Number of entries per block: its sectors take 256 bytes, and an insertion moves half of them on
/// average.
const BLOCK: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn all(list: &Sorted) -> Vec<(u64, u32)> {
        let mut position = Position { block: 0, entry: 0 };
        let mut all = Vec::new();
        while let Some(found) = list.at(position) {
            all.push(found);
            position = list.step(position);
        }
        all
    }

    /// Inserts and removes entries at random, and compares the list with a vector that is sorted
    /// after each step.
    #[test]
    fn the_list_is_what_a_sorted_vector_would_be() {
        let mut random = 7u64;
        let mut below = move |bound: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888);
            (random >> 33) % bound
        };
        for (bound, sectors) in [(40, 30), (700, 5000), (3000, 400)] {
            let (mut list, mut model) = (Sorted::default(), Vec::<(u64, u32)>::new());
            for name in 0..6000u32 {
                let grows = below(100) < if model.len() < bound { 70 } else { 30 };
                if grows || model.is_empty() {
                    let sector = below(sectors);
                    list.insert(list.beyond(sector), sector, name);
                    let at = model.partition_point(|found| found.0 <= sector);
                    model.insert(at, (sector, name));
                } else {
                    let at = below(model.len() as u64) as usize;
                    let (sector, name) = model.remove(at);
                    let next = list.remove(sector, name);
                    assert_eq!(list.at(next), model.get(at).copied());
                }
                let sector = below(sectors + 2);
                let at = model.partition_point(|found| found.0 < sector);
                let position = list.at_or_beyond(sector);
                assert_eq!(list.at(position), model.get(at).copied());
                assert_eq!(list.before(position), at.checked_sub(1).map(|at| model[at]));
                if name % 64 == 0 {
                    assert_eq!(all(&list), model);
                }
                assert_eq!(list.len(), model.len());
            }
            list.clear();
            assert_eq!(all(&list), []);
        }
    }

    #[test]
    fn an_ascending_sequence_fills_its_blocks_and_empty_ones_are_used_again() {
        let mut list = Sorted::default();
        for round in 0..3 {
            for name in 0..1024u32 {
                let sector = u64::from(name) * 8 + round;
                list.insert(list.beyond(sector), sector, name);
            }
            assert_eq!(list.blocks.len(), 1024 / BLOCK);
            for name in 0..1024u32 {
                list.remove(u64::from(name) * 8 + round, name);
            }
        }
    }
}
