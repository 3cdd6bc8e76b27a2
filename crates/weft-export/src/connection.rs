//! What does one NBD client want, and what is it still owed?
//!
//! A connection is parsed, its requests are given to the engine in pieces, and its replies are sent in
//! the order in which they end. Its bytes take one way each:
//!
//! ```text
//! write    socket ──► receive buffer ──► frames         short payloads, one copy
//!          socket ─────────────────────► frames         the rest of long ones
//! read     frames ─────────────────────► socket         header and payload in one `sendmsg`
//! ```
//!
//! # Pieces
//!
//! A request is cut at multiples of [`PIECE_BYTES`]. In the common case it is *whole*: frames for all
//! of it are taken at once, nothing reaches the engine before the payload is complete, and a read is
//! answered when all of it is there, so that an error can still be told. A request that does not fit
//! what its client may have is *streamed*: one piece at a time, in order, answered once; a read that
//! fails after its first piece can only be told by hanging up.
//!
//! # Bounds
//!
//! Nothing more is read from the socket while the client has too many requests open, too little credit,
//! or more frames than are free: `held + need <= free`, so that n greedy clients that do not read their
//! replies leave one share of n + 1 to the next. A client that is slow waits for nobody but itself.
//!
//! Source   A. K. Choudhury, E. L. Hahne, "Dynamic queue length thresholds", 1998 (the rule for frames)

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags};
use smallvec::SmallVec;
use weft_engine::{Flags, Parts, ReplyError, Request, RequestOp, Run, Tag, frames_needed};
use weft_nbd::{NbdError, Op, ReplyHeader, ServerConnection, ServerEvent};
use weft_runtime::buffers::Buffer;
use weft_runtime::driver::Driver;
use weft_runtime::reactor::Held;
use weft_units::{ByteRange, Bytes, ClientId, FRAME_BYTES, VolumeId};

use crate::allocation::Allocation;

/// What an export stands for.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub(crate) volume: VolumeId,
    pub(crate) allocation: Arc<Allocation>,
    /// Whether a trim does something, as far as was known at the start.
    pub(crate) discards: bool,
}

/// One client.
pub(crate) struct Connection {
    pub(crate) socket: OwnedFd,
    pub(crate) client: ClientId,
    codec: ServerConnection,
    /// What it has chosen.
    served: Option<Served>,
    /// Received and not looked at: the client has to wait.
    stash: Vec<u8>,
    /// Parsed, and waiting for credit or frames.
    pending: Option<weft_nbd::Request>,
    /// The write whose payload comes next.
    receiving: Option<u32>,
    slots: Vec<Option<Open>>,
    free: Vec<u32>,
    /// Ended, in the order in which they are answered.
    replies: VecDeque<u32>,
    /// Bytes of the first reply that were sent (of a streamed read: of its present piece).
    sent: usize,
    /// Frames taken for it and not back yet.
    held: u32,
    /// Trims and zeroes that are not answered.
    long: usize,
    /// Bytes asked of the engine and not credited yet.
    charged: u64,
    credit: u64,
    /// Pieces that wait for frames: the member stalled, or the next piece of a streamed request.
    starved: VecDeque<u32>,
    /// The rest of what was received is for the next pass.
    yielded: bool,
    readable: bool,
    writable: bool,
    /// The other side has closed; what it sent before is still to be read.
    hung_up: bool,
    /// Nothing sensible can be sent any more.
    broken: bool,
    /// The client said goodbye, or cannot be followed: send what is owed, then hang up.
    leaving: bool,
    poisoned: bool,
}

/// What became of a connection's latest step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Hang up.
    Closed,
    /// It goes on.
    Open,
}

/// A request that is not answered yet.
struct Open {
    request: weft_nbd::Request,
    op: RequestOp,
    fua: bool,
    discard: bool,
    start: u64,
    len: u64,
    /// All pieces of a whole request, the present one of a streamed.
    pieces: SmallVec<[Piece; 1]>,
    /// Bytes of payload received.
    received: u64,
    /// Bytes given to the engine.
    submitted: u64,
    /// Pieces at the engine.
    outstanding: u32,
    error: Option<NbdError>,
    streamed: bool,
    /// Bytes of a streamed read that were sent.
    streamed_bytes: u64,
    /// Its place in `replies` is taken.
    queued: bool,
    header: Option<ReplyHeader>,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    run: Run,
    start: u64,
    len: u64,
    at: At,
}

/// Who has the frames of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Engine,
    /// Nobody: it is over, or has none.
    Nobody,
    Ours,
}

