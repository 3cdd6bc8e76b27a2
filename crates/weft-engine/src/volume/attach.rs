//! Which members or rows does a request touch, and in which order?
//!
//! A read of a whole array goes straight to its members, chunk by chunk, exactly what was asked for.
//! Everything else is attached to rows of the stripe cache, each row once with all of its blocks. What
//! finds no row waits, and holds none meanwhile.
//!
//! Source   md-raid.md §2.1, §2.8

use smallvec::{SmallVec, smallvec};
use weft_units::{ByteRange, Bytes, FRAME_BYTES, SECTOR_BYTES, SectorRange, Sectors, Slot};

use super::{Active, Volume};
use crate::align::whole_blocks;
use crate::array::{Array, MemberRequest};
use crate::frame::Run;
use crate::input::RequestOp;
use crate::knobs::Writes;
use crate::mutant::Mutant;
use crate::outbox::{Outbox, ReadPart, Who};
use crate::output::Output;
use crate::raid::geometry::{Geometry, Placement};
use crate::raid::parity::Piece;
use crate::raid::parity::cache::Acquired;
use crate::raid::parity::rows::Arrival;
use crate::ranges::RequestId;
use crate::sched::merge::Kind;

/// A piece of a read that goes through the cache: its member is missing, or did not give it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Detour {
    pub(super) part: ReadPart,
    /// The member was asked.
    pub(super) failed: bool,
}

/// How far a long request is attached: which units of the present piece of at most 256 are done.
#[derive(Clone, Debug)]
pub(super) struct Cursor {
    /// Bytes of the volume that the present piece is made of.
    from: u64,
    to: u64,
    /// The same in units, rounded out.
    first: u64,
    end: u64,
    /// Where to go on within the piece.
    at: u64,
    done: SmallVec<[u64; 4]>,
    left: u64,
}

/// Units of a request that lie in rows of one chunk row that follow each other: of the same data chunks
/// in each.
#[derive(Clone, Debug)]
struct UnitRun {
    /// Where the cursor was: one of the units of the lowest row.
    first: u64,
    rows: u64,
    /// Rows that the request needs of this chunk.
    wanted: u64,
    /// The unit of each data chunk in the lowest row, if it is meant.
    units: SmallVec<[Option<u64>; 4]>,
}

/// How an attempt to attach a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attached {
    /// With all of it.
    All,
    /// With a piece of it: others have their turn.
    Piece,
    /// No row was free.
    Starved,
}

impl Volume {
    /// Reads straight from the members, chunk by chunk, exactly what was asked for; through the cache
    /// what a member does not have.
    pub(super) fn bypass(&mut self, id: RequestId, out: &mut Outbox) {
        let chunk = self.array.geometry.chunk().bytes().0;
        let request = self.active(id);
        let (range, frames, attr) = (request.range, request.frames, request.attr);
        let mut start = range.start.0;
        let mut pieces = 0;
        while start < range.end().0 {
            let end = range.end().0.min((start / chunk + 1) * chunk);
            let position = self.array.geometry.locate(Bytes(start).sectors_floor());
            let part = ReadPart { request: id, start: Bytes(start), len: (end - start) as u32 };
            pieces += 1;
            // Whatever the member's blocks are, the ones that are read lie within these frames.
            let first = position.sector.0 / FRAME_SECTORS * FRAME_SECTORS;
            let last = position.sector.0 + (end - 1) / SECTOR_BYTES - start / SECTOR_BYTES;
            let sectors = SectorRange::new(
                first,
                last / FRAME_SECTORS * FRAME_SECTORS + FRAME_SECTORS - first,
            );
            let readable = self.array.readable(sectors).contains(position.slot);
            let Some(place) = self.array.position_at(position.slot).filter(|_| readable) else {
                self.detours.push_back(Detour { part, failed: false });
                start = end;
                continue;
            };
            let block = u64::from(self.array.members[place].info.logical_block);
            let whole = whole_blocks(ByteRange::new(start, end - start), block);
            let in_frames = whole.start.0 - range.start.0 / FRAME_BYTES * FRAME_BYTES;
            let sector_in_chunk = Sectors(whole.start.0 % chunk / SECTOR_BYTES);
            let read = MemberRequest {
                write: false,
                sector: position.sector.round_down(self.array.geometry.chunk()) + sector_in_chunk,
                bytes: whole.len,
                max: self.knobs.max_sectors,
                kind: Kind { fua: false, rows: false, attr },
            };
            let memory = frames.part(in_frames, whole.len.0);
            self.array.stage(place, &read, &[memory], Who::Read(part), out);
            start = end;
        }
        self.active(id).pending += pieces;
        self.piece_done(id, Ok(()), out);
    }

