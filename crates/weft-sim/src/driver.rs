//! Driver of a simulated world: order of completions, turns of the engine, timers.
//!
//! Nothing in a [`World`] happens by itself: the driver chooses which request completes next, so
//! every order can be tried. It does what the engine's contract asks of a driver: turns until there
//! is no more work, every output taken, a wake-up at the time that the engine named.

use std::collections::VecDeque;

use weft_engine::{
    Command, ComputeOp, Engine, Input, Origin, Output, SyncAction, Tag, Token, Verb,
};
use weft_units::{ClientId, Span, Time};

use crate::checker::Violation;
use crate::world::{ARRAY, Logged, Pending, World};

/// Order in which outstanding requests complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The oldest.
    #[default]
    Fifo,
    /// The newest.
    Lifo,
    /// Any, as the seed says; sometimes several before the engine gets its turn.
    Random,
}

const TURNS_MAX: u32 = 100_000;
const WAKES_MAX: u32 = 20_000;

/// How long it takes at most until everything is answered, once members answer and have space
/// (I13). What waits longest is what found no space: it is tried again every second. (A stripe
/// waits to be filled for a minute at most, if a knob says so; nobody sets that.)
pub const ANSWERED_WITHIN: Span = Span::secs(10);

impl World {
    /// Outstanding requests that may complete, oldest first.
    #[must_use]
    pub fn pending(&self) -> Vec<Token> {
        self.pending
            .iter()
            .filter(|(_, pending)| self.can_complete(pending))
            .map(|(token, _)| *token)
            .collect()
    }

    /// Everything outstanding, what stalls included.
    pub fn outstanding(&self) -> impl Iterator<Item = (Token, &Pending)> {
        self.pending.iter().map(|(token, pending)| (*token, pending))
    }

    fn can_complete(&self, pending: &Pending) -> bool {
        pending.aborted || pending.disk.is_none_or(|disk| self.disks[disk].can_complete())
    }

    /// Ends one outstanding request or computation and lets the engine see it at its next turn.
    ///
    /// # Panics
    /// The token is not outstanding.
    pub fn complete_only(&mut self, token: Token) {
        let pending = self.pending.remove(&token).expect("only what is outstanding completes");
        self.now = self.now + self.options.latency;
        self.completed += 1;
        if let Some(result) = self.end_or_store_zeros(token, pending) {
            self.input(Input::Done { token, result });
        }
    }

    /// Ends one and gives the engine its turns.
    pub fn complete(&mut self, token: Token) {
        self.complete_only(token);
        self.settle();
    }

    /// Ends the one that `order` chooses. False when there is none.
    pub fn step(&mut self, order: Order) -> bool {
        let may =
            |(token, pending): (&Token, &Pending)| self.can_complete(pending).then_some(*token);
        let first = match order {
            Order::Fifo => self.pending.iter().find_map(may),
            Order::Lifo => self.pending.iter().rev().find_map(may),
            Order::Random => self.pending.keys().next().copied(),
        };
        let Some(token) = first else { return false };
        match order {
            Order::Fifo | Order::Lifo => self.complete(token),
            Order::Random => {
                let mut pending = self.pending();
                if pending.is_empty() {
                    return false;
                }
                let count =
                    if self.rng.percent(25) { 1 + self.rng.index(pending.len()) } else { 1 };
                for _ in 0..count {
                    let token = pending.swap_remove(self.rng.index(pending.len()));
                    self.complete_only(token);
                }
                self.settle();
            }
        }
        true
    }

    /// Ends everything that is outstanding, oldest first, before the engine gets its turn. False
    /// when there is nothing.
    pub fn round(&mut self) -> bool {
        let pending = self.pending();
        for token in &pending {
            self.complete_only(*token);
        }
        if self.options.logged && !pending.is_empty() {
            self.log.push(Logged::Round);
        }
        self.settle();
        !pending.is_empty()
    }

