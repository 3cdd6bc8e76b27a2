//! Performance simulator: an engine over drive models, with processes, in virtual time.
//!
//! A [`Machine`] is an engine over [`Drive`]s with processes that use it, in virtual time. All
//! drives are one volume, or each is a volume of its own ([`Machine::of_disks`]); a page cache may
//! be above them. It moves no payload: frames are only numbers. Experiments, `weft sim` and `weft
//! replay` run it. Whether data is right under faults is tested by weft-crash, the crash simulator.
//!
//! ```text
//! processes ─ page cache ─ requests ─▶ engine (one server, costs.rs) ─▶ disk of each member (member.rs)
//! ```
//!
//! Every event has a virtual time. Events at the same time happen in a fixed order: disks by index,
//! then planned events in the order of planning, then the engine, so that requests which arrive at
//! the same time are one plug. Nothing depends on the host that simulates.

mod cost_table;
mod costs;
mod faults;
mod files;
mod host;
mod member;
mod probe;
mod thread;

use std::any::Any;

use weft_engine::knobs::{Knobs, SchedulerKind};
use weft_engine::{SyncAction, WriteBackConfig};
use weft_units::{Bytes, Sectors, Span, Time};

pub use cost_table::{CostTable, CostsError};
pub use costs::Costs;
pub use faults::{FaultKind, PlannedFault};
pub use files::{Flusher, PageAllocator, PageCacheParts};
pub use host::{FlushOrderCounts, Host, Seen};
pub use member::{Member, Sizes, Traffic, command_of, device_traits};
pub use probe::{Count, History, Sample, Sums};
pub use thread::Thread;

use crate::drive::{Drive, Model};

/// Configuration of a machine.
#[derive(Clone, Debug)]
pub struct MachineParts {
    /// RAID level; `None` for a single member without metadata.
    pub level: Option<weft_ondisk::Level>,
    /// Model of the members' disks.
    pub model: Model,
    /// Number of members.
    pub members: u16,
    /// Size of a chunk.
    pub chunk: Sectors,
    /// Sectors of each disk that the array uses; `None` for all of the smallest disk.
    pub member_size: Option<Sectors>,
    /// Knobs of the volume and of its members' queues. Without a scheduler, disks are served in
    /// order of arrival.
    pub knobs: Knobs,
    /// weft's write-back cache in front of the volume; `None` without one. Processes may have a
    /// page cache of their own above it.
    pub write_back: Option<WriteBackConfig>,
    /// Operation over all stripes that runs beside the load from the start: a resync as after an
    /// unclean stop, a recovery of the last member, a check or a repair. `None` for no such
    /// operation. No data is stored, so parity agrees everywhere.
    pub sync: Option<SyncAction>,
    /// CPU costs of each kind of work.
    pub costs: Costs,
    /// Duration of a hop between threads; md's rounds of flushes have such hops.
    pub flush_hop: Span,
    /// Seed of all random choices.
    pub seed: u64,
}

impl MachineParts {
    /// RAID 5 of four whole drives of the named model, with mq-deadline; CPU work costs nothing.
    ///
    /// # Panics
    /// Panics if there is no drive model of this name.
    #[must_use]
    pub fn raid5(model: &str, chunk: Bytes, knobs: Knobs) -> Self {
        Self {
            level: Some(weft_ondisk::Level::Raid5),
            model: Drive::model(model).unwrap_or_else(|error| panic!("{error}")),
            members: 4,
            chunk: chunk.sectors_floor(),
            member_size: None,
            knobs: Knobs { scheduler: SchedulerKind::MqDeadline, ..knobs },
            write_back: None,
            sync: None,
            costs: Costs::ZERO,
            flush_hop: Span::ZERO,
            seed: 1,
        }
    }
}

/// Reasons why no machine can be made of its parts.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PartsError {
    /// The array cannot be created.
    #[error("{0}")]
    Array(#[from] weft_ondisk::CreateError),
    /// The engine rejects the configuration.
    #[error("{0}")]
    Engine(#[from] weft_engine::ConfigError),
    /// The machine has several members but no level.
    #[error("members: found {members} without a level, expected one")]
    Single {
        /// Number of members.
        members: usize,
    },
    /// The volume has no redundancy, so there is nothing to resync, recover or check.
    #[error("sync: found {volume}, expected a level with redundancy: 1, 4, 5, 6 or 10")]
    Sync {
        /// Level of the array, or `a single member` if it has none.
        volume: String,
    },
    /// The assembly of the new array is refused.
    #[error("{0}")]
    Assembly(String),
}

/// Number of a process of a machine, in the order in which processes were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pid(pub u32);

/// Reason why a process is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The process runs for the first time.
    Started,
    /// The request that the process submitted under this name was answered.
    Done(u64),
    /// The time has come for which the process had asked with [`Host::wake_at`].
    Timer,
    /// Stripes are free again, after the process was blocked, or a request has got the token for
    /// which its thread slept.
    Unblocked,
    /// Another process woke this one with this message ([`Host::tell`]).
    Message(u64),
}

