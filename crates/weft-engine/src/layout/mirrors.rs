//! Mirrored layouts: RAID 1, and RAID 10 with near, far and offset copies.
//!
//! ```text
//! near=2 on 3 members   far=2, S = stride   offset=2
//!   0  0  1                0  1  2           0  1  2
//!   1  2  2                3  4  5           2  0  1
//!   3  3  4             S  2  0  1           3  4  5
//!   4  5  5                5  3  4           5  3  4
//! ```
//!
//! RAID 1 has near copies on all members, with the whole array as one chunk.
//!
//! Source   md-raid.md §5.4 and §5.5; each row of its table was compared there with Linux 6.12

use smallvec::SmallVec;
use weft_ondisk::Level;
use weft_ondisk::layout_id::Raid10;
use weft_units::{FRAME_BYTES, Sectors, Slot};

use crate::layout::Rows;
use crate::layout::slot_set::SlotSet;
use crate::layout::tolerance::Tolerance;

/// Layout of RAID 1 or RAID 10: where the copies of each chunk are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Mirrors {
    level: Level,
    layout: u32,
    members: u16,
    near: u16,
    far: u16,
    /// Whether the far copies of a chunk are in the rows directly after its first copy ("offset"),
    /// instead of `stride` chunks further on.
    offset: bool,
    /// Number of members per far set. The last set also contains the remaining members.
    far_set: u16,
    chunk: Sectors,
    /// Number of chunks on a member from one far copy to the next.
    stride: u64,
    size: Sectors,
    member_size: Sectors,
}

/// Place of one copy of an array sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// Slot of the member that holds the copy.
    pub slot: Slot,
    /// Data sector on the member, that is, counted from its data offset.
    pub sector: Sectors,
}

/// Copies of an array sector, in md's order: near copies, each followed by its far copies.
pub type Copies = SmallVec<[Copy; 4]>;

/// Iterator over the copies of an array sector.
#[derive(Clone, Debug)]
pub(crate) struct CopiesOf<'a> {
    places: &'a Mirrors,
    in_chunk: u64,
    /// Row and slot of the near copy that comes next.
    near: (u64, u16),
    /// Number of near copies that are still to come.
    nears: u16,
    /// Row and slot of the far copy that comes next; it belongs to the last near copy.
    far: (u64, u16),
    /// Number of far copies of the last near copy that are still to come.
    fars: u16,
}

impl CopiesOf<'_> {
    /// Number of sectors from the array sector to the end of its chunk.
    #[inline]
    pub(crate) fn left_in_chunk(&self) -> Sectors {
        Sectors(self.places.chunk.0 - self.in_chunk)
    }
}

impl Iterator for CopiesOf<'_> {
    type Item = Copy;

    #[inline]
    fn next(&mut self) -> Option<Copy> {
        let places = self.places;
        if self.fars == 0 {
            self.nears = self.nears.checked_sub(1)?;
            (self.far, self.fars) = (self.near, places.far);
            self.near.1 += 1;
            if self.near.1 == places.members {
                self.near = (self.near.0 + 1, 0);
            }
        }
        let (row, slot) = self.far;
        self.fars -= 1;
        if self.fars > 0 {
            self.far = (row + places.stride, places.moved(slot, places.near, true));
        }
        Some(Copy { slot: Slot(slot), sector: Sectors(row * places.chunk.0 + self.in_chunk) })
    }
}

impl Mirrors {
    /// Creates the layout of RAID 1, where every member holds the whole array. `None` if
    /// `member_size` is zero or too large.
    #[must_use]
    pub fn raid1(members: u16, member_size: Sectors) -> Option<Self> {
        let fits = member_size.0.checked_mul(512).is_some_and(|bytes| bytes <= i64::MAX as u64);
        (fits && member_size > Sectors::ZERO).then_some(Self {
            level: Level::Raid1,
            layout: 0,
            members,
            near: members,
            far: 1,
            offset: false,
            far_set: members,
            chunk: member_size,
            stride: 1,
            size: member_size,
            member_size,
        })
    }

