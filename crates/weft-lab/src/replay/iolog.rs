//! Trace format: fio iologs of versions 2 and 3, read and written.
//!
//! The first line is `fio version N iolog`. Version 2 has `file action [offset length]`, and
//! `wait`, with the microseconds since the previous wait in place of the offset. Version 3 begins
//! every line with a time in microseconds since the start of the log and has no waits.
//!
//! fio reads five fields of a line and ignores the rest, so weft appends the fields that only block
//! traces have: ` flags=sync,fua pid=697 latency=90000` (nanoseconds). A log that weft wrote holds
//! complete records, and fio replays it.
//!
//! A log that lacks requests records their number: ` lost=5` at the end of a line means that five
//! requests before the line are missing; ` requests=1000` after a `close` of version 3 is the
//! number of requests of that file in the log. A log that ends before its files are closed is
//! truncated; its last line counts only if it is complete.
//!
//! Source   fio HOWTO, "Trace file format v2" and "v3"; logs that fio 3.33 wrote; experiments.md
//!          §5.3

use super::line::{Fault, Field, Fields, LineFormat, LineStep, Separator, range};
use super::{Context, Devices, Flags, Op, Record};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::{self, Write};
use weft_units::{Bytes, Span, Time};

/// Version of fio's log format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    /// Waits between lines; times of less than 100 µs are lost.
    Two,
    /// A time on every line.
    Three,
}

impl Version {
    /// The first line of a log.
    pub(crate) fn header(self) -> &'static str {
        match self {
            Self::Two => "fio version 2 iolog",
            Self::Three => "fio version 3 iolog",
        }
    }
}

/// Shortest wait that counts, in microseconds; shorter waits are discarded.
const WAIT_US_MIN: u64 = 100;

/// Action that a line records, named as in fio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    File,
    Transfer(Op),
    Wait,
}

const ACTIONS: &[(&str, Action)] = &[
    ("add", Action::File),
    ("open", Action::File),
    ("close", Action::File),
    ("read", Action::Transfer(Op::Read)),
    ("write", Action::Transfer(Op::Write)),
    ("trim", Action::Transfer(Op::Discard)),
    ("sync", Action::Transfer(Op::Flush)),
    ("datasync", Action::Transfer(Op::Flush)),
    ("wait", Action::Wait),
];

/// Names of flags after `flags=`.
const FLAGS: [&str; 5] = ["sync", "meta", "fua", "preflush", "ahead"];

fn flag<'a>(flags: &'a mut Flags, name: &str) -> Option<&'a mut bool> {
    match name {
        "sync" => Some(&mut flags.sync),
        "meta" => Some(&mut flags.meta),
        "fua" => Some(&mut flags.fua),
        "preflush" => Some(&mut flags.preflush),
        "ahead" => Some(&mut flags.ahead),
        _ => None,
    }
}

pub(crate) struct Iolog {
    version: Version,
    clock_us: u64,
    /// Files that were opened and not closed, with the number of requests read of each.
    open: BTreeMap<super::DeviceIndex, u64>,
}

impl Iolog {
    pub(crate) fn new(version: Version) -> Self {
        Self { version, clock_us: 0, open: BTreeMap::new() }
    }

    /// Parses the rest of a line that adds, opens or closes a file.
    fn file(
        &mut self,
        name: &str,
        file: &Field<'_>,
        word: &Field<'_>,
        fields: &mut Fields<'_>,
        context: &mut Context,
    ) -> Result<LineStep, Fault> {
        let closes = word.text == "close";
        if !closes {
            fields.end()?;
        }
        let device = file.device(name, context)?;
        if word.text == "open" {
            self.open.insert(device, 0);
        }
        let found = closes.then(|| self.open.remove(&device)).flatten();
        while let Some(field) = fields.try_next("what is known beyond") {
            const EXPECTED: &str = "requests=… or lost=…, or the end of the line";
            let (key, _) = field.text.split_once('=').ok_or_else(|| field.fault(EXPECTED))?;
            let value = field.part(key.len() + 1, field.text.len());
            match key {
                "requests" => {
                    let requests = value.number()?;
                    if found.is_some_and(|found| found != requests) {
                        let found = found.unwrap_or_default();
                        return Err(value.fault(format!(
                            "{found}, for as many requests of {name} were read: lines were added or \
                             removed; if that is meant, remove {}",
                            field.text
                        )));
                    }
                }
                "lost" => context.counts.lost += value.number()?,
                _ => return Err(field.fault(EXPECTED)),
            }
        }
        Ok(LineStep::Skip("files added, opened or closed"))
    }
}

