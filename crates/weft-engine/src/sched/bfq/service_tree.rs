//! B-WF2Q+ scheduler: selects the queue to be served next, so that each gets its share by weight.
//!
//! ```text
//! root:  V, W, entities by class ─┬─ queue            of a client that is in no group
//!                                 └─ group (BE) ─ V, W, entities by class ── queues of the group
//! ```
//!
//! Virtual time is measured in service. A queue of weight w that is served x sectors advances by
//! x/w; its class as a whole advances by x/W, where W is the sum of the weights of the active
//! queues. `V` is the virtual time of the class. A queue that becomes active gets a start, which is
//! `V`, and a finish, at which its budget would be used up. Among the queues that have reached
//! their start, the one with the earliest finish is next. Therefore no queue is ahead of its share
//! or behind it by more than its own budget and its part of the largest budget.
//!
//! A queue that runs empty is remembered as long as its finish is later than `V`, so that it cannot
//! gain by leaving and returning. Its weight counts until then.
//!
//! Classes are strict, except that the idle class is served first once it has had no turn for 200
//! ms.
//!
//! A group is an entity among the queues of the root, in the best-effort class whatever the classes
//! of its queues. The group is active while one of its queues is, its budget is that of its next
//! queue, and it is charged for the service of its queues. Both levels thus follow the same rules,
//! and without groups only the first level exists.
//!
//! Inputs   activations, service, expiries
//! Answer   [`ServiceTrees::next`]
//! Source   io-schedulers.md §2.1; J. C. R. Bennett and H. Zhang, "Hierarchical packet fair
//!          queueing algorithms", 1997; P. Valente and F. Checconi, "High throughput disk
//!          scheduling with fair bandwidth distribution", 2010

use weft_units::{Group, Span, Time};

use super::QueueId;
use super::treap::{Member, Set, Treaps, precedes};
use crate::sched::request::IoPriority;

/// All queues and groups as entities, in one tree per level and class.
#[derive(Clone, Debug)]
pub(super) struct ServiceTrees {
    entities: Treaps<Entity>,
    /// Trees by level and class: those of the root first, then those of each group by group number.
    trees: [ServiceTree; LEVELS * CLASSES],
    /// State that decides which class of the root has its turn.
    turns: ClassTurns,
    /// Groups, by group number minus one.
    groups: Vec<GroupLevel>,
}

/// Group as a scheduling level of its own.
#[derive(Clone, Copy, Debug)]
struct GroupLevel {
    /// Entity of the group at the root; `None` until the group has its first queue.
    entity: Option<u32>,
    weight: u32,
    turns: ClassTurns,
}

/// Number of the tree that contains an entity. There is one tree for each class of each level; a
/// level is the root or a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TreeOf(u8);

impl TreeOf {
    #[inline]
    pub(super) const fn new(group: Group, class: IoPriority) -> Self {
        Self(group.number() * CLASSES as u8 + class as u8)
    }

    const fn of_root(self) -> bool {
        self.0 < CLASSES as u8
    }

    /// Index in `groups` of the group to which the tree belongs.
    const fn level(self) -> usize {
        self.0 as usize / CLASSES - 1
    }
}

/// Order of the classes of a level: strict, except that the idle class is served first once it has
/// had no turn for 200 ms.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ClassTurns {
    /// Last time at which the idle class had its turn. A turn in which the class had no requests
    /// counts too.
    idle_served: Time,
}

