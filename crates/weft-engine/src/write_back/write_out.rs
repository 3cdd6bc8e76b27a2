//! Write-back: selection of the next run of pages, its write to the volume, and its completion.

use std::ops::Range;

use weft_units::{FRAME_BYTES, Group, Time, VolumeId};

use super::client_op::{page_len, push_copy};
use super::op::{CachePath, Op, OpWork, WriteOut, bytes_of, runs_of};
use super::{Issue, OpId, RETRY, StopStage, WriteBack, part_of};
use crate::array::outbox::Outbox;
use crate::contract::error::ReplyError;
use crate::contract::frame::Segment;
use crate::contract::input::{Attr, ClientRequest, Flags, NO_CLIENT, Origin, RequestOp};
use crate::contract::output::Notice;
use crate::contract::token::Tag;
use crate::mutant::{self, Mutant};
use crate::page_cache::Flush;
use crate::volume::Volume;

impl WriteBack {
    /// Continues writers that need not pause any longer, then starts writes of runs of dirty pages,
    /// volume after volume, while there are free buffers and pages to write.
    pub(super) fn write_back(&mut self, volumes: &mut [Volume], out: &mut Outbox) {
        self.go_on_pausing(volumes, out);
        let count = self.volumes.len();
        let mut idle = 0;
        while idle < count && self.memory.has_buffer() {
            self.take_wakes(out.now);
            let index = self.first % count;
            self.first = index + 1;
            idle += 1;
            if let Some((pages, sync)) = self.next_run(index, out.now) {
                self.begin(index, pages, sync, volumes, out);
                idle = 0;
            }
        }
    }

    /// Takes the next run of dirty pages of volume `index` for writing. Returns the run, and
    /// whether an operation waits for it; `None` if there is no run to write.
    fn next_run(&mut self, index: usize, now: Time) -> Option<(Range<u64>, bool)> {
        let pages_max = self.memory.buffer_pages();
        let wants_room = self.waits_for_room();
        let cached = &self.volumes[index];
        if cached.trying.is_some()
            && let Some(run) = self.next_tried(index, pages_max)
        {
            return Some((run, true));
        }
        let cached = &mut self.volumes[index];
        if let Some((_, again)) = &mut cached.failing {
            if again.is_some_and(|at| at > now) {
                return None;
            }
            *again = None;
            // All pages that could not be written were meanwhile replaced on the volume.
            if self.cache.pool().bdi_counts(cached.bdi).total() == 0 {
                cached.failing = None;
            }
        }
        let cursor = cached.cursor;
        let mut sweep = [cursor..u64::MAX, 0..cursor].into_iter();
        if !cached.flushes.is_empty() {
            let run = |within| self.cache.take_marked(cached.inode, within, pages_max);
            if let Some(run) = sweep.find_map(run) {
                cached.cursor = run.end;
                return Some((run, true));
            }
        }
        if cached.flusher_at.is_some_and(|at| at <= now) {
            match self.cache.flush(now, cached.bdi, pages_max) {
                Flush::Write(out) => return Some((out.pages, false)),
                Flush::Sleep { until, .. } => cached.flusher_at = until,
            }
        }
        if !wants_room {
            return None;
        }
        let mut sweep = [cursor..u64::MAX, 0..cursor].into_iter();
        let run = sweep.find_map(|within| self.cache.take(cached.inode, within, pages_max))?;
        cached.cursor = run.end;
        Some((run, true))
    }

    pub(super) fn begin(
        &mut self,
        index: usize,
        pages: Range<u64>,
        sync: bool,
        volumes: &mut [Volume],
        out: &mut Outbox,
    ) {
        let buffer = self.memory.take_buffer(pages.end - pages.start).expect("a buffer is free");
        self.volumes[index].resident.taken(pages.clone());
        let write = WriteOut { buffer, sync, parts: Vec::new(), pending: 0, error: None };
        let volume = VolumeId(index as u16);
        let id = self.keep(Op { volume, pages, work: OpWork::WriteOut(write) });
        self.lock_above(id, false, volumes, out);
        self.flush_those_written(volumes, out);
    }

    fn write_out(&mut self, id: OpId) -> &mut WriteOut {
        match &mut self.op_mut(id).work {
            OpWork::WriteOut(write) => write,
            _ => unreachable!("it is a write-back"),
        }
    }

    /// Copies a run of pages into its buffer. Pages that were replaced on the volume since the run
    /// was taken are left out.
    pub(super) fn copy(&mut self, id: OpId, volumes: &mut [Volume], out: &mut Outbox) {
        let op = self.op(id);
        let (index, pages) = (op.volume.index(), op.pages.clone());
        let buffer = self.write_out(id).buffer;
        let cached = &self.volumes[index];
        let mut ops = out.ops();
        for (page, here) in cached.resident.within(&pages) {
            let len = page_len(page, cached.size);
            let to = Segment::at(buffer, (page - pages.start) * FRAME_BYTES, len);
            push_copy(&mut ops, Segment::at(here.frame, 0, len), to);
        }
        let parts = runs_of(cached.resident.within(&pages).map(|(page, _)| page));
        if parts.is_empty() {
            out.recycle(ops);
            self.unlock_above(id, volumes, out);
            self.over(id, volumes, out);
            return;
        }
        self.write_out(id).parts = parts;
        Self::compute(id, ops, out);
    }

    /// Handles a run of pages that is completely in its buffer: its pages may be written to again,
    /// and the run is written to the volume.
    pub(super) fn copied(&mut self, id: OpId, volumes: &mut [Volume], out: &mut Outbox) {
        let op = self.op(id);
        let (index, pages) = (op.volume.index(), op.pages.clone());
        self.volumes[index].resident.copied(pages);
        self.lock_below(id);
        self.unlock_above(id, volumes, out);
    }

