//! Copies of dying disks: the decisions (`copier.rs`), the disk (`disk.rs`), the running copy
//! (`session.rs`).

mod copier;
mod disk;
#[cfg(test)]
mod drawn;
mod session;

pub(crate) use copier::{Copier, Settings};
pub(crate) use disk::Disk;
pub(crate) use session::{Counts, Ended, Session, copy};
