//! Arrays on disks: the members that were found, grouped by array, and whether data can be read.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Map, Value, json};
use weft_engine::assemble::{Assembly, Candidate, Options, Refused, assemble};
use weft_ondisk::{Role, Superblock, Uuid};
use weft_terminal::terminal::{complain, quoted};

use super::search::{Disk, End, Found, FoundKind};
use super::system::FoundArray;
use crate::assembly;
use crate::look::{self, Looked};
use crate::reading::Reading;
use crate::size;
use crate::states;

/// An array, with the members of it that were found.
pub(crate) struct Array {
    pub(crate) uuid: Uuid,
    pub(crate) found: Vec<Found>,
    pub(crate) candidates: Vec<Candidate>,
    /// Assembly, or the reason why the data cannot be read.
    pub(crate) decision: Result<Assembly, Refused>,
    /// Options that accept the risks of the assembly, such as `--force-dirty`; empty if it has
    /// none.
    pub(crate) consent: &'static [&'static str],
    /// Whether the array can be served for writing with an overlay; otherwise the reason why not.
    pub(crate) writable: Result<(), String>,
    /// Maps of ddrescue and time limit with which the disks are read.
    pub(crate) reading: Reading,
}

/// Moves the members that were found out of `disks`, and groups them by array.
pub(crate) fn arrays(disks: &mut [Disk], reading: &Reading) -> Vec<Array> {
    let mut groups: Vec<(Uuid, Vec<Found>)> = Vec::new();
    for found in disks.iter_mut().flat_map(|disk| std::mem::take(&mut disk.found)) {
        match groups.iter_mut().find(|(uuid, _)| *uuid == found.set_uuid) {
            Some((_, group)) => group.push(found),
            None => groups.push((found.set_uuid, vec![found])),
        }
    }
    groups.into_iter().map(|(uuid, found)| Array::of(uuid, found, reading)).collect()
}

impl Array {
    fn of(uuid: Uuid, found: Vec<Found>, reading: &Reading) -> Self {
        let looked: Vec<&Looked> = found.iter().map(|found| &found.looked).collect();
        let (mut candidates, mut decision) = decide(&looked, true, &[]);
        let mut consent: &[&str] = &[];
        for more in CONSENTS {
            if decision.is_ok() {
                break;
            }
            if let (seen, Ok(assembly)) = decide(&looked, true, more) {
                (candidates, decision, consent) = (seen, Ok(assembly), more);
            }
        }
        let (_, writable) = decide(&looked, false, consent);
        let writable = writable.map(|_| ()).map_err(|refused| refused.reason);
        let reading = reading.clone();
        Self { uuid, found, candidates, decision, consent, writable, reading }
    }

    /// Array and size of its smallest member, for the search for images that were cut off. `None`
    /// if the superblocks are not at the end of the members.
    pub(crate) fn end(&self) -> Option<End> {
        let mut superblocks =
            self.candidates.iter().filter_map(|candidate| candidate.superblock.as_ref().ok());
        End::of(superblocks.next()?)
    }

    /// Names of the members that the assembly uses; none if the array was refused. A journal is
    /// included although it has no slot: without it the array is refused.
    pub(crate) fn names(&self) -> Vec<&Path> {
        let Ok(assembly) = &self.decision else { return Vec::new() };
        let used = self.found.iter().zip(&self.candidates).filter(|(_, candidate)| {
            let index = candidate.member.index;
            !assembly.dropped.iter().any(|dropped| dropped.member.index == index)
        });
        used.map(|(found, _)| found.name.as_path()).collect()
    }

    /// Properties by which arrays with the system of a NAS are recognised (`system.rs`).
    pub(super) fn shape(&self, name: String, assembly: &Assembly) -> FoundArray {
        FoundArray {
            name,
            level: assembly.layout.level(),
            size: assembly.layout.array_size().bytes().0,
            slots: usize::from(assembly.layout.members()),
            disks: self.found.iter().map(|found| found.disk.clone()).collect(),
            is_of_parts: self.found.iter().all(|found| found.kind != FoundKind::WholeDisk),
        }
    }

    /// Arguments that name the members, preceded by options that say how they are read.
    pub(crate) fn arguments(&self) -> String {
        let names = self.names();
        let options = self.reading.options(names.iter().copied());
        let names: Vec<String> = names.iter().map(|name| quoted(name.as_os_str())).collect();
        options + &names.join(" ")
    }

    /// Superblock that describes an array that was refused: among the members found, the one with
    /// the highest event count.
    fn described_by(&self) -> Option<&Superblock> {
        let superblocks = self.candidates.iter().filter_map(|it| it.superblock.as_ref().ok());
        superblocks.max_by_key(|superblock| superblock.events()).map(Box::as_ref)
    }

