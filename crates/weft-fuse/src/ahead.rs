//! Readahead: sequential readers get more at once than the 128 KiB that the kernel asks for, and
//! what they ask for next is read while they use what they have.
//!
//! A read that begins where the last one ended is extended beyond its end, to twice the size each
//! time. Once the bytes in memory are fewer than such a reader asks for at once, more are read,
//! after the answer. In the range of an extended read that failed, only the requested bytes are
//! read.
//!
//! Content that comes from memory is read in parts that fit into the processor's cache: `dd` of the
//! image of a RAID 5 in `/dev/shm`, on a mount that the kernel does not cache, was slower with
//! parts of 4 MiB than with 1 MiB, and as slow with 512 KiB, which are less than a request of the
//! kernel. Disks are read in larger parts, because these occupy all members of an array.

use std::ops::Range;
use std::time::{Duration, Instant};

/// Bytes of a file in memory, and the position of its reader.
#[derive(Default)]
struct Stream {
    number: u64,
    /// Offset in the file of the first byte in memory.
    start: u64,
    bytes: Vec<u8>,
    /// Offset of the end of the last read: a read that begins there is sequential.
    next: u64,
    /// Length of the last read in bytes.
    len: usize,
    /// Whether the last read began where the one before it had ended.
    goes_on: bool,
    /// Whether the last bytes came slower than from memory.
    is_slow: bool,
    /// Range in which nothing is read ahead: that of the last extended read that failed.
    faulty: Range<u64>,
    used: u64,
}

/// Readahead of a few files; a new file replaces the least recently used one.
pub(crate) struct Ahead {
    streams: Vec<Stream>,
    /// Number of reads so far, which dates the use of streams.
    reads: u64,
    now: Box<dyn FnMut() -> Instant>,
}

/// Function that fills a buffer with the bytes of a file from an offset on.
pub(crate) type Fetch<'f, E> = dyn FnMut(u64, &mut [u8]) -> Result<(), E> + 'f;

impl Ahead {
    /// Readahead that takes the time of reads by this clock.
    pub(crate) fn new(now: impl FnMut() -> Instant + 'static) -> Self {
        Self { streams: Vec::new(), reads: 0, now: Box::new(now) }
    }

    /// Brings the `len` bytes from `offset` of the file with the number `number` into memory, where
    /// [`Self::held`] finds them. The file has `size` bytes, and the range lies before its end.
    ///
    /// # Errors
    /// `fetch` fails for the requested bytes themselves; a fault in bytes that are read ahead is no
    /// error.
    pub(crate) fn hold<E>(
        &mut self,
        number: u64,
        offset: u64,
        len: usize,
        size: u64,
        fetch: &mut Fetch<'_, E>,
    ) -> Result<(), E> {
        self.reads += 1;
        let used = self.reads;
        let (stream, now) = self.stream(number);
        stream.used = used;
        let end = offset + len as u64;
        stream.goes_on = offset == stream.next && offset > 0;
        (stream.next, stream.len) = (end, len);
        if stream.holds(offset, end) {
            return Ok(());
        }
        let missing = len - stream.kept(offset);
        let part = match stream.goes_on && !stream.faulty.contains(&offset) {
            true => stream.part(size - (end - missing as u64)).max(missing),
            false => missing,
        };
        match stream.fill(offset, part, now, fetch) {
            Err(_) if part > missing => {
                stream.faulty = offset..end - missing as u64 + part as u64;
                stream.fill(offset, missing, now, fetch)
            }
            result => result,
        }
    }

    /// Reads on behind a sequential reader if memory has fewer bytes than it asks for at once.
    pub(crate) fn read_on<E>(&mut self, number: u64, size: u64, fetch: &mut Fetch<'_, E>) {
        let found = self.streams.iter_mut().find(|stream| stream.number == number);
        let Some(stream) = found.filter(|stream| stream.goes_on) else { return };
        let (next, end) = (stream.next, stream.end());
        let is_low = end >= next && end - next < stream.len as u64;
        if !is_low || end >= size || stream.faulty.contains(&next) {
            return;
        }
        let part = stream.part(size - end);
        // A fault is no error: its bytes may never be asked for.
        if stream.fill(next, part, &mut *self.now, fetch).is_err() {
            stream.faulty = next..end + part as u64;
        }
    }

    /// The `len` bytes from `offset` of a file, after [`Self::hold`] has brought them into memory;
    /// empty if they are not there.
    pub(crate) fn held(&self, number: u64, offset: u64, len: usize) -> &[u8] {
        let stream = self.streams.iter().find(|stream| stream.number == number);
        let bytes = stream.and_then(|stream| {
            let at = usize::try_from(offset.checked_sub(stream.start)?).ok()?;
            stream.bytes.get(at..at.checked_add(len)?)
        });
        bytes.unwrap_or_default()
    }

