//! Requests of a client between arrival and reply: frames, request parts, retries and the result.
//!
//! A request gets frames, goes to the engine in parts of up to 1 MiB, repeats those that stalled at
//! a member, and becomes a reply when none of its parts is outstanding. The client's connection
//! receives requests and their data and sends replies; this file does no I/O.

use std::collections::VecDeque;
use std::sync::Arc;

use smallvec::SmallVec;
use weft_engine::{
    Attr, ClientRequest, Flags, Origin, ReplyError, RequestOp, Run, Segments, Tag, frames_needed,
};
use weft_runtime::figures::RequestKind;
use weft_runtime::serve::driver::{Driver, Event};
use weft_units::{ByteRange, Bytes, ClientId, FRAME_BYTES, Time};

use super::{CHOSEN, Served};
use crate::record::VolumeRequest;
use crate::share::ClientShare;

/// Requests of one client. `R` is a request in the form of the protocol, and `H` the header of its
/// reply.
pub(crate) struct Requests<R, H> {
    pub(super) client: ClientId,
    /// Attributes of the client's requests: the default until it has chosen an export.
    attr: Attr,
    /// Export that the client has chosen; `None` before.
    pub(super) served: Option<Served>,
    /// Index in `slots` of the write that receives its payload now; `None` if none does.
    receiving: Option<u32>,
    slots: Vec<Option<Open<R, H>>>,
    free: Vec<u32>,
    /// Indexes in `slots` of the requests that have ended, in the order in which they are answered.
    pub(super) replies: VecDeque<u32>,
    /// Number of frames that are on loan to the client.
    held: u32,
    /// Number of trims and writes of zeroes without an answer.
    long: usize,
    /// Number of bytes that were submitted to the engine and not credited yet.
    charged: u64,
    credit: u64,
    /// Indexes in `slots` of requests that have a reply, or another part of one, and were not taken
    /// yet ([`Self::take_ended`]).
    ended: Vec<u32>,
    /// Indexes in `slots` of requests that wait for frames: for a repetition after a member
    /// stalled, or for the next part of a streamed request.
    starved: VecDeque<u32>,
    /// Set when a request failed after a part of its data was sent, so that no reply can report the
    /// error.
    pub(super) broken: bool,
    pub(super) poisoned: bool,
}

/// Reply to a request, as it is sent.
pub(crate) struct Reply<'a, R> {
    pub(crate) request: R,
    pub(crate) error: Option<&'a ReplyError>,
    /// Data of a read: offset of its first byte within the request, and its segments. `None` for
    /// another request, and for a failed one.
    pub(crate) data: Option<(u64, Segments)>,
}

/// A request that is not answered yet.
pub(super) struct Open<R, H> {
    pub(super) request: R,
    pub(super) op: RequestOp,
    pub(super) fua: bool,
    pub(super) discard: bool,
    pub(super) start: u64,
    pub(super) len: u64,
    /// Parts of the request: all that have got frames so far. A streamed request, which is carried
    /// out part by part, has only the present part.
    pub(super) parts: SmallVec<[RequestPart; 1]>,
    /// Number of payload bytes received.
    pub(super) received: u64,
    /// Number of bytes submitted to the engine.
    pub(super) submitted: u64,
    /// Number of request parts that the engine has.
    pub(super) outstanding: u32,
    pub(super) error: Option<ReplyError>,
    pub(super) streamed: bool,
    /// Number of bytes of a streamed read that were sent, in its earlier parts.
    pub(super) streamed_bytes: u64,
    /// Whether a part of the reply was sent.
    pub(super) sent_in_part: bool,
    /// Time from which the latency of the request counts; `None` once it has been counted.
    began: Option<Time>,
    /// Whether the request is in [`Requests::replies`].
    queued: bool,
    /// Header of the reply; `None` until it was made, and for later parts of a streamed read.
    pub(super) header: Option<H>,
}

/// Part of a request, of up to 1 MiB, that goes to the engine as a request of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestPart {
    pub(super) run: Run,
    pub(super) start: u64,
    pub(super) len: u64,
    pub(super) at: At,
}

/// Holder of a request part's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    Engine,
    Ours,
    /// Nothing holds frames: the request part is over, or has none.
    Unheld,
}

