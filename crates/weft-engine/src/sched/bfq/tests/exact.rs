//! Exact B-WF2Q+: a list of entities that is searched linearly, compared with the service trees,
//! and the bounds that the algorithm guarantees.

use weft_units::rng::Rng;
use weft_units::{Group, Time};

use super::super::QueueId;
use super::super::service_tree::{ServiceTrees, TreeOf};
use crate::sched::request::IoPriority;

/// One class under the same rules as a service tree, but as a plain list of entities.
#[derive(Default)]
struct Exact {
    vtime: u64,
    entities: Vec<Entity>,
    /// Counter that gives the order of activation.
    asked: u64,
}

#[derive(Clone, Default)]
struct Entity {
    start: u64,
    finish: u64,
    budget: u64,
    service: u64,
    weight: u64,
    asked: Option<u64>,
    in_service: bool,
    remembered: bool,
}

impl Exact {
    fn weights(&self) -> u64 {
        let counts = |e: &&Entity| e.asked.is_some() || e.in_service || e.remembered;
        self.entities.iter().filter(counts).map(|e| e.weight).sum()
    }

    fn ask(&mut self, queue: usize) {
        self.asked += 1;
        self.entities[queue].asked = Some(self.asked);
    }

    fn activate(&mut self, queue: usize, weight: u64, budget: u64, resume: Option<u64>) {
        let vtime = self.vtime;
        let entity = &mut self.entities[queue];
        let back = resume.filter(|_| entity.finish < vtime);
        let base = if back.is_some() { entity.finish } else { vtime };
        entity.start = if entity.remembered { base.max(entity.finish) } else { base };
        (entity.weight, entity.budget, entity.service) = (weight, budget, 0);
        entity.finish = entity.start + (budget << 22) / weight;
        if let Some(raising) = back
            && entity.finish < vtime
        {
            let push = (vtime - entity.finish) / raising;
            entity.start += push;
            entity.finish += push;
        }
        entity.remembered = false;
        self.ask(queue);
    }

    fn next(&mut self) -> Option<usize> {
        let first = self.first_start()?;
        self.vtime = self.vtime.max(first);
        self.peek().map(|(at, _)| at)
    }

    fn first_start(&self) -> Option<u64> {
        self.entities.iter().filter(|e| e.asked.is_some()).map(|e| e.start).min()
    }

    /// The entity to be served next, and its budget.
    fn peek(&self) -> Option<(usize, u64)> {
        let vtime = self.vtime.max(self.first_start()?);
        (0..self.entities.len())
            .filter(|i| self.entities[*i].asked.is_some() && self.entities[*i].start <= vtime)
            .min_by_key(|i| (self.entities[*i].finish, self.entities[*i].asked))
            .map(|at| (at, self.entities[at].budget))
    }

    fn serve(&mut self, queue: usize) {
        let entity = &mut self.entities[queue];
        (entity.asked, entity.in_service, entity.service) = (None, true, 0);
    }

    fn charge(&mut self, queue: usize, sectors: u64) {
        let weights = self.weights();
        let entity = &mut self.entities[queue];
        if entity.in_service {
            entity.service += sectors;
        } else {
            entity.start += (sectors << 22) / entity.weight;
            entity.finish = entity.start + (entity.budget << 22) / entity.weight;
            self.ask(queue);
        }
        self.vtime += (sectors << 22) / weights;
        // One entity is forgotten at a time, the one with the earliest finish.
        let due = |e: &&mut Entity| e.remembered && e.finish <= self.vtime;
        if let Some(first) = self.entities.iter_mut().filter(due).min_by_key(|e| e.finish) {
            first.remembered = false;
        }
    }

    fn requeue(&mut self, queue: usize, weight: u64, budget: u64) {
        let entity = &mut self.entities[queue];
        entity.start += (entity.service << 22) / entity.weight;
        (entity.weight, entity.budget, entity.service) = (weight, budget, 0);
        entity.finish = entity.start + (budget << 22) / weight;
        entity.in_service = false;
        self.ask(queue);
    }

