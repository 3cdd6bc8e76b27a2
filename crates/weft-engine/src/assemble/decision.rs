//! Decision of an assembly, step by step: identity, freshness, slots, logs, and consent to risks.
//!
//! Each step is a method, and [`decide`] calls them in order. A member that is not used is dropped
//! with a reason; an array that cannot be served is refused with an [`AssemblyState`].
//!
//! Source   md-ondisk.md §8.1, which also says where the kernel and mdadm differ

use weft_ondisk::{
    Bitmap, DeviceIdentity, Features, JournalState, PplContext, Role, Superblock, Uuid, Version,
};
use weft_units::{FullStripe, SectorRange, Sectors, Slot};

use super::states::AssemblyState;
use super::{Assembly, Candidate, Dropped, Member, Options, Refused, Replacement, SlotState};
use crate::contract::member::MemberInfo;
use crate::layout::Layout;

/// Decides which candidates form the array, and whether it may be started, or refuses it with a
/// reason; see [`super::assemble`].
pub(super) fn decide(candidates: &[Candidate], options: &Options) -> Result<Assembly, Refused> {
    let mut decision = Decision {
        dropped: Vec::new(),
        notes: Vec::new(),
        states: Vec::new(),
        replacements: Vec::new(),
        options,
    };
    let mut pool = decision.readable(candidates);
    decision.select(&mut pool)?;
    decision.no_copies(&pool)?;
    let at = decision.reference(&pool)?;
    decision.settle_reshapes(&mut pool, at)?;
    let reference = pool[at].clone();
    decision.settle_resizes(&mut pool, &reference.superblock);
    let current = decision.current(pool, &reference)?;
    decision.same_array(&current, &reference)?;
    let current = decision.understood(current, &reference)?;
    decision.place(current, &reference)
}

/// Members by their use in the assembly: in a slot, as a spare, or as a journal.
struct Placed {
    slots: Vec<SlotState>,
    spares: Vec<Member>,
    journals: Vec<Member>,
    /// Data sector of the members from which parity may be wrong; `None` if all parity is correct.
    dirty_from: Option<Sectors>,
    /// Highest update count among the bitmaps. A bitmap may be ahead of the superblocks by one,
    /// after a crash between the two writes. The next update must have a higher count, or the
    /// outdated bitmap would count as current.
    bitmap_events: u64,
}

impl Placed {
    fn new(members: u16) -> Self {
        let mut slots = Vec::new();
        slots.resize_with(usize::from(members), || SlotState::Missing);
        let (spares, journals) = (Vec::new(), Vec::new());
        Self { slots, spares, journals, dirty_from: None, bitmap_events: 0 }
    }
}

/// State of the decision so far: devices dropped, notes for people, states of the array, and
/// replacements found.
pub(super) struct Decision<'a> {
    dropped: Vec<Dropped>,
    notes: Vec<String>,
    pub(super) states: Vec<AssemblyState>,
    pub(super) replacements: Vec<Replacement>,
    pub(super) options: &'a Options,
}

