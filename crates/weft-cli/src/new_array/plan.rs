//! The plan of a new array: the superblock of every member, and how its redundancy becomes right.

use std::path::PathBuf;

use weft_engine::layout::geometry::Geometry;
use weft_ondisk::probe::Foreign;
use weft_ondisk::{NewArray, ResyncOffset, Role, SUPER_BYTES, Super1};
use weft_units::{Bytes, Sectors};

use super::NewArrayOptions;
use super::options::described;
use super::places::{Place, members_of, places, refuse_foreign};
use super::write::write_all;
use crate::outcome::Failure;
use crate::size;

/// Everything that is to be written, and why.
pub(crate) struct Planned {
    pub(crate) writes: Vec<MemberWrite>,
    pub(crate) geometry: Geometry,
    pub(crate) sync: InitialSync,
}

/// Metadata to be written to one member.
pub(crate) struct MemberWrite {
    pub(crate) path: PathBuf,
    pub(crate) label: String,
    /// Length of a file to be made.
    pub(crate) make: Option<Bytes>,
    pub(crate) superblock: Super1,
    /// Blocks with signatures of others, other superblocks too, which would make it unclear who the
    /// member belongs to.
    pub(crate) erase: Vec<Sectors>,
    /// Signatures of others that stay, since they are where data is.
    pub(crate) kept: Vec<Foreign>,
}

/// Way in which redundancy becomes right.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum InitialSync {
    AssumedClean,
    Degraded,
    Holes,
    Recovery,
    Resync,
}

impl Planned {
    /// The plan for an array of these options; members are looked at and not changed.
    ///
    /// # Errors
    /// The options fit no array, or a member holds something and `--force` is not given.
    pub(crate) fn of(arguments: &NewArrayOptions) -> Result<Self, Failure> {
        let mut array = described(arguments)?;
        let places = places(arguments)?;
        if !arguments.force {
            refuse_foreign(&places)?;
        }
        let (slots, spares) = members_of(&places, arguments.raid_devices)?;
        (array.slots, array.spares) = (slots, spares);
        let mut supers = plan(&array, &places)?;
        let mut sync =
            if arguments.assume_clean { InitialSync::AssumedClean } else { InitialSync::Recovery };
        if all_holes(&places, arguments.raid_devices, &supers) {
            array.assume_clean = true;
            sync = InitialSync::Holes;
            supers = plan(&array, &places)?;
        }
        let first = supers.first().ok_or_else(|| Failure::usage("no member given"))?;
        if sync == InitialSync::Recovery {
            let spare = supers.iter().any(|superblock| superblock.own_role() == Ok(Role::Spare));
            let missing = array.slots.iter().any(Option::is_none);
            sync = match first.resync_offset {
                ResyncOffset::At(_) => InitialSync::Resync,
                ResyncOffset::Clean if spare => InitialSync::Recovery,
                ResyncOffset::Clean if missing => InitialSync::Degraded,
                ResyncOffset::Clean => InitialSync::AssumedClean,
            };
        }
        // What this release creates it must be able to serve.
        let geometry =
            Geometry::new(first.level, first.layout, first.raid_disks, first.chunk, first.size)
                .map_err(Failure::usage)?;

        Ok(Self { writes: writes(places, &supers)?, geometry, sync })
    }

    /// Makes the files and writes the superblocks.
    ///
    /// # Errors
    /// A member cannot be written; what was there before is put back.
    pub(crate) fn write(&self) -> Result<(), Failure> {
        write_all(&self.writes)
    }
}

impl InitialSync {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::AssumedClean | Self::Degraded | Self::Holes => "none",
            Self::Recovery => "recovery",
            Self::Resync => "resync",
        }
    }

    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::AssumedClean => "--assume-clean says that parity is right already",
            Self::Degraded => "slots are missing; parity is made as data is written",
            Self::Holes => {
                "the members are all holes, which read as zeros, and the parity of zeros is zero"
            }
            Self::Recovery => "serve fills the last member from the others",
            Self::Resync => "serve makes parity agree with the data",
        }
    }
}

fn plan(array: &NewArray, places: &[Place]) -> Result<Vec<Super1>, Failure> {
    array.plan().map_err(|error| match error {
        weft_ondisk::CreateError::TooSmall { member, found, expected } => {
            let present = places.iter().filter_map(Place::label).nth(member);
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

/// Whether the data of every slot reads as zeros because nothing was ever written there.
fn all_holes(places: &[Place], slots: usize, supers: &[Super1]) -> bool {
    let slotted = places.iter().take(slots).filter(|place| !matches!(place, Place::Missing));
    slotted.zip(supers).all(|(place, superblock)| match place {
        Place::Missing | Place::New { .. } => true,
        Place::Old { looked, .. } => looked.is_hole(superblock.data_offset, superblock.size),
    })
}

fn writes(places: Vec<Place>, supers: &[Super1]) -> Result<Vec<MemberWrite>, Failure> {
    let present = places.into_iter().filter(|place| !matches!(place, Place::Missing));
    let mut writes = Vec::with_capacity(supers.len());
    for (place, superblock) in present.zip(supers) {
        let superblock = superblock.clone();
        writes.push(match place {
            Place::Missing => continue,
            Place::New { path, label, size } => {
                let (erase, kept) = (Vec::new(), Vec::new());
                MemberWrite { path, label, make: Some(size.bytes()), superblock, erase, kept }
            }
            Place::Old { path, looked } => {
                let own = superblock.super_offset;
                let mut erase = looked.superblock_places()?;
                let mut kept = Vec::new();
                for foreign in looked.every_foreign()? {
                    let block = block_of(foreign.byte, looked.size);
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
                MemberWrite { path, label: looked.label, make: None, superblock, erase, kept }
            }
        });
    }
    Ok(writes)
}

/// The block of the size of a superblock that holds a signature.
fn block_of(byte: u64, member_size: Sectors) -> Sectors {
    let blocks = SUPER_BYTES as u64;
    let last = member_size.0.saturating_sub(Bytes(blocks).sectors_floor().0);
    Sectors(Bytes(byte / blocks * blocks).sectors_floor().0.min(last))
}

/// Whether it would be data of the array, which no superblock says anything about: with metadata at
/// the end, the first block of a file system on the array is the first block of a member.
fn overlaps_data(block: Sectors, superblock: &Super1) -> bool {
    let end = block.0 + Bytes(SUPER_BYTES as u64).sectors_floor().0;
    let data = superblock.data_offset.0;
    end > data && block.0 < data + superblock.data_size.0
}
