//! Test rig: writers, flushers and devices in a small model.
//!
//! A device executes one request at a time at a constant speed, with a fixed cost for each request
//! that does not follow the previous one. Its queue holds 128 requests of 512 KiB; a submitter
//! waits if the queue is full. Writers model `dd`: they take 4 µs per page, and write without end.

use super::super::*;
use std::collections::VecDeque;
use weft_units::{Span, Time};

const REQUEST_PAGES: u64 = 128;
const QUEUE_REQUESTS: usize = 128;
const PAGE_COST: Span = Span(4_000);

pub(super) struct Disk {
    pub pages_per_second: u64,
    pub switch: Span,
    pub queue: VecDeque<WriteOut>,
    pub done_at: Option<Time>,
    pub last: Option<(InodeId, u64)>,
    pub idle_since: Option<Time>,
    pub idle: Span,
    pub written: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum At {
    Time(Time),
    /// The submitter or writer continues when the device's queue has room.
    Room,
    Forever,
}

struct Dd {
    writer: WriterId,
    inode: InodeId,
    disk: usize,
    page: u64,
    at: At,
    balances: bool,
    /// Time since which the writer has been waiting; `None` if it does not wait.
    waits_since: Option<Time>,
    wait_max: Span,
    left: bool,
}

pub(super) struct World {
    pub cache: PageCache,
    pub now: Time,
    pub disks: Vec<Disk>,
    pub total_max: u64,
    /// Planted bug: wake-ups of writers are lost.
    pub loses_wakes: bool,
    writers: Vec<Dd>,
    flushers: Vec<At>,
}

impl World {
    /// Creates a rig with `disks` devices of the given speed and `writers` writers on each, which
    /// are distributed round robin over the CPUs.
    pub(super) fn new(
        config: PoolConfig,
        disks: u16,
        mib_per_second: u64,
        switch: Span,
        writers: u32,
    ) -> Self {
        let mut cache = PageCache::new(config);
        let mut world_writers = Vec::new();
        for disk in 0..disks {
            let bdi = cache.add_bdi(Time(0));
            for _ in 0..writers {
                let cpu = world_writers.len() as u32 % config.cpus;
                let writer = cache.add_writer(cpu);
                let inode = cache.add_inode(bdi);
                let at = At::Time(Time(u64::from(cpu)));
                let disk = usize::from(disk);
                world_writers.push(Dd {
                    writer,
                    inode,
                    disk,
                    page: 0,
                    at,
                    balances: false,
                    waits_since: None,
                    wait_max: Span(0),
                    left: false,
                });
            }
        }
        let disk = || Disk {
            pages_per_second: mib_per_second * 256,
            switch,
            queue: VecDeque::new(),
            done_at: None,
            last: None,
            idle_since: Some(Time(0)),
            idle: Span(0),
            written: 0,
        };
        Self {
            cache,
            now: Time(0),
            disks: (0..disks).map(|_| disk()).collect(),
            total_max: 0,
            loses_wakes: false,
            writers: world_writers,
            flushers: vec![At::Time(Time(0)); usize::from(disks)],
        }
    }

    /// Number of pages that each writer has written.
    pub(super) fn progress(&self) -> Vec<u64> {
        self.writers.iter().map(|writer| writer.page).collect()
    }

    /// Longest wait of any writer, whether it has ended or not.
    pub(super) fn wait_max(&self) -> Span {
        let of = |dd: &Dd| dd.wait_max.max(dd.waits_since.map_or(Span(0), |at| self.now - at));
        self.writers.iter().filter(|dd| !dd.left).map(of).max().expect("there are writers")
    }

    pub(super) fn forget_waits(&mut self) {
        self.writers.iter_mut().for_each(|dd| dd.wait_max = Span(0));
    }

    /// Stops the writer `writer` without removing it from the page cache.
    pub(super) fn leave(&mut self, writer: usize) {
        self.writers[writer].left = true;
        self.writers[writer].at = At::Forever;
    }

    pub(super) fn run_until(&mut self, end: Time) {
        loop {
            let times = self.disks.iter().filter_map(|disk| disk.done_at);
            let ready = |at: &At| match at {
                At::Time(time) => Some(*time),
                At::Room | At::Forever => None,
            };
            let times = times.chain(self.writers.iter().filter_map(|writer| ready(&writer.at)));
            let times = times.chain(self.flushers.iter().filter_map(ready));
            let next = times.min().expect("a writer never ends");
            if next > end {
                self.now = end;
                return;
            }
            assert!(next >= self.now);
            self.now = next;
            self.step();
            let counts = self.cache.pool().counts();
            self.total_max = self.total_max.max(counts.total());
            debug_assert_eq!(counts, self.cache.sums());
        }
    }

