//! Outputs of the engine carried out: disk requests, computations, answers, notices.
//!
//! The result of a completed request or computation becomes an input of the engine. Checkers see
//! outputs and completions.

use std::hash::{Hash, Hasher};

use weft_compute::compute;
use weft_engine::{
    ComputeOp, Fault, Input, MemberOp, Notice, Origin, Output, Segments, SyncAction, Token, Value,
};
use weft_units::Slot;
use weft_units::digest::Digest;

use super::service::Request;
use super::{ARRAY, Logged, World};
use crate::checker::View;
use crate::disk::DiskOp;
use crate::payload::PayloadMode;
use crate::violation::Violation;

/// An outstanding member request or computation. The driver chooses when it completes.
#[derive(Clone, Debug)]
pub struct Pending {
    /// Number of the disk; `None` for a computation.
    pub disk: Option<usize>,
    /// Origin of the request; `None` for a computation.
    pub origin: Option<Origin>,
    work: Work,
    /// For a discard: whether it is FUA. `None` for other requests, and for the write of zeros that
    /// replaces a discard that failed.
    discards: Option<bool>,
    pub(crate) aborted: bool,
    /// Whether the drive of the disk has completed the request; always true without simulated
    /// drives.
    pub(super) is_served: bool,
}

impl Pending {
    /// Whether the engine has aborted the request.
    #[must_use]
    pub fn is_aborted(&self) -> bool {
        self.aborted
    }
}

#[derive(Clone, Debug)]
enum Work {
    Compute(Vec<ComputeOp>),
    Flush,
    Read { at: u64, count: u64, into: Segments },
    Write { at: u64, count: u64, from: Segments },
    WriteMetadata,
}

impl World {
    pub(crate) fn input(&mut self, input: Input) {
        if self.options.checked {
            let view = view!(self);
            self.checkers.input(view, &input);
        }
        if let Some(engine) = &mut self.engine {
            self.plugged = true;
            engine.handle(self.now, input);
        }
    }

    /// Carries out an output of the engine. Returns the token of a computation that must complete
    /// at once; `None` for all other outputs.
    pub(crate) fn output(&mut self, output: Output) -> Option<Token> {
        let mut hasher = Fnv(self.digest);
        (self.now, &output).hash(&mut hasher);
        self.digest = hasher.0;
        if self.options.checked {
            let view = view!(self);
            self.checkers.output(view, &output);
        }
        match output {
            Output::Submit { token, member, op, attr } => {
                self.submit(token, self.disk_of[member.index()], op, attr.origin);
            }
            Output::Compute { token, ops } => {
                let work = Work::Compute(ops);
                let (disk, origin, discards) = (None, None, None);
                let computes =
                    Pending { disk, origin, work, discards, aborted: false, is_served: true };
                self.pending.insert(token, computes);
                if !self.options.defer_computes {
                    return Some(token);
                }
            }
            Output::Abort(token) => {
                if let Some(pending) = self.pending.get_mut(&token) {
                    pending.aborted = true;
                }
            }
            Output::Reply { client, tag, result } => self.reply((client, tag), result),
            Output::Release(run) => self.memory.give_back(run),
            Output::Credit { client, bytes } => {
                if let Some(used) = self.credit.get_mut(&client) {
                    *used = used.saturating_sub(bytes.0);
                }
            }
            Output::Notice(notice) => self.notice(notice),
        }
        None
    }

    fn notice(&mut self, notice: Notice) {
        match notice {
            Notice::MemberFailed { volume, .. } | Notice::SyncFinished { volume, .. }
                if volume != ARRAY => {}
            Notice::MemberFailed { slot: Some(slot), .. } => {
                self.half_rebuilt.remove(&slot.0);
                self.serves_no_more(slot);
                if self.lacked_space {
                    self.model.copy_lost();
                }
                self.suspects.lose(slot.0);
                self.watched_columns.lose(slot.0);
            }
            Notice::MemberFailed { slot: None, member, .. } => {
                let filled = self.record.is_replacement(self.disk_of[member.index()]);
                self.coverage.replacements_failed += u64::from(filled);
            }
            Notice::MemberReplaced { slot, by, .. } => {
                self.coverage.replaced += 1;
                self.serves_by(slot, by);
            }
            Notice::BadBlocks { member, .. } if self.is_beside(self.disk_of[member.index()]) => {}
            Notice::BadBlocks { member, at, sectors, lost } => {
                let disk = self.disk_of[member.index()];
                let first = at.0 - self.array.data_offset[disk].0;
                self.bad.extend((first..first + sectors.0).map(|sector| (disk, sector)));
                self.coverage.bad_blocks += u64::from(lost);
                self.coverage.unwritten_blocks += u64::from(!lost);
            }
            Notice::NoSpace { member } if self.is_beside(self.disk_of[member.index()]) => {}
            Notice::NoSpace { .. } => self.lacked_space = !self.array.has_parity(),
            Notice::SyncFinished { ref action, complete, .. } => {
                let resync = matches!(action, SyncAction::Repair | SyncAction::Resync);
                if resync && complete && self.options.data_promised {
                    self.watched_columns.synced();
                }
                self.serves_more();
                self.lacked_space &= !(resync && complete);
                self.look_again_at_all();
            }
            _ => {}
        }
        self.notices.push((self.now, notice));
    }

