//! What does work cost, in simulated time?
//!
//! Every thread of the kernel that works for all (raid5d, a flusher) is one server: while it works on one
//! thing the next one waits. A table says how long each thing takes. There are three kinds of tables: all
//! zero, figures that a patch printed, and figures measured once by `weft bench costs` on a named host. The
//! clock of the host that simulates is never read.
//!
//! Source   experiments.md §3

use weft_engine::{ComputeOp, Work};
use weft_units::Span;

/// Nanoseconds, and picoseconds a byte.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Costs {
    /// Of the engine's thread: a turn by itself, ns.
    pub turn: u64,
    /// An input, ns: a request or a completion.
    pub input: u64,
    /// A row that was handled, ns (`stripe_handle`).
    pub row: u64,
    /// A member request made, ns (`bio_submit`).
    pub submit: u64,
    /// XOR and syndromes: a byte that is read, ps.
    pub xor: u64,
    /// Copies: a byte, ps.
    pub copy: u64,
    /// Of a client: a call into the kernel, ns (`syscall`).
    pub syscall: u64,
    /// Of whoever submits: a request handed over, ns.
    pub bio: u64,
}

impl Costs {
    /// Nothing takes time but disks.
    pub const ZERO: Self =
        Self { turn: 0, input: 0, row: 0, submit: 0, xor: 0, copy: 0, syscall: 0, bio: 0 };

    /// The same work on a CPU that is so many times slower.
    #[must_use]
    pub fn times(&self, factor: u64) -> Self {
        Self {
            turn: self.turn * factor,
            input: self.input * factor,
            row: self.row * factor,
            submit: self.submit * factor,
            xor: self.xor * factor,
            copy: self.copy * factor,
            syscall: self.syscall * factor,
            bio: self.bio * factor,
        }
    }

    /// What a turn cost by what it says that it did.
    pub(super) fn of_turn(&self, work: Work) -> Span {
        Span(
            self.turn
                + self.input * u64::from(work.inputs)
                + self.row * u64::from(work.rows)
                + self.submit * u64::from(work.submits),
        )
    }

    /// What a computation cost.
    pub(super) fn of_compute(&self, ops: &[ComputeOp]) -> Span {
        let picos: u64 = ops
            .iter()
            .map(|op| match op {
                ComputeOp::Compare { data, .. }
                | ComputeOp::Locate { data, .. }
                | ComputeOp::Pq { data, .. }
                | ComputeOp::Recover { data, .. } => {
                    data.iter().map(|source| u64::from(source.part.len)).sum::<u64>() * self.xor
                }
                ComputeOp::UpdatePq { new, .. } => 2 * u64::from(new.len) * self.xor,
                ComputeOp::Copy { to, .. } | ComputeOp::Zero { to } => {
                    u64::from(to.len) * self.copy
                }
            })
            .sum();
        Span(picos / 1000)
    }

    /// What a client's call costs that moves so many bytes.
    #[must_use]
    pub fn of_call(&self, bytes: u64) -> Span {
        Span(self.syscall + bytes * self.copy / 1000)
    }
}
