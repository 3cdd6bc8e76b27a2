//! Tasks `check` and `test`: the gate of a commit, and the gate of CI.

use crate::part::{Claim, Ending, Report, cargo, run};
use crate::runner::{ALL, tests, tests_of};
use crate::{
    circles, citations, commits, costs, deny, deps, fresh, instructions, interop, links, long, map,
    package, packages, product, purity, skips, statements, words,
};
use std::process::Command;
use std::time::Duration;

const HALF_AN_HOUR: Duration = Duration::from_secs(1800);

/// `cargo xtask check`: fmt, clippy, rustdoc, the engine's purity, unit tests, a short simulation.
pub(crate) fn check() -> anyhow::Result<Report> {
    let mut report = Report::of(LINTS + costs::OF_CHECK.len());
    lints(&mut report);
    report.part("unit tests", || tests(&["--workspace", "--lib", "--bins"]));
    report.part("short simulation", || tests(&["-p", "weft-crash", "-p", "weft-sim", "--tests"]));
    Ok(report)
}

/// `cargo xtask test [--install]`: all parts of the gate of CI.
pub(crate) fn test(install: bool) -> anyhow::Result<Report> {
    let others = costs::OF_CHECK.len() + if install { 0 } else { costs::OF_INSTALL.len() };
    let mut report = Report::of(costs::table()?.len() - others);
    let missing = interop::packages_missing();
    println!("{}", costs::expected(&costs::table()?, &interop::left_out(install)?));
    if install {
        report.part("Debian packages", || packages::install(interop::packages_missing));
    } else if !missing.is_empty() {
        println!("some parts will be skipped; for all of them: {}", packages::apt_line(&missing));
    }
    // The kernel of the lab is fetched with the packages, and only on request.
    if install {
        report.part("kernel lab: build", || {
            run(Command::new(crate::tree::root().join("interop/lab/build")), HALF_AN_HOUR)
        });
    }
    package::start_build(&mut report);
    lints(&mut report);
    package::write_when_built(&mut report);
    let weft = interop::build_release(&mut report);
    if let Some(weft) = &weft {
        report.part("size of weft", || product::size(weft));
        interop::start_lab(&mut report, weft)?;
    }
    report.part("tests", || tests(&ALL));
    // Simulation and grid do not depend on the clock, so they compute while other parts wait. The
    // simulation also compares the golden digest of the release build, which the tests have just
    // compared in the debug build. For weft-sim, interop/reproduce compares the two builds.
    let log = |name: &str| interop::target_folder().join(format!("{name}.log"));
    report.beside("simulation", &log("simulation"), Claim::Last, |log| fresh::run_fresh(Some(log)));
    let grid = |log| interop::run_example("weft-lab", "grid", &["--few"], Some(log));
    report.beside("grid", &log("grid"), Claim::Last, grid);
    report.part("long ago", long::look_at_ages);
    report.part("doc tests", || run(cargo(&["test", "-q", "--workspace", "--doc"]), HALF_AN_HOUR));
    if let Some(weft) = weft {
        report.part("demo", || {
            let mut command = Command::new(&weft);
            command.arg("demo");
            // The command takes 7 s. The measurements of `--patches` are run by interop/reproduce.
            run(command, Duration::from_secs(120))
        });
        report.part("instructions", || instructions::run(&weft, false));
        interop::run_suites(&mut report, &weft, &[])?;
    }
    Ok(report)
}

/// `cargo xtask fresh`: simulated scripts with new seeds.
pub(crate) fn fresh() -> anyhow::Result<Report> {
    let mut report = Report::default();
    report.part("simulation", || fresh::run_fresh(None));
    Ok(report)
}

/// `cargo xtask tests [OPTION…]`: the tests alone, each with a limit.
pub(crate) fn tests_alone(selection: &[&str]) -> anyhow::Result<Report> {
    let mut report = Report::default();
    report.part("tests", || tests(if selection.is_empty() { &ALL } else { selection }));
    Ok(report)
}

/// `cargo xtask tests of CRATE…`: the tests of some crates, from the build of the workspace.
pub(crate) fn tests_of_crates(crates: &[&str]) -> anyhow::Result<Report> {
    let mut report = Report::default();
    report.part("tests", || tests_of(crates));
    Ok(report)
}

/// `cargo xtask instructions [--update]`: compares instruction counts, or records them.
pub(crate) fn instructions(update: bool) -> anyhow::Result<Report> {
    let mut report = Report::default();
    if let Some(weft) = interop::build_release(&mut report) {
        report.part("instructions", || instructions::run(&weft, update));
    }
    Ok(report)
}

/// Converts a list of findings to the result of a part, which passes if the list is empty.
fn none(found: anyhow::Result<Vec<String>>) -> Ending {
    match found {
        Ok(found) if found.is_empty() => Ending::Passed,
        Ok(found) => Ending::Failed(found.join("\n")),
        Err(error) => Ending::Failed(error.to_string()),
    }
}

/// Number of parts of `lints`.
const LINTS: usize = 11;

fn lints(report: &mut Report) {
    report.part("rustfmt", || run(cargo(&["fmt", "--all", "--check"]), HALF_AN_HOUR));
    report.part("clippy", || {
        let words = ["clippy", "-q", "--workspace", "--all-targets", "--", "-D", "warnings"];
        run(cargo(&words), HALF_AN_HOUR)
    });
    report.part("documentation", || {
        let mut command = cargo(&["doc", "-q", "--workspace", "--no-deps"]);
        command.env("RUSTDOCFLAGS", "-D warnings");
        run(command, HALF_AN_HOUR)
    });
    report.part("crate order and purity", || {
        let edges = deps::metadata().map(|metadata| {
            [deps::edges_forbidden(&metadata), deps::edges_unused(&metadata)].concat()
        });
        match (edges, purity::engine()) {
            (Ok(edges), Ok(impure)) if edges.is_empty() && impure.is_empty() => Ending::Passed,
            (edges, impure) => Ending::Failed(format!("{edges:?} {impure:?}")),
        }
    });
    report.part("circles between modules", || none(circles::found()));
    report.part("skips", || match skips::outside_the_helper() {
        Ok(found) if found.is_empty() => Ending::Passed,
        Ok(found) => Ending::Failed(format!("not by weft_testing::skip: {found:?}")),
        Err(error) => Ending::Failed(error.to_string()),
    });
    report.part("words and width of prose", || none(words::found()));
    let links = || Ok([links::found()?, citations::found()?].concat());
    report.part("links of documents", || none(links()));
    let map = || map::check().and_then(|()| statements::check());
    report.part("map", || none(map().map(|()| Vec::new())));
    report.part("commit messages", commits::look);
    report.part("licences, bans and sources", || none(deny::violations()));
}
