//! What can be wrong with a job file, and where?

use super::option::OPTION_NAMES;

/// Why a job file is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// A file cannot be read.
    #[error("{file}: {error}")]
    File {
        /// Which.
        file: String,
        /// What the system says.
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
        /// What it may be.
        expected: String,
    },
    /// Bytes that are no text, or text that ends too soon.
    #[error("{file}:{line}: found {found}, expected {expected}")]
    Text {
        /// Name of the file.
        file: String,
        /// 1-based.
        line: usize,
        /// What it is.
        found: &'static str,
        /// What may be.
        expected: &'static str,
    },
    /// An option that weft does not know.
    #[error("{at}: option {option}: not one that weft reads{}", suggestion(option))]
    Option {
        /// Where it stands.
        at: Box<Place>,
        /// Name of the option.
        option: String,
    },
    /// A value that the option does not allow.
    #[error("{at}: {option}: found {found:?}, expected {expected}")]
    Value {
        /// Where it stands.
        at: Box<Place>,
        /// Name of the option.
        option: String,
        /// What stands there.
        found: String,
        /// What may stand there.
        expected: String,
    },
    /// A job that cannot run on this volume.
    #[error("[{job}]: {option}: found {found}, expected {expected}")]
    Job {
        /// Name of the job.
        job: String,
        /// The option to change.
        option: String,
        /// What it comes to.
        found: String,
        /// What may be.
        expected: String,
    },
}

/// Where an option stands.
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
