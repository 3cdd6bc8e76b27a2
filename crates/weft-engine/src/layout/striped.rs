//! Striped layouts without redundancy: RAID 0 with zones for members of unequal size, and linear.
//!
//! ```text
//! RAID 0 on members of 1, 3 and 2 chunks     linear
//! zone 0   0  1  2                            0  1  4
//! zone 1      3  4                               2  5
//! zone 2      5                                  3
//! ```
//!
//! In the *original* layout of RAID 0, a chunk's member follows from the chunk's number in the
//! array; in the *alternate* layout, from its number in the zone. The two layouts differ from zone
//! 1 on.
//!
//! Source   md-raid.md §5.3 (md: `create_strip_zones`, `map_sector`)

use weft_ondisk::{Level, layout_id};
use weft_units::{Sectors, Slot};

use crate::layout::Rows;
use crate::layout::tolerance::Tolerance;

/// Layout of RAID 0 or linear: where array sectors are on the members.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Striped {
    level: Level,
    layout: u32,
    chunk: Sectors,
    zones: Vec<Zone>,
    members: u16,
}

/// A zone: a range of the array that is spread equally over a set of members.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Zone {
    /// First array sector of the zone.
    first: Sectors,
    /// First array sector after the zone.
    end: Sectors,
    /// First data sector of the zone on its members.
    member_first: Sectors,
    slots: Vec<Slot>,
    alternate: bool,
}

impl Zone {
    /// First data sector after the zone on its members.
    fn member_end(&self) -> Sectors {
        let rows = (self.end.0 - self.first.0) / self.slots.len() as u64;
        Sectors(self.member_first.0 + rows)
    }
}

/// Place of an array sector on its member, and length of the range that continues there without a
/// break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Slot of the member that holds the sector.
    pub slot: Slot,
    /// Data sector on the member, that is, counted from its data offset.
    pub sector: Sectors,
    /// Number of sectors to the end of the chunk, or to the end of the member for linear.
    pub len: Sectors,
}

/// Rule for choosing the member of a chunk in RAID 0. The two rules agree in the first zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Raid0Layout {
    /// The chunk's number in the array decides, as in kernels before 3.14.
    Original,
    /// The chunk's number in its zone decides.
    Alternate,
}

impl Striped {
    /// Creates a RAID 0 on members with the data sizes `sizes`. `None` if a member has no room for
    /// a chunk, if the chunk is 0, or if the array would be too large.
    ///
    /// Shape    `chunk` is a multiple of 4 KiB; `sizes` are in order of slots
    #[must_use]
    pub fn raid0(layout: Raid0Layout, chunk: Sectors, sizes: &[Sectors]) -> Option<Self> {
        if chunk == Sectors::ZERO {
            return None;
        }
        let sizes: Vec<Sectors> = sizes.iter().map(|size| size.round_down(chunk)).collect();
        let mut ends = sizes.clone();
        ends.sort_unstable();
        ends.dedup();
        if *ends.first()? == Sectors::ZERO {
            return None;
        }
        let (mut first, mut member_first) = (Sectors::ZERO, Sectors::ZERO);
        let mut zones = Vec::new();
        for member_end in ends {
            let slots: Vec<Slot> =
                (0..).zip(&sizes).filter(|it| *it.1 > member_first).map(|it| Slot(it.0)).collect();
            let rows = member_end.0 - member_first.0;
            let end = Sectors(first.0.checked_add(rows.checked_mul(slots.len() as u64)?)?);
            let alternate = layout == Raid0Layout::Alternate;
            zones.push(Zone { first, end, member_first, slots, alternate });
            (first, member_first) = (end, member_end);
        }
        let number = match layout {
            Raid0Layout::Original => layout_id::RAID0_ORIGINAL,
            Raid0Layout::Alternate => layout_id::RAID0_ALTERNATE,
        };
        Self::of(Level::Raid0, number, chunk, zones, sizes.len())
    }

