//! Queues of BFQ: one for each source of sync requests, and shared ones for background writes.
//!
//! A source is a client, a sync, or the array's own metadata, together with its class and its level
//! or weight. Background writes, for which no process waits, share one queue per class and level of
//! a group, whatever their source. A queue that has not been used for a minute is reused for a new
//! source. The service-tree entity of a group also has a queue, which never has a request.
//!
//! Source   io-schedulers.md §2.0, §2.1, §5.3

use weft_units::{ClientId, Group, Span, Time};

use super::history::{Intensity, SeekHistory, ThinkTime};
use super::injection::Injection;
use super::request_pool::Backlog;
use super::service_tree::ServiceTrees;
use super::shared_queue::Sharing;
use super::waker::WakerSearch;
use super::weight_raising::Raising;
use crate::contract::input::{Attr, Origin};
use crate::sched::request::{Direction, IoPriority};

/// Number of a queue, which is also the number of its entity in the service tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QueueId(pub(super) u32);

/// Key of a queue: source, class, level or weight, and group, packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueueKey(u64);

const RESYNC: u64 = 3;

/// Queue, with everything that was learned about its source.
#[derive(Clone, Debug)]
pub(super) struct BfqQueue {
    pub(super) key: QueueKey,
    pub(super) group: Group,
    pub(super) class: IoPriority,
    /// Weight given by the level or by the attribute of the source, before raising.
    pub(super) base_weight: u32,
    pub(super) raising: Raising,
    /// Whether a process waits for the completion of the queue's requests.
    pub(super) sync: bool,
    pub(super) backlog: Backlog,
    /// Number of requests in flight at the member.
    pub(super) in_driver: u32,
    /// Whether the queue is backlogged or in service.
    pub(super) busy: bool,
    /// Weight under which the queue is counted in `weights.rs`; `None` if it is not counted.
    pub(super) counted: Option<u32>,
    /// Whether the queue is counted among the queues of its group that have requests.
    pub(super) in_group: bool,
    /// Budget for the next slot in sectors, derived from earlier slots.
    pub(super) own_budget: u64,
    /// Whether the queue left its slot early, so that it may resume with the rest of its budget.
    pub(super) may_resume: bool,
    /// Whether the queue's FIFO has been checked for an expired request in this slot.
    pub(super) fifo_looked: bool,
    pub(super) seeks: SeekHistory,
    pub(super) think: ThinkTime,
    pub(super) intensity: Intensity,
    pub(super) injection: Injection,
    pub(super) sharing: Sharing,
    pub(super) waker: WakerSearch,
    /// Queue that this queue was most recently found to wake; `None` if there is none.
    pub(super) woken: Option<QueueId>,
    /// Whether the queue ever had a request.
    pub(super) began: bool,
    /// Whether the queue started in a large burst, so that its weight is not raised.
    pub(super) in_burst: bool,
    /// Completion time of the last request, or the time of creation before the first completion.
    pub(super) ended: Time,
}

impl BfqQueue {
    fn new(key: QueueKey, attr: Attr, sync: bool, own_budget: u64, now: Time) -> Self {
        let class = IoPriority::of(attr.class);
        let base_weight = u32::from(attr.class.weight(attr.weight)).min(WEIGHT_MAX);
        Self {
            key,
            group: attr.origin.group(),
            class,
            base_weight,
            raising: Raising::new(now),
            sync,
            backlog: Backlog::EMPTY,
            in_driver: 0,
            busy: false,
            counted: None,
            in_group: false,
            own_budget,
            may_resume: false,
            fifo_looked: false,
            seeks: SeekHistory::new(),
            think: ThinkTime::new(),
            intensity: Intensity::new(now),
            injection: Injection::new(now),
            sharing: Sharing::default(),
            waker: WakerSearch::default(),
            woken: None,
            began: false,
            in_burst: false,
            ended: now,
        }
    }

    /// Weight of the queue after raising.
    pub(super) fn weight(&self) -> u32 {
        self.base_weight * self.raising.coefficient()
    }

    /// Whether no process waits for the queue's requests even though they may be sync: in the idle
    /// class, and for a sync of the array.
    pub(super) fn is_unattended(&self) -> bool {
        self.class == IoPriority::Idle || self.key.is_of_resync()
    }

    /// Whether no request of the queue waits for dispatch.
    pub(super) fn is_empty(&self) -> bool {
        self.backlog.len == 0
    }

