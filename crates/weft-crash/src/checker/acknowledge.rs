//! Checker I4, no early acknowledgement: a write, FUA write or flush is answered only when it is
//! complete.
//!
//! - (a) A write is acknowledged after every member that a restart would count as in sync has
//!   completed it.
//! - (b) A FUA write is acknowledged after its data is durable on each of these members.
//! - (c) A flush is acknowledged after everything acknowledged before its receipt is durable on
//!   each member.
//! - (d) A member that missed the write may be left out only once no survivor's durable superblock
//!   counts the member as in sync: until then a restart would use the member. A survivor does not
//!   count if its superblock can never be read again. A record of the failure counts even if the
//!   sectors to which it was written cannot be read afterwards, because the engine cannot know that
//!   they are lost.
//! - (e) Data of a write with PREFLUSH goes to members after (c) and (d) hold for everything that
//!   was acknowledged before its receipt.

use std::collections::{BTreeMap, BTreeSet};

use weft_engine::{Fault, Flags, Input, MemberOp, Origin, Output, RequestOp, Tag, Token};
use weft_units::{ByteRange, ClientId, Slot};

use super::{Record, View, Violation};

const NAME: &str = "I4 no early acknowledgement";

/// Checker I4, no early acknowledgement. All times are counts of events: submissions, completions,
/// receipts and replies.
#[derive(Clone, Debug, Default)]
pub struct Acknowledge {
    clock: u64,
    requests: BTreeMap<(ClientId, Tag), Request>,
    writes: BTreeMap<Token, Write>,
    flushes: BTreeMap<Token, (usize, u64)>,
    /// The last write of each sector, by disk and absolute sector.
    stored: BTreeMap<(usize, u64), Stored>,
    /// Sectors of writes that failed for lack of space, by disk and absolute sector, until they are
    /// written.
    refused: BTreeSet<(usize, u64)>,
    /// Time before which every completed write is durable, by disk.
    durable: BTreeMap<usize, u64>,
    /// Time of the last completion that is not yet durable and on which an acknowledged write
    /// relies, by disk.
    relied_on: BTreeMap<usize, u64>,
}

#[derive(Clone, Debug)]
struct Request {
    received: u64,
    op: RequestOp,
    flags: Flags,
    range: ByteRange,
    /// Time of the last completion that must be durable before a flush or a request with PREFLUSH
    /// is answered, by disk: a copy of `relied_on` at the receipt of the request.
    must_be_durable: BTreeMap<usize, u64>,
}

#[derive(Clone, Debug)]
struct Write {
    disk: usize,
    at: u64,
    count: u64,
    submitted: u64,
    fua: bool,
}

#[derive(Clone, Debug, Default)]
struct Stored {
    submitted: u64,
    completed: u64,
    /// Submission time of the last write that is known to be durable; later writes may have
    /// followed.
    known_durable: u64,
    /// Submission and completion time of each earlier write that was not durable when it was
    /// replaced. A flush that was submitted in between still makes it durable.
    replaced: Vec<(u64, u64)>,
}

impl Request {
    /// Whether the request's range has at least one byte of an array sector.
    fn has_part_of(&self, array_sector: u64) -> bool {
        let (first, len) = (self.range.start.0, self.range.len.0);
        first < (array_sector + 1) * 512 && array_sector * 512 < first.saturating_add(len)
    }
}

impl Stored {
    /// Whether this sector has, or once had, durable content from a write that was submitted after
    /// the time `received`. Writes that completed before the time `flushed` are durable.
    fn is_durable(&self, received: u64, flushed: u64) -> bool {
        let was =
            |(submitted, completed): &(u64, u64)| *submitted > received && *completed < flushed;
        self.known_durable > received || self.completed < flushed || self.replaced.iter().any(was)
    }
}