impl LineFormat for Iolog {
    fn parse(&mut self, number: u64, line: &str, context: &mut Context) -> Result<LineStep, Fault> {
        let mut fields = Fields::new(line, Separator::Blank);
        if number == 1 {
            if line == self.version.header() {
                return Ok(LineStep::Skip("header lines"));
            }
            let text = fields.rest();
            let field = Field { text, column: 1, name: "header" };
            return Err(field.fault(format!("{:?}", self.version.header())));
        }
        if self.version == Version::Three {
            let time = fields.next("time in microseconds")?;
            self.clock_us = time.number_up_to(u64::MAX / 1000)?;
        }
        let file = fields.next("file")?;
        let name = file.name()?;
        let word = fields.next("action")?;
        let action = word.one_of(ACTIONS)?;
        let op = match action {
            Action::File => return self.file(name, &file, &word, &mut fields, context),
            Action::Wait if self.version == Version::Three => {
                return Err(word.fault("an action of version 3, which has no wait"));
            }
            Action::Wait => {
                let wait = fields.next("microseconds")?;
                let us = wait.number()?;
                if let Some(length) = fields.try_next("length") {
                    length.number()?;
                }
                fields.end()?;
                if us < WAIT_US_MIN {
                    return Ok(LineStep::Skip("waits below 100 µs"));
                }
                let clock = self.clock_us.checked_add(us).filter(|us| *us <= u64::MAX / 1000);
                self.clock_us = clock.ok_or_else(|| wait.fault("a time below 2^64 nanoseconds"))?;
                return Ok(LineStep::Skip("waits"));
            }
            Action::Transfer(op) => op,
        };
        let offset = Bytes(fields.next("offset")?.number()?);
        let size = fields.next("length")?;
        let (offset, length) = range(op, offset, Bytes(size.number()?), &size)?;
        // fio repeats the offset of the last request beside an fsync; it has no meaning.
        let (offset, length) =
            if op == Op::Flush { (Bytes::ZERO, Bytes::ZERO) } else { (offset, length) };
        let time = Time(self.clock_us * 1000);
        let device = file.device(name, context)?;
        let mut record = Record {
            time,
            device,
            op,
            flags: Flags::default(),
            offset,
            length,
            pid: None,
            latency: None,
        };
        let mut lost = None;
        while let Some(field) = fields.try_next("what is known beyond") {
            beyond(&field, &mut record, &mut lost)?;
        }
        context.counts.lost += lost.unwrap_or_default();
        if let Some(requests) = self.open.get_mut(&device) {
            *requests += 1;
        }
        Ok(LineStep::Record(record))
    }

    /// Whether all files are closed: a complete log closes every file that it opened.
    fn is_whole(&self) -> bool {
        self.open.is_empty()
    }
}

/// Parses one of the fields that weft appends to a line, and stores its value in `record` or
/// `lost`.
fn beyond(field: &Field<'_>, record: &mut Record, lost: &mut Option<u64>) -> Result<(), Fault> {
    const EXPECTED: &str = "flags=…, pid=…, latency=… or lost=…, each once, or the end of the line";
    let (key, _) = field.text.split_once('=').ok_or_else(|| field.fault(EXPECTED))?;
    let value = field.part(key.len() + 1, field.text.len());
    match key {
        "flags" if record.flags == Flags::default() => {
            for name in value.text.split(',') {
                match flag(&mut record.flags, name) {
                    Some(flag) if !*flag => *flag = true,
                    _ => {
                        return Err(value.fault(format!("some of {}, each once", FLAGS.join(", "))));
                    }
                }
            }
        }
        "pid" if record.pid.is_none() => record.pid = Some(value.number32()?),
        "latency" if record.latency.is_none() => record.latency = Some(Span(value.number()?)),
        "lost" if lost.is_none() => *lost = Some(value.number()?),
        _ => return Err(field.fault(EXPECTED)),
    }
    Ok(())
}

/// Writes a log, record by record.
///
/// Times are exact to a microsecond in version 3. In version 2 a record is up to 100 µs early,
/// because shorter waits do not count. Use version 3 for fio: fio 3.33 hung on most of the logs
/// with waits that were tried. The caller buffers the output.
///
/// ```
/// use weft_lab::replay::{Devices, Flags, Op, Record, iolog};
/// use weft_units::{Bytes, Time};
///
/// let mut devices = Devices::default();
/// let device = devices.intern("md0").unwrap();
/// let mut log = iolog::Writer::new(Vec::new(), iolog::Version::Three)?;
/// let (op, flags, offset, length) = (Op::Write, Flags::default(), Bytes(8192), Bytes(4096));
/// let time = Time(17_000);
/// log.write(&devices, &Record { time, device, op, flags, offset, length, pid: None, latency: None })?;
/// let text = String::from_utf8(log.finish(&devices)?).unwrap();
/// assert_eq!(text.lines().nth(3), Some("17 md0 write 8192 4096"));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Writer<W> {
    to: W,
    version: Version,
    clock_us: u64,
    /// Open files, with the number of requests written of each.
    open: BTreeMap<super::DeviceIndex, u64>,
    /// Number of requests missing before the next line.
    lost: u64,
}

