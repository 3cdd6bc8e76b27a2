//! What does a member say in the older format: the version 0.90 superblock?
//!
//! 1024 words of 32 bits, in the byte order of the machine that wrote them, at the start of the last
//! whole 64 KiB of the member. Data comes first, from sector 0; behind the superblock there is room
//! for a bitmap.
//!
//! ```text
//! 0                                   (size & !127) - 128        +8            +128      size
//! | data ...                         | superblock               | bitmap      | unused |
//! ```
//!
//! A member is a row of a table of 27: its number, its slot, and bits that say whether it is in use.
//! There is no identity of a member, no offset of data, no log of bad blocks, and no place to
//! remember how far a member is rebuilt: it is rebuilt from the start when that is interrupted.
//!
//! Source: format facts as read from Linux 6.1 and 6.12 and mdadm 4.2, checked with superblocks that
//! Linux 6.12 wrote (`fixtures/md-meta`).

use crate::super1::{Area, array_size, check_chunk};
use crate::{
    At, Features, Level, MdTime, Reason, ResyncOffset, Role, SUPER_BYTES, SuperblockError, Uuid,
    layout_id,
};
use std::fmt;
use weft_units::{SECTOR_BYTES, SectorRange, Sectors, Slot};

/// Rows of the table of members, and so the most that an array can have.
pub const DISKS_090_MAX: u32 = 27;

/// Sectors of the member that belong to the superblock and its bitmap.
pub const RESERVED_090: Sectors = Sectors(128);

/// Largest part of a member that can be used, less than 4 TiB: `size` counts KiB in 32 bits.
pub const SIZE_090_MAX: Sectors = Sectors(u32::MAX as u64 * 2);

/// How the writing machine stored words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// Highest byte first.
    Big,
    /// Lowest byte first.
    #[default]
    Little,
}

/// A row of the table of members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disk090 {
    /// Its own position in the table.
    pub number: u32,
    /// Device number when the row was written.
    pub major: u32,
    /// Device number when the row was written.
    pub minor: u32,
    /// Slot, if [`Disk090::role`] says that it has one.
    pub raid_disk: u32,
    /// Bits: see the constants.
    pub state: u32,
}

/// What a reshape does; valid with minor version 91.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reshape090 {
    /// Array sector that it has reached. Byte 176.
    pub position: u64,
    /// Level afterwards, as a code. Byte 184.
    pub new_level: u32,
    /// `raid_disks`, which is the number afterwards, less the number before. Byte 188.
    pub delta_disks: i32,
    /// Layout afterwards. Byte 192.
    pub new_layout: u32,
    /// Chunk afterwards, in bytes. Byte 196.
    pub new_chunk_bytes: u32,
}

/// Every field of a 0.90 superblock, as values.
///
/// Source   byte offsets and meanings: md's on-disk structure; each field names its own byte
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Super090 {
    /// Byte order of all of it.
    pub order: ByteOrder,
    /// Where it is. Not stored; implied by the member's size.
    pub super_offset: Sectors,
    /// 90, or 91 during a reshape. Byte 8.
    pub minor_version: u32,
    /// Byte 12.
    pub patch_version: u32,
    /// Byte 16; ignored by all.
    pub gvalid_words: u32,
    /// The array, in the order in which it is printed: each word with its highest byte first,
    /// whatever `order` is. Bytes 20, 52, 56, 60.
    pub set_uuid: Uuid,
    /// Seconds. Byte 24.
    pub ctime: u32,
    /// Level. Byte 28.
    pub level: Level,
    /// KiB of each member that hold data; without meaning for linear and RAID0. Byte 32.
    pub size_kib: u32,
    /// Members there are. Byte 36.
    pub nr_disks: u32,
    /// Number of slots. Byte 40.
    pub raid_disks: u32,
    /// Number of the md device to prefer. Byte 44.
    pub md_minor: u32,
    /// 0. Byte 48.
    pub not_persistent: u32,
    /// Seconds; the last write. Byte 128.
    pub utime: u32,
    /// Bits: [`Super090::CLEAN`] and others. Byte 132.
    pub state: u32,
    /// Members in use. Byte 136.
    pub active_disks: u32,
    /// Members that have not failed. Byte 140.
    pub working_disks: u32,
    /// Members that have, and slots without one. Byte 144.
    pub failed_disks: u32,
    /// Members without a slot. Byte 148.
    pub spare_disks: u32,
    /// How often the array changed. Byte 156.
    pub events: u64,
    /// `events` when `recovery_cp` was right. Byte 164.
    pub cp_events: u64,
    /// Sectors of a member below which resync was done. Byte 172.
    pub recovery_cp: u32,
    /// Reshape. Bytes 176 to 199.
    pub reshape: Reshape090,
    /// Layout within the level. Byte 256.
    pub layout: u32,
    /// Chunk in bytes. Byte 260.
    pub chunk_bytes: u32,
    /// Byte 264; obsolete.
    pub root_pv: u32,
    /// Byte 268; obsolete.
    pub root_block: u32,
    /// All members. Byte 512, 128 bytes each.
    pub disks: [Disk090; DISKS_090_MAX as usize],
    /// The row of this one, once more. Byte 3968.
    pub this_disk: Disk090,
}

