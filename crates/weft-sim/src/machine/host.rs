//! What happens next on a machine, and what does it change?
//!
//! The engine's thread, the members, what is planned, and who is to be woken. See the module above for
//! the order of things.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::ops::Range;

use weft_engine::assemble::{Assembly, Candidate, Options, assemble};
use weft_engine::knobs::CacheForm;
use weft_engine::sched::mq_deadline::{Direction, Level};
use weft_engine::writeback::InodeId;
use weft_engine::{
    Attr, Class, ComputeOp, Config, Congestion, Differs, Engine, Flags, Input, Located, MemberInfo,
    MemberOp, Notice, Output, ReplyError, Request, RequestOp, Run, Snapshot, Tag, Token, Value,
    frames_needed,
};
use weft_ondisk::{NewArray, NewMember};
use weft_units::{ByteRange, Bytes, ClientId, MemberIndex, Sectors, Span, Time, VolumeId};

use super::faults::Faults;
use super::files::Files;
use super::member::{Member, Traffic, Wanted};
use super::probe::{History, Sums, View};
use super::{Costs, Parts, PartsError, Pid, PlannedFault, Woken};
use crate::drive::{Drive, Model};

/// An engine, its disks, and what is planned.
#[derive(Debug)]
pub struct Host {
    pub(super) now: Time,
    engine: Engine,
    members: Vec<Member>,
    costs: Costs,
    /// Whom to wake when: the time, the order of planning, who.
    timers: BinaryHeap<Reverse<(Time, u64, Pid)>>,
    timers_set: u64,
    /// When the engine's thread is free again.
    engine_free: Time,
    /// Facts that wait for it.
    inbox: Vec<Input>,
    /// What the engine said and when it leaves: its work comes before it. And whether it had more to do.
    leaving: VecDeque<(Time, Vec<Output>, bool)>,
    engine_woken: Option<Time>,
    /// Superblocks: by member and place.
    metadata: Superblocks,
    /// Who asked for what: by the tag of the request.
    requests: BTreeMap<u64, (Asked, Request)>,
    next_tag: u64,
    next_frame: u32,
    frames: (u32, u32),
    size: Bytes,
    stripes: Stripes,
    /// Who is to be run, in this order.
    pub(super) ready: VecDeque<(Pid, Woken)>,
    /// Requests that failed: none should.
    failed: u64,
    /// Who waits until requests find rows, in the order of `turns`.
    blocked: BTreeMap<u64, Pid>,
    /// Since when somebody waits, whether woken again meanwhile or not.
    turns: BTreeMap<Pid, u64>,
    next_turn: u64,
    pub(super) files: Option<Files>,
    /// What was asked for, if somebody watches, and which tag the first of it had.
    seen: Option<(u64, Vec<Seen>)>,
    engine_work: Span,
    requests_done: u64,
    bytes_done: Bytes,
    /// What is seen over time, if somebody looks.
    history: Option<Box<History>>,
    /// Bytes that were asked for, read and written.
    asked_bytes: (u64, u64),
    /// As whom processes ask, where they say it.
    classes: BTreeMap<Pid, Class>,
    /// What goes wrong, if anything does.
    faults: Option<Box<Faults>>,
    /// What the engine said of its members, and when.
    notices: Vec<(Time, Notice)>,
    /// Bytes that were computed because they could not be read.
    recovered: u64,
}

/// A request to the volume that somebody watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// When it was submitted.
    pub at: Time,
    /// What was asked for.
    pub op: RequestOp,
    /// Of what.
    pub range: ByteRange,
    /// How.
    pub flags: Flags,
    /// When it was answered.
    pub answered: Option<Time>,
}

/// Who is to be told of an answer.
#[derive(Clone, Debug)]
pub(super) enum Asked {
    /// A process, by the name that it gave.
    Process { pid: Pid, name: u64 },
    /// The page cache: these pages are written.
    Pages { inode: InodeId, pages: Range<u64> },
}

