//! Superblock of version 0.90.
//!
//! The superblock consists of 1024 words of 32 bits, in the byte order of the machine that wrote
//! them, at the start of the last whole 64 KiB of the member. Data comes first, from sector 0;
//! behind the superblock there is room for a bitmap.
//!
//! ```text
//! 0                                   (size & !127) - 128        +8            +128      size
//! | data ...                         | superblock               | bitmap      | unused |
//! ```
//!
//! A member is a row of a table of 27: its number, its slot, and bits that tell whether it is in
//! use. The format has no identity of a member, no data offset and no bad-block log, and it cannot
//! record how far a member is rebuilt: an interrupted rebuild starts again from the beginning.
//!
//! Source: format facts as read from Linux 6.1 and 6.12 and mdadm 4.2, checked with superblocks
//! that Linux 6.12 wrote (`fixtures/md-meta`).

mod describe;
mod validate;
mod words;

use crate::super1::array_size;
use crate::{Features, Level, Reason, ResyncOffset, Role, SUPER_BYTES, SuperblockError, Uuid};
use std::fmt;
use weft_units::{SECTOR_BYTES, SectorRange, Sectors, Slot};
use words::{MAGIC, Word, Words, check_format};

/// Number of rows of the table of members, and therefore the largest number of members.
pub const DISKS_090_MAX: u32 = 27;

/// Sectors of the member reserved for the superblock and its bitmap.
pub const RESERVED_090: Sectors = Sectors(128);

/// Largest usable part of a member, less than 4 TiB: `size` counts KiB in 32 bits.
pub const SIZE_090_MAX: Sectors = Sectors(u32::MAX as u64 * 2);

/// Byte order of the machine that wrote a superblock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// Big-endian: the highest byte comes first.
    Big,
    /// Little-endian: the lowest byte comes first.
    #[default]
    Little,
}

/// A row of the table of members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disk090 {
    /// Position of the entry in the table.
    pub number: u32,
    /// Major device number at the time of the write.
    pub major: u32,
    /// Minor device number at the time of the write.
    pub minor: u32,
    /// Slot of the member, if [`Disk090::role`] says that it has one.
    pub raid_disk: u32,
    /// Flags: [`Disk090::FAULTY`] and others.
    pub state: u32,
}

/// State of a reshape: its position and the geometry after it. Valid with minor version 91.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reshape090 {
    /// Array sector that the reshape has reached. Byte 176.
    pub position: u64,
    /// Level after the reshape, as a code. Byte 184.
    pub new_level: u32,
    /// `raid_disks` (the number after the reshape) minus the number before. Byte 188.
    pub delta_disks: i32,
    /// Layout after the reshape. Byte 192.
    pub new_layout: u32,
    /// Chunk after the reshape, in bytes. Byte 196.
    pub new_chunk_bytes: u32,
}

/// Every field of a 0.90 superblock, as values.
///
/// Source   byte offsets and meanings: md's on-disk structure; each field names its own byte
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Super090 {
    /// Byte order of the whole superblock.
    pub order: ByteOrder,
    /// Sector of the superblock. Not stored, but implied by the member's size.
    pub super_offset: Sectors,
    /// 90, or 91 during a reshape. Byte 8.
    pub minor_version: u32,
    /// Patch version of the format, 0. Byte 12.
    pub patch_version: u32,
    /// Number of valid words, ignored by all implementations. Byte 16.
    pub gvalid_words: u32,
    /// UUID of the array in the printed order: each word with its highest byte first, whatever
    /// `order` is. Bytes 20, 52, 56, 60.
    pub set_uuid: Uuid,
    /// Creation time, in seconds since 1970. Byte 24.
    pub ctime: u32,
    /// RAID level. Byte 28.
    pub level: Level,
    /// KiB of each member that hold data; meaningless for linear and RAID0. Byte 32.
    pub size_kib: u32,
    /// Number of members. Byte 36.
    pub nr_disks: u32,
    /// Number of slots. Byte 40.
    pub raid_disks: u32,
    /// Preferred number of the md device. Byte 44.
    pub md_minor: u32,
    /// 0 for an array with superblocks. Byte 48.
    pub not_persistent: u32,
    /// Time of the last write of the superblock, in seconds since 1970. Byte 128.
    pub utime: u32,
    /// Flags: [`Super090::CLEAN`] and others. Byte 132.
    pub state: u32,
    /// Number of members in use. Byte 136.
    pub active_disks: u32,
    /// Number of members that have not failed. Byte 140.
    pub working_disks: u32,
    /// Number of failed members and of slots without a member. Byte 144.
    pub failed_disks: u32,
    /// Number of members without a slot. Byte 148.
    pub spare_disks: u32,
    /// Event count. Byte 156.
    pub events: u64,
    /// Event count at which `recovery_cp` was stored. Byte 164.
    pub cp_events: u64,
    /// Sector up to which the array is in sync, if `cp_events` is equal to `events`. Byte 172.
    pub recovery_cp: u32,
    /// State of a reshape. Bytes 176 to 199.
    pub reshape: Reshape090,
    /// Layout within the level. Byte 256.
    pub layout: u32,
    /// Chunk size in bytes. Byte 260.
    pub chunk_bytes: u32,
    /// Obsolete field, kept as stored. Byte 264.
    pub root_pv: u32,
    /// Obsolete field, kept as stored. Byte 268.
    pub root_block: u32,
    /// Table of all members. Byte 512, 128 bytes each.
    pub disks: [Disk090; DISKS_090_MAX as usize],
    /// Copy of this member's row. Byte 3968.
    pub this_disk: Disk090,
}

