//! Stripe size: the bytes of a stripe-cache entry on each member.
//!
//! A stripe is looked up, locked, read and written as a whole. Small stripes move little for a
//! small write; large stripes cost fewer lookups and requests for a large one. md used the page
//! size, 64 KiB on some machines, where a 4 KiB write then moves 256 KiB instead of 16; since 2020
//! it is 4 KiB by default and configurable.
//!
//! [`StripeSize::AUTO`] is weft's own, for both ends at once. What is known of a strip is known for
//! 4 KiB, so a small write moves no more than it must. But stripes of one full stripe that are
//! ready together are handled together, so that each member gets the longest runs there are; a
//! request that finds no room for its part of a full stripe waits for it, or half the cache, so
//! that they are not taken apart; a write that goes on where another one ended waits, while filled
//! stripes are on their way to the members, for the rest of its stripe, with md's `sync` flag if a
//! full stripe's worth of its stream came without a pause; a request that finds no room still
//! brings such stripes what it has for them; a turn ends with the longest request that members
//! take; and a filled stripe is written from the client's own memory.
//!
//! Inputs   the configured size
//! Answer   [`StripeSize`]: stripe height, and whether stripes go by full stripes
//! Knob     `stripe_size` (bytes, power of two, 4096..=65536, or `auto`)
//! Source   spec of md, "stripe_size"; Linux "md/raid5: set default stripe_size as 4096", 2020
//! Compare  65536 is the behaviour before the change on a kernel with 64 KiB pages
//! See it   `weft bench engine`; exact member bytes: md-raid.md §3.1, statements 27 and 50

use weft_units::{Bytes, FRAME_BYTES, Sectors};

use crate::knobs::KnobError;
use crate::layout::geometry::Geometry;

/// Bytes of a stripe on one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StripeSize {
    bytes: u32,
    auto: bool,
}

impl StripeSize {
    /// Strips of 4 KiB, handled by full stripes.
    pub const AUTO: Self = Self { bytes: MIN, auto: true };

    /// Checks a size.
    ///
    /// # Errors
    /// It is not a power of two in 4096..=65536.
    pub fn new(bytes: u64) -> Result<Self, KnobError> {
        match u32::try_from(bytes) {
            Ok(bytes) if (MIN..=MAX).contains(&bytes) && bytes.is_power_of_two() => {
                Ok(Self { bytes, auto: false })
            }
            _ => Err(KnobError::Value {
                name: "stripe_size",
                found: bytes.to_string(),
                expected: format!("a power of two, {MIN}..={MAX}"),
            }),
        }
    }

    /// Whether stripes go by full stripes.
    #[must_use]
    pub const fn is_auto(self) -> bool {
        self.auto
    }

    /// In bytes: what is looked up, and the least that is moved.
    #[must_use]
    pub const fn bytes(self) -> Bytes {
        Bytes(self.bytes as u64)
    }

    /// In sectors.
    #[must_use]
    pub const fn sectors(self) -> Sectors {
        Bytes(self.bytes as u64).sectors_floor()
    }

    /// Frames of one strip of a stripe.
    #[must_use]
    pub const fn frames(self) -> u32 {
        self.bytes / FRAME_BYTES as u32
    }

    /// Frames of a whole stripe of an array, parity included.
    #[must_use]
    pub fn stripe_frames(self, geometry: &Geometry) -> u32 {
        u32::from(geometry.members()) * self.at_most(geometry.chunk().bytes()).frames()
    }

    /// The largest size not above this one that divides a chunk.
    #[must_use]
    pub fn at_most(self, chunk: Bytes) -> Self {
        let mut bytes = self.bytes;
        while bytes > MIN && !chunk.0.is_multiple_of(u64::from(bytes)) {
            bytes /= 2;
        }
        Self { bytes, ..self }
    }
}

impl Default for StripeSize {
    fn default() -> Self {
        Self { bytes: MIN, auto: false }
    }
}

const MIN: u32 = 4096;
const MAX: u32 = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_two_from_4k_to_64k() {
        for good in [4096, 8192, 16_384, 32_768, 65_536] {
            assert_eq!(StripeSize::new(good).unwrap().bytes(), Bytes(good));
        }
        for bad in [0, 2048, 6144, 131_072, u64::MAX] {
            assert!(StripeSize::new(bad).is_err(), "{bad}");
        }
        assert_eq!(StripeSize::AUTO.bytes(), Bytes(4096));
    }

    #[test]
    fn a_stripe_is_never_higher_than_the_chunk() {
        let size = StripeSize::new(65_536).unwrap();
        assert_eq!(size.at_most(Bytes::kib(16)).bytes(), Bytes::kib(16));
        assert_eq!(size.at_most(Bytes::kib(512)), size);
        assert!(StripeSize::AUTO.at_most(Bytes::kib(16)).is_auto());
    }
}
