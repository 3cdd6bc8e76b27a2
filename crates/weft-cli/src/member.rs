//! MEMBER arguments: paths, partitions, parts, memory and `missing`.
//!
//! `PATH` is a file or a block device, `PATH#N` a partition of it, `PATH@OFFSET[+LENGTH]` a part of
//! it (`weft_runtime::spec` defines the bytes), `ram:SIZE` memory of the serving process, and
//! `missing` a slot that `create` leaves empty. Members over NBD are planned for a later release
//! and refused by name.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

use clap::builder::{OsStringValueParser, TypedValueParser, ValueParser};
use weft_runtime::spec::MemberSpec;
use weft_terminal::terminal::{complain, label};
use weft_units::Bytes;

use crate::size::{self, Plain};

/// Meaning of a MEMBER argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MemberArg {
    /// An empty slot.
    Missing,
    /// A file, a block device, or a part of one, by its name.
    Path(PathBuf),
    /// Memory: the argument as written, which is the member's name, and the size.
    Ram(String, Bytes),
}

impl MemberArg {
    /// Parses an argument.
    ///
    /// # Errors
    /// The argument is not supported; the error lists what this release supports.
    pub(crate) fn parse(argument: &OsStr) -> Result<Self, String> {
        let path = Path::new(argument);
        let Some(text) = argument.to_str() else { return Ok(Self::Path(path.to_owned())) };
        if text.is_empty() {
            return Err("found an empty name, expected a file or block device".into());
        }
        if text == "missing" {
            return Ok(Self::Missing);
        }
        if let Some(size) = text.strip_prefix("ram:") {
            let bytes = size::parse(size, Plain::Refused)?;
            return Ok(Self::Ram(text.to_owned(), bytes));
        }
        if ["nbd:", "nbds:", "nbd+unix:", "nbds+unix:", "nbd+vsock:"]
            .iter()
            .any(|scheme| text.starts_with(scheme))
        {
            return Err("members behind NBD are not supported by this release; name a file, a \
                        block device or ram:SIZE"
                .into());
        }
        Ok(Self::Path(path.to_owned()))
    }

    /// Parser of MEMBER arguments for clap.
    pub(crate) fn parser() -> ValueParser {
        ValueParser::new(OsStringValueParser::new().try_map(|text: OsString| Self::parse(&text)))
    }
}

impl fmt::Display for MemberArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("missing"),
            Self::Path(path) => f.write_str(&label(path)),
            Self::Ram(text, _) => f.write_str(text),
        }
    }
}

/// Paths of arguments that must be files or devices. A pattern with a part, such as `disk*#5`,
/// stands for that part of each file that matches the pattern, in order of their names. The shell
/// cannot expand such a pattern, because no file has the name with `#5`.
///
/// # Errors
/// An argument is not a file or device, or a pattern matches no file; the error gives the first
/// such argument and the reason.
pub(crate) fn paths(members: &[MemberArg]) -> Result<Vec<PathBuf>, String> {
    let mut paths = Vec::new();
    for member in members {
        match member {
            MemberArg::Path(path) => paths.extend(matched(path)?),
            MemberArg::Missing => {
                return Err("missing: only create takes it; leave the member out".to_owned());
            }
            MemberArg::Ram(..) => {
                return Err(format!(
                    "{member}: fresh memory holds no array; only add takes it, as a new spare"
                ));
            }
        }
    }
    Ok(paths)
}

/// Leaves out the paths of members that do not exist, with a note for each, if `run` is given.
/// Without `run` all paths are returned, and opening a missing one fails.
pub(crate) fn present(mut paths: Vec<PathBuf>, run: bool) -> Vec<PathBuf> {
    let is_there = |path: &PathBuf| {
        let is_there = MemberSpec::path(path).file().is_none_or(Path::exists);
        if !is_there {
            complain(&format!("{}: no such file; left out for --run", label(path)));
        }
        is_there
    };
    if run {
        paths.retain(is_there);
    }
    paths
}

/// Paths that a name stands for: the name itself or, for a pattern with a part such as `disk*#5`,
/// that part of each file that matches.
fn matched(name: &Path) -> Result<Vec<PathBuf>, String> {
    let itself = || Ok(vec![name.to_owned()]);
    let Some(text) = name.to_str().filter(|_| !name.exists()) else { return itself() };
    let Some((file, part)) = text.rfind(['#', '@']).map(|at| text.split_at(at)) else {
        return itself();
    };
    if !file.contains(['*', '?', '[']) || Path::new(file).exists() {
        return itself();
    }
    let found = glob::glob(file).map_err(|error| format!("{text}: {file}: {error}"))?;
    let with_part = |mut path: OsString| {
        path.push(part);
        PathBuf::from(path)
    };
    let paths: Vec<PathBuf> = found.flatten().map(|it| with_part(it.into_os_string())).collect();
    if paths.is_empty() {
        return Err(format!("{text}: no file matches {file}"));
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn a_part_of_a_pattern_is_that_of_each_match() {
        let dir = tempfile::tempdir().unwrap();
        let place = |name: &str| dir.path().join(name);
        for name in ["disk2", "disk1", "other", "odd*#1"] {
            std::fs::write(place(name), "").unwrap();
        }
        let of = |name: &str| paths(&[MemberArg::Path(place(name))]);
        assert_eq!(of("disk*#5"), Ok(vec![place("disk1#5"), place("disk2#5")]));
        assert_eq!(of("disk?@1M"), Ok(vec![place("disk1@1M"), place("disk2@1M")]));
        // A name of an existing file, or one that is no pattern, stands for itself.
        for name in ["odd*#1", "disk*", "gone#5"] {
            assert_eq!(of(name), Ok(vec![place(name)]));
        }
        assert!(of("none*#5").unwrap_err().ends_with("/none*"));
        assert!(of("disk[#5").unwrap_err().contains("disk[#5: "));
    }

    #[test]
    fn arguments_name_what_they_look_like() {
        let parse = |text: &str| MemberArg::parse(OsStr::new(text));
        assert_eq!(parse("missing"), Ok(MemberArg::Missing));
        assert_eq!(parse("./missing"), Ok(MemberArg::Path("./missing".into())));
        assert_eq!(parse("ram:1M"), Ok(MemberArg::Ram("ram:1M".into(), Bytes::mib(1))));
        for path in ["a.img", "/dev/sda1", "a#b", "C#", "ram", "a.img#1", "a.img@1M", "a.img@1M+2G"]
        {
            assert_eq!(parse(path), Ok(MemberArg::Path(path.into())), "{path}");
        }
        for later in ["nbd://h/x", "nbd+unix:///x?socket=/s", "ram:", "ram:5", ""] {
            assert!(parse(later).is_err(), "{later}");
        }
        let bytes = OsStr::from_bytes(b"\xff\xfe");
        assert_eq!(MemberArg::parse(bytes), Ok(MemberArg::Path(bytes.into())));
    }
}