    /// Goes on until every request and command is answered and nothing is outstanding. What never
    /// ends is a failure of its own (I13).
    pub fn run(&mut self, order: Order) {
        self.settle();
        let mut wakes = 0;
        let (begun, completed) = (self.now, self.completed);
        while self.failure.is_none() {
            // What members take for as much as there is does not count.
            let served = self.options.latency.0 * (self.completed - completed);
            let took = Span(self.now.since(begun).0.saturating_sub(served));
            if took > ANSWERED_WITHIN && self.members_answer() {
                let message = format!(
                    "not all is answered {took:?} after members began to answer: {}",
                    self.describe_stuck()
                );
                self.fail(Violation::new("I13 liveness", message));
                break;
            }
            if self.step(order) {
                continue;
            }
            // What a client asked for that is gone is done all the same.
            let at_rest = self.unanswered() == 0 && !self.serves_somebody();
            if at_rest {
                if self.members_answer() {
                    self.coverage.longest_finish = self.coverage.longest_finish.max(took);
                }
                break;
            }
            wakes += 1;
            if !self.wake() || wakes > WAKES_MAX {
                let stuck = self.describe_stuck();
                self.fail(Violation::new("I13 liveness", stuck));
                break;
            }
        }
        if self.failure.is_none() && self.pending.is_empty() && self.options.checked {
            let snapshot = self.snapshot();
            self.checkers.at_rest(&snapshot);
            self.look_for_failures();
        }
    }

    /// Whether no member stalls, or has no space.
    fn members_answer(&self) -> bool {
        self.disks.iter().all(|disk| disk.can_complete() && !disk.faults.no_space)
    }

    /// Lets time pass, with everything that falls into it.
    pub fn idle(&mut self, span: Span) {
        let until = self.now + span;
        self.settle();
        while self.failure.is_none() {
            if self.step(Order::Fifo) {
                continue;
            }
            match self.engine.as_ref().and_then(Engine::next_wake) {
                Some(at) if at <= until => {
                    if !self.wake() {
                        break;
                    }
                }
                _ => break,
            }
        }
        self.now = self.now.max(until);
    }

    /// When the engine wants to be woken, if at all.
    #[must_use]
    pub fn next_wake(&self) -> Option<Time> {
        self.engine.as_ref().and_then(Engine::next_wake)
    }

    /// Lets time pass in which nothing completes: timers fire, and what they begin stays
    /// outstanding.
    pub fn pass_time(&mut self, span: Span) {
        let until = self.now + span;
        self.settle();
        let mut wakes = 0;
        while self.failure.is_none()
            && wakes < WAKES_MAX
            && self.engine.as_ref().and_then(Engine::next_wake).is_some_and(|at| at <= until)
        {
            self.wake();
            wakes += 1;
        }
        self.now = self.now.max(until);
    }

    /// Jumps to the time that the engine asked for. False when it asked for none.
    pub fn wake(&mut self) -> bool {
        let Some(at) = self.engine.as_ref().and_then(Engine::next_wake) else { return false };
        self.now = self.now.max(at);
        self.input(Input::Wake);
        self.settle();
        let again = self.engine.as_ref().and_then(Engine::next_wake);
        if again.is_some_and(|again| again <= self.now) && self.failure.is_none() {
            let now = self.now.0;
            let message =
                format!("woken at {now} it asks to be woken at {again:?}: it never sleeps");
            self.fail(Violation::new("I13 liveness", message));
        }
        true
    }

    /// Gives the engine its turns and takes its outputs until there are no more. An engine that was
    /// told nothing since its last turn gets none: one that forgets to ask for it would be helped
    /// along.
    pub fn settle(&mut self) {
        if !std::mem::take(&mut self.plugged) {
            return;
        }
        let mut turns = 0;
        // Since requests that wait were last sent.
        let mut answered = false;
        loop {
            let Some(engine) = &mut self.engine else { return };
            let mut outputs = VecDeque::new();
            turns += engine.run(self.now, TURNS_MAX - turns, &mut outputs).work.turns;
            if turns == TURNS_MAX {
                self.fail(Violation::new("I13 liveness", "turns that never end"));
                return;
            }
            let mut inline = Vec::new();
            for output in outputs {
                answered |= matches!(output, Output::Reply { .. } | Output::Release(_));
                if let Some(token) = self.output(output) {
                    inline.push(token);
                }
            }
            self.look_for_failures();
            if self.failure.is_some() {
                return;
            }
            if !inline.is_empty() {
                for token in inline {
                    let pending = self.pending.remove(&token).expect("it was just submitted");
                    let result = self.end(token, pending);
                    self.input(Input::Done { token, result });
                }
                continue;
            }
            if std::mem::take(&mut answered) && self.pump() {
                continue;
            }
            break;
        }
        self.plugged = false;
        if self.options.checked {
            self.ask_for_lost_work();
            let snapshot = self.snapshot();
            let mut waited = false;
            self.checkers.settled(&snapshot);
            if snapshot.volumes.iter().all(|volume| volume.requests_active == 0) {
                let orphans = std::mem::take(&mut self.orphans);
                // Others may wait for them.
                waited = !orphans.is_empty();
            }
            if snapshot.tokens_outstanding != self.pending.len() {
                let (engine, driver) = (snapshot.tokens_outstanding, self.pending.len());
                self.fail(Violation::new(
                    "I11 exactly once",
                    format!("the engine counts {engine} tokens outstanding, the driver {driver}"),
                ));
            }
            self.look_for_failures();
            if waited && self.pump() {
                self.settle();
            }
        }
    }

