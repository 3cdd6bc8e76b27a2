//! Drains and stops: attempts to write every dirty page, and reports the pages that could not be
//! written.
//!
//! A run that fails is tried again in shorter runs, down to single pages, so that a page which no
//! member accepts does not keep others from being written. After a drain the pages that failed stay
//! dirty, and the volume stays in service; a stop gives them up.

use std::collections::BTreeSet;
use std::ops::Range;

use super::op::{OpWork, bytes_of, runs_of};
use super::{Cached, OpId, WriteBack};
use crate::array::outbox::Outbox;
use crate::contract::error::{ReplyError, Unwritten};
use crate::mutant::{self, Mutant};

/// Attempt to write all pages that were dirty when it started. It continues after failed pages.
#[derive(Clone, Debug, Default)]
pub(super) struct Trying {
    /// Epoch (interval between two flushes) of the pages that the attempt writes. It also writes
    /// the pages of all earlier epochs.
    pub(super) epoch: u64,
    /// Runs of pages that failed to be written and are tried again, each with the largest permitted
    /// length of the shorter runs, in pages.
    pub(super) again: Vec<(Range<u64>, u64)>,
    /// Pages that failed to be written alone, so that the attempt does not try them again.
    pub(super) failed: BTreeSet<u64>,
    /// Error of the last run of pages that failed; `None` if none has failed.
    pub(super) error: Option<ReplyError>,
    /// The drain that waits for the attempt; `None` if the attempt belongs to a stop.
    pub(super) drain: Option<OpId>,
}

impl WriteBack {
    /// Starts an attempt to write all dirty pages of volume `index`: for `drain`, or for a stop if
    /// that is `None`.
    pub(super) fn try_all(&mut self, index: usize, drain: Option<OpId>) {
        let cached = &mut self.volumes[index];
        cached.failing = None;
        let epoch = cached.resident.close_epoch();
        self.cache.mark(cached.inode, &(0..u64::MAX));
        cached.trying = Some(Trying { epoch, drain, ..Trying::default() });
    }

    /// Takes and returns the next run of pages that the attempt has to write, at most `pages_max`
    /// pages. `None` if none is left.
    pub(super) fn next_tried(&mut self, index: usize, pages_max: u64) -> Option<Range<u64>> {
        let cached = &mut self.volumes[index];
        let trying = cached.trying.as_mut().expect("an attempt is in progress");
        while let Some((within, most)) = trying.again.last() {
            let most = (*most).min(pages_max);
            if let Some(run) = self.cache.take_marked(cached.inode, within.clone(), most) {
                return Some(run);
            }
            trying.again.pop();
        }
        self.cache.take_marked(cached.inode, 0..u64::MAX, pages_max)
    }

    /// Ends the attempts that have tried to write every page: answers their drains, and gives up
    /// the pages that a stop could not write.
    pub(super) fn go_on_trying(&mut self, out: &mut Outbox) {
        for index in 0..self.volumes.len() {
            let Some(failed) = self.tried(index, out.planted) else { continue };
            let cached = &mut self.volumes[index];
            let trying = cached.trying.take().expect("an attempt has ended");
            let unwritten = (!failed.is_empty()).then(|| {
                let error = trying.error.unwrap_or(ReplyError::Io);
                Box::new(unwritten(error, &failed, cached.size, trying.drain.is_none()))
            });
            match trying.drain {
                Some(drain) => {
                    let result = unwritten.map_or(Ok(()), |it| Err(ReplyError::Unwritten(it)));
                    self.answer_drain(drain, result, out);
                }
                None => self.give_up(index, unwritten, out),
            }
        }
    }

    /// Pages that the attempt could not write; `None` while some pages have not been tried.
    ///
    /// Flushes that run beside a drain mark failed pages and write them again; the drain does not
    /// wait for these writes. A stop gives up no page that is under writeback.
    fn tried(&self, index: usize, planted: Option<Mutant>) -> Option<Vec<u64>> {
        let Cached { trying, resident, inode, .. } = &self.volumes[index];
        let trying = trying.as_ref()?;
        let of_epoch = resident.of_epoch(trying.epoch);
        let mut left = of_epoch.clone().filter(|(number, _)| !trying.failed.contains(number));
        let is_left = left.clone().next().is_some() && self.cache.has_marked(*inode);
        let early = mutant::is(planted, Mutant::DrainBeforeWritten);
        if early && !is_left && trying.drain.is_some() {
            return Some(Vec::new());
        }
        let waits = match trying.drain {
            Some(_) => left.any(|(_, page)| page.written.is_some()),
            None => resident.is_being_written(),
        };
        (!is_left && !waits).then(|| of_epoch.map(|(number, _)| number).collect())
    }

    /// Gives up the pages that are still dirty, for a stop.
    fn give_up(&mut self, index: usize, unwritten: Option<Box<Unwritten>>, out: &mut Outbox) {
        let cached = &mut self.volumes[index];
        let mut freed = Vec::new();
        self.cache.discard(cached.inode, 0..u64::MAX);
        cached.resident.replaced(0..u64::MAX, &mut freed);
        if !mutant::is(out.planted, Mutant::LossNotTold) {
            cached.lost = unwritten;
        }
        self.memory.give_back(&mut freed);
    }

    pub(super) fn answer_drain(
        &mut self,
        id: OpId,
        result: Result<(), ReplyError>,
        out: &mut Outbox,
    ) {
        let OpWork::Drain(command) = self.forget(id).work else { unreachable!("it is a drain") };
        out.reply(command.client, command.tag, result);
    }
}

/// Describes the pages that could not be written. `pages` must be in ascending order.
fn unwritten(error: ReplyError, pages: &[u64], size: u64, lost: bool) -> Unwritten {
    let runs = runs_of(pages.iter().copied());
    let ranges = runs.iter().map(|run| bytes_of(run, size));
    let bytes = ranges.clone().map(|range| range.len.0).sum();
    let more = runs.len().saturating_sub(Unwritten::RANGES_MAX);
    let ranges = ranges.take(Unwritten::RANGES_MAX).collect();
    Unwritten { error, bytes, ranges, more, lost }
}
