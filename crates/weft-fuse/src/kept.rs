//! Bounded cache: values by number; the least recently used ones are removed first.

use std::collections::BTreeMap;

/// Cache of values by number, limited by the sum of their weights; the least recently used values
/// are removed first.
pub(crate) struct Kept<V> {
    values: BTreeMap<u64, (u64, usize, V)>,
    clock: u64,
    weight: usize,
    weight_max: usize,
}

impl<V: Clone> Kept<V> {
    /// A cache of values with a total weight of at most `weight_max`. A single heavier value is
    /// kept, too.
    pub(crate) fn new(weight_max: usize) -> Self {
        Self { values: BTreeMap::new(), clock: 0, weight: 0, weight_max }
    }

    pub(crate) fn get(&mut self, number: u64) -> Option<V> {
        self.clock += 1;
        let (used, _, value) = self.values.get_mut(&number)?;
        *used = self.clock;
        Some(value.clone())
    }

    pub(crate) fn put(&mut self, number: u64, weight: usize, value: V) {
        self.clock += 1;
        if let Some((_, old, _)) = self.values.remove(&number) {
            self.weight -= old;
        }
        if self.weight.saturating_add(weight) > self.weight_max {
            self.make_room(weight);
        }
        self.weight += weight;
        self.values.insert(number, (self.clock, weight, value));
    }

    /// Removes the least recently used values until half of the maximum weight is free beside a new
    /// value of this weight, so that removals are rare.
    fn make_room(&mut self, weight: usize) {
        let aim = (self.weight_max / 2).saturating_sub(weight);
        let mut all: Vec<(u64, u64)> = self.values.iter().map(|(at, it)| (it.0, *at)).collect();
        all.sort_unstable();
        for (_, number) in all {
            if self.weight <= aim {
                break;
            }
            if let Some((_, weight, _)) = self.values.remove(&number) {
                self.weight -= weight;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_values_go_and_the_weight_stays_below_its_bound() {
        let mut kept = Kept::new(100);
        for number in 0..1000 {
            kept.put(number, 10, number);
            assert_eq!(kept.get(number), Some(number));
            assert_eq!(kept.get(0).is_some(), number < 10 || kept.values.contains_key(&0));
            assert!(kept.weight <= 100 && kept.values.len() <= 10);
            let sum: usize = kept.values.values().map(|it| it.1).sum();
            assert_eq!(sum, kept.weight);
        }
        assert_eq!(kept.get(0), Some(0), "used in every step");
        assert_eq!(kept.get(500), None);
        kept.put(7, 1000, 7);
        assert_eq!((kept.get(7), kept.values.len()), (Some(7), 1), "one that is too heavy is kept");
        kept.put(7, 1, 8);
        assert_eq!((kept.get(7), kept.weight), (Some(8), 1));
    }
}
