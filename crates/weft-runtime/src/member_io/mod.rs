//! Member requests as operations of a ring: stages, short transfers, retries, and one answer each.
//!
//! ```text
//! Read               transfer ─────────────────────────► answer
//! Write              transfer ─────────────────────────► answer
//! Write, fua         transfer with RWF_DSYNC ──────────► answer
//!                    transfer ──► flush ───────────────► answer     (RWF_DSYNC refused)
//! WriteMetadata      flush ──► transfer ──► flush ─────► answer
//! Flush              flush ────────────────────────────► answer
//! Discard            discard ──────────────────────────► answer
//! Discard, fua       discard ──► flush ────────────────► answer
//!                    discard ──► transfer of zeros ────► …          (refused, or an error)
//! ```
//!
//! A short transfer is continued where it ended. An operation is repeated when the kernel asks for
//! that (`EINTR`, `EAGAIN`, a cancellation that was not requested), a bounded number of times.
//!
//! # A member that does not answer
//!
//! A member that does not answer must not stop the others. If there are several members, each has
//! at most three eighths of the ring; its further operations wait here, in order.
//!
//! # A member that becomes shorter
//!
//! A member that becomes shorter is gone as a whole until it is opened again: its missing bytes
//! must neither be corrected nor read as zeros. A transfer that moves no bytes shows the cut. A
//! write, however, makes the file longer again, and the gap reads as zeros from then on. Therefore
//! the size is checked before the result of a write or a flush is trusted, and before that of a
//! read with a write in flight beside it; one check covers a batch of completions. At this check
//! the file is still short, unless one of these writes ended at the very end of the member; the
//! size is therefore checked before such a write is started as well. Two cases remain undetected: a
//! cut in the microseconds between this check and the write, and a cut that is undone (`truncate`
//! twice) while nothing of the member is read or written.
//!
//! The same check finds a deleted file. A deleted file exists until it is closed, so the member is
//! used as before, and the log reports the deletion once.
//!
//! # Flushes
//!
//! A flush that fails is final. The kernel reports a failed write-back once and then counts the
//! pages as clean, so a second flush would succeed without the data being on the medium. After one
//! failed flush or durable write, every later one of this member therefore fails as well, until it
//! is opened again. For the same reason at most one flush of a member is in flight: two could share
//! one report. When a write with `RWF_DSYNC` fails, it is unknown whether the transfer or the flush
//! failed. Metadata is written without `RWF_DSYNC`, so that a superblock can be written again after
//! a failed transfer.
//!
//! Source   Rebello et al., "Can Applications Recover from fsync Failures?", ATC '20; fsync(2)

mod entry;
mod operation;

use std::collections::VecDeque;
use std::sync::Arc;

use rustix::io::Errno;
use smallvec::SmallVec;
use weft_engine::{Fault, MemberOp, Segments, Token, Value};
use weft_units::{MemberIndex, Time};

use crate::buffers::{AlignedBytes, Buffer, Mapping, Slab};
use crate::devices::OpenMember;
use crate::figures::Answered;
use crate::io::ring::{Action, RingDone, RingOp, share_of};
use crate::overlay::MemberRing;
use entry::{Entry, bytes_of};
use operation::{Kind, Next, Operation, Stage, ZEROS_BYTES};

/// The members of an engine and the requests outstanding on them.
pub struct MemberIo<R> {
    ring: R,
    members: Vec<Option<Entry>>,
    operations: Vec<Option<Operation>>,
    free: Vec<u32>,
    /// Operations that are ready and wait for room in the ring.
    waiting: VecDeque<RingOp>,
    /// Indexes of members with a place in the ring that an ended operation has left, once for each
    /// place. The next operation in `Entry::held` of the same member takes the place.
    released: VecDeque<u16>,
    /// Largest number of operations that one member may have in the ring.
    share: usize,
    answers: VecDeque<Answer>,
    done: Vec<RingDone>,
    /// Whether members in memory are read and written at once, without the ring.
    memory_inline: bool,
    panicked: bool,
    now: Time,
}

/// Answer to a member request: its token and its result.
pub type Answer = (Token, Result<Value, Fault>);

impl<R: MemberRing> MemberIo<R> {
    /// Creates a `MemberIo` without members.
    pub fn new(ring: R) -> Self {
        Self {
            share: ring.capacity(),
            ring,
            members: Vec::new(),
            operations: Vec::new(),
            free: Vec::new(),
            waiting: VecDeque::new(),
            released: VecDeque::new(),
            answers: VecDeque::new(),
            done: Vec::new(),
            memory_inline: false,
            panicked: false,
            now: Time(0),
        }
    }

