//! Sweeps: many seeds of every kind of run, on all CPUs, with counts of the simulated events.
//!
//! Each item of work is determined by its kind and its number. The kinds are: scripts of a
//! [`Profile`] and a seed; the small scope of one array ([`crate::scope`]); steady load, which is
//! thousands of requests without a fault, many of them outstanding, spread over a larger array;
//! load with members that fail and are rebuilt; and silent faults, which a check must count.
//! [`run`] carries out a list of items on all CPUs and sums the counts. The order of the items does
//! not change the result.

mod faulty;
mod features;
mod silent;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use weft_engine::knobs::Knobs;
use weft_engine::{Flags, PartlyWritten, RequestOp};
use weft_ondisk::Level;
use weft_units::rng::Rng;
use weft_units::{ByteRange, ClientId, Span};

use crate::checker::parity::Bytes;
use crate::chunk_kib;
use crate::crash::Coverage;
use crate::disk::IoErrors;
use crate::excuses::ExcuseCounts;
use crate::model::Payload;
use crate::options::Options;
use crate::payload::PayloadMode;
use crate::scope::{Budget, Search, Start, begin, policies};
use crate::script::{self, Profile, Script, levels};
use crate::world::Order;
use crate::world::World;
pub use features::{Feature, Met, PAIRS};
pub use silent::Silent;

/// An item of work of a sweep.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// The script of a seed under a profile.
    Seed(Profile, u64),
    /// Power cuts in sampled states of short scripts, on an array that the number chooses.
    Scope(u64),
    /// Load without faults, on an array that the number chooses.
    Steady(u64),
    /// Load while members fail, return and are rebuilt, on an array that the number chooses.
    Faulty(u64),
    /// Lost, misdirected and stale writes, which a check must count, on an array that the number
    /// chooses.
    Silent(u64),
    /// [`Work::Scope`] for levels without parity.
    StraightScope(u64),
    /// [`Work::Steady`] for levels without parity.
    StraightSteady(u64),
    /// [`Work::Faulty`] for mirrors.
    StraightFaulty(u64),
}

/// Counts of a sweep, and its failures.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Number of scripts of profiles that were run, one for each seed.
    pub seeds: u64,
    /// Number of scripts of profiles with disk faults.
    pub fault_seeds: u64,
    /// Number of scripts of levels without parity.
    pub straight_seeds: u64,
    /// Number of power cuts and process crashes in scripts of levels without parity.
    pub straight_points: u64,
    /// Number of scripts of profiles in which arrays have a bitmap.
    pub bitmap_seeds: u64,
    /// Number of power cuts and process crashes in scripts with a bitmap.
    pub bitmap_points: u64,
    /// Number of periods of some seconds in which disks had no space.
    pub lacks: u64,
    /// Number of scripts in which a re-added member and a fresh one were rebuilt together.
    pub rebuilt_beside: u64,
    /// Number of scripts that combine each pair of features.
    pub met: Met,
    /// Number of client requests that were answered.
    pub requests: u64,
    /// Number of requests of bare volumes (disks served unchanged, beside the array) that were
    /// answered.
    pub bare_requests: u64,
    /// Number of requests of second arrays, beside the first in one engine, that were answered.
    pub second_requests: u64,
    /// Number of answered requests of scripts in which drive models determine when requests are
    /// done.
    pub drive_requests: u64,
    /// Number of power cuts and process crashes in scripts in which drive models determine when
    /// requests are done.
    pub drive_points: u64,
    /// Number of answered requests of steady loads.
    pub steady_requests: u64,
    /// Number of answered requests of loads with faults, and of scripts of profiles with disk
    /// faults.
    pub faulty_requests: u64,
    /// Number of answered requests of loads, steady or with faults, on arrays without parity.
    pub straight_requests: u64,
    /// Number of answered requests of loads with faults on mirrors.
    pub straight_faulty_requests: u64,
    /// Number of distinct states of short scripts in which the power was cut, of levels without
    /// parity.
    pub straight_scope_states: u64,
    /// Member requests that failed with an I/O error.
    pub io_errors: IoErrors,
    /// Counts of silent faults that were planted and found.
    pub silent: Silent,
    /// Number of stops of an array by an administrator that succeeded.
    pub stops: u64,
    /// Number of distinct states of short scripts in which the power was cut.
    pub scope_states: u64,
    /// Counts of power cuts, by their circumstances. A small scope cuts the power or crashes the
    /// process several times in each of its states.
    pub coverage: Coverage,
    /// Counts of checks in scripts that accepted content which clients' writes alone do not
    /// explain: the excuses.
    pub excuses: ExcuseCounts,
    /// Number of process crashes.
    pub kills: u64,
    /// Number of sectors that were read back and found right.
    pub verified: u64,
    /// Counts of the runs of dirty pages of which write-back caches wrote only some parts.
    pub partly_written: PartlyWritten,
    /// Number of blocks that were written again at the end of scripts that leave an array without
    /// redundancy.
    pub written_again: u64,
    /// Number of columns with data in which parity or copies were checked and found right.
    pub scrubbed: u64,
    /// Texts of failures, each with the command that replays it.
    pub failures: Vec<String>,
    /// Profile and seed of each script that failed.
    pub failing: Vec<(Profile, u64)>,
}

