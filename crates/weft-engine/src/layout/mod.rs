//! Layout of arrays: where array sectors are on the members. All functions are pure.

pub(crate) mod align;
pub mod geometry;
pub mod mirrors;
pub mod slot_set;
pub mod striped;
pub(crate) mod tolerance;

use weft_ondisk::{Level, layout_id};
use weft_units::{ByteRange, Bytes, SECTOR_BYTES, SectorRange, Sectors, Slot};

use self::geometry::{Geometry, GeometryError};
use self::mirrors::Mirrors;
use self::slot_set::SlotSet;
use self::striped::{Raid0Layout, Striped};
use self::tolerance::Tolerance;

/// Layout of an array: which members hold its sectors, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layout {
    /// RAID 1 and RAID 10: each chunk is on several members.
    Mirrors(Mirrors),
    /// RAID 4, 5 and 6: full stripes consist of data and parity strips.
    Parity(Geometry),
    /// RAID 0 and linear: each sector is on one member.
    Striped(Striped),
}

/// Consecutive rows of an array. A row is a range of the array that occupies one range on each of
/// several members, together with its parity and all of its copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows {
    /// First array sector of the rows.
    pub first: Sectors,
    /// First array sector after the rows; the last row may extend beyond it.
    pub end: Sectors,
    /// Number of array sectors per row.
    pub of_array: Sectors,
    /// Number of data sectors per row on each member.
    pub of_member: Sectors,
    /// Slot and first data sector of the first row on each member. A slot with far copies is listed
    /// once for each of its sections.
    pub places: Vec<(Slot, Sectors)>,
}

/// Evaluates `$call` with `$of` bound to the layout that the variant of `$layout` holds.
macro_rules! each {
    ($layout:expr, $of:ident => $call:expr) => {
        match $layout {
            Layout::Mirrors($of) => $call,
            Layout::Parity($of) => $call,
            Layout::Striped($of) => $call,
        }
    };
}

impl Layout {
    /// Creates the layout that a superblock describes with these values.
    ///
    /// Shape    `sizes` are the data sectors of each member, in order of slots; used only by RAID 0
    ///          and linear, which use all data sectors of each member
    /// Units    `size` is the number of data sectors that the other levels use of each member
    ///
    /// # Errors
    /// See [`GeometryError`].
    pub fn new(
        level: Level,
        number: u32,
        members: u32,
        chunk: Sectors,
        size: Sectors,
        sizes: &[Sectors],
    ) -> Result<Self, GeometryError> {
        let min = level.row().members_min;
        if !(min..=geometry::MEMBERS_MAX).contains(&members) {
            return Err(GeometryError::Members { level, found: members, min });
        }
        let slots = members as u16;
        let layout = match level {
            Level::Raid4 | Level::Raid5 | Level::Raid6 => {
                return Geometry::new(level, number, members, chunk, size).map(Self::Parity);
            }
            Level::Linear => Striped::linear(chunk, sizes).map(Self::Striped),
            Level::Raid0 => {
                let rule = match number {
                    layout_id::RAID0_ALTERNATE => Raid0Layout::Alternate,
                    _ => Raid0Layout::Original,
                };
                Striped::raid0(rule, chunk, sizes).map(Self::Striped)
            }
            Level::Raid1 => Mirrors::raid1(slots, size).map(Self::Mirrors),
            Level::Raid10 => Mirrors::raid10(number, slots, chunk, size).map(Self::Mirrors),
        };
        layout.ok_or(GeometryError::Unusable { level, layout: number, chunk, size, members })
    }

    /// RAID level of the array.
    #[must_use]
    pub fn level(&self) -> Level {
        each!(self, layout => layout.level())
    }

    /// Layout number, as md has it; 0 for a level that has none.
    #[must_use]
    pub fn number(&self) -> u32 {
        each!(self, layout => layout.layout())
    }

    /// Number of slots.
    #[must_use]
    pub fn members(&self) -> u16 {
        each!(self, layout => layout.members())
    }

