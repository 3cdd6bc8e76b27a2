//! Reach of tests: the changed functions that each test calls, and the time that it takes.
//!
//! A changed function begins with a call of `chosen_change`, a function that is added to the crate.
//! `chosen_change` returns the number of the selected change. If no change is selected, it adds the
//! number of the calling function to a file, on the first call in a process. Each test runs in a
//! process of its own, so that a value which another test has computed before does not hide a call.

use super::together::Change;
use crate::runner::Binary;
use crate::tree;
use anyhow::{Context, ensure};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

/// Environment variable with the number of the change that is to be run.
pub(super) const CHANGE: &str = "WEFT_CHOSEN_CHANGE";

/// Environment variable with the path of the file to which a test adds the numbers of functions
/// that it calls.
pub(super) const FILE: &str = "WEFT_REACHED_FUNCTIONS";

/// Turns in which changes are run, each given by the CPU time of its slowest test. A turn runs the
/// changes that the tests of earlier turns did not catch.
const LONGEST: [Duration; 3] =
    [Duration::from_millis(50), Duration::from_millis(500), Duration::MAX];

/// A test, with the records of a run without a change.
pub(super) struct Recorded {
    pub(super) program: Rc<Binary>,
    pub(super) name: String,
    /// CPU time of the run.
    took: Duration,
    /// Limit of a run with a change, in seconds of CPU time.
    pub(super) limit: u64,
    /// Numbers of the changed functions that the test calls.
    pub(super) reached: BTreeSet<u32>,
}

/// Runs each test for which `selects` (of program and name) is true once without a change, and
/// returns the tests that call changed functions, fastest first. Returns an error if a test fails.
pub(super) fn record(
    programs: Vec<Binary>,
    folder: &Path,
    selects: impl Fn(&Binary, &str) -> bool,
) -> anyhow::Result<Vec<Recorded>> {
    let file = folder.join("reached.txt");
    let mut tests = Vec::new();
    let mut count = 0;
    for program in programs.into_iter().map(Rc::new) {
        let names = names(&program)?;
        for name in names.into_iter().filter(|name| selects(&program, name)) {
            std::fs::write(&file, "").with_context(|| tree::shown(&file))?;
            let before = time_of_children()?;
            let ending = test(&program, &name, 0, 3600, Some(&file))?;
            ensure!(ending.is_none(), "nothing is changed, and a test fails: {ending:?}");
            let took = time_of_children()? - before;
            let limit = if took < LONGEST[0] { 2 } else { 5 + 5 * took.as_secs() };
            let text = std::fs::read_to_string(&file)?;
            let reached: BTreeSet<u32> = text.lines().map(str::parse).collect::<Result<_, _>>()?;
            let program = program.clone();
            tests.push(Recorded { program, name, took, limit, reached });
            count += 1;
        }
    }
    tests.retain(|test| !test.reached.is_empty());
    tests.sort_by_key(|test| test.took);
    let took: Duration = tests.iter().map(|test| test.took).sum();
    println!("  {} of {count} tests call changed functions, {took:.1?} in all", tests.len());
    Ok(tests)
}

/// Runs each change with the tests that call its function, until one fails, and reports the outcome
/// and the failed test. Slow tests run last, with the changes that the faster tests have not caught
/// ([`LONGEST`]).
pub(super) fn try_all(
    tests: &[Recorded],
    changes: Vec<&Change>,
    mut report: impl FnMut(&Change, &str, &str) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut left = Vec::new();
    for change in changes {
        let calls = tests.iter().filter(|test| test.reached.contains(&change.number));
        let calls: Vec<&Recorded> = calls.collect();
        match calls.is_empty() {
            true => report(change, "missed", "no test calls the function")?,
            false => left.push((change, calls)),
        }
    }
    for longest in LONGEST {
        println!("  {} changes, tests of at most {longest:?}", left.len());
        let mut later = Vec::new();
        for (change, mut calls) in left {
            let slow = calls.split_off(calls.partition_point(|test| test.took <= longest));
            match outcome(&calls, change.id)? {
                Some((outcome, test)) => report(change, outcome, &test)?,
                None if slow.is_empty() => report(change, "missed", "")?,
                None => later.push((change, slow)),
            }
        }
        left = later;
    }
    Ok(())
}

