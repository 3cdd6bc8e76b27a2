//! How are the engine's computations done?
//!
//! With `weft-parity`, on the bytes of the slab, as the runtime does. Inputs are copied out first, so
//! that no two slices of the slab are borrowed at once; that costs nothing that a simulation would
//! notice.

use weft_engine::{ComputeOp, Differs, Located, Part, Source, Value};
use weft_parity::Parity;

/// Does one computation: its operations in order.
pub fn execute(parity: &Parity, slab: &mut [u8], ops: &[ComputeOp]) -> Value {
    ops.iter().fold(Value::Nothing, |_, op| execute_one(parity, slab, op))
}

fn execute_one(parity: &Parity, slab: &mut [u8], op: &ComputeOp) -> Value {
    match op {
        ComputeOp::Compare { data, p, q } => {
            let data = weighted(slab, data);
            let (p, q) = (p.map(|part| copied(slab, part)), q.map(|part| copied(slab, part)));
            let (right_p, right_q) = syndromes(parity, &data, q.is_some());
            Value::Differs(Differs {
                p: p.is_some_and(|p| p != right_p),
                q: q.is_some_and(|q| q != right_q),
            })
        }
        ComputeOp::Copy { from, to } => {
            let bytes = copied(slab, *from);
            range(slab, *to).copy_from_slice(&bytes);
            Value::Nothing
        }
        ComputeOp::Locate { data, p, q } => {
            let data = weighted(slab, data);
            let (p, q) = (copied(slab, *p), copied(slab, *q));
            Value::Located(match parity.locate(&borrowed(&data), &p, &q) {
                weft_parity::Located::Clean => Located::Clean,
                weft_parity::Located::Data(index) => {
                    Located::Data(u16::try_from(index).expect("a row has at most 64 members"))
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
                    range(slab, *part).copy_from_slice(&bytes);
                }
            }
            Value::Nothing
        }
        ComputeOp::Recover { data, p, q, lost } => {
            recover(parity, slab, data, (*p, *q), lost);
            Value::Nothing
        }
        ComputeOp::UpdatePq { exponent, old, new, p, q } => {
            let (old, new) = (copied(slab, *old), copied(slab, *new));
            let mut p_bytes = p.map(|part| copied(slab, part));
            let mut q_bytes = q.map(|part| copied(slab, part));
            parity.update_pq(*exponent, &old, &new, p_bytes.as_deref_mut(), q_bytes.as_deref_mut());
            for (part, bytes) in [(p, p_bytes), (q, q_bytes)] {
                if let (Some(part), Some(bytes)) = (part, bytes) {
                    range(slab, *part).copy_from_slice(&bytes);
                }
            }
            Value::Nothing
        }
        ComputeOp::Zero { to } => {
            range(slab, *to).fill(0);
            Value::Nothing
        }
    }
}

/// The parts that an operation reads, and those that it writes. A part that is changed in place is
/// in both.
#[must_use]
pub fn footprint(ops: &[ComputeOp]) -> (Vec<Part>, Vec<Part>) {
    let (mut reads, mut writes) = (Vec::new(), Vec::new());
    for op in ops {
        let (more_reads, more_writes) = footprint_of_one(op);
        reads.extend(more_reads);
        writes.extend(more_writes);
    }
    (reads, writes)
}

fn footprint_of_one(op: &ComputeOp) -> (Vec<Part>, Vec<Part>) {
    let of = |sources: &[Source]| sources.iter().map(|source| source.part).collect::<Vec<_>>();
    let both = |p: &Option<Part>, q: &Option<Part>| [*p, *q].into_iter().flatten();
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
    slab: &mut [u8],
    data: &[Source],
    (p, q): (Option<Part>, Option<Part>),
    lost: &[Source],
) {
    let data = weighted(slab, data);
    let p = p.map(|part| copied(slab, part));
    let q = q.map(|part| copied(slab, part));
    match (lost, p, q) {
        ([one], Some(p), _) => {
            let blocks = data.iter().map(|(_, bytes)| bytes.as_slice());
            let sources: Vec<&[u8]> = blocks.chain([p.as_slice()]).collect();
            parity.xor(&sources, range(slab, one.part));
        }
        ([one], None, Some(q)) => {
            let out = range(slab, one.part);
            parity.recover_data_from_q(&borrowed(&data), &q, one.exponent, out);
        }
        ([a, b], Some(p), Some(q)) => {
            let (mut out_a, mut out_b) = (vec![0; p.len()], vec![0; p.len()]);
            let (first, second) = (a.exponent, b.exponent);
            parity.recover_two(&borrowed(&data), &p, &q, first, second, &mut out_a, &mut out_b);
            range(slab, a.part).copy_from_slice(&out_a);
            range(slab, b.part).copy_from_slice(&out_b);
        }
        (lost, p, q) => {
            panic!("cannot recover {} from P {} Q {}", lost.len(), p.is_some(), q.is_some())
        }
    }
}

fn weighted(slab: &[u8], sources: &[Source]) -> Vec<(u8, Vec<u8>)> {
    sources.iter().map(|source| (source.exponent, copied(slab, source.part))).collect()
}

fn borrowed(data: &[(u8, Vec<u8>)]) -> Vec<(u8, &[u8])> {
    data.iter().map(|(exponent, bytes)| (*exponent, bytes.as_slice())).collect()
}

fn copied(slab: &[u8], part: Part) -> Vec<u8> {
    slab[part.slab_start() as usize..part.slab_end() as usize].to_vec()
}

fn range(slab: &mut [u8], part: Part) -> &mut [u8] {
    assert!(!part.is_zero(), "the frame of zeros is never written");
    &mut slab[part.slab_start() as usize..part.slab_end() as usize]
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_engine::{Frame, Sources};

    #[test]
    fn what_is_generated_compares_equal_and_recovers() {
        let parity = Parity::detect();
        let mut slab = vec![0; 4096 * 9];
        let part = |frame| Part::at(Frame(frame), 0, 4096);
        for frame in 1..4 {
            range(&mut slab, part(frame)).fill(frame as u8 * 37);
        }
        let source = |k: u32| Source { exponent: k as u8, part: part(k + 1) };
        let data: Sources = (0..3).map(source).collect();
        let (p, q) = (Some(part(4)), Some(part(5)));
        let run = |slab: &mut Vec<u8>, op: ComputeOp| execute(&parity, slab, &[op]);
        run(&mut slab, ComputeOp::Pq { data: data.clone(), p, q });
        let same = run(&mut slab, ComputeOp::Compare { data: data.clone(), p, q });
        assert_eq!(same, Value::Differs(Differs::default()));
        let lost = [(0, 6), (2, 7)]
            .map(|(exponent, at)| Source { exponent, part: part(at) })
            .into_iter()
            .collect();
        let left: Sources = [data[1]].into_iter().collect();
        run(&mut slab, ComputeOp::Recover { data: left, p, q, lost });
        assert_eq!(copied(&slab, part(6)), copied(&slab, part(1)));
        assert_eq!(copied(&slab, part(7)), copied(&slab, part(3)));
        slab[4096 * 2] ^= 1;
        let located = run(&mut slab, ComputeOp::Locate { data, p: part(4), q: part(5) });
        assert_eq!(located, Value::Located(Located::Data(1)));
    }
}
