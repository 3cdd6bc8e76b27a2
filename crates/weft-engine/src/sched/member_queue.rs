//! Queue of one member: merging, plug, scheduler and depth between a decision and the member.
//!
//! ```text
//! staged by a turn ─merge─▶ plug list ─unplug─▶ token ─▶ scheduler ─depth─▶ command at the member
//!                                         └───▶ direct (flush, FUA, superblocks)
//! ```
//!
//! A request in a scheduler holds one of `nr_requests` tokens until the member has ended it. What
//! finds none waits in order of arrival, in which it can still become a part of a queued request.
//! With mq-deadline writes and discards hold at most `async_depth` of them, so that reads find one
//! though writes do not. Linux sets `async_depth` to the former `nr_requests` whenever the latter
//! is written, and so starves writes by accident; here it follows `nr_requests` until it is set.
//! With bfq there are as many tokens as anybody asks for, unless `nr_requests` is set: they are
//! given in order of arrival, which undoes weights. Linux has no choice, for its tags are a table:
//! so its BFQ limits background writes to half of them, sync writes to three quarters, and each
//! queue to its share by weight, beyond which whoever fills it sleeps. None of these limits is
//! here: with no bound there is nothing to share, and what a client may have outstanding is bounded
//! by its credit, in bytes. Under a bound that somebody sets, `nr_requests`, weights suffer.
//!
//! With the scheduler `none` and no bound on the depth nothing ever waits, and requests do not come
//! here: they go out as they are staged ([`MemberQueue::passes`]). Otherwise a command is made of
//! one or more requests at dispatch, when the member has room for it; its token is given then.
//!
//! Flushes, superblocks and FUA writes to a member with a write cache pass the scheduler by, as in
//! the kernel, and take nothing with them: the sender has waited for whatever they cover. A member
//! without a write cache has nothing to flush: such a flush takes no room at it. Where a flush is
//! no queued command (SATA, [`DeviceTraits::flush_queueable`]) it is at the member alone, and
//! requests gather in the scheduler meanwhile. (libata defers them, and a scheduler is not asked
//! while a request is deferred. The one request more that the kernel has taken from it by then
//! stays here.)
//!
//! In 2008 a queue that was empty kept what came (it was *plugged*) until four requests were in it,
//! until 3 ms had passed, until its member had ended a command, or until whoever brought it was
//! done: raid5d was when no stripe was left to handle. So stripes that were handled one after the
//! other became one request though the disk had nothing to do.
//!
//! Knobs    `scheduler` and those of each, `queue_depth`, `nr_requests`, `max_sectors_kb`,
//!          `nomerges`, `rotational`; with `stripe_cache_form=2008` queues are plugged
//! Source   io-schedulers.md §0, §1.6, §7; `unplug_thresh` and `unplug_delay` of Linux 2.6.24

use std::collections::VecDeque;

use smallvec::SmallVec;
use weft_units::{Bytes, Sectors, Span, Time};

use super::Scheduler;
use super::bfq::BfqStats;
use super::merge::{self, Last};
use super::request::{Direction, QueuedRequest, Receipt};
use crate::contract::frame::{Segment, Segments};
use crate::contract::input::Attr;
use crate::contract::member::DeviceTraits;
use crate::contract::output::MemberOp;
use crate::knobs::{BfqKnobs, CacheForm, Knobs, MqDeadlineKnobs, NoMerges, SchedulerKind};

/// Settings of the queues of a volume's members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueSettings {
    pub(crate) scheduler: SchedulerKind,
    pub(crate) bfq: BfqKnobs,
    pub(crate) mq_deadline: MqDeadlineKnobs,
    /// Largest command that merging makes.
    pub(crate) max: Sectors,
    pub(crate) nomerges: NoMerges,
    /// Commands at the member at once; zero for as many as its device takes.
    pub(crate) depth: u32,
    /// Tokens; zero for the kernel's own number.
    pub(crate) nr_requests: u32,
    /// Whether the device is taken to turn; `None` for what it says.
    pub(crate) rotational: Option<bool>,
    /// Whether an empty queue is plugged.
    pub(crate) plugs: bool,
}

