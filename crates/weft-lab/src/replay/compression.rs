//! Compressed traces: gzip and zstd, detected by magic number and decompressed while reading.

use super::ReplayError;
use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::StreamingDecoder;
use std::io::{self, BufRead, BufReader, Read};

/// Bytes read ahead, compressed and decompressed: enough to detect a format.
pub(crate) const AHEAD_BYTES: usize = 128 << 10;

/// Reader of the contents of a file, decompressed if the file begins with the magic number of gzip
/// or zstd. Fails if the first bytes cannot be read.
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

/// A reader that fills the whole buffer unless the input ends, so look-ahead is not limited by the
/// buffers of the inner reader.
struct Filled<R> {
    from: R,
    /// Error that followed bytes already returned; `None` if there is none. The next call returns
    /// it, because some readers report an error only once.
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

/// Decoder for all frames of a zstd file: ruzstd's decoder stops after the first frame.
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

/// Skips a skippable frame: magic number, length, that many bytes.
fn skip_frame(reader: &mut impl BufRead) -> io::Result<()> {
    let mut header = [0; 8];
    reader.read_exact(&mut header)?;
    let length = u64::from(u32::from_le_bytes([header[4], header[5], header[6], header[7]]));
    let skipped = io::copy(&mut reader.take(length), &mut io::sink())?;
    if skipped < length { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
}
