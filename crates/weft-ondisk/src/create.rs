//! Superblocks of a new array: placement and numbering of members as mdadm chooses them.
//!
//! The superblocks are those that mdadm 4.2 writes, with one difference: above 100 GiB per member
//! mdadm adds a write-intent bitmap by default, but [`NewArray`] has a bitmap only if its `bitmap`
//! is set.
//!
//! Source: superblocks of 65 arrays that mdadm 4.2 created on Linux 6.12, `fixtures/md-super`; the
//! data offset of larger members as collected from 592 creations by mdadm's own writer.

use crate::chunk_default::chunk_default;
use crate::create_bitmap::{NewBitmap, bitmap_room, bitmap_space, no_bitmap};
use crate::create_error::CreateError;
use crate::{
    Features, Level, MdTime, Minor, ROLES_MAX, Redundancy, Reshape, ResyncOffset, Role, Super1,
    Uuid,
    layout_id::{self, Layouts},
    super1::{DATA_SECTORS_MIN, array_size},
};
use weft_units::{SECTOR_BYTES, Sectors, Slot};

/// mdadm's default data offset for versions 1.1 and 1.2. The first member in the list determines
/// the offset of all members.
///
/// The offset leaves room for a later reshape: 128 MiB, halved until it is less than a thousandth
/// of the member, but no less than two chunks. The superblock comes before that room, and so does a
/// bitmap or, for a partial parity log, 1 MiB. The sum is rounded up to 1 MiB.
///
/// Source   mdadm 4.2 to 4.6, equal in all
#[must_use]
pub const fn data_offset_default(member_size: Sectors, chunk: Sectors, ppl: bool) -> Sectors {
    const MIB: u64 = 2048;
    let mut headroom = 128 * MIB;
    while headroom << 10 > member_size.0 && headroom >= chunk.0.saturating_mul(4) {
        headroom >>= 1;
    }
    let log = if ppl { MIB } else { bitmap_space(member_size) };
    Sectors((24 + log + headroom).next_multiple_of(MIB))
}

/// Parameters of a new array, from which [`NewArray::plan`] makes superblocks as `mdadm --create`
/// does.
///
/// The list of members is in the order in which a user names them: slots first, then spares.
#[derive(Clone, Debug)]
pub struct NewArray {
    /// Version of the superblocks.
    pub minor: Minor,
    /// RAID level of the new array.
    pub level: Level,
    /// Layout; `None` for mdadm's choice: left-symmetric, two near copies, RAID0 "original".
    pub layout: Option<u32>,
    /// Chunk; `None` for mdadm's 512 KiB if the level needs one ([`chunk_default`]).
    pub chunk: Option<Sectors>,
    /// Sectors of each member that hold data; `None` for all that the smallest member has.
    pub size: Option<Sectors>,
    /// First sector of the data; `None` for [`data_offset_default`] of the first member, or 0 for
    /// version 1.0.
    pub data_offset: Option<Sectors>,
    /// UUID of the array.
    pub set_uuid: Uuid,
    /// Name of the array, `host:name` or `name`, at most 32 bytes.
    pub name: String,
    /// Time of creation.
    pub ctime: MdTime,
    /// Member of each slot; `None` leaves the slot `missing`.
    pub slots: Vec<Option<NewMember>>,
    /// Members without a slot.
    pub spares: Vec<NewMember>,
    /// Whether the members agree already: copies are equal and parity matches the data, as on
    /// members that are all zero. Otherwise they are brought in sync by a resync or, for RAID4/5
    /// and for RAID6 with one missing member, by rebuilding the last member as a spare.
    pub assume_clean: bool,
    /// Whether RAID4/5/6 is resynced instead of rebuilding the last member as a spare.
    pub force: bool,
    /// Write-intent bitmap of the members; `None` for no bitmap.
    pub bitmap: Option<NewBitmap>,
}

/// A member of a new array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewMember {
    /// Size of the member in sectors.
    pub size: Sectors,
    /// Random UUID of the member.
    pub device_uuid: Uuid,
}

/// Unit to which the size of a mirror is rounded down: 64 KiB.
const MIRROR_SIZE_UNIT: Sectors = Sectors(128);

