//! Assembly: which members are believed, and whether the array may be served.
//!
//! Assembly is pure: parsed metadata of every candidate goes in, an [`Assembly`] or a [`Refused`]
//! comes out. `assemble`, `cat`, `serve` and every simulated restart use it.
//!
//! Source   md-ondisk.md §8, which also says where Linux 6.12 and mdadm 4.2 differ

mod decision;
pub mod journal;
mod layout;
pub mod states;

use std::collections::BTreeSet;

use thiserror::Error;
use weft_ondisk::{
    BadBlocks, Bitmap, CreateError, Logs, Metadata, MetadataError, NewArray, Superblock, Uuid,
};
use weft_units::{MemberIndex, SectorRange, Sectors, Slot};

use crate::contract::member::MemberInfo;
use crate::knobs::StripeSize;
use crate::layout::Layout;

pub use states::AssemblyState;

/// A device that may be a member, with what was found on it.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Device of the member: index, label and size.
    pub member: MemberInfo,
    /// Superblock of the device, or a sentence that says why there is none.
    pub superblock: Result<Box<Superblock>, String>,
    /// Bitmap and logs that the superblock points to.
    pub logs: Logs,
    /// Sector at which a truncated image ends, before its data does; `member.size` is the size that
    /// it should have.
    pub cut_at: Option<Sectors>,
    /// Places where another superblock could have been and that cannot be read; a sentence each.
    pub unreadable: Vec<String>,
}

impl Candidate {
    /// A device with this superblock, which points to nothing.
    #[must_use]
    pub fn with_superblock(member: MemberInfo, superblock: impl Into<Superblock>) -> Self {
        let (superblock, logs) = (superblock.into(), Logs::default());
        Self::new(member, Ok(Metadata { superblock, logs, uncut: None, unreadable: Vec::new() }))
    }

    /// The members of a new array with as many as it has slots, `disk0` and so on, in order.
    ///
    /// # Errors
    /// There can be no such array.
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

    /// A device without a superblock, and the reason.
    #[must_use]
    pub fn silent(member: MemberInfo, reason: String) -> Self {
        let (logs, unreadable) = (Logs::default(), Vec::new());
        Self { member, superblock: Err(reason), logs, cut_at: None, unreadable }
    }

    /// A device with the metadata that was read from it, or the error.
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

/// Options of an assembly: consent, and choices among members.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Never write a byte; many refusals then do not apply.
    pub read_only: bool,
    /// Consent to a set that is newly degraded (mdadm: `--run`).
    pub run: bool,
    /// Consent to an array that is dirty and degraded: its reconstructed data may be wrong.
    pub force_dirty: bool,
    /// Consent to an array without its journal, which may hold what members do not; read-only.
    pub without_journal: bool,
    /// Only members of this array.
    pub uuid: Option<Uuid>,
    /// Only members of the array of this name.
    pub name: Option<String>,
}

/// Content of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotState {
    /// A member with all of its data.
    InSync(Box<Member>),
    /// No member.
    Missing,
    /// A member that is being rebuilt: it has its data below `recovery_offset`.
    Rebuilding {
        /// The member.
        member: Box<Member>,
        /// Data sectors that were recovered.
        recovery_offset: Sectors,
    },
}

impl SlotState {
    /// The member, if there is one.
    #[must_use]
    pub fn member(&self) -> Option<&Member> {
        match self {
            Self::InSync(member) | Self::Rebuilding { member, .. } => Some(member),
            Self::Missing => None,
        }
    }

    /// The member, if it has all of its data.
    fn in_sync(&self) -> Option<&Member> {
        match self {
            Self::InSync(member) => Some(member),
            Self::Missing | Self::Rebuilding { .. } => None,
        }
    }
}

/// A member that is believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Device of the member: index, label and size.
    pub info: MemberInfo,
    /// Superblock of the member as it was read; a renumbered spare has its new number.
    pub superblock: Superblock,
    /// Bitmap and logs that its superblock points to.
    pub logs: Logs,
    /// Sectors of its data with parity that was being written when the array was not stopped.
    pub suspect: Vec<SectorRange>,
    /// Sector at which a truncated image ends, before its data does.
    pub cut_at: Option<Sectors>,
}

impl Member {
    /// Sectors of its data with content that is not believed.
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
            let first = Sectors(end.0.saturating_sub(self.superblock.data_offset().0));
            let used = self.superblock.used_size();
            if first < used {
                bad.insert(SectorRange::new(first.0, used.0 - first.0));
            }
        }
        bad
    }
}

