//! Write-intent bitmap: its header, its bits, and whether they can be trusted.
//!
//! Each data member has a copy: a header of 256 bytes and one bit for each chunk of the synced
//! area, the lowest bit of the first byte for the first chunk. A set bit means that a write to the
//! chunk may have been in flight. For RAID10 the chunks divide the array, for other levels the data
//! of a member.
//!
//! ```text
//! version 3, 4   | header 256 | bits ...
//! version 5      | header 256 | bits ... | header | bits of node 1 ... |    each rounded up to 4 KiB
//! version 6      | header 1024           | bytes, one state for each chunk ... |    128 KiB in all
//! ```
//!
//! The bitmap has no checksum. The header's `events` tell whether bits are current: bits are
//! written before superblocks, so a header that is older than its superblock is stale.
//! [`Bitmap::parse`] never returns an empty set for a bitmap that it does not trust.
//!
//! Source: format facts as read from Linux 6.1 and 6.12, mdadm 4.2 to 4.6 and, for version 6, a
//! Linux of 2026; bits and headers of Linux 6.12 in `fixtures/md-meta`. The states of version 6 are
//! taken from the kernel's source and were not tested with bitmaps that a kernel wrote.

use crate::error::at;
use crate::{ByteOrder, LogError, Uuid};
use std::fmt;
use weft_units::{SECTOR_BYTES, SectorRange, Sectors};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of the header in versions 3 to 5.
pub const BITMAP_HEADER_BYTES: usize = 256;

/// Bytes of the header in version 6.
pub const LOCKLESS_HEADER_BYTES: usize = 1024;

/// Bytes of a whole bitmap of version 6.
pub const LOCKLESS_AREA_BYTES: usize = 128 << 10;

/// `b"bitm"` as a little-endian number.
const MAGIC: u32 = 0x6d74_6962;
const STRUCTURE: &str = "bitmap";
const WRITE_BEHIND_MAX: u32 = 16383;

/// Bit of `state`: the bitmap is out of date.
const STALE: u32 = 1 << 1;
/// Bit of `state`: writing the bitmap to the member has failed.
const WRITE_ERROR: u32 = 1 << 2;
/// Bit of `state`: the bitmap has not been used yet, and all chunks have the same state.
const FIRST_USE: u32 = 1 << 3;
/// Bit of `state`, valid with `FIRST_USE`: all chunks are clean. Without it they are unwritten.
const ALL_CLEAN: u32 = 1 << 4;

/// Header of a bitmap as stored on a member; [`BitmapHeader`] documents the fields.
///
/// Source   md's bitmap superblock, in on-disk order
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    magic: U32,
    version: U32,
    uuid: [u8; 16],
    events: U64,
    events_cleared: U64,
    sync_size: U64,
    state: U32,
    chunksize: U32,
    daemon_sleep: U32,
    write_behind: U32,
    sectors_reserved: U32,
    nodes: U32,
    cluster_name: [u8; 64],
    pad: [u8; 120],
}

const _: () = assert!(size_of::<Raw>() == BITMAP_HEADER_BYTES);

/// Every field of the header, as values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BitmapHeader {
    /// Version: 3 for bits in host byte order, 4 for the usual format, 5 clustered, 6 lockless.
    /// Byte 4.
    pub version: u32,
    /// UUID of the array, [`crate::Superblock::bitmap_uuid`]. Byte 8.
    pub uuid: Uuid,
    /// The array's event count when the bitmap was last written. Byte 24.
    pub events: u64,
    /// Event count at which bits were last cleared. Byte 32.
    pub events_cleared: u64,
    /// Sectors that the bits cover. Byte 40.
    pub sync_size: Sectors,
    /// Flags: stale bitmap, write error, first use. Byte 48.
    pub state: u32,
    /// Size of a chunk, in bytes; in version 6 in sectors. Byte 52.
    pub chunksize: u32,
    /// Seconds until md clears the bit of a chunk without writes. Byte 56.
    pub daemon_sleep: u32,
    /// Number of writes by which a write-mostly member may lag behind. Byte 60.
    pub write_behind: u32,
    /// Sectors reserved for the bitmap, 0 if not known. Byte 64.
    pub sectors_reserved: u32,
    /// Number of bitmaps, one for each node of a cluster. Byte 68.
    pub nodes: u32,
    /// Name of the cluster, for clustered arrays. Byte 72.
    pub cluster_name: [u8; 64],
}

