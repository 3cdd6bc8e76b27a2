//! Wire format of NBD: the protocol's numbers, and its fixed-size headers.
//!
//! Each header has a `parse` and an `encode`. This module makes no decisions. Every integer on the
//! wire is big-endian.
//!
//! Source: NetworkBlockDevice/nbd `doc/proto.md` (2025-05-31, public domain), "Protocol phases" for
//! the layouts, "Values" for the numbers, and "Extended headers".

/// First eight bytes a server sends, ASCII `NBDMAGIC`.
///
/// Source   proto.md "Newstyle negotiation"
pub const NBDMAGIC: u64 = 0x4e42_444d_4147_4943;
/// Second eight bytes of a newstyle server and first of every option, ASCII `IHAVEOPT`.
///
/// Source   proto.md "Newstyle negotiation"
pub const IHAVEOPT: u64 = 0x4948_4156_454f_5054;
/// First eight bytes of every reply to an option.
///
/// Source   proto.md "Fixed newstyle negotiation"
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// First four bytes of a request.
///
/// Source   proto.md "Request message"
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// First four bytes of a simple reply.
///
/// Source   proto.md "Simple reply message"
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// First four bytes of a structured reply chunk.
///
/// Source   proto.md "Structured reply chunk message"
pub const CHUNK_MAGIC: u32 = 0x668e_33ef;
/// First four bytes of a request with extended headers.
///
/// Source   proto.md "Extended request message"
pub const EXTENDED_REQUEST_MAGIC: u32 = 0x21e4_1c71;
/// First four bytes of a reply chunk with extended headers.
///
/// Source   proto.md "Extended reply chunk message"
pub const EXTENDED_CHUNK_MAGIC: u32 = 0x6e8a_278c;

/// TCP port assigned to NBD.
///
/// Source   proto.md "Newstyle negotiation" (IANA)
pub const PORT: u16 = 10_809;

/// Longest string (export name, description, message) either side may send, in bytes.
///
/// Source   proto.md "Conventions"
pub const STRING_BYTES_MAX: usize = 4096;

/// Largest payload in bytes that every peer has to accept, and the largest one that weft
/// advertises: 32 MiB.
///
/// Source   proto.md "Size constraints"
pub const PAYLOAD_BYTES_DEFAULT: u32 = 1 << 25;

/// Number of zero bytes after the reply to `NBD_OPT_EXPORT_NAME`, unless both sides agreed to leave
/// them out.
///
/// Source   proto.md "Newstyle negotiation"
pub const EXPORT_NAME_ZEROES: usize = 124;

/// Flags that the server sends with its greeting (16 bits).
///
/// Source   proto.md "Handshake flags"
pub mod handshake_flag {
    /// The server supports fixed newstyle.
    pub const FIXED_NEWSTYLE: u16 = 1 << 0;
    /// The server can leave out the 124 zero bytes after the reply to `NBD_OPT_EXPORT_NAME`.
    pub const NO_ZEROES: u16 = 1 << 1;
}

/// Flags with which the client answers the greeting (32 bits).
///
/// Source   proto.md "Client flags"
pub mod client_flag {
    /// The client supports fixed newstyle.
    pub const FIXED_NEWSTYLE: u32 = 1 << 0;
    /// The client does not want the 124 zero bytes after the reply to `NBD_OPT_EXPORT_NAME`.
    pub const NO_ZEROES: u32 = 1 << 1;
}

/// Options of the handshake.
///
/// Source   proto.md "Option types"
pub mod option {
    /// Choose an export and start transmission; there is no error reply.
    pub const EXPORT_NAME: u32 = 1;
    /// End the session.
    pub const ABORT: u32 = 2;
    /// List the exports.
    pub const LIST: u32 = 3;
    /// Upgrade to TLS.
    pub const STARTTLS: u32 = 5;
    /// Describe an export.
    pub const INFO: u32 = 6;
    /// Describe an export and start transmission.
    pub const GO: u32 = 7;
    /// Use structured replies.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// List metadata contexts.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Select metadata contexts.
    pub const SET_META_CONTEXT: u32 = 10;
    /// Use headers with 64-bit lengths. This includes structured replies.
    pub const EXTENDED_HEADERS: u32 = 11;
}

