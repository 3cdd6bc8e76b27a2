//! Partial parity log of RAID 5: the parity updates in flight, and how to complete them.
//!
//! Before a stripe is written in part, the member with its parity logs the XOR of the strips that
//! are not written. After a crash, this XOR and the current content of the written strips give
//! consistent parity, so that a strip that is lost as well can be reconstructed.
//!
//! ```text
//! | header 4096 | partial parity of entry 0 | of entry 1 | ... | header of the next log | ...
//! ```
//!
//! In an area of 264 KiB or more, logs follow each other as in a ring, and [`PplScan`] finds the
//! newest by its generation. [`PplHeader::recovery`] then returns the computations as values; the
//! engine reads, computes and writes.
//!
//! Source: format facts and the order of recovery as read from Linux 6.1 and 6.12; logs of Linux
//! 6.12 in `fixtures/md-meta`.

use crate::crc::{crc32c, crc32c_of};
use crate::error::at;
use crate::{At, LogError, Uuid};
use weft_units::{SECTOR_BYTES, SectorRange, Sectors, Slot};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a header.
pub const PPL_HEADER_BYTES: usize = 4096;

/// Largest number of entries in a header, `(4096 - 536) / 24`.
pub const PPL_ENTRIES_MAX: usize = 148;

const HEADER_SECTORS: u64 = PPL_HEADER_BYTES as u64 / SECTOR_BYTES;
const STRUCTURE: &str = "partial parity log";
const CHECKSUM_BYTE: usize = 532;
const ENTRIES_BYTE: usize = 536;

/// Header of a partial parity log as stored on a member, without its entries; [`PplHeader`]
/// documents the fields.
///
/// Source   md's header of a partial parity log, in on-disk order
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    reserved: [u8; 512],
    signature: U32,
    padding: U32,
    generation: U64,
    entries_count: U32,
    checksum: U32,
    entries: [RawEntry; PPL_ENTRIES_MAX],
    rest: [u8; 8],
}

/// Entry of the header as stored on a member; [`PplEntry`] documents the fields.
///
/// Source   md's entry of a partial parity log
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawEntry {
    data_sector: U64,
    pp_size: U32,
    data_size: U32,
    parity_disk: U32,
    checksum: U32,
}

const _: () = assert!(size_of::<Raw>() == PPL_HEADER_BYTES);
const _: () = assert!(std::mem::offset_of!(Raw, checksum) == CHECKSUM_BYTE);
const _: () = assert!(std::mem::offset_of!(Raw, entries) == ENTRIES_BYTE);

/// Header of a partial parity log, with its entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PplHeader {
    /// Signature of the array, from [`PplHeader::signature_of`]. Byte 512.
    pub signature: u32,
    /// Number that increases with each log that the array writes, on any member. Byte 520.
    pub generation: u64,
    /// Writes that were in flight. Byte 536.
    pub entries: Vec<PplEntry>,
}

/// A write that was in flight, within one full stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PplEntry {
    /// First array sector of the write. Byte 0.
    pub data_sector: Sectors,
    /// Bytes of partial parity; 0 when all data strips of the stripe were written. Byte 8.
    pub pp_size: u32,
    /// Bytes of data that were being written. Byte 12.
    pub data_size: u32,
    /// Slot of the member with the parity, which also has the log. Byte 16.
    pub parity_disk: u32,
    /// CRC-32C of the partial parity; 0 without partial parity. Byte 20.
    pub checksum: u32,
}

/// Geometry of the array, as far as recovery from the log needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PplContext {
    /// Number of slots.
    pub raid_disks: u32,
    /// Chunk size.
    pub chunk: Sectors,
    /// Size of the array in sectors.
    pub array_size: Sectors,
    /// Sectors from this header to the end of the log's area.
    pub room: Sectors,
    /// Slot of the member that has the log.
    pub owner: Slot,
}

/// Parity computation: the XOR of `data` and `partial`, sector for sector, is written to `stripes`
/// of the member in `parity_slot`.
///
/// If a member with some of `data` is missing, the stripes must not be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PplRecompute {
    /// Index of the log's entry. The partial parity of the entry must be checked first.
    pub entry: usize,
    /// Slot to which the parity is written.
    pub parity_slot: Slot,
    /// Range of sectors to write, in the member's data.
    pub stripes: SectorRange,
    /// Ranges of array sectors to read, each as long as `stripes`.
    pub data: Vec<SectorRange>,
    /// Location of the partial parity, in sectors from the header; its length is that of `stripes`.
    /// `None` if the entry has no partial parity, because its write covered all data strips.
    pub partial: Option<SectorRange>,
}