const MAGIC: u32 = 0xa92b_4efc;
const WORDS: usize = SUPER_BYTES / 4;
const STRUCTURE: &str = "0.90 superblock";

/// A field of one word.
#[derive(Clone, Copy)]
struct Word(usize, &'static str);

impl Word {
    const MAGIC: Self = Self(0, "magic");
    const MAJOR: Self = Self(1, "major_version");
    const MINOR: Self = Self(2, "minor_version");
    const PATCH: Self = Self(3, "patch_version");
    const GVALID: Self = Self(4, "gvalid_words");
    const UUID: [Self; 4] =
        [Self(5, "set_uuid0"), Self(13, "set_uuid1"), Self(14, "set_uuid2"), Self(15, "set_uuid3")];
    const CTIME: Self = Self(6, "ctime");
    const LEVEL: Self = Self(7, "level");
    const SIZE: Self = Self(8, "size");
    const NR_DISKS: Self = Self(9, "nr_disks");
    const RAID_DISKS: Self = Self(10, "raid_disks");
    const MD_MINOR: Self = Self(11, "md_minor");
    const NOT_PERSISTENT: Self = Self(12, "not_persistent");
    const UTIME: Self = Self(32, "utime");
    const STATE: Self = Self(33, "state");
    const ACTIVE_DISKS: Self = Self(34, "active_disks");
    const WORKING_DISKS: Self = Self(35, "working_disks");
    const FAILED_DISKS: Self = Self(36, "failed_disks");
    const SPARE_DISKS: Self = Self(37, "spare_disks");
    const SB_CSUM: Self = Self(38, "sb_csum");
    const EVENTS: Self = Self(39, "events");
    const CP_EVENTS: Self = Self(41, "cp_events");
    const RECOVERY_CP: Self = Self(43, "recovery_cp");
    const RESHAPE_POSITION: Self = Self(44, "reshape_position");
    const NEW_LEVEL: Self = Self(46, "new_level");
    const DELTA_DISKS: Self = Self(47, "delta_disks");
    const NEW_LAYOUT: Self = Self(48, "new_layout");
    const NEW_CHUNK: Self = Self(49, "new_chunk");
    const LAYOUT: Self = Self(64, "layout");
    const CHUNK_SIZE: Self = Self(65, "chunk_size");
    const ROOT_PV: Self = Self(66, "root_pv");
    const ROOT_BLOCK: Self = Self(67, "root_block");
    const THIS_DISK: Self = Self(992, "this_disk");

    const fn at(self) -> At {
        At { structure: STRUCTURE, field: self.1, byte: self.0 * 4 }
    }

    /// The word `index` of the row of member `number`.
    const fn disk(number: usize, index: usize, name: &'static str) -> Self {
        Self(128 + 32 * number + index, name)
    }
}

/// All words, as numbers.
struct Words {
    order: ByteOrder,
    words: Vec<u32>,
}

impl Words {
    fn read(block: &[u8], order: ByteOrder) -> Self {
        let words = block.chunks_exact(4).take(WORDS);
        let number = |bytes: &[u8]| order.word(bytes.first_chunk().copied().unwrap_or_default());
        Self { order, words: words.map(number).collect() }
    }

    fn get(&self, word: Word) -> u32 {
        self.words.get(word.0).copied().unwrap_or_default()
    }

    /// Two words that are one number, in the order of the machine.
    fn pair(&self, low: Word) -> u64 {
        let second = self.get(Word(low.0 + 1, low.1));
        let (high, low) = match self.order {
            ByteOrder::Big => (self.get(low), second),
            ByteOrder::Little => (second, self.get(low)),
        };
        u64::from(high) << 32 | u64::from(low)
    }

    fn set(&mut self, word: Word, value: u32) {
        *self.words.get_mut(word.0).expect("every field is one of 1024 words") = value;
    }

    fn set_pair(&mut self, word: Word, value: u64) {
        let [low, high] = [value & u64::from(u32::MAX), value >> 32]
            .map(|half| u32::try_from(half).expect("half of 64 bits"));
        let (first, second) = match self.order {
            ByteOrder::Big => (high, low),
            ByteOrder::Little => (low, high),
        };
        self.set(word, first);
        self.set(Word(word.0 + 1, word.1), second);
    }

    fn disk(&self, start: usize) -> Disk090 {
        let field = |index| self.get(Word(start + index, "disk"));
        Disk090 {
            number: field(0),
            major: field(1),
            minor: field(2),
            raid_disk: field(3),
            state: field(4),
        }
    }

    fn set_disk(&mut self, start: usize, disk: &Disk090) {
        let fields = [disk.number, disk.major, disk.minor, disk.raid_disk, disk.state];
        for (index, value) in fields.into_iter().enumerate() {
            self.set(Word(start + index, "disk"), value);
        }
    }

    /// The sum of all words but its own.
    fn sum(&self) -> u32 {
        let sum: u64 = self.words.iter().map(|word| u64::from(*word)).sum::<u64>()
            - u64::from(self.get(Word::SB_CSUM));
        let [low, high] = [sum & u64::from(u32::MAX), sum >> 32]
            .map(|half| u32::try_from(half).expect("1024 words of 32 bits sum to 42 bits"));
        low.wrapping_add(high)
    }

    fn write(&self, block: &mut [u8; SUPER_BYTES]) {
        for (bytes, word) in block.chunks_exact_mut(4).zip(&self.words) {
            bytes.copy_from_slice(&self.order.bytes(*word));
        }
    }
}

impl ByteOrder {
    const fn word(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Big => u32::from_be_bytes(bytes),
            Self::Little => u32::from_le_bytes(bytes),
        }
    }

    const fn bytes(self, word: u32) -> [u8; 4] {
        match self {
            Self::Big => word.to_be_bytes(),
            Self::Little => word.to_le_bytes(),
        }
    }
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
    /// Failed, or, with [`Disk090::REMOVED`], an empty slot.
    pub const FAULTY: u32 = 1 << 0;
    /// Has a slot.
    pub const ACTIVE: u32 = 1 << 1;
    /// Has all data of its slot.
    pub const SYNC: u32 = 1 << 2;
    /// Not there any more.
    pub const REMOVED: u32 = 1 << 3;
    /// Read only when no other has the data.
    pub const WRITE_MOSTLY: u32 = 1 << 9;
    /// Gives up quickly.
    pub const FAIL_FAST: u32 = 1 << 10;

    /// What the member does.
    ///
    /// Source   the kernel looks at "faulty" and then at "sync"; a member that is active but not in
    ///          sync is a spare to it, as are members of a reshape, which weft does not continue
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

    /// `active sync`, as mdadm prints it.
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

    /// Sector of the superblock on a member of this size; `None` when that is too small.
    ///
    /// Source   the start of the last whole, aligned 64 KiB
    #[must_use]
    pub const fn position(member_size: Sectors) -> Option<Sectors> {
        match member_size.round_down(RESERVED_090).0.checked_sub(RESERVED_090.0) {
            Some(sector) => Some(Sectors(sector)),
            None => None,
        }
    }

    /// Reads a superblock and checks all that can be checked on one member.
    ///
    /// Shape    `bytes` are the 4096 at [`Super090::position`] of the member; more are ignored
    ///
    /// # Errors
    ///
    /// Those of [`Super090::decode`] and [`Super090::validate`].
    pub fn parse(bytes: &[u8], member_size: Sectors) -> Result<Self, SuperblockError> {
        let parsed = Self::decode(bytes, member_size)?;
        parsed.validate()?;
        Ok(parsed)
    }

    /// Reads a superblock in either byte order and checks only that it is one, undamaged and of a
    /// known format: magic, version, sum, level.
    ///
    /// # Errors
    ///
    /// [`SuperblockError`] naming the first of those that is wrong.
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
        // The kernel compares no more: Alpha folded the sum to 16 bits.
        if folded(stored) != folded(computed) {
            return Err(SuperblockError::Checksum { at: Word::SB_CSUM.at(), stored, computed });
        }
        let code = words.get(Word::LEVEL).cast_signed();
        let level = Level::from_code(code).ok_or_else(|| {
            SuperblockError::value(Word::LEVEL.at(), code, "-1 (linear), 0, 1, 4, 5, 6 or 10")
        })?;
        Ok(Self::from_words(&words, super_offset, level))
    }

    /// Writes every field into `block` and computes the sum last, in full.
    ///
    /// Shape    `block` is what was read, or zeros; reserved words are left as they were
    pub fn encode_into(&self, block: &mut [u8; SUPER_BYTES]) {
        let mut words = Words::read(block, self.order);
        self.to_words(&mut words);
        words.set(Word::SB_CSUM, words.sum());
        words.write(block);
    }

    /// The superblock with zeros in reserved words.
    #[must_use]
    pub fn encode(&self) -> [u8; SUPER_BYTES] {
        let mut block = [0; SUPER_BYTES];
        self.encode_into(&mut block);
        block
    }

    /// The sum that [`Super090::encode`] stores. The same for a block with reserved words in use is
    /// [`csum_090`].
    #[must_use]
    pub fn checksum(&self) -> u32 {
        Words::read(&self.encode(), self.order).get(Word::SB_CSUM)
    }

    /// The superblock of another member of the same array: all but `this_disk` is equal.
    #[must_use]
    pub fn of_member(&self, number: u32) -> Option<Self> {
        let this_disk = *self.disks.get(number as usize)?;
        Some(Self { this_disk, ..self.clone() })
    }

    /// Role of the member with this number. A number past the table, or of an unused row, has none.
    ///
    /// # Errors
    ///
    /// `Value` for a number past the table, or a slot that the array does not have.
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

    /// Role of this member: that of its row in the table, which the kernel believes, not of the
    /// copy in `this_disk`.
    ///
    /// # Errors
    ///
    /// Those of [`Super090::role`]; none after [`Super090::parse`].
    pub fn own_role(&self) -> Result<Role, SuperblockError> {
        self.role(self.this_disk.number)
    }

    /// Gives a member another role and counts members anew.
    ///
    /// # Panics
    ///
    /// For numbers past the table, and for a journal, which there is not in this version.
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

    /// How many slots roles can name: `raid_disks`, or the number before a reshape that shrinks.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.raid_disks.max(self.raid_disks_before().unwrap_or(0))
    }

    /// `raid_disks` before the reshape; `None` without one, or when that is no number.
    #[must_use]
    pub fn raid_disks_before(&self) -> Option<u32> {
        let before = i64::from(self.raid_disks) - i64::from(self.reshape.delta_disks);
        u32::try_from(before).ok().filter(|_| self.is_reshaping())
    }

    /// Whether a reshape is under way.
    #[must_use]
    pub const fn is_reshaping(&self) -> bool {
        self.minor_version == 91
    }

    /// The features of version 1 that this superblock has by other means.
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

    /// Chunk in sectors.
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

    /// Sectors of the array. `None` for linear and RAID0, and for geometry that
    /// [`Super090::validate`] refuses.
    #[must_use]
    pub fn array_size(&self) -> Option<Sectors> {
        array_size(self.level, self.layout, self.size(), self.chunk(), self.raid_disks)
    }

    /// How far the array is in sync.
    ///
    /// Source   the checkpoint counts only if it was stored with the same event count
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

    /// Stores how far the array is in sync, with the present event count. A checkpoint that does
    /// not fit 32 bits is stored as 0.
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

    /// Where resync has to begin, `None` for a clean array. A checkpoint past the end is not to be
    /// believed, and counts as 0.
    #[must_use]
    pub fn dirty_from(&self) -> Option<Sectors> {
        let ResyncOffset::At(sector) = self.resync_offset() else { return None };
        let range = if self.level == Level::Raid10 { self.array_size() } else { Some(self.size()) };
        Some(if range.is_some_and(|range| sector <= range) { sector } else { Sectors::ZERO })
    }

    /// Where the bitmap is, if there is one, with all the room it can have.
    #[must_use]
    pub fn bitmap_room(&self) -> Option<SectorRange> {
        let present = self.state & Self::BITMAP_PRESENT != 0;
        present.then(|| SectorRange::new(self.super_offset.0 + 8, RESERVED_090.0 - 8))
    }

    /// The uuid that a bitmap of this array carries: the words as they are stored.
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

    /// Whether a machine of another kind wrote it: Linux here would not know it.
    #[must_use]
    pub fn is_foreign(&self) -> bool {
        (self.order == ByteOrder::Big) != cfg!(target_endian = "big")
    }

    /// What keeps this release from writing to the array.
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

    /// What is odd but has an accepted meaning, as messages.
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

    /// Checks all that can be checked on one member.
    ///
    /// # Errors
    ///
    /// [`SuperblockError`] with the first field that is wrong.
    pub fn validate(&self) -> Result<(), SuperblockError> {
        if self.not_persistent != 0 {
            let at = Word::NOT_PERSISTENT.at();
            return Err(SuperblockError::value(at, self.not_persistent, "0"));
        }
        self.check_level()?;
        self.check_sizes()?;
        self.check_disks()?;
        self.check_reshape()
    }

    fn check_level(&self) -> Result<(), SuperblockError> {
        let (level, most) = (self.level, DISKS_090_MAX);
        let at = Word::RAID_DISKS.at();
        if !(level.raid_disks_min()..=most).contains(&self.raid_disks) {
            return Err(SuperblockError::raid_disks(at, self.raid_disks, level, most));
        }
        if self.is_reshaping()
            && !self.raid_disks_before().is_some_and(|count| (1..=most).contains(&count))
        {
            let expected = format!("{} - delta_disks in 1..={most}", self.raid_disks);
            let at = Word::DELTA_DISKS.at();
            return Err(SuperblockError::value(at, self.reshape.delta_disks, expected));
        }
        // RAID0 had no layouts when this format was current: the field says nothing.
        if level != Level::Raid0 && !layout_id::is_legal(level, self.layout, self.raid_disks) {
            let expected = format!("a layout of {level} with {} members", self.raid_disks);
            let found = format!("{:#x}", self.layout);
            return Err(SuperblockError::value(Word::LAYOUT.at(), found, expected));
        }
        self.check_chunk_bytes(Word::CHUNK_SIZE, level, self.chunk_bytes)
    }

    fn check_chunk_bytes(
        &self,
        word: Word,
        level: Level,
        bytes: u32,
    ) -> Result<(), SuperblockError> {
        if level.is_striped() && !u64::from(bytes).is_multiple_of(SECTOR_BYTES) {
            return Err(SuperblockError::value(word.at(), bytes, "a multiple of 512"));
        }
        check_chunk(word.at(), level, Sectors(u64::from(bytes) / SECTOR_BYTES), 0)
    }

    fn check_sizes(&self) -> Result<(), SuperblockError> {
        let at = Word::SIZE.at();
        if self.level.uses_size() && self.size_kib == 0 {
            return Err(SuperblockError::value(at, 0, format!("more for {}", self.level)));
        }
        let data = Area::new(at, "data", 0, self.used_size().0.into());
        let reserved = i128::from(self.super_offset.0);
        data.clear_of(&Area::new(at, "the superblock", reserved, RESERVED_090.0.into()))?;
        let (field, cut) = if self.level.uses_size() {
            ("size", self.size())
        } else {
            ("the superblock's sector", self.super_offset)
        };
        // Linear rounds by its chunk, so that a member smaller than that has no room for data.
        if self.level != Level::Raid1 && self.chunk() > cut || cut == Sectors::ZERO {
            let at = Word::CHUNK_SIZE.at();
            let expected = format!("at most {field}, {} bytes", cut.bytes().0);
            return Err(SuperblockError::value(at, self.chunk_bytes, expected));
        }
        if self.level.uses_size() && self.array_size().is_none() {
            let sum = "size * raid_disks";
            return Err(SuperblockError::Overflow { at, found: self.size_kib.into(), sum });
        }
        Ok(())
    }

    fn check_disks(&self) -> Result<(), SuperblockError> {
        let own = self.this_disk.number;
        let Some(row) = self.disks.get(own as usize) else {
            let expected = format!("a number below {DISKS_090_MAX}");
            return Err(SuperblockError::value(Word::THIS_DISK.at(), own, expected));
        };
        // Device numbers are those of the machine that wrote the row: they are not compared.
        let told = |disk: &Disk090| (disk.number, disk.raid_disk, disk.state);
        if told(&self.this_disk) != told(row) {
            let text = |disk: &Disk090| {
                let Disk090 { number, raid_disk, state, .. } = disk;
                format!("number {number}, slot {raid_disk}, state {state:#x}")
            };
            let expected = format!("{}, as in row {own} of the table", text(row));
            return Err(SuperblockError::value(
                Word::THIS_DISK.at(),
                text(&self.this_disk),
                expected,
            ));
        }
        let mut filled = [false; DISKS_090_MAX as usize];
        for (number, _) in (0_u32..).zip(&self.disks) {
            let Role::Active(slot) = self.role(number)? else { continue };
            let seen = filled.get_mut(slot.index());
            if seen.is_none_or(|seen| std::mem::replace(seen, true)) {
                let at = Word::disk(number as usize, 3, "disks.raid_disk").at();
                let expected = "each slot once, for this version has no replacements";
                let found = format!("slot {} for the second time", slot.0);
                return Err(SuperblockError::value(at, found, expected));
            }
        }
        Ok(())
    }

    fn check_reshape(&self) -> Result<(), SuperblockError> {
        if !self.is_reshaping() {
            return Ok(());
        }
        let reshape = &self.reshape;
        let code = reshape.new_level.cast_signed();
        let Some(level) = Level::from_code(code) else {
            let expected = "-1 (linear), 0, 1, 4, 5, 6 or 10";
            return Err(SuperblockError::value(Word::NEW_LEVEL.at(), code, expected));
        };
        self.check_chunk_bytes(Word::NEW_CHUNK, level, reshape.new_chunk_bytes)?;
        // All ones: nothing is being reshaped, though the version says so.
        let most = self.used_size().0.saturating_mul(self.slots().into());
        if reshape.position > most && reshape.position != u64::MAX {
            let expected = format!("at most {most}, the size of all members");
            let at = Word::RESHAPE_POSITION.at();
            return Err(SuperblockError::value(at, reshape.position, expected));
        }
        Ok(())
    }

    /// Counts as the kernel does: a slot without a member has failed.
    pub(crate) fn recount(&mut self) {
        let (mut active, mut failed, mut spare, mut present) = (0, 0, 0, 0);
        for (number, disk) in (0_u32..).zip(&self.disks) {
            if disk.is_empty_slot() {
                failed += 1;
                continue;
            }
            // A row of zeros is unused, unless it is the first.
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

    /// Every line that `mdadm --examine` prints for this superblock before the table of members, as
    /// name and value.
    ///
    /// Works for what [`Super090::decode`] returns too. Print a line as `{name:>15} : {value}`. Two
    /// things differ from mdadm 4.2: the size of the array is what the kernel makes of it, in whole
    /// chunks, and sizes of 2 TiB and more are not printed as negative.
    #[must_use]
    pub fn describe(&self) -> Vec<(String, String)> {
        let mut lines = Vec::with_capacity(32);
        let mut line = |name: &str, value: String| lines.push((name.to_owned(), value));
        let seconds = |time: u32| crate::examine::date(MdTime::from_secs(time.into()));
        line("Magic", format!("{MAGIC:08x}"));
        line("Version", format!("0.{:02}.{:02}", self.minor_version, self.patch_version));
        line("UUID", self.set_uuid.to_string());
        if self.not_persistent != 0 {
            line("Eedk", "not persistent".to_owned());
        }
        line("Creation Time", seconds(self.ctime));
        line("Raid Level", self.level.to_string());
        if self.level.uses_size() {
            let kib = |size: Sectors| format!("{}{}", size.0 / 2, crate::examine::human(size));
            line("Used Dev Size", kib(self.size()));
            if let Some(size) = self.array_size() {
                line("Array Size", kib(size));
            }
        }
        line("Raid Devices", self.raid_disks.to_string());
        line("Total Devices", self.nr_disks.to_string());
        line("Preferred Minor", self.md_minor.to_string());
        self.describe_reshape(&mut line);
        line("Update Time", seconds(self.utime));
        let clean = self.state & Self::CLEAN != 0;
        line("State", if clean { "clean" } else { "active" }.to_owned());
        if self.state & Self::BITMAP_PRESENT != 0 {
            line("Internal Bitmap", "present".to_owned());
        }
        line("Active Devices", self.active_disks.to_string());
        line("Working Devices", self.working_disks.to_string());
        line("Failed Devices", self.failed_disks.to_string());
        line("Spare Devices", self.spare_disks.to_string());
        line("Checksum", format!("{:x} - correct", self.checksum()));
        line("Events", self.events.to_string());
        if matches!(self.level, Level::Raid5 | Level::Raid6 | Level::Raid10) {
            let layout = layout_id::name(self.level, self.layout);
            line("Layout", layout.unwrap_or_else(|| "-unknown-".to_owned()));
        }
        match self.level {
            Level::Raid1 => {}
            Level::Linear => line("Rounding", format!("{}K", self.chunk_bytes >> 10)),
            _ => line("Chunk Size", format!("{}K", self.chunk_bytes >> 10)),
        }
        lines
    }

    fn describe_reshape(&self, line: &mut impl FnMut(&str, String)) {
        let (reshape, now) = (&self.reshape, self.raid_disks);
        if !self.is_reshaping() || reshape.position == u64::MAX {
            return;
        }
        let position = Sectors(reshape.position);
        line("Reshape pos'n", format!("{}{}", position.0 / 2, crate::examine::human(position)));
        if reshape.delta_disks != 0 {
            let before = i64::from(now) - i64::from(reshape.delta_disks);
            line("Delta Devices", format!("{} ({before}->{now})", reshape.delta_disks));
        }
        let code = reshape.new_level.cast_signed();
        let level = Level::from_code(code);
        if level != Some(self.level) {
            let name = level.map_or("-unknown-".to_owned(), |level| level.to_string());
            line("New Level", name);
        }
        if reshape.new_layout != self.layout {
            let name = layout_id::name(self.level, reshape.new_layout);
            let code = reshape.new_layout;
            match self.level {
                Level::Raid5 | Level::Raid6 => {
                    line("New Layout", name.unwrap_or_else(|| "-unknown-".to_owned()));
                }
                Level::Raid10 => {
                    let kind = if code & 0x1_0000 != 0 { "offset" } else { "far" };
                    line("New Layout", format!("near={}, {kind}={}", code & 255, code >> 8 & 255));
                }
                Level::Linear | Level::Raid0 | Level::Raid1 | Level::Raid4 => {}
            }
        }
        if reshape.new_chunk_bytes != self.chunk_bytes {
            line("New Chunksize", reshape.new_chunk_bytes.to_string());
        }
    }

    /// The table of members as `mdadm --examine` prints it, without names of devices: numbers of
    /// another machine name nothing here.
    #[must_use]
    pub fn describe_disks(&self) -> Vec<String> {
        let row = |label: &str, disk: &Disk090| {
            let Disk090 { number, major, minor, raid_disk, .. } = disk;
            let raid_disk = raid_disk.cast_signed();
            let states = disk.states();
            format!(
                "{label:>4} {number:>5}   {major:>5}    {minor:>5}    {raid_disk:>5}     {states}"
            )
        };
        let shown = self.slots().saturating_add(self.spare_disks) as usize;
        let mut lines = vec!["      Number   Major   Minor   RaidDevice State".to_owned()];
        lines.push(row("this", &self.this_disk));
        for (number, disk) in self.disks.iter().enumerate().take(shown) {
            lines.push(row(&number.to_string(), disk));
        }
        lines
    }

    fn from_words(words: &Words, super_offset: Sectors, level: Level) -> Self {
        let mut uuid = [0; 16];
        for (bytes, word) in uuid.chunks_exact_mut(4).zip(Word::UUID) {
            bytes.copy_from_slice(&words.get(word).to_be_bytes());
        }
        let mut disks = [Disk090::default(); DISKS_090_MAX as usize];
        for (number, disk) in disks.iter_mut().enumerate() {
            *disk = words.disk(Word::disk(number, 0, "disks").0);
        }
        Self {
            order: words.order,
            super_offset,
            minor_version: words.get(Word::MINOR),
            patch_version: words.get(Word::PATCH),
            gvalid_words: words.get(Word::GVALID),
            set_uuid: Uuid(uuid),
            ctime: words.get(Word::CTIME),
            level,
            size_kib: words.get(Word::SIZE),
            nr_disks: words.get(Word::NR_DISKS),
            raid_disks: words.get(Word::RAID_DISKS),
            md_minor: words.get(Word::MD_MINOR),
            not_persistent: words.get(Word::NOT_PERSISTENT),
            utime: words.get(Word::UTIME),
            state: words.get(Word::STATE),
            active_disks: words.get(Word::ACTIVE_DISKS),
            working_disks: words.get(Word::WORKING_DISKS),
            failed_disks: words.get(Word::FAILED_DISKS),
            spare_disks: words.get(Word::SPARE_DISKS),
            events: words.pair(Word::EVENTS),
            cp_events: words.pair(Word::CP_EVENTS),
            recovery_cp: words.get(Word::RECOVERY_CP),
            reshape: Reshape090 {
                position: words.pair(Word::RESHAPE_POSITION),
                new_level: words.get(Word::NEW_LEVEL),
                delta_disks: words.get(Word::DELTA_DISKS).cast_signed(),
                new_layout: words.get(Word::NEW_LAYOUT),
                new_chunk_bytes: words.get(Word::NEW_CHUNK),
            },
            layout: words.get(Word::LAYOUT),
            chunk_bytes: words.get(Word::CHUNK_SIZE),
            root_pv: words.get(Word::ROOT_PV),
            root_block: words.get(Word::ROOT_BLOCK),
            disks,
            this_disk: words.disk(Word::THIS_DISK.0),
        }
    }

    fn to_words(&self, words: &mut Words) {
        for (bytes, word) in self.set_uuid.0.chunks_exact(4).zip(Word::UUID) {
            let bytes = bytes.first_chunk().copied().unwrap_or_default();
            words.set(word, u32::from_be_bytes(bytes));
        }
        for (word, value) in [
            (Word::MAGIC, MAGIC),
            (Word::MAJOR, 0),
            (Word::MINOR, self.minor_version),
            (Word::PATCH, self.patch_version),
            (Word::GVALID, self.gvalid_words),
            (Word::CTIME, self.ctime),
            (Word::LEVEL, self.level.code().cast_unsigned()),
            (Word::SIZE, self.size_kib),
            (Word::NR_DISKS, self.nr_disks),
            (Word::RAID_DISKS, self.raid_disks),
            (Word::MD_MINOR, self.md_minor),
            (Word::NOT_PERSISTENT, self.not_persistent),
            (Word::UTIME, self.utime),
            (Word::STATE, self.state),
            (Word::ACTIVE_DISKS, self.active_disks),
            (Word::WORKING_DISKS, self.working_disks),
            (Word::FAILED_DISKS, self.failed_disks),
            (Word::SPARE_DISKS, self.spare_disks),
            (Word::RECOVERY_CP, self.recovery_cp),
            (Word::NEW_LEVEL, self.reshape.new_level),
            (Word::DELTA_DISKS, self.reshape.delta_disks.cast_unsigned()),
            (Word::NEW_LAYOUT, self.reshape.new_layout),
            (Word::NEW_CHUNK, self.reshape.new_chunk_bytes),
            (Word::LAYOUT, self.layout),
            (Word::CHUNK_SIZE, self.chunk_bytes),
            (Word::ROOT_PV, self.root_pv),
            (Word::ROOT_BLOCK, self.root_block),
        ] {
            words.set(word, value);
        }
        words.set_pair(Word::EVENTS, self.events);
        words.set_pair(Word::CP_EVENTS, self.cp_events);
        words.set_pair(Word::RESHAPE_POSITION, self.reshape.position);
        for (number, disk) in self.disks.iter().enumerate() {
            words.set_disk(Word::disk(number, 0, "disks").0, disk);
        }
        words.set_disk(Word::THIS_DISK.0, &self.this_disk);
    }
}

/// The sum that belongs in `sb_csum` of a 0.90 superblock of this byte order; `None` for fewer than
/// 4096 bytes.
///
/// Source   md: all words but its own summed in 64 bits, the halves added once, the carry of that
///          lost
#[must_use]
pub fn csum_090(block: &[u8], order: ByteOrder) -> Option<u32> {
    block.get(..SUPER_BYTES).map(|block| Words::read(block, order).sum())
}

fn check_format(words: &Words) -> Result<(), SuperblockError> {
    let found = words.get(Word::MAGIC);
    if found != MAGIC {
        return Err(SuperblockError::Magic { at: Word::MAGIC.at(), found });
    }
    let found = words.get(Word::MAJOR);
    if found != 0 {
        return Err(SuperblockError::Version { at: Word::MAJOR.at(), found, expected: "0" });
    }
    let found = words.get(Word::MINOR);
    if !matches!(found, 90 | 91) {
        let expected = "90, or 91 during a reshape";
        return Err(SuperblockError::Version { at: Word::MINOR.at(), found, expected });
    }
    Ok(())
}

/// The sum of both halves, twice: 16 bits.
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
