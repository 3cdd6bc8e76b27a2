//! Host of a simulated machine: engine thread, members, event queue and woken processes.
//!
//! See [`super`] for the order of events.

mod array;
mod flush_order;
mod hops;
mod link;
mod look;
mod time;
mod volumes;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::ops::Range;

use weft_engine::knobs::FlushRule;
use weft_engine::page_cache::InodeId;
use weft_engine::{
    Attr, Class, ClientRequest, Command, Congestion, Engine, Flags, Input, Notice, Origin, Output,
    RequestOp, Run, SyncAction, Tag, Verb,
};
use weft_units::{ByteRange, Bytes, ClientId, Group, Span, Time, VolumeId};

use self::array::{Stripes, new_volumes};
use self::flush_order::FlushOrder;
pub use self::flush_order::FlushOrderCounts;
use self::hops::Hops;
use self::link::SharedLink;
pub(super) use self::volumes::TokenWait;
use self::volumes::VolumeUse;
use super::faults::Faults;
use super::files::Files;
use super::member::Member;
use super::probe::History;
use super::{Costs, MachineParts, PartsError, Pid, PlannedFault, Woken};
use crate::drive::{Drive, Model};

/// Client number of the command that starts a check or repair; no process has this number.
pub(super) const ADMIN: ClientId = ClientId(u32::MAX - 1);

/// A simulated host: an engine with its disks, its clock and the planned events.
#[derive(Debug)]
pub struct Host {
    pub(super) now: Time,
    engine: Engine,
    members: Vec<Member>,
    /// State of each volume that depends on its processes: idle time, and threads that sleep.
    volumes: Vec<VolumeUse>,
    /// Link that all disks share; `None` if each has a link of its own.
    link: Option<Box<SharedLink>>,
    costs: Costs,
    hops: Hops,
    flush_rule: FlushRule,
    flush_order: FlushOrder,
    /// Number of flushes that the volume received: empty flushes, and those before a write.
    flushes_asked: u64,
    /// Planned wake-ups: time, order in which they were planned, process.
    timers: BinaryHeap<Reverse<(Time, u64, Pid)>>,
    timers_set: u64,
    /// Time at which the engine's thread has finished its present work.
    engine_free: Time,
    /// Inputs that wait until the engine's thread is free.
    inbox: Vec<Input>,
    /// Outputs of runs of the engine with CPU work that is not finished: the time at which they
    /// take effect, and whether the engine then had more to do.
    leaving: VecDeque<(Time, VecDeque<Output>, bool)>,
    engine_woken: Option<Time>,
    /// Unanswered client requests by tag, each with the receiver of the answer.
    requests: BTreeMap<u64, (AnswerReceiver, ClientRequest)>,
    next_tag: u64,
    next_frame: u32,
    frames: (u32, u32),
    size: Bytes,
    stripes: Stripes,
    /// Whether a write-back cache of weft is in front of the volume.
    write_back: bool,
    /// Largest number of pages that were dirty or under writeback in weft's write-back cache at one
    /// time.
    dirty_pages_max: u64,
    /// Processes that are to run now, in this order, each with the reason.
    pub(super) ready: VecDeque<(Pid, Woken)>,
    /// Number of requests that were answered with an error.
    failed: u64,
    /// Processes that wait for free stripes. Their keys are from `turns`, and the lowest is first.
    blocked: BTreeMap<u64, Pid>,
    /// Place in the queue of each process that waits for free stripes. A process that is woken but
    /// finds no free stripe keeps its place.
    turns: BTreeMap<Pid, u64>,
    next_turn: u64,
    pub(super) files: Option<Files>,
    /// Requests to the volume that were recorded ([`Host::watch_requests`]), and the tag of the
    /// first one; `None` if requests are not recorded.
    seen: Option<(u64, Vec<Seen>)>,
    engine_work: Span,
    requests_done: u64,
    bytes_done: Bytes,
    /// Samples of the machine over time; `None` if it is not sampled.
    history: Option<Box<History>>,
    /// Bytes that requests to the volume asked to read, and to write.
    asked_bytes: (u64, u64),
    /// I/O class of each process that has set one.
    classes: BTreeMap<Pid, Class>,
    /// Planned faults of members; `None` if no faults are planned.
    faults: Option<Box<Faults>>,
    /// Notices of the engine about its members, each with its time.
    notices: Vec<(Time, Notice)>,
    /// Bytes that were reconstructed because a member could not return them.
    recovered: u64,
}

/// A request to the volume that was recorded; see [`Host::watch_requests`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Time at which the request was submitted.
    pub at: Time,
    /// Operation of the request: read, write, flush and so on.
    pub op: RequestOp,
    /// Bytes of the volume that the request covers.
    pub range: ByteRange,
    /// Flags of the request (sync, FUA, PREFLUSH and so on).
    pub flags: Flags,
    /// Attributes of the request: its origin, which schedulers charge, and its priority.
    pub attr: Attr,
    /// Time of the answer; `None` if it was not answered yet.
    pub answered: Option<Time>,
}

