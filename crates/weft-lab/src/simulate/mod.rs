//! Simulation of a user's own load: fio jobs and traces on a simulated volume.
//!
//! A [`Volume`] says which drives, which array on them and how it is tuned; [`jobs::run`] runs a
//! fio job file on it, [`trace::Replay`] a trace, [`sweep::sweep`] either of them under several
//! settings, and [`advise::advise`] searches the best. What comes out is an [`Outcome`]: results in
//! fio's terms, what the members were asked for, and what the engine had to do. The code that
//! decides is the engine that serves real volumes; the drives are models, and time is virtual, so
//! nothing depends on the host.
//!
//! Source   experiments.md §5, §6

pub mod advise;
pub mod clients;
pub mod faults;
mod figures;
pub mod jobs;
mod outcome;
mod pace;
pub mod sweep;
mod sync;
pub mod trace;
mod volume;

use thiserror::Error;
use weft_sim::drive::ModelError;
use weft_sim::machine::{Machine, PartsError, Ran};
use weft_units::{Span, Time};

pub use figures::Figures;
pub use outcome::{MemberOutcome, Outcome, Stop, WriteBackOutcome};
pub use sync::{SyncOutcome, action as sync_action};
pub use volume::{Volume, VolumeError};
pub use weft_sim::drive::models;
pub use weft_sim::machine::{CostTable, CostsError, PlannedFault, Traffic};

use crate::job::JobError;
use crate::replay::ReplayError;
use crate::statistics::StatisticsError;

/// Why a simulation did not run, or did not come to an end.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SimulateError {
    /// The job file is not for this volume.
    #[error(transparent)]
    Job(#[from] JobError),
    /// A drive that does not exist.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// There is no such volume.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// Its parts do not fit together.
    #[error("volume: {0}")]
    Parts(#[from] PartsError),
    /// The trace cannot be read, or does not fit.
    #[error(transparent)]
    Trace(#[from] ReplayError),
    /// The trace has nothing to replay.
    #[error("{trace}: found no request in {lines} lines, expected one at least")]
    Empty {
        /// Its first file.
        trace: String,
        /// Number of lines that were read.
        lines: u64,
    },
    /// The trace goes beyond the end of the volume.
    #[error(
        "trace: found requests up to byte {end}, expected at most {size}, the size of the volume; --wrap, --clip or \
         --divide N, or more or larger members"
    )]
    TooLarge {
        /// End of the last request in bytes.
        end: u64,
        /// Size of the volume in bytes.
        size: u64,
    },
    /// The trace has no device of this name.
    #[error("trace device: found {found:?}, expected one of {known}")]
    TraceDevice {
        /// Value that was asked for.
        found: String,
        /// The first of those that it has.
        known: String,
    },
    /// The trace does not tell its clients apart.
    #[error(
        "clients: found none, a trace of format {formats} does not know processes; expected \
         --by device, or a trace that does: blktrace, blkparse, an iolog with pid="
    )]
    NoClients {
        /// Formats of its files.
        formats: String,
    },
    /// Nothing of the volume may be varied.
    #[error(
        "--advise: found nothing to vary, expected a level with chunks or parity, or members of one \
         model, and something of them that is not given"
    )]
    NothingToSearch,
    /// What was measured cannot be compared.
    #[error("--advise: {0}; the load has to read or write something")]
    Statistics(#[from] StatisticsError),
    /// A run of several did not come to an end.
    #[error("{}", unfinished(stop))]
    Unfinished {
        /// Reason.
        stop: Stop,
    },
    /// Nothing is left to happen, and somebody waits.
    #[error("the simulation stands still after {after}: a bug; please report it with the command line", after = seconds(*after))]
    Stuck {
        /// After so much virtual time.
        after: Span,
    },
}

/// Progress of a simulation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// The virtual time.
    pub now: Time,
    /// The part of the work that is done, 0 to 1.
    pub done: f64,
}

/// Whoever looks on while it runs; false stops it.
pub type Watch<'a> = &'a mut dyn FnMut(Progress) -> bool;

/// Runs until everybody is done, a request has failed or somebody wants it to stop.
fn run_watched(
    machine: &mut Machine,
    done: &dyn Fn(Time) -> f64,
    watch: Watch<'_>,
) -> Result<Stop, SimulateError> {
    let mut until = machine.host.now();
    // Time in which nothing happened costs no work, and is no part of the limit.
    let mut idle = Span::ZERO;
    loop {
        until = until + SLICE;
        // The next thing may happen much later, as after a gap in a trace.
        if let Some(next) = machine.next_event().filter(|next| *next > until) {
            idle.0 += next.since(until).0;
            until = next;
        }
        match machine.run(until) {
            Ran::Done => return Ok(Stop::Done),
            Ran::Stuck => {
                return Err(SimulateError::Stuck { after: machine.host.now().since(Time(0)) });
            }
            Ran::Until => {}
        }
        let now = machine.host.now();
        if machine.host.answered().1 > 0 {
            return Ok(Stop::Failed(now));
        }
        if now.since(Time(0)).0.saturating_sub(idle.0) >= VIRTUAL_MAX.0 {
            return Ok(Stop::Limit(now));
        }
        if !watch(Progress { now, done: done(now) }) {
            return Ok(Stop::Interrupted(now));
        }
    }
}

fn unfinished(stop: &Stop) -> String {
    match stop {
        Stop::Failed(at) => format!(
            "a request failed before {}: the volume has lost more members than its level bears",
            seconds(at.since(Time(0)))
        ),
        Stop::Limit(_) => "it takes more than a year of simulated time; ask for less".to_owned(),
        Stop::Done | Stop::Interrupted(_) => "it was interrupted".to_owned(),
    }
}

/// A time for people: `12.500 s`.
fn seconds(span: Span) -> String {
    format!("{:.3} s", span.0 as f64 / 1e9)
}

/// How much virtual time passes between two looks at the host's clock: about ten thousand requests
/// of a fast volume.
const SLICE: Span = Span::millis(20);

/// A run that takes longer in virtual time, but for gaps in which nothing happens, is stopped: a
/// year and a day.
const VIRTUAL_MAX: Span = Span::secs(366 * 86_400);