    /// Attaches what waits for rows: work that lost its row, failed reads, requests in order. While
    /// the cache waits for its new shape, only what was begun goes on.
    pub(super) fn attach_waiting(&mut self, out: &mut Outbox) {
        let relieved = self.rows.cache.relieve();
        let first = self.starved.front().copied();
        let mut first_refused = false;
        if relieved {
            self.rows.place_displaced(&self.array);
            if !self.detours_wait {
                self.take_detours();
            }
            // In order of arrival: those that waited go on before the new ones.
            while let Some(id) = self.starved.pop_back() {
                self.ready.push_front(id);
            }
        }
        let mut later = Vec::new();
        while let Some(id) = self.ready.pop_front() {
            let request = self.active(id);
            if request.error.is_some() {
                self.attached(id, out);
                continue;
            }
            let begun = request.cursor.as_ref().is_some_and(|cursor| cursor.left > 0);
            if self.resizing.is_some() && !begun {
                later.push(id);
                continue;
            }
            match self.attach(id) {
                Attached::All => self.attached(id, out),
                Attached::Piece => later.push(id),
                Attached::Starved => {
                    first_refused |= first == Some(id);
                    self.starved.push_back(id);
                }
            }
        }
        self.ready.extend(later);
        if relieved {
            // One who needs many rows would never find them between detours that need one each.
            self.detours_wait = first_refused;
            if !first_refused {
                self.take_detours();
            }
        }
    }

    fn take_detours(&mut self) {
        while let Some(detour) = self.detours.front().copied() {
            if !self.take_detour(detour) {
                break;
            }
            self.detours.pop_front();
        }
    }

    fn attached(&mut self, id: RequestId, out: &mut Outbox) {
        let request = self.active(id);
        let (stream, end) = (request.stream, request.range.end().0);
        self.streams.attached(stream, end, out.now);
        if self.array.is_planted(Mutant::FrameReusedInFlight) {
            let frames = std::mem::replace(&mut self.active(id).frames, Run::EMPTY);
            out.push(Output::Release(frames));
        }
        self.piece_done(id, Ok(()), out);
    }

    /// Attaches a request, or the rest of it.
    fn attach(&mut self, id: RequestId) -> Attached {
        let unit = self.rows.cache.block_bytes();
        let request = self.active(id);
        let range = request.range;
        if request.discarded.is_some() && self.begin_discard(id) {
            return Attached::All;
        }
        if range.start.0 / unit == (range.end().0 - 1) / unit {
            self.attach_short(id, unit)
        } else {
            self.attach_long(id, unit)
        }
    }

    /// Attaches a request that lies within one unit: one piece of one row.
    fn attach_short(&mut self, id: RequestId, unit: u64) -> Attached {
        let request = self.requests[id.0 as usize].as_mut().expect("it is being attached");
        let range = request.range;
        let (position, placement) = self.array.geometry.place(range.start.sectors_floor());
        let key = position.sector.0 / self.rows.cache.height().0;
        let Acquired::Row(row) = self.rows.cache.acquire_some(key, 1, || placement) else {
            return Attached::Starved;
        };
        let slot = if request.writes && self.array.is_planted(Mutant::ChunkEdgeOffByOne) {
            let in_chunk = position.sector.0 % self.array.geometry.chunk().0 * SECTOR_BYTES / unit;
            written_slot(&self.array, placement, position.data_index, in_chunk)
        } else {
            position.slot
        };
        let piece = request.piece(id, slot, range.start.0, range.end().0, unit);
        request.pending += 1;
        let arrival = request.arrival(self.knobs.writes);
        self.rows.attach(row, &[piece], arrival);
        Attached::All
    }

