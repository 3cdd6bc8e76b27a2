//! Driver for real members: inputs to the engine, outputs carried out, one pass at a time.
//!
//! [`Driver`] owns the engine, the memory and the members. A pass is one round of the loop that
//! serves clients (`reactor.rs`). The driver records inputs as they arrive. `settle` lets the
//! engine decide, carries out its outputs and starts all member requests of the pass with one
//! submission. Replies, frames and credit become [`Event`]s for the ports.

use std::collections::VecDeque;
use std::sync::Arc;

use weft_compute::compute;
use weft_engine::{
    ClientRequest, Command, Input, Notice, Output, ReplyError, Run, Snapshot, Tag, Token, Value,
};
use weft_parity::Parity;
use weft_units::{Bytes, ClientId, MemberIndex, Span, Time, VolumeId};

use super::poison::{Core, Guarded};
use super::pool::Pool;
use super::turns::Turns;
use crate::buffers::Slab;
use crate::clock::Clock;
use crate::devices::OpenMember;
use crate::error::RuntimeError;
use crate::figures::{Figures, RequestKind};
use crate::member_io::MemberIo;
use crate::overlay::MemberRing;
use crate::unwritten::UnwrittenMark;

/// The engine with its memory and its members.
pub struct Driver {
    core: Guarded,
    /// I/O of the members. Declared before the slab, so that requests end before their memory is
    /// unmapped.
    io: MemberIo<Box<dyn MemberRing>>,
    slab: Slab,
    pool: Pool,
    turns: Turns,
    parity: Parity,
    clock: Clock,
    now: Time,
    /// Whether the engine has to run: an input was recorded since its last run, or that run left
    /// work.
    unsettled: bool,
    /// Outputs of the engine, while they are carried out; otherwise empty.
    outputs: VecDeque<Output>,
    events: VecDeque<Event>,
    stalls: Stalls,
    mark: Option<UnwrittenMark>,
    /// Requests of clients that were answered, by volume.
    answered: Vec<Figures>,
    /// Snapshot of the engine, valid until its next input; `None` if none was taken since.
    snapshot: Option<Arc<Snapshot>>,
}

/// Rate limit of log lines about members that do not answer. Each entry has the member, the time of
/// its last line, and the number of lines left out since.
#[derive(Debug, Default)]
struct Stalls(Vec<(MemberIndex, Time, u64)>);

impl Stalls {
    /// Decides whether a stall of a member is logged now. Returns the number of lines left out
    /// since its last line, or `None` if this line is left out too.
    fn tell(&mut self, member: MemberIndex, now: Time) -> Option<u64> {
        let Some(last) = self.0.iter_mut().find(|last| last.0 == member) else {
            self.0.push((member, now, 0));
            return Some(0);
        };
        if now.since(last.1) < STALL_PERIOD {
            last.2 += 1;
            return None;
        }
        let unsaid = last.2;
        (last.1, last.2) = (now, 0);
        Some(unsaid)
    }
}

/// An event that the driver reports to a port, about one of the port's clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A client may send more.
    Credit {
        /// Client that gets the credit.
        client: ClientId,
        /// Credit in bytes.
        bytes: Bytes,
    },
    /// Frames have come back to the pool.
    Released {
        /// Client that the frames were on loan to.
        client: ClientId,
        /// Frames that came back.
        run: Run,
    },
    /// A request or command has been answered.
    Reply {
        /// Client that asked.
        client: ClientId,
        /// Tag of the request.
        tag: Tag,
        /// Result of the request.
        result: Result<(), ReplyError>,
    },
}

impl Event {
    /// Client that the event is for.
    #[must_use]
    pub fn client(&self) -> ClientId {
        match self {
            Self::Credit { client, .. }
            | Self::Released { client, .. }
            | Self::Reply { client, .. } => *client,
        }
    }
}

/// Engine, ring, memory and members that a driver is made of.
pub struct DriverParts {
    /// The engine, or a stand-in for it.
    pub core: Box<dyn Core>,
    /// All payload memory.
    pub slab: Slab,
    /// Pool of the frames that clients get.
    pub pool: Pool,
    /// Ring that carries out member requests.
    pub ring: Box<dyn MemberRing>,
    /// The members, each with its index set.
    pub members: Vec<OpenMember>,
}

