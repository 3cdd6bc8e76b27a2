//! Superblock of any version: one view of 0.90 and 1.0 to 1.2.
//!
//! [`Superblock`] has the operations that the assembly of an array needs, for 0.90 and for 1.0 to
//! 1.2 alike. Fields of only one version are in [`Super090`] and [`Super1`].
//!
//! ```
//! use weft_ondisk::{Superblock, Version};
//! use weft_units::Sectors;
//!
//! let member = vec![0; 1 << 20];
//! let size = Sectors(2048);
//! let blocks: Vec<(Version, &[u8])> = Version::ALL
//!     .into_iter()
//!     .filter_map(|version| {
//!         let start = usize::try_from(version.position(size)?.bytes().0).ok()?;
//!         Some((version, member.get(start..start + 4096)?))
//!     })
//!     .collect();
//! let nothing = Superblock::find(&blocks, size).unwrap_err();
//! assert!(nothing.to_string().starts_with("no md superblock found"));
//! ```
//!
//! Source: differences of the versions, as in `super090/` and `super1/`. If a member has several
//! superblocks, mdadm 4.2 uses the one created last; weft asks if they name two arrays.

use crate::features::{Features, Reason};
use crate::layout_id::Layouts;
use crate::super1::{Area, MdTime, Reshape, Role, Super1, array_size};
use crate::version::Version;
use crate::{
    At, BadBlockContext, Disk090, Level, MEMBER_SECTORS_MIN, Minor, Super090, SuperblockError, Uuid,
};
use std::fmt;
use weft_units::{SectorRange, Sectors};

/// A superblock of any version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Superblock {
    /// Format 0.90.
    V0_90(Box<Super090>),
    /// Format 1, at one of three places.
    V1(Box<Super1>),
}

/// Identity of a member, unique in its array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeviceIdentity {
    /// Number of the member in the array, the only identity in 0.90.
    Number(u32),
    /// UUID of the member.
    Uuid(Uuid),
}

/// Superblocks found at the possible positions on one member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Candidates {
    /// Legal superblocks, latest creation time first: mdadm would use the first one.
    pub legal: Vec<Superblock>,
    /// Superblocks with the magic that are not legal, each with its error, in the order of the
    /// search.
    pub damaged: Vec<(Version, SuperblockError)>,
    /// Sectors at which a superblock was looked for.
    pub looked: Vec<Sectors>,
}

impl Version {
    /// Sector of the superblock on a member of this size; `None` if the member is too small.
    #[must_use]
    pub fn position(self, member_size: Sectors) -> Option<Sectors> {
        match self.minor() {
            Some(minor) => minor.position(member_size),
            None => Super090::position(member_size),
        }
    }
}

impl fmt::Display for DeviceIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "device number {number}"),
            Self::Uuid(uuid) => write!(f, "device uuid {uuid}"),
        }
    }
}

impl From<Super090> for Superblock {
    fn from(superblock: Super090) -> Self {
        Self::V0_90(Box::new(superblock))
    }
}

impl From<Super1> for Superblock {
    fn from(superblock: Super1) -> Self {
        Self::V1(Box::new(superblock))
    }
}

impl Candidates {
    /// Checks the blocks at all possible positions of a superblock on a member, and returns the
    /// superblocks found.
    ///
    /// Shape    `blocks` holds, for each version the member is large enough for, the 4096 bytes at
    ///          [`Version::position`]
    #[must_use]
    pub fn of(blocks: &[(Version, &[u8])], member_size: Sectors) -> Self {
        let mut candidates = Self::default();
        for (version, bytes) in blocks {
            candidates.looked.extend(version.position(member_size));
            match Superblock::parse(bytes, *version, member_size) {
                Ok(superblock) => candidates.legal.push(superblock),
                Err(SuperblockError::Magic { .. }) => {}
                Err(error) => candidates.damaged.push((*version, error)),
            }
        }
        // The sort is stable: among equals, the one searched first stays first.
        candidates.legal.sort_by_key(|superblock| std::cmp::Reverse(superblock.ctime()));
        candidates
    }

