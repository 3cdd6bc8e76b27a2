//! Computations of the engine ([`ComputeOp`]) carried out on frames, with `weft-parity`.
//!
//! Every driver with payload calls [`compute`], so the parity code that the crash simulator tests
//! is the code that ships. The driver's [`Frames`] decides where the bytes of a segment are and
//! which accesses are allowed; `conformance.rs` tests every implementation with one table of
//! operations.
//!
//! Source   md-raid.md §5.2 (exponents), §2.4 (updates)
#![forbid(unsafe_code)]
#![deny(missing_docs)]

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;

use std::ops::Range;

use smallvec::{Array, SmallVec};
use weft_engine::{ComputeOp, Differs, Located, Segment, Source, Value};
use weft_parity::Parity;

/// Memory of a driver, which contains the segments that the engine names.
pub trait Frames {
    /// Slices for the segments of one operation: those to read and those to write.
    ///
    /// Shape    each slice has the length of its segment
    ///
    /// Segments to read may overlap each other.
    ///
    /// # Panics
    /// Panics when a segment to write overlaps another one or is in the frame of zeros, when a
    /// segment that starts in the frame of zeros extends past its end, when a segment extends past
    /// the end of the memory, or when the bytes are in use elsewhere.
    fn split(&mut self, read: &[Segment], write: &[Segment]) -> Split<'_>;
}

/// Slices of the segments of one operation.
#[derive(Debug, Default)]
pub struct Split<'a> {
    /// Slices of the segments to read, in the order of the arguments.
    pub read: SmallVec<[&'a [u8]; 8]>,
    /// Slices of the segments to write, in the order of the arguments.
    pub write: SmallVec<[&'a mut [u8]; 2]>,
}

/// Segments that the operations passed to [`Footprint::add`] read and write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Segments that are only read.
    pub read: SmallVec<[Segment; 8]>,
    /// Segments that are written, or changed in place.
    pub write: SmallVec<[Segment; 2]>,
}

/// Carries out the operations of a computation in order. Returns the value of the last operation,
/// or [`Value::Nothing`] if there is none.
///
/// # Panics
/// Panics when the segments of an operation differ in length, when a segment to write overlaps
/// another one, or when bytes are in use elsewhere. The engine requests no such operation.
pub fn compute(parity: &Parity, frames: &mut impl Frames, ops: &[ComputeOp]) -> Value {
    let mut segments = Footprint::default();
    let mut value = Value::Nothing;
    for op in ops {
        segments.read.clear();
        segments.write.clear();
        segments.add(op);
        value = compute_one(parity, op, frames.split(&segments.read, &segments.write));
    }
    value
}

fn compute_one(parity: &Parity, op: &ComputeOp, split: Split<'_>) -> Value {
    let Split { read, mut write } = split;
    match op {
        ComputeOp::Compare { data, p, q } => {
            let (strips, mut stored) = strips(data, &read);
            let p = p.and_then(|_| stored.next());
            let q = q.and_then(|_| stored.next());
            let found = parity.compare(&strips, p, q);
            return Value::Differs(Differs { p: found.p, q: found.q });
        }
        ComputeOp::Copy { .. } => write[0].copy_from_slice(read[0]),
        ComputeOp::Locate { data, .. } => {
            let (p, q) = (read[data.len()], read[data.len() + 1]);
            return Value::Located(match parity.locate(&strips(data, &read).0, p, q) {
                weft_parity::Located::Clean => Located::Clean,
                weft_parity::Located::Data(index) => {
                    Located::Data(u16::try_from(index).expect("at most 255 data strips"))
                }
                weft_parity::Located::P => Located::P,
                weft_parity::Located::Q => Located::Q,
                weft_parity::Located::Unknown => Located::Unknown,
            });
        }
        ComputeOp::Pq { data, p, q } => match (p, q, &mut write[..]) {
            (Some(_), Some(_), [p, q]) => parity.pq(&strips(data, &read).0, p, q),
            (Some(_), None, [p]) => parity.xor(&read, p),
            (None, Some(_), [q]) => parity.q(&strips(data, &read).0, q),
            _ => {}
        },
        ComputeOp::Recover { data, p, q, lost } => {
            let (strips, mut stored) = strips(data, &read);
            let p = p.and_then(|_| stored.next());
            let q = q.and_then(|_| stored.next());
            match (p, q, &mut write[..]) {
                (Some(_), _, [out]) => parity.xor(&read[..=data.len()], out),
                (None, Some(q), [out]) => {
                    parity.recover_data_from_q(&strips, q, lost[0].exponent, out);
                }
                (Some(p), Some(q), [a, b]) => {
                    parity.recover_two(&strips, p, q, lost[0].exponent, lost[1].exponent, a, b);
                }
                _ => panic!("{} strips lost, P {}, Q {}", lost.len(), p.is_some(), q.is_some()),
            }
        }
        ComputeOp::UpdatePq { exponent, p, q, .. } => {
            let mut write = write.drain(..);
            let p = p.and_then(|_| write.next());
            let q = q.and_then(|_| write.next());
            parity.update_pq(*exponent, read[0], read[1], p, q);
        }
        ComputeOp::Zero { .. } => write[0].fill(0),
    }
    Value::Nothing
}

