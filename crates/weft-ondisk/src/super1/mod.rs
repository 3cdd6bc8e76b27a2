//! Superblock of version 1: description of a member and its array.
//!
//! Versions 1.0, 1.1 and 1.2 are one structure at three places. The structure has a header of 256
//! bytes and a table of 16-bit roles, one for each member that the array ever numbered. All numbers
//! are little-endian, all positions count sectors of 512 bytes, and a position "from the
//! superblock" is a signed distance.
//!
//! ```text
//! 1.2    0        8            +8                                data_offset
//!        | unused | superblock | bitmap or PPL, bad-block log, gap | data ...
//! 1.1    0            +8                                           data_offset
//!        | superblock | bitmap or PPL, bad-block log, gap         | data ...
//! 1.0    data_offset, normally 0                     end-16..end-24 sectors, aligned to 4 KiB
//!        | data ...  | bitmap or PPL, bad-block log | superblock | unused
//! ```
//!
//! [`Super1::parse`] returns only values that are legal on their own: everything that does not
//! depend on other members has been checked. [`Super1::decode`] makes only the checks without which
//! no field can be trusted, for display.
//!
//! Source: format facts as read from Linux 6.1 and 6.12 and mdadm 4.2 to 4.6, checked with
//! superblocks that these programs wrote (`fixtures/md-super`).

mod raw;
mod validate;

use crate::error::at;
use crate::{At, Features, Level, Minor, Reason, Redundancy, SuperblockError, Uuid};
use raw::{HEADER_BYTES, Raw, STRUCTURE};
use std::fmt;
pub(crate) use validate::{Area, DATA_SECTORS_MIN, check_chunk};
use weft_units::{SECTOR_BYTES, Sectors, Slot};
use zerocopy::{FromBytes, IntoBytes};

/// Bytes to read for a superblock: its largest size.
pub const SUPER_BYTES: usize = 4096;

/// Largest number of entries of a role table in a superblock, `(4096 - 256) / 2`.
pub const ROLES_MAX: u32 = 1920;

/// Time in seconds and microseconds since 1970, as stored in a superblock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct MdTime {
    /// Seconds since 1970, 40 bits.
    pub secs: u64,
    /// Microseconds, 24 bits. Usually 0.
    pub micros: u32,
}

/// Sector up to which members are known to agree, in a member's data; for RAID10 in the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResyncOffset {
    /// The members agree everywhere: the array was stopped cleanly.
    Clean,
    /// The members agree below this sector, which is 0 while writes may be in flight.
    At(Sectors),
}

/// Role of a member in its array: an entry of `dev_roles`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The member has a slot.
    Active(Slot),
    /// The member has failed, and its content must not be used.
    Faulty,
    /// The member is the RAID4/5/6 journal.
    Journal,
    /// The member has no slot, or the entry is unused.
    Spare,
}

/// Position of a member's partial parity log. The superblock stores it in the bytes that otherwise
/// describe the bitmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PplArea {
    /// Offset from the superblock, in sectors.
    pub offset: i16,
    /// Length in sectors.
    pub size: u16,
}

/// State of a reshape. The fields are 0 or stale when no reshape is in progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reshape {
    /// Level after the reshape, as its on-disk code.
    pub new_level: i32,
    /// Array sector that the reshape has reached.
    pub position: u64,
    /// Change of the number of members: `raid_disks` (the number after the reshape) minus the
    /// number before.
    pub delta_disks: i32,
    /// Layout after the reshape.
    pub new_layout: u32,
    /// Chunk after the reshape.
    pub new_chunk: Sectors,
    /// Sectors to add to `data_offset` after the reshape, with [`Features::NEW_OFFSET`].
    pub new_offset: i32,
}