    /// Chooses the superblock to use: the only legal one, or, of several superblocks of the same
    /// array, the one created last.
    ///
    /// # Errors
    ///
    /// Without a legal superblock, the error of the first superblock with the magic, or `Absent`.
    /// With superblocks of two arrays, `Ambiguous`: the user has to choose. The error names the
    /// superblock that mdadm would use.
    pub fn one(self) -> Result<Superblock, SuperblockError> {
        let mut legal = self.legal.into_iter();
        let Some(newest) = legal.next() else {
            let damaged = self.damaged.into_iter().next();
            let absent = SuperblockError::Absent { looked: self.looked };
            return Err(damaged.map_or(absent, |(_, error)| error));
        };
        match legal.find(|other| other.set_uuid() != newest.set_uuid()) {
            None => Ok(newest),
            Some(other) => Err(SuperblockError::Ambiguous {
                first: newest.version(),
                first_uuid: newest.set_uuid(),
                second: other.version(),
                second_uuid: other.set_uuid(),
                newest: newest.version(),
            }),
        }
    }
}

impl Superblock {
    /// Reads the superblock of a member from the blocks at all its possible places.
    ///
    /// Shape    `blocks` holds, for each version the member is large enough for, the 4096 bytes at
    ///          [`Version::position`]
    ///
    /// # Errors
    ///
    /// `TooSmall`, and the errors of [`Candidates::one`].
    pub fn find(
        blocks: &[(Version, &[u8])],
        member_size: Sectors,
    ) -> Result<Self, SuperblockError> {
        if member_size < MEMBER_SECTORS_MIN {
            let expected = MEMBER_SECTORS_MIN;
            return Err(SuperblockError::TooSmall { found: member_size, expected });
        }
        Candidates::of(blocks, member_size).one()
    }

    /// Reads a superblock of one version and makes all checks that are possible on one member.
    ///
    /// # Errors
    ///
    /// The errors of [`Super090::parse`] or [`Super1::parse`].
    pub fn parse(
        bytes: &[u8],
        version: Version,
        member_size: Sectors,
    ) -> Result<Self, SuperblockError> {
        match version.minor() {
            Some(minor) => Super1::parse(bytes, minor, member_size).map(Self::from),
            None => Super090::parse(bytes, member_size).map(Self::from),
        }
    }

    /// Reads a superblock of one version for display, even if [`Superblock::validate`] refuses it.
    ///
    /// # Errors
    ///
    /// The errors of [`Super090::decode`] or [`Super1::decode`].
    pub fn decode(
        bytes: &[u8],
        version: Version,
        member_size: Sectors,
    ) -> Result<Self, SuperblockError> {
        match version.minor() {
            Some(minor) => Super1::decode(bytes, minor).map(Self::from),
            None => Super090::decode(bytes, member_size).map(Self::from),
        }
    }

    /// Makes all checks that are possible on one member.
    ///
    /// # Errors
    ///
    /// [`SuperblockError`] with the first field that is wrong.
    pub fn validate(&self, member_size: Sectors) -> Result<(), SuperblockError> {
        match self {
            Self::V0_90(old) => old.validate(),
            Self::V1(new) => new.validate(member_size),
        }
    }

    /// Version of the superblock.
    #[must_use]
    pub fn version(&self) -> Version {
        match self {
            Self::V0_90(_) => Version::V0_90,
            Self::V1(new) => new.minor.into(),
        }
    }

    /// The superblock as version 0.90; `None` for version 1.
    #[must_use]
    pub fn as_v0_90(&self) -> Option<&Super090> {
        match self {
            Self::V0_90(old) => Some(old),
            Self::V1(_) => None,
        }
    }

    /// The superblock as version 1; `None` for 0.90.
    #[must_use]
    pub fn as_v1(&self) -> Option<&Super1> {
        match self {
            Self::V0_90(_) => None,
            Self::V1(new) => Some(new),
        }
    }

