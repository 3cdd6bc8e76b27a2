//! Tests of syndromes against a field built in another way.
//!
//! The reference multiplies by logarithms, in tables built here by repeated doubling, and shares
//! nothing with the crate.

use weft_parity::{Level, Parity, Strategy, gf};
use weft_units::rng::Rng;

/// Logarithms and antilogarithms to base 2 in GF(2⁸) modulo 0x11d.
struct Field {
    log: [usize; 256],
    antilog: [u8; 255],
}

impl Field {
    fn new() -> Self {
        let mut field = Self { log: [0; 256], antilog: [0; 255] };
        let mut power: u32 = 1;
        for k in 0..255 {
            field.antilog[k] = u8::try_from(power).unwrap();
            field.log[power as usize] = k;
            power *= 2;
            if power >= 256 {
                power ^= 0x11d;
            }
        }
        assert_eq!(power, 1, "2 generates all 255 non-zero bytes");
        field
    }

    fn mul(&self, a: u8, b: u8) -> u8 {
        if a == 0 || b == 0 {
            return 0;
        }
        self.antilog[(self.log[usize::from(a)] + self.log[usize::from(b)]) % 255]
    }

    fn pq(&self, data: &[(u8, &[u8])], len: usize) -> (Vec<u8>, Vec<u8>) {
        let (mut p, mut q) = (vec![0; len], vec![0; len]);
        for (exponent, strip) in data {
            for (at, byte) in strip.iter().enumerate() {
                p[at] ^= byte;
                q[at] ^= self.mul(self.antilog[usize::from(*exponent)], *byte);
            }
        }
        (p, q)
    }
}

/// Every SIMD level with every strategy.
fn levels() -> impl Iterator<Item = Parity> {
    let levels = Level::ALL.into_iter().filter_map(Parity::with_level);
    levels.flat_map(|level| Strategy::ALL.map(|strategy| level.with_strategy(strategy)))
}

/// Strips of random bytes, without a pattern that could hide the fault of a kernel.
fn strips(count: usize, len: usize) -> Vec<Vec<u8>> {
    let mut rng = Rng::new(1);
    let mut next = || rng.next_u64().to_be_bytes()[0];
    (0..count).map(|_| (0..len).map(|_| next()).collect()).collect()
}

fn with_exponents<'a>(exponents: &[u8], strips: &'a [Vec<u8>]) -> Vec<(u8, &'a [u8])> {
    exponents.iter().copied().zip(strips.iter().map(Vec::as_slice)).collect()
}

/// Exponents in md order, in md order for many strips, with DDF gaps, at the ends of the range, and
/// unsorted.
const EXPONENTS: [&[u8]; 7] = [
    &[0],
    &[0, 1, 2],
    &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24],
    &[1, 2, 4, 5],
    &[0, 3, 200, 254],
    &[254],
    &[7, 0, 254, 3, 100, 99, 1],
];

const LENGTHS: [usize; 12] = [0, 1, 15, 16, 17, 63, 64, 65, 255, 257, 4095, 4096];

#[test]
fn products_equal_those_by_logarithms() {
    let field = Field::new();
    for a in 0..=u8::MAX {
        for b in 0..=u8::MAX {
            assert_eq!(gf::mul(a, b), field.mul(a, b));
        }
    }
    for k in 0..255 {
        assert_eq!(gf::pow2(k), field.antilog[usize::from(k)]);
    }
}

#[test]
fn syndromes_by_hand_hold_on_every_level() {
    // {02}·{80} = {1d}, {04}·{80} = {3a}: 0x80 shifted by two is 0x200, less 0x11d·2 = 0x3a.
    for parity in levels() {
        let (mut p, mut q) = ([0], [0]);
        parity.pq(&[(0, &[0x01]), (1, &[0x80]), (2, &[0x80])], &mut p, &mut q);
        assert_eq!((p, q), ([0x01], [0x01 ^ 0x1d ^ 0x3a]), "{parity:?}");
    }
}

#[test]
fn syndromes_equal_the_reference_on_every_level() {
    let field = Field::new();
    for len in LENGTHS {
        for exponents in EXPONENTS {
            let strips = strips(exponents.len(), len);
            let data = with_exponents(exponents, &strips);
            let (p_expected, q_expected) = field.pq(&data, len);
            for parity in levels() {
                let case = format!("{parity:?}, {len} bytes, {exponents:?}");
                let (mut p, mut q) = (vec![0xaa; len], vec![0x55; len]);
                parity.pq(&data, &mut p, &mut q);
                assert_eq!(p, p_expected, "{case}");
                assert_eq!(q, q_expected, "{case}");

                q.fill(0x77);
                parity.q(&data, &mut q);
                assert_eq!(q, q_expected, "{case}");

                p.fill(0x77);
                parity.xor(&strips.iter().map(Vec::as_slice).collect::<Vec<_>>(), &mut p);
                assert_eq!(p, p_expected, "{case}");
            }
        }
    }
}

#[test]
fn every_coefficient_multiplies_every_byte_on_every_level() {
    let field = Field::new();
    let bytes: Vec<u8> = (0..=u8::MAX).collect();
    for parity in levels() {
        for coefficient in 0..=u8::MAX {
            let mut target = vec![0x5a; 256];
            parity.mul_into(coefficient, &bytes, &mut target);
            let expected: Vec<u8> =
                bytes.iter().map(|byte| 0x5a ^ field.mul(coefficient, *byte)).collect();
            assert_eq!(target, expected, "{parity:?}, coefficient {coefficient}");
        }
    }
}

#[test]
fn a_wrong_exponent_gives_a_wrong_q_and_the_same_p() {
    let field = Field::new();
    let strips = strips(4, 4096);
    let (p_expected, q_expected) = field.pq(&with_exponents(&[0, 1, 2, 3], &strips), 4096);
    for parity in levels() {
        for planted in [&[0, 1, 3, 2], &[1, 2, 3, 4], &[0, 1, 2, 4]] {
            let data = with_exponents(planted, &strips);
            let (mut p, mut q) = (vec![0; 4096], vec![0; 4096]);
            parity.pq(&data, &mut p, &mut q);
            assert_eq!(p, p_expected);
            assert_ne!(q, q_expected, "{parity:?}, {planted:?}");
            let mismatch = parity.compare(&data, Some(&p_expected), Some(&q_expected));
            assert_eq!((mismatch.p, mismatch.q), (false, true), "{parity:?}, {planted:?}");
        }
    }
}

#[test]
fn the_largest_array_has_255_data_strips() {
    let field = Field::new();
    let strips = strips(255, 193);
    let data = with_exponents(&(0..255).collect::<Vec<_>>(), &strips);
    let expected = field.pq(&data, 193);
    for parity in levels() {
        let (mut p, mut q) = (vec![0; 193], vec![0; 193]);
        parity.pq(&data, &mut p, &mut q);
        assert_eq!((&p, &q), (&expected.0, &expected.1), "{parity:?}");
    }
}
