//! Tests of the bad-block log: entries that recoveries and members in sync record, results of
//! reads, and the ways in which entries are cleared.

use weft_engine::{MemberState, ReplyError, SyncAction, assemble};
use weft_ondisk::{BadBlocks, Features, Level};
use weft_units::rng::Rng;
use weft_units::{Bytes, SectorRange};

use crate::{BLOCK, Rig, chunk_kib};

/// RAID 5 of three with a spare, which is disk 3, and a chunk of 16 KiB. Blocks 0 to 11 are
/// written. Blocks 0 to 3 are on disk 0, 4 to 7 on disk 1.
fn raid5() -> Rig {
    let mut rig = Rig::raid5(3, chunk_kib(16)).with(|options| {
        options.spares = 1;
        options.data_promised = false;
    });
    for block in 0..12 {
        rig = rig.written(block, block as u8 + 1);
    }
    rig
}

/// Absolute sector on a disk of its data sector `sector`.
fn at(rig: &Rig, disk: usize, sector: u64) -> u64 {
    rig.array.data_offset[disk].0 + sector
}

/// A rig after the recovery of disk 3 in place of disk 0, during which block 5, the second block of
/// disk 1, could not be read. Block 1, which has the same parity, is lost.
fn rebuilt_beside_a_bad_block() -> Rig {
    let mut rig = raid5();
    rig.stop().recover();
    let first = at(&rig, 1, 8);
    rig.disks[1].faults.dead_reads = (first..first + 8).collect();
    rig.fail_disk(0).until_idle();
    rig
}

fn logged(rig: &Rig, disk: usize) -> Vec<SectorRange> {
    let metadata = rig.metadata(disk);
    let bad = metadata.logs.bad_blocks.map(|bad| bad.expect("the log is legal"));
    let ranges = bad.map(|bad| bad.ranges().to_vec()).unwrap_or_default();
    let bit = metadata.superblock.features().contains(Features::BADBLOCKS);
    assert_eq!(bit, !ranges.is_empty(), "the bit says whether there are bad blocks");
    ranges
}

fn reads(rig: &mut Rig, block: u64) -> Option<u8> {
    let read = rig.read_bytes(block * BLOCK, BLOCK).ok()?;
    let byte = read.0[0];
    assert!(read.is_all(byte), "block {block}");
    Some(byte)
}

#[test]
fn a_second_bad_block_costs_that_block_and_not_the_array() {
    let mut rig = rebuilt_beside_a_bad_block();
    for _ in 0..2 {
        assert_eq!((rig.volume().degraded, rig.state_of(3)), (0, Some(MemberState::InSync)));
        for block in 0..12 {
            let expected = (!matches!(block, 1 | 5)).then_some(block as u8 + 1);
            assert_eq!(reads(&mut rig, block), expected, "block {block}");
        }
        // The blocks are still bad after a start.
        rig.stop().recover();
    }
    assert_eq!(logged(&rig, 3), [SectorRange::new(8, 8)]);
    assert_eq!(rig.volume().members[0].bad_blocks, [SectorRange::new(at(&rig, 3, 8), 8)]);
}

#[test]
fn a_bad_block_that_is_written_is_good_again() {
    let mut rig = rebuilt_beside_a_bad_block();
    assert_eq!(rig.store(BLOCK, BLOCK), Err(ReplyError::Io), "its parity needs block 5");
    rig.disks[1].faults.dead_reads.clear();
    assert_eq!(rig.store(5 * BLOCK, BLOCK), Ok(()));
    assert_eq!(rig.store(BLOCK, BLOCK), Ok(()));
    assert_eq!(rig.volume().members[0].bad_blocks, []);
    rig.stop();
    assert_eq!(logged(&rig, 3), []);
    rig.recover();
    assert!([1, 5].iter().all(|block| rig.read_bytes(block * BLOCK, BLOCK).is_ok()));
}

/// A bad block that can be computed again is corrected by a read or by a check. Here the block of
/// disk 1 that could not be read becomes readable again.
#[test]
fn a_bad_block_is_corrected_by_a_read_or_a_check() {
    for check in [false, true] {
        let mut rig = rebuilt_beside_a_bad_block();
        rig.stop().recover();
        rig.disks[1].faults.dead_reads.clear();
        if check {
            rig.sync(SyncAction::Check).unwrap();
            rig.until_idle();
        } else {
            // The read computes the block at once; the correction is written afterwards.
            assert_eq!(reads(&mut rig, 1), Some(2));
            rig.until_idle();
        }
        assert_eq!(rig.volume().members[0].bad_blocks, [], "by a check: {check}");
        assert_eq!(reads(&mut rig, 1), Some(2));
        rig.stop();
        assert_eq!(logged(&rig, 3), []);
        rig.scrub_clean();
    }
}