/// Entities of one class of one level.
#[derive(Clone, Copy, Debug)]
struct ServiceTree {
    /// Virtual time `V` of the class.
    vtime: u64,
    /// `W`: sum of the weights of the active, served and remembered entities.
    weights: u64,
    active: Set,
    idle: Set,
    /// Idle entity with the earliest finish, which is the first to be forgotten; `None` if no
    /// entity is idle.
    first_idle: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Entity {
    start: u64,
    finish: u64,
    /// Number of sectors that the entity may be served in its current slot.
    budget: u64,
    /// Number of sectors that the entity has been served in its current slot.
    service: u64,
    weight: u32,
    tree: TreeOf,
    state: EntityState,
    /// Number of the group that the entity represents; 0 for a queue.
    group: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EntityState {
    /// The entity has requests and waits for service.
    Active,
    /// The entity has no requests, and its weight and finish no longer count.
    Forgotten,
    /// The entity has no requests, but its finish lies ahead of the virtual time `V`, so that its
    /// weight still counts.
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
        Self {
            entities: Treaps::new(),
            trees: [tree; LEVELS * CLASSES],
            turns: ClassTurns::default(),
            groups: Vec::new(),
        }
    }

    /// Adds a queue. Returns its number, which is the next one.
    pub(super) fn add(&mut self) -> QueueId {
        let (tree, state) =
            (TreeOf::new(Group::ROOT, IoPriority::BestEffort), EntityState::Forgotten);
        QueueId(self.entities.push(Entity {
            start: 0,
            finish: 0,
            budget: 0,
            service: 0,
            weight: 0,
            tree,
            state,
            group: 0,
        }))
    }

    /// Whether the group already has an entity at the root, by which it competes with others.
    /// Always true for [`Group::ROOT`], which stands for no group.
    pub(super) fn knows(&self, group: Group) -> bool {
        let level = usize::from(group.number()).wrapping_sub(1);
        group == Group::ROOT || self.groups.get(level).is_some_and(|it| it.entity.is_some())
    }

    /// Makes the unused entity `entity` the entity by which a group competes at the root.
    pub(super) fn found(&mut self, group: Group, entity: QueueId, weight: u32) {
        assert!(!self.knows(group), "a group gets its entity once");
        let count = usize::from(group.number());
        if self.groups.len() < count {
            let none = GroupLevel { entity: None, weight: 0, turns: ClassTurns::default() };
            self.groups.resize(count, none);
        }
        self.groups[count - 1] =
            GroupLevel { entity: Some(entity.0), weight, turns: ClassTurns::default() };
        self.entities.at_mut(entity.0).group = group.number();
    }

    /// Number of sectors that the queue may still be served in its slot.
    pub(super) fn budget_left(&self, queue: QueueId) -> u64 {
        let entity = self.entities.at(queue.0);
        entity.budget.saturating_sub(entity.service)
    }

    pub(super) fn budget(&self, queue: QueueId) -> u64 {
        self.entities.at(queue.0).budget
    }

    /// Number of sectors that the queue was charged in its slot.
    pub(super) fn service(&self, queue: QueueId) -> u64 {
        self.entities.at(queue.0).service
    }

    /// Whether a queue has requests and is not in service.
    pub(super) fn is_active(&self, queue: QueueId) -> bool {
        self.entities.at(queue.0).state == EntityState::Active
    }

    /// Whether the tree keeps no state about the queue.
    pub(super) fn is_forgotten(&self, queue: QueueId) -> bool {
        self.entities.at(queue.0).state == EntityState::Forgotten
    }

    /// Active queues, in order of level, class and finish.
    pub(super) fn active(&self) -> impl Iterator<Item = QueueId> {
        let known = (1 + self.groups.len()) * CLASSES;
        let all = self.trees[..known].iter().flat_map(|tree| {
            let first = self.entities.first(tree.active);
            std::iter::successors(first, |at| self.entities.next(*at))
        });
        all.filter(|at| self.entities.at(*at).group == 0).map(QueueId)
    }

    /// Activates a queue that has got a request. The start of the queue is `V`, the virtual time of
    /// its class, or its previous finish if the tree still remembers the queue because that finish
    /// is later than `V`. With `resume`, the start is the previous finish even if it is earlier
    /// than `V`. `resume` is the factor by which the weight of the queue is raised: if the new
    /// finish is still earlier than `V`, start and finish move forward by the difference divided by
    /// the factor.
    pub(super) fn activate(
        &mut self,
        queue: QueueId,
        tree: TreeOf,
        weight: u32,
        budget: u64,
        resume: Option<u64>,
    ) {
        self.begin(queue.0, tree, weight, budget, resume);
        if tree.of_root() {
            return;
        }
        let (group, weight) = self.group_of(tree);
        match self.entities.at(group).state {
            EntityState::Active => self.follow_next(group),
            EntityState::InService => {}
            EntityState::Forgotten | EntityState::Idle => {
                let of = TreeOf::new(Group::ROOT, IoPriority::BestEffort);
                self.begin(group, of, weight, budget, resume);
            }
        }
    }

    /// Makes the queue in service wait for service again, after it was charged for its service.
    pub(super) fn requeue(&mut self, queue: QueueId, weight: u32, budget: u64) {
        self.go_on(queue.0, weight, budget);
        let tree = self.entities.at(queue.0).tree;
        if !tree.of_root() {
            self.group_goes_on(tree);
        }
    }

    /// Removes a queue, which is in service or waits for service, from the queues that have
    /// requests.
    pub(super) fn deactivate(&mut self, queue: QueueId) {
        let Entity { tree, state, .. } = *self.entities.at(queue.0);
        self.end(queue.0);
        if tree.of_root() {
            return;
        }
        let (group, _) = self.group_of(tree);
        match (self.budget_of_next(group), state) {
            (Some(_), EntityState::InService) => self.group_goes_on(tree),
            // Another queue of the group is in service.
            _ if state == EntityState::Active
                && self.entities.at(group).state == EntityState::InService => {}
            (Some(_), _) => self.follow_next(group),
            (None, _) => self.end(group),
        }
    }

    /// Queue to be served next; `None` if no queue is active. Must be called while no queue is in
    /// service.
    pub(super) fn next(&mut self, now: Time) -> Option<QueueId> {
        let first = pick(&mut self.entities, &mut self.trees[..CLASSES], &mut self.turns, now)?;
        let group = usize::from(self.entities.at(first).group);
        if group == 0 {
            return Some(QueueId(first));
        }
        let trees = &mut self.trees[group * CLASSES..(group + 1) * CLASSES];
        let first = pick(&mut self.entities, trees, &mut self.groups[group - 1].turns, now);
        Some(QueueId(first.expect("an active group has an active queue")))
    }

    /// Puts an active queue in service.
    pub(super) fn serve(&mut self, queue: QueueId) {
        let tree = self.put_in_service(queue.0);
        if !tree.of_root() {
            let (group, _) = self.group_of(tree);
            self.put_in_service(group);
        }
    }

    /// Charges a queue for `sectors` of service: the queue in service, or a queue from which a
    /// request was injected.
    pub(super) fn charge(&mut self, queue: QueueId, sectors: u64) {
        let tree = self.pay(queue.0, sectors);
        if !tree.of_root() {
            let (group, _) = self.group_of(tree);
            self.pay(group, sectors);
            self.follow_next(group);
        }
    }

    /// Changes the budget of a queue that has requests.
    pub(super) fn set_budget(&mut self, queue: QueueId, budget: u64) {
        let tree = self.fit(queue.0, budget);
        if !tree.of_root() {
            let (group, _) = self.group_of(tree);
            self.follow_next(group);
        }
    }
}

/// Updates of the groups after their queues have changed.
impl ServiceTrees {
    /// Entity and weight of the group to which this tree belongs.
    fn group_of(&self, tree: TreeOf) -> (u32, u32) {
        let GroupLevel { entity, weight, .. } = self.groups[tree.level()];
        (entity.expect("a group has an entity before its first queue is active"), weight)
    }

