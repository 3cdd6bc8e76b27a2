//! Which member of a running volume does an argument name?
//!
//! What `fail` and `remove` have in common: members are named by the path that they were opened by,
//! by their file name when only one has it, or by their device number, which each has alone.

use std::path::Path;

use weft_export::control::{MemberStatus, VolumeStatus};

use crate::outcome::Failure;

/// A member that was named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    /// For people.
    pub(crate) label: String,
    /// For the server, which knows members of one label apart by it.
    pub(crate) index: String,
}

/// The members that were named.
///
/// # Errors
/// An argument names none, or several.
pub(crate) fn named(
    target: &str,
    volume: &VolumeStatus,
    arguments: &[String],
) -> Result<Vec<Named>, Failure> {
    arguments.iter().map(|argument| one(target, volume, argument)).collect()
}

/// What the server takes.
pub(crate) fn indices(members: &[Named]) -> Vec<String> {
    members.iter().map(|member| member.index.clone()).collect()
}

/// What people read.
pub(crate) fn labels(members: &[Named]) -> Vec<&str> {
    members.iter().map(|member| member.label.as_str()).collect()
}

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
        [one] => Ok(Named { label: one.label.clone(), index: one.index.to_string() }),
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
