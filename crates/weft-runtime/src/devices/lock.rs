//! Locks of members: of a range of a file, with a wait, and of the file behind a loop device.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::{Access, DeviceError, OpenOptions};
use crate::device_error::error_of;
use crate::file_lock::lock_range;

impl OpenOptions {
    /// Locks the file behind a loop device, so that a process which opens the file itself finds it
    /// in use. `offset` and `len` are the member's byte range on the device. Returns the descriptor
    /// that holds the lock; `None` if the device is not a loop device, or its file cannot be opened
    /// by this process.
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

    /// Locks a range of a file. Waits for the lock as long as the options allow, then fails with
    /// [`DeviceError::Locked`].
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
            match lock_range(file.as_fd(), self.access, start, len) {
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

/// Time between two attempts to take a lock.
pub(super) const LOCK_POLL: Duration = Duration::from_millis(50);
/// Longest wait for a lock that is not logged: longer than an exiting process needs to release its
/// lock.
const LOCK_QUIET: Duration = Duration::from_millis(300);
