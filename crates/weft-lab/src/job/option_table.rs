//! Table of the options of job files: those read, left out and refused.
//!
//! An option that is read has a row with its name, meaning and effect. Options that mean nothing to
//! a simulation, and options that would change the load in a way that is not simulated, are listed
//! by reason.
//!
//! Source   fio HOWTO; fio(1), 3.33 and 3.42

use super::engine;
use super::option::Later;
use super::value::{by_direction, bytes, range, shares, size, span, split};
use super::{Blocks, Direction, Distribution, Job, Size, Sync};
use weft_units::{Bytes, Span};

/// An option of a job file.
#[derive(Debug)]
pub struct JobOption {
    /// Name of the option in fio.
    pub name: &'static str,
    /// Meaning of the option, in a few words.
    pub doc: &'static str,
    /// Whether the option may be given without a value.
    pub is_switch: bool,
    pub(super) apply: fn(&mut Setting<'_>) -> Result<(), Unfit>,
}

/// Reason why a value cannot be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    /// The value is wrong; these values would be valid.
    Expected(&'static str),
    /// The value is valid to fio, but changes the load in a way that is not simulated.
    Refused(&'static str),
}

impl From<&'static str> for Unfit {
    fn from(expected: &'static str) -> Self {
        Self::Expected(expected)
    }
}

/// Context of an option that is applied: its value and the job.
pub(super) struct Setting<'a> {
    pub(super) job: &'a mut Job,
    pub(super) later: &'a mut Later,
    /// Value of the option, as written; `1` for a switch without a value.
    pub(super) text: &'a str,
}

impl Setting<'_> {
    fn base(&self) -> u64 {
        self.later.kb_base
    }

    fn bytes_above_0(&self, part: &str) -> Option<u64> {
        bytes(part, self.base()).filter(|bytes| *bytes > 0)
    }

    /// Parses a number of bytes, or a percentage of the volume above 0. The error describes valid
    /// values.
    fn size(&self) -> Result<Size, &'static str> {
        let size = size(self.text, self.base()).filter(|size| *size != Size::Percent(0));
        size.ok_or(SIZE_OR_PERCENT)
    }

    /// Parses an offset on the volume, or a distance between offsets. The error describes valid
    /// values.
    fn offset(&self) -> Result<Size, &'static str> {
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
/// to the job. The error of this function describes the expected value.
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
    switch!("clat_percentiles", "Percentiles of completion latencies", |it| {
        it.job.report.clat_percentiles = it.bool()?;
    }),
    option!("direct", "Past the page cache", |it| it.job.submission.direct = it.bool()?),
    option!("end_fsync", "fsync when the job has ended", |it| {
        it.job.durability.end_fsync = it.bool()?;
    }),
    option!("fdatasync", "fdatasync after so many writes", |it| {
        it.job.durability.fdatasync = it.number()?;
    }),
    option!("filename", "Files, with colons between them", |it| {
        // A colon of a name has a backslash before it.
        let names = it.text.replace("\\:", "\0");
        it.job.target.filenames = names.split(':').map(|name| name.replace('\0', ":")).collect();
    }),
    option!("filesize", "Size of each file", |it| {
        let size = it.bytes_above_0(it.text).ok_or("one size such as 4096, 4k or 1g")?;
        it.job.target.file_size = Some(Bytes(size));
    }),
    switch!("fill_device", "Up to the end of the volume, whatever `size` says", |it| {
        it.later.fills = it.bool()?;
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
    option!("ioengine", "Whether requests overlap, and go through the page cache", |it| {
        let found = engine::find(it.text);
        let row = found.map_err(|reason| reason.map_or(Unfit::Expected(ENGINE), Unfit::Refused))?;
        it.job.submission.engine = row.engine;
        it.later.direct = row.direct;
    }),
    option!("kb_base", "Bytes of a k; it holds for options before it too", |it| {
        it.later.kb_base = match it.text {
            "1000" => 1000,
            "1024" => 1024,
            _ => return Err("1000 or 1024".into()),
        };
    }),
    switch!("lat_percentiles", "Percentiles of latencies from submission on", |it| {
        it.job.report.lat_percentiles = it.bool()?;
    }),
    option!("loops", "Repetitions of the job", |it| {
        it.job.loops = it.number().ok().filter(|loops| *loops > 0).ok_or(COUNT)?;
    }),
    option!("name", "Name of the job, in place of its section's", |it| {
        it.job.name = it.text.to_owned();
    }),
    switch!("new_group", "A new group of results", |it| it.job.new_group = it.bool()?),
    switch!("norandommap", "Random offsets may come again", |it| {
        it.job.pattern.random_map = !it.bool()?;
    }),
    option!("nrfiles", "Number of files", |it| it.job.target.file_count = it.count()?),
    option!("numjobs", "Clones of the job", |it| it.job.clone_count = it.count()?),
    option!("offset", "Start of the range", |it| it.job.target.offset = Some(it.offset()?)),
    option!("offset_increment", "Distance of a clone's start from the one before", |it| {
        it.job.target.offset_increment = Some(it.offset()?);
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
            _ => return Err("linear or poisson".into()),
        };
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
            _ => return Err("none, sync or dsync".into()),
        };
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
];

/// Options of fio that are left out or refused for a common reason.
#[derive(Debug)]
pub struct Others {
    /// The reason, as the end of a sentence that begins with the options.
    pub reason: &'static str,
    /// Names of the options, in alphabetical order.
    pub names: &'static [&'static str],
}