    /// Attaches the rest of a longer one, row by row.
    ///
    /// Source   md-raid.md §2.1: pieces of 256 units; a request that reaches into the next member's
    ///          chunk begins there, so that member offsets go up
    fn attach_long(&mut self, id: RequestId, unit: u64) -> Attached {
        loop {
            let request = self.requests[id.0 as usize].as_mut().expect("it is being attached");
            let end = request.range.end().0;
            let cursor = match &mut request.cursor {
                Some(cursor) if cursor.left > 0 => cursor,
                cursor => {
                    let to = cursor.as_ref().map(|cursor| cursor.to);
                    let mut from = to.unwrap_or(0).max(request.range.start.0);
                    let mut end = end;
                    if let Some(discarded) = &request.discarded {
                        (from, end) = discarded.beside(from, end);
                    }
                    if from >= end {
                        return Attached::All;
                    }
                    // A long one lets others go between its pieces.
                    let others = to.is_some() && !self.ready.is_empty();
                    if self.resizing.is_some() || others {
                        return Attached::Piece;
                    }
                    cursor.insert(Box::new(Cursor::new(&self.array, from, end, unit)))
                }
            };
            let run = cursor.run(&self.array.geometry, unit, request.range.end().0);
            if !self.attach_run(id, &run, unit) {
                if self.rows.cache.goes_by_chunk_rows() {
                    self.attach_to_active(id, unit);
                }
                return Attached::Starved;
            }
        }
    }

    /// Attaches of a request's present piece what belongs to rows that wait for more: they take no row from
    /// anybody, and what waits for a row must not keep them waiting.
    fn attach_to_active(&mut self, id: RequestId, unit: u64) {
        let mut after = 0;
        while let Some(run) = self.active_run(id, after, unit) {
            after = run.first + run.rows;
            let attached = self.attach_run(id, &run, unit);
            debug_assert!(attached, "these rows are there");
        }
    }

    /// The next rows, from this unit on, that wait for more and get some from a request's present piece.
    fn active_run(&self, id: RequestId, after: u64, unit: u64) -> Option<UnitRun> {
        let request = self.requests[id.0 as usize].as_ref().expect("it is being attached");
        let cursor = request.cursor.as_ref().expect("it was made before");
        let geometry = &self.array.geometry;
        let waits = |number: u64| {
            let sector = geometry.locate(Bytes(number * unit).sectors_floor()).sector;
            self.rows.cache.is_delayed(sector.0 / self.rows.cache.height().0)
        };
        let first = cursor.units_left(after).find(|number| waits(*number))?;
        let mut run = cursor.run_from(first, geometry, unit, request.range.end().0);
        let active = (1..run.rows).take_while(|row| waits(first + row)).count();
        run.rows = 1 + active as u64;
        Some(run)
    }

    /// Attaches a request to rows of one chunk row that follow each other, each with its blocks of the
    /// same data chunks. Whether there were rows for all.
    fn attach_run(&mut self, id: RequestId, run: &UnitRun, unit: u64) -> bool {
        let sector = Bytes(run.first * unit).sectors_floor();
        let (position, placement) = self.array.geometry.place(sector);
        let height = self.rows.cache.height().0;
        let key = position.sector.0 / height;
        let in_chunk = key & (self.array.geometry.chunk().0 / height - 1);
        let request = self.requests[id.0 as usize].as_mut().expect("it is being attached");
        let arrival = request.arrival(self.knobs.writes);
        let mut pieces: SmallVec<[Piece; 4]> = SmallVec::new();
        for (data_index, number) in run.blocks() {
            let slot = if request.writes {
                written_slot(&self.array, placement, data_index, in_chunk)
            } else {
                placement.data_slot(data_index)
            };
            let cursor = request.cursor.as_ref().expect("it was made before");
            let start = cursor.from.max(number * unit);
            let end = request.range.end().0.min((number + 1) * unit);
            pieces.push(request.piece(id, slot, start, end, unit));
        }
        let mut rows = 0;
        while rows < run.rows {
            let wanted = run.wanted - rows;
            let Acquired::Row(row) = self.rows.cache.acquire_some(key + rows, wanted, || placement)
            else {
                break;
            };
            self.rows.attach(row, &pieces, arrival);
            for memory in pieces.iter_mut().filter_map(|piece| piece.memory.as_mut()) {
                memory.frame.0 += (unit / FRAME_BYTES) as u32;
            }
            rows += 1;
        }
        request.pending += pieces.len() as u32 * rows as u32;
        request.cursor.as_mut().expect("it was made before").take(run, rows);
        rows == run.rows
    }