impl QueueSettings {
    /// As a volume's knobs say.
    pub(crate) fn of(knobs: &Knobs) -> Self {
        Self {
            scheduler: knobs.scheduler,
            bfq: knobs.bfq,
            mq_deadline: knobs.mq_deadline,
            max: knobs.max_sectors.sectors_floor(),
            nomerges: knobs.nomerges,
            depth: knobs.queue_depth,
            nr_requests: knobs.nr_requests,
            rotational: knobs.rotational,
            plugs: knobs.stripe_cache_form == CacheForm::Of2008
                && knobs.scheduler != SchedulerKind::None,
        }
    }
}

/// The queue of one member; `T` is who is to be told of a request.
#[derive(Clone, Debug)]
pub(crate) struct MemberQueue<T> {
    passes: bool,
    /// The last read and the last write that were staged.
    pub(crate) last: [Last; 2],
    /// Traits of the device as it was found.
    found: DeviceTraits,
    /// The same, as the knobs have them.
    device: DeviceTraits,
    settings: QueueSettings,
    depth: u32,
    /// Commands at the member.
    in_flight: u32,
    /// The member has a flush, and takes nothing beside it.
    flushing: bool,
    tokens: Tokens,
    scheduler: Scheduler,
    /// End of the plug.
    plugged: Option<Time>,
    /// The plug list: what turns staged, in order.
    staged: Vec<u32>,
    /// Requests that pass the scheduler by.
    direct: VecDeque<u32>,
    /// Flushes of a member that has nothing to flush.
    needless: VecDeque<u32>,
    /// Reads and writes that found no token, with their numbers of arrival.
    tokenless: [VecDeque<(u64, u32)>; 2],
    /// What waits, with its number of arrival.
    requests: Vec<Option<(u64, Waiting<T>)>>,
    free: Vec<u32>,
    arrivals: u64,
    /// What the last command of the scheduler is made of.
    sent: Vec<u64>,
}

/// Tokens of the requests in a scheduler and at the member, by direction.
#[derive(Clone, Copy, Debug, Default)]
struct Tokens {
    all: u32,
    /// Those that are not for reads alone.
    writes: u32,
    queued: [u32; 2],
    sent: [u32; 2],
}

impl Tokens {
    /// Whether there is one for a request.
    fn left(&self, direction: Direction) -> bool {
        let held = |of: Direction| self.queued[of as usize] + self.sent[of as usize];
        let writes = held(Direction::Write);
        held(Direction::Read) + writes < self.all
            && (direction == Direction::Read || writes < self.writes)
    }
}

/// A request that is not at the member yet.
#[derive(Clone, Debug)]
pub(crate) struct Waiting<T> {
    pub(crate) op: MemberOp,
    pub(crate) attr: Attr,
    pub(crate) owner: T,
    /// Time of staging.
    pub(crate) since: Time,
}

/// Command for the member.
#[derive(Clone, Debug)]
pub(crate) struct QueueCommand<T> {
    pub(crate) op: MemberOp,
    pub(crate) attr: Attr,
    /// Of each request that it is made of, by place.
    pub(crate) owners: SmallVec<[T; 1]>,
    /// Whether the queue counts it until [`MemberQueue::ended`].
    pub(crate) takes_room: bool,
    /// The scheduler's name for it, if it comes from there.
    pub(crate) scheduled: Option<Receipt>,
}

