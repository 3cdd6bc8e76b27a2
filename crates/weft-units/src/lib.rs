//! Quantities of the block layer as types.
//!
//! Bare integers stay inside this crate, the parity kernels and wire structs. All other code states
//! by type whether it counts sectors, bytes or nanoseconds, and which of the many small indices it
//! holds. [`rng`] is the only source of random numbers, for simulations, benchmarks and tests; the
//! engine may not use it. [`digest`] tells whether two runs of a simulation are the same.
//! [`fields`] reads integers out of bytes.
#![forbid(unsafe_code)]

pub mod digest;
pub mod fields;
mod ids;
mod ranges;
pub mod rng;
mod sectors;
mod time;

pub use ids::{ClientId, FullStripe, Group, MemberIndex, Slot, StripeId, VolumeId};
pub use ranges::{ByteRange, SectorRange};
pub use sectors::{Bytes, FRAME_BYTES, SECTOR_BYTES, Sectors};
pub use time::{Span, Time};