    fn serves_somebody(&self) -> bool {
        self.engine.as_ref().is_some_and(|engine| {
            engine.snapshot().volumes.iter().any(|volume| volume.requests_active > 0)
        })
    }

    /// An engine that said that it has no more to do, nor asked to be woken by now, has none (I13):
    /// one turn more, of a copy, changes nothing. Resync may leave it to the end of one of its
    /// requests to ask for more of them.
    fn ask_for_lost_work(&mut self) {
        // A copy is dear. Which states are looked at depends on what happened, and so differs by
        // seed.
        if !self.digest.0.is_multiple_of(self.options.lost_work_every) {
            return;
        }
        let Some(twin) = self.engine.clone() else { return };
        if twin.next_wake().is_some_and(|at| at <= self.now) {
            return;
        }
        let syncing = |pending: &Pending| pending.origin.is_none_or(|of| of == Origin::Sync);
        let syncing = self.pending.values().any(syncing);
        let (more, outputs) = self.one_turn_more(twin);
        let mut lost = outputs.into_iter().find(|output| {
            let of_sync = match output {
                Output::Submit { attr, .. } => attr.origin == Origin::Sync,
                // What a stripe begins with that is all in the cache; only resync compares.
                Output::Compute { ops, .. } => {
                    ops.iter().all(|op| matches!(op, ComputeOp::Compare { .. }))
                }
                _ => false,
            };
            !(syncing && of_sync)
        });
        // Or with a strip that its member does not give at present, and that is computed before
        // anything is compared. Nobody but resync did that if nothing is done when it asks for no
        // more stripes.
        if syncing && matches!(lost, Some(Output::Compute { .. })) {
            lost = lost.filter(|_| self.is_lost_without_sync());
        }
        if lost.is_some() || (more && !syncing) {
            let message =
                format!("a wake-up is lost: one turn more, that nobody asked for, does {lost:?}");
            self.fail(Violation::new("I13 liveness", message));
        }
    }

    /// Whether one turn more does something though resync, which runs, asks for no more stripes.
    fn is_lost_without_sync(&self) -> bool {
        let action = self.snapshot().volumes[0].sync_action;
        let Some(mut twin) = self.engine.clone() else { return false };
        if matches!(action, SyncAction::Idle | SyncAction::Frozen) {
            return true;
        }
        // It is answered when the stripes are done that were asked for.
        let verb = Verb::SyncAction(SyncAction::Frozen);
        let (client, tag, volume) = (ClientId(u32::MAX), Tag(u64::MAX), ARRAY);
        let command = Command { client, tag, volume, verb };
        twin.handle(self.now, Input::Admin(Box::new(command)));
        !self.one_turn_more(twin).1.is_empty()
    }

    /// What a copy of the engine does in one more turn, and whether it wants another.
    fn one_turn_more(&self, mut twin: Engine) -> (bool, VecDeque<Output>) {
        let mut outputs = VecDeque::new();
        (twin.run(self.now, 1, &mut outputs).more, outputs)
    }

    fn look_for_failures(&mut self) {
        for violation in std::mem::take(&mut self.checkers.found) {
            self.fail(violation);
        }
    }
}
