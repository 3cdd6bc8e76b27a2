//! Tests of `weft reproduce`: output and exit status.

mod common;

use common::{exits, json};
use tempfile::tempdir;

#[test]
fn rows_have_the_promised_shape_and_two_runs_of_a_seed_are_the_same() {
    let dir = tempdir().unwrap();
    let words = [
        "reproduce",
        "priority",
        "--only",
        "dd",
        "--quick",
        "--runs",
        "2",
        "--seed",
        "5",
        "--json",
    ];
    let sheet = json(dir.path(), &words);
    assert_eq!((sheet["schema"].as_str(), &sheet["runs"]), (Some("weft.reproduce/2"), &2.into()));
    assert_eq!(sheet["experiments"][0]["sha256"].as_str().unwrap().len(), 64);
    let rows = sheet["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    for row in rows {
        assert_eq!(row["patch"], "000");
        assert_eq!(row["experiment"], "dd");
        let runs = &row["measured"]["runs"];
        assert_eq!(
            (runs["baseline"].as_array().unwrap().len(), runs["patched"][1].is_f64()),
            (2, true)
        );
        let number = |name: &str| row["measured"][name].as_f64().unwrap();
        let (baseline, patched) = (number("baseline"), number("patched"));
        assert!(baseline > 0.0 && patched > 0.0, "{row}");
        assert_eq!(row["band"] == "direction", row["band"].as_array().is_none(), "{row}");
        let [low, high] = [0, 1].map(|end| row["measured"]["ci95"][end].as_f64().unwrap());
        assert!(low <= number("gain_pct") && number("gain_pct") <= high, "{row}");
        // A row with a rate depends on assumed parameters, and every row on two choices that were
        // made afterwards (`hangs_on`).
        let assumed = (row["kind"] == "magnitude").then_some(true);
        assert_eq!(row["hangs_on"]["assumed"], serde_json::json!(assumed), "{row}");
        assert_eq!(row["hangs_on"]["chosen_afterwards"].as_array().unwrap().len(), 2, "{row}");
        // Two runs have figures and no verdict.
        assert_eq!((&row["verdict"], &row["reason"]), (&serde_json::Value::Null, &"".into()));
    }
    assert_eq!(sheet["no_verdicts"], "verdicts need 10 runs: --runs 10");
    assert!(sheet["summary"].is_null(), "{sheet}");
    // The run is repeated, with a page.
    let page = dir.path().join("page.html");
    let words = [&words[..], &["--report", page.to_str().unwrap()]].concat();
    assert_eq!(json(dir.path(), &words), sheet);
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    for row in rows {
        let name =
            format!("{} {}", row["experiment"].as_str().unwrap(), row["case"].as_str().unwrap());
        assert!(page.contains(&format!("<td data-label=\"figure\">{name}</td>")), "{name}");
    }
    assert!(page.contains(sheet["experiments"][0]["sha256"].as_str().unwrap()));
}

#[test]
fn an_exact_row_agrees_and_runs_are_kept_once() {
    let dir = tempdir().unwrap();
    let words = [
        "reproduce",
        "stripe-size",
        "--only",
        "isolated",
        "--quick",
        "--runs",
        "10",
        "--json",
        "--results",
        "runs",
    ];
    let sheet = json(dir.path(), &words);
    let row = &sheet["rows"][0];
    assert_eq!(
        (&row["verdict"], &row["metric"]),
        (&"agrees".into(), &"member_kib_per_write".into())
    );
    assert_eq!((&row["reason"], &sheet["no_verdicts"]), (&"".into(), &"".into()));
    assert_eq!(sheet["summary"]["published_figures"]["agrees"], 1);
    assert_eq!(
        (&row["measured"]["baseline"], &row["measured"]["patched"]),
        (&256.0.into(), &16.0.into())
    );
    assert_eq!((&row["beyond"]["name"], &row["beyond"]["value"]), (&"auto".into(), &16.0.into()));
    assert_eq!(sheet["result_sha256"].as_str().unwrap().len(), 64);
    let kept = dir.path().join("runs/004-isolated/patched/1/summary.json");
    assert!(std::fs::read_to_string(kept).unwrap().contains("\"member_kib_per_write\": 16.0"));
    let text = exits(dir.path(), 3, &words);
    assert!(text.err.contains("found something in it"), "{text:?}");
    // A file is in the way of the directory.
    std::fs::write(dir.path().join("file"), "").unwrap();
    let words = ["reproduce", "004", "--only", "isolated", "--results", "file/runs"];
    let text = exits(dir.path(), 3, &words);
    assert!(text.err.contains("name a directory that can be made"), "{text:?}");
}

