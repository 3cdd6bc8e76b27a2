//! What happens next?
//!
//! A [`World`] is an engine, the disks below it, the memory between them, clients above it, a clock that
//! only moves when told, and the checkers that watch. It is the engine's driver and does what a driver
//! must: owns the slab, submits and computes, honours credit, asks again when told that a member
//! stalled. Nothing in it happens by itself: whoever holds it says which request completes next, so
//! every order can be tried, and a copy of a world ([`Clone`]) goes on independently.
//!
//! A restart always goes the way of a real one: superblock sectors are read off the media, parsed,
//! assembled and made into an engine.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};

use weft_engine::assemble::{self, Assembly, Candidate, Refused, SlotState};
use weft_engine::knobs::{Knob, Knobs};
use weft_engine::{
    Attr, Command, ComputeOp, Config, Engine, Fault, Flags, Input, MemberInfo, MemberOp, Notice,
    Origin, Output, Part, Parts, ReplyError, Request, RequestOp, Run, Snapshot, SyncAction, Tag,
    Token, Value, Verb, VolumeConfig, frames_needed,
};
use weft_ondisk::{Level, Minor, NewArray, NewMember, Role, Super1, Uuid};
use weft_parity::Parity;
use weft_units::{
    ByteRange, Bytes, ClientId, FRAME_BYTES, MemberIndex, Sectors, Slot, Span, Time, VolumeId,
};

use crate::checker::{Array, Checkers, Limits, Record, View, Violation, parity};
use crate::compute;
use crate::crash::{Coverage, CutMode, CutShape};
use crate::disk::{Disk, DiskOp};
use crate::model::{FlushMark, Model, Payload, ReadMark, WriteId};
use crate::rng::{Digest, Rng};

/// What a world is made of. Printed with every failure.
#[derive(Clone, Debug)]
pub struct Options {
    /// RAID level.
    pub level: Level,
    /// Slots.
    pub members: usize,
    /// Layout; the level's default if none.
    pub layout: Option<u32>,
    /// Chunk.
    pub chunk: Sectors,
    /// Chunk rows.
    pub chunk_rows: u64,
    /// Disks that wait as spares.
    pub spares: usize,
    /// Whether the array is made clean: parity of zeros is zero.
    pub assume_clean: bool,
    /// Logical block of every disk.
    pub logical_block: u32,
    /// Knobs at each start.
    pub knobs: Knobs,
    /// Rows of the stripe cache, if not `stripe_cache_size`.
    pub rows_max: Option<u32>,
    /// Rows' worth of frames, if not enough for every row of the cache.
    pub cache_rows: Option<u32>,
    /// Frames for payload.
    pub client_frames: u32,
    /// Bytes that a client may have outstanding.
    pub client_credit: Bytes,
    /// What all chance comes from.
    pub seed: u64,
    /// Whether computations wait to be chosen like member requests.
    pub defer_computes: bool,
    /// Virtual time that each completion takes.
    pub latency: Span,
    /// Whether checkers watch.
    pub checked: bool,
    /// Whether data is promised: not when more members are hurt than the level survives. Then only
    /// single flight, exactly once, bounds and liveness count.
    pub data_promised: bool,
    /// Whether everything submitted and answered is kept in [`World::log`].
    pub logged: bool,
}

/// Names a request or command of a client.
pub type Ticket = (ClientId, Tag);

/// How a request ended: a read with its bytes.
pub type Answer = Result<Vec<u8>, ReplyError>;

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Logged {
    /// A request was answered.
    Answer(Ticket, bool),
    /// A request ended at its disk.
    Done {
        /// Which disk.
        disk: usize,
        /// Whether it went well.
        ok: bool,
    },
    /// Flush.
    Flush {
        /// Of which disk.
        disk: usize,
    },
    /// Read.
    Read {
        /// Of which disk.
        disk: usize,
        /// First absolute sector.
        at: u64,
        /// Sectors.
        count: u64,
        /// For whom.
        origin: Origin,
    },
    /// Everything submitted since the last of these was submitted before any of it completed.
    Round,
    /// Write.
    Write {
        /// To which disk.
        disk: usize,
        /// First absolute sector.
        at: u64,
        /// Sectors.
        count: u64,
        /// Durable at completion.
        fua: bool,
        /// A superblock.
        metadata: bool,
        /// For whom.
        origin: Origin,
    },
}

/// Which request completes next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The oldest.
    #[default]
    Fifo,
    /// The newest.
    Lifo,
    /// Any, as the seed says; sometimes several before the engine gets its turn.
    Random,
}

/// Something outstanding that may be chosen to complete.
#[derive(Clone, Debug)]
pub struct Pending {
    /// Its disk; none for a computation.
    pub disk: Option<usize>,
    work: Work,
    aborted: bool,
}

#[derive(Clone, Debug)]
enum Work {
    Compute(ComputeOp),
    Flush,
    Read { at: u64, count: u64, into: Parts },
    ReadMetadata,
    Write { at: u64, count: u64, from: Parts, bytes: Digest },
    WriteMetadata,
}

#[derive(Clone, Debug)]
struct Issued {
    expected: Expected,
    frames: Run,
}

/// What the model has to learn from the answer.
#[derive(Clone, Debug)]
enum Expected {
    Flush(FlushMark),
    /// The request must be refused.
    Nothing,
    Read(ReadMark),
    Write(WriteId, Flags, FlushMark),
}

