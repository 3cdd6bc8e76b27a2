//! Format of an overlay file: header, map of granules, data.
//!
//! ```text
//! byte 0         header, in one sector, so that a crash leaves the old one or the new one
//! byte 4096      map: a bit for each granule of 4096 bytes, 1 if the overlay has the granule
//! `data_at`      data: each granule at its offset on the member; holes where the overlay has no
//!                granule, and for zeroes that were discarded
//! ```
//! The map needs no checksum. A bit turns from 0 to 1 once, after its granule is durable, so any
//! mixture of old and new sectors of the map was the correct map at some time.

use weft_ondisk::crc::crc32c;
use weft_units::fields::{le32, le64};

/// Bytes of a granule: the unit in which the overlay has data of the member.
pub(super) const GRANULE_LEN: usize = 4096;
/// `GRANULE_LEN` as a 64-bit number.
pub(crate) const GRANULE: u64 = GRANULE_LEN as u64;
/// Size in bytes of a page of the map; a page is written as a whole.
pub(super) const PAGE: usize = 4096;
/// Number of granules that a page of the map covers.
pub(super) const PAGE_GRANULES: u64 = PAGE as u64 * 8;
/// Offset of the map in the overlay's file, in bytes.
pub(super) const MAP_AT: u64 = 4096;
/// Size in bytes of the header, which is one sector.
pub(super) const HEADER: usize = 512;

const MAGIC: [u8; 12] = *b"weft overlay";
const VERSION: u32 = 1;
/// Byte of the header at which the member's label begins.
const LABEL_AT: usize = 128;
const LABEL_MAX: usize = HEADER - 4 - LABEL_AT;

/// State of an overlay, stored in its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OverlayState {
    /// A commit was begun. The member may be changed already, so the overlay can only be committed.
    Committing,
    /// No commit was begun: the member is unchanged.
    Open,
}

/// Header of an overlay: its member and its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) state: OverlayState,
    /// Size of the member in bytes.
    pub(super) size: u64,
    /// Checksum over every location of the member that may hold a superblock.
    pub(super) base_sum: u32,
    /// Event count of the member's superblock; 0 without one.
    pub(super) events: u64,
    /// UUID of the array; zeros without one.
    pub(super) array: [u8; 16],
    /// Modification time of the member's file in nanoseconds; 0 where it is not known.
    pub(super) written: i64,
    /// Label of the member, for messages.
    pub(super) label: String,
}

impl Header {
    pub(super) fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &MAGIC);
        put(12, &VERSION.to_le_bytes());
        put(16, &u32::from(self.state == OverlayState::Committing).to_le_bytes());
        put(20, &self.base_sum.to_le_bytes());
        put(24, &self.size.to_le_bytes());
        put(32, &self.events.to_le_bytes());
        put(40, &self.array);
        put(56, &self.written.to_le_bytes());
        put(64, &GRANULE.to_le_bytes());
        let mut end = self.label.len().min(LABEL_MAX);
        while !self.label.is_char_boundary(end) {
            end -= 1;
        }
        put(LABEL_AT, &self.label.as_bytes()[..end]);
        let sum = crc32c(&bytes[..HEADER - 4]);
        bytes[HEADER - 4..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Decodes a header.
    ///
    /// Errors    the faulty field, with byte, found and expected
    pub(super) fn decode(bytes: &[u8; HEADER]) -> Result<Self, String> {
        let wrong = |field: &str, byte: usize, found: String, expected: String| {
            Err(format!("header {field} at byte {byte}: found {found}, expected {expected}"))
        };
        if !bytes.starts_with(&MAGIC) {
            let found = String::from_utf8_lossy(&bytes[..12]).escape_debug().to_string();
            return wrong("magic", 0, found, "\"weft overlay\"".into());
        }
        let (stored, computed) = (le32(bytes, HEADER - 4), crc32c(&bytes[..HEADER - 4]));
        if stored != computed {
            let (found, expected) = (format!("{stored:#010x}"), format!("{computed:#010x}"));
            return wrong("checksum", HEADER - 4, found, expected);
        }
        let version = le32(bytes, 12);
        if version != VERSION {
            let expected = format!("{VERSION}; a newer weft made it");
            return wrong("version", 12, version.to_string(), expected);
        }
        if le64(bytes, 64) != GRANULE {
            return wrong("granule", 64, le64(bytes, 64).to_string(), GRANULE.to_string());
        }
        let state = match le32(bytes, 16) {
            0 => OverlayState::Open,
            1 => OverlayState::Committing,
            other => return wrong("state", 16, other.to_string(), "0 or 1".into()),
        };
        let label = bytes[LABEL_AT..HEADER - 4].split(|byte| *byte == 0).next();
        let mut array = [0; 16];
        array.copy_from_slice(&bytes[40..56]);
        Ok(Self {
            state,
            size: le64(bytes, 24),
            base_sum: le32(bytes, 20),
            events: le64(bytes, 32),
            array,
            written: i64::from_le_bytes(le64(bytes, 56).to_le_bytes()),
            label: String::from_utf8_lossy(label.unwrap_or_default()).escape_debug().to_string(),
        })
    }
}

/// First byte of the data in the overlay of a member of `size` bytes: after the map, aligned to 1
/// MiB as file systems prefer.
pub(super) fn data_at(size: u64) -> u64 {
    (MAP_AT + map_bytes(size)).next_multiple_of(1 << 20)
}

/// Bytes of the map, in whole pages.
pub(super) fn map_bytes(size: u64) -> u64 {
    size.div_ceil(GRANULE).div_ceil(PAGE_GRANULES) * PAGE as u64
}

/// Size of the overlay file in bytes.
pub(super) fn file_bytes(size: u64) -> u64 {
    data_at(size) + size.next_multiple_of(GRANULE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            state: OverlayState::Committing,
            size: 7 << 30,
            base_sum: 0x1234_5678,
            events: 99,
            array: [7; 16],
            written: -5,
            label: "/dev/sdb#1".into(),
        }
    }

    #[test]
    fn headers_come_back_as_they_were() {
        assert_eq!(Header::decode(&header().encode()), Ok(header()));
        let long = Header { label: "é".repeat(400), ..header() };
        assert_eq!(Header::decode(&long.encode()).unwrap().label, "é".repeat(LABEL_MAX / 2));
        for (size, map) in [(1, 4096), (128 << 20, 4096), ((128 << 20) + 1, 8192)] {
            assert_eq!(map_bytes(size), map);
            assert!(data_at(size) >= MAP_AT + map);
        }
    }

    #[test]
    fn every_flipped_bit_of_a_header_is_found() {
        let good = header().encode();
        for bit in 0..HEADER * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::decode(&bad).is_err(), "bit {bit}");
        }
        // Headers with a correct checksum and one illegal field.
        for (at, value, says) in [(12, 2_u32, "newer"), (16, 7, "state"), (64, 512, "granule")] {
            let mut bad = good;
            bad[at..at + 4].copy_from_slice(&value.to_le_bytes());
            let sum = crc32c(&bad[..HEADER - 4]);
            bad[HEADER - 4..].copy_from_slice(&sum.to_le_bytes());
            let error = Header::decode(&bad).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}
