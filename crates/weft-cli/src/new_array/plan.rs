//! Plan of a new array: the superblock of every member, and the initial sync.

use std::path::PathBuf;

use weft_engine::layout::Layout;
use weft_engine::layout::slot_set::SlotSet;
use weft_ondisk::probe::Foreign;
use weft_ondisk::{
    BITMAP_DEFAULT_ABOVE, Level, NewArray, NewBitmap, ResyncOffset, Role, SUPER_BYTES, Super1,
    Superblock, chunk_default,
};
use weft_terminal::outcome::Failure;
use weft_units::{Bytes, Sectors, Slot};

use super::NewArrayOptions;
use super::options::described;
use super::places::{MemberTarget, members_of, only_ssds, places, refuse_foreign};
use super::write::write_all;
use crate::member::MemberArg;
use crate::size;

/// Everything that will be written to create an array.
pub(crate) struct Planned {
    pub(crate) writes: Vec<MemberWrite>,
    pub(crate) layout: Layout,
    pub(crate) sync: InitialSync,
    /// Whether the chunk size differs from mdadm's because the members are SSDs.
    pub(crate) has_chunk_of_ssds: bool,
}

/// Metadata to be written to one member.
pub(crate) struct MemberWrite {
    pub(crate) path: PathBuf,
    pub(crate) label: String,
    /// Length of the file that is to be created; `None` if the member exists.
    pub(crate) make: Option<Bytes>,
    pub(crate) superblock: Super1,
    /// Bitmap of the member, and the sector at which it is written.
    pub(crate) bitmap: Option<(Sectors, Vec<u8>)>,
    /// Sectors of blocks to be zeroed: they have signatures of other formats, or other superblocks,
    /// which would leave unclear what the member belongs to.
    pub(crate) erase: Vec<Sectors>,
    /// Signatures of other formats that stay, because they are in the data area.
    pub(crate) kept: Vec<Foreign>,
}

/// Initial sync of a new array: how its parity or copies become consistent with the data.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum InitialSync {
    AssumedClean,
    Degraded,
    Holes,
    NoRedundancy,
    Recovery,
    Resync,
}

impl Planned {
    /// Plans an array with these options; members are examined, not changed.
    ///
    /// # Errors
    /// The options do not describe a valid array, or a member holds data and `--force` is not
    /// given.
    pub(crate) fn of(arguments: &NewArrayOptions) -> Result<Self, Failure> {
        let mut array = described(arguments)?;
        let places = places(arguments)?;
        if !arguments.force {
            refuse_foreign(&places)?;
        }
        let (slots, spares) = members_of(&places, arguments.raid_devices)?;
        (array.slots, array.spares) = (slots, spares);
        let is_asked = array.chunk.is_some();
        let own_chunk = chunk_default(array.level, only_ssds(&places));
        let has_chunk_of_ssds = !is_asked && own_chunk != chunk_default(array.level, false);
        array.chunk.get_or_insert(own_chunk);
        let mut supers = plan(&array, &places)?;
        let asked = arguments.bitmap.is_some() || arguments.consistency_policy.is_some();
        let size = supers.first().map(|superblock| superblock.size);
        if !asked && array.level.uses_size() && size > Some(BITMAP_DEFAULT_ABOVE) {
            array.bitmap = Some(NewBitmap::default());
        }
        // A new array must be one that can be served.
        let layout = layout_of(&supers, arguments.raid_devices)?;
        let sync = if !layout.level().uses_size() {
            InitialSync::NoRedundancy
        } else if all_holes(&places, arguments.raid_devices, &supers) {
            InitialSync::Holes
        } else if arguments.assume_clean {
            InitialSync::AssumedClean
        } else if !layout.has_redundancy(filled(&array)) {
            let spare = supers.iter().any(|superblock| superblock.own_role() == Ok(Role::Spare));
            array.assume_clean = true;
            if spare { InitialSync::Recovery } else { InitialSync::Degraded }
        } else if supers.iter().any(|it| it.resync_offset != ResyncOffset::Clean) {
            InitialSync::Resync
        } else {
            InitialSync::Recovery
        };
        array.assume_clean |= sync == InitialSync::Holes;
        supers = plan(&array, &places)?;
        let present =
            arguments.members().filter(|(member, _)| !matches!(member, MemberArg::Missing));
        for (superblock, (_, write_mostly)) in supers.iter_mut().zip(present) {
            if write_mostly {
                superblock.devflags |= Super1::WRITE_MOSTLY;
            }
        }
        let mut writes = writes(places, &supers)?;
        if let Some(bitmap) = &array.bitmap {
            writes.iter_mut().try_for_each(|write| write.add_bitmap(bitmap))?;
        }
        Ok(Self { writes, layout, sync, has_chunk_of_ssds })
    }

    /// Creates the files, and writes all metadata of the plan.
    ///
    /// # Errors
    /// A member cannot be written; the previous contents are restored.
    pub(crate) fn write(&self) -> Result<(), Failure> {
        write_all(&self.writes)
    }
}

impl MemberWrite {
    fn add_bitmap(&mut self, bitmap: &NewBitmap) -> Result<(), Failure> {
        let superblock = Superblock::from(self.superblock.clone());
        // A device of at least this size is assumed: the end of the data and of the superblock.
        let end = Sectors(superblock.data_offset().0 + self.superblock.data_size.0);
        let size = end.max(Sectors(superblock.super_offset().0 + 16));
        let room = superblock.bitmap_room(size).map_err(Failure::usage)?;
        let bytes = bitmap.encode(&superblock).map_err(Failure::usage)?;
        self.bitmap = room.map(|room| (room.start, bytes));
        Ok(())
    }
}

