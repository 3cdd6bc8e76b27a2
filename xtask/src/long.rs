//! Task `long`: tests too long for CI, an hour at a time, and the age of their last run.
//!
//! Each run of a part is recorded as a line of a ledger: `sweep` and `mutants` have ledgers of
//! their own, and rounds of other parts are recorded in `xtask/long.jsonl`. The age of a line is
//! the number of commits since the commit that added the line to its ledger; CI fails if a part's
//! last line is older than [`AGE_MAX`] commits. The commit that a line names does not give its age,
//! because it may have been amended to include the line.
//!
//! Parsers of external data (superblocks, partition tables, LVM, file systems, maps of ddrescue,
//! the NBD protocol) are tested on damaged bytes by tests with a fixed seed; the part `fuzz` runs
//! these tests with more cases and with other seeds (`WEFT_FUZZ_SEED`), which begin at a multiple
//! of the number of commits.

use crate::lines::{commit, count, date, printed, text, texts};
use crate::part::{Ending, Report, cargo, run};
use crate::{interop, mutants, sweep, tree};
use anyhow::{Context, ensure};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Age of a part's last line, in commits, beyond which CI fails.
const AGE_MAX: u64 = 300;

/// Time within which the rounds of a part begin. The last round may take half an hour more.
const BEGIN_MAX: Duration = Duration::from_secs(35 * 60);

/// Seeds of each profile in an hour of two CPUs: `fresh` runs 300 in two minutes.
const SEEDS: u64 = 5_000;

/// Part of the task `long`: one kind of test, with its ledger.
struct Part {
    name: &'static str,
    what: &'static str,
    ledger: &'static str,
    work: Work,
}

/// Kind of work of a part.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    /// Tests of parsers, in rounds of one seed each.
    Fuzz,
    /// The list of mutants by hand.
    Hand,
    Mutants,
    /// An interop suite, in rounds.
    Suite(&'static str),
    Sweep,
}

const OF_ROUNDS: &str = "xtask/long.jsonl";

const PARTS: [Part; 6] = [
    Part {
        name: "fuzz",
        what: "damaged superblocks, tables, file systems, maps and messages of NBD, by other seeds",
        ledger: OF_ROUNDS,
        work: Work::Fuzz,
    },
    Part {
        name: "hand",
        what: "mutants by hand, each with the test that has to fail",
        ledger: "xtask/mutants-hand.jsonl",
        work: Work::Hand,
    },
    Part {
        name: "kills",
        what: "servers that are killed, as interop/kill9, in rounds",
        ledger: OF_ROUNDS,
        work: Work::Suite("kill9"),
    },
    Part {
        name: "lab",
        what: "the kernel lab, in rounds",
        ledger: OF_ROUNDS,
        work: Work::Suite("lab"),
    },
    Part {
        name: "mutants",
        what: "the next shard of the mutants of stripes or copies, built together",
        ledger: "xtask/mutants-ledger.jsonl",
        work: Work::Mutants,
    },
    Part {
        name: "sweep",
        what: "seeds that were not simulated before",
        ledger: "crates/weft-crash/sweeps.jsonl",
        work: Work::Sweep,
    },
];

/// `cargo xtask long [PART [MINUTES]]`: runs a part, in rounds that begin within MINUTES, or prints
/// the age of each part.
pub(crate) fn long(words: &[&str]) -> anyhow::Result<Report> {
    let mut report = Report::default();
    let (name, begin) = match words {
        [] => {
            print!("{}", ages()?.0);
            return Ok(report);
        }
        [name] => (name, BEGIN_MAX),
        [name, minutes] => {
            let expected = || format!("long {name}: found {minutes:?}, expected minutes");
            (name, Duration::from_secs(60 * minutes.parse::<u64>().with_context(expected)?))
        }
        _ => anyhow::bail!("long: found {} words, expected a part and minutes", words.len()),
    };
    ensure!(
        begin <= BEGIN_MAX,
        "long {name}: found more than {} minutes",
        BEGIN_MAX.as_secs() / 60
    );
    let part = PARTS.iter().find(|part| part.name == *name);
    let names = || PARTS.map(|part| part.name).join(", ");
    let part = part.with_context(|| format!("long: found {name}, expected one of {}", names()))?;
    match part.work {
        Work::Fuzz => fuzz(part, begin, &mut report)?,
        Work::Hand => return mutants::mutants(&["hand"]),
        Work::Mutants => {
            let (set, shard) = mutants::next_shard()?;
            return mutants::mutants(&["together", set, &shard]);
        }
        Work::Suite(suite) => {
            let weft = interop::build_release(&mut report).context("no release build")?;
            let round = |report: &mut Report, _| interop::run_suites(report, &weft, &[suite]);
            rounds(part, begin, &mut report, json!({}), round)?;
        }
        Work::Sweep => sweep::sweep(SEEDS)?,
    }
    Ok(report)
}

/// Tests that pass damaged bytes to parsers: crate and name.
const FUZZ: [(&str, &str); 6] = [
    ("weft-export", "tls"),
    ("weft-export", "vhost_user"),
    ("weft-files", "mutations"),
    ("weft-nbd", "fuzz_like"),
    ("weft-ondisk", "mutations"),
    ("weft-runtime", "mutations"),
];

