//! Computations over frames (copy, XOR, P and Q, recovery, comparison), done with `weft-parity`.
//!
//! One function for each operation that the engine orders, on the slab.
//!
//! Source   md-raid.md §5.2 (exponents), §2.4 (updates)

use smallvec::SmallVec;
use weft_engine::{ComputeOp, Differs, Located, Segment, Source, Value};
use weft_parity::Parity;

use crate::buffers::Slab;

/// Carries out a computation: its operations in order.
///
/// # Panics
/// When parts differ in length, overlap or are leased: the engine keeps them apart.
pub fn compute(parity: &Parity, slab: &mut Slab, ops: &[ComputeOp]) -> Value {
    ops.iter().fold(Value::Nothing, |_, op| compute_one(parity, slab, op))
}

fn compute_one(parity: &Parity, slab: &mut Slab, op: &ComputeOp) -> Value {
    match op {
        ComputeOp::Compare { data, p, q } => compare(parity, slab, data, *p, *q),
        ComputeOp::Copy { from, to } => {
            let split = &mut slab.split(&[*from], &[*to]);
            split.exclusive[0].copy_from_slice(split.shared[0]);
            Value::Nothing
        }
        ComputeOp::Locate { data, p, q } => locate(parity, slab, data, *p, *q),
        ComputeOp::Pq { data, p, q } => pq(parity, slab, data, *p, *q),
        ComputeOp::Recover { data, p, q, lost } => recover(parity, slab, data, *p, *q, lost),
        ComputeOp::UpdatePq { exponent, old, new, p, q } => {
            let targets: Parts = p.iter().chain(q).copied().collect();
            let mut split = slab.split(&[*old, *new], &targets);
            let mut written = split.exclusive.drain(..);
            let p = p.and_then(|_| written.next());
            let q = q.and_then(|_| written.next());
            parity.update_pq(*exponent, split.shared[0], split.shared[1], p, q);
            Value::Nothing
        }
        ComputeOp::Zero { to } => {
            slab.bytes_mut(*to).fill(0);
            Value::Nothing
        }
    }
}

fn pq(
    parity: &Parity,
    slab: &mut Slab,
    data: &[Source],
    p: Option<Segment>,
    q: Option<Segment>,
) -> Value {
    let targets: Parts = p.iter().chain(&q).copied().collect();
    let split = slab.split(&parts_of(data), &targets);
    let sources = &split.shared;
    let mut exclusive = split.exclusive;
    match (p, q, &mut exclusive[..]) {
        (Some(_), Some(_), [p, q]) => parity.pq(&weighted(data, sources), p, q),
        (Some(_), None, [p]) => parity.xor(sources, p),
        (None, Some(_), [q]) => parity.q(&weighted(data, sources), q),
        _ => {}
    }
    Value::Nothing
}

fn compare(
    parity: &Parity,
    slab: &mut Slab,
    data: &[Source],
    p: Option<Segment>,
    q: Option<Segment>,
) -> Value {
    let mut shared = parts_of(data);
    shared.extend(p.iter().chain(&q).copied());
    let split = slab.split(&shared, &[]);
    let (sources, mut stored) = split_at(&split.shared, data.len());
    let p = p.and_then(|_| stored.next());
    let q = q.and_then(|_| stored.next());
    let found = parity.compare(&weighted(data, sources), p, q);
    Value::Differs(Differs { p: found.p, q: found.q })
}

fn locate(parity: &Parity, slab: &mut Slab, data: &[Source], p: Segment, q: Segment) -> Value {
    let mut shared = parts_of(data);
    shared.extend([p, q]);
    let split = slab.split(&shared, &[]);
    let (sources, _) = split_at(&split.shared, data.len());
    let (p, q) = (split.shared[data.len()], split.shared[data.len() + 1]);
    Value::Located(match parity.locate(&weighted(data, sources), p, q) {
        weft_parity::Located::Clean => Located::Clean,
        weft_parity::Located::Data(index) => {
            Located::Data(u16::try_from(index).expect("at most 255 data strips"))
        }
        weft_parity::Located::P => Located::P,
        weft_parity::Located::Q => Located::Q,
        weft_parity::Located::Unknown => Located::Unknown,
    })
}

fn recover(
    parity: &Parity,
    slab: &mut Slab,
    data: &[Source],
    p: Option<Segment>,
    q: Option<Segment>,
    lost: &[Source],
) -> Value {
    let mut shared = parts_of(data);
    shared.extend(p.iter().chain(&q).copied());
    let targets = parts_of(lost);
    let split = slab.split(&shared, &targets);
    let (sources, mut stored) = split_at(&split.shared, data.len());
    let p = p.and_then(|_| stored.next());
    let q = q.and_then(|_| stored.next());
    let others = weighted(data, sources);
    let mut exclusive = split.exclusive;
    match (p, q, &mut exclusive[..]) {
        (Some(p), _, [out]) => {
            let mut all: SmallVec<[&[u8]; 8]> = sources.iter().copied().collect();
            all.push(p);
            parity.xor(&all, out);
        }
        (None, Some(q), [out]) => {
            parity.recover_data_from_q(&others, q, lost[0].exponent, out);
        }
        (Some(p), Some(q), [a, b]) => {
            parity.recover_two(&others, p, q, lost[0].exponent, lost[1].exponent, a, b);
        }
        _ => panic!("{} blocks lost, P {}, Q {}", lost.len(), p.is_some(), q.is_some()),
    }
    Value::Nothing
}

