//! Skips: a test leaves out a part only by calling [`skip`], which fails under `CI=1`.
//!
//! A test that needs a program, a file or a system call that this machine lacks calls [`skip`] and
//! returns. On a developer's machine the test passes and prints the reason. Under `CI=1` the test
//! panics: a CI run that silently tests less is worse than a CI run that fails. A test of xtask
//! (`xtask/src/skips.rs`) finds skips that do not call [`skip`]. Only development dependencies use
//! this crate, so no product contains it. [`documents`] reads the pages for users; [`fuzz`] has the
//! seed and the number of damaged inputs of a test.

pub mod documents;
pub mod fuzz;

/// Whether a skip is a failure, because the environment variable `CI` is `1` or `true`.
pub fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| ci_is_on(&value))
}

fn ci_is_on(value: &str) -> bool {
    value == "1" || value == "true"
}

/// Prints the reason why the rest of a test is left out. The test has to return after this call.
///
/// # Panics
/// Panics if [`in_ci`] is true, because a skip is then a failure.
#[track_caller]
pub fn skip(reason: &str) {
    if let Err(failure) = verdict(reason, in_ci()) {
        panic!("{failure}");
    }
    eprintln!("skipped: {reason}");
}

fn verdict(reason: &str, in_ci: bool) -> Result<(), String> {
    if in_ci { Err(format!("skipped under CI=1: {reason}")) } else { Ok(()) }
}

/// Whether `WEFT_NO_URING` is `1`: the environment of the tests then refuses io_uring on purpose,
/// and a test that works nevertheless with io_uring fails. Only the suite `interop/bare_lane` sets
/// the variable.
pub fn uring_is_refused_on_purpose() -> bool {
    std::env::var("WEFT_NO_URING").is_ok_and(|value| value == "1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skip_is_a_failure_under_ci_and_nowhere_else() {
        assert_eq!(verdict("fio is not installed", false), Ok(()));
        let failure = verdict("fio is not installed", true).unwrap_err();
        assert_eq!(failure, "skipped under CI=1: fio is not installed");
        for (value, on) in [("1", true), ("true", true), ("0", false), ("", false)] {
            assert_eq!(ci_is_on(value), on, "{value:?}");
        }
    }
}
