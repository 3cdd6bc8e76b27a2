//! Errors of job files, with option, section, file and line.

use super::option_table::OPTION_NAMES;

/// Reasons why a job file is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// A file cannot be read.
    #[error("{file}: {error}")]
    File {
        /// Path of the file.
        file: String,
        /// Error of the operating system.
        error: String,
    },
    /// A line that is no section, option, comment or include.
    #[error("{file}:{line}: found {found:?}, expected {expected}")]
    Syntax {
        /// Name of the file.
        file: String,
        /// 1-based.
        line: usize,
        /// The line.
        found: String,
        /// Values that would be valid.
        expected: String,
    },
    /// Bytes that are no text, or text that ends too soon.
    #[error("{file}:{line}: found {found}, expected {expected}")]
    Text {
        /// Name of the file.
        file: String,
        /// 1-based.
        line: usize,
        /// Value that was found.
        found: &'static str,
        /// Values that would be valid.
        expected: &'static str,
    },
    /// An option that weft does not know.
    #[error("{at}: option {option}: not one that weft reads{}", suggestion(option))]
    Option {
        /// Place of the option.
        at: Box<Place>,
        /// Name of the option.
        option: String,
    },
    /// A value that the option does not allow.
    #[error("{at}: {option}: found {found:?}, expected {expected}")]
    Value {
        /// Place of the option.
        at: Box<Place>,
        /// Name of the option.
        option: String,
        /// Value that was found.
        found: String,
        /// Values that would be valid.
        expected: String,
    },
    /// A job that cannot run on this volume.
    #[error("[{job}]: {option}: found {found}, expected {expected}")]
    Job {
        /// Name of the job.
        job: String,
        /// The option to change.
        option: String,
        /// Value that results.
        found: String,
        /// Range that is valid.
        expected: String,
    },
}

/// Place of an option: section, file and line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Name of the file.
    pub file: String,
    /// 1-based.
    pub line: usize,
    /// Name of the section.
    pub section: String,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: [{}]", self.file, self.line, self.section)
    }
}

/// The option that was perhaps meant, as the end of a message.
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