impl Connection {
    pub(crate) fn new(
        socket: OwnedFd,
        client: ClientId,
        codec: ServerConnection,
        credit: Bytes,
    ) -> Self {
        Self {
            socket,
            client,
            codec,
            served: None,
            stash: Vec::new(),
            pending: None,
            receiving: None,
            slots: Vec::new(),
            free: Vec::new(),
            replies: VecDeque::new(),
            sent: 0,
            held: 0,
            long: 0,
            charged: 0,
            credit: credit.0,
            starved: VecDeque::new(),
            yielded: false,
            readable: true,
            writable: true,
            hung_up: false,
            broken: false,
            leaving: false,
            poisoned: false,
        }
    }

    /// The socket has something to say.
    pub(crate) fn on_ready(&mut self, readable: bool, writable: bool, hung_up: bool) {
        self.hung_up |= hung_up;
        self.readable |= readable || hung_up;
        self.writable |= writable || hung_up;
    }

    /// Whether it has chosen an export.
    pub(crate) fn is_ready(&self) -> bool {
        self.served.is_some()
    }

    /// Whether it waits for something that the engine or the pool may give back.
    pub(crate) fn is_waiting(&self) -> bool {
        self.pending.is_some() || !self.starved.is_empty() || !self.stash.is_empty()
    }

    /// Whether a `receive` would do something.
    pub(crate) fn may_receive(&self) -> bool {
        let parsed = self.stash.is_empty() && self.pending.is_none();
        self.readable && parsed && !self.leaving && self.open() < REQUESTS_MAX && !self.is_flooded()
    }

    /// Whether it can go on without anybody giving back anything.
    pub(crate) fn has_yielded(&self) -> bool {
        self.yielded
    }

    /// Whether everything it is owed has been sent.
    pub(crate) fn is_drained(&self) -> bool {
        self.open() == 0 && self.codec.output().is_empty()
    }

    /// Refuses what comes from here on.
    pub(crate) fn begin_shutdown(&mut self) {
        self.codec.begin_shutdown();
    }

    /// Gives every open request an I/O error. The engine is never heard of again.
    pub(crate) fn poison(&mut self, driver: &mut Driver) {
        self.poisoned = true;
        for slot in 0..self.slots.len() {
            let slot = u32::try_from(slot).expect("at most REQUESTS_MAX");
            if let Some(open) = &mut self.slots[slot as usize] {
                if open.queued && open.error.is_none() && !open.streamed {
                    continue;
                }
                open.error = Some(NbdError::Io);
                open.outstanding = 0;
                self.end_if_over(driver, slot);
            }
        }
        self.starved.clear();
    }

    /// Receives once and looks at it.
    pub(crate) fn receive(
        &mut self,
        driver: &mut Held<'_>,
        exports: &[Served],
        buffer: &mut [u8],
    ) -> Step {
        if !self.may_receive() {
            // Nobody is there for whom the rest could be worth waiting for.
            return if self.hung_up { Step::Closed } else { Step::Open };
        }
        let (direct, extra, asked) = match self.receive_bytes(driver, buffer) {
            Ok(counts) => counts,
            Err(Errno::AGAIN) => {
                self.readable = false;
                return Step::Open;
            }
            Err(Errno::INTR) => return Step::Open,
            Err(_) => return Step::Closed,
        };
        if direct + extra == 0 {
            return Step::Closed;
        }
        // The edge comes again when more arrives, but not for an end that came together with this.
        self.readable = direct + extra == asked || self.hung_up;
        if direct > 0 {
            self.on_payload(driver, direct);
        }
        self.parse(driver, exports, &buffer[..extra])
    }

    /// Goes on with what had to wait.
    pub(crate) fn resume(&mut self, driver: &mut Driver, exports: &[Served]) -> Step {
        for _ in 0..self.starved.len() {
            let slot = self.starved.pop_front().expect("counted");
            self.next_pieces(driver, slot);
        }
        if self.pending.is_none() && self.stash.is_empty() {
            return Step::Open;
        }
        let stash = std::mem::take(&mut self.stash);
        self.parse(driver, exports, &stash)
    }

    /// A request was answered.
    pub(crate) fn on_reply(
        &mut self,
        driver: &mut Driver,
        tag: Tag,
        result: Result<(), ReplyError>,
    ) {
        let slot = u32::try_from(tag.0 >> TAG_PIECE_BITS).expect("made from a u32");
        let index = usize::try_from(tag.0 & ((1 << TAG_PIECE_BITS) - 1)).expect("16 bits");
        let Some(Some(open)) = self.slots.get_mut(slot as usize) else { return };
        let is_read = open.op == RequestOp::Read;
        let piece = &mut open.pieces[index];
        assert!(piece.at == At::Engine, "answered twice");
        if result == Err(ReplyError::Stalled) && !self.poisoned {
            // The old frames may still be filled; they come back by themselves.
            *piece = Piece { run: Run::EMPTY, at: At::Nobody, ..*piece };
            open.outstanding -= 1;
            self.next_pieces(driver, slot);
            return;
        }
        piece.at = if is_read && result.is_ok() { At::Ours } else { At::Nobody };
        open.outstanding = open.outstanding.saturating_sub(1);
        if let Err(error) = result {
            open.error.get_or_insert(errno_of(&error, open.op));
        }
        if open.outstanding == 0 {
            self.next_pieces(driver, slot);
        }
    }

