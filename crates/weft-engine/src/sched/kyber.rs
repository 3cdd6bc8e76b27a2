//! kyber scheduler: limits how many requests of each kind are at a member, by measured latencies.
//!
//! Reads, writes and discards are *domains*, each with a number of tokens. A request takes a token
//! of its domain to the member and returns it on completion. Domains take turns in batches; within
//! a domain the oldest request goes first. Requests are not sorted, and classes and weights are
//! ignored.
//!
//! At most ten times a second, kyber evaluates the latencies of the requests that have ended, as
//! fractions of their domain's target. If the member is slower than a target, domains that are well
//! within theirs lose tokens, in proportion to their slack: fewer requests are then at the member,
//! and the others wait in the scheduler, where reads and writes still take turns. A domain beyond
//! its target gains tokens. On a member that is never slower than a target, kyber only merges and
//! takes turns.
//!
//! No timer makes the evaluation. The first call after the evaluation became due makes it, as of
//! the time at which it became due; the result is the same, because no sample can arrive in
//! between. [`Kyber::next_wake`] returns a time only if a request waits for a token.
//!
//! Each domain has one list of waiting requests. Linux has one for each CPU; only one thread
//! inserts here. Linux also has a domain for operations of other kinds; weft passes none of these
//! to a scheduler (`member_queue.rs`).
//!
//! Inputs   [`QueuedRequest`]s, the time
//! Answer   [`Kyber::dispatch`]: the next request, with all requests merged into it
//! Knobs    [`KyberKnobs`]: the files of `queue/iosched/`; `max_sectors_kb`, `nomerges`. The member
//!          queue bounds writes and discards to three quarters of `nr_requests`
//! Source   io-schedulers.md §2K; Linux `block/kyber-iosched.c`
//! Measured as exact sequences and tokens (statements K1 to K12 of io-schedulers.md §6), on no
//!          running kernel; `weft-bench sched` measures its cost, and docs/schedulers.md has its
//!          effect beside writers

use std::collections::VecDeque;

use weft_units::{Sectors, Span, Time};

use super::names::{NameTable, Names};
use super::request::{Direction, Dispatched, QueuedRequest, Receipt};
use crate::contract::input::Class;
use crate::knobs::{KyberKnobs, NoMerges};

/// kyber scheduler of one member.
#[derive(Clone, Debug)]
pub struct Kyber {
    max: Sectors,
    /// Number of the newest requests of a domain into which a new request may be merged.
    reach: usize,
    domains: [Domain; DOMAINS],
    /// Index of the domain that has a batch being dispatched, and number of requests dispatched in
    /// it so far.
    current: usize,
    batch: u32,
    /// Requests at the member, by receipt.
    at_member: Vec<Option<AtMember>>,
    free: Vec<u32>,
    /// Time of the next evaluation of the latencies; `None` until a request ends.
    look: Option<Time>,
    names: NameTable,
    /// Identifiers of the requests that are merged in the last dispatched request.
    sent: Vec<u64>,
}

/// One of the three domains: reads, writes or discards.
#[derive(Clone, Debug)]
struct Domain {
    limits: Limits,
    target: Span,
    /// Queued requests in order of arrival.
    waiting: VecDeque<Waiting>,
    tokens: u32,
    /// Number of tokens held by requests at the member. It may exceed `tokens` after the domain has
    /// lost tokens.
    out: u32,
    /// Latencies from dispatch to completion, and (`total`) from insertion to completion.
    of_member: Histogram,
    total: Histogram,
    /// Time from which a percentile may be computed even from few samples. Set when a percentile is
    /// first computed from few samples without success; `None` before.
    patience: Option<Time>,
    /// Bucket of the last 99th percentile of total latency that was computed but not used yet;
    /// `None` if there is none.
    remembered: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Limits {
    tokens: u32,
    batch: u32,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    first: Sectors,
    len: Sectors,
    since: Time,
    class: Class,
    names: Names,
    merges: bool,
}

#[derive(Clone, Copy, Debug)]
struct AtMember {
    domain: usize,
    since: Time,
    sent: Time,
}

/// Number of requests in each latency bucket; a bucket is a quarter of the target wide.
#[derive(Clone, Copy, Debug, Default)]
struct Histogram([u32; BUCKETS]);

impl Kyber {
    /// Creates a scheduler without requests. Merging makes no request larger than `max`
    /// (`max_sectors_kb`).
    #[must_use]
    pub fn new(settings: KyberKnobs, max: Sectors, nomerges: NoMerges) -> Self {
        let reach = match nomerges {
            NoMerges::Allowed => MERGE_REACH,
            NoMerges::LastOnly => 1,
            NoMerges::Never => 0,
        };
        let KyberKnobs { read_lat, write_lat } = settings;
        Self {
            max,
            reach,
            domains: [
                Domain::new(Limits { tokens: 256, batch: 16 }, read_lat),
                Domain::new(Limits { tokens: 128, batch: 8 }, write_lat),
                Domain::new(Limits { tokens: 64, batch: 1 }, DISCARD_LAT),
            ],
            current: READ,
            batch: 0,
            at_member: Vec::new(),
            free: Vec::new(),
            look: None,
            names: NameTable::new(),
            sent: Vec::new(),
        }
    }

