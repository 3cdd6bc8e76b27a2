//! Table of the options of job files: one row per option, with its name, meaning and effect.

use super::option::Later;
use super::value::{by_direction, bytes, range, size, span, split};
use super::{Blocks, Direction, Distribution, Engine, Job, Size, Sync};
use weft_units::{Bytes, Span};

/// An option of a job file.
#[derive(Debug)]
pub struct JobOption {
    /// Name of the option in fio.
    pub name: &'static str,
    /// Meaning, in a few words.
    pub doc: &'static str,
    /// Whether the option may be given without a value.
    pub is_switch: bool,
    pub(super) apply: fn(&mut Setting<'_>) -> Result<(), &'static str>,
}

/// Context of an option that is applied: its value and the job.
pub(super) struct Setting<'a> {
    pub(super) job: &'a mut Job,
    pub(super) later: &'a mut Later,
    /// The value; `1` for a switch without one.
    pub(super) text: &'a str,
    /// The value, if there is one.
    pub(super) value: Option<&'a str>,
}

impl Setting<'_> {
    fn base(&self) -> u64 {
        self.later.kb_base
    }

    fn bytes_above_0(&self, part: &str) -> Option<u64> {
        bytes(part, self.base()).filter(|bytes| *bytes > 0)
    }

    fn size(&self) -> Result<Size, &'static str> {
        size(self.text, self.base()).ok_or(SIZE_OR_PERCENT)
    }

    fn number(&self) -> Result<u64, &'static str> {
        self.text.parse().map_err(|_| "a number")
    }

    fn count(&self) -> Result<u32, &'static str> {
        self.text.parse().ok().filter(|count| *count > 0).ok_or(COUNT)
    }

    fn time(&self, unit: Span) -> Result<Span, &'static str> {
        span(self.text, unit).ok_or("a time such as 30, 30s, 500ms or 2m")
    }

    fn percent(&self) -> Result<u8, &'static str> {
        let percent = self.text.parse().ok().filter(|percent| *percent <= 100);
        percent.ok_or("a number of 0..=100")
    }

    fn bool(&self) -> Result<bool, &'static str> {
        match self.text {
            "0" | "false" => Ok(false),
            "1" | "true" => Ok(true),
            _ => Err("0 or 1"),
        }
    }

    /// Name of a log file, `Some("")` if the option has no value.
    fn log(&self) -> Option<String> {
        Some(self.value.unwrap_or_default().to_owned())
    }
}

/// Makes a row of [`OPTIONS`].
macro_rules! option {
    ($name:literal, $doc:literal, |$it:ident| $apply:expr) => {
        row!($name, $doc, false, |$it| $apply)
    };
}

/// Makes a row of [`OPTIONS`] for an option that may be given without a value.
macro_rules! switch {
    ($name:literal, $doc:literal, |$it:ident| $apply:expr) => {
        row!($name, $doc, true, |$it| $apply)
    };
}

macro_rules! row {
    ($name:literal, $doc:literal, $is_switch:literal, |$it:ident| $apply:expr) => {
        JobOption {
            name: $name,
            doc: $doc,
            is_switch: $is_switch,
            apply: |$it| {
                $apply;
                Ok(())
            },
        }
    };
}

