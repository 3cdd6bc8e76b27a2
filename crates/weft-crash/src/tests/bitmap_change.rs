//! Tests of the write-intent bitmap of a running array: added and removed under writes, with
//! crashes and failures between the steps.

use crate::{BLOCK, CutMode, Planned, Rig, chunk_kib};
use weft_engine::{Fault, ReplyError, SyncAction, Verb};
use weft_ondisk::{Bitmap, Level, NewBitmap, Superblock, Version};
use weft_units::{Bytes, Span};

/// Bytes of each member that a bit covers; for mirrors, bytes of the array.
const CHUNK: u64 = 32 << 10;
/// Chunks of the bitmap per member.
const CHUNKS: u64 = 32;

fn rig(level: Level, members: usize, version: Version) -> Rig {
    let chunk = if level == Level::Raid1 { chunk_kib(64) } else { chunk_kib(16) };
    Rig::raid(level, members, None, chunk).with(|options| {
        options.full_stripes = CHUNKS * CHUNK / options.chunk.bytes().0;
        options.version = version;
    })
}

fn raid5() -> Rig {
    rig(Level::Raid5, 4, Version::V1_2)
}

fn internal() -> Verb {
    Verb::SetBitmap(Some(NewBitmap { chunk: Some(Bytes(CHUNK)), daemon_sleep: 1 }))
}

const NONE: Verb = Verb::SetBitmap(None);

/// Bitmap that a member's superblock names, as a power cut would leave it now; `None` if the
/// superblock names none.
fn bitmap(rig: &Rig, disk: usize) -> Option<Bitmap> {
    rig.metadata(disk).logs.bitmap.map(|found| *found.expect("a valid bitmap"))
}

/// Number of bits set on each member; `None` for a member that names no bitmap.
fn bits(rig: &Rig, members: usize) -> Vec<Option<u64>> {
    let set = |bitmap: Bitmap| bitmap.dirty_ranges().map(|range| range.len.0 * 512 / CHUNK).sum();
    (0..members).map(|disk| bitmap(rig, disk).map(set)).collect()
}

/// First byte of the array in chunk `number` of the bitmap.
fn chunk(rig: &Rig, number: u64) -> u64 {
    number * CHUNK * rig.array.layout.parity().map_or(1, |it| u64::from(it.data_members()))
}

/// Issues a write to each of six chunks of the bitmap, from chunk `first` on, which no other
/// request writes.
fn put_some(rig: &mut Rig, first: u64) {
    for number in first..first + 6 {
        rig.put(chunk(rig, number) + (number % 4) * BLOCK, BLOCK);
    }
}

fn is_busy(result: &Result<(), ReplyError>) -> bool {
    matches!(result, Err(ReplyError::Busy(_)))
}

/// A bitmap that is added to a clean and whole array has no bit set: otherwise a member that leaves
/// soon afterwards would need a whole rebuild.
#[test]
fn a_bitmap_of_an_array_that_is_whole_and_clean_has_no_bit_set() {
    for (level, members) in [(Level::Raid5, 4), (Level::Raid1, 2), (Level::Raid10, 4)] {
        let mut rig = rig(level, members, Version::V1_2);
        rig.store(chunk(&rig, 3), BLOCK).unwrap();
        rig.pass(Span::secs(10));
        rig.command(internal()).unwrap();
        assert_eq!(bits(&rig, members), vec![Some(0); members], "{level}");
        rig.fail_disk(1);
        rig.store(chunk(&rig, 5), BLOCK).unwrap();
        rig.finish();
        assert_eq!(bits(&rig, 1), [Some(1)], "{level}: written since");
        // A bitmap added without a member has all bits set.
        rig.command(NONE).unwrap();
        rig.pass(Span::secs(10));
        rig.command(internal()).unwrap();
        assert!(bits(&rig, 1)[0] > Some(1), "{level}");
        rig.verify();
    }
}