    /// Frames came back from the engine.
    pub(crate) fn on_released(&mut self, run: Run) {
        self.held = self.held.saturating_sub(run.count);
    }

    /// The engine takes more.
    pub(crate) fn on_credit(&mut self, bytes: Bytes) {
        self.charged = self.charged.saturating_sub(bytes.0);
    }

    /// Sends what is ready.
    pub(crate) fn send(&mut self, driver: &mut Held<'_>) -> Step {
        while self.writable && !self.broken {
            let (wanted, sent) = match self.send_once(driver) {
                Ok(None) => break,
                Ok(Some(counts)) => counts,
                Err(Errno::AGAIN) => {
                    self.writable = false;
                    break;
                }
                Err(Errno::INTR) => continue,
                Err(_) => return Step::Closed,
            };
            self.writable = sent == wanted;
            self.on_sent(driver, sent);
        }
        if self.broken || (self.leaving && self.is_drained()) { Step::Closed } else { Step::Open }
    }

    /// Gives back what is ours; says what the engine still has of reads.
    pub(crate) fn close(mut self, driver: &mut Driver) -> Vec<(Tag, Run)> {
        let mut reads = Vec::new();
        for (slot, open) in self.slots.iter_mut().enumerate() {
            let Some(open) = open else { continue };
            for (index, piece) in open.pieces.iter().enumerate() {
                match piece.at {
                    At::Ours => driver.give_back_frames(piece.run),
                    // Those of a write come back by themselves, whether its reply is on its way or not.
                    At::Engine if piece.run.count > 0 && open.op == RequestOp::Read => {
                        let slot = u32::try_from(slot).expect("at most REQUESTS_MAX");
                        reads.push((tag_of(slot, index), piece.run));
                    }
                    At::Engine | At::Nobody => {}
                }
            }
        }
        driver.client_gone(self.client);
        reads
    }

