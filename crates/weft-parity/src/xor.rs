//! P, the XOR of all data strips, and its updates.
//!
//! XOR is its own inverse, so the same function generates P, recovers any one lost strip from the
//! others and P, and removes an old strip from P.
//!
//! Source: H. P. Anvin, "The mathematics of RAID-6", §1.

use crate::Parity;

impl Parity {
    /// Adds a strip to another: `target ^= source`.
    ///
    /// Shape    both slices have one length
    /// Errors   none; lengths are asserted
    pub fn xor_into(&self, target: &mut [u8], source: &[u8]) {
        assert_eq!(target.len(), source.len());
        self.kernels.xor_into(target, source);
    }

    /// Generates P from all data strips, or recovers one lost strip from all others and P.
    ///
    /// Shape    every slice has one length; without sources P is zero; `p` is overwritten
    /// Errors   none; lengths are asserted
    /// Source   H. P. Anvin, "The mathematics of RAID-6", §1
    pub fn xor(&self, sources: &[&[u8]], p: &mut [u8]) {
        assert!(sources.iter().all(|source| source.len() == p.len()), "strips differ in length");
        self.kernels.xor(sources, p, self.strategy);
    }

    /// Applies a change of a data strip to P: `p ^= old ^ new`.
    ///
    /// Shape    every slice has one length
    /// Errors   none; lengths are asserted
    /// Source   md-raid.md §2.4, read-modify-write
    pub fn update_p(&self, old: &[u8], new: &[u8], p: &mut [u8]) {
        assert_eq!(old.len(), p.len());
        assert_eq!(new.len(), p.len());
        self.kernels.update_p(old, new, p);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p_of_no_sources_is_zero() {
        let mut p = *b"some bytes";
        Parity::detect().xor(&[], &mut p);
        assert_eq!(p, [0; 10]);
    }

    #[test]
    fn updated_p_equals_p_of_the_new_strips() {
        let parity = Parity::detect();
        let (a, old, new) = ([1u8, 2, 3], [4, 5, 6], [7, 8, 9]);
        let (mut updated, mut generated) = ([0; 3], [0; 3]);
        parity.xor(&[&a, &old], &mut updated);
        parity.update_p(&old, &new, &mut updated);
        parity.xor(&[&a, &new], &mut generated);
        assert_eq!(updated, generated);
    }

    #[test]
    #[should_panic(expected = "strips differ in length")]
    fn strips_of_different_lengths_are_refused() {
        Parity::detect().xor(&[&[0; 4], &[0; 5]], &mut [0; 4]);
    }
}
