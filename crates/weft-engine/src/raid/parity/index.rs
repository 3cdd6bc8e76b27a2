//! Index of the stripe cache: maps a stripe number to a stripe-cache entry.
//!
//! As in md, a hash table with chains of stripes: the low bits of the stripe number choose the
//! bucket, so that neighbours lie in neighbouring buckets. The order of iteration affects no
//! result.

use weft_units::StripeId;

/// Map from stripe numbers to stripes.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    buckets: Vec<Option<StripeId>>,
    /// For each stripe-cache entry: its stripe number, and the next entry in its bucket.
    stripes: Vec<(u64, Option<StripeId>)>,
}

impl Index {
    pub(crate) fn new(stripes: u32) -> Self {
        let buckets = (stripes as usize * 2).next_power_of_two();
        Self { buckets: vec![None; buckets], stripes: vec![(0, None); stripes as usize] }
    }

    pub(crate) fn find(&self, key: u64) -> Option<StripeId> {
        let mut next = self.buckets[self.bucket(key)];
        while let Some(stripe) = next {
            let (found, after) = self.stripes[stripe.index()];
            if found == key {
                return Some(stripe);
            }
            next = after;
        }
        None
    }

    /// Adds a stripe under a stripe number. Neither of the two may already be in the index.
    pub(crate) fn insert(&mut self, key: u64, stripe: StripeId) {
        debug_assert!(self.find(key).is_none(), "a number stands for one stripe");
        let bucket = self.bucket(key);
        self.stripes[stripe.index()] = (key, self.buckets[bucket].replace(stripe));
    }

    /// Removes a stripe number if it is in the index.
    pub(crate) fn remove(&mut self, key: u64) {
        let bucket = self.bucket(key);
        let mut before: Option<StripeId> = None;
        let mut next = self.buckets[bucket];
        while let Some(stripe) = next {
            let (found, after) = self.stripes[stripe.index()];
            if found == key {
                match before {
                    Some(before) => self.stripes[before.index()].1 = after,
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
    fn stripes_of_one_bucket_come_and_go() {
        let mut index = Index::new(4);
        for (stripe, key) in [(0, 5), (1, 13), (2, 21), (3, 6)] {
            index.insert(key, StripeId(stripe));
        }
        assert_eq!(index.find(13), Some(StripeId(1)));
        index.remove(13);
        index.remove(13);
        assert_eq!(index.find(13), None);
        for (stripe, key) in [(0, 5), (2, 21), (3, 6)] {
            assert_eq!(index.find(key), Some(StripeId(stripe)));
        }
        index.insert(29, StripeId(1));
        index.remove(21);
        assert_eq!(index.find(29), Some(StripeId(1)));
        assert_eq!(index.find(5), Some(StripeId(0)));
    }
}
