//! Reasons of decisions, counted: why slots ended, how long the member was kept and for what.

use weft_units::Span;

/// Why a queue is in service no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExpireReason {
    /// It kept the member waiting for a request that did not come.
    TooIdle,
    /// It was in service for too long.
    BudgetTimeout,
    /// It was served all that it may be at once.
    BudgetExhausted,
    /// It has no more requests, and is not waited for.
    NoMoreRequests,
    /// Another queue goes first.
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

/// Why the member is kept for a queue that has no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IdleReason {
    /// `strict_guarantees` is set.
    Strict,
    /// The member is faster if its next request is from the same queue.
    Throughput,
    /// The queue has more weight for a while.
    Raised,
    /// Others have another weight or class, and the queue would lose its share.
    Asymmetric,
    /// Nobody else asks.
    Alone,
}

impl IdleReason {
    /// Every reason.
    pub const ALL: [Self; 5] =
        [Self::Strict, Self::Throughput, Self::Raised, Self::Asymmetric, Self::Alone];
}

/// What a queue of a member has decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BfqStats {
    /// Slots that ended, by [`ExpireReason`].
    pub expired: [u64; 5],
    /// How often the member was kept for a queue, by [`IdleReason`].
    pub idled: [u64; 5],
    /// How long it was kept without a request of that queue, by [`IdleReason`].
    pub plugged: [Span; 5],
    /// How long the member had room and others had requests, which it did not get.
    pub withheld: Span,
    /// Requests that went to the member though it was kept for another queue.
    pub injected: u64,
    /// Queues merged into the one in service, which had just read nearby.
    pub merges_in_service: u64,
    /// Queues merged into one whose next request was nearby.
    pub merges_by_position: u64,
    /// Queues whose target was merged itself, and that followed it.
    pub merges_followed: u64,
    /// Queues merged for good with one that was created at the same time.
    pub merges_stable: u64,
    /// Shared queues that were split, since they were seeky.
    pub splits: u64,
    /// Slots of queues whose weight was raised.
    pub raised_slots: u64,
    /// Queues found to wait for another one, with `waker`.
    pub wakers: u64,
}
