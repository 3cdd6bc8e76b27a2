//! Geometry of an array for the checkers: the place of its sectors on members, and the sets of
//! members that suffice to read it.
//!
//! A *column* is a set of sectors that have to agree. With parity it has one data sector of each
//! member, all with the same number, which is also the number of the column. Without parity it has
//! all copies of one array sector and the number of that array sector, because copies lie at
//! different sectors of their members. *Data sectors* of a member count from the start of its data
//! area.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;
use weft_engine::RequestOp;
use weft_engine::layout::Layout;
use weft_engine::layout::geometry::Geometry;
use weft_units::{ByteRange, Sectors, Slot};

use crate::model::pieces;

/// A data sector of the member at a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotSector {
    /// Slot of the member that has the sector.
    pub slot: Slot,
    /// Number of the sector among the member's data sectors.
    pub sector: u64,
}

/// The places that store an array sector, or that make up a column.
pub type SlotSectors = SmallVec<[SlotSector; 4]>;

/// Location of an array sector on the members: its column, and all places that a write to the array
/// sector changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Number of the column: with parity the number of its data sectors, otherwise the number of
    /// the array sector.
    pub number: u64,
    /// Slot that holds the array sector, or its first copy.
    pub data: Slot,
    /// All places that a write of the array sector changes. The data, or the first copy, comes
    /// first.
    pub places: SlotSectors,
}

/// Geometry of an array: the place of its data on its members.
#[derive(Clone, Debug)]
pub struct Array {
    /// Level, layout and sizes.
    pub layout: Layout,
    /// First sector of the data area, by disk.
    pub data_offset: Vec<Sectors>,
    /// Extents of a striped array, by slot and in order: first data sector, length, first array
    /// sector.
    extents: Arc<Vec<Vec<(u64, u64, u64)>>>,
    /// Distinct sets of slots that hold all copies of some chunk; empty with parity.
    holders: Arc<BTreeSet<Vec<u16>>>,
}

impl Array {
    /// Geometry of an array with this layout. `data_offset` has the first sector of the data area,
    /// by disk.
    #[must_use]
    pub fn new(layout: Layout, data_offset: Vec<Sectors>) -> Self {
        let mut extents = vec![Vec::new(); layout.members().into()];
        let mut holders = BTreeSet::new();
        let mut at = 0;
        while at < layout.array_size().0 {
            let (len, mut slots): (u64, Vec<u16>) = match &layout {
                Layout::Parity(_) => break,
                Layout::Mirrors(mirrors) => {
                    let slots = mirrors.copies(Sectors(at)).iter().map(|it| it.slot.0).collect();
                    (mirrors.left_in_chunk(Sectors(at)).0, slots)
                }
                Layout::Striped(striped) => {
                    let extent = striped.locate(Sectors(at));
                    extents[extent.slot.index()].push((extent.sector.0, extent.len.0, at));
                    (extent.len.0, vec![extent.slot.0])
                }
            };
            slots.sort_unstable();
            holders.insert(slots);
            at += len;
        }
        extents.iter_mut().for_each(|of_slot| of_slot.sort_unstable());
        Self { layout, data_offset, extents: extents.into(), holders: holders.into() }
    }

