//! Words and form of prose: refused words, files that open with a question, comments without a
//! subject, lines over 100 columns. Prose are documents, and comments of Rust, of scripts, and of
//! files of settings and scripts for simulations.
//!
//! Names are split at underscores and capitals, prose at every non-letter; the search finds
//! sequences of such words, the last of which may be a plural. A word that has a proper meaning
//! elsewhere is refused only below the folders in which it was misused. Files of recorded data are
//! not read, nor is this one. [`crate::links`] checks the links of documents.

use crate::links::documents;
use crate::map::first_sentence;
use crate::tree::{files, root, rust_files, shown};
use std::path::{Path, PathBuf};

/// Largest number of columns in a line of a comment or of a document.
const WIDTH_MAX: usize = 100;

/// A word that must not be used again.
struct Refused {
    /// The words in lower case; the plural of the last one is refused too.
    words: &'static str,
    /// Term of the field to use instead.
    say: &'static str,
    /// Path prefixes where the word is refused; everywhere if empty.
    below: &'static [&'static str],
    /// Sequences of words that may contain the refused words, with another meaning.
    but: &'static [&'static str],
}

const ENGINE: &str = "crates/weft-engine/src/";
const STRIPES: &[&str] = &[
    "crates/weft-engine/src/raid/",
    "crates/weft-engine/src/volume",
    "crates/weft-engine/src/array/outbox.rs",
    "crates/weft-engine/src/array/membership.rs",
    "crates/weft-engine/src/contract/snapshot.rs",
    "crates/weft-engine/src/array/mod.rs",
];
const VOLUME: &[&str] = &["crates/weft-engine/src/volume"];
const RAID: &[&str] = &["crates/weft-engine/src/raid/parity/"];
/// Paths of code in which a strip must not be called a block. Code of requests and their streams is
/// not included, because it handles blocks of the volume.
const STRIPS: &[&str] = &[
    "crates/weft-engine/src/raid/parity/cache",
    "crates/weft-engine/src/raid/parity/plan",
    "crates/weft-engine/src/raid/parity/priority",
    "crates/weft-engine/src/raid/parity/stripe",
];
const RUNTIME: &[&str] = &["crates/weft-runtime/", "crates/weft-export/"];
const PAGE_CACHE: &[&str] = &["crates/weft-engine/src/page_cache/"];
const RECOVERY: &[&str] = &[
    ENGINE,
    "crates/weft-ondisk/src/",
    "crates/weft-export/src/",
    "crates/weft-crash/src/",
    "crates/weft-sim/src/",
];
/// Phrases with "row" about rows of tables in the references.
const CITED: &[&str] = &["rows and", "rows to", "in a row"];

