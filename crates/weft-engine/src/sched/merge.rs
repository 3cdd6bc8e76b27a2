//! Which member requests of one turn become one?
//!
//! Rows are decided one at a time, so that a full stripe arrives here as many small requests that lie
//! side by side. A request is appended to the last one of the same member and kind when it begins
//! where that one ends, carries the same flags, and the sum stays within `max_sectors_kb`. Order is
//! never changed.
//!
//! Knob     `max_sectors_kb` (KiB, 0 merges nothing)
//! Source   Linux block layer, back merge in a plug list; md relies on it (baseline/kernel-md.csv)

use weft_units::{Bytes, MemberIndex, Sectors, VolumeId};

use crate::frame::{Part, Parts};
use crate::input::Attr;
use crate::outbox::Owner;

/// A request on its way to a member.
#[derive(Clone, Debug)]
pub(crate) struct Staged {
    pub(crate) volume: VolumeId,
    pub(crate) member: MemberIndex,
    pub(crate) write: bool,
    pub(crate) fua: bool,
    pub(crate) at: Sectors,
    pub(crate) parts: Parts,
    pub(crate) bytes: u64,
    /// How large it may become.
    pub(crate) max: Bytes,
    pub(crate) attr: Attr,
    pub(crate) owner: Owner,
}

/// The requests of one turn.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stage {
    staged: Vec<Staged>,
    /// Position in `staged` of the last request per member and direction.
    last: Vec<(MemberIndex, bool, usize)>,
}

impl Stage {
    /// Adds a request of one part, to the end of another if it fits there.
    pub(crate) fn push(&mut self, mut new: Staged) {
        let found = self
            .last
            .iter_mut()
            .find(|(member, write, _)| *member == new.member && *write == new.write);
        let Some((_, _, position)) = found else {
            self.last.push((new.member, new.write, self.staged.len()));
            self.staged.push(new);
            return;
        };
        let last = &mut self.staged[*position];
        let fits = last.bytes + new.bytes <= last.max.min(new.max).0
            && last.at + Bytes(last.bytes).sectors_floor() == new.at
            && last.fua == new.fua
            && last.attr == new.attr
            && last.owner.same_kind(&new.owner);
        if fits {
            last.bytes += new.bytes;
            for part in new.parts.drain(..) {
                append(&mut last.parts, part);
            }
            last.owner.append(new.owner);
        } else {
            *position = self.staged.len();
            self.staged.push(new);
        }
    }

    /// Takes everything out, in order.
    pub(crate) fn drain(&mut self) -> std::vec::Drain<'_, Staged> {
        self.last.clear();
        self.staged.drain(..)
    }
}

/// Adds a part, as the rest of the last one where memory goes on.
fn append(parts: &mut Parts, part: Part) {
    if let Some(last) = parts.last_mut()
        && last.slab_end() == part.slab_start()
        && !part.is_zero()
        && !last.is_zero()
    {
        last.len += part.len;
        return;
    }
    parts.push(part);
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;
    use weft_units::{RowId, Slot};

    use super::*;
    use crate::frame::Frame;
    use crate::outbox::RowPart;

    fn staged(member: u16, write: bool, at: u64, frame: u32) -> Staged {
        Staged {
            volume: VolumeId(0),
            member: MemberIndex(member),
            write,
            fua: false,
            at: Sectors(at),
            parts: smallvec![Part { frame: Frame(frame), offset: 0, len: 4096 }],
            bytes: 4096,
            max: Bytes::kib(512),
            attr: Attr::default(),
            owner: Owner::Rows(smallvec![RowPart { row: RowId(frame), slot: Slot(member) }]),
        }
    }

    fn merged(requests: &[Staged], max_kib: u64) -> Vec<(u16, u64, u64, usize)> {
        let mut stage = Stage::default();
        for request in requests {
            stage.push(Staged { max: request.max.min(Bytes::kib(max_kib)), ..request.clone() });
        }
        stage.drain().map(|s| (s.member.0, s.at.0, s.bytes, s.parts.len())).collect()
    }

    #[test]
    fn neighbours_of_one_member_and_kind_become_one() {
        let requests = [
            staged(0, true, 0, 10),
            staged(1, true, 0, 20),
            staged(0, true, 8, 11),
            staged(0, true, 16, 30),
            staged(0, false, 24, 31),
            staged(0, true, 32, 33),
        ];
        let expected = [(0, 0, 12_288, 2), (1, 0, 4096, 1), (0, 24, 4096, 1), (0, 32, 4096, 1)];
        assert_eq!(merged(&requests, 512), expected);
    }

    #[test]
    fn a_merged_request_stays_within_the_limit_and_flags_are_kept() {
        let mut requests: Vec<_> =
            (0..5u32).map(|n| staged(0, true, u64::from(n) * 8, 1 + n)).collect();
        assert_eq!(merged(&requests, 8), [(0, 0, 8192, 1), (0, 16, 8192, 1), (0, 32, 4096, 1)]);
        assert_eq!(merged(&requests, 0).len(), 5);
        requests[1].fua = true;
        assert_eq!(merged(&requests, 512).len(), 3);
    }

    #[test]
    fn a_request_that_goes_alone_takes_no_company() {
        let mut requests: Vec<_> =
            (0..3u32).map(|n| staged(0, false, u64::from(n) * 8, 1 + n)).collect();
        requests[1].max = Bytes::ZERO;
        assert_eq!(merged(&requests, 512).len(), 3);
    }
}
