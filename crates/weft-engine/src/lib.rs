//! The Linux block write path as a deterministic state machine without I/O.
//!
//! [`Engine`] states the contract, [`Input`] lists the inputs, [`Output`] the outputs, and
//! `contract/frame.rs` says how memory is named. The modules, layer by layer from a request down:
//!
//! ```text
//! lib.rs      passes the inputs of a turn to their volumes; credit of clients
//! volume/     the gates that a request passes; which requests wait for each other; commands
//! raid/       personalities; single/: one member as it is; mirror/, striped/: without parity;
//!             parity/: stripes/ carries out what plan/ decides, cache/ says which stripe, priority
//!             (◆ patch 000) and stripe_size (◆ patch 004) are policies
//! array/      members and their metadata: clean and dirty, superblock updates, membership, resync;
//!             flush/flush_batch.rs (◆ patch 002): which requests share a flush;
//!             outbox.rs: tokens and outstanding requests
//! sched/      the queue of each member: merging, scheduler, depth
//! assemble/   makes an array from the metadata of all members, or refuses
//! contract/   interface between drivers and the engine
//! layout/     where array sectors lie
//! write_back/ the layer above volumes, if it is on: frames of dirty pages, reads, flushes
//! page_cache/ decisions about dirty pages and their write-back (◆ patch 001)
//! ```
//!
//! A driver in a few lines, with members that answer at once:
//!
//! ```
//! use std::collections::VecDeque;
//! use weft_engine::assemble::{Candidate, Options, assemble};
//! use weft_engine::knobs::Knobs;
//! use weft_engine::*;
//! use weft_ondisk::{Level, NewArray};
//! use weft_units::{ByteRange, ClientId, Sectors, Time, VolumeId};
//!
//! let array = NewArray::in_sync(Level::Raid5, 3, Sectors(20_480));
//! let candidates = Candidate::of_new(&array).unwrap();
//! let assembly = assemble(&candidates, &Options::default()).unwrap();
//! let config = Config::for_volume(assembly, Knobs::default());
//! let payload = Run::new(config.client_frames_first(), 1);
//! let mut engine = Engine::new(config, Time(0)).unwrap();
//!
//! engine.handle(Time(0), Input::Client(ClientRequest {
//!     client: ClientId(1),
//!     tag: Tag(1),
//!     volume: VolumeId(0),
//!     op: RequestOp::Write,
//!     range: ByteRange::new(0, 4096),
//!     frames: payload,
//!     flags: Flags { sync: true, ..Flags::NONE },
//!     attr: Attr::default(),
//! }));
//! let mut log = Vec::new();
//! loop {
//!     let mut outputs = VecDeque::new();
//!     while engine.run(Time(0), 64, &mut outputs).more {}
//!     if outputs.is_empty() {
//!         break;
//!     }
//!     for output in outputs {
//!         let token = match &output {
//!             Output::Submit { token, op: MemberOp::WriteMetadata { .. }, .. } => {
//!                 log.push("superblock");
//!                 *token
//!             }
//!             Output::Submit { token, op: MemberOp::Read { .. }, .. } => { log.push("read"); *token }
//!             Output::Submit { token, .. } => { log.push("write"); *token }
//!             Output::Compute { token, .. } => { log.push("parity"); *token }
//!             Output::Reply { result: Ok(()), .. } => { log.push("reply"); continue }
//!             _ => continue,
//!         };
//!         engine.handle(Time(0), Input::Done { token, result: Ok(Value::Nothing) });
//!     }
//! }
//! // The array is marked dirty before anything else; the other data strip is read for parity.
//! let expected =
//!     ["superblock", "superblock", "superblock", "read", "parity", "write", "write", "reply"];
//! assert_eq!(log, expected);
//! ```
#![forbid(unsafe_code)]
#![allow(
    clippy::cast_possible_truncation,
    reason = "frame counts, slots and offsets within a request are small by construction"
)]

pub mod array;
pub mod assemble;
mod config;
mod contract;
mod credit;
pub mod knobs;
pub mod layout;
pub mod mutant;
pub mod page_cache;
pub mod raid;
pub mod sched;
mod volume;
mod write_back;