impl<T> MemberQueue<T> {
    /// An empty queue with the scheduler `none`.
    pub(crate) fn new(device: DeviceTraits) -> Self {
        let mut queue = Self {
            passes: true,
            last: [Last::none(Bytes(u64::MAX)); 2],
            found: device,
            device,
            settings: QueueSettings {
                scheduler: SchedulerKind::None,
                bfq: BfqKnobs::default(),
                mq_deadline: MqDeadlineKnobs::default(),
                max: Sectors::ZERO,
                nomerges: NoMerges::Allowed,
                depth: 0,
                nr_requests: 0,
                rotational: None,
                plugs: false,
            },
            depth: u32::MAX,
            in_flight: 0,
            flushing: false,
            tokens: Tokens::default(),
            scheduler: Scheduler::default(),
            plugged: None,
            staged: Vec::new(),
            direct: VecDeque::new(),
            needless: VecDeque::new(),
            tokenless: [VecDeque::new(), VecDeque::new()],
            requests: Vec::new(),
            free: Vec::new(),
            arrivals: 0,
            sent: Vec::new(),
        };
        queue.set_depth();
        queue
    }

    /// Whether requests need not come here at all.
    #[inline]
    pub(crate) fn passes(&self) -> bool {
        self.passes
    }

    /// Changes how it is set. What waits is queued anew, for as long as it has waited; commands at
    /// the member, of which there are `in_flight`, are none of another scheduler's.
    pub(crate) fn configure(&mut self, settings: QueueSettings, in_flight: u32) {
        let waiting = self.take_waiting();
        assert!(self.is_empty() && self.scheduler.is_empty(), "nothing waits twice");
        self.settings = settings;
        self.in_flight = in_flight;
        self.flushing &= in_flight > 0;
        self.tokens = Tokens::default();
        self.plugged = None;
        let rotational = settings.rotational.unwrap_or(self.found.rotational);
        self.device = DeviceTraits { rotational, ..self.found };
        self.scheduler = Scheduler::new(&settings, self.device);
        let largest = match settings.nomerges {
            NoMerges::Never => Bytes::ZERO,
            NoMerges::Allowed | NoMerges::LastOnly => settings.max.bytes(),
        };
        self.last = [Last::none(largest); 2];
        self.set_depth();
        waiting.into_iter().for_each(|request| self.put_back(request));
    }

    /// Requests that the member has at once; `None`: all that there are.
    pub(crate) fn depth(&self) -> Option<u32> {
        Some(self.depth).filter(|depth| *depth < u32::MAX)
    }

    /// Settings of the queue.
    pub(crate) fn settings(&self) -> &QueueSettings {
        &self.settings
    }

    fn set_depth(&mut self) {
        let QueueSettings { scheduler, depth, nr_requests, mq_deadline, .. } = self.settings;
        let none = scheduler == SchedulerKind::None;
        // What a kernel keeps in front of a device waits there as well as here.
        let most = self.device.depth.filter(|_| !self.device.host_queue).unwrap_or(u32::MAX);
        self.depth = match (depth, self.device.depth) {
            (0, _) if none => most,
            (0, device) => device.unwrap_or(DEPTH_UNKNOWN),
            (depth, _) => depth.min(most),
        };
        // Without a scheduler a request is a command.
        if none && nr_requests > 0 {
            self.depth = self.depth.min(nr_requests);
        }
        assert!(self.depth > 0, "a queue sends something");
        self.tokens.all = match nr_requests {
            _ if none => u32::MAX,
            // Who asks for much would take all tokens, and leave no share to be given.
            0 if scheduler == SchedulerKind::Bfq => u32::MAX,
            0 => 2 * self.depth.min(TOKENS_DEPTH_MAX),
            count => count,
        };
        self.tokens.writes = match (scheduler, mq_deadline.async_depth) {
            (SchedulerKind::MqDeadline, depth) if depth > 0 => depth,
            _ => u32::MAX,
        };
        self.passes = none && self.depth == u32::MAX && self.device.flush_queueable;
    }

    /// The place of the next request that is staged.
    pub(crate) fn next_place(&self) -> usize {
        self.free.last().map_or(self.requests.len(), |place| *place as usize)
    }

