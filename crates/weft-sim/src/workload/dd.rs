//! Workload `dd if=/dev/zero of=/dev/mdX bs=… count=…`.
//!
//! The process fills the page cache of the block device with one `write` after the other, is
//! throttled by the page cache, and closes the device. The last close writes back all dirty pages,
//! and `dd` reads the clock after that.
//!
//! Source   experiments.md §1.1; coreutils `dd.c` for when the clock is read

use weft_engine::page_cache::{Balance, Fsync, InodeId, PAGE_BYTES, SyncStep, WriterId};
use weft_units::{Bytes, Span, Time};

use crate::machine::{Host, PageAllocator, Pid, Process, Thread, Woken};

/// A block device as a file: each page has its own offset on the volume.
#[derive(Clone, Copy, Debug)]
pub struct Device;

impl PageAllocator for Device {
    fn place(&mut self, _: InodeId, page: u64, count: u64) -> (Bytes, u64) {
        (Bytes(page * PAGE_BYTES), count)
    }
}

/// The process `dd if=/dev/zero of=/dev/mdX`.
#[derive(Debug)]
pub struct Dd {
    thread: Thread,
    block: u64,
    count: u64,
    /// Writer number of the process in the page cache, and the device's file; `None` before the
    /// first run.
    writer: Option<(WriterId, InodeId)>,
    /// Number of pages written to the page cache so far.
    at: u64,
    state: State,
    /// Time at which the last byte was in the page cache; `None` before that.
    pub written: Option<Time>,
    /// Time at which the device was closed and all data written; `None` before that.
    pub closed: Option<Time>,
}

#[derive(Debug)]
enum State {
    Writes,
    Balances,
    Closes(Fsync),
}

impl Dd {
    /// A process that makes `count` writes of `block` bytes each.
    ///
    /// # Panics
    /// Panics if a block is not a whole number of pages.
    #[must_use]
    pub fn new(pid: Pid, block: Bytes, count: u64) -> Self {
        assert!(block.0 > 0 && block.0.is_multiple_of(PAGE_BYTES), "blocks of whole pages");
        Self {
            thread: Thread::new(pid),
            block: block.0 / PAGE_BYTES,
            count,
            writer: None,
            at: 0,
            state: State::Writes,
            written: None,
            closed: None,
        }
    }

    /// Number of bytes that the process writes in all.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        Bytes(self.block * self.count * PAGE_BYTES)
    }

    /// Number of bytes that are in the page cache so far.
    #[must_use]
    pub fn done(&self) -> Bytes {
        Bytes(self.at * PAGE_BYTES)
    }

    fn step(&mut self, host: &mut Host, (writer, inode): (WriterId, InodeId)) -> bool {
        match &mut self.state {
            State::Writes => {
                if self.at == self.block * self.count {
                    self.written = Some(host.now());
                    self.state = State::Closes(host.fsync(inode));
                    return true;
                }
                let end = (self.at / self.block + 1) * self.block;
                let written = host.write_pages(writer, inode, self.at..end);
                let call =
                    if self.at.is_multiple_of(self.block) { host.costs().syscall } else { 0 };
                let copied = written.pages * PAGE_BYTES * host.costs().copy / 1000;
                self.thread.work(host, Span(call + copied));
                self.at += written.pages;
                if written.balance {
                    self.state = State::Balances;
                }
            }
            State::Balances => match host.balance(writer) {
                Balance::Continue => self.state = State::Writes,
                Balance::Sleep { until, .. } => self.thread.sleep(host, until),
                Balance::Write(out) => self.thread.write_out(out, false),
            },
            State::Closes(fsync) => match host.fsync_step(self.thread.pid(), fsync) {
                SyncStep::Done => {
                    self.closed = Some(host.now());
                    return false;
                }
                SyncStep::Wait => return false,
                SyncStep::Write(out) => self.thread.write_out(out, false),
            },
        }
        true
    }
}

impl Process for Dd {
    fn run(&mut self, host: &mut Host, woken: Woken) {
        if self.closed.is_some() {
            return;
        }
        if matches!(woken, Woken::Message(_)) {
            self.thread.stop_sleeping();
        }
        let who = *self
            .writer
            .get_or_insert_with(|| (host.add_writer(self.thread.pid(), 0), host.add_file()));
        while self.thread.goes_on(host) && self.step(host, who) {}
    }

    fn is_done(&self) -> bool {
        self.closed.is_some()
    }
}
