//! Skips that bypass `weft_testing::skip` and would therefore not fail under `CI=1`.
//!
//! Such skips are found by typical words of their messages in print macros.

use crate::tree;
use std::path::Path;

/// Macros with which a test can print.
const MACROS: [&str; 4] = ["eprintln!(", "println!(", "eprint!(", "print!("];

/// Words of messages about skipped tests, in lower case.
const WORDS: [&str; 9] = [
    "skip",
    "not installed",
    "is not there",
    "is missing",
    "forbidden",
    "refused here",
    "left out",
    "not available",
    "only threads",
];

/// File of the helper, the only one that may print skips.
const HELPER: &str = "crates/weft-testing/src/lib.rs";

/// Lines (1-based) of a source text with a print macro that reports a skip. A message on the next
/// line counts as well.
fn told_otherwise(source: &str) -> Vec<usize> {
    let lines: Vec<&str> = source.lines().collect();
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        if code.starts_with("//") || !MACROS.iter().any(|name| code.contains(name)) {
            continue;
        }
        // rustfmt puts a long message on a line of its own.
        let open = code.ends_with('(');
        let next = lines.get(index + 1).filter(|_| open).copied().unwrap_or_default();
        let message = format!("{code}{next}").to_lowercase();
        if WORDS.iter().any(|word| message.contains(word)) {
            found.push(index + 1);
        }
    }
    found
}

/// Whether a file contains tests that may skip something: integration tests, and their helpers.
fn is_of_tests(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "tests" || part.as_os_str() == "tests.rs")
}

/// Lines in the tests of all crates that report a skip without [`HELPER`], as `file:line`.
pub(crate) fn outside_the_helper() -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    let mut read = 0;
    for file in tree::rust_files("crates") {
        let shown = tree::shown(&file);
        if shown == HELPER || !is_of_tests(&file) {
            continue;
        }
        read += 1;
        let lines = told_otherwise(&std::fs::read_to_string(&file)?);
        found.extend(lines.into_iter().map(|line| format!("{shown}:{line}")));
    }
    anyhow::ensure!(read >= 50, "{read} files of tests were read: the crates have more");
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_skip_by_the_helper() {
        assert_eq!(outside_the_helper().unwrap(), Vec::<String>::new());
    }

    #[test]
    fn planted_skips_are_found_and_other_lines_are_not() {
        for planted in [
            "        eprintln!(\"skipped: fio is not installed\");\n",
            "eprintln!(\"io_uring is forbidden here; only threads are tested\");\n",
            "println!(\n    \"Skipping the rest, as there is no valgrind on this machine of ours\"\n);\n",
        ] {
            assert_eq!(told_otherwise(planted), [1], "{planted}");
        }
        for other in [
            "// eprintln!(\"skipped\")\n",
            "skip(\"fio is not installed\");\n",
            "eprintln!(\"seed {seed}\");\nlet skipped = 1;\n",
            "assert_eq!(counts.skipped, 2);\n",
        ] {
            assert_eq!(told_otherwise(other), [0; 0], "{other}");
        }
    }
}
