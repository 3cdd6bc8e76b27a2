//! Locks of members: open file description locks of a range or of a whole file.
//!
//! Source   fcntl(2) "Open file description locks"

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::{Access, DeviceError, OpenOptions};
use crate::device_error::error_of;

impl OpenOptions {
    /// Locks the file behind a loop device, so that processes that open the file itself also find
    /// it in use. Returns `None` if the device is not a loop device, or its file cannot be opened
    /// from here.
    ///
    /// Source   Documentation/ABI/testing/sysfs-block-loop
    pub(super) fn lock_backing(
        &self,
        label: &str,
        rdev: rustix::fs::Dev,
        offset: u64,
        len: u64,
    ) -> Result<Option<OwnedFd>, DeviceError> {
        let (major, minor) = (rustix::fs::major(rdev), rustix::fs::minor(rdev));
        let read = |name: &str| {
            std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/loop/{name}")).ok()
        };
        let (Some(path), Some(start)) = (read("backing_file"), read("offset")) else {
            return Ok(None);
        };
        let start: u64 = start.trim().parse().unwrap_or(0);
        let flags = match self.access {
            Access::ReadOnly => OFlags::RDONLY,
            Access::ReadWrite => OFlags::RDWR,
        };
        let path = path.trim_end_matches('\n');
        let Ok(file) =
            rustix::fs::open(path, flags | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())
        else {
            return Ok(None);
        };
        self.lock(label, &file, start + offset, len)?;
        Ok(Some(file))
    }

    /// Locks a range of a file. Waits for the lock as long as the options allow.
    pub(super) fn lock(
        &self,
        label: &str,
        file: &OwnedFd,
        start: u64,
        len: u64,
    ) -> Result<(), DeviceError> {
        let deadline = Instant::now() + self.lock_wait;
        let mut quiet_until = Some(Instant::now() + LOCK_QUIET);
        loop {
            match ofd_lock(file.as_fd(), self.access, start, len) {
                Err(Errno::AGAIN | Errno::ACCESS) if Instant::now() < deadline => {
                    if quiet_until.take_if(|until| Instant::now() >= *until).is_some() {
                        tracing::info!("{label}: waiting for its lock");
                    }
                    std::thread::sleep(LOCK_POLL);
                }
                Err(Errno::AGAIN | Errno::ACCESS) => {
                    return Err(DeviceError::Locked { label: label.to_owned() });
                }
                result => return result.map_err(|errno| error_of(label, "lock", errno)),
            }
        }
    }
}

/// Locks all of a file for this process, without waiting.
pub(crate) fn lock_file(
    label: &str,
    file: BorrowedFd<'_>,
    access: Access,
) -> Result<(), DeviceError> {
    ofd_lock(file, access, 0, 0).map_err(|errno| match errno {
        Errno::AGAIN | Errno::ACCESS => DeviceError::Locked { label: label.to_owned() },
        _ => error_of(label, "lock", errno),
    })
}

/// Releases every lock of an open file description.
pub(crate) fn unlock_file(file: BorrowedFd<'_>) {
    if let Err(errno) = ofd_set(file, libc::F_UNLCK, 0, 0) {
        tracing::warn!(%errno, "a lock stays until its file is closed");
    }
}

fn ofd_lock(file: BorrowedFd<'_>, access: Access, start: u64, len: u64) -> Result<(), Errno> {
    let kind = match access {
        Access::ReadOnly => libc::F_RDLCK,
        Access::ReadWrite => libc::F_WRLCK,
    };
    ofd_set(file, kind, start, len)
}

fn ofd_set(file: BorrowedFd<'_>, kind: i32, start: u64, len: u64) -> Result<(), Errno> {
    // `l_pid` has to be zero for OFD locks.
    let lock = libc::flock {
        l_type: libc::c_short::try_from(kind).expect("lock types are 0 to 2"),
        l_whence: 0,
        l_start: libc::off_t::try_from(start).map_err(|_| Errno::OVERFLOW)?,
        l_len: libc::off_t::try_from(len).map_err(|_| Errno::OVERFLOW)?,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open (borrowed) and the kernel only reads the structure.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    if result == 0 {
        return Ok(());
    }
    let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
    Err(Errno::from_raw_os_error(errno))
}

/// Time between two attempts to take a lock.
pub(super) const LOCK_POLL: Duration = Duration::from_millis(50);
/// Wait before the first log line: longer than an exiting process needs to release its lock.
const LOCK_QUIET: Duration = Duration::from_millis(300);