use std::collections::{BTreeSet, VecDeque};

use array::issuer::Issuer;
use array::outbox::{Outbox, Owner};
use credit::Credit;
use knobs::Knob;
use volume::Volume;
use write_back::WriteBack;

pub use array::flush;
pub use config::{Config, VolumeConfig, VolumeSource, WriteBackConfig};
pub use contract::error::{ConfigError, ReplyError};
pub use contract::frame::{Frame, Run, Segment, Segments, ZERO_FRAME, frames_needed};
pub use contract::input::{
    Account, ArrayShape, Attr, Class, ClientRequest, Command, Fault, Flags, Former, Growth, Input,
    Located, Origin, Purpose, Replace, RequestOp, SyncAction, Value, Verb,
};
pub use contract::member::{DeviceTraits, MemberInfo, MemberState};
pub use contract::output::{ComputeOp, Differs, MemberOp, Notice, Output, Source, Sources};
pub use contract::snapshot::{
    AccountSnapshot, BitmapSnapshot, LastSync, LayoutSnapshot, Load, MemberSnapshot, Mismatch,
    Mismatches, PartlyWritten, Party, PurposeSectors, RaidSnapshot, ReshapeSnapshot, Snapshot,
    StripesInUse, VolumeSnapshot, WriteBackSnapshot, WriteBackVolume, WrongStrip,
};
pub use contract::stripe_waits::{StripeWaits, Waits};
pub use contract::token::{Tag, Token};
pub use contract::turn::{Congestion, TokenWaits, Turn, Work};
use weft_units::{Bytes, ClientId, Time, VolumeId};

/// Write path of all volumes of one process, as a deterministic state machine.
///
/// A driver passes every event to [`handle`](Engine::handle), calls [`run`](Engine::run), which
/// makes the decisions, and then carries out the outputs. If `run` reports more work the driver
/// calls `run` again; otherwise it sleeps until the next event or [`next_wake`](Engine::next_wake).
///
/// Contract
/// - Time enters only as `now` and never decreases. Two inputs may have the same time.
/// - `handle` records an input and decides nothing. The inputs since the last turn form the *plug*:
///   small writes that arrive together are handled together.
/// - `run` takes a bounded number of turns, each of which picks stripes at most `turn_stripes_max`
///   times (8, as md). It returns the amount of work done, so that the simulator can charge CPU
///   time for it before the outputs leave.
/// - Every `Submit` and `Compute` carries a fresh [`Token`] and gets exactly one [`Input::Done`].
/// - The same configuration and the same sequence of `(now, input)` give the same outputs, bit for
///   bit.
/// - The engine never accesses payload: it names frames, and the driver owns the memory. Metadata
///   (superblocks, bitmaps, bad-block logs) is the exception: the engine creates the bytes and
///   passes them in a `Submit`.
/// - A failure of a member or a request is reported by an output, never by a panic.
#[derive(Clone, Debug)]
pub struct Engine {
    volumes: Vec<Volume>,
    write_back: Option<Box<WriteBack>>,
    credit: Credit,
    turn_stripes_max: u32,
    inbox: Vec<Input>,
    out: Outbox,
}

