//! Times of scheduled checks: when one begins, pauses and goes on.
//!
//! This module reads no clock, asks no server and writes no file. The next step follows from the
//! record of a volume's checks, the state of the volume, and the time in seconds since 1970. The
//! clock may be set forward or back: a jump forward makes at most one check due; after a jump back,
//! the next check is due at most one interval later.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use weft_units::{Bytes, SECTOR_BYTES};

use crate::size::human;

/// Interval between checks, and the part of each day in which they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Schedule {
    /// Seconds from the beginning of a check to the beginning of the next one.
    pub(super) every: u64,
    /// Number of seconds for which a check runs in each period of 24 hours, before it pauses until
    /// the next period; `None` for a check that runs to its end. The first period begins with the
    /// check.
    pub(super) per_day: Option<u64>,
}

/// Progress of the checks of an array, which a file keeps over restarts. All times are in seconds
/// since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    /// Time at which the last check began; `None` if none has begun.
    pub(super) began: Option<u64>,
    /// Earliest time seen while `began` was in the future, because the clock was set back; the next
    /// check is due one interval after it. `None` if `began` is not in the future.
    pub(super) behind: Option<u64>,
    /// Check that has begun and not ended; `None` between checks.
    pub(super) pass: Option<Pass>,
    /// Last check that has ended; `None` if none has.
    pub(super) last: Option<Ended>,
}

/// A check that has begun and not ended. It has several segments if it was interrupted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pass {
    /// Sector up to which everything was compared: a sector of the array for RAID 10, else of each
    /// member's data.
    pub(super) position: u64,
    /// Size of the volume in bytes. If the volume gets another size, the check begins anew.
    pub(super) size: u64,
    /// Number of sectors in which the check has found a mismatch so far.
    pub(super) mismatches: u64,
    /// Time at which the present period of 24 hours began; see [`Schedule::per_day`].
    pub(super) window: u64,
    /// Whether an administrator stopped the check, so that it goes on only when the next check is
    /// due.
    pub(super) is_halted: bool,
    /// Segment that was requested and is not known to have ended; `None` if there is none.
    pub(super) segment: Option<Segment>,
}

/// Part of a check that one server carries out without an interruption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    /// Process id of the server that carries out the segment.
    pub(super) server: u32,
    /// Number of the sync that carries out the segment, as the server counts its syncs.
    pub(super) number: u64,
    /// Number of sectors in which earlier segments of the check found a mismatch.
    pub(super) before: u64,
    /// Time, in seconds since 1970, at which the server was asked to start the segment.
    pub(super) asked: u64,
    /// Whether the server was asked to stop the segment.
    pub(super) is_stopping: bool,
}

/// A check that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) at: u64,
    /// Number of sectors in which the check found a mismatch.
    pub(super) mismatches: u64,
}

/// State of a volume at one time, as far as checks depend on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// Process id of the server.
    pub(super) server: u32,
    /// Size of the volume in bytes.
    pub(super) size: u64,
    /// Number of the running or last sync of the server; 0 if it has done none.
    pub(super) number: u64,
    /// Whether the running or last sync is a check.
    pub(super) is_check: bool,
    /// Whether a check runs.
    pub(super) is_checking: bool,
    /// Number of sectors that the running or last sync has passed; `total` is the number of all its
    /// sectors, and `mismatches` the number of those with a mismatch.
    pub(super) done: u64,
    pub(super) total: u64,
    pub(super) mismatches: u64,
    /// Reason why no check may run now; `None` if one may.
    pub(super) obstacle: Option<String>,
    /// Reason why no check may begin now, although one that runs goes on; `None` if one may. See
    /// [`delay`].
    pub(super) delay: Option<String>,
}

/// A scheduled check of another volume that runs now, for [`delay`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Running {
    /// Name of the volume.
    pub(super) volume: String,
    /// Disks below the members of the volume.
    pub(super) disks: BTreeSet<PathBuf>,
}