/// Every field of a v1 superblock, as values.
///
/// Source   byte offsets and meanings: md's on-disk structure; each field names its own byte
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Super1 {
    /// Minor version, which gives the position of the superblock; `super_offset` follows from it
    /// and the member's size.
    pub minor: Minor,
    /// Features that a reader has to understand. Byte 8.
    pub feature_map: Features,
    /// UUID of the array. Byte 16.
    pub set_uuid: Uuid,
    /// Name of the array, padded with NUL, normally `host:name` or `name`. Byte 32.
    pub set_name: [u8; 32],
    /// Creation time. Byte 64.
    pub ctime: MdTime,
    /// RAID level. Byte 72.
    pub level: Level,
    /// Layout within the level, see [`crate::layout_id`]. Byte 76.
    pub layout: u32,
    /// Sectors of each member that hold data; 0 for linear and RAID0. Byte 80.
    pub size: Sectors,
    /// Chunk size; without meaning for RAID1, where mdadm stores 0. Byte 88.
    pub chunk: Sectors,
    /// Number of slots. Byte 92.
    pub raid_disks: u32,
    /// Position of the bitmap or the partial parity log: [`Super1::bitmap_offset`],
    /// [`Super1::ppl`]. Byte 96.
    pub bitmap_offset_raw: [u8; 4],
    /// State of a reshape, valid with [`Features::RESHAPE`]. Byte 100.
    pub reshape: Reshape,
    /// First sector of data on the member. Byte 128.
    pub data_offset: Sectors,
    /// Sectors available for data on the member. Byte 136.
    pub data_size: Sectors,
    /// Sector of this superblock on the member. Byte 144.
    pub super_offset: Sectors,
    /// Data sector up to which the member is rebuilt, or sector of the journal's tail:
    /// [`Super1::recovery_offset`], [`Super1::journal_tail`]. Byte 152.
    pub recovery_offset_raw: u64,
    /// Index of the member's entry in `roles`, distinct from its slot. Byte 160.
    pub dev_number: u32,
    /// Number of read errors that were corrected by writing. Byte 164.
    pub cnt_corrected_read: u32,
    /// UUID of the member. Byte 168.
    pub device_uuid: Uuid,
    /// Flags: 1 write-mostly, 2 failfast. Byte 184.
    pub devflags: u8,
    /// Unit of the bad-block log: `512 << bblog_shift` bytes. Byte 185.
    pub bblog_shift: u8,
    /// Sectors reserved for the bad-block log. Byte 186.
    pub bblog_size: u16,
    /// Sectors from the superblock to the bad-block log; 0 for none. Byte 188.
    pub bblog_offset: i32,
    /// Time of the last write of the superblock. Byte 192.
    pub utime: MdTime,
    /// Event count: number of changes of the array, which orders members by freshness. Byte 200.
    pub events: u64,
    /// Sector up to which the array is in sync. Byte 208.
    pub resync_offset: ResyncOffset,
    /// Logical block size of the array in bytes, or 0 for that of the members. Linux 6.19 and later
    /// write it. Byte 224.
    pub logical_block_size: u32,
    /// Role of each numbered member: `dev_roles[..max_dev]`. Byte 256.
    pub roles: Vec<u16>,
}

impl Super1 {
    /// Bit of `devflags`: reads go to this member only when no other member has the data.
    pub const WRITE_MOSTLY: u8 = 1;

    /// Reads a superblock and makes all checks that are possible on one member.
    ///
    /// Shape    `bytes` are the 4096 at [`Minor::position`] of the member; further bytes are
    ///          ignored
    ///
    /// # Errors
    ///
    /// The errors of [`Super1::decode`] and [`Super1::validate`].
    pub fn parse(
        bytes: &[u8],
        minor: Minor,
        member_size: Sectors,
    ) -> Result<Self, SuperblockError> {
        let parsed = Self::decode(bytes, minor)?;
        parsed.validate(member_size)?;
        Ok(parsed)
    }

