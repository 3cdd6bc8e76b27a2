//! RAID 4, 5 and 6: a stripe cache of rows, and one explicit plan per row.

pub mod priority;
pub mod stripe_size;