    /// Creates a linear array, with the members one after the other. `None` if a member is empty or
    /// smaller than `rounding`, or if the array would be too large.
    ///
    /// Shape    `rounding` is the superblock's chunk size; sizes are rounded down to a multiple of
    ///          it, or are not rounded if it is 0
    #[must_use]
    pub fn linear(rounding: Sectors, sizes: &[Sectors]) -> Option<Self> {
        let mut first = Sectors::ZERO;
        let mut zones = Vec::new();
        for (size, slot) in sizes.iter().zip(0..) {
            let size = if rounding == Sectors::ZERO { *size } else { size.round_down(rounding) };
            if size == Sectors::ZERO {
                return None;
            }
            let end = first.checked_add(size)?;
            let (slots, alternate) = (vec![Slot(slot)], true);
            zones.push(Zone { first, end, member_first: Sectors::ZERO, slots, alternate });
            first = end;
        }
        let longest = sizes.iter().max().copied()?;
        Self::of(Level::Linear, 0, longest, zones, sizes.len())
    }

    fn of(
        level: Level,
        layout: u32,
        chunk: Sectors,
        zones: Vec<Zone>,
        members: usize,
    ) -> Option<Self> {
        let size = zones.last()?.end;
        let fits = size.0.checked_mul(512).is_some_and(|bytes| bytes <= i64::MAX as u64);
        fits.then_some(Self { level, layout, chunk, zones, members: members as u16 })
    }

    /// RAID level: 0 or linear.
    #[must_use]
    pub fn level(&self) -> Level {
        self.level
    }

    /// Layout number, as md has it; 0 for linear, which has none.
    #[must_use]
    pub fn layout(&self) -> u32 {
        self.layout
    }

    /// Number of slots.
    #[must_use]
    pub fn members(&self) -> u16 {
        self.members
    }

    /// Chunk size in sectors; 0 for linear, which has no chunks.
    #[must_use]
    pub fn chunk(&self) -> Sectors {
        if self.level.is_striped() { self.chunk } else { Sectors::ZERO }
    }

    /// Number of data sectors used of the member that is used most.
    #[must_use]
    pub fn member_size(&self) -> Sectors {
        self.zones.iter().map(Zone::member_end).max().unwrap_or(Sectors::ZERO)
    }

    /// Number of data sectors used of the member at `slot`.
    #[must_use]
    pub fn size_at(&self, slot: Slot) -> Sectors {
        let zones = self.zones.iter().filter(|zone| zone.slots.contains(&slot));
        zones.map(Zone::member_end).max().unwrap_or(Sectors::ZERO)
    }

    /// Whether every block of `block` sectors of the array is a whole block on one member.
    pub(crate) fn is_aligned(&self, block: Sectors) -> bool {
        let aligned = |sector: Sectors| sector.0.is_multiple_of(block.0);
        (!self.level.is_striped() || aligned(self.chunk))
            && self.zones.iter().all(|zone| aligned(zone.first) && aligned(zone.member_first))
    }

    /// Whether a zone of RAID 0, or a member of linear, ends at array sector `sector` (exclusive).
    pub(crate) fn is_zone_end(&self, sector: Sectors) -> bool {
        self.zones.iter().any(|zone| zone.end == sector)
    }

    /// Tolerance of the layout: the array cannot lose any member.
    pub(crate) fn tolerance(&self) -> Tolerance {
        Tolerance::AnyOf { data_members: self.members }
    }

    /// Size of the array in sectors.
    #[must_use]
    pub fn array_size(&self) -> Sectors {
        self.zones.last().map_or(Sectors::ZERO, |zone| zone.end)
    }

    /// Rows of the array, one entry per zone.
    pub(super) fn rows(&self) -> Vec<Rows> {
        let rows = |zone: &Zone| {
            let unit = if zone.slots.len() == 1 { LINEAR_ROW } else { self.chunk };
            Rows {
                first: zone.first,
                end: zone.end,
                of_array: Sectors(unit.0 * zone.slots.len() as u64),
                of_member: unit,
                places: zone.slots.iter().map(|slot| (*slot, zone.member_first)).collect(),
            }
        };
        self.zones.iter().map(rows).collect()
    }

