//! Trace format: MSR Cambridge.
//!
//! `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`: no header; both times are Windows
//! FILETIME ticks of 100 ns (since 1601), offset and size are bytes. A device is `host_disk`.
//!
//! Source   README of the traces at SNIA; experiments.md §5.4

use super::line::{Fault, Fields, LineFormat, LineStep, Separator, range};
use super::{Assume, Context, Op, Record};
use weft_units::{Bytes, Span, Time};

/// Nanoseconds in a tick of FILETIME.
const TICK_NS: u64 = 100;

pub(crate) struct Msr(pub(crate) Assume);

impl LineFormat for Msr {
    fn parse(&mut self, _: u64, line: &str, context: &mut Context) -> Result<LineStep, Fault> {
        let mut fields = Fields::new(line, Separator::Comma);
        let time = Time(fields.next("Timestamp")?.scaled(TICK_NS)?);
        let host = fields.next("Hostname")?;
        let name = host.name()?;
        let disk = fields.next("DiskNumber")?.number32()?;
        let op = fields.next("Type")?.one_of(&[("Read", Op::Read), ("Write", Op::Write)])?;
        let offset = Bytes(fields.next("Offset")?.number()?);
        let size = fields.next("Size")?;
        let range = range(op, offset, Bytes(size.number()?), &size)?;
        let latency = Some(Span(fields.next("ResponseTime")?.scaled(TICK_NS)?));
        fields.end()?;
        let device = host.device(&format!("{name}_{disk}"), context)?;
        let record = self.0.record(time, device, op, range);
        Ok(LineStep::Record(Record { latency, ..record }))
    }
}
