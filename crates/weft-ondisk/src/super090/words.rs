//! Words of a 0.90 superblock: the field in each of them, and fields that take two words.

use super::{ByteOrder, DISKS_090_MAX, Disk090, Reshape090, Super090};
use crate::{At, Level, SUPER_BYTES, SuperblockError, Uuid};
use weft_units::Sectors;

pub(super) const MAGIC: u32 = 0xa92b_4efc;
pub(super) const WORDS: usize = SUPER_BYTES / 4;
pub(super) const STRUCTURE: &str = "0.90 superblock";

/// Word of the superblock, with its index and the name of its field.
#[derive(Clone, Copy)]
pub(super) struct Word(usize, &'static str);

impl Word {
    pub(super) const MAGIC: Self = Self(0, "magic");
    pub(super) const MAJOR: Self = Self(1, "major_version");
    pub(super) const MINOR: Self = Self(2, "minor_version");
    pub(super) const PATCH: Self = Self(3, "patch_version");
    pub(super) const GVALID: Self = Self(4, "gvalid_words");
    pub(super) const UUID: [Self; 4] =
        [Self(5, "set_uuid0"), Self(13, "set_uuid1"), Self(14, "set_uuid2"), Self(15, "set_uuid3")];
    pub(super) const CTIME: Self = Self(6, "ctime");
    pub(super) const LEVEL: Self = Self(7, "level");
    pub(super) const SIZE: Self = Self(8, "size");
    pub(super) const NR_DISKS: Self = Self(9, "nr_disks");
    pub(super) const RAID_DISKS: Self = Self(10, "raid_disks");
    pub(super) const MD_MINOR: Self = Self(11, "md_minor");
    pub(super) const NOT_PERSISTENT: Self = Self(12, "not_persistent");
    pub(super) const UTIME: Self = Self(32, "utime");
    pub(super) const STATE: Self = Self(33, "state");
    pub(super) const ACTIVE_DISKS: Self = Self(34, "active_disks");
    pub(super) const WORKING_DISKS: Self = Self(35, "working_disks");
    pub(super) const FAILED_DISKS: Self = Self(36, "failed_disks");
    pub(super) const SPARE_DISKS: Self = Self(37, "spare_disks");
    pub(super) const SB_CSUM: Self = Self(38, "sb_csum");
    pub(super) const EVENTS: Self = Self(39, "events");
    pub(super) const CP_EVENTS: Self = Self(41, "cp_events");
    pub(super) const RECOVERY_CP: Self = Self(43, "recovery_cp");
    pub(super) const RESHAPE_POSITION: Self = Self(44, "reshape_position");
    pub(super) const NEW_LEVEL: Self = Self(46, "new_level");
    pub(super) const DELTA_DISKS: Self = Self(47, "delta_disks");
    pub(super) const NEW_LAYOUT: Self = Self(48, "new_layout");
    pub(super) const NEW_CHUNK: Self = Self(49, "new_chunk");
    pub(super) const LAYOUT: Self = Self(64, "layout");
    pub(super) const CHUNK_SIZE: Self = Self(65, "chunk_size");
    pub(super) const ROOT_PV: Self = Self(66, "root_pv");
    pub(super) const ROOT_BLOCK: Self = Self(67, "root_block");
    pub(super) const THIS_DISK: Self = Self(992, "this_disk");

    pub(super) const fn at(self) -> At {
        At { structure: STRUCTURE, field: self.1, byte: self.0 * 4 }
    }

    /// Word `index` in the table row of member `number`.
    pub(super) const fn disk(number: usize, index: usize, name: &'static str) -> Self {
        Self(128 + 32 * number + index, name)
    }
}

/// All words of a superblock as numbers, in the byte order in which it was written.
pub(super) struct Words {
    order: ByteOrder,
    words: Vec<u32>,
}

impl Words {
    pub(super) fn read(block: &[u8], order: ByteOrder) -> Self {
        let words = block.chunks_exact(4).take(WORDS);
        let number = |bytes: &[u8]| order.word(bytes.first_chunk().copied().unwrap_or_default());
        Self { order, words: words.map(number).collect() }
    }

    pub(super) fn get(&self, word: Word) -> u32 {
        self.words.get(word.0).copied().unwrap_or_default()
    }

    /// The 64-bit number in word `low` and the next one, in the byte order of the superblock.
    pub(super) fn pair(&self, low: Word) -> u64 {
        let second = self.get(Word(low.0 + 1, low.1));
        let (high, low) = match self.order {
            ByteOrder::Big => (self.get(low), second),
            ByteOrder::Little => (second, self.get(low)),
        };
        u64::from(high) << 32 | u64::from(low)
    }

    pub(super) fn set(&mut self, word: Word, value: u32) {
        *self.words.get_mut(word.0).expect("every field is one of 1024 words") = value;
    }

    pub(super) fn set_pair(&mut self, word: Word, value: u64) {
        let [low, high] = [value & u64::from(u32::MAX), value >> 32]
            .map(|half| u32::try_from(half).expect("half of 64 bits"));
        let (first, second) = match self.order {
            ByteOrder::Big => (high, low),
            ByteOrder::Little => (low, high),
        };
        self.set(word, first);
        self.set(Word(word.0 + 1, word.1), second);
    }

    pub(super) fn disk(&self, start: usize) -> Disk090 {
        let field = |index| self.get(Word(start + index, "disk"));
        Disk090 {
            number: field(0),
            major: field(1),
            minor: field(2),
            raid_disk: field(3),
            state: field(4),
        }
    }

    pub(super) fn set_disk(&mut self, start: usize, disk: &Disk090) {
        let fields = [disk.number, disk.major, disk.minor, disk.raid_disk, disk.state];
        for (index, value) in fields.into_iter().enumerate() {
            self.set(Word(start + index, "disk"), value);
        }
    }

    /// Checksum: the sum of all words except the checksum itself.
    pub(super) fn sum(&self) -> u32 {
        let sum: u64 = self.words.iter().map(|word| u64::from(*word)).sum::<u64>()
            - u64::from(self.get(Word::SB_CSUM));
        let [low, high] = [sum & u64::from(u32::MAX), sum >> 32]
            .map(|half| u32::try_from(half).expect("1024 words of 32 bits sum to 42 bits"));
        low.wrapping_add(high)
    }

    pub(super) fn write(&self, block: &mut [u8; SUPER_BYTES]) {
        for (bytes, word) in block.chunks_exact_mut(4).zip(&self.words) {
            bytes.copy_from_slice(&self.order.bytes(*word));
        }
    }
}

impl ByteOrder {
    pub(super) const fn word(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Big => u32::from_be_bytes(bytes),
            Self::Little => u32::from_le_bytes(bytes),
        }
    }

    pub(super) const fn bytes(self, word: u32) -> [u8; 4] {
        match self {
            Self::Big => word.to_be_bytes(),
            Self::Little => word.to_le_bytes(),
        }
    }
}

impl Super090 {
    pub(super) fn from_words(words: &Words, super_offset: Sectors, level: Level) -> Self {
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

    pub(super) fn to_words(&self, words: &mut Words) {
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

pub(super) fn check_format(words: &Words) -> Result<(), SuperblockError> {
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
