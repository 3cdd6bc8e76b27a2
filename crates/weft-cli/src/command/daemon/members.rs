//! Search for the members of a volume when it is started: by patterns, or by the array's UUID or
//! name.

use std::path::{Path, PathBuf};

use weft_engine::assemble::Options;

use super::file::Entry;
use crate::look::Looked;

/// Paths of the members of a volume, which are searched as its entry says.
///
/// # Errors
/// A pattern matches no file, no device belongs to the array, or the list of devices cannot be
/// read; the text is a sentence.
pub(super) fn find(entry: &Entry) -> Result<Vec<PathBuf>, String> {
    let all = match entry.members.as_slice() {
        [] => devices()?,
        members => matched(members)?,
    };
    let Some(selection) = &entry.selection else { return Ok(all) };
    let count = all.len();
    let mut found: Vec<(PathBuf, PathBuf)> = Vec::new();
    for path in all {
        let real = std::fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
        // A folder such as /dev/disk/by-id has several links to a device.
        if found.iter().all(|(_, other)| *other != real) && belongs(&path, selection) {
            found.push((path, real));
        }
    }
    // With metadata at the end of the last partition, the superblock seems to be the disk's too.
    let disks: Vec<PathBuf> = found.iter().filter_map(|(_, real)| disk_of(real)).collect();
    found.retain(|(_, real)| !disks.contains(real));
    if found.is_empty() {
        let wanted = entry
            .options
            .iter()
            .filter(|word| ["--uuid=", "--array="].iter().any(|option| word.starts_with(option)));
        let wanted: Vec<&str> = wanted.map(|word| word.trim_start_matches('-')).collect();
        return Err(format!("found no member of {} among {count} devices", wanted.join(", ")));
    }
    Ok(found.into_iter().map(|(path, _)| path).collect())
}

/// Whether a member is a pattern of paths that the daemon expands. Patterns with a part (`disk*#5`)
/// are left to `weft serve`.
pub(super) fn is_pattern(member: &str) -> bool {
    member.contains(['*', '?', '[']) && !member.contains(['#', '@']) && !Path::new(member).exists()
}

/// Paths of `members`, in their order: a name stands for itself, a pattern for all paths that match
/// it.
fn matched(members: &[String]) -> Result<Vec<PathBuf>, String> {
    let mut paths = Vec::new();
    for member in members {
        if !is_pattern(member) {
            paths.push(PathBuf::from(member));
            continue;
        }
        let found = glob::glob(member).map_err(|error| format!("{member}: {error}"))?;
        let before = paths.len();
        paths.extend(found.flatten());
        if paths.len() == before {
            return Err(format!("{member}: no file matches"));
        }
    }
    Ok(paths)
}

/// Whether a device has a superblock of the selected array; false if no superblock can be read.
fn belongs(path: &Path, selection: &Options) -> bool {
    let looked = Looked::open(path).ok().and_then(|looked| looked.superblock().ok());
    looked.is_some_and(|superblock| selection.selects(&superblock))
}

/// Paths of all block devices that may be members.
///
/// # Errors
/// The kernel's list cannot be read.
///
/// Source   proc(5), /proc/partitions; mdadm.conf(5), DEVICE partitions
pub(super) fn devices() -> Result<Vec<PathBuf>, String> {
    let text = std::fs::read_to_string(LIST).map_err(|error| format!("{LIST}: {error}"))?;
    let names = text.lines().skip(1).filter_map(|line| line.split_whitespace().nth(3));
    let names = names.filter(|name| !PASSED_OVER.iter().any(|other| name.starts_with(other)));
    Ok(names.map(|name| Path::new("/dev").join(name.replace('!', "/"))).collect())
}

/// Path of the disk on which a partition lies; `None` if `path` is not a partition.
fn disk_of(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?;
    let folder = std::fs::canonicalize(Path::new("/sys/class/block").join(name)).ok()?;
    folder.join("partition").exists().then_some(())?;
    let disk = folder.parent()?.file_name()?;
    Some(path.with_file_name(disk))
}

/// Beginnings of the names of devices that are not searched: drives with removable media, memory,
/// and devices of a server that may be gone, from which a read would never return.
const PASSED_OVER: [&str; 6] = ["fd", "nbd", "ram", "sr", "ublkb", "zram"];

const LIST: &str = "/proc/partitions";
