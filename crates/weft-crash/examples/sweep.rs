//! Sweeps from the command line: many simulated runs, counted, with floors for CI.
//!
//! The commands are: `fresh FIRST SEEDS FOLDER`, which CI runs, with floors and ceilings on the
//! counts and the golden digest, and which shrinks failing scripts and stores them; `bugs SCRIPTS`,
//! which shows which checker detects which planted bug; `run FIRST SEEDS`, which runs more seeds
//! for the ledger (`cargo xtask sweep`); `scripts FIRST SEEDS`, which runs only the scripts of
//! profiles; `replay NAME NUMBER` and `replay FILE`, which repeat one item of work or the script of
//! a file; `shrink PROFILE SEED` and `shrink FILE`, which reduce a failing script to the fewest
//! steps; and `text PROFILE SEED`, which prints the script of a seed.
#![allow(clippy::cast_possible_truncation, reason = "counts of a simulation are small")]

use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use weft_crash::World;
use weft_crash::bugs::{CHECKERS, hunt};
use weft_crash::excuses::{CACHED_WRONG_MAX, ExcuseCounts};
use weft_crash::golden;
use weft_crash::kept::{self, Kept};
use weft_crash::script::{Profile, Script};
use weft_crash::shrink::shrink;
use weft_crash::sweep::{PAIRS, Silent, Totals, Work, fresh_failures_max, run};
use weft_engine::mutant::Mutant;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["bugs", scripts] => scripts.parse().map_or_else(|_| usage(), |it| matrix(it, "")),
        ["bugs", scripts, name] => scripts.parse().map_or_else(|_| usage(), |it| matrix(it, name)),
        ["scripts", first, seeds] => match (first.parse(), seeds.parse()) {
            (Ok(first), Ok(seeds)) => scripts(first, seeds),
            _ => usage(),
        },
        ["run", first, seeds] => match (first.parse(), seeds.parse()) {
            (Ok(first), Ok(seeds)) => sweep(first, seeds),
            _ => usage(),
        },
        ["fresh", first, seeds, folder] => match (first.parse(), seeds.parse()) {
            (Ok(first), Ok(seeds)) => fresh(first, seeds, Path::new(folder)),
            _ => usage(),
        },
        ["replay", file] => of_file(file, &again),
        ["shrink", file] => of_file(file, &shortest),
        ["text", name, number] => match named(name, number) {
            Some(Work::Seed(profile, seed)) => {
                print!("{}", Script::generate(seed, profile));
                ExitCode::SUCCESS
            }
            _ => usage(),
        },
        ["replay", name, number] => match named(name, number) {
            Some(work) => replay(work),
            None => usage(),
        },
        ["shrink", name, number] => match named(name, number) {
            Some(Work::Seed(profile, seed)) => shortest(&Script::generate(seed, profile)),
            _ => usage(),
        },
        _ => usage(),
    }
}

fn named(name: &str, number: &str) -> Option<Work> {
    number.parse().ok().and_then(|number| Work::named(name, number))
}

fn usage() -> ExitCode {
    eprintln!(
        "usage: sweep fresh FIRST SEEDS FOLDER | bugs SCRIPTS [NAME] | run FIRST SEEDS | \
         scripts FIRST SEEDS | \
         replay NAME NUMBER | replay FILE | shrink PROFILE SEED | shrink FILE | text PROFILE SEED"
    );
    ExitCode::from(2)
}

