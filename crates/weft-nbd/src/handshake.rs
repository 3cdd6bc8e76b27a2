//! Facts about an export (size, block sizes, flags), and the options and replies that carry them.
//!
//! The state machines that exchange them are in [`server`](crate::server) and
//! [`client`](crate::client).
//!
//! Source: `proto.md` "Option types", "Option reply types", "Size constraints".

use crate::buffer::Outbox;
use crate::wire::{self, OptionReplyHeader, TransmissionFlags, info, option_reply};

/// An export: its name, size and capabilities.
///
/// A server builds one per volume; a client receives one. Every value obeys the limits of the
/// protocol.
///
/// ```
/// use weft_nbd::{BlockSizes, ExportInfo, TransmissionFlags};
///
/// let export = ExportInfo::new("disk", 1 << 30)?
///     .with_description("RAID-5 of four members")?
///     .with_flags(ExportInfo::DEFAULT_FLAGS | TransmissionFlags::READ_ONLY)
///     .with_block_sizes(BlockSizes::new(1, 65_536, 1 << 25)?);
/// assert!(export.flags().contains(TransmissionFlags::SEND_FLUSH));
/// # Ok::<(), weft_nbd::ExportError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportInfo {
    name: String,
    description: String,
    size: u64,
    flags: TransmissionFlags,
    block_sizes: BlockSizes,
    allocation: bool,
}

impl ExportInfo {
    /// Flags of a new export: flush, FUA and write zeroes.
    pub const DEFAULT_FLAGS: TransmissionFlags = TransmissionFlags::HAS_FLAGS
        .with(TransmissionFlags::SEND_FLUSH)
        .with(TransmissionFlags::SEND_FUA)
        .with(TransmissionFlags::SEND_WRITE_ZEROES);

    /// Replaces the size, in bytes. A size above [`i64::MAX`] becomes [`i64::MAX`].
    #[must_use]
    pub fn with_size(self, size: u64) -> Self {
        Self { size: size.min(i64::MAX.cast_unsigned()), ..self }
    }

    /// Creates an export with [`Self::DEFAULT_FLAGS`], default block sizes and no description.
    ///
    /// Shape    `name` at most 4096 bytes, without NUL; empty is the default export
    /// Units    `size` in bytes
    /// Source   proto.md "Conventions"
    ///
    /// # Errors
    /// [`ExportError::Text`] when the name is too long or contains NUL.
    pub fn new(name: impl Into<String>, size: u64) -> Result<Self, ExportError> {
        let name = name.into();
        check_text("name", &name)?;
        Ok(Self {
            name,
            description: String::new(),
            size,
            flags: Self::DEFAULT_FLAGS,
            block_sizes: BlockSizes::default(),
            allocation: false,
        })
    }

    /// Adds a description for people.
    ///
    /// Shape    at most 4096 bytes, without NUL
    ///
    /// # Errors
    /// [`ExportError::Text`] when the text is too long or contains NUL.
    pub fn with_description(mut self, text: impl Into<String>) -> Result<Self, ExportError> {
        self.description = text.into();
        check_text("description", &self.description)?;
        Ok(self)
    }

    /// Replaces the transmission flags.
    ///
    /// `HAS_FLAGS` is always set, `SEND_FAST_ZERO` requires `SEND_WRITE_ZEROES`, and a read-only
    /// export does not offer writes. On a server the caller does not choose `SEND_DF`: it follows
    /// from structured replies.
    ///
    /// Source   proto.md "Transmission flags"
    #[must_use]
    pub fn with_flags(mut self, flags: TransmissionFlags) -> Self {
        let writes = TransmissionFlags::SEND_TRIM
            | TransmissionFlags::SEND_WRITE_ZEROES
            | TransmissionFlags::SEND_FAST_ZERO;
        self.flags = flags | TransmissionFlags::HAS_FLAGS;
        if flags.contains(TransmissionFlags::READ_ONLY) {
            self.flags = self.flags.without(writes);
        }
        if !self.flags.contains(TransmissionFlags::SEND_WRITE_ZEROES) {
            self.flags = self.flags.without(TransmissionFlags::SEND_FAST_ZERO);
        }
        self
    }

    /// Replaces the block sizes.
    #[must_use]
    pub fn with_block_sizes(mut self, block_sizes: BlockSizes) -> Self {
        self.block_sizes = block_sizes;
        self
    }

    /// Offers the metadata context `base:allocation`, which describes holes.
    #[must_use]
    pub fn with_allocation(mut self) -> Self {
        self.allocation = true;
        self
    }

