//! The simulated volume of `sim` and `replay`: its options, its progress bar, its exit status.

mod advice;
mod csv;
mod effect;
mod found;
mod page;
mod parts;
mod settings;
mod shares;
mod sheet;
pub(crate) mod source;
mod sweep;

use weft_terminal::outcome::{Exit, Failure, Outcome as Ending};
use weft_terminal::terminal::{share, stdout};

use std::io::Write;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use clap::Args;
use indicatif::ProgressBar;
use signal_hook::consts::SIGINT;
use weft_engine::knobs::Knobs;
use weft_engine::knobs::SchedulerKind;
use weft_engine::page_cache::Kernel;
use weft_engine::{SyncAction, WriteBackConfig};
use weft_lab::fio_json::Header;
use weft_lab::simulate::{
    CostTable, Outcome, Progress, SimulateError, Stop, Volume, Watch, faults, models, sync_action,
};
use weft_ondisk::{Level, MdTime};
use weft_units::{Bytes, Span};

use crate::knobs;
use crate::size;

use advice::GoalArg;
use parts::PartArg;

pub(crate) use csv::print_outcome as print_csv;
pub(crate) use parts::print_joined;
pub(crate) use sheet::print_outcome;
pub(crate) use sweep::{Compared, Form, compare};

/// The simulated volume.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "The simulated volume")]
pub(crate) struct Simulated {
    /// Model of the members' drives: once for all of them, or once for each; FILE.toml is one of
    /// your own, in the form of crates/weft-sim/drives; `list` lists the named models
    #[arg(long, value_name = "MODEL|FILE.toml", default_values_t = [DEVICE.to_owned()])]
    device: Vec<String>,
    /// Changes a key of the models of --device, as rpm=5400; may be given several times. With
    /// --json, weft.drives has every key of a model with its value
    #[arg(long, value_name = "KEY=VALUE")]
    drive: Vec<String>,
    /// RAID level: linear, 0, 1, 4, 5, 6 or 10; or single, one member as it is, without an array
    #[arg(short, long, value_name = "LEVEL", default_value = "5")]
    level: LevelArg,
    /// Members [default: 4, or as many as there are --device; of level single one]
    #[arg(short = 'n', long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(2..=64))]
    raid_devices: Option<u16>,
    /// Bytes placed on one member before moving to the next; a plain number is KiB [default: what
    /// weft create makes, 64K for RAID 4, 5 and 6 of SSDs, else 512K; with --as md 512K]
    #[arg(short, long, value_name = "SIZE", value_parser = size::kib)]
    chunk: Option<Bytes>,
    /// How much of each member is used [default: all of the smallest]
    #[arg(long, value_name = "SIZE", value_parser = size::with_unit)]
    member_size: Option<Bytes>,
    /// Sets a knob of the volume; may be given several times. weft get --help lists the knobs
    #[arg(long, value_name = "KNOB=VALUE")]
    set: Vec<String>,
    /// Defaults of the chunk and of the knobs that are not given: weft's own, or those of untuned
    /// md
    #[arg(long = "as", value_name = "NAME", default_value = "weft", value_parser = ["weft", "md"])]
    tuned_as: String,
    /// Costs of CPU work: frozen (measured once, on a CPU that is named), zero, a patch's own
    /// (published), or a file of weft-bench costs; *N behind it is a CPU N times as slow
    #[arg(long, value_name = "TABLE", default_value = "frozen")]
    costs: String,
    /// Memory of the host: the page cache of buffered jobs
    #[arg(long, value_name = "SIZE", value_parser = size::with_unit, default_value = "4G")]
    memory: Bytes,
    /// Kernel that defines the rules of the page cache
    #[arg(long, value_name = "NAME", value_parser = kernel, default_value = KERNEL)]
    kernel: String,
    /// Puts a write-back cache of this size in front of the volume, as weft serve --write-back
    /// does; or off
    #[arg(long, value_name = "SIZE", default_value = "off")]
    write_back: WriteBackArg,
    /// Runs this sync beside the load, from the start of the load on: resync, recover (of the last
    /// member), check or repair. sync_speed_min, sync_speed_max and sync_pace are knobs of --set.
    /// The load is run again without the sync, and the result shows what the sync cost the load
    #[arg(long, value_name = "ACTION", value_parser = sync_action)]
    sync: Option<SyncAction>,
    /// CPUs of the host
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024))]
    cpus: u32,
    /// Seed of all random choices: the same seed gives the same run
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Faults of members: fail=1@5s, slow=2x10@1s (ten times as slow), media=0/1000 (one read in
    /// 1000), separated by commas; without a value, random faults that the level tolerates, in the
    /// first second
    #[arg(long, value_name = "PLAN", num_args = 0..=1, require_equals = true, default_missing_value = DRAWN)]
    faults: Option<String>,
    /// Runs with each of these values and compares the results; with several --sweep, every
    /// combination is run. A knob, or level, chunk, raid-devices, device, drive.KEY, write-back,
    /// sync or kernel. The stripe cache of each setting has the memory that it has without --sweep,
    /// unless stripe_cache_size is given
    #[arg(long, value_name = "KNOB=A,B,…")]
    sweep: Vec<String>,
    /// Runs of each setting with seeds that follow --seed; three say whether a difference is sure
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    runs: Option<u64>,
    /// Print one command line for each setting of --sweep, instead of running them: each gives one
    /// JSON object, and weft merge joins these into what the sweep prints
    #[arg(long, conflicts_with_all = ["part", "advise", "report", "results", "csv", "json"])]
    list: bool,
    /// Print the one setting of --sweep as the Ith part of N, in JSON, for weft merge; --list
    /// prints such command lines
    #[arg(
        long,
        value_name = "I/N",
        conflicts_with_all = ["advise", "report", "results", "csv"]
    )]
    part: Option<PartArg>,
    /// Print comma-separated values: a row for each job and direction, or for each setting
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Searches members, chunk, stripe size, stripe cache and priority for this goal, and says in
    /// one line what to use; what is given by an option stays as it is
    #[arg(
        long,
        value_name = "GOAL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "p99",
        conflicts_with_all = ["sweep", "results", "csv", "faults"]
    )]
    advise: Option<GoalArg>,
    /// Writes the comparison, or the advice, to a page of HTML
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// Overwrite the page that --report names
    #[arg(long, requires = "report")]
    force: bool,
    /// Keeps the results of every run as files that weft compare reads, DIR/SETTING/runN.json
    #[arg(long, value_name = "DIR")]
    results: Option<PathBuf>,
}

