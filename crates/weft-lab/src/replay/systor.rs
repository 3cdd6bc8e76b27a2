//! Trace format: SYSTOR '17 traces of virtual desktops.
//!
//! The file has a header, then `Timestamp,Response,IOType,LUN,Offset,Size`: seconds, seconds, `R`
//! or `W`, a number, bytes, bytes. An empty response means that the completion was not traced.
//!
//! Source   README of the traces at SNIA; experiments.md §5.5

use super::line::{Fault, Fields, LineFormat, LineStep, Separator, range};
use super::{Assume, Context, Op, Record};
use weft_units::Bytes;

/// The first line of a file.
const HEADER: &str = "Timestamp,Response,IOType,LUN,Offset,Size";

pub(crate) struct Systor(pub(crate) Assume);

impl LineFormat for Systor {
    fn parse(&mut self, number: u64, line: &str, context: &mut Context) -> Result<LineStep, Fault> {
        if number == 1 && line == HEADER {
            return Ok(LineStep::Skip("header lines"));
        }
        let mut fields = Fields::new(line, Separator::Comma);
        let time = fields.next("Timestamp")?.time_in_seconds()?;
        let response = fields.next("Response")?;
        let latency =
            if response.text.is_empty() { None } else { Some(response.span_in_seconds()?) };
        let op = fields.next("IOType")?.one_of(&[("R", Op::Read), ("W", Op::Write)])?;
        let lun = fields.next("LUN")?;
        let unit = lun.number32()?;
        let offset = Bytes(fields.next("Offset")?.number()?);
        let size = fields.next("Size")?;
        let range = range(op, offset, Bytes(size.number()?), &size)?;
        fields.end()?;
        let device = lun.device(&format!("lun{unit}"), context)?;
        let record = self.0.record(time, device, op, range);
        Ok(LineStep::Record(Record { latency, ..record }))
    }
}