/// Length of a new bad-block log in sectors: 4 KiB, 512 entries.
const BBLOG_SECTORS: u16 = 8;

/// Positions of the structures on one member, and the sectors left for its data.
struct MemberPlacement {
    super_offset: Sectors,
    data_size: Sectors,
    bblog_offset: i32,
    /// Offset of the bitmap from the superblock; 0 without a bitmap.
    bitmap_offset: i32,
}

/// Sizes and offsets that all members of a plan share.
struct Geometry {
    layout: u32,
    chunk: Sectors,
    size: Sectors,
    data_offset: Sectors,
    feature_map: Features,
    /// Sectors of the bitmap; `None` without a bitmap.
    bitmap: Option<Sectors>,
}

impl NewArray {
    /// Creates an array with mdadm's defaults, no name and no UUID. Every member has a slot; none
    /// is a spare.
    #[must_use]
    pub fn new(level: Level, members: Vec<NewMember>) -> Self {
        Self {
            minor: Minor::default(),
            level,
            layout: None,
            chunk: None,
            size: None,
            data_offset: None,
            set_uuid: Uuid::default(),
            name: String::new(),
            ctime: MdTime::default(),
            slots: members.into_iter().map(Some).collect(),
            spares: Vec::new(),
            assume_clean: false,
            force: false,
            bitmap: None,
        }
    }

    /// Creates an array of members that agree already. Each UUID repeats one byte: `n + 1` for
    /// member `n` (from 0), and 9 for the array. For simulations, benchmarks and tests only; an
    /// array that other hosts may see needs random UUIDs.
    #[must_use]
    pub fn in_sync(level: Level, members: usize, size: Sectors) -> Self {
        let new = |number: usize| {
            let mut uuid = [number.to_le_bytes()[0]; 16];
            uuid[0] ^= number.to_le_bytes()[1];
            NewMember { size, device_uuid: uuid.into() }
        };
        let array = Self::new(level, (1..=members).map(new).collect());
        Self { set_uuid: [9; 16].into(), assume_clean: true, ..array }
    }

    /// Superblocks of all members, in the order in which they are listed: the members of slots that
    /// are not `missing`, then the spares.
    ///
    /// Source   numbers: slots count up from 0, `missing` ones included, and the spares follow. A
    ///          member that is rebuilt as a spare, instead of a resync, gets the number after all
    ///          others, and the number of its slot stays free: 0, 1 and 3 for three members of
    ///          RAID5.
    ///
    /// # Errors
    ///
    /// [`CreateError`] with the parameter that is not possible.
    pub fn plan(&self) -> Result<Vec<Super1>, CreateError> {
        self.check_members()?;
        let geometry = self.geometry()?;
        self.check_array_size(geometry.size)?;
        let mut set_name = [0; 32];
        let Some(name) = set_name.get_mut(..self.name.len()) else {
            return Err(CreateError::Name { found: self.name.len() });
        };
        name.copy_from_slice(self.name.as_bytes());

        let rebuilt = self.rebuilt_slot();
        let numbered = self.numbered(rebuilt);
        let numbers = self.slots.len() + self.spares.len() + usize::from(rebuilt.is_some());
        let mut roles = vec![Role::Spare.code(); role_count(numbers)];
        for (number, role, _) in &numbered {
            *roles.get_mut(*number).expect("the table is as long as there are numbers") =
                role.code();
        }
        let resync_offset = if self.starts_clean(rebuilt) {
            ResyncOffset::Clean
        } else {
            ResyncOffset::At(Sectors::ZERO)
        };
        let mut supers = Vec::with_capacity(numbered.len());
        for (position, (number, _, member)) in numbered.into_iter().enumerate() {
            let place = self.place(position, member.size, &geometry)?;
            let planned = Super1 {
                minor: self.minor,
                feature_map: geometry.feature_map,
                set_uuid: self.set_uuid,
                set_name,
                ctime: self.ctime,
                level: self.level,
                layout: geometry.layout,
                size: geometry.size,
                chunk: geometry.chunk,
                raid_disks: wrap(self.slots.len()),
                bitmap_offset_raw: place.bitmap_offset.to_le_bytes(),
                reshape: Reshape::default(),
                data_offset: geometry.data_offset,
                data_size: place.data_size,
                super_offset: place.super_offset,
                recovery_offset_raw: 0,
                dev_number: wrap(number),
                cnt_corrected_read: 0,
                device_uuid: member.device_uuid,
                devflags: 0,
                bblog_shift: 0,
                bblog_size: if place.bblog_offset == 0 { 0 } else { BBLOG_SECTORS },
                bblog_offset: place.bblog_offset,
                utime: self.ctime,
                events: 0,
                resync_offset,
                logical_block_size: 0,
                roles: roles.clone(),
            };
            planned.validate(member.size)?;
            supers.push(planned);
        }
        Ok(supers)
    }

