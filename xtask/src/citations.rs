//! Citations of documents: the page and the section that a comment names have to be there.
//!
//! `Source md-raid.md §6.6 and §6.7` in a comment names headings of `spec/md-raid.md`. A page may
//! be cited without a section; it is looked for in `spec/`, `docs/`, `experiments/` and at the
//! root.

use crate::links::documents;
use crate::tree::{root, rust_files, shown};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Pages elsewhere: NBD's protocol, and one that lies beside the data that it describes.
const ELSEWHERE: [&str; 2] = ["proto.md", "bfq-orders.md"];

/// Numbers of the headings of each page that may be cited, by its name.
type Pages = BTreeMap<String, BTreeSet<String>>;

fn pages() -> anyhow::Result<Pages> {
    let mut pages = Pages::new();
    for folder in ["", "docs", "experiments", "spec"] {
        for entry in std::fs::read_dir(root().join(folder))? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if path.is_file() && name.ends_with(".md") {
                pages.insert(name.to_owned(), numbers(&std::fs::read_to_string(&path)?));
            }
        }
    }
    Ok(pages)
}

/// Numbers of the headings of a page: `6.6` of `### 6.6 Superblocks`.
fn numbers(page: &str) -> BTreeSet<String> {
    let headings = page.lines().filter(|line| line.starts_with('#'));
    let words = headings.filter_map(|line| line.trim_start_matches('#').split_whitespace().next());
    words.filter_map(number).collect()
}

/// The number that a word begins with.
fn number(word: &str) -> Option<String> {
    let end = word.find(|letter: char| !letter.is_ascii_digit() && letter != '.');
    let number = word[..end.unwrap_or(word.len())].trim_end_matches('.');
    (!number.is_empty()).then(|| number.to_owned())
}

/// Comments of a file of code as one text, without what marks them.
fn comments(text: &str, mark: &str) -> String {
    let lines = text.lines().map(str::trim_start).filter(|line| line.starts_with(mark));
    let plain = lines.map(|line| line.trim_start_matches(['/', '!', '#']).trim());
    plain.collect::<Vec<_>>().join("\n")
}

/// Pages that a text cites, each with its sections.
fn citations(text: &str) -> Vec<(String, Vec<String>)> {
    let mut words = text.split_whitespace().peekable();
    let mut found = Vec::new();
    while let Some(word) = words.next() {
        let word = word.trim_matches(|letter: char| !letter.is_ascii_alphanumeric());
        let is_name = |letter: char| letter.is_ascii_lowercase() || "-0123456789".contains(letter);
        let Some(stem) = word.strip_suffix(".md").filter(|it| it.chars().all(is_name)) else {
            continue;
        };
        let mut sections = Vec::new();
        while let Some(next) = words.peek() {
            match next.strip_prefix('§') {
                Some(section) => sections.extend(number(section)),
                None if ["and", "to"].contains(next) => {}
                None => break,
            }
            words.next();
        }
        if !stem.is_empty() && !ELSEWHERE.contains(&word) {
            found.push((word.to_owned(), sections));
        }
    }
    found
}

/// Citations of a text that name what is not there.
fn broken(path: &Path, text: &str, pages: &Pages) -> Vec<String> {
    let mut found = Vec::new();
    for (page, sections) in citations(text) {
        let Some(numbers) = pages.get(&page) else {
            found.push(format!("{}: cites {page}, which is not in the project", shown(path)));
            continue;
        };
        for section in sections.iter().filter(|section| !numbers.contains(*section)) {
            found.push(format!("{}: cites {page} §{section}, which has no heading", shown(path)));
        }
    }
    found
}

/// Every citation that names what is not there.
pub(crate) fn found() -> anyhow::Result<Vec<String>> {
    let pages = pages()?;
    let (mut found, mut count) = (Vec::new(), 0);
    let files = rust_files("crates").into_iter().chain(rust_files("xtask"));
    let texts = std::fs::read_dir(root().join("experiments"))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|it| it == "toml"));
    for path in files.chain(documents()?).chain(texts) {
        let text = std::fs::read_to_string(&path)?;
        let text = match path.extension().and_then(|it| it.to_str()) {
            Some("rs") => comments(&text, "//"),
            Some("toml") => comments(&text, "#"),
            _ => text,
        };
        count += citations(&text).iter().map(|(_, sections)| sections.len()).sum::<usize>();
        found.extend(broken(&path, &text, &pages));
    }
    anyhow::ensure!(count >= 200, "{count} sections were looked up: there are more");
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_and_section_that_is_cited_is_there() {
        assert_eq!(found().unwrap(), Vec::<String>::new());
    }

    #[test]
    fn a_planted_citation_of_what_is_not_there_is_found() {
        let page = "# Title\n\n### 6.6 Updates\n\n## 7. Flushes\n";
        let pages = Pages::from([("md-raid.md".to_owned(), numbers(page))]);
        let in_rust = |text: &str| broken(&root().join("a.rs"), &comments(text, "//"), &pages);
        let good = "//! Source   md-raid.md §6.6 and\n//!          §7, other.html; `md-raid.md`\n";
        assert_eq!(in_rust(good), Vec::<String>::new());
        assert_eq!(in_rust("let path = \"nothing.md\";\n"), Vec::<String>::new());
        for bad in ["/// md-raid.md §6.7", "// md-raid.md §6.6 and\n// §8", "//! nothing.md §6.6"]
        {
            assert_eq!(in_rust(bad).len(), 1, "{bad}");
        }
        let in_text = |text: &str| broken(&root().join("a.toml"), &comments(text, "#"), &pages);
        assert_eq!(in_text("# md-raid.md §6.6\na = 1").len(), 0);
        assert_eq!(in_text("a = 1\n# md-raid.md §6.9").len(), 1);
    }
}
