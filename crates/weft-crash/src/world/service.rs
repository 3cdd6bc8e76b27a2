//! Service times of a world's disks: the times at which drive models complete their requests.
//!
//! A disk of a world has contents ([`crate::disk`]). If the options name drive models, it also has
//! a drive of weft-sim, which gets each request without its payload, and the request can complete
//! only after the drive has completed it. The part of a write that survives a power cut does not
//! depend on the drive.
//!
//! With drives, the clock moves from event to event, and the engine runs as in a machine of
//! weft-sim: one half of a turn at a time, with queues that dispatch when a command ends.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;

use weft_engine::{DeviceTraits, MemberOp, Output, Token};
use weft_sim::drive::{Access, Drive, Model};
use weft_sim::machine::{Member, command_of, device_traits};
use weft_units::{Sectors, Span, Time};

use super::{Pending, World};

/// The drives of all disks, by the disks' numbers; none if the options name no model.
#[derive(Clone, Debug, Default)]
pub(super) struct Service {
    drives: Vec<Timed>,
    /// Total time for which the clock waited for drives.
    pub(super) waited: Span,
}

/// A drive, and the requests that it cannot take yet.
#[derive(Clone, Debug)]
struct Timed {
    member: Member,
    /// Requests that wait for room at the drive. The engine's queues do not overfill a drive, but a
    /// request that the engine aborted may still occupy it.
    held: VecDeque<Request>,
}

/// A request as a drive sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    token: Token,
    access: Access,
    range: (Sectors, Sectors),
}

impl Request {
    /// Request to the drive for a member operation.
    pub(super) fn of(token: Token, op: &MemberOp) -> Self {
        let (access, range) = command_of(op);
        Self { token, access, range }
    }

    /// Request to the drive for a write of zeros in place of a discard.
    pub(super) fn zeros(token: Token, at: u64, count: u64, fua: bool) -> Self {
        let range = (Sectors(at), Sectors(count));
        Self { token, access: Access::Write { fua }, range }
    }
}

impl Service {
    /// Lets all drives complete the requests of an engine that is gone. Returns the time at which
    /// the last request is done, `now` or later.
    pub(super) fn restart(&mut self, now: Time) -> Time {
        let mut at = now;
        for of in &mut self.drives {
            of.held.clear();
            while of.member.commands() > 0 {
                let next = of.member.next_event().expect("a drive works at what was sent to it");
                of.member.advance(next, |_| ());
                at = at.max(next);
            }
        }
        // All drives are at the same time.
        self.advance(at, |_| ());
        at
    }

    /// Whether the disks have drives, which determine when requests are done.
    pub(super) fn is_timed(&self) -> bool {
        !self.drives.is_empty()
    }

    /// Traits of a disk's drive; `None` if disks have no drives.
    pub(super) fn traits(&self, disk: usize) -> Option<DeviceTraits> {
        self.drives.get(disk).map(|of| device_traits(of.member.drive()))
    }

    /// Passes a request to the drive of a disk. Returns whether the request is done at once,
    /// because the disk has no drive or the drive need not do anything for it.
    pub(super) fn begin(&mut self, now: Time, disk: usize, request: Request) -> bool {
        let Some(of) = self.drives.get_mut(disk) else { return true };
        of.held.push_back(request);
        let mut done = false;
        of.pass_on(now, &mut |_| done = true);
        done
    }

    /// Time of the next event of any drive; `None` if all are idle.
    pub(super) fn next_event(&self) -> Option<Time> {
        self.drives.iter().filter_map(|of| of.member.next_event()).min()
    }

    /// Carries out all events of drives up to and including `now`. Calls `done` for each request
    /// that is done.
    pub(super) fn advance(&mut self, now: Time, mut done: impl FnMut(Token)) {
        for of in &mut self.drives {
            while let Some(at) = of.member.next_event().filter(|at| *at <= now) {
                of.member.advance(at, &mut done);
                of.pass_on(at, &mut done);
            }
        }
    }
}

/// Drive model with this name. Each model is made only once, because a drive in its steady state
/// takes long to prepare.
fn model(name: &'static str) -> Model {
    static MODELS: Mutex<BTreeMap<&'static str, Model>> = Mutex::new(BTreeMap::new());
    let mut models = MODELS.lock().expect("nothing panics while the lock is held");
    let new = || Drive::model(name).expect("options name known models");
    models.entry(name).or_insert_with(new).clone()
}

/// Reason why a wait for a drive ended.
pub(super) enum Waited {
    /// A request is done.
    Done,
    /// A timer of the engine fired first.
    Woken,
    /// No request will be done, or none by the given time.
    Nothing,
}

