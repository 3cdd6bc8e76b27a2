//! Suites of `interop/`: requirements, time limits, and execution.
//!
//! A suite is a folder with an executable `run`. Its header has `# needs: PROGRAM…`, and may have
//! `# minutes: N` (a limit; 5 by default) and `# timed: WHY` (only another timed suite may run
//! beside it). The suite gets the binary in `$WEFT` and a folder of its own in `$WORK`. It prints
//! lines that begin with `ok - ` and exits with 0, or with 77 if this machine cannot run it. The
//! kernel lab is the suite `lab` with the program `test`: one long-running emulated machine, which
//! runs beside other parts.

use crate::part::{Claim, Ending, Job, Report, cargo, run};
use crate::{costs, package, packages, tree};
use anyhow::Context;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

struct Suite {
    name: String,
    program: PathBuf,
    needs: Vec<String>,
    limit: Duration,
    /// Whether the suite measures times: such a suite mostly waits, and only another timed suite
    /// may run beside it.
    timed: bool,
}

/// All suites, by name; timed suites come last.
fn suites() -> anyhow::Result<Vec<Suite>> {
    let folder = tree::root().join("interop");
    let mut suites = Vec::new();
    for entry in std::fs::read_dir(&folder).context("interop/")? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let program = path.join(if name == LAB { "test" } else { "run" });
        let Ok(text) = std::fs::read_to_string(&program) else { continue };
        let header = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).unwrap_or("");
        let needs = header("# needs:").split_whitespace().map(str::to_owned).collect();
        let minutes = header("# minutes:").trim().parse().unwrap_or(5);
        let timed = !header("# timed:").is_empty();
        let limit = Duration::from_secs(60 * minutes);
        suites.push(Suite { name, program, needs, limit, timed });
    }
    suites.sort_by_key(|suite| (suite.timed, suite.name.clone()));
    anyhow::ensure!(!suites.is_empty(), "no suite in interop/");
    Ok(suites)
}

/// Programs that tests need, besides those that suites need too. Tests of weft-lab and weft-sim
/// compare results with them, tests of `weft mount` mount without root, and tests of weft-files and
/// weft-cli make file systems. A test is skipped if its program is missing.
const OF_TESTS: [&str; 7] =
    ["blkparse", "dbench", "fio", "fusermount3", "mkfs.btrfs", "mkfs.xfs", "mkswap"];

/// Packages that this machine lacks and that a suite, a test, or the count of instructions needs.
pub(crate) fn packages_missing() -> Vec<&'static str> {
    let suites = suites().unwrap_or_default();
    let needs = suites.iter().flat_map(|suite| suite.needs.iter().map(String::as_str));
    packages::missing(needs.chain([crate::instructions::PROGRAM]).chain(OF_TESTS))
}

/// Builds the release binaries: `weft` and, beside it, `weft-bench`. Returns the path of `weft`.
pub(crate) fn build_release(report: &mut Report) -> Option<PathBuf> {
    let built = report.part("release build", || {
        run(
            cargo(&["build", "--release", "-p", "weft-cli", "-p", "weft-bench", "--bins"]),
            Duration::from_secs(1800),
        )
    });
    built.then(|| target_folder().join("release/weft"))
}

/// Builds an example in release. Returns its path.
///
/// The example is built together with `weft-cli`, so third-party crates have the same features:
/// built alone it would have other features, and most of the release build would be repeated.
pub(crate) fn build_example(package: &str, name: &str) -> anyhow::Result<PathBuf> {
    let packages = ["-p", "weft-cli", "-p", package, "--example", name];
    let build = cargo(&[&["build", "-q", "--release"], &packages[..]].concat());
    match run(build, EXAMPLE_LIMIT) {
        Ending::Passed => Ok(target_folder().join("release/examples").join(name)),
        Ending::Failed(why) | Ending::Skipped(why) => anyhow::bail!("{why}"),
    }
}

/// Builds an example in release, and runs it. Its output goes to the file `log`, or to the terminal
/// without one.
pub(crate) fn run_example(package: &str, name: &str, words: &[&str], log: Option<File>) -> Ending {
    let program = match build_example(package, name) {
        Ok(program) => program,
        Err(error) => return Ending::Failed(error.to_string()),
    };
    let mut command = Command::new(program);
    command.args(words).current_dir(tree::root());
    run_into(log, command, EXAMPLE_LIMIT)
}

/// Time limit of building an example, and of running it, for CI's slow machines and with only the
/// CPU time that other parts leave.
const EXAMPLE_LIMIT: Duration = Duration::from_secs(3600);

/// Runs a command. Its output goes to the file `log`, or to the terminal if `log` is `None`.
fn run_into(log: Option<File>, mut command: Command, limit: Duration) -> Ending {
    if let Some(log) = log {
        match log.try_clone() {
            Ok(second) => command.stdout(log).stderr(Stdio::from(second)),
            Err(error) => return Ending::Failed(error.to_string()),
        };
    }
    run(command, limit)
}

