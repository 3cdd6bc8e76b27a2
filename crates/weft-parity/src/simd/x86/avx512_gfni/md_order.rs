//! P and Q of two to ten strips in md order, with GFNI: unrolled kernels.
//!
//! Most arrays have two to ten data strips with the exponents 0, 1, 2, …. For each count there is a
//! function in which the pointer of every strip stays in a register and the loop over the strips is
//! unrolled completely: Horner's rule then needs a single matrix, that of doubling. With data in a
//! second-level cache the function takes as long as the same loads and stores without any
//! multiplication.
//!
//! Beyond ten strips the pointers no longer fit in the registers, and `sum_of_products!` is as
//! fast.
//!
//! Source: H. P. Anvin, "The mathematics of RAID-6", §3.

use super::{BYTES, Vector, mul, multiplier, prefetch_at, store, stream, xor, zero};
use crate::strips::Weighted;
use std::arch::x86_64::_mm512_loadu_si512;

/// Computes P and Q of all whole columns, and returns their number of bytes. Returns 0 unless there
/// are two to ten strips with the exponents 0, 1, 2, … in any order.
///
/// `STREAM` requires that `p` and `q` are aligned to a vector.
#[target_feature(enable = "avx512f,gfni")]
#[inline]
pub(super) fn md_order<const STREAM: bool>(
    data: &[Weighted<'_>],
    offset: usize,
    p: &mut [u8],
    q: &mut [u8],
) -> usize {
    match count_in_order(data) {
        2 => of_2::<STREAM>(data, offset, p, q),
        3 => of_3::<STREAM>(data, offset, p, q),
        4 => of_4::<STREAM>(data, offset, p, q),
        5 => of_5::<STREAM>(data, offset, p, q),
        6 => of_6::<STREAM>(data, offset, p, q),
        7 => of_7::<STREAM>(data, offset, p, q),
        8 => of_8::<STREAM>(data, offset, p, q),
        9 => of_9::<STREAM>(data, offset, p, q),
        10 => of_10::<STREAM>(data, offset, p, q),
        _ => 0,
    }
}

/// Number of strips if their exponents are 0, 1, 2, … without a gap, in any order; otherwise 0.
#[inline]
fn count_in_order(data: &[Weighted<'_>]) -> usize {
    let seen = data.iter().fold(0u64, |seen, strip| seen | 1 << strip.0.min(63));
    if data.len() < 63 && seen == (1 << data.len()) - 1 { data.len() } else { 0 }
}

/// Number of vectors of each strip that are processed at once: as many chains of dependent
/// operations as hide their latency of about four cycles.
const COLUMN: usize = 4;
const COLUMN_BYTES: usize = COLUMN * BYTES;

/// Loads `COLUMN` vectors of the strip at pointer `$strip` from byte `$at` on, and prefetches if
/// `$stream` is true. Evaluates to the vectors.
macro_rules! column {
    ($strip:ident, $at:ident, $stream:ident) => {{
        let mut column = [zero(); COLUMN];
        for lane in 0..COLUMN {
            let place = $strip.wrapping_add($at + lane * BYTES);
            if $stream {
                prefetch_at(place);
            }
            // SAFETY: a whole column begins at `$at`, so it ends within `bytes`. The strip holds
            // `bytes` bytes from `$strip` on, as was asserted, and is borrowed.
            column[lane] = unsafe { _mm512_loadu_si512(place.cast()) };
        }
        column
    }};
}

/// Generates a function for each number of strips, which computes P and Q of all whole columns and
/// returns their number of bytes. The arguments are the name of the function, the number of strips,
/// and a variable for each strip, from the last strip to the first.
macro_rules! counts {
    ($($name:ident, $count:literal: $last:ident $($strip:ident)*;)*) => {$(
        #[target_feature(enable = "avx512f,gfni")]
        fn $name<const STREAM: bool>(
            data: &[Weighted<'_>],
            offset: usize,
            p: &mut [u8],
            q: &mut [u8],
        ) -> usize {
            assert_eq!(count_in_order(data), $count);
            let (p, q) = (p.as_chunks_mut().0, q.as_chunks_mut().0);
            let columns = p.len().min(q.len()) / COLUMN;
            let bytes = columns * COLUMN_BYTES;
            // Every load below lies within these bytes.
            assert!(data.iter().all(|strip| strip.1[offset..].len() >= bytes));
            let mut starts = [std::ptr::null(); $count];
            for (exponent, strip) in data {
                starts[$count - 1 - usize::from(*exponent)] = strip[offset..].as_ptr();
            }
            // The exponents are distinct and below their count, so every place was filled.
            let [$last $(, $strip)*]: [*const u8; $count] = starts;
            let two = multiplier(2);
            let (p, q) = (p.as_chunks_mut::<COLUMN>().0, q.as_chunks_mut::<COLUMN>().0);
            let mut at = 0;
            for (column_p, column_q) in p.iter_mut().zip(q) {
                let mut sum_p: [Vector; COLUMN] = column!($last, at, STREAM);
                let mut sum_q = sum_p;
                $(
                    let strip: [Vector; COLUMN] = column!($strip, at, STREAM);
                    for lane in 0..COLUMN {
                        sum_p[lane] = xor(sum_p[lane], strip[lane]);
                        sum_q[lane] = xor(mul(sum_q[lane], &two), strip[lane]);
                    }
                )*
                for lane in 0..COLUMN {
                    if STREAM {
                        stream(sum_p[lane], &mut column_p[lane]);
                        stream(sum_q[lane], &mut column_q[lane]);
                    } else {
                        store(sum_p[lane], &mut column_p[lane]);
                        store(sum_q[lane], &mut column_q[lane]);
                    }
                }
                at += COLUMN_BYTES;
            }
            bytes
        }
    )*};
}

counts! {
    of_2, 2: b a;
    of_3, 3: c b a;
    of_4, 4: d c b a;
    of_5, 5: e d c b a;
    of_6, 6: f e d c b a;
    of_7, 7: g f e d c b a;
    of_8, 8: h g f e d c b a;
    of_9, 9: i h g f e d c b a;
    of_10, 10: j i h g f e d c b a;
}
