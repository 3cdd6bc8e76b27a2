//! Journal of the reduced ext4: transactions, commits and checkpoints, as jbd2 does them.
//!
//! One transaction is running and collects changes; at most one is being committed. jbd2 commits
//! the running transaction when a process requests it or when the transaction is 5 s old:
//!
//! 1. the running transaction becomes the committing one, and a new one runs;
//! 2. jbd2 waits for the data that the transaction refers to (ordered mode);
//! 3. descriptors and the changed blocks go to the journal one after the other, 4 KiB each;
//! 4. when they are stored, the commit block follows with PREFLUSH and FUA;
//! 5. all processes that wait for the commit are woken, and the space that it freed becomes free.
//!
//! After the commit, the changed blocks are dirty pages of the block device, which the flusher
//! writes to their home on the volume when they are old; a block that changes again meanwhile is
//! dirty only once. Once three quarters of the journal are used, jbd2 first writes all changed
//! blocks home itself (a checkpoint) before it commits anything else.

use std::collections::BTreeSet;
use std::ops::Range;

use weft_engine::page_cache::{Balance, Fsync, InodeId, PAGE_BYTES, SyncStep, WriterId};
use weft_engine::{Flags, RequestOp};
use weft_units::{ByteRange, Span, Time};

use super::{Commits, Ext4};
use crate::machine::{Host, Pid, Process, Thread, Woken};

/// Number of blocks of the journal: 128 MiB in all.
const BLOCKS: u64 = 1 << 15;
/// Age at which a transaction is committed without a request.
const INTERVAL: Span = Span::secs(5);
/// Number of blocks that one descriptor block describes, with tags of 16 bytes.
const TAGS: u64 = 254;

/// A transaction: blocks that changed together.
#[derive(Debug, Default)]
pub(super) struct Transaction {
    /// Time of the first change; `None` if nothing changed yet.
    began: Option<Time>,
    /// Changed blocks of metadata, by their position on the volume.
    metadata: BTreeSet<u64>,
    /// Files that were given blocks in the transaction. Their data is written before the commit.
    pub(super) ordered: BTreeSet<InodeId>,
    /// Blocks of files that become free when the transaction is on disk.
    pub(super) freed: Vec<Range<u64>>,
    /// Whether a process waits for the commit of the transaction.
    asked: bool,
}

impl Transaction {
    /// Number of changed blocks.
    pub(super) fn blocks(&self) -> u64 {
        self.metadata.len() as u64
    }
}

/// State of the journal, and of the transactions.
#[derive(Debug)]
pub(super) struct Journal {
    first: u64,
    /// Next block to be written, counted from `first`.
    head: u64,
    /// Number of blocks used since the last checkpoint.
    used: u64,
    /// Number of the running transaction. All lower numbers are on disk or being committed.
    number: u64,
    running: Transaction,
    committing: Option<Transaction>,
    waiters: Vec<(u64, Pid)>,
    /// Whether jbd2 has not been notified yet that a transaction has begun.
    news: bool,
    pub(super) thread: Option<Pid>,
    pub(super) commits: Commits,
}

impl Journal {
    /// A journal in the middle of a volume of this many blocks.
    pub(super) fn in_the_middle_of(blocks: u64) -> Self {
        Self::new(blocks / 2 - BLOCKS / 2)
    }

    /// A journal that begins at this block of the volume.
    pub(super) fn new(first: u64) -> Self {
        Self {
            first,
            head: 0,
            used: 0,
            number: 1,
            running: Transaction::default(),
            committing: None,
            waiters: Vec::new(),
            news: false,
            thread: None,
            commits: Commits::default(),
        }
    }

    pub(super) fn area(&self) -> Range<u64> {
        self.first..self.first + BLOCKS
    }

    /// Adds a changed block to the running transaction. Returns the number of that transaction.
    pub(super) fn touch(&mut self, now: Time, block: u64) -> u64 {
        if self.running.began.is_none() {
            self.running.began = Some(now);
            self.news = true;
        }
        self.running.metadata.insert(block);
        self.number
    }

    pub(super) fn running(&mut self) -> &mut Transaction {
        &mut self.running
    }

    /// Removes a deleted file from the committing transaction, so that the commit does not wait for
    /// the file's data.
    pub(super) fn forget(&mut self, pages: InodeId) {
        if let Some(committing) = &mut self.committing {
            committing.ordered.remove(&pages);
        }
    }