/// Number of failures that are tolerated among `scripts` scripts of new seeds: one in 1,000. So few
/// failures come from bugs that the code already had; each is reported and stored. A change that
/// breaks something makes more scripts fail. A failure that breaks a promise about data
/// ([`crate::kept::Kept::breaks_data`]) is never tolerated.
#[must_use]
pub fn fresh_failures_max(scripts: u64) -> u64 {
    scripts / 1000
}

impl Work {
    /// Items for the `seeds` seeds from `first` on under each profile, and for a twenty-fifth as
    /// many numbers of each other kind. A load takes as much CPU time as a hundred scripts.
    #[must_use]
    pub fn of_sweep(first: u64, seeds: u64) -> Vec<Self> {
        let numbers = first..first + seeds;
        let scripts =
            numbers.clone().flat_map(|seed| Profile::every().map(move |it| Self::Seed(it, seed)));
        let few = first..first + seeds.div_ceil(25);
        let scopes = few.clone().map(Self::Scope);
        let loads = few.clone().map(Self::Steady).chain(few.clone().map(Self::Faulty));
        let straight = few.clone().map(Self::StraightSteady);
        let straight = straight.chain(few.clone().map(Self::StraightFaulty));
        let straight = straight.chain(few.clone().map(Self::StraightScope));
        let silent = few.clone().map(Self::Silent);
        scopes.chain(loads).chain(silent).chain(straight).chain(scripts).collect()
    }