/// Receiver of the answer to a request.
#[derive(Clone, Debug)]
pub(super) enum AnswerReceiver {
    /// A process, and the name that it gave to the request.
    Process { pid: Pid, name: u64 },
    /// The page cache, for a process that writes these pages of a file.
    Pages { pid: Pid, inode: InodeId, pages: Range<u64> },
}

impl Host {
    pub(super) fn new(parts: &MachineParts, models: &[Model]) -> Result<Self, PartsError> {
        let drive = |(number, model)| Drive::of_member(model, parts.seed, number);
        let drives: Vec<Drive> = (0..).zip(models).map(drive).collect();
        let smallest = drives.iter().map(Drive::capacity).min().unwrap_or_default();
        let size = parts.member_size.unwrap_or(smallest);
        let mut config = new_volumes(parts, &drives, size)?;
        let assembly = config.volumes.first().and_then(|volume| volume.source.assembly());
        let stripes = Stripes::new(parts, assembly);
        let volume_size = assembly.map_or(size, |array| array.layout.array_size()).bytes();
        // Frames are numbers without memory here, so their count is not limited by the memory of
        // this host.
        config.client_frames = u32::MAX / 2;
        config.client_credit = Bytes(u64::MAX / 2);
        let frames = (config.client_frames_first(), config.frames_total());
        let volumes = vec![VolumeUse::default(); config.volumes.len()];
        let mut host = Self {
            now: Time(0),
            engine: Engine::new(config, Time(0))?,
            flush_order: FlushOrder::new(
                parts.knobs.flush_batch,
                drives.iter().map(Drive::volatile_cache),
                volumes.len(),
            ),
            volumes,
            link: None,
            members: drives.into_iter().map(Member::new).collect(),
            costs: parts.costs,
            hops: Hops::new(parts.flush_hop),
            flush_rule: parts.knobs.flush_batch,
            flushes_asked: 0,
            timers: BinaryHeap::new(),
            timers_set: 0,
            engine_free: Time(0),
            inbox: Vec::new(),
            leaving: VecDeque::new(),
            engine_woken: None,
            requests: BTreeMap::new(),
            next_tag: 0,
            next_frame: frames.0,
            frames,
            size: volume_size,
            stripes,
            write_back: parts.write_back.is_some(),
            dirty_pages_max: 0,
            ready: VecDeque::new(),
            failed: 0,
            blocked: BTreeMap::new(),
            turns: BTreeMap::new(),
            next_turn: 0,
            files: None,
            seen: None,
            engine_work: Span::ZERO,
            requests_done: 0,
            bytes_done: Bytes(0),
            history: None,
            asked_bytes: (0, 0),
            classes: BTreeMap::new(),
            faults: None,
            notices: Vec::new(),
            recovered: 0,
        };
        // The engine starts a resync or recovery by itself.
        if let Some(action @ (SyncAction::Check | SyncAction::Repair)) = parts.sync {
            let verb = Verb::SyncAction(action);
            let command = Command { client: ADMIN, tag: Tag(0), volume: VolumeId(0), verb };
            host.inbox.push(Input::Admin(Box::new(command)));
        }
        Ok(host)
    }

    // --- for processes -------------------------------------------------------------------------

