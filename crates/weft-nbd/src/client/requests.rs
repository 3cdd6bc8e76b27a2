//! Client's requests: which an export allows, their encoding, and those that are open.
//!
//! Source: `proto.md` "Request message", "Extended request message", "Request types".

use std::collections::BTreeMap;

use super::ClientError;
use super::replies::Coverage;
use crate::buffer::{Gather, Transition, transitions};
use crate::handshake::{ExportInfo, len_u32};
use crate::transmission::{Extent, Headers, Op, Reply, RequestBytes, Terms, Verdict};
use crate::wire::{ChunkHeader, NbdError, RequestHeader, command};

/// A session from the first request on, seen from the client.
///
/// The driver
///
/// 1. asks [`request`](Self::request) for the bytes of a request and sends them, after a write
///    followed by the payload;
/// 2. gives what it received to [`input`](Self::input) until that takes nothing and returns
///    nothing;
/// 3. after [`ClientEvent::Data`], takes the payload itself, from its receive buffer or straight
///    from the socket into its own memory, and says so with
///    [`payload_consumed`](Self::payload_consumed), then calls `input` again even when it has no
///    more bytes: the end of a request may be waiting.
#[derive(Debug)]
pub struct ClientConnection {
    pub(super) export: ExportInfo,
    pub(super) terms: Terms,
    /// The server's number for `base:allocation`.
    pub(super) allocation: Option<u32>,
    pub(super) open: BTreeMap<u64, OpenRequest>,
    pub(super) open_max: usize,
    pub(super) phase: Phase,
    pub(super) gather: Gather,
    /// A request that ended together with its payload.
    pub(super) ended: Option<ClientEvent>,
    pub(super) leaving: bool,
}

impl ClientConnection {
    pub(super) fn new(export: ExportInfo, headers: Headers, allocation: Option<u32>) -> Self {
        let terms = Terms {
            size: export.size(),
            flags: export.flags(),
            block_sizes: export.block_sizes(),
            headers,
            allocation: allocation.is_some(),
        };
        Self {
            export,
            terms,
            allocation,
            open: BTreeMap::new(),
            open_max: OPEN_COUNT_MAX,
            phase: Phase::Reply,
            gather: Gather::new(),
            ended: None,
            leaving: false,
        }
    }

    /// The export that was opened.
    #[must_use]
    pub fn export(&self) -> &ExportInfo {
        &self.export
    }

    /// Whether structured replies were agreed on, with extended headers or without.
    #[must_use]
    pub fn is_structured(&self) -> bool {
        self.terms.headers.are_structured()
    }

    /// Whether extended headers were agreed on.
    #[must_use]
    pub fn is_extended(&self) -> bool {
        self.terms.headers.are_extended()
    }

    /// Requests sent and not yet answered.
    #[must_use]
    pub fn open_count(&self) -> usize {
        self.open.len()
    }

    /// The bytes of a request, which is from now on expected to be answered. After an
    /// [`Op::Write`], send exactly `len` bytes of payload.
    ///
    /// Shape    `cookie` unlike those of all open requests; zero bytes long only for [`Op::Flush`]
    ///
    /// # Errors
    /// [`RequestError::Refused`] when the export does not take such a request, with what a server
    /// would answer; [`RequestError::CookieInUse`]; [`RequestError::TooManyOpen`] at 4096;
    /// [`RequestError::Closed`] after the end of the session. Nothing changes then.
    pub fn request(&mut self, cookie: u64, op: Op) -> Result<RequestBytes, RequestError> {
        if self.leaving || matches!(self.phase, Phase::Closed) {
            return Err(RequestError::Closed);
        }
        let header = op.header(cookie);
        match self.terms.judge(&header) {
            Verdict::Perform(judged) => debug_assert_eq!(judged, op),
            Verdict::Refuse(error) => return Err(RequestError::Refused(error)),
            Verdict::Disconnect
            | Verdict::Nothing(Reply::Done | Reply::Hole { .. } | Reply::Read { .. }) => {
                return Err(RequestError::Refused(NbdError::Invalid));
            }
            Verdict::Nothing(Reply::Error(error)) => return Err(RequestError::Refused(error)),
        }
        if self.open.contains_key(&cookie) {
            return Err(RequestError::CookieInUse);
        }
        if self.open.len() >= self.open_max {
            return Err(RequestError::TooManyOpen);
        }
        let (error, covered, extents_told) = (None, Coverage::default(), false);
        self.open.insert(cookie, OpenRequest { op, error, covered, extents_told });
        Ok(RequestBytes::new(header, self.is_extended()))
    }

