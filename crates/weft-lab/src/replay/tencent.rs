//! Trace format: Tencent CBS traces of 2018.
//!
//! `Timestamp,Offset,Size,IOType,VolumeID`: whole seconds since the epoch, sectors, sectors, `0`
//! read or `1` write. All requests of a second share its time: see
//! [`super::shape::Options::spread`].
//!
//! Source   README of the traces at SNIA; experiments.md §5.6

use super::line::{Fault, Fields, LineFormat, LineStep, Separator, range};
use super::{Assume, Context, Op};
use weft_units::Time;

pub(crate) struct Tencent(pub(crate) Assume);

impl LineFormat for Tencent {
    fn parse(&mut self, _: u64, line: &str, context: &mut Context) -> Result<LineStep, Fault> {
        let mut fields = Fields::new(line, Separator::Comma);
        let time = Time(fields.next("Timestamp")?.scaled(1_000_000_000)?);
        let offset = fields.next("Offset")?.sectors()?;
        let size = fields.next("Size")?;
        let range = range(Op::Read, offset, size.sectors()?, &size)?;
        let op = fields.next("IOType")?.one_of(&[("0", Op::Read), ("1", Op::Write)])?;
        let id = fields.next("VolumeID")?;
        let number = id.number()?;
        fields.end()?;
        let device = id.device(&number.to_string(), context)?;
        Ok(LineStep::Record(self.0.record(time, device, op, range)))
    }
}
