//! Requests and replies after the handshake: the checks of requests, and the encoding of replies.
//!
//! [`Terms`] holds the results of the handshake; [`Terms::judge`] is the only place where a request
//! is accepted or refused. The server applies it to requests received, the client to requests that
//! it is about to send, so that the two halves cannot disagree.
//!
//! Source: `proto.md` "Transmission phase", "Size constraints", "Error values".

use std::ops::Deref;

use crate::handshake::BlockSizes;
use crate::wire::{
    self, ChunkHeader, NbdError, RequestHeader, SimpleReply, TransmissionFlags, allocation, chunk,
    command, command_flag,
};

/// Operation of a request.
///
/// Units    `offset` and `len` in bytes
/// Shape    from a server: `len > 0`, inside the export, a multiple of the minimum block;
///          `Read` and `Write` at most the maximum payload, the others up to 4 GiB - 1, or as long
///          as the export with extended headers
/// Source   proto.md "Request types"
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Query extents. Any length is legal, but the server may answer for only a part of it.
    BlockStatus {
        /// Offset in the export of the first byte.
        offset: u64,
        /// Length in bytes.
        len: u64,
        /// Whether to return only one extent, which ends within the range.
        one: bool,
    },
    /// Prefetch a range.
    Cache {
        /// Offset in the export of the first byte.
        offset: u64,
        /// Length in bytes.
        len: u64,
    },
    /// Make all writes durable that were completed so far.
    Flush,
    /// Read a range.
    Read {
        /// Offset in the export of the first byte.
        offset: u64,
        /// Length in bytes.
        len: u32,
        /// Whether the reply must be one chunk (`NBD_CMD_FLAG_DF`), as a reply from weft's server
        /// always is.
        df: bool,
    },
    /// Discard a range.
    Trim {
        /// Offset in the export of the first byte.
        offset: u64,
        /// Length in bytes.
        len: u64,
        /// Whether the discard must be durable before the reply.
        fua: bool,
    },
    /// Write a range; `len` bytes of payload follow.
    Write {
        /// Offset in the export of the first byte.
        offset: u64,
        /// Length in bytes.
        len: u32,
        /// Whether the data must be durable before the reply.
        fua: bool,
    },
    /// Write zeroes to a range.
    WriteZeroes {
        /// Offset in the export of the first byte.
        offset: u64,
        /// Length in bytes.
        len: u64,
        /// Whether the zeroes must be durable before the reply.
        fua: bool,
        /// Whether the range must stay allocated.
        no_hole: bool,
        /// Whether to fail with [`NbdError::NotSupported`] if the request would take as long as a
        /// write.
        fast: bool,
    },
}

impl Op {
    /// Header of the request as it is sent, with this cookie.
    #[must_use]
    pub fn header(&self, cookie: u64) -> RequestHeader {
        let flag = |set: bool, flag: u16| if set { flag } else { 0 };
        let (command, flags, offset, len) = match *self {
            Self::BlockStatus { offset, len, one } => {
                (command::BLOCK_STATUS, flag(one, command_flag::REQ_ONE), offset, len)
            }
            Self::Cache { offset, len } => (command::CACHE, 0, offset, len),
            Self::Flush => (command::FLUSH, 0, 0, 0),
            Self::Read { offset, len, df } => {
                (command::READ, flag(df, command_flag::DF), offset, len.into())
            }
            Self::Trim { offset, len, fua } => {
                (command::TRIM, flag(fua, command_flag::FUA), offset, len)
            }
            Self::Write { offset, len, fua } => {
                (command::WRITE, flag(fua, command_flag::FUA), offset, len.into())
            }
            Self::WriteZeroes { offset, len, fua, no_hole, fast } => {
                let flags = flag(fua, command_flag::FUA)
                    | flag(no_hole, command_flag::NO_HOLE)
                    | flag(fast, command_flag::FAST_ZERO);
                (command::WRITE_ZEROES, flags, offset, len)
            }
        };
        RequestHeader { flags, command, cookie, offset, len }
    }
}

/// A request that a server has to carry out. Keep it until it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NbdRequest {
    /// Cookie that the client chose, which is repeated in the reply. Clients may reuse a cookie
    /// once its request is answered.
    pub cookie: u64,
    /// Operation with its range.
    pub op: Op,
}

