//! Driver of a simulated world: order of completions, runs of the engine, timers.
//!
//! Nothing in a [`World`] happens by itself: the driver chooses which request completes next, so
//! that every order can be tried. The driver keeps the engine's contract for drivers: it runs the
//! engine until the engine has no more work, takes every output, and wakes the engine at the time
//! that the engine named. A *turn* is a bounded unit of the engine's work.
//!
//! On disks with drives ([`super::service`]) the driver chooses only among the requests that are
//! done. If there are none, the clock moves to the next event of a drive or to the next timer of
//! the engine. The engine therefore sees many inputs with the same time, followed by a jump of the
//! clock (F25).

use std::collections::VecDeque;

use weft_engine::{
    Command, ComputeOp, Engine, Input, Origin, Output, SyncAction, Tag, Token, Verb,
};
use weft_units::{ClientId, Span, Time, VolumeId};

use super::service::Waited;
use super::{Logged, Pending, World};
use crate::violation::Violation;

/// Order in which outstanding member requests and computations complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The oldest request completes first.
    #[default]
    Fifo,
    /// The newest request completes first.
    Lifo,
    /// The world's random numbers choose the request that completes next; sometimes several
    /// complete before the engine runs.
    Random,
}

const TURNS_MAX: u32 = 100_000;
const WAKES_MAX: u32 = 20_000;

/// Longest time from the moment at which all members answer and have space until all requests are
/// answered (I13). Requests that found no space take longest, because they are tried again only
/// every second. (A knob can make a stripe wait a minute to be filled, but no script sets it so.)
pub const ANSWERED_WITHIN: Span = Span::secs(10);

impl World {
    /// Tokens of outstanding member requests and computations that may complete now, oldest first.
    #[must_use]
    pub fn pending(&self) -> Vec<Token> {
        self.pending
            .iter()
            .filter(|(_, pending)| self.can_complete(pending))
            .map(|(token, _)| *token)
            .collect()
    }

    /// All outstanding member requests and computations, including requests to disks that stall.
    pub fn outstanding(&self) -> impl Iterator<Item = (Token, &Pending)> {
        self.pending.iter().map(|(token, pending)| (*token, pending))
    }

    pub(super) fn can_complete(&self, pending: &Pending) -> bool {
        pending.aborted || pending.is_served && self.can_answer(pending)
    }

    /// Completes one member request or computation without running the engine, which sees the
    /// completion when it runs next.
    ///
    /// # Panics
    /// Panics if the token is not outstanding.
    pub fn complete_only(&mut self, token: Token) {
        let pending = self.pending.remove(&token).expect("the token is outstanding");
        let of_disk = pending.disk.is_some();
        if !self.service.is_timed() {
            self.now = self.now + self.options.latency;
        }
        self.completed += 1;
        if let Some(result) = self.end_or_store_zeros(token, pending) {
            self.input(Input::Done { token, result });
            if of_disk {
                self.tell_queue(token);
            }
        }
    }

    /// Completes one member request or computation and runs the engine.
    pub fn complete(&mut self, token: Token) {
        self.complete_only(token);
        self.settle();
    }

    /// Completes the request that `order` chooses and runs the engine. Returns whether there was
    /// such a request.
    pub fn step(&mut self, order: Order) -> bool {
        self.step_until(order, Time(u64::MAX))
    }

