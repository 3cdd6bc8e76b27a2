//! Vector operations of NEON, for the kernels of `vector.rs`.
//!
//! Source: H. P. Anvin, "The mathematics of RAID-6", §3, for doubling; Arm, "Neon Intrinsics
//! Reference", for the instructions.

use std::arch::aarch64::*;

use super::Kernels;
use super::vector::{column, column_mut, nothing, swapped};
use crate::gf::{self, exponent_difference};
use crate::level::Level;
use crate::scalar::{
    Solution, equal_scalar, is_zero_scalar, mul_into_scalar, pq_scalar, q_scalar,
    recover_one_scalar, recover_two_scalar, update_p_scalar, update_pq_scalar, update_q_scalar,
    xor_into_scalar, xor_scalar,
};
use crate::strategy::Strategy;
use crate::strips::{Strip, Weighted};

// 8 vectors of P and 8 of Q leave half of the 32 registers.
vector_kernels!(("neon", Level::Neon, NEON), (horner, nothing, COLUMN = 8), (horner, P = 16));

type Vector = uint8x16_t;
const BYTES: usize = 16;

#[target_feature(enable = "neon")]
#[inline]
fn zero() -> Vector {
    vdupq_n_u8(0)
}

#[target_feature(enable = "neon")]
#[inline]
fn load(bytes: &[u8; BYTES]) -> Vector {
    // SAFETY: the reference is to as many bytes as are read, and bytes need no alignment.
    unsafe { vld1q_u8(bytes.as_ptr()) }
}

#[target_feature(enable = "neon")]
#[inline]
fn store(vector: Vector, bytes: &mut [u8; BYTES]) {
    // SAFETY: the reference is to as many bytes as are written, and bytes need no alignment.
    unsafe { vst1q_u8(bytes.as_mut_ptr(), vector) }
}

/// Stores a vector through the caches, because NEON's intrinsics have no streaming stores.
#[target_feature(enable = "neon")]
#[inline]
fn stream(vector: Vector, bytes: &mut [u8; BYTES]) {
    store(vector, bytes);
}

#[inline]
fn fence() {}

/// Does nothing: NEON's intrinsics have no prefetch, and the hardware detects that strips are read
/// in order.
#[inline]
fn prefetch(_bytes: &[u8; BYTES]) {}

#[target_feature(enable = "neon")]
#[inline]
fn xor(a: Vector, b: Vector) -> Vector {
    veorq_u8(a, b)
}

#[target_feature(enable = "neon")]
#[inline]
fn xor3(a: Vector, b: Vector, c: Vector) -> Vector {
    xor(a, xor(b, c))
}

#[target_feature(enable = "neon")]
#[inline]
fn or(a: Vector, b: Vector) -> Vector {
    vorrq_u8(a, b)
}

#[target_feature(enable = "neon")]
#[inline]
fn is_zero(a: Vector) -> bool {
    vmaxvq_u8(a) == 0
}

/// Tables for the multiplication by a constant: its products with all low nibbles, and with all
/// high nibbles.
type Multiplier = [Vector; 2];

#[target_feature(enable = "neon")]
#[inline]
fn multiplier(coefficient: u8) -> Multiplier {
    let [low, high] = &gf::NIBBLES[usize::from(coefficient)];
    [load(low), load(high)]
}

#[target_feature(enable = "neon")]
#[inline]
fn mul(a: Vector, [low, high]: &Multiplier) -> Vector {
    let low_product = vqtbl1q_u8(*low, vandq_u8(a, vdupq_n_u8(0x0f)));
    xor(low_product, vqtbl1q_u8(*high, vshrq_n_u8::<4>(a)))
}

/// Multiplies each byte by 2 in GF(2⁸). A signed shift right by 7 copies the top bit, which the
/// doubling shifts out, to all bits of the byte, and so selects the bytes to reduce.
#[target_feature(enable = "neon")]
#[inline]
fn double(a: Vector) -> Vector {
    let carried = vreinterpretq_u8_s8(vshrq_n_s8::<7>(vreinterpretq_s8_u8(a)));
    xor(vshlq_n_u8::<1>(a), vandq_u8(carried, vdupq_n_u8(gf::REDUCTION)))
}