/// Options in alphabetical order, one per row: name, meaning, and the function that applies a value
/// to the job. Its error describes the expected value.
pub const OPTIONS: &[JobOption] = &[
    option!("blockalign", "Alignment of random offsets, by direction", |it| {
        let one = |part: &str| it.bytes_above_0(part).map(Bytes);
        let before = it.job.pattern.blocks.each_ref().map(Blocks::smallest);
        it.job.pattern.block_align = Some(by_direction(it.text, before, one).ok_or(SIZE)?);
    }),
    option!("bs", "Size of a block, by direction", |it| {
        let one = |part: &str| it.bytes_above_0(part).map(|size| Blocks::one(Bytes(size)));
        let before = it.job.pattern.blocks.clone();
        it.job.pattern.blocks = by_direction(it.text, before, one).ok_or(SIZE)?;
    }),
    option!("bsrange", "Range of sizes of a block, by direction", |it| {
        let one =
            |part: &str| range(part, it.base()).map(|(low, high)| Blocks::Range { low, high });
        let before = it.job.pattern.blocks.clone();
        it.job.pattern.blocks =
            by_direction(it.text, before, one).ok_or("a range of sizes such as 4k-64k")?;
    }),
    option!("bssplit", "Sizes of a block with their shares, by direction", |it| {
        let one = |part: &str| split(part, it.base()).map(Blocks::Split);
        let before = it.job.pattern.blocks.clone();
        it.job.pattern.blocks = by_direction(it.text, before, one)
            .ok_or("sizes with percentages that add up to 100, such as 4k/30:64k/70")?;
    }),
    option!("buffered", "Through the page cache", |it| it.job.submission.direct = !it.bool()?),
    option!("cgroup_weight", "Weight of the clone's control group", |it| {
        let weight = it.text.parse().ok().filter(|weight| (100..=1000).contains(weight));
        it.job.class.cgroup_weight = Some(weight.ok_or("a number of 100..=1000")?);
    }),
    switch!("clat_percentiles", "Percentiles of completion latencies", |it| {
        it.job.report.clat_percentiles = it.bool()?;
    }),
    option!("direct", "Past the page cache", |it| it.job.submission.direct = it.bool()?),
    option!("directory", "Folder of the files", |it| {
        it.job.target.directory = Some(it.text.to_owned());
    }),
    option!("end_fsync", "fsync when the job has ended", |it| {
        it.job.durability.end_fsync = it.bool()?;
    }),
    option!("fdatasync", "fdatasync after so many writes", |it| {
        it.job.durability.fdatasync = it.number()?;
    }),
    option!("filename", "Files, with colons between them", |it| {
        it.job.target.filenames = it.text.split(':').map(str::to_owned).collect();
    }),
    option!("filesize", "Size of each file", |it| {
        let size = it.bytes_above_0(it.text).ok_or("one size such as 4096, 4k or 1g")?;
        it.job.target.file_size = Some(Bytes(size));
    }),
    option!("fsync", "fsync after so many writes", |it| it.job.durability.fsync = it.number()?),
    option!("fsync_on_close", "fsync when a file is closed", |it| {
        it.job.durability.fsync_on_close = it.bool()?;
    }),
    switch!("group_reporting", "One result for all clones", |it| {
        it.job.group_reporting = it.bool()?;
    }),
    option!("io_size", "Bytes that are moved, if not `size`", |it| {
        it.job.target.io_size = Some(it.size()?);
    }),
    option!("iodepth", "Requests in flight, at most", |it| {
        it.job.submission.depth = it.count()?;
    }),
    option!("iodepth_batch", "Requests handed over at a time", |it| {
        it.job.submission.batch = it.count()?;
    }),
    option!("iodepth_batch_complete_max", "Answers taken at a time, at most", |it| {
        it.later.complete_max = Some(it.count()?);
    }),
    option!("iodepth_batch_complete_min", "Answers taken at a time, at least", |it| {
        it.job.submission.complete_min = it.text.parse().map_err(|_| "a number")?;
    }),
    option!("iodepth_low", "Requests in flight below which more are handed over", |it| {
        it.later.depth_low = Some(it.count()?);
    }),
    option!("ioengine", "Way to hand requests over", |it| {
        it.job.submission.engine = match it.text {
            "io_uring" => Engine::IoUring,
            "libaio" => Engine::Libaio,
            "null" => Engine::Null,
            "psync" => Engine::Psync,
            "sync" => Engine::Sync,
            _ => return Err("io_uring, libaio, null, psync or sync"),
        };
    }),
    option!("kb_base", "Bytes of a k; it holds for options before it too", |it| {
        it.later.kb_base = match it.text {
            "1000" => 1000,
            "1024" => 1024,
            _ => return Err("1000 or 1024"),
        };
    }),
    switch!("lat_percentiles", "Percentiles of latencies from submission on", |it| {
        it.job.report.lat_percentiles = it.bool()?;
    }),
    option!("log_avg_msec", "Time over which a log takes the mean", |it| {
        it.job.report.log_average = it.time(Span::millis(1))?;
    }),
    option!("loops", "Repetitions of the job", |it| {
        it.job.loops = it.number().ok().filter(|loops| *loops > 0).ok_or(COUNT)?;
    }),
    switch!("new_group", "A new group of results", |it| it.job.new_group = it.bool()?),
    switch!("norandommap", "Random offsets may come again", |it| {
        it.job.pattern.random_map = !it.bool()?;
    }),
    option!("nrfiles", "Number of files", |it| it.job.target.file_count = it.count()?),
    option!("numjobs", "Clones of the job", |it| it.job.clone_count = it.count()?),
    option!("offset", "Start of the range", |it| it.job.target.offset = Some(it.size()?)),
    option!("offset_increment", "Distance of a clone's start from the one before", |it| {
        it.job.target.offset_increment = Some(it.size()?);
    }),
    option!("percentage_random", "Share of offsets that are random", |it| {
        it.job.pattern.random_percent = it.percent()?;
    }),
    option!("percentile_list", "Percentiles that are reported", |it| {
        let parts = it.text.split(':').map(|part| part.trim().parse::<f64>().ok());
        let list: Option<Vec<f64>> = parts.collect();
        let fits = |list: &Vec<f64>| list.iter().all(|part| *part > 0.0 && *part <= 100.0);
        it.job.report.percentiles = list.filter(fits).ok_or("percentages such as 50:99:99.9")?;
    }),
    option!("prio", "I/O priority within its class", |it| {
        let prio = it.text.parse().ok().filter(|prio| *prio <= 7);
        it.job.class.prio = Some(prio.ok_or("a number of 0..=7")?);
    }),
    option!("prioclass", "Class of I/O priority", |it| {
        let class = it.text.parse().ok().filter(|class| *class <= 3);
        it.job.class.prio_class = Some(class.ok_or("a number of 0..=3")?);
    }),
    option!("ramp_time", "Time before anything is measured", |it| {
        it.job.pace.ramp_time = it.time(SECOND)?;
    }),
    option!("random_distribution", "Distribution of random offsets", |it| {
        it.job.pattern.distribution = distribution(it.text)?;
    }),
    option!("randrepeat", "The same random offsets in every run", |it| {
        it.job.pattern.repeat = it.bool()?;
    }),
    option!("randseed", "Seed of random offsets", |it| {
        it.job.pattern.seed = Some(it.number()?);
    }),
    option!("rate", "Bytes a second, at most, by direction", |it| {
        let one = |part: &str| it.bytes_above_0(part).map(|rate| Some(Bytes(rate)));
        it.job.pace.rate = by_direction(it.text, it.job.pace.rate, one).ok_or(SIZE)?;
    }),
    option!("rate_iops", "Requests a second, at most, by direction", |it| {
        let one = |part: &str| it.bytes_above_0(part).map(Some);
        it.job.pace.rate_iops = by_direction(it.text, it.job.pace.rate_iops, one).ok_or(COUNT)?;
    }),
    option!("rate_process", "Times between requests at a rate", |it| {
        it.job.pace.poisson = match it.text {
            "linear" => false,
            "poisson" => true,
            _ => return Err("linear or poisson"),
        };
    }),
    option!("read_iolog", "Log of requests to replay", |it| {
        it.job.replay.read_iolog = Some(it.text.to_owned());
    }),
    option!("replay_align", "Alignment of replayed requests", |it| {
        let align = bytes(it.text, it.base());
        let align = align.filter(|align| *align == 0 || align.is_power_of_two());
        it.job.replay.align = Bytes(align.ok_or("0 or a power of two")?);
    }),
    switch!("replay_no_stall", "Replay without the log's pauses", |it| {
        it.job.replay.no_stall = it.bool()?;
    }),
    option!("replay_scale", "Divisor of replayed offsets", |it| {
        it.job.replay.scale = it.number().ok().filter(|scale| *scale > 0).ok_or(COUNT)?;
    }),
    option!("replay_time_scale", "Speed of a replay, percent", |it| {
        it.job.replay.time_scale = it.count()?;
    }),
    option!("runtime", "Time after which the job ends", |it| {
        it.job.pace.runtime = Some(it.time(SECOND)?).filter(|time| *time != Span::ZERO);
    }),
    option!("rw", "Directions, and whether offsets are random", |it| {
        direction(it.text, it.base(), &mut it.job.pattern)?;
    }),
    option!("rwmixread", "Share of reads", |it| it.job.pattern.read_percent = it.percent()?),
    option!("rwmixwrite", "Share of writes", |it| {
        it.job.pattern.read_percent = 100 - it.percent()?;
    }),
    option!("serialize_overlap", "A request waits for those that it overlaps", |it| {
        it.job.submission.serialize_overlap = it.bool()?;
    }),
    option!("size", "Bytes of the range", |it| it.job.target.size = Some(it.size()?)),
    option!("startdelay", "Time before the job starts", |it| {
        it.job.start_delay = it.time(SECOND)?;
    }),
    switch!("stonewall", "Starts when all jobs before it have ended", |it| {
        it.job.stonewall = it.bool()?;
    }),
    option!("sync", "O_SYNC or O_DSYNC", |it| {
        it.job.submission.sync = match it.text {
            "0" | "none" => Sync::None,
            "1" | "sync" => Sync::Whole,
            "dsync" => Sync::Data,
            _ => return Err("none, sync or dsync"),
        };
    }),
    option!("sync_file_range", "sync_file_range after so many writes", |it| {
        it.job.durability.sync_file_range = Some(sync_file_range(it.text)?);
    }),
    option!("thinktime", "Pause between requests", |it| {
        it.job.pace.think_time = it.time(MICROSECOND)?;
    }),
    option!("thinktime_blocks", "Requests between two pauses", |it| {
        it.job.pace.think_blocks = u64::from(it.count()?);
    }),
    option!("thinktime_spin", "Part of a pause that keeps a CPU busy", |it| {
        it.job.pace.think_time_spin = it.time(MICROSECOND)?;
    }),
    switch!("time_based", "Begins again until `runtime` is over", |it| {
        it.job.pace.time_based = it.bool()?;
    }),
    switch!("write_bw_log", "Log of bandwidth", |it| it.job.report.write_bw_log = it.log()),
    option!("write_iolog", "Log of requests to write", |it| {
        it.job.replay.write_iolog = Some(it.text.to_owned());
    }),
    switch!("write_iops_log", "Log of requests a second", |it| {
        it.job.report.write_iops_log = it.log();
    }),
    switch!("write_lat_log", "Log of latencies", |it| it.job.report.write_lat_log = it.log()),
];

