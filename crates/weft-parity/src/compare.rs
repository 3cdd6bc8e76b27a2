//! Comparison of stored P and Q with the data, and location of a wrong strip.
//!
//! Syndromes are computed one block at a time into a buffer on the stack, so a check of any strip
//! needs the same 8 KiB, which stay in the first-level cache.
//!
//! Source: H. P. Anvin, "The mathematics of RAID-6", §4, "single-disk corruption recovery"; md
//! checks but never locates (md-raid.md §5.2).

use std::ops::Range;

use crate::strips::{Weighted, assert_weighted};
use crate::{Parity, gf};

/// Result of [`Parity::compare`]: which of the stored parities differ from those of the data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mismatch {
    /// Whether P was compared and differs.
    pub p: bool,
    /// Whether Q was compared and differs.
    pub q: bool,
}

impl Mismatch {
    /// Whether P or Q differs.
    #[must_use]
    pub const fn any(self) -> bool {
        self.p || self.q
    }
}

/// Result of [`Parity::locate`]: the single strip that explains every difference if it alone is
/// wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Located {
    /// P and Q agree with the data.
    Clean,
    /// Only the data strip at this index of the argument `data` is wrong.
    Data(usize),
    /// Only P is wrong: Q agrees with the data everywhere.
    P,
    /// Only Q is wrong: P agrees with the data everywhere.
    Q,
    /// No single strip explains all differences, so at least two strips are wrong.
    Unknown,
}

impl Parity {
    /// Whether every byte is zero.
    ///
    /// Shape    any length; true for an empty slice
    #[must_use]
    pub fn is_zero(&self, bytes: &[u8]) -> bool {
        self.kernels.is_zero(bytes)
    }

    /// Whether two strips hold the same bytes.
    ///
    /// Shape    both slices have one length
    /// Errors   none; lengths are asserted
    #[must_use]
    pub fn equal(&self, a: &[u8], b: &[u8]) -> bool {
        assert_eq!(a.len(), b.len());
        self.kernels.equal(a, b)
    }

    /// Compares stored P and Q, where given, with the data. Returns which of them differ; the
    /// comparison ends as soon as all that are given differ.
    ///
    /// Shape    every slice has one length; a parity that is not given does not differ
    /// Units    each strip comes with the exponent k of its coefficient gᵏ, at most 254
    /// Errors   none; lengths and exponents are asserted
    /// Source   H. P. Anvin, "The mathematics of RAID-6", §3; md-raid.md §5.2, checking
    #[must_use]
    pub fn compare(&self, data: &[(u8, &[u8])], p: Option<&[u8]>, q: Option<&[u8]>) -> Mismatch {
        let Some(strip_bytes) = p.or(q).map(<[u8]>::len) else { return Mismatch::default() };
        for parity in [p, q].into_iter().flatten() {
            assert_eq!(parity.len(), strip_bytes);
        }
        assert_weighted(data, strip_bytes);
        let all = Mismatch { p: p.is_some(), q: q.is_some() };
        let mut found = Mismatch::default();
        let (mut scratch, strategy) = (Scratch::new(), self.strategy.into_caches());
        for block in blocks(strip_bytes) {
            let p = p.map(|p| &p[block.clone()]);
            let q = q.map(|q| &q[block.clone()]);
            let (computed_p, computed_q) = scratch.pair(block.len());
            match (p, q) {
                (Some(_), Some(_)) => {
                    self.kernels.pq(data, block.start, computed_p, computed_q, strategy);
                }
                (Some(_), None) => self.kernels.p(data, block.start, computed_p, strategy),
                (None, _) => self.kernels.q(data, block.start, computed_q),
            }
            found.p |= p.is_some_and(|p| !self.kernels.equal(p, computed_p));
            found.q |= q.is_some_and(|q| !self.kernels.equal(q, computed_q));
            if found == all {
                break;
            }
        }
        found
    }