    /// Creates the RAID 10 layout with md's layout number `layout`. `None` if the layout is not
    /// possible on this number of members, if two copies of a chunk would be on one member, if the
    /// chunk is 0, or if the members are too small or too large.
    #[must_use]
    pub fn raid10(layout: u32, members: u16, chunk: Sectors, member_size: Sectors) -> Option<Self> {
        let parts = Raid10::from_code(layout)?;
        let far_set = parts.far_set_size(members.into())?;
        let (near, far) = (u64::from(parts.near), u64::from(parts.far));
        // A near copy that wraps to the next row would lie on the offset copies of other chunks.
        if parts.offset && parts.near > 1 && !u32::from(members).is_multiple_of(parts.near) {
            return None;
        }
        let rows = member_size.0.checked_div(chunk.0)? / far;
        let chunks = rows.checked_mul(u64::from(members))? / near;
        let size = chunks.checked_mul(chunk.0)?;
        if size == 0 || size.checked_mul(512).is_none_or(|bytes| bytes > i64::MAX as u64) {
            return None;
        }
        Some(Self {
            level: Level::Raid10,
            layout,
            members,
            near: parts.near as u16,
            far: parts.far as u16,
            offset: parts.offset,
            far_set: far_set as u16,
            chunk,
            stride: if parts.offset { 1 } else { rows },
            size: Sectors(size),
            member_size: Sectors(rows * far * chunk.0),
        })
    }

    /// RAID level: 1 or 10.
    #[must_use]
    pub fn level(&self) -> Level {
        self.level
    }

    /// Layout number, as md has it; 0 for RAID 1, which has none.
    #[must_use]
    pub fn layout(&self) -> u32 {
        self.layout
    }

    /// Number of slots.
    #[must_use]
    pub fn members(&self) -> u16 {
        self.members
    }

    /// Chunk size in sectors; 0 for RAID 1, which has no chunks.
    #[must_use]
    pub fn chunk(&self) -> Sectors {
        if self.level.is_mirror() { Sectors::ZERO } else { self.chunk }
    }

    /// Number of different chunks in a row across the members, as md counts them for its I/O hints:
    /// members divided by near copies, or the number of members if the division leaves a remainder.
    /// Far copies are in rows of their own.
    pub(crate) fn chunks_in_row(&self) -> u16 {
        let divides = self.members.is_multiple_of(self.near);
        if divides { self.members / self.near } else { self.members }
    }

    /// Size of the array in sectors.
    #[must_use]
    pub fn array_size(&self) -> Sectors {
        self.size
    }

    /// Number of data sectors used of each member.
    #[must_use]
    pub fn member_size(&self) -> Sectors {
        self.member_size
    }

    /// Number of copies of each chunk.
    #[must_use]
    pub fn copies_per_chunk(&self) -> u16 {
        self.near * self.far
    }

    /// Number of near copies of each chunk, which lie on adjacent members.
    #[must_use]
    pub fn near_copies(&self) -> u16 {
        self.near
    }

    /// Number of far copies of each near copy, the near copy itself included; offset copies count
    /// as far copies.
    #[must_use]
    pub fn far_copies(&self) -> u16 {
        self.far
    }

    /// Whether the copies of this array's sectors are at the same places in `other`, a layout that
    /// differs only in size. Far copies lie after the first copies of the whole array, so their
    /// places depend on the size.
    pub(crate) fn is_beginning_of(&self, other: &Self) -> bool {
        self.far == 1 || self.stride == other.stride
    }

    /// Number of sectors per resync unit: at most 64 KiB (md's `RESYNC_BLOCK_SIZE`), and within one
    /// chunk.
    #[must_use]
    pub fn resync_unit(&self) -> Sectors {
        if self.level.is_mirror() { RESYNC_UNIT } else { self.chunk.min(RESYNC_UNIT) }
    }