impl PplHeader {
    /// Signature of the partial parity logs of an array.
    #[must_use]
    pub fn signature_of(set_uuid: Uuid) -> u32 {
        crc32c(&set_uuid.0)
    }

    /// A header without writes in flight.
    #[must_use]
    pub const fn empty(signature: u32) -> Self {
        Self { signature, generation: 0, entries: Vec::new() }
    }

    /// Reads a header of the array with this signature.
    ///
    /// # Errors
    ///
    /// `Short`, `Checksum`, `OtherArray` for another signature, `Value` for too many entries.
    pub fn parse(bytes: &[u8], signature: u32) -> Result<Self, LogError> {
        let (raw, _) = Raw::ref_from_prefix(bytes).map_err(|_| LogError::Short {
            at: at!(reserved),
            found: bytes.len(),
            expected: PPL_HEADER_BYTES,
        })?;
        let (stored, computed) = (raw.checksum.get(), checksum(raw.as_bytes()));
        if stored != computed {
            return Err(LogError::Checksum { at: at!(checksum), stored, computed });
        }
        if raw.signature.get() != signature {
            return Err(LogError::OtherArray {
                at: at!(signature),
                found: format!("{:#010x}", raw.signature.get()),
                expected: format!("{signature:#010x}"),
            });
        }
        let count = raw.entries_count.get();
        let entries = usize::try_from(count).ok().and_then(|count| raw.entries.get(..count));
        let Some(entries) = entries else {
            let expected = format!("at most {PPL_ENTRIES_MAX}");
            return Err(LogError::value(at!(entries_count), count, expected));
        };
        let entry = |raw: &RawEntry| PplEntry {
            data_sector: Sectors(raw.data_sector.get()),
            pp_size: raw.pp_size.get(),
            data_size: raw.data_size.get(),
            parity_disk: raw.parity_disk.get(),
            checksum: raw.checksum.get(),
        };
        let entries = entries.iter().map(entry).collect();
        Ok(Self { signature, generation: raw.generation.get(), entries })
    }

    /// Encodes the header, including its checksum.
    ///
    /// # Panics
    ///
    /// Panics with more than [`PPL_ENTRIES_MAX`] entries.
    #[must_use]
    pub fn encode(&self) -> [u8; PPL_HEADER_BYTES] {
        assert!(self.entries.len() <= PPL_ENTRIES_MAX);
        let none = RawEntry {
            data_sector: 0.into(),
            pp_size: 0.into(),
            data_size: 0.into(),
            parity_disk: 0.into(),
            checksum: 0.into(),
        };
        let mut raw = Raw {
            reserved: [0xff; 512],
            signature: self.signature.into(),
            padding: 0.into(),
            generation: self.generation.into(),
            entries_count: u32::try_from(self.entries.len()).expect("at most 148").into(),
            checksum: 0.into(),
            entries: [none; PPL_ENTRIES_MAX],
            rest: [0; 8],
        };
        for (raw, entry) in raw.entries.iter_mut().zip(&self.entries) {
            *raw = RawEntry {
                data_sector: entry.data_sector.0.into(),
                pp_size: entry.pp_size.into(),
                data_size: entry.data_size.into(),
                parity_disk: entry.parity_disk.into(),
                checksum: entry.checksum.into(),
            };
        }
        raw.checksum.set(checksum(raw.as_bytes()));
        zerocopy::transmute!(raw)
    }

    /// Sectors from this header to that of the next log.
    #[must_use]
    pub fn len(&self) -> Sectors {
        let partial = self.entries.iter().map(|entry| u64::from(entry.pp_size) / SECTOR_BYTES);
        Sectors(HEADER_SECTORS + partial.sum::<u64>())
    }

