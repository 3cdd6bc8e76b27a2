//! Workload `tiobench`: threads that write and read files in four phases.
//!
//! Several threads, each with a file of its own, go through up to four phases in which all do the
//! same: sequential writes, random writes, sequential reads, random reads. Each thread fsyncs and
//! closes its file at the end of a phase. A phase lasts from the start of its threads until the
//! last one has closed its file, so the fsyncs are included.
//!
//! No content of a file stays in memory once it is written: every read goes to the volume. In the
//! measured runs the files were twice as large as the memory, so sequential reads would have found
//! nothing in it, and random reads at most half of their data. Sequential reads run ahead by a
//! window of 128 KiB. If anything was written, an fsync ends with a record of 32 KiB in the file
//! system's log.
//!
//! Source   experiments.md §1.1; tiobench's `tiotest.c` for what is timed

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use weft_engine::page_cache::{Balance, Fsync, InodeId, PAGE_BYTES, SyncStep, WriterId};
use weft_engine::{Flags, RequestOp};
use weft_units::rng::Rng;
use weft_units::{ByteRange, Bytes, Span, Time};

use crate::machine::{Host, Machine, Pid, Process, Thread, Woken};

/// Arguments of `tiobench`, and the machine that it runs on.
#[derive(Clone, Debug)]
pub struct Tiobench {
    /// Number of threads (`--threads`).
    pub threads: u32,
    /// Size of all files together (`--size`).
    pub size: Bytes,
    /// Bytes of a request (`--block`).
    pub block: Bytes,
    /// Operations of all threads together in a random phase (`--random`).
    pub random: u64,
    /// Phases, in the order in which they run.
    pub phases: Vec<Phase>,
    /// Number of CPUs of the machine, to which threads are assigned in turn.
    pub cpus: u32,
    /// Whether writes of an fsync carry the `sync` flag, as in current kernels and unlike 2.6.24.
    pub sync_flag: bool,
    /// Byte range of the file system's log.
    pub log: ByteRange,
    /// Seed of the random offsets.
    pub seed: u64,
}

/// A phase. All threads are in the same phase at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Sequential writes of each thread to its own file.
    Write,
    /// Random writes of each thread to its own file.
    RandomWrite,
    /// Sequential reads of each thread from its own file.
    Read,
    /// Random reads of each thread from its own file.
    RandomRead,
}

impl Phase {
    /// All phases, in `tiotest`'s order.
    pub const ALL: [Self; 4] = [Self::Write, Self::RandomWrite, Self::Read, Self::RandomRead];

    fn writes(self) -> bool {
        matches!(self, Self::Write | Self::RandomWrite)
    }

    fn random(self) -> bool {
        matches!(self, Self::RandomWrite | Self::RandomRead)
    }
}

/// Times and counts of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timed {
    /// The phase that was measured.
    pub phase: Phase,
    /// Time at which the threads started the phase.
    pub began: Time,
    /// Time at which the last thread had completed its last operation, before its fsync.
    pub operated: Time,
    /// Time at which the last thread had closed its file.
    pub ended: Time,
    /// Number of operations of all threads.
    pub operations: u64,
    /// Number of bytes of all threads.
    pub bytes: Bytes,
}

impl Timed {
    /// Bytes per second, over the time that includes the fsyncs.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.bytes.0 as f64 / (self.ended.since(self.began).0 as f64 / 1e9)
    }
}

impl Tiobench {
    /// Arguments of the runs that patch 000 reports. Threads and block size differ between these
    /// runs.
    #[must_use]
    pub fn published(threads: u32, block: Bytes, log: ByteRange, seed: u64) -> Self {
        let (size, random, phases) = (Bytes::mib(2048), 4000, Phase::ALL.to_vec());
        Self { threads, size, block, random, phases, cpus: 4, sync_flag: false, log, seed }
    }

    /// Size of each thread's file, in whole blocks.
    #[must_use]
    pub fn file_size(&self) -> Bytes {
        Bytes(self.size.0 / u64::from(self.threads) / self.block.0 * self.block.0)
    }