const REFUSED: &[Refused] = &[
    Refused { words: "chunk row", say: "full stripe", below: &[], but: &[] },
    Refused { words: "row of chunk", say: "full stripe", below: &[], but: &[] },
    Refused { words: "full row write", say: "full-stripe write", below: &[], but: &[] },
    Refused { words: "row sync", say: "resync", below: &[], but: &[] },
    Refused { words: "row", say: "stripe", below: STRIPES, but: CITED },
    Refused {
        words: "block",
        say: "strip",
        below: STRIPS,
        but: &[
            "logical block",
            "bad block",
            "block layer",
            "kib block",
            "single block",
            "this block",
            "block state",
        ],
    },
    Refused { words: "owe", say: "deferred write", below: STRIPES, but: &[] },
    Refused { words: "owed", say: "deferred write", below: STRIPES, but: &[] },
    Refused { words: "owing", say: "deferred write", below: STRIPES, but: &[] },
    Refused { words: "paying off", say: "writing what was deferred", below: STRIPES, but: &[] },
    Refused { words: "lent", say: "zero-copy page", below: STRIPES, but: &[] },
    Refused { words: "lender", say: "zero-copy page", below: STRIPES, but: &[] },
    Refused { words: "good to", say: "recovery_offset", below: RECOVERY, but: &[] },
    Refused { words: "doubted", say: "suspect", below: &[ENGINE], but: &[] },
    Refused { words: "settling", say: "safe mode", below: &[ENGINE], but: &[] },
    Refused { words: "dirty mark", say: "dirty state", below: &["crates/"], but: &[] },
    Refused { words: "clean mark", say: "clean state", below: &["crates/"], but: &[] },
    Refused { words: "superblock round", say: "superblock update", below: &[], but: &[] },
    Refused { words: "round of superblock", say: "superblock update", below: &[], but: &[] },
    Refused { words: "take in", say: "drain", below: RAID, but: &[] },
    Refused { words: "taken in", say: "drained", below: RAID, but: &[] },
    Refused {
        words: "made good",
        say: "corrected",
        below: &[ENGINE, "crates/weft-crash/", "crates/weft-sim/"],
        but: &[],
    },
    Refused { words: "desk", say: "mailbox", below: RUNTIME, but: &[] },
    Refused { words: "letter", say: "message", below: &["crates/weft-runtime/"], but: &[] },
    Refused { words: "bell", say: "eventfd", below: RUNTIME, but: &[] },
    Refused { words: "lane", say: "worker", below: RUNTIME, but: &["bare lane"] },
    Refused { words: "walk", say: "pass", below: PAGE_CACHE, but: &[] },
    Refused { words: "ground", say: "writeback_control", below: PAGE_CACHE, but: &[] },
    Refused { words: "duty", say: "nr_to_write", below: PAGE_CACHE, but: &[] },
    Refused { words: "nap", say: "pause", below: PAGE_CACHE, but: &[] },
    Refused { words: "piece", say: "sub-request", below: STRIPES, but: &[] },
    Refused { words: "piece", say: "request part", below: &["crates/weft-export/src/"], but: &[] },
    Refused { words: "dealt", say: "sub-request", below: STRIPES, but: &[] },
    Refused { words: "bypass", say: "chunk-aligned read", below: VOLUME, but: &["preread bypass"] },
];

/// Words of a line in lower case, in order. Each mark of [`MARKS`] counts as a word.
fn words(line: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    let mut before = ' ';
    for letter in line.chars() {
        if !letter.is_alphabetic() || (letter.is_uppercase() && before.is_lowercase()) {
            found.push(String::new());
        }
        if letter.is_alphabetic() {
            found.last_mut().expect("there is one").extend(letter.to_lowercase());
        } else if MARKS.contains(&letter) {
            found.extend([letter.to_string(), String::new()]);
        }
        before = letter;
    }
    found.retain(|word| !word.is_empty());
    found
}

/// Marks that separate terms; no term extends across a mark.
const MARKS: [char; 8] = ['.', ',', ';', ':', '(', ')', '"', '='];

/// Whether `text` begins with the words `with`, the last of which may be a plural.
fn begins(text: &[String], with: &[&str]) -> bool {
    let Some((last, first)) = with.split_last() else { return false };
    text.len() >= with.len()
        && first.iter().zip(text).all(|(word, found)| *word == found.as_str())
        && (text[first.len()] == *last || text[first.len()].strip_suffix('s') == Some(*last))
}

/// Refused words in a line of the file at `path`, each with the term to use instead.
fn refused(path: &str, line: &str) -> Vec<String> {
    let text = words(line);
    let mut found = Vec::new();
    for word in REFUSED {
        let here =
            word.below.is_empty() || word.below.iter().any(|folder| path.starts_with(folder));
        if !here {
            continue;
        }
        let with: Vec<&str> = word.words.split(' ').collect();
        for at in 0..text.len() {
            let is_other = word.but.iter().any(|other| {
                let other: Vec<&str> = other.split(' ').collect();
                (0..other.len()).any(|back| at >= back && begins(&text[at - back..], &other))
            });
            if begins(&text[at..], &with) && !is_other {
                found.push(format!("found {:?}, say {:?}", word.words, word.say));
            }
        }
    }
    found
}

