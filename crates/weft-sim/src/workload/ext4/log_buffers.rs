//! Log of the reduced XFS: in-core log buffers, group commit, and the flushes of waiting processes.
//!
//! Changes go into the open buffer. A process that needs its change durable requests that this
//! buffer is written. The open buffer is written once a process has requested it and the preceding
//! buffer is durable; until then other processes add their changes (group commit). A buffer is
//! written with PREFLUSH and FUA. A process that waits for a buffer which another process requested
//! cannot tell whether the PREFLUSH came after its own data, so it sends an empty flush afterwards,
//! as Linux 4.14 to 5.x does. XFS starts a full buffer of 32 KiB without waiting for the preceding
//! one; here no buffer ever fills.
//!
//! A buffer takes 4 KiB for each changed block, and 8 KiB more. Space that a buffer frees becomes
//! free when the buffer is durable. Writing metadata to its home (the AIL) and the space of the log
//! are not modelled.
//!
//! Source   experiments.md §1.3, §1.7; Linux `fs/xfs/xfs_log.c`;
//!          "xfs: fix incorrect log_flushed on fsync", 2017

use std::collections::VecDeque;

use weft_engine::{Flags, RequestOp};
use weft_units::Span;

use super::journal::Transaction;
use super::{Ext4, Log};
use crate::machine::{Host, Pid, Process, Thread, Woken};

/// Log buffers that are not complete: being written, or durable behind one that is being written.
#[derive(Debug)]
pub(super) struct LogBuffers {
    kind: Log,
    writing: VecDeque<Writing>,
}

#[derive(Debug)]
struct Writing {
    number: u64,
    transaction: Transaction,
    durable: bool,
}

impl LogBuffers {
    pub(super) fn new(kind: Log) -> Self {
        Self { kind, writing: VecDeque::new() }
    }

    /// Whether a process sends an empty flush of its own after it has waited for a buffer that was
    /// written at the request of another process.
    pub(super) fn flushes_for_each(&self) -> bool {
        self.kind != Log::Jbd2
    }

    /// Number of buffers that are not durable, or that follow one that is not.
    pub(super) fn len(&self) -> u64 {
        self.writing.len() as u64
    }
}

/// Process that writes the log buffers.
#[derive(Debug)]
pub(super) struct LogWriter {
    thread: Thread,
    fs: Ext4,
    buffers: usize,
}

impl LogWriter {
    pub(super) fn new(pid: Pid, fs: Ext4, buffers: u32) -> Self {
        Self { thread: Thread::new(pid), fs, buffers: buffers as usize }
    }

    /// Writes the open buffer, if a process has requested that, the preceding buffer is durable,
    /// and another buffer is free. Returns whether the buffer was written.
    fn write(&mut self, host: &mut Host) -> bool {
        let state = &mut *self.fs.state.borrow_mut();
        if state.log.writing.len() >= self.buffers || !state.journal.is_asked() {
            return false;
        }
        if state.log.writing.back().is_some_and(|last| !last.durable) {
            return false;
        }
        let (number, transaction) = state.journal.close();
        let range = state.journal.next_blocks(transaction.blocks() + 2);
        let flags = Flags { sync: true, preflush: true, fua: true, meta: true, ..Flags::NONE };
        state.log.writing.push_back(Writing { number, transaction, durable: false });
        state.journal.commits.transactions += 1;
        self.thread.submit(host, number, RequestOp::Write, range, flags);
        true
    }

    /// Records that a buffer is durable. A durable buffer is complete once all buffers before it
    /// are durable, and then frees its space.
    fn written(&mut self, host: &mut Host, number: u64) {
        let state = &mut *self.fs.state.borrow_mut();
        let mut writing = state.log.writing.iter_mut();
        let written = writing.find(|writing| writing.number == number);
        written.expect("the buffer was being written").durable = true;
        while state.log.writing.front().is_some_and(|writing| writing.durable) {
            let first = state.log.writing.pop_front().expect("front was checked");
            first.transaction.freed.into_iter().for_each(|blocks| state.space.give(blocks));
            state.journal.tell_waiters(host, first.number);
        }
    }
}

impl Process for LogWriter {
    fn run(&mut self, host: &mut Host, woken: Woken) {
        match woken {
            Woken::Done(number) => self.written(host, number),
            Woken::Message(_) => self.thread.stop_sleeping(),
            _ => {}
        }
        // The requesting processes write the buffer themselves, so the CPU time is theirs.
        self.thread.work(host, Span::ZERO);
        while self.thread.goes_on(host) && self.write(host) {}
    }

    fn is_done(&self) -> bool {
        true
    }
}
