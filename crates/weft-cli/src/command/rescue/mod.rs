//! `weft rescue`: finds the arrays on disks, and prints the next command for each.
//!
//! The command examines whole disks and images and their partitions, searches for superblocks in
//! unusual places, groups members by array, and reports for each array whether and how its data can
//! be read.

mod tried;

use weft_terminal::outcome::{Exit, Failure, Outcome};
use weft_terminal::terminal::{complain, print_json, printable_stdout, quoted};

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use weft_engine::layout::Layout;

use crate::assembly::{lines, missing, to_json};
use crate::contents::{Array, Contents, Disk, Searched};
use crate::copies::listed;
use crate::member::{self, MemberArg};
use crate::reading::{Reading, ReadingOptions};
use crate::states;

/// Finds arrays on whole disks or images, and says how to get at their data
///
/// Looks at each disk as a whole, at its partitions, and near both of its ends for superblocks in
/// odd places. Reads the disks only. Exit status: 0 when the data of an array can be read, 1 when
/// of none; with --to, 0 when everything was copied as it was, 1 otherwise.
#[derive(Debug, Args)]
pub(crate) struct Rescue {
    /// Read every sector, for superblocks of members that have lost their partition table
    #[arg(long)]
    deep: bool,
    /// Find the geometry of an array with lost or overwritten superblocks: tries levels, layouts,
    /// chunks, offsets and orders of the disks, and says which make sense. 'missing' stands for a
    /// disk that is not here
    #[arg(long = "try", conflicts_with_all = ["deep", "list", "to"])]
    trial: bool,
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
    /// List and copy the system of a NAS and its swap space too: small RAID 1 arrays of partitions
    /// beside much larger ones on the same disks
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    reading: ReadingOptions,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Disks or images of disks
    #[arg(value_name = "DISK", required = true, value_parser = MemberArg::parser())]
    disks: Vec<MemberArg>,
}

pub(crate) fn run(arguments: &Rescue) -> Outcome {
    if arguments.trial {
        return tried::run(arguments);
    }
    let names = member::paths(&arguments.disks).map_err(Failure::Usage)?;
    let reading = arguments.reading.of(&names)?;
    let Searched { disks, arrays } = Searched::of(&names, &reading, arguments.deep)?;
    let given = again(arguments, &names, &reading);
    if arguments.list || arguments.to.is_some() {
        let (to, only) = (arguments.to.as_deref(), arguments.only.as_slice());
        let (all, json) = (arguments.all, arguments.json);
        let command = format!("weft rescue {given}");
        let asked = listed::ListArguments { to, only, all, json, command, reading: &reading };
        let contents = Contents::of_arrays(&arrays)?;
        return listed::run(contents, &arrays, &asked);
    }
    if arguments.json {
        let disks: Vec<Value> = disks.iter().map(Disk::to_json).collect();
        let arrays: Vec<Value> = arrays.iter().map(Array::to_json).collect();
        print_json(&json!({
            "schema": "weft.rescue/1", "arrays": arrays, "disks": disks,
            "timed_out": reading.timed_out(),
        }))?;
    } else {
        print(&disks, &arrays, &given)?;
    }
    let is_told = disks.iter().any(|disk| disk.unsearched().is_some());
    if arrays.is_empty() && !arguments.deep && !is_told {
        complain("no array was found; --deep reads every sector of the disks");
    }
    let readable = arrays.iter().any(|array| array.decision.is_ok());
    Ok(if readable { Exit::Done } else { Exit::Of(1) })
}

/// Arguments by which the next command finds the same arrays and leaves out the same ones.
fn again(arguments: &Rescue, names: &[PathBuf], reading: &Reading) -> String {
    let deep = if arguments.deep { "--deep " } else { "" };
    let all = if arguments.all { "--all " } else { "" };
    let shown: Vec<String> = names.iter().map(|name| quoted(name.as_os_str())).collect();
    let options = reading.options(names.iter().map(PathBuf::as_path));
    format!("{deep}{all}{options}{}", shown.join(" "))
}

impl Array {
    /// Commands that the user is advised to run next; none for an array that cannot be read.
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
        for (key, value) in self.refused_described().into_iter().flatten() {
            object[key] = value;
        }
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

    fn print(&self, out: &mut dyn Write) -> Result<(), Failure> {
        writeln!(out, "array {}", self.title())?;
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

/// Prints the disks, the arrays and, if one can be read, the command for its files; `given` are the
/// arguments that name the disks.
fn print(disks: &[Disk], arrays: &[Array], given: &str) -> Result<(), Failure> {
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
