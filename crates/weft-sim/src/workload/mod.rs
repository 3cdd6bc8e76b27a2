//! Who uses a volume, and how?
//!
//! | workload | file |
//! |---|---|
//! | `dd` onto a block device | [`dd`] |
//!
//! Source   experiments.md §1

pub mod dd;
