//! P and Q syndromes, and their update after a change of one strip.
//!
//! Q = Σ gᵏ·D over all data strips D with exponent k. Like P it is a sum, so a change of a strip is
//! applied by adding gᵏ times the difference, without reading the other strips.
//!
//! Source: H. P. Anvin, "The mathematics of RAID-6", §1 and §3.

use crate::strips::assert_weighted;
use crate::{Parity, gf};

impl Parity {
    /// Generates P and Q from all data strips.
    ///
    /// Shape    every slice has one length; distinct exponents in any order; overwrites `p` and `q`
    /// Units    each strip comes with the exponent k of its coefficient gᵏ, at most 254
    /// Errors   none; lengths and exponents are asserted
    /// Source   H. P. Anvin, "The mathematics of RAID-6", §3, equations for P and Q
    pub fn pq(&self, data: &[(u8, &[u8])], p: &mut [u8], q: &mut [u8]) {
        assert_eq!(p.len(), q.len());
        assert_weighted(data, p.len());
        self.kernels.pq(data, 0, p, q, self.strategy);
    }

    /// Generates only Q.
    ///
    /// Shape    every slice has one length; distinct exponents in any order; `q` is overwritten
    /// Units    each strip comes with the exponent k of its coefficient gᵏ, at most 254
    /// Errors   none; lengths and exponents are asserted
    /// Source   H. P. Anvin, "The mathematics of RAID-6", §3, equation for Q
    pub fn q(&self, data: &[(u8, &[u8])], q: &mut [u8]) {
        assert_weighted(data, q.len());
        self.kernels.q(data, 0, q);
    }

    /// Applies a change of a data strip to P and Q, as far as they are given.
    ///
    /// `p ^= old ^ new` and `q ^= gᵏ·(old ^ new)`.
    ///
    /// Shape    every slice has one length
    /// Units    `exponent` is the k of the strip's coefficient gᵏ, at most 254
    /// Errors   none; lengths and the exponent are asserted
    /// Source   md-raid.md §2.4, read-modify-write; H. P. Anvin, "The mathematics of RAID-6", §3
    pub fn update_pq(
        &self,
        exponent: u8,
        old: &[u8],
        new: &[u8],
        p: Option<&mut [u8]>,
        q: Option<&mut [u8]>,
    ) {
        assert!(exponent < gf::ORDER);
        assert_eq!(old.len(), new.len());
        for parity in [&p, &q].into_iter().flatten() {
            assert_eq!(parity.len(), old.len());
        }
        let coefficient = gf::pow2(exponent);
        match (p, q) {
            (Some(p), Some(q)) => self.kernels.update_pq(coefficient, old, new, p, q),
            (Some(p), None) => self.kernels.update_p(old, new, p),
            (None, Some(q)) => self.kernels.update_q(coefficient, old, new, q),
            (None, None) => {}
        }
    }

    /// Adds a multiple of a strip to another: `target ^= coefficient·source`.
    ///
    /// Shape    both slices have one length
    /// Units    `coefficient` is a field element, not an exponent
    /// Errors   none; lengths are asserted
    /// Source   H. P. Anvin, "The mathematics of RAID-6", §2
    pub fn mul_into(&self, coefficient: u8, source: &[u8], target: &mut [u8]) {
        assert_eq!(source.len(), target.len());
        self.kernels.mul_into(coefficient, source, target);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syndromes_of_no_data_are_zero() {
        let (mut p, mut q) = ([1; 100], [2; 100]);
        Parity::detect().pq(&[], &mut p, &mut q);
        assert_eq!((p, q), ([0; 100], [0; 100]));
    }

    #[test]
    fn q_of_single_bytes_is_the_coefficient() {
        for exponent in 0..gf::ORDER {
            let mut q = [0];
            Parity::detect().q(&[(exponent, &[1])], &mut q);
            assert_eq!(q, [gf::pow2(exponent)]);
        }
    }

    #[test]
    #[should_panic(expected = "exponent 255")]
    fn exponent_255_is_refused() {
        Parity::detect().q(&[(255, &[1])], &mut [0]);
    }
}