impl InitialSync {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::AssumedClean | Self::Degraded | Self::Holes | Self::NoRedundancy => "none",
            Self::Recovery => "recovery",
            Self::Resync => "resync",
        }
    }

    pub(crate) fn reason(self, level: Level) -> &'static str {
        let mirrors = level.has_copies();
        match self {
            Self::AssumedClean if mirrors => "--assume-clean says that copies are equal already",
            Self::AssumedClean => "--assume-clean says that parity is right already",
            Self::Degraded if mirrors => "slots are missing, and each chunk has one copy",
            Self::Degraded => "slots are missing; parity is made as data is written",
            Self::Holes if mirrors => {
                "the members are all holes, which read as zeros, so that copies are equal"
            }
            Self::Holes => {
                "the members are all holes, which read as zeros, and the parity of zeros is zero"
            }
            Self::NoRedundancy => {
                "the level has no redundancy; a member that fails takes all along"
            }
            Self::Recovery => "serve fills the last member from the others",
            Self::Resync if mirrors => "serve makes the copies equal",
            Self::Resync => "serve makes parity agree with the data",
        }
    }
}

/// Layout of the array that the planned superblocks describe.
fn layout_of(supers: &[Super1], slots: usize) -> Result<Layout, Failure> {
    let first = supers.first().ok_or_else(|| Failure::usage("no member given"))?;
    let sizes: Vec<Sectors> = supers.iter().take(slots).map(Super1::used_size).collect();
    let Super1 { level, layout, raid_disks, chunk, size, .. } = *first;
    Layout::new(level, layout, raid_disks, chunk, size, &sizes).map_err(Failure::usage)
}

/// Slots of the array that have a member.
fn filled(array: &NewArray) -> SlotSet {
    let slots = (0_u16..).map(Slot).zip(&array.slots);
    slots.filter(|(_, member)| member.is_some()).map(|(slot, _)| slot).collect()
}

fn plan(array: &NewArray, places: &[MemberTarget]) -> Result<Vec<Super1>, Failure> {
    array.plan().map_err(|error| match error {
        weft_ondisk::CreateError::TooSmall { member, found, expected } => {
            let present = places.iter().filter_map(MemberTarget::label).nth(member);
            Failure::failed(format!(
                "{}: size: found {}, expected at least {} for data and metadata; use larger \
                 members, or a smaller --chunk or --size",
                present.unwrap_or("member"),
                size::human(found.bytes()),
                size::human(expected.bytes()),
            ))
        }
        other => Failure::usage(other),
    })
}

/// Whether the data of every slot is a hole, which reads as zeros.
fn all_holes(places: &[MemberTarget], slots: usize, supers: &[Super1]) -> bool {
    let slotted = places.iter().take(slots).filter(|place| !matches!(place, MemberTarget::Missing));
    slotted.zip(supers).all(|(place, superblock)| match place {
        MemberTarget::Missing | MemberTarget::New { .. } => true,
        MemberTarget::Old { looked, .. } => {
            looked.probe.is_hole(superblock.data_offset, superblock.size)
        }
    })
}

fn writes(places: Vec<MemberTarget>, supers: &[Super1]) -> Result<Vec<MemberWrite>, Failure> {
    let present = places.into_iter().filter(|place| !matches!(place, MemberTarget::Missing));
    let mut writes = Vec::with_capacity(supers.len());
    for (place, superblock) in present.zip(supers) {
        let superblock = superblock.clone();
        writes.push(match place {
            MemberTarget::Missing => continue,
            MemberTarget::New { path, label, size } => {
                let (erase, kept) = (Vec::new(), Vec::new());
                let make = Some(size.bytes());
                MemberWrite { path, label, make, superblock, bitmap: None, erase, kept }
            }
            MemberTarget::Old { path, looked } => {
                let own = superblock.super_offset;
                let mut erase = looked.superblock_places()?;
                let mut kept = Vec::new();
                for foreign in looked.every_foreign()? {
                    let block = block_of(foreign.byte, looked.probe.size());
                    if block == own || erase.contains(&block) {
                        continue;
                    }
                    if overlaps_data(block, &superblock) {
                        kept.push(foreign);
                    } else {
                        erase.push(block);
                    }
                }
                erase.retain(|place| *place != own);
                let label = looked.label;
                MemberWrite { path, label, make: None, superblock, bitmap: None, erase, kept }
            }
        });
    }
    Ok(writes)
}

/// First sector of the block, of a superblock's size, that contains the signature at `byte`.
fn block_of(byte: u64, member_size: Sectors) -> Sectors {
    let blocks = SUPER_BYTES as u64;
    let last = member_size.0.saturating_sub(Bytes(blocks).sectors_floor().0);
    Sectors(Bytes(byte / blocks * blocks).sectors_floor().0.min(last))
}

/// Whether a block is in the array's data on the member. The content of such a block may belong to
/// the array: with metadata at the end, the first block of a file system on the array is the first
/// block of a member.
fn overlaps_data(block: Sectors, superblock: &Super1) -> bool {
    let end = block.0 + Bytes(SUPER_BYTES as u64).sectors_floor().0;
    let data = superblock.data_offset.0;
    end > data && block.0 < data + superblock.data_size.0
}
