//! `weft mount`: volumes and the file systems in them, in a folder, by FUSE.
//!
//! One line `ready DIR` goes to standard output once the folder shows them. SIGINT, SIGTERM, SIGHUP
//! or an unmount by others ends the command in order.

use std::io::Write;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::rc::Rc;

use clap::Args;
use weft_files::inside::ContentLocation;
use weft_files::open::Opened;
use weft_files::probe::Kind;
use weft_fuse::{
    Finding, FolderError, MountError, Mounted, Shown, Unmounted, Unmounter, View, What,
};
use weft_runtime::spec::MemberSpec;
use weft_terminal::outcome::{Exit, Failure, Outcome};
use weft_terminal::terminal::{complain, end_when_interrupted, label};

use crate::contents::{Contents, FileSystem, Running, folder_name};
use crate::foreground::{notify, start_log};
use crate::member::{self, MemberArg};
use crate::reading::ReadingOptions;
use crate::target::is_named_by;

/// Shows volumes, or the files in them, in a folder, by FUSE
///
/// Shows each array, each partition in it and each logical volume as a file to read, for e2fsck -n,
/// debugfs, dd, or mount -o loop,ro; with --files the files of ext2, ext3, ext4 and btrfs, in a
/// folder for each file system as rescue --to makes it. Disks are only read. Needs no root, but
/// fusermount3 (package fuse3) without it. Prints one line, ready and DIR, once they are there, and
/// tells systemd; SIGINT, SIGTERM, SIGHUP and fusermount3 -u DIR end it.
#[derive(Debug, Args)]
#[command(override_usage = "weft mount [OPTIONS] <TARGET|DISK>... <DIR>")]
pub(crate) struct Mount {
    /// Show the files of the file systems
    #[arg(long)]
    files: bool,
    /// Show only the place of this name in rescue --list; may be repeated. A snapshot of btrfs is
    /// shown if it is named
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Let other users use the mount, as the permissions of its files say. Without it only the user
    /// who mounts does, and reads every file. Without root, /etc/fuse.conf has to permit it
    #[arg(long)]
    allow_other: bool,
    /// Let the kernel cache no bytes of files. Copies of large files are faster; small reads, and
    /// reads of what was read before, take longer, and files cannot be mapped shared
    #[arg(long)]
    direct_io: bool,
    #[command(flatten)]
    reading: ReadingOptions,
    /// Name or control socket of a running volume; or the disks, images of disks, or members that
    /// still exist. The last argument is DIR, an existing empty folder
    #[arg(value_name = "TARGET|DISK", required = true, value_parser = MemberArg::parser())]
    disks: Vec<MemberArg>,
}

pub(crate) fn run(arguments: &Mount) -> Outcome {
    let (folder, disks) = match arguments.disks.split_last() {
        Some((MemberArg::Path(folder), disks)) if !disks.is_empty() => (folder, disks),
        _ => return Err(Failure::usage("found no DIR, expected an empty folder behind the disks")),
    };
    let names = member::paths(disks).map_err(Failure::Usage)?;
    let dir = weft_fuse::check(folder).map_err(|error| match error {
        FolderError::Io { .. } => Failure::failed(error),
        _ => Failure::refused(error),
    })?;
    weft_fuse::permitted().map_err(Failure::failed)?;
    start_log(tracing::Level::WARN);
    let reading = arguments.reading.of(&names)?;
    let running = match names.as_slice() {
        [one] if is_named_by(one) => {
            reading.refuse_running(one)?;
            Some(Running::of(&one.to_string_lossy())?)
        }
        _ => None,
    };
    if running.is_none() {
        names.iter().try_for_each(|disk| refuse_own(disk, &dir))?;
    }
    let contents = match &running {
        Some(running) if !arguments.files => Contents::of_live(running)?,
        _ => Contents::named(&names, &reading)?,
    };
    know_all(&contents.found.places, &arguments.only)?;
    let shown = match arguments.files {
        true => files(&contents, &arguments.only)?,
        false => volumes(&contents, &arguments.only, running.is_some()),
    };
    let mut view = View::new(shown, Box::new(tell));
    if arguments.direct_io {
        view = view.uncached();
    }
    let mounted = mount(&view, &dir, arguments.allow_other)?;
    notify("READY=1");
    announce(folder);
    mounted.serve(&mut view);
    notify("STOPPING=1");
    drop(view);
    contents.stop()?;
    Ok(Exit::Done)
}

/// Mounts the view, and registers a signal handler that unmounts it.
fn mount(view: &View, dir: &Path, allow_other: bool) -> Result<Mounted, Failure> {
    // The handler of a signal during the mount waits on this lock until the mount is complete.
    let slot = std::sync::Arc::new(std::sync::Mutex::new(None::<Unmounter>));
    let signalled = std::sync::Arc::clone(&slot);
    let mut guard = slot.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    end_when_interrupted(move || {
        let mut slot = signalled.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        slot.take().is_some_and(|unmounter| end(&unmounter))
    })?;
    let mounted = Mounted::new(view, dir, allow_other).map_err(|error| match error {
        MountError::Refused { .. } => Failure::failed(format!("mount: {error}")),
        _ => Failure::failed(error),
    })?;
    *guard = Some(mounted.unmounter());
    drop(guard);
    Ok(mounted)
}

