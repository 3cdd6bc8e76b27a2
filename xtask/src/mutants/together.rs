//! Mutants built together: one build has all changes of a shard, and one change is selected at run
//! time.
//!
//! cargo-mutants builds the crate and every test program once for each change, which takes more CPU
//! time than the tests of changes that are caught early. Here, in a copy of the tree, each changed
//! function contains all of its versions side by side:
//!
//! ```text
//! fn area(&self) -> u64 {
//!     match crate::chosen_change(17) {
//!         17 => { self.width + self.height }
//!         18 => { 0 }
//!         _ => { self.width * self.height }
//!     }
//! }
//! ```
//!
//! The environment selects the version that runs. The changes and their positions come from `cargo
//! mutants --list`, so names in the ledger are the same. Versions that do not compile are found by
//! the lines that rustc reports, and are removed. A `const` function loses its `const` in the copy,
//! unless a constant calls it. Some changes cannot be built this way and are left to cargo-mutants:
//! changes outside of functions, in functions that constants call or that hide their type (`impl
//! Trait`), and in functions nested in other changed functions.
//!
//! The number of a function is that of its first change. Each test of the configuration's programs
//! runs once without a change, and records the functions that it calls ([`super::reach`]). Each
//! change then runs only with the tests that call its function, the fastest first, until one fails,
//! because other tests cannot notice the change. Most changes are caught within a tenth of a
//! second. Slow tests run at the end, with the changes that are left. A change in a function that
//! no test calls is a survivor without a run. Limits are in CPU time, so a busy machine does not
//! abort a passing run. The same command continues a run that was interrupted, as long as the
//! changes are the same.

use super::reach;
use super::{Found, Mutant, Set, judge, ledger, sharding, survivors};
use crate::lines::text;
use crate::part::Ending;
use crate::runner::{Binary, built};
use crate::tree;
use anyhow::{Context, ensure};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Largest number of builds in the search for versions that do not compile.
const BUILDS_MAX: usize = 12;

/// Beginning of a function that constants may call.
const CONST_FN: &str = "const fn ";

/// Distance in the list between changes that are tried one after another. An interrupted run has
/// thus covered a part of each file.
const STRIDE: usize = 7;

/// A change of a shard.
#[derive(Clone, Debug, Default)]
pub(super) struct Change {
    /// Number of the change, from 1; 0 selects the unchanged code.
    pub(super) id: u32,
    /// Number of the function: the `id` of its first change.
    pub(super) number: u32,
    pub(super) file: String,
    pub(super) name: String,
    /// Byte range of the whole function in the file.
    pub(super) function: Range<usize>,
    pub(super) changed: Range<usize>,
    pub(super) replacement: String,
    /// Name of the function, if it is `const`.
    pub(super) constant: Option<String>,
}

/// Changes that cannot be built, by number.
#[derive(Default)]
pub(super) struct Unbuilt {
    pub(super) unviable: BTreeSet<u32>,
    /// Changes in functions that constants call.
    pub(super) constant: BTreeSet<u32>,
}

impl Unbuilt {
    fn contains(&self, id: u32) -> bool {
        self.unviable.contains(&id) || self.constant.contains(&id)
    }

    fn len(&self) -> usize {
        self.unviable.len() + self.constant.len()
    }
}

