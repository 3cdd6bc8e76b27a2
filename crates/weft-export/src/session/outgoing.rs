//! Bytes that a client is sent: messages and replies, headers and frames in one `sendmsg`.
//!
//! One `sendmsg` takes the codec's own messages and as many replies as fit, with their headers and
//! frames.

use std::io::IoSlice;
use std::ops::Deref;

use rustix::io::Errno;
use smallvec::SmallVec;
use weft_engine::{RequestOp, Run, Segments};
use weft_runtime::buffers::Buffer;
use weft_runtime::serve::driver::Driver;
use weft_runtime::serve::reactor::Held;
use weft_units::FRAME_BYTES;

use super::Connection;
use super::codec::Codec;
use super::requests::{At, Open, RequestPart, Requests};

impl<C: Codec> Connection<C> {
    /// Calls `sendmsg` once. Returns the number of bytes in the call and the number of bytes sent,
    /// or `None` if there is nothing to send. The driver is unlocked meanwhile.
    pub(super) fn send_once(
        &mut self,
        driver: &mut Held<'_>,
    ) -> Result<Option<(usize, usize)>, Errno> {
        let Self { transport, codec, requests, sent, .. } = self;
        let line = line_up(codec, requests, *sent);
        if line.wanted == 0 {
            transport.flush()?;
            return Ok(None);
        }
        let Line { items, segments, wanted, .. } = line;
        let frames =
            (!segments.is_empty()).then(|| Buffer::Frames(driver.slab().lease_shared(segments)));
        let payload = frames.as_ref().map(|frames| frames.slices(0, usize::MAX));
        let mut payload = payload.iter().flatten();
        let slices: SmallVec<[IoSlice<'_>; 64]> = items
            .iter()
            .map(|item| match item {
                Item::Bytes(bytes) => IoSlice::new(bytes),
                Item::Frames => IoSlice::new(payload.next().expect("a slice for each segment")),
            })
            .collect();
        let sent = driver.unlocked(|| transport.send(&slices))?;
        Ok(Some((wanted, sent)))
    }

    /// Creates the headers of the replies that have become ready since the last call.
    pub(super) fn make_headers(&mut self) {
        while let Some(slot) = self.requests.take_ended() {
            let open = self.requests.at_mut(slot);
            if open.streamed_bytes == 0 {
                let result = open.error.as_ref().map_or(Ok(()), Err);
                open.header = Some(self.codec.reply_header(&open.request, result));
            }
        }
    }

    /// Records that `sent` bytes were sent, in the order in which `send_once` lined them up.
    pub(super) fn on_sent(&mut self, driver: &mut Driver, sent: usize) {
        let mut sent = sent;
        let mut output = self.codec.output().len();
        if output > 0 && self.sent == 0 && !self.requests.front_streams() {
            let count = sent.min(output);
            self.codec.advance_output(count);
            sent -= count;
            output = 0;
        }
        while let Some(slot) = self.requests.replies.front().copied() {
            let open = self.requests.at_mut(slot);
            if !open.is_sendable() {
                break;
            }
            let whole = open.bytes_to_send();
            if self.sent + sent < whole {
                self.sent += sent;
                open.sent_in_part |= self.sent > 0;
                for run in open.take_back_sent(self.sent) {
                    self.requests.take_back(driver, run);
                }
                return;
            }
            sent -= whole - self.sent;
            self.sent = 0;
            if !self.requests.part_sent(driver, slot) {
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

/// Collects the buffers of the next `sendmsg`. `sent` is the number of bytes of the first reply
/// that were sent.
fn line_up<'a, C: Codec>(
    codec: &'a C,
    requests: &'a Requests<C::Request, C::Header>,
    sent: usize,
) -> Line<'a> {
    let mut line = Line { skip: sent, ..Line::default() };
    // The codec's own messages go between two replies, as early as possible.
    let output = codec.output();
    let mid_reply = sent > 0 || requests.front_streams();
    if !mid_reply {
        line.push(output);
    }
    for (index, slot) in requests.replies.iter().enumerate() {
        let open = requests.at(*slot);
        if !open.is_sendable() || line.is_full(open.parts.len()) {
            break;
        }
        if let Some(header) = open.header.as_deref() {
            line.push(header);
        }
        if open.op == RequestOp::Read && open.error.is_none() {
            open.parts.iter().for_each(|part| line.push_part(part));
        }
        if line.is_cut || !open.is_last_part() {
            break;
        }
        if index == 0 && mid_reply && !output.is_empty() {
            // The output goes after the reply that was sent in part.
            line.push(output);
            break;
        }
    }
    line
}

impl<R, H> Requests<R, H> {
    /// Whether the first reply is a streamed read and at least one request part of it was sent.
    fn front_streams(&self) -> bool {
        let first = self.replies.front();
        first.is_some_and(|slot| self.at(*slot).streamed_bytes > 0)
    }
}

impl<R, H: Deref<Target = [u8]>> Open<R, H> {
    /// Takes the frames of a read that are not needed any more once `sent` bytes of its reply have
    /// been sent: those of request parts that have been sent completely.
    fn take_back_sent(&mut self, sent: usize) -> SmallVec<[Run; 4]> {
        let mut runs = SmallVec::new();
        if self.op == RequestOp::Read && self.error.is_none() {
            let header = self.header_len();
            let mut rest = sent.saturating_sub(header) as u64;
            for part in &mut self.parts {
                if part.len > rest {
                    break;
                }
                rest -= part.len;
                if part.at == At::Ours {
                    part.at = At::Unheld;
                    runs.push(part.run);
                }
            }
        }
        runs
    }

    fn bytes_to_send(&self) -> usize {
        let header = self.header_len();
        let is_data = self.op == RequestOp::Read && self.error.is_none();
        let data: u64 = self.parts.iter().map(|part| if is_data { part.len } else { 0 }).sum();
        header + usize::try_from(data).expect("at most 32 MiB")
    }

    fn header_len(&self) -> usize {
        self.header.as_deref().map_or(0, <[u8]>::len)
    }
}

/// Buffers of one `sendmsg`.
#[derive(Default)]
struct Line<'a> {
    items: SmallVec<[Item<'a>; 64]>,
    /// Segments of payload, in order.
    segments: Segments,
    /// Number of bytes of the first reply that earlier calls have sent.
    skip: usize,
    wanted: usize,
    /// Whether this `sendmsg` has only a part of its last reply.
    is_cut: bool,
}

enum Item<'a> {
    Bytes(&'a [u8]),
    /// Payload: the bytes of the next segment in [`Line::segments`].
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

    fn push_part(&mut self, part: &RequestPart) {
        let len = usize::try_from(part.len).expect("at most PART_BYTES");
        let cut = self.skip.min(len);
        self.skip -= cut;
        let taken = (len - cut).min(SEND_BYTES_MAX.saturating_sub(self.wanted));
        self.is_cut |= taken < len - cut;
        if taken > 0 {
            self.wanted += taken;
            let offset = part.start % FRAME_BYTES + cut as u64;
            self.segments.push(part.run.part(offset, taken as u64));
            self.items.push(Item::Frames);
        }
    }

    /// Whether a reply with this many request parts has to wait for the next `sendmsg`.
    fn is_full(&self, parts: usize) -> bool {
        let full = self.items.len() + parts + 2 > SLICES_MAX || self.wanted >= SEND_BYTES_MAX;
        full && self.wanted > 0
    }
}

/// Largest number of payload bytes in one `sendmsg`: as many as a socket takes at once and as fit
/// into a cache.
const SEND_BYTES_MAX: usize = 256 << 10;
/// Largest number of slices in one `sendmsg`. It is below `IOV_MAX`.
const SLICES_MAX: usize = 1000;