impl Acknowledge {
    /// Records requests and completions. A flush that completes makes earlier writes durable.
    pub fn input(&mut self, view: View<'_>, input: &Input) {
        self.clock += 1;
        match input {
            Input::Client(request) => {
                let entry = Request {
                    received: self.clock,
                    op: request.op,
                    flags: request.flags,
                    range: request.range,
                    must_be_durable: self.relied_on.clone(),
                };
                self.requests.insert((request.client, request.tag), entry);
            }
            Input::Done { token, result } => {
                let ok = result.is_ok();
                if let Some(write) = self.writes.remove(token) {
                    let sectors = (write.at..write.at + write.count).map(|at| (write.disk, at));
                    match result {
                        Ok(_) => self.complete(&write),
                        Err(Fault::NoSpace) => self.refused.extend(sectors),
                        Err(_) => {}
                    }
                } else if let Some((disk, submitted)) = self.flushes.remove(token)
                    && ok
                    && !view.disks[disk].faults.lying_flush
                {
                    let durable = self.durable.entry(disk).or_default();
                    *durable = (*durable).max(submitted);
                }
            }
            Input::ClientGone(_) | Input::Wake | Input::Admin(_) => {}
        }
    }

    /// Records member requests. Of the rules at the top of this file, checks (e) when a client's
    /// write goes to a member, and (a) to (d) when a client gets a reply.
    pub fn output(&mut self, view: View<'_>, output: &Output, found: &mut Vec<Violation>) {
        self.clock += 1;
        match output {
            Output::Submit { token, member, op, attr } => {
                let disk = view.disk(*member);
                match op {
                    MemberOp::Discard { at, len, fua } => {
                        let (at, count) = (at.0, len.0);
                        let fua = view.stores_at_once(disk, *fua);
                        let write = Write { disk, at, count, submitted: self.clock, fua };
                        self.writes.insert(*token, write);
                    }
                    MemberOp::Flush => {
                        self.flushes.insert(*token, (disk, self.clock));
                    }
                    MemberOp::WriteMetadata { .. } => {
                        // A metadata write flushes too.
                        self.flushes.insert(*token, (disk, self.clock));
                    }
                    MemberOp::Write { at, from, fua } => {
                        let bytes: u64 = from.iter().map(|part| u64::from(part.len)).sum();
                        let write = Write {
                            disk,
                            at: at.0,
                            count: bytes / 512,
                            submitted: self.clock,
                            fua: view.stores_at_once(disk, *fua),
                        };
                        if matches!(attr.origin, Origin::Client(..)) && !view.write_back {
                            self.follows_its_flush(view, &write, found);
                        }
                        self.writes.insert(*token, write);
                    }
                    MemberOp::Read { .. } => {}
                }
            }
            Output::Reply { client, tag, result } => {
                let Some(request) = self.requests.remove(&(*client, *tag)) else { return };
                if result.is_ok() {
                    self.check(view, &request, found);
                }
            }
            _ => {}
        }
    }

