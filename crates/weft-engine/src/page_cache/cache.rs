//! Page cache API: connects files, pool, queues and throttling policy.
//!
//! This file keeps the pool's counts consistent with the pages of files, keeps dirty files on the
//! lists of their device, throttles writers by the policy, and wakes flushers. All decisions are
//! made in the other modules.

use super::flusher::{Flush, Flusher};
use super::fsync::{Fsync, SyncStep};
use super::id::{BdiId, InodeId, WriterId};
use super::index::{Discarded, PageState, Pages};
use super::pass::{Pass, Reason, WriteOut, WritebackControl};
use super::pool::{Amount, BdiRatios, Counts, Kernel, Pool, PoolConfig};
use super::proportion::Share;
use super::queue::{Inodes, List, Queues};
use super::throttle::{Pace, ThrottleEpisode, ThrottleStep};
use std::collections::VecDeque;
use std::ops::Range;
use weft_units::Time;

/// The page cache of one process: files on devices, their writers, and their dirty pages.
///
/// Contract
/// - Time enters only as `now` and never decreases.
/// - A writer calls [`write`](Self::write) until all its pages are accepted. If a call requests it,
///   the writer calls [`balance`](Self::balance) until that returns [`Balance::Continue`].
/// - Each [`WriteOut`] that a call returns is submitted, in the order of the calls, and each of
///   its pages gets one [`written`](Self::written).
/// - After each call, [`wake`](Self::wake) returns the flushers, writers and processes that must
///   call again.
#[derive(Clone, Debug)]
pub struct PageCache {
    pool: Pool,
    inodes: Inodes,
    bdis: Vec<Bdi>,
    writers: Vec<Writer>,
    free_writers: Vec<WriterId>,
    wakes: VecDeque<Wake>,
}

/// Result of a write to pages, or of charging a writer for pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Number of pages accepted from the front of the range; at least one.
    pub pages: u64,
    /// Whether the writer must call [`PageCache::balance`] before it continues.
    pub balance: bool,
}

/// Next action of a writer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Balance {
    /// The writer may continue.
    Continue,
    /// Sleep, then call again.
    Sleep {
        /// Latest time at which to wake up.
        until: Time,
        /// Whether room in any device's queue also ends the sleep; [`Wake::Writer`] then reports
        /// it. With [`Kernel::Weft`], [`Wake::Writer`] ends the sleep when the writer gets its
        /// turn.
        or_uncongested: bool,
    },
    /// Submit these pages, then call again. The submission may take as long as the device's queue
    /// stays full.
    Write(WriteOut),
}

/// A flusher, writer or process that must call again now, although it was told to sleep or wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// A flusher: call [`PageCache::flush`].
    Flusher(BdiId),
    /// Processes that wait for writes of this file: some of the writes have completed.
    Inode(InodeId),
    /// All pages that a `sync(2)` of this device requested are submitted.
    Synced(BdiId),
    /// A throttled writer: call [`PageCache::balance`].
    Writer(WriterId),
}

#[derive(Clone, Debug)]
struct Bdi {
    queues: Queues,
    flusher: Flusher,
    congested: bool,
}

#[derive(Clone, Debug)]
struct Writer {
    cpu: u32,
    share: Share,
    pace: Pace,
    visit: Option<Visit>,
    waits_for_room: bool,
    /// Device on which the writer has used up its credit, the pages that it may dirty
    /// ([`Kernel::Weft`]); `None` if it need not wait.
    needs_credit: Option<BdiId>,
}

/// Throttling of one writer, from a check of the limits until the writer may continue.
#[derive(Clone, Debug)]
struct Visit {
    bdi: BdiId,
    policy: ThrottleEpisode,
    pass: Option<Pass>,
    written: u64,
}

impl PageCache {
    /// Creates a page cache without devices and files.
    ///
    /// # Panics
    /// Panics if `config` has no CPU.
    #[must_use]
    pub fn new(config: PoolConfig) -> Self {
        Self {
            pool: Pool::new(config),
            inodes: Inodes::default(),
            bdis: Vec::new(),
            writers: Vec::new(),
            free_writers: Vec::new(),
            wakes: VecDeque::new(),
        }
    }

