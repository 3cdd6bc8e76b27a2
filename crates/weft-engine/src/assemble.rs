//! Which members are believed, and may the array be served?
//!
//! Pure: parsed metadata of every candidate goes in, an [`Assembly`] or a [`Refused`] comes out.
//! `assemble`, `cat`, `serve` and every simulated restart take the same way through here.
//!
//! Source   md-ondisk.md §8; Linux 6.12 and mdadm 4.2 behaviour where they differ is said there

use thiserror::Error;
use weft_ondisk::{
    DeviceIdentity, Features, JournalState, Logs, Metadata, MetadataError, Role, Superblock, Uuid,
};
use weft_units::{Sectors, Slot};

use crate::config::MemberInfo;
use crate::raid::geometry::Geometry;
use crate::raid::parity::stripe_size::StripeSize;

/// A device that may be a member, with what was found on it.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The device.
    pub member: MemberInfo,
    /// Its superblock, or why there is none, as a sentence.
    pub superblock: Result<Box<Superblock>, String>,
    /// What the superblock points to.
    pub logs: Logs,
}

impl Candidate {
    /// A device with this superblock, which points to nothing.
    #[must_use]
    pub fn with_superblock(member: MemberInfo, superblock: impl Into<Superblock>) -> Self {
        Self::new(member, Ok(Metadata { superblock: superblock.into(), logs: Logs::default() }))
    }

    /// A device with what was read from it, or why that could not be.
    #[must_use]
    pub fn new(member: MemberInfo, metadata: Result<Metadata, MetadataError>) -> Self {
        match metadata {
            Ok(Metadata { superblock, logs }) => {
                Self { member, superblock: Ok(Box::new(superblock)), logs }
            }
            Err(error) => {
                Self { member, superblock: Err(error.to_string()), logs: Logs::default() }
            }
        }
    }
}

/// What people may ask of an assembly.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Never write a byte; then many refusals do not apply.
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

/// What stands at a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotState {
    /// A member with all of its data.
    InSync(Box<Member>),
    /// Nobody.
    Missing,
    /// A member that is good below `good_to`.
    Rebuilding {
        /// Who.
        member: Box<Member>,
        /// Data sectors of it that are good.
        good_to: Sectors,
    },
}

/// A member that is believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The device.
    pub info: MemberInfo,
    /// Its superblock as it was read.
    pub superblock: Superblock,
    /// What it points to.
    pub logs: Logs,
}

/// A device that is not used, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// Which.
    pub member: MemberInfo,
    /// A sentence for people.
    pub reason: String,
}

/// An array that may be served.
#[derive(Clone, Debug)]
pub struct Assembly {
    /// Level, layout, chunk and sizes.
    pub geometry: Geometry,
    /// What stands at each slot.
    pub slots: Vec<SlotState>,
    /// Members without a slot.
    pub spares: Vec<Member>,
    /// Devices that are not used.
    pub dropped: Vec<Dropped>,
    /// The array's identity.
    pub uuid: Uuid,
    /// Its name.
    pub name: String,
    /// Freshest update count.
    pub events: u64,
    /// Rows at or above this member data sector may have wrong parity; `None` when clean.
    pub resync_from: Option<Sectors>,
    /// No byte of any member may be written.
    pub read_only: bool,
    /// What people should know, one sentence each.
    pub notes: Vec<String>,
}

/// An array that may not be served as asked. Nothing was written.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{reason}")]
pub struct Refused {
    /// What was found and what was expected.
    pub reason: String,
    /// The option that overrides it, if any, and what may be lost by it.
    pub way_out: Option<String>,
    /// What was found of each device.
    pub dropped: Vec<Dropped>,
}

