//! Shared queues: how the requests of several processes are routed to one queue, and separated
//! again.
//!
//! ```text
//! process ── home queue ──into──▶ target ──into──▶ …      the last one gets the requests
//! ```
//!
//! Each process has a home queue. A merge only records in the home queue *into* which other queue
//! new requests of the process go; requests that the home queue already holds are served from
//! there. The target may itself be merged into another queue, and the processes that it served
//! follow with their next request. A split ends all merges into a queue at once: each queue has an
//! *epoch*, each merge records the epoch of its target, and a merge of an earlier epoch is void.
//! Thus merge and split take constant time, however many processes there are.
//!
//! The state that a queue has learned about its process (think time, weight raising, injection
//! limit, weight) is saved when the queue is first merged or shared, and restored when the queue
//! serves its process alone again.
//!
//! A recorded merge stays in force even if merging has been disabled since then; only no new merges
//! are made.
//!
//! Source   io-schedulers.md §2.12, "Merge", "Split"; Linux redirects processes to queues instead

use weft_units::{Sectors, Time};

use super::QueueId;
use super::history::{Intensity, ThinkTime};
use super::hw_tag::Sample;
use super::injection::Injection;
use super::queue::{BfqQueue, Queues};
use super::queue_merge::{FoundBy, Party};
use super::scheduler::Bfq;
use super::weight_raising::Raising;
use crate::knobs::MergeWeight;
use crate::sched::request::QueuedRequest;

/// Merge state of a queue: where the requests of its process go, and whether it serves other
/// processes.
#[derive(Clone, Debug, Default)]
pub(super) struct Sharing {
    /// Target of the queue's merge, and the epoch that the target had then; `None` if the queue is
    /// not merged.
    into: Option<(QueueId, u32)>,
    /// Number of times that this queue was split or passed on to another process.
    epoch: u32,
    /// Number of queues that are merged into this queue.
    sharers: u32,
    /// Whether one of the merges into this queue is permanent (a stable merge).
    stable: bool,
    /// Time of the first service since the queue became busy; kept only while queues are merged.
    /// `None` before the first service.
    pub(super) first_service: Option<Time>,
    saved: Option<Saved>,
    /// Stable merge of the queue that is to be done later; `None` if there is none.
    pub(super) later: Option<LaterMerge>,
}

/// Stable merge into the queue `queue` that is delayed until `at`.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaterMerge {
    pub(super) queue: QueueId,
    epoch: u32,
    pub(super) at: Time,
}

/// State that a queue had learned about its process before the queue was merged or shared.
#[derive(Clone, Copy, Debug)]
struct Saved {
    think: ThinkTime,
    intensity: Intensity,
    injection: Injection,
    raising: Raising,
    base_weight: u32,
}

impl Sharing {
    /// Whether the queue serves several processes.
    #[inline]
    pub(super) fn is_shared(&self) -> bool {
        self.sharers > 0
    }

    /// Whether the queue serves several processes and may be split again.
    pub(super) fn is_shared_for_now(&self) -> bool {
        self.sharers > 0 && !self.stable
    }

    /// Creates a merge into this queue, which has the number `queue`, that is delayed until `at`.
    pub(super) fn partner(&self, queue: QueueId, at: Time) -> LaterMerge {
        LaterMerge { queue, epoch: self.epoch, at }
    }

    /// Whether this queue still serves the process for which the delayed merge `later` was meant.
    pub(super) fn is_partner(&self, later: &LaterMerge) -> bool {
        self.epoch == later.epoch
    }

    /// Whether the queue was split, or reused for another process, since it was created.
    pub(super) fn is_of_a_successor(&self) -> bool {
        self.epoch > 0
    }
}

impl Queues {
    /// Queue into which the queue `id` is merged; `None` if it is not merged.
    pub(super) fn target_of(&self, id: QueueId) -> Option<QueueId> {
        let (target, epoch) = self.at(id).sharing.into?;
        (self.at(target).sharing.epoch == epoch).then_some(target)
    }

    /// Queue that gets the requests of the process of queue `id`: the end of the chain of merges.
    /// Merges form no cycle, because each merge goes into the end of a chain, and never into the
    /// end of the merged queue's own chain.
    fn end_of(&self, id: QueueId) -> QueueId {
        let mut end = id;
        while let Some(target) = self.target_of(end) {
            end = target;
        }
        end
    }

    fn link(&mut self, id: QueueId, target: QueueId) {
        let sharing = &mut self.at_mut(target).sharing;
        sharing.sharers += 1;
        let into = Some((target, sharing.epoch));
        self.at_mut(id).sharing.into = into;
    }

    fn unlink(&mut self, id: QueueId) {
        if let Some(target) = self.target_of(id) {
            self.at_mut(target).sharing.sharers -= 1;
        }
        self.at_mut(id).sharing.into = None;
    }

