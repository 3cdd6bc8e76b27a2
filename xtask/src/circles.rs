//! Circles between modules: parts of a crate must not name each other in a circle.
//!
//! A part is a file or folder at the top level of a crate; below a folder of [`Watched::split`] or
//! [`Watched::apart`], each file or folder is a part of its own. Every path that begins with
//! `crate`, `self`, `super` or a module of the same file is read, in `use` and in code, and gives
//! an arrow from the naming part to the named part. Two parts that reach each other by arrows are
//! in a circle. Tests do not count, because they are above the code that they test.
//!
//! [`deps`](crate::deps) enforces the order of whole crates.

use crate::tree;
use anyhow::Context;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Crate with folders that are split into parts. In the other crates of [`tree::crates`] only files
/// and folders of the top level are parts. No crate may have a circle.
#[derive(Clone, Copy, Default)]
struct Watched<'a> {
    /// Name of the crate's folder below `crates/`.
    of: &'a str,
    /// Folders in which each file is a part of its own.
    split: &'a [&'a str],
    /// Folders in which each file is a part of its own, and must not name any other file of the
    /// folder.
    apart: &'a [&'a str],
}

const WATCHED: [Watched<'static>; 2] = [
    Watched { of: "weft-cli", split: &[], apart: &["command"] },
    Watched { of: "weft-runtime", split: &["io", "serve"], apart: &[] },
];

/// Arrows between parts of a crate, each with one source line that names the part: `file:line`.
#[derive(Debug, Default)]
struct Arrows {
    files: usize,
    of: BTreeMap<(String, String), String>,
}

/// A token of a source text, with its line.
#[derive(Clone, Debug, PartialEq)]
enum Token {
    Word(String, usize),
    Sign(char),
    /// The path separator `::`.
    Path,
}

/// Tokens of a source text, without comments, string literals and code that is built only for
/// tests.
fn tokens(source: &str) -> Vec<Token> {
    let mut found = Vec::new();
    let mut lines = (1..).zip(source.lines());
    while let Some((line, text)) = lines.next() {
        if text.starts_with("#[cfg(test)]") {
            let item = lines.find(|(_, text)| !text.starts_with("#["));
            if !item.is_some_and(|(_, text)| text.ends_with(';')) {
                // rustfmt closes an item of several lines in its first column.
                lines.find(|(_, text)| text.starts_with('}'));
            }
            continue;
        }
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            if rest.starts_with("//") {
                break;
            }
            let len = if first.is_alphanumeric() || first == '_' {
                let is_word = |c: char| c.is_alphanumeric() || c == '_';
                let len = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
                found.push(Token::Word(rest[..len].to_owned(), line));
                len
            } else if first == '"' {
                // A string literal that continues on the next line is cut at the line end: its
                // words are no paths.
                rest[1..].find('"').map_or(rest.len(), |end| end + 2)
            } else if rest.starts_with("::") {
                found.push(Token::Path);
                2
            } else {
                found.extend((!first.is_whitespace()).then_some(Token::Sign(first)));
                first.len_utf8()
            };
            rest = &rest[len..];
        }
    }
    found
}

/// Every path in the tokens, with its line. A `use` with braces gives a path for each name.
fn paths(tokens: &[Token]) -> Vec<(Vec<String>, usize)> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let before = at.checked_sub(1).map(|before| &tokens[before]);
        let begins = !matches!(before, Some(Token::Path | Token::Sign('.' | '$')));
        let is_path = matches!(tokens.get(at + 1), Some(Token::Path));
        match &tokens[at] {
            Token::Word(..) if begins && is_path => at = path(tokens, at, &[], &mut found),
            _ => at += 1,
        }
    }
    found
}

