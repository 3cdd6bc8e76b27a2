//! Requests between header and reply: frames, sub-requests, retries and the result.
//!
//! A request gets frames, goes to the engine in sub-requests, repeats those that stalled at a
//! member, and becomes a reply when none of its sub-requests is outstanding.

use smallvec::SmallVec;
use weft_engine::{ClientRequest, Flags, ReplyError, RequestOp, Run, frames_needed};
use weft_runtime::serve::driver::Driver;
use weft_units::{ByteRange, ClientId, FRAME_BYTES};

use super::codec::{Codec, Work};
use super::{Connection, Served, tag_of};
use crate::hole_probes::HoleProbeBudget;
use crate::record::Asked;

/// A request that is not answered yet.
pub(super) struct Open<C: Codec> {
    pub(super) request: C::Request,
    pub(super) op: RequestOp,
    pub(super) fua: bool,
    pub(super) discard: bool,
    pub(super) start: u64,
    pub(super) len: u64,
    /// Sub-requests: of a streamed request the present one, of any other all that have frames so
    /// far.
    pub(super) sub_requests: SmallVec<[SubRequest; 1]>,
    /// Number of payload bytes received.
    pub(super) received: u64,
    /// Number of bytes submitted to the engine.
    pub(super) submitted: u64,
    /// Number of sub-requests that the engine has.
    pub(super) outstanding: u32,
    pub(super) error: Option<ReplyError>,
    pub(super) streamed: bool,
    /// Number of bytes of a streamed read that were sent.
    pub(super) streamed_bytes: u64,
    /// Whether the request is in `Connection::replies`.
    pub(super) queued: bool,
    pub(super) header: Option<C::Header>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct SubRequest {
    pub(super) run: Run,
    pub(super) start: u64,
    pub(super) len: u64,
    pub(super) at: At,
}

/// Holder of a sub-request's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    Engine,
    /// Nothing holds frames: the sub-request is over, or has none.
    Nobody,
    Ours,
}

impl<C: Codec> Connection<C> {
    /// Starts a request. Returns false if the request has to wait.
    pub(super) fn begin(
        &mut self,
        driver: &mut Driver,
        request: C::Request,
        looks: &mut HoleProbeBudget,
    ) -> bool {
        let work = self.codec.work(&request);
        let Work::Volume(asked) = work else {
            let looks_for_holes = matches!(work, Work::Extents { .. });
            if looks_for_holes && !self.poisoned && !looks.may_look(self.client) {
                self.yielded = true;
                return false;
            }
            looks.take(self.answer_here(driver, &request, work));
            return true;
        };
        if self.is_hole(driver, &request, &asked) {
            self.codec.reply_hole(&request);
            return true;
        }
        let mut open = Open::new(request, &asked);
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
        let open = self.slots[slot as usize].as_ref().expect("put there just now");
        if open.error.is_some() {
            self.end_if_over(driver, slot);
        } else if open.streamed {
            self.next_sub_requests(driver, slot);
        } else if op != RequestOp::Write {
            self.submit(driver, slot);
        }
        true
    }

