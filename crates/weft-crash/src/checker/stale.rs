//! Checker I8, no stale member: a member that missed an acknowledged write is never counted as in
//! sync.
//!
//! For each disk, the checker keeps the columns in which the disk lacks the newest acknowledged
//! content. An acknowledgement adds the columns that the disk did not store; a completed write of
//! any origin removes its columns. After a restart no such column may lie where the assembly counts
//! the disk as in sync.
//!
//! Below its recovery offset, a member that is being rebuilt counts as in sync. An acknowledged
//! write below that offset may be lost in a power cut if it was not flushed; the model allows for
//! this. Content that the rebuild wrote must not be lost. A column that such a disk lost therefore
//! counts as missing, unless a version of it was durable before, or the disk came back with its old
//! content and missed nothing in this column. A column that reads the same after the cut as before
//! was not lost: the correction of a read error writes the same content again.

use std::collections::{BTreeMap, BTreeSet};

use weft_engine::assemble::{Assembly, SlotState};
use weft_engine::{Input, MemberOp, Output, RequestOp, Tag, Token};
use weft_units::{ByteRange, ClientId, SectorRange, Slot};

use super::{View, Violation};

const NAME: &str = "I8 no stale member";

/// Checker I8: the content that each disk, whether still a member or not, has and lacks.
#[derive(Clone, Debug, Default)]
pub struct Stale {
    requests: BTreeMap<(ClientId, Tag), (u64, ByteRange)>,
    writes: BTreeMap<Token, Write>,
    flushes: BTreeMap<Token, (usize, u64)>,
    clock: u64,
    /// Submission time of the last completed write, by disk and data sector.
    stored: BTreeMap<(usize, u64), u64>,
    /// Data sectors of completed writes that are not durable, by disk: completion time, then data
    /// sector.
    volatile: BTreeMap<usize, Vec<(u64, u64)>>,
    /// Data sectors with at least one version that became durable since the disk joined, by disk.
    durable: BTreeMap<usize, BTreeSet<u64>>,
    /// Data sectors in which the disk lacks the newest acknowledged content, by disk.
    missing: BTreeMap<usize, BTreeSet<u64>>,
    /// Data sectors that a disk which joins without its content will miss once its new superblock
    /// is stored, by disk. Until then a restart may find the old superblock, and the content of the
    /// disk is unchanged.
    joining: BTreeMap<usize, BTreeSet<u64>>,
    /// Data sectors in which the old content of a disk that came back is not valid, by disk. Either
    /// the disk lacked the newest content of the sector, when it came back or later, or it held the
    /// content only in its volatile cache when it came back.
    owed: BTreeMap<usize, BTreeSet<u64>>,
}

#[derive(Clone, Copy, Debug)]
struct Write {
    disk: usize,
    at: u64,
    count: u64,
    submitted: u64,
    fua: bool,
}

impl Stale {
    /// Records requests and completions. A completed flush makes earlier completed writes durable.
    pub fn input(&mut self, view: View<'_>, input: &Input) {
        self.clock += 1;
        match input {
            Input::Client(request) => {
                let advice = request.op == RequestOp::Trim && !view.discards;
                let kept = view.may_keep(request.op);
                let stored = view.array.stored_by(request.op, request.range).filter(|_| !kept);
                if let Some(range) = stored.filter(|_| !advice) {
                    let entry = (self.clock, range);
                    self.requests.insert((request.client, request.tag), entry);
                }
            }
            Input::Done { token, result } => {
                let ok = result.is_ok();
                if let Some(write) = self.writes.remove(token) {
                    if ok {
                        self.complete(view, write);
                    }
                } else if let Some((disk, submitted)) = self.flushes.remove(token)
                    && ok
                {
                    self.joined(disk);
                    if view.disks[disk].faults.lying_flush {
                        return;
                    }
                    let durable = self.durable.entry(disk).or_default();
                    self.volatile.entry(disk).or_default().retain(|(completed, column)| {
                        let covered = *completed < submitted;
                        if covered {
                            durable.insert(*column);
                        }
                        !covered
                    });
                }
            }
            _ => {}
        }
    }

    /// Records member requests. When a write is answered, each disk at its slots that has not
    /// stored the data since the receipt counts as missing it.
    pub fn output(&mut self, view: View<'_>, output: &Output) {
        self.clock += 1;
        match output {
            Output::Submit { token, member, op: MemberOp::Write { at, from, fua }, .. } => {
                let bytes: u64 = from.iter().map(|part| u64::from(part.len)).sum();
                let disk = view.disk(*member);
                let fua = view.stores_at_once(disk, *fua);
                let (at, count) = (at.0, bytes / 512);
                let write = Write { disk, at, count, submitted: self.clock, fua };
                self.writes.insert(*token, write);
            }
            Output::Submit { token, member, op: MemberOp::Discard { at, len, fua }, .. } => {
                let (disk, at, count) = (view.disk(*member), at.0, len.0);
                let fua = view.stores_at_once(disk, *fua);
                let write = Write { disk, at, count, submitted: self.clock, fua };
                self.writes.insert(*token, write);
            }
            // A superblock write flushes too.
            Output::Submit {
                token,
                member,
                op: MemberOp::Flush | MemberOp::WriteMetadata { .. },
                ..
            } => {
                self.flushes.insert(*token, (view.disk(*member), self.clock));
            }
            Output::Reply { client, tag, result: Ok(()) } => {
                let Some((received, range)) = self.requests.remove(&(*client, *tag)) else {
                    return;
                };
                for (_, column) in view.array.columns(range) {
                    for place in column.places {
                        for disk in holders(view, place.slot) {
                            let stored = self.stored.get(&(disk, place.sector));
                            if stored.is_none_or(|submitted| *submitted < received) {
                                self.missing.entry(disk).or_default().insert(place.sector);
                            }
                        }
                    }
                }
            }
            Output::Reply { client, tag, .. } => {
                self.requests.remove(&(*client, *tag));
            }
            _ => {}
        }
    }