    /// Reads a superblock and checks only that it is undamaged and of a known format: magic,
    /// version, size of the role table, checksum, features, level.
    ///
    /// For the display of a superblock that [`Super1::validate`] refuses. For use, call
    /// [`Super1::parse`].
    ///
    /// # Errors
    ///
    /// [`SuperblockError`] for the first of these checks that fails.
    pub fn decode(bytes: &[u8], minor: Minor) -> Result<Self, SuperblockError> {
        let short = || SuperblockError::Short { found: bytes.len() };
        let block = bytes.get(..SUPER_BYTES).ok_or_else(short)?;
        let (raw, table) = Raw::ref_from_prefix(block).map_err(|_| short())?;
        raw.check_format()?;
        let (entries, _) = table.as_chunks();
        let entries = entries.iter().take(raw.max_dev.get() as usize);
        let roles: Vec<u16> = entries.map(|entry| u16::from_le_bytes(*entry)).collect();
        let (stored, computed) = (raw.sb_csum.get(), csum_v1(block).ok_or_else(short)?);
        if stored != computed {
            return Err(SuperblockError::Checksum { at: at!(sb_csum), stored, computed });
        }
        raw.check_newer()?;
        let level = Level::from_code(raw.level.get()).ok_or_else(|| {
            SuperblockError::value(at!(level), raw.level.get(), Level::codes_listed())
        })?;
        Ok(raw.values(minor, level, roles))
    }

    /// Writes every field into `block`, and last the checksum.
    ///
    /// Shape    `block` is the block that was read, or any 4096 bytes; bytes behind the role table
    ///          are left unchanged
    ///
    /// # Panics
    ///
    /// Panics when `roles` has more than [`ROLES_MAX`] entries or a chunk has more than 32 bits. No
    /// parsed or planned superblock is like that.
    pub fn encode_into(&self, block: &mut [u8; SUPER_BYTES]) {
        assert!(self.roles.len() <= ROLES_MAX as usize);
        let (header, table) = block.split_at_mut(HEADER_BYTES);
        for (entry, role) in table.chunks_exact_mut(2).zip(&self.roles) {
            entry.copy_from_slice(&role.to_le_bytes());
        }
        let mut raw = Raw::from_values(self);
        header.copy_from_slice(raw.as_bytes());
        raw.sb_csum.set(csum_v1(block).expect("max_dev is the length of roles, asserted above"));
        block.split_at_mut(HEADER_BYTES).0.copy_from_slice(raw.as_bytes());
        // A superblock of a newer md is encoded only to show its checksum.
        let newer = self.feature_map.unknown() != Features::default();
        debug_assert!(newer || Self::decode(block, self.minor).as_ref() == Ok(self));
    }

    /// Encodes the superblock of a new member. Bytes behind the role table are 0xff, like unused
    /// roles. The caller writes the block up to [`Super1::encoded_len`], like mdadm does, or as a
    /// whole.
    #[must_use]
    pub fn encode(&self) -> [u8; SUPER_BYTES] {
        let mut block = [0xff; SUPER_BYTES];
        self.encode_into(&mut block);
        block
    }

    /// Number of bytes of the encoded superblock that must be written, in whole logical blocks of
    /// the member.
    ///
    /// Units    `logical_block` in bytes, a power of two up to 4096
    #[must_use]
    pub fn encoded_len(&self, logical_block: u32) -> usize {
        (HEADER_BYTES + 2 * self.roles.len()).next_multiple_of(logical_block.max(1) as usize)
    }

    /// Checksum that [`Super1::encode_into`] stores.
    #[must_use]
    pub fn checksum(&self) -> u32 {
        csum_v1(&self.encode()).expect("encode stores a legal max_dev")
    }

    /// Name of the array as text: up to the first NUL, with all bytes escaped that are not
    /// printable ASCII.
    #[must_use]
    pub fn name(&self) -> String {
        let name = self.set_name.split(|byte| *byte == 0).next().unwrap_or_default();
        name.escape_ascii().to_string()
    }

    /// Role of the member with this number.
    ///
    /// # Errors
    ///
    /// `Value` for a number beyond the table, `Role` for a reserved code.
    pub fn role(&self, dev_number: u32) -> Result<Role, SuperblockError> {
        let code = self.roles.get(dev_number as usize).copied().ok_or_else(|| {
            let expected = format!("less than {}, the length of the role table", self.roles.len());
            SuperblockError::value(at!(dev_number), dev_number, expected)
        })?;
        Role::from_code(code).ok_or(SuperblockError::Role {
            at: role_at(dev_number as usize),
            found: code,
            slots: self.slots(),
        })
    }

