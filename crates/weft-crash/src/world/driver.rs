//! Driver of a simulated world: order of completions, turns of the engine, timers.
//!
//! Nothing in a [`World`] happens by itself: the driver chooses which request completes next, so
//! that every order can be tried. It keeps the engine's contract for drivers: it gives turns until
//! there is no more work, takes every output, and wakes the engine at the time that it named.

use std::collections::VecDeque;

use weft_engine::{
    Command, ComputeOp, Engine, Input, Origin, Output, SyncAction, Tag, Token, Verb,
};
use weft_units::{ClientId, Span, Time};

use super::{ARRAY, Logged, Pending, World};
use crate::violation::Violation;

/// Order in which outstanding requests complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The oldest request completes first.
    #[default]
    Fifo,
    /// The newest request completes first.
    Lifo,
    /// Any request, chosen by the seed; sometimes several before the engine gets its turn.
    Random,
}

const TURNS_MAX: u32 = 100_000;
const WAKES_MAX: u32 = 20_000;

/// Longest time until all requests are answered once members answer and have space (I13). Requests
/// that found no space wait longest: they are tried again every second. (A stripe waits to be
/// filled for a minute at most, but only if a knob says so, which no script sets.)
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

    /// All outstanding requests, including those of disks that stall.
    pub fn outstanding(&self) -> impl Iterator<Item = (Token, &Pending)> {
        self.pending.iter().map(|(token, pending)| (*token, pending))
    }

    fn can_complete(&self, pending: &Pending) -> bool {
        pending.aborted || pending.disk.is_none_or(|disk| self.disks[disk].can_complete())
    }

    /// Ends one outstanding request or computation. The engine sees its completion at its next
    /// turn.
    ///
    /// # Panics
    /// Panics if the token is not outstanding.
    pub fn complete_only(&mut self, token: Token) {
        let pending = self.pending.remove(&token).expect("the token is outstanding");
        self.now = self.now + self.options.latency;
        self.completed += 1;
        if let Some(result) = self.end_or_store_zeros(token, pending) {
            self.input(Input::Done { token, result });
        }
    }

    /// Ends one request and gives the engine its turns.
    pub fn complete(&mut self, token: Token) {
        self.complete_only(token);
        self.settle();
    }

    /// Ends the request that `order` chooses. False if there is none.
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

    /// Ends all outstanding requests, oldest first, before the engine gets its turn. False if there
    /// are none.
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

    /// Runs until every request and command is answered and nothing is outstanding. If this never
    /// ends it is a violation (I13).
    pub fn run(&mut self, order: Order) {
        self.settle();
        let mut wakes = 0;
        let (begun, completed) = (self.now, self.completed);
        while self.failure.is_none() {
            // The service time of members does not count.
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
            // Requests of disconnected clients are carried out too.
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

    /// Whether no member stalls or lacks space.
    fn members_answer(&self) -> bool {
        self.disks.iter().all(|disk| disk.can_complete() && !disk.faults.no_space)
    }

    /// Lets time pass, with all completions and timers in it.
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

    /// Time at which the engine asks to be woken, if any.
    #[must_use]
    pub fn next_wake(&self) -> Option<Time> {
        self.engine.as_ref().and_then(Engine::next_wake)
    }

    /// Lets time pass in which nothing completes: timers fire, and the requests that they start
    /// stay outstanding.
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

    /// Advances to the time at which the engine asks to be woken. False if there is none.
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

    /// Gives the engine its turns and takes its outputs until there are no more. An engine that
    /// received no input since its last turn gets none, because a turn would hide that it forgot to
    /// ask for one.
    pub fn settle(&mut self) {
        if !std::mem::take(&mut self.plugged) {
            return;
        }
        let mut turns = 0;
        // Whether anything was answered since waiting requests were last sent.
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
                    let pending =
                        self.pending.remove(&token).expect("the request was just submitted");
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
                // Waiting writes may overlap them.
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

    /// Checks that an engine has no work that it did not announce (I13): one more turn of a copy of
    /// it must change nothing. Only a resync may issue further requests when one of its requests
    /// ends.
    fn ask_for_lost_work(&mut self) {
        // A copy is expensive. The state decides whether it is checked, and so the choice differs
        // by seed.
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
                // A stripe that is all in the cache begins with a comparison; only resync compares.
                Output::Compute { ops, .. } => {
                    ops.iter().all(|op| matches!(op, ComputeOp::Compare { .. }))
                }
                _ => false,
            };
            !(syncing && of_sync)
        });
        // A resync may also begin with computing a strip that its member cannot return at present.
        // Such a computation belongs to resync if the turn does nothing once resync requests no
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

    /// Whether one more turn does something although a running resync requests no more stripes.
    fn is_lost_without_sync(&self) -> bool {
        let action = self.snapshot().volumes[0].sync_action;
        let Some(mut twin) = self.engine.clone() else { return false };
        if matches!(action, SyncAction::Idle | SyncAction::Frozen) {
            return true;
        }
        // The command is answered when the stripes of the resync are done.
        let verb = Verb::SyncAction(SyncAction::Frozen);
        let (client, tag, volume) = (ClientId(u32::MAX), Tag(u64::MAX), ARRAY);
        let command = Command { client, tag, volume, verb };
        twin.handle(self.now, Input::Admin(Box::new(command)));
        !self.one_turn_more(twin).1.is_empty()
    }

    /// Outputs of a copy of the engine in one more turn, and whether it has more to do.
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