    /// Finds which single strip explains every byte at which stored P or Q differs from the data.
    ///
    /// A wrong byte in the data strip with exponent k changes P by some x ≠ 0 and Q by gᵏ·x, so the
    /// quotient of the two differences identifies the strip. The result rests on the assumption
    /// that only one strip is wrong. If two strips are wrong, a differing byte identifies one of
    /// the n correct data strips with a probability of about n/255. Other evidence should support
    /// the result.
    ///
    /// Shape    every slice has one length
    /// Units    each strip comes with the exponent k of its coefficient gᵏ, at most 254
    /// Errors   none; lengths and exponents are asserted
    /// Source   H. P. Anvin, "The mathematics of RAID-6", §4, "single-disk corruption recovery"
    #[must_use]
    pub fn locate(&self, data: &[(u8, &[u8])], p: &[u8], q: &[u8]) -> Located {
        assert_eq!(p.len(), q.len());
        assert_weighted(data, p.len());
        let mut located = Located::Clean;
        let (mut scratch, strategy) = (Scratch::new(), self.strategy.into_caches());
        for block in blocks(p.len()) {
            let (difference_p, difference_q) = scratch.pair(block.len());
            self.kernels.pq(data, block.start, difference_p, difference_q, strategy);
            self.kernels.xor_into(difference_p, &p[block.clone()]);
            self.kernels.xor_into(difference_q, &q[block]);
            if self.kernels.is_zero(difference_p) && self.kernels.is_zero(difference_q) {
                continue;
            }
            for (&x, &y) in difference_p.iter().zip(&*difference_q) {
                located = match (located, culprit(data, x, y)) {
                    (so_far, Located::Clean) => so_far,
                    (Located::Clean, culprit) => culprit,
                    (so_far, culprit) if so_far == culprit => so_far,
                    _ => Located::Unknown,
                };
            }
            if located == Located::Unknown {
                break;
            }
        }
        located
    }
}

/// Strip that explains the differences `x` of P and `y` of Q at one byte: `Clean` if both are 0,
/// `Unknown` if no data strip has the exponent that the quotient y/x gives.
fn culprit(data: &[Weighted<'_>], x: u8, y: u8) -> Located {
    match (x, y) {
        (0, 0) => Located::Clean,
        (_, 0) => Located::P,
        (0, _) => Located::Q,
        (x, y) => {
            let exponent = gf::log2(gf::div(y, x));
            let index = data.iter().position(|strip| strip.0 == exponent);
            index.map_or(Located::Unknown, Located::Data)
        }
    }
}

/// Buffer for P and Q of one block of [`BLOCK_BYTES`], computed from the data.
struct Scratch {
    p: [u8; BLOCK_BYTES],
    q: [u8; BLOCK_BYTES],
}

impl Scratch {
    fn new() -> Self {
        Self { p: [0; BLOCK_BYTES], q: [0; BLOCK_BYTES] }
    }

    fn pair(&mut self, len: usize) -> (&mut [u8], &mut [u8]) {
        (&mut self.p[..len], &mut self.q[..len])
    }
}

fn blocks(strip_bytes: usize) -> impl Iterator<Item = Range<usize>> {
    let starts = (0..strip_bytes).step_by(BLOCK_BYTES);
    starts.map(move |start| start..strip_bytes.min(start + BLOCK_BYTES))
}

/// Bytes of each strip that are checked at a time. P and Q of a block leave most of a first-level
/// cache of 32 KiB to the data.
const BLOCK_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cover_the_strip_in_order_without_gaps() {
        for strip_bytes in [0, 1, 4095, 4096, 4097, 10_000] {
            let mut end = 0;
            for block in blocks(strip_bytes) {
                assert_eq!(block.start, end);
                assert!((1..=BLOCK_BYTES).contains(&block.len()));
                end = block.end;
            }
            assert_eq!(end, strip_bytes);
        }
    }

    #[test]
    fn nothing_given_means_nothing_differs() {
        let mismatch = Parity::detect().compare(&[(0, b"data")], None, None);
        assert!(!mismatch.any());
    }

    #[test]
    fn either_parity_is_a_mismatch() {
        for (p, q, any) in
            [(false, false, false), (true, false, true), (false, true, true), (true, true, true)]
        {
            assert_eq!(Mismatch { p, q }.any(), any);
        }
    }

    #[test]
    fn culprit_of_a_data_byte_is_the_strip_with_that_exponent() {
        let data = [(7, b"".as_slice()), (3, b"")];
        for x in 1..=u8::MAX {
            assert_eq!(culprit(&data, x, gf::mul(gf::pow2(3), x)), Located::Data(1));
            assert_eq!(culprit(&data, x, gf::mul(gf::pow2(4), x)), Located::Unknown);
        }
    }
}
