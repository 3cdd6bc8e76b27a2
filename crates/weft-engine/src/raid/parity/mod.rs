//! RAID 4, 5 and 6: a stripe cache of rows, and one explicit plan per row.

pub(crate) mod cache;
pub(crate) mod discard;
mod index;
mod list;
pub mod plan;
pub mod priority;
mod row;
pub(crate) mod rows;
pub(crate) mod split;
pub mod stripe_size;
pub(crate) mod sync;
pub mod waits;

pub(crate) use row::Piece;
