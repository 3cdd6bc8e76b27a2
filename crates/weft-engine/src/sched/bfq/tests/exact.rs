//! B-WF2Q+ by the letter: a list of entities that is searched from end to end, against which the
//! trees are compared, and the bounds that it promises.

use weft_units::Time;
use weft_units::rng::Rng;

use super::super::QueueId;
use super::super::service_tree::ServiceTrees;
use crate::sched::request::IoPriority;

/// One class of the same rules, without any structure.
#[derive(Default)]
struct Exact {
    vtime: u64,
    entities: Vec<Entity>,
    /// Order in which entities came to ask.
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
        let asking = |e: &Entity| e.asked.is_some();
        let first = self.entities.iter().filter(|e| asking(e)).map(|e| e.start).min()?;
        self.vtime = self.vtime.max(first);
        (0..self.entities.len())
            .filter(|i| asking(&self.entities[*i]) && self.entities[*i].start <= self.vtime)
            .min_by_key(|i| (self.entities[*i].finish, self.entities[*i].asked))
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
        // One is forgotten at a time: the first that is due.
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

const CLASS: IoPriority = IoPriority::BestEffort;

/// Random weights, budgets, arrivals, departures, injections: after each step both name the same
/// queue. A planted fault (`skew` added to one budget in a hundred) is to be noticed.
fn compared(seed: u64, skew: u64) -> Result<u64, String> {
    let mut rng = Rng::new(seed);
    let count = 2 + rng.below(30) as usize;
    let (mut trees, mut exact) = (ServiceTrees::new(), Exact::default());
    exact.vtime = 1;
    for _ in 0..count {
        trees.add();
        exact.entities.push(Entity::default());
    }
    let mut current: Option<usize> = None;
    let mut slots = 0;
    for step in 0..2000 {
        let queue = rng.below(count as u64) as usize;
        let id = QueueId(queue as u32);
        let (weight, budget) = (1 + rng.below(1000), 8 + rng.below(16_384));
        let other = budget + if step % 100 == 99 { skew } else { 0 };
        match (exact.entities[queue].asked.is_some(), current == Some(queue), rng.below(4)) {
            (false, false, _) => {
                let resume = (rng.below(2) == 0).then_some(1 + rng.below(30));
                trees.activate(id, CLASS, weight as u32, other, resume);
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
fn trees_choose_as_the_exact_rules_do() {
    let mut slots = 0;
    for seed in 0..300 {
        slots += compared(seed, 0).unwrap_or_else(|difference| panic!("{seed}: {difference}"));
    }
    assert!(slots > 50_000, "{slots} slots");
    // The twin.
    let found = (0..100).filter(|seed| compared(*seed, 4000).is_err()).count();
    assert!(found > 10, "{found} of 100 runs notice that a budget is another one");
}

/// What backlogged queues are served, against their shares, at each dispatch of 8 sectors; and
/// whether `V` ever went back or left everybody's start ahead.
#[test]
fn statements_b8_and_b11_nobody_is_farther_from_its_share_than_the_bound() {
    let (mut worst, mut checked) = (0.0_f64, 0);
    for seed in 0..100 {
        let mut rng = Rng::new(seed);
        let count = 2 + rng.below(if seed % 10 == 0 { 63 } else { 11 }) as usize;
        let weights: Vec<u64> = (0..count).map(|_| 1 + rng.below(1000)).collect();
        let budgets: Vec<u64> = (0..count).map(|_| 8 * (1 + rng.below(2048))).collect();
        let mut trees = ServiceTrees::new();
        for queue in 0..count {
            let id = trees.add();
            trees.activate(id, CLASS, weights[queue] as u32, budgets[queue], None);
        }
        let sum: u64 = weights.iter().sum();
        let largest = *budgets.iter().max().unwrap() as f64;
        let (mut served, mut total) = (vec![0u64; count], 0u64);
        while total < 2_000_000 {
            let id = trees.next(Time(0)).expect("all ask");
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
