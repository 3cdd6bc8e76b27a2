//! Trace format: Storage Performance Council (UMass Financial, WebSearch).
//!
//! `ASU,LBA,Size,Opcode,Timestamp`: an application storage unit, a sector, bytes, `r` or `w`,
//! seconds.
//!
//! Source   Storage Performance Council trace file format 1.0.1, as used by the UMass repository;
//! experiments.md §5.5

use super::line::{Fault, Fields, LineFormat, LineStep, Separator, range};
use super::{Assume, Context, Op};
use weft_units::Bytes;

pub(crate) struct Spc(pub(crate) Assume);

impl LineFormat for Spc {
    fn parse(&mut self, _: u64, line: &str, context: &mut Context) -> Result<LineStep, Fault> {
        const OPS: &[(&str, Op)] =
            &[("r", Op::Read), ("w", Op::Write), ("R", Op::Read), ("W", Op::Write)];
        let mut fields = Fields::new(line, Separator::Comma);
        let unit = fields.next("ASU")?;
        let number = unit.number32()?;
        let offset = fields.next("LBA")?.sectors()?;
        let size = fields.next("Size")?;
        let range = range(Op::Read, offset, Bytes(size.number()?), &size)?;
        let op = fields.next("Opcode")?.one_of(OPS)?;
        let time = fields.next("Timestamp")?.time_in_seconds()?;
        fields.end()?;
        let device = unit.device(&format!("asu{number}"), context)?;
        Ok(LineStep::Record(self.0.record(time, device, op, range)))
    }
}
