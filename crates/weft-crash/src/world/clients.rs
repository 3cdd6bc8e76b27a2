//! Clients and administrators of a world: requests, commands, credit, answers.
//!
//! Clients honour credit, own their frames and use each tag once. The model is told of every
//! request and every answer.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use weft_engine::knobs::Knob;
use weft_engine::{
    Attr, Class, ClientRequest, Command, Flags, Former, Input, Origin, ReplyError, RequestOp, Run,
    SyncAction, Tag, Verb, frames_needed,
};
use weft_ondisk::Superblock;
use weft_units::{ByteRange, ClientId, FRAME_BYTES, Group, MemberIndex, VolumeId};

use super::{ARRAY, Answer, BARE, BARE_BYTES, Logged, Ticket, World, device_uuid};
use crate::disk::Disk;
use crate::model::{FlushMark, Payload, ReadMark, WriteId};
use crate::options::{member_bytes_max, passed_max};
use crate::payload::NeedsPayload;
use crate::violation::Violation;

#[derive(Clone, Debug)]
pub(super) struct Issued {
    volume: VolumeId,
    expected: Expected,
    frames: Run,
}

/// Information that the model needs when a request is answered, by the kind of the request.
#[derive(Clone, Debug)]
pub(super) enum Expected {
    Flush(FlushMark),
    /// A trim on disks that do not support discards, which changes nothing.
    Advice,
    /// A request that the engine must refuse.
    Nothing,
    /// A write that may or may not have happened even if it is acknowledged: a trim of an array
    /// without redundancy.
    Perhaps(WriteId, Flags, FlushMark),
    Read(ReadMark),
    Write(WriteId, Flags, FlushMark),
}

/// A request that waits for credit or frames.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    ticket: Ticket,
    volume: VolumeId,
    op: RequestOp,
    range: ByteRange,
    payload: Payload,
    flags: Flags,
    attr: Attr,
}

// Numbers of the world's own clients. A script's client increases its number by three with each
// connection that it closes, and never reaches these numbers.
/// Client number under which verification reads.
pub(crate) const VERIFIER: ClientId = ClientId(1_000_000);
/// Client number under which the administrator issues commands.
const ADMIN: ClientId = ClientId(1_000_001);
/// Client of the writes that test whether the array accepts writes.
pub(crate) const PROBER: ClientId = ClientId(1_000_002);

impl World {
    /// Issues a client's request to the array, and returns its ticket. The engine receives the
    /// request at once, or as soon as the client has credit and frames are free.
    pub fn request(
        &mut self,
        client: ClientId,
        op: RequestOp,
        range: ByteRange,
        payload: Payload,
        flags: Flags,
    ) -> Ticket {
        self.request_of(ARRAY, client, op, range, payload, flags)
    }

    /// Variant of [`Self::request`] for a request with the attributes `attr` instead of those of
    /// its client. Returns its ticket.
    pub fn request_as(
        &mut self,
        (client, attr): (ClientId, Attr),
        op: RequestOp,
        range: ByteRange,
        payload: Payload,
        flags: Flags,
    ) -> Ticket {
        self.enqueue(ARRAY, (client, attr), op, range, payload, flags)
    }

    /// Issues a client's request to a volume, and returns its ticket; see [`Self::request`].
    pub(crate) fn request_of(
        &mut self,
        volume: VolumeId,
        client: ClientId,
        op: RequestOp,
        range: ByteRange,
        payload: Payload,
        flags: Flags,
    ) -> Ticket {
        self.enqueue(volume, (client, self.attr_of(client)), op, range, payload, flags)
    }

    fn enqueue(
        &mut self,
        volume: VolumeId,
        (client, attr): (ClientId, Attr),
        op: RequestOp,
        range: ByteRange,
        payload: Payload,
        flags: Flags,
    ) -> Ticket {
        self.next_tag += 1;
        let ticket = (client, Tag(self.next_tag));
        self.waiting.push_back(Waiting { ticket, volume, op, range, payload, flags, attr });
        self.pump();
        ticket
    }

