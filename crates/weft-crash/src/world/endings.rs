//! Ends of a run (power cut, stop, process crash) and the content found afterwards.
//!
//! Content is read through the engine, or computed from the media.

use std::collections::{BTreeSet, VecDeque};

use weft_engine::{Flags, ReplyError, RequestOp, SyncAction};
use weft_units::{ByteRange, Slot, VolumeId};

use super::clients::VERIFIER;
use super::{ARRAY, Order, World};
use crate::checker::{View, bits, parity};
use crate::crash::{CutMode, CutShape, Judged};
use crate::disk::{Disk, IoErrors};
use crate::model::{Model, Payload};
use crate::violation::Violation;

/// Columns in which a write may have been in flight at the end of a run.
#[derive(Debug)]
struct BeingWritten {
    /// Columns of writes that were not answered, or that a disconnected client left behind.
    asked: BTreeSet<u64>,
    /// Columns that a write-back cache may have been writing at the end of the run: the columns of
    /// writes that it has answered and that no flush has covered since. Left out are columns in
    /// `asked`, watched columns (`watched_columns.rs`) and suspect columns ([`crate::suspects`]).
    cached: BTreeSet<u64>,
}

impl BeingWritten {
    fn all(&self) -> impl Iterator<Item = &u64> {
        self.asked.iter().chain(&self.cached)
    }

    fn has(&self, column: u64) -> bool {
        self.asked.contains(&column) || self.cached.contains(&column)
    }
}

impl World {
    /// Cuts the power and drops the engine with all requests. `mode` decides which content that is
    /// not durable survives. Returns the circumstances of the cut.
    pub fn power_cut(&mut self, mode: CutMode) -> CutShape {
        let syncing =
            self.engine.as_ref().is_some_and(|engine| {
                engine.snapshot().volumes.iter().any(|volume| {
                    !matches!(volume.sync_action, SyncAction::Idle | SyncAction::Frozen)
                })
            });
        self.judge_bits();
        self.interrupted = true;
        self.was_cut = true;
        self.measure_due = true;
        let mut shape = CutShape { during_sync: syncing, ..CutShape::default() };
        let (mut kept_stripes, mut lost_stripes) = (BTreeSet::new(), BTreeSet::new());
        let mut lost_by_others = Vec::new();
        let (mut any_kept, mut any_lost) = (false, false);
        for disk in 0..self.disks.len() {
            let before = (!self.record.is_in_sync(disk)).then(|| self.disks[disk].clone());
            let report = self.disks[disk].power_cut(mode, &mut self.rng);
            shape.inside_metadata |= report.metadata_in_flight;
            shape.torn_superblocks += u64::from(report.metadata_torn);
            self.torn.extend(report.metadata_torn.then_some(disk));
            any_kept |= !report.kept.is_empty();
            any_lost |= !report.lost.is_empty();
            for (sectors, stripes) in
                [(&report.kept, &mut kept_stripes), (&report.lost, &mut lost_stripes)]
            {
                for absolute in sectors {
                    if let Some(column) = self.column_served_at(disk, *absolute) {
                        stripes.insert(column / 8);
                        self.watched_columns.extend([column]);
                    }
                }
            }
            if let Some(before) = before {
                let column = |absolute| self.array.data_sector(disk, absolute);
                let lost = self.disks[disk].lost_since(&before, &report).filter_map(column);
                lost_by_others.extend(lost.map(|column| (disk, column)));
            }
        }
        shape.strict_subset = any_kept && any_lost;
        shape.half_written_stripe = kept_stripes.intersection(&lost_stripes).next().is_some();
        // A flush may have made a part of a stripe durable while the rest of the stripe was not
        // even submitted.
        let written = self.columns_being_written();
        self.watched_columns.extend(written.all().copied());
        self.stopped();
        self.models().for_each(Model::power_cut);
        self.checkers.power_cut(&lost_by_others);
        shape.judged = self.judge_parity(&written, parity::Bytes::Durable);
        self.coverage.add(shape);
        shape
    }

    /// Drops the engine, which has stopped or lost its power; disks keep their content.
    pub fn stopped(&mut self) {
        self.partly_written = self.partly_written();
        self.engine = None;
        self.pending.clear();
        self.issued.clear();
        self.orphans.clear();
        self.commands.clear();
        self.drains.clear();
        self.resizes.clear();
        self.waiting.clear();
        self.checkers.stopped();
        self.record_before = self.record.clone();
        self.read_record();
        // A disk keeps its number; member indexes start anew with the next engine.
        self.disk_of = (0..self.disks.len()).collect();
    }