impl Host {
    pub(super) fn new(parts: &Parts, models: &[Model]) -> Result<Self, PartsError> {
        let drives: Vec<Drive> =
            (0..).zip(models).map(|(n, model)| Drive::new(model, parts.seed ^ (n << 56))).collect();
        let smallest = drives.iter().map(Drive::capacity).min().unwrap_or_default();
        let size = parts.member_size.unwrap_or(smallest);
        let (assembly, metadata) = new_array(parts, models.len(), size)?;
        let stripes = Stripes::new(parts, &assembly);
        let volume_size = assembly.geometry.array_size().bytes();
        let mut config = Config::for_volume(assembly, parts.knobs);
        // Frames are numbers here, so there may be as many as there are numbers.
        config.client_frames = u32::MAX / 2;
        config.client_credit = Bytes(u64::MAX / 2);
        let frames = (config.client_frames_first(), config.frames_total());
        let plugs = parts.knobs.stripe_cache_form == CacheForm::Of2008;
        Ok(Self {
            now: Time(0),
            engine: Engine::new(config, Time(0))?,
            members: drives
                .into_iter()
                .map(|drive| Member::new(drive, parts.queue, plugs))
                .collect(),
            costs: parts.costs,
            timers: BinaryHeap::new(),
            timers_set: 0,
            engine_free: Time(0),
            inbox: Vec::new(),
            leaving: VecDeque::new(),
            engine_woken: None,
            metadata,
            requests: BTreeMap::new(),
            next_tag: 0,
            next_frame: frames.0,
            frames,
            size: volume_size,
            stripes,
            ready: VecDeque::new(),
            failed: 0,
            blocked: BTreeMap::new(),
            turns: BTreeMap::new(),
            next_turn: 0,
            files: None,
            seen: None,
            engine_work: Span::ZERO,
            requests_done: 0,
            bytes_done: Bytes(0),
            history: None,
            asked_bytes: (0, 0),
            classes: BTreeMap::new(),
            faults: None,
            notices: Vec::new(),
            recovered: 0,
        })
    }

    // --- for processes -------------------------------------------------------------------------

