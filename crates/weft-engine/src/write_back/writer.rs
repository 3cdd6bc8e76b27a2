//! Writers in the write-back cache: clients are throttled by delaying their replies.
//!
//! Each client of a volume is one writer of the page cache. A kept write changes its pages at once,
//! so reads see them and flushes cover them. Its reply is *delayed* until the throttle has let the
//! writer continue for all of these pages. Replies of one writer are sent in order of arrival, and
//! each pause delays one reply: a client with many requests outstanding is as fast as one with a
//! single request. Only replies to kept writes are delayed, not those to reads, flushes and
//! requests that go through to the volume. No lock and no client frame is held during a pause.
//!
//! ```text
//! kept ─▶ charged ─▶ Continue ─▶ answered, or charged for the rest
//!            ▲  └──▶ Sleep ─▶ time or a wake ──┐
//!            │  └──▶ Write ─▶ started at once ─┤  a kernel before patch 001
//!            │  └──▶ no free buffer ─▶ one is ─┤  a kernel before patch 001
//!            └─────────────────────────────────┘
//! ```
//!
//! No writer pauses for a volume with failing write-back, because the volume's dirty pages do not
//! decrease. A pause lasts at most 200 ms, even if the throttle asks for more; then the throttle is
//! asked again.
//!
//! Source   writeback.md §2.4

use std::collections::{BTreeSet, VecDeque};

use weft_units::{ClientId, Span, Time, VolumeId};

use super::{OpId, WriteBack};
use crate::array::outbox::Outbox;
use crate::contract::output::Output;
use crate::mutant::{self, Mutant};
use crate::page_cache::sparse::Sparse;
use crate::page_cache::{Balance, WriterId};
use crate::volume::Volume;

/// Page-cache writers that stand for clients. A writer exists until its client disconnects.
#[derive(Clone, Debug, Default)]
pub(super) struct Writers {
    /// Writer of each client on each volume, by [`name_of`] of both.
    of_client: Sparse<WriterId>,
    /// State of each writer, by the number of the writer; `None` for numbers that are not in use.
    states: Vec<Option<Writer>>,
    /// End of each pause, with the writer that pauses.
    pauses: BTreeSet<(Time, WriterId)>,
    /// Writers to be handled in the next turn: they were woken, or their pause has ended.
    due: Vec<WriterId>,
    /// Writers that have to write back pages themselves but found no free buffer (before patch
    /// 001).
    want_buffer: Vec<WriterId>,
    count: u64,
}

#[derive(Clone, Debug)]
struct Writer {
    volume: VolumeId,
    /// Writes with a reply that the throttle still delays, each with the number of its pages that
    /// the writer was not charged for yet.
    delayed: VecDeque<(OpId, u64)>,
    /// Whether the throttle must be asked before the writer is charged for more pages.
    balances: bool,
    paused_until: Option<Time>,
}

impl Writers {
    /// Number of replies that the throttle delays.
    pub(super) fn answers_delayed(&self) -> usize {
        self.states.iter().flatten().map(|writer| writer.delayed.len()).sum()
    }

    /// Number of pauses that have begun so far.
    pub(super) fn pauses_begun(&self) -> u64 {
        self.count
    }

    /// Time at which the next pause ends; `None` if no writer pauses.
    pub(super) fn next_wake(&self) -> Option<Time> {
        self.pauses.first().map(|pause| pause.0)
    }

    /// Whether a writer can continue now. `has_buffer` tells whether a write-back buffer is free.
    pub(super) fn has_due(&self, has_buffer: bool) -> bool {
        !self.due.is_empty() || (has_buffer && !self.want_buffer.is_empty())
    }

    /// Ends the pause of a writer early, because the throttle may decide differently now.
    pub(super) fn wake(&mut self, writer: WriterId) {
        if let Some(Some(state)) = self.states.get_mut(writer.index()) {
            if let Some(until) = state.paused_until.take() {
                self.pauses.remove(&(until, writer));
            }
            self.due.push(writer);
        }
    }

    /// Ends the pauses of all writers of a volume early.
    pub(super) fn wake_all(&mut self, volume: VolumeId) {
        let all = self.of_client.iter(0..u64::MAX);
        let of_volume =
            all.filter(|(_, writer)| self.get(**writer).is_some_and(|it| it.volume == volume));
        let writers: Vec<_> = of_volume.map(|(_, writer)| *writer).collect();
        writers.into_iter().for_each(|writer| self.wake(writer));
    }

    /// Takes and returns the writers that can continue at `now`. `has_buffer` tells whether a
    /// write-back buffer is free.
    fn take_due(&mut self, now: Time, has_buffer: bool) -> Vec<WriterId> {
        while let Some((until, writer)) = self.pauses.first().copied().filter(|it| it.0 <= now) {
            self.pauses.remove(&(until, writer));
            self.state(writer).paused_until = None;
            self.due.push(writer);
        }
        if has_buffer {
            self.due.append(&mut self.want_buffer);
        }
        std::mem::take(&mut self.due)
    }

    fn pause(&mut self, writer: WriterId, until: Time) {
        self.count += 1;
        self.state(writer).paused_until = Some(until);
        self.pauses.insert((until, writer));
    }

    fn state(&mut self, writer: WriterId) -> &mut Writer {
        let state = self.states[writer.index()].as_mut();
        state.expect("a writer stays until its client is gone")
    }

    /// State of a writer; `None` if its client has disconnected.
    fn get(&self, writer: WriterId) -> Option<&Writer> {
        self.states.get(writer.index())?.as_ref()
    }

