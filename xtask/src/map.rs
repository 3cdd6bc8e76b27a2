//! Generated documents: the list of modules in `docs/modules.md`, and the last column of the table
//! in `docs/statements.md`.
//!
//! The first sentence of a source file describes its content. `cargo xtask map` writes these
//! sentences, by crate, into the list; `check` fails if a document is out of date, or if a file
//! begins without such a sentence. [`crate::statements`] has the table.

use crate::{statements, tree};
use anyhow::Context;
use std::fmt::Write as _;
use std::path::PathBuf;

const HEAD: &str = "\
# Modules

Every source file of the crates with the first sentence of its module comment. `cargo xtask map`
writes this page; `cargo xtask check` fails when it is stale. [ARCHITECTURE.md](../ARCHITECTURE.md)
says how the parts fit together.
";

/// Width of the list, in columns.
const WIDTH_MAX: usize = 100;

/// Each generated document with its expected text.
fn documents() -> anyhow::Result<Vec<(PathBuf, String)>> {
    let table = tree::root().join(statements::DOCUMENT);
    let text = std::fs::read_to_string(&table)?;
    let text = statements::updated(&text, &statements::cited_in_tree());
    Ok(vec![(tree::root().join("docs/modules.md"), modules()?), (table, text)])
}

/// The list of modules: every source file of the crates.
fn modules() -> anyhow::Result<String> {
    let mut list = HEAD.to_owned();
    let mut crate_before = String::new();
    for file in tree::rust_files("crates") {
        let shown = tree::shown(&file);
        let Some((of, path)) = shown.trim_start_matches("crates/").split_once("/src/") else {
            continue;
        };
        let source = std::fs::read_to_string(&file)?;
        let says = first_sentence(&source)
            .with_context(|| format!("{shown}: the file begins without a `//!` comment"))?;
        if of != crate_before {
            write!(list, "\n## {of}\n\n")?;
            crate_before = of.to_owned();
        }
        list.push_str(&wrapped(&format!("- `{path}`: {says}")));
    }
    Ok(list)
}

/// The first sentence of a file's module comment, joined from its lines, without the full stop.
pub(crate) fn first_sentence(source: &str) -> Option<String> {
    let comment = source.lines().map_while(|line| line.strip_prefix("//! ")).map(str::trim);
    let paragraph = comment.collect::<Vec<_>>().join(" ");
    let ends = ["? ", ". "].iter().filter_map(|mark| paragraph.find(mark));
    let end = ends.min().map_or(paragraph.len(), |at| at + 1);
    let sentence = paragraph[..end].trim_end_matches('.');
    (!sentence.is_empty()).then(|| sentence.to_owned())
}

/// Item of a list, broken into lines of at most [`WIDTH_MAX`] columns. Lines after the first are
/// indented.
fn wrapped(item: &str) -> String {
    let (mut lines, mut line) = (String::new(), String::new());
    for word in item.split(' ') {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > WIDTH_MAX {
            lines.push_str(&line);
            lines.push('\n');
            line = " ".to_owned();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines + &line + "\n"
}

/// Writes the generated documents.
pub(crate) fn write() -> anyhow::Result<()> {
    for (path, text) in documents()? {
        std::fs::write(&path, text)?;
    }
    Ok(())
}

/// Returns an error if a generated document is out of date.
pub(crate) fn check() -> anyhow::Result<()> {
    for (path, text) in documents()? {
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        anyhow::ensure!(found == text, "{} is stale: cargo xtask map", tree::shown(&path));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_every_crate_and_no_wide_line() {
        let list = modules().unwrap();
        assert!(list.matches("\n## weft-").count() >= 10, "{list}");
        assert!(list.matches("\n- `").count() >= 300, "{list}");
        assert!(list.lines().all(|line| line.chars().count() <= WIDTH_MAX), "{list}");
    }

    #[test]
    fn a_first_sentence_is_whole() {
        let of = |source| first_sentence(source).unwrap_or_default();
        assert_eq!(
            of("//! Ranges: who waits\n//! for whom. More.\n"),
            "Ranges: who waits for whom"
        );
        assert_eq!(of("//! Who? Me.\n"), "Who?");
        assert_eq!(of("//! RAID 4, 5: a.b is one\n//!\n//! More.\n"), "RAID 4, 5: a.b is one");
        assert_eq!(first_sentence("use std::fs;\n"), None);
        assert_eq!(first_sentence("//!\n//! Late.\n"), None);
    }

    #[test]
    fn a_long_item_is_wrapped_between_words() {
        assert_eq!(wrapped("- a b"), "- a b\n");
        let text = wrapped(&format!("- {}", "word ".repeat(30).trim_end()));
        let widths: Vec<usize> = text.lines().map(str::len).collect();
        assert_eq!(widths, [96, 56], "{text}");
        assert!(text.lines().nth(1).is_some_and(|line| line.starts_with("  word")), "{text}");
    }
}
