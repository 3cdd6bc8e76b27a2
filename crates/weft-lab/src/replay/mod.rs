//! Traces of block devices: one stream of records, whatever the format.
//!
//! Each format has one file that turns its
//! lines (or bytes) into records; [`Trace`] finds out which format a file has, unpacks gzip and
//! zstd on the way, and merges several files by time. Nothing is held in memory but the records
//! that wait for their turn, so a trace may be larger than memory. [`shape::Shaped`] then fits it
//! to another volume.
//!
//! What a parser does not know is an error that names file, line and column. What it knows and has
//! no use for (a file being opened, a summary at the end) is counted in [`Counts`].
//!
//! Source   experiments.md §5

mod alibaba;
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

/// Most devices that one trace may name: a bound on memory, an order above the largest public
/// trace.
pub const DEVICE_COUNT_MAX: usize = 1 << 16;

/// One request as a trace tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Time of the request since the first record of the trace.
    pub time: Time,
    /// Device of the request.
    pub device: DeviceIndex,
    /// Operation.
    pub op: Op,
    /// Flags of the request.
    pub flags: Flags,
    /// First byte; zero for a flush.
    pub offset: Bytes,
    /// Length in bytes; zero for a flush.
    pub length: Bytes,
    /// The process that asked, where the trace knows it.
    pub pid: Option<u32>,
    /// Latency of the request where the trace was recorded, if known.
    pub latency: Option<Span>,
}

/// Operation on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    /// The contents of the range are not needed any more.
    Discard,
    /// Make durable what completed before.
    Flush,
    /// The contents of the range are asked for.
    Read,
    /// The contents of the range are replaced.
    Write,
}

/// Flags of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags {
    /// REQ_SYNC: someone waits for it.
    pub sync: bool,
    /// Metadata of a file system.
    pub meta: bool,
    /// FUA: durable when it completes.
    pub fua: bool,
    /// Preflush: what completed before is made durable first.
    pub preflush: bool,
    /// Readahead.
    pub ahead: bool,
}

/// Index of a device of a trace, in order of first appearance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceIndex(pub u32);

/// The names of a trace's devices.
#[derive(Clone, Debug, Default)]
pub struct Devices {
    names: Vec<String>,
    by_name: HashMap<String, DeviceIndex>,
}

impl Devices {
    /// The name of a device: no white space, so that every format can hold it.
    #[must_use]
    pub fn name(&self, device: DeviceIndex) -> &str {
        &self.names[device.0 as usize]
    }

    /// All names, in order of first appearance.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The device of that name, if the trace has named it so far.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<DeviceIndex> {
        self.by_name.get(name).copied()
    }

    /// The device of that name, a new one if need be; `None` when there are too many.
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
    /// Lines of text formats, records of binary ones.
    pub lines: u64,
    /// Requests.
    pub records: u64,
    /// Requests that are older than the one before them.
    pub out_of_order: u64,
    /// Requests that there were and the trace lacks, as it says itself: whoever recorded it could
    /// not keep up, or had no space.
    pub lost: u64,
    /// Files that end before they should: whoever recorded them was killed.
    pub cut_short: u64,
    /// Lines that were understood and are no requests, by kind.
    pub skipped: BTreeMap<&'static str, u64>,
}

/// What the files of one trace have in common while they are read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Context {
    pub(crate) devices: Devices,
    pub(crate) counts: Counts,
    pub(crate) processes: BTreeMap<u32, String>,
}

impl Context {
    /// Counts what was understood and left out.
    pub(crate) fn skip(&mut self, kind: &'static str) {
        *self.counts.skipped.entry(kind).or_default() += 1;
    }
}

/// One file of a trace, whatever its format.
pub(crate) trait Source {
    /// The next request and its sequence number (zero where the format has none).
    fn next(&mut self, context: &mut Context) -> Result<Option<(Record, u32)>, ReplayError>;
}