/// Types of replies to options; errors have bit 31 set.
///
/// Source   proto.md "Option reply types"
pub mod option_reply {
    /// Success, and the last reply to this option.
    pub const ACK: u32 = 1;
    /// One entry of the list of exports.
    pub const SERVER: u32 = 2;
    /// One item of information about an export.
    pub const INFO: u32 = 3;
    /// One metadata context.
    pub const META_CONTEXT: u32 = 4;
    /// Bit that is set in the type of every error.
    pub const ERROR_BIT: u32 = 1 << 31;
    /// The option is unknown to this server.
    pub const ERR_UNSUP: u32 = ERROR_BIT + 1;
    /// The server's policy forbids the option.
    pub const ERR_POLICY: u32 = ERROR_BIT + 2;
    /// The option is malformed or out of place.
    pub const ERR_INVALID: u32 = ERROR_BIT + 3;
    /// The option is not available on this platform.
    pub const ERR_PLATFORM: u32 = ERROR_BIT + 4;
    /// The server requires TLS.
    pub const ERR_TLS_REQD: u32 = ERROR_BIT + 5;
    /// There is no such export.
    pub const ERR_UNKNOWN: u32 = ERROR_BIT + 6;
    /// The server is stopping.
    pub const ERR_SHUTDOWN: u32 = ERROR_BIT + 7;
    /// The server requires that the client asks for block sizes.
    pub const ERR_BLOCK_SIZE_REQD: u32 = ERROR_BIT + 8;
    /// The option is too long to be processed.
    pub const ERR_TOO_BIG: u32 = ERROR_BIT + 9;
    /// The option requires extended headers, or is not allowed with extended headers.
    pub const ERR_EXT_HEADER_REQD: u32 = ERROR_BIT + 10;
}

