//! Suites of `interop/`: their needs, their limits, and how they are run.
//!
//! A suite is a folder with an executable `run`. Its header has `# needs: PROGRAM…`, and may have
//! `# minutes: N` (a limit; 5 when absent). It finds the binary in `$WEFT` and a folder of its own
//! in `$WORK`, prints `ok - …` lines, and exits 0, or 77 when this machine cannot run it. The
//! kernel lab is the suite `lab`, whose program is `test`.

use crate::part::{Ending, Report, cargo, run};
use crate::{packages, tree};
use anyhow::Context;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// One suite.
struct Suite {
    name: String,
    program: PathBuf,
    needs: Vec<String>,
    limit: Duration,
}

/// All suites, by name; the kernel lab, the longest, last.
fn suites() -> anyhow::Result<Vec<Suite>> {
    let folder = tree::root().join("interop");
    let mut suites = Vec::new();
    for entry in std::fs::read_dir(&folder).context("interop/")? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let program = path.join(if name == "lab" { "test" } else { "run" });
        let Ok(text) = std::fs::read_to_string(&program) else { continue };
        let header = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).unwrap_or("");
        let needs = header("# needs:").split_whitespace().map(str::to_owned).collect();
        let minutes = header("# minutes:").trim().parse().unwrap_or(5);
        suites.push(Suite { name, program, needs, limit: Duration::from_secs(60 * minutes) });
    }
    suites.sort_by_key(|suite| (suite.name == "lab", suite.name.clone()));
    anyhow::ensure!(!suites.is_empty(), "no suite in interop/");
    Ok(suites)
}

/// What tests of weft-lab and weft-sim compare with, and skip when it is absent.
const OF_TESTS: [&str; 3] = ["blkparse", "dbench", "fio"];

/// The packages that any suite, any test, or the count of instructions, needs and this machine
/// lacks.
pub(crate) fn packages_missing() -> Vec<&'static str> {
    let suites = suites().unwrap_or_default();
    let needs = suites.iter().flat_map(|suite| suite.needs.iter().map(String::as_str));
    packages::missing(needs.chain([crate::instructions::PROGRAM]).chain(OF_TESTS))
}

/// Builds the release binary; answers where it is.
pub(crate) fn build_release(report: &mut Report) -> Option<PathBuf> {
    let built = report.part("release build", || {
        run(
            cargo(&["build", "--release", "-p", "weft-cli", "--bin", "weft"]),
            Duration::from_secs(1800),
        )
    });
    built.then(|| target_folder().join("release/weft"))
}

/// Cargo's target folder.
pub(crate) fn target_folder() -> PathBuf {
    let metadata = crate::deps::metadata().unwrap_or_default();
    metadata["target_directory"].as_str().map_or_else(|| tree::root().join("target"), PathBuf::from)
}

/// Runs the suites named, or all.
pub(crate) fn run_suites(report: &mut Report, weft: &Path, names: &[&str]) -> anyhow::Result<()> {
    let suites = suites()?;
    for name in names {
        anyhow::ensure!(
            suites.iter().any(|suite| suite.name == *name),
            "interop/{name}: no such suite"
        );
    }
    for suite in suites.iter().filter(|s| names.is_empty() || names.contains(&s.name.as_str())) {
        report.part(&format!("interop {}", suite.name), || {
            let missing = packages::missing(suite.needs.iter().map(String::as_str));
            if !missing.is_empty() {
                return Ending::Skipped(packages::apt_line(&missing));
            }
            let work = target_folder().join("interop").join(&suite.name);
            let _ = std::fs::remove_dir_all(&work);
            if let Err(error) = std::fs::create_dir_all(&work) {
                return Ending::Failed(format!("{}: {error}", work.display()));
            }
            let mut command = Command::new(&suite.program);
            command.env("WEFT", weft).env("WORK", &work).current_dir(tree::root());
            let ending = run(command, suite.limit);
            if matches!(ending, Ending::Passed) {
                let _ = std::fs::remove_dir_all(&work);
            }
            ending
        });
    }
    Ok(())
}

/// `cargo xtask interop [NAME…]`.
pub(crate) fn interop(names: &[&str]) -> anyhow::Result<Report> {
    let mut report = Report::default();
    if let Some(weft) = build_release(&mut report) {
        run_suites(&mut report, &weft, names)?;
    }
    Ok(report)
}