    /// Role of this member.
    ///
    /// # Errors
    ///
    /// The errors of [`Super1::role`]; none after [`Super1::parse`].
    pub fn own_role(&self) -> Result<Role, SuperblockError> {
        self.role(self.dev_number)
    }

    /// Changes the role of a member. A number beyond the table extends the table, with unused
    /// entries in between.
    ///
    /// # Panics
    ///
    /// Panics for numbers that do not fit a superblock, [`ROLES_MAX`] and above.
    pub fn set_role(&mut self, dev_number: u32, role: Role) {
        assert!(dev_number < ROLES_MAX);
        let index = dev_number as usize;
        if self.roles.len() <= index {
            self.roles.resize(index + 1, Role::Spare.code());
        }
        if let Some(entry) = self.roles.get_mut(index) {
            *entry = role.code();
        }
    }

    /// Records that this member is rebuilt up to the data sector `recovered`, or completely if
    /// `recovered` is `None`.
    pub const fn set_recovery_offset(&mut self, recovered: Option<Sectors>) {
        match recovered {
            Some(recovered) => {
                self.feature_map.insert(Features::RECOVERY);
                self.recovery_offset_raw = recovered.0;
            }
            None => {
                self.feature_map.remove(Features::RECOVERY);
                self.recovery_offset_raw = 0;
            }
        }
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
        let reshaping = self.feature_map.contains(Features::RESHAPE);
        let before = i64::from(self.raid_disks) - i64::from(self.reshape.delta_disks);
        u32::try_from(before).ok().filter(|_| reshaping)
    }

    /// Offset of the write-intent bitmap from the superblock in sectors; `None` without
    /// [`Features::BITMAP`].
    #[must_use]
    pub fn bitmap_offset(&self) -> Option<i32> {
        let present = self.feature_map.contains(Features::BITMAP);
        present.then(|| i32::from_le_bytes(self.bitmap_offset_raw))
    }

    /// Position of the partial parity log; `None` without [`Features::PPL`] and
    /// [`Features::MULTI_PPL`].
    #[must_use]
    pub fn ppl(&self) -> Option<PplArea> {
        let [offset_low, offset_high, size_low, size_high] = self.bitmap_offset_raw;
        self.feature_map.intersects(Features::PPL.with(Features::MULTI_PPL)).then(|| PplArea {
            offset: i16::from_le_bytes([offset_low, offset_high]),
            size: u16::from_le_bytes([size_low, size_high]),
        })
    }

    /// Number of data sectors that are rebuilt already, with [`Features::RECOVERY`]. `None` means
    /// all of them, if the member has a slot.
    #[must_use]
    pub fn recovery_offset(&self) -> Option<Sectors> {
        let valid = self.feature_map.contains(Features::RECOVERY) && !self.is_journal();
        valid.then_some(Sectors(self.recovery_offset_raw))
    }

    /// Sector of the journal's oldest block that is still needed, from `data_offset`; `None` unless
    /// the member is a journal.
    #[must_use]
    pub fn journal_tail(&self) -> Option<Sectors> {
        self.is_journal().then_some(Sectors(self.recovery_offset_raw))
    }

    /// Sectors of this member that hold data or the journal.
    #[must_use]
    pub fn used_size(&self) -> Sectors {
        if self.level.uses_size() && !self.is_journal() { self.size } else { self.data_size }
    }

    /// Sector at which a resync has to begin; `None` for a clean array. A checkpoint beyond the end
    /// counts as 0.
    #[must_use]
    pub fn dirty_from(&self) -> Option<Sectors> {
        match self.resync_offset {
            ResyncOffset::Clean => None,
            ResyncOffset::At(sector) => {
                let range =
                    if self.level.syncs_array() { self.array_size() } else { Some(self.size) };
                Some(if range.is_some_and(|range| sector <= range) { sector } else { Sectors(0) })
            }
        }
    }