impl Driver {
    /// Creates a driver from its parts. The engine runs for the first time at the first `settle`.
    ///
    /// # Errors
    /// Fails when the file of a member cannot be registered.
    pub fn new(parts: DriverParts) -> Result<Self, RuntimeError> {
        let clock = Clock::start();
        let mut io = MemberIo::new(parts.ring).with_memory_inline();
        for member in parts.members {
            let failed = |source| RuntimeError::Io { what: "registering members", source };
            io.add(member).map_err(failed)?;
        }
        Ok(Self {
            core: Guarded::new(parts.core),
            io,
            slab: parts.slab,
            pool: parts.pool,
            turns: Turns::default(),
            parity: Parity::detect(),
            clock,
            now: Time(0),
            unsettled: true,
            outputs: VecDeque::new(),
            events: VecDeque::new(),
            stalls: Stalls::default(),
            mark: None,
            answered: Vec::new(),
            snapshot: None,
        })
    }

    /// Adds the mark which says whether acknowledged data is in memory only, and keeps it up to
    /// date. `None` for a server without a write-back cache.
    #[must_use]
    pub fn with_mark(mut self, mark: Option<UnwrittenMark>) -> Self {
        self.mark = mark;
        self
    }

    /// Time of the current pass, as the last [`tick`](Self::tick) read it.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now
    }

    /// Reads the clock, at the start of a pass.
    pub fn tick(&mut self) {
        self.now = self.now.max(self.clock.now());
        self.io.set_now(self.now);
    }

    /// Counts a client's request that is answered in this pass, and that began at the time `since`.
    pub fn count_answer(&mut self, volume: VolumeId, kind: RequestKind, since: Time, is_ok: bool) {
        if self.answered.len() <= volume.index() {
            self.answered.resize_with(volume.index() + 1, Figures::new);
        }
        self.answered[volume.index()].count(kind, self.now.since(since), is_ok);
    }

    /// Requests of clients of a volume that were answered; `None` before the first one.
    #[must_use]
    pub fn answered(&self, volume: VolumeId) -> Option<&Figures> {
        self.answered.get(volume.index())
    }

    /// Records a client's request.
    pub fn request(&mut self, request: ClientRequest) {
        self.handle(Input::Client(request));
    }

    /// Records an administrator's command.
    pub fn admin(&mut self, command: Command) {
        self.handle(Input::Admin(Box::new(command)));
    }

    /// Records that a client has disconnected.
    pub fn client_gone(&mut self, client: ClientId) {
        self.handle(Input::ClientGone(client));
    }

    /// Takes `count` adjacent frames for a client's payload. Returns `None` if the client may not
    /// have that many, or no such run is free.
    pub fn take_frames(&mut self, client: ClientId, count: u32) -> Option<Run> {
        self.pool.take(client, count)
    }

    /// Gives back frames that the engine does not hold, to the pool.
    pub fn give_back_frames(&mut self, run: Run) {
        if run.count > 0 {
            self.pool.give_back(run);
        }
    }

    /// Memory of all frames.
    #[must_use]
    pub fn slab(&self) -> &Slab {
        &self.slab
    }

    /// Memory of all frames, to fill those that the engine does not hold.
    pub fn slab_mut(&mut self) -> &mut Slab {
        &mut self.slab
    }

    /// Pool of the payload frames.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Pool of the payload frames, to let clients join and leave.
    pub fn pool_mut(&mut self) -> &mut Pool {
        &mut self.pool
    }

    /// Queue of trims and writes of zeroes. These are carried out in slices, each slice needs a
    /// turn, and few turns are given at a time; see [`Turns`].
    pub fn turns_mut(&mut self) -> &mut Turns {
        &mut self.turns
    }

    /// Counter of returned frames and ended turns. When the counter changes, clients that wait for
    /// frames or for a turn may try again.
    #[must_use]
    pub fn returns(&self) -> u64 {
        self.pool.returns() + self.turns.moves()
    }

    /// Counters and states of the engine; `None` after a panic.
    pub fn snapshot(&mut self) -> Option<Snapshot> {
        self.core.guard(|core| core.snapshot())
    }

    /// Snapshot of the engine, shared by all callers until its next input; `None` after a panic.
    pub fn shared_snapshot(&mut self) -> Option<Arc<Snapshot>> {
        if self.snapshot.is_none() || self.poison().is_some() {
            self.snapshot = self.snapshot().map(Arc::new);
        }
        self.snapshot.clone()
    }

    /// Message of the panic or fault that stopped all acknowledgement; `None` while requests are
    /// acknowledged.
    #[must_use]
    pub fn poison(&self) -> Option<&str> {
        self.core.poison()
    }

    /// Stops all acknowledgement, as a panic of the engine does.
    pub(crate) fn set_poison(&mut self, message: &str) {
        self.core.set_poison(message);
    }

    /// Open members and their requests.
    #[must_use]
    pub fn members(&self) -> &MemberIo<Box<dyn MemberRing>> {
        &self.io
    }

    /// Adds a member to the driver, before the engine is told of the member.
    ///
    /// # Errors
    /// Fails when its file cannot be registered.
    pub fn add_member(&mut self, member: OpenMember) -> std::io::Result<()> {
        self.io.add(member)
    }

    /// Closes a member that the engine no longer uses.
    pub fn remove_member(&mut self, index: MemberIndex) {
        self.io.remove(index);
    }

    /// Closes the members after every volume has stopped, and returns the labels of the members
    /// that have not answered. The mark is removed here if nothing is unwritten, because the driver
    /// may never be dropped.
    pub(crate) fn release_members(&mut self) -> Vec<String> {
        self.mark = None;
        self.io.release()
    }

    /// Lets the engine decide and carries out its outputs. Afterwards [`event`](Self::event) may
    /// return events.
    pub fn settle(&mut self) {
        for _ in 0..PASSES_MAX {
            self.collect();
            if self.unsettled && self.poison().is_none() {
                self.turn();
            } else if !self.io.wants_submit() {
                // No operation of a request is ready to start.
                break;
            }
            if let Err(error) = self.io.submit() {
                self.core.set_poison(&format!("member requests cannot be started: {error}"));
            }
        }
    }

    /// Whether there is work that can be done without waiting for an event.
    #[must_use]
    pub fn busy(&self) -> bool {
        (self.unsettled && self.poison().is_none()) || self.io.busy() || !self.events.is_empty()
    }

    /// Takes the next event for a port; `None` if there is none.
    pub fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Wakes the engine if the time has come for which it asked to be woken.
    pub fn wake(&mut self) {
        if self.next_wake().is_some_and(|at| at <= self.now) {
            self.handle(Input::Wake);
        }
    }

    /// Time at which the engine asked to be woken; `None` if it has not asked, or after a panic.
    pub fn next_wake(&mut self) -> Option<Time> {
        self.core.guard(|core| core.next_wake()).flatten()
    }

    fn handle(&mut self, input: Input) {
        self.unsettled = true;
        self.snapshot = None;
        let now = self.now;
        self.core.guard(|core| core.handle(now, input));
    }

    /// Takes completed member requests, and hands their results to the engine.
    fn collect(&mut self) {
        self.io.reap();
        if self.io.panicked() {
            self.core.set_poison("a worker panicked");
        }
        if !self.io.has_answers() {
            return;
        }
        self.unsettled = true;
        self.snapshot = None;
        let (io, now) = (&mut self.io, self.now);
        self.core.guard(|core| {
            while let Some((token, result)) = io.answer() {
                core.handle(now, Input::Done { token, result });
            }
        });
        // A poisoned core takes no answers; the rest is dropped.
        while self.io.answer().is_some() {}
    }

    /// Runs the engine for up to `TURNS_MAX` turns, then carries out its outputs.
    fn turn(&mut self) {
        self.snapshot = None;
        let now = self.now;
        let mut outputs = std::mem::take(&mut self.outputs);
        let turns = self.core.guard(|core| core.run(now, TURNS_MAX, &mut outputs));
        self.unsettled = turns.is_some_and(|turns| turns.more);
        if turns.is_none() {
            // The outputs of a core that panicked are discarded.
            outputs.clear();
        }
        if let Some(mark) = &mut self.mark
            && let Some(pages) = self.core.guard(|core| core.write_back_pages())
        {
            mark.tell(pages > 0);
        }
        for output in outputs.drain(..) {
            self.carry_out(output);
        }
        self.outputs = outputs;
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Submit { token, member, op, attr: _ } => {
                let (io, slab) = (&mut self.io, &mut self.slab);
                self.core.guard(|_| io.start(slab, token, member, op));
            }
            Output::Compute { token, ops } => {
                self.compute(token, &ops);
                self.core.guard(|core| core.recycle(ops));
            }
            Output::Abort(token) => self.io.abort(token),
            Output::Reply { client, tag, result } => {
                self.events.push_back(Event::Reply { client, tag, result });
            }
            Output::Release(run) => {
                if run.count > 0 {
                    let client = self.pool.give_back(run);
                    self.events.push_back(Event::Released { client, run });
                }
            }
            Output::Credit { client, bytes } => {
                self.events.push_back(Event::Credit { client, bytes });
            }
            Output::Notice(notice) => self.trace(&notice),
        }
    }

    fn compute(&mut self, token: Token, ops: &[weft_engine::ComputeOp]) {
        let (parity, slab) = (self.parity, &mut self.slab);
        let value: Option<Value> = self.core.guard(|_| compute(&parity, slab, ops));
        if let Some(value) = value {
            self.handle(Input::Done { token, result: Ok(value) });
        }
    }

    /// Writes a notice of the engine to the log.
    fn trace(&mut self, notice: &Notice) {
        let label = |index: MemberIndex| self.io.label(index);
        match notice {
            Notice::ArrayClean(volume) => tracing::debug!(volume = volume.0, "array clean"),
            Notice::ArrayDirty(volume) => tracing::debug!(volume = volume.0, "array dirty"),
            Notice::Broken(volume) => {
                tracing::error!(volume = volume.0, "too few members are left; no more writes");
            }
            Notice::MemberFailed { volume, member, slot } => tracing::error!(
                volume = volume.0,
                member = label(*member),
                slot = slot.map(|slot| slot.0),
                "member failed"
            ),
            Notice::MemberReplaced { volume, member, by, slot } => tracing::info!(
                volume = volume.0,
                member = label(*member),
                by = label(*by),
                slot = slot.0,
                "member replaced"
            ),
            Notice::FailureRecorded { volume } => {
                tracing::info!(volume = volume.0, "failure recorded on the other members");
            }
            Notice::MemberStalled { member, read_around } => {
                if let Some(unsaid) = self.stalls.tell(*member, self.now) {
                    let member = label(*member);
                    tracing::warn!(member, read_around, unsaid, "member does not answer");
                }
            }
            Notice::NoSpace { member } => {
                tracing::error!(
                    member = label(*member),
                    "no space behind the member; no writes until there is"
                );
            }
            Notice::ReadErrorCorrected { member, at, sectors } => tracing::warn!(
                member = label(*member),
                sector = at.0,
                sectors = sectors.0,
                "read error corrected"
            ),
            Notice::BadBlocks { member, at, sectors, lost } => {
                let (member, sector, sectors) = (label(*member), at.0, sectors.0);
                if *lost {
                    let text = "sectors are lost; they are read errors until they are written";
                    tracing::error!(member, sector, sectors, "{text}");
                } else {
                    let text = "sectors could not be written or kept; the others give their data";
                    tracing::warn!(member, sector, sectors, "{text}");
                }
            }
            Notice::SyncFinished { volume, action, mismatch_cnt, stripes, complete } => {
                tracing::info!(
                    volume = volume.0,
                    ?action,
                    mismatch_cnt,
                    stripes,
                    complete,
                    "sync finished"
                );
            }
            Notice::WriteBackFailed { volume, at, error } => tracing::error!(
                volume = volume.0,
                byte = at,
                %error,
                "write-back failed; what is dirty stays in memory and is tried again every second"
            ),
            Notice::WriteBackWorks(volume) => {
                tracing::info!(volume = volume.0, "write-back works again");
            }
            Notice::SyncStarted { volume, action } => {
                tracing::info!(volume = volume.0, ?action, "sync started");
            }
        }
    }
}

/// Largest number of turns that the engine takes before its outputs are carried out. With md's 8
/// stripes for each turn, 64 turns handle more stripes than the default cache has.
const TURNS_MAX: u32 = 64;
/// Largest number of rounds of one `settle`. Sockets are polled after that, so that a resync from
/// the page cache does not starve clients.
const PASSES_MAX: u32 = 16;
/// Shortest time between two log lines about one member that stalls from time to time.
const STALL_PERIOD: Span = Span::secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_stalls_often_is_told_of_once_a_period_with_a_count() {
        let mut stalls = Stalls::default();
        let (a, b) = (MemberIndex(0), MemberIndex(1));
        let at = |millis: u64| Time(millis * 1_000_000);
        let told: Vec<_> = (0..1400).filter_map(|n| stalls.tell(a, at(n * 100))).collect();
        assert_eq!(told, [0, 599, 599]);
        assert_eq!(stalls.tell(b, at(1)), Some(0));
    }
}