impl World {
    /// Gives a disk a drive, if the options name models. Called once for each disk, in the order of
    /// their numbers.
    pub(super) fn add_drive(&mut self, disk: usize) {
        let Some(name) = self.options.drive_of(disk) else { return };
        let drive = Drive::of_member(&model(name), self.options.seed, disk as u64);
        self.disks[disk].write_through = !drive.volatile_cache();
        self.service.drives.push(Timed { member: Member::new(drive), held: VecDeque::new() });
    }

    /// Time of the next event on disks with drives: a request that is done, or a timer of the
    /// engine. `None` if nothing will happen.
    #[must_use]
    pub fn next_event(&self) -> Option<Time> {
        let done = self.pending.values().any(|pending| self.can_complete(pending));
        let done = done.then_some(self.now);
        let drives = self.awaits_a_drive().then(|| self.service.next_event()).flatten();
        let timer = self.next_wake().map(|at| at.max(self.now));
        [done, drives, timer].into_iter().flatten().min()
    }

    /// Moves the clock until a request is done, or until a timer of the engine fires before that,
    /// but not beyond `until`. Returns the reason why the wait ended.
    pub(super) fn wait_for_a_drive(&mut self, until: Time) -> Waited {
        loop {
            if self.pending.values().any(|pending| self.can_complete(pending)) {
                return Waited::Done;
            }
            if !self.awaits_a_drive() {
                return Waited::Nothing;
            }
            let at = self.service.next_event().expect("a drive works at what was sent to it");
            let wake = self.next_wake().filter(|wake| *wake <= at);
            if wake.unwrap_or(at).max(self.now) > until {
                return Waited::Nothing;
            }
            if wake.is_some() {
                self.wake();
                return Waited::Woken;
            }
            self.pass_to(at);
        }
    }

    /// Whether a drive works at a request that its disk will answer.
    fn awaits_a_drive(&self) -> bool {
        let works = |pending: &Pending| !pending.is_served && self.can_answer(pending);
        self.pending.values().any(works)
    }

    /// Moves the clock to `at`, which is not in the past, and carries out all events of drives
    /// until then.
    pub(super) fn pass_to(&mut self, at: Time) {
        if self.service.is_timed() {
            if self.awaits_a_drive() {
                let waited = at.since(self.now);
                self.service.waited = Span(self.service.waited.0 + waited.0);
            }
            let pending = &mut self.pending;
            self.service.advance(at, |token| {
                // The engine may have aborted the request since.
                if let Some(pending) = pending.get_mut(&token) {
                    pending.is_served = true;
                }
            });
        }
        self.now = at;
    }

    /// Service time of members so far, in all: the time for which the clock waited for them.
    pub(super) fn service_time(&self) -> Span {
        if self.service.is_timed() {
            self.service.waited
        } else {
            Span(self.options.latency.0 * self.completed)
        }
    }

    /// Makes the engine dispatch requests from the queues of members outside of a turn, on disks
    /// with drives.
    pub(super) fn run_queues(&mut self) {
        let Some(engine) = &mut self.engine else { return };
        let mut dispatched = VecDeque::new();
        engine.run_queues(self.now, &mut dispatched);
        self.submit_dispatched(dispatched);
    }

    /// Makes the engine carry out the second half of a turn, on disks with drives: member requests
    /// of the first half go to the queues of members, which dispatch. With `end_plug` the plug of
    /// the queues ends.
    pub(super) fn unplug_queues(&mut self, end_plug: bool) {
        let Some(engine) = &mut self.engine else { return };
        let mut dispatched = VecDeque::new();
        engine.unplug_queues(self.now, end_plug, &mut dispatched);
        self.submit_dispatched(dispatched);
    }

    /// Tells the engine that a drive has completed a command, so that the queue of the member can
    /// dispatch the next one.
    pub(super) fn tell_queue(&mut self, token: Token) {
        if let (Some(engine), true) = (&mut self.engine, self.service.is_timed()) {
            engine.ended(token);
        }
    }

    /// Submits the member requests that queues dispatched.
    fn submit_dispatched(&mut self, dispatched: VecDeque<Output>) {
        for output in dispatched {
            let compute = self.output(output);
            assert!(compute.is_none(), "queues dispatch only member requests");
        }
        self.look_for_failures();
    }
}

impl Timed {
    /// Passes held requests to the drive for as long as it has room. Calls `done` for each request
    /// for which the drive need not do anything.
    fn pass_on(&mut self, now: Time, done: &mut impl FnMut(Token)) {
        while let Some(Request { token, access, range }) = self.held.front().copied() {
            if !self.member.has_room_for(access) {
                break;
            }
            self.held.pop_front();
            match self.member.take(token, access, range) {
                Some(command) => self.member.begin(now, command),
                None => done(token),
            }
        }
    }
}