    /// Reads through the cache what a member did not give. Whether a row was free.
    fn take_detour(&mut self, detour: Detour) -> bool {
        let Detour { part, failed } = detour;
        let unit = self.rows.cache.block_bytes();
        let mut start = part.start.0;
        let end = start + u64::from(part.len);
        let mut pieces = 0;
        while start < end {
            let stop = end.min((start / unit + 1) * unit);
            let position = self.array.geometry.locate(Bytes(start).sectors_floor());
            let key = position.sector.0 / self.rows.cache.height().0;
            let Acquired::Row(row) = self.rows.cache.acquire(key, &self.array.geometry) else {
                break;
            };
            let request = self.active(part.request);
            let piece = request.piece(part.request, position.slot, start, stop, unit);
            let attr = request.attr;
            let arrival =
                Arrival { write: false, sync: true, streams: false, retried: failed, attr };
            self.rows.attach(row, &[piece], arrival);
            pieces += 1;
            start = stop;
        }
        let rest = u32::from(start < end);
        self.active(part.request).pending += pieces + rest - 1;
        if rest == 1 {
            let front = self.detours.front_mut().expect("it is being taken");
            front.part = ReadPart { start: Bytes(start), len: (end - start) as u32, ..part };
        }
        rest == 0
    }
}

impl Active {
    /// How its pieces come to a row.
    fn arrival(&self, writes: Writes) -> Arrival {
        Arrival {
            write: self.writes,
            // Who asks for it does not want to wait for what may never come.
            sync: (self.flags.sync && !self.pours) || writes == Writes::Sync,
            streams: self.streams,
            retried: false,
            attr: self.attr,
        }
    }

    /// The piece of a request between two bytes of one block, as its row takes it.
    fn piece(&self, id: RequestId, slot: Slot, start: u64, end: u64, unit: u64) -> Piece {
        let in_frames = start - self.range.start.0 / FRAME_BYTES * FRAME_BYTES;
        let memory =
            (self.op != RequestOp::WriteZeroes).then(|| self.frames.part(in_frames, end - start));
        Piece {
            request: id,
            slot,
            offset: (start % unit) as u32,
            len: (end - start) as u32,
            memory,
            fua: self.flags.fua,
        }
    }
}

impl Cursor {
    /// The next piece of a request that goes on at the byte `from` and ends at `request_end`.
    fn new(array: &Array, from: u64, request_end: u64, unit: u64) -> Self {
        let first = from / unit;
        let end = request_end.div_ceil(unit).min(first + UNITS_MAX);
        let (at, left) = (first_unit(array, first, end, unit), end - first);
        let done = smallvec![0; left.div_ceil(64) as usize];
        Self { from, to: end * unit, first, end, at, done, left }
    }

    /// The next unit that is not attached, going up from where it began and around.
    fn next(&self) -> Option<u64> {
        let is_left = |unit: &u64| !self.is_done(*unit);
        (self.at..self.end).find(is_left).or_else(|| (self.first..self.at).find(is_left))
    }

    fn is_done(&self, unit: u64) -> bool {
        let bit = unit - self.first;
        self.done[(bit / 64) as usize] >> (bit % 64) & 1 == 1
    }

