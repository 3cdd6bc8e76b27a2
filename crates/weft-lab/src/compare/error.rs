//! Reasons why runs cannot be compared.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Reasons why runs cannot be compared.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CompareError {
    /// A file or folder cannot be read.
    #[error("{path}: {source}; name a folder of runs, or a file of fio's, that can be read")]
    Read {
        /// Path of the file or folder.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A file does not have the format that its name announces.
    #[error("{path}: {field}: found {found}, expected {expected}; {advice}")]
    Field {
        /// Path of the file that is not valid.
        path: PathBuf,
        /// Field of the file, or its line.
        field: String,
        /// Content that the field has.
        found: String,
        /// Content that the field should have.
        expected: &'static str,
        /// Advice that ends the message, such as to copy the file again.
        advice: &'static str,
    },
    /// An argument contains no run.
    #[error(
        "{path}: runs: found none among {looked_at} files, expected folders with vmstat-end, fio's \
         JSON output (NAME.json), or what weft reproduce --results wrote; name a folder that has some"
    )]
    NoRun {
        /// Folder or file that the argument names.
        path: PathBuf,
        /// Number of files that were seen.
        looked_at: usize,
    },
    /// There are fewer than two sets to compare.
    #[error(
        "sets of runs: found {}, expected two or more; name another folder, or split the runs with \
         --by {choices}", if .found.is_empty() { "none".to_owned() } else { format!("only {}", .found.join(", ")) }
    )]
    Sets {
        /// Names of the sets that were found: one, or none.
        found: Vec<String>,
        /// Fields that runs can be split by.
        choices: String,
    },
    /// No set has the name that was given for the base.
    #[error("--base {name}: found no such set, expected one of {}", .known.join(", "))]
    Base {
        /// The name that was asked for.
        name: String,
        /// Names of the sets.
        known: Vec<String>,
    },
    /// A run lacks the field by which runs are to be split.
    #[error(
        "{path}: --by {by}: found a run without one, expected {expected}; leave --by out, or the run"
    )]
    By {
        /// Path of a run that lacks the field.
        path: PathBuf,
        /// Field by which runs were to be split.
        by: &'static str,
        /// Text for the message that says which runs have the field.
        expected: &'static str,
    },
    /// No case is in two sets.
    #[error(
        "cases: found none that is in two sets, expected the same names in each; {}; name folders \
         that are laid out alike, or split the runs with --by", .examples.join(", ")
    )]
    NoCommonCase {
        /// One text for each set: "SET has CASE" with one of its cases, or "SET has no METRIC".
        examples: Vec<String>,
    },
    /// No run has the metric.
    #[error(
        "--metric {name}: found in no run, expected one of {} ({} in all; --metric list lists them)",
        .near.join(", "), .count
    )]
    Metric {
        /// The name that was asked for.
        name: String,
        /// Metrics with the most similar names.
        near: Vec<String>,
        /// Number of metrics that some run has.
        count: usize,
    },
    /// A filter leaves no case to show.
    #[error("{option}: found no case, expected one of the {count} that there are, as {example}")]
    Filtered {
        /// Option that left out all cases.
        option: String,
        /// Number of cases before the filter.
        count: usize,
        /// Name of one case before the filter.
        example: String,
    },
}

impl CompareError {
    /// Whether the command line is at fault, not the files that were read.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Base { .. }
                | Self::By { .. }
                | Self::Filtered { .. }
                | Self::Metric { .. }
                | Self::Sets { .. }
        )
    }
}
