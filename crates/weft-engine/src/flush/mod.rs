//! Durability: which flush serves whom.

pub mod flush_batch;
