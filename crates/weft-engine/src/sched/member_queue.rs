//! Queue of one member: merging, plug, scheduler and depth between a decision and the member.
//!
//! ```text
//! staged by a turn ─merge─▶ plug list ─unplug─▶ scheduler ─depth─▶ command at the member
//!                                         └───▶ direct (flush, FUA, superblocks)
//! ```
//!
//! With the scheduler `none` and no bound on the depth nothing ever waits, and requests do not come
//! here: they go out as they are staged ([`MemberQueue::passes`]). Otherwise a command is made of
//! one or more requests at dispatch, when the member has room for it; its token is given then.
//!
//! Flushes, superblocks and FUA writes to a member with a write cache pass the scheduler by, as in
//! the kernel, and take nothing with them: the sender has waited for whatever they cover. A member
//! without a write cache has nothing to flush: such a flush takes no room at it.
//!
//! In 2008 a queue that was empty kept what came (it was *plugged*) until four requests were in it,
//! until 3 ms had passed, until its member had ended a command, or until whoever brought it was
//! done: raid5d was when no stripe was left to handle. So stripes that were handled one after the
//! other became one request though the disk had nothing to do.
//!
//! Knobs    `scheduler` and those of each, `queue_depth`, `max_sectors_kb`; with
//!          `stripe_cache_form=2008` queues are plugged
//! Source   io-schedulers.md §0; `unplug_thresh` and `unplug_delay` of Linux 2.6.24

use std::collections::VecDeque;

use smallvec::SmallVec;
use weft_units::{Sectors, Span, Time};

use super::Scheduler;
use super::bfq::BfqStats;
use super::merge::{self, Last};
use super::request::{Direction, QueuedRequest, Receipt};
use crate::contract::frame::{Segment, Segments};
use crate::contract::input::Attr;
use crate::contract::member::DeviceTraits;
use crate::contract::output::MemberOp;
use crate::knobs::{BfqKnobs, CacheForm, Knobs, MqDeadlineKnobs, SchedulerKind};

