//! Tests of the write-back cache on bare members: a model of every sector, and power cuts.
//!
//! The rig completes requests of the engine in a random order. The content of memory is one number
//! per sector. A member write reads memory when it is sent and again when it completes, and both
//! values must agree. Requests of one volume take effect in order of arrival.

use std::collections::{BTreeMap, VecDeque};

use weft_units::rng::Rng;
use weft_units::{
    ByteRange, Bytes, ClientId, FRAME_BYTES, Group, MemberIndex, SECTOR_BYTES, Span, Time, VolumeId,
};

use crate::contract::frame::{Run, Segment, frames_needed};
use crate::contract::input::{NO_CLIENT, Purpose};
use crate::knobs::{Knob, Knobs, PoolKnobs};
use crate::page_cache::{Amount, BdiRatios, Kernel, WriterId};
use crate::{
    Attr, ClientRequest, Command, ComputeOp, Config, Engine, Fault, Flags, Input, MemberInfo,
    MemberOp, Notice, Origin, Output, PartlyWritten, ReplyError, RequestOp, Tag, Token, Value,
    Verb, WriteBackConfig,
};

mod edges;
mod flushed;
mod unwritten;

use unwritten::named;

const CLIENT: ClientId = ClientId(7);
const SECTORS: u64 = FRAME_BYTES / SECTOR_BYTES;

/// A sector of a member: number of the write that stored it, and its content.
type Stored = (u64, u64);

#[derive(Clone)]
struct Job {
    token: Token,
    work: Work,
}

#[derive(Clone)]
enum Work {
    Compute(Vec<ComputeOp>),
    Member(usize, MemberOp, Vec<u64>),
}

struct Asked {
    request: ClientRequest,
    /// For a read: content that must be returned, by sector.
    expected: Vec<u64>,
    /// For a flush: arrival number of the write that must be durable, by sector.
    covers: Vec<u64>,
    arrived: u64,
}

/// An engine with a cache over two bare members, and its environment.
struct Rig {
    engine: Engine,
    now: Time,
    rng: Rng,
    /// The client that issues requests.
    client: ClientId,
    memory: Vec<u64>,
    free: Vec<u32>,
    jobs: Vec<Job>,
    volatile: [Vec<Stored>; 2],
    durable: [Vec<Stored>; 2],
    writes: u64,
    tag: u64,
    asked: BTreeMap<u64, Asked>,
    replies: BTreeMap<u64, Result<(), ReplyError>>,
    /// Arrival number and content of each write, by volume and sector.
    history: [Vec<Vec<(u64, u64)>>; 2],
    /// Arrival number of the last write that was answered, or that must be durable, by volume and
    /// sector.
    answered: [Vec<u64>; 2],
    must: [Vec<u64>; 2],
    notices: Vec<Notice>,
    /// Whether all writes of members fail.
    broken: bool,
    /// Sectors to which writes fail, on every member.
    bad: Vec<u64>,
    /// Fault of the writes that fail.
    fault: Fault,
    limit: u64,
    credit: u64,
}

impl Rig {
    fn new(seed: u64, pages: u32, sectors: u64) -> Self {
        Self::with(seed, pages, sectors, |_| {})
    }

