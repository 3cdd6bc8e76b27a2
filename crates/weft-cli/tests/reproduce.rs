//! What `weft reproduce` prints, and how it ends.

mod common;

use common::{exits, json};
use tempfile::tempdir;

#[test]
fn rows_have_the_promised_shape_and_two_runs_of_a_seed_are_the_same() {
    let dir = tempdir().unwrap();
    let words = ["reproduce", "priority", "--quick", "--runs", "2", "--seed", "5", "--json"];
    let sheet = json(dir.path(), &words);
    assert_eq!((sheet["schema"].as_str(), &sheet["runs"]), (Some("weft.reproduce/1"), &2.into()));
    assert_eq!(sheet["experiments"][0]["sha256"].as_str().unwrap().len(), 64);
    let rows = sheet["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    for row in rows {
        assert_eq!((&row["patch"], &row["experiment"]), (&"000".into(), &"dd".into()));
        let number = |name: &str| row["measured"][name].as_f64().unwrap();
        let (baseline, patched) = (number("baseline"), number("patched"));
        assert!(baseline > 50.0 && patched > 50.0, "{row}");
        let [low, high] = [0, 1].map(|end| row["measured"]["ci95"][end].as_f64().unwrap());
        assert!(low <= number("gain_pct") && number("gain_pct") <= high, "{row}");
        assert!(["agrees", "direction", "differs"].contains(&row["verdict"].as_str().unwrap()));
        let silent = row["reason"].as_str().unwrap().is_empty();
        assert_eq!(silent, row["verdict"] == "agrees", "whoever disagrees says why: {row}");
    }
    assert_eq!(json(dir.path(), &words), sheet);
}

#[test]
fn what_is_not_known_is_a_usage_error() {
    let dir = tempdir().unwrap();
    for (words, told) in [
        (&["reproduce", "005"][..], "expected one of 000 (priority)"),
        (&["reproduce", "000", "--runs", "1"], "--runs"),
    ] {
        let text = exits(dir.path(), 2, words);
        assert!(text.err.contains(told), "{words:?}: {text:?}");
        assert_eq!(text.out, "");
    }
}
