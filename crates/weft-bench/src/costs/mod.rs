//! Costs of the engine's work: what each kind of it takes on this CPU.
//!
//! Simulations charge CPU time from a table (`--costs`). What the engine does is measured as it
//! does it: several loads go through an engine without members, each is known by how often it did
//! what, and the costs are those that explain the time of all of them best. The rest are loops over
//! the very code, or over the very system call. All of it is this thread's CPU time, but for a hop,
//! which is waited for.

mod direct;
mod measure;
mod of_engine;

pub use measure::measure;