    /// Number of the RAID 0 zone that contains an array sector, counted from 0, and the slots of
    /// the zone's members. `None` for linear, and if there is only one zone.
    #[must_use]
    pub fn zone_of(&self, sector: Sectors) -> Option<(usize, Vec<Slot>)> {
        if !self.level.is_striped() || self.zones.len() == 1 {
            return None;
        }
        let number = self.zones.partition_point(|zone| zone.end <= sector);
        self.zones.get(number).map(|zone| (number, zone.slots.clone()))
    }

    /// Place of an array sector on its member.
    #[must_use]
    pub fn locate(&self, sector: Sectors) -> Extent {
        debug_assert!(sector < self.array_size(), "an array sector");
        let zone = match self.zones.as_slice() {
            [zone] => zone,
            zones => &zones[zones.partition_point(|zone| zone.end <= sector)],
        };
        let chunk = self.chunk.0;
        let (in_zone, count) = (sector.0 - zone.first.0, zone.slots.len() as u64);
        if count == 1 {
            let len = (zone.end.0 - sector.0).min(chunk - in_zone % chunk);
            let sector = Sectors(zone.member_first.0 + in_zone);
            return Extent { slot: zone.slots[0], sector, len: Sectors(len) };
        }
        let number = if zone.alternate { in_zone / chunk } else { sector.0 / chunk };
        let in_chunk = sector.0 % chunk;
        let row = in_zone / (chunk * count);
        Extent {
            slot: zone.slots[(number % count) as usize],
            sector: Sectors(zone.member_first.0 + row * chunk + in_chunk),
            len: Sectors(chunk - in_chunk),
        }
    }
}

