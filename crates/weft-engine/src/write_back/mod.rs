//! Write-back cache: the layer above volumes that holds the data of client writes and writes it to
//! the volumes later.
//!
//! One pool of dirty pages of 4 KiB serves all volumes of an engine. [`crate::page_cache`] decides
//! which pages are dirty, when they are written, and in which runs. The simulator's processes use
//! the same code; here, a volume corresponds to one device with one file on it. This layer adds the
//! path of client requests: the frames of pages ([`memory`]), reads, and the order of requests.
//!
//! - A **write** of whole pages is copied into frames of the cache, and answered as soon as the
//!   throttle lets its client continue ([`writer`]). Before that it waits for room: the number of
//!   pages that are dirty or under writeback never exceeds the limit, and a write that would exceed
//!   it waits, in order of arrival. The throttle slows clients down so that this wait is rare.
//! - All other changes go **through** to the volume before they are answered: writes with FUA or a
//!   preflush, writes of parts of pages or of more than half of the limit, zeroes, and trims. Pages
//!   that such a request covers completely are dropped afterwards; pages that it covers in part are
//!   changed.
//! - A **read** takes resident pages from the cache, and all other pages from the volume. If it
//!   needs both, its whole range is read from the volume, and the resident pages are copied over
//!   the result.
//! - A **flush** waits until the pages that were dirty on its arrival are written, and then goes to
//!   the volume.
//! - **Write-back** takes runs in ascending order: marked pages for a flush, pages that the flusher
//!   selects, and any pages while a write waits for room. A run is copied first ([`memory`]). A
//!   page that is written to after that is dirty again, and is not written a second time before the
//!   first write completes.
//!
//! Two range locks per volume keep the order of requests, which a single member without metadata
//! does not keep itself. Client requests hold the lock *above* while they execute, and write-back
//! holds it while it copies. Writes to the volume hold the lock *below*. A holder of a lock above
//! may wait for a lock below, never the other way round. No operation waits for room while it holds
//! a lock, because write-back makes the room and needs locks.
//!
//! Pages that could not be written to the volume stay dirty, and are tried again a second later.
//! Flushes that cover such pages, and writes that wait for room, get the error at once. A drain
//! tries every page once and reports the pages that could not be written. A stop does so too, and
//! gives up these pages (`trying.rs`). A crash loses only data that was not flushed.
//!
//! Source   writeback.md §3; NBD protocol, "Ordering of messages and writes"

mod client_op;
mod edges;
mod memory;
mod op;
mod resident;
#[cfg(test)]
mod tests;
mod trying;
mod tune;
mod write_out;
mod writer;

use std::collections::VecDeque;

use weft_units::{ClientId, Span, Time, VolumeId};

use self::edges::Edges;
use self::memory::Memory;
use self::op::{CachePath, ClientOp, Op, OpWork, pages_of};
use self::resident::Resident;
use self::trying::Trying;
use self::tune::check_start;
use self::writer::Writers;
use crate::array::issuer::{Issuer, Returned};
use crate::array::outbox::{JobId, Outbox};
use crate::config::WriteBackConfig;
use crate::contract::error::{ConfigError, ReplyError, Unwritten};
use crate::contract::frame::{Frame, Run};
use crate::contract::input::{ClientRequest, Command, RequestOp, Verb};
use crate::contract::output::{ComputeOp, Output};
use crate::contract::snapshot::{PartlyWritten, WriteBackSnapshot, WriteBackVolume};
use crate::contract::token::RequestId;
use crate::knobs::{PoolKnobs, throttle_name};
use crate::page_cache::{BdiId, BdiRatios, InodeId, PageCache, Wake, WriterId};
use crate::volume::Volume;
use crate::volume::ranges::Ranges;