    /// Serves in-memory members inline, without the ring: a copy is cheaper than an operation of
    /// the ring and its completion.
    #[must_use]
    pub fn with_memory_inline(mut self) -> Self {
        self.memory_inline = true;
        self
    }

    /// Sets the current time: the start or end time of requests that are started or answered from
    /// now on.
    pub fn set_now(&mut self, now: Time) {
        self.now = now;
    }

    /// Requests that a member has answered, by kind; none if it is closed.
    #[must_use]
    pub fn answered(&self, index: MemberIndex) -> &[Answered] {
        let entry = self.members.get(index.index()).and_then(Option::as_ref);
        entry.map_or(&[], |entry| entry.figures.all())
    }

    /// Adds a member under its own index.
    ///
    /// # Errors
    /// Fails when the ring has no room for the member's file, or cannot serve its overlay or time
    /// limit, and when the memory of a `ram:` member cannot be mapped.
    pub fn add(&mut self, member: OpenMember) -> std::io::Result<()> {
        let index = member.info().index;
        if self.members.len() <= index.index() {
            self.members.resize_with(index.index() + 1, || None);
        }
        assert!(self.members[index.index()].is_none(), "member indices are unique");
        self.ring.set_file(index.0, Some(Arc::clone(member.file())))?;
        if let Some(timed) = member.timed() {
            self.ring.set_timed(index.0, Arc::clone(timed))?;
        }
        if let Some(overlay) = member.overlay() {
            self.ring.set_overlay(index.0, Arc::clone(overlay))?;
        }
        self.ring.set_kind(index.0, member.file_kind());
        let mapping = if self.memory_inline && member.is_memory() {
            Some(Mapping::new(member.file(), member.info().size.bytes().0)?)
        } else {
            None
        };
        self.members[index.index()] = Some(Entry::new(member, mapping));
        self.set_share();
        Ok(())
    }

    /// Closes a member. Its outstanding requests still end and are answered. Without any, its locks
    /// are released at once, so that another process can open it.
    pub fn remove(&mut self, index: MemberIndex) {
        let Some(entry) = self.members.get_mut(index.index()).and_then(Option::take) else {
            return;
        };
        if !self.is_busy(index) {
            entry.member.unlock();
        }
        if let Err(error) = self.ring.set_file(index.0, None) {
            tracing::warn!(member = index.0, %error, "its file stays open");
        }
        self.set_share();
        for op in entry.held {
            self.on_done(RingDone { op, result: Err(Errno::NODEV), panicked: false });
        }
        for id in entry.flush_next {
            self.finish(id, Err(Fault::Gone));
        }
    }

    fn set_share(&mut self) {
        self.share = share_of(self.ring.capacity(), self.members.iter().flatten().count());
    }

    /// Closes every member that has no outstanding requests and releases its locks at once, so that
    /// another process that waits for them can open it. Returns the labels of the other members,
    /// which have not answered.
    pub fn release(&mut self) -> Vec<String> {
        let mut hanging = Vec::new();
        for index in 0..self.members.len() {
            let Ok(number) = u16::try_from(index) else { return hanging };
            if self.is_busy(MemberIndex(number)) {
                hanging.push(self.label(MemberIndex(number)));
                continue;
            }
            self.remove(MemberIndex(number));
        }
        hanging
    }

    fn is_busy(&self, index: MemberIndex) -> bool {
        self.operations.iter().flatten().any(|operation| operation.member == index)
    }

    /// The members that are open.
    pub fn members(&self) -> impl Iterator<Item = &OpenMember> {
        self.members.iter().flatten().map(|entry| &entry.member)
    }

    /// Label of a member, for people; its index if it is closed.
    pub(crate) fn label(&self, index: MemberIndex) -> String {
        let entry = self.members.get(index.index()).and_then(Option::as_ref);
        entry.map_or_else(|| index.0.to_string(), |entry| entry.member.info().label.clone())
    }

    /// Index of the next new member: one above all indexes that were ever used.
    #[must_use]
    pub fn next_index(&self) -> MemberIndex {
        MemberIndex(u16::try_from(self.members.len()).expect("far fewer members than 65,536"))
    }

