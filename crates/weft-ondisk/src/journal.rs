//! Journal of RAID 4/5/6: its meta blocks, and whether it holds data that the members lack.
//!
//! The journal is a member of its own, used as a ring. A meta block of 4 KiB lists the blocks of
//! data and parity that follow it, and where they belong; the next meta block comes after them. The
//! member's superblock names the block to begin with. The journal does not record whether the
//! members have its content already, so all of it counts.
//!
//! weft reads only far enough to tell whether a journal is empty, and never replays one.
//!
//! ```text
//! | meta block seq 7 | data | data | parity | meta block seq 8 | parity | ...
//!   ^ journal_tail
//! ```
//!
//! Source: format facts as read from Linux 6.1 and 6.12; a meta block of Linux 6.12 in
//! `fixtures/md-meta`. Parity and flush payloads follow the kernel's source and were not tested
//! with payloads that a kernel wrote.

use crate::crc::crc32c_raw;
use crate::error::at;
use crate::{At, LogError, Uuid};
use std::fmt;
use weft_units::{SECTOR_BYTES, Sectors};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a meta block, and of each block of data or parity.
pub const JOURNAL_BLOCK_BYTES: usize = 4096;

const BLOCK_SECTORS: u64 = JOURNAL_BLOCK_BYTES as u64 / SECTOR_BYTES;
const MAGIC: u32 = 0x6433_c509;
const VERSION: u8 = 1;
const STRUCTURE: &str = "journal";
const HEADER_BYTES: usize = size_of::<Raw>();

/// Start of a meta block as stored in the journal; its payloads follow.
///
/// Source   md's journal meta block, in on-disk order
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    magic: U32,
    checksum: U32,
    version: u8,
    padding: [u8; 3],
    meta_size: U32,
    seq: U64,
    position: U64,
}

const _: () = assert!(HEADER_BYTES == 32);

/// A meta block of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaBlock {
    /// Sequence number, one more than that of the previous block. Byte 16.
    pub seq: u64,
    /// Sector of the ring at which the block is. Byte 24.
    pub position: Sectors,
    /// Payloads that follow the meta block. Byte 32.
    pub payloads: Vec<Payload>,
}

/// Payload that a meta block lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Blocks of data, which follow the meta block.
    Data {
        /// Flags: 1 if the data was discarded; 2 and 3 during a reshape.
        flags: u16,
        /// Sector of the array to which the data belongs.
        sector: Sectors,
        /// Checksum of each block of 4 KiB.
        checksums: Vec<u32>,
    },
    /// The stripes at these member sectors have been written to the members. No blocks follow.
    Flush {
        /// Flags of the payload, as for data.
        flags: u16,
        /// First sector of each stripe in the members' data.
        stripes: Vec<u64>,
    },
    /// P, or P and Q, which follow the meta block and end a stripe.
    Parity {
        /// Flags of the payload, as for data.
        flags: u16,
        /// Sector of the members' data to which the parity belongs.
        sector: Sectors,
        /// Checksum of each block of 4 KiB.
        checksums: Vec<u32>,
    },
}

/// Seed of all checksums in the journal of this array.
#[must_use]
pub fn journal_seed(set_uuid: Uuid) -> u32 {
    crc32c_raw(u32::MAX, &set_uuid.0)
}

/// Checksum of a block of data or parity, with the `seed` from [`journal_seed`].
#[must_use]
pub fn journal_block_checksum(seed: u32, block: &[u8]) -> u32 {
    crc32c_raw(seed, block)
}

impl MetaBlock {
    /// A meta block without payloads, with which a new or recovered journal begins.
    #[must_use]
    pub const fn empty(seq: u64, position: Sectors) -> Self {
        Self { seq, position, payloads: Vec::new() }
    }

