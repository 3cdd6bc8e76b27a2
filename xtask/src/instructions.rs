//! Instruction counts of operations, compared with the committed ones.
//!
//! `weft-bench repeat` and the example `repeat` of weft-crash repeat an operation, and callgrind
//! counts the instructions of their `measured_part`. The counts do not depend on the machine's
//! load, and hardly on the machine: two runs of one binary give the same number. They do depend on
//! the compiler. The committed file therefore names its compiler, and counts of another compiler
//! are not compared. `benches/rust-toolchain.toml` pins the compiler only for `cargo` in that
//! folder, because rustup uses the nearest such file. Elsewhere weft can be built by any Rust that
//! its manifest admits, and a machine with the right compiler under another name (`stable`)
//! downloads nothing.

use crate::interop::build_example;
use crate::part::{Ending, has};
use crate::tree;
use anyhow::Context;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Program that counts instructions.
pub(crate) const PROGRAM: &str = "valgrind";

/// Cases of `weft-bench repeat`, each with a number of repetitions that takes about a second under
/// callgrind.
const CASES: &[(&str, u64)] = &[
    ("assemble", 200),
    ("driver-random-write", 5_000),
    ("driver-random-write-alone", 5_000),
    ("driver-read", 10_000),
    ("driver-read-alone", 10_000),
    ("engine-full-stripe-write", 500),
    ("engine-full-stripe-write-auto", 500),
    ("engine-raid0-read", 10_000),
    ("engine-raid0-write", 10_000),
    ("engine-raid1-read", 10_000),
    ("engine-raid1-write", 10_000),
    ("engine-raid1-write-bitmap", 10_000),
    ("engine-raid10-read", 10_000),
    ("engine-raid10-write", 10_000),
    ("engine-random-write-256", 10_000),
    ("engine-random-write-65536", 5_000),
    ("engine-random-write-bitmap", 10_000),
    ("engine-read", 10_000),
    ("engine-single-read", 10_000),
    ("engine-single-write", 10_000),
    ("nbd-request", 20_000),
    ("parity-pq-scalar", 50),
    ("parity-xor-avx2", 5_000),
    ("sched-bfq-4096", 20_000),
    ("sched-bfq-6", 20_000),
    ("sched-mq-deadline-4096", 20_000),
    ("sched-mq-deadline-6", 20_000),
    ("write-back-read", 20_000),
    ("write-back-read-miss", 10_000),
    ("write-back-write", 20_000),
    ("write-back-write-out", 5_000),
];

/// Case of the example `repeat`, with its repetitions. The example is built with the planted bugs,
/// as sweeps are.
const SIMULATED: (&str, u64) = ("sim-random-write-tags", 3_000);

/// Largest accepted change of a count, in percent. A larger change fails the part, unless the new
/// count is committed.
const PERCENT_MAX: u64 = 3;

/// Compares the counts of the `weft-bench` beside `weft` with the committed file; `update` writes
/// the file instead.
pub(crate) fn run(weft: &Path, update: bool) -> Ending {
    match compare(&weft.with_file_name("weft-bench"), update) {
        Ok(ending) => ending,
        Err(error) => Ending::Failed(format!("{error:#}")),
    }
}

