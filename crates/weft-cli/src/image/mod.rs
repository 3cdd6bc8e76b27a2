//! Copies of dying disks: the decisions (`disk_copy.rs`), the disk (`disk.rs`), the running copy
//! (`session.rs`).

mod disk;
mod disk_copy;
#[cfg(test)]
mod drawn;
mod session;

pub(crate) use disk::Disk;
pub(crate) use disk_copy::{DiskCopy, Settings};
pub(crate) use session::{Counts, Ended, Session, copy};
