//! Traces of block devices: one stream of records from any format.
//!
//! Each format has one file that converts its lines (or bytes) into records; [`Trace`] detects the
//! format of a file, decompresses gzip and zstd, and merges several files by time. Only records
//! that wait to be merged are in memory, so a trace may be larger than memory. [`shape::Shaped`]
//! then fits it to another volume.
//!
//! Anything unknown to a parser is an error with file, line and column. Valid lines that are not
//! requests (a file being opened, a summary at the end) are counted in [`Counts`].
//!
//! Source   experiments.md §5

mod alibaba;
mod biosnoop;
mod blkparse;
mod blktrace;
mod compression;
mod detect;
mod error;
mod fiu;
pub mod iolog;
mod line;
mod msr;
mod options;
mod rwbs;
pub mod shape;
mod spc;
mod systor;
mod tencent;
mod trace;

pub use detect::Format;
pub use error::ReplayError;
pub use options::{Assume, Event, ReadOptions};
pub use trace::Trace;

use std::collections::{BTreeMap, HashMap};
use weft_units::{Bytes, Span, Time};

/// Largest number of devices in a trace: a memory limit, an order of magnitude above the largest
/// public trace.
pub const DEVICE_COUNT_MAX: usize = 1 << 16;

/// Largest number of process names that are kept.
const PROCESS_COUNT_MAX: usize = 1 << 16;

/// A request as recorded in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Time of the request since the first record of the trace.
    pub time: Time,
    /// Device of the request.
    pub device: DeviceIndex,
    /// Operation on the device.
    pub op: Op,
    /// Flags of the request.
    pub flags: Flags,
    /// Offset of the first byte on the device; zero for a flush.
    pub offset: Bytes,
    /// Length in bytes; zero for a flush.
    pub length: Bytes,
    /// Process that issued the request; `None` if the trace does not record it.
    pub pid: Option<u32>,
    /// Latency of the request on the traced machine; `None` if the trace does not record it.
    pub latency: Option<Span>,
}

/// Operation on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    /// Discards the contents of the range.
    Discard,
    /// Makes all completed writes durable.
    Flush,
    /// Reads the range.
    Read,
    /// Replaces the contents of the range.
    Write,
}

/// Flags of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags {
    /// REQ_SYNC: a process waits for the request.
    pub sync: bool,
    /// The request is for metadata of a file system.
    pub meta: bool,
    /// FUA: the write is durable when it completes.
    pub fua: bool,
    /// Preflush: completed writes are made durable first.
    pub preflush: bool,
    /// The request is readahead.
    pub ahead: bool,
}

/// Index of a device of a trace, in order of first appearance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceIndex(pub u32);

/// Names of a trace's devices.
#[derive(Clone, Debug, Default)]
pub struct Devices {
    names: Vec<String>,
    by_name: HashMap<String, DeviceIndex>,
}

impl Devices {
    /// The name of a device, without white space, so every format can hold it.
    #[must_use]
    pub fn name(&self, device: DeviceIndex) -> &str {
        &self.names[device.0 as usize]
    }

    /// All names, in order of first appearance.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The device with this name; `None` if the trace has not named it so far.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<DeviceIndex> {
        self.by_name.get(name).copied()
    }

    /// The device with this name, added if it is new; `None` if the trace has [`DEVICE_COUNT_MAX`]
    /// other devices already.
    pub fn intern(&mut self, name: &str) -> Option<DeviceIndex> {
        assert!(!name.is_empty() && !name.contains(char::is_whitespace));
        if let Some(device) = self.find(name) {
            return Some(device);
        }
        if self.names.len() == DEVICE_COUNT_MAX {
            return None;
        }
        let device = DeviceIndex(u32::try_from(self.names.len()).expect("bounded above"));
        self.names.push(name.to_owned());
        self.by_name.insert(name.to_owned(), device);
        Some(device)
    }
}

/// Counts of lines and records that were read or left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of lines of text formats, and of records of binary formats.
    pub lines: u64,
    /// Number of requests that were read.
    pub records: u64,
    /// Number of requests with a time before the time of the previous request.
    pub out_of_order: u64,
    /// Number of requests that the trace reports as missing: the recorder could not keep up, or had
    /// no space.
    pub lost: u64,
    /// Number of files that end early, because the recorder was killed.
    pub cut_short: u64,
    /// Numbers of valid lines and records that are not requests, by kind.
    pub skipped: BTreeMap<&'static str, u64>,
}

/// State that the files of one trace share while they are read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Context {
    pub(crate) devices: Devices,
    pub(crate) counts: Counts,
    pub(crate) processes: BTreeMap<u32, String>,
}

impl Context {
    /// Keeps the name of a process, unless [`PROCESS_COUNT_MAX`] names are kept already.
    pub(crate) fn name_process(&mut self, pid: u32, name: &str) {
        let known = self.processes.get(&pid).is_some_and(|known| known == name);
        if !known && self.processes.len() < PROCESS_COUNT_MAX {
            self.processes.insert(pid, name.to_owned());
        }
    }

    /// Counts a valid line or record that was left out.
    pub(crate) fn skip(&mut self, kind: &'static str) {
        *self.counts.skipped.entry(kind).or_default() += 1;
    }
}

/// One file of a trace, of any format.
pub(crate) trait Source {
    /// The next request and its sequence number (zero if the format has none); `None` at the end of
    /// the file.
    fn next(&mut self, context: &mut Context) -> Result<Option<(Record, u32)>, ReplayError>;
}
