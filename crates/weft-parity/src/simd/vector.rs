//! Parity kernels that work on one vector at a time, generated for each level of SIMD.
//!
//! `vector_kernels!` generates the table of a level from these definitions in the module that calls
//! it:
//!
//! | Name | Meaning |
//! |---|---|
//! | `Vector`, `BYTES` | the vector type and its size |
//! | `zero`, `load`, `store` | no bits set; from and to an array of `BYTES` bytes, at any address |
//! | `stream`, `fence`, `prefetch` | a store that bypasses the caches, its fence, and a prefetch |
//! | `xor`, `xor3`, `or`, `is_zero` | bitwise, of two or three vectors |
//! | `Multiplier`, `multiplier`, `mul` | multiplication by a constant, and its preparation |
//! | `double` | multiplication by g, for `horner!` |
//!
//! Work proceeds column by column. A column is `COLUMN` vectors of every strip: enough for
//! independent chains of operations that hide their latency, and few enough that P and Q stay in
//! registers. A column reads each strip once and writes each result once. The rest after the last
//! whole column is done one vector at a time, and a rest of less than a vector by the scalar
//! reference.
//!
//! There are two ways to compute P and Q of a column. `horner!` needs only doublings while
//! exponents are consecutive, for levels where a general product takes several instructions;
//! `sum_of_products!` is for levels where it takes one.
//!
//! Kernels that take a [`crate::Strategy`] have up to three variants. Streaming variants bypass the
//! caches with stores if their results are aligned to a vector; they then also prefetch their
//! sources, which are not in a cache either. Swapped variants read strips in another order and in
//! wider columns.
//!
//! All functions carry the level's `#[target_feature]`, which makes the intrinsics safe to call and
//! lets helpers inline. A trait could not do that, because its methods cannot carry the attribute.
//! Large helpers are macros: `#[inline(always)]` and the attribute exclude each other, and a call
//! that is not inlined passes the column's P and Q through memory.

/// `WIDTH` vectors from byte `at` of a strip, for reading.
#[inline(always)]
pub(super) fn column<const BYTES: usize, const WIDTH: usize>(
    strip: &[u8],
    at: usize,
) -> &[[u8; BYTES]; WIDTH] {
    strip[at..].as_chunks().0.first_chunk().expect("strips of one length, column inside")
}

/// `WIDTH` vectors from byte `at` of a strip, for writing.
#[inline(always)]
pub(super) fn column_mut<const BYTES: usize, const WIDTH: usize>(
    strip: &mut [u8],
    at: usize,
) -> &mut [[u8; BYTES]; WIDTH] {
    strip[at..].as_chunks_mut().0.first_chunk_mut().expect("strips of one length, column inside")
}

/// Number of bytes by which streaming kernels prefetch ahead of the bytes that they load.
///
/// Memory responds in about 100 ns; at 30 GB/s and ten strips that is 300 bytes of each strip. A
/// larger distance does no harm as long as prefetched lines stay in a first-level cache of 32 KiB
/// until they are used.
#[allow(dead_code, reason = "which levels there are depends on the architecture")]
pub(super) const AHEAD_BYTES: usize = 1024;

/// Strip that a loop reads in iteration `turn` (0-based) when strips are swapped in pairs: 1, 0, 3,
/// 2, 5, 4, …; an odd last strip stays in its place.
///
/// The distance from one strip to the next is never the same twice in succession, so an AMD CPU
/// finds no constant distance at which it would prefetch beyond the last strip (see `strategy.rs`).
/// The compiler must not undo this: in a loop that is unrolled by two iterations, each load
/// instruction would read every second strip, at a constant distance. The bounds check in each
/// iteration prevents the unrolling.
#[inline(always)]
pub(super) fn swapped<S>(strips: &[S], turn: usize) -> &S {
    &strips[(turn ^ 1).min(strips.len() - 1)]
}

