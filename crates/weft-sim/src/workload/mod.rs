//! Who uses a volume, and how?
//!
//! | workload | file |
//! |---|---|
//! | `dd` onto a block device | [`dd`] |
//! | `tiobench` on a file system | [`tiobench`], [`xfs`] |
//! | a clone of an `fio` job, direct I/O | [`jobs`] |
//!
//! Source   experiments.md §1

pub mod dd;
pub mod jobs;
pub mod tiobench;
pub mod xfs;