    /// Adds a device with its flusher, and returns the device's identifier.
    pub fn add_bdi(&mut self, now: Time) -> BdiId {
        let flusher = Flusher::new(self.pool.ticks().tick(now));
        self.bdis.push(Bdi { queues: Queues::default(), flusher, congested: false });
        self.pool.add_bdi(now)
    }

    /// Adds a file without dirty pages to a device, and returns the file's identifier.
    pub fn add_inode(&mut self, bdi: BdiId) -> InodeId {
        self.inodes.add(bdi)
    }

    /// Adds a writer on a CPU, and returns the writer's identifier.
    ///
    /// # Panics
    /// Panics if the CPU does not exist.
    pub fn add_writer(&mut self, cpu: u32) -> WriterId {
        assert!(cpu < self.pool.config().cpus, "cpu {cpu} of {}", self.pool.config().cpus);
        let share = self.pool.writer_share();
        let pace = Pace::default();
        let writer =
            Writer { cpu, share, pace, visit: None, waits_for_room: false, needs_credit: None };
        if let Some(id) = self.free_writers.pop() {
            self.writers[id.index()] = writer;
            return id;
        }
        let id = WriterId(u32::try_from(self.writers.len()).expect("fewer writers than pages"));
        self.writers.push(writer);
        self.pool.turns.add_writer();
        id
    }

    /// Removes a writer, even if it still has to call [`balance`](Self::balance). Its identifier is
    /// reused for a writer added later.
    pub fn remove_writer(&mut self, now: Time, writer: WriterId) {
        let state = &mut self.writers[writer.index()];
        state.waits_for_room = false;
        if let Some(Visit { bdi, pass: Some(pass), .. }) = state.visit.take() {
            let device = &mut self.bdis[bdi.index()];
            let mut wbc = WritebackControl::new(
                bdi,
                now,
                &mut self.pool,
                &mut self.inodes,
                &mut device.queues,
                device.congested,
            );
            pass.abandon(&mut wbc);
            if device.flusher.awaited().is_some_and(|id| !self.inodes.is_busy(id)) {
                self.wakes.push_back(Wake::Flusher(bdi));
            }
        }
        self.pool.turns.remove_writer(now, writer);
        self.after_turns(None);
        self.free_writers.push(writer);
    }

    /// The dirty pool, which gives access to counts, limits and bandwidths.
    #[must_use]
    pub const fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Changes the dirty and background thresholds at once, as `sysctl` does.
    pub fn set_limits(&mut self, dirty: Amount, background: Amount) {
        self.pool.set_limits(dirty, background);
        self.after_turns(None);
    }

    /// Changes the rules of writers and flushers, the age at which files expire, and the interval
    /// of periodic writeback. A writer that is being throttled finishes under the old rules;
    /// writers that wait for credit under [`Kernel::Weft`] are woken when other rules replace it,
    /// and continue.
    pub fn set_rules(&mut self, kernel: Kernel, expire_centisecs: u64, writeback_centisecs: u64) {
        let before = self.pool.config().kernel;
        self.pool.set_rules(kernel, expire_centisecs, writeback_centisecs);
        if before == Kernel::Weft && kernel != Kernel::Weft {
            self.pool.turns.clear();
            self.after_turns(None);
            let all = (0..).map(BdiId).take(self.bdis.len());
            self.wakes.extend(all.map(Wake::Flusher));
        }
    }

    /// Sets the bounds of a device's share of the limits.
    ///
    /// # Panics
    /// Panics if all devices together reserve 100 %.
    pub fn set_ratios(&mut self, bdi: BdiId, ratios: BdiRatios) {
        self.pool.set_ratios(bdi, ratios);
    }

    /// Wakes every flusher, after a change of limits or times.
    pub fn wake_flushers(&mut self) {
        let over = self.pool.counts().dirty > self.pool.thresholds().background;
        for (device, id) in self.bdis.iter_mut().zip(0..) {
            if over && !device.flusher.is_busy() {
                device.flusher.kick();
            }
            self.wakes.push_back(Wake::Flusher(BdiId(id)));
        }
    }

