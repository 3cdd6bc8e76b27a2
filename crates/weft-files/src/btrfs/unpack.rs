//! Packed extents: zlib, Zstandard, and LZO1X in segments.
//!
//! An LZO extent begins with its length, and each segment with its own; a length does not cross the
//! end of a sector, and each segment gives at most one sector.
//!
//! Source   btrfs documentation, "Compression", and "On-disk Format", "EXTENT_DATA"; for LZO1X:
//!          Linux documentation, "LZO stream format as understood by Linux's LZO decompressor"

use std::io::Read;

use flate2::read::ZlibDecoder;
use ruzstd::decoding::StreamingDecoder;

use crate::bytes::{le16, le32, part};
use crate::tree::Packing;

/// Unpacks `len` bytes of an extent. Bytes behind the packed data are ignored, and less than a
/// sector may be missing at the end, which becomes zeros. The error says what is wrong.
pub(super) fn unpack(
    packing: Packing,
    packed: &[u8],
    len: usize,
    sector: u64,
) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let limit = len as u64;
    match packing {
        Packing::Lzo => bytes = segments(packed, len, usize::try_from(sector).unwrap_or(4096))?,
        Packing::Zlib => {
            let read = ZlibDecoder::new(packed).take(limit).read_to_end(&mut bytes);
            read.map_err(|error| format!("zlib: {error}"))?;
        }
        Packing::Zstd => {
            let decoder =
                StreamingDecoder::new(packed).map_err(|error| format!("zstd: {error}"))?;
            let read = decoder.take(limit).read_to_end(&mut bytes);
            read.map_err(|error| format!("zstd: {error}"))?;
        }
    }
    // The kernel packs the last extent of a file only up to the end of the file.
    if bytes.len() as u64 + sector <= limit {
        return Err(format!("found {} unpacked bytes, expected {len}", bytes.len()));
    }
    bytes.resize(len, 0);
    Ok(bytes)
}

/// Unpacks the segments of an LZO extent, up to `len` bytes or the end of the last segment. The
/// error says what is wrong.
fn segments(packed: &[u8], len: usize, sector: usize) -> Result<Vec<u8>, String> {
    let total = le32(packed, 0) as usize;
    if total > packed.len() || total < 4 {
        return Err(format!("lzo: found {total} bytes, expected 4 to {}", packed.len()));
    }
    let (mut bytes, mut at) = (Vec::with_capacity(len), 4);
    while bytes.len() < len && at < total {
        if sector - at % sector < 4 {
            at = at.next_multiple_of(sector);
        }
        let segment_len = le32(packed, at) as usize;
        let segment = part(packed, at + 4, segment_len);
        if segment.is_empty() || segment.len() < segment_len {
            return Err(format!("lzo: found a segment of {segment_len} bytes at byte {at}"));
        }
        let before = bytes.len();
        lzo(segment, before, before + sector, &mut bytes)
            .map_err(|why| format!("lzo: segment at byte {at}: {why}"))?;
        at += 4 + segment_len;
    }
    Ok(bytes)
}

/// Unpacks an LZO1X segment and appends it to `into`, up to `limit` bytes in all. The bytes of the
/// segment begin at `start`; matches refer to none before that.
fn lzo(packed: &[u8], start: usize, limit: usize, into: &mut Vec<u8>) -> Result<(), &'static str> {
    let mut input = Input { bytes: packed, at: 0 };
    // Literals that the last instruction copied: 0 to 3, or 4 for more.
    let mut state = 0;
    let first = usize::from(*packed.first().ok_or(ENDS)?);
    if first > 17 {
        input.at = 1;
        let count = first - 17;
        input.literals(count, limit, into)?;
        state = count.min(4);
    }
    loop {
        let code = usize::from(input.byte()?);
        let (distance, len, next) = match (code, state) {
            (0..16, 0) => {
                let count = if code == 0 { input.long(15)? + 3 } else { code + 3 };
                input.literals(count, limit, into)?;
                state = 4;
                continue;
            }
            (0..16, state) => {
                let high = usize::from(input.byte()?) << 2;
                let distance = high + (code >> 2) + 1;
                match state {
                    4 => (distance + 2048, 3, code & 3),
                    _ => (distance, 2, code & 3),
                }
            }
            (16..32, _) => {
                let len = if code & 7 == 0 { input.long(7)? } else { code & 7 } + 2;
                let word = input.word()?;
                let distance = 16384 + ((code & 8) << 11) + (word >> 2);
                if distance == 16384 {
                    return Ok(());
                }
                (distance, len, word & 3)
            }
            (32..64, _) => {
                let len = if code & 31 == 0 { input.long(31)? } else { code & 31 } + 2;
                let word = input.word()?;
                ((word >> 2) + 1, len, word & 3)
            }
            _ => {
                let high = usize::from(input.byte()?) << 3;
                let len = (code >> 5) + 1;
                (high + ((code >> 2) & 7) + 1, len, code & 3)
            }
        };
        if distance > into.len() - start {
            return Err("it repeats bytes before its first one");
        }
        if len > limit - into.len() {
            return Err("it is longer than a sector");
        }
        for _ in 0..len {
            into.push(into[into.len() - distance]);
        }
        input.literals(next, limit, into)?;
        state = next;
    }
}