    /// Reads the meta block found at `position` of the ring.
    ///
    /// # Errors
    ///
    /// [`LogError`] with the first field that is wrong: there is no meta block here.
    pub fn parse(bytes: &[u8], seed: u32, position: Sectors) -> Result<Self, LogError> {
        let short = || LogError::Short {
            at: at!(magic),
            found: bytes.len(),
            expected: JOURNAL_BLOCK_BYTES,
        };
        let block = bytes.get(..JOURNAL_BLOCK_BYTES).ok_or_else(short)?;
        let (raw, _) = Raw::ref_from_prefix(block).map_err(|_| short())?;
        let found = raw.magic.get();
        if found != MAGIC {
            return Err(LogError::Magic { at: at!(magic), found, expected: MAGIC });
        }
        if raw.version != VERSION {
            return Err(LogError::value(at!(version), raw.version, "1"));
        }
        if raw.position.get() != position.0 {
            let expected = format!("{}, where it was read", position.0);
            return Err(LogError::value(at!(position), raw.position.get(), expected));
        }
        let (stored, computed) = (raw.checksum.get(), checksum(seed, block));
        if stored != computed {
            return Err(LogError::Checksum { at: at!(checksum), stored, computed });
        }
        let meta_size = raw.meta_size.get();
        let listed = usize::try_from(meta_size).ok().and_then(|end| block.get(HEADER_BYTES..end));
        let Some(mut rest) = listed else {
            let expected = format!("{HEADER_BYTES}..={JOURNAL_BLOCK_BYTES}");
            return Err(LogError::value(at!(meta_size), meta_size, expected));
        };
        let mut payloads = Vec::new();
        while !rest.is_empty() {
            let byte = meta_size as usize - rest.len();
            let (payload, len) = Payload::parse(rest, byte)?;
            payloads.push(payload);
            rest = rest.get(len..).unwrap_or_default();
        }
        Ok(Self { seq: raw.seq.get(), position, payloads })
    }

    /// Encodes the block, including its checksum. `None` when its payloads do not fit.
    #[must_use]
    pub fn encode(&self, seed: u32) -> Option<[u8; JOURNAL_BLOCK_BYTES]> {
        let mut listed = Vec::new();
        for payload in &self.payloads {
            payload.encode(&mut listed)?;
        }
        let meta_size = HEADER_BYTES + listed.len();
        let raw = Raw {
            magic: MAGIC.into(),
            checksum: 0.into(),
            version: VERSION,
            padding: [0; 3],
            meta_size: u32::try_from(meta_size).ok()?.into(),
            seq: self.seq.into(),
            position: self.position.0.into(),
        };
        let mut block = [0; JOURNAL_BLOCK_BYTES];
        block.get_mut(..HEADER_BYTES)?.copy_from_slice(raw.as_bytes());
        block.get_mut(HEADER_BYTES..meta_size)?.copy_from_slice(&listed);
        let sum = checksum(seed, &block);
        block.get_mut(4..8)?.copy_from_slice(&sum.to_le_bytes());
        Some(block)
    }

    /// Sectors of the data and parity blocks that follow the meta block.
    #[must_use]
    pub fn payload_sectors(&self) -> Sectors {
        let blocks: usize = self.payloads.iter().map(Payload::block_count).sum();
        Sectors(blocks as u64 * BLOCK_SECTORS)
    }
}

impl Payload {
    /// Number of blocks of data or parity that this payload describes.
    #[must_use]
    pub fn block_count(&self) -> usize {
        match self {
            Self::Data { checksums, .. } | Self::Parity { checksums, .. } => checksums.len(),
            Self::Flush { .. } => 0,
        }
    }

