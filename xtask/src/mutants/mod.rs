//! Mutants: changes of the code, and the search for changes that no test detects.
//!
//! cargo-mutants makes one change at a time, as configured for a *set*, and runs tests. A change
//! that passes all tests is a *survivor*: a test is missing, or the change makes no difference.
//! Survivors that make no difference are listed in `xtask/mutants-survivors.txt`, each with the
//! reason; any other survivor is a failure, and so is a line of this file without a survivor.
//!
//! Mutants are not part of `cargo xtask test`, because a full run of a set takes hours, and of the
//! set `stripes` days. Most runs therefore try one shard of a set. Each run is added to a ledger
//! ([`ledger`]), which records the tried share of each file.

mod hand;
mod ledger;
mod reach;
mod together;

use crate::part::{Ending, Report, cargo};
use crate::tree;
use anyhow::Context;
pub(crate) use ledger::AGAIN;
use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Set of files that are changed and tested together.
struct Set {
    name: &'static str,
    package: &'static str,
    config: &'static str,
    /// Number of shards of at most an hour, for sets that tests of other crates cover; `None` for
    /// other sets. A set with shards is built together ([`together`]), and runs only if it is
    /// named.
    shards: Option<u64>,
}

const SETS: [Set; 5] = [
    Set::alone("weft-parity"),
    Set::alone("weft-engine"),
    Set::alone("weft-ondisk"),
    Set::together("stripes", ".cargo/mutants-stripes.toml", 8),
    Set::together("copies", ".cargo/mutants-copies.toml", 24),
];

/// `cargo xtask mutants [SET…] [-- OPTION…]`; options are those of `cargo mutants`.
///
/// `cargo xtask mutants record SET SHARD FOLDER` adds a run from elsewhere to the ledger, made in a
/// copy of the current commit; FOLDER contains `mutants.out`, SHARD is as in `--shard`, `all`, or
/// `again` for a repetition of survivors.
///
/// `cargo xtask mutants together SET SHARD` builds the changes of a shard of `stripes` or `copies`
/// together ([`together`]).
///
/// `cargo xtask mutants hand` tries the list of changes made by hand ([`hand`]).
///
/// `cargo xtask mutants ledger` prints the tried shares.
pub(crate) fn mutants(words: &[&str]) -> anyhow::Result<Report> {
    let mut report = Report::default();
    match words {
        ["record", set, shard, folder] => {
            let set = set_named(set)?;
            let found = Found::read(&Path::new(folder).join("mutants.out"))?;
            println!("{found}");
            ledger::add(set, shard, &found)?;
            print!("{}", ledger::summary()?);
            return Ok(report);
        }
        ["together", set, shard] => {
            let set = set_named(set)?;
            anyhow::ensure!(set.shards.is_some(), "{}: is not built together", set.name);
            report.part(&format!("mutants of {} {shard}, built together", set.name), || {
                together::run(set, shard)
                    .unwrap_or_else(|error| Ending::Failed(format!("{error:#}")))
            });
            return Ok(report);
        }
        ["hand"] => {
            report.part("mutants by hand, built together", || {
                hand::run().unwrap_or_else(|error| Ending::Failed(format!("{error:#}")))
            });
            return Ok(report);
        }
        ["ledger"] => {
            print!("{}", ledger::summary()?);
            return Ok(report);
        }
        _ => {}
    }
    let end = words.iter().position(|word| *word == "--").unwrap_or(words.len());
    let (names, options) = words.split_at(end);
    let options = options.get(1..).unwrap_or_default();
    let sets: Vec<&Set> = match names {
        [] => SETS.iter().filter(|set| set.shards.is_none()).collect(),
        names => names.iter().map(|name| set_named(name)).collect::<Result<_, _>>()?,
    };
    for set in sets {
        report.part(&format!("mutants of {}", set.name), || {
            run(set, options).unwrap_or_else(|error| Ending::Failed(format!("{error:#}")))
        });
    }
    Ok(report)
}

/// Among the sets that are built together: the set with the oldest last run, and its next shard.
pub(crate) fn next_shard() -> anyhow::Result<(&'static str, String)> {
    ledger::next(SETS.iter().filter_map(|set| Some((set.name, set.shards?))))
}

