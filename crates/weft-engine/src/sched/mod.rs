//! Schedulers and queues of members: the way of a request from a decision to the member.
//!
//! All schedulers are behind `Scheduler`: a request is inserted, dispatched when the member has
//! room, and completed. [`SchedulerKind`] has their names.

pub mod bfq;
pub(crate) mod member_queue;
pub(crate) mod merge;
pub mod mq_deadline;
pub(crate) mod names;
mod none;
pub(crate) mod request;
pub(crate) mod sorted;
#[cfg(test)]
mod tests;

use weft_units::{Sectors, Time};

use self::bfq::{Bfq, BfqStats};
use self::member_queue::QueueSettings;
use self::mq_deadline::MqDeadline;
use self::none::Fifo;
use crate::contract::member::DeviceTraits;
use crate::knobs::{Knobs, NoMerges, SchedulerKind};

pub use request::{Direction, Dispatched, IoPriority, QueuedRequest, Receipt};

/// A scheduler by its name, without the queue of a member around it: for benchmarks.
///
/// What [`BareScheduler::dispatch`] gives is to be completed once.
#[derive(Clone, Debug)]
pub struct BareScheduler(Scheduler);

impl BareScheduler {
    /// The scheduler that the knobs name, for a member on such a device.
    #[must_use]
    pub fn new(knobs: &Knobs, device: DeviceTraits) -> Self {
        Self(Scheduler::new(&QueueSettings::of(knobs), device))
    }

    /// Queues a request, or makes it a part of a queued one.
    pub fn insert(&mut self, request: &QueuedRequest, now: Time) {
        self.0.insert(request, now);
    }

    /// The next request for the member. `None`: nothing waits, or the member is kept for somebody.
    pub fn dispatch(&mut self, now: Time) -> Option<Dispatched> {
        self.0.dispatch(now)
    }

    /// Everything that the request which was dispatched last is made of.
    #[must_use]
    pub fn sent(&self) -> &[u64] {
        self.0.sent()
    }

    /// The member has ended a dispatched request.
    pub fn completed(&mut self, receipt: Receipt, now: Time) {
        self.0.completed(receipt, now);
    }

    /// When there may be something to dispatch though no request is completed.
    #[must_use]
    pub fn next_wake(&self, now: Time) -> Option<Time> {
        self.0.next_wake(now)
    }
}

/// A scheduler with what waits in it.
#[derive(Clone, Debug)]
pub(crate) enum Scheduler {
    Bfq(Box<Bfq>),
    None(Fifo),
    MqDeadline(Box<MqDeadline>),
}

impl Default for Scheduler {
    fn default() -> Self {
        Self::None(Fifo::default())
    }
}

impl Scheduler {
    fn new(settings: &QueueSettings, device: DeviceTraits) -> Self {
        match settings.scheduler {
            SchedulerKind::Bfq => {
                // Its queues know no request that was merged into last.
                let max = match settings.nomerges {
                    NoMerges::Allowed => settings.max,
                    NoMerges::LastOnly | NoMerges::Never => Sectors::ZERO,
                };
                Self::Bfq(Box::new(Bfq::new(settings.bfq, max, device)))
            }
            SchedulerKind::MqDeadline => {
                let queue = MqDeadline::new(settings.mq_deadline, settings.max, settings.nomerges);
                Self::MqDeadline(Box::new(queue))
            }
            SchedulerKind::None => Self::None(Fifo::default()),
        }
    }

    /// Queues a request, or makes it a part of a queued one.
    fn insert(&mut self, request: &QueuedRequest, now: Time) {
        match self {
            Self::Bfq(queues) => queues.insert(request, now),
            Self::None(fifo) => fifo.insert(request),
            Self::MqDeadline(queue) => {
                queue.insert(request, now);
            }
        }
    }

    /// Makes a request a part of a queued one, if that can be. Says whether it was merged.
    fn merge(&mut self, request: &QueuedRequest) -> bool {
        match self {
            Self::Bfq(_) | Self::None(_) => false,
            Self::MqDeadline(queue) => queue.merge(request),
        }
    }

    /// The next request for the member; [`Scheduler::sent`] has what was merged into it.
    fn dispatch(&mut self, now: Time) -> Option<Dispatched> {
        match self {
            Self::Bfq(queues) => queues.dispatch(now),
            Self::None(fifo) => fifo.dispatch(),
            Self::MqDeadline(queue) => queue.dispatch(now),
        }
    }

    /// Everything that the request which was dispatched last is made of.
    fn sent(&self) -> &[u64] {
        match self {
            Self::Bfq(queues) => queues.sent(),
            Self::None(fifo) => fifo.sent(),
            Self::MqDeadline(queue) => queue.sent(),
        }
    }

    /// The member has ended a dispatched request.
    fn completed(&mut self, receipt: Receipt, now: Time) {
        match self {
            Self::Bfq(queues) => queues.completed(receipt, now),
            Self::None(_) => {}
            Self::MqDeadline(queue) => queue.completed(receipt),
        }
    }

    /// The member takes nothing now, whatever there is.
    fn on_full_member(&mut self, now: Time) {
        match self {
            Self::Bfq(queues) => queues.on_full_member(now),
            Self::None(_) | Self::MqDeadline(_) => {}
        }
    }

    /// When there may be something to dispatch though no request is completed.
    fn next_wake(&self, now: Time) -> Option<Time> {
        match self {
            Self::Bfq(queues) => queues.next_wake(),
            Self::None(_) => None,
            Self::MqDeadline(queue) => queue.next_wake(now),
        }
    }

    /// Reasons of the decisions of `bfq`.
    fn bfq_stats(&self) -> Option<&BfqStats> {
        match self {
            Self::Bfq(queues) => Some(queues.stats()),
            Self::None(_) | Self::MqDeadline(_) => None,
        }
    }

    /// Number of requests that wait; one that was merged is a part of another.
    fn waiting(&self) -> usize {
        match self {
            Self::Bfq(queues) => queues.waiting(),
            Self::None(fifo) => fifo.waiting(),
            Self::MqDeadline(queue) => queue.waiting(),
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Bfq(queues) => queues.is_empty(),
            Self::None(fifo) => fifo.waiting() == 0,
            Self::MqDeadline(queue) => queue.is_empty(),
        }
    }

    /// Forgets what waits, not what was dispatched.
    fn clear_waiting(&mut self) {
        match self {
            Self::Bfq(queues) => queues.clear_waiting(),
            Self::None(fifo) => fifo.clear(),
            Self::MqDeadline(queue) => queue.clear_waiting(),
        }
    }
}