#[test]
fn verdicts_need_ten_runs_and_a_row_with_one_has_its_reason() {
    let dir = tempdir().unwrap();
    let of = |runs: &str| {
        let words = ["reproduce", "004", "--only", "isolated", "--quick", "--rows", "--runs", runs];
        exits(dir.path(), 0, &words).out
    };
    let (nine, ten) = (of("9"), of("10"));
    let hint = "verdicts need 10 runs: --runs 10\n";
    assert!(nine.contains(hint) && nine.contains("-93.8 % (-93.8…-93.8)"), "{nine}");
    for word in ["verdict\n", "agree", "differ", "published figures"] {
        assert!(!nine.contains(word), "{word}: {nine}");
    }
    assert!(ten.contains("  verdict\n") && ten.contains("-94…-94 %         agrees\n"), "{ten}");
    assert!(ten.contains("of 1 published figures 1 agree\n") && !ten.contains(hint), "{ten}");
    // The meaning of each mark stands below the rows, if a row has the mark; an exact row has none.
    let words = ["reproduce", "000", "--only", "256 above", "--quick", "--runs=2", "--rows"];
    let marked = exits(dir.path(), 0, &words).out;
    assert!(marked.contains("  u, c\n") && marked.contains("\n  u: its range"), "{marked}");
    assert!(marked.contains("\n  c: hangs on what was chosen"), "{marked}");
    assert!(!marked.contains("\n  a: ") && !ten.contains("\n  c: "), "{marked}");
    // A row that differs says why, or that it is not known.
    let printed = exits(dir.path(), 0, &["reproduce", "004", "--print-experiment"]).out;
    let other = printed.replacen("band = [0.0625, 0.0625]", "band = [1.5, 2.0]", 1);
    std::fs::write(dir.path().join("mine.toml"), other.replacen("exact = true", "", 1)).unwrap();
    let words = ["reproduce", "mine.toml", "--only", "isolated", "--quick", "--runs=10", "--json"];
    let row = &json(dir.path(), &words)["rows"][0];
    assert_eq!((&row["verdict"], &row["reason"]), (&"differs".into(), &"not known".into()));
}

#[test]
fn a_patch_is_one_line_and_no_line_is_longer_than_100_columns() {
    let dir = tempdir().unwrap();
    let begins = |text: &str, words: &str| text.lines().filter(|it| it.starts_with(words)).count();
    for (patch, only, line, row) in [
        ("000", "size=512", "000 priority RAID 5: full", "    19"),
        ("004", "isolated", "004 stripe-size 4 KiB stripes", "    256 → 16.0 KiB  "),
    ] {
        let words = ["reproduce", patch, "--only", only, "--quick", "--runs=2"];
        let lines = exits(dir.path(), 0, &words).out;
        let rows = exits(dir.path(), 0, &[&words[..], &["--rows"]].concat()).out;
        assert_eq!((begins(&lines, line), lines.lines().count()), (1, 5), "{lines}");
        assert_eq!(begins(&rows, &format!("patch {patch} (")), 1, "{rows}");
        assert!(begins(&rows, row) == 1 && rows.contains("\n  taken for granted:\n"), "{rows}");
        for text in [&lines, &rows] {
            let longest = text.lines().map(|line| line.chars().count()).max();
            assert!(longest <= Some(100), "{longest:?}: {text}");
        }
        // Both forms are about the same runs.
        assert!(begins(&rows, "all that was measured: sha256 ") == 1, "{rows}");
        assert_eq!(lines.lines().last(), rows.lines().last());
    }
    let told = exits(dir.path(), 2, &["reproduce", "000", "--rows", "--json"]).err;
    assert!(told.contains("--json"), "{told}");
}

#[test]
fn what_is_not_known_is_a_usage_error() {
    let dir = tempdir().unwrap();
    for (words, told) in [
        (
            &["reproduce", "005"][..],
            "expected one of 000 (priority), 001 (io-less), 002 (flush-batch), 003 (queue-merge), 004 (stripe-size)",
        ),
        (&["reproduce", "000", "--runs", "1"], "--runs"),
        (&["reproduce", "000", "--report", "."], "it is a folder"),
        (&["reproduce", "000", "--report", "none/page.html"], "there is no folder"),
        (&["reproduce", "000", "--report", "none/page.html"], "name a file that can be written"),
        (&["reproduce", "--costs", "/dev/null"], "cpu: found nothing"),
        (&["reproduce", "000", "--quick", "--full"], "--full"),
        (&["reproduce", "000", "--ranges", "--fit"], "--fit"),
        (&["reproduce", "000", "--only", "fio"], "000 dd stripe_cache_size=256"),
        (&["reproduce", "000", "-n", "65"], "machine.members: found 65, expected 2..=64"),
        (&["reproduce", "000", "-l", "3"], "--level"),
        (&["reproduce", "000", "-l", "single"], "machine.members: found 4, expected 1..=1"),
        (&["reproduce", "000", "-c", "3K"], "machine.chunk_kib: found 3, expected a multiple of 4"),
        (&["reproduce", "000", "-c", "1s"], "--chunk: found 512 bytes, expected whole KiB"),
        (&["reproduce", "000", "--set", "priority"], "priority: expected KNOB=VALUE"),
        (&["reproduce", "000", "--set", "strip=1"], "strip: no such knob"),
        (
            &["reproduce", "000", "--set", "priority=fifo"],
            "--set priority: found priority=fifo, where column baseline has priority=fifo, expected a \
             knob that no column sets",
        ),
    ] {
        let text = exits(dir.path(), 2, words);
        assert!(text.err.contains(told), "{words:?}: {text:?}");
        assert_eq!(text.out, "");
    }
}