    fn complete(&mut self, view: View<'_>, write: Write) {
        let Write { disk, at, count, submitted, fua } = write;
        self.joined(disk);
        for column in (at..at + count).filter_map(|at| view.array.data_sector(disk, at)) {
            self.stored.insert((disk, column), submitted);
            if let Some(missing) = self.missing.get_mut(&disk)
                && missing.remove(&column)
                && let Some(owed) = self.owed.get_mut(&disk)
            {
                owed.insert(column);
            }
            if fua {
                self.durable.entry(disk).or_default().insert(column);
            } else {
                self.volatile.entry(disk).or_default().push((self.clock, column));
            }
        }
    }

    /// Records that a disk joins and lacks the acknowledged content of the data sectors `columns`.
    /// With `keeps`, its old content is valid in all other sectors.
    pub fn disk_added(&mut self, disk: usize, keeps: bool, columns: impl Iterator<Item = u64>) {
        self.durable.remove(&disk);
        self.owed.remove(&disk);
        if keeps {
            let missing = self.missing.entry(disk).or_default();
            missing.extend(columns);
            let volatile = self.volatile.get(&disk).into_iter().flatten().map(|it| it.1);
            self.owed.insert(disk, missing.iter().copied().chain(volatile).collect());
        } else {
            self.joining.entry(disk).or_default().extend(columns);
        }
    }

    /// Records that a joining disk has stored its new superblock, which is written before anything
    /// else.
    fn joined(&mut self, disk: usize) {
        if let Some(columns) = self.joining.remove(&disk) {
            self.missing.entry(disk).or_default().extend(columns);
        }
    }

    /// Records a power cut. `lost` lists data sectors that read differently than before, on disks
    /// that were not in sync. (For disks in sync the model allows for the content that may be
    /// lost.)
    pub fn power_cut(&mut self, lost: &[(usize, u64)]) {
        let has = |all: Option<&BTreeSet<u64>>, column: &u64| all.map(|it| it.contains(column));
        for (disk, column) in lost {
            let held = has(self.owed.get(disk), column) == Some(false);
            if !held && has(self.durable.get(disk), column) != Some(true) {
                self.missing.entry(*disk).or_default().insert(*column);
            }
        }
        self.volatile.clear();
    }

    /// Forgets requests and outstanding operations, because the engine is gone.
    pub fn stopped(&mut self) {
        self.requests.clear();
        self.writes.clear();
        self.flushes.clear();
        self.stored.clear();
    }

    /// State that is left after [`Self::stopped`], as a part of the world's fingerprint. Times of
    /// completion are left out: all of them are earlier than any later event, so that they make no
    /// difference.
    pub(super) fn after_a_stop(&self) -> impl std::fmt::Debug {
        let columns = |all: &Vec<(u64, u64)>| -> Vec<u64> { all.iter().map(|it| it.0).collect() };
        let volatile: Vec<_> = self.volatile.iter().map(|it| (*it.0, columns(it.1))).collect();
        let (joining, missing) = (self.joining.clone(), self.missing.clone());
        (volatile, self.durable.clone(), joining, missing, self.owed.clone())
    }

    /// Checks that no member lacks acknowledged content in the data sectors in which the assembly
    /// counts it as in sync: in all of them, or in those below its recovery offset.
    pub fn assembled(&mut self, view: View<'_>, assembly: &Assembly, found: &mut Vec<Violation>) {
        let joining: Vec<usize> = self.joining.keys().copied().collect();
        for disk in joining.into_iter().filter(|disk| !view.record.is_in_sync(*disk)) {
            self.joined(disk);
        }
        self.joining.clear();
        for (state, slot) in assembly.slots.iter().zip(0..).map(|(state, slot)| (state, Slot(slot)))
        {
            let (member, recovery_offset) = match state {
                SlotState::InSync(member) => (member, u64::MAX),
                SlotState::Rebuilding { member, recovery_offset } => (member, recovery_offset.0),
                SlotState::Missing => continue,
            };
            let disk = view.disk(member.info.index);
            let missing = self.missing.get(&disk);
            // Columns that the slot does not use are never copied to it, and those in the log of
            // bad blocks are not read.
            let bad = member.bad_blocks();
            let used = |column: &&u64| {
                view.array.column_of(slot, **column).is_some()
                    && bad.first_in(SectorRange::new(**column, 1)).is_none()
            };
            if let Some(column) =
                missing.and_then(|columns| columns.range(..recovery_offset).find(used))
            {
                found.push(Violation::new(
                    NAME,
                    format!("disk {disk} is believed and misses what was acknowledged at {column}"),
                ));
            }
        }
    }
}

/// Disks that occupy a slot, or once did, according to their own superblocks.
fn holders(view: View<'_>, slot: Slot) -> Vec<usize> {
    (0..view.disks.len())
        .filter(|disk| {
            let sb = view.record.of(*disk);
            sb.and_then(|sb| sb.own_role().ok()) == Some(weft_ondisk::Role::Active(slot))
                || view.record.in_sync(slot) == Some(*disk)
        })
        .collect()
}