    fn open(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether replies of the codec's own pile up.
    fn is_flooded(&self) -> bool {
        self.codec.output().len() >= weft_nbd::OUTPUT_BYTES_HIGH
    }

    /// Receives into the frames of a long payload, then into the buffer. Others may have the driver
    /// meanwhile.
    fn receive_bytes(
        &mut self,
        driver: &mut Held<'_>,
        buffer: &mut [u8],
    ) -> Result<(usize, usize, usize), Errno> {
        let mut parts = Parts::new();
        if self.codec.payload_remaining() >= DIRECT_BYTES
            && let Some(slot) = self.receiving
            && let Some(open) = &self.slots[slot as usize]
        {
            let mut rest = open.received - open.done_before();
            for piece in &open.pieces {
                let skip = rest.min(piece.len);
                rest -= skip;
                if piece.at == At::Ours && skip < piece.len {
                    parts.push(piece.run.part(piece.start % FRAME_BYTES + skip, piece.len - skip));
                }
            }
        }
        let socket = &self.socket;
        if parts.is_empty() {
            let count = driver.unlocked(|| recv(socket, buffer))?;
            return Ok((0, count, buffer.len()));
        }
        let mut frames = Buffer::Frames(driver.slab_mut().lease_exclusive(parts));
        let wanted = frames.len();
        let asked = wanted + buffer.len();
        let received = driver.unlocked(|| {
            let mut slices = frames.slices_mut(0, wanted);
            slices.push(IoSliceMut::new(buffer));
            let mut control = RecvAncillaryBuffer::default();
            rustix::net::recvmsg(socket, &mut slices, &mut control, RecvFlags::empty())
        });
        let count = received?.bytes;
        let direct = count.min(wanted);
        Ok((direct, count - direct, asked))
    }

    /// Looks at bytes until they are used up or something has to be waited for.
    fn parse(&mut self, driver: &mut Driver, exports: &[Served], bytes: &[u8]) -> Step {
        let mut rest = bytes;
        self.yielded = false;
        // Data of reads asked for in this pass.
        let mut asked = 0;
        loop {
            if let Some(request) = self.pending.take() {
                if !self.begin(driver, request) {
                    self.pending = Some(request);
                    break;
                }
                if let Op::Read { len, .. } = request.op {
                    asked += u64::from(len);
                    if asked >= READ_BYTES_MAX && !rest.is_empty() {
                        self.yielded = true;
                        break;
                    }
                }
            }
            let payload = self.codec.payload_remaining();
            if payload > 0 {
                let count = self.copy_payload(driver, &rest[..rest.len().min(payload)]);
                if count == 0 {
                    break;
                }
                rest = &rest[count..];
                self.on_payload(driver, count);
                continue;
            }
            if self.leaving {
                return Step::Open;
            }
            if self.open() >= REQUESTS_MAX || self.is_flooded() {
                break;
            }
            let (count, event) = self.codec.input(rest);
            rest = &rest[count..];
            match event {
                None if count == 0 => break,
                None => {}
                Some(ServerEvent::Close(reason)) => {
                    tracing::debug!(client = self.client.0, %reason, "client hung up on");
                    self.leaving = true;
                }
                Some(ServerEvent::Disconnect) => self.leaving = true,
                Some(ServerEvent::Ready { export }) => self.served = exports.get(export).cloned(),
                Some(ServerEvent::Request(request)) => self.pending = Some(request),
            }
        }
        self.stash.extend_from_slice(rest);
        Step::Open
    }

    /// Puts payload where it belongs; how much of it found a place.
    fn copy_payload(&mut self, driver: &mut Driver, bytes: &[u8]) -> usize {
        let slot = self.receiving.expect("set when a write begins");
        let open = self.slots[slot as usize].as_ref().expect("open while its payload comes");
        if open.error.is_some() {
            return bytes.len();
        }
        let mut skip = open.received - open.done_before();
        let mut copied = 0;
        for piece in &open.pieces {
            let offset = skip.min(piece.len);
            skip -= offset;
            let room = usize::try_from(piece.len - offset).expect("at most PIECE_BYTES");
            let count = room.min(bytes.len() - copied);
            if piece.at != At::Ours || count == 0 {
                continue;
            }
            let part = piece.run.part(piece.start % FRAME_BYTES + offset, count as u64);
            driver.slab_mut().bytes_mut(part).copy_from_slice(&bytes[copied..copied + count]);
            copied += count;
        }
        copied
    }

    /// Payload has arrived and is in its place.
    fn on_payload(&mut self, driver: &mut Driver, count: usize) {
        self.codec.payload_consumed(count);
        let slot = self.receiving.expect("set when a write begins");
        let open = self.slots[slot as usize].as_mut().expect("open while its payload comes");
        open.received += count as u64;
        let complete = open.received == open.len;
        if complete {
            self.receiving = None;
        }
        if open.error.is_some() {
            self.end_if_over(driver, slot);
        } else if complete
            || (open.streamed && open.received == open.done_before() + open.pieces[0].len)
        {
            self.submit(driver, slot);
        }
    }

    /// Starts a request, unless it has to wait.
    fn begin(&mut self, driver: &mut Driver, request: weft_nbd::Request) -> bool {
        let mut discard = false;
        let (op, start, len, fua) = match request.op {
            Op::BlockStatus { .. } | Op::Cache { .. } => {
                self.answer_here(driver, &request);
                return true;
            }
            Op::Read { .. } if self.is_hole(driver, &request) => {
                self.codec.reply_hole(&request);
                return true;
            }
            Op::Flush => (RequestOp::Flush, 0, 0, false),
            Op::Read { offset, len, .. } => (RequestOp::Read, offset, u64::from(len), false),
            Op::Write { offset, len, fua } => (RequestOp::Write, offset, u64::from(len), fua),
            Op::Trim { offset, len, fua } => (RequestOp::Trim, offset, len, fua),
            Op::WriteZeroes { offset, len, fua, no_hole, .. } => {
                discard = !no_hole;
                (RequestOp::WriteZeroes, offset, len, fua)
            }
        };
        // They take no memory of their own, so that nothing else bounds how many wait for each other.
        if is_long(op) && self.long >= LONG_MAX {
            return false;
        }
        let mut open = Open {
            request,
            op,
            fua,
            discard,
            start,
            len,
            pieces: SmallVec::new(),
            received: 0,
            submitted: 0,
            outstanding: 0,
            error: self.poisoned.then_some(NbdError::Io),
            streamed: false,
            streamed_bytes: 0,
            queued: false,
            header: None,
        };
        let has_payload = matches!(op, RequestOp::Read | RequestOp::Write);
        if has_payload && open.error.is_none() {
            let whole = self.charged + len <= self.credit
                && self.take_whole(driver, start, len, &mut open.pieces);
            if !whole {
                if self.held > 0 || self.charged > 0 {
                    return false;
                }
                open.streamed = true;
            }
        }
        self.long += usize::from(is_long(op));
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = Some(open);
                slot
            }
            None => {
                self.slots.push(Some(open));
                u32::try_from(self.slots.len() - 1).expect("at most REQUESTS_MAX")
            }
        };
        if op == RequestOp::Write {
            self.receiving = Some(slot);
        }
        let open = self.slots[slot as usize].as_ref().expect("put there just now");
        if open.error.is_some() {
            self.end_if_over(driver, slot);
        } else if open.streamed {
            self.next_pieces(driver, slot);
        } else if op != RequestOp::Write {
            self.submit(driver, slot);
        }
        true
    }

    /// Answers what needs no engine: where holes are, and what is to be read soon, which is as near as
    /// it gets.
    fn answer_here(&mut self, driver: &mut Driver, request: &weft_nbd::Request) {
        let Served { volume, allocation, .. } = self.served.as_ref().expect(CHOSEN);
        match request.op {
            _ if self.poisoned => self.codec.reply(request, Err(NbdError::Io)),
            Op::BlockStatus { offset, len, .. } => {
                let extents = allocation.extents(driver, *volume, offset, len);
                self.codec.reply_extents(request, &extents);
            }
            _ => self.codec.reply(request, Ok(())),
        }
    }

    /// Whether a long read is of a hole, and its client can be told so.
    fn is_hole(&self, driver: &mut Driver, request: &weft_nbd::Request) -> bool {
        let Op::Read { offset, len, df: false } = request.op else { return false };
        let Served { volume, allocation, .. } = self.served.as_ref().expect(CHOSEN);
        self.codec.is_structured()
            && !self.poisoned
            && allocation.is_hole(driver, *volume, offset, len)
    }

    /// Frames for a whole request, all or none.
    fn take_whole(
        &mut self,
        driver: &mut Driver,
        start: u64,
        len: u64,
        pieces: &mut SmallVec<[Piece; 1]>,
    ) -> bool {
        let need = frames_needed(start, len);
        if self.held + need > driver.pool().free() {
            return false;
        }
        let end = start + len;
        let mut at = start;
        while at < end {
            let next = ((at / PIECE_BYTES + 1) * PIECE_BYTES).min(end);
            let Some(run) = driver.take_frames(self.client, frames_needed(at, next - at)) else {
                for piece in pieces.drain(..) {
                    self.held -= piece.run.count;
                    driver.give_back_frames(piece.run);
                }
                return false;
            };
            self.held += run.count;
            pieces.push(Piece { run, start: at, len: next - at, at: At::Ours });
            at = next;
        }
        true
    }

    /// Gives every piece that is ours to the engine.
    fn submit(&mut self, driver: &mut Driver, slot: u32) {
        let open = self.slots[slot as usize].as_mut().expect("open until answered");
        let Served { volume, discards, allocation } = self.served.as_ref().expect(CHOSEN);
        let (volume, discards, row) = (*volume, *discards, allocation.row_bytes());
        let flags = Flags { fua: open.fua, discard: open.discard, ..Flags::default() };
        let mut ask = |index: usize, range: ByteRange, frames: Run| {
            driver.request(Request {
                client: self.client,
                tag: tag_of(slot, index),
                volume,
                op: open.op,
                range,
                frames,
                flags,
                attr: weft_engine::Attr {
                    origin: weft_engine::Origin::Client(self.client),
                    ..weft_engine::Attr::default()
                },
            });
        };
        match open.op {
            RequestOp::Flush | RequestOp::Trim | RequestOp::WriteZeroes => {
                let start = open.start + open.submitted;
                let stored = open.op == RequestOp::WriteZeroes && !(open.discard && discards);
                let most = if stored { ZEROES_BYTES_MAX } else { discarded_at_once(start, row) };
                let len = (open.len - open.submitted).min(most);
                open.pieces.clear();
                open.pieces.push(Piece { run: Run::EMPTY, start, len, at: At::Engine });
                ask(0, ByteRange::new(start, len), Run::EMPTY);
                open.submitted += len;
                open.outstanding = 1;
            }
            RequestOp::Read | RequestOp::Write => {
                for (index, piece) in open.pieces.iter_mut().enumerate() {
                    if piece.at == At::Ours {
                        ask(index, ByteRange::new(piece.start, piece.len), piece.run);
                        piece.at = At::Engine;
                        open.outstanding += 1;
                        open.submitted += piece.len;
                        self.charged += piece.len;
                    }
                }
            }
        }
    }

    /// What comes after pieces have ended, or when frames are free again.
    fn next_pieces(&mut self, driver: &mut Driver, slot: u32) {
        let Some(Some(open)) = self.slots.get_mut(slot as usize) else { return };
        if open.error.is_some() {
            self.end_if_over(driver, slot);
            return;
        }
        if open.op == RequestOp::Read && open.pieces.iter().any(Piece::is_stalled) {
            self.ask_again(driver, slot);
            return;
        }
        if open.outstanding > 0 {
            return;
        }
        let long = matches!(open.op, RequestOp::Trim | RequestOp::WriteZeroes);
        if long && open.submitted < open.len {
            self.submit(driver, slot);
            return;
        }
        if open.streamed
            && open.op == RequestOp::Read
            && open.pieces.iter().any(|p| p.at == At::Ours)
        {
            // A piece of a streamed read is ready to be sent.
            self.queue_reply(slot);
            return;
        }
        if open.streamed && open.submitted < open.len {
            let start = open.start + open.submitted;
            let mut len = (open.len - open.submitted).min(PIECE_BYTES - start % PIECE_BYTES);
            let run = loop {
                let need = frames_needed(start, len);
                if self.held + need <= driver.pool().free()
                    && let Some(run) = driver.take_frames(self.client, need)
                {
                    break run;
                }
                if len <= FRAME_BYTES {
                    if !self.starved.contains(&slot) {
                        self.starved.push_back(slot);
                    }
                    return;
                }
                // Shorter, down to the end of one block.
                len = (len / 2).max(1).next_multiple_of(FRAME_BYTES).min(len - 1);
            };
            self.held += run.count;
            open.pieces.clear();
            open.pieces.push(Piece { run, start, len, at: At::Ours });
            if open.op == RequestOp::Read {
                self.submit(driver, slot);
            }
            return;
        }
        self.end_if_over(driver, slot);
    }

    /// Asks for pieces whose member stalled once more, with other frames.
    fn ask_again(&mut self, driver: &mut Driver, slot: u32) {
        self.starved.retain(|other| *other != slot);
        let open = self.slots[slot as usize].as_mut().expect("the caller looked");
        let mut hidden: SmallVec<[usize; 4]> = SmallVec::new();
        for index in 0..open.pieces.len() {
            let piece = open.pieces[index];
            if piece.at == At::Ours {
                // Read already; it must not be asked for with the others.
                hidden.push(index);
                open.pieces[index].at = At::Nobody;
            } else if piece.is_stalled() {
                let need = frames_needed(piece.start, piece.len);
                let Some(run) = driver.take_frames(self.client, need) else {
                    if !self.starved.contains(&slot) {
                        self.starved.push_back(slot);
                    }
                    continue;
                };
                self.held += run.count;
                open.submitted -= piece.len;
                open.pieces[index] = Piece { run, at: At::Ours, ..piece };
            }
        }
        self.submit(driver, slot);
        let open = self.slots[slot as usize].as_mut().expect("nothing was answered meanwhile");
        for index in hidden {
            open.pieces[index].at = At::Ours;
        }
    }

    /// Answers a request of which nothing is outstanding any more.
    fn end_if_over(&mut self, driver: &mut Driver, slot: u32) {
        let Some(Some(open)) = self.slots.get_mut(slot as usize) else { return };
        let payload_to_come = open.op == RequestOp::Write && open.received < open.len;
        if open.outstanding > 0 || (payload_to_come && self.receiving == Some(slot)) {
            return;
        }
        if open.error.is_some() {
            if open.streamed_bytes > 0 || (self.sent > 0 && self.replies.front() == Some(&slot)) {
                // Data has gone out already; there is no way left to say it.
                self.broken = true;
            }
            for piece in &mut open.pieces {
                if piece.at == At::Ours {
                    self.held -= piece.run.count;
                    driver.give_back_frames(piece.run);
                    piece.at = At::Nobody;
                }
            }
        }
        self.queue_reply(slot);
    }

    fn queue_reply(&mut self, slot: u32) {
        let open = self.slots[slot as usize].as_mut().expect("open until answered");
        let result = open.error.map_or(Ok(()), Err);
        if open.streamed_bytes == 0 {
            open.header = Some(self.codec.reply_header(&open.request, result));
        }
        if !open.queued {
            open.queued = true;
            self.replies.push_back(slot);
        }
    }

    /// One `sendmsg`: how much there was to send and how much was; `None` without anything. Others may
    /// have the driver meanwhile.
    fn send_once(&self, driver: &mut Held<'_>) -> Result<Option<(usize, usize)>, Errno> {
        let line = self.line_up();
        if line.wanted == 0 {
            return Ok(None);
        }
        let Line { items, parts, wanted, .. } = line;
        let frames = (!parts.is_empty()).then(|| Buffer::Frames(driver.slab().lease_shared(parts)));
        let payload = frames.as_ref().map(|frames| frames.slices(0, usize::MAX));
        let mut payload = payload.iter().flatten();
        let slices: SmallVec<[IoSlice<'_>; 64]> = items
            .iter()
            .map(|item| match item {
                Item::Bytes(bytes) => IoSlice::new(bytes),
                Item::Frames => IoSlice::new(payload.next().expect("a slice for each part")),
            })
            .collect();
        let socket = &self.socket;
        let sent = driver.unlocked(|| {
            let mut control = SendAncillaryBuffer::default();
            rustix::net::sendmsg(socket, &slices, &mut control, SendFlags::NOSIGNAL)
        })?;
        Ok(Some((wanted, sent)))
    }

    /// What the next `sendmsg` is made of.
    fn line_up(&self) -> Line<'_> {
        let mut line = Line { skip: self.sent, ..Line::default() };
        // The codec's own messages go between two replies, as early as possible.
        let output = self.codec.output();
        let mid_reply = self.sent > 0 || self.front_streams();
        if !mid_reply {
            line.push(output);
        }
        for (index, slot) in self.replies.iter().enumerate() {
            let open = self.slots[*slot as usize].as_ref().expect("open until sent");
            if !open.is_sendable() || line.is_full(open.pieces.len()) {
                break;
            }
            if let Some(header) = open.header.as_deref() {
                line.push(header);
            }
            if open.op == RequestOp::Read && open.error.is_none() {
                open.pieces.iter().for_each(|piece| line.push_piece(piece));
            }
            if line.is_cut || !open.is_last_piece() {
                break;
            }
            if index == 0 && mid_reply && !output.is_empty() {
                // After the reply that was under way.
                line.push(output);
                break;
            }
        }
        line
    }

    /// Whether the first reply is a streamed read that has begun.
    fn front_streams(&self) -> bool {
        let first = self.replies.front().and_then(|slot| self.slots[*slot as usize].as_ref());
        first.is_some_and(|open| open.streamed_bytes > 0)
    }

    /// Accounts for bytes that were sent, in the order in which `send_once` lined them up.
    fn on_sent(&mut self, driver: &mut Driver, sent: usize) {
        let mut sent = sent;
        let mut output = self.codec.output().len();
        if output > 0 && self.sent == 0 && !self.front_streams() {
            let count = sent.min(output);
            self.codec.advance_output(count);
            sent -= count;
            output = 0;
        }
        while let Some(slot) = self.replies.front().copied() {
            let open = self.slots[slot as usize].as_mut().expect("open until sent");
            if !open.is_sendable() {
                break;
            }
            let whole = open.bytes_to_send();
            if self.sent + sent < whole {
                self.sent += sent;
                return;
            }
            sent -= whole - self.sent;
            self.sent = 0;
            for piece in &mut open.pieces {
                if piece.at == At::Ours {
                    self.held -= piece.run.count;
                    driver.give_back_frames(piece.run);
                    piece.at = At::Nobody;
                }
            }
            if open.is_last_piece() {
                self.long -= usize::from(is_long(open.op));
                self.slots[slot as usize] = None;
                self.free.push(slot);
                self.replies.pop_front();
                if self.open() == 0 {
                    // Nothing is asked of the engine, so it owes no credit.
                    self.charged = 0;
                }
            } else {
                open.streamed_bytes += open.pieces[0].len;
                open.header = None;
                open.pieces.clear();
                self.next_pieces(driver, slot);
                return;
            }
            if output > 0 {
                let count = sent.min(output);
                self.codec.advance_output(count);
                sent -= count;
                output = 0;
            }
            if sent == 0 {
                return;
            }
        }
    }
}

