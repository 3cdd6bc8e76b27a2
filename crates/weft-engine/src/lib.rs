//! The Linux block write path as a deterministic state machine without I/O.
//!
//! See [`Engine`] for the contract.
#![forbid(unsafe_code)]

pub mod assemble;
mod config;
mod error;
mod frame;
mod input;
pub mod knobs;
mod output;
pub mod raid;
mod snapshot;
mod token;

use std::collections::VecDeque;

pub use config::{Config, MemberInfo, VolumeConfig};
pub use error::{ConfigError, ReplyError};
pub use frame::{Frame, Part, Parts, Run, ZERO_FRAME, frames_needed};
pub use input::{
    Attr, Class, Command, Fault, Flags, Input, Located, Origin, Request, RequestOp, SyncAction,
    Value, Verb,
};
pub use output::{ComputeOp, Differs, MemberOp, Notice, Output, Source, Sources};
pub use snapshot::{MemberSnapshot, MemberState, Snapshot, VolumeSnapshot};
pub use token::{Tag, Token};
use weft_units::Time;

/// The write path of every volume of one process, and what they share, as a deterministic state
/// machine.
///
/// A driver records everything that has happened with [`handle`](Engine::handle), then calls
/// [`turn`](Engine::turn) until there is no more work, then drains [`poll`](Engine::poll), submits
/// it all at once, and sleeps until the next event or [`next_wake`](Engine::next_wake).
///
/// Contract
/// - Time enters only as `now` and never decreases. Two inputs may share one instant.
/// - `handle` records a fact and decides nothing. What was recorded since the last turn is the
///   *plug*: small writes that arrive together are seen together.
/// - `turn` decides for at most `turn_rows_max` rows (8, as md) and says what it did, so that the
///   simulator can charge CPU time for it before the outputs leave.
/// - Every `Submit` and `Compute` carries a fresh [`Token`] and gets exactly one [`Input::Done`].
/// - Same config, same sequence of `(now, input)`, same outputs, bit for bit.
/// - The engine never sees payload: it names frames, the driver owns the memory. Superblocks are
///   its own and travel inside `Submit`.
/// - A bad outcome is an output, never a panic.
#[derive(Clone)]
pub struct Engine {
    outputs: VecDeque<Output>,
}

/// What a turn did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// For the simulator's cost table.
    pub work: Work,
    /// Whether another turn has something to do already.
    pub more: bool,
}

/// Amounts of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Inputs looked at.
    pub inputs: u32,
    /// Rows handled.
    pub rows: u32,
    /// Member requests made, after merging.
    pub submits: u32,
    /// Computations asked for.
    pub computes: u32,
}

impl Engine {
    /// An engine at rest.
    ///
    /// # Errors
    /// The configuration cannot work; see [`ConfigError`].
    pub fn new(config: Config, now: Time) -> Result<Self, ConfigError> {
        let _ = (config, now);
        Ok(Self { outputs: VecDeque::new() })
    }

    /// Records a fact.
    pub fn handle(&mut self, now: Time, input: Input) {
        let _ = (now, input);
    }

    /// Decides, for a bounded number of rows.
    pub fn turn(&mut self, now: Time) -> Turn {
        let _ = now;
        Turn::default()
    }

    /// The next thing to do.
    #[must_use]
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When to call `handle(Wake)` and `turn` again though nothing else has happened.
    #[must_use]
    pub fn next_wake(&self) -> Option<Time> {
        None
    }

    /// Counters and states for people and tests.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { volumes: Vec::new(), clients: Vec::new(), tokens_outstanding: 0, frames_held: 0 }
    }
}
