//! Files on volumes: the page cache, its flushers, and the location of each file's pages.
//!
//! The machine uses the engine's page cache. Each volume is a device of it, and the flusher of each
//! device is a process. Pages are written in requests of limited size. When a request completes,
//! the page cache is told, and processes that wait for these pages are woken.

use std::collections::BTreeMap;
use std::ops::Range;

use weft_engine::page_cache::{
    Balance, BdiId, Flush, Fsync, InodeId, PAGE_BYTES, PageCache, PoolConfig, SyncStep, Wake,
    WriteOut, WriterId, Written,
};
use weft_engine::{Congestion, Flags, RequestOp};
use weft_units::{ByteRange, Bytes, Span, VolumeId};

use super::host::{AnswerReceiver, Host};
use super::thread::Thread;
use super::{Machine, Pid, Process, Woken};

/// Allocator that decides where the pages of files are on the volume.
pub trait PageAllocator: std::fmt::Debug {
    /// Returns the position of a page on the file's volume, and how many of the `count` pages from
    /// this one on are contiguous there. Pages without a position are allocated.
    fn place(&mut self, inode: InodeId, page: u64, count: u64) -> (Bytes, u64);
}

/// A page cache to be put in front of a machine's volumes, and the way in which threads write its
/// pages.
#[derive(Debug)]
pub struct PageCacheParts {
    /// Configuration of the page cache.
    pub pool: PoolConfig,
    /// Allocator of the pages of all files.
    pub places: Box<dyn PageAllocator>,
    /// Largest request in which pages are written, in bytes.
    pub bio: Bytes,
    /// CPU time for each page that a thread writes, beside that of the page's request.
    pub page: Span,
    /// Whether a thread that writes pages sleeps until each request has a token of its disk's queue
    /// (`nr_requests`), as threads of the kernel do that write to a disk without an array. The
    /// engine's work must cost nothing, because the thread submits the request itself.
    pub sleeps_for_token: bool,
}

/// The page cache of a machine, and its files.
#[derive(Debug)]
pub(super) struct Files {
    cache: PageCache,
    places: Box<dyn PageAllocator>,
    /// Largest number of pages in a request that writes pages.
    bio_pages: u64,
    /// CPU time for each page that a thread writes.
    pub(super) page: Span,
    pub(super) sleeps_for_token: bool,
    /// Process number of each volume's flusher.
    flushers: Vec<Pid>,
    /// Number of pages that have been written to volumes.
    written: u64,
    writers: BTreeMap<WriterId, Pid>,
    /// Processes that wait until pages of a file have been written.
    waiters: BTreeMap<InodeId, Vec<Pid>>,
}

impl Machine {
    /// Puts a page cache in front of the volume and starts its flusher. `places` allocates the
    /// pages of files; `bio` is the largest request in which pages are written.
    pub fn add_page_cache(&mut self, pool: PoolConfig, places: Box<dyn PageAllocator>, bio: Bytes) {
        let (page, sleeps_for_token) = (Span::ZERO, false);
        self.add_page_cache_of(PageCacheParts { pool, places, bio, page, sleeps_for_token });
    }

    /// Puts a page cache in front of all volumes and starts a flusher for each.
    pub fn add_page_cache_of(&mut self, parts: PageCacheParts) {
        let PageCacheParts { pool, places, bio, page, sleeps_for_token } = parts;
        let mut cache = PageCache::new(pool);
        let flushers = (0..self.host.volumes()).map(|_| {
            let bdi = cache.add_bdi(self.host.now());
            self.add_with(|pid| Box::new(Flusher { thread: Thread::new(pid), bdi }))
        });
        let flushers = flushers.collect();
        self.host.files = Some(Files {
            cache,
            places,
            bio_pages: (bio.0 / PAGE_BYTES).max(1),
            page,
            sleeps_for_token,
            flushers,
            written: 0,
            writers: BTreeMap::new(),
            waiters: BTreeMap::new(),
        });
    }
}

impl Host {
    /// The page cache in front of the volume.
    ///
    /// # Panics
    /// Panics if the machine has no page cache, as all methods for files do.
    #[must_use]
    pub fn page_cache(&self) -> &PageCache {
        &self.files().cache
    }

    /// Dirty bytes in the page cache; 0 without a page cache.
    #[must_use]
    pub fn dirty_bytes(&self) -> Bytes {
        let pages = self.files.as_ref().map_or(0, |files| files.cache.sums().dirty);
        Bytes(pages * PAGE_BYTES)
    }

    /// Adds a file on the first volume to the page cache. Returns the file's number.
    pub fn add_file(&mut self) -> InodeId {
        self.add_file_on(VolumeId(0))
    }

    /// Adds a file on a volume to the page cache. Returns the file's number.
    pub fn add_file_on(&mut self, volume: VolumeId) -> InodeId {
        self.files_mut().cache.add_inode(BdiId(volume.0))
    }

    /// Number of pages of files that have been written to volumes since the start.
    #[must_use]
    pub fn written_pages(&self) -> u64 {
        self.files().written
    }

    /// Position of a page of a file on its volume, and the number of pages, at most `count`, that
    /// are contiguous from there on; see [`PageAllocator::place`].
    pub fn place(&mut self, inode: InodeId, page: u64, count: u64) -> (Bytes, u64) {
        self.files_mut().places.place(inode, page, count)
    }

    /// Registers a process with the page cache, as a writer of files that runs on CPU `cpu`.
    /// Returns its number as a writer.
    pub fn add_writer(&mut self, pid: Pid, cpu: u32) -> WriterId {
        let files = self.files_mut();
        let writer = files.cache.add_writer(cpu);
        files.writers.insert(writer, pid);
        writer
    }

