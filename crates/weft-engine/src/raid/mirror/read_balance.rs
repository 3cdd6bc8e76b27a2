//! Read balance: which copy of a mirror a read goes to.
//!
//! On RAID 1, a read that continues the last read of a member goes to that member, which has read
//! ahead for it. Other reads go to the member with the fewest outstanding requests or, if all
//! members are busy rotating disks, to the disk with the nearest head. RAID 10 has no such streams.
//! It prefers flash to rotating disks and takes the flash member with the fewest requests; among
//! disks it takes an idle one, and with far copies the copy closest to the outer edge. A
//! write-mostly member is read only if no other member has the data.
//!
//! Inputs   the copies that can be read, in md's order; where each member's last read ended
//! Answer   one of the copies; `None` if there is none
//! Source   md-raid.md §5.4 and §5.5 (md: `read_balance` of `raid1.c` and `raid10.c`)
//! Unlike md: a stream stays however long it is, because the optimal I/O size of a member, after
//!          which md moves on, is not known here; a write does not move a head; a write-mostly
//!          member that has the whole range goes before another one that has bad blocks in it
//! Compare  where copies may differ the first one is read, without a choice

use weft_units::{Sectors, Slot};

use crate::layout::mirrors::{Copy, Mirrors};
use crate::raid::cx::ReadState;

/// Copy that can be read, with the properties on which the choice depends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Readable {
    /// Position of the copy's member in the array.
    pub(super) position: usize,
    pub(super) slot: Slot,
    /// First data sector of the copy on its member.
    pub(super) sector: Sectors,
    /// Number of outstanding requests of the member.
    pub(super) pending: u32,
    /// Whether the member is a rotating disk.
    pub(super) rotational: bool,
    pub(super) write_mostly: bool,
}

impl Readable {
    #[inline]
    pub(super) fn new(copy: Copy, position: usize, member: ReadState) -> Self {
        let (Copy { slot, sector }, ReadState { pending, rotational, write_mostly, .. }) =
            (copy, member);
        Self { position, slot, sector, pending, rotational, write_mostly }
    }
}

/// Read-balance rule of a layout, and where the last read of each member ended.
#[derive(Clone, Debug)]
pub(super) struct ReadBalance {
    rule: Rule,
    /// Data sector at which the last read of each slot ended.
    heads: Vec<Sectors>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    Raid1,
    Raid10 { near: bool, far: bool },
}

impl ReadBalance {
    pub(super) fn new(places: &Mirrors) -> Self {
        let rule = if places.level().is_mirror() {
            Rule::Raid1
        } else {
            Rule::Raid10 { near: places.near_copies() > 1, far: places.far_copies() > 1 }
        };
        Self { rule, heads: vec![Sectors::ZERO; places.members().into()] }
    }

    /// Chooses a copy to read; among equally good ones the first. `None` if there is none.
    #[inline(always)]
    pub(super) fn choose(&self, copies: impl Iterator<Item = Readable>) -> Option<Readable> {
        let mut has_flash = false;
        let (mut least, mut nearest, mut write_mostly) = (None::<Readable>, None, None);
        for copy in copies {
            if copy.write_mostly {
                write_mostly = write_mostly.or(Some(copy));
                continue;
            }
            let from_head = self.heads[copy.slot.index()].0.abs_diff(copy.sector.0);
            if from_head == 0 && self.rule == Rule::Raid1 {
                return Some(copy);
            }
            has_flash |= !copy.rotational;
            let counts = self.rule == Rule::Raid1 || !copy.rotational;
            if counts && least.is_none_or(|least| copy.pending < least.pending) {
                least = Some(copy);
            }
            // Distances count only if every disk rotates.
            if has_flash {
                continue;
            }
            let distance = match self.rule {
                Rule::Raid10 { near: true, .. } if copy.pending == 0 => 0,
                Rule::Raid10 { far: true, .. } => copy.sector.0,
                Rule::Raid1 | Rule::Raid10 { .. } => from_head,
            };
            if nearest.is_none_or(|(least, _)| distance < least) {
                nearest = Some((distance, copy));
            }
        }
        let least = least.filter(|copy| has_flash || copy.pending == 0);
        least.or(nearest.map(|(_, copy)| copy)).or(write_mostly)
    }

    /// Whether the last read of the member at `slot` ended at data sector `sector`.
    #[inline]
    pub(super) fn follows(&self, slot: Slot, sector: Sectors) -> bool {
        self.heads[slot.index()] == sector
    }

