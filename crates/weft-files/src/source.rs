//! Bytes that can be read at any offset: an array, a part of one, a logical volume.
//!
//! A [`Source`] reads all of a range or says which part of it cannot be read. [`Window`] is a part
//! of a source; [`Cached`] keeps lines of it, because file systems read small structures that lie
//! beside each other.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use thiserror::Error;

/// Range of a source that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("bytes {}..{}: {why}", range.start, range.end)]
pub struct ReadError {
    /// Byte range in the source that was asked for.
    pub range: Range<u64>,
    /// Cause, as a message for the user.
    pub why: String,
}

/// Bytes that can be read at any offset.
pub trait Source {
    /// Length in bytes.
    fn size(&self) -> u64;

    /// Fills `into` with the bytes from `offset`.
    ///
    /// # Errors
    /// A part of the range lies beyond the end or cannot be read; the content of `into` is
    /// undefined then.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), ReadError>;
}

/// Shared source: a volume and the windows over it are read in turn by one thread.
pub type Shared = Rc<dyn Source>;

/// Bytes `offset..offset + len` of a source, as a vector.
///
/// # Errors
/// The errors of [`Source::read_at`]. A range beyond the end allocates nothing.
pub fn read_vec(source: &dyn Source, offset: u64, len: u64) -> Result<Vec<u8>, ReadError> {
    let range = inside(source.size(), offset, len)?;
    let count = usize::try_from(range.end - range.start).unwrap_or(0);
    let mut bytes = vec![0; count];
    source.read_at(offset, &mut bytes)?;
    Ok(bytes)
}

/// Range of `len` bytes from `offset` on; an error if it does not lie within `size` bytes.
pub(crate) fn inside(size: u64, offset: u64, len: u64) -> Result<Range<u64>, ReadError> {
    let end = offset.saturating_add(len);
    if end > size {
        let why = format!("found the end at byte {size}, expected {end} bytes");
        return Err(ReadError { range: offset..end, why });
    }
    Ok(offset..end)
}

/// Bytes in memory, for tests and for ranges that were read before.
impl Source for Vec<u8> {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), ReadError> {
        let range = inside(self.size(), offset, into.len() as u64)?;
        let start = usize::try_from(range.start).unwrap_or(usize::MAX);
        copy_part(self, start, into).map_err(|why| ReadError { range, why })
    }
}

/// Byte range of a source, as a source of its own.
pub struct Window {
    of: Shared,
    start: u64,
    len: u64,
}

impl Window {
    /// The bytes `start..start + len` of a source. Bytes beyond the end of the source cannot be
    /// read.
    #[must_use]
    pub fn new(of: Shared, start: u64, len: u64) -> Self {
        Self { of, start, len }
    }
}

impl Source for Window {
    fn size(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), ReadError> {
        inside(self.len, offset, into.len() as u64)?;
        let below = self.start.saturating_add(offset);
        self.of.read_at(below, into).map_err(|error| moved(error, below, offset))
    }
}

/// Converts the error of a read at `below` in a lower source to that of a read at `above`.
pub(crate) fn moved(error: ReadError, below: u64, above: u64) -> ReadError {
    let up = |at: u64| above.saturating_add(at.saturating_sub(below));
    ReadError { range: up(error.range.start)..up(error.range.end), why: error.why }
}

/// Source with a cache in memory of lines, which are aligned ranges of 64 KiB, and with a list of
/// ranges that cannot be read.
///
/// A disk that fails takes seconds for each attempt, and each attempt may damage it further. If a
/// line cannot be read at once, each of its blocks is read once. The blocks that cannot be read are
/// remembered with the cause and are not read again, however often they are asked for.
pub struct Cached {
    of: Shared,
    lines: RefCell<Lines>,
}

#[derive(Default)]
struct Lines {
    /// Lines by number, each with the time of its last use. Blocks of `bad` are zeros in them.
    kept: BTreeMap<u64, (u64, Vec<u8>)>,
    clock: u64,
    /// Ranges that cannot be read, by their first byte, each with its end and the cause.
    bad: BTreeMap<u64, (u64, String)>,
    /// Number of the line before which lines are read one at a time, because a longer read has
    /// failed there.
    slow_until: u64,
}

/// Number of bytes of a line, the unit of the cache. A disk needs about as long for a line as for
/// one block.
const LINE_BYTES: u64 = 64 << 10;

/// Largest number of lines in the cache: 16 MiB.
const LINES_MAX: usize = 256;

/// Number of lines that are read at once if the line before them is in the cache: 1 MiB in all.
const AHEAD_LINES: u64 = 16;

/// Length in bytes of the shortest read that bypasses the cache. In the cache, contents of large
/// files would displace everything else.
const PAST_BYTES: u64 = 256 << 10;

/// Unit in bytes in which unreadable ranges are recorded: the block size of the arrays below.
pub(crate) const BLOCK_BYTES: usize = 4096;

/// Largest number of unreadable ranges that are remembered. Neighbours with the same cause are one.
const BAD_MAX: usize = 1 << 16;

