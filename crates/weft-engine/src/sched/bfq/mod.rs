//! BFQ scheduler: one queue is in service at a time, and each queue gets its share by weight.
//!
//! ```text
//! scheduler.rs     requests arrive, are dispatched and complete
//! slot.rs          the queue in service: how its slot begins and ends, and what it is charged
//! service_tree.rs  B-WF2Q+: which queue gets the next slot
//! fair_requests.rs weft's alternative to slots: each request is scheduled on its own
//! groups.rs        groups of clients, between which the member is shared first
//! budget.rs        how much a slot may transfer; peak_rate.rs: how fast the member transfers
//! idling.rs        whether the member is kept idle for a queue that ran empty; injection.rs: which
//!                  requests of other queues may be dispatched meanwhile
//! waker.rs         queues that wake another queue by a completion
//! queue.rs         queues by source; history.rs: access pattern; weights.rs: weights in use
//! request_pool.rs  requests of a queue, sorted by sector, listed by age, and merged
//! treap.rs         sorted sets in a slab
//! queue_merge.rs   patch 003: which queues are merged; shared_queue.rs: merge and split
//! position_index.rs, hw_tag.rs, merge_gain.rs, stable_merge.rs   criteria for queue merging
//! weight_raising.rs  weight raising for interactive and soft real-time queues
//! burst.rs         exception from weight raising for many queues that start at once
//! stats.rs         reasons of decisions, counted
//! ```
//!
//! Measured as orders and shares of Linux 6.12 (`tests/`). A request costs
//!          1,700 to 2,900 instructions, with 6 queues or 4,096 (random 4 KiB, 1 or 4 at once each,
//!          depth 32), and allocates nothing; in `mq-deadline` 1,600 (6) to 5,000 (16,384 queued)
//!
//! Source   io-schedulers.md §2; P. Valente and M. Andreolini, "Improving application
//!          responsiveness with the BFQ disk I/O scheduler", 2012;
//!          Documentation/block/bfq-iosched.rst

mod budget;
mod burst;
mod fair_requests;
mod groups;
mod history;
mod hw_tag;
mod idling;
mod injection;
mod merge_gain;
mod peak_rate;
mod position_index;
mod queue;
mod queue_merge;
mod request_pool;
mod scheduler;
mod service_tree;
mod shared_queue;
mod slot;
mod stable_merge;
mod stats;
#[cfg(test)]
mod tests;
mod treap;
mod waker;
mod weight_raising;
mod weights;

use self::queue::QueueId;

pub use self::scheduler::Bfq;
pub use self::stats::{BfqStats, ExpireReason, IdleReason};
