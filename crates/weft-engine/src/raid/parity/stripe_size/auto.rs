//! Stripes of `stripe_size=auto`, for both small and large writes (weft's own).
//!
//! Validity is kept per 4 KiB of a strip, so a small write transfers no more than it must. Large
//! requests follow these rules:
//!
//! - Stripes of one full stripe that are ready together are handled together, so that each member
//!   gets the longest runs. Stripes that need reads are handled in short runs, so that the reads
//!   and writes of a large write overlap.
//! - A request that finds too few free stripes for its part of a full stripe waits for all of them,
//!   or for half the cache, so that the part is not split up.
//! - A write that continues a stream waits for the rest of its stripe while filled stripes are
//!   being written to the members. With md's `sync` flag it waits only if at least a full stripe
//!   of its stream came without a pause.
//! - A request that finds no free stripe is still attached to those of its stripes that are
//!   delayed.
//! - A turn ends with the longest request that members accept.
//! - A filled stripe is written from the client's own memory.

use weft_units::Span;

use super::{RunRule, StripeSizePolicy};
use crate::raid::parity::priority::PlugRule;

pub(super) static POLICY: StripeSizePolicy = StripeSizePolicy {
    runs: Some(&RUNS),
    waits_for_runs: true,
    feeds_delayed: true,
    gathers_streams: true,
    turn_is_one_request: true,
    filled_zero_copy: true,
    // Held stripes belong to a stream, which usually fills them.
    threshold_min: 64,
    // Only stripes that belong to a stream are delayed.
    plug: Some(&PLUG),
};

/// A large write to parts of its stripes is read and written in up to sixteen runs of at least 32
/// KiB on each member. In a single run, all members would first read and then all would write.
/// Random 1 MiB writes at a queue depth of 1 on four SATA SSDs reached 0.83 of the rate of md,
/// which handles each stripe separately; with these runs they reach 1.03. Of 358 workloads, more
/// become slower than faster with half or twice either figure (`docs/grid.md`).
///
/// A sync of an array without a rotating disk reads and writes a quarter of its window, 64 KiB on
/// each member, at a time.
static RUNS: RunRule = RunRule { parts_of_active: 16, least: 8, of_sync: 16 };

/// Plug that holds back stripes for 500 µs, for the rest of the data that their stream is
/// about to bring: three writes of 64 KiB at 1 GB/s take 200 µs. While stripes are being preread
/// the wait is at most 20 ms, the time of a read on a rotating disk, because prereads of other
/// stripes may follow one another without end.
pub(in crate::raid::parity) static PLUG: PlugRule =
    PlugRule { delay: Span(500_000), reads_max: Some(Span::millis(20)), of_queue: false };