/// Result of a request, with the details that the header of its reply contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// Success of any request except a read.
    Done,
    /// Failure of any request.
    Error(NbdError),
    /// Success of a read that found only zeroes; the reply has no data.
    Hole { offset: u64, len: u32 },
    /// Success of a read: exactly `len` bytes of data follow the header.
    Read { offset: u64, len: u32 },
}

impl Reply {
    pub(crate) fn to(request: &NbdRequest, result: Result<(), NbdError>) -> Self {
        match (result, request.op) {
            (Err(error), _) => Self::Error(error),
            (Ok(()), Op::Read { offset, len, .. }) => Self::Read { offset, len },
            (
                Ok(()),
                Op::BlockStatus { .. }
                | Op::Cache { .. }
                | Op::Flush
                | Op::Trim { .. }
                | Op::Write { .. }
                | Op::WriteZeroes { .. },
            ) => Self::Done,
        }
    }
}

/// Encoded request without its payload; dereferences to a slice.
#[derive(Clone, Copy, Debug)]
pub struct RequestBytes {
    bytes: [u8; RequestHeader::EXTENDED_BYTES],
    len: u8,
}

impl RequestBytes {
    pub(crate) fn new(mut header: RequestHeader, extended: bool) -> Self {
        if extended {
            if header.command == command::WRITE {
                header.flags |= command_flag::PAYLOAD_LEN;
            }
            return Self { bytes: header.encode_extended(), len: 32 };
        }
        let mut bytes = [0; RequestHeader::EXTENDED_BYTES];
        bytes[..RequestHeader::BYTES].copy_from_slice(&header.encode());
        Self { bytes, len: 28 }
    }
}

impl Deref for RequestBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// Format of message headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Headers {
    /// Simple replies only.
    Simple,
    /// Structured replies, of one or more chunks.
    Structured,
    /// Extended headers, which include structured replies.
    Extended,
}

impl Headers {
    pub(crate) fn are_structured(self) -> bool {
        self != Self::Simple
    }

    pub(crate) fn are_extended(self) -> bool {
        self == Self::Extended
    }
}

/// Facts about a request that its reply repeats: header format, cookie and offset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct To {
    pub(crate) headers: Headers,
    pub(crate) cookie: u64,
    /// Offset of the request, which extended headers repeat.
    pub(crate) offset: u64,
}

impl To {
    /// Encodes the header of a chunk.
    pub(crate) fn chunk(self, flags: u16, kind: u16, len: u32) -> ReplyHeader {
        let header = ChunkHeader { flags, kind, cookie: self.cookie, len };
        if self.headers.are_extended() {
            ReplyHeader::of(&header.encode_extended(self.offset))
        } else {
            ReplyHeader::of(&header.encode())
        }
    }
}

/// Encoded reply without its data, 16 to 44 bytes; dereferences to a slice.
#[derive(Clone, Copy, Debug)]
pub struct ReplyHeader {
    bytes: [u8; 44],
    len: u8,
}

impl ReplyHeader {
    fn of(header: &[u8]) -> Self {
        let mut bytes = [0; 44];
        bytes[..header.len()].copy_from_slice(header);
        Self { bytes, len: u8::try_from(header.len()).expect("at most 32") }
    }

    fn simple(error: u32, cookie: u64) -> Self {
        let mut bytes = [0; 44];
        bytes[..16].copy_from_slice(&SimpleReply { error, cookie }.encode());
        Self { bytes, len: 16 }
    }

    /// Creates a chunk that is the whole reply: its header, and the first `prefix_len` bytes of
    /// `prefix`. The caller sends `data_len` bytes after it.
    fn chunk(kind: u16, to: To, prefix: [u8; 8], prefix_len: u8, data_len: u32) -> Self {
        Self::chunk_start(chunk::DONE, kind, to, &prefix[..usize::from(prefix_len)], data_len)
    }

    /// Creates a chunk of a reply: its header, and the fixed-size first part of its payload.
    /// `data_len` bytes follow.
    fn chunk_start(flags: u16, kind: u16, to: To, prefix: &[u8], data_len: u32) -> Self {
        let prefix_len = u8::try_from(prefix.len()).expect("at most 12");
        let len = data_len.checked_add(u32::from(prefix_len)).expect("longer reads are refused");
        let mut header = to.chunk(flags, kind, len);
        let at = usize::from(header.len);
        header.bytes[at..at + prefix.len()].copy_from_slice(prefix);
        header.len += prefix_len;
        header
    }