fn compare(bench: &Path, update: bool) -> anyhow::Result<Ending> {
    if !has(PROGRAM) {
        return Ok(Ending::Skipped("valgrind is not installed: apt-get install valgrind".into()));
    }
    if std::env::consts::ARCH != "x86_64" {
        return Ok(Ending::Skipped("the committed counts are those of x86-64".into()));
    }
    let path = file();
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let (recorded, here) = (recorded_by(&text), rustc());
    if !update && recorded != here {
        return Ok(Ending::Skipped(format!(
            "the committed counts are those of {recorded}, and this is {here}: \
             cd benches && cargo xtask instructions, which has benches/rust-toolchain.toml chosen"
        )));
    }
    let old = parse(&text)?;
    let mut new = BTreeMap::new();
    for (case, times) in CASES {
        new.insert((*case).to_owned(), count(bench, case, *times, 0)?);
    }
    let (case, times) = SIMULATED;
    let mut example = Command::new(build_example("weft-crash", "repeat")?);
    new.insert(case.to_owned(), counted(example.arg(times.to_string()), case, times)?);
    let (table, verdict) = judge(&old, &new);
    print!("{table}");
    if update {
        std::fs::write(&path, written(&new)).with_context(|| path.display().to_string())?;
        println!("{} written", tree::shown(&path));
        if recorded != here {
            println!("by {here}: name it in benches/rust-toolchain.toml too");
        }
        return Ok(Ending::Passed);
    }
    if let Some(problem) = verdict {
        return Ok(Ending::Failed(problem));
    }
    // A comparison without findings must show that it detects a planted slow-down.
    let (case, times) = ("parity-xor-avx2", 5_000);
    let slower = BTreeMap::from([(case.to_owned(), count(bench, case, times, 5)?)]);
    let committed = old.get(case).map(|it| BTreeMap::from([(case.to_owned(), *it)]));
    let (_, found) = judge(&committed.unwrap_or_default(), &slower);
    if found.is_none() {
        return Ok(Ending::Failed("5 % more work, planted, was not found".into()));
    }
    println!("5 % more work, planted in {case}, is found");
    Ok(Ending::Passed)
}

/// Compiler that the text of a committed file names; `?` if it names none.
fn recorded_by(text: &str) -> &str {
    text.lines().find_map(|line| line.strip_prefix("# by ")).unwrap_or("?")
}

fn file() -> PathBuf {
    tree::root().join("benches/instructions.toml")
}

/// Counts the instructions per operation over `times` operations of a case. Each operation does
/// `extra` percent of additional work, which tests that a regression is found.
fn count(bench: &Path, case: &str, times: u64, extra: u64) -> anyhow::Result<u64> {
    let (count, extra) = (times.to_string(), extra.to_string());
    let mut command = Command::new(bench);
    counted(command.args(["repeat", case, &count, "--extra", &extra]), case, times)
}

/// Runs a command with `times` operations under callgrind. Returns the instructions per operation.
fn counted(command: &Command, case: &str, times: u64) -> anyhow::Result<u64> {
    let output = Command::new(PROGRAM)
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg("--toggle-collect=*measured_part*")
        .arg(command.get_program())
        .args(command.get_args())
        .stdin(std::process::Stdio::null())
        .output()
        .context(PROGRAM)?;
    let told = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{case}: {}: {told}", output.status);
    let total = told.lines().find_map(|line| line.split_once("Collected :")).map(|it| it.1.trim());
    let total: u64 = total.with_context(|| format!("{case}: no count in {told}"))?.parse()?;
    anyhow::ensure!(
        total >= times,
        "{case}: {total} instructions for {times}: nothing was measured"
    );
    Ok(total / times)
}

/// Compares two sets of counts. Returns a table as text, and the text of the failure; `None` if
/// there is no failure.
fn judge(old: &BTreeMap<String, u64>, new: &BTreeMap<String, u64>) -> (String, Option<String>) {
    let mut table = format!("{:28} {:>9} {:>9} {:>8}\n", "instructions of", "committed", "now", "");
    let (mut worse, mut better) = (Vec::new(), Vec::new());
    for (case, now) in new {
        let Some(committed) = old.get(case) else {
            let _ = writeln!(table, "{case:28} {:>9} {now:>9}      new", "-");
            better.push(case.as_str());
            continue;
        };
        let percent = (*now as f64 / *committed as f64 - 1.0) * 100.0;
        let _ = writeln!(table, "{case:28} {committed:>9} {now:>9} {percent:>+7.1}%");
        if now * 100 > committed * (100 + PERCENT_MAX) {
            worse.push(case.as_str());
        } else if now * 100 < committed * (100 - PERCENT_MAX) {
            better.push(case.as_str());
        }
    }
    let gone: Vec<&str> =
        old.keys().filter(|case| !new.contains_key(*case)).map(String::as_str).collect();
    let mut problems = Vec::new();
    if !worse.is_empty() {
        problems.push(format!("more instructions than committed: {}", worse.join(", ")));
    }
    if !better.is_empty() || !gone.is_empty() {
        let all = [better, gone].concat().join(", ");
        problems
            .push(format!("{all} changed: commit the file of `cargo xtask instructions --update`"));
    }
    (table, (!problems.is_empty()).then(|| problems.join("; ")))
}