    /// Numbers of the in-sync disks that must still be flushed before `request`, a flush or a
    /// request with PREFLUSH, may be answered.
    fn not_flushed_for<'a>(
        &'a self,
        view: View<'a>,
        request: &'a Request,
    ) -> impl Iterator<Item = usize> + 'a {
        let late = move |(disk, completed): &(&usize, &u64)| {
            let in_sync = |record: &Record| record.is_in_sync(**disk);
            // A missing disk may come back, and a restart uses its data as long as the survivors'
            // superblocks count the disk as in sync.
            let counts = in_sync(view.record) && in_sync(view.written);
            counts && self.durable.get(disk).copied().unwrap_or(0) < **completed
        };
        request.must_be_durable.iter().filter(late).map(|(disk, _)| *disk)
    }

    /// Checks rule (e) for a client's write that is about to go to a disk: before the data of a
    /// write with PREFLUSH, everything that was acknowledged before its receipt must be durable.
    fn follows_its_flush(&self, view: View<'_>, write: &Write, found: &mut Vec<Violation>) {
        // The request that the disk had no space for is answered already; its data is written later
        // without regard to flushes.
        if (write.at..write.at + write.count).any(|at| self.refused.contains(&(write.disk, at))) {
            return;
        }
        let begins = |request: &&Request| {
            let stores = matches!(request.op, RequestOp::Write | RequestOp::WriteZeroes);
            request.flags.preflush && stores && request.range.len.0 > 0
        };
        for request in self.requests.values().filter(begins) {
            let Some(disk) = self.not_flushed_for(view, request).next() else { continue };
            let Some(sectors) = array_sectors(view, write) else { return };
            // A member write that is larger than the client's may also carry a block that another
            // request changed.
            let whole = sectors.iter().all(|sector| request.has_part_of(*sector));
            // Requests for different bytes of a sector do not wait for each other.
            let changes = |other: &&Request| {
                other.op != RequestOp::Read && sectors.iter().any(|it| other.has_part_of(*it))
            };
            let alone = self.requests.values().filter(changes).count() == 1;
            if whole && alone {
                found.push(Violation::new(
                    NAME,
                    format!(
                        "(e) data of a write with PREFLUSH goes to disk {} and disk {disk} was not \
                         flushed since",
                        write.disk
                    ),
                ));
                return;
            }
        }
    }

    fn complete(&mut self, write: &Write) {
        let flushed = self.durable.get(&write.disk).copied().unwrap_or(0);
        for sector in write.at..write.at + write.count {
            let stored = self.stored.entry((write.disk, sector)).or_default();
            stored.replaced.push((stored.submitted, stored.completed));
            let durable = stored.replaced.extract_if(.., |(_, completed)| *completed < flushed);
            let last = durable.map(|(submitted, _)| submitted).max();
            stored.known_durable = stored.known_durable.max(last.unwrap_or(0));
            stored.submitted = write.submitted;
            stored.completed = self.clock;
            self.refused.remove(&(write.disk, sector));
            if write.fua {
                stored.known_durable = write.submitted;
            }
        }
    }

    fn check(&mut self, view: View<'_>, request: &Request, found: &mut Vec<Violation>) {
        let preflush = request.flags.preflush || request.op == RequestOp::Flush;
        for disk in self.not_flushed_for(view, request).filter(|_| preflush) {
            let text = format!("(c) a flush is acknowledged and disk {disk} was not flushed since");
            found.push(Violation::new(NAME, text));
        }
        let advice = request.op == RequestOp::Trim && !view.discards;
        // (a) does not hold for data that a write-back cache keeps, be it a whole write or a part.
        // Reads after a cut show whether a flush covered such data.
        if view.may_keep(request.op) && !request.flags.fua {
            return;
        }
        let stored = view.array.stored_by(request.op, request.range);
        let Some(range) = stored.filter(|range| range.len.0 > 0 && !advice) else { return };
        for (array_sector, column) in view.array.columns(range) {
            for place in &column.places {
                let slot = place.slot;
                let believed = view.record.believed(slot);
                let believed = believed.filter(|disk| view.written.believed(slot) == Some(*disk));
                let Some(disk) = believed else { continue };
                // The member's own bad-block log says that its sector is not valid.
                if view.record.is_bad(disk, place.sector) {
                    continue;
                }
                let at = place.sector + view.array.data_offset[disk].0;
                let stored = self.stored.get(&(disk, at));
                let fresh = stored.filter(|stored| stored.submitted > request.received);
                let Some(stored) = fresh else {
                    let which = match (slot == column.data, view.array.has_parity()) {
                        (true, true) => "data",
                        (false, true) => "parity",
                        (_, false) => "copy",
                    };
                    let recorded = if view.disks[disk].faults.gone || stored.is_none() {
                        ", and no survivor records that it misses it"
                    } else {
                        ""
                    };
                    found.push(Violation::new(
                        NAME,
                        format!(
                            "(a, d) a write of sector {array_sector} is acknowledged and its {which} \
                             on disk {disk} (slot {}) is not written{recorded}",
                            slot.0
                        ),
                    ));
                    return;
                };
                let flushed = self.durable.get(&disk).copied().unwrap_or(0);
                if request.flags.fua && !stored.is_durable(request.received, flushed) {
                    found.push(Violation::new(
                        NAME,
                        format!(
                            "(b) a FUA write of sector {array_sector} is acknowledged and not durable \
                             on disk {disk}"
                        ),
                    ));
                    return;
                }
                if stored.known_durable >= stored.submitted {
                    // A durable write needs no flush.
                    continue;
                }
                let relied_on = self.relied_on.entry(disk).or_default();
                *relied_on = (*relied_on).max(stored.completed);
            }
        }
    }
}

/// Array sectors that a member write stores; `None` if its disk is not in sync, or if any of its
/// sectors is parity or space that the array does not use.
fn array_sectors(view: View<'_>, write: &Write) -> Option<Vec<u64>> {
    let offset = view.array.data_offset[write.disk].0;
    let mut slots = (0..view.array.members()).map(Slot);
    let slot = slots.find(|slot| view.record.in_sync(*slot) == Some(write.disk))?;
    let sectors = write.at..write.at + write.count;
    sectors.map(|at| view.array.array_sector(slot, at.checked_sub(offset)?)).collect()
}