/// Facts of the superblock that a bitmap depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitmapContext {
    /// UUID that the bitmap must carry: that of [`crate::Superblock::bitmap_uuid`].
    pub uuid: Uuid,
    /// Event count of the superblock.
    pub events: u64,
    /// Sectors that the bits should cover: the size of a member's data, for RAID10 of the array.
    pub sync_size: Sectors,
    /// Sectors available for header and bits: [`crate::Superblock::bitmap_room`].
    pub room: Sectors,
    /// Byte order of the machine that wrote a bitmap of version 3; `None` if it is not certain.
    pub origin: Option<ByteOrder>,
}

/// A bitmap, and whether it can be trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bitmap {
    /// Header of the bitmap.
    pub header: BitmapHeader,
    /// Chunk size in sectors.
    pub chunk: Sectors,
    /// Sectors that the chunks cover.
    pub sync_size: Sectors,
    /// Trust in the bits of this bitmap, with a reason unless it is full.
    pub trust: Trust,
    /// Messages about values in the bitmap that are unusual but have an accepted meaning.
    pub warnings: Vec<String>,
    chunk_count: u64,
    /// States of the first chunks, as far as the bytes of the bitmap had them; all further chunks
    /// are dirty.
    states: Vec<ChunkState>,
}

/// Trust in the bits of a bitmap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Every bit is trusted, and the bitmap can be kept up to date.
    Full,
    /// Every bit is trusted, but this release cannot keep the bitmap up to date; the text is the
    /// reason.
    ReadOnly(&'static str),
    /// The bits are not trusted, so all chunks but unwritten ones count as out of sync; the text is
    /// the reason.
    Stale(String),
}

/// State of a chunk: in sync or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkState {
    /// The members agree.
    Clean,
    /// The chunk was never written. The members hold zeros and the parity of zeros, so they agree.
    /// Only in version 6.
    CleanUnwritten,
    /// The chunk is, or may be, out of sync.
    Dirty,
    /// The chunk was never written and its parity never computed; no data can be reconstructed.
    /// Only in version 6.
    Unwritten,
}

impl BitmapHeader {
    /// Reads the header and checks only the magic.
    ///
    /// # Errors
    ///
    /// `Short` or `Magic`.
    pub fn decode(bytes: &[u8]) -> Result<Self, LogError> {
        let (raw, _) = Raw::ref_from_prefix(bytes).map_err(|_| LogError::Short {
            at: at!(magic),
            found: bytes.len(),
            expected: BITMAP_HEADER_BYTES,
        })?;
        let found = raw.magic.get();
        if found != MAGIC {
            return Err(LogError::Magic { at: at!(magic), found, expected: MAGIC });
        }
        Ok(Self {
            version: raw.version.get(),
            uuid: Uuid(raw.uuid),
            events: raw.events.get(),
            events_cleared: raw.events_cleared.get(),
            sync_size: Sectors(raw.sync_size.get()),
            state: raw.state.get(),
            chunksize: raw.chunksize.get(),
            daemon_sleep: raw.daemon_sleep.get(),
            write_behind: raw.write_behind.get(),
            sectors_reserved: raw.sectors_reserved.get(),
            nodes: raw.nodes.get(),
            cluster_name: raw.cluster_name,
        })
    }

    /// Encodes the header.
    #[must_use]
    pub fn encode(&self) -> [u8; BITMAP_HEADER_BYTES] {
        let raw = Raw {
            magic: MAGIC.into(),
            version: self.version.into(),
            uuid: self.uuid.0,
            events: self.events.into(),
            events_cleared: self.events_cleared.into(),
            sync_size: self.sync_size.0.into(),
            state: self.state.into(),
            chunksize: self.chunksize.into(),
            daemon_sleep: self.daemon_sleep.into(),
            write_behind: self.write_behind.into(),
            sectors_reserved: self.sectors_reserved.into(),
            nodes: self.nodes.into(),
            cluster_name: self.cluster_name,
            pad: [0; 120],
        };
        zerocopy::transmute!(raw)
    }

    /// Returns a copy of this header for a newly added member: marked stale, with event counts of
    /// 0.
    #[must_use]
    pub fn of_new_member(&self) -> Self {
        Self { events: 0, events_cleared: 0, state: STALE, ..self.clone() }
    }

    /// Returns a copy of this header for a bitmap with current bits: not marked stale.
    #[must_use]
    pub fn as_current(&self) -> Self {
        Self { state: self.state & !STALE, ..self.clone() }
    }

