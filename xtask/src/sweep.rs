//! Task `sweep`: additional seeds, and a ledger of simulated seeds.
//!
//! `cargo xtask sweep N` simulates N seeds of each profile, and for every ten of them one small
//! scope and one steady load, on all CPUs (`crates/weft-crash/src/sweep.rs`), and adds a line to
//! the ledger: commit, counts, number of failures. Seeds continue where the last sweep ended, so
//! that no seed counts twice. The line is to be committed. A line with failures also names, in
//! `kept`, the scripts made from the failures (`crates/weft-crash/scripts/`, written by `sweep
//! fresh` and `sweep shrink`) or, in `mended`, the commits that fixed them.

use crate::lines::{commit, count, date, printed, text, texts};
use crate::part::cargo;
use crate::tree::root;
use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Stdio;

/// First seed of sweeps, larger than all seeds of tests and of the gate.
const FIRST: u64 = 10_000_000;

/// Line of the ledger: one sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sweep {
    date: String,
    commit: String,
    /// First seed of the sweep; `each` is the number of seeds of each profile.
    first: u64,
    each: u64,
    seeds: u64,
    ios: u64,
    crash_points: u64,
    failures: u64,
    /// Scripts in `crates/weft-crash/scripts/` made from the failures.
    kept: Vec<String>,
    /// Commits that fixed failures.
    mended: Vec<String>,
    /// Origin of the counts, for a line that no sweep wrote. Unknown counts are 0 in such a line.
    told: Option<String>,
}

/// Sum of all lines of the ledger.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sum {
    sweeps: usize,
    seeds: u64,
    ios: u64,
    crash_points: u64,
    failures: u64,
}

/// `cargo xtask sweep N`: simulates `each` seeds of each profile, and adds a line to the ledger.
pub(crate) fn sweep(each: u64) -> anyhow::Result<()> {
    ensure!(each > 0, "sweep: found 0 seeds, expected 1 or more of each profile");
    let commit = clean_commit()?;
    let mut sweeps = ledger()?;
    let first = sweeps.iter().map(|sweep| sweep.first + sweep.each).max().unwrap_or(FIRST);
    let (first_word, each_word) = (first.to_string(), each.to_string());
    let example = ["run", "-q", "--release", "-p", "weft-crash", "--example", "sweep", "--"];
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
        "{} failures, told above with the command that does each again; the ledger says so, and its line \
         is to name in \"kept\" the scripts that they became, or in \"mended\" commits",
        line.failures
    );
    println!("to keep it: git commit {} -m 'Sweep {each}'", path().display());
    Ok(())
}

impl Sweep {
    /// Line with the counts that the simulation printed.
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
            kept: Vec::new(),
            mended: Vec::new(),
            told: None,
        })
    }

    fn of_json(line: &Value) -> anyhow::Result<Self> {
        let names = |field| line.get(field).map_or(Ok(Vec::new()), |_| texts(line, field));
        Ok(Self {
            date: text(line, "date")?,
            commit: text(line, "commit")?,
            first: count(line, "first")?,
            each: count(line, "each")?,
            kept: names("kept")?,
            mended: names("mended")?,
            told: line.get("told").map(|_| text(line, "told")).transpose()?,
            ..Self::counted(line)?
        })
    }

    fn to_json(&self) -> Value {
        let Self { date, commit, first, each, seeds, ios, crash_points, failures, .. } = self;
        let mut line = json!({
            "date": date, "commit": commit, "first": first, "each": each, "seeds": seeds, "ios": ios,
            "crash_points": crash_points, "failures": failures,
        });
        for (field, names) in [("kept", &self.kept), ("mended", &self.mended)] {
            if !names.is_empty() {
                line[field] = json!(names);
            }
        }
        if let Some(told) = &self.told {
            line["told"] = json!(told);
        }
        line
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
    root().join("crates/weft-crash/sweeps.jsonl")
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

/// The current commit. Returns an error if files other than the ledger have uncommitted changes,
/// because counts belong to a commit.
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
        assert!(sum.failures >= 109, "a line was lost: {sum:?}");
        for sweep in &sweeps {
            assert_eq!(sweep.commit.len(), 40, "{sweep:?}");
            assert!(sweep.seeds >= sweep.each && sweep.each > 0, "{sweep:?}");
            let counted = sweep.first >= FIRST && sweep.ios > 0 && sweep.crash_points > 0;
            assert!(counted || sweep.told.is_some(), "{sweep:?}");
            let open = not_told(sweep, &|name| {
                let scripts = root().join("crates/weft-crash/scripts");
                let is_in = |folder| scripts.join(folder).join(format!("{name}.script")).exists();
                is_in("open") || is_in("regressions")
            });
            assert_eq!(open, None, "{sweep:?}");
        }
    }

    /// Message about a missing entry that a line with failures must have; `None` if no entry is
    /// missing.
    fn not_told(sweep: &Sweep, is_kept: &dyn Fn(&str) -> bool) -> Option<String> {
        if sweep.failures > 0 && sweep.kept.is_empty() && sweep.mended.is_empty() {
            return Some(
                "found no script in kept and no commit in mended, expected one".to_owned(),
            );
        }
        if let Some(name) = sweep.kept.iter().find(|name| !is_kept(name)) {
            return Some(format!("kept: found {name}, expected a script of weft-crash/scripts"));
        }
        let is_commit =
            |text: &str| text.len() == 40 && text.bytes().all(|it| it.is_ascii_hexdigit());
        let wrong = sweep.mended.iter().find(|text| !is_commit(text));
        wrong.map(|text| format!("mended: found {text}, expected a commit in full"))
    }

    #[test]
    fn a_line_with_failures_names_their_scripts_or_a_mend() {
        let found = json!({"seeds": 70, "ios": 7, "crash_points": 5, "failures": 1});
        let line = Sweep::counted(&found).unwrap();
        let told = |line: &Sweep| not_told(line, &|name| name == "there");
        assert!(told(&line).unwrap().contains("found no script"), "a failure is forgotten");
        assert_eq!(told(&Sweep { failures: 0, ..line.clone() }), None);
        let kept = |name: &str| Sweep { kept: vec![name.to_owned()], ..line.clone() };
        assert_eq!(told(&kept("there")), None);
        assert!(told(&kept("gone")).unwrap().contains("kept: found gone"));
        let mended = |text: &str| Sweep { mended: vec![text.to_owned()], ..line.clone() };
        assert_eq!(told(&mended(&"a".repeat(40))), None);
        assert!(told(&mended("soon")).unwrap().contains("mended: found soon"));
        let whole =
            Sweep { date: "d".into(), commit: "c".into(), told: Some("t".into()), ..kept("k") };
        assert_eq!(parse(&format!("{}\n", whole.to_json())).unwrap(), [whole]);
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
