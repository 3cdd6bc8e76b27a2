//! Letters of block traces (RWBS): operation and flags of a request.
//!
//! The letters are an optional preflush, the operation, then the flags: `FWFSM` is a write with
//! preflush, FUA, sync and metadata.
//!
//! Source   blkparse(1), "RWBS"; experiments.md §5.2; order of letters as blkparse 1.2 prints them

use super::line::{Fault, Field};
use super::{Flags, Op};

/// Parses the operation and the flags; the operation is `None` if the letters name no transfer
/// (`N`).
pub(crate) fn parse(field: &Field<'_>) -> Result<(Option<Op>, Flags), Fault> {
    const EXPECTED: &str = "letters of F? (R|W|D|N|F) F? A? S? M?";
    let letters = field.text.as_bytes();
    let mut flags = Flags::default();
    let mut at = 0;
    if letters.first() == Some(&b'F') {
        flags.preflush = true;
        at = 1;
    }
    let op = match letters.get(at) {
        Some(b'R') => Some(Op::Read),
        Some(b'W') => Some(Op::Write),
        Some(b'D') => Some(Op::Discard),
        Some(b'N') => None,
        // A flush that the kernel generated for a request: `FF`, or `F` alone.
        Some(b'F') | None if flags.preflush => None,
        _ => return Err(field.fault(EXPECTED)),
    };
    for letter in letters.iter().skip(at + 1) {
        let flag = match letter {
            b'F' => &mut flags.fua,
            b'A' => &mut flags.ahead,
            b'S' => &mut flags.sync,
            b'M' => &mut flags.meta,
            _ => return Err(field.fault(EXPECTED)),
        };
        if std::mem::replace(flag, true) {
            return Err(field.fault(EXPECTED));
        }
    }
    Ok((op, flags))
}

/// Operation and flags of a request with these letters; `empty` says that the request has no data.
/// An empty request that has a preflush, and is a write or has no operation, is a flush. `None` for
/// a request that transfers nothing.
pub(crate) fn request(op: Option<Op>, flags: Flags, empty: bool) -> Option<(Op, Flags)> {
    if empty && flags.preflush && matches!(op, None | Some(Op::Write)) {
        return Some((Op::Flush, Flags { preflush: false, ..flags }));
    }
    op.map(|op| (op, flags))
}
