//! Metadata of a member: its superblock, and the bitmap and logs to which the superblock points.
//!
//! The caller reads the sectors that this module asks for. If a log cannot be trusted, the reason
//! is kept as a sentence, because only the assembly knows whether the log matters.
//!
//! Source: places of the logs as in `superblock.rs`, `bitmap.rs`, `ppl.rs` and `journal.rs`

use crate::{
    BITMAP_HEADER_BYTES, BadBlocks, Bitmap, BitmapContext, BitmapHeader, JOURNAL_BLOCK_BYTES,
    JournalScan, JournalState, MEMBER_SECTORS_MIN, PPL_HEADER_BYTES, PplHeader, PplScan, Role,
    SUPER_BYTES, Superblock, SuperblockError, Version,
};
use std::io;
use weft_units::{Bytes, Sectors};

/// All metadata of a member.
#[derive(Clone, Debug)]
pub struct Metadata {
    /// Superblock of the member.
    pub superblock: Superblock,
    /// Bitmap and logs.
    pub logs: Logs,
    /// Size that the member needs for its data, if the member is smaller: an image of a failing
    /// disk, or an image that was cut off. `None` if the member is large enough.
    pub uncut: Option<Sectors>,
    /// Possible positions of further superblocks that cannot be read: a sentence for each.
    pub unreadable: Vec<String>,
}

/// Bitmap and logs that a superblock points to.
///
/// `None` means that the superblock has no such log, `Err` that the log cannot be trusted, with the
/// reason as a sentence that does not name the member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Logs {
    /// Ranges of the member without valid data.
    pub bad_blocks: Option<Result<BadBlocks, String>>,
    /// Regions that may be out of sync.
    pub bitmap: Option<Result<Box<Bitmap>, String>>,
    /// Whether `bitmap` is an error because its sectors cannot be read: the data of the member can
    /// be, as far as that says, but the bitmap cannot be written.
    pub is_bitmap_unreadable: bool,
    /// The newest partial parity log.
    pub ppl: Option<Result<PplHeader, String>>,
    /// State of the journal, on a journal member.
    pub journal: Option<Result<JournalState, String>>,
}

/// Reasons why a member's metadata cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MetadataError {
    /// Reading failed. Unreadable metadata is never taken for zeros.
    #[error("{structure} at sector {}: {source}; leave the member out", sector.0)]
    Read {
        /// Name of the structure.
        structure: &'static str,
        /// Sector that could not be read.
        sector: Sectors,
        /// Error of the member.
        source: io::Error,
    },
    /// There is no valid superblock.
    #[error(transparent)]
    Superblock(#[from] SuperblockError),
}

/// Blocks at all possible positions of a superblock on one member.
#[derive(Debug, Default)]
pub struct SuperblockBlocks {
    /// Blocks that were read, 4096 bytes each.
    pub read: Vec<(Version, Vec<u8>)>,
    /// Places that could not be read.
    pub unreadable: Vec<Unreadable>,
}

/// Possible position of a superblock at which the member cannot be read. The member is used
/// nevertheless if it has a superblock at another position.
#[derive(Debug, thiserror::Error)]
#[error("superblock of version {version} at sector {}: {source}", sector.0)]
pub struct Unreadable {
    /// Version of a superblock at this place.
    pub version: Version,
    /// Sector that could not be read.
    pub sector: Sectors,
    /// Error of the member.
    pub source: io::Error,
}

impl From<Unreadable> for MetadataError {
    fn from(Unreadable { sector, source, .. }: Unreadable) -> Self {
        Self::Read { structure: "superblock", sector, source }
    }
}

/// Reads the blocks at all possible places of a superblock on a member. Returns these blocks, and
/// the places that cannot be read.
///
/// Shape    `read(sector, len)` returns `len` bytes from this sector of the member
pub fn read_superblock_blocks(
    member_size: Sectors,
    mut read: impl FnMut(Sectors, usize) -> io::Result<Vec<u8>>,
) -> SuperblockBlocks {
    let mut blocks = SuperblockBlocks::default();
    for version in Version::ALL {
        let Some(sector) = version.position(member_size) else { continue };
        match read(sector, SUPER_BYTES) {
            Ok(block) => blocks.read.push((version, block)),
            Err(source) => blocks.unreadable.push(Unreadable { version, sector, source }),
        }
    }
    blocks
}

