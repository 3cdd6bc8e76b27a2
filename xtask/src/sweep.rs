//! Task `sweep`: more seeds, and a ledger of how much was simulated.
//!
//! `cargo xtask sweep N` simulates N seeds of each profile, and for each ten of them one small
//! scope and one steady load, on all CPUs (`crates/weft-sim/src/sweep.rs`), and adds a line to the
//! ledger: which commit, how much, how many failures. Seeds go on where the last sweep ended, so
//! that none counts twice. The line is to be committed.

use crate::lines::{commit, count, date, printed, text};
use crate::part::cargo;
use crate::tree::root;
use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Stdio;

/// Where sweeps begin: beyond the seeds of all tests and of the gate.
const FIRST: u64 = 10_000_000;

/// A line of the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sweep {
    date: String,
    commit: String,
    /// First seed, and how many of each profile.
    first: u64,
    each: u64,
    seeds: u64,
    ios: u64,
    crash_points: u64,
    failures: u64,
}

/// All lines, added up.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sum {
    sweeps: usize,
    seeds: u64,
    ios: u64,
    crash_points: u64,
    failures: u64,
}

/// `cargo xtask sweep N`.
pub(crate) fn sweep(each: u64) -> anyhow::Result<()> {
    ensure!(each > 0, "sweep: found 0 seeds, expected 1 or more of each profile");
    let commit = clean_commit()?;
    let mut sweeps = ledger()?;
    let first = sweeps.iter().map(|sweep| sweep.first + sweep.each).max().unwrap_or(FIRST);
    let (first_word, each_word) = (first.to_string(), each.to_string());
    let example = ["run", "-q", "--release", "-p", "weft-sim", "--example", "sweep", "--"];
    let output = cargo(&[&example[..], &["run", &first_word, &each_word]].concat())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    let found: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("the sweep ended with {} and no counts", output.status))?;
    let date = date()?;
    let line = Sweep { date, commit, first, each, ..Sweep::counted(&found)? };
    let text = format!("{}\n", line.to_json());
    let mut old = std::fs::read_to_string(path()).unwrap_or_default();
    old += &text;
    std::fs::write(path(), old)?;
    print!("{text}");
    sweeps.push(line.clone());
    println!("{}", sum(&sweeps).text());
    ensure!(
        line.failures == 0,
        "{} failures, told above with the command that does each again; the ledger says so",
        line.failures
    );
    println!("to keep it: git commit {} -m 'Sweep {each}'", path().display());
    Ok(())
}

impl Sweep {
    /// Counts that the simulation printed.
    fn counted(found: &Value) -> anyhow::Result<Self> {
        Ok(Self {
            date: String::new(),
            commit: String::new(),
            first: 0,
            each: 0,
            seeds: count(found, "seeds")?,
            ios: count(found, "ios")?,
            crash_points: count(found, "crash_points")?,
            failures: count(found, "failures")?,
        })
    }

    fn of_json(line: &Value) -> anyhow::Result<Self> {
        Ok(Self {
            date: text(line, "date")?,
            commit: text(line, "commit")?,
            first: count(line, "first")?,
            each: count(line, "each")?,
            ..Self::counted(line)?
        })
    }

    fn to_json(&self) -> Value {
        let Self { date, commit, first, each, seeds, ios, crash_points, failures } = self;
        json!({
            "date": date, "commit": commit, "first": first, "each": each, "seeds": seeds, "ios": ios,
            "crash_points": crash_points, "failures": failures,
        })
    }
}

impl Sum {
    fn text(&self) -> String {
        let Self { sweeps, seeds, ios, crash_points, failures } = self;
        format!(
            "ledger: {sweeps} sweeps, {seeds} seeds, {ios} I/Os, {crash_points} crash points, {failures} failures"
        )
    }
}

fn path() -> PathBuf {
    root().join("crates/weft-sim/sweeps.jsonl")
}

fn ledger() -> anyhow::Result<Vec<Sweep>> {
    parse(&std::fs::read_to_string(path()).unwrap_or_default())
}

fn parse(text: &str) -> anyhow::Result<Vec<Sweep>> {
    let mut sweeps: Vec<Sweep> = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let at = || format!("sweeps.jsonl:{number}");
        let value = serde_json::from_str(line).with_context(at)?;
        let sweep = Sweep::of_json(&value).with_context(at)?;
        if let Some(other) = sweeps.iter().find(|other| {
            sweep.first < other.first + other.each && other.first < sweep.first + sweep.each
        }) {
            bail!(
                "{}: first: found {}, expected no seed of {}",
                at(),
                sweep.first,
                other.to_json()
            );
        }
        sweeps.push(sweep);
    }
    Ok(sweeps)
}

fn sum(sweeps: &[Sweep]) -> Sum {
    sweeps.iter().fold(Sum::default(), |sum, sweep| Sum {
        sweeps: sum.sweeps + 1,
        seeds: sum.seeds + sweep.seeds,
        ios: sum.ios + sweep.ios,
        crash_points: sum.crash_points + sweep.crash_points,
        failures: sum.failures + sweep.failures,
    })
}

/// The commit that is checked out, with nothing changed since but the ledger: a count is of a
/// commit.
fn clean_commit() -> anyhow::Result<String> {
    let changed = printed("git", &["status", "--porcelain"])?;
    let others: Vec<&str> =
        changed.lines().filter(|line| !line.ends_with("sweeps.jsonl")).collect();
    ensure!(
        others.is_empty(),
        "found changes that are not committed, expected none, for the ledger names a commit; commit or \
         stash: {others:?}"
    );
    commit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ledger_adds_up() {
        let sweeps = ledger().unwrap();
        let sum = sum(&sweeps);
        println!("{}", sum.text());
        assert!(sum.sweeps > 0 && sum.seeds > 0 && sum.ios > 0 && sum.crash_points > 0, "{sum:?}");
        assert_eq!(sum.failures, 0, "open failures");
        for sweep in &sweeps {
            assert_eq!(sweep.commit.len(), 40, "{sweep:?}");
            assert!(
                sweep.first >= FIRST && sweep.seeds >= sweep.each && sweep.each > 0,
                "{sweep:?}"
            );
        }
    }

    #[test]
    fn a_line_that_is_wrong_is_told_and_none_counts_twice() {
        let line = |first: u64, ios: &str| {
            format!(
                "{{\"date\":\"2026-11-20\",\"commit\":\"c\",\"first\":{first},\"each\":10,\"seeds\":70,\
                 \"ios\":{ios},\"crash_points\":5,\"failures\":1}}\n"
            )
        };
        let good = parse(&(line(100, "7") + &line(110, "8"))).unwrap();
        let expected = Sum { sweeps: 2, seeds: 140, ios: 15, crash_points: 10, failures: 2 };
        assert_eq!(sum(&good), expected);
        assert_eq!(parse(&format!("{}\n", good[1].to_json())).unwrap(), good[1..]);
        let error = |text: String| format!("{:#}", parse(&text).unwrap_err());
        let twice = error(line(100, "7") + &line(109, "8"));
        assert!(twice.contains("sweeps.jsonl:2: first: found 109"), "{twice}");
        let wrong = error(line(100, "7") + &line(110, "\"8\""));
        assert!(wrong.contains("sweeps.jsonl:2: ios: found \"8\""), "{wrong}");
        assert!(error("{\n".to_owned()).contains("sweeps.jsonl:1"));
    }
}
