//! `weft sim`: runs a fio job file on a simulated array.

use std::path::PathBuf;

use clap::Args;
use weft_lab::fio_json::document;
use weft_lab::job::{Job, JobError, LEFT_OUT, OPTION_NAMES, REFUSED, left_out, parse};
use weft_lab::simulate::sweep::Load;
use weft_lab::simulate::{Volume, Watch, jobs};
use weft_terminal::outcome::{Failure, Outcome as Ending};
use weft_terminal::terminal::{complain, print_json};

use crate::simulated::{
    self, Compared, Simulated, compare, ended, header, print_csv, print_models, print_outcome,
    source,
};

/// Runs a fio job file on a simulated array
///
/// The engine that serves volumes runs on models of drives, in virtual time: nothing is read from
/// or written to any device. Options of fio that mean nothing to a simulation are left out, and
/// told; those that it does not simulate, or does not know, are all named in one error. Buffered
/// jobs (without direct=1) go through a page cache. With --json the result has the shape of fio's,
/// and one more key, weft.
#[derive(Debug, Args)]
#[command(after_long_help = options())]
pub(crate) struct Sim {
    /// Job file of fio; its jobs run on the simulated volume, whatever their filename= says
    job: Option<PathBuf>,
    /// Print one JSON object: in the shape of fio's output, or the comparison
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    simulated: Simulated,
}

/// Help text that lists the options which job files may have, and those which are left out or
/// refused.
fn options() -> String {
    let mut text = format!("Options of fio that jobs may have:\n  {}", OPTION_NAMES.join(", "));
    for (title, lists) in [("are left out", LEFT_OUT), ("are refused", REFUSED)] {
        text.push_str(&format!("\n\nOptions that {title}, each with the reason:"));
        for others in lists {
            text.push_str(&format!("\n  {}: {}", others.names.join(", "), others.reason));
        }
    }
    text
}

pub(crate) fn run(arguments: &Sim) -> Ending {
    if arguments.simulated.lists() {
        return print_models();
    }
    let Some(path) = &arguments.job else {
        return Err(Failure::usage("sim: found no job file, expected one, or --device list"));
    };
    let jobs = parse(path, &[]).map_err(|error| match error {
        JobError::File { .. } => Failure::failed(format!("{error}; name a job file of fio")),
        error => Failure::usage(error),
    })?;
    for (reason, options) in left_out(&jobs) {
        complain(&format!("left out: {}: {reason}", options.join(", ")));
    }
    for job in jobs.iter().filter(|job| goes_over_all(job)) {
        complain(&format!(
            "{}: goes over the whole volume; size=, io_size=, or time_based with runtime= bounds it, \
             unless fill_device=1 lifts the size",
            job.name
        ));
    }
    let Some(volume) = arguments.simulated.alone()? else {
        let what = Compared {
            title: path.display().to_string(),
            load: Load::Jobs(jobs),
            facts: Vec::new(),
            sources: source::text(path).into_iter().collect(),
            head: String::new(),
        };
        return compare(&arguments.simulated, &what, arguments.json);
    };
    let load = |volume: &Volume, watch: Watch<'_>| jobs::run(volume, &jobs, watch);
    let outcome = simulated::run("sim", &volume, |outcome| outcome, load)?;
    if arguments.json {
        print_json(&document(&header(&outcome, &volume), &outcome.results))?;
    } else if arguments.simulated.is_csv() {
        print_csv(&outcome)?;
    } else {
        print_outcome(&outcome, &volume)?;
    }
    ended(&outcome)
}

/// Whether a job covers the whole volume, because neither a size nor a time limits it.
fn goes_over_all(job: &Job) -> bool {
    let Job { target, pace, .. } = job;
    let sized = target.size.is_some() || target.io_size.is_some() || target.file_size.is_some();
    let timed = pace.time_based && pace.runtime.is_some();
    !(sized || timed)
}