    /// The bytes that end the session; to be sent when every request is answered. There is no
    /// reply: the server hangs up.
    ///
    /// Source   proto.md "Request types", `NBD_CMD_DISC`
    #[must_use = "the bytes are to be sent"]
    pub fn disconnect(&mut self) -> RequestBytes {
        self.leaving = true;
        let header =
            RequestHeader { flags: 0, command: command::DISC, cookie: 0, offset: 0, len: 0 };
        RequestBytes::new(header, self.is_extended())
    }

    /// Takes bytes from the server: how many of them, and what they mean.
    ///
    /// Call it again with the rest, and with what arrives, until it returns `(0, None)`.
    ///
    /// # Panics
    /// While [`payload_remaining`](Self::payload_remaining) is not zero: those bytes are the
    /// driver's.
    #[must_use = "an event that is not looked at is a request or a reply lost"]
    pub fn input(&mut self, bytes: &[u8]) -> (usize, Option<ClientEvent>) {
        assert_eq!(self.payload_remaining(), 0, "the payload of a read was not taken");
        if let Some(event) = self.ended.take() {
            return (0, Some(event));
        }
        transitions(bytes, |rest| {
            self.step(rest).unwrap_or_else(|error| {
                self.phase = Phase::Closed;
                ReplyStep::Event(ClientEvent::Close(error))
            })
        })
    }

    /// Number of the next bytes from the server that are payload of the last [`ClientEvent::Data`].
    #[must_use]
    pub fn payload_remaining(&self) -> usize {
        match self.phase {
            Phase::Payload { remaining, .. } => remaining as usize,
            Phase::Chunk { .. }
            | Phase::Closed
            | Phase::Extents { .. }
            | Phase::Reply
            | Phase::Skip { .. } => 0,
        }
    }

    /// The driver has taken the next `count` bytes of payload.
    ///
    /// # Panics
    /// When `count` is more than [`payload_remaining`](Self::payload_remaining).
    pub fn payload_consumed(&mut self, count: usize) {
        let remaining = self.payload_remaining();
        assert!(count <= remaining, "took {count} bytes of {remaining} bytes of payload");
        if let Phase::Payload { cookie, done, .. } = self.phase {
            if count < remaining {
                self.phase = Phase::Payload { remaining: len_u32(remaining - count), cookie, done };
                return;
            }
            self.phase = Phase::Reply;
            if done {
                self.ended = Some(self.end(cookie).unwrap_or_else(|error| {
                    self.phase = Phase::Closed;
                    ClientEvent::Close(error)
                }));
            }
        }
    }
}

/// Event in a session: a reply, data, extents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientEvent {
    /// The server cannot be followed any further. Hang up; open requests are not answered.
    Close(ClientError),
    /// The next `len` bytes are data of a read. More may follow, and an error may still come.
    Data {
        /// The request.
        cookie: u64,
        /// First byte of the export, inside the range asked for and not told before.
        offset: u64,
        /// Bytes.
        len: u32,
    },
    /// The request is answered, and its cookie free. A read has all its data if this is success.
    Done {
        /// The request.
        cookie: u64,
        /// Result of the request.
        result: Result<(), NbdError>,
    },
    /// Extents from the first byte of a request for block status on. An error may still come.
    Extents {
        /// The request.
        cookie: u64,
        /// At least one; the last may go on beyond what was asked.
        extents: Vec<Extent>,
    },
    /// A range of a read that is zeroes, which do not follow.
    Hole {
        /// The request.
        cookie: u64,
        /// First byte of the export, inside the range asked for and not told before.
        offset: u64,
        /// Bytes.
        len: u32,
    },
}

/// Reasons why a request was not encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The session is over.
    #[error("the session is over")]
    Closed,
    /// Another open request has this cookie.
    #[error("an open request has this cookie")]
    CookieInUse,
    /// A server would answer this.
    #[error("the export does not take such a request: {0}")]
    Refused(NbdError),
    /// 4096 requests are open.
    #[error("too many open requests, expected at most {OPEN_COUNT_MAX}")]
    TooManyOpen,
}

#[derive(Debug)]
pub(super) enum Phase {
    /// The fixed first part of a chunk's payload.
    Chunk {
        header: ChunkHeader,
        prefix_len: u8,
    },
    Closed,
    /// The payload of a chunk of extents.
    Extents {
        header: ChunkHeader,
        data: Vec<u8>,
    },
    Payload {
        remaining: u32,
        cookie: u64,
        done: bool,
    },
    Reply,
    /// The rest of an error chunk.
    Skip {
        remaining: u32,
        cookie: u64,
        done: bool,
    },
}

pub(super) type ReplyStep = Transition<ClientEvent>;

#[derive(Debug)]
pub(super) struct OpenRequest {
    pub(super) op: Op,
    /// The first error told, if any.
    pub(super) error: Option<NbdError>,
    pub(super) covered: Coverage,
    pub(super) extents_told: bool,
}

/// Most open requests; a member's queue is a few hundred.
const OPEN_COUNT_MAX: usize = 4096;