    /// Reads a payload from the start of `bytes`, which begin at `byte` of the block. Returns the
    /// payload and the length of its description.
    fn parse(bytes: &[u8], byte: usize) -> Result<(Self, usize), LogError> {
        let at = |field, more| At { structure: STRUCTURE, field, byte: byte + more };
        let past = || {
            let expected = "a description within meta_size";
            LogError::value(at("payload.size", 4), format!("{} bytes left", bytes.len()), expected)
        };
        let head: &[u8; 8] = bytes.first_chunk().ok_or_else(past)?;
        let [t0, t1, f0, f1, s0, s1, s2, s3] = *head;
        let (kind, flags) = (u16::from_le_bytes([t0, t1]), u16::from_le_bytes([f0, f1]));
        let size = u32::from_le_bytes([s0, s1, s2, s3]);
        let words = |start: usize, len: usize, each: usize| {
            let end = start.checked_add(len)?;
            let words = bytes.get(start..end)?.chunks_exact(each);
            let number = |word: &[u8]| word.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
            Some(words.map(number).collect::<Vec<u64>>())
        };
        if kind == 2 {
            let len = size as usize;
            if !len.is_multiple_of(8) {
                return Err(LogError::value(at("payload.size", 4), size, "a multiple of 8 bytes"));
            }
            let stripes = words(8, len, 8).ok_or_else(past)?;
            return Ok((Self::Flush { flags, stripes }, 8 + len));
        }
        if kind > 2 {
            let expected = "0 (data), 1 (parity) or 2 (flush)";
            return Err(LogError::value(at("payload.type", 0), kind, expected));
        }
        let blocks = u64::from(size) / BLOCK_SECTORS;
        if blocks == 0 || blocks * BLOCK_SECTORS != u64::from(size) || kind == 1 && blocks > 2 {
            let expected = if kind == 1 { "8, or 16 with Q" } else { "a multiple of 8 sectors" };
            return Err(LogError::value(at("payload.size", 4), size, expected));
        }
        let sector = words(8, 8, 8).and_then(|words| words.first().copied()).ok_or_else(past)?;
        let sector = Sectors(sector);
        let len = usize::try_from(blocks).ok().and_then(|blocks| blocks.checked_mul(4));
        let len = len.ok_or_else(past)?;
        let sums = words(16, len, 4).ok_or_else(past)?;
        let checksums = sums.into_iter().filter_map(|sum| u32::try_from(sum).ok()).collect();
        let payload = if kind == 0 {
            Self::Data { flags, sector, checksums }
        } else {
            Self::Parity { flags, sector, checksums }
        };
        Ok((payload, 16 + len))
    }

    fn encode(&self, bytes: &mut Vec<u8>) -> Option<()> {
        let mut head = |kind: u16, flags: &u16, size: usize| {
            bytes.extend_from_slice(&kind.to_le_bytes());
            bytes.extend_from_slice(&flags.to_le_bytes());
            bytes.extend_from_slice(&u32::try_from(size).ok()?.to_le_bytes());
            Some(())
        };
        match self {
            Self::Data { flags, sector, checksums } | Self::Parity { flags, sector, checksums } => {
                let kind = u16::from(matches!(self, Self::Parity { .. }));
                head(kind, flags, checksums.len() * 8)?;
                bytes.extend_from_slice(&sector.0.to_le_bytes());
                bytes.extend(checksums.iter().flat_map(|sum| sum.to_le_bytes()));
            }
            Self::Flush { flags, stripes } => {
                head(2, flags, stripes.len() * 8)?;
                bytes.extend(stripes.iter().flat_map(|stripe| stripe.to_le_bytes()));
            }
        }
        Some(())
    }
}

/// A scan of the ring.
///
/// Call [`JournalScan::poll`] for the next sector to read and pass the bytes to
/// [`JournalScan::handle`] until there is nothing more to read, then call [`JournalScan::finish`].
#[derive(Clone, Debug)]
pub struct JournalScan {
    seed: u32,
    ring: Sectors,
    next: Option<Sectors>,
    walked: u64,
    blocks: Vec<MetaBlock>,
    stopped: Option<LogError>,
}

/// Content of a journal's ring of meta blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalState {
    /// The journal has no data that the members lack.
    Empty,
    /// Meta blocks that have to be replayed, in this order. An empty meta block at the start is
    /// left out.
    Live(Vec<MetaBlock>),
}

impl JournalScan {
    /// Starts a scan at the tail that the journal member's superblock names.
    ///
    /// Units `data_size` as in the superblock; the ring is its whole blocks of 4 KiB
    ///
    /// # Errors
    ///
    /// `Value` for a tail that is not a block of the ring.
    pub fn new(set_uuid: Uuid, tail: Sectors, data_size: Sectors) -> Result<Self, LogError> {
        let ring = data_size.round_down(Sectors(BLOCK_SECTORS));
        if tail >= ring || !tail.0.is_multiple_of(BLOCK_SECTORS) {
            let at = At { structure: STRUCTURE, field: "journal_tail", byte: 152 };
            let expected = format!("a multiple of 8 below {}", ring.0);
            return Err(LogError::value(at, tail.0, expected));
        }
        let seed = journal_seed(set_uuid);
        let (next, blocks) = (Some(tail), Vec::new());
        Ok(Self { seed, ring, next, walked: 0, blocks, stopped: None })
    }

    /// Sector of the ring at which to read [`JOURNAL_BLOCK_BYTES`]; `None` once the scan has ended.
    #[must_use]
    pub const fn poll(&self) -> Option<Sectors> {
        self.next
    }