/// A request that waits for credit or frames.
#[derive(Clone, Debug)]
struct Waiting {
    ticket: Ticket,
    op: RequestOp,
    range: ByteRange,
    payload: Payload,
    flags: Flags,
}

/// The simulated world.
#[derive(Clone)]
pub struct World {
    /// What it was made of.
    pub options: Options,
    /// The clock.
    pub now: Time,
    /// All disks, present or not; their numbers never change.
    pub disks: Vec<Disk>,
    disk_of: Vec<usize>,
    engine: Option<Engine>,
    slab: Vec<u8>,
    free: BTreeMap<u32, u32>,
    pending: BTreeMap<Token, Pending>,
    issued: BTreeMap<Ticket, Issued>,
    commands: BTreeSet<Ticket>,
    waiting: VecDeque<Waiting>,
    credit: BTreeMap<ClientId, u64>,
    answers: BTreeMap<Ticket, Answer>,
    answered: u64,
    next_tag: u64,
    /// Slots and columns that a disk failed to read: they are reconstructed, and what was computed for
    /// them may be lost again with the power.
    unreadable: BTreeSet<(u16, u64)>,
    /// Slots that were missing at any time since columns became suspect: what was reconstructed for
    /// them stays as it is, also when they are filled again.
    lost_since: BTreeSet<u16>,
    /// What clients may see.
    pub model: Model,
    /// Where data is.
    pub array: Array,
    /// What the durable superblocks say.
    pub record: Record,
    checkers: Checkers,
    failure: Option<Violation>,
    /// Everything that the engine said for people.
    pub notices: Vec<(Time, Notice)>,
    /// What was submitted and answered, if [`Options::logged`].
    pub log: Vec<Logged>,
    /// Every output with its time.
    pub digest: Digest,
    /// What the power cuts were like.
    pub coverage: Coverage,
    /// The stream that chooses completions.
    pub rng: Rng,
    parity: Parity,
}

/// Of whoever verifies.
const VERIFIER: ClientId = ClientId(1_000_000);
/// Of whoever administers.
const ADMIN: ClientId = ClientId(1_000_001);
const TURNS_MAX: u32 = 100_000;
const WAKES_MAX: u32 = 20_000;
const MINOR: Minor = Minor::V1_2;

impl Options {
    /// An array of this shape, small, with everything checked.
    #[must_use]
    pub fn new(level: Level, members: usize, chunk: Sectors) -> Self {
        Self {
            level,
            members,
            layout: None,
            chunk,
            chunk_rows: 16,
            spares: 0,
            assume_clean: true,
            logical_block: 512,
            knobs: Knobs { stripe_cache_size: 32, ..Knobs::default() },
            rows_max: None,
            cache_rows: None,
            client_frames: 1024,
            client_credit: Bytes::mib(32),
            seed: 0,
            defer_computes: false,
            latency: Span(10_000),
            checked: true,
            data_promised: true,
            logged: false,
        }
    }
}

impl World {
    /// Makes the array with `weft-ondisk`, writes its superblocks and starts an engine on it.
    ///
    /// # Panics
    /// The options make no array.
    #[must_use]
    pub fn new(options: Options) -> Self {
        let size = options.chunk.0 * options.chunk_rows;
        let member_size = Sectors(16_384 + size);
        let count = options.members + options.spares;
        let member =
            |number: usize| NewMember { size: member_size, device_uuid: device_uuid(number) };
        let mut array = NewArray::new(options.level, (0..options.members).map(member).collect());
        array.spares = (options.members..count).map(member).collect();
        array.layout = options.layout;
        array.chunk = Some(options.chunk);
        array.size = Some(Sectors(size));
        array.set_uuid = Uuid([7; 16]);
        array.name = "sim".to_owned();
        array.assume_clean = options.assume_clean;
        array.force = true;
        let supers = array.plan().unwrap_or_else(|error| panic!("{options:?}: {error}"));
        let mut disks: Vec<Disk> =
            (0..count).map(|_| Disk::new(member_size, options.logical_block)).collect();
        for (disk, sb) in disks.iter_mut().zip(&supers) {
            disk.poke(sb.super_offset.0, &sb.encode());
        }
        let first = &supers[0];
        let geometry = weft_engine::raid::geometry::Geometry::new(
            first.level,
            first.layout,
            first.raid_disks,
            first.chunk,
            first.size,
        )
        .unwrap_or_else(|error| panic!("{options:?}: {error}"));
        let data_offset = supers.iter().map(|sb| sb.data_offset).collect();
        let record = Record::read(&disks, MINOR);
        let limits = Limits { rows: 0, client_frames: 0, member_bytes: 0 };
        let mut world = Self {
            now: Time(1_000_000_000),
            disk_of: (0..count).collect(),
            disks,
            engine: None,
            slab: Vec::new(),
            free: BTreeMap::new(),
            pending: BTreeMap::new(),
            issued: BTreeMap::new(),
            commands: BTreeSet::new(),
            waiting: VecDeque::new(),
            credit: BTreeMap::new(),
            answers: BTreeMap::new(),
            answered: 0,
            next_tag: 0,
            unreadable: BTreeSet::new(),
            lost_since: BTreeSet::new(),
            model: Model::default(),
            array: Array { geometry, data_offset },
            record,
            checkers: Checkers::new(limits),
            failure: None,
            notices: Vec::new(),
            log: Vec::new(),
            digest: Digest::default(),
            coverage: Coverage::default(),
            rng: Rng::new(options.seed),
            parity: Parity::detect(),
            options,
        };
        world.start(&assemble::Options::default()).expect("a new array is not refused");
        world
    }

