//! Random numbers of the simulated world, all from one seed, and digests of what happened in it.

pub use weft_units::rng::Rng;

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
    fn all_orders_are_all_and_differ() {
        let orders: std::collections::BTreeSet<_> = all_orders(4).into_iter().collect();
        assert_eq!(orders.len(), 24);
    }
}
