//! Entries of the top folder, and findings about their content.

use std::ops::Range;

use weft_files::source::Shared;
use weft_files::tree::Tree;

/// Content of an entry of the top folder.
pub enum What {
    /// A file with the bytes of a source.
    Bytes {
        /// Source of the bytes.
        source: Shared,
        /// Whether the bytes may be changed elsewhere. Bytes that were read are then kept in memory
        /// only until the file is opened again.
        changes: bool,
    },
    /// A folder with the files of a file system.
    Files {
        /// The file system.
        tree: Box<dyn Tree>,
        /// Size in bytes of the volume or partition that the file system is on.
        size: u64,
    },
}

/// Entry of the top folder.
pub struct Shown {
    /// Name: not empty, without a separator, and different from those of other entries.
    pub name: String,
    /// Content of the entry.
    pub what: What,
}

/// Finding that a reader would not notice, or would see as an error number only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Path of the file below the mount, in the bytes that the file system stores, which need not
    /// be UTF-8. Empty in the finding that ends the reports.
    pub path: Vec<u8>,
    /// Byte range in the file; `None` if the finding concerns all of it.
    pub range: Option<Range<u64>>,
    /// Whether the bytes were returned to the reader although they may be wrong.
    pub is_doubt: bool,
    /// Cause, as a message for the user.
    pub why: String,
}
