//! Laboratory of weft: traces, jobs, experiments, statistics and reports.
//!
//! The parts of an experiment that are neither the engine nor its environment: traces of block
//! devices ([`replay`]), jobs in fio's format ([`job`]) and results in fio's format ([`fio_json`]),
//! calibration of a model ([`fit`]), statistics of runs ([`statistics`]), the page that presents
//! results ([`report`]), published experiments ([`experiment`]), simulation of a user's own load
//! ([`simulate`]), and comparison of sets of runs, case by case ([`compare`]).
//!
//! **Architecture Invariant:** nothing here makes decisions about data. Every number that affects a
//! run comes from integers and the `libm` crate, so a seed gives the same run on every machine.
#![forbid(unsafe_code)]

pub mod compare;
pub mod experiment;
pub mod fio_json;
pub mod fit;
pub mod grid;
pub mod job;
pub mod latency;
pub mod least_squares;
pub mod replay;
pub mod report;
mod run_name;
pub mod simulate;
pub mod statistics;
pub mod text;