/// Reads the path that begins at a token. Returns the index after it.
fn path(
    tokens: &[Token],
    mut at: usize,
    before: &[String],
    found: &mut Vec<(Vec<String>, usize)>,
) -> usize {
    let mut path = before.to_vec();
    let mut line = 0;
    while let Some(Token::Word(word, of)) = tokens.get(at) {
        path.push(word.clone());
        line = *of;
        at += 1;
        if tokens.get(at) != Some(&Token::Path) {
            break;
        }
        at += 1;
        if tokens.get(at) == Some(&Token::Sign('{')) {
            at += 1;
            while at < tokens.len() && tokens[at] != Token::Sign('}') {
                at = match &tokens[at] {
                    Token::Word(..) => self::path(tokens, at, &path, found),
                    _ => at + 1,
                };
            }
            return at + 1;
        }
    }
    found.push((path, line));
    at
}

/// Module of a file, from the crate's root: `a/b.rs` and `a/b/mod.rs` are `a::b`.
fn module_of(file: &str) -> Vec<String> {
    let stem = file.trim_end_matches(".rs");
    let mut module: Vec<String> = stem.split('/').map(str::to_owned).collect();
    if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        module.pop();
    }
    module
}

/// Arrows of a crate. `files` are its sources: (path below `src`, text).
fn arrows(files: &[(String, String)], split: &[&str]) -> Arrows {
    let modules: BTreeSet<Vec<String>> = files.iter().map(|(name, _)| module_of(name)).collect();
    let part_of = |module: &[String]| match module {
        [] => ROOT.to_owned(),
        [first, second, ..]
            if split.contains(&first.as_str())
                && modules.contains(&[first.clone(), second.clone()][..]) =>
        {
            format!("{first}/{second}")
        }
        [first, ..] => first.clone(),
    };
    let resolved = |module: &[String], path: &[String]| -> Option<Vec<String>> {
        let (first, rest) = path.split_first()?;
        let mut from = match first.as_str() {
            "crate" => Vec::new(),
            "self" => module.to_vec(),
            "super" => module.split_last()?.1.to_vec(),
            child => {
                let inner = [module, &[child.to_owned()]].concat();
                return modules.contains(&inner).then(|| [module, path].concat());
            }
        };
        let supers = rest.iter().take_while(|word| *word == "super").count();
        from.truncate(from.len().checked_sub(supers)?);
        from.extend(rest[supers..].iter().cloned());
        Some(from)
    };
    // Names that the root re-exports resolve to their modules.
    let read: Vec<_> =
        files.iter().map(|(name, text)| (name, module_of(name), paths(&tokens(text)))).collect();
    let mut exported: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (_, module, paths) in read.iter().filter(|(_, module, _)| module.is_empty()) {
        for (path, _) in paths {
            if let (Some(to), Some(last)) = (resolved(module, path), path.last()) {
                exported.insert(last.clone(), to);
            }
        }
    }
    let mut found = Arrows { files: files.len(), ..Arrows::default() };
    for (name, module, paths) in &read {
        let from = part_of(module);
        for (path, line) in paths {
            let Some(mut to) = resolved(module, path) else { continue };
            let is_module = to.first().is_some_and(|first| modules.contains(&vec![first.clone()]));
            if let Some(first) = to.first().filter(|_| !is_module) {
                to = exported.get(first).cloned().unwrap_or_default();
            }
            let to = part_of(&to);
            if from != to {
                found.of.entry((from.clone(), to)).or_insert_with(|| format!("{name}:{line}"));
            }
        }
    }
    found
}

/// Name of the crate's root as a part.
const ROOT: &str = "the root";

impl Arrows {
    /// Arrows that are part of a circle, because other arrows lead from the named part back to the
    /// naming part.
    fn in_circles(&self) -> BTreeMap<&(String, String), &str> {
        let mut reach: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (from, to) in self.of.keys() {
            reach.entry(from).or_default().insert(to);
        }
        loop {
            let wider: BTreeMap<&str, BTreeSet<&str>> = reach
                .iter()
                .map(|(from, to)| {
                    let further = to.iter().filter_map(|to| reach.get(to)).flatten();
                    (*from, to.iter().chain(further).copied().collect())
                })
                .collect();
            if wider == reach {
                break;
            }
            reach = wider;
        }
        let comes_back =
            |from: &str, to: &str| reach.get(to).is_some_and(|further| further.contains(from));
        let arrows = self.of.iter().filter(|((from, to), _)| comes_back(from, to));
        arrows.map(|(arrow, at)| (arrow, at.as_str())).collect()
    }