/// Options that are left out, and reported as such: they have no effect on the simulated load.
pub const LEFT_OUT: &[Others] = &[
    Others {
        reason: "of no meaning to a simulation",
        names: &[
            "busy_poll",
            "cgroup",
            "cgroup_nodelete",
            "clientname",
            "clocksource",
            "clustername",
            "cmd_type",
            "comm",
            "conf",
            "cpumask",
            "cpus_allowed",
            "cpus_allowed_policy",
            "description",
            "fixedbufs",
            "force_async",
            "gid",
            "gtod_cpu",
            "hipri",
            "hipri_percentage",
            "hugepage-size",
            "iomem",
            "iomem_align",
            "job_start_clock_id",
            "libaio_vectored",
            "libblkio_driver",
            "libblkio_force_enable_completion_eventfd",
            "libblkio_num_entries",
            "libblkio_path",
            "libblkio_pre_connect_props",
            "libblkio_pre_start_props",
            "libblkio_queue_size",
            "libblkio_vectored",
            "libblkio_wait_mode",
            "libblkio_write_zeroes_on_trim",
            "lockmem",
            "nice",
            "no_completion_thread",
            "nonvectored",
            "nowait",
            "numa_cpu_nodes",
            "numa_mem_policy",
            "pool",
            "rbd_encryption_format",
            "rbd_encryption_passphrase",
            "rbdname",
            "registerfiles",
            "sqthread_poll",
            "sqthread_poll_cpu",
            "thp",
            "thread",
            "uid",
            "uri",
            "userspace_reap",
            "xnvme_admin",
            "xnvme_async",
            "xnvme_dev_nsid",
            "xnvme_dev_subnqn",
            "xnvme_iovec",
            "xnvme_mem",
            "xnvme_sync",
        ],
    },
    Others {
        reason: "jobs have no files, but all work on the volume, from its start or from offset=",
        names: &[
            "allow_file_create",
            "allow_mounted_write",
            "create_fsync",
            "create_on_open",
            "create_serialize",
            "directory",
            "fadvise_hint",
            "fallocate",
            "file_service_type",
            "filename_format",
            "filetype",
            "lockfile",
            "opendir",
            "openfiles",
            "overwrite",
            "unique_filename",
            "unlink",
            "unlink_each_loop",
        ],
    },
    Others {
        reason: "a simulated volume stores no bytes",
        names: &[
            "buffer_compress_chunk",
            "buffer_compress_percentage",
            "buffer_pattern",
            "dedupe_global",
            "dedupe_mode",
            "dedupe_percentage",
            "dedupe_working_set_percentage",
            "refill_buffers",
            "scramble_buffers",
            "zero_buffers",
        ],
    },
    Others {
        reason: "a simulated volume stores no bytes, so nothing is read again to verify it",
        names: &[
            "do_verify",
            "experimental_verify",
            "verify",
            "verify_async",
            "verify_async_cpus",
            "verify_backlog",
            "verify_backlog_batch",
            "verify_bytchk",
            "verify_dump",
            "verify_fatal",
            "verify_header_seed",
            "verify_interval",
            "verify_mode",
            "verify_offset",
            "verify_pattern",
            "verify_pattern_interval",
            "verify_policy",
            "verify_state_load",
            "verify_state_save",
            "verify_write_sequence",
            "verifysort",
            "verifysort_nr",
        ],
    },
    Others {
        reason: "a simulated job writes no files",
        names: &[
            "log_alternate_epoch",
            "log_alternate_epoch_clock_id",
            "log_avg_msec",
            "log_compression",
            "log_compression_cpus",
            "log_entries",
            "log_hist_coarseness",
            "log_hist_msec",
            "log_issue_time",
            "log_max_value",
            "log_offset",
            "log_prio",
            "log_store_compressed",
            "log_unix_epoch",
            "log_window_value",
            "per_job_logs",
            "write_bw_log",
            "write_hist_log",
            "write_iolog",
            "write_iops_log",
            "write_lat_log",
        ],
    },
    Others {
        reason: "results have the same figures with them and without",
        names: &[
            "block_error_percentiles",
            "bwavgtime",
            "disable_bw_measurement",
            "disable_clat",
            "disable_lat",
            "disable_slat",
            "disk_util",
            "gtod_reduce",
            "iopsavgtime",
            "significant_figures",
            "slat_percentiles",
            "stats",
            "unified_rw_reporting",
            "unit_base",
        ],
    },
    Others {
        reason: "weft draws random numbers by a generator of its own, from --seed or randseed=",
        names: &["allrandrepeat", "random_generator", "randrepeat", "softrandommap"],
    },
    Others {
        reason: "a job ends by its size or its runtime, however slow or steady it is",
        names: &[
            "max_latency",
            "rate_cycle",
            "rate_iops_min",
            "rate_min",
            "steadystate",
            "steadystate_check_interval",
            "steadystate_duration",
            "steadystate_ramp_time",
        ],
    },
    Others {
        reason: "a job goes on after a request that failed",
        names: &["continue_on_error", "error_dump", "exitall_on_error", "ignore_error"],
    },
    Others { reason: "no program is run", names: &["exec_postrun", "exec_prerun"] },
    Others {
        reason: "the models of drives take no hints",
        names: &[
            "atomic",
            "dataplacement",
            "dp_scheme",
            "fdp",
            "plid_select",
            "plids",
            "stream_id",
            "write_hint",
        ],
    },
    Others { reason: "the page cache is empty at the start", names: &["invalidate"] },
    Others { reason: "requests are handed over when they are due", names: &["io_submit_mode"] },
];

