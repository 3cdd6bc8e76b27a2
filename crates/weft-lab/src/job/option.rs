//! Options of job files: their names, ranges and effects.
//!
//! Options of a section are kept as written, the last value of a name counts, and all are applied
//! when the section ends. `kb_base` and `iodepth` therefore apply to the whole section, wherever
//! they are written.

use super::error::{JobError, OptionPosition};
use super::option_table::{
    LEFT_OUT, OFF, OPTION_NAMES, REFUSED, Setting, Unfit, reason_in, row_of,
};
use super::parse::{ParseOptions, nothing_said};
use super::{Distribution, Job};

/// Alternative names of options in fio, each with the option's canonical name.
const ALIASES: &[(&str, &str)] = &[
    ("ba", "blockalign"),
    ("blocksize", "bs"),
    ("blocksize_range", "bsrange"),
    ("blocksize_unaligned", "bs_unaligned"),
    ("disable_bw", "disable_bw_measurement"),
    ("fdp_pli", "plids"),
    ("fdp_pli_select", "plid_select"),
    ("fill_fs", "fill_device"),
    ("io_limit", "io_size"),
    ("iodepth_batch_complete", "iodepth_batch_complete_min"),
    ("iodepth_batch_submit", "iodepth_batch"),
    ("mem", "iomem"),
    ("mem_align", "iomem_align"),
    ("nr_files", "nrfiles"),
    ("ratemin", "rate_min"),
    ("readwrite", "rw"),
    ("ss", "steadystate"),
    ("ss_dur", "steadystate_duration"),
    ("ss_interval", "steadystate_check_interval"),
    ("ss_ramp", "steadystate_ramp_time"),
    ("threads", "thread"),
    ("timeout", "runtime"),
    ("wait_for_previous", "stonewall"),
];

/// All names of options that weft knows, also those that it leaves out or refuses.
pub(super) fn known_names() -> impl Iterator<Item = &'static str> {
    let others = LEFT_OUT.iter().chain(REFUSED).flat_map(|others| others.names.iter().copied());
    let aliases = ALIASES.iter().map(|(alias, _)| *alias);
    OPTION_NAMES.iter().copied().chain(others).chain(aliases)
}

/// Options that are left out of any of these jobs, as written and each once, by reason.
#[must_use]
pub fn left_out(jobs: &[Job]) -> Vec<(&'static str, Vec<&str>)> {
    let mut by_reason: Vec<(&'static str, Vec<&str>)> = Vec::new();
    for (option, reason) in jobs.iter().flat_map(|job| &job.left_out) {
        let at = by_reason.iter().position(|(known, _)| known == reason).unwrap_or_else(|| {
            by_reason.push((reason, Vec::new()));
            by_reason.len() - 1
        });
        let options = &mut by_reason[at].1;
        if !options.contains(&option.as_str()) {
            options.push(option);
        }
    }
    by_reason
}

/// Position of an option in a job file.
#[derive(Clone, Copy)]
pub(super) struct Where<'a> {
    pub(super) file: &'a str,
    pub(super) line: usize,
    pub(super) section: &'a str,
}

impl Where<'_> {
    fn place(&self) -> Box<OptionPosition> {
        let (file, section) = (self.file.to_owned(), self.section.to_owned());
        Box::new(OptionPosition { file, line: self.line, section })
    }

    /// The error of a value that an option does not allow.
    fn unfit(&self, said: &Said, unfit: Unfit) -> JobError {
        let (option, value) = (said.written.as_str(), said.value.as_deref().unwrap_or(""));
        match unfit {
            Unfit::Expected(expected) => self.value(option, value, expected),
            Unfit::Refused(reason) => self.refused(option, Some(value), reason),
        }
    }

    fn refused(&self, option: &str, value: Option<&str>, reason: &'static str) -> JobError {
        let shown = value.filter(|value| !value.is_empty()).map(shortened);
        let option = shown.map_or(option.to_owned(), |value| format!("{option}={value}"));
        JobError::Refused { at: self.place(), option, reason }
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

/// A name or value for an error message, cut to 40 characters; no name of an fio option is longer.
fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}

/// Options of a section as written, in order.
#[derive(Clone, Default)]
pub(super) struct Settings {
    said: Vec<Said>,
}

#[derive(Clone)]
struct Said {
    /// Canonical name of the option, never an alias.
    name: String,
    /// Name of the option as written, which may be an alias.
    written: String,
    value: Option<String>,
    file: String,
    line: usize,
    /// Whether the option is from this section, not from `[global]`.
    own: bool,
}

impl Settings {
    /// A copy of the options as defaults of another section, without `name`, which fio does not
    /// pass on either.
    pub(super) fn as_defaults(&self) -> Self {
        let said = self.said.iter().filter(|said| said.name != "name").cloned();
        Self { said: said.map(|said| Said { own: false, ..said }).collect() }
    }

