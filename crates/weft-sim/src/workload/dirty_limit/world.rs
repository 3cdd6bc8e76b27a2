//! Run of a box: writers, flushers, logs and disks, one event after the other.
//!
//! Every event has a virtual time; events at the same time happen in the order in which they were
//! planned. Threads that wait for room in a disk's queue get it in the order of arrival.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use weft_engine::page_cache::{
    Balance, BdiId, Flush, InodeId, PAGE_BYTES, PageCache, Wake, WriteOut, WriterId,
};
use weft_units::rng::Rng;
use weft_units::{Span, Time};

use super::DirtyLimit;
use super::disk::{Disk, DiskSums, Request, What};
use super::measured::{Measured, Pause, Pauses, Sample, jain};
use super::places::{FileSystem, Places};
use crate::drive::{Access, Drive};

/// CPU time to dirty a page: copying it and looking it up in the cache.
const PAGE_COST: Span = Span(4_000);
/// CPU time to write back a page: changing its state, looking up its position, adding it to a
/// request.
const WRITE_OUT_COST: Span = Span(2_000);
/// CPU time of a call of `write`, without its pages.
const CALL_COST: Span = Span(1_000);
/// CPU time to submit a request, and to wake a flusher.
const HAND_OVER: Span = Span(10_000);
/// Largest request in pages. `TURN_PAGES` is the largest number of pages that a writer dirties
/// before other threads run.
const REQUEST_PAGES: u64 = 128;
const TURN_PAGES: u64 = 64;
/// Sectors of a commit: the blocks of the log, then the commit block that confirms them.
const LOG_SECTORS: u64 = 64;
const COMMIT_SECTORS: u64 = 8;
/// Time between two commits of a log: that of ext4, assumed for XFS too.
const LOG_EVERY: Span = Span::secs(5);
/// Time between the starts of successive writers.
const START: Span = Span::millis(1);
/// Time between two samples.
const SAMPLE_EVERY: Span = Span::millis(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    Disk(u16),
    Arrival(u16, usize),
    Flusher(u16),
    Log(u16),
    Writer(u32),
    Sample,
    WindowBegins,
}

/// State of a thread that submits pages to a disk: a flusher or a writer.
#[derive(Clone, Debug, Default)]
struct Thread {
    /// Time at which the thread runs next; `None` if it waits to be woken.
    at: Option<Time>,
    /// Pages that the thread is submitting, if any.
    out: Option<WriteOut>,
    /// Whether the thread has waited for room in the queue and may submit one request now.
    granted: bool,
}

#[derive(Debug)]
struct Dd {
    thread: Thread,
    id: WriterId,
    inode: InodeId,
    page: u64,
    /// Time since which it has waited to be allowed to continue; `None` if it is not throttled.
    balances: Option<Time>,
    page_before: u64,
}

/// Step of the commit of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Commit {
    None,
    Blocks,
    Flush,
    Last,
}

struct World<'a> {
    cell: &'a DirtyLimit,
    cache: PageCache,
    now: Time,
    events: BinaryHeap<Reverse<(Time, u64, Who)>>,
    planned: u64,
    disks: Vec<Disk>,
    places: Vec<Places>,
    flushers: Vec<Thread>,
    commits: Vec<Commit>,
    writers: Vec<Dd>,
    /// Threads that wait for room in the queue of each disk, in order of arrival.
    waiting: Vec<VecDeque<Who>>,
    link_free: Time,
    pauses: Pauses,
    in_window: bool,
    written_before: u64,
    sums_before: Vec<DiskSums>,
    sums_sampled: Vec<DiskSums>,
    dirty_max: u64,
    samples: Vec<Sample>,
}

pub(super) fn run(cell: &DirtyLimit) -> Measured {
    assert!(cell.disks > 0 && cell.writers > 0, "there are disks and writers");
    assert!(cell.measured > Span::ZERO, "the measured time is not zero");
    assert!(cell.block.0 > 0 && cell.block.0.is_multiple_of(PAGE_BYTES), "blocks of whole pages");
    let mut world = World::new(cell);
    let end = Time(cell.warm_up.0 + cell.measured.0);
    while let Some(Reverse((at, _, who))) = world.events.pop() {
        if at > end {
            break;
        }
        world.now = at;
        world.happens(who);
        world.dirty_max = world.dirty_max.max(world.cache.pool().counts().total());
    }
    world.now = end;
    world.measured()
}

