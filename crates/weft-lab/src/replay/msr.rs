//! Trace format: MSR Cambridge.
//!
//! `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`: both times are Windows FILETIME
//! ticks of 100 ns (since 1601), offset and size are bytes. A device is `host_disk`. The traces are
//! published without a header; programs that rewrite tables put one on the first line.
//!
//! Source   README of the traces at SNIA; experiments.md §5.4

use super::line::{Fault, Fields, LineFormat, LineStep, Separator, range};
use super::{Assume, Context, Op, Record};
use weft_units::{Bytes, Span, Time};

/// Nanoseconds in a tick of FILETIME.
const TICK_NS: u64 = 100;

/// Names of the fields, which a header has in lower or upper case.
const FIELDS: [&str; 7] =
    ["Timestamp", "Hostname", "DiskNumber", "Type", "Offset", "Size", "ResponseTime"];

/// Whether the line is a header: the names of the fields, in their order.
fn is_header(line: &str) -> bool {
    let names = line.split(',').map(|name| name.trim().trim_matches('"'));
    names.clone().count() == FIELDS.len()
        && names.zip(FIELDS).all(|(name, field)| name.eq_ignore_ascii_case(field))
}

pub(crate) struct Msr(pub(crate) Assume);

impl LineFormat for Msr {
    fn parse(&mut self, number: u64, line: &str, context: &mut Context) -> Result<LineStep, Fault> {
        if number == 1 && is_header(line) {
            return Ok(LineStep::Skip("header lines"));
        }
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
