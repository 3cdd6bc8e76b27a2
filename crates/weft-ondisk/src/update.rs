//! Updates of superblocks: roles, event count and resync position after a change of the array.
//!
//! Each superblock has the roles of all members, the event count, and the sector up to which parity
//! is right. While the array runs, a member keeps its number in both formats, as version 1 stores
//! it. The table of version 0.90 has a member at the row of its slot once the member has all data
//! of the slot, and other members in the rows behind the slots.
//!
//! ```text
//! number while running      0   1   2   3   4          roles 0 1 faulty spare 2 (rebuilt)
//! row of the 0.90 table     0   1   3   4   2
//! ```
//!
//! Source: md-ondisk.md §2 "Descriptor", §8.4; rows of 0.90 as Linux 6.12 leaves them, in
//! `fixtures/md-meta`

use crate::{
    DISKS_090_MAX, Disk090, Features, MdTime, Minor, ResyncOffset, Role, SUPER_BYTES, Super1,
    Super090, Superblock, Uuid,
};
use weft_units::Sectors;

/// State of a member, as its superblock and those of the other members record it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Role of the device in the array.
    pub role: Role,
    /// Whether the member has a slot but not all of its data yet.
    pub rebuilding: bool,
    /// Whether a device has this member's number. False if the number is free or its device is
    /// gone.
    pub present: bool,
    /// Device number and flags of the member, for 0.90.
    pub device: Disk090,
}

/// New state of the array and of one member, for the superblock of this member.
#[derive(Clone, Copy, Debug)]
pub struct Update<'a> {
    /// New event count of the array.
    pub events: u64,
    /// Time of the update.
    pub utime: MdTime,
    /// Sector up to which the members agree: parity matches the data, and copies are equal.
    pub resync: ResyncOffset,
    /// State of each member, indexed by its number.
    pub members: &'a [Standing],
    /// Number of the member with the superblock that is updated.
    pub number: u32,
    /// Number of data sectors rebuilt so far; `None` if the member is not being rebuilt.
    pub recovery_offset: Option<Sectors>,
    /// Whether, from `recovery_offset` on, only the chunks with a set bit in the bitmap are
    /// missing.
    pub recovery_follows_bitmap: bool,
    /// Whether the member's bad-block log has entries.
    pub has_bad_blocks: bool,
    /// Whether the member is a replacement, which is filled with the data of another member of its
    /// slot.
    pub is_replacement: bool,
}

/// Reasons why a device cannot be a spare.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpareError {
    /// The device has no room for a superblock.
    #[error("too small for metadata: found {found}, expected more")]
    TooSmall {
        /// Size that the device has.
        found: Sectors,
    },
    /// The device has less room for data than the members need.
    #[error("found {found} for data, expected at least {expected}; use a larger member")]
    Data {
        /// Room for data on the device.
        found: Sectors,
        /// Room that a member needs.
        expected: Sectors,
    },
}

impl Superblock {
    /// Stores the new state of the array in this superblock. Fields that the update does not name
    /// stay as they are.
    pub fn update(&mut self, update: &Update<'_>) {
        match self {
            Self::V0_90(old) => old.update(update),
            Self::V1(new) => new.update(update),
        }
    }

    /// Encodes the superblock for a member with logical blocks of `logical_block` bytes. Returns
    /// the bytes to write: whole logical blocks, or all 4096 bytes for 0.90.
    #[must_use]
    pub fn encode_for(&self, logical_block: u32) -> Vec<u8> {
        match self {
            // md always writes the whole superblock, whatever the logical block.
            Self::V0_90(old) => Vec::from(old.encode()),
            Self::V1(new) => {
                let mut bytes = Vec::from(new.encode());
                bytes.truncate(new.encoded_len(logical_block).min(SUPER_BYTES));
                bytes
            }
        }
    }

    /// Whether the version can record that a member has a slot but not all of its data.
    #[must_use]
    pub const fn tells_rebuilding(&self) -> bool {
        matches!(self, Self::V1(_))
    }

    /// Descriptor of the device in version 0.90; zeros in version 1.
    #[must_use]
    pub fn device(&self) -> Disk090 {
        self.as_v0_90().map(|old| old.this_disk).unwrap_or_default()
    }