    /// Name, UUID, level and size of the array in one line. An array that was refused is described
    /// by the superblock with the highest event count; the size is left out if that superblock does
    /// not determine it.
    pub(crate) fn title(&self) -> String {
        let superblock = match (&self.decision, self.described_by()) {
            (Ok(assembly), _) => return assembly::title(assembly),
            (Err(_), Some(superblock)) => superblock,
            (Err(_), None) => return self.uuid.to_string(),
        };
        let size = superblock.array_size();
        let size = size.map(|size| format!(", {}", size::human(size.bytes()))).unwrap_or_default();
        let found: BTreeSet<u16> = self.slots_found().collect();
        format!(
            "{} ({}): {}{size}, {} of {} members found",
            superblock.name(),
            self.uuid,
            superblock.level(),
            found.len(),
            superblock.raid_disks()
        )
    }

    /// Slots for which a member was found.
    fn slots_found(&self) -> impl Iterator<Item = u16> {
        let superblocks = self.candidates.iter().filter_map(|it| it.superblock.as_ref().ok());
        superblocks.filter_map(|superblock| match superblock.own_role() {
            Ok(Role::Active(slot)) => Some(slot.0),
            _ => None,
        })
    }

    /// JSON fields that describe an array that was refused, from the superblocks; `None` for other
    /// arrays.
    pub(crate) fn refused_described(&self) -> Option<Map<String, Value>> {
        self.decision.as_ref().err()?;
        let superblock = self.described_by();
        let size = superblock.and_then(Superblock::array_size);
        let mut known = Map::new();
        known.insert("uuid".into(), json!(self.uuid.to_string()));
        known.insert("name".into(), json!(superblock.map(Superblock::name)));
        known.insert("level".into(), json!(superblock.map(|it| it.level().name())));
        known.insert("array_size_bytes".into(), json!(size.map(|size| size.bytes().0)));
        known.insert("raid_devices".into(), json!(superblock.map(Superblock::raid_disks)));
        Some(known)
    }

    /// JSON description of an array that was refused, with the reason; `None` for other arrays.
    pub(crate) fn refused_to_json(&self) -> Option<Value> {
        let (refused, mut object) = (self.decision.as_ref().err()?, self.refused_described()?);
        object.insert("state".into(), json!(refused.state.id()));
        object.insert("reason".into(), json!(self.why(refused)));
        object.insert("next".into(), json!(states::next_reading(refused.state)));
        Some(Value::Object(object))
    }

    /// Reason why the array cannot be read. The usual advice is left out, because it includes
    /// commands that write.
    pub(crate) fn why(&self, refused: &Refused) -> String {
        match (refused.dropped.as_slice(), self.candidates.len()) {
            ([only], 1) => format!("{}: {}", only.member.label, only.reason),
            _ => refused.reason.clone(),
        }
    }
}

/// Reports on standard error the arrays that cannot be read, and the states of the others.
pub(super) fn tell_refused(arrays: &[Array]) {
    for array in arrays {
        match &array.decision {
            Ok(assembly) => {
                for line in states::lines_reading(&assembly.states) {
                    complain(&format!("note: array {}: {line}", assembly.name));
                }
            }
            Err(refused) => {
                let (why, next) = (array.why(refused), states::next_reading(refused.state));
                let title = array.title();
                complain(&format!("array {title}: cannot be read: {why}; next: {next}"));
            }
        }
    }
}

/// Decides on an assembly of the members, as `cat` does (`read_only`) or as `serve --overlay` does.
/// `consent` has the options that accept risks. Also returns the members as candidates.
fn decide(
    looked: &[&Looked],
    read_only: bool,
    consent: &[&str],
) -> (Vec<Candidate>, Result<Assembly, Refused>) {
    let options = Options {
        read_only,
        run: true,
        force_dirty: consent.contains(&FORCE_DIRTY),
        without_journal: consent.contains(&WITHOUT_JOURNAL),
        ..Options::default()
    };
    let candidates = look::candidates(looked, &options);
    let decision = assemble(&candidates, &options);
    (candidates, decision)
}

pub(super) const FORCE_DIRTY: &str = "--force-dirty";
pub(super) const WITHOUT_JOURNAL: &str = "--without-journal";
/// Sets of options that accept risks, in the order in which they are tried: with more risk from set
/// to set.
const CONSENTS: [&[&str]; 3] =
    [&[FORCE_DIRTY], &[WITHOUT_JOURNAL], &[FORCE_DIRTY, WITHOUT_JOURNAL]];
