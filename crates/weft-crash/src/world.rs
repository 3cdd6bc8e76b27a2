//! World: an engine with simulated disks, memory, clients, clock and checkers.
//!
//! A [`World`] takes the place of a driver: it owns the slab, submits member requests, computes,
//! honours credit, and repeats requests that the engine answers with a stall. Only methods that say
//! so advance the clock. `world/driver.rs` chooses the next event. A clone of a world continues
//! independently.
//!
//! Every restart takes the path of a real one: superblocks are read from the media, parsed and
//! assembled, and an engine is started from the assembly.

mod bare;
mod carry_out;
mod clients;
mod copies;
mod create;
mod driver;
mod endings;
mod fingerprint;
mod measure;
mod memory;
mod served;
mod service;
mod watched_columns;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use weft_engine::assemble::{self, Assembly, AssemblyState, Candidate, Refused, SlotState};
use weft_engine::mutant::Mutant;
use weft_engine::{
    Config, DeviceTraits, Engine, MemberInfo, Notice, Origin, PartlyWritten, ReplyError, Snapshot,
    Tag, Token, VolumeConfig, VolumeSource,
};
use weft_ondisk::{Logs, Metadata, MetadataError, Superblock, Uuid};
use weft_parity::Parity;
use weft_units::digest::Digest;
use weft_units::rng::Rng;
use weft_units::{ByteRange, ClientId, MemberIndex, SECTOR_BYTES, Sectors, Time, VolumeId};

pub(crate) use bare::BARE_BYTES;
use bare::Bare;
pub use carry_out::Pending;
pub(crate) use clients::PROBER;
use clients::{Issued, Waiting};
pub use driver::{ANSWERED_WITHIN, Order};
use memory::Memory;
use served::Served;
use service::Service;
use watched_columns::WatchedColumns;

use crate::array::Array;
use crate::checker::{Checkers, Limits, Record, View, consent};
use crate::crash::Coverage;
use crate::disk::Disk;
use crate::excuses::ExcuseCounts;
use crate::model::{FlushMark, Model};
use crate::options::{Options, member_bytes_max};
use crate::payload::NeedsPayload;
use crate::suspects::Suspects;
use crate::violation::Violation;
use crate::volumes::{ARRAY, BARE};

/// Client and tag of a request or command.
pub type Ticket = (ClientId, Tag);

/// Result of a request. A read returns its bytes, as [`crate::payload`] represents them.
pub type Answer = Result<Vec<u8>, ReplyError>;

/// Entry of the log of a world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Logged {
    /// A request was answered: client and tag, and whether it succeeded.
    Answer(Ticket, bool),
    /// A member request completed.
    Done {
        /// Number of the disk, from 0.
        disk: usize,
        /// Whether the request succeeded.
        ok: bool,
    },
    /// A flush was submitted.
    Flush {
        /// Number of the disk, from 0.
        disk: usize,
    },
    /// A read was submitted.
    Read {
        /// Number of the disk, from 0.
        disk: usize,
        /// First sector, counted from the start of the disk.
        at: u64,
        /// Number of sectors.
        count: u64,
        /// Origin of the request: a client, the array's own bookkeeping, or a resync, recovery,
        /// check or repair.
        origin: Origin,
    },
    /// End of a round: the member requests logged since the last round ended were all submitted
    /// before any of them completed.
    Round,
    /// A write was submitted.
    Write {
        /// Number of the disk, from 0.
        disk: usize,
        /// First sector, counted from the start of the disk.
        at: u64,
        /// Number of sectors.
        count: u64,
        /// Whether the data is durable at completion.
        fua: bool,
        /// Whether the write is of metadata (superblock or bitmap).
        metadata: bool,
        /// Origin of the request: a client, the array's own bookkeeping, or a resync, recovery,
        /// check or repair.
        origin: Origin,
    },
}

