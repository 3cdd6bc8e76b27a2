//! Queue of one member: merging, plug, scheduler and queue depth, between staging and the member.
//!
//! ```text
//! staged by a turn ─merge─▶ plug list ─unplug─▶ token ─▶ scheduler ─depth─▶ command at the member
//!                                         └───▶ direct (flush, FUA, superblocks)
//! ```
//!
//! A request in a scheduler holds one of `nr_requests` tokens until the member has completed it.
//! Requests that find no token wait in order of arrival, and can still be merged into a queued
//! request. With mq-deadline, writes and discards hold at most `async_depth` tokens, so that reads
//! find a token even when writes do not; with kyber, they hold at most three quarters. (Linux
//! applies these limits to asynchronous requests only.) Whenever `nr_requests` is written, Linux
//! sets `async_depth` to the value that `nr_requests` had before, and so starves writes by
//! accident; here `async_depth` follows `nr_requests` until it is set itself.
//!
//! With BFQ the number of tokens is unlimited unless `nr_requests` is set, because tokens are given
//! in order of arrival, which defeats weights. Linux has a fixed table of tags instead. Its BFQ
//! therefore limits background writes to half of the tags, sync writes to three quarters, and each
//! queue to its share by weight, beyond which the submitter sleeps. weft needs none of these
//! limits: unlimited tokens need not be shared, and the credit of a client bounds its outstanding
//! bytes. If an administrator sets `nr_requests`, weights have less effect.
//!
//! With the scheduler `none` and no limit on the depth no request ever waits, and requests bypass
//! this queue: they are sent as they are staged ([`MemberQueue::passes`]). Otherwise a command is
//! formed from one or more requests at dispatch, when the member has room for it, and its `Token`
//! is allocated then.
//!
//! Flushes, superblock writes, and FUA writes to a member with a write cache bypass the scheduler,
//! as in the kernel, and do not make queued requests go first: the sender has already waited for
//! all writes that they cover. A member without a write cache has nothing to flush, so a flush does
//! not count against its depth. If a flush is not a queued command (SATA,
//! [`DeviceTraits::flush_queueable`]), it is the only command at the member, and requests gather in
//! the scheduler in the meantime. (libata defers such commands, and the kernel does not ask a
//! scheduler while a request is deferred. The one additional request that the kernel has taken from
//! the scheduler by then stays in the scheduler here.)
//!
//! Linux 2.6.24 *plugged* an empty queue: the queue held its requests until four were queued, 3 ms
//! had passed, the member had completed a command, or the submitter unplugged it. raid5d unplugged
//! it when no stripe was left to handle. Stripes handled one after the other thus became one
//! request even on an idle disk.
//!
//! Knobs    `scheduler` and the knobs of each scheduler, `queue_depth`, `nr_requests`,
//!          `max_sectors_kb`, `nomerges`, `rotational`; `stripe_cache_form=2008` plugs queues
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
use crate::contract::turn::TokenWaits;
use crate::knobs::{
    BfqKnobs, CacheForm, Knobs, KyberKnobs, MqDeadlineKnobs, NoMerges, SchedulerKind,
};

/// Settings of a member's queue, from the knobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueSettings {
    pub(crate) scheduler: SchedulerKind,
    pub(crate) bfq: BfqKnobs,
    pub(crate) kyber: KyberKnobs,
    pub(crate) mq_deadline: MqDeadlineKnobs,
    /// Largest command that merging may produce.
    pub(crate) max: Sectors,
    pub(crate) nomerges: NoMerges,
    /// Largest number of commands in flight at the member; zero: as many as its device accepts.
    pub(crate) depth: u32,
    /// Number of tokens; zero for the default of the kernel.
    pub(crate) nr_requests: u32,
    /// Whether to treat the device as rotational; `None`: as the device reports.
    pub(crate) rotational: Option<bool>,
    /// Whether an empty queue holds its first requests back for a short time, as in Linux 2.6.24.
    pub(crate) plugs: bool,
}