/// A log of one sector has room for 64 entries.
#[test]
fn a_member_fails_when_its_log_is_full() {
    for (count, full) in [(64, false), (65, true)] {
        let mut rig = Rig::raid5(3, chunk_kib(64)).with(|options| {
            options.spares = 1;
            options.full_stripes = 16;
            options.data_promised = false;
        });
        rig.stop();
        for disk in 0..4 {
            let mut superblock = rig.metadata(disk).superblock.as_v1().unwrap().clone();
            superblock.bblog_size = 1;
            rig.disks[disk].poke(superblock.super_offset.0, &superblock.encode());
        }
        rig.recover();
        let first = at(&rig, 1, 0);
        rig.disks[1].faults.dead_reads = (0..count).map(|nth| first + nth * 16).collect();
        rig.fail_disk(0).until_idle();
        let state = if full { MemberState::Faulty } else { MemberState::InSync };
        assert_eq!(rig.state_of(3), Some(state), "{count} bad blocks");
        assert_eq!(rig.volume().degraded, usize::from(full));
        rig.stop();
        assert_eq!(logged(&rig, 3).len(), if full { 0 } else { 64 });
    }
}

#[test]
fn a_member_comes_back_with_its_bad_blocks() {
    let mut rig = Rig::raid(Level::Raid1, 2, None, chunk_kib(64)).with(|options| {
        options.bitmap = Some(Bytes(65_536));
        options.data_promised = false;
    });
    rig = rig.written(0, 1).written(1, 2);
    rig.fail_disk(1).remove(1);
    let first = at(&rig, 0, 8);
    rig.disks[0].faults.dead_reads = (first..first + 8).collect();
    let new = rig.add();
    rig.until_idle();
    assert_eq!((rig.state_of(new), logged(&rig, new).len()), (Some(MemberState::InSync), 1));
    rig.fail_disk(new).remove(new);
    let superblock = rig.metadata(new).superblock;
    let ticket = rig.re_add(new, superblock);
    assert!(rig.wait(ticket).is_ok());
    rig.until_idle();
    assert_eq!(rig.state_of(new), Some(MemberState::InSync));
    assert_eq!((reads(&mut rig, 0), reads(&mut rig, 1)), (Some(1), None));
    assert_eq!(logged(&rig, new), [SectorRange::new(8, 8)]);
}

/// Block 1 on disk 0 and block 6 on disk 1 cannot be written, or can never be read. Without a log,
/// the first would fail disk 0, and the second would then lose data.
#[test]
fn bad_blocks_of_two_members_cost_neither_a_member_nor_data() {
    for written in [false, true] {
        let mut rig = raid5();
        rig.stop().recover();
        let bad = [(0, 8, 1), (1, 16, 6)];
        for (disk, sector, _) in bad {
            let first = at(&rig, disk, sector);
            let faults = &mut rig.disks[disk].faults;
            let sectors = if written { &mut faults.bad_writes } else { &mut faults.dead_reads };
            sectors.extend(first..first + 8);
        }
        for (_, _, block) in bad {
            if written {
                rig = rig.written(block, 0x40 + block as u8);
            }
            assert!(reads(&mut rig, block).is_some());
        }
        rig.until_idle();
        let content = |block: u64| {
            let changed = written && matches!(block, 1 | 6);
            if changed { 0x40 + block as u8 } else { block as u8 + 1 }
        };
        for _ in 0..2 {
            assert_eq!(rig.volume().degraded, 0, "written: {written}");
            for (disk, sector, _) in bad {
                let range = SectorRange::new(at(&rig, disk, sector), 8);
                assert_eq!(rig.volume().members[disk].bad_blocks, [range], "written: {written}");
            }
            for block in 0..12 {
                assert_eq!(reads(&mut rig, block), Some(content(block)), "block {block}");
            }
            rig.stop();
            for (disk, sector, _) in bad {
                assert_eq!(logged(&rig, disk), [SectorRange::new(sector, 8)]);
            }
            rig.recover();
        }
        for (disk, ..) in bad {
            rig.disks[disk].faults = Default::default();
        }
        rig.sync(SyncAction::Check).unwrap();
        rig.until_idle().stop();
        assert_eq!((logged(&rig, 0), logged(&rig, 1)), (vec![], vec![]));
        assert!(rig.scrub_clean() > 0);
    }
}

