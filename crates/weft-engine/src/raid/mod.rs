//! The level table: which layouts a level has, how it maps, how many failures it survives.

pub mod geometry;
pub mod parity;
