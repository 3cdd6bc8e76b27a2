//! Property tests of every level of SIMD, by every strategy, against the scalar one, at all lengths
//! and alignments.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::subsequence;
use weft_parity::{Level, Parity, Strategy as Way};
use weft_units::rng::Rng;

fn vector_levels() -> impl Iterator<Item = Parity> {
    Level::ALL.into_iter().skip(1).filter_map(Parity::with_level)
}

/// Every SIMD level with every strategy.
fn vector_ways() -> impl Iterator<Item = Parity> {
    vector_levels().flat_map(|level| Way::ALL.map(|way| level.with_strategy(way)))
}

fn streaming_levels() -> impl Iterator<Item = Parity> {
    vector_levels().map(|level| level.with_strategy(Way::Streaming))
}

fn scalar() -> Parity {
    Parity::with_level(Level::Scalar).unwrap()
}

/// Data strips, each inside a larger buffer at its own offset.
#[derive(Clone, Debug)]
struct Strips {
    len: usize,
    buffers: Vec<(u8, usize, Vec<u8>)>,
}

impl Strips {
    fn data(&self) -> Vec<(u8, &[u8])> {
        let buffers = self.buffers.iter();
        buffers.map(|(exponent, at, buffer)| (*exponent, &buffer[*at..][..self.len])).collect()
    }
}

/// Lengths around whole vectors and columns, and any others.
fn lengths() -> impl Strategy<Value = usize> {
    prop_oneof![
        2 => 0usize..200,
        2 => (0usize..17, 0usize..3).prop_map(|(lines, off)| (lines * 64 + off).saturating_sub(1)),
        1 => 200usize..5000,
    ]
}

/// Exponents in md order, or any distinct ones in any order.
fn exponents() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        (0u8..13).prop_map(|count| (0..count).collect::<Vec<u8>>()),
        (0u8..13).prop_flat_map(|count| Just((0..count).collect::<Vec<u8>>()).prop_shuffle()),
        subsequence((0u8..255).collect::<Vec<u8>>(), 0..12).prop_shuffle(),
    ]
}

fn strips() -> impl Strategy<Value = Strips> {
    (lengths(), exponents()).prop_flat_map(|(len, exponents)| {
        let buffer = |exponent| (Just(exponent), 0usize..64, vec(any::<u8>(), len + 64));
        let buffers = exponents.into_iter().map(buffer).collect::<Vec<_>>();
        buffers.prop_map(move |buffers| Strips { len, buffers })
    })
}

/// Runs an operation on `len` bytes at offset `at` of a filled buffer, and returns the whole
/// buffer: bytes beside the target must not change either.
fn inside(at: usize, len: usize, operation: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut buffer: Vec<u8> = (0u8..=255).cycle().take(at + len + 64).collect();
    operation(&mut buffer[at..at + len]);
    buffer
}

