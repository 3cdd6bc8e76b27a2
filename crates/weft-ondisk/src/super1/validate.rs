//! Checks of a version 1 superblock: errors that a single member can have.
//!
//! Computations with a checked value are safe: no sum of its fields overflows, no divisor is zero,
//! and every area is inside the member and clear of the others. Properties on which members must
//! agree are checked at assembly.
//!
//! Source: checks of Linux 6.12 when it loads and starts a member, and cases that it accepts
//! although data is lost later: illegal combinations of features, roles beyond the last slot,
//! overlapping areas.

use super::raw::{Raw, STRUCTURE};
use super::{ROLES_MAX, ResyncOffset, Role, Super1, role_at, sectors_of};
use crate::chunk_rule::{CHUNK_END, ChunkRule};
use crate::error::at;
use crate::layout_id::Layouts;
use crate::{At, Level, SuperblockError};
use crate::{Features, MEMBER_SECTORS_MIN, Minor};
use weft_units::{SECTOR_BYTES, Sectors};

/// `data_size` of the smallest usable member, as in the kernel.
pub(crate) const DATA_SECTORS_MIN: u64 = 10;

/// Smallest partial parity log: a header and a block, 4 KiB each.
const PPL_SECTORS_MIN: u16 = 16;

/// Largest bad-block log: a page, 512 entries.
const BBLOG_SECTORS_MAX: u16 = 8;

/// Pairs of features that exclude each other, each with the name of the rule.
const EXCLUSIVE: [(Features, Features, &str); 6] = [
    (Features::BITMAP, Features::JOURNAL, "BITMAP with JOURNAL"),
    (Features::PPL, Features::BITMAP, "PPL with BITMAP"),
    (Features::PPL, Features::JOURNAL, "PPL with JOURNAL"),
    (Features::PPL, Features::MULTI_PPL, "PPL with MULTI_PPL"),
    (Features::MULTI_PPL, Features::BITMAP, "MULTI_PPL with BITMAP"),
    (Features::MULTI_PPL, Features::JOURNAL, "MULTI_PPL with JOURNAL"),
];

/// Range of a member's sectors with one purpose, such as the data or a log. Signed, because offsets
/// from the superblock are signed and may point before the member.
#[derive(Clone, Copy)]
pub(crate) struct Area {
    pub(crate) at: At,
    pub(crate) name: &'static str,
    pub(crate) start: i128,
    pub(crate) end: i128,
}

impl Super1 {
    /// Makes all checks that are possible on one member: levels, layouts, chunks and sizes fit each
    /// other, areas are inside the member and disjoint, and the role table is consistent.
    ///
    /// # Errors
    ///
    /// [`SuperblockError`] with the first field that is wrong.
    pub fn validate(&self, member_size: Sectors) -> Result<(), SuperblockError> {
        self.check_position(member_size)?;
        self.check_features()?;
        self.check_level()?;
        self.check_sizes()?;
        self.check_roles()?;
        self.check_areas(member_size)?;
        self.check_progress()?;
        self.check_reshape(member_size)
    }

