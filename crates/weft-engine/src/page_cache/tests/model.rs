//! Random tests of the page cache against a model of the version of every page.
//!
//! Random processes use four files on two devices. A model beside the page cache tracks three
//! versions of each page: in memory, under writeback, and on the device. After each step the pool's
//! counts equal the sums over files, and no page has two writes in flight. When a sync is done,
//! everything that was dirty when it began is durable. At the end no version has been lost.

use super::super::*;
use std::collections::BTreeMap;
use std::ops::Range;
use weft_units::{Span, Time};

const PAGES: u64 = 200;

/// Versions of one page.
#[derive(Clone, Copy, Default)]
struct Versions {
    memory: u32,
    under_way: Option<u32>,
    device: u32,
}

struct Sync {
    fsync: Fsync,
    /// Versions that must become durable, by page.
    owed: BTreeMap<u64, u32>,
}

struct World {
    cache: PageCache,
    now: Time,
    bdis: [BdiId; 2],
    inodes: Vec<InodeId>,
    writers: [WriterId; 2],
    versions: BTreeMap<(InodeId, u64), Versions>,
    in_flight: Vec<(InodeId, Range<u64>)>,
    syncs: Vec<Sync>,
    /// Whether whole devices are synced, in addition to files.
    syncs_devices: bool,
    state: u64,
}

impl World {
    fn new(kernel: Kernel, seed: u64) -> Self {
        let mut cache = PageCache::new(PoolConfig {
            dirty: Amount::Bytes(150 * PAGE_BYTES),
            ..PoolConfig::new(kernel, 2, 32 * 2 * 20, 10_000)
        });
        let bdis = [(); 2].map(|()| cache.add_bdi(Time(0)));
        let inodes = (0..4).map(|n| cache.add_inode(bdis[n % 2])).collect();
        let writers = [0, 1].map(|cpu| cache.add_writer(cpu));
        let state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let (versions, in_flight, syncs) = Default::default();
        Self {
            cache,
            now: Time(0),
            bdis,
            inodes,
            writers,
            versions,
            in_flight,
            syncs,
            syncs_devices: seed.is_multiple_of(2),
            state,
        }
    }

