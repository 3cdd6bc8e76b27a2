//! Commit of overlays: their changes are written into the members, or dropped.
//!
//! ```text
//! 1  every overlay is marked "committing", durably: from now on members are neither old nor new
//! 2  data goes to all members, then a flush of each
//! 3  superblocks go to all members, then a flush of each
//! 4  each overlay gets a file `.committed` beside it, and is removed
//! ```
//!
//! A hole of the overlay, where a range was discarded, becomes a hole of the member, or zeroes if
//! the member cannot have holes.
//!
//! Overlays stay complete after a crash at any point, so repeating the whole commit gives the same
//! members. Superblocks come last: until then no member claims to have data that it may have only
//! in part.
//!
//! The files `.committed` are empty and say that nothing is left to do. A commit after an
//! interruption can thus tell a finished commit from the wrong directory. A new overlay of the
//! member, or its discard, removes the file.

use std::ops::Range;
use std::path::{Path, PathBuf};

use weft_ondisk::{SUPER_BYTES, Version};
use weft_units::{Bytes, MemberIndex};

use crate::devices::{Access, DeviceError, MemberSpec, OpenMember, OpenOptions};
use crate::holes::{Stretch, punch};
use crate::overlay::{GRANULE, Overlay, found, index, sync_dir};

/// Writes that a commit would make to one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitPlan {
    /// Label of the member.
    pub label: String,
    /// Path of the member's overlay.
    pub overlay: PathBuf,
    /// Number of bytes to write or to deallocate.
    pub bytes: Bytes,
    /// Whether an earlier commit of the overlay was begun and not finished.
    pub begun: bool,
}

/// Overlays to be committed and their members, both locked for writing.
#[derive(Debug)]
pub struct Commit {
    dir: PathBuf,
    members: Vec<(OpenMember, Overlay)>,
    /// Labels of the named members that have no overlay.
    unchanged: Vec<String>,
    /// Labels of those members in `unchanged` with an earlier overlay that was committed.
    committed: Vec<String>,
}

impl Commit {
    /// Opens the members that `specs` name, and their overlays in `dir`, without writing anything.
    /// With [`Access::ReadOnly`] the commit can be planned, but not run.
    ///
    /// # Errors
    /// Fails when a member is in use or was written since its overlay was made, when an overlay is
    /// damaged, or when an overlay of the same array belongs to a member that was not named.
    pub fn open(dir: &Path, specs: &[MemberSpec], access: Access) -> Result<Self, DeviceError> {
        let options = OpenOptions { buffered: true, ..OpenOptions::new(access) };
        let mut all: Vec<OpenMember> = Vec::new();
        for (spec, number) in specs.iter().zip(0..) {
            let member = options.open(spec, MemberIndex(number), &all)?;
            all.push(member);
        }
        let mut members = Vec::new();
        let (mut unchanged, mut committed) = (Vec::new(), Vec::new());
        for member in all {
            // No overlay is created here: a member without one stays without.
            let has_overlay = found::find_of(member.underlay(), dir)?.is_some();
            if !has_overlay && found::is_committed(member.underlay(), dir)? {
                committed.push(member.info().label.clone());
            }
            let open = || Overlay::open_any(member.underlay(), dir, access);
            match has_overlay.then(open).transpose()? {
                Some(Some(overlay)) => members.push((member, overlay)),
                Some(None) | None => unchanged.push(member.info().label.clone()),
            }
        }
        let commit = Self { dir: dir.to_owned(), members, unchanged, committed };
        commit.refuse_left_out()?;
        Ok(commit)
    }

    /// Changes that [`Commit::run`] would make: one plan for each member with an overlay.
    #[must_use]
    pub fn plans(&self) -> Vec<CommitPlan> {
        let plan = |(member, overlay): &(OpenMember, Overlay)| CommitPlan {
            label: member.info().label.clone(),
            overlay: overlay.path().to_owned(),
            bytes: overlay.bytes(),
            begun: overlay.is_committing(),
        };
        self.members.iter().map(plan).collect()
    }

    /// Labels of the members that were named and have no overlay.
    #[must_use]
    pub fn unchanged(&self) -> &[String] {
        &self.unchanged
    }

    /// Labels of the members that were named and have no overlay now, but had one that was
    /// committed.
    #[must_use]
    pub fn committed(&self) -> &[String] {
        &self.committed
    }