    /// Messages about arrows between files of one of the folders `apart`, in which no file may name
    /// another.
    fn aside(&self, apart: &[&str]) -> Vec<String> {
        let below = |part: &str| part.split_once('/').is_some_and(|(of, _)| apart.contains(&of));
        let arrows = self.of.iter().filter(|((from, to), _)| below(from) && below(to));
        arrows
            .map(|((from, to), at)| format!("{at}: {from} → {to}, expected a module below both"))
            .collect()
    }

    /// Violations of the rules by the arrows of a crate.
    fn wrong(&self, watched: &Watched<'_>) -> Vec<String> {
        let circles = self.in_circles();
        let mut wrong: Vec<String> = circles
            .into_iter()
            .map(|((from, to), at)| format!("{at}: {from} → {to} is in a circle"))
            .collect();
        wrong.extend(self.aside(watched.apart));
        wrong
    }
}

/// Files of a crate's sources without test files: (path below `src`, text).
fn sources(source: &str) -> anyhow::Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for file in tree::rust_files(source) {
        let below = file.strip_prefix(tree::root().join(source))?.display().to_string();
        let is_test = Path::new(&below)
            .components()
            .any(|part| ["tests", "tests.rs"].iter().any(|name| part.as_os_str() == *name));
        if !is_test {
            found
                .push((below, std::fs::read_to_string(&file).with_context(|| tree::shown(&file))?));
        }
    }
    Ok(found)
}