/// Runs a shard (`3/8`), or all survivors (`again`), and adds the run to the ledger.
pub(super) fn run(set: &'static Set, shard: &str) -> anyhow::Result<Ending> {
    let output = tree::root().join("target/mutants").join(set.name);
    let folder = output.join("together");
    let listed = list(set, shard)?;
    let (changes, left_out) = changes(&listed, |file| Ok(std::fs::read_to_string(file)?))?;
    println!("{} changes, {} left to cargo-mutants", changes.len(), left_out.len());
    for name in &left_out {
        println!("  left out: {name}");
    }
    ensure!(!changes.is_empty(), "shard {shard}: found no change");
    let mut outcomes = Outcomes::begin(&output.join("mutants.out"), shard, &listed)?;
    copy_tree(set, &folder, &changes)?;
    let unbuilt = outcomes.unbuilt(&changes);
    let unbuilt = take_out_what_does_not_compile(set, &folder, &changes, unbuilt)?;
    for change in changes.iter().filter(|change| unbuilt.contains(change.id)) {
        let is_unviable = unbuilt.unviable.contains(&change.id);
        outcomes.add(if is_unviable { "unviable" } else { CONSTANT }, change)?;
    }
    for file in changes.iter().map(|change| &change.file).collect::<BTreeSet<_>>() {
        outcomes.record(set, shard, &changes, file)?;
    }
    let config = std::fs::read_to_string(tree::root().join(set.config))?;
    let programs = programs_of(set, &folder, &suites(&config))?;
    let modules = modules(&config);
    let selects = |program: &Binary, name: &str| {
        let module = name.strip_prefix("tests::").and_then(|name| name.split("::").next());
        let is_named = |module: &str| modules.iter().any(|it| it == module);
        program.name() != "weft_crash" || module.is_none_or(is_named)
    };
    let tests = reach::record(programs, &output, selects)?;
    // The stride makes an interrupted run cover a part of each file.
    let order = (0..STRIDE).flat_map(|first| changes.iter().skip(first).step_by(STRIDE));
    let left = order.filter(|change| outcomes.of(change).is_none()).collect();
    // The line of a file is added to the ledger as soon as all changes of the file have outcomes.
    reach::try_all(&tests, left, |change, outcome, test| {
        println!("{outcome} {} {test}", change.name);
        outcomes.add(outcome, change)?;
        outcomes.record(set, shard, &changes, &change.file)
    })?;
    let found = Found::read(&output.join("mutants.out"))?;
    println!("{found}");
    outcomes.end()?;
    print!("{}", ledger::summary()?);
    let known: Vec<Mutant> = survivors()?;
    Ok(judge(&known, &found, false).map_or(Ending::Passed, Ending::Failed))
}

/// Entries of `cargo mutants --list` for a shard; for the shard `again`, the entries of the open
/// survivors.
fn list(set: &Set, shard: &str) -> anyhow::Result<Vec<Value>> {
    let mut command = set.command();
    let options = if shard == ledger::AGAIN { vec![] } else { vec!["--shard", shard] };
    command.args(["--list", "--json", "--no-shuffle"]).args(sharding(&options)).args(options);
    let output = command.output().context("cargo mutants")?;
    let error = || format!("cargo mutants: {}", String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), error());
    let mut all: Vec<Value> = serde_json::from_slice(&output.stdout)?;
    // Diffs are removed, because they contain surrounding lines, which may change with the tests of
    // the file.
    for value in all.iter_mut().filter_map(Value::as_object_mut) {
        value.remove("diff");
    }
    if shard == ledger::AGAIN {
        let open = ledger::open()?;
        let mut those = Vec::new();
        for value in all {
            let (file, name) = (text(&value, "file")?, text(&value, "name")?);
            let source = std::fs::read_to_string(tree::root().join(&file))?;
            if open.contains(&Mutant::of(&file, &name, &source)?) {
                those.push(value);
            }
        }
        all = those;
    }
    Ok(all)
}

/// Changes that the entries of a list describe, and the names of the changes that are left out.
fn changes(
    list: &[Value],
    read: impl Fn(&Path) -> anyhow::Result<String>,
) -> anyhow::Result<(Vec<Change>, Vec<String>)> {
    let mut sources: BTreeMap<String, String> = BTreeMap::new();
    let (mut taken, mut left_out) = (Vec::<Change>::new(), Vec::new());
    for (value, id) in list.iter().zip(1..) {
        let (file, name) = (text(value, "file")?, text(value, "name")?);
        if !sources.contains_key(&file) {
            sources.insert(file.clone(), read(&tree::root().join(&file))?);
        }
        let source = &sources[&file];
        let hides =
            value["function"]["return_type"].as_str().is_some_and(|it| it.contains("impl "));
        let Some(function) = place(&value["function"]["span"], source).filter(|_| !hides) else {
            left_out.push(name);
            continue;
        };
        let changed = place(&value["span"], source).with_context(|| format!("{name}: span"))?;
        let body = body(&source[function.clone()]).with_context(|| format!("{name}: no body"))?;
        let head = &source[function.start..][..body.start];
        let constant = head.split_once(CONST_FN).and_then(|(_, it)| it.split(['(', '<']).next());
        let constant = constant.map(str::to_owned);
        let function = function.start + body.start..function.start + body.end;
        let replacement = text(value, "replacement")?;
        let same = |other: &&Change| other.file == file && other.function == function;
        let number = taken.iter().find(same).map_or(id, |first| first.number);
        taken.push(Change { id, number, file, name, function, changed, replacement, constant });
    }
    let functions: BTreeSet<(String, usize, usize)> = taken
        .iter()
        .map(|change| (change.file.clone(), change.function.start, change.function.end))
        .collect();
    let (taken, nested): (Vec<_>, Vec<_>) = taken.into_iter().partition(|change| {
        !functions.iter().any(|(file, start, end)| {
            *file == change.file && *start < change.function.start && change.function.end < *end
        })
    });
    left_out.extend(nested.into_iter().map(|change| change.name));
    Ok((taken, left_out))
}

