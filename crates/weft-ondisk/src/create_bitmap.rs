//! Write-intent bitmap of a new array, or one added later: chunk, place and initial content.
//!
//! Source   mdadm 4.2 (`add_internal_bitmap0`, `add_internal_bitmap1`)

use crate::bitmap::{BITMAP_HEADER_BYTES, BitmapHeader};
use crate::create_error::CreateError;
use crate::{Level, Minor, Super090, Superblock, Version};
use weft_units::{Bytes, SECTOR_BYTES, Sectors};

/// Parameters of a new bitmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewBitmap {
    /// Chunk size in bytes; `None` for mdadm's default.
    pub chunk: Option<Bytes>,
    /// Seconds until md clears the bit of a chunk without writes.
    pub daemon_sleep: u32,
}

/// Default chunk of a bitmap, in bytes. A larger chunk is used if the bits would not fit.
const CHUNK_DEFAULT: u64 = 64 << 20;

/// Smallest legal chunk, in bytes.
const CHUNK_MIN: u64 = 4096;

/// Largest number of sectors in a bitmap when the user gives no chunk.
const ROOM_DEFAULT_MAX: u64 = 256;

/// Offset of the bitmap from a superblock of version 1.1 or 1.2, in sectors.
const BITMAP_OFFSET: i32 = 8;

/// Sectors of a bad-block log.
const BBLOG_SECTORS: u64 = 8;

/// Data size of each member above which mdadm, before 4.4, adds a bitmap by default.
///
/// Source   md-ondisk.md §9.1: more than 100 GiB
pub const BITMAP_DEFAULT_ABOVE: Sectors = Sectors(100 << 21);

/// Number of sectors that mdadm reserves for the bitmap of a member of this size, whether the
/// member has a bitmap or not.
///
/// Source   mdadm: nothing below 64 KiB, 4 KiB up to 8 GiB, 64 KiB above, 128 KiB from 200 GiB
pub(crate) const fn bitmap_space(size: Sectors) -> u64 {
    const GIB: u64 = 1 << 21;
    match size.0 {
        0..128 => 0,
        size if size - 128 >= 200 * GIB => 256,
        size if size - 8 > 8 * GIB => 128,
        _ => 8,
    }
}

impl Default for NewBitmap {
    fn default() -> Self {
        Self { chunk: None, daemon_sleep: 5 }
    }
}

impl NewBitmap {
    /// Chunk size in bytes: the size that was asked for, or the default. The default is enlarged
    /// until the bits for `sync_size` fit in `room` sectors.
    ///
    /// # Errors
    ///
    /// Fails when the chunk is not legal, or its bits do not fit.
    fn chunk(&self, sync_size: Sectors, room: u64) -> Result<u64, CreateError> {
        let room = if self.chunk.is_none() { room.min(ROOM_DEFAULT_MAX) } else { room };
        let bits = (room * SECTOR_BYTES).saturating_sub(BITMAP_HEADER_BYTES as u64) * 8;
        let refused = |found: String, expected: String| CreateError::Bitmap { found, expected };
        if bits == 0 {
            let expected = "room for one before the data or behind it".to_owned();
            return Err(refused(format!("{room} sectors"), expected));
        }
        // mdadm counts one bit more than needed, and rounds up at every step.
        let mut needed = sync_size.bytes().0 / CHUNK_MIN + 1;
        let mut least = CHUNK_MIN;
        while needed > bits {
            least *= 2;
            needed = needed.div_ceil(2);
        }
        let chunk = self.chunk.map_or(least.max(CHUNK_DEFAULT), |chunk| chunk.0);
        let legal = chunk.is_power_of_two() && (least..=1 << 31).contains(&chunk);
        if !legal {
            let expected = format!(
                "a power of two of at least {least} and below 4 GiB, for its bits have {room} sectors"
            );
            return Err(refused(format!("a chunk of {chunk} bytes"), expected));
        }
        Ok(chunk)
    }

    /// Sectors of header and bits, for bits that cover `sync_size` in at most `room` sectors.
    pub(crate) fn area(&self, sync_size: Sectors, room: u64) -> Result<Sectors, CreateError> {
        let bits = sync_size.bytes().0.div_ceil(self.chunk(sync_size, room)?);
        Ok(Bytes(BITMAP_HEADER_BYTES as u64 + bits.div_ceil(8)).sectors_ceil())
    }