/// Value of `--write-back`: a write-back cache, or `None` for `off`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct WriteBackArg(Option<WriteBackConfig>);

impl FromStr for WriteBackArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self(None));
        }
        let size = size::write_back(text).map_err(|error| format!("{error}, or off"))?;
        Ok(Self(Some(WriteBackConfig::of(size))))
    }
}

/// Default kernel: its page cache was the baseline of patch 001.
const KERNEL: &str = "3.1";

fn kernel(text: &str) -> Result<String, String> {
    if Kernel::named(text).is_some() {
        return Ok(text.to_owned());
    }
    let names = Kernel::NAMES.map(|(name, _)| name).join(", ");
    Err(format!("found {text:?}, expected one of {names}"))
}

/// Value of `--level`: a level of md, or `None` for `single`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LevelArg(pub(crate) Option<Level>);

impl FromStr for LevelArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "single" {
            return Ok(Self(None));
        }
        let level = text.parse().map(Some).map(Self);
        level.map_err(|error| format!("{error}, or single"))
    }
}

/// Value of `--faults` if the option is given without a value.
const DRAWN: &str = "drawn";

/// Default drive: one that was common in servers.
const DEVICE: &str = "ssd-sata-dc-2019";

impl Simulated {
    /// Whether the user asked for the list of drive models.
    pub(crate) fn lists(&self) -> bool {
        self.device.iter().any(|device| device == "list")
    }

