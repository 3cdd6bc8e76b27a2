//! Geometry: maps array sectors to members and back, for every parity level and layout.
//!
//! Left-symmetric RAID 5 on four members (`D0` is the first chunk of the array):
//!
//! ```text
//!             slot 0   slot 1   slot 2   slot 3
//! full stripe 0   D0       D1       D2       P
//! full stripe 1   D4       D5       P        D3
//! full stripe 2   D8       P        D6       D7
//! full stripe 3   P        D9       D10      D11
//! ```
//!
//! Source   md-raid.md §5.1 and §5.2; each placement was compared there with Linux 6.12

use thiserror::Error;
use weft_ondisk::Level;
use weft_units::{FullStripe, SectorRange, Sectors, Slot};

use crate::layout::slot_set::SlotSet;
use crate::layout::tolerance::Tolerance;

/// Level, layout and sizes of a parity array. The values have been checked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Geometry {
    level: Level,
    layout: u32,
    members: u16,
    parities: u16,
    chunk: Sectors,
    member_size: Sectors,
}

/// Slots of data and parity in one full stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Slot of P.
    pub p: Slot,
    /// Slot of Q; `None` except for RAID 6.
    pub q: Option<Slot>,
    data: DataRule,
    members: u16,
    exponents: ExponentRule,
}

/// Place of an array sector on the members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Full stripe that contains the sector.
    pub full_stripe: FullStripe,
    /// Slot of the member that holds the sector.
    pub slot: Slot,
    /// Data sector on the member, that is, counted from its data offset.
    pub sector: Sectors,
    /// Index of the sector's data chunk in its full stripe, counted from 0.
    pub data_index: u16,
}

/// Reason why no array can have the given level, layout, number of members and sizes.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum GeometryError {
    /// No chunk fits into a member, or the array is larger than can be addressed.
    #[error("size: {member_size} per member and a chunk of {chunk} make no usable array")]
    Size {
        /// Data sectors per member.
        member_size: Sectors,
        /// Sectors of a chunk.
        chunk: Sectors,
    },
    /// The level does not allow this chunk size.
    #[error("chunk: found {found}, expected {}", level.row().chunk.expected(Sectors::ZERO))]
    Chunk {
        /// RAID level, which does not allow this chunk.
        level: Level,
        /// Sectors of the chunk that was found.
        found: Sectors,
    },
    /// The layout does not exist for the level.
    #[error("layout: found {layout}, which {level} does not have")]
    Layout {
        /// RAID level, which does not have this layout.
        level: Level,
        /// Layout number that was found.
        layout: u32,
    },
    /// The level has no parity.
    #[error(
        "level: found {0}, expected one with parity: {levels}",
        levels = with_parity_listed()
    )]
    Level(Level),
    /// Too few or too many members for the level.
    #[error("members: found {found}, expected {min}..={MEMBERS_MAX} for {level}")]
    Members {
        /// RAID level, which does not allow this number of members.
        level: Level,
        /// Number of members that was found.
        found: u32,
        /// Smallest number of members for the level.
        min: u32,
    },
    /// The values give no usable array of their level, which has no parity.
    #[error(
        "layout {layout:#x}, chunk {chunk} and size {size} make no usable {level} of {members} \
         members"
    )]
    Unusable {
        /// Level of the array.
        level: Level,
        /// Layout number, as md has it.
        layout: u32,
        /// Number of sectors per chunk.
        chunk: Sectors,
        /// Number of data sectors used of each member, as given; RAID 0 and linear do not use this
        /// value.
        size: Sectors,
        /// Number of slots of the array.
        members: u32,
    },
}