/// A member of a mirror that fails a write of 64 KiB has one bad block, not sixteen.
#[test]
fn a_long_write_that_fails_for_one_sector_costs_a_block() {
    let mut rig = Rig::raid(Level::Raid1, 2, None, chunk_kib(64));
    rig.disks[1].write_through = true;
    let sector = at(&rig, 1, 43);
    rig.disks[1].faults.bad_writes.insert(sector);
    assert_eq!(rig.store(0, 16 * BLOCK), Ok(()));
    rig.until_idle();
    assert_eq!(rig.volume().degraded, 0);
    assert_eq!(rig.volume().members[1].bad_blocks, [SectorRange::new(at(&rig, 1, 40), 8)]);
    rig.fail_disk(0);
    let lost = |rig: &mut Rig, block: u64| rig.read_bytes(block * BLOCK, BLOCK).is_err();
    let lost: Vec<u64> = (0..16).filter(|block| lost(&mut rig, *block)).collect();
    assert_eq!(lost, [5], "the only copy");
}

/// Stops the array and records data sectors of a disk as bad, as the kernel's md does. The content
/// of these sectors is replaced.
pub(super) fn stop_and_record(rig: &mut Rig, disk: usize, sectors: SectorRange) {
    rig.stop();
    let metadata = rig.metadata(disk);
    let mut superblock = metadata.superblock.as_v1().unwrap().clone();
    superblock.feature_map.insert(Features::BADBLOCKS);
    let mut bad = BadBlocks::default();
    bad.insert(sectors);
    let size = rig.disks[disk].whole_size();
    let room = metadata.superblock.badblocks_room(size).expect("there is a log");
    let bytes = bad.encode(4096, &metadata.superblock.badblocks_context(size)).unwrap();
    rig.disks[disk].poke(superblock.super_offset.0, &superblock.encode());
    rig.disks[disk].poke(room.start.0, &bytes);
    let sector = at(rig, disk, sectors.start.0);
    rig.disks[disk].poke(sector, &vec![0x5a; sectors.len.bytes().0 as usize]);
    rig.read_record();
}

/// Bad blocks that the kernel's md recorded are cleared when they are written.
#[test]
fn an_array_with_a_log_of_the_kernels_takes_writes() {
    let mut rig = raid5();
    stop_and_record(&mut rig, 0, SectorRange::new(8, 8));
    let sector = at(&rig, 0, 8);
    rig.start(&assemble::Options::default()).expect("the array is served");
    assert_eq!(rig.volume().members[0].bad_blocks, [SectorRange::new(sector, 8)]);
    assert_eq!(rig.store(BLOCK, BLOCK), Ok(()));
    assert_eq!(rig.volume().members[0].bad_blocks, []);
    rig.stop();
    assert_eq!(logged(&rig, 0), []);
    assert!(rig.scrub_clean() > 0);
}

/// Each member has a sector that cannot be written, each in a different stripe. Writes of all
/// lengths fail no member and lose no data.
#[test]
fn a_sector_on_each_member_that_cannot_be_written_costs_its_block() {
    let levels = [(Level::Raid1, 2), (Level::Raid5, 4), (Level::Raid6, 5), (Level::Raid10, 4)];
    for (level, members) in levels {
        let mut rig = Rig::raid(level, members, None, chunk_kib(16)).with(|options| {
            options.full_stripes = 16;
            options.assume_clean = false;
        });
        for disk in 0..members {
            let sector = at(&rig, disk, 32 * (disk as u64 + 1));
            rig.disks[disk].faults.bad_writes.insert(sector);
        }
        // The resync of a new array writes parity of many stripes at once.
        rig.until_idle();
        assert_eq!(rig.volume().degraded, 0, "{level}");
        let sectors = rig.size() / 512;
        let mut rng = Rng::new(77 + level as u64);
        for number in 0..100 {
            let mut ask = || {
                let first = rng.below(sectors);
                let count = (1 + rng.below(192)).min(sectors - first);
                rig.put(first * 512, count * 512)
            };
            let asked: Vec<_> = (0..8).map(|_| ask()).collect();
            for ticket in asked {
                assert!(rig.wait(ticket).is_ok(), "{level}, write {number}");
            }
            assert_eq!(rig.volume().degraded, 0, "{level}, write {number}");
        }
        rig.until_idle();
        for disk in 0..members {
            let first = at(&rig, disk, 32 * (disk as u64 + 1));
            let bad = &rig.volume().members[disk].bad_blocks;
            let is_here = bad[0].start.0 <= first && first < bad[0].end().0;
            assert_eq!((bad.len(), is_here), (1, true), "{level}: {bad:?}");
        }
        rig.verify();
    }
}
