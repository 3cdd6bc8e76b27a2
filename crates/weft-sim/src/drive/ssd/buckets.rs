//! Full rows of the mapping, sorted by their number of valid slots: garbage collection prefers few.

use super::mapping::NONE;

/// Full rows by their number of valid slots, in doubly linked lists: one list for each number.
#[derive(Clone, Debug)]
pub(super) struct Buckets {
    first: Vec<u32>,
    next: Vec<u32>,
    before: Vec<u32>,
    /// By row: number of the list that it is on, which is the row's number of valid slots; [`NONE`]
    /// if it is on no list.
    pub(super) of: Vec<u32>,
    /// Lower bound of the numbers of valid slots for which a row is on a list.
    least: u32,
}

impl Buckets {
    pub(super) fn new(rows: u32, row: u32) -> Self {
        let none = || vec![NONE; rows as usize];
        let first = vec![NONE; row as usize + 1];
        Self { first, next: none(), before: none(), of: none(), least: row }
    }

    pub(super) fn has(&self, row: u32) -> bool {
        self.of[row as usize] != NONE
    }

    pub(super) fn add(&mut self, row: u32, valid: u32) {
        let first = std::mem::replace(&mut self.first[valid as usize], row);
        self.next[row as usize] = first;
        self.before[row as usize] = NONE;
        if first != NONE {
            self.before[first as usize] = row;
        }
        self.of[row as usize] = valid;
        self.least = self.least.min(valid);
    }

    pub(super) fn remove(&mut self, row: u32) {
        let (next, before) = (self.next[row as usize], self.before[row as usize]);
        if before == NONE {
            self.first[self.of[row as usize] as usize] = next;
        } else {
            self.next[before as usize] = next;
        }
        if next != NONE {
            self.before[next as usize] = before;
        }
        self.of[row as usize] = NONE;
    }

    /// Moves a row to the list of a lower number of valid slots; does nothing if it is on no list.
    pub(super) fn lower(&mut self, row: u32, valid: u32) {
        if self.has(row) {
            self.remove(row);
            self.add(row, valid);
        }
    }

    /// A row with the fewest valid slots, and the number of these; `None` if no row is on a list.
    pub(super) fn least(&mut self) -> Option<(u32, u32)> {
        while self.first[self.least as usize] == NONE {
            if self.least as usize + 1 == self.first.len() {
                return None;
            }
            self.least += 1;
        }
        Some((self.first[self.least as usize], self.least))
    }
}