    /// Carries out this item of work. Returns its counts, in which a violation or panic is a
    /// failure.
    #[must_use]
    pub fn run(self) -> Totals {
        match catch_unwind(AssertUnwindSafe(|| self.perform())) {
            Ok(Ok(totals)) => totals,
            Ok(Err(text)) => self.failed(&text),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(|it| (*it).to_owned()));
                self.failed(&text.unwrap_or_default())
            }
        }
    }

    fn perform(self) -> Result<Totals, String> {
        match self {
            Self::Seed(profile, seed) => seed_of(profile, seed),
            Self::Scope(number) => Ok(scope(number)),
            Self::StraightScope(number) => {
                let totals = straight_scope(number);
                Ok(Totals { straight_scope_states: totals.scope_states, ..totals })
            }
            Self::Steady(number) => steady(number, false),
            Self::StraightSteady(number) => {
                let totals = steady(number, true)?;
                Ok(Totals { straight_requests: totals.requests, ..totals })
            }
            Self::Faulty(number) => faulty::faulty(number, false),
            Self::StraightFaulty(number) => {
                let totals = faulty::faulty(number, true)?;
                let (straight_requests, straight_faulty_requests) =
                    (totals.requests, totals.faulty_requests);
                Ok(Totals { straight_requests, straight_faulty_requests, ..totals })
            }
            Self::Silent(number) => silent::silent(number),
        }
    }

    fn failed(self, text: &str) -> Totals {
        // A script's failure already says how to replay it.
        let again = match self {
            Self::Seed(..) if text.contains("replay: ") => String::new(),
            Self::Seed(profile, seed) => format!("\n{REPLAY} {} {seed}", profile.name),
            Self::Scope(number) => format!("\n{REPLAY} scope {number}"),
            Self::Steady(number) => format!("\n{REPLAY} steady {number}"),
            Self::Faulty(number) => format!("\n{REPLAY} faulty {number}"),
            Self::Silent(number) => format!("\n{REPLAY} silent {number}"),
            Self::StraightScope(number) => format!("\n{REPLAY} straight-scope {number}"),
            Self::StraightSteady(number) => format!("\n{REPLAY} straight-steady {number}"),
            Self::StraightFaulty(number) => format!("\n{REPLAY} straight-faulty {number}"),
        };
        let failing = match self {
            Self::Seed(profile, seed) => vec![(profile, seed)],
            _ => Vec::new(),
        };
        Totals { failures: vec![format!("{text}{again}")], failing, ..Totals::default() }
    }

    /// Item of work with this number, of the kind with this name: the name of a profile, `scope`,
    /// `steady`, `faulty` or `silent`. `scope`, `steady` and `faulty` may have the prefix
    /// `straight-`. `None` if no kind has this name.
    #[must_use]
    pub fn named(name: &str, number: u64) -> Option<Self> {
        match name {
            "scope" => Some(Self::Scope(number)),
            "steady" => Some(Self::Steady(number)),
            "faulty" => Some(Self::Faulty(number)),
            "silent" => Some(Self::Silent(number)),
            "straight-scope" => Some(Self::StraightScope(number)),
            "straight-steady" => Some(Self::StraightSteady(number)),
            "straight-faulty" => Some(Self::StraightFaulty(number)),
            _ => {
                let profile = Profile::every().find(|profile| profile.name == name);
                profile.map(|profile| Self::Seed(profile, number))
            }
        }
    }
}

impl Totals {
    /// Adds the counts and failures of another run.
    pub fn merge(&mut self, other: Self) {
        self.seeds += other.seeds;
        self.fault_seeds += other.fault_seeds;
        self.straight_seeds += other.straight_seeds;
        self.straight_points += other.straight_points;
        self.bitmap_seeds += other.bitmap_seeds;
        self.bitmap_points += other.bitmap_points;
        self.lacks += other.lacks;
        self.partly_written += other.partly_written;
        self.rebuilt_beside += other.rebuilt_beside;
        self.met.merge(other.met);
        self.requests += other.requests;
        self.bare_requests += other.bare_requests;
        self.second_requests += other.second_requests;
        self.drive_requests += other.drive_requests;
        self.drive_points += other.drive_points;
        self.steady_requests += other.steady_requests;
        self.faulty_requests += other.faulty_requests;
        self.straight_requests += other.straight_requests;
        self.straight_faulty_requests += other.straight_faulty_requests;
        self.straight_scope_states += other.straight_scope_states;
        self.io_errors.merge(other.io_errors);
        self.silent.merge(other.silent);
        self.stops += other.stops;
        self.scope_states += other.scope_states;
        self.coverage.merge(other.coverage);
        self.excuses.merge(other.excuses);
        self.kills += other.kills;
        self.verified += other.verified;
        self.written_again += other.written_again;
        self.scrubbed += other.scrubbed;
        self.failures.extend(other.failures);
        self.failing.extend(other.failing);
    }

    /// Number of power cuts and process crashes. The content was verified after each of them.
    #[must_use]
    pub fn crash_points(&self) -> u64 {
        self.coverage.points + self.kills
    }
}

