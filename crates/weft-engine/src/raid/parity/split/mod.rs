//! Splitting of requests: which stripes a request touches, and in which order it is attached to
//! them.
//!
//! A request is attached to each of its stripes once, with all of its strips in that stripe. A
//! request that finds no free stripe waits, and holds no stripe meanwhile.
//!
//! Source   md-raid.md §2.1, §2.8

mod cursor;

use smallvec::SmallVec;
use weft_units::{ByteRange, Bytes, FRAME_BYTES, SECTOR_BYTES, Slot, Time};

use self::cursor::{Cursor, UnitRun};
use super::cache::Acquired;
use super::streams::WriteStream;
use super::stripe::Touched;
use super::stripes::arrivals::Arrival;
use super::{ParityRaid, SubRequest};
use crate::contract::error::ReplyError;
use crate::contract::frame::Run;
use crate::contract::input::Attr;
use crate::contract::token::RequestId;
use crate::knobs::{Knobs, PlanRule, PriorityRule, Writes};
use crate::layout::geometry::{Geometry, Placement};
use crate::mutant::Mutant;
use crate::raid::personality::{RaidLevel, Requests};
use crate::raid::straight::StraightPart;
use crate::raid::{ArrayIo, Cx, Event, SPLITTING};

#[derive(Clone, Debug)]
pub(super) struct SplitRequest {
    io: ArrayIo,
    /// Whether some part of the request failed, so that the rest need not be attached to stripes.
    failed: bool,
    /// Number of parts of the request, one for each strip that it touches, attached to stripes so
    /// far.
    sub_requests: u32,
    /// Progress of a request that is longer than the data of one strip; `None` before any of it is
    /// attached.
    cursor: Option<Box<Cursor>>,
}

/// Part of a client's read that has to go through the stripe cache, because its member is missing
/// or failed to read it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReRead {
    part: StraightPart,
    /// Whether the member was asked for the data and failed.
    asked: bool,
    /// Frames of the request that the part belongs to.
    frames: Run,
    start: Bytes,
    attr: Attr,
    /// Number of strips of the part that were attached to stripes so far.
    sub_requests: u32,
}

/// Settings on which the attaching of requests to stripes depends.
#[derive(Clone, Copy, Debug)]
struct Attaching {
    writes: Writes,
    /// Whether the cache is about to be resized, so that only partly attached requests go on.
    frozen: bool,
    off_by_one: bool,
}

/// Outcome of an attempt to attach a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attached {
    /// The whole request was attached.
    All,
    /// A sub-request (at most 256 strips, as in md) was attached, and more of the request is left,
    /// which follows after other requests.
    SubRequest,
    /// No stripe was free for the next part of the request.
    Starved,
}

impl ParityRaid {
    #[inline(never)]
    fn attach_later(&mut self, io: &ArrayIo) {
        let split = SplitRequest { io: *io, failed: false, sub_requests: 0, cursor: None };
        self.ready.push_back(split);
    }

    /// Whether requests or displaced work wait for a free stripe, and enough stripes are free now.
    pub(super) fn can_attach(&self) -> bool {
        self.waits_for_stripes() && self.stripes.cache.is_relieved()
    }

    /// Whether requests or displaced work wait to be attached to stripes, for any reason.
    #[inline]
    fn has_to_attach(&self) -> bool {
        !self.ready.is_empty() || self.waits_for_stripes()
    }

    #[inline]
    fn waits_for_stripes(&self) -> bool {
        !self.starved.is_empty() || !self.rereads.is_empty() || self.stripes.has_displaced()
    }

    /// Whether requests or displaced work wait for a free stripe although every stripe in use holds
    /// only a deferred write.
    pub(super) fn waits_in_vain(&self) -> bool {
        self.waits_for_stripes()
            && !self.stripes.cache.is_relieved()
            && self.stripes.only_deferred()
    }

