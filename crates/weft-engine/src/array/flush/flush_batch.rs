//! Flush batching: the member flushes that serve each flush request.
//!
//! A flush promises that every write acknowledged before the flush was received is durable. Hence
//! any flush of a member that *starts* after a request was received serves that request at that
//! member. Five rules say how member flushes are shared. All of them keep the strict order of
//! PREFLUSH: data is written to the members after every member has flushed.
//!
//! A *round* is a set of requests and the member flushes that they wait for. `serial` runs one
//! round at a time, for one request. `parallel` gives each request a round of its own, and runs any
//! number of them. With `batch`, the rule of patch 002, one round runs at a time and serves all
//! requests that came before it: all requests that arrive while one round runs need exactly one
//! more round.
//!
//! `md612` and `needed` have no rounds of the whole array: each member has at most one flush in
//! flight, and requests that arrive in the meantime share the member's next flush. With `needed`, a
//! member is skipped if all of its writes are durable, and a flush that started after the member's
//! last write completed also serves later requests. A member is *dirty* from the time that it joins
//! until its first successful flush, and from then on after each completed write without FUA, be it
//! data, metadata or a discard. The member becomes clean when a flush that started after all of
//! these writes succeeds. A flush that fails leaves the member dirty. Writes in flight when a flush
//! starts are not covered. Except with `serial`, a request waits for at most two flushes of a
//! member.
//!
//! Inputs   requests as they arrive, the members and their writes, the end of each member flush
//! Answer   member flushes to send, the requests that are served
//! Knob     `flush_batch`
//! Source   md-raid.md §4.1; Linux "MD: fix lock contention for flush bios", 2018 (`parallel`),
//!          "md: batch flush requests", 2019, "md: Remove flush handling", 2024 (`md612`, which
//!          starts data at once). The order of writes and flushes comes from counters, because
//!          events may have equal time stamps
//! Compare  [`FlushRule::Serial`] and [`FlushRule::Parallel`]: the behaviour before the change
//! See it   `weft reproduce 002`

use std::collections::VecDeque;

use weft_units::MemberIndex;

use crate::contract::input::Fault;
use crate::knobs::FlushRule;
use crate::mutant::{self, Mutant};

/// Counter of one member's writes that a power cut may undo.
#[derive(Clone, Copy, Debug)]
pub struct Unflushed {
    /// Number of completed writes that were not durable by themselves. The content from before the
    /// engine started counts as one write. Each failed flush also counts as one, because the writes
    /// that it was to cover are still not durable.
    written: u64,
    /// Value that `written` had at the start of the last successful flush.
    flushed: u64,
    /// Whether the member has a volatile write cache, so that a power cut may undo completed
    /// writes.
    has_cache: bool,
}

/// Identifier of a member flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlightId(u32);

/// Flush requests of one array, and the member flushes in flight. `R` identifies a request.
#[derive(Clone, Debug)]
pub struct FlushBatch<R> {
    /// Flush requests that are not yet in a round, which is a set of requests and the member
    /// flushes that they wait for.
    waiting: VecDeque<R>,
    rounds: Vec<Option<Round<R>>>,
    running: usize,
    flights: Vec<Option<Flight>>,
    /// Members with a flush in flight for which a further flush is due, in order of arrival. Each
    /// has the index of a round that waits for the further flush.
    queued: Vec<(MemberIndex, usize)>,
    /// Flush requests that need not wait for any more member flushes, each with the result of its
    /// round.
    served: Vec<(R, Result<(), Fault>)>,
    counts: FlushCounts,
    planted: Option<Mutant>,
}

/// Counts of an array's flushes since the engine started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlushCounts {
    /// Number of flush requests that have arrived.
    pub requests: u64,
    /// Number of rounds: sets of flush requests that waited for the same member flushes. Rounds
    /// that sent no flush are included.
    pub rounds: u64,
    /// Number of flushes sent to members.
    pub sent: u64,
    /// Number of member flushes that were left out because all writes of the member were durable.
    pub skipped: u64,
}

#[derive(Clone, Debug)]
struct Round<R> {
    requests: Vec<R>,
    /// Number of members with a flush that this round of flush requests still waits for.
    pending: usize,
    result: Result<(), Fault>,
}

/// A flush in flight at a member.
#[derive(Clone, Debug)]
struct Flight {
    member: MemberIndex,
    /// Count of the member's writes when the flush started.
    at_start: Unflushed,
    rounds: Vec<usize>,
}

impl Unflushed {
    /// Counter for a member about which nothing is known: it may hold writes from before the engine
    /// started. `has_cache` tells whether the member has a volatile write cache.
    #[must_use]
    pub fn new(has_cache: bool) -> Self {
        Self { written: 1, flushed: 0, has_cache }
    }

    /// Counts a completed write that was not durable by itself.
    #[inline]
    pub fn wrote(&mut self) {
        self.written += 1;
    }

