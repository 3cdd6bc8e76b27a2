//! Checks of a 0.90 superblock: errors that a single member can have.
//!
//! The checks give the same guarantee as those of version 1: computations with a checked value are
//! safe.

use super::words::Word;
use super::{DISKS_090_MAX, Disk090, RESERVED_090, Super090};
use crate::chunk_rule::ChunkRule;
use crate::layout_id::Layouts;
use crate::super1::{Area, check_chunk};
use crate::{Level, Role, SuperblockError};
use weft_units::{SECTOR_BYTES, Sectors};

impl Super090 {
    /// Makes all checks that are possible on one member.
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
        if !(level.row().members_min..=most).contains(&self.raid_disks) {
            return Err(SuperblockError::raid_disks(at, self.raid_disks, level, most));
        }
        if self.is_reshaping()
            && !self.raid_disks_before().is_some_and(|count| (1..=most).contains(&count))
        {
            let expected = format!("{} - delta_disks in 1..={most}", self.raid_disks);
            let at = Word::DELTA_DISKS.at();
            return Err(SuperblockError::value(at, self.reshape.delta_disks, expected));
        }
        // RAID0 had no layouts when this format was current, so the field is ignored.
        let meaningful = level.row().layouts != Layouts::Zones;
        if meaningful && !level.row().layouts.allows(self.layout, self.raid_disks) {
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
        // Linear rounds by its chunk, so a member smaller than a chunk has no room for data.
        let means_chunk = self.level.row().chunk != ChunkRule::Unused;
        if means_chunk && self.chunk() > cut || cut == Sectors::ZERO {
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
        // Device numbers are those of the machine that wrote the row and are not compared.
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
            let expected = Level::codes_listed();
            return Err(SuperblockError::value(Word::NEW_LEVEL.at(), code, expected));
        };
        self.check_chunk_bytes(Word::NEW_CHUNK, level, reshape.new_chunk_bytes)?;
        // All ones means that there is no reshape, whatever the version says.
        let most = self.used_size().0.saturating_mul(self.slots().into());
        if reshape.position > most && reshape.position != u64::MAX {
            let expected = format!("at most {most}, the size of all members");
            let at = Word::RESHAPE_POSITION.at();
            return Err(SuperblockError::value(at, reshape.position, expected));
        }
        Ok(())
    }
}