impl Lines {
    /// First remembered fault in a range, cut to the range; `None` if no fault is known there.
    fn fault(&self, range: &Range<u64>) -> Option<ReadError> {
        let over = self.bad.range(..=range.start).next_back();
        let over = over.filter(|(_, (end, _))| *end > range.start);
        let (start, (end, why)) = over.or_else(|| self.bad.range(range.start..range.end).next())?;
        let range = (*start).max(range.start)..(*end).min(range.end);
        Some(ReadError { range, why: why.clone() })
    }

    /// Remembers a fault. Returns whether there was room for it.
    fn remember(&mut self, range: Range<u64>, why: String) -> bool {
        if let Some((_, (end, its))) = self.bad.range_mut(..range.end).next_back()
            && *end == range.start
            && *its == why
        {
            *end = range.end;
            return true;
        }
        let has_room = self.bad.len() < BAD_MAX;
        if has_room {
            self.bad.insert(range.start, (range.end, why));
        }
        has_room
    }

    /// Drops the less recently used half of the lines if the cache is full.
    fn make_room(&mut self) {
        if self.kept.len() >= LINES_MAX {
            // Half of the lines are dropped at once, so that the search for old lines is rare.
            let mut uses: Vec<u64> = self.kept.values().map(|(used, _)| *used).collect();
            uses.sort_unstable();
            let middle = uses.get(uses.len() / 2).copied().unwrap_or(self.clock);
            self.kept.retain(|_, (used, _)| *used > middle);
        }
    }
}

impl Cached {
    /// A cache over a source.
    #[must_use]
    pub fn new(of: Shared) -> Self {
        Self { of, lines: RefCell::default() }
    }

    /// Copies bytes of one line into `into`, from `offset` of the source on; reads the line if it
    /// is not in the cache.
    fn read_line(&self, offset: u64, into: &mut [u8]) -> Result<(), ReadError> {
        let number = offset / LINE_BYTES;
        let start = number * LINE_BYTES;
        let within = usize::try_from(offset - start).unwrap_or(0);
        let range = offset..offset + into.len() as u64;
        let mut lines = self.lines.borrow_mut();
        if let Some(fault) = lines.fault(&range) {
            return Err(fault);
        }
        let wrong = |why| ReadError { range: range.clone(), why };
        lines.clock += 1;
        let clock = lines.clock;
        if let Some((used, line)) = lines.kept.get_mut(&number) {
            *used = clock;
            return copy_part(line, within, into).map_err(wrong);
        }
        // A reader that needs the line after a cached one probably goes on: files of a folder lie
        // beside each other. Further lines are therefore read at once.
        let reads_on = number.checked_sub(1).is_some_and(|one| lines.kept.contains_key(&one));
        let ahead = if reads_on && number >= lines.slow_until { AHEAD_LINES } else { 1 };
        let mut line = self.read_lines(&mut lines, number, ahead);
        if line.is_none() && ahead > 1 {
            lines.slow_until = number + ahead;
            line = self.read_lines(&mut lines, number, 1);
        }
        let Some(line) = line.or_else(|| self.read_blocks(&mut lines, number)) else {
            return self.of.read_at(offset, into);
        };
        let result = match lines.fault(&range) {
            Some(fault) => Err(fault),
            None => copy_part(&line, within, into).map_err(wrong),
        };
        lines.make_room();
        lines.kept.insert(number, (clock, line));
        result
    }

    /// Reads `count` lines from `number` on, keeps the later ones and returns the first. `None` if
    /// one of them cannot be read.
    fn read_lines(&self, lines: &mut Lines, number: u64, count: u64) -> Option<Vec<u8>> {
        let start = number * LINE_BYTES;
        let len = (count * LINE_BYTES).min(self.size() - start);
        if lines.fault(&(start..start + len)).is_some() {
            return None;
        }
        let all = read_vec(&*self.of, start, len).ok()?;
        let clock = lines.clock;
        let mut parts = all.chunks(usize::try_from(LINE_BYTES).unwrap_or(usize::MAX));
        let first = parts.next()?.to_vec();
        lines.make_room();
        for (part, later) in parts.zip(number + 1..) {
            lines.kept.entry(later).or_insert_with(|| (clock, part.to_vec()));
        }
        Some(first)
    }

    /// Reads a line block by block. Blocks that cannot be read become zeros and are remembered;
    /// `None` if there is no room to remember them.
    fn read_blocks(&self, lines: &mut Lines, number: u64) -> Option<Vec<u8>> {
        let start = number * LINE_BYTES;
        let len = usize::try_from(LINE_BYTES.min(self.size() - start)).unwrap_or(0);
        let mut line = vec![0; len];
        let blocks = line.chunks_mut(BLOCK_BYTES);
        for (block, at) in blocks.zip((start..).step_by(BLOCK_BYTES)) {
            let range = at..at + block.len() as u64;
            if lines.fault(&range).is_some() {
                continue;
            }
            if let Err(error) = self.of.read_at(at, block) {
                block.fill(0);
                if !lines.remember(range, error.why) {
                    return None;
                }
            }
        }
        Some(line)
    }
}