    /// Variant of [`Self::stopped`] for an engine that wrote nothing: `record_before` keeps the
    /// superblocks as they were at the end of the engine before it. A superblock that a power cut
    /// tore in between therefore still counts as one that was whole.
    pub fn looked(&mut self) {
        let before = std::mem::take(&mut self.record_before);
        self.stopped();
        self.record_before = before;
    }

    /// Crashes the process while the power stays on. Disks keep all completed writes, including
    /// those in their volatile caches; outstanding writes may or may not be stored.
    pub fn kill(&mut self) {
        self.judge_bits();
        self.interrupted = true;
        self.was_cut = true;
        let mut rng = self.rng.fork();
        self.measure_due = true;
        for disk in 0..self.disks.len() {
            let writes: Vec<(u64, u64)> = self.disks[disk].outstanding_writes().collect();
            let sectors = writes.into_iter().flat_map(|(at, count)| at..at + count);
            let column_at = |at| self.record.column_at(&self.array, disk, at);
            self.watched_columns.extend(sectors.filter_map(column_at));
            self.disks[disk].process_killed(&mut rng);
        }
        // A part of a stripe may be stored while the rest was not even submitted.
        let written = self.columns_being_written();
        self.watched_columns.extend(written.all().copied());
        self.stopped();
        if self.options.write_back.is_some() {
            self.models().for_each(Model::process_died_with_cache);
        } else {
            self.models().for_each(Model::process_died);
        }
        self.judge_parity(&written, parity::Bytes::Visible);
    }

    /// Columns of writes that may be in progress: writes that were not answered, that a
    /// disconnected client left behind, or that a write-back cache answered and may still have to
    /// write to members.
    fn columns_being_written(&self) -> BeingWritten {
        let columns = |ranges: &mut dyn Iterator<Item = ByteRange>| -> BTreeSet<u64> {
            ranges.flat_map(|range| self.array.columns(range)).map(|(_, it)| it.number).collect()
        };
        let ranges = self.model.in_flight_ranges().into_iter().chain(self.orphans_of(ARRAY));
        let asked = columns(&mut { ranges });
        let kept = self.options.write_back.and(Some(self.model.unflushed_ranges()));
        let mut cached = columns(&mut kept.into_iter().flatten());
        let suspect: BTreeSet<u64> =
            self.watched_columns.columns().chain(self.suspects.columns()).collect();
        cached.retain(|column| !asked.contains(column) && !suspect.contains(column));
        BeingWritten { asked, cached }
    }

    /// Checks invariant I20 (bits before data) before a power cut or process crash: the bit of each
    /// column must be set in which a member may lose content.
    fn judge_bits(&mut self) {
        if self.options.checked && self.engine.is_some() {
            let mut found = Vec::new();
            bits::before_cut(view!(self), &mut found);
            found.into_iter().for_each(|violation| self.fail(violation));
        }
    }

    /// Checks I6 and I20 for the content that is left. Returns the counts of columns that I6
    /// judged; all are 0 if I6 does not count.
    fn judge_parity(&mut self, written: &BeingWritten, bytes: parity::Bytes) -> Judged {
        if !self.options.checked {
            return Judged::default();
        }
        let columns = self.columns_of_interest();
        let mut found = Vec::new();
        let by_bits = bits::after_cut(view!(self), columns.iter().copied(), bytes, &mut found);
        self.coverage.judged_by_bits += by_bits;
        found.drain(..).for_each(|violation| self.fail(violation));
        if self.options.write_back.is_some() {
            let cached = written.cached.iter().copied();
            let scrub = parity::scrub(&self.disks, &self.array, &self.record, cached, bytes);
            self.excuses.ended += columns.len() as u64;
            self.excuses.ended_cached += written.cached.len() as u64;
            self.excuses.ended_cached_wrong += scrub.wrong.len() as u64;
        }
        if !self.counts("I6 parity or dirty") {
            return Judged::default();
        }
        let columns = columns.into_iter();
        let suspect: BTreeSet<u64> =
            self.watched_columns.columns().chain(self.suspects.columns()).collect();
        let quiet = |column: u64| !suspect.contains(&column) && !written.has(column);
        let judged = parity::after_cut(view!(self), columns, quiet, bytes, &mut found);
        if let Some(violation) = found.into_iter().next() {
            self.fail(violation);
        }
        judged
    }

