//! Fio job files: the subset of options that weft understands, as typed values.
//!
//! [`parse`] reads them. Whatever is outside of the subset is an error that names option, section,
//! file and line, as fio's own answer does: nothing is ignored. [`generate::Generator`] turns a job
//! into its requests.
//!
//! Source   fio HOWTO; experiments.md §6; answers of fio 3.33

mod distribution;
mod error;
pub mod generate;
mod option;
mod option_table;
mod parse;
mod rng;
mod value;

pub use error::{JobError, Place};
pub use option_table::{JobOption, OPTION_NAMES, OPTIONS};
pub use parse::{ParseOptions, parse, parse_text};
pub use value::Size;

use weft_units::{Bytes, Span};

/// A job: one section of a file, with what `[global]` said before it.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Name of the section.
    pub name: String,
    /// fio's `groupid`: jobs of one group are reported together and run together.
    pub group: u32,
    /// It starts when all before it have ended.
    pub stonewall: bool,
    /// It begins a group without waiting.
    pub new_group: bool,
    /// Clones and jobs of the group are reported as one.
    pub group_reporting: bool,
    /// How many clones run at the same time (`numjobs`).
    pub clone_count: u32,
    /// Number of repetitions of the job.
    pub loops: u64,
    /// It waits so long before it starts.
    pub start_delay: Span,
    /// Region that the job works on.
    pub target: Target,
    /// Pattern of the requests.
    pub pattern: Pattern,
    /// Way in which requests are handed over.
    pub submission: Submission,
    /// When the job calls fsync or fdatasync.
    pub durability: Durability,
    /// Rate and pauses.
    pub pace: Pace,
    /// As whom.
    pub class: Class,
    /// Trace that the job replays, or that it is recorded into.
    pub replay: Replay,
    /// Settings of the report.
    pub report: Report,
    /// Options of weft itself (`weft_…`), for whoever runs the job.
    pub extensions: Vec<(String, String)>,
    /// Options of its own section, as written.
    pub options: Vec<(String, String)>,
}

/// Region that a job works on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Target {
    /// `filename`, split at colons.
    pub filenames: Vec<String>,
    /// Folder of the files.
    pub directory: Option<String>,
    /// `nrfiles`.
    pub file_count: u32,
    /// Region, and bytes of a pass.
    pub size: Option<Size>,
    /// Bytes to transfer instead.
    pub io_size: Option<Size>,
    /// First byte of the region.
    pub offset: Option<Size>,
    /// Offset added for each further clone (`offset_increment`).
    pub offset_increment: Option<Size>,
    /// Size of a file: the region, where it is given.
    pub file_size: Option<Bytes>,
}

/// Direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From the volume.
    Read = 0,
    /// To the volume.
    Write = 1,
    /// Nowhere: the range is given up.
    Trim = 2,
}

/// Pattern of a job's requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Pattern {
    /// The directions that occur: one, or read and write.
    pub directions: Vec<Direction>,
    /// Whether offsets are random.
    pub random: bool,
    /// `rw=…:n`. Random: so many requests follow each other before the next random offset.
    /// Sequential: so many bytes are left out between requests. 0 is neither.
    pub step: u64,
    /// Block sizes of each direction.
    pub blocks: [Blocks; 3],
    /// Random offsets are multiples of this; each direction's smallest block otherwise. With it,
    /// blocks may repeat.
    pub block_align: Option<[Bytes; 3]>,
    /// Percentage of reads among reads and writes.
    pub read_percent: u8,
    /// Distribution of random offsets.
    pub distribution: Distribution,
    /// Each block once per pass.
    pub random_map: bool,
    /// `randseed`.
    pub seed: Option<u64>,
    /// `randrepeat`: the same each time.
    pub repeat: bool,
    /// Percentage of random ones among a random job's requests.
    pub random_percent: u8,
}

/// Sizes of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blocks {
    /// Multiples of the smallest, all equally likely.
    Range {
        /// Smallest.
        low: Bytes,
        /// Largest.
        high: Bytes,
    },
    /// Sizes with their percentages, which add up to 100.
    Split(Vec<(Bytes, u32)>),
}

