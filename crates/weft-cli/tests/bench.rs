//! What `weft bench` prints, and how it ends.

mod common;

use common::{exits, json};
use tempfile::tempdir;

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