    /// Present virtual time of the machine.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now
    }

    /// CPU costs of each kind of work.
    #[must_use]
    pub fn costs(&self) -> &Costs {
        &self.costs
    }

    /// Size in bytes of the volume, or of each of the volumes.
    #[must_use]
    pub fn size(&self) -> Bytes {
        self.size
    }

    /// Submits a request of a process. The process is woken with [`Woken::Done`] of `name` when the
    /// request is answered.
    pub fn submit(&mut self, pid: Pid, name: u64, op: RequestOp, range: ByteRange, flags: Flags) {
        self.submit_to_volume(VolumeId(0), pid, name, op, range, flags);
    }

    /// Variant of [`Host::submit`] for a machine of several volumes.
    pub fn submit_to_volume(
        &mut self,
        volume: VolumeId,
        pid: Pid,
        name: u64,
        op: RequestOp,
        range: ByteRange,
        flags: Flags,
    ) {
        self.request(volume, AnswerReceiver::Process { pid, name }, op, range, flags);
    }

    pub(super) fn request(
        &mut self,
        volume: VolumeId,
        asked: AnswerReceiver,
        op: RequestOp,
        range: ByteRange,
        flags: Flags,
    ) {
        let frames = match op {
            RequestOp::Read | RequestOp::Write => self.take_frames(range),
            _ => Run::EMPTY,
        };
        let (AnswerReceiver::Process { pid, .. } | AnswerReceiver::Pages { pid, .. }) = &asked;
        let pid = *pid;
        let attr = self.attr(pid, op, flags);
        if let Some((_, seen)) = &mut self.seen {
            seen.push(Seen { at: self.now, op, range, flags, attr, answered: None });
        }
        let tag = self.next_tag;
        self.next_tag += 1;
        match op {
            RequestOp::Read => self.asked_bytes.0 += range.len.0,
            RequestOp::Write => self.asked_bytes.1 += range.len.0,
            RequestOp::Flush | RequestOp::Trim | RequestOp::WriteZeroes => {}
        }
        // Each process is a client, so that a write-back cache throttles each separately.
        let client = ClientId(1 + pid.0);
        let request =
            ClientRequest { client, tag: Tag(tag), volume, op, range, frames, flags, attr };
        self.requests.insert(tag, (asked, request));
        self.volumes[volume.index()].asked(self.now);
        self.flushes_asked += u64::from(op == RequestOp::Flush || flags.preflush);
        self.tell_engine(Input::Client(request));
    }

    /// Attributes of a request. As in the kernel, each process is a client of the schedulers, and
    /// writes that no process waits for are background.
    fn attr(&self, pid: Pid, op: RequestOp, flags: Flags) -> Attr {
        let class = self.classes.get(&pid).copied().unwrap_or_default();
        let origin = Origin::Client(ClientId(pid.0), Group::ROOT);
        let waited_for = flags.sync || flags.fua || flags.preflush;
        let background = op == RequestOp::Write && !waited_for;
        Attr { class, origin, background, meta: flags.meta, ..Attr::default() }
    }

    /// Sets the I/O class of a process's requests. Pages that the flusher writes for the process
    /// have the flusher's class.
    pub fn set_class(&mut self, pid: Pid, class: Class) {
        self.classes.insert(pid, class);
    }

    /// Plans faults of members. `seed` determines their random choices.
    pub fn plan_faults(&mut self, planned: Vec<PlannedFault>, seed: u64) {
        self.faults = Some(Box::new(Faults::new(planned, seed)));
    }

    /// Congestion of the stripe cache; a disk without an array is never congested. With a
    /// write-back cache there is no congestion, because writers wait for the answers of that cache
    /// and never for stripes.
    #[must_use]
    pub fn congestion(&self) -> Congestion {
        if self.write_back { Congestion::None } else { self.engine.congestion(VolumeId(0)) }
    }

    /// Whether a call that submits another request would block. If so, the process is woken when
    /// stripes are free again.
    ///
    /// md's callers take the stripes of their writes themselves. Here the engine takes them, so
    /// writes that it has not received yet, because it is still busy, count as if it had taken
    /// their stripes.
    pub fn would_block(&mut self, pid: Pid) -> bool {
        if self.write_back {
            return false;
        }
        if self.engine_free > self.now && self.stripes_wanted() >= self.stripes_free() {
            self.wait_turn(pid);
            return true;
        }
        let turn = self.turns.get(&pid).copied().unwrap_or(self.next_turn);
        if self.blocks(pid) {
            return true;
        }
        // The process that has waited longer goes first.
        if self.blocked.first_key_value().is_none_or(|(other, _)| turn < *other) {
            return false;
        }
        self.wait_turn(pid);
        self.wake_blocked();
        true
    }

    /// Upper bound of the stripes that will be needed by writes which the engine has not received
    /// yet.
    fn stripes_wanted(&self) -> u64 {
        let stripes = self.inbox.iter().map(|input| match input {
            Input::Client(request) if request.op == RequestOp::Write => {
                self.stripes.stripes_of(request.range)
            }
            _ => 0,
        });
        stripes.sum()
    }

    fn stripes_free(&self) -> u64 {
        let active = self.engine.stripe_cache_active(VolumeId(0));
        self.stripes.stripes.saturating_sub(u64::from(active))
    }

    /// Whether a process that has just submitted a request is blocked, as md blocks its callers. If
    /// so, the process is woken when stripes are free again, in order of arrival. A process that is
    /// woken and finds no free stripe keeps its place in the queue.
    pub fn blocks(&mut self, pid: Pid) -> bool {
        if self.congestion() < Congestion::Blocked {
            self.turns.remove(&pid);
            return false;
        }
        self.wait_turn(pid);
        true
    }

    /// Lets blocked processes run before those that were answered at this time, which would
    /// otherwise take the stripes again each time.
    fn wake_blocked(&mut self) {
        while let Some((_, pid)) = self.blocked.pop_last() {
            self.ready.push_front((pid, Woken::Unblocked));
        }
    }

    fn wait_turn(&mut self, pid: Pid) {
        let turn = *self.turns.entry(pid).or_insert(self.next_turn);
        self.next_turn += 1;
        self.blocked.insert(turn, pid);
    }

    /// Wakes a process at the time `at`, or now if `at` has passed.
    pub fn wake_at(&mut self, pid: Pid, at: Time) {
        self.timers_set += 1;
        self.timers.push(Reverse((at.max(self.now), self.timers_set, pid)));
    }

    /// Wakes another process now, with a message that it receives as [`Woken::Message`].
    pub fn tell(&mut self, pid: Pid, message: u64) {
        self.ready.push_back((pid, Woken::Message(message)));
    }
}