    /// Number of frames for a resync with `units` units in progress. `units` is limited to 1 ..= 32
    /// (`RESYNC_UNITS_MAX`), and to fewer if a unit has many copies.
    #[must_use]
    pub fn resync_frames(&self, units: u32) -> u32 {
        let frames = self.resync_unit().bytes().0.div_ceil(FRAME_BYTES) as u32;
        let frames = frames * u32::from(self.copies_per_chunk());
        frames * units.min(RESYNC_FRAMES_MAX / frames).clamp(1, RESYNC_UNITS_MAX)
    }

    /// Number of sectors from an array sector to the end of its chunk; for RAID 1, to the end of
    /// the array.
    #[must_use]
    pub fn left_in_chunk(&self, sector: Sectors) -> Sectors {
        Sectors(self.chunk.0 - sector.0 % self.chunk.0)
    }

    /// Copies of an array sector, in md's order.
    #[must_use]
    pub fn copies(&self, sector: Sectors) -> Copies {
        self.copies_of(sector).collect()
    }

    /// Like [`Mirrors::copies`], as an iterator.
    #[inline(always)]
    pub(crate) fn copies_of(&self, sector: Sectors) -> CopiesOf<'_> {
        debug_assert!(sector < self.size, "an array sector");
        let (chunk, in_chunk) = (sector.0 / self.chunk.0, sector.0 % self.chunk.0);
        let (first, members) = (chunk * u64::from(self.near), u64::from(self.members));
        let rows = if self.offset { u64::from(self.far) } else { 1 };
        let near = (first / members * rows, (first % members) as u16);
        CopiesOf { places: self, in_chunk, near, nears: self.near, far: near, fars: 0 }
    }

    /// Rows of the array. Near copies that pass the last member continue in the next chunk of the
    /// first member, so a row may have several chunks of each member. An offset copy is in the next
    /// chunk of its member. Each section of far copies is a separate place in the row.
    pub(super) fn rows(&self) -> Rows {
        let (members, near, far) =
            (u64::from(self.members), u64::from(self.near), u64::from(self.far));
        let unit = if self.level.is_mirror() { MIRROR_ROW } else { self.chunk };
        let together = near / gcd(near, members);
        let (copies, sections) = if self.offset { (far, 1) } else { (1, far) };
        let stride = self.stride * self.chunk.0;
        let places = (0..sections).flat_map(|number| {
            (0..self.members).map(move |slot| (Slot(slot), Sectors(number * stride)))
        });
        Rows {
            first: Sectors::ZERO,
            end: self.size,
            of_array: Sectors(unit.0 * together * members / near),
            of_member: Sectors(unit.0 * together * copies),
            places: places.collect(),
        }
    }

    /// Array sector that has a copy at data sector `member_sector` of the member at `slot`; `None`
    /// past the end of the array.
    #[must_use]
    pub fn array_sector(&self, slot: Slot, member_sector: Sectors) -> Option<Sectors> {
        let position = member_sector.0 / self.chunk.0;
        let (copy, row) = if self.offset {
            (position % u64::from(self.far), position / u64::from(self.far))
        } else {
            (position / self.stride, position % self.stride)
        };
        if copy >= u64::from(self.far) {
            return None;
        }
        let first = (0..copy).fold(slot.0, |slot, _| self.moved(slot, self.near, false));
        let strip = row * u64::from(self.members) + u64::from(first);
        let chunk = strip / u64::from(self.near);
        let sector = Sectors(chunk * self.chunk.0 + member_sector.0 % self.chunk.0);
        (sector < self.size).then_some(sector)
    }

    /// Slot that is `by` places after `slot` within its far set or, unless `forward`, before it.
    fn moved(&self, slot: u16, by: u16, forward: bool) -> u16 {
        let sets = self.members / self.far_set;
        let set = (slot / self.far_set).min(sets - 1);
        let first = set * self.far_set;
        let len = if set == sets - 1 { self.members - first } else { self.far_set };
        let by = if forward { by % len } else { len - by % len };
        first + (slot - first + by) % len
    }

    /// Tolerance of the layout: which members the array can lose.
    pub(crate) fn tolerance(&self) -> Tolerance {
        let mut sets: Vec<SlotSet> = self.holders().collect();
        sets.sort_unstable();
        sets.dedup();
        Tolerance::OneOfEach(sets.into())
    }

    /// For each chunk, the set of slots that hold its copies. The sets repeat after as many chunks
    /// as there are members, so only that many chunks are visited.
    fn holders(&self) -> impl Iterator<Item = SlotSet> + '_ {
        let chunks = (self.size.0 / self.chunk.0).min(self.members.into());
        (0..chunks).map(|chunk| {
            let copies = self.copies(Sectors(chunk * self.chunk.0));
            copies.into_iter().map(|copy| copy.slot).collect()
        })
    }
}