    /// Writes all overlays into their members and removes them. Calls `progress` after each write
    /// or deallocation, with its number of bytes.
    ///
    /// # Errors
    /// Fails when a member or overlay reports an error. No overlay is removed before all members
    /// are written and flushed; until then another run repeats the whole commit.
    pub fn run(mut self, progress: &mut dyn FnMut(Bytes)) -> Result<(), DeviceError> {
        for (member, overlay) in &mut self.members {
            let failed = |source| io_error(member, "marking its overlay", source);
            overlay.begin_commit().map_err(failed)?;
        }
        for superblocks in [false, true] {
            for (member, overlay) in &self.members {
                copy(member, overlay, superblocks, progress)?;
            }
            for (member, _) in &self.members {
                member.sync().map_err(|source| io_error(member, "flush", source))?;
            }
        }
        for (member, overlay) in &self.members {
            found::mark_committed(overlay.path())
                .map_err(|source| io_error(member, "marking its overlay as committed", source))?;
        }
        for (member, overlay) in &self.members {
            std::fs::remove_file(overlay.path())
                .map_err(|source| io_error(member, "removing its overlay", source))?;
        }
        match self.members.first() {
            Some((member, _)) => sync_dir(&self.dir)
                .map_err(|source| io_error(member, "removing its overlay", source)),
            None => Ok(()),
        }
    }

    /// Fails if an overlay of the same array belongs to a member that was not named: that member
    /// would keep older data.
    fn refuse_left_out(&self) -> Result<(), DeviceError> {
        let named: Vec<&Overlay> = self.members.iter().map(|(_, overlay)| overlay).collect();
        let Some((path, label)) = found::left_out(&self.dir, &named) else { return Ok(()) };
        Err(DeviceError::Overlay {
            label,
            why: format!(
                "its overlay {} belongs to the same array and it was not named; name every member \
                 that has an overlay",
                path.display()
            ),
        })
    }
}

/// Removes the overlays of the members that `specs` name, with their content, and returns the paths
/// of these overlays. The members are only read.
///
/// # Errors
/// Fails when a member or an overlay is in use, when the commit of an overlay was begun, or when an
/// overlay cannot be removed.
pub fn discard(dir: &Path, specs: &[MemberSpec]) -> Result<Vec<PathBuf>, DeviceError> {
    let options = OpenOptions { buffered: true, ..OpenOptions::new(Access::ReadOnly) };
    let mut members: Vec<OpenMember> = Vec::new();
    let mut found = Vec::new();
    for (spec, number) in specs.iter().zip(0..) {
        let member = options.open(spec, MemberIndex(number), &members)?;
        found.extend(found::lock_to_remove(member.underlay(), dir)?);
        members.push(member);
    }
    for (path, _) in &found {
        std::fs::remove_file(path).and_then(|()| found::forget(path)).map_err(|source| {
            DeviceError::Io { label: path.display().to_string(), what: "removing it", source }
        })?;
    }
    if let (Some(member), false) = (members.first(), found.is_empty()) {
        sync_dir(dir).map_err(|source| io_error(member, "removing its overlay", source))?;
    }
    Ok(found.into_iter().map(|(path, _)| path).collect())
}

/// Copies changes from an overlay to its member: with `superblocks` the granules that hold
/// superblocks, without it all others.
fn copy(
    member: &OpenMember,
    overlay: &Overlay,
    superblocks: bool,
    progress: &mut dyn FnMut(Bytes),
) -> Result<(), DeviceError> {
    let size = member.info().size;
    let places: Vec<Range<u64>> = Version::ALL
        .iter()
        .filter_map(|version| version.position(size))
        .map(|sector| sector.bytes().0..sector.bytes().0 + SUPER_BYTES as u64)
        .collect();
    let is_super = |run: &Range<u64>| {
        places.iter().any(|place| run.start < place.end && place.start < run.end)
    };
    let runs = overlay.granules(COPY_BYTES);
    let runs = runs.into_iter().flat_map(|run| {
        // A run that contains a superblock is split into granules.
        let step = if is_super(&run) { GRANULE } else { run.end - run.start };
        let starts = (run.start..run.end).step_by(index(step));
        starts.map(move |start| start..(start + step)).collect::<Vec<_>>()
    });
    let mut bytes = vec![0; index(COPY_BYTES)];
    for run in runs.filter(|run| is_super(run) == superblocks) {
        let end = run.end.min(size.bytes().0);
        let mut next = run.start;
        while next < end {
            let Stretch { hole, len } = overlay.stretch(&(next..end));
            let part = &mut bytes[..index(len.0)];
            overlay
                .read_at(part, next)
                .map_err(|source| io_error(member, "reading its overlay", source))?;
            // A file system that reports data as a hole (some did, for data not yet written back)
            // must not lose the data.
            let is_hole = hole && part.iter().all(|byte| *byte == 0);
            if !(is_hole && punch(member, member.start().0 + next, len.0).is_ok()) {
                member
                    .write_all_at(part, Bytes(next))
                    .map_err(|source| io_error(member, "write", source))?;
            }
            progress(len);
            next += len.0;
        }
    }
    Ok(())
}

fn io_error(member: &OpenMember, what: &'static str, source: std::io::Error) -> DeviceError {
    DeviceError::Io { label: member.info().label.clone(), what, source }
}

/// Largest number of bytes that are copied at once: enough for a disk to reach its full throughput.
const COPY_BYTES: u64 = 1 << 20;