    /// Superblock of a new spare of this array with the member number `number` and, in version 1,
    /// the UUID `device_uuid`.
    ///
    /// # Errors
    ///
    /// Fails when the device is too small.
    pub fn of_spare(
        &self,
        member_size: Sectors,
        number: u32,
        device_uuid: Uuid,
    ) -> Result<Self, SpareError> {
        let super_offset =
            self.version().position(member_size).ok_or(SpareError::TooSmall { found: member_size });
        let super_offset = super_offset?;
        let mut spare = self.clone();
        let (found, expected) = match &mut spare {
            Self::V0_90(old) => {
                old.super_offset = super_offset;
                old.this_disk = Disk090 { number, raid_disk: number, ..Disk090::default() };
                (super_offset, old.size())
            }
            Self::V1(new) => {
                let end = match new.minor {
                    Minor::V1_0 => super_offset,
                    Minor::V1_1 | Minor::V1_2 => member_size,
                };
                new.super_offset = super_offset;
                new.data_size = Sectors(end.0.saturating_sub(new.data_offset.0));
                new.dev_number = number;
                new.device_uuid = device_uuid;
                new.devflags = 0;
                new.cnt_corrected_read = 0;
                // A log has entries of one member only. Kernels refuse a member that has the bit
                // of another one (md-badblocks.md §6).
                new.feature_map.remove(Features::BADBLOCKS);
                (new.data_size, new.size)
            }
        };
        if found < expected { Err(SpareError::Data { found, expected }) } else { Ok(spare) }
    }
}

impl Super1 {
    fn update(&mut self, update: &Update<'_>) {
        self.events = update.events;
        self.utime = update.utime;
        self.roles = update.members.iter().map(|member| member.role.code()).collect();
        self.resync_offset = update.resync;
        if let Some(recovery_offset) = update.recovery_offset {
            self.feature_map.insert(Features::RECOVERY);
            self.recovery_offset_raw = recovery_offset.0;
        } else {
            self.feature_map.remove(Features::RECOVERY);
            self.recovery_offset_raw = 0;
        }
        if update.recovery_offset.is_some() && update.recovery_follows_bitmap {
            self.feature_map.insert(Features::RECOVERY_BITMAP);
        } else {
            self.feature_map.remove(Features::RECOVERY_BITMAP);
        }
        if update.is_replacement {
            self.feature_map.insert(Features::REPLACEMENT);
        } else {
            self.feature_map.remove(Features::REPLACEMENT);
        }
        if update.has_bad_blocks {
            self.feature_map.insert(Features::BADBLOCKS);
        } else {
            self.feature_map.remove(Features::BADBLOCKS);
        }
    }
}

impl Super090 {
    fn update(&mut self, update: &Update<'_>) {
        self.events = update.events;
        self.utime = u32::try_from(update.utime.secs).unwrap_or(u32::MAX);
        self.set_resync_offset(update.resync);
        self.disks = [Disk090::default(); DISKS_090_MAX as usize];
        // Members that failed or are not in sync come behind the slots, in the order of their
        // numbers.
        let mut behind = self.raid_disks..DISKS_090_MAX;
        for (number, standing) in (0..).zip(update.members) {
            if !standing.present {
                continue;
            }
            let (position, state) = match standing.role {
                Role::Active(slot) if !standing.rebuilding => {
                    (Some(u32::from(slot.0)), Disk090::ACTIVE | Disk090::SYNC)
                }
                Role::Faulty => (behind.next(), Disk090::FAULTY),
                Role::Active(_) | Role::Journal | Role::Spare => (behind.next(), 0),
            };
            let row = position.and_then(|position| self.disks.get_mut(position as usize));
            let (Some(position), Some(disk)) = (position, row) else { continue };
            let Disk090 { major, minor, .. } = standing.device;
            let flags = standing.device.state & (Disk090::WRITE_MOSTLY | Disk090::FAIL_FAST);
            let state = state | flags;
            *disk = Disk090 { number: position, major, minor, raid_disk: position, state };
            if number == update.number {
                self.this_disk = *disk;
            }
        }
        for (disk, slot) in self.disks.iter_mut().zip(0..self.raid_disks) {
            if disk.state & (Disk090::ACTIVE | Disk090::FAULTY) == 0 {
                let state = Disk090::REMOVED | Disk090::FAULTY;
                *disk = Disk090 { number: slot, raid_disk: slot, state, ..Disk090::default() };
            }
        }
        self.recount();
    }
}