    /// Attaches waiting work to stripes: first that of retired stripes, then parts of reads that
    /// members could not supply, then requests in order of arrival. While the cache is about to be
    /// resized, only requests in the middle of a sub-request continue.
    #[inline(never)]
    fn attach_waiting(&mut self, cx: &Attaching, now: Time) {
        let relieved = self.stripes.cache.relieve();
        let first = self.starved.front().map(|split| split.io.id);
        let mut first_refused = false;
        if relieved {
            self.stripes.place_displaced(&self.geometry);
            if !self.rereads_wait {
                self.take_rereads();
            }
            // Requests that waited for stripes go before new ones, in order of arrival.
            while let Some(split) = self.starved.pop_back() {
                self.ready.push_front(split);
            }
        }
        let mut later = Vec::new();
        while let Some(mut split) = self.ready.pop_front() {
            if split.failed {
                self.skip(&split.io, now);
                self.attached(&split);
                continue;
            }
            let begun = split.cursor.as_ref().is_some_and(|cursor| cursor.left > 0);
            if cx.frozen && !begun {
                later.push(split);
                continue;
            }
            match self.attach(&mut split, cx) {
                Attached::All => {
                    self.skip(&split.io, now);
                    self.attached(&split);
                }
                Attached::SubRequest => later.push(split),
                Attached::Starved => {
                    first_refused |= first == Some(split.io.id);
                    self.starved.push_back(split);
                }
            }
        }
        self.ready.extend(later);
        if relieved {
            // A request for many stripes would never find enough if rereads, which need one stripe
            // each, always went first.
            self.rereads_wait = first_refused;
            if !first_refused {
                self.take_rereads();
            }
        }
    }

    fn take_rereads(&mut self) {
        while let Some(reread) = self.rereads.pop_front() {
            if let Some(rest) = self.take_reread(reread) {
                self.rereads.push_front(rest);
                break;
            }
        }
    }

    fn attached(&mut self, split: &SplitRequest) {
        let (request, sub_requests) = (split.io.id, split.sub_requests);
        self.stripes.events.push(Event::Split { request, sub_requests, whole: true });
    }

    /// Attaches the next sub-request (at most 256 strips) of a request to stripes, or all that is
    /// left of the request if no other request waits. Returns how far the request is attached.
    #[inline(never)]
    fn attach(&mut self, split: &mut SplitRequest, cx: &Attaching) -> Attached {
        let unit = self.stripes.cache.strip_bytes();
        let range = split.io.range;
        if range.start.0 % unit + range.len.0 <= unit {
            let attached = self.attach_short(&split.io, unit, cx);
            split.sub_requests += u32::from(attached == Attached::All);
            attached
        } else {
            self.attach_long(split, unit, cx)
        }
    }

    /// Attaches a request that lies within one strip to its stripe at once, if no other work waits.
    /// Returns whether it was attached.
    #[inline(always)]
    fn attach_at_once(&mut self, io: &ArrayIo, cx: &Attaching) -> bool {
        let unit = self.stripes.cache.strip_bytes();
        let range = io.range;
        range.start.0 % unit + range.len.0 <= unit
            && !self.has_to_attach()
            && self.attach_short(io, unit, cx) == Attached::All
    }

    /// Attaches a request that lies within one strip to its stripe. Returns `Starved` if no stripe
    /// is free for it, otherwise `All`.
    #[inline(always)]
    fn attach_short(&mut self, io: &ArrayIo, unit: u64, cx: &Attaching) -> Attached {
        let range = io.range;
        let (position, placement) = self.geometry.place(range.start.sectors_floor());
        let key = position.sector.0 / self.stripes.cache.height().0;
        let Acquired::Stripe(stripe) = self.stripes.cache.acquire_some(key, 1, || placement) else {
            return Attached::Starved;
        };
        let slot = if io.writes && cx.off_by_one {
            let in_chunk = position.sector.0 % self.geometry.chunk().0 * SECTOR_BYTES / unit;
            cx.written_slot(placement, position.data_index, in_chunk)
        } else {
            position.slot
        };
        let sub_request = io.sub_request(slot, range.start.0, range.end().0, unit);
        let arrival = io.arrival(cx.writes);
        let sub_requests = [sub_request];
        self.stripes.attach(stripe, &sub_requests, Touched::by(&sub_requests, unit), arrival);
        Attached::All
    }

    /// Attaches the rest of a request that is longer than the data of one strip, run by run. A run
    /// is the part of the request in consecutive stripes of one full stripe. Returns how far the
    /// request is attached.
    ///
    /// Source   md-raid.md §2.1: sub-requests of 256 units; a request that reaches into the next
    ///          member's chunk begins there, so that member offsets go up
    fn attach_long(&mut self, split: &mut SplitRequest, unit: u64, cx: &Attaching) -> Attached {
        loop {
            let request_end = split.io.range.end().0;
            let cursor = match &mut split.cursor {
                Some(cursor) if cursor.left > 0 => cursor,
                cursor => {
                    let to = cursor.as_ref().map(|cursor| cursor.to);
                    let from = to.unwrap_or(0).max(split.io.range.start.0);
                    let (from, end) = beside(split.io.discarded, from, request_end);
                    if from >= end {
                        return Attached::All;
                    }
                    // Between the sub-requests of a long request, other requests go first.
                    let others = to.is_some() && !self.ready.is_empty();
                    if cx.frozen || others {
                        return Attached::SubRequest;
                    }
                    let new = Cursor::new(&self.geometry, from, end, unit);
                    cursor.insert(Box::new(new))
                }
            };
            let run = cursor.run(&self.geometry, unit, request_end);
            if !self.attach_run(split, &run, unit, cx) {
                if self.stripes.cache.policy().feeds_delayed {
                    self.attach_to_active(split, unit, cx);
                }
                return Attached::Starved;
            }
        }
    }