/// Types of information in `NBD_REP_INFO`.
///
/// Source   proto.md "Option reply types", `NBD_REP_INFO`
pub mod info {
    /// Size and transmission flags; always sent.
    pub const EXPORT: u16 = 0;
    /// Canonical name of the export.
    pub const NAME: u16 = 1;
    /// Description for people.
    pub const DESCRIPTION: u16 = 2;
    /// Minimum block, preferred block, maximum payload.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Requests of the transmission phase.
///
/// Source   proto.md "Request types"
pub mod command {
    /// Read a range.
    pub const READ: u16 = 0;
    /// Write a range; the data follows as payload.
    pub const WRITE: u16 = 1;
    /// End the session.
    pub const DISC: u16 = 2;
    /// Make completed writes durable.
    pub const FLUSH: u16 = 3;
    /// Discard a range.
    pub const TRIM: u16 = 4;
    /// Prefetch a range.
    pub const CACHE: u16 = 5;
    /// Write zeroes to a range.
    pub const WRITE_ZEROES: u16 = 6;
    /// Query the allocation of a range.
    pub const BLOCK_STATUS: u16 = 7;
}

/// Flags of a request.
///
/// Source   proto.md "Command flags"
pub mod command_flag {
    /// Make the request durable before the reply.
    pub const FUA: u16 = 1 << 0;
    /// Keep the zeroes allocated.
    pub const NO_HOLE: u16 = 1 << 1;
    /// Reply with one content chunk only.
    pub const DF: u16 = 1 << 2;
    /// Reply with one extent only.
    pub const REQ_ONE: u16 = 1 << 3;
    /// Fail rather than write zeroes as slowly as data.
    pub const FAST_ZERO: u16 = 1 << 4;
    /// The length is that of the payload that follows; only with extended headers.
    pub const PAYLOAD_LEN: u16 = 1 << 5;
}

/// Types and flags of structured reply chunks; errors have bit 15 set.
///
/// Source   proto.md "Structured reply flags" and "Structured reply types"
pub mod chunk {
    /// Flag of the last chunk of a reply.
    pub const DONE: u16 = 1 << 0;
    /// Chunk without content, which ends a reply.
    pub const NONE: u16 = 0;
    /// Chunk of data. Payload: 64-bit offset, then data.
    pub const OFFSET_DATA: u16 = 1;
    /// Chunk of zeroes. Payload: 64-bit offset, 32-bit length of the range of zeroes.
    pub const OFFSET_HOLE: u16 = 2;
    /// Chunk of extents. Payload: 32-bit context, then extents, each with 32-bit length and 32-bit
    /// flags.
    pub const BLOCK_STATUS: u16 = 5;
    /// Chunk of extents that takes the place of `BLOCK_STATUS` if extended headers were negotiated.
    /// Payload: 32-bit context, 32-bit count, then extents, each with 64-bit length and 64-bit
    /// flags.
    pub const BLOCK_STATUS_EXT: u16 = 6;
    /// Bit that is set in the type of every error chunk.
    pub const ERROR_BIT: u16 = 1 << 15;
    /// Error chunk. Payload: 32-bit error, 16-bit length of the message, message.
    pub const ERROR: u16 = ERROR_BIT + 1;
    /// Error chunk with a position. Payload: that of `ERROR`, then the 64-bit offset at which the
    /// error happened.
    pub const ERROR_OFFSET: u16 = ERROR_BIT + 2;
}

/// Flags of an extent in the metadata context [`BASE_ALLOCATION`].
///
/// Source   proto.md "`base:allocation` metadata context"
pub mod allocation {
    /// No storage is allocated for the range.
    pub const HOLE: u32 = 1 << 0;
    /// The range reads as zeroes.
    pub const ZERO: u32 = 1 << 1;
}

/// Metadata context that describes holes.
///
/// Source   proto.md "`base:allocation` metadata context"
pub const BASE_ALLOCATION: &str = "base:allocation";

/// Capabilities of an export, as announced to the client (16 bits).
///
/// Source   proto.md "Transmission flags"
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TransmissionFlags(pub u16);

impl TransmissionFlags {
    /// The field of flags is valid; always set.
    pub const HAS_FLAGS: Self = Self(1 << 0);
    /// Writes fail with `EPERM`.
    pub const READ_ONLY: Self = Self(1 << 1);
    /// The export takes `NBD_CMD_FLUSH`.
    pub const SEND_FLUSH: Self = Self(1 << 2);
    /// The export takes `NBD_CMD_FLAG_FUA`.
    pub const SEND_FUA: Self = Self(1 << 3);
    /// The medium is rotational: seeks cost time.
    pub const ROTATIONAL: Self = Self(1 << 4);
    /// The export takes `NBD_CMD_TRIM`.
    pub const SEND_TRIM: Self = Self(1 << 5);
    /// The export takes `NBD_CMD_WRITE_ZEROES` and `NBD_CMD_FLAG_NO_HOLE`.
    pub const SEND_WRITE_ZEROES: Self = Self(1 << 6);
    /// The export takes `NBD_CMD_FLAG_DF`; only with structured replies.
    pub const SEND_DF: Self = Self(1 << 7);
    /// A flush on one connection covers the writes completed on all connections.
    pub const CAN_MULTI_CONN: Self = Self(1 << 8);
    /// The export takes `NBD_CMD_CACHE`.
    pub const SEND_CACHE: Self = Self(1 << 10);
    /// The export takes `NBD_CMD_FLAG_FAST_ZERO`.
    pub const SEND_FAST_ZERO: Self = Self(1 << 11);

    /// Whether every flag of `other` is set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Set of flags with those of `other` added.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Set of flags without those of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl std::ops::BitOr for TransmissionFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.with(other)
    }
}

