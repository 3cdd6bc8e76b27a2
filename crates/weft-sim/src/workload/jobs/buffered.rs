//! Clone of an fio job with buffered I/O: page cache, readahead, throttling and `O_SYNC`.
//!
//! The clone makes one call after the other, because buffered calls of the kernel are synchronous
//! whatever `ioengine` submits them. A write fills pages and is throttled if too many are dirty;
//! with `O_SYNC` the data is durable when the call returns. A read uses pages in memory, and
//! sequential reads run ahead by a window. Pages that were read or written stay in memory until it
//! is full; the oldest are dropped first. The last clone that closes the device writes back its
//! dirty pages, after its time was taken.
//!
//! Source   experiments.md §6; Linux mm/readahead (a window of 128 KiB), block/bdev `blkdev_put`

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::ops::Range;
use std::rc::Rc;

use weft_engine::page_cache::{Balance, Fsync, InodeId, PAGE_BYTES, SyncStep, WriterId};
use weft_engine::{Flags, RequestOp};
use weft_units::{ByteRange, Span, Time};

use super::ledger::{Found, Ledger, Watcher};
use super::{Ask, Ended, Pace};
use crate::machine::{Host, Pid, Process, Thread, Woken};

/// The volume's device as a file that several clones have open, with its pages in memory.
#[derive(Clone, Debug)]
pub struct Device(Rc<RefCell<Pages>>);

#[derive(Debug)]
struct Pages {
    inode: InodeId,
    users: u32,
    present: BTreeSet<u64>,
    order: VecDeque<u64>,
    count_max: usize,
}

impl Device {
    /// Adds the device to the page cache of a machine. Up to `count_max` of its pages stay in
    /// memory for reads; none does at the start.
    #[must_use]
    pub fn new(host: &mut Host, count_max: usize) -> Self {
        let (inode, present, order) = (host.add_file(), BTreeSet::new(), VecDeque::new());
        Self(Rc::new(RefCell::new(Pages { inode, users: 0, present, order, count_max })))
    }

    fn insert(&self, pages: Range<u64>) {
        let mut of = self.0.borrow_mut();
        for page in pages {
            if of.present.insert(page) {
                of.order.push_back(page);
            }
        }
        while of.order.len() > of.count_max {
            let oldest = of.order.pop_front().expect("the order is not empty");
            of.present.remove(&oldest);
        }
    }

    fn inode(&self) -> InodeId {
        self.0.borrow().inode
    }
}

/// A clone with buffered I/O, as a process.
pub struct Buffered {
    thread: Thread,
    pace: Pace,
    device: Device,
    asks: Box<dyn Iterator<Item = Ask>>,
    next: Option<Ask>,
    ledger: Ledger,
    writer: Option<WriterId>,
    state: State,
    now: Option<(Ended, Flags)>,
    /// Pages that are being read, by the name of the request that reads them.
    reading: BTreeMap<u64, Range<u64>>,
    names: u64,
    /// Page after the last read; `ahead` is the page after its readahead.
    read_to: u64,
    ahead: u64,
    dry: bool,
    until_pause: u64,
    last_flushes: u32,
    cpu: u32,
}

#[derive(Debug)]
enum State {
    Asks,
    Pauses,
    Writes {
        pages: Range<u64>,
        balances: bool,
    },
    Reads {
        pages: Range<u64>,
    },
    Syncs(Fsync),
    /// Waits for the answer to the request with this name.
    Waits(u64),
    Closes(Fsync),
    Ended,
}

impl Buffered {
    /// Creates a clone that runs on CPU `cpu` and issues the requests of `asks` at this pace. The
    /// fields of `pace` about several requests in flight are ignored.
    ///
    /// # Panics
    /// Panics if `think_after` of the pace is zero.
    #[must_use]
    pub fn new(
        pid: Pid,
        pace: Pace,
        device: &Device,
        cpu: u32,
        asks: Box<dyn Iterator<Item = Ask>>,
    ) -> Self {
        assert!(pace.think_after > 0, "a pause comes after a request");
        device.0.borrow_mut().users += 1;
        Self {
            thread: Thread::new(pid),
            pace,
            device: device.clone(),
            asks,
            next: None,
            ledger: Ledger::new(&pace),
            writer: None,
            state: State::Asks,
            now: None,
            reading: BTreeMap::new(),
            names: 0,
            read_to: u64::MAX,
            ahead: 0,
            dry: false,
            until_pause: pace.think_after,
            last_flushes: pace.last_flushes,
            cpu,
        }
    }

    /// Calls `watcher` for each request that is counted.
    #[must_use]
    pub fn watched(mut self, watcher: Watcher) -> Self {
        self.ledger.watcher = Some(watcher);
        self
    }