    /// Starts an engine from what is on the media.
    ///
    /// # Errors
    /// The assembly is refused.
    ///
    /// # Panics
    /// An engine runs already, or the configuration is refused.
    pub fn start(&mut self, how: &assemble::Options) -> Result<(), Refused> {
        assert!(self.engine.is_none(), "stop the engine first");
        let assembly = self.assemble(how)?;
        if self.options.checked {
            let view = view!(self);
            self.checkers.assembled(view, &assembly);
        }
        let missing = (0u16..).zip(&assembly.slots);
        let missing = missing.filter(|(_, state)| !matches!(state, SlotState::InSync(_)));
        if self.model.suspect.is_empty() {
            self.lost_since.clear();
        }
        self.lost_since.extend(missing.map(|(slot, _)| slot));
        let knobs = self.options.knobs;
        let row_frames = assembly.row_frames(knobs.stripe_size);
        let rows = self.options.rows_max.unwrap_or(knobs.stripe_cache_size);
        let config = Config {
            cache_frames: row_frames * self.options.cache_rows.unwrap_or(rows),
            volumes: vec![VolumeConfig { assembly, knobs, rows_max: self.options.rows_max }],
            client_frames: self.options.client_frames,
            client_credit: self.options.client_credit,
            turn_rows_max: 8,
            epoch_secs: 1_750_000_000,
            seed: self.options.seed,
        };
        self.slab.clear();
        self.slab.resize(config.frames_total() as usize * FRAME_BYTES as usize, 0xdb);
        self.slab[..FRAME_BYTES as usize].fill(0);
        self.free = BTreeMap::from([(config.client_frames_first(), config.client_frames)]);
        self.credit.clear();
        self.checkers.limit(|limits| {
            limits.rows = rows;
            limits.client_frames = config.client_frames;
            limits.member_bytes = member_bytes_max(&knobs, self.options.chunk);
        });
        let engine = Engine::new(config, self.now);
        self.engine = Some(engine.unwrap_or_else(|error| panic!("{error}")));
        self.settle();
        Ok(())
    }

    /// What would be assembled from the media now.
    ///
    /// # Errors
    /// The assembly is refused.
    pub fn assemble(&self, how: &assemble::Options) -> Result<Assembly, Refused> {
        let there = |disk: &usize| !self.disks[*disk].faults.gone;
        let candidates: Vec<Candidate> =
            (0..self.disks.len()).filter(there).map(|disk| self.candidate(disk)).collect();
        assemble::assemble(&candidates, how)
    }

    /// A disk as an opened device, with what is on it.
    fn candidate(&self, disk: usize) -> Candidate {
        let state = &self.disks[disk];
        let blocks: Vec<(Minor, Vec<u8>)> = Minor::ALL
            .iter()
            .filter_map(|minor| Some((*minor, state.peek(minor.position(state.size())?.0, 8))))
            .collect();
        let blocks: Vec<(Minor, &[u8])> =
            blocks.iter().map(|(minor, bytes)| (*minor, bytes.as_slice())).collect();
        let superblock = Super1::find(&blocks, state.size());
        Candidate {
            member: self.member_info(disk, MemberIndex(disk as u16)),
            superblock: superblock.map(Box::new).map_err(|error| error.to_string()),
        }
    }

    fn member_info(&self, disk: usize, index: MemberIndex) -> MemberInfo {
        let state = &self.disks[disk];
        MemberInfo {
            index,
            label: format!("disk{disk}"),
            size: state.size(),
            logical_block: state.logical_block(),
        }
    }

    // --- clients and administrators -------------------------------------------------------------

    /// A client asks for something. It reaches the engine now, or when credit and frames allow.
    pub fn request(
        &mut self,
        client: ClientId,
        op: RequestOp,
        range: ByteRange,
        payload: Payload,
        flags: Flags,
    ) -> Ticket {
        self.next_tag += 1;
        let ticket = (client, Tag(self.next_tag));
        self.waiting.push_back(Waiting { ticket, op, range, payload, flags });
        self.pump();
        ticket
    }

    /// A connection is gone.
    pub fn disconnect(&mut self, client: ClientId) {
        self.waiting.retain(|waiting| waiting.ticket.0 != client);
        for (ticket, issued) in &self.issued {
            if ticket.0 == client && matches!(issued.expected, Expected::Read(_)) {
                self.model.read_failed();
            }
        }
        self.issued.retain(|ticket, _| ticket.0 != client);
        self.credit.remove(&client);
        self.input(Input::ClientGone(client));
    }

    /// An administrator asks for something.
    pub fn admin(&mut self, verb: Verb) -> Ticket {
        self.next_tag += 1;
        let ticket = (ADMIN, Tag(self.next_tag));
        if let Verb::Set(knob) = &verb {
            self.options.knobs.set(*knob);
            let knobs = self.options.knobs;
            let chunk = self.options.chunk;
            let rows = self.options.rows_max;
            self.checkers.limit(|limits| {
                // What is in use shrinks to a smaller cache as rows come back.
                limits.rows = limits.rows.max(rows.unwrap_or(knobs.stripe_cache_size));
                limits.member_bytes = limits.member_bytes.max(member_bytes_max(&knobs, chunk));
            });
        }
        self.commands.insert(ticket);
        let command = Command { client: ticket.0, tag: ticket.1, volume: VolumeId(0), verb };
        self.input(Input::Admin(command));
        ticket
    }

