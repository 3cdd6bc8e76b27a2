//! Drive models: the virtual times at which disks and solid-state drives answer commands.
//!
//! A model determines when a drive answers each command; there is no payload. (The contents of
//! members are simulated in weft-crash, `disk/`.) A [`Drive`] is a state machine without I/O. It
//! receives commands and the time, and returns the time of its next event:
//!
//! ```
//! use weft_sim::drive::{Access, Command, Drive};
//! use weft_units::{Sectors, Time};
//!
//! let mut drive = Drive::new(&Drive::model("hdd-2007-7200")?, 1);
//! let read = Command { tag: 7, access: Access::Read, first: Sectors(123_456), length: Sectors(8) };
//! drive.submit(Time(0), read);
//! let mut done = Vec::new();
//! while let Some(at) = drive.next_event() {
//!     drive.advance(at, &mut done);
//! }
//! assert_eq!(done[0].tag, 7);
//! # Ok::<(), weft_sim::drive::ModelError>(())
//! ```
//!
//! | Part | File |
//! |---|---|
//! | named models and their parameters | `model.rs`, `drives/*.toml` |
//! | hard disks | `hdd/`: geometry, arm, caches |
//! | solid-state drives | `ssd/`: dies, mapping, collection, buffer |
//! | event queue | `events.rs` |
//! | a disk reduced to a rate and the cost of a jump | `reduced.rs` |
//! | link to the host | `link.rs` |
//! | counters | `counters.rs` |
//!
//! All values are whole nanoseconds and sectors. Floating point is used only for the four basic
//! operations and the square root, which IEEE 754 defines to the bit: the same seed gives the same
//! times on any host, in debug and in release builds.
//!
//! Order    events at the same time happen in the order in which they were planned
//! Source   `experiments.md` §2 for the models' structure and the targets that each must meet

mod counters;
mod events;
mod hdd;
pub(crate) mod link;
mod model;
mod null;
mod reduced;
mod ssd;

pub use counters::Counters;
pub use hdd::Hdd;
pub use model::{Model, ModelError, models};
pub use null::Null;
pub use reduced::Reduced;
pub use ssd::Ssd;

use weft_units::{Sectors, Time};

/// Kind of a command, without its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads the sectors of the command.
    Read,
    /// Writes the sectors of the command.
    Write {
        /// Whether the command completes only when the sectors are on the medium.
        fua: bool,
    },
    /// Writes the data of completed commands to the medium. A flush has no range.
    Flush,
    /// Discards the sectors of the command.
    Discard,
}

/// A command to a drive.
///
/// Shape    `length` is not zero except for [`Access::Flush`]; the range lies within the drive
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// Number chosen by the caller, which is returned in [`Done`]. No two commands at the drive
    /// have the same number.
    pub tag: u64,
    /// Kind of the command: read, write, flush or discard.
    pub access: Access,
    /// First sector of the range.
    pub first: Sectors,
    /// Length of the range in sectors; zero for a flush.
    pub length: Sectors,
}

/// Notice that a command has completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Tag that the command had.
    pub tag: u64,
}

/// A simulated drive.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "a machine has a handful of drives")]
pub enum Drive {
    /// A rotational disk with platters, an arm and caches.
    Hdd(Hdd),
    /// A disk reduced to a constant rate and the cost of a jump.
    Reduced(Reduced),
    /// A solid-state drive with dies, a page mapping and a write buffer.
    Ssd(Ssd),
    /// A drive that takes a fixed time for every command.
    Null(Null),
}

/// Evaluates an expression in which `$it` is the drive, whatever its kind.
macro_rules! each {
    ($drive:expr, $it:ident => $body:expr) => {
        match $drive {
            Drive::Hdd($it) => $body,
            Drive::Reduced($it) => $body,
            Drive::Ssd($it) => $body,
            Drive::Null($it) => $body,
        }
    };
}

impl Drive {
    /// The model with this name, one of [`models`].
    ///
    /// # Errors
    /// [`ModelError::Name`] if no model has that name.
    pub fn model(name: &str) -> Result<Model, ModelError> {
        Model::named(name)
    }