/// What one `sendmsg` is made of.
#[derive(Default)]
struct Line<'a> {
    items: SmallVec<[Item<'a>; 64]>,
    /// Where the payload is, in order.
    parts: Parts,
    /// Bytes of the first reply that were sent before.
    skip: usize,
    wanted: usize,
    /// The rest of the last reply is for another time.
    is_cut: bool,
}

enum Item<'a> {
    Bytes(&'a [u8]),
    /// The next of the parts.
    Frames,
}

impl<'a> Line<'a> {
    fn push(&mut self, bytes: &'a [u8]) {
        let cut = self.skip.min(bytes.len());
        self.skip -= cut;
        if cut < bytes.len() {
            self.wanted += bytes.len() - cut;
            self.items.push(Item::Bytes(&bytes[cut..]));
        }
    }

    fn push_piece(&mut self, piece: &Piece) {
        let len = usize::try_from(piece.len).expect("at most PIECE_BYTES");
        let cut = self.skip.min(len);
        self.skip -= cut;
        let taken = (len - cut).min(SEND_BYTES_MAX.saturating_sub(self.wanted));
        self.is_cut |= taken < len - cut;
        if taken > 0 {
            self.wanted += taken;
            let offset = piece.start % FRAME_BYTES + cut as u64;
            self.parts.push(piece.run.part(offset, taken as u64));
            self.items.push(Item::Frames);
        }
    }