impl Decision<'_> {
    /// Returns the devices that have a superblock, as members, and drops the other devices. Unless
    /// the assembly is read-only, devices with a bitmap that cannot be read are dropped, too.
    fn readable(&mut self, candidates: &[Candidate]) -> Vec<Member> {
        let mut pool = Vec::new();
        for candidate in candidates {
            let label = &candidate.member.label;
            let unreadable = candidate.unreadable.iter();
            self.notes.extend(unreadable.map(|place| {
                format!("{label}: {place}; the superblock at another of its places is used")
            }));
            let unkept = candidate.logs.unreadable_bitmap().filter(|_| !self.options.read_only);
            let superblock = candidate.superblock.as_ref().map_err(String::as_str);
            match superblock.and_then(|it| unkept.map_or(Ok(it), Err)) {
                Ok(superblock) => pool.push(Member {
                    info: candidate.member.clone(),
                    superblock: (**superblock).clone(),
                    logs: candidate.logs.clone(),
                    suspect: Vec::new(),
                    cut_at: candidate.cut_at,
                }),
                Err(reason) => self.drop(candidate.member.clone(), reason.to_owned()),
            }
        }
        pool
    }

    /// Keeps only the members of one array: the array that the options ask for, or the only array
    /// found. Refuses if there is no such array, or more than one.
    fn select(&mut self, pool: &mut Vec<Member>) -> Result<(), Refused> {
        let options = self.options;
        let (kept, others) =
            pool.drain(..).partition(|member: &Member| options.selects(&member.superblock));
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
                Err(self.refused(AssemblyState::NoMember, what))
            }
            [array] if array.set_uuid() == Uuid([0; 16]) => {
                let found = "set_uuid: found all zeros, expected the uuid of an array";
                Err(self.refused(AssemblyState::NoIdentity, found))
            }
            [_] => Ok(()),
            several => {
                let list: Vec<_> = several.iter().map(|array| array_title(array)).collect();
                let found = format!("members of {} arrays: {}", several.len(), list.join("; "));
                Err(self.refused(AssemblyState::SeveralArrays, found))
            }
        }
    }

    /// Refuses the array if two devices seem to be copies of the same member.
    fn no_copies(&self, pool: &[Member]) -> Result<(), Refused> {
        for (index, a) in pool.iter().enumerate() {
            for b in &pool[index + 1..] {
                let (ours, theirs) = (&a.superblock, &b.superblock);
                let same_number = ours.dev_number() == theirs.dev_number();
                let same_events = ours.events() == theirs.events();
                let same_uuid = matches!(ours.identity(), DeviceIdentity::Uuid(_))
                    && ours.identity() == theirs.identity();
                if same_uuid || (same_number && same_events && !renumbered(ours, theirs)) {
                    let (field, byte) = match ours.version() {
                        Version::V0_90 => ("this_disk.number", 3968),
                        _ if same_uuid => ("device_uuid", 168),
                        _ => ("dev_number", 160),
                    };
                    let identity = if same_uuid {
                        ours.identity().to_string()
                    } else {
                        format!("device number {}", ours.dev_number())
                    };
                    let found = format!(
                        "{}: superblock {field} at byte {byte}: found {identity}, expected another \
                         than that of {}: one looks like a copy of the other",
                        b.info.label, a.info.label
                    );
                    return Err(self.refused(AssemblyState::Copies, found));
                }
            }
        }
        Ok(())
    }

    /// Index of the member that has the freshest superblock among those with a slot. Refuses the
    /// array if no member has a slot. Spares do not count, because their update counts may be lower
    /// or higher.
    ///
    /// Among members with the highest count, one that no other of them records as failed is
    /// preferred, and then the first one. Equal counts alone do not make a member current. A crash
    /// may cut off an update that has reached one member only. If that member is absent at the next
    /// start, the update in which the others record its failure gets the same count. The absent
    /// member is then stale, although its own table shows all members as active.
    fn reference(&self, pool: &[Member]) -> Result<usize, Refused> {
        let has_slot =
            |member: &&Member| matches!(member.superblock.own_role(), Ok(Role::Active(_)));
        let newest = pool.iter().filter(has_slot).map(|member| member.superblock.events()).max();
        let is_newest = |member: &Member| Some(member.superblock.events()) == newest;
        let equals = pool.iter().enumerate().filter(|(_, it)| has_slot(it) && is_newest(it));
        let equals: Vec<(usize, &Member)> = equals.collect();
        let undisputed = |(_, of): &&(usize, &Member)| {
            equals.iter().all(|(_, by)| !calls_faulty(&by.superblock, &of.superblock))
        };
        let reference = equals.iter().find(undisputed).or(equals.first());
        reference.map(|(index, _)| *index).ok_or_else(|| {
            let found = "only spares: no member has a slot in the array";
            self.refused(AssemblyState::OnlySpares, found)
        })
    }

    /// Refuses members that disagree about the array's level, layout, sizes or feature bits. The
    /// feature bits are compared only for members with a slot and an equal update count. The count
    /// of a spare may be equal by chance, because not every update is written to spares.
    fn same_array(&self, current: &[(Member, Role)], reference: &Member) -> Result<(), Refused> {
        let expected = Described::of(&reference.superblock);
        for (member, role) in current {
            let found = Described::of(&member.superblock);
            for ((field, byte, found), (_, _, expected)) in found.0.iter().zip(&expected.0) {
                if found != expected {
                    let text = format!(
                        "{}: superblock {field} at byte {byte}: found {found}, expected {expected} \
                         as on {}, of the same array",
                        member.info.label, reference.info.label
                    );
                    return Err(self.refused(AssemblyState::MembersDisagree, text));
                }
            }
            let bits = |member: &Member| member.superblock.features().0 & ARRAY_FEATURES;
            let same_events = member.superblock.events() == reference.superblock.events();
            let (found, expected) = (bits(member), bits(reference));
            if same_events && matches!(role, Role::Active(_)) && found != expected {
                let text = format!(
                    "{}: superblock feature_map at byte 8: found {}, expected the bits of the \
                     array as on {}, {}",
                    member.info.label,
                    member.superblock.features(),
                    reference.info.label,
                    reference.superblock.features()
                );
                return Err(self.refused(AssemblyState::MembersDisagree, text));
            }
        }
        Ok(())
    }

    /// Returns the members with features and logs that weft supports, in order; when the assembly
    /// is read-only, support for reading suffices. Other features, and a bitmap that weft could not
    /// keep up to date, refuse the array. A member with a bad-block log that cannot be read is
    /// dropped.
    fn understood(
        &mut self,
        current: Vec<(Member, Role)>,
        reference: &Member,
    ) -> Result<Vec<(Member, Role)>, Refused> {
        let mut understood = Vec::new();
        for (member, role) in current {
            self.features_allowed(&member, role, reference)?;
            let no_room = no_room_for_bitmap(&member, role, reference);
            match no_room.filter(|_| !self.options.read_only) {
                Some(found) if matches!(role, Role::Active(_)) => {
                    let found = format!("{}: {found}", member.info.label);
                    return Err(self.refused(AssemblyState::WriteBitmap, found));
                }
                Some(found) => {
                    self.drop(member.info, found);
                    continue;
                }
                None => {}
            }
            match self.reason_unused(&member) {
                Some(reason) => self.drop(member.info, reason),
                None => understood.push((member, role)),
            }
        }
        let understood = self.without_replacements(understood);
        self.same_bitmaps(&understood, reference);
        Ok(understood)
    }

    /// Refuses the array if a member has features with which weft cannot read or, unless the
    /// assembly is read-only, cannot write.
    fn features_allowed(
        &mut self,
        member: &Member,
        role: Role,
        reference: &Member,
    ) -> Result<(), Refused> {
        let features = member.superblock.features();
        let label = &member.info.label;
        let found = format!("{label}: superblock feature_map at byte 8: found {features}");
        if features.contains(Features::RESHAPE) {
            self.reshape_is_understood(member, &found)?;
        }
        if self.options.read_only {
            return Ok(());
        }
        let reasons = member.superblock.refuses_writing();
        if let Some(reason) = reasons.iter().find(|reason| reason.name != "RESHAPE") {
            let state = match reason.name {
                "PPL" | "MULTI_PPL" | "JOURNAL" => AssemblyState::WriteLogged,
                "bblog_shift" => AssemblyState::WriteBadBlocks,
                "magic" => AssemblyState::WriteForeign,
                _ => AssemblyState::WriteUnknown,
            };
            let text = format!(
                "{label}: superblock {}: found {}, expected none for writing",
                reason.name, reason.what
            );
            return Err(self.refused(state, text));
        }
        if matches!(role, Role::Active(_)) && features.contains(Features::BITMAP) {
            self.bitmap_kept(member, reference)?;
        }
        Ok(())
    }

    /// Reason why a member cannot be used; `None` if it can. If only a part of the member can be
    /// used, adds a note.
    fn reason_unused(&mut self, member: &Member) -> Option<String> {
        let label = &member.info.label;
        match &member.logs.bad_blocks {
            Some(Err(error)) => return Some(error.clone()),
            Some(Ok(bad)) if !bad.is_empty() => {
                let count = bad.ranges().len();
                let text = format!(
                    "{label}: bad-block log: found {count} ranges; they are computed from the others"
                );
                self.note(AssemblyState::BadBlocks, text);
            }
            Some(Ok(_)) | None => {}
        }
        let end = member.cut_at?;
        let text = format!(
            "superblock data_offset {} and size {}: found a member of {end}, expected {}",
            member.superblock.data_offset(),
            member.superblock.used_size(),
            member.info.size,
        );
        if !self.options.read_only {
            let way = "weft cat and serve --read-only compute its end from the others";
            return Some(format!("{text}; {way}"));
        }
        let text = format!("{label}: {text}; what lies behind is computed");
        self.note(AssemblyState::BadBlocks, text);
        None
    }

    /// Refuses the array if weft could not keep the bitmap of `member` up to date.
    fn bitmap_kept(&mut self, member: &Member, reference: &Member) -> Result<(), Refused> {
        let label = &member.info.label;
        let most = member.superblock.events().max(reference.superblock.events()) + 1;
        let found = match &member.logs.bitmap {
            Some(Ok(bitmap)) if !bitmap.may_be_kept() => {
                let kind = match bitmap.header.version {
                    5 => ", the bitmaps of a cluster's nodes",
                    6 => ", a lockless bitmap",
                    _ => "",
                };
                let found = bitmap.header.version;
                format!("bitmap version at byte 4: found {found}{kind}, expected 3 or 4")
            }
            Some(Ok(bitmap)) if bitmap.chunk_count() > BITMAP_CHUNKS_MAX => format!(
                "bitmap chunksize at byte 52: found {}, which makes {} chunks, expected at most \
                 {BITMAP_CHUNKS_MAX}",
                bitmap.header.chunksize,
                bitmap.chunk_count()
            ),
            // Bitmaps are written before superblocks, so a crash leaves them at most one ahead of
            // the superblocks that were written. The superblock of a member without space may be
            // one behind the written superblocks.
            Some(Ok(bitmap)) if bitmap.header.events > most => format!(
                "bitmap events at byte 24: found {}, expected at most {most}, one more than \
                 superblocks have",
                bitmap.header.events
            ),
            Some(Ok(bitmap)) => match bitmap_misplaced(member, bitmap) {
                Some(found) => found,
                None => return Ok(()),
            },
            Some(Err(error)) => error.clone(),
            None => "found no bitmap, expected one: feature_map at byte 8 has BITMAP".to_owned(),
        };
        Err(self.refused(AssemblyState::WriteBitmap, format!("{label}: {found}")))
    }

    /// Adds a note for each member with a bitmap that differs in chunk or size from the bitmap of
    /// the `reference` member. The difference does not prevent reading.
    fn same_bitmaps(&mut self, members: &[(Member, Role)], reference: &Member) {
        let Some(Ok(expected)) = &reference.logs.bitmap else { return };
        for (member, _) in members {
            if let Some(Ok(found)) = &member.logs.bitmap
                && (found.chunk, found.header.sync_size)
                    != (expected.chunk, expected.header.sync_size)
            {
                self.notes.push(format!(
                    "{}: bitmap chunksize at byte 52: found {}, expected {} as on {}: all of a dirty \
                     array would be resynced",
                    member.info.label, found.chunk, expected.chunk, reference.info.label
                ));
            }
        }
    }

    /// Returns the members that count as current, in order, with their roles. The other members are
    /// dropped with a reason. Refuses the array if two halves of it were used on their own.
    fn current(
        &mut self,
        pool: Vec<Member>,
        reference: &Member,
    ) -> Result<Vec<(Member, Role)>, Refused> {
        let freshest = &reference.superblock;
        let disputed = pool.iter().any(|Member { superblock, .. }| {
            calls_faulty(freshest, superblock) && calls_faulty(superblock, freshest)
        });
        let known = if disputed { unmistakable(&pool, freshest) } else { Vec::new() };
        let mut current = Vec::new();
        for member in pool {
            let role = match member.superblock.own_role() {
                Ok(role) => role,
                Err(error) => {
                    self.drop(member.info, format!("role: {error}"));
                    continue;
                }
            };
            match self.reason_not_current(&member, role, reference, &known)? {
                Some(reason) => self.drop(member.info, reason),
                None => current.push((member, role)),
            }
        }
        Ok(self.newest_of_each_slot(current))
    }

    /// Reason why a member with this role does not count as current; `None` if it does. The table
    /// of roles of the `reference` member decides. In a disputed array, the numbers and roles in
    /// `known` are valid too. Refuses the array if two halves of it were used on their own.
    fn reason_not_current(
        &mut self,
        member: &Member,
        role: Role,
        reference: &Member,
        known: &[(u32, Role)],
    ) -> Result<Option<String>, Refused> {
        let (superblock, freshest) = (&member.superblock, &reference.superblock);
        let (label, events) = (&member.info.label, superblock.events());
        let in_reference = freshest.role(superblock.dev_number());
        match role {
            // If its number now belongs to another member, its superblock is out of date.
            Role::Spare if in_reference == Ok(Role::Spare) => return Ok(None),
            Role::Spare => {
                return Ok(Some(format!(
                    "{} knows its number as that of {}; add it again to use it",
                    reference.info.label,
                    role_name(in_reference.ok()),
                )));
            }
            Role::Faulty => {
                return Ok(Some("its own superblock says that it failed".to_owned()));
            }
            Role::Active(_) | Role::Journal => {}
        }
        if in_reference == Ok(Role::Faulty)
            && superblock.role(freshest.dev_number()) == Ok(Role::Faulty)
            && !known.iter().any(|(number, slot)| superblock.role(*number) == Ok(*slot))
        {
            let found = format!(
                "{label} and {} each say that the other failed (events {events} and {}): both \
                 halves were used on their own",
                reference.info.label,
                freshest.events()
            );
            return Err(self.refused(AssemblyState::SplitBrain, found));
        }
        if events.saturating_add(1) < freshest.events() {
            return Ok(Some(format!(
                "stale: events {events}, the array is at {}; add it again to rebuild it",
                freshest.events()
            )));
        }
        // A failure is recorded only on the other members, so at equal update counts the others
        // decide. (The kernel trusts the member's own superblock in that case.)
        if in_reference != Ok(role) {
            return Ok(Some(format!(
                "{} says of it: {}; its own superblock says {}",
                reference.info.label,
                role_name(in_reference.ok()),
                role_name(Some(role)),
            )));
        }
        Ok(None)
    }

    /// Puts a member with an active role into its slot; drops the member if the array has no such
    /// slot. Refuses the array if the slot is taken.
    fn fill(&mut self, placed: &mut Placed, member: Member, slot: Slot) -> Result<(), Refused> {
        if let Some(Ok(bitmap)) = &member.logs.bitmap
            && !self.options.read_only
        {
            placed.bitmap_events = bitmap.header.events.max(placed.bitmap_events);
        }
        let count = placed.slots.len();
        let Some(place) = placed.slots.get_mut(slot.index()) else {
            self.drop(member.info, format!("role {} of {count}", slot.0));
            return Ok(());
        };
        if let SlotState::InSync(other) | SlotState::Rebuilding { member: other, .. } = place {
            let found = format!(
                "{}: found a second member at slot {}, expected one: {} is at it too, both at \
                 events {}",
                member.info.label,
                slot.0,
                other.info.label,
                member.superblock.events()
            );
            return Err(self.refused(AssemblyState::SlotTwice, found));
        }
        if let Some(from) = member.superblock.dirty_from() {
            placed.dirty_from = Some(placed.dirty_from.map_or(from, |other| other.min(from)));
        }
        *place = match member.superblock.recovery_offset() {
            Some(recovery_offset) => {
                SlotState::Rebuilding { member: Box::new(member), recovery_offset }
            }
            None => SlotState::InSync(Box::new(member)),
        };
        Ok(())
    }

    /// Puts the members into slots, and decides whether the resulting array may be served.
    fn place(
        mut self,
        current: Vec<(Member, Role)>,
        reference: &Member,
    ) -> Result<Assembly, Refused> {
        let freshest = &reference.superblock;
        self.raid0_layout(&current, reference)?;
        let mut found = Placed::new(self.slots(reference)?);
        for (member, role) in current {
            match role {
                Role::Active(slot) => self.fill(&mut found, member, slot)?,
                Role::Journal => found.journals.push(member),
                Role::Faulty | Role::Spare => found.spares.push(member),
            }
        }
        let Placed { slots, mut spares, journals, dirty_from, bitmap_events } = found;
        let layout = self.layout(reference, &slots)?;
        let reshape = self.reshape(reference, &layout)?;
        for spare in number_spares(&mut spares, &slots, freshest) {
            let number = spare.superblock.dev_number();
            let reason = format!(
                "its number, {number}, is another spare's by now, and the table of {} has no \
                 other; remove what failed and add it again",
                reference.info.label
            );
            self.drop(spare.info, reason);
        }
        let mut assembly = Assembly {
            uuid: freshest.set_uuid(),
            name: freshest.name(),
            events: freshest.events().max(bitmap_events),
            resync_from: dirty_from,
            read_only: self.options.read_only,
            is_built: false,
            layout,
            slots,
            spares,
            replacements: self.replacements(dirty_from),
            reshape,
            dropped: Vec::new(),
            states: Vec::new(),
            notes: Vec::new(),
        };
        self.enough(&assembly)?;
        self.journal(freshest, &journals)?;
        self.dirty_and_degraded(&mut assembly, reference)?;
        self.newly_degraded(&assembly, freshest)?;
        self.no_overlap(&assembly)?;
        if let Some((_, differ @ 1..)) = assembly.united_bitmap() {
            self.notes.push(format!(
                "the bitmaps of members in sync differ in {differ} bits: each counts as set that \
                 one of them has; after a crash that is to be expected, else a member lost writes"
            ));
        }
        self.standing(&assembly);
        let Self { dropped, notes, states, .. } = self;
        Ok(Assembly { dropped, notes, states, ..assembly })
    }

    /// Adds each state of an accepted array that an administrator should know about to the list of
    /// states, and sorts the list.
    fn standing(&mut self, assembly: &Assembly) {
        let has = |wanted: fn(&SlotState) -> bool| assembly.slots.iter().any(wanted);
        for (state, holds) in [
            (AssemblyState::Degraded, has(|slot| matches!(slot, SlotState::Missing))),
            (AssemblyState::Rebuilding, has(|slot| matches!(slot, SlotState::Rebuilding { .. }))),
            (AssemblyState::ResyncPending, assembly.resync_from.is_some()),
            (AssemblyState::BitmapStale, assembly.bitmap().is_some_and(Bitmap::is_stale)),
            (AssemblyState::MembersNotUsed, !self.dropped.is_empty()),
        ] {
            if holds {
                self.states.push(state);
            }
        }
        self.states.sort_unstable();
        self.states.dedup();
    }

    /// Refuses an array if its journal is missing, does not belong to it, or holds data that the
    /// members lack. With `without_journal`, a read-only assembly accepts the array with a note.
    /// With a journal, the clean flag means nothing.
    ///
    /// Source   md-ondisk.md §5 "Rules"
    fn journal(&mut self, freshest: &Superblock, journals: &[Member]) -> Result<(), Refused> {
        let wanted = freshest.features().contains(Features::JOURNAL);
        let (state, why) = match (wanted, journals) {
            (false, []) => return Ok(()),
            (false, [journal, ..]) => {
                let label = &journal.info.label;
                let why = "found a journal, expected none: feature_map at byte 8 has no JOURNAL";
                (AssemblyState::JournalUnexpected, format!("{label}: {why}"))
            }
            (true, []) => (
                AssemblyState::JournalMissing,
                "found no journal, expected one: data may be in it only".to_owned(),
            ),
            (true, [journal]) => {
                let label = &journal.info.label;
                let why = match &journal.logs.journal {
                    Some(Ok(JournalState::Empty)) => return Ok(()),
                    Some(Ok(JournalState::Live(blocks))) => format!(
                        "found {} meta blocks in the journal, expected none: members do not have \
                         yet all that they hold",
                        blocks.len()
                    ),
                    Some(Err(error)) => error.clone(),
                    None => "the journal was not read".to_owned(),
                };
                (AssemblyState::JournalHoldsData, format!("{label}: {why}"))
            }
            (true, [first, second, ..]) => {
                let (first, second) = (&first.info.label, &second.info.label);
                let why = format!("found two journals, {first} and {second}, expected one");
                (AssemblyState::JournalUnexpected, why)
            }
        };
        if self.options.without_journal && self.options.read_only {
            let note = format!("{why}; what was in the journal only is old or wrong here");
            self.note(AssemblyState::WithoutJournal, note);
            return Ok(());
        }
        Err(self.refused(state, why))
    }

    /// Handles the write hole of an array that is dirty and degraded: parity of stripes that were
    /// in flight may be wrong, and a missing block would be reconstructed from it. The array is
    /// refused without consent (`force_dirty`), with two exceptions. A slot that holds parity in
    /// every stripe loses no data; and for a read-only assembly, partial parity logs (PPL) name the
    /// stripes that were in flight, of which the parity is not used.
    fn dirty_and_degraded(
        &mut self,
        assembly: &mut Assembly,
        reference: &Member,
    ) -> Result<(), Refused> {
        let Some(geometry) = assembly.layout.parity() else { return Ok(()) };
        let data_lost = assembly.slots.iter().zip(0u16..).any(|(state, slot)| {
            let has_data = slot >= geometry.members() || !geometry.only_parity(Slot(slot));
            !matches!(state, SlotState::InSync(_)) && has_data
        });
        let Some(from) = assembly.resync_from else { return Ok(()) };
        if !data_lost {
            return Ok(());
        }
        let ranges = match &reference.logs.bitmap {
            Some(Ok(bitmap)) => {
                let sectors: u64 = bitmap.dirty_ranges().map(|range| range.len.0).sum();
                format!("{sectors} sectors of each member, by the bitmap")
            }
            _ if from > Sectors::ZERO => format!("all from sector {} of each member", from.0),
            _ => "all".to_owned(),
        };
        let found = format!(
            "dirty and degraded: every stripe written shortly before the crash may reconstruct wrong \
             data; suspect ranges: {ranges}"
        );
        if self.options.force_dirty {
            self.note(AssemblyState::SuspectData, found);
            return Ok(());
        }
        match logged(assembly) {
            // Parity in these stripes counts as a bad block.
            Ok(Some(stripes)) if self.options.read_only => {
                let mut count = 0;
                for (state, suspect) in assembly.slots.iter_mut().zip(stripes) {
                    if let SlotState::InSync(member) = state {
                        count += suspect.iter().map(|range| range.len.0).sum::<u64>();
                        member.suspect = suspect;
                    }
                }
                self.notes.push(format!(
                    "dirty and degraded: partial parity logs name {count} sectors with parity that \
                     was being written; blocks that only it could give are read errors"
                ));
                Ok(())
            }
            // As in the kernel, the array is refused even if read-only: data that cannot be checked
            // would pass for correct.
            Ok(_) => Err(self.refused(AssemblyState::DirtyDegraded, found)),
            Err(error) => {
                Err(self.refused(AssemblyState::DirtyDegraded, format!("{found}; {error}")))
            }
        }
    }

    /// Refuses an array in which a slot has no member although the superblocks record one: an
    /// administrator should check the array. With the option `run` or `read_only`, adds a note
    /// instead.
    fn newly_degraded(
        &mut self,
        assembly: &Assembly,
        freshest: &Superblock,
    ) -> Result<(), Refused> {
        let absent: Vec<_> = assembly
            .slots
            .iter()
            .zip(0u16..)
            .filter(|(state, slot)| match state {
                SlotState::InSync(_) => false,
                // Superblocks may record two members at the slot: a replacement and its original.
                SlotState::Rebuilding { .. } => known_at(freshest, *slot) > 1,
                SlotState::Missing => known_at(freshest, *slot) > 0,
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
        if !(self.options.run || self.options.read_only) {
            return Err(self.refused(AssemblyState::NewlyDegraded, what));
        }
        self.notes.push(what);
        Ok(())
    }

    /// Refuses the array if the data of a member does not begin at a logical block of its device,
    /// or ends past the device. The superblock of each member has already been validated on its
    /// own.
    fn no_overlap(&self, assembly: &Assembly) -> Result<(), Refused> {
        for (slot, member) in assembly.members() {
            let superblock = &member.superblock;
            let block = member.info.logical_block;
            if !superblock.data_offset().bytes().0.is_multiple_of(u64::from(block)) {
                let found = format!(
                    "{}: superblock data_offset {}: found a member with logical blocks of {block} \
                     bytes, expected one with blocks that fit it",
                    member.info.label,
                    superblock.data_offset()
                );
                return Err(self.refused(AssemblyState::Misaligned, found));
            }
            let used = match assembly.layout {
                // Each member contributes its own size.
                Layout::Striped(_) => superblock.used_size(),
                Layout::Mirrors(_) | Layout::Parity(_) => assembly.layout.member_size(),
            };
            let needed = superblock.data_offset().checked_add(used);
            if slot.is_some() && needed.is_none_or(|needed| needed > member.info.size) {
                let found = format!(
                    "{}: superblock data_offset {} and size {}: found a member of {}, expected one \
                     that has them all",
                    member.info.label,
                    superblock.data_offset(),
                    used,
                    member.info.size
                );
                return Err(self.refused(AssemblyState::Truncated, found));
            }
        }
        Ok(())
    }

    pub(super) fn drop(&mut self, member: MemberInfo, reason: String) {
        self.dropped.push(Dropped { member, reason });
    }

    pub(super) fn note(&mut self, state: AssemblyState, note: String) {
        self.states.push(state);
        self.tell(note);
    }

    pub(super) fn tell(&mut self, note: String) {
        self.notes.push(note);
    }

    pub(super) fn refused(&self, state: AssemblyState, found: impl Into<String>) -> Refused {
        Refused { state, reason: found.into(), dropped: self.dropped.clone() }
    }
}

/// Reason why a member without a bitmap, or a spare, has no room for the array's bitmap; `None` if
/// it has room.
fn no_room_for_bitmap(member: &Member, role: Role, reference: &Member) -> Option<String> {
    let Some(Ok(bitmap)) = &reference.logs.bitmap else { return None };
    let offset = reference.superblock.bitmap_offset();
    let mut with = member.clone();
    match with.superblock.bitmap_offset() {
        Some(_) if matches!(role, Role::Active(_)) => return None,
        Some(_) => {}
        None => with.superblock.set_bitmap(offset),
    }
    bitmap_misplaced(&with, bitmap)
}

/// Reason why a member's bitmap cannot be written in whole blocks of the member; `None` if it can.
fn bitmap_misplaced(member: &Member, bitmap: &Bitmap) -> Option<String> {
    let block = u64::from(member.info.logical_block);
    let room = match member.superblock.bitmap_room(member.info.size) {
        Ok(room) => room?,
        Err(error) => return Some(format!("bitmap: {error}")),
    };
    let needed = bitmap.header.area(bitmap.sync_size).ok()?.bytes().0.next_multiple_of(block);
    let (start, room) = (room.start, room.len.bytes().0);
    let fits = start.bytes().0.is_multiple_of(block) && needed <= room;
    (!fits).then(|| {
        format!(
            "bitmap at sector {}: found {room} bytes of room, expected {needed} in whole blocks of \
             {block} bytes",
            start.0
        )
    })
}

/// Largest number of chunks of a bitmap that weft keeps up to date: 32 times the number of bits
/// that md reads.
const BITMAP_CHUNKS_MAX: u64 = 1 << 25;

/// Bits of `feature_map` that describe the whole array instead of one member.
///
/// Source   md-ondisk.md §11 row 41
const ARRAY_FEATURES: u32 = 0x01 | 0x04 | 0x100 | 0x200 | 0xc00 | 0x1000;

/// Fields of a superblock that describe the whole array, on which all members must agree: name,
/// byte offset and value of each.
struct Described([(&'static str, usize, String); 7]);

impl Described {
    fn of(superblock: &Superblock) -> Self {
        let [ctime, level, layout, size, chunk, raid_disks] = match superblock.version() {
            Version::V0_90 => [24, 28, 256, 32, 260, 40],
            Version::V1_0 | Version::V1_1 | Version::V1_2 => [64, 72, 76, 80, 88, 92],
        };
        Self([
            ("version", 4, superblock.version().to_string()),
            ("ctime", ctime, superblock.ctime().secs.to_string()),
            ("level", level, superblock.level().to_string()),
            ("layout", layout, superblock.layout().to_string()),
            ("size", size, superblock.size().to_string()),
            ("chunksize", chunk, superblock.chunk().to_string()),
            ("raid_disks", raid_disks, superblock.raid_disks().to_string()),
        ])
    }
}

/// For each slot, the data sectors of stripes with parity that was being written, according to the
/// partial parity log (PPL) of the slot's in-sync member; `None` if a member has no such log. The
/// error says, as text, why a log cannot be used.
///
/// Source   md-ondisk.md §4 "Recovery": the newest log of each member; all other parity is correct,
/// because a writer logs a row on the member that holds the row's P before it writes data or P, and
/// has one unit in flight for each log (md-ppl.md, items 1, 3 and 4)
fn logged(assembly: &Assembly) -> Result<Option<Vec<Vec<SectorRange>>>, String> {
    let Some(geometry) = assembly.layout.parity() else { return Ok(None) };
    let mut stripes = Vec::new();
    for (state, slot) in assembly.slots.iter().zip(0u16..) {
        let SlotState::InSync(member) = state else {
            stripes.push(Vec::new());
            continue;
        };
        let (Some(log), Some(area)) = (&member.logs.ppl, member.superblock.ppl_area()) else {
            return Ok(None);
        };
        let context = PplContext {
            raid_disks: u32::from(geometry.members()),
            chunk: geometry.chunk(),
            array_size: geometry.array_size(),
            room: area.len,
            owner: Slot(slot),
        };
        let label = &member.info.label;
        let log = log.as_ref().map_err(|error| format!("{label}: {error}"))?;
        let computations = log
            .recovery(&context, |full_stripe| geometry.placement(FullStripe(full_stripe)).p)
            .map_err(|error| format!("{label}: {error}"))?;
        stripes.push(computations.iter().map(|computation| computation.stripes).collect());
    }
    Ok(Some(stripes))
}

/// Whether the superblock `by` records the member with the superblock `of` as failed.
fn calls_faulty(by: &Superblock, of: &Superblock) -> bool {
    by.role(of.dev_number()) == Ok(Role::Faulty)
}

/// Numbers and roles of those members with slots that lag the freshest superblock by at most one
/// update, that this superblock confirms, and that share their number with no other candidate.
///
/// The number of a failed member may be used again: in version 0.90 a member that takes a slot
/// takes the slot's number, in version 1 an added member takes the number of a removed one. Hence a
/// failed member may record a number as "faulty" because the number belonged to another failed
/// member at that time, although it belongs to the freshest superblock now. Such a record does not
/// show that the failed member was used on its own, in another half of the array. In that case its
/// superblock would record every member of the other half as failed, because none of them was
/// present when its own half was started.
///
/// Source   md-ondisk.md §8.1, §11 row 40; mdadm leaves out a member that records the freshest as
///          faulty
fn unmistakable(pool: &[Member], freshest: &Superblock) -> Vec<(u32, Role)> {
    let number_of = |member: &Member| member.superblock.dev_number();
    let believed = |member: &&Member| {
        let own = member.superblock.own_role();
        matches!(own, Ok(Role::Active(_)))
            && freshest.role(number_of(member)) == own
            && member.superblock.events().saturating_add(1) >= freshest.events()
    };
    let alone = |member: &&Member| {
        pool.iter().filter(|other| number_of(other) == number_of(member)).count() == 1
    };
    let members = pool.iter().filter(believed).filter(alone);
    members
        .filter_map(|member| Some((number_of(member), member.superblock.own_role().ok()?)))
        .collect()
}

/// Whether two spares of version 0.90 have the same number because of a crash between two
/// superblock writes. Spares are renumbered with each update, from the end of the slots on, and
/// have no other identity. Copies of one member have equal tables instead.
///
/// Source   kernel 6.12: `super_90_sync` numbers anew, `bind_rdev_to_array` refuses the second;
///          mdadm 4.2 gives every spare the next place, whatever its number is
fn renumbered(ours: &Superblock, theirs: &Superblock) -> bool {
    let (Some(ours), Some(theirs)) = (ours.as_v0_90(), theirs.as_v0_90()) else { return false };
    let are_spares = [ours, theirs].iter().all(|it| it.own_role() == Ok(Role::Spare));
    are_spares && ours.encode() != theirs.encode()
}

/// Gives each spare a number of its own, because its old number may belong to another member that
/// was added or renumbered since. A spare keeps a number that is still free; otherwise it gets the
/// first free number past the slots, like an added member, or a free one below. Removes and returns
/// the spares for which no number is free.
fn number_spares(
    spares: &mut Vec<Member>,
    slots: &[SlotState],
    freshest: &Superblock,
) -> Vec<Member> {
    let members = slots.iter().filter_map(SlotState::member);
    let mut taken: Vec<u32> = members.map(|member| member.superblock.dev_number()).collect();
    let numbers = freshest.role_count() as u32;
    // The fresher spare keeps its number.
    let mut order: Vec<usize> = (0..spares.len()).collect();
    order.sort_by_key(|index| std::cmp::Reverse(spares[*index].superblock.events()));
    let mut without = Vec::new();
    for index in order {
        let wanted = spares[index].superblock.dev_number();
        let number = std::iter::once(wanted)
            .chain(freshest.raid_disks()..numbers)
            .chain(0..numbers)
            .find(|number| freshest.role(*number) == Ok(Role::Spare) && !taken.contains(number));
        match number {
            Some(number) => {
                taken.push(number);
                spares[index].superblock.set_dev_number(number);
            }
            None => without.push(index),
        }
    }
    without.sort_unstable();
    without.into_iter().rev().map(|index| spares.remove(index)).collect()
}

/// Number of members that a superblock records at slot `slot`.
fn known_at(superblock: &Superblock, slot: u16) -> usize {
    let at_slot = |number: &u32| superblock.role(*number) == Ok(Role::Active(Slot(slot)));
    (0u32..).take(superblock.role_count()).filter(at_slot).count()
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