    /// The rows to attach next, of a request that ends at the byte `end`: from the next unit upwards.
    fn run(&self, geometry: &Geometry, unit: u64, end: u64) -> UnitRun {
        let first = self.next().expect("units are left");
        self.run_from(first, geometry, unit, end)
    }

    /// The units from this one on that are not attached.
    fn units_left(&self, from: u64) -> impl Iterator<Item = u64> + '_ {
        (self.first.max(from)..self.end).filter(|unit| !self.is_done(*unit))
    }

    /// The same from one that is not attached.
    fn run_from(&self, first: u64, geometry: &Geometry, unit: u64, end: u64) -> UnitRun {
        let units_per_chunk = geometry.chunk().bytes().0 / unit;
        let data_members = u64::from(geometry.data_members());
        let in_chunk = first & (units_per_chunk - 1);
        let chunk_row = first / (units_per_chunk * data_members) * data_members;
        let wanted = (units_per_chunk - in_chunk).min(self.end - first);
        let mut rows = (1..wanted).find(|row| self.is_done(first + row)).unwrap_or(wanted);
        // Units that the request begins or ends within are runs of their own.
        let begins_within = u64::from(self.from > self.first * unit);
        let ends_within = u64::from(end < self.end * unit);
        let edges =
            [self.first, self.first + begins_within, self.end - ends_within, self.end, u64::MAX];
        let mut units = SmallVec::new();
        for chunk in chunk_row..chunk_row + data_members {
            let number = chunk * units_per_chunk + in_chunk;
            units.push((self.first..self.end).contains(&number).then_some(number));
            let edge = edges.into_iter().find(|edge| *edge > number).expect("the last is far away");
            rows = rows.min(edge - number);
        }
        UnitRun { first, rows, wanted, units }
    }

    /// Marks the units of so many rows.
    fn take(&mut self, run: &UnitRun, rows: u64) {
        for (_, number) in run.blocks() {
            for bit in number - self.first..number - self.first + rows {
                debug_assert_eq!(self.done[(bit / 64) as usize] >> (bit % 64) & 1, 0);
                self.done[(bit / 64) as usize] |= 1 << (bit % 64);
            }
            self.left -= rows;
        }
        while self.at < self.end && self.is_done(self.at) {
            self.at += 1;
        }
    }
}

impl UnitRun {
    /// The data chunks that are meant, and the unit of each in the lowest row.
    fn blocks(&self) -> impl Iterator<Item = (u16, u64)> {
        let meant = |(index, unit): (u16, &Option<u64>)| unit.map(|unit| (index, unit));
        (0..).zip(&self.units).filter_map(meant)
    }
}

/// The unit that a request's piece begins with (md's `raid5_bio_lowest_chunk_sector`).
fn first_unit(array: &Array, first: u64, end: u64, unit: u64) -> u64 {
    let geometry = &array.geometry;
    let units_per_chunk = geometry.chunk().bytes().0 / unit;
    let next_chunk = (first / units_per_chunk + 1) * units_per_chunk;
    if next_chunk >= end {
        return first;
    }
    let position = geometry.locate(Bytes(first * unit).sectors_floor());
    let parity = geometry.placement(position.chunk_row).parity();
    let members = geometry.members();
    let higher = (position.slot.0 + 1..members).any(|slot| !parity.contains(Slot(slot)));
    if higher { next_chunk } else { first }
}

/// The slot that a write of a data chunk goes to.
fn written_slot(array: &Array, placement: Placement, data_index: u16, in_chunk: u64) -> Slot {
    let wrong = array.is_planted(Mutant::ChunkEdgeOffByOne) && in_chunk == 0 && data_index > 0;
    placement.data_slot(data_index - u16::from(wrong))
}

const FRAME_SECTORS: u64 = FRAME_BYTES / SECTOR_BYTES;

/// Units that a request attaches at a time (md: `RAID5_MAX_REQ_STRIPES`).
const UNITS_MAX: u64 = 256;
