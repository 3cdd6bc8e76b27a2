//! Allocation status of a volume: the ranges that are holes.
//!
//! A bare member has the holes of its file. For an array the unit is a row: a range of the array
//! that lies on one range of each of its members. With parity a row is a full stripe (if all data
//! is zero, so are P and Q); on a mirror it is some chunks with all of their copies; on RAID 0 it
//! is one chunk of each member. A row is a hole of the array if it is a hole on every member that
//! is in sync. An answer covers all acknowledged writes, because their data is in the members'
//! files. Everything that cannot be queried counts as data: overlays, block devices, members that
//! were added later, a volume that has no space.

use std::collections::BTreeMap;

use weft_engine::assemble::{Assembly, SlotState};
use weft_engine::layout::slot_set::SlotSet;
use weft_engine::layout::{Layout, Rows};
use weft_engine::{MemberState, VolumeSnapshot};
use weft_runtime::devices::OpenMember;
use weft_runtime::holes::Stretch;
use weft_runtime::serve::driver::Driver;
use weft_units::{Bytes, MemberIndex, Slot, VolumeId};

use crate::hole_probes::LOOKS_MAX;

/// Method by which the holes of a volume are found.
#[derive(Debug)]
pub(crate) enum Allocation {
    /// Holes of an array: stretches of rows that are holes in all members' files.
    Array(ArrayRows),
    /// Holes of a bare member: those of its file.
    Bare,
    /// No holes are known: everything counts as data.
    Unknown {
        /// Size of a full stripe in bytes, as [`Allocation::full_stripe_bytes`] returns it.
        full_stripe: u64,
    },
}

/// Rows of an array, and the byte at which the array's data begins on each member. A row is a range
/// of the array that lies on one range of each of its members, and the unit in which holes are
/// found.
#[derive(Debug)]
pub(crate) struct ArrayRows {
    layout: Layout,
    rows: Vec<Rows>,
    /// First byte of the data on each member that was present when the server started, by member.
    starts: BTreeMap<MemberIndex, u64>,
}

/// A member on which rows lie: its file, and the byte of the file at which the first row begins.
type MemberStart<'d> = (&'d OpenMember, u64);

impl Allocation {
    pub(crate) fn of_array(assembly: &Assembly) -> Self {
        let members = assembly.slots.iter().filter_map(SlotState::member);
        Self::Array(ArrayRows {
            layout: assembly.layout.clone(),
            rows: assembly.layout.rows(),
            starts: members
                .map(|member| (member.info.index, member.superblock.data_offset().bytes().0))
                .collect(),
        })
    }

    /// Allocation status for the volume behind a write-back cache. No holes are known there: a hole
    /// on the members may be data in the cache.
    pub(crate) fn behind_cache(self) -> Self {
        Self::Unknown { full_stripe: self.full_stripe_bytes() }
    }

    /// Unit in bytes that discards should cover as a whole: a full stripe of an array with parity,
    /// otherwise 1.
    pub(crate) fn full_stripe_bytes(&self) -> u64 {
        match self {
            Self::Array(ArrayRows { layout: Layout::Parity(geometry), .. }) => {
                geometry.chunk().bytes().0 * u64::from(geometry.data_members())
            }
            Self::Unknown { full_stripe } => *full_stripe,
            Self::Array(_) | Self::Bare => 1,
        }
    }