    /// Reads, through the engine, everything that was ever written, and all sectors of the watched
    /// columns. After a power cut the content read is final: later reads must return the same.
    /// Returns the number of sectors read.
    pub fn verify(&mut self, order: Order) -> u64 {
        self.verify_all(order, true)
    }

    /// Variant of [`Self::verify`] for an array that lost more members than its level survives:
    /// content that is read must be right, and unreadable sectors are skipped. Returns the number
    /// of sectors that could be read.
    pub fn verify_readable(&mut self, order: Order) -> u64 {
        self.verify_all(order, false)
    }

    /// Writes every block again that was ever written, on an array that lost members, for as long
    /// as it accepts writes. Returns the number of blocks written.
    pub fn write_again(&mut self, order: Order) -> u64 {
        let takes_writes = |world: &Self| {
            let state = world.snapshot().volumes[0].array_state;
            world.is_still_served() && !matches!(state, "broken" | "readonly")
        };
        let size = self.size() / 4096;
        let blocks: BTreeSet<u64> = self.model.touched().map(|sector| sector / 8).collect();
        let mut written = 0;
        for block in blocks.into_iter().filter(|block| *block < size) {
            if !takes_writes(self) {
                break;
            }
            let failed = self.member_reads_failed();
            let range = ByteRange::new(block * 4096, 4096);
            let sync = Flags { sync: true, ..Flags::NONE };
            let ticket = self.request(VERIFIER, RequestOp::Write, range, Payload::Tags, sync);
            self.run(order);
            if self.failure.is_some() {
                break;
            }
            match self.take_answer(ticket) {
                Some(Ok(_)) => written += 1,
                Some(Err(ReplyError::Io))
                    if takes_writes(self) && self.member_reads_failed() == failed =>
                {
                    let message = format!(
                        "the members that are left take writes, and one of block {block} fails"
                    );
                    self.fail(Violation::new("I13 liveness", message));
                }
                _ => {}
            }
        }
        written
    }

    fn member_reads_failed(&self) -> u64 {
        self.disks.iter().map(|disk| disk.stats.io_errors.reads).sum()
    }

    /// Whether the members without a fault that the engine reads suffice for all data. Flushes,
    /// superblock writes and reads that failed in the past do not count as faults.
    fn is_still_served(&self) -> bool {
        let is_well = |disk: &usize| {
            let Disk { faults, stats, .. } = &self.disks[*disk];
            let IoErrors { flushes, superblocks, reads, .. } = stats.io_errors;
            let reads_back = [&faults.bad_reads, &faults.dead_reads, &faults.bad_writes]
                .into_iter()
                .all(BTreeSet::is_empty);
            let answers = !faults.gone && !faults.stalled && faults.ends_at.is_none();
            let has_bad = self.bad.range((*disk, 0)..(*disk + 1, 0)).next().is_some();
            let answers = answers && !has_bad;
            reads_back && answers && stats.failed == flushes + superblocks + reads
        };
        self.array.suffices(|slot| self.served.at(slot).as_ref().is_some_and(is_well))
    }

    /// Reads sectors of a volume and settles their content: later reads must return the same.
    /// Returns the result of the read; `None` if it was not answered.
    pub(super) fn read_for_good(
        &mut self,
        volume: VolumeId,
        at: u64,
        count: u64,
        order: Order,
    ) -> Option<Result<(), ReplyError>> {
        let range = ByteRange::new(at * 512, count * 512);
        let issued = self.model_of(volume).reconstructed();
        let (op, nothing) = (RequestOp::Read, Payload::Zeros);
        let ticket = self.request_of(volume, VERIFIER, op, range, nothing, Flags::NONE);
        self.run(order);
        let bytes = match self.take_answer(ticket)? {
            Ok(bytes) => bytes,
            Err(error) => return Some(Err(error)),
        };
        if self.failure.is_none() {
            let len = self.options.payload.sector_bytes();
            for (sector, content) in (at..).zip(bytes.chunks_exact(len)) {
                self.model_of(volume).settle(sector, content, issued);
            }
        }
        Some(Ok(()))
    }

    /// Whether bad blocks were recorded, or several disks have sectors that cannot be read.
    fn has_lost_blocks(&self) -> bool {
        let hurt = |disk: &&Disk| disk.faults.is_unreadable(0..disk.size().0);
        !self.bad.is_empty() || self.disks.iter().filter(hurt).count() > 1
    }