    fn step(&mut self) {
        for disk in 0..self.disks.len() {
            self.complete(disk);
        }
        for flusher in 0..self.flushers.len() {
            if self.flushers[flusher] == At::Time(self.now) {
                self.flush(flusher);
            }
        }
        for writer in 0..self.writers.len() {
            if self.writers[writer].at == At::Time(self.now) {
                self.write(writer);
            }
        }
    }

    fn complete(&mut self, at: usize) {
        let disk = &mut self.disks[at];
        if disk.done_at == Some(self.now) {
            let out = disk.queue.pop_front().expect("the disk has a request");
            disk.written += out.pages.end - out.pages.start;
            disk.done_at = None;
            self.cache.written(self.now, out.inode, out.pages);
            let room = |completion: &mut At| {
                if *completion == At::Room {
                    *completion = At::Time(self.now);
                }
            };
            self.writers
                .iter_mut()
                .filter(|writer| writer.disk == at)
                .for_each(|w| room(&mut w.at));
            room(&mut self.flushers[at]);
            self.wake();
        }
        self.start(at);
    }

    fn start(&mut self, at: usize) {
        let disk = &mut self.disks[at];
        if disk.done_at.is_some() {
            return;
        }
        let Some(out) = disk.queue.front() else {
            disk.idle_since = disk.idle_since.or(Some(self.now));
            return;
        };
        if let Some(since) = disk.idle_since.take() {
            disk.idle.0 += (self.now - since).0;
        }
        let count = out.pages.end - out.pages.start;
        let follows = disk.last == Some((out.inode, out.pages.start));
        let switch = if follows { Span(0) } else { disk.switch };
        disk.last = Some((out.inode, out.pages.end));
        disk.done_at =
            Some(self.now + switch + Span(count * 1_000_000_000 / disk.pages_per_second));
    }

    /// Submits a request. Returns the time at which the submitter may continue.
    fn submit(&mut self, disk: usize, out: WriteOut) -> At {
        self.disks[disk].queue.push_back(out);
        self.start(disk);
        let full = self.disks[disk].queue.len() >= QUEUE_REQUESTS;
        if full { At::Room } else { At::Time(self.now + Span(10_000)) }
    }

    fn flush(&mut self, at: usize) {
        let bdi = BdiId(u16::try_from(at).unwrap());
        self.flushers[at] = match self.cache.flush(self.now, bdi, REQUEST_PAGES) {
            Flush::Write(out) => self.submit(at, out),
            Flush::Sleep { until, .. } => until.map_or(At::Forever, At::Time),
        };
        self.wake();
    }

    fn write(&mut self, at: usize) {
        let now = self.now;
        let dd = &mut self.writers[at];
        let disk = dd.disk;
        if dd.balances {
            let at_next = match self.cache.balance(now, dd.writer, REQUEST_PAGES) {
                Balance::Continue => {
                    let waited = dd.waits_since.take().map_or(Span(0), |since| now - since);
                    dd.wait_max = dd.wait_max.max(waited);
                    dd.balances = false;
                    At::Time(now + PAGE_COST)
                }
                Balance::Sleep { until, .. } => {
                    dd.waits_since = dd.waits_since.or(Some(now));
                    At::Time(until)
                }
                Balance::Write(out) => self.submit(disk, out),
            };
            self.writers[at].at = at_next;
        } else {
            let written = self.cache.write(now, dd.writer, dd.inode, dd.page..dd.page + 64);
            dd.page += written.pages;
            dd.balances = written.balance;
            dd.at = At::Time(now + Span(PAGE_COST.0 * written.pages));
        }
        self.wake();
    }

    fn wake(&mut self) {
        while let Some(wake) = self.cache.wake() {
            match wake {
                Wake::Flusher(bdi) => {
                    let flusher = &mut self.flushers[usize::from(bdi.0)];
                    if *flusher != At::Room {
                        *flusher = At::Time(self.now + Span(10_000));
                    }
                }
                Wake::Writer(_) if self.loses_wakes => {}
                Wake::Writer(id) => {
                    let dd = self.writers.iter_mut().find(|dd| dd.writer == id).unwrap();
                    dd.at = if dd.left { At::Forever } else { At::Time(self.now) };
                }
                Wake::Inode(_) | Wake::Synced(_) => unreachable!("the rig has no syncs"),
            }
        }
    }
}
