//! Fio job files: the subset of options that weft understands, as typed values.
//!
//! [`parse()`] reads job files. Options that mean nothing to a simulation are left out and kept as
//! such ([`left_out()`]). Anything else outside of the subset is an error that names option,
//! section, file and line, as fio reports them, all of them at once. [`generate::Generator`] turns
//! a job into requests.
//!
//! Source   fio HOWTO; experiments.md §6; answers of fio 3.33

mod distribution;
pub mod engine;
mod error;
pub mod generate;
mod option;
mod option_table;
mod parse;
mod rng;
mod value;

pub use engine::Engine;
pub use error::{JobError, OptionPosition};
pub use option::left_out;
pub use option_table::{JobOption, LEFT_OUT, OPTION_NAMES, OPTIONS, Others, REFUSED};
pub use parse::{ParseOptions, parse, parse_text};
pub use value::Size;

use weft_units::{Bytes, Span};

/// A job: one section of a file, with the defaults that `[global]` set before it.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Name of the section.
    pub name: String,
    /// fio's `groupid`: jobs of one group are reported together and run together.
    pub group: u32,
    /// Whether the job waits until all jobs before it have ended (`stonewall`).
    pub stonewall: bool,
    /// Whether the job begins a new group without waiting (`new_group`).
    pub new_group: bool,
    /// Whether clones and jobs of the group are reported as one.
    pub group_reporting: bool,
    /// Number of clones that run at the same time (`numjobs`).
    pub clone_count: u32,
    /// Number of times that the job's bytes are transferred (`loops`).
    pub loops: u64,
    /// Delay before the job starts.
    pub start_delay: Span,
    /// Region that the job works on.
    pub target: Target,
    /// Pattern of the requests.
    pub pattern: Pattern,
    /// Parameters of submission: engine, depth, batches.
    pub submission: Submission,
    /// Calls of fsync and fdatasync by the job.
    pub durability: Durability,
    /// Rate of the requests, and pauses between them.
    pub pace: Pace,
    /// Priority under which the job issues requests.
    pub class: Class,
    /// Settings of the report.
    pub report: Report,
    /// Options of weft itself (`weft_…`), for the runner of the job.
    pub extensions: Vec<(String, String)>,
    /// Options of the job's own section, as written.
    pub options: Vec<(String, String)>,
    /// Options that are left out, as written, each with the reason.
    pub left_out: Vec<(String, &'static str)>,
}

/// Region that a job works on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Target {
    /// Names of the job's files: `filename`, split at colons.
    pub filenames: Vec<String>,
    /// Number of files (`nrfiles`).
    pub file_count: u32,
    /// Size of the region, which is also the number of bytes of a pass; `None` for all bytes from
    /// `offset` to the end of the volume.
    pub size: Option<Size>,
    /// Number of bytes to transfer, in place of `size`; `None` for `size`.
    pub io_size: Option<Size>,
    /// First byte of the region of the first clone; `None` for byte 0.
    pub offset: Option<Size>,
    /// Offset added for each further clone (`offset_increment`); `None` if all clones have the same
    /// region.
    pub offset_increment: Option<Size>,
    /// Size of the file (`filesize`), which begins at byte 0 of the volume. With a size, the region
    /// ends at the end of the file, and `size` is only the number of bytes of a pass; `None` for no
    /// such end.
    pub file_size: Option<Bytes>,
}

/// Direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// Read from the volume.
    Read = 0,
    /// Write to the volume.
    Write = 1,
    /// No transfer: the range is discarded.
    Trim = 2,
}

/// Pattern of a job's requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Pattern {
    /// The directions that occur: one direction, or read and write.
    pub directions: Vec<Direction>,
    /// Whether offsets are random.
    pub random: bool,
    /// `rw=…:n`. Random: number of requests from one random offset to the next. Sequential: number
    /// of bytes skipped between requests, backwards if negative. 0 disables both.
    pub step: i64,
    /// Sizes of requests, by [`Direction`].
    pub blocks: [Blocks; 3],
    /// Alignment of random offsets, by [`Direction`]; `None` for the smallest block of each
    /// direction. With an alignment, blocks may repeat.
    pub block_align: Option<[Bytes; 3]>,
    /// Percentage of reads among reads and writes.
    pub read_percent: u8,
    /// Distribution of random offsets.
    pub distribution: Distribution,
    /// Whether each block is used once per pass.
    pub random_map: bool,
    /// Seed of the random sequence (`randseed`); `None` for the seed of the run.
    pub seed: Option<u64>,
    /// Percentage of random requests in a random job.
    pub random_percent: u8,
}

