//! Assembly: which members are current, and whether the array may be served.
//!
//! Assembly is a pure function: it takes the parsed metadata of every candidate, and returns an
//! [`Assembly`] or a [`Refused`]. `assemble`, `cat`, `serve` and every simulated restart use it.
//!
//! Source   md-ondisk.md §8, which also says where Linux 6.12 and mdadm 4.2 differ

mod decision;
pub mod journal;
mod layout;
mod reshape;
mod resize;
mod same_slot;
pub mod states;

use std::collections::BTreeSet;

use thiserror::Error;
use weft_ondisk::{
    BadBlocks, Bitmap, CreateError, Logs, Metadata, MetadataError, NewArray, Superblock, Uuid,
};
use weft_units::{FRAME_BYTES, MemberIndex, SectorRange, Sectors, Slot};

use crate::contract::member::MemberInfo;
use crate::knobs::StripeSize;
use crate::layout::Layout;
use crate::layout::geometry::Geometry;

pub use states::AssemblyState;

/// Device that may be a member, with the metadata that was found on it.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Device of the member: index, label and size.
    pub member: MemberInfo,
    /// Superblock of the device or, as a sentence, the reason why it has none.
    pub superblock: Result<Box<Superblock>, String>,
    /// Bitmap and logs that the superblock refers to.
    pub logs: Logs,
    /// Sector at which a truncated image ends. `member.size` is the size that the image should
    /// have. `None` if the image is complete.
    pub cut_at: Option<Sectors>,
    /// Locations of a possible further superblock that could not be read, one sentence each.
    pub unreadable: Vec<String>,
}

impl Candidate {
    /// Candidate with the given superblock, and without bitmap or logs.
    #[must_use]
    pub fn with_superblock(member: MemberInfo, superblock: impl Into<Superblock>) -> Self {
        let (superblock, logs) = (superblock.into(), Logs::default());
        Self::new(member, Ok(Metadata { superblock, logs, uncut: None, unreadable: Vec::new() }))
    }

    /// Candidates for the members of a new array, labelled `disk0` and so on: those with a slot in
    /// order, then spares.
    ///
    /// # Errors
    /// The array cannot be created with these values.
    pub fn of_new(array: &NewArray) -> Result<Vec<Self>, CreateError> {
        let members = array.slots.iter().flatten().chain(&array.spares);
        let members = members.zip(array.plan()?).zip(0..);
        let candidates = members.map(|((new, superblock), index)| {
            let label = format!("disk{index}");
            Self::with_superblock(
                MemberInfo::of_size(MemberIndex(index), label, new.size),
                superblock,
            )
        });
        Ok(candidates.collect())
    }

    /// Candidate without a superblock, for the given reason.
    #[must_use]
    pub fn silent(member: MemberInfo, reason: String) -> Self {
        let (logs, unreadable) = (Logs::default(), Vec::new());
        Self { member, superblock: Err(reason), logs, cut_at: None, unreadable }
    }

    /// Candidate with the metadata that was read from the device, or with the error of reading it.
    #[must_use]
    pub fn new(member: MemberInfo, metadata: Result<Metadata, MetadataError>) -> Self {
        match metadata {
            Ok(Metadata { superblock, logs, uncut, unreadable }) => {
                let cut_at = uncut.map(|_| member.size);
                let member = MemberInfo { size: uncut.unwrap_or(member.size), ..member };
                Self { member, superblock: Ok(Box::new(superblock)), logs, cut_at, unreadable }
            }
            Err(error) => Self::silent(member, error.to_string()),
        }
    }
}

