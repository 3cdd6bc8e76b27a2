//! Costs of the engine's work: CPU time of each kind of work on this CPU.
//!
//! Simulations charge CPU time from a table (`--costs`). The engine's work is measured in place:
//! several loads go through an engine without members, each with known counts of every kind of
//! work, and the costs are those that best explain the times of all loads. The other costs are
//! measured by loops over the code or the system call itself. All times are CPU time of this
//! thread, except for a hop, which is elapsed time.

mod direct;
mod measure;
mod of_engine;

pub use measure::measure;
