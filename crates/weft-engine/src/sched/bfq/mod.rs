//! BFQ: the member belongs to one queue at a time, and each gets its share by weight.
//!
//! ```text
//! scheduler.rs     a request comes, goes to the member, is completed
//! slot.rs          one queue in service: how its slot begins and ends, what it is charged
//! service_tree.rs  B-WF2Q+: whose slot is next
//! fair_requests.rs weft's own in place of slots: every request is a turn
//! groups.rs        groups of clients: shares between them first
//! budget.rs        how much a slot may move; peak_rate.rs: how much the member can move
//! idling.rs        whether the member is kept for a queue that has run empty; injection.rs: what
//!                  others may do meanwhile
//! waker.rs         queues that wait for one another
//! queue.rs         queues by source; history.rs: habits of a source; weights.rs: are all equal?
//! request_pool.rs  requests of a queue: sorted, by age, merged
//! treap.rs         sorted sets in a slab
//! queue_merge.rs   patch 003: whether queues are merged, and which; shared_queue.rs: merge and split
//! position_index.rs, hw_tag.rs, merge_gain.rs, stable_merge.rs   what that goes by
//! weight_raising.rs  more weight for whoever somebody waits for; burst.rs: not for many at once
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
