//! Which question does each file answer, and does ARCHITECTURE.md say so?
//!
//! A file's first line asks its question. `cargo xtask map` copies these lines, by crate, between
//! the two marks in ARCHITECTURE.md; `check` fails when the copy is stale or a file has no such
//! line. The table of statements is kept up in the same way ([`crate::statements`]).

use crate::{statements, tree};
use anyhow::Context;
use std::fmt::Write as _;

const BEGIN: &str = "<!-- written by `cargo xtask map`: begin -->\n";
const END: &str = "<!-- written by `cargo xtask map`: end -->\n";

/// ARCHITECTURE.md as it should be.
fn wanted(document: &str) -> anyhow::Result<String> {
    let (before, rest) = document.split_once(BEGIN).context("ARCHITECTURE.md has no begin mark")?;
    let (_, after) = rest.split_once(END).context("ARCHITECTURE.md has no end mark")?;
    let document = format!("{before}{BEGIN}{}{END}{after}", list()?);
    Ok(statements::updated(&document, &statements::cited_in_tree()))
}

/// Every source file of the crates with the first sentence of its first line.
fn list() -> anyhow::Result<String> {
    let mut list = String::new();
    let mut crate_before = String::new();
    for file in tree::rust_files("crates") {
        let shown = tree::shown(&file);
        let Some((of, path)) = shown.trim_start_matches("crates/").split_once("/src/") else {
            continue;
        };
        let source = std::fs::read_to_string(&file)?;
        let question = source.lines().next().and_then(|line| line.strip_prefix("//! "));
        let question = question.with_context(|| format!("{shown}: the first line says nothing"))?;
        if of != crate_before {
            write!(list, "\n**{of}**\n\n")?;
            crate_before = of.to_owned();
        }
        writeln!(list, "- `{path}`: {}", first_sentence(question))?;
    }
    list.push('\n');
    Ok(list)
}

/// Up to the first full stop or question mark that ends a word.
fn first_sentence(text: &str) -> &str {
    let end = text.find("? ").or_else(|| text.find(". ")).map_or(text.len(), |at| at + 1);
    &text[..end]
}

/// Writes the list into ARCHITECTURE.md.
pub(crate) fn write() -> anyhow::Result<()> {
    let path = tree::root().join("ARCHITECTURE.md");
    let document = std::fs::read_to_string(&path)?;
    std::fs::write(&path, wanted(&document)?)?;
    Ok(())
}

/// An error when the list is stale.
pub(crate) fn check() -> anyhow::Result<()> {
    let document = std::fs::read_to_string(tree::root().join("ARCHITECTURE.md"))?;
    anyhow::ensure!(wanted(&document)? == document, "ARCHITECTURE.md is stale: cargo xtask map");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_replaces_what_is_between_the_marks() {
        let old = format!("a\n{BEGIN}an old line\n{END}b\n");
        let new = wanted(&old).unwrap();
        assert!(new.starts_with("a\n") && new.ends_with("b\n") && !new.contains("an old line"));
        assert_eq!(wanted(&new).unwrap(), new);
        assert!(wanted("no marks").is_err());
    }

    #[test]
    fn a_first_sentence_ends_where_it_ends() {
        assert_eq!(first_sentence("Who? Me."), "Who?");
        assert_eq!(first_sentence("RAID 4, 5: a.b is one"), "RAID 4, 5: a.b is one");
    }
}