/// The simulated world.
#[derive(Clone)]
pub struct World {
    /// Options that the world was made with.
    pub options: Options,
    /// The virtual clock.
    pub now: Time,
    /// All disks, present or not; their numbers never change.
    pub disks: Vec<Disk>,
    disk_of: Vec<usize>,
    pub(crate) engine: Option<Engine>,
    /// Whether the engine has to run, because it has received an input since it last ran or was
    /// just started.
    pub(crate) plugged: bool,
    memory: Memory,
    service: Service,
    pub(crate) pending: BTreeMap<Token, Pending>,
    issued: BTreeMap<Ticket, Issued>,
    /// Volume and range of each unanswered write that a disconnected client left behind, kept until
    /// the engine ends.
    pub(crate) orphans: Vec<(VolumeId, ByteRange)>,
    commands: BTreeSet<Ticket>,
    /// Unanswered commands that drain the write-back cache, each with its volume and a mark of the
    /// writes that had been acknowledged when it was issued.
    drains: BTreeMap<Ticket, (VolumeId, FlushMark)>,
    /// Number of stripes of the stripe cache. `resizes` has the numbers that unanswered commands
    /// request.
    cache_stripes: u32,
    resizes: BTreeMap<Ticket, u32>,
    waiting: VecDeque<Waiting>,
    credit: BTreeMap<ClientId, u64>,
    answers: BTreeMap<Ticket, Answer>,
    answered: u64,
    next_tag: u64,
    /// Columns in which verification reads all data sectors, including those that no client wrote.
    watched_columns: WatchedColumns,
    /// Columns in which members disagree or may disagree; see [`crate::suspects`].
    pub(crate) suspects: Suspects,
    /// Whether members may disagree because of a power cut or a process crash after which their
    /// columns have not been compared (measured) yet.
    measure_due: bool,
    /// Members that were being rebuilt when the engine started, by slot: number of the disk, and
    /// the data sector up to which it is read.
    half_rebuilt: BTreeMap<u16, (usize, u64)>,
    served: Served,
    /// Data sectors without valid data, by disk: those listed in the bad-block logs when the engine
    /// started, and those that the engine has added since.
    bad: BTreeSet<(usize, u64)>,
    /// Whether copies of a mirror may differ because a member lacked space.
    lacked_space: bool,
    /// Model of the values that clients may read.
    pub model: Model,
    /// Volume beside the array: a bare volume or a second array; `None` without one.
    bare: Option<Bare>,
    /// Geometry of the array.
    pub array: Array,
    /// Content of the durable superblocks.
    pub record: Record,
    /// Content of the superblocks as they were last written whole; `None` if all of them can be
    /// read.
    written: Option<Record>,
    /// Content of the durable superblocks when the last engine ended, before a power cut destroyed
    /// or tore some of them.
    record_before: Record,
    /// Disks with a superblock that a power cut tore.
    torn: BTreeSet<usize>,
    pub(crate) checkers: Checkers,
    pub(crate) failure: Option<Violation>,
    /// Whether the power was cut or the process crashed at any time.
    interrupted: bool,
    /// Whether the run was interrupted by a process crash, or by a power cut of a running engine.
    /// The power cut that follows a stop does not count.
    pub(crate) was_cut: bool,
    /// Notices of the engine, each with its time.
    pub notices: Vec<(Time, Notice)>,
    /// Requests and answers of members and clients, if [`Options::logged`].
    pub log: Vec<Logged>,
    /// Digest of all outputs of the engine with their times: equal runs have equal digests.
    pub digest: Digest,
    /// Counts of power cuts by their circumstances, and of related events.
    pub coverage: Coverage,
    /// Counts of the runs of dirty pages of which the write-back caches of earlier engines wrote
    /// only some parts.
    partly_written: PartlyWritten,
    /// Excuses of reads: counts of contents read that were accepted although the writes of clients
    /// alone do not explain them. The excuses of checkers are in `checkers`.
    excuses: ExcuseCounts,
    /// Number of member requests and computations that have completed so far.
    pub(crate) completed: u64,
    /// Random numbers that choose which request completes next, and which writes survive a power
    /// cut or a process crash.
    pub rng: Rng,
    parity: Parity,
}

/// Checkers of what members hold, which do not count where acknowledged data may be on members that
/// are missing or no longer counted as in sync. The last one counts unless disks lie.
pub(crate) const OF_CONTENT: [&str; 9] =
    ["I1 ", "I3 ", "I4 ", "I5 ", "I6 ", "I7 ", "I8 ", "I20", "I2 "];