    /// Creates a chunk that describes a range of zeroes.
    fn hole(flags: u16, to: To, offset: u64, len: u32) -> Self {
        let mut prefix = [0; 12];
        prefix[..8].copy_from_slice(&offset.to_be_bytes());
        prefix[8..].copy_from_slice(&len.to_be_bytes());
        Self::chunk_start(flags, chunk::OFFSET_HOLE, to, &prefix, 0)
    }

    /// Creates one chunk of a read that is answered in several chunks: the header of data, which
    /// follows, or a range of zeroes, which are not sent.
    pub(crate) fn piece(to: To, extent: Extent, offset: u64, last: bool) -> Self {
        let flags = if last { chunk::DONE } else { 0 };
        let len = u32::try_from(extent.len).expect("no longer than the read");
        if extent.zero {
            Self::hole(flags, to, offset, len)
        } else {
            Self::chunk_start(flags, chunk::OFFSET_DATA, to, &offset.to_be_bytes(), len)
        }
    }
}

impl Deref for ReplyHeader {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// Range of an export with one allocation state. Extents follow each other without gaps, so only
/// the length is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Length in bytes.
    pub len: u64,
    /// Whether no storage is allocated for the range (`NBD_STATE_HOLE`).
    pub hole: bool,
    /// Whether the range reads as zeroes (`NBD_STATE_ZERO`).
    pub zero: bool,
}

impl Extent {
    /// Creates an extent of `len` bytes of data, or of a state that is not known.
    #[must_use]
    pub fn data(len: u64) -> Self {
        Self { len, hole: false, zero: false }
    }

    /// Creates an extent of `len` bytes without storage, which reads as zeroes.
    #[must_use]
    pub fn hole(len: u64) -> Self {
        Self { len, hole: true, zero: true }
    }

    /// Flags of the extent in the context `base:allocation`.
    fn flags(self) -> u32 {
        let hole = if self.hole { allocation::HOLE } else { 0 };
        let zero = if self.zero { allocation::ZERO } else { 0 };
        hole | zero
    }

    /// Creates an extent from its length and flags on the wire; undefined flags are ignored.
    fn of(len: u64, flags: u64) -> Self {
        let has = |flag: u32| flags & u64::from(flag) != 0;
        Self { len, hole: has(allocation::HOLE), zero: has(allocation::ZERO) }
    }

    pub(crate) fn encode(self) -> [u8; 8] {
        let len = u32::try_from(self.len).expect("no longer than the request");
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&len.to_be_bytes());
        bytes[4..].copy_from_slice(&self.flags().to_be_bytes());
        bytes
    }

    /// Encodes the extent for extended headers: length and flags of 64 bits each.
    pub(crate) fn encode_extended(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.len.to_be_bytes());
        bytes[8..].copy_from_slice(&u64::from(self.flags()).to_be_bytes());
        bytes
    }

    pub(crate) fn parse(bytes: &[u8; 8]) -> Self {
        Self::of(wire::u32_at(bytes, 0).into(), wire::u32_at(bytes, 4).into())
    }

    /// Parses an extent of extended headers: length and flags of 64 bits each.
    pub(crate) fn parse_extended(bytes: &[u8; 16]) -> Self {
        Self::of(wire::u64_at(bytes, 0), wire::u64_at(bytes, 8))
    }
}

/// Results of the handshake, according to which requests are judged and replies encoded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) size: u64,
    pub(crate) flags: TransmissionFlags,
    pub(crate) block_sizes: BlockSizes,
    pub(crate) headers: Headers,
    /// Whether the client selected the context `base:allocation`.
    pub(crate) allocation: bool,
}

/// Decision of [`Terms::judge`] on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The client ends the session.
    Disconnect,
    /// The request has zero bytes and succeeds without work. `proto.md` leaves its meaning to the
    /// server.
    Nothing(Reply),
    /// The request is to be carried out.
    Perform(Op),
    /// The request is answered with an error.
    Refuse(NbdError),
}

