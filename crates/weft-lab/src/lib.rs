//! Laboratory of weft: traces, jobs, experiments, statistics and reports.
//!
//! The parts of an experiment that are neither the engine nor the world it runs in: traces of block
//! devices ([`replay`]), jobs as fio describes them ([`job`]) and their results as fio
//! tells them ([`fio_json`]), how a model is calibrated ([`fit`]) and what a set
//! of runs is worth ([`statistics`]), the page that shows it ([`report`]), the published
//! experiments themselves ([`experiment`]), what a user's own load does ([`simulate`]), and sets of
//! runs that are compared case by case ([`compare`]).
//!
//! **Architecture Invariant:** nothing here decides anything about data. Numbers that decide what a
//! run does come from integers and the `libm` crate, so that a seed means the same on every
//! machine.
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
