//! Levels: how they map, which redundancy they have, how it is kept.

pub mod geometry;
pub mod parity;
pub mod slot_set;