    /// Whether the export offers `base:allocation`. For an export that a client received: whether
    /// `base:allocation` was negotiated.
    #[must_use]
    pub fn has_allocation(&self) -> bool {
        self.allocation
    }

    /// Name of the export, by which clients open it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Description for people, possibly empty.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Size of the export in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Transmission flags of the export.
    #[must_use]
    pub fn flags(&self) -> TransmissionFlags {
        self.flags
    }

    /// Minimum and preferred block size, and longest payload.
    #[must_use]
    pub fn block_sizes(&self) -> BlockSizes {
        self.block_sizes
    }

    /// Creates an export from values that a client received with `NBD_INFO_EXPORT` or for
    /// `NBD_OPT_EXPORT_NAME`. The flags are kept as they are.
    pub(crate) fn received(name: String, size: u64, flags: TransmissionFlags) -> Self {
        let (description, block_sizes) = (String::new(), BlockSizes::default());
        Self { name, description, size, flags, block_sizes, allocation: false }
    }

    pub(crate) fn rename(&mut self, name: String) {
        self.name = name;
    }

    pub(crate) fn describe(&mut self, description: String) {
        self.description = description;
    }
}

/// Sizes of requests that an export accepts and prefers.
///
/// Units    bytes
/// Source   proto.md "Size constraints"
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSizes {
    minimum: u32,
    preferred: u32,
    payload_max: u32,
}

impl BlockSizes {
    /// Creates block sizes after checking them.
    ///
    /// Shape    `minimum` a power of two up to 65,536; `preferred` a power of two of at least 512
    ///          and `minimum`; `payload_max` at least `preferred`
    /// Units    bytes
    /// Source   proto.md "Size constraints"
    ///
    /// # Errors
    /// [`ExportError::BlockSizes`] when a size is not as above.
    pub fn new(minimum: u32, preferred: u32, payload_max: u32) -> Result<Self, ExportError> {
        let fits = minimum.is_power_of_two()
            && minimum <= BLOCK_MINIMUM_MAX
            && preferred.is_power_of_two()
            && preferred >= minimum.max(BLOCK_PREFERRED_MIN)
            && payload_max >= preferred;
        if fits {
            Ok(Self { minimum, preferred, payload_max })
        } else {
            Err(ExportError::BlockSizes { minimum, preferred, payload_max })
        }
    }

    /// Minimum block size in bytes: the unit of every offset and length.
    #[must_use]
    pub fn minimum(&self) -> u32 {
        self.minimum
    }

    /// Preferred block size in bytes: aligned requests of this size are served without reading
    /// first.
    #[must_use]
    pub fn preferred(&self) -> u32 {
        self.preferred
    }

    /// Longest payload of one read or write, in bytes.
    #[must_use]
    pub fn payload_max(&self) -> u32 {
        self.payload_max
    }

    /// Encodes the data of `NBD_INFO_BLOCK_SIZE`.
    fn encode(self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&self.minimum.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.preferred.to_be_bytes());
        bytes[8..].copy_from_slice(&self.payload_max.to_be_bytes());
        bytes
    }
}

impl Default for BlockSizes {
    /// Sizes that both sides assume when none were sent: minimum block 1, preferred block 4096,
    /// largest payload 32 MiB.
    fn default() -> Self {
        Self { minimum: 1, preferred: 4096, payload_max: wire::PAYLOAD_BYTES_DEFAULT }
    }
}

/// Reasons why an export cannot be described in the protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The block sizes are not legal, see [`BlockSizes::new`].
    #[error(
        "block sizes: found minimum {minimum}, preferred {preferred}, payload {payload_max}; \
         expected powers of two with minimum <= 65536, 512 <= preferred <= payload"
    )]
    BlockSizes {
        /// Minimum block, in bytes.
        minimum: u32,
        /// Preferred block, in bytes.
        preferred: u32,
        /// Longest payload, in bytes.
        payload_max: u32,
    },
    /// A name or description is too long or contains a NUL.
    #[error("export {what}: found {len} bytes, expected at most 4096 without NUL")]
    Text {
        /// Text at fault: `name` or `description`.
        what: &'static str,
        /// Length of the text in bytes.
        len: usize,
    },
}

/// Data of `NBD_OPT_INFO` and `NBD_OPT_GO`.
///
/// Source   proto.md "Option types", `NBD_OPT_INFO`
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InfoRequest<'a> {
    pub(crate) name: &'a str,
    pub(crate) wants_name: bool,
    pub(crate) wants_description: bool,
    pub(crate) wants_block_size: bool,
}

