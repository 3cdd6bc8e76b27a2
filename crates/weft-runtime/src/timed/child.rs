//! Child process that reads a disk which may hang.
//!
//! The child is this program with [`READER`] as its name, a socket as standard input and the disk
//! as standard output, which it only reads. A read of a disk that hangs cannot be ended, and no
//! process ends while one of its threads is in such a read. After the time limit the child is
//! therefore killed and not waited for, and a new child reads on.

use std::ffi::OsString;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use crate::buffers::AlignedBytes;

/// Reads of one file or device by child processes.
#[derive(Debug, Default)]
pub struct ChildReads {
    reader: Option<Reader>,
    /// Children that were killed during a read that exceeded its limit, and may still exist.
    hanging: Vec<Reader>,
}

/// Reasons why a read returned no bytes.
#[derive(Debug)]
pub enum ReadFault {
    /// The child cannot be started, or has ended.
    Child(io::Error),
    /// The read failed.
    Disk(io::Error),
    /// The read took longer than the limit.
    TimedOut,
}

/// A child that reads.
#[derive(Debug)]
struct Reader {
    child: Child,
    socket: UnixStream,
}

impl ChildReads {
    /// Reads `len` bytes of the disk from byte `start` on, in a child that is started if there is
    /// none. Calls `wait` about once a second while the disk does not answer; a limit of `None` is
    /// no limit. Returns fewer bytes than asked for where the kernel does.
    ///
    /// # Errors
    /// The read failed or took longer than the limit, or there is no child.
    pub fn read(
        &mut self,
        disk: BorrowedFd<'_>,
        (start, len): (u64, usize),
        limit: Option<Duration>,
        wait: &mut dyn FnMut(),
    ) -> Result<Vec<u8>, ReadFault> {
        let mut reader = match self.reader.take() {
            Some(reader) => reader,
            None => {
                self.hanging();
                Reader::start(disk).map_err(ReadFault::Child)?
            }
        };
        let result = reader.read(start, len, limit, wait);
        match result {
            Ok(_) | Err(ReadFault::Disk(_)) => self.reader = Some(reader),
            Err(ReadFault::Child(_)) => {}
            Err(ReadFault::TimedOut) => {
                // An error is ignored: the child has ended by itself.
                let _ = reader.child.kill();
                self.hanging.push(reader);
            }
        }
        result
    }

    /// Number of children that are still in a read that took longer than the limit; the others are
    /// reaped.
    pub fn hanging(&mut self) -> usize {
        self.hanging.retain_mut(|reader| matches!(reader.child.try_wait(), Ok(None)));
        self.hanging.len()
    }
}

impl Reader {
    fn start(disk: BorrowedFd<'_>) -> io::Result<Self> {
        let (socket, theirs) = UnixStream::pair()?;
        let program = std::env::current_exe()?;
        let child = Command::new(program)
            .arg0(READER)
            // Ctrl-C on the terminal must reach this process alone, which lets the read end before
            // it exits itself.
            .process_group(0)
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::from(disk.try_clone_to_owned()?))
            // A reader of this process's stderr pipe must see its end even if a child is left
            // behind.
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self { child, socket })
    }

    fn read(
        &mut self,
        start: u64,
        len: usize,
        limit: Option<Duration>,
        wait: &mut dyn FnMut(),
    ) -> Result<Vec<u8>, ReadFault> {
        let limit = limit.map(|limit| Instant::now() + limit);
        let request = [start.to_le_bytes(), (len as u64).to_le_bytes()].concat();
        let mut head = [0; 8];
        self.socket.write_all(&request).map_err(ReadFault::Child)?;
        self.receive(&mut head, limit, wait).map_err(|error| match error.kind() {
            ErrorKind::TimedOut => ReadFault::TimedOut,
            _ => ReadFault::Child(error),
        })?;
        let word = |at: usize| i32::from_le_bytes([0, 1, 2, 3].map(|byte| head[at + byte]));
        let (errno, count) = (word(0), usize::try_from(word(4)).unwrap_or(0));
        if errno != 0 {
            return Err(ReadFault::Disk(io::Error::from_raw_os_error(errno)));
        }
        let mut bytes = vec![0; count.min(len)];
        self.receive(&mut bytes, None, wait).map_err(ReadFault::Child)?;
        Ok(bytes)
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
        // The child is not waited for: it may be in a read that does not end.
        let _ = self.child.kill();
    }
}