/// Decides.
///
/// # Errors
/// [`Refused`] says what was found, what was expected and which option overrides it.
pub fn assemble(candidates: &[Candidate], options: &Options) -> Result<Assembly, Refused> {
    let mut decision = Decision { dropped: Vec::new(), notes: Vec::new() };
    let mut pool = decision.readable(candidates);
    decision.select(&mut pool, options)?;
    decision.same_array(&pool)?;
    let reference = decision.reference(&pool)?;
    decision.features(&pool[reference].superblock, options)?;
    let reference = pool[reference].clone();
    let current = decision.current(pool, &reference)?;
    decision.place(current, &reference, options)
}

impl Assembly {
    /// Slots without a member that has all of its data.
    #[must_use]
    pub fn degraded(&self) -> usize {
        self.slots.iter().filter(|slot| !matches!(slot, SlotState::InSync(_))).count()
    }

    /// Frames that one row of the stripe cache takes.
    #[must_use]
    pub fn row_frames(&self, stripe_size: StripeSize) -> u32 {
        stripe_size.row_frames(&self.geometry)
    }

    /// Every member in use, with its slot.
    pub fn members(&self) -> impl Iterator<Item = (Option<Slot>, &Member)> {
        let slotted = self.slots.iter().zip(0u16..).filter_map(|(state, slot)| match state {
            SlotState::InSync(member) | SlotState::Rebuilding { member, .. } => {
                Some((Some(Slot(slot)), &**member))
            }
            SlotState::Missing => None,
        });
        slotted.chain(self.spares.iter().map(|member| (None, member)))
    }
}

/// What has been found out so far.
struct Decision {
    dropped: Vec<Dropped>,
    notes: Vec<String>,
}

impl Decision {
    /// Those that have a superblock at all.
    fn readable(&mut self, candidates: &[Candidate]) -> Vec<Member> {
        let mut pool = Vec::new();
        for candidate in candidates {
            match &candidate.superblock {
                Ok(superblock) => pool.push(Member {
                    info: candidate.member.clone(),
                    superblock: (**superblock).clone(),
                    logs: candidate.logs.clone(),
                }),
                Err(reason) => self.drop(candidate.member.clone(), reason.clone()),
            }
        }
        pool
    }

    /// Those of one array: the one asked for, or the only one.
    fn select(&mut self, pool: &mut Vec<Member>, options: &Options) -> Result<(), Refused> {
        let wanted = |superblock: &Superblock| {
            options.uuid.is_none_or(|uuid| uuid == superblock.set_uuid())
                && options.name.as_ref().is_none_or(|name| same_name(name, &superblock.name()))
        };
        let (kept, others) = pool.drain(..).partition(|member| wanted(&member.superblock));
        *pool = kept;
        for member in others {
            let array = array_title(&member.superblock);
            self.drop(member.info, format!("belongs to {array}, which was not asked for"));
        }
        let mut arrays: Vec<&Superblock> = Vec::new();
        for member in pool.iter() {
            if arrays.iter().all(|known| known.set_uuid() != member.superblock.set_uuid()) {
                arrays.push(&member.superblock);
            }
        }
        match arrays.as_slice() {
            [] => {
                let what = match self.dropped.len() {
                    0 => "no member was given".to_owned(),
                    count if options.uuid.is_some() || options.name.is_some() => {
                        format!("no member of the array asked for among {count} devices")
                    }
                    count => format!("no md superblock on any of {count} devices"),
                };
                Err(self.refused(what, None))
            }
            [array] if array.set_uuid() == Uuid([0; 16]) => {
                Err(self
                    .refused("set_uuid: found all zeros, which names no array".to_owned(), None))
            }
            [_] => Ok(()),
            several => {
                let list: Vec<_> = several.iter().map(|array| array_title(array)).collect();
                Err(self.refused(
                    format!("members of {} arrays: {}", several.len(), list.join("; ")),
                    Some("--uuid UUID chooses one".to_owned()),
                ))
            }
        }
    }