impl Metadata {
    /// Reads the superblock of a member, and the areas to which it points.
    ///
    /// Shape    `read(sector, len)` returns `len` bytes from this sector of the member
    ///
    /// # Errors
    ///
    /// Fails when the superblock or an area to which it points, other than the bitmap, cannot be
    /// read, or no superblock is valid.
    pub fn read(
        member_size: Sectors,
        mut read: impl FnMut(Sectors, usize) -> io::Result<Vec<u8>>,
    ) -> Result<Self, MetadataError> {
        if member_size < MEMBER_SECTORS_MIN {
            let expected = MEMBER_SECTORS_MIN;
            return Err(SuperblockError::TooSmall { found: member_size, expected }.into());
        }
        let SuperblockBlocks { read: blocks, unreadable } =
            read_superblock_blocks(member_size, &mut read);
        let borrowed: Vec<(Version, &[u8])> =
            blocks.iter().map(|(version, block)| (*version, block.as_slice())).collect();
        let (superblock, uncut) = match Superblock::find(&borrowed, member_size) {
            Ok(superblock) => (superblock, None),
            // The member is cut off. Only versions 1.1 and 1.2 have a place that does not depend on
            // the size of the member.
            Err(cut @ SuperblockError::Truncated { needs, .. }) => {
                let at_start = |(version, _): &&(Version, &[u8])| {
                    matches!(version, Version::V1_1 | Version::V1_2)
                };
                let borrowed: Vec<_> = borrowed.iter().filter(at_start).copied().collect();
                let superblock = Superblock::find(&borrowed, needs).map_err(|_| cut)?;
                (superblock, Some(needs))
            }
            // The superblock may be at the place that cannot be read.
            Err(absent @ SuperblockError::Absent { .. }) => {
                return Err(unreadable.into_iter().next().map_or(absent.into(), Into::into));
            }
            Err(error) => return Err(error.into()),
        };
        let logs = Logs::read(&superblock, uncut.unwrap_or(member_size), &mut read)?;
        let unreadable = unreadable.iter().map(ToString::to_string).collect();
        Ok(Self { superblock, logs, uncut, unreadable })
    }
}

impl Logs {
    /// Reason why the bitmap cannot be read; `None` if it can be, or if there is none.
    #[must_use]
    pub fn unreadable_bitmap(&self) -> Option<&str> {
        let reason = self.bitmap.as_ref()?.as_ref().err()?;
        self.is_bitmap_unreadable.then_some(reason)
    }

    /// Reads the areas to which a legal superblock points.
    ///
    /// Shape    `read(sector, len)` returns `len` bytes from this sector of the member
    ///
    /// # Errors
    ///
    /// [`MetadataError::Read`] for the first sector, other than those of the bitmap, that cannot be
    /// read.
    pub fn read(
        superblock: &Superblock,
        member_size: Sectors,
        mut read: impl FnMut(Sectors, usize) -> io::Result<Vec<u8>>,
    ) -> Result<Self, MetadataError> {
        let mut reader = Reader { superblock, member_size, read: &mut read };
        let (bitmap, is_bitmap_unreadable) = match reader.bitmap() {
            Ok(bitmap) => (bitmap, false),
            Err(MetadataError::Read { structure, sector, source }) => {
                (Some(Err(format!("{structure} at sector {}: {source}", sector.0))), true)
            }
            Err(error) => return Err(error),
        };
        Ok(Self {
            bad_blocks: reader.bad_blocks()?,
            bitmap,
            is_bitmap_unreadable,
            ppl: reader.ppl()?,
            journal: reader.journal()?,
        })
    }
}

struct Reader<'a> {
    superblock: &'a Superblock,
    member_size: Sectors,
    read: &'a mut dyn FnMut(Sectors, usize) -> io::Result<Vec<u8>>,
}

/// Result of reading a structure: its value, or the reason as a sentence why the structure is not
/// valid; `None` if the member has no such structure. The outer error is that of a failed read.
type Found<T> = Result<Option<Result<T, String>>, MetadataError>;