/// A claim about one array is tested on another, selected by options instead of the text.
#[test]
fn an_experiment_is_run_on_another_machine_which_is_told() {
    let dir = tempdir().unwrap();
    let of = |more: &[&str]| {
        let words = ["reproduce", "004", "--only", "isolated", "--quick", "--runs=2", "--json"];
        json(dir.path(), &[&words[..], more].concat())
    };
    let side = |sheet: &serde_json::Value, of: &str| sheet["rows"][0]["measured"][of].clone();
    let plain = of(&[]);
    // A single write of 4 KiB to RAID 5: data and parity, each read and written; RAID 6 has two
    // parities.
    assert_eq!(side(&plain, "patched"), 16.0);
    let other = of(&["-l", "6", "-n", "6", "--chunk", "64", "--set", "fifo_batch=8"]);
    assert_eq!(side(&other, "patched"), 24.0);
    let told = other["experiments"][0]["assumptions"].to_string();
    let line = "level raid6 for raid5, 6 members for 4, chunk 64 KiB for 512, fifo_batch=8;";
    assert!(told.contains(line), "{told}");
    let told = plain["experiments"][0]["assumptions"].to_string();
    assert!(!told.contains("not the text's"), "{told}");
}

#[test]
fn an_interrupted_run_leaves_the_old_page() {
    let dir = tempdir().unwrap();
    let old = format!("{}old", weft_lab::report::BEGIN);
    std::fs::write(dir.path().join("page.html"), &old).unwrap();
    let words = ["reproduce", "--report", "page.html", "--force"];
    let status = common::interrupted(dir.path(), &words, 2);
    assert_eq!(status, Some(130));
    assert_eq!(common::names(dir.path()), ["page.html"]);
    assert_eq!(std::fs::read_to_string(dir.path().join("page.html")).unwrap(), old);
}

#[test]
fn a_patch_that_is_named_twice_is_run_once() {
    let dir = tempdir().unwrap();
    let words =
        ["reproduce", "004", "stripe-size", "--only", "isolated", "--quick", "--runs=2", "--json"];
    let sheet = json(dir.path(), &words);
    assert_eq!(sheet["experiments"].as_array().unwrap().len(), 1);
    assert_eq!(sheet["rows"].as_array().unwrap().len(), 1);
}

#[test]
fn what_was_fitted_is_told_as_json_too() {
    let dir = tempdir().unwrap();
    let sheet = json(dir.path(), &["reproduce", "000", "--fit", "--quick", "--json"]);
    assert_eq!(sheet["schema"], "weft.fit/1");
    assert_eq!(sheet["fitted"].as_array().unwrap().len(), 0, "nothing of 000 is fitted by code");
}

#[test]
fn magnitudes_are_run_under_other_assumptions() {
    let dir = tempdir().unwrap();
    let words = ["reproduce", "000", "--ranges", "--only", "dd stripe_cache_size=512"];
    let sheet = json(dir.path(), &[&words[..], &["--quick", "--runs=2", "--json"]].concat());
    assert_eq!(sheet["schema"], "weft.ranges/1");
    let [row] = sheet["rows"].as_array().unwrap().as_slice() else { panic!("{sheet}") };
    let points = row["circumstances"].as_array().unwrap();
    assert_eq!(points[0]["circumstance"], "as committed");
    let gain = |name: &str| {
        let point = points.iter().find(|point| point["circumstance"] == name);
        point.unwrap_or_else(|| panic!("{name}: {points:?}"))["gain_pct"].as_f64().unwrap()
    };
    let (plain, cut) = (gain("as committed"), gain("no write cache"));
    assert!(cut < plain - 3.0, "{cut} % without a write cache, {plain} % as committed");
    // The range printed beside the figure is that of the text.
    let [low, high] = [0, 1].map(|end| row["assumed"]["gain_pct"][end].as_f64().unwrap());
    assert!(low < plain && plain < high, "{row}");
}

