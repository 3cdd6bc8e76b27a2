//! Citations of documents: every cited page, section and statement must exist.
//!
//! `Source md-raid.md §6.6 and §6.7` in a comment names headings of `spec/md-raid.md`;
//! `reliability.md I4 to I6`, or "(F21)" alone, names rows of its tables. A page may be cited
//! without a section; pages are searched in `spec/`, `docs/`, `experiments/` and at the root. Of
//! Rust files the comments are read; scripts, tables of settings and documents are read as a whole.
//! In a page of `spec/`, a section without a page belongs to that page. In a comment of Rust it
//! belongs to the page or the other document that the comment named last, and one must be named.

use crate::statements::sentences;
use crate::tree::{files, root, shown};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Cited pages that are in none of the [`SHELVES`]: NBD's protocol, and a page that lies beside the
/// data that it describes.
const ELSEWHERE: [&str; 2] = ["proto.md", "bfq-orders.md"];

/// Words by which a comment names a document that is not in the project and has sections.
const DOCUMENTS_ELSEWHERE: [&str; 6] =
    ["MHN2xxxAT", "MPF3xxxAT", "RAID-6", "RFC", "SIGMOD", "UEFI"];

/// Folders with pages that may be cited by name alone; the empty name is the root.
const SHELVES: [&str; 4] = ["", "docs", "experiments", "spec"];

/// Citable parts of a page: numbers of headings, and statements.
struct Page {
    sections: BTreeSet<String>,
    statements: BTreeSet<String>,
}

/// Pages that may be cited, by name.
type Pages = BTreeMap<String, Page>;

/// Citations in a text, and sections that it cites without saying of which page.
#[derive(Debug, Default)]
struct Citations {
    of_pages: Vec<Citation>,
    unclear: Vec<String>,
}

/// Document to which a section without a page belongs.
#[derive(Clone, Copy)]
enum Bare<'a> {
    /// Document that the same text named last. One must be named.
    Last,
    /// The page that the text itself is.
    Own(&'a str),
    /// Any document: such sections are not read.
    Unread,
}

/// Citations of one page in a text.
#[derive(Debug, Default)]
struct Citation {
    page: String,
    sections: Vec<String>,
    statements: Vec<String>,
}

fn pages() -> anyhow::Result<Pages> {
    let mut pages = Pages::new();
    for folder in SHELVES {
        for entry in std::fs::read_dir(root().join(folder))? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if path.is_file() && name.ends_with(".md") {
                pages.insert(name.to_owned(), page(&std::fs::read_to_string(&path)?));
            }
        }
    }
    Ok(pages)
}

/// Citable parts of a page, from its text.
fn page(text: &str) -> Page {
    Page { sections: numbers(text), statements: sentences(text).into_keys().collect() }
}

/// Numbers of the headings of a page: `6.6` for `### 6.6 Superblocks`.
fn numbers(page: &str) -> BTreeSet<String> {
    let headings = page.lines().filter(|line| line.starts_with('#'));
    let words = headings.filter_map(|line| line.trim_start_matches('#').split_whitespace().next());
    words.filter_map(number).collect()
}

/// Number at the beginning of a word, such as `6.6`.
fn number(word: &str) -> Option<String> {
    let end = word.find(|letter: char| !letter.is_ascii_digit() && letter != '.');
    let number = word[..end.unwrap_or(word.len())].trim_end_matches('.');
    (!number.is_empty()).then(|| number.to_owned())
}

/// Numbers of the sections that a word names after `md-raid.md`: two for `§6.6-§6.8`, `§6.6–6.8`
/// and `§1.2/§2.4`.
fn sections(word: &str) -> Vec<String> {
    let named = word.split('§').skip(1);
    named.flat_map(|named| named.split(['-', '–', '/'])).filter_map(number).collect()
}

/// Statement that a word names by a letter and a number: a statement on schedulers (B, D, K, M, X)
/// or on reliability (F, I, P).
fn lettered(word: &str) -> Option<String> {
    let word = word.trim_matches(|letter: char| !letter.is_ascii_alphanumeric());
    let numbered = word.strip_prefix(['B', 'D', 'F', 'I', 'K', 'M', 'P', 'X'])?;
    let digits = numbered.trim_end_matches(['b', 'c']);
    let is_number = !digits.is_empty() && digits.chars().all(|letter| letter.is_ascii_digit());
    is_number.then(|| word.to_owned())
}

/// Faults, invariants and promises that comments cite by their letter alone, such as "(F21)" and
/// "Checker I20".
fn bare(text: &str) -> Citation {
    let is_cited = |word: &String| word.starts_with(['F', 'I', 'P']);
    let statements = text.split_whitespace().filter_map(lettered).filter(is_cited).collect();
    Citation { page: "reliability.md".to_owned(), statements, ..Citation::default() }
}