/// Lines (1-based) of a Rust text with a comment beyond [`WIDTH_MAX`], with their width. Tables and
/// fenced text may be wider.
fn too_wide(source: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut fenced = false;
    for (index, line) in source.lines().enumerate() {
        let code = line.trim_start();
        let comment =
            code.strip_prefix("//").map(|rest| rest.trim_start_matches(['/', '!']).trim());
        fenced = match comment {
            Some(text) if text.starts_with("```") => !fenced,
            other => fenced && other.is_some(),
        };
        let exempt = fenced || comment.is_some_and(is_drawn);
        let has_comment = comment.is_some() || behind_code(code);
        let width = line.chars().count();
        if width > WIDTH_MAX && has_comment && !exempt {
            found.push((index + 1, width));
        }
    }
    found
}

/// Whether a comment is a row of a table or a line of a drawing: box characters, or cells with
/// three spaces between them. A line with a heading of a doc comment ("Shape", "See it") is prose.
fn is_drawn(comment: &str) -> bool {
    let mut cells = comment.split("   ").map(str::trim).filter(|cell| !cell.is_empty());
    let first = cells.next().unwrap_or_default();
    let is_heading = first.starts_with(char::is_uppercase)
        && first.split(' ').count() <= 2
        && first.chars().all(|letter| letter.is_alphabetic() || letter == ' ');
    let cells_more = cells.count();
    comment.starts_with('|')
        || comment.contains(['│', '─', '┌', '└', '▶', '▼'])
        || cells_more > usize::from(is_heading)
}

/// Whether a comment follows code and is not inside a string literal: the quotation marks before it
/// are balanced.
fn behind_code(code: &str) -> bool {
    code.match_indices(" // ").any(|(at, _)| code[..at].matches('"').count().is_multiple_of(2))
}

/// Lines (1-based) of a document beyond [`WIDTH_MAX`], with their width. Tables, code, headings and
/// HTML comments may be wider.
fn too_wide_document(text: &str) -> Vec<(usize, usize)> {
    let mut fenced = false;
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let start = line.trim_start();
        if start.starts_with("```") {
            fenced = !fenced;
        }
        let exempt = fenced || line.starts_with("    ") || start.starts_with(['|', '<', '#']);
        let width = line.chars().count();
        if width > WIDTH_MAX && !exempt {
            found.push((index + 1, width));
        }
    }
    found
}

/// Endings of files with comments that begin with `#`. A file without an ending is such a script if
/// its first line says so.
const OF_HASH: [&str; 6] = ["py", "script", "service", "sh", "socket", "toml"];

/// Lines of a script's head that are read by programs, and are no prose.
const HEADS: [&str; 2] = ["# needs:", "#!"];

/// Files with comments that begin with `#`, sorted.
fn files_of_hash() -> anyhow::Result<Vec<PathBuf>> {
    let is_read = |path: &Path| match path.extension().and_then(|it| it.to_str()) {
        Some(extension) => OF_HASH.contains(&extension),
        None => std::fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"#!")),
    };
    let folders = [
        ".cargo",
        ".ci",
        ".config",
        "benches",
        "crates",
        "experiments",
        "fixtures",
        "interop",
        "packaging",
        "python",
        "xtask",
    ];
    let mut found: Vec<PathBuf> =
        folders.iter().flat_map(|folder| files(folder, is_read)).collect();
    for entry in std::fs::read_dir(root())? {
        found.extend(Some(entry?.path()).filter(|path| path.is_file() && is_read(path)));
    }
    found.sort();
    anyhow::ensure!(found.len() >= 250, "{} scripts and settings were read", found.len());
    Ok(found)
}