/// Runs a change with `tests` until one of them fails. Returns the outcome and the name of the
/// failed test; `None` if all pass.
fn outcome(tests: &[&Recorded], change: u32) -> anyhow::Result<Option<(&'static str, String)>> {
    for Recorded { program, name, limit, .. } in tests {
        let found = test(program, name, change, *limit, None)?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// Runs a test with a change. Returns the outcome and the name of the test if it fails; `None` if
/// it passes. `change` is 0 for the unchanged code; the test may then add the numbers of the
/// functions that it calls to the file `reached`.
pub(super) fn test(
    program: &Binary,
    name: &str,
    change: u32,
    limit: u64,
    reached: Option<&Path>,
) -> anyhow::Result<Option<(&'static str, String)>> {
    // Both limits, CPU time in seconds and memory in KiB, end the process.
    let limits = "ulimit -t $1; ulimit -v 8388608; shift; exec \"$@\"";
    let mut child = Command::new("sh")
        .args(["-c", limits, "sh", &limit.to_string()])
        .arg(&program.program)
        .args(["--test-threads=1", "--exact", name])
        .env(CHANGE, change.to_string())
        .envs(reached.map(|file| (FILE, file)))
        .env("RUST_BACKTRACE", "0")
        .env("CARGO_MANIFEST_DIR", &program.folder)
        .current_dir(&program.folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let output = BufReader::new(child.stdout.take().context("it is piped")?);
    let mut last = String::new();
    for line in output.lines() {
        last = line?;
        if let Some(name) = last.strip_suffix(" ... FAILED") {
            child.kill()?;
            child.wait()?;
            return Ok(Some(("caught", name.to_owned())));
        }
    }
    let status = child.wait()?;
    Ok(match status.signal() {
        _ if status.success() => None,
        // SIGKILL, SIGXCPU.
        Some(9 | 24) => Some(("timeout", last)),
        _ => Some(("caught", format!("{status} after {last}"))),
    })
}

/// Names of the tests in a program.
fn names(program: &Binary) -> anyhow::Result<Vec<String>> {
    let words = ["--list", "--format", "terse"];
    let output =
        Command::new(&program.program).args(words).current_dir(&program.folder).output()?;
    ensure!(output.status.success(), "{}: {}", program.program.display(), output.status);
    let text = String::from_utf8(output.stdout)?;
    Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

/// Code that is added to the crate: it selects the change, for functions with numbers below `end`.
pub(super) fn chooser(end: u32) -> String {
    let code = r#"
/// Number of the change that is run. Without one, the first call of each function is recorded.
pub fn chosen_change(function: u32) -> u32 {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    static CHOSEN: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    static REACHED: [AtomicBool; END] = [const { AtomicBool::new(false) }; END];
    let reached = &REACHED[function as usize];
    if !reached.load(Relaxed) && !reached.swap(true, Relaxed) {
        if let Some(path) = std::env::var_os("FILE") {
            let mut file = std::fs::OpenOptions::new().append(true).open(path).expect("it is there");
            let line = format!("{function}\n");
            std::io::Write::write_all(&mut file, line.as_bytes()).expect("it is writable");
        }
    }
    *CHOSEN.get_or_init(|| {
        let text = std::env::var("CHANGE").expect("CHANGE names it");
        text.parse().expect("it is a number")
    })
}
"#;
    code.replace("END", &end.to_string()).replace("FILE", FILE).replace("CHANGE", CHANGE)
}

/// CPU time of all child processes that have ended and were waited for.
pub(super) fn time_of_children() -> anyhow::Result<Duration> {
    let text = std::fs::read_to_string("/proc/self/stat")?;
    let fields = text.rsplit(')').next().unwrap_or_default().split_whitespace();
    // `fields` begins with the third field of the file, the state. cutime and cstime are the fields
    // 16 and 17, in hundredths of a second.
    let times = fields.skip(13).take(2).map(str::parse::<u64>).collect::<Result<Vec<_>, _>>()?;
    Ok(Duration::from_millis(times.iter().sum::<u64>() * 10))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn temporary(name: &str) -> PathBuf {
        tree::root().join("target").join(format!("mutants-reach-{}-{name}", std::process::id()))
    }

    #[test]
    fn the_added_code_records_each_called_function_once_and_returns_the_change() {
        let folder = temporary("chooser");
        std::fs::create_dir_all(&folder).unwrap();
        let (source, program, file) =
            (folder.join("main.rs"), folder.join("main"), folder.join("reached.txt"));
        let main = "fn main() {\n    chosen_change(4);\n    chosen_change(4);\n    \
                    if std::env::args().len() > 1 { chosen_change(2); }\n    \
                    println!(\"{}\", chosen_change(4));\n}\n";
        std::fs::write(&source, format!("{main}{}", chooser(5))).unwrap();
        let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
        rustc.args(["--edition=2024", "-o"]).arg(&program).arg(&source);
        assert!(rustc.status().unwrap().success());
        let run = |change: u32, words: &[&str], recorded: bool| {
            std::fs::write(&file, "").unwrap();
            let mut command = Command::new(&program);
            command.args(words).env(CHANGE, change.to_string());
            let output = command.envs(recorded.then_some((FILE, &file))).output().unwrap();
            (String::from_utf8(output.stdout).unwrap(), std::fs::read_to_string(&file).unwrap())
        };
        assert_eq!(run(0, &[], true), ("0\n".to_owned(), "4\n".to_owned()));
        assert_eq!(run(0, &["2"], true), ("0\n".to_owned(), "4\n2\n".to_owned()));
        assert_eq!(run(3, &["2"], false), ("3\n".to_owned(), String::new()));
        std::fs::remove_dir_all(folder).unwrap();
    }

    /// A shell script in place of a program of tests. The first two tests call function 1, and the
    /// second, slower one also calls function 5. The last test always fails, and is not selected.
    const SCRIPT: &str = r#"#!/bin/sh
if [ "$1" = --list ]; then printf '%s: test\n' two one none other; exit; fi
case "$WEFT_CHOSEN_CHANGE $3" in
"0 other") exit 101;;
"0 two") printf '1\n5\n' >> "$WEFT_REACHED_FUNCTIONS"
    i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done;;
"0 one") echo 1 >> "$WEFT_REACHED_FUNCTIONS";;
"1 one" | "5 two" | [56]" none") echo "test $3 ... FAILED"; exec sleep 1000;;
"2 one") while :; do :; done;;
"3 two") exit 101;;
esac
"#;

    /// The failing test is named, a timeout is distinguished, and only tests that call the changed
    /// function run: the test `none` would fail with the changes 5 and 6.
    #[test]
    fn a_change_runs_with_the_tests_that_call_its_function_until_one_fails() {
        let folder = temporary("tests");
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("tests.sh");
        // Another process writes the file: a program that is open for writing cannot be executed.
        let write = "printf '%s' \"$1\" > \"$2\" && chmod +x \"$2\"";
        let words = ["-c", write, "sh", SCRIPT];
        assert!(Command::new("sh").args(words).arg(&path).status().unwrap().success());
        let program = Binary { program: path, folder: folder.clone() };
        let selects = |_: &Binary, name: &str| name != "other";
        let mut tests = record(vec![program], &folder, selects).unwrap();
        assert_eq!(tests.iter().map(|test| &test.name).collect::<Vec<_>>(), ["one", "two"]);
        assert_eq!(tests[1].reached, BTreeSet::from([1, 5]));
        for test in &mut tests {
            test.limit = 1;
        }
        let changes = [(1, 1), (2, 1), (3, 1), (4, 1), (5, 5), (6, 6)];
        let changes = changes.map(|(id, number)| Change { id, number, ..Change::default() });
        let mut ended = Vec::new();
        try_all(&tests, changes.iter().collect(), |change, outcome, test| {
            ended.push(format!("{} {outcome} {test}", change.id));
            Ok(())
        })
        .unwrap();
        let expected = [
            "6 missed no test calls the function",
            "1 caught test one",
            "2 timeout ",
            "3 caught exit status: 101 after ",
            "4 missed ",
            "5 caught test two",
        ];
        ended[1..].sort();
        assert_eq!(ended, expected);
        // Planted: a test that fails without a change.
        let failing = SCRIPT.replace("5 two", "0 none");
        let words = ["-c", write, "sh", &failing];
        let path = folder.join("failing.sh");
        assert!(Command::new("sh").args(words).arg(&path).status().unwrap().success());
        let program = Binary { program: path, folder: folder.clone() };
        let error = record(vec![program], &folder, selects);
        assert!(error.err().unwrap().to_string().contains("a test fails"));
        assert!(time_of_children().unwrap() >= Duration::from_millis(300));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