/// Length of a row of a zone on a single member: 4 KiB, the block size of most file systems.
const LINEAR_ROW: Sectors = Sectors(8);

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: Sectors = Sectors(8);

    fn sizes(chunks: &[u64]) -> Vec<Sectors> {
        chunks.iter().map(|chunks| Sectors(chunks * CHUNK.0 + 3)).collect()
    }

    /// For each chunk of the array, its slot and its chunk on the member.
    fn places(striped: &Striped) -> Vec<(u16, u64)> {
        let chunks = striped.array_size().0 / CHUNK.0;
        let place = |chunk: u64| {
            let extent = striped.locate(Sectors(chunk * CHUNK.0 + 3));
            assert_eq!((extent.sector.0 % CHUNK.0, extent.len), (3, Sectors(5)));
            (extent.slot.0, extent.sector.0 / CHUNK.0)
        };
        (0..chunks).map(place).collect()
    }

    #[test]
    fn statement_37_chunks_of_unequal_members_lie_where_either_layout_puts_them() {
        // Members of 1, 3 and 3 chunks: zone 1 begins with chunk 3, on slot 2 by its number in the
        // array (3 mod 2 = 1) and on slot 1 by its number in the zone.
        let made = |layout| Striped::raid0(layout, CHUNK, &sizes(&[1, 3, 3])).unwrap();
        let zone_0 = [(0, 0), (1, 0), (2, 0)];
        let original = places(&made(Raid0Layout::Original));
        assert_eq!(original[..3], zone_0);
        assert_eq!(original[3..], [(2, 1), (1, 1), (2, 2), (1, 2)]);
        let alternate = places(&made(Raid0Layout::Alternate));
        assert_eq!(alternate[..3], zone_0);
        assert_eq!(alternate[3..], [(1, 1), (2, 1), (1, 2), (2, 2)]);
    }

    /// Three zones, with chunks counted in the array or in the zone. The members of
    /// `fixtures/md/raid0-uneven` cannot distinguish the two layouts: 64, 128 and 192 chunks make a
    /// second zone that begins with chunk 192, an even number, and a third zone on a single member.
    #[test]
    fn statement_37_a_third_zone_is_like_the_second() {
        let made = |layout| Striped::raid0(layout, CHUNK, &sizes(&[1, 2, 4, 4])).unwrap();
        let zone_0 = [(0, 0), (1, 0), (2, 0), (3, 0)];
        // Chunks 4, 5 and 6 modulo 3 of slots 1, 2 and 3; 7, 8, 9 and 10 modulo 2 of slots 2 and 3.
        let original = places(&made(Raid0Layout::Original));
        assert_eq!(original[..4], zone_0);
        assert_eq!(original[4..7], [(2, 1), (3, 1), (1, 1)]);
        assert_eq!(original[7..], [(3, 2), (2, 2), (3, 3), (2, 3)]);
        let alternate = places(&made(Raid0Layout::Alternate));
        assert_eq!(alternate[..4], zone_0);
        assert_eq!(alternate[4..7], [(1, 1), (2, 1), (3, 1)]);
        assert_eq!(alternate[7..], [(2, 2), (3, 2), (2, 3), (3, 3)]);
        // With the sizes of the fixture, both layouts are the same.
        let [original, alternate] = [Raid0Layout::Original, Raid0Layout::Alternate]
            .map(|layout| places(&Striped::raid0(layout, CHUNK, &sizes(&[64, 128, 192])).unwrap()));
        assert_eq!(original, alternate);
        assert_eq!((original[192], original[193], original[320]), ((1, 64), (2, 64), (2, 128)));
    }

    #[test]
    fn every_chunk_of_every_member_is_one_of_the_array() {
        let mut seen = 0;
        for members in [&[1, 3, 2][..], &[4], &[2, 2], &[5, 1, 5, 2, 9], &[3, 3, 3, 1]] {
            for layout in [Raid0Layout::Original, Raid0Layout::Alternate] {
                let striped = Striped::raid0(layout, CHUNK, &sizes(members)).unwrap();
                let mut found = places(&striped);
                found.sort_unstable();
                let all = (0u16..)
                    .zip(members)
                    .flat_map(|(slot, chunks)| (0..*chunks).map(move |chunk| (slot, chunk)));
                assert!(found.iter().copied().eq(all), "{members:?}: {found:?}");
                seen += found.len();
            }
        }
        assert_eq!(seen, 2 * (6 + 4 + 4 + 22 + 10));
    }

    #[test]
    fn linear_members_follow_each_other() {
        let linear = Striped::linear(CHUNK, &sizes(&[2, 1, 3])).unwrap();
        assert_eq!(linear.array_size(), Sectors(48));
        let extent = |slot, sector, len| Extent { slot: Slot(slot), sector, len };
        assert_eq!(linear.locate(Sectors(15)), extent(0, Sectors(15), Sectors(1)));
        assert_eq!(linear.locate(Sectors(16)), extent(1, Sectors(0), Sectors(8)));
        assert_eq!(linear.locate(Sectors(24)), extent(2, Sectors(0), Sectors(24)));
        let unrounded = Striped::linear(Sectors::ZERO, &sizes(&[2, 1])).unwrap();
        assert_eq!(unrounded.array_size(), Sectors(19 + 11));
        // The second member begins in the middle of a block of 4 KiB.
        assert!(unrounded.is_aligned(Sectors(1)) && !unrounded.is_aligned(Sectors(8)));
        assert!(linear.is_aligned(Sectors(8)) && !linear.is_aligned(Sectors(16)));
        let small = Striped::raid0(Raid0Layout::Original, Sectors(4), &sizes(&[2, 2])).unwrap();
        assert!(small.is_aligned(Sectors(4)) && !small.is_aligned(Sectors(8)));
    }

    #[test]
    fn members_without_a_chunk_make_no_array() {
        assert!(Striped::raid0(Raid0Layout::Original, CHUNK, &sizes(&[2, 0])).is_none());
        assert!(Striped::raid0(Raid0Layout::Original, CHUNK, &[]).is_none());
        assert!(Striped::linear(CHUNK, &sizes(&[2, 0])).is_none());
        assert!(Striped::raid0(Raid0Layout::Original, Sectors::ZERO, &sizes(&[2, 2])).is_none());
        let huge = [Sectors(1 << 62), Sectors(1 << 62)];
        assert!(Striped::raid0(Raid0Layout::Original, CHUNK, &huge).is_none());
    }
}
