//! Requests of a client: the checks against the export, their encoding, and the open requests.
//!
//! Source: `proto.md` "Request message", "Extended request message", "Request types".

use std::collections::BTreeMap;

use super::ClientError;
use super::replies::Coverage;
use crate::buffer::{Gather, Transition, transitions};
use crate::handshake::{ExportInfo, len_u32};
use crate::transmission::{Extent, Headers, Op, Reply, RequestBytes, Terms, Verdict};
use crate::wire::{ChunkHeader, NbdError, RequestHeader, command};

/// Session of a client from its first request on.
///
/// The driver
///
/// 1. calls [`request`](Self::request) for the bytes of a request and sends them, for a write
///    followed by the payload;
/// 2. passes received bytes to [`input`](Self::input) until that consumes nothing and returns
///    nothing;
/// 3. after [`ClientEvent::Data`], takes the payload itself, from its receive buffer or straight
///    from the socket into its own memory, and reports it with
///    [`payload_consumed`](Self::payload_consumed), then calls `input` again even if it has no
///    further bytes: the end of a request may be waiting.
#[derive(Debug)]
pub struct ClientConnection {
    pub(super) export: ExportInfo,
    pub(super) terms: Terms,
    /// Identifier that the server gave to the context `base:allocation`; `None` if it was not
    /// selected.
    pub(super) allocation: Option<u32>,
    pub(super) open: BTreeMap<u64, OpenRequest>,
    pub(super) open_max: usize,
    pub(super) phase: Phase,
    pub(super) gather: Gather,
    /// Event for the end of a request, if its last data or extents have been handed out. The next
    /// call of `input` returns it.
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

    /// The export that is open.
    #[must_use]
    pub fn export(&self) -> &ExportInfo {
        &self.export
    }

    /// Whether structured replies were negotiated, with extended headers or without.
    #[must_use]
    pub fn is_structured(&self) -> bool {
        self.terms.headers.are_structured()
    }

    /// Whether extended headers were negotiated.
    #[must_use]
    pub fn is_extended(&self) -> bool {
        self.terms.headers.are_extended()
    }

    /// Number of requests that are sent and not yet answered.
    #[must_use]
    pub fn open_count(&self) -> usize {
        self.open.len()
    }

    /// Encodes a request, which is open from now on, and returns the bytes to send. After those of
    /// an [`Op::Write`], send exactly `len` bytes of payload.
    ///
    /// Shape    `cookie` differs from those of all open requests; zero bytes long only for
    ///          [`Op::Flush`]
    ///
    /// # Errors
    /// [`RequestError::Refused`] when the export does not take such a request, with the error that
    /// a server would return; [`RequestError::CookieInUse`]; [`RequestError::TooManyOpen`] at 4096;
    /// [`RequestError::Closed`] after the end of the session. The session is unchanged then.
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

    /// Encodes the end of the session, to be sent when every request is answered. There is no
    /// reply: the server disconnects.
    ///
    /// Source   proto.md "Request types", `NBD_CMD_DISC`
    #[must_use = "the bytes are to be sent"]
    pub fn disconnect(&mut self) -> RequestBytes {
        self.leaving = true;
        let header =
            RequestHeader { flags: 0, command: command::DISC, cookie: 0, offset: 0, len: 0 };
        RequestBytes::new(header, self.is_extended())
    }

    /// Consumes bytes from the server. Returns the number consumed, and the event if there is one.
    ///
    /// The driver repeats the call with the rest, and with further bytes, until it returns `(0,
    /// None)`.
    ///
    /// # Panics
    /// Panics while [`payload_remaining`](Self::payload_remaining) is not zero, because the driver
    /// has to take these bytes itself.
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

    /// Number of payload bytes of the last [`ClientEvent::Data`] that the driver has not taken yet.
    /// They come next from the server.
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

    /// Records that the driver has taken the next `count` bytes of payload.
    ///
    /// # Panics
    /// Panics when `count` is more than [`payload_remaining`](Self::payload_remaining).
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

/// Event of a session: a reply, data or extents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientEvent {
    /// The server violated the protocol. Disconnect; open requests are not answered.
    Close(ClientError),
    /// The next `len` bytes are data of a read. More may follow, and an error may still come.
    Data {
        /// Cookie of the request.
        cookie: u64,
        /// Offset in the export. The data is within the requested range, and does not overlap with
        /// data or holes of the read that were reported before.
        offset: u64,
        /// Length of the data in bytes.
        len: u32,
    },
    /// The request is answered, and its cookie is free. On success a read has all its data.
    Done {
        /// Cookie of the request.
        cookie: u64,
        /// Result of the request.
        result: Result<(), NbdError>,
    },
    /// Extents for a request for block status, from the first byte of its range on. An error may
    /// still come.
    Extents {
        /// Cookie of the request.
        cookie: u64,
        /// At least one extent; the last may reach beyond the requested range.
        extents: Vec<Extent>,
    },
    /// A range of a read that consists of zeroes, which are not sent.
    Hole {
        /// Cookie of the request.
        cookie: u64,
        /// Offset in the export. The hole is within the requested range, and does not overlap with
        /// data or holes of the read that were reported before.
        offset: u64,
        /// Length of the hole in bytes.
        len: u32,
    },
}

/// Reasons why [`ClientConnection::request`] did not encode a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The session is over.
    #[error("the session is over")]
    Closed,
    /// Another open request has this cookie.
    #[error("an open request has this cookie")]
    CookieInUse,
    /// The export does not take the request. The error is the one that a server would return.
    #[error("the export does not take such a request: {0}")]
    Refused(NbdError),
    /// 4096 requests are open, which is the limit.
    #[error("too many open requests, expected at most {OPEN_COUNT_MAX}")]
    TooManyOpen,
}

#[derive(Debug)]
pub(super) enum Phase {
    /// Expects the fixed-size first part of a chunk's payload.
    Chunk {
        header: ChunkHeader,
        prefix_len: u8,
    },
    Closed,
    /// Expects the payload of a chunk of extents.
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
    /// Skips the rest of an error chunk.
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
    /// First error in a reply, if any.
    pub(super) error: Option<NbdError>,
    pub(super) covered: Coverage,
    pub(super) extents_told: bool,
}

/// Largest number of open requests of a client. It is more than the few hundred that the queue of a
/// member holds.
const OPEN_COUNT_MAX: usize = 4096;