    /// Ends all merges of a queue after its process has gone, so that its number can be reused.
    pub(super) fn retire(&mut self, id: QueueId) {
        self.unlink(id);
        let sharing = &mut self.at_mut(id).sharing;
        *sharing = Sharing { epoch: sharing.epoch + 1, ..Sharing::default() };
    }
}

impl Bfq {
    /// Queue for a request of the process that has the home queue `home`.
    #[inline]
    pub(super) fn route(&mut self, home: QueueId, request: &QueuedRequest, now: Time) -> QueueId {
        let strays = self.queues.at(home).sharing.into.is_some();
        let mut id = if strays { self.follow(home, now) } else { home };
        if self.knobs.merge.stable && id == home {
            id = self.merge_later(id, now);
        }
        self.merging.queued(home, request.first, request.first + request.len);
        if self.merging.on() { self.cooperate(id, request.first, now) } else { id }
    }

    /// Queue for new requests of a process after its home queue was merged. Shortens the chain of
    /// merges, so that the home queue refers to the returned queue directly.
    fn follow(&mut self, home: QueueId, now: Time) -> QueueId {
        let end = self.queues.end_of(home);
        if end == home {
            self.queues.at_mut(home).sharing.into = None;
            self.resume(home, now);
        } else if self.queues.target_of(home) != Some(end) {
            self.queues.unlink(home);
            self.queues.link(home, end);
            self.stats.merges_followed += 1;
        }
        end
    }

    /// Looks for a queue that reads near `at`, the start of a new request of the queue `id`, and
    /// merges `id` into it. Returns the queue for the request.
    fn cooperate(&mut self, id: QueueId, at: Sectors, now: Time) -> QueueId {
        if self.busy_queues() < 2 {
            return id;
        }
        let party = self.queues.at(id).party(id);
        let of = |other| self.queues.at(other).party(other);
        let found = self.merging.cooperator(&party, at, self.in_service(), of, now);
        let Some((other, by)) = found else { return id };
        let target = self.queues.end_of(other);
        if target == id {
            return id;
        }
        match by {
            FoundBy::InService => self.stats.merges_in_service += 1,
            FoundBy::Position => self.stats.merges_by_position += 1,
        }
        self.merge(id, target, now);
        target
    }

    /// Merges the queue `id` permanently with `partner`, which was created at the same time.
    /// Returns the queue for the requests of `id`.
    pub(super) fn merge_stably(&mut self, id: QueueId, partner: QueueId, now: Time) -> QueueId {
        let target = self.queues.end_of(partner);
        if target == id {
            return id;
        }
        self.stats.merges_stable += 1;
        self.merge(id, target, now);
        self.queues.at_mut(target).sharing.stable = true;
        target
    }

    /// Redirects new requests of the process of queue `id` to the queue `target`.
    fn merge(&mut self, id: QueueId, target: QueueId, now: Time) {
        assert!(id != target && self.queues.end_of(target) == target, "a target is not merged");
        let (one, other) = (self.queues.at(id), self.queues.at(target));
        assert!(one.sync && other.sync, "only queues of synchronous requests are merged");
        assert!(
            (one.group, one.class) == (other.group, other.class),
            "only queues of one group and class are merged"
        );
        if self.queues.at(target).sharing.into.is_some() {
            // The queue was merged until a split, and its process has issued no request since then.
            self.follow(target, now);
        }
        self.save(id, now);
        self.save(target, now);
        self.queues.unlink(id);
        self.queues.link(id, target);
        let donor = self.queues.at(id);
        let waker = donor.waker;
        let (weight, io_bound) = (donor.base_weight, donor.intensity.io_bound);
        let mut raising = donor.raising;
        self.change_weight(target, |queue| {
            queue.raising.inherit(&mut raising, now);
            queue.intensity.io_bound |= io_bound;
            queue.waker.inherit(target, waker);
        });
        self.change_weight(id, |donor| donor.raising = raising);
        if self.knobs.merge.weight == MergeWeight::Max {
            self.change_weight(target, |target| {
                target.base_weight = target.base_weight.max(weight);
            });
        }
    }

    /// Splits a shared queue that is seeky at the end of its slot, because sharing it gains
    /// nothing.
    #[inline]
    pub(super) fn split_if_seeky(&mut self, id: QueueId, now: Time) {
        let queue = self.queues.at(id);
        if queue.sharing.is_shared_for_now() && queue.seeks.is_seeky() {
            self.split(id, now);
        }
    }

    fn split(&mut self, id: QueueId, now: Time) {
        let sharing = &mut self.queues.at_mut(id).sharing;
        sharing.epoch += 1;
        sharing.sharers = 0;
        self.stats.splits += 1;
        self.resume(id, now);
    }

