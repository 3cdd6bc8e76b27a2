//! Conformance test of implementations of [`Frames`]: a table of operations, and calls that must be
//! refused.
//!
//! P and Q are computed here byte by byte from the definition of the field GF(2⁸). The results of
//! other operations are compared with this P and Q, and with the data.

use std::panic::{AssertUnwindSafe, catch_unwind};

use weft_engine::{ComputeOp, Differs, Frame, Located, Segment, Source, Sources, Value};
use weft_parity::{Parity, gf};

use crate::{Frames, compute};

/// Number of frames of the tested memory.
pub const FRAMES: u32 = 1 + STRIPS * STRIDE;

/// Numbers of cases and of invalid calls that [`check`] tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tried {
    /// Number of cases: operations with a result that was compared with the expected value or
    /// bytes.
    pub operations: usize,
    /// Number of invalid calls. Each of them has panicked, as it must.
    pub refusals: usize,
}

/// Tests an implementation, and returns the numbers of cases that were tried. `new` creates a
/// memory of [`FRAMES`] frames, the first of which is the frame of zeros.
///
/// # Panics
/// Panics when the implementation violates the contract of [`Frames`].
pub fn check<F: Frames>(mut new: impl FnMut() -> F) -> Tried {
    let mut tried = Tried::default();
    for (offset, len) in SHAPES {
        let mut memory = Memory { frames: new(), offset, len, parity: Parity::detect() };
        tried.operations += memory.operations();
        tried.refusals += memory.refusals();
    }
    tried
}

/// Memory in which strip `n` begins `offset` bytes into frame `1 + n * STRIDE`.
struct Memory<F> {
    frames: F,
    offset: u64,
    len: u64,
    parity: Parity,
}

const STRIPS: u32 = 12;
const STRIDE: u32 = 3;
/// Shapes to test: offset of the strips in their first frames, and length of the strips, both in
/// bytes. They cover whole frames, whole sectors, parts of sectors, and strips across the end of a
/// frame.
const SHAPES: [(u64, u64); 6] =
    [(0, 4096), (0, 8192), (512, 1024), (530, 70), (4000, 200), (100, 4096)];
/// Exponents of the data strips 0, 1 and 2: not in ascending order, and without exponent 2. DDF's
/// layouts skip exponents too.
const EXPONENTS: [u8; 3] = [0, 3, 1];
const P: u32 = 3;
const Q: u32 = 4;
/// Index of the first strip that receives recomputed or copied strips. [`Memory::fill`] fills this
/// strip and all later ones with a constant byte.
const A: u32 = 5;
const B: u32 = 6;

/// A case: its name, its operations, the value that the last operation must return, and pairs of
/// strips that must be equal afterwards.
type Row = (&'static str, Vec<ComputeOp>, Value, &'static [(u32, u32)]);

impl<F: Frames> Memory<F> {
    fn at(&self, strip: u32) -> Segment {
        Segment::at(Frame(1 + strip * STRIDE), self.offset, self.len)
    }

    fn source(&self, strip: u32, to: u32) -> Source {
        Source { exponent: EXPONENTS[strip as usize], part: self.at(to) }
    }

    fn bytes(&mut self, strip: u32) -> Vec<u8> {
        let at = self.at(strip);
        self.frames.split(&[at], &[]).read[0].to_vec()
    }

    fn change(&mut self, strip: u32, change: impl FnOnce(&mut [u8])) {
        let at = self.at(strip);
        change(self.frames.split(&[], &[at]).write[0]);
    }

    fn compute(&mut self, ops: &[ComputeOp]) -> Value {
        compute(&self.parity, &mut self.frames, ops)
    }

    /// Fills the data strips with a pattern, P and Q by their definition, and all other strips with
    /// a constant byte.
    fn fill(&mut self) {
        let mut expected = [Vec::new(), Vec::new()];
        for (strip, exponent) in (0u8..).zip(EXPONENTS) {
            self.change(strip.into(), |bytes| {
                let mut next = strip + 1;
                for byte in bytes.iter_mut() {
                    next = next.wrapping_mul(167).wrapping_add(13);
                    *byte = next;
                }
                for (parity, factor) in expected.iter_mut().zip([1, gf::pow2(exponent)]) {
                    parity.resize(bytes.len(), 0);
                    for (sum, byte) in parity.iter_mut().zip(bytes.iter()) {
                        *sum ^= gf::mul(factor, *byte);
                    }
                }
            });
        }
        for (strip, expected) in [P, Q].into_iter().zip(expected) {
            self.change(strip, |bytes| bytes.copy_from_slice(&expected));
        }
        for strip in A..STRIPS {
            self.change(strip, |bytes| bytes.fill(0xdb));
        }
    }

