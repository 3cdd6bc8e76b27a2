//! Layout of arrays: where their sectors lie, as pure functions.

pub(crate) mod align;
pub mod geometry;
pub mod level;
pub mod mirrors;
pub mod slot_set;
pub mod striped;
pub(crate) mod tolerance;
