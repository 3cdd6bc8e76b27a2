//! Compressed traces: gzip and zstd, found by their magic and unpacked as they are read.

use super::ReplayError;
use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::StreamingDecoder;
use std::io::{self, BufRead, BufReader, Read};

/// Bytes read ahead from a file, and from what it unpacks to: enough to tell a format by.
pub(crate) const AHEAD_BYTES: usize = 128 << 10;

/// The contents of a file, unpacked if it begins as a gzip or zstd file does.
///
/// Source   RFC 1952 §2.3.1 (0x1f 0x8b); RFC 8878 §3.1.1 and §3.1.2 (magic numbers, skippable
///          frames)
pub(crate) fn unpacked(file: &str, reader: Box<dyn Read>) -> Result<Box<dyn BufRead>, ReplayError> {
    let mut reader = BufReader::with_capacity(AHEAD_BYTES, Filled::new(reader));
    let begin = reader.fill_buf().map_err(ReplayError::io(file))?;
    let zstd = |begin: &[u8]| {
        begin.starts_with(&[0x28, 0xb5, 0x2f, 0xfd])
            || (begin.len() >= 4 && begin[0] & 0xf0 == 0x50 && begin[1..4] == [0x2a, 0x4d, 0x18])
    };
    let unpacked: Box<dyn Read> = if begin.starts_with(&[0x1f, 0x8b]) {
        Box::new(MultiGzDecoder::new(reader))
    } else if zstd(begin) {
        Box::new(Frames { state: State::Between(reader) })
    } else {
        return Ok(Box::new(reader));
    };
    Ok(Box::new(BufReader::with_capacity(AHEAD_BYTES, Filled::new(unpacked))))
}

/// A reader that fills what it is given as long as there is more, so that a look ahead is not cut
/// short by the other side's buffers.
struct Filled<R> {
    from: R,
    /// What came after bytes that were handed on: told at the next call, since not every reader
    /// tells an error twice.
    error: Option<io::Error>,
}

impl<R> Filled<R> {
    fn new(from: R) -> Self {
        Self { from, error: None }
    }
}

impl<R: Read> Read for Filled<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        let mut filled = 0;
        while filled < buffer.len() {
            match self.from.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if filled > 0 => {
                    self.error = Some(error);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }
}

/// The frames of a zstd file, one after the other: ruzstd's decoder ends with its first.
struct Frames<R: BufRead> {
    state: State<R>,
}

enum State<R: BufRead> {
    Between(R),
    Within(Box<StreamingDecoder<R, ruzstd::decoding::FrameDecoder>>),
    Ended,
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            match std::mem::replace(&mut self.state, State::Ended) {
                State::Ended => return Ok(0),
                State::Between(mut reader) => {
                    let ahead = reader.fill_buf()?;
                    if ahead.is_empty() {
                        return Ok(0);
                    }
                    if ahead[0] & 0xf0 == 0x50 {
                        skip_frame(&mut reader)?;
                        self.state = State::Between(reader);
                        continue;
                    }
                    let decoder = StreamingDecoder::new(reader).map_err(io::Error::other)?;
                    self.state = State::Within(Box::new(decoder));
                }
                State::Within(mut decoder) => {
                    let count = decoder.read(buffer)?;
                    if count > 0 {
                        self.state = State::Within(decoder);
                        return Ok(count);
                    }
                    self.state = State::Between(decoder.into_inner());
                }
            }
        }
    }
}

/// Passes over a skippable frame: magic number, length, that many bytes.
fn skip_frame(reader: &mut impl BufRead) -> io::Result<()> {
    let mut header = [0; 8];
    reader.read_exact(&mut header)?;
    let length = u64::from(u32::from_le_bytes([header[4], header[5], header[6], header[7]]));
    let skipped = io::copy(&mut reader.take(length), &mut io::sink())?;
    if skipped < length { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
}