    /// Takes a request; it is queued by [`MemberQueue::unplug`].
    pub(crate) fn stage(&mut self, request: Waiting<T>) {
        let place = self.put(request);
        self.staged.push(place);
    }

    fn put(&mut self, request: Waiting<T>) -> u32 {
        self.arrivals += 1;
        let request = Some((self.arrivals, request));
        if let Some(place) = self.free.pop() {
            self.requests[place as usize] = request;
            return place;
        }
        self.requests.push(request);
        self.requests.len() as u32 - 1
    }

    /// Adds parts to the end of a request that is staged. Who is to be told of it.
    pub(crate) fn append(&mut self, place: usize, new: &[Segment]) -> &mut T {
        let Some(Some((_, Waiting { op, owner, .. }))) = self.requests.get_mut(place) else {
            unreachable!("what a turn staged stays staged until it ends")
        };
        let parts = parts_mut(op).expect("only reads and writes are merged");
        new.iter().for_each(|part| merge::append(parts, *part));
        owner
    }

    /// Queues what was staged.
    pub(crate) fn unplug(&mut self, now: Time) {
        let mut staged = std::mem::take(&mut self.staged);
        for place in staged.drain(..) {
            self.insert(place, now);
        }
        self.staged = staged;
    }

    fn insert(&mut self, place: u32, now: Time) {
        let cached = self.device.write_cache;
        let (arrival, Waiting { op, attr, .. }) = self.waiting_at(place);
        let (direct, arrival) = match op {
            MemberOp::Flush if !cached => {
                self.needless.push_back(place);
                return;
            }
            MemberOp::Flush | MemberOp::WriteMetadata { .. } => (cached, *arrival),
            MemberOp::Write { fua, .. } | MemberOp::Discard { fua, .. } => {
                (*fua && cached, *arrival)
            }
            MemberOp::Read { .. } => (false, *arrival),
        };
        if direct {
            self.plugged = None;
            self.direct.push_back(place);
            return;
        }
        let request = scheduled(place, op, *attr);
        let direction = request.direction;
        let waits = &self.tokenless[direction as usize];
        if waits.is_empty() && self.tokens.left(direction) {
            if self.settings.plugs && self.scheduler.is_empty() {
                self.plugged = Some(now + UNPLUG_DELAY);
            }
            self.schedule(&request, now);
            if self.scheduler.waiting() >= UNPLUG_REQUESTS {
                self.plugged = None;
            }
            return;
        }
        self.plugged = None;
        let before = self.scheduler.waiting();
        if self.scheduler.merge(&request) {
            self.count(direction, before);
        } else {
            self.tokenless[direction as usize].push_back((arrival, place));
        }
    }

    fn waiting_at(&self, place: u32) -> &(u64, Waiting<T>) {
        self.requests[place as usize].as_ref().expect("what is staged waits")
    }

    /// Gives the scheduler a request that has a token.
    fn schedule(&mut self, request: &QueuedRequest, now: Time) {
        let before = self.scheduler.waiting();
        self.scheduler.insert(request, now);
        self.count(request.direction, before);
    }

    /// Counts tokens after one request: it has its own, or became a part of a queued one, or made
    /// two queued ones one.
    fn count(&mut self, direction: Direction, waited: usize) {
        let queued = &mut self.tokens.queued[direction as usize];
        *queued = *queued + self.scheduler.waiting() as u32 - waited as u32;
    }

    /// Gives tokens that are left to requests that wait for one, the first that came first.
    fn give_tokens(&mut self, now: Time) {
        let Self { tokenless: [reads, writes], .. } = self;
        if reads.is_empty() && writes.is_empty() {
            return;
        }
        loop {
            let first = [Direction::Read, Direction::Write]
                .into_iter()
                .filter(|direction| self.tokens.left(*direction))
                .filter_map(|of| self.tokenless[of as usize].front().map(|(came, _)| (*came, of)))
                .min();
            let Some((_, direction)) = first else { return };
            let Some((_, place)) = self.tokenless[direction as usize].pop_front() else { return };
            let (_, Waiting { op, attr, .. }) = self.waiting_at(place);
            let request = scheduled(place, op, *attr);
            self.schedule(&request, now);
        }
    }

