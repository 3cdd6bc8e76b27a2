//! Tests of members without space and of failed superblock writes: no request waits forever.

use crate::{BLOCK, CutMode, Options, Planned, Rig, Ticket, chunk_kib};
use weft_engine::knobs::StripeSize;
use weft_engine::{Fault, MemberState, ReplyError, Verb, assemble};
use weft_ondisk::Level;
use weft_units::Span;

/// A time longer than `no_space_wait`.
const LONG: Span = Span::secs(40);

fn rig(level: Level, members: usize) -> Rig {
    Rig::of(Options::new(level, members, chunk_kib(64))).written(0, 1).written(20, 2).flushed()
}

fn faulty(rig: &Rig) -> usize {
    rig.volume().members.iter().filter(|it| it.state == MemberState::Faulty).count()
}

/// Takes the result of a request, and panics if the request is not answered yet.
fn answer(rig: &mut Rig, ticket: Ticket) -> Result<(), ReplyError> {
    rig.take_answer(ticket).expect("the request was answered").map(|_| ())
}

/// Waits until the superblocks say clean, so that the next write begins with a superblock update.
fn clean(rig: &mut Rig) {
    rig.pass(Span::secs(5));
    assert_eq!(rig.volume().array_state, "clean");
}

/// Stops the array, and starts it again without consent.
fn restart(rig: &mut Rig) {
    rig.stop();
    let plain = assemble::Options { run: true, ..assemble::Options::default() };
    rig.start(&plain).unwrap_or_else(|refused| panic!("{refused}"));
    assert!(rig.verify() > 0);
}

#[test]
fn one_superblock_that_is_not_written_costs_no_member_and_two_do() {
    for level in [Level::Raid5, Level::Raid6] {
        for disk in 0..4 {
            for (times, falls) in [(1, 0), (2, 1)] {
                let mut rig = rig(level, 4);
                clean(&mut rig);
                let next = rig.disks[disk].operations();
                for number in next..next + times {
                    rig.disks[disk].faults.schedule.insert(number, Planned::Once(Fault::Io));
                }
                let write = rig.write(1, 7);
                rig.pass(Span::millis(100));
                assert_eq!(answer(&mut rig, write), Ok(()));
                assert_eq!(faulty(&rig), falls, "{level}: disk {disk}, {times} times");
                let mut rig = rig.flushed();
                rig.power_cut().recover().verify();
                assert!(rig.read(1).is_all(7));
            }
        }
    }
}

// One superblock error on each of two members broke RAID 5.
#[test]
fn a_passing_error_of_every_superblock_costs_nothing() {
    let mut rig = rig(Level::Raid5, 4);
    clean(&mut rig);
    for disk in 0..4 {
        let next = rig.disks[disk].operations();
        rig.disks[disk].faults.schedule.insert(next, Planned::Once(Fault::Io));
    }
    let write = rig.write(1, 7);
    rig.pass(Span::millis(100));
    assert_eq!(answer(&mut rig, write), Ok(()));
    assert_eq!(faulty(&rig), 0);
    restart(&mut rig);
}

// The first write to a clean array was never answered if a superblock found no space, and the
// status did not show the reason.
#[test]
fn a_superblock_without_space_is_told_and_its_member_is_given_up() {
    for level in [Level::Raid5, Level::Raid6] {
        let mut rig = rig(level, 4);
        clean(&mut rig);
        rig.disks[1].faults.no_space = true;
        let write = rig.write(1, 7);
        rig.pass(Span::millis(100));
        assert_eq!(answer(&mut rig, write), Err(ReplyError::NoSpace));
        assert!(rig.volume().no_space);
        rig.pass(Span::secs(20));
        let write = rig.write(1, 8);
        rig.pass(Span::secs(2));
        assert_eq!(answer(&mut rig, write), Err(ReplyError::NoSpace));
        assert_eq!((faulty(&rig), rig.volume().no_space), (0, true));
        rig.pass(LONG);
        assert_eq!((faulty(&rig), rig.volume().no_space), (1, false));
        let write = rig.write(1, 9);
        rig.pass(Span::secs(1));
        assert_eq!(answer(&mut rig, write), Ok(()));
        restart(&mut rig);
        assert!(rig.read(1).is_all(9));
    }
}