impl<'a> World<'a> {
    fn new(cell: &'a DirtyLimit) -> Self {
        let mut rng = Rng::new(cell.seed);
        let mut cache = PageCache::new(cell.pool());
        let (mut disks, mut places, mut writers) = (Vec::new(), Vec::new(), Vec::new());
        for disk in 0..cell.disks {
            let drive = Drive::new(&cell.model, cell.seed ^ (u64::from(disk) << 56));
            places.push(Places::new(cell.file_system, cell.writers, drive.capacity()));
            disks.push(Disk::new(drive));
            let bdi = cache.add_bdi(Time(0));
            assert_eq!(usize::from(bdi.0) + 1, disks.len(), "bdis are numbered like disks");
        }
        // The script starts the first writer of each disk, then the second of each, and so on.
        for nth in 0..cell.writers * u32::from(cell.disks) {
            let bdi = BdiId((nth % u32::from(cell.disks)) as u16);
            let id = cache.add_writer(nth % cell.cpus);
            let inode = cache.add_inode(bdi);
            let thread = Thread::default();
            writers.push(Dd { thread, id, inode, page: 0, balances: None, page_before: 0 });
        }
        let count = disks.len();
        let sums: Vec<_> = disks.iter().map(|disk| disk.sums(Time(0))).collect();
        let mut world = Self {
            cell,
            cache,
            now: Time(0),
            events: BinaryHeap::new(),
            planned: 0,
            disks,
            places,
            flushers: vec![Thread::default(); count],
            commits: vec![Commit::None; count],
            writers,
            waiting: vec![VecDeque::new(); count],
            link_free: Time(0),
            pauses: Pauses::new(),
            in_window: false,
            written_before: 0,
            sums_before: sums.clone(),
            sums_sampled: sums,
            dirty_max: 0,
            samples: Vec::new(),
        };
        for nth in 0..world.writers.len() as u32 {
            // Writers start one millisecond apart, each at a random time within its millisecond.
            let at = Time(u64::from(nth) * START.0 + rng.below(START.0));
            world.plan_thread(Who::Writer(nth), at);
        }
        for disk in 0..cell.disks {
            world.plan(Time(LOG_EVERY.0), Who::Log(disk));
        }
        world.plan(Time(cell.warm_up.0), Who::WindowBegins);
        world.plan(Time(SAMPLE_EVERY.0), Who::Sample);
        world
    }

    fn plan(&mut self, at: Time, who: Who) {
        self.planned += 1;
        self.events.push(Reverse((at, self.planned, who)));
    }

    fn thread(&mut self, who: Who) -> &mut Thread {
        match who {
            Who::Flusher(disk) => &mut self.flushers[usize::from(disk)],
            Who::Writer(nth) => &mut self.writers[nth as usize].thread,
            _ => unreachable!("{who:?} is not a thread"),
        }
    }

    /// Plans a thread's next run. An earlier plan no longer counts.
    fn plan_thread(&mut self, who: Who, at: Time) {
        self.thread(who).at = Some(at);
        self.plan(at, who);
    }

    fn happens(&mut self, who: Who) {
        match who {
            Who::Disk(disk) => self.disk(disk),
            Who::Arrival(disk, tag) => {
                if let Some(ended) = self.disks[usize::from(disk)].arrive(self.now, tag) {
                    self.ended(disk, ended);
                }
                self.after_disk(disk);
            }
            Who::Flusher(_) | Who::Writer(_) => {
                let now = self.now;
                let thread = self.thread(who);
                if thread.at != Some(now) {
                    return;
                }
                thread.at = None;
                self.thread_runs(who);
            }
            Who::Log(disk) => self.log(disk),
            Who::Sample => self.sample(),
            Who::WindowBegins => self.window_begins(),
        }
    }

    fn thread_runs(&mut self, who: Who) {
        loop {
            if let Some(out) = &self.thread(who).out {
                let pages = out.pages.end - out.pages.start;
                if self.hand_over(who) {
                    let at = self.now
                        + Span(HAND_OVER.0 + self.cell.placebo.0 + pages * WRITE_OUT_COST.0);
                    self.plan_thread(who, at);
                }
                return;
            }
            let next = match who {
                Who::Flusher(disk) => self.flush(disk),
                Who::Writer(nth) => self.write(nth),
                _ => unreachable!("{who:?} is not a thread"),
            };
            self.wakes();
            match next {
                Next::Out(out) => self.thread(who).out = Some(out),
                Next::At(at) if at > self.now => {
                    self.plan_thread(who, at);
                    return;
                }
                Next::At(_) => {}
                Next::Never => return,
            }
        }
    }