/// Number of damaged inputs that a test makes in one round, equal to the number in the tests.
const FUZZ_EACH: u64 = 20_000;

/// Runs rounds of the tests of parsers, each with the next seed.
fn fuzz(part: &Part, begin: Duration, report: &mut Report) -> anyhow::Result<()> {
    let first = FUZZ_EACH * count_of_commits("HEAD")?;
    let round = |report: &mut Report, number: u64| {
        Ok(report.part(&format!("fuzz, seed {}", first + number), || {
            let packages = FUZZ.iter().flat_map(|(package, test)| ["-p", package, "--test", test]);
            let words: Vec<&str> = ["test", "-q"].into_iter().chain(packages).collect();
            let mut command = cargo(&words);
            command.env("WEFT_FUZZ_SEED", (first + number).to_string());
            run(command, FUZZ_MAX)
        }))
    };
    rounds(part, begin, report, json!({"seed": first}), round)
}

/// Time limit of a round; the first round includes the build.
const FUZZ_MAX: Duration = Duration::from_secs(1800);

/// Repeats `round` until the time is over or a round fails. Then completes `line` with the number
/// of rounds and the result, and adds it to the ledger.
fn rounds(
    part: &Part,
    begin: Duration,
    report: &mut Report,
    mut line: Value,
    mut round: impl FnMut(&mut Report, u64) -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let commit = commit()?;
    let start = Instant::now();
    let (mut rounds, mut passed) = (0_u64, true);
    while passed && (rounds == 0 || start.elapsed() < begin) {
        passed = round(report, rounds)?;
        ensure!(!report.has_skipped(), "long {}: it cannot run here, and has no line", part.name);
        rounds += u64::from(passed);
    }
    line["part"] = json!(part.name);
    line["date"] = json!(date()?);
    line["commit"] = json!(commit);
    line["rounds"] = json!(rounds);
    line["seconds"] = json!(start.elapsed().as_secs());
    line["failures"] = json!(u64::from(!passed));
    let path = tree::root().join(OF_ROUNDS);
    let old = std::fs::read_to_string(&path).unwrap_or_default();
    std::fs::write(&path, format!("{old}{line}\n"))?;
    println!("{line}");
    Ok(())
}

fn count_of_commits(range: &str) -> anyhow::Result<u64> {
    let count = printed("git", &["rev-list", "--count", range])?;
    count.trim().parse().with_context(|| format!("git rev-list --count {range}: found {count:?}"))
}

/// Text with the age of each part's last run, and with the command for each part that ran too long
/// ago. Also returns the number of such parts.
fn ages() -> anyhow::Result<(String, usize)> {
    let (mut all, mut old) = (String::new(), 0);
    for part in &PARTS {
        let path = tree::root().join(part.ledger);
        let commit = last_commit(part, &std::fs::read_to_string(path).unwrap_or_default())?;
        let age = commit.map(|commit| age(part.ledger, &commit)).transpose()?;
        all += &line_of(part, age);
        old += usize::from(is_old(age));
    }
    Ok((all, old))
}

/// Number of commits since the commit that added the last line with `commit` to a ledger; 0 if the
/// line is not committed yet.
fn age(ledger: &str, commit: &str) -> anyhow::Result<u64> {
    let added = printed("git", &["log", "-1", "--format=%H", "-S", commit, "--", ledger])?;
    match added.trim() {
        "" => Ok(0),
        added => count_of_commits(&format!("{added}..HEAD")),
    }
}

fn is_old(age: Option<u64>) -> bool {
    age.is_none_or(|age| age > AGE_MAX)
}

fn line_of(part: &Part, age: Option<u64>) -> String {
    let Part { name, what, .. } = part;
    let last = match age {
        Some(age) if age > AGE_MAX => format!("OLD: {age} commits ago, expected {AGE_MAX} at most"),
        Some(age) => format!("{age} commits ago"),
        None => "OLD: never".to_owned(),
    };
    format!("cargo xtask long {name:<8} {what}; {last}\n")
}

/// Commit in the last line of a part's ledger that records a passed run; `None` if there is no such
/// line.
fn last_commit(part: &Part, ledger: &str) -> anyhow::Result<Option<String>> {
    let mut last = None;
    for (line, number) in ledger.lines().zip(1..) {
        let at = || format!("{}:{number}", part.ledger);
        let line: Value = serde_json::from_str(line).with_context(at)?;
        if passed(part, &line).with_context(at)? {
            last = Some(text(&line, "commit").with_context(at)?);
        }
    }
    Ok(last)
}

/// Whether a line of a part's ledger records a passed run of this part. Of mutants, the run of a
/// shard passes in any case, because its ledger judges survivors; a repetition of survivors is not
/// the run of a shard.
fn passed(part: &Part, line: &Value) -> anyhow::Result<bool> {
    Ok(match part.work {
        Work::Hand => {
            let names = |field| anyhow::Ok(texts(line, field)?.len() as u64);
            names("caught")? + names("survives")? == count(line, "tried")?
        }
        Work::Mutants => text(line, "shard")? != mutants::AGAIN,
        Work::Sweep => count(line, "failures")? == 0,
        Work::Fuzz | Work::Suite(_) => {
            let rounds = count(line, "rounds")?;
            text(line, "part")? == part.name && rounds > 0 && count(line, "failures")? == 0
        }
    })
}