    /// Changes the amount of dirtyable memory. Limits that are given as percentages change at once;
    /// [`Pool::limit`] follows slowly.
    pub fn set_dirtyable(&mut self, pages: u64) {
        self.pool.set_dirtyable(pages);
    }

    /// Page counts summed over all files, for tests: they must equal the pool's counts.
    #[must_use]
    pub fn sums(&self) -> Counts {
        self.inodes.iter().fold(Counts::default(), |sum, inode| Counts {
            dirty: sum.dirty + inode.pages.dirty(),
            writeback: sum.writeback + inode.pages.writeback(),
        })
    }

    /// State of one page of a file.
    ///
    /// # Panics
    /// Panics if the file does not exist, as all calls with a file do.
    #[must_use]
    pub fn state(&self, inode: InodeId, page: u64) -> PageState {
        self.inodes.of(inode).pages.state(page)
    }

    /// Number of a file's dirty pages, and number of its pages under writeback.
    #[must_use]
    pub fn inode_counts(&self, inode: InodeId) -> Counts {
        let pages = &self.inodes.of(inode).pages;
        Counts { dirty: pages.dirty(), writeback: pages.writeback() }
    }

    /// Writes to pages of a file. Accepts as many pages as the writer may write before it has to
    /// check the limits; the caller calls again for the remaining pages. Returns the number of
    /// accepted pages, and whether the limits must be checked now.
    ///
    /// Every page counts, even if it was dirty before. Kernels from 3.0 on wait before they change
    /// a page that is under writeback, but 2.6.24 does not: see
    /// [`under_writeback`](Self::under_writeback).
    ///
    /// # Panics
    /// Panics if the range is empty, or if the writer must call [`balance`](Self::balance) first.
    pub fn write(
        &mut self,
        now: Time,
        writer: WriterId,
        inode: InodeId,
        pages: Range<u64>,
    ) -> Written {
        assert!(pages.start < pages.end, "a write has pages");
        if self.pool.config().kernel == Kernel::Weft {
            return self.write_by_turn(now, writer, inode, pages);
        }
        let state = &mut self.writers[writer.index()];
        assert!(state.visit.is_none(), "{writer:?} has to balance first");
        let file = self.inodes.of_mut(inode);
        assert!(!file.removed, "{inode:?} is removed");
        let bdi = file.bdi;
        let may = self.pool.pages_until_check(state.cpu, bdi, &state.pace);
        let count = may.min(pages.end - pages.start);
        let new = file.pages.write(pages.start..pages.start + count);
        self.pool.dirtied(bdi, &mut state.share, new);
        let balance = self.count_writes(now, writer, bdi, count, new);
        if new > 0 {
            self.touch(now, inode);
        }
        Written { pages: count, balance }
    }

    /// Charges a writer for pages that [`dirty`](Self::dirty) has made dirty before. Accepts as
    /// many pages as the writer may dirty before it has to check the limits; the caller calls again
    /// for the remaining pages. Returns the number of accepted pages, and whether the limits must
    /// be checked now. A writer that dirties pages before it is charged is thus throttled like a
    /// writer that calls [`write`](Self::write).
    ///
    /// # Panics
    /// Panics if there is no page, or if the writer must call [`balance`](Self::balance) first.
    pub fn charge(&mut self, now: Time, writer: WriterId, inode: InodeId, pages: u64) -> Written {
        assert!(pages > 0, "a charge has pages");
        if self.pool.config().kernel == Kernel::Weft {
            return self.charge_by_turn(now, writer, inode, pages);
        }
        let state = &self.writers[writer.index()];
        assert!(state.visit.is_none(), "{writer:?} has to balance first");
        let bdi = self.inodes.of(inode).bdi;
        let count = self.pool.pages_until_check(state.cpu, bdi, &state.pace).min(pages);
        let balance = self.count_writes(now, writer, bdi, count, count);
        Written { pages: count, balance }
    }

    /// Counts `pages` that a writer has written to, of which `new` were clean. Returns whether the
    /// writer must check the limits now.
    fn count_writes(
        &mut self,
        now: Time,
        writer: WriterId,
        bdi: BdiId,
        pages: u64,
        new: u64,
    ) -> bool {
        let state = &mut self.writers[writer.index()];
        if let Some(pages) = self.pool.count_writes(state.cpu, bdi, &mut state.pace, pages, new) {
            let config = self.pool.config();
            let policy = ThrottleEpisode::new(config.kernel, config.ticks, now, pages);
            state.visit = Some(Visit { bdi, policy, pass: None, written: 0 });
        }
        state.visit.is_some()
    }