/// Options of an assembly: consent to risks, and choice of the array.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Never write to a member. Many reasons for a refusal do not apply then.
    pub read_only: bool,
    /// Consent to an array that lacks members which its superblocks record as present (mdadm:
    /// `--run`).
    pub run: bool,
    /// Consent to an array that is dirty and degraded, so that reconstructed data may be wrong.
    pub force_dirty: bool,
    /// Consent to an array without its journal, which may hold data that the members lack. The
    /// consent counts only together with `read_only`.
    pub without_journal: bool,
    /// Use only members of the array with this uuid; `None`: use members of any array.
    pub uuid: Option<Uuid>,
    /// Use only members of the array with this name, which may leave out the host of `host:name`;
    /// `None`: use members of any array.
    pub name: Option<String>,
}

impl Options {
    /// Whether a member with this superblock is of the array that is asked for by uuid or name.
    #[must_use]
    pub fn selects(&self, superblock: &Superblock) -> bool {
        let found = superblock.name();
        // `host:name` is also called `name`.
        let short = found.split_once(':').map(|(_, name)| name);
        self.uuid.is_none_or(|uuid| uuid == superblock.set_uuid())
            && self.name.as_ref().is_none_or(|name| *name == found || Some(name.as_str()) == short)
    }
}

/// State of a slot in an assembly, with the member that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotState {
    /// The slot has a member that holds all data of the slot.
    InSync(Box<Member>),
    /// The slot has no member.
    Missing,
    /// The slot's member is under recovery: it holds the slot's data below `recovery_offset`.
    Rebuilding {
        /// Member under recovery.
        member: Box<Member>,
        /// Number of data sectors that are recovered, counted from the start of the data.
        recovery_offset: Sectors,
    },
}

impl SlotState {
    /// Member in the slot; `None` if the slot has none.
    #[must_use]
    pub fn member(&self) -> Option<&Member> {
        match self {
            Self::InSync(member) | Self::Rebuilding { member, .. } => Some(member),
            Self::Missing => None,
        }
    }

    /// Member in the slot; `None` unless it holds all data of the slot.
    fn in_sync(&self) -> Option<&Member> {
        match self {
            Self::InSync(member) => Some(member),
            Self::Missing | Self::Rebuilding { .. } => None,
        }
    }
}

/// Member that the assembly uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Device of the member: index, label and size.
    pub info: MemberInfo,
    /// Superblock of the member as it was read, except that a renumbered spare has its new number.
    pub superblock: Superblock,
    /// Bitmap and logs that the superblock refers to.
    pub logs: Logs,
    /// Data sectors of stripes with parity that was being written when the array was not stopped
    /// cleanly, according to the member's partial parity log (PPL).
    pub suspect: Vec<SectorRange>,
    /// Sector at which a truncated image ends before the member's data does; `None` if the image is
    /// complete.
    pub cut_at: Option<Sectors>,
}

impl Member {
    /// Data sectors of the member that must not be read: those in its bad-block log, those in
    /// `suspect`, and those past the end of a truncated image.
    #[must_use]
    pub fn bad_blocks(&self) -> BadBlocks {
        let mut bad = match &self.logs.bad_blocks {
            Some(Ok(bad)) => bad.clone(),
            Some(Err(_)) | None => BadBlocks::default(),
        };
        for range in &self.suspect {
            bad.insert(*range);
        }
        if let Some(end) = self.cut_at {
            let data = self.superblock.data_range();
            let first = Sectors(end.0.saturating_sub(data.start.0));
            if first < data.len {
                bad.insert(SectorRange::new(first.0, data.len.0 - first.0));
            }
        }
        bad
    }
}

/// Member that is filled beside the in-sync member of its slot, to replace it.
#[derive(Clone, Debug)]
pub struct Replacement {
    /// Slot of both members.
    pub slot: Slot,
    /// The replacement: the member that is filled.
    pub member: Member,
    /// Data sector up to which the member has the data of its slot.
    pub recovery_offset: Sectors,
}

/// Reshape under way: the array has two layouts, each in a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reshaping {
    /// Geometry of the part that is reshaped.
    pub after: Geometry,
    /// Array sector at which the two parts meet: the part below is reshaped.
    pub position: Sectors,
    /// Whether the reshape goes on only when a command asks for it
    /// ([`SyncAction::Reshape`](crate::SyncAction::Reshape)). [`assemble`] sets this to false.
    pub held: bool,
}