impl World {
    /// Creates the array with `weft-ondisk`, writes its superblocks, and starts an engine on it.
    ///
    /// # Panics
    /// Panics if no array can be made from the options.
    #[must_use]
    pub fn new(options: Options) -> Self {
        let count = options.members + options.spares;
        let supers = create::superblocks(&options, 0);
        let mut disks = create::disks(&options, &supers);
        let layout = options.array_layout();
        let mut data_offset: Vec<Sectors> = supers.iter().map(Superblock::data_offset).collect();
        let bare = (options.disks_beside() > 0).then(|| {
            disks.extend(bare::new_disks(&options, count));
            // No sector of these disks belongs to the array.
            data_offset.resize(disks.len(), Sectors(1 << 60));
            let model = Model::new(options.payload);
            Bare { disks: (count, disks.len()), model, answered: 0 }
        });
        let mut record = Record::read(&disks, options.version);
        record.leave_out(count..disks.len());
        let limits = Limits::default();
        let mut world = Self {
            now: Time(1_000_000_000),
            disk_of: (0..disks.len()).collect(),
            disks,
            engine: None,
            plugged: false,
            memory: Memory::default(),
            service: Service::default(),
            pending: BTreeMap::new(),
            issued: BTreeMap::new(),
            orphans: Vec::new(),
            commands: BTreeSet::new(),
            drains: BTreeMap::new(),
            cache_stripes: 0,
            resizes: BTreeMap::new(),
            waiting: VecDeque::new(),
            credit: BTreeMap::new(),
            answers: BTreeMap::new(),
            answered: 0,
            next_tag: 0,
            watched_columns: WatchedColumns::default(),
            suspects: Suspects::default(),
            measure_due: false,
            half_rebuilt: BTreeMap::new(),
            served: Served::default(),
            bad: BTreeSet::new(),
            lacked_space: false,
            model: Model::new(options.payload),
            bare,
            array: Array::new(layout, data_offset),
            record_before: record.clone(),
            written: None,
            torn: BTreeSet::new(),
            record,
            checkers: Checkers::new(limits),
            failure: None,
            interrupted: false,
            was_cut: false,
            notices: Vec::new(),
            log: Vec::new(),
            digest: Digest::default(),
            coverage: Coverage::default(),
            partly_written: PartlyWritten::default(),
            excuses: ExcuseCounts::default(),
            completed: 0,
            rng: Rng::new(options.seed),
            parity: Parity::detect(),
            options,
        };
        (0..world.disks.len()).for_each(|disk| world.add_drive(disk));
        world.start(&assemble::Options::default()).expect("a new array is not refused");
        world
    }

    /// Starts an engine from the content of the media.
    ///
    /// # Errors
    /// The assembly is refused.
    ///
    /// # Panics
    /// Panics if an engine runs already, or if the configuration is refused.
    pub fn start(&mut self, how: &assemble::Options) -> Result<(), Refused> {
        assert!(self.engine.is_none(), "stop the engine first");
        self.refuse_logs()?;
        self.now = self.service.restart(self.now);
        self.coverage.unreadable_superblocks += self.unreadable_superblocks();
        let assembly = self.assemble(how)?;
        if self.options.checked {
            let view = view!(self);
            self.checkers.assembled(view, &assembly);
            self.judge_consent(how, &assembly);
        }
        let missing = (0u16..).zip(&assembly.slots);
        let missing = missing.filter(|(_, state)| !matches!(state, SlotState::InSync(_)));
        self.watched_columns.started(missing.map(|(slot, _)| slot));
        self.bad = bad_sectors(&assembly);
        if self.options.checked {
            self.measure_all(&assembly);
        }
        self.serves(&assembly);
        let knobs = self.options.knobs;
        let stripes = self.options.stripes_max.unwrap_or(knobs.stripe_cache_size).max(1);
        let stripes_max = self.options.stripes_max;
        let cache_stripes = self.options.cache_stripes.unwrap_or(stripes);
        let mut cache_frames = assembly.cache_frames(knobs.stripe_size, cache_stripes);
        let source = VolumeSource::Array(Box::new(assembly));
        let array = VolumeConfig { source, knobs, stripes_max };
        let beside = self.volume_beside(how, cache_stripes, &mut cache_frames);
        let volumes = [array].into_iter().chain(beside).collect();
        let config = Config {
            cache_frames,
            volumes,
            client_frames: self.options.client_frames,
            client_credit: self.options.client_credit,
            turn_stripes_max: 8,
            epoch_secs: 1_750_000_000,
            write_back: self.options.write_back,
        };
        self.memory = Memory::new(&config, self.options.payload);
        self.credit.clear();
        self.cache_stripes = stripes;
        self.checkers.limit(|limits| {
            limits.stripes = stripes;
            limits.client_frames = config.client_frames;
            limits.client_credit = config.client_credit;
            limits.member_bytes = member_bytes_max(&knobs, &self.options);
        });
        self.allow_waits();
        let engine = Engine::new(config, self.now);
        self.engine = Some(engine.unwrap_or_else(|error| panic!("{error}")));
        // The engine runs without an input, because it may have to act on the state of its members.
        self.plugged = true;
        self.settle();
        Ok(())
    }

    /// Checks P5 for an assembly that was made with consent to start a dirty and degraded array.
    fn judge_consent(&mut self, how: &assemble::Options, with: &Assembly) {
        if !how.force_dirty {
            return;
        }
        let without = self.assemble(&assemble::Options { force_dirty: false, ..how.clone() });
        let needed = consent::needs_consent(&self.array, with, with.resync_from);
        self.coverage.consents += u64::from(needed && without.is_err());
        if let Some(violation) = consent::judge(needed, &without) {
            self.fail(violation);
        }
    }

