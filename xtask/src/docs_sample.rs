//! Samples of documentation: docs of each crate, drawn by a seed, for a fresh reader.
//!
//! A doc is good if an engineer with knowledge of md and the block layer, but not of weft,
//! understands it at first reading, from the doc and the item below it alone. No automatic check
//! can judge this, but a reader of a sample can. The seed is the count of commits by default, so
//! that each commit has a sample of its own, which can be drawn again.

use crate::lines::printed;
use crate::tree::{crates, rust_files, shown};
use anyhow::{Context, ensure};
use std::path::Path;
use weft_units::rng::Rng;

/// Number of docs that are drawn from each crate.
const EACH: usize = 30;

/// A doc comment, and the first line of the item that it describes.
#[derive(Debug, PartialEq)]
struct Doc {
    line: usize,
    text: Vec<String>,
    item: String,
}

/// `cargo xtask docs-sample [SEED]`: prints docs of every crate.
pub(crate) fn run(seed: Option<&str>) -> anyhow::Result<()> {
    let seed = match seed {
        Some(text) => text.to_owned(),
        None => printed("git", &["rev-list", "--count", "HEAD"])?.trim().to_owned(),
    };
    let seed: u64 = seed.parse().with_context(|| format!("found {seed:?}, expected a seed"))?;
    println!("docs of seed {seed}, {EACH} of each crate");
    for name in crates()? {
        let mut docs = Vec::new();
        for path in rust_files(&format!("crates/{name}/src")) {
            let source = std::fs::read_to_string(&path)?;
            docs.extend(docs_of(&source).into_iter().map(|doc| (path.clone(), doc)));
        }
        ensure!(!docs.is_empty(), "{name}: found no docs");
        println!("\n# {name}: {} docs", docs.len());
        for (path, doc) in drawn(docs, seed) {
            print_doc(&path, &doc);
        }
    }
    Ok(())
}

fn print_doc(path: &Path, doc: &Doc) {
    println!("\n{}:{}", shown(path), doc.line);
    doc.text.iter().for_each(|line| println!("    {line}"));
    println!("  {}", doc.item);
}

/// Draws [`EACH`] of the items with the seed `seed`, each at most once, and returns them in their
/// original order.
fn drawn<T>(mut items: Vec<T>, seed: u64) -> Vec<T> {
    let mut rng = Rng::new(seed);
    while items.len() > EACH {
        let index = rng.index(items.len());
        items.remove(index);
    }
    items
}

/// Docs of the items of a Rust text up to its tests.
fn docs_of(source: &str) -> Vec<Doc> {
    let mut found = Vec::new();
    let mut text: Vec<String> = Vec::new();
    for (index, line) in source.lines().enumerate() {
        let code = line.trim();
        if code == "#[cfg(test)]" {
            break;
        }
        if let Some(doc) = code.strip_prefix("///") {
            text.push(doc.trim().to_owned());
        } else if !text.is_empty() && !code.starts_with("#[") {
            let item = code.to_owned();
            let line = index + 1 - text.len();
            found.push(Doc { line, text: std::mem::take(&mut text), item });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn docs_are_found_with_their_items_and_not_those_of_tests() {
        let source = "/// A stripe.\n/// Of one offset.\n#[derive(Debug)]\nstruct Stripe {\n    \
                      /// Members.\n    members: u32,\n}\n// No doc.\n#[cfg(test)]\nmod tests {\n\
                      /// Test.\nfn x() {}\n}\n";
        let found = docs_of(source);
        let items: Vec<&str> = found.iter().map(|doc| doc.item.as_str()).collect();
        assert_eq!(items, ["struct Stripe {", "members: u32,"]);
        assert_eq!(found[0].text, ["A stripe.", "Of one offset."]);
    }

    #[test]
    fn a_seed_draws_the_same_sample_again_and_another_seed_another() {
        let items = || (0..1000).collect::<Vec<u32>>();
        let sample = drawn(items(), 7);
        assert_eq!(sample.len(), EACH);
        assert_eq!(drawn(items(), 7), sample);
        assert_ne!(drawn(items(), 8), sample);
        assert_eq!(drawn(vec![1, 2], 7), [1, 2]);
    }
}