impl Reshaping {
    /// Number of frames for `stripes` stripes of each geometry, and for the copies of the reshape:
    /// a quarter of all frames, but at least two units.
    fn cache_frames(&self, before: &Geometry, stripe_size: StripeSize, stripes: u32) -> u32 {
        let of = |of: &Geometry| stripe_size.stripe_frames(of.members(), of.chunk().bytes());
        let rows = before.chunk().max(self.after.chunk()).bytes().0 / FRAME_BYTES;
        let unit = rows as u32 * u32::from(self.after.data_members());
        let of_stripes = of(before).max(of(&self.after)) * stripes * 2;
        // A quarter of all frames is for the copies, but at least two units.
        (of_stripes + of_stripes.div_ceil(3)).max(of_stripes + 2 * unit)
    }
}

/// Device that the assembly does not use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// Device of the member: index, label and size.
    pub member: MemberInfo,
    /// Reason why the device is not used, as a sentence for people.
    pub reason: String,
}

/// Array that may be served.
#[derive(Clone, Debug)]
pub struct Assembly {
    /// Level, layout, chunk and sizes of the array.
    pub layout: Layout,
    /// Content of each slot, in order.
    pub slots: Vec<SlotState>,
    /// Members that have no slot.
    pub spares: Vec<Member>,
    /// Members that are filled to replace another member at their slot.
    pub replacements: Vec<Replacement>,
    /// Reshape under way, with `layout` as the layout before it; `None` if there is none.
    pub reshape: Option<Reshaping>,
    /// Devices that are not used, with reasons.
    pub dropped: Vec<Dropped>,
    /// Uuid of the array.
    pub uuid: Uuid,
    /// Name of the array, with the name of its host (`host:name`) if it has one.
    pub name: String,
    /// Update count of the freshest superblock or, if that is higher, of a bitmap.
    pub events: u64,
    /// Data sector of the members from which parity may be wrong; `None` if the array is clean.
    pub resync_from: Option<Sectors>,
    /// Whether no member may be written.
    pub read_only: bool,
    /// Whether the user has given the array's geometry, as with `mdadm --build`: no superblock is
    /// ever written. [`assemble`] sets this to false.
    pub is_built: bool,
    /// States of the array that an administrator should know about.
    pub states: Vec<AssemblyState>,
    /// Notes for people, one sentence each.
    pub notes: Vec<String>,
}

/// Refusal to serve an array with the given options. No member was written. Advice on what to do
/// next is [`AssemblyState::next`] of its state.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{reason}")]
pub struct Refused {
    /// State of the array that led to the refusal.
    pub state: AssemblyState,
    /// Reason for the refusal: what was found and what was expected.
    pub reason: String,
    /// Devices that are not used, with reasons.
    pub dropped: Vec<Dropped>,
}

/// Decides which members are used and whether the array may be served.
///
/// # Errors
/// [`Refused`] says what was found, what was expected and what to do next.
pub fn assemble(candidates: &[Candidate], options: &Options) -> Result<Assembly, Refused> {
    decision::decide(candidates, options)
}

impl Assembly {
    /// Bitmap of the array: the bitmap of the freshest in-sync member, because bits are set on all
    /// members before data is written and are cleared after it. `None` if the assembly is
    /// read-only, or if the freshest superblock names no bitmap: in that case the bitmap was being
    /// removed, and bits may be missing.
    #[must_use]
    pub fn bitmap(&self) -> Option<&Bitmap> {
        let in_sync = self.slots.iter().filter_map(SlotState::in_sync);
        let with_bitmap = in_sync.clone().filter_map(|member| match &member.logs.bitmap {
            Some(Ok(bitmap)) => Some((member.superblock.events(), &**bitmap)),
            Some(Err(_)) | None => None,
        });
        let found = with_bitmap.rev().max_by_key(|(events, bitmap)| (*events, !bitmap.is_stale()));
        let freshest = in_sync.map(|member| member.superblock.events()).max();
        let found = found.filter(|(events, _)| Some(*events) == freshest && !self.read_only);
        found.map(|(_, bitmap)| bitmap)
    }