    /// Cases for each kind of operation, with right and wrong content, and with zeros.
    fn table(&self) -> Vec<Row> {
        let at: Vec<Segment> = (0..STRIPS).map(|strip| self.at(strip)).collect();
        let data: Sources = (0..3).map(|strip| self.source(strip, strip)).collect();
        let (p, q) = (Some(at[P as usize]), Some(at[Q as usize]));
        let (a, b) = (at[A as usize], at[B as usize]);
        let pq = |p, q| ComputeOp::Pq { data: data.clone(), p, q };
        let compare = |p, q| ComputeOp::Compare { data: data.clone(), p, q };
        let locate = || ComputeOp::Locate { data: data.clone(), p: at[3], q: at[4] };
        let recover = |gone: &[u32], p, q| {
            let left = (0..3).filter(|strip| !gone.contains(strip));
            let lost = gone.iter().zip([A, B]).map(|(strip, to)| self.source(*strip, to));
            ComputeOp::Recover {
                data: left.map(|strip| self.source(strip, strip)).collect(),
                p,
                q,
                lost: lost.collect(),
            }
        };
        let update = |strip: u32, new, p, q| {
            let (exponent, old) = (EXPONENTS[strip as usize], at[strip as usize]);
            ComputeOp::UpdatePq { exponent, old, new, p, q }
        };
        let copy = |from, to| ComputeOp::Copy { from, to };
        // P and Q are both compared afterwards, whichever of them was updated.
        let updated = |strip: u32, new, of_p, of_q| {
            let update = update(strip, new, of_p, of_q);
            vec![update, copy(new, at[strip as usize]), compare(p, q)]
        };
        let zeros = Segment::at(Frame(0), 0, self.len);
        let differs = |p, q| Value::Differs(Differs { p, q });
        let agrees = differs(false, false);
        let nothing = || Value::Nothing;
        let located = Value::Located;
        // `Zero` corrupts the strip that it names; each row starts with fresh content.
        let wrong = |strip: u32, op| vec![ComputeOp::Zero { to: at[strip as usize] }, op];
        let mut table: Vec<Row> = vec![
            ("P and Q", vec![pq(Some(a), Some(b))], nothing(), &[(A, P), (B, Q)]),
            ("P", vec![pq(Some(a), None)], nothing(), &[(A, P)]),
            ("Q", vec![pq(None, Some(b))], nothing(), &[(B, Q)]),
            ("one from P", vec![recover(&[1], p, None)], nothing(), &[(A, 1)]),
            ("one from P, with Q", vec![recover(&[1], p, q)], nothing(), &[(A, 1)]),
            ("one from Q", vec![recover(&[0], None, q)], nothing(), &[(A, 0)]),
            ("two", vec![recover(&[0, 2], p, q)], nothing(), &[(A, 0), (B, 2)]),
            ("two, the other way", vec![recover(&[2, 1], p, q)], nothing(), &[(A, 2), (B, 1)]),
            ("copy", vec![copy(at[1], a)], nothing(), &[(A, 1)]),
            ("zero", vec![ComputeOp::Zero { to: a }, copy(a, b)], nothing(), &[(A, B)]),
            ("agrees", vec![compare(p, q)], agrees.clone(), &[]),
            ("P agrees", vec![compare(p, None)], agrees.clone(), &[]),
            ("Q agrees", vec![compare(None, q)], agrees.clone(), &[]),
            ("data wrong", wrong(1, compare(p, q)), differs(true, true), &[]),
            ("P wrong", wrong(P, compare(p, q)), differs(true, false), &[]),
            ("Q wrong", wrong(Q, compare(p, q)), differs(false, true), &[]),
            ("Q wrong, P asked", wrong(Q, compare(p, None)), agrees.clone(), &[]),
            ("clean", vec![locate()], located(Located::Clean), &[]),
            ("locates data", wrong(2, locate()), located(Located::Data(2)), &[]),
            ("locates P", wrong(P, locate()), located(Located::P), &[]),
            ("locates Q", wrong(Q, locate()), located(Located::Q), &[]),
            (
                "two wrong",
                [wrong(P, compare(p, q)), wrong(Q, locate())].concat(),
                located(Located::Unknown),
                &[],
            ),
            ("update", updated(1, a, p, q), agrees.clone(), &[(1, A)]),
            ("update of P", updated(0, a, p, None), differs(false, true), &[]),
            ("update of Q", updated(2, a, None, q), differs(true, false), &[]),
        ];
        if self.len <= 4096 {
            table.push(("update with zeros", updated(2, zeros, p, q), agrees.clone(), &[]));
            let same = vec![copy(zeros, a), ComputeOp::Zero { to: b }];
            table.push(("copy of zeros", same, nothing(), &[(A, B)]));
            let mut sources = data.clone();
            sources[1].part = zeros;
            let same = ComputeOp::Compare { data: sources, p: Some(a), q: Some(b) };
            let ops = vec![ComputeOp::Zero { to: at[1] }, pq(Some(a), Some(b)), same];
            table.push(("a data strip of zeros", ops, agrees, &[]));
        }
        table
    }

    fn operations(&mut self) -> usize {
        let table = self.table();
        for (name, ops, value, same) in &table {
            let of = (self.offset, self.len);
            self.fill();
            assert_eq!(self.compute(ops), *value, "{name} of {of:?}");
            for (x, y) in *same {
                let (found, expected) = (self.bytes(*x), self.bytes(*y));
                assert!(!found.is_empty() && found == expected, "{name}: {x} is not {y} of {of:?}");
            }
        }
        self.change(A, |bytes| bytes.fill(0xdb));
        self.compute(&[ComputeOp::Zero { to: self.at(A) }]);
        assert!(self.bytes(A).iter().all(|byte| *byte == 0));
        1 + table.len()
    }

    fn refusals(&mut self) -> usize {
        let (strip, other) = (self.at(0), self.at(1));
        let zeros = |offset| Segment::at(Frame(0), offset, 512);
        let behind = Segment::at(Frame(FRAMES - 1), 0, 8192);
        let cases: [(&str, &[Segment], &[Segment]); 6] = [
            ("the same to read and to write", &[other, strip], &[strip]),
            ("the same to write twice", &[other], &[strip, strip]),
            ("zeros to write", &[], &[zeros(0)]),
            ("what comes after the zeros", &[zeros(3585)], &[]),
            ("memory that there is not, to read", &[behind], &[]),
            ("memory that there is not, to write", &[], &[behind]),
        ];
        for (name, read, write) in &cases {
            let refused = catch_unwind(AssertUnwindSafe(|| {
                self.frames.split(read, write);
            }));
            assert!(refused.is_err(), "{name} is not refused");
        }
        cases.len()
    }
}
