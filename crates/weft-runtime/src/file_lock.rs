//! Locks of files: open file description locks, of a range or of a whole file.
//!
//! Source   fcntl(2) "Open file description locks"

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

use crate::device_error::{DeviceError, error_of};

/// Access that a file is opened and locked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading. Other processes may read the file as well.
    ReadOnly,
    /// Reading and writing, by this process only.
    ReadWrite,
}

/// Locks all of a file for this process, without waiting. Fails with [`DeviceError::Locked`] if
/// another lock forbids this one.
pub(crate) fn lock_file(
    label: &str,
    file: BorrowedFd<'_>,
    access: Access,
) -> Result<(), DeviceError> {
    lock_range(file, access, 0, 0).map_err(|errno| match errno {
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

/// Locks `len` bytes of a file from byte `start` on, without waiting; a length of 0 extends to the
/// end of the file. Fails with `EAGAIN` or `EACCES` if another lock forbids this one.
pub(crate) fn lock_range(
    file: BorrowedFd<'_>,
    access: Access,
    start: u64,
    len: u64,
) -> Result<(), Errno> {
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