/// Runs an operation on `len` bytes that start `beside` bytes after the start of a cache line, with
/// the checks of [`inside`].
fn from_line(beside: usize, len: usize, operation: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut buffer: Vec<u8> = (0u8..=255).cycle().take(len + 256).collect();
    let at = buffer.as_ptr().align_offset(64) + beside;
    operation(&mut buffer[at..at + len]);
    // The bytes before the line differ with the place of the buffer.
    buffer.rotate_left(at);
    assert!(buffer[len..len + 64].windows(2).all(|pair| pair[1] == pair[0].wrapping_add(1)));
    buffer.truncate(len);
    buffer
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn generation_equals_scalar(strips in strips(), at in 0usize..64) {
        let data = strips.data();
        let sources: Vec<&[u8]> = data.iter().map(|strip| strip.1).collect();
        let run = |parity: Parity| {
            let mut q_beside_p = Vec::new();
            let p_of_pq = inside(at, strips.len, |p| {
                q_beside_p = inside(63 - at, strips.len, |q| parity.pq(&data, p, q));
            });
            let p = inside(at, strips.len, |p| parity.xor(&sources, p));
            let q = inside(at, strips.len, |q| parity.q(&data, q));
            (p_of_pq, q_beside_p, p, q)
        };
        let expected = run(scalar());
        for parity in vector_ways() {
            prop_assert_eq!(run(parity), expected.clone(), "{:?}", parity);
        }
    }

    #[test]
    fn streaming_equals_scalar_where_results_are_aligned_and_where_they_are_not(
        strips in strips(),
        beside in prop_oneof![Just(0usize), Just(16), 0usize..64],
        lost in subsequence((0u8..255).collect::<Vec<u8>>(), 2).prop_shuffle(),
    ) {
        let mut data = strips.data();
        let sources: Vec<&[u8]> = data.iter().map(|strip| strip.1).collect();
        let stored: Vec<u8> = (0..=250).cycle().skip(17).take(strips.len).collect();
        let mut results = Vec::new();
        for parity in streaming_levels().chain([scalar()]) {
            let mut second = Vec::new();
            let first = from_line(beside, strips.len, |p| {
                second = from_line(beside, strips.len, |q| parity.pq(&data, p, q));
            });
            results.push((parity.level(), "pq", first, second));
            let p = from_line(beside, strips.len, |p| parity.xor(&sources, p));
            results.push((parity.level(), "xor", p, Vec::new()));
        }
        data.retain(|strip| !lost.contains(&strip.0));
        for parity in streaming_levels().chain([scalar()]) {
            let mut second = Vec::new();
            let first = from_line(beside, strips.len, |a| {
                second = from_line(beside, strips.len, |b| {
                    parity.recover_two(&data, &stored, &stored, lost[0], lost[1], a, b);
                });
            });
            results.push((parity.level(), "recover", first, second));
        }
        for (level, what, first, second) in &results {
            let scalar = |it: &&(Level, &str, _, _)| it.0 == Level::Scalar && it.1 == *what;
            let (_, _, p, q) = results.iter().find(scalar).unwrap();
            prop_assert!(first == p && second == q, "{what} by {level}");
        }
    }

    #[test]
    fn updates_equal_scalar(
        old in vec(any::<u8>(), 64..1500),
        seed in any::<u8>(),
        exponent in 0u8..255,
        starts in (0usize..64, 0usize..64, 0usize..64),
    ) {
        let len = old.len() - 64;
        let change = |byte: &u8| byte.wrapping_mul(31).wrapping_add(seed);
        let new: Vec<u8> = old.iter().map(change).collect();
        let (old, new) = (&old[starts.0..][..len], &new[starts.1..][..len]);
        let at = starts.2;
        let run = |parity: Parity| {
            let mut q_of_both = Vec::new();
            let p_of_both = inside(at, len, |p| {
                q_of_both = inside(at / 2, len, |q| {
                    parity.update_pq(exponent, old, new, Some(p), Some(q));
                });
            });
            [
                p_of_both,
                q_of_both,
                inside(at, len, |p| parity.update_pq(exponent, old, new, Some(p), None)),
                inside(at, len, |q| parity.update_pq(exponent, old, new, None, Some(q))),
                inside(at, len, |p| parity.update_p(old, new, p)),
                inside(at, len, |target| parity.xor_into(target, old)),
                inside(at, len, |target| parity.mul_into(seed, new, target)),
            ]
        };
        for level in vector_levels() {
            prop_assert_eq!(run(level), run(scalar()), "{}", level.level());
        }
    }

    #[test]
    fn recovery_equals_scalar(
        strips in strips(),
        at in 0usize..64,
        lost in subsequence((0u8..255).collect::<Vec<u8>>(), 2).prop_shuffle(),
    ) {
        // P and Q need not be those of the data: the equations have a solution for all.
        let (a, b) = (lost[0], lost[1]);
        let mut data = strips.data();
        data.retain(|strip| strip.0 != a && strip.0 != b);
        let p: Vec<u8> = (0..=250).cycle().skip(17).take(strips.len).collect();
        let q: Vec<u8> = (0..=240).cycle().skip(99).take(strips.len).collect();
        let run = |parity: Parity| {
            let mut out_b = Vec::new();
            let out_a = inside(at, strips.len, |first| {
                out_b = inside(63 - at, strips.len, |second| {
                    parity.recover_two(&data, &p, &q, a, b, first, second);
                });
            });
            let one = inside(at, strips.len, |out| parity.recover_data_from_q(&data, &q, a, out));
            (out_a, out_b, one)
        };
        let expected = run(scalar());
        for parity in vector_ways() {
            prop_assert_eq!(run(parity), expected.clone(), "{:?}", parity);
        }
    }

    #[test]
    fn one_set_bit_anywhere_is_found(
        len in 1usize..1500,
        start in 0usize..64,
        byte in any::<prop::sample::Index>(),
        bit in 0u8..8,
    ) {
        let mut bytes = vec![0; start + len];
        let same = bytes.clone();
        for level in Level::ALL.into_iter().filter_map(Parity::with_level) {
            prop_assert!(level.is_zero(&bytes[start..]));
            prop_assert!(level.equal(&bytes[start..], &same[..len]));
        }
        bytes[start + byte.index(len)] = 1 << bit;
        for level in Level::ALL.into_iter().filter_map(Parity::with_level) {
            prop_assert!(!level.is_zero(&bytes[start..]), "{}", level.level());
            prop_assert!(!level.equal(&bytes[start..], &same[..len]), "{}", level.level());
        }
    }
}

#[test]
fn bits_beside_the_slice_do_not_count() {
    let mut bytes = vec![0xff; 700];
    for len in 0..600 {
        let at = len % 64 + 1;
        bytes[at..at + len].fill(0);
        for level in Level::ALL.into_iter().filter_map(Parity::with_level) {
            assert!(level.is_zero(&bytes[at..at + len]), "{level:?}, {len} bytes");
        }
        bytes[at..at + len].fill(0xff);
    }
}

/// Numbers of strips with and without kernels of their own, at lengths around every width of a
/// column.
#[test]
fn every_shape_gives_the_scalar_results_by_every_strategy() {
    let mut rng = Rng::new(1);
    let bytes: Vec<u8> = (0..2_500).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
    let strips: Vec<&[u8]> = (0..40).map(|number| &bytes[number * 301..][..4099]).collect();
    for count in 0..=strips.len() {
        for len in [0, 1, 63, 64, 65, 255, 256, 511, 767, 768, 1024, 1279, 1280, 1535, 2048, 4099] {
            let data: Vec<(u8, &[u8])> =
                (0..).zip(&strips[..count]).map(|(k, strip)| (k, &strip[..len])).collect();
            let sources: Vec<&[u8]> = data.iter().map(|strip| strip.1).collect();
            let run = |parity: Parity| {
                let mut found = [(); 4].map(|()| vec![0x5a; len]);
                let [p, q, p_of_both, q_of_both] = &mut found;
                parity.xor(&sources, p);
                parity.q(&data, q);
                parity.pq(&data, p_of_both, q_of_both);
                found
            };
            let expected = run(scalar());
            for parity in vector_ways() {
                assert!(run(parity) == expected, "{count} strips of {len} bytes by {parity:?}");
            }
        }
    }
}
