//! Test runner with a time limit for each test: nextest, or a replacement where nextest is not
//! installed.
//!
//! `cargo test` has no time limit for a single test, so a hanging test uses up the time of all
//! others and is not named. The replacement runs each test in a process of its own, as nextest
//! does, with as many tests at a time as there are CPUs. A test that exceeds [`LIMIT`] is killed
//! and fails. Building nextest would take longer than the tests, and needs a network.

use crate::part::{Ending, cargo, run};
use anyhow::Context;
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Time limit of one test, equal to that of `.config/nextest.toml`.
const LIMIT: Duration = Duration::from_secs(600);

/// Duration in seconds from which on a test is listed at the end.
const SLOW: u64 = 5;
const SLOWEST: usize = 30;

/// Time limit of building and running all tests of a selection: four times their duration beside
/// the kernel lab, because some machines of CI are half as fast as others. A hanging test is ended
/// earlier, by its own limit.
const LIMIT_OF_ALL: Duration = Duration::from_secs(3600);

/// Options that select all tests but no examples, because examples need weft-crash's library
/// compiled once more, without its tests.
pub(crate) const ALL: [&str; 2] = ["--workspace", "--tests"];

/// Runs the tests of some crates from the build of the workspace, because built alone the crates
/// would have other features, and most of the build would be repeated. A word `-CRATE/FILE` leaves
/// out the tests of this file.
pub(crate) fn tests_of(words: &[&str]) -> Ending {
    let (left_out, crates): (Vec<&str>, Vec<&str>) =
        words.iter().partition(|word| word.starts_with('-'));
    if nextest_is_here() {
        let packages: Vec<String> = crates.iter().map(|name| format!("package({name})")).collect();
        let without = left_out.iter().filter_map(|word| word[1..].split_once('/'));
        let without = without.map(|(_, file)| format!(" - binary(={file})")).collect::<String>();
        let filter = format!("({}){without}", packages.join(" + "));
        return tests(&[&ALL[..], &["-E", &filter]].concat());
    }
    let of_crates = |binaries: Vec<Binary>| -> anyhow::Result<Vec<Binary>> {
        let is_of = |binary: &Binary, name: &str| binary.folder.ends_with(name);
        for word in &left_out {
            let known = binaries.iter().any(|binary| binary.is_left_out_by(word));
            anyhow::ensure!(known, "{word}: found no such file of tests to leave out");
        }
        let named = |binary: &Binary| {
            crates.iter().any(|name| is_of(binary, name))
                && !left_out.iter().any(|word| binary.is_left_out_by(word))
        };
        let found: Vec<Binary> = binaries.into_iter().filter(named).collect();
        anyhow::ensure!(!found.is_empty(), "no tests of {}", crates.join(", "));
        Ok(found)
    };
    let ending = binaries(&ALL).and_then(of_crates);
    ending
        .and_then(|found| run_binaries(&found))
        .unwrap_or_else(|error| Ending::Failed(format!("{error:#}")))
}

fn nextest_is_here() -> bool {
    cargo(&["nextest", "--version"]).output().is_ok_and(|output| output.status.success())
}

/// Runs the tests that cargo's options (`--workspace`, `-p CRATE`, …) select.
pub(crate) fn tests(selection: &[&str]) -> Ending {
    if nextest_is_here() {
        let words = ["nextest", "run", "--no-fail-fast", "--status-level", "slow"];
        return run(cargo(&[&words, selection].concat()), LIMIT_OF_ALL);
    }
    match binaries(selection).and_then(|binaries| run_binaries(&binaries)) {
        Ok(ending) => ending,
        Err(error) => Ending::Failed(format!("{error:#}")),
    }
}

/// A test program, and the folder of its package, in which its tests run.
pub(crate) struct Binary {
    pub(crate) program: PathBuf,
    pub(crate) folder: PathBuf,
}

impl Binary {
    /// Name of the library or of the file of tests, with underscores: the program's name without
    /// its hash.
    pub(crate) fn name(&self) -> String {
        let name = self.program.file_name().unwrap_or_default().to_string_lossy();
        name.rsplit_once('-').map_or(&*name, |(name, _)| name).to_owned()
    }

    /// Whether the word is `-CRATE/FILE` for this program.
    fn is_left_out_by(&self, word: &str) -> bool {
        let words = word.strip_prefix('-').and_then(|word| word.split_once('/'));
        words.is_some_and(|(name, of)| self.folder.ends_with(name) && of == self.name())
    }
}

/// Builds the selected tests.
fn binaries(selection: &[&str]) -> anyhow::Result<Vec<Binary>> {
    let words = ["test", "-q", "--no-run", "--message-format=json-render-diagnostics"];
    let mut command = cargo(&[&words, selection].concat());
    let output = command.stderr(Stdio::inherit()).output()?;
    anyhow::ensure!(output.status.success(), "the tests do not build");
    let binaries = built(&String::from_utf8_lossy(&output.stdout));
    anyhow::ensure!(!binaries.is_empty(), "no program of tests was built");
    Ok(binaries)
}

/// Test programs in cargo's output of one JSON object per line.
pub(crate) fn built(messages: &str) -> Vec<Binary> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    messages
        .filter(|message| message["profile"]["test"] == true)
        .filter_map(|message| {
            let program = PathBuf::from(message["executable"].as_str()?);
            let manifest = PathBuf::from(message["manifest_path"].as_str()?);
            Some(Binary { program, folder: manifest.parent()?.to_owned() })
        })
        .collect()
}

