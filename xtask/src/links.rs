//! Links and paths of documents: every target that a Markdown file names must exist.
//!
//! Links within the project are checked, including the heading after `#`, as are paths in code that
//! begin with a folder of the project. Addresses on the network are not checked.

use crate::tree::{root, shown};
use anyhow::Context;
use std::path::{Path, PathBuf};

/// Documents that are read: those of the root, of `docs/`, `interop/`, `experiments/`, `packaging/`
/// and `spec/`. The changelog is not read, because it names things that no longer exist.
pub(crate) fn documents() -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for folder in ["", "docs", "interop", "experiments", "packaging", "spec"] {
        for entry in std::fs::read_dir(root().join(folder)).context(folder)? {
            let path = entry?.path();
            let is_document = path.extension().is_some_and(|extension| extension == "md");
            if is_document && path.file_name().is_some_and(|name| name != "CHANGELOG.md") {
                found.push(path);
            }
        }
    }
    found.sort();
    anyhow::ensure!(found.len() >= 28, "{} documents were read: there are more", found.len());
    Ok(found)
}

/// Folders of the project. A path in code is checked if it begins with one of them.
const FOLDERS: [&str; 10] = [
    "benches/",
    "crates/",
    "docs/",
    "experiments/",
    "fixtures/",
    "interop/",
    "python/",
    "spec/",
    "xtask/",
    ".cargo/",
];

/// Targets of the links in a Markdown text.
fn links(text: &str) -> Vec<&str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains("://")).collect()
}

/// Paths in the code of a Markdown text. Paths with a placeholder (`*`, `N`, …) are left out.
fn paths(text: &str) -> Vec<&str> {
    let code = text.split('`').skip(1).step_by(2).flat_map(|code| code.split(' '));
    let paths = code.filter(|word| FOLDERS.iter().any(|folder| word.starts_with(folder)));
    let is_plain = |path: &&str| {
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || "/._-".contains(letter);
        path.chars().all(is_name) && !path.contains("NAME")
    };
    paths.filter(is_plain).collect()
}

/// Anchor of a heading, as links name it after `#`.
fn anchor(heading: &str) -> String {
    let kept = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

/// Links and paths of a document with a missing target.
fn broken(path: &Path, text: &str) -> Vec<String> {
    let folder = path.parent().unwrap_or(path);
    let is_there = |target: &&str| {
        let (file, heading) = target.split_once('#').unwrap_or((target, ""));
        let file = if file.is_empty() { path.to_owned() } else { folder.join(file) };
        let has_heading = |text: String| {
            text.lines().any(|line| line.starts_with('#') && anchor(line) == heading)
        };
        if heading.is_empty() {
            file.exists()
        } else {
            std::fs::read_to_string(file).is_ok_and(has_heading)
        }
    };
    let links = links(text).into_iter().filter(|target| !is_there(target));
    let paths = paths(text).into_iter().filter(|path| !root().join(path).exists());
    links.chain(paths).map(|target| format!("{}: {target} is not there", shown(path))).collect()
}

/// Links and paths of all documents with a missing target.
pub(crate) fn found() -> anyhow::Result<Vec<String>> {
    let (mut found, mut count) = (Vec::new(), 0);
    for path in documents()? {
        let text = std::fs::read_to_string(&path)?;
        count += links(&text).len() + paths(&text).len();
        found.extend(broken(&path, &text));
    }
    anyhow::ensure!(count >= 95, "{count} links and paths were followed: there are more");
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_link_and_path_of_the_documents_leads_somewhere() {
        assert_eq!(found().unwrap(), Vec::<String>::new());
    }

    #[test]
    fn a_planted_broken_link_heading_or_path_is_found() {
        let page = root().join("docs/page.md");
        let good = "[a](../README.md) [b](serve.md#what-weft-promises) `crates/weft-crash/src/rig.rs` \
                    `interop/NAME/run` [c](https://example.org/x) `crates/weft-sim/drives/*.toml`";
        assert_eq!(broken(&page, good), Vec::<String>::new());
        let broken_ones = [
            "[a](READ.md)",
            "[b](serve.md#no-heading)",
            "`crates/weft-sim/src/nothing.rs`",
            "`spec/nothing.md`",
        ];
        for bad in broken_ones {
            assert_eq!(broken(&page, bad).len(), 1, "{bad}");
        }
        let read = documents().unwrap();
        assert!(read.contains(&root().join("spec/writeback.md")), "{read:?}");
        assert_eq!(anchor("## What is wrong, and what to do"), "what-is-wrong-and-what-to-do");
    }
}