    /// Closes a client's connection. Its waiting requests are dropped, and its unanswered writes
    /// may or may not be stored.
    pub fn disconnect(&mut self, client: ClientId) {
        self.waiting.retain(|waiting| waiting.ticket.0 != client);
        let (left, stay) = std::mem::take(&mut self.issued)
            .into_iter()
            .partition::<BTreeMap<_, _>, _>(|(ticket, _)| ticket.0 == client);
        self.issued = stay;
        for Issued { volume, expected, .. } in left.into_values() {
            let model = self.model_of(volume);
            match expected {
                Expected::Read(_) => model.read_failed(),
                // The result of the write stays unknown: the write is stored unless members lack
                // space.
                Expected::Perhaps(write, ..) | Expected::Write(write, ..) => {
                    let range = model.range_of(write);
                    model.write_failed(write);
                    self.orphans.extend(range.map(|range| (volume, range)));
                }
                Expected::Advice | Expected::Flush(_) | Expected::Nothing => {}
            }
        }
        self.credit.remove(&client);
        self.input(Input::ClientGone(client));
    }

    /// Issues an administrator's command to the array, and returns its ticket.
    ///
    /// # Panics
    /// Panics if the command compares payload and there is none; see [`World::try_admin`].
    pub fn admin(&mut self, verb: Verb) -> Ticket {
        self.try_admin(verb).unwrap_or_else(|needs| panic!("{needs}"))
    }

    /// Variant of [`Self::admin`] that does not panic if the command needs payload.
    ///
    /// # Errors
    /// The command compares payload, and the world has none.
    pub fn try_admin(&mut self, verb: Verb) -> Result<Ticket, NeedsPayload> {
        let action = match verb {
            Verb::SyncAction(action) | Verb::SyncRange { action, .. } => Some(action),
            _ => None,
        };
        let needs = match action {
            Some(SyncAction::Check) => Some(NeedsPayload::Check),
            Some(SyncAction::Correct | SyncAction::Repair) => Some(NeedsPayload::Repair),
            _ => None,
        };
        needs.map_or(Ok(()), |what| self.options.payload.needed_for(what))?;
        Ok(self.command(ARRAY, verb))
    }

    /// Issues an administrator's command to a volume, and returns its ticket.
    pub(crate) fn command(&mut self, volume: VolumeId, verb: Verb) -> Ticket {
        self.next_tag += 1;
        let ticket = (ADMIN, Tag(self.next_tag));
        if let Verb::Set(knob) = &verb {
            self.options.knobs.set(*knob);
            let knobs = self.options.knobs;
            let most = member_bytes_max(&knobs, &self.options);
            self.allow_waits();
            if let Knob::StripeCacheSize(stripes) = knob {
                self.resizes.insert(ticket, self.options.stripes_max.unwrap_or(*stripes));
                self.limit_stripes();
            }
            self.checkers.limit(|limits| {
                limits.member_bytes = limits.member_bytes.max(most);
            });
        }
        if matches!(verb, Verb::Drain) {
            let mark = self.model_of(volume).flush_issued();
            self.drains.insert(ticket, (volume, mark));
        }
        self.commands.insert(ticket);
        let command = Command { client: ticket.0, tag: ticket.1, volume, verb };
        self.input(Input::Admin(Box::new(command)));
        ticket
    }

    /// Tells the checkers how long stripes may wait under the current knobs.
    pub(super) fn allow_waits(&mut self) {
        let passed_max = passed_max(self.cache_stripes, &self.options);
        self.checkers.allow_waits(self.options.knobs.preread_wait_max, passed_max, self.now);
    }

    /// Sets the number of stripes that checkers allow: the cache size that the engine accepted
    /// last, or the largest size that an unanswered command asks for, if this is larger.
    fn limit_stripes(&mut self) {
        let most = self.resizes.values().copied().fold(self.cache_stripes, u32::max);
        self.checkers.limit(|limits| limits.stripes = most);
    }

    /// Issues the command that sets the knob with this name. Returns its ticket.
    ///
    /// # Panics
    /// Panics if there is no such knob or value.
    pub fn set(&mut self, name: &str, value: &str) -> Ticket {
        let knob: Knob =
            self.options.knobs.parse(name, value).unwrap_or_else(|error| panic!("{error}"));
        self.admin(Verb::Set(knob))
    }

