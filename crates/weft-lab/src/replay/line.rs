//! Lines and fields of text traces, with the column of every field for errors.
//!
//! A format parses one line at a time, as [`Fields`], and returns a [`LineStep`] or a [`Fault`].
//! [`Lines`] reads the file, limits the length of a line, and adds file and line to a fault.

use super::{Context, Op, Record, ReplayError, Source};
use std::io::{BufRead, Read};
use weft_units::{Bytes, SECTOR_BYTES, Span, Time};

/// Longest line, in bytes: far above the lines of any format, and a memory limit for a file without
/// line ends.
pub(crate) const LINE_BYTES_MAX: usize = 64 << 10;

/// Result of parsing a line.
#[derive(Debug)]
pub(crate) enum LineStep {
    /// A request.
    Record(Record),
    /// A valid line that is not a request, counted under this name.
    Skip(&'static str),
    /// A valid line after which the file has no more requests; it and all further lines are counted
    /// under this name.
    SkipRest(&'static str),
}

/// Error within a line: column, field, found and expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) column: usize,
    pub(crate) field: &'static str,
    pub(crate) found: String,
    pub(crate) expected: String,
}

/// A text format, one line at a time.
pub(crate) trait LineFormat {
    /// Parses `line`, which is line `number` (1-based) of its file.
    fn parse(&mut self, number: u64, line: &str, context: &mut Context) -> Result<LineStep, Fault>;

    /// Whether the file may end here by the rules of the format. If not, a last line without a line
    /// end is truncated.
    fn is_whole(&self) -> bool {
        true
    }
}

/// A text file, read line by line.
pub(crate) struct Lines<F> {
    file: String,
    reader: Box<dyn BufRead>,
    buffer: Vec<u8>,
    number: u64,
    rest: Option<&'static str>,
    /// Whether the last line that was read has a line end.
    ended: bool,
    over: bool,
    format: F,
}

impl<F: LineFormat> Lines<F> {
    pub(crate) fn new(file: String, reader: Box<dyn BufRead>, format: F) -> Self {
        let (buffer, number, rest, ended, over) = (Vec::new(), 0, None, false, false);
        Self { file, reader, buffer, number, rest, ended, over, format }
    }

    fn error(&self, fault: Fault) -> ReplayError {
        let Fault { column, field, found, expected } = fault;
        let (file, line) = (self.file.clone(), self.number);
        ReplayError::Line { file, line, column, field, found, expected }
    }

    /// Reads one line into the buffer, without its line end. Returns `false` at the end of the
    /// file. Fails for a line above [`LINE_BYTES_MAX`].
    fn read_line(&mut self) -> Result<bool, ReplayError> {
        self.buffer.clear();
        let limit = LINE_BYTES_MAX as u64 + 2;
        let mut limited = self.reader.by_ref().take(limit);
        let read = limited.read_until(b'\n', &mut self.buffer);
        if read.map_err(ReplayError::io(&self.file))? == 0 {
            return Ok(false);
        }
        self.number += 1;
        self.ended = self.buffer.last() == Some(&b'\n');
        if self.ended {
            self.buffer.pop();
        }
        if self.buffer.last() == Some(&b'\r') {
            self.buffer.pop();
        }
        if self.buffer.len() > LINE_BYTES_MAX {
            return Err(self.error(Fault {
                column: LINE_BYTES_MAX + 1,
                field: "line",
                found: "more text".to_owned(),
                expected: format!("the end of a line of at most {LINE_BYTES_MAX} bytes"),
            }));
        }
        Ok(true)
    }
}

impl<F: LineFormat> Source for Lines<F> {
    fn next(&mut self, context: &mut Context) -> Result<Option<(Record, u32)>, ReplayError> {
        while self.read_line()? {
            context.counts.lines += 1;
            if let Some(kind) = self.rest {
                context.skip(kind);
                continue;
            }
            if !self.ended && !self.format.is_whole() {
                context.skip("unfinished last lines");
                continue;
            }
            let line = text(&self.buffer).map_err(|fault| self.error(fault))?;
            match self.format.parse(self.number, line, context) {
                Ok(LineStep::Record(record)) => return Ok(Some((record, 0))),
                Ok(LineStep::Skip(kind)) => context.skip(kind),
                Ok(LineStep::SkipRest(kind)) => {
                    context.skip(kind);
                    self.rest = Some(kind);
                }
                Err(fault) => return Err(self.error(fault)),
            }
        }
        if !std::mem::replace(&mut self.over, true) && !self.format.is_whole() {
            context.counts.cut_short += 1;
        }
        Ok(None)
    }
}

/// The bytes as text, or a fault at the first byte that is not UTF-8.
pub(crate) fn text(bytes: &[u8]) -> Result<&str, Fault> {
    std::str::from_utf8(bytes).map_err(|error| Fault {
        column: error.valid_up_to() + 1,
        field: "line",
        found: format!("byte {:#04x}", bytes[error.valid_up_to()]),
        expected: "text in UTF-8".to_owned(),
    })
}

/// Parser of the fields of a line.
pub(crate) struct Fields<'a> {
    line: &'a str,
    at: usize,
    separator: Separator,
}

