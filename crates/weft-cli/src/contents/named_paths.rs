//! Arguments that name paths inside of disks or of a running volume: `DISK… [:PATH]…` or
//! `TARGET[:PATH]…`.
//!
//! An argument that begins with a colon is a path inside of the disks before it. An argument that
//! as a whole names a file or device has no path. In any other argument, one colon separates the
//! name and the path: the last colon with a file or device of the name before it or, if there is no
//! such file or device, the first colon, which then follows the name of a running volume.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use weft_runtime::spec::MemberSpec;
use weft_terminal::terminal::label;

use crate::member::{self, MemberArg};

/// Disks or a running volume, and paths inside.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NamedPaths {
    /// Names of disks, or the one name of a running volume.
    pub(crate) names: Vec<PathBuf>,
    /// Paths, each as names from the root on.
    pub(crate) paths: Vec<Vec<Vec<u8>>>,
}

impl NamedPaths {
    /// Parses arguments.
    ///
    /// # Errors
    /// A path has no disk before it, a disk follows a path, or an argument is no name of a disk.
    pub(crate) fn of(arguments: &[OsString]) -> Result<Self, String> {
        let (mut members, mut paths) = (Vec::<MemberArg>::new(), Vec::new());
        for argument in arguments {
            let (name, path) = split(argument);
            let path = path.map(|path| parts(path.as_bytes()));
            let is_known = |member: &MemberArg| member == &MemberArg::Path(name.into());
            match (name.is_empty(), members.as_slice(), &path) {
                (true, [], _) => {
                    return Err(format!(
                        "{}: found a path, expected a disk or a running volume before it",
                        label(Path::new(argument))
                    ));
                }
                (true, ..) => {}
                (false, [one], Some(_)) if is_known(one) => {}
                (false, [], _) | (false, _, None) if paths.is_empty() => {
                    members.push(MemberArg::parse(name)?);
                }
                _ => {
                    return Err(format!(
                        "{}: found another disk or volume, expected all disks before the first \
                         path, or paths of one volume",
                        label(Path::new(argument))
                    ));
                }
            }
            paths.extend(path);
        }
        Ok(Self { names: member::paths(&members)?, paths })
    }
}

/// Splits an argument into a name and, if it has one, the path behind the colon.
fn split(argument: &OsStr) -> (&OsStr, Option<&OsStr>) {
    let bytes = argument.as_bytes();
    let at = |colon: usize| {
        (OsStr::from_bytes(&bytes[..colon]), Some(OsStr::from_bytes(&bytes[colon + 1..])))
    };
    let is_there = |name: &OsStr| {
        let path = Path::new(name);
        path.exists() || MemberSpec::path(path).file().is_some_and(Path::exists)
    };
    let colons = || (0..bytes.len()).filter(|at| bytes[*at] == b':');
    match colons().next() {
        None => (argument, None),
        Some(0) => at(0),
        Some(_)
            if is_there(argument)
                || ["nbd", "ram"]
                    .iter()
                    .any(|it| bytes.starts_with(it.as_bytes()) && bytes.get(3) == Some(&b':')) =>
        {
            (argument, None)
        }
        Some(first) => at(colons().rev().find(|it| is_there(at(*it).0)).unwrap_or(first)),
    }
}

/// Names in a path, from the root on. `..` goes back by one name, and no further than the root.
fn parts(path: &[u8]) -> Vec<Vec<u8>> {
    let mut parts = Vec::new();
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()),
            part => parts.push(part.to_vec()),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(arguments: &[&str]) -> Result<(Vec<PathBuf>, Vec<String>), String> {
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        let asked = NamedPaths::of(&arguments)?;
        let text = |parts: &Vec<Vec<u8>>| String::from_utf8(parts.join(&b'/')).unwrap();
        Ok((asked.names, asked.paths.iter().map(text).collect()))
    }

    #[test]
    fn names_and_paths_are_told_apart_by_colons_and_by_the_files_that_exist() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, "").unwrap();
            path.to_str().unwrap().to_owned()
        };
        let (disk, odd) = (file("disk"), file("a:b"));
        let (disk, odd) = (disk.as_str(), odd.as_str());
        let found = |names: &[&str], paths: &[&str]| {
            let names = names.iter().map(PathBuf::from).collect();
            Ok((names, paths.iter().map(|it| (*it).to_owned()).collect()))
        };
        assert_eq!(of(&[disk, odd]), found(&[disk, odd], &[]));
        assert_eq!(of(&[disk, odd, ":/x//y/./z", ":"]), found(&[disk, odd], &["x/y/z", ""]));
        assert_eq!(of(&[&format!("{odd}:x:y")]), found(&[odd], &["x:y"]));
        assert_eq!(of(&["nas:x/../../y", "nas:z:/"]), found(&["nas"], &["y", "z:"]));
        assert_eq!(of(&[&format!("{disk}#1:x")]), found(&[&format!("{disk}#1")], &["x"]));
        for (wrong, says) in [
            (&[":x"][..], "expected a disk or a running volume before it"),
            (&[disk, ":x", odd], "found another disk or volume"),
            (&["nas:x", "other:y"], "found another disk or volume"),
            (&["nas", "other:y"], "found another disk or volume"),
            (&["nbd://host/x"], "members behind NBD are not supported"),
            (&["ram:1M"], "fresh memory holds no array"),
        ] {
            let error = of(wrong).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}
