//! `weft rescue`: finds the arrays on disks, and prints the next command for each.
//!
//! The command examines whole disks and images and their partitions, searches for superblocks in
//! unusual places, groups members by array, and reports for each array whether and how its data can
//! be read.

mod array_source;
mod contents;
mod files;
mod record;
mod search;

use weft_terminal::outcome::{Exit, Failure, Outcome};
use weft_terminal::terminal::{complain, print_json, printable_stdout, quoted};

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use weft_engine::assemble::{Assembly, Candidate, Options, Refused, assemble};
use weft_engine::layout::Layout;
use weft_ondisk::Uuid;

use crate::assembly::{lines, missing, title, to_json};
use crate::look::{self, Looked};
use crate::member::{self, MemberArg};
use crate::states;
use crate::unreadable::{Maps, Unreadable};
use search::{Disk, End, Found};

/// Finds arrays on whole disks or images, and says how to get at their data
///
/// Looks at each disk as a whole, at its partitions, and near both of its ends for superblocks in
/// odd places. Reads the disks only. Exit status: 0 when the data of an array can be read, 1 when
/// of none; with --to, 0 when everything was copied as it was, 1 otherwise.
#[derive(Debug, Args)]
pub(crate) struct Rescue {
    /// Read every sector, for superblocks of members whose partition table is lost
    #[arg(long)]
    deep: bool,
    /// List what is inside of the arrays: partitions, LVM, file systems
    #[arg(long, conflicts_with = "to")]
    list: bool,
    /// Copy the files of ext2, ext3, ext4 and btrfs inside of the arrays to DIR, which is made if
    /// it is missing: a folder for each file system, and a list of what was not copied as it was.
    /// Existing files are not overwritten; the same command goes on after an interruption
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
    /// Copy only the file system or snapshot of this name in --list; may be repeated
    #[arg(long, value_name = "NAME", requires = "to")]
    only: Vec<String>,
    #[command(flatten)]
    unreadable: Unreadable,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Disks or images of disks
    #[arg(value_name = "DISK", required = true, value_parser = MemberArg::parser())]
    disks: Vec<MemberArg>,
}

pub(crate) fn run(arguments: &Rescue) -> Outcome {
    let names = member::paths(&arguments.disks).map_err(Failure::Usage)?;
    let mut disks = Vec::new();
    let maps = arguments.unreadable.maps(&names)?;
    for (name, looked) in names.iter().zip(look::open_all_with(&names, &maps)?) {
        disks.push(search::search(name, &looked, arguments.deep)?);
    }
    let arrays = arrays(&mut disks, &maps);
    let ends: Vec<End> = arrays.iter().filter_map(Array::end).collect();
    disks.iter_mut().for_each(|disk| disk.tell_cut(&ends));
    let shown: Vec<String> = names.iter().map(|name| quoted(name.as_os_str())).collect();
    let given = maps.options(names.iter().map(PathBuf::as_path)) + &shown.join(" ");
    if arguments.list || arguments.to.is_some() {
        let (to, only) = (arguments.to.as_deref(), arguments.only.as_slice());
        tell_refused(&arrays);
        return files::run(&arrays, &files::Asked { to, only, json: arguments.json, disks: given });
    }
    if arguments.json {
        let disks: Vec<Value> = disks.iter().map(Disk::to_json).collect();
        let arrays: Vec<Value> = arrays.iter().map(Array::to_json).collect();
        print_json(&json!({"schema": "weft.rescue/1", "arrays": arrays, "disks": disks}))?;
    } else {
        print(&disks, &arrays, &given)?;
    }
    if arrays.is_empty() && !arguments.deep {
        complain("no array was found; --deep reads every sector of the disks");
    }
    let readable = arrays.iter().any(|array| array.decision.is_ok());
    Ok(if readable { Exit::Done } else { Exit::Of(1) })
}

/// Says which arrays cannot be read, and what the others lack.
fn tell_refused(arrays: &[Array<'_>]) {
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

/// An array, with the members of it that were found.
struct Array<'m> {
    uuid: Uuid,
    found: Vec<Found>,
    candidates: Vec<Candidate>,
    /// Assembly, or the reason why the data cannot be read.
    decision: Result<Assembly, Refused>,
    /// Options that accept the risks of the assembly, such as `--force-dirty`; empty if it has
    /// none.
    consent: &'static [&'static str],
    /// Whether the array can be served for writing with an overlay; otherwise the reason why not.
    writable: Result<(), String>,
    /// Maps of ddrescue that the command line names.
    maps: &'m Maps,
}

/// Takes the members out of the disks, and groups them by array.
fn arrays<'m>(disks: &mut [Disk], maps: &'m Maps) -> Vec<Array<'m>> {
    let mut groups: Vec<(Uuid, Vec<Found>)> = Vec::new();
    for found in disks.iter_mut().flat_map(|disk| std::mem::take(&mut disk.found)) {
        match groups.iter_mut().find(|(uuid, _)| *uuid == found.set_uuid) {
            Some((_, group)) => group.push(found),
            None => groups.push((found.set_uuid, vec![found])),
        }
    }
    groups.into_iter().map(|(uuid, found)| Array::of(uuid, found, maps)).collect()
}

impl<'m> Array<'m> {
    fn of(uuid: Uuid, found: Vec<Found>, maps: &'m Maps) -> Self {
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
        Self { uuid, found, candidates, decision, consent, writable, maps }
    }

    /// Identity of this array and the size of its smallest member, for the search for images that
    /// were cut off. `None` if the superblocks are not at the end of the members.
    fn end(&self) -> Option<End> {
        let mut superblocks =
            self.candidates.iter().filter_map(|candidate| candidate.superblock.as_ref().ok());
        End::of(superblocks.next()?)
    }