    /// Attaches the parts of a request's current sub-request that belong to delayed or held
    /// stripes. These parts need no free stripe, and should not be delayed because other parts wait
    /// for one.
    fn attach_to_active(&mut self, split: &mut SplitRequest, unit: u64, cx: &Attaching) {
        let mut after = 0;
        while let Some(run) = self.active_run(split, after, unit) {
            after = run.first + run.stripes;
            let attached = self.attach_run(split, &run, unit, cx);
            assert!(attached, "stripes that wait are in the cache");
        }
    }

    /// The next run of delayed or held stripes, from unit `after` on, to which the current
    /// sub-request still has to be attached. `None` if there is none.
    fn active_run(&self, split: &SplitRequest, after: u64, unit: u64) -> Option<UnitRun> {
        let cursor = split.cursor.as_ref().expect("it was made before");
        let waits = |number: u64| {
            let sector = self.geometry.locate(Bytes(number * unit).sectors_floor()).sector;
            self.stripes.cache.is_delayed(sector.0 / self.stripes.cache.height().0)
        };
        let first = cursor.units_left(after).find(|number| waits(*number))?;
        let mut run = cursor.run_from(first, &self.geometry, unit, split.io.range.end().0);
        let active = (1..run.stripes).take_while(|stripe| waits(first + stripe)).count();
        run.stripes = 1 + active as u64;
        Some(run)
    }

    /// Attaches a request to the stripes of a run; in each stripe, to the strips of the run's data
    /// chunks. Returns whether there were stripes for the whole run.
    fn attach_run(
        &mut self,
        split: &mut SplitRequest,
        run: &UnitRun,
        unit: u64,
        cx: &Attaching,
    ) -> bool {
        let sector = Bytes(run.first * unit).sectors_floor();
        let (position, placement) = self.geometry.place(sector);
        let height = self.stripes.cache.height().0;
        let key = position.sector.0 / height;
        let in_chunk = key & (self.geometry.chunk().0 / height - 1);
        let arrival = split.io.arrival(cx.writes);
        let mut sub_requests: SmallVec<[SubRequest; 4]> = SmallVec::new();
        for (data_index, number) in run.strips() {
            let slot = if split.io.writes {
                cx.written_slot(placement, data_index, in_chunk)
            } else {
                placement.data_slot(data_index)
            };
            let cursor = split.cursor.as_ref().expect("it was made before");
            let start = cursor.from.max(number * unit);
            let end = split.io.range.end().0.min((number + 1) * unit);
            sub_requests.push(split.io.sub_request(slot, start, end, unit));
        }
        let touched = Touched::by(&sub_requests, unit);
        let frames = (unit / FRAME_BYTES) as u32;
        let mut stripes = 0;
        while stripes < run.stripes {
            let wanted = run.wanted - stripes;
            let Acquired::Stripe(stripe) =
                self.stripes.cache.acquire_some(key + stripes, wanted, || placement)
            else {
                break;
            };
            self.stripes.attach(stripe, &sub_requests, touched, arrival);
            for memory in
                sub_requests.iter_mut().filter_map(|sub_request| sub_request.memory.as_mut())
            {
                memory.frame.0 += frames;
            }
            stripes += 1;
        }
        split.sub_requests += sub_requests.len() as u32 * stripes as u32;
        split.cursor.as_mut().expect("it was made before").take(run, stripes);
        stripes == run.stripes
    }