    /// Whether a reply of so many pieces is for another time.
    fn is_full(&self, pieces: usize) -> bool {
        let full = self.items.len() + pieces + 2 > SLICES_MAX || self.wanted >= SEND_BYTES_MAX;
        full && self.wanted > 0
    }
}

impl Piece {
    /// Whether its read has to be asked for again.
    fn is_stalled(&self) -> bool {
        self.at == At::Nobody && self.run.count == 0
    }
}

impl Open {
    /// Bytes before the present pieces.
    fn done_before(&self) -> u64 {
        self.pieces.first().map_or(self.received, |piece| piece.start - self.start)
    }

    fn is_sendable(&self) -> bool {
        let ready = !self.streamed || self.pieces.iter().any(|piece| piece.at == At::Ours);
        self.queued && (self.error.is_some() || self.op != RequestOp::Read || ready)
    }

    /// Whether what is ready to be sent is the end of the reply.
    fn is_last_piece(&self) -> bool {
        let is_stream = self.streamed && self.op == RequestOp::Read && self.error.is_none();
        !is_stream || self.submitted == self.len
    }

    fn bytes_to_send(&self) -> usize {
        let header = self.header.as_deref().map_or(0, <[u8]>::len);
        let is_data = self.op == RequestOp::Read && self.error.is_none();
        let data: u64 = self.pieces.iter().map(|piece| if is_data { piece.len } else { 0 }).sum();
        header + usize::try_from(data).expect("at most 32 MiB")
    }
}

