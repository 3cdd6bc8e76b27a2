//! Options of `weft-bench`, and the parameters of each benchmark.

use std::io::Write;
use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use weft_bench::member::MemberLoad;
use weft_bench::nbd::{NbdLoad, serve_array, serve_least};
use weft_bench::parity::ParityLoad;
use weft_bench::repeat::{REPETITIONS, Repetition};
use weft_bench::{Effort, Sheet, costs, engine, sched};
use weft_parity::{Level, Strategy};
use weft_terminal::outcome::{Exit, Failure, Outcome};
use weft_terminal::result_file::{Kind, Output, ResultFile};
use weft_terminal::terminal::stdout;

use crate::table;

/// Kind of the file that `costs --write` writes: a table of CPU costs in TOML.
const COSTS: Kind =
    Kind { begin: "# What work costs: `weft-bench costs --write`.\n", name: "table of costs" };

/// Measures how fast weft is, beside other programs that do the same work
///
/// Weft and its baseline take turns within one run; a row has the median over all rounds and the
/// median ratio of neighbours in time. A ratio above 1 is better for weft. A baseline that is not
/// installed is named on standard error, with its package. Exit status: 0, or 1 when something
/// could not be measured or, with --check, is below its mark.
#[derive(Debug, Parser)]
#[command(name = "weft-bench", version, max_term_width = 100)]
pub(crate) struct Bench {
    #[command(subcommand)]
    what: What,
    #[command(flatten)]
    common: Common,
}

/// Subcommands, one per benchmark.
#[derive(Debug, Subcommand)]
enum What {
    Costs(OfCosts),
    Engine(OfEngine),
    Member(OfMember),
    Nbd(OfNbd),
    Parity(OfParity),
    #[command(hide = true)]
    Repeat(Repeat),
    Sched(OfSched),
}

/// Options of all benchmarks.
#[derive(Debug, Args)]
struct Common {
    /// Print one JSON object
    #[arg(long, global = true)]
    json: bool,
    /// Number of times that each row of the result is measured [default: the benchmark's own]
    #[arg(long, global = true, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Measure fewer cases, in fewer and shorter rounds: for a first look, not for a record
    #[arg(long, global = true)]
    quick: bool,
    /// Fail when a row is below its mark
    #[arg(long, global = true)]
    check: bool,
}

/// Measures the CPU cost of each kind of work, for simulations with --costs
///
/// A row for each cost, in nanoseconds, or picoseconds a byte: the median over all rounds, and the
/// quartiles beside it. Then a row for each load of the engine: the time that the table predicts,
/// as a share of the measured time. Repeat the measurement on an idle machine.
#[derive(Debug, Args)]
struct OfCosts {
    /// Write the table of costs to FILE, for the option --costs of simulations
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Overwrite the table that --write names
    #[arg(long, requires = "write")]
    force: bool,
}