    /// If a transaction has begun and jbd2 has not been notified of that, returns the process
    /// number of jbd2 and clears the mark; otherwise returns `None`.
    pub(super) fn news(&mut self) -> Option<Pid> {
        std::mem::take(&mut self.news).then(|| self.thread.expect("the file system is mounted"))
    }

    /// Number of the last transaction that has been committed.
    pub(super) fn committed(&self) -> u64 {
        self.number - 1 - u64::from(self.committing.is_some())
    }

    /// Registers a process that waits for a transaction. Returns the process number of jbd2, and
    /// whether this is the first request for the commit of that transaction.
    pub(super) fn ask(&mut self, transaction: u64, pid: Pid) -> (Pid, bool) {
        self.waiters.push((transaction, pid));
        let runs = transaction == self.number;
        let first = runs && !self.running.asked;
        self.running.asked |= runs;
        (self.thread.expect("the file system is mounted"), first)
    }

    /// Whether data of the committing transaction is still being written. If so, the process `pid`
    /// is woken once it is written.
    fn awaits_data(&self, host: &mut Host, pid: Pid) -> bool {
        let committing = self.committing.as_ref().expect("a transaction commits");
        committing.ordered.iter().any(|pages| host.awaits_pages(pid, *pages))
    }

    /// Number of blocks to be written for the committing transaction, including descriptors.
    fn begin_blocks(&mut self) -> u64 {
        let blocks = self.committing.as_ref().expect("a transaction commits").metadata.len() as u64;
        self.commits.metadata_blocks += blocks;
        blocks + blocks.div_ceil(TAGS)
    }

    /// Ends a commit when its commit block is durable, and wakes the processes that waited for it.
    /// Returns the committed transaction.
    fn end_commit(&mut self, host: &mut Host) -> Transaction {
        let committed = self.committing.take().expect("a transaction commits");
        self.commits.transactions += 1;
        self.tell_waiters(host, self.committed());
        committed
    }

    /// Wakes the processes that wait for transactions up to this number.
    pub(super) fn tell_waiters(&mut self, host: &mut Host, number: u64) {
        self.waiters.retain(|(transaction, pid)| {
            let waits = *transaction > number;
            if !waits {
                host.tell(*pid, 0);
            }
            waits
        });
    }

    /// Whether a process has requested the commit of the running transaction.
    pub(super) fn is_asked(&self) -> bool {
        self.running.asked
    }

    /// Ends the running transaction. Returns its number and its content.
    pub(super) fn close(&mut self) -> (u64, Transaction) {
        self.number += 1;
        (self.number - 1, std::mem::take(&mut self.running))
    }

    /// Takes the next `count` contiguous blocks of the journal. Returns their byte range.
    pub(super) fn next_blocks(&mut self, count: u64) -> ByteRange {
        assert!(count <= BLOCKS, "a write of the journal fits into it");
        if self.head + count > BLOCKS {
            self.head = 0;
        }
        let block = self.first + self.head;
        self.head = (self.head + count) % BLOCKS;
        ByteRange::new(block * PAGE_BYTES, count * PAGE_BYTES)
    }

    fn due(&self) -> Option<Time> {
        let began = self.running.began?;
        Some(if self.running.asked { began } else { began + INTERVAL })
    }

    fn is_full(&self) -> bool {
        self.used > BLOCKS / 4 * 3
    }

    /// Takes the next block of the journal. Returns its byte range.
    fn next_block(&mut self) -> ByteRange {
        let block = self.first + self.head;
        self.head = (self.head + 1) % BLOCKS;
        self.used += 1;
        ByteRange::new(block * PAGE_BYTES, PAGE_BYTES)
    }
}

/// The kernel thread jbd2, which commits transactions, as a process.
#[derive(Debug)]
pub(super) struct Jbd2 {
    thread: Thread,
    fs: Ext4,
    writer: Option<WriterId>,
    stage: Stage,
    /// Time of the wake-up that was requested last; `None` before the first request.
    timer: Option<Time>,
}

