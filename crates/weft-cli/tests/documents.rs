//! Tests of README.md and `docs/`: commands print the shown output, lists are complete.
//!
//! All blocks of a page marked `console` form one session in an empty directory, together with the
//! commands of `<!-- first: … -->` and `<!-- then: … -->` at their positions. `…` in a printed
//! output stands for any text, or alone on a line for any lines. Everything else is compared
//! exactly, except for values that change in each run: UUIDs, and times of commands that wait for a
//! server ([`OF_THE_CLOCK`]). With `WEFT_DOCS_UPDATE=1` outputs and lists are written into the
//! pages, for review and commit.

mod common;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{Served, command};
use tempfile::tempdir;
use weft_engine::knobs::{Knobs, SchedulerKind, TABLE};
use weft_lab::job::engine::{ENGINES, ENGINES_REFUSED};
use weft_lab::job::{self, Engine};
use weft_lab::replay::Format;
use weft_testing::documents::{Helps, commands_named, pages, root};

/// Programs of other projects that pages use.
const OTHERS: [&str; 3] = ["mdadm", "nbdcopy", "nbdinfo"];

fn is_update() -> bool {
    std::env::var("WEFT_DOCS_UPDATE").is_ok_and(|value| value == "1")
}

/// Command of a page, with the output that the page prints; `None` if the command is not shown.
#[derive(Debug, PartialEq)]
struct Step {
    command: String,
    printed: Option<Vec<String>>,
}

/// Commands of a page, in order.
fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut is_console = false;
    for line in page.lines() {
        let hidden =
            ["<!-- first: ", "<!-- then: "].iter().find_map(|mark| line.strip_prefix(mark));
        if let Some(hidden) = hidden {
            let command = hidden.strip_suffix(" -->").expect("one line").to_owned();
            steps.push(Step { command, printed: None });
        } else if line.starts_with("```") {
            is_console = line == "```console";
        } else if is_console {
            match line.strip_prefix("$ ") {
                Some(command) => {
                    steps.push(Step { command: command.to_owned(), printed: Some(Vec::new()) });
                }
                None => {
                    let step = steps.last_mut().expect("a console begins with a command");
                    step.printed.as_mut().expect("of this console").push(line.to_owned());
                }
            }
        }
    }
    steps
}

/// The page with its outputs replaced, command by command.
fn with_outputs(page: &str, outputs: &[Vec<String>]) -> String {
    let mut outputs = outputs.iter();
    let (mut text, mut is_console) = (String::new(), false);
    for line in page.lines() {
        if line.starts_with("```") {
            is_console = line == "```console";
        }
        if is_console && let Some(command) = line.strip_prefix("$ ") {
            let output = outputs.next().expect("one for each command");
            writeln!(text, "$ {command}").unwrap();
            output.iter().for_each(|line| writeln!(text, "{line}").unwrap());
        } else if !is_console || line.starts_with("```") {
            writeln!(text, "{line}").unwrap();
        }
    }
    text
}

/// Commands that print a real duration. Times printed by other commands are simulated and therefore
/// the same everywhere.
const OF_THE_CLOCK: [&str; 2] = ["weft check ", "weft wait "];

/// A line with the parts masked that change in each run: UUIDs of arrays and members, which are
/// random, and times of commands that wait for a server.
fn masked(command: &str, line: &str) -> String {
    let of_the_clock = OF_THE_CLOCK.iter().any(|name| command.starts_with(name));
    let is_uuid = |text: &str| {
        let groups: Vec<&str> = text.split(':').collect();
        let is_hex = |group: &&str| group.len() == 8 && u32::from_str_radix(group, 16).is_ok();
        groups.len() == 4 && groups.iter().all(is_hex)
    };
    let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    for index in 0..words.len() {
        let id = words[index].trim_matches(['(', ')', ',', ':']).to_owned();
        if is_uuid(&id) {
            words[index] = words[index].replace(&id, "UUID");
        }
        let unit = words.get(index + 1).map(|word| word.trim_end_matches([',', ')', ';']));
        let is_time = unit.is_some_and(|unit| ["ns", "µs", "ms", "s", "min"].contains(&unit));
        if of_the_clock && is_time && words[index].parse::<f64>().is_ok() {
            let unit = unit.unwrap_or_default().to_owned();
            words[index + 1] = words[index + 1].replacen(&unit, "TIME", 1);
            words[index].clear();
        }
    }
    words.join(" ")
}

