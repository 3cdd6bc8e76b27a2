//! Resizes: changes of the size of a member's data, and of the number of mirrors.
//!
//! Source   md's `super_1_rdev_size_change`, `super_90_rdev_size_change`; mdadm's `Grow_reshape`

use weft_units::Sectors;

use crate::{Minor, Role, Superblock};

/// Largest data size that a superblock of version 0.90 can hold, which counts KiB in 32 bits.
const DATA_090_MAX: Sectors = Sectors((1 << 33) - 2);

impl Superblock {
    /// Largest data size of this member on a device of `member_size`, in sectors from the start of
    /// the data. A superblock at the end of the member does not move, so the data keeps its present
    /// room.
    #[must_use]
    pub fn data_room(&self, member_size: Sectors) -> Sectors {
        match self {
            Self::V0_90(old) => old.super_offset.min(DATA_090_MAX),
            Self::V1(new) => match new.minor {
                Minor::V1_0 => new.data_size,
                Minor::V1_1 | Minor::V1_2 => {
                    Sectors(member_size.0.saturating_sub(new.data_offset.0))
                }
            },
        }
    }

    /// Records `size` as the data sectors of each member. This member, on a device of
    /// `member_size`, must have room for them ([`Superblock::data_room`]).
    pub fn set_size(&mut self, size: Sectors, member_size: Sectors) {
        let room = self.data_room(member_size);
        match self {
            Self::V0_90(old) => old.size_kib = u32::try_from(size.0 / 2).unwrap_or(u32::MAX),
            Self::V1(new) => (new.size, new.data_size) = (size, room),
        }
    }

    /// Records the number of slots of an array of mirrors. The table of roles stays as it is;
    /// [`Superblock::update`] sets it.
    pub fn set_raid_disks(&mut self, raid_disks: u32) {
        match self {
            Self::V0_90(old) => old.raid_disks = raid_disks,
            Self::V1(new) => new.raid_disks = raid_disks,
        }
    }

    /// Takes over size, number of slots and roles from `ahead`: the superblock of another member,
    /// which had been updated when a crash prevented the update of this one. The roles stay as they
    /// are in version 0.90, and if `ahead` records no slot for this member.
    pub fn follow_resize(&mut self, ahead: &Self, member_size: Sectors) {
        if self.size() != ahead.size() {
            self.set_size(ahead.size(), member_size);
        }
        self.set_raid_disks(ahead.raid_disks());
        let has_slot = matches!(ahead.role(self.dev_number()), Ok(Role::Active(_)));
        if let (Self::V1(new), Self::V1(ahead), true) = (self, ahead, has_slot) {
            new.roles.clone_from(&ahead.roles);
        }
    }
}