    /// Checks that every byte of an array with `size` sectors on each member has an offset that
    /// fits a file offset.
    fn check_array_size(&self, size: Sectors) -> Result<(), CreateError> {
        let slots = self.slots.len() as u64;
        let data_members = match self.level.row().redundancy {
            Redundancy::Mirror => 1,
            Redundancy::Parity(count) => slots - u64::from(count),
            Redundancy::Copies | Redundancy::None => slots,
        };
        let largest = self.members().map(|member| member.size).max().unwrap_or_default();
        let found = if self.level.uses_size() { size } else { largest };
        let most = Sectors((i64::MAX as u64) / SECTOR_BYTES / data_members);
        if found > most { Err(CreateError::TooLarge { found, most }) } else { Ok(()) }
    }

    fn check_members(&self) -> Result<(), CreateError> {
        let level = self.level;
        let (found, least) = (self.slots.len(), level.row().members_min as usize);
        // One number is reserved for the member to be rebuilt.
        let most = (ROLES_MAX as usize).saturating_sub(self.spares.len() + 1);
        if !(least..=most).contains(&found) {
            return Err(CreateError::RaidDisks { found, least, most, level });
        }
        if !level.uses_size() && !self.spares.is_empty() {
            return Err(CreateError::Spares { found: self.spares.len(), level });
        }
        let missing = self.missing().count();
        let most = match level.row().redundancy {
            Redundancy::None => 0,
            Redundancy::Copies | Redundancy::Mirror => found - 1,
            Redundancy::Parity(count) => count as usize,
        };
        if missing > most {
            return Err(CreateError::Missing { found: missing, most, level });
        }
        Ok(())
    }

    fn geometry(&self) -> Result<Geometry, CreateError> {
        let level = self.level;
        let chunk = self.legal_chunk()?;
        let layout = self.layout.unwrap_or(level.row().layouts.default_number());
        if !level.row().layouts.allows(layout, wrap(self.slots.len())) {
            let raid_disks = self.slots.len();
            return Err(CreateError::Layout { found: layout, level, raid_disks });
        }
        self.check_copies(layout)?;
        let data_offset = self.legal_data_offset(chunk)?;
        let is_mirror = level.row().redundancy == Redundancy::Mirror;
        let unit = if is_mirror { MIRROR_SIZE_UNIT } else { chunk };
        if let Some(found) = self.size {
            let expected = match level.row().redundancy {
                Redundancy::None => format!("none, for {level} uses all of each member"),
                // A mirror has no chunk to which an explicit size must be rounded.
                Redundancy::Mirror => format!("at least {}", Sectors(DATA_SECTORS_MIN)),
                Redundancy::Copies | Redundancy::Parity(_) => {
                    format!("at least the chunk, {chunk}")
                }
            };
            let least = if is_mirror { DATA_SECTORS_MIN } else { chunk.0 };
            if !level.uses_size() || found.0 < least {
                return Err(CreateError::Size { found, expected });
            }
        }
        let least = Sectors(self.size.unwrap_or(unit).0.max(DATA_SECTORS_MIN));
        let mut usable = Vec::new();
        for (member, new) in self.members().enumerate() {
            let reserved = self.reserved(new.size, data_offset);
            let rest = new.size.0.checked_sub(reserved.0).map(Sectors);
            usable.push(rest.filter(|rest| *rest >= least).ok_or(CreateError::TooSmall {
                member,
                found: new.size,
                expected: Sectors(reserved.0.saturating_add(least.0)),
            })?);
        }
        let smallest = usable.iter().copied().min().unwrap_or_default();
        let size = match self.size {
            _ if !level.uses_size() => Sectors::ZERO,
            Some(size) if is_mirror => size,
            size => size.unwrap_or(smallest).round_down(unit),
        };
        let mut feature_map = Features::default();
        // Equal members form one zone, in which all layouts are the same; without the feature,
        // older kernels can use the array. mdadm compares sectors, not whole chunks.
        if level.row().layouts == Layouts::Zones && usable.iter().any(|size| *size != smallest) {
            feature_map.insert(Features::RAID0_LAYOUT);
        }
        let bitmap = match &self.bitmap {
            None => None,
            Some(_) if !level.uses_size() => {
                return Err(CreateError::Bitmap {
                    found: "one".to_owned(),
                    expected: no_bitmap(level),
                });
            }
            Some(bitmap) => {
                feature_map.insert(Features::BITMAP);
                let room = bitmap_room(self.minor.into(), size);
                Some(bitmap.area(self.sync_size(layout, chunk, size), room)?)
            }
        };
        Ok(Geometry { layout, chunk, size, data_offset, feature_map, bitmap })
    }

