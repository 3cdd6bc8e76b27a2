//! Client half of the protocol: handshake, requests, and replies checked against them.
//!
//! [`ClientHandshake`] reaches one [`Goal`]: open an export, describe one, or list them all. It
//! ends with a [`ClientConnection`], or with the end of the session. [`ClientConnection`] encodes
//! requests, remembers them, and checks every reply against them.
//!
//! Faults expected from the peer: any bytes, split at any byte, replies to no request, data outside
//! the requested range, data sent twice, success without all the data, endless lists. Each of them
//! ends the session with a [`ClientError`]; the caller never gets payload that it has not asked
//! for.
//!
//! Source: `proto.md` "Protocol phases", "Option reply types", "Structured reply types".

mod handshake;
mod replies;
mod requests;

use crate::wire::option_reply;

pub use handshake::{ClientHandshake, Goal, HandshakeEvent};
pub use requests::{ClientConnection, ClientEvent, RequestError};

/// Reasons why a client ends its session with a server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// A message does not start with its magic: a fault of the server, an old server, or no NBD
    /// server.
    #[error("magic: found {found:#018x}; not an NBD server of fixed newstyle, or out of step")]
    Magic {
        /// Number found in place of the magic.
        found: u64,
    },
    /// A message violates the protocol.
    #[error("server broke the protocol: {what}")]
    Malformed {
        /// Description of the violation.
        what: &'static str,
    },
    /// The server does not support fixed newstyle, so it cannot refuse options.
    #[error("server does not speak fixed newstyle")]
    NotFixedNewstyle,
    /// The server refused the option that the client's goal needs.
    #[error("server refused option {option} with {}: {message}", option_error_name(*.kind))]
    Refused {
        /// Number of the option.
        option: u32,
        /// Type of the error, see [`option_reply`].
        kind: u32,
        /// Message of the server, possibly empty, with control characters replaced.
        message: String,
    },
    /// A reply is longer than any legal reply.
    #[error("reply: found {len} bytes, expected at most {REPLY_BYTES_MAX}")]
    ReplyTooLong {
        /// Length of the reply in bytes.
        len: u64,
    },
    /// A reply matches no open request.
    #[error("reply to cookie {cookie:#x}, which no open request has")]
    UnknownCookie {
        /// Cookie of the reply.
        cookie: u64,
    },
}

fn option_error_name(kind: u32) -> &'static str {
    match kind {
        option_reply::ERR_UNSUP => "NBD_REP_ERR_UNSUP",
        option_reply::ERR_POLICY => "NBD_REP_ERR_POLICY",
        option_reply::ERR_INVALID => "NBD_REP_ERR_INVALID",
        option_reply::ERR_PLATFORM => "NBD_REP_ERR_PLATFORM",
        option_reply::ERR_TLS_REQD => "NBD_REP_ERR_TLS_REQD",
        option_reply::ERR_UNKNOWN => "NBD_REP_ERR_UNKNOWN",
        option_reply::ERR_SHUTDOWN => "NBD_REP_ERR_SHUTDOWN",
        option_reply::ERR_BLOCK_SIZE_REQD => "NBD_REP_ERR_BLOCK_SIZE_REQD",
        option_reply::ERR_TOO_BIG => "NBD_REP_ERR_TOO_BIG",
        option_reply::ERR_EXT_HEADER_REQD => "NBD_REP_ERR_EXT_HEADER_REQD",
        _ => "an unknown error",
    }
}

/// Largest number of bytes that the client accepts in a reply to an option, in an error chunk or in
/// a chunk of extents. The text of an error chunk has at most 65,535 bytes, because its length has
/// 16 bits; the numbers beside it have 14 bytes.
const REPLY_BYTES_MAX: u32 = (64 << 10) + 14;
