//! Samples of a machine over virtual time: stripes, queue depths, bytes moved, CPU work.
//!
//! The state is read (*looked at*) at even intervals of virtual time, and one or more looks make a
//! sample. Nothing happens between two events, so a look sees the state that has held since the
//! last event. The number of stored samples is bounded: when there are too many, pairs of them are
//! merged. Sampling is off by default.

use weft_engine::StripesInUse;
use weft_units::{Bytes, Span, Time};

use super::member::Traffic;

/// Samples of a machine over time.
#[derive(Clone, Debug, PartialEq)]
pub struct History {
    /// Time between two readings of the machine's state.
    look: Span,
    /// Number of readings of the state that make a sample; a power of two.
    looks: u64,
    samples: Vec<Sample>,
    /// Time of the next reading of the state.
    next: Time,
    /// Counters at the last reading of the state.
    sums: Sums,
}

/// State and work of a machine during an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Start of the interval.
    pub at: Time,
    looks: u64,
    /// Stripes in use.
    pub active: Count,
    /// Stripes that are delayed before they preread, so that more writes may fill them.
    pub delayed: Count,
    /// Stripes that may preread, but only while no stripe is ready.
    pub held: Count,
    /// Stripes that are ready to be handled.
    pub ready: Count,
    /// Stripes that may preread or are prereading.
    pub prereading: Count,
    /// Commands at all disks together.
    pub at_disks: Count,
    /// Work done in the interval.
    pub sums: Sums,
}

/// Number of stripes in some state, or of commands, added up over all readings of the state that
/// make a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    sum: u64,
    /// Largest number at any of the times at which the state was read.
    pub most: u32,
}

/// Work done: counters that only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// CPU time of the engine.
    pub engine: Span,
    /// Bytes of answered requests to the volume.
    pub answered: Bytes,
    /// Bytes of read commands to disks.
    pub read: Bytes,
    /// Bytes of write commands to disks.
    pub written: Bytes,
}

/// State of a machine, as it is read for a sample.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct View {
    pub(super) stripes: StripesInUse,
    pub(super) at_disks: u32,
    pub(super) sums: Sums,
}

/// Largest number of samples that are stored, because a chart has no more pixels.
const SAMPLES_MAX: usize = 1024;

impl History {
    pub(super) fn new(look: Span, now: Time, sums: Sums) -> Self {
        assert!(look > Span::ZERO, "the interval between looks is not zero");
        Self { look, looks: 1, samples: Vec::new(), next: now, sums }
    }

    /// Whether a reading of the state is due before the time `before`.
    pub(super) fn is_due(&self, before: Time) -> bool {
        self.next < before
    }

    /// Adds the readings of the state that are due before the time `before`. `view` is the
    /// machine's state since the last event.
    pub(super) fn look(&mut self, before: Time, view: &View) {
        while self.is_due(before) {
            let due = (before.0 - 1 - self.next.0) / self.look.0 + 1;
            let sample = self.current();
            let room = self.looks - self.samples[sample].looks;
            let looks = due.min(room);
            let moved = view.sums.since(&self.sums);
            self.sums = view.sums;
            self.samples[sample].add(looks, view, &moved);
            self.next = Time(self.next.0 + looks * self.look.0);
        }
    }

    /// Index of the sample that gets the next reading of the state. Starts a sample if the last one
    /// is complete.
    fn current(&mut self) -> usize {
        if self.samples.last().is_none_or(|last| last.looks == self.looks) {
            if self.samples.len() == SAMPLES_MAX {
                self.samples = self.samples.chunks(2).map(|two| two[0].and(&two[1])).collect();
                self.looks *= 2;
            }
            self.samples.push(Sample { at: self.next, ..Sample::default() });
        }
        self.samples.len() - 1
    }

    /// Duration of a sample. The last sample may be shorter.
    #[must_use]
    pub fn span(&self) -> Span {
        Span(self.look.0 * self.looks)
    }

    /// All samples in order of time, without gaps between them.
    #[must_use]
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Returns at most `most` samples, made by merging neighbours.
    #[must_use]
    pub fn joined(&self, most: usize) -> Vec<Sample> {
        let each = self.samples.len().div_ceil(most.max(1)).max(1);
        let joined = self.samples.chunks(each).map(|several| {
            several[1..].iter().fold(several[0], |joined, sample| joined.and(sample))
        });
        joined.collect()
    }
}