type Parts = SmallVec<[Segment; 8]>;
type Weighted<'a> = SmallVec<[(u8, &'a [u8]); 8]>;

fn parts_of(sources: &[Source]) -> Parts {
    sources.iter().map(|source| source.part).collect()
}

fn weighted<'a>(sources: &[Source], bytes: &[&'a [u8]]) -> Weighted<'a> {
    sources.iter().zip(bytes).map(|(source, bytes)| (source.exponent, *bytes)).collect()
}

fn split_at<'a, 'b>(
    shared: &'b [&'a [u8]],
    count: usize,
) -> (&'b [&'a [u8]], impl Iterator<Item = &'a [u8]> + use<'a, 'b>) {
    let (sources, stored) = shared.split_at(count);
    (sources, stored.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_engine::Frame;

    fn part(frame: u32) -> Segment {
        Segment { frame: Frame(frame), offset: 0, len: 4096 }
    }

    fn source(exponent: u8, frame: u32) -> Source {
        Source { exponent, part: part(frame) }
    }

    /// Frames 1 to 3 hold data, 4 P, 5 Q.
    fn stripe() -> (Parity, Slab) {
        let (parity, mut slab) = (Parity::detect(), Slab::new(16).unwrap());
        for frame in 1..=3 {
            let bytes = slab.bytes_mut(part(frame));
            for (index, byte) in bytes.iter_mut().enumerate() {
                *byte = u8::try_from((index * frame as usize * 7 + index / 256) % 251).unwrap();
            }
        }
        let data = (0u8..3).map(|index| source(index, u32::from(index) + 1)).collect();
        compute_one(
            &parity,
            &mut slab,
            &ComputeOp::Pq { data, p: Some(part(4)), q: Some(part(5)) },
        );
        (parity, slab)
    }

    fn all() -> weft_engine::Sources {
        (0u8..3).map(|index| source(index, u32::from(index) + 1)).collect()
    }

    #[test]
    fn lost_blocks_come_back_from_what_is_left() {
        let (parity, mut slab) = stripe();
        let cases: [(&[u8], Option<Segment>, Option<Segment>); 5] = [
            (&[1], Some(part(4)), None),
            (&[1], Some(part(4)), Some(part(5))),
            (&[0], None, Some(part(5))),
            (&[0, 2], Some(part(4)), Some(part(5))),
            (&[2, 1], Some(part(4)), Some(part(5))),
        ];
        for (gone, p, q) in cases {
            let data = all().into_iter().filter(|source| !gone.contains(&source.exponent));
            let lost = gone.iter().zip(6..).map(|(exponent, frame)| source(*exponent, frame));
            let op = ComputeOp::Recover { data: data.collect(), p, q, lost: lost.collect() };
            compute_one(&parity, &mut slab, &op);
            for (exponent, frame) in gone.iter().zip(6..) {
                let original = slab.bytes(part(u32::from(*exponent) + 1)).to_vec();
                assert_eq!(slab.bytes(part(frame)), original, "{gone:?}");
            }
        }
    }

    #[test]
    fn parity_is_updated_compared_and_located() {
        let (parity, mut slab) = stripe();
        let (p, q) = (Some(part(4)), Some(part(5)));
        let compare = ComputeOp::Compare { data: all(), p, q };
        let agrees = Value::Differs(Differs { p: false, q: false });
        assert_eq!(compute_one(&parity, &mut slab, &compare), agrees);

        slab.bytes_mut(part(8)).fill(0xa5);
        let op = [
            ComputeOp::UpdatePq { exponent: 1, old: part(2), new: part(8), p, q },
            ComputeOp::Copy { from: part(8), to: part(2) },
            compare.clone(),
        ];
        assert_eq!(compute(&parity, &mut slab, &op), agrees);

        slab.bytes_mut(part(3))[17] ^= 1;
        let both = Value::Differs(Differs { p: true, q: true });
        assert_eq!(compute_one(&parity, &mut slab, &compare), both);
        let locate = ComputeOp::Locate { data: all(), p: part(4), q: part(5) };
        assert_eq!(compute_one(&parity, &mut slab, &locate), Value::Located(Located::Data(2)));

        compute_one(&parity, &mut slab, &ComputeOp::Zero { to: part(4) });
        assert_eq!(slab.bytes(part(4)), [0; 4096]);
    }
}