    /// What time it is.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now
    }

    /// Of CPU work.
    #[must_use]
    pub fn costs(&self) -> &Costs {
        &self.costs
    }

    /// How large the volume is.
    #[must_use]
    pub fn size(&self) -> Bytes {
        self.size
    }

    /// Asks for something; the process is woken with `name` when it is done.
    pub fn submit(&mut self, pid: Pid, name: u64, op: RequestOp, range: ByteRange, flags: Flags) {
        self.request(Asked::Process { pid, name }, op, range, flags);
    }

    pub(super) fn request(&mut self, asked: Asked, op: RequestOp, range: ByteRange, flags: Flags) {
        let frames = match op {
            RequestOp::Read | RequestOp::Write => self.take_frames(range),
            _ => Run::EMPTY,
        };
        if let Some((_, seen)) = &mut self.seen {
            seen.push(Seen { at: self.now, op, range, flags, answered: None });
        }
        let tag = self.next_tag;
        self.next_tag += 1;
        match op {
            RequestOp::Read => self.asked_bytes.0 += range.len.0,
            RequestOp::Write => self.asked_bytes.1 += range.len.0,
            RequestOp::Flush | RequestOp::Trim | RequestOp::WriteZeroes => {}
        }
        let class = match &asked {
            Asked::Process { pid, .. } => self.classes.get(pid).copied().unwrap_or_default(),
            Asked::Pages { .. } => Class::None,
        };
        let attr = Attr { class, ..Attr::default() };
        let (client, volume) = (ClientId(1), VolumeId(0));
        let request = Request { client, tag: Tag(tag), volume, op, range, frames, flags, attr };
        self.requests.insert(tag, (asked, request));
        self.inbox.push(Input::Client(request));
    }

    /// As whom a process asks the volume from now on; what it leaves to the page cache is nobody's.
    pub fn set_class(&mut self, pid: Pid, class: Class) {
        self.classes.insert(pid, class);
    }

    /// What is to go wrong from now on; chance comes from the seed.
    pub fn plan_faults(&mut self, planned: Vec<PlannedFault>, seed: u64) {
        self.faults = Some(Box::new(Faults::new(planned, seed)));
    }

    /// How hard it is to get a row of the stripe cache.
    #[must_use]
    pub fn congestion(&self) -> Congestion {
        self.engine.congestion(VolumeId(0))
    }

    /// Whether a call that asks for something more would block. It is woken when requests find rows again.
    ///
    /// md's callers take the rows of their writes themselves. Here the engine does, so while it works on
    /// something else, what it has not taken in yet counts as if it had.
    pub fn would_block(&mut self, pid: Pid) -> bool {
        if self.engine_free > self.now && self.rows_wanted() >= self.rows_free() {
            self.wait_turn(pid);
            return true;
        }
        let turn = self.turns.get(&pid).copied().unwrap_or(self.next_turn);
        if self.blocks(pid) {
            return true;
        }
        // Whoever has waited longer goes first.
        if self.blocked.first_key_value().is_none_or(|(other, _)| turn < *other) {
            return false;
        }
        self.wait_turn(pid);
        self.wake_blocked();
        true
    }

    /// Rows of the stripe cache that writes will take which the engine has not taken in yet; at most.
    fn rows_wanted(&self) -> u64 {
        let rows = self.inbox.iter().map(|input| match input {
            Input::Client(request) if request.op == RequestOp::Write => {
                self.stripes.rows_of(request.range)
            }
            _ => 0,
        });
        rows.sum()
    }

    fn rows_free(&self) -> u64 {
        let active = self.engine.stripe_cache_active(VolumeId(0));
        self.stripes.rows.saturating_sub(u64::from(active))
    }

    /// Whether whoever has just submitted is blocked, as md blocks its callers: if so it is woken when
    /// requests find rows again, first come first: who is woken and finds none keeps its place.
    pub fn blocks(&mut self, pid: Pid) -> bool {
        if self.congestion() < Congestion::Blocked {
            self.turns.remove(&pid);
            return false;
        }
        self.wait_turn(pid);
        true
    }

    /// Before those who are answered now: these would take the rows again, each time.
    fn wake_blocked(&mut self) {
        while let Some((_, pid)) = self.blocked.pop_last() {
            self.ready.push_front((pid, Woken::Unblocked));
        }
    }

    fn wait_turn(&mut self, pid: Pid) {
        let turn = *self.turns.entry(pid).or_insert(self.next_turn);
        self.next_turn += 1;
        self.blocked.insert(turn, pid);
    }

    /// Wakes a process at a time.
    pub fn wake_at(&mut self, pid: Pid, at: Time) {
        self.timers_set += 1;
        self.timers.push(Reverse((at.max(self.now), self.timers_set, pid)));
    }

    /// Wakes another process now.
    pub fn tell(&mut self, pid: Pid, word: u64) {
        self.ready.push_back((pid, Woken::Told(word)));
    }

    // --- for those who look on ---------------------------------------------------------------------

    /// What the members' disks were asked for, after merging.
    pub fn traffic(&self) -> impl Iterator<Item = Traffic> + '_ {
        self.members.iter().map(|member| member.traffic)
    }

    /// The disks.
    pub fn drives(&self) -> impl Iterator<Item = &Drive> {
        self.members.iter().map(Member::drive)
    }

    /// Keeps what the volume is asked for from now on.
    pub fn watch_requests(&mut self) {
        self.seen.get_or_insert((self.next_tag, Vec::new()));
    }

    /// What the volume was asked for since somebody watches, how, and when it was answered.
    #[must_use]
    pub fn watched(&self) -> &[Seen] {
        self.seen.as_ref().map_or(&[], |(_, seen)| seen)
    }

    /// Of what was asked for since somebody watches, the ranges.
    #[must_use]
    pub fn requests_seen(&self) -> Vec<ByteRange> {
        self.watched().iter().map(|seen| seen.range).collect()
    }

    /// Looks at the machine every so often from now on.
    ///
    /// # Panics
    /// No time passes between two looks.
    pub fn watch_over_time(&mut self, every: Span) {
        let history = History::new(every, self.now, self.view().sums);
        self.history = Some(Box::new(history));
    }

    /// What was seen since somebody looks.
    #[must_use]
    pub fn history(&self) -> Option<&History> {
        self.history.as_deref()
    }

    fn view(&self) -> View {
        let sums = Sums { engine: self.engine_work, answered: self.bytes_done, ..Sums::default() };
        View {
            rows: self.engine.rows_in_use(VolumeId(0)),
            at_disks: self.members.iter().map(Member::commands).sum(),
            sums: self.members.iter().fold(sums, |sums, member| sums.with(&member.traffic)),
        }
    }

    /// The engine's own counters.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.engine.snapshot()
    }

    /// How long the engine's thread has worked.
    #[must_use]
    pub fn engine_work(&self) -> Span {
        self.engine_work
    }

    /// Requests that were answered, and those of them with an error.
    #[must_use]
    pub fn answered(&self) -> (u64, u64) {
        (self.requests_done, self.failed)
    }

    /// Bytes that the volume was asked for, read and written; what the page cache wrote is among them.
    #[must_use]
    pub fn asked_bytes(&self) -> (Bytes, Bytes) {
        (Bytes(self.asked_bytes.0), Bytes(self.asked_bytes.1))
    }

    /// What the engine said of its members, and when; the first thousand.
    #[must_use]
    pub fn notices(&self) -> &[(Time, Notice)] {
        &self.notices
    }

    /// Bytes that were computed because they could not be read.
    #[must_use]
    pub fn recovered(&self) -> Bytes {
        Bytes(self.recovered)
    }

    /// Reads of members that failed.
    #[must_use]
    pub fn unreadable(&self) -> u64 {
        self.faults.as_ref().map_or(0, |faults| faults.unreadable)
    }

    // --- time -------------------------------------------------------------------------------------

    pub(super) fn next_event(&self) -> Option<Time> {
        let disks = self.members.iter().filter_map(Member::next_event).min();
        let timer = self.timers.peek().map(|Reverse((at, ..))| *at);
        let leaving = self.leaving.front().map(|(at, ..)| *at);
        let engine = if self.inbox.is_empty() { self.engine_woken } else { Some(self.now) };
        let engine = engine.map(|at| at.max(self.engine_free));
        let late = self.faults.as_ref().and_then(|faults| faults.next_event());
        [disks, timer, leaving, engine, late].into_iter().flatten().min()
    }

    pub(super) fn advance(&mut self, at: Time) {
        assert!(at >= self.now, "time goes forward");
        if self.history.as_ref().is_some_and(|history| history.is_due(at)) {
            let view = self.view();
            self.history.as_mut().expect("it was looked at").look(at, &view);
        }
        self.now = at;
        for (index, member) in (0..).zip(&mut self.members) {
            if member.next_event().is_some_and(|next| next <= at) {
                let (inbox, faults) = (&mut self.inbox, &mut self.faults);
                member.advance(at, |token| {
                    let result = match faults {
                        Some(faults) => faults.on_done(at, MemberIndex(index), token),
                        None => Some(Ok(Value::Nothing)),
                    };
                    inbox.extend(result.map(|result| Input::Done { token, result }));
                });
                member.push(at);
            }
        }
        if let Some(faults) = &mut self.faults {
            while let Some((token, result)) = faults.ended(at) {
                self.inbox.push(Input::Done { token, result });
            }
        }
        while self.leaving.front().is_some_and(|(due, ..)| *due <= at) {
            let (_, outputs, more) = self.leaving.pop_front().expect("it was looked at");
            self.carry_out(outputs, more);
        }
        while let Some(Reverse((due, _, pid))) = self.timers.peek().copied() {
            if due > at {
                break;
            }
            self.timers.pop();
            self.ready.push_back((pid, Woken::Timer));
        }
    }

    /// Gives the engine its turns now, not when everybody who can run has run: what comes later is another
    /// plug.
    pub fn settle(&mut self) {
        while self.engine_turn() {}
    }

    /// Gives the engine its turn, if it has something to do and is free. Says whether it had one.
    pub(super) fn engine_turn(&mut self) -> bool {
        let woken = self.engine_woken.is_some_and(|at| at <= self.now);
        if (self.inbox.is_empty() && !woken) || self.engine_free > self.now {
            return false;
        }
        if woken && self.inbox.is_empty() {
            self.engine.handle(self.now, Input::Wake);
        }
        for input in self.inbox.drain(..) {
            self.engine.handle(self.now, input);
        }
        let turn = self.engine.turn(self.now);
        let mut cost = self.costs.of_turn(turn.work);
        let mut outputs = Vec::new();
        while let Some(output) = self.engine.poll() {
            if let Output::Compute { ops, .. } = &output {
                cost = Span(cost.0 + self.costs.of_compute(ops).0);
            }
            outputs.push(output);
        }
        // What it works takes its time, then its outputs leave, then it takes the next turn.
        self.engine_free = self.now + cost;
        self.engine_work = Span(self.engine_work.0 + cost.0);
        self.engine_woken =
            if turn.more { Some(self.engine_free) } else { self.engine.next_wake() };
        if cost == Span::ZERO {
            self.carry_out(outputs, turn.more);
        } else {
            self.leaving.push_back((self.engine_free, outputs, turn.more));
        }
        self.tell_page_cache();
        if self.congestion() < Congestion::Blocked {
            self.wake_blocked();
        }
        true
    }

    /// Does what the engine said, which has more to do or has not.
    fn carry_out(&mut self, outputs: Vec<Output>, more: bool) {
        for output in outputs {
            match output {
                Output::Submit { token, member, op, attr } => {
                    self.submit_to(member, token, op, attr);
                }
                Output::Deliver(token) => {
                    self.inbox.push(Input::Done { token, result: Ok(Value::Nothing) });
                }
                Output::Compute { token, ops } => {
                    for op in &ops {
                        if let ComputeOp::Recover { lost, .. } = op {
                            let bytes = lost.iter().map(|lost| u64::from(lost.part.len));
                            self.recovered += bytes.sum::<u64>();
                        }
                    }
                    let value = match ops.first() {
                        Some(ComputeOp::Compare { .. }) => Value::Differs(Differs::default()),
                        Some(ComputeOp::Locate { .. }) => Value::Located(Located::Clean),
                        _ => Value::Nothing,
                    };
                    self.engine.recycle(ops);
                    self.inbox.push(Input::Done { token, result: Ok(value) });
                }
                Output::Reply { tag, result, .. } => {
                    let (asked, request) =
                        self.requests.remove(&tag.0).expect("an answer has a question");
                    if result == Err(ReplyError::Stalled) {
                        // The member that was read may still fill these frames.
                        let request =
                            Request { frames: self.take_frames(request.range), ..request };
                        self.requests.insert(tag.0, (asked, request));
                        self.inbox.push(Input::Client(request));
                        continue;
                    }
                    self.requests_done += 1;
                    self.bytes_done = Bytes(self.bytes_done.0 + request.range.len.0);
                    self.failed += u64::from(result.is_err());
                    if let Some((first, seen)) = &mut self.seen
                        && let Some(place) = tag.0.checked_sub(*first)
                    {
                        seen[place as usize].answered = Some(self.now);
                    }
                    match asked {
                        Asked::Process { pid, name } => {
                            self.ready.push_back((pid, Woken::Done(name)));
                        }
                        Asked::Pages { inode, pages } => self.pages_written(inode, pages),
                    }
                }
                Output::Notice(notice) => {
                    if self.notices.len() < NOTICES_MAX {
                        self.notices.push((self.now, notice));
                    }
                }
                Output::Abort(_) | Output::Credit { .. } | Output::Release(_) => {}
            }
        }
        let pass_is_over = !more && self.inbox.is_empty();
        for member in &mut self.members {
            if pass_is_over {
                member.unplug();
            }
            member.push(self.now);
        }
    }

    fn submit_to(&mut self, index: MemberIndex, token: Token, op: MemberOp, attr: Attr) {
        let level = match attr.class {
            Class::RealTime(_) => Level::RealTime,
            Class::Idle => Level::Idle,
            Class::BestEffort(_) | Class::None => Level::BestEffort,
        };
        let moves = |direction, first, bytes: u64, fua| Wanted::Move {
            direction,
            first,
            len: Bytes(bytes).sectors_ceil(),
            fua,
            level,
        };
        if let Some(faults) = &mut self.faults
            && let Err(fault) = faults.on_submit(self.now, index, token)
        {
            self.inbox.push(Input::Done { token, result: Err(fault) });
            return;
        }
        let sum = |parts: &weft_engine::Parts| parts.iter().map(|part| u64::from(part.len)).sum();
        let wanted = match op {
            MemberOp::Flush => Wanted::Flush,
            MemberOp::Read { at, into } => moves(Direction::Read, at, sum(&into), false),
            MemberOp::Write { at, from, fua } => moves(Direction::Write, at, sum(&from), fua),
            MemberOp::ReadMetadata { at, len } => {
                let bytes = self.metadata.get(&(index.0, at)).cloned();
                let bytes = bytes.unwrap_or_else(|| vec![0; len.0 as usize].into());
                self.inbox.push(Input::Done { token, result: Ok(Value::Metadata(bytes)) });
                return;
            }
            MemberOp::WriteMetadata { at, bytes } => {
                let wanted = moves(Direction::Write, at, bytes.len() as u64, true);
                self.metadata.insert((index.0, at), bytes);
                wanted
            }
            MemberOp::Discard { .. } => {
                self.inbox.push(Input::Done { token, result: Ok(Value::Nothing) });
                return;
            }
        };
        if let (Some(faults), Wanted::Move { direction, first, len, .. }) =
            (&mut self.faults, wanted)
        {
            match direction {
                Direction::Read => faults.on_read(self.now, index, token, (first, len)),
                Direction::Write => faults.on_write(index, (first, len)),
            }
        }
        let member = &mut self.members[usize::from(index.0)];
        if !member.submit(self.now, token, wanted) {
            let result = match &mut self.faults {
                Some(faults) => faults.on_done(self.now, index, token),
                None => Some(Ok(Value::Nothing)),
            };
            self.inbox.extend(result.map(|result| Input::Done { token, result }));
        }
    }

    fn take_frames(&mut self, range: ByteRange) -> Run {
        let count = frames_needed(range.start.0, range.len.0);
        if self.next_frame + count > self.frames.1 {
            self.next_frame = self.frames.0;
        }
        let run = Run::new(self.next_frame, count);
        self.next_frame += count;
        run
    }
}

