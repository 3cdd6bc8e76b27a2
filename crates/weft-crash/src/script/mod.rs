//! Scripts: printable random runs, drawn from a seed, that can be replayed and shortened.
//!
//! A seed and a [`Profile`] determine a [`Script`]: an array and a list of steps, both printable. A
//! run depends on nothing else, so a failure is reported as the text of its script, which can be
//! parsed and run again. [`crate::shrink`] shortens the list, and the result is stored in a file
//! ([`crate::kept`]).
//!
//! Faults are drawn so that no more members are hurt than the level survives, except for profiles
//! that exceed this on purpose ([`Profile::beyond`]).

mod absences;
mod bad_blocks;
mod bare;
mod cache;
mod course;
mod drains;
mod draw;
mod drives;
mod joins;
pub(crate) mod levels;
mod lists;
mod mixed;
mod parts;
mod ranges;
mod rebuilds;
mod replaces;
mod space;
mod steps;
pub(crate) mod straight;
mod text;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use weft_engine::PartlyWritten;
use weft_units::digest::Digest;

use crate::crash::Coverage;
use crate::disk::IoErrors;
use crate::excuses::ExcuseCounts;
use crate::options::Options;
use crate::violation::Violation;
use crate::world::Order;
use crate::world::World;

use course::Course;
pub use steps::{Profile, ScriptStep};
pub use text::ScriptError;

/// An array and the steps that are carried out on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// Name of the profile from which the script was drawn.
    pub profile: &'static str,
    /// Shape of the array, knobs and seed.
    pub options: Options,
    /// Order in which member requests complete.
    pub order: Order,
    /// Steps, in order.
    pub steps: Vec<ScriptStep>,
    /// Whether the array's content must be right at the end: no more members were hurt than the
    /// level survives, and no disk lies.
    pub within_promises: bool,
    /// Whether the array must assemble at each restart for which enough superblocks can be read.
    pub assembles: bool,
}

/// Counts of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Counts of power cuts, by their circumstances.
    pub coverage: Coverage,
    /// Counts of checks that accepted content which clients' writes alone do not explain (excuses).
    pub excuses: ExcuseCounts,
    /// Number of process crashes.
    pub kills: u64,
    /// Number of read-only starts, each of which must write nothing.
    pub looks: u64,
    /// Number of periods of some seconds in which disks had no space ([`ScriptStep::LackSpace`]).
    pub lacks: u64,
    /// 1 if a re-added member and a fresh one were rebuilt together, otherwise 0.
    pub rebuilt_beside: u64,
    /// Number of successful stops by an administrator.
    pub stops: u64,
    /// Member requests that failed with an I/O error.
    pub io_errors: IoErrors,
    /// Client requests of the array that were answered.
    pub requests: u64,
    /// Client requests of the volume beside the array (bare, or a second array) that were answered.
    pub bare_requests: u64,
    /// Counts of the runs of dirty pages of which the write-back cache wrote only some parts.
    pub partly_written: PartlyWritten,
    /// Sectors read by verification.
    pub verified: u64,
    /// Blocks that were written again at the end of scripts with more faults than the level
    /// survives.
    pub written_again: u64,
    /// Columns with data in which parity or copies were checked at the end.
    pub scrubbed: u64,
    /// Digest of all outputs of the engine with their times: equal runs have equal digests.
    pub digest: Digest,
}

/// A run in which a promise was broken.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The first violation.
    pub violation: Violation,
    /// Index of the step after which the violation was found.
    pub step: usize,
    /// The script of the run.
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
             weft-crash --example sweep -- replay FILE"
        )
    }
}

/// Callback after each start of an engine. It may plant a bug.
pub type Plant<'a> = &'a dyn Fn(&mut World);

impl Script {
    /// Runs the script with checkers.
    ///
    /// # Errors
    /// The first violation, with the script. A panic of the engine is a violation too.
    pub fn run(&self) -> Result<Report, Box<Failure>> {
        self.run_with(&|_| ())
    }

    /// Runs the script, and calls `plant` for each engine that starts.
    ///
    /// # Errors
    /// The first violation, with the script. A panic of the engine is a violation too.
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
