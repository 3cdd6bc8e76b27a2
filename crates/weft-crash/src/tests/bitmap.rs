//! Tests of the write-intent bitmap: the times at which bits are set and cleared, and the data that
//! is copied because of set bits.

use std::collections::BTreeSet;

use crate::{BLOCK, Logged, Planned, Rig, chunk_kib};
use weft_engine::{Fault, MemberState, SyncAction};
use weft_ondisk::Superblock::V1;
use weft_ondisk::{Bitmap, Features, Level, Role, Super1, Superblock, Version};
use weft_units::{Bytes, Sectors, Slot, Span};

/// Bytes of each member that one bit of the bitmap covers: 32 KiB.
const CHUNK: u64 = 32 << 10;

/// RAID 5 of four with chunks of 16 KiB and 32 chunks of the bitmap, all bits cleared.
fn raid5() -> Rig {
    array(Level::Raid5, 4)
}

fn array(level: Level, members: usize) -> Rig {
    let mut rig = Rig::raid(level, members, None, chunk_kib(16)).with(|options| {
        (options.full_stripes, options.bitmap) = (64, Some(Bytes(CHUNK)));
        options.logged = true;
    });
    assert_eq!(bits(&rig, 0), 32, "a new bitmap has all bits set");
    rig.pass(Span::secs(10));
    assert_eq!((bits(&rig, 0), bits(&rig, members - 1)), (0, 0));
    rig.log.clear();
    rig
}

/// Byte offset in the array at which chunk `number` of the bitmap begins.
fn chunk(rig: &Rig, number: u64) -> u64 {
    number * CHUNK * rig.array.layout.parity().map_or(1, |it| u64::from(it.data_members()))
}

/// Bitmap of a disk, as a power cut would leave it now.
fn bitmap(rig: &Rig, disk: usize) -> Bitmap {
    *rig.metadata(disk).logs.bitmap.expect("a bitmap").expect("a valid one")
}

/// Number of bits that are set on a disk; all bits count as set if the bitmap is out of date.
fn bits(rig: &Rig, disk: usize) -> u64 {
    let chunk = CHUNK / 512;
    bitmap(rig, disk).dirty_ranges().map(|range| range.len.0 / chunk).sum()
}

fn superblock(rig: &Rig, disk: usize) -> Superblock {
    rig.metadata(disk).superblock
}

/// Number of stripes that the last sync handled, and number of members that are missing after it.
fn synced(rig: &Rig) -> (u64, usize) {
    (rig.volume().sync_stripes, rig.volume().degraded)
}

/// Number of stripes of 4 KiB in a chunk of the bitmap.
const STRIPES: u64 = CHUNK / BLOCK;

#[test]
fn statement_31_bits_are_durable_before_data_and_are_cleared_late() {
    let mut rig = raid5();
    let at = chunk(&rig, 7);
    rig.store(at, BLOCK).unwrap();
    assert_eq!([0, 1, 2, 3].map(|disk| bits(&rig, disk)), [1; 4]);
    let ranges: Vec<u64> = bitmap(&rig, 2).dirty_ranges().map(|range| range.start.0).collect();
    assert_eq!(ranges, [7 * CHUNK / 512]);
    // The page with the bitmap's header is written first, then superblocks, then data, one after
    // the other.
    let writes = rig.log.iter().filter_map(|logged| match logged {
        Logged::Write { at, metadata, .. } => Some((*metadata, *at)),
        _ => None,
    });
    let writes: Vec<(bool, u64)> = writes.collect();
    assert_eq!(writes[..4], [(true, 16); 4]);
    assert_eq!(writes[4..8], [(true, 8); 4]);
    assert!(writes[8..].iter().all(|(metadata, _)| !metadata), "{writes:?}");
    // The bit is set already, so no metadata is written.
    rig.log.clear();
    rig.store(at + BLOCK, BLOCK).unwrap();
    let metadata = |logged: &&Logged| matches!(logged, Logged::Write { metadata: true, .. });
    assert_eq!(rig.log.iter().filter(metadata).count(), 0);
    // Two runs of the daemon, a second each; the first may come at once.
    rig.pass(Span::millis(900));
    assert_eq!(bits(&rig, 0), 1);
    rig.pass(Span::secs(5));
    assert_eq!([0, 1, 2, 3].map(|disk| bits(&rig, disk)), [0; 4]);
    rig.stop();
    assert_eq!(bitmap(&rig, 0).header.events, superblock(&rig, 0).events());
}