fn set_named(name: &str) -> anyhow::Result<&'static Set> {
    let names = || SETS.map(|set| set.name).join(", ");
    SETS.iter()
        .find(|set| set.name == name)
        .with_context(|| format!("mutants: found set {name:?}, expected one of {}", names()))
}

impl Set {
    /// Set of the files of a crate that its own tests cover.
    const fn alone(package: &'static str) -> Self {
        Self { name: package, package, config: ".cargo/mutants.toml", shards: None }
    }

    /// Set of files of weft-engine that the tests of the simulators cover as well.
    const fn together(name: &'static str, config: &'static str, shards: u64) -> Self {
        Self { name, package: "weft-engine", config, shards: Some(shards) }
    }

    fn command(&self) -> std::process::Command {
        let words = ["mutants", "--package", self.package, "--config", self.config];
        cargo(&words)
    }

    /// Number of possible changes in each file of the set.
    fn size(&self) -> anyhow::Result<BTreeMap<String, u64>> {
        let output = self.command().arg("--list").output().context("cargo mutants")?;
        anyhow::ensure!(output.status.success(), "cargo mutants --list: {}", output.status);
        let mut size = BTreeMap::new();
        for line in String::from_utf8(output.stdout)?.lines() {
            let file = line.split(':').next().unwrap_or_default();
            *size.entry(file.to_owned()).or_default() += 1;
        }
        Ok(size)
    }
}

fn run(set: &'static Set, options: &[&str]) -> anyhow::Result<Ending> {
    if !cargo(&["mutants", "--version"]).output().is_ok_and(|output| output.status.success()) {
        let how = "cargo-mutants is not installed: cargo install cargo-mutants --locked";
        return Ok(Ending::Failed(how.into()));
    }
    let known = survivors()?;
    let output = tree::root().join("target/mutants").join(set.name);
    std::fs::create_dir_all(&output).with_context(|| tree::shown(&output))?;
    let mut command = set.command();
    command.args(["--no-shuffle", "--output"]).arg(&output);
    let status = command.args(sharding(options)).args(options).status().context("cargo mutants")?;
    // Exit status 2 means survivors, 3 means timeouts. Both are judged here.
    anyhow::ensure!(matches!(status.code(), Some(0 | 2 | 3)), "cargo mutants: {status}");
    let found = Found::read(&output.join("mutants.out"))?;
    println!("{found}");
    let shard = match options {
        [] => Some("all"),
        ["--shard", shard] => Some(*shard),
        _ => options.contains(&"--iterate").then_some("again"),
    };
    match shard {
        Some(shard) => {
            ledger::add(set, shard, &found)?;
            print!("{}", ledger::summary()?);
        }
        None => println!("not added to the ledger: it is a part that chance did not choose"),
    }
    let size = set.size()?;
    let known = known.into_iter().filter(|it| size.contains_key(&it.file));
    Ok(match judge(&known.collect::<Vec<_>>(), &found, options.is_empty()) {
        None => Ending::Passed,
        Some(problem) => Ending::Failed(problem),
    })
}

/// Options that give each shard a part of every file. Empty if `options` select no shard, because
/// cargo-mutants then refuses them.
fn sharding(options: &[&str]) -> &'static [&'static str] {
    let has_shard = options.iter().any(|it| *it == "--shard" || it.starts_with("--shard="));
    if has_shard { &["--sharding", "round-robin"] } else { &[] }
}

/// Reads the list of known survivors, which make no difference.
fn survivors() -> anyhow::Result<Vec<Mutant>> {
    let path = tree::root().join("xtask/mutants-survivors.txt");
    let text = std::fs::read_to_string(&path).with_context(|| tree::shown(&path))?;
    parse(&text).with_context(|| tree::shown(&path))
}

/// Change of a file, identified independently of its line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Mutant {
    file: String,
    /// Name that cargo-mutants gives the change.
    change: String,
    /// Line of code in which the change begins, because one function may have several changes of
    /// the same name.
    code: String,
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} @ {}", self.file, self.change, self.code)
    }
}