/// Reason why a check of a volume on `disks` has to wait for one of the checks `running`; `None` if
/// it has not. Two checks that read one disk would only slow each other down.
///
/// Source   md-raid.md §6.1 (md: `resync=DELAYED`)
pub(super) fn delay(disks: &BTreeSet<PathBuf>, running: &[Running]) -> Option<String> {
    running.iter().find_map(|other| {
        let shared = disks.intersection(&other.disks).next()?;
        let disk = shared.file_name().unwrap_or_default().to_string_lossy();
        Some(format!("the check of {} runs, which has members on {disk} too", other.volume))
    })
}

/// Next request to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Nothing,
    /// Start a check at this sector.
    Start(u64),
    /// Stop the running check.
    Stop,
}

/// News of a check, for the log. The number is the position of the check in sectors; that of
/// `Ended` is the number of sectors with a mismatch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CheckNews {
    Begins,
    Ended(u64),
    GoesOn(u64),
    Halted(u64),
    Interrupted(u64),
    Pauses(u64),
    Waits(String),
}

impl fmt::Display for CheckNews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |sector: &u64| human(Bytes(sector.saturating_mul(SECTOR_BYTES)));
        match self {
            Self::Begins => f.write_str("begins"),
            Self::Ended(0) => f.write_str("has ended: nothing disagrees"),
            Self::Ended(count) => {
                write!(f, "has ended: mismatch_cnt {count} sectors; weft repair makes them agree")
            }
            Self::GoesOn(from) => write!(f, "goes on at {}", at(from)),
            Self::Halted(to) => {
                write!(f, "was stopped at {}; it goes on when the next one is due", at(to))
            }
            Self::Interrupted(to) => write!(f, "was interrupted at {}; it goes on later", at(to)),
            Self::Pauses(to) => write!(f, "pauses at {} until tomorrow", at(to)),
            Self::Waits(why) => write!(f, "is due, and waits: {why}"),
        }
    }
}

impl Record {
    /// Next request to the server, and the news of the check to log, if there are any. The record
    /// changes as if the request succeeded; see [`Self::refused`].
    pub(super) fn decide(
        &mut self,
        schedule: Schedule,
        seen: &Seen,
        now: u64,
    ) -> (Step, Option<CheckNews>) {
        self.note_clock(now);
        self.follow(schedule, seen, now).unwrap_or_else(|| self.start(schedule, seen, now))
    }

    /// Records that a check could not be started. `anew` says that its position was refused; the
    /// check then begins again at sector 0.
    pub(super) fn refused(&mut self, anew: bool) {
        let Some(pass) = &mut self.pass else { return };
        pass.segment = None;
        if anew {
            (pass.position, pass.mismatches) = (0, 0);
        }
    }

    /// Time from `now` until the volume's status is to be requested again.
    pub(super) fn next_look(&self, schedule: Schedule, now: u64) -> Duration {
        let often = Duration::from_millis(schedule.every.saturating_mul(250)).min(LOOK_MAX);
        let at = match &self.pass {
            Some(pass) if pass.segment.is_some() => now,
            Some(pass) if !pass.is_halted => {
                let rests = |per_day| now.saturating_sub(pass.window) >= per_day;
                let rests = schedule.per_day.is_some_and(rests);
                if rests { pass.window.saturating_add(DAY) } else { now }
            }
            _ => self.due(schedule),
        };
        Duration::from_secs(at.saturating_sub(now)).clamp(often, IDLE_MAX)
    }

    /// Time, in seconds since 1970, at which the next check is due; 0 if no check has begun yet.
    fn due(&self, schedule: Schedule) -> u64 {
        self.behind.or(self.began).map_or(0, |began| began.saturating_add(schedule.every))
    }

    /// Updates `behind` at the time `now`. If the clock was set back to before `began`, the
    /// interval counts from the present and not from a time in the future. A clock that is wrong
    /// only for a while, as at the start of a machine without a battery for its clock, has no
    /// lasting effect.
    fn note_clock(&mut self, now: u64) {
        let is_ahead = self.began.is_some_and(|began| began > now);
        self.behind = is_ahead.then(|| self.behind.map_or(now, |behind| behind.min(now)));
    }