    /// A drive of this model. `seed` determines its random choices: the angle of the platter at the
    /// start, the blocks that garbage collection considers, and the spread of latencies.
    #[must_use]
    pub fn new(model: &Model, seed: u64) -> Self {
        match model.kind() {
            model::DriveKind::Hdd(parameters) => Self::Hdd(Hdd::new(parameters, seed)),
            model::DriveKind::Reduced(parameters) => Self::Reduced(Reduced::new(parameters)),
            model::DriveKind::Ssd(parameters) => Self::Ssd(Ssd::new(parameters, seed)),
            model::DriveKind::Null(parameters) => Self::Null(Null::new(parameters)),
        }
    }

    /// The drive of member `number`. `seed` is the same for all members, but each has random
    /// choices of its own.
    #[must_use]
    pub fn of_member(model: &Model, seed: u64, number: u64) -> Self {
        Self::new(model, seed ^ (number << 56))
    }

    /// Largest number of commands that the drive holds at once. The caller must queue further
    /// commands.
    #[must_use]
    pub fn depth(&self) -> u32 {
        each!(self, it => it.depth())
    }

    /// Whether the drive reports a volatile cache. If not, the block layer removes flushes and FUA
    /// before the drive receives them; see [`Drive::wanted`].
    #[must_use]
    pub fn volatile_cache(&self) -> bool {
        each!(self, it => it.volatile_cache())
    }

    /// The access as the block layer passes it on. Without a volatile cache, FUA is removed, and a
    /// flush becomes `None`.
    #[must_use]
    pub fn wanted(&self, access: Access) -> Option<Access> {
        match access {
            Access::Flush if !self.volatile_cache() => None,
            Access::Write { .. } if !self.volatile_cache() => Some(Access::Write { fua: false }),
            access => Some(access),
        }
    }

    /// Whether the drive accepts a flush or a FUA write while it holds other commands. If not, the
    /// host must send such a command alone.
    #[must_use]
    pub fn flush_queueable(&self) -> bool {
        match self {
            Self::Ssd(ssd) => ssd.flush_queueable(),
            Self::Hdd(_) | Self::Reduced(_) | Self::Null(_) => true,
        }
    }

    /// Whether the drive has an arm, so that schedulers gain by ordering commands by sector.
    #[must_use]
    pub fn rotational(&self) -> bool {
        matches!(self, Self::Hdd(_) | Self::Reduced(_))
    }

    /// Capacity of the drive in sectors.
    #[must_use]
    pub fn capacity(&self) -> Sectors {
        each!(self, it => it.capacity())
    }

    /// Submits a command at `now`, which is neither before the time of the last call nor after
    /// [`Drive::next_event`].
    ///
    /// Panics if the drive already holds [`Drive::depth`] commands, or if the range is not within
    /// the drive.
    pub fn submit(&mut self, now: Time, command: Command) {
        let end = command.first.checked_add(command.length);
        assert!(
            end.is_some_and(|end| end <= self.capacity()),
            "{command:?} is not within the drive"
        );
        assert!(
            (command.access == Access::Flush) == (command.length.0 == 0),
            "{command:?}: length"
        );
        debug_assert!(self.next_event().is_none_or(|at| now <= at), "advance the drive first");
        each!(self, it => it.submit(now, command));
    }

    /// Time of the drive's next event if no command arrives before; `None` if it is idle.
    #[must_use]
    pub fn next_event(&self) -> Option<Time> {
        each!(self, it => it.next_event())
    }

    /// Carries out all events up to and including `now`, and appends the commands that completed to
    /// `done`, in order.
    pub fn advance(&mut self, now: Time, done: &mut Vec<Done>) {
        each!(self, it => it.advance(now, done));
    }

    /// Counters of the commands and the work of the drive since it was made.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        each!(self, it => it.counters())
    }

    /// Whether all of these sectors would survive a power cut now, because none of them is only in
    /// a volatile cache. Sectors that were never written survive.
    #[must_use]
    pub fn durable(&self, first: Sectors, length: Sectors) -> bool {
        each!(self, it => it.durable(first, length))
    }
}