/// Comment of a line in which comments begin with `#`, also behind code. A `#` inside a string
/// literal begins none: the quotation marks before it are not balanced.
fn comment_of_hash(line: &str) -> Option<&str> {
    let start = line.trim_start();
    if HEADS.iter().any(|head| start.starts_with(head)) {
        return None;
    }
    let behind = || {
        let is_code = |at: &usize| {
            ['"', '\''].iter().all(|it| line[..*at].matches(*it).count().is_multiple_of(2))
        };
        let at = line.match_indices(" # ").map(|(at, _)| at).find(is_code)?;
        Some(&line[at + 3..])
    };
    start.strip_prefix('#').or_else(behind)
}

/// Faults of the comments that begin with `#`: lines (1-based) beyond [`WIDTH_MAX`], and those that
/// call a thing one of [`PERSONS`].
fn wrong_of_hash(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let Some(comment) = comment_of_hash(line) else { continue };
        let width = line.chars().count();
        if width > WIDTH_MAX && !is_drawn(comment.trim()) {
            found.push((number, too_wide_by(width)));
        }
        let said = words(comment);
        let is_person = |word: &&&str| said.iter().any(|it| it == **word);
        found.extend(PERSONS.iter().filter(is_person).map(|word| (number, without(word))));
    }
    found
}

/// Message about a line of that width.
fn too_wide_by(width: usize) -> String {
    format!("prose of {width} columns, expected {WIDTH_MAX} at most")
}

/// Message about a comment that has `word` in place of a subject.
fn without(word: &str) -> String {
    format!("found {:?} in a doc, expected the subject by its name", word.trim_end())
}

/// Whether the module comment of a file opens with a question, which tells a reader of the list of
/// modules nothing about the file.
fn opens_with_a_question(source: &str) -> bool {
    first_sentence(source).is_some_and(|sentence| sentence.ends_with('?'))
}

/// First words that leave the subject of a doc or of a module comment to be guessed.
const BARE_OPENINGS: [&str; 11] =
    ["What ", "Whose ", "Whom ", "Who ", "Of ", "So ", "As ", "And ", "It ", "Those ", "The same "];

/// First word that is refused only in a module comment, because no item follows that could answer
/// the question.
const BARE_HEAD: &str = "Which ";

/// Words for persons, which must not be used for things.
const PERSONS: [&str; 4] = ["nobody", "somebody", "whoever", "whose"];

/// Lines (1-based) of a Rust text with a comment that names no subject: a doc or module comment that
/// opens with one of [`BARE_OPENINGS`], a module comment that opens with [`BARE_HEAD`], or a comment
/// that calls a thing one of [`PERSONS`].
fn without_subject(source: &str) -> Vec<(usize, &'static str)> {
    let mut found = Vec::new();
    let (mut in_doc, mut in_head) = (false, false);
    for (index, line) in source.lines().enumerate() {
        let Some(comment) = line.trim_start().strip_prefix("//") else {
            (in_doc, in_head) = (false, false);
            continue;
        };
        let doc = comment.strip_prefix('/').map(str::trim_start);
        let head = comment.strip_prefix('!').map(str::trim_start);
        let first_line = doc.filter(|_| !in_doc).or(head.filter(|_| !in_head));
        if let Some(first_line) = first_line {
            let also = head.map(|_| BARE_HEAD);
            let refused = BARE_OPENINGS.into_iter().chain(also);
            let opens = refused.filter(|opening| first_line.starts_with(opening));
            found.extend(opens.map(|opening| (index + 1, opening)));
        }
        (in_doc, in_head) = (doc.is_some(), head.is_some());
        let said = words(comment);
        let is_person = |word: &&&str| said.iter().any(|it| it == **word);
        found.extend(PERSONS.iter().filter(is_person).map(|word| (index + 1, *word)));
    }
    found
}

