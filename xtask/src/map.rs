//! Map of the source files: the first sentence of each file, which describes its content.
//!
//! `cargo xtask map` prints the sentences, by crate; `check` fails if a file begins without one.

use crate::tree;
use anyhow::Context;
use std::fmt::Write as _;
use std::io::Write as _;

/// The list of modules: every source file of the crates.
fn modules() -> anyhow::Result<String> {
    let mut list = String::new();
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
        writeln!(list, "- `{path}`: {says}")?;
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

/// Prints the list.
pub(crate) fn print() -> anyhow::Result<()> {
    Ok(std::io::stdout().write_all(modules()?.as_bytes())?)
}

/// Returns an error if a file begins without a sentence.
pub(crate) fn check() -> anyhow::Result<()> {
    modules().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_every_crate() {
        let list = modules().unwrap();
        assert!(list.matches("\n## weft-").count() >= 10, "{list}");
        assert!(list.matches("\n- `").count() >= 300, "{list}");
    }

    #[test]
    fn a_first_sentence_is_whole() {
        let of = |source| first_sentence(source).unwrap_or_default();
        assert_eq!(
            of("//! Ranges: which waits\n//! for which. More.\n"),
            "Ranges: which waits for which"
        );
        assert_eq!(of("//! Who? Me.\n"), "Who?");
        assert_eq!(of("//! RAID 4, 5: a.b is one\n//!\n//! More.\n"), "RAID 4, 5: a.b is one");
        assert_eq!(first_sentence("use std::fs;\n"), None);
        assert_eq!(first_sentence("//!\n//! Late.\n"), None);
    }
}
