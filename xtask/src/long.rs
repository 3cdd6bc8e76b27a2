//! Task `long`: what CI has no time for, an hour at a time, and how long ago it was run.
//!
//! Each run of a part is a line of a ledger: `sweep` and `mutants` have theirs anyway, the rounds
//! of suites go into `xtask/long.jsonl`. A line names the commit, so that its age is the count of
//! commits since then; CI says which part's last line is older than [`AGE_MAX`] commits.

use crate::lines::{commit, date, printed, text};
use crate::part::{Ending, Report};
use crate::{interop, mutants, sweep, tree};
use anyhow::{Context, ensure};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Age of a part's last line, in commits, from which on CI says so.
const AGE_MAX: u64 = 300;

/// Rounds begin until then; the last one may take a quarter of an hour more, the lab's half of one.
const BEGIN_MAX: Duration = Duration::from_secs(35 * 60);

/// Seeds of each profile that an hour of two CPUs has time for: `fresh` has 300 in two minutes.
const SEEDS: u64 = 5_000;

/// A part, and the suite that it runs again and again, if it is rounds of one.
struct Part {
    name: &'static str,
    what: &'static str,
    ledger: &'static str,
    suite: Option<&'static str>,
}

const OF_ROUNDS: &str = "xtask/long.jsonl";

const PARTS: [Part; 4] = [
    Part {
        name: "kills",
        what: "servers that are killed, as interop/kill9, in rounds",
        ledger: OF_ROUNDS,
        suite: Some("kill9"),
    },
    Part { name: "lab", what: "the kernel lab, in rounds", ledger: OF_ROUNDS, suite: Some("lab") },
    Part {
        name: "mutants",
        what: "the next eighth of the mutants of stripes, built together",
        ledger: "xtask/mutants-ledger.jsonl",
        suite: None,
    },
    Part {
        name: "sweep",
        what: "seeds that nobody has simulated",
        ledger: "crates/weft-sim/sweeps.jsonl",
        suite: None,
    },
];

/// `cargo xtask long [PART]`.
pub(crate) fn long(words: &[&str]) -> anyhow::Result<Report> {
    let mut report = Report::default();
    let [name] = words else {
        print!("{}", ages()?);
        return Ok(report);
    };
    let part = PARTS.iter().find(|part| part.name == *name);
    let names = || PARTS.map(|part| part.name).join(", ");
    let part = part.with_context(|| format!("long: found {name}, expected one of {}", names()))?;
    match part.suite {
        Some(suite) => rounds(part, suite, &mut report)?,
        None if part.name == "sweep" => sweep::sweep(SEEDS)?,
        None => return mutants::mutants(&["together", &mutants::next_eighth()?]),
    }
    Ok(report)
}

/// Runs a suite again and again, until the hour is over or it fails; adds the line.
fn rounds(part: &Part, suite: &str, report: &mut Report) -> anyhow::Result<()> {
    let commit = commit()?;
    let weft = interop::build_release(report).context("no release build")?;
    let start = Instant::now();
    let (mut rounds, mut passed) = (0_u64, true);
    while passed && start.elapsed() < BEGIN_MAX {
        passed = interop::run_suites(report, &weft, &[suite])?;
        ensure!(!report.has_skipped(), "long {}: it cannot run here, and has no line", part.name);
        rounds += u64::from(passed);
    }
    let line = json!({
        "part": part.name, "date": date()?, "commit": commit, "rounds": rounds,
        "seconds": start.elapsed().as_secs(), "failures": u64::from(!passed),
    });
    let path = tree::root().join(OF_ROUNDS);
    let old = std::fs::read_to_string(&path).unwrap_or_default();
    std::fs::write(&path, format!("{old}{line}\n"))?;
    println!("{line}");
    Ok(())
}

/// When each part was run last, and what to run where that is long ago.
fn ages() -> anyhow::Result<String> {
    let mut all = String::new();
    for part in &PARTS {
        let path = tree::root().join(part.ledger);
        let commit = last_commit(part, &std::fs::read_to_string(path).unwrap_or_default())?;
        let age = commit.map(|commit| {
            let count = printed("git", &["rev-list", "--count", &format!("{commit}..HEAD")])?;
            count
                .trim()
                .parse::<u64>()
                .with_context(|| format!("commits since {commit}: {count:?}"))
        });
        all += &line_of(part, age.transpose()?);
    }
    Ok(all)
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

/// The commit of the last line of a part.
fn last_commit(part: &Part, ledger: &str) -> anyhow::Result<Option<String>> {
    let mut last = None;
    for (line, number) in ledger.lines().zip(1..) {
        let at = || format!("{}:{number}", part.ledger);
        let line: Value = serde_json::from_str(line).with_context(at)?;
        if part.suite.is_none() || text(&line, "part").with_context(at)? == part.name {
            last = Some(text(&line, "commit").with_context(at)?);
        }
    }
    Ok(last)
}

/// A part of `test`: it says what is old, and fails only where a ledger cannot be read.
pub(crate) fn say_ages() -> Ending {
    match ages() {
        Ok(text) => {
            print!("{text}");
            Ending::Passed
        }
        Err(error) => Ending::Failed(format!("{error:#}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_was_run_long_ago_or_never_is_old() {
        let [kills, .., sweep] = &PARTS;
        let ledger =
            "{\"part\":\"kills\",\"commit\":\"a1\"}\n{\"part\":\"lab\",\"commit\":\"b2\"}\n";
        assert_eq!(last_commit(kills, ledger).unwrap().as_deref(), Some("a1"));
        assert_eq!(last_commit(sweep, ledger).unwrap().as_deref(), Some("b2"));
        assert_eq!(last_commit(kills, "").unwrap(), None);
        assert!(last_commit(kills, "{}").is_err());
        assert!(!line_of(kills, Some(AGE_MAX)).contains("OLD"));
        assert!(line_of(kills, Some(AGE_MAX + 1)).contains("OLD: 301 commits ago"));
        assert!(line_of(kills, None).contains("OLD: never"));
    }

    #[test]
    fn the_committed_ledgers_name_commits() {
        for part in PARTS.iter().filter(|part| part.suite.is_none()) {
            let text = std::fs::read_to_string(tree::root().join(part.ledger)).unwrap();
            let commit = last_commit(part, &text).unwrap().unwrap();
            assert_eq!(commit.len(), 40, "{}", part.name);
        }
    }
}