impl Blocks {
    /// One size.
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
    /// Around one block, with this standard deviation in percent of all blocks.
    Normal(f64),
    /// Self-similar: this part of the blocks gets all but this part of the requests.
    Pareto(f64),
    /// Each block equally.
    Uniform,
    /// The block of rank k as often as k to minus this.
    Zipf(f64),
    /// Percentages of requests, and of the region that they go to.
    Zoned(Vec<(u32, u32)>),
}

/// Way in which requests are handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Submission {
    /// Engine of fio that was asked for.
    pub engine: Engine,
    /// Most requests at the same time.
    pub depth: u32,
    /// Number of requests that are handed over at once.
    pub batch: u32,
    /// Fewest that are waited for.
    pub complete_min: u32,
    /// Most that are taken at once.
    pub complete_max: u32,
    /// Once full, the queue is let empty to this.
    pub depth_low: u32,
    /// Past the page cache.
    pub direct: bool,
    /// Durability of writes at their completion (`sync`).
    pub sync: Sync,
    /// A request waits for those that it overlaps.
    pub serialize_overlap: bool,
}

/// The engines whose jobs weft takes; all become its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fio's names")]
pub enum Engine {
    IoUring,
    Libaio,
    Null,
    Psync,
    Sync,
}

/// `sync=`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// O_DSYNC.
    Data,
    /// Not.
    None,
    /// O_SYNC.
    Whole,
}

/// When a job calls fsync, fdatasync or `sync_file_range`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Durability {
    /// fsync after so many writes; 0 is never.
    pub fsync: u64,
    /// fdatasync after so many writes; 0 is never.
    pub fdatasync: u64,
    /// fsync when the job ends.
    pub end_fsync: bool,
    /// fsync when a file is closed.
    pub fsync_on_close: bool,
    /// sync_file_range with these modes after so many writes.
    pub sync_file_range: Option<(Vec<String>, u64)>,
}

/// Rate and pauses of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// Pause after a request that completed.
    pub think_time: Span,
    /// Part of each pause that is spent working, not asleep (`thinktime_spin`).
    pub think_time_spin: Span,
    /// Requests before a pause.
    pub think_blocks: u64,
    /// Most bytes in a second, by direction.
    pub rate: [Option<Bytes>; 3],
    /// Most requests in a second, by direction.
    pub rate_iops: [Option<u64>; 3],
    /// Rated requests come at random, not evenly.
    pub poisson: bool,
    /// Time before anything counts.
    pub ramp_time: Span,
    /// Longest time.
    pub runtime: Option<Span>,
    /// The job goes on for all of its runtime.
    pub time_based: bool,
}

/// As whom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Class {
    /// 0 (highest) to 7.
    pub prio: Option<u8>,
    /// 0 none, 1 real time, 2 best effort, 3 idle.
    pub prio_class: Option<u8>,
    /// 100 to 1000.
    pub cgroup_weight: Option<u32>,
}

/// Trace that the job replays, or that it is recorded into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// The trace to replay instead of a pattern.
    pub read_iolog: Option<String>,
    /// As fast as possible.
    pub no_stall: bool,
    /// Speed in percent of the trace's.
    pub time_scale: u32,
    /// Offsets are divided by this.
    pub scale: u64,
    /// Offsets are rounded down to this.
    pub align: Bytes,
    /// The log to write.
    pub write_iolog: Option<String>,
}

/// Settings of a job's report.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Percentiles.
    pub percentiles: Vec<f64>,
    /// Percentiles of the whole latency.
    pub lat_percentiles: bool,
    /// Percentiles of the latency from handing over.
    pub clat_percentiles: bool,
    /// Name of the bandwidth log (`write_bw_log`), empty for the default one.
    pub write_bw_log: Option<String>,
    /// Log of latencies.
    pub write_lat_log: Option<String>,
    /// Log of requests.
    pub write_iops_log: Option<String>,
    /// Logs hold averages over this.
    pub log_average: Span,
}

/// The percentiles that fio tells unless asked for others.
pub const PERCENTILES: [f64; 17] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95,
    99.99,
];