impl Sample {
    fn add(&mut self, looks: u64, view: &View, moved: &Sums) {
        let StripesInUse { active, delayed, ready, held, prereading } = view.stripes;
        for (count, now) in [
            (&mut self.active, active),
            (&mut self.delayed, delayed),
            (&mut self.held, held),
            (&mut self.ready, ready),
            (&mut self.prereading, prereading),
            (&mut self.at_disks, view.at_disks),
        ] {
            count.sum += looks * u64::from(now);
            count.most = count.most.max(now);
        }
        self.looks += looks;
        self.sums = self.sums.and(moved);
    }

    fn and(&self, next: &Self) -> Self {
        Self {
            at: self.at,
            looks: self.looks + next.looks,
            active: self.active.and(next.active),
            delayed: self.delayed.and(next.delayed),
            held: self.held.and(next.held),
            ready: self.ready.and(next.ready),
            prereading: self.prereading.and(next.prereading),
            at_disks: self.at_disks.and(next.at_disks),
            sums: self.sums.and(&next.sums),
        }
    }

    /// Mean of one of the sample's counts over the readings of the state that make the sample.
    #[must_use]
    pub fn mean(&self, count: Count) -> f64 {
        count.sum as f64 / self.looks.max(1) as f64
    }
}

impl Count {
    fn and(self, next: Self) -> Self {
        Self { sum: self.sum + next.sum, most: self.most.max(next.most) }
    }
}

impl Sums {
    fn since(&self, before: &Self) -> Self {
        Self {
            engine: Span(self.engine.0 - before.engine.0),
            answered: Bytes(self.answered.0 - before.answered.0),
            read: Bytes(self.read.0 - before.read.0),
            written: Bytes(self.written.0 - before.written.0),
        }
    }

    fn and(&self, other: &Self) -> Self {
        Self {
            engine: Span(self.engine.0 + other.engine.0),
            answered: Bytes(self.answered.0 + other.answered.0),
            read: Bytes(self.read.0 + other.read.0),
            written: Bytes(self.written.0 + other.written.0),
        }
    }

    pub(super) fn with(mut self, traffic: &Traffic) -> Self {
        self.read = Bytes(self.read.0 + traffic.sectors_read * 512);
        self.written = Bytes(self.written.0 + traffic.sectors_written * 512);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(held: u32, answered: u64) -> View {
        let stripes = StripesInUse { held, ..StripesInUse::default() };
        View { stripes, sums: Sums { answered: Bytes(answered), ..Sums::default() }, at_disks: 2 }
    }

    #[test]
    fn looks_are_even_in_time_whatever_happens_when() {
        let mut history = History::new(Span(10), Time(0), Sums::default());
        // Looks at 0 and 10 see 4; those at 20 to 90 see 1; events within one interval are not
        // seen.
        history.look(Time(11), &view(4, 100));
        for at in 12..20 {
            assert!(!history.is_due(Time(at)));
            history.look(Time(at), &view(1000, 100));
        }
        history.look(Time(100), &view(1, 300));
        assert_eq!(history.samples().len(), 10);
        let joined = history.joined(1)[0];
        assert!((joined.mean(joined.held) - 1.6).abs() < 1e-12);
        assert_eq!((joined.held.most, joined.at_disks.most), (4, 2));
        assert_eq!(joined.sums.answered, Bytes(300));
    }

    #[test]
    fn memory_is_bounded_and_nothing_is_lost() {
        let mut history = History::new(Span::millis(1), Time(0), Sums::default());
        let mut sum = 0;
        for second in 1..=7200_u64 {
            let held = (second % 13) as u32;
            sum += u64::from(held);
            history.look(Time(second * 1_000_000_000), &view(held, second));
            assert!(history.samples().len() <= SAMPLES_MAX);
        }
        let all = history.joined(1)[0];
        assert_eq!((all.looks, all.held.sum), (7_200_000, sum * 1000));
        assert_eq!((all.held.most, all.sums.answered), (12, Bytes(7200)));
        for (at, sample) in (0u64..).zip(history.samples()) {
            assert_eq!(sample.at.0, at * history.span().0, "samples are contiguous");
        }
        let several = history.joined(100);
        assert!(several.len() <= 100);
        assert_eq!(several.iter().map(|sample| sample.held.sum).sum::<u64>(), sum * 1000);
        // A jump over an hour takes no longer than a look.
        let mut history = History::new(Span(1), Time(0), Sums::default());
        history.look(Time(3_600_000_000_000), &view(3, 9));
        let all = history.joined(1)[0];
        assert_eq!((all.looks, all.held.sum), (3_600_000_000_000, 3 * 3_600_000_000_000));
    }
}
