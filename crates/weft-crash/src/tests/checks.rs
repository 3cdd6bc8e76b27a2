//! Tests of checks and repairs that begin or end at a position, and of a check that goes on where
//! an earlier one was stopped.

use weft_engine::{Notice, ReplyError, SyncAction, Verb};
use weft_ondisk::Level;
use weft_units::{Sectors, Span};

use crate::{Rig, chunk_kib};

/// Number of full stripes of an array, each of one stripe of 4 KiB.
const STRIPES: u64 = 64;

/// Number of sectors of a stripe on each member.
const STRIPE: u64 = 8;

/// An array with parity. In the stripes `wrong`, the strip of disk 2 is overwritten, so that data
/// and parity disagree.
fn with_wrong(level: Level, wrong: &[u64]) -> Rig {
    let mut rig = Rig::raid(level, 4, None, chunk_kib(4)).with(|o| {
        o.assume_clean = true;
        o.full_stripes = STRIPES;
    });
    let first = rig.array.data_offset[2].0;
    for stripe in wrong {
        rig.disks[2].poke(first + stripe * STRIPE, &[7; 4096]);
    }
    rig
}

/// Runs a check or repair from sector `from` to its end. Returns `mismatch_cnt` and the number of
/// stripes compared.
fn run(rig: &mut Rig, action: SyncAction, from: u64) -> (u64, u64) {
    rig.command(Verb::SyncRange { action, from: Sectors(from), to: None }).unwrap();
    rig.until_idle();
    let volume = rig.volume();
    (volume.mismatch_cnt, volume.sync_stripes)
}

#[test]
fn a_mismatch_before_the_position_is_not_counted_and_one_after_is() {
    for level in [Level::Raid4, Level::Raid5, Level::Raid6] {
        let mut rig = with_wrong(level, &[3, 40]);
        assert_eq!(rig.check(), (2 * STRIPE, STRIPES), "{level}");
        for (from, counted, stripes) in [
            (0, 2, STRIPES),
            (3 * STRIPE, 2, STRIPES - 3),
            (4 * STRIPE - 1, 2, STRIPES - 3),
            (4 * STRIPE, 1, STRIPES - 4),
            (41 * STRIPE, 0, STRIPES - 41),
            (STRIPES * STRIPE - 1, 0, 1),
        ] {
            let found = run(&mut rig, SyncAction::Check, from);
            assert_eq!(found, (counted * STRIPE, stripes), "{level} from {from}");
        }
        assert_eq!(run(&mut rig, SyncAction::Repair, 4 * STRIPE).0, STRIPE, "{level}");
        assert_eq!(rig.check().0, STRIPE, "{level}: the one before is left");
        let beyond = Verb::SyncRange {
            action: SyncAction::Check,
            from: Sectors(STRIPES * STRIPE),
            to: None,
        };
        assert_eq!(rig.command(beyond), Err(ReplyError::OutOfRange), "{level}");
    }
}

/// md's `sync_max`, with the difference that the check ends there, and does not wait.
#[test]
fn a_check_ends_where_it_is_told_to_and_says_so() {
    for level in [Level::Raid5, Level::Raid6] {
        let mut rig = with_wrong(level, &[3, 9, 40]);
        for (from, to, counted, stripes) in [
            (0, 3 * STRIPE, 0, 3),
            (0, 3 * STRIPE + 1, 1, 4),
            (4 * STRIPE, 40 * STRIPE, 1, 36),
            (4 * STRIPE, 41 * STRIPE, 2, 37),
            (0, u64::MAX, 3, STRIPES),
        ] {
            let (from, to) = (Sectors(from), Sectors(to));
            let verb = |action| Verb::SyncRange { action, from, to: Some(to) };
            rig.command(verb(SyncAction::Check)).unwrap();
            rig.until_idle();
            let volume = rig.volume();
            let found = (volume.mismatch_cnt, volume.sync_stripes);
            assert_eq!(found, (counted * STRIPE, stripes), "{level} {from} {to}");
            let (done, total) = volume.sync_completed.unwrap();
            let end = to.0.div_ceil(STRIPE).saturating_mul(STRIPE).min(STRIPES * STRIPE);
            assert_eq!((done, total), (Sectors(end), Sectors(STRIPES * STRIPE)));
            let last = volume.last_sync.unwrap();
            assert_eq!((last.from, last.to), (from, Some(to)));
            let notices = rig.notices.iter().rev();
            let complete = notices.filter_map(|(_, notice)| match notice {
                Notice::SyncFinished { complete, .. } => Some(*complete),
                _ => None,
            });
            assert_eq!(complete.take(1).collect::<Vec<_>>(), [stripes == STRIPES], "{from} {to}");
        }
        let repair = Verb::SyncRange {
            action: SyncAction::Repair,
            from: Sectors::ZERO,
            to: Some(Sectors(10 * STRIPE)),
        };
        rig.command(repair).unwrap();
        rig.until_idle();
        assert_eq!((rig.volume().mismatch_cnt, rig.check().0), (2 * STRIPE, STRIPE), "{level}");
        for to in [0, 7] {
            let (from, to) = (Sectors(7), Some(Sectors(to)));
            let empty = Verb::SyncRange { action: SyncAction::Check, from, to };
            assert!(matches!(rig.command(empty), Err(ReplyError::Invalid(_))), "{level}");
        }
    }
}

#[test]
fn a_stopped_check_says_where_and_the_next_one_counts_the_rest() {
    for level in [Level::Raid5, Level::Raid6] {
        let mut rig = with_wrong(level, &[0, 9, 63]);
        // Half of the stripes are 128 KiB.
        let slow = rig.options.knobs.parse("sync_speed_max", "100").unwrap();
        rig.command(Verb::Set(slow)).unwrap();
        rig.admin(Verb::SyncAction(SyncAction::Check));
        while rig.volume().sync_stripes < 12 {
            rig.pass(Span::millis(1));
        }
        rig.sync(SyncAction::Idle).unwrap();
        let volume = rig.volume();
        let (done, total) = volume.sync_completed.unwrap();
        assert_eq!(volume.sync_action, SyncAction::Idle);
        let last = volume.last_sync.unwrap();
        assert_eq!((last.number, last.action, last.to), (1, SyncAction::Check, None));
        assert!(last.ended.is_some());
        assert!(done > Sectors(9 * STRIPE) && done < total, "{level}: {done:?}");
        assert_eq!((volume.mismatch_cnt, volume.sync_stripes * STRIPE), (2 * STRIPE, done.0));
        let rest = run(&mut rig, SyncAction::Check, done.0);
        assert_eq!(rest, (STRIPE, STRIPES - done.0 / STRIPE), "{level}");
        rig.repair();
        let last = rig.volume().last_sync.unwrap();
        assert_eq!((last.number, last.action), (3, SyncAction::Repair));
    }
}

#[test]
fn nothing_begins_at_a_position_of_an_array_without_redundancy() {
    for (level, degraded) in [(Level::Raid0, false), (Level::Raid5, true)] {
        let mut rig = Rig::raid(level, 4, None, chunk_kib(4));
        if degraded {
            rig.fail_disk(1);
        }
        for from in [0, u64::MAX] {
            let verb = Verb::SyncRange { action: SyncAction::Check, from: Sectors(from), to: None };
            let refused = rig.command(verb).unwrap_err().to_string();
            assert!(refused.contains("no parity left to compare with"), "{level}: {refused}");
        }
    }
}
