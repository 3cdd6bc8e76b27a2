//! Vector operations of SSSE3, AVX2 and AVX-512 with GFNI, for the kernels of `vector.rs`.
//!
//! Source: H. P. Anvin, "The mathematics of RAID-6", §3, for doubling; Intel, "Intrinsics Guide",
//! for the instructions.

use std::sync::LazyLock;

use super::vector;
use crate::strategy::Maker;

/// Imports that the modules of all levels share.
mod prelude {
    pub(super) use std::arch::x86_64::*;

    pub(super) use crate::gf;
    pub(super) use crate::level::Level;
    pub(super) use crate::scalar::{
        Solution, equal_scalar, is_zero_scalar, mul_into_scalar, pq_scalar, q_scalar,
        recover_one_scalar, recover_two_scalar, update_p_scalar, update_pq_scalar, update_q_scalar,
        xor_into_scalar, xor_scalar,
    };
    pub(super) use crate::simd::Kernels;
    pub(super) use crate::simd::vector::{column, column_mut, nothing, swapped};
    pub(super) use crate::simd::x86::prefetch_at;
    pub(super) use crate::strategy::Strategy;
    pub(super) use crate::strips::{Strip, Weighted};
}

/// Prefetches the cache line that lies [`vector::AHEAD_BYTES`] behind `place`.
#[inline(always)]
fn prefetch_at(place: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    let ahead = place.wrapping_add(vector::AHEAD_BYTES);
    // SAFETY: a prefetch reads nothing and never faults, whatever the address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(ahead.cast()) }
}

/// The maker of this CPU.
///
/// Queried once: in a virtual machine the query traps to the hypervisor.
pub(super) static MAKER: LazyLock<Maker> = LazyLock::new(|| {
    // SAFETY: every x86-64 CPU has the instruction, and its function 0.
    #[allow(unused_unsafe, reason = "calling it is safe since Rust 1.94")]
    let answer = unsafe { std::arch::x86_64::__cpuid(0) };
    let mut name = [0; 12];
    for (part, register) in
        name.as_chunks_mut().0.iter_mut().zip([answer.ebx, answer.edx, answer.ecx])
    {
        *part = register.to_le_bytes();
    }
    Maker::from_name(&name)
});

pub(super) use avx2::AVX2;
pub(super) use avx512_gfni::AVX512_GFNI;
pub(super) use ssse3::SSSE3;

/// Vector operations of SSSE3: 16 bytes at a time, two shuffles for a product.
mod ssse3 {
    use super::prelude::*;
    use crate::gf::exponent_difference;

    // 4 vectors of P, 4 of Q and two tables leave 6 of the 16 registers.
    vector_kernels!(("ssse3", Level::Ssse3, SSSE3), (horner, nothing, COLUMN = 4), (horner, P = 8));

    type Vector = __m128i;
    const BYTES: usize = 16;

    #[target_feature(enable = "ssse3")]
    #[inline]
    fn zero() -> Vector {
        _mm_setzero_si128()
    }

    #[target_feature(enable = "ssse3")]
    #[inline]
    fn load(bytes: &[u8; BYTES]) -> Vector {
        // SAFETY: the reference is to as many bytes as are read, and no alignment is needed.
        unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
    }

    #[target_feature(enable = "ssse3")]
    #[inline]
    fn store(vector: Vector, bytes: &mut [u8; BYTES]) {
        // SAFETY: the reference is to as many bytes as are written, and no alignment is needed.
        unsafe { _mm_storeu_si128(bytes.as_mut_ptr().cast(), vector) }
    }

    #[target_feature(enable = "ssse3")]
    #[inline]
    fn prefetch(bytes: &[u8; BYTES]) {
        prefetch_at(bytes.as_ptr());
    }