    /// UUID of the array.
    #[must_use]
    pub fn set_uuid(&self) -> Uuid {
        match self {
            Self::V0_90(old) => old.set_uuid,
            Self::V1(new) => new.set_uuid,
        }
    }

    /// UUID in the array's bitmap, journal and logs. For 0.90 its bytes are not in the printed
    /// order.
    #[must_use]
    pub fn bitmap_uuid(&self) -> Uuid {
        match self {
            Self::V0_90(old) => old.bitmap_uuid(),
            Self::V1(new) => new.set_uuid,
        }
    }

    /// Name of the array, with unprintable characters escaped; empty for 0.90.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::V0_90(_) => String::new(),
            Self::V1(new) => new.name(),
        }
    }

    /// Time of creation of the array.
    #[must_use]
    pub fn ctime(&self) -> MdTime {
        match self {
            Self::V0_90(old) => MdTime::from_secs(old.ctime.into()),
            Self::V1(new) => new.ctime,
        }
    }

    /// Time of the last write of the superblock.
    #[must_use]
    pub fn utime(&self) -> MdTime {
        match self {
            Self::V0_90(old) => MdTime::from_secs(old.utime.into()),
            Self::V1(new) => new.utime,
        }
    }

    /// RAID level of the array that the member belongs to.
    #[must_use]
    pub fn level(&self) -> Level {
        match self {
            Self::V0_90(old) => old.level,
            Self::V1(new) => new.level,
        }
    }

    /// Layout number within the level. For RAID0 it is 0 ("unknown"), unless the superblock says
    /// that the field is valid.
    #[must_use]
    pub fn layout(&self) -> u32 {
        let said = match self {
            Self::V0_90(old) => old.layout,
            Self::V1(new) => new.layout,
        };
        let means = self.features().contains(Features::RAID0_LAYOUT);
        if self.level().row().layouts == Layouts::Zones && !means { 0 } else { said }
    }

    /// Chunk size; without meaning for RAID1, where mdadm stores 0.
    #[must_use]
    pub fn chunk(&self) -> Sectors {
        match self {
            Self::V0_90(old) => old.chunk(),
            Self::V1(new) => new.chunk,
        }
    }

    /// Sectors of each member that hold data; 0 for linear and RAID0.
    #[must_use]
    pub fn size(&self) -> Sectors {
        match self {
            Self::V0_90(old) => old.size(),
            Self::V1(new) => new.size,
        }
    }

    /// Sectors of this member that hold data or the journal.
    #[must_use]
    pub fn used_size(&self) -> Sectors {
        match self {
            Self::V0_90(old) => old.used_size(),
            Self::V1(new) => new.used_size(),
        }
    }

    /// Whether reads go to this member only when no other member has the data.
    #[must_use]
    pub fn is_write_mostly(&self) -> bool {
        match self {
            Self::V0_90(old) => {
                let own = old.disks.get(old.this_disk.number as usize);
                own.is_some_and(|disk| disk.state & Disk090::WRITE_MOSTLY != 0)
            }
            Self::V1(new) => new.devflags & Super1::WRITE_MOSTLY != 0,
        }
    }

    /// Sectors of the array; `None` for linear and RAID0, where each member adds its own size, and
    /// if no size can be computed from the geometry.
    #[must_use]
    pub fn array_size(&self) -> Option<Sectors> {
        match self {
            Self::V0_90(old) => old.array_size(),
            Self::V1(new) => new.array_size(),
        }
    }

    /// Checks that another superblock describes the same array.
    ///
    /// # Errors
    /// Fails with a sentence about the first field that differs, with both values.
    pub fn same_array(&self, other: &Self) -> Result<(), String> {
        let fields = |it: &Self| {
            [
                ("version", it.version().to_string()),
                ("ctime", it.ctime().secs.to_string()),
                ("level", it.level().to_string()),
                ("layout", it.layout().to_string()),
                ("size", it.size().to_string()),
                ("chunksize", it.chunk().to_string()),
                ("raid_disks", it.raid_disks().to_string()),
                ("bitmap", it.features().contains(Features::BITMAP).to_string()),
            ]
        };
        for ((field, found), (_, expected)) in fields(other).into_iter().zip(fields(self)) {
            if found != expected {
                return Err(format!("superblock {field}: found {found}, expected {expected}"));
            }
        }
        Ok(())
    }

    /// Sectors that a resync covers and that the bits of a bitmap stand for: the data of a member,
    /// for RAID10 the array.
    #[must_use]
    pub fn sync_size(&self) -> Sectors {
        if self.level().syncs_array() { self.array_size().unwrap_or_default() } else { self.size() }
    }

    /// First sector of data on the member.
    #[must_use]
    pub fn data_offset(&self) -> Sectors {
        match self {
            Self::V0_90(_) => Sectors::ZERO,
            Self::V1(new) => new.data_offset,
        }
    }

    /// Sector of the superblock on the member.
    #[must_use]
    pub fn super_offset(&self) -> Sectors {
        match self {
            Self::V0_90(old) => old.super_offset,
            Self::V1(new) => new.super_offset,
        }
    }

    /// Number of slots.
    #[must_use]
    pub fn raid_disks(&self) -> u32 {
        match self {
            Self::V0_90(old) => old.raid_disks,
            Self::V1(new) => new.raid_disks,
        }
    }

    /// Number of the member, as [`Superblock::role`] takes it; distinct from its slot.
    #[must_use]
    pub fn dev_number(&self) -> u32 {
        match self {
            Self::V0_90(old) => old.this_disk.number,
            Self::V1(new) => new.dev_number,
        }
    }

    /// Changes the number of the member. The role table stays as it is; [`Superblock::update`] sets
    /// the role of this number.
    pub fn set_dev_number(&mut self, number: u32) {
        match self {
            Self::V0_90(old) => old.this_disk.number = number,
            Self::V1(new) => new.dev_number = number,
        }
    }

    /// Number of entries of the role table.
    #[must_use]
    pub fn role_count(&self) -> usize {
        match self {
            Self::V0_90(old) => old.disks.len(),
            Self::V1(new) => new.roles.len(),
        }
    }

    /// Role of the member with this number.
    ///
    /// # Errors
    ///
    /// Fails for a number beyond the table, or a role that no member can have.
    pub fn role(&self, dev_number: u32) -> Result<Role, SuperblockError> {
        match self {
            Self::V0_90(old) => old.role(dev_number),
            Self::V1(new) => new.role(dev_number),
        }
    }

    /// Role of this member.
    ///
    /// # Errors
    ///
    /// The errors of [`Superblock::role`]; none after [`Superblock::parse`].
    pub fn own_role(&self) -> Result<Role, SuperblockError> {
        self.role(self.dev_number())
    }

    /// Identity of the member.
    #[must_use]
    pub fn identity(&self) -> DeviceIdentity {
        match self {
            Self::V0_90(old) => DeviceIdentity::Number(old.this_disk.number),
            Self::V1(new) => DeviceIdentity::Uuid(new.device_uuid),
        }
    }

    /// Event count: number of changes of the array, which orders members by freshness.
    #[must_use]
    pub fn events(&self) -> u64 {
        match self {
            Self::V0_90(old) => old.events,
            Self::V1(new) => new.events,
        }
    }

    /// Sector at which a resync has to begin; `None` for a clean array. A checkpoint beyond the end
    /// counts as 0.
    #[must_use]
    pub fn dirty_from(&self) -> Option<Sectors> {
        match self {
            Self::V0_90(old) => old.dirty_from(),
            Self::V1(new) => new.dirty_from(),
        }
    }

    /// Number of data sectors that are rebuilt already. `None` means all of them, if the member has
    /// a slot; 0.90 gives a slot only to members that hold all of their data.
    #[must_use]
    pub fn recovery_offset(&self) -> Option<Sectors> {
        self.as_v1().and_then(Super1::recovery_offset)
    }

    /// Feature bits; for 0.90 converted to those of version 1.
    #[must_use]
    pub fn features(&self) -> Features {
        match self {
            Self::V0_90(old) => old.features(),
            Self::V1(new) => new.feature_map,
        }
    }

    /// Reasons why this release does not write to the array.
    #[must_use]
    pub fn refuses_writing(&self) -> Vec<Reason> {
        match self {
            Self::V0_90(old) => old.refuses_writing(),
            Self::V1(new) => new.refuses_writing(),
        }
    }

    /// Messages about fields with values that are unusual but have an accepted meaning.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        match self {
            Self::V0_90(old) => old.warnings(),
            Self::V1(new) => new.warnings(),
        }
    }

    /// All lines that `mdadm --examine` prints, as name and value.
    #[must_use]
    pub fn describe(&self, member_size: Sectors) -> Vec<(String, String)> {
        match self {
            Self::V0_90(old) => old.describe(),
            Self::V1(new) => new.describe(member_size),
        }
    }

    /// Table of members that `mdadm --examine` prints after the lines of [`Superblock::describe`];
    /// empty for version 1, which has none.
    #[must_use]
    pub fn describe_disks(&self) -> Vec<String> {
        self.as_v0_90().map(Super090::describe_disks).unwrap_or_default()
    }

    /// Sectors of the member that its bitmap can use: from its start to the next area. `None`
    /// without a bitmap.
    ///
    /// # Errors
    ///
    /// `Value` for a bitmap that has no offset or would begin before the member's first sector,
    /// `Overlap` for one that overlaps the superblock, the data or the bad-block log, `Truncated`
    /// for one past the member's end.
    pub fn bitmap_room(
        &self,
        member_size: Sectors,
    ) -> Result<Option<SectorRange>, SuperblockError> {
        match self {
            Self::V0_90(old) => Ok(old.bitmap_room()),
            Self::V1(new) => new.bitmap_room(member_size),
        }
    }

    /// Sectors from the superblock to the write-intent bitmap; `None` without a bitmap.
    #[must_use]
    pub fn bitmap_offset(&self) -> Option<i32> {
        match self {
            Self::V0_90(old) => old.bitmap_room().map(|_| Super090::BITMAP_OFFSET),
            Self::V1(new) => new.bitmap_offset(),
        }
    }

    /// Records that the member has a write-intent bitmap at `offset`, or that it has none.
    ///
    /// Units    sectors from the superblock; 0.90 has only one place and does not store it
    pub fn set_bitmap(&mut self, offset: Option<i32>) {
        match (self, offset) {
            (Self::V0_90(old), Some(_)) => old.state |= Super090::BITMAP_PRESENT,
            (Self::V0_90(old), None) => old.state &= !Super090::BITMAP_PRESENT,
            (Self::V1(new), Some(offset)) => {
                new.feature_map.insert(Features::BITMAP);
                new.bitmap_offset_raw = offset.to_le_bytes();
            }
            (Self::V1(new), None) => {
                if new.bitmap_offset().is_some() {
                    new.bitmap_offset_raw = [0; 4];
                }
                new.feature_map.remove(Features::BITMAP);
                new.feature_map.remove(Features::RECOVERY_BITMAP);
            }
        }
    }

    /// State of the reshape that the superblock records; `None` without one, and for version 0.90.
    #[must_use]
    pub fn reshape(&self) -> Option<&Reshape> {
        let new = self.as_v1()?;
        new.feature_map.contains(Features::RESHAPE).then_some(&new.reshape)
    }

    /// First sector of data on the member after the reshape that the superblock records; without a
    /// reshape, [`Superblock::data_offset`]. `None` if this sector is not on the member.
    #[must_use]
    pub fn data_offset_after(&self) -> Option<Sectors> {
        let moves = Features::RESHAPE.with(Features::NEW_OFFSET);
        let distance = match self.as_v1() {
            Some(new) if new.feature_map.contains(moves) => new.reshape.new_offset,
            Some(_) | None => 0,
        };
        self.data_offset().0.checked_add_signed(distance.into()).map(Sectors)
    }

    /// Sectors of the member that hold data. During a reshape this covers the data of the old
    /// geometry and that of the new one.
    #[must_use]
    pub fn data_range(&self) -> SectorRange {
        let before = self.data_offset();
        let after = self.data_offset_after().unwrap_or(before);
        let start = before.min(after);
        SectorRange { start, len: before.max(after) - start + self.used_size() }
    }

    /// Number of free sectors before the member's data, into which a reshape can move the data:
    /// those behind the superblock, the bitmap and the bad-block log. 0 for version 0.90.
    ///
    /// Units    `bitmap_end` is the sector after the bitmap, if there is one
    /// Source   mdadm's Grow.c (`space_before`), md's `super_1_allow_new_offset`
    #[must_use]
    pub fn room_before_data(&self, bitmap_end: Option<Sectors>) -> Sectors {
        /// Sectors, counted from the superblock, that md never gives to data.
        const KEPT: u64 = 72;
        let Some(new) = self.as_v1() else { return Sectors::ZERO };
        let from_superblock = match new.minor {
            Minor::V1_0 => 0,
            Minor::V1_1 | Minor::V1_2 => new.super_offset.0 + KEPT,
        };
        let log = i128::from(new.super_offset.0) + i128::from(new.bblog_offset);
        let log_end = u64::try_from(log + i128::from(new.bblog_size)).unwrap_or(u64::MAX);
        let ends = [from_superblock, log_end, bitmap_end.map_or(0, |end| end.0)];
        let before = |end: &u64| *end <= new.data_offset.0;
        let end = ends.into_iter().filter(before).max().unwrap_or(0);
        Sectors(new.data_offset.0 - end)
    }

    /// Records the beginning of a reshape that moves the data of this member, with the number of
    /// slots after the reshape. Does nothing for version 0.90.
    ///
    /// Source   md-reshape.md §1
    pub fn begin_reshape(&mut self, to: Reshape) {
        let Self::V1(new) = self else { return };
        new.feature_map.insert(Features::RESHAPE.with(Features::NEW_OFFSET));
        new.reshape = Reshape { position: 0, ..to };
        new.raid_disks = new.raid_disks.wrapping_add_signed(to.delta_disks);
    }

    /// Sectors of the array after the reshape that the superblock records; `None` without a
    /// reshape, or if no size can be computed from the new geometry.
    #[must_use]
    pub fn array_size_after(&self) -> Option<Sectors> {
        let Reshape { new_layout, new_chunk, .. } = *self.reshape()?;
        array_size(self.level(), new_layout, self.size(), new_chunk, self.raid_disks())
    }

    /// Records the array sector that the reshape has reached.
    pub const fn set_reshape_position(&mut self, position: Sectors) {
        if let Self::V1(new) = self {
            new.reshape.position = position.0;
        }
    }

    /// Records the end of the reshape: the new geometry becomes the only one.
    ///
    /// Source   md-reshape.md §5 (md: `md_finish_reshape`)
    pub fn end_reshape(&mut self) {
        let after = self.data_offset_after();
        let Self::V1(new) = self else { return };
        if !new.feature_map.contains(Features::RESHAPE) {
            return;
        }
        if let Some(after) = after {
            let end = new.data_offset.0.saturating_add(new.data_size.0);
            new.data_size = Sectors(end.saturating_sub(after.0));
            new.data_offset = after;
        }
        (new.layout, new.chunk) = (new.reshape.new_layout, new.reshape.new_chunk);
        new.forget_reshape();
    }

    /// Reverts a reshape that has not moved any data yet: the old geometry becomes the only one,
    /// and the members of the new slots become spares.
    pub fn revert_reshape(&mut self) {
        let Self::V1(new) = self else { return };
        let Some(before) = new.raid_disks_before() else { return };
        new.raid_disks = before;
        let has_no_slot = |role: &u16| match Role::from_code(*role) {
            Some(Role::Active(slot)) => u32::from(slot.0) >= before,
            _ => false,
        };
        for role in new.roles.iter_mut().filter(|role| has_no_slot(role)) {
            *role = Role::Spare.code();
        }
        new.forget_reshape();
    }

    /// Sectors of the member's bad-block log; `None` when the superblock says that there are no bad
    /// blocks, and for 0.90.
    #[must_use]
    pub fn badblocks_area(&self) -> Option<SectorRange> {
        let new = self.as_v1()?;
        let present = new.feature_map.contains(Features::BADBLOCKS);
        let start = new.super_offset.0.checked_add_signed(new.bblog_offset.into())?;
        present.then(|| SectorRange::new(start, new.bblog_size.into()))
    }

    /// Sectors of the member in which a bad-block log can be written, whether or not there are bad
    /// blocks now; `None` without a log, as in 0.90, and for a log with a place that is not legal
    /// or a unit other than a sector.
    #[must_use]
    pub fn badblocks_room(&self, member_size: Sectors) -> Option<SectorRange> {
        let new = self.as_v1().filter(|new| new.bblog_shift == 0)?;
        new.check_bblog(member_size).ok()?;
        let start = new.super_offset.0.checked_add_signed(new.bblog_offset.into())?;
        Some(SectorRange::new(start, new.bblog_size.into()))
    }

    /// Facts that the encoding of the member's bad-block log depends on.
    #[must_use]
    pub fn badblocks_context(&self, member_size: Sectors) -> BadBlockContext {
        BadBlockContext {
            shift: self.as_v1().map_or(0, |new| new.bblog_shift),
            data_offset: self.data_range().start,
            used_size: self.data_range().len,
            member_size,
        }
    }

    /// Sectors of the member's partial parity log; `None` if the superblock names no such log.
    #[must_use]
    pub fn ppl_area(&self) -> Option<SectorRange> {
        let new = self.as_v1()?;
        let ppl = new.ppl()?;
        let start = new.super_offset.0.checked_add_signed(ppl.offset.into())?;
        Some(SectorRange::new(start, ppl.size.into()))
    }
}