/// Comments of a Rust file as one text, without comment markers.
pub(crate) fn comments(text: &str) -> String {
    comment_blocks(text).join("\n")
}

/// Comments of a Rust file without comment markers. Lines that follow each other are one comment. A
/// comment after code begins with ` // `.
fn comment_blocks(text: &str) -> Vec<String> {
    let comment = |line: &str| {
        let line = line.trim_start();
        let behind = || line.split_once(" // ").map(|(_, comment)| comment.trim().to_owned());
        let whole = line.starts_with("//").then(|| line.trim_start_matches(['/', '!']).to_owned());
        whole.or_else(behind)
    };
    let lines: Vec<Option<String>> = text.lines().map(comment).collect();
    let blocks = lines.split(Option::is_none).filter(|block| !block.is_empty());
    blocks.map(|block| block.iter().flatten().cloned().collect::<Vec<_>>().join("\n")).collect()
}

/// Page name in a word, with or without its folder.
fn page_name(word: &str) -> Option<&str> {
    let word = word.trim_matches(|letter: char| !letter.is_ascii_alphanumeric());
    let word = word.trim_end_matches("'s");
    let shelves = SHELVES.iter().filter(|shelf| !shelf.is_empty());
    let inside = |shelf: &&str| word.strip_prefix(*shelf)?.strip_prefix('/');
    let name = shelves.into_iter().find_map(inside).unwrap_or(word);
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
    let stem = name.strip_suffix(".md")?;
    (!stem.is_empty() && stem.chars().all(is_name)).then_some(name)
}

/// Citations in a text.
fn citations(text: &str, bare: Bare<'_>, pages: &Pages) -> Citations {
    let mut words = text.split_whitespace().peekable();
    let mut found = Citations::default();
    // The page named last; `None` within is another document.
    let mut last: Option<Option<&str>> = None;
    let mut before = "";
    while let Some(word) = words.next() {
        let Some(page) = page_name(word) else {
            let plain = word.trim_matches(|letter: char| !letter.is_ascii_alphanumeric());
            last = if DOCUMENTS_ELSEWHERE.contains(&plain) { Some(None) } else { last };
            if word.contains('§') {
                let own = match bare {
                    Bare::Last => owner(before, word, last, pages),
                    Bare::Own(page) => Ok(Some(page)),
                    Bare::Unread => Ok(None),
                };
                let of = |page: &str| Citation {
                    page: page.to_owned(),
                    sections: sections(word),
                    ..Citation::default()
                };
                match own {
                    Ok(page) => found.of_pages.extend(page.map(of)),
                    Err(unclear) => found.unclear.push(unclear),
                }
            }
            before = word;
            continue;
        };
        before = word;
        let is_here = !ELSEWHERE.contains(&page);
        last = Some(is_here.then_some(page));
        let citation = cited_after(page, &mut words);
        found.of_pages.extend(is_here.then_some(citation));
    }
    found
}

/// Page of the section `word`, which no page precedes directly; `None` is another document. `last`
/// was named last. If the word `before` the section is the name of a page, it lacks `.md`, without
/// which other checks do not find it.
fn owner<'a>(
    before: &str,
    word: &str,
    last: Option<Option<&'a str>>,
    pages: &Pages,
) -> Result<Option<&'a str>, String> {
    if pages.contains_key(&format!("{}.md", before.trim_start_matches('('))) {
        return Err(format!("cites {before} {word} without .md"));
    }
    last.ok_or_else(|| format!("cites {word}, and no page before it"))
}

/// Sections and statements that follow the name of a page.
fn cited_after<'a>(
    page: &str,
    words: &mut std::iter::Peekable<impl Iterator<Item = &'a str>>,
) -> Citation {
    let mut citation = Citation { page: page.to_owned(), ..Citation::default() };
    let mut in_statements = false;
    while let Some(next) = words.peek() {
        let plain = next.trim_end_matches([',', '.', ';', ':', ')', '`']);
        match plain {
            "and" | "to" => {}
            "statement" | "statements" => in_statements = true,
            _ if next.trim_start_matches('(').starts_with('§') => {
                citation.sections.extend(sections(next));
            }
            _ if next.starts_with('(') && number(&plain[1..]).is_some() => {}
            _ => match (lettered(next), number(plain).filter(|_| in_statements)) {
                (Some(statement), _) | (None, Some(statement)) => {
                    citation.statements.push(statement);
                }
                (None, None) => break,
            },
        }
        let is_last = next.ends_with(['.', ';', ':']);
        words.next();
        if is_last {
            break;
        }
    }
    citation
}

