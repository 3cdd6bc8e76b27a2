//! Fresh seeds: simulated scripts with new seeds for each commit.
//!
//! The seeds follow from the number of commits, so the same command gives the same result before a
//! submission and in CI, and the next commit uses other seeds. A shallow clone does not know the
//! full number and is refused. A failing script is shrunk and written to `target/fresh`; its text
//! is to be stored in `crates/weft-crash/scripts/`, and the fix of the failure moves it out of
//! `open` there. Up to one in 1,000 scripts may fail, because so rare a failure need not come from
//! the last change: the commit before it was tested with other seeds. No failure may break a
//! promise about data. Simulated events are counted, with a floor for each kind.

use crate::interop::run_example;
use crate::lines::printed;
use crate::part::Ending;
use anyhow::{Context, ensure};
use std::fs::File;

/// First fresh seed, larger than all seeds of tests, of the gate and of the ledger.
const FIRST: u64 = 1_000_000_000;

/// Number of seeds reserved for a commit.
const STRIDE: u64 = 1_000;

/// Number of seeds of each profile in a run; other kinds of work have a twenty-fifth as many. A run
/// takes about nine minutes of CPU time.
const EACH: u64 = 450;

/// Runs the simulation of `cargo xtask fresh`, which is also a part of `test`. The output goes to
/// the file `log`, or to the terminal if `log` is `None`.
pub(crate) fn run_fresh(log: Option<File>) -> Ending {
    let first = match first() {
        Ok(first) => first.to_string(),
        Err(error) => return Ending::Failed(format!("{error:#}")),
    };
    let folder = crate::tree::root().join("target/fresh");
    let each = EACH.to_string();
    let folder = folder.to_string_lossy();
    run_example("weft-crash", "sweep", &["fresh", &first, &each, &folder], log)
}

/// First seed that belongs to the current commit.
fn first() -> anyhow::Result<u64> {
    let shallow = printed("git", &["rev-parse", "--is-shallow-repository"])?;
    let count = printed("git", &["rev-list", "--count", "HEAD"])?;
    seed_of(shallow.trim() == "true", &count)
}

fn seed_of(shallow: bool, count: &str) -> anyhow::Result<u64> {
    ensure!(
        !shallow,
        "fresh seeds come from the count of commits: found a shallow clone, expected all commits; \
         run: git fetch --unshallow"
    );
    let count: u64 = count
        .trim()
        .parse()
        .with_context(|| format!("git rev-list --count HEAD: found {count:?}, expected a count"))?;
    Ok(FIRST + count * STRIDE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_have_seeds_of_their_own_and_a_shallow_clone_has_none() {
        assert_eq!(seed_of(false, "1370\n").unwrap(), 1_001_370_000);
        let next = seed_of(false, "1371\n").unwrap();
        assert!(seed_of(false, "1370\n").unwrap() + EACH <= next, "no seed is drawn twice");
        let shallow = seed_of(true, "1\n").unwrap_err().to_string();
        assert!(shallow.contains("run: git fetch --unshallow"), "{shallow}");
        assert!(seed_of(false, "none").unwrap_err().to_string().contains("expected a count"));
    }
}
