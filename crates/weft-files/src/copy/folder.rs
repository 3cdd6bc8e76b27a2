//! Folder that a copy writes to: operations take a name in it, never a path, and follow no link.
//!
//! Each step into a folder opens one name relative to the folder before it and refuses a link
//! there, so that nothing outside is reached, whatever the folder holds.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{self, AtFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags, Stat, Uid};
use rustix::io::Errno;

/// An open folder.
pub struct Folder(OwnedFd);

impl Folder {
    /// Opens the folder that a user named, and creates it if it is missing. If the file system has
    /// locks, only one process at a time can have the folder open for a copy.
    ///
    /// # Errors
    /// The folder cannot be created or opened, or another process has it open for a copy.
    pub fn open(path: &Path) -> io::Result<Self> {
        match fs::mkdir(path, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let folder = fs::openat(fs::CWD, path, flags, Mode::empty())?;
        match fs::flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self(folder)),
            Err(Errno::WOULDBLOCK) => {
                let says = "another process copies files into it; wait for its end";
                Err(io::Error::new(io::ErrorKind::WouldBlock, says))
            }
            // The file system has no locks.
            Err(_) => Ok(Self(folder)),
        }
    }

    /// Makes a file of this name, which must not exist.
    ///
    /// # Errors
    /// The name exists ([`io::ErrorKind::AlreadyExists`]), or the file cannot be made.
    pub fn new_file(&self, name: &str) -> io::Result<File> {
        Ok(self.create(name.as_bytes())?.into())
    }

    /// Free space of the file system that users other than root may use, in bytes.
    ///
    /// # Errors
    /// The file system does not report its free space.
    pub fn free_bytes(&self) -> io::Result<u64> {
        let stat = fs::fstatvfs(&self.0)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    /// Writes back everything on the file system of the folder (`syncfs`).
    ///
    /// # Errors
    /// A file could not be written back.
    pub fn sync(&self) -> io::Result<()> {
        Ok(fs::syncfs(&self.0)?)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Makes a folder of this name, unless the name exists.
    pub(super) fn make(&self, name: &[u8]) -> Result<(), Errno> {
        match fs::mkdirat(&self.0, OsStr::from_bytes(name), Mode::from_raw_mode(0o700)) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Opens the folder of this name, and creates it if it is missing. A folder that the user owns
    /// but may not write to is made writable until the end of the copy.
    pub(super) fn enter(&self, name: &[u8]) -> Result<Self, Errno> {
        self.make(name)?;
        let name = OsStr::from_bytes(name);
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
        let folder = match fs::openat(&self.0, name, flags, Mode::empty()) {
            // An earlier copy has left the folder without permissions.
            Err(Errno::ACCESS) => {
                let path = flags.difference(OFlags::RDONLY) | OFlags::PATH;
                let found = fs::openat(&self.0, name, path, Mode::empty())?;
                let stat = fs::fstat(&found)?;
                if Uid::from_raw(stat.st_uid) != rustix::process::geteuid() {
                    return Err(Errno::ACCESS);
                }
                // Path by the number of the open file, so that no name is followed.
                let own = format!("/proc/self/fd/{}", found.as_raw_fd());
                let mode = Mode::from_raw_mode(stat.st_mode | 0o700);
                fs::chmod(own, mode).or(Err(Errno::ACCESS))?;
                fs::openat(&self.0, name, flags, Mode::empty())?
            }
            opened => opened?,
        };
        let stat = fs::fstat(&folder)?;
        if stat.st_mode & 0o300 != 0o300 && Uid::from_raw(stat.st_uid) == rustix::process::geteuid()
        {
            // An error is ignored: the next write fails and is reported.
            let _ = fs::fchmod(&folder, Mode::from_raw_mode(stat.st_mode | 0o700));
        }
        Ok(Self(folder))
    }

    /// Opens the folder at a path below this one, in which `/` separates the names, and creates
    /// missing folders.
    pub(super) fn walk(&self, path: &[u8]) -> Result<Self, Errno> {
        let mut folder = Self(rustix::io::dup(&self.0)?);
        for name in path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
            folder = folder.enter(name)?;
        }
        Ok(folder)
    }

    /// Status of the entry of this name; `None` if there is none.
    pub(super) fn stat(&self, name: &[u8]) -> Option<Stat> {
        fs::statat(&self.0, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW).ok()
    }

    /// Creates a file of this name, which must not exist, and opens it for writing.
    pub(super) fn create(&self, name: &[u8]) -> Result<OwnedFd, Errno> {
        let flags =
            OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        fs::openat(&self.0, OsStr::from_bytes(name), flags, Mode::from_raw_mode(0o600))
    }

    /// Moves a file of this folder to a name in the folder `into`, which must not exist there.
    pub(super) fn rename(&self, from: &[u8], into: &Self, name: &[u8]) -> Result<(), Errno> {
        let (from, name) = (OsStr::from_bytes(from), OsStr::from_bytes(name));
        match fs::renameat_with(&self.0, from, &into.0, name, RenameFlags::NOREPLACE) {
            // Some file systems do not know the flag.
            Err(Errno::INVAL | Errno::NOSYS) if into.stat(name.as_bytes()).is_none() => {
                fs::renameat(&self.0, from, &into.0, name)
            }
            result => result,
        }
    }

    /// Gives a file of this folder a further name in the folder `into` (a hard link).
    pub(super) fn link(&self, name: &[u8], into: &Self, as_name: &[u8]) -> Result<(), Errno> {
        let (name, as_name) = (OsStr::from_bytes(name), OsStr::from_bytes(as_name));
        fs::linkat(&self.0, name, &into.0, as_name, AtFlags::empty())
    }

    /// Removes the file of this name, if it is a regular file.
    pub(super) fn remove(&self, name: &[u8]) {
        if self.stat(name).is_some_and(|stat| is_file(&stat)) {
            // An error is ignored: the next operation on this name fails and is reported.
            let _ = fs::unlinkat(&self.0, OsStr::from_bytes(name), AtFlags::empty());
        }
    }
}

pub(super) fn is_file(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

/// Whether these bytes can be the name of an entry of a folder.
pub(super) fn is_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.iter().any(|byte| matches!(byte, 0 | b'/'))
}
