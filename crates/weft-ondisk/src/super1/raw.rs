//! Bytes of a version 1 superblock: its header as stored on the member.

use super::{Features, MdTime, Minor, ROLES_MAX, Reshape, ResyncOffset, Super1};
use crate::error::at;
use crate::{Level, SuperblockError, Uuid};
use weft_units::Sectors;
use zerocopy::little_endian::{I32, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: u32 = 0xa92b_4efc;

pub(super) const HEADER_BYTES: usize = size_of::<Raw>();

const _: () = assert!(HEADER_BYTES == 256);

pub(super) const STRUCTURE: &str = "superblock";

/// Header of a superblock as stored on a member; [`Super1`] documents the fields.
///
/// Source   md's version 1 superblock, in on-disk order
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct Raw {
    pub(super) magic: U32,
    pub(super) major_version: U32,
    pub(super) feature_map: U32,
    pub(super) pad0: U32,
    pub(super) set_uuid: [u8; 16],
    pub(super) set_name: [u8; 32],
    pub(super) ctime: U64,
    pub(super) level: I32,
    pub(super) layout: U32,
    pub(super) size: U64,
    pub(super) chunksize: U32,
    pub(super) raid_disks: U32,
    pub(super) bitmap_offset: [u8; 4],
    pub(super) new_level: I32,
    pub(super) reshape_position: U64,
    pub(super) delta_disks: I32,
    pub(super) new_layout: U32,
    pub(super) new_chunk: U32,
    pub(super) new_offset: I32,
    pub(super) data_offset: U64,
    pub(super) data_size: U64,
    pub(super) super_offset: U64,
    pub(super) recovery_offset: U64,
    pub(super) dev_number: U32,
    pub(super) cnt_corrected_read: U32,
    pub(super) device_uuid: [u8; 16],
    pub(super) devflags: u8,
    pub(super) bblog_shift: u8,
    pub(super) bblog_size: U16,
    pub(super) bblog_offset: I32,
    pub(super) utime: U64,
    pub(super) events: U64,
    pub(super) resync_offset: U64,
    pub(super) sb_csum: U32,
    pub(super) max_dev: U32,
    pub(super) logical_block_size: U32,
    pub(super) pad3: [u8; 28],
}

impl Raw {
    /// Refuses a superblock for which no checksum can be computed, because of its magic, version or
    /// length.
    pub(super) fn check_format(&self) -> Result<(), SuperblockError> {
        if self.magic.get() != MAGIC {
            return Err(SuperblockError::Magic { at: at!(magic), found: self.magic.get() });
        }
        if self.major_version.get() != 1 {
            let found = self.major_version.get();
            return Err(SuperblockError::Version { at: at!(major_version), found, expected: "1" });
        }
        if !(1..=ROLES_MAX).contains(&self.max_dev.get()) {
            let expected = format!("1..={ROLES_MAX}");
            return Err(SuperblockError::value(at!(max_dev), self.max_dev.get(), expected));
        }
        Ok(())
    }

    /// Refuses a superblock with values in bytes that only a later format uses: their meaning is
    /// not known.
    pub(super) fn check_newer(&self) -> Result<(), SuperblockError> {
        let unknown = Features(self.feature_map.get()).unknown();
        if unknown != Features(0) {
            let found = format!("unknown features {:#x}", unknown.0);
            return Err(SuperblockError::Newer { at: at!(feature_map), found });
        }
        if self.pad0.get() != 0 {
            let found = format!("{:#x}", self.pad0.get());
            return Err(SuperblockError::Newer { at: at!(pad0), found });
        }
        if self.pad3 != [0; 28] {
            let found =
                format!("{} bytes that are not 0", self.pad3.iter().filter(|b| **b != 0).count());
            return Err(SuperblockError::Newer { at: at!(pad3), found });
        }
        Ok(())
    }

    pub(super) fn values(&self, minor: Minor, level: Level, roles: Vec<u16>) -> Super1 {
        Super1 {
            minor,
            feature_map: Features(self.feature_map.get()),
            set_uuid: Uuid(self.set_uuid),
            set_name: self.set_name,
            ctime: MdTime::from_raw(self.ctime.get()),
            level,
            layout: self.layout.get(),
            size: Sectors(self.size.get()),
            chunk: Sectors(self.chunksize.get().into()),
            raid_disks: self.raid_disks.get(),
            bitmap_offset_raw: self.bitmap_offset,
            reshape: Reshape {
                new_level: self.new_level.get(),
                position: self.reshape_position.get(),
                delta_disks: self.delta_disks.get(),
                new_layout: self.new_layout.get(),
                new_chunk: Sectors(self.new_chunk.get().into()),
                new_offset: self.new_offset.get(),
            },
            data_offset: Sectors(self.data_offset.get()),
            data_size: Sectors(self.data_size.get()),
            super_offset: Sectors(self.super_offset.get()),
            recovery_offset_raw: self.recovery_offset.get(),
            dev_number: self.dev_number.get(),
            cnt_corrected_read: self.cnt_corrected_read.get(),
            device_uuid: Uuid(self.device_uuid),
            devflags: self.devflags,
            bblog_shift: self.bblog_shift,
            bblog_size: self.bblog_size.get(),
            bblog_offset: self.bblog_offset.get(),
            utime: MdTime::from_raw(self.utime.get()),
            events: self.events.get(),
            resync_offset: ResyncOffset::from_raw(self.resync_offset.get()),
            logical_block_size: self.logical_block_size.get(),
            roles,
        }
    }

    /// Header with the fields of `values`, and 0 as its checksum.
    ///
    /// Panics on chunks and tables that do not fit the header, which no legal superblock has.
    pub(super) fn from_values(values: &Super1) -> Self {
        let chunk =
            |chunk: Sectors| U32::new(u32::try_from(chunk.0).expect("a chunk is less than 2 GiB"));
        Self {
            magic: MAGIC.into(),
            major_version: 1.into(),
            feature_map: values.feature_map.0.into(),
            pad0: 0.into(),
            set_uuid: values.set_uuid.0,
            set_name: values.set_name,
            ctime: values.ctime.to_raw().into(),
            level: values.level.code().into(),
            layout: values.layout.into(),
            size: values.size.0.into(),
            chunksize: chunk(values.chunk),
            raid_disks: values.raid_disks.into(),
            bitmap_offset: values.bitmap_offset_raw,
            new_level: values.reshape.new_level.into(),
            reshape_position: values.reshape.position.into(),
            delta_disks: values.reshape.delta_disks.into(),
            new_layout: values.reshape.new_layout.into(),
            new_chunk: chunk(values.reshape.new_chunk),
            new_offset: values.reshape.new_offset.into(),
            data_offset: values.data_offset.0.into(),
            data_size: values.data_size.0.into(),
            super_offset: values.super_offset.0.into(),
            recovery_offset: values.recovery_offset_raw.into(),
            dev_number: values.dev_number.into(),
            cnt_corrected_read: values.cnt_corrected_read.into(),
            device_uuid: values.device_uuid.0,
            devflags: values.devflags,
            bblog_shift: values.bblog_shift,
            bblog_size: values.bblog_size.into(),
            bblog_offset: values.bblog_offset.into(),
            utime: values.utime.to_raw().into(),
            events: values.events.into(),
            resync_offset: values.resync_offset.to_raw().into(),
            sb_csum: 0.into(),
            max_dev: u32::try_from(values.roles.len()).expect("at most 1920 roles").into(),
            logical_block_size: values.logical_block_size.into(),
            pad3: [0; 28],
        }
    }
}
