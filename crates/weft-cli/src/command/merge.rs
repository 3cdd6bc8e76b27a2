//! `weft merge`: joins results of single settings of a sweep into the output of the whole sweep.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::Value;
use weft_lab::simulate::part::{Part, join};
use weft_terminal::outcome::{Failure, Outcome};
use weft_terminal::terminal::label;

use crate::simulated::{Form, print_joined};

/// Joins results of weft sim --part into what the sweep prints
///
/// weft sim --sweep … --list (or weft replay) prints one command line for each setting. The lines
/// run anywhere, in any order; their outputs are the files to join, also several in one file. What
/// is printed has the same bytes as the output of the sweep with all settings.
#[derive(Debug, Args)]
pub(crate) struct Merge {
    /// Outputs of the command lines of --list, in any order
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Print one JSON object, as the sweep does with --json
    #[arg(long)]
    json: bool,
    /// Print comma-separated values: a row for each job and setting
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Writes the comparison to a page of HTML
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// Overwrite the page that --report names
    #[arg(long, requires = "report")]
    force: bool,
}

pub(crate) fn run(arguments: &Merge) -> Outcome {
    let form = [arguments.json, arguments.csv];
    let form = Form::of(form, arguments.report.as_deref(), arguments.force)?;
    let mut parts = Vec::new();
    for path in &arguments.files {
        let file = label(path);
        parts.extend(read(path, &file)?.into_iter().map(|part| (file.clone(), part)));
    }
    let joined = join(parts).map_err(Failure::failed)?;
    print_joined(form, joined)
}

/// Reads the parts in a file, which may have several, in their order. A file without parts is an
/// error.
fn read(path: &Path, file: &str) -> Result<Vec<Part>, Failure> {
    let text = std::fs::read(path)
        .map_err(|error| Failure::failed(format!("{file}: {error}; name a file to read")))?;
    let wrong = |found: String| {
        Failure::failed(format!(
            "{file}: found {found}, expected what weft sim --part prints; run its line of --list again"
        ))
    };
    let mut parts = Vec::new();
    for value in serde_json::Deserializer::from_slice(&text).into_iter::<Value>() {
        let value = value.map_err(|error| wrong(format!("no whole JSON ({error})")))?;
        if let Some(error) = value["error"].as_str() {
            return Err(wrong(format!("the error {error:?}")));
        }
        parts.push(
            serde_json::from_value(value).map_err(|error| wrong(format!("JSON with {error}")))?,
        );
    }
    if parts.is_empty() {
        return Err(wrong("nothing".to_owned()));
    }
    Ok(parts)
}