    /// Results for one kind of operation in the measured time.
    #[must_use]
    pub fn found(&self, op: RequestOp) -> &Found {
        self.ledger.found(op)
    }

    /// Length of the measured time; see [`super::Job::measured`].
    #[must_use]
    pub fn measured(&self) -> Span {
        self.ledger.measured(self.dry)
    }

    /// Time at which the clone began, after its delay; `None` before its first run.
    #[must_use]
    pub fn begun(&self) -> Option<Time> {
        self.ledger.begun
    }

    /// Takes the next step. Returns false if the clone waits or has ended.
    fn step(&mut self, host: &mut Host) -> bool {
        match &mut self.state {
            State::Asks => self.ask(host),
            State::Pauses => {
                self.state = State::Asks;
                let until = host.now() + self.pace.think;
                self.sleep(host, until);
                true
            }
            State::Writes { pages, balances } => {
                let writer = self.writer.expect("the clone runs");
                if *balances {
                    match host.balance(writer) {
                        Balance::Continue => *balances = false,
                        Balance::Sleep { until, .. } => self.thread.sleep(host, until),
                        Balance::Write(out) => self.thread.write_out(out, false),
                    }
                } else if pages.is_empty() {
                    self.written(host);
                } else {
                    let written = host.write_pages(writer, self.device.inode(), pages.clone());
                    self.device.insert(pages.start..pages.start + written.pages);
                    pages.start += written.pages;
                    *balances = written.balance;
                    let copied = written.pages * PAGE_BYTES * host.costs().copy / 1000;
                    self.thread.work(host, Span(copied));
                }
                true
            }
            State::Reads { pages } => {
                let needed = pages.clone();
                let waits = |of: &Range<u64>| of.start < needed.end && needed.start < of.end;
                if self.reading.values().any(waits) {
                    return false;
                }
                let bytes = (needed.end - needed.start) * PAGE_BYTES;
                self.thread.work(host, Span(bytes * host.costs().copy / 1000));
                self.end(host);
                true
            }
            State::Syncs(fsync) => match host.fsync_step(self.thread.pid(), fsync) {
                SyncStep::Wait => false,
                SyncStep::Write(out) => {
                    self.thread.write_out(out, true);
                    true
                }
                SyncStep::Done => {
                    let name = self.submit(host, RequestOp::Flush, ByteRange::new(0, 0));
                    self.state = State::Waits(name);
                    true
                }
            },
            State::Waits(_) | State::Ended => false,
            State::Closes(fsync) => match host.fsync_step(self.thread.pid(), fsync) {
                SyncStep::Wait => false,
                SyncStep::Write(out) => {
                    self.thread.write_out(out, false);
                    true
                }
                SyncStep::Done => {
                    self.state = State::Ended;
                    false
                }
            },
        }
    }

    /// Starts the next call, or goes on to the clone's end if there are no more requests. Returns
    /// true, because another step follows.
    fn ask(&mut self, host: &mut Host) -> bool {
        let now = host.now();
        let begun = self.ledger.begun.expect("the clone runs");
        if now < begun {
            self.sleep(host, begun);
            return true;
        }
        if self.next.is_none() && !self.dry && !self.ledger.is_over(now) {
            self.next = self.asks.next();
            self.dry = self.next.is_none();
        }
        let Some(ask) = self.next.filter(|_| !self.ledger.is_over(now)) else {
            return self.finish(host);
        };
        let due = begun + ask.due;
        if due > now {
            self.sleep(host, due);
            return true;
        }
        self.next = None;
        let Ask { io, flags, .. } = ask;
        self.now = Some((Ended { io, due, begun: now, ended: now, in_flight: 1 }, flags));
        self.ledger.deepest = 1;
        self.ledger.handed_over(1);
        self.thread.work(host, Span(host.costs().syscall));
        let pages =
            io.range.start.0 / PAGE_BYTES..(io.range.start.0 + io.range.len.0).div_ceil(PAGE_BYTES);
        self.state = match io.op {
            RequestOp::Write => State::Writes { pages, balances: false },
            RequestOp::Read => {
                self.read_ahead(host, &pages);
                State::Reads { pages }
            }
            RequestOp::Flush => State::Syncs(host.fsync(self.device.inode())),
            RequestOp::Trim | RequestOp::WriteZeroes => {
                State::Waits(self.submit(host, io.op, io.range))
            }
        };
        true
    }

