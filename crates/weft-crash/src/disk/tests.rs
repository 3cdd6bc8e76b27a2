//! Tests of a simulated member: durability, atomicity, cuts, faults.

use super::*;
use crate::crash::CutMode;

fn disk() -> Disk {
    Disk::new(Sectors(1024), 512)
}

fn write(disk: &mut Disk, token: u64, at: u64, byte: u8, count: usize, fua: bool) {
    let bytes = vec![byte; disk.sector_bytes(at) * count];
    let count = count as u64;
    disk.submit(Token(token), DiskOp::Write { at, count, bytes, fua, preflush: false });
}

#[test]
fn a_write_is_visible_when_complete_and_durable_when_flushed() {
    let mut disk = disk();
    write(&mut disk, 1, 8, 1, 2, false);
    assert_eq!(disk.peek(8, 1), [0; 512]);
    disk.complete(Token(1)).unwrap();
    assert_eq!(disk.peek(8, 1), [1; 512]);
    assert_eq!(disk.peek_stable(8, 1), [0; 512]);
    disk.submit(Token(2), DiskOp::Flush);
    write(&mut disk, 3, 9, 3, 1, false);
    disk.complete(Token(3)).unwrap();
    disk.complete(Token(2)).unwrap();
    assert_eq!(disk.peek_stable(8, 1), [1; 512]);
    assert_eq!(disk.peek_stable(9, 1), [1; 512], "the flush began before the write completed");
    assert_eq!(disk.peek(9, 1), [3; 512]);
    write(&mut disk, 4, 9, 4, 1, true);
    disk.complete(Token(4)).unwrap();
    assert_eq!(disk.peek_stable(9, 1), [4; 512]);
    assert!(disk.volatile().is_empty());
}

#[test]
fn a_cut_keeps_any_subset_of_what_is_not_durable_and_all_of_what_is() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..400 {
        let mut disk = disk();
        write(&mut disk, 1, 0, 1, 1, true);
        disk.complete(Token(1)).unwrap();
        write(&mut disk, 2, 1, 2, 2, false);
        disk.complete(Token(2)).unwrap();
        write(&mut disk, 3, 3, 3, 1, false);
        let report = disk.power_cut(CutMode::Subset, &mut Rng::new(seed));
        assert_eq!(report.kept.len() + report.lost.len(), 3);
        assert_eq!(disk.peek(0, 1), [1; 512]);
        seen.insert([1, 2, 3].map(|sector| disk.peek(sector, 1)[0]));
    }
    assert_eq!(seen.len(), 8, "{seen:?}");
}

#[test]
fn a_cut_loses_what_reads_otherwise_afterwards_and_no_rewrite_of_what_lay_there() {
    let mut disk = disk();
    write(&mut disk, 1, 0, 1, 2, true);
    disk.complete(Token(1)).unwrap();
    // The same content again, other content, and a write that never completes.
    for (token, at, byte) in [(2, 0, 1), (3, 1, 2), (4, 2, 3)] {
        write(&mut disk, token, at, byte, 1, false);
    }
    disk.complete(Token(2)).unwrap();
    disk.complete(Token(3)).unwrap();
    let before = disk.clone();
    let report = disk.power_cut(CutMode::Nothing, &mut Rng::new(1));
    assert_eq!(report.lost, [0, 1, 2].into());
    assert_eq!(disk.lost_since(&before, &report).collect::<Vec<_>>(), [1]);
    let settled = crate::crash::CutReport { settled: [1].into(), ..report };
    assert_eq!(disk.lost_since(&before, &settled).count(), 0, "a version was durable");
}

#[test]
fn an_ordered_cut_keeps_a_beginning() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..200 {
        let mut disk = disk();
        for (token, at) in [(1, 5), (2, 4), (3, 3)] {
            write(&mut disk, token, at, token as u8, 1, false);
            disk.complete(Token(token)).unwrap();
        }
        disk.power_cut(CutMode::Ordered, &mut Rng::new(seed));
        seen.insert([5, 4, 3].map(|sector| disk.peek(sector, 1)[0]));
    }
    assert!(seen.into_iter().eq([[0, 0, 0], [1, 0, 0], [1, 2, 0], [1, 2, 3]]));
}

#[test]
fn metadata_on_the_media_means_that_everything_before_it_is_there_too() {
    let mut both = 0;
    for seed in 0..200 {
        let mut disk = disk();
        write(&mut disk, 1, 100, 1, 4, false);
        disk.complete(Token(1)).unwrap();
        let bytes = vec![9; 512];
        let (at, count) = (8, 1);
        disk.submit(Token(2), DiskOp::Write { at, count, bytes, fua: true, preflush: true });
        let report = disk.power_cut(CutMode::Subset, &mut Rng::new(seed));
        assert!(report.metadata_in_flight);
        if disk.peek(8, 1)[0] == 9 {
            assert_eq!(disk.peek(100, 4), [1; 2048]);
            both += 1;
        }
    }
    assert!(both > 10, "{both}");
}

