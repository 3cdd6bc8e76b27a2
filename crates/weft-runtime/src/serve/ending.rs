//! Endings of the loop that serves clients: the ways to ask for one, and the result.

/// Ways of ending the loop in good order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ending {
    /// End after everything that clients wrote has been written to the members.
    Write,
    /// End, and give up data that cannot be written, which is counted.
    GiveUp,
}

/// Result of the loop that serves clients.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Exit {
    /// Every volume was stopped in good order.
    Clean,
    /// Every volume was stopped as with [`Exit::Clean`], but some members have not answered
    /// requests that the volumes have given up. The text names these members, for people. Memory
    /// and rings of the reactor are never freed in this case: the kernel may still write to them,
    /// and waiting for it may take for ever. The process should end.
    Hanging(String),
    /// A panic stopped all acknowledgement; see `poison.rs`.
    Poisoned(String),
    /// A volume did not stop in good order.
    StopFailed(String),
}