const SIZE: &str = "a size such as 4096, 4k or 1g";
const SIZE_OR_PERCENT: &str = "a size such as 4096, 4k or 1g, or a percentage such as 50%";
const COUNT: &str = "a number above 0";
const MICROSECOND: Span = Span(1_000);
const SECOND: Span = Span(1_000_000_000);

/// Names of the options that weft reads, in alphabetical order.
pub const OPTION_NAMES: &[&str] = &{
    let mut names = [""; OPTIONS.len()];
    let mut index = 0;
    while index < names.len() {
        names[index] = OPTIONS[index].name;
        index += 1;
    }
    names
};

/// Finds the row of an option.
pub(super) fn row_of(name: &str) -> Option<&'static JobOption> {
    let index = OPTIONS.binary_search_by_key(&name, |row| row.name).ok()?;
    OPTIONS.get(index)
}

/// Parses a direction: `randwrite`, `rw:8`, …
fn direction(text: &str, base: u64, pattern: &mut super::Pattern) -> Result<(), &'static str> {
    const EXPECTED: &str =
        "read, write, trim, randread, randwrite, rw or randrw, then perhaps :NUMBER";
    let (word, step) = text.split_once(':').map_or((text, None), |(word, n)| (word, Some(n)));
    let (directions, random) = match word {
        "randread" => (vec![Direction::Read], true),
        "randrw" => (vec![Direction::Read, Direction::Write], true),
        "randwrite" => (vec![Direction::Write], true),
        "read" => (vec![Direction::Read], false),
        "rw" | "readwrite" => (vec![Direction::Read, Direction::Write], false),
        "trim" => (vec![Direction::Trim], false),
        "write" => (vec![Direction::Write], false),
        _ => return Err(EXPECTED),
    };
    let step = step.map_or(Some(0), |n| bytes(n, base).filter(|n| *n > 0)).ok_or(EXPECTED)?;
    (pattern.directions, pattern.random, pattern.step) = (directions, random, step);
    Ok(())
}

