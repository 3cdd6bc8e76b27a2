//! LVM2: physical volumes, and the logical volumes of their groups.
//!
//! [`PhysicalVolume::read`] finds the label and the description of the group in a metadata area;
//! [`groups`] puts the physical volumes of all arrays together. Linear and striped volumes become
//! [`Source`](crate::source::Source)s; others are named with the reason why they are not read.
//!
//! Source   lvm2's documentation of the formats: label and metadata area (doc/lvm_fault_handling,
//!          libblkid's and file(1)'s descriptions of `LABELONE`), vgcfgbackup(8)

mod group;
mod physical;
pub mod text;
mod volume;

pub use group::{Group, LogicalVolume, groups};
pub use physical::{LvmError, PhysicalVolume};