/// Whether a text matches a pattern, in which `…` stands for any text.
fn is_line(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('…');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, between)) = parts.split_last() else { return rest.is_empty() };
    for part in between {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// Whether an output matches that of a page, in which a line `…` stands for any lines.
fn is_output(command: &str, printed: &[String], output: &[String]) -> bool {
    match (printed.split_first(), output.split_first()) {
        (None, None) => true,
        (Some((line, printed_rest)), _) if line.trim() == "…" => {
            (0..=output.len()).any(|skipped| is_output(command, printed_rest, &output[skipped..]))
        }
        (Some((line, printed_rest)), Some((found, rest))) => {
            is_line(&masked(command, line), &masked(command, found))
                && is_output(command, printed_rest, rest)
        }
        _ => false,
    }
}

/// Runs a line in a shell with this build of weft. Returns its output and errors, line by line.
fn shell(dir: &Path, line: &str) -> Vec<String> {
    let weft = Path::new(env!("CARGO_BIN_EXE_weft")).parent().unwrap();
    let path = format!("{}:{}", weft.display(), std::env::var("PATH").unwrap_or_default());
    let output = Command::new("sh")
        .args(["-e", "-c", &format!("exec 2>&1; {line}")])
        .current_dir(dir)
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .env("XDG_RUNTIME_DIR", dir)
        .env("TMPDIR", dir)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{line}: {output:?}");
    let text = String::from_utf8_lossy(&output.stdout).replace(&dir.display().to_string(), "…");
    text.trim_end().lines().map(str::trim_end).map(str::to_owned).collect()
}

fn is_here(program: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    path.split(':').chain(["/usr/sbin", "/sbin"]).any(|dir| Path::new(dir).join(program).exists())
}

/// Runs a page. Returns the outputs of the shown commands, in order, and the errors of the page.
fn run(page: &str) -> (Vec<Vec<String>>, Vec<String>) {
    let dir = tempdir().unwrap();
    let path = dir.path();
    let mut served = None;
    let (mut outputs, mut wrong) = (Vec::new(), Vec::new());
    for Step { command, printed } in steps(page) {
        let line = command.clone();
        let missing = OTHERS.into_iter().find(|name| line.contains(name) && !is_here(name));
        let output = if let Some(missing) = missing {
            weft_testing::skip(&format!("{missing} is not installed: {line}"));
            printed.clone().unwrap_or_default()
        } else if let Some(arguments) = line.strip_suffix(" &") {
            let arguments =
                arguments.strip_prefix("weft serve ").expect("only this is kept running");
            let arguments: Vec<&str> =
                arguments.split(' ').map(|word| word.trim_matches('\'')).collect();
            let server = Served::start(path, &arguments);
            let ready = format!("ready {}", server.uri);
            served = Some(server);
            vec![ready.replace(&path.display().to_string(), "…")]
        } else {
            shell(path, &line)
        };
        if line.starts_with("weft stop ") {
            assert_eq!(served.take().expect("something is served").wait(), Some(0), "{line}");
        }
        if let Some(printed) = printed {
            let is_right = is_output(&command, &printed, &output);
            if !is_right {
                wrong.push(format!("{command}: found {output:#?}, expected {printed:#?}"));
            }
            // An output that matches is kept as the page prints it, because UUIDs and times change
            // in each run.
            outputs.push(if is_right { printed } else { output });
        }
    }
    assert!(served.is_none(), "a page stops its servers");
    (outputs, wrong)
}

/// Runs a page by name, and checks that it has at least `count` commands.
fn check(name: &str, count: usize) {
    let (path, page) = pages().into_iter().find(|(path, _)| path.ends_with(name)).unwrap();
    let (outputs, wrong) = run(&page);
    assert!(outputs.len() >= count, "{name}: {} commands were run", outputs.len());
    if is_update() {
        std::fs::write(path, with_outputs(&page, &outputs)).unwrap();
    } else {
        assert!(wrong.is_empty(), "{name}: {}", wrong.join("\n"));
    }
}

#[test]
fn the_readme_prints_what_its_commands_print() {
    check("README.md", 5);
}

#[test]
fn the_page_on_serving_prints_what_its_commands_print() {
    check("docs/serve.md", 15);
}

#[test]
fn the_page_on_rescue_prints_what_its_commands_print() {
    check("docs/rescue.md", 4);
}

#[test]
fn the_page_on_tuning_prints_what_its_commands_print() {
    check("docs/tune.md", 6);
}

#[test]
fn the_page_on_python_prints_what_its_commands_print() {
    check("docs/python.md", 4);
}

#[test]
fn the_page_on_schedulers_prints_what_its_commands_print() {
    check("docs/schedulers.md", 7);
}

/// Names with which no row of a table on a page begins.
fn without_row<'a>(page: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let has = |name: &&str| page.lines().any(|line| line.starts_with(&format!("| `{name}` |")));
    names.into_iter().filter(|name| !has(name)).collect()
}

