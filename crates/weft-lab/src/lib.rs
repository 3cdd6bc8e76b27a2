//! What is measured, with what, and what does it mean?
//!
//! The parts of an experiment that are neither the engine nor the world it runs in: for now traces of
//! block devices ([`replay`]).
//!
//! **Architecture Invariant:** nothing here decides anything about data. Numbers that decide what a run
//! does come from integers and the `libm` crate, so that a seed means the same on every machine.
#![forbid(unsafe_code)]

pub mod replay;
