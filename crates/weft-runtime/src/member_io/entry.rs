//! Entry of a member in `MemberIo`: its open file, its damage, and the operations that wait for it.

use std::collections::VecDeque;
use std::ops::Range;

use weft_engine::{MemberOp, Segments};
use weft_units::Sectors;

use crate::buffers::{Mapping, Slab};
use crate::devices::{Access, Damage, Medium, OpenMember};
use crate::figures::Figures;
use crate::holes::punch;
use crate::io::ring::RingOp;

pub(super) struct Entry {
    pub(super) member: OpenMember,
    /// Mapping of a member in memory that is read and written at once, without the ring; `None` for
    /// other members.
    pub(super) mapping: Option<Mapping>,
    /// Whether the member's file takes writes with `RWF_DSYNC`; true until it has refused one.
    pub(super) dsync: bool,
    /// Whether a flush has failed, on its own or as a part of a durable write, so that every later
    /// flush fails too.
    pub(super) lost: bool,
    /// Whether the member has become shorter and is therefore gone.
    pub(super) gone: bool,
    /// Whether the member's file was found to be deleted, and a warning was logged.
    pub(super) deleted: bool,
    /// Number of the member's writes in the ring.
    pub(super) writing: u32,
    /// Number of operations in the ring, plus places that `MemberIo::released` reserves for the
    /// member.
    pub(super) in_ring: usize,
    /// Operations that exceed the member's share of the ring, oldest first.
    pub(super) held: VecDeque<RingOp>,
    /// Number of the request with a flush in flight; `None` without such a request.
    pub(super) flushing: Option<u32>,
    /// Numbers of the requests that wait to send their flush, oldest first.
    pub(super) flush_next: VecDeque<u32>,
    pub(super) figures: Figures,
}

impl Entry {
    pub(super) fn new(member: OpenMember, mapping: Option<Mapping>) -> Self {
        Self {
            member,
            mapping,
            dsync: true,
            lost: false,
            gone: false,
            deleted: false,
            writing: 0,
            in_ring: 0,
            held: VecDeque::new(),
            flushing: None,
            flush_next: VecDeque::new(),
            figures: Figures::new(),
        }
    }

    /// Checks whether the member's file has become shorter, which makes the member gone, or was
    /// deleted, which is logged once.
    pub(super) fn look(&mut self) {
        if self.gone {
            return;
        }
        let Damage { is_cut, is_deleted } = self.member.damage();
        if is_cut {
            self.set_gone();
        }
        if is_deleted && !std::mem::replace(&mut self.deleted, true) {
            tracing::warn!(
                member = %self.member.info().label,
                "the member's file was deleted: it is used until it is closed, and lost then; \
                 add another member and remove this one",
            );
        }
    }

    pub(super) fn set_gone(&mut self) {
        if !std::mem::replace(&mut self.gone, true) {
            tracing::error!(
                member = %self.member.info().label,
                "the member has become shorter: expected {} from byte {} on; it is not used any more",
                self.member.info().size.bytes(),
                self.member.start().0,
            );
        }
    }

    pub(super) fn is_device(&self) -> bool {
        self.member.medium() == Medium::BlockDevice
    }

    /// Whether a read of these bytes goes beyond the end of an image that was already too short at
    /// assembly (its array is then read-only). A member that becomes shorter later answers `Gone`
    /// instead.
    pub(super) fn is_behind_cut(&self, op: &MemberOp, bytes: &Range<u64>) -> bool {
        matches!(op, MemberOp::Read { .. }) && bytes.end > self.member.info().size.bytes().0
    }

    /// Whether a read touches bytes that the member's map of ddrescue does not mark as rescued; the
    /// image has zeros or former content there. Such a read is logged.
    pub(super) fn is_not_rescued(&self, op: &MemberOp, bytes: &Range<u64>) -> bool {
        let (Some(map), MemberOp::Read { .. }) = (self.member.rescued(), op) else {
            return false;
        };
        let misses = map.misses(bytes);
        if misses {
            let label = &self.member.info().label;
            let (start, len) = (bytes.start, bytes.end - bytes.start);
            tracing::warn!(
                member = %label,
                "read of {len} bytes at byte {start}: input/output error: not rescued, says its \
                 map of ddrescue"
            );
        }
        misses
    }

    /// Asserts that a request for these bytes is legal for the member.
    pub(super) fn check(&self, op: &MemberOp, bytes: &Range<u64>) {
        let info = self.member.info();
        let end = bytes.end;
        assert!(end <= info.size.bytes().0, "{}: request ends at {end}", info.label);
        let writes = !matches!(op, MemberOp::Flush | MemberOp::Read { .. });
        assert!(
            !writes || self.member.access() == Access::ReadWrite,
            "{}: write to a member that was opened read-only",
            info.label
        );
    }

    /// Carries out a request to a member in memory at once; it cannot fail and needs no flush.
    pub(super) fn perform(&self, mapping: &Mapping, slab: &mut Slab, op: MemberOp) {
        let start = self.member.start().0;
        match op {
            MemberOp::Discard { at, len, .. } => {
                let at = start + at.bytes().0;
                if let Err(errno) = punch(self.member.file(), at, len.bytes().0) {
                    // Zeros are written instead of a hole. They read the same, and memory has room
                    // for them.
                    tracing::debug!(%errno, "no hole in memory");
                    mapping.zero(at, len.bytes().0);
                }
            }
            MemberOp::Flush => {}
            MemberOp::Read { at, into } => {
                let mut at = start + at.bytes().0;
                for segment in into {
                    mapping.copy_out(at, slab.bytes_mut(segment));
                    at += u64::from(segment.len);
                }
            }
            MemberOp::Write { at, from, .. } => {
                let mut at = start + at.bytes().0;
                for segment in from {
                    mapping.copy_in(at, slab.bytes(segment));
                    at += u64::from(segment.len);
                }
            }
            MemberOp::WriteMetadata { at, bytes } => {
                mapping.copy_in(start + at.bytes().0, &bytes);
            }
        }
    }
}

/// Byte range of a member's data that a request touches; an empty one for a flush.
pub(super) fn bytes_of(op: &MemberOp) -> Range<u64> {
    let sum = |segments: &Segments| segments.iter().map(|segment| u64::from(segment.len)).sum();
    let (at, len): (Sectors, u64) = match op {
        MemberOp::Discard { at, len, .. } => (*at, len.bytes().0),
        MemberOp::Flush => return 0..0,
        MemberOp::Read { at, into } => (*at, sum(into)),
        MemberOp::Write { at, from, .. } => (*at, sum(from)),
        MemberOp::WriteMetadata { at, bytes } => (*at, bytes.len() as u64),
    };
    let start = at.bytes().0;
    start..start.checked_add(len).expect("sectors of a member")
}
