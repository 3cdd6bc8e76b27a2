//! Allocation status of a volume: the ranges that are holes.
//!
//! A bare member has the holes of its file. An array has those full stripes that are a hole in
//! every member that is in sync: data, P and Q of zeroes are zeroes. An answer covers acknowledged
//! writes, which are on the members. What cannot be asked counts as data: overlays, block devices,
//! members that were added later, a volume that has no space.

use std::collections::BTreeMap;

use weft_engine::assemble::{Assembly, SlotState};
use weft_engine::{MemberState, VolumeSnapshot};
use weft_nbd::Extent;
use weft_runtime::devices::OpenMember;
use weft_runtime::driver::Driver;
use weft_runtime::holes::Stretch;
use weft_units::{Bytes, MemberIndex, VolumeId};

use crate::looks::LOOKS_MAX;

/// Way in which a volume finds its holes.
#[derive(Debug)]
pub(crate) enum Allocation {
    /// Holes of an array: stretches of full stripes that are holes in all members' files.
    Array(FullStripes),
    /// Holes of a bare member: those of its file.
    Bare,
    /// No holes are known: everything counts as data.
    Unknown,
}

/// Geometry of an array that the search needs.
#[derive(Debug)]
pub(crate) struct FullStripes {
    /// Bytes of a member in a full stripe.
    chunk: u64,
    /// Members' worth of data in a full stripe.
    data_members: u64,
    /// First byte of the data on each member that was there at the start.
    starts: BTreeMap<MemberIndex, u64>,
}

impl Allocation {
    pub(crate) fn of_array(assembly: &Assembly) -> Self {
        let Some(geometry) = assembly.layout.parity() else { return Self::Unknown };
        let members = assembly.slots.iter().filter_map(|slot| match slot {
            SlotState::InSync(member) | SlotState::Rebuilding { member, .. } => Some(member),
            SlotState::Missing => None,
        });
        Self::Array(FullStripes {
            chunk: geometry.chunk().bytes().0,
            data_members: u64::from(geometry.data_members()),
            starts: members
                .map(|member| (member.info.index, member.superblock.data_offset().bytes().0))
                .collect(),
        })
    }

    /// Bytes of a full stripe, where one is discarded as a whole.
    pub(crate) fn full_stripe_bytes(&self) -> u64 {
        match self {
            Self::Array(full_stripes) => full_stripes.chunk * full_stripes.data_members,
            Self::Bare | Self::Unknown => 1,
        }
    }

    /// Extents from `offset` on: at least one, about `most`, of `len` bytes in all at most.
    pub(crate) fn extents(
        &self,
        driver: &mut Driver,
        volume: VolumeId,
        offset: u64,
        len: u64,
        most: usize,
    ) -> Told {
        assert!(len > 0);
        let end = offset + len;
        let mut told = Told::new(most);
        let mut at = offset;
        match self {
            Self::Bare => {
                if let Some(member) = driver.members().members().next() {
                    while at < end && told.has_room() {
                        let Stretch { hole, len } = member.stretch(Bytes(at), Bytes(end - at));
                        told.push(hole, len.0, 1);
                        at += len.0;
                    }
                }
            }
            Self::Array(full_stripes) => {
                let snapshot = driver.shared_snapshot();
                let state =
                    snapshot.as_ref().and_then(|all| all.volumes.get(usize::from(volume.0)));
                let members = state.and_then(|state| full_stripes.in_sync(driver, state));
                while let Some(members) = &members
                    && at < end
                    && told.has_room()
                {
                    let (hole, until) = full_stripes.stretch(members, at, end);
                    told.push(hole, until - at, members.len());
                    at = until;
                }
            }
            Self::Unknown => {}
        }
        if told.extents.is_empty() {
            told.push(false, len, 0);
        }
        told
    }