    /// Saves what a queue has learned about its process, unless the queue is already shared.
    fn save(&mut self, id: QueueId, now: Time) {
        let interactive = self.interactive_span();
        let low_latency = self.knobs.low_latency;
        let queue = self.queues.at_mut(id);
        if queue.sharing.is_shared() {
            return;
        }
        let mut raising = queue.raising;
        if low_latency && !queue.began {
            // The process is merged at its first request, before its start was evaluated.
            raising.on_busy(&queue.activation(now), interactive, now);
        }
        let BfqQueue { think, intensity, injection, base_weight, .. } = *queue;
        queue.sharing.saved = Some(Saved { think, intensity, injection, raising, base_weight });
    }

    /// Restores what a queue had learned about its process, if it serves that process alone again.
    fn resume(&mut self, id: QueueId, now: Time) {
        let sharing = &mut self.queues.at_mut(id).sharing;
        if sharing.sharers > 0 || sharing.into.is_some() {
            return;
        }
        let Some(saved) = sharing.saved.take() else { return };
        let interactive = self.interactive_span();
        self.change_weight(id, |queue| {
            let Saved { think, intensity, injection, raising, base_weight } = saved;
            (queue.think, queue.intensity, queue.injection) = (think, intensity, injection);
            (queue.raising, queue.base_weight) = (raising, base_weight);
            queue.raising.update(queue.in_burst, interactive, now);
        });
    }
}

/// Bookkeeping at the dispatch and completion of requests.
impl Bfq {
    /// Records that a request of the queue `id` was dispatched.
    #[inline]
    pub(super) fn on_service(&mut self, id: QueueId, first: Sectors, len: Sectors, now: Time) {
        if self.merging.on() {
            self.queues.at_mut(id).sharing.first_service.get_or_insert(now);
            if self.in_service() == Some(id) {
                self.merging.dispatched_in_service(first + len);
            }
            self.index_head(id, now);
        }
        if self.knobs.low_latency {
            self.on_raised_service(id, len, now);
        }
    }

    /// Updates the position index after the next request of a queue may have changed.
    #[inline]
    pub(super) fn index_head(&mut self, id: QueueId, now: Time) {
        if !self.merging.on() {
            return;
        }
        let queue = self.queues.at(id);
        match queue.backlog.head {
            Some(head) => {
                let at = self.pool.at(head).first;
                if !self.merging.is_indexed_at(id, at) {
                    self.merging.head_changed(&queue.party(id), at, now);
                }
            }
            None => self.merging.emptied(id),
        }
    }

    /// Takes a sample of the queue depth at a completion, while the completing request still counts
    /// as in flight.
    #[inline]
    pub(super) fn sample_queueing(&mut self) {
        let in_service_has_few = self.in_service().is_some_and(|id| {
            let queue = self.queues.at(id);
            !queue.think.is_long() && queue.in_driver + queue.backlog.len < 3
        });
        let (in_driver, queued) = (self.in_driver, self.queued);
        self.merging.completed(Sample { in_driver, queued, in_service_has_few });
    }
}