/// Byte range of a span as cargo-mutants gives it: lines and columns from 1, columns in characters,
/// the end excluded.
fn place(span: &Value, source: &str) -> Option<Range<usize>> {
    let at = |end: &str| {
        let from_0 = |field: &str| number(&span[end][field])?.checked_sub(1);
        let (line, column) = (from_0("line")?, from_0("column")?);
        let start = source.split_inclusive('\n').take(line).map(str::len).sum::<usize>();
        let chars = source[start..].char_indices().nth(column);
        Some(start + chars.map_or(source.len() - start, |(at, _)| at))
    };
    Some(at("start")?..at("end")?)
}

fn number(value: &Value) -> Option<usize> {
    usize::try_from(value.as_u64()?).ok()
}

/// Byte range of the body in the text of a function, with its braces.
pub(super) fn body(function: &str) -> Option<Range<usize>> {
    let mut depth = 0;
    let mut start = 0;
    for line in function.split_inclusive('\n') {
        let code = line.split("//").next().unwrap_or_default();
        for (at, letter) in code.char_indices() {
            match letter {
                '(' | '[' => depth += 1,
                ')' | ']' => depth -= 1,
                '{' if depth == 0 => return Some(start + at..function.trim_end().len()),
                _ => {}
            }
        }
        start += line.len();
    }
    None
}

/// Text of a file with all versions of its functions, and the lines of each version, from 1, with
/// the number of its change.
fn with_versions(source: &str, changes: &[&Change]) -> (String, Vec<(Range<usize>, u32)>) {
    let mut functions: BTreeMap<usize, Vec<&Change>> = BTreeMap::new();
    for change in changes {
        functions.entry(change.function.start).or_default().push(change);
    }
    let (mut text, mut lines) = (String::new(), Vec::new());
    let mut done = 0;
    for changes in functions.values() {
        let function = changes[0].function.clone();
        let before = &source[done..function.start];
        match before.rsplit_once(CONST_FN).filter(|_| changes[0].constant.is_some()) {
            Some((before, head)) => {
                let _ = write!(text, "{before}fn {head}");
            }
            None => text.push_str(before),
        }
        let _ = writeln!(text, "{{ match crate::chosen_change({}) {{", changes[0].number);
        for change in changes {
            let first = text.matches('\n').count() + 1;
            let (before, after) =
                (function.start..change.changed.start, change.changed.end..function.end);
            let (before, after) = (&source[before], &source[after]);
            let _ = writeln!(text, "{} => {before} {} {after}", change.id, change.replacement);
            lines.push((first..text.matches('\n').count() + 1, change.id));
        }
        let _ = writeln!(text, "_ => {}\n}} }}", &source[function.clone()]);
        done = function.end;
    }
    text.push_str(&source[done..]);
    (text, lines)
}

/// Path of the crate's root file, to which code is added.
fn root(set: &Set) -> String {
    format!("crates/{}/src/lib.rs", set.package)
}

/// Copies the files that git tracks into `folder`, except the files of `changes`. Equal files are
/// not written, so they are not rebuilt.
pub(super) fn copy_tree(set: &Set, folder: &Path, changes: &[Change]) -> anyhow::Result<()> {
    let root = root(set);
    let output = Command::new("git").args(["ls-files", "-z"]).current_dir(tree::root()).output()?;
    ensure!(output.status.success(), "git ls-files: {}", output.status);
    for name in String::from_utf8(output.stdout)?.split_terminator('\0') {
        let (from, to) = (tree::root().join(name), folder.join(name));
        let changed = name == root || changes.iter().any(|change| change.file == name);
        if from.is_file() && !changed {
            write_if_other(&to, &std::fs::read(from)?)?;
        }
    }
    Ok(())
}

