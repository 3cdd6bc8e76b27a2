//! Performance simulator: an engine over drive models, with processes, in virtual time.
//!
//! A [`Machine`] is an engine over [`Drive`]s, with processes that use it, in virtual time. It
//! moves no payload: frames are numbers. It is what experiments, `weft sim` and `weft replay` run;
//! what happens when things go wrong is the business of a [`World`](crate::World).
//!
//! ```text
//! processes ─ page cache ─ requests ─▶ engine (one server, costs.rs) ─▶ disk of each member (member.rs)
//! ```
//!
//! Everything happens at some virtual time; what falls on one time happens in a fixed order: disks
//! by index, then what was planned, by when it was planned, then the engine, so that what arrives
//! at one moment is one plug. Nothing depends on the host.

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
    /// md's level; `None` for one member as it is, without metadata.
    pub level: Option<weft_ondisk::Level>,
    /// The members' disks, all of one model.
    pub model: Model,
    /// Number of members.
    pub members: u16,
    /// Size of a chunk.
    pub chunk: Sectors,
    /// Sectors of each disk that are used; `None` is all of it.
    pub member_size: Option<Sectors>,
    /// Knobs of the volume and of its members' queues: without a scheduler disks are served in the
    /// order in which they are asked.
    pub knobs: Knobs,
    /// The product's write-back cache in front of the volume, if there is one. Processes have
    /// a page cache of their own, which is in front of that.
    pub write_back: Option<WriteBackConfig>,
    /// Pass over all members that runs beside the load from the start: a resync as after an
    /// unclean stop, recovery of the last member, a check or a repair. Nothing is stored, so that
    /// parity agrees everywhere.
    pub sync: Option<SyncAction>,
    /// Costs of CPU work.
    pub costs: Costs,
    /// Time of a hop between threads, of which md's rounds of flushes have some.
    pub flush_hop: Span,
    /// Seed of everything that is drawn.
    pub seed: u64,
}

impl MachineParts {
    /// RAID 5 of four whole drives of a named model, served by mq-deadline; CPU work costs nothing.
    ///
    /// # Panics
    /// There is no model of this name.
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

/// Why no machine can be made of its parts.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PartsError {
    /// There is no such array.
    #[error("{0}")]
    Array(#[from] weft_ondisk::CreateError),
    /// The engine does not run it.
    #[error("{0}")]
    Engine(#[from] weft_engine::ConfigError),
    /// Several members, and no level.
    #[error("members: found {members} without a level, expected one")]
    Single {
        /// Number of members.
        members: usize,
    },
    /// Nothing to resync, recover or check.
    #[error("sync: found {volume}, expected a level with redundancy: 1, 4, 5, 6 or 10")]
    Sync {
        /// Level of the array, or that there is none.
        volume: String,
    },
    /// It would not assemble.
    #[error("{0}")]
    Assembly(String),
}

/// Names a process of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pid(pub u32);

/// Reason why a process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// For the first time.
    Started,
    /// A request that it submitted under this name is done.
    Done(u64),
    /// The time has come that it asked for.
    Timer,
    /// Requests find stripes again.
    Unblocked,
    /// Another process told it.
    Told(u64),
}

/// Simulated process that uses a volume. It is woken, does what it can, and says nothing; what it
/// waits for it has asked the [`Host`] for.
pub trait Process {
    /// Runs until it has to wait, after `woken` happened.
    fn run(&mut self, host: &mut Host, woken: Woken);

    /// Whether nobody waits for it any more. The machine stops when nobody waits for anyone.
    fn is_done(&self) -> bool;

    /// Itself, for whoever knows what it is and looks at what it found.
    fn as_any(&self) -> &dyn Any;
}

/// A host and who lives on it.
pub struct Machine {
    /// The host.
    pub host: Host,
    processes: Vec<Box<dyn Process>>,
}

impl Machine {
    /// Puts a machine together, with an array that is new and in sync.
    ///
    /// # Panics
    /// The parts do not fit together: an array of these cannot be made.
    #[must_use]
    pub fn new(parts: &MachineParts) -> Self {
        let models = vec![parts.model.clone(); usize::from(parts.members)];
        Self::of_models(parts, &models).expect("the parts fit together")
    }

    /// As [`Machine::new`], with a disk of each of these models; unless the parts say how much of
    /// each is used, the smallest does. `model` and `members` of the parts say nothing here.
    ///
    /// # Errors
    /// An array cannot be made of these parts.
    pub fn of_models(parts: &MachineParts, models: &[Model]) -> Result<Self, PartsError> {
        Ok(Self { host: Host::new(parts, models)?, processes: Vec::new() })
    }

    /// Adds a process that is told its name; it runs when the machine does.
    pub fn add_with(&mut self, make: impl FnOnce(Pid) -> Box<dyn Process>) -> Pid {
        let pid = Pid(self.processes.len() as u32);
        self.processes.push(make(pid));
        self.host.ready.push_back((pid, Woken::Started));
        pid
    }

    /// A process as what it is.
    ///
    /// # Panics
    /// It is something else.
    #[must_use]
    pub fn process<P: 'static>(&self, pid: Pid) -> &P {
        let process = self.processes[pid.0 as usize].as_any();
        process.downcast_ref().expect("the process is of this kind")
    }

    /// Whether all processes have ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.host.ready.is_empty() && self.processes.iter().all(|process| process.is_done())
    }

    /// When the next thing happens, as far as is known.
    #[must_use]
    pub fn next_event(&self) -> Option<Time> {
        self.host.next_event()
    }

    /// Runs until all processes have ended, nothing is left to happen, or it is `until`; says
    /// which.
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
    /// Somebody waits, and nothing is left to happen.
    Stuck,
    /// The time is over.
    Until,
}