    /// What must be the same on every member of an array.
    fn same_array(&self, pool: &[Member]) -> Result<(), Refused> {
        let first = &pool[0];
        for other in &pool[1..] {
            let (a, b) = (&first.superblock, &other.superblock);
            let fields: [(&str, String, String); 7] = [
                ("metadata version", a.version().to_string(), b.version().to_string()),
                ("creation time", a.ctime().secs.to_string(), b.ctime().secs.to_string()),
                ("level", a.level().to_string(), b.level().to_string()),
                ("layout", a.layout().to_string(), b.layout().to_string()),
                ("size", a.size().to_string(), b.size().to_string()),
                ("chunksize", a.chunk().to_string(), b.chunk().to_string()),
                ("raid_disks", a.raid_disks().to_string(), b.raid_disks().to_string()),
            ];
            for (field, on_first, on_other) in fields {
                if on_first != on_other {
                    return Err(self.refused(
                        format!(
                            "{field}: {} has {on_first}, {} has {on_other}, of the same array; \
                             leave one of them out",
                            first.info.label, other.info.label
                        ),
                        None,
                    ));
                }
            }
        }
        for (index, a) in pool.iter().enumerate() {
            for b in &pool[index + 1..] {
                let same_number = a.superblock.dev_number() == b.superblock.dev_number();
                let same_events = a.superblock.events() == b.superblock.events();
                let identity = a.superblock.identity();
                let same_uuid = matches!(identity, DeviceIdentity::Uuid(_))
                    && identity == b.superblock.identity();
                if same_uuid || (same_number && same_events) {
                    return Err(self.refused(
                        format!(
                            "{} and {} have the same {}: one looks like a copy of the other; leave \
                             one of them out",
                            a.info.label,
                            b.info.label,
                            if same_uuid { "device uuid" } else { "device number" },
                        ),
                        None,
                    ));
                }
            }
        }
        Ok(())
    }

    /// The freshest member with a slot. Spares are not asked: their superblocks may lag or lead.
    fn reference(&self, pool: &[Member]) -> Result<usize, Refused> {
        (0..pool.len())
            .filter(|index| matches!(pool[*index].superblock.own_role(), Ok(Role::Active(_))))
            // The first of equals, so that the order of arguments decides nothing but names.
            .max_by_key(|index| (pool[*index].superblock.events(), std::cmp::Reverse(*index)))
            .ok_or_else(|| {
                self.refused("only spares: no member has a slot in the array".to_owned(), None)
            })
    }

    /// Whether everything the array uses is understood well enough.
    fn features(&self, reference: &Superblock, options: &Options) -> Result<(), Refused> {
        let unreadable = [
            (Features::RESHAPE, "a reshape is under way"),
            (Features::REPLACEMENT, "a member is being replaced"),
        ];
        for (feature, why) in unreadable {
            if reference.features().intersects(feature) {
                let reason = format!("feature_map: found {}: {why}", reference.features());
                return Err(self.refused(
                    format!("{reason}; this release cannot read such an array"),
                    Some("let the kernel finish it, then try again".to_owned()),
                ));
            }
        }
        let reasons = reference.refuses_writing();
        if !options.read_only
            && let Some(reason) = reasons.first()
        {
            return Err(self.refused(
                format!("{}: {}, which this release does not keep up", reason.name, reason.what),
                Some("--read-only serves it without writing to any member".to_owned()),
            ));
        }
        Ok(())
    }

