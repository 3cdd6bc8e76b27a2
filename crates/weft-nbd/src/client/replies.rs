//! Replies to a client: each one is checked against its request.
//!
//! Data has to be within the requested range, complete and without repetition. Extents begin at the
//! first byte of the range. A reply that matches no open request is an error.
//!
//! Source: `proto.md` "Simple reply message", "Structured reply types", "Extended reply chunk
//! message".

use std::ops::Range;

use super::requests::{ClientConnection, ClientEvent, OpenRequest, Phase, ReplyStep};
use super::{ClientError, REPLY_BYTES_MAX};
use crate::buffer::{collect, skip};
use crate::transmission::{Extent, Headers, Op};
use crate::wire::{self, ChunkHeader, NbdError, SimpleReply, chunk};

impl ClientConnection {
    pub(super) fn step(&mut self, rest: &mut &[u8]) -> Result<ReplyStep, ClientError> {
        match &mut self.phase {
            Phase::Reply => {
                if !self.gather.fill(rest, 4) {
                    return Ok(ReplyStep::NeedInput);
                }
                match u32::from_be_bytes(self.gather.peek()) {
                    wire::SIMPLE_REPLY_MAGIC if !self.is_extended() => {
                        if !self.gather.fill(rest, SimpleReply::BYTES) {
                            return Ok(ReplyStep::NeedInput);
                        }
                        let reply = SimpleReply::parse(&self.gather.take());
                        self.on_simple_reply(reply)
                    }
                    wire::EXTENDED_CHUNK_MAGIC if self.is_extended() => {
                        if !self.gather.fill(rest, ChunkHeader::EXTENDED_BYTES) {
                            return Ok(ReplyStep::NeedInput);
                        }
                        let (header, offset) = ChunkHeader::parse_extended(&self.gather.take())
                            .map_err(|len| ClientError::ReplyTooLong { len })?;
                        if self.find(header.cookie)?.op.header(0).offset != offset {
                            let what = "offset of a reply unlike that of its request";
                            return Err(ClientError::Malformed { what });
                        }
                        self.on_chunk(header)
                    }
                    wire::CHUNK_MAGIC if self.terms.headers == Headers::Structured => {
                        if !self.gather.fill(rest, ChunkHeader::BYTES) {
                            return Ok(ReplyStep::NeedInput);
                        }
                        let header = ChunkHeader::parse(&self.gather.take());
                        self.on_chunk(header)
                    }
                    found => Err(ClientError::Magic { found: u64::from(found) }),
                }
            }
            Phase::Chunk { header, prefix_len } => {
                if !self.gather.fill(rest, usize::from(*prefix_len)) {
                    return Ok(ReplyStep::NeedInput);
                }
                let header = *header;
                self.on_chunk_prefix(header)
            }
            Phase::Extents { header, data } => {
                if !collect(rest, data, header.len) {
                    return Ok(ReplyStep::NeedInput);
                }
                let (header, data) = (*header, std::mem::take(data));
                self.on_extents(header, &data)
            }
            Phase::Skip { remaining, cookie, done } => {
                if !skip(rest, remaining) {
                    return Ok(ReplyStep::NeedInput);
                }
                let (cookie, done) = (*cookie, *done);
                self.end_chunk(cookie, done)
            }
            // Not reached from `input`, which has asserted that no payload remains.
            Phase::Payload { .. } => Ok(ReplyStep::NeedInput),
            Phase::Closed => {
                *rest = &[];
                Ok(ReplyStep::NeedInput)
            }
        }
    }

    fn on_simple_reply(&mut self, reply: SimpleReply) -> Result<ReplyStep, ClientError> {
        let SimpleReply { error, cookie } = reply;
        let structured = self.is_structured();
        let request = self.find(cookie)?;
        if let Op::Read { offset, len, .. } = request.op {
            if structured {
                return Err(ClientError::Malformed { what: "simple reply to a read" });
            }
            if error == 0 {
                request.covered.add(0..len)?;
                self.phase = Phase::Payload { remaining: len, cookie, done: true };
                return Ok(ReplyStep::Event(ClientEvent::Data { cookie, offset, len }));
            }
        }
        if error != 0 {
            request.error = Some(NbdError::from_code(error));
        }
        self.end(cookie).map(ReplyStep::Event)
    }

