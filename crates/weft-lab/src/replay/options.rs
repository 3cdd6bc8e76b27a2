//! Options for reading a trace: facts that the trace itself does not have.

use super::{DeviceIndex, Flags, Format, Op, Record};
use weft_units::{Bytes, Time};

/// Options for reading a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadOptions {
    /// The format, where it is not to be found out from the contents.
    pub format: Option<Format>,
    /// Events of a block trace that count as its requests.
    pub event: Event,
    /// Assumption about the flags of writes in formats that have no flags.
    pub assume: Assume,
}

/// Event of a request that stands for the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Event {
    /// It was handed to the block layer: a workload above weft.
    #[default]
    Queue,
    /// It was handed to the device's driver: what a bare member saw.
    Issue,
}

/// What is assumed of writes in formats without flags (MSR, Alibaba, Tencent, SPC, SYSTOR, FIU).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Assume {
    /// Nobody waited for them.
    #[default]
    Async,
    /// Somebody waited for each: [`super::Flags::sync`] is set.
    Sync,
}

impl Assume {
    /// A request of which the trace knows no flags, process or latency.
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