    /// Those that may be believed, in order; the rest is dropped with a reason.
    fn current(
        &mut self,
        pool: Vec<Member>,
        reference: &Member,
    ) -> Result<Vec<(Member, Role)>, Refused> {
        let freshest = &reference.superblock;
        let mut current = Vec::new();
        for member in pool {
            let superblock = &member.superblock;
            let label = &member.info.label;
            let events = superblock.events();
            let role = match superblock.own_role() {
                Ok(role) => role,
                Err(error) => {
                    let reason = format!("role: {error}");
                    self.drop(member.info, reason);
                    continue;
                }
            };
            let in_reference = freshest.role(superblock.dev_number());
            match role {
                // Its number may be another's by now; then it is of an earlier time.
                Role::Spare if in_reference == Ok(Role::Spare) => {
                    current.push((member, role));
                    continue;
                }
                Role::Spare => {
                    let reason = format!(
                        "{} knows its number as that of {}; add it again to use it",
                        reference.info.label,
                        role_name(in_reference.ok()),
                    );
                    self.drop(member.info, reason);
                    continue;
                }
                Role::Faulty => {
                    self.drop(member.info, "its own superblock says that it failed".to_owned());
                    continue;
                }
                Role::Active(_) | Role::Journal => {}
            }
            let called_faulty = in_reference == Ok(Role::Faulty);
            if called_faulty && superblock.role(freshest.dev_number()) == Ok(Role::Faulty) {
                return Err(self.refused(
                    format!(
                        "{label} and {} each say that the other failed (events {events} and {}): \
                         both halves were used on their own",
                        reference.info.label,
                        freshest.events()
                    ),
                    Some("give only the half whose data is wanted".to_owned()),
                ));
            }
            if events.saturating_add(1) < freshest.events() {
                let reason = format!(
                    "stale: events {events}, the array is at {}; add it again to rebuild it",
                    freshest.events()
                );
                self.drop(member.info, reason);
                continue;
            }
            // A failure is recorded on the others only, so at equal events the others are believed
            // as well. (The kernel believes the member itself there.)
            if in_reference != Ok(role) {
                let reason = format!(
                    "{} says of it: {}; its own superblock says {}",
                    reference.info.label,
                    role_name(in_reference.ok()),
                    role_name(Some(role)),
                );
                self.drop(member.info, reason);
                continue;
            }
            current.push((member, role));
        }
        Ok(current)
    }

    /// Puts members into slots and counts what is missing.
    fn place(
        mut self,
        current: Vec<(Member, Role)>,
        reference: &Member,
        options: &Options,
    ) -> Result<Assembly, Refused> {
        let freshest = &reference.superblock;
        let geometry = Geometry::new(
            freshest.level(),
            freshest.layout(),
            freshest.raid_disks(),
            freshest.chunk(),
            freshest.size(),
        )
        .map_err(|error| {
            self.refused(format!("{}: superblock {error}", reference.info.label), None)
        })?;
        let mut slots: Vec<SlotState> = Vec::new();
        slots.resize_with(usize::from(geometry.members()), || SlotState::Missing);
        let mut spares = Vec::new();
        let mut journals = Vec::new();
        let mut dirty_from: Option<Sectors> = None;
        for (member, role) in current {
            if let Role::Active(slot) = role {
                let Some(place) = slots.get_mut(slot.index()) else {
                    let reason = format!("role {} of {}", slot.0, geometry.members());
                    self.drop(member.info, reason);
                    continue;
                };
                if !matches!(place, SlotState::Missing) {
                    let reason = format!("a second member at slot {}; leave one out", slot.0);
                    return Err(self.refused(format!("{}: {reason}", member.info.label), None));
                }
                if let Some(from) = member.superblock.dirty_from() {
                    dirty_from = Some(dirty_from.map_or(from, |other| other.min(from)));
                }
                *place = match member.superblock.recovery_offset() {
                    Some(good_to) => SlotState::Rebuilding { member: Box::new(member), good_to },
                    None => SlotState::InSync(Box::new(member)),
                };
            } else if role == Role::Journal {
                journals.push(member);
            } else {
                spares.push(member);
            }
        }
        let assembly = Assembly {
            uuid: freshest.set_uuid(),
            name: freshest.name(),
            events: freshest.events(),
            resync_from: dirty_from,
            read_only: options.read_only,
            geometry,
            slots,
            spares,
            dropped: self.dropped.clone(),
            notes: Vec::new(),
        };
        self.journal(freshest, &journals, options)?;
        self.enough(&assembly, options)?;
        self.newly_degraded(&assembly, freshest, options)?;
        self.no_overlap(&assembly)?;
        Ok(Assembly { notes: self.notes, ..assembly })
    }

