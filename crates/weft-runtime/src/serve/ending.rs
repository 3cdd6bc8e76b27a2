//! Endings of the loop that serves clients: the ways to request an end, and the results.

/// Ways of ending the loop in good order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ending {
    /// End once all data that clients wrote has been written to the members. If that fails, the
    /// loop goes on.
    Write,
    /// End even if data cannot be written. This data is given up, and its amount is counted.
    GiveUp,
}

/// Result of the loop that serves clients, once it has ended.
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
    /// A panic stopped all acknowledgement; see `poison.rs`. The text is the panic's message.
    Poisoned(String),
    /// A volume did not stop in good order, or a further request to stop has ended the loop at
    /// once. The text is the reason, for people.
    StopFailed(String),
}
