//! Physical volume: its label, its header and the text in its metadata areas.
//!
//! The label is in one of the first four sectors. The header after it names the metadata areas,
//! each of which is a header of 512 bytes and a circular buffer of texts. The first location in
//! that header is the text that counts. A damaged area is passed over if another one is whole.
//!
//! Source   the layout of `label_header`, `pv_header`, `mda_header` as public descriptions of LVM2
//!          give it (libvslvm, "Logical Volume Manager (LVM) format")

use std::rc::Rc;

use thiserror::Error;

use super::text::{Section, TextError};
use crate::bytes::{array, le32, le64, part};
use crate::source::{ReadError, Shared, read_vec};

/// Fault of the LVM metadata of a device.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LvmError {
    /// A checksum does not fit.
    #[error("LVM {what} at byte {at}: checksum: found {stored:#010x}, expected {computed:#010x}")]
    Checksum {
        /// Name of the structure.
        what: &'static str,
        /// Byte offset on the device.
        at: u64,
        /// Checksum in the structure.
        stored: u32,
        /// Checksum of its bytes.
        computed: u32,
    },
    /// A field of the text is missing or has an impossible value.
    #[error("LVM text: {place}: found {found}, expected {expected}")]
    Field {
        /// Sections and key of the field in the text.
        place: String,
        /// Value of the field in the text.
        found: String,
        /// Values that would be legal for the field in the text.
        expected: &'static str,
    },
    /// A field of a binary structure has an impossible value.
    #[error("LVM {what} at byte {at}: found {found}, expected {expected}")]
    Header {
        /// Name of the structure and of its field.
        what: &'static str,
        /// Byte offset on the device.
        at: u64,
        /// Value of the field.
        found: String,
        /// Values that would be legal for the field.
        expected: &'static str,
    },
    /// The device has no label of LVM2.
    #[error("LVM label: found none in the first four sectors")]
    NoLabel,
    /// No metadata area describes a group: the physical volume is in no group, or has no metadata.
    #[error("LVM metadata areas: found no description of a group")]
    NoText,
    /// Metadata cannot be read.
    #[error("LVM metadata: {0}")]
    Read(#[from] ReadError),
    /// The text does not follow its syntax.
    #[error("LVM text at byte {at}: {error}")]
    Text {
        /// Byte offset on the device.
        at: u64,
        /// Syntax error that was found.
        error: TextError,
    },
}

/// A physical volume, with the description of its group if it has a copy.
pub struct PhysicalVolume {
    /// Name for messages: that of the array or partition.
    pub name: String,
    /// UUID, in the form that the text of a group uses.
    pub uuid: String,
    /// Bytes of the device.
    pub source: Shared,
    /// Description of the group, or why there is none.
    pub text: Result<Section, LvmError>,
}

impl PhysicalVolume {
    /// Reads the label and the metadata areas of a device.
    ///
    /// # Errors
    /// There is no valid label. A fault of the metadata areas is kept in `text`.
    pub fn read(name: &str, source: &Shared) -> Result<Self, LvmError> {
        let (label_at, sector) = label(source)?;
        let header = usize::try_from(le32(&sector, 20)).unwrap_or(usize::MAX);
        if !(LABEL_BYTES..=SECTOR - 40).contains(&header) {
            return Err(LvmError::Header {
                what: "label, place of the header",
                at: label_at + 20,
                found: header.to_string(),
                expected: "one within the sector",
            });
        }
        let uuid = uuid(array(&sector, header));
        let text = areas(part(&sector, header + 40, SECTOR), source);
        Ok(Self { name: name.to_owned(), uuid, source: Rc::clone(source), text })
    }
}

/// Byte offset of the sector with the label, and the sector.
fn label(source: &Shared) -> Result<(u64, Vec<u8>), LvmError> {
    let mut fault = LvmError::NoLabel;
    for at in (0..4).map(|sector| sector * SECTOR as u64) {
        let sector = match read_vec(&**source, at, SECTOR as u64) {
            Ok(sector) => sector,
            Err(error) => {
                fault = error.into();
                continue;
            }
        };
        if !sector.starts_with(b"LABELONE") || part(&sector, 24, 8) != b"LVM2 001" {
            continue;
        }
        match checksum("label", at, le32(&sector, 16), part(&sector, 20, SECTOR)) {
            Ok(()) => return Ok((at, sector)),
            Err(error) => fault = error,
        }
    }
    Err(fault)
}