    /// Size of the array in sectors. `None` for linear and RAID0, where every member adds its own
    /// size, and if no size can be computed from the geometry.
    ///
    /// Source   RAID10: each far copy has a section of `1 / far` of the member, in whole chunks;
    ///          the chunks of one section of all members, divided by the number of near copies and
    ///          rounded down, are the array
    #[must_use]
    pub fn array_size(&self) -> Option<Sectors> {
        array_size(self.level, self.layout, self.size, self.chunk, self.raid_disks)
    }

    /// Reasons why this release does not write to the array; first the features, in the order of
    /// their bits.
    #[must_use]
    pub fn refuses_writing(&self) -> Vec<Reason> {
        let mut reasons = self.feature_map.unwritable();
        // Kernels round such a log differently (md-badblocks.md §2), and only write units of one
        // sector.
        if self.feature_map.contains(Features::BADBLOCKS) && self.bblog_shift != 0 {
            let what = "a bad-block log in units other than sectors";
            reasons.push(Reason { name: "bblog_shift", what });
        }
        let follows = self.feature_map.contains(Features::RECOVERY_BITMAP);
        if follows && self.bitmap_offset().is_none() {
            let what = "a recovery that follows a bitmap, without one";
            reasons.push(Reason { name: "RECOVERY_BITMAP", what });
        }
        if self.bitmap_offset() == Some(0) {
            reasons.push(Reason { name: "bitmap_offset", what: "a bitmap without a place" });
        }
        if self.events == u64::MAX {
            reasons.push(Reason { name: "events", what: "an event count that cannot increase" });
        }
        reasons
    }

    fn is_journal(&self) -> bool {
        self.own_role() == Ok(Role::Journal)
    }
}

impl MdTime {
    /// Creates a time of whole seconds since 1970.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self { secs, micros: 0 }
    }

    fn from_raw(raw: u64) -> Self {
        let micros = u32::try_from(raw >> 40).expect("24 bits are left");
        Self { secs: raw & ((1 << 40) - 1), micros }
    }

    /// Encodes the time; seconds beyond 40 bits and microseconds beyond 24 are cut off.
    fn to_raw(self) -> u64 {
        u64::from(self.micros) << 40 | self.secs & ((1 << 40) - 1)
    }
}

impl ResyncOffset {
    /// Whether the array was stopped cleanly.
    #[must_use]
    pub const fn is_clean(self) -> bool {
        matches!(self, Self::Clean)
    }

    const fn from_raw(raw: u64) -> Self {
        if raw == u64::MAX { Self::Clean } else { Self::At(Sectors(raw)) }
    }

    const fn to_raw(self) -> u64 {
        match self {
            Self::Clean => u64::MAX,
            Self::At(sector) => sector.0,
        }
    }
}

impl Role {
    /// Highest slot that a role can name.
    pub const SLOT_MAX: u16 = 0xfeff;

    /// Role of an on-disk code; `None` for reserved codes, 0xff00 to 0xfffc.
    #[must_use]
    pub const fn from_code(code: u16) -> Option<Self> {
        match code {
            0..=Self::SLOT_MAX => Some(Self::Active(Slot(code))),
            0xfffd => Some(Self::Journal),
            0xfffe => Some(Self::Faulty),
            0xffff => Some(Self::Spare),
            _ => None,
        }
    }

    /// On-disk code of the role.
    #[must_use]
    pub const fn code(self) -> u16 {
        match self {
            Self::Active(slot) => slot.0,
            Self::Faulty => 0xfffe,
            Self::Journal => 0xfffd,
            Self::Spare => 0xffff,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Active(slot) => write!(f, "slot {}", slot.0),
            Self::Faulty => f.pad("faulty"),
            Self::Journal => f.pad("journal"),
            Self::Spare => f.pad("spare"),
        }
    }
}

