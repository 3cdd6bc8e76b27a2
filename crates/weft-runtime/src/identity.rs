//! Identity of a file or device, independent of the path that leads to it.

use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{FileType, Stat, major, minor};
use rustix::io::Errno;

/// Identity of a file or device, independent of the path that leads to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// A block device.
    Block {
        /// Major part of the device's number.
        major: u32,
        /// Minor part of the device's number.
        minor: u32,
    },
    /// A regular file, or anything else that is not a block device.
    File {
        /// Major part of the device number of the file's file system.
        major: u32,
        /// Minor part of the device number of the file's file system.
        minor: u32,
        /// Inode of the file.
        inode: u64,
    },
}

impl Identity {
    /// Identity of the file or device behind a descriptor.
    ///
    /// # Errors
    /// The error number of fstat(2).
    pub fn of(file: impl AsFd) -> Result<Self, Errno> {
        rustix::fs::fstat(file).map(|stat| Self::from_stat(&stat))
    }

    /// Identity of the file or device to which a path leads.
    ///
    /// # Errors
    /// The error number of stat(2).
    pub fn at(path: &Path) -> Result<Self, Errno> {
        rustix::fs::stat(path).map(|stat| Self::from_stat(&stat))
    }

    fn from_stat(stat: &Stat) -> Self {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::BlockDevice => {
                Self::Block { major: major(stat.st_rdev), minor: minor(stat.st_rdev) }
            }
            _ => Self::File {
                major: major(stat.st_dev),
                minor: minor(stat.st_dev),
                inode: stat.st_ino,
            },
        }
    }

    /// Number of the file system from which a file is allocated, to find members that share free
    /// space; `None` for a block device, which shares its space with no other member.
    pub(crate) fn space(self) -> Option<u64> {
        match self {
            Self::Block { .. } => None,
            Self::File { major, minor, .. } => Some(u64::from(major) << 32 | u64::from(minor)),
        }
    }
}