    /// Requests the pages of a read that are not in memory, and those of the readahead.
    fn read_ahead(&mut self, host: &mut Host, pages: &Range<u64>) {
        let window = WINDOW / PAGE_BYTES;
        let from = if pages.start == self.read_to {
            self.ahead.max(pages.start)
        } else {
            self.ahead = pages.start;
            pages.start
        };
        let follows = pages.start == self.read_to || pages.start == 0;
        let device_pages = host.size().0 / PAGE_BYTES;
        let mut to = pages.end;
        if follows && self.ahead < pages.end + window {
            to = (pages.end + 2 * window).min(device_pages).max(pages.end);
        }
        self.read_to = pages.end;
        let mut page = from;
        while page < to {
            let missing = |page: u64| !self.device.0.borrow().present.contains(&page);
            if !missing(page) {
                page += 1;
                continue;
            }
            let most = to.min(page + window);
            let end = (page..most).find(|page| !missing(*page)).unwrap_or(most);
            let range = ByteRange::new(page * PAGE_BYTES, (end - page) * PAGE_BYTES);
            let name = self.submit(host, RequestOp::Read, range);
            self.reading.insert(name, page..end);
            page = end;
        }
        self.ahead = self.ahead.max(to);
    }

    /// Ends a write once its last page is in memory; with `O_SYNC`, starts its sync instead.
    fn written(&mut self, host: &mut Host) {
        if self.now.is_some_and(|(_, flags)| flags.fua) {
            self.state = State::Syncs(host.fsync(self.device.inode()));
        } else {
            self.end(host);
        }
    }

    /// Ends the present call and counts it.
    fn end(&mut self, host: &Host) {
        let now = host.now();
        let (ended, _) = self.now.take().expect("a call that returns was made");
        self.ledger.answered(1);
        let last = (self.dry || self.ledger.is_over(now)) && ended.io.op == RequestOp::Flush;
        self.ledger.end(Ended { ended: now, ..ended }, last && self.pace.last_flushes > 0);
        self.state = State::Asks;
        self.until_pause -= 1;
        if self.until_pause == 0 {
            self.until_pause = self.pace.think_after;
            if self.pace.think > Span::ZERO {
                self.state = State::Pauses;
            }
        }
    }

    /// Makes the next one of the last flushes, or ends the clone after all of them. Returns true,
    /// because another step follows. Called when there are no more requests.
    fn finish(&mut self, host: &mut Host) -> bool {
        let now = host.now();
        if self.last_flushes > 0 {
            self.last_flushes -= 1;
            let io = super::Io { op: RequestOp::Flush, range: ByteRange::new(0, 0) };
            let ended = Ended { io, due: now, begun: now, ended: now, in_flight: 1 };
            self.now = Some((ended, Flags::NONE));
            self.state = State::Syncs(host.fsync(self.device.inode()));
            return true;
        }
        self.state = State::Ended;
        self.ledger.seen = now;
        let mut device = self.device.0.borrow_mut();
        device.users -= 1;
        if device.users == 0 {
            self.state = State::Closes(host.fsync(device.inode));
        }
        true
    }

    fn submit(&mut self, host: &mut Host, op: RequestOp, range: ByteRange) -> u64 {
        let name = self.names;
        self.names += 1;
        let flags = Flags { sync: op != RequestOp::Read, ..Flags::NONE };
        self.thread.submit(host, name, op, range, flags);
        name
    }

    fn sleep(&mut self, host: &mut Host, until: Time) {
        let until = self.ledger.to().map_or(until, |to| until.min(to));
        self.thread.sleep(host, until);
    }
}

impl Process for Buffered {
    fn run(&mut self, host: &mut Host, woken: Woken) {
        let now = host.now();
        if self.ledger.begin(now) {
            self.writer = Some(host.add_writer(self.thread.pid(), self.cpu));
        }
        if !matches!(self.state, State::Closes(_) | State::Ended) {
            self.ledger.measure_until(now, u32::from(self.now.is_some()));
        }
        match woken {
            Woken::Done(name) => {
                if let Some(pages) = self.reading.remove(&name) {
                    self.device.insert(pages);
                }
                if matches!(self.state, State::Waits(waits) if waits == name) {
                    self.end(host);
                }
            }
            // The page cache lets the clone continue.
            Woken::Message(_) => self.thread.stop_sleeping(),
            Woken::Started | Woken::Timer | Woken::Unblocked => {}
        }
        while self.thread.goes_on(host) && self.step(host) {}
    }

    fn is_done(&self) -> bool {
        matches!(self.state, State::Ended) && self.reading.is_empty()
    }
}

impl fmt::Debug for Buffered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffered").field("pace", &self.pace).field("state", &self.state).finish()
    }
}

/// Window of readahead for sequential reads, in bytes.
const WINDOW: u64 = 128 << 10;
