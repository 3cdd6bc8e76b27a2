//! Stripes of a fixed size, as md has them: each stripe on its own.

use super::StripeSizePolicy;

/// Policy of a fixed stripe size, as in md.
pub(super) static POLICY: StripeSizePolicy = StripeSizePolicy {
    runs: None,
    waits_for_runs: false,
    feeds_delayed: false,
    gathers_streams: false,
    turn_is_one_request: false,
    filled_zero_copy: false,
    threshold_min: 0,
    plug: None,
};