impl Terms {
    /// Accepts or refuses a request. Checks, in this order: the command is known, writes are
    /// permitted, the command was announced, its flags are known, and its range fits.
    ///
    /// Source   proto.md "Request types", "Command flags", "Error values", "Size constraints"
    pub(crate) fn judge(&self, header: &RequestHeader) -> Verdict {
        let RequestHeader { flags, command, offset, len, .. } = *header;
        let fua = flags & command_flag::FUA != 0;
        // A length of more than 32 bits is cut for reads and writes, which are refused below.
        let short = u32::try_from(len).unwrap_or(u32::MAX);
        let op = match command {
            command::READ => Op::Read { offset, len: short, df: flags & command_flag::DF != 0 },
            command::WRITE => Op::Write { offset, len: short, fua },
            command::DISC => return Verdict::Disconnect,
            command::BLOCK_STATUS => {
                Op::BlockStatus { offset, len, one: flags & command_flag::REQ_ONE != 0 }
            }
            command::CACHE => Op::Cache { offset, len },
            command::FLUSH => Op::Flush,
            command::TRIM => Op::Trim { offset, len, fua },
            command::WRITE_ZEROES => {
                let no_hole = flags & command_flag::NO_HOLE != 0;
                let fast = flags & command_flag::FAST_ZERO != 0;
                Op::WriteZeroes { offset, len, fua, no_hole, fast }
            }
            _ => return Verdict::Refuse(NbdError::Invalid),
        };
        match self.check(&op, header) {
            Err(error) => Verdict::Refuse(error),
            Ok(()) if len > 0 || op == Op::Flush => Verdict::Perform(op),
            // The reply would need an extent, which is never empty.
            Ok(()) if command == command::BLOCK_STATUS => Verdict::Refuse(NbdError::Invalid),
            Ok(()) if command == command::READ => {
                Verdict::Nothing(Reply::Read { offset, len: short })
            }
            Ok(()) => Verdict::Nothing(Reply::Done),
        }
    }

    fn check(&self, op: &Op, header: &RequestHeader) -> Result<(), NbdError> {
        let has = |flag| self.flags.contains(flag);
        let writes = match op {
            Op::BlockStatus { .. } | Op::Cache { .. } | Op::Flush | Op::Read { .. } => false,
            Op::Trim { .. } | Op::Write { .. } | Op::WriteZeroes { .. } => true,
        };
        if writes && has(TransmissionFlags::READ_ONLY) {
            return Err(NbdError::Permission);
        }

        let flag_if = |announced: bool, flag: u16| if announced { flag } else { 0 };
        let (announced, own_flags) = match op {
            Op::BlockStatus { .. } => (self.allocation, command_flag::REQ_ONE),
            Op::Cache { .. } => (has(TransmissionFlags::SEND_CACHE), 0),
            Op::Flush => (has(TransmissionFlags::SEND_FLUSH), 0),
            Op::Read { .. } => (true, flag_if(has(TransmissionFlags::SEND_DF), command_flag::DF)),
            Op::Trim { .. } => (has(TransmissionFlags::SEND_TRIM), 0),
            // With extended headers a write may have the flag: it adds nothing, and some clients
            // leave it out.
            Op::Write { .. } => {
                (true, flag_if(self.headers.are_extended(), command_flag::PAYLOAD_LEN))
            }
            Op::WriteZeroes { .. } => (
                has(TransmissionFlags::SEND_WRITE_ZEROES),
                command_flag::NO_HOLE
                    | flag_if(has(TransmissionFlags::SEND_FAST_ZERO), command_flag::FAST_ZERO),
            ),
        };
        // Existing clients set FUA on commands that do not write, so it is allowed on all commands.
        let known = own_flags | flag_if(has(TransmissionFlags::SEND_FUA), command_flag::FUA);
        if !announced || header.flags & !known != 0 {
            return Err(NbdError::Invalid);
        }
        if *op == Op::Flush {
            let empty = header.offset == 0 && header.len == 0;
            return if empty { Ok(()) } else { Err(NbdError::Invalid) };
        }
        self.check_range(op, header.offset, header.len)
    }