    /// [`write`](Self::write) under [`Kernel::Weft`]: accepts as many pages as the writer has
    /// credit for. Without credit, it accepts one page, which is deducted from the writer's next
    /// credit.
    fn write_by_turn(
        &mut self,
        now: Time,
        writer: WriterId,
        inode: InodeId,
        pages: Range<u64>,
    ) -> Written {
        let state = &mut self.writers[writer.index()];
        assert!(state.needs_credit.is_none(), "{writer:?} has to balance first");
        let file = self.inodes.of_mut(inode);
        assert!(!file.removed, "{inode:?} is removed");
        let bdi = file.bdi;
        let credit = self.pool.turns.credit(now, writer, bdi);
        let count = credit.max(1).min(pages.end - pages.start);
        let new = file.pages.write(pages.start..pages.start + count);
        self.pool.dirtied(bdi, &mut state.share, new);
        let balance = self.spend(now, writer, bdi, new) || credit == 0;
        self.writers[writer.index()].needs_credit = balance.then_some(bdi);
        if new > 0 {
            self.touch(now, inode);
        }
        self.after_turns(Some(bdi));
        Written { pages: count, balance }
    }

    /// [`charge`](Self::charge) with the rules of [`Kernel::Weft`]: credit and turns.
    fn charge_by_turn(
        &mut self,
        now: Time,
        writer: WriterId,
        inode: InodeId,
        pages: u64,
    ) -> Written {
        let state = &self.writers[writer.index()];
        assert!(state.needs_credit.is_none(), "{writer:?} has to balance first");
        let bdi = self.inodes.of(inode).bdi;
        let credit = self.pool.turns.credit(now, writer, bdi);
        let count = credit.max(1).min(pages);
        let balance = self.spend(now, writer, bdi, count) || credit == 0;
        self.writers[writer.index()].needs_credit = balance.then_some(bdi);
        self.after_turns(Some(bdi));
        Written { pages: count, balance }
    }

    /// Deducts `pages` from a writer's credit. Returns whether the writer now has no credit left
    /// and cannot get any at once.
    fn spend(&mut self, now: Time, writer: WriterId, bdi: BdiId, pages: u64) -> bool {
        self.pool.turns.spend(now, writer, bdi, pages);
        self.pool.turns.credit(now, writer, bdi) == 0
    }

    fn balance_by_turn(&mut self, now: Time, writer: WriterId) -> Balance {
        let state = &mut self.writers[writer.index()];
        let by_turn = self.pool.config().kernel == Kernel::Weft;
        let Some(bdi) = state.needs_credit.take().filter(|_| by_turn) else {
            return Balance::Continue;
        };
        let balance = if self.pool.turns.credit(now, writer, bdi) > 0 {
            Balance::Continue
        } else {
            state.needs_credit = Some(bdi);
            Balance::Sleep { until: self.pool.turns.sleep(now, writer), or_uncongested: false }
        };
        self.after_turns(Some(bdi));
        balance
    }

    /// Wakes the writers that got credit. If `bdi` is given, also wakes that device's flusher if it
    /// has work now.
    fn after_turns(&mut self, bdi: Option<BdiId>) {
        while let Some(writer) = self.pool.turns.woken() {
            self.wakes.push_back(Wake::Writer(writer));
        }
        let Some(bdi) = bdi else { return };
        let flusher = &mut self.bdis[bdi.index()].flusher;
        let turns = &mut self.pool.turns;
        if turns.lets_flusher_go(bdi) {
            self.wakes.push_back(Wake::Flusher(bdi));
        } else if !flusher.is_busy() && !flusher.is_kicked() && turns.calls_flusher(bdi) {
            flusher.kick();
            self.wakes.push_back(Wake::Flusher(bdi));
        }
    }

