//! User pages and the commands that they name. The tests of each program check that the program has
//! these commands and their options.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Path of the workspace's root.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// README.md and the user pages of `docs/` that this function lists, each with its path and text.
///
/// # Panics
/// Panics if a page is missing.
#[must_use]
pub fn pages() -> Vec<(PathBuf, String)> {
    let names = ["README.md"].into_iter().map(str::to_owned);
    let docs = [
        "compare",
        "glossary",
        "python",
        "reference",
        "replay",
        "reproduce",
        "rescue",
        "schedulers",
        "serve",
        "tune",
    ];
    let paths = names.chain(docs.iter().map(|name| format!("docs/{name}.md")));
    let read =
        |path: String| (root().join(&path), std::fs::read_to_string(root().join(path)).unwrap());
    paths.map(read).collect()
}

/// Command lines that call `program`, from a Markdown page: indented code, `$` lines of fenced
/// blocks, and code spans. Comments after indented code and `$` lines are cut off.
#[must_use]
pub fn commands_named(page: &str, program: &str) -> Vec<String> {
    let begin = format!("{program} ");
    let mut found = Vec::new();
    let mut fenced = false;
    let mut paragraph = String::new();
    for line in page.lines().chain([""]) {
        if line.starts_with("```") {
            fenced = !fenced;
        }
        let code = if fenced { line.strip_prefix("$ ") } else { line.strip_prefix("    ") };
        if let Some(code) = code {
            found.push(code.split("  #").next().unwrap_or_default().trim_end().to_owned());
        }
        if fenced || code.is_some() || line.is_empty() {
            found.extend(paragraph.split('`').skip(1).step_by(2).map(str::to_owned));
            paragraph.clear();
        } else {
            paragraph += line.trim_start();
            paragraph.push(' ');
        }
    }
    found.retain(|code| code.starts_with(&begin));
    found
}

/// The `--help` texts of the commands of a program. A text is requested when it is first needed.
pub struct Helps<F> {
    ask: F,
    known: BTreeMap<String, Option<String>>,
}

impl<F: FnMut(&str) -> Option<String>> Helps<F> {
    /// Creates a collection that has requested no text yet. `ask` returns the output of
    /// `PROGRAM NAME --help`, or `None` if there is no command `NAME`.
    pub fn new(ask: F) -> Self {
        Self { ask, known: BTreeMap::new() }
    }

    /// Messages about a command line: one if the program lacks the command, or else one for each
    /// option that the command lacks. Empty if there is no second word, or if it contains other
    /// characters than lower-case letters and so cannot name a command (`weft COMMAND`, `weft -V`).
    pub fn unknown(&mut self, code: &str) -> Vec<String> {
        let mut words = code.split([' ', '|', ';']).skip(1).filter(|word| !word.is_empty());
        let Some(name) = words.next().filter(|name| name.chars().all(|c| c.is_ascii_lowercase()))
        else {
            return Vec::new();
        };
        let help = self.known.entry(name.to_owned()).or_insert_with(|| (self.ask)(name));
        let Some(help) = help else { return vec![format!("{code}: no command {name:?}")] };
        let options = words.take_while(|word| !["||", "--"].contains(word)).filter_map(|word| {
            let option = word.split(['=', '[']).next().unwrap_or_default();
            (option.starts_with("--") && option.len() > 2).then_some(option)
        });
        let listed: BTreeSet<&str> =
            help.split([' ', '\n', ',', '=', '[']).filter(|word| word.starts_with("--")).collect();
        options
            .filter(|option| !listed.contains(option))
            .map(|option| format!("{code}: no option {option}"))
            .collect()
    }
}