fn run_binaries(binaries: &[Binary]) -> anyhow::Result<Ending> {
    let mut all = Vec::new();
    for binary in binaries {
        let output = Command::new(&binary.program)
            .args(["--list", "--format", "terse"])
            .current_dir(&binary.folder)
            .output()
            .with_context(|| binary.program.display().to_string())?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
        all.extend(names.map(|name| (binary, name.to_owned())));
    }
    anyhow::ensure!(!all.is_empty(), "no test in {} programs", binaries.len());
    let count = all.len();
    all.reverse();
    let (left, failed) = (Mutex::new(all), Mutex::new(Vec::new()));
    let times = Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some((binary, name)) = pop(&left) {
                    let mut command = Command::new(&binary.program);
                    command.args(["--exact", &name, "--nocapture"]).current_dir(&binary.folder);
                    let start = Instant::now();
                    let ending = one(command, LIMIT);
                    let time = (start.elapsed().as_secs(), format!("{} {name}", crate_of(binary)));
                    times.lock().expect("no worker panics").push(time);
                    if let Err(problem) = ending {
                        println!("FAILED {} {name}: {problem}", binary.program.display());
                        failed.lock().expect("no worker panics").push(name);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("no worker panics");
    println!("{count} tests run, {} failed", failed.len());
    print_slowest(times.into_inner().expect("no worker panics"));
    if failed.is_empty() {
        return Ok(Ending::Passed);
    }
    Ok(Ending::Failed(failed.join(", ")))
}

/// Prints the names of the tests that took longest.
fn print_slowest(mut times: Vec<(u64, String)>) {
    times.sort_unstable();
    for (seconds, name) in times.iter().rev().take(SLOWEST).take_while(|(time, _)| *time >= SLOW) {
        println!("  {seconds:3} s {name}");
    }
}

/// Name of the crate to which a test program belongs.
fn crate_of(binary: &Binary) -> String {
    binary.folder.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

fn pop<T>(left: &Mutex<Vec<T>>) -> Option<T> {
    left.lock().expect("no worker panics").pop()
}

/// Runs one test as a command, and kills it after `limit`. The error describes the failure.
fn one(mut command: Command, limit: Duration) -> Result<(), String> {
    use std::os::unix::process::CommandExt;
    // The test has a process group of its own, so servers that it started end with it.
    command.process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().map_err(|error| error.to_string())?;
    let id = child.id();
    // A thread reads the output, so a full pipe does not block the test.
    let (sender, receiver) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || sender.send(output(child)));
    let start = Instant::now();
    let ended = receiver.recv_timeout(limit);
    if ended.is_err() {
        let group = format!("-{id}");
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = reader.join();
        return Err(format!("not done after {} s: ended", start.elapsed().as_secs()));
    }
    match ended.expect("looked at just now") {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let told = [output.stdout, output.stderr].concat();
            Err(format!("{}\n{}", output.status, String::from_utf8_lossy(&told)))
        }
        Err(error) => Err(error.to_string()),
    }
}

fn output(child: Child) -> std::io::Result<Output> {
    child.wait_with_output()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_test_that_hangs_ends_with_what_it_started_and_has_failed() {
        let limit = Duration::from_millis(200);
        let problem = one(shell("sleep 1000 & wait"), limit).unwrap_err();
        assert!(problem.starts_with("not done after"), "{problem}");
        assert_eq!(one(shell("exit 0"), LIMIT), Ok(()));
        let problem = one(shell("echo the reason >&2; exit 101"), LIMIT).unwrap_err();
        assert!(problem.contains("101") && problem.contains("the reason"), "{problem}");
        // The output is larger than a pipe.
        assert_eq!(one(shell("head -c 1000000 /dev/zero"), LIMIT), Ok(()));
    }

    #[test]
    fn a_file_of_tests_is_left_out_by_its_crate_and_name() {
        let of = |folder: &str, program: &str| Binary {
            program: PathBuf::from("/target/debug/deps").join(program),
            folder: PathBuf::from("/crates").join(folder),
        };
        assert!(of("weft-cli", "compare_repeats-0a1b").is_left_out_by("-weft-cli/compare_repeats"));
        for (folder, program) in
            [("weft-lab", "sim-0a1b"), ("weft-cli", "sim_more-0a1b"), ("weft-cli", "weft-0a1b")]
        {
            assert!(!of(folder, program).is_left_out_by("-weft-cli/sim"), "{folder} {program}");
        }
    }

    #[test]
    fn programs_of_tests_are_found_in_what_cargo_says() {
        let said = r#"{"reason":"compiler-artifact","manifest_path":"/w/a/Cargo.toml","profile":{"test":true},"executable":"/w/target/a-1"}
{"reason":"compiler-artifact","manifest_path":"/w/a/Cargo.toml","profile":{"test":false},"executable":"/w/target/a"}
{"reason":"compiler-artifact","manifest_path":"/w/b/Cargo.toml","profile":{"test":true},"executable":null}
not json
"#;
        let found = built(said);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].program, PathBuf::from("/w/target/a-1"));
        assert_eq!(found[0].folder, PathBuf::from("/w/a"));
    }

    #[test]
    fn the_limit_is_that_of_nextest() {
        let text = std::fs::read_to_string(crate::tree::root().join(".config/nextest.toml"));
        let text = text.unwrap();
        assert!(text.contains(r#"slow-timeout = { period = "60s", terminate-after = 10 }"#));
        assert_eq!(LIMIT, Duration::from_secs(60 * 10));
    }
}
