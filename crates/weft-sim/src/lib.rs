//! The simulated world of the weft engine.
//!
//! The engine is a state machine without I/O; here is a world for it in which everything that real
//! disks, clients and power supplies do can be made to happen, in any order, from a seed.
//!
//! | Question | File |
//! |---|---|
//! | What is there, and who carries out what the engine says? | `world.rs`: [`World`], `world/` |
//! | What is it made of? | `options.rs`: [`Options`] |
//! | What happens next? | `driver.rs`: [`Order`] |
//! | How do I write a test? | `rig.rs`: [`Rig`] |
//! | What does a member do? | `disk/`: media, volatile cache |
//! | How long does a drive take? | `drive/`: models of disks and solid-state drives, without payload |
//! | What may go wrong with it? | `faults.rs` |
//! | What does a power cut leave? | `crash.rs` |
//! | What may a client see? | `model.rs` |
//! | What may it see where members disagree? | `suspects.rs` |
//! | Does the engine keep its promises? | `checker/` |
//! | What do random runs do, and how is one replayed? | `script.rs` |
//! | Which bugs are planted, and who must see them? | `bugs.rs` |
//! | How often does a checker let something pass? | `excuses.rs` |
//! | What is known to fail? | `known_open.rs` |
//! | Which part of a failing run matters? | `shrink.rs` |
//! | How are computations done? | `compute.rs` |
//! | How much of the payload is simulated? | `payload.rs` |
//! | Where does chance come from? | `rng.rs` |
//! | How long does it take? | `machine/`: [`machine::Machine`] over `drive/`, used by `workload/` |
//!
//! ```
//! use weft_sim::{Rig, chunk_kib};
//!
//! let mut rig = Rig::raid5(3, chunk_kib(4));
//! assert_eq!(rig.array.geometry.data_members(), 2);
//! ```
#![forbid(unsafe_code)]
#![allow(
    clippy::cast_possible_truncation,
    reason = "simulated disks and counts are small; a wrong one fails a test, not a user"
)]
#![allow(
    clippy::missing_panics_doc,
    reason = "a simulation stops at the first thing that is wrong"
)]

/// What checkers may look at, borrowed field by field so that they may be changed meanwhile.
macro_rules! view {
    ($world:expr) => {
        View {
            now: $world.now,
            discards: $world.options.discards,
            disks: &$world.disks,
            disk_of: &$world.disk_of,
            array: &$world.array,
            record: &$world.record,
            written: $world.written.as_ref().unwrap_or(&$world.record),
            model: &$world.model,
            suspects: &$world.suspects,
        }
    };
}

pub mod bugs;
pub mod checker;
pub mod compute;
pub mod crash;
pub mod disk;
pub mod drive;
mod driver;
pub mod excuses;
pub mod faults;
pub mod known_open;
pub mod machine;
pub mod model;
mod options;
pub mod payload;
mod rig;
pub mod rng;
pub mod scope;
pub mod script;
mod sector_map;
pub mod shrink;
pub mod suspects;
pub mod sweep;
pub mod workload;
mod world;

pub use checker::Violation;
pub use crash::{Coverage, CutMode, CutShape};
pub use driver::{ANSWERED_WITHIN, Order};
pub use faults::{Faults, Planned};
pub use model::Payload;
pub use options::Options;
pub use payload::{NeedsPayload, PayloadMode};
pub use rig::{BLOCK, Block, Rig, chunk_kib};
pub use world::{Answer, Logged, Pending, Ticket, World};