impl<R, H> Requests<R, H> {
    pub(crate) fn new(client: ClientId, credit: Bytes) -> Self {
        Self {
            client,
            attr: Attr::default(),
            served: None,
            receiving: None,
            slots: Vec::new(),
            free: Vec::new(),
            replies: VecDeque::new(),
            ended: Vec::new(),
            held: 0,
            long: 0,
            charged: 0,
            credit: credit.0,
            starved: VecDeque::new(),
            broken: false,
            poisoned: false,
        }
    }

    /// Records the export that the client has chosen, and the client's share of it.
    pub(crate) fn choose(&mut self, driver: &mut Driver, served: Served, share: ClientShare) {
        let ClientShare { class, weight, group } = share;
        let origin = Origin::Client(self.client, group);
        self.attr = Attr { class, weight, origin, ..Attr::default() };
        served.chosen.enter(self.client, Arc::clone(&served.name));
        self.served = Some(served);
        driver.pool_mut().join(self.client);
    }

    /// Records a request that has arrived, if requests of the export are recorded.
    pub(crate) fn note(&self, asked: VolumeRequest) {
        if let Some(recorder) = self.served.as_ref().and_then(|it| it.recorder.as_ref()) {
            recorder.note(asked);
        }
    }

    /// Number of requests that are not answered.
    pub(crate) fn open(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether a request waits for frames or for a turn.
    pub(crate) fn is_starved(&self) -> bool {
        !self.starved.is_empty()
    }

    /// Open request with index `slot` in the list.
    pub(super) fn at(&self, slot: u32) -> &Open<R, H> {
        self.slots[slot as usize].as_ref().expect("open until answered")
    }

    /// Open request with index `slot` in the list, to change it.
    pub(super) fn at_mut(&mut self, slot: u32) -> &mut Open<R, H> {
        self.slots[slot as usize].as_mut().expect("open until answered")
    }

    /// Starts a request. Returns false if the request has to wait.
    pub(crate) fn begin(&mut self, driver: &mut Driver, request: R, asked: &VolumeRequest) -> bool
    where
        R: Copy,
    {
        let mut open = Open::new(request, asked, driver.now());
        open.error = self.poisoned.then_some(ReplyError::Io);
        let (op, len) = (open.op, open.len);
        // Long requests take no memory of their own, so only this limit bounds their number.
        if is_long(op) && self.long >= LONG_MAX {
            return false;
        }
        // Later requests wait too, so that the engine sees overlapping requests in their order.
        let needs_turn = is_sliced(op, len) && !self.poisoned;
        if needs_turn && !driver.turns_mut().begin(self.client, tag_of(self.next_slot(), 0)) {
            return false;
        }
        if !self.take_frames(driver, &mut open) {
            return false;
        }
        self.long += usize::from(is_long(op));
        let slot = self.next_slot();
        match self.free.pop() {
            Some(slot) => self.slots[slot as usize] = Some(open),
            None => self.slots.push(Some(open)),
        }
        if op == RequestOp::Write {
            self.receiving = Some(slot);
        }
        let open = self.at(slot);
        if open.error.is_some() {
            self.end_if_over(driver, slot);
        } else if open.streamed {
            self.next_parts(driver, slot);
        } else if op != RequestOp::Write {
            self.submit(driver, slot);
        }
        true
    }

    /// Write that receives its payload now, with the number of bytes that have arrived, and whether
    /// the write has failed, so that no frames are taken for the rest; `None` if no write receives
    /// payload.
    pub(crate) fn receiving(&self) -> Option<(R, u64, bool)>
    where
        R: Copy,
    {
        let open = self.at(self.receiving?);
        Some((open.request, open.received, open.error.is_some()))
    }

    /// Takes the index of a request that has a reply, or another part of one, that was not taken
    /// yet, in no particular order. `None` if there is none.
    pub(crate) fn take_ended(&mut self) -> Option<u32> {
        self.ended.pop()
    }

    /// Fails the write that is receiving payload, because the rest of the payload will not arrive.
    pub(crate) fn payload_lost(&mut self, driver: &mut Driver) {
        let Some(slot) = self.receiving.take() else { return };
        self.at_mut(slot).error.get_or_insert(ReplyError::Io);
        self.end_if_over(driver, slot);
    }

    /// Index of the first reply in the order of answers, if it or a part of its data is ready to be
    /// sent; `None` otherwise.
    pub(crate) fn first_reply(&self) -> Option<u32> {
        self.replies.front().copied().filter(|slot| self.at(*slot).is_sendable())
    }

    /// Reply to the request with index `slot` in the list, with the part of its data that is ready.
    pub(crate) fn reply(&self, slot: u32) -> Reply<'_, R>
    where
        R: Copy,
    {
        let open = self.at(slot);
        let is_data = open.op == RequestOp::Read && open.error.is_none();
        let data = is_data.then(|| {
            let mut segments = Segments::new();
            for part in &open.parts {
                let offset = part.start % FRAME_BYTES;
                segments.push(part.run.part(offset, part.len));
            }
            (open.streamed_bytes, segments)
        });
        Reply { request: open.request, error: open.error.as_ref(), data }
    }

    /// Records that the first reply was sent, or the part of it that was ready. Returns whether the
    /// request is over.
    pub(crate) fn part_sent(&mut self, driver: &mut Driver, slot: u32) -> bool {
        for run in self.frames_of(slot) {
            self.take_back(driver, run);
        }
        self.part_over(driver, slot)
    }

    /// Takes the frames of the first reply, or of the part of it that is ready, out of the request.
    /// They stay on loan to the client until [`Self::take_back`].
    pub(super) fn frames_of(&mut self, slot: u32) -> SmallVec<[Run; 1]> {
        let parts = self.at_mut(slot).parts.iter_mut().filter(|part| part.at == At::Ours);
        let take = |part: &mut RequestPart| {
            part.at = At::Unheld;
            part.run
        };
        parts.map(take).collect()
    }

    /// Goes on after the frames of the first reply, or of its part that was ready, were taken.
    /// Returns whether the request is over.
    pub(super) fn part_over(&mut self, driver: &mut Driver, slot: u32) -> bool {
        let open = self.at_mut(slot);
        if open.is_last_part() {
            self.remove_first();
            return true;
        }
        open.streamed_bytes += open.parts[0].len;
        open.sent_in_part = true;
        open.header = None;
        open.parts.clear();
        self.next_parts(driver, slot);
        false
    }

    /// Removes the first reply, which was sent.
    fn remove_first(&mut self) {
        let slot = self.replies.pop_front().expect("a reply was sent");
        let open = self.slots[slot as usize].take().expect("open until answered");
        self.long -= usize::from(is_long(open.op));
        self.free.push(slot);
        if self.open() == 0 {
            // The engine has no request of the client, so no credit is outstanding.
            self.charged = 0;
        }
    }

    /// Gives frames of a reply, which were sent, back to the pool.
    pub(crate) fn take_back(&mut self, driver: &mut Driver, run: Run) {
        self.held -= run.count;
        driver.give_back_frames(run);
    }

    /// Continues the requests that wait for frames or for a turn.
    pub(crate) fn resume(&mut self, driver: &mut Driver) {
        for _ in 0..self.starved.len() {
            let slot = self.starved.pop_front().expect("counted");
            self.next_parts(driver, slot);
        }
    }

    /// Ends every open request with an I/O error, because the engine gives no answers after a
    /// panic.
    pub(crate) fn poison(&mut self, driver: &mut Driver) {
        self.poisoned = true;
        for slot in 0..self.slots.len() {
            let slot = u32::try_from(slot).expect("at most REQUESTS_MAX");
            if let Some(open) = &mut self.slots[slot as usize] {
                if open.queued && open.error.is_none() && !open.streamed {
                    continue;
                }
                open.error = Some(ReplyError::Io);
                open.outstanding = 0;
                self.end_if_over(driver, slot);
            }
        }
        self.starved.clear();
    }

    /// Handles an event of the driver about this client.
    pub(crate) fn on_event(&mut self, driver: &mut Driver, event: Event) {
        match event {
            Event::Credit { bytes, .. } => self.charged = self.charged.saturating_sub(bytes.0),
            Event::Released { run, .. } => self.held = self.held.saturating_sub(run.count),
            Event::Reply { tag, result, .. } => self.on_reply(driver, tag, result),
        }
    }

    /// Handles the engine's answer to a request part.
    fn on_reply(&mut self, driver: &mut Driver, tag: Tag, result: Result<(), ReplyError>) {
        let slot = u32::try_from(tag.0 >> TAG_INDEX_BITS).expect("made from a u32");
        let index = usize::try_from(tag.0 & ((1 << TAG_INDEX_BITS) - 1)).expect("16 bits");
        let Some(Some(open)) = self.slots.get_mut(slot as usize) else { return };
        let is_read = open.op == RequestOp::Read;
        if is_long(open.op) {
            driver.turns_mut().end(self.client, tag);
        }
        let part = &mut open.parts[index];
        assert!(part.at == At::Engine, "answered twice");
        if result == Err(ReplyError::Stalled) && !self.poisoned {
            // The old frames may still be filled; the engine releases them by itself.
            *part = RequestPart { run: Run::EMPTY, at: At::Unheld, ..*part };
            open.outstanding -= 1;
            self.next_parts(driver, slot);
            return;
        }
        part.at = if is_read && result.is_ok() { At::Ours } else { At::Unheld };
        open.outstanding = open.outstanding.saturating_sub(1);
        if let Err(error) = result {
            open.error.get_or_insert(error);
        }
        if open.outstanding == 0 {
            self.next_parts(driver, slot);
        }
    }

    /// Gives back the frames of the client and returns the frames of reads that the engine still
    /// has. If a slice of the client's trim or write of zeroes is in flight, the engine learns of
    /// the disconnection when the slice ends ([`end_turn_of_gone`]).
    pub(crate) fn close(mut self, driver: &mut Driver) -> Vec<(Tag, Run)> {
        if let Some(served) = &self.served {
            served.chosen.leave(self.client);
        }
        let mut reads = Vec::new();
        for (slot, open) in self.slots.iter_mut().enumerate() {
            let Some(open) = open else { continue };
            for (index, part) in open.parts.iter().enumerate() {
                match part.at {
                    At::Ours => driver.give_back_frames(part.run),
                    // The frames of a write come back by themselves, whether its reply has been
                    // sent or not.
                    At::Engine if part.run.count > 0 && open.op == RequestOp::Read => {
                        let slot = u32::try_from(slot).expect("at most REQUESTS_MAX");
                        reads.push((tag_of(slot, index), part.run));
                    }
                    At::Engine | At::Unheld => {}
                }
            }
        }
        driver.pool_mut().leave(self.client);
        driver.turns_mut().leave(self.client);
        if !driver.turns_mut().has(self.client) {
            driver.client_gone(self.client);
        }
        reads
    }

    /// Frames of the write that receives its payload, from its next byte on, as far as they were
    /// taken; empty if no write receives payload.
    pub(crate) fn payload_segments(&self) -> Segments {
        let mut segments = Segments::new();
        let Some(slot) = self.receiving else { return segments };
        let open = self.at(slot);
        let mut rest = open.received - open.done_before();
        for part in &open.parts {
            let skip = rest.min(part.len);
            rest -= skip;
            if part.at == At::Ours && skip < part.len {
                let offset = part.start % FRAME_BYTES + skip;
                segments.push(part.run.part(offset, part.len - skip));
            }
        }
        segments
    }

    /// Takes frames for the next parts of a long write before its payload arrives, as far as frames
    /// are free.
    pub(crate) fn reserve(&mut self, driver: &mut Driver) {
        let Some(slot) = self.receiving else { return };
        let open = self.slots[slot as usize].as_mut().expect("open while its payload comes");
        if open.streamed || open.error.is_some() {
            return;
        }
        while open.room() < AHEAD_BYTES
            && let Some(part) = open.take_next(driver, self.client)
        {
            self.held += part.run.count;
        }
    }

    /// Copies payload into its frames. Returns the number of bytes copied; all of the payload
    /// counts as copied if the write has failed.
    pub(super) fn copy_payload(&mut self, driver: &mut Driver, bytes: &[u8]) -> usize {
        let slot = self.receiving.expect("set when a write begins");
        let open = self.at(slot);
        if open.error.is_some() {
            return bytes.len();
        }
        let mut skip = open.received - open.done_before();
        let mut copied = 0;
        for part in &open.parts {
            let offset = skip.min(part.len);
            skip -= offset;
            let room = usize::try_from(part.len - offset).expect("at most PART_BYTES");
            let count = room.min(bytes.len() - copied);
            if part.at != At::Ours || count == 0 {
                continue;
            }
            let segment = part.run.part(part.start % FRAME_BYTES + offset, count as u64);
            driver.slab_mut().bytes_mut(segment).copy_from_slice(&bytes[copied..copied + count]);
            copied += count;
        }
        copied
    }

    /// Records that `count` bytes of payload have arrived in their frames.
    pub(crate) fn on_payload(&mut self, driver: &mut Driver, count: usize) {
        let now = Some(driver.now());
        let slot = self.receiving.expect("set when a write begins");
        let open = self.at_mut(slot);
        open.received += count as u64;
        let complete = open.received == open.len;
        if complete {
            if !open.streamed {
                open.began = open.began.and(now);
            }
            self.receiving = None;
        } else if open.room() == 0 {
            self.reserve(driver);
        }
        let open = self.at_mut(slot);
        if open.error.is_some() {
            self.end_if_over(driver, slot);
        } else if open.room() == 0 {
            // The rest of the write gets frames when the engine has finished this part and its
            // frames are free again.
            open.streamed |= !complete;
            self.submit(driver, slot);
        }
    }

    /// Takes frames for the payload of a request that begins: all of a read's, or those of a
    /// write's first part. A request that is too large for its client is streamed. Returns
    /// false if the request has to wait for frames or credit that the client itself has in use.
    fn take_frames(&mut self, driver: &mut Driver, open: &mut Open<R, H>) -> bool {
        let has_payload = matches!(open.op, RequestOp::Read | RequestOp::Write);
        if !has_payload || open.error.is_some() {
            return true;
        }
        let (start, len) = (open.start, open.len);
        let is_taken = self.charged + len <= self.credit
            && match open.op {
                RequestOp::Write => open
                    .take_next(driver, self.client)
                    .inspect(|part| self.held += part.run.count)
                    .is_some(),
                _ => self.take_whole(driver, start, len, &mut open.parts),
            };
        if !is_taken && (self.held > 0 || self.charged > 0) {
            return false;
        }
        open.streamed = !is_taken;
        true
    }

    /// Free index in the list of open requests.
    fn next_slot(&self) -> u32 {
        let fresh = || u32::try_from(self.slots.len()).expect("at most REQUESTS_MAX");
        self.free.last().copied().unwrap_or_else(fresh)
    }

    /// Takes frames for all of a request, or none. Returns whether they were taken.
    fn take_whole(
        &mut self,
        driver: &mut Driver,
        start: u64,
        len: u64,
        parts: &mut SmallVec<[RequestPart; 1]>,
    ) -> bool {
        if !driver.pool().may_take(self.client, frames_needed(start, len)) {
            return false;
        }
        let end = start + len;
        let mut at = start;
        while at < end {
            let next = ((at / PART_BYTES + 1) * PART_BYTES).min(end);
            let Some(run) = driver.take_frames(self.client, frames_needed(at, next - at)) else {
                for part in parts.drain(..) {
                    self.held -= part.run.count;
                    driver.pool_mut().undo_take(part.run);
                }
                return false;
            };
            self.held += run.count;
            parts.push(RequestPart { run, start: at, len: next - at, at: At::Ours });
            at = next;
        }
        true
    }

    /// Submits every request part for which the session has the frames to the engine.
    fn submit(&mut self, driver: &mut Driver, slot: u32) {
        self.submit_parts(driver, slot, false);
    }

    /// Submits every request part for which the session has the frames to the engine. `again` is
    /// set for a repetition, after a member has stalled.
    fn submit_parts(&mut self, driver: &mut Driver, slot: u32, again: bool) {
        let open = self.slots[slot as usize].as_mut().expect("open until answered");
        let Served { volume, discards, allocation, .. } = self.served.as_ref().expect(CHOSEN);
        let (volume, discards, full_stripe) = (*volume, *discards, allocation.full_stripe_bytes());
        let flags = Flags { fua: open.fua, discard: open.discard, again, ..Flags::NONE };
        let mut ask = |index: usize, range: ByteRange, frames: Run| {
            driver.request(ClientRequest {
                client: self.client,
                tag: tag_of(slot, index),
                volume,
                op: open.op,
                range,
                frames,
                flags,
                attr: self.attr,
            });
        };
        match open.op {
            RequestOp::Flush | RequestOp::Trim | RequestOp::WriteZeroes => {
                let start = open.start + open.submitted;
                let stored = open.op == RequestOp::WriteZeroes && !(open.discard && discards);
                let most = if stored { ZEROES_BYTES_MAX } else { DISCARD_BYTES_MAX };
                let len = (open.len - open.submitted).min(slice(start, full_stripe, most));
                open.parts.clear();
                open.parts.push(RequestPart { run: Run::EMPTY, start, len, at: At::Engine });
                ask(0, ByteRange::new(start, len), Run::EMPTY);
                open.submitted += len;
                open.outstanding = 1;
            }
            RequestOp::Read | RequestOp::Write => {
                for (index, part) in open.parts.iter_mut().enumerate() {
                    if part.at == At::Ours {
                        ask(index, ByteRange::new(part.start, part.len), part.run);
                        part.at = At::Engine;
                        open.outstanding += 1;
                        open.submitted += part.len;
                        self.charged += part.len;
                    }
                }
            }
        }
    }

    /// Continues a request after some of its parts have ended, or when frames are free again.
    pub(super) fn next_parts(&mut self, driver: &mut Driver, slot: u32) {
        let Some(Some(open)) = self.slots.get_mut(slot as usize) else { return };
        if open.error.is_some() {
            self.end_if_over(driver, slot);
            return;
        }
        if open.op == RequestOp::Read && open.parts.iter().any(RequestPart::is_stalled) {
            self.ask_again(driver, slot);
            return;
        }
        if open.outstanding > 0 {
            return;
        }
        let long = matches!(open.op, RequestOp::Trim | RequestOp::WriteZeroes);
        if long && open.submitted < open.len {
            if driver.turns_mut().begin(self.client, tag_of(slot, 0)) {
                self.submit(driver, slot);
            } else if !self.starved.contains(&slot) {
                self.starved.push_back(slot);
            }
            return;
        }
        if open.streamed
            && open.op == RequestOp::Read
            && open.parts.iter().any(|p| p.at == At::Ours)
        {
            // A request part of a streamed read is ready to be sent.
            self.queue_reply(driver, slot);
            return;
        }
        if open.streamed && open.submitted < open.len {
            let start = open.start + open.submitted;
            let mut len = (open.len - open.submitted).min(PART_BYTES - start % PART_BYTES);
            let run = loop {
                let need = frames_needed(start, len);
                if let Some(run) = driver.take_frames(self.client, need) {
                    break run;
                }
                if len <= FRAME_BYTES {
                    if !self.starved.contains(&slot) {
                        self.starved.push_back(slot);
                    }
                    return;
                }
                // Try a shorter request part, down to the end of one block.
                len = (len / 2).max(1).next_multiple_of(FRAME_BYTES).min(len - 1);
            };
            self.held += run.count;
            open.parts.clear();
            open.parts.push(RequestPart { run, start, len, at: At::Ours });
            if open.op == RequestOp::Read {
                self.submit(driver, slot);
            }
            return;
        }
        self.end_if_over(driver, slot);
    }

    /// Repeats the parts of a read that stalled at a member, with other frames.
    fn ask_again(&mut self, driver: &mut Driver, slot: u32) {
        self.starved.retain(|other| *other != slot);
        let open = self.slots[slot as usize].as_mut().expect("the caller looked");
        let mut hidden: SmallVec<[usize; 4]> = SmallVec::new();
        for index in 0..open.parts.len() {
            let part = open.parts[index];
            if part.at == At::Ours {
                // A part at `Ours` has been read already, so it is hidden from the submission of
                // the others.
                hidden.push(index);
                open.parts[index].at = At::Unheld;
            } else if part.is_stalled() {
                let need = frames_needed(part.start, part.len);
                let Some(run) = driver.take_frames(self.client, need) else {
                    if !self.starved.contains(&slot) {
                        self.starved.push_back(slot);
                    }
                    continue;
                };
                self.held += run.count;
                open.submitted -= part.len;
                open.parts[index] = RequestPart { run, at: At::Ours, ..part };
            }
        }
        self.submit_parts(driver, slot, true);
        let open = self.slots[slot as usize].as_mut().expect("nothing was answered meanwhile");
        for index in hidden {
            open.parts[index].at = At::Ours;
        }
    }

    /// Queues the reply to the request in `slot`, unless a request part is still outstanding or
    /// payload of the request is still being received.
    pub(super) fn end_if_over(&mut self, driver: &mut Driver, slot: u32) {
        let Some(Some(open)) = self.slots.get_mut(slot as usize) else { return };
        let payload_to_come = open.op == RequestOp::Write && open.received < open.len;
        if open.outstanding > 0 || (payload_to_come && self.receiving == Some(slot)) {
            return;
        }
        if open.error.is_some() {
            self.broken |= open.sent_in_part;
            for part in &mut open.parts {
                if part.at == At::Ours {
                    self.held -= part.run.count;
                    driver.give_back_frames(part.run);
                    part.at = At::Unheld;
                }
            }
        }
        self.queue_reply(driver, slot);
    }

    fn queue_reply(&mut self, driver: &mut Driver, slot: u32) {
        let open = self.slots[slot as usize].as_mut().expect("open until answered");
        if open.is_last_part()
            && let Some(began) = open.began.take()
        {
            let volume = self.served.as_ref().expect(CHOSEN).volume;
            driver.count_answer(volume, kind_of(open.op), began, open.error.is_none());
        }
        let is_new = !std::mem::replace(&mut open.queued, true);
        self.ended.push(slot);
        if is_new {
            self.replies.push_back(slot);
        }
    }
}

impl RequestPart {
    /// Whether the request part of a read failed because the member stalled, so that it has to be
    /// repeated.
    pub(super) fn is_stalled(&self) -> bool {
        self.at == At::Unheld && self.run.count == 0
    }
}

impl<R, H> Open<R, H> {
    /// Creates an open request for which no work has been done.
    fn new(request: R, asked: &VolumeRequest, now: Time) -> Self {
        let VolumeRequest { op, start, len, fua, discard } = *asked;
        Self {
            request,
            op,
            fua,
            discard,
            start,
            len,
            parts: SmallVec::new(),
            received: 0,
            submitted: 0,
            outstanding: 0,
            error: None,
            streamed: false,
            streamed_bytes: 0,
            sent_in_part: false,
            began: Some(now),
            queued: false,
            header: None,
        }
    }