impl Engine {
    /// Creates an engine without requests.
    ///
    /// # Errors
    /// The engine cannot work with this configuration; see [`ConfigError`].
    #[allow(clippy::needless_pass_by_value, reason = "the engine keeps its configuration")]
    pub fn new(config: Config, now: Time) -> Result<Self, ConfigError> {
        let mut indices = BTreeSet::new();
        let frames_min = |it: &VolumeConfig| it.source.frames_min(&it.knobs);
        // Volumes that need no frames, such as single members, get no share of `cache_frames`.
        let sharers = config.volumes.iter().filter(|it| frames_min(it) > 0).count().max(1) as u32;
        let mut first = 1;
        let mut volumes = Vec::new();
        for (volume, id) in config.volumes.iter().zip(0u16..) {
            for member in volume.source.members() {
                if !indices.insert(member.index) {
                    return Err(ConfigError::Members(member.index.0));
                }
            }
            let frames_min = frames_min(volume);
            let frames = if frames_min > 0 { config.cache_frames / sharers } else { 0 };
            if frames < frames_min {
                let expected = frames_min * sharers;
                return Err(ConfigError::TooFewFrames { found: config.cache_frames, expected });
            }
            volumes.push(Volume::new(
                VolumeId(id),
                volume,
                Frame(first),
                frames,
                config.epoch_secs,
                now,
            ));
            first += frames;
        }
        let first = Frame(1 + config.cache_frames);
        let mut cache = |config| WriteBack::new(config, first, &mut volumes, now);
        let write_back = config.write_back.as_ref().map(&mut cache).transpose()?.map(Box::new);
        Ok(Self {
            volumes,
            write_back,
            credit: Credit::new(config.client_credit),
            turn_stripes_max: config.turn_stripes_max.max(1),
            inbox: Vec::new(),
            out: Outbox::new(now),
        })
    }

    /// Records an input for the next turn.
    // Inlined, so that a driver builds the input in place.
    #[inline]
    pub fn handle(&mut self, now: Time, input: Input) {
        assert!(now >= self.out.now, "time does not run backwards");
        self.out.now = now;
        self.inbox.push(input);
    }

    /// Takes turns until there is no more to decide, but at most `turns_max`, and appends all of
    /// their outputs to `outputs`. Returns the amount of work done, and whether more is to be done.
    ///
    /// A driver first hands over all inputs that it has, then takes the turns, then carries out the
    /// outputs. If [`Turn::more`] is set, the run ended because of `turns_max`: the driver carries
    /// out the outputs and calls `run` again, even if there is no new input. A driver that models
    /// the engine's CPU time, during which members continue to work, calls the two halves of a turn
    /// separately: [`decide`](Engine::decide) and, when that time has passed,
    /// [`unplug_queues`](Engine::unplug_queues).
    pub fn run(&mut self, now: Time, turns_max: u32, outputs: &mut VecDeque<Output>) -> Turn {
        let mut all = Turn { work: Work::default(), more: true };
        while all.more && all.work.turns < turns_max {
            let turn = self.turn(now);
            self.unplug(now, !turn.more);
            all.work += turn.work;
            all.more = turn.more;
        }
        self.out.take_outputs(outputs);
        all
    }

    /// First half of a turn: takes the decisions of the turn, appends their outputs, and returns
    /// the amount of work done. Requests for a member with a queue that holds them back are output
    /// later, by [`unplug_queues`](Engine::unplug_queues).
    pub fn decide(&mut self, now: Time, outputs: &mut VecDeque<Output>) -> Turn {
        let turn = self.turn(now);
        self.out.take_outputs(outputs);
        turn
    }

    fn turn(&mut self, now: Time) -> Turn {
        assert!(now >= self.out.now, "time does not run backwards");
        self.out.now = now;
        self.out.work = Work { turns: 1, ..Work::default() };
        let mut inbox = std::mem::take(&mut self.inbox);
        self.out.work.inputs = inbox.len() as u32;
        // Inputs are handled in place and not moved, because an input is large.
        inbox.iter_mut().for_each(|input| self.take_in(input));
        inbox.clear();
        // Keeps the allocation for the next turn.
        self.inbox = inbox;
        if self.write_back.is_some() {
            self.write_back_turn();
        }
        for volume in &mut self.volumes {
            self.out.work.stripes += volume.turn(self.turn_stripes_max, &mut self.out);
        }
        self.out.seal();
        let mut more = self.volumes.iter().any(|volume| volume.has_work(now));
        if let Some(cache) = &mut self.write_back {
            cache.collect(&mut self.volumes, &mut self.out);
            more |= cache.has_work();
        }
        let mut credit = std::mem::take(&mut self.out.credit);
        for (client, bytes) in credit.drain(..) {
            if self.credit.give_back(client, bytes) {
                self.out.push(Output::Credit { client, bytes: Bytes(bytes) });
            }
        }
        self.out.credit = credit;
        Turn { work: self.out.work, more }
    }