    /// Submits the thread's pages. Returns false if there was no room for all of them: the thread
    /// then waits for room.
    fn hand_over(&mut self, who: Who) -> bool {
        let mut out = self.thread(who).out.take().expect("the thread has pages");
        let disk = usize::from(out.bdi.0);
        while !out.pages.is_empty() {
            let file = out.inode.0 / u32::from(self.cell.disks);
            let count = out.pages.end - out.pages.start;
            let (first, count) = self.places[disk].place(file, out.pages.start, count);
            let pages = out.pages.start..out.pages.start + count;
            if !self.disks[disk].join(first, out.inode, &pages) {
                let granted = std::mem::take(&mut self.thread(who).granted);
                let others = !self.waiting[disk].is_empty();
                if !granted && (others || self.disks[disk].is_full()) {
                    self.waiting[disk].push_back(who);
                    self.thread(who).out = Some(out);
                    return false;
                }
                let what = What::Pages(vec![(out.inode, pages.clone())]);
                let access = Access::Write { fua: false };
                let request = Request { access, first, sectors: count * 8, what };
                self.disks[disk].submit(self.now, request);
            }
            out.pages.start = pages.end;
        }
        self.after_disk(out.bdi.0);
        true
    }

    fn flush(&mut self, disk: u16) -> Next {
        match self.cache.flush(self.now, BdiId(disk), REQUEST_PAGES) {
            Flush::Write(out) => Next::Out(out),
            Flush::Sleep { until, .. } => until.map_or(Next::Never, Next::At),
        }
    }

    fn write(&mut self, nth: u32) -> Next {
        let now = self.now;
        let dd = &mut self.writers[nth as usize];
        if let Some(since) = dd.balances {
            return match self.cache.balance(now, dd.id, REQUEST_PAGES) {
                Balance::Continue => {
                    dd.balances = None;
                    if now > since {
                        let pause = Pause { writer: nth, at: since, length: now - since };
                        self.pauses.count(pause, self.in_window);
                    }
                    Next::At(now)
                }
                Balance::Sleep { until, .. } => Next::At(until),
                Balance::Write(out) => Next::Out(out),
            };
        }
        let block = self.cell.block.0 / PAGE_BYTES;
        let written = self.cache.write(now, dd.id, dd.inode, dd.page..dd.page + TURN_PAGES);
        let calls = (dd.page + written.pages).div_ceil(block) - dd.page.div_ceil(block);
        dd.page += written.pages;
        dd.balances = written.balance.then_some(now + Span(PAGE_COST.0 * written.pages));
        Next::At(now + Span(PAGE_COST.0 * written.pages + CALL_COST.0 * calls))
    }

    /// Wakes the threads that the page cache wants to run.
    fn wakes(&mut self) {
        while let Some(wake) = self.cache.wake() {
            let who = match wake {
                Wake::Flusher(bdi) => Who::Flusher(bdi.0),
                Wake::Writer(id) => Who::Writer(id.0),
                Wake::Inode(_) | Wake::Synced(_) => unreachable!("no thread syncs"),
            };
            let at = self.now + HAND_OVER;
            let thread = self.thread(who);
            let sooner = thread.at.is_none_or(|planned| at < planned);
            if thread.out.is_none() && sooner {
                self.plan_thread(who, at);
            }
        }
    }

    // --- disks ----------------------------------------------------------------------------------

    /// Handles an event inside a disk's drive.
    fn disk(&mut self, disk: u16) {
        let of = &mut self.disks[usize::from(disk)];
        if of.planned == Some(self.now) {
            of.planned = None;
        }
        for ended in of.advance(self.now) {
            self.ended(disk, ended);
        }
        self.after_disk(disk);
    }

    fn ended(&mut self, disk: u16, request: Request) {
        match request.what {
            What::Log => self.log_goes_on(disk),
            What::Pages(of) => {
                for (inode, pages) in of {
                    self.cache.written(self.now, inode, pages);
                }
                self.wakes();
            }
        }
        let disk = usize::from(disk);
        if !self.disks[disk].is_full()
            && let Some(who) = self.waiting[disk].pop_front()
        {
            self.thread(who).granted = true;
            let now = self.now;
            self.plan_thread(who, now);
        }
    }

    /// Dispatches requests as far as the drive has room, and plans the drive's next event.
    fn after_disk(&mut self, disk: u16) {
        while let Some((tag, bytes)) = self.disks[usize::from(disk)].send() {
            let arrives = match self.cell.link {
                None => self.now,
                Some(link) => {
                    let passes = u128::from(bytes) * 1_000_000_000 / u128::from(link.0);
                    self.link_free = self.link_free.max(self.now) + Span(passes as u64);
                    self.link_free
                }
            };
            self.plan(arrives, Who::Arrival(disk, tag));
        }
        let of = &mut self.disks[usize::from(disk)];
        if let Some(at) = of.next_event()
            && of.planned.is_none_or(|planned| at < planned)
        {
            of.planned = Some(at);
            self.plan(at, Who::Disk(disk));
        }
    }