    /// Finds the extents of the `len` bytes from `offset` on: at least one extent, and at most
    /// `most` plus one. The search also ends after [`LOOKS_MAX`] queries of members; the extents
    /// then end before `offset + len`.
    pub(crate) fn extents(
        &self,
        driver: &mut Driver,
        volume: VolumeId,
        offset: u64,
        len: u64,
        most: usize,
    ) -> FoundExtents {
        assert!(len > 0);
        let end = offset + len;
        let mut told = FoundExtents::new(most);
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
            Self::Array(array) => {
                let snapshot = driver.shared_snapshot();
                let state =
                    snapshot.as_ref().and_then(|all| all.volumes.get(usize::from(volume.0)));
                let members = state.and_then(|state| array.in_sync(driver, state));
                while let Some(members) = &members
                    && at < end
                    && told.has_room()
                {
                    let rows = array.rows_at(at);
                    let places = places(rows, members);
                    let (hole, until) = stretch(rows, &places, at, end.min(bytes(rows).1));
                    told.push(hole, until - at, places.len());
                    at = until;
                }
            }
            Self::Unknown { .. } => {}
        }
        if told.extents.is_empty() {
            told.push(false, len, 0);
        }
        told
    }

    /// Whether all of a range is a hole. Returns false without a query for a range that is so short
    /// that the query would cost more than it saves.
    pub(crate) fn is_hole(
        &self,
        driver: &mut Driver,
        volume: VolumeId,
        offset: u64,
        len: u64,
    ) -> bool {
        match self {
            Self::Bare if len >= BARE_BYTES_MIN => {
                let len = Bytes(len);
                let mut members = driver.members().members();
                members.next().is_some_and(|member| member.hole(Bytes(offset), len) == len)
            }
            Self::Array(array) if len >= ARRAY_BYTES_MIN => {
                let snapshot = driver.shared_snapshot();
                let volumes = snapshot.as_ref().map_or(&[][..], |all| &all.volumes);
                let state = volumes.get(usize::from(volume.0));
                state.and_then(|state| array.in_sync(driver, state)).is_some_and(|members| {
                    let end = offset + len;
                    let mut at = offset;
                    while at < end {
                        let rows = array.rows_at(at);
                        let until = end.min(bytes(rows).1);
                        if !is_hole(rows, &places(rows, &members), at, until) {
                            return false;
                        }
                        at = until;
                    }
                    true
                })
            }
            Self::Array(_) | Self::Bare | Self::Unknown { .. } => false,
        }
    }
}

impl ArrayRows {
    /// Members that are in sync, by slot, each with the first byte of its data. `None` when one of
    /// them cannot be queried or has its data elsewhere than at the start of the server, when they
    /// are too few to read the array, when a member has no space, or when a reshape has changed the
    /// array since the start.
    fn in_sync<'d>(
        &self,
        driver: &'d Driver,
        state: &VolumeSnapshot,
    ) -> Option<BTreeMap<Slot, MemberStart<'d>>> {
        // `self.rows` are the rows at the start of the server. A reshape, running or ended, moves
        // data to other rows, and the data of all members to another offset.
        let is_same = state.layout.is_some_and(|it| {
            (it.number, it.chunk) == (self.layout.number(), self.layout.chunk().bytes())
        });
        let is_as_large = state.size == self.layout.array_size().bytes();
        if state.no_space || state.reshape.is_some() || !is_same || !is_as_large {
            return None;
        }
        let in_sync = state
            .members
            .iter()
            .filter(|member| member.state == MemberState::InSync)
            .filter_map(|member| member.slot.map(|slot| (slot, member)));
        let members: Option<BTreeMap<Slot, MemberStart<'d>>> = in_sync
            .map(|(slot, member)| {
                let start = member.data?.start.bytes().0;
                if self.starts.get(&member.member) != Some(&start) {
                    return None;
                }
                let mut open = driver.members().members();
                Some((slot, (open.find(|open| open.info().index == member.member)?, start)))
            })
            .collect();
        members.filter(|members| self.layout.suffices(members.keys().copied().collect::<SlotSet>()))
    }

    /// Rows in which byte `at` of the array lies.
    fn rows_at(&self, at: u64) -> &Rows {
        let index = self.rows.partition_point(|rows| bytes(rows).1 <= at);
        &self.rows[index.min(self.rows.len() - 1)]
    }
}

/// First byte of the array that `rows` cover, and the first byte behind the rows.
fn bytes(rows: &Rows) -> (u64, u64) {
    (rows.first.bytes().0, rows.end.bytes().0)
}

