//! Ledger of mutants: the tried share of each file, and the state of survivors.
//!
//! `xtask/mutants-ledger.jsonl` has a line for each file of each run: the number of changes of the
//! file (`of`), the number tried, their results, and the survivors, in the form of
//! `mutants-survivors.txt`. A run of the shard `again` repeats survivors after tests were added;
//! its lines list the survivors that were `killed`. A survivor is *open* until it is killed, or
//! until it is listed as one that makes no difference. Shards of different commits may have tried
//! the same change twice, so shares count tries; a file without any try has no line. The share of
//! open survivors is limited for each set. Files with less than a third of their changes tried are
//! listed, but not limited.

use super::{Found, Mutant, Set, survivors};
use crate::lines::{commit, count, date, text, texts};
use crate::tree;
use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;

/// Line of the ledger: the results for one file in one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Line {
    date: String,
    commit: String,
    set: String,
    shard: String,
    file: String,
    of: u64,
    caught: u64,
    timeouts: u64,
    unviable: u64,
    missed: Vec<String>,
    killed: Vec<String>,
}

/// Sum of all lines about a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Sum {
    of: u64,
    tried: u64,
    caught: u64,
    timeouts: u64,
    unviable: u64,
    missed: u64,
    killed: u64,
    /// Survivors that were not killed and are not listed as making no difference.
    open: Vec<String>,
}

/// Largest tolerated share of open survivors in each set, in percent of the tries.
const OPEN_MAX: u64 = 3;

/// Share of the changes of each file that should be tried, in percent; files with less are listed.
const TRIED_MIN: u64 = 33;

/// Adds the results of a shard's run to the ledger: a line for each file.
pub(super) fn add(set: &Set, shard: &str, found: &Found) -> anyhow::Result<()> {
    let size = set.size()?;
    let (commit, date) = (commit()?, date()?);
    let mut text = std::fs::read_to_string(path()).unwrap_or_default();
    let before = sum(&parse(&text)?, &[]);
    let files: BTreeSet<&String> = found.tried().map(|mutant| &mutant.file).collect();
    for file in files {
        let of_file = |all: &[Mutant]| -> Vec<String> {
            let those = all.iter().filter(|mutant| mutant.file == *file);
            those.map(|mutant| format!("{} @ {}", mutant.change, mutant.code)).collect()
        };
        let len = |all: &[Mutant]| of_file(all).len() as u64;
        let mut line = Line {
            date: date.clone(),
            commit: commit.clone(),
            set: set.name.to_owned(),
            shard: shard.to_owned(),
            file: file.clone(),
            of: size.get(file).copied().unwrap_or_default(),
            ..Line::default()
        };
        if shard == AGAIN {
            let open = before.get(file).map(|sum| sum.open.clone()).unwrap_or_default();
            let ended = [of_file(&found.caught), of_file(&found.timeouts)].concat();
            line.killed = open.into_iter().filter(|name| ended.contains(name)).collect();
        } else {
            line.caught = len(&found.caught);
            line.timeouts = len(&found.timeouts);
            line.unviable = len(&found.unviable);
            line.missed = of_file(&found.survivors);
        }
        if line.tried() > 0 || !line.killed.is_empty() {
            let _ = writeln!(text, "{}", line.to_json());
        }
    }
    parse(&text)?;
    Ok(std::fs::write(path(), text)?)
}

/// All open survivors, over all files.
pub(super) fn open() -> anyhow::Result<Vec<Mutant>> {
    let sums = sum(&ledger()?, &survivors()?);
    let mut open = Vec::new();
    for (file, sum) in sums {
        for name in sum.open {
            let (change, code) = name.split_once(" @ ").with_context(|| name.clone())?;
            open.push(Mutant { file: file.clone(), change: change.into(), code: code.into() });
        }
    }
    Ok(open)
}

