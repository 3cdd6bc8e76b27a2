//! Tests of bit rot in one copy of a mirror with three or more copies: `check` names the wrong
//! copy, and `correct` rewrites it from the other copies.

use weft_engine::{SyncAction, Verb};
use weft_ondisk::Level;

use crate::array::SlotSector;
use crate::{Rig, chunk_kib};

/// Number of 4 KiB blocks that are written: four units of a sync.
const BLOCKS: u64 = 64;

/// Number of sectors of a unit of a sync.
const UNIT: u64 = 128;

/// Mirrors with at least three copies: level, number of members, layout, number of copies.
const MIRRORS: [(Level, usize, Option<u32>, u64); 5] = [
    (Level::Raid1, 3, None, 3),
    (Level::Raid1, 4, None, 4),
    (Level::Raid10, 3, Some(0x103), 3),
    (Level::Raid10, 4, Some(0x301), 3),
    (Level::Raid10, 5, Some(0x10301), 3),
];

/// A mirror that was written and flushed.
fn mirror((level, members, layout, _): (Level, usize, Option<u32>, u64)) -> Rig {
    let mut rig = Rig::raid(level, members, layout, chunk_kib(64)).written(0, 1);
    for block in 1..BLOCKS {
        let write = rig.write(block, 1 + block as u8);
        rig.wait(write).unwrap();
    }
    rig.flushed()
}

/// Damages copy `nth` of a block: its second sector is filled with `byte`.
fn rot(rig: &mut Rig, block: u64, nth: usize, byte: u8) {
    let place = rig.array.column(block * 8 + 1).places[nth];
    let disk = usize::from(place.slot.0);
    let at = rig.array.data_offset[disk].0 + place.sector;
    let len = rig.disks[disk].peek(at, 1).len();
    rig.disks[disk].poke(at, &vec![byte; len]);
}

/// Content of every copy of a block, sector by sector.
fn copies(rig: &Rig, block: u64) -> Vec<Vec<u8>> {
    let sectors = block * 8..block * 8 + 8;
    let places = sectors.flat_map(|sector| rig.array.column(sector).places);
    let content = |place: SlotSector| {
        let disk = usize::from(place.slot.0);
        rig.disks[disk].peek(rig.array.data_offset[disk].0 + place.sector, 1)
    };
    places.map(content).collect()
}

/// Runs `correct`. Returns the number of sectors counted as mismatches, and the number of
/// mismatches that were not located.
fn correct(rig: &mut Rig) -> (u64, u64) {
    rig.sync(SyncAction::Correct).unwrap();
    rig.until_idle();
    let volume = rig.volume();
    (volume.mismatch_cnt, volume.mismatches.not_located)
}

#[test]
fn each_copy_that_rots_alone_is_named_and_written_anew() {
    for shape in MIRRORS {
        for nth in 0..shape.3 as usize {
            let mut rig = mirror(shape);
            let whole = copies(&rig, 20);
            rot(&mut rig, 20, nth, 0xee);
            assert_eq!(rig.check().0, UNIT, "{shape:?} {nth}");
            let wrong = rig.volume().mismatches.first[0].wrong.map(|it| it.slot);
            let slot = rig.array.column(160).places[nth].slot;
            // With the layouts far and offset, the copies of a unit lie at different offsets of
            // their members.
            let is_named = shape.2.is_none_or(|layout| layout == 0x103);
            assert_eq!(wrong, is_named.then_some(slot), "{shape:?} {nth}");
            assert_eq!(correct(&mut rig), (UNIT, 0), "{shape:?} {nth}");
            assert_eq!(copies(&rig, 20), whole, "{shape:?} {nth}");
            assert_eq!(rig.check().0, 0);
            assert!(rig.verify() > 0);
        }
    }
}

