//! Tests of recovery: every loss that P and Q cover comes back, every wrong byte is located.

use weft_parity::{Level, Located, Mismatch, Parity, Strategy};
use weft_units::rng::Rng;

/// Strips of an array with their parity, which tests then lose or damage.
struct Row {
    exponents: Vec<u8>,
    strips: Vec<Vec<u8>>,
    p: Vec<u8>,
    q: Vec<u8>,
}

impl Row {
    fn new(parity: Parity, exponents: &[u8], len: usize) -> Self {
        let strip = |seed: u8| {
            let mut rng = Rng::new(seed.into());
            std::iter::repeat_with(|| rng.next_u64().to_be_bytes()[0]).take(len).collect()
        };
        let strips = exponents.iter().map(|exponent| strip(*exponent)).collect();
        let mut row =
            Self { exponents: exponents.to_vec(), strips, p: vec![0; len], q: vec![0; len] };
        let (mut p, mut q) = (vec![0; len], vec![0; len]);
        parity.pq(&row.data(), &mut p, &mut q);
        (row.p, row.q) = (p, q);
        row
    }

    fn data(&self) -> Vec<(u8, &[u8])> {
        self.without(&[])
    }

    fn without(&self, lost: &[usize]) -> Vec<(u8, &[u8])> {
        let left = (0..self.strips.len()).filter(|index| !lost.contains(index));
        left.map(|index| (self.exponents[index], self.strips[index].as_slice())).collect()
    }

    fn len(&self) -> usize {
        self.p.len()
    }
}

/// Exponents for 2 to 8 data strips: md order, and DDF order with P and Q at each pair of slots.
fn orders() -> Vec<Vec<u8>> {
    let mut orders = Vec::new();
    for count in 2..=8 {
        orders.push((0..count).collect());
        for p in 0..count + 2 {
            let q = (p + 1) % (count + 2);
            orders.push((0..count + 2).filter(|slot| *slot != p && *slot != q).collect());
        }
    }
    orders.push(vec![0, 127, 253, 254]);
    orders
}

/// Every SIMD level with every strategy.
fn levels() -> impl Iterator<Item = Parity> {
    let levels = Level::ALL.into_iter().filter_map(Parity::with_level);
    levels.flat_map(|level| Strategy::ALL.map(|strategy| level.with_strategy(strategy)))
}

fn rows(len: usize) -> impl Iterator<Item = (Parity, Row)> {
    levels().flat_map(move |parity| {
        orders().into_iter().map(move |order| (parity, Row::new(parity, &order, len)))
    })
}

#[test]
fn every_pair_of_lost_data_strips_comes_back() {
    for (parity, row) in rows(333) {
        for a in 0..row.strips.len() {
            for b in (0..row.strips.len()).filter(|b| *b != a) {
                let (mut out_a, mut out_b) = (vec![1; row.len()], vec![2; row.len()]);
                let others = row.without(&[a, b]);
                let (k_a, k_b) = (row.exponents[a], row.exponents[b]);
                parity.recover_two(&others, &row.p, &row.q, k_a, k_b, &mut out_a, &mut out_b);
                assert_eq!(out_a, row.strips[a], "{parity:?} {:?} {a} {b}", row.exponents);
                assert_eq!(out_b, row.strips[b], "{parity:?} {:?} {a} {b}", row.exponents);
            }
        }
    }
}

#[test]
fn every_lost_data_strip_comes_back_from_p_and_from_q() {
    for (parity, row) in rows(333) {
        for lost in 0..row.strips.len() {
            let others = row.without(&[lost]);
            let mut out = vec![3; row.len()];
            parity.recover_data_from_q(&others, &row.q, row.exponents[lost], &mut out);
            assert_eq!(out, row.strips[lost], "from Q: {parity:?} {:?} {lost}", row.exponents);

            let mut sources: Vec<&[u8]> = others.iter().map(|strip| strip.1).collect();
            sources.push(&row.p);
            out.fill(4);
            parity.xor(&sources, &mut out);
            assert_eq!(out, row.strips[lost], "from P: {parity:?} {:?} {lost}", row.exponents);
        }
    }
}

#[test]
fn recovery_with_a_wrong_exponent_gives_something_else() {
    for parity in levels() {
        let row = Row::new(parity, &[0, 1, 2, 3], 100);
        let others = row.without(&[1, 3]);
        let (mut out_a, mut out_b) = (vec![0; 100], vec![0; 100]);
        parity.recover_two(&others, &row.p, &row.q, 1, 4, &mut out_a, &mut out_b);
        assert_ne!(out_a, row.strips[1]);
        assert_ne!(out_b, row.strips[3]);
    }
}

#[test]
fn updated_parity_equals_generated_parity() {
    for (parity, row) in rows(130) {
        for (index, exponent) in row.exponents.iter().enumerate() {
            let new: Vec<u8> =
                row.strips[index].iter().map(|byte| byte.rotate_left(3) ^ 9).collect();
            let (mut p, mut q) = (row.p.clone(), row.q.clone());
            let old = &row.strips[index];
            parity.update_pq(*exponent, old, &new, Some(&mut p), Some(&mut q));
            let mut data = row.data();
            data[index].1 = &new;
            let mismatch = parity.compare(&data, Some(&p), Some(&q));
            assert!(!mismatch.any(), "{parity:?} {:?} {index}", row.exponents);
        }
    }
}