    /// Issues the command that sets a knob of one disk's queue. Returns its ticket.
    ///
    /// # Panics
    /// Panics if there is no such knob or value.
    pub fn set_queue(&mut self, disk: usize, name: &str, value: &str) -> Ticket {
        let knob: Knob =
            self.options.knobs.parse(name, value).unwrap_or_else(|error| panic!("{error}"));
        let members = Box::new([self.member_of(disk)]);
        self.admin(Verb::SetQueues { members, knob })
    }

    /// Adds a blank disk of the same size as the first to the array. Returns its number, and the
    /// ticket of the command.
    pub fn add_blank(&mut self) -> (usize, Ticket) {
        let disk = self.disks.len();
        let size = self.disks[0].whole_size();
        let offset = self.array.data_offset[0];
        let data = offset.0..offset.0 + self.array.layout.member_size().0;
        let seed = self.options.seed.wrapping_add(disk as u64);
        let blank = Disk::new(size, self.options.logical_block).failing_by_chance(seed);
        self.disks.push(blank.carrying(data, self.options.payload));
        self.disks[disk].faults.tears = self.options.torn_writes;
        self.array.data_offset.push(offset);
        self.add_drive(disk);
        let ticket = self.add(disk, None);
        (disk, ticket)
    }

    /// Adds an existing disk to the array, and returns the ticket of the command. With the
    /// superblock of a former member, the disk may keep its content.
    pub fn add(&mut self, disk: usize, superblock: Option<Box<Superblock>>) -> Ticket {
        let member = self.join(disk, superblock.is_some());
        let former = superblock.and_then(|superblock| self.former(disk, *superblock));
        self.admin(Verb::Add { member, former, device_uuid: device_uuid(disk) })
    }

    /// Re-adds a former member to the slot that its superblock claims, and returns the ticket of
    /// the command, which the engine may refuse.
    pub fn re_add(&mut self, disk: usize, superblock: Superblock) -> Ticket {
        let member = self.join(disk, true);
        let former = self.former(disk, superblock).expect("the log of bad blocks can be read");
        self.admin(Verb::ReAdd { member, former })
    }

    /// Metadata of a former member with this superblock; `None` if its bad-block log cannot be
    /// read, or lists sectors that the disk no longer has.
    pub(crate) fn former(&self, disk: usize, superblock: Superblock) -> Option<Box<Former>> {
        let logs = self.logs_of(disk, &superblock).ok()?;
        let bad_blocks = logs.bad_blocks.transpose().ok()?.unwrap_or_default();
        Some(Box::new(Former { superblock, bad_blocks }))
    }

    /// Gives a disk a new member index, and returns its description for the engine. With `keeps`,
    /// the old content of the disk is valid again.
    fn join(&mut self, disk: usize, keeps: bool) -> weft_engine::MemberInfo {
        let index = MemberIndex(self.disk_of.len() as u16);
        self.disk_of.push(disk);
        let places = self.model.touched().flat_map(|sector| self.array.column(sector).places);
        let sectors: BTreeSet<u64> = places.filter(|_| !keeps).map(|place| place.sector).collect();
        self.checkers.disk_added(disk, keeps, sectors.into_iter());
        self.read_record();
        self.member_info(disk, index)
    }

    /// The latest member index of a disk, by which the engine addresses the disk.
    #[must_use]
    pub fn member_of(&self, disk: usize) -> MemberIndex {
        let index = self.disk_of.iter().rposition(|known| *known == disk);
        MemberIndex(index.expect("every disk has an index") as u16)
    }

    /// Number of the disk that the engine addresses by a member index.
    #[must_use]
    pub fn disk_known_as(&self, member: MemberIndex) -> usize {
        self.disk_of[member.index()]
    }

    /// Whether the disk is a member of no volume of the engine.
    #[must_use]
    pub fn is_out(&self, disk: usize) -> bool {
        let known = |member: &weft_engine::MemberSnapshot| {
            self.disk_of.get(member.member.index()) == Some(&disk)
        };
        let volumes = self.snapshot().volumes;
        volumes.iter().all(|volume| !volume.members.iter().any(known))
    }