impl Reader<'_> {
    fn get(
        &mut self,
        structure: &'static str,
        sector: Sectors,
        len: usize,
    ) -> Result<Vec<u8>, MetadataError> {
        (self.read)(sector, len).map_err(|source| MetadataError::Read { structure, sector, source })
    }

    fn bad_blocks(&mut self) -> Found<BadBlocks> {
        let Some(area) = self.superblock.badblocks_area() else { return Ok(None) };
        let bytes = self.get("bad-block log", area.start, bytes_of(area.len, LOG_BYTES_MAX))?;
        let context = self.superblock.badblocks_context(self.member_size);
        Ok(Some(BadBlocks::parse(&bytes, &context).map_err(|error| error.to_string())))
    }

    fn bitmap(&mut self) -> Found<Box<Bitmap>> {
        let room = match self.superblock.bitmap_room(self.member_size) {
            Ok(None) => return Ok(None),
            Ok(Some(room)) => room,
            Err(error) => return Ok(Some(Err(error.to_string()))),
        };
        let sync_size = self.superblock.sync_size();
        // 4096 bytes: as much as md writes at once, and the largest logical block.
        let first = bytes_of(room.len, 4096);
        let bytes = self.get("bitmap", room.start, first)?;
        let area = BitmapHeader::decode(&bytes).and_then(|header| header.area(sync_size));
        let bytes = match area {
            Ok(area) => {
                let len = bytes_of(area.min(room.len), LOG_BYTES_MAX);
                let len = len.next_multiple_of(4096).min(bytes_of(room.len, LOG_BYTES_MAX));
                if len > first { self.get("bitmap", room.start, len)? } else { bytes }
            }
            Err(_) => bytes,
        };
        debug_assert!(bytes.len() >= BITMAP_HEADER_BYTES);
        let context = BitmapContext {
            uuid: self.superblock.bitmap_uuid(),
            events: self.superblock.events(),
            sync_size,
            room: room.len,
            origin: self.superblock.as_v0_90().map(|old| old.order),
        };
        let bitmap = Bitmap::parse(&bytes, &context);
        Ok(Some(bitmap.map(Box::new).map_err(|error| error.to_string())))
    }

    fn ppl(&mut self) -> Found<PplHeader> {
        let Some(area) = self.superblock.ppl_area() else { return Ok(None) };
        let signature = PplHeader::signature_of(self.superblock.set_uuid());
        let mut scan = PplScan::new(signature, area.len);
        while let Some(at) = scan.poll() {
            let block = self.get("partial parity log", area.start + at, PPL_HEADER_BYTES)?;
            scan.handle(&block);
        }
        Ok(Some(scan.newest().map(|(_, header)| header).map_err(|error| error.to_string())))
    }

    fn journal(&mut self) -> Found<JournalState> {
        let Some(new) = self.superblock.as_v1() else { return Ok(None) };
        if new.own_role() != Ok(Role::Journal) {
            return Ok(None);
        }
        let tail = new.journal_tail().unwrap_or(Sectors::ZERO);
        let mut scan = match JournalScan::new(new.set_uuid, tail, new.data_size) {
            Ok(scan) => scan,
            Err(error) => return Ok(Some(Err(error.to_string()))),
        };
        let mut read = 0;
        while let Some(at) = scan.poll()
            && read < JOURNAL_BLOCKS_MAX
        {
            let block = self.get("journal", new.data_offset + at, JOURNAL_BLOCK_BYTES)?;
            scan.handle(&block);
            read += 1;
        }
        Ok(Some(scan.finish().map_err(|error| error.to_string())))
    }
}

fn bytes_of(len: Sectors, max: usize) -> usize {
    let Bytes(bytes) = len.bytes();
    usize::try_from(bytes).unwrap_or(usize::MAX).min(max)
}

/// Largest number of bytes that are read of a log. It is more than md ever reserves. Bits of a
/// bitmap that are not read count as set.
const LOG_BYTES_MAX: usize = 1 << 20;

/// Largest number of blocks that are read of a journal: enough to tell that it is not empty.
const JOURNAL_BLOCKS_MAX: usize = 4096;