    /// Sets a knob by its name.
    ///
    /// # Panics
    /// There is no such knob or value.
    pub fn set(&mut self, name: &str, value: &str) -> Ticket {
        let knob: Knob =
            self.options.knobs.parse(name, value).unwrap_or_else(|error| panic!("{error}"));
        self.admin(Verb::Set(knob))
    }

    /// A blank disk of the same size joins as a spare. Returns its number.
    pub fn add_blank(&mut self) -> (usize, Ticket) {
        let disk = self.disks.len();
        let size = self.disks[0].size();
        self.disks.push(Disk::new(size, self.options.logical_block));
        let offset = self.array.data_offset[0];
        self.array.data_offset.push(offset);
        let ticket = self.add(disk, None);
        (disk, ticket)
    }

    /// A disk that is there joins (again).
    pub fn add(&mut self, disk: usize, superblock: Option<Box<Super1>>) -> Ticket {
        let index = MemberIndex(self.disk_of.len() as u16);
        self.disk_of.push(disk);
        let columns: BTreeSet<u64> =
            self.model.touched().map(|sector| self.array.column(sector).sector).collect();
        self.checkers.disk_added(disk, columns.into_iter());
        self.record = Record::read(&self.disks, MINOR);
        let member = self.member_info(disk, index);
        self.admin(Verb::Add { member, superblock, device_uuid: device_uuid(disk) })
    }

    /// The member index under which a disk is known to the engine now.
    #[must_use]
    pub fn member_of(&self, disk: usize) -> MemberIndex {
        let index = self.disk_of.iter().rposition(|known| *known == disk);
        MemberIndex(index.expect("every disk was given an index") as u16)
    }

    /// How a request ended, once.
    pub fn take_answer(&mut self, ticket: Ticket) -> Option<Answer> {
        self.answers.remove(&ticket)
    }

    /// Whether a request was answered.
    #[must_use]
    pub fn is_answered(&self, ticket: Ticket) -> bool {
        self.answers.contains_key(&ticket)
    }

    /// Requests answered so far.
    #[must_use]
    pub fn requests_answered(&self) -> u64 {
        self.answered
    }

    /// Requests and commands without an answer.
    #[must_use]
    pub fn unanswered(&self) -> usize {
        self.issued.len() + self.commands.len() + self.waiting.len()
    }

    // --- moving on ---------------------------------------------------------------------------

    /// What may complete, oldest first.
    #[must_use]
    pub fn pending(&self) -> Vec<Token> {
        self.pending
            .iter()
            .filter(|(_, pending)| self.can_complete(pending))
            .map(|(token, _)| *token)
            .collect()
    }

    /// Everything outstanding, what stalls included.
    pub fn outstanding(&self) -> impl Iterator<Item = (Token, &Pending)> {
        self.pending.iter().map(|(token, pending)| (*token, pending))
    }

    fn can_complete(&self, pending: &Pending) -> bool {
        pending.aborted || pending.disk.is_none_or(|disk| self.disks[disk].can_complete())
    }

    /// Ends one outstanding request or computation and lets the engine see it at its next turn.
    ///
    /// # Panics
    /// The token is not outstanding.
    pub fn complete_only(&mut self, token: Token) {
        let pending = self.pending.remove(&token).expect("only what is outstanding completes");
        self.now = self.now + self.options.latency;
        let result = self.end(token, pending);
        self.input(Input::Done { token, result });
    }

    /// Ends one and gives the engine its turns.
    pub fn complete(&mut self, token: Token) {
        self.complete_only(token);
        self.settle();
    }

    /// Ends the one that `order` chooses. False when there is none.
    pub fn step(&mut self, order: Order) -> bool {
        let pending = self.pending();
        let Some(last) = pending.last() else { return false };
        match order {
            Order::Fifo => self.complete(pending[0]),
            Order::Lifo => self.complete(*last),
            Order::Random => {
                let mut pending = pending;
                let count =
                    if self.rng.percent(25) { 1 + self.rng.index(pending.len()) } else { 1 };
                for _ in 0..count {
                    let token = pending.swap_remove(self.rng.index(pending.len()));
                    self.complete_only(token);
                }
                self.settle();
            }
        }
        true
    }

    /// Ends everything that is outstanding, oldest first, before the engine gets its turn. False when
    /// there is nothing.
    pub fn round(&mut self) -> bool {
        let pending = self.pending();
        for token in &pending {
            self.complete_only(*token);
        }
        if self.options.logged && !pending.is_empty() {
            self.log.push(Logged::Round);
        }
        self.settle();
        !pending.is_empty()
    }

    /// Goes on until every request and command is answered and nothing is outstanding. What never
    /// ends is a failure of its own (I13).
    pub fn run(&mut self, order: Order) {
        self.settle();
        let mut wakes = 0;
        while self.failure.is_none() {
            if self.step(order) {
                continue;
            }
            if self.unanswered() == 0 {
                break;
            }
            wakes += 1;
            if !self.wake() || wakes > WAKES_MAX {
                let stuck = self.describe_stuck();
                self.fail(Violation::new("I13 liveness", stuck));
            }
        }
        if self.failure.is_none() && self.pending.is_empty() && self.options.checked {
            let snapshot = self.snapshot();
            self.checkers.at_rest(&snapshot);
            self.look_for_failures();
        }
    }

    /// Lets time pass, with everything that falls into it.
    pub fn idle(&mut self, span: Span) {
        let until = self.now + span;
        self.settle();
        while self.failure.is_none() {
            if self.step(Order::Fifo) {
                continue;
            }
            match self.engine.as_ref().and_then(Engine::next_wake) {
                Some(at) if at <= until => {
                    if !self.wake() {
                        break;
                    }
                }
                _ => break,
            }
        }
        self.now = self.now.max(until);
    }

