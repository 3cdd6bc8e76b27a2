//! Workloads: simulated processes that use a volume.
//!
//! | workload | file |
//! |---|---|
//! | `dbench`: clients of a file server, on ext4 | [`dbench`], [`ext4`] |
//! | `dd` onto a block device | [`dd`] |
//! | endless `dd`s on the disks of a box, under a dirty limit | [`dirty_limit`] |
//! | `dd` beside writers of single blocks | [`mixed`] |
//! | `tiobench` on a file system | [`tiobench`], [`xfs`] |
//! | a clone of an `fio` job | [`jobs`] |
//!
//! Source   experiments.md §1

pub mod dbench;
pub mod dd;
pub mod dirty_limit;
pub mod ext4;
pub mod jobs;
pub mod mixed;
pub mod tiobench;
pub mod xfs;
