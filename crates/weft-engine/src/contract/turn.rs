//! Results of turns: what was done, and how hard it is to go on.

use std::ops::AddAssign;

/// Result of a turn, or of the turns of one [`run`](crate::Engine::run).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// For the simulator's cost table.
    pub work: Work,
    /// Whether another turn has something to do already.
    pub more: bool,
}

/// Congestion of the stripe cache. md tells the page cache of it, and blocks who asks for
/// one; whoever stands for the page cache asks here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Congestion {
    /// A stripe is free.
    None,
    /// No stripe is free: flushers that can do something else do.
    Congested,
    /// Requests wait for stripes: in md their callers are blocked.
    Blocked,
}

/// Amounts of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Turns taken.
    pub turns: u32,
    /// Inputs looked at.
    pub inputs: u32,
    /// Times that a request was attached to a stripe.
    pub attaches: u32,
    /// Stripes handled.
    pub stripes: u32,
    /// Filled stripes that were written with one that was handled.
    pub followers: u32,
    /// Member requests made, after merging.
    pub submits: u32,
    /// Parts that went with such a request instead of being one.
    pub merges: u32,
    /// Operations of computations that were asked for.
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