impl<W: Write> Writer<W> {
    /// Writes the header of a log.
    ///
    /// # Errors
    /// I/O errors of `to`.
    pub fn new(mut to: W, version: Version) -> io::Result<Self> {
        writeln!(to, "{}", version.header())?;
        Ok(Self { to, version, clock_us: 0, open: BTreeMap::new(), lost: 0 })
    }

    /// The underlying writer.
    pub fn get_mut(&mut self) -> &mut W {
        &mut self.to
    }

    /// Opens a device before its first record, so that a log without records names it too.
    ///
    /// # Errors
    /// I/O errors of the underlying writer.
    pub fn open(&mut self, devices: &Devices, device: super::DeviceIndex) -> io::Result<()> {
        if let Entry::Vacant(place) = self.open.entry(device) {
            place.insert(0);
            let prefix = match self.version {
                Version::Two => String::new(),
                Version::Three => format!("{} ", self.clock_us),
            };
            let name = devices.name(device);
            writeln!(self.to, "{prefix}{name} add\n{prefix}{name} open")?;
        }
        Ok(())
    }

    /// Notes that `requests` requests are missing from the log at this point. The next line that is
    /// written records their number.
    pub fn lost(&mut self, requests: u64) {
        self.lost = self.lost.saturating_add(requests);
    }

    /// Subtracts the latest requests of a device from the counts, because their lines were not
    /// kept: they are missing from the log as well.
    ///
    /// # Panics
    /// The log has fewer requests of the device than `requests`.
    pub fn retract(&mut self, device: super::DeviceIndex, requests: u64) {
        let written = self.open.entry(device).or_default();
        *written = written.checked_sub(requests).expect("as many as were written");
        self.lost(requests);
    }

    /// Adds a record. Before the first record of a device, the actions `add` and `open` of the
    /// device are written.
    ///
    /// # Errors
    /// I/O errors of the underlying writer.
    pub fn write(&mut self, devices: &Devices, record: &Record) -> io::Result<()> {
        let name = devices.name(record.device);
        let us = record.time.0 / 1000;
        match self.version {
            Version::Two => {
                self.open(devices, record.device)?;
                if us >= self.clock_us.saturating_add(WAIT_US_MIN) {
                    writeln!(self.to, "{name} wait {} 0", us - self.clock_us)?;
                    self.clock_us = us;
                }
            }
            Version::Three => {
                self.clock_us = self.clock_us.max(us);
                self.open(devices, record.device)?;
                write!(self.to, "{us} ")?;
            }
        }
        let action = match record.op {
            Op::Discard => "trim",
            Op::Flush => "sync",
            Op::Read => "read",
            Op::Write => "write",
        };
        write!(self.to, "{name} {action} {} {}", record.offset.0, record.length.0)?;
        let Flags { sync, meta, fua, preflush, ahead } = record.flags;
        let set: Vec<_> = FLAGS
            .iter()
            .zip([sync, meta, fua, preflush, ahead])
            .filter_map(|(name, set)| set.then_some(*name))
            .collect();
        if !set.is_empty() {
            write!(self.to, " flags={}", set.join(","))?;
        }
        if let Some(pid) = record.pid {
            write!(self.to, " pid={pid}")?;
        }
        if let Some(latency) = record.latency {
            write!(self.to, " latency={}", latency.0)?;
        }
        self.say_lost()?;
        *self.open.get_mut(&record.device).expect("opened above") += 1;
        writeln!(self.to)
    }

    fn say_lost(&mut self) -> io::Result<()> {
        match std::mem::take(&mut self.lost) {
            0 => Ok(()),
            lost => write!(self.to, " lost={lost}"),
        }
    }

    /// Closes all files, with the number of requests written of each, and flushes. Returns the
    /// underlying writer.
    ///
    /// # Errors
    /// I/O errors of the underlying writer.
    pub fn finish(mut self, devices: &Devices) -> io::Result<W> {
        for (device, requests) in std::mem::take(&mut self.open) {
            let name = devices.name(device);
            match self.version {
                Version::Two => write!(self.to, "{name} close")?,
                Version::Three => {
                    write!(self.to, "{} {name} close requests={requests}", self.clock_us)?;
                }
            }
            self.say_lost()?;
            writeln!(self.to)?;
        }
        self.to.flush()?;
        Ok(self.to)
    }
}