/// The next write of a bitmap page sets the bits of all writes that wait for it.
#[test]
fn one_page_write_serves_all_that_wait() {
    let mut rig = raid5();
    rig.store(0, BLOCK).unwrap();
    rig.log.clear();
    for number in 8..24 {
        let at = chunk(&rig, number);
        rig.put(at, BLOCK);
    }
    rig.finish();
    let pages = rig.log.iter().filter(|logged| matches!(logged, Logged::Write { at: 16, .. }));
    // Each member gets one page write for the first write, and one for all writes that arrived
    // during it.
    assert_eq!(pages.count(), 2 * 4);
    assert_eq!(bits(&rig, 0), 17);
}

#[test]
fn resync_after_a_crash_goes_over_set_bits() {
    for level in [Level::Raid5, Level::Raid6] {
        let mut rig = array(level, 5);
        for number in [3, 4, 20] {
            rig.store(chunk(&rig, number), BLOCK).unwrap();
        }
        rig.power_cut().recover();
        rig.until_idle();
        assert_eq!(synced(&rig), (3 * STRIPES, 0), "{level}");
        rig.verify();
        // Bits are cleared behind the resync.
        rig.pass(Span::secs(10));
        assert_eq!(bits(&rig, 0), 0, "{level}");
        rig.stop().recover();
        rig.until_idle();
        assert_eq!(synced(&rig), (0, 0), "{level}: nothing is left to do");
        rig.scrub_clean();
    }
}

/// A bitmap that is older than the superblocks is ignored, and the whole array is resynced.
#[test]
fn a_bitmap_of_another_time_counts_as_set() {
    let mut rig = raid5();
    rig.store(0, BLOCK).unwrap();
    rig.power_cut();
    for disk in 0..4 {
        let mut header = bitmap(&rig, disk).header;
        header.events -= 1;
        rig.disks[disk].poke(16, &header.encode().repeat(2)[..512]);
    }
    rig.recover().until_idle();
    assert_eq!(synced(&rig), (32 * STRIPES, 0));
    rig.pass(Span::secs(10));
    assert_eq!(bits(&rig, 3), 0, "the bitmap is current again");
}

/// Fails and removes a disk, and then writes a block in each of the bitmap chunks `writes`.
fn away(rig: &mut Rig, disk: usize, writes: &[u64]) {
    rig.fail_disk(disk).remove(disk);
    for number in writes {
        rig.store(chunk(rig, *number), BLOCK).unwrap();
    }
}

fn come_back(rig: &mut Rig, disk: usize) -> Result<(), weft_engine::ReplyError> {
    let superblock = superblock(rig, disk);
    let ticket = rig.re_add(disk, superblock);
    let answer = rig.wait(ticket).map(|_| ());
    if answer.is_ok() {
        rig.until_idle();
    }
    answer
}

#[test]
fn a_member_that_comes_back_is_copied_by_its_bits() {
    for version in [Version::V1_2, Version::V0_90] {
        let mut rig = raid5().with(|options| options.version = version);
        rig.pass(Span::secs(10));
        rig.store(chunk(&rig, 1), BLOCK).unwrap();
        rig.pass(Span::secs(10));
        away(&mut rig, 2, &[3, 9]);
        // Bits are kept while a member is away, however long.
        rig.pass(Span::secs(100));
        assert_eq!(bits(&rig, 0), 2, "{version}");
        come_back(&mut rig, 2).unwrap();
        assert_eq!(synced(&rig), (2 * STRIPES, 0), "{version}");
        rig.verify();
        rig.scrub_clean();
        rig.pass(Span::secs(10));
        assert_eq!([0, 1, 2, 3].map(|disk| bits(&rig, disk)), [0; 4], "{version}");
    }
}

/// Adds a disk that left, with its old superblock, and asserts that all of it is rebuilt.
fn is_rebuilt_as_a_whole(rig: &mut Rig, disk: usize) {
    let old = Box::new(superblock(rig, disk));
    let ticket = crate::World::add(rig, disk, Some(old));
    rig.wait(ticket).unwrap();
    rig.until_idle();
    assert_eq!(synced(rig), (32 * STRIPES, 0));
    rig.verify();
    rig.scrub_clean();
}

/// Bits were cleared after the member had left, so a re-add is refused and the member is copied as
/// a whole.
#[test]
fn a_member_that_left_before_bits_were_cleared_is_copied_as_a_whole() {
    let mut rig = raid5();
    away(&mut rig, 2, &[3]);
    rig.add();
    rig.until_idle();
    rig.store(chunk(&rig, 4), BLOCK).unwrap();
    rig.pass(Span::secs(10));
    assert_eq!(bits(&rig, 0), 0);
    rig.fail_disk(4).remove(4);
    let said = come_back(&mut rig, 2).unwrap_err().to_string();
    assert!(said.contains("events") && said.contains("weft add"), "{said}");
    is_rebuilt_as_a_whole(&mut rig, 2);
}