/// Whether a request's length is bounded by nothing that it brings or takes along.
fn is_long(op: RequestOp) -> bool {
    matches!(op, RequestOp::Trim | RequestOp::WriteZeroes)
}

fn recv(socket: &OwnedFd, buffer: &mut [u8]) -> Result<usize, Errno> {
    rustix::net::recv(socket, buffer, RecvFlags::empty()).map(|(_, count)| count)
}

fn tag_of(slot: u32, piece: usize) -> Tag {
    Tag(u64::from(slot) << TAG_PIECE_BITS | piece as u64)
}

/// Bytes from `start` on that are discarded by one request to the engine: up to the end of a chunk row,
/// so that nothing has to be stored where two of them meet.
fn discarded_at_once(start: u64, row: u64) -> u64 {
    let last = (start / row + 1).saturating_mul(row);
    let end = start.saturating_add(DISCARD_BYTES_MAX) / row * row;
    end.max(last) - start
}

/// What NBD can say of an engine's error.
fn errno_of(error: &ReplyError, op: RequestOp) -> NbdError {
    let writes = !matches!(op, RequestOp::Flush | RequestOp::Read);
    match error {
        ReplyError::NoSpace => NbdError::NoSpace,
        ReplyError::OutOfRange if writes => NbdError::NoSpace,
        ReplyError::Invalid(_) | ReplyError::OutOfRange => NbdError::Invalid,
        ReplyError::ReadOnly | ReplyError::Refused(_) => NbdError::Permission,
        ReplyError::Stopping => NbdError::Shutdown,
        _ => NbdError::Io,
    }
}