    /// Whether no request is queued. Requests in flight at the member do not count.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting() == 0
    }

    /// Number of queued requests. A request that was merged into another does not count.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.domains.iter().map(|domain| domain.waiting.len()).sum()
    }

    /// Queues a request, or merges it into a queued one.
    pub fn insert(&mut self, request: &QueuedRequest, now: Time) {
        assert!(request.len > Sectors::ZERO, "a request has a length");
        if self.merge(request) {
            return;
        }
        let &QueuedRequest { id, attr, first, len, merges, .. } = request;
        let (class, names) = (attr.class, Names::of(id));
        let waiting = Waiting { first, len, since: now, class, names, merges };
        self.domains[domain_of(request)].waiting.push_back(waiting);
    }

    /// Merges a request into a queued one if possible; the queued request keeps its place. Returns
    /// whether it was merged.
    pub fn merge(&mut self, request: &QueuedRequest) -> bool {
        if !request.merges {
            return false;
        }
        let end = request.first + request.len;
        for queued in self.domains[domain_of(request)].waiting.iter_mut().rev().take(self.reach) {
            let fits = queued.merges
                && queued.class == request.attr.class
                && queued.len + request.len <= self.max;
            if !fits {
                continue;
            }
            if queued.first + queued.len == request.first {
                self.names.append(&mut queued.names, request.id);
            } else if end == queued.first {
                self.names.prepend(&mut queued.names, request.id);
                queued.first = request.first;
            } else {
                continue;
            }
            queued.len += request.len;
            return true;
        }
        false
    }

    /// Returns the next request for the member; `None` if no domain has both a queued request and a
    /// token left.
    pub fn dispatch(&mut self, now: Time) -> Option<Dispatched> {
        self.look_if_due(now);
        if self.batch < self.domains[self.current].limits.batch
            && let Some(waiting) = self.domains[self.current].take()
        {
            return Some(self.send(waiting, now));
        }
        self.batch = 0;
        for _ in 0..DOMAINS {
            self.current = (self.current + 1) % DOMAINS;
            if let Some(waiting) = self.domains[self.current].take() {
                return Some(self.send(waiting, now));
            }
        }
        None
    }

    fn send(&mut self, waiting: Waiting, now: Time) -> Dispatched {
        self.batch += 1;
        let Waiting { first, len, since, names, .. } = waiting;
        let at_member = Some(AtMember { domain: self.current, since, sent: now });
        let receipt = if let Some(receipt) = self.free.pop() {
            self.at_member[receipt as usize] = at_member;
            receipt
        } else {
            self.at_member.push(at_member);
            self.at_member.len() as u32 - 1
        };
        self.names.take(names, &mut self.sent);
        let direction = if self.current == READ { Direction::Read } else { Direction::Write };
        Dispatched { direction, receipt: Receipt(receipt), first, len, id: names.first }
    }

    /// Identifiers of all requests that are merged in the last dispatched request.
    #[must_use]
    pub fn sent(&self) -> &[u64] {
        &self.sent
    }

    /// Reports that the member has completed a dispatched request.
    pub fn completed(&mut self, receipt: Receipt, now: Time) {
        self.look_if_due(now);
        let ended = self.at_member[receipt.0 as usize].take();
        let AtMember { domain, since, sent } = ended.expect("a request is completed once");
        self.free.push(receipt.0);
        let domain = &mut self.domains[domain];
        domain.out -= 1;
        domain.of_member.count(now.since(sent), domain.target);
        domain.total.count(now.since(since), domain.target);
        self.look.get_or_insert(now + LOOK_EVERY);
    }

    /// Time of the next evaluation of the latencies, if a request waits that could get a token from
    /// it; otherwise `None`.
    #[must_use]
    pub fn next_wake(&self) -> Option<Time> {
        let waits = |domain: &Domain| !domain.waiting.is_empty() && domain.out >= domain.tokens;
        self.look.filter(|_| self.domains.iter().any(waits))
    }

    /// Drops the queued requests as if they had never been inserted. Requests in flight are kept.
    pub(crate) fn clear_waiting(&mut self) {
        self.domains.iter_mut().for_each(|domain| domain.waiting.clear());
        self.names.clear();
    }

    fn look_if_due(&mut self, now: Time) {
        if let Some(due) = self.look.take_if(|due| *due <= now) {
            self.look_at_latencies(due);
        }
    }

    /// Evaluates the latencies since the last evaluation, and changes the number of tokens
    /// accordingly.
    fn look_at_latencies(&mut self, now: Time) {
        // The histogram of every domain has to be evaluated, also after a congested one; `any`
        // would stop there.
        let congested = self.domains.iter_mut().fold(false, |congested, domain| {
            let p90 = domain.of_member.percentile(90, &mut domain.patience, now);
            congested | is_bad(p90)
        });
        for domain in &mut self.domains {
            let p99 = domain.total.percentile(99, &mut domain.patience, now);
            let p99 = if congested {
                p99.or(domain.remembered.take())
            } else {
                domain.remembered = p99.or(domain.remembered);
                p99
            };
            if congested || is_bad(p99) {
                domain.resize(p99);
            }
        }
    }
}

