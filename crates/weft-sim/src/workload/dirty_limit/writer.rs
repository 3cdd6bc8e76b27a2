//! Writer of a box: an endless `dd` into a file of its own.

use std::cell::RefCell;
use std::rc::Rc;

use weft_engine::page_cache::{Balance, InodeId, PAGE_BYTES, WriterId};
use weft_units::{Bytes, Span, Time, VolumeId};

use super::measured::{Pause, Record};
use crate::machine::{Host, Pid, Process, Thread, Woken};

/// CPU time to dirty a page: copying it and looking it up in the cache.
const PAGE_COST: Span = Span(4_000);
/// CPU time of a call of `write`, without its pages.
const CALL_COST: Span = Span(1_000);
/// Largest number of pages that a writer dirties before other threads run.
const TURN_PAGES: u64 = 64;

/// An endless `dd`.
#[derive(Debug)]
pub(super) struct Writer {
    thread: Thread,
    nth: u32,
    cpu: u32,
    volume: VolumeId,
    /// Number of pages of each call of `write`.
    block: u64,
    start: Time,
    /// Writer number in the page cache, and the writer's file; `None` before the first run.
    ids: Option<(WriterId, InodeId)>,
    page: u64,
    /// Time since which the writer has been throttled; `None` if it is not throttled.
    balances: Option<Time>,
    record: Rc<RefCell<Record>>,
}

impl Writer {
    /// The writer with number `nth` among those of all disks, on a CPU and a volume. It starts at
    /// the time `start`, and writes `block` bytes with each call.
    pub(super) fn new(
        pid: Pid,
        nth: u32,
        (cpu, volume): (u32, VolumeId),
        (start, block): (Time, Bytes),
        record: Rc<RefCell<Record>>,
    ) -> Self {
        Self {
            thread: Thread::new(pid),
            nth,
            cpu,
            volume,
            block: block.0 / PAGE_BYTES,
            start,
            ids: None,
            page: 0,
            balances: None,
            record,
        }
    }

    fn begin(&mut self, host: &mut Host) -> (WriterId, InodeId) {
        self.thread.sleep(host, self.start);
        let ids = (host.add_writer(self.thread.pid(), self.cpu), host.add_file_on(self.volume));
        self.ids = Some(ids);
        ids
    }

    fn step(&mut self, host: &mut Host, (writer, inode): (WriterId, InodeId)) {
        if let Some(since) = self.balances {
            match host.balance(writer) {
                Balance::Continue => {
                    self.balances = None;
                    let length = host.now().since(since);
                    if length > Span::ZERO {
                        let pause = Pause { writer: self.nth, at: since, length };
                        self.record.borrow_mut().count(pause);
                    }
                }
                Balance::Sleep { until, .. } => self.thread.sleep(host, until),
                Balance::Write(out) => self.thread.write_out(out, false),
            }
            return;
        }
        let written = host.write_pages(writer, inode, self.page..self.page + TURN_PAGES);
        let calls =
            (self.page + written.pages).div_ceil(self.block) - self.page.div_ceil(self.block);
        self.page += written.pages;
        let copied = Span(PAGE_COST.0 * written.pages);
        self.balances = written.balance.then_some(host.now() + copied);
        self.thread.work(host, Span(copied.0 + CALL_COST.0 * calls));
        let dirty = host.page_cache().pool().counts().total();
        self.record.borrow_mut().dirtied(self.nth, written.pages, dirty);
    }
}

impl Process for Writer {
    fn run(&mut self, host: &mut Host, woken: Woken) {
        if matches!(woken, Woken::Message(_)) {
            self.thread.stop_sleeping();
        }
        let ids = self.ids.unwrap_or_else(|| self.begin(host));
        while self.thread.goes_on(host) {
            self.step(host, ids);
        }
    }

    fn is_done(&self) -> bool {
        false
    }
}