    /// The bitmap of [`Assembly::bitmap`], with every bit added that is set on another equally
    /// fresh in-sync member. Bits are set and cleared on all members, so a bit that differs was
    /// being changed when the last run ended, or was lost. Also returns the number of chunks in
    /// which the members differ. `None` without a bitmap.
    #[must_use]
    pub fn united_bitmap(&self) -> Option<(Bitmap, usize)> {
        let mut united = self.bitmap()?.clone();
        let in_sync = || self.slots.iter().filter_map(SlotState::in_sync);
        let freshest = in_sync().map(|member| member.superblock.events()).max();
        let stale = united.is_stale();
        let others = in_sync().filter(|it| Some(it.superblock.events()) == freshest);
        let others = others.filter_map(|it| it.logs.bitmap.as_ref()?.as_ref().ok());
        let others: Vec<&Bitmap> =
            others.map(|it| &**it).filter(|it| stale || !it.is_stale()).collect();
        others.iter().for_each(|other| united.unite(other));
        let differ: BTreeSet<u64> =
            others.iter().flat_map(|other| united.dirty_beside(other)).collect();
        Some((united, differ.len()))
    }

    /// Number of sectors from the superblock to the bitmap, according to the freshest in-sync
    /// member that has a bitmap; `None` if the array has no bitmap.
    pub(crate) fn bitmap_offset(&self) -> Option<i32> {
        self.bitmap()?;
        let superblocks = self.slots.iter().filter_map(|state| match state {
            SlotState::InSync(member) => Some(&member.superblock),
            SlotState::Missing | SlotState::Rebuilding { .. } => None,
        });
        let named = superblocks.filter_map(|it| Some((it.events(), it.bitmap_offset()?)));
        named.rev().max_by_key(|(events, _)| *events).map(|(_, offset)| offset)
    }

    /// Number of slots without an in-sync member.
    #[must_use]
    pub fn degraded(&self) -> usize {
        self.slots.iter().filter(|slot| !matches!(slot, SlotState::InSync(_))).count()
    }

    /// Number of frames for one stripe of the stripe cache; 0 for a level without a stripe cache.
    #[must_use]
    pub fn stripe_frames(&self, stripe_size: StripeSize) -> u32 {
        self.layout.parity().map_or(0, |geometry| {
            stripe_size.stripe_frames(geometry.members(), geometry.chunk().bytes())
        })
    }

    /// Number of frames that the engine needs for `stripes` stripes of the stripe cache, or during
    /// a reshape of two stripe caches and its copies. For mirrors, the number for a resync with as
    /// many units in progress, at most 32. 0 for RAID 0 and linear.
    #[must_use]
    pub fn cache_frames(&self, stripe_size: StripeSize, stripes: u32) -> u32 {
        match &self.layout {
            Layout::Mirrors(places) => places.resync_frames(stripes),
            Layout::Parity(before) => match &self.reshape {
                Some(reshape) => reshape.cache_frames(before, stripe_size, stripes),
                None => self.stripe_frames(stripe_size) * stripes,
            },
            Layout::Striped(_) => 0,
        }
    }

    /// Every member in use, each with its slot; `None` for a spare. A replacement and its original
    /// have the same slot.
    pub fn members(&self) -> impl Iterator<Item = (Option<Slot>, &Member)> {
        let slotted = self.slots.iter().zip(0u16..);
        let slotted = slotted.filter_map(|(state, slot)| Some((Some(Slot(slot)), state.member()?)));
        let replacements = self.replacements.iter().map(|it| (Some(it.slot), &it.member));
        slotted.chain(replacements).chain(self.spares.iter().map(|member| (None, member)))
    }
}

#[cfg(test)]
mod tests;
