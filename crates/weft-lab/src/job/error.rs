//! Errors of job files, with option, section, file and line.

use weft_engine::knobs::nearest;

use super::option::known_names;

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
    #[error("{at}: option {option}: not one that weft reads{}", suggestion(option, HELP))]
    Option {
        /// Position of the option.
        at: Box<OptionPosition>,
        /// The unknown option.
        option: String,
    },
    /// The option does not allow the value.
    #[error("{at}: {option}: found {found:?}, expected {expected}")]
    Value {
        /// Position of the option.
        at: Box<OptionPosition>,
        /// Option that has the value.
        option: String,
        /// The value that the option does not allow.
        found: String,
        /// Values that would be valid.
        expected: String,
    },
    /// The option, with this value, changes the load in a way that is not simulated.
    #[error("{at}: {option} is not simulated: {reason}")]
    Refused {
        /// Position of the option.
        at: Box<OptionPosition>,
        /// The option with its value, as written.
        option: String,
        /// Reason why it is not simulated, or what is simulated instead.
        reason: &'static str,
    },
    /// Several errors, in the order of their lines.
    #[error("{}", list(.0))]
    Several(Vec<JobError>),
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

impl JobError {
    /// Position and name of the option that is at fault in a job file; `None` for an error that is
    /// not about an option there.
    pub(super) fn option(&self) -> Option<(&OptionPosition, &str)> {
        match self {
            Self::Option { at, option }
            | Self::Refused { at, option, .. }
            | Self::Value { at, option, .. } => Some((at, option)),
            Self::File { .. }
            | Self::Job { .. }
            | Self::Several(_)
            | Self::Syntax { .. }
            | Self::Text { .. } => None,
        }
    }
}

/// Position of an option: section, file and line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionPosition {
    /// Job file, or file that it includes.
    pub file: String,
    /// Number of the line, 1-based.
    pub line: usize,
    /// Section that the option is in.
    pub section: String,
}

impl std::fmt::Display for OptionPosition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: [{}]", self.file, self.line, self.section)
    }
}

/// End of a message about an unknown option if no known name is similar.
const HELP: &str = "; weft sim --help lists those";

/// Suggestion of the option that may have been meant, as the end of a message; `otherwise` if no
/// name is near.
fn suggestion(option: &str, otherwise: &str) -> String {
    nearest(option, known_names())
        .map_or_else(|| otherwise.to_owned(), |name| format!("; did you mean {name}?"))
}

/// Message with a line for each error, up to [`LISTED_MAX`] errors.
fn list(errors: &[JobError]) -> String {
    let mut text = format!("{} errors:", errors.len());
    for error in errors.iter().take(LISTED_MAX) {
        let line = match error {
            JobError::Option { at, option } => {
                format!("{at}: option {option}: not one that weft reads{}", suggestion(option, ""))
            }
            error => error.to_string(),
        };
        text.push_str("\n  ");
        text.push_str(&line);
    }
    if errors.len() > LISTED_MAX {
        text.push_str(&format!("\n  and {} more", errors.len() - LISTED_MAX));
    }
    text.push_str("\n  weft sim --help lists the options that are read, left out and refused");
    text
}

/// Largest number of errors that a message lists.
const LISTED_MAX: usize = 100;