    /// Whether every completed write is durable.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        !self.has_cache || self.flushed == self.written
    }

    /// Records the end of a flush. `at_start` is the counter as it was when the flush started.
    fn flushed(&mut self, at_start: &Self, succeeded: bool) {
        if succeeded {
            self.flushed = self.flushed.max(at_start.written);
        } else {
            // Another flush of the member may have been in flight at the same time, and may not
            // cover the writes of the failed flush either. That flush took its count of writes
            // before this increment, so its success does not make the member clean.
            self.written += 1;
        }
        assert!(self.flushed <= self.written, "only what was written is flushed");
    }
}

impl<R> Default for FlushBatch<R> {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            rounds: Vec::new(),
            running: 0,
            flights: Vec::new(),
            queued: Vec::new(),
            served: Vec::new(),
            counts: FlushCounts::default(),
            planted: None,
        }
    }
}

impl<R> FlushBatch<R> {
    /// Adds a flush request. Member flushes that have already started do not serve it, except with
    /// [`FlushRule::Needed`] if no write of the member has completed since the flush started.
    pub fn arrive(&mut self, request: R) {
        self.counts.requests += 1;
        self.waiting.push_back(request);
    }

    /// Whether requests wait or member flushes are queued, so that [`FlushBatch::start`] may have
    /// work to do.
    #[inline]
    #[must_use]
    pub fn wants_start(&self) -> bool {
        !self.waiting.is_empty() || !self.queued.is_empty()
    }

    /// Whether the rule permits waiting flush requests to start member flushes now: with
    /// [`FlushRule::Batch`] and [`FlushRule::Serial`] only while no round is running.
    #[must_use]
    pub fn may_start(&self, rule: FlushRule) -> bool {
        let alone = matches!(rule, FlushRule::Batch | FlushRule::Serial);
        let held_up = alone && self.running > 0;
        !self.waiting.is_empty() && !held_up
    }

    /// Starts the rounds that `rule` permits for the waiting requests, and the queued flushes of
    /// members with no flush in flight. `members` lists the members in the order in which flushes
    /// are sent, each with its counter. Returns the flushes to send; [`FlushBatch::ended`] must be
    /// called once for each of them. A round that needs no flush is finished at once.
    pub fn start(
        &mut self,
        rule: FlushRule,
        members: &[(MemberIndex, Unflushed)],
    ) -> Vec<(MemberIndex, FlightId)> {
        let mut sent = Vec::new();
        self.start_queued(members, &mut sent);
        if mutant::is(self.planted, Mutant::FlushServedByEarlier)
            && let Some(round) = self.rounds.iter_mut().flatten().next()
        {
            round.requests.extend(self.waiting.drain(..));
        }
        while self.may_start(rule) {
            let count = match rule {
                FlushRule::Batch | FlushRule::Md612 | FlushRule::Needed => self.waiting.len(),
                FlushRule::Parallel | FlushRule::Serial => 1,
            };
            let requests = self.waiting.drain(..count).collect();
            let round = self.open(requests, members.len());
            for (member, unflushed) in members {
                self.involve(rule, round, *member, unflushed, &mut sent);
            }
            if members.is_empty() {
                self.close(round);
            }
        }
        self.counts.sent += sent.len() as u64;
        sent
    }

    /// Records that a member flush ended with `result`. `unflushed` is the member's counter, or
    /// `None` if the member has left. `told` is the result for the requests that waited for the
    /// flush; it may be `Ok` although the flush failed, if the array can run without the member.
    /// After the last flush of a round, [`FlushBatch::take_served`] returns the round's requests.
    pub fn ended(
        &mut self,
        flight: FlightId,
        unflushed: Option<&mut Unflushed>,
        result: Result<(), Fault>,
        told: Result<(), Fault>,
    ) {
        let flight = self.flights[flight.0 as usize].take().expect("a flush ends once");
        if let Some(unflushed) = unflushed {
            unflushed.flushed(&flight.at_start, result.is_ok());
        }
        for round in flight.rounds {
            self.member_done(round, told);
        }
    }

    /// Removes and returns the flush requests that need not wait for any more member flushes, each
    /// with its result.
    pub fn take_served(&mut self) -> Vec<(R, Result<(), Fault>)> {
        std::mem::take(&mut self.served)
    }