    /// Parses the block at the sector that [`JournalScan::poll`] returned, and goes on to the next
    /// meta block or ends the scan.
    pub fn handle(&mut self, bytes: &[u8]) {
        let Some(at) = self.next.take() else { return };
        let block =
            MetaBlock::parse(bytes, self.seed, at).and_then(|block| match self.blocks.last() {
                Some(before) if before.seq.checked_add(1) != Some(block.seq) => {
                    let expected = format!("{} + 1", before.seq);
                    Err(LogError::value(at!(seq), block.seq, expected))
                }
                _ => Ok(block),
            });
        let block = match block {
            Ok(block) => block,
            Err(error) => {
                self.stopped = Some(error);
                return;
            }
        };
        let step = BLOCK_SECTORS + block.payload_sectors().0;
        self.walked = self.walked.saturating_add(step);
        if self.walked > self.ring.0 {
            let expected = format!("all of them to fit the ring, {}", self.ring.0);
            let found = format!("{} sectors of blocks", self.walked);
            self.stopped = Some(LogError::value(at!(meta_size), found, expected));
            self.blocks.push(block);
            return;
        }
        self.blocks.push(block);
        // A scan that has come round to the tail again has read the whole ring.
        self.next = (self.walked < self.ring.0).then(|| Sectors((at.0 + step) % self.ring.0));
    }

    /// Returns the result of the scan.
    ///
    /// A block that is not the next meta block ends the journal, as in the kernel: it was never
    /// written completely.
    ///
    /// # Errors
    ///
    /// Fails when the tail is not a meta block (the kernel takes this for an empty journal and
    /// loses its content), or when blocks are listed that do not fit the ring.
    pub fn finish(self) -> Result<JournalState, LogError> {
        let overfull = self.walked > self.ring.0;
        match self.stopped {
            Some(error) if self.blocks.is_empty() || overfull => return Err(error),
            _ => {}
        }
        let mut blocks = self.blocks;
        if blocks.first().is_some_and(|tail| tail.payloads.is_empty()) {
            blocks.remove(0);
        }
        Ok(if blocks.is_empty() { JournalState::Empty } else { JournalState::Live(blocks) })
    }
}

/// Format: `empty`, or `meta blocks to replay: 1, with 16 blocks of data and parity`.
impl fmt::Display for JournalState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Live(blocks) = self else { return f.pad("empty") };
        let held: usize =
            blocks.iter().flat_map(|block| &block.payloads).map(Payload::block_count).sum();
        let count = blocks.len();
        write!(f, "meta blocks to replay: {count}, with {held} blocks of data and parity")
    }
}

