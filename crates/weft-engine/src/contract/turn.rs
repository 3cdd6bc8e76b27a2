//! Results of turns: the work that was done, and the congestion that remains.

use std::ops::AddAssign;

/// Result of one turn, or of all turns of one [`run`](crate::Engine::run).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// Amount of work done, for the simulator's cost table.
    pub work: Work,
    /// Whether another turn at the same time would have work to do.
    pub more: bool,
}

/// Congestion of the stripe cache. md reports congestion to the page cache and blocks callers that
/// ask for a stripe. A driver that models the page cache uses this value instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Congestion {
    /// At least one stripe is free.
    None,
    /// No stripe is free: a flusher that has other work should do the other work first.
    Congested,
    /// Requests wait for stripes, or writes wait until superblocks and bitmap record that writes
    /// may be in flight. In md, their callers are blocked.
    Blocked,
}

/// Numbers of requests that found no token in the queue of their member (`nr_requests`). In the
/// kernel, a thread that submits such a request sleeps until the request has a token. A driver that
/// models threads uses these numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenWaits {
    /// Number of requests that have had to wait for a token of their member's queue
    /// (`nr_requests`), including requests that still wait.
    pub begun: u64,
    /// Number of requests that had to wait for a token and do not wait any longer. Requests of one
    /// direction get their tokens in order of arrival.
    pub ended: u64,
}

/// Amounts of work that turns have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Number of turns.
    pub turns: u32,
    /// Number of inputs that were handled.
    pub inputs: u32,
    /// Number of times a request was attached to a stripe.
    pub attaches: u32,
    /// Number of stripes that were handled, without the followers in their batches.
    pub stripes: u32,
    /// Number of filled stripes that were written in a batch, together with the stripe that was
    /// being handled.
    pub followers: u32,
    /// Number of member requests made; requests merged into one count once.
    pub submits: u32,
    /// Number of requests that were merged into one of the `submits`.
    pub merges: u32,
    /// Number of computations in the `Compute`s that were sent.
    pub operations: u32,
}

impl AddAssign for Work {
    fn add_assign(&mut self, other: Self) {
        self.turns += other.turns;
        self.inputs += other.inputs;
        self.attaches += other.attaches;
        self.stripes += other.stripes;
        self.followers += other.followers;
        self.submits += other.submits;
        self.merges += other.merges;
        self.operations += other.operations;
    }
}
