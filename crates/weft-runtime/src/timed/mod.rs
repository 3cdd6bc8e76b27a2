//! Reads with a time limit, of disks that hang.
//!
//! A read that takes longer than the limit fails with `ETIMEDOUT`. The array treats it like a read
//! of an unreadable sector, and reads the data from the other members. The range of such a read is
//! remembered for its disk, however often the disk is opened. A read that contains the whole range
//! fails at once; a shorter read within the range is tried, and if it times out too, its range
//! replaces the longer one. A disk with eight such ranges is not read any more.
//!
//! Only files that are open for reading have a limit; writes never pass through here.

mod child;

use std::fmt;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fs::Advice;
use rustix::io::Errno;

use crate::identity::Identity;

pub use child::{ChildReads, ReadFault, reader};

/// Time limit for reads, and the disks that exceeded it.
pub struct ReadTimeout {
    limit: Duration,
    notice: fn(&str),
    disks: Mutex<Vec<(Identity, Arc<TimedDisk>)>>,
}

/// Reads of a disk that took longer than the limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimedOut {
    /// Name of the disk.
    pub disk: String,
    /// Number of reads of the disk that took longer than the limit.
    pub reads: usize,
    /// Byte ranges of the reads, in ascending order. A range that contains another one is left out.
    pub ranges: Vec<Range<u64>>,
}

/// A file or device with a time limit for its reads.
pub struct TimedFile {
    file: OwnedFd,
    reads: Mutex<ChildReads>,
    timeout: Arc<ReadTimeout>,
    disk: Arc<TimedDisk>,
}

/// A disk, which may be open several times, with its reads that timed out.
struct TimedDisk {
    timed_out: Mutex<TimedOut>,
}

impl ReadTimeout {
    /// Creates a time limit. `notice` gets a sentence for each read that exceeds the limit, for
    /// each failure of a process that reads, and for each disk that is not read any more.
    #[must_use]
    pub fn new(limit: Duration, notice: fn(&str)) -> Self {
        Self { limit, notice, disks: Mutex::default() }
    }

    /// Time limit of each read.
    #[must_use]
    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// Disks with reads that took longer than the limit, in the order in which they were opened.
    #[must_use]
    pub fn timed_out(&self) -> Vec<TimedOut> {
        let disks = lock(&self.disks);
        let timed_out = disks.iter().map(|(_, disk)| {
            let mut timed_out = lock(&disk.timed_out).clone();
            timed_out.ranges.sort_by_key(|range| range.start);
            timed_out
        });
        timed_out.filter(|timed_out| timed_out.reads > 0).collect()
    }

    /// Returns the record of a disk. A disk that is known already, under this or another name,
    /// keeps its record.
    fn disk(&self, file: &OwnedFd, name: &str) -> Result<Arc<TimedDisk>, Errno> {
        let identity = Identity::of(file)?;
        let mut disks = lock(&self.disks);
        if let Some((_, disk)) = disks.iter().find(|(known, _)| *known == identity) {
            return Ok(Arc::clone(disk));
        }
        let timed_out = TimedOut { disk: name.to_owned(), reads: 0, ranges: Vec::new() };
        let disk = Arc::new(TimedDisk { timed_out: Mutex::new(timed_out) });
        disks.push((identity, Arc::clone(&disk)));
        Ok(disk)
    }
}

impl TimedOut {
    /// Whether the disk is not read any more, because too many reads have timed out.
    #[must_use]
    pub fn is_given_up(&self) -> bool {
        self.ranges.len() >= PLACES_MAX
    }

    /// Whether a read fails without being tried: the disk was given up, or the read contains a
    /// whole range that has timed out.
    fn refuses(&self, range: &Range<u64>) -> bool {
        self.is_given_up() || self.ranges.iter().any(|known| has_all(range, known))
    }

    fn add(&mut self, range: Range<u64>) {
        self.reads += 1;
        self.ranges.retain(|known| !has_all(known, &range));
        self.ranges.push(range);
    }
}

