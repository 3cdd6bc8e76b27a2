//! Test of the guided tour, end to end.

mod common;

use common::{contents, exits};
use serde_json::Value;
use tempfile::tempdir;

#[test]
fn the_tour_goes_through_a_bad_day_and_measures_it() {
    let dir = tempdir().unwrap();
    let text = exits(dir.path(), 0, &["demo", "--json", "--member-size", "8M"]).out;
    let demo: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&demo["ok"], &demo["patches"]), (&true.into(), &Value::Null));
    let steps = demo["steps"].as_array().unwrap();
    let names: Vec<&str> = steps.iter().map(|step| step["name"].as_str().unwrap()).collect();
    let expected = [
        "create",
        "serve",
        "write",
        "verify",
        "fail",
        "degraded",
        "rebuild",
        "verify-rebuilt",
        "check",
        "flip",
        "find",
        "repair",
        "check-again",
        "stop",
        "again",
    ];
    assert_eq!(names, expected);
    let step = |name: &str| &steps[expected.iter().position(|it| *it == name).unwrap()];
    let stripes = step("check")["stripes"].as_u64().unwrap();
    assert!(stripes > 1000, "{stripes}");
    for name in ["rebuild", "find", "repair", "check-again"] {
        assert_eq!(step(name)["stripes"], stripes, "{name}");
    }
    let bytes = step("check")["bytes"].as_u64().unwrap();
    assert!(bytes >= stripes * 4096 * 4, "{bytes}");
    assert!(contents(dir.path()).is_empty());
    let left = std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(left, 0, "nothing is left behind");
}

#[test]
fn the_tour_leaves_files_that_can_be_read_when_asked() {
    let dir = tempdir().unwrap();
    let words = ["demo", "--keep", "--dir=files", "--member-size", "8M"];
    let text = exits(dir.path(), 0, &words).out;
    assert!(text.contains("✓ check-again") && text.contains("mdadm --assemble"), "{text}");
    assert!(!text.contains('\u{1b}'), "{text}");
    let files: Vec<String> = [0, 2, 3, 4].map(|n| format!("files/weft-demo-{n}.img")).into();
    let mut arguments = vec!["detail", "--test"];
    arguments.extend(files.iter().map(String::as_str));
    exits(dir.path(), 0, &arguments);
    let text = exits(dir.path(), 3, &["demo", "--dir=files"]).err;
    assert!(text.contains("exists; nothing was written"), "{text}");
    exits(dir.path(), 2, &["demo", "--member-size", "1M"]);
}

#[test]
fn an_interrupted_tour_leaves_nothing_behind() {
    let dir = tempdir().unwrap();
    let mut child = common::command(dir.path(), &["demo", "--dir=files"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    assert!(line.contains("create"), "{line}");
    let process = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(process, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let left: Vec<_> =
        std::fs::read_dir(dir.path()).unwrap().map(|it| it.unwrap().path()).collect();
    assert_eq!(left, [dir.path().join("files")]);
    assert!(contents(&dir.path().join("files")).is_empty());
}
