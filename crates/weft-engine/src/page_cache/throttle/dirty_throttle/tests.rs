//! Tests of throttle episodes with IO-less throttling.

use super::super::tests::{episode, facts, sleep_ms};
use super::DirtyThrottle::{Mainline3_2, Mainline6_12, Patch001, V11};
use super::*;
use crate::page_cache::pool::{Counts, Kernel};
use crate::page_cache::proportion::Fraction;

const ALL: [DirtyThrottle; 4] = [V11, Patch001, Mainline3_2, Mainline6_12];

fn step(variant: DirtyThrottle, facts: &Facts) -> Answer {
    episode(Kernel::IoLess(variant), 1000).step(Time(5_000_000_000), facts, 0)
}

#[test]
fn no_writer_sleeps_up_to_half_way_and_the_next_look_is_by_what_is_left() {
    for variant in ALL {
        let answer = step(variant, &Facts { flusher_busy: false, ..facts(19_200, 0) });
        let pace = Pace { nr_dirtied: 0, nr_dirtied_pause: 64, paused_when: Some(5000) };
        let expected = Answer {
            exceeded: Some(false),
            pace: Some(pace),
            wake_flusher: true,
            ..Answer::only(ThrottleStep::Continue)
        };
        assert_eq!(answer, expected, "{variant:?}");
        let written = step(variant, &Facts { flusher_busy: false, ..facts(0, 19_200) });
        assert!(!written.wake_flusher, "nothing to write");
    }
}

#[test]
fn a_writer_above_sleeps_at_most_200_ms_and_never_writes_back() {
    for variant in ALL {
        for (dirty, writeback) in
            [(19_201, 0), (22_400, 0), (0, 24_000), (25_599, 0), (9000, 16_599)]
        {
            for ratelimit in [1, 148, 14_848, 1 << 40] {
                let facts = Facts { ratelimit, flusher_busy: false, ..facts(dirty, writeback) };
                let answer = step(variant, &facts);
                let slept = sleep_ms(answer).map(|until| until - 5000);
                assert!(slept.is_none_or(|ms| (1..=200).contains(&ms)), "{variant:?}: {answer:?}");
                assert!(!matches!(answer.step, ThrottleStep::WriteBack { .. }));
                assert!(answer.wake_flusher, "the flusher is woken");
            }
        }
    }
}

#[test]
fn after_its_pause_a_writer_goes_on_without_another_look() {
    let mut episode = episode(Kernel::IoLess(Patch001), 1000);
    let answer = episode.step(Time(0), &facts(22_400, 0), 0);
    let ThrottleStep::Sleep { until, or_uncongested: false } = answer.step else {
        panic!("{answer:?}");
    };
    assert!(!episode.measures_first());
    let answer = episode.step(until, &facts(30_000, 0), 0);
    assert_eq!(answer.step, ThrottleStep::Continue);
}

#[test]
fn at_the_hard_limit_a_writer_stays_until_less_is_dirty() {
    for variant in ALL {
        let mut episode = episode(Kernel::IoLess(variant), 1000);
        let mut now = Time(0);
        for _ in 0..20 {
            assert!(episode.measures_first());
            let answer = episode.step(now, &facts(25_600, 0), 0);
            let ThrottleStep::Sleep { until, .. } = answer.step else { panic!("{answer:?}") };
            assert!(until > now);
            now = until;
        }
        let slow = Facts { ratelimit: 100, ..facts(25_000, 0) };
        let answer = episode.step(now, &slow, 0);
        let ThrottleStep::Sleep { until, .. } = answer.step else { panic!("{answer:?}") };
        assert_eq!(episode.step(until, &slow, 0).step, ThrottleStep::Continue, "{variant:?}");
    }
}

#[test]
fn from_3_2_on_a_writer_of_an_empty_device_passes_after_a_pause() {
    let all = Counts { dirty: 26_000, writeback: 0 };
    let facts = Facts { all, bdi: Counts::default(), ..facts(0, 0) };
    for (variant, passes) in
        [(V11, false), (Patch001, false), (Mainline3_2, true), (Mainline6_12, true)]
    {
        let mut episode = episode(Kernel::IoLess(variant), 1000);
        let answer = episode.step(Time(0), &facts, 0);
        let ThrottleStep::Sleep { until, .. } = answer.step else { panic!("{answer:?}") };
        let answer = episode.step(until, &facts, 0);
        assert_eq!(answer.step == ThrottleStep::Continue, passes, "{variant:?}");
    }
}

#[test]
fn the_mark_is_set_by_either_limit_and_today_by_both() {
    // Total, pages of the device with a share of a tenth; whether exceeded in 3.2, in 6.12.
    for (all, bdi, old, new) in [
        (22_400, 2560, false, false),
        (22_400, 2561, true, false),
        (25_601, 2560, true, false),
        (25_601, 2561, true, true),
    ] {
        let share = Fraction { numerator: 1, denominator: 10 };
        let counts = |dirty| Counts { dirty, writeback: 0 };
        let facts = Facts { all: counts(all), bdi: counts(bdi), bdi_share: share, ..facts(0, 0) };
        let exceeded = |variant| step(variant, &facts).exceeded == Some(true);
        assert_eq!((exceeded(Mainline3_2), exceeded(Mainline6_12)), (old, new), "{all} {bdi}");
    }
}

#[test]
fn a_limit_that_is_just_reached_is_not_exceeded() {
    let share = Fraction { numerator: 1, denominator: 10 };
    let counts = |dirty| Counts { dirty, writeback: 0 };
    for (all, bdi, exceeded) in
        [(25_600, 2_561, false), (25_601, 2_560, false), (25_601, 2_561, true)]
    {
        let facts = Facts { all: counts(all), bdi: counts(bdi), bdi_share: share, ..facts(0, 0) };
        assert_eq!(step(Mainline6_12, &facts).exceeded == Some(true), exceeded, "{all} {bdi}");
    }
    let at_both =
        Facts { all: counts(25_600), bdi: counts(2_560), bdi_share: share, ..facts(0, 0) };
    assert_ne!(step(Mainline3_2, &at_both).exceeded, Some(true));
}

/// The device's *exceeded* flag is cleared when a writer continues below the limits: at once, or
/// after its pause.
#[test]
fn the_mark_is_cleared_by_a_writer_that_continues_below_the_limits() {
    let fast = Facts { ratelimit: 1 << 40, ..facts(22_400, 0) };
    let answer = step(Mainline6_12, &fast);
    assert_eq!((answer.step, answer.exceeded), (ThrottleStep::Continue, Some(false)));
    for (dirty, before, after) in
        [(22_400, None, Some(false)), (25_500, None, Some(false)), (25_601, Some(true), None)]
    {
        let mut episode = episode(Kernel::IoLess(V11), 1000);
        let slow = Facts { ratelimit: 100, ..facts(dirty, 0) };
        let answer = episode.step(Time(0), &slow, 0);
        let ThrottleStep::Sleep { until, .. } = answer.step else { panic!("{answer:?}") };
        assert_eq!(answer.exceeded, before, "{dirty}");
        if dirty < 25_600 {
            assert_eq!(episode.step(until, &slow, 0).exceeded, after, "{dirty}");
        }
    }
}