    /// Chunk size in sectors; 0 for RAID 1 and linear, which have no chunks.
    #[must_use]
    pub fn chunk(&self) -> Sectors {
        each!(self, layout => layout.chunk())
    }

    /// Number of data sectors used of each member. For RAID 0 and linear, the number used of the
    /// member that is used most.
    #[must_use]
    pub fn member_size(&self) -> Sectors {
        each!(self, layout => layout.member_size())
    }

    /// Number of data sectors used of the member at `slot`.
    #[must_use]
    pub fn size_at(&self, slot: Slot) -> Sectors {
        match self {
            Self::Mirrors(_) | Self::Parity(_) => self.member_size(),
            Self::Striped(places) => places.size_at(slot),
        }
    }

    /// Size of the array in sectors.
    #[must_use]
    pub fn array_size(&self) -> Sectors {
        each!(self, layout => layout.array_size())
    }

    /// Size in sectors of the resync space: the area that a resync covers and that the bits of a
    /// bitmap stand for. The sectors are data sectors of each member, or for RAID 10 sectors of the
    /// array. 0 for a level without redundancy.
    ///
    /// Source   md's `resync_max_sectors`
    #[must_use]
    pub fn resync_size(&self) -> Sectors {
        match self {
            Self::Mirrors(mirrors) => mirrors.array_size(),
            Self::Parity(geometry) => geometry.member_size(),
            Self::Striped(_) => Sectors::ZERO,
        }
    }

    /// Range of the resync space ([`Layout::resync_size`]) that a write of the array range `range`
    /// changes; empty for a level without redundancy.
    #[inline]
    #[must_use]
    pub fn resync_range(&self, range: ByteRange) -> SectorRange {
        match self {
            Self::Mirrors(_) => whole_sectors(range),
            Self::Parity(geometry) => geometry.resync_range(whole_sectors(range)),
            Self::Striped(_) => SectorRange::new(0, 0),
        }
    }

    /// Rows of the array: one entry per zone of RAID 0 and per member of linear, otherwise one
    /// entry.
    #[must_use]
    pub fn rows(&self) -> Vec<Rows> {
        match self {
            Self::Mirrors(mirrors) => vec![mirrors.rows()],
            Self::Parity(geometry) => vec![Rows {
                first: Sectors::ZERO,
                end: geometry.array_size(),
                of_array: Sectors(geometry.chunk().0 * u64::from(geometry.data_members())),
                of_member: geometry.chunk(),
                places: (0..geometry.members()).map(|slot| (Slot(slot), Sectors::ZERO)).collect(),
            }],
            Self::Striped(striped) => striped.rows(),
        }
    }

    /// Whether the members at `slots` suffice to reconstruct all data.
    #[must_use]
    pub fn suffices(&self, slots: SlotSet) -> bool {
        self.tolerance().suffices(slots)
    }

    /// Whether the members at `slots` hold redundant data: copies or parity.
    #[must_use]
    pub fn has_redundancy(&self, slots: SlotSet) -> bool {
        self.tolerance().has_redundancy(slots)
    }

    /// Size of a request that gives every member equal work, which md advertises as `io_opt`: one
    /// chunk per member, not counting parity and, if their number divides the number of members,
    /// near copies. `None` for RAID 1 and linear.
    #[must_use]
    pub fn io_opt(&self) -> Option<Bytes> {
        let chunks = match self {
            Self::Mirrors(mirrors) => mirrors.chunks_in_row(),
            Self::Parity(geometry) => geometry.data_members(),
            Self::Striped(striped) => striped.members(),
        };
        let row = Bytes(self.chunk().bytes().0 * u64::from(chunks));
        (row > Bytes::ZERO).then_some(row)
    }

    /// Tolerance of the layout: which members the array can lose.
    pub(crate) fn tolerance(&self) -> Tolerance {
        each!(self, layout => layout.tolerance())
    }

    /// Text for messages that names the in-sync members which the array needs.
    pub(crate) fn needs(&self) -> String {
        match self {
            Self::Mirrors(_) => "one member of each mirror in sync".to_owned(),
            Self::Parity(geometry) => {
                let (needed, all) = (geometry.data_members(), geometry.members());
                format!("{needed} of {all} members in sync")
            }
            Self::Striped(_) => "all members".to_owned(),
        }
    }