    /// Stores a vector past the caches. The caller aligns `bytes` to the size of the vector.
    #[target_feature(enable = "ssse3")]
    #[inline]
    fn stream(vector: Vector, bytes: &mut [u8; BYTES]) {
        let place = bytes.as_mut_ptr();
        debug_assert!(place.addr().is_multiple_of(BYTES));
        // SAFETY: the reference is to as many bytes as are written. They are aligned: the kernels
        // stream only to strips that `is_aligned` found to be, at whole vectors from their start.
        // `fence` comes before other code may read the bytes.
        unsafe { _mm_stream_si128(place.cast(), vector) }
    }

    /// Orders streaming stores before all later stores.
    #[target_feature(enable = "ssse3")]
    #[inline]
    fn fence() {
        _mm_sfence();
    }

    #[target_feature(enable = "ssse3")]
    #[inline]
    fn xor(a: Vector, b: Vector) -> Vector {
        _mm_xor_si128(a, b)
    }

    #[target_feature(enable = "ssse3")]
    #[inline]
    fn xor3(a: Vector, b: Vector, c: Vector) -> Vector {
        xor(a, xor(b, c))
    }

    #[target_feature(enable = "ssse3")]
    #[inline]
    fn or(a: Vector, b: Vector) -> Vector {
        _mm_or_si128(a, b)
    }

    #[target_feature(enable = "ssse3")]
    #[inline]
    fn is_zero(a: Vector) -> bool {
        _mm_movemask_epi8(_mm_cmpeq_epi8(a, zero())) == 0xffff
    }

    /// Tables for the multiplication by a constant: its products with all low nibbles, and with all
    /// high nibbles.
    type Multiplier = [Vector; 2];

    #[target_feature(enable = "ssse3")]
    #[inline]
    fn multiplier(coefficient: u8) -> Multiplier {
        let [low, high] = &gf::NIBBLES[usize::from(coefficient)];
        [load(low), load(high)]
    }

    #[target_feature(enable = "ssse3")]
    #[inline]
    fn mul(a: Vector, [low, high]: &Multiplier) -> Vector {
        let nibble = _mm_set1_epi8(0x0f);
        let low_product = _mm_shuffle_epi8(*low, _mm_and_si128(a, nibble));
        let high_index = _mm_and_si128(_mm_srli_epi64::<4>(a), nibble);
        xor(low_product, _mm_shuffle_epi8(*high, high_index))
    }

    /// Multiplies each byte by 2 in GF(2⁸). A signed comparison with 0 finds the bytes with their
    /// top bit set, to which the reduction is applied.
    #[target_feature(enable = "ssse3")]
    #[inline]
    fn double(a: Vector) -> Vector {
        let carried = _mm_cmpgt_epi8(zero(), a);
        let reduction = _mm_set1_epi8(gf::REDUCTION.cast_signed());
        xor(_mm_add_epi8(a, a), _mm_and_si128(carried, reduction))
    }
}

/// Vector operations of AVX2: 32 bytes at a time, two shuffles for a product.
mod avx2 {
    use super::prelude::*;
    use crate::gf::exponent_difference;

    // 4 vectors of P, 4 of Q and two tables leave 6 of the 16 registers.
    vector_kernels!(("avx2", Level::Avx2, AVX2), (horner, nothing, COLUMN = 4), (horner, P = 8));

    type Vector = __m256i;
    const BYTES: usize = 32;

    #[target_feature(enable = "avx2")]
    #[inline]
    fn zero() -> Vector {
        _mm256_setzero_si256()
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn load(bytes: &[u8; BYTES]) -> Vector {
        // SAFETY: the reference is to as many bytes as are read, and no alignment is needed.
        unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn store(vector: Vector, bytes: &mut [u8; BYTES]) {
        // SAFETY: the reference is to as many bytes as are written, and no alignment is needed.
        unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), vector) }
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn prefetch(bytes: &[u8; BYTES]) {
        prefetch_at(bytes.as_ptr());
    }