/// Measures the engine alone, and a RAID 5 of files with and without patches 000 and 004
///
/// Makes four files of 256 MiB for a RAID 5 with chunks of 64 KiB, and counts the requests to these
/// files. The counts are compared with those of kernel md for the same requests and the same 4 MiB
/// of stripe cache, which were measured once and are part of this program.
#[derive(Debug, Args)]
struct OfEngine {
    /// Directory for the files [default: a temporary directory]
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// Measures reads and writes of a member
///
/// Random blocks of 4 KiB of a new file, 32 at a time, against fio's io_uring engine (Debian
/// package fio); then --backend auto against the faster of uring and threads, one and 32 at a time,
/// with O_DIRECT, through the page cache, and on tmpfs. The files are removed at the end.
#[derive(Debug, Args)]
struct OfMember {
    /// Directory for the temporary file of all rows but those that measure tmpfs [default: the
    /// directory for temporary files]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Directory on tmpfs for the temporary file of the rows that measure tmpfs
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    memory_dir: PathBuf,
    /// Size of each file in MiB
    #[arg(long, default_value_t = 256, value_name = "MIB")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    size: u64,
    /// Seconds for each measurement
    #[arg(long, default_value_t = 0.5, value_name = "SECONDS")]
    seconds: f64,
}

/// Measures volumes over NBD
///
/// Compares weft serve --bare of a member in memory with nbdkit's memory plugin (Debian package
/// nbdkit), with a minimal server that has no engine, and with the same command plus --record. Then
/// measures RAID 5 on four members in memory with several stripe sizes, and compares its
/// full-stripe writes with those of the bare member. All servers listen on unix sockets.
#[derive(Debug, Args)]
struct OfNbd {
    /// Seconds for each measurement
    #[arg(long, default_value_t = 0.5, value_name = "SECONDS")]
    seconds: f64,
    /// Measure only cases with this text in their name, as in 'QD32' or 'RAID 5'
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Serve memory on this socket until killed, as the minimal server; for the benchmark itself
    #[arg(long, hide = true, value_name = "SOCKET")]
    serve_least: Option<PathBuf>,
    /// Serve a RAID 5 in memory on this socket until killed; for the benchmark itself
    #[arg(long, hide = true, value_name = "SOCKET")]
    serve_array: Option<PathBuf>,
    /// Stripe size of the array of --serve-array
    #[arg(long, hide = true, default_value = "4096", value_name = "SIZE")]
    stripe_size: String,
}

/// Measures XOR, P+Q and the rebuilding of two lost strips
///
/// Compares with ISA-L (Debian package libisal2) if its library is found at run time, otherwise
/// with weft's own scalar kernels. The benchmark runs on one thread and reports GB of source data
/// per second of CPU time.
#[derive(Debug, Args)]
struct OfParity {
    /// Use these kernels instead of the best that the CPU has: scalar, ssse3, avx2, avx512-gfni,
    /// neon
    #[arg(long, value_parser = level)]
    level: Option<Level>,
    /// Use this way to read strips and store results instead of the one that weft chooses for the
    /// case and this CPU: in-order, swapped, streaming
    #[arg(long, value_name = "HOW", value_parser = strategy)]
    strategy: Option<Strategy>,
    /// Measure only cases with this text in their name, as in 'XOR' or '10+2 64K'
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

/// Measures the cost of schedulers alone
///
/// Insertion, dispatch and completion of a request in CPU nanoseconds, without an array or a member
/// around them: 1 to 4,096 processes with 1 to 32 requests each, random and sequential, at several
/// depths. mq-deadline against the kernel's hooks on null_blk, the others against mq-deadline.
#[derive(Debug, Args)]
struct OfSched {}

/// Does one piece of work many times, for a profiler
#[derive(Debug, Args)]
struct Repeat {
    /// Work to repeat
    #[arg(value_parser = repetition())]
    case: &'static Repetition,
    /// Number of repetitions
    count: u64,
    /// Add this many percent of work: a deliberate slow-down, to test that it is detected
    #[arg(long, value_name = "PERCENT", default_value_t = 0)]
    extra: u64,
}

fn level(name: &str) -> Result<Level, String> {
    let names = Level::ALL.map(Level::name).join(", ");
    Level::from_name(name).ok_or_else(|| format!("expected one of {names}"))
}

fn strategy(name: &str) -> Result<Strategy, String> {
    let names = Strategy::ALL.map(Strategy::name).join(", ");
    Strategy::from_name(name).ok_or_else(|| format!("expected one of {names}"))
}

fn repetition() -> impl TypedValueParser<Value = &'static Repetition> {
    let names = REPETITIONS.iter().map(|case| PossibleValue::new(case.name).help(case.about));
    PossibleValuesParser::new(names).try_map(|name| {
        REPETITIONS.iter().find(|case| case.name == name).ok_or("expected a name of the list")
    })
}

pub(crate) fn run(arguments: &Bench) -> Outcome {
    let common = &arguments.common;
    match &arguments.what {
        What::Costs(it) => measure("costs", common, |effort, sheet| it.measure(effort, sheet)),
        What::Engine(it) => measure("engine", common, |effort, sheet| it.measure(effort, sheet)),
        What::Member(it) => measure("member", common, |effort, sheet| it.measure(effort, sheet)),
        What::Nbd(it) => measure("nbd", common, |effort, sheet| it.measure(effort, sheet)),
        What::Parity(it) => measure("parity", common, |effort, sheet| it.measure(effort, sheet)),
        What::Sched(OfSched {}) => {
            measure("sched", common, |effort, sheet| Ok(sched::measure(effort, sheet)?))
        }
        What::Repeat(it) => {
            let count = it.count + it.count * it.extra / 100;
            it.case.run(count)?;
            writeln!(stdout(), "{count}")?;
            Ok(Exit::Done)
        }
    }
}

/// Runs a benchmark that fills a sheet, and prints the sheet. Fails if the benchmark fails or, with
/// `--check`, if a row misses its mark or limit.
fn measure(
    bench: &'static str,
    common: &Common,
    fill: impl FnOnce(Effort, &mut Sheet) -> Result<(), Failure>,
) -> Outcome {
    let mut sheet = table::sheet(bench);
    let effort = Effort { rounds: common.rounds, quick: common.quick };
    let filled = fill(effort, &mut sheet);
    sheet.end();
    filled?;
    if common.json {
        table::print_json(&sheet)?;
    } else {
        table::print(&sheet)?;
    }
    match sheet.below_mark() {
        0 => Ok(Exit::Done),
        below if common.check => {
            Err(Failure::failed(format!("{bench}: {below} rows are below their marks")))
        }
        _ => Ok(Exit::Done),
    }
}

impl OfCosts {
    fn measure(&self, effort: Effort, sheet: &mut Sheet) -> Result<(), Failure> {
        let file = self.write.as_deref().map(|path| {
            let force = self.force;
            let asked = Output { option: "--write", path, kind: COSTS, force, members: &[] };
            ResultFile::at(&asked)
        });
        let file = file.transpose()?;
        let table = costs::measure(effort, sheet)?;
        if let Some(file) = file {
            file.write(format!("{}{}", COSTS.begin, table.to_toml()))?;
        }
        Ok(())
    }
}

impl OfEngine {
    fn measure(&self, effort: Effort, sheet: &mut Sheet) -> Result<(), Failure> {
        Ok(engine::measure(self.dir.as_deref(), effort, sheet)?)
    }
}

impl OfMember {
    fn measure(&self, effort: Effort, sheet: &mut Sheet) -> Result<(), Failure> {
        let dir = self.dir.clone().unwrap_or_else(std::env::temp_dir);
        let memory_dir = self.memory_dir.clone();
        let load = MemberLoad { dir, memory_dir, mib: self.size, seconds: self.seconds };
        Ok(load.measure(effort, sheet)?)
    }
}

impl OfNbd {
    fn measure(&self, effort: Effort, sheet: &mut Sheet) -> Result<(), Failure> {
        if let Some(socket) = &self.serve_least {
            return Ok(serve_least(socket)?);
        }
        if let Some(socket) = &self.serve_array {
            return Ok(serve_array(socket, &self.stripe_size)?);
        }
        let only = self.only.clone().unwrap_or_default();
        Ok(NbdLoad { seconds: self.seconds, only }.measure(effort, sheet)?)
    }
}

impl OfParity {
    fn measure(&self, effort: Effort, sheet: &mut Sheet) -> Result<(), Failure> {
        let only = self.only.clone().unwrap_or_default();
        Ok(ParityLoad { level: self.level, strategy: self.strategy, only }
            .measure(effort, sheet)?)
    }
}