/// Options that are refused unless their value turns them off: they change the load in a way that
/// is not simulated.
pub const REFUSED: &[Others] = &[
    Others {
        reason: "jobs are not paced by the progress of others",
        names: &["flow", "flow_id", "flow_sleep"],
    },
    Others { reason: "no job ends another", names: &["exit_what", "exitall"] },
    Others {
        reason: "stonewall is simulated, which waits for all jobs before",
        names: &["wait_for"],
    },
    Others {
        reason: "neither zoned devices nor zones of a job are simulated",
        names: &[
            "ignore_zone_limits",
            "job_max_open_zones",
            "max_open_zones",
            "read_beyond_wp",
            "recover_zbd_write_error",
            "write_zone_remainders",
            "zone_reset_frequency",
            "zone_reset_threshold",
            "zonecapacity",
            "zonemode",
            "zonerange",
            "zonesize",
            "zoneskip",
        ],
    },
    Others { reason: "io_size= is simulated, which bounds a job by bytes", names: &["number_ios"] },
    Others {
        reason: "iodepth stays as it is, and is not searched for by latency",
        names: &["latency_percentile", "latency_run", "latency_target", "latency_window"],
    },
    Others {
        reason: "all requests of a job have one priority, that of prio and prioclass",
        names: &[
            "cgroup_weight",
            "cmdprio",
            "cmdprio_bssplit",
            "cmdprio_class",
            "cmdprio_hint",
            "cmdprio_percentage",
            "priohint",
        ],
    },
    Others {
        reason: "fsync and fdatasync are simulated",
        names: &["end_syncfs", "sync_file_range", "write_barrier"],
    },
    Others { reason: "weft sim has --set scheduler=NAME instead", names: &["ioscheduler"] },
    Others {
        reason: "weft replay runs logs of fio and other traces",
        names: &[
            "merge_blktrace_file",
            "merge_blktrace_iters",
            "merge_blktrace_scalars",
            "read_iolog",
            "read_iolog_chunked",
            "replay_align",
            "replay_no_stall",
            "replay_redirect",
            "replay_scale",
            "replay_skip",
            "replay_time_scale",
        ],
    },
    Others {
        reason: "requests are plain reads, writes and trims; sync=dsync makes writes FUA",
        names: &[
            "cdb_len",
            "num_range",
            "read_mode",
            "readfua",
            "sg_write_mode",
            "write_mode",
            "writefua",
        ],
    },
    Others {
        reason: "blocks have no metadata and no protection information",
        names: &["apptag", "apptag_mask", "md_per_io_size", "pi_act", "pi_chk"],
    },
    Others {
        reason: "sizes of blocks depend on the direction, and offsets are aligned to them",
        names: &["bs_is_seq_rand", "bs_unaligned", "offset_align"],
    },
    Others {
        reason: "each request has a place of its own",
        names: &["random_sequence_stride", "rw_sequencer"],
    },
    Others {
        reason: "a pause begins after thinktime_blocks requests, and no CPU is kept busy by cycles",
        names: &[
            "rate_ignore_thinktime",
            "thinkcycles",
            "thinktime_blocks_type",
            "thinktime_iotime",
        ],
    },
    Others {
        reason: "rw=trim is simulated, a job that trims",
        names: &["trim_backlog", "trim_backlog_batch", "trim_percentage", "trim_verify_zero"],
    },
    Others {
        reason: "a job is simulated from its first request to its last",
        names: &["create_only", "pre_read", "verify_only"],
    },
    Others { reason: "a volume has a fixed size", names: &["file_append"] },
    Others {
        reason: "the volume is as new; a job before with stonewall fills it",
        names: &["spr_cs", "spr_num_regions", "spr_op", "sprandom"],
    },
    Others { reason: "ramp_time is simulated", names: &["ramp_size"] },
    Others { reason: "pages stay in the page cache after a request", names: &["uncached"] },
    Others { reason: "jobs are those of the file", names: &["profile"] },
];