#[test]
fn an_array_gets_a_bitmap_while_it_runs_and_loses_it() {
    for (level, members) in
        [(Level::Raid5, 4), (Level::Raid6, 4), (Level::Raid1, 2), (Level::Raid10, 4)]
    {
        for version in [Version::V1_2, Version::V1_1, Version::V1_0, Version::V0_90] {
            let name = format!("{level} {version}");
            let mut rig = rig(level, members, version);
            rig.store(chunk(&rig, 3), BLOCK).unwrap();
            assert_eq!(bits(&rig, members), vec![None; members], "{name}");
            rig.command(internal()).unwrap_or_else(|error| panic!("{name}: {error}"));
            let all = rig.volume().bitmap.expect("the array has a bitmap").chunks;
            assert_eq!(bits(&rig, members), vec![Some(all); members], "{name}: all bits are set");
            // All members are in sync, so bits are cleared.
            rig.pass(Span::secs(10));
            assert_eq!(bits(&rig, members), vec![Some(0); members], "{name}");
            rig.store(chunk(&rig, 5), BLOCK).unwrap();
            assert_eq!(bits(&rig, members), vec![Some(1); members], "{name}");
            rig.power_cut().recover().until_idle();
            let stripes = rig.volume().sync_stripes;
            let unit = match level {
                Level::Raid1 => 64 << 10,
                Level::Raid10 => 16 << 10,
                _ => BLOCK,
            };
            assert!((1..=CHUNK.div_ceil(unit)).contains(&stripes), "{name}: {stripes} resynced");
            rig.verify();
            // The array already has the bitmap, so nothing is written.
            let events = rig.volume().events;
            rig.command(internal()).unwrap();
            assert_eq!(rig.volume().events, events, "{name}");
            rig.command(NONE).unwrap();
            assert_eq!((bits(&rig, members), rig.volume().bitmap), (vec![None; members], None));
            rig.command(NONE).unwrap();
            // Without a bitmap a crash requires a resync of the whole array. A second bitmap works
            // like the first.
            rig.store(chunk(&rig, 7), BLOCK).unwrap();
            rig.power_cut().recover().until_idle();
            assert!(rig.volume().sync_stripes > 2 * stripes, "{name}");
            rig.command(internal()).unwrap();
            rig.stop().recover();
            assert_eq!(bits(&rig, members), vec![Some(0); members], "{name}: a stop clears bits");
            rig.verify();
            rig.scrub_clean();
        }
    }
}

/// The power is cut after every step of a change under writes. No matter which members name a
/// bitmap by then, acknowledged data is there, and redundancy is right after the resync.
#[test]
fn a_crash_between_the_steps_of_a_change() {
    let mut found = [0; 3];
    for (level, members) in [(Level::Raid5, 4), (Level::Raid1, 2), (Level::Raid10, 4)] {
        for (adds, is_quiet) in [(true, false), (true, true), (false, false)] {
            for steps in 0..72 {
                let mut rig = rig(level, members, Version::V1_2);
                rig = rig.with(|options| options.seed = steps as u64);
                if !adds {
                    rig.command(internal()).unwrap();
                    rig.pass(Span::secs(10));
                }
                put_some(&mut rig, 0);
                if is_quiet {
                    rig.pass(Span::secs(10));
                    assert_eq!(rig.volume().array_state, "clean");
                } else {
                    rig.steps(3);
                }
                rig.admin(if adds { internal() } else { NONE });
                rig.steps(steps / 2);
                put_some(&mut rig, 8);
                rig.steps(steps - steps / 2);
                rig.cut(CutMode::Subset);
                let named = bits(&rig, members).iter().filter(|it| it.is_some()).count();
                found[usize::from(named > 0) + usize::from(named == members)] += 1;
                rig.recover().until_idle();
                rig.verify();
                rig.scrub_clean();
                // After the first superblock update of the new engine, either all members name a
                // bitmap or none does.
                rig.store(chunk(&rig, 20), BLOCK).unwrap();
                let has = rig.volume().bitmap.is_some();
                let named = bits(&rig, members);
                assert!(named.iter().all(|it| it.is_some() == has), "{has}: {named:?}");
                rig.power_cut().recover().until_idle();
                rig.verify();
                rig.scrub_clean();
            }
        }
    }
    assert!(found.iter().all(|count| *count > 20), "none, some, all name a bitmap: {found:?}");
}

/// A member that does not answer delays the change until it is failed.
#[test]
fn a_member_that_is_silent_during_a_change() {
    let mut rig = raid5().with(|options| options.knobs.read_around = Span::ZERO);
    rig.store(0, BLOCK).unwrap();
    let next = rig.disks[1].operations();
    rig.disks[1].faults.schedule.insert(next, Planned::Silent);
    let at = (0..4).map(|number| chunk(&rig, 9) + number * (16 << 10)).collect::<Vec<_>>();
    for start in at {
        rig.put(start, BLOCK);
    }
    rig.steps(40);
    let ticket = rig.admin(internal());
    rig.pass(Span::secs(30));
    assert!(!rig.is_answered(ticket));
    assert_eq!(bits(&rig, 1), [None]);
    rig.fail_disk(1);
    rig.wait(ticket).unwrap();
    rig.pass(Span::secs(30));
    assert_eq!(bits(&rig, 1), [Some(CHUNKS)], "bits of a degraded array stay");
    rig.finish();
    rig.verify();
}