impl QueueSettings {
    /// Takes the settings from the knobs of a volume or member.
    pub(crate) fn of(knobs: &Knobs) -> Self {
        Self {
            scheduler: knobs.scheduler,
            bfq: knobs.bfq,
            kyber: knobs.kyber,
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

/// Queue of one member. `T` identifies the owner of a request, which is notified when it completes.
#[derive(Clone, Debug)]
pub(crate) struct MemberQueue<T> {
    passes: bool,
    /// Last read and last write of the turn. Later requests of the same turn may be merged into
    /// them.
    pub(crate) last: [Last; 2],
    /// Traits of the device as the driver reported them.
    found: DeviceTraits,
    /// Traits of the device, with knobs that override them applied.
    device: DeviceTraits,
    settings: QueueSettings,
    depth: u32,
    /// Number of commands in flight at the member.
    in_flight: u32,
    /// Whether a flush is in flight at a member that accepts no other command during a flush.
    flushing: bool,
    tokens: Tokens,
    scheduler: Scheduler,
    /// Latest time at which the queue begins to dispatch; `None` if it is not plugged, that is,
    /// does not hold its requests back.
    plugged: Option<Time>,
    /// Requests of the current turn, in order, which are queued when it ends.
    staged: Vec<u32>,
    /// Requests that bypass the scheduler.
    direct: VecDeque<u32>,
    /// Flushes to a member that has no write cache; they are answered without being sent.
    needless: VecDeque<u32>,
    /// Reads and writes that wait for a token, each with its arrival number.
    tokenless: [VecDeque<(u64, u32)>; 2],
    /// Number of requests so far that found no token and had to wait for one.
    token_waits: u64,
    /// Waiting requests with their arrival numbers, by the index that identifies them.
    requests: Vec<Option<(u64, Waiting<T>)>>,
    free: Vec<u32>,
    arrivals: u64,
    /// Identifiers of the requests in the last command that the scheduler dispatched.
    sent: Vec<u64>,
}

/// Tokens held by requests in the scheduler (`queued`) and at the member (`sent`), by direction.
#[derive(Clone, Copy, Debug, Default)]
struct Tokens {
    all: u32,
    /// Number of tokens that writes may hold.
    writes: u32,
    queued: [u32; 2],
    sent: [u32; 2],
}

impl Tokens {
    /// Whether a token is available for a request in this direction.
    fn left(&self, direction: Direction) -> bool {
        let held = |of: Direction| self.queued[of as usize] + self.sent[of as usize];
        let writes = held(Direction::Write);
        held(Direction::Read) + writes < self.all
            && (direction == Direction::Read || writes < self.writes)
    }
}

/// Request that has not been sent to the member yet.
#[derive(Clone, Debug)]
pub(crate) struct Waiting<T> {
    pub(crate) op: MemberOp,
    pub(crate) attr: Attr,
    pub(crate) owner: T,
    /// Time at which the request arrived at the queue.
    pub(crate) since: Time,
}

/// Command for the member, formed from one or more requests.
#[derive(Clone, Debug)]
pub(crate) struct QueueCommand<T> {
    pub(crate) op: MemberOp,
    pub(crate) attr: Attr,
    /// Owners of the requests in the command, in order of sectors.
    pub(crate) owners: SmallVec<[T; 1]>,
    /// Whether the command counts against the queue depth until [`MemberQueue::ended`] is called
    /// for it.
    pub(crate) takes_room: bool,
    /// Receipt of the scheduler; `None` if the command bypassed it.
    pub(crate) scheduled: Option<Receipt>,
}

impl<T> MemberQueue<T> {
    /// Creates an empty queue with the scheduler `none`.
    pub(crate) fn new(device: DeviceTraits) -> Self {
        let mut queue = Self {
            passes: true,
            last: [Last::none(Bytes(u64::MAX)); 2],
            found: device,
            device,
            settings: QueueSettings {
                scheduler: SchedulerKind::None,
                bfq: BfqKnobs::default(),
                kyber: KyberKnobs::default(),
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
            token_waits: 0,
            requests: Vec::new(),
            free: Vec::new(),
            arrivals: 0,
            sent: Vec::new(),
        };
        queue.set_depth();
        queue
    }

    /// Whether requests bypass this queue.
    #[inline]
    pub(crate) fn passes(&self) -> bool {
        self.passes
    }

    /// Changes the settings. Waiting requests are queued again, and keep their time of staging. The
    /// `in_flight` commands at the member belong to no scheduler from then on.
    pub(crate) fn configure(&mut self, settings: QueueSettings, in_flight: u32) {
        let waiting = self.take_waiting();
        assert!(self.is_empty() && self.scheduler.is_empty(), "all requests were removed");
        self.settings = settings;
        self.in_flight = in_flight;
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

    /// Largest number of commands in flight at the member; `None` if there is no limit.
    pub(crate) fn depth(&self) -> Option<u32> {
        Some(self.depth).filter(|depth| *depth < u32::MAX)
    }

    pub(crate) fn settings(&self) -> &QueueSettings {
        &self.settings
    }

    fn set_depth(&mut self) {
        let QueueSettings { scheduler, depth, nr_requests, mq_deadline, .. } = self.settings;
        let none = scheduler == SchedulerKind::None;
        // If the device has a queue in the host's kernel, a command can wait there as well as here.
        let most = self.device.depth.filter(|_| !self.device.host_queue).unwrap_or(u32::MAX);
        self.depth = match (depth, self.device.depth) {
            (0, _) if none => most,
            (0, device) => device.unwrap_or(DEPTH_UNKNOWN),
            (depth, _) => depth.min(most),
        };
        // Without a scheduler, each request is a command.
        if none && nr_requests > 0 {
            self.depth = self.depth.min(nr_requests);
        }
        assert!(self.depth > 0, "a queue has a depth");
        self.tokens.all = match (scheduler, nr_requests) {
            // A client with many requests would take all tokens and leave no share to distribute.
            (SchedulerKind::None, _) | (SchedulerKind::Bfq, 0) => u32::MAX,
            (SchedulerKind::MqDeadline | SchedulerKind::Kyber, 0) => {
                2 * self.depth.min(TOKENS_DEPTH_MAX)
            }
            (_, count) => count,
        };
        self.tokens.writes = match scheduler {
            SchedulerKind::MqDeadline if mq_deadline.async_depth > 0 => mq_deadline.async_depth,
            SchedulerKind::Kyber => self.tokens.all * 3 / 4,
            SchedulerKind::None | SchedulerKind::MqDeadline | SchedulerKind::Bfq => u32::MAX,
        };
        self.passes = none && self.depth == u32::MAX && self.device.flush_queueable;
    }

    /// Index that the next request of the current turn will get.
    pub(crate) fn next_place(&self) -> usize {
        self.free.last().map_or(self.requests.len(), |place| *place as usize)
    }

    /// Adds a request of the current turn, which the next [`MemberQueue::unplug`] queues.
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

    /// Appends segments to a request of the current turn. Returns its owner, to which the caller
    /// adds the new part.
    pub(crate) fn append(&mut self, place: usize, new: &[Segment]) -> &mut T {
        let Some(Some((_, Waiting { op, owner, .. }))) = self.requests.get_mut(place) else {
            unreachable!("a staged request stays staged until its turn ends")
        };
        let parts = parts_mut(op).expect("only reads and writes are merged");
        new.iter().for_each(|part| merge::append(parts, *part));
        owner
    }

    /// Passes the requests of the ended turn on to the scheduler, or lets them wait for a token or
    /// bypass the scheduler.
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
            self.token_waits += 1;
        }
    }

    fn waiting_at(&self, place: u32) -> &(u64, Waiting<T>) {
        self.requests[place as usize].as_ref().expect("a staged request waits")
    }

    /// Passes a request, for which there is a token, to the scheduler.
    fn schedule(&mut self, request: &QueuedRequest, now: Time) {
        let before = self.scheduler.waiting();
        self.scheduler.insert(request, now);
        self.count(request.direction, before);
    }

    /// Updates the number of tokens that queued requests hold, after a request was passed to the
    /// scheduler, which held `waited` requests before. The request now holds a token, was merged
    /// into a queued request, or has joined two queued requests.
    fn count(&mut self, direction: Direction, waited: usize) {
        let queued = &mut self.tokens.queued[direction as usize];
        *queued = *queued + self.scheduler.waiting() as u32 - waited as u32;
    }

    /// Passes requests that wait for a token to the scheduler, in order of arrival, as long as
    /// tokens are available.
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

    /// Ends the plug. Requests are dispatched from now on, because the submitter has no further
    /// requests that could be merged with them.
    pub(crate) fn end_plug(&mut self) {
        self.plugged = None;
    }

    /// Returns the next command for the member; `None` if the member has no room for one, or no
    /// request may be dispatched.
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
        assert!(self.in_flight <= self.depth, "a member gets no more commands than its depth");
        Some(command)
    }

    /// Whether the member accepts a command. A flush that is not a queued command waits until the
    /// member is idle, and requests in the scheduler wait for the flush. Requests that bypass the
    /// scheduler are flushes, or durable writes, which end with a flush.
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
        self.requests[place as usize].take().expect("a queued request waits").1
    }

    /// Reports that the member has completed a command.
    #[inline(always)]
    pub(crate) fn ended(&mut self, scheduled: Option<Receipt>, write: bool, now: Time) {
        if !self.passes {
            self.makes_room(scheduled, write, now);
        }
    }

    #[inline(never)]
    fn makes_room(&mut self, scheduled: Option<Receipt>, write: bool, now: Time) {
        self.plugged = None;
        assert!(self.in_flight > 0, "a command completes once");
        self.in_flight -= 1;
        self.flushing &= self.in_flight > 0;
        if let Some(receipt) = scheduled {
            let sent = &mut self.tokens.sent[usize::from(write)];
            assert!(*sent > 0, "a request of a scheduler holds a token");
            *sent -= 1;
            self.scheduler.completed(receipt, now);
        }
    }

    /// Time at which a command may become ready even if no command completes; `None` if none will.
    pub(crate) fn next_wake(&self, now: Time) -> Option<Time> {
        if self.plugged.is_some() {
            return self.plugged;
        }
        self.scheduler.next_wake(now).filter(|_| self.has_room())
    }

    /// Number of waits for a token that have begun, and number of those that have ended.
    pub(crate) fn token_waits(&self) -> TokenWaits {
        let waiting: usize = self.tokenless.iter().map(VecDeque::len).sum();
        TokenWaits { begun: self.token_waits, ended: self.token_waits - waiting as u64 }
    }

    /// Statistics of BFQ's decisions; `None` with another scheduler.
    pub(crate) fn bfq_stats(&self) -> Option<&BfqStats> {
        self.scheduler.bfq_stats()
    }

    /// Whether no request waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.free.len() == self.requests.len()
    }