    fn with(seed: u64, pages: u32, sectors: u64, change: impl Fn(&mut PoolKnobs)) -> Self {
        let member = |index| {
            let size = Bytes(sectors * SECTOR_BYTES).sectors_floor();
            MemberInfo::of_size(MemberIndex(index), "disk", size)
        };
        let cache = WriteBackConfig::of(Bytes(u64::from(pages) * FRAME_BYTES));
        let mut config = Config::for_single(member(0), false).with_write_back(cache);
        config.client_frames = 256;
        change(&mut config.volumes[0].knobs.pool);
        let second = Config::for_single(member(1), false).volumes.remove(0);
        config.volumes.push(second);
        let first = config.client_frames_first();
        let none = || vec![(0, 0); sectors as usize];
        let zeros = || vec![0; sectors as usize];
        Self {
            engine: Engine::new(config.clone(), Time(0)).unwrap(),
            now: Time(0),
            rng: Rng::new(seed),
            client: CLIENT,
            memory: vec![0; (u64::from(config.frames_total()) * SECTORS) as usize],
            free: (first..first + config.client_frames).rev().collect(),
            jobs: Vec::new(),
            volatile: [none(), none()],
            durable: [none(), none()],
            writes: 0,
            tag: 0,
            asked: BTreeMap::new(),
            replies: BTreeMap::new(),
            history: [vec![Vec::new(); sectors as usize], vec![Vec::new(); sectors as usize]],
            answered: [zeros(), zeros()],
            must: [zeros(), zeros()],
            notices: Vec::new(),
            broken: false,
            bad: Vec::new(),
            fault: Fault::Io,
            limit: u64::from(pages),
            credit: 0,
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.rng.next_u64() % bound
    }

    fn sectors_of(part: Segment) -> std::ops::Range<usize> {
        assert!((part.slab_start() | part.slab_end()).is_multiple_of(SECTOR_BYTES));
        (part.slab_start() / SECTOR_BYTES) as usize..(part.slab_end() / SECTOR_BYTES) as usize
    }

    /// Takes `count` adjacent frames; `None` if there are none. The list is sorted, so a run is
    /// found if one exists.
    fn take_frames(&mut self, count: u32) -> Option<Run> {
        self.free.sort_unstable();
        let count = count as usize;
        let place = (0..self.free.len().saturating_sub(count - 1))
            .find(|at| self.free[at + count - 1] - self.free[*at] == count as u32 - 1)?;
        let first = self.free[place];
        self.free.drain(place..place + count);
        Some(Run::new(first, count as u32))
    }

    fn give_back(&mut self, run: Run) {
        for frame in run.first.0..run.first.0 + run.count {
            assert!(!self.free.contains(&frame), "given back twice");
            self.free.push(frame);
            let start = (u64::from(frame) * SECTORS) as usize;
            self.memory[start..start + SECTORS as usize].fill(u64::MAX);
        }
    }

    fn ask(&mut self, volume: usize, op: RequestOp, at: u64, sectors: u64, flags: Flags) -> u64 {
        let range = ByteRange::new(at * SECTOR_BYTES, sectors * SECTOR_BYTES);
        let has_payload = matches!(op, RequestOp::Read | RequestOp::Write);
        let count = if has_payload { frames_needed(range.start.0, range.len.0) } else { 0 };
        let frames = if count > 0 { self.take_frames(count) } else { Some(Run::EMPTY) };
        let Some(frames) = frames else { return 0 };
        self.tag += 1;
        let (tag, arrived) = (self.tag, self.tag);
        let touched = at as usize..(at + sectors) as usize;
        let first = (u64::from(frames.first.0) * SECTORS + at % SECTORS) as usize;
        let mut expected = Vec::new();
        match op {
            RequestOp::Write | RequestOp::WriteZeroes => {
                for (place, sector) in touched.clone().enumerate() {
                    let content = if has_payload { arrived << 16 | sector as u64 } else { 0 };
                    if has_payload {
                        self.memory[first + place] = content;
                    }
                    self.history[volume][sector].push((arrived, content));
                }
            }
            RequestOp::Read => {
                let last = |sector: usize| self.history[volume][sector].last().map_or(0, |it| it.1);
                expected = touched.map(last).collect();
            }
            RequestOp::Flush | RequestOp::Trim => {}
        }
        let covers =
            if op == RequestOp::Flush { self.answered[volume].clone() } else { Vec::new() };
        let volume = VolumeId(volume as u16);
        let (client, attr) = (self.client, Attr::default());
        let request =
            ClientRequest { client, tag: Tag(tag), volume, op, range, frames, flags, attr };
        self.asked.insert(tag, Asked { request, expected, covers, arrived });
        self.engine.handle(self.now, Input::Client(request));
        self.run();
        tag
    }

    fn run(&mut self) {
        let mut outputs = VecDeque::new();
        while self.engine.run(self.now, 64, &mut outputs).more {}
        for output in outputs {
            match output {
                Output::Submit { token, member, op, attr } => {
                    let writes = matches!(op, MemberOp::Write { .. });
                    let of_cache = writes && attr.origin == Origin::Client(NO_CLIENT, Group::ROOT);
                    assert_eq!(attr.background, of_cache, "only write-back is background work");
                    let payload = self.payload(&op);
                    let work = Work::Member(member.index(), op, payload);
                    self.jobs.push(Job { token, work });
                }
                Output::Compute { token, ops } => {
                    self.jobs.push(Job { token, work: Work::Compute(ops) });
                }
                Output::Reply { tag, result, .. } => self.reply(tag.0, result),
                Output::Release(run) => {
                    assert!(run.count > 0, "it releases something");
                    self.give_back(run);
                }
                Output::Credit { bytes, .. } => {
                    assert!(bytes > Bytes::ZERO, "it returns something");
                    self.credit += bytes.0;
                }
                Output::Notice(notice) => self.notices.push(notice),
                Output::Abort(token) => panic!("{token:?} given up"),
            }
        }
        let snapshot = self.engine.snapshot().write_back.expect("it is on");
        let pages = snapshot.dirty_pages + snapshot.writeback_pages;
        assert!(pages <= self.limit, "{pages} dirty pages of {}", self.limit);
    }

    fn payload(&self, op: &MemberOp) -> Vec<u64> {
        let MemberOp::Write { from, .. } = op else { return Vec::new() };
        from.iter().flat_map(|part| self.memory[Self::sectors_of(*part)].to_vec()).collect()
    }

    fn reply(&mut self, tag: u64, result: Result<(), ReplyError>) {
        let Some(Asked { request, expected, covers, arrived }) = self.asked.remove(&tag) else {
            self.replies.insert(tag, result);
            return;
        };
        let volume = request.volume.index();
        let first = (request.range.start.0 / SECTOR_BYTES) as usize;
        let sectors = (request.range.len.0 / SECTOR_BYTES) as usize;
        match (request.op, &result) {
            (RequestOp::Read, Ok(())) => {
                let start = u64::from(request.frames.first.0) * SECTORS + first as u64 % SECTORS;
                let found = &self.memory[start as usize..start as usize + sectors];
                assert_eq!(found, expected, "read {tag} of {:?}", request.range);
                self.give_back(request.frames);
            }
            (RequestOp::Write | RequestOp::WriteZeroes, Ok(())) => {
                for sector in first..first + sectors {
                    self.answered[volume][sector] = arrived.max(self.answered[volume][sector]);
                    if request.flags.fua {
                        self.must[volume][sector] = arrived.max(self.must[volume][sector]);
                    }
                }
            }
            (RequestOp::Flush, Ok(())) => {
                for (must, covered) in self.must[volume].iter_mut().zip(covers) {
                    *must = covered.max(*must);
                }
            }
            _ => {}
        }
        self.replies.insert(tag, result);
    }

    /// Completes one outstanding job, and gives the engine its turns. Returns whether there was an
    /// outstanding job.
    fn step(&mut self, pick: usize) -> bool {
        if self.jobs.is_empty() {
            return false;
        }
        self.complete(pick);
        self.run();
        true
    }

    /// Completes one outstanding job.
    fn complete(&mut self, pick: usize) {
        let pick = pick % self.jobs.len();
        let Job { token, work } = self.jobs.remove(pick);
        let mut result = Ok(Value::Nothing);
        match work {
            Work::Compute(ops) => ops.iter().for_each(|op| self.compute(op)),
            Work::Member(member, op, sent) => {
                assert_eq!(self.payload(&op), sent, "memory changed while a member read it");
                let is_write = matches!(op, MemberOp::Write { .. } | MemberOp::Discard { .. });
                if is_write && (self.broken || self.is_bad(&op)) {
                    result = Err(self.fault);
                } else {
                    self.member(member, &op, &sent);
                }
            }
        }
        self.engine.handle(self.now, Input::Done { token, result });
    }

    fn is_bad(&self, op: &MemberOp) -> bool {
        let (at, len) = match op {
            MemberOp::Write { at, from, .. } => {
                (at.0, from.iter().map(|part| u64::from(part.len) / SECTOR_BYTES).sum())
            }
            MemberOp::Discard { at, len, .. } => (at.0, len.0),
            _ => return false,
        };
        self.bad.iter().any(|sector| (at..at + len).contains(sector))
    }

    fn member(&mut self, member: usize, op: &MemberOp, payload: &[u64]) {
        self.writes += 1;
        match op {
            MemberOp::Write { at, fua, .. } => {
                for (sector, content) in (at.0 as usize..).zip(payload) {
                    self.volatile[member][sector] = (self.writes, *content);
                    if *fua {
                        self.durable[member][sector] = (self.writes, *content);
                    }
                }
            }
            MemberOp::Read { at, into } => {
                let mut sector = at.0 as usize;
                for part in into {
                    for place in Self::sectors_of(*part) {
                        self.memory[place] = self.volatile[member][sector].1;
                        sector += 1;
                    }
                }
            }
            MemberOp::Flush => self.durable[member] = self.volatile[member].clone(),
            MemberOp::Discard { at, len, .. } => {
                for sector in at.0 as usize..(at.0 + len.0) as usize {
                    self.volatile[member][sector] = (self.writes, 0);
                }
            }
            MemberOp::WriteMetadata { .. } => panic!("a bare member has no metadata"),
        }
    }

    fn compute(&mut self, op: &ComputeOp) {
        match op {
            ComputeOp::Copy { from, to } => {
                let (from, to) = (Self::sectors_of(*from), Self::sectors_of(*to));
                assert_eq!(from.len(), to.len());
                self.memory.copy_within(from, to.start);
            }
            ComputeOp::Zero { to } => self.memory[Self::sectors_of(*to)].fill(0),
            other => panic!("{other:?}"),
        }
    }

    /// Completes all jobs, and advances time if the engine waits for it.
    fn finish(&mut self) {
        let mut wakes = 0;
        while !self.asked.is_empty() || !self.jobs.is_empty() {
            let pick = self.rng.next_u64() as usize;
            if !self.step(pick) {
                self.wake();
                wakes += 1;
                assert!(wakes < 1000, "{} requests wait for ever", self.asked.len());
            }
        }
    }

    fn wake(&mut self) {
        let at = self.engine.next_wake();
        self.now = at.expect("a wake-up is due").max(self.now);
        self.engine.handle(self.now, Input::Wake);
        self.run();
    }

    /// Checks that all data that had to be durable would survive a power failure at this moment.
    fn check_durable(&self) {
        for volume in 0..2 {
            for (sector, (_, content)) in self.durable[volume].iter().enumerate() {
                let must = self.must[volume][sector];
                let mut later = self.history[volume][sector].iter().filter(|it| it.0 >= must);
                let initial = must == 0 && *content == 0;
                let found = later.any(|(_, written)| written == content);
                assert!(
                    initial || found,
                    "volume {volume} sector {sector}: {content:#x} after a flush of write {must}"
                );
            }
        }
    }

    /// Sends a command. Returns its tag.
    fn command(&mut self, volume: u16, verb: Verb) -> u64 {
        self.tag += 1;
        let (tag, volume) = (Tag(self.tag), VolumeId(volume));
        let command = Command { client: CLIENT, tag, volume, verb };
        self.engine.handle(self.now, Input::Admin(Box::new(command)));
        self.run();
        self.tag
    }

    fn set(&mut self, volume: u16, knob: Knob) -> Result<(), ReplyError> {
        let tag = self.command(volume, Verb::Set(knob));
        self.replies.remove(&tag).expect("it is set at once, or not")
    }

    fn stop(&mut self, volume: u16) -> Result<(), ReplyError> {
        self.end_of(volume, Verb::Stop)
    }

    fn drain(&mut self, volume: u16) -> Result<(), ReplyError> {
        self.end_of(volume, Verb::Drain)
    }

    fn end_of(&mut self, volume: u16, verb: Verb) -> Result<(), ReplyError> {
        let tag = self.command(volume, verb);
        while !self.replies.contains_key(&tag) {
            if !self.step(0) {
                self.wake();
            }
        }
        self.replies.remove(&tag).unwrap()
    }

    fn dirty(&self) -> (u64, u64) {
        let cache = self.engine.snapshot().write_back.unwrap();
        (cache.dirty_pages, cache.writeback_pages)
    }

    fn ok(&mut self, tag: u64) {
        self.finish();
        assert_eq!(self.replies.remove(&tag), Some(Ok(())));
    }
}

fn fua() -> Flags {
    Flags { fua: true, ..Flags::NONE }
}

/// Throttle for a seed: the seeds go through all kernels in turn, and no throttle (`None`).
fn throttle_of(seed: u64) -> Option<Kernel> {
    let names = Kernel::NAMES.len() as u64 + 1;
    Kernel::NAMES.get((seed / 4 % names) as usize).map(|(_, kernel)| *kernel)
}

/// Runs random requests of three clients with all checks at each step. Returns the number of
/// flushes, of reads, of moments in which a request waits for room, and of pauses.
fn course(seed: u64, bug: Option<crate::mutant::Mutant>) -> [u64; 4] {
    let sectors = 40 * SECTORS + seed % SECTORS;
    let pages = [8, 16, 48, 96][(seed % 4) as usize];
    let throttle = throttle_of(seed);
    let mut rig = Rig::with(seed, pages, sectors, |cache| cache.throttle = throttle);
    #[cfg(feature = "mutants")]
    if let Some(bug) = bug {
        rig.engine.plant(bug);
    }
    #[cfg(not(feature = "mutants"))]
    assert!(bug.is_none());
    let mut seen = [0; 4];
    let mut waited = 0;
    for _ in 0..300 {
        rig.client = ClientId(7 + rig.below(3) as u32);
        let volume = rig.below(2) as usize;
        match rig.below(16) {
            0..5 => {
                let at = rig.below(sectors / SECTORS) * SECTORS;
                let most = 1 + rig.below(7);
                let len = (most * SECTORS).min(sectors - at);
                let flags = if rig.below(8) == 0 { fua() } else { Flags::NONE };
                rig.ask(volume, RequestOp::Write, at, len, flags);
            }
            5 => {
                let at = rig.below(sectors);
                let len = 1 + rig.below((sectors - at).min(20));
                let op = [RequestOp::Write, RequestOp::WriteZeroes][rig.below(2) as usize];
                rig.ask(volume, op, at, len, Flags::NONE);
            }
            6 => {
                rig.ask(volume, RequestOp::Flush, 0, 0, Flags::NONE);
                seen[0] += 1;
            }
            7 if rig.below(3) == 0 => {
                let flags = Flags { preflush: true, ..Flags::NONE };
                let at = rig.below(sectors / SECTORS) * SECTORS;
                rig.ask(volume, RequestOp::Write, at, SECTORS.min(sectors - at), flags);
                // The position of a request among overlapping requests is determined by the end of
                // its preflush.
                rig.finish();
            }
            10 => {
                rig.now = rig.now + Span::millis(rig.below(20));
                rig.engine.handle(rig.now, Input::Wake);
                rig.run();
            }
            8..10 => {
                let at = rig.below(sectors);
                let len = 1 + rig.below((sectors - at).min(60));
                rig.ask(volume, RequestOp::Read, at, len, Flags::NONE);
                seen[1] += 1;
            }
            _ => {
                for _ in 0..1 + rig.below(6) {
                    let pick = rig.rng.next_u64() as usize;
                    rig.step(pick);
                }
            }
        }
        waited += u64::from(rig.engine.snapshot().write_back.unwrap().requests_waiting > 0);
        if rig.below(4) == 0 {
            rig.check_durable();
        }
    }
    seen[2] = waited;
    seen[3] = rig.engine.snapshot().write_back.unwrap().pauses;
    rig.finish();
    rig.check_durable();
    stop_all(&mut rig, sectors);
    rig.check_durable();
    assert!(rig.engine.write_back.as_ref().unwrap().is_at_rest());
    assert_eq!(rig.free.len(), 256, "all frames are back");
    seen
}

/// Stops the volumes, some with sectors that cannot be written. All data must be durable except for
/// the ranges that the reply lists.
fn stop_all(rig: &mut Rig, sectors: u64) {
    for volume in 0..2 {
        if rig.below(2) == 0 {
            rig.ask(usize::from(volume), RequestOp::Write, 0, 8 * SECTORS, Flags::NONE);
            rig.bad = vec![rig.below(sectors), rig.below(sectors)];
        }
        let result = rig.stop(volume);
        rig.bad.clear();
        let lost = match result {
            Ok(()) => Vec::new(),
            refused => named(&refused).1,
        };
        let is_lost = |sector: u64| {
            let at = sector * SECTOR_BYTES;
            lost.iter().any(|(start, len)| (*start..start + len).contains(&at))
        };
        let volume = usize::from(volume);
        for sector in (0..sectors).filter(|sector| !is_lost(*sector)) {
            let sector = sector as usize;
            rig.must[volume][sector] = rig.answered[volume][sector];
        }
    }
}

#[test]
fn every_read_is_right_and_what_was_flushed_is_durable_in_any_order_of_events() {
    let mut seen = [0; 4];
    for seed in 0..150 {
        let course = course(seed, None);
        seen.iter_mut().zip(course).for_each(|(sum, one)| *sum += one);
    }
    assert!(seen[..3].iter().all(|count| *count > 1000), "flushes, reads, waits: {seen:?}");
    assert!(seen[3] > 100, "pauses: {seen:?}");
}

#[test]
fn a_write_is_answered_without_a_member_and_read_from_memory() {
    let mut rig = Rig::new(1, 64, 1024);
    let write = rig.ask(0, RequestOp::Write, 16, 16, Flags::NONE);
    assert!(rig.step(0), "the copy");
    assert_eq!(rig.replies.remove(&write), Some(Ok(())));
    assert_eq!(rig.dirty(), (2, 0));
    let read = rig.ask(0, RequestOp::Read, 16, 16, Flags::NONE);
    assert!(rig.step(0) && rig.jobs.is_empty());
    assert_eq!(rig.replies.remove(&read), Some(Ok(())));
    assert_eq!(rig.writes, 0, "no member was asked");
    assert_eq!(rig.credit, 2 * 16 * SECTOR_BYTES);
}

#[test]
fn a_write_is_counted_for_its_client_once() {
    let mut rig = Rig::new(1, 64, 4096);
    let write = rig.ask(0, RequestOp::Write, 0, 80, Flags::NONE);
    rig.ok(write);
    let flush = rig.ask(0, RequestOp::Flush, 0, 0, Flags::NONE);
    rig.ok(flush);
    assert_eq!(rig.dirty(), (0, 0));
    let accounts = &rig.engine.snapshot().volumes[0].accounts;
    let written: u64 = accounts.iter().map(|account| account.bytes_written.0).sum();
    assert_eq!(written, 80 * SECTOR_BYTES, "{accounts:?}");
    let moved = accounts.iter().flat_map(|account| &account.by_purpose);
    let moved = moved.filter(|moved| moved.purpose == Purpose::WriteBack);
    assert_eq!(moved.map(|moved| moved.written.0).sum::<u64>(), 80);
}

/// Writes runs of four pages, while members make no progress, until a reply is delayed. Returns the
/// tag of that request.
fn until_a_pause(rig: &mut Rig) -> u64 {
    for page in (0..rig.limit / 4).map(|run| 4 * run) {
        let write = rig.ask(0, RequestOp::Write, page * SECTORS, 4 * SECTORS, Flags::NONE);
        fill(rig);
        if rig.replies.remove(&write).is_none() {
            let cache = rig.engine.snapshot().write_back.unwrap();
            assert_eq!((cache.answers_delayed, cache.requests_waiting), (1, 0));
            return write;
        }
    }
    panic!("no writer pauses");
}

/// Completes all computations.
fn fill(rig: &mut Rig) {
    let is_copy = |job: &Job| matches!(job.work, Work::Compute(_));
    while let Some(copy) = rig.jobs.iter().position(is_copy) {
        rig.step(copy);
    }
}

#[test]
fn a_client_that_writes_faster_than_its_member_pauses_and_reads_and_flushes_do_not() {
    let kernel = Kernel::named("mainline-6.12");
    let mut rig = Rig::with(1, 1024, 16_384, |cache| cache.throttle = kernel);
    assert_eq!(rig.engine.snapshot().write_back.unwrap().pauses, 0);
    let paused = until_a_pause(&mut rig);
    let (now, dirty) = (rig.now, rig.dirty());
    assert!(dirty.0 + dirty.1 > 768, "free run ends there: {dirty:?}");
    assert_eq!(rig.free.len(), 256, "a client that pauses holds no frame");
    let read = rig.ask(0, RequestOp::Read, 0, 64, Flags::NONE);
    let through = rig.ask(0, RequestOp::Write, 8192, 8, fua());
    let flush = rig.ask(0, RequestOp::Flush, 0, 0, Flags::NONE);
    while rig.step(0) {}
    for tag in [read, through, flush] {
        assert_eq!(rig.replies.remove(&tag), Some(Ok(())));
    }
    assert_eq!((rig.now, rig.replies.remove(&paused)), (now, None), "only the write is delayed");
    rig.wake();
    assert_eq!(rig.replies.remove(&paused), Some(Ok(())));
    assert!(rig.now > now && rig.now.0 <= now.0 + 200_000_000, "{:?}", rig.now);
}

#[test]
fn a_client_in_turns_goes_on_when_pages_are_written_and_at_no_time() {
    let mut rig = Rig::new(1, 1024, 16_384);
    let paused = until_a_pause(&mut rig);
    let now = rig.now;
    let read = rig.ask(0, RequestOp::Read, 0, 64, Flags::NONE);
    fill(&mut rig);
    assert_eq!(rig.replies.remove(&read), Some(Ok(())), "only the write is delayed");
    assert_eq!(rig.replies.remove(&paused), None);
    while rig.step(0) {}
    assert_eq!((rig.now, rig.replies.remove(&paused)), (now, Some(Ok(()))));
}

#[test]
fn a_client_that_leaves_while_it_pauses_is_forgotten_and_its_writer_serves_the_next() {
    let mut rig = Rig::new(1, 1024, 16_384);
    for client in [CLIENT, ClientId(8), CLIENT] {
        rig.client = client;
        until_a_pause(&mut rig);
        rig.engine.handle(rig.now, Input::ClientGone(client));
        rig.asked.clear();
        rig.run();
        while rig.step(0) {}
        let cache = rig.engine.write_back.as_ref().unwrap();
        assert!(cache.is_at_rest() || rig.dirty().0 > 0);
        assert_eq!(cache.writers.next_wake(), None, "no writer pauses");
        let flush = rig.ask(0, RequestOp::Flush, 0, 0, Flags::NONE);
        rig.ok(flush);
    }
    // Two writers belong to the volumes, and clients use one at a time.
    let writer = rig.engine.write_back.as_mut().unwrap().writer_of(CLIENT, VolumeId(1));
    assert_eq!(writer, WriterId(2));
}

#[test]
fn no_client_pauses_before_a_volume_with_a_failing_write_back() {
    let mut rig = Rig::new(1, 1024, 16_384);
    let paused = until_a_pause(&mut rig);
    let now = rig.now;
    rig.broken = true;
    while rig.step(0) {}
    assert_eq!((rig.now, rig.replies.remove(&paused)), (now, Some(Ok(()))));
    assert!(rig.dirty().0 > 768, "and all of it is dirty: {:?}", rig.dirty());
}

#[test]
fn a_client_of_3_1_writes_back_itself_as_soon_as_there_is_a_buffer() {
    let mut rig = Rig::with(1, 256, 4096, |cache| cache.throttle = Some(Kernel::V3_1));
    let held = until_a_pause(&mut rig);
    let cache = rig.engine.write_back.as_ref().unwrap();
    assert_eq!(cache.writers.next_wake(), None, "it waits for a buffer, and for no time");
    assert!(!cache.memory.has_buffer());
    let before = rig.engine.snapshot().write_back.unwrap().volumes[0].written_pages;
    assert_eq!(before, 0);
    rig.ok(held);
    assert!(rig.engine.snapshot().write_back.unwrap().volumes[0].written_pages > 64);
}

#[test]
fn a_writer_beyond_the_limit_waits_and_those_behind_it_keep_their_order() {
    let mut rig = Rig::with(1, 16, 4096, |cache| cache.throttle = None);
    for page in 0..2 {
        let write = rig.ask(0, RequestOp::Write, page * 64, 64, Flags::NONE);
        rig.step(0);
        assert_eq!(rig.replies.remove(&write), Some(Ok(())), "{page}");
    }
    let waits = rig.ask(0, RequestOp::Write, 128, 8, Flags::NONE);
    let read = rig.ask(0, RequestOp::Read, 128, 8, Flags::NONE);
    assert_eq!(rig.engine.snapshot().write_back.unwrap().requests_waiting, 2);
    rig.ok(read);
    assert_eq!(rig.replies.remove(&waits), Some(Ok(())));
}

/// The member would accept the write itself, but the write-back of earlier pages fails and makes no
/// room for it.
#[test]
fn a_write_that_waits_for_room_fails_when_the_write_back_of_its_volume_does() {
    let mut rig = Rig::with(1, 16, 4096, |cache| cache.throttle = None);
    for page in 0..2 {
        let write = rig.ask(0, RequestOp::Write, page * 64, 64, Flags::NONE);
        rig.step(0);
        assert_eq!(rig.replies.remove(&write), Some(Ok(())), "{page}");
    }
    let [mine, others] = [0, 1].map(|at| rig.ask(at, RequestOp::Write, 256, 8, Flags::NONE));
    rig.bad = (0..128).collect();
    while rig.step(0) {}
    assert!(matches!(rig.replies.remove(&mine), Some(Err(_))));
    assert_eq!(rig.replies.remove(&others), Some(Ok(())));
}

#[test]
fn a_short_last_page_is_written_up_to_the_end_of_the_volume() {
    let mut rig = Rig::new(1, 64, 4097);
    for op in [RequestOp::Write, RequestOp::Flush, RequestOp::Read] {
        let sectors = if op == RequestOp::Flush { 0 } else { 1 };
        let tag = rig.ask(0, op, 4096 * sectors, sectors, Flags::NONE);
        rig.ok(tag);
    }
    assert_eq!(rig.engine.snapshot().write_back.unwrap().volumes[0].written_pages, 1);
    rig.check_durable();
    let len = |page| super::client_op::page_len(page, 4097 * SECTOR_BYTES);
    assert_eq!((len(511), len(512)), (FRAME_BYTES, SECTOR_BYTES));
}

#[test]
fn a_part_of_a_dirty_page_that_goes_through_is_still_there_when_the_page_is_written() {
    let mut rig = Rig::new(1, 64, 4096);
    let kept = rig.ask(0, RequestOp::Write, 0, 8, Flags::NONE);
    fill(&mut rig);
    assert_eq!(rig.replies.remove(&kept), Some(Ok(())));
    let part = rig.ask(0, RequestOp::Write, 1, 4, Flags::NONE);
    fill(&mut rig);
    assert_eq!(rig.replies.remove(&part), Some(Ok(())), "the page is changed, and no member");
    let through = rig.ask(0, RequestOp::Write, 2, 4, fua());
    rig.ok(through);
    for (op, sectors) in [(RequestOp::Read, 8), (RequestOp::Flush, 0), (RequestOp::Read, 8)] {
        let tag = rig.ask(0, op, 0, sectors, Flags::NONE);
        rig.ok(tag);
    }
    rig.check_durable();
}

#[test]
fn a_knob_of_the_pool_holds_for_all_volumes_and_one_of_a_part_for_its_own() {
    let mut rig = Rig::new(1, 64, 4096);
    assert_eq!(rig.set(1, Knob::DirtyBytes(Amount::Bytes(32 * 4096))), Ok(()));
    assert_eq!(rig.set(1, Knob::MinRatio(60)), Ok(()));
    let snapshot = rig.engine.snapshot();
    for (volume, min) in snapshot.volumes.iter().zip(["0", "60"]) {
        assert_eq!(volume.knobs.show("dirty_bytes").as_deref(), Some("131072"));
        assert_eq!(volume.knobs.show("min_ratio").as_deref(), Some(min));
    }
    assert_eq!(snapshot.write_back.unwrap().limit_pages, 32);
    for (knob, expected) in [
        (Knob::MinRatio(40), "found 40, expected at most 39"),
        (Knob::DirtyBytes(Amount::Bytes(65 * 4096)), "found 266240, expected at most 262144"),
    ] {
        let error = rig.set(0, knob).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    assert_eq!(rig.set(0, Knob::MaxRatio(30)), Ok(()));
    let error = rig.set(0, Knob::MinRatio(31)).unwrap_err().to_string();
    assert!(error.contains("found 31, expected at most max_ratio, which is 30"), "{error}");
    assert!(rig.set(9, Knob::MinRatio(1)).is_err());
    // At the start, the ratios are checked likewise.
    let with =
        |min| Knobs { ratios: BdiRatios { min, ..BdiRatios::default() }, ..Knobs::default() };
    let start = |min| super::tune::check_start(&[with(60), with(min)], 64);
    assert_eq!(start(39), Ok(()));
    assert!(start(40).unwrap_err().contains("found 60, expected at most 59"), "{:?}", start(40));
}

#[test]
fn a_volume_without_a_cache_refuses_its_knobs_with_the_reason() {
    let size = Bytes(1 << 20).sectors_floor();
    let member = MemberInfo::of_size(MemberIndex(0), "disk", size);
    let mut engine = Engine::new(Config::for_single(member, false), Time(0)).unwrap();
    let verb = Verb::Set(Knob::DirtyExpire(1));
    let command = Command { client: CLIENT, tag: Tag(1), volume: VolumeId(0), verb };
    engine.handle(Time(0), Input::Admin(Box::new(command)));
    let mut outputs = VecDeque::new();
    engine.run(Time(0), 64, &mut outputs);
    let Some(Output::Reply { result: Err(error), .. }) = outputs.pop_front() else {
        panic!("it is refused")
    };
    assert!(error.to_string().contains("--write-back"), "{error}");
}

#[test]
fn a_throttle_that_is_taken_away_ends_all_pauses() {
    let mut rig = Rig::new(1, 1024, 16_384);
    let paused = until_a_pause(&mut rig);
    let now = rig.now;
    assert_eq!(rig.set(0, Knob::DirtyThrottle(None)), Ok(()));
    assert_eq!((rig.now, rig.replies.remove(&paused)), (now, Some(Ok(()))));
}

#[test]
fn a_client_that_leaves_gets_no_answer_and_its_frames_come_back() {
    let mut rig = Rig::new(1, 64, 1024);
    rig.ask(0, RequestOp::Write, 0, 16, Flags::NONE);
    rig.ask(0, RequestOp::Write, 16, 16, fua());
    rig.ask(0, RequestOp::Read, 64, 16, Flags::NONE);
    rig.engine.handle(rig.now, Input::ClientGone(CLIENT));
    rig.asked.clear();
    rig.run();
    while rig.step(1) {}
    assert!(rig.replies.is_empty(), "{:?}", rig.replies);
    assert_eq!(rig.free.len(), 256);
    assert_eq!(rig.engine.snapshot().clients, []);
    // The next client with that identifier is served.
    let read = rig.ask(0, RequestOp::Read, 0, 32, Flags::NONE);
    rig.ok(read);
}

#[cfg(feature = "mutants")]
#[test]
fn every_planted_bug_of_the_cache_is_found() {
    use crate::mutant::Mutant;
    for bug in Mutant::WRITE_BACK {
        let fails = |seed: u64| std::panic::catch_unwind(|| course(seed, Some(bug))).is_err();
        let found = (0..60).find(|seed| fails(*seed));
        assert!(found.is_some(), "{bug:?}");
    }
}
