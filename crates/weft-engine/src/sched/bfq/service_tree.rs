//! B-WF2Q+: which queue is served next, so that each gets its share by weight.
//!
//! Time is counted in service: a queue of weight w that is served x sectors has moved on by x/w,
//! the class as a whole by x/W, where W is the sum of the weights of those that ask. `V` is how far
//! the class has come. A queue that begins to ask stands at `V` (its start) and would be done with
//! its budget at its finish. Of those whose start has been reached the one with the first finish is
//! next. So nobody is ever far ahead of its share or behind it: by its own budget and its part of
//! the largest one.
//!
//! A queue that runs empty is remembered while its finish lies ahead of `V`, and cannot get more by
//! leaving and coming back. Its weight counts until then.
//!
//! Classes are strict, but the idle class gets a turn when it had none for 200 ms.
//!
//! Inputs   activations, service, expiries
//! Answer   [`ServiceTrees::next`]
//! Source   io-schedulers.md §2.1; J. C. R. Bennett and H. Zhang, "Hierarchical packet fair
//!          queueing algorithms", 1997; P. Valente and F. Checconi, "High throughput disk
//!          scheduling with fair bandwidth distribution", 2010

use weft_units::{Span, Time};

use super::QueueId;
use super::treap::{Member, Set, Treaps, precedes};
use crate::sched::request::IoPriority;

/// All queues as entities, by class.
#[derive(Clone, Debug)]
pub(super) struct ServiceTrees {
    entities: Treaps<Entity>,
    trees: [ServiceTree; 3],
    turns: ClassTurns,
}

/// Turns of classes: strict, but the idle class has one when it had none for 200 ms.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ClassTurns {
    /// Last time that the idle class had a turn, or was asked in vain.
    idle_served: Time,
}

/// The queues of one class.
#[derive(Clone, Copy, Debug)]
struct ServiceTree {
    /// `V`.
    vtime: u64,
    /// `W`: weights of those that ask, are in service, or are remembered.
    weights: u64,
    active: Set,
    idle: Set,
    /// The first that is forgotten.
    first_idle: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Entity {
    start: u64,
    finish: u64,
    /// Sectors that it may be served in its slot.
    budget: u64,
    /// Sectors that it was served in its slot.
    service: u64,
    weight: u32,
    class: IoPriority,
    place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Asks.
    Active,
    /// Has no requests.
    Forgotten,
    /// Has no requests, but its finish lies ahead.
    Idle,
    InService,
}

impl Member for Entity {
    const LOW: bool = true;

    #[inline]
    fn before(&self, other: &Self) -> bool {
        precedes(self.finish, other.finish)
    }

    #[inline]
    fn low(&self) -> u64 {
        self.start
    }
}

impl ServiceTrees {
    pub(super) fn new() -> Self {
        let tree = ServiceTree {
            vtime: 1,
            weights: 0,
            active: Set::EMPTY,
            idle: Set::EMPTY,
            first_idle: None,
        };
        Self { entities: Treaps::new(), trees: [tree; 3], turns: ClassTurns::default() }
    }

    /// A new queue, the next in number.
    pub(super) fn add(&mut self) -> QueueId {
        let (class, place) = (IoPriority::BestEffort, Place::Forgotten);
        QueueId(self.entities.push(Entity {
            start: 0,
            finish: 0,
            budget: 0,
            service: 0,
            weight: 0,
            class,
            place,
        }))
    }

    /// Sectors that it may still be served.
    pub(super) fn budget_left(&self, queue: QueueId) -> u64 {
        let entity = self.entities.at(queue.0);
        entity.budget.saturating_sub(entity.service)
    }

    pub(super) fn budget(&self, queue: QueueId) -> u64 {
        self.entities.at(queue.0).budget
    }

    /// Sectors that it was charged in its slot.
    pub(super) fn service(&self, queue: QueueId) -> u64 {
        self.entities.at(queue.0).service
    }

    /// Whether a queue asks, and is not in service.
    pub(super) fn is_active(&self, queue: QueueId) -> bool {
        self.entities.at(queue.0).place == Place::Active
    }