    /// Takes the result of a request or command. It can be taken once; `None` if there is none.
    pub fn take_answer(&mut self, ticket: Ticket) -> Option<Answer> {
        self.answers.remove(&ticket)
    }

    /// Drops results that were not taken.
    pub fn forget_answers(&mut self) {
        self.answers.clear();
    }

    /// Whether a request or command was answered and its result was not taken yet.
    #[must_use]
    pub fn is_answered(&self, ticket: Ticket) -> bool {
        self.answers.contains_key(&ticket)
    }

    /// Number of requests answered so far, of all volumes.
    #[must_use]
    pub fn requests_answered(&self) -> u64 {
        self.answered
    }

    /// Number of requests and commands that were not answered yet, including requests not yet sent.
    #[must_use]
    pub fn unanswered(&self) -> usize {
        self.issued.len() + self.commands.len() + self.waiting.len()
    }

    /// Sends waiting requests, each client's in order, as far as credit and frames allow. Returns
    /// whether any was sent.
    pub(crate) fn pump(&mut self) -> bool {
        if self.waiting.is_empty() {
            return false;
        }
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
        let Waiting { ticket, volume, op, range, payload, flags, attr } = *waiting;
        let moves = matches!(op, RequestOp::Read | RequestOp::Write);
        let limit = self.options.client_credit.0;
        let used = self.credit.get(&ticket.0).copied().unwrap_or(0);
        // A request larger than the whole credit is sent alone.
        let count = if moves { frames_needed(range.start.0, range.len.0) } else { 0 };
        let bytes = range.len.0;
        if moves && used > 0 && used + bytes > limit && !self.options.greedy {
            return false;
        }
        let writes = !matches!(op, RequestOp::Flush | RequestOp::Read);
        // Clients must order the writes to a volume that does not order overlapping writes itself.
        let orders = volume == ARRAY && !self.array.is_striped();
        if writes && !orders && self.is_being_written(volume, range) {
            return false;
        }
        let Some(frames) = self.memory.allocate(count) else { return false };
        if moves {
            *self.credit.entry(ticket.0).or_default() += bytes;
        }
        let size = if volume == ARRAY { self.size() } else { BARE_BYTES.end };
        let inside = range.checked_end().is_some_and(|end| end.0 <= size);
        let mark = self.model_of(volume).flush_issued();
        let expected = match op {
            RequestOp::Flush => Some(Expected::Flush(mark)),
            _ if !inside || range.len.0 == 0 || !self.is_whole_blocks(volume, range) => None,
            RequestOp::Read => Some(Expected::Read(self.model_of(volume).read_issued(range))),
            RequestOp::Trim => {
                let stripes = if volume == ARRAY { self.array.discarded(range) } else { range };
                Some(if self.options.discards && stripes.len.0 > 0 {
                    let (write, _) = self.model_of(volume).write_issued(stripes, Payload::Zeros);
                    match orders {
                        true => Expected::Write(write, flags, mark),
                        false => Expected::Perhaps(write, flags, mark),
                    }
                } else {
                    Expected::Advice
                })
            }
            RequestOp::Write | RequestOp::WriteZeroes => {
                let payload = if op == RequestOp::Write { payload } else { Payload::Zeros };
                let (write, bytes) = self.model_of(volume).write_issued(range, payload);
                if op == RequestOp::Write {
                    let part = frames.part(range.start.0 % FRAME_BYTES, range.len.0);
                    self.memory.part(part).copy_from_slice(&bytes);
                }
                Some(Expected::Write(write, flags, mark))
            }
        };
        // Requests that the engine must refuse are not recorded in the model.
        let expected = expected.unwrap_or(Expected::Nothing);
        self.issued.insert(ticket, Issued { volume, expected, frames });
        let (client, tag) = ticket;
        let request = ClientRequest { client, tag, volume, op, range, frames, flags, attr };
        self.input(Input::Client(request));
        true
    }