    /// Takes frames for the payload of a request that begins: all of a read's, or those of a
    /// write's first sub-request. A request that is too large for its client is streamed. Returns
    /// false if the request has to wait for frames or credit that the client itself has in use.
    fn take_frames(&mut self, driver: &mut Driver, open: &mut Open<C>) -> bool {
        let has_payload = matches!(open.op, RequestOp::Read | RequestOp::Write);
        if !has_payload || open.error.is_some() {
            return true;
        }
        let (start, len) = (open.start, open.len);
        let is_taken = self.charged + len <= self.credit
            && match open.op {
                RequestOp::Write => open
                    .take_next(driver, self.client)
                    .inspect(|sub_request| self.held += sub_request.run.count)
                    .is_some(),
                _ => self.take_whole(driver, start, len, &mut open.sub_requests),
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

    /// Answers a request that needs no engine: a query for holes, or a hint about a later read,
    /// which needs no work. Returns the cost of the answer, as a number of looks (queries of a
    /// member for its holes).
    fn answer_here(&mut self, driver: &mut Driver, request: &C::Request, work: Work) -> usize {
        let Served { volume, allocation, .. } = self.served.as_ref().expect(CHOSEN);
        match work {
            _ if self.poisoned => self.codec.reply(request, Err(&ReplyError::Io)),
            Work::Extents { offset, len, most } => {
                let told = allocation.extents(driver, *volume, offset, len, most);
                self.codec.reply_extents(request, told.extents());
                return LOOKS_OF_REQUEST + told.looks();
            }
            _ => self.codec.reply(request, Ok(())),
        }
        0
    }

    /// Whether a read is long and covers only a hole, and the client accepts a reply that says so.
    fn is_hole(&self, driver: &mut Driver, request: &C::Request, asked: &Asked) -> bool {
        if asked.op != RequestOp::Read || self.poisoned || !self.codec.tells_hole(request) {
            return false;
        }
        let Served { volume, allocation, .. } = self.served.as_ref().expect(CHOSEN);
        allocation.is_hole(driver, *volume, asked.start, asked.len)
    }

    /// Takes frames for all of a request, or none. Returns whether they were taken.
    fn take_whole(
        &mut self,
        driver: &mut Driver,
        start: u64,
        len: u64,
        sub_requests: &mut SmallVec<[SubRequest; 1]>,
    ) -> bool {
        if !driver.pool().may_take(self.client, frames_needed(start, len)) {
            return false;
        }
        let end = start + len;
        let mut at = start;
        while at < end {
            let next = ((at / SUB_REQUEST_BYTES + 1) * SUB_REQUEST_BYTES).min(end);
            let Some(run) = driver.take_frames(self.client, frames_needed(at, next - at)) else {
                for sub_request in sub_requests.drain(..) {
                    self.held -= sub_request.run.count;
                    driver.pool_mut().undo_take(sub_request.run);
                }
                return false;
            };
            self.held += run.count;
            sub_requests.push(SubRequest { run, start: at, len: next - at, at: At::Ours });
            at = next;
        }
        true
    }

    /// Submits every sub-request for which the session has the frames to the engine.
    pub(super) fn submit(&mut self, driver: &mut Driver, slot: u32) {
        self.submit_sub_requests(driver, slot, false);
    }

    /// Submits every sub-request for which the session has the frames to the engine. `again` is set
    /// for a repetition, after a member has stalled.
    fn submit_sub_requests(&mut self, driver: &mut Driver, slot: u32, again: bool) {
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
                open.sub_requests.clear();
                open.sub_requests.push(SubRequest { run: Run::EMPTY, start, len, at: At::Engine });
                ask(0, ByteRange::new(start, len), Run::EMPTY);
                open.submitted += len;
                open.outstanding = 1;
            }
            RequestOp::Read | RequestOp::Write => {
                for (index, sub_request) in open.sub_requests.iter_mut().enumerate() {
                    if sub_request.at == At::Ours {
                        ask(
                            index,
                            ByteRange::new(sub_request.start, sub_request.len),
                            sub_request.run,
                        );
                        sub_request.at = At::Engine;
                        open.outstanding += 1;
                        open.submitted += sub_request.len;
                        self.charged += sub_request.len;
                    }
                }
            }
        }
    }

    /// Continues a request after some of its sub-requests have ended, or when frames are free
    /// again.
    pub(super) fn next_sub_requests(&mut self, driver: &mut Driver, slot: u32) {
        let Some(Some(open)) = self.slots.get_mut(slot as usize) else { return };
        if open.error.is_some() {
            self.end_if_over(driver, slot);
            return;
        }
        if open.op == RequestOp::Read && open.sub_requests.iter().any(SubRequest::is_stalled) {
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
            && open.sub_requests.iter().any(|p| p.at == At::Ours)
        {
            // A sub-request of a streamed read is ready to be sent.
            self.queue_reply(slot);
            return;
        }
        if open.streamed && open.submitted < open.len {
            let start = open.start + open.submitted;
            let mut len =
                (open.len - open.submitted).min(SUB_REQUEST_BYTES - start % SUB_REQUEST_BYTES);
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
                // Try a shorter sub-request, down to the end of one block.
                len = (len / 2).max(1).next_multiple_of(FRAME_BYTES).min(len - 1);
            };
            self.held += run.count;
            open.sub_requests.clear();
            open.sub_requests.push(SubRequest { run, start, len, at: At::Ours });
            if open.op == RequestOp::Read {
                self.submit(driver, slot);
            }
            return;
        }
        self.end_if_over(driver, slot);
    }