impl fmt::Display for ByteOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Big => "big-endian",
            Self::Little => "little-endian",
        })
    }
}

impl Disk090 {
    /// Flag: the member has failed or, with [`Disk090::REMOVED`], the slot is empty.
    pub const FAULTY: u32 = 1 << 0;
    /// Flag: the member has a slot.
    pub const ACTIVE: u32 = 1 << 1;
    /// Flag: the member has all data of its slot.
    pub const SYNC: u32 = 1 << 2;
    /// Flag: the member was removed from the array.
    pub const REMOVED: u32 = 1 << 3;
    /// Flag: reads go to this member only when no other member has the data.
    pub const WRITE_MOSTLY: u32 = 1 << 9;
    /// Flag: the device reports I/O errors at once, without retries (failfast).
    pub const FAIL_FAST: u32 = 1 << 10;

    /// Role of the member.
    ///
    /// Source   the kernel tests "faulty" and then "sync"; a member that is active but not in sync
    ///          counts as a spare, also during a reshape, because weft does not continue reshapes
    ///          of this version
    #[must_use]
    pub fn role(&self) -> Role {
        match u16::try_from(self.raid_disk) {
            _ if self.state & Self::FAULTY != 0 => Role::Faulty,
            Ok(slot) if self.state & Self::SYNC != 0 && slot <= Role::SLOT_MAX => {
                Role::Active(Slot(slot))
            }
            _ => Role::Spare,
        }
    }

    const fn is_empty_slot(&self) -> bool {
        self.state & Self::REMOVED != 0
    }

    /// State flags as mdadm prints them, such as `active sync`.
    fn states(&self) -> String {
        let mut states = String::new();
        for (bit, name) in [
            (Self::FAULTY, " faulty"),
            (Self::ACTIVE, " active"),
            (Self::SYNC, " sync"),
            (Self::REMOVED, " removed"),
            (Self::WRITE_MOSTLY, " write-mostly"),
            (Self::FAIL_FAST, " failfast"),
        ] {
            if self.state & bit != 0 {
                states.push_str(name);
            }
        }
        if self.state & !(Self::WRITE_MOSTLY | Self::FAIL_FAST) == 0 {
            states.push_str(" spare");
        }
        states
    }
}

impl Super090 {
    /// Bit of `state`: the array was stopped cleanly.
    pub const CLEAN: u32 = 1 << 0;
    /// Bit of `state`: several hosts use the array at once.
    pub const CLUSTERED: u32 = 1 << 5;
    /// Bit of `state`: there is a bitmap behind the superblock.
    pub const BITMAP_PRESENT: u32 = 1 << 8;

    /// Sectors from the superblock to its bitmap.
    pub const BITMAP_OFFSET: i32 = 8;

    /// Sectors available for a bitmap, behind the 4 KiB of the superblock.
    pub(crate) const BITMAP_SECTORS: u64 = RESERVED_090.0 - 8;

    /// Sector of the superblock on a member of this size; `None` if the member is too small.
    ///
    /// Source   the start of the last whole, aligned 64 KiB
    #[must_use]
    pub const fn position(member_size: Sectors) -> Option<Sectors> {
        match member_size.round_down(RESERVED_090).0.checked_sub(RESERVED_090.0) {
            Some(sector) => Some(Sectors(sector)),
            None => None,
        }
    }