/// Names of the levels with parity, as an error text lists them: `raid4, raid5 and raid6`.
fn with_parity_listed() -> String {
    let names: Vec<&str> = Level::all().filter(|it| it.has_parity()).map(Level::name).collect();
    match names.split_last() {
        Some((end, others)) if !others.is_empty() => format!("{} and {end}", others.join(", ")),
        _ => names.concat(),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DataRule {
    /// The data chunk with index x is at slot x + `first`, or `skip` slots further if x + `first`
    /// is at or above the slot of P.
    Asymmetric { first: u16, skip: u16 },
    /// The data chunk with index x is at slot (`from` + x) mod `modulus`.
    Symmetric { from: u16, modulus: u16 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExponentRule {
    /// The exponent is the number of the data slot, counted 0, 1, 2 … in cyclic order from the slot
    /// after Q on.
    AfterQ,
    /// The slot number itself is the exponent (DDF layouts).
    Slot,
}

impl Geometry {
    /// Checks the values from a superblock, and creates the geometry of the array.
    ///
    /// Units    `member_size` is the number of data sectors that the array uses of each member
    ///
    /// # Errors
    /// See [`GeometryError`].
    pub fn new(
        level: Level,
        layout: u32,
        members: u32,
        chunk: Sectors,
        member_size: Sectors,
    ) -> Result<Self, GeometryError> {
        if !level.has_parity() {
            return Err(GeometryError::Level(level));
        }
        let min = level.row().members_min;
        if !(min..=MEMBERS_MAX).contains(&members) {
            return Err(GeometryError::Members { level, found: members, min });
        }
        if !level.row().layouts.allows(layout, members) {
            return Err(GeometryError::Layout { level, layout });
        }
        if !level.row().chunk.allows(chunk, Sectors::ZERO) {
            return Err(GeometryError::Chunk { level, found: chunk });
        }
        let geometry = Self {
            level,
            layout,
            members: members as u16,
            parities: level.parity_count() as u16,
            chunk,
            member_size: member_size.round_down(chunk),
        };
        let data_members = u64::from(geometry.data_members());
        let bytes = geometry
            .member_size
            .0
            .checked_mul(data_members)
            .and_then(|sectors| sectors.checked_mul(512));
        if geometry.member_size == Sectors::ZERO
            || bytes.is_none_or(|bytes| bytes > i64::MAX as u64)
        {
            return Err(GeometryError::Size { member_size, chunk });
        }
        Ok(geometry)
    }

    /// RAID level of the array.
    #[must_use]
    pub fn level(&self) -> Level {
        self.level
    }

    /// Layout number, as md has it.
    #[must_use]
    pub fn layout(&self) -> u32 {
        self.layout
    }

    /// Number of slots, parity included.
    #[must_use]
    pub fn members(&self) -> u16 {
        self.members
    }

    /// Number of parity strips per full stripe. The array survives that many failed members.
    #[must_use]
    pub fn parities(&self) -> u16 {
        self.parities
    }

    /// Number of data strips per full stripe.
    #[must_use]
    pub fn data_members(&self) -> u16 {
        self.members - self.parities()
    }

    /// Tolerance of the layout: which members the array can lose.
    pub(crate) fn tolerance(&self) -> Tolerance {
        Tolerance::AnyOf { data_members: self.data_members() }
    }

    /// Number of data bytes per full stripe.
    #[must_use]
    pub fn full_stripe_bytes(&self) -> u64 {
        self.chunk().bytes().0 * u64::from(self.data_members())
    }

    /// Chunk size: number of sectors of a full stripe on one member.
    #[must_use]
    pub fn chunk(&self) -> Sectors {
        self.chunk
    }

    /// Number of data sectors used of each member.
    #[must_use]
    pub fn member_size(&self) -> Sectors {
        self.member_size
    }

    /// Size of the array in sectors.
    #[must_use]
    pub fn array_size(&self) -> Sectors {
        Sectors(self.member_size.0 * u64::from(self.data_members()))
    }

    /// Full stripe that contains a data sector of the members.
    #[must_use]
    pub fn full_stripe_of(&self, member_sector: Sectors) -> FullStripe {
        FullStripe(member_sector.0 / self.chunk.0)
    }

    /// Place of an array sector on the members.
    #[inline]
    #[must_use]
    pub fn locate(&self, array_sector: Sectors) -> Position {
        self.place(array_sector).0
    }

    /// Place of an array sector on the members, and the placement of the sector's full stripe.
    #[inline(always)]
    #[must_use]
    pub fn place(&self, array_sector: Sectors) -> (Position, Placement) {
        debug_assert!(array_sector < self.array_size());
        // Shifts instead of divisions: the size of a chunk is a power of two.
        let shift = self.chunk.0.trailing_zeros();
        let chunk_number = array_sector.0 >> shift;
        let data_members = u64::from(self.data_members());
        let full_stripe = FullStripe(chunk_number / data_members);
        let data_index = (chunk_number % data_members) as u16;
        let placement = self.placement(full_stripe);
        let position = Position {
            full_stripe,
            slot: placement.data_slot(data_index),
            sector: Sectors((full_stripe.0 << shift) + (array_sector.0 & (self.chunk.0 - 1))),
            data_index,
        };
        (position, placement)
    }

    /// Data sectors of the members that a write of the array sectors `array` may change, in data or
    /// parity: the written offsets of a chunk if the write lies in one chunk, otherwise whole full
    /// stripes.
    pub(crate) fn resync_range(&self, array: SectorRange) -> SectorRange {
        let chunk = self.chunk.0;
        if array.len == Sectors::ZERO {
            return SectorRange::new(0, 0);
        }
        let data_members = u64::from(self.data_members());
        let (first, last) = (array.start.0 / chunk, (array.end().0 - 1) / chunk);
        let first_row = first / data_members * chunk;
        if first == last {
            return SectorRange::new(first_row + array.start.0 % chunk, array.len.0);
        }
        SectorRange::new(first_row, last / data_members * chunk + chunk - first_row)
    }

    /// Array sector that is at data sector `member_sector` of the member at `slot`; `None` if the
    /// slot holds parity there.
    #[must_use]
    pub fn array_sector(&self, slot: Slot, member_sector: Sectors) -> Option<Sectors> {
        let full_stripe = self.full_stripe_of(member_sector);
        let data_index = self.placement(full_stripe).data_index(slot)?;
        let chunk_number = full_stripe.0 * u64::from(self.data_members()) + u64::from(data_index);
        Some(Sectors(chunk_number * self.chunk.0 + member_sector.0 % self.chunk.0))
    }

    /// Slots of data and parity in a full stripe.
    #[inline]
    #[must_use]
    pub fn placement(&self, full_stripe: FullStripe) -> Placement {
        let members = self.members;
        if self.parities > 1 {
            return self.placement_with_q(full_stripe);
        }
        let asymmetric = |first: u16, skip: u16| DataRule::Asymmetric { first, skip };
        let symmetric =
            |p: u16| DataRule::Symmetric { from: cyclic(p + 1, members), modulus: members };
        let right = (full_stripe.0 % u64::from(members)) as u16;
        let left = members - 1 - right;
        let (p, data) = match (self.level, self.layout) {
            (Level::Raid5, 0) => (left, asymmetric(0, 1)),
            (Level::Raid5, 1) => (right, asymmetric(0, 1)),
            (Level::Raid5, 2) => (left, symmetric(left)),
            (Level::Raid5, 3) => (right, symmetric(right)),
            (Level::Raid5, 4) => (0, asymmetric(1, 0)),
            _ => (members - 1, asymmetric(0, 0)),
        };
        Placement { p: Slot(p), q: None, data, members, exponents: ExponentRule::AfterQ }
    }

    /// Slots of data and parity in a full stripe of RAID 6; see [`Geometry::placement`].
    fn placement_with_q(&self, full_stripe: FullStripe) -> Placement {
        let members = self.members;
        let full_stripe = full_stripe.0;
        let turn = |modulus: u16| (full_stripe % u64::from(modulus)) as u16;
        let at = |p: u16, q: u16, data: DataRule, exponents: ExponentRule| Placement {
            p: Slot(p),
            q: Some(Slot(q)),
            data,
            members,
            exponents,
        };
        let after_q = ExponentRule::AfterQ;
        // "pair": Q is on the slot after P, and data skips both. When Q wraps to slot 0, data
        // starts at slot 1.
        let pair = |p: u16, exponents: ExponentRule| {
            if p == members - 1 {
                at(p, 0, DataRule::Asymmetric { first: 1, skip: 0 }, exponents)
            } else {
                at(p, p + 1, DataRule::Asymmetric { first: 0, skip: 2 }, exponents)
            }
        };
        let rotating = |p: u16| {
            let data = DataRule::Symmetric { from: (p + 2) % members, modulus: members };
            at(p, (p + 1) % members, data, after_q)
        };
        // The layouts "-6": RAID 5 on all members but the last, which holds Q.
        let (five, last) = (members - 1, members - 1);
        let left_five = five - 1 - turn(five);
        let asymmetric = DataRule::Asymmetric { first: 0, skip: 1 };
        let symmetric = |p: u16| DataRule::Symmetric { from: (p + 1) % five, modulus: five };
        let left = members - 1 - turn(members);
        let right = turn(members);
        let ddf = ExponentRule::Slot;
        match self.layout {
            0 => pair(left, after_q),
            1 => pair(right, after_q),
            2 => rotating(left),
            3 => rotating(right),
            4 => at(0, 1, DataRule::Asymmetric { first: 2, skip: 0 }, after_q),
            5 => at(members - 2, last, DataRule::Asymmetric { first: 0, skip: 0 }, after_q),
            8 => pair(right, ddf),
            9 => pair(members - 1 - ((full_stripe + 1) % u64::from(members)) as u16, ddf),
            10 => {
                let data = DataRule::Symmetric { from: (left + 1) % members, modulus: members };
                at(left, (left + members - 1) % members, data, ddf)
            }
            16 => at(left_five, last, asymmetric, after_q),
            17 => at(turn(five), last, asymmetric, after_q),
            18 => at(left_five, last, symmetric(left_five), after_q),
            19 => at(turn(five), last, symmetric(turn(five)), after_q),
            20 => at(0, last, DataRule::Asymmetric { first: 1, skip: 0 }, after_q),
            _ => unreachable!("the layout was checked when the geometry was made"),
        }
    }

    /// Whether a slot holds parity in every full stripe.
    #[must_use]
    pub fn only_parity(&self, slot: Slot) -> bool {
        (0..u64::from(self.members))
            .all(|full_stripe| self.placement(FullStripe(full_stripe)).data_index(slot).is_none())
    }
}

impl Placement {
    /// Slots of P and, if there is one, Q.
    #[must_use]
    pub fn parity(&self) -> SlotSet {
        let mut parity = SlotSet::only(self.p);
        if let Some(q) = self.q {
            parity.insert(q);
        }
        parity
    }

    /// Slot of the data chunk with index `data_index`.
    #[inline]
    #[must_use]
    pub fn data_slot(&self, data_index: u16) -> Slot {
        debug_assert!(data_index < self.members - 1 - u16::from(self.q.is_some()));
        match self.data {
            DataRule::Asymmetric { first, skip } => {
                let slot = data_index + first;
                Slot(if skip > 0 && slot >= self.p.0 { slot + skip } else { slot })
            }
            DataRule::Symmetric { from, modulus } => Slot(cyclic(from + data_index, modulus)),
        }
    }

    /// Index of the data chunk that `slot` holds, counted from 0; `None` if the slot holds parity.
    #[inline]
    #[must_use]
    pub fn data_index(&self, slot: Slot) -> Option<u16> {
        if slot == self.p || Some(slot) == self.q {
            return None;
        }
        Some(match self.data {
            DataRule::Asymmetric { first, skip } => {
                slot.0 - first - if skip > 0 && slot.0 > self.p.0 { skip } else { 0 }
            }
            DataRule::Symmetric { from, modulus } => cyclic(slot.0 + modulus - from, modulus),
        })
    }

    /// Exponent of the data strip at `slot`: in Q the strip is multiplied by the generator to this
    /// power. Without Q, a number that differs for each data slot.
    #[inline]
    #[must_use]
    pub fn exponent(&self, slot: Slot) -> u8 {
        let Some(q) = self.q else { return self.data_index(slot).unwrap_or(0) as u8 };
        let exponent = match self.exponents {
            ExponentRule::Slot => slot.0,
            ExponentRule::AfterQ => {
                let members = self.members;
                let first = (q.0 + 1) % members;
                let ahead = |slot: u16| (slot + members - first) % members;
                // Slots are numbered from the one after Q; P is not counted.
                ahead(slot.0) - u16::from(ahead(self.p.0) < ahead(slot.0))
            }
        };
        exponent as u8
    }
}

/// `number` modulo `modulus`, for a number below twice the modulus.
#[inline]
const fn cyclic(number: u16, modulus: u16) -> u16 {
    if number < modulus { number } else { number - modulus }
}

/// Largest number of slots of an array: a `SlotSet` has 64 bits.
pub const MEMBERS_MAX: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry(level: Level, layout: u32, members: u32) -> Geometry {
        Geometry::new(level, layout, members, Sectors(8), Sectors(8 * 64)).unwrap()
    }

    fn picture(level: Level, layout: u32, members: u32, full_stripes: u64) -> Vec<String> {
        let geometry = geometry(level, layout, members);
        let ddf = matches!((level, layout), (Level::Raid6, 8..=10));
        (0..full_stripes)
            .map(|full_stripe| {
                let placement = geometry.placement(FullStripe(full_stripe));
                let cells =
                    (0..members as u16).map(|slot| match placement.data_index(Slot(slot)) {
                        None if Slot(slot) == placement.p => "P".to_owned(),
                        None => "Q".to_owned(),
                        Some(x) => {
                            let number =
                                full_stripe * u64::from(geometry.data_members()) + u64::from(x);
                            if level == Level::Raid6 && (ddf || members == 5) {
                                format!("D{number}^{}", placement.exponent(Slot(slot)))
                            } else {
                                format!("D{number}")
                            }
                        }
                    });
                cells.collect::<Vec<_>>().join(" ")
            })
            .collect()
    }

    /// md-raid.md §9, statement 36 (RAID 5): data and parity are at the slots that the table of
    /// §5.1 gives.
    #[test]
    fn statement_36_raid5_layouts() {
        let cases: [(u32, [&str; 4]); 6] = [
            (0, ["D0 D1 D2 P", "D3 D4 P D5", "D6 P D7 D8", "P D9 D10 D11"]),
            (1, ["P D0 D1 D2", "D3 P D4 D5", "D6 D7 P D8", "D9 D10 D11 P"]),
            (2, ["D0 D1 D2 P", "D4 D5 P D3", "D8 P D6 D7", "P D9 D10 D11"]),
            (3, ["P D0 D1 D2", "D5 P D3 D4", "D7 D8 P D6", "D9 D10 D11 P"]),
            (4, ["P D0 D1 D2", "P D3 D4 D5", "P D6 D7 D8", "P D9 D10 D11"]),
            (5, ["D0 D1 D2 P", "D3 D4 D5 P", "D6 D7 D8 P", "D9 D10 D11 P"]),
        ];
        for (layout, full_stripes) in cases {
            assert_eq!(picture(Level::Raid5, layout, 4, 4), full_stripes, "layout {layout}");
        }
        assert_eq!(picture(Level::Raid4, 0, 3, 2), ["D0 D1 P", "D2 D3 P"]);
    }

    /// md-raid.md §9, statement 36 (RAID 6): slots and exponents are as in the table of §5.1.
    #[test]
    fn statement_36_raid6_layouts_and_exponents() {
        let cases: [(u32, [&str; 3]); 14] = [
            (0, ["Q D0^0 D1^1 D2^2 P", "D3^0 D4^1 D5^2 P Q", "D6^1 D7^2 P Q D8^0"]),
            (1, ["P Q D0^0 D1^1 D2^2", "D3^2 P Q D4^0 D5^1", "D6^1 D7^2 P Q D8^0"]),
            (2, ["Q D0^0 D1^1 D2^2 P", "D3^0 D4^1 D5^2 P Q", "D7^1 D8^2 P Q D6^0"]),
            (3, ["P Q D0^0 D1^1 D2^2", "D5^2 P Q D3^0 D4^1", "D7^1 D8^2 P Q D6^0"]),
            (4, ["P Q D0^0 D1^1 D2^2", "P Q D3^0 D4^1 D5^2", "P Q D6^0 D7^1 D8^2"]),
            (5, ["D0^0 D1^1 D2^2 P Q", "D3^0 D4^1 D5^2 P Q", "D6^0 D7^1 D8^2 P Q"]),
            (8, ["P Q D0^2 D1^3 D2^4", "D3^0 P Q D4^3 D5^4", "D6^0 D7^1 P Q D8^4"]),
            (9, ["D0^0 D1^1 D2^2 P Q", "D3^0 D4^1 P Q D5^4", "D6^0 P Q D7^3 D8^4"]),
            (10, ["D0^0 D1^1 D2^2 Q P", "D4^0 D5^1 Q P D3^4", "D8^0 Q P D6^3 D7^4"]),
            (16, ["D0^0 D1^1 D2^2 P Q", "D3^0 D4^1 P D5^2 Q", "D6^0 P D7^1 D8^2 Q"]),
            (17, ["P D0^0 D1^1 D2^2 Q", "D3^0 P D4^1 D5^2 Q", "D6^0 D7^1 P D8^2 Q"]),
            (18, ["D0^0 D1^1 D2^2 P Q", "D4^0 D5^1 P D3^2 Q", "D8^0 P D6^1 D7^2 Q"]),
            (19, ["P D0^0 D1^1 D2^2 Q", "D5^0 P D3^1 D4^2 Q", "D7^0 D8^1 P D6^2 Q"]),
            (20, ["P D0^0 D1^1 D2^2 Q", "P D3^0 D4^1 D5^2 Q", "P D6^0 D7^1 D8^2 Q"]),
        ];
        for (layout, full_stripes) in cases {
            assert_eq!(picture(Level::Raid6, layout, 5, 3), full_stripes, "layout {layout}");
        }
    }

    /// md-raid.md §9, statement 36: for every layout and size, mapping and reverse mapping form a
    /// bijection.
    #[test]
    fn statement_36_every_placement_is_a_bijection() {
        let mut looked_at = 0;
        let raid6 = [0, 1, 2, 3, 4, 5, 8, 9, 10, 16, 17, 18, 19, 20];
        let shapes = (2..=9)
            .map(|members| (Level::Raid4, 0, members))
            .chain((2..=9).flat_map(|m| (0..=5).map(move |layout| (Level::Raid5, layout, m))))
            .chain((4..=9).flat_map(|m| raid6.map(|layout| (Level::Raid6, layout, m))));
        for (level, layout, members) in shapes {
            let geometry = geometry(level, layout, members);
            let mut seen = std::collections::BTreeSet::new();
            for chunk in 0..u64::from(geometry.data_members()) * 40 {
                let sector = Sectors(chunk * 8 + chunk % 8);
                let position = geometry.locate(sector);
                assert!(seen.insert((position.slot, position.sector)));
                assert_eq!(geometry.array_sector(position.slot, position.sector), Some(sector));
                looked_at += 1;
            }
            for full_stripe in 0..40 {
                let placement = geometry.placement(FullStripe(full_stripe));
                assert_ne!(Some(placement.p), placement.q);
                let parity = (0..members as u16).map(Slot).filter(|slot| {
                    placement.parity().contains(*slot)
                        && (*slot == placement.p || Some(*slot) == placement.q)
                });
                assert_eq!(parity.count(), usize::from(geometry.parities()));
                assert_eq!(geometry.array_sector(placement.p, Sectors(full_stripe * 8)), None);
                let exponents: std::collections::BTreeSet<_> = (0..geometry.data_members())
                    .map(|x| placement.exponent(placement.data_slot(x)))
                    .collect();
                if level == Level::Raid6 {
                    assert_eq!(exponents.len(), usize::from(geometry.data_members()));
                }
            }
        }
        assert!(looked_at > 15_000, "{looked_at}");
    }

    #[test]
    fn what_was_given_is_what_is_told() {
        let geometry =
            Geometry::new(Level::Raid6, 18, 7, Sectors(128), Sectors(128 * 10 + 127)).unwrap();
        assert_eq!((geometry.level(), geometry.layout()), (Level::Raid6, 18));
        assert_eq!((geometry.members(), geometry.parities(), geometry.data_members()), (7, 2, 5));
        assert_eq!((geometry.chunk(), geometry.member_size()), (Sectors(128), Sectors(1280)));
        assert_eq!(geometry.array_size(), Sectors(1280 * 5));
        for (sector, full_stripe) in [(0, 0), (127, 0), (128, 1), (1279, 9)] {
            assert_eq!(geometry.full_stripe_of(Sectors(sector)), FullStripe(full_stripe));
        }
    }

    #[test]
    fn numbers_at_the_edge_of_what_makes_an_array_are_taken() {
        let most = i64::MAX as u64 / 512 / 3;
        for (level, layout, members, chunk, size, taken) in [
            (Level::Raid4, 77, 2, 8, 8, true),
            (Level::Raid5, 5, 2, 8, 8, true),
            (Level::Raid5, 2, 1, 8, 8, false),
            (Level::Raid6, 20, 4, 8, 8, true),
            (Level::Raid6, 21, 4, 8, 8, false),
            (Level::Raid6, 6, 4, 8, 8, false),
            (Level::Raid6, 11, 4, 8, 8, false),
            (Level::Raid5, 2, 64, 8, 8, true),
            (Level::Raid5, 2, 4, 4, 8, false),
            (Level::Raid5, 2, 4, 8, 7, false),
            (Level::Raid5, 2, 4, 8, most, true),
            (Level::Raid5, 2, 4, 8, most + 8, false),
            (Level::Raid5, 2, 4, 8, u64::MAX / 512, false),
        ] {
            let made = Geometry::new(level, layout, members, Sectors(chunk), Sectors(size));
            assert_eq!(made.is_ok(), taken, "{level} {layout} {members} {chunk} {size}");
        }
    }

    #[test]
    fn without_q_each_data_slot_has_a_number_of_its_own() {
        let placement = geometry(Level::Raid5, 2, 4).placement(FullStripe(1));
        assert_eq!([3, 0, 1].map(|slot| placement.exponent(Slot(slot))), [0, 1, 2]);
    }

    #[test]
    fn numbers_that_make_no_array_are_refused() {
        let make = |level, layout, members, chunk, size| {
            Geometry::new(level, layout, members, Sectors(chunk), Sectors(size)).unwrap_err()
        };
        assert!(matches!(make(Level::Raid5, 6, 4, 8, 80), GeometryError::Layout { .. }));
        assert!(matches!(make(Level::Raid6, 2, 3, 8, 80), GeometryError::Members { .. }));
        assert!(matches!(make(Level::Raid5, 2, 65, 8, 80), GeometryError::Members { .. }));
        assert!(matches!(make(Level::Raid5, 2, 4, 24, 80), GeometryError::Chunk { .. }));
        assert!(matches!(make(Level::Raid5, 2, 4, 128, 127), GeometryError::Size { .. }));
        assert!(matches!(make(Level::Raid5, 2, 4, 8, u64::MAX), GeometryError::Size { .. }));
        assert!(matches!(make(Level::Raid1, 0, 2, 0, 80), GeometryError::Level(_)));
    }

    #[test]
    fn slots_that_never_hold_data_are_known() {
        assert!(geometry(Level::Raid4, 0, 4).only_parity(Slot(3)));
        assert!(!geometry(Level::Raid4, 0, 4).only_parity(Slot(0)));
        assert!((0..4).all(|slot| !geometry(Level::Raid5, 2, 4).only_parity(Slot(slot))));
        assert!(geometry(Level::Raid6, 18, 5).only_parity(Slot(4)));
    }
}