    /// Whether the bitmap is lockless, with a byte for each chunk instead of a bit.
    #[must_use]
    pub const fn is_lockless(&self) -> bool {
        self.version == 6
    }

    /// Chunk size in sectors.
    ///
    /// # Errors
    ///
    /// `Value` unless it is a power of two of at least one sector.
    pub fn chunk(&self) -> Result<Sectors, LogError> {
        let (sectors, expected) = if self.is_lockless() {
            (u64::from(self.chunksize), "a power of two, in sectors")
        } else {
            let bytes = u64::from(self.chunksize);
            let whole = bytes.is_multiple_of(SECTOR_BYTES);
            (if whole { bytes / SECTOR_BYTES } else { 0 }, "a power of two, at least 512")
        };
        if !sectors.is_power_of_two() {
            return Err(LogError::value(at!(chunksize), self.chunksize, expected));
        }
        Ok(Sectors(sectors))
    }

    /// Sectors of header and bits for `sync_size` sectors; for a cluster, of the bitmaps of all
    /// nodes.
    ///
    /// # Errors
    ///
    /// The errors of [`BitmapHeader::chunk`].
    pub fn area(&self, sync_size: Sectors) -> Result<Sectors, LogError> {
        if self.is_lockless() {
            return Ok(Sectors(LOCKLESS_AREA_BYTES as u64 / SECTOR_BYTES));
        }
        let bits = sync_size.0.div_ceil(self.chunk()?.0);
        let bytes = BITMAP_HEADER_BYTES as u64 + bits.div_ceil(8);
        if self.version == 5 {
            let node = bytes.next_multiple_of(4096) / SECTOR_BYTES;
            return Ok(Sectors(node.saturating_mul(self.nodes.max(1).into())));
        }
        Ok(Sectors(bytes.div_ceil(SECTOR_BYTES)))
    }

    /// All lines that `mdadm --examine-bitmap` prints for this header, as name and value.
    /// [`Bitmap::describe`] adds the line for the bits.
    #[must_use]
    pub fn describe(&self) -> Vec<(String, String)> {
        let mut lines = Vec::new();
        let mut line = |name: &str, value: String| lines.push((name.to_owned(), value));
        line("Magic", format!("{MAGIC:x}"));
        line("Version", self.version.to_string());
        line("UUID", self.uuid.to_string());
        line("Events", self.events.to_string());
        line("Events Cleared", self.events_cleared.to_string());
        let flags: Vec<&str> =
            [(STALE, "Out of date"), (WRITE_ERROR, "Write error"), (FIRST_USE, "First use")]
                .into_iter()
                .filter(|(bit, _)| self.state & bit != 0)
                .map(|(_, name)| name)
                .collect();
        line("State", if flags.is_empty() { "OK".to_owned() } else { flags.join(", ") });
        let bytes = if self.is_lockless() {
            u64::from(self.chunksize) * SECTOR_BYTES
        } else {
            self.chunksize.into()
        };
        line("Chunksize", short_size(bytes));
        line("Daemon", format!("{}s flush period", self.daemon_sleep));
        let mode = match self.write_behind {
            0 => "Normal".to_owned(),
            most => format!("Allow write behind, max {most}"),
        };
        line("Write Mode", mode);
        let size = self.sync_size;
        line("Sync Size", format!("{}{}", size.0 / 2, crate::examine::human(size)));
        lines
    }

    /// Checks the fields that md checks in all versions. Returns the chunk size, or the first
    /// fault.
    fn check(&self, context: &BitmapContext) -> Result<Sectors, LogError> {
        if !(3..=6).contains(&self.version) {
            return Err(LogError::value(at!(version), self.version, "3, 4, 5 or 6"));
        }
        if self.version == 3 && context.origin != Some(ByteOrder::Little) {
            let found = "3, bits in the order of the machine that wrote them";
            let expected = "4, or 3 known to be of a little-endian machine";
            return Err(LogError::value(at!(version), found, expected));
        }
        if self.uuid != context.uuid {
            return Err(LogError::OtherArray {
                at: at!(uuid),
                found: self.uuid.to_string(),
                expected: context.uuid.to_string(),
            });
        }
        let chunk = self.chunk()?;
        if self.daemon_sleep == 0 {
            return Err(LogError::value(at!(daemon_sleep), 0, "at least 1 second"));
        }
        if self.write_behind > WRITE_BEHIND_MAX {
            let expected = format!("at most {WRITE_BEHIND_MAX}");
            return Err(LogError::value(at!(write_behind), self.write_behind, expected));
        }
        let room_bytes = context.room.bytes().0;
        let fits = if self.is_lockless() {
            let chunks = context.sync_size.0.div_ceil(chunk.0);
            chunks <= (LOCKLESS_AREA_BYTES - LOCKLESS_HEADER_BYTES) as u64
                && LOCKLESS_AREA_BYTES as u64 <= room_bytes
        } else {
            self.area(context.sync_size)? <= context.room
        };
        if !fits {
            let expected =
                format!("chunks large enough for their bits to fit {} sectors", context.room.0);
            return Err(LogError::value(at!(chunksize), self.chunksize, expected));
        }
        Ok(chunk)
    }
}