/// Checksum for `sb_csum` of a superblock; `None` when the block is shorter than its `max_dev`
/// requires, or `max_dev` is more than [`ROLES_MAX`].
///
/// Shape    the first `256 + 2 * max_dev` bytes are summed as little-endian words of 4 bytes; two
///          remaining bytes count as a 16-bit number, and the stored checksum counts as 0
/// Source   md: 64-bit sum; its halves are added once, and the carry of that addition is lost
#[must_use]
pub fn csum_v1(block: &[u8]) -> Option<u32> {
    let (raw, _) = Raw::ref_from_prefix(block).ok()?;
    let max_dev = raw.max_dev.get();
    if max_dev > ROLES_MAX {
        return None;
    }
    let summed = block.get(..HEADER_BYTES + 2 * max_dev as usize)?;
    let (words, rest) = summed.as_chunks();
    let words: u64 = words.iter().map(|word| u64::from(u32::from_le_bytes(*word))).sum();
    let rest = rest.iter().rev().fold(0, |high, low| high << 8 | u64::from(*low));
    let sum = words + rest - u64::from(raw.sb_csum.get());
    let [low, high] = [sum & u64::from(u32::MAX), sum >> 32]
        .map(|half| u32::try_from(half).expect("2048 words of 32 bits sum to less than 44 bits"));
    Some(low.wrapping_add(high))
}

/// Sectors of an array with `size` sectors of data on each member; `None` for linear and RAID0, and
/// if no size can be computed from the geometry.
pub(crate) fn array_size(
    level: Level,
    layout: u32,
    size: Sectors,
    chunk: Sectors,
    raid_disks: u32,
) -> Option<Sectors> {
    let members = u64::from(raid_disks);
    let chunks = match level.row().redundancy {
        Redundancy::None => return None,
        Redundancy::Mirror => return Some(size),
        Redundancy::Parity(count) => {
            let data = members.checked_sub(u64::from(count))?;
            size.0.checked_div(chunk.0)?.checked_mul(data)?
        }
        Redundancy::Copies => {
            let parts = crate::layout_id::Raid10::from_code(layout)?;
            let rows = size.0.checked_div(chunk.0)?.checked_div(u64::from(parts.far))?;
            rows.checked_mul(members)?.checked_div(u64::from(parts.near))?
        }
    };
    chunks.checked_mul(chunk.0).map(Sectors)
}

/// Number of sectors that `bytes` take, rounded up.
const fn sectors_of(bytes: usize) -> u64 {
    (bytes as u64).div_ceil(SECTOR_BYTES)
}

const fn role_at(dev_number: usize) -> At {
    At { structure: "superblock", field: "dev_roles", byte: HEADER_BYTES + 2 * dev_number }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_fold_once_and_skip_themselves() {
        // Words 0xa92b4efc + 1 + 2 (max_dev) + 0xffffffff = 0x1_a92b4efe.
        let mut block = [0; SUPER_BYTES];
        block[..8].copy_from_slice(&[0xfc, 0x4e, 0x2b, 0xa9, 1, 0, 0, 0]);
        block[220] = 2;
        block[256..260].fill(0xff);
        assert_eq!(csum_v1(&block), Some(0xa92b_4eff));
        block[216..220].fill(0x77); // the stored sum
        block[260..].fill(0x77); // past the table
        assert_eq!(csum_v1(&block), Some(0xa92b_4eff));
        block[220] = 3; // one more word of 2 bytes, 0x7777
        assert_eq!(csum_v1(&block), Some(0xa92b_4eff + 1 + 0x7777));
        assert_eq!(csum_v1(&block[..261]), None);
        assert_eq!(csum_v1(&block[..255]), None);
        block[220..224].copy_from_slice(&1921_u32.to_le_bytes());
        assert_eq!(csum_v1(&block), None);
    }

    #[test]
    fn packed_fields_are_read_back() {
        for raw in [0, 1, (1 << 40) - 1, 1 << 40, u64::MAX, 0x1234_5678_9abc_def0] {
            assert_eq!(MdTime::from_raw(raw).to_raw(), raw);
            assert_eq!(ResyncOffset::from_raw(raw).to_raw(), raw);
        }
        for code in 0..=u16::MAX {
            let role = Role::from_code(code);
            assert_eq!(role.is_none(), (0xff00..=0xfffc).contains(&code));
            assert!(role.is_none_or(|role| role.code() == code));
        }
    }
}