    /// Drops the bytes of a file from memory.
    pub(crate) fn drop_of(&mut self, number: u64) {
        self.streams.retain(|stream| stream.number != number);
    }

    /// The stream of a file, and the clock.
    fn stream(&mut self, number: u64) -> (&mut Stream, &mut dyn FnMut() -> Instant) {
        let found = self.streams.iter().position(|stream| stream.number == number);
        let at = found.unwrap_or_else(|| {
            let new = Stream { number, ..Stream::default() };
            if self.streams.len() < STREAMS_MAX {
                self.streams.push(new);
                return self.streams.len() - 1;
            }
            let ages = self.streams.iter().enumerate().map(|(at, stream)| (stream.used, at));
            let oldest = ages.min().map_or(0, |(_, at)| at);
            self.streams[oldest] = new;
            oldest
        });
        (&mut self.streams[at], &mut self.now)
    }
}

impl Stream {
    fn holds(&self, offset: u64, end: u64) -> bool {
        self.start <= offset && end <= self.end()
    }

    /// Offset of the end of the bytes in memory.
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// Number of bytes in memory from `offset` on.
    fn kept(&self, offset: u64) -> usize {
        match self.start <= offset {
            true => usize::try_from(self.end().saturating_sub(offset)).unwrap_or(0),
            false => 0,
        }
    }

    /// Bytes that a sequential reader is given at once, of the `left` bytes up to the end of the
    /// file: twice as many as the last time.
    fn part(&self, left: u64) -> usize {
        let most = if self.is_slow { SLOW_PART_MAX } else { PART_MAX };
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        (2 * self.bytes.len()).min(most).min(left)
    }

    /// Drops the bytes before `offset` from memory, and reads `len` bytes behind those that are
    /// kept. If that fails, none are added.
    fn fill<E>(
        &mut self,
        offset: u64,
        len: usize,
        now: &mut dyn FnMut() -> Instant,
        fetch: &mut Fetch<'_, E>,
    ) -> Result<(), E> {
        let kept = self.kept(offset);
        let from = self.bytes.len() - kept;
        self.bytes.copy_within(from.., 0);
        self.bytes.resize(kept + len, 0);
        self.start = offset;
        let begin = now();
        let result = fetch(offset + kept as u64, &mut self.bytes[kept..]);
        let took = now().saturating_duration_since(begin);
        self.is_slow = took.as_nanos() * (1 << 20) > SLOW_PER_MIB.as_nanos() * len as u128;
        if result.is_err() {
            self.bytes.truncate(kept);
        }
        result
    }
}

