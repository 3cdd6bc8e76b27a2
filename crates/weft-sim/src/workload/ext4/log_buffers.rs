//! Log of the reduced XFS: in-core log buffers, group commit, and the flushes of those who waited.
//!
//! What changes goes into the open buffer. A process that needs its change durable asks for the
//! buffer with it. The open buffer is written when somebody asks and the buffer before it is
//! written: meanwhile others add their changes (group commit). A buffer is written with PREFLUSH
//! and FUA. A process that finds its change in a buffer that another process had written cannot
//! tell whether the PREFLUSH came after its own data, and sends an empty flush when the buffer is
//! written, as Linux 4.14 to 5.x does. XFS starts a buffer that is full, of 32 KiB, without that
//! wait; here none is ever full.
//!
//! A buffer has 4 KiB for each block that changed, and 8 KiB more. Space that a buffer frees is
//! free when it is durable. Not modelled: metadata written home (the AIL), and log space.
//!
//! Source   experiments.md §1.3, §1.7; Linux `fs/xfs/xfs_log.c`;
//!          "xfs: fix incorrect log_flushed on fsync", 2017

use std::any::Any;
use std::collections::VecDeque;

use weft_engine::{Flags, RequestOp};
use weft_units::Span;

use super::journal::Transaction;
use super::{Ext4, Log};
use crate::machine::{Host, Pid, Process, Thread, Woken};

/// Buffers that are being written, in their order.
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

    /// Whether a process that waited for a buffer that another one had written flushes by itself.
    pub(super) fn flushes_for_each(&self) -> bool {
        self.kind != Log::Jbd2
    }

    /// Buffers that are not durable, or behind one that is not.
    pub(super) fn len(&self) -> u64 {
        self.writing.len() as u64
    }
}

/// Whoever writes the buffers.
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

    /// Writes the open buffer, if somebody asked for it and the one before is written.
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

    /// A buffer is written: those at the front that are durable count, and free their space.
    fn written(&mut self, host: &mut Host, number: u64) {
        let state = &mut *self.fs.state.borrow_mut();
        let mut writing = state.log.writing.iter_mut();
        let written = writing.find(|writing| writing.number == number);
        written.expect("it was being written").durable = true;
        while state.log.writing.front().is_some_and(|writing| writing.durable) {
            let first = state.log.writing.pop_front().expect("it was looked at");
            first.transaction.freed.into_iter().for_each(|blocks| state.space.give(blocks));
            state.journal.tell_waiters(host, first.number);
        }
    }
}

impl Process for LogWriter {
    fn run(&mut self, host: &mut Host, woken: Woken) {
        match woken {
            Woken::Done(number) => self.written(host, number),
            Woken::Told(_) => self.thread.stop_sleeping(),
            _ => {}
        }
        // Its CPU time is that of the processes that ask: they hand the buffer over themselves.
        self.thread.work(host, Span::ZERO);
        while self.thread.goes_on(host) && self.write(host) {}
    }

    fn is_done(&self) -> bool {
        true
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
