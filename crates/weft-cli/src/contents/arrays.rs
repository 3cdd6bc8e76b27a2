//! Arrays on disks: their members, grouped by array, and whether their data can be read.

use std::path::Path;

use weft_engine::assemble::{Assembly, Candidate, Options, Refused, assemble};
use weft_ondisk::Uuid;
use weft_terminal::terminal::{complain, quoted};

use super::search::{Disk, End, Found};
use crate::look::{self, Looked};
use crate::states;
use crate::unreadable::Maps;

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
    /// Maps of ddrescue that the command line names.
    pub(crate) maps: Maps,
}

/// Takes the members out of the disks, and groups them by array.
pub(crate) fn arrays(disks: &mut [Disk], maps: &Maps) -> Vec<Array> {
    let mut groups: Vec<(Uuid, Vec<Found>)> = Vec::new();
    for found in disks.iter_mut().flat_map(|disk| std::mem::take(&mut disk.found)) {
        match groups.iter_mut().find(|(uuid, _)| *uuid == found.set_uuid) {
            Some((_, group)) => group.push(found),
            None => groups.push((found.set_uuid, vec![found])),
        }
    }
    groups.into_iter().map(|(uuid, found)| Array::of(uuid, found, maps)).collect()
}

impl Array {
    fn of(uuid: Uuid, found: Vec<Found>, maps: &Maps) -> Self {
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
        let maps = maps.clone();
        Self { uuid, found, candidates, decision, consent, writable, maps }
    }

    /// Identity of this array and the size of its smallest member, for the search for images that
    /// were cut off. `None` if the superblocks are not at the end of the members.
    pub(crate) fn end(&self) -> Option<End> {
        let mut superblocks =
            self.candidates.iter().filter_map(|candidate| candidate.superblock.as_ref().ok());
        End::of(superblocks.next()?)
    }

    /// Names of the members that the assembly uses. A journal is included although it has no slot:
    /// without it the array is refused.
    pub(crate) fn names(&self) -> Vec<&Path> {
        let Ok(assembly) = &self.decision else { return Vec::new() };
        let used = self.found.iter().zip(&self.candidates).filter(|(_, candidate)| {
            let index = candidate.member.index;
            !assembly.dropped.iter().any(|dropped| dropped.member.index == index)
        });
        used.map(|(found, _)| found.name.as_path()).collect()
    }

    /// Arguments that name the members, preceded by options that name their maps.
    pub(crate) fn arguments(&self) -> String {
        let names = self.names();
        let maps = self.maps.options(names.iter().copied());
        let names: Vec<String> = names.iter().map(|name| quoted(name.as_os_str())).collect();
        maps + &names.join(" ")
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

/// Says which arrays cannot be read, and what the others lack.
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
                complain(&format!("array {}: cannot be read: {why}; next: {next}", array.uuid));
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