/// A simulated process that uses a volume. When it is woken it does everything that is possible
/// without waiting, and before it returns it asks the [`Host`] for the wake-ups that it waits for.
/// A caller that knows the type of a process can read its results ([`Machine::process`]).
pub trait Process: Any {
    /// Runs until the process has to wait. `woken` is the reason why it runs.
    fn run(&mut self, host: &mut Host, woken: Woken);

    /// Whether the machine may stop without waiting for this process.
    fn is_done(&self) -> bool;
}

/// A simulated machine: a host and its processes.
pub struct Machine {
    /// Engine, disks and clock.
    pub host: Host,
    processes: Vec<Box<dyn Process>>,
}

impl Machine {
    /// Makes a machine with a new array, in sync unless the parts ask for a resync or recovery.
    ///
    /// # Panics
    /// Panics if no array can be made of the parts.
    #[must_use]
    pub fn new(parts: &MachineParts) -> Self {
        let models = vec![parts.model.clone(); usize::from(parts.members)];
        Self::of_models(parts, &models).expect("an array can be made of the parts")
    }

    /// Variant of [`Machine::new`] with one disk of each of these models. Unless the parts say how
    /// much of each disk is used, the capacity of the smallest disk decides. `model` and `members`
    /// of the parts are ignored.
    ///
    /// # Errors
    /// No array can be made of the parts.
    pub fn of_models(parts: &MachineParts, models: &[Model]) -> Result<Self, PartsError> {
        if parts.level.is_none() && models.len() != 1 {
            return Err(PartsError::Single { members: models.len() });
        }
        Ok(Self { host: Host::new(parts, models)?, processes: Vec::new() })
    }

    /// Variant of [`Machine::new`] in which each member is a volume of its own, without metadata:
    /// volumes are numbered like members. `level` of the parts is ignored.
    ///
    /// # Panics
    /// Panics if there are no members, or if the parts ask for a resync, recovery, check or repair.
    #[must_use]
    pub fn of_disks(parts: &MachineParts) -> Self {
        let parts = MachineParts { level: None, ..parts.clone() };
        let models = vec![parts.model.clone(); usize::from(parts.members)];
        let host = Host::new(&parts, &models).expect("disks without metadata can be made");
        Self { host, processes: Vec::new() }
    }

    /// Adds a process, made by `make` from its number, and returns this number. The process first
    /// runs when the machine runs next.
    pub fn add_with(&mut self, make: impl FnOnce(Pid) -> Box<dyn Process>) -> Pid {
        let pid = Pid(self.processes.len() as u32);
        self.processes.push(make(pid));
        self.host.ready.push_back((pid, Woken::Started));
        pid
    }

    /// The process with this number, as a value of its own type.
    ///
    /// # Panics
    /// Panics if there is no such process or it has another type.
    #[must_use]
    pub fn process<P: 'static>(&self, pid: Pid) -> &P {
        let process: &dyn Any = &*self.processes[pid.0 as usize];
        process.downcast_ref().expect("the process is of this type")
    }

    /// Whether all processes are done and none is about to run.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.host.ready.is_empty() && self.processes.iter().all(|process| process.is_done())
    }

    /// Time of the next event; `None` if there is none.
    #[must_use]
    pub fn next_event(&self) -> Option<Time> {
        self.host.next_event()
    }

    /// Runs until all processes are done, no event is left, or the next event is later than
    /// `until`. Returns the one of these that ended the run.
    pub fn run(&mut self, until: Time) -> Ran {
        loop {
            while let Some((pid, woken)) = self.host.ready.pop_front() {
                self.processes[pid.0 as usize].run(&mut self.host, woken);
            }
            if self.is_over() {
                return Ran::Done;
            }
            if self.host.engine_turn() {
                continue;
            }
            match self.host.next_event() {
                Some(at) if at <= until => self.host.advance(at),
                Some(_) => return Ran::Until,
                None => return Ran::Stuck,
            }
        }
    }
}

/// Reason why a machine stopped running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ran {
    /// All processes are done.
    Done,
    /// A process is not done, but no event is left.
    Stuck,
    /// The next event is later than the given time.
    Until,
}