    /// Starts a member request. Its operation goes to the ring now or, if there is no room, with a
    /// later [`MemberIo::submit`]. [`MemberIo::answer`] returns the answer.
    ///
    /// # Panics
    /// Panics when a write goes to a member that was opened read-only, or past its end.
    pub fn start(&mut self, slab: &mut Slab, token: Token, member: MemberIndex, op: MemberOp) {
        let Some(Some(entry)) = self.members.get(member.index()) else {
            self.answers.push_back((token, Err(Fault::Gone)));
            return;
        };
        let bytes = bytes_of(&op);
        if entry.is_behind_cut(&op, &bytes) || entry.is_not_rescued(&op, &bytes) {
            // The read fails like that of a bad block: the data is computed from the other members,
            // and the member stays.
            self.answers.push_back((token, Err(Fault::Io)));
            return;
        }
        entry.check(&op, &bytes);
        if let Some(mapping) = &entry.mapping {
            entry.perform(mapping, slab, op);
            self.answers.push_back((token, Ok(Value::Nothing)));
            return;
        }
        let len = usize::try_from(bytes.end - bytes.start).unwrap_or(usize::MAX);
        let offset = entry.member.start().0 + bytes.start;
        let dsync = entry.dsync;
        // A member write takes a shared lease, a member read an exclusive one.
        let mut leased = |segments: Segments, write: bool| {
            let lease =
                if write { slab.lease_shared(segments) } else { slab.lease_exclusive(segments) };
            Some(Buffer::Frames(lease))
        };
        let transfer = Stage::Transfer { dsync: false };
        let (kind, stage, buffer) = match op {
            MemberOp::Discard { fua, .. } => (Kind::Discard { durable: fua }, Stage::Discard, None),
            MemberOp::Flush => (Kind::Flush, Stage::FlushAfter, None),
            MemberOp::Read { into, .. } => (Kind::Read, transfer, leased(into, false)),
            MemberOp::Write { from, fua, .. } => {
                let stage = Stage::Transfer { dsync: fua && dsync };
                (Kind::Write { durable: fua }, stage, leased(from, true))
            }
            MemberOp::WriteMetadata { bytes, .. } => {
                let buffer = Some(Buffer::Owned(AlignedBytes::copy_of(&bytes)));
                (Kind::WriteMetadata, Stage::FlushBefore, buffer)
            }
        };
        let operation = Operation {
            token,
            member,
            kind,
            stage,
            buffer,
            offset,
            len,
            moved: 0,
            retries: 0,
            aborted: false,
            started: self.now,
        };
        let id = match self.free.pop() {
            Some(id) => {
                self.operations[id as usize] = Some(operation);
                id
            }
            None => {
                self.operations.push(Some(operation));
                u32::try_from(self.operations.len() - 1).expect("bounded by the engine")
            }
        };
        self.advance(id);
    }

    /// Aborts a request. The request still gets its one answer, now or later: its own result, or
    /// [`Fault::Aborted`].
    pub fn abort(&mut self, token: Token) {
        let mut named = self.operations.iter_mut().enumerate().filter_map(|(id, operation)| {
            operation.as_mut().filter(|operation| operation.token == token).map(|found| (id, found))
        });
        let Some((id, operation)) = named.next() else { return };
        operation.aborted = true;
        let id = u32::try_from(id).expect("numbered with 32 bits");
        let entry = self.members.get_mut(operation.member.index()).and_then(Option::as_mut);
        let held = entry.and_then(|entry| take_from(&mut entry.held, id));
        match held.or_else(|| take_from(&mut self.waiting, id)) {
            Some(op) => {
                let result = Err(Errno::CANCELED);
                self.on_done(RingDone { op, result, panicked: false });
            }
            None => self.ring.cancel(id),
        }
    }

    /// Starts all operations that are ready, as far as the ring has room.
    ///
    /// # Errors
    /// Fails when the ring can never start an operation again.
    pub fn submit(&mut self) -> std::io::Result<()> {
        while self.ring.outstanding() < self.ring.capacity() {
            let (op, is_released) = match self.released.pop_front() {
                Some(file) => {
                    let Some(entry) = &mut self.members[usize::from(file)] else { continue };
                    let Some(op) = entry.held.pop_front() else {
                        // The operation was aborted in the meantime.
                        entry.in_ring -= 1;
                        continue;
                    };
                    (op, true)
                }
                None => match self.waiting.pop_front() {
                    Some(op) => (op, false),
                    None => break,
                },
            };
            let Some(entry) = &mut self.members[usize::from(op.file)] else {
                self.on_done(RingDone { op, result: Err(Errno::NODEV), panicked: false });
                continue;
            };
            if !is_released {
                if entry.in_ring >= self.share || !entry.held.is_empty() {
                    entry.held.push_back(op);
                    continue;
                }
                entry.in_ring += 1;
            }
            if let Action::Write { .. } = op.action {
                if op.offset + op.limit as u64 >= entry.member.end() {
                    entry.look();
                }
                entry.writing += u32::from(!entry.gone);
            }
            if entry.gone {
                self.left(op.file);
                self.on_done(RingDone { op, result: Err(Errno::NODEV), panicked: false });
            } else {
                self.ring.push(op);
            }
        }
        self.ring.submit()
    }

