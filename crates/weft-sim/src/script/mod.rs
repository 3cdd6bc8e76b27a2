//! Scripts: printable random runs, drawn from a seed, that can be replayed and shortened.
//!
//! A seed becomes a [`Script`]: a shape and a list of steps, both printable. Running it depends on
//! nothing else, so a failure is the text of its script, from which it is parsed again, and what
//! [`crate::shrink`] leaves of the list is a file to keep ([`crate::kept`]).
//!
//! Faults are drawn so that no more members are hurt than the level survives; whatever a script
//! does beyond that, it does on purpose ([`Profile::beyond`]).

mod bare;
mod cache;
mod course;
mod drains;
mod draw;
mod joins;
mod mixed;
mod rebuilds;
mod space;
mod steps;
pub(crate) mod straight;
mod text;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::checker::Violation;
use crate::crash::Coverage;
use crate::disk::IoErrors;
use crate::driver::Order;
use crate::excuses::Excuses;
use crate::options::Options;
use crate::rng::Digest;
use crate::world::World;

use course::Course;
pub use steps::{Profile, ScriptStep};
pub use text::ScriptError;

/// A shape and what is done to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// Name of the profile.
    pub profile: &'static str,
    /// Shape of the array, knobs and seed.
    pub options: Options,
    /// Order in which member requests complete.
    pub order: Order,
    /// Steps, in order.
    pub steps: Vec<ScriptStep>,
    /// Whether what is left at the end has to be whole.
    pub within_promises: bool,
    /// Whether the array has to assemble whenever enough superblocks can be read.
    pub assembles: bool,
}

/// Outcome of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Counts of power cuts, by what they met.
    pub coverage: Coverage,
    /// Counts of what passed with an excuse.
    pub excuses: Excuses,
    /// Deaths of the process.
    pub kills: u64,
    /// Read-only restarts, which may write nothing.
    pub looks: u64,
    /// Times that members had no space for seconds.
    pub lacks: u64,
    /// Arrays that an administrator stopped.
    pub stops: u64,
    /// Requests of members that failed with an I/O error.
    pub io_errors: IoErrors,
    /// Client requests answered.
    pub requests: u64,
    /// Requests of bare volumes that were answered.
    pub bare_requests: u64,
    /// Sectors read by verification.
    pub verified: u64,
    /// Blocks that were written once more at the end, where members are lost.
    pub written_again: u64,
    /// Columns whose parity was recomputed at the end and that held something.
    pub scrubbed: u64,
    /// Digest of every output of the engine with its time.
    pub digest: Digest,
}

/// A run in which a promise was not kept.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The promise that was not kept.
    pub violation: Violation,
    /// Index of the step after which it showed.
    pub step: usize,
    /// The whole run.
    pub script: Script,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.violation)?;
        writeln!(f, "after step {} of {}:", self.step, self.script.steps.len())?;
        write!(f, "{}", self.script)?;
        write!(
            f,
            "replay: keep the lines from \"profile\" on as FILE, and cargo run --release -p \
             weft-sim --example sweep -- replay FILE"
        )
    }
}

/// Callback after each start of an engine, which may plant a bug in it.
pub type Plant<'a> = &'a dyn Fn(&mut World);

impl Script {
    /// Runs it, checkers on.
    ///
    /// # Errors
    /// The first promise that was not kept. A panic of the engine is one too.
    pub fn run(&self) -> Result<Report, Box<Failure>> {
        self.run_with(&|_| ())
    }

    /// Runs it with something done to each engine that starts.
    ///
    /// # Errors
    /// The first promise that was not kept.
    pub fn run_with(&self, plant: Plant<'_>) -> Result<Report, Box<Failure>> {
        let mut at = 0;
        let outcome = catch_unwind(AssertUnwindSafe(|| Course::new(self, plant).perform(&mut at)));
        let violation = match outcome {
            Ok(Ok(report)) => return Ok(report),
            Ok(Err(violation)) => violation,
            Err(panic) => {
                let text = panic
                    .downcast_ref::<String>()
                    .cloned()
                    .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
                Violation::new("panic", text.unwrap_or_default())
            }
        };
        Err(Box::new(Failure { violation, step: at, script: self.clone() }))
    }
}