    /// Whether the journal holds what members do not have. The clean flag means nothing with one.
    ///
    /// Source   md-ondisk.md §5 "Rules"
    fn journal(
        &mut self,
        freshest: &Superblock,
        journals: &[Member],
        options: &Options,
    ) -> Result<(), Refused> {
        let wanted = freshest.features().contains(Features::JOURNAL);
        let why = match (wanted, journals) {
            (false, []) => return Ok(()),
            (false, [journal, ..]) => {
                let label = &journal.info.label;
                format!("{label}: found a journal, expected none: feature_map has no JOURNAL")
            }
            (true, []) => "found no journal, expected one: data may be in it only".to_owned(),
            (true, [journal]) => match &journal.logs.journal {
                Some(Ok(JournalState::Empty)) => return Ok(()),
                Some(Ok(JournalState::Live(blocks))) => format!(
                    "{}: found {} meta blocks in the journal, expected none: members do not have \
                     yet what they hold",
                    journal.info.label,
                    blocks.len()
                ),
                Some(Err(error)) => format!("{}: {error}", journal.info.label),
                None => format!("{}: the journal was not read", journal.info.label),
            },
            (true, [first, second, ..]) => {
                format!(
                    "found two journals, {} and {}, expected one",
                    first.info.label, second.info.label
                )
            }
        };
        if options.without_journal && options.read_only {
            self.notes.push(format!("{why}; what was in the journal only is old or wrong here"));
            return Ok(());
        }
        Err(self.refused(
            why,
            Some(
                "name the journal too; mdadm --assemble replays it; --read-only \
                 --without-journal reads without it"
                    .to_owned(),
            ),
        ))
    }

    /// Whether enough members are there to know every byte.
    fn enough(&mut self, assembly: &Assembly, options: &Options) -> Result<(), Refused> {
        let geometry = &assembly.geometry;
        let missing = assembly.degraded();
        let total = usize::from(geometry.members());
        if missing > usize::from(geometry.parities()) {
            let list: Vec<_> = assembly
                .slots
                .iter()
                .enumerate()
                .filter_map(|(slot, state)| match state {
                    SlotState::InSync(_) => None,
                    SlotState::Missing => Some(format!("slot {slot} missing")),
                    SlotState::Rebuilding { member, good_to } => Some(format!(
                        "slot {slot} ({}) rebuilt only to {good_to}",
                        member.info.label
                    )),
                })
                .collect();
            return Err(self.refused(
                format!(
                    "need {} of {total} members in sync, have {}: {}",
                    geometry.data_members(),
                    total - missing,
                    list.join(", ")
                ),
                None,
            ));
        }
        // The write hole: parity of rows that were in flight may be wrong, and a missing block would
        // be computed from it. A slot that only ever holds parity loses nothing.
        let data_lost = assembly.slots.iter().zip(0u16..).any(|(state, slot)| {
            !matches!(state, SlotState::InSync(_)) && !geometry.only_parity(Slot(slot))
        });
        if assembly.resync_from.is_some() && data_lost {
            let suspect = "every row written shortly before the crash may reconstruct wrong data";
            // As the kernel, also read-only: what nobody can check would pass for data.
            if !options.force_dirty {
                return Err(self.refused(
                    format!("dirty and degraded: {suspect}; suspect ranges: all"),
                    Some("--force-dirty accepts that".to_owned()),
                ));
            }
            self.notes.push(format!("dirty and degraded: {suspect}; suspect ranges: all"));
        }
        Ok(())
    }

    /// A slot that the array believes filled but is not: somebody should look.
    fn newly_degraded(
        &mut self,
        assembly: &Assembly,
        freshest: &Superblock,
        options: &Options,
    ) -> Result<(), Refused> {
        let absent: Vec<_> = assembly
            .slots
            .iter()
            .zip(0u16..)
            .filter(|(state, slot)| {
                matches!(state, SlotState::Missing) && has_slot(freshest, *slot)
            })
            .map(|(_, slot)| slot.to_string())
            .collect();
        if absent.is_empty() {
            return Ok(());
        }
        let slots = absent.join(", ");
        let what = if self.dropped.is_empty() {
            format!("newly degraded: the array knows a member at slot {slots}, which is not here")
        } else {
            format!(
                "newly degraded: the array knows a member at slot {slots}, and none of the devices \
                 given can be used there; look first why those are not used"
            )
        };
        if !(options.run || options.read_only) {
            return Err(self.refused(
                what,
                Some("--run serves it without; what is written then is not on it".to_owned()),
            ));
        }
        self.notes.push(what);
        Ok(())
    }