#[derive(Debug)]
enum Stage {
    /// Waits until a transaction is due.
    Idle,
    /// Waits for the data of the transaction's files.
    Data,
    /// Writes `left` more blocks to the journal, then waits for the `under_way` outstanding ones.
    Blocks { left: u64, under_way: u64 },
    /// Waits until the commit block is durable.
    Commit { answered: bool },
    /// Makes these committed blocks dirty pages of the device. `balances` says whether jbd2 is
    /// being throttled.
    Refile { blocks: Vec<u64>, balances: bool },
    /// Writes all dirty metadata to its home (a checkpoint).
    Checkpoint(Fsync),
}

impl Jbd2 {
    pub(super) fn new(pid: Pid, fs: Ext4) -> Self {
        Self { thread: Thread::new(pid), fs, writer: None, stage: Stage::Idle, timer: None }
    }

    /// Takes the next step. Returns false if jbd2 waits.
    fn step(&mut self, host: &mut Host) -> bool {
        let state = &mut *self.fs.state.borrow_mut();
        state.now = host.now();
        let device = state.device.expect("the file system is mounted");
        let journal = &mut state.journal;
        match &mut self.stage {
            Stage::Idle => {
                let Some(due) = journal.due() else { return false };
                if host.now() < due {
                    if self.timer != Some(due) {
                        self.timer = Some(due);
                        host.wake_at(self.thread.pid(), due);
                    }
                    return false;
                }
                if journal.is_full() {
                    self.stage = Stage::Checkpoint(host.fsync(device));
                    return true;
                }
                journal.committing = Some(std::mem::take(&mut journal.running));
                journal.number += 1;
                self.stage = Stage::Data;
            }
            Stage::Data => {
                if journal.awaits_data(host, self.thread.pid()) {
                    return false;
                }
                self.stage = Stage::Blocks { left: journal.begin_blocks(), under_way: 0 };
            }
            Stage::Blocks { left: 0, under_way: 0 } => {
                let flags = Flags { sync: true, preflush: true, fua: true, ..Flags::NONE };
                let range = journal.next_block();
                self.thread.submit(host, 0, RequestOp::Write, range, flags);
                self.stage = Stage::Commit { answered: false };
            }
            Stage::Blocks { left: 0, .. } | Stage::Commit { answered: false } => return false,
            Stage::Blocks { left, under_way } => {
                let flags = Flags { sync: true, meta: true, ..Flags::NONE };
                let range = journal.next_block();
                self.thread.submit(host, 0, RequestOp::Write, range, flags);
                *left -= 1;
                *under_way += 1;
            }
            Stage::Commit { answered: true } => {
                let committed = journal.end_commit(host);
                committed.freed.into_iter().for_each(|blocks| state.space.give(blocks));
                let blocks = committed.metadata.into_iter().collect();
                self.stage = Stage::Refile { blocks, balances: false };
            }
            Stage::Refile { blocks, balances } => {
                let writer = self.writer.expect("the writer runs");
                if *balances {
                    match host.balance(writer) {
                        // jbd2 continues as soon as it may, because no process waits for it.
                        Balance::Continue => *balances = false,
                        Balance::Sleep { until, .. } => self.thread.sleep(host, until),
                        Balance::Write(out) => self.thread.write_out(out, false),
                    }
                    return true;
                }
                match blocks.pop() {
                    Some(block) => {
                        let written = host.write_pages(writer, device, block..block + 1);
                        *balances = written.balance;
                    }
                    None => self.stage = Stage::Idle,
                }
            }
            Stage::Checkpoint(fsync) => match host.fsync_step(self.thread.pid(), fsync) {
                SyncStep::Done => {
                    journal.used = 0;
                    journal.commits.checkpoints += 1;
                    self.stage = Stage::Idle;
                }
                SyncStep::Wait => return false,
                SyncStep::Write(out) => self.thread.write_out(out, false),
            },
        }
        true
    }
}

impl Process for Jbd2 {
    fn run(&mut self, host: &mut Host, woken: Woken) {
        match (woken, &mut self.stage) {
            (Woken::Done(_), Stage::Blocks { under_way, .. }) => *under_way -= 1,
            (Woken::Done(_), Stage::Commit { answered }) => *answered = true,
            (Woken::Message(_), _) => self.thread.stop_sleeping(),
            _ => {}
        }
        self.writer.get_or_insert_with(|| host.add_writer(self.thread.pid(), 0));
        while self.thread.goes_on(host) && self.step(host) {}
    }

    fn is_done(&self) -> bool {
        true
    }
}