/// Fills `into` with the bytes of `line` from index `within` on. Too few bytes are an error; they
/// are never filled up with zeros.
fn copy_part(line: &[u8], within: usize, into: &mut [u8]) -> Result<(), String> {
    let Some(from) = line.get(within..).and_then(|rest| rest.get(..into.len())) else {
        let (found, expected) = (line.len(), within.saturating_add(into.len()));
        return Err(format!("found {found} bytes in memory, expected {expected}"));
    };
    into.copy_from_slice(from);
    Ok(())
}

impl Source for Cached {
    fn size(&self) -> u64 {
        self.of.size()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), ReadError> {
        inside(self.size(), offset, into.len() as u64)?;
        if into.len() as u64 >= PAST_BYTES {
            let range = offset..offset + into.len() as u64;
            let known = self.lines.borrow().fault(&range);
            return known.map_or_else(|| self.of.read_at(offset, into), Err);
        }
        let mut done = 0;
        while done < into.len() {
            let at = offset + done as u64;
            let left = usize::try_from(LINE_BYTES - at % LINE_BYTES).unwrap_or(usize::MAX);
            let end = into.len().min(done.saturating_add(left));
            self.read_line(at, &mut into[done..end])?;
            done = end;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A source with one byte range that cannot be read, and the number of reads that met it.
    struct Holed(Vec<u8>, Range<u64>, Cell<usize>);

    impl Source for Holed {
        fn size(&self) -> u64 {
            self.0.size()
        }

        fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), ReadError> {
            let end = offset + into.len() as u64;
            if offset < self.1.end && self.1.start < end {
                self.2.set(self.2.get() + 1);
                return Err(ReadError { range: self.1.clone(), why: "bad".into() });
            }
            self.0.read_at(offset, into)
        }
    }

    fn holed(len: u32, bad: Range<u64>) -> Rc<Holed> {
        let bytes = (0..len).map(|i| u8::try_from(i * 7 % 251).unwrap()).collect();
        Rc::new(Holed(bytes, bad, Cell::new(0)))
    }

    #[test]
    fn a_window_reads_its_part_and_names_its_own_bytes_in_errors() {
        let bytes: Vec<u8> = (0..=255).collect();
        let window = Window::new(Rc::new(Holed(bytes, 100..110, Cell::new(0))), 50, 100);
        assert_eq!(read_vec(&window, 2, 3).unwrap(), [52, 53, 54]);
        assert_eq!(read_vec(&window, 40, 20).unwrap_err().range, 50..60);
        assert_eq!(read_vec(&window, 99, 2).unwrap_err().range, 99..101);
        assert!(read_vec(&window, u64::MAX, 2).is_err());
    }

    #[test]
    fn a_cache_gives_the_same_bytes_and_reads_around_a_bad_range() {
        let source = holed(700_000, 70_000..70_100);
        let cached = Cached::new(source.clone());
        // The block with the bad range is 69,632..73,728.
        for (offset, len) in [(0, 10), (65_530, 20), (60_000, 9_632), (73_728, 200_000)] {
            for _ in 0..2 {
                let read = read_vec(&cached, offset, len).unwrap();
                let start = usize::try_from(offset).unwrap();
                assert!(read[..] == source.0[start..start + read.len()], "{offset}+{len}");
            }
        }
        for (offset, len, lost) in [
            (70_050, 1, 70_050..70_051),
            (60_000, 20_000, 69_632..73_728),
            (0, 600_000, 69_632..73_728),
        ] {
            assert_eq!(read_vec(&cached, offset, len).unwrap_err().range, lost);
        }
    }

    #[test]
    fn a_bad_range_is_read_a_few_times_only_however_often_it_is_asked_for() {
        let source = holed(4 << 20, 1_000_000..1_000_001);
        let cached = Cached::new(source.clone());
        let mut lost = 0;
        // Three walks in small reads, for which the cache has room, and one in long reads.
        for len in [1024, 4096, 300_000, 1024] {
            for offset in (0..4_u64 << 20).step_by(len) {
                let len = (len as u64).min(source.size() - offset);
                lost += usize::from(read_vec(&cached, offset, len).is_err());
            }
        }
        assert_eq!(lost, 4 + 1 + 1 + 4);
        // The bad range was read with the lines that follow, as one line, and as one block.
        assert_eq!(source.2.get(), 3);
        assert_eq!(cached.lines.borrow().bad.len(), 1);
    }

    #[test]
    fn faults_without_room_are_errors_and_never_zeros() {
        let source = holed(1 << 20, 500_000..500_001);
        let cached = Cached::new(source.clone());
        let full = |at: u64| (at << 32, ((at << 32) + 1, String::new()));
        cached.lines.borrow_mut().bad = (1..).map(full).take(BAD_MAX).collect();
        for _ in 0..2 {
            assert!(read_vec(&cached, 499_712, 4096).is_err());
            assert!(read_vec(&cached, 495_616, 4096).is_ok());
        }
    }
}