    fn deactivate(&mut self, queue: usize) {
        let entity = &mut self.entities[queue];
        let served = if entity.in_service { entity.service } else { 0 };
        entity.finish = entity.start + (served << 22) / entity.weight;
        entity.remembered = entity.finish > self.vtime;
        (entity.in_service, entity.asked) = (false, None);
    }

    fn set_budget(&mut self, queue: usize, budget: u64) {
        let entity = &mut self.entities[queue];
        entity.budget = budget;
        if entity.asked.is_some() {
            entity.finish = entity.start + (budget << 22) / entity.weight;
            self.ask(queue);
        }
    }
}

/// The exact rules at two levels. The groups, and the queues that are in no group, are the entities
/// of the upper level (`root`). The queues of each group are the entities of a lower level, one for
/// each group.
#[derive(Default)]
struct TwoLevels {
    root: Exact,
    groups: Vec<Exact>,
    /// For each group, its entity in the root and its weight.
    entities: Vec<(usize, u64)>,
    /// For each queue, its group (0 for the root) and its index in that level.
    queues: Vec<(usize, usize)>,
}

impl TwoLevels {
    fn at(&self, queue: usize) -> &Entity {
        match self.queues[queue] {
            (0, at) => &self.root.entities[at],
            (group, at) => &self.groups[group - 1].entities[at],
        }
    }

    fn level(&mut self, queue: usize) -> (&mut Exact, usize, usize) {
        let (group, at) = self.queues[queue];
        (if group == 0 { &mut self.root } else { &mut self.groups[group - 1] }, at, group)
    }

    /// Sets the budget of a group that waits for service to that of its next queue.
    fn follow(&mut self, group: usize) {
        let Some(inner) = group.checked_sub(1) else { return };
        let ((entity, _), next) = (self.entities[inner], self.groups[inner].peek());
        let of = &self.root.entities[entity];
        if let Some((_, budget)) = next.filter(|(_, to)| of.asked.is_some() && of.budget != *to) {
            self.root.set_budget(entity, budget);
        }
    }

    fn activate(&mut self, queue: usize, weight: u64, budget: u64, resume: Option<u64>) {
        let (level, at, group) = self.level(queue);
        level.activate(at, weight, budget, resume);
        if group > 0 {
            let (entity, of) = self.entities[group - 1];
            let outer = &self.root.entities[entity];
            if outer.asked.is_none() && !outer.in_service {
                self.root.activate(entity, of, budget, resume);
            }
            self.follow(group);
        }
    }

    fn next(&mut self) -> Option<usize> {
        let first = self.root.next()?;
        let group = self.entities.iter().position(|(entity, _)| *entity == first);
        let found = match group {
            None => (0, first),
            Some(inner) => (inner + 1, self.groups[inner].next().expect("a queue of it is active")),
        };
        self.queues.iter().position(|queue| *queue == found)
    }

    fn serve(&mut self, queue: usize) {
        let (level, at, group) = self.level(queue);
        level.serve(at);
        if group > 0 {
            self.root.serve(self.entities[group - 1].0);
        }
    }

    fn charge(&mut self, queue: usize, sectors: u64) {
        let (level, at, group) = self.level(queue);
        level.charge(at, sectors);
        if group > 0 {
            self.root.charge(self.entities[group - 1].0, sectors);
            self.follow(group);
        }
    }

    fn requeue(&mut self, queue: usize, weight: u64, budget: u64) {
        let (level, at, group) = self.level(queue);
        level.requeue(at, weight, budget);
        self.outer_goes_on(group);
    }

    fn outer_goes_on(&mut self, group: usize) {
        if group > 0 {
            let (entity, of) = self.entities[group - 1];
            let (_, budget) = self.groups[group - 1].peek().expect("a queue is active");
            self.root.requeue(entity, of, budget);
        }
    }

