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

use crate::knobs::Knobs;
#[cfg(doc)]
use crate::knobs::StripeSize;
use crate::layout::geometry::Geometry;

/// Frames of a whole stripe of an array, parity included.
pub(crate) fn stripe_frames(knobs: &Knobs, geometry: &Geometry) -> u32 {
    knobs.stripe_size.stripe_frames(geometry.members(), geometry.chunk().bytes())
}