/// Among `sets`, given by name and number of shards: the set with the oldest last run, and its next
/// shard.
pub(super) fn next(
    sets: impl Iterator<Item = (&'static str, u64)>,
) -> anyhow::Result<(&'static str, String)> {
    next_of(&ledger()?, sets).context("no set is built together")
}

fn next_of(
    lines: &[Line],
    sets: impl Iterator<Item = (&'static str, u64)>,
) -> Option<(&'static str, String)> {
    let next = sets.map(|(set, shards)| {
        let shard = |line: &Line| {
            let number = line.shard.strip_suffix(&format!("/{shards}"))?.parse::<u64>().ok()?;
            (line.set == set).then_some(number)
        };
        let last = lines.iter().enumerate().rev();
        let last = last.filter_map(|(at, line)| Some((at, shard(line)?))).next();
        let number = last.map_or(0, |(_, number)| (number + 1) % shards);
        (last.map(|(at, _)| at), set, format!("{number}/{shards}"))
    });
    next.min().map(|(_, set, shard)| (set, shard))
}

/// Text with the tried share of each file and of each set, the files with too few tried changes,
/// and the open survivors.
pub(super) fn summary() -> anyhow::Result<String> {
    let (lines, listed) = (ledger()?, survivors()?);
    let mut text = String::new();
    for (file, sum) in sum(&lines, &listed) {
        let _ = writeln!(text, "{file}: {}", sum.text());
    }
    let sets = of_sets(&lines, &listed);
    for (set, of_set) in &sets {
        for name in &of_set.open {
            let _ = writeln!(text, "open, {set}: {name}");
        }
        let _ = writeln!(text, "set {set}: {}; at most {OPEN_MAX} % may be open", of_set.text());
    }
    for set in too_open(&sets) {
        let _ = writeln!(text, "TOO MANY: {set}");
    }
    for (file, sum) in little_tried(&lines) {
        let _ = writeln!(text, "less than a third: {file}: {} of {}", sum.tried, sum.of);
    }
    Ok(text)
}

/// Sums by set. The names of open survivors begin with the file.
fn of_sets(lines: &[Line], listed: &[Mutant]) -> BTreeMap<String, Sum> {
    let mut sets: BTreeMap<String, Sum> = BTreeMap::new();
    for set in lines.iter().map(|line| &line.set).collect::<BTreeSet<_>>() {
        let own: Vec<Line> = lines.iter().filter(|line| line.set == *set).cloned().collect();
        let all = sets.entry(set.clone()).or_default();
        for (file, sum) in sum(&own, listed) {
            all.add(&file, &sum);
        }
    }
    sets
}

/// Messages about the sets with too many open survivors.
fn too_open(sets: &BTreeMap<String, Sum>) -> Vec<String> {
    let is_too_open = |sum: &Sum| sum.open.len() as u64 * 100 >= sum.tried * OPEN_MAX;
    let those = sets.iter().filter(|(_, sum)| is_too_open(sum));
    those.map(|(set, sum)| format!("{set}: {} of {} are open", sum.open.len(), sum.tried)).collect()
}

/// Files with less than [`TRIED_MIN`] percent of their changes tried.
fn little_tried(lines: &[Line]) -> Vec<(String, Sum)> {
    let is_little = |sum: &Sum| sum.tried * 100 < sum.of * TRIED_MIN;
    sum(lines, &[]).into_iter().filter(|(_, sum)| is_little(sum)).collect()
}

impl Sum {
    /// Adds the sum of a file.
    fn add(&mut self, file: &str, other: &Self) {
        let Self { of, tried, caught, timeouts, unviable, missed, killed, open } = other;
        self.of += of;
        self.tried += tried;
        self.caught += caught;
        self.timeouts += timeouts;
        self.unviable += unviable;
        self.missed += missed;
        self.killed += killed;
        self.open.extend(open.iter().map(|name| format!("{file}: {name}")));
    }

    fn text(&self) -> String {
        let Self { of, tried, caught, timeouts, unviable, missed, killed, open } = self;
        let listed = missed - killed - open.len() as u64;
        let percent = (tried * 100).checked_div(*of).unwrap_or(0);
        format!(
            "{tried} of {of} tried ({percent} %): {caught} caught, {timeouts} without an end, {unviable} do \
             not compile, {missed} survived, of which {killed} were killed since, {listed} make no \
             difference, {} are open",
            open.len()
        )
    }
}

impl Line {
    fn tried(&self) -> u64 {
        self.caught + self.timeouts + self.unviable + self.missed.len() as u64
    }

    fn to_json(&self) -> Value {
        let Self { date, commit, set, shard, file, of, caught, timeouts, unviable, .. } = self;
        let mut line =
            json!({"date": date, "commit": commit, "set": set, "shard": shard, "file": file});
        if self.shard == AGAIN {
            line["killed"] = json!(self.killed);
            return line;
        }
        line["of"] = json!(of);
        line["tried"] = json!(self.tried());
        line["caught"] = json!(caught);
        line["timeouts"] = json!(timeouts);
        line["unviable"] = json!(unviable);
        line["missed"] = json!(self.missed);
        line
    }

    fn of_json(line: &Value) -> anyhow::Result<Self> {
        let it = Self {
            date: text(line, "date")?,
            commit: text(line, "commit")?,
            set: text(line, "set")?,
            shard: text(line, "shard")?,
            file: text(line, "file")?,
            ..Self::default()
        };
        if it.shard == AGAIN {
            return Ok(Self { killed: texts(line, "killed")?, ..it });
        }
        let it = Self {
            of: count(line, "of")?,
            caught: count(line, "caught")?,
            timeouts: count(line, "timeouts")?,
            unviable: count(line, "unviable")?,
            missed: texts(line, "missed")?,
            ..it
        };
        let tried = count(line, "tried")?;
        let of = it.of;
        ensure!(tried == it.tried(), "tried: found {tried}, expected {}, the sum", it.tried());
        ensure!(tried <= of, "tried: found {tried} of {of}");
        Ok(it)
    }
}

fn path() -> PathBuf {
    tree::root().join("xtask/mutants-ledger.jsonl")
}

fn ledger() -> anyhow::Result<Vec<Line>> {
    parse(&std::fs::read_to_string(path()).with_context(|| tree::shown(&path()))?)
}

/// Parses all lines of the ledger. Checks that no line counts twice, and that every killed mutant
/// had survived before.
fn parse(text: &str) -> anyhow::Result<Vec<Line>> {
    let mut lines: Vec<Line> = Vec::new();
    for (text, number) in text.lines().zip(1..) {
        let at = || format!("mutants-ledger.jsonl:{number}");
        let value = serde_json::from_str(text).with_context(at)?;
        let line = Line::of_json(&value).with_context(at)?;
        let same = |other: &Line| {
            let of = |line: &Line| {
                (line.set.clone(), line.commit.clone(), line.shard.clone(), line.file.clone())
            };
            of(other) == of(&line)
        };
        if line.shard != AGAIN && lines.iter().any(same) {
            bail!("{}: shard {} of {} stands there already", at(), line.shard, line.file);
        }
        let before: Vec<&Line> = lines.iter().filter(|other| other.file == line.file).collect();
        for name in &line.killed {
            ensure!(
                before.iter().any(|line| line.missed.contains(name)),
                "{}: killed: found {name:?}, which had not survived",
                at()
            );
        }
        lines.push(line);
    }
    Ok(lines)
}

/// Sums by file. `listed` are survivors that make no difference.
fn sum(lines: &[Line], listed: &[Mutant]) -> BTreeMap<String, Sum> {
    let mut sums: BTreeMap<String, Sum> = BTreeMap::new();
    for line in lines {
        let sum = sums.entry(line.file.clone()).or_default();
        if line.shard != AGAIN {
            sum.of = line.of;
        }
        sum.tried += line.tried();
        sum.caught += line.caught;
        sum.timeouts += line.timeouts;
        sum.unviable += line.unviable;
        sum.missed += line.missed.len() as u64;
        sum.open.extend(line.missed.iter().cloned());
        // Shards of two commits may both contain the same change.
        let open = sum.open.len();
        sum.open.retain(|name| !line.killed.contains(name));
        sum.killed += (open - sum.open.len()) as u64;
    }
    for Mutant { file, change, code } in listed {
        let listed = format!("{change} @ {code}");
        if let Some(sum) = sums.get_mut(file) {
            sum.open.retain(|name| *name != listed);
        }
    }
    sums
}

/// Name of the shard that repeats survivors.
pub(crate) const AGAIN: &str = "again";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_ledger_agrees_with_the_survivors() {
        let lines = ledger().unwrap();
        print!("{}", summary().unwrap());
        assert!(lines.iter().all(|line| line.commit.len() == 40), "commits are named in full");
        let sets = of_sets(&lines, &survivors().unwrap());
        assert_eq!(sets.keys().collect::<Vec<_>>(), ["copies", "stripes"]);
        for (set, Sum { tried, caught, .. }) in &sets {
            assert!(*tried >= 50 && caught * 2 > *tried, "{set}: {caught} of {tried}");
        }
        assert_eq!(too_open(&sets), [""; 0], "write tests");
    }

    #[test]
    fn each_set_is_held_by_itself_and_files_of_which_little_was_tried_are_told() {
        let line = |set: &str, file: &str, caught: u64, missed: usize| Line {
            set: set.into(),
            shard: "0/9".into(),
            file: file.into(),
            of: 100,
            caught,
            missed: (0..missed).map(|nth| format!("c{nth} @ x")).collect(),
            ..Line::default()
        };
        // 3 of 100 are open in the one set, 3 of 1,000 in both.
        let lines = [line("one", "f", 97, 3), line("two", "g", 900, 0)];
        let sets = of_sets(&lines, &[]);
        assert_eq!(too_open(&sets), ["one: 3 of 100 are open"]);
        assert_eq!(sets["one"].open[0], "f: c0 @ x");
        assert_eq!(too_open(&of_sets(&[line("one", "f", 98, 2)], &[])), [""; 0]);
        // A survivor that makes no difference is not open.
        let listed = [Mutant { file: "f".into(), change: "c1".into(), code: "x".into() }];
        assert_eq!(too_open(&of_sets(&lines, &listed)), [""; 0]);
        let lines = [line("one", "f", 32, 0), line("one", "g", 33, 0)];
        let little = little_tried(&lines).into_iter().map(|(file, sum)| (file, sum.tried));
        assert_eq!(little.collect::<Vec<_>>(), [("f".to_owned(), 32)]);
    }

    #[test]
    fn the_next_shard_is_of_the_set_that_was_not_run_last() {
        let line = |set: &str, shard: &str| Line {
            set: set.into(),
            shard: shard.into(),
            ..Line::default()
        };
        let next = |lines: &[Line]| next_of(lines, [("one", 8), ("two", 3)].into_iter()).unwrap();
        assert_eq!(next(&[]), ("one", "0/8".to_owned()));
        let mut lines = vec![line("one", "0/8"), line("one", "7/8"), line("one", AGAIN)];
        assert_eq!(next(&lines), ("two", "0/3".to_owned()));
        lines.push(line("two", "0/3"));
        assert_eq!(next(&lines), ("one", "0/8".to_owned()));
        lines.extend([line("one", "0/8"), line("two", "3/122")]);
        assert_eq!(next(&lines), ("two", "1/3".to_owned()), "others than its own do not count");
    }

    #[test]
    fn a_survivor_is_open_until_it_is_killed_or_listed_and_no_run_counts_twice() {
        let line = |shard: &str, missed: &[&str], killed: &[&str]| Line {
            date: "2026-11-21".into(),
            commit: "c".into(),
            set: "stripes".into(),
            shard: shard.into(),
            file: "f.rs".into(),
            of: if shard == AGAIN { 0 } else { 100 },
            caught: if shard == AGAIN { 0 } else { 7 },
            missed: missed.iter().map(|name| (*name).to_owned()).collect(),
            killed: killed.iter().map(|name| (*name).to_owned()).collect(),
            ..Line::default()
        };
        let text = |lines: &[Line]| -> String {
            lines.iter().map(|line| format!("{}\n", line.to_json())).collect()
        };
        let (one, two) = (line("0/9", &["a @ x", "b @ y"], &[]), line("1/9", &["c @ z"], &[]));
        let again = line(AGAIN, &[], &["b @ y"]);
        let lines = [one.clone(), two.clone(), again.clone()];
        let read = parse(&text(&lines)).unwrap();
        assert_eq!(read, lines);
        let listed = [Mutant { file: "f.rs".into(), change: "a".into(), code: "x".into() }];
        let sum = &sum(&read, &listed)["f.rs"];
        assert_eq!((sum.of, sum.tried, sum.missed, sum.killed), (100, 17, 3, 1));
        assert_eq!(sum.open, ["c @ z"]);
        assert!(sum.text().starts_with("17 of 100 tried (17 %): 14 caught"), "{}", sum.text());
        // Planted errors: the same shard twice, a killed mutant that had not survived, a wrong sum.
        let error = |text: String| format!("{:#}", parse(&text).unwrap_err());
        assert!(error(text(&[one.clone(), one.clone()])).contains("stands there already"));
        assert!(error(text(&[two, again])).contains("had not survived"));
        let wrong = text(&[one]).replace("\"tried\":9", "\"tried\":8");
        assert!(error(wrong).contains("tried: found 8, expected 9"));
    }
}
