//! Options of job files: their names, ranges and effects.
//!
//! Options of a section are kept as written, the last of a name counts, and all are applied when
//! the section ends: so `kb_base` and `iodepth` hold wherever they stand.

use super::error::{JobError, Place};
use super::parse::nothing_said;
use super::value::{by_direction, bytes, range, size, span, split};
use super::{Blocks, Direction, Distribution, Engine, Job, Sync};
use weft_units::{Bytes, Span};

/// Every option that weft reads, in alphabetical order.
pub const OPTION_NAMES: &[&str] = &[
    "blockalign",
    "bs",
    "bsrange",
    "bssplit",
    "buffered",
    "cgroup_weight",
    "clat_percentiles",
    "direct",
    "directory",
    "end_fsync",
    "fdatasync",
    "filename",
    "filesize",
    "fsync",
    "fsync_on_close",
    "group_reporting",
    "io_size",
    "iodepth",
    "iodepth_batch",
    "iodepth_batch_complete_max",
    "iodepth_batch_complete_min",
    "iodepth_low",
    "ioengine",
    "kb_base",
    "lat_percentiles",
    "log_avg_msec",
    "loops",
    "new_group",
    "norandommap",
    "nrfiles",
    "numjobs",
    "offset",
    "offset_increment",
    "percentage_random",
    "percentile_list",
    "prio",
    "prioclass",
    "ramp_time",
    "random_distribution",
    "randrepeat",
    "randseed",
    "rate",
    "rate_iops",
    "rate_process",
    "read_iolog",
    "replay_align",
    "replay_no_stall",
    "replay_scale",
    "replay_time_scale",
    "runtime",
    "rw",
    "rwmixread",
    "rwmixwrite",
    "serialize_overlap",
    "size",
    "startdelay",
    "stonewall",
    "sync",
    "sync_file_range",
    "thinktime",
    "thinktime_blocks",
    "thinktime_spin",
    "time_based",
    "write_bw_log",
    "write_iolog",
    "write_iops_log",
    "write_lat_log",
];

/// Other names that fio has for these.
const ALIASES: &[(&str, &str)] = &[
    ("blocksize", "bs"),
    ("blocksize_range", "bsrange"),
    ("io_limit", "io_size"),
    ("iodepth_batch_complete", "iodepth_batch_complete_min"),
    ("iodepth_batch_submit", "iodepth_batch"),
    ("readwrite", "rw"),
    ("wait_for_previous", "stonewall"),
];

/// Options that stand without a value.
const SWITCHES: &[&str] = &[
    "clat_percentiles",
    "group_reporting",
    "lat_percentiles",
    "new_group",
    "norandommap",
    "replay_no_stall",
    "stonewall",
    "time_based",
    "write_bw_log",
    "write_iops_log",
    "write_lat_log",
];

/// Where an option stands.
#[derive(Clone, Copy)]
pub(super) struct Where<'a> {
    pub(super) file: &'a str,
    pub(super) line: usize,
    pub(super) section: &'a str,
}

impl Where<'_> {
    fn place(&self) -> Box<Place> {
        let (file, section) = (self.file.to_owned(), self.section.to_owned());
        Box::new(Place { file, line: self.line, section })
    }

    pub(super) fn value(&self, option: &str, found: &str, expected: &str) -> JobError {
        JobError::Value {
            at: self.place(),
            option: option.to_owned(),
            found: found.to_owned(),
            expected: expected.to_owned(),
        }
    }
}

/// Options as written, in order.
#[derive(Clone, Default)]
pub(super) struct Settings {
    said: Vec<Said>,
}

#[derive(Clone)]
struct Said {
    /// The canonical name.
    name: String,
    /// As written.
    written: String,
    value: Option<String>,
    file: String,
    line: usize,
    /// In this section, not in `[global]`.
    own: bool,
}

impl Settings {
    /// The same, as defaults of another section.
    pub(super) fn as_defaults(&self) -> Self {
        let said = self.said.iter().cloned();
        Self { said: said.map(|said| Said { own: false, ..said }).collect() }
    }