    fn check_range(&self, op: &Op, offset: u64, len: u64) -> Result<(), NbdError> {
        if offset.checked_add(len).is_none_or(|end| end > self.size) {
            return Err(match op {
                Op::Write { .. } | Op::WriteZeroes { .. } => NbdError::NoSpace,
                Op::BlockStatus { .. }
                | Op::Cache { .. }
                | Op::Flush
                | Op::Read { .. }
                | Op::Trim { .. } => NbdError::Invalid,
            });
        }
        let mask = u64::from(self.block_sizes.minimum()) - 1;
        if (offset | len) & mask != 0 {
            return Err(NbdError::Invalid);
        }
        if len > u64::from(u32::MAX) && !self.headers.are_extended() {
            return Err(NbdError::Invalid);
        }
        // A data chunk includes its offset of 8 bytes in its length of 32 bits.
        if len > u64::from(self.block_sizes.payload_max().min(u32::MAX - 8)) {
            return match op {
                // EOVERFLOW is only for structured replies; other clients do not expect it.
                Op::Read { .. } if self.headers.are_structured() => Err(NbdError::Overflow),
                Op::Read { .. } | Op::Write { .. } => Err(NbdError::Invalid),
                Op::BlockStatus { .. }
                | Op::Cache { .. }
                | Op::Flush
                | Op::Trim { .. }
                | Op::WriteZeroes { .. } => Ok(()),
            };
        }
        Ok(())
    }
}