impl Bitmap {
    /// Reads a bitmap and decides whether it can be trusted.
    ///
    /// In a stale bitmap every chunk is dirty, except chunks in the state
    /// [`ChunkState::Unwritten`]. In a bitmap that is shorter than the area to cover, the chunks
    /// beyond its end are dirty.
    ///
    /// Shape    `bytes` begin with the header; bits that are not given count as set
    ///
    /// # Errors
    ///
    /// [`LogError`] when it is not a bitmap of this array. The caller treats the array as one
    /// without a bitmap then, so that a dirty array is resynced as a whole.
    pub fn parse(bytes: &[u8], context: &BitmapContext) -> Result<Self, LogError> {
        let header = BitmapHeader::decode(bytes)?;
        let chunk = header.check(context)?;
        let sync_size = context.sync_size;
        let chunks = sync_size.0.div_ceil(chunk.0);
        let mut warnings = Vec::new();
        if header.sync_size != sync_size {
            warnings.push(format!(
                "{}: found {}, expected {}; chunks past the smaller count as out of sync",
                at!(sync_size),
                header.sync_size.0,
                sync_size.0
            ));
        }
        if header.state & WRITE_ERROR != 0 {
            warnings.push(format!("{}: found a write error noted", at!(state)));
        }
        let trust = header.trust(context);
        let known = chunks.min(header.sync_size.0.div_ceil(chunk.0));
        // `bytes` may be too short for all states; the chunks without a state are dirty.
        let states = (0..usize::try_from(known).unwrap_or(usize::MAX))
            .map_while(|index| header.state_of(bytes, index, chunks))
            .map(|said| match trust {
                // An unwritten chunk has no parity that could be in sync.
                Trust::Stale(_) if said != ChunkState::Unwritten => ChunkState::Dirty,
                _ => said,
            })
            .collect();
        Ok(Self { header, chunk, sync_size, trust, warnings, chunk_count: chunks, states })
    }

    /// Whether this release can keep the bitmap up to date while the array is written: one bit for
    /// each chunk, for one host. Version 3 (host byte order) is included, because [`Bitmap::parse`]
    /// refuses it unless its bits are in the order of version 4.
    #[must_use]
    pub const fn may_be_kept(&self) -> bool {
        matches!(self.header.version, 3 | 4)
    }

