//! Computations of the engine (copy, XOR, P and Q, recovery), done with `weft-parity` on the slab.
//!
//! The runtime does the same on its own slab. Inputs are copied out first,
//! so that no two slices of the slab are borrowed at once; that costs nothing that a simulation
//! would notice.

use weft_engine::{ComputeOp, Differs, Located, Segment, Source, Value};
use weft_parity::Parity;

use crate::payload::PayloadMode;

/// The slab, and what stands in it for a sector of payload.
#[derive(Debug)]
pub struct Slab<'a> {
    /// All frames.
    pub bytes: &'a mut [u8],
    /// How the simulation stores payload.
    pub payload: PayloadMode,
}

/// Does one computation: its operations in order. Without payload, whatever is compared is right.
pub fn execute(parity: &Parity, slab: &mut Slab<'_>, ops: &[ComputeOp]) -> Value {
    ops.iter().fold(Value::Nothing, |_, op| execute_one(parity, slab, op))
}

fn execute_one(parity: &Parity, slab: &mut Slab<'_>, op: &ComputeOp) -> Value {
    match op {
        ComputeOp::Compare { data, p, q } => {
            let data = weighted(slab, data);
            let (p, q) = (p.map(|part| slab.copied(part)), q.map(|part| slab.copied(part)));
            let (right_p, right_q) = syndromes(parity, &data, q.is_some());
            Value::Differs(Differs {
                p: p.is_some_and(|p| p != right_p),
                q: q.is_some_and(|q| q != right_q),
            })
        }
        ComputeOp::Copy { from, to } => {
            slab.copy(*from, *to);
            Value::Nothing
        }
        ComputeOp::Locate { data, p, q } => {
            let data = weighted(slab, data);
            let (p, q) = (slab.copied(*p), slab.copied(*q));
            Value::Located(match parity.locate(&borrowed(&data), &p, &q) {
                weft_parity::Located::Clean => Located::Clean,
                weft_parity::Located::Data(index) => {
                    Located::Data(u16::try_from(index).expect("a stripe has at most 64 members"))
                }
                weft_parity::Located::P => Located::P,
                weft_parity::Located::Q => Located::Q,
                weft_parity::Located::Unknown => Located::Unknown,
            })
        }
        ComputeOp::Pq { data, p, q } => {
            let data = weighted(slab, data);
            let (p_bytes, q_bytes) = syndromes(parity, &data, q.is_some());
            for (part, bytes) in [(p, p_bytes), (q, q_bytes)] {
                if let Some(part) = part {
                    slab.range(*part).copy_from_slice(&bytes);
                }
            }
            Value::Nothing
        }
        ComputeOp::Recover { data, p, q, lost } => {
            recover(parity, slab, data, (*p, *q), lost);
            Value::Nothing
        }
        ComputeOp::UpdatePq { exponent, old, new, p, q } => {
            let old = slab.copied(*old);
            // Zeros do not lie in their frame as they lie in the block.
            let new = if new.is_zero() { vec![0; old.len()] } else { slab.copied(*new) };
            let mut p_bytes = p.map(|part| slab.copied(part));
            let mut q_bytes = q.map(|part| slab.copied(part));
            parity.update_pq(*exponent, &old, &new, p_bytes.as_deref_mut(), q_bytes.as_deref_mut());
            for (part, bytes) in [(p, p_bytes), (q, q_bytes)] {
                if let (Some(part), Some(bytes)) = (part, bytes) {
                    slab.range(*part).copy_from_slice(&bytes);
                }
            }
            Value::Nothing
        }
        ComputeOp::Zero { to } => {
            slab.range(*to).fill(0);
            Value::Nothing
        }
    }
}

/// The parts that an operation reads, and those that it writes. A part that is changed in place is
/// in both.
#[must_use]
pub fn footprint(ops: &[ComputeOp]) -> (Vec<Segment>, Vec<Segment>) {
    let (mut reads, mut writes) = (Vec::new(), Vec::new());
    for op in ops {
        let (more_reads, more_writes) = footprint_of_one(op);
        reads.extend(more_reads);
        writes.extend(more_writes);
    }
    (reads, writes)
}

fn footprint_of_one(op: &ComputeOp) -> (Vec<Segment>, Vec<Segment>) {
    let of = |sources: &[Source]| sources.iter().map(|source| source.part).collect::<Vec<_>>();
    let both = |p: &Option<Segment>, q: &Option<Segment>| [*p, *q].into_iter().flatten();
    match op {
        ComputeOp::Compare { data, p, q } => {
            (of(data).into_iter().chain(both(p, q)).collect(), Vec::new())
        }
        ComputeOp::Copy { from, to } => (vec![*from], vec![*to]),
        ComputeOp::Locate { data, p, q } => {
            (of(data).into_iter().chain([*p, *q]).collect(), Vec::new())
        }
        ComputeOp::Pq { data, p, q } => (of(data), both(p, q).collect()),
        ComputeOp::Recover { data, p, q, lost } => {
            (of(data).into_iter().chain(both(p, q)).collect(), of(lost))
        }
        ComputeOp::UpdatePq { old, new, p, q, .. } => {
            ([*old, *new].into_iter().chain(both(p, q)).collect(), both(p, q).collect())
        }
        ComputeOp::Zero { to } => (Vec::new(), vec![*to]),
    }
}

/// P and Q of data blocks, each with its exponent. Without Q the exponents mean nothing.
#[must_use]
pub fn syndromes(parity: &Parity, data: &[(u8, Vec<u8>)], with_q: bool) -> (Vec<u8>, Vec<u8>) {
    let len = data.first().map_or(0, |(_, bytes)| bytes.len());
    let (mut p, mut q) = (vec![0; len], vec![0; len]);
    if with_q {
        parity.pq(&borrowed(data), &mut p, &mut q);
    } else {
        let blocks: Vec<&[u8]> = data.iter().map(|(_, bytes)| bytes.as_slice()).collect();
        parity.xor(&blocks, &mut p);
    }
    (p, q)
}

