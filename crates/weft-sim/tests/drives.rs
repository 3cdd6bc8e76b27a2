//! Tests of drive models: speed against published figures, and the contract of a drive.
//!
//! Numbers of statements and targets are those of `experiments.md`, §7 and §2.4.
#![allow(clippy::cast_possible_truncation, reason = "numbers of a test are small")]

#[path = "drives/bench.rs"]
mod bench;
#[path = "drives/contract.rs"]
mod contract;
#[path = "drives/hdd.rs"]
mod hdd;
#[path = "drives/ssd.rs"]
mod ssd;

use weft_sim::drive::models;

/// Models of which nothing was published: parts of other models, and a drive that does not exist.
const WITHOUT_FIGURES: [&str; 3] = ["hdd-2011-reduced", "ssd-sata-dc-2019-wc0", "null"];

/// Models that tests with this text do not name.
fn not_named(tests: &str) -> Vec<&'static str> {
    let names = models().iter().map(|(name, _)| *name);
    names.filter(|name| !tests.contains(&format!("\"{name}\""))).collect()
}

#[test]
fn every_model_is_compared_with_published_figures() {
    let tests = [include_str!("drives/hdd.rs"), include_str!("drives/ssd.rs")].concat();
    assert_eq!(not_named(&tests), WITHOUT_FIGURES);
    assert_eq!(not_named("").len(), models().len());
}