    /// Encodes header and bits, with a bit set for each dirty chunk.
    ///
    /// Shape    for versions 3 and 4; the length is not padded to a sector or block
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.header.encode().to_vec();
        let bits = usize::try_from(self.chunk_count.div_ceil(8)).unwrap_or(usize::MAX);
        bytes.resize(bytes.len().saturating_add(bits), 0);
        for (first, byte) in (0..).step_by(8).zip(bytes.iter_mut().skip(BITMAP_HEADER_BYTES)) {
            for index in (first..self.chunk_count).take(8) {
                *byte |= u8::from(self.state(index) == ChunkState::Dirty) << (index % 8);
            }
        }
        bytes
    }

    /// Whether the bits are not trusted. All chunks but unwritten ones then count as out of sync.
    #[must_use]
    pub const fn is_stale(&self) -> bool {
        matches!(self.trust, Trust::Stale(_))
    }

    /// Number of chunks that the bitmap covers.
    #[must_use]
    pub const fn chunk_count(&self) -> u64 {
        self.chunk_count
    }

    /// State of the chunk with this index; a chunk beyond the end counts as dirty.
    #[must_use]
    pub fn state(&self, index: u64) -> ChunkState {
        let known = usize::try_from(index).ok().and_then(|index| self.states.get(index));
        known.copied().unwrap_or(ChunkState::Dirty)
    }

    /// Marks every chunk as clean, in memory only.
    pub fn clear(&mut self) {
        self.states = vec![ChunkState::Clean; usize::try_from(self.chunk_count).unwrap_or(0)];
    }

    /// Merges the bitmap of another member into this one: a chunk that is dirty in either is dirty,
    /// and `events_cleared` is the higher of both. A bitmap with another chunk size or number of
    /// chunks is ignored.
    pub fn unite(&mut self, other: &Self) {
        if !self.is_alike(other) {
            return;
        }
        let cleared = self.header.events_cleared.max(other.header.events_cleared);
        self.header.events_cleared = cleared;
        for (index, state) in (0..).zip(&mut self.states) {
            if other.state(index) == ChunkState::Dirty {
                *state = ChunkState::Dirty;
            }
        }
    }

    /// Indices of the chunks that are dirty in this bitmap and not in `other`; none if the bitmaps
    /// differ in chunk size or number of chunks.
    pub fn dirty_beside<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = u64> + 'a {
        let chunks = if self.is_alike(other) { self.chunk_count } else { 0 };
        let dirty = |it: &Self, index| it.state(index) == ChunkState::Dirty;
        (0..chunks).filter(move |index| dirty(self, *index) && !dirty(other, *index))
    }

    fn is_alike(&self, other: &Self) -> bool {
        (self.chunk, self.chunk_count) == (other.chunk, other.chunk_count)
    }

    /// Ranges that may be out of sync, in ascending order; adjacent chunks are one range.
    ///
    /// Units    sectors of a member's data, for RAID10 of the array
    pub fn dirty_ranges(&self) -> impl Iterator<Item = SectorRange> + '_ {
        // Chunks past the known ones are dirty.
        let known = self.states.len() as u64;
        let mut index = 0;
        std::iter::from_fn(move || {
            let next = |from: u64, dirty: bool| {
                (from..known).find(|index| (self.state(*index) == ChunkState::Dirty) == dirty)
            };
            let start = next(index, true).unwrap_or(known.max(index));
            if start >= self.chunk_count {
                return None;
            }
            index = next(start, false).unwrap_or(self.chunk_count);
            let first = start * self.chunk.0;
            let end = index.saturating_mul(self.chunk.0).min(self.sync_size.0);
            Some(SectorRange::new(first, end - first))
        })
    }

    /// Dirty ranges that have to be resynced when the array starts, in ascending order. `degraded`
    /// says whether a member is missing, `events` is the event count of the superblock, and
    /// `resync_from` the resync checkpoint (`None` for a clean array).
    ///
    /// Source   md: if the array is degraded and `events_cleared` differs from `events`, the bits
    ///          are kept for the missing member, and all dirty ranges are resynced. Otherwise dirty
    ///          ranges are resynced from the checkpoint on, including the chunk that ends at it,
    ///          and in a clean array none
    pub fn resync_ranges(
        &self,
        degraded: bool,
        events: u64,
        resync_from: Option<Sectors>,
    ) -> impl Iterator<Item = SectorRange> + '_ {
        let kept = degraded && self.header.events_cleared != events;
        let from = if kept { Some(Sectors::ZERO) } else { resync_from };
        let chunk = self.chunk;
        self.dirty_ranges().filter_map(move |range| {
            // A chunk that ends at the checkpoint is still resynced, as in md.
            let first = from?.0.saturating_sub(1) / chunk.0 * chunk.0;
            let (start, end) = (range.start.0.max(first), range.end().0);
            (start < end).then(|| SectorRange::new(start, end - start))
        })
    }

    /// All lines that `mdadm --examine-bitmap` prints, as name and value.
    #[must_use]
    pub fn describe(&self) -> Vec<(String, String)> {
        let mut lines = self.header.describe();
        let total = self.chunk_count;
        let clean = self.states.iter().filter(|state| **state != ChunkState::Dirty).count();
        let dirty = total - clean as u64;
        let tenths = (u128::from(dirty) * 2000 / u128::from(total.max(1))).div_ceil(2);
        let (percent, tenth) = (tenths / 10, tenths % 10);
        let value = format!("{total} bits (chunks), {dirty} dirty ({percent}.{tenth}%)");
        lines.push(("Bitmap".to_owned(), value));
        lines
    }
}

impl BitmapHeader {
    fn trust(&self, context: &BitmapContext) -> Trust {
        if self.state & STALE != 0 {
            Trust::Stale(format!("{}: found the stale flag, expected none", at!(state)))
        } else if self.events < context.events {
            Trust::Stale(format!(
                "{}: found {}, expected at least {}, that of the superblock",
                at!(events),
                self.events,
                context.events
            ))
        } else {
            match self.version {
                5 => Trust::ReadOnly("the bitmaps of a cluster's nodes"),
                6 => Trust::ReadOnly("a lockless bitmap"),
                _ => Trust::Full,
            }
        }
    }