fn recover(
    parity: &Parity,
    slab: &mut Slab<'_>,
    data: &[Source],
    (p, q): (Option<Segment>, Option<Segment>),
    lost: &[Source],
) {
    let data = weighted(slab, data);
    let p = p.map(|part| slab.copied(part));
    let q = q.map(|part| slab.copied(part));
    match (lost, p, q) {
        ([one], Some(p), _) => {
            let blocks = data.iter().map(|(_, bytes)| bytes.as_slice());
            let sources: Vec<&[u8]> = blocks.chain([p.as_slice()]).collect();
            parity.xor(&sources, slab.range(one.part));
        }
        ([one], None, Some(q)) => {
            let out = slab.range(one.part);
            parity.recover_data_from_q(&borrowed(&data), &q, one.exponent, out);
        }
        ([a, b], Some(p), Some(q)) => {
            let (mut out_a, mut out_b) = (vec![0; p.len()], vec![0; p.len()]);
            let (first, second) = (a.exponent, b.exponent);
            parity.recover_two(&borrowed(&data), &p, &q, first, second, &mut out_a, &mut out_b);
            slab.range(a.part).copy_from_slice(&out_a);
            slab.range(b.part).copy_from_slice(&out_b);
        }
        (lost, p, q) => {
            panic!("cannot recover {} from P {} Q {}", lost.len(), p.is_some(), q.is_some())
        }
    }
}

fn weighted(slab: &Slab<'_>, sources: &[Source]) -> Vec<(u8, Vec<u8>)> {
    sources.iter().map(|source| (source.exponent, slab.copied(source.part))).collect()
}

fn borrowed(data: &[(u8, Vec<u8>)]) -> Vec<(u8, &[u8])> {
    data.iter().map(|(exponent, bytes)| (*exponent, bytes.as_slice())).collect()
}

impl Slab<'_> {
    fn copied(&self, part: Segment) -> Vec<u8> {
        self.bytes[self.payload.part(part)].to_vec()
    }

    fn copy(&mut self, from: Segment, to: Segment) {
        let from = self.payload.part(from);
        let to = self.writable(to);
        assert_eq!(from.len(), to.len(), "what is copied lies alike in its sectors");
        self.bytes.copy_within(from, to.start);
    }

    fn range(&mut self, part: Segment) -> &mut [u8] {
        let range = self.writable(part);
        &mut self.bytes[range]
    }

    fn writable(&self, part: Segment) -> std::ops::Range<usize> {
        assert!(!part.is_zero(), "the frame of zeros is never written");
        self.payload.part(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_engine::{Frame, Sources};

    #[test]
    fn what_is_generated_compares_equal_and_recovers() {
        let parity = Parity::detect();
        for payload in [PayloadMode::Bytes, PayloadMode::Tags] {
            let mut memory = vec![0; payload.bytes_of(8) * 9];
            let mut slab = Slab { bytes: &mut memory, payload };
            let part = |frame| Segment::at(Frame(frame), 0, 4096);
            for frame in 1..4 {
                slab.range(part(frame)).fill(frame as u8 * 37);
            }
            let source = |k: u32| Source { exponent: k as u8, part: part(k + 1) };
            let data: Sources = (0..3).map(source).collect();
            let (p, q) = (Some(part(4)), Some(part(5)));
            let run = |slab: &mut Slab<'_>, op: ComputeOp| execute(&parity, slab, &[op]);
            run(&mut slab, ComputeOp::Pq { data: data.clone(), p, q });
            let same = run(&mut slab, ComputeOp::Compare { data: data.clone(), p, q });
            assert_eq!(same, Value::Differs(Differs::default()));
            let lost = [(0, 6), (2, 7)]
                .map(|(exponent, at)| Source { exponent, part: part(at) })
                .into_iter()
                .collect();
            let left: Sources = [data[1]].into_iter().collect();
            run(&mut slab, ComputeOp::Recover { data: left, p, q, lost });
            assert_eq!(slab.copied(part(6)), slab.copied(part(1)));
            assert_eq!(slab.copied(part(7)), slab.copied(part(3)));
            slab.range(part(2))[0] ^= 1;
            let located = run(&mut slab, ComputeOp::Locate { data, p: part(4), q: part(5) });
            assert_eq!(located, Value::Located(Located::Data(1)));
        }
    }

    #[test]
    fn zeros_go_over_a_part_of_a_tag_as_over_a_part_of_a_sector() {
        let parity = Parity::detect();
        for payload in [PayloadMode::Bytes, PayloadMode::Tags] {
            let mut memory = vec![0; payload.bytes_of(8) * 4];
            let mut slab = Slab { bytes: &mut memory, payload };
            slab.range(Segment::at(Frame(1), 0, 4096)).fill(5);
            slab.range(Segment::at(Frame(2), 0, 4096)).fill(5);
            let at = |frame| Segment::at(Frame(frame), 530, 70);
            let new = Segment::at(Frame(0), 0, 70);
            let update =
                ComputeOp::UpdatePq { exponent: 0, old: at(1), new, p: Some(at(2)), q: None };
            execute(&parity, &mut slab, &[update, ComputeOp::Zero { to: at(1) }]);
            let (data, p) = (slab.copied(at(1)), slab.copied(at(2)));
            assert!(!data.is_empty() && data.iter().all(|byte| *byte == 0), "{payload:?}");
            assert_eq!(data, p, "{payload:?}");
        }
    }
}