    /// Whether no flush request waits, be it for a member flush to start or to end.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.running == 0 && self.waiting.is_empty()
    }

    /// Counts of flushes since the engine started.
    #[must_use]
    pub fn counts(&self) -> FlushCounts {
        self.counts
    }

    /// Plants a bug, for tests of the checkers.
    #[cfg(feature = "mutants")]
    pub fn plant(&mut self, mutant: Mutant) {
        self.planted = Some(mutant);
    }

    /// Sends the queued flush of each member that has none in flight. A member that has left the
    /// array needs no flush.
    fn start_queued(
        &mut self,
        members: &[(MemberIndex, Unflushed)],
        sent: &mut Vec<(MemberIndex, FlightId)>,
    ) {
        for (member, round) in std::mem::take(&mut self.queued) {
            let unflushed = members.iter().find(|(index, _)| *index == member);
            let starting = sent.iter().find(|(index, _)| *index == member);
            match (unflushed, starting) {
                (None, _) => self.member_done(round, Ok(())),
                (Some(_), Some((_, flight))) => self.join(*flight, round),
                (Some(_), None) if self.flight_of(member).is_some() => {
                    self.queued.push((member, round));
                }
                (Some((_, unflushed)), None) => sent.push(self.send(member, unflushed, round)),
            }
        }
    }

    /// Adds `member` to a round. As `rule` says, the round waits for a new flush of the member, for
    /// the member's next flush, or for the flush in flight; or it skips the member if all of the
    /// member's writes are durable.
    fn involve(
        &mut self,
        rule: FlushRule,
        round: usize,
        member: MemberIndex,
        unflushed: &Unflushed,
        sent: &mut Vec<(MemberIndex, FlightId)>,
    ) {
        let needed = rule == FlushRule::Needed;
        let shares = needed || rule == FlushRule::Md612;
        let forgets = mutant::is(self.planted, Mutant::FlushSkipForgetsStartUp);
        if needed && (unflushed.is_clean() || forgets && unflushed.written == 1) {
            self.counts.skipped += 1;
            self.member_done(round, Ok(()));
            return;
        }
        if let Some((_, flight)) = sent.iter().find(|(index, _)| shares && *index == member) {
            self.join(*flight, round);
            return;
        }
        match self.flight_of(member).filter(|_| shares) {
            None => sent.push(self.send(member, unflushed, round)),
            Some((flight, covers)) if needed && covers >= unflushed.written => {
                self.join(flight, round);
            }
            Some(_) => self.queued.push((member, round)),
        }
    }

    /// The flush in flight at a member, and the value of the member's counter
    /// [`Unflushed::written`] when the flush started; `None` if no flush is in flight.
    fn flight_of(&self, member: MemberIndex) -> Option<(FlightId, u64)> {
        let mut flights = (0..).zip(&self.flights);
        flights.find_map(|(place, flight)| {
            let flight = flight.as_ref().filter(|flight| flight.member == member)?;
            Some((FlightId(place), flight.at_start.written))
        })
    }

    fn send(
        &mut self,
        member: MemberIndex,
        unflushed: &Unflushed,
        round: usize,
    ) -> (MemberIndex, FlightId) {
        let flight = Flight { member, at_start: *unflushed, rounds: vec![round] };
        (member, FlightId(put(&mut self.flights, flight) as u32))
    }

    fn join(&mut self, flight: FlightId, round: usize) {
        let flight = self.flights[flight.0 as usize].as_mut().expect("a joined flush is in flight");
        flight.rounds.push(round);
    }

    fn open(&mut self, requests: Vec<R>, members: usize) -> usize {
        self.counts.rounds += 1;
        self.running += 1;
        put(&mut self.rounds, Round { requests, pending: members, result: Ok(()) })
    }

    /// Records that the round at index `place` needs no more flush of one of its members; `result`
    /// is the result of the member's flush. After the last member, the requests of the round are
    /// served.
    fn member_done(&mut self, place: usize, result: Result<(), Fault>) {
        let round = self.rounds[place].as_mut().expect("a round is over once");
        assert!(round.pending > 0, "a member of a round is done once");
        round.pending -= 1;
        round.result = round.result.and(result);
        if round.pending == 0 {
            self.close(place);
        }
    }

    fn close(&mut self, place: usize) {
        let Round { requests, result, .. } = self.rounds[place].take().expect("a closed round ran");
        assert!(self.running > 0, "rounds that run are counted");
        self.running -= 1;
        self.served.extend(requests.into_iter().map(|request| (request, result)));
    }
}

/// Stores a value at the first empty index, and returns the index.
fn put<T>(places: &mut Vec<Option<T>>, thing: T) -> usize {
    if let Some(place) = places.iter().position(Option::is_none) {
        places[place] = Some(thing);
        return place;
    }
    places.push(Some(thing));
    places.len() - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two flushes of a member are in flight together, and one of them fails. In whichever order
    /// they end, the member's writes count as durable only after a flush that starts later.
    #[test]
    fn a_flush_beside_one_that_failed_makes_nothing_durable() {
        for failed_first in [false, true] {
            let mut flushes = FlushBatch::default();
            let (member, mut unflushed) = (MemberIndex(0), Unflushed::new(true));
            let start = |flushes: &mut FlushBatch<u8>, unflushed: &Unflushed| {
                flushes.arrive(1);
                let sent = flushes.start(FlushRule::Parallel, &[(member, *unflushed)]);
                assert_eq!(sent.len(), 1, "each request has a round of its own");
                sent[0].1
            };
            let fails = start(&mut flushes, &unflushed);
            let beside = start(&mut flushes, &unflushed);
            let (ok, failed) = (Ok(()), Err(Fault::Io));
            let ends = [(beside, ok), (fails, failed)];
            for (flight, result) in if failed_first { [ends[1], ends[0]] } else { ends } {
                flushes.ended(flight, Some(&mut unflushed), result, Ok(()));
            }
            assert!(!unflushed.is_clean(), "{failed_first}");
            let later = start(&mut flushes, &unflushed);
            flushes.ended(later, Some(&mut unflushed), ok, ok);
            assert!(unflushed.is_clean(), "{failed_first}");
            assert_eq!(flushes.take_served().len(), 3);
        }
    }
}
