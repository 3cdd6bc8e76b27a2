//! What happens to member requests between a decision and the member.
//!
//! | scheduler | file | |
//! |---|---|---|
//! | `none` | `merge.rs` | merges what one turn made and sends it on: what volumes use |
//! | `mq-deadline` | [`mq_deadline`] | sorts, merges, bounds the wait: what the simulator puts before its disks |

pub(crate) mod merge;
pub mod mq_deadline;
pub(crate) mod request;

pub use request::{Direction, Dispatched, IoPriority, QueuedRequest};