    /// Whether data of these sectors of the array may be lost although enough members are left,
    /// because too many members have bad blocks or unreadable sectors in these columns.
    pub(super) fn lacks(&self, at: u64, count: u64) -> bool {
        let is_whole = |disk: usize, sector: u64| {
            let strip = self.array.read_as_one(sector);
            let first = self.array.data_offset[disk].0;
            let at = first + strip.start..first + strip.end;
            let bad = self.bad.range((disk, strip.start)..(disk, strip.end)).next().is_some();
            !bad && !self.disks[disk].faults.is_unreadable(at)
        };
        let there = |slot: Slot, sector: u64| {
            self.served.at(slot).is_some_and(|disk| is_whole(disk, sector))
        };
        (at..at + count).any(|sector| {
            let column = self.array.column(sector);
            match self.array.has_parity() {
                true => !self.array.suffices(|slot| there(slot, column.number)),
                false => !column.places.iter().any(|place| there(place.slot, place.sector)),
            }
        })
    }

    fn verify_all(&mut self, order: Order, whole: bool) -> u64 {
        let mut sectors: BTreeSet<u64> = self.model.touched().collect();
        for column in self.watched_columns.columns().chain(self.suspects.columns()) {
            sectors.extend(self.array.data_of(column).into_iter().map(|(_, sector)| sector));
        }
        // On arrays without parity clients read whole logical blocks.
        if !self.array.has_parity() && self.options.logical_block > 512 {
            let block = u64::from(self.options.logical_block) / 512;
            let whole = |sector: u64| (0..block).map(move |it| sector / block * block + it);
            sectors = sectors.into_iter().flat_map(whole).collect();
        }
        let sectors: Vec<u64> = sectors.into_iter().collect();
        let mut ranges: VecDeque<(u64, u64)> = VecDeque::new();
        for sector in &sectors {
            match ranges.back_mut() {
                Some((at, count)) if *at + *count == *sector && *count < 128 => *count += 1,
                _ => ranges.push_back((*sector, 1)),
            }
        }
        let before = self.excuses;
        let mut read = 0;
        while let Some((at, count)) = ranges.pop_front() {
            let failed = self.member_reads_failed();
            let mut answer = self.read_for_good(ARRAY, at, count, order);
            if matches!(answer, Some(Err(ReplyError::Io))) && whole && self.has_lost_blocks() {
                // The read may have failed a member, and another member may now serve its slot.
                answer = self.read_for_good(ARRAY, at, count, order);
            }
            if self.failure.is_some() {
                return 0;
            }
            match answer {
                Some(Ok(())) => read += count,
                Some(Err(ReplyError::Io)) if whole && self.lacks(at, count) => {
                    // The range is split, so that the sectors beside the lost ones are still read.
                    let end = (at / 8 + 1) * 8;
                    if end < at + count {
                        ranges.push_front((end, at + count - end));
                        ranges.push_front((at, end - at));
                    } else {
                        self.coverage.lost_blocks += 1;
                    }
                }
                Some(Err(error)) if !whole => {
                    // The range is read again block by block.
                    let end = (at / 8 + 1) * 8;
                    if end < at + count {
                        ranges.push_front((end, at + count - end));
                        ranges.push_front((at, end - at));
                    } else if error == ReplyError::Io
                        && self.member_reads_failed() == failed
                        && self.is_still_served()
                    {
                        let message = format!(
                            "the members that are left answer reads, and sector {at} is not read"
                        );
                        self.fail(Violation::new("I13 liveness", message));
                        return 0;
                    }
                }
                other => {
                    let message = format!("verification of sector {at} got {other:?}");
                    self.fail(Violation::new("I1 durability", message));
                    return 0;
                }
            }
        }
        read += self.verify_bare(order);
        self.coverage.hole_predicted += self.excuses.read_unsure - before.read_unsure;
        self.coverage.hole_wrong += self.excuses.read_wrong - before.read_wrong;
        self.look_again_at_all();
        read
    }

    /// Compares the parity or copies of every column of the array on the media, and returns the
    /// counts; see [`parity::scrub`].
    #[must_use]
    pub fn scrub(&self, bytes: parity::Bytes) -> parity::Scrub {
        let columns = 0..self.array.columns_count();
        parity::scrub(&self.disks, &self.array, &self.record, columns, bytes)
    }

    /// Columns that were ever written, that are watched (`watched_columns.rs`) or that are suspect
    /// ([`crate::suspects`]).
    #[must_use]
    pub fn columns_of_interest(&self) -> BTreeSet<u64> {
        let touched = self.model.touched().map(|sector| self.array.column(sector).number);
        touched.chain(self.watched_columns.columns()).chain(self.suspects.columns()).collect()
    }
}