/// Settings of the queues of a volume's members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueSettings {
    pub(crate) scheduler: SchedulerKind,
    pub(crate) bfq: BfqKnobs,
    pub(crate) mq_deadline: MqDeadlineKnobs,
    /// Largest command that merging makes.
    pub(crate) max: Sectors,
    /// Commands at the member at once; zero for as many as its device takes.
    pub(crate) depth: u32,
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
            depth: knobs.queue_depth,
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
    device: DeviceTraits,
    settings: QueueSettings,
    depth: u32,
    /// Commands at the member.
    in_flight: u32,
    scheduler: Scheduler,
    /// End of the plug.
    plugged: Option<Time>,
    /// The plug list: what turns staged, in order.
    staged: Vec<u32>,
    /// Requests that pass the scheduler by.
    direct: VecDeque<u32>,
    /// Flushes of a member that has nothing to flush.
    needless: VecDeque<u32>,
    requests: Vec<Option<Waiting<T>>>,
    free: Vec<u32>,
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
            last: [Last::NONE; 2],
            device,
            settings: QueueSettings {
                scheduler: SchedulerKind::None,
                bfq: BfqKnobs::default(),
                mq_deadline: MqDeadlineKnobs::default(),
                max: Sectors::ZERO,
                depth: 0,
                plugs: false,
            },
            depth: u32::MAX,
            in_flight: 0,
            scheduler: Scheduler::default(),
            plugged: None,
            staged: Vec::new(),
            direct: VecDeque::new(),
            needless: VecDeque::new(),
            requests: Vec::new(),
            free: Vec::new(),
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
        self.scheduler = Scheduler::new(&settings, self.device);
        self.last = [Last::NONE; 2];
        self.in_flight = in_flight;
        self.plugged = None;
        self.set_depth();
        waiting.into_iter().for_each(|request| self.put_back(request));
    }

    /// Settings of the queue.
    pub(crate) fn settings(&self) -> &QueueSettings {
        &self.settings
    }

    fn set_depth(&mut self) {
        let QueueSettings { scheduler, depth, .. } = self.settings;
        self.depth = match (depth, self.device.depth) {
            (0, Some(device)) => device,
            (0, None) if scheduler == SchedulerKind::None => u32::MAX,
            (0, None) => DEPTH_UNKNOWN,
            (depth, device) => depth.min(device.unwrap_or(u32::MAX)),
        };
        assert!(self.depth > 0, "a queue sends something");
        self.passes = scheduler == SchedulerKind::None && self.depth == u32::MAX;
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
        if let Some(place) = self.free.pop() {
            self.requests[place as usize] = Some(request);
            return place;
        }
        self.requests.push(Some(request));
        self.requests.len() as u32 - 1
    }

    /// Adds parts to the end of a request that is staged. Who is to be told of it.
    pub(crate) fn append(&mut self, place: usize, new: &[Segment]) -> &mut T {
        let Some(Some(Waiting { op, owner, .. })) = self.requests.get_mut(place) else {
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
        let Waiting { op, attr, .. } =
            self.requests[place as usize].as_ref().expect("what is staged waits");
        let cached = self.device.write_cache;
        let (direction, first, len, direct, merges) = match op {
            MemberOp::Flush if !cached => {
                self.needless.push_back(place);
                return;
            }
            MemberOp::Flush => (Direction::Write, Sectors::ZERO, Sectors::ZERO, true, false),
            MemberOp::Read { at, into } => (Direction::Read, *at, length(into), false, true),
            MemberOp::Write { at, from, fua } => {
                (Direction::Write, *at, length(from), *fua && cached, true)
            }
            MemberOp::WriteMetadata { at, bytes } => {
                let len = Sectors((bytes.len() as u64).div_ceil(512));
                (Direction::Write, *at, len, cached, false)
            }
            MemberOp::Discard { at, len, fua } => {
                (Direction::Write, *at, *len, *fua && cached, false)
            }
        };
        if direct {
            self.plugged = None;
            self.direct.push_back(place);
            return;
        }
        assert!(!merges || len > Sectors::ZERO, "a read or write moves something");
        if self.settings.plugs && self.scheduler.is_empty() {
            self.plugged = Some(now + UNPLUG_DELAY);
        }
        let (id, attr) = (u64::from(place), *attr);
        self.scheduler.insert(&QueuedRequest { id, direction, attr, first, len, merges }, now);
        if self.scheduler.waiting() >= UNPLUG_REQUESTS {
            self.plugged = None;
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
        if self.in_flight >= self.depth {
            return None;
        }
        let command = if let Some(place) = self.direct.pop_front() {
            self.command(&[u64::from(place)], None, true)
        } else {
            let next = self.scheduler.dispatch(now)?;
            self.command(&next.ids, Some(next.receipt), true)
        };
        self.in_flight += 1;
        assert!(self.in_flight <= self.depth, "a member gets no more than its depth");
        Some(command)
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
        self.requests[place as usize].take().expect("what is queued waits")
    }

    /// The member has ended a command.
    pub(crate) fn ended(&mut self, scheduled: Option<Receipt>, now: Time) {
        if self.passes {
            return;
        }
        self.plugged = None;
        assert!(self.in_flight > 0, "a command ends once");
        self.in_flight -= 1;
        if let Some(receipt) = scheduled {
            self.scheduler.completed(receipt, now);
        }
    }

    /// When there may be something to dispatch though no command ends.
    pub(crate) fn next_wake(&self, now: Time) -> Option<Time> {
        if self.plugged.is_some() {
            return self.plugged;
        }
        self.scheduler.next_wake(now).filter(|_| self.in_flight < self.depth)
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
        self.requests.iter().flatten()
    }

    /// Everything that waits, which waits here no more, in the order in which it was staged.
    pub(crate) fn take_waiting(&mut self) -> Vec<Waiting<T>> {
        self.scheduler.clear_waiting();
        self.staged.clear();
        self.direct.clear();
        self.needless.clear();
        self.free.clear();
        let mut waiting: Vec<Waiting<T>> = self.requests.drain(..).flatten().collect();
        waiting.sort_by_key(|request| request.since);
        waiting
    }

    /// Queues a request that was taken out, as if it had never been.
    pub(crate) fn put_back(&mut self, request: Waiting<T>) {
        let since = request.since;
        let place = self.put(request);
        self.insert(place, since);
    }
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

/// `unplug_thresh` and `unplug_delay` of a queue in 2.6.24.
const UNPLUG_REQUESTS: usize = 4;
const UNPLUG_DELAY: Span = Span::millis(3);

#[cfg(test)]
mod tests;