/// Errors of requests, named after those of the protocol.
///
/// Units    the discriminant is the number on the wire
/// Source   proto.md "Error values"
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[repr(u32)]
pub enum NbdError {
    /// `NBD_EPERM`: the export is read-only.
    #[error("operation not permitted")]
    Permission = 1,
    /// `NBD_EIO`: members of the volume failed.
    #[error("input/output error")]
    Io = 5,
    /// `NBD_ENOMEM`: the server has no memory. Servers should avoid this error.
    #[error("cannot allocate memory")]
    NoMemory = 12,
    /// `NBD_EINVAL`: the request is not legal for this export.
    #[error("invalid argument")]
    Invalid = 22,
    /// `NBD_ENOSPC`: a write beyond the end, or no space left.
    #[error("no space left on device")]
    NoSpace = 28,
    /// `NBD_EOVERFLOW`: the range is longer than one reply can be.
    #[error("value too large")]
    Overflow = 75,
    /// `NBD_ENOTSUP`: the client asked for fast zeroes, and they would be slow.
    #[error("operation not supported")]
    NotSupported = 95,
    /// `NBD_ESHUTDOWN`: the server is stopping.
    #[error("server is shutting down")]
    Shutdown = 108,
}

impl NbdError {
    /// Error number on the wire.
    #[must_use]
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// Converts a nonzero number from the wire; an unexpected one counts as `NBD_EINVAL`.
    ///
    /// Source   proto.md "Error values", last paragraph
    #[must_use]
    pub const fn from_code(code: u32) -> Self {
        match code {
            1 => Self::Permission,
            5 => Self::Io,
            12 => Self::NoMemory,
            28 => Self::NoSpace,
            75 => Self::Overflow,
            95 => Self::NotSupported,
            108 => Self::Shutdown,
            _ => Self::Invalid,
        }
    }
}

/// A request without its payload.
///
/// Source   proto.md "Request message"
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// Flags, from [`command_flag`].
    pub flags: u16,
    /// Command, from [`command`].
    pub command: u16,
    /// Cookie that the client chose, repeated in the reply.
    pub cookie: u64,
    /// Offset in the export of the first byte.
    pub offset: u64,
    /// Length of the range in bytes.
    pub len: u64,
}

impl RequestHeader {
    /// Length of the request header on the wire, in bytes.
    pub const BYTES: usize = 28;
    /// Length of the extended request header on the wire, in bytes.
    pub const EXTENDED_BYTES: usize = 32;

    /// Parses a request header.
    ///
    /// # Errors
    /// The number found in place of the magic.
    pub fn parse(bytes: &[u8; Self::BYTES]) -> Result<Self, u32> {
        match u32_at(bytes, 0) {
            REQUEST_MAGIC => Ok(Self {
                flags: u16_at(bytes, 4),
                command: u16_at(bytes, 6),
                cookie: u64_at(bytes, 8),
                offset: u64_at(bytes, 16),
                len: u64::from(u32_at(bytes, 24)),
            }),
            found => Err(found),
        }
    }

    /// Parses an extended request header.
    ///
    /// # Errors
    /// The number found in place of the magic.
    pub fn parse_extended(bytes: &[u8; Self::EXTENDED_BYTES]) -> Result<Self, u32> {
        match u32_at(bytes, 0) {
            EXTENDED_REQUEST_MAGIC => Ok(Self {
                flags: u16_at(bytes, 4),
                command: u16_at(bytes, 6),
                cookie: u64_at(bytes, 8),
                offset: u64_at(bytes, 16),
                len: u64_at(bytes, 24),
            }),
            found => Err(found),
        }
    }

    /// Encodes the extended request header as it is sent.
    #[must_use]
    pub fn encode_extended(&self) -> [u8; Self::EXTENDED_BYTES] {
        let mut bytes = [0; Self::EXTENDED_BYTES];
        bytes[..4].copy_from_slice(&EXTENDED_REQUEST_MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.command.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        bytes[24..].copy_from_slice(&self.len.to_be_bytes());
        bytes
    }

    /// Encodes the request header as it is sent.
    ///
    /// # Panics
    /// Panics when the length needs more than 32 bits.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let len = u32::try_from(self.len).expect("longer requests have extended headers");
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.command.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        bytes[24..].copy_from_slice(&len.to_be_bytes());
        bytes
    }
}

/// A simple reply without its payload.
///
/// Source   proto.md "Simple reply message"
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimpleReply {
    /// 0, or the number of an [`NbdError`].
    pub error: u32,
    /// Cookie of the request that is answered.
    pub cookie: u64,
}

