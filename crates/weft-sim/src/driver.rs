//! What happens next?
//!
//! Nothing in a [`World`] happens by itself: whoever drives it says which request completes next, so
//! every order can be tried. Here is that choice, and what the engine's contract asks of a driver: turns
//! until there is no more work, every output taken, a wake-up at the time that the engine named.

use weft_engine::{Engine, Input, Output, Token};
use weft_units::Span;

use crate::checker::Violation;
use crate::world::{Logged, Pending, World};

/// Which request completes next.
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

impl World {
    /// What may complete, oldest first.
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
        let result = self.end(token, pending);
        self.input(Input::Done { token, result });
    }

    /// Ends one and gives the engine its turns.
    pub fn complete(&mut self, token: Token) {
        self.complete_only(token);
        self.settle();
    }

    /// Ends the one that `order` chooses. False when there is none.
    pub fn step(&mut self, order: Order) -> bool {
        let pending = self.pending();
        let Some(last) = pending.last() else { return false };
        match order {
            Order::Fifo => self.complete(pending[0]),
            Order::Lifo => self.complete(*last),
            Order::Random => {
                let mut pending = pending;
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

    /// Ends everything that is outstanding, oldest first, before the engine gets its turn. False when
    /// there is nothing.
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
        while self.failure.is_none() {
            if self.step(order) {
                continue;
            }
            if self.unanswered() == 0 {
                break;
            }
            wakes += 1;
            if !self.wake() || wakes > WAKES_MAX {
                let stuck = self.describe_stuck();
                self.fail(Violation::new("I13 liveness", stuck));
            }
        }
        if self.failure.is_none() && self.pending.is_empty() && self.options.checked {
            let snapshot = self.snapshot();
            self.checkers.at_rest(&snapshot);
            self.look_for_failures();
        }
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

    /// Jumps to the time that the engine asked for. False when it asked for none.
    pub fn wake(&mut self) -> bool {
        let Some(at) = self.engine.as_ref().and_then(Engine::next_wake) else { return false };
        self.now = self.now.max(at);
        self.input(Input::Wake);
        self.settle();
        true
    }

    /// Gives the engine its turns and takes its outputs until there are no more.
    pub fn settle(&mut self) {
        let mut turns = 0;
        loop {
            let Some(engine) = &mut self.engine else { return };
            loop {
                let turn = engine.turn(self.now);
                turns += 1;
                if !turn.more || turns > TURNS_MAX {
                    break;
                }
            }
            let mut outputs = Vec::new();
            while let Some(output) = engine.poll() {
                outputs.push(output);
            }
            if turns > TURNS_MAX {
                self.fail(Violation::new("I13 liveness", "turns that never end"));
                return;
            }
            let mut inline = Vec::new();
            let mut answered = false;
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
            if answered && self.pump() {
                continue;
            }
            break;
        }
        if self.options.checked {
            let snapshot = self.snapshot();
            self.checkers.settled(&snapshot);
            if snapshot.tokens_outstanding != self.pending.len() {
                let (engine, driver) = (snapshot.tokens_outstanding, self.pending.len());
                self.fail(Violation::new(
                    "I11 exactly once",
                    format!("the engine counts {engine} tokens outstanding, the driver {driver}"),
                ));
            }
            self.look_for_failures();
        }
    }

    fn look_for_failures(&mut self) {
        for violation in std::mem::take(&mut self.checkers.found) {
            self.fail(violation);
        }
    }
}
