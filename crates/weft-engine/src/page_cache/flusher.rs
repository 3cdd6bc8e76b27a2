//! Flusher of a device: sync, periodic and background writeback, and its sleep.
//!
//! Each device has one flusher. When awake, it does three kinds of work in turn, then sleeps:
//!
//! 1. *sync*: writes the pages that a `sync(2)` requested;
//! 2. *periodic*: every 5 s, files that became dirty at least 30 s ago, until as many pages are
//!    written as were dirty when it began;
//! 3. *background*: all files, oldest first, while more pages are dirty than the background
//!    threshold; 3.1 interrupts this for a `sync(2)` that arrives.
//!
//! Throttled writers and syncs wake the flusher, and it wakes by itself 5 s after the last periodic
//! work. It returns the time until which it sleeps, and the caller calls again then.
//!
//! 2.6.24's flusher does not block on a congested queue: it waits up to 100 ms until any queue has
//! room. 3.1 blocks; the code that submits the pages has to model that.
//!
//! Source   writeback.md §3; for 2.6.24 `background_writeout` and `wb_kupdate`, January 2008

use super::id::InodeId;
use super::pass::{Pass, Reason, WriteOut, WritebackControl};
use super::pool::Generation;
use super::queue::List;
use weft_units::Time;

/// Next action of a flusher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flush {
    /// Submit these pages, then call again. Submission may take as long as the device's queue is
    /// full.
    Write(WriteOut),
    /// The flusher sleeps.
    Sleep {
        /// Latest time at which to wake up; `None`: sleep until
        /// [`Wake::Flusher`](super::Wake::Flusher).
        until: Option<Time>,
        /// Whether room in any device's queue also ends the sleep.
        or_uncongested: bool,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct Flusher {
    stage: Stage,
    run: Option<Run>,
    /// Ticks at which the `sync(2)` calls were made that the flusher has not begun to serve.
    syncs: Vec<u64>,
    /// Whether a throttled writer requested background writeback.
    kicked: bool,
    /// Tick from which the interval of periodic writeback counts: the last periodic writeback or,
    /// if later, the tick in which the first file of an idle device became dirty.
    last_periodic: u64,
    /// Number of `sync(2)` calls that are done but not yet reported.
    syncs_done: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Asleep,
    Syncs,
    Periodic,
    Background,
}

/// One kind of work of the flusher (sync, periodic or background writeback), in progress.
#[derive(Clone, Debug)]
struct Run {
    reason: Reason,
    start: u64,
    /// Number of pages that may still be written in this work.
    budget: u64,
    pass: Option<Pass>,
    wait: Option<Wait>,
}

/// Condition for which the flusher waits in the middle of its work.
#[derive(Clone, Copy, Debug)]
enum Wait {
    /// The run waits for room in any queue, at most until tick `until`. After the wait the run
    /// ends, unless it met a congested queue (`goes_on`).
    Congestion { until: u64, goes_on: bool },
    /// The run waits until another pass has ended its turn on this file.
    Inode(InodeId),
}

impl Flusher {
    pub(crate) const fn new(tick: u64) -> Self {
        Self {
            stage: Stage::Asleep,
            run: None,
            syncs: Vec::new(),
            kicked: false,
            last_periodic: tick,
            syncs_done: 0,
        }
    }

    /// Whether the flusher has work in progress.
    pub(crate) const fn is_busy(&self) -> bool {
        !matches!(self.stage, Stage::Asleep)
    }

    /// Requests background writeback on behalf of a throttled writer.
    pub(crate) const fn kick(&mut self) {
        self.kicked = true;
    }

    /// Whether a throttled writer has requested background writeback.
    pub(crate) const fn is_kicked(&self) -> bool {
        self.kicked
    }

    /// Whether the flusher is writing, and its writes may be delayed, because no sync is pending or
    /// in progress.
    pub(crate) fn may_wait(&self) -> bool {
        self.syncs.is_empty() && self.run.as_ref().is_some_and(|run| run.reason != Reason::Sync)
    }

    /// Requests writeback of all files that are dirty now.
    pub(crate) fn sync(&mut self, tick: u64) {
        self.syncs.push(tick);
    }

    /// Restarts the interval of periodic writeback when the first file of an idle device becomes
    /// dirty.
    pub(crate) fn first_dirty(&mut self, tick: u64) {
        self.last_periodic = self.last_periodic.max(tick);
    }

    /// Ends a wait for room in a queue. Returns whether the flusher was waiting for room.
    pub(crate) fn uncongested(&mut self) -> bool {
        match self.run.as_mut().and_then(|run| run.wait.as_mut()) {
            Some(Wait::Congestion { until, .. }) => {
                *until = 0;
                true
            }
            _ => false,
        }
    }

    /// File for which the flusher waits, because another pass has its turn on it; `None` if it does
    /// not wait for a file.
    pub(crate) fn awaited(&self) -> Option<InodeId> {
        match self.run.as_ref().and_then(|run| run.wait) {
            Some(Wait::Inode(id)) => Some(id),
            Some(Wait::Congestion { .. }) | None => None,
        }
    }

    /// Returns the number of `sync(2)` calls that have completed since the last call.
    pub(crate) const fn take_syncs_done(&mut self) -> u64 {
        std::mem::replace(&mut self.syncs_done, 0)
    }

    /// Returns the next action of the flusher. A write that it returns has at most `pages_max`
    /// pages.
    pub(crate) fn next(
        &mut self,
        now: Time,
        wbc: &mut WritebackControl<'_>,
        pages_max: u64,
    ) -> Flush {
        loop {
            let Some(run) = &mut self.run else {
                if let Some(sleep) = self.next_stage(wbc) {
                    return sleep;
                }
                continue;
            };
            if let Some(pass) = &mut run.pass {
                if let Some(out) = pass.next(wbc, pages_max) {
                    return Flush::Write(out);
                }
                let pass = run.pass.take().expect("the run has a pass");
                run.budget = run.budget.saturating_sub(pass.written());
                let wait = run.after_pass(now, wbc, &pass);
                match wait {
                    After::Again => {}
                    After::Over => self.end_run(),
                    After::Wait(wait) => run.wait = Some(wait),
                }
                continue;
            }
            match run.wait {
                Some(Wait::Congestion { until, .. }) if wbc.tick < until => {
                    let until = Some(wbc.pool.ticks().at(until));
                    return Flush::Sleep { until, or_uncongested: true };
                }
                Some(Wait::Inode(id)) if wbc.inodes.is_busy(id) => {
                    return Flush::Sleep { until: None, or_uncongested: false };
                }
                Some(Wait::Congestion { goes_on: false, .. }) => {
                    self.end_run();
                    continue;
                }
                Some(_) | None => run.wait = None,
            }
            if run.is_over(wbc, !self.syncs.is_empty()) {
                self.end_run();
            } else {
                run.start_pass(wbc);
            }
        }
    }

    /// Begins the next kind of work: sync, then periodic, then background writeback. Returns a
    /// sleep if there is no work, otherwise `None`.
    fn next_stage(&mut self, wbc: &mut WritebackControl<'_>) -> Option<Flush> {
        let hz = wbc.pool.ticks().hz();
        let interval = wbc.pool.config().writeback_centisecs;
        let due = match interval {
            0 => None,
            _ => Some(self.last_periodic + interval * hz / 100),
        };
        let is_due = due.is_some_and(|due| wbc.tick >= due);
        match self.stage {
            Stage::Asleep => {
                let has_dirty = wbc.queues.len() > 0;
                if !(self.kicked || (is_due && has_dirty)) && self.syncs.is_empty() {
                    let until = due.filter(|_| has_dirty).map(|due| wbc.pool.ticks().at(due));
                    return Some(Flush::Sleep { until, or_uncongested: false });
                }
                self.stage = Stage::Syncs;
            }
            Stage::Syncs => {
                if self.syncs.is_empty() {
                    self.stage = Stage::Periodic;
                } else {
                    let start = self.syncs.remove(0);
                    let budget = match wbc.kernel() {
                        // Enough for all dirty pages, but bounded in case a process keeps writing
                        // to a file.
                        Generation::V2_6_24 => {
                            let all = 2 * wbc.pool.counts().dirty + wbc.queues.len();
                            all + all / 2
                        }
                        Generation::V3_1 => u64::MAX,
                    };
                    self.run = Some(Run::new(Reason::Sync, start, budget));
                }
            }
            Stage::Periodic => {
                self.stage = Stage::Background;
                if is_due {
                    self.last_periodic = wbc.tick;
                    let budget = wbc.pool.counts().dirty + wbc.queues.len();
                    self.run = Some(Run::new(Reason::Periodic, wbc.tick, budget));
                }
            }
            Stage::Background => {
                let kicked = std::mem::replace(&mut self.kicked, false);
                self.stage = if self.syncs.is_empty() { Stage::Asleep } else { Stage::Syncs };
                let wanted = match wbc.kernel() {
                    Generation::V2_6_24 => kicked,
                    Generation::V3_1 => wbc.pool.over_background(wbc.bdi),
                };
                if wanted {
                    self.stage = Stage::Background;
                    self.run = Some(Run::new(Reason::Background, wbc.tick, u64::MAX));
                }
            }
        }
        None
    }

    fn end_run(&mut self) {
        let Some(run) = self.run.take() else { return };
        match run.reason {
            // Background work runs once per wake-up.
            Reason::Background => {
                self.kicked = false;
                self.stage = if self.syncs.is_empty() { Stage::Asleep } else { Stage::Syncs };
            }
            Reason::Sync => self.syncs_done += 1,
            Reason::Periodic | Reason::Writer(_) => {}
        }
    }
}

enum After {
    Again,
    Over,
    Wait(Wait),
}

impl Run {
    const fn new(reason: Reason, start: u64, budget: u64) -> Self {
        Self { reason, start, budget, pass: None, wait: None }
    }

    fn is_over(&self, wbc: &WritebackControl<'_>, sync_waits: bool) -> bool {
        let background = self.reason == Reason::Background;
        let enough = match wbc.kernel() {
            Generation::V2_6_24 => wbc.pool.counts().dirty < wbc.pool.thresholds().background,
            Generation::V3_1 => !wbc.pool.over_background(wbc.bdi),
        };
        let gives_way = wbc.kernel() == Generation::V3_1 && self.reason != Reason::Sync;
        self.budget == 0 || (background && enough) || (gives_way && sync_waits)
    }

    fn start_pass(&mut self, wbc: &mut WritebackControl<'_>) {
        let expire = wbc.pool.config().expire_centisecs * wbc.pool.ticks().hz() / 100;
        let kernel = wbc.kernel();
        let older_than = match (self.reason, kernel) {
            (Reason::Periodic, Generation::V2_6_24) => self.start.checked_sub(expire),
            (Reason::Periodic, Generation::V3_1) => wbc.tick.checked_sub(expire),
            (Reason::Background, Generation::V2_6_24) => Some(u64::MAX),
            (Reason::Background | Reason::Writer(_), _) => Some(wbc.tick),
            (Reason::Sync, _) => Some(self.start),
        };
        let Some(older_than) = older_than else {
            // Less time than the expiry age has passed since the start, so no file is old enough.
            self.budget = 0;
            return;
        };
        let budget = match (self.reason, kernel) {
            (Reason::Background | Reason::Periodic, Generation::V2_6_24) => PASS_PAGES_2_6_24,
            _ => self.budget,
        };
        self.pass = Some(Pass::new(wbc, self.reason, budget, Some(older_than)));
    }

    fn after_pass(&self, now: Time, wbc: &mut WritebackControl<'_>, pass: &Pass) -> After {
        match wbc.kernel() {
            Generation::V3_1 => {
                wbc.pool.update_bandwidth(now, wbc.bdi, self.start, false);
                if pass.made_progress() {
                    return After::Again;
                }
                match wbc.queues.first(List::More) {
                    None => After::Over,
                    Some(id) => After::Wait(Wait::Inode(id)),
                }
            }
            Generation::V2_6_24 => {
                if self.reason == Reason::Sync {
                    return After::Over;
                }
                if pass.written() >= PASS_PAGES_2_6_24 {
                    return After::Again;
                }
                let hz = wbc.pool.ticks().hz();
                let until = wbc.tick + (hz / 10).max(1);
                let wait = Wait::Congestion { until, goes_on: pass.met_congestion };
                let waits = pass.met_congestion || self.reason == Reason::Background;
                if waits { After::Wait(wait) } else { After::Over }
            }
        }
    }
}

/// Number of pages that one pass of 2.6.24's flusher writes (`MAX_WRITEBACK_PAGES`).
const PASS_PAGES_2_6_24: u64 = 1024;

#[cfg(test)]
mod tests {
    use super::super::id::BdiId;
    use super::super::pool::{Amount, Kernel, PAGE_BYTES, Pool, PoolConfig};
    use super::super::queue::{Inodes, Queues};
    use super::*;

    /// State of a device without files, of which `dirty` pages are dirty. The background threshold
    /// is 128 pages.
    struct State {
        pool: Pool,
        inodes: Inodes,
        queues: Queues,
    }

    impl State {
        fn new(kernel: Kernel, dirty: u64) -> Self {
            let limit = Amount::Bytes(256 * PAGE_BYTES);
            let mut pool = Pool::new(PoolConfig {
                dirty: limit,
                ..PoolConfig::new(kernel, 1, 1 << 20, 1 << 20)
            });
            let bdi = pool.add_bdi(Time(0));
            let mut share = pool.writer_share();
            pool.dirtied(bdi, &mut share, dirty);
            Self { pool, inodes: Inodes::default(), queues: Queues::default() }
        }

        fn wbc(&mut self) -> WritebackControl<'_> {
            let Self { pool, inodes, queues } = self;
            WritebackControl::new(BdiId(0), Time(0), pool, inodes, queues, false)
        }
    }

    #[test]
    fn a_flusher_that_serves_a_sync_may_not_wait() {
        let mut flusher = Flusher::new(0);
        assert!(!flusher.may_wait(), "it has no work");
        flusher.run = Some(Run::new(Reason::Background, 0, 1));
        assert!(flusher.may_wait());
        flusher.sync(0);
        assert!(!flusher.may_wait(), "a sync is due");
        flusher.syncs.clear();
        flusher.run = Some(Run::new(Reason::Sync, 0, 1));
        assert!(!flusher.may_wait());
    }

    #[test]
    fn a_sync_of_2_6_24_may_write_three_times_what_is_dirty() {
        let mut state = State::new(Kernel::V2_6_24, 10);
        let mut flusher = Flusher::new(0);
        flusher.sync(0);
        flusher.stage = Stage::Syncs;
        assert!(flusher.next_stage(&mut state.wbc()).is_none());
        assert_eq!(flusher.run.map(|run| run.budget), Some(30));
    }

    #[test]
    fn only_3_1_ends_background_work_for_a_sync() {
        for (kernel, reason, over) in [
            (Kernel::V2_6_24, Reason::Background, false),
            (Kernel::V3_1, Reason::Background, true),
            (Kernel::V3_1, Reason::Sync, false),
        ] {
            let mut state = State::new(kernel, 200);
            let run = Run::new(reason, 0, u64::MAX);
            assert_eq!(run.is_over(&state.wbc(), true), over, "{kernel:?} {reason:?}");
            assert!(!run.is_over(&state.wbc(), false));
        }
    }
}