    fn submit(&mut self, token: Token, disk: usize, op: MemberOp, origin: Origin) {
        let sectors =
            |parts: &Segments| parts.iter().map(|part| u64::from(part.len)).sum::<u64>() / 512;
        let discards = match op {
            MemberOp::Discard { fua, .. } => Some(fua),
            _ => None,
        };
        let request = Request::of(token, &op);
        let (work, disk_op, logged) = match op {
            MemberOp::Discard { at, len, fua } => {
                // A simulated disk stores zeros for a discard.
                let (at, count) = (at.0, len.0);
                let bytes = vec![0; self.options.payload.bytes_of(count)];
                self.check_write(disk, at, count, &bytes);
                let logged = Logged::Write { disk, at, count, fua, metadata: false, origin };
                let from = Segments::new();
                let disk_op = DiskOp::Write { at, count, bytes, fua, preflush: false };
                (Work::Write { at, count, from }, disk_op, logged)
            }
            MemberOp::Flush => (Work::Flush, DiskOp::Flush, Logged::Flush { disk }),
            MemberOp::Read { at, into } => {
                let (at, count) = (at.0, sectors(&into));
                let logged = Logged::Read { disk, at, count, origin };
                (Work::Read { at, count, into }, DiskOp::Read { at, count }, logged)
            }
            MemberOp::Write { at, from, fua } => {
                let (at, count) = (at.0, sectors(&from));
                let bytes = self.memory.gather(&from);
                self.check_write(disk, at, count, &bytes);
                let logged = Logged::Write { disk, at, count, fua, metadata: false, origin };
                let disk_op = DiskOp::Write { at, count, bytes, fua, preflush: false };
                (Work::Write { at, count, from }, disk_op, logged)
            }
            MemberOp::WriteMetadata { at, bytes } => {
                let (at, count) = (at.0, bytes.len() as u64 / 512);
                let logged = Logged::Write { disk, at, count, fua: true, metadata: true, origin };
                let bytes = bytes.into_vec();
                (
                    Work::WriteMetadata,
                    DiskOp::Write { at, count, bytes, fua: true, preflush: true },
                    logged,
                )
            }
        };
        if self.options.logged {
            self.log.push(logged);
        }
        if self.disks[disk].read_only && matches!(disk_op, DiskOp::Write { .. }) {
            let message =
                format!("{disk_op:.80?} goes to disk {disk}, of which nothing is to change");
            self.fail(Violation::new("I9 read-only", message));
        }
        self.disks[disk].submit(token, disk_op);
        let is_served = self.service.begin(self.now, disk, request);
        let (disk, origin) = (Some(disk), Some(origin));
        self.pending
            .insert(token, Pending { disk, origin, work, discards, aborted: false, is_served });
    }

    /// Completes a member request or computation and returns its result. In place of a discard that
    /// fails, a write of zeros is submitted, and `None` is returned: the request ends with the
    /// result of this write.
    pub(crate) fn end_or_store_zeros(
        &mut self,
        token: Token,
        pending: Pending,
    ) -> Option<Result<Value, Fault>> {
        let discard =
            pending.discards.filter(|_| !pending.aborted).map(|fua| (fua, pending.clone()));
        let faults =
            pending.disk.filter(|_| discard.is_some()).map(|it| &mut self.disks[it].faults);
        let fails = faults.is_some_and(|faults| {
            let fails = faults.discards_fail > 0;
            faults.discards_fail -= u32::from(fails);
            fails
        });
        let result = if let (true, Some(disk)) = (fails, pending.disk) {
            self.disks[disk].abort(token);
            Err(Fault::Io)
        } else {
            self.end(token, pending)
        };
        match (discard, &result) {
            (Some((fua, again)), Err(Fault::Io)) => {
                let (Work::Write { at, count, .. }, Some(disk)) = (&again.work, again.disk) else {
                    unreachable!("a discard is a write to a disk")
                };
                let (at, count) = (*at, *count);
                let bytes = vec![0; self.options.payload.bytes_of(count)];
                let write = DiskOp::Write { at, count, bytes, fua, preflush: false };
                self.disks[disk].submit(token, write);
                self.coverage.discards_failed += 1;
                let request = Request::zeros(token, at, count, fua);
                let is_served = self.service.begin(self.now, disk, request);
                self.pending.insert(token, Pending { discards: None, is_served, ..again });
                None
            }
            _ => Some(result),
        }
    }