#[test]
fn a_logical_block_is_atomic() {
    for seed in 0..100 {
        let mut disk = Disk::new(Sectors(1024), 4096);
        write(&mut disk, 1, 16, 7, 16, false);
        disk.complete(Token(1)).unwrap();
        disk.power_cut(CutMode::Subset, &mut Rng::new(seed));
        for at in [16, 24] {
            let block = disk.peek(at, 8);
            assert!(block.iter().all(|byte| *byte == block[0]));
        }
    }
}

#[test]
fn faults_do_what_they_say() {
    let mut disk = disk();
    disk.faults.bad_reads.insert(9);
    let read = |disk: &mut Disk, token| {
        disk.submit(Token(token), DiskOp::Read { at: 8, count: 2 });
        disk.complete(Token(token))
    };
    assert_eq!(read(&mut disk, 1), Err(Fault::Io));
    write(&mut disk, 2, 9, 1, 1, false);
    disk.complete(Token(2)).unwrap();
    assert!(read(&mut disk, 3).is_ok(), "a written sector can be read again");
    disk.faults.bad_writes.insert(9);
    write(&mut disk, 4, 8, 5, 2, false);
    assert_eq!(disk.complete(Token(4)), Err(Fault::Io));
    assert_eq!((disk.peek(8, 1)[0], disk.peek(9, 1)[0]), (5, 1));
    disk.faults.no_space = true;
    write(&mut disk, 5, 20, 5, 1, false);
    assert_eq!(disk.complete(Token(5)), Err(Fault::NoSpace));
    disk.faults.flush_error = true;
    disk.submit(Token(6), DiskOp::Flush);
    assert_eq!(disk.complete(Token(6)), Err(Fault::Io));
    disk.faults.schedule.insert(disk.operations() + 1, Planned::Gone);
    assert!(read(&mut disk, 7).is_ok());
    assert_eq!(read(&mut disk, 8), Err(Fault::Gone));
    let mut twin = Disk { read_only: true, ..self::disk() };
    write(&mut twin, 9, 8, 1, 1, false);
    assert_eq!(twin.complete(Token(9)), Err(Fault::Io));
    assert_eq!(twin.stats.forbidden_writes, 1);
}

#[test]
fn a_write_that_fails_leaves_nothing_a_beginning_any_part_or_all() {
    let left = |tears: bool, how: fn(&mut Disk)| {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let mut disk = disk().failing_by_chance(seed);
            disk.faults.tears = tears;
            write(&mut disk, 1, 8, 1, 3, false);
            how(&mut disk);
            seen.insert([8, 9, 10].map(|sector| disk.peek(sector, 1)[0]));
        }
        seen.len()
    };
    let fails = |disk: &mut Disk| {
        disk.faults.schedule.insert(0, Planned::Once(Fault::Io));
        assert_eq!(disk.complete(Token(1)), Err(Fault::Io));
        assert_eq!((disk.stats.io_errors.writes, disk.stats.io_errors.flushes), (1, 0));
    };
    let given_up = |disk: &mut Disk| disk.abort(Token(1));
    let full = |disk: &mut Disk| {
        disk.faults.no_space = true;
        assert_eq!(disk.complete(Token(1)), Err(Fault::NoSpace));
    };
    for how in [fails, given_up, full] {
        assert_eq!((left(true, how), left(false, how)), (8, 1));
    }
    // A failed write stores nothing in a sector that cannot be written.
    let bad = |disk: &mut Disk| {
        disk.faults.bad_writes.insert(9);
        assert_eq!(disk.complete(Token(1)), Err(Fault::Io));
    };
    assert_eq!((left(true, bad), left(false, bad)), (4, 1));
}

#[test]
fn a_member_that_became_shorter_is_gone_for_requests_behind_its_end() {
    let mut disk = disk();
    disk.faults.ends_at = Some(10);
    assert_eq!(disk.size(), Sectors(10));
    for (token, at, result) in [(1, 8, Ok(())), (2, 9, Err(Fault::Gone))] {
        write(&mut disk, token, at, 1, 2, false);
        assert_eq!(disk.complete(Token(token)).map(|_| ()), result);
        disk.submit(Token(token), DiskOp::Read { at, count: 2 });
        assert_eq!(disk.complete(Token(token)).map(|_| ()), result);
        assert_eq!(disk.read_whole(at, 2).map(|_| ()), result);
    }
}