    fn deactivate(&mut self, queue: usize) {
        let was_served = self.at(queue).in_service;
        let (level, at, group) = self.level(queue);
        level.deactivate(at);
        let asks = level.peek().is_some() || level.entities.iter().any(|e| e.in_service);
        match (group, asks) {
            (0, _) => {}
            (_, true) if was_served => self.outer_goes_on(group),
            (_, true) => self.follow(group),
            (_, false) => self.root.deactivate(self.entities[group - 1].0),
        }
    }

    fn set_budget(&mut self, queue: usize, budget: u64) {
        let (level, at, group) = self.level(queue);
        level.set_budget(at, budget);
        self.follow(group);
    }
}

const CLASS: IoPriority = IoPriority::BestEffort;

/// Creates trees and lists with `count` queues in `groups` groups of random weights.
fn both(count: usize, groups: usize, rng: &mut Rng) -> (ServiceTrees, TwoLevels, Vec<TreeOf>) {
    let (mut trees, mut exact) = (ServiceTrees::new(), TwoLevels::default());
    let mut of = Vec::new();
    for _ in 0..count {
        trees.add();
        let group = if groups == 0 { 0 } else { rng.below(groups as u64 + 1) as usize };
        let number = Group::new(group as u8).unwrap_or(Group::ROOT);
        of.push(TreeOf::new(number, CLASS));
        exact.groups.resize_with(groups, Exact::default);
        exact.queues.push((group, 0));
        let (level, ..) = exact.level(exact.queues.len() - 1);
        level.entities.push(Entity::default());
        let at = level.entities.len() - 1;
        exact.queues.last_mut().unwrap().1 = at;
    }
    for group in 1..=groups {
        let (entity, weight) = (trees.add(), 1 + rng.below(1000));
        trees.found(Group::new(group as u8).unwrap(), entity, weight as u32);
        exact.entities.push((exact.root.entities.len(), weight));
        exact.root.entities.push(Entity::default());
    }
    exact.root.vtime = 1;
    exact.groups.iter_mut().for_each(|group| group.vtime = 1);
    (trees, exact, of)
}

/// Compares trees and lists over random weights, budgets, arrivals, departures and injections:
/// after each step both must select the same queue. `skew` is a planted bug, added to one budget in
/// a hundred; it must be detected.
fn compared(seed: u64, skew: u64, groups: usize) -> Result<u64, String> {
    let mut rng = Rng::new(seed);
    let count = 2 + rng.below(30) as usize;
    let (mut trees, mut exact, of) = both(count, groups, &mut rng);
    let mut current: Option<usize> = None;
    let mut slots = 0;
    for step in 0..2000 {
        let queue = rng.below(count as u64) as usize;
        let id = QueueId(queue as u32);
        let (weight, budget) = (1 + rng.below(1000), 8 + rng.below(16_384));
        let other = budget + if step % 100 == 99 { skew } else { 0 };
        match (exact.at(queue).asked.is_some(), current == Some(queue), rng.below(4)) {
            (false, false, _) => {
                let resume = (rng.below(2) == 0).then_some(1 + rng.below(30));
                trees.activate(id, of[queue], weight as u32, other, resume);
                exact.activate(queue, weight, budget, resume);
            }
            (true, _, 0) => {
                trees.deactivate(id);
                exact.deactivate(queue);
            }
            (true, _, 1) => {
                trees.set_budget(id, other);
                exact.set_budget(queue, budget);
            }
            (true, _, 2) => {
                trees.charge(id, 8);
                exact.charge(queue, 8);
            }
            _ => {}
        }
        if let Some(queue) = current {
            let id = QueueId(queue as u32);
            let sectors = 8 * (1 + rng.below(64));
            trees.charge(id, sectors);
            exact.charge(queue, sectors);
            match rng.below(6) {
                0 => {
                    trees.requeue(id, weight as u32, other);
                    exact.requeue(queue, weight, budget);
                    current = None;
                }
                1 => {
                    trees.deactivate(id);
                    exact.deactivate(queue);
                    current = None;
                }
                _ => {}
            }
        }
        if current.is_none() {
            let (ours, theirs) = (trees.next(Time(0)), exact.next());
            if ours.map(|id| id.0 as usize) != theirs {
                return Err(format!("step {step}: {ours:?}, expected {theirs:?}"));
            }
            if let Some(queue) = theirs {
                trees.serve(QueueId(queue as u32));
                exact.serve(queue);
                current = Some(queue);
                slots += 1;
            }
        }
    }
    Ok(slots)
}

