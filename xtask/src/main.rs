//! Project tasks: every task that a developer or CI runs is a subcommand here.
//!
//! All tasks are plain Rust, so only a Rust toolchain is needed. A task is a list of *parts*; each
//! is timed and ends passed, failed or skipped ([`part`]).

mod check;
mod circles;
mod citations;
mod commits;
mod costs;
mod deny;
mod deps;
mod docs_sample;
#[cfg(test)]
mod extend;
mod fresh;
mod grid;
mod instructions;
mod interop;
mod lines;
mod links;
mod long;
mod map;
mod mutants;
#[cfg(test)]
mod opens;
mod package;
mod packages;
mod part;
mod product;
mod purity;
mod runner;
mod skips;
mod statements;
mod sweep;
mod tree;
mod unsafe_list;
mod words;

use part::Report;
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask TASK

  check              fmt, clippy, rustdoc, unit tests, a short simulation; before each commit
  test [--install]   everything that CI runs; --install fetches missing Debian packages
  instructions [--update]   counts instructions, compares with benches/instructions.toml
  interop [NAME…]    the suites of interop/ (all, or those named; `lab` is the kernel lab)
  mutants [SET…] [-- OPTION…]   which changes of the code does no test notice? (hours)
  mutants together SET SHARD   a shard (0/8) of `stripes` or `copies`, built at once (an hour)
  mutants ledger     how much of that was run
  mutants hand       the changes of xtask/mutants-hand.txt, which no operator makes
  grid [--few] [--all] [--chunks] [WORDS]   weft's defaults against md's, worst first
  docs-sample [SEED] 30 docs of each crate, for a fresh reader
  fresh              the seeds that the count of commits draws, as CI runs them
  long [PART [MINUTES]]   what CI has no time for, an hour at a time; alone: how long ago it was
  sweep N            simulates N more seeds of each profile, beyond CI; adds a line to the ledger
  map                prints every source file of the crates with its content
  package            a static binary, .tar.gz, .deb, .rpm and checksums, in target/package
  statements         writes the states of docs/statements.md
  tests [OPTION…]    tests alone, each with a limit of ten minutes (-p CRATE, --workspace, …)
  tests of CRATE… [-CRATE/FILE…]   those of some crates, built as the workspace is, without some
                     files of tests
  unsafe             every unsafe block with its SAFETY comment
  needs              the Debian packages that the suites want and this machine lacks";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["check"] => check::check(),
        ["docs-sample"] => docs_sample::run(None).map(|()| Report::default()),
        ["docs-sample", seed] => docs_sample::run(Some(seed)).map(|()| Report::default()),
        ["fresh"] => check::fresh(),
        ["grid", words @ ..] => grid::grid(words).map(|()| Report::default()),
        ["instructions"] => check::instructions(false),
        ["instructions", "--update"] => check::instructions(true),
        ["interop", names @ ..] => interop::interop(names),
        ["long", words @ ..] => long::long(words),
        ["map"] => map::print().map(|()| Report::default()),
        ["mutants", words @ ..] => mutants::mutants(words),
        ["needs"] => {
            println!("{}", packages::apt_line(&interop::packages_missing()));
            return ExitCode::SUCCESS;
        }
        ["package"] => package::package(),
        ["statements"] => statements::write().map(|()| Report::default()),
        ["sweep", each] if each.parse::<u64>().is_ok() => {
            let each = each.parse().expect("looked at just now");
            sweep::sweep(each).map(|()| Report::default())
        }
        ["test"] => check::test(false),
        ["tests", "of", crates @ ..] if !crates.is_empty() => check::tests_of_crates(crates),
        ["tests", words @ ..] => check::tests_alone(words),
        ["test", "--install"] => check::test(true),
        ["unsafe"] => unsafe_list::print().map(|()| Report::default()),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(report) => report.finish(),
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