/// Text between fields.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Separator {
    /// One comma; blanks around a field belong to no field.
    Comma,
    /// Any number of blanks and tabs.
    Blank,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(line: &'a str, separator: Separator) -> Self {
        Self { line, at: 0, separator }
    }

    /// The next field, called `name` in errors. Fails at the end of the line.
    pub(crate) fn next(&mut self, name: &'static str) -> Result<Field<'a>, Fault> {
        let column = self.at.min(self.line.len()) + 1;
        self.try_next(name).ok_or_else(|| Fault {
            column,
            field: name,
            found: "the end of the line".to_owned(),
            expected: format!("the field {name}"),
        })
    }

    /// The next field, called `name` in errors; `None` at the end of the line.
    pub(crate) fn try_next(&mut self, name: &'static str) -> Option<Field<'a>> {
        match self.separator {
            Separator::Comma => {
                let rest = self.line.get(self.at..)?;
                let end = rest.find(',').unwrap_or(rest.len());
                let (raw, start) = (&rest[..end], self.at);
                self.at += end + 1;
                let blanks = raw.len() - raw.trim_start().len();
                Some(Field { text: raw.trim(), column: start + blanks + 1, name })
            }
            Separator::Blank => {
                let rest = self.rest();
                if rest.is_empty() {
                    return None;
                }
                let end = rest.find([' ', '\t']).unwrap_or(rest.len());
                let column = self.at + 1;
                self.at += end;
                Some(Field { text: &rest[..end], column, name })
            }
        }
    }

    /// The rest of the line after the fields parsed so far, without leading blanks.
    pub(crate) fn rest(&mut self) -> &'a str {
        let rest = self.line.get(self.at..).unwrap_or("");
        let trimmed = rest.trim_start_matches([' ', '\t']);
        self.at = self.at.min(self.line.len()) + (rest.len() - trimmed.len());
        trimmed
    }

    /// Checks that the line has no more fields.
    pub(crate) fn end(&mut self) -> Result<(), Fault> {
        let column = self.at.min(self.line.len()) + 1;
        match self.try_next("end of line") {
            None => Ok(()),
            Some(field) if field.text.is_empty() && self.separator == Separator::Comma => {
                Err(Fault {
                    column,
                    field: "end of line",
                    found: "another field".to_owned(),
                    expected: "the end of the line".to_owned(),
                })
            }
            Some(field) => Err(field.fault("the end of the line")),
        }
    }
}

/// One field of a line, with its column (in bytes, 1-based) and its name in errors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field<'a> {
    pub(crate) text: &'a str,
    pub(crate) column: usize,
    pub(crate) name: &'static str,
}

impl<'a> Field<'a> {
    /// Fault for an invalid value of this field.
    pub(crate) fn fault(&self, expected: impl Into<String>) -> Fault {
        let found = if self.text.is_empty() { "nothing".to_owned() } else { shortened(self.text) };
        Fault { column: self.column, field: self.name, found, expected: expected.into() }
    }