/// Parses a distribution: `zipf:1.2`, `zoned:50/10:50/90`, …
fn distribution(text: &str) -> Result<Distribution, &'static str> {
    let (word, rest) = text.split_once(':').unwrap_or((text, ""));
    let number = || rest.parse::<f64>().ok().filter(|number| number.is_finite());
    match word {
        "random" if rest.is_empty() => Ok(Distribution::Uniform),
        "normal" => {
            let deviation = number().filter(|dev| (0.0..=100.0).contains(dev));
            deviation.map(Distribution::Normal).ok_or("normal:PERCENT, 0 to 100")
        }
        "pareto" => {
            let share = number().filter(|share| *share > 0.0 && *share < 1.0);
            share.map(Distribution::Pareto).ok_or("pareto:PART, between 0 and 1")
        }
        "zipf" => {
            let theta = number().filter(|theta| *theta > 0.0 && *theta <= 10.0);
            theta.map(Distribution::Zipf).ok_or("zipf:THETA, above 0 and up to 10")
        }
        "zoned" => {
            const ZONES: &str = "zoned:REQUESTS/SIZE:…, percentages that add up to 100 each";
            let zone = |part: &str| {
                let (access, size) = part.split_once('/')?;
                Some((access.parse::<u32>().ok()?, size.parse::<u32>().ok()?))
            };
            let zones: Option<Vec<(u32, u32)>> = rest.split(':').map(zone).collect();
            let whole = |zones: &Vec<(u32, u32)>| {
                let sum = |part: fn(&(u32, u32)) -> u32| {
                    zones.iter().map(|z| u64::from(part(z))).sum::<u64>()
                };
                sum(|zone| zone.0) == 100
                    && sum(|zone| zone.1) == 100
                    && zones.iter().all(|zone| zone.1 > 0)
            };
            zones.filter(whole).map(Distribution::Zoned).ok_or(ZONES)
        }
        _ => Err("random, zipf:…, pareto:…, normal:… or zoned:…"),
    }
}

/// Parses modes and number of writes: `wait_before,write:8`.
fn sync_file_range(text: &str) -> Result<(Vec<String>, u64), &'static str> {
    const EXPECTED: &str = "some of wait_before, write and wait_after, then :NUMBER of writes";
    let (modes, writes) = text.rsplit_once(':').ok_or(EXPECTED)?;
    let modes: Vec<String> = modes.split(',').map(str::to_owned).collect();
    if !modes.iter().all(|mode| ["wait_before", "write", "wait_after"].contains(&mode.as_str())) {
        return Err(EXPECTED);
    }
    let writes = writes.parse().ok().filter(|writes| *writes > 0).ok_or(EXPECTED)?;
    Ok((modes, writes))
}