    /// Second half of a turn: adds the member requests of the first half to the queues of their
    /// members, and appends the requests that the queues dispatch. With `end_plug`, the plug ends
    /// with this turn: no later request of the plug will be merged with these requests.
    pub fn unplug_queues(&mut self, now: Time, end_plug: bool, outputs: &mut VecDeque<Output>) {
        self.unplug(now, end_plug);
        self.out.take_outputs(outputs);
    }

    #[inline]
    fn unplug(&mut self, now: Time, end_plug: bool) {
        if !self.out.has_queued() {
            return;
        }
        assert!(now >= self.out.now, "time does not run backwards");
        self.out.now = now;
        for volume in &mut self.volumes {
            volume.array.unplug_queues(end_plug, &mut self.out);
        }
    }

    /// Reports that a member has completed the request with this token, before the `Done` is
    /// delivered, so that the member's queue can dispatch the next request. Only for drivers that
    /// call the halves of a turn separately, because members may complete commands between the
    /// halves. A `Done` has the same effect.
    pub fn ended(&mut self, token: Token) {
        let Some((outstanding, scheduled)) = self.out.ended(token) else { return };
        let array = &mut self.volumes[outstanding.volume.index()].array;
        let write = outstanding.write;
        let position = outstanding.member.and_then(|index| array.position_of(index));
        if let Some(position) = position {
            array.members[position].queue.ended(scheduled, write, self.out.now);
        }
    }

    /// Appends the requests that the queues of members dispatch. To be called after
    /// [`ended`](Engine::ended) or at [`queue_wake`](Engine::queue_wake).
    pub fn run_queues(&mut self, now: Time, outputs: &mut VecDeque<Output>) {
        assert!(now >= self.out.now, "time does not run backwards");
        self.out.now = now;
        if self.out.has_queued() {
            for volume in &mut self.volumes {
                volume.array.run_queues(&mut self.out);
            }
            self.out.take_outputs(outputs);
        }
    }

    /// Gives back the list of operations of a `Compute`, so that its allocation is reused. The call
    /// is optional.
    pub fn recycle(&mut self, ops: Vec<ComputeOp>) {
        self.out.recycle(ops);
    }

    /// Time at which the driver has to call `handle(Wake)` and `run` if no other event comes first;
    /// `None` if no such call is needed.
    #[must_use]
    pub fn next_wake(&self) -> Option<Time> {
        self.turn_wake().into_iter().chain(self.queue_wake()).min()
    }

    /// Part of [`next_wake`](Engine::next_wake): the time at which a turn has something to do;
    /// `None` if it has nothing to do until another event comes.
    #[must_use]
    pub fn turn_wake(&self) -> Option<Time> {
        let volumes = self.volumes.iter().filter_map(|volume| volume.next_wake(&self.out));
        let cache = self.write_back.as_ref().and_then(|cache| cache.next_wake());
        volumes.chain(cache).min()
    }

    /// Part of [`next_wake`](Engine::next_wake): the time at which the queue of a member may
    /// dispatch although the member has completed no command, as when idling for a BFQ queue ends.
    /// `None` if no queue has such a time.
    #[must_use]
    pub fn queue_wake(&self) -> Option<Time> {
        if !self.out.has_queued() {
            return None;
        }
        self.volumes.iter().filter_map(|volume| volume.array.queue_wake(self.out.now)).min()
    }

    /// Statistics of the decisions of each member's BFQ scheduler; members with another scheduler
    /// are left out.
    ///
    /// # Panics
    /// There is no such volume.
    pub fn bfq_stats(&self, volume: VolumeId) -> impl Iterator<Item = &sched::bfq::BfqStats> {
        let members = &self.volumes[volume.index()].array.members;
        members.iter().filter_map(|member| member.queue.bfq_stats())
    }

    /// Congestion of a volume's stripe cache.
    ///
    /// # Panics
    /// There is no such volume.
    #[must_use]
    pub fn congestion(&self, volume: VolumeId) -> Congestion {
        self.volumes[volume.index()].congestion()
    }

