//! What a session needs of a protocol: bytes to requests, results to bytes.
//!
//! A session knows requests only as [`Work`], and hands the protocol's own request back with its
//! result. Payload goes past the codec, between the socket and frames.

use std::ops::Deref;

use weft_engine::ReplyError;

use crate::allocation::Extent;
use crate::record::Asked;

/// The server's half of a connection, without a socket.
pub(crate) trait Codec {
    /// A request as the protocol has it, with the name by which it is answered.
    type Request: Copy;
    /// Bytes of a reply before its data.
    type Header: Deref<Target = [u8]>;

    /// Takes bytes until something happens: how many were taken, and what happened.
    fn input(&mut self, bytes: &[u8]) -> (usize, Option<Heard<Self::Request>>);

    /// Bytes to send, beside replies whose header the session asks for.
    fn output(&self) -> &[u8];

    /// So many bytes of the output were sent.
    fn advance_output(&mut self, count: usize);

    /// Whether the output has grown so long that nothing more is to be heard.
    fn is_flooded(&self) -> bool;

    /// Bytes of payload that come next.
    fn payload_remaining(&self) -> usize;

    /// So many bytes of payload were taken.
    fn payload_consumed(&mut self, count: usize);

    /// Refuses requests that come from here on.
    fn begin_shutdown(&mut self);

    /// Work that a request asks for.
    fn work(&self, request: &Self::Request) -> Work;

    /// Whether a read may be answered by saying that all of its range is a hole.
    fn tells_hole(&self, request: &Self::Request) -> bool;

    /// Bytes of a reply before its data, which the session sends: of a read that succeeds. For all
    /// else they are the whole reply.
    fn reply_header(
        &self,
        request: &Self::Request,
        result: Result<(), &ReplyError>,
    ) -> Self::Header;

    /// Answers, through the output, what is no read.
    fn reply(&mut self, request: &Self::Request, result: Result<(), &ReplyError>);

    /// Answers a request for extents: those from its first byte on, at least one.
    fn reply_extents(&mut self, request: &Self::Request, extents: &[Extent]);

    /// Answers a read whose range is a hole.
    fn reply_hole(&mut self, request: &Self::Request);
}

/// Event of a client's side.
pub(crate) enum Heard<R> {
    /// The client cannot be followed any further, for this reason.
    Confused(String),
    /// The client leaves.
    Goodbye,
    /// The client has chosen an export; requests follow.
    Chosen(usize),
    /// Something to do. After a write the next bytes are payload.
    Request(R),
}

/// Work of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Something for the volume.
    Volume(Asked),
    /// Where holes are.
    Extents {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// Extents that are worth looking for.
        most: usize,
    },
    /// A range will be read soon: it is as near as it gets.
    Hint,
}