/// Each refusal of a re-add has its reason in the message. Each superblock differs only in one
/// field from the superblock that is accepted at the end of the test.
#[test]
fn a_superblock_that_does_not_fit_is_refused_by_its_reason() {
    type Change = fn(&mut Super1);
    let cases: [(&str, Change); 7] = [
        // The superblock records the other members as failed: the member was used on its own, and
        // the event counts are close.
        ("knows none of the members that are here", |sb| {
            [0, 2, 3].into_iter().for_each(|it| sb.roles[it] = Role::Faulty.code());
        }),
        ("it was used since", |sb| sb.events += 1000),
        ("it was being rebuilt when it left", |sb| {
            sb.feature_map.insert(Features::RECOVERY);
            sb.recovery_offset_raw = 8;
        }),
        ("its superblock gives it no slot", |sb| sb.roles[1] = Role::Spare.code()),
        ("slot 2 is not empty", |sb| sb.roles[1] = Role::Active(Slot(2)).code()),
        ("superblock set_uuid: found ", |sb| sb.set_uuid.0[0] ^= 1),
        ("superblock chunksize: found ", |sb| sb.chunk = Sectors(64)),
    ];
    let mut rig = raid5();
    away(&mut rig, 1, &[3]);
    let old = superblock(&rig, 1);
    let V1(good) = &old else { panic!("expected a superblock of version 1.2") };
    for (reason, change) in cases {
        let mut bad = good.clone();
        change(&mut bad);
        let ticket = rig.re_add(1, V1(bad));
        let said = rig.wait(ticket).expect_err(reason).to_string();
        assert!(said.contains(reason) && said.contains("weft add"), "{reason}: {said}");
        assert_eq!(rig.volume().degraded, 1, "{reason}");
    }
    let ticket = rig.re_add(1, old);
    rig.wait(ticket).unwrap();
    rig.until_idle();
    assert_eq!(synced(&rig), (STRIPES, 0));
    rig.verify();
    rig.scrub_clean();

    let mut rig = Rig::raid(Level::Raid5, 4, None, chunk_kib(16));
    rig.fail_disk(1).remove(1);
    let said = come_back(&mut rig, 1).unwrap_err().to_string();
    assert!(said.contains("the array has no bitmap"), "{said}");
}

/// A fresh member leaves in the middle of its rebuild. It cannot be re-added, because the bits do
/// not tell which data it lacks.
#[test]
fn a_member_that_left_while_it_was_being_rebuilt_is_not_taken_back() {
    let mut rig = raid5();
    rig.store(chunk(&rig, 5), BLOCK).unwrap();
    rig.fail_disk(2).remove(2);
    let (disk, _) = rig.add_blank();
    rig.settle();
    let under_way = |rig: &Rig| {
        let others = superblock(rig, 0);
        let known = matches!(others.role(4), Ok(Role::Active(_)));
        known && rig.volume().sync_action == SyncAction::Recover && {
            let own = superblock(rig, disk);
            own.own_role() == others.role(4) && own.features().contains(Features::RECOVERY)
        }
    };
    assert!((0..1500).any(|_| under_way(rig.steps(1))), "{:?}", synced(&rig));
    rig.fail_disk(disk).remove(disk);
    let said = come_back(&mut rig, disk).unwrap_err().to_string();
    assert!(said.contains("it was being rebuilt when it left"), "{said}");
    assert_eq!(rig.volume().degraded, 1);
    is_rebuilt_as_a_whole(&mut rig, disk);
}

/// Two members are rebuilt at once. One is rebuilt by the bits; the other, a fresh one, is copied
/// as a whole.
#[test]
fn a_fresh_member_beside_one_that_comes_back_is_copied_as_a_whole() {
    let mut rig = array(Level::Raid6, 5);
    for number in 0..8 {
        rig.store(chunk(&rig, number), 4 * BLOCK).unwrap();
    }
    rig.pass(Span::secs(10));
    away(&mut rig, 1, &[3]);
    rig.fail_disk(2).remove(2);
    rig.sync(SyncAction::Frozen).unwrap();
    let old = superblock(&rig, 1);
    let ticket = rig.re_add(1, old);
    rig.wait(ticket).unwrap();
    rig.add();
    rig.sync(SyncAction::Recover).unwrap();
    rig.until_idle();
    assert_eq!(synced(&rig), (32 * STRIPES, 0));
    rig.verify();
    rig.scrub_clean();
}

