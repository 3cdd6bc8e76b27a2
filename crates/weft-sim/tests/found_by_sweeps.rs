//! Tests of scripts by which sweeps found bugs of the engine: none finds one today.

use weft_sim::script::{Profile, Script};

/// Scripts by which sweeps found bugs of the engine, with what it did.
const FOUND_BUGS: [(&str, u64, &str); 10] = [
    ("straight-faults", 5_001_850, "a stop answered for pages that the cache had given up"),
    ("bitmap-faults", 5_000_794, "the same, on parity"),
    ("straight-beyond", 5_002_174, "pages that a stop could not write were tried by nobody again"),
    (
        "straight-beyond-powered",
        5_001_166,
        "frames of a write that went through came back in parts",
    ),
    (
        "straight-beyond",
        5_003_427,
        "a resync read into memory that a failed member still wrote from",
    ),
    ("straight-faults-and-cuts", 5_001_385, "the same, of a member without space"),
    (
        "straight-bitmap-faults-and-cuts",
        5_000_252,
        "superblocks said clean while a corrected copy was volatile, as the bitmap's header was \
         written in between",
    ),
    ("straight-beyond", 5_003_910, "a unit that the end of the array cut short counted as rebuilt"),
    ("straight-beyond-powered", 5_001_070, "so did one that was read and not written"),
    ("beyond", 5_003_057, "the rest of an update went to the members of a broken array"),
];

#[test]
fn scripts_that_found_a_bug_of_the_engine_find_none() {
    for (name, seed, what) in FOUND_BUGS {
        let profile = Profile::every().find(|profile| profile.name == name).expect("a profile");
        let report = Script::generate(seed, profile).run();
        let report = report.unwrap_or_else(|failure| panic!("{what}\n{failure}"));
        assert!(report.requests > 0, "{name} {seed} does something");
    }
}