    /// Whether nothing is remembered of a queue.
    pub(super) fn is_forgotten(&self, queue: QueueId) -> bool {
        self.entities.at(queue.0).place == Place::Forgotten
    }

    /// Those that ask and are not in service, class by class, by their finish.
    pub(super) fn active(&self) -> impl Iterator<Item = QueueId> {
        self.trees.iter().flat_map(|tree| {
            let first = self.entities.first(tree.active);
            std::iter::successors(first, |at| self.entities.next(*at)).map(QueueId)
        })
    }

    /// A queue begins to ask. With `resume` it goes on where it left, within its finish of then,
    /// and a raised queue (`raising` times its weight) is pushed back to `V` by less.
    pub(super) fn activate(
        &mut self,
        queue: QueueId,
        class: IoPriority,
        weight: u32,
        budget: u64,
        resume: Option<u64>,
    ) {
        let Entity { place, finish: left, weight: before, class: old, .. } =
            *self.entities.at(queue.0);
        if place == Place::Idle {
            self.leave_idle(queue);
            self.trees[old as usize].weights -= u64::from(before);
        } else {
            assert_eq!(place, Place::Forgotten, "a queue begins to ask once");
        }
        let tree = &mut self.trees[class as usize];
        tree.weights += u64::from(weight);
        let vtime = tree.vtime;
        let resumed = resume.filter(|_| precedes(left, vtime));
        let base = if resumed.is_some() { left } else { vtime };
        let remembered = place == Place::Idle && old == class && precedes(base, left);
        let mut start = if remembered { left } else { base };
        let mut finish = start.wrapping_add(delta(budget, weight));
        if let Some(raising) = resumed
            && precedes(finish, vtime)
        {
            let pushed = vtime.wrapping_sub(finish) / raising;
            (start, finish) = (start.wrapping_add(pushed), finish.wrapping_add(pushed));
        }
        let entity = self.entities.at_mut(queue.0);
        *entity = Entity { start, finish, budget, service: 0, weight, class, place: Place::Active };
        self.entities.insert(&mut tree.active, queue.0);
    }

    /// The queue in service keeps what it was served, and asks on.
    pub(super) fn requeue(&mut self, queue: QueueId, weight: u32, budget: u64) {
        let entity = self.entities.at_mut(queue.0);
        assert_eq!(entity.place, Place::InService, "only one that was served");
        let tree = &mut self.trees[entity.class as usize];
        entity.start = entity.start.wrapping_add(delta(entity.service, entity.weight));
        tree.weights = tree.weights - u64::from(entity.weight) + u64::from(weight);
        (entity.weight, entity.budget, entity.service) = (weight, budget, 0);
        entity.finish = entity.start.wrapping_add(delta(budget, weight));
        entity.place = Place::Active;
        self.entities.insert(&mut tree.active, queue.0);
    }

    /// A queue asks no more: the one in service, or one that waits for service.
    pub(super) fn deactivate(&mut self, queue: QueueId) {
        let Entity { class, place, .. } = *self.entities.at(queue.0);
        let tree = &mut self.trees[class as usize];
        match place {
            Place::Active => self.entities.remove(&mut tree.active, queue.0),
            Place::InService => {}
            Place::Forgotten | Place::Idle => unreachable!("a queue that does not ask"),
        }
        let entity = self.entities.at_mut(queue.0);
        // One that leaves in its slot keeps what it was served: the rest of the budget may be of
        // use.
        if place == Place::Active {
            entity.budget = 0;
        }
        let served = if place == Place::InService { entity.service } else { 0 };
        entity.finish = entity.start.wrapping_add(delta(served, entity.weight));
        if precedes(tree.vtime, entity.finish) {
            entity.place = Place::Idle;
            let finish = entity.finish;
            self.entities.insert(&mut tree.idle, queue.0);
            if tree.first_idle.is_none_or(|first| precedes(finish, self.entities.at(first).finish))
            {
                tree.first_idle = Some(queue.0);
            }
        } else {
            entity.place = Place::Forgotten;
            tree.weights -= u64::from(entity.weight);
        }
    }

