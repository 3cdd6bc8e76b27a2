//! Options of job files: their names, ranges and effects.
//!
//! Options of a section are kept as written, the last value of a name counts, and all are applied
//! when the section ends. `kb_base` and `iodepth` therefore apply to the whole section, wherever
//! they are written.

use super::error::{JobError, Place};
use super::option_table::{Setting, row_of};
use super::parse::nothing_said;
use super::{Distribution, Job};

/// Alternative names of options in fio.
const ALIASES: &[(&str, &str)] = &[
    ("blocksize", "bs"),
    ("blocksize_range", "bsrange"),
    ("io_limit", "io_size"),
    ("iodepth_batch_complete", "iodepth_batch_complete_min"),
    ("iodepth_batch_submit", "iodepth_batch"),
    ("readwrite", "rw"),
    ("wait_for_previous", "stonewall"),
];

/// Position of an option in a job file.
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
    /// The canonical name: that of the option's row, never an alias.
    name: String,
    /// The name as written.
    written: String,
    value: Option<String>,
    file: String,
    line: usize,
    /// Whether the option is from this section, not from `[global]`.
    own: bool,
}

impl Settings {
    /// A copy of the options as defaults of another section.
    pub(super) fn as_defaults(&self) -> Self {
        let said = self.said.iter().cloned();
        Self { said: said.map(|said| Said { own: false, ..said }).collect() }
    }

    /// Stores an option; its value is parsed when the section ends.
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
        let known = row_of(name);
        if known.is_none() && !extensions.contains(&name) {
            // No option has a longer name.
            let option = option.chars().take(40).collect();
            return Err(JobError::Option { at: at.place(), option });
        }
        if value.is_none() && !known.is_some_and(|row| row.is_switch) {
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
        // `kb_base` comes first: the values of other options depend on it.
        for said in self.said.iter().filter(|said| said.name == "kb_base") {
            let at = Where { file: &said.file, line: said.line, section: name };
            let value = said.value.as_deref();
            if let Err(expected) = apply(&mut job, &mut later, "kb_base", value) {
                return Err(at.value("kb_base", value.unwrap_or(""), expected));
            }
        }
        for said in &self.said {
            let at = Where { file: &said.file, line: said.line, section: name };
            let value = said.value.as_deref();
            if said.name != "kb_base"
                && let Err(expected) = apply(&mut job, &mut later, &said.name, value)
            {
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

/// Options with an effect that depends on other options, which may follow: they are applied when
/// the section ends.
pub(super) struct Later {
    pub(super) kb_base: u64,
    pub(super) complete_max: Option<u32>,
    pub(super) depth_low: Option<u32>,
}

/// Applies one option to the job. The error describes the values that would be valid.
fn apply(
    job: &mut Job,
    later: &mut Later,
    name: &str,
    value: Option<&str>,
) -> Result<(), &'static str> {
    let text = value.unwrap_or("1");
    match row_of(name) {
        Some(row) => (row.apply)(&mut Setting { job, later, text, value })?,
        // The caller of the parser named this option as its own.
        None => job.extensions.push((name.to_owned(), text.to_owned())),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::option_table::{OPTION_NAMES, OPTIONS};
    use super::*;

    #[test]
    fn names_are_in_order_and_each_is_applied() {
        assert!(OPTION_NAMES.is_sorted());
        for name in OPTION_NAMES {
            let mut job = nothing_said("x");
            let mut later = Later { kb_base: 1024, complete_max: None, depth_low: None };
            // An option that no row handles ends up among the extensions.
            let _ = apply(&mut job, &mut later, name, Some("1"));
            assert!(job.extensions.is_empty(), "{name}");
        }
        assert!(ALIASES.iter().all(|(_, name)| OPTION_NAMES.contains(name)));
        assert!(OPTIONS.iter().all(|row| !row.doc.is_empty() && !row.doc.ends_with('.')));
        assert_eq!(OPTIONS.iter().filter(|row| row.is_switch).count(), 11);
    }
}