    /// Attributes of a client's requests. With [`Options::classes`](crate::Options::classes), the
    /// client's number selects one of four combinations of class, weight and group.
    fn attr_of(&self, client: ClientId) -> Attr {
        let group = |number| Group::new(number).expect("15 groups exist");
        let (class, weight, group) = match client.0 % 4 {
            _ if !self.options.classes => (Class::None, 0, Group::ROOT),
            0 => (Class::RealTime(3), 100, Group::ROOT),
            1 => (Class::BestEffort(7), 1000, group(1)),
            2 => (Class::None, 10, group(2)),
            _ => (Class::Idle, 0, Group::ROOT),
        };
        Attr { class, weight, origin: Origin::Client(client, group), ..Attr::default() }
    }

    /// Reports a violation if a mirror answers an I/O error although enough members are left.
    fn judge_error(&mut self, volume: VolumeId, range: ByteRange, error: &ReplyError) {
        let (start, end) = (range.start.sectors_floor().0, range.end().sectors_ceil().0);
        if volume == BARE {
            self.judge_bare(error);
        } else if *error == ReplyError::Io
            && !self.lacks(start, end - start)
            && self.options.data_promised
            && self.array.has_redundancy(|_| true)
            && !self.array.has_parity()
        {
            let message =
                "an I/O error is answered though every byte is known from the members left";
            self.fail(Violation::new("I13 liveness", message));
        }
    }

    /// Whether a write that overlaps `range` is in flight. On striped arrays, and on the volume
    /// beside the array, clients wait for such a write before they send their own.
    fn is_being_written(&mut self, volume: VolumeId, range: ByteRange) -> bool {
        let in_flight = self.model_of(volume).in_flight_ranges();
        in_flight.into_iter().chain(self.orphans_of(volume)).any(|other| other.overlaps(range))
    }

    /// Whether clients may request a range: without parity it must consist of whole logical blocks.
    fn is_whole_blocks(&self, volume: VolumeId, range: ByteRange) -> bool {
        let block = u64::from(self.options.logical_block);
        volume == ARRAY && self.array.has_parity()
            || range.start.0.is_multiple_of(block) && range.len.0.is_multiple_of(block)
    }

    pub(super) fn reply(&mut self, ticket: Ticket, result: Result<(), ReplyError>) {
        if self.options.logged {
            self.log.push(Logged::Answer(ticket, result.is_ok()));
        }
        if self.commands.remove(&ticket) {
            if let Some(stripes) = self.resizes.remove(&ticket) {
                self.cache_stripes = if result.is_ok() { stripes } else { self.cache_stripes };
                self.limit_stripes();
            }
            if let Some((volume, mark)) = self.drains.remove(&ticket) {
                self.drained(volume, mark, &result);
            }
            self.answers.insert(ticket, result.map(|()| Vec::new()));
            return;
        }
        let Some(issued) = self.issued.remove(&ticket) else { return };
        let volume = issued.volume;
        let answer = match (issued.expected, result) {
            (Expected::Nothing, Ok(())) => {
                let message = format!("{ticket:?} makes no sense and was done");
                self.fail(Violation::new("I11 exactly once", message));
                Ok(Vec::new())
            }
            (Expected::Flush(mark), Ok(())) => {
                self.model_of(volume).flush_acknowledged(mark);
                Ok(Vec::new())
            }
            (Expected::Advice, Ok(())) => Ok(Vec::new()),
            (Expected::Advice | Expected::Flush(_) | Expected::Nothing, Err(error)) => Err(error),
            (Expected::Write(write, flags, mark), Ok(())) => {
                let model = self.model_of(volume);
                if flags.preflush {
                    model.flush_acknowledged(mark);
                }
                let range = model.range_of(write).filter(|_| volume == ARRAY);
                model.write_acknowledged(write, flags.fua);
                if let Some(range) = range {
                    self.look_again_at(range);
                }
                Ok(Vec::new())
            }
            (Expected::Perhaps(write, flags, mark), Ok(())) => {
                let model = self.model_of(volume);
                if flags.preflush {
                    model.flush_acknowledged(mark);
                }
                model.write_failed(write);
                Ok(Vec::new())
            }
            (Expected::Write(write, _, _) | Expected::Perhaps(write, ..), Err(error)) => {
                let range = self.model_of(volume).range_of(write).unwrap_or_default();
                self.judge_error(volume, range, &error);
                self.write_failed(volume, write);
                Err(error)
            }
            (Expected::Read(mark), Ok(())) => Ok(self.read_done(volume, &mark, issued.frames)),
            (Expected::Read(mark), Err(ReplyError::Stalled)) => {
                self.model_of(volume).read_failed();
                let range = mark.range();
                let (op, payload) = (RequestOp::Read, Payload::Zeros);
                let flags = Flags { again: true, ..Flags::NONE };
                let attr = self.attr_of(ticket.0);
                let waiting = Waiting { ticket, volume, op, range, payload, flags, attr };
                self.waiting.push_back(waiting);
                return;
            }
            (Expected::Read(mark), Err(error)) => {
                self.judge_error(volume, mark.range(), &error);
                self.model_of(volume).read_failed();
                Err(error)
            }
        };
        self.answered += 1;
        if let Some(bare) = self.bare.as_mut().filter(|_| volume == BARE) {
            bare.answered += 1;
        }
        self.answers.insert(ticket, answer);
    }

