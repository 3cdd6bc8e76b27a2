//! Limit on connections: the number of clients (each has a *place*), and how long a client may hold
//! a place before it is served.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use weft_units::Span;

/// Time limits for clients that are not served yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeLimits {
    /// Longest time for a handshake, which ends when the client has chosen an export. The default
    /// is 10 s: a live client takes milliseconds, and a dead one keeps another client from being
    /// served.
    pub handshake: Span,
    /// Longest time for a handshake while another client waits because the number of clients is at
    /// its limit. The default is 1 s: three round trips around the earth.
    pub handshake_wanted: Span,
    /// Longest time that a client waits while the number of clients is at its limit. The default is
    /// 5 s: a client that gets no answer may wait for ever, and by then another client may have
    /// left or exceeded the limit of its handshake.
    pub place: Span,
}

impl Default for TimeLimits {
    fn default() -> Self {
        let (handshake, handshake_wanted) = (Span::secs(10), Span::secs(1));
        Self { handshake, handshake_wanted, place: Span::secs(5) }
    }
}

/// Number of clients of each worker, the limit on the sum of these numbers, and the time limits of
/// clients that are not served yet.
#[derive(Debug)]
pub(crate) struct ConnectionLimit {
    of_workers: Box<[AtomicUsize]>,
    pub(crate) max: usize,
    pub(crate) time: TimeLimits,
    /// Set while a client waits because the number of clients is at its limit, so that handshakes
    /// have to be shorter.
    pub(crate) wanted: AtomicBool,
}

impl ConnectionLimit {
    /// Creates the counts of this many workers, all zero, with a limit of `max` clients in total.
    pub(crate) fn new(workers: usize, max: usize, time: TimeLimits) -> Self {
        let of_workers = (0..workers).map(|_| AtomicUsize::new(0)).collect();
        let max = max.clamp(1, PLACES_MAX as usize);
        Self { of_workers, max, time, wanted: AtomicBool::new(false) }
    }

    pub(crate) fn workers(&self) -> usize {
        self.of_workers.len()
    }

    /// Number of clients of all workers.
    pub(crate) fn count(&self) -> usize {
        self.of_workers.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.count() >= self.max
    }

    /// Counts a new client for the worker with the fewest clients. Returns the index of the worker.
    pub(crate) fn enter(&self) -> usize {
        let counts = self.of_workers.iter().map(|count| count.load(Ordering::Relaxed));
        let fewest = counts.enumerate().min_by_key(|(_, count)| *count);
        let (worker, _) = fewest.expect("there is a first worker");
        self.of_workers[worker].fetch_add(1, Ordering::Relaxed);
        worker
    }

    pub(crate) fn leave(&self, worker: usize) {
        self.of_workers[worker].fetch_sub(1, Ordering::Relaxed);
    }
}

/// Largest number of clients to which the limit can be set: 4,096. Each of these places has 4,096
/// client numbers, which its clients get in turn.
pub(crate) const PLACES_MAX: u32 = 1 << 12;