/// Runs this program as the child process that reads a disk, if it was started as such; returns
/// `None` otherwise. The exit status has no meaning. A program with a time limit for reads calls
/// this function before anything else. `names` are its arguments, from the program's name on.
pub fn reader(mut names: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    if names.next()? != *READER {
        return None;
    }
    let stdin = rustix::stdio::stdin();
    let ended = stdin
        .try_clone_to_owned()
        .and_then(|socket| serve(&mut UnixStream::from(socket), rustix::stdio::stdout()));
    Some(if ended.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Answers requests for reads until the parent process has closed the socket.
fn serve(socket: &mut UnixStream, disk: BorrowedFd<'_>) -> io::Result<()> {
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

/// Program name (`argv[0]`) that makes the program run as a reading child.
const READER: &str = "weft-disk-reader";

/// Time between two notices that a read has not ended.
const WAIT: Duration = Duration::from_secs(1);

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::io::Seek;
    use std::os::fd::AsFd;

    /// Reads by a child that never answers.
    pub(crate) fn silent() -> ChildReads {
        asleep(&[])
    }

    /// Reads by a child that has sent `bytes` in advance as the answer to the first read. That read
    /// ends within any limit; others are never answered.
    pub(crate) fn read_before(bytes: &[u8]) -> ChildReads {
        let count = i32::try_from(bytes.len()).unwrap();
        asleep(&[&0_i32.to_le_bytes(), &count.to_le_bytes(), bytes].concat())
    }

    /// Reads by a child that never answers, with `answer` already in its socket.
    fn asleep(answer: &[u8]) -> ChildReads {
        let (socket, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(answer).unwrap();
        let child = Command::new("sleep").arg("infinity").stdin(OwnedFd::from(theirs)).spawn();
        let reader = Reader { child: child.unwrap(), socket };
        ChildReads { reader: Some(reader), hanging: Vec::new() }
    }

    /// Reads by a thread in place of a child.
    pub(crate) fn answering(disk: OwnedFd) -> ChildReads {
        let (socket, mut theirs) = UnixStream::pair().unwrap();
        std::thread::spawn(move || serve(&mut theirs, disk.as_fd()));
        let child = Command::new("true").spawn().unwrap();
        ChildReads { reader: Some(Reader { child, socket }), hanging: Vec::new() }
    }

    pub(crate) fn disk(content: &[u8]) -> OwnedFd {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        file.rewind().unwrap();
        file.into()
    }

    #[test]
    fn bytes_and_errors_of_the_disk_come_back() {
        let disk = disk(b"0123456789");
        let mut reads = answering(disk.try_clone().unwrap());
        let mut read = |at, len| reads.read(disk.as_fd(), (at, len), None, &mut || ());
        assert_eq!(read(2, 3).unwrap(), b"234");
        assert_eq!(read(8, 5).unwrap(), b"89", "up to the end");
        let Err(ReadFault::Disk(error)) = read(u64::MAX, 1) else { panic!("no such offset") };
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert_eq!(read(0, 1).unwrap(), b"0", "the child reads on after an error");
    }

    #[test]
    fn a_child_that_does_not_answer_is_killed_and_left_behind() {
        let disk = disk(b"0123456789");
        let mut reads = silent();
        let limit = Some(Duration::from_millis(1));
        let result = reads.read(disk.as_fd(), (0, 1), limit, &mut || ());
        assert!(matches!(result, Err(ReadFault::TimedOut)), "{result:?}");
        assert!(reads.reader.is_none());
        // This child is killed. A child in a read that hangs would survive the kill.
        let _ = reads.hanging[0].child.wait();
        assert_eq!(reads.hanging(), 0);
    }

    #[test]
    fn a_child_that_has_ended_is_no_error_of_the_disk() {
        let disk = disk(b"0123456789");
        let mut reads = answering(disk.try_clone().unwrap());
        reads.reader.as_ref().unwrap().socket.shutdown(std::net::Shutdown::Both).unwrap();
        let result = reads.read(disk.as_fd(), (0, 1), None, &mut || ());
        assert!(matches!(result, Err(ReadFault::Child(_))), "{result:?}");
        assert!(reads.reader.is_none(), "the next read starts another one");
    }
}
