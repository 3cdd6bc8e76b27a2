//! Vector kernels: a table for each level of SIMD, chosen at run time.
//!
//! Each level has one table of kernels. The scalar table holds the references of `scalar.rs`;
//! `vector.rs` generates the vector tables from a few operations that `x86.rs` and `aarch64.rs`
//! define.
//!
//! # Why this is sound
//!
//! Kernels are functions compiled for a CPU feature, so calling one is unsafe: the CPU must have
//! the feature. [`kernels`] is the only way to get a table, it queries the CPU, and `Kernels`
//! cannot be built elsewhere. Otherwise kernels are safe functions on slices: every load and store
//! goes through a reference to an array of one vector, so no length is trusted. The exceptions are
//! `x86/avx512_gfni/md_order.rs` and `swapped.rs` beside it, which read through pointers after they
//! have compared lengths.

#[macro_use]
mod vector;

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86;

use crate::level::Level;
use crate::scalar::{self, Solution};
use crate::strategy::{Maker, Strategy};
use crate::strips::Weighted;

/// Table of the kernels of a level; `None` if this CPU lacks the level.
pub(crate) fn kernels(level: Level) -> Option<&'static Kernels> {
    match level {
        Level::Scalar => Some(&SCALAR),
        #[cfg(target_arch = "aarch64")]
        Level::Neon => std::arch::is_aarch64_feature_detected!("neon").then_some(&aarch64::NEON),
        #[cfg(target_arch = "x86_64")]
        Level::Ssse3 => is_x86_feature_detected!("ssse3").then_some(&x86::SSSE3),
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => is_x86_feature_detected!("avx2").then_some(&x86::AVX2),
        #[cfg(target_arch = "x86_64")]
        Level::Avx512Gfni => {
            let has = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("gfni");
            has.then_some(&x86::AVX512_GFNI)
        }
        #[allow(unreachable_patterns, reason = "which levels are left depends on the architecture")]
        _ => None,
    }
}

impl Maker {
    /// The maker of this CPU, queried once.
    ///
    /// In a virtual machine it is the maker that the hypervisor reports.
    #[must_use]
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        return *x86::MAKER;
        #[cfg(not(target_arch = "x86_64"))]
        Self::Other
    }
}