    /// Whether the output is text: neither JSON nor CSV nor command lines.
    pub(crate) fn is_text(&self, json: bool) -> bool {
        !json && !self.csv && !self.list && self.part.is_none()
    }

    /// Whether the user asked for CSV.
    pub(crate) fn is_csv(&self) -> bool {
        self.csv
    }

    /// Whether the results are shown on a page of HTML, now or when parts are merged.
    pub(crate) fn has_page(&self) -> bool {
        self.report.is_some() || self.part.is_some()
    }

    /// Volume that the options describe; `None` if they describe a comparison of several volumes or
    /// runs.
    ///
    /// # Errors
    /// The options describe no valid volume.
    pub(crate) fn alone(&self) -> Result<Option<Volume>, Failure> {
        let compares = !self.sweep.is_empty() || self.runs.is_some();
        let compares = compares || self.advise.is_some() || self.list || self.part.is_some();
        let compares = compares || self.report.is_some() || self.results.is_some();
        if compares { Ok(None) } else { self.volume().map(Some) }
    }

    fn volume(&self) -> Result<Volume, Failure> {
        let LevelArg(level) = self.level;
        let members = match (level, self.raid_devices, self.device.len()) {
            (None, None, 1) => 1,
            (None, count, devices) => {
                let found = count.map_or(devices, usize::from);
                return Err(Failure::usage(format!(
                    "--level single: found {found} members, expected one: a single --device, and no \
                     --raid-devices"
                )));
            }
            (_, Some(count), _) => usize::from(count),
            (_, None, 1) => 4,
            (_, None, count) => count,
        };
        let mut knobs = if self.tuned_as == "md" { Knobs::md() } else { Knobs::default() };
        // Simulated members are disks, so the scheduler is that of disks.
        knobs.scheduler = SchedulerKind::MqDeadline;
        for setting in &self.set {
            let (name, value) = knobs::split(setting)?;
            knobs::set(&mut knobs, name, value).map_err(Failure::usage)?;
        }
        let members = Volume::members(&self.device, members).map_err(failure)?;
        let faults = match self.faults.as_deref() {
            None => Vec::new(),
            Some(DRAWN) => faults::drawn(level, members.len(), Span::secs(1), self.seed),
            Some(plan) => faults::parse(plan, members.len()).map_err(Failure::usage)?,
        };
        let mut volume = Volume {
            level,
            chunk: self.chunk.unwrap_or_else(|| match self.tuned_as.as_str() {
                "md" => Volume::MDADMS_CHUNK,
                _ => Volume::own_chunk(level, &members),
            }),
            members,
            member_size: self.member_size,
            knobs,
            costs: CostTable::of_argument(&self.costs).map_err(Failure::usage)?,
            write_back: self.write_back.0,
            sync: self.sync,
            memory: self.memory,
            kernel: Kernel::named(&self.kernel).unwrap_or_default(),
            cpus: self.cpus,
            faults,
            seed: self.seed,
        };
        volume.change_drives(&self.drive).map_err(failure)?;
        Ok(volume)
    }
}

/// Prints the list of drive models.
pub(crate) fn print_models() -> Ending {
    let mut out = stdout();
    let width = models().iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, line) in models() {
        writeln!(out, "{name:<width$}  {line}")?;
    }
    Ok(Exit::Done)
}

/// Progress bar that also handles Ctrl-C: the first one ends the simulation, the second one ends
/// the process.
pub(crate) struct Bar {
    bar: ProgressBar,
    interrupted: Arc<AtomicBool>,
    shown: AtomicU64,
}