    /// Adds the workload to a machine that has a page cache. Returns the number of the process that
    /// starts the threads, a [`Run`].
    ///
    /// # Panics
    /// Panics if there are no threads or no phases, if a block is not a whole number of pages, or
    /// if a file has no block.
    pub fn add_to(&self, machine: &mut Machine) -> Pid {
        assert!(self.threads > 0 && !self.phases.is_empty(), "there are threads and phases");
        let block = self.block.0;
        assert!(block > 0 && block.is_multiple_of(PAGE_BYTES), "blocks of whole pages");
        assert!(self.file_size().0 > 0, "a block in each file");
        let parent = machine.add_with(|pid| {
            let children = (1..=self.threads).map(|n| Pid(pid.0 + n)).collect();
            let (phases, block) = (self.phases.clone(), self.block);
            Box::new(Run { children, phases, block, left: 0, timed: Vec::new() })
        });
        let log_head = Rc::new(Cell::new(0));
        for nth in 0..self.threads {
            let (of, log_head) = (self.clone(), Rc::clone(&log_head));
            machine.add_with(|pid| Box::new(Child::new(pid, parent, nth, of, log_head)));
        }
        parent
    }
}

/// Process that starts the threads of each phase and waits for them.
#[derive(Debug)]
pub struct Run {
    children: Vec<Pid>,
    phases: Vec<Phase>,
    block: Bytes,
    /// Number of threads that are still in the phase.
    left: usize,
    timed: Vec<Timed>,
}

impl Run {
    /// Times and counts of the phases that have begun.
    #[must_use]
    pub fn timed(&self) -> &[Timed] {
        &self.timed
    }

    fn start(&mut self, host: &mut Host) {
        let Some(phase) = self.phases.get(self.timed.len()) else { return };
        let now = host.now();
        self.left = self.children.len();
        self.timed.push(Timed {
            phase: *phase,
            began: now,
            operated: now,
            ended: now,
            operations: 0,
            bytes: Bytes::ZERO,
        });
        for child in &self.children {
            host.tell(*child, self.timed.len() as u64);
        }
    }
}

impl Process for Run {
    fn run(&mut self, host: &mut Host, woken: Woken) {
        match woken {
            Woken::Started => self.start(host),
            Woken::Message(message) => {
                let timed = self.timed.last_mut().expect("a phase has begun");
                if message == OPERATED {
                    timed.operated = host.now();
                    return;
                }
                timed.ended = host.now();
                timed.operations += message;
                timed.bytes = Bytes(timed.operations * self.block.0);
                self.left -= 1;
                if self.left == 0 {
                    self.start(host);
                }
            }
            Woken::Done(_) | Woken::Timer | Woken::Unblocked => {}
        }
    }

    fn is_done(&self) -> bool {
        self.left == 0 && self.timed.len() == self.phases.len()
    }
}

/// Message of a thread to its parent after its last operation. After closing its file, the thread
/// sends the number of its operations instead.
const OPERATED: u64 = u64::MAX;

/// Window of readahead for sequential reads, in bytes.
const WINDOW: u64 = 128 << 10;

/// Bytes that an fsync after writes adds to the log.
const LOG_RECORD: u64 = 32 << 10;

/// Name of a request that writes to the log. Requests that read have the number of their window as
/// name.
const LOG_WRITE: u64 = u64::MAX;

/// A thread of `tiotest`, which carries out the operations of each phase.
#[derive(Debug)]
struct Child {
    thread: Thread,
    parent: Pid,
    of: Tiobench,
    rng: Rng,
    /// Writer number of the thread in the page cache, and the thread's file; `None` before the
    /// first run.
    who: Option<(WriterId, InodeId)>,
    cpu: u32,
    log_head: Rc<Cell<u64>>,
    phases: u64,
    state: State,
}

#[derive(Debug)]
enum State {
    Rests,
    Operates(Operations),
    Syncs { fsync: Fsync, operations: u64, logs: bool },
    Logs { operations: u64, asked: bool, done: bool },
}