/// The write-back cache of an engine.
#[derive(Clone, Debug)]
pub(crate) struct WriteBack {
    cache: PageCache,
    memory: Memory,
    volumes: Vec<Cached>,
    /// Page-cache writers that stand for clients; empty without a throttle.
    writers: Writers,
    knobs: PoolKnobs,
    /// Number of pages for which the cache has memory.
    pages: u64,
    ops: Vec<Option<Op>>,
    free: Vec<u32>,
    /// Requests that wait for room, that is, until the dirty limit permits enough further pages;
    /// and later requests that must not overtake them.
    waiting: VecDeque<OpId>,
    /// Number of pages of admitted writes that are not dirty yet, for which room under the dirty
    /// limit is reserved.
    reserved: u64,
    /// Requests to send to volumes at the start of the next turn.
    issues: Vec<Issue>,
    /// Number of client requests that have arrived.
    arrivals: u64,
    /// Clients that have disconnected but still have operations in progress.
    leaving: Vec<ClientId>,
    /// Index of the volume with which the search for pages to write continues.
    first: usize,
    partly_written: PartlyWritten,
}

/// Index of an operation: a client request, a command, or a write of the cache.
type OpId = u32;

/// State of one volume.
#[derive(Clone, Debug)]
struct Cached {
    bdi: BdiId,
    inode: InodeId,
    /// Page-cache writer for changes for which no client is throttled: the pages of failed
    /// write-backs, and all writes if there is no throttle.
    writer: WriterId,
    /// Size of the volume in bytes at the last request: a reshape makes it larger.
    size: u64,
    resident: Resident,
    above: Ranges,
    below: Ranges,
    /// Flushes that wait for pages, each with an epoch (interval between flushes): the pages of
    /// this and all earlier epochs have to be written.
    flushes: Vec<(OpId, u64)>,
    /// Number of the page at which the search for the next run to write starts, for a flush or to
    /// make room.
    cursor: u64,
    /// Time at which the page cache's flusher is called next; `None` until it is woken.
    flusher_at: Option<Time>,
    /// Error of the last write of dirty pages to the volume, if it failed, and the earliest time of
    /// the next attempt. The time is `None` once the next attempt has started.
    failing: Option<(ReplyError, Option<Time>)>,
    /// Whether a notice is sent when the next write-back fails.
    tells_of_failure: bool,
    /// The volume's share of the dirty limits.
    ratios: BdiRatios,
    /// Number of client requests to the volume in progress.
    clients: u32,
    stopping: Option<(OpId, StopStage)>,
    /// The running attempt to write all dirty pages, for a drain or a stop; `None` if there is
    /// none.
    trying: Option<Trying>,
    /// Pages that a stop could not write and has given up; `None` if there are none.
    lost: Option<Box<Unwritten>>,
    written: u64,
}

/// Stage of stopping a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StopStage {
    /// Client requests are ending.
    Requests,
    /// Dirty pages are being written, or given up.
    Pages,
    /// The volume is stopping.
    Volume,
}

/// Request or command that waits to be sent to a volume.
#[derive(Clone, Debug)]
enum Issue {
    Request(OpId, ClientRequest),
    Stop(OpId),
}

impl WriteBack {
    /// Creates an empty cache in the frames from `first` on. The page-pool knobs of the first
    /// volume apply to all volumes from then on.
    pub(crate) fn new(
        config: &WriteBackConfig,
        first: Frame,
        volumes: &mut [Volume],
        now: Time,
    ) -> Result<Self, ConfigError> {
        let of_volumes: Vec<_> = volumes.iter().map(|volume| *volume.knobs()).collect();
        check_start(&of_volumes, config.pages.into()).map_err(ConfigError::WriteBack)?;
        let knobs = of_volumes.first().map(|knobs| knobs.pool).unwrap_or_default();
        let mut cache = PageCache::new(config.pool(&knobs));
        let volumes = volumes.iter_mut().map(|volume| {
            volume.note_pool(knobs);
            let bdi = cache.add_bdi(now);
            Cached {
                bdi,
                inode: cache.add_inode(bdi),
                writer: cache.add_writer(0),
                size: volume.size(),
                resident: Resident::default(),
                above: Ranges::default(),
                below: Ranges::default(),
                flushes: Vec::new(),
                cursor: 0,
                flusher_at: None,
                failing: None,
                tells_of_failure: true,
                ratios: volume.knobs().ratios,
                clients: 0,
                stopping: None,
                trying: None,
                lost: None,
                written: 0,
            }
        });
        let volumes = volumes.collect();
        let mut this = Self {
            cache,
            memory: Memory::new(first, config),
            volumes,
            writers: Writers::default(),
            knobs,
            pages: config.pages.into(),
            ops: Vec::new(),
            free: Vec::new(),
            waiting: VecDeque::new(),
            reserved: 0,
            issues: Vec::new(),
            arrivals: 0,
            leaving: Vec::new(),
            first: 0,
            partly_written: PartlyWritten::default(),
        };
        this.apply();
        Ok(this)
    }

