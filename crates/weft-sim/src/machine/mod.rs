//! Performance simulator: an engine over drive models, with processes, in virtual time.
//!
//! A [`Machine`] is an engine over [`Drive`]s with processes that use it, in virtual time. It moves
//! no payload: frames are only numbers. Experiments, `weft sim` and `weft replay` run it; the
//! correctness of data under faults is tested in the crash simulator, weft-crash.
//!
//! ```text
//! processes ─ page cache ─ requests ─▶ engine (one server, costs.rs) ─▶ disk of each member (member.rs)
//! ```
//!
//! Every event has a virtual time. Events of the same time happen in a fixed order: disks by index,
//! then planned events in the order of planning, then the engine, so that requests which arrive at
//! one time are one plug. Nothing depends on the host.

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
pub use files::{Flusher, Place};
pub use host::{FlushOrderCounts, Host, Seen};
pub use member::{Sizes, Traffic};
pub use probe::{Count, History, Sample, Sums};
pub use thread::Thread;

use crate::drive::{Drive, Model};

/// Configuration of a machine.
#[derive(Clone, Debug)]
pub struct MachineParts {
    /// md's level; `None` for a single member without metadata.
    pub level: Option<weft_ondisk::Level>,
    /// The members' disks, all of one model.
    pub model: Model,
    /// Number of members.
    pub members: u16,
    /// Size of a chunk.
    pub chunk: Sectors,
    /// Sectors of each disk that are used; `None` is all of it.
    pub member_size: Option<Sectors>,
    /// Knobs of the volume and of its members' queues. Without a scheduler disks are served in
    /// order of arrival.
    pub knobs: Knobs,
    /// weft's write-back cache in front of the volume, if there is one. Processes have a page cache
    /// of their own in front of it.
    pub write_back: Option<WriteBackConfig>,
    /// Pass over all members that runs beside the load from the start: a resync as after an unclean
    /// stop, recovery of the last member, a check or a repair. Nothing is stored, so parity agrees
    /// everywhere.
    pub sync: Option<SyncAction>,
    /// Costs of CPU work.
    pub costs: Costs,
    /// Duration of a hop between threads, of which md's rounds of flushes have some.
    pub flush_hop: Span,
    /// Seed of all random choices.
    pub seed: u64,
}

impl MachineParts {
    /// RAID 5 of four whole drives of a named model, served by mq-deadline; CPU work costs nothing.
    ///
    /// # Panics
    /// Panics if there is no model of this name.
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

/// Reason why no machine can be made of its parts.
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
    /// The volume has nothing to resync, recover or check.
    #[error("sync: found {volume}, expected a level with redundancy: 1, 4, 5, 6 or 10")]
    Sync {
        /// Level of the array, or a note that it has none.
        volume: String,
    },
    /// The array does not assemble.
    #[error("{0}")]
    Assembly(String),
}

/// Number of a process of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pid(pub u32);

/// Reason why a process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The process runs for the first time.
    Started,
    /// A request that it submitted under this name is complete.
    Done(u64),
    /// A time for which it had asked has come.
    Timer,
    /// Requests find stripes again.
    Unblocked,
    /// Another process woke it, with a word.
    Told(u64),
}

/// Simulated process that uses a volume. It is woken and does what it can; before it returns it
/// asks the [`Host`] for the wake-ups that it waits for.
pub trait Process {
    /// Runs until it has to wait, after `woken` happened.
    fn run(&mut self, host: &mut Host, woken: Woken);

    /// Whether the machine may stop without waiting for this process.
    fn is_done(&self) -> bool;

    /// The process itself, for a caller that knows its type and reads its results.
    fn as_any(&self) -> &dyn Any;
}

/// A host and its processes.
pub struct Machine {
    /// The host.
    pub host: Host,
    processes: Vec<Box<dyn Process>>,
}

impl Machine {
    /// Makes a machine with an array that is new and in sync.
    ///
    /// # Panics
    /// Panics if no array can be made of the parts.
    #[must_use]
    pub fn new(parts: &MachineParts) -> Self {
        let models = vec![parts.model.clone(); usize::from(parts.members)];
        Self::of_models(parts, &models).expect("an array can be made of the parts")
    }

    /// Variant of [`Machine::new`] with a disk of each of these models. Unless the parts say how
    /// much of each disk is used, the smallest disk decides. `model` and `members` of the parts are
    /// ignored.
    ///
    /// # Errors
    /// No array can be made of the parts.
    pub fn of_models(parts: &MachineParts, models: &[Model]) -> Result<Self, PartsError> {
        Ok(Self { host: Host::new(parts, models)?, processes: Vec::new() })
    }

    /// Adds a process, which `make` receives its number for; it runs when the machine does.
    pub fn add_with(&mut self, make: impl FnOnce(Pid) -> Box<dyn Process>) -> Pid {
        let pid = Pid(self.processes.len() as u32);
        self.processes.push(make(pid));
        self.host.ready.push_back((pid, Woken::Started));
        pid
    }

    /// A process, by its type.
    ///
    /// # Panics
    /// Panics if the process is of another type.
    #[must_use]
    pub fn process<P: 'static>(&self, pid: Pid) -> &P {
        let process = self.processes[pid.0 as usize].as_any();
        process.downcast_ref().expect("the process is of this type")
    }

    /// Whether all processes have ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.host.ready.is_empty() && self.processes.iter().all(|process| process.is_done())
    }

    /// Time of the next event, as far as it is known.
    #[must_use]
    pub fn next_event(&self) -> Option<Time> {
        self.host.next_event()
    }

    /// Runs until all processes have ended, no event is left, or the time `until` is reached.
    /// Returns which of these it was.
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
    /// All processes have ended.
    Done,
    /// A process waits, and no event is left.
    Stuck,
    /// The time was reached.
    Until,
}