#[test]
fn trees_choose_as_the_exact_rules_do_at_one_level_and_at_two() {
    let mut slots = 0;
    for groups in [0, 1, 3, 15] {
        for seed in 0..300 {
            slots += compared(seed, 0, groups)
                .unwrap_or_else(|difference| panic!("{groups}, {seed}: {difference}"));
        }
        // Control: planted bugs are detected.
        let found = (0..100).filter(|seed| compared(*seed, 4000, groups).is_err()).count();
        assert!(found > 10, "{groups}: {found} of 100 notice that a budget is another one");
    }
    assert!(slots > 200_000, "{slots} slots");
}

/// Compares the service of backlogged queues with their shares at each dispatch of 8 sectors,
/// within the bound of B8 (I14).
#[test]
fn statements_b8_and_b11_no_queue_is_farther_from_its_share_than_the_bound() {
    let (mut worst, mut checked) = (0.0_f64, 0);
    for seed in 0..100 {
        let mut rng = Rng::new(seed);
        let count = 2 + rng.below(if seed % 10 == 0 { 63 } else { 11 }) as usize;
        let weights: Vec<u64> = (0..count).map(|_| 1 + rng.below(1000)).collect();
        let budgets: Vec<u64> = (0..count).map(|_| 8 * (1 + rng.below(2048))).collect();
        let mut trees = ServiceTrees::new();
        for queue in 0..count {
            let id = trees.add();
            trees.activate(
                id,
                TreeOf::new(Group::ROOT, CLASS),
                weights[queue] as u32,
                budgets[queue],
                None,
            );
        }
        let sum: u64 = weights.iter().sum();
        let largest = *budgets.iter().max().unwrap() as f64;
        let (mut served, mut total) = (vec![0u64; count], 0u64);
        while total < 2_000_000 {
            let id = trees.next(Time(0)).expect("all queues are active");
            let queue = id.0 as usize;
            trees.serve(id);
            while trees.budget_left(id) >= 8 {
                trees.charge(id, 8);
                served[queue] += 8;
                total += 8;
                let share = weights[queue] as f64 / sum as f64;
                let lag = (share * total as f64 - served[queue] as f64).abs();
                let bound = budgets[queue] as f64 + share * largest;
                assert!(lag <= bound + 16.0, "seed {seed}: {lag} sectors, at most {bound}");
                worst = worst.max(lag / bound);
                checked += 1;
            }
            for queue in 0..count {
                let share = weights[queue] as f64 / sum as f64;
                let lag = (share * total as f64 - served[queue] as f64).abs();
                assert!(lag <= budgets[queue] as f64 + share * largest + 16.0, "seed {seed}");
            }
            trees.requeue(id, weights[queue] as u32, budgets[queue]);
        }
    }
    assert!(checked > 10_000_000 && worst > 0.5, "{checked} dispatches, {worst} of the bound");
}