    /// State of chunk `index` of `chunks` in `bytes`, which begin with the header; `None` if
    /// `bytes` are too short to tell.
    fn state_of(&self, bytes: &[u8], index: usize, chunks: u64) -> Option<ChunkState> {
        if self.is_lockless() {
            if self.state & FIRST_USE != 0 {
                let clean = self.state & ALL_CLEAN != 0;
                return Some(if clean { ChunkState::Clean } else { ChunkState::Unwritten });
            }
            return bytes.get(LOCKLESS_HEADER_BYTES + index).map(|code| lockless(*code));
        }
        let nodes = if self.version == 5 { self.nodes.max(1) } else { 1 };
        let node_bytes = (BITMAP_HEADER_BYTES as u64 + chunks.div_ceil(8)).next_multiple_of(4096);
        // The bits of a node beyond the given bytes may be set, so the state of the chunk is
        // unknown unless an earlier node has set its bit.
        for node in 0..u64::from(nodes) {
            let start = usize::try_from(node.checked_mul(node_bytes)?).ok()?;
            let byte = start.checked_add(BITMAP_HEADER_BYTES + index / 8)?;
            if bytes.get(byte)? >> (index % 8) & 1 != 0 {
                return Some(ChunkState::Dirty);
            }
        }
        Some(ChunkState::Clean)
    }
}

/// Converts the stored state `code` of a chunk in version 6 to its state after loading. A chunk
/// with an interrupted sync is dirty again.
fn lockless(code: u8) -> ChunkState {
    match code {
        0 => ChunkState::Unwritten,
        1 => ChunkState::Clean,
        7 => ChunkState::CleanUnwritten,
        // 5 and 6: parity of an unwritten chunk is being computed, so there is none to rely on.
        5 | 6 => ChunkState::Unwritten,
        // 2 dirty, 3 need-sync, 4 syncing, and codes that are not defined yet.
        _ => ChunkState::Dirty,
    }
}

impl fmt::Display for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.pad("usable"),
            Self::ReadOnly(what) => write!(f, "usable for reading: {what}"),
            Self::Stale(why) => write!(f, "stale: {why}"),
        }
    }
}