    /// Stores a vector past the caches. The caller aligns `bytes` to the size of the vector.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn stream(vector: Vector, bytes: &mut [u8; BYTES]) {
        let place = bytes.as_mut_ptr();
        debug_assert!(place.addr().is_multiple_of(BYTES));
        // SAFETY: the reference is to as many bytes as are written. They are aligned: the kernels
        // stream only to strips that `is_aligned` found to be, at whole vectors from their start.
        // `fence` comes before other code may read the bytes.
        unsafe { _mm256_stream_si256(place.cast(), vector) }
    }

    /// Orders streaming stores before all later stores.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn fence() {
        _mm_sfence();
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn xor(a: Vector, b: Vector) -> Vector {
        _mm256_xor_si256(a, b)
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn xor3(a: Vector, b: Vector, c: Vector) -> Vector {
        xor(a, xor(b, c))
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn or(a: Vector, b: Vector) -> Vector {
        _mm256_or_si256(a, b)
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn is_zero(a: Vector) -> bool {
        _mm256_testz_si256(a, a) == 1
    }

    /// Tables for the multiplication by a constant: its products with all low nibbles, and with all
    /// high nibbles. Both halves of a vector hold the same 16 products.
    type Multiplier = [Vector; 2];

    #[target_feature(enable = "avx2")]
    #[inline]
    fn multiplier(coefficient: u8) -> Multiplier {
        let [low, high] = &gf::NIBBLES[usize::from(coefficient)];
        [both_halves(low), both_halves(high)]
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn both_halves(bytes: &[u8; 16]) -> Vector {
        // SAFETY: the reference is to as many bytes as are read, and no alignment is needed.
        _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) })
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn mul(a: Vector, [low, high]: &Multiplier) -> Vector {
        let nibble = _mm256_set1_epi8(0x0f);
        let low_product = _mm256_shuffle_epi8(*low, _mm256_and_si256(a, nibble));
        let high_index = _mm256_and_si256(_mm256_srli_epi64::<4>(a), nibble);
        xor(low_product, _mm256_shuffle_epi8(*high, high_index))
    }

    /// Multiplies each byte by 2 in GF(2⁸). A signed comparison with 0 finds the bytes with their
    /// top bit set, to which the reduction is applied.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn double(a: Vector) -> Vector {
        let carried = _mm256_cmpgt_epi8(zero(), a);
        let reduction = _mm256_set1_epi8(gf::REDUCTION.cast_signed());
        xor(_mm256_add_epi8(a, a), _mm256_and_si256(carried, reduction))
    }
}

/// Vector operations of AVX-512 with GFNI: 64 bytes at a time, one affine transformation for a
/// product.
mod avx512_gfni {
    mod md_order;
    mod swapped;

    use super::prelude::*;
    use md_order::md_order;
    use swapped::swapped_pq;

    // 8 vectors of P, 8 of Q, two matrices and a pair of strips in flight fill 32 registers.
    vector_kernels!(
        ("avx512f,gfni", Level::Avx512Gfni, AVX512_GFNI),
        (sum_of_products, common, COLUMN = 8),
        (swapped_products, P = 20)
    );

