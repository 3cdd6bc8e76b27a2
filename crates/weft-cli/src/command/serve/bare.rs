//! `weft serve --bare`: one member as a volume, without metadata.

use std::ffi::OsStr;

use weft_engine::knobs::Knob;
use weft_export::Source;
use weft_runtime::devices::{
    Access, DeviceError, MemberSpec, OpenMember, OpenOptions, read_metadata,
};
use weft_terminal::outcome::Failure;
use weft_terminal::terminal::complain;
use weft_units::MemberIndex;

use crate::member::MemberArg;
use crate::volume::{device, is_name, spec};

use super::{Plan, Serve, log_modes};

/// Opens the member, and returns it as the volume to be served.
///
/// A member with a superblock of an array is not opened for writing: writes of a client would leave
/// the array with wrong parity, undetected.
pub(super) fn plan(arguments: &Serve) -> Result<Plan, Failure> {
    let knobs = super::knobs(arguments, Knob::is_of_queues)?;
    let [argument] = arguments.members.as_slice() else {
        let found = arguments.members.len();
        return Err(Failure::usage(format!("--bare: found {found} members, expected one")));
    };
    let paths: Vec<_> = match argument {
        MemberArg::Path(path) => vec![path.clone()],
        MemberArg::Missing | MemberArg::Ram(..) => Vec::new(),
    };
    let reading = arguments.reading.of(&paths)?;
    let (spec, stem) = match argument {
        MemberArg::Missing => return Err(Failure::usage("--bare: missing is not a member")),
        MemberArg::Path(path) => (reading.apply(spec(path)), path.file_stem()),
        MemberArg::Ram(text, _) => {
            (MemberSpec::parse(text).map_err(|error| device(&error))?, Some(OsStr::new("ram")))
        }
    };
    let stem = stem.map(|stem| stem.to_string_lossy().into_owned());
    let name = match arguments.name.clone().or(stem.filter(|stem| is_name(stem))) {
        Some(name) => name,
        None => {
            return Err(Failure::usage(format!(
                "{argument}: its name cannot be that of a volume; give one with --name"
            )));
        }
    };
    let open = |access| {
        let buffered = arguments.buffered || arguments.overlay.dir.is_some();
        let options = OpenOptions { buffered, ..OpenOptions::new(access) };
        options.open(&spec, MemberIndex(0), []).map_err(|error| unusable(&error))
    };
    let access = if arguments.assembly.read_only { Access::ReadOnly } else { Access::ReadWrite };
    let member = if let Some(dir) = &arguments.overlay.dir {
        open(Access::ReadOnly)?.with_overlay(dir, access).map_err(|error| unusable(&error))?
    } else if arguments.assembly.read_only || matches!(argument, MemberArg::Ram(..)) {
        open(Access::ReadOnly)?
    } else {
        refuse_array(&open(Access::ReadOnly)?)?;
        // The member may have changed since the first check.
        let member = open(Access::ReadWrite)?;
        refuse_array(&member)?;
        member
    };
    if let Some(map) = member.rescued() {
        complain(&format!("{}: {}", member.info().label, map.says()));
    }
    log_modes(std::slice::from_ref(&member));
    Ok(Plan {
        name,
        read_only: arguments.assembly.read_only,
        description: format!("{} as it is", member.info().label),
        source: Source::Bare {
            member: Box::new(member),
            read_only: arguments.assembly.read_only,
            knobs: Box::new(knobs),
            write_back: arguments.write_back(),
        },
        stopped: "all finished and flushed",
    })
}

/// Converts an error of opening the member to a failure, with advice for a volume of one member.
fn unusable(error: &DeviceError) -> Failure {
    match error {
        DeviceError::NotRescued { .. } => Failure::refused(format!(
            "{error}; --read-only serves what was rescued, and an input/output error for the rest"
        )),
        _ => device(error),
    }
}

fn refuse_array(member: &OpenMember) -> Result<(), Failure> {
    if read_metadata(member).superblock.is_err() {
        return Ok(());
    }
    Err(Failure::refused(format!(
        "{}: found the metadata of an array, expected none; weft serve without --bare serves the \
         array, --bare --read-only the member without writing to it",
        member.info().label
    )))
}
