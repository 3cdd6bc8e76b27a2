//! Members of a running volume by name, for `fail`, `remove`, `set` and `get`.
//!
//! A member is named by the path that it was opened by, by its file name if no other member has
//! that name, or by its device number, which is unique.

use std::io::Write;
use std::path::Path;

use clap::Args;
use serde_json::json;
use weft_export::control::{Command, MemberStatus, VolumeStatus};
use weft_runtime::spec::MemberSpec;
use weft_terminal::outcome::{Exit, Failure, Outcome};
use weft_terminal::terminal::{complain, print_json, stdout};

use crate::target::{Target, only_volume};

/// Options of `fail` and `remove`.
#[derive(Debug, Args)]
pub(crate) struct NamedMembers {
    /// Name or control socket of a running volume
    target: String,
    /// Members by path, file name or device number, as weft status shows them; `failed`: all that
    /// have failed; `detached`: all without their file or device
    #[arg(value_name = "MEMBER", required = true)]
    members: Vec<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Sends the server `command` for the named members, and prints that they are in the state `done`,
/// such as `failed`. `schema` is the schema of the JSON.
///
/// # Errors
/// A name matches no member or several, or the server refuses.
pub(crate) fn run(
    arguments: &NamedMembers,
    command: fn(Vec<String>) -> Command,
    schema: &str,
    done: &str,
) -> Outcome {
    let mut target = Target::connect(&arguments.target)?;
    let status = target.status()?;
    let volume = only_volume(&target.name, &status)?;
    let each = arguments.members.iter().map(|argument| meant(&target.name, volume, argument));
    let members = each.collect::<Result<Vec<_>, _>>()?.concat();
    if members.is_empty() {
        // As with mdadm, it is no error if `failed` or `detached` matches no member.
        let words = arguments.members.join(" or ");
        complain(&format!("{}: note: found no member that is {words}", target.name));
    } else {
        target.ask(command(members.iter().map(|member| member.index.clone()).collect()))?;
    }
    let members: Vec<&str> = members.iter().map(|member| member.label.as_str()).collect();
    if arguments.json {
        print_json(&json!({"schema": schema, "volume": volume.name, "members": members}))?;
    } else {
        let mut out = stdout();
        for member in members {
            writeln!(out, "{done} {member}")?;
        }
        out.flush()?;
    }
    Ok(Exit::Done)
}

/// Members that an argument of `fail` or `remove` selects: one by its name, or all that are
/// `failed`, `faulty` or `detached`, as mdadm's words say. The name of a member takes precedence
/// over such a word.
///
/// # Errors
/// The argument is none of these words, and matches no member or several.
///
/// Source   mdadm(8), MANAGE MODE
fn meant(target: &str, volume: &VolumeStatus, argument: &str) -> Result<Vec<Named>, Failure> {
    let fits: fn(&MemberStatus) -> bool = match argument {
        "failed" | "faulty" => |member| member.state == "faulty",
        "detached" => |member| {
            MemberSpec::parse(&member.label)
                .is_ok_and(|spec| spec.file().is_some_and(|path| !path.exists()))
        },
        _ => return Ok(vec![one(target, volume, argument)?]),
    };
    if let Ok(named) = one(target, volume, argument) {
        return Ok(vec![named]);
    }
    let all = volume.members.iter().filter(|member| fits(member));
    Ok(all.map(Named::of).collect())
}

/// Members named by arguments.
///
/// # Errors
/// A name matches no member or several.
pub(crate) fn all(target: &mut Target, arguments: &[String]) -> Result<Vec<Named>, Failure> {
    let status = target.status()?;
    let volume = only_volume(&target.name, &status)?;
    arguments.iter().map(|argument| one(&target.name, volume, argument)).collect()
}

/// Member of a running volume that an argument names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    /// Label of the member, for output.
    pub(crate) label: String,
    /// Index of the member, for the server. Unlike the label, it is unique.
    pub(crate) index: String,
}

impl Named {
    fn of(member: &MemberStatus) -> Self {
        Self { label: member.label.clone(), index: member.index.to_string() }
    }
}

/// Finds the member that an argument names.
///
/// # Errors
/// The argument matches no member, or several.
fn one(target: &str, volume: &VolumeStatus, argument: &str) -> Result<Named, Failure> {
    let members = &volume.members;
    let absolute = std::path::absolute(argument).ok();
    let mut found: Vec<&MemberStatus> = members
        .iter()
        .filter(|member| {
            member.label == argument || Some(Path::new(&member.label)) == absolute.as_deref()
        })
        .collect();
    if found.is_empty() {
        let by_number = argument.parse().ok();
        found = members
            .iter()
            .filter(|member| {
                let name = Path::new(&member.label).file_name();
                name == Some(argument.as_ref()) || Some(member.dev_number) == by_number
            })
            .collect();
    }
    let described = |members: &[&MemberStatus]| {
        let each = |member: &&MemberStatus| format!("{} ({})", member.dev_number, member.label);
        members.iter().map(each).collect::<Vec<_>>().join(", ")
    };
    match found.as_slice() {
        [one] => Ok(Named::of(one)),
        [] => Err(Failure::usage(format!(
            "{target}: no member {argument}; it has {}",
            described(&members.iter().collect::<Vec<_>>())
        ))),
        several => Err(Failure::usage(format!(
            "{target}: {argument} may be any of {}; name one by its number",
            described(several)
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_fits_several_is_refused() {
        let member = |index: u16, label: &str| MemberStatus {
            index,
            label: label.into(),
            dev_number: u32::from(index) + 4,
            ..MemberStatus::default()
        };
        let labels = ["/x/a", "/y/a", "/x/b", "ram:64M", "ram:64M"];
        let members = labels.into_iter().zip(0..).map(|(label, index)| member(index, label));
        let volume = VolumeStatus { members: members.collect(), ..VolumeStatus::default() };
        let index = |argument: &str| {
            one("vol", &volume, argument).map(|named| named.index).map_err(|error| match error {
                Failure::Usage(text) => text,
                other => panic!("{other:?}"),
            })
        };
        for (argument, expected) in [("/y/a", "1"), ("b", "2"), ("8", "4"), ("4", "0")] {
            assert_eq!(index(argument).as_deref(), Ok(expected), "{argument}");
        }
        let text = index("ram:64M").unwrap_err();
        assert!(text.contains("any of 7 (ram:64M), 8 (ram:64M); name one by its number"), "{text}");
        for argument in ["a", "c", "0"] {
            assert!(index(argument).is_err(), "{argument}");
        }
    }
}