impl Footprint {
    /// Adds the segments that an operation reads and writes, in this order: data strips, P, Q. Old
    /// content precedes new content.
    pub fn add(&mut self, op: &ComputeOp) {
        let Self { read, write } = self;
        match op {
            ComputeOp::Compare { data, p, q } => {
                push(read, data);
                p.iter().chain(q).for_each(|parity| read.push(*parity));
            }
            ComputeOp::Copy { from, to } => {
                read.push(*from);
                write.push(*to);
            }
            ComputeOp::Locate { data, p, q } => {
                push(read, data);
                read.extend_from_slice(&[*p, *q]);
            }
            ComputeOp::Pq { data, p, q } => {
                push(read, data);
                p.iter().chain(q).for_each(|parity| write.push(*parity));
            }
            ComputeOp::Recover { data, p, q, lost } => {
                push(read, data);
                p.iter().chain(q).for_each(|parity| read.push(*parity));
                push(write, lost);
            }
            ComputeOp::UpdatePq { old, new, p, q, .. } => {
                read.extend_from_slice(&[*old, *new]);
                p.iter().chain(q).for_each(|parity| write.push(*parity));
            }
            ComputeOp::Zero { to } => write.push(*to),
        }
    }
}

/// Implements [`Frames::split`] for memory that is one slice, given the ranges of the segments.
///
/// # Panics
/// Panics when a range to write overlaps another one, or a range is outside the slice.
#[must_use]
pub fn split_slice<'a>(
    memory: &'a mut [u8],
    read: &[Range<usize>],
    write: &[Range<usize>],
) -> Split<'a> {
    if let [target] = write {
        return split_at_one(memory, read, target);
    }
    let mut order: SmallVec<[usize; 2]> = (0..write.len()).collect();
    order.sort_unstable_by_key(|index| write[*index].start);
    // The ranges to write are cut out of the memory in ascending order; the gaps between them are
    // read.
    let mut gaps: SmallVec<[(usize, &[u8]); 4]> = SmallVec::new();
    let mut targets: SmallVec<[(usize, &mut [u8]); 2]> = SmallVec::new();
    let (mut rest, mut at) = (memory, 0);
    for index in order {
        let place = &write[index];
        assert!(at <= place.start, "the target {place:?} overlaps a target that ends at {at}");
        let (gap, tail) = rest.split_at_mut(place.start - at);
        let (target, tail) = tail.split_at_mut(place.len());
        gaps.push((at, gap));
        targets.push((index, target));
        (rest, at) = (tail, place.end);
    }
    gaps.push((at, rest));
    targets.sort_unstable_by_key(|(index, _)| *index);
    let find = |place: &Range<usize>| {
        let mut gaps = gaps.iter().rev();
        let (first, gap) = gaps.find(|gap| gap.0 <= place.start).copied().unwrap_or((0, &[]));
        let found = gap.get(place.start - first..place.end - first);
        found.unwrap_or_else(|| panic!("{place:?} to read overlaps {write:?} or is outside"))
    };
    Split {
        read: read.iter().map(find).collect(),
        write: targets.into_iter().map(|target| target.1).collect(),
    }
}

/// Variant of [`split_slice`] for a single range to write, without sorting or searching. Most
/// operations write one range.
fn split_at_one<'a>(
    memory: &'a mut [u8],
    read: &[Range<usize>],
    target: &Range<usize>,
) -> Split<'a> {
    let (before, rest) = memory.split_at_mut(target.start);
    let (write, after) = rest.split_at_mut(target.len());
    let (before, after) = (&*before, &*after);
    let find = |place: &Range<usize>| {
        let found = match place.start.checked_sub(target.end) {
            Some(start) => after.get(start..start + place.len()),
            None => before.get(place.clone()),
        };
        found.unwrap_or_else(|| panic!("{place:?} to read overlaps {target:?} or is outside"))
    };
    Split { read: read.iter().map(find).collect(), write: SmallVec::from_iter([write]) }
}

type Strips<'a> = SmallVec<[(u8, &'a [u8]); 8]>;

/// Divides the slices that an operation reads into its data strips, each with its exponent, and the
/// others (stored P and Q).
fn strips<'a, 'b>(
    data: &[Source],
    read: &'b [&'a [u8]],
) -> (Strips<'a>, impl Iterator<Item = &'a [u8]> + use<'a, 'b>) {
    let (strips, stored) = read.split_at(data.len());
    let strips = data.iter().zip(strips).map(|(source, bytes)| (source.exponent, *bytes));
    (strips.collect(), stored.iter().copied())
}

fn push<A: Array<Item = Segment>>(segments: &mut SmallVec<A>, sources: &[Source]) {
    sources.iter().for_each(|source| segments.push(source.part));
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "the memory of a test is small")]
mod tests;