/// B8 with queues in groups: the bound holds for each group, and for each queue within the service
/// of its group.
#[test]
fn statement_b8_holds_at_both_levels() {
    let (mut worst, mut checked) = ([0.0_f64; 2], 0);
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let count = 2 + rng.below(20) as usize;
        let groups = 1 + rng.below(4) as usize;
        let (mut trees, exact, of) = both(count, groups, &mut rng);
        let weights: Vec<u64> = (0..count).map(|_| 1 + rng.below(1000)).collect();
        let budgets: Vec<u64> = (0..count).map(|_| 8 * (1 + rng.below(2048))).collect();
        for queue in 0..count {
            let (weight, budget) = (weights[queue] as u32, budgets[queue]);
            trees.activate(QueueId(queue as u32), of[queue], weight, budget, None);
        }
        let largest = *budgets.iter().max().unwrap() as f64;
        // An entity of the root is a group (0) or a queue (1), with its index.
        let root = |queue: usize| match exact.queues[queue].0 {
            0 => (1, queue),
            group => (0, group - 1),
        };
        let present = |group: usize| (0..count).any(|queue| exact.queues[queue].0 == group);
        let sum_of = |group: usize| -> u64 {
            (0..count).filter(|at| exact.queues[*at].0 == group).map(|at| weights[at]).sum()
        };
        let sum_root = sum_of(0)
            + (1..=groups)
                .filter(|it| present(*it))
                .map(|it| exact.entities[it - 1].1)
                .sum::<u64>();
        let mut served = [vec![0u64; groups], vec![0u64; count]];
        let mut total = 0;
        while total < 1_000_000 {
            let id = trees.next(Time(0)).expect("all queues are active");
            let queue = id.0 as usize;
            trees.serve(id);
            while trees.budget_left(id) >= 8 {
                trees.charge(id, 8);
                total += 8;
                let (kind, at) = root(queue);
                served[kind][at] += 8;
                if kind == 0 {
                    served[1][queue] += 8;
                }
                let weight = if kind == 0 { exact.entities[at].1 } else { weights[queue] };
                let budget = if kind == 0 { largest } else { budgets[queue] as f64 };
                let share = weight as f64 / sum_root as f64;
                let lag = (share * total as f64 - served[kind][at] as f64).abs();
                let bound = budget + share * largest + 16.0;
                assert!(lag <= bound, "seed {seed}: {lag} sectors in the root, at most {bound}");
                worst[0] = worst[0].max(lag / bound);
                if kind == 0 {
                    let share = weights[queue] as f64 / sum_of(at + 1) as f64;
                    let lag = (share * served[0][at] as f64 - served[1][queue] as f64).abs();
                    let bound = budgets[queue] as f64 + share * largest + 16.0;
                    assert!(lag <= bound, "seed {seed}: {lag} in its group, at most {bound}");
                    worst[1] = worst[1].max(lag / bound);
                }
                checked += 1;
            }
            trees.requeue(id, weights[queue] as u32, budgets[queue]);
        }
    }
    assert!(checked > 5_000_000 && worst.iter().all(|it| *it > 0.5), "{checked}, {worst:?}");
}

/// Two queues of equal weight. The first is served its whole budget and leaves with its finish
/// ahead of `V`. It returns with a small budget, at once or after `V` has passed that finish.
#[test]
fn statement_b10_a_queue_that_comes_back_early_begins_where_it_left() {
    let tree = TreeOf::new(Group::ROOT, CLASS);
    for (served_meanwhile, next) in [(0, 1), (2000, 0)] {
        let mut trees = ServiceTrees::new();
        let [one, two] = [trees.add(), trees.add()];
        trees.activate(one, tree, 40, 1000, None);
        trees.activate(two, tree, 40, 4000, None);
        assert_eq!(trees.next(Time(0)), Some(one));
        trees.serve(one);
        trees.charge(one, 1000);
        trees.deactivate(one);
        assert!(!trees.is_forgotten(one), "its finish lies ahead");
        if served_meanwhile > 0 {
            trees.serve(two);
            trees.charge(two, served_meanwhile);
            assert!(trees.is_forgotten(one), "V has passed it");
            trees.requeue(two, 40, 4000);
        }
        // If it started from `V`, it would finish first.
        trees.activate(one, tree, 40, 8, None);
        assert_eq!(trees.next(Time(0)), Some([one, two][next]), "{served_meanwhile}");
    }
}
