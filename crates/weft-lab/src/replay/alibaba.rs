//! Trace format: Alibaba block traces of 2020.
//!
//! `device_id,opcode,offset,length,timestamp`: bytes, and microseconds since the epoch.
//!
//! Source   README of alibaba/block-traces; experiments.md §5.6

use super::line::{Fault, Fields, LineFormat, LineStep, Separator, range};
use super::{Assume, Context, Op};
use weft_units::{Bytes, Time};

pub(crate) struct Alibaba(pub(crate) Assume);

impl LineFormat for Alibaba {
    fn parse(&mut self, _: u64, line: &str, context: &mut Context) -> Result<LineStep, Fault> {
        let mut fields = Fields::new(line, Separator::Comma);
        let id = fields.next("device_id")?;
        let number = id.number32()?;
        let op = fields.next("opcode")?.one_of(&[("R", Op::Read), ("W", Op::Write)])?;
        let offset = Bytes(fields.next("offset")?.number()?);
        let size = fields.next("length")?;
        let range = range(op, offset, Bytes(size.number()?), &size)?;
        let time = Time(fields.next("timestamp")?.scaled(1_000)?);
        fields.end()?;
        let device = id.device(&number.to_string(), context)?;
        Ok(LineStep::Record(self.0.record(time, device, op, range)))
    }
}