/// Text with the highest sequence number in the metadata areas. `lists` holds the list of data
/// areas and, behind it, the list of metadata areas. Without a valid text, the error is that of the
/// last area, or [`LvmError::NoText`].
fn areas(lists: &[u8], source: &Shared) -> Result<Section, LvmError> {
    let mut pairs = lists.chunks_exact(16).map(|pair| (le64(pair, 0), le64(pair, 8)));
    while pairs.next().is_some_and(|(offset, _)| offset != 0) {}
    let mut fault = LvmError::NoText;
    let mut best: Option<Section> = None;
    for (offset, size) in pairs.take_while(|(offset, _)| *offset != 0).take(AREAS_MAX) {
        match area(source, offset, size) {
            Ok(text) => {
                if best.as_ref().is_none_or(|best| seqno(best) < seqno(&text)) {
                    best = Some(text);
                }
            }
            Err(error) => fault = error,
        }
    }
    best.ok_or(fault)
}

/// Sequence number of the group in a text.
fn seqno(text: &Section) -> u64 {
    let numbers = text.sections().iter().filter_map(|(_, section)| section.number("seqno"));
    numbers.max().unwrap_or(0)
}

/// Text in the metadata area of `size` bytes at `start`; an error if the area has none, or is
/// damaged.
fn area(source: &Shared, start: u64, size: u64) -> Result<Section, LvmError> {
    let header = read_vec(&**source, start, SECTOR as u64)?;
    let wrong = |what, at, found: &dyn ToString, expected| LvmError::Header {
        what,
        at: start.saturating_add(at),
        found: found.to_string(),
        expected,
    };
    if part(&header, 4, 16) != MAGIC {
        let found = part(&header, 4, 16).escape_ascii();
        return Err(wrong("metadata area, magic", 4, &found, "\" LVM2 x[5A%r0N*>\""));
    }
    checksum("metadata area", start, le32(&header, 0), part(&header, 4, SECTOR))?;
    let (version, own) = (le32(&header, 20), le64(&header, 24));
    if version != 1 {
        return Err(wrong("metadata area, version", 20, &version, "1"));
    }
    if own != start {
        return Err(wrong("metadata area, own place", 24, &own, "the byte it is at"));
    }
    let (offset, len) = (le64(&header, 40), le64(&header, 48));
    if offset == 0 || le32(&header, 60) & IGNORED != 0 {
        return Err(LvmError::NoText);
    }
    let size = size.min(AREA_BYTES_MAX);
    if offset < SECTOR as u64 || offset >= size {
        return Err(wrong("metadata area, place of the text", 40, &offset, "one in the area"));
    }
    if len > size - SECTOR as u64 {
        return Err(wrong("metadata area, length of the text", 48, &len, "one within the area"));
    }
    let at = start.saturating_add(offset);
    let first = len.min(size - offset);
    let mut text = read_vec(&**source, at, first)?;
    // The buffer goes on behind the header of the area.
    text.extend(read_vec(&**source, start.saturating_add(SECTOR as u64), len - first)?);
    checksum("text", at, le32(&header, 56), &text)?;
    Section::parse(&text).map_err(|error| LvmError::Text { at, error })
}

fn checksum(what: &'static str, at: u64, stored: u32, bytes: &[u8]) -> Result<(), LvmError> {
    let computed = sum(bytes);
    if stored == computed {
        return Ok(());
    }
    Err(LvmError::Checksum { what, at, stored, computed })
}

/// LVM's checksum: CRC-32 from another start, without the inversion at the end.
pub(crate) fn sum(bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(!SUM_START);
    hasher.update(bytes);
    !hasher.finalize()
}

/// UUID with hyphens between groups of characters, as the text has it.
fn uuid(raw: [u8; 32]) -> String {
    let mut text = String::new();
    for (byte, index) in raw.iter().zip(0..) {
        if matches!(index, 6 | 10 | 14 | 18 | 22 | 26) {
            text.push('-');
        }
        text.extend(byte.escape_ascii().map(char::from));
    }
    text
}

const SECTOR: usize = 512;
/// Length of a label before the header of the physical volume.
const LABEL_BYTES: usize = 32;
const MAGIC: &[u8] = b" LVM2 x[5A%r0N*>";
/// Flag of a location that is to be ignored.
const IGNORED: u32 = 1;
/// Largest number of metadata areas that are read: LVM makes up to two.
const AREAS_MAX: usize = 8;
/// Largest size in bytes of a metadata area that is read: LVM makes 1 MiB, or the size that
/// `--metadatasize` gives.
const AREA_BYTES_MAX: u64 = 16 << 20;
/// Initial value of LVM's CRC-32.
const SUM_START: u32 = 0xf597_a6cf;