fn write_if_other(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    if std::fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    std::fs::create_dir_all(path.parent().context("a file is in a folder")?)?;
    std::fs::write(path, bytes).with_context(|| path.display().to_string())
}

/// Writes all versions into the copy, and builds until all versions that are left compile.
/// `unbuilt` has the changes that are known not to compile. Returns all changes that do not
/// compile.
pub(super) fn take_out_what_does_not_compile(
    set: &Set,
    folder: &Path,
    changes: &[Change],
    mut unbuilt: Unbuilt,
) -> anyhow::Result<Unbuilt> {
    let root = root(set);
    let end = changes.iter().map(|change| change.number + 1).max().unwrap_or(0);
    for _ in 0..BUILDS_MAX {
        let mut files: BTreeMap<&str, Vec<&Change>> = BTreeMap::from([(root.as_str(), Vec::new())]);
        for change in changes {
            files.entry(&change.file).or_default();
        }
        for change in changes.iter().filter(|change| !unbuilt.contains(change.id)) {
            files.entry(&change.file).or_default().push(change);
        }
        let mut lines = BTreeMap::new();
        for (file, changes) in files {
            let source = std::fs::read_to_string(tree::root().join(file))?;
            let (mut text, of_file) = with_versions(&source, &changes);
            if file == root {
                text.push_str(&reach::chooser(end));
            }
            write_if_other(&folder.join(file), text.as_bytes())?;
            lines.insert(file.to_owned(), of_file);
        }
        let words = ["check", "-q", "--lib", "--message-format=json", "-p", set.package];
        let output = cargo(folder, &words).output()?;
        if output.status.success() {
            return Ok(unbuilt);
        }
        let before = unbuilt.len();
        let messages = String::from_utf8_lossy(&output.stdout);
        blame(&messages, &lines, changes, &mut unbuilt)?;
        println!("  {} do not compile", unbuilt.unviable.len());
        ensure!(unbuilt.len() > before, "{}", String::from_utf8_lossy(&output.stderr));
    }
    anyhow::bail!("after {BUILDS_MAX} builds there are still some that do not compile")
}

/// Adds to `unbuilt` the changes with compiler errors in their lines, and the changes in functions
/// that constants call.
fn blame(
    messages: &str,
    lines: &BTreeMap<String, Vec<(Range<usize>, u32)>>,
    changes: &[Change],
    unbuilt: &mut Unbuilt,
) -> anyhow::Result<()> {
    for message in messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let message = &message["message"];
        if message["level"] != "error" || message["spans"].as_array().is_none_or(Vec::is_empty) {
            continue;
        }
        let spans = message["spans"].as_array().map_or(&[][..], Vec::as_slice);
        let primary = |span: &&Value| span["is_primary"] == true;
        let of = |span: &Value| {
            let line = number(&span["line_start"])?;
            let lines = lines.get(span["file_name"].as_str()?)?;
            lines.iter().find(|(lines, _)| lines.contains(&line)).map(|(_, id)| *id)
        };
        let mut those: Vec<u32> = spans.iter().filter(primary).filter_map(of).collect();
        if those.is_empty() {
            those = spans.iter().filter_map(of).collect();
        }
        let called = called_by_constant(message).filter(|_| those.is_empty());
        let calls = |change: &&Change| called.is_some() && change.constant.as_deref() == called;
        let constant: Vec<u32> = changes.iter().filter(calls).map(|change| change.id).collect();
        ensure!(those.len() + constant.len() > 0, "in no version: {}", message["rendered"]);
        unbuilt.unviable.extend(those);
        unbuilt.constant.extend(constant);
    }
    Ok(())
}

/// Name of the function, if the compiler's message says that a constant calls it.
fn called_by_constant(message: &Value) -> Option<&str> {
    let text = message["message"].as_str().filter(|_| message["code"]["code"] == "E0015")?;
    text.split('`').nth(1)?.rsplit("::").next()
}