/// Members on which `rows` lie, each with the byte at which the rows begin. Slots that `members`
/// does not have are left out.
fn places<'d>(rows: &Rows, members: &BTreeMap<Slot, MemberStart<'d>>) -> Vec<MemberStart<'d>> {
    let here = rows.places.iter().filter_map(|(slot, sector)| {
        members.get(slot).map(|(member, start)| (*member, start + sector.bytes().0))
    });
    here.collect()
}

/// Whether the rows that contain bytes `at..end` of the array are holes on all members.
fn is_hole(rows: &Rows, places: &[MemberStart<'_>], at: u64, end: u64) -> bool {
    let (first, row_bytes) = (bytes(rows).0, rows.of_array.bytes().0);
    let member_bytes = rows.of_member.bytes().0;
    let (row, row_end) = ((at - first) / row_bytes, (end - first).div_ceil(row_bytes));
    let len = Bytes((row_end - row) * member_bytes);
    let hole = |(member, start): &MemberStart<'_>| {
        member.hole(Bytes(start + row * member_bytes), len) == len
    };
    places.iter().all(hole)
}

/// Whether there is a hole at byte `at` of the array, and the end of the range for which this
/// answer holds, at most `end`.
fn stretch(rows: &Rows, places: &[MemberStart<'_>], at: u64, end: u64) -> (bool, u64) {
    let (first, row_bytes) = (bytes(rows).0, rows.of_array.bytes().0);
    let member_bytes = rows.of_member.bytes().0;
    let row = (at - first) / row_bytes;
    let count = (end - first).div_ceil(row_bytes) - row;
    // Rows from `at` on that are a hole on all members, and rows with data on at least one member.
    let (mut holes, mut data) = (count, 0);
    for (member, start) in places {
        let (from, len) = (start + row * member_bytes, count * member_bytes);
        let Stretch { hole, len } = member.stretch(Bytes(from), Bytes(len));
        if hole {
            holes = holes.min(len.0 / member_bytes);
        } else {
            holes = 0;
            data = data.max(len.0.div_ceil(member_bytes));
        }
    }
    let hole = holes > 0;
    // A hole that ends within its first row is not a hole of the array.
    let count = if hole { holes } else { data.max(1) };
    (hole, (first + (row + count) * row_bytes).min(end))
}

/// Length in bytes of the shortest read of a bare member for which holes are looked up. From this
/// length on, the system call for it costs less than to read and send zeroes.
const BARE_BYTES_MIN: u64 = 32 << 10;
/// Length in bytes of the shortest read of an array for which holes are looked up: the members in
/// sync have to be determined first.
const ARRAY_BYTES_MIN: u64 = 256 << 10;

/// Range of a volume with one allocation state. Extents follow each other without gaps, so that
/// only the length is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) len: u64,
    /// Whether the extent has no storage allocated, so that it reads as zeroes. Otherwise the
    /// extent is data, as far as is known.
    pub(crate) hole: bool,
}

/// Extents found so far. Neighbours that are both holes or both data are merged.
pub(crate) struct FoundExtents {
    extents: Vec<Extent>,
    most: usize,
    looks: usize,
}

impl FoundExtents {
    fn new(most: usize) -> Self {
        Self { extents: Vec::new(), most, looks: 0 }
    }

    pub(crate) fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// Number of looks (queries of a member for its holes) that the search has taken so far.
    pub(crate) fn looks(&self) -> usize {
        self.looks
    }

    /// Whether the search for extents may go on. The search is bounded because rows with a little
    /// data cost an extent and a query of every member each, and no other client is served
    /// meanwhile. A client that needs more extents asks again.
    fn has_room(&self) -> bool {
        self.looks < LOOKS_MAX && self.extents.len() <= self.most
    }

    fn push(&mut self, hole: bool, len: u64, looks: usize) {
        self.looks += looks;
        match self.extents.last_mut() {
            Some(last) if last.hole == hole => last.len += len,
            _ => self.extents.push(Extent { len, hole }),
        }
    }
}