    /// Whether no write was in flight, so that there is nothing to recover.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Position of the partial parity of entry `entry`, in sectors from the header; its length is 0
    /// if the entry has no partial parity. `None` if there is no such entry.
    #[must_use]
    pub fn partial(&self, entry: usize) -> Option<SectorRange> {
        let before = self.entries.get(..entry)?.iter();
        let before = before.map(|entry| u64::from(entry.pp_size) / SECTOR_BYTES).sum::<u64>();
        let len = u64::from(self.entries.get(entry)?.pp_size) / SECTOR_BYTES;
        Some(SectorRange::new(HEADER_SECTORS + before, len))
    }

    /// Checks the partial parity of entry `entry` against its checksum.
    ///
    /// # Errors
    ///
    /// `Value` if there is no such entry, `Short` for fewer bytes than the entry has, `Checksum`
    /// when the bytes differ: the entry must be skipped, and the array stays dirty.
    pub fn check_partial(&self, entry: usize, bytes: &[u8]) -> Result<(), LogError> {
        let at = entry_at(entry, 20, "entries.checksum");
        let Some(said) = self.entries.get(entry) else {
            return Err(LogError::value(at, entry, format!("one of {}", self.entries.len())));
        };
        let expected = said.pp_size as usize;
        let Some(partial) = bytes.get(..expected) else {
            return Err(LogError::Short { at, found: bytes.len(), expected });
        };
        // The checksum of no bytes is 0.
        let (stored, computed) = (said.checksum, crc32c(partial));
        if stored == computed {
            return Ok(());
        }
        Err(LogError::Checksum { at, stored, computed })
    }

    /// Computations that make parity consistent again, in the order in which they have to be done.
    ///
    /// Shape    `parity_slot` takes the number of a full stripe, and returns the slot of its parity
    ///          in the array's layout
    ///
    /// # Errors
    ///
    /// `Value` with the first illegal field; no part of the log may be used then.
    pub fn recovery(
        &self,
        context: &PplContext,
        parity_slot: impl Fn(u64) -> Slot,
    ) -> Result<Vec<PplRecompute>, LogError> {
        let room = context.room.0;
        if self.len().0 > room {
            let found = format!("{} sectors of log", self.len().0);
            let expected = format!("at most {room}, the rest of the area");
            return Err(LogError::value(entry_at(0, 8, "entries.pp_size"), found, expected));
        }
        let mut computations = Vec::new();
        for index in 0..self.entries.len() {
            computations.extend(self.recompute(index, context, &parity_slot)?);
        }
        Ok(computations)
    }

    fn recompute(
        &self,
        index: usize,
        context: &PplContext,
        parity_slot: impl Fn(u64) -> Slot,
    ) -> Result<Vec<PplRecompute>, LogError> {
        let (Some(entry), Some(partial)) = (self.entries.get(index), self.partial(index)) else {
            return Ok(Vec::new());
        };
        let write = Write::of(entry, index, context)?;
        let at = entry_at(index, 16, "entries.parity_disk");
        let expected = parity_slot(write.full_stripe);
        let owner = context.owner;
        if entry.parity_disk != u32::from(expected.0) || expected != owner {
            let expected =
                format!("{}, by the layout, and {}, which has the log", expected.0, owner.0);
            return Err(LogError::value(at, entry.parity_disk, expected));
        }
        // The last strip may be shorter: the stripes are split into those with it and those without
        // it.
        let mut cuts = vec![0];
        cuts.extend(write.strips.iter().map(|strip| strip.len.0));
        cuts.sort_unstable();
        cuts.dedup();
        let pieces = cuts.windows(2).filter_map(|cut| match cut {
            [from, to] => Some((*from, to - from)),
            _ => None,
        });
        let part = |of: Sectors, from: u64, len: u64| SectorRange::new(of.0 + from, len);
        Ok(pieces
            .map(|(from, len)| PplRecompute {
                entry: index,
                parity_slot: expected,
                stripes: part(write.member_sector, from, len),
                data: write
                    .strips
                    .iter()
                    .filter(|strip| strip.len.0 > from)
                    .map(|strip| part(strip.start, from, len))
                    .collect(),
                partial: (entry.pp_size > 0).then(|| part(partial.start, from, len)),
            })
            .collect())
    }
}

/// Strips that the write of an entry covers.
struct Write {
    full_stripe: u64,
    /// First sector of the write in a member's data.
    member_sector: Sectors,
    /// Written part of each strip, in array sectors.
    strips: Vec<SectorRange>,
}