#[test]
fn a_cut_tears_a_superblock_between_sectors_or_inside_of_one() {
    let torn = |mode, count: u64, whole_superblocks| {
        let torn = |seed| {
            let mut disk = Disk { whole_superblocks, ..disk() };
            let bytes = vec![9; 512 * count as usize];
            let op = DiskOp::Write { at: 8, count, bytes, fua: true, preflush: true };
            disk.submit(Token(2), op);
            let report = disk.power_cut(mode, &mut Rng::new(seed));
            let found: Vec<u8> = disk.peek(8, count);
            let mixed = found.contains(&0) && found.contains(&9);
            assert_eq!(report.metadata_torn, mixed);
            mixed
        };
        (0..200).filter(|seed| torn(*seed)).count()
    };
    assert_eq!(torn(CutMode::Subset, 1, false), 0, "a sector is whole or not");
    assert!(torn(CutMode::Subset, 8, false) > 50);
    assert!(torn(CutMode::Torn, 1, false) > 20);
    assert_eq!(torn(CutMode::Nothing, 8, false) + torn(CutMode::Everything, 8, false), 0);
    for mode in [CutMode::Ordered, CutMode::Subset, CutMode::Torn] {
        assert_eq!(torn(mode, 8, true), 0, "{mode:?}");
    }
}

/// Only the superblock is kept or lost as a whole. Data on the same disk is not.
#[test]
fn a_cut_keeps_or_loses_a_superblock_that_does_not_tear() {
    for mode in [CutMode::Ordered, CutMode::Subset, CutMode::Torn] {
        let (mut kept, mut lost, mut torn_data) = (0, 0, 0);
        for seed in 0..200 {
            let mut disk = Disk { whole_superblocks: true, ..disk() };
            let op =
                DiskOp::Write { at: 8, count: 8, bytes: vec![9; 4096], fua: true, preflush: true };
            disk.submit(Token(2), op);
            write(&mut disk, 3, 32, 7, 8, false);
            let report = disk.power_cut(mode, &mut Rng::new(seed));
            assert!(report.metadata_in_flight && !report.metadata_torn);
            match disk.peek(8, 8) {
                found if found == [9; 4096] => kept += 1,
                found => lost += u32::from(found == [0; 4096]),
            }
            let data = disk.peek(32, 8);
            torn_data += u32::from(data.contains(&7) && data.contains(&0));
        }
        assert_eq!(kept + lost, 200, "{mode:?}");
        assert!(kept > 20 && lost > 20 && torn_data > 20, "{mode:?} {kept} {lost} {torn_data}");
    }
}

#[test]
fn a_bit_flips_for_good() {
    let mut disk = disk();
    disk.flip_bit(3, 9).unwrap();
    assert_eq!(disk.peek_stable(3, 1)[1], 2);
    for (mode, rots) in
        [(PayloadMode::Tags, Ok(())), (PayloadMode::None, Err(NeedsPayload::BitRot))]
    {
        let mut disk = Disk::new(Sectors(1024), 512).carrying(64..512, mode);
        assert_eq!(disk.flip_bit(64, 9), rots);
        assert_eq!(disk.flip_bit(63, 9), Ok(()), "metadata is there in any case");
    }
}

#[test]
fn a_cut_does_the_same_to_payload_however_much_of_it_is_there() {
    let cut = |mode, seed| {
        let mut disk = Disk::new(Sectors(1024), 512).carrying(64..512, mode);
        write(&mut disk, 1, 64, 1, 9, true);
        disk.complete(Token(1)).unwrap();
        write(&mut disk, 2, 66, 2, 4, false);
        disk.complete(Token(2)).unwrap();
        write(&mut disk, 3, 68, 3, 4, false);
        let report = disk.power_cut(CutMode::Subset, &mut Rng::new(seed));
        let found: Vec<u8> = (64..73).filter_map(|at| disk.peek(at, 1).first().copied()).collect();
        (report, found)
    };
    for seed in 0..50 {
        let (report, found) = cut(PayloadMode::Bytes, seed);
        assert_eq!(cut(PayloadMode::Tags, seed), (report.clone(), found));
        assert_eq!(cut(PayloadMode::None, seed), (report, Vec::new()));
    }
}

#[test]
fn a_cut_can_change_content_only_where_the_cache_differs_from_what_is_durable() {
    let mut disk = disk();
    write(&mut disk, 1, 3, 1, 1, false);
    disk.complete(Token(1)).unwrap();
    assert!(disk.can_lose(0, 8) && !disk.can_lose(0, 3) && !disk.can_lose(4, 4));
    disk.submit(Token(2), DiskOp::Flush);
    disk.complete(Token(2)).unwrap();
    assert!(!disk.can_lose(0, 8));
    write(&mut disk, 3, 3, 1, 1, false);
    disk.complete(Token(3)).unwrap();
    assert!(disk.volatile().touches(3, 1) && !disk.can_lose(3, 1), "the same content again");
    write(&mut disk, 4, 3, 2, 1, false);
    disk.complete(Token(4)).unwrap();
    assert!(disk.can_lose(3, 1));
}