/// Changes that cargo-mutants tried, and their results.
#[derive(Default)]
struct Found {
    survivors: Vec<Mutant>,
    caught: Vec<Mutant>,
    timeouts: Vec<Mutant>,
    unviable: Vec<Mutant>,
}

impl Found {
    /// Reads the folder `mutants.out`.
    fn read(folder: &Path) -> anyhow::Result<Self> {
        let read = |name: &str| {
            let path: PathBuf = folder.join(name);
            std::fs::read_to_string(&path).with_context(|| path.display().to_string())
        };
        let list: serde_json::Value = serde_json::from_str(&read("mutants.json")?)?;
        let mut sources = BTreeMap::new();
        let mut by_name = BTreeMap::new();
        for mutant in list.as_array().context("mutants.json: expected a list")? {
            let text =
                |field: &str| mutant[field].as_str().context(format!("mutants.json: {field}"));
            let (file, name) = (text("file")?, text("name")?);
            let source = sources.entry(file.to_owned()).or_insert_with(|| {
                std::fs::read_to_string(tree::root().join(file)).unwrap_or_default()
            });
            by_name.insert(name.to_owned(), Mutant::of(file, name, source)?);
        }
        let those = |file: &str| -> anyhow::Result<Vec<Mutant>> {
            let known =
                |name| by_name.get(name).cloned().with_context(|| format!("{name}: unknown"));
            read(file)?.lines().map(known).collect()
        };
        Ok(Self {
            survivors: those("missed.txt")?,
            caught: those("caught.txt")?,
            timeouts: those("timeout.txt")?,
            unviable: those("unviable.txt")?,
        })
    }

    /// Results for the changes of one file alone.
    fn of_file(self, file: &str) -> Self {
        let those = |all: Vec<Mutant>| all.into_iter().filter(|it| it.file == file).collect();
        Self {
            survivors: those(self.survivors),
            caught: those(self.caught),
            timeouts: those(self.timeouts),
            unviable: those(self.unviable),
        }
    }

    fn tried(&self) -> impl Iterator<Item = &Mutant> {
        let Self { survivors, caught, timeouts, unviable } = self;
        survivors.iter().chain(caught).chain(timeouts).chain(unviable)
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { survivors, caught, timeouts, unviable } = self;
        write!(f, "{} mutants: {} caught, ", self.tried().count(), caught.len())?;
        write!(f, "{} without an end, {} do not compile, ", timeouts.len(), unviable.len())?;
        write!(f, "{} survived", survivors.len())
    }
}

impl Mutant {
    /// Creates the mutant from its name `FILE:LINE:COLUMN: CHANGE` and the text of the file.
    fn of(file: &str, name: &str, source: &str) -> anyhow::Result<Self> {
        let parts = name.strip_prefix(file).and_then(|rest| rest.strip_prefix(':'));
        let mut parts = parts.with_context(|| format!("{name}: names no place"))?.splitn(3, ':');
        let (line, _, change) = (parts.next(), parts.next(), parts.next());
        let line: usize = line.unwrap_or_default().parse().context(name.to_owned())?;
        let code = source.lines().nth(line.saturating_sub(1)).unwrap_or_default();
        Ok(Self {
            file: file.to_owned(),
            change: change.unwrap_or_default().trim().to_owned(),
            code: code.trim().to_owned(),
        })
    }
}

/// Compares the survivors of a run with the known ones. Returns a text with the unknown survivors
/// and the known ones that did not survive; `None` if there are neither. `whole` is true if the run
/// tried all changes.
fn judge(known: &[Mutant], found: &Found, whole: bool) -> Option<String> {
    let mut problem = String::new();
    if found.caught.is_empty() {
        problem.push_str("\n  no mutant was caught: nothing was tested");
    }
    let mut left = known.to_vec();
    for survivor in &found.survivors {
        match left.iter().position(|it| it == survivor) {
            Some(index) => drop(left.swap_remove(index)),
            None => {
                let _ = write!(problem, "\n  survived, and is not known: {survivor}");
            }
        }
    }
    // After a partial run, only lines with a tried change are judged.
    left.retain(|it| whole || found.tried().any(|tried| tried == it));
    left.sort();
    for line in left {
        let _ = write!(problem, "\n  is known as a survivor, and is none: {line}");
    }
    (!problem.is_empty()).then_some(problem)
}