    /// Part of this field, from byte `from` to byte `to`.
    pub(crate) fn part(&self, from: usize, to: usize) -> Field<'a> {
        Field { text: &self.text[from..to], column: self.column + from, name: self.name }
    }

    /// Parses digits as a number up to `max`.
    pub(crate) fn number_up_to(&self, max: u64) -> Result<u64, Fault> {
        let digits = !self.text.is_empty() && self.text.bytes().all(|byte| byte.is_ascii_digit());
        let value = if digits { self.text.parse().ok() } else { None };
        value
            .filter(|value| *value <= max)
            .ok_or_else(|| self.fault(format!("a number of 0..={max}")))
    }

    /// Parses digits as a number.
    pub(crate) fn number(&self) -> Result<u64, Fault> {
        self.number_up_to(u64::MAX)
    }

    /// Parses digits as a number of 32 bits.
    pub(crate) fn number32(&self) -> Result<u32, Fault> {
        let value = self.number_up_to(u64::from(u32::MAX))?;
        Ok(u32::try_from(value).expect("bounded above"))
    }

    /// Parses a number of units, for example ticks, and converts it to nanoseconds or bytes: `unit`
    /// is the value of one unit.
    pub(crate) fn scaled(&self, unit: u64) -> Result<u64, Fault> {
        Ok(self.number_up_to(u64::MAX / unit)? * unit)
    }

    /// Parses a number of sectors and converts it to bytes.
    pub(crate) fn sectors(&self) -> Result<Bytes, Fault> {
        Ok(Bytes(self.scaled(SECTOR_BYTES)?))
    }

    /// Parses seconds with up to nine decimals and converts them to nanoseconds.
    pub(crate) fn seconds(&self) -> Result<u64, Fault> {
        self.decimal(9, "seconds with at most nine decimals")
    }

    /// Parses milliseconds with up to six decimals and converts them to nanoseconds.
    pub(crate) fn milliseconds(&self) -> Result<u64, Fault> {
        self.decimal(6, "milliseconds with at most six decimals")
    }

    /// Parses a number with up to `places` decimals, in units of its last place.
    fn decimal(&self, places: usize, expected: &str) -> Result<u64, Fault> {
        let (whole, decimals) = self.text.split_once('.').unwrap_or((self.text, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(decimals) || decimals.len() > places {
            return Err(self.fault(expected));
        }
        let all = format!("{whole}{decimals:0<places$}");
        all.parse().map_err(|_| self.fault("a time below 2^64 nanoseconds"))
    }

    /// Parses a point in time, in seconds.
    pub(crate) fn time_in_seconds(&self) -> Result<Time, Fault> {
        Ok(Time(self.seconds()?))
    }

    /// Parses a length of time, in seconds.
    pub(crate) fn span_in_seconds(&self) -> Result<Span, Fault> {
        Ok(Span(self.seconds()?))
    }

    /// Parses the name of a device or host: 1 to 256 bytes without white space or control
    /// characters.
    pub(crate) fn name(&self) -> Result<&'a str, Fault> {
        let bad = self.text.is_empty()
            || self.text.len() > 256
            || self.text.contains(|c: char| c.is_whitespace() || c.is_control());
        if bad { Err(self.fault("a name of 1..=256 bytes without blanks")) } else { Ok(self.text) }
    }

    /// Parses one of the given words, and returns its value.
    pub(crate) fn one_of<T: Copy>(&self, words: &[(&str, T)]) -> Result<T, Fault> {
        let found = words.iter().find(|(word, _)| *word == self.text);
        found.map(|(_, value)| *value).ok_or_else(|| {
            let words: Vec<_> = words.iter().map(|(word, _)| *word).collect();
            self.fault(words.join(", "))
        })
    }

    /// Finds the index of the device with this name, and adds the device if it is new. Fails if the
    /// trace has too many devices.
    pub(crate) fn device(
        &self,
        name: &str,
        context: &mut Context,
    ) -> Result<super::DeviceIndex, Fault> {
        let device = context.devices.intern(name);
        device.ok_or_else(|| {
            self.fault(format!("at most {} devices in one trace", super::DEVICE_COUNT_MAX))
        })
    }
}

/// Largest length of a request of this operation, and the limit in words. A longer request is a
/// damaged line, and would take as long to simulate as all others together. The limit is eight
/// times the largest transfer of any kernel or NBD client (32 MiB); discards count bytes in 32
/// bits.
///
/// Source   Linux `queue/max_sectors_kb`, at most 32768 here; `struct bvec_iter`, `bi_size`
pub(crate) fn request_max(op: Op) -> (Bytes, &'static str) {
    match op {
        Op::Discard => (Bytes(u64::from(u32::MAX)), "a discard of less than 4 GiB"),
        Op::Flush | Op::Read | Op::Write => (Bytes::mib(256), "a request of at most 256 MiB"),
    }
}

/// Checks the range of a request, at most [`request_max`] long and ending below 2^63, and returns
/// it. A failed check gives a [`Fault`] for the field `blame`.
pub(crate) fn range(
    op: Op,
    offset: Bytes,
    length: Bytes,
    blame: &Field<'_>,
) -> Result<(Bytes, Bytes), Fault> {
    let (most, expected) = request_max(op);
    if length > most {
        return Err(blame.fault(expected));
    }
    let end = offset.0.checked_add(length.0);
    if end.is_some_and(|end| end <= i64::MAX as u64) {
        Ok((offset, length))
    } else {
        Err(blame.fault("a request that ends below 2^63"))
    }
}

/// Text for an error message: quoted, with control characters escaped, shortened to 40 characters.
pub(crate) fn shortened(text: &str) -> String {
    format!("{:?}", crate::text::shortened(text, 40))
}