impl TimedFile {
    /// Adds the limit to reads of a file that is open for reading; `name` names it in notices.
    pub(crate) fn new(
        timeout: &Arc<ReadTimeout>,
        file: impl AsFd,
        name: &str,
    ) -> std::io::Result<Self> {
        let file = file.as_fd().try_clone_to_owned()?;
        let disk = timeout.disk(&file, name)?;
        // An error is ignored: without the advice more is read ahead, and may hang.
        let _ = rustix::fs::fadvise(&file, 0, None, Advice::Random);
        Ok(Self { file, reads: Mutex::default(), timeout: Arc::clone(timeout), disk })
    }

    /// Reads from byte `at` on, like `pread`, and returns the number of bytes. Fails with
    /// `ETIMEDOUT` if the read takes longer than the limit, or is refused because earlier reads
    /// have timed out. Concurrent reads of one file run one after the other.
    pub(crate) fn read_at(&self, into: &mut [u8], at: u64) -> Result<usize, Errno> {
        let range = at..at.saturating_add(into.len() as u64);
        let mut reads = lock(&self.reads);
        if lock(&self.disk.timed_out).refuses(&range) {
            return Err(Errno::TIMEDOUT);
        }
        let place = (at, into.len());
        match reads.read(self.file.as_fd(), place, Some(self.timeout.limit), &mut || ()) {
            Ok(bytes) => {
                into[..bytes.len()].copy_from_slice(&bytes);
                Ok(bytes.len())
            }
            Err(ReadFault::Disk(error)) => Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
            Err(ReadFault::Child(error)) => {
                let name = lock(&self.disk.timed_out).disk.clone();
                (self.timeout.notice)(&format!("{name}: the process that reads it: {error}"));
                Err(Errno::IO)
            }
            Err(ReadFault::TimedOut) => {
                self.on_timed_out(range);
                Err(Errno::TIMEDOUT)
            }
        }
    }

    /// Records a read that took longer than the limit, and sends the notices about it.
    fn on_timed_out(&self, range: Range<u64>) {
        let mut timed_out = lock(&self.disk.timed_out);
        timed_out.add(range.clone());
        let (name, limit) = (&timed_out.disk, self.timeout.limit.as_secs());
        (self.timeout.notice)(&format!(
            "{name}: read of {} bytes at byte {}: no answer in {limit} s; taken for unreadable",
            range.end - range.start,
            range.start
        ));
        if timed_out.is_given_up() {
            (self.timeout.notice)(&format!(
                "{name}: {PLACES_MAX} places gave no answer in {limit} s; it is not read any more"
            ));
        }
    }
}

impl fmt::Debug for TimedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimedFile").field("file", &self.file).finish_non_exhaustive()
    }
}

impl fmt::Debug for ReadTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadTimeout").field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl PartialEq for ReadTimeout {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for ReadTimeout {}

/// Reads a file from byte `at` on, like `pread`, within its time limit if it has one.
fn read_at(
    file: impl AsFd,
    timed: Option<&Arc<TimedFile>>,
    into: &mut [u8],
    at: u64,
) -> Result<usize, Errno> {
    match timed {
        Some(timed) => timed.read_at(into, at),
        None => rustix::io::pread(file, into, at),
    }
}

