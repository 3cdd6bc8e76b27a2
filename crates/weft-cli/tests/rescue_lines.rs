//! Commands that `weft rescue` prints, on every array that the kernel wrote: each is run in a shell
//! unchanged, succeeds, and its volume has the content that the kernel read.

mod common;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use common::client::Client;
use common::{Fixture, command, exits};
use tempfile::tempdir;

/// Numbers of commands that were run, by kind.
#[derive(Debug, Default, PartialEq, Eq)]
struct Run {
    cat: usize,
    read_only: usize,
    overlay: usize,
    refused: usize,
}

/// Commands among the lines of a text, unchanged.
fn printed(text: &str) -> Vec<&str> {
    text.lines().filter_map(|line| line.strip_prefix("    weft ")).collect()
}

/// A shell that finds `weft` by its name.
fn shell(dir: &Path, line: &str) -> Command {
    let bin = dir.join("bin");
    if !bin.exists() {
        std::fs::create_dir(&bin).unwrap();
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_weft"), bin.join("weft")).unwrap();
    }
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("exec weft {line}")]).current_dir(dir).stdin(Stdio::null());
    for (name, value) in command(dir, &[""; 0]).get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell.env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()));
    shell
}

/// Runs a command. The error describes the deviation from the expected content.
fn run(dir: &Path, line: &str, content: &[u8]) -> Result<(), String> {
    let log = dir.join("line.log");
    let mut shell = shell(dir, line);
    shell.stderr(std::fs::File::create(&log).unwrap());
    let said = || std::fs::read_to_string(&log).unwrap();
    let found = if line.starts_with("cat ") {
        let status = shell.status().unwrap();
        if !status.success() {
            return Err(format!("{line}: {status}: {}", said()));
        }
        std::fs::read(dir.join("array.img")).map_err(|error| format!("{line}: {error}"))?
    } else {
        let mut server = shell.stdout(Stdio::piped()).spawn().unwrap();
        let mut first = String::new();
        BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut first).unwrap();
        let found = first.strip_prefix("ready ").map(|uris| {
            let mut client = Client::connect(uris.split_whitespace().next().unwrap());
            let mut found = Vec::new();
            for at in (0..client.size()).step_by(1 << 20) {
                let len = u32::try_from((client.size() - at).min(1 << 20)).unwrap();
                found.extend(client.read(at, len));
            }
            found
        });
        if found.is_some() {
            let process = rustix::process::Pid::from_child(&server);
            rustix::process::kill_process(process, rustix::process::Signal::TERM).unwrap();
        }
        let status = server.wait().unwrap();
        match found {
            Some(found) if status.success() => found,
            _ => return Err(format!("{line}: {status}: {}", said())),
        }
    };
    if found == content {
        return Ok(());
    }
    let at = found.iter().zip(content).position(|(found, expected)| found != expected);
    Err(format!(
        "{line}: found {} bytes, expected {}; they differ at {at:?}",
        found.len(),
        content.len()
    ))
}

/// Unpacks an array, leaves a member out, and runs every command printed for the others.
fn run_all(fixture: &Fixture, absent: Option<usize>, run_of: &mut Run) {
    let dir = tempdir().unwrap();
    let path = dir.path();
    let members = fixture.unpack(path);
    if let Some(absent) = absent {
        std::fs::remove_file(path.join(&members[absent])).unwrap();
    }
    let here = members.iter().enumerate().filter(|(index, _)| Some(*index) != absent);
    let here: Vec<&str> = here.map(|(_, name)| name.as_str()).collect();
    let bytes = || -> Vec<Vec<u8>> {
        here.iter().map(|name| std::fs::read(path.join(name)).unwrap()).collect()
    };
    let before = bytes();
    let output = command(path, &[&["rescue"], &here[..]].concat()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = printed(&text);
    assert_eq!(output.status.success(), !lines.is_empty(), "{}: {text}", fixture.name);
    assert_eq!(lines.is_empty(), text.contains("cannot be read ("), "{}: {text}", fixture.name);
    run_of.refused += usize::from(lines.is_empty());
    // In this fixture a block of member 1 was changed without the kernel's RAID.
    let is_changed = fixture.scenario == "mismatch" && absent != Some(1);
    let content = fixture.content();
    for line in lines {
        let result = run(path, line, &content);
        if is_changed {
            let error = result.expect_err("a block that was changed is read as it is");
            assert!(error.contains("they differ at Some"), "{error}");
        } else {
            result.unwrap_or_else(|error| panic!("{} without {absent:?}: {error}", fixture.name));
        }
        match line.split_whitespace().take(2).collect::<Vec<_>>()[..] {
            ["cat", _] => run_of.cat += 1,
            ["serve", "--read-only"] => run_of.read_only += 1,
            ["serve", "--overlay"] => run_of.overlay += 1,
            _ => panic!("{}: {line}: of no known kind", fixture.name),
        }
    }
    assert!(before == bytes(), "{}: a member was written", fixture.name);
}

/// Runs the commands of all fixtures of some levels: with all members, and without the first.
fn run_levels(levels: &[u64]) -> Run {
    let mut run_of = Run::default();
    for name in Fixture::names() {
        let fixture = Fixture::of(&name);
        if !levels.contains(&fixture.level) {
            continue;
        }
        for absent in [None, Some(0), Some(1)] {
            run_all(&fixture, absent, &mut run_of);
        }
    }
    run_of
}

/// Levels of the three tests that follow, so that they run side by side.
const LEVELS: [&[u64]; 3] = [&[0, 1, 10], &[4, 5], &[6]];

#[test]
fn every_fixture_is_of_the_levels_of_one_test() {
    let names = Fixture::names();
    assert!(names.len() > 30, "{} fixtures", names.len());
    for name in names {
        let level = Fixture::of(&name).level;
        let tests = LEVELS.iter().filter(|levels| levels.contains(&level)).count();
        assert_eq!(tests, 1, "{name}: level {level}");
    }
}

#[test]
fn every_line_for_mirrors_and_stripes_works() {
    let run_of = run_levels(LEVELS[0]);
    assert!(run_of.cat > 10, "{run_of:?}");
}

#[test]
fn every_line_for_raid_4_and_5_works() {
    let run_of = run_levels(LEVELS[1]);
    assert!(run_of.cat > 10, "{run_of:?}");
}

#[test]
fn every_line_for_raid_6_works() {
    let run_of = run_levels(LEVELS[2]);
    assert!(run_of.cat > 10, "{run_of:?}");
}

/// Planted faults: a command without the journal, one with too few members, and one that reads
/// another array.
#[test]
fn a_line_that_does_not_work_is_found() {
    let dir = tempdir().unwrap();
    let fixture = Fixture::of("raid5-4-journal");
    let members = fixture.unpack(dir.path());
    let text = exits(dir.path(), 0, &[&["rescue".into()], &members[..]].concat()).out;
    let lines = printed(&text);
    assert_eq!(lines.len(), 2, "{text}");
    for line in lines {
        run(dir.path(), line, &fixture.content()).unwrap();
        let without = line.replace(" m4.img", "");
        assert_ne!(without, line);
        let error = run(dir.path(), &without, &fixture.content()).unwrap_err();
        assert!(error.contains("exit status: 3") && error.contains("journal"), "{error}");
        let few = line.replace("m0.img m1.img", "");
        assert!(run(dir.path(), &few, &fixture.content()).unwrap_err().contains("status: 3"));
        let other = Fixture::of("raid5-4x64k-ls").content();
        let error = run(dir.path(), line, &other).unwrap_err();
        assert!(error.contains("differ at") || error.contains("expected"), "{error}");
    }
}