impl<'a> InfoRequest<'a> {
    /// Parses the data of `NBD_OPT_INFO` or `NBD_OPT_GO`; the error is a message for the client.
    pub(crate) fn parse(data: &'a [u8]) -> Result<Self, &'static str> {
        if data.len() < 6 {
            return Err("option data too short");
        }
        let name_len = wire::u32_at(data, 0) as usize;
        if name_len > data.len() - 6 {
            return Err("export name longer than option data");
        }
        let name = parse_name(&data[4..4 + name_len])?;
        let count = usize::from(wire::u16_at(data, 4 + name_len));
        let list = &data[6 + name_len..];
        if list.len() != 2 * count {
            return Err("information requests do not fill option data");
        }
        let wants = |kind| list.chunks_exact(2).any(|item| wire::u16_at(item, 0) == kind);
        Ok(Self {
            name,
            wants_name: wants(info::NAME),
            wants_description: wants(info::DESCRIPTION),
            wants_block_size: wants(info::BLOCK_SIZE),
        })
    }

    /// Encodes the data of `NBD_OPT_INFO` or `NBD_OPT_GO`.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let kinds = [
            (self.wants_name, info::NAME),
            (self.wants_description, info::DESCRIPTION),
            (self.wants_block_size, info::BLOCK_SIZE),
        ];
        let count = u16::from(self.wants_name)
            + u16::from(self.wants_description)
            + u16::from(self.wants_block_size);
        let mut data = Vec::with_capacity(self.name.len() + 12);
        data.extend_from_slice(&len_u32(self.name.len()).to_be_bytes());
        data.extend_from_slice(self.name.as_bytes());
        data.extend_from_slice(&count.to_be_bytes());
        for (_, kind) in kinds.into_iter().filter(|(wanted, _)| *wanted) {
            data.extend_from_slice(&kind.to_be_bytes());
        }
        data
    }
}

/// Data of `NBD_OPT_LIST_META_CONTEXT` and `NBD_OPT_SET_META_CONTEXT`.
///
/// Source   proto.md "Option types", `NBD_OPT_LIST_META_CONTEXT`
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MetaRequest<'a> {
    pub(crate) name: &'a str,
    /// Whether the request names no context. If it asks for a list, the list then has all contexts.
    pub(crate) is_empty: bool,
    /// Whether the client asks for `base:allocation` by name.
    pub(crate) allocation: bool,
    /// Whether the client asks for all contexts of the namespace `base:`.
    pub(crate) all_of_base: bool,
}

impl<'a> MetaRequest<'a> {
    /// Parses the data of `NBD_OPT_LIST_META_CONTEXT` or `NBD_OPT_SET_META_CONTEXT`; the error is a
    /// message for the client. Queries of unknown namespaces match nothing, whatever their form.
    pub(crate) fn parse(data: &'a [u8]) -> Result<Self, &'static str> {
        let mut rest = data;
        let name = parse_name(take_counted(&mut rest)?)?;
        let (count, mut rest) = rest.split_first_chunk().ok_or("option data too short")?;
        // Each query takes at least four bytes of the data, so the count is bounded by its length.
        let count = u32::from_be_bytes(*count);
        let mut request =
            Self { name, is_empty: count == 0, allocation: false, all_of_base: false };
        for _ in 0..count {
            let query = take_counted(&mut rest)?;
            if query.len() > wire::STRING_BYTES_MAX {
                return Err("metadata query longer than 4096 bytes");
            }
            request.allocation |= query == wire::BASE_ALLOCATION.as_bytes();
            request.all_of_base |= query == b"base:";
        }
        if rest.is_empty() { Ok(request) } else { Err("metadata queries do not fill option data") }
    }

    /// Encodes a request for the context `base:allocation` of the export `name`.
    pub(crate) fn encode(name: &str) -> Vec<u8> {
        let mut data = Vec::new();
        for text in [name, wire::BASE_ALLOCATION] {
            data.extend_from_slice(&len_u32(text.len()).to_be_bytes());
            data.extend_from_slice(text.as_bytes());
            if data.len() == 4 + name.len() {
                data.extend_from_slice(&1_u32.to_be_bytes());
            }
        }
        data
    }
}

/// Takes a counted string from the front of `data`: a length of 32 bits and that many bytes, which
/// are returned. The error is a message for the client.
fn take_counted<'a>(data: &mut &'a [u8]) -> Result<&'a [u8], &'static str> {
    let (len, rest) = data.split_first_chunk().ok_or("option data too short")?;
    let len = u32::from_be_bytes(*len) as usize;
    let (bytes, rest) = rest.split_at_checked(len).ok_or("string longer than option data")?;
    *data = rest;
    Ok(bytes)
}

