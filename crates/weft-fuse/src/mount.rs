//! Mounts by FUSE: of any file system of the crate `fuser`, on a folder or a file, and their end.
//!
//! As root the kernel mounts; without root FUSE's program `fusermount3` does, which has to be
//! installed. An unmount may have to wait until the file system has answered requests of the
//! kernel, so it runs on another thread.

use std::io;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fuser::{BackgroundSession, Config, Filesystem, MountOption, Session, SessionACL};
use rustix::fs::Access;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use thiserror::Error;

/// Options of a mount.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Whether the kernel refuses writes.
    pub read_only: bool,
    /// Whether other users may use the mount too. The kernel then checks the permissions of files;
    /// otherwise the user of this process reads all of them, whatever their owners are.
    pub allow_other: bool,
}

/// Reasons why a mount or an unmount failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MountError {
    /// The kernel or the container has no FUSE.
    #[error(
        "/dev/fuse: not found; as root, `modprobe fuse` loads the kernel's part of FUSE; a \
         container needs the device (--device /dev/fuse)"
    )]
    NoDevice,
    /// This user may not use FUSE.
    #[error(
        "/dev/fuse: {0}; found permissions that leave this user out, expected 0666 as udev sets \
         them; as root, `chmod 666 /dev/fuse` gives them, or mount as root"
    )]
    Forbidden(io::Error),
    /// The program that mounts without root is missing.
    #[error(
        "found no fusermount3, expected it for a mount without root; install the package fuse3, or \
         mount as root"
    )]
    NoHelper,
    /// The mount was refused.
    #[error("{dir}: {why}")]
    Refused {
        /// Path of the folder or file on which the file system was to be mounted, or is mounted.
        dir: String,
        /// Cause, from the kernel or from fusermount3.
        why: String,
    },
}

/// Result of an unmount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmounted {
    /// The mount is gone: it was not in use, or had ended before.
    Now,
    /// The mount is in use and was only detached from its folder (`MNT_DETACH`). Programs that have
    /// files of the mount open get errors once this process has ended.
    Busy,
}

/// Behaviour of an unmount while programs use the mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InUse {
    /// The mount is detached: see [`Unmounted::Busy`].
    Detach,
    /// The mount stays, and the unmount fails.
    Refuse,
}

/// A mounted file system, which is unmounted when the value is dropped.
pub struct Mount {
    _session: ManuallyDrop<BackgroundSession>,
    point: MountPoint,
}

/// Folder or file on which a file system is mounted. Any thread can unmount by it.
#[derive(Clone)]
pub struct MountPoint {
    path: PathBuf,
    is_mounted: Arc<AtomicBool>,
}

impl Mount {
    /// Mounts a file system on `path`. A thread of `fuser` calls the file system from then on,
    /// until the unmount.
    ///
    /// # Errors
    /// FUSE is missing or not permitted here, or the mount was refused.
    pub fn new(
        file_system: impl Filesystem,
        path: &Path,
        options: Options,
    ) -> Result<Self, MountError> {
        permitted()?;
        let mut mount_options = vec![
            MountOption::FSName("weft".into()),
            MountOption::Subtype("weft".into()),
            MountOption::NoSuid,
            MountOption::NoDev,
        ];
        if options.read_only {
            mount_options.push(MountOption::RO);
        }
        let mut config = Config::default();
        if options.allow_other {
            mount_options.push(MountOption::DefaultPermissions);
            config.acl = SessionACL::All;
        }
        config.mount_options = mount_options;
        let session = Session::new(file_system, path, &config).and_then(Session::spawn);
        let session = session.map_err(|error| MountError::refused(path, &error.to_string()))?;
        let is_mounted = Arc::new(AtomicBool::new(true));
        let point = MountPoint { path: path.to_owned(), is_mounted };
        // The session must not be dropped: it would unmount whatever is on the path then.
        Ok(Self { _session: ManuallyDrop::new(session), point })
    }

    /// The mount point, by which any thread can unmount.
    #[must_use]
    pub fn point(&self) -> &MountPoint {
        &self.point
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // An error is ignored: a caller that needs the result unmounts by the mount point.
        let _ = self.point.unmount(InUse::Detach);
    }
}