    /// Notes that a read of the member at `slot` ends at data sector `end`.
    #[inline]
    pub(super) fn on_read(&mut self, slot: Slot, end: Sectors) {
        self.heads[slot.index()] = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Copies on slots in order: sector, outstanding requests, and whether the disk rotates.
    fn copies(of: &[(u64, u32, bool)]) -> Vec<Readable> {
        let copy = |((sector, pending, rotational), slot): (&(u64, u32, bool), u16)| Readable {
            position: slot.into(),
            slot: Slot(slot),
            sector: Sectors(*sector),
            pending: *pending,
            rotational: *rotational,
            write_mostly: false,
        };
        of.iter().zip(0..).map(copy).collect()
    }

    fn balance(rule: Rule) -> ReadBalance {
        ReadBalance { rule, heads: vec![Sectors::ZERO; 2] }
    }

    /// Reads 4 KiB of the chosen copy and returns its slot.
    fn chosen(balance: &mut ReadBalance, of: &[(u64, u32, bool)]) -> u16 {
        let copy = balance.choose(copies(of).into_iter()).expect("there are copies");
        balance.on_read(copy.slot, copy.sector + Sectors(8));
        copy.slot.0
    }

    #[test]
    fn statement_34_streams_stay_and_others_go_to_the_least_busy_or_nearest() {
        let mut raid1 = balance(Rule::Raid1);
        // On idle flash, the first copy is read; four reads at once alternate (both as in Linux
        // 6.12).
        assert_eq!(chosen(&mut raid1, &[(800, 0, false), (800, 0, false)]), 0);
        for (nth, first, second) in [(0, 0, 0), (1, 1, 0), (0, 1, 1), (1, 2, 1)] {
            let at = 8_000 + u64::from(first + second) * 1_000;
            assert_eq!(chosen(&mut raid1, &[(at, first, false), (at, second, false)]), nth);
        }
        // A read that continues another stays on the same member, even if that member is busier.
        let at = raid1.heads[1].0;
        assert_eq!(chosen(&mut raid1, &[(at, 0, false), (at, 9, false)]), 1);
        // Among rotating disks, an idle disk is read, or the nearest disk if all are busy.
        raid1.heads = vec![Sectors(100), Sectors(5_000)];
        assert_eq!(chosen(&mut raid1, &[(4_000, 0, true), (4_000, 3, true)]), 0);
        raid1.heads = vec![Sectors(100), Sectors(5_000)];
        assert_eq!(chosen(&mut raid1, &[(4_000, 1, true), (4_000, 3, true)]), 1);
        // With a flash member among them, the least busy member is read.
        raid1.heads = vec![Sectors(100), Sectors(5_000)];
        assert_eq!(chosen(&mut raid1, &[(4_000, 1, true), (4_000, 3, false)]), 0);
    }

    #[test]
    fn statement_38_raid10_reads_idle_disks_in_order_and_far_copies_at_the_outside() {
        let mut near = balance(Rule::Raid10 { near: true, far: false });
        assert_eq!(chosen(&mut near, &[(900, 0, true), (900, 0, true)]), 0);
        assert_eq!(chosen(&mut near, &[(2_000, 1, true), (2_000, 0, true)]), 1);
        near.heads = vec![Sectors(0), Sectors(3_000)];
        assert_eq!(chosen(&mut near, &[(2_000, 1, true), (2_000, 2, true)]), 1);
        let mut far = balance(Rule::Raid10 { near: false, far: true });
        assert_eq!(chosen(&mut far, &[(100, 9, true), (60, 0, true)]), 1);
        assert_eq!(chosen(&mut far, &[(60, 9, true), (100, 0, true)]), 0);
        // Flash is read before disks, however many requests wait there.
        assert_eq!(chosen(&mut far, &[(60, 0, true), (100, 9, false)]), 1);
        assert_eq!(chosen(&mut far, &[(60, 4, false), (100, 3, false)]), 1);
    }

    #[test]
    fn write_mostly_members_are_read_where_no_other_has_the_data() {
        let raid1 = balance(Rule::Raid1);
        let slot = |of: &[Readable]| raid1.choose(of.iter().copied()).map(|copy| copy.slot.0);
        let mut both = copies(&[(80, 0, false), (80, 7, false)]);
        both[0].write_mostly = true;
        assert_eq!(slot(&both), Some(1));
        assert_eq!(slot(&both[..1]), Some(0));
        both[1].write_mostly = true;
        assert_eq!(slot(&both), Some(0));
        assert_eq!(slot(&[]), None);
    }
}
