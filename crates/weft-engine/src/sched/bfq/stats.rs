//! Counters of BFQ decisions: why slots ended, and why and for how long the member was kept idle.

use weft_units::Span;

/// Reason for which a queue left service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExpireReason {
    /// The queue kept the member idle for a request that did not arrive.
    TooIdle,
    /// The queue exceeded the time limit of its slot (`timeout_sync`).
    BudgetTimeout,
    /// The queue used up its budget.
    BudgetExhausted,
    /// The queue has no more requests, and the member is not kept idle for it.
    NoMoreRequests,
    /// Another queue preempted it.
    Preempted,
}

impl ExpireReason {
    /// Every reason.
    pub const ALL: [Self; 5] = [
        Self::TooIdle,
        Self::BudgetTimeout,
        Self::BudgetExhausted,
        Self::NoMoreRequests,
        Self::Preempted,
    ];
}

/// Reason for which the member is kept idle for a queue that has no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IdleReason {
    /// `strict_guarantees` is set.
    Strict,
    /// The member is faster if its next request comes from the same queue.
    Throughput,
    /// The weight of the queue is raised.
    Raised,
    /// Other queues differ in weight or class, and the queue would lose its share.
    Asymmetric,
    /// No other queue is busy.
    Alone,
}

impl IdleReason {
    /// Every reason.
    pub const ALL: [Self; 5] =
        [Self::Strict, Self::Throughput, Self::Raised, Self::Asymmetric, Self::Alone];
}

/// Counters of the decisions of one member's scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BfqStats {
    /// Slots that ended, by [`ExpireReason`].
    pub expired: [u64; 5],
    /// Number of times the member was kept idle for a queue, by [`IdleReason`].
    pub idled: [u64; 5],
    /// Time that the member was kept idle without a request of that queue, by [`IdleReason`].
    pub plugged: [Span; 5],
    /// Time that the member had room but requests of other queues were held back.
    pub withheld: Span,
    /// Requests dispatched while the member was kept idle for another queue.
    pub injected: u64,
    /// Queues merged into the queue in service because it had just read nearby.
    pub merges_in_service: u64,
    /// Queues merged into a queue with its next request nearby.
    pub merges_by_position: u64,
    /// Queues that followed their target when the target was merged itself.
    pub merges_followed: u64,
    /// Queues merged permanently with one that was created at the same time.
    pub merges_stable: u64,
    /// Shared queues that were split because they were seeky.
    pub splits: u64,
    /// Slots of queues with a raised weight.
    pub raised_slots: u64,
    /// Wakers detected for queues, with `waker`.
    pub wakers: u64,
}