/// Operations of a thread in one phase.
#[derive(Debug)]
struct Operations {
    phase: Phase,
    /// Number of operations in the phase. `done` is the number of finished ones.
    count: u64,
    done: u64,
    /// Pages that are left of the current operation; empty if it has not begun.
    pages: Range<u64>,
    balances: bool,
    /// Number of windows requested so far. `reading` maps windows to their numbers of outstanding
    /// requests.
    windows: u64,
    reading: BTreeMap<u64, u32>,
}

impl Child {
    fn new(pid: Pid, parent: Pid, nth: u32, of: Tiobench, log_head: Rc<Cell<u64>>) -> Self {
        let cpu = nth % of.cpus.max(1);
        let rng = Rng::new(of.seed ^ (u64::from(nth) << 32));
        Self {
            thread: Thread::new(pid),
            parent,
            of,
            rng,
            who: None,
            cpu,
            log_head,
            phases: 0,
            state: State::Rests,
        }
    }

    fn begin(&mut self) {
        let phase = self.of.phases[self.phases as usize];
        self.phases += 1;
        let count = if phase.random() {
            self.of.random / u64::from(self.of.threads)
        } else {
            self.of.file_size().0 / self.of.block.0
        };
        self.state = State::Operates(Operations {
            phase,
            count,
            done: 0,
            pages: 0..0,
            balances: false,
            windows: 0,
            reading: BTreeMap::new(),
        });
    }

    /// Takes the next step. Returns false if the thread waits or has nothing to do.
    fn step(&mut self, host: &mut Host) -> bool {
        let (writer, inode) = self.who.expect("the thread has begun");
        match &mut self.state {
            State::Rests => false,
            State::Operates(operations) => {
                if operations.balances {
                    operations.balance(host, &mut self.thread, writer);
                    return true;
                }
                if operations.done == operations.count {
                    let (operations, logs) = (operations.done, operations.phase.writes());
                    host.tell(self.parent, OPERATED);
                    let fsync = host.fsync(inode);
                    self.state = State::Syncs { fsync, operations, logs };
                    return true;
                }
                if operations.pages.is_empty() {
                    let blocks = self.of.file_size().0 / self.of.block.0;
                    let block = if operations.phase.random() {
                        self.rng.below(blocks)
                    } else {
                        operations.done
                    };
                    let pages = self.of.block.0 / PAGE_BYTES;
                    operations.pages = block * pages..(block + 1) * pages;
                    if operations.phase.writes() {
                        self.thread.work(host, Span(host.costs().syscall));
                    }
                }
                if operations.phase.writes() {
                    operations.write(host, &mut self.thread, writer, inode);
                    true
                } else {
                    let file = self.of.file_size().0;
                    operations.read(host, &mut self.thread, inode, file)
                }
            }
            State::Syncs { fsync, operations, logs } => {
                match host.fsync_step(self.thread.pid(), fsync) {
                    SyncStep::Wait => return false,
                    SyncStep::Write(out) => self.thread.write_out(out, self.of.sync_flag),
                    SyncStep::Done => {
                        let (asked, done) = (!*logs, !*logs);
                        self.state = State::Logs { operations: *operations, asked, done };
                    }
                }
                true
            }
            State::Logs { asked: asked @ false, .. } => {
                *asked = true;
                let records = self.of.log.len.0 / LOG_RECORD;
                let at = self.log_head.get();
                self.log_head.set((at + 1) % records);
                let at = self.of.log.start.0 + at * LOG_RECORD;
                let flags = Flags { sync: self.of.sync_flag, ..Flags::NONE };
                let range = ByteRange::new(at, LOG_RECORD);
                host.submit(self.thread.pid(), LOG_WRITE, RequestOp::Write, range, flags);
                self.thread.work(host, Span(host.costs().bio));
                host.settle();
                true
            }
            State::Logs { done: false, .. } => false,
            State::Logs { operations, .. } => {
                host.tell(self.parent, *operations);
                self.state = State::Rests;
                false
            }
        }
    }
}