/// Reads a file from byte `at` on until `into` is full, within its time limit if it has one.
pub(crate) fn read_exact_at(
    file: impl AsFd,
    timed: Option<&Arc<TimedFile>>,
    mut into: &mut [u8],
    mut at: u64,
) -> std::io::Result<()> {
    while !into.is_empty() {
        match read_at(&file, timed, into, at) {
            Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                into = &mut into[count..];
                at += count as u64;
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

fn has_all(range: &Range<u64>, of: &Range<u64>) -> bool {
    range.start <= of.start && of.end <= range.end
}

/// Locks shared data, which is consistent after every statement.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Number of ranges that timed out after which a disk is not read any more. Each range costs the
/// time limit once. If no other disk has the data, shorter reads look for the readable parts of the
/// range, and it costs the limit several times.
const PLACES_MAX: usize = 8;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::cell::RefCell;

    thread_local! {
        static SAID: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    }

    fn say(text: &str) {
        SAID.with_borrow_mut(|said| said.push(text.to_owned()));
    }

    fn timeout() -> Arc<ReadTimeout> {
        Arc::new(ReadTimeout::new(Duration::from_millis(1), say))
    }

    fn open(timeout: &Arc<ReadTimeout>, disk: &OwnedFd, reads: ChildReads) -> TimedFile {
        let mut file = TimedFile::new(timeout, disk, "disk").unwrap();
        file.reads = Mutex::new(reads);
        file
    }

    /// A file with reads that succeed, within a limit that is never reached.
    pub(crate) fn answering(content: &[u8]) -> TimedFile {
        let disk = child::tests::disk(content);
        let timeout = Arc::new(ReadTimeout::new(Duration::from_secs(600), say));
        open(&timeout, &disk, child::tests::answering(disk.try_clone().unwrap()))
    }

    /// A file with a first read that times out.
    pub(crate) fn silent() -> TimedFile {
        open(&timeout(), &child::tests::disk(b"0123456789"), child::tests::silent())
    }

    /// Checks that a read times out.
    fn times_out(file: &TimedFile, range: Range<u64>) {
        *lock(&file.reads) = child::tests::silent();
        let before = file.disk.reads();
        assert_eq!(read(file, range), Err(Errno::TIMEDOUT));
        assert_eq!(file.disk.reads(), before + 1, "it was tried");
    }

    /// Checks that a read fails without being tried.
    fn is_refused(file: &TimedFile, range: Range<u64>) {
        let before = file.disk.reads();
        assert_eq!(read(file, range), Err(Errno::TIMEDOUT));
        assert_eq!(file.disk.reads(), before);
    }

    fn read(file: &TimedFile, range: Range<u64>) -> Result<Vec<u8>, Errno> {
        let mut bytes = vec![0; usize::try_from(range.end - range.start).unwrap()];
        file.read_at(&mut bytes, range.start).map(|count| bytes[..count].to_vec())
    }

    impl TimedDisk {
        fn reads(&self) -> usize {
            lock(&self.timed_out).reads
        }
    }

    #[test]
    fn what_timed_out_is_not_asked_again_and_parts_of_it_are() {
        let (timeout, disk) = (timeout(), child::tests::disk(b"0123456789"));
        let file = open(&timeout, &disk, ChildReads::default());
        times_out(&file, 2..8);
        is_refused(&file, 2..8);
        is_refused(&file, 0..9);
        times_out(&file, 4..6);
        is_refused(&file, 3..6);
        // The disk opened a second time: its reads succeed, but the ranges are remembered.
        let second = open(&timeout, &disk, child::tests::read_before(b"5678"));
        is_refused(&second, 2..8);
        assert_eq!(read(&second, 5..9).unwrap(), b"5678");
        let ranges = std::iter::once(4..6).collect();
        let expected = TimedOut { disk: "disk".to_owned(), reads: 2, ranges };
        assert_eq!(timeout.timed_out(), [expected]);
        SAID.with_borrow(|said| {
            assert_eq!(said.len(), 2, "{said:?}");
            assert!(
                said[0].starts_with("disk: read of 6 bytes at byte 2: no answer in"),
                "{said:?}"
            );
        });
    }

    #[test]
    fn after_eight_places_that_time_out_a_disk_is_given_up_and_others_are_not() {
        let (timeout, disk) = (timeout(), child::tests::disk(b"0123456789"));
        let other_disk = child::tests::disk(b"abcdefghij");
        let other = open(&timeout, &other_disk, child::tests::read_before(b"abc"));
        let file = open(&timeout, &disk, ChildReads::default());
        for at in 0..8 {
            assert!(!timeout.timed_out().iter().any(TimedOut::is_given_up), "{at}");
            times_out(&file, at..at + 1);
        }
        is_refused(&file, 9..10);
        is_refused(&open(&timeout, &disk, ChildReads::default()), 8..9);
        assert_eq!(read(&other, 0..3).unwrap(), b"abc");
        let timed_out = timeout.timed_out();
        assert_eq!((timed_out.len(), timed_out[0].is_given_up()), (1, true));
        SAID.with_borrow(|said| {
            assert_eq!(said.len(), 9, "{said:?}");
            assert!(said[8].contains("8 places gave no answer"), "{said:?}");
        });
    }
}
