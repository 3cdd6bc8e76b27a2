//! Trace of several files, merged into one stream of records by time.
//!
//! Every file is a source with its own format and compression. The next record is the oldest that
//! any source offers, by (time, sequence, order of the files), and times count from the first
//! record.

use super::compression::unpacked;
use super::options::ReadOptions;
use super::{Context, Counts, Devices, Record, ReplayError, Source, detect};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use weft_units::Time;

/// Reader of a trace.
///
/// ```
/// use weft_lab::replay::{Op, ReadOptions, Trace};
/// let text = "128166372003061629,usr,0,Write,7014609920,24576,41286\n";
/// let mut trace = Trace::of_bytes("usr_0.csv", text.into(), &ReadOptions::default())?;
/// let record = trace.next().unwrap()?;
/// assert_eq!((record.op, trace.devices().name(record.device)), (Op::Write, "usr_0"));
/// # Ok::<(), weft_lab::replay::ReplayError>(())
/// ```
pub struct Trace {
    sources: Vec<Box<dyn Source>>,
    heads: Vec<Option<(Record, u32)>>,
    context: Context,
    formats: Vec<detect::Format>,
    origin: Option<Time>,
    before: Time,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Unread,
    Reading,
    Ended,
}

impl Trace {
    /// Opens the files of a trace. If `NAME` does not exist, it stands for `NAME.blktrace.0`,
    /// `NAME.blktrace.1`, ….
    ///
    /// # Errors
    /// A file cannot be opened or decompressed, or its format is not recognized.
    pub fn open(paths: &[impl AsRef<Path>], options: &ReadOptions) -> Result<Self, ReplayError> {
        let mut trace = Self::empty();
        for path in paths {
            for path in files_of_all_cpus(path.as_ref()) {
                let name = path.display().to_string();
                let file = File::open(&path).map_err(ReplayError::io(&name))?;
                trace.add(name, Box::new(file), options)?;
            }
        }
        Ok(trace)
    }

    /// Opens a trace in memory, which is called `name` in errors.
    ///
    /// # Errors
    /// See [`Self::open`].
    pub fn of_bytes(
        name: &str,
        bytes: Vec<u8>,
        options: &ReadOptions,
    ) -> Result<Self, ReplayError> {
        let mut trace = Self::empty();
        trace.add(name.to_owned(), Box::new(std::io::Cursor::new(bytes)), options)?;
        Ok(trace)
    }

    fn empty() -> Self {
        Self {
            sources: Vec::new(),
            heads: Vec::new(),
            context: Context::default(),
            formats: Vec::new(),
            origin: None,
            before: Time(0),
            state: State::Unread,
        }
    }

    /// Adds another file, which is merged with the others by time.
    ///
    /// # Errors
    /// See [`Self::open`].
    ///
    /// # Panics
    /// Records have been read already.
    pub fn add(
        &mut self,
        name: String,
        reader: Box<dyn Read>,
        options: &ReadOptions,
    ) -> Result<(), ReplayError> {
        assert!(self.state == State::Unread);
        let mut reader = unpacked(&name, reader)?;
        let begin = reader.fill_buf().map_err(ReplayError::io(&name))?;
        let format = match options.format {
            Some(format) => format,
            None => detect::format(&name, begin)?,
        };
        self.formats.push(format);
        self.sources.push(format.source(name, reader, options));
        Ok(())
    }

    /// The formats of the files, in order.
    #[must_use]
    pub fn formats(&self) -> &[detect::Format] {
        &self.formats
    }

    /// Devices that the trace has named so far.
    #[must_use]
    pub fn devices(&self) -> &Devices {
        &self.context.devices
    }

    /// Counts of records read and left out so far.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.context.counts
    }

    /// Name of the process with this id; `None` if the trace has not recorded it so far.
    #[must_use]
    pub fn process(&self, pid: u32) -> Option<&str> {
        self.context.processes.get(&pid).map(String::as_str)
    }

    fn read(&mut self) -> Result<Option<Record>, ReplayError> {
        if self.state == State::Unread {
            self.state = State::Reading;
            for source in &mut self.sources {
                self.heads.push(source.next(&mut self.context)?);
            }
        }
        let heads = self.heads.iter().enumerate();
        let oldest = heads
            .filter_map(|(at, head)| head.map(|(record, sequence)| (record.time, sequence, at)))
            .min();
        let Some((_, _, at)) = oldest else { return Ok(None) };
        let next = self.sources[at].next(&mut self.context)?;
        let (mut record, _) = std::mem::replace(&mut self.heads[at], next).expect("it was there");
        let origin = *self.origin.get_or_insert(record.time);
        record.time = Time(record.time.since(origin).0);
        self.context.counts.records += 1;
        self.context.counts.out_of_order += u64::from(record.time < self.before);
        self.before = record.time;
        Ok(Some(record))
    }
}

impl Iterator for Trace {
    type Item = Result<Record, ReplayError>;

    /// Returns the next record. After an error there are no more records.
    fn next(&mut self) -> Option<Self::Item> {
        if self.state == State::Ended {
            return None;
        }
        let read = self.read();
        if !matches!(read, Ok(Some(_))) {
            self.state = State::Ended;
        }
        read.transpose()
    }
}

/// The files that a path stands for: the path itself, or the blktrace files of all CPUs.
fn files_of_all_cpus(path: &Path) -> Vec<PathBuf> {
    let of_cpu = |cpu: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".blktrace.{cpu}"));
        PathBuf::from(name)
    };
    if path.exists() || !of_cpu(0).exists() {
        return vec![path.to_owned()];
    }
    (0..).map(of_cpu).take_while(|path| path.exists()).collect()
}
