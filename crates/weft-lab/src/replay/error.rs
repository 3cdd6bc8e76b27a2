//! Errors of traces, with file, line and column.

use std::io;

/// Why a trace cannot be read, or not replayed as asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// A line that its format does not allow.
    #[error("{file}:{line}:{column}: {field}: found {found}, expected {expected}")]
    Line {
        /// Name of the file.
        file: String,
        /// 1-based.
        line: u64,
        /// 1-based, in bytes.
        column: usize,
        /// The column of the format, or `line`.
        field: &'static str,
        /// Text that was found, shortened.
        found: String,
        /// Formats that would be valid.
        expected: String,
    },
    /// Bytes that a binary format does not allow.
    #[error("{file}: record {record} at byte {byte}: {field}: found {found}, expected {expected}")]
    Bytes {
        /// Name of the file.
        file: String,
        /// 1-based.
        record: u64,
        /// Offset of the field within the unpacked file.
        byte: u64,
        /// Name of the field.
        field: &'static str,
        /// Text that was found.
        found: String,
        /// Values that would be valid.
        expected: String,
    },
    /// The file itself could not be read, or not unpacked.
    #[error("{file}: {error}")]
    Io {
        /// Name of the file.
        file: String,
        /// Error of the system or of the unpacker.
        error: io::Error,
    },
    /// The contents are of no format that weft knows, or of several.
    #[error("{file}: trace format: found {found}, expected one of {expected}; --format says which")]
    Format {
        /// Name of the file.
        file: String,
        /// First line of the file.
        found: String,
        /// The formats.
        expected: String,
    },
    /// A request that does not fit where it is replayed.
    #[error(
        "record {record}: end of the request: found byte {end}, expected at most {size}; \
         --wrap or --clip"
    )]
    BeyondEnd {
        /// 1-based number of the record.
        record: u64,
        /// End of the request in bytes.
        end: u64,
        /// Size of the device.
        size: u64,
    },
    /// Something else about the records that the options do not allow.
    #[error("record {record}: {field}: found {found}, expected {expected}")]
    Record {
        /// 1-based number of the record.
        record: u64,
        /// Name of the field.
        field: &'static str,
        /// Text that was found.
        found: String,
        /// Values that would be valid.
        expected: String,
    },
}

impl ReplayError {
    /// An error of the system with the name of the file.
    pub(crate) fn io(file: &str) -> impl FnOnce(io::Error) -> Self + '_ {
        move |error| Self::Io { file: file.to_owned(), error }
    }
}