    /// No member may hold data where it holds metadata; each was checked alone when it was parsed.
    fn no_overlap(&self, assembly: &Assembly) -> Result<(), Refused> {
        for (slot, member) in assembly.members() {
            let superblock = &member.superblock;
            let block = member.info.logical_block;
            if !superblock.data_offset().bytes().0.is_multiple_of(u64::from(block)) {
                return Err(self.refused(
                    format!(
                        "{}: data_offset {}: found a member with logical blocks of {block} bytes, \
                         expected one with blocks that fit it; copy it to such a one",
                        member.info.label,
                        superblock.data_offset()
                    ),
                    None,
                ));
            }
            let needed = superblock.data_offset().checked_add(assembly.geometry.member_size());
            if slot.is_some() && needed.is_none_or(|needed| needed > member.info.size) {
                return Err(self.refused(
                    format!(
                        "{}: data_offset {} and size {} reach beyond its {}; the member is truncated",
                        member.info.label,
                        superblock.data_offset(),
                        assembly.geometry.member_size(),
                        member.info.size
                    ),
                    None,
                ));
            }
        }
        Ok(())
    }

    fn drop(&mut self, member: MemberInfo, reason: String) {
        self.dropped.push(Dropped { member, reason });
    }

    fn refused(&self, reason: String, way_out: Option<String>) -> Refused {
        Refused { reason, way_out, dropped: self.dropped.clone() }
    }
}

/// Whether a superblock knows a member at a slot.
fn has_slot(superblock: &Superblock, slot: u16) -> bool {
    (0u32..)
        .take(superblock.role_count())
        .any(|number| superblock.role(number) == Ok(Role::Active(Slot(slot))))
}

/// `host:name` answers to `name` as well.
fn same_name(wanted: &str, found: &str) -> bool {
    wanted == found || found.split_once(':').is_some_and(|(_, name)| name == wanted)
}

fn array_title(superblock: &Superblock) -> String {
    format!(
        "{} \"{}\", {} of {}",
        superblock.set_uuid(),
        superblock.name(),
        superblock.level(),
        superblock.raid_disks()
    )
}