    /// The next queue to be served, if nobody is.
    pub(super) fn next(&mut self, now: Time) -> Option<QueueId> {
        let idle = !self.trees[IoPriority::Idle as usize].active.is_empty();
        let (order, _) = self.turns.order(idle, now);
        let class = order.into_iter().find(|class| !self.trees[*class].active.is_empty())?;
        let tree = &mut self.trees[class];
        let lowest = self.entities.lowest(tree.active).expect("somebody asks");
        if precedes(tree.vtime, lowest) {
            tree.vtime = lowest;
        }
        let next = self.entities.first_within(tree.active, tree.vtime);
        Some(QueueId(next.expect("whoever begins first can be served")))
    }

    /// Puts a queue that asks in service.
    pub(super) fn serve(&mut self, queue: QueueId) {
        let class = self.entities.at(queue.0).class;
        self.entities.remove(&mut self.trees[class as usize].active, queue.0);
        let entity = self.entities.at_mut(queue.0);
        assert_eq!(entity.place, Place::Active, "it asks");
        (entity.place, entity.service) = (Place::InService, 0);
    }

    /// Counts service of a queue: the one in service, or one whose request was injected.
    pub(super) fn charge(&mut self, queue: QueueId, sectors: u64) {
        let Entity { class, place, weight, budget, .. } = *self.entities.at(queue.0);
        let tree = &mut self.trees[class as usize];
        if place == Place::Active {
            self.entities.remove(&mut tree.active, queue.0);
            let entity = self.entities.at_mut(queue.0);
            entity.start = entity.start.wrapping_add(delta(sectors, weight));
            entity.finish = entity.start.wrapping_add(delta(budget, weight));
            self.entities.insert(&mut tree.active, queue.0);
        } else {
            assert_eq!(place, Place::InService, "who is served asks");
            self.entities.at_mut(queue.0).service += sectors;
        }
        tree.vtime = tree.vtime.wrapping_add((sectors << SHIFT) / tree.weights);
        self.forget_one(class);
    }

    /// Changes the budget of a queue that asks.
    pub(super) fn set_budget(&mut self, queue: QueueId, budget: u64) {
        let Entity { class, place, weight, start, .. } = *self.entities.at(queue.0);
        let tree = &mut self.trees[class as usize];
        if place == Place::Active {
            self.entities.remove(&mut tree.active, queue.0);
        }
        let entity = self.entities.at_mut(queue.0);
        entity.budget = budget;
        if place == Place::Active {
            entity.finish = start.wrapping_add(delta(budget, weight));
            self.entities.insert(&mut tree.active, queue.0);
        }
    }

    fn forget_one(&mut self, class: IoPriority) {
        let tree = &self.trees[class as usize];
        let Some(first) = tree.first_idle else { return };
        if precedes(tree.vtime, self.entities.at(first).finish) {
            return;
        }
        self.leave_idle(QueueId(first));
        let entity = self.entities.at_mut(first);
        entity.place = Place::Forgotten;
        self.trees[class as usize].weights -= u64::from(entity.weight);
    }

    fn leave_idle(&mut self, queue: QueueId) {
        let tree = &mut self.trees[self.entities.at(queue.0).class as usize];
        if tree.first_idle == Some(queue.0) {
            tree.first_idle = self.entities.next(queue.0);
        }
        self.entities.remove(&mut tree.idle, queue.0);
    }
}

impl ClassTurns {
    /// Classes in the order in which they are asked; `idle`: whether the idle one has anything.
    /// Whether it is its turn.
    pub(super) fn order(&mut self, idle: bool, now: Time) -> ([usize; 3], bool) {
        let waited = now.since(self.idle_served) > IDLE_CLASS_PATIENCE;
        if waited {
            self.idle_served = now;
        }
        if waited && idle { ([2, 0, 1], true) } else { ([0, 1, 2], false) }
    }
}

/// How far service of so many sectors takes a queue.
#[inline]
pub(super) fn delta(sectors: u64, weight: u32) -> u64 {
    (sectors << SHIFT) / u64::from(weight)
}

/// Fraction bits of stamps.
const SHIFT: u32 = 22;

/// Time without a turn after which the idle class is asked first.
const IDLE_CLASS_PATIENCE: Span = Span::millis(200);