    /// Updates the record by the state of the requested segment. Returns the next request and the
    /// news to log; `None` if no segment is recorded.
    fn follow(
        &mut self,
        schedule: Schedule,
        seen: &Seen,
        now: u64,
    ) -> Option<(Step, Option<CheckNews>)> {
        let pass = self.pass.as_mut()?;
        let segment = pass.segment.as_mut()?;
        let is_same = segment.server == seen.server;
        if is_same && seen.number < segment.number && now.abs_diff(segment.asked) < BEGIN_MAX {
            // The server has not begun it yet.
            return Some((Step::Nothing, None));
        }
        if !(is_same && seen.number == segment.number && seen.is_check) {
            let is_stopping = segment.is_stopping;
            pass.segment = None;
            let told = (!is_stopping).then_some(CheckNews::Interrupted(pass.position));
            return Some((Step::Nothing, told));
        }
        pass.position = seen.done;
        pass.mismatches = segment.before + seen.mismatches;
        if seen.is_checking {
            if segment.is_stopping {
                return Some((Step::Stop, None));
            }
            let told = if seen.obstacle.is_some() {
                CheckNews::Interrupted(seen.done)
            } else if pass.is_within(schedule, now) {
                return Some((Step::Nothing, None));
            } else {
                CheckNews::Pauses(seen.done)
            };
            pass.segment.as_mut()?.is_stopping = true;
            return Some((Step::Stop, Some(told)));
        }
        let is_stopping = segment.is_stopping;
        pass.segment = None;
        if seen.done >= seen.total {
            let mismatches = pass.mismatches;
            self.last = Some(Ended { at: now, mismatches });
            self.pass = None;
            return Some((Step::Nothing, Some(CheckNews::Ended(mismatches))));
        }
        let told = match &seen.obstacle {
            _ if is_stopping => None,
            Some(_) => Some(CheckNews::Interrupted(seen.done)),
            None => {
                pass.is_halted = true;
                Some(CheckNews::Halted(seen.done))
            }
        };
        Some((Step::Nothing, told))
    }

    /// Starts a check that is due, or resumes one. Returns the request for it and the news to log,
    /// which may be that the check has to wait.
    fn start(&mut self, schedule: Schedule, seen: &Seen, now: u64) -> (Step, Option<CheckNews>) {
        let is_due = self.due(schedule) <= now;
        // A change of the copy is kept only if the check begins or waits for its own volume: for a
        // check that is delayed, the period of 24 hours has not begun.
        let mut pass = self.pass.clone();
        let may = match &mut pass {
            Some(pass) if !pass.is_halted => pass.is_within(schedule, now),
            _ => is_due,
        };
        if !may {
            self.pass = pass;
            return (Step::Nothing, None);
        }
        if let Some(why) = &seen.delay {
            return (Step::Nothing, Some(CheckNews::Waits(why.clone())));
        }
        self.pass = pass;
        let other = || seen.is_checking.then(|| "another check runs".to_owned());
        if let Some(why) = seen.obstacle.clone().or_else(other) {
            return (Step::Nothing, Some(CheckNews::Waits(why)));
        }
        if self.pass.as_ref().is_none_or(|pass| pass.is_halted) {
            (self.began, self.behind) = (Some(now), None);
        }
        let new = Pass {
            position: 0,
            size: seen.size,
            mismatches: 0,
            window: now,
            is_halted: false,
            segment: None,
        };
        let pass = self.pass.get_or_insert_with(|| new.clone());
        if pass.size != seen.size {
            *pass = new;
        } else if pass.is_halted {
            (pass.is_halted, pass.window) = (false, now);
        }
        pass.segment = Some(Segment {
            server: seen.server,
            number: seen.number + 1,
            before: pass.mismatches,
            asked: now,
            is_stopping: false,
        });
        let from = pass.position;
        (
            Step::Start(from),
            Some(if from == 0 { CheckNews::Begins } else { CheckNews::GoesOn(from) }),
        )
    }
}