    /// Handles the arrival of a client request. Returns an error if the request is refused.
    pub(crate) fn request(
        &mut self,
        request: &ClientRequest,
        volumes: &mut [Volume],
        out: &mut Outbox,
    ) -> Result<(), ReplyError> {
        let volume = &volumes[request.volume.index()];
        let cached = &mut self.volumes[request.volume.index()];
        if cached.stopping.is_some() {
            return Err(ReplyError::Stopping);
        }
        volume.admits(request)?;
        cached.size = volume.size();
        cached.clients += 1;
        self.arrivals += 1;
        let op = ClientOp::new(request, self.arrivals);
        let pages = pages_of(request.range);
        let path = op.path;
        let id = self.keep(Op { volume: request.volume, pages, work: OpWork::Client(op) });
        if path == CachePath::Flush {
            self.begin_flush(id, volumes, out);
        } else if request.range.len.0 == 0 {
            self.ask(id);
        } else {
            self.arrive(id, volumes, out);
        }
        Ok(())
    }

    /// Begins to write all dirty pages of a volume, which stays in service. The reply comes later;
    /// it lists the pages that could not be written, which stay dirty. Fails if the volume is
    /// stopping or is being drained already.
    pub(crate) fn drain(&mut self, command: &Command) -> Result<(), ReplyError> {
        let index = command.volume.index();
        let cached = self.volumes.get(index).ok_or(ReplyError::Invalid("no such volume"))?;
        if cached.stopping.is_some() {
            return Err(ReplyError::Stopping);
        }
        if cached.trying.is_some() {
            return Err(ReplyError::Busy("what is dirty is being written already"));
        }
        let work = OpWork::Drain(command.clone());
        let id = self.keep(Op { volume: command.volume, pages: 0..0, work });
        self.try_all(index, Some(id));
        Ok(())
    }

    /// Begins to stop a volume: writes its dirty pages, gives up those that cannot be written, and
    /// stops the volume. Fails if the volume is stopping already.
    pub(crate) fn stop(&mut self, command: &Command, out: &mut Outbox) -> Result<(), ReplyError> {
        let index = command.volume.index();
        let cached = self.volumes.get(index).ok_or(ReplyError::Invalid("no such volume"))?;
        if cached.stopping.is_some() {
            return Err(ReplyError::Stopping);
        }
        let work = OpWork::Stop(command.clone());
        let id = self.keep(Op { volume: command.volume, pages: 0..0, work });
        self.volumes[index].stopping = Some((id, StopStage::Requests));
        if let Some(Trying { drain: Some(drain), .. }) = self.volumes[index].trying.take() {
            self.answer_drain(drain, Err(ReplyError::Stopping), out);
        }
        Ok(())
    }

    /// Records that a client has disconnected. Returns whether the volumes may be notified at once;
    /// if not, [`turn`](Self::turn) returns the client later.
    pub(crate) fn client_gone(&mut self, client: ClientId, out: &mut Outbox) -> bool {
        let mut is_there = false;
        for op in self.ops.iter_mut().flatten() {
            if let OpWork::Client(op) = &mut op.work
                && op.request.client == client
            {
                (op.gone, is_there) = (true, true);
            }
        }
        if is_there {
            self.leaving.push(client);
        }
        self.remove_writers(client, out);
        !is_there
    }

    /// Writes dirty pages, then sends requests to volumes. Returns the clients that have
    /// disconnected and have no operation left, so that the caller tells the volumes.
    pub(crate) fn turn(&mut self, volumes: &mut [Volume], out: &mut Outbox) -> Vec<ClientId> {
        self.write_back(volumes, out);
        self.go_on_trying(out);
        self.go_on_stopping(volumes, out);
        while !self.issues.is_empty() {
            for issue in std::mem::take(&mut self.issues) {
                self.issue(&issue, volumes, out);
            }
        }
        let ops = &self.ops;
        let is_there = |client: ClientId| {
            ops.iter()
                .flatten()
                .any(|op| matches!(&op.work, OpWork::Client(op) if op.request.client == client))
        };
        let (leaving, left) = self.leaving.iter().partition(|client| is_there(**client));
        self.leaving = leaving;
        left
    }

