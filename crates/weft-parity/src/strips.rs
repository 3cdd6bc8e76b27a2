//! Data strips as arguments: alone or with an exponent, and the conditions that they fulfil.

use crate::gf;

/// A data strip with the exponent k of its coefficient gᵏ.
pub(crate) type Weighted<'a> = (u8, &'a [u8]);

/// Asserts the conditions of operations on weighted strips: equal lengths, distinct exponents up to
/// 254.
///
/// Two strips with the same exponent would make Q useless for recovery, so release builds check
/// too.
pub(crate) fn assert_weighted(data: &[Weighted<'_>], strip_bytes: usize) {
    let mut seen = [0u64; 4];
    for &(exponent, strip) in data {
        assert_eq!(strip.len(), strip_bytes, "strips differ in length");
        assert!(exponent < gf::ORDER, "exponent 255 is equivalent to 0");
        let word = &mut seen[usize::from(exponent / 64)];
        let bit = 1 << (exponent % 64);
        assert!(*word & bit == 0, "two strips have exponent {exponent}");
        *word |= bit;
    }
}

/// A strip as the XOR kernels take it: a slice, or a slice with an exponent, which they ignore.
pub(crate) trait Strip: Copy {
    fn bytes(&self) -> &[u8];
}

impl Strip for &[u8] {
    #[inline(always)]
    fn bytes(&self) -> &[u8] {
        self
    }
}

impl Strip for (u8, &[u8]) {
    #[inline(always)]
    fn bytes(&self) -> &[u8] {
        self.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "two strips have exponent 3")]
    fn repeated_exponents_are_refused() {
        assert_weighted(&[(3, b"a"), (3, b"b")], 1);
    }
}