    /// Sectors that the bits of a bitmap cover: data of a member, for RAID10 of the array.
    fn sync_size(&self, layout: u32, chunk: Sectors, size: Sectors) -> Sectors {
        if !self.level.syncs_array() {
            return size;
        }
        let raid_disks = wrap(self.slots.len());
        array_size(self.level, layout, size, chunk, raid_disks).unwrap_or_default()
    }

    fn legal_chunk(&self) -> Result<Sectors, CreateError> {
        let rule = self.level.row().chunk;
        let found = self.chunk.unwrap_or(chunk_default(self.level, false));
        if rule.allows_new(found) {
            return Ok(found);
        }
        Err(CreateError::Chunk { found, expected: rule.expected_new() })
    }

    fn legal_data_offset(&self, chunk: Sectors) -> Result<Sectors, CreateError> {
        let first = self.members().next().map(|member| member.size).unwrap_or_default();
        let default = match self.minor {
            Minor::V1_0 => Sectors::ZERO,
            Minor::V1_1 | Minor::V1_2 => data_offset_default(first, chunk, false),
        };
        let found = self.data_offset.unwrap_or(default);
        let (least, most) = match self.minor {
            Minor::V1_0 => (Sectors::ZERO, Sectors::ZERO),
            // The superblock takes 4 KiB, whatever its length.
            Minor::V1_1 => (Sectors(8), Sectors(u64::MAX)),
            Minor::V1_2 => (Sectors(16), Sectors(u64::MAX)),
        };
        if !(least..=most).contains(&found) {
            return Err(CreateError::DataOffset { found, least, minor: self.minor });
        }
        Ok(found)
    }

    /// Checks that every chunk of a RAID10 array has a copy that is not missing.
    fn check_copies(&self, layout: u32) -> Result<(), CreateError> {
        if self.level.row().redundancy != Redundancy::Copies {
            return Ok(());
        }
        let Some(parts) = layout_id::Raid10::from_code(layout) else { return Ok(()) };
        let slots = self.slots.len();
        let copies = parts.copies() as usize;
        for first in (0..slots).map(|row| row * parts.near as usize % slots) {
            let mut holders = self.slots.iter().cycle().skip(first).take(copies);
            if holders.all(Option::is_none) {
                let (found, most) = (self.missing().count(), copies - 1);
                return Err(CreateError::Missing { found, most, level: self.level });
            }
        }
        Ok(())
    }

    /// Number of sectors of a member that cannot hold data: those before the data or, in version
    /// 1.0, those behind it.
    fn reserved(&self, member_size: Sectors, data_offset: Sectors) -> Sectors {
        match self.minor {
            // From the end of the member: the remainder to 4 KiB, 8 KiB with the superblock, the
            // log and the space for a bitmap.
            Minor::V1_0 => Sectors(member_size.0 % 8 + 16 + 8 + bitmap_space(member_size)),
            Minor::V1_1 | Minor::V1_2 => data_offset,
        }
    }