    /// Handles the frames and answers that volumes have returned. Frames are handled first, because
    /// an answer may end an operation.
    pub(crate) fn collect(&mut self, volumes: &mut [Volume], out: &mut Outbox) {
        let mut answers = Vec::new();
        for returned in out.take_returned() {
            match returned {
                Returned::Answer(id, result) => answers.push((id, result)),
                Returned::Frames(id, frames) => self.frames_returned(id, frames, out),
            }
        }
        for (id, result) in answers {
            self.answered(id, result, volumes, out);
        }
        self.write_back(volumes, out);
        self.go_on_trying(out);
        self.go_on_stopping(volumes, out);
    }

    /// Handles frames of an operation that a volume has returned. The operation may already have
    /// been answered.
    fn frames_returned(&mut self, id: OpId, frames: Run, out: &mut Outbox) {
        if self.memory.comes_back(frames) {
            return;
        }
        match &mut self.op_mut(id).work {
            OpWork::Client(op) => op.on_loan = false,
            OpWork::Lent(all) => {
                out.push(Output::Release(*all));
                self.forget(id);
            }
            OpWork::Drain(_) | OpWork::Stop(_) | OpWork::WriteOut(_) => {
                unreachable!("it holds no client frames")
            }
        }
    }

    /// Handles a completed computation.
    pub(crate) fn computed(&mut self, job: JobId, volumes: &mut [Volume], out: &mut Outbox) {
        let id = job.0;
        match &self.op(id).work {
            OpWork::Client(op) => match op.path {
                CachePath::Keep => self.kept(id, volumes, out),
                CachePath::Read => self.read_done(id, Ok(()), volumes, out),
                CachePath::Through => self.through_computed(id, volumes, out),
                CachePath::Flush => unreachable!("a flush computes nothing"),
            },
            OpWork::Drain(_) | OpWork::Lent(_) | OpWork::Stop(_) => {
                unreachable!("it computes nothing")
            }
            OpWork::WriteOut(_) => self.copied(id, volumes, out),
        }
    }

    /// Whether the cache has work for the next turn.
    pub(crate) fn has_work(&self) -> bool {
        !self.issues.is_empty() || self.writers.has_due(self.memory.has_buffer())
    }

    /// Time at which the next pause ends or write-back is due; `None` if neither is due without an
    /// event.
    pub(crate) fn next_wake(&self) -> Option<Time> {
        if !self.memory.has_buffer() {
            return self.writers.next_wake();
        }
        let due = |cached: &Cached| {
            let wanted = !cached.flushes.is_empty();
            let again = cached.failing.as_ref().and_then(|failing| failing.1);
            let at = if wanted { again } else { cached.flusher_at };
            at.max(again.filter(|_| at.is_some()))
        };
        self.volumes.iter().filter_map(due).chain(self.writers.next_wake()).min()
    }

    /// Number of client frames that the cache uses itself or has passed on to volumes.
    pub(crate) fn frames_held(&self) -> u32 {
        let ops = self.ops.iter().flatten();
        let held = ops.map(|op| match &op.work {
            OpWork::Client(op) => op.request.frames.count,
            OpWork::Lent(frames) => frames.count,
            OpWork::Drain(_) | OpWork::Stop(_) | OpWork::WriteOut(_) => 0,
        });
        held.sum()
    }

    /// Number of pages that are dirty or under writeback.
    pub(crate) fn pages(&self) -> u64 {
        self.cache.pool().counts().total()
    }

    /// Dirty limit in pages.
    pub(crate) fn limit_pages(&self) -> u64 {
        self.cache.pool().thresholds().dirty
    }