/// A device that is not used, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// Device of the member: index, label and size.
    pub member: MemberInfo,
    /// Reason, as a sentence for people.
    pub reason: String,
}

/// An array that may be served.
#[derive(Clone, Debug)]
pub struct Assembly {
    /// Level, layout, chunk and sizes.
    pub layout: Layout,
    /// Content of each slot.
    pub slots: Vec<SlotState>,
    /// Members without a slot.
    pub spares: Vec<Member>,
    /// Devices that are not used.
    pub dropped: Vec<Dropped>,
    /// The array's identity.
    pub uuid: Uuid,
    /// Name of the array, with that of its host if it has one.
    pub name: String,
    /// Freshest update count.
    pub events: u64,
    /// Stripes at or above this member data sector may have wrong parity; `None` when clean.
    pub resync_from: Option<Sectors>,
    /// No byte of any member may be written.
    pub read_only: bool,
    /// States that need attention.
    pub states: Vec<AssemblyState>,
    /// Notes for people, one sentence each.
    pub notes: Vec<String>,
}

/// An array that may not be served as asked. Nothing was written.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{reason}")]
pub struct Refused {
    /// State that refuses the array.
    pub state: AssemblyState,
    /// Reason: what was found and what was expected.
    pub reason: String,
    /// The option that overrides it, if any, and what may be lost by it.
    pub way_out: Option<String>,
    /// Devices that are not used, with the reasons.
    pub dropped: Vec<Dropped>,
}

/// Decides which members are believed and whether the array may be served.
///
/// # Errors
/// [`Refused`] says what was found, what was expected and which option overrides it.
pub fn assemble(candidates: &[Candidate], options: &Options) -> Result<Assembly, Refused> {
    decision::decide(candidates, options)
}

impl Assembly {
    /// The bitmap of the array, if it may be written: that of the member in sync with the freshest
    /// superblock, because bits are set on all members before data and cleared after it. `None` if
    /// that superblock names none: the bitmap was then being removed, and bits may be missing.
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

    /// [`Assembly::bitmap`] with every bit that another member in sync with an equally fresh
    /// superblock has. Bits are set and cleared on all of them, so a bit that one of them lacks was
    /// being set or cleared when the last run ended, or was lost. Also returns the number of chunks
    /// in which they differ.
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

    /// Sectors from the superblock to that bitmap, by the freshest member that names it.
    pub(crate) fn bitmap_offset(&self) -> Option<i32> {
        self.bitmap()?;
        let superblocks = self.slots.iter().filter_map(|state| match state {
            SlotState::InSync(member) => Some(&member.superblock),
            SlotState::Missing | SlotState::Rebuilding { .. } => None,
        });
        let named = superblocks.filter_map(|it| Some((it.events(), it.bitmap_offset()?)));
        named.rev().max_by_key(|(events, _)| *events).map(|(_, offset)| offset)
    }

    /// Number of slots without a member that has all of its data.
    #[must_use]
    pub fn degraded(&self) -> usize {
        self.slots.iter().filter(|slot| !matches!(slot, SlotState::InSync(_))).count()
    }

    /// Frames that one stripe of the stripe cache takes; 0 for a level without a stripe cache.
    #[must_use]
    pub fn stripe_frames(&self, stripe_size: StripeSize) -> u32 {
        self.layout.parity().map_or(0, |geometry| {
            stripe_size.stripe_frames(geometry.members(), geometry.chunk().bytes())
        })
    }

    /// Frames that the engine works in: this many stripes of the stripe cache, or as many units of
    /// a resync of mirrors, at most 32.
    #[must_use]
    pub fn cache_frames(&self, stripe_size: StripeSize, stripes: u32) -> u32 {
        match &self.layout {
            Layout::Mirrors(places) => places.resync_frames(stripes),
            Layout::Parity(_) => self.stripe_frames(stripe_size) * stripes,
            Layout::Striped(_) => 0,
        }
    }

    /// Every member in use, with its slot.
    pub fn members(&self) -> impl Iterator<Item = (Option<Slot>, &Member)> {
        let slotted = self.slots.iter().zip(0u16..);
        let slotted = slotted.filter_map(|(state, slot)| Some((Some(Slot(slot)), state.member()?)));
        slotted.chain(self.spares.iter().map(|member| (None, member)))
    }
}

#[cfg(test)]
mod tests;