    /// Whoever brought requests is done.
    pub(crate) fn end_plug(&mut self) {
        self.plugged = None;
    }

    /// The next command for the member, if it has room for one.
    pub(crate) fn dispatch(&mut self, now: Time) -> Option<QueueCommand<T>> {
        if let Some(place) = self.needless.pop_front() {
            return Some(self.command(&[u64::from(place)], None, false));
        }
        if self.plugged.is_some_and(|until| now < until) {
            return None;
        }
        self.plugged = None;
        if !self.has_room() {
            self.scheduler.on_full_member(now);
            return None;
        }
        self.give_tokens(now);
        let command = if let Some(place) = self.direct.pop_front() {
            self.flushing = !self.device.flush_queueable;
            self.command(&[u64::from(place)], None, true)
        } else {
            let next = self.scheduler.dispatch(now)?;
            self.tokens.queued[next.direction as usize] -= 1;
            self.tokens.sent[next.direction as usize] += 1;
            let mut ids = std::mem::take(&mut self.sent);
            ids.clear();
            ids.extend_from_slice(self.scheduler.sent());
            let command = self.command(&ids, Some(next.receipt), true);
            self.sent = ids;
            command
        };
        self.in_flight += 1;
        assert!(self.in_flight <= self.depth, "a member gets no more than its depth");
        Some(command)
    }

    /// Whether the member takes a command. What passes the scheduler by is a flush or ends with
    /// one: where that is no queued command it waits until the member has nothing, and what comes
    /// from the scheduler waits for it.
    fn has_room(&self) -> bool {
        let alone = !self.direct.is_empty() && !self.device.flush_queueable;
        !self.flushing && self.in_flight < if alone { 1 } else { self.depth }
    }

    fn command(
        &mut self,
        ids: &[u64],
        scheduled: Option<Receipt>,
        takes_room: bool,
    ) -> QueueCommand<T> {
        let mut ids = ids.iter().map(|id| *id as u32);
        let first = self.take(ids.next().expect("a command is made of requests"));
        let Waiting { mut op, attr, owner, .. } = first;
        let mut owners = SmallVec::new();
        owners.push(owner);
        for id in ids {
            let mut next = self.take(id);
            let (Some(parts), Some(more)) = (parts_mut(&mut op), parts_mut(&mut next.op)) else {
                unreachable!("only reads and writes are merged")
            };
            more.iter().for_each(|part| merge::append(parts, *part));
            if let (MemberOp::Write { fua, .. }, MemberOp::Write { fua: also, .. }) =
                (&mut op, &next.op)
            {
                *fua |= *also;
            }
            owners.push(next.owner);
        }
        QueueCommand { op, attr, owners, takes_room, scheduled }
    }

    fn take(&mut self, place: u32) -> Waiting<T> {
        self.free.push(place);
        self.requests[place as usize].take().expect("what is queued waits").1
    }

    /// The member has ended a command.
    #[inline(always)]
    pub(crate) fn ended(&mut self, scheduled: Option<Receipt>, write: bool, now: Time) {
        if !self.passes {
            self.makes_room(scheduled, write, now);
        }
    }

    #[inline(never)]
    fn makes_room(&mut self, scheduled: Option<Receipt>, write: bool, now: Time) {
        self.plugged = None;
        assert!(self.in_flight > 0, "a command ends once");
        self.in_flight -= 1;
        self.flushing &= self.in_flight > 0;
        if let Some(receipt) = scheduled {
            let sent = &mut self.tokens.sent[usize::from(write)];
            assert!(*sent > 0, "a request of a scheduler holds a token");
            *sent -= 1;
            self.scheduler.completed(receipt, now);
        }
    }

