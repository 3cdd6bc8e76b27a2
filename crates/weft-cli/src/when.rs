//! Time and host of this machine.

use std::time::{SystemTime, UNIX_EPOCH};

/// Present time, in seconds since 1970.
pub(crate) fn epoch_secs() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |span| span.as_secs())
}

/// The name of this machine.
pub(crate) fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
