//! Copies of dying disks: what is read next (`copier.rs`), the disk and its reader (`disk.rs`), the
//! image (`sparse.rs`), which image, map and disk belong together (`plan.rs`), the copy
//! (`session.rs`).

mod copier;
mod disk;
#[cfg(test)]
mod drawn;
mod plan;
mod session;
mod sparse;

pub(crate) use copier::{Copier, Settings};
pub(crate) use disk::{Disk, reader};
pub(crate) use plan::{is_beside, map_beside, map_of};
pub(crate) use session::{Counts, Ended, Session, copy};
pub(crate) use sparse::SparseImage;