#[test]
fn the_page_on_schedulers_has_a_row_for_each() {
    let (_, page) = pages().into_iter().find(|(path, _)| path.ends_with("schedulers.md")).unwrap();
    assert_eq!(without_row(&page, SchedulerKind::ALL.map(SchedulerKind::name)), [""; 0]);
    assert_eq!(without_row(&page, ["none", "cfq"]), ["cfq"]);
}

/// Names with which no heading below the testable statements of a page begins.
fn without_statements<'a>(page: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let below = page.split("\n## 6. Testable statements").nth(1).unwrap();
    let below = below.split("\n## ").next().unwrap().to_lowercase();
    let has = |name: &&str| below.contains(&format!("\n### {name}"));
    names.into_iter().filter(|name| !has(name)).collect()
}

/// `none` has statements in common with all, and no others.
#[test]
fn every_scheduler_has_statements_and_stands_where_the_code_and_tuning_are_told() {
    let names = SchedulerKind::ALL.map(SchedulerKind::name);
    let spec = std::fs::read_to_string(root().join("spec/io-schedulers.md")).unwrap();
    assert_eq!(without_statements(&spec, names), ["none"]);
    assert_eq!(without_statements(&spec, ["bfq", "cfq"]), ["cfq"]);
    let map = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let row = map.lines().find(|line| line.starts_with("| `sched/` |")).unwrap();
    assert!(names.iter().all(|name| row.contains(&format!("`{name}"))), "{row}");
    let tune = std::fs::read_to_string(root().join("docs/tune.md")).unwrap();
    let unnamed = names.into_iter().filter(|name| !tune.contains(&format!("`{name}`")));
    assert_eq!(unnamed.collect::<Vec<_>>(), [""; 0], "docs/tune.md");
}

/// Names of trace formats that a text does not contain. fio's two versions have one name in texts.
fn without_format<'a>(text: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let text = text.to_lowercase();
    let has = |name: &&str| text.contains(name.trim_end_matches(char::is_numeric));
    names.into_iter().filter(|name| !has(name)).collect()
}

/// Experiments without a record of their runs, or that no page beside them names.
fn without_record_or_page(names: &[String], records: &[String], pages: &str) -> Vec<String> {
    let is_kept = |name: &&String| {
        let recorded = records.iter().any(|record| record.starts_with(&format!("{name}-")));
        recorded && pages.contains(name.as_str())
    };
    names.iter().filter(|name| !is_kept(name)).cloned().collect()
}