#[test]
fn a_superblock_that_finds_space_in_time_costs_nothing() {
    let mut rig = rig(Level::Raid5, 4);
    clean(&mut rig);
    rig.disks[1].faults.no_space = true;
    let write = rig.write(1, 7);
    rig.pass(Span::secs(10));
    assert_eq!(answer(&mut rig, write), Err(ReplyError::NoSpace));
    rig.disks[1].faults.no_space = false;
    rig.pass(LONG);
    assert_eq!((faulty(&rig), rig.volume().no_space), (0, false));
    let write = rig.write(1, 8);
    rig.pass(Span::secs(1));
    assert_eq!(answer(&mut rig, write), Ok(()));
    restart(&mut rig);
}

#[test]
fn a_level_goes_on_without_its_full_members_and_starts_again_without_them() {
    for (level, full, gone) in [
        (Level::Raid5, vec![0], 1),
        (Level::Raid5, vec![3], 1),
        (Level::Raid6, vec![0], 1),
        (Level::Raid6, vec![0, 4], 2),
        // If more members are full than the array can lose, no member is failed and all requests
        // wait.
        (Level::Raid5, vec![0, 4], 0),
        (Level::Raid6, vec![0, 3, 4], 0),
    ] {
        let mut rig = rig(level, 5);
        for disk in &full {
            rig.disks[*disk].faults.no_space = true;
        }
        // A full stripe has a chunk on every member.
        let full_stripe = 64 << 10 << 2;
        let write = rig.put(0, full_stripe);
        rig.pass(Span::millis(100));
        assert_eq!(answer(&mut rig, write), Err(ReplyError::NoSpace), "{level} {full:?}");
        assert!(rig.volume().no_space);
        rig.pass(LONG);
        assert_eq!(faulty(&rig), gone, "{level} {full:?}");
        assert_eq!(rig.volume().no_space, gone == 0, "{level} {full:?}");
        if gone == 0 {
            for disk in &full {
                rig.disks[*disk].faults.no_space = false;
            }
            rig.pass(Span::secs(3));
        }
        rig.store(0, full_stripe).unwrap_or_else(|error| panic!("{level} {full:?}: {error}"));
        rig.store(full_stripe, full_stripe).unwrap();
        rig.pass(Span::secs(3)).until_idle();
        assert_eq!(rig.volume().resync_from, None, "{level} {full:?}");
        restart(&mut rig);
        if gone == 0 {
            rig.scrub_clean();
        }
    }
}

#[test]
fn members_of_one_file_system_run_full_together_and_wait() {
    for waits_for_ever in [false, true] {
        let mut rig = rig(Level::Raid6, 5).with(|o| {
            o.one_space = !waits_for_ever;
            if waits_for_ever {
                o.knobs.no_space_wait = Span::ZERO;
            }
        });
        rig.disks[2].faults.no_space = true;
        let write = rig.put(0, 64 << 10 << 2);
        rig.pass(LONG);
        assert_eq!(answer(&mut rig, write), Err(ReplyError::NoSpace));
        assert_eq!((faulty(&rig), rig.volume().no_space), (0, true));
        rig.disks[2].faults.no_space = false;
        rig.pass(Span::secs(3)).until_idle();
        assert_eq!(rig.volume().resync_from, None);
        restart(&mut rig);
        rig.scrub_clean();
    }
}

// A stop was not answered while a superblock found no space, and neither was a command or a flush.
#[test]
fn with_every_member_full_each_request_is_answered_and_no_member_is_failed() {
    let mut rig = rig(Level::Raid5, 4);
    clean(&mut rig);
    for disk in 0..4 {
        rig.disks[disk].faults.no_space = true;
    }
    for second in 0..100 {
        let write = rig.write(second, 7);
        rig.pass(Span::secs(1));
        assert_eq!(answer(&mut rig, write), Err(ReplyError::NoSpace));
    }
    assert_eq!((faulty(&rig), rig.volume().no_space), (0, true));
    assert!(rig.read(0).is_all(1));
    let flush = rig.flush();
    rig.pass(Span::secs(2));
    assert_eq!(answer(&mut rig, flush), Ok(()));
    let (_, add) = rig.add_blank();
    rig.pass(Span::secs(2));
    assert_eq!(answer(&mut rig, add), Err(ReplyError::NoSpace));
    let stop = rig.admin(Verb::Stop);
    rig.pass(Span::secs(2));
    assert_eq!(answer(&mut rig, stop), Err(ReplyError::NoSpace));
}

