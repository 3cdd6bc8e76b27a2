//! Mutants by hand: changes that no operator of cargo-mutants makes, and the tests that detect
//! them.
//!
//! `xtask/mutants-hand.txt` has a paragraph for each change: its name, its file, the behaviour that
//! it breaks, the old lines after `-`, the new lines after `+`, and the test that must fail, or the
//! reason why no test can fail. All changes are built at once, each behind a switch in its
//! function, as [`super::together`] builds the changes of cargo-mutants. A test of this file checks
//! that every old text is found exactly once, so that the list stays up to date.

use super::reach::test;
use super::together::{
    self, Change, Unbuilt, copy_tree, programs_of, take_out_what_does_not_compile,
};
use crate::lines::{commit, date};
use crate::part::Ending;
use crate::runner::Binary;
use crate::tree;
use anyhow::{Context, ensure};
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;

/// Change of the list, from one paragraph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Hand {
    name: String,
    file: String,
    breaks: String,
    old: String,
    new: String,
    /// Test that must fail: its program and its name. `None` if no test can fail.
    found_by: Option<(String, String)>,
    /// Reason why no test can fail; `None` if a test must fail.
    survives: Option<String>,
}

/// Runs all changes of the list, and adds a line to the ledger.
pub(super) fn run() -> anyhow::Result<Ending> {
    let set = super::set_named("stripes")?;
    let list = list()?;
    let folder = tree::root().join("target/mutants/hand");
    let changes = list.iter().zip(1..).map(|(it, id)| change(it, id));
    let changes = changes.collect::<anyhow::Result<Vec<_>>>()?;
    copy_tree(set, &folder, &changes)?;
    let unbuilt = take_out_what_does_not_compile(set, &folder, &changes, Unbuilt::default())?;
    let unviable = unbuilt.unviable;
    let names = || list.iter().zip(1..).filter(|(_, id)| unviable.contains(id));
    let unviable_names: Vec<&str> = names().map(|(it, _)| it.name.as_str()).collect();
    ensure!(unviable_names.is_empty(), "do not compile: {}", unviable_names.join(", "));
    let mut problem = String::new();
    let (mut caught, mut survived) = (Vec::new(), Vec::new());
    let named = |it: Binary| (it.name().replace('_', "-"), it);
    let programs: BTreeMap<_, _> = programs_of(set, &folder, &[])?.into_iter().map(named).collect();
    for (it, id) in list.iter().zip(1..) {
        let Some((program, name)) = &it.found_by else {
            survived.push(it.name.clone());
            continue;
        };
        let binary = programs.get(program).with_context(|| format!("{program}: not built"))?;
        let unchanged = test(binary, name, 0, 600, None)?;
        ensure!(unchanged.is_none(), "{}: {name} fails unchanged: {unchanged:?}", it.name);
        let found = test(binary, name, id, 600, None)?;
        println!("{} {}", found.as_ref().map_or("missed", |(outcome, _)| outcome), it.name);
        match found {
            Some(_) => caught.push(it.name.clone()),
            None => {
                let _ = write!(problem, "\n  survived {name}: {}", it.name);
            }
        }
    }
    let (tried, date, commit) = (list.len(), date()?, commit()?);
    let line = json!({"date": date, "commit": commit, "tried": tried, "caught": caught,
                      "survives": survived});
    let path = tree::root().join("xtask/mutants-hand.jsonl");
    let mut text = std::fs::read_to_string(&path).unwrap_or_default();
    let _ = writeln!(text, "{line}");
    std::fs::write(&path, text)?;
    println!("{tried} by hand: {} caught, {} listed as survivors", caught.len(), survived.len());
    Ok(if problem.is_empty() { Ending::Passed } else { Ending::Failed(problem) })
}

fn list() -> anyhow::Result<Vec<Hand>> {
    let path = tree::root().join("xtask/mutants-hand.txt");
    let text = std::fs::read_to_string(&path).with_context(|| tree::shown(&path))?;
    parse(&text).with_context(|| tree::shown(&path))
}

/// Parses paragraphs with lines `name:`, `file:`, `breaks:`, `-OLD`, `+NEW`, and `found by: CRATE
/// TEST` or `survives: REASON`; `#` begins a comment.
fn parse(text: &str) -> anyhow::Result<Vec<Hand>> {
    let mut list = Vec::new();
    for paragraph in text.split("\n\n") {
        let mut it = Hand::default();
        for line in paragraph.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            if let Some(old) = line.strip_prefix('-') {
                it.old += &format!("{old}\n");
            } else if let Some(new) = line.strip_prefix('+') {
                it.new += &format!("{new}\n");
            } else {
                let (field, value) = line.split_once(": ").with_context(|| line.to_owned())?;
                match field {
                    "name" => it.name = value.to_owned(),
                    "file" => it.file = value.to_owned(),
                    "breaks" => it.breaks = value.to_owned(),
                    "found by" => {
                        let test = value.split_once(' ').with_context(|| line.to_owned())?;
                        it.found_by = Some((test.0.to_owned(), test.1.to_owned()));
                    }
                    "survives" => it.survives = Some(value.to_owned()),
                    _ => anyhow::bail!("{line:?}: expected name, file, breaks, found by, survives"),
                }
            }
        }
        if it == Hand::default() {
            continue;
        }
        let whole = ![&it.name, &it.file, &it.breaks, &it.old].iter().any(|it| it.is_empty());
        ensure!(whole, "{it:?}: expected a name, a file, what breaks, and an old text");
        ensure!(
            it.found_by.is_some() != it.survives.is_some(),
            "{}: found by, or survives",
            it.name
        );
        list.push(it);
    }
    Ok(list)
}