impl Domain {
    fn new(limits: Limits, target: Span) -> Self {
        Self {
            limits,
            target,
            waiting: VecDeque::new(),
            tokens: limits.tokens,
            out: 0,
            of_member: Histogram::default(),
            total: Histogram::default(),
            patience: None,
            remembered: None,
        }
    }

    /// Takes and returns the oldest request, with a token for it; `None` if there is no request or
    /// no token.
    fn take(&mut self) -> Option<Waiting> {
        if self.out >= self.tokens {
            return None;
        }
        let waiting = self.waiting.pop_front()?;
        self.out += 1;
        Some(waiting)
    }

    /// Scales the number of tokens by `p99`, the bucket of the 99th percentile: by the bucket's
    /// upper end as a fraction of the target. `None` changes nothing.
    fn resize(&mut self, p99: Option<usize>) {
        if let Some(bucket) = p99 {
            let tokens = self.tokens * (bucket as u32 + 1) / GOOD as u32;
            self.tokens = tokens.clamp(1, self.limits.tokens);
        }
    }
}

impl Histogram {
    fn count(&mut self, latency: Span, target: Span) {
        let width = (target.0 / GOOD as u64).max(1);
        let bucket = latency.0.saturating_sub(1) / width;
        self.0[bucket.min(BUCKETS as u64 - 1) as usize] += 1;
    }

    /// Computes the bucket of a percentile, and empties the histogram. `None` if there are no
    /// samples, or if there are few and less than [`PATIENCE`] has passed since the first attempt.
    fn percentile(
        &mut self,
        percent: u32,
        patience: &mut Option<Time>,
        now: Time,
    ) -> Option<usize> {
        let samples: u32 = self.0.iter().sum();
        if samples == 0 {
            return None;
        }
        let until = *patience.get_or_insert(now + PATIENCE);
        if samples < SAMPLES_ENOUGH && now < until {
            return None;
        }
        *patience = None;
        let mut rank = (samples * percent).div_ceil(100);
        let counts = std::mem::take(&mut self.0);
        counts.iter().position(|count| {
            let is_here = rank <= *count;
            rank = rank.saturating_sub(*count);
            is_here
        })
    }
}

/// Whether the bucket of a percentile lies beyond the target.
fn is_bad(bucket: Option<usize>) -> bool {
    bucket.is_some_and(|bucket| bucket >= GOOD)
}

fn domain_of(request: &QueuedRequest) -> usize {
    match request.direction {
        Direction::Read => READ,
        Direction::Write if request.discard => DISCARD,
        Direction::Write => WRITE,
    }
}

const DOMAINS: usize = 3;
const READ: usize = 0;
const WRITE: usize = 1;
const DISCARD: usize = 2;

/// Target latency of discards, which no knob sets.
const DISCARD_LAT: Span = Span::secs(5);

/// Number of buckets in a histogram of latencies.
const BUCKETS: usize = 8;

/// Number of buckets, from the first one, for latencies within the target.
const GOOD: usize = 4;

/// Number of samples from which a percentile is computed at once, and time after which fewer
/// suffice.
const SAMPLES_ENOUGH: u32 = 500;
const PATIENCE: Span = Span::secs(1);

/// Time from the first completion after an evaluation of the latencies to the next evaluation.
const LOOK_EVERY: Span = Span::millis(100);

/// Number of the newest requests with which a new request is compared for merging.
const MERGE_REACH: usize = 8;

#[cfg(test)]
mod tests;