/// Header of a reply, before its data.
///
/// With structured replies, a read is one chunk with the data; a read of zero bytes is only an end
/// mark, since a data chunk must hold at least one byte. An error is an error chunk without a text.
/// Other successes stay simple replies, which `proto.md` permits and which are the shortest. With
/// extended headers there are no simple replies.
///
/// Source   proto.md "Simple reply message", "Structured reply chunk message", "Structured reply
///          types"
pub(crate) fn reply_header(to: To, reply: Reply) -> ReplyHeader {
    let structured = to.headers.are_structured();
    let cookie = to.cookie;
    match reply {
        Reply::Error(error) if structured => {
            // 32 bits of error, 16 bits of text length, no text.
            let prefix = (u64::from(error.code()) << 32).to_be_bytes();
            ReplyHeader::chunk(chunk::ERROR, to, prefix, 6, 0)
        }
        Reply::Read { len: 0, .. } if structured => {
            ReplyHeader::chunk(chunk::NONE, to, [0; 8], 0, 0)
        }
        Reply::Done if to.headers.are_extended() => {
            ReplyHeader::chunk(chunk::NONE, to, [0; 8], 0, 0)
        }
        Reply::Read { offset, len } if structured => {
            ReplyHeader::chunk(chunk::OFFSET_DATA, to, offset.to_be_bytes(), 8, len)
        }
        Reply::Hole { offset, len } => {
            assert!(structured && len > 0, "simple replies cannot describe holes");
            ReplyHeader::hole(chunk::DONE, to, offset, len)
        }
        Reply::Error(error) => ReplyHeader::simple(error.code(), cookie),
        Reply::Done | Reply::Read { .. } => ReplyHeader::simple(0, cookie),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 1 << 26;
    const PAYLOAD_MAX: u32 = 1 << 25;

    fn terms(flags: TransmissionFlags) -> Terms {
        let block_sizes = BlockSizes::default();
        Terms { size: SIZE, flags, block_sizes, headers: Headers::Structured, allocation: true }
    }

    fn judge(terms: &Terms, command: u16, flags: u16, offset: u64, len: u32) -> Verdict {
        terms.judge(&RequestHeader { flags, command, cookie: 1, offset, len: len.into() })
    }

    #[test]
    fn range_limits_hold_on_both_sides() {
        use NbdError::{Invalid, NoSpace, Overflow};
        let all = terms(TransmissionFlags(!0x2));
        let end = SIZE;
        for (command, offset, len, expected) in [
            (command::READ, end - 1, 1, None),
            (command::READ, end, 1, Some(Invalid)),
            (command::READ, end - 1, 2, Some(Invalid)),
            (command::READ, u64::MAX, 1, Some(Invalid)),
            (command::READ, u64::MAX, u32::MAX, Some(Invalid)),
            (command::READ, 0, PAYLOAD_MAX, None),
            (command::READ, 0, PAYLOAD_MAX + 1, Some(Overflow)),
            (command::WRITE, end - 1, 1, None),
            (command::WRITE, end, 1, Some(NoSpace)),
            (command::WRITE, u64::MAX, 1, Some(NoSpace)),
            (command::WRITE, 0, PAYLOAD_MAX, None),
            (command::WRITE, 0, PAYLOAD_MAX + 1, Some(Invalid)),
            (command::WRITE_ZEROES, 0, 1 << 26, None),
            (command::WRITE_ZEROES, 1, 1 << 26, Some(NoSpace)),
            (command::WRITE_ZEROES, u64::MAX - 4, 4, Some(NoSpace)),
            (command::TRIM, 0, 1 << 26, None),
            (command::TRIM, 1, 1 << 26, Some(Invalid)),
            (command::CACHE, 0, 1 << 26, None),
            (command::CACHE, 1, 1 << 26, Some(Invalid)),
            (command::BLOCK_STATUS, 0, 1 << 26, None),
            (command::BLOCK_STATUS, end, 1, Some(Invalid)),
            (command::BLOCK_STATUS, 0, 0, Some(Invalid)),
            (command::FLUSH, 0, 0, None),
            (command::FLUSH, 0, 1, Some(Invalid)),
            (command::FLUSH, 1, 0, Some(Invalid)),
        ] {
            match (judge(&all, command, 0, offset, len), expected) {
                (Verdict::Perform(_), None) => {}
                (Verdict::Refuse(found), Some(expected)) => {
                    assert_eq!(found, expected, "command {command} at {offset} + {len}");
                }
                (found, _) => panic!("command {command} at {offset} + {len}: {found:?}"),
            }
        }
    }

    #[test]
    fn zero_bytes_succeed_up_to_the_end() {
        let all = terms(TransmissionFlags(!0x2));
        for offset in [0, SIZE] {
            let read = Reply::Read { offset, len: 0 };
            assert_eq!(judge(&all, command::READ, 0, offset, 0), Verdict::Nothing(read));
            for command in [command::WRITE, command::WRITE_ZEROES, command::TRIM, command::CACHE] {
                assert_eq!(judge(&all, command, 0, offset, 0), Verdict::Nothing(Reply::Done));
            }
        }
        let beyond = Verdict::Refuse(NbdError::Invalid);
        assert_eq!(judge(&all, command::READ, 0, SIZE + 1, 0), beyond);
    }

    #[test]
    fn every_flag_on_every_command() {
        use TransmissionFlags as F;
        // (command, flag that announces the command, command flag, flag that announces that)
        let good = [
            (command::READ, F(0), command_flag::DF, F::SEND_DF),
            (command::READ, F(0), command_flag::FUA, F::SEND_FUA),
            (command::WRITE, F(0), command_flag::FUA, F::SEND_FUA),
            (command::CACHE, F::SEND_CACHE, command_flag::FUA, F::SEND_FUA),
            (command::BLOCK_STATUS, F(0), command_flag::FUA, F::SEND_FUA),
            (command::BLOCK_STATUS, F(0), command_flag::REQ_ONE, F(0)),
            (command::TRIM, F::SEND_TRIM, command_flag::FUA, F::SEND_FUA),
            (command::WRITE_ZEROES, F::SEND_WRITE_ZEROES, command_flag::FUA, F::SEND_FUA),
            (command::WRITE_ZEROES, F::SEND_WRITE_ZEROES, command_flag::NO_HOLE, F(0)),
            (
                command::WRITE_ZEROES,
                F::SEND_WRITE_ZEROES,
                command_flag::FAST_ZERO,
                F::SEND_FAST_ZERO,
            ),
        ];
        let commands = [
            (command::READ, F(0)),
            (command::WRITE, F(0)),
            (command::BLOCK_STATUS, F(0)),
            (command::CACHE, F::SEND_CACHE),
            (command::TRIM, F::SEND_TRIM),
            (command::WRITE_ZEROES, F::SEND_WRITE_ZEROES),
        ];
        let invalid = Verdict::Refuse(NbdError::Invalid);
        for (command, announcing) in commands {
            for bit in 0..16 {
                let flag = 1 << bit;
                let row = good.iter().find(|row| row.0 == command && row.2 == flag);
                let everything = terms(F(!0x2));
                let found = judge(&everything, command, flag, 0, 1);
                assert_eq!(found == invalid, row.is_none(), "{command} {flag:#x}");
                if let Some(row) = row.filter(|row| row.3 != F(0)) {
                    let without = terms(announcing | F(!0x2).without(row.3));
                    assert_eq!(judge(&without, command, flag, 0, 1), invalid);
                }
            }
            if announcing != F(0) {
                let without = terms(F(!0x2).without(announcing));
                assert_eq!(judge(&without, command, 0, 0, 1), invalid, "{command}");
            }
        }
        let without = Terms { allocation: false, ..terms(F(!0x2)) };
        assert_eq!(judge(&without, command::BLOCK_STATUS, 0, 0, 1), invalid);
        for command in [8, 9, 0xffff] {
            assert_eq!(judge(&terms(F(0xffff)), command, 0, 0, 1), invalid, "{command}");
        }
        assert_eq!(judge(&terms(F(0)), command::FLUSH, 0, 0, 0), invalid);
    }

    #[test]
    fn read_only_refuses_every_write_with_eperm() {
        let read_only = terms(TransmissionFlags(0xffff));
        let refused = Verdict::Refuse(NbdError::Permission);
        for command in [command::WRITE, command::TRIM, command::WRITE_ZEROES] {
            assert_eq!(judge(&read_only, command, 0, 0, 1), refused);
            assert_eq!(judge(&read_only, command, 0xffff, u64::MAX, u32::MAX), refused);
        }
        assert!(matches!(judge(&read_only, command::READ, 0, 0, 1), Verdict::Perform(_)));
        assert!(matches!(judge(&read_only, command::FLUSH, 0, 0, 0), Verdict::Perform(_)));
    }

    #[test]
    fn unaligned_requests_are_invalid() {
        let block_sizes = BlockSizes::new(512, 4096, 1 << 25).unwrap();
        let terms = Terms { block_sizes, ..terms(TransmissionFlags(0)) };
        for (offset, len, good) in
            [(0, 512, true), (512, 1024, true), (1, 512, false), (0, 1, false)]
        {
            let verdict = judge(&terms, command::READ, 0, offset, len);
            assert_eq!(matches!(verdict, Verdict::Perform(_)), good, "{offset} + {len}");
        }
    }

    #[test]
    fn what_is_performed_encodes_back_to_the_request() {
        let all = terms(TransmissionFlags(!0x2));
        for command in 0..8 {
            for flags in 0..64 {
                let header = RequestHeader { flags, command, cookie: 5, offset: 0, len: 512 };
                if let Verdict::Perform(op) = all.judge(&header) {
                    let mut back = op.header(5);
                    if matches!(command, command::READ | command::CACHE | command::BLOCK_STATUS) {
                        back.flags |= flags & command_flag::FUA;
                    }
                    assert_eq!(back, header);
                }
            }
        }
    }

    #[test]
    fn replies_have_the_documented_bytes() {
        let cookie = 0x0102_0304_0506_0708;
        let hex = |header: ReplyHeader| {
            header.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
        };
        let read = Reply::Read { offset: 0x1000, len: 0x200 };
        let empty = Reply::Read { offset: 0x1000, len: 0 };
        let error = Reply::Error(NbdError::Io);
        for (structured, reply, expected) in [
            (false, Reply::Done, "67446698 00000000 0102030405060708"),
            (false, read, "67446698 00000000 0102030405060708"),
            (false, error, "67446698 00000005 0102030405060708"),
            (true, Reply::Done, "67446698 00000000 0102030405060708"),
            (true, read, "668e33ef 0001 0001 0102030405060708 00000208 0000000000001000"),
            (true, empty, "668e33ef 0001 0000 0102030405060708 00000000"),
            (
                true,
                Reply::Hole { offset: 0x1000, len: 0x200 },
                "668e33ef 0001 0002 0102030405060708 0000000c 0000000000001000 00000200",
            ),
            (true, error, "668e33ef 0001 8001 0102030405060708 00000006 00000005 0000"),
        ] {
            let headers = if structured { Headers::Structured } else { Headers::Simple };
            let found = hex(reply_header(To { headers, cookie, offset: 0 }, reply));
            assert_eq!(found, expected.replace(' ', ""), "{structured} {reply:?}");
        }
    }
}