    /// Counters for the status report and for tests.
    pub(crate) fn snapshot(&self) -> WriteBackSnapshot {
        let pool = self.cache.pool();
        let (thresholds, counts) = (pool.thresholds(), pool.counts());
        let volume = |cached: &Cached| {
            let counts = pool.bdi_counts(cached.bdi);
            WriteBackVolume {
                dirty_pages: counts.dirty,
                writeback_pages: counts.writeback,
                written_pages: cached.written,
                failing: cached.failing.as_ref().map(|failing| failing.0.clone()),
            }
        };
        WriteBackSnapshot {
            throttle: throttle_name(self.knobs.throttle),
            limit_pages: thresholds.dirty,
            background_pages: thresholds.background,
            dirty_pages: counts.dirty,
            writeback_pages: counts.writeback,
            requests_waiting: self.waiting.len(),
            answers_delayed: self.writers.answers_delayed(),
            pauses: self.writers.pauses_begun(),
            partly_written: self.partly_written,
            volumes: self.volumes.iter().map(volume).collect(),
        }
    }

    /// Whether no page is resident and no operation is in progress.
    #[cfg(test)]
    fn is_at_rest(&self) -> bool {
        self.ops.iter().all(Option::is_none)
            && self.reserved == 0
            && !self.memory.on_loan()
            && self.volumes.iter().all(|cached| cached.resident.is_empty())
    }

    fn issue(&mut self, issue: &Issue, volumes: &mut [Volume], out: &mut Outbox) {
        match issue {
            Issue::Request(id, _) if self.has_newer_edges(*id) => {
                self.unlock_below(*id);
                self.start_through(*id, volumes, out);
            }
            Issue::Request(id, request) => {
                let volume = &mut volumes[request.volume.index()];
                if let OpWork::Client(op) = &mut self.op_mut(*id).work {
                    // Zeroes change the whole range; a trim changes only the part that members
                    // discard.
                    op.changes = match request.op {
                        RequestOp::Write | RequestOp::WriteZeroes => Some(request.range),
                        RequestOp::Trim => volume.to_discard(request),
                        RequestOp::Flush | RequestOp::Read => None,
                    };
                    op.on_loan |= request.frames.count > 0;
                } else {
                    self.memory.lend(request.frames.first);
                }
                let mut entering = *request;
                if let Err(error) = volume.request(&mut entering, Some(*id), out) {
                    if let OpWork::Client(op) = &mut self.op_mut(*id).work {
                        op.on_loan &= request.frames.count == 0;
                    } else {
                        self.memory.comes_back(request.frames);
                    }
                    self.answered(*id, Err(error), volumes, out);
                }
            }
            Issue::Stop(id) => {
                let volume = &mut volumes[self.op(*id).volume.index()];
                let issuer = Issuer::WriteBack { op: *id };
                if let Some(result) = volume.command(&Verb::Stop, issuer, out) {
                    self.answered(*id, result, volumes, out);
                }
            }
        }
    }

    fn answered(
        &mut self,
        id: OpId,
        result: Result<(), ReplyError>,
        volumes: &mut [Volume],
        out: &mut Outbox,
    ) {
        match &mut self.op_mut(id).work {
            OpWork::Client(op) => match op.path {
                CachePath::Flush => self.answer(id, result, out),
                CachePath::Keep => unreachable!("a kept write sends no request to a volume"),
                CachePath::Read => self.read_below(id, result, volumes, out),
                CachePath::Through if op.edges == Edges::FlushesFirst => {
                    self.flushed_first(id, result, volumes, out);
                }
                CachePath::Through => self.changed_below(id, result, volumes, out),
            },
            OpWork::Stop(command) => {
                let (client, tag) = (command.client, command.tag);
                let lost = self.volumes[self.op(id).volume.index()].lost.clone();
                let result = lost.map_or(result, |lost| Err(ReplyError::Unwritten(lost)));
                self.forget(id);
                out.reply(client, tag, result);
            }
            OpWork::Drain(_) | OpWork::Lent(_) => unreachable!("it has no request below"),
            OpWork::WriteOut(_) => self.part_written(id, result, volumes, out),
        }
    }

    fn keep(&mut self, op: Op) -> OpId {
        if let Some(place) = self.free.pop() {
            self.ops[place as usize] = Some(op);
            return place;
        }
        self.ops.push(Some(op));
        self.ops.len() as u32 - 1
    }

    fn op(&self, id: OpId) -> &Op {
        self.ops[id as usize].as_ref().expect("an operation stays until it is over")
    }

    fn op_mut(&mut self, id: OpId) -> &mut Op {
        self.ops[id as usize].as_mut().expect("an operation stays until it is over")
    }

