//! Tests of `weft bench`: output and exit status.

mod common;

use common::{exits, json};
use tempfile::tempdir;
use weft_sim::machine::CostTable;

#[test]
fn rows_have_the_promised_shape_and_a_positive_ratio() {
    let dir = tempdir().unwrap();
    let words = ["bench", "parity", "--quick", "--rounds", "1", "--only", "4+1 4K in L2", "--json"];
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
    let words = ["bench", "costs", "--quick", "--rounds", "2", "--write", "mine.toml", "--json"];
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
fn what_cannot_be_measured_is_a_usage_error() {
    let dir = tempdir().unwrap();
    for (words, told) in [
        (&["bench", "parity", "--only", "RAID 7"][..], "--only"),
        (&["bench", "parity", "--level", "mmx"], "expected one of scalar"),
        (&["bench", "parity", "--rounds", "0"], "--rounds"),
        (&["bench"], "Usage: weft bench"),
    ] {
        let text = exits(dir.path(), 2, words);
        assert!(text.err.contains(told), "{words:?}: {text:?}");
        assert_eq!(text.out, "");
    }
}