    /// Requests that were not sent to the member yet.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Waiting<T>> {
        self.requests.iter().flatten().map(|(_, request)| request)
    }

    /// Removes all waiting requests, and returns them in the order in which they were made.
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

    /// Drops the last waiting request: a deliberate bug, which tests must detect.
    pub(crate) fn forget_last(&mut self) {
        let waiting = self.take_waiting();
        let kept = waiting.len().saturating_sub(1);
        waiting.into_iter().take(kept).for_each(|request| self.put_back(request));
    }

    /// Removes one queue that has requests from BFQ's service tree: a deliberate bug, which tests
    /// must detect. Does nothing with another scheduler.
    pub(crate) fn starve_one(&mut self) {
        if let Scheduler::Bfq(queues) = &mut self.scheduler {
            queues.forget_first();
        }
    }

    /// Queues a request again that [`MemberQueue::take_waiting`] had removed.
    pub(crate) fn put_back(&mut self, request: Waiting<T>) {
        let since = request.since;
        let place = self.put(request);
        self.insert(place, since);
    }
}

/// Converts the request at index `place` to the form that schedulers use.
fn scheduled(place: u32, op: &MemberOp, attr: Attr) -> QueuedRequest {
    let (direction, first, len, merges) = match op {
        MemberOp::Read { at, into } => (Direction::Read, *at, length(into), true),
        MemberOp::Write { at, from, .. } => (Direction::Write, *at, length(from), true),
        MemberOp::WriteMetadata { at, bytes } => {
            let len = Sectors((bytes.len() as u64).div_ceil(512));
            (Direction::Write, *at, len, false)
        }
        MemberOp::Discard { at, len, .. } => (Direction::Write, *at, *len, false),
        MemberOp::Flush => unreachable!("a flush bypasses the scheduler"),
    };
    assert!(len > Sectors::ZERO, "a request has a length");
    let discard = matches!(op, MemberOp::Discard { .. });
    QueuedRequest { id: u64::from(place), direction, attr, first, len, discard, merges }
}

/// Segments of a read or write; `None` for other operations.
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

/// Queue depth of a member with a scheduler, if its device does not report a depth: that of a SATA
/// disk. A larger depth would leave the scheduler nothing to choose from.
const DEPTH_UNKNOWN: u32 = 32;

/// Largest queue depth that is used to compute the default of `nr_requests`, which is twice the
/// depth.
const TOKENS_DEPTH_MAX: u32 = 128;

/// Number of requests and time after which Linux 2.6.24 unplugs a queue (`unplug_thresh`,
/// `unplug_delay`).
const UNPLUG_REQUESTS: usize = 4;
const UNPLUG_DELAY: Span = Span::millis(3);

#[cfg(test)]
mod tests;