    /// Columns that the `count` sectors from sector `at` of a disk belong to.
    fn columns_at(&self, disk: usize, at: u64, count: u64) -> impl Iterator<Item = u64> {
        (at..at + count).filter_map(move |at| self.column_served_at(disk, at))
    }

    /// Shows a member write to the checkers. Without payload there is nothing to compare.
    fn check_write(&mut self, disk: usize, at: u64, count: u64, bytes: &[u8]) {
        if self.options.checked && self.options.payload != PayloadMode::None {
            let view = view!(self);
            self.checkers.write(view, disk, at, count, bytes);
        }
    }

    pub(crate) fn end(&mut self, token: Token, pending: Pending) -> Result<Value, Fault> {
        let Some(disk) = pending.disk else {
            let Work::Compute(ops) = pending.work else { unreachable!("other work has a disk") };
            return Ok(compute(&self.parity, &mut self.memory, &ops));
        };
        if pending.aborted && !self.disks[disk].can_complete() {
            self.disks[disk].abort(token);
            return Err(Fault::Aborted);
        }
        if let Work::Write { from, .. } = &pending.work {
            let then = self.disks[disk].payload_of(token);
            // The zeros of a discard, or of the write in its place, do not come from a frame.
            if !from.is_empty() && then != Some(&self.memory.gather(from)) {
                self.fail(Violation::new(
                    "I10 single flight",
                    format!("the payload of {token:?} changed while disk {disk} was writing it"),
                ));
            }
        }
        let result = self.disks[disk].complete(token);
        if self.options.logged {
            self.log.push(Logged::Done { disk, ok: result.is_ok() });
        }
        if let (Work::Read { at, count, .. }, Err(_)) = (&pending.work, &result)
            && let Some(Slot(slot)) = self.record.own_slot(disk)
        {
            let columns: Vec<u64> = self.columns_at(disk, *at, *count).collect();
            columns.into_iter().for_each(|column| self.suspects.lose_at(slot, column));
            self.watched_columns.cannot_read();
        }
        if let (Work::Write { at, count, .. }, Err(Fault::NoSpace)) = (&pending.work, &result) {
            // A lack of space does not fail the member, so the stripe is suspect until a resync.
            let columns: Vec<u64> = self.columns_at(disk, *at, *count).collect();
            self.watched_columns.extend(columns.iter().copied());
            self.open_columns(columns);
        }
        if let Work::Write { at, count, .. } = pending.work
            && !self.suspects.is_empty()
        {
            let columns: Vec<u64> = self.columns_at(disk, at, count).collect();
            columns.into_iter().for_each(|column| self.look_again(column));
        }
        match (pending.work, result) {
            (Work::Read { into, .. }, Ok(bytes)) => {
                let mut rest = &bytes[..];
                for part in &into {
                    let part = self.memory.part(*part);
                    let (first, after) = rest.split_at(part.len());
                    part.copy_from_slice(first);
                    rest = after;
                }
                Ok(Value::Nothing)
            }
            (Work::Read { into, .. }, Err(fault)) => {
                // A failed read may have left any content in its frames.
                for part in &into {
                    self.memory.part(*part).fill(0xee);
                }
                Err(fault)
            }
            (Work::WriteMetadata, result) => {
                self.read_record();
                result.map(|_| Value::Nothing)
            }
            (_, result) => result.map(|_| Value::Nothing),
        }
    }
}

struct Fnv(Digest);

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0.0
    }
    fn write(&mut self, bytes: &[u8]) {
        self.0.add(bytes);
    }
    fn write_u8(&mut self, word: u8) {
        self.0.add_word(word.into());
    }
    fn write_u16(&mut self, word: u16) {
        self.0.add_word(word.into());
    }
    fn write_u32(&mut self, word: u32) {
        self.0.add_word(word.into());
    }
    fn write_u64(&mut self, word: u64) {
        self.0.add_word(word);
    }
    fn write_usize(&mut self, word: usize) {
        self.0.add_word(word as u64);
    }
}