    /// Numbers of requests that had to wait for one of the `nr_requests` places in the queues of a
    /// volume's members, summed over the members.
    ///
    /// # Panics
    /// There is no such volume.
    #[must_use]
    pub fn token_waits(&self, volume: VolumeId) -> TokenWaits {
        let members = &self.volumes[volume.index()].array.members;
        members.iter().fold(TokenWaits::default(), |sum, member| {
            let TokenWaits { begun, ended } = member.queue.token_waits();
            TokenWaits { begun: sum.begun + begun, ended: sum.ended + ended }
        })
    }

    /// Number of stripes in use in a volume's stripe cache. The snapshot contains it too, but this
    /// call is cheap enough to be made often.
    ///
    /// # Panics
    /// There is no such volume.
    #[must_use]
    pub fn stripe_cache_active(&self, volume: VolumeId) -> u32 {
        self.volumes[volume.index()].raid().stripe_cache_active()
    }

    /// Number of stripes in a volume's stripe cache by state. The call walks all stripes and is
    /// meant for occasional use.
    ///
    /// # Panics
    /// There is no such volume.
    #[must_use]
    pub fn stripes_in_use(&self, volume: VolumeId) -> StripesInUse {
        self.volumes[volume.index()].raid().stripes_in_use()
    }

    /// Number of pages of the write-back cache that are dirty or under writeback; 0 without a
    /// cache. The call is cheap enough to be made often.
    #[must_use]
    pub fn write_back_pages(&self) -> u64 {
        self.write_back.as_ref().map_or(0, |cache| cache.pages())
    }

    /// Counts of the work in progress. The call is cheap enough to be made often.
    #[must_use]
    pub fn load(&self) -> Load {
        let cache = self.write_back.as_ref();
        Load {
            requests_active: self.volumes.iter().map(Volume::requests_active).sum(),
            stripe_cache_active: self
                .volumes
                .iter()
                .map(|it| it.raid().stripe_cache_active())
                .sum(),
            tokens_outstanding: self.out.outstanding(),
            frames_held: self.volumes.iter().map(Volume::frames_held).sum::<u32>()
                + self.out.frames_passed()
                + cache.map_or(0, |cache| cache.frames_held()),
            write_back_pages: self.write_back_pages(),
            limit_pages: cache.map_or(0, |cache| cache.limit_pages()),
        }
    }