/// Carries out all work on `threads` threads, and returns the sum of the counts. After each item,
/// `progress` receives the number of finished items and the totals so far.
#[must_use]
pub fn run(work: &[Work], threads: usize, progress: &(dyn Fn(usize, &Totals) + Sync)) -> Totals {
    let next = AtomicUsize::new(0);
    let sum = Mutex::new((0, Totals::default()));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(work) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let totals = work.run();
                    let mut sum = sum.lock().expect("work is done outside of the lock");
                    sum.0 += 1;
                    sum.1.merge(totals);
                    progress(sum.0, &sum.1);
                }
            });
        }
    });
    let (_, mut totals) = sum.into_inner().expect("work is done outside of the lock");
    totals.failures.sort();
    totals.failing.sort_by_key(|(profile, seed)| (profile.name, *seed));
    totals
}

fn seed_of(profile: Profile, seed: u64) -> Result<Totals, String> {
    let script = Script::generate(seed, profile);
    let report = script.run().map_err(|it| it.to_string())?;
    let points = report.coverage.points + report.kills;
    Ok(Totals {
        seeds: 1,
        fault_seeds: u64::from(profile.faults),
        straight_seeds: u64::from(profile.straight),
        straight_points: if profile.straight { points } else { 0 },
        bitmap_seeds: u64::from(profile.bitmaps),
        bitmap_points: if profile.bitmaps { points } else { 0 },
        lacks: report.lacks,
        partly_written: report.partly_written,
        rebuilt_beside: report.rebuilt_beside,
        met: Met::of(&script),
        requests: report.requests,
        bare_requests: if profile.bare { report.bare_requests } else { 0 },
        second_requests: if profile.two_arrays { report.bare_requests } else { 0 },
        drive_requests: if profile.drives { report.requests } else { 0 },
        drive_points: if profile.drives { points } else { 0 },
        faulty_requests: if profile.faults { report.requests } else { 0 },
        io_errors: report.io_errors,
        stops: report.stops,
        coverage: report.coverage,
        excuses: report.excuses,
        kills: report.kills,
        verified: report.verified,
        written_again: if profile.last_copy { report.written_again } else { 0 },
        scrubbed: report.scrubbed,
        ..Totals::default()
    })
}

/// Searches sampled states of short scripts ([`crate::scope`]), with the policy, the level and the
/// initial state of the array that `number` chooses. Returns the counts.
fn scope(number: u64) -> Totals {
    let policies = policies();
    let (name, knobs) = policies[number as usize % policies.len()];
    let shapes = &levels::PARITY_SHAPES;
    let (level, members) = shapes[number as usize / policies.len() % shapes.len()];
    let mut options = Options::new(level, members, chunk_kib(8));
    options.knobs = knobs;
    options.discards = number.is_multiple_of(2);
    scope_of(number, options, Start::ALL[number as usize % 3], name)
}

/// Searches sampled states of short scripts ([`crate::scope`]), with the level without parity and
/// the initial state of the array that `number` chooses. Returns the counts.
fn straight_scope(number: u64) -> Totals {
    let starts = [Start::Clean, Start::Degraded, Start::Dirty];
    let shapes = &levels::STRAIGHT_SHAPES;
    let (level, members, layout) = shapes[number as usize % shapes.len()];
    let mut options = Options::new(level, members, chunk_kib(4));
    options.layout = layout;
    options.discards = number.is_multiple_of(2);
    let start = starts[number as usize / shapes.len() % 3];
    let start = match start {
        Start::Degraded if !level.uses_size() => Start::Dirty,
        start => start,
    };
    scope_of(number, options, start, "straight")
}

fn scope_of(number: u64, options: Options, start: Start, name: &str) -> Totals {
    let mut search = Search { seed: number, ..Search::default() };
    let shape = format!("{name}, {} x {}", options.level, options.members);
    search.run_scripts(&begin(options, start), SCOPE_BUDGET, &shape);
    Totals {
        scope_states: search.states,
        coverage: search.coverage,
        kills: search.kills,
        verified: search.verified,
        scrubbed: search.scrubbed,
        ..Totals::default()
    }
}