    /// Jumps to the time that the engine asked for. False when it asked for none.
    pub fn wake(&mut self) -> bool {
        let Some(at) = self.engine.as_ref().and_then(Engine::next_wake) else { return false };
        self.now = self.now.max(at);
        self.input(Input::Wake);
        self.settle();
        true
    }

    /// Gives the engine its turns and takes its outputs until there are no more.
    pub fn settle(&mut self) {
        let mut turns = 0;
        loop {
            let Some(engine) = &mut self.engine else { return };
            loop {
                let turn = engine.turn(self.now);
                turns += 1;
                if !turn.more || turns > TURNS_MAX {
                    break;
                }
            }
            let mut outputs = Vec::new();
            while let Some(output) = engine.poll() {
                outputs.push(output);
            }
            if turns > TURNS_MAX {
                self.fail(Violation::new("I13 liveness", "turns that never end"));
                return;
            }
            let mut inline = Vec::new();
            let mut answered = false;
            for output in outputs {
                answered |= matches!(output, Output::Reply { .. } | Output::Release(_));
                if let Some(token) = self.output(output) {
                    inline.push(token);
                }
            }
            self.look_for_failures();
            if self.failure.is_some() {
                return;
            }
            if !inline.is_empty() {
                for token in inline {
                    let pending = self.pending.remove(&token).expect("it was just submitted");
                    let result = self.end(token, pending);
                    self.input(Input::Done { token, result });
                }
                continue;
            }
            if answered && self.pump() {
                continue;
            }
            break;
        }
        if self.options.checked {
            let snapshot = self.snapshot();
            self.checkers.settled(&snapshot);
            if snapshot.tokens_outstanding != self.pending.len() {
                let (engine, driver) = (snapshot.tokens_outstanding, self.pending.len());
                self.fail(Violation::new(
                    "I11 exactly once",
                    format!("the engine counts {engine} tokens outstanding, the driver {driver}"),
                ));
            }
            self.look_for_failures();
        }
    }