/// `cargo` in the copy of the tree. Lints are capped, because changed code may trigger them; as a
/// consequence, changed code in a `const` may make the compiler run without end. The build is not
/// incremental: an interrupted one would leave files behind that break the next.
fn cargo(folder: &Path, words: &[&str]) -> Command {
    let mut command = crate::part::cargo(words);
    let flags = "--cap-lints=allow";
    command.current_dir(folder).args(["--profile", "mutants"]).env("RUSTFLAGS", flags);
    command.env("CARGO_INCREMENTAL", "0");
    command.env("CARGO_TARGET_DIR", folder.join("target")).stderr(Stdio::inherit());
    command
}

/// Builds the simulators' test programs with these names, and the test programs of the libraries.
pub(super) fn programs_of(
    set: &Set,
    folder: &Path,
    names: &[String],
) -> anyhow::Result<Vec<Binary>> {
    let mut words = vec!["test", "-q", "--no-run", "--message-format=json", "--lib"];
    words.extend(["-p", set.package, "-p", "weft-crash", "-p", "weft-sim"]);
    let options: Vec<String> = names.iter().map(|name| format!("--test={name}")).collect();
    words.extend(options.iter().map(String::as_str));
    let output = cargo(folder, &words).output()?;
    ensure!(output.status.success(), "the tests do not build");
    let programs = built(&String::from_utf8_lossy(&output.stdout));
    ensure!(programs.len() > names.len(), "found {} programs of tests", programs.len());
    Ok(programs)
}

/// Programs of tests that a set's configuration names, besides those of libraries.
fn suites(config: &str) -> Vec<String> {
    between(config, "\"--test=", "\"")
}

/// Modules of weft-crash's `tests` that a set's configuration names.
fn modules(config: &str) -> Vec<String> {
    between(config, "\"-E=test(/^tests::", "::/)\"")
}

/// All texts between `before` and the next `after`.
fn between(text: &str, before: &str, after: &str) -> Vec<String> {
    let texts = text.split(before).skip(1);
    texts.filter_map(|text| Some(text.split_once(after)?.0.to_owned())).collect()
}

/// Name of the list of changes in functions that constants call. cargo-mutants has no such list.
const CONSTANT: &str = "constant";

/// Outcomes of a run. They are written as they arrive, to files in the format of cargo-mutants.
struct Outcomes {
    folder: PathBuf,
    /// Outcomes so far, by name of the change.
    known: BTreeMap<String, String>,
    /// Files for which all changes have outcomes, and that have their lines in the ledger.
    recorded: BTreeSet<String>,
}

