//! Search for overlays in a directory, by member and by array, and the marks of committed overlays.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::format::{HEADER, Header, OverlayState};
use super::{Base, Overlay, Underlay, io_error, refused};
use crate::device_error::DeviceError;
use crate::file_lock::{Access, lock_file};

/// Path of the file that marks an overlay as committed.
fn mark_beside(overlay: &Path) -> PathBuf {
    overlay.with_extension("committed")
}

/// Removes the mark that an earlier overlay of this name was committed, if there is one.
pub(crate) fn forget(overlay: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(mark_beside(overlay)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Marks an overlay as committed, durably.
pub(crate) fn mark_committed(overlay: &Path) -> std::io::Result<()> {
    let mut options = File::options();
    let mark = options.write(true).create(true).truncate(false).open(mark_beside(overlay))?;
    mark.sync_all()
}

/// Whether `dir` has the mark of a committed overlay of this member.
pub(crate) fn is_committed(member: Underlay<'_>, dir: &Path) -> Result<bool, DeviceError> {
    let base = Base::of(member).map_err(|source| io_error(member.label, "reading", source))?;
    Ok(base.names.iter().any(|name| mark_beside(&dir.join(name)).exists()))
}

/// Path of the overlay of a member in `dir`; `None` if there is none. `base` is the present state
/// of the member's superblock and file.
pub(super) fn find(member: Underlay<'_>, base: &Base, dir: &Path) -> Option<PathBuf> {
    let by_name = base.names.iter().map(|name| dir.join(name)).find(|path| path.exists());
    by_name.or_else(|| {
        // A commit that was cut short may have changed the superblock of the member.
        let begun = |header: &Header| {
            header.state == OverlayState::Committing && header.label == member.label
        };
        let mut all = list(dir).into_iter();
        all.find_map(|(path, header)| header.is_ok_and(|header| begun(&header)).then_some(path))
    })
}

/// Path of the overlay of a member in `dir`; `None` if there is none. Reads the member, because the
/// overlay is named after its content.
pub(crate) fn find_of(member: Underlay<'_>, dir: &Path) -> Result<Option<PathBuf>, DeviceError> {
    let base = Base::of(member).map_err(|source| io_error(member.label, "reading", source))?;
    Ok(find(member, &base, dir))
}

/// Locks the overlay of a member, so that it can be removed. Returns its path and the file that
/// holds the lock; `None` if the member has no overlay.
///
/// # Errors
/// Fails when the overlay is in use, or when its commit was begun.
pub(crate) fn lock_to_remove(
    member: Underlay<'_>,
    dir: &Path,
) -> Result<Option<(PathBuf, File)>, DeviceError> {
    let Some(path) = find_of(member, dir)? else { return Ok(None) };
    let file = File::options().read(true).write(true).open(&path);
    let file = file.map_err(|source| io_error(member.label, "opening its overlay", source))?;
    lock_file(&path.display().to_string(), file.as_fd(), Access::ReadWrite)?;
    let mut bytes = [0; HEADER];
    let header = file.read_exact_at(&mut bytes, 0).map(|()| Header::decode(&bytes));
    if let Ok(Ok(Header { state: OverlayState::Committing, .. })) = header {
        return Err(refused(
            member.label,
            format!(
                "{}: its commit was begun, so that the member is half new; finish it with \
                 --commit-overlay, for without the overlay nothing can",
                path.display()
            ),
        ));
    }
    Ok(Some((path, file)))
}

/// Finds an overlay in `dir` that is not among `named`, but belongs or may belong to the array of
/// one of them. Returns its path and the label of its member; `None` if there is none.
pub(crate) fn left_out(dir: &Path, named: &[&Overlay]) -> Option<(PathBuf, String)> {
    list(dir).into_iter().find_map(|(path, header)| {
        let header = header.ok()?;
        let is_named = named.iter().any(|overlay| overlay.path == path);
        let is_of = |overlay: &&Overlay| overlay.header.array == header.array;
        let may_be = !named.is_empty() && header.array == [0; 16];
        (!is_named && (may_be || named.iter().any(is_of))).then_some((path, header.label))
    })
}

/// Overlays in a directory, each with its header or the reason why that is not valid.
fn list(dir: &Path) -> Vec<(PathBuf, Result<Header, String>)> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let paths = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "overlay"));
    paths
        .map(|path| {
            let mut bytes = [0; HEADER];
            let read = File::open(&path).and_then(|file| file.read_exact_at(&mut bytes, 0));
            let header = read.map_err(|error| error.to_string());
            (path, header.and_then(|()| Header::decode(&bytes)))
        })
        .collect()
}