    /// Names of the members that the assembly uses. A journal is included although it has no slot:
    /// without it the array is refused.
    fn names(&self) -> Vec<&Path> {
        let Ok(assembly) = &self.decision else { return Vec::new() };
        let used = self.found.iter().zip(&self.candidates).filter(|(_, candidate)| {
            let index = candidate.member.index;
            !assembly.dropped.iter().any(|dropped| dropped.member.index == index)
        });
        used.map(|(found, _)| found.name.as_path()).collect()
    }

    /// Arguments that name the members, preceded by options that name their maps.
    fn arguments(&self) -> String {
        let names = self.names();
        let maps = self.maps.options(names.iter().copied());
        let names: Vec<String> = names.iter().map(|name| quoted(name.as_os_str())).collect();
        maps + &names.join(" ")
    }

    /// Commands that the user is advised to run next.
    fn next(&self) -> Vec<String> {
        if self.decision.is_err() {
            return Vec::new();
        }
        let consent: String = self.consent.iter().map(|option| format!("{option} ")).collect();
        let members = self.arguments();
        let mut next = vec![
            format!("weft cat {consent}{members} >array.img"),
            format!("weft serve --read-only {consent}{members}"),
        ];
        if self.writable.is_ok() {
            next.push(format!("weft serve --overlay changes {consent}{members}"));
        }
        next
    }

    fn to_json(&self) -> Value {
        let mut object = to_json(&self.candidates, &self.decision);
        object["schema"] = json!("weft.rescue.array/1");
        object["uuid"] = json!(self.uuid.to_string());
        object["commands"] = json!(self.next());
        // Commands that write are not suggested.
        let states = match &self.decision {
            Ok(assembly) => assembly.states.clone(),
            Err(refused) => {
                let next = states::next_reading(refused.state);
                (object["next"], object["way_out"]) = (json!(next), json!(next));
                vec![refused.state]
            }
        };
        object["states"] = states::to_json_reading(&states);
        object["consent"] = json!(self.consent);
        object["overlay_refused"] = json!(self.writable.as_ref().err());
        if let Some(members) = object["members"].as_array_mut() {
            for (member, found) in members.iter_mut().zip(&self.found) {
                member["where"] = json!(found.kind.name());
            }
        }
        object
    }

    /// Reason why the array cannot be read. The usual advice is left out, because it includes
    /// commands that write.
    fn why(&self, refused: &Refused) -> String {
        match (refused.dropped.as_slice(), self.candidates.len()) {
            ([only], 1) => format!("{}: {}", only.member.label, only.reason),
            _ => refused.reason.clone(),
        }
    }

    fn print(&self, out: &mut dyn Write) -> Result<(), Failure> {
        match &self.decision {
            Ok(assembly) => writeln!(out, "array {}", title(assembly))?,
            Err(_) => writeln!(out, "array {}", self.uuid)?,
        }
        for (line, found) in lines(&self.candidates, &self.decision).iter().zip(&self.found) {
            let slot = line.slot.map_or("-".to_owned(), |slot| slot.to_string());
            let events = line.events.map_or("-".to_owned(), |events| events.to_string());
            let text = format!(
                "  {}  slot {slot}  {}  events {events}  {}  {}",
                quoted(found.name.as_os_str()),
                line.state,
                found.kind.name(),
                line.reason
            );
            writeln!(out, "{}", text.trim_end())?;
        }
        match &self.decision {
            Ok(assembly) => {
                for (slot, _) in missing(assembly) {
                    writeln!(out, "  missing  slot {slot}")?;
                }
                for note in &assembly.notes {
                    writeln!(out, "  note: {note}")?;
                }
                for line in states::lines_reading(&assembly.states) {
                    writeln!(out, "  {line}")?;
                }
                let degraded = match assembly.layout {
                    _ if assembly.degraded() == 0 => "",
                    Layout::Parity(_) => ", what is missing is reconstructed from the others",
                    Layout::Mirrors(_) | Layout::Striped(_) => {
                        ", what is missing is read from its other copies"
                    }
                };
                writeln!(out, "  its data can be read{degraded}; next, one of")?;
                for next in self.next() {
                    writeln!(out, "    {next}")?;
                }
                if let Err(why) = &self.writable {
                    writeln!(out, "  it cannot be written, not even with --overlay: {why}")?;
                }
            }
            Err(refused) => {
                let (why, state) = (self.why(refused), refused.state);
                let next = states::next_reading(state);
                writeln!(out, "  cannot be read ({}): {why}; next: {next}", state.id())?;
            }
        }
        writeln!(out)?;
        Ok(())
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

/// Prints the disks, the arrays and, if one can be read, the way to its files; `given` names the
/// disks.
fn print(disks: &[Disk], arrays: &[Array<'_>], given: &str) -> Result<(), Failure> {
    let mut out = printable_stdout();
    for disk in disks {
        disk.print(&mut out)?;
    }
    writeln!(out)?;
    for array in arrays {
        array.print(&mut out)?;
    }
    if arrays.iter().any(|array| array.decision.is_ok()) {
        let (list, to) = ("--list says what is inside", "--to DIR copies the files out");
        writeln!(out, "files: weft rescue {given} {list}, {to}")?;
    }
    out.flush()?;
    Ok(())
}

const FORCE_DIRTY: &str = "--force-dirty";
const WITHOUT_JOURNAL: &str = "--without-journal";
/// Sets of options that accept risks, in the order in which they are tried: with more risk from set
/// to set.
const CONSENTS: [&[&str]; 3] =
    [&[FORCE_DIRTY], &[WITHOUT_JOURNAL], &[FORCE_DIRTY, WITHOUT_JOURNAL]];