/// Parses an export name; the error is a message for the client.
pub(crate) fn parse_name(bytes: &[u8]) -> Result<&str, &'static str> {
    if bytes.len() > wire::STRING_BYTES_MAX {
        return Err("export name longer than 4096 bytes");
    }
    let name = std::str::from_utf8(bytes).map_err(|_| "export name is not UTF-8")?;
    if name.contains('\0') {
        return Err("export name contains NUL");
    }
    Ok(name)
}

/// Writes one reply to an option, with its data given in slices.
pub(crate) fn push_option_reply(out: &mut Outbox, option: u32, kind: u32, data: &[&[u8]]) {
    let len = len_u32(data.iter().map(|slice| slice.len()).sum());
    out.push(&OptionReplyHeader { option, kind, len }.encode());
    for slice in data {
        out.push(slice);
    }
}

/// Writes the replies of a successful `NBD_OPT_INFO` or `NBD_OPT_GO`.
///
/// `NBD_INFO_BLOCK_SIZE` is sent only when asked for. A client that does not ask may use the
/// export, and gets errors for requests outside the limits; `proto.md` allows that.
pub(crate) fn push_info_replies(
    out: &mut Outbox,
    option: u32,
    export: &ExportInfo,
    flags: TransmissionFlags,
    request: &InfoRequest<'_>,
) {
    let mut push = |kind: u16, data: &[u8]| {
        push_option_reply(out, option, option_reply::INFO, &[&kind.to_be_bytes(), data]);
    };
    push(info::EXPORT, &encode_export(export.size, flags));
    if request.wants_name {
        push(info::NAME, export.name.as_bytes());
    }
    if request.wants_description && !export.description.is_empty() {
        push(info::DESCRIPTION, export.description.as_bytes());
    }
    if request.wants_block_size {
        push(info::BLOCK_SIZE, &export.block_sizes.encode());
    }
    push_option_reply(out, option, option_reply::ACK, &[]);
}

/// Encodes size and flags, as in `NBD_INFO_EXPORT` and in the reply to `NBD_OPT_EXPORT_NAME`.
pub(crate) fn encode_export(size: u64, flags: TransmissionFlags) -> [u8; 10] {
    let mut bytes = [0; 10];
    bytes[..8].copy_from_slice(&size.to_be_bytes());
    bytes[8..].copy_from_slice(&flags.0.to_be_bytes());
    bytes
}