impl Outcomes {
    /// Begins a run of a shard, or continues it if it was interrupted.
    fn begin(folder: &Path, shard: &str, list: &[Value]) -> anyhow::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let begun =
            [("shard.txt", shard.to_owned()), ("mutants.json", serde_json::to_string(list)?)];
        let is_same = |(name, text): &(&str, String)| {
            std::fs::read_to_string(folder.join(name)).is_ok_and(|old| old == *text)
        };
        let goes_on = begun.iter().all(is_same);
        let recorded = folder.join("recorded.txt");
        if !goes_on {
            std::fs::write(&recorded, "")?;
        }
        let recorded = std::fs::read_to_string(recorded).unwrap_or_default();
        let recorded = recorded.lines().map(str::to_owned).collect();
        let mut known = BTreeMap::new();
        for outcome in ["caught", "missed", "timeout", "unviable", CONSTANT] {
            let path = folder.join(format!("{outcome}.txt"));
            if goes_on {
                let names = std::fs::read_to_string(path).unwrap_or_default();
                known.extend(names.lines().map(|name| (name.to_owned(), outcome.to_owned())));
            } else {
                std::fs::write(path, "")?;
            }
        }
        for (name, text) in begun {
            std::fs::write(folder.join(name), text)?;
        }
        println!("  {} outcomes are known from a run that was interrupted", known.len());
        Ok(Self { folder: folder.to_owned(), known, recorded })
    }

    fn of(&self, change: &Change) -> Option<&str> {
        self.known.get(&change.name).map(String::as_str)
    }

    /// Changes that are known not to build, from earlier outcomes.
    fn unbuilt(&self, changes: &[Change]) -> Unbuilt {
        let those = |outcome: &str| {
            let those = changes.iter().filter(|change| self.of(change) == Some(outcome));
            those.map(|change| change.id).collect()
        };
        Unbuilt { unviable: those("unviable"), constant: those(CONSTANT) }
    }

    /// Adds the outcome of a change, unless the change has one.
    fn add(&mut self, outcome: &str, change: &Change) -> anyhow::Result<()> {
        if self.known.insert(change.name.clone(), outcome.to_owned()).is_none() {
            self.append(outcome, &change.name)?;
        }
        Ok(())
    }

    /// Adds the lines of a file to the ledger if all of its changes have outcomes, unless they were
    /// added before.
    fn record(
        &mut self,
        set: &Set,
        shard: &str,
        changes: &[Change],
        file: &str,
    ) -> anyhow::Result<()> {
        if self.is_complete(changes, file) && self.recorded.insert(file.to_owned()) {
            ledger::add(set, shard, &Found::read(&self.folder)?.of_file(file))?;
            self.append("recorded", file)?;
        }
        Ok(())
    }

    fn is_complete(&self, changes: &[Change], file: &str) -> bool {
        changes.iter().filter(|change| change.file == file).all(|it| self.of(it).is_some())
    }

    fn append(&self, list: &str, line: &str) -> anyhow::Result<()> {
        let path = self.folder.join(format!("{list}.txt"));
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
        Ok(writeln!(file, "{line}")?)
    }

    /// Ends the run, so that the next one begins anew.
    fn end(self) -> anyhow::Result<()> {
        Ok(std::fs::remove_file(self.folder.join("shard.txt"))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const SOURCE: &str = "\
impl Area {
    /// Brackets (in comments) do not count.
    fn of(&self, [a, b]: [u8; 2]) -> u8 {
        // ä
        a + b
    }
}
const fn one() -> u8 {
    2 - 1
}
fn none() -> bool {
    true
}
";

    fn span(from: (u64, u64), to: (u64, u64)) -> Value {
        let end = |(line, column)| json!({"line": line, "column": column});
        json!({"start": end(from), "end": end(to)})
    }

    fn change(name: &str, function: &Value, place: &Value, replacement: &str) -> Value {
        json!({"file": "f.rs", "name": name, "function": {"return_type": "-> u8", "span": function},
               "span": place, "replacement": replacement})
    }

    fn listed() -> Vec<Value> {
        let of = span((3, 5), (6, 6));
        let (of_const, of_none) = (span((8, 1), (10, 2)), span((11, 1), (13, 2)));
        vec![
            change("plus", &of, &span((5, 11), (5, 12)), "-"),
            change("value", &of, &span((4, 9), (5, 14)), "0"),
            change("const", &of_const, &span((9, 7), (9, 8)), "+"),
            change("none", &of_none, &span((12, 5), (12, 9)), "false"),
            json!({"file": "f.rs", "name": "static", "function": null, "span": span((1, 1), (1, 2)),
                   "replacement": "1"}),
        ]
    }

    #[test]
    fn functions_have_all_versions_and_the_lines_of_each_are_known() {
        let (changes, left_out) = changes(&listed(), |_| Ok(SOURCE.to_owned())).unwrap();
        assert_eq!(left_out, ["static"]);
        let numbers: Vec<_> = changes.iter().map(|it| (it.id, it.number)).collect();
        assert_eq!(numbers, [(1, 1), (2, 1), (3, 3), (4, 4)]);
        let (text, lines) = with_versions(SOURCE, &changes.iter().collect::<Vec<_>>());
        let lines_of = |id: u32| -> Vec<&str> {
            let (lines, _) = lines.iter().find(|(_, it)| *it == id).unwrap();
            text.lines().skip(lines.start - 1).take(lines.len()).map(str::trim).collect()
        };
        assert_eq!(lines_of(1), ["1 => {", "// ä", "a  -  b", "}"]);
        assert_eq!(lines_of(2), ["2 => {", "0", "}"]);
        assert_eq!(lines_of(4), ["4 => {", "false", "}"]);
        let heads = text.split("match crate::chosen_change(").skip(1).map(|it| &it[..1]);
        assert_eq!(heads.collect::<Vec<_>>(), ["1", "3", "4"]);
        assert!(text.contains("_ => {\n        // ä\n        a + b\n    }\n} }"), "{text}");
        assert!(text.contains("}\nfn one() -> u8 { match"), "{text}");
        assert_eq!(changes[2].constant.as_deref(), Some("one"));
        assert_eq!(with_versions(SOURCE, &[]).0, SOURCE);
    }

    #[test]
    fn an_error_is_of_the_version_that_has_its_line() {
        let lines = BTreeMap::from([("f.rs".to_owned(), vec![(3..5, 1), (5..9, 2)])]);
        let error = |level: &str, line: u64| {
            let span = json!({"file_name": "f.rs", "line_start": line, "is_primary": true});
            json!({"message": {"level": level, "spans": [span], "rendered": "what"}}).to_string()
        };
        let (changes, _) = changes(&listed(), |_| Ok(SOURCE.to_owned())).unwrap();
        let blame = |said: &str| {
            let mut unbuilt = Unbuilt::default();
            blame(said, &lines, &changes, &mut unbuilt).map(|()| unbuilt)
        };
        let said = [error("error", 4), error("warning", 6), "not json".to_owned()].join("\n");
        let unbuilt = blame(&said).unwrap();
        assert_eq!((unbuilt.unviable, unbuilt.constant.len()), (BTreeSet::from([1]), 0));
        assert!(blame(&error("error", 9)).err().unwrap().to_string().contains("what"));
        // A constant elsewhere calls a function which is not `const` here.
        let called = |name: &str| {
            let mut error: Value = serde_json::from_str(&error("error", 9)).unwrap();
            error["message"]["code"] = json!({"code": "E0015"});
            error["message"]["message"] =
                format!("cannot call non-const `a::{name}`, sorry").into();
            error.to_string()
        };
        let unbuilt = blame(&called("one")).unwrap();
        assert_eq!((unbuilt.unviable.len(), unbuilt.constant), (0, BTreeSet::from([3])));
        assert!(blame(&called("none")).is_err(), "it was not `const`");
    }

    #[test]
    fn a_run_that_was_interrupted_is_continued_and_one_that_has_ended_is_not() {
        let folder = tree::root().join(format!("target/mutants-outcomes-{}", std::process::id()));
        let (changes, _) = changes(&listed(), |_| Ok(SOURCE.to_owned())).unwrap();
        let begin = |shard: &str, list: &[Value]| Outcomes::begin(&folder, shard, list).unwrap();
        let mut outcomes = begin("1/3", &listed());
        for (outcome, change) in ["caught", "unviable", CONSTANT].into_iter().zip(&changes) {
            outcomes.add(outcome, change).unwrap();
        }
        let outcomes = begin("1/3", &listed());
        let of: Vec<_> = changes.iter().map(|change| outcomes.of(change)).collect();
        assert_eq!(of, [Some("caught"), Some("unviable"), Some(CONSTANT), None]);
        assert!(!outcomes.is_complete(&changes, "f.rs"));
        assert!(outcomes.is_complete(&changes[..3], "f.rs"));
        let Unbuilt { unviable, constant } = outcomes.unbuilt(&changes);
        assert_eq!((unviable, constant), (BTreeSet::from([2]), BTreeSet::from([3])));
        outcomes.end().unwrap();
        // A run begins anew after its end, for another shard, and for another list.
        let lists = [("1/3", listed()), ("2/3", listed()), ("2/3", listed().split_off(1))];
        for (shard, list) in lists {
            let mut outcomes = begin(shard, &list);
            assert_eq!(outcomes.of(&changes[0]), None, "{shard}");
            outcomes.add("missed", &changes[0]).unwrap();
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn modules_are_those_of_the_configuration() {
        for set in super::super::SETS.iter().filter(|set| set.shards.is_some()) {
            let config = std::fs::read_to_string(tree::root().join(set.config)).unwrap();
            let modules = modules(&config);
            assert!(modules.len() >= 5, "{modules:?}");
            for module in modules {
                let path = format!("crates/weft-crash/src/tests/{module}.rs");
                assert!(tree::root().join(&path).exists(), "{}: no {path}", set.config);
            }
        }
    }
}
