//! `weft doctor`: volumes with which nothing and something is wrong, killed servers, wrong names.

mod common;

use common::{Served, array, exits};
use serde_json::Value;

/// Ids of the findings of a kind, of volumes, in the answer of `doctor --json`.
fn ids(json: &str, severity: &str) -> Vec<String> {
    let answer: Value = serde_json::from_str(json).unwrap();
    assert_eq!(answer["schema"], "weft.doctor/1");
    let of = |it: &&Value| it["severity"] == severity && !it["volume"].is_null();
    let findings = answer["findings"].as_array().unwrap().iter().filter(of);
    findings.map(|it| it["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn what_is_wrong_with_a_volume_is_said_with_the_next_step() {
    let dir = array();
    let path = dir.path();
    let served = Served::start(path, &["a", "b", "c"]);
    exits(path, 0, &["wait", "vol"]);
    let whole = exits(path, 0, &["doctor", "vol"]).out;
    let last = whole.lines().last().unwrap();
    assert_eq!(last, "no problem: volumes 1, members 3, checks 12", "{whole}");
    assert_eq!(ids(&exits(path, 0, &["doctor", "vol", "--json"]).out, "problem"), [""; 0]);

    exits(path, 0, &["fail", "vol", "b"]);
    let told = exits(path, 4, &["doctor", "vol"]).out;
    let expected = "problem vol: degraded: a slot has no member; its blocks are computed from the \
                    others\n    weft add vol DEVICE gives it a new one\n";
    assert!(told.starts_with(expected), "{told}");
    let json = exits(path, 4, &["doctor", "--json"]).out;
    assert_eq!(ids(&json, "problem"), ["degraded", "member-faulty"], "{json}");
    let answer: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(answer["problems"], 2);
    assert_eq!(answer["looked"]["members"], 3);
    assert!(answer["looked"]["checks"].as_u64().unwrap() > 12, "the machine too: {json}");
    drop(served);
}

#[test]
fn a_server_that_was_killed_is_a_problem_until_it_is_back() {
    let dir = array();
    let path = dir.path();
    let gone = |told: &str| told.contains("problem this machine: server-gone: ");
    let served = Served::start(path, &["a", "b", "c"]);
    let told = exits(path, 0, &["doctor"]).out;
    assert!(!gone(&told), "{told}");
    drop(served); // It is killed.
    let told = exits(path, 4, &["doctor"]).out;
    assert!(gone(&told) && told.contains("weft serve --name vol MEMBER…"), "{told}");
    let served = Served::start(path, &["a", "b", "c"]);
    let told = exits(path, 0, &["doctor"]).out;
    assert!(!gone(&told), "{told}");
    drop(served);
}

#[test]
fn members_that_threads_reach_are_advice() {
    let dir = array();
    let path = dir.path();
    let served = Served::start(path, &["a", "b", "c", "--backend", "threads"]);
    exits(path, 0, &["wait", "vol"]);
    let advice = ids(&exits(path, 0, &["doctor", "vol", "--json"]).out, "advice");
    assert!(advice.contains(&"threads".to_owned()), "{advice:?}");
    drop(served);
}

#[test]
fn a_name_that_does_not_run_is_an_error() {
    let dir = array();
    let told = exits(dir.path(), 1, &["doctor", "nothing"]).err;
    assert!(told.contains("nothing: no running volume has this name"), "{told}");
    assert!(exits(dir.path(), 0, &["doctor"]).out.contains("no problem: volumes 0"));
}
