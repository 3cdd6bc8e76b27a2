//! I/O schedulers and member queues: the path of a request from the RAID decision to the member.
//!
//! `Scheduler` is the common interface of all schedulers: a request is inserted, dispatched when
//! the member has room, and completed. [`SchedulerKind`] lists the schedulers by name.

pub mod bfq;
pub mod kyber;
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
use self::kyber::Kyber;
use self::member_queue::QueueSettings;
use self::mq_deadline::MqDeadline;
use self::none::Fifo;
use crate::contract::member::DeviceTraits;
use crate::knobs::{Knobs, NoMerges, SchedulerKind};

pub use request::{Direction, Dispatched, IoPriority, QueuedRequest, Receipt};

/// Scheduler that the knobs select, without a member queue around it, for benchmarks.
///
/// Each request that [`BareScheduler::dispatch`] returns must be completed once.
#[derive(Clone, Debug)]
pub struct BareScheduler(Scheduler);

impl BareScheduler {
    /// Creates the scheduler for a member with these device traits.
    #[must_use]
    pub fn new(knobs: &Knobs, device: DeviceTraits) -> Self {
        Self(Scheduler::new(&QueueSettings::of(knobs), device))
    }

    /// Queues a request, or merges it into a queued one.
    pub fn insert(&mut self, request: &QueuedRequest, now: Time) {
        self.0.insert(request, now);
    }

    /// Returns the next request for the member. `None` if no request is queued, or if the scheduler
    /// keeps the member idle for the next request of a queue.
    pub fn dispatch(&mut self, now: Time) -> Option<Dispatched> {
        self.0.dispatch(now)
    }

    /// Identifiers of all requests that are merged in the last dispatched request.
    #[must_use]
    pub fn sent(&self) -> &[u64] {
        self.0.sent()
    }

    /// Reports that the member has completed a dispatched request.
    pub fn completed(&mut self, receipt: Receipt, now: Time) {
        self.0.completed(receipt, now);
    }

    /// Time at which a request may become ready even if none completes; `None` if none will.
    #[must_use]
    pub fn next_wake(&self, now: Time) -> Option<Time> {
        self.0.next_wake(now)
    }
}

/// A scheduler, with the requests queued in it.
#[derive(Clone, Debug)]
pub(crate) enum Scheduler {
    Bfq(Box<Bfq>),
    Kyber(Box<Kyber>),
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
                // BFQ has no record of the request that was last merged into, so with `LastOnly` it
                // merges nothing.
                let max = match settings.nomerges {
                    NoMerges::Allowed => settings.max,
                    NoMerges::LastOnly | NoMerges::Never => Sectors::ZERO,
                };
                Self::Bfq(Box::new(Bfq::new(settings.bfq, max, device)))
            }
            SchedulerKind::Kyber => {
                let queue = Kyber::new(settings.kyber, settings.max, settings.nomerges);
                Self::Kyber(Box::new(queue))
            }
            SchedulerKind::MqDeadline => {
                let queue = MqDeadline::new(settings.mq_deadline, settings.max, settings.nomerges);
                Self::MqDeadline(Box::new(queue))
            }
            SchedulerKind::None => Self::None(Fifo::default()),
        }
    }

    /// Queues a request, or merges it into a queued one.
    fn insert(&mut self, request: &QueuedRequest, now: Time) {
        match self {
            Self::Bfq(queues) => queues.insert(request, now),
            Self::Kyber(queue) => queue.insert(request, now),
            Self::None(fifo) => fifo.insert(request),
            Self::MqDeadline(queue) => {
                queue.insert(request, now);
            }
        }
    }

    /// Merges a request into a queued one if possible. Returns whether it was merged.
    fn merge(&mut self, request: &QueuedRequest) -> bool {
        match self {
            Self::Bfq(_) | Self::None(_) => false,
            Self::Kyber(queue) => queue.merge(request),
            Self::MqDeadline(queue) => queue.merge(request),
        }
    }

    /// Returns the next request for the member; `None` if no request may be dispatched now.
    /// [`Scheduler::sent`] lists the requests that are merged in it.
    fn dispatch(&mut self, now: Time) -> Option<Dispatched> {
        match self {
            Self::Bfq(queues) => queues.dispatch(now),
            Self::Kyber(queue) => queue.dispatch(now),
            Self::None(fifo) => fifo.dispatch(),
            Self::MqDeadline(queue) => queue.dispatch(now),
        }
    }

    /// Identifiers of all requests that are merged in the last dispatched request.
    fn sent(&self) -> &[u64] {
        match self {
            Self::Bfq(queues) => queues.sent(),
            Self::Kyber(queue) => queue.sent(),
            Self::None(fifo) => fifo.sent(),
            Self::MqDeadline(queue) => queue.sent(),
        }
    }

    /// Reports that the member has completed a dispatched request.
    fn completed(&mut self, receipt: Receipt, now: Time) {
        match self {
            Self::Bfq(queues) => queues.completed(receipt, now),
            Self::Kyber(queue) => queue.completed(receipt, now),
            Self::None(_) => {}
            Self::MqDeadline(queue) => queue.completed(receipt),
        }
    }

    /// Reports that the member accepts no request at present, so that waiting requests do not count
    /// as held back by the scheduler.
    fn on_full_member(&mut self, now: Time) {
        match self {
            Self::Bfq(queues) => queues.on_full_member(now),
            Self::Kyber(_) | Self::None(_) | Self::MqDeadline(_) => {}
        }
    }

    /// Time at which a request may become ready even if none completes; `None` if none will.
    fn next_wake(&self, now: Time) -> Option<Time> {
        match self {
            Self::Bfq(queues) => queues.next_wake(),
            Self::Kyber(queue) => queue.next_wake(),
            Self::None(_) => None,
            Self::MqDeadline(queue) => queue.next_wake(now),
        }
    }

    /// Statistics of BFQ's decisions; `None` for other schedulers.
    fn bfq_stats(&self) -> Option<&BfqStats> {
        match self {
            Self::Bfq(queues) => Some(queues.stats()),
            Self::Kyber(_) | Self::None(_) | Self::MqDeadline(_) => None,
        }
    }

    /// Number of queued requests; a request that was merged into another does not count.
    fn waiting(&self) -> usize {
        match self {
            Self::Bfq(queues) => queues.waiting(),
            Self::Kyber(queue) => queue.waiting(),
            Self::None(fifo) => fifo.waiting(),
            Self::MqDeadline(queue) => queue.waiting(),
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Bfq(queues) => queues.is_empty(),
            Self::Kyber(queue) => queue.is_empty(),
            Self::None(fifo) => fifo.waiting() == 0,
            Self::MqDeadline(queue) => queue.is_empty(),
        }
    }

    /// Drops the queued requests, but not the dispatched ones.
    fn clear_waiting(&mut self) {
        match self {
            Self::Bfq(queues) => queues.clear_waiting(),
            Self::Kyber(queue) => queue.clear_waiting(),
            Self::None(fifo) => fifo.clear(),
            Self::MqDeadline(queue) => queue.clear_waiting(),
        }
    }
}
