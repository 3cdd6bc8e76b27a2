//! Places that a recipe of `docs/EXTEND.md` names and that no compiler misses: entries and uses of
//! the engine's knobs, lists and uses of its planted bugs, kinds of content that a rescue finds,
//! and reasons in experiments.

use crate::tree;
use serde_json::Value;

/// Names of the fields of a struct or the variants of an enum. `begin` is its first line.
fn members<'a>(source: &'a str, begin: &str) -> Vec<&'a str> {
    let (_, body) = source.split_once(begin).expect("the item is in its file");
    let (body, _) = body.split_once("\n}").expect("the item ends");
    let member = |line: &'a str| {
        let line = line.trim_start();
        let name = line.trim_start_matches("pub ").split([':', ',', '(']).next()?;
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

/// Kind of content that no probe of a device finds: one within a file system.
const WITHIN_ANOTHER: &str = "Snapshot";

/// Kinds of content (`probe.rs` of weft-files) that the probe does not recognise.
fn kinds_in_vain(probe: &str) -> Vec<String> {
    let mut kinds = members(probe, "pub enum Kind {");
    kinds.retain(|kind| *kind != WITHIN_ANOTHER);
    without_use(&kinds, "recognised nowhere", |name| has_path(probe, &format!("Kind::{name}")))
}

/// Rows of a record of an experiment that have a verdict, do not agree, and lack a reason.
fn rows_without_reason(name: &str, record: &Value) -> Vec<String> {
    let rows = record["rows"].as_array().into_iter().flatten();
    let lacks = |row: &&Value| {
        let disagrees = row["verdict"].as_str().is_some_and(|verdict| verdict != "agrees");
        disagrees && row["reason"].as_str().is_none_or(str::is_empty)
    };
    rows.filter(lacks).map(|row| format!("{name}: {}: {}", row["cell"], row["verdict"])).collect()
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

#[test]
fn every_kind_of_content_is_recognised() {
    let probe = tree::root().join("crates/weft-files/src/probe.rs");
    let probe = std::fs::read_to_string(probe).unwrap();
    assert_eq!(kinds_in_vain(&probe), [""; 0]);
    let planted = probe.replace("pub enum Kind {", "pub enum Kind {\n    Ntfs(u8),");
    assert_eq!(kinds_in_vain(&planted), ["Ntfs: recognised nowhere"]);
}

#[test]
fn every_row_that_does_not_agree_has_a_reason() {
    let is_record = |path: &std::path::Path| path.extension().is_some_and(|it| it == "json");
    let records = tree::files("experiments/results", is_record);
    assert!(records.len() >= 12, "{} records", records.len());
    let mut disagree = 0;
    for path in records {
        let name = tree::shown(&path);
        let mut record: Value =
            serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(rows_without_reason(&name, &record), [""; 0]);
        for row in record["rows"].as_array_mut().unwrap() {
            row["reason"] = Value::Null;
        }
        disagree += rows_without_reason(&name, &record).len();
    }
    assert!(disagree >= 20, "{disagree} rows were found once their reasons were taken away");
}