impl Write {
    /// Derives the strips from entry `index`. Fails with the first field that is not legal.
    ///
    /// Source   an entry without partial parity covers all data strips of a stripe, and the same
    ///          part of each; partial parity shorter than a chunk is as long as the part of each
    ///          strip that was written; partial parity of a whole chunk covers whole strips in
    ///          order, of which the last may be shorter
    fn of(entry: &PplEntry, index: usize, context: &PplContext) -> Result<Self, LogError> {
        let data_size = entry_at(index, 12, "entries.data_size");
        for (at, size) in
            [(entry_at(index, 8, "entries.pp_size"), entry.pp_size), (data_size, entry.data_size)]
        {
            if !u64::from(size).is_multiple_of(SECTOR_BYTES) {
                return Err(LogError::value(at, size, "a multiple of 512"));
            }
        }
        let all = u64::from(context.raid_disks.saturating_sub(1));
        let chunk = context.chunk.0;
        let partial = u64::from(entry.pp_size) / SECTOR_BYTES;
        let data = u64::from(entry.data_size) / SECTOR_BYTES;
        let (count, strip) = if partial >= chunk {
            (data.div_ceil(chunk.max(1)), chunk)
        } else {
            match data.checked_div(partial) {
                Some(count) => (count, partial),
                None => (all, data.checked_div(all).unwrap_or(0)),
            }
        };
        let even =
            if partial >= chunk { strip > 0 } else { count.checked_mul(strip) == Some(data) };
        if !even || count == 0 || count > all || strip == 0 {
            let expected = format!("strips of up to {all} members, as long as the partial parity");
            return Err(LogError::value(data_size, entry.data_size, expected));
        }
        let first = entry.data_sector.0;
        let (number, inside) = (first / chunk, first % chunk);
        let full_stripe = number / all;
        let len = |strip_index: u64| strip.min(data - strip_index * strip.min(data));
        let strips: Vec<SectorRange> = (0..count)
            .map(|strip_index| {
                let start = first.saturating_add(strip_index * chunk);
                let whole = if partial >= chunk { len(strip_index) } else { strip };
                SectorRange::new(start, whole)
            })
            .collect();
        let in_stripe = number % all + count <= all && inside + strip <= chunk;
        let end = strips.last().and_then(|strip| strip.start.checked_add(strip.len));
        if !in_stripe || end.is_none_or(|end| end > context.array_size) {
            let at = entry_at(index, 0, "entries.data_sector");
            let expected = format!(
                "{} bytes from there to be in one stripe of the array's {} sectors",
                entry.data_size, context.array_size.0
            );
            return Err(LogError::value(at, first, expected));
        }
        Ok(Self { full_stripe, member_sector: Sectors(full_stripe * chunk + inside), strips })
    }
}

/// A search for the newest log of a member.
///
/// Call [`PplScan::poll`] for the next sector to read and pass the bytes to [`PplScan::handle`]
/// until there is nothing more to read, then call [`PplScan::newest`].
///
/// Source   the first log is at the start of the area, and each further log begins where the log
///          before it ends; an invalid header, or one older than the header before, ends the search
#[derive(Clone, Debug)]
pub struct PplScan {
    signature: u32,
    area: Sectors,
    next: Option<Sectors>,
    newest: Option<(Sectors, PplHeader)>,
    stopped: Option<LogError>,
}

impl PplScan {
    /// Starts the search for logs with this signature, in an area of this size.
    #[must_use]
    pub const fn new(signature: u32, area: Sectors) -> Self {
        let next = if area.0 >= HEADER_SECTORS { Some(Sectors::ZERO) } else { None };
        Self { signature, area, next, newest: None, stopped: None }
    }

    /// Sector of the area at which to read [`PPL_HEADER_BYTES`]; `None` once the search has ended.
    #[must_use]
    pub const fn poll(&self) -> Option<Sectors> {
        self.next
    }

    /// Parses the header at the sector that [`PplScan::poll`] returned, and goes on to the next log
    /// or ends the search.
    pub fn handle(&mut self, bytes: &[u8]) {
        let Some(at) = self.next.take() else { return };
        let header = match PplHeader::parse(bytes, self.signature) {
            Ok(header) => header,
            Err(error) => {
                self.stopped = Some(error);
                return;
            }
        };
        let newer = self.newest.as_ref().is_none_or(|(_, old)| header.generation >= old.generation);
        if newer {
            let next = at.0.saturating_add(header.len().0);
            let fits = next.checked_add(HEADER_SECTORS).is_some_and(|end| end <= self.area.0);
            self.next = fits.then_some(Sectors(next));
            self.newest = Some((at, header));
        }
    }

