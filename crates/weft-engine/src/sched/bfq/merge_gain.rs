//! Merge gain: the share of requests that begin where a request of another process has just ended.
//!
//! The gain from merging queues can be measured without merging them: interleaved processes issue
//! requests that begin at the end of another process's request. The ends of recent requests are
//! kept in a small table, in which the start of each new request is looked up. Merging pays off if
//! at least one of eight requests begins at such an end, over 256 requests, and does not if fewer
//! than one of 32 does. In between, the previous answer stands.
//!
//! Inputs   each sync request that is queued, and the home queue of its process
//! Answer   [`MergeGain::pays`]
//! Source   weft's own (io-schedulers.md §5.3, item 7)

use weft_units::Sectors;

use super::QueueId;

/// Table of the ends of recent requests, and the number of requests that began at one of them.
#[derive(Clone, Debug)]
pub(super) struct MergeGain {
    /// Ends of recent requests, each with the queue of its request, at the index given by the hash
    /// of the end.
    recent: [(Sectors, QueueId); RECENT],
    requests: u32,
    across: u32,
    pays: bool,
}

impl MergeGain {
    /// Creates an empty table. `pays` is what [`MergeGain::pays`] returns until 256 requests have
    /// been counted.
    pub(super) fn new(pays: bool) -> Self {
        let empty = (Sectors(u64::MAX), QueueId(u32::MAX));
        Self { recent: [empty; RECENT], requests: 0, across: 0, pays }
    }

    /// Whether merging queues pays off.
    pub(super) fn pays(&self) -> bool {
        self.pays
    }

    /// Counts a sync request of the process that has the home queue `home`. Returns whether the
    /// answer has changed.
    #[inline]
    pub(super) fn queued(&mut self, home: QueueId, first: Sectors, end: Sectors) -> bool {
        let (before, whose) = self.recent[slot_of(first)];
        self.across += u32::from(before == first && whose != home);
        self.recent[slot_of(end)] = (end, home);
        self.requests += 1;
        self.requests == WINDOW && self.close_window()
    }

    fn close_window(&mut self) -> bool {
        let least = if self.pays { WINDOW / 32 } else { WINDOW / 8 };
        let pays = self.across >= least;
        (self.requests, self.across) = (0, 0);
        std::mem::replace(&mut self.pays, pays) != pays
    }
}

fn slot_of(end: Sectors) -> usize {
    (end.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - RECENT.trailing_zeros())) as usize
}

/// Number of entries in the table: several for each of a few tens of processes.
const RECENT: usize = 64;
/// Number of requests after which it is decided anew whether merging pays off.
const WINDOW: u32 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    /// Queues 256 requests, of which `across` begin where another process ended. Returns whether
    /// merging pays off after that.
    fn after_window(gain: &mut MergeGain, across: u32) -> bool {
        for number in 0..WINDOW {
            // The two requests of a pair are adjacent, and pairs are far apart.
            let (pair, second) = (number / 2, number % 2);
            let process = if second == 1 && pair < across { 1 } else { 0 };
            let first = Sectors(u64::from(pair) * 100_000 + u64::from(second) * 32);
            gain.queued(QueueId(process), first, first + Sectors(32));
        }
        gain.pays()
    }

    #[test]
    fn one_of_eight_turns_it_on_and_fewer_than_one_of_32_off() {
        let mut gain = MergeGain::new(false);
        let seen = [0, 31, 32, 31, 8, 7, 8, 31].map(|across| after_window(&mut gain, across));
        assert_eq!(seen, [false, false, true, true, true, false, false, false]);
    }

    #[test]
    fn a_process_that_goes_on_where_it_ended_itself_gains_nothing() {
        let mut gain = MergeGain::new(true);
        assert!(!after_window(&mut gain, 0));
        let mut first = Sectors(0);
        for number in 0..4 * WINDOW {
            // Two sequential streams, each with its own process.
            first = Sectors(u64::from(number / 2 * 8 + number % 2 * 1_000_000));
            gain.queued(QueueId(number % 2), first, first + Sectors(8));
        }
        assert!(!gain.pays(), "{first}");
    }

    #[test]
    fn interleaved_readers_gain_by_two_thirds_of_their_requests_and_more() {
        let mut gain = MergeGain::new(false);
        let changed = (0..WINDOW).any(|number| {
            let first = Sectors(u64::from(number) * 32);
            gain.queued(QueueId(number % 3), first, first + Sectors(32))
        });
        assert!(changed && gain.pays());
    }

    #[test]
    fn an_end_is_remembered_while_others_end_elsewhere() {
        let mut gain = MergeGain::new(false);
        for number in 0..WINDOW {
            // Sixteen streams take turns, and each continues with another process in the next
            // round.
            let (stream, round) = (number % 16, number / 16);
            let first = Sectors(u64::from(stream) * 1_000_000 + u64::from(round) * 8);
            gain.queued(QueueId(round % 2), first, first + Sectors(8));
        }
        assert!(gain.pays());
    }
}