    /// Number of bytes of the request before its present parts.
    pub(super) fn done_before(&self) -> u64 {
        self.parts.first().map_or(self.received, |part| part.start - self.start)
    }

    /// Number of payload bytes that may still be received into the frames of a write.
    pub(super) fn room(&self) -> u64 {
        let ours = self.parts.last().filter(|part| part.at == At::Ours);
        ours.map_or(0, |part| part.start + part.len - (self.start + self.received))
    }

    /// Takes frames for the next request part of a write that is not streamed. `None` if no frames
    /// are free, or if the last part has its frames.
    pub(super) fn take_next(
        &mut self,
        driver: &mut Driver,
        client: ClientId,
    ) -> Option<RequestPart> {
        let start = self.parts.last().map_or(self.start, |part| part.start + part.len);
        let end = ((start / PART_BYTES + 1) * PART_BYTES).min(self.start + self.len);
        if start == end {
            return None;
        }
        let run = driver.take_frames(client, frames_needed(start, end - start))?;
        let part = RequestPart { run, start, len: end - start, at: At::Ours };
        self.parts.push(part);
        Some(part)
    }

    pub(super) fn is_sendable(&self) -> bool {
        let ready = !self.streamed || self.parts.iter().any(|part| part.at == At::Ours);
        self.queued && (self.error.is_some() || self.op != RequestOp::Read || ready)
    }