// Requests that waited for a failure to be recorded on a member without space waited forever.
#[test]
fn a_failure_that_cannot_be_recorded_for_want_of_space_is_told() {
    let mut rig = rig(Level::Raid5, 4);
    rig.disks[1].faults.no_space = true;
    rig.disks[0].faults.gone = true;
    let write = rig.put(0, BLOCK);
    rig.pass(LONG);
    assert_eq!(answer(&mut rig, write), Err(ReplyError::NoSpace));
    assert_eq!((faulty(&rig), rig.volume().no_space), (1, true));
    rig.disks[1].faults.no_space = false;
    rig.pass(Span::secs(3));
    let write = rig.put(0, BLOCK);
    rig.pass(Span::secs(1));
    assert_eq!(answer(&mut rig, write), Ok(()));
    rig.verify();
}

#[test]
fn a_full_member_that_is_being_rebuilt_is_given_up() {
    let mut rig = rig(Level::Raid5, 4);
    for block in 0..64 {
        rig = rig.written(block, 5);
    }
    rig.fail_disk(2).remove(2);
    let (disk, add) = rig.add_blank();
    rig.disks[disk].faults.no_space = true;
    rig.pass(LONG);
    rig.pass(LONG);
    // The superblock of the added disk found no space either, so it does not say that the disk
    // belongs to the array.
    answer(&mut rig, add).unwrap();
    assert_eq!(faulty(&rig), 1);
    let write = rig.write(1, 9);
    rig.pass(Span::secs(1));
    assert_eq!(answer(&mut rig, write), Ok(()));
    restart(&mut rig);
}

// The resync that the lack of space required was dropped, but the superblocks still required it:
// the array was dirty and degraded at the next start.
#[test]
fn a_member_without_space_that_fails_during_a_stop_leaves_the_array_clean() {
    let mut fell = 0;
    for (level, nth) in (0..6).flat_map(|nth| [(Level::Raid5, nth), (Level::Raid6, nth)]) {
        let mut rig = rig(level, 5);
        rig.disks[1].faults.no_space = true;
        let write = rig.put(0, 64 << 10 << 2);
        rig.pass(Span::millis(100));
        assert_eq!(answer(&mut rig, write), Err(ReplyError::NoSpace));
        // The stop begins before the engine notices that there is space again.
        rig.disks[1].faults.no_space = false;
        let stop = rig.disks[1].operations() + nth;
        for number in stop..stop + 2 {
            rig.disks[1].faults.schedule.insert(number, Planned::Once(Fault::Io));
        }
        rig.command(Verb::Stop).unwrap();
        fell += faulty(&rig);
        let dirty = faulty(&rig) == 0;
        assert_eq!(rig.volume().resync_from.is_some(), dirty, "{level}, {nth}");
        rig.stopped();
        let plain = assemble::Options { run: true, ..assemble::Options::default() };
        rig.start(&plain).unwrap_or_else(|refused| panic!("{level}, {nth}: {refused}"));
        assert!(rig.verify() > 0);
    }
    assert!(fell >= 4, "{fell}");
}