    /// Takes the operations that the ring has ended, and advances their requests.
    pub fn reap(&mut self) {
        let mut done = std::mem::take(&mut self.done);
        self.ring.reap(&mut done);
        self.look(&done);
        for ended in done.drain(..) {
            self.panicked |= ended.panicked;
            self.left(ended.op.file);
            self.on_done(ended);
        }
        self.done = done;
    }

    /// Releases the place that an ended operation on `file` had in the ring, or reserves it for an
    /// operation of the same member that is held back.
    fn left(&mut self, file: u16) {
        let Some(Some(entry)) = self.members.get_mut(usize::from(file)) else { return };
        if entry.held.is_empty() || entry.in_ring > self.share {
            entry.in_ring -= 1;
        } else {
            self.released.push_back(file);
        }
    }

    /// Checks the size of members' files before the results of ended operations are trusted: after
    /// a write, flush or discard, and after a read that came short or had a write in flight beside
    /// it.
    fn look(&mut self, done: &[RingDone]) {
        let mut suspects: SmallVec<[u16; 16]> = SmallVec::new();
        for RingDone { op, result, .. } in done {
            let Some(Some(entry)) = self.members.get_mut(usize::from(op.file)) else { continue };
            let is_suspect = match op.action {
                Action::Discard { .. } | Action::Flush | Action::Write { .. } => true,
                // The read ended early, or a write in flight may have made the file longer.
                Action::Read(_) => *result != Ok(op.limit) || entry.writing > 0,
            };
            if is_suspect && !suspects.contains(&op.file) {
                suspects.push(op.file);
            }
        }
        for RingDone { op, .. } in done {
            if let Action::Write { .. } = op.action
                && let Some(Some(entry)) = self.members.get_mut(usize::from(op.file))
            {
                entry.writing -= 1;
            }
        }
        for file in suspects {
            if let Some(Some(entry)) = self.members.get_mut(usize::from(file)) {
                entry.look();
            }
        }
    }

    /// Whether there are answers to take.
    #[must_use]
    pub fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    /// Takes the next answer; `None` if there is none at present.
    pub fn answer(&mut self) -> Option<Answer> {
        self.answers.pop_front()
    }

    /// Whether there is work that can be done without waiting for the ring.
    #[must_use]
    pub fn busy(&self) -> bool {
        self.has_answers() || self.wants_submit()
    }

    /// Whether [`MemberIo::submit`] has work: operations are ready and the ring has room for them,
    /// or the ring itself is busy.
    #[must_use]
    pub fn wants_submit(&self) -> bool {
        let room = self.ring.outstanding() < self.ring.capacity();
        let is_ready = !self.waiting.is_empty() || !self.released.is_empty();
        self.ring.busy() || (room && is_ready)
    }

