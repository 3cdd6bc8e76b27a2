//! Reads of a dying disk, each with a time limit.
//!
//! A child process does the reads: this program with [`READER`] as its name, a socket as standard
//! input and the disk as standard output, which it only reads. A read of a disk that hangs cannot
//! be ended, and no process ends while one of its threads is in such a read. The child is killed
//! and left behind, and a new one reads on.

use std::ffi::OsString;
use std::io::{self, ErrorKind, Read, Write};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::Advice;
use rustix::io::Errno;
use weft_runtime::buffers::AlignedBytes;
use weft_runtime::devices::{Access, IoMode, MemberSpec, OpenMember, OpenOptions};
use weft_terminal::outcome::Failure;
use weft_terminal::terminal::label;
use weft_units::MemberIndex;

use crate::volume;

/// Name by which the program knows that it is the child that reads.
pub(super) const READER: &str = "weft-image-reader";

/// A disk that is copied.
pub(crate) struct Disk {
    member: OpenMember,
    label: String,
    size: u64,
    /// Longest time of a read; `None` for no limit.
    limit: Option<Duration>,
    reader: Option<Reader>,
    /// Children that were left in a read.
    hanging: Vec<Reader>,
}

/// The child that reads.
struct Reader {
    child: Child,
    socket: UnixStream,
}

/// Result of a read.
#[derive(Debug)]
pub(crate) enum Got {
    /// Bytes from the start of the range on; fewer than it has if the rest failed.
    Bytes(Vec<u8>),
    /// The read failed.
    Failed,
    /// The read took longer than the limit.
    TimedOut,
}

impl Disk {
    /// Opens a whole disk or image for reading. Block devices are read past the page cache, so that
    /// a bad sector does not fail those around it.
    ///
    /// # Errors
    /// It cannot be opened, is only a part of a disk, or is empty.
    pub(crate) fn open(path: &Path, limit: Option<Duration>) -> Result<Self, Failure> {
        let label = label(path);
        let mut spec = MemberSpec::path(path);
        spec.label.clone_from(&label);
        if spec.is_part() {
            return Err(Failure::usage(format!(
                "{label}: found a part of a disk, expected a disk, a partition's device or an image"
            )));
        }
        // The page cache has what a file system keeps there; files have no sectors of their own.
        let is_file = path.metadata().is_ok_and(|found| found.is_file());
        let options = OpenOptions { buffered: is_file, ..OpenOptions::new(Access::ReadOnly) };
        let member =
            options.open(&spec, MemberIndex(0), []).map_err(|error| volume::device(&error))?;
        let size = match is_file {
            true => path.metadata()?.len(),
            false => member.info().size.bytes().0,
        };
        if member.mode() == IoMode::Buffered {
            // An error is ignored: without the advice more is read ahead.
            let _ = rustix::fs::fadvise(&member, 0, None, Advice::Random);
        }
        Ok(Self { member, label, size, limit, reader: None, hanging: Vec::new() })
    }

    pub(crate) fn label(&self) -> &str {
        &self.label
    }

    /// Size in bytes. That of a file need not be whole sectors.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Logical block size in bytes; 512 for a file.
    pub(crate) fn logical_block(&self) -> u64 {
        self.member.info().logical_block.into()
    }

    /// Reads a range. Calls `wait` about once a second while the disk does not answer.
    ///
    /// # Errors
    /// The disk is gone, so that further reads are pointless.
    pub(crate) fn read(
        &mut self,
        range: &Range<u64>,
        wait: &mut dyn FnMut(),
    ) -> Result<Got, Failure> {
        // A map beside an image says what its own disk could not give.
        if self.member.rescued().is_some_and(|map| map.misses(range)) {
            return Ok(Got::Failed);
        }
        // Maps of other programs may have areas that are not whole blocks.
        let block = self.logical_block();
        let start = range.start / block * block;
        let end = range.end.next_multiple_of(block);
        let skip = usize::try_from(range.start - start).map_err(Failure::failed)?;
        let most = usize::try_from(range.end - range.start).map_err(Failure::failed)?;
        let result = self.ask(start, end - start, wait)?;
        match result {
            Ok(mut bytes) => {
                bytes.drain(..skip.min(bytes.len()));
                bytes.truncate(most);
                let is_cut = bytes.len() < most && self.member.is_cut();
                if is_cut {
                    Err(self.gone("is shorter than it was"))
                } else {
                    Ok(Got::Bytes(bytes))
                }
            }
            Err(ErrorKind::TimedOut) => Ok(Got::TimedOut),
            Err(_) => Ok(Got::Failed),
        }
    }

    /// Asks the child to read, and starts it if there is none.
    fn ask(
        &mut self,
        start: u64,
        len: u64,
        wait: &mut dyn FnMut(),
    ) -> Result<Result<Vec<u8>, ErrorKind>, Failure> {
        let failed = |error: io::Error| Failure::failed(format!("the reading process: {error}"));
        let mut reader = match self.reader.take() {
            Some(reader) => reader,
            None => Reader::start(self.member.as_fd()).map_err(failed)?,
        };
        let limit = self.limit.map(|limit| Instant::now() + limit);
        let request = [start.to_le_bytes(), len.to_le_bytes()].concat();
        let mut head = [0; 8];
        let answered =
            reader.socket.write_all(&request).and_then(|()| reader.receive(&mut head, limit, wait));
        match answered {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::TimedOut => {
                self.leave(reader)?;
                return Ok(Err(ErrorKind::TimedOut));
            }
            Err(error) => return Err(failed(error)),
        }
        let word = |at: usize| i32::from_le_bytes([0, 1, 2, 3].map(|byte| head[at + byte]));
        let (errno, count) = (word(0), usize::try_from(word(4)).unwrap_or(0));
        if errno != 0 {
            self.reader = Some(reader);
            self.still_there(&io::Error::from_raw_os_error(errno))?;
            return Ok(Err(ErrorKind::Other));
        }
        let mut bytes = vec![0; count];
        reader.receive(&mut bytes, None, wait).map_err(failed)?;
        self.reader = Some(reader);
        Ok(Ok(bytes))
    }