/// Length of a row of RAID 1, which has no chunks: 4 KiB, the block size of most file systems.
const MIRROR_ROW: Sectors = Sectors(8);

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

const RESYNC_UNIT: Sectors = Sectors(128);

/// Largest number of resync units in progress, as md's `RESYNC_DEPTH`. The limit is lower if a unit
/// has many copies.
pub(crate) const RESYNC_UNITS_MAX: u32 = 32;
const RESYNC_FRAMES_MAX: u32 = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: Sectors = Sectors(8);

    /// Slot of a member, and chunk number on the member.
    type MemberChunk = (u16, u64);

    fn mirrors(layout: u32, members: u16, rows: u64) -> Mirrors {
        Mirrors::raid10(layout, members, CHUNK, Sectors(rows * CHUNK.0 + 3)).unwrap()
    }

    /// Slot and chunk number on the member of each copy of a chunk.
    fn places(mirrors: &Mirrors, chunk: u64) -> Vec<MemberChunk> {
        let copies = mirrors.copies(Sectors(chunk * CHUNK.0 + 5));
        let place = |copy: &Copy| {
            assert_eq!(copy.sector.0 % CHUNK.0, 5);
            (copy.slot.0, copy.sector.0 / CHUNK.0)
        };
        copies.iter().map(place).collect()
    }

    /// md-raid.md §5.4: the table, with rows that were verified with the kernel.
    #[test]
    fn copies_lie_where_the_kernel_puts_them() {
        let s = 5;
        let rows: [(u32, u16, [&[MemberChunk]; 4]); 8] = [
            (
                0x102,
                4,
                [&[(0, 0), (1, 0)], &[(2, 0), (3, 0)], &[(0, 1), (1, 1)], &[(2, 1), (3, 1)]],
            ),
            (
                0x102,
                3,
                [&[(0, 0), (1, 0)], &[(2, 0), (0, 1)], &[(1, 1), (2, 1)], &[(0, 2), (1, 2)]],
            ),
            (
                0x102,
                5,
                [&[(0, 0), (1, 0)], &[(2, 0), (3, 0)], &[(4, 0), (0, 1)], &[(1, 1), (2, 1)]],
            ),
            (
                0x103,
                5,
                [
                    &[(0, 0), (1, 0), (2, 0)],
                    &[(3, 0), (4, 0), (0, 1)],
                    &[(1, 1), (2, 1), (3, 1)],
                    &[(4, 1), (0, 2), (1, 2)],
                ],
            ),
            (
                0x201,
                4,
                [&[(0, 0), (1, s)], &[(1, 0), (2, s)], &[(2, 0), (3, s)], &[(3, 0), (0, s)]],
            ),
            (
                0x201,
                3,
                [&[(0, 0), (1, s)], &[(1, 0), (2, s)], &[(2, 0), (0, s)], &[(0, 1), (1, s + 1)]],
            ),
            (
                0x10201,
                4,
                [&[(0, 0), (1, 1)], &[(1, 0), (2, 1)], &[(2, 0), (3, 1)], &[(3, 0), (0, 1)]],
            ),
            (
                0x10201,
                3,
                [&[(0, 0), (1, 1)], &[(1, 0), (2, 1)], &[(2, 0), (0, 1)], &[(0, 2), (1, 3)]],
            ),
        ];
        for (layout, members, expected) in rows {
            let mirrors = mirrors(layout, members, 2 * s);
            for (copies, chunk) in expected.into_iter().zip(0..) {
                assert_eq!(places(&mirrors, chunk), copies, "{layout:#x} on {members}: {chunk}");
            }
        }
    }

    /// Layouts that weft serves, each with the numbers of members with which it is tried.
    const LAYOUTS: [(u32, std::ops::RangeInclusive<u16>); 9] = [
        (0x102, 2..=7),
        (0x103, 3..=8),
        (0x201, 2..=7),
        (0x301, 3..=7),
        (0x202, 4..=9),
        (0x1_0201, 2..=7),
        (0x2_0201, 4..=9),
        (0x4_0201, 2..=9),
        (0x5_0201, 4..=9),
    ];

    #[test]
    fn every_copy_has_a_place_of_its_own_on_another_member_and_is_found_from_there() {
        let mut seen = 0;
        for (layout, members) in LAYOUTS {
            for members in members {
                for rows in [2, 7, 12] {
                    let Some(mirrors) =
                        Mirrors::raid10(layout, members, CHUNK, Sectors(rows * CHUNK.0))
                    else {
                        continue;
                    };
                    let mut taken = std::collections::BTreeSet::new();
                    for chunk in 0..mirrors.array_size().0 / CHUNK.0 {
                        let copies = mirrors.copies(Sectors(chunk * CHUNK.0 + 1));
                        let slots: SlotSet = copies.iter().map(|copy| copy.slot).collect();
                        assert_eq!(slots.count() as usize, copies.len(), "{layout:#x}: {copies:?}");
                        for copy in copies {
                            assert!(copy.sector < mirrors.member_size());
                            assert!(
                                taken.insert((copy.slot, copy.sector)),
                                "{layout:#x}: {copy:?}"
                            );
                            let back = mirrors.array_sector(copy.slot, copy.sector);
                            assert_eq!(back, Some(Sectors(chunk * CHUNK.0 + 1)), "{layout:#x}");
                            seen += 1;
                        }
                    }
                }
            }
        }
        assert!(seen > 5_000, "{seen} copies were looked at");
    }

    #[test]
    fn members_suffice_by_which_they_are_and_not_by_their_number() {
        let mut asked = 0;
        for (layout, members) in LAYOUTS {
            for members in members {
                let Some(mirrors) = Mirrors::raid10(layout, members, CHUNK, Sectors(96)) else {
                    continue;
                };
                let tolerance = mirrors.tolerance();
                for left in 0..1_u32 << members {
                    let slots = (0..members).filter(|slot| left >> slot & 1 == 1);
                    let slots: SlotSet = slots.map(Slot).collect();
                    let reads = (0..mirrors.array_size().0 / CHUNK.0).all(|chunk| {
                        let copies = mirrors.copies(Sectors(chunk * CHUNK.0));
                        copies.iter().any(|copy| slots.contains(copy.slot))
                    });
                    assert_eq!(tolerance.suffices(slots), reads, "{layout:#x} {members}: {left:b}");
                    asked += 1;
                }
            }
        }
        assert!(asked > 2_000, "{asked} sets were asked for");
        let near = mirrors(0x102, 4, 8).tolerance();
        let set = |slots: &[u16]| slots.iter().map(|slot| Slot(*slot)).collect::<SlotSet>();
        assert!(near.suffices(set(&[0, 2])) && near.suffices(set(&[1, 3])));
        assert!(!near.suffices(set(&[0, 1])) && !near.suffices(set(&[2, 3])));
    }

    #[test]
    fn raid1_is_the_same_everywhere_on_every_member() {
        let mirror = Mirrors::raid1(3, Sectors(1001)).unwrap();
        assert!(Mirrors::raid1(3, Sectors::ZERO).is_none());
        let slots = [Slot(0), Slot(1), Slot(2)];
        for sector in [Sectors(0), Sectors(999), Sectors(1000)] {
            let copies = mirror.copies(sector);
            assert!(copies.iter().map(|copy| copy.slot).eq(slots), "{copies:?}");
            assert!(copies.iter().all(|copy| copy.sector == sector), "{copies:?}");
            assert_eq!(mirror.array_sector(Slot(2), sector), Some(sector));
            assert_eq!(mirror.left_in_chunk(sector), Sectors(1001 - sector.0));
        }
        let tolerance = mirror.tolerance();
        assert!(slots.into_iter().all(|slot| tolerance.suffices(SlotSet::only(slot))));
        assert!(!tolerance.suffices(SlotSet::EMPTY));
    }

    #[test]
    fn what_was_asked_for_is_told() {
        let told = |it: &Mirrors| (it.level(), it.layout(), it.members(), it.chunk());
        let mirror = Mirrors::raid1(3, Sectors(1001)).unwrap();
        assert_eq!(told(&mirror), (Level::Raid1, 0, 3, Sectors::ZERO));
        assert_eq!(told(&mirrors(0x201, 4, 8)), (Level::Raid10, 0x201, 4, CHUNK));
        assert_eq!(told(&mirrors(0x102, 4, 8)), (Level::Raid10, 0x102, 4, CHUNK));
        let row = |it: &Mirrors| (it.rows().of_array, it.rows().of_member);
        let near = [4, 3].map(|members| row(&mirrors(0x102, members, 8)));
        assert_eq!(near, [(Sectors(16), CHUNK), (Sectors(24), Sectors(16))]);
        let copies = |it: &Mirrors| (it.near_copies(), it.far_copies(), it.copies_per_chunk());
        let both = mirrors(0x302, 6, 8);
        assert_eq!((copies(&mirror), copies(&both)), ((3, 1, 3), (2, 3, 6)));
    }

    #[test]
    fn layouts_that_the_kernel_refuses_or_that_lose_a_copy_are_refused() {
        let made = |layout, members| Mirrors::raid10(layout, members, CHUNK, Sectors(96)).is_some();
        assert!(made(0x102, 2) && made(0x4_0201, 5));
        for (layout, members) in
            [(0x6_0102, 4), (0x8_0102, 4), (0x105, 4), (0x101, 4), (0x2_0302, 6), (0x1_0202, 5)]
        {
            assert!(!made(layout, members), "{layout:#x} on {members}");
        }
        assert!(Mirrors::raid10(0x102, 4, CHUNK, Sectors(7)).is_none(), "no chunk fits");
        assert!(Mirrors::raid10(0x102, 4, Sectors::ZERO, Sectors(96)).is_none(), "no chunk");
        // Two members of 2^54 sectors hold 2^63 bytes, one more than an `i64` can count.
        let of_size = |sectors| Mirrors::raid10(0x102, 2, CHUNK, Sectors(sectors)).is_some();
        assert!(of_size((1 << 54) - CHUNK.0) && !of_size(1 << 54) && !of_size(1 << 55));
    }

    /// With two near copies, the only row of three members has room for one and a half chunks; the
    /// half is not used.
    #[test]
    fn a_member_sector_past_the_last_whole_chunk_is_of_no_array_sector() {
        let mirrors = mirrors(0x102, 3, 1);
        let of = [0, 1, 2].map(|slot| mirrors.array_sector(Slot(slot), Sectors(0)));
        assert_eq!(of, [Some(Sectors(0)), Some(Sectors(0)), None]);
    }
}