/// `grid.toml` has the bounds of `cargo xtask grid`.
#[test]
fn every_experiment_has_a_record_and_a_page() {
    let files = |folder: &str, end: &str| -> Vec<String> {
        let entries = std::fs::read_dir(root().join(folder)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter_map(|name| name.strip_suffix(end).map(str::to_owned)).collect()
    };
    let names: Vec<String> =
        files("experiments", ".toml").into_iter().filter(|name| name != "grid").collect();
    let records = files("experiments/results", ".json");
    let page = |name: &String| {
        let text = std::fs::read_to_string(root().join(format!("experiments/{name}.md"))).unwrap();
        format!("{name}\n{text}")
    };
    let pages: String = files("experiments", ".md").iter().map(page).collect();
    assert_eq!(without_record_or_page(&names, &records, &pages), [""; 0]);
    assert_eq!(without_record_or_page(&names, &records[..0], &pages).len(), names.len());
    assert_eq!(without_record_or_page(&names, &records, "").len(), names.len());
}

#[test]
fn the_page_on_replay_and_its_help_name_every_trace_format() {
    let (_, page) = pages().into_iter().find(|(path, _)| path.ends_with("replay.md")).unwrap();
    let dir = tempdir().unwrap();
    let help = command(dir.path(), &["replay", "--help"]).output().unwrap().stdout;
    for text in [page, String::from_utf8(help).unwrap()] {
        assert_eq!(without_format(&text, Format::ALL.map(Format::name)), [""; 0]);
        assert_eq!(without_format(&text, ["msr", "disksim"]), ["disksim"]);
    }
}

#[test]
fn the_page_on_replay_prints_what_its_commands_print() {
    check("docs/replay.md", 3);
}

#[test]
fn the_page_on_comparing_prints_what_its_commands_print() {
    check("docs/compare.md", 4);
}

#[test]
fn the_page_on_reproducing_prints_what_its_commands_print() {
    check("docs/reproduce.md", 1);
}

#[test]
fn the_reference_prints_what_its_commands_print() {
    check("docs/reference.md", 2);
}

#[test]
fn a_planted_wrong_output_is_found_down_to_a_digit() {
    let page = |output: &str| format!("```console\n$ echo 3 apples in 2.5 ms\n{output}\n```\n");
    for same in ["3 apples in 2.5 ms", "3 … ms", "…"] {
        assert_eq!(run(&page(same)).1, Vec::<String>::new(), "{same}");
    }
    for other in [
        "3 pears in 2.5 ms",
        "3 apples",
        "4 apples in 2.5 ms",
        "3 apples in 2.6 ms",
        "3 apples  in 2.5 ms",
        "3 … weeks",
        "…\nmore",
    ] {
        assert_eq!(run(&page(other)).1.len(), 1, "{other}");
    }
    let page = page("3 pears");
    assert_eq!(with_outputs(&page, &run(&page).0).lines().nth(2), Some("3 apples in 2.5 ms"));
}

#[test]
fn uuids_and_times_of_the_clock_may_differ_and_nothing_else() {
    let id = "tour (62ecd588:59e8e195:e889f844:c5176585): 1.5 GiB in 2.5 s";
    assert_eq!(masked("weft sim", id), "tour (UUID): 1.5 GiB in 2.5 s");
    assert_eq!(masked("weft check tour", id), "tour (UUID): 1.5 GiB in  TIME");
    let waited = "tour: nothing runs after 880 ms; all 4 members are in sync";
    assert_eq!(
        masked("weft wait tour", waited),
        "tour: nothing runs after  TIME; all 4 members are in sync"
    );
    assert_eq!(masked("weft waits", waited), waited);
    let sum = "sha256 28b6b9aa0b16973013736afc7df00c60b21c4ec266d9d8af12d936e30bc30cec";
    assert_eq!(masked("weft check tour", sum), sum);
}

#[test]
fn every_command_and_option_that_a_page_names_is_there_and_a_planted_one_is_found() {
    let mut helps = Helps::new(|name| {
        let output = command(&root(), &[name, "--help"]).output().unwrap();
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    });
    let mut named = 0;
    for (path, page) in pages() {
        let commands = commands_named(&page, "weft");
        named += commands.len();
        let unknown: Vec<String> = commands.iter().flat_map(|code| helps.unknown(code)).collect();
        assert_eq!(unknown, Vec::<String>::new(), "{}", path.display());
    }
    assert!(named >= 60, "{named} commands were looked at: there are more");
    let planted = "`weft frobnicate m0` and\n\n    weft serve --no-such m0   # it\n\n`weft get --json tour`\n";
    let found: Vec<String> =
        commands_named(planted, "weft").iter().flat_map(|code| helps.unknown(code)).collect();
    assert_eq!(found.len(), 2, "{found:?}");
}

/// Table of the commands in the help.
fn command_table() -> String {
    let output = command(&root(), &["--help"]).output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let list = help.split_once("Commands:\n").unwrap().1.split("\n\n").next().unwrap();
    let mut rows: Vec<(String, String)> = Vec::new();
    for line in list.lines() {
        match line.strip_prefix("  ").filter(|line| !line.starts_with(' ')) {
            Some(line) => {
                let (name, about) = line.split_once(' ').unwrap();
                rows.push((name.to_owned(), about.trim().to_owned()));
            }
            None => rows.last_mut().unwrap().1.push_str(&format!(" {}", line.trim())),
        }
    }
    let mut table = String::from("| command | does |\n|---|---|\n");
    for (name, about) in rows.iter().filter(|(name, _)| name != "help") {
        writeln!(table, "| `{name}` | {about} |").unwrap();
    }
    table
}

/// Table of files and variables, from the man page of the program.
fn environment_table() -> String {
    let output = command(&root(), &["man"]).output().unwrap();
    let page = String::from_utf8(output.stdout).unwrap();
    let page = page.replace("\\&", "").replace("\\-", "-").replace("\\(aq", "'");
    let mut table = String::from("| variable or file | use |\n|---|---|\n");
    for title in ["ENVIRONMENT", "FILES"] {
        let section = page.split_once(&format!(".SH \"{title}\"\n")).unwrap().1;
        let section = section.split(".SH ").next().unwrap();
        for entry in section.split(".TP\n").skip(1) {
            let (term, text) = entry.trim_end().split_once('\n').unwrap();
            let term = term.trim_start_matches("\\fB").trim_end_matches("\\fR");
            writeln!(table, "| `{}` | {text} |", term.replace(", ", "`, `")).unwrap();
        }
    }
    table
}

/// Table of the engine's knobs.
fn knob_table() -> String {
    let defaults = Knobs::default();
    let mut table =
        String::from("| knob | unit, range | default | origin | does |\n|---|---|---|---|---|\n");
    for row in TABLE {
        let default = defaults.show(row.name).unwrap();
        let range = row.range().replace('|', "\\|");
        let (name, unit, origin, doc) = (row.name, row.unit, row.origin, row.doc);
        let simulated: Vec<String> = row
            .historic
            .iter()
            .map(|(value, experiment)| format!("`{value}` (`weft reproduce {experiment}`)"))
            .collect();
        let simulated = match simulated.as_slice() {
            [] => String::new(),
            values => format!(" Only simulations take {}.", values.join(", ")),
        };
        writeln!(table, "| `{name}` | {unit}, {range} | {default} | {origin} | {doc}{simulated} |")
            .unwrap();
    }
    table
}

/// List of the schemas in the sources.
fn schema_list() -> String {
    let mut schemas = BTreeSet::new();
    let mut folders: Vec<PathBuf> = ["weft-bench", "weft-cli", "weft-lab", "weft-terminal"]
        .map(|name| root().join(format!("crates/{name}/src")))
        .into();
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(text) = std::fs::read_to_string(&path) {
                let found = text.split("\"weft.").skip(1).filter_map(|rest| rest.split('"').next());
                schemas.extend(found.filter(|name| name.contains('/')).map(str::to_owned));
            }
        }
    }
    assert!(schemas.len() >= 20, "{schemas:?}");
    schemas.iter().fold(String::new(), |list, name| format!("{list}- `weft.{name}`\n"))
}