/// Sizes of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blocks {
    /// Multiples of the smallest size up to the largest, all equally likely.
    Range {
        /// Smallest size.
        low: Bytes,
        /// Largest size.
        high: Bytes,
    },
    /// Sizes with their percentages, which add up to 100.
    Split(Vec<(Bytes, u32)>),
}

impl Blocks {
    /// Requests of one size only.
    #[must_use]
    pub fn one(size: Bytes) -> Self {
        Self::Range { low: size, high: size }
    }

    /// The smallest size.
    #[must_use]
    pub fn smallest(&self) -> Bytes {
        match self {
            Self::Range { low, .. } => *low,
            Self::Split(sizes) => sizes.iter().map(|(size, _)| *size).min().unwrap_or_default(),
        }
    }

    /// The largest size.
    #[must_use]
    pub fn largest(&self) -> Bytes {
        match self {
            Self::Range { high, .. } => *high,
            Self::Split(sizes) => sizes.iter().map(|(size, _)| *size).max().unwrap_or_default(),
        }
    }
}

/// Distribution of random offsets.
#[derive(Clone, Debug, PartialEq)]
pub enum Distribution {
    /// Normal distribution around one block; the number is the standard deviation in percent of all
    /// blocks.
    Normal(f64),
    /// Self-similar with parameter h: a share h of the blocks gets a share 1 - h of the requests,
    /// and so on within each part.
    Pareto(f64),
    /// All blocks with the same frequency.
    Uniform,
    /// Zipf with parameter theta: the block of rank k has a frequency proportional to k^-theta.
    Zipf(f64),
    /// Percentage of the requests, and of the region, for each zone.
    Zoned(Vec<(u32, u32)>),
}

/// Parameters of submission: engine, depth, batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Submission {
    /// Meaning of the engine of fio that the job names.
    pub engine: Engine,
    /// Largest number of requests in flight (`iodepth`).
    pub depth: u32,
    /// Number of requests submitted at once (`iodepth_batch`).
    pub batch: u32,
    /// Fewest completions that are waited for at once (`iodepth_batch_complete_min`).
    pub complete_min: u32,
    /// Largest number of completions reaped at once (`iodepth_batch_complete_max`).
    pub complete_max: u32,
    /// Queue depth to which a full queue drains before more requests are submitted.
    pub depth_low: u32,
    /// Whether requests bypass the page cache (`direct`).
    pub direct: bool,
    /// Durability of writes at their completion (`sync`).
    pub sync: Sync,
    /// Whether a request waits for overlapping requests in flight.
    pub serialize_overlap: bool,
}

/// Durability of each write at its completion (`sync=`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// `dsync`: writes are O_DSYNC, durable with the metadata that is needed to read them.
    Data,
    /// Writes carry no sync flag.
    None,
    /// `sync`: writes are O_SYNC, durable with all metadata.
    Whole,
}

/// Calls of fsync and fdatasync by a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Durability {
    /// Number of writes from one fsync to the next; 0 for no fsync.
    pub fsync: u64,
    /// Number of writes from one fdatasync to the next; 0 for no fdatasync.
    pub fdatasync: u64,
    /// Whether an fsync follows when the job ends.
    pub end_fsync: bool,
    /// Whether an fsync follows when a file is closed.
    pub fsync_on_close: bool,
}

/// Rate and pauses of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// Length of a pause between requests.
    pub think_time: Span,
    /// Part of each pause that is spent busy, not asleep (`thinktime_spin`).
    pub think_time_spin: Span,
    /// Number of requests from one pause to the next.
    pub think_blocks: u64,
    /// Largest number of bytes in a second, by [`Direction`]; `None` for no limit.
    pub rate: [Option<Bytes>; 3],
    /// Largest number of requests in a second, by [`Direction`]; `None` for no limit.
    pub rate_iops: [Option<u64>; 3],
    /// Whether rated requests arrive at random times, not evenly.
    pub poisson: bool,
    /// Time at the start of the job that is not measured.
    pub ramp_time: Span,
    /// Time limit of the job; `None` for no limit.
    pub runtime: Option<Span>,
    /// Whether the job runs for all of its runtime.
    pub time_based: bool,
}

/// Priority under which a job issues requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Class {
    /// Priority level, 0 (highest) to 7; `None` if the job sets no level.
    pub prio: Option<u8>,
    /// Priority class: 0 none, 1 real time, 2 best effort, 3 idle; `None` if the job sets no class.
    pub prio_class: Option<u8>,
}

/// Settings of a job's report.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Percentiles to report, in percent.
    pub percentiles: Vec<f64>,
    /// Whether percentiles of the total latency are reported.
    pub lat_percentiles: bool,
    /// Whether percentiles of the latency from submission are reported.
    pub clat_percentiles: bool,
}

/// The percentiles that fio reports by default, in percent.
pub const PERCENTILES: [f64; 17] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95,
    99.99,
];