/// Parses the list of survivors: paragraphs with a line `why: REASON` and lines `FILE: CHANGE @
/// CODE`; `#` begins a comment.
fn parse(text: &str) -> anyhow::Result<Vec<Mutant>> {
    let mut known = Vec::new();
    let mut reasoned = false;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if line.is_empty() {
            reasoned = false;
        } else if let Some(reason) = line.strip_prefix("why: ") {
            anyhow::ensure!(reason.split(' ').count() >= 3, "{line:?}: that is no reason");
            reasoned = true;
        } else if !line.starts_with("     ") {
            anyhow::ensure!(reasoned, "{line:?}: found no line \"why: …\" in its paragraph");
            let parts = line.split_once(": ").and_then(|(file, rest)| {
                let (change, code) = rest.split_once(" @ ")?;
                Some(Mutant { file: file.into(), change: change.into(), code: code.into() })
            });
            known.push(parts.with_context(|| format!("{line:?}: expected FILE: CHANGE @ CODE"))?);
        }
    }
    Ok(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "fn less(a: u8, b: u8) -> bool {\n    a < b\n}\n";

    fn mutant(change: &str) -> Mutant {
        Mutant::of("crates/c/src/f.rs", &format!("crates/c/src/f.rs:2:7: {change}"), SOURCE)
            .unwrap()
    }

    fn found(survivors: &[&str]) -> Found {
        let survivors: Vec<Mutant> = survivors.iter().map(|change| mutant(change)).collect();
        Found { survivors, caught: vec![mutant("replace < with == in less")], ..Found::default() }
    }

    #[test]
    fn without_a_shard_nothing_is_said_about_sharding() {
        assert_eq!(sharding(&["--iterate"]), [""; 0]);
        assert_eq!(sharding(&["--shard", "1/8"]), ["--sharding", "round-robin"]);
        assert_eq!(sharding(&["--shard=1/8"]), sharding(&["--shard", "1/8"]));
    }

    #[test]
    fn a_survivor_has_to_be_known_and_a_known_one_to_survive() {
        let (one, other) = ("replace < with <= in less", "replace < with > in less");
        let known = [mutant(one)];
        assert_eq!(judge(&known, &found(&[one]), true), None);
        // Planted errors: a survivor that no line names, the same survivor twice, and a line
        // without a survivor.
        for survivors in [vec![one, other], vec![one, one]] {
            let problem = judge(&known, &found(&survivors), true).unwrap();
            let named = survivors[1];
            let expected =
                format!("\n  survived, and is not known: crates/c/src/f.rs: {named} @ a < b");
            assert_eq!(problem, expected);
        }
        let problem = judge(&known, &found(&[]), true).unwrap();
        assert!(problem.contains("is known as a survivor, and is none"), "{problem}");
        assert_eq!(judge(&known, &found(&[]), false), None, "it was not tried");
        let caught = Found { caught: known.to_vec(), ..found(&[]) };
        assert!(judge(&known, &caught, false).is_some(), "it was tried");
        let nothing = Found { caught: Vec::new(), ..found(&[one]) };
        assert!(judge(&known, &nothing, true).unwrap().contains("nothing was tested"));
    }

    #[test]
    fn what_is_printed_of_a_survivor_is_what_the_ledger_takes() {
        let survivor = mutant("replace < with <= in less");
        let text = format!("# c\n\nwhy: no caller asks for equal ones,\n     ever\n{survivor}\n");
        assert_eq!(parse(&text).unwrap(), std::slice::from_ref(&survivor));
        assert!(parse(&survivor.to_string()).unwrap_err().to_string().contains("why"));
        assert!(parse(&format!("why: a b c\n\n{survivor}")).is_err(), "of another paragraph");
        assert!(parse("why: equivalent\n").is_err(), "a word is no reason");
        assert!(parse("why: a b c\nnonsense").is_err());
    }

    #[test]
    fn the_committed_ledger_names_files_that_are_there() {
        for mutant in parse(include_str!("../../mutants-survivors.txt")).unwrap() {
            assert!(tree::root().join(&mutant.file).is_file(), "{mutant}");
        }
    }
}