    /// Makes the group in service active again, with the budget of its next queue.
    fn group_goes_on(&mut self, tree: TreeOf) {
        let (group, weight) = self.group_of(tree);
        let budget = self.budget_of_next(group).expect("a queue of the group is active");
        self.go_on(group, weight, budget);
    }

    /// Sets the budget of a group that waits for service to that of its next queue.
    fn follow_next(&mut self, group: u32) {
        let Entity { state, budget: before, .. } = *self.entities.at(group);
        if state != EntityState::Active {
            return;
        }
        let budget = self.budget_of_next(group).expect("a queue of the group is active");
        if budget != before {
            self.fit(group, budget);
        }
    }

    /// Budget of the queue that a group would serve next, with strict classes; `None` if the group
    /// has no active queue.
    fn budget_of_next(&self, group: u32) -> Option<u64> {
        let first = usize::from(self.entities.at(group).group) * CLASSES;
        let mut trees = self.trees[first..first + CLASSES].iter();
        let tree = trees.find(|tree| !tree.active.is_empty())?;
        let lowest = self.entities.lowest(tree.active).expect("the tree has an active entity");
        let vtime = if precedes(tree.vtime, lowest) { lowest } else { tree.vtime };
        let next = self.entities.first_within(tree.active, vtime);
        Some(self.entities.at(next.expect("the earliest start has been reached")).budget)
    }
}

/// Operations on the entities of one level, be they queues or groups.
impl ServiceTrees {
    #[inline]
    fn tree_mut(&mut self, tree: TreeOf) -> &mut ServiceTree {
        &mut self.trees[usize::from(tree.0)]
    }