/// Parses the committed file, which has lines `case = count`.
fn parse(text: &str) -> anyhow::Result<BTreeMap<String, u64>> {
    let lines = text.lines().filter(|line| !line.starts_with(['#', '[']) && !line.is_empty());
    lines
        .map(|line| {
            let (case, count) = line.split_once(" = ").with_context(|| format!("line {line:?}"))?;
            Ok((case.to_owned(), count.parse().with_context(|| format!("line {line:?}"))?))
        })
        .collect()
}

fn written(counts: &BTreeMap<String, u64>) -> String {
    let mut text = format!(
        "# Instructions for each operation of `weft-bench repeat`, and of the crash simulator's example\n\
         # `repeat`, as callgrind counts them.\n\
         # Written by `cargo xtask instructions --update`; CI fails at a change of {PERCENT_MAX} %.\n\
         # by {}\n[instructions]\n",
        rustc()
    );
    for (case, count) in counts {
        let _ = writeln!(text, "{case} = {count}");
    }
    text
}

fn rustc() -> String {
    let output = Command::new("rustc").arg("--version").current_dir(tree::root()).output();
    output.map_or_else(|_| "?".into(), |it| String::from_utf8_lossy(&it.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn counts(pairs: &[(&str, u64)]) -> BTreeMap<String, u64> {
        pairs.iter().map(|(case, count)| ((*case).to_owned(), *count)).collect()
    }

    #[test]
    fn more_than_three_percent_either_way_is_told_and_less_is_not() {
        let old = counts(&[("a", 1000), ("b", 200)]);
        for (now, told) in [
            (1000, None),
            (1030, None),
            (1031, Some("more instructions than committed: a")),
            (1050, Some("more instructions than committed: a")),
            (970, None),
            (969, Some("a changed")),
        ] {
            let (table, verdict) = judge(&old, &counts(&[("a", now), ("b", 200)]));
            assert!(table.contains(&now.to_string()), "{table}");
            match (told, verdict) {
                (None, None) => {}
                (Some(told), Some(verdict)) => assert!(verdict.starts_with(told), "{verdict}"),
                (told, verdict) => panic!("{now}: expected {told:?}, found {verdict:?}"),
            }
        }
    }

    #[test]
    fn the_pinned_toolchain_is_the_one_that_the_counts_are_of() {
        let counts = std::fs::read_to_string(file()).unwrap();
        let pin = tree::root().join("benches/rust-toolchain.toml");
        let pin = std::fs::read_to_string(pin).unwrap();
        let channel = pin.lines().find_map(|line| line.strip_prefix("channel = ")).unwrap();
        let version = recorded_by(&counts).split(' ').nth(1).unwrap();
        assert_eq!(channel.trim_matches('"'), version);
        assert_eq!(recorded_by("[instructions]\n"), "?");
    }

    #[test]
    fn cases_that_come_and_go_are_told() {
        let (_, verdict) = judge(&counts(&[("a", 1)]), &counts(&[("b", 1)]));
        assert!(verdict.is_some_and(|it| it.starts_with("b, a changed")));
    }

    #[test]
    fn what_is_written_is_read_again_and_the_committed_file_has_every_case() {
        let all = counts(&[("a", 1), ("b-c", 65_536)]);
        assert_eq!(parse(&written(&all)).unwrap(), all);
        assert!(parse("a: 5\n").is_err());
        let committed = parse(&std::fs::read_to_string(file()).unwrap()).unwrap();
        let cases: BTreeSet<&str> = CASES.iter().chain([&SIMULATED]).map(|case| case.0).collect();
        assert_eq!(committed.keys().map(String::as_str).collect::<BTreeSet<_>>(), cases);
    }
}