/// An `NBD_REP_INFO`, parsed by a client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum InfoReply<'a> {
    BlockSize(BlockSizes),
    Description(&'a str),
    Export { size: u64, flags: TransmissionFlags },
    Name(&'a str),
    Unknown,
}

impl<'a> InfoReply<'a> {
    /// Parses the data of `NBD_REP_INFO`; the error says what is malformed.
    pub(crate) fn parse(data: &'a [u8]) -> Result<Self, &'static str> {
        if data.len() < 2 {
            return Err("information reply too short");
        }
        let (kind, data) = (wire::u16_at(data, 0), &data[2..]);
        match kind {
            info::EXPORT if data.len() == 10 => Ok(Self::Export {
                size: wire::u64_at(data, 0),
                flags: TransmissionFlags(wire::u16_at(data, 8)),
            }),
            info::EXPORT => Err("NBD_INFO_EXPORT has the wrong length"),
            info::NAME => parse_name(data).map(Self::Name),
            info::DESCRIPTION => parse_name(data)
                .map(Self::Description)
                .map_err(|_| "NBD_INFO_DESCRIPTION is not a string of at most 4096 bytes"),
            info::BLOCK_SIZE if data.len() == 12 => {
                let [minimum, preferred, payload_max] =
                    [wire::u32_at(data, 0), wire::u32_at(data, 4), wire::u32_at(data, 8)];
                BlockSizes::new(minimum, preferred, payload_max)
                    .map(Self::BlockSize)
                    .map_err(|_| "NBD_INFO_BLOCK_SIZE breaks the size constraints")
            }
            info::BLOCK_SIZE => Err("NBD_INFO_BLOCK_SIZE has the wrong length"),
            _ => Ok(Self::Unknown),
        }
    }
}

/// Length in bytes of a message that this crate has encoded, which always fits in 32 bits.
pub(crate) fn len_u32(len: usize) -> u32 {
    u32::try_from(len).expect("our own messages are a few KiB long")
}

fn check_text(what: &'static str, text: &str) -> Result<(), ExportError> {
    if text.len() > wire::STRING_BYTES_MAX || text.contains('\0') {
        return Err(ExportError::Text { what, len: text.len() });
    }
    Ok(())
}

/// Largest minimum block size that an export may have, in bytes.
const BLOCK_MINIMUM_MAX: u32 = 1 << 16;
/// Smallest preferred block size that an export may have, in bytes.
const BLOCK_PREFERRED_MIN: u32 = 1 << 9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn info_request_goes_there_and_back() {
        let request = InfoRequest {
            name: "disk",
            wants_name: true,
            wants_description: false,
            wants_block_size: true,
        };
        let data = request.encode();
        assert_eq!(data, b"\0\0\0\x04disk\0\x02\0\x01\0\x03");
        assert_eq!(InfoRequest::parse(&data), Ok(request));
    }

    #[test]
    fn queries_for_metadata_go_there_and_back() {
        for name in ["", "disk"] {
            let data = MetaRequest::encode(name);
            let found = MetaRequest::parse(&data).unwrap();
            let expected =
                MetaRequest { name, is_empty: false, allocation: true, all_of_base: false };
            assert_eq!(found, expected);
            for len in 0..data.len() {
                assert!(MetaRequest::parse(&data[..len]).is_err(), "{len} bytes");
            }
            let longer = [&data[..], &[0]].concat();
            let error = "metadata queries do not fill option data";
            assert_eq!(MetaRequest::parse(&longer), Err(error));
        }
        let wild = b"\0\0\0\0\0\0\0\x02\0\0\0\x05base:\0\0\0\x03x:y";
        let found = MetaRequest::parse(wild).unwrap();
        assert!(found.all_of_base && !found.allocation && !found.is_empty);
        assert!(MetaRequest::parse(b"\0\0\0\0\0\0\0\0").unwrap().is_empty);
        // A count without queries behind it costs nothing.
        let many = b"\0\0\0\0\xff\xff\xff\xff";
        assert_eq!(MetaRequest::parse(many), Err("option data too short"));
    }

    #[test]
    fn malformed_info_requests_are_named() {
        for (data, error) in [
            (&b""[..], "option data too short"),
            (b"\0\0\0\0\0", "option data too short"),
            (b"\0\0\0\x01\0\0", "export name longer than option data"),
            (b"\xff\xff\xff\xff\0\0", "export name longer than option data"),
            (b"\0\0\0\0\0\x01", "information requests do not fill option data"),
            (b"\0\0\0\0\0\x01\0\x03\0", "information requests do not fill option data"),
            (b"\0\0\0\0\0\0\0", "information requests do not fill option data"),
            (b"\0\0\0\x01\xff\0\0", "export name is not UTF-8"),
            (b"\0\0\0\x01\0\0\0", "export name contains NUL"),
        ] {
            assert_eq!(InfoRequest::parse(data), Err(error), "{data:?}");
        }
    }

    #[test]
    fn names_up_to_4096_bytes_are_accepted() {
        assert!(parse_name(&[b'a'; 4096]).is_ok());
        assert!(parse_name(&[b'a'; 4097]).is_err());
        assert!(ExportInfo::new("a".repeat(4096), 0).is_ok());
        assert!(ExportInfo::new("a".repeat(4097), 0).is_err());
        assert!(ExportInfo::new("a\0", 0).is_err());
    }

    #[test]
    fn block_sizes_obey_the_size_constraints() {
        for (minimum, preferred, payload, good) in [
            (1, 512, 512, true),
            (1, 4096, 1 << 25, true),
            (65_536, 65_536, u32::MAX, true),
            (0, 4096, 1 << 25, false),
            (3, 4096, 1 << 25, false),
            (131_072, 131_072, 1 << 25, false),
            (1, 256, 1 << 25, false),
            (4096, 512, 1 << 25, false),
            (1, 5000, 1 << 25, false),
            (1, 4096, 4095, false),
        ] {
            let found = BlockSizes::new(minimum, preferred, payload).is_ok();
            assert_eq!(found, good, "{minimum} {preferred} {payload}");
        }
    }

    #[test]
    fn read_only_exports_offer_no_writes() {
        let flags = ExportInfo::DEFAULT_FLAGS
            | TransmissionFlags::READ_ONLY
            | TransmissionFlags::SEND_TRIM
            | TransmissionFlags::SEND_FAST_ZERO;
        let flags = ExportInfo::new("", 0).unwrap().with_flags(flags).flags();
        assert_eq!(flags, TransmissionFlags(0b1111));
        let flags = TransmissionFlags::SEND_FAST_ZERO;
        let flags = ExportInfo::new("", 0).unwrap().with_flags(flags).flags();
        assert_eq!(flags, TransmissionFlags::HAS_FLAGS);
    }
}