impl SimpleReply {
    /// Length of a simple reply on the wire, in bytes, without its data.
    pub const BYTES: usize = 16;

    /// Parses a simple reply with a magic that the caller has checked.
    pub(crate) fn parse(bytes: &[u8; Self::BYTES]) -> Self {
        debug_assert_eq!(u32_at(bytes, 0), SIMPLE_REPLY_MAGIC);
        Self { error: u32_at(bytes, 4), cookie: u64_at(bytes, 8) }
    }

    /// Encodes the reply as it is sent.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.error.to_be_bytes());
        bytes[8..].copy_from_slice(&self.cookie.to_be_bytes());
        bytes
    }
}

/// Header of a structured reply chunk.
///
/// Source   proto.md "Structured reply chunk message", "Extended reply chunk message"
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkHeader {
    /// Flags of the chunk: [`chunk::DONE`] or 0.
    pub flags: u16,
    /// Type of the chunk, from [`chunk`].
    pub kind: u16,
    /// Cookie of the request that is answered.
    pub cookie: u64,
    /// Length of the payload of the chunk, which follows, in bytes.
    pub len: u32,
}

impl ChunkHeader {
    /// Length of the chunk header on the wire, in bytes.
    pub const BYTES: usize = 20;
    /// Length of the extended chunk header on the wire, in bytes.
    pub const EXTENDED_BYTES: usize = 32;

    /// Parses an extended chunk header with a magic that the caller has checked. Also returns the
    /// offset that the header repeats.
    ///
    /// # Errors
    /// The length of the payload, if it needs more than 32 bits.
    pub(crate) fn parse_extended(bytes: &[u8; Self::EXTENDED_BYTES]) -> Result<(Self, u64), u64> {
        debug_assert_eq!(u32_at(bytes, 0), EXTENDED_CHUNK_MAGIC);
        let (offset, len) = (u64_at(bytes, 16), u64_at(bytes, 24));
        let len = u32::try_from(len).map_err(|_| len)?;
        let (flags, kind, cookie) = (u16_at(bytes, 4), u16_at(bytes, 6), u64_at(bytes, 8));
        Ok((Self { flags, kind, cookie, len }, offset))
    }

    /// Encodes the extended chunk header as it is sent, with the offset of the request.
    #[must_use]
    pub fn encode_extended(&self, offset: u64) -> [u8; Self::EXTENDED_BYTES] {
        let mut bytes = [0; Self::EXTENDED_BYTES];
        bytes[..4].copy_from_slice(&EXTENDED_CHUNK_MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.kind.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&offset.to_be_bytes());
        bytes[24..].copy_from_slice(&u64::from(self.len).to_be_bytes());
        bytes
    }

    /// Parses a chunk header with a magic that the caller has checked.
    pub(crate) fn parse(bytes: &[u8; Self::BYTES]) -> Self {
        debug_assert_eq!(u32_at(bytes, 0), CHUNK_MAGIC);
        Self {
            flags: u16_at(bytes, 4),
            kind: u16_at(bytes, 6),
            cookie: u64_at(bytes, 8),
            len: u32_at(bytes, 16),
        }
    }

    /// Encodes the chunk header as it is sent.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&CHUNK_MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.kind.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..].copy_from_slice(&self.len.to_be_bytes());
        bytes
    }
}

/// Header of an option of the handshake.
///
/// Source   proto.md "Newstyle negotiation"
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionHeader {
    /// Number of the option, from [`option`].
    pub option: u32,
    /// Length in bytes of the option's data, which follows the header.
    pub len: u32,
}

impl OptionHeader {
    /// Length of the option header on the wire, in bytes.
    pub const BYTES: usize = 16;

    /// Parses an option header.
    ///
    /// # Errors
    /// The number found in place of the magic.
    pub fn parse(bytes: &[u8; Self::BYTES]) -> Result<Self, u64> {
        match u64_at(bytes, 0) {
            IHAVEOPT => Ok(Self { option: u32_at(bytes, 8), len: u32_at(bytes, 12) }),
            found => Err(found),
        }
    }