    fn client_op(&mut self, id: OpId) -> &mut ClientOp {
        match &mut self.op_mut(id).work {
            OpWork::Client(op) => op,
            _ => unreachable!("it is a client request"),
        }
    }

    fn forget(&mut self, id: OpId) -> Op {
        self.free.push(id);
        self.ops[id as usize].take().expect("an operation ends once")
    }

    fn compute(id: OpId, ops: Vec<ComputeOp>, out: &mut Outbox) {
        out.compute(OF_CACHE, JobId(id), ops);
    }

    /// Locks the range of an operation against other operations of the cache. The operation starts
    /// now, or when the earlier holders of an overlapping lock release theirs.
    fn lock_above(&mut self, id: OpId, writes: bool, volumes: &mut [Volume], out: &mut Outbox) {
        let op = self.op(id);
        let (index, range) = (op.volume.index(), locked(&op.pages));
        if self.volumes[index].above.enter(RequestId(id), range, writes) {
            self.start(id, volumes, out);
        }
    }

    fn unlock_above(&mut self, id: OpId, volumes: &mut [Volume], out: &mut Outbox) {
        let index = self.op(id).volume.index();
        let next = self.volumes[index].above.leave(RequestId(id));
        for next in next.into_iter().flatten() {
            self.start(next.0, volumes, out);
        }
    }

    /// Starts an operation that holds the lock on its range.
    fn start(&mut self, id: OpId, volumes: &mut [Volume], out: &mut Outbox) {
        match &self.op(id).work {
            OpWork::Client(op) => match op.path {
                CachePath::Flush => unreachable!("a flush locks nothing"),
                CachePath::Keep => self.fill(id, out),
                CachePath::Read => self.start_read(id, volumes, out),
                CachePath::Through => self.start_through(id, volumes, out),
            },
            OpWork::Drain(_) | OpWork::Lent(_) | OpWork::Stop(_) => {
                unreachable!("it locks nothing")
            }
            OpWork::WriteOut(_) => self.copy(id, volumes, out),
        }
    }

    fn lock_below(&mut self, id: OpId) {
        let op = self.op(id);
        let (index, range) = (op.volume.index(), locked(&op.pages));
        if self.volumes[index].below.enter(RequestId(id), range, true) {
            self.ask(id);
        }
    }

    fn unlock_below(&mut self, id: OpId) {
        let index = self.op(id).volume.index();
        let next = self.volumes[index].below.leave(RequestId(id));
        for next in next.into_iter().flatten() {
            self.ask(next.0);
        }
    }

    /// Queues the volume request of operation `id`, to be sent in the next turn.
    fn ask(&mut self, id: OpId) {
        match &self.op(id).work {
            OpWork::Client(op) => {
                let request = op.below();
                self.issues.push(Issue::Request(id, request));
            }
            OpWork::Drain(_) | OpWork::Lent(_) => unreachable!("it has no request below"),
            OpWork::Stop(_) => self.issues.push(Issue::Stop(id)),
            OpWork::WriteOut(_) => self.ask_parts(id),
        }
    }

    /// Handles the wake-ups that the page cache has issued.
    fn take_wakes(&mut self, now: Time) {
        while let Some(wake) = self.cache.wake() {
            match wake {
                Wake::Flusher(bdi) => {
                    // Device numbers follow the order of volumes.
                    let cached = &mut self.volumes[bdi.0 as usize];
                    assert_eq!(cached.bdi, bdi);
                    cached.flusher_at = Some(now);
                }
                Wake::Writer(writer) => self.writers.wake(writer),
                Wake::Inode(_) | Wake::Synced(_) => {}
            }
        }
    }
}

/// Byte range that an operation on `pages` locks. It consists of whole pages even at the end of the
/// volume.
fn locked(pages: &std::ops::Range<u64>) -> weft_units::ByteRange {
    op::bytes_of(pages, u64::MAX)
}

/// Volume id in the tokens of the cache's own computations, which belong to no volume.
const OF_CACHE: VolumeId = VolumeId(u16::MAX);

/// Time between a failed write-back and the next attempt.
const RETRY: Span = Span::secs(1);

/// Frames `first .. first + count` of a buffer.
fn part_of(buffer: Frame, first: u64, count: u64) -> Run {
    Run::new(buffer.0 + first as u32, count as u32)
}