    /// Records a write that was answered with an error. If the options promise nothing about data
    /// ([`Options::data_promised`](crate::Options::data_promised)), the array may have failed in
    /// the middle of the write, so members may disagree in its columns.
    fn write_failed(&mut self, volume: VolumeId, write: WriteId) {
        let range = self.model_of(volume).range_of(write);
        let range = range.filter(|_| volume == ARRAY && !self.options.data_promised);
        let columns = range.into_iter().flat_map(|range| self.array.columns(range));
        let columns: Vec<u64> = columns.map(|(_, column)| column.number).collect();
        self.watched_columns.extend(columns.iter().copied());
        self.open_columns(columns);
        self.model_of(volume).write_failed(write);
    }

    /// Records the answer of a command that drains the write-back cache: everything that was
    /// acknowledged before the command is stored on members, except for the ranges that the answer
    /// names.
    fn drained(&mut self, volume: VolumeId, mark: FlushMark, result: &Result<(), ReplyError>) {
        match result {
            Ok(()) => self.model_of(volume).drained(mark, &[]),
            Err(ReplyError::Unwritten(it)) if it.more == 0 && !it.lost => {
                self.model_of(volume).drained(mark, &it.ranges);
            }
            Err(_) => return,
        }
        self.coverage.drains += 1;
    }

    /// Returns the bytes of a read that was answered, which the model must allow, and frees its
    /// frames.
    fn read_done(&mut self, volume: VolumeId, mark: &ReadMark, frames: Run) -> Vec<u8> {
        let range = mark.range();
        let part = frames.part(range.start.0 % FRAME_BYTES, range.len.0);
        let bytes = self.memory.part(part).to_vec();
        let beyond = self.interrupted && !self.options.data_promised;
        let errors = |sector: u64| {
            let (column, array) = (self.array.column(sector), &self.array);
            match beyond {
                true => self.suspects.errors_if_lost(array, column.number, column.data),
                false => self.suspects.errors(array, column.number, column.data),
            }
        };
        let mut excuses = self.excuses;
        let done = match &mut self.bare {
            Some(bare) if volume == BARE => {
                bare.model.read_done(mark, &bytes, |_| Vec::new(), &mut excuses)
            }
            _ => self.model.read_done(mark, &bytes, errors, &mut excuses),
        };
        self.excuses = excuses;
        if let Err(violation) = done {
            self.fail(violation);
        }
        self.memory.give_back(frames);
        bytes
    }

    /// Describes a world that makes no progress, for the message of a violation.
    pub(crate) fn describe_stuck(&self) -> String {
        let volumes = self.engine.as_ref().map(|engine| engine.snapshot().volumes);
        let state = volumes.and_then(|volumes| {
            let volume = volumes.into_iter().next()?;
            Some(format!(
                "{} {:?} stripes {} requests {}",
                volume.array_state,
                volume.sync_action,
                volume.raid.stripe_cache_active,
                volume.requests_active
            ))
        });
        format!(
            "{} requests, {} commands, {} waiting, {} outstanding, {} frames free and nothing moves; {}",
            self.issued.len(),
            self.commands.len(),
            self.waiting.len(),
            self.pending.len(),
            self.memory.free(),
            state.unwrap_or_default()
        )
    }
}
