//! The timed simulator of the weft engine: durations of loads on modelled drives, in virtual time.
//!
//! The engine is a state machine without I/O. A [`Machine`](machine::Machine) runs it on drive
//! models that determine when each command completes, with processes that issue the requests. There
//! is no payload, and the power is never cut: weft-crash, the crash simulator, checks that data is
//! right, on the same drives too.
//!
//! | Part | Folder |
//! |---|---|
//! | engine, members, page cache and processes, with the cost of CPU work | `machine/` |
//! | service time of disks and solid-state drives | `drive/`, and named models in `drives/*.toml` |
//! | loads of the experiments, and jobs of fio | `workload/` |
//!
//! ```
//! use weft_engine::knobs::Knobs;
//! use weft_sim::machine::{Machine, MachineParts};
//! use weft_units::Bytes;
//!
//! let parts = MachineParts::raid5("null", Bytes::kib(64), Knobs::md());
//! assert_eq!(Machine::new(&parts).host.now().0, 0);
//! ```
#![forbid(unsafe_code)]
#![allow(
    clippy::cast_possible_truncation,
    reason = "simulated drives and counts are small; a truncated one fails a test, not a user"
)]
#![allow(clippy::missing_panics_doc, reason = "a simulation stops at the first violation")]

pub mod drive;
pub mod machine;
pub mod workload;
