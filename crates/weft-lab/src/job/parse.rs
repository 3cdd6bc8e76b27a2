//! Parser of job files: sections, comments, variables and includes.
//!
//! `[global]` holds defaults for the sections after it. Comments begin with `#` or `;`. `${NAME}`
//! is replaced from the environment. `include FILE` reads options from a file beside this one,
//! without sections.

use super::error::JobError;
use super::option::{Settings, Where};
use super::{Blocks, Distribution, Engine, Job};
use std::io::Read;
use std::path::Path;

/// Deepest nesting of included files.
const INCLUDE_DEPTH_MAX: u32 = 16;

/// Environment of a job file: variables and included files.
#[derive(Clone, Copy)]
pub struct ParseOptions<'a> {
    /// Returns the value of a variable `${NAME}` by its name; `None` if it is not set.
    pub environment: &'a dyn Fn(&str) -> Option<String>,
    /// Returns the text of an included file, or an error message. The arguments are the file's name
    /// as written, and the name of the file that includes it.
    pub include: &'a dyn Fn(&str, &str) -> Result<String, String>,
    /// Names of the `weft_` options that the runner understands.
    pub extensions: &'a [&'a str],
}

/// Reads a job file; `${NAME}` comes from the environment of this process.
///
/// # Errors
/// The file cannot be read, or contains an option or a value that weft does not understand.
pub fn parse(path: &Path, extensions: &[&str]) -> Result<Vec<Job>, JobError> {
    let file = path.display().to_string();
    let text = text_of(path, &file)?;
    let include = |name: &str, from: &str| {
        let beside = Path::new(from).parent().unwrap_or(Path::new("")).join(name);
        text_of(&beside, name).map_err(|error| match error {
            JobError::File { error, .. } => error,
            JobError::Text { found, expected, .. } => format!("found {found}, expected {expected}"),
            error => error.to_string(),
        })
    };
    let environment = |name: &str| std::env::var(name).ok();
    let options = ParseOptions { environment: &environment, include: &include, extensions };
    parse_text(&file, &text, &options)
}

/// Reads the text of a job file called `file`.
///
/// ```
/// use weft_lab::job::{ParseOptions, parse_text};
/// let options = ParseOptions {
///     environment: &|_| None,
///     include: &|name, _| Err(format!("{name}: no files here")),
///     extensions: &[],
/// };
/// let jobs = parse_text("a.fio", "[global]\nrw=write\n[1MB write]\nbs=1MB\n", &options).unwrap();
/// assert_eq!((jobs[0].name.as_str(), jobs[0].pattern.blocks[1].largest().0), ("1MB write", 1 << 20));
/// let error = parse_text("a.fio", "[j]\nnumjob=2\n", &options).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "a.fio:2: [j]: option numjob: not one that weft reads; did you mean numjobs?"
/// );
/// ```
///
/// # Errors
/// The text contains no job, or an option or a value that weft does not understand.
pub fn parse_text(
    file: &str,
    text: &str,
    options: &ParseOptions<'_>,
) -> Result<Vec<Job>, JobError> {
    let mut reader = Reader {
        options,
        global: Settings::default(),
        current: None,
        jobs: Vec::new(),
        errors: Vec::new(),
    };
    let read = reader.read(file, text, 0);
    reader.end_section();
    let Reader { mut jobs, mut errors, .. } = reader;
    // A line that cannot be read ends the file.
    errors.extend(read.err());
    let mut errors = in_order(errors);
    if errors.len() > 1 {
        return Err(JobError::Several(errors));
    }
    if let Some(error) = errors.pop() {
        return Err(error);
    }
    if jobs.is_empty() {
        return Err(JobError::Text {
            file: file.to_owned(),
            line: text.lines().count().max(1),
            found: "the end of the file",
            expected: "a section [NAME]",
        });
    }
    let mut group = 0;
    for (at, job) in jobs.iter_mut().enumerate() {
        if at > 0 && (job.stonewall || job.new_group) {
            group += 1;
        }
        job.group = group;
    }
    Ok(jobs)
}

/// Reads the text of the file at `path`, which is called `file` in errors. Fails for a file above
/// [`FILE_BYTES_MAX`] or with bytes that are not UTF-8.
fn text_of(path: &Path, file: &str) -> Result<String, JobError> {
    let failed =
        |error: std::io::Error| JobError::File { file: file.to_owned(), error: error.to_string() };
    let mut bytes = Vec::new();
    let opened = std::fs::File::open(path).map_err(failed)?;
    opened.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    let wrong = |line, found| JobError::Text {
        file: file.to_owned(),
        line,
        found,
        expected: "a job file of fio",
    };
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(wrong(1, "more than 16 MiB"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let lines = before.iter().filter(|byte| **byte == b'\n').count();
        wrong(lines + 1, "bytes that are no text")
    })
}

/// Size limit of a job file, in bytes: far above real job files, and small in memory.
const FILE_BYTES_MAX: u64 = 16 << 20;

struct Reader<'a> {
    options: &'a ParseOptions<'a>,
    global: Settings,
    current: Option<Section>,
    jobs: Vec<Job>,
    errors: Vec<JobError>,
}

struct Section {
    name: String,
    at: (String, usize),
    settings: Settings,
}

