//! Flushes: which member flushes are sent, and which requests each of them serves.

pub mod flush_batch;