    /// Whether the data that is ready is the last of the reply.
    pub(super) fn is_last_part(&self) -> bool {
        let is_stream = self.streamed && self.op == RequestOp::Read && self.error.is_none();
        !is_stream || self.submitted == self.len
    }
}

/// Handles an answer to a request of a disconnected client. After the last slice of a trim or write
/// of zeroes that the client had in flight, the engine is told that the client is gone.
pub(crate) fn end_turn_of_gone(driver: &mut Driver, client: ClientId, tag: Tag) {
    if driver.turns_mut().end(client, tag) && !driver.turns_mut().has(client) {
        driver.client_gone(client);
    }
}

fn tag_of(slot: u32, part: usize) -> Tag {
    Tag(u64::from(slot) << TAG_INDEX_BITS | part as u64)
}
/// Kind under which requests are counted.
fn kind_of(op: RequestOp) -> RequestKind {
    match op {
        RequestOp::Read => RequestKind::Read,
        RequestOp::Write | RequestOp::WriteZeroes => RequestKind::Write,
        RequestOp::Flush => RequestKind::Flush,
        RequestOp::Trim => RequestKind::Discard,
    }
}
/// Whether requests of this kind may be long without bringing payload, so that frames do not limit
/// them.
pub(super) fn is_long(op: RequestOp) -> bool {
    matches!(op, RequestOp::Trim | RequestOp::WriteZeroes)
}
/// Whether a request is carried out in slices, each of which needs a turn (`turns.rs`).
fn is_sliced(op: RequestOp, len: u64) -> bool {
    is_long(op) && len > TURNLESS_BYTES_MAX
}
/// Number of bytes from `start` on to discard or zero in one turn: about `most`. The slice ends at
/// the end of a full stripe, so that no data has to be stored or read where two slices meet.
fn slice(start: u64, full_stripe: u64, most: u64) -> u64 {
    let last = (start / full_stripe + 1).saturating_mul(full_stripe);
    let end = start.saturating_add(most) / full_stripe * full_stripe;
    end.max(last) - start
}
/// Largest length of a request part in bytes: a MiB is several full stripes, and takes a few tenths
/// of a millisecond.
const PART_BYTES: u64 = 1 << 20;
/// Longest trim or write of zeroes, in bytes, that does not wait for a turn (see `weft_runtime`'s
/// `Turns`): it costs no more than a write.
const TURNLESS_BYTES_MAX: u64 = 64 << 10;
/// Largest number of bytes of zeroes that are stored in one turn: 10 ms of a member that writes 400
/// MB/s. Requests of other clients wait for the turn.
const ZEROES_BYTES_MAX: u64 = 4 << 20;
/// Largest number of bytes that are discarded in one turn. Other clients and a stop of the server
/// wait for the whole turn, also after the client has disconnected; a degraded array stores zeros
/// instead.
const DISCARD_BYTES_MAX: u64 = 64 << 20;
/// Largest number of unanswered trims and writes of zeroes of one client.
const LONG_MAX: usize = 64;
/// Least number of payload bytes of a write that get frames before they arrive, if enough frames
/// are free: as many as one receive takes.
const AHEAD_BYTES: u64 = 256 << 10;
/// Number of bits of a tag that hold the index of a part within its request. A part has at most 1
/// MiB, and 2^16 of them, 64 GiB, are more than the longest request of any protocol.
const TAG_INDEX_BITS: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_discards_are_cut_between_full_stripes() {
        let (full_stripe, most) = (3 << 19, DISCARD_BYTES_MAX);
        let first = slice(512, full_stripe, most);
        assert_eq!((512 + first) % full_stripe, 0);
        assert!(first <= most && first > most - full_stripe, "{first}");
        assert_eq!(slice(7, 1, most), most);
        // A full stripe is never cut, however long it is.
        assert_eq!(slice(512, 5 << 30, most), (5 << 30) - 512);
        assert_eq!(slice(5 << 30, 5 << 30, most), 5 << 30);
        let end = u64::MAX - 4096;
        assert!(slice(end, full_stripe, most) > 0);
    }
}