fn role_name(role: Option<Role>) -> String {
    match role {
        Some(Role::Active(slot)) => format!("slot {}", slot.0),
        Some(Role::Faulty) => "faulty".to_owned(),
        Some(Role::Journal) => "journal".to_owned(),
        Some(Role::Spare) => "no slot".to_owned(),
        None => "nothing".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use weft_ondisk::{Level, NewArray, NewMember, ResyncOffset, Super1};
    use weft_units::MemberIndex;

    use super::*;

    const SIZE: Sectors = Sectors(20_480);

    fn set(level: Level, members: u8) -> Vec<Candidate> {
        let new = (1..=members)
            .map(|byte| NewMember { size: SIZE, device_uuid: Uuid([byte; 16]) })
            .collect();
        let mut array = NewArray::new(level, new);
        array.set_uuid = Uuid([99; 16]);
        array.assume_clean = true;
        let supers = array.plan().unwrap();
        (0u16..)
            .zip(supers)
            .map(|(index, superblock)| Candidate {
                member: MemberInfo {
                    index: MemberIndex(index),
                    label: format!("m{index}"),
                    size: SIZE,
                    logical_block: 512,
                },
                superblock: Ok(Box::new(superblock.into())),
                logs: Logs::default(),
            })
            .collect()
    }

    fn edit(candidate: &mut Candidate, change: impl FnOnce(&mut Super1)) {
        match &mut **candidate.superblock.as_mut().unwrap() {
            Superblock::V1(superblock) => change(superblock),
            Superblock::V0_90(_) => panic!("the sets here are of version 1"),
        }
    }

    fn run() -> Options {
        Options { run: true, ..Options::default() }
    }

    fn slots(assembly: &Assembly) -> String {
        let letter = |state: &SlotState| match state {
            SlotState::InSync(_) => 'U',
            SlotState::Missing => '_',
            SlotState::Rebuilding { .. } => 'r',
        };
        assembly.slots.iter().map(letter).collect()
    }

    #[test]
    fn a_whole_set_assembles_in_any_order() {
        let mut candidates = set(Level::Raid5, 4);
        candidates.reverse();
        let assembly = assemble(&candidates, &Options::default()).unwrap();
        assert_eq!(slots(&assembly), "UUUU");
        assert_eq!(assembly.resync_from, None);
        let labels: Vec<_> = assembly.members().map(|(_, m)| m.info.label.clone()).collect();
        assert_eq!(labels, ["m0", "m1", "m2", "m3"]);
    }

    #[test]
    fn an_absent_member_needs_consent_and_two_are_too_many() {
        let mut candidates = set(Level::Raid5, 4);
        candidates.remove(1);
        let refused = assemble(&candidates, &Options::default()).unwrap_err();
        assert!(refused.reason.contains("slot 1"), "{refused}");
        assert!(refused.way_out.unwrap().contains("--run"));
        assert_eq!(slots(&assemble(&candidates, &run()).unwrap()), "U_UU");
        candidates.remove(1);
        let refused = assemble(&candidates, &run()).unwrap_err();
        assert_eq!(
            refused.reason,
            "need 3 of 4 members in sync, have 2: slot 1 missing, slot 2 missing"
        );
    }

    #[test]
    fn a_member_two_behind_is_stale_and_one_behind_is_not() {
        let mut candidates = set(Level::Raid5, 4);
        for candidate in &mut candidates {
            edit(candidate, |superblock| superblock.events = 10);
        }
        edit(&mut candidates[2], |superblock| superblock.events = 9);
        assert_eq!(slots(&assemble(&candidates, &run()).unwrap()), "UUUU");
        edit(&mut candidates[2], |superblock| superblock.events = 8);
        let assembly = assemble(&candidates, &run()).unwrap();
        assert_eq!(slots(&assembly), "UU_U");
        assert!(assembly.dropped[0].reason.starts_with("stale: events 8, the array is at 10"));
    }

    #[test]
    fn what_the_others_say_of_a_member_counts() {
        for events in [10, 9] {
            let mut candidates = set(Level::Raid5, 4);
            for candidate in &mut candidates {
                edit(candidate, |superblock| {
                    superblock.events = 10;
                    superblock.roles[3] = 0xfffe;
                });
            }
            edit(&mut candidates[3], |superblock| {
                superblock.events = events;
                superblock.roles[3] = 3;
            });
            let assembly = assemble(&candidates, &run()).unwrap();
            assert_eq!(slots(&assembly), "UUU_", "events {events}");
            assert!(assembly.dropped[0].reason.contains("faulty"));
        }
    }

    #[test]
    fn two_halves_used_on_their_own_are_refused() {
        let mut candidates = set(Level::Raid6, 4);
        for (index, candidate) in candidates.iter_mut().enumerate() {
            edit(candidate, |superblock| {
                superblock.events = 10 + u64::from(index < 2);
                let gone = if index < 2 { [2, 3] } else { [0, 1] };
                for dev in gone {
                    superblock.roles[dev] = 0xfffe;
                }
            });
        }
        let refused = assemble(&candidates, &run()).unwrap_err();
        assert!(refused.reason.contains("both halves"), "{refused}");
        assert_eq!(slots(&assemble(&candidates[..2], &run()).unwrap()), "UU__");
    }

    /// A crash in the middle of the round that gives a new member its slot leaves it ahead of all.
    #[test]
    fn a_member_that_just_took_its_slot_is_not_another_half() {
        let mut candidates = set(Level::Raid6, 5);
        for (index, candidate) in candidates.iter_mut().enumerate() {
            edit(candidate, |superblock| {
                superblock.events = 10 + u64::from(index == 0);
                superblock.roles[0] = if index == 0 { 0 } else { 0xffff };
            });
        }
        assert_eq!(slots(&assemble(&candidates, &run()).unwrap()), "UUUUU");
    }

    #[test]
    fn dirty_and_degraded_is_the_write_hole() {
        let mut candidates = set(Level::Raid5, 4);
        for candidate in &mut candidates {
            edit(candidate, |superblock| superblock.resync_offset = ResyncOffset::At(Sectors(0)));
        }
        assert_eq!(assemble(&candidates, &run()).unwrap().resync_from, Some(Sectors(0)));
        candidates.remove(0);
        let refused = assemble(&candidates, &run()).unwrap_err();
        assert!(refused.reason.contains("dirty and degraded"), "{refused}");
        let forced = Options { force_dirty: true, ..run() };
        assert_eq!(assemble(&candidates, &forced).unwrap().notes.len(), 2);
        // RAID 4 without its parity member has every byte of data.
        let mut candidates = set(Level::Raid4, 4);
        for candidate in &mut candidates {
            edit(candidate, |superblock| superblock.resync_offset = ResyncOffset::At(Sectors(0)));
        }
        candidates.remove(3);
        assert_eq!(slots(&assemble(&candidates, &run()).unwrap()), "UUU_");
    }

    #[test]
    fn members_of_two_arrays_or_copies_are_not_mixed() {
        let mut candidates = set(Level::Raid5, 3);
        let mut other = set(Level::Raid5, 3).remove(0);
        edit(&mut other, |superblock| superblock.set_uuid = Uuid([7; 16]));
        candidates.push(other);
        let refused = assemble(&candidates, &run()).unwrap_err();
        assert!(refused.reason.starts_with("members of 2 arrays"), "{refused}");
        let chosen = Options { uuid: Some(Uuid([99; 16])), ..Options::default() };
        assert_eq!(slots(&assemble(&candidates, &chosen).unwrap()), "UUU");

        let mut candidates = set(Level::Raid5, 3);
        let copy = candidates[0].clone();
        candidates.push(copy);
        assert!(assemble(&candidates, &run()).unwrap_err().reason.contains("copy"));

        let mut candidates = set(Level::Raid5, 3);
        edit(&mut candidates[1], |superblock| superblock.chunk = Sectors(64));
        assert!(assemble(&candidates, &run()).unwrap_err().reason.starts_with("chunksize"));
    }

    #[test]
    fn what_this_release_does_not_keep_up_is_read_only() {
        let mut candidates = set(Level::Raid5, 3);
        for candidate in &mut candidates {
            edit(candidate, |superblock| {
                superblock.feature_map.insert(Features::BITMAP);
                superblock.bitmap_offset_raw = 8i32.to_le_bytes();
            });
        }
        let refused = assemble(&candidates, &Options::default()).unwrap_err();
        assert!(refused.way_out.unwrap().contains("--read-only"));
        let read_only = Options { read_only: true, ..Options::default() };
        assert!(assemble(&candidates, &read_only).unwrap().read_only);
        edit(&mut candidates[0], |superblock| superblock.feature_map.insert(Features::RESHAPE));
        assert!(assemble(&candidates, &read_only).is_err());
    }

    #[test]
    fn nothing_to_assemble_says_so() {
        assert_eq!(assemble(&[], &run()).unwrap_err().reason, "no member was given");
        let mut candidates = set(Level::Raid5, 3);
        candidates[0].superblock = Err("no md superblock found".to_owned());
        let assembly = assemble(&candidates, &run()).unwrap();
        assert_eq!(slots(&assembly), "_UU");
        assert_eq!(assembly.dropped[0].reason, "no md superblock found");
    }
}
