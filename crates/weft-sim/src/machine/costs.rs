//! CPU costs in simulated time: the engine's thread and the kernel's as servers with a queue.
//!
//! A kernel thread that all requests share (raid5d, a flusher) is one server: while it works on one
//! thing, the next one waits. A table says how long each kind of work takes ([`CostTable`]). There
//! are three kinds of tables: all zero, figures that the text of a patch gives, and figures
//! measured once by `weft-bench costs` on a named host. The clock of the simulating host is never
//! read.
//!
//! Source   experiments.md §3
//!
//! [`CostTable`]: super::CostTable

use weft_engine::{ComputeOp, Work};
use weft_units::Span;

/// CPU cost of each kind of work, in nanoseconds, or in picoseconds per byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// A turn of the engine (one run of its thread), without the work that follows, ns.
    pub turn: u64,
    /// Handling an input, ns: a request or a completion.
    pub input: u64,
    /// Attaching a request to a stripe, ns.
    pub attach: u64,
    /// Handling a stripe once, ns (`stripe_handle`).
    pub stripe: u64,
    /// Handling a filled stripe that is written together with a preceding one, ns.
    pub follower: u64,
    /// Passing a member request through the block layer to its member, ns (`bio_submit` and
    /// `mqdl_request`). The engine's own work for it is part of the input that completes it.
    pub submit: u64,
    /// Merging one more part into a member request, ns.
    pub merge: u64,
    /// A step of a computation without the work per byte, ns: a copy, or the parity of a stripe.
    pub operation: u64,
    /// Computing XOR and syndromes, ps per byte read.
    pub xor: u64,
    /// Copying data, ps per byte.
    pub copy: u64,
    /// A client's system call, ns (`syscall`).
    pub syscall: u64,
    /// Submission of a request, ns, charged to the submitting thread.
    pub bio: u64,
    /// Time from the wake-up of another thread until it runs, ns (`wq_hop`). The engine has no such
    /// hops between threads, but work queues of the kernel have.
    pub hop: u64,
}

/// Name of a cost in a table, with its unit at the end, and access to the cost.
pub(super) type Field = (&'static str, fn(&mut Costs) -> &mut u64);

impl Costs {
    /// Zero for all costs: only disks take time.
    pub const ZERO: Self = Self {
        turn: 0,
        input: 0,
        attach: 0,
        stripe: 0,
        follower: 0,
        submit: 0,
        merge: 0,
        operation: 0,
        xor: 0,
        copy: 0,
        syscall: 0,
        bio: 0,
        hop: 0,
    };

    /// Names and accessors of all costs, in the order of a table.
    pub(super) const FIELDS: &[Field] = &[
        ("turn_ns", |costs| &mut costs.turn),
        ("input_ns", |costs| &mut costs.input),
        ("attach_ns", |costs| &mut costs.attach),
        ("stripe_ns", |costs| &mut costs.stripe),
        ("follower_ns", |costs| &mut costs.follower),
        ("submit_ns", |costs| &mut costs.submit),
        ("merge_ns", |costs| &mut costs.merge),
        ("operation_ns", |costs| &mut costs.operation),
        ("xor_ps_per_byte", |costs| &mut costs.xor),
        ("copy_ps_per_byte", |costs| &mut costs.copy),
        ("syscall_ns", |costs| &mut costs.syscall),
        ("bio_ns", |costs| &mut costs.bio),
        ("hop_ns", |costs| &mut costs.hop),
    ];

    /// All costs, each with its name in a table.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let mut costs = *self;
        Self::FIELDS.iter().map(move |(name, of)| (*name, *of(&mut costs)))
    }

    /// Costs of the same work on a CPU that is `factor` times slower.
    #[must_use]
    pub fn times(&self, factor: u64) -> Self {
        let mut costs = *self;
        for (_, of) in Self::FIELDS {
            *of(&mut costs) *= factor;
        }
        costs
    }

    /// CPU time of engine turns, from the counts of work that they report.
    pub(super) fn of_turn(&self, work: Work) -> Span {
        let Work { turns, inputs, attaches, stripes, followers, submits, merges, operations } =
            work;
        Span(
            self.turn * u64::from(turns)
                + self.input * u64::from(inputs)
                + self.attach * u64::from(attaches)
                + self.stripe * u64::from(stripes)
                + self.follower * u64::from(followers)
                + self.submit * u64::from(submits)
                + self.merge * u64::from(merges)
                + self.operation * u64::from(operations),
        )
    }

    /// CPU time of a computation, by the bytes that it reads and copies.
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

    /// CPU time of a system call that copies this many bytes.
    #[must_use]
    pub fn of_call(&self, bytes: u64) -> Span {
        Span(self.syscall + bytes * self.copy / 1000)
    }
}
