//! Tests of levels without parity: RAID 0, 1, 10 and linear under faults and power cuts.
//!
//! All checkers of arrays with parity apply, and reads must be stable (I3) while copies differ.
//! `mutants.rs` shows that each planted bug of these levels is found.

use std::collections::BTreeSet;

use crate::script::{Profile, Script};
use crate::{Coverage, excuses::ExcuseCounts};

/// Seeds of each profile.
const SEEDS: std::ops::Range<u64> = 400_000..400_012;

#[test]
fn profiles_keep_their_promises_without_parity() {
    let (mut coverage, mut excuses) = (Coverage::default(), ExcuseCounts::default());
    let (mut shapes, mut requests, mut verified) = (BTreeSet::new(), 0, 0);
    for profile in Profile::STRAIGHT {
        for seed in SEEDS {
            let script = Script::generate(seed, profile);
            shapes.insert((script.options.level, script.options.layout));
            let report = script.run().unwrap_or_else(|failure| panic!("{failure}"));
            coverage.merge(report.coverage);
            excuses.merge(report.excuses);
            requests += report.requests;
            verified += report.verified;
        }
    }
    println!("{shapes:?} {requests} requests, {verified} sectors\n{coverage:?}\n{excuses:?}");
    assert!(shapes.len() >= 6, "{shapes:?}");
    assert!(requests > 2_000 && verified > 10_000, "{requests} requests, {verified} sectors");
    assert!(coverage.points > 100 && coverage.judged_columns > 500, "{coverage:?}");
    // Without copies that differ after a cut the test would check nothing.
    assert!(excuses.disagreed > 100, "{excuses:?}");
}