/// Table of the kernels of one level.
///
/// The slices that a kernel writes, and those that it reads as a whole, have one length, which the
/// methods of `Parity` assert. Data strips have at least as many bytes after `offset`. A kernel
/// that gets fewer bytes panics or leaves bytes out, and never reads outside of a slice.
#[allow(clippy::type_complexity, reason = "signatures read best where the kernel is named")]
pub(crate) struct Kernels {
    level: Level,
    xor_into: unsafe fn(&mut [u8], &[u8]),
    xor: unsafe fn(&[&[u8]], &mut [u8], Strategy),
    p: unsafe fn(&[Weighted<'_>], usize, &mut [u8], Strategy),
    q: unsafe fn(&[Weighted<'_>], usize, &mut [u8]),
    pq: unsafe fn(&[Weighted<'_>], usize, &mut [u8], &mut [u8], Strategy),
    update_p: unsafe fn(&[u8], &[u8], &mut [u8]),
    update_q: unsafe fn(u8, &[u8], &[u8], &mut [u8]),
    update_pq: unsafe fn(u8, &[u8], &[u8], &mut [u8], &mut [u8]),
    mul_into: unsafe fn(u8, &[u8], &mut [u8]),
    recover_one: unsafe fn(&[Weighted<'_>], &[u8], u8, &mut [u8]),
    recover_two:
        unsafe fn(&[Weighted<'_>], (&[u8], &[u8]), Solution, &mut [u8], &mut [u8], Strategy),
    is_zero: unsafe fn(&[u8]) -> bool,
    equal: unsafe fn(&[u8], &[u8]) -> bool,
}

/// Safe methods, each of which calls the kernel in the field with its name.
impl Kernels {
    pub(crate) fn level(&self) -> Level {
        self.level
    }

    pub(crate) fn xor_into(&self, target: &mut [u8], source: &[u8]) {
        // SAFETY: `kernels` handed this table out after it found the CPU feature the kernel needs.
        unsafe { (self.xor_into)(target, source) }
    }

    pub(crate) fn xor(&self, sources: &[&[u8]], p: &mut [u8], strategy: Strategy) {
        // SAFETY: `kernels` handed this table out after it found the CPU feature the kernel needs.
        unsafe { (self.xor)(sources, p, strategy) }
    }

    pub(crate) fn p(&self, data: &[Weighted<'_>], offset: usize, p: &mut [u8], strategy: Strategy) {
        // SAFETY: `kernels` handed this table out after it found the CPU feature the kernel needs.
        unsafe { (self.p)(data, offset, p, strategy) }
    }

    pub(crate) fn q(&self, data: &[Weighted<'_>], offset: usize, q: &mut [u8]) {
        // SAFETY: `kernels` handed this table out after it found the CPU feature the kernel needs.
        unsafe { (self.q)(data, offset, q) }
    }

    pub(crate) fn pq(
        &self,
        data: &[Weighted<'_>],
        offset: usize,
        p: &mut [u8],
        q: &mut [u8],
        strategy: Strategy,
    ) {
        // SAFETY: `kernels` handed this table out after it found the CPU feature the kernel needs.
        unsafe { (self.pq)(data, offset, p, q, strategy) }
    }

    pub(crate) fn update_p(&self, old: &[u8], new: &[u8], p: &mut [u8]) {
        // SAFETY: `kernels` handed this table out after it found the CPU feature the kernel needs.
        unsafe { (self.update_p)(old, new, p) }
    }

    pub(crate) fn update_q(&self, coefficient: u8, old: &[u8], new: &[u8], q: &mut [u8]) {
        // SAFETY: `kernels` handed this table out after it found the CPU feature the kernel needs.
        unsafe { (self.update_q)(coefficient, old, new, q) }
    }

    pub(crate) fn update_pq(
        &self,
        coefficient: u8,
        old: &[u8],
        new: &[u8],
        p: &mut [u8],
        q: &mut [u8],
    ) {
        // SAFETY: `kernels` handed this table out after it found the CPU feature the kernel needs.
        unsafe { (self.update_pq)(coefficient, old, new, p, q) }
    }

    pub(crate) fn mul_into(&self, coefficient: u8, source: &[u8], target: &mut [u8]) {
        // SAFETY: `kernels` handed this table out after it found the CPU feature the kernel needs.
        unsafe { (self.mul_into)(coefficient, source, target) }
    }

    pub(crate) fn recover_one(&self, others: &[Weighted<'_>], q: &[u8], of_q: u8, out: &mut [u8]) {
        // SAFETY: `kernels` handed this table out after it found the CPU feature the kernel needs.
        unsafe { (self.recover_one)(others, q, of_q, out) }
    }

    pub(crate) fn recover_two(
        &self,
        others: &[Weighted<'_>],
        pq: (&[u8], &[u8]),
        solution: Solution,
        out_a: &mut [u8],
        out_b: &mut [u8],
        strategy: Strategy,
    ) {
        // SAFETY: `kernels` handed this table out after it found the CPU feature the kernel needs.
        unsafe { (self.recover_two)(others, pq, solution, out_a, out_b, strategy) }
    }

    pub(crate) fn is_zero(&self, bytes: &[u8]) -> bool {
        // SAFETY: `kernels` handed this table out after it found the CPU feature the kernel needs.
        unsafe { (self.is_zero)(bytes) }
    }

    pub(crate) fn equal(&self, a: &[u8], b: &[u8]) -> bool {
        // SAFETY: `kernels` handed this table out after it found the CPU feature the kernel needs.
        unsafe { (self.equal)(a, b) }
    }
}

static SCALAR: Kernels = Kernels {
    level: Level::Scalar,
    xor_into: scalar::xor_into_scalar,
    xor: |sources, p, _| scalar::xor_scalar(sources, 0, p),
    p: |data, offset, p, _| scalar::xor_scalar(data, offset, p),
    q: scalar::q_scalar,
    pq: |data, offset, p, q, _| scalar::pq_scalar(data, offset, p, q),
    update_p: scalar::update_p_scalar,
    update_q: scalar::update_q_scalar,
    update_pq: scalar::update_pq_scalar,
    mul_into: scalar::mul_into_scalar,
    recover_one: |others, q, of_q, out| scalar::recover_one_scalar(others, 0, q, of_q, out),
    recover_two: |others, pq, solution, out_a, out_b, _| {
        scalar::recover_two_scalar(others, 0, pq, solution, out_a, out_b);
    },
    is_zero: scalar::is_zero_scalar,
    equal: scalar::equal_scalar,
};