    /// Repeats the sub-requests of a read that stalled at a member, with other frames.
    fn ask_again(&mut self, driver: &mut Driver, slot: u32) {
        self.starved.retain(|other| *other != slot);
        let open = self.slots[slot as usize].as_mut().expect("the caller looked");
        let mut hidden: SmallVec<[usize; 4]> = SmallVec::new();
        for index in 0..open.sub_requests.len() {
            let sub_request = open.sub_requests[index];
            if sub_request.at == At::Ours {
                // A sub-request at `Ours` was read already and must not be submitted again with the
                // others.
                hidden.push(index);
                open.sub_requests[index].at = At::Nobody;
            } else if sub_request.is_stalled() {
                let need = frames_needed(sub_request.start, sub_request.len);
                let Some(run) = driver.take_frames(self.client, need) else {
                    if !self.starved.contains(&slot) {
                        self.starved.push_back(slot);
                    }
                    continue;
                };
                self.held += run.count;
                open.submitted -= sub_request.len;
                open.sub_requests[index] = SubRequest { run, at: At::Ours, ..sub_request };
            }
        }
        self.submit_sub_requests(driver, slot, true);
        let open = self.slots[slot as usize].as_mut().expect("nothing was answered meanwhile");
        for index in hidden {
            open.sub_requests[index].at = At::Ours;
        }
    }

    /// Answers a request if none of its sub-requests is outstanding any more.
    pub(super) fn end_if_over(&mut self, driver: &mut Driver, slot: u32) {
        let Some(Some(open)) = self.slots.get_mut(slot as usize) else { return };
        let payload_to_come = open.op == RequestOp::Write && open.received < open.len;
        if open.outstanding > 0 || (payload_to_come && self.receiving == Some(slot)) {
            return;
        }
        if open.error.is_some() {
            if open.streamed_bytes > 0 || (self.sent > 0 && self.replies.front() == Some(&slot)) {
                // Data has been sent already, so the error can no longer be reported.
                self.broken = true;
            }
            for sub_request in &mut open.sub_requests {
                if sub_request.at == At::Ours {
                    self.held -= sub_request.run.count;
                    driver.give_back_frames(sub_request.run);
                    sub_request.at = At::Nobody;
                }
            }
        }
        self.queue_reply(slot);
    }

    fn queue_reply(&mut self, slot: u32) {
        let open = self.slots[slot as usize].as_mut().expect("open until answered");
        let result = open.error.as_ref().map_or(Ok(()), Err);
        if open.streamed_bytes == 0 {
            open.header = Some(self.codec.reply_header(&open.request, result));
        }
        if !open.queued {
            open.queued = true;
            self.replies.push_back(slot);
        }
    }
}

impl SubRequest {
    /// Whether the sub-request of a read failed because the member stalled, so that it has to be
    /// repeated.
    pub(super) fn is_stalled(&self) -> bool {
        self.at == At::Nobody && self.run.count == 0
    }
}

impl<C: Codec> Open<C> {
    /// Creates an open request for which no work has been done.
    fn new(request: C::Request, asked: &Asked) -> Self {
        let Asked { op, start, len, fua, discard } = *asked;
        Self {
            request,
            op,
            fua,
            discard,
            start,
            len,
            sub_requests: SmallVec::new(),
            received: 0,
            submitted: 0,
            outstanding: 0,
            error: None,
            streamed: false,
            streamed_bytes: 0,
            queued: false,
            header: None,
        }
    }

    /// Number of bytes of the request before its present sub-requests.
    pub(super) fn done_before(&self) -> u64 {
        self.sub_requests
            .first()
            .map_or(self.received, |sub_request| sub_request.start - self.start)
    }