    /// Positions of a member's superblock, bad-block log and bitmap, and the sectors left for data.
    /// `member` is the index of the member, for errors.
    fn place(
        &self,
        member: usize,
        member_size: Sectors,
        geometry: &Geometry,
    ) -> Result<MemberPlacement, CreateError> {
        let Some(super_offset) = self.minor.position(member_size) else {
            let expected = crate::MEMBER_SECTORS_MIN;
            return Err(CreateError::TooSmall { member, found: member_size, expected });
        };
        let log = u64::from(BBLOG_SECTORS);
        let bitmap = geometry.bitmap.map(|area| area.0.next_multiple_of(8));
        // Space that mdadm reserves for a later bitmap; version 1.1 and 1.2 use the bitmap's own
        // size.
        let kept = bitmap_space(geometry.size);
        let before = match self.minor {
            Minor::V1_0 => kept,
            Minor::V1_1 | Minor::V1_2 => bitmap.unwrap_or(kept),
        };
        let near = |sectors: u64| i32::try_from(sectors).expect("at most a few hundred");
        Ok(match self.minor {
            Minor::V1_0 => MemberPlacement {
                super_offset,
                data_size: Sectors(super_offset.0.saturating_sub(before + log)),
                bblog_offset: -i32::from(BBLOG_SECTORS),
                bitmap_offset: bitmap.map_or(0, |bitmap| -near(bitmap + log)),
            },
            Minor::V1_1 | Minor::V1_2 => {
                // The log follows the superblock and the space of the bitmap, or takes the last
                // sectors before data.
                let room = geometry.data_offset.0 - super_offset.0;
                let offset = match room.checked_sub(log) {
                    Some(last) if last >= 8 => last.min(8 + before),
                    _ => 0,
                };
                MemberPlacement {
                    super_offset,
                    data_size: Sectors(member_size.0 - geometry.data_offset.0),
                    bblog_offset: near(offset),
                    bitmap_offset: bitmap.map_or(0, |_| 8),
                }
            }
        })
    }

    /// Slot of the member that becomes a spare and is rebuilt; `None` if the array is resynced
    /// instead, or needs no sync. A rebuild reads and writes all data once, which is quicker than a
    /// resync, and the array is never both degraded and dirty.
    fn rebuilt_slot(&self) -> Option<usize> {
        if self.assume_clean || self.force {
            return None;
        }
        let last = self.slots.len() - 1;
        match (self.level.parity_count(), self.missing().collect::<Vec<_>>().as_slice()) {
            (1, []) => Some(last),
            (2, [missing]) if *missing == last => Some(last - 1),
            (2, [_]) => Some(last),
            _ => None,
        }
    }

    /// Whether the new array needs no resync: its members agree already, it has no redundancy, or
    /// it has parity and lacks as many members as its level tolerates, so that no redundant strip
    /// could be wrong. The member in slot `rebuilt` counts as lacking.
    fn starts_clean(&self, rebuilt: Option<usize>) -> bool {
        let absent = self.missing().count() + usize::from(rebuilt.is_some());
        self.assume_clean
            || match self.level.row().redundancy {
                Redundancy::None => true,
                Redundancy::Copies | Redundancy::Mirror => false,
                Redundancy::Parity(count) => absent == count as usize,
            }
    }

    /// Number and role of each member, in the order in which they are listed. `rebuilt` is the slot
    /// of the member that becomes a spare.
    fn numbered(&self, rebuilt: Option<usize>) -> Vec<(usize, Role, NewMember)> {
        let last = self.slots.len() + self.spares.len();
        let slots = self.slots.iter().enumerate().filter_map(|(slot, member)| {
            let (number, role) = if rebuilt == Some(slot) {
                (last, Role::Spare)
            } else {
                (slot, Role::Active(Slot(u16::try_from(slot).expect("at most 1920 slots"))))
            };
            member.map(|member| (number, role, member))
        });
        let spares = self
            .spares
            .iter()
            .enumerate()
            .map(|(index, member)| (self.slots.len() + index, Role::Spare, *member));
        slots.chain(spares).collect()
    }