    /// Counters and states of the engine.
    ///
    /// # Panics
    /// No engine runs.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.engine.as_ref().expect("an engine runs").snapshot()
    }

    /// Whether an engine runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.engine.is_some()
    }

    /// The engine, for planting bugs.
    pub fn engine_mut(&mut self) -> Option<&mut Engine> {
        self.engine.as_mut()
    }

    /// The first promise that was not kept.
    #[must_use]
    pub fn failure(&self) -> Option<&Violation> {
        self.failure.as_ref()
    }

    /// Reports a violation found from outside.
    pub fn fail(&mut self, violation: Violation) {
        let about_data = ["I1 ", "I2 ", "I4 ", "I5 ", "I6 ", "I7 ", "I8 "];
        if !self.options.data_promised
            && about_data.iter().any(|name| violation.checker.starts_with(name))
        {
            return;
        }
        self.failure.get_or_insert(violation);
    }

    /// Bytes of the volume.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.array.geometry.array_size().bytes().0
    }

    // --- endings -----------------------------------------------------------------------------

    /// The power goes. What is not durable survives or does not; whoever waited waits no more.
    pub fn power_cut(&mut self, mode: CutMode) -> CutShape {
        let syncing =
            self.engine.as_ref().is_some_and(|engine| {
                engine.snapshot().volumes.iter().any(|volume| {
                    !matches!(volume.sync_action, SyncAction::Idle | SyncAction::Frozen)
                })
            });
        let mut shape = CutShape { during_sync: syncing, ..CutShape::default() };
        let (mut kept_rows, mut lost_rows) = (BTreeSet::new(), BTreeSet::new());
        let mut lost_by_others = Vec::new();
        let (mut any_kept, mut any_lost) = (false, false);
        for disk in 0..self.disks.len() {
            let in_sync = self.record.is_in_sync(disk);
            let report = self.disks[disk].power_cut(mode, &mut self.rng);
            shape.inside_metadata |= report.metadata_in_flight;
            any_kept |= !report.kept.is_empty();
            any_lost |= !report.lost.is_empty();
            for (sectors, rows) in [(&report.kept, &mut kept_rows), (&report.lost, &mut lost_rows)]
            {
                for absolute in sectors {
                    if let Some(column) = self.array.data_sector(disk, *absolute) {
                        rows.insert(column / 8);
                        self.model.suspect.insert(column);
                    }
                }
            }
            if !in_sync {
                let column = |absolute: &u64| self.array.data_sector(disk, *absolute);
                let lost = report.lost.iter().filter_map(column);
                lost_by_others.extend(lost.map(|column| (disk, column)));
            }
        }
        shape.strict_subset = any_kept && any_lost;
        shape.half_written_row = kept_rows.intersection(&lost_rows).next().is_some();
        self.stopped();
        self.model.power_cut();
        self.checkers.power_cut(&lost_by_others);
        if self.options.checked {
            let mut found = Vec::new();
            let columns = self.columns_of_interest();
            parity::after_cut(view!(self), columns.iter().copied(), &mut found);
            if let Some(violation) = found.into_iter().next() {
                self.fail(violation);
            }
        }
        self.coverage.add(shape);
        shape
    }

    /// The engine is dropped after it said that it has stopped; power stays on.
    pub fn stopped(&mut self) {
        self.engine = None;
        self.pending.clear();
        self.issued.clear();
        self.commands.clear();
        self.waiting.clear();
        self.checkers.power_cut(&[]);
        self.record = Record::read(&self.disks, MINOR);
        // A disk keeps its number; member indexes start anew with the next engine.
        self.disk_of = (0..self.disks.len()).collect();
    }

    /// The process dies, the power stays.
    pub fn kill(&mut self) {
        let mut rng = self.rng.fork();
        for disk in 0..self.disks.len() {
            let writes: Vec<(u64, u64)> = self.disks[disk].outstanding_writes().collect();
            for absolute in writes.into_iter().flat_map(|(at, count)| at..at + count) {
                if let Some(column) = self.array.data_sector(disk, absolute) {
                    self.model.suspect.insert(column);
                }
            }
            self.disks[disk].process_killed(&mut rng);
        }
        self.stopped();
        self.model.power_cut();
        self.checkers.power_cut(&[]);
    }

    /// Reads everything that was ever written, and everything that shares a suspect column with it,
    /// through the engine. After a power cut what is found is pinned: nothing else may be read later.
    /// Returns the number of sectors read.
    pub fn verify(&mut self, order: Order) -> u64 {
        let mut sectors: BTreeSet<u64> = self.model.touched().collect();
        for column in &self.model.suspect {
            sectors.extend(self.array.data_of(*column).into_iter().map(|(_, sector)| sector));
        }
        let sectors: Vec<u64> = sectors.into_iter().collect();
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for sector in &sectors {
            match ranges.last_mut() {
                Some((at, count)) if *at + *count == *sector && *count < 128 => *count += 1,
                _ => ranges.push((*sector, 1)),
            }
        }
        let hole = self.model.hole;
        for (at, count) in ranges {
            let range = ByteRange::new(at * 512, count * 512);
            let ticket =
                self.request(VERIFIER, RequestOp::Read, range, Payload::Zeros, Flags::default());
            self.run(order);
            if self.failure.is_some() {
                return 0;
            }
            match self.take_answer(ticket) {
                Some(Ok(bytes)) => {
                    for (sector, content) in (at..).zip(bytes.chunks_exact(512)) {
                        self.model.settle(sector, content.try_into().expect("512 bytes"));
                    }
                }
                other => {
                    let message = format!("verification of sector {at} got {other:?}");
                    self.fail(Violation::new("I1 durability", message));
                    return 0;
                }
            }
        }
        self.coverage.hole_predicted += self.model.hole.0 - hole.0;
        self.coverage.hole_wrong += self.model.hole.1 - hole.1;
        sectors.len() as u64
    }

    /// Recomputes the parity of every column of the array from what is on the media.
    #[must_use]
    pub fn scrub(&self, bytes: parity::Bytes) -> parity::Scrub {
        let columns = 0..self.array.geometry.member_size().0;
        parity::scrub(&self.disks, &self.array, &self.record, columns, bytes)
    }

    /// Columns that were ever written, or are suspect.
    #[must_use]
    pub fn columns_of_interest(&self) -> BTreeSet<u64> {
        let touched = self.model.touched().map(|sector| self.array.column(sector).sector);
        touched.chain(self.model.suspect.iter().copied()).collect()
    }

    // --- inside ------------------------------------------------------------------------------

    fn input(&mut self, input: Input) {
        if self.options.checked {
            let view = view!(self);
            self.checkers.input(view, &input);
        }
        if let Some(engine) = &mut self.engine {
            engine.handle(self.now, input);
        }
    }

    /// Sends what waits, as far as credit and frames allow. True if something was sent.
    fn pump(&mut self) -> bool {
        let mut sent = false;
        let mut blocked = BTreeSet::new();
        let mut kept = VecDeque::new();
        while let Some(waiting) = self.waiting.pop_front() {
            let client = waiting.ticket.0;
            if blocked.contains(&client) || !self.send(&waiting) {
                blocked.insert(client);
                kept.push_back(waiting);
            } else {
                sent = true;
            }
        }
        self.waiting = kept;
        sent
    }

    fn send(&mut self, waiting: &Waiting) -> bool {
        let Waiting { ticket, op, range, payload, flags } = *waiting;
        let moves = matches!(op, RequestOp::Read | RequestOp::Write);
        let limit = self.options.client_credit.0;
        let used = self.credit.get(&ticket.0).copied().unwrap_or(0);
        // A request larger than the whole credit goes alone.
        let count = if moves { frames_needed(range.start.0, range.len.0) } else { 0 };
        let bytes = range.len.0;
        if moves && used > 0 && used + bytes > limit {
            return false;
        }
        let Some(frames) = self.allocate(count) else { return false };
        if moves {
            *self.credit.entry(ticket.0).or_default() += bytes;
        }
        let inside = range.checked_end().is_some_and(|end| end.0 <= self.size());
        let mark = self.model.flush_issued();
        let expected = match op {
            RequestOp::Flush => Some(Expected::Flush(mark)),
            _ if !inside || range.len.0 == 0 => None,
            RequestOp::Read => Some(Expected::Read(self.model.read_issued(range))),
            RequestOp::Write | RequestOp::WriteZeroes => {
                let payload = if op == RequestOp::Write { payload } else { Payload::Zeros };
                let (write, bytes) = self.model.write_issued(range, payload);
                if op == RequestOp::Write {
                    let part = frames.part(range.start.0 % FRAME_BYTES, range.len.0);
                    self.memory(part).copy_from_slice(&bytes);
                }
                Some(Expected::Write(write, flags, mark))
            }
        };
        // What the engine must refuse is not known to the model.
        let expected = expected.unwrap_or(Expected::Nothing);
        self.issued.insert(ticket, Issued { expected, frames });
        let (client, tag) = ticket;
        let attr = Attr { origin: Origin::Client(client), ..Attr::default() };
        let volume = VolumeId(0);
        let request = Request { client, tag, volume, op, range, frames, flags, attr };
        self.input(Input::Client(request));
        true
    }

    fn allocate(&mut self, count: u32) -> Option<Run> {
        if count == 0 {
            return Some(Run::EMPTY);
        }
        let (first, len) =
            self.free.iter().find(|(_, len)| **len >= count).map(|(first, len)| (*first, *len))?;
        self.free.remove(&first);
        if len > count {
            self.free.insert(first + count, len - count);
        }
        Some(Run::new(first, count))
    }

    fn give_back(&mut self, run: Run) {
        if run.count == 0 {
            return;
        }
        // Whoever still reads it reads garbage.
        let part = run.part(0, u64::from(run.count) * FRAME_BYTES);
        self.memory(part).fill(0xdb);
        let (mut first, mut count) = (run.first.0, run.count);
        if let Some((before, len)) = self.free.range(..first).next_back().map(|(f, l)| (*f, *l))
            && before + len >= first
        {
            assert!(before + len == first, "{run:?} is free already");
            self.free.remove(&before);
            first = before;
            count += len;
        }
        if let Some((after, len)) = self.free.range(first + count..).next().map(|(f, l)| (*f, *l))
            && first + count == after
        {
            self.free.remove(&after);
            count += len;
        }
        self.free.insert(first, count);
    }

    fn memory(&mut self, part: Part) -> &mut [u8] {
        &mut self.slab[part.slab_start() as usize..part.slab_end() as usize]
    }

    fn gather(&self, parts: &Parts) -> Vec<u8> {
        let mut bytes = Vec::new();
        for part in parts {
            bytes.extend_from_slice(
                &self.slab[part.slab_start() as usize..part.slab_end() as usize],
            );
        }
        bytes
    }

    /// Does what the engine says. Returns the token of a computation that is to be done at once.
    fn output(&mut self, output: Output) -> Option<Token> {
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
            Output::Compute { token, op } => {
                let pending = Pending { disk: None, work: Work::Compute(op), aborted: false };
                self.pending.insert(token, pending);
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
            Output::Release(run) => self.give_back(run),
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
            Notice::MemberFailed { slot: Some(slot), .. } => {
                self.lost_since.insert(slot.0);
            }
            // With somebody missing, what was reconstructed wrongly is right from now on.
            Notice::SyncFinished {
                action: SyncAction::Repair | SyncAction::Resync,
                complete: true,
                ..
            } if self.lost_since.is_empty() && self.unreadable.is_empty() => {
                self.model.suspect.clear();
            }
            _ => {}
        }
        self.notices.push((self.now, notice));
    }

    fn submit(&mut self, token: Token, disk: usize, op: MemberOp, origin: Origin) {
        let sectors =
            |parts: &Parts| parts.iter().map(|part| u64::from(part.len)).sum::<u64>() / 512;
        let (work, disk_op, logged) = match op {
            MemberOp::Flush => (Work::Flush, DiskOp::Flush, Logged::Flush { disk }),
            MemberOp::Read { at, into } => {
                let (at, count) = (at.0, sectors(&into));
                let logged = Logged::Read { disk, at, count, origin };
                (Work::Read { at, count, into }, DiskOp::Read { at, count }, logged)
            }
            MemberOp::ReadMetadata { at, len } => {
                let (at, count) = (at.0, len.0 / 512);
                let logged = Logged::Read { disk, at, count, origin };
                (Work::ReadMetadata, DiskOp::Read { at, count }, logged)
            }
            MemberOp::Write { at, from, fua } => {
                let (at, count) = (at.0, sectors(&from));
                let bytes = self.gather(&from);
                if self.options.checked {
                    let view = view!(self);
                    self.checkers.write(view, disk, at, &bytes);
                }
                let mut digest = Digest::default();
                digest.add(&bytes);
                let logged = Logged::Write { disk, at, count, fua, metadata: false, origin };
                let disk_op = DiskOp::Write { at, bytes, fua, preflush: false };
                (Work::Write { at, count, from, bytes: digest }, disk_op, logged)
            }
            MemberOp::WriteMetadata { at, bytes } => {
                let (at, count) = (at.0, bytes.len() as u64 / 512);
                let logged = Logged::Write { disk, at, count, fua: true, metadata: true, origin };
                let bytes = bytes.into_vec();
                (
                    Work::WriteMetadata,
                    DiskOp::Write { at, bytes, fua: true, preflush: true },
                    logged,
                )
            }
        };
        if self.options.logged {
            self.log.push(logged);
        }
        self.disks[disk].submit(token, disk_op);
        self.pending.insert(token, Pending { disk: Some(disk), work, aborted: false });
    }

    fn end(&mut self, token: Token, pending: Pending) -> Result<Value, Fault> {
        let Some(disk) = pending.disk else {
            let Work::Compute(op) = pending.work else { unreachable!("it has no disk") };
            return Ok(compute::execute(&self.parity, &mut self.slab, &op));
        };
        if pending.aborted && !self.disks[disk].can_complete() {
            self.disks[disk].abort(token);
            return Err(Fault::Aborted);
        }
        if let Work::Write { from, bytes, .. } = &pending.work {
            let mut now = Digest::default();
            now.add(&self.gather(from));
            if now != *bytes {
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
            && let Some(Role::Active(Slot(slot))) =
                self.record.of(disk).and_then(|sb| sb.own_role().ok())
        {
            let columns = (*at..*at + *count).filter_map(|at| self.array.data_sector(disk, at));
            self.unreadable.extend(columns.map(|column| (slot, column)));
        }
        if let (Work::Write { at, count, .. }, Err(Fault::NoSpace)) = (&pending.work, &result) {
            // Nobody is failed for it, so the row is suspect until it is synced.
            for absolute in *at..*at + *count {
                if let Some(column) = self.array.data_sector(disk, absolute) {
                    self.model.suspect.insert(column);
                }
            }
        }
        match (pending.work, result) {
            (Work::Read { into, .. }, Ok(bytes)) => {
                let mut at = 0;
                for part in &into {
                    let len = part.len as usize;
                    self.memory(*part).copy_from_slice(&bytes[at..at + len]);
                    at += len;
                }
                Ok(Value::Nothing)
            }
            (Work::Read { into, .. }, Err(fault)) => {
                // A failed read may have left anything.
                for part in &into {
                    self.memory(*part).fill(0xee);
                }
                Err(fault)
            }
            (Work::ReadMetadata, Ok(bytes)) => Ok(Value::Metadata(bytes.into())),
            (Work::WriteMetadata, result) => {
                self.record = Record::read(&self.disks, MINOR);
                result.map(|_| Value::Nothing)
            }
            (_, result) => result.map(|_| Value::Nothing),
        }
    }

    fn reply(&mut self, ticket: Ticket, result: Result<(), ReplyError>) {
        if self.options.logged {
            self.log.push(Logged::Answer(ticket, result.is_ok()));
        }
        if self.commands.remove(&ticket) {
            self.answers.insert(ticket, result.map(|()| Vec::new()));
            return;
        }
        let Some(issued) = self.issued.remove(&ticket) else { return };
        let answer = match (issued.expected, result) {
            (Expected::Nothing, Ok(())) => {
                let message = format!("{ticket:?} makes no sense and was done");
                self.fail(Violation::new("I11 exactly once", message));
                Ok(Vec::new())
            }
            (Expected::Flush(mark), Ok(())) => {
                self.model.flush_acknowledged(mark);
                Ok(Vec::new())
            }
            (Expected::Flush(_) | Expected::Nothing, Err(error)) => Err(error),
            (Expected::Write(write, flags, mark), Ok(())) => {
                if flags.preflush {
                    self.model.flush_acknowledged(mark);
                }
                self.model.write_acknowledged(write, flags.fua);
                Ok(Vec::new())
            }
            (Expected::Write(write, _, _), Err(error)) => {
                self.model.write_failed(write);
                Err(error)
            }
            (Expected::Read(mark), Ok(())) => {
                let range = mark.range();
                let part = issued.frames.part(range.start.0 % FRAME_BYTES, range.len.0);
                let bytes = self.memory(part).to_vec();
                let column = |sector: u64| {
                    let column = self.array.column(sector);
                    let slot = column.data.0;
                    let lost = self.lost_since.contains(&slot)
                        || self.unreadable.contains(&(slot, column.sector));
                    lost.then_some(column.sector)
                };
                if let Err(violation) = self.model.read_done(&mark, &bytes, column) {
                    self.fail(violation);
                }
                self.give_back(issued.frames);
                Ok(bytes)
            }
            (Expected::Read(mark), Err(ReplyError::Stalled)) => {
                self.model.read_failed();
                let range = mark.range();
                let (op, payload, flags) = (RequestOp::Read, Payload::Zeros, Flags::default());
                let waiting = Waiting { ticket, op, range, payload, flags };
                self.waiting.push_back(waiting);
                return;
            }
            (Expected::Read(_), Err(error)) => {
                self.model.read_failed();
                Err(error)
            }
        };
        self.answered += 1;
        self.answers.insert(ticket, answer);
    }

    fn look_for_failures(&mut self) {
        for violation in std::mem::take(&mut self.checkers.found) {
            self.fail(violation);
        }
    }

    fn describe_stuck(&self) -> String {
        let volumes = self.engine.as_ref().map(|engine| engine.snapshot().volumes);
        let state = volumes.and_then(|volumes| {
            let volume = volumes.into_iter().next()?;
            Some(format!(
                "{} {:?} rows {} requests {}",
                volume.array_state,
                volume.sync_action,
                volume.stripe_cache_active,
                volume.requests_active
            ))
        });
        format!(
            "{} requests, {} commands, {} waiting, {} outstanding and nothing moves; {}",
            self.issued.len(),
            self.commands.len(),
            self.waiting.len(),
            self.pending.len(),
            state.unwrap_or_default()
        )
    }
}

fn device_uuid(disk: usize) -> Uuid {
    let mut bytes = [0xd1; 16];
    bytes[15] = disk as u8;
    bytes[14] = (disk >> 8) as u8;
    Uuid(bytes)
}

/// What one member request may be at most: what merging makes, or what a row or a chunk is.
fn member_bytes_max(knobs: &Knobs, chunk: Sectors) -> u64 {
    knobs.max_sectors.0.max(knobs.stripe_size.bytes().0).max(chunk.bytes().0)
}

struct Fnv(Digest);

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0.0
    }
    fn write(&mut self, bytes: &[u8]) {
        self.0.add(bytes);
    }
}