    /// Number of payload bytes of a write that have frames and have not arrived.
    pub(super) fn room(&self) -> u64 {
        let ours = self.sub_requests.last().filter(|sub_request| sub_request.at == At::Ours);
        ours.map_or(0, |sub_request| {
            sub_request.start + sub_request.len - (self.start + self.received)
        })
    }

    /// Takes frames for the next sub-request of a write that is not streamed. `None` if no frames
    /// are free, or if the last sub-request has its frames.
    pub(super) fn take_next(
        &mut self,
        driver: &mut Driver,
        client: ClientId,
    ) -> Option<SubRequest> {
        let start = self
            .sub_requests
            .last()
            .map_or(self.start, |sub_request| sub_request.start + sub_request.len);
        let end = ((start / SUB_REQUEST_BYTES + 1) * SUB_REQUEST_BYTES).min(self.start + self.len);
        if start == end {
            return None;
        }
        let run = driver.take_frames(client, frames_needed(start, end - start))?;
        let sub_request = SubRequest { run, start, len: end - start, at: At::Ours };
        self.sub_requests.push(sub_request);
        Some(sub_request)
    }

    /// Takes the frames of a read that are not needed any more once `sent` bytes of its reply have
    /// been sent: those of sub-requests that have been sent completely.
    pub(super) fn take_back_sent(&mut self, sent: usize) -> SmallVec<[Run; 4]> {
        let mut runs = SmallVec::new();
        if self.op == RequestOp::Read && self.error.is_none() {
            let header = self.header.as_deref().map_or(0, <[u8]>::len);
            let mut rest = sent.saturating_sub(header) as u64;
            for sub_request in &mut self.sub_requests {
                if sub_request.len > rest {
                    break;
                }
                rest -= sub_request.len;
                if sub_request.at == At::Ours {
                    sub_request.at = At::Nobody;
                    runs.push(sub_request.run);
                }
            }
        }
        runs
    }

    pub(super) fn is_sendable(&self) -> bool {
        let ready = !self.streamed
            || self.sub_requests.iter().any(|sub_request| sub_request.at == At::Ours);
        self.queued && (self.error.is_some() || self.op != RequestOp::Read || ready)
    }

    /// Whether the data that is ready is the last of the reply.
    pub(super) fn is_last_sub_request(&self) -> bool {
        let is_stream = self.streamed && self.op == RequestOp::Read && self.error.is_none();
        !is_stream || self.submitted == self.len
    }

    pub(super) fn bytes_to_send(&self) -> usize {
        let header = self.header.as_deref().map_or(0, <[u8]>::len);
        let is_data = self.op == RequestOp::Read && self.error.is_none();
        let data: u64 = self
            .sub_requests
            .iter()
            .map(|sub_request| if is_data { sub_request.len } else { 0 })
            .sum();
        header + usize::try_from(data).expect("at most 32 MiB")
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
/// Length of a sub-request: a MiB is several full stripes, and takes a few tenths of a millisecond.
const SUB_REQUEST_BYTES: u64 = 1 << 20;
/// Longest trim or write of zeroes, in bytes, that does not wait for a turn (see `weft_runtime`'s
/// `Turns`): it costs no more than a write.
const TURNLESS_BYTES_MAX: u64 = 64 << 10;
/// Zeroes in bytes that are stored in one turn: 10 ms of a member that writes 400 MB/s. Requests of
/// other clients wait for them.
const ZEROES_BYTES_MAX: u64 = 4 << 20;
/// Bytes that are discarded in one turn. Other clients and a stop of the server wait for all of
/// them, also after the client has disconnected; a degraded array stores zeros instead.
const DISCARD_BYTES_MAX: u64 = 64 << 20;
/// Largest number of unanswered trims and writes of zeroes of one client.
const LONG_MAX: usize = 64;
/// Cost of a request for block status apart from its looks (queries of a member for its holes), as
/// a number of looks.
const LOOKS_OF_REQUEST: usize = 8;
const CHOSEN: &str = "requests come after the choice of an export";

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
