//! Entries of the top folder, and what is told about what is in them.

use std::ops::Range;
use std::rc::Rc;

use weft_files::source::Shared;
use weft_files::tree::Tree;

/// Writes to the bytes of a file.
pub trait Sink {
    /// Writes bytes, all of which lie before the end.
    ///
    /// # Errors
    /// The cause, for people; some of the bytes may be written.
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), String>;

    /// Makes what was written durable.
    ///
    /// # Errors
    /// The cause, for people.
    fn flush(&self) -> Result<(), String>;
}

/// Content of an entry of the top folder.
pub enum What {
    /// A file with the bytes of a source.
    Bytes {
        /// The bytes.
        source: Shared,
        /// Where writes go; `None` for a file that is only read.
        sink: Option<Rc<dyn Sink>>,
        /// Whether the bytes change by others. What was read is then kept until the file is opened
        /// again, and no longer.
        changes: bool,
    },
    /// A folder with the files of a file system.
    Files {
        /// The file system.
        tree: Box<dyn Tree>,
        /// Size of the place that it is on, in bytes.
        size: u64,
    },
}

/// Entry of the top folder.
pub struct Shown {
    /// Name, which is a plain one: no separator, not empty, and no other entry has it.
    pub name: String,
    /// Content.
    pub what: What,
}

/// Something that a reader would not notice, or for which it gets no more than an error number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Path below the mount, not checked.
    pub path: Vec<u8>,
    /// Byte range in the file; `None` if it concerns all of it.
    pub range: Option<Range<u64>>,
    /// Whether the bytes were given although they may be wrong.
    pub is_doubt: bool,
    /// Cause, for people.
    pub why: String,
}
