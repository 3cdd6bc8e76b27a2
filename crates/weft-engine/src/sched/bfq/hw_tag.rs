//! Internal queueing: whether a member processes several requests at once.
//!
//! The device itself is not asked. The estimate depends on how many requests were in flight while
//! more were available. Every completion is a sample, unless too few requests were pending, or the
//! queue in service itself had too few requests. After 32 samples, the member counts as queueing
//! internally if it ever had more than three requests in flight.
//!
//! A member that was found to queue internally keeps this flag, because from then on it is the
//! scheduler that keeps the number of requests in flight low by holding requests back. (In 2019 the
//! decision was renewed every 32 samples.)
//!
//! Inputs   at each completion: requests in flight, requests waiting, the queue in service
//! Answer   [`HwTag::queues`]: `None` until the 33rd sample decides
//! Source   io-schedulers.md §2.12; `hw_tag` of Linux

/// Estimate of a member's internal queueing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HwTag {
    queues: Option<bool>,
    in_driver_max: u32,
    samples: u32,
}

/// Sample for the estimate, taken at a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    /// Number of requests in flight at the member, including the one that completes.
    pub(super) in_driver: u32,
    /// Number of requests that wait in all queues.
    pub(super) queued: u32,
    /// Whether the queue in service has a short think time and fewer than three requests.
    pub(super) in_service_has_few: bool,
}

impl HwTag {
    /// Whether the member processes several requests at once; `None` until decided.
    pub(super) fn queues(&self) -> Option<bool> {
        self.queues
    }

    /// Adds the sample of a completion. Returns whether this sample decided if the member queues
    /// internally.
    #[inline]
    pub(super) fn completed(&mut self, sample: Sample) -> bool {
        if self.queues == Some(true) {
            return false;
        }
        self.in_driver_max = self.in_driver_max.max(sample.in_driver);
        if sample.in_driver + sample.queued <= THRESHOLD
            || (sample.in_service_has_few && sample.in_driver < THRESHOLD)
        {
            return false;
        }
        self.samples += 1;
        if self.samples <= SAMPLES {
            return false;
        }
        self.queues = Some(self.in_driver_max > THRESHOLD);
        (self.in_driver_max, self.samples) = (0, 0);
        true
    }
}

/// Largest number of requests in flight with which a member counts as not queueing internally
/// (`BFQ_HW_QUEUE_THRESHOLD`).
const THRESHOLD: u32 = 3;
/// Number of samples before the one that decides (`BFQ_HW_QUEUE_SAMPLES`).
const SAMPLES: u32 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    const BUSY: Sample = Sample { in_driver: 1, queued: 3, in_service_has_few: false };

    /// Adds `samples`. Returns the number of the sample that decided, and the decision.
    fn decided(samples: impl IntoIterator<Item = Sample>) -> Option<(usize, bool)> {
        let mut tag = HwTag::default();
        let number = samples.into_iter().position(|sample| tag.completed(sample))?;
        Some((number + 1, tag.queues()?))
    }

    #[test]
    fn statement_m2_the_33rd_sample_decides_and_one_deep_moment_is_enough() {
        assert_eq!(decided([BUSY; 32]), None);
        assert_eq!(decided([BUSY; 33]), Some((33, false)));
        let mut samples = [BUSY; 33];
        samples[7].in_driver = 4;
        assert_eq!(decided(samples), Some((33, true)));
        samples[7].in_driver = 3;
        assert_eq!(decided(samples), Some((33, false)));
    }

    #[test]
    fn completions_that_tell_nothing_are_no_samples() {
        let idle = Sample { queued: 2, ..BUSY };
        assert_eq!(decided([idle; 100]), None, "three pending");
        let few = Sample { in_service_has_few: true, in_driver: 2, queued: 9 };
        assert_eq!(decided([few; 100]), None, "the queue in service had too few requests");
        assert_eq!(decided([Sample { in_driver: 3, ..few }; 33]), Some((33, false)));
        let deep_and_idle = Sample { in_driver: 3, queued: 0, in_service_has_few: false };
        let mut samples = vec![deep_and_idle; 50];
        samples.extend([BUSY; 33]);
        assert_eq!(decided(samples), Some((83, false)));
    }

    #[test]
    fn a_member_that_was_found_to_queue_does_so_for_good() {
        let mut tag = HwTag::default();
        (0..33).for_each(|_| assert!(!tag.completed(BUSY) || tag.queues() == Some(false)));
        let deep = Sample { in_driver: 4, ..BUSY };
        (0..33).for_each(|_| {
            tag.completed(deep);
        });
        assert_eq!(tag.queues(), Some(true), "decided anew after another 33");
        assert!((0..100).all(|_| !tag.completed(BUSY)));
        assert_eq!(tag.queues(), Some(true));
    }
}
