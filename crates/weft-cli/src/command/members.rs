//! Which member of a running volume does an argument name?
//!
//! What `fail` and `remove` have in common: members are named by the path that they were opened by,
//! by their file name when only one has it, or by their device number.

use std::path::Path;

use weft_export::control::VolumeStatus;

use crate::outcome::Failure;

/// The label of each member that was named.
///
/// # Errors
/// An argument names none, or several.
pub(crate) fn labels(
    target: &str,
    volume: &VolumeStatus,
    arguments: &[String],
) -> Result<Vec<String>, Failure> {
    arguments.iter().map(|argument| label(target, volume, argument)).collect()
}

fn label(target: &str, volume: &VolumeStatus, argument: &str) -> Result<String, Failure> {
    let members = &volume.members;
    let absolute = std::path::absolute(argument).ok();
    let exact = members.iter().find(|member| {
        member.label == argument || Some(Path::new(&member.label)) == absolute.as_deref()
    });
    if let Some(member) = exact {
        return Ok(member.label.clone());
    }
    let by_number = argument.parse().ok();
    let named: Vec<&str> = members
        .iter()
        .filter(|member| {
            let name = Path::new(&member.label).file_name();
            name == Some(argument.as_ref()) || Some(member.dev_number) == by_number
        })
        .map(|member| member.label.as_str())
        .collect();
    match named.as_slice() {
        [one] => Ok((*one).to_owned()),
        [] => Err(Failure::usage(format!(
            "{target}: no member {argument}; it has {}",
            members.iter().map(|member| member.label.as_str()).collect::<Vec<_>>().join(", ")
        ))),
        several => Err(Failure::usage(format!(
            "{target}: {argument} may be any of {}; name one by its path",
            several.join(", ")
        ))),
    }
}
