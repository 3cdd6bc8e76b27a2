//! Codec: the interface between a session and its protocol, from bytes to requests and back.
//!
//! A session knows requests only as [`Work`], and hands the protocol's own request back with its
//! result. Payload bypasses the codec, between the socket and frames.

use std::ops::Deref;

use weft_engine::ReplyError;

use crate::allocation::Extent;
use crate::record::VolumeRequest;

/// Server's side of a protocol on one connection: parses the client's bytes and encodes replies,
/// and does no I/O.
///
/// A session does not check requests. These duties are the codec's:
///
/// - A request that it hands out lies within the export, which may be shorter than its volume.
///   `offset + len` does not overflow, and `len` is not 0, except that of a flush.
/// - Writes of a read-only export, and all requests after [`Self::begin_shutdown`], are refused.
/// - A refusal goes through the output, and the payload of a refused write is skipped: it is
///   consumed by [`Self::input`], and is no part of [`Self::payload_remaining`].
pub(crate) trait Codec {
    /// Request in the form of the protocol, including the identifier for its reply. Replies are
    /// encoded in the order in which requests end, which is not that of their arrival.
    type Request: Copy;
    /// Header of a reply: the bytes that precede its data.
    type Header: Deref<Target = [u8]>;

    /// Parses bytes from the client up to the next event. Returns the number of bytes consumed, and
    /// the event if there is one. Without an event all bytes are consumed, unless the output is
    /// flooded: a header that has not arrived as a whole is kept by the codec. The first event of a
    /// session that has requests is [`Heard::Chosen`], also without a handshake.
    fn input(&mut self, bytes: &[u8]) -> (usize, Option<Heard<Self::Request>>);

    /// Bytes to send that the codec has produced itself. Headers from [`Self::reply_header`] are
    /// not among them.
    fn output(&self) -> &[u8];

    /// Removes the first `count` bytes of the output, which were sent.
    fn advance_output(&mut self, count: usize);

    /// Whether the unsent output is so long that no more input may be parsed.
    fn is_flooded(&self) -> bool;

    /// Number of bytes of payload that come next in the input.
    fn payload_remaining(&self) -> usize;

    /// Records that the session itself has taken `count` bytes of payload from the input.
    fn payload_consumed(&mut self, count: usize);

    /// Records that TLS has started: further input is what TLS has decrypted.
    fn tls_started(&mut self);

    /// Makes the codec refuse requests from now on, because the server stops.
    fn begin_shutdown(&mut self);

    /// Work that a request asks for.
    fn work(&self, request: &Self::Request) -> Work;

    /// Whether the client accepts, as the reply to this read, the statement that all of the range
    /// is a hole.
    fn tells_hole(&self, request: &Self::Request) -> bool;

    /// Header of a reply. For a read that succeeds, the session sends the data after it; for any
    /// other result the header is the whole reply.
    fn reply_header(
        &self,
        request: &Self::Request,
        result: Result<(), &ReplyError>,
    ) -> Self::Header;

    /// Answers a request that is not a read. The reply is appended to the output.
    fn reply(&mut self, request: &Self::Request, result: Result<(), &ReplyError>);

    /// Answers a query for extents. `extents` has at least one; the first begins at the first byte
    /// of the range that was queried.
    fn reply_extents(&mut self, request: &Self::Request, extents: &[Extent]);

    /// Answers a read of a range that is a hole as a whole.
    fn reply_hole(&mut self, request: &Self::Request);
}

/// Event that a codec finds in the bytes of a client.
pub(crate) enum Heard<R> {
    /// The client violated the protocol, for this reason, and cannot be parsed further.
    Confused(String),
    /// The client ends the session.
    Goodbye,
    /// The client has chosen the export with this index; requests follow.
    Chosen(usize),
    /// The client starts TLS after the output, which is still in plain text.
    StartTls,
    /// The client sends a request. If it is a write, the next bytes are payload.
    Request(R),
}

/// Kind of work that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// A request to the volume.
    Volume(VolumeRequest),
    /// A query for the extents of a range.
    Extents {
        /// First byte of the range.
        offset: u64,
        /// Length of the range in bytes.
        len: u64,
        /// Number of extents that the codec can report; more are of no use.
        most: usize,
    },
    /// A hint that a range will be read soon, which needs no work.
    Hint,
}
