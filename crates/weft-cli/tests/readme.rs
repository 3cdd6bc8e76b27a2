//! The tour of the README works as it is printed there.

mod common;

use std::path::Path;
use std::process::Stdio;

use common::{Served, command};
use tempfile::tempdir;

/// Commands of a section, in order, without their comments.
fn commands<'a>(readme: &'a str, heading: &str) -> Vec<&'a str> {
    let section = readme.split_once(heading).expect("the section").1;
    let section = section.split("\n## ").next().unwrap_or_default();
    let lines = section.lines().filter_map(|line| line.strip_prefix("    "));
    lines.map(|line| line.split("  #").next().unwrap_or_default().trim_end()).collect()
}

/// What a shell makes of a line, with this weft.
fn shell(dir: &Path, line: &str) -> String {
    let weft = Path::new(env!("CARGO_BIN_EXE_weft")).parent().unwrap();
    let path = format!("{}:{}", weft.display(), std::env::var("PATH").unwrap_or_default());
    let output = std::process::Command::new("sh")
        .args(["-e", "-c", line])
        .current_dir(dir)
        .env("PATH", path)
        .env("XDG_RUNTIME_DIR", dir)
        .env("TMPDIR", dir)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{line}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_tour_works_as_it_is_printed() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = std::fs::read_to_string(readme).unwrap();
    let dir = tempdir().unwrap();
    let path = dir.path();
    let mut served = None;
    let mut said = Vec::new();
    for line in commands(&readme, "## A tour of two minutes") {
        // As many megabytes would only take longer.
        let line = line.replace("256M", "16M").replace("64M", "6M");
        if let Some(arguments) = line.strip_prefix("weft serve ") {
            let arguments = arguments.strip_suffix(" &").expect("in the background");
            let arguments: Vec<&str> =
                arguments.split(' ').map(|word| word.trim_matches('\'')).collect();
            served = Some(Served::start(path, &arguments));
        } else if line.starts_with("weft ") || line.starts_with("head ") {
            said.push(shell(path, &line));
        } else {
            // Programs that may not be here.
            let known = ["export ", "mdadm ", "nbdinfo ", "nbdcopy "];
            assert!(known.iter().any(|program| line.starts_with(program)), "{line}");
        }
    }
    assert_eq!(served.expect("the tour serves").wait(), Some(0), "weft stop");
    let said = said.concat();
    for text in ["all members are in sync", "[4/4] [UUUU]", "parity agrees with the data"] {
        assert!(said.contains(text), "{text} in {said}");
    }
    let after = command(path, &["detail", "--test", "m0", "fresh", "m2", "m3"]).output().unwrap();
    assert!(after.status.success(), "{after:?}");
}
