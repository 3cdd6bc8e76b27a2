//! Tests of the scripts that failed once (`scripts/regressions/`): none fails today.

use crate::kept;

#[test]
fn scripts_that_found_a_bug_find_none() {
    let mended = kept::regressions().unwrap_or_else(|error| panic!("{error}"));
    assert!(mended.len() >= 31, "{} scripts were read", mended.len());
    for kept in mended {
        let report = kept.script.run();
        let report =
            report.unwrap_or_else(|failure| panic!("{}: {}\n{failure}", kept.name, kept.story));
        assert!(report.requests > 0, "{} does nothing", kept.name);
        assert!(kept.fails.is_empty(), "{}: found \"fails\" among what is mended", kept.name);
    }
}
