//! `weft add`: adds a new member to a running volume.
//!
//! The server opens the device. The command examines it first, so no data is overwritten without
//! consent.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use weft_export::control::{Command, VolumeStatus};
use weft_runtime::devices::FreshFile;
use weft_runtime::spec::MemberSpec;
use weft_terminal::outcome::{Exit, Failure, Outcome};
use weft_terminal::terminal::{complain, print_json, stdout};

use crate::look::Looked;
use crate::member::MemberArg;
use crate::size;
use crate::target::{Target, only_volume};

/// Takes new members into a running volume, as spares
///
/// A spare is rebuilt at once where a slot is empty, while the volume is in use. Refuses members
/// that hold something else (exit status 3), unless --force is given.
#[derive(Debug, Args)]
pub(crate) struct Add {
    /// Name or control socket of a running volume
    target: String,
    /// PATH, PATH#N (partition N), PATH@OFFSET[+LENGTH], or ram:SIZE for memory of the server
    #[arg(value_name = "MEMBER", required = true, value_parser = MemberArg::parser())]
    members: Vec<MemberArg>,
    /// Make members that do not exist, as sparse files of this size
    #[arg(long, value_name = "SIZE", value_parser = size::with_unit)]
    member_size: Option<weft_units::Bytes>,
    /// Overwrite what is found on the members, but for a superblock of another version than the
    /// array's, which has to be erased before
    #[arg(short, long)]
    force: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Add) -> Outcome {
    let mut target = Target::connect(&arguments.target)?;
    let status = target.status()?;
    let volume = only_volume(&target.name, &status)?;
    let mut created = CreatedFiles(Vec::new());
    let mut members = Vec::new();
    for member in &arguments.members {
        members.push(acceptable(member, volume, arguments, &mut created)?);
    }
    // Members are added one after the other, so a refusal can name those added before.
    for (done, member) in members.iter().enumerate() {
        let added = target.ask(Command::Add { members: vec![member.clone()] });
        added.map_err(|failure| after(failure, &members[..done]))?;
        created.0.retain(|path| path.to_str() != Some(member.as_str()));
        if member.starts_with("ram:") {
            complain(&format!(
                "{member}: memory is gone when the volume stops, and its data with it"
            ));
        }
    }
    if arguments.json {
        print_json(&json!({"schema": "weft.add/1", "volume": volume.name, "members": members}))?;
    } else {
        let mut out = stdout();
        for member in members {
            writeln!(out, "added {member}")?;
        }
        out.flush()?;
    }
    Ok(Exit::Done)
}

/// Files that this command has created. Dropping the value removes those that were not added to the
/// array.
struct CreatedFiles(Vec<PathBuf>);

impl Drop for CreatedFiles {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Adds to the error for a member the list of the members that were added before it.
fn after(failure: Failure, added: &[String]) -> Failure {
    match failure {
        Failure::Failed(text) | Failure::Refused(text) if !added.is_empty() => {
            Failure::Failed(format!("{text}; added before it: {}", added.join(", ")))
        }
        other => other,
    }
}

/// Name under which the server is to open a member: its absolute path, or `ram:SIZE`. Creates a
/// missing file if `--member-size` is given; refuses a member with data that must be kept.
fn acceptable(
    member: &MemberArg,
    volume: &VolumeStatus,
    arguments: &Add,
    created: &mut CreatedFiles,
) -> Result<String, Failure> {
    let path = match member {
        MemberArg::Missing => {
            return Err(Failure::usage("missing: only create takes it; name a file or device"));
        }
        MemberArg::Ram(text, bytes) => {
            if bytes.sectors_floor() == weft_units::Sectors::ZERO {
                return Err(Failure::usage(format!("{text}: expected at least one sector")));
            }
            return Ok(text.clone());
        }
        MemberArg::Path(path) => path,
    };
    let failed = |error: std::io::Error| Failure::failed(format!("{member}: {error}"));
    let is_part = MemberSpec::path(path).is_part();
    if let Some(size) = arguments.member_size
        && !is_part
        && !path.exists()
    {
        let file = FreshFile::create_new(path).map_err(failed)?;
        created.0.push(std::path::absolute(path).map_err(failed)?);
        file.set_len(size).map_err(failed)?;
        file.sync().map_err(failed)?;
    }
    if !is_part && !path.exists() && !path.is_symlink() {
        return Err(Failure::failed(format!(
            "{member}: no such file; --member-size SIZE makes it, as a sparse file"
        )));
    }
    let path = std::path::absolute(path).map_err(failed)?;
    let label = path.to_str().map(str::to_owned).ok_or_else(|| {
        Failure::usage(format!("{member}: the control socket takes names in UTF-8 only"))
    })?;
    if volume.members.iter().any(|member| member.label == label) {
        return Err(Failure::usage(format!(
            "{member}: is a member of {} already; weft remove it first to add it anew",
            volume.name
        )));
    }
    let looked = Looked::open(&path)?;
    looked.refuse_unrescued()?;
    if arguments.force || is_former_member(&looked, volume) {
        return Ok(label);
    }
    match looked.foreign()? {
        None => Ok(label),
        Some(foreign) => Err(Failure::refused(format!(
            "{member}: signature at byte {}: found {}, expected an empty member; nothing was \
             written; --force overwrites what is there",
            foreign.byte, foreign.name
        ))),
    }
}

/// Whether the member has a superblock of the volume's array.
fn is_former_member(looked: &Looked, volume: &VolumeStatus) -> bool {
    let (Ok(own), Some(array)) = (looked.superblock(), &volume.array) else { return false };
    own.set_uuid().to_string() == array.uuid
}