    fn members(&self) -> impl Iterator<Item = &NewMember> {
        self.slots.iter().flatten().chain(&self.spares)
    }

    fn missing(&self) -> impl Iterator<Item = usize> {
        let missing =
            |(slot, member): (usize, &Option<NewMember>)| member.is_none().then_some(slot);
        self.slots.iter().enumerate().filter_map(missing)
    }
}

/// Number of entries of the role table of a new array with this number of members: as many as fill
/// the last sector of the table.
fn role_count(members: usize) -> usize {
    ((256 + 2 * members).next_multiple_of(512) - 256) / 2
}

/// Converts a count or number of members, which is at most 1920, to `u32`, the type of the fields
/// in the superblock.
fn wrap(members: usize) -> u32 {
    u32::try_from(members).expect("at most 1920 members")
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 21;

    /// An array of members of 100 MiB.
    fn array(level: Level, members: u8) -> NewArray {
        let member = |id| NewMember { size: Sectors(204_800), device_uuid: Uuid([id; 16]) };
        NewArray::new(level, (0..members).map(member).collect())
    }

    /// Number and role of each member, and whether the array starts clean.
    fn numbers(array: &NewArray) -> (Vec<(u32, Role)>, bool) {
        let planned = array.plan().unwrap();
        let number = |planned: &Super1| (planned.dev_number, planned.own_role().unwrap());
        let clean = planned[0].resync_offset.is_clean();
        assert!(planned.iter().all(|other| other.roles == planned[0].roles));
        (planned.iter().map(number).collect(), clean)
    }

    fn active(slot: u16) -> Role {
        Role::Active(Slot(slot))
    }

    #[test]
    fn data_begins_where_mdadm_puts_it() {
        // Offsets that mdadm 4.2 computes: for mirrors, chunks of 64 KiB and of 512 KiB, and with a
        // log.
        for (member, expected) in [
            (GIB / 16, [2048, 2048, 4096, 6144]),
            (GIB / 2, [2048, 2048, 4096, 6144]),
            (GIB, [4096, 4096, 4096, 6144]),
            (2 * GIB, [6144, 6144, 6144, 8192]),
            (4 * GIB, [10240, 10240, 10240, 12288]),
            (8 * GIB, [18432, 18432, 18432, 20480]),
            (10 * GIB, [18432, 18432, 18432, 20480]),
            (16 * GIB, [34816, 34816, 34816, 36864]),
            (32 * GIB, [67584, 67584, 67584, 69632]),
            (64 * GIB, [133_120, 133_120, 133_120, 135_168]),
            (100 * GIB, [133_120, 133_120, 133_120, 135_168]),
            (128 * GIB, [264_192, 264_192, 264_192, 266_240]),
            (1024 * GIB, [264_192, 264_192, 264_192, 266_240]),
        ] {
            let offset = |chunk, ppl| data_offset_default(Sectors(member), Sectors(chunk), ppl).0;
            let found =
                [offset(0, false), offset(128, false), offset(1024, false), offset(1024, true)];
            assert_eq!(found, expected, "{member} sectors");
        }
        assert_eq!(data_offset_default(Sectors(GIB / 16), Sectors(2048), false), Sectors(6144));
        assert_eq!(data_offset_default(Sectors(0), Sectors(0), false), Sectors(2048));
        let huge = data_offset_default(Sectors(u64::MAX), Sectors(u64::MAX), true);
        assert_eq!(huge, Sectors(266_240));
    }

    #[test]
    fn the_last_member_of_a_new_raid5_is_rebuilt() {
        let mut raid5 = array(Level::Raid5, 3);
        let rebuilt = vec![(0, active(0)), (1, active(1)), (3, Role::Spare)];
        assert_eq!(numbers(&raid5), (rebuilt, true));
        raid5.force = true;
        let all = vec![(0, active(0)), (1, active(1)), (2, active(2))];
        assert_eq!(numbers(&raid5), (all.clone(), false));
        raid5.assume_clean = true;
        assert_eq!(numbers(&raid5), (all, true));
        raid5.slots[1] = None;
        assert_eq!(numbers(&raid5), (vec![(0, active(0)), (2, active(2))], true));
    }

    #[test]
    fn a_raid6_is_never_degraded_and_dirty() {
        let mut raid6 = array(Level::Raid6, 4);
        let all: Vec<_> = (0..4).map(|slot| (u32::from(slot), active(slot))).collect();
        assert_eq!(numbers(&raid6), (all.clone(), false));
        raid6.slots[3] = None;
        let rebuilt = vec![(0, active(0)), (1, active(1)), (4, Role::Spare)];
        assert_eq!(numbers(&raid6), (rebuilt, true));
        raid6.slots[1] = None;
        assert_eq!(numbers(&raid6), (vec![(0, active(0)), (2, active(2))], true));
        raid6.slots[0] = None;
        let missing = CreateError::Missing { found: 3, most: 2, level: Level::Raid6 };
        assert_eq!(raid6.plan(), Err(missing));
    }

    #[test]
    fn mirrors_need_a_copy_of_everything() {
        let mut raid10 = array(Level::Raid10, 4);
        raid10.slots[0] = None;
        raid10.slots[2] = None;
        assert_eq!(numbers(&raid10), (vec![(1, active(1)), (3, active(3))], false));
        raid10.slots.swap(1, 2);
        assert!(matches!(raid10.plan(), Err(CreateError::Missing { .. })));
        let mut raid1 = array(Level::Raid1, 2);
        raid1.slots[0] = None;
        assert_eq!(numbers(&raid1), (vec![(1, active(1))], false));
        raid1.slots[1] = None;
        assert!(matches!(raid1.plan(), Err(CreateError::Missing { .. })));
    }

    #[test]
    fn the_role_table_fills_its_last_sector() {
        for (members, entries) in [(3, 128), (127, 128), (128, 128), (129, 384)] {
            let mut raid1 = array(Level::Raid1, members);
            raid1.assume_clean = true;
            assert_eq!(raid1.plan().unwrap()[0].roles.len(), entries, "{members}");
        }
        // The member to be rebuilt has a number of its own.
        assert_eq!(array(Level::Raid5, 128).plan().unwrap()[127].dev_number, 128);
        assert_eq!(array(Level::Raid5, 128).plan().unwrap()[127].roles.len(), 384);
    }

    #[test]
    fn what_cannot_be_created_is_said() {
        type Change = fn(&mut NewArray);
        let table: [(Change, &str); 11] = [
            (|array| array.slots.truncate(1), "raid devices: found 1, expected 2..=1919 for raid5"),
            (|array| array.level = Level::Raid6, "raid devices: found 3, expected 4..=1919"),
            (|array| array.chunk = Some(Sectors(96)), "chunk: found 96 sectors, expected a power"),
            (|array| array.chunk = Some(Sectors(0)), "chunk: found 0 sectors, expected a power"),
            (|array| array.layout = Some(6), "layout: found 0x6, expected one of raid5 with 3"),
            (|array| array.name = "x".repeat(33), "name: found 33 bytes, expected at most 32"),
            (
                |array| array.size = Some(Sectors(1023)),
                "size: found 1023 sectors, expected at least",
            ),
            (
                |array| array.size = Some(Sectors(204_800)),
                "member 0: found 204800 sectors, expected at least 208896 sectors for data",
            ),
            (
                |array| array.slots[1].as_mut().unwrap().size = Sectors(100),
                "member 1: found 100 sectors, expected at least 5120 sectors for data",
            ),
            (
                |array| array.data_offset = Some(Sectors(8)),
                "data offset: found 8 sectors, expected at least 16 sectors for version 1.2",
            ),
            (
                |array| {
                    array.level = Level::Raid0;
                    array.spares.push(array.slots[0].unwrap());
                },
                "spares: found 1, expected 0 for raid0",
            ),
        ];
        for (change, message) in table {
            let mut raid5 = array(Level::Raid5, 3);
            change(&mut raid5);
            let found = raid5.plan().unwrap_err().to_string();
            assert!(found.starts_with(message), "{found}");
        }
    }
}