impl Pass {
    /// Whether the check may run now, by its time per day. Begins a new period of 24 hours if the
    /// last one has passed.
    fn is_within(&mut self, schedule: Schedule, now: u64) -> bool {
        let Some(per_day) = schedule.per_day else { return true };
        if self.window > now {
            // The clock was set back. A check that runs, or a pause, begins anew.
            let is_running = self.segment.is_some();
            self.window = if is_running { now } else { now.saturating_sub(per_day) };
        }
        let since = now - self.window;
        if since >= DAY {
            self.window = now;
        }
        since < per_day || since >= DAY
    }
}

/// Parses the value of `check`: seconds between checks, and `None` for `never`.
///
/// # Errors
/// The text is no interval; the error states the expected form.
pub(super) fn interval(text: &str) -> Result<Option<u64>, String> {
    Ok(Some(match text {
        "never" => return Ok(None),
        "daily" => DAY,
        "weekly" => 7 * DAY,
        "monthly" => 30 * DAY,
        text => {
            let found = seconds(text).filter(|found| (1..=INTERVAL_MAX).contains(found));
            found.ok_or_else(|| {
                format!(
                    "found {text:?}, expected never, daily, weekly, monthly, or a time of 1s to \
                     3650d, as 90d, with s, min, h, d or w"
                )
            })?
        }
    }))
}

/// Parses the value of `check-for`: seconds of each day.
///
/// # Errors
/// The text is no part of a day; the error states the expected form.
pub(super) fn part_of_day(text: &str) -> Result<u64, String> {
    let found = seconds(text).filter(|found| (1..DAY).contains(found));
    found.ok_or_else(|| {
        format!("found {text:?}, expected a time of less than a day, as 6h or 90min")
    })
}

/// Number of seconds in a text such as `90min`; `None` if the text is not a number with a unit.
fn seconds(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, size) = UNITS.into_iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(size)
}

/// Text of a number of seconds, as a whole number of the largest unit up to days that divides it.
pub(super) fn exact(seconds: u64) -> String {
    let whole =
        UNITS.into_iter().filter(|(name, size)| *name != "w" && seconds.is_multiple_of(*size));
    let (name, size) = whole.max_by_key(|(_, size)| *size).unwrap_or(("s", 1));
    format!("{}{name}", seconds / size)
}

/// Text of a number of seconds, rounded down to the largest unit up to days that fits in it.
pub(super) fn about(seconds: u64) -> String {
    let fits = UNITS.into_iter().filter(|(name, size)| *name != "w" && seconds >= *size);
    let (name, size) = fits.max_by_key(|(_, size)| *size).unwrap_or(("s", 1));
    format!("{} {name}", seconds / size)
}

/// Units of time, each with its length in seconds.
const UNITS: [(&str, u64); 5] = [("s", 1), ("min", 60), ("h", 3600), ("d", DAY), ("w", 7 * DAY)];

/// Length of a day in seconds.
const DAY: u64 = 24 * 3600;

/// Longest interval between checks, in seconds.
const INTERVAL_MAX: u64 = 3650 * DAY;

/// Number of seconds after which a requested check that has not begun is given up.
const BEGIN_MAX: u64 = 60;

/// Longest time between two status requests while a check runs or waits. If the server is killed,
/// the next one repeats at most this much of the check.
const LOOK_MAX: Duration = Duration::from_secs(10);

