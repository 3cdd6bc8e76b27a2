//! Reads of `weft cat`: the content of an array in parts, with several requests in flight.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use weft_export::client::NbdClient;
use weft_nbd::NbdError;
use weft_terminal::outcome::Failure;

/// Reads of ranges of an array, in the order of the ranges.
pub(super) struct Reads<'c> {
    client: &'c mut NbdClient,
    /// Ranges for which no request was sent yet, without the parts that were requested.
    ranges: VecDeque<Range<u64>>,
    /// Whether unreadable blocks are replaced by zeros.
    skip: bool,
    /// Ranges for which a request was sent and no result was returned yet, in their order, each
    /// with the cookie of its request.
    waiting: VecDeque<(u64, Range<u64>)>,
    /// Answers that arrived before those to earlier requests, by cookie.
    here: BTreeMap<u64, Result<Vec<u8>, NbdError>>,
}

/// Result of one read.
pub(super) struct Piece {
    /// First byte of the read, counted in the array.
    pub(super) offset: u64,
    /// Bytes that were read, with zeros in the ranges `bad`.
    pub(super) data: Vec<u8>,
    /// Ranges of the array that could not be read, in ascending order; adjacent ranges are not
    /// joined.
    pub(super) bad: Vec<Range<u64>>,
}

impl<'c> Reads<'c> {
    pub(super) fn new(client: &'c mut NbdClient, ranges: Vec<Range<u64>>, skip: bool) -> Self {
        let ranges = ranges.into_iter().filter(|range| !range.is_empty()).collect();
        Self { client, ranges, skip, waiting: VecDeque::new(), here: BTreeMap::new() }
    }

    /// Result of the next read; `None` after the last range.
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

    /// Waits for the answer to the request with this cookie. The inner error is that of the
    /// request.
    fn answer(&mut self, cookie: u64) -> Result<Result<Vec<u8>, NbdError>, Failure> {
        loop {
            if let Some(result) = self.here.remove(&cookie) {
                return Ok(result);
            }
            let answer = self.client.answer().map_err(Failure::Failed)?;
            self.here.insert(answer.cookie, answer.result);
        }
    }

    /// Reads a range that has unreadable parts, block by block. Unreadable blocks become zeros.
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

/// Size of a read, in bytes: a few full stripes of common arrays, so that every member is busy.
const READ_BYTES: u64 = 1 << 20;

/// Largest number of reads in flight. It keeps members busy, and takes 8 MiB of memory.
const READS_MAX: usize = 8;