    /// The geometry of a level with parity.
    ///
    /// # Panics
    /// Panics if the level has no parity.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        self.layout.parity().expect("the level has parity")
    }

    /// Whether the level has parity, so that columns are data sectors of all members.
    #[must_use]
    pub fn has_parity(&self) -> bool {
        self.layout.parity().is_some()
    }

    /// Whether each sector is stored only once, so that no copies can disagree.
    #[must_use]
    pub fn is_striped(&self) -> bool {
        matches!(self.layout, Layout::Striped(_))
    }

    /// Number of slots of the array.
    #[must_use]
    pub fn members(&self) -> u16 {
        self.layout.members()
    }

    /// Number of columns, which are numbered from 0.
    #[must_use]
    pub fn columns_count(&self) -> u64 {
        match &self.layout {
            Layout::Parity(geometry) => geometry.member_size().0,
            Layout::Mirrors(_) | Layout::Striped(_) => self.layout.array_size().0,
        }
    }

    /// Data sectors of a member that are lost if the data sector `sector` is unreadable, because
    /// one request reads them all: with parity at most a strip of the largest stripe (128 sectors),
    /// otherwise a block of 4 KiB.
    #[must_use]
    pub fn read_as_one(&self, sector: u64) -> Range<u64> {
        let height = self.layout.parity().map_or(8, |geometry| geometry.chunk().0.min(128));
        sector / height * height..(sector / height + 1) * height
    }

    /// Whether every byte can be read if only the slots for which `there` is true have members.
    #[must_use]
    pub fn suffices(&self, there: impl Fn(Slot) -> bool) -> bool {
        match &self.layout {
            Layout::Parity(geometry) => {
                let count = (0..self.members()).filter(|slot| there(Slot(*slot))).count();
                count >= usize::from(geometry.data_members())
            }
            Layout::Mirrors(_) | Layout::Striped(_) => {
                self.holders.iter().all(|slots| slots.iter().any(|slot| there(Slot(*slot))))
            }
        }
    }

    /// Whether any redundancy is left if only the slots for which `there` is true have members.
    #[must_use]
    pub fn has_redundancy(&self, there: impl Fn(Slot) -> bool) -> bool {
        let count = |slots: &[u16]| slots.iter().filter(|slot| there(Slot(**slot))).count();
        match &self.layout {
            Layout::Parity(geometry) => {
                let all: Vec<u16> = (0..self.members()).collect();
                count(&all) > usize::from(geometry.data_members())
            }
            Layout::Mirrors(_) | Layout::Striped(_) => {
                self.holders.iter().any(|slots| count(slots) > 1)
            }
        }
    }

    /// Column and places of an array sector.
    #[must_use]
    pub fn column(&self, array_sector: u64) -> Column {
        let sector = Sectors(array_sector);
        match &self.layout {
            Layout::Parity(geometry) => {
                let position = geometry.locate(sector);
                let placement = geometry.placement(position.full_stripe);
                let sector = position.sector.0;
                let slots = [Some(position.slot), Some(placement.p), placement.q];
                let place = |slot| SlotSector { slot, sector };
                let places = slots.into_iter().flatten().map(place).collect();
                Column { number: sector, data: position.slot, places }
            }
            Layout::Mirrors(mirrors) => {
                let place = |copy: weft_engine::layout::mirrors::Copy| SlotSector {
                    slot: copy.slot,
                    sector: copy.sector.0,
                };
                let places: SlotSectors = mirrors.copies(sector).into_iter().map(place).collect();
                Column { number: array_sector, data: places[0].slot, places }
            }
            Layout::Striped(striped) => {
                let extent = striped.locate(sector);
                let place = SlotSector { slot: extent.slot, sector: extent.sector.0 };
                let places = std::iter::once(place).collect();
                Column { number: array_sector, data: extent.slot, places }
            }
        }
    }

    /// The array sectors of a byte range, each with its column.
    pub fn columns(&self, range: ByteRange) -> impl Iterator<Item = (u64, Column)> + '_ {
        pieces(range).map(|(sector, _, _)| (sector, self.column(sector)))
    }

    /// The places of a column, a set of sectors that have to agree: with parity one sector at every
    /// slot, otherwise each copy of one array sector.
    #[must_use]
    pub fn places(&self, column: u64) -> SlotSectors {
        match &self.layout {
            Layout::Parity(geometry) => {
                let place = |slot| SlotSector { slot: Slot(slot), sector: column };
                (0..geometry.members()).map(place).collect()
            }
            Layout::Mirrors(_) | Layout::Striped(_) => self.column(column).places,
        }
    }

    /// Array sector that a data sector of a slot's member holds; `None` for parity and for space
    /// that the array does not use.
    #[must_use]
    pub fn array_sector(&self, slot: Slot, sector: u64) -> Option<u64> {
        match &self.layout {
            Layout::Parity(geometry) => {
                geometry.array_sector(slot, Sectors(sector)).map(|sector| sector.0)
            }
            Layout::Mirrors(mirrors) => {
                mirrors.array_sector(slot, Sectors(sector)).map(|sector| sector.0)
            }
            Layout::Striped(_) => {
                let extents = self.extents.get(slot.index())?;
                let next = extents.partition_point(|(first, _, _)| *first <= sector);
                let (first, len, array) = *extents.get(next.checked_sub(1)?)?;
                (sector - first < len).then(|| array + sector - first)
            }
        }
    }

    /// Column of a data sector of a slot's member; `None` if the array does not use the sector.
    #[must_use]
    pub fn column_of(&self, slot: Slot, sector: u64) -> Option<u64> {
        if self.has_parity() { Some(sector) } else { self.array_sector(slot, sector) }
    }

    /// Bytes of a full stripe; without parity, of two chunks.
    #[must_use]
    pub fn row_bytes(&self, chunk: Sectors) -> u64 {
        let geometry = self.layout.parity();
        geometry.map_or(chunk.bytes().0 * 2, Geometry::full_stripe_bytes)
    }

    /// Part of a range that a trim discards: with parity, only its whole full stripes.
    #[must_use]
    pub fn discarded(&self, range: ByteRange) -> ByteRange {
        let Some(geometry) = self.layout.parity() else { return range };
        let bytes = geometry.full_stripe_bytes();
        let first = range.start.0.div_ceil(bytes) * bytes;
        let end = range.start.0.saturating_add(range.len.0) / bytes * bytes;
        ByteRange::new(first, end.saturating_sub(first))
    }

    /// Range of the array that an acknowledged request must have changed; `None` for requests that
    /// need not change anything: a read, a flush, or a trim without redundancy.
    #[must_use]
    pub fn stored_by(&self, op: RequestOp, range: ByteRange) -> Option<ByteRange> {
        match op {
            RequestOp::Flush | RequestOp::Read => None,
            // Without redundancy a trim is only advice, even if it is carried out.
            RequestOp::Trim if self.is_striped() => None,
            RequestOp::Trim => Some(self.discarded(range)),
            RequestOp::Write | RequestOp::WriteZeroes => Some(range),
        }
    }

    /// Converts sector `absolute` of a disk to a data sector; `None` outside of the data area.
    #[must_use]
    pub fn data_sector(&self, disk: usize, absolute: u64) -> Option<u64> {
        let first = self.data_offset.get(disk)?.0;
        absolute.checked_sub(first).filter(|sector| *sector < self.layout.member_size().0)
    }

    /// The array sectors of a column, each with the slot of its data or first copy.
    #[must_use]
    pub fn data_of(&self, column: u64) -> Vec<(Slot, u64)> {
        if !self.has_parity() {
            return vec![(self.column(column).data, column)];
        }
        (0..self.members())
            .filter_map(|slot| Some((Slot(slot), self.array_sector(Slot(slot), column)?)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use weft_ondisk::Level;

    use super::*;
    use crate::options::Options;
    use crate::script::{Profile, Script};

    fn array(options: &Options) -> Array {
        Array::new(options.array_layout(), vec![Sectors(16); options.members])
    }

    /// The places of an array sector lie on distinct slots, belong to no other array sector, and
    /// map back to it. The generated options have every layout.
    #[test]
    fn places_are_apart_and_lead_back() {
        let (mut seen, mut shapes) = (0, BTreeSet::new());
        for seed in 0..200 {
            let options = Script::generate(seed, Profile::STRAIGHT[0]).options;
            let array = array(&options);
            shapes.insert((options.level, options.layout));
            let mut taken = BTreeSet::new();
            for sector in 0..array.layout.array_size().0 {
                let column = array.column(sector);
                assert_eq!((column.number, column.data), (sector, column.places[0].slot));
                let slots: BTreeSet<Slot> = column.places.iter().map(|it| it.slot).collect();
                assert_eq!(slots.len(), column.places.len(), "{options:?}: {column:?}");
                for SlotSector { slot, sector: at } in column.places {
                    assert!(taken.insert((slot, at)), "{options:?}: sector {sector}");
                    assert!(at < options.data_of(slot.index()).0, "{options:?}: {sector}");
                    assert_eq!(array.array_sector(slot, at), Some(sector), "{options:?}");
                    seen += 1;
                }
            }
        }
        assert!(seen > 50_000, "{seen} places");
        let levels = |level| shapes.iter().filter(|(it, _)| *it == level).count();
        let found = [Level::Linear, Level::Raid0, Level::Raid1, Level::Raid10].map(levels);
        assert_eq!(found, [1, 2, 1, 7], "{shapes:?}");
    }

    /// Whether an array survives the loss of members depends on their slots, not only on their
    /// number.
    #[test]
    fn two_mirrors_survive_one_member_each_and_not_one_mirror() {
        let mut options = Options::new(Level::Raid10, 4, Sectors(8));
        let lost = |options: &Options, disks: &[usize]| {
            options.survives(&array(options), &disks.iter().copied().collect())
        };
        assert!(lost(&options, &[0, 2]) && lost(&options, &[1, 3]) && lost(&options, &[3]));
        assert!(!lost(&options, &[0, 1]) && !lost(&options, &[2, 3]));
        options.layout = Some(0x201);
        assert!(lost(&options, &[0, 2]) && !lost(&options, &[1, 2]) && !lost(&options, &[0, 3]));
        for (level, survives) in
            [(Level::Raid0, false), (Level::Linear, false), (Level::Raid1, true)]
        {
            let options = Options::new(level, 2, Sectors(8));
            assert_eq!(lost(&options, &[1]), survives, "{level}");
            assert!(lost(&options, &[]) && !lost(&options, &[0, 1]));
            let array = array(&options);
            assert_eq!(array.has_redundancy(|_| true), survives);
            assert!(!array.has_redundancy(|slot| slot.0 == 0));
        }
    }
}
