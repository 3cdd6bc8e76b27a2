//! Copies of dying disks: what is read next (`copier.rs`), the disk (`disk.rs`), the
//! copy (`session.rs`).

mod copier;
mod disk;
#[cfg(test)]
mod drawn;
mod session;

pub(crate) use copier::{Copier, Settings};
pub(crate) use disk::Disk;
pub(crate) use session::{Counts, Ended, Session, copy};
