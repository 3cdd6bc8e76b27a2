//! Interface of a file system for `copy`: nodes, names, segments of content, attributes.
//!
//! A file system may be damaged in one place and whole in others. Answers therefore contain faults
//! beside the parts that could be read, and an error concerns one node only.

use std::ops::Range;
use std::rc::Rc;

use thiserror::Error;

use crate::source::{ReadError, Source};

/// Reason why a node or the file system cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TreeError {
    /// A structure has an impossible value.
    #[error("{what}: found {found}, expected {expected}")]
    Damaged {
        /// Structure and field.
        what: String,
        /// Value that the structure has.
        found: String,
        /// Values that would be legal.
        expected: String,
    },
    /// Bytes cannot be read.
    #[error("{0}")]
    Read(#[from] ReadError),
    /// The node or the file system is not read, for the reason in the text: for example, it uses a
    /// feature that is not supported, or a part of its tree is lost.
    #[error("{0}")]
    Refused(String),
}

impl TreeError {
    #[expect(clippy::needless_pass_by_value, reason = "texts and numbers of several types")]
    pub(crate) fn damaged(
        what: impl Into<String>,
        found: impl ToString,
        expected: impl Into<String>,
    ) -> Self {
        Self::Damaged { what: what.into(), found: found.to_string(), expected: expected.into() }
    }
}

/// Kind of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// Directory.
    Directory,
    /// Regular file.
    File,
    /// Symbolic link.
    Link,
    /// Device, pipe or socket, by its name.
    Special(&'static str),
}

impl NodeKind {
    /// Kind of node that a mode in the form of stat(2) has in its bits above the permissions;
    /// `None` if these bits name no kind.
    pub(crate) fn of_mode(mode: u32) -> Option<Self> {
        Some(match mode >> 12 {
            0x1 => Self::Special("pipe"),
            0x2 => Self::Special("character device"),
            0x4 => Self::Directory,
            0x6 => Self::Special("block device"),
            0x8 => Self::File,
            0xa => Self::Link,
            0xc => Self::Special("socket"),
            _ => return None,
        })
    }
}

/// Time of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeTime {
    /// Seconds from 1970.
    pub seconds: i64,
    /// Nanoseconds, below 1,000,000,000.
    pub nanos: u32,
}

/// File, directory or link, without its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Number of the node, unique in its file system.
    pub id: u64,
    /// Kind of the node.
    pub kind: NodeKind,
    /// Size in bytes.
    pub size: u64,
    /// Permissions with the set-user-ID, set-group-ID and sticky bits.
    pub mode: u32,
    /// User ID of the owner.
    pub uid: u32,
    /// Group ID.
    pub gid: u32,
    /// Number of names (hard links).
    pub links: u32,
    /// Time of the last access.
    pub accessed: NodeTime,
    /// Time of the last change of the content.
    pub modified: NodeTime,
    /// Time of the last change of the content or of these attributes.
    pub changed: NodeTime,
    /// Bytes that the content takes in the file system: less than the size if it has holes.
    pub stored: u64,
    /// Number of a device, as the 32 bits in which Linux passes it on; 0 for other nodes.
    pub device: u32,
    /// Message about a fault of the node that does not prevent reading; `None` if there is none.
    pub fault: Option<String>,
}

/// Name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Bytes of the name as the file system stores it, which may not be a valid name.
    pub name: Vec<u8>,
    /// Number of the node.
    pub id: u64,
}

/// Names of a directory, and faults of the parts that could not be read.
#[derive(Debug, Default)]
pub struct Entries {
    /// Names without `.` and `..`.
    pub list: Vec<Entry>,
    /// Messages about parts that could not be read.
    pub faults: Vec<String>,
    /// Messages about parts that were read and may be wrong.
    pub doubts: Vec<String>,
}

/// Bytes of a segment, or their position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PieceBytes {
    /// The bytes of the segment.
    Here(Vec<u8>),
    /// Part of a packed extent, which [`Tree::unpack`] unpacks.
    Packed(Packed),
    /// Offset of the first byte in [`Tree::source`], where the others follow it.
    Source(u64),
}

/// Packed extent that contains a segment of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packed {
    /// Offset of the first packed byte in [`Tree::source`].
    pub at: u64,
    /// Number of packed bytes.
    pub len: u64,
    /// Number of bytes when they are unpacked.
    pub unpacked_len: u64,
    /// Compression format of the packed bytes.
    pub packing: Packing,
    /// Number of unpacked bytes before those of the segment.
    pub skip: u64,
}

/// Compression formats of extents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// LZO1X, in the segments of btrfs.
    Lzo,
    /// zlib.
    Zlib,
    /// Zstandard.
    Zstd,
}

/// Segment of a file's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Byte range in the file.
    pub range: Range<u64>,
    /// Bytes of the segment, or their position.
    pub bytes: PieceBytes,
}

/// Content of a file: segments in ascending order. Bytes in no segment and no fault are zeros.
#[derive(Debug, Default)]
pub struct Pieces {
    /// Segments that do not overlap.
    pub list: Vec<Piece>,
    /// Byte ranges in the file with an unknown position, each with the cause.
    pub faults: Vec<(Range<u64>, String)>,
    /// Byte ranges in the file with a position or bytes that may be wrong, each with the cause.
    pub doubts: Vec<(Range<u64>, String)>,
}

/// Extended attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribute {
    /// Name with its namespace, as `user.comment`.
    pub name: Vec<u8>,
    /// Value as setxattr(2) takes it.
    pub value: Vec<u8>,
}

/// A file system.
pub trait Tree {
    /// Source of the bytes to which segments refer by offset.
    fn source(&self) -> &dyn Source;

    /// Estimate of the bytes in use, which bounds the work of a copy.
    fn used_bytes(&self) -> u64;

    /// Whether the newest state is read: false if a journal or log was not replayed in full.
    fn is_replayed(&self) -> bool {
        true
    }

    /// Messages about faults of the file system as a whole, which make all of its files doubtful.
    fn doubts(&self) -> &[String] {
        &[]
    }

    /// Number of the root directory.
    fn root(&self) -> u64;

    /// The node with a number.
    ///
    /// # Errors
    /// No node in use has the number, or the node cannot be read.
    fn node(&self, id: u64) -> Result<Node, TreeError>;

    /// Names of a directory.
    ///
    /// # Errors
    /// No part of the directory can be read.
    fn entries(&self, node: &Node) -> Result<Entries, TreeError>;

    /// Content of a file.
    ///
    /// # Errors
    /// No part of the node's map of blocks can be read.
    fn pieces(&self, node: &Node) -> Result<Pieces, TreeError>;

    /// All of the unpacked bytes, [`Packed::unpacked_len`] of them.
    ///
    /// # Errors
    /// The bytes cannot be read or unpacked, or the file system has no packed extents.
    fn unpack(&self, _packed: &Packed) -> Result<Rc<Vec<u8>>, TreeError> {
        Err(TreeError::Refused("packed content".into()))
    }

    /// Target of a symbolic link.
    ///
    /// # Errors
    /// The target cannot be read.
    fn target(&self, node: &Node) -> Result<Vec<u8>, TreeError>;

    /// Extended attributes of a node.
    ///
    /// # Errors
    /// The attributes cannot be read.
    fn attributes(&self, node: &Node) -> Result<Vec<Attribute>, TreeError>;
}