    /// Starts a commit of a log, if the preceding one has ended, and plans the next.
    fn log(&mut self, disk: u16) {
        if self.commits[usize::from(disk)] == Commit::None {
            self.commits[usize::from(disk)] = Commit::Blocks;
            self.log_writes(disk, LOG_SECTORS, false);
        }
        let at = self.now + LOG_EVERY;
        self.plan(at, Who::Log(disk));
    }

    /// Continues a commit when one of its steps has completed.
    fn log_goes_on(&mut self, disk: u16) {
        let ext4 = self.cell.file_system == FileSystem::Ext4;
        let commit = &mut self.commits[usize::from(disk)];
        *commit = match *commit {
            Commit::Blocks if ext4 => Commit::Flush,
            Commit::Flush => Commit::Last,
            Commit::Blocks | Commit::Last | Commit::None => Commit::None,
        };
        match *commit {
            Commit::Flush => {
                let request =
                    Request { access: Access::Flush, first: 0, sectors: 0, what: What::Log };
                self.disks[usize::from(disk)].submit(self.now, request);
            }
            Commit::Last => self.log_writes(disk, COMMIT_SECTORS, true),
            Commit::Blocks | Commit::None => {}
        }
        self.after_disk(disk);
    }

    fn log_writes(&mut self, disk: u16, sectors: u64, fua: bool) {
        let first = self.places[usize::from(disk)].log(sectors);
        let request = Request { access: Access::Write { fua }, first, sectors, what: What::Log };
        self.disks[usize::from(disk)].submit(self.now, request);
        self.after_disk(disk);
    }

    // --- what is counted ------------------------------------------------------------------------

    fn written(&self) -> u64 {
        self.disks.iter().map(|disk| disk.written).sum()
    }

    fn sums(&self) -> Vec<DiskSums> {
        self.disks.iter().map(|disk| disk.sums(self.now)).collect()
    }

    fn window_begins(&mut self) {
        self.in_window = true;
        self.written_before = self.written();
        self.sums_before = self.sums();
        for dd in &mut self.writers {
            dd.page_before = dd.page;
        }
    }

    fn sample(&mut self) {
        let sums = self.sums();
        let busy = sums.iter().zip(&self.sums_sampled);
        let busy =
            busy.map(|(now, then)| 1.0 - part(now.idle.0 - then.idle.0, SAMPLE_EVERY)).collect();
        let pool = self.cache.pool();
        self.samples.push(Sample {
            at: self.now,
            all: pool.counts(),
            disks: (0..self.cell.disks).map(|disk| pool.bdi_counts(BdiId(disk)).total()).collect(),
            busy,
            written: self.written(),
            pause_max: std::mem::take(&mut self.pauses.latest),
        });
        self.sums_sampled = sums;
        let at = self.now + SAMPLE_EVERY;
        self.plan(at, Who::Sample);
    }

    fn measured(self) -> Measured {
        let window = self.cell.measured;
        let pages = self.written() - self.written_before;
        let pairs = || self.disks.iter().map(|disk| disk.sums(self.now)).zip(&self.sums_before);
        let run = |(now, then): (DiskSums, &DiskSums)| {
            (now.sent - then.sent) as f64 * 512.0 / (now.jumps - then.jumps).max(1) as f64
        };
        let dirtied: Vec<u64> = self.writers.iter().map(|dd| dd.page - dd.page_before).collect();
        let pool = self.cache.pool();
        Measured {
            mib_per_second: pages as f64 / 256.0 * 1e9 / window.0 as f64,
            pages,
            pages_since_start: self.written(),
            idle: pairs().map(|(now, then)| part(now.idle.0 - then.idle.0, window)).collect(),
            run_bytes: pairs().map(run).collect(),
            jain: jain(&dirtied),
            pause_p99: self.pauses.p99(),
            pause_max: self.pauses.max(),
            dirty_max: self.dirty_max,
            limit: pool.thresholds().dirty,
            free_run: pool.thresholds().free_run(),
            flushes: self.disks.iter().map(|disk| disk.flushes).sum(),
            samples: self.samples,
            pauses: self.pauses.first,
        }
    }
}

/// Next action of a thread: submit pages, run again at a time, or wait to be woken.
enum Next {
    Out(WriteOut),
    At(Time),
    Never,
}

fn part(of: u64, all: Span) -> f64 {
    of as f64 / all.0 as f64
}
