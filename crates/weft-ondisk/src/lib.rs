//! md metadata: bytes to values and back.
//!
//! An md array describes itself on its members, in formats that other programs write too. This
//! crate converts those bytes to values that are legal by construction, and the values back to the
//! same bytes. It does no I/O: the caller supplies the blocks and says where they came from.
//!
//! - [`Superblock`]: description of a member and its array, in any version; [`Super090`] and
//!   [`Super1`]
//!   in full; [`NewArray::plan`] makes those of a new array.
//! - [`Bitmap`]: regions that may be out of sync, and whether the bitmap can be trusted.
//! - [`BadBlocks`]: blocks of a member without valid data.
//! - [`PplHeader`]: log that repairs the parity of an interrupted write.
//! - [`JournalScan`]: whether a journal holds data that the members lack.
//! - [`Metadata`]: all of these for one member, read through a callback.
//! - [`partition`]: partition tables of disks and of arrays.
//! - [`ext`]: signature, features and size of ext2, ext3 and ext4.
//! - [`probe`]: signatures of other formats on a member.
//!
//! ```
//! use weft_ondisk::{Level, Minor, NewArray, Super1};
//! use weft_units::Sectors;
//!
//! let supers = NewArray::in_sync(Level::Raid5, 3, Sectors(204_800)).plan().unwrap();
//! let block = supers[0].encode();
//! assert_eq!(Super1::parse(&block, Minor::V1_2, Sectors(204_800)).unwrap(), supers[0]);
//! ```
//!
//! Source: facts about the formats of Linux md (6.1 to 6.12) and mdadm (4.2 to 4.6). Their output
//! is kept in `fixtures/md-super` and `fixtures/md-meta` and read by the tests.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]

mod badblocks;
mod bitmap;
mod calendar;
mod chunk_default;
mod chunk_rule;
pub mod crc;
mod create;
mod create_bitmap;
mod create_error;
mod error;
mod examine;
pub mod ext;
mod features;
mod journal;
pub mod layout_id;
mod level;
mod metadata;
#[allow(
    clippy::indexing_slicing,
    reason = "arrays of a fixed size, and lengths that are checked before"
)]
pub mod partition;
mod ppl;
pub mod probe;
mod resize;
mod super090;
mod super1;
mod superblock;
mod update;
mod uuid;
mod version;

pub use badblocks::{BADBLOCK_LEN_MAX, BadBlockContext, BadBlocks, LogFull, raw_entries};
pub use bitmap::{
    BITMAP_HEADER_BYTES, Bitmap, BitmapContext, BitmapHeader, ChunkState, LOCKLESS_AREA_BYTES,
    LOCKLESS_HEADER_BYTES, Trust,
};
pub use chunk_default::chunk_default;
pub use chunk_rule::ChunkRule;
pub use create::{NewArray, NewMember, data_offset_default};
pub use create_bitmap::{BITMAP_DEFAULT_ABOVE, NewBitmap};
pub use create_error::CreateError;
pub use error::{At, CUT_HAS_NONE, LogError, SuperblockError};
pub use features::{Features, Reason};
pub use journal::{
    JOURNAL_BLOCK_BYTES, JournalScan, JournalState, MetaBlock, Payload, journal_block_checksum,
    journal_seed,
};
pub use level::{LEVELS, Level, LevelRow, Redundancy, UnknownLevel};
pub use metadata::{
    Logs, Metadata, MetadataError, SuperblockBlocks, Unreadable, read_superblock_blocks,
};
pub use ppl::{
    PPL_ENTRIES_MAX, PPL_HEADER_BYTES, PplContext, PplEntry, PplHeader, PplRecompute, PplScan,
};
pub use super1::{
    MdTime, PplArea, ROLES_MAX, Reshape, ResyncOffset, Role, SUPER_BYTES, Super1, csum_v1,
};
pub use super090::{
    ByteOrder, DISKS_090_MAX, Disk090, RESERVED_090, Reshape090, SIZE_090_MAX, Super090, csum_090,
};
pub use superblock::{Candidates, DeviceIdentity, Superblock};
pub use update::{SpareError, Standing, Update};
pub use uuid::{BadUuid, Uuid};
pub use version::{MEMBER_SECTORS_MIN, Minor, UnknownVersion, Version};