    /// Variant of [`Self::step`] that does not wait for a drive beyond `until`. A timer of the
    /// engine that fires while a drive works is a step too. Returns whether there was a step.
    fn step_until(&mut self, order: Order, until: Time) -> bool {
        if self.service.is_timed() {
            match self.wait_for_a_drive(until) {
                Waited::Done => {}
                Waited::Woken => return true,
                Waited::Nothing => return false,
            }
            if order == Order::Fifo {
                return self.complete_all();
            }
        }
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

    pub(super) fn can_answer(&self, pending: &Pending) -> bool {
        pending.disk.is_none_or(|disk| self.disks[disk].can_complete())
    }

    /// Completes all member requests that may complete, oldest first, and then runs the engine.
    /// Returns whether there were any.
    pub fn round(&mut self) -> bool {
        if self.service.is_timed() {
            self.wait_for_a_drive(Time(u64::MAX));
        }
        self.complete_all()
    }

    fn complete_all(&mut self) -> bool {
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

    /// Runs until every request and command is answered and nothing is outstanding. Reports a
    /// violation (I13) if this takes longer than [`ANSWERED_WITHIN`].
    pub fn run(&mut self, order: Order) {
        self.settle();
        let mut wakes = 0;
        let (begun, served) = (self.now, self.service_time());
        while self.failure.is_none() {
            // The service time of members does not count.
            let served = self.service_time().0 - served.0;
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
            // Requests of disconnected clients must be carried out before the run ends.
            let at_rest = self.unanswered() == 0 && !self.has_requests();
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

    /// Whether every member answers and has space.
    fn members_answer(&self) -> bool {
        self.disks.iter().all(|disk| disk.can_complete() && !disk.faults.no_space)
    }

    /// Lets time pass; requests complete and timers fire meanwhile.
    pub fn idle(&mut self, span: Span) {
        let until = self.now + span;
        self.settle();
        while self.failure.is_none() {
            if self.step_until(Order::Fifo, until) {
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
        self.pass_to(self.now.max(until));
    }

    /// Time at which the engine asks to be woken; `None` if it does not, or if no engine runs.
    #[must_use]
    pub fn next_wake(&self) -> Option<Time> {
        self.engine.as_ref().and_then(Engine::next_wake)
    }

    /// Lets time pass without completions: timers fire, and the requests that they start stay
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
        self.pass_to(self.now.max(until));
    }

    /// Advances the clock to the time at which the engine asks to be woken, and wakes it. Returns
    /// whether the engine had asked.
    pub fn wake(&mut self) -> bool {
        let Some(at) = self.engine.as_ref().and_then(Engine::next_wake) else { return false };
        self.pass_to(self.now.max(at));
        let of_turn = self.engine.as_ref().and_then(Engine::turn_wake);
        if self.service.is_timed() && of_turn.is_none_or(|at| at > self.now) {
            self.run_queues();
        } else {
            self.input(Input::Wake);
            self.settle();
        }
        let again = self.engine.as_ref().and_then(Engine::next_wake);
        if again.is_some_and(|again| again <= self.now) && self.failure.is_none() {
            let now = self.now.0;
            let message =
                format!("woken at {now} it asks to be woken at {again:?}: it never sleeps");
            self.fail(Violation::new("I13 liveness", message));
        }
        true
    }

    /// Runs the engine and takes its outputs until there are no more. An engine that received no
    /// input since it last ran is not run, because an extra run would hide a wake-up that the
    /// engine forgot to request.
    pub fn settle(&mut self) {
        if !std::mem::take(&mut self.plugged) {
            return;
        }
        let by_halves = self.service.is_timed();
        if by_halves {
            self.run_queues();
        }
        let mut turns = 0;
        // Whether any request was answered since the waiting requests were last tried.
        let mut answered = false;
        loop {
            let Some(engine) = &mut self.engine else { return };
            let mut outputs = VecDeque::new();
            let turn = if by_halves {
                engine.decide(self.now, &mut outputs)
            } else {
                engine.run(self.now, TURNS_MAX - turns, &mut outputs)
            };
            turns += turn.work.turns;
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
            let more = turn.more || !inline.is_empty();
            for token in inline {
                let pending = self.pending.remove(&token).expect("the request was just submitted");
                let result = self.end(token, pending);
                self.input(Input::Done { token, result });
            }
            if by_halves {
                self.unplug_queues(!more);
            }
            if more {
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
            let load = self.engine.as_ref().expect("an engine runs").load();
            let mut waited = false;
            self.checkers.settled(&load);
            let cached = self.options.write_back.is_some();
            if load.requests_active == 0 && !(cached && load.frames_held > 0) {
                let orphans = std::mem::take(&mut self.orphans);
                // Waiting writes may overlap the ranges that disconnected clients left.
                waited = !orphans.is_empty();
                for (volume, range) in orphans.into_iter().filter(|_| cached) {
                    self.model_of(volume).left_in_cache(range);
                }
            }
            if load.tokens_outstanding != self.pending.len() {
                let (engine, driver) = (load.tokens_outstanding, self.pending.len());
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

    /// Whether the engine has requests of connected or disconnected clients, in a volume or in the
    /// write-back cache. In the cache, a write with PREFLUSH may wait until dirty pages can be
    /// written.
    fn has_requests(&self) -> bool {
        let load = self.engine.as_ref().map(Engine::load);
        load.is_some_and(|load| load.frames_held > 0 || load.requests_active > 0)
    }

    /// Checks that the engine has no work that it did not announce (I13): one more turn (a bounded
    /// unit of work) of a copy of the engine must give no output. Only a resync may have more to
    /// do, because it issues further requests when one of its requests completes.
    fn ask_for_lost_work(&mut self) {
        // A copy is expensive, so only some states are checked. The digest of the outputs selects
        // them, so each seed checks other states.
        if !self.digest.0.is_multiple_of(self.options.lost_work_every) {
            return;
        }
        let Some(twin) = self.engine.clone() else { return };
        if twin.next_wake().is_some_and(|at| at <= self.now) {
            return;
        }
        let syncing = |pending: &Pending| pending.origin.is_none_or(|of| of == Origin::Sync);
        let mut syncing = self.pending.values().any(syncing);
        let (more, outputs) = self.one_turn_more(twin);
        let of_sync = |output: &Output| match output {
            Output::Submit { attr, .. } => attr.origin == Origin::Sync,
            // Handling a stripe that is completely in the cache begins with a comparison; only
            // resync compares.
            Output::Compute { ops, .. } => {
                ops.iter().all(|op| matches!(op, ComputeOp::Compare { .. }))
            }
            _ => false,
        };
        // The resync also runs if all of its requests wait in the schedulers.
        syncing = syncing || outputs.iter().any(of_sync) && self.do_requests_wait();
        let mut lost = outputs.into_iter().find(|output| !(syncing && of_sync(output)));
        // A resync may also begin by computing a strip that its member cannot return at present.
        // Such a computation belongs to the resync if the turn does nothing once the resync
        // requests no more stripes.
        if syncing && matches!(lost, Some(Output::Compute { .. })) {
            lost = lost.filter(|_| self.is_lost_without_sync());
        }
        if lost.is_some() || (more && !syncing) {
            let message =
                format!("a wake-up is lost: one turn more, that was not due, does {lost:?}");
            self.fail(Violation::new("I13 liveness", message));
        }
    }

    /// Whether requests wait in the scheduler of a member.
    fn do_requests_wait(&self) -> bool {
        let volumes = self.snapshot().volumes;
        let members = volumes.iter().flat_map(|volume| &volume.members);
        let accepted: usize = members.map(|member| member.in_flight as usize).sum();
        accepted > self.pending.values().filter(|pending| pending.disk.is_some()).count()
    }

    /// Whether one more turn of a copy of the engine does something even if the running resync
    /// requests no more stripes.
    fn is_lost_without_sync(&self) -> bool {
        let Some(mut twin) = self.engine.clone() else { return false };
        let volumes = self.snapshot().volumes;
        let is_still = |action| matches!(action, SyncAction::Idle | SyncAction::Frozen);
        if volumes.iter().all(|volume| is_still(volume.sync_action)) {
            return true;
        }
        for (volume, number) in volumes.iter().zip(0..) {
            if is_still(volume.sync_action) {
                continue;
            }
            // The engine answers the command when the stripes of the resync are done.
            let verb = Verb::SyncAction(SyncAction::Frozen);
            let (client, tag) = (ClientId(u32::MAX), Tag(u64::MAX - u64::from(number)));
            let command = Command { client, tag, volume: VolumeId(number), verb };
            twin.handle(self.now, Input::Admin(Box::new(command)));
        }
        !self.one_turn_more(twin).1.is_empty()
    }

    /// Runs one more turn of a copy of the engine. Returns whether the copy then has more to do,
    /// and its outputs.
    fn one_turn_more(&self, mut twin: Engine) -> (bool, VecDeque<Output>) {
        let mut outputs = VecDeque::new();
        (twin.run(self.now, 1, &mut outputs).more, outputs)
    }

    pub(super) fn look_for_failures(&mut self) {
        for violation in std::mem::take(&mut self.checkers.found) {
            self.fail(violation);
        }
    }
}