    /// Returns a refusal if any array has a partial parity log and there is no payload.
    fn refuse_logs(&self) -> Result<(), Refused> {
        let logged = |disk: &usize| self.record.of(*disk).is_some_and(|sb| sb.ppl_area().is_some());
        let found = (0..self.disks.len()).find(logged).map(|_| NeedsPayload::Ppl);
        found.map_or(Ok(()), |what| self.options.payload.needed_for(what)).map_err(|needs| {
            Refused {
                state: AssemblyState::WriteLogged,
                reason: needs.to_string(),
                dropped: Vec::new(),
            }
        })
    }

    /// Returns the assembly that a start would make from the media now.
    ///
    /// # Errors
    /// The assembly is refused.
    pub fn assemble(&self, how: &assemble::Options) -> Result<Assembly, Refused> {
        let there = |disk: &usize| !self.disks[*disk].faults.gone && !self.is_beside(*disk);
        let candidates: Vec<Candidate> =
            (0..self.disks.len()).filter(there).map(|disk| self.candidate(disk)).collect();
        assemble::assemble(&candidates, how)
    }

    /// A disk as a candidate for assembly: an opened device with its metadata.
    fn candidate(&self, disk: usize) -> Candidate {
        let state = &self.disks[disk];
        let metadata = Metadata::read(state.size(), |sector, len| read_media(state, sector, len));
        Candidate::new(self.member_info(disk, MemberIndex(disk as u16)), metadata)
    }

    /// Bitmap and logs to which a superblock of a disk points, or the reason why they cannot be
    /// read.
    pub(crate) fn logs_of(
        &self,
        disk: usize,
        superblock: &Superblock,
    ) -> Result<Logs, MetadataError> {
        let state = &self.disks[disk];
        Logs::read(superblock, state.size(), |sector, len| read_media(state, sector, len))
    }

    /// Reads the superblocks into `record` and `written` again, after some were written or became
    /// unreadable.
    pub(crate) fn read_record(&mut self) {
        let (first, end) = self.beside();
        let record = self.record.read_again(&self.disks, self.options.version);
        let before = self.written.as_ref().unwrap_or(&self.record);
        let before = self.is_running().then_some(before);
        self.written = record.written(&self.disks, self.options.version, before);
        self.record = record;
        self.record.leave_out(first..end);
        self.written.iter_mut().for_each(|record| record.leave_out(first..end));
    }

    /// Number of disks with a superblock that cannot be read now. Disks that are gone or that
    /// shrank do not count.
    fn unreadable_superblocks(&self) -> u64 {
        let unreadable = |disk: &usize| {
            let at = self.options.version.position(self.disks[*disk].size());
            let faults = &self.disks[*disk].faults;
            let there = !faults.gone && faults.ends_at.is_none();
            let there = there && !self.is_beside(*disk);
            there && at.is_some_and(|at| self.disks[*disk].read_whole(at.0, 8).is_err())
        };
        (0..self.disks.len()).filter(unreadable).count() as u64
    }

    /// Disks with a superblock that a power cut tore and that was not rewritten since.
    #[must_use]
    pub fn torn_out(&self) -> BTreeSet<usize> {
        let none = |disk: &&usize| self.record.of(**disk).is_none();
        self.torn.iter().filter(none).copied().collect()
    }

    /// Whether a refusal to assemble would break a promise. A refusal is allowed if superblocks
    /// that were whole when the last engine ended are torn or unreadable now, and the other members
    /// do not suffice for the array.
    #[must_use]
    pub fn must_assemble(&self) -> bool {
        let whole = |disk: usize| self.candidate(disk).superblock.is_ok();
        let had =
            |disk: &usize| !self.disks[*disk].faults.gone && self.record_before.of(*disk).is_some();
        let spoiled = (0..self.disks.len()).filter(had).any(|disk| !whole(disk))
            || self.unreadable_superblocks() > 0;
        // The torn or unreadable superblocks may have recorded later events, so only members that
        // both records count as in sync are left.
        let still = |disk: &usize| {
            let faults = &self.disks[*disk].faults;
            let there = !faults.gone && faults.ends_at.is_none();
            there && whole(*disk) && self.record.is_in_sync(*disk)
        };
        let left = |slot| self.record_before.in_sync(slot).as_ref().is_some_and(still);
        !spoiled || self.array.suffices(left)
    }