/// Cargo's target folder.
pub(crate) fn target_folder() -> PathBuf {
    let metadata = crate::deps::metadata().unwrap_or_default();
    metadata["target_directory"].as_str().map_or_else(|| tree::root().join("target"), PathBuf::from)
}

impl Suite {
    /// Name of the suite's part in a task.
    fn part(&self) -> String {
        format!("interop {}", self.name)
    }

    fn job(self, weft: &Path) -> Job {
        let (name, weft) = (self.part(), weft.to_owned());
        let log = target_folder().join(format!("interop-{}.log", self.name));
        Job { name, log, work: Box::new(move |log| self.run(&weft, Some(log))) }
    }

    /// Runs the suite. Its output goes to the file `log`, or to the terminal without one.
    fn run(&self, weft: &Path, log: Option<File>) -> Ending {
        let missing = packages::missing(self.needs.iter().map(String::as_str));
        if !missing.is_empty() {
            return Ending::Skipped(packages::apt_line(&missing));
        }
        let work = target_folder().join("interop").join(&self.name);
        let _ = std::fs::remove_dir_all(&work);
        if let Err(error) = std::fs::create_dir_all(&work) {
            return Ending::Failed(format!("{}: {error}", work.display()));
        }
        let mut command = Command::new(&self.program);
        command.env("WEFT", weft).env("WORK", &work).current_dir(tree::root());
        let ending = run_into(log, command, self.limit);
        if matches!(ending, Ending::Passed) {
            let _ = std::fs::remove_dir_all(&work);
        }
        ending
    }
}

/// Names of all suites, for tests.
#[cfg(test)]
pub(crate) fn names() -> anyhow::Result<Vec<String>> {
    Ok(suites()?.into_iter().map(|suite| suite.name).collect())
}

/// Parts in the table of costs that do not add to the duration of `test` here: parts of other
/// tasks, the lab, which runs beside the tests, and suites with missing programs.
pub(crate) fn left_out(install: bool) -> anyhow::Result<Vec<String>> {
    let mut left_out: Vec<String> = costs::OF_CHECK.map(str::to_owned).into();
    if !install {
        left_out.extend(costs::OF_INSTALL.map(str::to_owned));
    }
    for suite in suites()? {
        let lacks = !packages::missing(suite.needs.iter().map(String::as_str)).is_empty();
        if suite.name == LAB || (lacks && !install) {
            left_out.push(suite.part());
        }
    }
    Ok(left_out)
}

/// Starts the kernel lab, which runs beside the following parts.
pub(crate) fn start_lab(report: &mut Report, weft: &Path) -> anyhow::Result<()> {
    let lab = suites()?.into_iter().find(|suite| suite.name == LAB).context("interop/lab")?;
    let (name, log) = (lab.part(), target_folder().join("interop-lab.log"));
    let weft = weft.to_owned();
    report.beside(&name, &log, Claim::First, move |log| lab.run(&weft, Some(log)));
    Ok(())
}

/// Runs the named suites, or all except the kernel lab, two at a time: first the suites that are
/// not timed, then the timed ones. Beside timed suites, only parts run that compute in the CPU time
/// left over ([`Claim::Last`]). Returns whether all passed.
pub(crate) fn run_suites(report: &mut Report, weft: &Path, names: &[&str]) -> anyhow::Result<bool> {
    let suites = suites()?;
    for name in names {
        anyhow::ensure!(
            suites.iter().any(|suite| suite.name == *name),
            "interop/{name}: no such suite"
        );
    }
    let wanted = |suite: &Suite| match names {
        [] => suite.name != LAB,
        names => names.contains(&suite.name.as_str()),
    };
    let wanted = suites.into_iter().filter(wanted);
    let (timed, others): (Vec<Suite>, Vec<Suite>) = wanted.partition(|suite| suite.timed);
    let mut passed = true;
    for mut suites in [others, timed] {
        if suites.first().is_some_and(|suite| suite.timed) {
            report.alone();
        }
        if suites.len() == 1 {
            let suite = suites.remove(0);
            passed &= report.part(&suite.part(), || suite.run(weft, None));
        } else {
            let jobs = suites.into_iter().map(|suite| suite.job(weft)).collect();
            passed &= report.side_by_side(jobs, AT_ONCE);
        }
    }
    Ok(passed)
}

/// Number of suites that run side by side: they wait for members, clients and the clock, so two
/// take little longer than one.
const AT_ONCE: usize = 2;

/// Name of the suite that is the kernel lab.
const LAB: &str = "lab";

/// `cargo xtask interop [NAME…]`: the named suites, or all.
pub(crate) fn interop(names: &[&str]) -> anyhow::Result<Report> {
    let mut report = Report::default();
    if names.is_empty() || names.contains(&"package") {
        package::parts(&mut report);
    }
    if let Some(weft) = build_release(&mut report) {
        if names.is_empty() {
            start_lab(&mut report, &weft)?;
        }
        run_suites(&mut report, &weft, names)?;
    }
    Ok(report)
}