    /// State and counters of the engine, for status reports and tests.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let Load { tokens_outstanding, frames_held, .. } = self.load();
        Snapshot {
            volumes: self.volumes.iter().map(Volume::snapshot).collect(),
            clients: self.credit.outstanding(),
            tokens_outstanding,
            frames_held,
            write_back: self.write_back.as_ref().map(|cache| cache.snapshot()),
        }
    }

    /// Plants a bug, so that a test can show that a checker detects it.
    #[cfg(feature = "mutants")]
    pub fn plant(&mut self, bug: mutant::Mutant) {
        self.out.planted = Some(bug);
        self.credit.planted = Some(bug);
        for volume in &mut self.volumes {
            volume.array.plant(bug);
        }
    }

    #[inline(always)]
    fn take_in(&mut self, input: &mut Input) {
        match input {
            Input::Admin(command) => self.take_command(command),
            Input::Client(request) => self.take_request(request),
            Input::ClientGone(client) => self.client_gone(*client),
            Input::Done { token, result } => {
                // A token that is not outstanding is a bug of the driver, not of its client.
                let taken = self.out.take(*token);
                let Some(outstanding) = &taken else {
                    panic!("{token:?} is done but was not outstanding")
                };
                self.out.work.inputs += outstanding.requests - 1;
                match self.volumes.get_mut(outstanding.volume.index()) {
                    Some(volume) => volume.done(outstanding, result, &mut self.out),
                    None => {
                        let owner = outstanding.owner;
                        self.cache_computed(owner);
                    }
                }
            }
            Input::Wake => {}
        }
    }

    #[cold]
    fn take_command(&mut self, command: &Command) {
        if let (Some(cache), Verb::Drain | Verb::Stop) = (&mut self.write_back, &command.verb) {
            let taken = match command.verb {
                Verb::Drain => cache.drain(command),
                _ => cache.stop(command, &mut self.out),
            };
            if let Err(error) = taken {
                self.out.reply(command.client, command.tag, Err(error));
            }
            return;
        }
        if let Verb::Set(knob) = command.verb
            && knob.is_of_cache()
        {
            let result = self.set_of_cache(command.volume, knob);
            self.out.reply(command.client, command.tag, result);
            return;
        }
        let issuer = Issuer::Client { client: command.client, tag: command.tag };
        let reply = match self.volumes.get_mut(command.volume.index()) {
            Some(volume) => volume.command(&command.verb, issuer, &mut self.out),
            None => Some(Err(ReplyError::Invalid("no such volume"))),
        };
        if let Some(result) = reply {
            self.out.answer(issuer, result);
        }
    }

    /// Sets a knob of the write-back cache. A knob of the page pool applies to all volumes, any
    /// other knob to `volume` only. Fails if there is no such volume, no cache, or the value does
    /// not fit.
    fn set_of_cache(&mut self, volume: VolumeId, knob: Knob) -> Result<(), ReplyError> {
        if volume.index() >= self.volumes.len() {
            return Err(ReplyError::Invalid("no such volume"));
        }
        let Some(cache) = &mut self.write_back else {
            return Err(ReplyError::Refused(NO_WRITE_BACK.to_owned()));
        };
        cache.set(volume, knob, &mut self.volumes, &mut self.out)?;
        let all = 0..self.volumes.len();
        let concerned = |index: &usize| knob.is_of_pool() || *index == volume.index();
        all.filter(concerned).for_each(|index| self.volumes[index].note_knob(knob));
        Ok(())
    }

    #[cold]
    fn client_gone(&mut self, client: ClientId) {
        self.credit.client_gone(client);
        self.out.forget_refusals(client);
        let out = &mut self.out;
        if self.write_back.as_mut().is_none_or(|cache| cache.client_gone(client, out)) {
            self.tell_volumes_of_gone(client);
        }
    }

    #[cold]
    fn write_back_turn(&mut self) {
        let Some(cache) = &mut self.write_back else { return };
        for client in cache.turn(&mut self.volumes, &mut self.out) {
            self.tell_volumes_of_gone(client);
        }
    }

    /// Handles a finished computation that was ordered by the write-back cache.
    #[cold]
    fn cache_computed(&mut self, owner: Owner) {
        let (Some(cache), Owner::Compute(job)) = (&mut self.write_back, owner) else {
            unreachable!("a token is a volume's or one of the cache's computations")
        };
        cache.computed(job, &mut self.volumes, &mut self.out);
    }

    fn tell_volumes_of_gone(&mut self, client: ClientId) {
        let passed = self.out.passed().filter(|request| request.issuer.is(client));
        passed.for_each(|request| request.gone = true);
        for volume in &mut self.volumes {
            volume.client_gone(client);
        }
    }

    fn take_request(&mut self, request: &mut ClientRequest) {
        let ClientRequest { client, tag, frames, .. } = *request;
        let bytes = request.payload().0;
        let result = if self.credit.take(client, bytes) {
            match (&mut self.write_back, self.volumes.get_mut(request.volume.index())) {
                (Some(cache), Some(_)) => cache.request(request, &mut self.volumes, &mut self.out),
                (None, Some(volume)) => volume.request(request, None, &mut self.out),
                (_, None) => Err(ReplyError::Invalid("no such volume")),
            }
            .inspect_err(|_| self.out.give_credit(client, bytes))
        } else {
            Err(ReplyError::Busy(NO_CREDIT))
        };
        if let Err(error) = result {
            self.out.reply(client, tag, Err(error));
            if frames.count > 0 {
                self.out.push(Output::Release(frames));
            }
        }
    }
}

/// Text of the error of a request that exceeds its client's credit. The request neither takes nor
/// returns credit.
pub const NO_CREDIT: &str = "the client has no credit left for it";

/// Text of the error that answers a change of a knob of the write-back cache if there is no cache.
pub const NO_WRITE_BACK: &str =
    "found no write-back cache, which this knob is of; serve with --write-back SIZE";
