//! Flush batching: the flush requests that one round of member flushes serves.
//!
//! A flush promises that every write acknowledged before it was received is durable. So any round
//! of member flushes that *starts* after a request was received serves it: while one round runs,
//! all requests that arrive need exactly one more, however many they are. Before, each request had
//! a round of its own.
//!
//! Inputs   requests as they arrive, the end of a round
//! Answer   the requests that the next round serves
//! Source   md-raid.md §4.1; Linux "md: batch flush requests", 2019. Counted in rounds, not in
//!          clock time, so that equal time stamps mean nothing
//! Compare  [`FlushRule::Serial`] is the behaviour before the change: knob `flush_batch`
//! Measured as rounds (statement 19); throughput comes with the simulator

use std::collections::VecDeque;

use crate::knobs::FlushRule;

/// Flush requests of one array, of whatever kind `R`.
#[derive(Clone, Debug)]
pub struct FlushBatch<R> {
    waiting: VecDeque<R>,
    served: Vec<R>,
    running: bool,
    rounds: u64,
}

impl<R> Default for FlushBatch<R> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), served: Vec::new(), running: false, rounds: 0 }
    }
}

impl<R> FlushBatch<R> {
    /// A request arrives. A round that runs already does not serve it.
    pub fn arrive(&mut self, request: R) {
        self.waiting.push_back(request);
    }

    /// Starts a round if somebody waits and none runs. Whether it did.
    pub fn start(&mut self, rule: FlushRule) -> bool {
        if self.running || self.waiting.is_empty() {
            return false;
        }
        self.running = true;
        self.rounds += 1;
        assert!(self.served.is_empty(), "the requests of the round before were answered");
        let count = match rule {
            FlushRule::Batch => self.waiting.len(),
            FlushRule::Serial => 1,
        };
        self.served.extend(self.waiting.drain(..count));
        true
    }

    /// The round is over: whom it served.
    pub fn finish(&mut self) -> Vec<R> {
        assert!(self.running, "a round ends once");
        self.running = false;
        std::mem::take(&mut self.served)
    }

    /// Whether no round runs and nobody waits.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        !self.running && self.waiting.is_empty()
    }

    /// Rounds started so far.
    #[must_use]
    pub fn rounds(&self) -> u64 {
        self.rounds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// md-raid.md §9, statement 19.
    #[test]
    fn statement_19_one_more_round_serves_all_that_arrived_during_one() {
        for (rule, rounds) in [(FlushRule::Batch, 3), (FlushRule::Serial, 9)] {
            let mut flushes = FlushBatch::default();
            flushes.arrive('A');
            assert!(flushes.start(rule));
            "BCDEFGH".chars().for_each(|request| flushes.arrive(request));
            assert!(!flushes.start(rule));
            assert_eq!(flushes.finish(), ['A']);
            assert!(flushes.start(rule));
            flushes.arrive('I');
            let served = flushes.finish();
            assert!(!served.contains(&'I'), "it arrived after the round had started");
            while flushes.start(rule) {
                flushes.finish();
            }
            assert!(flushes.is_idle());
            assert_eq!(flushes.rounds(), rounds, "{rule:?}");
        }
    }
}