/// Where requests are cut: a MiB is several chunk rows and a few tenths of a millisecond.
const PIECE_BYTES: u64 = 1 << 20;
/// Most zeros that are stored for one request to the engine: who wants something of what comes after need
/// not wait for all.
const ZEROES_BYTES_MAX: u64 = 32 << 20;
/// Most that is discarded for one request to the engine. Others wait for all of it, so does a stop, and it
/// goes on when its client is gone; an array without a member stores zeros instead.
const DISCARD_BYTES_MAX: u64 = 1 << 30;
/// Requests of one client that are not answered: 32 times what Linux' nbd keeps in flight by default.
const REQUESTS_MAX: usize = 4096;
/// Trims and zeroes among them.
const LONG_MAX: usize = 64;
const CHOSEN: &str = "requests come after the choice of an export";
/// Payload of which at least this much is missing is received into its frames without a copy.
const DIRECT_BYTES: usize = 64 << 10;
/// Payload of one `sendmsg`: what a socket takes at once, and no more than fits a cache.
const SEND_BYTES_MAX: usize = 256 << 10;
/// Data asked for by the reads of one client before it is sent: more would leave the CPU's cache before
/// it is.
const READ_BYTES_MAX: u64 = 512 << 10;
/// Slices of one `sendmsg`, below `IOV_MAX`.
const SLICES_MAX: usize = 1000;
/// Bits of a tag for the piece: 2^16 MiB are more than NBD's longest request.
const TAG_PIECE_BITS: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_discards_are_cut_between_chunk_rows() {
        let row = 3 << 19;
        let first = discarded_at_once(512, row);
        assert_eq!((512 + first) % row, 0);
        assert!(first <= DISCARD_BYTES_MAX && first > DISCARD_BYTES_MAX - row, "{first}");
        assert_eq!(discarded_at_once(7, 1), DISCARD_BYTES_MAX);
        // A row is never cut, however long it is.
        assert_eq!(discarded_at_once(512, 5 << 30), (5 << 30) - 512);
        assert_eq!(discarded_at_once(5 << 30, 5 << 30), 5 << 30);
        let end = u64::MAX - 4096;
        assert!(discarded_at_once(end, row) > 0);
    }
}
