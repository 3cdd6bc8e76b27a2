//! Recording of client requests with their times, without delay for the clients.
//!
//! A [`Recorder`] notes every request to read, write, trim, zero or flush as it arrives, before the
//! volume has acted on it. Another thread takes and stores the notes. Queries for holes, hints, and
//! requests that the protocol layer refuses do not reach the volume and are left out.
//!
//! # Bounds
//!
//! Clients never wait for the recording, which would otherwise change the workload that it records.
//! At most [`ARRIVALS_MAX`] requests wait to be taken. Further requests are only counted, and the
//! next request that is recorded carries their number.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weft_engine::RequestOp;
use weft_runtime::clock::Clock;
use weft_units::Time;

/// Operation and range of a request to a volume, independent of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeRequest {
    /// Operation of the request.
    pub op: RequestOp,
    /// Offset in the volume of the first byte; 0 for a flush.
    pub start: u64,
    /// Length in bytes; 0 for a flush.
    pub len: u64,
    /// Whether the data must be durable before the reply.
    pub fua: bool,
    /// For zeroes: whether the range may be deallocated.
    pub discard: bool,
}

/// A recorded request of a client, with the time at which it arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Time from the first request to the arrival of this one.
    pub time: Time,
    /// Operation and range of the request.
    pub asked: VolumeRequest,
    /// Number of requests that arrived after the previous recorded one and before this one, and
    /// were not recorded.
    pub lost: u64,
}

/// Recorder of client requests.
#[derive(Debug)]
pub struct Recorder {
    state: Mutex<State>,
    /// Condition that is signalled when many requests wait to be taken, and at the end of the
    /// record.
    many: Condvar,
    max: usize,
}

#[derive(Debug, Default)]
struct State {
    /// Clock that starts at the first arrival.
    clock: Option<Clock>,
    arrivals: Vec<Arrival>,
    lost: u64,
    ended: bool,
}

/// Facts that [`Recorder::take`] returns beside the requests: how many requests were lost after
/// them, and whether the record has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Taken {
    /// Number of requests that arrived after those that were taken, and were not recorded. It is 0
    /// until the record has ended, because the next recorded request carries the number.
    pub lost: u64,
    /// Whether the record has ended, so that no further request will be recorded.
    pub ended: bool,
}

impl Default for Recorder {
    fn default() -> Self {
        Self::with_room(ARRIVALS_MAX)
    }
}

impl Recorder {
    /// Creates a recorder in which at most `max` requests wait to be taken.
    #[must_use]
    pub fn with_room(max: usize) -> Self {
        Self { state: Mutex::default(), many: Condvar::new(), max }
    }

    /// Records a request, or counts it as lost if there is no room.
    pub(crate) fn note(&self, asked: VolumeRequest) {
        let mut state = self.lock();
        if state.arrivals.len() >= self.max {
            state.lost += 1;
            return;
        }
        // The clock is read under the lock, so that times never go back.
        let time = state.clock.get_or_insert_with(Clock::start).now();
        let lost = std::mem::take(&mut state.lost);
        state.arrivals.push(Arrival { time, asked, lost });
        if state.arrivals.len() == self.max.div_ceil(2) {
            self.many.notify_one();
        }
    }

    /// Ends the record and wakes a thread that waits in [`Self::take`].
    pub fn end(&self) {
        self.lock().ended = true;
        self.many.notify_one();
    }

    /// Moves the requests that have arrived into `arrivals`, in order. `arrivals` is emptied first;
    /// the recorder keeps its memory for further requests. Waits for at most `patience`, until the
    /// recorder is half full or the record ends.
    pub fn take(&self, arrivals: &mut Vec<Arrival>, patience: Duration) -> Taken {
        arrivals.clear();
        let few = |state: &mut State| !state.ended && state.arrivals.len() < self.max.div_ceil(2);
        let waited = self.many.wait_timeout_while(self.lock(), patience, few);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut state.arrivals, arrivals);
        // After the end no further request follows that could report the losses.
        let lost = if state.ended { std::mem::take(&mut state.lost) } else { 0 };
        Taken { lost, ended: state.ended }
    }

    /// Locks the state. The state is consistent after every statement, so a panic leaves it usable.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Largest number of requests that wait to be taken: a quarter of a million, which need 13 MB. Even
/// the fastest volume takes half a second or more to receive that many.
const ARRIVALS_MAX: usize = 1 << 18;

#[cfg(test)]
mod tests {
    use super::*;

    const READ: VolumeRequest =
        VolumeRequest { op: RequestOp::Read, start: 512, len: 4096, fua: false, discard: false };
    const FLUSH: VolumeRequest = VolumeRequest { op: RequestOp::Flush, start: 0, len: 0, ..READ };
    const AT_ONCE: Duration = Duration::ZERO;

    #[test]
    fn requests_are_taken_in_order() {
        let recorder = Recorder::default();
        recorder.note(FLUSH);
        recorder.note(READ);
        let mut arrivals = Vec::new();
        let taken = recorder.take(&mut arrivals, AT_ONCE);
        assert_eq!(taken, Taken { lost: 0, ended: false });
        assert_eq!(arrivals.iter().map(|arrival| arrival.asked).collect::<Vec<_>>(), [FLUSH, READ]);
        assert!(arrivals[0].time <= arrivals[1].time);
        assert!(arrivals[0].time < Time(1_000_000), "counted from the first: {:?}", arrivals[0]);
        recorder.end();
        assert!(recorder.take(&mut arrivals, Duration::from_secs(60)).ended);
        assert!(arrivals.is_empty());
    }

    #[test]
    fn what_finds_no_room_is_counted_where_it_is_missing() {
        let recorder = Recorder::with_room(4);
        (0..7).for_each(|_| recorder.note(READ));
        let mut arrivals = Vec::new();
        assert_eq!(recorder.take(&mut arrivals, AT_ONCE), Taken { lost: 0, ended: false });
        assert_eq!(arrivals.iter().map(|arrival| arrival.lost).collect::<Vec<_>>(), [0; 4]);
        (0..6).for_each(|_| recorder.note(FLUSH));
        recorder.end();
        assert_eq!(recorder.take(&mut arrivals, AT_ONCE), Taken { lost: 2, ended: true });
        assert_eq!(arrivals.iter().map(|arrival| arrival.lost).collect::<Vec<_>>(), [3, 0, 0, 0]);
        assert_eq!(recorder.take(&mut arrivals, AT_ONCE), Taken { lost: 0, ended: true });
    }

    /// Every request is counted exactly once, however many threads record and however slow the
    /// taker is.
    #[test]
    fn every_request_is_taken_or_counted() {
        const EACH: u64 = 20_000;
        let recorder = Recorder::with_room(64);
        let (mut taken, mut lost, mut last) = (0, 0, Time(0));
        std::thread::scope(|scope| {
            let askers: Vec<_> = (0..3)
                .map(|_| scope.spawn(|| (0..EACH).for_each(|_| recorder.note(READ))))
                .collect();
            scope.spawn(|| {
                for asker in askers {
                    asker.join().unwrap();
                }
                recorder.end();
            });
            let mut arrivals = Vec::new();
            loop {
                let step = recorder.take(&mut arrivals, Duration::from_millis(1));
                for arrival in &arrivals {
                    assert!(arrival.time >= last);
                    last = arrival.time;
                    lost += arrival.lost;
                    taken += 1;
                }
                lost += step.lost;
                if step.ended && arrivals.is_empty() {
                    break;
                }
            }
        });
        assert_eq!(taken + lost, 3 * EACH);
        assert!(taken > 0);
    }
}
