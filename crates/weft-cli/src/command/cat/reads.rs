//! Reads of `weft cat`: the content of an array in pieces, with several requests in flight.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use weft_export::client::NbdClient;
use weft_nbd::NbdError;
use weft_terminal::outcome::Failure;

/// Reads of ranges of an array, in the order of the ranges.
pub(super) struct Reads<'c> {
    client: &'c mut NbdClient,
    /// Ranges for which no request was sent yet.
    ranges: VecDeque<Range<u64>>,
    /// Whether unreadable blocks are replaced by zeros.
    skip: bool,
    /// Requests that were sent and not yet returned, in the order of their ranges, with their
    /// cookies.
    waiting: VecDeque<(u64, Range<u64>)>,
    /// Answers that came before those of earlier requests.
    here: BTreeMap<u64, Result<Vec<u8>, NbdError>>,
}

/// Bytes of one read.
pub(super) struct Piece {
    /// First byte of the piece, counted in the array.
    pub(super) offset: u64,
    /// Bytes; zeros where `bad` says that they could not be read.
    pub(super) data: Vec<u8>,
    /// Ranges of the array that could not be read, in ascending order; neighbours may touch.
    pub(super) bad: Vec<Range<u64>>,
}

impl<'c> Reads<'c> {
    pub(super) fn new(client: &'c mut NbdClient, ranges: Vec<Range<u64>>, skip: bool) -> Self {
        let ranges = ranges.into_iter().filter(|range| !range.is_empty()).collect();
        Self { client, ranges, skip, waiting: VecDeque::new(), here: BTreeMap::new() }
    }

    /// The next piece; `None` behind the last range.
    ///
    /// # Errors
    /// The server is gone, or a range cannot be read and unreadable blocks are not skipped.
    pub(super) fn next(&mut self) -> Result<Option<Piece>, Failure> {
        while self.waiting.len() < READS_MAX
            && let Some(range) = self.ranges.front_mut()
        {
            // Reads end at multiples of their size, so that a resumed copy sends the same reads.
            let end = range.end.min((range.start + 1).next_multiple_of(READ_BYTES));
            let piece = range.start..end;
            range.start = end;
            if range.is_empty() {
                self.ranges.pop_front();
            }
            let cookie = self.send(&piece)?;
            self.waiting.push_back((cookie, piece));
        }
        let Some((cookie, range)) = self.waiting.pop_front() else { return Ok(None) };
        let piece = match self.answer(cookie)? {
            Ok(data) => Piece { offset: range.start, data, bad: Vec::new() },
            Err(_) if self.skip => self.blocks(range)?,
            Err(error) => {
                return Err(Failure::failed(format!(
                    "read of {} bytes at byte {}: {error}; what came before it was written; \
                     --skip-unreadable goes on with zeros",
                    range.end - range.start,
                    range.start
                )));
            }
        };
        Ok(Some(piece))
    }

    fn send(&mut self, range: &Range<u64>) -> Result<u64, Failure> {
        let len = u32::try_from(range.end - range.start).expect("at most READ_BYTES");
        self.client.read(range.start, len).map_err(Failure::Failed)
    }

    /// Waits for the answer to a request.
    fn answer(&mut self, cookie: u64) -> Result<Result<Vec<u8>, NbdError>, Failure> {
        loop {
            if let Some(result) = self.here.remove(&cookie) {
                return Ok(result);
            }
            let answer = self.client.answer().map_err(Failure::Failed)?;
            self.here.insert(answer.cookie, answer.result);
        }
    }

    /// Reads a range with unreadable parts block by block.
    fn blocks(&mut self, range: Range<u64>) -> Result<Piece, Failure> {
        let mut piece = Piece { offset: range.start, data: Vec::new(), bad: Vec::new() };
        let mut next = range.start;
        while next < range.end {
            let block = next..(next + 1).next_multiple_of(BLOCK_BYTES).min(range.end);
            next = block.end;
            let cookie = self.send(&block)?;
            match self.answer(cookie)? {
                Ok(data) => piece.data.extend(data),
                Err(_) => {
                    let len = usize::try_from(block.end - block.start).expect("at most a block");
                    piece.data.resize(piece.data.len() + len, 0);
                    piece.bad.push(block);
                }
            }
        }
        Ok(piece)
    }
}

/// Unit of unreadable areas: a block is read completely or replaced by zeros.
const BLOCK_BYTES: u64 = 4096;

/// Size of a read: a few full stripes of common arrays, so every member is busy.
const READ_BYTES: u64 = 1 << 20;

/// Largest number of reads in flight. It keeps members busy, and takes 8 MiB of memory.
const READS_MAX: usize = 8;