/// Packed bytes that are read from the front.
struct Input<'i> {
    bytes: &'i [u8],
    at: usize,
}

impl Input<'_> {
    fn byte(&mut self) -> Result<u8, &'static str> {
        let byte = *self.bytes.get(self.at).ok_or(ENDS)?;
        self.at += 1;
        Ok(byte)
    }

    fn word(&mut self) -> Result<usize, &'static str> {
        let word = le16(part(self.bytes, self.at, 2), 0);
        self.at += 2;
        if self.at > self.bytes.len() { Err(ENDS) } else { Ok(word.into()) }
    }

    /// Length that continues in the bytes behind its code: `base`, the largest length that the code
    /// itself can hold, plus 255 for each zero byte, plus the byte that ends them.
    fn long(&mut self, base: usize) -> Result<usize, &'static str> {
        let mut len = base;
        loop {
            match self.byte()? {
                0 => len += 255,
                last => return Ok(len + usize::from(last)),
            }
        }
    }

    fn literals(
        &mut self,
        count: usize,
        limit: usize,
        into: &mut Vec<u8>,
    ) -> Result<(), &'static str> {
        let bytes = part(self.bytes, self.at, count);
        if bytes.len() < count {
            return Err(ENDS);
        }
        if count > limit - into.len() {
            return Err("it is longer than a sector");
        }
        into.extend(bytes);
        self.at += count;
        Ok(())
    }
}

const ENDS: &str = "it ends within an instruction";

#[cfg(test)]
mod tests {
    use super::*;

    fn unpacked(packed: &[u8]) -> Result<Vec<u8>, &'static str> {
        let mut bytes = Vec::new();
        lzo(packed, 0, 4096, &mut bytes).map(|()| bytes)
    }

    #[test]
    fn instructions_of_lzo_give_their_bytes() {
        // Four literals, a match of 3 bytes at a distance of 4 with one literal behind it, the end.
        let end = [17, 0, 0];
        let mut packed = vec![21, b'a', b'b', b'c', b'd', 0x4d, 0, b'!'];
        packed.extend(end);
        assert_eq!(unpacked(&packed).unwrap(), b"abcdabc!");
        // A run of one byte: the match overlaps itself. 33 + 255 + 5 more.
        let mut packed = vec![18, b'x', 32, 0, 5, 0, 0];
        packed.extend(end);
        assert_eq!(unpacked(&packed).unwrap(), [b'x'; 1 + 31 + 255 + 5 + 2]);
        assert_eq!(
            unpacked(&[18, b'x', 32, 0, 5, 4, 0]).unwrap_err(),
            "it repeats bytes before its first one"
        );
        assert_eq!(unpacked(&[21, b'a']).unwrap_err(), ENDS);
        assert_eq!(unpacked(&[]).unwrap_err(), ENDS);
    }

    #[test]
    fn what_is_too_short_or_wrong_is_an_error() {
        for packing in [Packing::Lzo, Packing::Zlib, Packing::Zstd] {
            for packed in [&[][..], &[0; 20], &[0xff; 20]] {
                assert!(unpack(packing, packed, 5000, 4096).is_err(), "{packing:?} {packed:?}");
            }
        }
    }
}
