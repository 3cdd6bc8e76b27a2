//! Trace format: FIU traces (IODedup).
//!
//! `ts pid process lba size op major minor md5`, separated by blanks: nanoseconds, a process,
//! sectors, sectors, `R` or `W`, a device, and a checksum of the contents, which weft ignores.
//!
//! Source   FIU IODedup traces at SNIA; experiments.md §5.5

use super::line::{Fault, Fields, LineFormat, LineStep, Separator, range};
use super::{Assume, Context, Op, Record};
use weft_units::Time;

pub(crate) struct Fiu(pub(crate) Assume);

impl LineFormat for Fiu {
    fn parse(&mut self, _: u64, line: &str, context: &mut Context) -> Result<LineStep, Fault> {
        let mut fields = Fields::new(line, Separator::Blank);
        let time = Time(fields.next("timestamp")?.number()?);
        let pid = Some(fields.next("pid")?.number32()?);
        fields.next("process")?;
        let offset = fields.next("lba")?.sectors()?;
        let size = fields.next("size")?;
        let range = range(Op::Read, offset, size.sectors()?, &size)?;
        let op = fields.next("op")?.one_of(&[("R", Op::Read), ("W", Op::Write)])?;
        let major = fields.next("major")?;
        let minor = fields.next("minor")?.number32()?;
        let sum = fields.next("md5")?;
        if !sum.text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(sum.fault("hexadecimal digits"));
        }
        fields.end()?;
        let name = format!("{},{minor}", major.number32()?);
        let device = major.device(&name, context)?;
        let record = self.0.record(time, device, op, range);
        Ok(LineStep::Record(Record { pid, ..record }))
    }
}