/// Values with which an option that is refused is turned off, or has its default.
pub(super) const OFF: &[&str] = &["0", "complete", "false", "none", "sequential"];

/// Reason why an option is in `list` ([`LEFT_OUT`] or [`REFUSED`]); `None` if the list does not
/// have the option.
pub(super) fn reason_in(list: &'static [Others], name: &str) -> Option<&'static str> {
    list.iter().find(|others| others.names.contains(&name)).map(|others| others.reason)
}

const SIZE: &str = "a size such as 4096, 4k or 1g";
const SIZE_OR_PERCENT: &str = "a size such as 4096, 4k or 1g, or a percentage such as 50%";
const ENGINE: &str = "an engine of fio for blocks, such as libaio, io_uring or psync";
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

/// Finds the row of an option by its canonical name; `None` if weft does not read such an option.
pub(super) fn row_of(name: &str) -> Option<&'static JobOption> {
    let index = OPTIONS.binary_search_by_key(&name, |row| row.name).ok()?;
    OPTIONS.get(index)
}

/// Parses a value of `rw`, such as `randwrite`, `rw:8` or `read:-8k`, and sets directions,
/// randomness and step of `pattern`.
fn direction(text: &str, base: u64, pattern: &mut super::Pattern) -> Result<(), Unfit> {
    const EXPECTED: &str = "read, write, trim, randread, randwrite, rw or randrw, then perhaps \
        :NUMBER, which may be negative if offsets are sequential";
    let (word, step) = text.split_once(':').map_or((text, None), |(word, n)| (word, Some(n)));
    let (directions, random) = match word {
        "randread" => (vec![Direction::Read], true),
        "randrw" => (vec![Direction::Read, Direction::Write], true),
        "randtrim" => (vec![Direction::Trim], true),
        "randwrite" => (vec![Direction::Write], true),
        "read" => (vec![Direction::Read], false),
        "rw" | "readwrite" => (vec![Direction::Read, Direction::Write], false),
        "trim" => (vec![Direction::Trim], false),
        "write" => (vec![Direction::Write], false),
        "randtrimwrite" | "trimwrite" => {
            return Err(Unfit::Refused("a job trims or writes; make it two, rw=trim and rw=write"));
        }
        _ => return Err(EXPECTED.into()),
    };
    let number = |text| bytes(text, base).and_then(|n| i64::try_from(n).ok()).filter(|n| *n > 0);
    let step = match step.map(|text| (text, text.strip_prefix('-'))) {
        None => 0,
        Some((_, Some(back))) if !random => -number(back).ok_or(EXPECTED)?,
        Some((text, _)) => number(text).ok_or(EXPECTED)?,
    };
    (pattern.directions, pattern.random, pattern.step) = (directions, random, step);
    Ok(())
}

/// Parses a distribution such as `zipf:1.2` or `zoned:50/10:50/90`. The error describes valid
/// values.
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
            const ZONES: &str = "zoned:REQUESTS/SIZE:…, percentages that add up to 100 each; zones \
                without a SIZE share what is left";
            let zone = |part: &str| {
                let (access, size) = part.split_once('/').unwrap_or((part, ""));
                let size = if size.is_empty() { None } else { Some(size.parse::<u32>().ok()?) };
                Some((access.parse::<u32>().ok()?, size))
            };
            let zones: Option<Vec<(u32, Option<u32>)>> = rest.split(':').map(zone).collect();
            let (requests, sizes): (Vec<u32>, Vec<Option<u32>>) =
                zones.ok_or(ZONES)?.into_iter().unzip();
            let sizes = shares(&sizes).filter(|sizes| !sizes.contains(&0)).ok_or(ZONES)?;
            if requests.iter().map(|part| u64::from(*part)).sum::<u64>() != 100 {
                return Err(ZONES);
            }
            Ok(Distribution::Zoned(requests.into_iter().zip(sizes).collect()))
        }
        _ => Err("random, zipf:…, pareto:…, normal:… or zoned:…"),
    }
}
