//! Tests of suspect columns, which are measured after a cut, excused exactly, and cleared one by
//! one. Each test has a counterpart that plants wrong content which coarser excuses would have
//! accepted.

use crate::{BLOCK, CutMode, Order, Rig, World, chunk_kib};
use weft_engine::assemble;

/// RAID 5 of three members with a chunk of 4 KiB. In stripe 0, block 0 is on disk 0, block 1 on
/// disk 1, and parity on disk 2.
fn raid5() -> Rig {
    Rig::raid5(3, chunk_kib(4)).written(0, 1).written(1, 2).flushed()
}

/// First sector of stripe 0 on a disk.
fn stripe(rig: &Rig, disk: usize) -> u64 {
    rig.array.data_offset[disk].0
}

/// Writes block 0 again and restores the old parity, as if a power cut had lost the write of
/// parity.
fn without_parity(flushed: bool) -> Rig {
    let mut rig = raid5();
    let at = stripe(&rig, 2);
    let old = rig.disks[2].peek(at, 8);
    rig.write(0, 7);
    rig.finish();
    if flushed {
        rig.flush();
        rig.finish();
    }
    rig.disks[2].poke(at, &old);
    rig
}

/// Loses a disk, cuts the power, starts again and reads everything. Returns the violation (`None`
/// if there is none) and the number of sectors that were wrong and excused.
fn outcome(mut rig: Rig, lost: Option<usize>, plant: impl Fn(&mut World)) -> (Option<String>, u64) {
    let world: &mut World = &mut rig;
    if let Some(disk) = lost {
        world.disks[disk].faults.gone = true;
    }
    world.power_cut(CutMode::Everything);
    if world.failure().is_none() {
        let how =
            assemble::Options { run: true, force_dirty: true, ..assemble::Options::default() };
        world.start(&how).expect("the start is forced");
        plant(world);
    }
    if world.failure().is_none() {
        world.verify(Order::Fifo);
    }
    (world.failure().map(ToString::to_string), world.excuses().read_wrong)
}

#[test]
fn what_members_that_disagree_give_back_is_excused_and_nothing_else() {
    let (found, wrong) = outcome(without_parity(false), Some(1), |_| ());
    assert_eq!((found, wrong), (None, 8), "block 1 was reconstructed with old parity");
    // The written block reads as its old content, which is allowed.
    let (found, wrong) = outcome(without_parity(false), Some(0), |_| ());
    assert_eq!((found, wrong), (None, 0));
    // Counterpart: other content of the same sector.
    let (found, _) = outcome(without_parity(false), Some(1), |world| {
        let at = world.array.data_offset[2].0;
        world.disks[2].poke(at, &[99; 512]);
    });
    let found = found.expect("the planted content is reported");
    assert!(found.starts_with("I2 old or new: sector 8 "), "{found}");
}

#[test]
fn parity_of_no_choice_of_versions_is_found_after_a_cut() {
    for lost in [None, Some(1)] {
        assert_eq!(outcome(without_parity(false), lost, |_| ()).0, None, "{lost:?}");
        // After a flush the old version of block 0 is no longer possible.
        let found = outcome(without_parity(true), lost, |_| ()).0.expect("parity is too old");
        assert!(found.starts_with("I6 parity or dirty: "), "{lost:?}: {found}");
        // With all members present the cut itself is judged, before the next start.
        let says = match lost {
            None => "no request was writing it",
            Some(_) => "of no choice of what was written",
        };
        assert!(found.contains(says), "{lost:?}: {found}");
    }
}

