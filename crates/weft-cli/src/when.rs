//! Time and host of this machine.

use std::time::{SystemTime, UNIX_EPOCH};

use weft_ondisk::MdTime;

/// Seconds since 1970.
pub(crate) fn epoch_secs() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |span| span.as_secs())
}

/// The name of this machine.
pub(crate) fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Today's date in UTC, as `2026-11-20`.
pub(crate) fn today() -> String {
    let now = MdTime::from_secs(epoch_secs()).to_rfc3339();
    now.split('T').next().unwrap_or_default().to_owned()
}