/// Part of `test` that fails if a part of `long` was last run too long ago, or if a ledger cannot
/// be read.
pub(crate) fn look_at_ages() -> Ending {
    match ages() {
        Ok((text, old)) => {
            print!("{text}");
            match old {
                0 => Ending::Passed,
                _ => Ending::Failed(format!("{old} are OLD: run each, and commit its line")),
            }
        }
        Err(error) => Ending::Failed(format!("{error:#}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_was_run_long_ago_or_never_is_old() {
        let [_, _, kills, .., sweep] = &PARTS;
        let line = |part: &str, commit: &str, failures: u64| {
            let line = json!({"part": part, "commit": commit, "rounds": 1, "failures": failures});
            format!("{line}\n")
        };
        // A failed run does not count.
        let ledger = line("kills", "a1", 0) + &line("kills", "a2", 1) + &line("lab", "b2", 0);
        let ledger = ledger.as_str();
        assert_eq!(last_commit(kills, ledger).unwrap().as_deref(), Some("a1"));
        assert_eq!(last_commit(sweep, ledger).unwrap().as_deref(), Some("b2"));
        let ledger = line("sweep", "b3", 0) + &line("sweep", "b4", 1);
        assert_eq!(last_commit(sweep, &ledger).unwrap().as_deref(), Some("b3"), "with a failure");
        assert_eq!(last_commit(kills, "").unwrap(), None);
        assert!(last_commit(kills, "{}").is_err());
        assert!(!line_of(kills, Some(AGE_MAX)).contains("OLD"));
        assert!(line_of(kills, Some(AGE_MAX + 1)).contains("OLD: 301 commits ago"));
        assert!(line_of(kills, None).contains("OLD: never"));
        assert!([None, Some(AGE_MAX + 1)].into_iter().all(is_old) && !is_old(Some(AGE_MAX)));
    }

    /// Tests below `crates/` that use the seed of `fuzz`: crate and name.
    fn tests_by_seed() -> Vec<(String, String)> {
        let mut found = Vec::new();
        for path in tree::rust_files("crates") {
            let shown = tree::shown(&path);
            let named = shown.strip_prefix("crates/").and_then(|it| it.split_once("/tests/"));
            let Some((package, file)) = named else { continue };
            let test = file.split(['/', '.']).next().unwrap_or_default();
            if std::fs::read_to_string(&path).unwrap().contains("fuzz::seed()") {
                found.push((package.to_owned(), test.to_owned()));
            }
        }
        found
    }

    #[test]
    fn every_test_with_damaged_bytes_is_repeated_by_fuzz() {
        let listed = FUZZ.map(|(package, test)| (package.to_owned(), test.to_owned()));
        assert_eq!(tests_by_seed(), listed);
    }

    #[test]
    fn a_repetition_of_survivors_and_a_mutant_by_hand_that_was_missed_count_for_no_age() {
        let part = |name: &str| PARTS.iter().find(|part| part.name == name).unwrap();
        let shard = |shard: &str, commit: &str| {
            format!("{}\n", json!({"shard": shard, "commit": commit, "killed": ["a @ b"]}))
        };
        let ledger = shard("1/8", "c1") + &shard("again", "c2");
        assert_eq!(last_commit(part("mutants"), &ledger).unwrap().as_deref(), Some("c1"));
        assert_eq!(last_commit(part("mutants"), &shard("again", "c2")).unwrap(), None);
        let hand = |commit: &str, tried: u64| {
            let line =
                json!({"commit": commit, "tried": tried, "caught": ["a"], "survives": ["b"]});
            format!("{line}\n")
        };
        let ledger = hand("d1", 2) + &hand("d2", 3);
        assert_eq!(last_commit(part("hand"), &ledger).unwrap().as_deref(), Some("d1"));
    }

    #[test]
    fn the_committed_ledgers_name_commits() {
        for part in &PARTS {
            let text = std::fs::read_to_string(tree::root().join(part.ledger)).unwrap();
            let commit = last_commit(part, &text).unwrap().unwrap();
            assert_eq!(commit.len(), 40, "{}", part.name);
        }
    }

    /// The run of `fuzz` of 2026-11-26 names a commit that was amended afterwards: no clone has it.
    #[test]
    fn a_line_has_an_age_though_its_commit_was_amended() {
        let amended = "c550a915251d1c0d9cdb07e22f09173d52233c20";
        assert!(std::fs::read_to_string(tree::root().join(OF_ROUNDS)).unwrap().contains(amended));
        let since = count_of_commits("f905cc6ab88b..HEAD").unwrap();
        assert_eq!(age(OF_ROUNDS, amended).unwrap(), since);
        assert_eq!(age(OF_ROUNDS, &"0".repeat(40)).unwrap(), 0, "a line not committed");
    }
}