    fn member_info(&self, disk: usize, index: MemberIndex) -> MemberInfo {
        let state = &self.disks[disk];
        let rotational = self.options.rotational.contains(&disk);
        let untimed = DeviceTraits { rotational, ..DeviceTraits::default() };
        MemberInfo {
            logical_block: state.logical_block(),
            space: self.options.one_space.then_some(1),
            discards: self.options.discards,
            device: self.service.traits(disk).unwrap_or(untimed),
            ..MemberInfo::of_size(index, format!("disk{disk}"), state.size())
        }
    }

    /// Counters and states of the engine.
    ///
    /// # Panics
    /// Panics if no engine runs.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.engine.as_ref().expect("an engine runs").snapshot()
    }

    /// Counts of the runs of dirty pages of which the write-back caches of all engines so far wrote
    /// only some parts.
    #[must_use]
    pub fn partly_written(&self) -> PartlyWritten {
        let cache = self.engine.as_ref().and_then(|engine| engine.snapshot().write_back);
        let mut all = self.partly_written;
        all += cache.map(|it| it.partly_written).unwrap_or_default();
        all
    }

    /// Whether an engine runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.engine.is_some()
    }

    /// Plants a bug in the engine, if there is one and an engine runs.
    pub fn plant(&mut self, mutant: impl Into<Option<Mutant>>) {
        if let (Some(engine), Some(mutant)) = (&mut self.engine, mutant.into()) {
            engine.plant(mutant);
        }
    }

    /// The engine, to change it; `None` if none runs.
    pub fn engine_mut(&mut self) -> Option<&mut Engine> {
        self.engine.as_mut()
    }

    /// The first violation of a checker that counts; `None` if there is none.
    #[must_use]
    pub fn failure(&self) -> Option<&Violation> {
        self.failure.as_ref()
    }

    /// Reports a violation that was found outside of the checkers, unless its checker does not
    /// count.
    pub fn fail(&mut self, violation: Violation) {
        if self.counts(violation.checker) {
            self.failure.get_or_insert(violation);
        }
    }

    /// Whether violations that the checker with this name reports count; see
    /// [`Options::data_promised`].
    fn counts(&self, checker: &str) -> bool {
        let lost = match (self.options.data_promised, self.interrupted) {
            // If disks lie about flushes, no content of the array can be predicted.
            (false, _) if self.options.disks_lie => &OF_CONTENT[..],
            (false, true) => &OF_CONTENT[..8],
            (true, _) | (false, false) => &[],
        };
        !lost.iter().any(|name| checker.starts_with(name))
            && self.options.only.is_none_or(|only| checker.starts_with(only))
    }

    /// Numbers of the columns in which members disagree or may disagree.
    #[must_use]
    pub fn suspect_columns(&self) -> Vec<u64> {
        self.suspects.columns().filter(|column| self.suspects.contains(*column)).collect()
    }

    /// Counts of excuses: checks that accepted content which the writes of clients alone do not
    /// explain. All counts are 0 if disks lie, because checks of data do not count then.
    #[must_use]
    pub fn excuses(&self) -> ExcuseCounts {
        let mut excuses = self.checkers.excuses;
        excuses.merge(self.excuses);
        if self.options.disks_lie { ExcuseCounts::default() } else { excuses }
    }

    /// Size of the array in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.array.layout.array_size().bytes().0
    }
}

/// Bad data sectors of the members of an assembly, each with the number of its disk.
fn bad_sectors(assembly: &Assembly) -> BTreeSet<(usize, u64)> {
    let mut bad = BTreeSet::new();
    for member in assembly.slots.iter().filter_map(SlotState::member) {
        // The lost end of a member that shrank is not listed here; the member's end (`cut_at`)
        // tells of it.
        let logged = member.logs.bad_blocks.iter().flatten();
        for range in logged.flat_map(|it| it.ranges()) {
            let disk = member.info.index.index();
            bad.extend((range.start.0..range.end().0).map(|sector| (disk, sector)));
        }
    }
    bad
}

/// Reads `len` bytes from `sector` of a disk as a start would read them. Returns an error if a
/// sector cannot be read.
fn read_media(disk: &Disk, sector: Sectors, len: usize) -> std::io::Result<Vec<u8>> {
    let read = disk.read_whole(sector.0, (len as u64).div_ceil(SECTOR_BYTES));
    read.map_err(|fault| std::io::Error::other(format!("{fault:?}")))
}

fn device_uuid(disk: usize) -> Uuid {
    let mut bytes = [0xd1; 16];
    bytes[15] = disk as u8;
    bytes[14] = (disk >> 8) as u8;
    Uuid(bytes)
}