/// Converts a change of the list to a change of the function that contains the old text.
fn change(it: &Hand, id: u32) -> anyhow::Result<Change> {
    let source = std::fs::read_to_string(tree::root().join(&it.file))?;
    let changed = place(it, &source)?;
    let function = enclosing(&source, changed.start).with_context(|| it.name.clone())?;
    let (file, name) = (it.file.clone(), it.name.clone());
    Ok(Change {
        id,
        number: id,
        file,
        name,
        function,
        changed,
        replacement: it.new.clone(),
        constant: None,
    })
}

/// Byte range of the old text in the source, where it must occur exactly once.
fn place(it: &Hand, source: &str) -> anyhow::Result<Range<usize>> {
    let mut places = source.match_indices(&it.old);
    let (first, second) = (places.next(), places.next());
    ensure!(second.is_none(), "{}: {}: the old text is there more than once", it.name, it.file);
    let (start, text) =
        first.with_context(|| format!("{}: {}: found no old text", it.name, it.file))?;
    Ok(start..start + text.len())
}

/// Byte range of the body of the function around position `at`, with its braces. rustfmt puts the
/// closing brace of a function into the column of its first line.
fn enclosing(source: &str, at: usize) -> Option<Range<usize>> {
    let starts = source[..at].match_indices("fn ").map(|(start, _)| start);
    let begins = |start: &usize| {
        let line = source[..*start].rfind('\n').map_or(0, |it| it + 1);
        let before = source[line..*start].trim_start();
        ["", "pub ", "pub(crate) ", "pub(super) ", "pub(in crate::array) "].contains(&before)
    };
    let start = starts.filter(begins).last()?;
    let line = source[..start].rfind('\n').map_or(0, |it| it + 1);
    let indent = source[line..].len() - source[line..].trim_start_matches(' ').len();
    let close = format!("\n{}}}\n", " ".repeat(indent));
    let end = start + source[start..].find(&close)? + close.len() - 1;
    let body = together::body(&source[start..end])?;
    (at < end).then_some(start + body.start..start + body.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_old_text_is_found_once_and_in_a_function() {
        let list = list().unwrap();
        assert!(list.len() >= 5, "{} are too few", list.len());
        for (it, id) in list.iter().zip(1..) {
            assert!(it.file.starts_with("crates/weft-engine/src/"), "{}: of weft-engine", it.name);
            let change = change(it, id).unwrap_or_else(|error| panic!("{error:#}"));
            assert!(change.function.start < change.changed.start, "{}", it.name);
            assert!(change.changed.end < change.function.end, "{}", it.name);
            if let Some((of, test)) = &it.found_by {
                let (module, named) = test.rsplit_once("::").unwrap_or(("", test));
                let module = module.replace("::", "/");
                // The module `tests` has a file of its own, or is in the file of the module around
                // it.
                let path = format!("crates/{of}/src/{module}");
                let around = path.strip_suffix("/tests").unwrap_or(&path);
                let paths =
                    [format!("{path}.rs"), format!("{around}.rs"), format!("{around}/mod.rs")];
                let has_it = |path: &String| {
                    let source = std::fs::read_to_string(tree::root().join(path));
                    source.is_ok_and(|source| source.contains(&format!("fn {named}()")))
                };
                assert!(paths.iter().any(has_it), "{}: {paths:?}: {named}", it.name);
            }
        }
    }

    #[test]
    fn an_old_text_that_is_gone_or_there_twice_is_told() {
        let text = "name: n\nfile: f\nbreaks: b\n-    a + b\n+    a - b\nfound by: p t\n";
        let [it] = parse(text).unwrap().try_into().unwrap();
        assert_eq!((it.old.as_str(), it.new.as_str()), ("    a + b\n", "    a - b\n"));
        let source = "/// Doc.\nfn sum(a: u8, b: u8) -> u8 {\n    a + b\n}\n\nfn other() {}\n";
        let changed = place(&it, source).unwrap();
        let function = enclosing(source, changed.start).unwrap();
        assert_eq!(&source[function], "{\n    a + b\n}");
        assert!(place(&it, "fn f() {}\n").unwrap_err().to_string().contains("found no old text"));
        let twice = format!("{source}{source}");
        assert!(place(&it, &twice).unwrap_err().to_string().contains("more than once"));
        assert!(parse("name: n\nfile: f\nbreaks: b\n-a\n+b\n").is_err(), "no test, and no reason");
        assert!(parse("nonsense").is_err());
    }
}