/// Messages about the arrows in circles of all crates. Prints the number of files and arrows that
/// were read.
pub(crate) fn found() -> anyhow::Result<Vec<String>> {
    let mut wrong = Vec::new();
    let crates = tree::crates()?;
    let (mut files_read, mut arrows_read) = (0, 0);
    let gone = WATCHED.iter().filter(|watched| !crates.iter().any(|of| of == watched.of));
    wrong.extend(gone.map(|watched| format!("{}: there is no such crate", watched.of)));
    for of in &crates {
        let by_default = Watched { of, ..Watched::default() };
        let watched = WATCHED.iter().find(|watched| watched.of == of).unwrap_or(&by_default);
        let source = format!("crates/{of}/src");
        let split = [watched.split, watched.apart].concat();
        let arrows = arrows(&sources(&source)?, &split);
        println!(
            "{source}: {} files, {} arrows, {} of them in circles",
            arrows.files,
            arrows.of.len(),
            arrows.in_circles().len()
        );
        files_read += arrows.files;
        arrows_read += arrows.of.len();
        wrong.extend(arrows.wrong(watched).into_iter().map(|it| format!("crates/{of}: {it}")));
    }
    anyhow::ensure!(
        files_read >= 500 && arrows_read >= 300,
        "{} crates, {files_read} files, {arrows_read} arrows were read: there are more",
        crates.len()
    );
    Ok(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_crate_has_a_circle() {
        assert_eq!(found().unwrap(), Vec::<String>::new());
    }

    fn of(files: &[(&str, &str)], split: &[&str]) -> Arrows {
        let owned = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
        arrows(&files.iter().map(owned).collect::<Vec<_>>(), split)
    }

    fn shown(arrows: &Arrows) -> Vec<String> {
        arrows.of.iter().map(|((from, to), at)| format!("{from} → {to} {at}")).collect()
    }

    #[test]
    fn every_way_to_name_a_module_is_an_arrow() {
        let files = [
            ("lib.rs", "mod a;\npub use b::inner::{Thing, Other as More};\n"),
            ("a.rs", "use crate::{b::{self, x}, c};\n// crate::e\nlet s = \"crate::e\";\n"),
            ("b/mod.rs", "mod inner;\nfn f() { crate::d::g() }\n"),
            ("b/inner.rs", "use super::super::e::E;\nuse super::f;\n"),
            (
                "c.rs",
                "use crate::Thing;\nuse std::io;\n#[cfg(test)]\nmod tests {\nuse crate::a::X;\n",
            ),
            ("d.rs", "macro_rules! m { () => { $crate::e::E } }\n"),
            (
                "e.rs",
                "#[cfg(test)]\n#[path]\nmod tests;\n#[cfg(test)]\nmod x {\n}\nuse crate::g::G;\n",
            ),
            ("g.rs", ""),
        ];
        let arrows = of(&files, &[]);
        let expected = [
            "a → b a.rs:1",
            "a → c a.rs:1",
            "b → d b/mod.rs:2",
            "b → e b/inner.rs:1",
            "c → b c.rs:1",
            "e → g e.rs:7",
            "the root → b lib.rs:2",
        ];
        assert_eq!(shown(&arrows), expected);
        assert_eq!((arrows.files, arrows.in_circles().len()), (8, 0));
    }

    #[test]
    fn a_planted_circle_is_found_with_its_arrows_and_no_other() {
        let mut files = sources("crates/weft-cli/src").unwrap();
        let before = arrows(&files, &["command"]);
        assert!(before.in_circles().is_empty());
        let planted = files.iter_mut().find(|(name, _)| name == "size.rs").unwrap();
        planted.1 = format!("use crate::command::serve::Serve;\n{}", planted.1);
        let after = arrows(&files, &["command"]);
        let circles = after.in_circles();
        let planted = ("size".to_owned(), "command/serve".to_owned());
        assert_eq!(circles[&planted], "size.rs:1");
        let watched = Watched { apart: &["command"], ..Watched::default() };
        assert_eq!(after.wrong(&watched).len(), circles.len());
    }

    /// Violations after `line` was added to a file of a crate that is not in [`WATCHED`].
    fn planted_in(of: &str, file: &str, line: &str) -> Vec<String> {
        let mut files = sources(&format!("crates/{of}/src")).unwrap();
        let planted = files.iter_mut().find(|(name, _)| name == file).unwrap();
        planted.1 = format!("{line}\n{}", planted.1);
        arrows(&files, &[]).wrong(&Watched::default())
    }

    #[test]
    fn a_circle_planted_in_any_crate_is_found() {
        assert!(!WATCHED.iter().any(|it| ["weft-engine", "weft-nbd"].contains(&it.of)));
        let wrong = planted_in("weft-engine", "layout/mod.rs", "use crate::volume::Volume;");
        assert!(wrong.iter().any(|it| it.starts_with("layout/mod.rs:1: layout → volume is")));
        assert_eq!(planted_in("weft-nbd", "uri.rs", "use std::io;"), Vec::<String>::new());
        let names = tree::crates().unwrap();
        assert!(names.len() >= 13 && names.contains(&"weft-units".to_owned()), "{names:?}");
    }

    #[test]
    fn a_circle_planted_in_a_split_folder_is_found() {
        let mut files = sources("crates/weft-runtime/src").unwrap();
        assert!(arrows(&files, &["serve"]).in_circles().is_empty());
        let planted = files.iter_mut().find(|(name, _)| name == "serve/pool.rs").unwrap();
        planted.1 = format!("use super::worker::Worker;\n{}", planted.1);
        let after = arrows(&files, &["serve"]);
        let planted = ("serve/pool".to_owned(), "serve/worker".to_owned());
        assert_eq!(after.in_circles()[&planted], "serve/pool.rs:1");
        assert!(arrows(&files, &[]).in_circles().is_empty(), "of a folder as a whole it is none");
    }

    #[test]
    fn a_command_that_names_another_is_found_without_a_circle() {
        let files = [
            ("main.rs", "mod command;\n"),
            ("command/mod.rs", "mod one;\nmod two;\nfn f() { one::run(); two::run() }\n"),
            ("command/one.rs", "use super::two::Two;\n"),
            ("command/two.rs", ""),
        ];
        let arrows = of(&files, &["command"]);
        assert!(arrows.in_circles().is_empty());
        let aside = arrows.aside(&["command"]);
        assert_eq!(
            aside,
            ["command/one.rs:1: command/one → command/two, expected a module below both"]
        );
        // A reference within a folder that is one part gives no arrow.
        assert_eq!(shown(&of(&files, &[])), [""; 0]);
    }
}
