//! P and Q of swapped strips, with GFNI: columns that fill the registers.
//!
//! The order of the strips and the matrix of each strip are the same for all columns of a call and
//! are computed once. Twelve vectors of a strip are processed at once, so that the sums and a
//! matrix fill the registers. In a page of 4 KiB, the rest after these columns is four vectors.

use super::{BYTES, MATRICES, Vector, column_mut, mul, store, swapped, xor, zero};
use crate::gf;
use crate::strips::Weighted;
use std::arch::x86_64::{_mm512_loadu_si512, _mm512_set1_epi64};

/// Largest number of strips that [`swapped_pq`] handles. It is bounded because the pointers and
/// matrices of the strips are kept on the stack.
const MOST: usize = 32;
const WIDE: usize = 12;
const NARROW: usize = 4;

/// A strip in the order of reads: pointer to its first byte that the call processes, and the matrix
/// of its coefficient.
type Turn = (*const u8, i64);

/// Computes P and Q of all whole columns and returns their number of bytes, or 0 for more than
/// [`MOST`] strips.
#[target_feature(enable = "avx512f,gfni")]
#[inline]
pub(super) fn swapped_pq(
    data: &[Weighted<'_>],
    offset: usize,
    p: &mut [u8],
    q: &mut [u8],
) -> usize {
    if data.len() > MOST {
        return 0;
    }
    let bytes = p.len().min(q.len()) / (NARROW * BYTES) * (NARROW * BYTES);
    let mut turns: [Turn; MOST] = [(std::ptr::null(), 0); MOST];
    let turns = &mut turns[..data.len()];
    for (turn, strip) in turns.iter_mut().enumerate() {
        let (exponent, source) = swapped(data, turn);
        let start = source[offset..][..bytes].as_ptr();
        *strip = (start, MATRICES[usize::from(gf::pow2(*exponent))]);
    }
    let (p, q) = (&mut p[..bytes], &mut q[..bytes]);
    // SAFETY: each start was taken from a slice of as many bytes as P and Q have, and the strip is
    // borrowed until this function ends.
    let wide = unsafe { columns::<WIDE>(turns, 0, p, q) };
    // SAFETY: as above.
    unsafe { columns::<NARROW>(turns, wide, p, q) }
}

/// Computes P and Q of columns of `WIDTH` vectors, from byte `at` on, as long as whole columns are
/// left. Returns the end of the last column.
///
/// # Safety
/// Each pointer in `turns` must be valid for reads of `p.len()` bytes.
#[target_feature(enable = "avx512f,gfni")]
#[inline]
unsafe fn columns<const WIDTH: usize>(
    turns: &[Turn],
    mut at: usize,
    p: &mut [u8],
    q: &mut [u8],
) -> usize {
    assert_eq!(p.len(), q.len());
    while p.len() - at >= WIDTH * BYTES {
        let mut sum_p: [Vector; WIDTH] = [zero(); WIDTH];
        let mut sum_q: [Vector; WIDTH] = [zero(); WIDTH];
        for (start, matrix) in turns {
            let matrix = _mm512_set1_epi64(*matrix);
            for lane in 0..WIDTH {
                let place = start.wrapping_add(at + lane * BYTES);
                // SAFETY: the column lies within P's bytes, and the caller guarantees that as many
                // bytes as P has can be read from `start` on. No alignment is needed.
                let bytes = unsafe { _mm512_loadu_si512(place.cast()) };
                sum_p[lane] = xor(sum_p[lane], bytes);
                sum_q[lane] = xor(sum_q[lane], mul(bytes, &matrix));
            }
        }
        let column_p = column_mut::<BYTES, WIDTH>(p, at);
        let column_q = column_mut::<BYTES, WIDTH>(q, at);
        for lane in 0..WIDTH {
            store(sum_p[lane], &mut column_p[lane]);
            store(sum_q[lane], &mut column_q[lane]);
        }
        at += WIDTH * BYTES;
    }
    at
}