/// Runs `$body` for each column of `$bytes` bytes. `$widths` are widths of columns in vectors,
/// largest first: each width is used until fewer bytes than such a column are left. The default
/// widths are `COLUMN` and 1.
///
/// `$at` is the first byte of the column and `$width` its constant width. The macro evaluates to
/// the end of the last column. Less than a vector is left after it, because the last width is 1.
macro_rules! columns {
    ($bytes:expr, |$at:ident, $width:ident| $body:block) => {
        columns!($bytes, [COLUMN, 1], |$at, $width| $body)
    };
    ($bytes:expr, [$($widths:expr),+], |$at:ident, $width:ident| $body:block) => {{
        let bytes: usize = $bytes;
        let mut $at = 0;
        $({
            const $width: usize = $widths;
            while bytes - $at >= $width * BYTES {
                $body
                $at += $width * BYTES;
            }
        })+
        $at
    }};
}

/// Computes the `([P; $width], [Q; $width])` of a column of the data, by Horner's rule from the
/// last strip to the first.
///
/// With exponents k₀ < k₁ < …, Q = g^k₀·(D₀ ⊕ g^(k₁−k₀)·(D₁ ⊕ g^(k₂−k₁)·(D₂ ⊕ …))). In md order
/// every factor is g, a doubling, and the outermost is 1. DDF gaps and unsorted strips give other
/// factors, each of which costs a general product. The result is correct for any order of the
/// strips, since exponents count modulo 255.
///
/// Source   H. P. Anvin, "The mathematics of RAID-6", §3
#[allow(unused_macros, reason = "which levels there are depends on the architecture")]
macro_rules! horner {
    ($data:expr, $at:expr, $width:ident, $stream:ident) => {{
        let data: &[Weighted<'_>] = $data;
        let mut p = [zero(); $width];
        let mut q = [zero(); $width];
        let mut above = data.last().map_or(0, |last| last.0);
        for (exponent, strip) in data.iter().rev() {
            raise!(q, above, *exponent);
            above = *exponent;
            let strip = column::<BYTES, $width>(strip, $at);
            for lane in 0..$width {
                if $stream {
                    prefetch(&strip[lane]);
                }
                let bytes = load(&strip[lane]);
                p[lane] = xor(p[lane], bytes);
                q[lane] = xor(q[lane], bytes);
            }
        }
        raise!(q, above, 0);
        (p, q)
    }};
}

/// Multiplies each lane of `$q` by g^(`$above` − `$below`).
#[allow(unused_macros, reason = "which levels there are depends on the architecture")]
macro_rules! raise {
    ($q:ident, $above:expr, $below:expr) => {{
        let (above, below): (u8, u8) = ($above, $below);
        if above == below + 1 {
            for lane in &mut $q {
                *lane = double(*lane);
            }
        } else if above != below {
            let factor = multiplier(gf::pow2(exponent_difference(above, below)));
            for lane in &mut $q {
                *lane = mul(*lane, &factor);
            }
        }
    }};
}

/// Computes the `([P; $width], [Q; $width])` of a column of the data, adding products two at a
/// time, which a three-operand XOR does in one instruction.
///
/// For levels where a general product costs no more than a doubling: no order of exponents is
/// special, and no strip depends on the one before it, unlike in `horner!`.
#[allow(unused_macros, reason = "which levels there are depends on the architecture")]
macro_rules! sum_of_products {
    ($data:expr, $at:expr, $width:ident, $stream:ident) => {{
        let data: &[Weighted<'_>] = $data;
        let mut p = [zero(); $width];
        let mut q = [zero(); $width];
        let (pairs, last) = data.as_chunks();
        for [(first_exponent, first), (second_exponent, second)] in pairs {
            let first_factor = multiplier(gf::pow2(*first_exponent));
            let second_factor = multiplier(gf::pow2(*second_exponent));
            let first = column::<BYTES, $width>(first, $at);
            let second = column::<BYTES, $width>(second, $at);
            for lane in 0..$width {
                if $stream {
                    prefetch(&first[lane]);
                    prefetch(&second[lane]);
                }
                let (first, second) = (load(&first[lane]), load(&second[lane]));
                p[lane] = xor3(p[lane], first, second);
                q[lane] = xor3(q[lane], mul(first, &first_factor), mul(second, &second_factor));
            }
        }
        for (exponent, last) in last {
            let factor = multiplier(gf::pow2(*exponent));
            let last = column::<BYTES, $width>(last, $at);
            for lane in 0..$width {
                if $stream {
                    prefetch(&last[lane]);
                }
                let last = load(&last[lane]);
                p[lane] = xor(p[lane], last);
                q[lane] = xor(q[lane], mul(last, &factor));
            }
        }
        (p, q)
    }};
}

/// Computes the same as `sum_of_products!`, but reads the strips in the order of [`swapped`], and
/// adds one product at a time.
#[allow(unused_macros, reason = "which levels there are depends on the architecture")]
macro_rules! swapped_products {
    ($data:expr, $at:expr, $width:ident, CACHED) => {{
        let data: &[Weighted<'_>] = $data;
        let mut p = [zero(); $width];
        let mut q = [zero(); $width];
        for turn in 0..data.len() {
            let (exponent, strip) = swapped(data, turn);
            let factor = multiplier(gf::pow2(*exponent));
            let strip = column::<BYTES, $width>(strip, $at);
            for lane in 0..$width {
                let bytes = load(&strip[lane]);
                p[lane] = xor(p[lane], bytes);
                q[lane] = xor(q[lane], mul(bytes, &factor));
            }
        }
        (p, q)
    }};
}

/// Generates the kernels of a level and their table.
///
/// The first group of arguments names the level. The second describes the variants that read strips
/// in order: the macro for P and Q of a column, a faster function for common numbers of strips, and
/// the width of a column in vectors. The third describes the swapped variants: the macro for P and
/// Q, and the width of a column of P alone.
macro_rules! vector_kernels {
    (
        ($feature:literal, $level:expr, $table:ident),
        ($syndrome:ident, $common:ident, COLUMN = $column:literal),
        ($swapped:ident, P = $swapped_p:literal)
    ) => {
        /// Kernels of this level.
        pub(in crate::simd) static $table: Kernels = Kernels {
            level: $level,
            xor_into,
            xor: xor_slices,
            p: xor_weighted,
            q: only_q,
            pq,
            update_p,
            update_q,
            update_pq,
            mul_into,
            recover_one,
            recover_two,
            is_zero: all_zero,
            equal,
        };

        /// Number of vectors of each strip that are processed at once.
        const COLUMN: usize = $column;

        #[target_feature(enable = $feature)]
        fn xor_into(target: &mut [u8], source: &[u8]) {
            let tail = columns!(target.len(), |at, WIDTH| {
                let source = column::<BYTES, WIDTH>(source, at);
                let target = column_mut::<BYTES, WIDTH>(target, at);
                for lane in 0..WIDTH {
                    store(xor(load(&target[lane]), load(&source[lane])), &mut target[lane]);
                }
            });
            xor_into_scalar(&mut target[tail..], &source[tail..]);
        }

        #[target_feature(enable = $feature)]
        fn xor_slices(sources: &[&[u8]], p: &mut [u8], strategy: Strategy) {
            xor_by(sources, 0, p, strategy);
        }

        #[target_feature(enable = $feature)]
        fn xor_weighted(data: &[Weighted<'_>], offset: usize, p: &mut [u8], strategy: Strategy) {
            xor_by(data, offset, p, strategy);
        }

        #[target_feature(enable = $feature)]
        #[inline]
        fn xor_by<S: Strip>(sources: &[S], offset: usize, p: &mut [u8], strategy: Strategy) {
            match strategy {
                Strategy::Streaming if is_aligned(p) => {
                    xor_strips::<true, _>(sources, offset, p);
                    fence();
                }
                Strategy::InOrder | Strategy::Streaming => {
                    xor_strips::<CACHED, _>(sources, offset, p);
                }
                Strategy::Swapped => xor_swapped(sources, offset, p),
            }
        }

        #[target_feature(enable = $feature)]
        #[inline]
        fn xor_swapped<S: Strip>(sources: &[S], offset: usize, p: &mut [u8]) {
            let tail = columns!(p.len(), [$swapped_p, 4, 1], |at, WIDTH| {
                let mut sum = [zero(); WIDTH];
                for turn in 0..sources.len() {
                    let source = swapped(sources, turn).bytes();
                    let source = column::<BYTES, WIDTH>(source, offset + at);
                    for lane in 0..WIDTH {
                        sum[lane] = xor(sum[lane], load(&source[lane]));
                    }
                }
                write::<WIDTH, CACHED>(sum, p, at);
            });
            xor_scalar(sources, offset + tail, &mut p[tail..]);
        }

        #[target_feature(enable = $feature)]
        #[inline]
        fn xor_strips<const STREAM: bool, S: Strip>(sources: &[S], offset: usize, p: &mut [u8]) {
            let (pairs, last) = sources.as_chunks();
            // P alone fits eight vectors into the registers of every level.
            let tail = columns!(p.len(), [8, 4, 1], |at, WIDTH| {
                let mut sum = [zero(); WIDTH];
                for [first, second] in pairs {
                    let first = column::<BYTES, WIDTH>(first.bytes(), offset + at);
                    let second = column::<BYTES, WIDTH>(second.bytes(), offset + at);
                    for lane in 0..WIDTH {
                        if STREAM {
                            prefetch(&first[lane]);
                            prefetch(&second[lane]);
                        }
                        sum[lane] = xor3(sum[lane], load(&first[lane]), load(&second[lane]));
                    }
                }
                for last in last {
                    let last = column::<BYTES, WIDTH>(last.bytes(), offset + at);
                    for lane in 0..WIDTH {
                        if STREAM {
                            prefetch(&last[lane]);
                        }
                        sum[lane] = xor(sum[lane], load(&last[lane]));
                    }
                }
                write::<WIDTH, STREAM>(sum, p, at);
            });
            xor_scalar(sources, offset + tail, &mut p[tail..]);
        }

        #[target_feature(enable = $feature)]
        fn pq(
            data: &[Weighted<'_>],
            offset: usize,
            p: &mut [u8],
            q: &mut [u8],
            strategy: Strategy,
        ) {
            match strategy {
                Strategy::Streaming if is_aligned(p) && is_aligned(q) => {
                    pq_stored::<true, false>(data, offset, p, q);
                    fence();
                }
                Strategy::InOrder | Strategy::Streaming => {
                    pq_stored::<CACHED, false>(data, offset, p, q);
                }
                Strategy::Swapped => pq_stored::<CACHED, true>(data, offset, p, q),
            }
        }

        #[target_feature(enable = $feature)]
        #[inline]
        fn pq_stored<const STREAM: bool, const SWAPPED: bool>(
            data: &[Weighted<'_>],
            offset: usize,
            p: &mut [u8],
            q: &mut [u8],
        ) {
            // A level may have a faster function for the most common shapes.
            let done = $common::<STREAM, SWAPPED>(data, offset, p, q);
            let (p, q, offset) = (&mut p[done..], &mut q[done..], offset + done);
            let tail = columns!(p.len(), |at, WIDTH| {
                let (column_p, column_q) = $syndrome!(data, offset + at, WIDTH, STREAM);
                write::<WIDTH, STREAM>(column_p, p, at);
                write::<WIDTH, STREAM>(column_q, q, at);
            });
            pq_scalar(data, offset + tail, &mut p[tail..], &mut q[tail..]);
        }

        #[target_feature(enable = $feature)]
        fn only_q(data: &[Weighted<'_>], offset: usize, q: &mut [u8]) {
            let tail = columns!(q.len(), |at, WIDTH| {
                let (_, column_q) = $syndrome!(data, offset + at, WIDTH, CACHED);
                write::<WIDTH, CACHED>(column_q, q, at);
            });
            q_scalar(data, offset + tail, &mut q[tail..]);
        }

        #[target_feature(enable = $feature)]
        fn update_p(old: &[u8], new: &[u8], p: &mut [u8]) {
            let tail = columns!(p.len(), |at, WIDTH| {
                let old = column::<BYTES, WIDTH>(old, at);
                let new = column::<BYTES, WIDTH>(new, at);
                let p = column_mut::<BYTES, WIDTH>(p, at);
                for lane in 0..WIDTH {
                    let sum = xor3(load(&p[lane]), load(&old[lane]), load(&new[lane]));
                    store(sum, &mut p[lane]);
                }
            });
            update_p_scalar(&old[tail..], &new[tail..], &mut p[tail..]);
        }

        #[target_feature(enable = $feature)]
        fn update_q(coefficient: u8, old: &[u8], new: &[u8], q: &mut [u8]) {
            let factor = multiplier(coefficient);
            let tail = columns!(q.len(), |at, WIDTH| {
                let old = column::<BYTES, WIDTH>(old, at);
                let new = column::<BYTES, WIDTH>(new, at);
                let q = column_mut::<BYTES, WIDTH>(q, at);
                for lane in 0..WIDTH {
                    let difference = xor(load(&old[lane]), load(&new[lane]));
                    store(xor(load(&q[lane]), mul(difference, &factor)), &mut q[lane]);
                }
            });
            update_q_scalar(coefficient, &old[tail..], &new[tail..], &mut q[tail..]);
        }

        #[target_feature(enable = $feature)]
        fn update_pq(coefficient: u8, old: &[u8], new: &[u8], p: &mut [u8], q: &mut [u8]) {
            let factor = multiplier(coefficient);
            let tail = columns!(q.len(), |at, WIDTH| {
                let old = column::<BYTES, WIDTH>(old, at);
                let new = column::<BYTES, WIDTH>(new, at);
                let p = column_mut::<BYTES, WIDTH>(p, at);
                let q = column_mut::<BYTES, WIDTH>(q, at);
                for lane in 0..WIDTH {
                    let difference = xor(load(&old[lane]), load(&new[lane]));
                    store(xor(load(&p[lane]), difference), &mut p[lane]);
                    store(xor(load(&q[lane]), mul(difference, &factor)), &mut q[lane]);
                }
            });
            let (p, q) = (&mut p[tail..], &mut q[tail..]);
            update_pq_scalar(coefficient, &old[tail..], &new[tail..], p, q);
        }

        #[target_feature(enable = $feature)]
        fn mul_into(coefficient: u8, source: &[u8], target: &mut [u8]) {
            let factor = multiplier(coefficient);
            let tail = columns!(target.len(), |at, WIDTH| {
                let source = column::<BYTES, WIDTH>(source, at);
                let target = column_mut::<BYTES, WIDTH>(target, at);
                for lane in 0..WIDTH {
                    let product = mul(load(&source[lane]), &factor);
                    store(xor(load(&target[lane]), product), &mut target[lane]);
                }
            });
            mul_into_scalar(coefficient, &source[tail..], &mut target[tail..]);
        }

        #[target_feature(enable = $feature)]
        fn recover_one(others: &[Weighted<'_>], q: &[u8], of_q: u8, out: &mut [u8]) {
            let factor = multiplier(of_q);
            let tail = columns!(out.len(), |at, WIDTH| {
                let (_, mut lost) = $syndrome!(others, at, WIDTH, CACHED);
                let q = column::<BYTES, WIDTH>(q, at);
                for lane in 0..WIDTH {
                    lost[lane] = mul(xor(lost[lane], load(&q[lane])), &factor);
                }
                write::<WIDTH, CACHED>(lost, out, at);
            });
            recover_one_scalar(others, tail, &q[tail..], of_q, &mut out[tail..]);
        }

        #[target_feature(enable = $feature)]
        fn recover_two(
            others: &[Weighted<'_>],
            pq: (&[u8], &[u8]),
            solution: Solution,
            out_a: &mut [u8],
            out_b: &mut [u8],
            strategy: Strategy,
        ) {
            match strategy {
                Strategy::Streaming if is_aligned(out_a) && is_aligned(out_b) => {
                    recover_two_stored::<true, false>(others, pq, solution, out_a, out_b);
                    fence();
                }
                Strategy::InOrder | Strategy::Streaming => {
                    recover_two_stored::<CACHED, false>(others, pq, solution, out_a, out_b);
                }
                Strategy::Swapped => {
                    recover_two_stored::<CACHED, true>(others, pq, solution, out_a, out_b);
                }
            }
        }

        #[target_feature(enable = $feature)]
        #[inline]
        fn recover_two_stored<const STREAM: bool, const SWAPPED: bool>(
            others: &[Weighted<'_>],
            (p, q): (&[u8], &[u8]),
            solution: Solution,
            out_a: &mut [u8],
            out_b: &mut [u8],
        ) {
            let of_p = multiplier(solution.of_p);
            let of_q = multiplier(solution.of_q);
            let tail = columns!(out_a.len(), |at, WIDTH| {
                let (mut sum_p, mut sum_q) = if SWAPPED {
                    $swapped!(others, at, WIDTH, CACHED)
                } else {
                    $syndrome!(others, at, WIDTH, STREAM)
                };
                let p = column::<BYTES, WIDTH>(p, at);
                let q = column::<BYTES, WIDTH>(q, at);
                for lane in 0..WIDTH {
                    if STREAM {
                        prefetch(&p[lane]);
                        prefetch(&q[lane]);
                    }
                    let both = xor(sum_p[lane], load(&p[lane]));
                    let weighted = xor(sum_q[lane], load(&q[lane]));
                    let a = xor(mul(both, &of_p), mul(weighted, &of_q));
                    sum_q[lane] = a;
                    sum_p[lane] = xor(both, a);
                }
                write::<WIDTH, STREAM>(sum_q, out_a, at);
                write::<WIDTH, STREAM>(sum_p, out_b, at);
            });
            let (out_a, out_b) = (&mut out_a[tail..], &mut out_b[tail..]);
            recover_two_scalar(others, tail, (&p[tail..], &q[tail..]), solution, out_a, out_b);
        }

        #[target_feature(enable = $feature)]
        fn all_zero(bytes: &[u8]) -> bool {
            let tail = columns!(bytes.len(), |at, WIDTH| {
                let bytes = column::<BYTES, WIDTH>(bytes, at);
                let mut any = zero();
                for lane in 0..WIDTH {
                    any = or(any, load(&bytes[lane]));
                }
                if !is_zero(any) {
                    return false;
                }
            });
            is_zero_scalar(&bytes[tail..])
        }

        #[target_feature(enable = $feature)]
        fn equal(a: &[u8], b: &[u8]) -> bool {
            let tail = columns!(a.len(), |at, WIDTH| {
                let a = column::<BYTES, WIDTH>(a, at);
                let b = column::<BYTES, WIDTH>(b, at);
                let mut any = zero();
                for lane in 0..WIDTH {
                    any = or(any, xor(load(&a[lane]), load(&b[lane])));
                }
                if !is_zero(any) {
                    return false;
                }
            });
            equal_scalar(&a[tail..], &b[tail..])
        }

        /// Writes `WIDTH` vectors to a strip from byte `at` on. With `STREAM` they bypass the
        /// caches, which requires that [`is_aligned`] is true for the strip and `at` is a multiple
        /// of `BYTES`.
        #[target_feature(enable = $feature)]
        #[inline]
        fn write<const WIDTH: usize, const STREAM: bool>(
            from: [Vector; WIDTH],
            strip: &mut [u8],
            at: usize,
        ) {
            let strip = column_mut::<BYTES, WIDTH>(strip, at);
            for lane in 0..WIDTH {
                if STREAM {
                    stream(from[lane], &mut strip[lane]);
                } else {
                    store(from[lane], &mut strip[lane]);
                }
            }
        }

        /// Argument for `STREAM` that selects stores which go through the caches.
        const CACHED: bool = false;

        /// Whether a strip is aligned so that vectors can be streamed to it.
        fn is_aligned(strip: &[u8]) -> bool {
            strip.as_ptr().addr().is_multiple_of(BYTES)
        }
    };
}

/// Placeholder for the `$common` function of levels that have none: computes nothing and returns 0.
#[allow(dead_code, reason = "which levels there are depends on the architecture")]
#[inline(always)]
pub(super) fn nothing<const STREAM: bool, const SWAPPED: bool>(
    _data: &[crate::strips::Weighted<'_>],
    _offset: usize,
    _p: &mut [u8],
    _q: &mut [u8],
) -> usize {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_strip_has_its_turn_and_no_two_distances_in_a_row_are_equal() {
        let constant = |order: &[i32]| {
            let steps: Vec<i32> = order.windows(2).map(|two| two[1] - two[0]).collect();
            steps.windows(2).any(|two| two[0] == two[1])
        };
        for count in 1..40 {
            let strips: Vec<i32> = (0..count).collect();
            let order: Vec<i32> = (0..strips.len()).map(|turn| *swapped(&strips, turn)).collect();
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, strips);
            assert!(!constant(&order), "{order:?}");
        }
        assert!(constant(&[0, 1, 2]));
    }
}