/// Positions of damage in a row, tried in each role: at the ends of vectors, columns and scratch
/// blocks.
const POSITIONS: [usize; 9] = [0, 1, 63, 64, 255, 256, 4095, 4096, 4999];

#[test]
fn an_undamaged_row_is_clean() {
    for (parity, row) in rows(5000) {
        let (p, q) = (row.p.as_slice(), row.q.as_slice());
        for (p, q) in [(None, None), (Some(p), None), (None, Some(q)), (Some(p), Some(q))] {
            assert_eq!(parity.compare(&row.data(), p, q), Mismatch { p: false, q: false });
        }
        assert_eq!(parity.locate(&row.data(), p, q), Located::Clean);
    }
}

#[test]
fn a_wrong_byte_in_p_or_q_is_compared_and_located() {
    for parity in levels() {
        for order in [&[0, 1, 2][..], &[0, 3, 4]] {
            for at in POSITIONS {
                let mut row = Row::new(parity, order, 5000);
                row.p[at] ^= 0x40;
                let compared = parity.compare(&row.data(), Some(&row.p), Some(&row.q));
                assert_eq!(compared, Mismatch { p: true, q: false });
                assert!(parity.compare(&row.data(), Some(&row.p), None).p);
                assert!(!parity.compare(&row.data(), None, Some(&row.q)).any());
                assert_eq!(parity.locate(&row.data(), &row.p, &row.q), Located::P);

                row.p[at] ^= 0x40;
                row.q[at] ^= 0x01;
                let compared = parity.compare(&row.data(), Some(&row.p), Some(&row.q));
                assert_eq!(compared, Mismatch { p: false, q: true });
                assert!(parity.compare(&row.data(), None, Some(&row.q)).q);
                assert!(!parity.compare(&row.data(), Some(&row.p), None).any());
                assert_eq!(parity.locate(&row.data(), &row.p, &row.q), Located::Q);
            }
        }
    }
}

#[test]
fn p_and_q_wrong_in_different_blocks_are_both_compared() {
    for parity in levels() {
        for (p_at, q_at) in [(0, 4999), (4999, 0)] {
            let mut row = Row::new(parity, &[0, 1, 2], 5000);
            row.p[p_at] ^= 1;
            row.q[q_at] ^= 1;
            let compared = parity.compare(&row.data(), Some(&row.p), Some(&row.q));
            assert_eq!(compared, Mismatch { p: true, q: true });
        }
    }
}

#[test]
fn a_wrong_byte_in_each_data_strip_is_compared_and_located() {
    for (parity, mut row) in rows(5000) {
        for index in 0..row.strips.len() {
            for at in POSITIONS {
                row.strips[index][at] ^= 0x80;
                let compared = parity.compare(&row.data(), Some(&row.p), Some(&row.q));
                assert_eq!(compared, Mismatch { p: true, q: true });
                let located = parity.locate(&row.data(), &row.p, &row.q);
                assert_eq!(located, Located::Data(index), "{parity:?} {:?}", row.exponents);
                row.strips[index][at] ^= 0x80;
            }
        }
    }
}

#[test]
fn a_wholly_wrong_strip_is_located() {
    for (parity, mut row) in rows(5000) {
        let intact = row.strips[1].clone();
        row.strips[1].fill(0xe5);
        assert_ne!(row.strips[1], intact);
        assert_eq!(parity.locate(&row.data(), &row.p, &row.q), Located::Data(1));
    }
}

#[test]
fn two_wrong_strips_are_unknown() {
    for parity in levels() {
        let row = || Row::new(parity, &[0, 1, 2, 3], 5000);
        let locate = |row: &Row| parity.locate(&row.data(), &row.p, &row.q);

        // Damage at different bytes, in one block or in two.
        for second in [11, 4500] {
            let mut data_and_data = row();
            data_and_data.strips[0][10] ^= 1;
            data_and_data.strips[2][second] ^= 1;
            assert_eq!(locate(&data_and_data), Located::Unknown);

            let mut p_and_q = row();
            p_and_q.p[10] ^= 1;
            p_and_q.q[second] ^= 1;
            assert_eq!(locate(&p_and_q), Located::Unknown);

            let mut data_and_p = row();
            data_and_p.strips[3][10] ^= 1;
            data_and_p.p[second] ^= 1;
            assert_eq!(locate(&data_and_p), Located::Unknown);
        }

        // Damage at the same byte: 1 in P and g⁹ in Q point at exponent 9, which no strip has.
        let mut same_byte = row();
        same_byte.p[10] ^= 1;
        same_byte.q[10] ^= 0x3a;
        assert_eq!(locate(&same_byte), Located::Unknown);
    }
}