/// Checksum of a meta block, computed with 0 in the checksum field.
fn checksum(seed: u32, block: &[u8]) -> u32 {
    let (magic, rest) = block.split_at(4);
    let pieces = [magic, &[0; 4], rest.get(4..).unwrap_or_default()];
    pieces.iter().fold(seed, |register, piece| crc32c_raw(register, piece))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The UUID 10 11 ... 1f.
    fn uuid() -> Uuid {
        Uuid(std::array::from_fn(|index| u8::try_from(index).unwrap() + 0x10))
    }

    fn data(count: usize) -> Payload {
        Payload::Data { flags: 0, sector: Sectors(1000), checksums: vec![5; count] }
    }

    #[test]
    fn sums_are_those_of_md() {
        let seed = journal_seed(uuid());
        assert_eq!(seed, 0x58f0_a594);
        let block = MetaBlock::empty(7, Sectors(64)).encode(seed).unwrap();
        assert_eq!(block[4..8], 0xdbda_0fed_u32.to_le_bytes());
        assert_eq!(MetaBlock::parse(&block, seed, Sectors(64)).unwrap().payloads, []);
    }

    #[test]
    fn every_payload_is_read_back() {
        let checksums = vec![1, u32::MAX];
        let block = MetaBlock {
            seq: u64::MAX,
            position: Sectors(8),
            payloads: vec![
                data(1),
                Payload::Flush { flags: 1, stripes: vec![u64::MAX, 0] },
                data(3),
                Payload::Parity { flags: 3, sector: Sectors(u64::MAX), checksums },
                Payload::Flush { flags: 0, stripes: vec![] },
            ],
        };
        let bytes = block.encode(9).unwrap();
        assert_eq!(MetaBlock::parse(&bytes, 9, Sectors(8)).as_ref(), Ok(&block));
        assert_eq!(block.payload_sectors(), Sectors(6 * 8));
        assert_eq!(MetaBlock { payloads: vec![data(2000)], ..block }.encode(9), None);
    }

    /// Scans a ring of 64 sectors from sector 48 on. It has each of `blocks` at the position that
    /// the block names.
    fn scan(blocks: &[MetaBlock]) -> Result<JournalState, LogError> {
        let mut scan = JournalScan::new(uuid(), Sectors(48), Sectors(71)).unwrap();
        let seed = journal_seed(uuid());
        for _ in 0..10 {
            let Some(at) = scan.poll() else { break };
            let block = blocks.iter().find(|block| block.position == at);
            scan.handle(&block.map_or([0; 4096], |block| block.encode(seed).unwrap()));
        }
        assert_eq!(scan.poll(), None);
        scan.finish()
    }

    fn block(seq: u64, position: u64, payloads: &[Payload]) -> MetaBlock {
        MetaBlock { seq, position: Sectors(position), payloads: payloads.to_vec() }
    }

    #[test]
    fn a_ring_is_walked_from_its_tail() {
        let empty = block(3, 48, &[]);
        assert_eq!(scan(std::slice::from_ref(&empty)), Ok(JournalState::Empty));
        // A block of an earlier round has another sequence number.
        assert_eq!(scan(&[empty.clone(), block(1, 56, &[data(1)])]), Ok(JournalState::Empty));
        let next = block(4, 56, &[data(1)]);
        let last = block(5, 8, &[data(1), data(2)]);
        let live = Ok(JournalState::Live(vec![next.clone(), last.clone()]));
        assert_eq!(scan(&[empty.clone(), next.clone(), last.clone()]), live);
        let first = block(4, 48, &[data(1)]);
        assert_eq!(scan(std::slice::from_ref(&first)), Ok(JournalState::Live(vec![first])));
        // The ring is full: the scan ends where it began.
        let full = block(3, 48, &[data(7)]);
        assert_eq!(scan(std::slice::from_ref(&full)), Ok(JournalState::Live(vec![full])));
    }

    #[test]
    fn a_journal_that_cannot_be_is_refused() {
        assert_eq!(scan(&[]).unwrap_err().at().field, "magic");
        assert_eq!(scan(&[block(3, 48, &[data(8)])]).unwrap_err().at().field, "meta_size");
        for tail in [4, 64, u64::MAX] {
            let refused = JournalScan::new(uuid(), Sectors(tail), Sectors(71)).unwrap_err();
            assert_eq!(refused.at().field, "journal_tail");
        }
        let seed = journal_seed(uuid());
        let good = block(3, 48, &[data(1)]).encode(seed).unwrap();
        // Bytes to write, and the field that must be named.
        type Row = (&'static [(usize, u8)], &'static str, usize);
        let table: [Row; 15] = [
            (&[(0, 1)], "magic", 0),
            (&[(8, 2)], "version", 8),
            (&[(24, 49)], "position", 24),
            (&[(100, 1)], "checksum", 4),
            (&[(12, 31)], "meta_size", 12),
            (&[(13, 16), (12, 1)], "meta_size", 12),
            (&[(12, 51)], "payload.size", 36),
            (&[(12, 53)], "payload.size", 56),
            (&[(32, 3)], "payload.type", 32),
            (&[(36, 7)], "payload.size", 36),
            (&[(36, 0)], "payload.size", 36),
            (&[(36, 16)], "payload.size", 36),
            (&[(32, 1), (36, 24)], "payload.size", 36),
            (&[(32, 2), (36, 7)], "payload.size", 36),
            (&[(32, 2), (39, 0xf0), (36, 0)], "payload.size", 36),
        ];
        for (edits, field, byte) in table {
            let mut bytes = good;
            for (byte, value) in edits {
                bytes[*byte] = *value;
            }
            if field != "checksum" {
                let sum = checksum(seed, &bytes);
                bytes[4..8].copy_from_slice(&sum.to_le_bytes());
            }
            let found = MetaBlock::parse(&bytes, seed, Sectors(48)).unwrap_err();
            assert_eq!((found.at().field, found.at().byte), (field, byte), "{found}");
        }
    }
}