    /// Geometry of a level with parity; `None` for other levels.
    #[must_use]
    pub fn parity(&self) -> Option<&Geometry> {
        match self {
            Self::Parity(geometry) => Some(geometry),
            Self::Mirrors(_) | Self::Striped(_) => None,
        }
    }
}

/// Array sectors that a byte range touches.
#[inline]
fn whole_sectors(range: ByteRange) -> SectorRange {
    let (start, end) = (range.start.sectors_floor(), range.end().0.div_ceil(SECTOR_BYTES));
    SectorRange::new(start.0, if range.len == Bytes::ZERO { 0 } else { end - start.0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::striped::Raid0Layout;

    /// Source   md-raid: for RAID 10, md counts the members divided by the near copies, or all
    ///          members if the number of near copies does not divide the number of members
    #[test]
    fn io_opt_is_a_chunk_of_each_member() {
        let (chunk, size) = (Sectors(128), Sectors(12_800));
        let kib = |layout: &Layout| layout.io_opt().map(|row| row.0 >> 10);
        let parity = |level, members| {
            let number = if level == Level::Raid4 { 0 } else { 2 };
            kib(&Layout::Parity(Geometry::new(level, number, members, chunk, size).unwrap()))
        };
        assert_eq!(parity(Level::Raid5, 4), Some(192));
        assert_eq!(parity(Level::Raid6, 10), Some(512));
        let raid10 = |layout, members| {
            kib(&Layout::Mirrors(Mirrors::raid10(layout, members, chunk, size).unwrap()))
        };
        let (near, far, offset) = (0x102, 0x201, 0x1_0201);
        assert_eq!([raid10(near, 4), raid10(near, 5)], [Some(128), Some(320)]);
        assert_eq!([raid10(far, 4), raid10(offset, 3)], [Some(256), Some(192)]);
        let mirror = Layout::Mirrors(Mirrors::raid1(3, size).unwrap());
        let sizes = [size, size, size];
        let linear = Layout::Striped(Striped::linear(Sectors::ZERO, &sizes).unwrap());
        assert_eq!([kib(&mirror), kib(&linear)], [None, None]);
        let raid0 = Striped::raid0(Raid0Layout::Original, chunk, &sizes).unwrap();
        assert_eq!(kib(&Layout::Striped(raid0)), Some(192));
    }

    /// Slot and data sector of every copy of an array sector, and of the parity that covers it.
    fn places_of(layout: &Layout, sector: Sectors) -> Vec<(Slot, Sectors)> {
        match layout {
            Layout::Mirrors(mirrors) => {
                mirrors.copies(sector).iter().map(|copy| (copy.slot, copy.sector)).collect()
            }
            Layout::Parity(geometry) => {
                let at = geometry.locate(sector);
                let parity = geometry.placement(at.full_stripe).parity();
                let slots = parity.ascending().chain([at.slot]);
                slots.map(|slot| (slot, at.sector)).collect()
            }
            Layout::Striped(striped) => {
                let extent = striped.locate(sector);
                vec![(extent.slot, extent.sector)]
            }
        }
    }

    #[test]
    fn rows_cover_the_array_and_hold_every_copy_and_parity_of_their_sectors() {
        let (chunk, size) = (Sectors(8), Sectors(8 * 23 + 5));
        let levels = [
            (Level::Linear, 0, 3),
            (Level::Raid0, 1, 3),
            (Level::Raid0, 2, 4),
            (Level::Raid1, 0, 2),
            (Level::Raid4, 0, 4),
            (Level::Raid5, 2, 3),
            (Level::Raid6, 2, 5),
            (Level::Raid10, 0x102, 4),
            (Level::Raid10, 0x102, 3),
            (Level::Raid10, 0x103, 5),
            (Level::Raid10, 0x104, 6),
            (Level::Raid10, 0x201, 4),
            (Level::Raid10, 0x301, 5),
            (Level::Raid10, 0x202, 6),
            (Level::Raid10, 0x1_0201, 3),
            (Level::Raid10, 0x1_0202, 4),
            (Level::Raid10, 0x4_0201, 5),
        ];
        let mut seen = 0;
        for (level, number, members) in levels {
            let sizes: Vec<Sectors> =
                (0..u64::from(members)).map(|slot| Sectors(8 * (5 + slot % 3 * 4))).collect();
            let rounding = if level == Level::Linear { Sectors::ZERO } else { chunk };
            let layout = Layout::new(level, number, members, rounding, size, &sizes).unwrap();
            let all = layout.rows();
            assert_eq!(all.first().map(|rows| rows.first), Some(Sectors::ZERO));
            assert_eq!(all.last().map(|rows| rows.end), Some(layout.array_size()));
            assert!(all.windows(2).all(|pair| pair[0].end == pair[1].first));
            for sector in 0..layout.array_size().0 {
                let rows = all.iter().find(|rows| sector < rows.end.0).unwrap();
                let row = (sector - rows.first.0) / rows.of_array.0;
                for (slot, at) in places_of(&layout, Sectors(sector)) {
                    let holds = |(of, first): &&(Slot, Sectors)| {
                        let start = first.0 + row * rows.of_member.0;
                        *of == slot && (start..start + rows.of_member.0).contains(&at.0)
                    };
                    let what =
                        format!("{level} {number:#x} of {members}: {sector} at {slot:?} {at}");
                    assert_eq!(rows.places.iter().filter(holds).count(), 1, "{what}");
                    seen += 1;
                }
            }
        }
        assert!(seen > 10_000, "{seen} places");
    }

    #[test]
    fn resync_goes_over_members_or_over_the_array() {
        let ranges = |layout: &Layout, bytes: &[(u64, u64)]| -> Vec<(u64, u64)> {
            let sectors = |(start, len): &(u64, u64)| {
                let range = layout.resync_range(ByteRange::new(*start, *len));
                (range.start.0, range.len.0)
            };
            bytes.iter().map(sectors).collect()
        };
        // Three strips of data of 16 sectors in each full stripe.
        let geometry = Geometry::new(Level::Raid5, 2, 4, Sectors(16), Sectors(1000)).unwrap();
        let parity = Layout::Parity(geometry);
        assert_eq!(parity.resync_size(), Sectors(992));
        let chunk = 16 * 512;
        let bytes = [
            (0, 0),
            (1, 1),
            (511, 2),
            (chunk - 1, 1),
            (chunk, 512),
            (2 * chunk + 4096, 4096),
            // Ranges in two strips of a full stripe, and in two full stripes.
            (chunk - 512, 1024),
            (3 * chunk - 1, 2),
            (3 * chunk, 3 * chunk),
            (0, 992 * 3 * 512),
        ];
        let expected =
            [(0, 0), (0, 1), (0, 2), (15, 1), (0, 1), (8, 8), (0, 16), (0, 32), (16, 16), (0, 992)];
        assert_eq!(ranges(&parity, &bytes), expected);

        let mirror = Layout::Mirrors(Mirrors::raid1(2, Sectors(1000)).unwrap());
        assert_eq!(mirror.resync_size(), Sectors(1000));
        let near = Mirrors::raid10(0x102, 4, Sectors(16), Sectors(1000)).unwrap();
        let near = Layout::Mirrors(near);
        assert_eq!(near.resync_size(), near.array_size());
        for copies in [&mirror, &near] {
            assert_eq!(
                ranges(copies, &[(0, 0), (700, 100), (1024, 4096)]),
                [(0, 0), (1, 1), (2, 8)]
            );
        }

        let sizes = [Sectors(64), Sectors(64)];
        let striped = Striped::raid0(Raid0Layout::Original, Sectors(16), &sizes).unwrap();
        let striped = Layout::Striped(striped);
        assert_eq!(striped.resync_size(), Sectors::ZERO);
        assert_eq!(ranges(&striped, &[(0, 4096)]), [(0, 0)]);
    }
}