    #[inline]
    fn begin(&mut self, at: u32, of: TreeOf, weight: u32, budget: u64, resume: Option<u64>) {
        let Entity { state, finish: left, weight: before, tree: old, group, .. } =
            *self.entities.at(at);
        if state == EntityState::Idle {
            self.leave_idle(at);
            self.tree_mut(old).weights -= u64::from(before);
        } else {
            assert_eq!(state, EntityState::Forgotten, "an activated entity was not active");
        }
        let tree = &mut self.trees[usize::from(of.0)];
        tree.weights += u64::from(weight);
        let vtime = tree.vtime;
        let resumed = resume.filter(|_| precedes(left, vtime));
        let base = if resumed.is_some() { left } else { vtime };
        let remembered = state == EntityState::Idle && old == of && precedes(base, left);
        let mut start = if remembered { left } else { base };
        let mut finish = start.wrapping_add(delta(budget, weight));
        if let Some(raising) = resumed
            && precedes(finish, vtime)
        {
            let pushed = vtime.wrapping_sub(finish) / raising;
            (start, finish) = (start.wrapping_add(pushed), finish.wrapping_add(pushed));
        }
        let (state, service) = (EntityState::Active, 0);
        *self.entities.at_mut(at) =
            Entity { start, finish, budget, service, weight, tree: of, state, group };
        self.entities.insert(&mut tree.active, at);
    }

    #[inline]
    fn go_on(&mut self, at: u32, weight: u32, budget: u64) {
        let entity = self.entities.at_mut(at);
        assert_eq!(entity.state, EntityState::InService, "only a served entity is requeued");
        let tree = &mut self.trees[usize::from(entity.tree.0)];
        entity.start = entity.start.wrapping_add(delta(entity.service, entity.weight));
        tree.weights = tree.weights - u64::from(entity.weight) + u64::from(weight);
        (entity.weight, entity.budget, entity.service) = (weight, budget, 0);
        entity.finish = entity.start.wrapping_add(delta(budget, weight));
        entity.state = EntityState::Active;
        self.entities.insert(&mut tree.active, at);
    }

    #[inline]
    fn end(&mut self, at: u32) {
        let Entity { tree, state, .. } = *self.entities.at(at);
        let tree = &mut self.trees[usize::from(tree.0)];
        match state {
            EntityState::Active => self.entities.remove(&mut tree.active, at),
            EntityState::InService => {}
            EntityState::Forgotten | EntityState::Idle => {
                unreachable!("an inactive entity is not deactivated")
            }
        }
        let entity = self.entities.at_mut(at);
        // An entity that leaves during its slot keeps its budget and service, because it may resume
        // with the rest of the budget.
        if state == EntityState::Active {
            entity.budget = 0;
        }
        let served = if state == EntityState::InService { entity.service } else { 0 };
        entity.finish = entity.start.wrapping_add(delta(served, entity.weight));
        if precedes(tree.vtime, entity.finish) {
            entity.state = EntityState::Idle;
            let finish = entity.finish;
            self.entities.insert(&mut tree.idle, at);
            if tree.first_idle.is_none_or(|first| precedes(finish, self.entities.at(first).finish))
            {
                tree.first_idle = Some(at);
            }
        } else {
            entity.state = EntityState::Forgotten;
            tree.weights -= u64::from(entity.weight);
        }
    }

    #[inline]
    fn put_in_service(&mut self, at: u32) -> TreeOf {
        let of = self.entities.at(at).tree;
        self.entities.remove(&mut self.trees[usize::from(of.0)].active, at);
        let entity = self.entities.at_mut(at);
        assert_eq!(entity.state, EntityState::Active, "a served entity was active");
        (entity.state, entity.service) = (EntityState::InService, 0);
        of
    }