    /// Attaches to stripes a part of a read that its member could not supply. Returns the part that
    /// is not attached, because no stripe was free; `None` if all of it is.
    fn take_reread(&mut self, mut reread: ReRead) -> Option<ReRead> {
        let unit = self.stripes.cache.strip_bytes();
        let part = reread.part;
        let mut start = part.start.0;
        let end = start + u64::from(part.len);
        while start < end {
            let stop = end.min((start / unit + 1) * unit);
            let position = self.geometry.locate(Bytes(start).sectors_floor());
            let key = position.sector.0 / self.stripes.cache.height().0;
            let Acquired::Stripe(stripe) = self.stripes.cache.acquire(key, &self.geometry) else {
                reread.part =
                    StraightPart { start: Bytes(start), len: (end - start) as u32, ..part };
                return Some(reread);
            };
            let in_frames = start - reread.start.0 / FRAME_BYTES * FRAME_BYTES;
            let sub_request = SubRequest {
                request: part.request,
                slot: position.slot,
                offset: (start % unit) as u32,
                len: (stop - start) as u32,
                memory: Some(reread.frames.part(in_frames, stop - start)),
                fua: false,
            };
            let arrival = Arrival {
                write: false,
                sync: true,
                streams: false,
                waited_for: false,
                retried: reread.asked,
                attr: reread.attr,
            };
            let sub_requests = [sub_request];
            self.stripes.attach(stripe, &sub_requests, Touched::by(&sub_requests, unit), arrival);
            reread.sub_requests += 1;
            start = stop;
        }
        let (request, sub_requests) = (part.request, reread.sub_requests);
        self.stripes.events.push(Event::Split { request, sub_requests, whole: false });
        None
    }
}

impl Requests for ParityRaid {
    #[inline(always)]
    fn arrives(
        &mut self,
        range: ByteRange,
        before_answer: impl FnOnce() -> bool,
        knobs: &Knobs,
        now: Time,
    ) -> WriteStream {
        let geometry = &self.geometry;
        let gathers = self.stripes.cache.policy().gathers_streams;
        if !gathers && knobs.priority != PriorityRule::Stream {
            return WriteStream::default();
        }
        let (id, flows) = self.streams.arrive(range, before_answer(), now);
        let fills =
            gathers && flows && self.streams.reaches(id, rest_of_full_stripe(range, geometry));
        let saturates = fills && self.streams.run(id).0 >= geometry.full_stripe_bytes();
        WriteStream { id, fills, saturates }
    }

    /// Sends a read straight to the members, and returns the number of sub-requests. Returns `None`
    /// if the read has to go through the cache as a whole: while not every member can be read (as
    /// in md; not with `plan_rule=least`); while any stripe has a deferred write, because only that
    /// stripe holds its data; and if the client repeats a read that stalled, because the read would
    /// stall again if members need longer than `read_around`.
    #[inline]
    fn read_straight(&mut self, io: &ArrayIo, cx: &mut Cx<'_>) -> Option<u64> {
        let aligned = cx.membership().reads_aligned() || cx.knobs.plan_rule == PlanRule::Least;
        (aligned && !io.flags.again && !self.has_deferred()).then(|| self.read_chunks(io, cx))
    }

    /// Attaches a request to stripes, now or in a later turn. The full stripes that members are to
    /// discard are left out, and their discard begins. Returns the number of pending sub-requests,
    /// plus [`SPLITTING`] if the request is attached later.
    #[inline(always)]
    fn submit(&mut self, io: &ArrayIo, cx: &mut Cx<'_>) -> u64 {
        assert!(io.range.len.0 > 0, "a submitted request is not empty");
        let mut pending = 0;
        if let Some(discarded) = io.discarded {
            self.begin_discard(io, discarded);
            pending += 1;
            if discarded == io.range {
                self.skip(io, cx.now());
                return pending;
            }
        }
        if self.attach_at_once(io, &attaching(cx, false)) {
            self.skip(io, cx.now());
            return pending + 1;
        }
        self.attach_later(io);
        pending + SPLITTING
    }

    #[inline]
    fn skip(&mut self, io: &ArrayIo, now: Time) {
        self.streams.attached(io.stream.id, io.range.end().0, now);
    }

    #[inline(never)]
    fn repeat(&mut self, part: StraightPart, io: &ArrayIo, asked: bool) {
        let (frames, start, attr) = (io.frames, io.range.start, io.attr);
        self.rereads.push_back(ReRead { part, asked, frames, start, attr, sub_requests: 0 });
    }

    /// Shortens the wait of the stripes of `io` to be filled, because another request waits for
    /// `io`.
    fn hurry(&mut self, io: &ArrayIo, now: Time) {
        for split in self.ready.iter_mut().chain(&mut self.starved) {
            split.io.waited_for |= split.io.id == io.id;
        }
        let full_stripe = self.geometry.full_stripe_bytes();
        let full_stripes = io.range.start.0 / full_stripe..io.range.end().0.div_ceil(full_stripe);
        let keys = self.stripes.keys_of(&full_stripes);
        self.stripes.hurry(io.id, &keys, now);
    }

    fn request_failed(&mut self, id: RequestId) {
        for split in self.ready.iter_mut().chain(&mut self.starved) {
            split.failed |= split.io.id == id;
        }
    }