/// Citations of a file that name pages, sections or statements which do not exist, or no page.
fn broken(path: &Path, citations: &Citations, pages: &Pages) -> Vec<String> {
    let unclear = citations.unclear.iter();
    let mut found: Vec<String> = unclear.map(|said| format!("{}: {said}", shown(path))).collect();
    for Citation { page: name, sections, statements } in &citations.of_pages {
        let Some(page) = pages.get(name) else {
            found.push(format!("{}: cites {name}, which is not in the project", shown(path)));
            continue;
        };
        for section in sections.iter().filter(|section| !page.sections.contains(*section)) {
            found.push(format!("{}: cites {name} §{section}, which has no heading", shown(path)));
        }
        for statement in statements.iter().filter(|it| !page.statements.contains(*it)) {
            found.push(format!("{}: cites {name} {statement}, which is no row", shown(path)));
        }
    }
    found
}

/// Whether a file is read: Rust, scripts, settings and documents. The changelog is not read,
/// because it names things that no longer exist.
pub(crate) fn is_read(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_script = || std::fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"#!"));
    match path.extension().and_then(|it| it.to_str()) {
        Some("md") => name != "CHANGELOG.md",
        Some(extension) => ["rs", "py", "sh", "toml"].contains(&extension),
        None => is_script(),
    }
}

/// Citations in a file.
fn citations_of(path: &Path, text: &str, pages: &Pages) -> Citations {
    let name = shown(path);
    match path.extension().and_then(|it| it.to_str()) {
        Some("rs") => {
            let mut found = Citations::default();
            for comment in comment_blocks(text) {
                let of_comment = citations(&comment, Bare::Last, pages);
                found.of_pages.extend(of_comment.of_pages);
                found.unclear.extend(of_comment.unclear);
            }
            found.of_pages.push(bare(&comments(text)));
            found
        }
        Some("md") => {
            let own = name.strip_prefix("spec/").map_or(Bare::Unread, Bare::Own);
            citations(text, own, pages)
        }
        _ => citations(&text.replace("\n#", "\n"), Bare::Unread, pages),
    }
}

/// Page and label of each statement that a file cites.
#[cfg(test)]
pub(crate) fn cited(path: &Path, text: &str) -> Vec<(String, String)> {
    let labels = |it: Citation| -> Vec<_> {
        it.statements.into_iter().map(|label| (it.page.clone(), label)).collect()
    };
    citations_of(path, text, &Pages::new()).of_pages.into_iter().flat_map(labels).collect()
}

/// Every file that is read for citations.
fn read() -> anyhow::Result<Vec<PathBuf>> {
    let folders = [
        ".cargo",
        ".ci",
        ".config",
        "benches",
        "crates",
        "docs",
        "experiments",
        "fixtures",
        "interop",
        "spec",
        "xtask",
    ];
    let mut found: Vec<PathBuf> =
        folders.iter().flat_map(|folder| files(folder, is_read)).collect();
    for entry in std::fs::read_dir(root())? {
        found.extend(Some(entry?.path()).filter(|path| path.is_file() && is_read(path)));
    }
    Ok(found)
}