#[test]
fn copies_that_rot_in_different_blocks_of_a_unit_are_all_written_anew() {
    for shape in MIRRORS {
        let mut rig = mirror(shape);
        let whole: Vec<_> = (0..16).map(|block| copies(&rig, block)).collect();
        for nth in 0..shape.3 {
            rot(&mut rig, 3 + nth, nth as usize, 0xee);
        }
        // Several copies differ, so that `check` must name none of them as wrong.
        assert_eq!(rig.check().0, UNIT, "{shape:?}");
        assert_eq!(rig.volume().mismatches.first[0].wrong, None, "{shape:?}");
        assert_eq!(correct(&mut rig), (UNIT, 0), "{shape:?}");
        let now: Vec<_> = (0..16).map(|block| copies(&rig, block)).collect();
        assert_eq!(now, whole, "{shape:?}");
        assert_eq!(rig.check().0, 0);
        assert!(rig.verify() > 0);
    }
}

#[test]
fn copies_without_a_majority_are_counted_and_left() {
    for shape in MIRRORS {
        let mut rig = mirror(shape);
        let kept = copies(&rig, 40);
        // In block 40 one copy is outvoted. In block 43 no two of three copies are equal, or four
        // copies form two equal pairs.
        rot(&mut rig, 40, 0, 0xee);
        rot(&mut rig, 43, 0, 0xaa);
        rot(&mut rig, 43, 1, if shape.3 == 4 { 0xaa } else { 0xbb });
        let undecided = copies(&rig, 43);
        assert_eq!(correct(&mut rig), (UNIT, 1), "{shape:?}");
        assert_eq!(copies(&rig, 43), undecided, "{shape:?}");
        assert_eq!(copies(&rig, 40), kept, "{shape:?}");
        assert_eq!(rig.check().0, UNIT, "{shape:?}");
    }
}

#[test]
fn two_copies_do_not_vote() {
    for (level, members, layout) in [(Level::Raid1, 2, None), (Level::Raid10, 4, Some(0x102))] {
        let mut rig = Rig::raid(level, members, layout, chunk_kib(64)).written(0, 1).flushed();
        let refused = rig.command(Verb::SyncAction(SyncAction::Correct)).unwrap_err();
        assert!(refused.to_string().contains("three copies"), "{refused}");
    }
}

/// Without one of three members two copies are left, which cannot outvote each other.
#[test]
fn two_copies_that_are_left_are_not_written() {
    let mut rig = mirror(MIRRORS[0]);
    rig.fail_disk(2);
    rot(&mut rig, 20, 0, 0xee);
    let left = copies(&rig, 20);
    assert_eq!(correct(&mut rig), (UNIT, 1));
    assert_eq!(copies(&rig, 20), left);
}

/// A copy with an unreadable sector does not vote in the block of this sector, and votes in all
/// other blocks. If two of four copies differ from the other two, no copy is written, no matter in
/// which block a copy is unreadable.
#[test]
fn a_copy_votes_in_the_blocks_that_can_be_read() {
    let mut rig = mirror(MIRRORS[1]);
    let whole = copies(&rig, 23);
    rot(&mut rig, 20, 0, 0xee);
    rot(&mut rig, 20, 3, 0xee);
    rot(&mut rig, 22, 1, 0xaa);
    let undecided = copies(&rig, 20);
    let kept = copies(&rig, 21);
    // Disk 3 cannot read one sector of block 23.
    let at = rig.array.data_offset[3].0 + 23 * 8 + 4;
    rig.disks[3].faults.bad_reads = std::iter::once(at).collect();
    assert_eq!(correct(&mut rig), (UNIT, 1));
    assert_eq!(copies(&rig, 20), undecided);
    assert_eq!(copies(&rig, 22)[1], copies(&rig, 22)[0], "one of four is outvoted");
    assert_eq!((copies(&rig, 21), copies(&rig, 23)), (kept, whole));
    // Blocks that were read in one request with the unreadable sector are rewritten too.
    assert!(rig.volume().members[3].corrected >= 8, "the block is written anew");
}
