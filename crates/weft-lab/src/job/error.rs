//! Errors of job files, with option, section, file and line.

use super::option_table::OPTION_NAMES;

/// Reasons why a job file is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// A file cannot be read.
    #[error("{file}: {error}")]
    File {
        /// Path of the file that cannot be read.
        file: String,
        /// Error of the operating system.
        error: String,
    },
    /// A line is neither a section, an option, a comment nor an include.
    #[error("{file}:{line}: found {found:?}, expected {expected}")]
    Syntax {
        /// Job file, or file that it includes.
        file: String,
        /// Number of the line, 1-based.
        line: usize,
        /// The line, without its end if it is long.
        found: String,
        /// Kinds of line that would be valid.
        expected: String,
    },
    /// The file is not text, is too large, or ends before a section.
    #[error("{file}:{line}: found {found}, expected {expected}")]
    Text {
        /// File that is not a valid job file.
        file: String,
        /// Number of the line, 1-based.
        line: usize,
        /// Description of what is wrong at this line.
        found: &'static str,
        /// Values that would be valid.
        expected: &'static str,
    },
    /// The option is unknown to weft.
    #[error("{at}: option {option}: not one that weft reads{}", suggestion(option))]
    Option {
        /// Place of the option.
        at: Box<Place>,
        /// The unknown option.
        option: String,
    },
    /// The option does not allow the value.
    #[error("{at}: {option}: found {found:?}, expected {expected}")]
    Value {
        /// Place of the option.
        at: Box<Place>,
        /// Option that has the value.
        option: String,
        /// The value that the option does not allow.
        found: String,
        /// Values that would be valid.
        expected: String,
    },
    /// The job cannot run on this volume.
    #[error("[{job}]: {option}: found {found}, expected {expected}")]
    Job {
        /// Section of the job.
        job: String,
        /// Option that would have to be changed.
        option: String,
        /// Value that the option has on this volume.
        found: String,
        /// Range that is valid.
        expected: String,
    },
}

/// Place of an option: section, file and line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Job file, or file that it includes.
    pub file: String,
    /// Number of the line, 1-based.
    pub line: usize,
    /// Section that the option is in.
    pub section: String,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: [{}]", self.file, self.line, self.section)
    }
}

/// Suggestion of the option that may have been meant, as the end of a message.
fn suggestion(option: &str) -> String {
    let near = OPTION_NAMES
        .iter()
        .map(|name| (strsim::damerau_levenshtein(option, name), *name))
        .min()
        .filter(|(distance, _)| *distance <= 1 + option.len() / 4);
    near.map_or_else(
        || "; weft sim --help lists those".to_owned(),
        |(_, name)| format!("; did you mean {name}?"),
    )
}
