//! Tests of `weft-bench`: output, files and exit status.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::tempdir;
use weft_sim::machine::CostTable;
use weft_testing::documents::{Helps, commands_named, pages};

/// Runs weft-bench in a directory.
fn bench(dir: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft-bench"));
    command.args(words).current_dir(dir).stdin(Stdio::null()).env("TMPDIR", dir);
    command.output().expect("weft-bench was built for this test")
}

/// Runs weft-bench and expects an exit status. Returns standard output and standard error.
fn exits(dir: &Path, status: i32, words: &[&str]) -> (String, String) {
    let output = bench(dir, words);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(status), "{words:?}: {out} {err}");
    (out, err)
}

/// Expects success, and JSON on standard output.
fn json(dir: &Path, words: &[&str]) -> Value {
    serde_json::from_str(&exits(dir, 0, words).0).expect("one JSON value on standard output")
}

#[test]
fn rows_have_the_promised_shape_and_a_positive_ratio() {
    let dir = tempdir().unwrap();
    let words = ["parity", "--quick", "--rounds", "1", "--only", "4+1 4K in L2", "--json"];
    let sheet = json(dir.path(), &words);
    assert_eq!(sheet["schema"], "weft.bench/1");
    let rows = sheet["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 1, "{sheet}");
    let row = &rows[0];
    assert_eq!((row["bench"].as_str(), row["unit"].as_str()), (Some("parity"), Some("GB/s")));
    assert_eq!(row["case"], "XOR 4+1 4K in L2");
    assert!(["isa-l", "weft scalar"].contains(&row["baseline"].as_str().unwrap()), "{row}");
    for number in ["value", "baseline_value", "ratio"] {
        assert!(row[number].as_f64().unwrap() > 0.0, "{number} of {row}");
    }
}

#[test]
fn a_table_of_costs_is_measured_and_written_and_read_again() {
    let dir = tempdir().unwrap();
    let words = ["costs", "--quick", "--rounds", "2", "--write", "mine.toml", "--json"];
    let sheet = json(dir.path(), &words);
    let rows = sheet["rows"].as_array().unwrap();
    let told = |case: &str| {
        let row = rows.iter().find(|row| row["case"] == case).unwrap();
        let [low, high] = [0, 1].map(|index| row["quartiles"][index].as_f64().unwrap());
        let value = row["value"].as_f64().unwrap();
        assert!(low <= value && value <= high, "{row}");
        value
    };
    let text = std::fs::read_to_string(dir.path().join("mine.toml")).unwrap();
    let table = CostTable::parse("mine", &text).unwrap();
    assert_eq!(sheet["cpu"].as_str(), table.cpu.as_deref());
    for (case, cost) in [("input", table.costs.input), ("syscall", table.costs.syscall)] {
        assert!(cost > 0 && (told(case) - cost as f64).abs() <= 0.5, "{case}: {cost}");
    }
    let explained: Vec<f64> = rows
        .iter()
        .filter(|row| row["unit"] == "explained")
        .map(|row| row["value"].as_f64().unwrap())
        .collect();
    assert!(explained.len() > 10);
    let mean = explained.iter().sum::<f64>() / explained.len() as f64;
    assert!((0.5..2.0).contains(&mean), "{explained:?}");
}

#[test]
fn a_file_that_is_no_table_of_costs_stays() {
    let dir = tempdir().unwrap();
    let mine = dir.path().join("mine");
    std::fs::write(&mine, "[mine]\n").unwrap();
    for force in [&[][..], &["--force"]] {
        let words = [&["costs", "--quick", "--write", "mine"], force].concat();
        let (out, err) = exits(dir.path(), 3, &words);
        assert!(err.contains("that is no table of costs") && out.is_empty(), "{words:?}: {err}");
    }
    assert_eq!(std::fs::read_to_string(mine).unwrap(), "[mine]\n");
}

#[test]
fn what_cannot_be_measured_is_a_usage_error() {
    let dir = tempdir().unwrap();
    for (words, told) in [
        (&["parity", "--only", "RAID 7"][..], "--only"),
        (&["parity", "--level", "mmx"], "expected one of scalar"),
        (&["parity", "--rounds", "0"], "--rounds"),
        (&[], "Usage: weft-bench"),
    ] {
        let (out, err) = exits(dir.path(), 2, words);
        assert!(err.contains(told), "{words:?}: {err}");
        assert_eq!(out, "");
    }
    let (_, err) = exits(dir.path(), 2, &["parity", "--only", "RAID 7"]);
    assert!(err.starts_with("weft-bench: "), "{err}");
}

#[test]
fn a_failure_is_told_as_json() {
    let dir = tempdir().unwrap();
    for words in [&["absent", "--json"][..], &["parity", "--json", "--only", "RAID 7"]] {
        let (out, err) = exits(dir.path(), 2, words);
        let value: Value = serde_json::from_str(&out).unwrap();
        assert_eq!((&value["schema"], &value["exit"]), (&"weft.error/1".into(), &2.into()));
        assert!(err.contains(value["error"].as_str().unwrap()), "{words:?}: {err}");
    }
}

#[test]
fn help_has_every_benchmark_and_help_too() {
    let dir = tempdir().unwrap();
    let (help, _) = exits(dir.path(), 0, &["--help"]);
    for of in ["costs", "engine", "member", "nbd", "parity", "sched"] {
        assert!(help.contains(&format!("  {of} ")), "{of}: {help}");
        let (long, _) = exits(dir.path(), 0, &[of, "--help"]);
        for option in ["--json", "--rounds", "--quick", "--check"] {
            assert!(long.contains(option), "{of} {option}: {long}");
        }
    }
    let (out, err) = exits(dir.path(), 0, &["help", "--help"]);
    assert!(out.contains("Usage: weft-bench help [COMMAND]...") && err.is_empty(), "{out} {err}");
}

#[test]
fn every_benchmark_and_option_that_a_page_names_is_there_and_a_planted_one_is_found() {
    let dir = tempdir().unwrap();
    let mut helps = Helps::new(|name| {
        let output = bench(dir.path(), &[name, "--help"]);
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    });
    let mut named = 0;
    for (path, page) in pages() {
        let commands = commands_named(&page, "weft-bench");
        named += commands.len();
        let unknown: Vec<String> = commands.iter().flat_map(|code| helps.unknown(code)).collect();
        assert_eq!(unknown, Vec::<String>::new(), "{}", path.display());
    }
    assert!(named >= 8, "{named} commands were looked at: there are more");
    let planted = "`weft-bench disks` and `weft-bench nbd --only RAID --no-such`\n";
    let found: Vec<String> =
        commands_named(planted, "weft-bench").iter().flat_map(|code| helps.unknown(code)).collect();
    assert_eq!(found.len(), 2, "{found:?}");
}