    #[inline]
    fn answered(&mut self, stream: WriteStream, len: Bytes) {
        self.streams.answered(stream.id, len);
    }

    #[inline]
    fn split_waiting(&mut self, quiesces: bool, cx: &mut Cx<'_>) {
        if self.has_to_attach() {
            self.attach_waiting(&attaching(cx, quiesces), cx.now());
        }
    }

    /// Fails work that waits for stripes of a broken array, if all stripes in use hold deferred
    /// writes. A broken array writes nothing, so these stripes, which hold the only copy, are never
    /// freed.
    #[cold]
    fn end_vain_waits(&mut self, now: Time) {
        if !self.waits_in_vain() {
            return;
        }
        let fails = |request| {
            let result = Err(ReplyError::Io);
            Event::SubRequestsDone { request, sub_requests: 0, result }
        };
        for split in std::mem::take(&mut self.starved) {
            self.stripes.events.push(fails(split.io.id));
            self.skip(&split.io, now);
            self.attached(&split);
        }
        for ReRead { part, sub_requests, .. } in std::mem::take(&mut self.rereads) {
            let request = part.request;
            self.stripes.events.push(fails(request));
            self.stripes.events.push(Event::Split { request, sub_requests, whole: false });
        }
        self.stripes.end_displaced();
    }

    fn is_quiet(&self) -> bool {
        self.stripes.cache.is_quiet()
            && !self.stripes.has_displaced()
            && self.rereads.is_empty()
            && self.starved.is_empty()
    }

    /// Whether requests or displaced work wait to be attached to stripes, for any reason, or
    /// discards are under way.
    #[inline]
    fn has_waiting(&self) -> bool {
        self.has_to_attach() || !self.discards.is_empty()
    }
}

impl Attaching {
    /// Slot to which a write of a data chunk goes: that of the chunk, unless a planted bug is at
    /// work.
    fn written_slot(&self, placement: Placement, data_index: u16, in_chunk: u64) -> Slot {
        let wrong = self.off_by_one && in_chunk == 0 && data_index > 0;
        placement.data_slot(data_index - u16::from(wrong))
    }
}

impl ArrayIo {
    /// Properties of the request that matter to the stripes to which it is attached.
    #[inline]
    fn arrival(&self, writes: Writes) -> Arrival {
        Arrival {
            write: self.writes,
            // A client that waits for its write must not wait for data that may never come.
            sync: (self.flags.sync && !self.stream.saturates) || writes == Writes::Sync,
            streams: self.stream.fills,
            waited_for: self.waited_for,
            retried: false,
            attr: self.attr,
        }
    }

    /// Sub-request for the bytes `start .. end` of the volume, which lie within the strip on
    /// `slot`. `unit` is the size of a strip.
    #[inline(always)]
    fn sub_request(&self, slot: Slot, start: u64, end: u64, unit: u64) -> SubRequest {
        let in_frames = start - self.range.start.0 / FRAME_BYTES * FRAME_BYTES;
        let memory = (!self.zeroes()).then(|| self.frames.part(in_frames, end - start));
        SubRequest {
            request: self.id,
            slot,
            offset: (start % unit) as u32,
            len: (end - start) as u32,
            memory,
            fua: self.flags.fua,
        }
    }
}

#[inline]
fn attaching(cx: &Cx<'_>, frozen: bool) -> Attaching {
    Attaching {
        writes: cx.knobs.writes,
        frozen,
        off_by_one: cx.is_planted(Mutant::ChunkEdgeOffByOne),
    }
}

/// Number of bytes from the start of a write to the point that later writes must reach to fill its
/// last full stripe. Only the stripes that the write itself touches are counted.
fn rest_of_full_stripe(range: ByteRange, geometry: &Geometry) -> u64 {
    let (chunk, full_stripe) = (geometry.chunk().bytes().0, geometry.full_stripe_bytes());
    let last = range.end().0 - 1;
    let begins = last - last % full_stripe;
    let first = range.start.0.max(begins);
    let of_stripes = if first / chunk == last / chunk {
        full_stripe - chunk + last % chunk + 1
    } else {
        full_stripe
    };
    begins + of_stripes - range.start.0
}

/// Next range of a request to be attached to stripes, from byte `from` on. The part that members
/// are told to discard is skipped, because it needs no stripes.
fn beside(discarded: Option<ByteRange>, from: u64, end: u64) -> (u64, u64) {
    match discarded {
        Some(discarded) if from < discarded.start.0 => (from, discarded.start.0),
        Some(discarded) => (from.max(discarded.end().0), end),
        None => (from, end),
    }
}