    fn on_chunk(&mut self, header: ChunkHeader) -> Result<ReplyStep, ClientError> {
        let ChunkHeader { flags, kind, cookie, len } = header;
        let done = flags & chunk::DONE != 0;
        let asked = matches!(self.find(cookie)?.op, Op::BlockStatus { .. });
        let what = match kind {
            chunk::NONE if len == 0 && done => return self.end_chunk(cookie, done),
            chunk::NONE => "end chunk with data or without end mark",
            chunk::OFFSET_DATA if len > 8 => return self.expect_prefix(header, 8),
            chunk::OFFSET_DATA => "data chunk without data",
            chunk::OFFSET_HOLE if len == 12 => return self.expect_prefix(header, 12),
            chunk::OFFSET_HOLE => "hole chunk of the wrong length",
            chunk::BLOCK_STATUS | chunk::BLOCK_STATUS_EXT if !asked => {
                "extents for a request that did not ask for them"
            }
            chunk::BLOCK_STATUS | chunk::BLOCK_STATUS_EXT
                if (kind == chunk::BLOCK_STATUS_EXT) != self.is_extended() =>
            {
                "extents of the other headers"
            }
            chunk::BLOCK_STATUS | chunk::BLOCK_STATUS_EXT if len > REPLY_BYTES_MAX => {
                return Err(ClientError::ReplyTooLong { len: len.into() });
            }
            chunk::BLOCK_STATUS if len >= 12 && len % 8 == 4 => {
                self.phase = Phase::Extents { header, data: Vec::new() };
                return Ok(ReplyStep::Again);
            }
            chunk::BLOCK_STATUS_EXT if len >= 24 && len % 16 == 8 => {
                self.phase = Phase::Extents { header, data: Vec::new() };
                return Ok(ReplyStep::Again);
            }
            chunk::BLOCK_STATUS | chunk::BLOCK_STATUS_EXT => "extents of the wrong length",
            _ if kind & chunk::ERROR_BIT == 0 => "unknown type of chunk",
            _ if len > REPLY_BYTES_MAX => {
                return Err(ClientError::ReplyTooLong { len: len.into() });
            }
            _ if len >= 6 => return self.expect_prefix(header, 6),
            _ => "error chunk too short",
        };
        Err(ClientError::Malformed { what })
    }

    fn expect_prefix(
        &mut self,
        header: ChunkHeader,
        prefix_len: u8,
    ) -> Result<ReplyStep, ClientError> {
        self.phase = Phase::Chunk { header, prefix_len };
        Ok(ReplyStep::Again)
    }

    fn on_chunk_prefix(&mut self, header: ChunkHeader) -> Result<ReplyStep, ClientError> {
        let ChunkHeader { flags, kind, cookie, len } = header;
        let done = flags & chunk::DONE != 0;
        self.phase = Phase::Reply;
        match kind {
            chunk::OFFSET_DATA => {
                let offset = u64::from_be_bytes(self.gather.take());
                let len = len - 8;
                self.cover(cookie, offset, len)?;
                self.phase = Phase::Payload { remaining: len, cookie, done };
                Ok(ReplyStep::Event(ClientEvent::Data { cookie, offset, len }))
            }
            chunk::OFFSET_HOLE => {
                let prefix: [u8; 12] = self.gather.take();
                let (offset, len) = (wire::u64_at(&prefix, 0), wire::u32_at(&prefix, 8));
                self.cover(cookie, offset, len)?;
                if done {
                    self.ended = Some(self.end(cookie)?);
                }
                Ok(ReplyStep::Event(ClientEvent::Hole { cookie, offset, len }))
            }
            _ => {
                let prefix: [u8; 6] = self.gather.take();
                let (code, text_len) = (wire::u32_at(&prefix, 0), wire::u16_at(&prefix, 4));
                let suffix_len = if kind == chunk::ERROR_OFFSET { 8 } else { 0 };
                if u32::from(text_len) + 6 + suffix_len > len {
                    return Err(ClientError::Malformed { what: "error text beyond its chunk" });
                }
                self.find(cookie)?.error.get_or_insert(NbdError::from_code(code));
                self.phase = Phase::Skip { remaining: len - 6, cookie, done };
                Ok(ReplyStep::Again)
            }
        }
    }

