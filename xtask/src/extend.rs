//! Places that a recipe of `docs/EXTEND.md` names and that no compiler misses: entries and uses of
//! the engine's knobs, and lists and uses of its planted bugs.

use crate::tree;

/// Names of the fields of a struct or the variants of an enum. `begin` is its first line.
fn members<'a>(source: &'a str, begin: &str) -> Vec<&'a str> {
    let (_, body) = source.split_once(begin).expect("the item is in its file");
    let (body, _) = body.split_once("\n}").expect("the item ends");
    let member = |line: &'a str| {
        let line = line.trim_start();
        let name = line.trim_start_matches("pub ").split([':', ',']).next()?;
        let is_code = !line.starts_with("//") && !line.starts_with('#') && !name.is_empty();
        is_code.then_some(name)
    };
    body.lines().filter_map(member).collect()
}

/// Members of an item that are not used, each with the use that it lacks.
fn without_use(members: &[&str], lack: &str, is_used: impl Fn(&str) -> bool) -> Vec<String> {
    members.iter().filter(|name| !is_used(name)).map(|name| format!("{name}: {lack}")).collect()
}

/// Fields of `Knobs` (`knobs/mod.rs`) that no entry of the table sets or that `others`, the engine
/// without its knobs, does not read.
fn knobs_in_vain(knobs: &str, table: &str, others: &str) -> Vec<String> {
    let fields = members(knobs, "pub struct Knobs {");
    let is_set =
        |name: &str| [' ', '.'].iter().any(|end| table.contains(&format!(" at {name}{end}")));
    let is_read = |name: &str| {
        others.contains(&format!("knobs.{name}")) || knobs.contains(&format!("self.{name}"))
    };
    let mut found = without_use(&fields, "no entry of the table", is_set);
    found.extend(without_use(&fields, "read nowhere", is_read));
    found
}

/// Whether a text contains a path that is not the beginning of a longer one.
fn has_path(text: &str, path: &str) -> bool {
    let ends = |at: usize| !text[at + path.len()..].starts_with(char::is_alphanumeric);
    text.match_indices(path).any(|(at, _)| ends(at))
}

/// Planted bugs (`mutant.rs`) that are in no list there, or that `others`, the engine, does not
/// have.
fn bugs_in_vain(mutants: &str, others: &str) -> Vec<String> {
    let bugs = members(mutants, "pub enum Mutant {");
    let is_listed = |name: &str| has_path(mutants, &format!("Self::{name}"));
    let is_planted = |name: &str| has_path(others, &format!("Mutant::{name}"));
    let mut found = without_use(&bugs, "in no list", is_listed);
    found.extend(without_use(&bugs, "planted nowhere", is_planted));
    found
}

const ENGINE: &str = "crates/weft-engine/src/";

fn read(file: &str) -> String {
    std::fs::read_to_string(tree::root().join(ENGINE).join(file)).unwrap()
}

/// Sources of the engine, without tests and without the files that begin with `but`.
fn sources_but(but: &str) -> String {
    let files = tree::rust_files(ENGINE).into_iter().filter(|file| {
        let shown = tree::shown(file);
        !shown.contains("tests") && !shown.starts_with(&format!("{ENGINE}{but}"))
    });
    files.map(|file| std::fs::read_to_string(file).unwrap()).collect()
}

#[test]
fn every_knob_has_an_entry_and_is_read() {
    let (knobs, table, others) =
        (read("knobs/mod.rs"), read("knobs/table.rs"), sources_but("knobs/"));
    assert_eq!(knobs_in_vain(&knobs, &table, &others), [""; 0]);
    let begin = "pub struct Knobs {";
    let planted =
        knobs.replace(begin, &format!("{begin}\n    /// A knob.\n    pub planted: bool,"));
    let found = knobs_in_vain(&planted, &table, &others);
    assert_eq!(found, ["planted: no entry of the table", "planted: read nowhere"]);
}

#[test]
fn every_planted_bug_is_in_a_list_and_in_the_engine() {
    let (mutants, others) = (read("mutant.rs"), sources_but("mutant.rs"));
    assert_eq!(bugs_in_vain(&mutants, &others), [""; 0]);
    let planted = mutants.replace("pub enum Mutant {", "pub enum Mutant {\n    NoBug,");
    assert_eq!(bugs_in_vain(&planted, &others), ["NoBug: in no list", "NoBug: planted nowhere"]);
}