    /// Takes an option; its value is looked at when the section ends.
    pub(super) fn set(
        &mut self,
        option: &str,
        value: Option<&str>,
        extensions: &[&str],
        at: Where<'_>,
    ) -> Result<(), JobError> {
        let lower = option.to_ascii_lowercase();
        let alias = ALIASES.iter().find(|(alias, _)| *alias == lower);
        let name = alias.map_or(lower.as_str(), |(_, name)| name);
        if !OPTION_NAMES.contains(&name) && !extensions.contains(&name) {
            // Nothing that is longer is a name.
            let option = option.chars().take(40).collect();
            return Err(JobError::Option { at: at.place(), option });
        }
        if value.is_none() && !SWITCHES.contains(&name) {
            return Err(at.value(option, "no value", "OPTION=VALUE"));
        }
        self.said.push(Said {
            name: name.to_owned(),
            written: option.to_owned(),
            value: value.map(str::to_owned),
            file: at.file.to_owned(),
            line: at.line,
            own: true,
        });
        Ok(())
    }

    /// The job that these options describe.
    pub(super) fn job(&self, name: &str, at: Where<'_>) -> Result<Job, JobError> {
        let mut job = nothing_said(name);
        let mut later = Later { kb_base: 1024, complete_max: None, depth_low: None };
        // First what the meaning of others depends on.
        for said in self.said.iter().filter(|said| said.name == "kb_base") {
            later.kb_base = match said.value.as_deref() {
                Some("1000") => 1000,
                Some("1024") => 1024,
                found => {
                    let at = Where { file: &said.file, line: said.line, section: name };
                    return Err(at.value("kb_base", found.unwrap_or(""), "1000 or 1024"));
                }
            };
        }
        for said in &self.said {
            let at = Where { file: &said.file, line: said.line, section: name };
            let value = said.value.as_deref();
            if let Err(expected) = apply(&mut job, &mut later, &said.name, value) {
                return Err(at.value(&said.written, value.unwrap_or(""), expected));
            }
            if said.own {
                let value = value.unwrap_or("1").to_owned();
                job.options.retain(|(name, _)| *name != said.name);
                job.options.push((said.name.clone(), value));
            }
        }
        let submission = &mut job.submission;
        submission.complete_max = later.complete_max.unwrap_or(submission.complete_min);
        submission.depth_low = later.depth_low.unwrap_or(submission.depth);
        for (option, found) in [
            ("iodepth_batch", submission.batch),
            ("iodepth_batch_complete_min", submission.complete_min),
            ("iodepth_low", submission.depth_low),
        ] {
            if found > submission.depth {
                let expected = format!("at most iodepth, {}", submission.depth);
                return Err(at.value(option, &found.to_string(), &expected));
            }
        }
        if submission.complete_max < submission.complete_min {
            let found = submission.complete_max.to_string();
            let expected = format!("at least {}", submission.complete_min);
            return Err(at.value("iodepth_batch_complete_max", &found, &expected));
        }
        if job.pace.time_based && job.pace.runtime.is_none() {
            return Err(at.value("time_based", "no runtime", "runtime=… in the same job"));
        }
        let random = job.pattern.random;
        if job.pattern.distribution != Distribution::Uniform && !random {
            return Err(at.value("random_distribution", "a sequential rw", "a random rw"));
        }
        Ok(job)
    }
}

/// What depends on options that may come later.
struct Later {
    kb_base: u64,
    complete_max: Option<u32>,
    depth_low: Option<u32>,
}