/// Makes a progress bar with the text `what` before it.
pub(crate) fn bar(what: &'static str) -> Bar {
    let interrupted = Arc::new(AtomicBool::new(false));
    // If the handler cannot be registered, the signal ends the process as usual.
    let _ = signal_hook::flag::register_conditional_shutdown(
        SIGINT,
        INTERRUPTED.into(),
        Arc::clone(&interrupted),
    );
    let _ = signal_hook::flag::register(SIGINT, Arc::clone(&interrupted));
    Bar { bar: share(what), interrupted, shown: AtomicU64::new(0) }
}

impl Bar {
    /// Shows progress on the bar. Returns whether the simulation is to go on.
    pub(crate) fn goes_on(&self, progress: Progress) -> bool {
        self.bar.set_message(format!("{:.1} s simulated", progress.now.0 as f64 / 1e9));
        self.is_at(progress.done)
    }

    /// Shows the fraction of the work that is done. Returns whether the simulation is to go on.
    pub(crate) fn is_at(&self, done: f64) -> bool {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 1000")]
        let position = (done.clamp(0.0, 1.0) * 1000.0) as u64;
        if position != self.shown.swap(position, Ordering::Relaxed) {
            self.bar.set_position(position);
        }
        !self.interrupted.load(Ordering::Relaxed)
    }

    /// Removes the bar.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// Runs a load on a volume. If a sync runs beside it, the load is run again without the sync, so
/// the result can show the cost of the sync.
pub(crate) fn run<R>(
    name: &'static str,
    volume: &Volume,
    outcome_of: impl Fn(&mut R) -> &mut Outcome,
    load: impl Fn(&Volume, Watch<'_>) -> Result<R, SimulateError>,
) -> Result<R, Failure> {
    let shown = |name: &'static str, volume: &Volume| {
        let bar = bar(name);
        let run = load(volume, &mut |progress| bar.goes_on(progress));
        bar.finish();
        run.map_err(failure)
    };
    let mut run = shown(name, volume)?;
    let outcome = outcome_of(&mut run);
    if outcome.sync.is_some() && outcome.stop == Stop::Done {
        let mut without = shown("without sync", &Volume { sync: None, ..volume.clone() })?;
        outcome.compare_without_sync(outcome_of(&mut without));
    }
    Ok(run)
}

/// Exit status after Ctrl-C, by convention of shells.
const INTERRUPTED: u8 = 130;

/// Exit status for the outcome of a simulation. A run that failed or was stopped at its time limit
/// is an error.
pub(crate) fn ended(outcome: &Outcome) -> Ending {
    match outcome.stop {
        Stop::Done => Ok(Exit::Done),
        Stop::Interrupted(_) => Ok(Exit::Of(INTERRUPTED)),
        Stop::Failed(at) => Err(Failure::failed(format!(
            "{} of {} requests failed, the first before {:.3} s: the volume has lost more members than its \
             level bears; the figures end there",
            outcome.answered.1,
            outcome.answered.0,
            at.0 as f64 / 1e9,
        ))),
        Stop::Limit(at) => Err(Failure::failed(format!(
            "stopped after {:.0} days of simulated time; ask for less, or give a runtime",
            at.0 as f64 / 86_400e9,
        ))),
    }
}

/// Header of fio's JSON output. The times in it are simulated and begin in 1970, so a seed always
/// gives the same text.
pub(crate) fn header(outcome: &Outcome, volume: &Volume) -> Header {
    let end = outcome.elapsed.0 / 1_000_000;
    Header {
        weft_version: env!("CARGO_PKG_VERSION").to_owned(),
        timestamp_ms: end,
        time: MdTime::from_secs(end / 1000).to_ctime(),
        global_options: Vec::new(),
        weft: outcome.to_json(volume),
    }
}

/// Converts an error of the simulation to a failure of the command: an error of usage or of the
/// run.
pub(crate) fn failure(error: SimulateError) -> Failure {
    match error {
        SimulateError::Stuck { .. } => Failure::failed(error),
        _ => Failure::usage(error),
    }
}