    /// Returns the next action of a writer that must check the limits. A write that it returns has
    /// at most `pages_max` pages.
    ///
    /// # Panics
    /// Panics if `pages_max` is 0, as do [`flush`](Self::flush) and
    /// [`fsync_step`](Self::fsync_step).
    pub fn balance(&mut self, now: Time, writer: WriterId, pages_max: u64) -> Balance {
        assert!(pages_max > 0, "at least a page at a time");
        let state = &mut self.writers[writer.index()];
        state.waits_for_room = false;
        let Some(visit) = &mut state.visit else { return self.balance_by_turn(now, writer) };
        let bdi = visit.bdi;
        let device = &mut self.bdis[bdi.index()];
        let mut pages_of_pass = None;
        loop {
            let mut wbc = WritebackControl::new(
                bdi,
                now,
                &mut self.pool,
                &mut self.inodes,
                &mut device.queues,
                device.congested,
            );
            if let Some(pages) = pages_of_pass.take() {
                visit.pass = Some(Pass::new(&mut wbc, Reason::Writer(writer), pages, None));
            }
            if let Some(pass) = &mut visit.pass {
                let out = pass.next(&mut wbc, pages_max);
                let free = device.flusher.awaited().is_some_and(|id| !self.inodes.is_busy(id));
                if free {
                    self.wakes.push_back(Wake::Flusher(bdi));
                }
                if let Some(out) = out {
                    return Balance::Write(out);
                }
                visit.written = pass.written();
                visit.pass = None;
            }
            let busy = device.flusher.is_busy();
            if visit.policy.measures_first() {
                self.pool.before_judgement(now, bdi, visit.policy.start());
            }
            let facts = self.pool.facts(bdi, &mut state.share, state.pace, busy);
            let answer = visit.policy.step(now, &facts, std::mem::take(&mut visit.written));
            if let Some(exceeded) = answer.exceeded {
                self.pool.set_exceeded(bdi, exceeded);
                if exceeded && self.pool.config().kernel == Kernel::V3_1 {
                    self.pool.update_bandwidth(now, bdi, visit.policy.start(), true);
                }
            }
            state.pace = answer.pace.unwrap_or(state.pace);
            if answer.wake_flusher {
                device.flusher.kick();
                self.wakes.push_back(Wake::Flusher(bdi));
            }
            match answer.step {
                ThrottleStep::Continue => {
                    state.visit = None;
                    return Balance::Continue;
                }
                ThrottleStep::Sleep { until, or_uncongested } => {
                    state.waits_for_room = or_uncongested;
                    return Balance::Sleep { until, or_uncongested };
                }
                ThrottleStep::WriteBack { pages } => pages_of_pass = Some(pages),
            }
        }
    }

    /// Returns the next action of a device's flusher. A write that it returns has at most
    /// `pages_max` pages.
    ///
    /// # Panics
    /// Panics if `pages_max` is 0.
    pub fn flush(&mut self, now: Time, bdi: BdiId, pages_max: u64) -> Flush {
        assert!(pages_max > 0, "at least a page at a time");
        let device = &mut self.bdis[bdi.index()];
        let takes_turns = self.pool.config().kernel == Kernel::Weft;
        if takes_turns && device.flusher.may_wait() && self.pool.turns.holds_flusher(bdi) {
            return Flush::Sleep { until: None, or_uncongested: false };
        }
        let mut wbc = WritebackControl::new(
            bdi,
            now,
            &mut self.pool,
            &mut self.inodes,
            &mut device.queues,
            device.congested,
        );
        let next = device.flusher.next(now, &mut wbc, pages_max);
        for _ in 0..device.flusher.take_syncs_done() {
            self.wakes.push_back(Wake::Synced(bdi));
        }
        next
    }

    /// Reports that the device has completed the writes of `pages`.
    ///
    /// # Panics
    /// Panics if one of the pages is not under writeback.
    pub fn written(&mut self, now: Time, inode: InodeId, pages: Range<u64>) {
        let file = self.inodes.of_mut(inode);
        let bdi = file.bdi;
        self.pool.written(bdi, pages.end - pages.start);
        if self.pool.config().kernel == Kernel::Weft {
            self.pool.turns.completed(now, bdi, inode, &pages);
        }
        file.pages.written(pages);
        if std::mem::take(&mut file.watched) {
            self.wakes.push_back(Wake::Inode(inode));
        }
        self.inodes.free_if_over(inode);
        if self.pool.config().kernel == Kernel::Weft {
            self.after_turns(Some(bdi));
        }
    }

