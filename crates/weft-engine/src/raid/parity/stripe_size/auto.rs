//! Stripes of `stripe_size=auto`, for small and large writes at once (weft's own).
//!
//! What is known of a strip is known for 4 KiB, so a small write moves no more than it must. But
//! stripes of one full stripe that are ready together are handled together, so that each member
//! gets the longest runs there are, and those that are read first in short runs, so that reads and
//! writes of a large write overlap; a request that finds no room for its part of a full stripe
//! waits for it, or half the cache, so that they are not taken apart; a write that goes on where
//! another one ended waits, while filled stripes are on their way to the members, for the rest of
//! its stripe, with md's `sync` flag if a full stripe's worth of its stream came without a pause; a
//! request that finds no room still brings such stripes what it has for them; a turn ends with the
//! longest request that members take; and a filled stripe is written from the client's own memory.

use weft_units::Span;

use super::{RunRule, StripeSizePolicy};
use crate::raid::parity::priority::PlugRule;

/// Decisions of `auto`.
pub(super) static POLICY: StripeSizePolicy = StripeSizePolicy {
    runs: Some(&RUNS),
    waits_for_runs: true,
    feeds_delayed: true,
    gathers_streams: true,
    turn_is_one_request: true,
    filled_zero_copy: true,
    // What is held belongs to a stream, which fills it as a rule.
    threshold_min: 64,
    // Nothing else is delayed than what belongs to a stream.
    plug: Some(&PLUG),
};

/// A large write of a part of its stripes is read and written in up to sixteen runs of 32 KiB or
/// more on each member. Whole, all members read, and then all of them write: random 1 MiB at a
/// depth of 1 on four SATA SSDs went at 0.83 of md's rate, whose stripes each go their own way, and
/// goes at 1.03. Held against 358 loads, halves and doubles of both figures lose more of them
/// (`docs/grid.md`).
static RUNS: RunRule = RunRule { parts_of_active: 16, least: 8 };

/// Wait of stripes of a stream whose rest is on its way: three writes of 64 KiB at 1 GB/s take 200
/// µs. While stripes are read 20 ms, what a disk takes that turns: these may be stripes of others,
/// one after another without end.
pub(in crate::raid::parity) static PLUG: PlugRule =
    PlugRule { delay: Span(500_000), reads_max: Some(Span::millis(20)), of_queue: false };