impl Reader<'_> {
    fn read(&mut self, file: &str, text: &str, depth: u32) -> Result<(), JobError> {
        for (index, raw) in text.lines().enumerate() {
            let line = index + 1;
            let syntax = |expected: &str| JobError::Syntax {
                file: file.to_owned(),
                line,
                found: raw.trim().chars().take(80).collect(),
                expected: expected.to_owned(),
            };
            let stripped = raw.trim();
            if stripped.starts_with('[') {
                self.begin_section(file, line, stripped, depth).map_err(syntax)?;
                continue;
            }
            // As in fio, `;` and `#` begin a comment wherever they stand.
            let stripped = stripped.split([';', '#']).next().unwrap_or("").trim_end();
            if stripped.is_empty() {
                continue;
            }
            if let Some(name) = stripped.strip_prefix("include ") {
                if depth == INCLUDE_DEPTH_MAX {
                    return Err(syntax("files that include each other at most 16 deep"));
                }
                let name = name.trim();
                let text = (self.options.include)(name, file).map_err(|error| JobError::File {
                    file: format!("{file}:{line}: {name}"),
                    error,
                })?;
                let path = Path::new(file).parent().unwrap_or(Path::new("")).join(name);
                self.read(&path.display().to_string(), &text, depth + 1)?;
                continue;
            }
            let Some(section) = &mut self.current else {
                return Err(syntax("a section [NAME] before the first option"));
            };
            let (option, value) = match stripped.split_once('=') {
                Some((option, value)) => (option.trim(), Some(value.trim())),
                None => (stripped, None),
            };
            let at = Where { file, line, section: &section.name };
            let set = section.settings.set(option, value, self.options, at);
            self.errors.extend(set.err());
        }
        Ok(())
    }

    /// Begins the section of a line `[NAME]`. The error says what was expected.
    fn begin_section(
        &mut self,
        file: &str,
        line: usize,
        text: &str,
        depth: u32,
    ) -> Result<(), &'static str> {
        let (name, after) = text
            .strip_prefix('[')
            .and_then(|rest| rest.split_once(']'))
            .map(|(name, after)| (name.trim(), after.trim()))
            .ok_or("[NAME]")?;
        if name.is_empty() || !(after.is_empty() || after.starts_with(['#', ';'])) {
            return Err("[NAME] and nothing after it");
        }
        if depth > 0 {
            return Err("no section in a file that is included");
        }
        self.end_section();
        let global = name == "global";
        let settings = if global { self.global.clone() } else { self.global.as_defaults() };
        self.current =
            Some(Section { name: name.to_owned(), at: (file.to_owned(), line), settings });
        Ok(())
    }

    fn end_section(&mut self) {
        let Some(Section { name, at: (file, line), settings }) = self.current.take() else {
            return;
        };
        if name == "global" {
            self.global = settings;
            return;
        }
        let at = Where { file: &file, line, section: &name };
        self.jobs.extend(settings.job(&name, at, &mut self.errors));
    }
}

/// Errors in the order of their lines. An error of an option in `[global]`, which every job
/// repeats, is listed once.
fn in_order(mut errors: Vec<JobError>) -> Vec<JobError> {
    // An error without the position of an option ends the file, and stays last.
    errors.sort_by(|one, other| match (one.option(), other.option()) {
        (Some((one, _)), Some((other, _))) => (&one.file, one.line).cmp(&(&other.file, other.line)),
        (one, other) => one.is_none().cmp(&other.is_none()),
    });
    errors.dedup_by(|one, other| match (one.option(), other.option()) {
        (Some((at, option)), Some((before, same))) => {
            (&at.file, at.line, option) == (&before.file, before.line, same)
        }
        _ => false,
    });
    errors
}

impl ParseOptions<'_> {
    /// Replaces variables in a value. The error is the name of a variable that is not set.
    pub(super) fn expand(&self, value: &str) -> Result<String, String> {
        let mut expanded = String::new();
        let mut rest = value;
        while let Some((before, after)) = rest.split_once("${") {
            let Some((name, after)) = after.split_once('}') else { break };
            expanded.push_str(before);
            let found = (self.environment)(name).ok_or_else(|| format!("${{{name}}}"))?;
            expanded.push_str(&found);
            rest = after;
        }
        expanded.push_str(rest);
        Ok(expanded)
    }
}

/// A job with the default of every option, as if no option had been written.
pub(super) fn nothing_said(name: &str) -> Job {
    use super::{Class, Direction, Durability, Pace, Pattern, Report, Submission, Target};
    use weft_units::{Bytes, Span};
    let block = Blocks::one(Bytes(4096));
    Job {
        name: name.to_owned(),
        group: 0,
        stonewall: false,
        new_group: false,
        group_reporting: false,
        clone_count: 1,
        loops: 1,
        start_delay: Span::ZERO,
        target: Target { file_count: 1, ..Target::default() },
        pattern: Pattern {
            directions: vec![Direction::Read],
            random: false,
            step: 0,
            blocks: [block.clone(), block.clone(), block],
            block_align: None,
            read_percent: 50,
            distribution: Distribution::Uniform,
            random_map: true,
            seed: None,
            random_percent: 100,
        },
        submission: Submission {
            engine: Engine::Synchronous,
            depth: 1,
            batch: 1,
            complete_min: 1,
            complete_max: 1,
            depth_low: 1,
            direct: false,
            sync: super::Sync::None,
            serialize_overlap: false,
        },
        durability: Durability::default(),
        pace: Pace { think_blocks: 1, ..Pace::default() },
        class: Class::default(),
        report: Report {
            percentiles: super::PERCENTILES.to_vec(),
            lat_percentiles: false,
            clat_percentiles: true,
        },
        extensions: Vec::new(),
        options: Vec::new(),
        left_out: Vec::new(),
    }
}
