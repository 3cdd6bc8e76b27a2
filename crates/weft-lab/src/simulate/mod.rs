//! Simulation of a user's own load: fio jobs and traces on a simulated volume.
//!
//! A [`Volume`] describes drives, the array on them and its tuning; [`jobs::run`] runs a fio job
//! file on it, [`trace::Replay`] replays a trace, [`sweep::sweep`] runs either under several
//! settings, and [`advise::advise`] searches the best setting. The result is an [`Outcome`]:
//! results in fio's terms, requests to the members, and work of the engine. All decisions are made
//! by the engine that serves real volumes; the drives are models, and time is virtual, so nothing
//! depends on the host.
//!
//! Source   experiments.md §5, §6

pub mod advise;
pub mod clients;
pub mod faults;
mod figures;
pub mod jobs;
mod outcome;
mod pace;
pub mod part;
mod stripe_cache;
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
pub use stripe_cache::StripeCache;
pub use sync::{SyncOutcome, action as sync_action};
pub use volume::{Volume, VolumeError};
pub use weft_sim::drive::models;
pub use weft_sim::machine::{CostTable, CostsError, PlannedFault, Traffic};

use crate::job::JobError;
use crate::replay::ReplayError;
use crate::statistics::StatisticsError;

/// Reasons why a simulation did not run, or did not complete.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SimulateError {
    /// The job file does not fit this volume.
    #[error(transparent)]
    Job(#[from] JobError),
    /// The model of a drive does not exist.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The description of the volume is invalid.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// No machine can be built with this volume, for example because its array cannot be created or
    /// assembled.
    #[error("volume: {0}")]
    Parts(#[from] PartsError),
    /// The trace cannot be read, or not be replayed as the options ask.
    #[error(transparent)]
    Trace(#[from] ReplayError),
    /// The trace contains no request.
    #[error("{trace}: found no request in {lines} lines, expected one at least")]
    Empty {
        /// First file of the trace.
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
        /// Number of bytes that the volume must have for all requests of the trace.
        end: u64,
        /// Size of the volume in bytes.
        size: u64,
    },
    /// The trace has no device of this name.
    #[error("trace device: found {found:?}, expected one of {known}")]
    TraceDevice {
        /// Value that was asked for.
        found: String,
        /// Names of the first devices of the trace.
        known: String,
    },
    /// The trace does not distinguish clients.
    #[error(
        "clients: found none, a trace of format {formats} does not know processes; expected \
         --by device, or a trace that does: blktrace, blkparse, an iolog with pid="
    )]
    NoClients {
        /// Formats of the trace's files.
        formats: String,
    },
    /// Every parameter of the volume is fixed.
    #[error(
        "--advise: found nothing to vary, expected a level with chunks or parity, or members of one \
         model, and something of them that is not given"
    )]
    NothingToSearch,
    /// The measurements cannot be compared.
    #[error("--advise: {0}; the load has to read or write something")]
    Statistics(#[from] StatisticsError),
    /// One of several runs did not complete.
    #[error("{}", unfinished(stop))]
    Unfinished {
        /// Reason why the run ended early.
        stop: Stop,
    },
    /// A process waits although no event is left.
    #[error("the simulation stands still after {after}: a bug; please report it with the command line", after = seconds(*after))]
    Stuck {
        /// Virtual time of the standstill.
        after: Span,
    },
}

/// Progress of a simulation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Virtual time that the simulation has reached.
    pub now: Time,
    /// Completed share of the work, 0 to 1.
    pub done: f64,
}

/// Observer of a running simulation; it returns false to stop the run.
pub type Watch<'a> = &'a mut dyn FnMut(Progress) -> bool;

/// Runs until all processes are done, a request has failed, [`VIRTUAL_MAX`] is reached, or the
/// observer stops the run. Returns which of these ended it. Fails if a process waits although no
/// event is left.
fn run_watched(
    machine: &mut Machine,
    done: &dyn Fn(Time) -> f64,
    watch: Watch<'_>,
) -> Result<Stop, SimulateError> {
    let mut until = machine.host.now();
    // Idle time costs no work and does not count towards the limit.
    let mut idle = Span::ZERO;
    loop {
        until = until + SLICE;
        // The next event may be much later, as after a gap in a trace.
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

/// A time as text for output, such as `12.500 s`.
fn seconds(span: Span) -> String {
    format!("{:.3} s", span.0 as f64 / 1e9)
}

/// Virtual time between two calls of the observer: about ten thousand requests of a fast volume.
const SLICE: Span = Span::millis(20);

/// Limit of virtual time, apart from idle gaps: a year and a day.
const VIRTUAL_MAX: Span = Span::secs(366 * 86_400);
