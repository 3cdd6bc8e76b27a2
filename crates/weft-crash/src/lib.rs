//! The crash simulator of the weft engine: disks, clients, faults and power cuts, from a seed.
//!
//! The engine is a state machine without I/O. A [`World`] exposes the engine to everything that
//! real disks, clients and power supplies may do, in any order, and judges it by checkers, one for
//! each promise. Each checker has planted bugs that it must find. Members may take the time of a
//! drive of `weft-sim` for their requests. No product contains this crate.
//!
//! | Part | File |
//! |---|---|
//! | engine, disks, memory, clients and checkers together | `world.rs`: [`World`], `world/` |
//! | configuration of a world | `options.rs`: [`Options`] |
//! | order of completions | `world/driver.rs`: [`Order`] |
//! | short tests | `rig.rs`: [`Rig`] |
//! | service times of members with drives | `world/service.rs` |
//! | contents of a member | `disk/`: media, volatile cache |
//! | faults of a member | `faults.rs` |
//! | power cuts | `crash.rs` |
//! | values that a client may read | `model/` |
//! | values that a client may read where members disagree (write hole) | `suspects/` |
//! | where the array's sectors lie, as the checkers know it | `array.rs` |
//! | checkers of the promises | `checker/` |
//! | random runs and their replay | `script/` |
//! | planted bugs | `bugs.rs` |
//! | deviations that checkers tolerate, counted (excuses) | `excuses.rs` |
//! | text of scripts that are kept: known failures, regressions | `kept.rs`, `scripts/` |
//! | shrinking of a failing run | `shrink.rs` |
//! | recorded digest, which every build has to find | `golden.rs` |
//! | power cuts in states that short scripts can reach | `scope.rs` |
//! | many runs, counted | `sweep.rs`, `sweep/`, `examples/sweep.rs`, `sweeps.jsonl` |
//! | representation of payload | `payload.rs` |
//! | tests of the engine, by subject | `tests/` |
//!
//! ```
//! use weft_crash::{Rig, chunk_kib};
//!
//! let mut rig = Rig::raid5(3, chunk_kib(4));
//! assert_eq!(rig.array.geometry().data_members(), 2);
//! ```
#![forbid(unsafe_code)]
#![allow(
    clippy::cast_possible_truncation,
    reason = "simulated disks and counts are small; a truncated one fails a test, not a user"
)]
#![allow(clippy::missing_panics_doc, reason = "a simulation stops at the first violation")]

/// Allocator of tests and sweeps, which allocate and free many small objects. glibc's allocator
/// takes a fifth of their CPU time; with mimalloc a script needs a tenth less CPU time in all.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The [`checker::View`] of a world, borrowed field by field so that its checkers may be changed
/// meanwhile.
macro_rules! view {
    ($world:expr) => {
        View {
            now: $world.now,
            discards: $world.options.discards,
            write_back: $world.options.write_back.is_some(),
            disks: &$world.disks,
            disk_of: &$world.disk_of,
            beside: $world.beside(),
            array: &$world.array,
            record: &$world.record,
            written: $world.written.as_ref().unwrap_or(&$world.record),
            model: &$world.model,
            suspects: &$world.suspects,
        }
    };
}

/// Implements `merge` for a struct of counts: adds the named fields.
macro_rules! sums {
    ($type:ident: $($field:ident),*) => {
        impl $type {
            /// Adds the counts of another run.
            pub fn merge(&mut self, other: Self) {
                $(self.$field += other.$field;)*
            }
        }
    };
}

pub mod array;
pub mod bugs;
pub mod checker;
pub mod crash;
pub mod disk;
pub mod excuses;
pub mod faults;
pub mod golden;
pub mod kept;
pub mod model;
mod options;
pub mod payload;
mod rig;
pub mod scope;
pub mod script;
mod sector_map;
pub mod shrink;
pub mod suspects;
pub mod sweep;
#[cfg(test)]
mod tests;
mod text_digest;
mod violation;
mod volumes;
mod world;

pub use crash::{Coverage, CutMode, CutShape};
pub use faults::{Faults, Planned};
pub use model::Payload;
pub use options::Options;
pub use payload::{NeedsPayload, PayloadMode};
pub use rig::{BLOCK, Block, Rig, chunk_kib};
pub use violation::Violation;
pub use volumes::{ARRAY, BARE};
pub use world::{ANSWERED_WITHIN, Answer, Logged, Order, Pending, Ticket, World};
