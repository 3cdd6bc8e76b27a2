//! Scalar kernels: the reference for the kernels of every level of SIMD.

use crate::gf::{self, exponent_difference};
use crate::strips::{Strip, Weighted};

/// Reference for [`crate::Parity::xor`], over `p.len()` bytes from byte `offset` of each source.
pub(crate) fn xor_scalar<S: Strip>(sources: &[S], offset: usize, p: &mut [u8]) {
    p.fill(0);
    for source in sources {
        xor_into_scalar(p, &source.bytes()[offset..][..p.len()]);
    }
}

/// Reference for [`crate::Parity::xor_into`].
pub(crate) fn xor_into_scalar(target: &mut [u8], source: &[u8]) {
    for (target, source) in target.iter_mut().zip(source) {
        *target ^= source;
    }
}

/// Reference for [`crate::Parity::update_p`].
pub(crate) fn update_p_scalar(old: &[u8], new: &[u8], p: &mut [u8]) {
    xor_into_scalar(p, old);
    xor_into_scalar(p, new);
}

/// Reference for [`crate::Parity::pq`], over `p.len()` bytes from byte `offset` of each strip.
pub(crate) fn pq_scalar(data: &[Weighted<'_>], offset: usize, p: &mut [u8], q: &mut [u8]) {
    xor_scalar(data, offset, p);
    q_scalar(data, offset, q);
}

/// Reference for [`crate::Parity::q`], over `q.len()` bytes from byte `offset` of each strip.
pub(crate) fn q_scalar(data: &[Weighted<'_>], offset: usize, q: &mut [u8]) {
    q.fill(0);
    for (exponent, strip) in data {
        mul_into_scalar(gf::pow2(*exponent), &strip[offset..][..q.len()], q);
    }
}

/// Reference for [`crate::Parity::update_pq`] with only Q; `coefficient` is gᵏ of the data strip.
pub(crate) fn update_q_scalar(coefficient: u8, old: &[u8], new: &[u8], q: &mut [u8]) {
    mul_into_scalar(coefficient, old, q);
    mul_into_scalar(coefficient, new, q);
}

/// Reference for [`crate::Parity::update_pq`] with P and Q; `coefficient` is gᵏ of the data strip.
pub(crate) fn update_pq_scalar(
    coefficient: u8,
    old: &[u8],
    new: &[u8],
    p: &mut [u8],
    q: &mut [u8],
) {
    update_p_scalar(old, new, p);
    update_q_scalar(coefficient, old, new, q);
}

/// Reference for [`crate::Parity::mul_into`].
pub(crate) fn mul_into_scalar(coefficient: u8, source: &[u8], target: &mut [u8]) {
    if coefficient == 1 {
        return xor_into_scalar(target, source);
    }
    for (target, source) in target.iter_mut().zip(source) {
        *target ^= gf::mul(coefficient, *source);
    }
}

/// Reference for [`crate::Parity::recover_data_from_q`]. The strips in `others` are read from byte
/// `offset` on; `of_q` is g⁻ᵏ for the exponent k of the lost strip.
pub(crate) fn recover_one_scalar(
    others: &[Weighted<'_>],
    offset: usize,
    q: &[u8],
    of_q: u8,
    out: &mut [u8],
) {
    q_scalar(others, offset, out);
    xor_into_scalar(out, q);
    for byte in out {
        *byte = gf::mul(of_q, *byte);
    }
}

/// Reference for [`crate::Parity::recover_two`]. The strips in `others` are read from byte `offset`
/// on.
pub(crate) fn recover_two_scalar(
    others: &[Weighted<'_>],
    offset: usize,
    (p, q): (&[u8], &[u8]),
    solution: Solution,
    out_a: &mut [u8],
    out_b: &mut [u8],
) {
    pq_scalar(others, offset, out_b, out_a);
    xor_into_scalar(out_b, p); // P ⊕ P′
    xor_into_scalar(out_a, q); // Q ⊕ Q′
    for byte in &mut *out_a {
        *byte = gf::mul(solution.of_q, *byte);
    }
    mul_into_scalar(solution.of_p, out_b, out_a);
    xor_into_scalar(out_b, out_a);
}

/// Reference for [`crate::Parity::is_zero`].
pub(crate) fn is_zero_scalar(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// Reference for [`crate::Parity::equal`].
pub(crate) fn equal_scalar(a: &[u8], b: &[u8]) -> bool {
    a == b
}

/// Coefficients that solve P ⊕ P′ = Dₐ ⊕ D_b and Q ⊕ Q′ = gᵃDₐ ⊕ gᵇD_b for Dₐ.
///
/// Multiplying the second equation by g⁻ᵃ and adding g^(b−a) times the first removes D_b, and
/// leaves Dₐ = (g^(b−a)·(P ⊕ P′) ⊕ g⁻ᵃ·(Q ⊕ Q′)) / (g^(b−a) ⊕ 1). The divisor is zero only
/// if a = b.
///
/// Source   H. P. Anvin, "The mathematics of RAID-6", §4; md-raid.md §5.2
#[derive(Clone, Copy)]
pub(crate) struct Solution {
    /// Factor of P ⊕ P′ in the solution for Dₐ.
    pub(crate) of_p: u8,
    /// Factor of Q ⊕ Q′ in the solution for Dₐ.
    pub(crate) of_q: u8,
}

impl Solution {
    pub(crate) fn new(a: u8, b: u8) -> Self {
        let ratio = gf::pow2(exponent_difference(b, a));
        Self { of_p: gf::div(ratio, ratio ^ 1), of_q: gf::div(gf::inverse(gf::pow2(a)), ratio ^ 1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn solution_holds_for_every_pair_of_exponents() {
        for a in 0..gf::ORDER {
            for b in (0..gf::ORDER).filter(|b| *b != a) {
                let (data_a, data_b) = (0x53, 0xca);
                let p = data_a ^ data_b;
                let q = gf::mul(gf::pow2(a), data_a) ^ gf::mul(gf::pow2(b), data_b);
                let Solution { of_p, of_q } = Solution::new(a, b);
                assert_eq!(gf::mul(of_p, p) ^ gf::mul(of_q, q), data_a, "{a} and {b}");
            }
        }
    }
}