    /// Reads a superblock and makes all checks that are possible on one member.
    ///
    /// Shape    `bytes` are the 4096 at [`Super090::position`] of the member; further bytes are
    ///          ignored
    ///
    /// # Errors
    ///
    /// The errors of [`Super090::decode`] and [`Super090::validate`].
    pub fn parse(bytes: &[u8], member_size: Sectors) -> Result<Self, SuperblockError> {
        let parsed = Self::decode(bytes, member_size)?;
        parsed.validate()?;
        Ok(parsed)
    }

    /// Reads a superblock in either byte order and checks only that it is undamaged and of a known
    /// format: magic, version, checksum, level.
    ///
    /// # Errors
    ///
    /// [`SuperblockError`] for the first of these checks that fails.
    pub fn decode(bytes: &[u8], member_size: Sectors) -> Result<Self, SuperblockError> {
        let Some(super_offset) = Self::position(member_size) else {
            let expected = RESERVED_090;
            return Err(SuperblockError::TooSmall { found: member_size, expected });
        };
        let short = || SuperblockError::Short { found: bytes.len() };
        let block = bytes.get(..SUPER_BYTES).ok_or_else(short)?;
        let big = block.starts_with(&MAGIC.to_be_bytes());
        let words = Words::read(block, if big { ByteOrder::Big } else { ByteOrder::Little });
        check_format(&words)?;
        let (stored, computed) = (words.get(Word::SB_CSUM), words.sum());
        // The kernel compares only the sums folded to 16 bits, because Linux on Alpha stored a
        // folded checksum.
        if folded(stored) != folded(computed) {
            return Err(SuperblockError::Checksum { at: Word::SB_CSUM.at(), stored, computed });
        }
        let code = words.get(Word::LEVEL).cast_signed();
        let level = Level::from_code(code)
            .ok_or_else(|| SuperblockError::value(Word::LEVEL.at(), code, Level::codes_listed()))?;
        Ok(Self::from_words(&words, super_offset, level))
    }

    /// Writes every field into `block`, and last the checksum with all of its 32 bits.
    ///
    /// Shape    `block` is the block that was read, or zeros; reserved words are left unchanged
    pub fn encode_into(&self, block: &mut [u8; SUPER_BYTES]) {
        let mut words = Words::read(block, self.order);
        self.to_words(&mut words);
        words.set(Word::SB_CSUM, words.sum());
        words.write(block);
    }

    /// Encodes the superblock with zeros in reserved words.
    #[must_use]
    pub fn encode(&self) -> [u8; SUPER_BYTES] {
        let mut block = [0; SUPER_BYTES];
        self.encode_into(&mut block);
        block
    }

    /// Checksum that [`Super090::encode`] stores. [`csum_090`] computes it for a block with
    /// reserved words in use.
    #[must_use]
    pub fn checksum(&self) -> u32 {
        Words::read(&self.encode(), self.order).get(Word::SB_CSUM)
    }

    /// Superblock of member `number` of the same array: all fields but `this_disk` are equal.
    /// `None` for a number beyond the table.
    #[must_use]
    pub fn of_member(&self, number: u32) -> Option<Self> {
        let this_disk = *self.disks.get(number as usize)?;
        Some(Self { this_disk, ..self.clone() })
    }

    /// Role of the member with this number. An unused row has the role of a spare.
    ///
    /// # Errors
    ///
    /// `Value` for a number beyond the table, or a slot that the array does not have.
    pub fn role(&self, number: u32) -> Result<Role, SuperblockError> {
        let disk = self.disks.get(number as usize).ok_or_else(|| {
            let expected = format!("less than {DISKS_090_MAX}, the length of the table");
            SuperblockError::value(Word::THIS_DISK.at(), number, expected)
        })?;
        match disk.role() {
            Role::Active(slot) if u32::from(slot.0) >= self.slots() => {
                let at = Word::disk(number as usize, 3, "disks.raid_disk").at();
                let expected = format!("a slot below {}", self.slots());
                Err(SuperblockError::value(at, slot.0, expected))
            }
            role => Ok(role),
        }
    }

    /// Role of this member: that of its row in the table, as in the kernel, not that of the copy in
    /// `this_disk`.
    ///
    /// # Errors
    ///
    /// The errors of [`Super090::role`]; none after [`Super090::parse`].
    pub fn own_role(&self) -> Result<Role, SuperblockError> {
        self.role(self.this_disk.number)
    }