impl BfqQueue {
    fn party(&self, queue: QueueId) -> Party {
        let (group, class, sync) = (self.group, self.class, self.sync);
        let (seeky, first_service) = (self.seeks.is_seeky(), self.sharing.first_service);
        Party { queue, group, class, sync, seeky, first_service }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use weft_units::{ClientId, Span};

    use super::*;
    use crate::contract::input::{Attr, Class, Origin};
    use crate::contract::member::DeviceTraits;
    use crate::knobs::{BfqKnobs, MergeKnobs, MergePosition, MergeRule};
    use crate::sched::request::{Direction, Receipt};

    /// Length of a request: 16 KiB.
    const LEN: u64 = 32;
    const MIB: u64 = 2048;

    /// A scheduler, a member that accepts `depth` requests and needs 1 ms for each, and reading
    /// processes. Each process keeps a number of reads outstanding; the distance between two reads
    /// is one step.
    struct Rig {
        bfq: Bfq,
        now: Time,
        depth: usize,
        at_member: VecDeque<(Receipt, Vec<u64>)>,
        readers: Vec<Reader>,
        /// Clients and first sectors of the completed requests.
        ended: Vec<(u32, u64)>,
        /// Largest number of entries that the position index has held.
        indexed: usize,
    }

    #[derive(Clone, Copy)]
    struct Reader {
        attr: Attr,
        next: u64,
        step: u64,
        out: u32,
    }

    fn attr(weight: u16) -> Attr {
        Attr { weight, ..Attr::NONE }
    }

    fn knobs(queues: MergeRule) -> BfqKnobs {
        let merge = MergeKnobs { queues, ..MergeKnobs::default() };
        BfqKnobs { merge, low_latency: false, ..BfqKnobs::default() }
    }

    impl Rig {
        fn new(knobs: BfqKnobs, rotational: bool, depth: usize) -> Self {
            let device = DeviceTraits { rotational, ..DeviceTraits::default() };
            let bfq = Bfq::new(knobs, Sectors(1024), device);
            let now = Time(0) + Span::secs(100);
            let (at_member, readers, ended) = (VecDeque::new(), Vec::new(), Vec::new());
            Self { bfq, now, depth, at_member, readers, ended, indexed: 0 }
        }

        fn disk(queues: MergeRule) -> Self {
            Self::new(knobs(queues), true, 1)
        }

        /// Adds a reader that keeps `out` reads outstanding. Returns its index.
        fn reader(&mut self, attr: Attr, next: u64, step: u64, out: u32) -> usize {
            self.readers.push(Reader { attr, next, step, out });
            let client = self.readers.len() - 1;
            (0..out).for_each(|_| self.read(client));
            client
        }

        fn read(&mut self, client: usize) {
            let Reader { mut attr, next, step, .. } = self.readers[client];
            attr.origin = Origin::Client(ClientId(client as u32), attr.origin.group());
            self.readers[client].next += step;
            let request = QueuedRequest {
                id: (client as u64) << 32 | next,
                direction: Direction::Read,
                attr,
                first: Sectors(next),
                len: Sectors(LEN),
                discard: false,
                merges: true,
            };
            self.bfq.insert(&request, self.now);
            self.indexed = self.indexed.max(self.bfq.merging.indexed());
        }

        /// Queue that gets the requests of a client.
        fn queue(&self, client: usize) -> QueueId {
            self.bfq.queues.end_of(QueueId(client as u32))
        }

        fn at(&self, client: usize) -> &BfqQueue {
            self.bfq.queues.at(self.queue(client))
        }

        fn fill_member(&mut self) {
            while self.at_member.len() < self.depth
                && let Some(next) = self.bfq.dispatch(self.now)
            {
                self.at_member.push_back((next.receipt, self.bfq.sent().to_vec()));
            }
        }

        /// Completes one request at the member, after which its reader issues the next one.
        fn step(&mut self) {
            self.fill_member();
            while self.at_member.is_empty() {
                self.now = self.bfq.next_wake().expect("a reader waits").max(self.now);
                self.fill_member();
            }
            self.now = self.now + Span::millis(1);
            let (receipt, ids) = self.at_member.pop_front().expect("filled");
            self.bfq.completed(receipt, self.now);
            for id in ids {
                let (client, first) = ((id >> 32) as usize, id & 0xffff_ffff);
                self.ended.push((client as u32, first));
                if self.readers[client].out > 0 {
                    self.read(client);
                }
            }
        }

        fn run(&mut self, steps: usize) {
            (0..steps).for_each(|_| self.step());
        }

        /// Lets all readers drain, and restarts them together at the position of the first reader.
        fn pause(&mut self) {
            let out: Vec<u32> = self.readers.iter().map(|reader| reader.out).collect();
            self.readers.iter_mut().for_each(|reader| reader.out = 0);
            while !self.bfq.is_empty() || !self.at_member.is_empty() {
                self.step();
            }
            self.now = self.now + Span::millis(50);
            let first = self.readers[0].next;
            for (client, out) in out.into_iter().enumerate() {
                self.readers[client].out = out;
                self.readers[client].next = first + client as u64 * LEN;
                (0..out).for_each(|_| self.read(client));
            }
        }

        fn merges(&self) -> u64 {
            let stats = self.bfq.stats();
            stats.merges_in_service + stats.merges_by_position
        }

        /// Adds three processes that read a file in turn.
        fn interleaved(mut self, out: u32) -> Self {
            (0..3).for_each(|n| {
                self.reader(Attr::NONE, n * LEN, 3 * LEN, out);
            });
            self
        }
    }

    #[test]
    fn statement_m4_interleaved_readers_of_a_disk_share_a_queue_within_100_ms() {
        for rule in [MergeRule::Always, MergeRule::Patch, MergeRule::Gain] {
            let mut rig = Rig::disk(rule).interleaved(1);
            rig.run(50);
            assert_eq!([1, 2].map(|client| rig.queue(client)), [rig.queue(0); 2], "{rule:?}");
            assert!(rig.merges() >= 2);
            rig.ended.clear();
            rig.run(300);
            let firsts: Vec<u64> = rig.ended.iter().map(|(_, first)| *first).collect();
            let gaps = firsts.windows(2).filter(|pair| pair[1] != pair[0] + LEN).count();
            assert!(gaps < 10, "{gaps}: read in order");
        }
        let mut rig = Rig::disk(MergeRule::Never).interleaved(1);
        rig.run(350);
        assert_eq!((rig.merges(), rig.indexed), (0, 0));
    }

    #[test]
    fn statement_m1_flash_never_has_a_position_index() {
        for (rule, merges) in [(MergeRule::Patch, false), (MergeRule::Always, true)] {
            let mut rig = Rig::new(knobs(rule), false, 32).interleaved(4);
            rig.run(500);
            assert_eq!((rig.merges() > 0, rig.indexed > 0), (merges, merges), "{rule:?}");
        }
    }

    #[test]
    fn statement_m2_flash_that_takes_one_request_at_a_time_is_merged_on_after_33_completions() {
        let mut rig = Rig::new(knobs(MergeRule::Patch), false, 1).interleaved(4);
        rig.run(32);
        assert!(!rig.bfq.merging.on() && rig.merges() == 0);
        assert_eq!(rig.bfq.merging.hw_tag(), None);
        rig.run(1);
        assert!(rig.bfq.merging.on());
        assert_eq!(rig.bfq.merging.hw_tag(), Some(false));
        rig.pause();
        rig.run(100);
        assert!(rig.merges() > 0);
        let mut deep = Rig::new(knobs(MergeRule::Patch), false, 4).interleaved(4);
        deep.run(200);
        assert!(!deep.bfq.merging.on());
    }

    #[test]
    fn statement_m3_strict_guarantees_make_flash_look_as_if_it_did_not_queue() {
        let strict = BfqKnobs { strict_guarantees: true, ..knobs(MergeRule::Patch) };
        let mut rig = Rig::new(strict, false, 32).interleaved(4);
        rig.run(40);
        rig.pause();
        rig.run(100);
        assert!(rig.bfq.merging.on() && rig.merges() > 0);
    }

    #[test]
    fn statement_m5_a_reader_3_mib_away_is_merged_and_one_5_mib_away_is_not() {
        for (mib, merged) in [(3, true), (5, false)] {
            let mut rig = Rig::disk(MergeRule::Patch);
            [0, 100, 100 + mib].into_iter().for_each(|mib| {
                rig.reader(Attr::NONE, mib * MIB, LEN, 1);
            });
            rig.run(20);
            assert_eq!(rig.queue(1) == rig.queue(2), merged, "{mib}");
            assert_ne!(rig.queue(0), rig.queue(1));
        }
    }

    #[test]
    fn statement_m6_queues_busy_for_longer_than_100_ms_are_merged_only_after_a_pause() {
        let mut rig = Rig::disk(MergeRule::Patch);
        let (one, two) =
            (rig.reader(Attr::NONE, 0, LEN, 8), rig.reader(Attr::NONE, 900 * MIB, LEN, 8));
        rig.reader(Attr::NONE, 400 * MIB, LEN, 8);
        rig.run(1_000);
        rig.readers[two].next = rig.readers[one].next + LEN;
        rig.run(200);
        assert_ne!(rig.queue(one), rig.queue(two), "backlogged since the start");
        let out = std::mem::take(&mut rig.readers[two].out);
        rig.run(300);
        assert!(!rig.at(two).busy, "a pause");
        rig.readers[two].next = rig.readers[one].next + LEN;
        (0..out).for_each(|_| rig.read(two));
        rig.readers[two].out = out;
        rig.readers[one].out = 0;
        rig.run(100);
        rig.readers[one].next = rig.readers[two].next + LEN;
        rig.readers[one].out = out;
        (0..out).for_each(|_| rig.read(one));
        rig.run(20);
        assert_eq!(rig.queue(one), rig.queue(two), "both began again");
    }

    /// Queues of the idle class, of background writes, or of another class are not merged.
    #[test]
    fn statement_m7_async_idle_and_other_class_queues_stay_alone() {
        let other = [
            Attr { class: Class::Idle, ..Attr::NONE },
            Attr { class: Class::RealTime(4), ..Attr::NONE },
        ];
        for attr in other {
            let mut rig = Rig::disk(MergeRule::Always);
            rig.reader(Attr::NONE, 900 * MIB, LEN, 1);
            rig.reader(Attr::NONE, 0, 2 * LEN, 1);
            rig.reader(attr, LEN, 2 * LEN, 1);
            rig.run(50);
            assert_eq!(rig.merges(), 0, "{attr:?}");
        }
        let mut rig = Rig::disk(MergeRule::Always);
        rig.reader(Attr::NONE, 900 * MIB, LEN, 1);
        rig.reader(Attr::NONE, 0, 2 * LEN, 1);
        let attr = Attr { background: true, ..Attr::NONE };
        for n in 0..50 {
            let request = QueuedRequest {
                id: 2 << 32,
                direction: Direction::Write,
                attr,
                first: Sectors(LEN + n * 2 * LEN),
                len: Sectors(LEN),
                discard: false,
                merges: true,
            };
            rig.bfq.insert(&request, rig.now);
        }
        rig.readers.push(Reader { attr, next: 0, step: 0, out: 0 });
        rig.run(60);
        assert_eq!(rig.merges(), 0);
        let levels = |level| Attr { class: Class::BestEffort(level), ..Attr::NONE };
        let mut rig = Rig::disk(MergeRule::Always);
        (0..3).for_each(|n| {
            rig.reader(levels(n as u8 + 3), n * LEN, 3 * LEN, 1);
        });
        rig.run(50);
        assert!(rig.merges() >= 2, "levels of one class do not matter");
    }

    /// A disk, with client 1 merged into the queue of client 0. `weights` are the weights of the
    /// two clients.
    fn merged(merge: MergeKnobs, weights: [u16; 2]) -> Rig {
        let mut rig = Rig::new(BfqKnobs { merge, ..knobs(merge.queues) }, true, 1);
        let far = rig.reader(attr(40), 900 * MIB, LEN, 1);
        rig.reader(attr(weights[0]), 0, 2 * LEN, 4);
        rig.reader(attr(weights[1]), LEN, 2 * LEN, 4);
        assert_eq!((rig.queue(2), rig.merges()), (rig.queue(1), 1));
        assert_ne!(rig.queue(far), rig.queue(1));
        rig
    }

    #[test]
    fn statement_m8_a_seeky_shared_queue_is_split_and_each_process_resumes_its_own() {
        let always = MergeKnobs { queues: MergeRule::Always, ..MergeKnobs::default() };
        let knobs = MergeKnobs { weight: MergeWeight::Max, ..always };
        let mut rig = merged(knobs, [40, 50]);
        assert_eq!(rig.at(1).base_weight, 50);
        let learned = rig.at(1).sharing.saved.expect("the merge saved it");
        rig.readers[1].step = 200 * MIB;
        rig.readers[2].step = 300 * MIB;
        while rig.bfq.stats().splits == 0 {
            assert!(rig.ended.len() < 500, "never split");
            rig.step();
        }
        assert!(rig.bfq.queues.at(QueueId(1)).seeks.is_seeky());
        assert_ne!(rig.queue(1), rig.queue(2));
        let (one, two) = (rig.at(1), rig.at(2));
        assert_eq!((one.base_weight, two.base_weight), (40, 50));
        assert_eq!(one.raising, learned.raising);
        assert!(one.sharing.saved.is_none() && !one.sharing.is_shared());
        rig.run(500);
        assert!(rig.bfq.queues.at(QueueId(2)).sharing.into.is_none(), "back to its home queue");
        assert_ne!(rig.queue(1), rig.queue(2), "seeky as both are");
    }

    #[test]
    fn statement_m9_a_merge_that_is_pending_when_merging_ends_is_completed_and_none_is_added() {
        let always = MergeKnobs { queues: MergeRule::Always, ..MergeKnobs::default() };
        let mut rig = merged(always, [40, 40]);
        // The shared queue is itself merged into another one, and client 2 has not followed yet.
        let (now, far) = (rig.now, rig.queue(0));
        rig.bfq.merge(QueueId(1), far, now);
        assert_eq!(rig.bfq.queues.target_of(QueueId(2)), Some(QueueId(1)));
        rig.bfq.knobs.merge.queues = MergeRule::Never;
        rig.bfq.merging = super::super::queue_merge::Merging::new(rig.bfq.knobs.merge, true);
        let before = rig.merges();
        rig.reader(attr(40), 900 * MIB + LEN, LEN, 1);
        rig.run(600);
        assert_eq!(rig.bfq.queues.target_of(QueueId(2)), Some(far));
        assert_eq!(rig.bfq.stats().merges_followed, 1);
        assert_eq!((rig.queue(1), rig.queue(2), rig.merges()), (far, far, before));
        assert_ne!(rig.queue(3), far);
        assert_eq!(rig.bfq.queues.at(QueueId(1)).sharing.sharers, 0);
        assert_eq!(rig.bfq.queues.at(far).sharing.sharers, 2);
    }

    /// M10 and M14: the target queue determines the weight at which a merged process is served.
    #[test]
    fn statement_m10_m14_a_merged_process_is_served_at_the_weight_of_the_target() {
        let always = MergeKnobs { queues: MergeRule::Always, ..MergeKnobs::default() };
        let client_into_journal = merged(always, [50, 40]);
        assert_eq!(client_into_journal.at(2).weight(), 50);
        let journal_into_client = merged(always, [40, 50]);
        assert_eq!(journal_into_client.at(2).weight(), 40);
        let max = MergeKnobs { weight: MergeWeight::Max, ..always };
        assert_eq!(merged(max, [50, 40]).at(2).weight(), 50);
        assert_eq!(merged(max, [40, 50]).at(2).weight(), 50);
    }

    /// A queue of weight 80 has one slow request at the member and keeps its slot for it. In the
    /// meantime, a queue of weight 90 preempted the first queue and then ran empty, so that the
    /// first queue is in service again. The first queue has dispatched no request in this slot when
    /// the other queue reads on.
    fn reads_on_while_another_is_fresh_in_service(position: MergePosition) -> Rig {
        let merge = MergeKnobs { queues: MergeRule::Always, position, ..MergeKnobs::default() };
        let mut rig = Rig::new(BfqKnobs { merge, ..knobs(merge.queues) }, false, 2);
        rig.reader(attr(80), 0, LEN, 1);
        rig.fill_member();
        rig.reader(Attr { class: Class::Idle, ..Attr::NONE }, 900 * MIB, LEN, 1);
        rig.reader(attr(90), 500 * MIB, LEN, 1);
        rig.fill_member();
        let (receipt, ids) = rig.at_member.pop_back().expect("two are at the member");
        assert_eq!(ids, [(2 << 32) | (500 * MIB)], "the preempting one");
        rig.bfq.completed(receipt, rig.now);
        rig.now = rig.now + Span::millis(9);
        assert_eq!(rig.bfq.dispatch(rig.now), None, "the member is kept for the first one again");
        assert_eq!(rig.bfq.in_service(), Some(QueueId(0)));
        rig.read(2);
        rig
    }

    #[test]
    fn statement_m12b_queues_far_apart_are_merged_in_stale_mode_only() {
        let own = reads_on_while_another_is_fresh_in_service(MergePosition::Own);
        assert_eq!((own.merges(), own.queue(2)), (0, QueueId(2)));
        let stale = reads_on_while_another_is_fresh_in_service(MergePosition::Stale);
        assert_eq!(stale.bfq.stats().merges_in_service, 1);
        assert_eq!(stale.queue(2), QueueId(0), "500 MiB away");
        let mut four = Rig::disk(MergeRule::Always);
        (0..4).for_each(|n| {
            four.reader(Attr::NONE, n * 100 * MIB, LEN, 1);
        });
        four.run(2_000);
        assert_eq!(four.merges(), 0);
    }

    /// Statement M11: the cost of merging does not change its decisions.
    #[test]
    fn statement_m11_the_order_without_interleaving_is_the_same_with_merging_and_without() {
        let order = |rule| {
            let mut rig = Rig::disk(rule);
            for n in 0..8 {
                let step = if n % 2 == 0 { LEN } else { 77 * MIB };
                rig.reader(attr(40 + 10 * (n % 3) as u16), n * 100_000 * MIB, step, 3);
            }
            rig.run(2_000);
            rig.ended
        };
        let never = order(MergeRule::Never);
        assert!(order(MergeRule::Always) == never);
        assert!(order(MergeRule::Patch) == never);
    }

    #[test]
    fn a_retired_queue_takes_no_other_queue_along() {
        let always = MergeKnobs { queues: MergeRule::Always, ..MergeKnobs::default() };
        let mut rig = merged(always, [40, 40]);
        rig.bfq.queues.retire(QueueId(2));
        assert_eq!(rig.bfq.queues.at(QueueId(1)).sharing.sharers, 0);
        let passed_on = |queue| rig.bfq.queues.at(QueueId(queue)).sharing.is_of_a_successor();
        assert_eq!([1, 2].map(passed_on), [false, true]);
        let mut rig = merged(always, [40, 40]);
        rig.bfq.queues.retire(QueueId(1));
        assert_eq!(rig.queue(2), QueueId(2), "its target is another process's now");
        assert_eq!(rig.bfq.queues.at(QueueId(1)).sharing.sharers, 0);
    }

    #[test]
    fn stable_merges_go_by_birth_and_are_for_good() {
        let stable = |rotational, depth| {
            let merge = MergeKnobs { queues: MergeRule::Patch, stable: true, ..Default::default() };
            let mut rig = Rig::new(BfqKnobs { merge, ..knobs(merge.queues) }, rotational, depth);
            (0..3).for_each(|n| {
                rig.reader(Attr::NONE, n * 300 * MIB, 5_000, 4);
            });
            rig
        };
        let mut rig = stable(false, 32);
        assert_eq!(rig.bfq.stats().merges_stable, 2, "at once on flash that queues");
        rig.run(2_000);
        assert_eq!(
            (rig.bfq.stats().splits, rig.queue(1), rig.queue(2)),
            (0, QueueId(0), QueueId(0))
        );
        let mut rig = stable(true, 32);
        assert_eq!(rig.bfq.stats().merges_stable, 0);
        rig.run(599);
        assert_eq!(rig.bfq.stats().merges_stable, 0);
        rig.run(100);
        assert_eq!(rig.bfq.stats().merges_stable, 2, "after 600 ms");
        let mut off = Rig::new(knobs(MergeRule::Patch), false, 32).interleaved(4);
        off.run(10);
        assert_eq!(off.bfq.stats().merges_stable, 0);
    }

    #[test]
    fn statement_b12_a_raised_queue_gets_30_times_the_service_of_another() {
        let low_latency = BfqKnobs { low_latency: true, ..knobs(MergeRule::Never) };
        let mut rig = Rig::new(low_latency, false, 1);
        // A client's own weight is never raised, even if it equals the default.
        rig.reader(attr(40), 0, 8 * LEN, 8);
        rig.reader(Attr::NONE, 1_000 * MIB, 8 * LEN, 8);
        assert!(!rig.at(0).raising.is_raised() && rig.at(1).raising.is_raised());
        rig.run(3_500);
        let raised = rig.ended.iter().filter(|(client, _)| *client == 1).count() as f64;
        let share = raised / rig.ended.len() as f64;
        assert!((share - 0.9677).abs() < 0.005, "{share}");
        assert!(rig.bfq.stats().raised_slots > 0);
        rig.run(500);
        rig.ended.clear();
        rig.run(4_000);
        let raised = rig.ended.iter().filter(|(client, _)| *client == 1).count() as f64;
        let share = raised / rig.ended.len() as f64;
        assert!((share - 0.5).abs() < 0.05, "{share}: over after 3.75 s");
    }

    /// Planted bugs: a wrong merge is detected, no matter how its candidate was found.
    fn merges_wrongly(other: Attr, direction: Direction) {
        let mut rig = Rig::disk(MergeRule::Always);
        rig.reader(attr(40), 0, LEN, 1);
        let request = QueuedRequest {
            id: 1 << 40,
            direction,
            attr: Attr { origin: Origin::Client(ClientId(1), other.origin.group()), ..other },
            first: Sectors(MIB),
            len: Sectors(LEN),
            discard: false,
            merges: true,
        };
        rig.bfq.insert(&request, rig.now);
        let last = rig.bfq.queues.ids().last().unwrap();
        let now = rig.now;
        rig.bfq.merge(QueueId(0), last, now);
    }

    #[test]
    #[should_panic(expected = "only queues of synchronous requests are merged")]
    fn a_planted_merge_with_a_queue_of_background_writes_is_found() {
        merges_wrongly(Attr { background: true, ..attr(40) }, Direction::Write);
    }

    #[test]
    #[should_panic(expected = "only queues of one group and class are merged")]
    fn a_planted_merge_across_groups_is_found() {
        let origin = Origin::Client(ClientId(1), weft_units::Group::new(1).unwrap());
        merges_wrongly(Attr { origin, ..attr(40) }, Direction::Read);
    }

    #[test]
    #[should_panic(expected = "only queues of one group and class are merged")]
    fn a_planted_merge_across_classes_is_found() {
        merges_wrongly(Attr { class: Class::Idle, ..attr(40) }, Direction::Read);
    }

    #[test]
    fn a_merge_with_an_io_bound_queue_makes_the_target_io_bound() {
        for (donor, target) in [(false, false), (false, true), (true, false), (true, true)] {
            let mut rig = Rig::disk(MergeRule::Never);
            for (client, io_bound) in [(0, target), (1, donor)] {
                rig.reader(attr(40), u64::from(client) * 300 * MIB, LEN, 1);
                rig.bfq.queues.at_mut(QueueId(client)).intensity.io_bound = io_bound;
            }
            rig.bfq.merge(QueueId(1), QueueId(0), rig.now);
            assert_eq!(rig.at(0).intensity.io_bound, donor || target);
        }
    }

    #[test]
    fn what_was_learned_is_not_restored_while_the_queue_is_shared() {
        let always = MergeKnobs { queues: MergeRule::Always, ..MergeKnobs::default() };
        let mut rig = merged(always, [40, 50]);
        let (target, now) = (rig.queue(1), rig.now);
        rig.bfq.resume(target, now);
        assert!(rig.at(1).sharing.saved.is_some());
    }

    /// Each reader has only one request outstanding, so the number of requests in flight does not
    /// show whether the member would queue more.
    #[test]
    fn readers_of_one_request_each_do_not_show_whether_the_member_queues() {
        let mut rig = Rig::new(knobs(MergeRule::Never), false, 1);
        (0..5).for_each(|n| {
            rig.reader(attr(40), n * 300 * MIB, LEN, 1);
        });
        rig.run(100);
        assert_eq!(rig.bfq.merging.hw_tag(), None);
    }
}