/// Largest part that is read ahead from memory, in bytes: the largest request of the kernel.
const PART_MAX: usize = 1 << 20;
/// Largest part that is read ahead from disks, in bytes: the same as in a copy of files, and
/// several full stripes of common arrays.
const SLOW_PART_MAX: usize = 4 << 20;
/// Time for each MiB from which on content comes from disks and not from memory: 1 GiB/s are more
/// than most arrays of disks have.
const SLOW_PER_MIB: Duration = Duration::from_millis(1);
/// Largest number of files that are read ahead at once, each with up to [`SLOW_PART_MAX`] bytes and
/// one request in memory: 40 MiB in all.
const STREAMS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    /// Readahead of a file of 32 MiB with a bad byte, and the reads of that file.
    struct File {
        ahead: Ahead,
        now: Rc<Cell<Instant>>,
        /// Time that the reads take, for each MiB.
        takes: Duration,
        bad: u64,
        /// Offset and length of each read, and whether a program waited for it.
        reads: Vec<(u64, usize, bool)>,
    }

    const SIZE: u64 = 32 << 20;

    impl File {
        fn new(bad: u64, takes: Duration) -> Self {
            let now = Rc::new(Cell::new(Instant::now()));
            let clock = Rc::clone(&now);
            Self { ahead: Ahead::new(move || clock.get()), now, takes, bad, reads: Vec::new() }
        }

        /// A read of a program, and what is read after its answer.
        fn read(&mut self, offset: u64, len: usize) -> Result<(), ()> {
            let Self { ahead, now, takes, bad, reads } = self;
            let mut fetch = |at: u64, into: &mut [u8], waits: bool| {
                reads.push((at, into.len(), waits));
                now.set(now.get() + takes.mul_f64(into.len() as f64 / f64::from(1 << 20)));
                if (at..at + into.len() as u64).contains(bad) {
                    return Err(());
                }
                let byte = |at: u64| u8::try_from(at / 1000 % 251).unwrap();
                into.iter_mut().zip(at..).for_each(|(into, at)| *into = byte(at));
                Ok(())
            };
            ahead.hold(7, offset, len, SIZE, &mut |at, into| fetch(at, into, true))?;
            let bytes = ahead.held(7, offset, len);
            assert_eq!(bytes.len(), len);
            let is_right = |(byte, at): (&u8, u64)| u64::from(*byte) == at / 1000 % 251;
            assert!(bytes.iter().zip(offset..).all(is_right));
            ahead.read_on(7, SIZE, &mut |at, into| fetch(at, into, false));
            Ok(())
        }
    }

    const LEN: usize = 128 << 10;
    const MEMORY: Duration = Duration::from_micros(200);
    const DISKS: Duration = Duration::from_millis(2);

    #[test]
    fn a_reader_that_reads_on_waits_twice_and_gets_every_byte() {
        for (takes, most, len) in [
            (MEMORY, PART_MAX, LEN),
            (DISKS, SLOW_PART_MAX, LEN),
            (MEMORY, PART_MAX, 100_000),
            (DISKS, SLOW_PART_MAX, 1_000_000),
        ] {
            let mut file = File::new(u64::MAX, takes);
            for offset in (0..SIZE).step_by(len) {
                let left = usize::try_from(SIZE - offset).unwrap();
                file.read(offset, len.min(left)).unwrap();
            }
            let waited: Vec<u64> = file.reads.iter().filter(|it| it.2).map(|it| it.0).collect();
            assert_eq!(waited, [0, len as u64], "{takes:?}");
            assert_eq!(file.reads.iter().map(|it| it.1).max(), Some(most), "{takes:?}");
            let mut next = 0;
            for (at, len, _) in &file.reads {
                assert_eq!(*at, next, "nothing is read twice, or left out");
                next += *len as u64;
            }
            assert_eq!(next, SIZE, "nothing is read beyond the end");
        }
    }

    #[test]
    fn a_reader_that_leaps_causes_the_reads_that_it_asks_for() {
        let mut file = File::new(u64::MAX, MEMORY);
        for offset in [20 << 20, 3 << 20, 9 << 20, 0] {
            file.read(offset, 4096).unwrap();
        }
        let own = |at: u64| (at, 4096, true);
        assert_eq!(file.reads, [own(20 << 20), own(3 << 20), own(9 << 20), own(0)]);
    }

    #[test]
    fn a_fault_ahead_of_the_reader_is_none_of_its_reads() {
        let mut file = File::new((8 << 20) + 5, MEMORY);
        let mut lost = Vec::new();
        for offset in (0..SIZE).step_by(LEN) {
            if file.read(offset, LEN).is_err() {
                lost.push(offset);
            }
        }
        assert_eq!(lost, [8 << 20]);
        let failed = file.reads.iter().filter(|it| (it.0..it.0 + it.1 as u64).contains(&file.bad));
        let ways: Vec<bool> = failed.map(|it| it.2).collect();
        assert_eq!(ways, [false, true], "once ahead, and once when it was asked for");
        assert!(file.reads.len() < 80, "{}", file.reads.len());
    }

    #[test]
    fn a_fault_behind_the_bytes_of_a_read_is_none_of_it() {
        let mut file = File::new((256 << 10) + 5, MEMORY);
        for offset in [0, LEN as u64] {
            file.read(offset, LEN).unwrap();
        }
        let next = LEN as u64;
        assert_eq!(file.reads, [(0, LEN, true), (next, 2 * LEN, true), (next, LEN, true)]);
    }

    #[test]
    fn files_beyond_the_bound_and_dropped_ones_are_read_again() {
        let mut ahead = Ahead::new(Instant::now);
        let mut count = 0;
        for number in (0..STREAMS_MAX as u64 + 1).chain([0, 1]) {
            let mut fetch = |_: u64, _: &mut [u8]| {
                count += 1;
                Ok::<(), ()>(())
            };
            ahead.hold(number, 0, 100, 200, &mut fetch).unwrap();
        }
        assert_eq!((count, ahead.streams.len()), (STREAMS_MAX + 3, STREAMS_MAX));
        assert_eq!((ahead.held(1, 0, 100).len(), ahead.held(1, 1, 100)), (100, &[][..]));
        ahead.drop_of(1);
        assert_eq!((ahead.held(1, 0, 100), ahead.streams.len()), (&[][..], STREAMS_MAX - 1));
    }
}