    /// Truncates a file at page `first`: drops all dirty pages from there on without writing them.
    /// Returns how many pages were dirty, and how many are under writeback. The kernel then waits
    /// for the latter; see [`under_writeback`](Self::under_writeback).
    pub fn truncate(&mut self, inode: InodeId, first: u64) -> Discarded {
        self.discard(inode, first..u64::MAX)
    }

    /// Drops the dirty pages of a range without writing them. Pages under writeback only lose their
    /// dirty flag. Returns how many pages were dirty, and how many are under writeback.
    pub fn discard(&mut self, inode: InodeId, pages: Range<u64>) -> Discarded {
        let file = self.inodes.of_mut(inode);
        let discarded = file.pages.discard(pages);
        self.pool.discarded(file.bdi, discarded.dirty);
        discarded
    }

    /// Dirties pages of a file without waiting, whatever the limits; the caller enforces the hard
    /// limit. Returns the number of pages to [charge](Self::charge) the writer for: all pages in
    /// kernels before patch 001 (IO-less throttling), and only the pages that were clean in later
    /// kernels. Wakes the flusher above the background threshold.
    pub fn dirty(&mut self, now: Time, writer: WriterId, inode: InodeId, pages: Range<u64>) -> u64 {
        let file = self.inodes.of_mut(inode);
        let bdi = file.bdi;
        let all = pages.end - pages.start;
        let new = file.pages.write(pages);
        self.pool.dirtied(bdi, &mut self.writers[writer.index()].share, new);
        if new > 0 {
            self.touch(now, inode);
        }
        let flusher = &mut self.bdis[bdi.index()].flusher;
        if self.pool.counts().dirty > self.pool.thresholds().background && !flusher.is_busy() {
            flusher.kick();
            self.wakes.push_back(Wake::Flusher(bdi));
        }
        if self.pool.config().kernel == Kernel::Weft {
            self.after_turns(Some(bdi));
        }
        if self.pool.config().kernel.writers_write_back() { all } else { new }
    }

    /// Marks the dirty pages of a range of a file for writing: [`take_marked`](Self::take_marked)
    /// takes only marked pages.
    pub fn mark(&mut self, inode: InodeId, pages: &Range<u64>) {
        self.inodes.of_mut(inode).pages.mark(pages);
    }

    /// Whether a page of a file is marked for writing and has not been taken yet.
    #[must_use]
    pub fn has_marked(&self, inode: InodeId) -> bool {
        self.inodes.of(inode).pages.has_marked()
    }

    /// Takes and returns the first run of marked pages within `within`, at most `pages_max`,
    /// skipping pages under writeback. The pages are under writeback from now on. `None` if there
    /// is no such page.
    pub fn take_marked(
        &mut self,
        inode: InodeId,
        within: Range<u64>,
        pages_max: u64,
    ) -> Option<Range<u64>> {
        self.start(inode, |file| file.take_marked_free(within, pages_max))
    }

    /// Like [`take_marked`](Self::take_marked), for all dirty pages, marked or not. `None` if no
    /// page of the range is dirty without being under writeback.
    pub fn take(
        &mut self,
        inode: InodeId,
        within: Range<u64>,
        pages_max: u64,
    ) -> Option<Range<u64>> {
        self.start(inode, |file| file.take(within, pages_max))
    }

    /// Changes the state of a run of pages to under writeback with `take`, and updates the pool's
    /// counts. Returns the run; `None` if `take` finds none.
    fn start(
        &mut self,
        inode: InodeId,
        take: impl FnOnce(&mut Pages) -> Option<Range<u64>>,
    ) -> Option<Range<u64>> {
        let file = self.inodes.of_mut(inode);
        let pages = take(&mut file.pages)?;
        self.pool.started(file.bdi, pages.end - pages.start);
        Some(pages)
    }

