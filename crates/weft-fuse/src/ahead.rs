//! Readahead: sequential readers get more at once than the 128 KiB that the kernel asks for.
//!
//! A read that begins where the last one ended is extended beyond its end, to twice the size each
//! time. After a fault only the requested bytes are read, up to the end of the range that failed.

/// Bytes of a file in memory, and the position of its reader.
#[derive(Default)]
struct Stream {
    number: u64,
    /// Offset in the file of the first byte in memory.
    start: u64,
    bytes: Vec<u8>,
    /// Offset of the end of the last read: a read that begins there is sequential.
    next: u64,
    /// Offset up to which nothing is read ahead: the end of an extended read that failed.
    slow_until: u64,
    used: u64,
}

/// Readahead of a few files; a new file replaces the least recently used one.
#[derive(Default)]
pub(crate) struct Ahead {
    streams: Vec<Stream>,
    clock: u64,
}

/// Function that fills a buffer with the bytes of a file from an offset on.
pub(crate) type Fetch<'f, E> = dyn FnMut(u64, &mut [u8]) -> Result<(), E> + 'f;

impl Ahead {
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
        self.clock += 1;
        let clock = self.clock;
        let stream = self.stream(number);
        stream.used = clock;
        let end = offset + len as u64;
        let goes_on = offset == stream.next && offset > 0;
        stream.next = end;
        if !stream.holds(offset, end) {
            let more = match goes_on && offset >= stream.slow_until {
                true => (2 * stream.bytes.len().max(len)).min(AHEAD_MAX.max(len)),
                false => len,
            };
            let more = more.min(usize::try_from(size - offset).unwrap_or(usize::MAX));
            stream.fill(offset, len, more, fetch)?;
        }
        Ok(())
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

    fn stream(&mut self, number: u64) -> &mut Stream {
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
        &mut self.streams[at]
    }
}

impl Stream {
    fn holds(&self, offset: u64, end: u64) -> bool {
        self.start <= offset && end <= self.start + self.bytes.len() as u64
    }

    /// Reads `more` bytes from `offset` into memory; if that fails, only the first `len` of them.
    /// If these fail, too, the stream has no bytes in memory.
    fn fill<E>(
        &mut self,
        offset: u64,
        len: usize,
        more: usize,
        fetch: &mut Fetch<'_, E>,
    ) -> Result<(), E> {
        self.start = offset;
        self.bytes.resize(more, 0);
        let result = match fetch(offset, &mut self.bytes) {
            Err(_) if more > len => {
                self.slow_until = offset + more as u64;
                self.bytes.truncate(len);
                fetch(offset, &mut self.bytes)
            }
            result => result,
        };
        if result.is_err() {
            self.bytes.clear();
        }
        result
    }
}

/// Largest size of an extended read, in bytes: the same as in a copy of files, and several full
/// stripes of common arrays.
const AHEAD_MAX: usize = 4 << 20;
/// Largest number of files that are read ahead at once, each with up to [`AHEAD_MAX`] bytes in
/// memory: 32 MiB in all.
const STREAMS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads of a file of 32 MiB with a bad byte.
    struct File {
        bad: u64,
        reads: Vec<(u64, usize)>,
    }

    const SIZE: u64 = 32 << 20;

    impl File {
        fn read(&mut self, ahead: &mut Ahead, offset: u64, len: usize) -> Result<(), ()> {
            let (bad, reads) = (self.bad, &mut self.reads);
            let mut fetch = |at: u64, into: &mut [u8]| {
                reads.push((at, into.len()));
                if (at..at + into.len() as u64).contains(&bad) {
                    return Err(());
                }
                let byte = |at: u64| u8::try_from(at / 1000 % 251).unwrap();
                into.iter_mut().zip(at..).for_each(|(into, at)| *into = byte(at));
                Ok(())
            };
            ahead.hold(7, offset, len, SIZE, &mut fetch)?;
            let bytes = ahead.held(7, offset, len);
            assert_eq!(bytes.len(), len);
            let is_right = |(byte, at): (&u8, u64)| u64::from(*byte) == at / 1000 % 251;
            assert!(bytes.iter().zip(offset..).all(is_right));
            Ok(())
        }
    }

    const LEN: usize = 128 << 10;

    #[test]
    fn a_reader_that_reads_on_causes_few_long_reads_and_gets_every_byte() {
        let (mut ahead, mut file) = (Ahead::default(), File { bad: u64::MAX, reads: Vec::new() });
        for offset in (0..SIZE).step_by(LEN) {
            file.read(&mut ahead, offset, LEN).unwrap();
        }
        assert!(file.reads.len() < 20, "{:?}", file.reads);
        let sum: usize = file.reads.iter().map(|(_, len)| len).sum();
        assert_eq!(sum as u64, SIZE, "nothing is read twice or beyond the end");
        file.reads.clear();
        for offset in [20 << 20, 3 << 20, 9 << 20] {
            file.read(&mut ahead, offset, 4096).unwrap();
        }
        assert_eq!(file.reads, [(20 << 20, 4096), (3 << 20, 4096), (9 << 20, 4096)]);
    }

    #[test]
    fn a_fault_ahead_of_the_reader_is_none_of_its_reads() {
        let bad = (8 << 20) + 5;
        let (mut ahead, mut file) = (Ahead::default(), File { bad, reads: Vec::new() });
        let mut lost = Vec::new();
        for offset in (0..SIZE).step_by(LEN) {
            if file.read(&mut ahead, offset, LEN).is_err() {
                lost.push(offset);
            }
        }
        assert_eq!(lost, [8 << 20]);
        assert!(file.reads.len() < 80, "{}", file.reads.len());
    }

    #[test]
    fn files_beyond_the_bound_and_dropped_ones_are_read_again() {
        let mut ahead = Ahead::default();
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