    /// Messages about fields with values that are unusual but have an accepted meaning.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let rest = self.size.0.checked_rem(self.chunk.0).unwrap_or(0);
        if self.level.is_striped() && self.level.uses_size() && rest != 0 {
            warnings.push(format!(
                "{}: found {}, expected a multiple of the chunk, {}; the rest is not used",
                at!(size),
                self.size.0,
                self.chunk.0
            ));
        }
        if let ResyncOffset::At(sector) = self.resync_offset
            && self.dirty_from() != Some(sector)
        {
            warnings.push(format!(
                "{}: found {}, expected no more than the array has; all of it counts as dirty",
                at!(resync_offset),
                sector.0
            ));
        }
        warnings
    }

    fn check_position(&self, member_size: Sectors) -> Result<(), SuperblockError> {
        let Some(expected) = self.minor.position(member_size) else {
            return Err(SuperblockError::TooSmall {
                found: member_size,
                expected: MEMBER_SECTORS_MIN,
            });
        };
        if self.super_offset != expected {
            let at = at!(super_offset);
            return Err(SuperblockError::Position { at, found: self.super_offset, expected });
        }
        Ok(())
    }

    fn check_features(&self) -> Result<(), SuperblockError> {
        let (at, found) = (at!(feature_map), self.feature_map);
        let broken = EXCLUSIVE
            .into_iter()
            .find(|(one, other, _)| found.contains(*one) && found.contains(*other));
        if let Some((_, _, rule)) = broken {
            return Err(SuperblockError::Combination { at, found, rule });
        }
        let has_zones = self.level.row().layouts == Layouts::Zones;
        if found.contains(Features::RAID0_LAYOUT) && !has_zones {
            let rule = "RAID0_LAYOUT on another level";
            return Err(SuperblockError::Combination { at, found, rule });
        }
        if self.ppl().is_some() && self.level != Level::Raid5 {
            let rule = "PPL or MULTI_PPL on a level other than raid5";
            return Err(SuperblockError::Combination { at, found, rule });
        }
        let block = self.logical_block_size;
        if block != 0 && !(block.is_power_of_two() && (512..=65536).contains(&block)) {
            let expected = "0 or a power of two in 512..=65536";
            return Err(SuperblockError::value(at!(logical_block_size), block, expected));
        }
        Ok(())
    }

    fn check_level(&self) -> Result<(), SuperblockError> {
        let level = self.level;
        if !(level.row().members_min..=ROLES_MAX).contains(&self.raid_disks) {
            return Err(SuperblockError::raid_disks(
                at!(raid_disks),
                self.raid_disks,
                level,
                ROLES_MAX,
            ));
        }
        if self.feature_map.contains(Features::RESHAPE)
            && !self.raid_disks_before().is_some_and(|count| (1..=ROLES_MAX).contains(&count))
        {
            let expected = format!("{} - delta_disks in 1..={ROLES_MAX}", self.raid_disks);
            let found = self.reshape.delta_disks;
            return Err(SuperblockError::value(at!(delta_disks), found, expected));
        }
        let meaningful = level.row().layouts != Layouts::Zones
            || self.feature_map.contains(Features::RAID0_LAYOUT);
        if meaningful && !level.row().layouts.allows(self.layout, self.raid_disks) {
            let expected = format!("a layout of {level} with {} members", self.raid_disks);
            let found = format!("{:#x}", self.layout);
            return Err(SuperblockError::value(at!(layout), found, expected));
        }
        check_chunk(at!(chunksize), level, self.chunk, self.logical_block_size)
    }

    /// Checks sizes against each other; [`Super1::check_areas`] checks them against the member.
    fn check_sizes(&self) -> Result<(), SuperblockError> {
        let journal = self.is_journal();
        if self.level.uses_size() && self.size == Sectors(0) {
            return Err(SuperblockError::value(at!(size), 0, format!("more for {}", self.level)));
        }
        let least = if self.level.uses_size() && !journal {
            self.size.0.max(DATA_SECTORS_MIN)
        } else {
            DATA_SECTORS_MIN
        };
        if self.data_size.0 < least {
            let expected = format!("at least {least}");
            return Err(SuperblockError::value(at!(data_size), self.data_size.0, expected));
        }
        let (field, cut) = if self.level.uses_size() {
            ("size", self.size)
        } else {
            ("data_size", self.data_size)
        };
        if self.level.row().chunk != ChunkRule::Unused && self.chunk > cut {
            let expected = format!("at most {field}, {}", cut.0);
            return Err(SuperblockError::value(at!(chunksize), self.chunk.0, expected));
        }
        if self.level.uses_size() && self.array_size().is_none() {
            let sum = "size * raid_disks";
            return Err(SuperblockError::Overflow { at: at!(size), found: self.size.0, sum });
        }
        Ok(())
    }

    fn check_roles(&self) -> Result<(), SuperblockError> {
        // At most 1920: both numbers of members were checked with the level.
        let slots = self.slots();
        let mut fillers = vec![0_u8; slots as usize];
        for (number, code) in self.roles.iter().enumerate() {
            let at = role_at(number);
            match Role::from_code(*code) {
                None => return Err(SuperblockError::Role { at, found: *code, slots }),
                Some(Role::Active(slot)) => {
                    let Some(count) = fillers.get_mut(slot.index()) else {
                        return Err(SuperblockError::Role { at, found: *code, slots });
                    };
                    *count += 1;
                    if *count > 2 {
                        let expected = "each slot at most twice, a member and its replacement";
                        let found = format!("slot {} for the third time", slot.0);
                        return Err(SuperblockError::value(at, found, expected));
                    }
                }
                Some(Role::Faulty | Role::Journal | Role::Spare) => {}
            }
        }
        self.own_role().map(|_| ())
    }

    fn check_areas(&self, member_size: Sectors) -> Result<(), SuperblockError> {
        let superblock = self.superblock_area();
        for (at, from, len, sum) in [
            (at!(data_offset), self.data_offset, self.data_size, "data_offset + data_size"),
            (at!(data_offset), self.data_offset, self.used_size(), "data_offset + size"),
        ] {
            let Some(needs) = from.checked_add(len) else {
                return Err(SuperblockError::Overflow { at, found: from.0, sum });
            };
            if needs > member_size {
                let at = at!(data_size);
                return Err(SuperblockError::Truncated { at, needs, has: member_size });
            }
        }
        // The available size counts, not only the used one: the kernel requires that.
        let available = Area::new(at!(data_size), "data", 0, i128::from(self.data_size.0));
        let data = self.data_area();
        match self.minor {
            Minor::V1_0 => {
                available.clear_of(&superblock)?;
                data.clear_of(&superblock)?;
            }
            // Data entirely before the superblock is wrong as well.
            Minor::V1_1 | Minor::V1_2 if data.start < superblock.end => {
                return Err(data.overlaps(&superblock));
            }
            Minor::V1_1 | Minor::V1_2 => {}
        }
        let ppl = self.check_ppl(member_size, &superblock, &data)?;
        if self.feature_map.contains(Features::BADBLOCKS) {
            let log = self.check_bblog(member_size)?;
            ppl.map_or(Ok(()), |ppl| log.clear_of(&ppl))?;
        }
        Ok(())
    }

    pub(crate) fn superblock_area(&self) -> Area {
        let len = sectors_of(self.encoded_len(512)).into();
        Area::new(at!(super_offset), "the superblock", self.super_offset.0.into(), len)
    }

    pub(crate) fn data_area(&self) -> Area {
        let len = self.used_size().0.into();
        Area::new(at!(data_offset), "data", self.data_offset.0.into(), len)
    }

    fn check_ppl(
        &self,
        member_size: Sectors,
        superblock: &Area,
        data: &Area,
    ) -> Result<Option<Area>, SuperblockError> {
        let Some(ppl) = self.ppl() else { return Ok(None) };
        let at = At { field: "ppl", ..at!(bitmap_offset) };
        if ppl.size < PPL_SECTORS_MIN {
            let expected = format!("a size of at least {PPL_SECTORS_MIN}");
            return Err(SuperblockError::value(at, ppl.size, expected));
        }
        let start = i128::from(self.super_offset.0) + i128::from(ppl.offset);
        let area = Area::new(at, "the partial parity log", start, ppl.size.into());
        area.inside(member_size)?;
        area.clear_of(superblock)?;
        area.clear_of(data)?;
        Ok(Some(area))
    }

    /// Checks the place of the bad-block log, whether or not the log is in use. Returns the sectors
    /// of the log.
    pub(crate) fn check_bblog(&self, member_size: Sectors) -> Result<Area, SuperblockError> {
        if !(1..=BBLOG_SECTORS_MAX).contains(&self.bblog_size) {
            let expected = format!("1..={BBLOG_SECTORS_MAX} with BADBLOCKS");
            return Err(SuperblockError::value(at!(bblog_size), self.bblog_size, expected));
        }
        if self.bblog_shift >= 64 {
            let expected = "less than 64";
            return Err(SuperblockError::value(at!(bblog_shift), self.bblog_shift, expected));
        }
        if self.bblog_offset == 0 {
            return Err(SuperblockError::value(at!(bblog_offset), 0, "a place with BADBLOCKS"));
        }
        let start = i128::from(self.super_offset.0) + i128::from(self.bblog_offset);
        let area = Area::new(at!(bblog_offset), "the bad-block log", start, self.bblog_size.into());
        area.inside(member_size)?;
        area.clear_of(&self.superblock_area())?;
        area.clear_of(&self.data_area())?;
        Ok(area)
    }

    fn check_progress(&self) -> Result<(), SuperblockError> {
        if let Some(recovered) = self.recovery_offset()
            && recovered > self.used_size()
        {
            let expected = format!("at most the size, {}", self.used_size().0);
            return Err(SuperblockError::value(at!(recovery_offset), recovered.0, expected));
        }
        if let Some(tail) = self.journal_tail()
            && (tail >= self.data_size || tail.0 % 8 != 0)
        {
            let at = At { field: "journal_tail", ..at!(recovery_offset) };
            let expected = format!("a multiple of 8 below data_size, {}", self.data_size.0);
            return Err(SuperblockError::value(at, tail.0, expected));
        }
        Ok(())
    }

    /// Checks the fields that describe a reshape. weft computes with them, also to show a reshape
    /// that it refuses to continue.
    fn check_reshape(&self, member_size: Sectors) -> Result<(), SuperblockError> {
        if !self.feature_map.contains(Features::RESHAPE) {
            return Ok(());
        }
        let reshape = &self.reshape;
        let Some(level) = Level::from_code(reshape.new_level) else {
            let expected = Level::codes_listed();
            return Err(SuperblockError::value(at!(new_level), reshape.new_level, expected));
        };
        check_chunk(at!(new_chunk), level, reshape.new_chunk, self.logical_block_size)?;
        let most = u128::from(self.used_size().0) * u128::from(self.slots());
        if u128::from(reshape.position) > most {
            let expected = format!("at most {most}, the size of all members");
            return Err(SuperblockError::value(at!(reshape_position), reshape.position, expected));
        }
        let data_disks = u64::from(self.raid_disks.saturating_sub(level.parity_count()));
        if level.parity_count() > 0 {
            let full_stripe = self.chunk.max(reshape.new_chunk).0 * data_disks;
            if reshape.position.checked_rem(full_stripe) != Some(0) {
                let expected = format!("a multiple of a full stripe, {full_stripe} sectors");
                return Err(SuperblockError::value(
                    at!(reshape_position),
                    reshape.position,
                    expected,
                ));
            }
        }
        if self.feature_map.contains(Features::NEW_OFFSET) {
            let start = i128::from(self.data_offset.0) + i128::from(reshape.new_offset);
            Area::new(at!(new_offset), "data", start, self.used_size().0.into())
                .inside(member_size)?;
        }
        Ok(())
    }
}