    /// Changes the role of a member and counts the members again.
    ///
    /// # Panics
    ///
    /// Panics for a number beyond the table, and for a journal, which this version does not have.
    pub fn set_role(&mut self, number: u32, role: Role) {
        let disk = self.disks.get_mut(number as usize).expect("the caller has a member's number");
        let kept = disk.state & (Disk090::WRITE_MOSTLY | Disk090::FAIL_FAST);
        disk.number = number;
        disk.state = kept
            | match role {
                Role::Active(slot) => {
                    disk.raid_disk = slot.0.into();
                    Disk090::ACTIVE | Disk090::SYNC
                }
                Role::Faulty => Disk090::FAULTY,
                Role::Spare => 0,
                Role::Journal => panic!("0.90 has no journal"),
            };
        if self.this_disk.number == number {
            self.this_disk = *disk;
        }
        self.recount();
    }

    /// Number of slots that roles can name: `raid_disks`, or the number before a reshape that
    /// shrinks the array.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.raid_disks.max(self.raid_disks_before().unwrap_or(0))
    }

    /// `raid_disks` before the reshape; `None` without a reshape, or when the difference is not a
    /// valid number.
    #[must_use]
    pub fn raid_disks_before(&self) -> Option<u32> {
        let before = i64::from(self.raid_disks) - i64::from(self.reshape.delta_disks);
        u32::try_from(before).ok().filter(|_| self.is_reshaping())
    }

    /// Whether a reshape is in progress.
    #[must_use]
    pub const fn is_reshaping(&self) -> bool {
        self.minor_version == 91
    }

    /// Features of version 1 that this superblock expresses by other means.
    #[must_use]
    pub fn features(&self) -> Features {
        let mut features = Features::default();
        for (with, feature) in [
            (self.state & Self::BITMAP_PRESENT != 0, Features::BITMAP),
            (self.state & Self::CLUSTERED != 0, Features::CLUSTERED),
            (self.is_reshaping(), Features::RESHAPE),
        ] {
            if with {
                features.insert(feature);
            }
        }
        features
    }

    /// Chunk size in sectors.
    #[must_use]
    pub fn chunk(&self) -> Sectors {
        Sectors(u64::from(self.chunk_bytes) / SECTOR_BYTES)
    }

    /// `size` in sectors; 0 for linear and RAID0, which do not use it.
    #[must_use]
    pub fn size(&self) -> Sectors {
        Sectors(if self.level.uses_size() { u64::from(self.size_kib) * 2 } else { 0 })
    }

    /// Sectors of this member that hold data.
    #[must_use]
    pub fn used_size(&self) -> Sectors {
        if self.level.uses_size() { self.size() } else { self.super_offset }
    }

    /// Size of the array in sectors. `None` for linear and RAID0, and if no size can be computed
    /// from the geometry.
    #[must_use]
    pub fn array_size(&self) -> Option<Sectors> {
        array_size(self.level, self.layout, self.size(), self.chunk(), self.raid_disks)
    }

    /// Sector up to which the array is in sync.
    ///
    /// Source   the checkpoint counts only if it was stored with the present event count of the
    ///          superblock
    #[must_use]
    pub fn resync_offset(&self) -> ResyncOffset {
        if self.state & Self::CLEAN != 0 {
            ResyncOffset::Clean
        } else if self.events == self.cp_events {
            ResyncOffset::At(Sectors(self.recovery_cp.into()))
        } else {
            ResyncOffset::At(Sectors::ZERO)
        }
    }

    /// Stores the sector up to which the array is in sync, with the current event count. A
    /// checkpoint that does not fit 32 bits is stored as 0.
    pub fn set_resync_offset(&mut self, offset: ResyncOffset) {
        self.state &= !Self::CLEAN;
        self.cp_events = self.events;
        self.recovery_cp = match offset {
            ResyncOffset::Clean => {
                self.state |= Self::CLEAN;
                u32::MAX
            }
            ResyncOffset::At(sector) => u32::try_from(sector.0).unwrap_or(0),
        };
    }

    /// Sector at which a resync has to begin; `None` for a clean array. A checkpoint beyond the end
    /// counts as 0.
    #[must_use]
    pub fn dirty_from(&self) -> Option<Sectors> {
        let ResyncOffset::At(sector) = self.resync_offset() else { return None };
        let range = if self.level.syncs_array() { self.array_size() } else { Some(self.size()) };
        Some(if range.is_some_and(|range| sector <= range) { sector } else { Sectors::ZERO })
    }

    /// Sectors of the member that the bitmap can use; `None` without a bitmap.
    #[must_use]
    pub fn bitmap_room(&self) -> Option<SectorRange> {
        let present = self.state & Self::BITMAP_PRESENT != 0;
        let start = self.super_offset.0.checked_add_signed(Self::BITMAP_OFFSET.into())?;
        present.then(|| SectorRange::new(start, Self::BITMAP_SECTORS))
    }

    /// UUID that the bitmap of this array carries: the words of the UUID as the superblock stores
    /// them.
    #[must_use]
    pub fn bitmap_uuid(&self) -> Uuid {
        let mut bytes = self.set_uuid.0;
        for word in bytes.chunks_exact_mut(4) {
            if self.order == ByteOrder::Little {
                word.reverse();
            }
        }
        Uuid(bytes)
    }

    /// Whether a machine with another byte order wrote the superblock, so that Linux on this one
    /// would not recognise it.
    #[must_use]
    pub fn is_foreign(&self) -> bool {
        (self.order == ByteOrder::Big) != cfg!(target_endian = "big")
    }

    /// Reasons why this release does not write to the array.
    #[must_use]
    pub fn refuses_writing(&self) -> Vec<Reason> {
        let mut reasons = self.features().unwritable();
        if self.is_foreign() {
            let what = "words in the byte order of another kind of machine";
            reasons.push(Reason { name: "magic", what });
        }
        if self.events == u64::MAX {
            reasons.push(Reason { name: "events", what: "an event count that cannot increase" });
        }
        reasons
    }

    /// Messages about fields with values that are unusual but have an accepted meaning.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let rest = self.size().0.checked_rem(self.chunk().0).unwrap_or(0);
        if self.level.is_striped() && rest != 0 {
            warnings.push(format!(
                "{}: found {}, expected a multiple of the chunk, {}; the rest is not used",
                Word::SIZE.at(),
                self.size_kib,
                self.chunk_bytes >> 10
            ));
        }
        if let ResyncOffset::At(sector) = self.resync_offset()
            && self.dirty_from() != Some(sector)
        {
            warnings.push(format!(
                "{}: found {}, expected no more than the array has; all of it counts as dirty",
                Word::RECOVERY_CP.at(),
                sector.0
            ));
        }
        if self.is_foreign() {
            warnings.push(format!(
                "{}: found a {} superblock; the array was made by a machine of another kind",
                Word::MAGIC.at(),
                self.order
            ));
        }
        warnings
    }

    /// Sets the counts of members as the kernel does: a slot without a member counts as failed.
    pub(crate) fn recount(&mut self) {
        let (mut active, mut failed, mut spare, mut present) = (0, 0, 0, 0);
        for (number, disk) in (0_u32..).zip(&self.disks) {
            if disk.is_empty_slot() {
                failed += 1;
                continue;
            }
            // A row of zeros is unused, except the first one.
            if *disk == Disk090::default() && number != 0 {
                continue;
            }
            present += 1;
            match disk.role() {
                Role::Active(_) => active += 1,
                Role::Faulty => failed += 1,
                Role::Journal | Role::Spare => spare += 1,
            }
        }
        self.active_disks = active;
        self.working_disks = active + spare;
        self.failed_disks = failed;
        self.spare_disks = spare;
        self.nr_disks = present;
    }
}

