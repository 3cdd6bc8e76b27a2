//! Detection of a trace's format by its contents.
//!
//! Formats with a magic number or a header are identified by it. For the others, every parser tries
//! the first line; the format is known if exactly one parser accepts it.

use super::alibaba::Alibaba;
use super::biosnoop::{Biosnoop, ByIssue};
use super::blkparse::Blkparse;
use super::blktrace::{self, Blktrace};
use super::fiu::Fiu;
use super::iolog::{Iolog, Version};
use super::line::{LineFormat, Lines, shortened, text};
use super::msr::Msr;
use super::options::ReadOptions;
use super::spc::Spc;
use super::systor::Systor;
use super::tencent::Tencent;
use super::{Context, ReplayError, Source};
use std::io::BufRead;

/// Format of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Alibaba block traces of 2020.
    Alibaba,
    /// Text as bcc's `biosnoop` prints it.
    Biosnoop,
    /// Text as `blkparse` prints it by default.
    Blkparse,
    /// One file of `blktrace`, version 7, of one CPU.
    Blktrace,
    /// FIU traces (IODedup).
    Fiu,
    /// fio's log of requests (iolog), version 2.
    Iolog2,
    /// fio's log of requests (iolog), version 3.
    Iolog3,
    /// MSR Cambridge traces.
    Msr,
    /// Traces of the Storage Performance Council: UMass Financial and WebSearch.
    Spc,
    /// SYSTOR '17 traces.
    Systor,
    /// Tencent CBS traces of 2018.
    Tencent,
}

impl Format {
    /// Every format, in order of name.
    pub const ALL: [Self; 11] = [
        Self::Alibaba,
        Self::Biosnoop,
        Self::Blkparse,
        Self::Blktrace,
        Self::Fiu,
        Self::Iolog2,
        Self::Iolog3,
        Self::Msr,
        Self::Spc,
        Self::Systor,
        Self::Tencent,
    ];

    /// Name of the format on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Alibaba => "alibaba",
            Self::Biosnoop => "biosnoop",
            Self::Blkparse => "blkparse",
            Self::Blktrace => "blktrace",
            Self::Fiu => "fiu",
            Self::Iolog2 => "iolog2",
            Self::Iolog3 => "iolog3",
            Self::Msr => "msr",
            Self::Spc => "spc",
            Self::Systor => "systor",
            Self::Tencent => "tencent",
        }
    }

    /// The format with this [`name`](Self::name), `None` for any other text.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// The parser for lines of this format; `None` for a binary format.
    fn lines(self, options: &ReadOptions) -> Option<Box<dyn LineFormat>> {
        let assume = options.assume;
        Some(match self {
            Self::Alibaba => Box::new(Alibaba(assume)),
            Self::Biosnoop => Box::new(Biosnoop::new(options)),
            Self::Blkparse => Box::new(Blkparse(options.event)),
            Self::Blktrace => return None,
            Self::Fiu => Box::new(Fiu(assume)),
            Self::Iolog2 => Box::new(Iolog::new(Version::Two)),
            Self::Iolog3 => Box::new(Iolog::new(Version::Three)),
            Self::Msr => Box::new(Msr(assume)),
            Self::Spc => Box::new(Spc(assume)),
            Self::Systor => Box::new(Systor(assume)),
            Self::Tencent => Box::new(Tencent(assume)),
        })
    }

    /// Opens a reader of a file of this format.
    pub(crate) fn source(
        self,
        file: String,
        reader: Box<dyn BufRead>,
        options: &ReadOptions,
    ) -> Box<dyn Source> {
        match self.lines(options) {
            Some(format) if self == Self::Biosnoop => {
                Box::new(ByIssue::new(Lines::new(file, reader, format)))
            }
            Some(format) => Box::new(Lines::new(file, reader, format)),
            None => Box::new(Blktrace::new(file, reader, options.event)),
        }
    }
}

impl LineFormat for Box<dyn LineFormat> {
    fn parse(
        &mut self,
        number: u64,
        line: &str,
        context: &mut Context,
    ) -> Result<super::line::LineStep, super::line::Fault> {
        self.as_mut().parse(number, line, context)
    }

    fn is_whole(&self) -> bool {
        self.as_ref().is_whole()
    }
}

/// Detects the format of a file from its first bytes. Fails if no format, or more than one, accepts
/// the first line.
pub(crate) fn format(file: &str, begin: &[u8]) -> Result<Format, ReplayError> {
    if blktrace::recognises(begin) {
        return Ok(Format::Blktrace);
    }
    let unknown = |found: String| {
        let names: Vec<_> = Format::ALL.iter().map(|format| format.name()).collect();
        ReplayError::Format { file: file.to_owned(), found, expected: names.join(", ") }
    };
    if begin.get(257..262) == Some(b"ustar") {
        return Err(unknown("a tar archive, which must be unpacked first".to_owned()));
    }
    let end = begin.iter().position(|byte| *byte == b'\n').unwrap_or(begin.len());
    let line = begin[..end].strip_suffix(b"\r").unwrap_or(&begin[..end]);
    if begin.is_empty() {
        return Err(unknown("an empty file".to_owned()));
    }
    let Ok(line) = text(line) else {
        return Err(unknown("bytes that are no text".to_owned()));
    };
    let takes = |format: &Format| {
        let parser = format.lines(&ReadOptions::default());
        parser.is_some_and(|mut parser| parser.parse(1, line, &mut Context::default()).is_ok())
    };
    let taken: Vec<Format> = Format::ALL.into_iter().filter(takes).collect();
    match taken.as_slice() {
        [format] => Ok(*format),
        _ => Err(unknown(shortened(line))),
    }
}