    fn number(&mut self, below: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state % below
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.number(of.len() as u64)).unwrap()]
    }

    fn step(&mut self) {
        match self.number(16) {
            0..5 => self.write(),
            5..7 => self.flush(),
            7..10 => self.complete(),
            10 => self.cut(),
            11 => self.begin_sync(),
            12..14 => self.sync_step(),
            14 => {
                let (bdi, on) = (self.pick(&self.bdis.clone()), self.number(2) == 0);
                self.cache.set_congested(bdi, on);
            }
            _ => self.now = self.now + Span::millis(1 << self.number(14)),
        }
        while self.cache.wake().is_some() {}
        self.check();
    }

    fn write(&mut self) {
        let writer = self.pick(&self.writers.clone());
        if self.balance(writer) {
            return;
        }
        let inode = self.pick(&self.inodes.clone());
        let start = self.number(PAGES - 1);
        let end = (start + 1 + self.number(40)).min(PAGES);
        let written = self.cache.write(self.now, writer, inode, start..end);
        assert!((1..=end - start).contains(&written.pages));
        for page in start..start + written.pages {
            self.versions.entry((inode, page)).or_default().memory += 1;
        }
    }

    /// Calls `balance`. Returns whether the writer has to wait.
    fn balance(&mut self, writer: WriterId) -> bool {
        let most = 1 + self.number(30);
        match self.cache.balance(self.now, writer, most) {
            Balance::Continue => return false,
            Balance::Sleep { until, .. } => assert!(until > self.now),
            Balance::Write(out) => {
                assert_eq!(out.reason, Reason::Writer(writer));
                self.submit(out, most);
            }
        }
        true
    }

    fn flush(&mut self) {
        let (bdi, most) = (self.pick(&self.bdis.clone()), 1 + self.number(30));
        if self.syncs_devices && self.number(10) == 0 {
            self.cache.sync(self.now, bdi);
        }
        match self.cache.flush(self.now, bdi, most) {
            Flush::Write(out) => {
                assert_eq!(out.bdi, bdi);
                self.submit(out, most);
            }
            Flush::Sleep { until, .. } => assert!(until.is_none_or(|until| until > self.now)),
        }
    }

    fn submit(&mut self, out: WriteOut, most: u64) {
        assert!((1..=most).contains(&(out.pages.end - out.pages.start)));
        for page in out.pages.clone() {
            let versions = self.versions.get_mut(&(out.inode, page)).unwrap();
            assert_eq!(versions.under_way, None, "page {page} is written twice at once");
            versions.under_way = Some(versions.memory);
        }
        self.in_flight.push((out.inode, out.pages));
    }

    fn complete(&mut self) {
        if self.in_flight.is_empty() {
            return;
        }
        let at = usize::try_from(self.number(self.in_flight.len() as u64)).unwrap();
        let (inode, pages) = self.in_flight.swap_remove(at);
        let middle = pages.start + 1 + self.number(pages.end - pages.start);
        if middle < pages.end {
            self.in_flight.push((inode, middle..pages.end));
        }
        for page in pages.start..middle {
            let versions = self.versions.get_mut(&(inode, page)).unwrap();
            versions.device = versions.under_way.take().unwrap();
        }
        self.cache.written(self.now, inode, pages.start..middle);
    }

    fn cut(&mut self) {
        let at = usize::try_from(self.number(4)).unwrap();
        let inode = self.inodes[at];
        let cut_from = if self.number(2) == 0 { self.number(PAGES) } else { 0 };
        let dropped: u64 = (cut_from..PAGES)
            .filter(|&page| {
                matches!(
                    self.cache.state(inode, page),
                    PageState::Dirty | PageState::WritebackDirty
                )
            })
            .count() as u64;
        // A file with an fsync in progress is not removed.
        let keeps = self.syncs.iter().any(|sync| sync.fsync.inode() == inode);
        if cut_from == 0 && !keeps && self.in_flight.iter().all(|(of, _)| *of != inode) {
            assert_eq!(self.cache.remove(inode).dirty, dropped);
            self.versions.retain(|(of, _), _| *of != inode);
            self.inodes[at] = self.cache.add_inode(self.bdis[at % 2]);
            return;
        }
        let discarded = self.cache.truncate(inode, cut_from);
        assert_eq!(discarded.dirty, dropped);
        let pages = self.in_flight.iter().filter(|(of, _)| *of == inode);
        let under_writeback = pages.flat_map(|(_, pages)| pages.clone()).filter(|&p| p >= cut_from);
        assert_eq!(discarded.under_writeback, under_writeback.count() as u64);
        for ((of, page), versions) in &mut self.versions {
            if *of == inode && *page >= cut_from {
                // Dropped dirty data counts as never written.
                versions.memory = versions.under_way.unwrap_or(versions.device);
            }
        }
        for sync in &mut self.syncs {
            if sync.fsync.inode() == inode {
                sync.owed.retain(|page, _| *page < cut_from);
            }
        }
    }

    fn begin_sync(&mut self) {
        if self.syncs.len() > 2 {
            return;
        }
        let inode = self.pick(&self.inodes.clone());
        let start = self.number(PAGES);
        let range = if self.number(2) == 0 { 0..u64::MAX } else { start..PAGES };
        let owed =
            self.versions.iter().filter(|((of, page), _)| *of == inode && range.contains(page));
        let owed = owed.map(|((_, page), versions)| (*page, versions.memory)).collect();
        self.syncs.push(Sync { fsync: self.cache.fsync(inode, range), owed });
    }

    fn sync_step(&mut self) {
        let Some(mut sync) = self.syncs.pop() else { return };
        let most = 1 + self.number(30);
        match self.cache.fsync_step(&mut sync.fsync, most) {
            SyncStep::Done => {
                for (page, version) in sync.owed {
                    let device = self.versions[&(sync.fsync.inode(), page)].device;
                    assert!(device >= version, "page {page} is at {device}, owed {version}");
                }
            }
            SyncStep::Wait => {
                assert!(self.in_flight.iter().any(|(inode, _)| *inode == sync.fsync.inode()));
                self.syncs.insert(0, sync);
            }
            SyncStep::Write(out) => {
                // Marks of a file are shared: the first sync to reach a page writes it for all
                // syncs. A sync of the device marks pages too, at a time that the model does not
                // know.
                let of_file = |other: &&Sync| other.fsync.inode() == sync.fsync.inode();
                let all: Vec<&Sync> =
                    self.syncs.iter().filter(of_file).chain(std::iter::once(&sync)).collect();
                let is_owed = |page| {
                    self.syncs_devices || all.iter().any(|sync| sync.owed.contains_key(&page))
                };
                assert!(out.pages.clone().all(is_owed), "{:?} was not dirty then", out.pages);
                self.submit(out, most);
                self.syncs.insert(0, sync);
            }
        }
    }

    fn check(&self) {
        assert_eq!(self.cache.pool().counts(), self.cache.sums());
        let mut by_bdi = [Counts::default(); 2];
        for (at, &inode) in self.inodes.iter().enumerate() {
            let counts = self.cache.inode_counts(inode);
            by_bdi[at % 2].dirty += counts.dirty;
            by_bdi[at % 2].writeback += counts.writeback;
        }
        assert_eq!(self.bdis.map(|bdi| self.cache.pool().bdi_counts(bdi)), by_bdi);
    }

    /// Runs the flushers until everything is written.
    fn settle(&mut self) {
        for bdi in self.bdis {
            self.cache.set_congested(bdi, false);
        }
        let writers = self.writers;
        for _ in 0..100_000 {
            if self.cache.pool().counts() == Counts::default() {
                break;
            }
            self.now = self.now + Span::millis(100);
            // A writer in the middle of its turn holds up its file until it calls again.
            for writer in writers {
                _ = self.balance(writer);
            }
            for bdi in self.bdis {
                for _ in 0..5 {
                    if let Flush::Write(out) = self.cache.flush(self.now, bdi, 1000) {
                        self.submit(out, 1000);
                    }
                }
            }
            while !self.in_flight.is_empty() {
                self.complete();
            }
            while self.cache.wake().is_some() {}
        }
        self.check();
        assert_eq!(self.cache.pool().counts(), Counts::default(), "everything gets written");
        for ((inode, page), versions) in &self.versions {
            assert_eq!(versions.device, versions.memory, "page {page} of {inode:?} is lost");
        }
    }
}

fn run(kernel: Kernel, seed: u64, steps: u32) -> World {
    let mut world = World::new(kernel, seed);
    for _ in 0..steps {
        world.step();
    }
    world
}

#[test]
fn counts_add_up_and_nothing_is_lost_or_written_twice() {
    for (_, kernel) in Kernel::NAMES {
        for seed in 1..150 {
            run(kernel, seed, 300).settle();
        }
    }
}

#[test]
#[should_panic(expected = "is lost")]
fn the_model_sees_a_page_that_is_never_written() {
    let mut world = run(Kernel::V3_1, 7, 50);
    let inode = world.inodes[0];
    world.versions.entry((inode, 3)).or_default().memory += 1;
    world.settle();
}

#[test]
fn the_same_steps_give_the_same_answers() {
    let trace = |seed| {
        let world = run(Kernel::V2_6_24, seed, 400);
        (world.now, world.in_flight, world.cache.pool().counts())
    };
    assert_eq!(trace(3), trace(3));
    assert_ne!(trace(3), trace(4));
}
