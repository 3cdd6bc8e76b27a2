//! Random numbers, all from one seed: SplitMix64.
//!
//! 64 bits of state, one multiplication chain per number, no dependency. Good enough to choose
//! completion orders and faults; not for anything that must not be guessed.
//!
//! Source   Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014

/// A stream of numbers that a seed determines.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// The stream of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { state: seed ^ 0x6a09_e667_f3bc_c909 }
    }

    /// 64 fresh bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0);
        self.next_u64() % bound
    }

    /// An index into a collection of `len` things, which is not empty.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// True in `percent` of cases.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of several.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.index(of.len())]
    }

    /// Puts a slice into any order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.index(last + 1));
        }
    }

    /// A stream of its own, so that drawing from one does not move the other.
    pub fn fork(&mut self) -> Self {
        Self::new(self.next_u64())
    }
}

/// FNV-1a over 64 bits: the same number on every machine and in every build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest(pub u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    /// Takes bytes in.
    pub fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    /// Takes a word in, whole: eight bytes at the price of one.
    pub fn add_word(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// Every order of `0..count`, for small counts.
#[must_use]
pub fn all_orders(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let mut orders = Vec::new();
    for shorter in all_orders(count - 1) {
        for place in 0..=shorter.len() {
            let mut order = shorter.clone();
            order.insert(place, count - 1);
            orders.push(order);
        }
    }
    orders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_stream() {
        let draw =
            |seed| (0..4).map(|_| 0).scan(Rng::new(seed), |rng, _: i32| Some(rng.next_u64()));
        assert!(draw(7).eq(draw(7)));
        assert!(!draw(7).eq(draw(8)));
    }

    #[test]
    fn all_orders_are_all_and_differ() {
        let orders: std::collections::BTreeSet<_> = all_orders(4).into_iter().collect();
        assert_eq!(orders.len(), 24);
        let mut items = [0, 1, 2, 3, 4, 5];
        Rng::new(3).shuffle(&mut items);
        items.sort_unstable();
        assert_eq!(items, [0, 1, 2, 3, 4, 5]);
    }
}