#[test]
fn the_dearest_costs_and_the_last_seed_are_no_reason_to_stop() {
    let dir = tempdir().unwrap();
    let seed = u64::MAX.to_string();
    let words = ["reproduce", "004", "--only", "isolated", "--quick", "--runs=2", "--json"];
    let words = [&words[..], &["--costs", "frozen*100000", "--seed", &seed]].concat();
    let sheet = json(dir.path(), &words);
    assert_eq!(sheet["rows"][0]["measured"]["patched"], 16.0);
}

#[test]
fn an_experiment_is_printed_changed_and_run_from_its_file() {
    let dir = tempdir().unwrap();
    let printed = exits(dir.path(), 0, &["reproduce", "stripe-size", "--print-experiment"]).out;
    let line = "knobs = [\"stripe_size=4096\"]";
    assert!(printed.contains(line), "{printed}");
    let changed = printed.replacen(line, "knobs = [\"stripe_size=16384\"]", 1);
    std::fs::write(dir.path().join("mine.toml"), &changed).unwrap();
    fn of<'a>(more: &[&'a str]) -> Vec<&'a str> {
        [&["reproduce", "--only", "isolated", "--quick"], more].concat()
    }
    let sheet = json(dir.path(), &of(&["--experiment", "mine.toml", "--runs=10", "--json"]));
    // A block of 4 KiB moves 16 KiB with 4 KiB stripes, and four times as much here.
    assert_eq!(sheet["rows"][0]["measured"]["patched"], 64.0);
    assert_ne!(sheet["rows"][0]["verdict"], "agrees");
    let plain = json(dir.path(), &of(&["004", "--runs=2", "--json"]));
    assert_ne!(sheet["experiments"][0]["sha256"], plain["experiments"][0]["sha256"]);
    // The experiment can be named by its path; the text output names the file.
    let text = exits(dir.path(), 0, &of(&["mine.toml", "--runs=2", "--rows"])).out;
    assert!(text.contains("  mine.toml, sha256 "), "{text}");
    // Printed again it equals the changed text; it is refused beside the experiment that it was
    // made from.
    let again = exits(dir.path(), 0, &["reproduce", "mine.toml", "--print-experiment"]).out;
    assert_eq!(again, changed);
    let told = exits(dir.path(), 2, &["reproduce", "004", "--experiment", "mine.toml"]).err;
    assert!(
        told.contains("mine.toml: patch: found \"004\", which experiments/004.toml has"),
        "{told}"
    );
}

#[test]
fn a_file_that_is_no_experiment_is_a_usage_error_that_says_where() {
    let dir = tempdir().unwrap();
    let printed = exits(dir.path(), 0, &["reproduce", "000", "--print-experiment"]).out;
    let with = |from: &str, to: &str| printed.replacen(from, to, 1).into_bytes();
    for (bytes, told) in [
        (with("[machine]", "[machine"), "mine.toml: experiment: TOML parse error at line"),
        (with("members = 4", "members = \"four\""), "expected u16"),
        (with("members = 4", "disks = 4"), "unknown field `disks`"),
        (with("priority=fifo", "priority=lifo"), "priority: found lifo, expected"),
        (with("members = 4", "members = 65"), "machine.members: found 65, expected 2..=64"),
        (vec![0xff, 0xfe], "mine.toml: stream did not contain valid UTF-8"),
        (Vec::new(), "missing field `patch`"),
    ] {
        std::fs::write(dir.path().join("mine.toml"), bytes).unwrap();
        let text = exits(dir.path(), 2, &["reproduce", "--experiment", "mine.toml"]);
        assert!(text.err.contains(told), "{told}: {text:?}");
        assert!(text.err.contains("--print-experiment print"), "{text:?}");
        assert_eq!(text.out, "");
    }
    for (words, told) in [
        (&["reproduce", "--experiment", "none.toml"][..], "weft: none.toml: No such file"),
        (&["reproduce", "--experiment", "."], "weft: .: found no regular file, expected a file"),
        (&["reproduce", "--experiment", "/dev/zero"], "/dev/zero: found no regular file"),
        (&["reproduce", "none.toml"], "weft: none.toml: No such file"),
        (
            &["reproduce", "--print-experiment"],
            "found 5 experiments, expected one; name one of 000",
        ),
        (&["reproduce", "000", "--print-experiment", "--fit"], "--fit"),
    ] {
        let text = exits(dir.path(), 2, words);
        assert!(text.err.contains(told), "{words:?}: {text:?}");
        assert_eq!(text.out, "");
    }
}