/// A bound on memory: each is of a member or a block, and nobody reads more.
const NOTICES_MAX: usize = 1000;

/// Of the stripe cache: how many rows it has, and how long what is.
#[derive(Clone, Copy, Debug)]
struct Stripes {
    rows: u64,
    row: u64,
    chunk: u64,
    chunk_row: u64,
}

impl Stripes {
    fn new(parts: &Parts, assembly: &Assembly) -> Self {
        let chunk = parts.chunk.bytes().0.max(1);
        Self {
            rows: u64::from(parts.knobs.cache_rows(&assembly.geometry)),
            row: parts.knobs.stripe_size.bytes().0,
            chunk,
            chunk_row: chunk * u64::from(assembly.geometry.data_members()),
        }
    }

    /// How many rows a write takes, at most.
    fn rows_of(&self, range: ByteRange) -> u64 {
        let (mut at, end) = (range.start.0, range.start.0 + range.len.0);
        let mut rows = 0;
        while at < end {
            let piece = end.min((at / self.chunk_row + 1) * self.chunk_row) - at;
            rows += piece.min(self.chunk).div_ceil(self.row);
            at += piece;
        }
        rows
    }
}

/// By member and place.
type Superblocks = BTreeMap<(u16, Sectors), Box<[u8]>>;