/// A resync clears column after column. Wrong content in a column behind the resync is reported at
/// once, while the last columns may still be reconstructed from old parity.
#[test]
fn each_column_is_cleared_on_its_own_when_a_resync_has_passed_it() {
    let mut rig = Rig::raid5(3, chunk_kib(4));
    rig = (0..8).fold(rig, |rig, block| rig.written(block, 1)).flushed();
    let parities: Vec<(usize, u64, Vec<u8>)> = (0..4usize)
        .zip([0, 8, 16, 24])
        .map(|(stripe, column)| (2 - stripe % 3, column))
        .map(|(disk, column)| (disk, stripe(&rig, disk) + column))
        .map(|(disk, at)| (disk, at, rig.disks[disk].peek(at, 8)))
        .collect();
    (0..4).for_each(|stripe| _ = rig.write(2 * stripe, 7));
    rig.finish();
    parities.iter().for_each(|(disk, at, old)| rig.disks[*disk].poke(*at, old));
    rig.cut(CutMode::Everything);
    rig.recover();
    let columns = |rig: &Rig| rig.suspect_columns();
    assert_eq!(columns(&rig), (0..32).collect::<Vec<u64>>());
    let mut seen = vec![32];
    while !columns(&rig).is_empty() {
        let all = columns(&rig);
        assert!(all.iter().all(|column| *column < 32));
        if seen.last() != Some(&all.len()) {
            seen.push(all.len());
        }
        assert!(rig.step(Order::Fifo) || rig.wake(), "the resync ends: {all:?}");
        rig.must();
    }
    assert!(seen.len() > 2, "columns are cleared in steps: {seen:?}");
    assert!(rig.verify() > 0);
    assert_eq!(rig.excuses().read_wrong, 0);
    // Counterpart: stripe 0 with the parity that was excused before.
    rig.until_idle().stop();
    let (disk, at, old) = &parities[0];
    rig.disks[*disk].poke(*at, old);
    rig.disks[1].faults.gone = true;
    rig.recover();
    rig.get(BLOCK, BLOCK);
    rig.run(Order::Fifo);
    let found = rig.failure().expect("the wrong content is reported").to_string();
    assert!(found.starts_with("I2 old or new: sector 8 "), "{found}");
}

/// After a full-stripe write its columns are no longer suspect, as after a resync.
#[test]
fn a_write_of_the_full_stripe_clears_its_columns() {
    for blocks in [1, 2] {
        let mut rig = without_parity(false);
        rig.cut(CutMode::Everything);
        rig.disks[1].faults.gone = true;
        rig.recover();
        // With a member missing no column counts as suspect; the model knows the reconstructed
        // content.
        assert_eq!(rig.suspect_columns(), [] as [u64; 0]);
        let before = rig.read(1);
        assert!(!before.is_all(2));
        rig.put(0, blocks * BLOCK);
        rig.finish();
        assert_eq!(rig.read(1) == before, blocks == 1);
        let unsure = rig.excuses().read_unsure;
        rig.read(1);
        assert_eq!(rig.excuses().read_unsure == unsure, blocks == 2, "unsure unless overwritten");
        rig.verify();
        let unsure = rig.excuses().read_unsure;
        rig.verify();
        assert_eq!(rig.excuses().read_unsure, unsure, "no read is unsure any more");
    }
}

/// Wrong content of an unreadable sector is excused as long as members disagree, but not after the
/// sector was corrected.
#[test]
fn a_sector_that_was_corrected_has_no_excuse() {
    let mut rig = without_parity(false);
    rig.cut(CutMode::Everything);
    let at = stripe(&rig, 1);
    rig.disks[1].faults.bad_reads.extend(at..at + 8);
    rig.recover();
    rig.verify();
    let wrong = rig.excuses().read_wrong;
    assert!(wrong > 0, "reconstructed with old parity, unless the resync was faster");
    rig.until_idle();
    assert_eq!(rig.suspect_columns(), [] as [u64; 0]);
    rig.disks[1].poke(at, &[99; 512]);
    rig.stop();
    rig.start(&assemble::Options::default()).expect("the array was stopped");
    rig.get(BLOCK, BLOCK);
    rig.run(Order::Fifo);
    let found = rig.failure().expect("the wrong content is reported").to_string();
    assert!(found.starts_with("I2 old or new: sector 8 "), "{found}");
}