    /// Handles a chunk of extents, and returns the event that reports them. Extents must be of the
    /// negotiated context and not empty, and each must begin within the requested range. A reply
    /// may have only one such chunk.
    fn on_extents(&mut self, header: ChunkHeader, data: &[u8]) -> Result<ReplyStep, ClientError> {
        let ChunkHeader { flags, cookie, kind, .. } = header;
        self.phase = Phase::Reply;
        let malformed = |what| ClientError::Malformed { what };
        let context = self.allocation;
        let request = self.find(cookie)?;
        let Op::BlockStatus { len: asked, one, .. } = request.op else {
            return Err(malformed("extents that were not expected"));
        };
        if context != Some(wire::u32_at(data, 0)) || request.extents_told {
            return Err(malformed("extents of a context that was not asked for"));
        }
        request.extents_told = true;
        let extents: Vec<Extent> = if kind == chunk::BLOCK_STATUS_EXT {
            let (pairs, _) = data[8..].as_chunks::<16>();
            if pairs.len() != wire::u32_at(data, 4) as usize {
                return Err(malformed("another number of extents than it says"));
            }
            pairs.iter().map(Extent::parse_extended).collect()
        } else {
            let (pairs, _) = data[4..].as_chunks::<8>();
            pairs.iter().map(Extent::parse).collect()
        };
        let (last, before) = extents.split_last().ok_or(malformed("no extents"))?;
        let before = before.iter().try_fold(0_u64, |sum, extent| sum.checked_add(extent.len));
        let before = before.ok_or(malformed("extents beyond the range asked for"))?;
        if extents.iter().any(|extent| extent.len == 0) {
            return Err(malformed("an empty extent"));
        }
        // Only the last extent may reach beyond the range, and a single requested extent may not.
        if before >= asked || (one && (extents.len() > 1 || last.len > asked)) {
            return Err(malformed("extents beyond the range asked for"));
        }
        if flags & chunk::DONE != 0 {
            self.ended = Some(self.end(cookie)?);
        }
        Ok(ReplyStep::Event(ClientEvent::Extents { cookie, extents }))
    }

    fn end_chunk(&mut self, cookie: u64, done: bool) -> Result<ReplyStep, ClientError> {
        self.phase = Phase::Reply;
        if done { self.end(cookie).map(ReplyStep::Event) } else { Ok(ReplyStep::Again) }
    }

    /// Records that a range of data or zeroes of a read has arrived. It is an error if the range is
    /// not within that of the read, or overlaps with one that has arrived before.
    fn cover(&mut self, cookie: u64, offset: u64, len: u32) -> Result<(), ClientError> {
        let request = self.find(cookie)?;
        let Op::Read { offset: first, len: asked, df } = request.op else {
            return Err(ClientError::Malformed { what: "data for a request that is not a read" });
        };
        let start = offset.checked_sub(first).and_then(|start| u32::try_from(start).ok());
        let range = start.and_then(|start| Some(start..start.checked_add(len)?));
        let Some(range) = range.filter(|range| len > 0 && range.end <= asked) else {
            return Err(ClientError::Malformed { what: "data outside the range asked for" });
        };
        if df && request.covered.total > 0 {
            return Err(ClientError::Malformed { what: "data in pieces despite NBD_CMD_FLAG_DF" });
        }
        request.covered.add(range)
    }

    /// Closes the request with this cookie, and returns the event that reports its end. A reply
    /// that reports success must be complete.
    pub(super) fn end(&mut self, cookie: u64) -> Result<ClientEvent, ClientError> {
        let request = self.open.remove(&cookie).ok_or(ClientError::UnknownCookie { cookie })?;
        if let Some(error) = request.error {
            return Ok(ClientEvent::Done { cookie, result: Err(error) });
        }
        if matches!(request.op, Op::BlockStatus { .. }) && !request.extents_told {
            return Err(ClientError::Malformed { what: "success without extents" });
        }
        if let Op::Read { len, .. } = request.op
            && request.covered.total != len
        {
            return Err(ClientError::Malformed { what: "success without all the data" });
        }
        Ok(ClientEvent::Done { cookie, result: Ok(()) })
    }

    fn find(&mut self, cookie: u64) -> Result<&mut OpenRequest, ClientError> {
        self.open.get_mut(&cookie).ok_or(ClientError::UnknownCookie { cookie })
    }
}

/// Ranges of a read that have arrived. They are disjoint and within the read, so the read is
/// complete when the sum of their lengths is its length. They need not be merged.
#[derive(Debug, Default)]
pub(super) struct Coverage {
    pub(super) total: u32,
    /// Range that arrived first. It grows at its end, and is the only one if the server sends data
    /// in order.
    first: Range<u32>,
    others: Vec<Range<u32>>,
}

impl Coverage {
    pub(super) fn add(&mut self, range: Range<u32>) -> Result<(), ClientError> {
        let overlaps = |other: &Range<u32>| range.start < other.end && other.start < range.end;
        if overlaps(&self.first) || self.others.iter().any(overlaps) {
            return Err(ClientError::Malformed { what: "data told twice" });
        }
        self.total += range.end - range.start;
        if self.total == range.end - range.start {
            self.first = range;
        } else if range.start == self.first.end {
            self.first.end = range.end;
        } else if self.others.len() < FRAGMENT_COUNT_MAX {
            self.others.push(range);
        } else {
            return Err(ClientError::Malformed { what: "data in too many pieces" });
        }
        Ok(())
    }
}

/// Largest number of ranges of one read that may arrive out of order: 32 MiB in ranges of 32 KiB.
const FRAGMENT_COUNT_MAX: usize = 1024;