    /// Stores an option; its value is parsed when the section ends. Fails if the option is unknown
    /// or refused, lacks a value, or has a variable that is not set. A refused option with a value
    /// that turns it off is ignored.
    pub(super) fn set(
        &mut self,
        option: &str,
        value: Option<&str>,
        options: &ParseOptions<'_>,
        at: Where<'_>,
    ) -> Result<(), JobError> {
        let lower = option.to_ascii_lowercase();
        let alias = ALIASES.iter().find(|(alias, _)| *alias == lower);
        let name = alias.map_or(lower.as_str(), |(_, name)| name);
        let known = row_of(name);
        if let Some(reason) = reason_in(REFUSED, name) {
            if value.is_some_and(|value| OFF.contains(&value)) {
                return Ok(());
            }
            return Err(at.refused(option, value, reason));
        }
        let is_left_out = reason_in(LEFT_OUT, name).is_some();
        if known.is_none() && !is_left_out && !options.extensions.contains(&name) {
            return Err(JobError::Option { at: at.place(), option: shortened(option) });
        }
        let value = match value {
            // An option that is left out needs no value, and its variables are not replaced.
            value if is_left_out => value.map(str::to_owned),
            None if known.is_some_and(|row| row.is_switch) => None,
            None => return Err(at.value(option, "no value", "OPTION=VALUE")),
            Some(value) => Some(
                options
                    .expand(value)
                    .map_err(|variable| at.value(option, &variable, "a variable that is set"))?,
            ),
        };
        self.said.push(Said {
            name: name.to_owned(),
            written: option.to_owned(),
            value,
            file: at.file.to_owned(),
            line: at.line,
            own: true,
        });
        Ok(())
    }

    /// The job that these options describe. Errors are added to `errors`; `None` if there are any.
    pub(super) fn job(&self, name: &str, at: Where<'_>, errors: &mut Vec<JobError>) -> Option<Job> {
        let mut job = nothing_said(name);
        let mut later = Later::default();
        let before = errors.len();
        // `kb_base` comes first: the values of other options depend on it.
        let (first, others): (Vec<&Said>, Vec<&Said>) =
            self.said.iter().partition(|said| said.name == "kb_base");
        for said in first.into_iter().chain(others) {
            let section = if said.own { name } else { "global" };
            let at = Where { file: &said.file, line: said.line, section };
            if let Err(unfit) = apply(&mut job, &mut later, said) {
                errors.push(at.unfit(said, unfit));
            }
        }
        for said in self.said.iter().filter(|said| said.own) {
            let value = said.value.as_deref().unwrap_or("1").to_owned();
            job.options.retain(|(name, _)| *name != said.name);
            job.options.push((said.name.clone(), value));
        }
        later.complete(&mut job);
        if errors.len() == before
            && let Err(error) = consistent(&job, at)
        {
            errors.push(error);
        }
        (errors.len() == before).then_some(job)
    }
}

/// Checks options of a job against each other. The error is about the first option that does not
/// fit.
fn consistent(job: &Job, at: Where<'_>) -> Result<(), JobError> {
    let submission = &job.submission;
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
    if job.pattern.distribution != Distribution::Uniform && !job.pattern.random {
        return Err(at.value("random_distribution", "a sequential rw", "a random rw"));
    }
    Ok(())
}

/// Options with an effect that depends on other options, which may follow: they are applied when
/// the section ends.
pub(super) struct Later {
    pub(super) kb_base: u64,
    pub(super) complete_max: Option<u32>,
    pub(super) depth_low: Option<u32>,
    /// Whether requests bypass the page cache; `None` unless the engine decides it.
    pub(super) direct: Option<bool>,
    /// Whether the job's region extends to the end of the volume.
    pub(super) fills: bool,
}

impl Default for Later {
    fn default() -> Self {
        Self { kb_base: 1024, complete_max: None, depth_low: None, direct: None, fills: false }
    }
}

impl Later {
    fn complete(self, job: &mut Job) {
        let submission = &mut job.submission;
        submission.complete_max = self.complete_max.unwrap_or(submission.complete_min);
        submission.depth_low = self.depth_low.unwrap_or(submission.depth);
        submission.direct = self.direct.unwrap_or(submission.direct);
        if self.fills {
            (job.target.size, job.target.io_size) = (None, None);
        }
    }
}

/// Applies one option to the job.
fn apply(job: &mut Job, later: &mut Later, said: &Said) -> Result<(), Unfit> {
    let (name, text) = (said.name.as_str(), said.value.as_deref().unwrap_or("1"));
    if let Some(row) = row_of(name) {
        (row.apply)(&mut Setting { job, later, text })?;
    } else if let Some(reason) = reason_in(LEFT_OUT, name) {
        job.left_out.push((said.written.clone(), reason));
    } else {
        // The caller of the parser named this option as its own.
        job.extensions.push((name.to_owned(), text.to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::option_table::OPTIONS;
    use super::*;

    fn said(name: &str) -> Said {
        let value = Some("1".to_owned());
        let (name, written) = (name.to_owned(), name.to_owned());
        Said { name, written, value, file: String::new(), line: 1, own: true }
    }

    #[test]
    fn names_are_in_order_and_each_is_applied() {
        assert!(OPTION_NAMES.is_sorted());
        for name in OPTION_NAMES {
            let mut job = nothing_said("x");
            // An option that no row handles ends up among the extensions.
            let _ = apply(&mut job, &mut Later::default(), &said(name));
            assert!(job.extensions.is_empty() && job.left_out.is_empty(), "{name}");
        }
        assert!(OPTIONS.iter().all(|row| !row.doc.is_empty() && !row.doc.ends_with('.')));
        assert_eq!(OPTIONS.iter().filter(|row| row.is_switch).count(), 8);
    }

    #[test]
    fn a_name_is_read_or_left_out_or_refused_and_stands_once() {
        let mut names: Vec<&str> = known_names().collect();
        names.sort_unstable();
        let twice: Vec<_> = names.windows(2).filter(|two| two[0] == two[1]).collect();
        assert!(twice.is_empty(), "{twice:?}");
        for others in LEFT_OUT.iter().chain(REFUSED) {
            assert!(others.names.is_sorted(), "{}", others.reason);
        }
        for (alias, name) in ALIASES {
            assert!(known_names().any(|known| known == *name), "{alias}: {name}");
        }
        assert!(ALIASES.is_sorted());
    }
}