/// A count with a floor: name, count, floor and details. A count below its floor means that checks
/// had too little to judge. Floors lie four standard deviations or more below the usual count, so
/// that chance alone does not miss them.
struct Gate(&'static str, u64, u64, String);

/// A count with a ceiling: name, count, ceiling and details.
struct Ceiling(&'static str, u64, u64, String);

/// Prints all counts with their floors and ceilings, and the golden digest, and repeats at the end
/// the ones that are out of bounds. Returns whether all are as expected.
fn are_counts_right(totals: &Totals) -> bool {
    let mut wrong = Vec::new();
    for Gate(name, found, floor, detail) in gates(totals) {
        let verdict = if found < floor { "TOO FEW" } else { "ok" };
        let told = format!("{verdict:<8}  {found:>10}  {name}, at least {floor} ({detail})");
        println!("{told}");
        wrong.extend((found < floor).then_some(told));
    }
    for Ceiling(name, found, ceiling, detail) in ceilings(totals.excuses) {
        let verdict = if found > ceiling { "TOO MANY" } else { "ok" };
        let told = format!("{verdict:<8}  {found:>10}  {name}, at most {ceiling} ({detail})");
        println!("{told}");
        wrong.extend((found > ceiling).then_some(told));
    }
    let (digest, recorded) = (golden::found(), golden::RECORDED.trim());
    let runs = golden::SEEDS.count();
    println!("digest of {runs} golden runs: found {digest}, expected {recorded}");
    wrong.iter().for_each(|told| println!("{told}"));
    wrong.is_empty() && digest == recorded
}

/// Counts of events, each with the floor that CI requires, so that the simulations reach every kind
/// of event often enough.
fn gates(totals: &Totals) -> Vec<Gate> {
    let cuts = totals.coverage;
    let (errors, silent) = (totals.io_errors, totals.silent);
    let of_members = format!("{} failed writes left something", errors.landed);
    let of_cuts = |name, count: u64, floor| {
        Gate(name, cuts.percent(count), floor, format!("{count} of {} cuts", cuts.points))
    };
    let mut gates = Vec::from(gates_of_levels(totals));
    gates.extend(gates_of_pairs(totals));
    gates.extend(gates_of_ends(totals));
    gates.extend([
        Gate("simulated I/Os", totals.requests, 5_000_000, {
            let verified = totals.verified;
            format!("{} of steady load; {verified} sectors read back", totals.steady_requests)
        }),
        Gate(
            "% of them under faults",
            totals.faulty_requests * 100 / totals.requests.max(1),
            20,
            {
                let under = totals.faulty_requests;
                format!("{under} under faults, {} without", totals.requests - under)
            },
        ),
        Gate("fault seeds", totals.fault_seeds, 1_000, format!("of {} seeds", totals.seeds)),
        Gate("crash points", totals.crash_points(), 20_000, {
            let (states, kills) = (totals.scope_states, totals.kills);
            format!("{states} sampled states of short scripts; {kills} deaths of the process alone")
        }),
        of_cuts("% half-written stripes", cuts.half_written_stripe, 20),
        of_cuts("% strict subsets", cuts.strict_subset, 20),
        of_cuts("% inside metadata", cuts.inside_metadata, 10),
        of_cuts("% during resync", cuts.during_sync, 5),
        Gate("% judged by I6", cuts.percent(cuts.judged), 25, {
            let (columns, degraded) = (cuts.judged_columns, cuts.judged_degraded);
            format!(
                "{} of {} cuts, {columns} columns; {degraded} of arrays that lack a member",
                cuts.judged, cuts.points
            )
        }),
        Gate("cuts judged by what superblocks say", cuts.judged_promised, 100, "by I6".to_owned()),
        Gate("of them by where a resync was", cuts.judged_partly, 20, "stops included".to_owned()),
        Gate("I/O errors at flushes", errors.flushes, 100, of_members.clone()),
        Gate("I/O errors at superblocks", errors.superblocks, 100, of_members.clone()),
        Gate("I/O errors at data writes", errors.writes, 100, of_members.clone()),
        Gate("I/O errors at FUA writes", errors.fua_writes, 100, of_members),
        Gate("silent faults counted", silent.counted, 20, {
            let Silent { lost, elsewhere, other_member, stale, .. } = silent;
            format!(
                "stripes; {lost} writes lost, {elsewhere} to another place, {other_member} to \
                 another member, {stale} stale"
            )
        }),
        Gate("of them located", silent.located, 5, "on RAID 6, all that were planted".to_owned()),
        Gate("write holes found wrong", cuts.hole_wrong, 100, {
            format!("of {} sectors that were predicted", cuts.hole_predicted)
        }),
        Gate("columns that disagreed", totals.excuses.disagreed, 10_000, {
            format!("of {} measured after cuts, by scripts", totals.excuses.measured)
        }),
        Gate(
            "columns recomputed",
            totals.scrubbed,
            1_000_000,
            "each with its parity right".to_owned(),
        ),
    ]);
    gates
}

/// Floors for events around the end of a run: torn superblocks, assemblies that need consent,
/// drains of the cache, stops, writes to the last members; for runs with bare volumes and with
/// drives; and for runs of pages that are written only in part.
fn gates_of_ends(totals: &Totals) -> [Gate; 12] {
    let (cuts, parts) = (totals.coverage, totals.partly_written);
    [
        Gate("dirty and degraded, refused", cuts.consents, 1_000, "until there was consent".into()),
        Gate("superblocks torn at a cut", cuts.torn_superblocks, 100, {
            let (refused, given_up) = (cuts.refused, cuts.given_up);
            format!("{refused} arrays without enough of them, {given_up} scripts ended by it")
        }),
        Gate("superblocks unreadable", cuts.unreadable_superblocks, 100, "at assembly".to_owned()),
        Gate("drains of the cache answered", cuts.drains, 1_000, {
            format!("{} deaths of the process", totals.kills)
        }),
        Gate("blocks written to the last members", totals.written_again, 1_000, {
            "where no more of them could be done without".to_owned()
        }),
        Gate("requests of bare volumes", totals.bare_requests, 2_000, "beside arrays".to_owned()),
        Gate("requests of second arrays", totals.second_requests, 2_000, "in one engine".into()),
        Gate("requests on drives", totals.drive_requests, 20_000, "in their own time".to_owned()),
        Gate("crash points on drives", totals.drive_points, 1_500, "of them".to_owned()),
        Gate("arrays stopped", totals.stops, 1_000, "and found clean and durable".to_owned()),
        Gate(
            "runs with an error in a part",
            parts.errors,
            15,
            "of the write-back cache".to_owned(),
        ),
        Gate(
            "runs without space for a part",
            parts.lacks,
            15,
            "of the write-back cache".to_owned(),
        ),
    ]
}

/// Floors on the number of scripts that combine two features, one for each of [`PAIRS`].
fn gates_of_pairs(totals: &Totals) -> impl Iterator<Item = Gate> {
    PAIRS.into_iter().zip(totals.met.0).map(|((a, b, floor), met)| {
        Gate("scripts in which a pair met", met, floor, format!("{a:?} and {b:?}"))
    })
}

/// Floors for runs of levels without parity, of arrays with a bitmap, and of members that lack
/// space.
fn gates_of_levels(totals: &Totals) -> [Gate; 15] {
    let cuts = totals.coverage;
    [
        Gate("seeds of every level", totals.seeds, 2_000, "bitmap on and off".to_owned()),
        Gate("seeds without parity", totals.straight_seeds, 2_000, "RAID 0, 1, 10, linear".into()),
        Gate("crash points without parity", totals.straight_points, 5_000, "of them".to_owned()),
        Gate("I/Os of loads without parity", totals.straight_requests, 700_000, {
            format!("{} of them on mirrors under faults", totals.straight_faulty_requests)
        }),
        Gate("of them under faults", totals.straight_faulty_requests, 350_000, "RAID 1, 10".into()),
        Gate("states of short scripts", totals.straight_scope_states, 5_000, {
            format!("without parity, of {} of every level", totals.scope_states)
        }),
        Gate("seeds with a bitmap", totals.bitmap_seeds, 1_000, {
            format!("{} members were taken back by it", cuts.re_added)
        }),
        Gate("crash points with a bitmap", totals.bitmap_points, 3_000, "of them".to_owned()),
        Gate("columns compared by their bits", cuts.judged_by_bits, 100_000, "by I20".to_owned()),
        Gate("members taken back", cuts.re_added, 100, "for what bits say they miss".to_owned()),
        Gate("members replaced", cuts.replaced, 500, {
            format!("while they work; {} replacements failed", cuts.replacements_failed)
        }),
        Gate("bad blocks recorded", cuts.bad_blocks, 2_000, {
            format!("by recoveries that go on; {} blocks not read for them", cuts.lost_blocks)
        }),
        Gate("bad blocks of members in sync", cuts.unwritten_blocks, 5_000, {
            "failed writes, and rewrites that cannot be read back".to_owned()
        }),
        Gate("scripts that rebuilt both at once", totals.rebuilt_beside, 15, {
            "a member that is taken back and a fresh one".to_owned()
        }),
        Gate("lacks of space for seconds", totals.lacks, 1_000, "writes succeed soon after".into()),
    ]
}

/// Ceilings on excuses: counts of contents that checkers accept although the writes of clients
/// alone do not explain them. Each ceiling is somewhat above the count that was measured when the
/// excuse was last made narrower.
fn ceilings(excuses: ExcuseCounts) -> [Ceiling; 6] {
    let ExcuseCounts { read, read_unsure, read_wrong, read_mixed, read_mixed_bytes, .. } = excuses;
    let ExcuseCounts { written, written_wrong, measured, disagreed, too_many, .. } = excuses;
    let ExcuseCounts { ended, ended_cached, ended_cached_wrong, .. } = excuses;
    let share = |part: u64, of: u64, parts: u64| (part * parts).div_ceil(of.max(1));
    [
        Ceiling("of 10,000 sectors read may be wrong", share(read_unsure, read, 10_000), 80, {
            format!("{read_unsure} of {read}, each one of a few contents; {read_wrong} were")
        }),
        Ceiling("of 10,000 sectors read are mixed", share(read_mixed, read, 10_000), 10, {
            format!("{read_mixed} of {read}, of parts that were in flight together")
        }),
        Ceiling("sectors mixed byte by byte", read_mixed_bytes, 10, "too many parts".to_owned()),
        Ceiling(
            "of 100,000 written pass I7 unwritten",
            share(written_wrong, written, 100_000),
            10,
            format!("{written_wrong} of {written}, each what reconstruction gives"),
        ),
        Ceiling("of 10,000 parities not compared", share(too_many, disagreed, 10_000), 20, {
            format!("{too_many} of {disagreed} columns that disagreed, of {measured} measured")
        }),
        Ceiling(
            "of 10,000 columns wrong for the cache",
            share(ended_cached_wrong, ended, 10_000),
            CACHED_WRONG_MAX,
            format!("{ended_cached_wrong} of {ended}; {ended_cached} pass I6 for the cache alone"),
        ),
    ]
}

fn sweep(first: u64, seeds: u64) -> ExitCode {
    let totals = simulate(&Work::of_sweep(first, seeds));
    let (ios, points) = (totals.requests, totals.crash_points());
    let failures = totals.failures.len();
    eprintln!("{:?}", totals.excuses);
    eprintln!("{:?}", totals.coverage);
    // The only line on standard output, which the ledger parses.
    println!(
        "{{\"first\":{first},\"seeds\":{},\"ios\":{ios},\"crash_points\":{points},\"failures\":{failures}}}",
        totals.seeds
    );
    finish(&totals)
}

/// Runs a sweep, and judges its counts. Shrinks its failing scripts and writes them to a folder.
fn fresh(first: u64, seeds: u64, folder: &Path) -> ExitCode {
    println!("fresh seeds: {first} to {} of each profile", first + seeds - 1);
    let totals = simulate(&Work::of_sweep(first, seeds));
    println!(
        "{} scripts, {} I/Os, {} crash points, {} failures",
        totals.seeds,
        totals.requests,
        totals.crash_points(),
        totals.failures.len()
    );
    let right = are_counts_right(&totals);
    // A failure of work without a script cannot be stored in the folder, so it never passes.
    let mut never_pass = totals.failures.len() - totals.failing.len();
    for (profile, seed) in &totals.failing {
        match keep(*profile, *seed, folder) {
            Ok((path, true)) => {
                never_pass += 1;
                println!(
                    "{path}: shrunk; it breaks a promise about data: mend it and keep it in \
                     crates/weft-crash/scripts/regressions"
                );
            }
            Ok((path, false)) => println!(
                "{path}: shrunk; mend it and keep it in crates/weft-crash/scripts/regressions, or tell \
                 its story and keep it in crates/weft-crash/scripts/open"
            ),
            Err(error) => {
                never_pass += 1;
                eprintln!("{}: {error}", folder.display());
            }
        }
    }
    let failures = totals.failures.len() as u64;
    let most = fresh_failures_max(totals.seeds);
    tell_failures(&totals);
    println!(
        "{failures} failures, at most {most} pass, and of the {never_pass} that break a promise \
         about data or have no script none"
    );
    let passes = totals.seeds > 0 && failures <= most && never_pass == 0;
    if passes && right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Writes the shortest failing script of a seed to a file in `folder`. Returns the file's path, and
/// whether the script breaks a promise about data.
fn keep(profile: Profile, seed: u64, folder: &Path) -> std::io::Result<(String, bool)> {
    let failure = quietly(|| {
        let failure = Script::generate(seed, profile).run().err();
        failure.map(|failure| shrink(&failure, &|_| (), 400))
    });
    let failure = failure.ok_or_else(|| std::io::Error::other("it fails no more"))?;
    let kept = Kept::of_failure(&failure);
    std::fs::create_dir_all(folder)?;
    let path = folder.join(format!("{}.script", kept.name));
    std::fs::write(&path, kept.to_text())?;
    Ok((path.display().to_string(), kept.breaks_data()))
}

/// Runs scripts of all profiles only.
fn scripts(first: u64, seeds: u64) -> ExitCode {
    let mut work = Work::of_sweep(first, seeds);
    work.retain(|work| matches!(work, Work::Seed(..)));
    let totals = simulate(&work);
    println!("{:?}\n{:?}", totals.excuses, totals.coverage);
    finish(&totals)
}

fn replay(work: Work) -> ExitCode {
    let totals = work.run();
    println!("{totals:?}");
    finish(&totals)
}

/// Reads a script from a file and passes it to `act`. Returns the exit code of `act`, or 2 if the
/// file cannot be read or is not a script.
fn of_file(file: &str, act: &dyn Fn(&Script) -> ExitCode) -> ExitCode {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) => {
            eprintln!("{file}: {error}");
            return ExitCode::from(2);
        }
    };
    match kept::script_of(&text) {
        Ok(script) => act(&script),
        Err(error) => {
            eprintln!("{file}: {error}");
            ExitCode::from(2)
        }
    }
}

fn again(script: &Script) -> ExitCode {
    match script.run() {
        Ok(report) => {
            println!("{report:?}\nno violation");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            println!("{failure}");
            ExitCode::FAILURE
        }
    }
}

/// Prints the shortest failing script that is found by shrinking one.
fn shortest(script: &Script) -> ExitCode {
    let shortest = quietly(|| {
        let failure = script.run().err()?;
        Some(shrink(&failure, &|_| (), 400))
    });
    match shortest {
        Some(failure) => println!("{failure}"),
        None => println!("{} {} does not fail", script.profile, script.options.seed),
    }
    ExitCode::SUCCESS
}

fn tell_failures(totals: &Totals) {
    for failure in &totals.failures {
        eprintln!("\n{failure}");
    }
}

fn finish(totals: &Totals) -> ExitCode {
    tell_failures(totals);
    if totals.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs items of work on all CPUs and shows the progress in one line. Returns the sums of their
/// counts.
fn simulate(work: &[Work]) -> Totals {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let start = Instant::now();
    // A terminal shows one line that changes; other outputs get a new line from time to time.
    let terminal = std::io::stderr().is_terminal();
    let pause = if terminal { Duration::from_millis(200) } else { Duration::from_secs(15) };
    let told = Mutex::new(start);
    let progress = |done: usize, totals: &Totals| {
        let mut told = told.lock().expect("no holder panics");
        if told.elapsed() < pause && done < work.len() {
            return;
        }
        *told = Instant::now();
        let (points, seconds) = (totals.crash_points(), start.elapsed().as_secs());
        let (begin, end) = if terminal { ("\r", "") } else { ("", "\n") };
        eprint!(
            "{begin}{done} of {}: {} seeds, {} I/Os, {points} crash points, {} failures, {seconds} s{end}",
            work.len(),
            totals.seeds,
            totals.requests,
            totals.failures.len()
        );
    };
    let hook = std::panic::take_hook();
    // A panic counts as a failure, which is reported at the end.
    std::panic::set_hook(Box::new(|_| ()));
    let totals = run(work, threads, &progress);
    std::panic::set_hook(hook);
    if terminal {
        eprintln!();
    }
    totals
}

/// Prints for each bug and checker the number of the first script, from 0, in which that checker
/// detects the bug with all others off.
fn matrix(scripts: u64, name: &str) -> ExitCode {
    println!("{:<24}{}", "", CHECKERS.map(|checker| format!("{checker:>6}")).concat());
    let all = Mutant::ALL.into_iter().chain(Mutant::MISSED);
    for mutant in all.filter(|mutant| format!("{mutant:?}").contains(name)) {
        let first = quietly(|| CHECKERS.map(|it| hunt(mutant, Some(it), scripts, &plant(mutant))));
        let cells = first.map(|it| it.map_or("     -".to_owned(), |number| format!("{number:>6}")));
        println!("{:<24}{}", format!("{mutant:?}"), cells.concat());
    }
    ExitCode::SUCCESS
}

fn plant(mutant: Mutant) -> impl Fn(&mut World) {
    move |world: &mut World| world.plant(mutant)
}

/// Suppresses the messages of panics, which planted bugs are expected to cause.
fn quietly<T>(act: impl FnOnce() -> T) -> T {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    let value = act();
    std::panic::set_hook(hook);
    value
}