/// A member fails at each of its requests for the change.
#[test]
fn a_member_that_fails_during_a_change() {
    let mut failed = 0;
    for adds in [true, false] {
        for operation in 0..8 {
            let mut rig = raid5();
            if !adds {
                rig.command(internal()).unwrap();
                rig.pass(Span::secs(10));
            }
            put_some(&mut rig, 0);
            rig.steps(3);
            let next = rig.disks[2].operations() + operation;
            rig.disks[2].faults.schedule.insert(next, Planned::Gone);
            let ticket = rig.admin(if adds { internal() } else { NONE });
            rig.steps(6);
            put_some(&mut rig, 8);
            rig.wait(ticket).unwrap();
            rig.finish();
            failed += rig.volume().degraded;
            assert_eq!(rig.volume().bitmap.is_some(), adds);
            assert_eq!(bits(&rig, 1)[0].is_some(), adds);
            // The failed member cannot be re-added, because its superblock is older or disagrees
            // with the others about the bitmap.
            let spare = rig.add();
            rig.until_idle();
            assert_eq!((rig.volume().degraded, bitmap(&rig, spare).is_some()), (0, adds));
            rig.pass(Span::secs(10));
            rig.verify();
            rig.scrub_clean();
            rig.power_cut().recover().until_idle();
            rig.verify();
        }
    }
    assert!(failed > 12, "{failed} members failed");
}

/// A page of the bitmap that finds no space is written again later, and no superblock names the
/// bitmap before that.
#[test]
fn a_bitmap_that_finds_no_space_waits_for_it() {
    let mut rig = raid5();
    rig.store(0, BLOCK).unwrap();
    let next = rig.disks[2].operations();
    rig.disks[2].faults.schedule.insert(next, Planned::Once(Fault::NoSpace));
    let ticket = rig.admin(internal());
    rig.pass(Span::millis(500));
    assert_eq!(bits(&rig, 4), [None; 4]);
    rig.wait(ticket).unwrap();
    assert_eq!(bits(&rig, 4), [Some(CHUNKS); 4]);
    rig.store(BLOCK, BLOCK).unwrap();
    rig.stop().recover();
    rig.verify();
}

/// A member that was away when the array got its bitmap is copied as a whole; a member that left
/// later is copied by the bits.
#[test]
fn members_that_come_back_to_a_bitmap() {
    let mut rig = raid5();
    rig.store(0, BLOCK).unwrap();
    rig.fail_disk(3).remove(3);
    rig.command(internal()).unwrap();
    let superblock = |rig: &Rig, disk: usize| rig.metadata(disk).superblock;
    let old: Superblock = superblock(&rig, 3);
    let ticket = rig.re_add(3, old);
    let said = rig.wait(ticket).unwrap_err().to_string();
    assert!(said.contains("bitmap: found false, expected true"), "{said}");
    rig.add();
    rig.until_idle();
    rig.pass(Span::secs(10));
    rig.fail_disk(1).remove(1);
    rig.store(chunk(&rig, 4), BLOCK).unwrap();
    let old = superblock(&rig, 1);
    let ticket = rig.re_add(1, old);
    rig.wait(ticket).unwrap();
    rig.until_idle();
    assert_eq!((rig.volume().sync_stripes, rig.volume().degraded), (CHUNK / BLOCK, 0));
    rig.verify();
    rig.scrub_clean();
}

#[test]
fn a_change_that_cannot_be_is_refused_and_writes_nothing() {
    // The change is refused while a sync runs, as in md.
    let mut rig = raid5();
    for verb in [internal(), NONE] {
        rig.admin(Verb::SyncAction(SyncAction::Check));
        rig.settle();
        rig.steps(4);
        let said = rig.command(verb.clone());
        assert!(is_busy(&said), "{verb:?}");
        rig.until_idle();
        rig.command(verb).unwrap();
    }
    // The change is refused while another change is in progress.
    let first = rig.admin(internal());
    assert!(is_busy(&rig.command(NONE)));
    rig.wait(first).unwrap();

    // Without redundancy there is nothing to resync.
    let mut raid0 = rig_of(Level::Raid0);
    let said = raid0.command(internal()).unwrap_err().to_string();
    assert!(said.contains("without redundancy"), "{said}");
    raid0.command(NONE).unwrap();

    // A chunk that is not a power of two, and chunks so small that the bitmap does not fit.
    for (chunk, expected) in [(4096 + 512, "power of two"), (512, "at least")] {
        let new = NewBitmap { chunk: Some(Bytes(chunk)), daemon_sleep: 5 };
        let mut rig = raid5();
        let events = rig.volume().events;
        let said = rig.command(Verb::SetBitmap(Some(new))).unwrap_err().to_string();
        assert!(said.contains(expected) && said.contains("disk"), "{said}");
        assert_eq!((rig.volume().events, rig.volume().bitmap), (events, None));
        assert_eq!(bits(&rig, 4), [None; 4]);
    }
}

fn rig_of(level: Level) -> Rig {
    rig(level, 3, Version::V1_2)
}
