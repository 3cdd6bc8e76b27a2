//! LVM2: physical volumes, and the logical volumes of their groups.
//!
//! [`PhysicalVolume::read`] finds the label and the description of the group in a metadata area;
//! [`groups`] puts the physical volumes of all arrays together. Linear and striped volumes become
//! [`Source`](crate::source::Source)s; others are named with the reason why they are not read.
//!
//! Source   libvslvm, "Logical Volume Manager (LVM) format"; vgcfgbackup(8)

mod group;
mod physical;
pub mod text;
mod volume;

pub use group::{Group, LogicalVolume, beginnings, groups};
pub use physical::{LvmError, PhysicalVolume};