/// Every citation of a page, section or statement that does not exist, as `file: …`.
pub(crate) fn found() -> anyhow::Result<Vec<String>> {
    let pages = pages()?;
    let (mut found, mut count_by_kind) = (Vec::new(), BTreeMap::new());
    for path in read()? {
        let text = std::fs::read_to_string(&path)?;
        let citations = citations_of(&path, &text, &pages);
        let cited = citations.of_pages.iter().map(|it| it.sections.len() + it.statements.len());
        let kind = path.extension().and_then(|it| it.to_str()).unwrap_or_default().to_owned();
        *count_by_kind.entry(kind).or_insert(0) += cited.sum::<usize>();
        found.extend(broken(&path, &citations, &pages));
    }
    for (kind, count_min) in [("rs", 250), ("md", 60), ("toml", 15)] {
        let count = count_by_kind.get(kind).copied().unwrap_or_default();
        anyhow::ensure!(count >= count_min, ".{kind}: {count} citations were looked up, not more");
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_section_and_statement_that_is_cited_is_there() {
        assert_eq!(found().unwrap(), Vec::<String>::new());
    }

    #[test]
    fn statements_on_schedulers_are_read_by_each_of_their_letters() {
        for (letter, _) in crate::statements::OF_SCHEDULERS {
            assert_eq!(lettered(&format!("({letter}1)")), Some(format!("{letter}1")));
        }
        assert_eq!(lettered("Z1"), None);
    }

    /// Broken citations in a file of this name with this text, if `md-raid.md` has §6.6, §6.7, §7
    /// and the statements 1, 2 and B3, and `reliability.md` has F1 and I20.
    fn broken_in(name: &str, text: &str) -> Vec<String> {
        let text_of_page =
            "# T\n### 6.6 U\n### 6.7 V\n## 7. Testable statements\n1. one\n2. two\n- B3 three\n";
        let faults = page("| F1 | torn |\n| I20 bits | before data |\n");
        let pages = Pages::from([
            ("md-raid.md".to_owned(), page(text_of_page)),
            ("reliability.md".to_owned(), faults),
        ]);
        let path = root().join(name);
        broken(&path, &citations_of(&path, text, &pages), &pages)
    }

    #[test]
    fn a_planted_citation_of_what_is_not_there_is_found_in_rust() {
        let good = [
            "//! Source   md-raid.md §6.6 and\n//!          §7, other.html; `md-raid.md`\n",
            "let path = \"nothing.md\";\n",
            "/// spec/md-raid.md §6.6-§6.7, statements 1 to 2, and B3\n",
            "f(); // md-raid.md §6.6\n",
            "/// Checker I20 of a torn write (F1).\nlet width = I32::MAX;\n",
        ];
        for good in good {
            assert_eq!(broken_in("a.rs", good), Vec::<String>::new(), "{good}");
        }
        let bad = [
            "/// md-raid.md §6.8",
            "// md-raid.md §6.6 and\n// §8",
            "//! nothing.md §6.6",
            "//! NOTHING.md",
            "//! docs/nothing.md",
            "f(); // md-raid.md §6.8",
            "/// md-raid.md §6.6-§6.8",
            "/// md-raid.md §6.6–6.8",
            "/// md-raid.md §6.6/§6.8",
            "/// md-raid.md (§6.8)",
            "/// md-raid.md §7 (2), statement 3",
            "/// md-raid.md statements 1 to 2 and B4",
            "/// A torn write (F2).",
            "//! Checker I21, no such invariant",
            "/// Read-only (P7).",
        ];
        for bad in bad {
            assert_eq!(broken_in("a.rs", bad).len(), 1, "{bad}");
        }
    }

    #[test]
    fn a_planted_section_of_a_page_without_md_and_one_of_no_page_are_found() {
        let good = [
            "/// md-raid.md §6.6",
            "/// Anvin, \"RAID-6\", §3; md-raid.md §6.6",
            "/// md-raid.md §6.6; Anvin, \"RAID-6\",\n/// §3",
            "/// RFC 1952 §2.3.1 and RFC 8878 §3.1.1",
            "/// md-raid.md §7, statement 2: the table\n/// of §6.7",
            "let text = \"of §5\";",
        ];
        for good in good {
            assert_eq!(broken_in("a.rs", good), [""; 0], "{good}");
        }
        for bad in [
            "/// spec md-raid §6.6",
            "/// never locates (md-raid §6.6)",
            "// md-raid.md §7; reliability\n// §3",
            "/// §6.6, a row",
            "/// md-raid.md §6.6\nlet x = 1;\n/// The table of §6.7",
            "f();\n// see (§6.7)",
            "/// md-raid.md §7: the table of\n/// §6.8",
        ] {
            assert_eq!(broken_in("a.rs", bad).len(), 1, "{bad}");
        }
    }

    #[test]
    fn a_planted_citation_of_what_is_not_there_is_found_in_scripts_settings_and_pages() {
        for name in ["a.toml", "a.py", "a.sh", "run", "docs/a.md", "spec/md-raid.md"] {
            assert_eq!(broken_in(name, "# md-raid.md §6.6\na = 1 # of md-raid.md").len(), 0);
            let in_two_lines = "# md-raid.md §6.6 and\n# §9".replace("\n# ", next_line(name));
            for bad in [in_two_lines.as_str(), "a = 1 # md-raid.md §9", "\"nothing.md\""] {
                assert_eq!(broken_in(name, bad).len(), 1, "{name}: {bad}");
            }
        }
        assert_eq!(broken_in("spec/md-raid.md", "as (§6.6) says; see §6.9.").len(), 1);
        assert_eq!(broken_in("docs/a.md", "another paper, §6.9").len(), 0);
    }

    /// Text that begins a further line: a new line of prose in documents, of a comment in other
    /// files.
    fn next_line(name: &str) -> &str {
        if name.ends_with(".md") { "\n" } else { "\n# " }
    }

    #[test]
    fn scripts_without_an_ending_are_read() {
        let read = read().unwrap();
        for name in ["interop/kill9/run", ".ci/run", "interop/lab/guest.sh", "README.md"] {
            assert!(read.contains(&root().join(name)), "{name}");
        }
    }
}
