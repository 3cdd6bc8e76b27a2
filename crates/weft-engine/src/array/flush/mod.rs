//! Flushes: which round of member flushes serves which requests.

pub mod flush_batch;