    /// Dirties pages of a file, at least the first of them. Returns how many, and whether the
    /// writer must call [`Host::balance`] before it continues; see [`PageCache::write`].
    pub fn write_pages(&mut self, writer: WriterId, inode: InodeId, pages: Range<u64>) -> Written {
        let now = self.now;
        let written = self.files_mut().cache.write(now, writer, inode, pages);
        self.wake_for_files();
        written
    }

    /// Decision of the page cache whether a writer is throttled; see [`PageCache::balance`].
    pub fn balance(&mut self, writer: WriterId) -> Balance {
        let now = self.now;
        let files = self.files_mut();
        let pages = files.bio_pages;
        let balance = files.cache.balance(now, writer, pages);
        self.wake_for_files();
        balance
    }

    /// Begins an fsync of a whole file. [`Host::fsync_step`] carries out the result.
    pub fn fsync(&mut self, inode: InodeId) -> Fsync {
        self.files_mut().cache.fsync(inode, 0..u64::MAX)
    }

    /// Next step of an fsync; see [`PageCache::fsync_step`]. If the process has to wait, it is
    /// woken when pages of the file are written.
    pub fn fsync_step(&mut self, pid: Pid, fsync: &mut Fsync) -> SyncStep {
        let files = self.files_mut();
        let pages = files.bio_pages;
        let step = files.cache.fsync_step(fsync, pages);
        if step == SyncStep::Wait {
            files.waiters.entry(fsync.inode()).or_default().push(pid);
        }
        self.wake_for_files();
        step
    }

    /// Whether any page of a file is under writeback. If so, the process is woken when pages of the
    /// file are written.
    pub fn awaits_pages(&mut self, pid: Pid, inode: InodeId) -> bool {
        let files = self.files_mut();
        let awaits = files.cache.under_writeback(inode, 0..u64::MAX).is_some();
        if awaits {
            files.waiters.entry(inode).or_default().push(pid);
        }
        awaits
    }

    /// Removes a file. Its dirty pages are dropped.
    pub fn remove_file(&mut self, inode: InodeId) {
        self.files_mut().cache.remove(inode);
        self.wake_for_files();
    }

    /// Drops the dirty pages of a file from page `first` on.
    pub fn truncate(&mut self, inode: InodeId, first: u64) {
        self.files_mut().cache.truncate(inode, first);
        self.wake_for_files();
    }

    /// Submits a request that writes the first pages of `out`, and removes them from it.
    pub(super) fn send_pages(&mut self, pid: Pid, out: &mut WriteOut, sync: bool) {
        let files = self.files_mut();
        let count = (out.pages.end - out.pages.start).min(files.bio_pages);
        let (start, count) = files.places.place(out.inode, out.pages.start, count);
        let pages = out.pages.start..out.pages.start + count;
        out.pages.start += count;
        let asked = AnswerReceiver::Pages { pid, inode: out.inode, pages };
        let flags = Flags { sync, ..Flags::NONE };
        let range = ByteRange::new(start.0, count * PAGE_BYTES);
        self.request(VolumeId(out.bdi.0), asked, RequestOp::Write, range, flags);
    }

    pub(super) fn pages_written(&mut self, inode: InodeId, pages: Range<u64>) {
        let now = self.now;
        let files = self.files_mut();
        files.written += pages.end - pages.start;
        files.cache.written(now, inode, pages);
        self.wake_for_files();
    }

    /// Passes the present congestion of the first volume to the page cache. No other volume ever
    /// counts as congested.
    pub(super) fn tell_page_cache(&mut self) {
        let congested = self.congestion() > Congestion::None;
        let Some(files) = &mut self.files else { return };
        files.cache.set_congested(BdiId(0), congested);
        self.wake_for_files();
    }

    fn wake_for_files(&mut self) {
        while let Some(wake) = self.files_mut().cache.wake() {
            let files = self.files_mut();
            match wake {
                Wake::Flusher(bdi) => {
                    let flusher = files.flushers[usize::from(bdi.0)];
                    self.tell(flusher, 0);
                }
                Wake::Inode(inode) => {
                    for pid in files.waiters.remove(&inode).unwrap_or_default() {
                        self.tell(pid, 0);
                    }
                }
                Wake::Synced(_) => {}
                Wake::Writer(writer) => {
                    let pid = files.writers[&writer];
                    self.tell(pid, 0);
                }
            }
        }
    }

    pub(super) fn files(&self) -> &Files {
        self.files.as_ref().expect("the machine has a page cache")
    }

    fn files_mut(&mut self) -> &mut Files {
        self.files.as_mut().expect("the machine has a page cache")
    }

    fn flush(&mut self, bdi: BdiId) -> Flush {
        let now = self.now;
        let files = self.files_mut();
        let flush = files.cache.flush(now, bdi, files.bio_pages);
        self.wake_for_files();
        flush
    }
}

/// The kernel thread that writes back a device's dirty pages.
#[derive(Debug)]
pub struct Flusher {
    thread: Thread,
    bdi: BdiId,
}

impl Process for Flusher {
    fn run(&mut self, host: &mut Host, woken: Woken) {
        // Any wake-up but the timer ends its sleep, because the page cache may have new work.
        if woken != Woken::Timer {
            self.thread.stop_sleeping();
        }
        while self.thread.goes_on(host) {
            match host.flush(self.bdi) {
                Flush::Write(out) => self.thread.write_out(out, false),
                Flush::Sleep { until: Some(until), .. } => self.thread.sleep(host, until),
                Flush::Sleep { until: None, .. } => return,
            }
        }
    }

    fn is_done(&self) -> bool {
        true
    }
}