/// Table of the options of fio that are read.
fn fio_options() -> String {
    let mut table = String::from("| option | does |\n|---|---|\n");
    for row in job::OPTIONS {
        writeln!(table, "| `{}` | {} |", row.name, row.doc).unwrap();
    }
    table
}

/// Table of options of fio with a reason.
fn fio_reasons(others: &[job::Others]) -> String {
    let mut table = String::from("| reason | options |\n|---|---|\n");
    for row in others {
        writeln!(table, "| {} | `{}` |", row.reason, row.names.join("`, `")).unwrap();
    }
    table
}

/// Table of the engines of fio.
fn fio_engines() -> String {
    let mut table = String::from("| meaning | engines |\n|---|---|\n");
    let mut row = |meaning: &str, names: &[&str]| {
        writeln!(table, "| {meaning} | `{}` |", names.join("`, `")).unwrap();
    };
    for (meaning, engine, direct) in [
        ("up to `iodepth` requests at once", Engine::Overlapping, None),
        ("the same, past the page cache", Engine::Overlapping, Some(true)),
        ("one request at a time", Engine::Synchronous, None),
        ("the same, through the page cache", Engine::Synchronous, Some(false)),
    ] {
        let of = ENGINES.iter().filter(|row| (row.engine, row.direct) == (engine, direct));
        row(meaning, &of.map(|row| row.name).collect::<Vec<_>>());
    }
    for (reason, names) in ENGINES_REFUSED {
        row(&format!("refused: {reason}"), names);
    }
    table
}

/// The page with its lists, each between two marks, written anew.
fn with_lists(page: &str, lists: &[(&str, String)]) -> String {
    let mut wanted = page.to_owned();
    for (name, list) in lists {
        let (begin, end) = (format!("<!-- {name}: begin -->\n"), format!("<!-- {name}: end -->\n"));
        let (before, rest) = wanted.split_once(&begin).expect("a begin mark");
        let (_, after) = rest.split_once(&end).expect("an end mark");
        wanted = format!("{before}{begin}\n{list}\n{end}{after}");
    }
    wanted
}

#[test]
fn the_lists_of_the_pages_are_those_of_the_program() {
    let reference = [
        ("commands", command_table()),
        ("environment", environment_table()),
        ("knobs", knob_table()),
        ("schemas", schema_list()),
    ];
    let tune = [
        ("options read", fio_options()),
        ("options left out", fio_reasons(job::LEFT_OUT)),
        ("options refused", fio_reasons(job::REFUSED)),
        ("engines", fio_engines()),
    ];
    for (name, lists) in [("docs/reference.md", &reference[..]), ("docs/tune.md", &tune)] {
        let (path, page) = pages().into_iter().find(|(path, _)| path.ends_with(name)).unwrap();
        let wanted = with_lists(&page, lists);
        if is_update() {
            std::fs::write(path, wanted).unwrap();
        } else {
            assert_eq!(page, wanted, "{name} is stale: WEFT_DOCS_UPDATE=1");
        }
    }
}