    /// Leaves a child behind whose read does not end.
    fn leave(&mut self, mut reader: Reader) -> Result<(), Failure> {
        // An error is ignored: the child has ended by itself.
        let _ = reader.child.kill();
        self.hanging.push(reader);
        self.hanging.retain_mut(|reader| matches!(reader.child.try_wait(), Ok(None)));
        if self.hanging.len() < HANGING_MAX {
            return Ok(());
        }
        Err(self.gone(&format!("has not ended {HANGING_MAX} reads, some of them for long")))
    }

    /// Fails if an error of a read means that the disk is not there any more.
    fn still_there(&self, error: &io::Error) -> Result<(), Failure> {
        let gone = [Errno::NODEV, Errno::NXIO, Errno::NOTCONN, Errno::STALE, Errno::BADF];
        let code = error.raw_os_error().unwrap_or_default();
        if gone.iter().any(|errno| errno.raw_os_error() == code) {
            return Err(self.gone(&format!("cannot be read any more: {error}")));
        }
        let is_device = self.member.device_number().is_some();
        // A device that was unplugged has no bytes.
        if is_device && rustix::fs::seek(&self.member, rustix::fs::SeekFrom::End(0)) == Ok(0) {
            return Err(self.gone("was unplugged or has stopped"));
        }
        Ok(())
    }

    fn gone(&self, what: &str) -> Failure {
        Failure::failed(format!("{}: {what}; switch it off and on", self.label))
    }
}

impl Reader {
    fn start(disk: BorrowedFd<'_>) -> io::Result<Self> {
        let (socket, theirs) = UnixStream::pair()?;
        let program = std::env::current_exe()?;
        let child = Command::new(program)
            .arg0(READER)
            // A key on the terminal ends this process, which then lets the read end.
            .process_group(0)
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::from(disk.try_clone_to_owned()?))
            // What waits for the end of a pipe must not wait for a child that is left behind.
            .stderr(Stdio::null())
            .spawn()?;
        socket.set_read_timeout(Some(WAIT))?;
        Ok(Self { child, socket })
    }

    /// Receives bytes from the child until `into` is full.
    ///
    /// # Errors
    /// [`ErrorKind::TimedOut`] when the limit has passed, or another error when the child has
    /// ended.
    fn receive(
        &mut self,
        mut into: &mut [u8],
        limit: Option<Instant>,
        wait: &mut dyn FnMut(),
    ) -> io::Result<()> {
        while !into.is_empty() {
            let now = Instant::now();
            let left = limit.map_or(WAIT, |limit| limit.saturating_duration_since(now).min(WAIT));
            self.socket.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
            match self.socket.read(into) {
                Ok(0) => return Err(io::Error::other("it has ended")),
                Ok(count) => into = &mut into[count..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if limit.is_some_and(|limit| limit <= Instant::now()) {
                        return Err(ErrorKind::TimedOut.into());
                    }
                    wait();
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // It is not waited for: it may be in a read that does not end.
        let _ = self.child.kill();
    }
}

/// Does the reads of another process, if this one was started for that. Its exit status tells
/// nothing.
pub(crate) fn reader(mut names: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    if names.next()? != *READER {
        return None;
    }
    let stdin = rustix::stdio::stdin();
    let ended = stdin.try_clone_to_owned().and_then(|socket| serve(&mut UnixStream::from(socket)));
    Some(if ended.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Answers requests until the other process has ended.
fn serve(socket: &mut UnixStream) -> io::Result<()> {
    let disk = rustix::stdio::stdout();
    let mut request = [0; 16];
    let mut bytes = AlignedBytes::zeroed(0);
    loop {
        match socket.read_exact(&mut request) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
            result => result?,
        }
        let word =
            |at: usize| u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|i| request[at + i]));
        let len = usize::try_from(word(8)).map_err(io::Error::other)?;
        if bytes.as_ref().len() < len {
            bytes = AlignedBytes::zeroed(len);
        }
        let read = rustix::io::retry_on_intr(|| {
            rustix::io::pread(disk, &mut bytes.as_mut()[..len], word(0))
        });
        let (errno, count) = match read {
            Ok(count) => (0, count),
            Err(errno) => (errno.raw_os_error(), 0),
        };
        let count_word = i32::try_from(count).map_err(io::Error::other)?;
        socket.write_all(&[errno.to_le_bytes(), count_word.to_le_bytes()].concat())?;
        socket.write_all(&bytes.as_ref()[..count])?;
    }
}

/// Time between two notices that a read has not ended.
const WAIT: Duration = Duration::from_secs(1);

/// Largest number of reads that may hang: a disk that is busy with them gives nothing else.
const HANGING_MAX: usize = 8;