    /// Whether a whole range is a hole, where that is worth to be asked before it is read.
    pub(crate) fn is_hole(
        &self,
        driver: &mut Driver,
        volume: VolumeId,
        offset: u64,
        len: u32,
    ) -> bool {
        match self {
            Self::Bare if len >= BARE_BYTES_MIN => {
                let len = Bytes(len.into());
                let mut members = driver.members().members();
                members.next().is_some_and(|member| member.hole(Bytes(offset), len) == len)
            }
            Self::Array(full_stripes) if len >= ARRAY_BYTES_MIN => {
                let snapshot = driver.shared_snapshot();
                let volumes = snapshot.as_ref().map_or(&[][..], |all| &all.volumes);
                let state = volumes.get(usize::from(volume.0));
                state.and_then(|state| full_stripes.in_sync(driver, state)).is_some_and(|members| {
                    full_stripes.is_hole(&members, offset, offset + u64::from(len))
                })
            }
            Self::Array(_) | Self::Bare | Self::Unknown => false,
        }
    }
}

impl FullStripes {
    /// The members that are in sync, and where their data begins. `None` when one of them cannot be
    /// asked.
    fn in_sync<'d>(
        &self,
        driver: &'d Driver,
        state: &VolumeSnapshot,
    ) -> Option<Vec<(&'d OpenMember, u64)>> {
        if state.no_space {
            return None;
        }
        let in_sync = state
            .members
            .iter()
            .filter(|member| member.slot.is_some() && member.state == MemberState::InSync);
        let members: Option<Vec<_>> = in_sync
            .map(|member| {
                let start = self.starts.get(&member.member)?;
                let mut open = driver.members().members();
                Some((open.find(|open| open.info().index == member.member)?, *start))
            })
            .collect();
        members.filter(|members| members.len() as u64 >= self.data_members)
    }

    fn is_hole(&self, members: &[(&OpenMember, u64)], at: u64, end: u64) -> bool {
        let full_stripe_bytes = self.chunk * self.data_members;
        let (full_stripe, full_stripe_end) =
            (at / full_stripe_bytes, end.div_ceil(full_stripe_bytes));
        let len = Bytes((full_stripe_end - full_stripe) * self.chunk);
        let mut members = members.iter();
        members
            .all(|(member, start)| member.hole(Bytes(start + full_stripe * self.chunk), len) == len)
    }

    /// Whether a hole begins at a byte of the array, and up to where this is so at least.
    fn stretch(&self, members: &[(&OpenMember, u64)], at: u64, end: u64) -> (bool, u64) {
        let full_stripe_bytes = self.chunk * self.data_members;
        let full_stripe = at / full_stripe_bytes;
        let full_stripes = end.div_ceil(full_stripe_bytes) - full_stripe;
        // Full stripes that are a hole in all, and full stripes that have data in at least one.
        let (mut holes, mut data) = (full_stripes, 0);
        for (member, start) in members {
            let (from, len) = (start + full_stripe * self.chunk, full_stripes * self.chunk);
            let Stretch { hole, len } = member.stretch(Bytes(from), Bytes(len));
            if hole {
                holes = holes.min(len.0 / self.chunk);
            } else {
                holes = 0;
                data = data.max(len.0.div_ceil(self.chunk));
            }
        }
        let hole = holes > 0;
        // A hole that ends within its first full stripe is no hole of the array.
        let count = if hole { holes } else { data.max(1) };
        (hole, ((full_stripe + count) * full_stripe_bytes).min(end))
    }
}

/// Reads from this length on are looked up: a system call costs less than to read and send zeroes.
const BARE_BYTES_MIN: u32 = 32 << 10;
/// The same for arrays, whose members have to be known first.
const ARRAY_BYTES_MIN: u32 = 256 << 10;

/// Extents, neighbours of one kind joined.
pub(crate) struct Told {
    extents: Vec<Extent>,
    most: usize,
    looks: usize,
}

impl Told {
    fn new(most: usize) -> Self {
        Self { extents: Vec::new(), most, looks: 0 }
    }

    pub(crate) fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// Number of times that a member was asked.
    pub(crate) fn looks(&self) -> usize {
        self.looks
    }

    /// Whether to look further. Full stripes with a little data each are one extent and a look at
    /// every member each, and nobody else is served meanwhile: who wants to know more asks again.
    fn has_room(&self) -> bool {
        self.looks < LOOKS_MAX && self.extents.len() <= self.most
    }

    fn push(&mut self, hole: bool, len: u64, looks: usize) {
        self.looks += looks;
        match self.extents.last_mut() {
            Some(last) if last.hole == hole => last.len += len,
            _ if hole => self.extents.push(Extent::hole(len)),
            _ => self.extents.push(Extent::data(len)),
        }
    }
}