    /// Removes a file that was unlinked and closed, and drops its dirty pages. Returns how many
    /// pages were dirty, and how many are under writeback. The identifier of the file may be reused
    /// once its last write has completed.
    pub fn remove(&mut self, inode: InodeId) -> Discarded {
        let discarded = self.truncate(inode, 0);
        let file = self.inodes.of_mut(inode);
        file.removed = true;
        self.bdis[file.bdi.index()].queues.remove(inode, file);
        self.inodes.free_if_over(inode);
        discarded
    }

    /// The first page of a range that is under writeback; `None` if there is none. If there is one,
    /// [`Wake::Inode`] follows when writes of the file complete.
    pub fn under_writeback(&mut self, inode: InodeId, pages: Range<u64>) -> Option<u64> {
        let file = self.inodes.of_mut(inode);
        let page = file.pages.next_writeback(pages);
        file.watched |= page.is_some();
        page
    }

    /// Begins an fsync of a range of a file: marks the dirty pages of the range. Returns the fsync,
    /// for [`fsync_step`](Self::fsync_step).
    pub fn fsync(&mut self, inode: InodeId, pages: Range<u64>) -> Fsync {
        Fsync::new(&mut self.inodes, inode, pages)
    }

    /// Returns the next step of an fsync. A write that it returns has at most `pages_max` pages.
    ///
    /// # Panics
    /// Panics if `pages_max` is 0.
    pub fn fsync_step(&mut self, fsync: &mut Fsync, pages_max: u64) -> SyncStep {
        assert!(pages_max > 0, "at least a page at a time");
        fsync.step(&mut self.pool, &mut self.inodes, pages_max)
    }

    /// Requests writeback of all dirty pages of a device, as `sync(2)` does. [`Wake::Synced`]
    /// reports that all of them are submitted; the caller then waits for completions file by file.
    pub fn sync(&mut self, now: Time, bdi: BdiId) {
        self.bdis[bdi.index()].flusher.sync(self.pool.ticks().tick(now));
        self.wakes.push_back(Wake::Flusher(bdi));
    }

    /// Sets whether a device's queue is congested. 2.6.24's flusher skips a congested device. When
    /// the congestion of any queue ends, all flushers and writers that wait for room are woken.
    ///
    /// A disk's queue of that time becomes congested at 113 of its 128 requests, and uncongested at
    /// 103 (not checked). A RAID 5 array is congested while its stripe cache has no free stripe. A
    /// stripe that becomes free wakes no waiter; only room in a member's queue does. (The rule for
    /// the congestion of the array was read in raid5.c of 2006 and 2008; the rule for waking is not
    /// checked.)
    pub fn set_congested(&mut self, bdi: BdiId, congested: bool) {
        let before = std::mem::replace(&mut self.bdis[bdi.index()].congested, congested);
        if !before || congested {
            return;
        }
        for (device, id) in self.bdis.iter_mut().zip(0..) {
            if device.flusher.uncongested() {
                self.wakes.push_back(Wake::Flusher(BdiId(id)));
            }
        }
        for (writer, id) in self.writers.iter_mut().zip(0..) {
            if std::mem::take(&mut writer.waits_for_room) {
                self.wakes.push_back(Wake::Writer(WriterId(id)));
            }
        }
    }

    /// Returns the next flusher, writer or process that must call again; `None` if there is no
    /// other.
    #[must_use]
    pub fn wake(&mut self) -> Option<Wake> {
        self.wakes.pop_front()
    }

    /// Puts a file that was written to at the end of the list *dirty* of its device, unless it was
    /// written to before since its last turn began, or a pass has its turn on it.
    fn touch(&mut self, now: Time, inode: InodeId) {
        let tick = self.pool.ticks().tick(now);
        let file = self.inodes.of_mut(inode);
        let before = std::mem::replace(&mut file.touched, true);
        // The pass that is writing the file will put it on a list.
        if file.busy || before {
            return;
        }
        file.dirtied_when = tick;
        let bdi = file.bdi;
        let device = &mut self.bdis[bdi.index()];
        let was_idle = device.queues.len() == 0;
        device.queues.append(List::Dirty, inode, file);
        if was_idle {
            device.flusher.first_dirty(tick);
            self.wakes.push_back(Wake::Flusher(bdi));
        }
    }
}
