//! Results of turns: the work that was done, and the congestion that is left.

use std::ops::AddAssign;

/// Result of a turn, or of the turns of one [`run`](crate::Engine::run).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// Work of the turn, for the simulator's cost table.
    pub work: Work,
    /// Whether another turn would find work now.
    pub more: bool,
}

/// Congestion of the stripe cache. md reports it to the page cache, and blocks callers that ask for
/// a stripe; a driver that stands for the page cache asks here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Congestion {
    /// A stripe is free.
    None,
    /// No stripe is free: flushers that have other work do that.
    Congested,
    /// Requests wait for stripes: in md their callers are blocked.
    Blocked,
}

/// Amounts of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Turns taken.
    pub turns: u32,
    /// Inputs handled.
    pub inputs: u32,
    /// Number of times that a request was attached to a stripe.
    pub attaches: u32,
    /// Stripes handled.
    pub stripes: u32,
    /// Filled stripes that were written with one that was handled.
    pub followers: u32,
    /// Member requests made, after merging.
    pub submits: u32,
    /// Parts that were merged into such a request.
    pub merges: u32,
    /// Operations of the computations that were sent.
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