#[test]
fn a_partial_recovery_goes_on_after_a_stop_and_after_a_crash() {
    for crash in [false, true] {
        let mut rig = raid5();
        away(&mut rig, 1, &std::array::from_fn::<u64, 12, _>(|number| 2 * number as u64));
        let old = superblock(&rig, 1);
        rig.re_add(1, old);
        rig.settle();
        let half_done = |rig: &Rig| {
            let volume = rig.volume();
            // The superblocks of the other members record the member.
            superblock(rig, 0).role(1) == superblock(rig, 1).own_role()
                && volume.sync_action == SyncAction::Recover
                && volume.sync_stripes > 4
        };
        assert!((0..500).any(|_| half_done(rig.steps(1))), "{crash}");
        let before = rig.volume().sync_stripes;
        assert!(before < 12 * STRIPES, "{before} stripes are done already");
        if crash {
            // Nothing was written, so the array is clean, and degraded as before.
            rig.kill();
        } else {
            rig.stop();
        }
        assert!(superblock(&rig, 1).features().contains(Features::RECOVERY_BITMAP), "{crash}");
        rig.recover();
        let rebuilding = |rig: &Rig| {
            let members = rig.volume().members;
            members.iter().any(|it| matches!(it.state, MemberState::Rebuilding { .. }))
        };
        assert!(rebuilding(&rig), "{crash}");
        rig.until_idle();
        let (stripes, degraded) = synced(&rig);
        assert!(stripes <= 12 * STRIPES && degraded == 0, "{crash}: {stripes} stripes");
        rig.verify();
        rig.scrub_clean();
    }
}

/// A member that is being recovered receives new writes as well, and has all data afterwards.
#[test]
fn writes_during_a_partial_recovery_reach_the_member() {
    let mut rig = raid5();
    away(&mut rig, 3, &[1, 28]);
    let old = superblock(&rig, 3);
    rig.re_add(3, old);
    for number in [1, 8, 28, 31] {
        rig.put(chunk(&rig, number) + BLOCK, BLOCK);
        rig.steps(7);
    }
    rig.until_idle();
    assert_eq!(rig.volume().degraded, 0);
    rig.verify();
    rig.scrub_clean();
    rig.power_cut().recover().until_idle();
    rig.verify();
}

/// One of two survivors has lost its bits. A returning member gets all data that it lacks, by the
/// bits of the other survivor.
#[test]
fn bits_that_one_survivor_lost_are_those_of_the_other() {
    for loses in [0, 2] {
        let mut rig = array(Level::Raid1, 3);
        away(&mut rig, 1, &[1, 28]);
        let old = superblock(&rig, 1);
        rig.stop();
        let size = rig.disks[loses].whole_size();
        let at = superblock(&rig, loses).bitmap_room(size).unwrap().unwrap().start;
        let mut page = rig.disks[loses].peek(at.0, 1);
        assert!(page[256..].iter().any(|byte| *byte != 0), "the disk has bits to lose");
        page[256..].fill(0);
        rig.disks[loses].poke(at.0, &page);
        assert_eq!(bits(&rig, loses), 0);
        rig.recover();
        rig.re_add(1, old);
        rig.until_idle();
        assert_eq!(rig.volume().degraded, 0, "{loses}");
        rig.verify();
        assert!(rig.scrub_clean() > 0, "{loses}");
    }
}

/// A write of a bitmap page that fails is repeated once; then its member fails.
#[test]
fn a_page_that_fails_is_written_again() {
    for (times, degraded) in [(1, 0), (2, 1)] {
        let mut rig = raid5();
        let next = rig.disks[2].operations();
        for time in 0..times {
            rig.disks[2].faults.schedule.insert(next + time, Planned::Once(Fault::Io));
        }
        rig.store(chunk(&rig, 5), BLOCK).unwrap();
        rig.pass(Span::secs(1));
        assert_eq!(rig.volume().degraded, degraded, "{times}");
        assert_eq!(bits(&rig, 0), 1, "{times}");
    }
}

/// A write of a bitmap page that finds no space is repeated a second later, and no member fails.
#[test]
fn a_page_without_space_waits_for_it() {
    let mut rig = raid5();
    let next = rig.disks[2].operations();
    rig.disks[2].faults.schedule.insert(next, Planned::Once(Fault::NoSpace));
    assert!(rig.store(chunk(&rig, 5), BLOCK).is_err());
    rig.pass(Span::secs(3));
    rig.store(chunk(&rig, 5), BLOCK).unwrap();
    assert_eq!((rig.volume().degraded, bits(&rig, 2)), (0, 1));
}

