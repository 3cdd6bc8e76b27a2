//! Errors of traces, with file, line and column.

use std::io;

/// Reasons why a trace cannot be read, or not replayed as requested.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The format does not allow the line.
    #[error("{file}:{line}:{column}: {field}: found {found}, expected {expected}")]
    Line {
        /// Trace file with the line.
        file: String,
        /// Number of the line, 1-based.
        line: u64,
        /// Column in bytes, 1-based.
        column: usize,
        /// Name of the format's field, or `line`.
        field: &'static str,
        /// Text that was found, shortened.
        found: String,
        /// Forms that would be valid.
        expected: String,
    },
    /// The binary format does not allow the bytes.
    #[error("{file}: record {record} at byte {byte}: {field}: found {found}, expected {expected}")]
    Bytes {
        /// Trace file with the record.
        file: String,
        /// Number of the record, 1-based.
        record: u64,
        /// Offset of the field within the unpacked file.
        byte: u64,
        /// Name of the record's field that is invalid.
        field: &'static str,
        /// Content of this field, as text.
        found: String,
        /// Values that would be valid.
        expected: String,
    },
    /// The file cannot be read or decompressed.
    #[error("{file}: {error}")]
    Io {
        /// Trace file that cannot be read.
        file: String,
        /// Error of the operating system or of the decompressor.
        error: io::Error,
    },
    /// The contents match no format that weft knows, or several.
    #[error("{file}: trace format: found {found}, expected one of {expected}; --format says which")]
    Format {
        /// Trace file of unknown format.
        file: String,
        /// First line of the file, shortened, or a description of the file.
        found: String,
        /// Names of all formats.
        expected: String,
    },
    /// A request does not fit the target device.
    #[error(
        "record {record}: end of the request: found byte {end}, expected at most {size}; \
         --wrap or --clip"
    )]
    BeyondEnd {
        /// 1-based number of the record.
        record: u64,
        /// End of the request in bytes.
        end: u64,
        /// Size of the target device in bytes.
        size: u64,
    },
    /// The options do not allow the record.
    #[error("record {record}: {field}: found {found}, expected {expected}")]
    Record {
        /// 1-based number of the record.
        record: u64,
        /// Name of the record's field that the options do not allow.
        field: &'static str,
        /// Text of this field in the record.
        found: String,
        /// Values that would be valid.
        expected: String,
    },
}

impl ReplayError {
    /// Function that turns an error of the operating system into [`Self::Io`] with the name of the
    /// file.
    pub(crate) fn io(file: &str) -> impl FnOnce(io::Error) -> Self + '_ {
        move |error| Self::Io { file: file.to_owned(), error }
    }
}