/// Applies one option; an error is what was expected.
fn apply(
    job: &mut Job,
    later: &mut Later,
    name: &str,
    value: Option<&str>,
) -> Result<(), &'static str> {
    const SIZE: &str = "a size such as 4096, 4k or 1g";
    const SIZE_OR_PERCENT: &str = "a size such as 4096, 4k or 1g, or a percentage such as 50%";
    const COUNT: &str = "a number above 0";
    const BOOL: &str = "0 or 1";
    const TIME: &str = "a time such as 30, 30s, 500ms or 2m";
    const PERCENT: &str = "a number of 0..=100";
    let text = value.unwrap_or("1");
    let base = later.kb_base;
    let (micro, second) = (Span(1_000), Span::secs(1));
    let a_size = || size(text, base).ok_or(SIZE_OR_PERCENT);
    let a_number = || text.parse::<u64>().map_err(|_| "a number");
    let a_count = || text.parse::<u32>().ok().filter(|count| *count > 0).ok_or(COUNT);
    let a_time = |unit| span(text, unit).ok_or(TIME);
    let a_percent = || text.parse::<u8>().ok().filter(|percent| *percent <= 100).ok_or(PERCENT);
    let a_bool = || match text {
        "0" | "false" => Ok(false),
        "1" | "true" => Ok(true),
        _ => Err(BOOL),
    };
    let a_log = || Some(value.unwrap_or_default().to_owned());
    let (pattern, submission) = (&mut job.pattern, &mut job.submission);
    let (pace, target) = (&mut job.pace, &mut job.target);
    match name {
        "blockalign" => {
            let one = |part: &str| bytes(part, base).filter(|size| *size > 0).map(Bytes);
            let before = pattern.blocks.each_ref().map(Blocks::smallest);
            pattern.block_align = Some(by_direction(text, before, one).ok_or(SIZE)?);
        }
        "bs" => {
            let one = |part: &str| {
                bytes(part, base).filter(|size| *size > 0).map(|size| Blocks::one(Bytes(size)))
            };
            pattern.blocks = by_direction(text, pattern.blocks.clone(), one).ok_or(SIZE)?;
        }
        "bsrange" => {
            let one = |part: &str| range(part, base).map(|(low, high)| Blocks::Range { low, high });
            pattern.blocks = by_direction(text, pattern.blocks.clone(), one)
                .ok_or("a range of sizes such as 4k-64k")?;
        }
        "bssplit" => {
            let one = |part: &str| split(part, base).map(Blocks::Split);
            pattern.blocks = by_direction(text, pattern.blocks.clone(), one)
                .ok_or("sizes with percentages that add up to 100, such as 4k/30:64k/70")?;
        }
        "buffered" => submission.direct = !a_bool()?,
        "cgroup_weight" => {
            let weight = text.parse().ok().filter(|weight| (100..=1000).contains(weight));
            job.class.cgroup_weight = Some(weight.ok_or("a number of 100..=1000")?);
        }
        "clat_percentiles" => job.report.clat_percentiles = a_bool()?,
        "direct" => submission.direct = a_bool()?,
        "directory" => target.directory = Some(text.to_owned()),
        "end_fsync" => job.durability.end_fsync = a_bool()?,
        "fdatasync" => job.durability.fdatasync = a_number()?,
        "filename" => target.filenames = text.split(':').map(str::to_owned).collect(),
        "filesize" => {
            let size = bytes(text, base).filter(|size| *size > 0);
            target.file_size = Some(Bytes(size.ok_or("one size such as 4096, 4k or 1g")?));
        }
        "fsync" => job.durability.fsync = a_number()?,
        "fsync_on_close" => job.durability.fsync_on_close = a_bool()?,
        "group_reporting" => job.group_reporting = a_bool()?,
        "io_size" => target.io_size = Some(a_size()?),
        "iodepth" => submission.depth = a_count()?,
        "iodepth_batch" => submission.batch = a_count()?,
        "iodepth_batch_complete_max" => later.complete_max = Some(a_count()?),
        "iodepth_batch_complete_min" => {
            submission.complete_min = text.parse().map_err(|_| "a number")?;
        }
        "iodepth_low" => later.depth_low = Some(a_count()?),
        "ioengine" => {
            submission.engine = match text {
                "io_uring" => Engine::IoUring,
                "libaio" => Engine::Libaio,
                "null" => Engine::Null,
                "psync" => Engine::Psync,
                "sync" => Engine::Sync,
                _ => return Err("io_uring, libaio, null, psync or sync"),
            }
        }
        "kb_base" => {}
        "lat_percentiles" => job.report.lat_percentiles = a_bool()?,
        "log_avg_msec" => job.report.log_average = a_time(Span::millis(1))?,
        "loops" => job.loops = a_number().ok().filter(|loops| *loops > 0).ok_or(COUNT)?,
        "new_group" => job.new_group = a_bool()?,
        "norandommap" => pattern.random_map = !a_bool()?,
        "nrfiles" => target.file_count = a_count()?,
        "numjobs" => job.clone_count = a_count()?,
        "offset" => target.offset = Some(a_size()?),
        "offset_increment" => target.offset_increment = Some(a_size()?),
        "percentage_random" => pattern.random_percent = a_percent()?,
        "percentile_list" => {
            let parts = text.split(':').map(|part| part.trim().parse::<f64>().ok());
            let list: Option<Vec<f64>> = parts.collect();
            let fits = |list: &Vec<f64>| list.iter().all(|part| *part > 0.0 && *part <= 100.0);
            let list = list.filter(fits).ok_or("percentages such as 50:99:99.9")?;
            job.report.percentiles = list;
        }
        "prio" => {
            let prio = text.parse().ok().filter(|prio| *prio <= 7);
            job.class.prio = Some(prio.ok_or("a number of 0..=7")?);
        }
        "prioclass" => {
            let class = text.parse().ok().filter(|class| *class <= 3);
            job.class.prio_class = Some(class.ok_or("a number of 0..=3")?);
        }
        "ramp_time" => pace.ramp_time = a_time(second)?,
        "random_distribution" => pattern.distribution = distribution(text)?,
        "randrepeat" => pattern.repeat = a_bool()?,
        "randseed" => pattern.seed = Some(a_number()?),
        "rate" => {
            let one =
                |part: &str| bytes(part, base).filter(|rate| *rate > 0).map(|r| Some(Bytes(r)));
            pace.rate = by_direction(text, pace.rate, one).ok_or(SIZE)?;
        }
        "rate_iops" => {
            let one = |part: &str| bytes(part, base).filter(|rate| *rate > 0).map(Some);
            pace.rate_iops = by_direction(text, pace.rate_iops, one).ok_or(COUNT)?;
        }
        "rate_process" => {
            pace.poisson = match text {
                "linear" => false,
                "poisson" => true,
                _ => return Err("linear or poisson"),
            }
        }
        "read_iolog" => job.replay.read_iolog = Some(text.to_owned()),
        "replay_align" => {
            let align = bytes(text, base).filter(|align| *align == 0 || align.is_power_of_two());
            job.replay.align = Bytes(align.ok_or("0 or a power of two")?);
        }
        "replay_no_stall" => job.replay.no_stall = a_bool()?,
        "replay_scale" => {
            job.replay.scale = a_number().ok().filter(|scale| *scale > 0).ok_or(COUNT)?;
        }
        "replay_time_scale" => job.replay.time_scale = a_count()?,
        "runtime" => pace.runtime = Some(a_time(second)?).filter(|time| *time != Span::ZERO),
        "rw" => direction(text, base, pattern)?,
        "rwmixread" => pattern.read_percent = a_percent()?,
        "rwmixwrite" => pattern.read_percent = 100 - a_percent()?,
        "serialize_overlap" => submission.serialize_overlap = a_bool()?,
        "size" => target.size = Some(a_size()?),
        "startdelay" => job.start_delay = a_time(second)?,
        "stonewall" => job.stonewall = a_bool()?,
        "sync" => {
            submission.sync = match text {
                "0" | "none" => Sync::None,
                "1" | "sync" => Sync::Whole,
                "dsync" => Sync::Data,
                _ => return Err("none, sync or dsync"),
            }
        }
        "sync_file_range" => job.durability.sync_file_range = Some(sync_file_range(text)?),
        "thinktime" => pace.think_time = a_time(micro)?,
        "thinktime_blocks" => pace.think_blocks = u64::from(a_count()?),
        "thinktime_spin" => pace.think_time_spin = a_time(micro)?,
        "time_based" => pace.time_based = a_bool()?,
        "write_bw_log" => job.report.write_bw_log = a_log(),
        "write_iolog" => job.replay.write_iolog = Some(text.to_owned()),
        "write_iops_log" => job.report.write_iops_log = a_log(),
        "write_lat_log" => job.report.write_lat_log = a_log(),
        // The runner named it when it asked for this file to be read.
        _ => job.extensions.push((name.to_owned(), text.to_owned())),
    }
    Ok(())
}

/// `randwrite`, `rw:8`, …
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

/// `zipf:1.2`, `zoned:50/10:50/90`, …
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
            let part = number().filter(|part| *part > 0.0 && *part < 1.0);
            part.map(Distribution::Pareto).ok_or("pareto:PART, between 0 and 1")
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

/// `wait_before,write:8`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_order_and_each_is_applied() {
        assert!(OPTION_NAMES.is_sorted());
        for name in OPTION_NAMES {
            let mut job = nothing_said("x");
            let mut later = Later { kb_base: 1024, complete_max: None, depth_low: None };
            // An option that falls through to the extensions was forgotten.
            let _ = apply(&mut job, &mut later, name, Some("1"));
            assert!(job.extensions.is_empty(), "{name}");
        }
        assert!(ALIASES.iter().all(|(_, name)| OPTION_NAMES.contains(name)));
        assert!(SWITCHES.iter().all(|name| OPTION_NAMES.contains(name)));
    }
}
