//! Replay of the throttling decisions of Linux 6.12, number by number (`fixtures/writeback`).
//!
//! Every check of the limits is replayed as an episode of the policy, and every step of a rate
//! limit or a bandwidth by the estimate of a device, each with the values that Linux had before.
//!
//! The inputs do not exercise the floor of a device's share, the flat quarter at the end of its
//! line, or the clamp of the cubic, and cannot distinguish `|1` from `+1` in a divisor.

use super::super::tests::facts;
use super::DirtyThrottle::{Mainline6_12, Patch001};
use super::*;
use crate::page_cache::bandwidth::Bandwidth;
use crate::page_cache::pool::{Counts, Kernel, Thresholds};
use crate::page_cache::proportion::Fraction;
use crate::page_cache::ticks::TickRate;

/// Number of values compared, and number of values that are equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    compared: usize,
    equal: usize,
}

impl Tally {
    fn count(&mut self, equal: bool) {
        self.compared += 1;
        self.equal += usize::from(equal);
    }

    const fn different(self) -> usize {
        self.compared - self.equal
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tallies {
    ratio: Tally,
    setpoint: Tally,
    task_ratelimit: Tally,
    pause: Tally,
    next_size: Tally,
    rate: Tally,
    bandwidth: Tally,
    /// Number of pauses that are equal if one tick less has passed than was traced.
    a_tick_earlier: usize,
    /// Number of check sizes that were set by a check in free run between two traced checks.
    from_free_run: usize,
}

/// Tick of every check. Think times are counted backwards from it.
const TICK: u64 = 1_000_000;

fn ticks() -> TickRate {
    TickRate::new(250)
}

fn facts_of(thresholds: Thresholds, row: &[i64]) -> Facts {
    let page = |at: usize| u64::try_from(row[at]).unwrap();
    let dirty = |dirty| Counts { dirty, writeback: 0 };
    Facts {
        thresholds,
        limit: page(5),
        all: dirty(page(0)),
        bdi: dirty(page(2)),
        bdi_share: Fraction { numerator: page(1), denominator: thresholds.dirty },
        strictlimit: false,
        bandwidth: page(3),
        ..facts(0, 0)
    }
}

fn look(rules: &Rules, thresholds: Thresholds, row: &[i64], tallies: &mut Tallies) {
    let number = |at: usize| u64::try_from(row[at]).unwrap();
    let facts = Facts { ratelimit: number(7), ..facts_of(thresholds, row) };
    let position = Position::of(&facts);
    let ratio = position.ratio(rules);
    tallies.ratio.count(ratio == number(4));
    tallies.setpoint.count(position.setpoint() == number(6));
    tallies.task_ratelimit.count(ratelimit::times(facts.ratelimit, ratio) == number(8));
    // Pause and next check size, if `late` ticks passed between the decision and the trace.
    let judged = |late: u64| {
        let paused_when = Some(TICK.checked_add_signed(-row[13]).unwrap() + late);
        let pace = Pace { nr_dirtied: number(9), nr_dirtied_pause: number(10), paused_when };
        let kernel = Kernel::IoLess(Mainline6_12);
        let now = ticks().at(TICK);
        let mut episode = ThrottleEpisode::new(kernel, ticks(), now, number(9));
        let answer = episode.step_io_less(rules, now, &Facts { pace, ..facts });
        let pause = match answer.step {
            ThrottleStep::Sleep { until, .. } => ticks().tick(until) - TICK,
            ThrottleStep::Continue => 0,
            ThrottleStep::WriteBack { .. } => panic!("it never writes back"),
        };
        (pause, answer.pace.unwrap().nr_dirtied_pause)
    };
    let pause = u64::try_from(row[11].max(0)).unwrap();
    let (at_once, a_tick_earlier) = (judged(0), judged(1));
    tallies.pause.count(at_once.0 == pause || a_tick_earlier.0 == pause);
    tallies.a_tick_earlier += usize::from(at_once.0 != pause && a_tick_earlier.0 == pause);
    let Some(next) = row.get(14) else { return };
    let next = u64::try_from(*next).unwrap();
    let size = if at_once.0 == pause { at_once.1 } else { a_tick_earlier.1 };
    let mut in_free_run = 0..=thresholds.free_run();
    let polled = in_free_run.any(|at| pause::poll_interval(at, thresholds.dirty) == next);
    tallies.next_size.count(size == next || polled);
    tallies.from_free_run += usize::from(size != next && polled);
}

fn rate(rules: &Rules, thresholds: Thresholds, row: &[i64], tallies: &mut Tallies) {
    let number = |at: usize| u64::try_from(row[at]).unwrap();
    let position = Position::of(&facts_of(thresholds, row));
    tallies.ratio.count(position.ratio(rules) == number(4));
    let mut ratelimit = Ratelimit { rate: number(8), balanced: number(9) };
    ratelimit.step(
        rules,
        &Window {
            setpoint: position.setpoint(),
            dirty: number(0),
            ratio: number(4),
            bandwidth: number(3),
            dirtied: number(7),
            elapsed: number(6),
            hz: 250,
        },
    );
    tallies.rate.count((ratelimit.rate, ratelimit.balanced) == (number(10), number(11)));
}

fn bandwidth(row: &[i64], tallies: &mut Tallies) {
    let number = |at: usize| u64::try_from(row[at]).unwrap();
    let mut estimate = Bandwidth::known(number(2), number(3));
    estimate.sample(ticks(), number(0), number(1));
    let after = (estimate.pages_per_second(), estimate.average());
    tallies.bandwidth.count(after == (number(4), number(5)));
}

fn replay(text: &str, rules: &Rules) -> Tallies {
    let mut tallies = Tallies::default();
    let mut thresholds = Thresholds { background: 0, dirty: 0 };
    for line in text.lines() {
        let fields: Vec<&str> = line.split(',').collect();
        if fields[0] == "case" {
            let page = |at: usize| fields[at].parse().unwrap();
            thresholds = Thresholds { dirty: page(2), background: page(3) };
            continue;
        }
        let numbers = fields[1..].iter().filter(|it| !it.is_empty());
        let row: Vec<i64> = numbers.map(|it| it.parse().unwrap()).collect();
        match fields[0] {
            "look" => look(rules, thresholds, &row, &mut tallies),
            "rate" => rate(rules, thresholds, &row, &mut tallies),
            "bandwidth" => bandwidth(&row, &mut tallies),
            other => panic!("{other}: no event"),
        }
    }
    tallies
}

const TRACE: &str = include_str!("../../../../../../fixtures/writeback/kernel-6.12.csv");

/// All numbers but three are equal:
///
/// - a ratio of 837 where 836 is computed, in a step of the rate that came a tick after the
///   previous one: a counter changed between the kernel's reading and the trace's;
/// - a pause of 14 ticks where 13 are computed, and its next check size: on one of four disks, of
///   which another CPU changed the average bandwidth after the ratio was computed (any of 1,536 to
///   1,567 pages/s gives 14; 1,578 is in the trace).
#[test]
fn writeback_statement_11_the_numbers_of_linux_are_recomputed_to_the_last_integer() {
    let tallies = replay(TRACE, Mainline6_12.rules());
    let all_but = |but, compared| Tally { compared, equal: compared - but };
    let expected = Tallies {
        ratio: all_but(1, 4976),
        setpoint: all_but(0, 4500),
        task_ratelimit: all_but(0, 4500),
        pause: all_but(1, 4500),
        next_size: all_but(1, 4500),
        rate: all_but(0, 476),
        bandwidth: all_but(0, 649),
        a_tick_earlier: 86,
        from_free_run: 230,
    };
    assert_eq!(tallies, expected);
}

/// Control: the replay detects rules other than those of 6.12, and values that are off by one.
#[test]
fn a_replay_by_other_rules_or_of_other_numbers_is_seen() {
    let today = *Mainline6_12.rules();
    let seed = replay(TRACE, &Rules { reserve: Patch001.rules().reserve, ..today });
    assert!(seed.ratio.different() > 1000, "4 MiB of reserve: {seed:?}");
    let line = replay(TRACE, &Rules { auxiliary_line: true, ..today });
    assert!(line.ratio.different() > 1000, "the narrower line of v11: {line:?}");
    let pauses = replay(TRACE, &Rules { think_time: false, ..today });
    assert!(pauses.pause.different() > 1000, "without think time: {pauses:?}");
    let [mut looked, mut rated, mut measured] = [0; 3];
    for line in TRACE.lines() {
        let header = "case,c,256,128\n";
        let (rest, last) = line.rsplit_once(',').unwrap();
        let Ok(last) = last.parse::<u64>() else { continue };
        let damaged = replay(&format!("{header}{rest},{}", last + 1), &today);
        looked += damaged.next_size.different();
        rated += damaged.rate.different();
        measured += damaged.bandwidth.different();
    }
    assert!(looked > 3000 && rated > 400 && measured == 649, "{looked} {rated} {measured}");
}
