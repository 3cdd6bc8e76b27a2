//! Reads of `weft cat`: the content of an array in parts, with several requests in flight.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use weft_engine::ReplyError;
use weft_export::in_process::{InProcessClient, ReadData};
use weft_terminal::outcome::Failure;

/// Reads of ranges of an array, in the order of the ranges.
pub(super) struct Reads<'c> {
    client: &'c mut InProcessClient,
    /// Ranges for which no request was sent yet, without the parts that were requested.
    ranges: VecDeque<Range<u64>>,
    /// Whether unreadable blocks are replaced by zeros.
    skip: bool,
    /// Ranges for which a request was sent and no result was returned yet, in their order, each
    /// with the cookie of its request.
    waiting: VecDeque<(u32, Range<u64>)>,
    /// Answers that arrived before those to earlier requests, by cookie.
    here: BTreeMap<u32, Result<ReadData, ReplyError>>,
}

/// Result of one read.
pub(super) struct Piece {
    /// First byte of the read, counted in the array.
    pub(super) offset: u64,
    /// Bytes that were read, with zeros in the ranges `bad`.
    data: Vec<Part>,
    /// Ranges of the array that could not be read, in ascending order; adjacent ranges are not
    /// joined.
    pub(super) bad: Vec<Range<u64>>,
}

/// Consecutive bytes of a [`Piece`].
enum Part {
    Read(ReadData),
    /// Zeros in place of a block that cannot be read, with their number.
    Zeros(usize),
}

impl Piece {
    /// Number of bytes.
    pub(super) fn len(&self) -> usize {
        let len = |part: &Part| match part {
            Part::Read(data) => data.len(),
            Part::Zeros(len) => *len,
        };
        self.data.iter().map(len).sum()
    }

    /// All bytes, in one buffer.
    pub(super) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len());
        let Ok(()) = self.try_for_each(|slice| {
            bytes.extend_from_slice(slice);
            Ok::<(), std::convert::Infallible>(())
        });
        bytes
    }

    /// Calls `take` with the bytes, in slices and in order, until it fails.
    pub(super) fn try_for_each<E>(
        &self,
        mut take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.data.iter().try_for_each(|part| match part {
            Part::Read(data) => data.try_for_each(&mut take),
            Part::Zeros(len) => take(&ZEROS[..*len]),
        })
    }
}

impl<'c> Reads<'c> {
    pub(super) fn new(
        client: &'c mut InProcessClient,
        ranges: Vec<Range<u64>>,
        skip: bool,
    ) -> Self {
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
            let cookie = self.send(&piece);
            self.waiting.push_back((cookie, piece));
        }
        let Some((cookie, range)) = self.waiting.pop_front() else { return Ok(None) };
        let piece = match self.answer(cookie)? {
            Ok(data) => {
                Piece { offset: range.start, data: vec![Part::Read(data)], bad: Vec::new() }
            }
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

    fn send(&mut self, range: &Range<u64>) -> u32 {
        self.client.read(range.start, range.end - range.start)
    }

    /// Waits for the answer to the request with this cookie. The inner error is that of the
    /// request.
    fn answer(&mut self, cookie: u32) -> Result<Result<ReadData, ReplyError>, Failure> {
        loop {
            if let Some(result) = self.here.remove(&cookie) {
                return Ok(result);
            }
            let reply = self.client.reply().map_err(Failure::Failed)?;
            self.here.insert(reply.cookie, reply.result);
        }
    }

    /// Reads a range that has unreadable parts, block by block. Unreadable blocks become zeros.
    fn blocks(&mut self, range: Range<u64>) -> Result<Piece, Failure> {
        let mut piece = Piece { offset: range.start, data: Vec::new(), bad: Vec::new() };
        let mut next = range.start;
        while next < range.end {
            let block = next..(next + 1).next_multiple_of(BLOCK_BYTES).min(range.end);
            next = block.end;
            let cookie = self.send(&block);
            match self.answer(cookie)? {
                Ok(data) => piece.data.push(Part::Read(data)),
                Err(_) => {
                    let len = usize::try_from(block.end - block.start).expect("at most a block");
                    piece.data.push(Part::Zeros(len));
                    piece.bad.push(block);
                }
            }
        }
        Ok(piece)
    }
}

/// Unit of unreadable areas: a block is read completely or replaced by zeros.
const BLOCK_BYTES: u64 = ZEROS.len() as u64;
static ZEROS: [u8; 4096] = [0; 4096];

/// Size of a read, in bytes: a few full stripes of common arrays, so that every member is busy.
const READ_BYTES: u64 = 1 << 20;

/// Largest number of reads in flight. It keeps members busy, and takes 8 MiB of memory, of which
/// the pool has several times as much for a client.
const READS_MAX: usize = 8;