/// Checksum for `sb_csum` of a 0.90 superblock in this byte order; `None` for fewer than 4096
/// bytes.
///
/// Source   md: sum of all words except the checksum in 64 bits; its halves are added once, and the
///          carry of that addition is lost
#[must_use]
pub fn csum_090(block: &[u8], order: ByteOrder) -> Option<u32> {
    block.get(..SUPER_BYTES).map(|block| Words::read(block, order).sum())
}

/// Folds a checksum of 32 bits to 16 bits, by adding its halves to each other twice.
const fn folded(sum: u32) -> u32 {
    let once = (sum & 0xffff) + (sum >> 16);
    (once & 0xffff) + (once >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn superblocks_are_in_the_last_whole_64_kib() {
        for (member_size, position) in [
            (127, None),
            (128, Some(0)),
            (255, Some(0)),
            (131_072, Some(130_944)),
            (131_199, Some(130_944)),
            (131_200, Some(131_072)),
            (u64::MAX, Some(u64::MAX - 255)),
        ] {
            assert_eq!(Super090::position(Sectors(member_size)), position.map(Sectors));
        }
    }

    #[test]
    fn a_sum_of_16_bits_is_accepted() {
        for (full, short) in [(0x1234_5678, 0x68ac), (0xffff_ffff, 0xffff), (0xffff_0001, 1)] {
            assert_eq!(folded(full), folded(short), "{full:#x}");
        }
        assert_ne!(folded(1), folded(2));
    }
}