    /// Number of member requests without an answer.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.operations.len() - self.free.len()
    }

    /// Whether the code that carried out any operation has panicked so far.
    #[must_use]
    pub fn panicked(&self) -> bool {
        self.panicked
    }

    /// The ring that carries out the operations.
    #[must_use]
    pub fn ring(&self) -> &R {
        &self.ring
    }

    /// Queues the operation that a request needs in its present stage.
    fn advance(&mut self, id: u32) {
        let operation = self.operations[id as usize].as_mut().expect("advanced until answered");
        let (member, stage) = (operation.member, operation.stage);
        let Some(Some(entry)) = self.members.get_mut(member.index()) else {
            self.finish(id, Err(Fault::Gone));
            return;
        };
        if entry.gone {
            self.finish(id, Err(Fault::Gone));
            return;
        }
        let action = match stage {
            Stage::Discard => Action::Discard { len: operation.len as u64 },
            Stage::FlushAfter | Stage::FlushBefore => {
                if entry.lost {
                    self.finish(id, Err(Fault::Io));
                    return;
                }
                if entry.flushing.is_some_and(|other| other != id) {
                    entry.flush_next.push_back(id);
                    return;
                }
                entry.flushing = Some(id);
                Action::Flush
            }
            Stage::Proof | Stage::Transfer { .. } => {
                let dsync = stage == Stage::Transfer { dsync: true };
                if dsync && entry.lost {
                    self.finish(id, Err(Fault::Io));
                    return;
                }
                let buffer = operation.buffer.take().expect("not with the ring now");
                match operation.kind {
                    Kind::Read => Action::Read(buffer),
                    Kind::Discard { .. }
                    | Kind::Flush
                    | Kind::Write { .. }
                    | Kind::WriteMetadata => Action::Write { buffer, durable: dsync },
                }
            }
        };
        let operation = self.operations[id as usize].as_ref().expect("found above");
        let rest = operation.len - operation.moved;
        let (skip, limit) = match operation.kind {
            // The same zeros are written repeatedly.
            Kind::Discard { .. } => (0, rest.min(ZEROS_BYTES)),
            _ => (operation.moved, rest),
        };
        let op = RingOp {
            id,
            file: member.0,
            action,
            offset: operation.offset + operation.moved as u64,
            skip,
            limit,
        };
        if self.may_begin(&op) {
            self.ring.push(op);
        } else {
            self.waiting.push_back(op);
        }
    }

    /// Reserves a place in the ring for an operation, unless it has to wait: because other
    /// operations wait for room, because its member has used its share, or because the member's
    /// size has to be checked first. Returns whether a place was reserved.
    fn may_begin(&mut self, op: &RingOp) -> bool {
        let others_wait = !self.waiting.is_empty() || !self.released.is_empty();
        if others_wait || self.ring.outstanding() >= self.ring.capacity() {
            return false;
        }
        let Some(Some(entry)) = self.members.get_mut(usize::from(op.file)) else { return false };
        let is_write = matches!(op.action, Action::Write { .. });
        let is_last = is_write && op.offset + op.limit as u64 >= entry.member.end();
        if entry.gone || is_last || entry.in_ring >= self.share || !entry.held.is_empty() {
            return false;
        }
        entry.in_ring += 1;
        entry.writing += u32::from(is_write);
        true
    }

    /// Advances the request of an operation that has ended.
    fn on_done(&mut self, ended: RingDone) {
        let RingDone { op, result, .. } = ended;
        let id = op.id;
        let operation = self.operations[id as usize].as_mut().expect("answered only once");
        let stage = operation.stage;
        if let Action::Read(buffer) | Action::Write { buffer, .. } = op.action {
            operation.buffer = Some(buffer);
        }
        let mut entry = self.members.get_mut(operation.member.index()).and_then(Option::as_mut);
        let is_flush = stage.is_flush();
        if is_flush && let Some(entry) = &mut entry {
            assert_eq!(entry.flushing.take(), Some(id));
        }
        if result == Ok(0)
            && !matches!(stage, Stage::Discard | Stage::FlushAfter | Stage::FlushBefore)
            && let Some(entry) = &mut entry
        {
            entry.set_gone();
        }
        let next = match result {
            _ if entry.as_ref().is_some_and(|entry| entry.gone) => Next::Finish(Err(Fault::Gone)),
            Ok(moved) => operation.on_success(moved, entry.as_deref_mut()),
            Err(errno) => operation.on_error(errno, entry.as_deref_mut()),
        };
        let next_flush = entry.and_then(|entry| {
            let free = entry.flushing.is_none() && is_flush;
            if free { entry.flush_next.pop_front() } else { None }
        });
        match next {
            Next::Stage(stage) => {
                self.operations[id as usize].as_mut().expect("found above").stage = stage;
                self.advance(id);
            }
            Next::Finish(result) => self.finish(id, result),
        }
        if let Some(id) = next_flush {
            self.advance(id);
        }
    }

    fn finish(&mut self, id: u32, result: Result<(), Fault>) {
        let operation = self.operations[id as usize].take().expect("finished once");
        self.free.push(id);
        let Operation { token, member, kind, started, .. } = operation;
        if let Some(Some(entry)) = self.members.get_mut(member.index()) {
            entry.figures.count(kind.counts_as(), self.now.since(started), result.is_ok());
        }
        self.answers.push_back((token, result.map(|()| Value::Nothing)));
        // Requests that wait for this flush must go on even if it never ran.
        if let Some(Some(entry)) = self.members.get_mut(member.index())
            && entry.flushing.is_none()
            && let Some(next) = entry.flush_next.pop_front()
        {
            self.advance(next);
        }
    }
}

/// Removes the operation with number `id` from a queue and returns it; `None` if it is not there.
fn take_from(queue: &mut VecDeque<RingOp>, id: u32) -> Option<RingOp> {
    let position = queue.iter().position(|op| op.id == id)?;
    queue.remove(position)
}