    /// Queues the requests with which the volume writes a run of pages, one for each part without a
    /// gap.
    pub(super) fn ask_parts(&mut self, id: OpId) {
        let op = self.op(id);
        let (volume, first) = (op.volume, op.pages.start);
        let size = self.volumes[volume.index()].size;
        let write = self.write_out(id);
        let (parts, buffer, sync) = (write.parts.clone(), write.buffer, write.sync);
        write.pending = parts.len();
        for pages in parts {
            let attr = Attr {
                origin: Origin::Client(NO_CLIENT, Group::ROOT),
                background: true,
                ..Attr::default()
            };
            let request = ClientRequest {
                client: NO_CLIENT,
                tag: Tag(0),
                volume,
                op: RequestOp::Write,
                range: bytes_of(&pages, size),
                frames: part_of(buffer, pages.start - first, pages.end - pages.start),
                flags: Flags { sync, ..Flags::NONE },
                attr,
            };
            self.issues.push(Issue::Request(id, request));
        }
    }

    /// Handles the volume's answer to one part of a run of pages.
    pub(super) fn part_written(
        &mut self,
        id: OpId,
        result: Result<(), ReplyError>,
        volumes: &mut [Volume],
        out: &mut Outbox,
    ) {
        let planted = out.planted;
        let forgets = |error: &ReplyError| {
            let lacks = *error == ReplyError::NoSpace;
            let bug = if lacks { Mutant::PartLackForgotten } else { Mutant::PartErrorForgotten };
            mutant::is(planted, bug)
        };
        let succeeds = result.is_ok();
        let write = self.write_out(id);
        write.pending -= 1;
        write.error = write.error.take().filter(|error| !forgets(error)).or(result.err());
        if write.pending == 0 {
            match &write.error {
                Some(ReplyError::NoSpace) if succeeds => self.partly_written.lacks += 1,
                Some(_) if succeeds => self.partly_written.errors += 1,
                _ => {}
            }
            self.unlock_below(id);
            self.over(id, volumes, out);
        }
    }

    /// Ends the write of a run of pages, after the volume has answered for all of its parts.
    fn over(&mut self, id: OpId, volumes: &mut [Volume], out: &mut Outbox) {
        let Op { volume, pages, work } = self.forget(id);
        let OpWork::WriteOut(write) = work else { unreachable!("it is a write-back") };
        self.memory.give_back_buffer(write.buffer);
        let index = volume.index();
        let cached = &mut self.volumes[index];
        let (first, count) = (pages.start, pages.end - pages.start);
        self.cache.written(out.now, cached.inode, pages.clone());
        let mut freed = Vec::new();
        match write.error {
            None => {
                cached.resident.written(pages, &mut freed);
                cached.written += count;
                cached.failing = None;
                if !std::mem::replace(&mut cached.tells_of_failure, true) {
                    out.notice(Notice::WriteBackWorks(volume));
                }
            }
            Some(error) => {
                let epoch = cached.resident.oldest_written(pages.clone());
                let again = cached.resident.not_written(pages, &mut freed);
                for run in runs_of(again.into_iter()) {
                    self.cache.dirty(out.now, cached.writer, cached.inode, run.clone());
                    if let Some(trying) = &mut cached.trying {
                        trying.error = Some(error.clone());
                        if count > 1 {
                            self.cache.mark(cached.inode, &run);
                            trying.again.push((run, (count / 8).max(1)));
                        } else {
                            trying.failed.insert(first);
                        }
                    }
                }
                cached.failing = Some((error.clone(), Some(out.now + RETRY)));
                if std::mem::take(&mut cached.tells_of_failure) {
                    let error = error.clone();
                    out.notice(Notice::WriteBackFailed { volume, at: first * FRAME_BYTES, error });
                }
                let concerned = |flush: &mut (OpId, u64)| Some(flush.1) >= epoch;
                let failed: Vec<_> = cached.flushes.extract_if(.., concerned).collect();
                for (flush, _) in failed {
                    self.answer(flush, Err(error.clone()), out);
                }
                self.memory.give_back(&mut freed);
                self.writers.wake_all(volume);
                self.refuse_waiting(index, &error, volumes, out);
            }
        }
        self.memory.give_back(&mut freed);
        self.flush_those_written(volumes, out);
        let forgets = mutant::is(out.planted, Mutant::RoomWaiterForgotten);
        if !(forgets && self.waiting.len() == 1) {
            self.admit_waiting(volumes, out);
        }
    }

    /// Advances the stops of volumes: requests first, then pages, then the volume itself.
    pub(super) fn go_on_stopping(&mut self, volumes: &mut [Volume], out: &mut Outbox) {
        for index in 0..self.volumes.len() {
            let cached = &mut self.volumes[index];
            let Some((id, stage)) = cached.stopping else { continue };
            if stage == StopStage::Requests && cached.clients == 0 {
                cached.stopping = Some((id, StopStage::Pages));
                self.try_all(index, None);
                self.write_back(volumes, out);
                self.go_on_trying(out);
            }
            let cached = &mut self.volumes[index];
            if cached.stopping == Some((id, StopStage::Pages)) && cached.trying.is_none() {
                assert!(cached.resident.is_empty(), "unwritten pages are given up");
                cached.stopping = Some((id, StopStage::Volume));
                self.ask(id);
            }
        }
    }

    fn waits_for_room(&self) -> bool {
        self.waiting.iter().any(|id| match &self.op(*id).work {
            OpWork::Client(op) => op.path == CachePath::Keep,
            _ => false,
        })
    }
}
