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
