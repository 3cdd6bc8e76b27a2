//! Trace format: text that `blkparse` prints.
//!
//! `maj,min cpu seq time pid action rwbs sector + count [process]`, for example
//! `8,0 3 1 0.000000000 697 Q W 223490 + 8 [kjournald]`. A request without data has no
//! `sector + count`. The summary at the end is counted, not read. Events other than the chosen one
//! are checked up to `rwbs`, counted and left out.
//!
//! Source   blkparse(1), "Default output"; experiments.md §5.2; output of blkparse 1.2.0

use super::line::{Fault, Field, Fields, LineFormat, LineStep, Separator, range};
use super::{Context, Event, Op, Record, rwbs};
use weft_units::Bytes;

/// Every action that blkparse has a letter for, and the name under which it is counted when left
/// out.
const ACTIONS: &[(&str, &str)] = &[
    ("A", "remap events"),
    ("B", "bounce events"),
    ("C", "complete events"),
    ("D", "issue events"),
    ("F", "front merge events"),
    ("G", "get request events"),
    ("I", "insert events"),
    ("M", "back merge events"),
    ("P", "plug events"),
    ("Q", "queue events"),
    ("R", "requeue events"),
    ("S", "sleep events"),
    ("T", "unplug timer events"),
    ("U", "unplug events"),
    ("X", "split events"),
    ("m", "messages"),
];

pub(crate) struct Blkparse(pub(crate) Event);

impl LineFormat for Blkparse {
    fn parse(&mut self, number: u64, line: &str, context: &mut Context) -> Result<LineStep, Fault> {
        if number > 1 && (line.starts_with("CPU") || line.starts_with("Total")) {
            return Ok(LineStep::SkipRest("summary lines"));
        }
        let mut fields = Fields::new(line, Separator::Blank);
        let device = fields.next("device")?;
        let name = device_name(&device)?;
        fields.next("cpu")?.number32()?;
        fields.next("sequence")?.number32()?;
        let time = fields.next("time")?.time_in_seconds()?;
        let pid = Some(fields.next("pid")?.number32()?);
        let action = fields.next("action")?;
        let kind = action.one_of(ACTIONS)?;
        let letters = fields.next("rwbs")?;
        let (op, flags) = rwbs::parse(&letters)?;
        let chosen = match self.0 {
            Event::Queue => "Q",
            Event::Issue => "D",
        };
        if action.text != chosen {
            return Ok(LineStep::Skip(kind));
        }
        let mut rest = Fields::new(fields.rest(), Separator::Blank);
        let shift = line.len() - rest.rest().len();
        let place = extent(op.unwrap_or(Op::Read), &mut rest)
            .map_err(|fault| Fault { column: fault.column + shift, ..fault })?;
        let (offset, length) = match place {
            Extent::Sectors(offset, length) => (offset, length),
            Extent::Nothing => (Bytes::ZERO, Bytes::ZERO),
            Extent::PassThrough => return Ok(LineStep::Skip("pass-through commands")),
        };
        let Some((op, flags)) = rwbs::request(op, flags, length == Bytes::ZERO) else {
            return Ok(LineStep::Skip("requests without a transfer"));
        };
        let offset = if op == Op::Flush { Bytes::ZERO } else { offset };
        let device = device.device(name, context)?;
        Ok(LineStep::Record(Record { time, device, op, flags, offset, length, pid, latency: None }))
    }
}

/// Range of a request.
enum Extent {
    Sectors(Bytes, Bytes),
    Nothing,
    PassThrough,
}

/// Parses `sector + count [process]`, `[process]`, or the form of pass-through commands, `bytes (…)
/// [process]`.
fn extent(op: Op, fields: &mut Fields<'_>) -> Result<Extent, Fault> {
    if fields.rest().starts_with('[') {
        process(fields)?;
        return Ok(Extent::Nothing);
    }
    let first = fields.next("sector")?;
    let sector = first.sectors()?;
    let plus = fields.next("+")?;
    if plus.text.starts_with('(') {
        return Ok(Extent::PassThrough);
    }
    plus.one_of(&[("+", ())])?;
    let count = fields.next("sectors")?;
    let (offset, length) = range(op, sector, count.sectors()?, &count)?;
    process(fields)?;
    Ok(Extent::Sectors(offset, length))
}

/// Parses `[process]` up to the end of the line. The name may contain any character.
fn process(fields: &mut Fields<'_>) -> Result<(), Fault> {
    let text = fields.rest();
    let field = fields.next("process")?;
    if text.starts_with('[') && text.trim_end().ends_with(']') {
        Ok(())
    } else {
        Err(Field { text, ..field }.fault("[process]"))
    }
}

/// Checks that a field is `major,minor`, and returns its text.
fn device_name<'a>(field: &Field<'a>) -> Result<&'a str, Fault> {
    let fault = || field.fault("major,minor");
    let (major, minor) = field.text.split_once(',').ok_or_else(fault)?;
    let number = |text| Field { text, ..*field }.number32().map_err(|_| fault());
    number(major)?;
    number(minor)?;
    Ok(field.text)
}