    #[inline]
    fn pay(&mut self, at: u32, sectors: u64) -> TreeOf {
        let Entity { tree: of, state, weight, budget, .. } = *self.entities.at(at);
        let tree = &mut self.trees[usize::from(of.0)];
        if state == EntityState::Active {
            self.entities.remove(&mut tree.active, at);
            let entity = self.entities.at_mut(at);
            entity.start = entity.start.wrapping_add(delta(sectors, weight));
            entity.finish = entity.start.wrapping_add(delta(budget, weight));
            self.entities.insert(&mut tree.active, at);
        } else {
            assert_eq!(state, EntityState::InService, "a charged entity has requests");
            self.entities.at_mut(at).service += sectors;
        }
        tree.vtime = tree.vtime.wrapping_add((sectors << SHIFT) / tree.weights);
        self.forget_one(of);
        of
    }

    #[inline]
    fn fit(&mut self, at: u32, budget: u64) -> TreeOf {
        let Entity { tree: of, state, weight, start, .. } = *self.entities.at(at);
        let tree = &mut self.trees[usize::from(of.0)];
        if state == EntityState::Active {
            self.entities.remove(&mut tree.active, at);
        }
        let entity = self.entities.at_mut(at);
        entity.budget = budget;
        if state == EntityState::Active {
            entity.finish = start.wrapping_add(delta(budget, weight));
            self.entities.insert(&mut tree.active, at);
        }
        of
    }

    fn forget_one(&mut self, of: TreeOf) {
        let tree = &self.trees[usize::from(of.0)];
        let Some(first) = tree.first_idle else { return };
        if precedes(tree.vtime, self.entities.at(first).finish) {
            return;
        }
        self.leave_idle(first);
        let entity = self.entities.at_mut(first);
        entity.state = EntityState::Forgotten;
        self.trees[usize::from(of.0)].weights -= u64::from(entity.weight);
    }

    fn leave_idle(&mut self, at: u32) {
        let tree = &mut self.trees[usize::from(self.entities.at(at).tree.0)];
        if tree.first_idle == Some(at) {
            tree.first_idle = self.entities.next(at);
        }
        self.entities.remove(&mut tree.idle, at);
    }
}

/// Next entity of the level to which `trees` belong; `None` if none is active.
#[inline]
fn pick(
    entities: &mut Treaps<Entity>,
    trees: &mut [ServiceTree],
    turns: &mut ClassTurns,
    now: Time,
) -> Option<u32> {
    let idle = !trees[IoPriority::Idle as usize].active.is_empty();
    let (order, _) = turns.order(idle, now);
    let class = order.into_iter().find(|class| !trees[*class].active.is_empty())?;
    let tree = &mut trees[class];
    let lowest = entities.lowest(tree.active).expect("the tree has an active entity");
    if precedes(tree.vtime, lowest) {
        tree.vtime = lowest;
    }
    let next = entities.first_within(tree.active, tree.vtime);
    Some(next.expect("the earliest start has been reached"))
}

impl ClassTurns {
    /// Classes in the order in which to serve them, and whether the idle class is served first.
    /// `idle` tells whether the idle class has requests.
    pub(super) fn order(&mut self, idle: bool, now: Time) -> ([usize; 3], bool) {
        let waited = now.since(self.idle_served) > IDLE_CLASS_PATIENCE;
        if waited {
            self.idle_served = now;
        }
        if waited && idle { ([2, 0, 1], true) } else { ([0, 1, 2], false) }
    }
}

/// Amount of virtual time by which `sectors` of service advance an entity of weight `weight`.
#[inline]
pub(super) fn delta(sectors: u64, weight: u32) -> u64 {
    (sectors << SHIFT) / u64::from(weight)
}

/// Number of classes per level.
const CLASSES: usize = 3;

/// Number of levels: the root, and one per group.
const LEVELS: usize = 1 + Group::MAX as usize;

/// Number of fraction bits in virtual times, which are fixed-point numbers.
const SHIFT: u32 = 22;

/// Time without a turn after which the idle class is served first.
const IDLE_CLASS_PATIENCE: Span = Span::millis(200);
