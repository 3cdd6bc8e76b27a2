//! Mount of a view: mounting, serving until the end, unmounting.
//!
//! As root the kernel mounts; without root FUSE's program `fusermount3` does, which has to be
//! installed. An unmount runs on another thread than the view, which may first have to answer
//! requests of the kernel.

use std::io;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};
use rustix::fs::Access;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use thiserror::Error;

use crate::forward::Forward;
use crate::request::Request;
use crate::view::View;

/// Options of a mount.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Whether other users may use the mount too. The kernel then checks the permissions of files;
    /// otherwise the user of this process reads all of them, whatever their owners are.
    pub allow_other: bool,
}

/// Reasons why a mount or an unmount failed, or why written data may be lost.
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
        /// The folder.
        dir: String,
        /// Cause, from the kernel or from fusermount3.
        why: String,
    },
    /// A flush failed, so that written data may be lost.
    #[error("flush: {0}; what was written since the last one that succeeded may be lost")]
    Flush(io::Error),
}

/// Result of an unmount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmounted {
    /// The mount was not in use and is gone.
    Now,
    /// The mount is in use and was only detached from its folder (`MNT_DETACH`). Programs that have
    /// files of the mount open get errors once this process has ended.
    Busy,
}

/// A mounted view, which is unmounted when the value is dropped.
pub struct Mounted {
    requests: Receiver<Request>,
    _session: ManuallyDrop<BackgroundSession>,
    unmounter: Unmounter,
}

/// Handle that unmounts, for any thread.
#[derive(Clone)]
pub struct Unmounter {
    dir: PathBuf,
    end: SyncSender<Request>,
    is_mounted: Arc<AtomicBool>,
}

impl Mounted {
    /// Mounts a view on a folder, which [`crate::check`] has accepted. Requests wait until
    /// [`Mounted::serve`] answers them.
    ///
    /// # Errors
    /// FUSE is missing or not permitted here, or the mount was refused.
    pub fn new(view: &View, dir: &Path, options: Options) -> Result<Self, MountError> {
        permitted()?;
        let mut mount_options = vec![
            MountOption::FSName("weft".into()),
            MountOption::Subtype("weft".into()),
            MountOption::NoSuid,
            MountOption::NoDev,
        ];
        if !view.is_writable() {
            mount_options.push(MountOption::RO);
        }
        let mut config = Config::default();
        if options.allow_other {
            mount_options.push(MountOption::DefaultPermissions);
            config.acl = SessionACL::All;
        }
        config.mount_options = mount_options;
        let (to, requests) = sync_channel(WAITING_MAX);
        let end = to.clone();
        let (is_fixed, latest) = (view.is_fixed(), view.latest());
        let forward = Forward { to, is_fixed, latest, without_open: false };
        let session = Session::new(forward, dir, &config).and_then(Session::spawn);
        let session = session.map_err(|error| MountError::refused(dir, &error.to_string()))?;
        let is_mounted = Arc::new(AtomicBool::new(true));
        let unmounter = Unmounter { dir: dir.to_owned(), end, is_mounted };
        // The session must not be dropped: it would unmount whatever is on the folder then.
        Ok(Self { requests, _session: ManuallyDrop::new(session), unmounter })
    }

    /// A handle that unmounts.
    #[must_use]
    pub fn unmounter(&self) -> Unmounter {
        self.unmounter.clone()
    }

    /// Answers requests until the view is unmounted, by an [`Unmounter`] or by another program.
    /// Data that was written is durable then.
    ///
    /// # Errors
    /// Written data cannot be made durable.
    pub fn serve(self, view: &mut View) -> Result<(), MountError> {
        while let Some(request) = self.next() {
            if !request.answer(view) {
                break;
            }
        }
        self.unmounter.is_mounted.store(false, Ordering::SeqCst);
        view.flush().map_err(|error| MountError::Flush(error.into()))
    }
}

impl Mounted {
    /// The next request; `None` at the end. A program that has its answer sends the next request at
    /// once: polling for it for a moment costs less than to sleep and be woken.
    fn next(&self) -> Option<Request> {
        let start = Instant::now();
        while start.elapsed() < AWAKE {
            match self.requests.try_recv() {
                Ok(request) => return Some(request),
                Err(TryRecvError::Disconnected) => return None,
                Err(TryRecvError::Empty) => std::thread::yield_now(),
            }
        }
        self.requests.recv().ok()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // An error is ignored: a caller that needs the result has an unmounter.
        let _ = self.unmounter.unmount();
    }
}

impl Unmounter {
    /// Unmounts, and ends [`Mounted::serve`]. If programs use the mount, it is detached from the
    /// folder, and the programs get errors.
    ///
    /// # Errors
    /// The view cannot be unmounted, and is served as before.
    pub fn unmount(&self) -> Result<Unmounted, MountError> {
        if !self.is_mounted.swap(false, Ordering::SeqCst) {
            return Ok(Unmounted::Now);
        }
        let unmounted = unmount(&self.dir).map_err(|why| {
            self.is_mounted.store(true, Ordering::SeqCst);
            MountError::refused(&self.dir, &why)
        })?;
        // An error is ignored: the thread of the view has ended by itself.
        let _ = self.end.send(Request::End);
        Ok(unmounted)
    }
}

impl MountError {
    fn refused(dir: &Path, why: &str) -> Self {
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

/// Path of the program that mounts without root; `None` if it is not installed.
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

/// Unmounts, at once or as soon as nothing uses the mount.
fn unmount(dir: &Path) -> Result<Unmounted, String> {
    let by_kernel = |flags: UnmountFlags| rustix::mount::unmount(dir, flags);
    match by_kernel(UnmountFlags::NOFOLLOW) {
        // `EINVAL`: the folder is not a mount point any more.
        Ok(()) | Err(Errno::INVAL) => return Ok(Unmounted::Now),
        Err(Errno::BUSY) => {
            let detached = by_kernel(UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
            return detached.map(|()| Unmounted::Busy).map_err(|error| error.to_string());
        }
        Err(Errno::PERM) => {}
        Err(error) => return Err(error.to_string()),
    }
    let helper = helper().ok_or_else(|| MountError::NoHelper.to_string())?;
    by_helper(&helper, &["-u"], dir)
        .map(|()| Unmounted::Now)
        .or_else(|_| by_helper(&helper, &["-u", "-z"], dir).map(|()| Unmounted::Busy))
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

/// Time for which the thread of the view polls for the next request before it sleeps.
const AWAKE: Duration = Duration::from_micros(100);
const DEVICE: &str = "/dev/fuse";
/// Largest number of requests that wait for the view: the kernel's thread then waits too.
const WAITING_MAX: usize = 64;