    /// Bitmap of a member of a new array: every bit is set, as mdadm writes it. The set bits of an
    /// array that is created clean cause no resync, and md soon clears them.
    ///
    /// Shape    whole 4 KiB, to be written at the start of [`Superblock::bitmap_room`]
    ///
    /// # Errors
    ///
    /// Fails when the chunk is not legal, or its bits do not fit.
    pub fn encode(&self, superblock: &Superblock) -> Result<Vec<u8>, CreateError> {
        self.encode_in(superblock, bitmap_room(superblock.version(), superblock.size()))
    }

    /// Offset and bytes of a bitmap that is added to an existing array. Its content is that of a
    /// new array's bitmap, and it must fit into `room`, the room that the members have now.
    ///
    /// Shape    offset in sectors from the superblock, and whole 4 KiB; `room` is the least
    ///          [`NewBitmap::room_beside`] of all members
    ///
    /// # Errors
    ///
    /// Fails when the chunk is not legal, or its bits do not fit.
    pub fn add_to(
        &self,
        superblock: &Superblock,
        room: Sectors,
    ) -> Result<(i32, Vec<u8>), CreateError> {
        let bytes = self.encode_in(superblock, room.0)?;
        let offset = match superblock {
            Superblock::V0_90(_) => Super090::BITMAP_OFFSET,
            Superblock::V1(new) if new.minor == Minor::V1_0 => {
                let log = log_before(new.bblog_size, new.bblog_offset);
                let sectors = Bytes(bytes.len() as u64).sectors_ceil().0 + log;
                i32::try_from(sectors).map_or(0, |sectors| -sectors)
            }
            Superblock::V1(_) => BITMAP_OFFSET,
        };
        Ok((offset, bytes))
    }

    /// Sectors available for a bitmap on a member of an array without one.
    ///
    /// Source   mdadm: the room between superblock and bad-block log; in version 1.0 the room
    ///          between the data, which ends where `data_size` says, and the bad-block log
    #[must_use]
    pub fn room_beside(superblock: &Superblock) -> Sectors {
        let sectors = match superblock {
            Superblock::V0_90(_) => Super090::BITMAP_SECTORS,
            Superblock::V1(new) if new.minor == Minor::V1_0 => {
                let log = log_before(new.bblog_size, new.bblog_offset);
                let data_end = new.data_offset.0.saturating_add(new.data_size.0);
                new.super_offset.0.saturating_sub(data_end).saturating_sub(log)
            }
            Superblock::V1(new) => {
                let gap = new.data_offset.0.saturating_sub(new.super_offset.0);
                let end = match u64::try_from(new.bblog_offset) {
                    Ok(log) if log > 0 && new.bblog_size > 0 => log,
                    // A log may be added later.
                    _ => gap.saturating_sub(BBLOG_SECTORS),
                };
                end.saturating_sub(u64::from(BITMAP_OFFSET.unsigned_abs()))
            }
        };
        Sectors(sectors)
    }

    fn encode_in(&self, superblock: &Superblock, room: u64) -> Result<Vec<u8>, CreateError> {
        let sync_size = superblock.sync_size();
        let chunk = self.chunk(sync_size, room)?;
        let header = BitmapHeader {
            version: 4,
            uuid: superblock.bitmap_uuid(),
            events: superblock.events(),
            events_cleared: superblock.events(),
            sync_size,
            state: 0,
            chunksize: u32::try_from(chunk).expect("below 4 GiB"),
            daemon_sleep: self.daemon_sleep,
            write_behind: 0,
            sectors_reserved: 0,
            nodes: 0,
            cluster_name: [0; 64],
        };
        let mut bytes = header.encode().to_vec();
        let bits = sync_size.bytes().0.div_ceil(chunk);
        let len = BITMAP_HEADER_BYTES as u64 + bits.div_ceil(8);
        bytes.resize(usize::try_from(len.next_multiple_of(4096)).unwrap_or(usize::MAX), 0xff);
        Ok(bytes)
    }
}

/// Sectors that a bad-block log takes directly before a superblock of version 1.0, from its first
/// sector on; 0 without a log.
fn log_before(size: u16, offset: i32) -> u64 {
    let reach = if offset < 0 { u64::from(offset.unsigned_abs()) } else { 0 };
    reach.max(size.into())
}

/// Sectors available for a bitmap on a member with `size` sectors of data.
pub(crate) fn bitmap_room(version: Version, size: Sectors) -> u64 {
    match version {
        Version::V0_90 => Super090::BITMAP_SECTORS,
        Version::V1_0 => bitmap_space(size),
        // Before the data there is more room than the little that mdadm reserves on the smallest
        // members.
        Version::V1_1 | Version::V1_2 => bitmap_space(size).max(8),
    }
}

/// Error text for a bitmap on a level without redundancy.
pub(crate) fn no_bitmap(level: Level) -> String {
    format!("none for {level}, which has nothing to resync")
}