    /// Whether the queue may be reused for another source.
    fn is_disposable(&self, now: Time) -> bool {
        !self.busy && self.in_driver == 0 && now.since(self.ended) > UNUSED && !self.key.is_group()
    }
}

impl QueueKey {
    /// Key of the queue for a request, and whether the request counts as sync.
    pub(super) fn of(attr: &Attr, direction: Direction) -> (Self, bool) {
        let sync = direction == Direction::Read || !attr.background;
        let source = match (sync, attr.origin) {
            (false, _) => 0,
            (true, Origin::Client(ClientId(client), _)) => 1 | u64::from(client) << 2,
            (true, Origin::Metadata) => 2,
            (true, Origin::Sync) => RESYNC,
        };
        let class = IoPriority::of(attr.class) as u64;
        let level = u64::from(attr.class.level());
        let group = u64::from(attr.origin.group().number());
        let weight = u64::from(attr.weight);
        (Self(source | class << 34 | level << 36 | weight << 40 | group << 56), sync)
    }

    /// Key of a group's entity. No request has this key.
    pub(super) fn of_group(group: Group) -> Self {
        Self(u64::from(group.number()) << 56 | NO_CLASS << 34)
    }

    const fn is_group(self) -> bool {
        self.0 >> 34 & 3 == NO_CLASS
    }

    /// Whether the source has a weight of its own instead of the weight of its level.
    pub(super) const fn has_weight(self) -> bool {
        self.0 >> 40 & 0xffff != 0
    }

    /// Whether the source is a sync of the array.
    pub(super) const fn is_of_resync(self) -> bool {
        self.0 & 3 == RESYNC
    }

    /// Index in a table of `size` entries, a power of two, at which the search for this key starts.
    fn hash(self, size: usize) -> usize {
        let mixed = self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 32) as usize & (size - 1)
    }
}

/// All queues of a member, with an index by key.
#[derive(Clone, Debug)]
pub(super) struct Queues {
    all: Vec<BfqQueue>,
    /// Queues that can be reused for new sources.
    free: Vec<QueueId>,
    /// Hash table from keys to queues, with open addressing.
    by_key: Vec<Option<QueueId>>,
    /// Queue number at which the search for unused queues continues.
    look_at: usize,
}

impl Queues {
    pub(super) fn new() -> Self {
        Self { all: Vec::new(), free: Vec::new(), by_key: vec![None; 16], look_at: 64 }
    }

    #[inline]
    pub(super) fn at(&self, queue: QueueId) -> &BfqQueue {
        &self.all[queue.0 as usize]
    }

    #[inline]
    pub(super) fn at_mut(&mut self, queue: QueueId) -> &mut BfqQueue {
        &mut self.all[queue.0 as usize]
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = QueueId> + use<> {
        (0..self.all.len() as u32).map(QueueId)
    }

    /// The queue with this key; `None` if there is none.
    pub(super) fn find(&self, key: QueueKey) -> Option<QueueId> {
        let mut at = key.hash(self.by_key.len());
        while let Some(queue) = self.by_key[at] {
            if self.at(queue).key == key {
                return Some(queue);
            }
            at = (at + 1) & (self.by_key.len() - 1);
        }
        None
    }

    /// Creates a queue for a key, or reuses a queue that is unused. Returns its number.
    pub(super) fn create(
        &mut self,
        key: QueueKey,
        attr: Attr,
        sync: bool,
        own_budget: u64,
        trees: &mut ServiceTrees,
        now: Time,
    ) -> QueueId {
        if self.free.is_empty() && self.all.len() >= self.look_at {
            self.collect(trees, now);
            self.look_at = 64.max(2 * (self.all.len() - self.free.len()));
        }
        let new = BfqQueue::new(key, attr, sync, own_budget, now);
        let queue = if let Some(queue) = self.free.pop() {
            let sharing = self.at(queue).sharing.clone();
            *self.at_mut(queue) = BfqQueue { sharing, ..new };
            queue
        } else {
            self.all.push(new);
            trees.add()
        };
        assert!((queue.0 as usize) < self.all.len(), "each number has a queue and an entity");
        if self.all.len() * 2 > self.by_key.len() {
            self.by_key = vec![None; 2 * self.by_key.len()];
            for queue in self.ids() {
                self.enter(queue);
            }
        } else {
            self.enter(queue);
        }
        queue
    }

    /// Allocates and returns a queue number for the entity of a group. The queue never has a
    /// request.
    pub(super) fn create_for_group(
        &mut self,
        group: Group,
        trees: &mut ServiceTrees,
        now: Time,
    ) -> QueueId {
        self.create(QueueKey::of_group(group), Attr::NONE, false, 0, trees, now)
    }

    /// Frees the queues that have been unused for long enough.
    fn collect(&mut self, trees: &ServiceTrees, now: Time) {
        for queue in self.ids() {
            let unused = self.at(queue).is_disposable(now) && trees.is_forgotten(queue);
            if unused && self.target_of(queue).is_none_or(|end| self.at(end).is_disposable(now)) {
                self.retire(queue);
                self.free.push(queue);
            }
        }
        self.by_key.fill(None);
        for queue in self.ids() {
            if !self.free.contains(&queue) {
                self.enter(queue);
            }
        }
    }

    fn enter(&mut self, queue: QueueId) {
        let mut at = self.at(queue).key.hash(self.by_key.len());
        while self.by_key[at].is_some() {
            at = (at + 1) & (self.by_key.len() - 1);
        }
        self.by_key[at] = Some(queue);
    }
}

/// Value in the class field of the key of a group.
const NO_CLASS: u64 = 3;

/// Largest weight, as in the kernel.
pub(super) const WEIGHT_MAX: u32 = 1000;

/// Time without a request after which a queue may be reused for another source.
const UNUSED: Span = Span::secs(60);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::input::Class;