/// A new array in sync, and its superblocks by member and place.
fn new_array(
    parts: &Parts,
    members: usize,
    size: Sectors,
) -> Result<(Assembly, Superblocks), PartsError> {
    let new = |n: usize| {
        let mut uuid = [u8::try_from((n + 1) % 256).expect("below 256"); 16];
        uuid[0] ^= u8::try_from((n + 1) / 256).expect("an array has few hundred members");
        NewMember { size, device_uuid: uuid.into() }
    };
    let mut array = NewArray::new(parts.level, (0..members).map(new).collect());
    array.chunk = Some(parts.chunk);
    (array.set_uuid, array.assume_clean) = ([9; 16].into(), true);
    let superblocks = array.plan()?;
    let bytes = (0..).zip(&superblocks).map(|(member, superblock)| {
        ((member, superblock.super_offset), superblock.encode().into())
    });
    let metadata = bytes.collect();
    let candidates: Vec<Candidate> = (0..)
        .zip(superblocks)
        .map(|(index, superblock)| {
            let (index, label) = (MemberIndex(index), format!("disk{index}"));
            let member = MemberInfo { index, label, size, logical_block: 512, discards: true };
            Candidate::with_superblock(member, superblock)
        })
        .collect();
    let assembly = assemble(&candidates, &Options::default());
    Ok((assembly.map_err(|refusal| PartsError::Assembly(refusal.to_string()))?, metadata))
}