    /// When there may be something to dispatch though no command ends.
    pub(crate) fn next_wake(&self, now: Time) -> Option<Time> {
        if self.plugged.is_some() {
            return self.plugged;
        }
        self.scheduler.next_wake(now).filter(|_| self.has_room())
    }

    /// Reasons of the decisions of `bfq`, where that is the scheduler.
    pub(crate) fn bfq_stats(&self) -> Option<&BfqStats> {
        self.scheduler.bfq_stats()
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.free.len() == self.requests.len()
    }

    /// Requests that wait.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Waiting<T>> {
        self.requests.iter().flatten().map(|(_, request)| request)
    }

    /// Everything that waits, which waits here no more, in the order in which it was staged.
    pub(crate) fn take_waiting(&mut self) -> Vec<Waiting<T>> {
        self.scheduler.clear_waiting();
        self.tokens.queued = [0, 0];
        self.tokenless.iter_mut().for_each(VecDeque::clear);
        self.staged.clear();
        self.direct.clear();
        self.needless.clear();
        self.free.clear();
        let mut waiting: Vec<(u64, Waiting<T>)> = self.requests.drain(..).flatten().collect();
        waiting.sort_unstable_by_key(|(arrival, _)| *arrival);
        waiting.into_iter().map(|(_, request)| request).collect()
    }

    /// Loses the last of what waits: a planted bug.
    pub(crate) fn forget_last(&mut self) {
        let waiting = self.take_waiting();
        let kept = waiting.len().saturating_sub(1);
        waiting.into_iter().take(kept).for_each(|request| self.put_back(request));
    }

    /// Lets BFQ forget a queue that has requests: a planted bug.
    pub(crate) fn starve_one(&mut self) {
        if let Scheduler::Bfq(queues) = &mut self.scheduler {
            queues.forget_first();
        }
    }

    /// Queues a request that was taken out, as if it had never been.
    pub(crate) fn put_back(&mut self, request: Waiting<T>) {
        let since = request.since;
        let place = self.put(request);
        self.insert(place, since);
    }
}

/// A request as schedulers see it.
fn scheduled(place: u32, op: &MemberOp, attr: Attr) -> QueuedRequest {
    let (direction, first, len, merges) = match op {
        MemberOp::Read { at, into } => (Direction::Read, *at, length(into), true),
        MemberOp::Write { at, from, .. } => (Direction::Write, *at, length(from), true),
        MemberOp::WriteMetadata { at, bytes } => {
            let len = Sectors((bytes.len() as u64).div_ceil(512));
            (Direction::Write, *at, len, false)
        }
        MemberOp::Discard { at, len, .. } => (Direction::Write, *at, *len, false),
        MemberOp::Flush => unreachable!("a flush passes the scheduler by"),
    };
    assert!(len > Sectors::ZERO, "a request moves something");
    QueuedRequest { id: u64::from(place), direction, attr, first, len, merges }
}

/// The parts of a read or write.
fn parts_mut(op: &mut MemberOp) -> Option<&mut Segments> {
    match op {
        MemberOp::Read { into: parts, .. } | MemberOp::Write { from: parts, .. } => Some(parts),
        MemberOp::Discard { .. } | MemberOp::Flush | MemberOp::WriteMetadata { .. } => None,
    }
}

fn length(parts: &Segments) -> Sectors {
    let bytes: u64 = parts.iter().map(|part| u64::from(part.len)).sum();
    Sectors(bytes.div_ceil(512))
}

/// Commands at a member at once, when a scheduler has to have something to choose from and the
/// device does not say how many it takes: as many as a SATA disk.
const DEPTH_UNKNOWN: u32 = 32;

/// Depth of which the default of `nr_requests` is twice, at most.
const TOKENS_DEPTH_MAX: u32 = 128;

/// `unplug_thresh` and `unplug_delay` of a queue in 2.6.24.
const UNPLUG_REQUESTS: usize = 4;
const UNPLUG_DELAY: Span = Span::millis(3);

#[cfg(test)]
mod tests;
