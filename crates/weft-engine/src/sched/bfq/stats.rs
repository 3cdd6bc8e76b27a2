//! Counters of BFQ decisions: why slots ended, and why and for how long the member was kept idle.

use weft_units::Span;

/// Reason why a queue left service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExpireReason {
    /// The member was kept idle for the queue, but no request arrived.
    TooIdle,
    /// The queue exceeded the time limit of its slot (`timeout_sync`).
    BudgetTimeout,
    /// The queue used up its budget.
    BudgetExhausted,
    /// The queue has no more requests, and the member is not kept idle for it.
    NoMoreRequests,
    /// Another queue preempted this one.
    Preempted,
}

impl ExpireReason {
    /// Every reason, in the order of [`BfqStats::expired`].
    pub const ALL: [Self; 5] = [
        Self::TooIdle,
        Self::BudgetTimeout,
        Self::BudgetExhausted,
        Self::NoMoreRequests,
        Self::Preempted,
    ];
}

/// Reason why the member is kept idle for a queue that has no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IdleReason {
    /// `strict_guarantees` is set.
    Strict,
    /// Throughput is higher if the next request comes from the same queue.
    Throughput,
    /// The weight of the queue is raised.
    Raised,
    /// Other queues differ in weight or class, and the queue would lose its share.
    Asymmetric,
    /// No other queue is busy.
    Alone,
}

impl IdleReason {
    /// Every reason, in the order of [`BfqStats::idled`].
    pub const ALL: [Self; 5] =
        [Self::Strict, Self::Throughput, Self::Raised, Self::Asymmetric, Self::Alone];
}

/// Counters of the decisions of one member's scheduler since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BfqStats {
    /// Number of slots that ended, by [`ExpireReason`].
    pub expired: [u64; 5],
    /// Number of times the member was kept idle for a queue, by [`IdleReason`].
    pub idled: [u64; 5],
    /// Time for which the member was kept idle for a queue, by [`IdleReason`].
    pub plugged: [Span; 5],
    /// Time in which waiting requests were held back although the member had room for them.
    pub withheld: Span,
    /// Number of requests dispatched while the member was kept idle for another queue.
    pub injected: u64,
    /// Number of queues merged into the queue in service, because the queue in service had just
    /// read nearby.
    pub merges_in_service: u64,
    /// Number of queues merged into a queue that had its next request nearby.
    pub merges_by_position: u64,
    /// Number of queues redirected because the queue that they were merged into was itself merged.
    pub merges_followed: u64,
    /// Number of queues merged permanently with a queue that was created at the same time.
    pub merges_stable: u64,
    /// Number of shared queues that were split because they were seeky.
    pub splits: u64,
    /// Number of slots of queues with raised weight.
    pub raised_slots: u64,
    /// Number of wakers found, with the knob `waker`.
    pub wakers: u64,
}