/// Every refused word, opening question and wide line of the project, as `file:line: …`.
pub(crate) fn found() -> anyhow::Result<Vec<String>> {
    let mut rust = rust_files("crates");
    rust.extend(rust_files("xtask"));
    anyhow::ensure!(rust.len() >= 300, "{} Rust files were read: there are more", rust.len());
    let mut found = Vec::new();
    let mut look = |path: &Path, is_rust: bool| -> anyhow::Result<()> {
        let (name, text) = (shown(path), std::fs::read_to_string(path)?);
        if name == "xtask/src/words.rs" {
            return Ok(());
        }
        for (index, line) in text.lines().enumerate() {
            let said = refused(&name, line);
            found.extend(said.into_iter().map(|said| format!("{name}:{}: {said}", index + 1)));
        }
        let wide = if is_rust { too_wide(&text) } else { too_wide_document(&text) };
        found.extend(
            wide.into_iter().map(|(line, width)| format!("{name}:{line}: {}", too_wide_by(width))),
        );
        let vague = if is_rust { without_subject(&text) } else { Vec::new() };
        found.extend(
            vague.into_iter().map(|(line, word)| format!("{name}:{line}: {}", without(word))),
        );
        if is_rust && opens_with_a_question(&text) {
            found.push(format!("{name}:1: found a question, expected what the file holds"));
        }
        Ok(())
    };
    rust.iter().try_for_each(|path| look(path, true))?;
    documents()?.iter().try_for_each(|path| look(path, false))?;
    for path in files_of_hash()? {
        let (name, text) = (shown(&path), std::fs::read_to_string(&path)?);
        let wrong = wrong_of_hash(&text).into_iter();
        found.extend(wrong.map(|(line, said)| format!("{name}:{line}: {said}")));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_project_says_the_words_of_the_field() {
        assert_eq!(found().unwrap(), Vec::<String>::new());
    }

    #[test]
    fn each_planted_word_is_found_where_it_is_refused_and_nowhere_else() {
        for word in REFUSED {
            let place = word.below.first().copied().unwrap_or("crates/weft-sim/src/x.rs");
            let path =
                if place.ends_with(".rs") { place.to_owned() } else { format!("{place}/x.rs") };
            let (snake, plural) = (word.words.replace(' ', "_"), format!("{}s", word.words));
            let camel: String = word.words.split(' ').map(capital).collect();
            for line in [
                format!("    let first_{snake} = 1;"),
                format!("struct {camel}Of;"),
                format!("/// Two {plural} lie side by side."),
            ] {
                let found = refused(&path, &line);
                assert!(found.iter().any(|it| it.contains(word.say)), "{path}: {line}: {found:?}");
            }
            if !word.below.is_empty() {
                let elsewhere = refused("fuzz/src/x.rs", &plural);
                assert!(!elsewhere.iter().any(|it| it.contains(word.words)), "{elsewhere:?}");
            }
            for other in word.but {
                let found = refused(&path, &format!("/// See {other}s here."));
                let own = format!("found {:?}", word.words);
                assert!(!found.iter().any(|it| it.starts_with(&own)), "{other}: {found:?}");
            }
        }
    }

    #[test]
    fn docs_without_a_subject_are_found() {
        for planted in [
            "/// What a volume has not answered.\nstruct Asked;",
            "    /// Of a checker.\n    name: u32,",
            "/// The same of reads.",
            "fn f() {\n    // Whoever waits goes on.\n}",
            "//! Nobody waits here.",
            "//! Which map belongs to a disk.\nuse std::fs;",
            "mod inner {\n    //! What is inside.\n}",
            "/// Members whose\n/// bits are set.",
            "let x = 1;\n// Lock of the file, whose owner waits.",
        ] {
            assert_eq!(without_subject(planted).len(), 1, "{planted}");
        }
        for right in [
            "/// Requests in flight.\n/// As by md, nothing waits.",
            "/// Whether it is read.",
            "/// Somebodys of a word.",
            "/// Which member is read.",
            "//! Map of a disk.\n//!\n//! Which of two is taken\n//! As in md.",
            "let text = \"/// What\";",
            "fn whose() -> &'static str { \"whose\" }",
        ] {
            assert_eq!(without_subject(right), [], "{right}");
        }
    }

    fn capital(word: &str) -> String {
        word[..1].to_uppercase() + &word[1..]
    }

    #[test]
    fn a_word_within_another_is_no_word() {
        let path = "crates/weft-engine/src/raid/parity/x.rs";
        let line = "it borrows what grows: narrow, superblock, silent, excellent, followed, planes";
        assert_eq!(refused(path, line), [""; 0]);
        let line = "what is taken, in one go; table.row(47, \"sync_size\")";
        assert_eq!(refused("crates/weft-sim/src/x.rs", line), [""; 0]);
    }

    #[test]
    fn a_planted_wide_comment_is_found_and_other_wide_lines_are_not() {
        let words = "word ".repeat(22);
        let planted = format!("/// {words}\nfn f() {{}} // {words}\n//! | {words} | {words} |\n");
        let found: Vec<usize> = too_wide(&planted).into_iter().map(|(line, _)| line).collect();
        assert_eq!(found, [1, 2]);
        let (heading, table) = (format!("/// Source   {words}\n"), format!("//! a 1   {words}\n"));
        assert_eq!((too_wide(&heading).len(), too_wide(&table).len()), (1, 0));
        let fenced =
            format!("/// ```text\n/// {words}\n/// ```\nlet s = \"{words} // {words}\";\n");
        assert_eq!(too_wide(&fenced), []);
        assert_eq!(too_wide(&format!("// {}\n", "x".repeat(97))), []);
        assert_eq!(too_wide(&format!("// {}\n", "x".repeat(98))), [(1, 101)]);
    }

    #[test]
    fn planted_comments_of_scripts_and_settings_are_found() {
        let wide = "word ".repeat(22);
        for planted in [
            format!("# {wide}"),
            format!("\t# {wide}\n"),
            format!("key = \"a # b\" # {wide}"),
            format!("run \"$(f)\"\nexit 0 # {wide}"),
            "#Members whose bits are set".to_owned(),
            "x = 1 # nobody waits".to_owned(),
            "# Whoever waits goes on.".to_owned(),
        ] {
            assert_eq!(wrong_of_hash(&planted).len(), 1, "{planted}");
        }
        for right in [
            format!("# needs: {wide}"),
            format!("#!/usr/bin/env {wide}"),
            format!("key = \"{wide} # nobody {wide}\""),
            format!("text='{wide} # nobody {wide}'"),
            format!("# | {wide} |"),
            "run whose nobody".to_owned(),
            "# People who knew the figures.".to_owned(),
            format!("# {}", "x".repeat(98)),
        ] {
            assert_eq!(wrong_of_hash(&right), [], "{right}");
        }
        let read: Vec<String> = files_of_hash().unwrap().iter().map(|path| shown(path)).collect();
        for name in [
            ".ci/run",
            "deny.toml",
            "crates/weft-crash/scripts/regressions/lost-correction-of-a-suspect.script",
            "crates/weft-sim/drives/hdd-2011-7200.toml",
            "experiments/000.toml",
            "interop/kill9/run",
            "interop/lab/guest.sh",
            "packaging/weft@.service",
        ] {
            assert!(read.iter().any(|it| it == name), "{name}");
        }
    }

    #[test]
    fn a_planted_question_and_a_planted_wide_line_of_a_document_are_found() {
        for question in ["//! Who is here?\n", "//! `weft x`: does it\n//! work? Yes.\n"] {
            assert!(opens_with_a_question(question), "{question}");
        }
        for answer in ["//! Locks: who waits.\n//!\n//! Why? So.\n", "fn f() {}\n"] {
            assert!(!opens_with_a_question(answer), "{answer}");
        }
        let wide = "word ".repeat(22);
        let text =
            format!("{wide}\n- {wide}\n| {wide} |\n```\n{wide}\n```\n    {wide}\n<!-- {wide}\n");
        let lines: Vec<usize> =
            too_wide_document(&text).into_iter().map(|(line, _)| line).collect();
        assert_eq!(lines, [1, 2]);
    }
}