/// Chunk size as mdadm prints it, in the largest unit that divides it.
fn short_size(bytes: u64) -> String {
    for (shift, unit) in [(30, "GB"), (20, "MB"), (10, "KB")] {
        let whole = bytes >> shift;
        if whole > 0 && bytes.trailing_zeros() >= shift {
            return format!("{whole} {unit}");
        }
    }
    format!("{bytes} bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: Uuid = Uuid([7; 16]);

    fn header(version: u32, chunksize: u32, sync_size: u64) -> BitmapHeader {
        BitmapHeader {
            version,
            uuid: UUID,
            events: 10,
            events_cleared: 8,
            sync_size: Sectors(sync_size),
            state: 0,
            chunksize,
            daemon_sleep: 5,
            write_behind: 0,
            sectors_reserved: 0,
            nodes: 0,
            cluster_name: [0; 64],
        }
    }

    fn context(sync_size: u64) -> BitmapContext {
        BitmapContext {
            uuid: UUID,
            events: 10,
            sync_size: Sectors(sync_size),
            room: Sectors(256),
            origin: None,
        }
    }

    fn bytes(header: &BitmapHeader, bits: &[u8]) -> Vec<u8> {
        [&header.encode()[..], bits].concat()
    }

    fn ranges(found: impl Iterator<Item = SectorRange>) -> Vec<(u64, u64)> {
        found.map(|range| (range.start.0, range.len.0)).collect()
    }

    #[test]
    fn bits_count_from_the_lowest_and_end_with_the_data() {
        let header = header(4, 4096, 8 * 19 + 3);
        let bitmap =
            Bitmap::parse(&bytes(&header, &[0b1000_0001, 1, 0xf8]), &context(155)).unwrap();
        assert_eq!(bitmap.trust, Trust::Full);
        assert_eq!(bitmap.chunk_count(), 20);
        assert_eq!(ranges(bitmap.dirty_ranges()), [(0, 8), (56, 16), (152, 3)]);
        // Bits past the last chunk have no meaning and are ignored.
        assert_eq!(bitmap.encode()[BITMAP_HEADER_BYTES..], [0b1000_0001, 1, 0b1000]);
        // Without the last byte, the last chunks are not known.
        let bitmap = Bitmap::parse(&bytes(&header, &[0, 0]), &context(155)).unwrap();
        assert_eq!(ranges(bitmap.dirty_ranges()), [(128, 27)]);
    }

    #[test]
    fn a_bitmap_of_another_size_covers_only_its_own() {
        let bitmap = Bitmap::parse(&bytes(&header(4, 4096, 16), &[0; 8]), &context(64)).unwrap();
        assert_eq!(ranges(bitmap.dirty_ranges()), [(16, 48)]);
        assert_eq!(bitmap.warnings.len(), 1);
        let bitmap = Bitmap::parse(&bytes(&header(4, 4096, 640), &[0; 8]), &context(64)).unwrap();
        assert_eq!(ranges(bitmap.dirty_ranges()), []);
    }

    #[test]
    fn what_is_older_than_its_superblock_says_nothing() {
        let mut old = header(4, 4096, 64);
        old.events = 9;
        let bitmap = Bitmap::parse(&bytes(&old, &[0; 8]), &context(64)).unwrap();
        assert!(matches!(bitmap.trust, Trust::Stale(_)), "{}", bitmap.trust);
        assert_eq!(ranges(bitmap.dirty_ranges()), [(0, 64)]);
        old.events = 11;
        let bitmap = Bitmap::parse(&bytes(&old, &[0; 8]), &context(64)).unwrap();
        assert_eq!(ranges(bitmap.dirty_ranges()), []);
        old.state = STALE;
        let bitmap = Bitmap::parse(&bytes(&old, &[0; 8]), &context(64)).unwrap();
        assert_eq!(ranges(bitmap.dirty_ranges()), [(0, 64)]);
    }

    #[test]
    fn a_new_member_gets_a_bitmap_that_is_stale_and_that_says_all() {
        for version in 3..=6 {
            let mut header = header(version, 4096, 8 * 19 + 3);
            header.chunksize = if version == 6 { 8 } else { 4096 };
            let origin = Some(ByteOrder::Little);
            let context = BitmapContext { origin, room: Sectors(1 << 20), ..context(155) };
            let bitmap = Bitmap::parse(&bytes(&header, &[0; 1024]), &context).unwrap();
            assert_eq!(bitmap.may_be_kept(), version <= 4);
        }
        let bitmap = Bitmap::parse(&bytes(&header(4, 4096, 155), &[0; 3]), &context(155)).unwrap();
        assert_eq!(bitmap.dirty_ranges().count(), 0);
        let mut fresh = bitmap.header.of_new_member().encode().to_vec();
        fresh.resize(4096, 0xff);
        let fresh = Bitmap::parse(&fresh, &BitmapContext { events: 0, ..context(155) }).unwrap();
        assert!(matches!(fresh.trust, Trust::Stale(_)), "{}", fresh.trust);
        assert_eq!(ranges(fresh.dirty_ranges()), [(0, 155)]);
        assert_eq!((fresh.header.events, fresh.header.events_cleared), (0, 0));
        assert_eq!((fresh.header.uuid, fresh.header.chunksize), (UUID, 4096));
        assert_eq!(fresh.header.as_current().state, 0);
    }

    #[test]
    fn a_checkpoint_spares_what_is_below_it() {
        let bitmap = Bitmap::parse(&bytes(&header(4, 4096, 64), &[0xff]), &context(64)).unwrap();
        for (degraded, events, from, expected) in [
            (false, 10, None, vec![]),
            (false, 10, Some(0), vec![(0, 64)]),
            (false, 10, Some(8), vec![(0, 64)]), // the chunk that ends there
            (false, 10, Some(9), vec![(8, 56)]),
            (false, 10, Some(65), vec![]),
            (true, 8, None, vec![]), // no bit is kept for a missing member
            (true, 10, None, vec![(0, 64)]),
            (true, 10, Some(40), vec![(0, 64)]),
        ] {
            let found = bitmap.resync_ranges(degraded, events, from.map(Sectors));
            assert_eq!(ranges(found), expected, "{degraded} {events} {from:?}");
        }
    }

    #[test]
    fn every_node_of_a_cluster_counts() {
        let mut header = header(5, 4096, 64);
        header.nodes = 2;
        let mut both = bytes(&header, &[0; 4096]);
        both.truncate(4096);
        both.extend_from_slice(&bytes(&header, &[0b100]));
        let bitmap = Bitmap::parse(&both, &context(64)).unwrap();
        assert!(matches!(bitmap.trust, Trust::ReadOnly(_)));
        assert_eq!(ranges(bitmap.dirty_ranges()), [(16, 8)]);
        both.truncate(4096);
        let bitmap = Bitmap::parse(&both, &context(64)).unwrap();
        assert_eq!(ranges(bitmap.dirty_ranges()), [(0, 64)]);
        assert_eq!(header.area(Sectors(64)), Ok(Sectors(16)));

        // With one chunk more than fits beside the header in 4 KiB, each node has 8 KiB.
        let fits = 8 * (4096 - BITMAP_HEADER_BYTES as u64);
        for (chunks, node_bytes) in [(fits, 4096), (fits + 1, 8192)] {
            let sync_size = chunks * 8;
            let mut all = vec![0; 2 * node_bytes];
            let header = BitmapHeader { sync_size: Sectors(sync_size), ..header.clone() };
            for node in all.chunks_exact_mut(node_bytes) {
                node[..BITMAP_HEADER_BYTES].copy_from_slice(&header.encode());
            }
            all[node_bytes + BITMAP_HEADER_BYTES] = 1;
            let bitmap = Bitmap::parse(&all, &context(sync_size)).unwrap();
            assert_eq!(ranges(bitmap.dirty_ranges()), [(0, 8)], "{chunks} chunks");
        }
    }

    #[test]
    fn the_size_of_a_chunk_is_said_in_the_largest_unit_that_divides_it() {
        for (bytes, said) in [
            (0, "0 bytes"),
            (512, "512 bytes"),
            (1023, "1023 bytes"),
            (1024, "1 KB"),
            (1536, "1536 bytes"),
            (1 << 20, "1 MB"),
            (3 << 20, "3 MB"),
            (1025 << 10, "1025 KB"),
            (1 << 30, "1 GB"),
        ] {
            assert_eq!(short_size(bytes), said);
        }
        // Lockless bitmaps count in sectors, others in bytes.
        for (version, chunksize) in [(4, 4096), (6, 8)] {
            let lines = header(version, chunksize, 64).describe();
            let chunk = lines.iter().find(|(name, _)| name == "Chunksize").unwrap();
            assert_eq!(chunk.1, "4 KB", "version {version}");
        }
    }

    #[test]
    fn a_lockless_bitmap_has_states() {
        let mut lockless = header(6, 8, 80);
        let mut all = lockless.encode().to_vec();
        all.resize(LOCKLESS_HEADER_BYTES, 0xee);
        all.extend_from_slice(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 255]);
        let bitmap = Bitmap::parse(&all, &context(80)).unwrap();
        assert_eq!(ranges(bitmap.dirty_ranges()), [(16, 24), (64, 16)]);
        use ChunkState::{Clean, CleanUnwritten, Dirty, Unwritten};
        let states = |bitmap: &Bitmap| [0, 1, 2, 3, 4, 5, 6, 7, 8, 9].map(|at| bitmap.state(at));
        let (d, u) = (Dirty, Unwritten);
        assert_eq!(states(&bitmap), [u, Clean, d, d, d, u, u, CleanUnwritten, d, d]);
        assert!(matches!(bitmap.trust, Trust::ReadOnly(_)));

        let mut parse = |state| {
            lockless.state = state;
            all[..256].copy_from_slice(&lockless.encode());
            Bitmap::parse(&all, &context(80)).unwrap()
        };
        assert_eq!(states(&parse(STALE)), [u, d, d, d, d, u, u, d, d, d]);
        assert_eq!(states(&parse(FIRST_USE)), [u; 10]);
        let clean = parse(FIRST_USE | ALL_CLEAN);
        assert!(states(&clean).iter().all(|state| matches!(state, Clean | CleanUnwritten)));
        let small = BitmapContext { room: Sectors(255), ..context(80) };
        assert!(Bitmap::parse(&all, &small).is_err());
    }

    #[test]
    fn bits_of_the_host_need_a_known_host() {
        let old = bytes(&header(3, 4096, 64), &[1]);
        let parse = |origin| Bitmap::parse(&old, &BitmapContext { origin, ..context(64) });
        assert!(parse(None).is_err());
        assert!(parse(Some(ByteOrder::Big)).is_err());
        let bitmap = parse(Some(ByteOrder::Little)).unwrap();
        assert_eq!(ranges(bitmap.dirty_ranges()), [(0, 8)]);
    }
}