// A deferred block was written once there was space again. The superblocks recorded from where
// parity may be wrong. This record was dropped when the array had lost its redundancy, and the
// superblocks said clean before the block was durable.
#[test]
fn what_is_written_when_there_is_space_again_is_durable_before_clean_is_said() {
    for (level, gone) in [(Level::Raid5, vec![2]), (Level::Raid6, vec![2, 3])] {
        let mut rig = rig(level, 5);
        rig.disks[1].faults.no_space = true;
        let write = rig.put(0, 64 << 10);
        let other = rig.put(64 << 10, 64 << 10);
        rig.pass(Span::millis(100));
        let refused = [write, other].map(|it| answer(&mut rig, it));
        assert!(refused.contains(&Err(ReplyError::NoSpace)), "{level}: {refused:?}");
        // The superblock finds no space either, and is written again together with the block.
        let stop = rig.admin(Verb::Stop);
        rig.pass(Span::millis(100));
        assert!(!rig.is_answered(stop));
        rig.disks[1].faults.no_space = false;
        gone.iter().for_each(|disk| rig.disks[*disk].faults.gone = true);
        rig.pass(Span::secs(3));
        assert_eq!(answer(&mut rig, stop), Ok(()), "{level}");
        assert_eq!((faulty(&rig), rig.volume().resync_from), (gone.len(), None), "{level}");
        rig.cut(CutMode::Nothing);
        let plain = assemble::Options { run: true, ..assemble::Options::default() };
        rig.start(&plain).unwrap_or_else(|refused| panic!("{level}: {refused}"));
        assert!(rig.verify() > 0);
    }
}

// Each retry of a superblock update that found no space raised the update count of the members with
// space. Two members that were full together fell behind by two, and after a power cut the array
// was refused without `--force`, though both had all data.
#[test]
fn members_without_space_for_superblocks_are_no_more_than_one_update_behind() {
    for (level, full) in [(Level::Raid5, vec![1, 2]), (Level::Raid6, vec![0, 1, 3])] {
        for seconds in [1, 3, 10] {
            let mut rig = rig(level, 5);
            clean(&mut rig);
            full.iter().for_each(|disk| rig.disks[*disk].faults.no_space = true);
            let write = rig.put(0, BLOCK);
            rig.pass(Span::secs(seconds));
            let acknowledged = rig.take_answer(write).is_some_and(|answer| answer.is_ok());
            assert!(!acknowledged, "the members do not say dirty");
            rig.cut(CutMode::Nothing);
            full.iter().for_each(|disk| rig.disks[*disk].faults.no_space = false);
            let plain = assemble::Options { run: true, ..assemble::Options::default() };
            rig.start(&plain).unwrap_or_else(|refused| panic!("{level}, {seconds} s: {refused}"));
            assert!(rig.verify() > 0 && rig.volume().degraded == 0);
        }
    }
}

#[test]
fn a_stop_waits_for_a_failure_that_is_recorded_once_a_full_member_is_given_up() {
    let mut rig = rig(Level::Raid6, 5);
    clean(&mut rig);
    rig.disks[1].faults.no_space = true;
    let member = rig.member_of(0);
    rig.admin(Verb::Fail(member));
    rig.pass(Span::secs(2));
    assert_eq!((rig.volume().array_state, faulty(&rig)), ("clean", 1));
    let stop = rig.admin(Verb::Stop);
    rig.pass(Span::secs(2));
    assert!(!rig.is_answered(stop), "the failure is not recorded yet");
    rig.pass(LONG);
    assert_eq!(answer(&mut rig, stop), Ok(()));
    assert_eq!(faulty(&rig), 2);
    restart(&mut rig);
}

// Full stripes are written from the client's memory, which is released with the answer. Blocks that
// a member without space still lacks must be kept elsewhere.
#[test]
fn what_a_full_member_lacks_of_a_full_stripe_is_kept_for_it() {
    for stripe_size in [StripeSize::default(), StripeSize::AUTO] {
        let mut options = Options::new(Level::Raid5, 4, chunk_kib(64));
        options.knobs.stripe_size = stripe_size;
        let mut rig = Rig::of(options);
        rig.store(0, 192 << 10).unwrap();
        rig.disks[1].faults.no_space = true;
        let write = rig.put(0, 192 << 10);
        rig.pass(Span::millis(100));
        assert_eq!(answer(&mut rig, write), Err(ReplyError::NoSpace));
        rig.disks[1].faults.no_space = false;
        rig.pass(Span::secs(3));
        assert!(!rig.volume().no_space);
        assert!(rig.verify() > 0);
        assert!(rig.scrub_clean() > 0);
    }
}