/// A random request of a load. Of 100 requests 58 are writes, `fua` of them with FUA.
fn ask(rng: &mut Rng, blocks: u64, fua: u64) -> (RequestOp, ByteRange, Flags) {
    let sync = Flags { sync: true, ..Flags::NONE };
    let block = if rng.percent(50) { rng.below(blocks) } else { rng.below(blocks / 8) };
    let length = match rng.below(100) {
        0..=79 => 4096,
        80..=89 => 512 * (1 + rng.below(7)),
        _ => 4096 * (1 + rng.below(16)),
    };
    let length = length.min((blocks - block) * 4096);
    let place = ByteRange::new(block * 4096, length);
    match rng.below(100) {
        kind @ 0..=57 => (RequestOp::Write, place, Flags { fua: kind >= 58 - fua, ..sync }),
        58..=95 => (RequestOp::Read, place, sync),
        96..=97 => (RequestOp::Flush, ByteRange::default(), sync),
        98 => (RequestOp::WriteZeroes, place, sync),
        _ => (RequestOp::Trim, place, sync),
    }
}

/// Smallest number of members of an array of this level in a sweep: at least three, so that two
/// hold data.
fn members_min(level: Level) -> usize {
    level.row().members_min.max(3) as usize
}

/// Runs a load of four clients with [`DEPTH`] requests at a time; at the end everything is read and
/// all parity recomputed. Returns the counts, or the description of a failure.
fn steady(number: u64, straight: bool) -> Result<Totals, String> {
    let mut rng = Rng::new(number ^ 0x57ea_d1e5);
    let level = rng.pick(&levels::PARITY);
    let members = rng.pick(&[3, 4, 4, 5, 8]).max(members_min(level));
    let mut options = Options::new(level, members, chunk_kib(rng.pick(&[16, 64])));
    options.payload = PayloadMode::Tags;
    options.seed = number;
    options.full_stripes = STEADY_FULL_STRIPES;
    options.discards = rng.percent(50);
    options.knobs = if rng.percent(50) { Knobs::md() } else { Knobs::default() };
    let order = rng.pick(&[Order::Fifo, Order::Fifo, Order::Lifo, Order::Random]);
    if straight {
        script::straight::draw(number, false, &mut options);
    }
    let mut world = World::new(options);
    let blocks = world.size() / 4096;
    for number in 0..STEADY_REQUESTS {
        let (op, range, flags) = ask(&mut rng, blocks, 3);
        world.request(ClientId(1 + (number % 4) as u32), op, range, Payload::Tags, flags);
        world.settle();
        while world.unanswered() >= DEPTH && world.failure().is_none() {
            if !world.step(order) && !world.wake() {
                return Err(format!("{} requests are never answered", world.unanswered()));
            }
        }
    }
    world.run(order);
    let requests = world.requests_answered();
    let verified = world.verify(Order::Fifo);
    world.idle(Span::secs(60));
    let scrub = world.scrub(Bytes::Visible);
    match (world.failure(), scrub.wrong.first()) {
        (Some(violation), _) => return Err(violation.to_string()),
        (None, Some(column)) => {
            return Err(format!("at rest the parity or copies of column {column} are wrong"));
        }
        (None, None) => {}
    }
    if requests < STEADY_REQUESTS {
        return Err(format!("{requests} requests answered, expected {STEADY_REQUESTS}"));
    }
    Ok(Totals {
        requests,
        steady_requests: requests,
        verified,
        scrubbed: scrub.written,
        ..Totals::default()
    })
}

const REPLAY: &str = "replay: cargo run --release -p weft-crash --example sweep -- replay";
/// Limits on the search of one small scope: up to 56 of its possible scripts are run.
const SCOPE_BUDGET: Budget = Budget { operations: 2, scripts: 56, walks: 6, states: 6, cuts: 2 };
/// Number of requests of a steady load.
const STEADY_REQUESTS: u64 = 20_000;
/// Number of full stripes of the array of a steady load: a few MiB per member.
const STEADY_FULL_STRIPES: u64 = 64;
/// Largest number of requests that a load has outstanding.
const DEPTH: usize = 32;