/// A new member gets the bitmap before a superblock gives it a slot.
#[test]
fn a_new_member_is_given_the_bitmap() {
    let mut rig = raid5();
    away(&mut rig, 1, &[3]);
    let new = rig.add();
    rig.until_idle();
    assert_eq!(rig.volume().degraded, 0);
    assert!(!bitmap(&rig, new).is_stale());
    rig.pass(Span::secs(10));
    assert_eq!((bits(&rig, new), bits(&rig, 0)), (0, 0));
    rig.power_cut().recover().until_idle();
    rig.verify();
}

/// Sectors that a returning member lacks according to the layout: its data sectors in chunks of the
/// bitmap that were written while it was away.
fn lacks(rig: &Rig, slot: u16, numbers: &[u64]) -> BTreeSet<u64> {
    let sectors = numbers.iter().flat_map(|number| {
        let first = chunk(rig, *number) / 512;
        first..first + CHUNK / 512
    });
    let places = sectors.flat_map(|sector| rig.array.column(sector).places);
    let sectors = places.filter(|place| place.slot.0 == slot).map(|place| place.sector);
    // RAID 1 is synced in units of 64 KiB, RAID 10 in chunks.
    let unit = if rig.array.layout.level() == Level::Raid1 { 128 } else { 1 };
    sectors.flat_map(|sector| sector / unit * unit..(sector / unit + 1) * unit).collect()
}

/// On mirrors of every layout, exactly the data sectors of set bits are written to a returning
/// member. After a crash, only such sectors are written to any member.
#[test]
fn mirrors_copy_what_bits_name_and_no_more() {
    let layouts = [(4, 0x102), (5, 0x102), (4, 0x201), (3, 0x201), (4, 0x10201), (3, 0x10201)];
    let raid10 = layouts.map(|(members, layout)| (Level::Raid10, members, Some(layout)));
    let raid1 = [2, 3].map(|members| (Level::Raid1, members, None));
    for (level, members, layout) in raid1.into_iter().chain(raid10) {
        let name = format!("{level} {members} {layout:x?}");
        let mut rig = Rig::raid(level, members, layout, chunk_kib(16)).with(|options| {
            (options.full_stripes, options.bitmap) = (64, Some(Bytes(CHUNK)));
            options.logged = true;
        });
        rig.pass(Span::secs(10));
        let numbers = [3, 4, 9, 17];
        away(&mut rig, 1, &numbers);
        rig.log.clear();
        come_back(&mut rig, 1).unwrap();
        let lacked = lacks(&rig, 1, &numbers);
        assert!(!lacked.is_empty(), "{name}");
        assert_eq!(written_to(&rig, 1), lacked, "{name}: copied by the re-add");
        assert_eq!(rig.volume().degraded, 0, "{name}");
        rig.verify();
        rig.scrub_clean();
        rig.pass(Span::secs(10));
        assert_eq!(bits(&rig, 1), 0, "{name}");

        for number in numbers {
            rig.store(chunk(&rig, number), BLOCK).unwrap();
        }
        rig.power_cut();
        rig.log.clear();
        rig.recover().until_idle();
        for (disk, slot) in (0..members).zip(0u16..) {
            let may = lacks(&rig, slot, &numbers);
            let written = written_to(&rig, disk);
            assert!(written.is_subset(&may), "{name}, disk {disk}: written by the resync");
        }
        rig.verify();
        rig.scrub_clean();
    }
}

/// Data sectors that were written to a disk.
fn written_to(rig: &Rig, disk: usize) -> BTreeSet<u64> {
    let first = rig.array.data_offset[disk].0;
    let runs = rig.log.iter().filter_map(|logged| match *logged {
        Logged::Write { disk: to, at, count, metadata: false, .. } if to == disk => {
            Some(at - first..at - first + count)
        }
        _ => None,
    });
    runs.flatten().collect()
}

/// Bits do not survive a stop, as with md.
#[test]
fn a_stop_clears_bits() {
    let mut rig = raid5();
    for number in 0..8 {
        rig.store(chunk(&rig, number), BLOCK).unwrap();
    }
    rig.stop();
    assert_eq!([0, 1, 2, 3].map(|disk| bits(&rig, disk)), [0; 4]);
    rig.recover();
    rig.store(0, BLOCK).unwrap();
    away(&mut rig, 0, &[4]);
    rig.stop();
    assert_eq!(bits(&rig, 1), 2, "bits of a degraded array stay");
    rig.recover();
    assert_eq!(rig.volume().bitmap.map(|bitmap| bitmap.dirty), Some(2));
}