    /// Encodes the option header as it is sent.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&IHAVEOPT.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.option.to_be_bytes());
        bytes[12..].copy_from_slice(&self.len.to_be_bytes());
        bytes
    }
}

/// Header of a reply to an option.
///
/// Source   proto.md "Fixed newstyle negotiation"
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionReplyHeader {
    /// Number of the option that is answered.
    pub option: u32,
    /// Type of the reply, from [`option_reply`].
    pub kind: u32,
    /// Length of the data of the reply, which follows, in bytes.
    pub len: u32,
}

impl OptionReplyHeader {
    /// Length of the header of an option reply on the wire, in bytes.
    pub const BYTES: usize = 20;

    /// Parses the header of an option reply.
    ///
    /// # Errors
    /// The number found in place of the magic.
    pub fn parse(bytes: &[u8; Self::BYTES]) -> Result<Self, u64> {
        match u64_at(bytes, 0) {
            OPTION_REPLY_MAGIC => Ok(Self {
                option: u32_at(bytes, 8),
                kind: u32_at(bytes, 12),
                len: u32_at(bytes, 16),
            }),
            found => Err(found),
        }
    }

    /// Encodes the option reply header as it is sent.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.option.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.kind.to_be_bytes());
        bytes[16..].copy_from_slice(&self.len.to_be_bytes());
        bytes
    }
}

/// The two bytes at `at` as a big-endian number; the caller has checked the length.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(array_at(bytes, at))
}

/// The four bytes at `at` as a big-endian number; the caller has checked the length.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(array_at(bytes, at))
}

/// The eight bytes at `at` as a big-endian number; the caller has checked the length.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(array_at(bytes, at))
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn magics_spell_what_the_document_says() {
        assert_eq!(&NBDMAGIC.to_be_bytes(), b"NBDMAGIC");
        assert_eq!(&IHAVEOPT.to_be_bytes(), b"IHAVEOPT");
    }

    #[test]
    fn headers_survive_encode_and_parse() {
        let request = RequestHeader { flags: 1, command: 2, cookie: 3, offset: 4, len: 5 };
        assert_eq!(RequestHeader::parse(&request.encode()), Ok(request));
        let long = RequestHeader { len: u64::MAX, ..request };
        assert_eq!(RequestHeader::parse_extended(&long.encode_extended()), Ok(long));
        let reply = SimpleReply { error: 1, cookie: u64::MAX };
        assert_eq!(SimpleReply::parse(&reply.encode()), reply);
        let chunk = ChunkHeader { flags: 1, kind: 0x8001, cookie: 7, len: 9 };
        assert_eq!(ChunkHeader::parse(&chunk.encode()), chunk);
        assert_eq!(ChunkHeader::parse_extended(&chunk.encode_extended(5)), Ok((chunk, 5)));
        let mut long = chunk.encode_extended(5);
        long[24] = 1;
        assert_eq!(ChunkHeader::parse_extended(&long), Err(1 << 56 | 9));
        let option = OptionHeader { option: 7, len: 6 };
        assert_eq!(OptionHeader::parse(&option.encode()), Ok(option));
        let answer = OptionReplyHeader { option: 7, kind: option_reply::ERR_UNKNOWN, len: 6 };
        assert_eq!(OptionReplyHeader::parse(&answer.encode()), Ok(answer));
    }

    #[test]
    fn wrong_magic_is_named() {
        assert_eq!(RequestHeader::parse(&[0xff; 28]), Err(u32::MAX));
        assert_eq!(RequestHeader::parse_extended(&[0xff; 32]), Err(u32::MAX));
        assert_eq!(OptionHeader::parse(&[0; 16]), Err(0));
        assert_eq!(OptionReplyHeader::parse(&[0; 20]), Err(0));
    }

    #[test]
    fn error_codes_go_there_and_back() {
        for code in [1, 5, 12, 22, 28, 75, 95, 108] {
            assert_eq!(NbdError::from_code(code).code(), code);
        }
        assert_eq!(NbdError::from_code(4711), NbdError::Invalid);
    }
}
