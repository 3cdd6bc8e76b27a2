//! Options for reading a trace: facts that the trace itself lacks.

use super::{DeviceIndex, Flags, Format, Op, Record};
use weft_units::{Bytes, Time};

/// Options for reading a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadOptions {
    /// Format of the trace; `None` to detect it from the contents.
    pub format: Option<Format>,
    /// Event of a block trace at which its requests are taken; each request is traced at several
    /// events.
    pub event: Event,
    /// Assumption about the flags of writes in formats that have no flags.
    pub assume: Assume,
}

/// Event of a block trace at which a request is taken for the replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Event {
    /// The request entered the block layer: the workload above weft.
    #[default]
    Queue,
    /// The request was issued to the device's driver: the workload of a bare member.
    Issue,
}

/// Assumption about writes in trace formats without flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Assume {
    /// No process waited for the writes.
    #[default]
    Async,
    /// A process waited for each write: [`super::Flags::sync`] is set.
    Sync,
}

impl Assume {
    /// Creates a record of a format that stores no flags, process or latency, with flags by this
    /// assumption.
    pub(crate) fn record(
        self,
        time: Time,
        device: DeviceIndex,
        op: Op,
        (offset, length): (Bytes, Bytes),
    ) -> Record {
        let sync = self == Self::Sync && op == Op::Write;
        let flags = Flags { sync, ..Flags::default() };
        Record { time, device, op, flags, offset, length, pid: None, latency: None }
    }
}