impl Operations {
    /// Throttles the thread after a write that exceeded a dirty limit.
    fn balance(&mut self, host: &mut Host, thread: &mut Thread, writer: WriterId) {
        match host.balance(writer) {
            Balance::Continue => self.balances = false,
            Balance::Sleep { until, .. } => thread.sleep(host, until),
            Balance::Write(out) => thread.write_out(out, false),
        }
    }

    fn write(&mut self, host: &mut Host, thread: &mut Thread, writer: WriterId, inode: InodeId) {
        let written = host.write_pages(writer, inode, self.pages.clone());
        thread.work(host, Span(written.pages * PAGE_BYTES * host.costs().copy / 1000));
        self.pages.start += written.pages;
        self.balances = written.balance;
        self.done += u64::from(self.pages.is_empty());
    }

    /// Reads the pages of the current operation. Returns false if their data is still outstanding.
    fn read(&mut self, host: &mut Host, thread: &mut Thread, inode: InodeId, file: u64) -> bool {
        let bytes = self.pages.start * PAGE_BYTES..self.pages.end * PAGE_BYTES;
        if self.phase.random() {
            // A random read is a window of its own.
            if self.windows == self.done {
                self.ask(host, thread, inode, bytes.clone());
            }
        } else {
            // A read that reaches a window requests the next one.
            let last = (bytes.end - 1) / WINDOW + 1;
            while self.windows <= last && self.windows * WINDOW < file {
                let start = self.windows * WINDOW;
                self.ask(host, thread, inode, start..(start + WINDOW).min(file));
            }
        }
        let needed = if self.phase.random() { self.done } else { (bytes.end - 1) / WINDOW };
        if self.reading.range(..=needed).next().is_some() {
            return false;
        }
        let call = host.costs().of_call(bytes.end - bytes.start);
        thread.work(host, call);
        self.pages = 0..0;
        self.done += 1;
        true
    }

    /// Requests the bytes of the next window.
    fn ask(&mut self, host: &mut Host, thread: &mut Thread, inode: InodeId, bytes: Range<u64>) {
        let (mut page, end) = (bytes.start / PAGE_BYTES, bytes.end.div_ceil(PAGE_BYTES));
        while page < end {
            let (start, count) = host.place(inode, page, end - page);
            let range = ByteRange::new(start.0, count * PAGE_BYTES);
            // The flag of readahead is not set, because such a read may be refused and is not
            // repeated here.
            let flags = Flags::NONE;
            host.submit(thread.pid(), self.windows, RequestOp::Read, range, flags);
            thread.work(host, Span(host.costs().bio));
            *self.reading.entry(self.windows).or_default() += 1;
            page += count;
        }
        self.windows += 1;
    }
}

impl Process for Child {
    fn run(&mut self, host: &mut Host, woken: Woken) {
        let pid = self.thread.pid();
        let cpu = self.cpu;
        self.who.get_or_insert_with(|| (host.add_writer(pid, cpu), host.add_file()));
        match woken {
            Woken::Message(message) if message > self.phases => self.begin(),
            // The page cache lets the thread continue.
            Woken::Message(_) => self.thread.stop_sleeping(),
            Woken::Done(LOG_WRITE) => {
                if let State::Logs { done, .. } = &mut self.state {
                    *done = true;
                }
            }
            Woken::Done(window) => {
                if let State::Operates(operations) = &mut self.state {
                    let left =
                        operations.reading.get_mut(&window).expect("the window was requested");
                    *left -= 1;
                    if *left == 0 {
                        operations.reading.remove(&window);
                    }
                }
            }
            Woken::Started | Woken::Timer | Woken::Unblocked => {}
        }
        while self.thread.goes_on(host) && self.step(host) {}
    }

    fn is_done(&self) -> bool {
        self.phases as usize == self.of.phases.len() && matches!(self.state, State::Rests)
    }
}
