//! RAID 4, 5 and 6: a stripe cache, and one explicit plan per stripe.

pub(crate) mod cache;
pub(crate) mod discard;
mod index;
mod list;
pub mod plan;
pub mod priority;
pub(crate) mod split;
mod stripe;
pub mod stripe_size;
pub(crate) mod stripes;
pub(crate) mod sync;
pub mod waits;

pub(crate) use stripe::SubRequest;