/// Checks that a chunk size is legal for a level. The caller may divide by a chunk size that
/// passes.
pub(crate) fn check_chunk(
    at: At,
    level: Level,
    chunk: Sectors,
    logical_block_size: u32,
) -> Result<(), SuperblockError> {
    if chunk >= CHUNK_END {
        let expected = format!("less than {}, 2 GiB", CHUNK_END.0);
        return Err(SuperblockError::value(at, chunk.0, expected));
    }
    let block = Sectors((u64::from(logical_block_size) / SECTOR_BYTES).max(1));
    let rule = level.row().chunk;
    if rule.allows(chunk, block) {
        return Ok(());
    }
    let expected = format!("{}, for {level}", rule.expected(block));
    Err(SuperblockError::value(at, chunk.0, expected))
}

impl Area {
    pub(crate) fn new(at: At, name: &'static str, start: i128, len: i128) -> Self {
        Self { at, name, start, end: start + len }
    }

    pub(crate) fn inside(&self, member_size: Sectors) -> Result<(), SuperblockError> {
        if self.start < 0 {
            let expected = "an area that begins on the member";
            return Err(SuperblockError::value(self.at, self.start, expected));
        }
        if self.end > i128::from(member_size.0) {
            let needs = Sectors(u64::try_from(self.end).unwrap_or(u64::MAX));
            return Err(SuperblockError::Truncated { at: self.at, needs, has: member_size });
        }
        Ok(())
    }

    pub(crate) fn clear_of(&self, other: &Self) -> Result<(), SuperblockError> {
        if self.start < other.end && other.start < self.end {
            return Err(self.overlaps(other));
        }
        Ok(())
    }

    fn overlaps(&self, other: &Self) -> SuperblockError {
        // Only areas on a member are compared, and no member is that large.
        let sector = |at: i128| i64::try_from(at).unwrap_or(i64::MAX);
        SuperblockError::Overlap {
            at: self.at,
            area: self.name,
            start: sector(self.start),
            end: sector(self.end),
            other: other.name,
            other_start: sector(other.start),
            other_end: sector(other.end),
        }
    }
}
