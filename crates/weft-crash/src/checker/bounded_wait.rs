//! Checker I19, bounded wait: no request waits forever while the volume serves others.
//!
//! While members answer and other requests of the volume complete, two bounds hold for each
//! request. A request waits at most [`WAITS`] times as long as a stripe may wait, plus the service
//! time of members. Meanwhile at most [`WAITS`] times as many bytes of other requests are written
//! as may be written ahead of a waiting stripe. The wait starts anew when an earlier request that
//! it overlaps is answered, when a member has not answered for a second, and when a member answers
//! with an error: the handling of an error has bounds of its own (`no_space_wait`, superblocks).
//! After a write that found no space, the wait starts when the engine tries the write again.
//!
//! With `preread_wait_max=none` a stripe waits as in md, for as long as other stripes are read or
//! written. Nothing is promised then, and nothing is checked.

use std::collections::BTreeMap;

use weft_engine::knobs::WAITS_WITHOUT_BOUND;
use weft_engine::{Fault, Input, Output, RequestOp, Tag, Token};
use weft_units::{ByteRange, Bytes, ClientId, Span, Time};

use super::Violation;

const NAME: &str = "I19 bounded wait";

/// Factor on the longest wait of a stripe. A request may wait for a free stripe and then for that
/// stripe to be filled: two waits. An unlucky read or a full cache doubles them.
const WAITS: u64 = 4;

/// Longest service time of a member request. A member that takes longer counts as silent.
const SERVICE: Span = Span::secs(1);

/// Time from a write that found no space to its next attempt.
const SPACE_RETRY: Span = Span::secs(1);

/// Number of other requests that must be answered during a long wait for the wait to be a
/// violation.
const OTHERS: u64 = 16;

/// Checker I19: the requests that wait, each with the start of its wait.
#[derive(Clone, Debug)]
pub struct BoundedWait {
    wait_max: Span,
    /// Bytes of other requests that may be written while a stripe waits.
    passed_max: Bytes,
    requests: BTreeMap<(ClientId, Tag), Waits>,
    /// Number of requests received so far. `answered` is the number of replies so far.
    arrived: u64,
    answered: u64,
    /// Bytes of all writes answered so far.
    written: u64,
    /// Outstanding member requests, each with the time of its submission.
    submitted: BTreeMap<Token, Time>,
    /// Longest wait of any request that was answered.
    longest: Span,
}

#[derive(Clone, Copy, Debug)]
struct Waits {
    range: ByteRange,
    writes: bool,
    number: u64,
    /// Time from which the wait counts. `answered` and `written` are the checker's counters at that
    /// time.
    since: Time,
    answered: u64,
    written: u64,
}

impl Default for BoundedWait {
    fn default() -> Self {
        Self {
            wait_max: WAITS_WITHOUT_BOUND,
            passed_max: Bytes(u64::MAX),
            requests: BTreeMap::new(),
            arrived: 0,
            answered: 0,
            written: 0,
            submitted: BTreeMap::new(),
            longest: Span::ZERO,
        }
    }
}

impl BoundedWait {
    /// Sets how long a stripe may wait, and how many bytes of other requests may be written
    /// meanwhile. All waits start anew at `now`.
    pub fn allow(&mut self, wait_max: Span, passed_max: Bytes, now: Time) {
        self.wait_max = wait_max;
        self.passed_max = passed_max;
        self.begin_anew(now);
    }

    /// The longest wait of any request that was answered.
    #[must_use]
    pub fn longest(&self) -> Span {
        self.longest
    }

    /// Records requests that arrive and member requests that complete. A completion that is late or
    /// failed restarts every wait.
    pub fn input(&mut self, now: Time, input: &Input) {
        match input {
            Input::Client(request) => {
                self.arrived += 1;
                let writes = !matches!(request.op, RequestOp::Flush | RequestOp::Read);
                let waits = Waits {
                    range: request.range,
                    writes,
                    number: self.arrived,
                    since: now,
                    answered: self.answered,
                    written: self.written,
                };
                self.requests.insert((request.client, request.tag), waits);
            }
            Input::ClientGone(client) => self.requests.retain(|(owner, _), _| owner != client),
            Input::Done { token, result } => {
                let since = self.submitted.remove(token);
                let late = since.is_some_and(|since| now.since(since) > SERVICE);
                match result {
                    Err(Fault::NoSpace) => self.begin_anew(now + SPACE_RETRY),
                    Err(_) => self.begin_anew(now),
                    Ok(_) if late => self.begin_anew(now),
                    Ok(_) => {}
                }
            }
            Input::Admin(_) | Input::Wake => {}
        }
    }

    /// Records member requests and replies, and checks all waits after each reply.
    pub fn output(&mut self, now: Time, output: &Output, found: &mut Vec<Violation>) {
        match output {
            Output::Submit { token, .. } => {
                self.submitted.insert(*token, now);
            }
            Output::Reply { client, tag, .. } => {
                let Some(done) = self.requests.remove(&(*client, *tag)) else { return };
                self.answered += 1;
                self.written += if done.writes { done.range.len.0 } else { 0 };
                self.longest = self.longest.max(now.since(done.since));
                for waits in self.requests.values_mut() {
                    let overlaps =
                        waits.range.overlaps(done.range) && (waits.writes || done.writes);
                    if overlaps && done.number < waits.number {
                        waits.begin(now, self.answered, self.written);
                    }
                }
                self.look(now, found);
            }
            _ => {}
        }
    }

    fn look(&mut self, now: Time, found: &mut Vec<Violation>) {
        if self.wait_max == WAITS_WITHOUT_BOUND {
            return;
        }
        if self.submitted.values().any(|since| now.since(*since) > SERVICE) {
            self.begin_anew(now);
        }
        let most = Span(self.wait_max.0 * WAITS + SERVICE.0);
        let passed = self.passed_max.0.saturating_mul(WAITS);
        let late = self.requests.iter().find(|(_, waits)| {
            let too_long = now.since(waits.since) > most || self.written - waits.written > passed;
            too_long && self.answered - waits.answered >= OTHERS
        });
        if let Some(((client, tag), waits)) = late {
            let (waited, others) = (now.since(waits.since), self.answered - waits.answered);
            let (range, written) = (waits.range, Bytes(self.written - waits.written));
            found.push(Violation::new(
                NAME,
                format!(
                    "{client:?} {tag:?} ({range:?}) has waited for {waited:?} while members answered and \
                     {others} others were done, {written:?} written; stripes wait for {:?} and \
                     {:?} at most",
                    self.wait_max, self.passed_max
                ),
            ));
        }
    }

    fn begin_anew(&mut self, now: Time) {
        for waits in self.requests.values_mut() {
            waits.begin(now, self.answered, self.written);
        }
    }
}

impl Waits {
    fn begin(&mut self, now: Time, answered: u64, written: u64) {
        (self.since, self.answered, self.written) = (now, answered, written);
    }
}
