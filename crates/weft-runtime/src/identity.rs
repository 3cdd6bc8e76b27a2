//! What a file or device is, independent of the path that leads to it.

use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{FileType, Stat, major, minor};
use rustix::io::Errno;

/// Identity of a file or device, independent of the path that leads to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// A block device.
    Block {
        /// Major part of its number.
        major: u32,
        /// Minor part of its number.
        minor: u32,
    },
    /// Anything else.
    File {
        /// Major part of the device number of its file system.
        major: u32,
        /// Minor part of that number.
        minor: u32,
        /// Its inode.
        inode: u64,
    },
}

impl Identity {
    /// The file or device behind a descriptor.
    ///
    /// # Errors
    /// fstat(2) fails: its error number.
    pub fn of(file: impl AsFd) -> Result<Self, Errno> {
        rustix::fs::fstat(file).map(|stat| Self::from_stat(&stat))
    }

    /// The file or device to which a path leads.
    ///
    /// # Errors
    /// stat(2) fails: its error number.
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

    /// Number of the file system that a file is allocated from; `None` for a device, which shares
    /// its space with no other member.
    pub(crate) fn space(self) -> Option<u64> {
        match self {
            Self::Block { .. } => None,
            Self::File { major, minor, .. } => Some(u64::from(major) << 32 | u64::from(minor)),
        }
    }
}
