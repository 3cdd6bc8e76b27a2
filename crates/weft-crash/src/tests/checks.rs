//! Tests of checks and repairs that begin at a position, and of a check that goes on where an
//! earlier one was stopped.

use weft_engine::{LastSync, ReplyError, SyncAction, Verb};
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
    rig.command(Verb::SyncFrom { action, from: Sectors(from) }).unwrap();
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
        let beyond = Verb::SyncFrom { action: SyncAction::Check, from: Sectors(STRIPES * STRIPE) };
        assert_eq!(rig.command(beyond), Err(ReplyError::OutOfRange), "{level}");
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
        let first = LastSync { number: 1, action: SyncAction::Check };
        assert_eq!(volume.last_sync, Some(first));
        assert!(done > Sectors(9 * STRIPE) && done < total, "{level}: {done:?}");
        assert_eq!((volume.mismatch_cnt, volume.sync_stripes * STRIPE), (2 * STRIPE, done.0));
        let rest = run(&mut rig, SyncAction::Check, done.0);
        assert_eq!(rest, (STRIPE, STRIPES - done.0 / STRIPE), "{level}");
        rig.repair();
        let third = LastSync { number: 3, action: SyncAction::Repair };
        assert_eq!(rig.volume().last_sync, Some(third));
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
            let verb = Verb::SyncFrom { action: SyncAction::Check, from: Sectors(from) };
            let refused = rig.command(verb).unwrap_err().to_string();
            assert!(refused.contains("no parity left to compare with"), "{level}: {refused}");
        }
    }
}
