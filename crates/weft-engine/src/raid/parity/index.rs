//! Where in the cache is the row of a place?
//!
//! A hash table of chains through the rows, as md's: the low bits of the row number choose the
//! bucket. Neighbours lie in neighbouring buckets, and nothing depends on an order of iteration.

use weft_units::RowId;

/// Row numbers to rows.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    buckets: Vec<Option<RowId>>,
    /// Per row: its number, and the next row of its bucket.
    rows: Vec<(u64, Option<RowId>)>,
}

impl Index {
    pub(crate) fn new(rows: u32) -> Self {
        let buckets = (rows as usize * 2).next_power_of_two();
        Self { buckets: vec![None; buckets], rows: vec![(0, None); rows as usize] }
    }

    pub(crate) fn find(&self, key: u64) -> Option<RowId> {
        let mut next = self.buckets[self.bucket(key)];
        while let Some(row) = next {
            let (found, after) = self.rows[row.index()];
            if found == key {
                return Some(row);
            }
            next = after;
        }
        None
    }

    /// Enters a row that is not in it, under a number that is not in it.
    pub(crate) fn insert(&mut self, key: u64, row: RowId) {
        debug_assert!(self.find(key).is_none());
        let bucket = self.bucket(key);
        self.rows[row.index()] = (key, self.buckets[bucket].replace(row));
    }

    /// Takes a number out, if it is in.
    pub(crate) fn remove(&mut self, key: u64) {
        let bucket = self.bucket(key);
        let mut before: Option<RowId> = None;
        let mut next = self.buckets[bucket];
        while let Some(row) = next {
            let (found, after) = self.rows[row.index()];
            if found == key {
                match before {
                    Some(before) => self.rows[before.index()].1 = after,
                    None => self.buckets[bucket] = after,
                }
                return;
            }
            (before, next) = (next, after);
        }
    }

    fn bucket(&self, key: u64) -> usize {
        (key & (self.buckets.len() as u64 - 1)) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_one_bucket_come_and_go() {
        let mut index = Index::new(4);
        for (row, key) in [(0, 5), (1, 13), (2, 21), (3, 6)] {
            index.insert(key, RowId(row));
        }
        assert_eq!(index.find(13), Some(RowId(1)));
        index.remove(13);
        index.remove(13);
        assert_eq!(index.find(13), None);
        for (row, key) in [(0, 5), (2, 21), (3, 6)] {
            assert_eq!(index.find(key), Some(RowId(row)));
        }
        index.insert(29, RowId(1));
        index.remove(21);
        assert_eq!(index.find(29), Some(RowId(1)));
        assert_eq!(index.find(5), Some(RowId(0)));
    }
}