    fn client(number: u32) -> Attr {
        Attr { origin: Origin::Client(ClientId(number), Group::ROOT), ..Attr::NONE }
    }

    #[test]
    fn only_the_idle_class_and_a_sync_of_the_array_are_unattended() {
        let unattended = |attr: Attr| {
            let (key, sync) = QueueKey::of(&attr, Direction::Read);
            BfqQueue::new(key, attr, sync, 1, Time(0)).is_unattended()
        };
        assert!(!unattended(client(0)) && !unattended(client(u32::MAX)));
        assert!(!unattended(Attr { origin: Origin::Metadata, ..Attr::NONE }));
        assert!(unattended(Attr { class: Class::Idle, ..client(0) }));
        assert!(unattended(Attr { origin: Origin::Sync, ..Attr::NONE }));
    }

    #[test]
    fn the_key_of_a_group_is_the_groups_own_and_no_requests() {
        let group = |number| Group::new(number).expect("a valid number");
        let keys = [1, 2, Group::MAX].map(|number| QueueKey::of_group(group(number)));
        assert!(keys.iter().all(|key| key.is_group()));
        assert!(keys[0] != keys[1] && keys[1] != keys[2]);
        for class in [Class::None, Class::Idle, Class::RealTime(0), Class::BestEffort(7)] {
            let origin = Origin::Client(ClientId(3), group(1));
            let (key, _) = QueueKey::of(&Attr { class, origin, ..Attr::NONE }, Direction::Read);
            assert!(!key.is_group(), "{class:?}");
        }
    }

    /// Creates a queue for the client unless it has one.
    fn queue_of(queues: &mut Queues, trees: &mut ServiceTrees, number: u32, now: Time) -> QueueId {
        let (key, sync) = QueueKey::of(&client(number), Direction::Read);
        queues.find(key).unwrap_or_else(|| queues.create(key, client(number), sync, 1, trees, now))
    }

    #[test]
    fn queues_that_were_unused_for_a_minute_serve_new_sources_time_and_again() {
        let (mut queues, mut trees) = (Queues::new(), ServiceTrees::new());
        for round in 0..4 {
            let now = Time(0) + Span::secs(61 * round);
            for number in 0..64 {
                queue_of(&mut queues, &mut trees, round as u32 * 64 + number, now);
            }
            assert_eq!(queues.all.len(), 64, "round {round}");
        }
    }

    #[test]
    fn a_queue_that_is_in_use_is_still_found_after_others_were_freed() {
        let (mut queues, mut trees) = (Queues::new(), ServiceTrees::new());
        for number in 0..64 {
            queue_of(&mut queues, &mut trees, number, Time(0));
        }
        let now = Time(0) + Span::secs(61);
        queues.at_mut(QueueId(5)).ended = now;
        queue_of(&mut queues, &mut trees, 64, now);
        let found = |number| queues.find(QueueKey::of(&client(number), Direction::Read).0);
        assert_eq!((found(5), found(6)), (Some(QueueId(5)), None));
    }
}