impl Super1 {
    fn forget_reshape(&mut self) {
        let bits = Features::RESHAPE.with(Features::RESHAPE_BACK).with(Features::NEW_OFFSET);
        self.feature_map.remove(bits);
        self.reshape = Reshape::default();
    }

    /// Sectors of the member that its bitmap can use: see [`Superblock::bitmap_room`].
    ///
    /// # Errors
    ///
    /// The errors of [`Superblock::bitmap_room`].
    pub fn bitmap_room(
        &self,
        member_size: Sectors,
    ) -> Result<Option<SectorRange>, SuperblockError> {
        /// Shortest bitmap, in sectors: the block of 4 KiB in which md writes the header.
        const HEADER_SECTORS: i128 = 8;
        let Some(offset) = self.bitmap_offset() else { return Ok(None) };
        let at = At { structure: "superblock", field: "bitmap_offset", byte: 96 };
        if offset == 0 {
            return Err(SuperblockError::value(at, 0, "a place with BITMAP"));
        }
        let start = i128::from(self.super_offset.0) + i128::from(offset);
        // Very old tools put the bitmap 1 KiB after the superblock: within its 4 KiB, but behind
        // the roles.
        let header = Area::new(at, "the bitmap", start, HEADER_SECTORS);
        header.inside(member_size)?;
        let mut others = vec![self.superblock_area(), self.data_area()];
        if self.bblog_size > 0 && self.bblog_offset != 0 {
            let log = i128::from(self.super_offset.0) + i128::from(self.bblog_offset);
            others.push(Area::new(at, "the bad-block log", log, self.bblog_size.into()));
        }
        let mut end = i128::from(member_size.0);
        for other in &others {
            header.clear_of(other)?;
            if other.start >= header.end {
                end = end.min(other.start);
            }
        }
        let sector = |at: i128| u64::try_from(at).unwrap_or_default();
        Ok(Some(SectorRange::new(sector(start), sector(end - start))))
    }
}