/// Unmounts after a signal. Returns whether the mount is gone or will be, so that the command can
/// end.
fn end(unmounter: &Unmounter) -> bool {
    match unmounter.unmount() {
        Ok(Unmounted::Now) => true,
        Ok(Unmounted::Busy) => {
            complain("note: the mount is in use; it is taken away, and open files give errors");
            true
        }
        Err(error) => {
            complain(&format!("unmount: {error}"));
            false
        }
    }
}

fn announce(dir: &Path) {
    let mut out = std::io::stdout().lock();
    // An error is ignored: the parent process may have closed the pipe.
    let _ = writeln!(out, "ready {}", label(dir));
    let _ = out.flush();
}

fn tell(finding: &Finding) {
    use std::os::unix::ffi::OsStrExt;
    let path = label(Path::new(std::ffi::OsStr::from_bytes(&finding.path)));
    let range = finding.range.as_ref();
    let range = range.map_or(String::new(), |it| format!("bytes {}..{}: ", it.start, it.end));
    let doubt = if finding.is_doubt { "may be wrong: " } else { "" };
    complain(&format!("{path}: {range}{doubt}{}", finding.why));
}

/// Refuses a folder on one of the disks: a program that reads the mount could then wait for itself.
fn refuse_own(disk: &Path, dir: &Path) -> Result<(), Failure> {
    let spec = MemberSpec::path(disk);
    let file = spec.file().unwrap_or(disk);
    let (Ok(disk_is), Ok(dir_is)) = (std::fs::metadata(file), std::fs::metadata(dir)) else {
        return Ok(());
    };
    if !disk_is.file_type().is_block_device() {
        return Ok(());
    }
    let folder = |number: u64| {
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()
    };
    // In sysfs, the directory of a partition is below that of its disk.
    let (disk_at, dir_at) = (folder(disk_is.rdev()), folder(dir_is.dev()));
    let is_on = disk_is.rdev() == dir_is.dev()
        || disk_at.zip(dir_at).is_some_and(|(disk, dir)| dir.starts_with(disk));
    if !is_on {
        return Ok(());
    }
    Err(Failure::refused(format!(
        "{}: found a folder on {}, expected one on no disk that is read; name another folder",
        label(dir),
        label(disk)
    )))
}

/// Refuses a name of `--only` that is not the name of a place.
fn know_all(places: &[ContentLocation], only: &[String]) -> Result<(), Failure> {
    let is_known = |name: &&String| places.iter().any(|place| place.name == **name);
    let Some(unknown) = only.iter().find(|name| !is_known(name)) else { return Ok(()) };
    let names: Vec<&str> = places.iter().map(|place| place.name.as_str()).collect();
    let names = names.join(", ");
    Err(Failure::usage(format!("--only: found {unknown:?}, expected one of {names}")))
}

/// Folders to show: one for each file system that can be read, with its files. `only` names the
/// file systems; if it is empty, all but snapshots are shown.
fn files(contents: &Contents, only: &[String]) -> Result<Vec<Shown>, Failure> {
    let wanted = |system: &FileSystem<'_>| match only {
        // Snapshots are left out: they mostly repeat the files of their origin.
        [] => !system.is_snapshot(),
        only => only.contains(&system.place.name),
    };
    let mut shown = Vec::new();
    for system in contents.file_systems().into_iter().filter(wanted) {
        let name = &system.place.name;
        match system.open() {
            Ok(Opened { tree, notes }) => {
                notes.iter().for_each(|note| complain(&format!("note: {name}: {note}")));
                for doubt in tree.doubts() {
                    complain(&format!("{name}: damaged, any of its files may be wrong: {doubt}"));
                }
                let what = What::Files { tree, size: system.place.size };
                shown.push(Shown { name: system.folder, what });
            }
            Err(why) => complain(&format!("{name}: its files are not shown: {why}")),
        }
    }
    match shown.is_empty() {
        true => Err(Failure::failed(
            "found no file system that is read; without --files the volumes are shown, and weft \
             rescue --list says what is inside",
        )),
        false => Ok(shown),
    }
}

/// Files to show: one for each place, with its bytes. `only` names the places; if it is empty, all
/// are shown. `changes` is true for a running volume, with bytes that may change.
fn volumes(contents: &Contents, only: &[String], changes: bool) -> Vec<Shown> {
    let mut shown: Vec<Shown> = Vec::new();
    for place in &contents.found.places {
        if !only.is_empty() && !only.contains(&place.name) {
            continue;
        }
        let (content, source) = match &place.content {
            Ok(content) => content,
            Err(why) => {
                complain(&format!("{}: is not shown: {why}", place.name));
                continue;
            }
        };
        if matches!(content.kind, Kind::Snapshot(_)) {
            continue;
        }
        let mut name = folder_name(&place.name);
        while shown.iter().any(|other| other.name == format!("{name}.img")) {
            name.push('_');
        }
        let what = What::Bytes { source: Rc::clone(source), changes };
        shown.push(Shown { name: format!("{name}.img"), what });
    }
    shown
}