    /// Newest log and its position in the area.
    ///
    /// # Errors
    ///
    /// The reason why there is no log. The parity of a dirty array may then be wrong.
    pub fn newest(self) -> Result<(Sectors, PplHeader), LogError> {
        let none = LogError::Short { at: at!(reserved), found: 0, expected: PPL_HEADER_BYTES };
        self.newest.ok_or(self.stopped.unwrap_or(none))
    }
}

const fn entry_at(index: usize, byte: usize, field: &'static str) -> At {
    At { structure: STRUCTURE, field, byte: ENTRIES_BYTE + size_of::<RawEntry>() * index + byte }
}

/// Checksum of a header, computed with 0 in the checksum field.
fn checksum(header: &[u8]) -> u32 {
    let (before, rest) = header.split_at(CHECKSUM_BYTE);
    crc32c_of(&[before, &[0; 4], rest.get(4..).unwrap_or_default()])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The UUID 10 11 ... 1f.
    fn uuid() -> Uuid {
        Uuid(std::array::from_fn(|index| u8::try_from(index).unwrap() + 0x10))
    }

    #[test]
    fn sums_are_those_of_md() {
        let signature = PplHeader::signature_of(uuid());
        assert_eq!(signature, 0xa70f_5a6b);
        let sum = |bytes: &[u8]| u32::from_le_bytes(bytes[532..536].try_into().unwrap());
        assert_eq!(sum(&PplHeader::empty(signature).encode()), 0x7583_4983);
        let partial: Vec<u8> = (0..8192_u32).map(|i| (7 * i % 256).try_into().unwrap()).collect();
        assert_eq!(crc32c(&partial), 0x96b0_eb6e);
        let header = PplHeader {
            signature,
            generation: 5,
            entries: vec![entry(4096, 8192, 16384, 1, 0x96b0_eb6e), entry(8192, 0, 131_072, 2, 0)],
        };
        let bytes = header.encode();
        assert_eq!(sum(&bytes), 0x93c2_5af1);
        assert_eq!(PplHeader::parse(&bytes, signature).as_ref(), Ok(&header));
        assert_eq!(header.check_partial(0, &partial), Ok(()));
        assert!(header.check_partial(0, &partial[1..]).is_err());
        assert_eq!(header.check_partial(1, &[]), Ok(()));
        assert!(header.check_partial(2, &[]).is_err());
        assert_eq!(header.len(), Sectors(24));
        assert_eq!(header.partial(1), Some(SectorRange::new(24, 0)));
    }

    const fn entry(
        data_sector: u64,
        pp_size: u32,
        data_size: u32,
        parity_disk: u32,
        checksum: u32,
    ) -> PplEntry {
        let data_sector = Sectors(data_sector);
        PplEntry { data_sector, pp_size, data_size, parity_disk, checksum }
    }

    /// Recovery of an entry on four members, with chunks of 64 KiB, left-symmetric, 100 stripes.
    fn recovery(entry: PplEntry) -> Result<Vec<PplRecompute>, LogError> {
        let context = PplContext {
            raid_disks: 4,
            chunk: Sectors(128),
            array_size: Sectors(38_400),
            room: Sectors(2048),
            owner: Slot(entry.parity_disk.try_into().unwrap_or(99)),
        };
        let header = PplHeader { signature: 0, generation: 1, entries: vec![entry] };
        header.recovery(&context, |stripe| Slot(3 - u16::try_from(stripe % 4).unwrap()))
    }

    type Ranges = Vec<(u64, u64)>;

    fn plain(found: &PplRecompute) -> ((u64, u64), Ranges, Option<(u64, u64)>) {
        let pair = |range: &SectorRange| (range.start.0, range.len.0);
        let data = found.data.iter().map(pair).collect();
        (pair(&found.stripes), data, found.partial.as_ref().map(pair))
    }

    #[test]
    fn what_was_written_is_what_is_read() {
        // Entries that Linux wrote for the array raid5-4-ppl, and two of other shapes.
        for (entry, expected) in [
            // 16 stripes of 4 KiB in all members, stripe 3
            (
                entry(1152, 0, 98304, 0, 0),
                vec![((384, 64), vec![(1152, 64), (1280, 64), (1408, 64)], None)],
            ),
            // the first two chunks of stripe 10
            (
                entry(3840, 65536, 131_072, 1, 1),
                vec![((1280, 128), vec![(3840, 128), (3968, 128)], Some((8, 128)))],
            ),
            // the last chunk of stripe 10
            (
                entry(4096, 65536, 65536, 1, 1),
                vec![((1280, 128), vec![(4096, 128)], Some((8, 128)))],
            ),
            // the second half of two chunks of stripe 5
            (
                entry(2112, 32768, 65536, 2, 1),
                vec![((704, 64), vec![(2112, 64), (2240, 64)], Some((8, 64)))],
            ),
            // a whole stripe
            (
                entry(0, 0, 196_608, 3, 0),
                vec![((0, 128), vec![(0, 128), (128, 128), (256, 128)], None)],
            ),
            // a chunk and a half, with partial parity of a whole one
            (
                entry(0, 65536, 98304, 3, 0),
                vec![
                    ((0, 64), vec![(0, 64), (128, 64)], Some((8, 64))),
                    ((64, 64), vec![(64, 64)], Some((72, 64))),
                ],
            ),
        ] {
            let found = recovery(entry).unwrap();
            let found: Vec<_> = found.iter().map(plain).collect();
            assert_eq!(found, expected, "{entry:?}");
        }
    }

    #[test]
    fn what_cannot_be_is_named() {
        for (entry, field, byte) in [
            (entry(0, 4097, 4096, 3, 0), "entries.pp_size", 544),
            (entry(0, 4096, 4097, 3, 0), "entries.data_size", 548),
            (entry(0, 4096, 0, 3, 0), "entries.data_size", 548),
            (entry(0, 0, 0, 3, 0), "entries.data_size", 548),
            (entry(0, 8192, 4096, 3, 0), "entries.data_size", 548),
            (entry(0, 4096, 4096 * 4, 3, 0), "entries.data_size", 548),
            (entry(0, 65536, 65536 * 4, 3, 0), "entries.data_size", 548),
            (entry(128, 4096, 4096 * 3, 3, 0), "entries.data_sector", 536),
            (entry(64, 0, 196_608, 3, 0), "entries.data_sector", 536),
            (entry(38_400, 4096, 4096, 3, 0), "entries.data_sector", 536),
            (entry(u64::MAX, 512, 512, 3, 0), "entries.data_sector", 536),
            (entry(0, 4096, 4096, 2, 0), "entries.parity_disk", 552),
            (entry(0, 4096, 4096, 4, 0), "entries.parity_disk", 552),
            (entry(0, 1 << 20, 65536, 3, 0), "entries.pp_size", 544),
        ] {
            let at = recovery(entry).unwrap_err().at();
            assert_eq!((at.field, at.byte), (field, byte), "{entry:?}");
        }
    }

    #[test]
    fn the_newest_log_is_found() {
        let log = |generation, pp_size: u32| PplHeader {
            signature: 9,
            generation,
            entries: vec![entry(0, pp_size, 4096, 0, 0)],
        };
        let scan = |logs: &[(u64, PplHeader)], area| {
            let mut scan = PplScan::new(9, Sectors(area));
            while let Some(at) = scan.poll() {
                let found = logs.iter().find(|(start, _)| *start == at.0);
                scan.handle(&found.map_or([0; 4096], |(_, header)| header.encode()));
            }
            scan.newest().map(|(at, header)| (at.0, header.generation))
        };
        let ring = [(0, log(7, 4096)), (16, log(8, 0)), (24, log(9, 4096)), (40, log(2, 0))];
        assert_eq!(scan(&ring, 2048), Ok((24, 9)));
        assert_eq!(scan(&ring[..2], 2048), Ok((16, 8)));
        assert_eq!(scan(&ring, 31), Ok((16, 8)));
        assert_eq!(scan(&ring[1..], 2048).unwrap_err().at().field, "checksum");
        assert!(scan(&ring, 7).is_err());
        let other = [(0, PplHeader { signature: 8, ..log(7, 0) })];
        assert_eq!(scan(&other, 2048).unwrap_err().at().field, "signature");
    }
}
