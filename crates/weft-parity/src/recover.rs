//! Recovery of one or two lost strips.
//!
//! | Lost | From | Function |
//! |---|---|---|
//! | one data | other data, P | [`Parity::xor`] |
//! | P, Q or both | data | [`Parity::xor`], [`Parity::q`], [`Parity::pq`] |
//! | one data and Q | other data, P | [`Parity::xor`], then [`Parity::q`] |
//! | one data and P | other data, Q | [`Parity::recover_data_from_q`], then [`Parity::xor`] |
//! | two data | other data, P, Q | [`Parity::recover_two`] |
//!
//! With P′ and Q′ the syndromes of the remaining data, P ⊕ P′ and Q ⊕ Q′ are the syndromes of the
//! lost data alone: one equation each, solved for one or two unknowns.
//!
//! Source: H. P. Anvin, "The mathematics of RAID-6", §4.

use crate::scalar::Solution;
use crate::strips::{Weighted, assert_weighted};
use crate::{Parity, gf};

impl Parity {
    /// Recovers one data strip from Q and the other data, when P is lost too.
    ///
    /// `out = (Q ⊕ Q′)·g⁻ᵏ`, with Q′ the syndrome of the other strips and k = `lost`.
    ///
    /// Shape    every slice has one length; `out` is overwritten
    /// Units    `lost` is the exponent of the lost strip and differs from those of the others
    /// Errors   none; lengths and exponents are asserted
    /// Source   H. P. Anvin, "The mathematics of RAID-6", §4, failure of P and a data drive
    pub fn recover_data_from_q(&self, others: &[(u8, &[u8])], q: &[u8], lost: u8, out: &mut [u8]) {
        assert_eq!(q.len(), out.len());
        assert_lost(others, lost, out.len());
        self.kernels.recover_one(others, q, gf::inverse(gf::pow2(lost)), out);
    }

    /// Recovers two data strips from P, Q and the other data.
    ///
    /// Shape    every slice has one length; `out_a` and `out_b` are overwritten
    /// Units    `a` and `b` are the exponents of the lost strips: different from each other and
    ///          from those of the others, in any order
    /// Errors   none; lengths and exponents are asserted
    /// Source   H. P. Anvin, "The mathematics of RAID-6", §4, equations for two data failures
    #[allow(clippy::too_many_arguments, reason = "six strips and two exponents make the equation")]
    pub fn recover_two(
        &self,
        others: &[(u8, &[u8])],
        p: &[u8],
        q: &[u8],
        a: u8,
        b: u8,
        out_a: &mut [u8],
        out_b: &mut [u8],
    ) {
        for strip in [p, q, out_b] {
            assert_eq!(strip.len(), out_a.len());
        }
        assert!(a != b);
        assert_lost(others, a, out_a.len());
        assert_lost(others, b, out_a.len());
        let solution = Solution::new(a, b);
        self.kernels.recover_two(others, (p, q), solution, out_a, out_b, self.strategy);
    }
}

fn assert_lost(others: &[Weighted<'_>], lost: u8, strip_bytes: usize) {
    assert!(lost < gf::ORDER);
    assert_weighted(others, strip_bytes);
    assert!(others.iter().all(|(exponent, _)| *exponent != lost), "strip {lost} is not lost");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "strip 4 is not lost")]
    fn a_strip_that_is_there_cannot_be_lost() {
        Parity::detect().recover_data_from_q(&[(4, &[1])], &[2], 4, &mut [0]);
    }
}