    /// Removes the writers of a client. Returns them, each with its writes that were not answered
    /// yet.
    fn remove(&mut self, client: ClientId) -> Vec<(WriterId, Vec<OpId>)> {
        let first = name_of(client, VolumeId(0));
        let of_client = self.of_client.iter(first..first + (1 << 16));
        let names: Vec<_> = of_client.map(|(name, writer)| (name, *writer)).collect();
        let forget = |(name, writer): (u64, WriterId)| {
            self.of_client.remove(name);
            let state = self.states[writer.index()].take().expect("the writer has a state");
            if let Some(until) = state.paused_until {
                self.pauses.remove(&(until, writer));
            }
            self.due.retain(|due| *due != writer);
            self.want_buffer.retain(|waits| *waits != writer);
            (writer, state.delayed.into_iter().map(|delayed| delayed.0).collect())
        };
        names.into_iter().map(forget).collect()
    }
}

impl WriteBack {
    /// Writer that stands for a client on a volume. It is created if it does not exist.
    pub(super) fn writer_of(&mut self, client: ClientId, volume: VolumeId) -> WriterId {
        let (writers, cache) = (&mut self.writers, &mut self.cache);
        *writers.of_client.get_or_insert_with(name_of(client, volume), || {
            let writer = cache.add_writer(0);
            let delayed = VecDeque::new();
            let state = Writer { volume, delayed, balances: false, paused_until: None };
            let count = writers.states.len().max(writer.index() + 1);
            writers.states.resize_with(count, || None);
            writers.states[writer.index()] = Some(state);
            writer
        })
    }

    /// Adds a write, which stays in the cache, to those that a writer is charged for. The write is
    /// answered once the writer has been charged for `pages` pages.
    pub(super) fn charge(
        &mut self,
        writer: WriterId,
        id: OpId,
        pages: u64,
        volumes: &mut [Volume],
        out: &mut Outbox,
    ) {
        let state = self.writers.state(writer);
        state.delayed.push_back((id, pages));
        if state.delayed.len() == 1 {
            self.go_on_writing(writer, volumes, out);
        }
        if self.writers.get(writer).is_some_and(|state| !state.delayed.is_empty()) {
            // The data is copied, so that a paused client holds no frames.
            let frames = std::mem::take(&mut self.client_op(id).request.frames);
            if frames.count > 0 {
                out.push(Output::Release(frames));
            }
        }
    }

    /// Continues the writers that were woken or have ended their pause.
    pub(super) fn go_on_pausing(&mut self, volumes: &mut [Volume], out: &mut Outbox) {
        self.take_wakes(out.now);
        for writer in self.writers.take_due(out.now, self.memory.has_buffer()) {
            if self.writers.get(writer).is_some() {
                self.go_on_writing(writer, volumes, out);
            }
        }
    }

    /// Charges a writer for its unanswered writes, until it has to pause.
    fn go_on_writing(&mut self, writer: WriterId, volumes: &mut [Volume], out: &mut Outbox) {
        let now = out.now;
        let state = self.writers.state(writer);
        if state.paused_until.is_some() {
            return;
        }
        let index = state.volume.index();
        let (inode, pages_max) = (self.volumes[index].inode, self.memory.buffer_pages());
        while let Some((id, left)) = self.writers.state(writer).delayed.front().copied() {
            let is_free = self.volumes[index].failing.is_some() || self.knobs.throttle.is_none();
            if self.writers.state(writer).balances && !is_free {
                let kernel = self.cache.pool().config().kernel;
                if kernel.writers_write_back() && !self.memory.has_buffer() {
                    if !self.writers.want_buffer.contains(&writer) {
                        self.writers.want_buffer.push(writer);
                    }
                    return;
                }
                match self.cache.balance(now, writer, pages_max) {
                    Balance::Continue => self.writers.state(writer).balances = false,
                    Balance::Sleep { until, .. } => {
                        self.pause(writer, until, out);
                        return;
                    }
                    Balance::Write(run) => self.begin(index, run.pages, false, volumes, out),
                }
            } else if left == 0 || is_free {
                self.writers.state(writer).delayed.pop_front();
                self.answer(id, Ok(()), out);
            } else {
                let written = self.cache.charge(now, writer, inode, left);
                let state = self.writers.state(writer);
                state.balances = written.balance;
                state.delayed.front_mut().expect("a reply is delayed").1 -= written.pages;
            }
        }
    }

    fn pause(&mut self, writer: WriterId, until: Time, out: &Outbox) {
        let until = until.clamp(out.now + Span(1), out.now + PAUSE_MAX);
        self.writers.pause(writer, until);
        if mutant::is(out.planted, Mutant::PauseForgotten) && self.writers.count.is_multiple_of(2) {
            self.writers.pauses.remove(&(until, writer));
        }
    }

    /// Removes the writers of a client that has disconnected, and ends its writes without a reply.
    pub(super) fn remove_writers(&mut self, client: ClientId, out: &mut Outbox) {
        for (writer, delayed) in self.writers.remove(client) {
            delayed.into_iter().for_each(|id| self.answer(id, Ok(()), out));
            self.cache.remove_writer(out.now, writer);
        }
    }
}

/// Number of a client on a volume, in the order of clients and then of volumes.
fn name_of(client: ClientId, volume: VolumeId) -> u64 {
    u64::from(client.0) << 16 | u64::from(volume.0)
}

/// Longest pause of a writer (`MAX_PAUSE` of the kernel).
const PAUSE_MAX: Span = Span::millis(200);