    /// Computes P and Q of whole columns faster than `sum_of_products!`: for two to ten strips in
    /// md order or, if `SWAPPED`, for up to 32 strips. Returns the number of bytes computed, from
    /// the start of `p` and `q`; 0 for all other strips.
    #[target_feature(enable = "avx512f,gfni")]
    #[inline]
    fn common<const STREAM: bool, const SWAPPED: bool>(
        data: &[Weighted<'_>],
        offset: usize,
        p: &mut [u8],
        q: &mut [u8],
    ) -> usize {
        if SWAPPED {
            swapped_pq(data, offset, p, q)
        } else {
            md_order::<STREAM>(data, offset, p, q)
        }
    }

    type Vector = __m512i;
    const BYTES: usize = 64;

    #[target_feature(enable = "avx512f,gfni")]
    #[inline]
    fn zero() -> Vector {
        _mm512_setzero_si512()
    }

    #[target_feature(enable = "avx512f,gfni")]
    #[inline]
    fn load(bytes: &[u8; BYTES]) -> Vector {
        // SAFETY: the reference is to as many bytes as are read, and no alignment is needed.
        unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
    }

    #[target_feature(enable = "avx512f,gfni")]
    #[inline]
    fn store(vector: Vector, bytes: &mut [u8; BYTES]) {
        // SAFETY: the reference is to as many bytes as are written, and no alignment is needed.
        unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), vector) }
    }

    #[target_feature(enable = "avx512f,gfni")]
    #[inline]
    fn prefetch(bytes: &[u8; BYTES]) {
        prefetch_at(bytes.as_ptr());
    }

    /// Stores a vector past the caches. The caller aligns `bytes` to the size of the vector.
    #[target_feature(enable = "avx512f,gfni")]
    #[inline]
    fn stream(vector: Vector, bytes: &mut [u8; BYTES]) {
        let place = bytes.as_mut_ptr();
        debug_assert!(place.addr().is_multiple_of(BYTES));
        // SAFETY: the reference is to as many bytes as are written. They are aligned: the kernels
        // stream only to strips that `is_aligned` found to be, at whole vectors from their start.
        // `fence` comes before other code may read the bytes.
        unsafe { _mm512_stream_si512(place.cast(), vector) }
    }

    /// Orders streaming stores before all later stores.
    #[target_feature(enable = "avx512f,gfni")]
    #[inline]
    fn fence() {
        _mm_sfence();
    }

    #[target_feature(enable = "avx512f,gfni")]
    #[inline]
    fn xor(a: Vector, b: Vector) -> Vector {
        _mm512_xor_si512(a, b)
    }

    /// XOR of three vectors. Its truth table is 1 where an odd number of bits is set: 0b1001_0110.
    #[target_feature(enable = "avx512f,gfni")]
    #[inline]
    fn xor3(a: Vector, b: Vector, c: Vector) -> Vector {
        _mm512_ternarylogic_epi64::<0b1001_0110>(a, b, c)
    }

    #[target_feature(enable = "avx512f,gfni")]
    #[inline]
    fn or(a: Vector, b: Vector) -> Vector {
        _mm512_or_si512(a, b)
    }

    #[target_feature(enable = "avx512f,gfni")]
    #[inline]
    fn is_zero(a: Vector) -> bool {
        _mm512_test_epi64_mask(a, a) == 0
    }

    /// Bit matrix of 8 × 8 that multiplies a byte by a constant, repeated in each 8 bytes of the
    /// vector.
    type Multiplier = Vector;

    #[target_feature(enable = "avx512f,gfni")]
    #[inline]
    fn multiplier(coefficient: u8) -> Multiplier {
        _mm512_set1_epi64(MATRICES[usize::from(coefficient)])
    }

    #[target_feature(enable = "avx512f,gfni")]
    #[inline]
    fn mul(a: Vector, matrix: &Multiplier) -> Vector {
        _mm512_gf2p8affine_epi64_epi8::<0>(a, *matrix)
    }

    /// Matrix over GF(2) for each coefficient c, which maps the bits of x to those of c·x.
    ///
    /// Column j holds the bits of c·2ʲ. The instruction takes rows, with the row of bit i in byte 7
    /// − i. (GFNI's own multiplication is modulo 0x11b and cannot be used here.)
    ///
    /// Source   Intel, "Intrinsics Guide", `_mm512_gf2p8affine_epi64_epi8`
    static MATRICES: [i64; 256] = matrices();

    const fn matrices() -> [i64; 256] {
        let mut table = [0; 256];
        let mut coefficient: u8 = 0;
        loop {
            table[coefficient as usize] = matrix(coefficient);
            if coefficient == u8::MAX {
                return table;
            }
            coefficient += 1;
        }
    }

    const fn matrix(coefficient: u8) -> i64 {
        let mut rows = [0u8; 8];
        let mut image = coefficient; // c · 2ʲ
        let mut j = 0;
        while j < 8 {
            let mut i = 0;
            while i < 8 {
                rows[7 - i] |= (image >> i & 1) << j;
                i += 1;
            }
            image = gf::double(image);
            j += 1;
        }
        i64::from_le_bytes(rows)
    }
}