impl MountPoint {
    /// Unmounts, unless the mount is gone already. The file system is dropped when the kernel has
    /// ended the session; a mount that was only detached ends later.
    ///
    /// # Errors
    /// The mount is in use and is not to be detached, or cannot be unmounted for another reason. It
    /// stays, and is served as before.
    pub fn unmount(&self, in_use: InUse) -> Result<Unmounted, MountError> {
        if !self.is_mounted.swap(false, Ordering::SeqCst) {
            return Ok(Unmounted::Now);
        }
        unmount(&self.path, in_use).inspect_err(|_| self.is_mounted.store(true, Ordering::SeqCst))
    }

    /// Records that the kernel has ended the session, so that nothing is left to unmount.
    pub fn ended(&self) {
        self.is_mounted.store(false, Ordering::SeqCst);
    }
}

impl MountError {
    pub(crate) fn refused(dir: &Path, why: &str) -> Self {
        let why = why.trim();
        let why = why.strip_prefix("fusermount3: ").unwrap_or(why).to_owned();
        Self::Refused { dir: dir.display().to_string(), why }
    }
}

/// Checks that this process may mount by FUSE. Callers do so before they read disks.
///
/// # Errors
/// FUSE is missing or not permitted here.
pub fn permitted() -> Result<(), MountError> {
    match rustix::fs::access(DEVICE, Access::READ_OK | Access::WRITE_OK) {
        Ok(()) => {}
        Err(Errno::NOENT | Errno::NODEV | Errno::NXIO) => return Err(MountError::NoDevice),
        Err(error) => return Err(MountError::Forbidden(error.into())),
    }
    let is_root = rustix::process::geteuid().is_root();
    match is_root || helper().is_some() {
        true => Ok(()),
        false => Err(MountError::NoHelper),
    }
}

/// Path of the program that mounts without root: the variable `FUSERMOUNT_PATH`, or else
/// fusermount3 or fusermount in `PATH`, /bin or /sbin. `None` if it is not installed.
fn helper() -> Option<PathBuf> {
    let named = std::env::var_os("FUSERMOUNT_PATH").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> =
        std::env::split_paths(&path).chain(["/bin".into(), "/sbin".into()]).collect();
    let found = ["fusermount3", "fusermount"].into_iter().find_map(|name| {
        folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file())
    });
    named.or(found)
}

/// Unmounts `path`, whatever is mounted there.
///
/// # Errors
/// The mount stays, because it is in use and is not to be detached, or for another reason.
pub fn unmount(path: &Path, in_use: InUse) -> Result<Unmounted, MountError> {
    let refused = |why: &str| MountError::refused(path, why);
    let by_kernel = |flags: UnmountFlags| rustix::mount::unmount(path, flags);
    match by_kernel(UnmountFlags::NOFOLLOW) {
        // `EINVAL`: the path is not a mount point any more.
        Ok(()) | Err(Errno::INVAL) => return Ok(Unmounted::Now),
        Err(Errno::BUSY) if in_use == InUse::Detach => {
            let detached = by_kernel(UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
            return detached.map(|()| Unmounted::Busy).map_err(|error| refused(&error.to_string()));
        }
        Err(Errno::PERM) => {}
        Err(error) => return Err(refused(&error.to_string())),
    }
    let helper = helper().ok_or(MountError::NoHelper)?;
    let detach = |_| by_helper(&helper, &["-u", "-z"], path).map(|()| Unmounted::Busy);
    let unmounted = by_helper(&helper, &["-u"], path).map(|()| Unmounted::Now);
    match in_use {
        InUse::Detach => unmounted.or_else(detach),
        InUse::Refuse => unmounted,
    }
    .map_err(|why| refused(&why))
}

fn by_helper(helper: &Path, options: &[&str], dir: &Path) -> Result<(), String> {
    let mut command = Command::new(helper);
    command.args(options).arg("--").arg(dir).stdin(Stdio::null());
    let output = command.output().map_err(|error| format!("{}: {error}", helper.display()))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

const DEVICE: &str = "/dev/fuse";