/// Longest time between two status requests while no check is due.
const IDLE_MAX: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3600;

    /// A server with one array, of which a check passes some sectors in each second.
    struct Server {
        pid: u32,
        number: u64,
        is_check: bool,
        /// Position of the running sync.
        runs: Option<u64>,
        done: u64,
        total: u64,
        speed: u64,
        /// Sectors with a mismatch, and those that the running or last check has found.
        wrong: Vec<u64>,
        found: u64,
        obstacle: Option<&'static str>,
        /// Check of another volume on a disk of this one, while it runs.
        delay: Option<&'static str>,
        /// Every sector at which a check was started.
        starts: Vec<u64>,
    }

    impl Server {
        /// A check takes so many hours.
        fn of_hours(hours: u64) -> Self {
            Self {
                pid: 100,
                number: 0,
                is_check: false,
                runs: None,
                done: 0,
                total: hours * HOUR * 100,
                speed: 100,
                wrong: Vec::new(),
                found: 0,
                obstacle: None,
                delay: None,
                starts: Vec::new(),
            }
        }

        fn seen(&self) -> Seen {
            Seen {
                server: self.pid,
                size: self.total * 512,
                number: self.number,
                is_check: self.is_check,
                is_checking: self.is_check && self.runs.is_some(),
                done: self.done,
                total: self.total,
                mismatches: self.found,
                obstacle: self.obstacle.map(str::to_owned),
                delay: self.delay.map(str::to_owned),
            }
        }

        fn start(&mut self, from: u64) {
            assert!(self.runs.is_none() && from < self.total, "from {from}");
            (self.number, self.is_check) = (self.number + 1, true);
            (self.runs, self.done, self.found) = (Some(from), from, 0);
            self.starts.push(from);
        }

        fn pass(&mut self, seconds: u64) {
            let Some(at) = self.runs else { return };
            let to = (at + seconds * self.speed).min(self.total);
            self.found +=
                self.wrong.iter().filter(|sector| (at..to).contains(*sector)).count() as u64;
            (self.runs, self.done) = ((to < self.total).then_some(to), to);
        }

        /// Another server of the array, which has done nothing yet.
        fn restart(&mut self) {
            (self.pid, self.number, self.is_check) = (self.pid + 1, 0, false);
            (self.runs, self.done, self.found) = (None, 0, 0);
        }
    }

    /// The array, its record and the clock.
    struct World {
        server: Server,
        record: Record,
        schedule: Schedule,
        now: u64,
        told: Vec<(u64, CheckNews)>,
    }

    const START: u64 = 1_800_000_000;

    impl World {
        fn new(every: u64, per_day: Option<u64>, hours: u64) -> Self {
            Self {
                server: Server::of_hours(hours),
                record: Record::default(),
                schedule: Schedule { every, per_day },
                now: START,
                told: Vec::new(),
            }
        }

        fn look(&mut self) {
            let (step, told) = self.record.decide(self.schedule, &self.server.seen(), self.now);
            match step {
                Step::Nothing => {}
                Step::Start(from) => self.server.start(from),
                Step::Stop => self.server.runs = None,
            }
            let is_new = self.told.last().map(|(_, last)| last) != told.as_ref();
            self.told.extend(told.filter(|_| is_new).map(|told| (self.now, told)));
        }

        /// Lets time pass. The volume is looked at when it asks for it.
        fn pass(&mut self, seconds: u64) {
            let end = self.now + seconds;
            while self.now < end {
                self.look();
                let wait = self.record.next_look(self.schedule, self.now);
                assert!(wait >= Duration::from_millis(100) && wait <= IDLE_MAX, "{wait:?}");
                let wait = wait.as_secs().clamp(1, end - self.now);
                self.server.pass(wait);
                self.now += wait;
            }
            self.look();
        }

        /// Hours since the start at which something was told, with it.
        fn hours(&self) -> Vec<(u64, CheckNews)> {
            let hours =
                |(at, told): &(u64, CheckNews)| ((at - START + HOUR / 2) / HOUR, told.clone());
            self.told.iter().map(hours).collect()
        }
    }

    #[test]
    fn checks_begin_one_interval_after_each_other_over_weeks() {
        let mut world = World::new(7 * DAY, None, 5);
        world.server.wrong = vec![0, 70_000, 5 * HOUR * 100 - 1];
        world.pass(28 * DAY - HOUR);
        let week = 7 * 24;
        let expected: Vec<_> = (0..4)
            .flat_map(|n| [(n * week, CheckNews::Begins), (n * week + 5, CheckNews::Ended(3))])
            .collect();
        assert_eq!(world.hours(), expected);
        assert_eq!(world.server.starts, [0; 4]);
        assert_eq!(world.record.last.unwrap().mismatches, 3);
    }

    #[test]
    fn a_check_waits_for_those_with_a_disk_in_common() {
        let disks = |names: &[&str]| names.iter().map(PathBuf::from).collect::<BTreeSet<_>>();
        let running =
            |volume: &str, names: &[&str]| Running { volume: volume.into(), disks: disks(names) };
        let all = [running("home", &["/sda", "/sdb"]), running("tour", &["/sdc"])];
        for (mine, expected) in [
            (&["/sdb", "/sdx"][..], Some("the check of home runs, which has members on sdb too")),
            (&["/sdc"], Some("the check of tour runs, which has members on sdc too")),
            (&["/sdx"], None),
            (&[], None),
        ] {
            assert_eq!(delay(&disks(mine), &all).as_deref(), expected);
            assert_eq!(delay(&disks(mine), &[]), None);
        }
    }

    #[test]
    fn a_delayed_check_begins_when_the_other_one_has_ended() {
        let mut world = World::new(7 * DAY, None, 5);
        world.server.delay = Some("tour");
        world.pass(3 * HOUR);
        assert_eq!(world.hours(), [(0, CheckNews::Waits("tour".into()))]);
        assert_eq!(world.record, Record::default(), "it has not begun");
        world.server.delay = None;
        world.pass(HOUR);
        assert_eq!(world.hours()[1..], [(3, CheckNews::Begins)]);
        // One that runs goes on.
        world.server.delay = Some("tour");
        world.pass(10 * HOUR);
        assert_eq!(world.hours()[2..], [(8, CheckNews::Ended(0))]);
    }

    /// Two checks of the same hours each day, on one disk, take turns: the one that was delayed has
    /// its whole time of the day afterwards.
    #[test]
    fn a_check_that_was_delayed_has_its_whole_time_of_the_day() {
        let mut world = World::new(30 * DAY, Some(6 * HOUR), 15);
        world.pass(20 * HOUR);
        world.server.delay = Some("tour");
        world.pass(10 * HOUR);
        world.server.delay = None;
        world.pass(20 * HOUR);
        let hours: Vec<u64> = world.hours().iter().map(|(hour, _)| *hour).collect();
        assert_eq!(hours, [0, 6, 24, 30, 36], "{:?}", world.told);
    }

    #[test]
    fn a_check_pauses_each_day_and_what_it_found_is_added_up() {
        let mut world = World::new(30 * DAY, Some(6 * HOUR), 15);
        let hour = 100 * HOUR;
        world.server.wrong = vec![hour, 2 * hour, 7 * hour, 14 * hour];
        world.pass(29 * DAY);
        let hours: Vec<u64> = world.hours().iter().map(|(hour, _)| *hour).collect();
        assert_eq!(hours, [0, 6, 24, 30, 48, 51], "{:?}", world.told);
        let starts: Vec<u64> = world.server.starts.iter().map(|at| at.div_ceil(hour)).collect();
        assert_eq!(starts, [0, 6, 12], "in hours of checking");
        assert_eq!(world.told.last().unwrap().1, CheckNews::Ended(4));
        world.pass(2 * DAY);
        assert_eq!(world.server.starts.len(), 5, "the next month");
        assert_eq!(world.server.starts[3], 0);
    }

    #[test]
    fn a_check_goes_on_with_another_server_and_with_another_daemon() {
        let mut world = World::new(7 * DAY, None, 10);
        world.server.wrong = vec![5, 3_000_000];
        world.pass(3 * HOUR);
        // The daemon is killed, and the server serves on: the next daemon has the record alone.
        world.record = Record::from_text(&world.record.to_text("u"), "u").unwrap();
        world.server.pass(HOUR);
        world.now += HOUR;
        world.pass(10);
        assert_eq!(world.server.starts, [0]);
        // Both are killed.
        world.server.restart();
        let position = world.record.pass.as_ref().unwrap().position;
        assert!(position.abs_diff(4 * HOUR * 100) < 5000, "{position}");
        world.pass(7 * HOUR);
        assert_eq!(world.server.starts, [0, position]);
        let told: Vec<CheckNews> = world.told.iter().map(|(_, told)| told.clone()).collect();
        let (interrupted, on) = (CheckNews::Interrupted(position), CheckNews::GoesOn(position));
        assert_eq!(told, [CheckNews::Begins, interrupted, on, CheckNews::Ended(2)]);
        // Without the record the next one begins at once, and at the beginning.
        world.record = Record::default();
        world.server.restart();
        world.pass(60);
        assert_eq!(world.server.starts, [0, position, 0]);
    }

    #[test]
    fn other_syncs_of_a_new_server_are_not_taken_for_the_check() {
        let mut world = World::new(7 * DAY, None, 10);
        world.pass(HOUR);
        let position = world.record.pass.as_ref().unwrap().position;
        // A resync after the crash has passed everything before the volume is looked at.
        world.server.restart();
        (world.server.number, world.server.done) = (1, world.server.total);
        world.pass(60);
        assert_eq!(world.server.starts, [0, position]);
        assert_eq!(world.record.last, None);
        // So has a rebuild that came after the check in the same server.
        world.server.runs = None;
        (world.server.number, world.server.is_check) = (world.server.number + 1, false);
        world.server.done = world.server.total;
        world.pass(60);
        assert_eq!((world.server.starts.len(), world.record.last), (3, None));
    }

    #[test]
    fn a_check_that_is_stopped_by_hand_waits_until_the_next_is_due() {
        let mut world = World::new(7 * DAY, Some(8 * HOUR), 10);
        world.pass(2 * HOUR);
        world.server.runs = None;
        let position = world.server.done;
        world.pass(6 * DAY);
        assert_eq!(world.server.starts, [0], "{:?}", world.told);
        assert_eq!(world.told.last().unwrap().1, CheckNews::Halted(position));
        world.pass(2 * DAY);
        assert_eq!(world.server.starts, [0, position]);
        assert_eq!(world.told.last().unwrap().1, CheckNews::Ended(0));
        world.pass(6 * DAY);
        assert_eq!(world.server.starts, [0, position, 0], "{:?}", world.told);
    }

    #[test]
    fn nothing_starts_while_there_is_an_obstacle_and_a_running_check_makes_way() {
        let mut world = World::new(7 * DAY, None, 10);
        world.server.obstacle = Some("degraded");
        world.pass(3 * DAY);
        assert_eq!(world.server.starts, [] as [u64; 0]);
        assert_eq!(world.hours(), [(0, CheckNews::Waits("degraded".into()))]);
        world.server.obstacle = None;
        world.pass(HOUR);
        world.server.obstacle = Some("degraded");
        world.pass(DAY);
        assert_eq!((world.server.starts.len(), world.server.runs), (1, None));
        world.server.obstacle = None;
        world.pass(DAY);
        assert_eq!(world.server.starts.len(), 2);
        let end = &world.told.last().unwrap().1;
        assert_eq!(end, &CheckNews::Ended(0), "{:?}", world.told);
        // A check that another one started is waited for.
        world.pass(4 * DAY + 15 * HOUR);
        world.server.start(0);
        world.pass(9 * HOUR);
        assert_eq!(world.server.starts.len(), 3, "{:?}", world.told);
        assert_eq!(world.told.last().unwrap().1, CheckNews::Waits("another check runs".into()));
        world.pass(2 * HOUR);
        assert_eq!(world.server.starts.len(), 4);
    }

    #[test]
    fn a_clock_that_jumps_makes_no_more_than_one_check_due_and_keeps_none_off() {
        // Ten years forward, then back.
        let mut world = World::new(7 * DAY, None, 5);
        world.pass(DAY);
        world.now += 3650 * DAY;
        world.pass(6 * DAY);
        assert_eq!(world.server.starts.len(), 2);
        world.now -= 3650 * DAY;
        world.pass(6 * DAY);
        assert_eq!(world.server.starts.len(), 2, "{:?}", world.told);
        world.pass(DAY + HOUR);
        assert_eq!(world.server.starts.len(), 3, "one interval after the clock was set back");
        world.pass(6 * DAY);
        assert_eq!(world.server.starts.len(), 3);
        // A machine without a clock of its own is in 1970 until it has asked another one.
        let later = world.now + HOUR;
        world.now = 100;
        world.pass(HOUR);
        world.now = later;
        world.pass(HOUR);
        assert_eq!(world.server.starts.len(), 3, "{:?}", world.told);
    }

    #[test]
    fn a_clock_that_jumps_in_a_part_of_the_day_costs_at_most_a_day() {
        for (jump, back) in [(400 * DAY, false), (400 * DAY, true), (HOUR, true), (HOUR, false)] {
            for at in [HOUR, 10 * HOUR] {
                let mut world = World::new(1000 * DAY, Some(6 * HOUR), 10);
                world.pass(at);
                world.now = if back { world.now - jump } else { world.now + jump };
                world.pass(2 * DAY + 6 * HOUR);
                assert!(world.record.last.is_some(), "{jump} {back} {at}: {:?}", world.told);
                assert!(world.server.starts.len() <= 3, "{:?}", world.server.starts);
            }
        }
    }

    #[test]
    fn a_volume_of_another_size_is_checked_from_its_beginning() {
        let mut world = World::new(7 * DAY, None, 10);
        world.pass(HOUR);
        world.server.restart();
        world.server.total *= 2;
        world.pass(60);
        assert_eq!(world.server.starts, [0, 0]);
    }

    #[test]
    fn a_start_that_is_refused_is_tried_again() {
        let mut world = World::new(7 * DAY, None, 10);
        world.pass(HOUR);
        world.server.restart();
        world.look();
        let (step, _) = world.record.decide(world.schedule, &world.server.seen(), world.now);
        let Step::Start(from) = step else { panic!("{step:?}") };
        assert!(from > 0);
        world.record.refused(false);
        let (step, _) = world.record.decide(world.schedule, &world.server.seen(), world.now);
        assert_eq!(step, Step::Start(from));
        world.record.refused(true);
        world.look();
        assert_eq!(world.server.starts, [0, 0]);
        // A start that was accepted and never came to be is given up.
        world.server.restart();
        world.look();
        world.record.decide(world.schedule, &world.server.seen(), world.now);
        world.pass(BEGIN_MAX + 30);
        assert_eq!(world.server.starts.len(), 3);
    }

    #[test]
    fn times_are_read_and_written_with_their_units() {
        for (text, expected) in [
            ("never", None),
            ("daily", Some(DAY)),
            ("weekly", Some(7 * DAY)),
            ("monthly", Some(30 * DAY)),
            ("2s", Some(2)),
            ("90min", Some(5400)),
            ("12h", Some(12 * HOUR)),
            ("3650d", Some(3650 * DAY)),
            ("2w", Some(14 * DAY)),
        ] {
            assert_eq!(interval(text), Ok(expected), "{text}");
        }
        for wrong in [
            "",
            "s",
            "0s",
            "1",
            "3651d",
            "-1d",
            "1m",
            "1.5d",
            "99999999999999999999d",
            "é",
            "Daily",
        ] {
            let why = interval(wrong).unwrap_err();
            assert!(why.contains("expected never, daily, weekly, monthly, or a time"), "{why}");
        }
        assert_eq!((part_of_day("6h"), part_of_day("1s")), (Ok(6 * HOUR), Ok(1)));
        for wrong in ["", "24h", "1d", "0s", "never", "daily"] {
            assert!(part_of_day(wrong).unwrap_err().contains("less than a day"), "{wrong}");
        }
        let texts = [2, 60, 5400, DAY, 7 * DAY, 30 * DAY + 1].map(exact);
        assert_eq!(texts, ["2s", "1min", "90min", "1d", "7d", "2592001s"]);
        assert_eq!([0, 59, 3599, 2 * DAY + 5].map(about), ["0 s", "59 s", "59 min", "2 d"]);
    }
}
