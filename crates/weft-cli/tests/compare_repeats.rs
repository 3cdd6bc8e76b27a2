//! Tests of `weft compare` on repeated runs: copies, pairs, zeros, what runs would show, limits.

mod common;

use std::fs::{create_dir_all, read_to_string, write};
use std::path::Path;

use common::{exits, json};
use serde_json::{Value, json as object};
use tempfile::{TempDir, tempdir};

/// Writes an output of fio with one job of these values; with a seed it is one of `weft sim`.
fn fio_file(path: &Path, bytes: f64, errors: u64, seed: Option<u64>) {
    create_dir_all(path.parent().unwrap()).unwrap();
    let write_side = object!({"io_bytes": 4096, "bw_bytes": bytes, "iops": 1.0, "total_ios": 1});
    let job = object!({"jobname": "log", "error": 0, "total_err": errors, "write": write_side});
    let mut sheet = object!({"fio version": "fio-3.33", "jobs": [job]});
    if let Some(seed) = seed {
        sheet["weft"] = object!({"seed": seed});
    }
    write(path, sheet.to_string()).unwrap();
}

/// Sets of runs: values of `bw_bytes` for each case of each set, without seeds.
fn sets(cases: &[(&str, &[f64], &[f64])]) -> TempDir {
    let dir = tempdir().unwrap();
    for (case, before, after) in cases {
        for (set, values) in [("a", before), ("b", after)] {
            for (run, value) in values.iter().enumerate() {
                let path = dir.path().join(format!("{set}/run{run}/{case}.json"));
                fio_file(&path, *value, 0, None);
            }
        }
    }
    dir
}

fn compared(dir: &Path, more: &[&str]) -> Value {
    json(dir, &[&["compare", "a", "b", "--json"], more].concat())
}

fn interval(change: &Value) -> [f64; 2] {
    [0, 1].map(|end| change["ci95"][end].as_f64().unwrap())
}

#[test]
fn runs_of_one_seed_or_of_the_same_bytes_in_a_set_are_one_run() {
    let dir = tempdir().unwrap();
    let path = dir.path();
    let at = |file: &str| path.join(file);
    for (run, seed) in [(0, 1), (1, 1), (2, 2)] {
        // Runs 0 and 1 have the same seed and the same results.
        fio_file(&at(&format!("a/run{run}.json")), 100.0 + seed as f64, 0, Some(seed));
    }
    for (run, value) in [(0, 110.0), (1, 120.0), (2, 120.0)] {
        fio_file(&at(&format!("b/run{run}.json")), value, 0, None);
    }
    let sheet = compared(path, &[]);
    let cells = &sheet["rows"][0]["cells"];
    assert_eq!(cells[0]["values"], object!([101.0, 102.0]));
    assert_eq!(cells[1]["values"], object!([110.0, 120.0]));
    assert_eq!(sheet["sets"][0]["runs"], 2);
    let copies = object!([
        {"set": "a", "counts": "a/run0.json", "copy": "a/run1.json", "seed": 1, "same_results": true},
        {"set": "b", "counts": "b/run1.json", "copy": "b/run2.json", "seed": null,
         "same_results": true},
    ]);
    assert_eq!(sheet["copies"], copies);
    let text = exits(path, 0, &["compare", "a", "b"]).out;
    for told in [
        "a: 1 run is a copy of another one and does not count (a/run1.json as a/run0.json, seed 1)",
        "b: 1 run is a copy of another one and does not count (b/run2.json as b/run1.json, equal \
         bytes)",
    ] {
        assert!(text.contains(told), "{text}");
    }
    // Runs with the same seed and different results are reported; a run with another seed counts as
    // a further run.
    fio_file(&at("a/run1.json"), 150.0, 0, Some(1));
    let text = exits(path, 0, &["compare", "a", "b"]).out;
    let told = "a/run1.json: other results than a/run0.json with the same seed";
    assert!(text.contains(told), "{text}");
    fio_file(&at("a/run1.json"), 150.0, 0, Some(3));
    let sheet = compared(path, &[]);
    assert_eq!(sheet["rows"][0]["cells"][0]["values"].as_array().unwrap().len(), 3);
    // Three copies have no interval, whatever their number.
    for run in 0..3 {
        fio_file(&at(&format!("b/run{run}.json")), 110.0, 0, Some(1));
    }
    assert!(compared(path, &[])["rows"][0]["changes"][1]["ci95"].is_null());
}

/// Runs of the same seeds have the same requests, so that their scatter cancels.
#[test]
fn simulated_runs_of_the_same_seeds_are_pairs() {
    let dir = tempdir().unwrap();
    let path = dir.path();
    let of = |seeds: [u64; 3]| {
        for (run, seed) in seeds.into_iter().enumerate() {
            let value = [100.0, 150.0, 200.0][run];
            fio_file(&path.join(format!("a/run{run}.json")), value, 0, Some(run as u64));
            let more = value * 1.02 + run as f64 * 0.1;
            fio_file(&path.join(format!("b/run{run}.json")), more, 0, Some(seed));
        }
        compared(path, &[])["rows"][0]["changes"][1].clone()
    };
    let pairs = of([0, 1, 2]);
    assert_eq!((&pairs["paired"], &pairs["significant"]), (&true.into(), &true.into()));
    let [low, high] = interval(&pairs);
    assert!(1.8 < low && high < 2.3, "{pairs}");
    let others = of([0, 1, 3]);
    assert_eq!((&others["paired"], &others["significant"]), (&false.into(), &false.into()));
    assert!(pairs["would_see_pct"].as_f64() < others["would_see_pct"].as_f64());
    // weft sim writes the seed; its own runs are pairs.
    let job = "[w]\nrw=randwrite\nbs=4k\ndirect=1\nsize=64m\nruntime=5ms\ntime_based\n";
    write(path.join("j.fio"), job).unwrap();
    let words = ["sim", "j.fio", "--sweep", "stripe_size=4K,64K", "--runs", "2", "--results", "k"];
    exits(path, 0, &words);
    let sheet = json(path, &["compare", "k/4K", "k/64K", "--json"]);
    assert_eq!(sheet["rows"][0]["changes"][1]["paired"], true, "{sheet}");
}

/// The change lies in its own interval, however skewed the runs are.
#[test]
fn a_change_and_its_interval_are_of_one_estimate() {
    // The arithmetic means differ by +113 %, the geometric ones by half of that.
    let (before, after) = ([100.0, 101.0, 99.0, 100.5], [100.0, 101.0, 98.0, 550.0]);
    let dir = sets(&[("skewed", &before, &after)]);
    let row = &compared(dir.path(), &[])["rows"][0];
    let (change, mean) = (&row["changes"][1], |set: usize| row["cells"][set]["mean"].as_f64());
    let ([low, high], gain) = (interval(change), change["gain_pct"].as_f64().unwrap());
    assert!(low <= gain && gain <= high, "{change}");
    let geometric = |runs: &[f64]| runs.iter().map(|run| run.ln()).sum::<f64>() / 4.0;
    let expected = ((geometric(&after) - geometric(&before)).exp() - 1.0) * 100.0;
    assert!((gain - expected).abs() < 1e-9, "{change}");
    let arithmetic = (mean(1).unwrap() / mean(0).unwrap() - 1.0) * 100.0;
    assert!((gain - arithmetic).abs() > 40.0, "{change}, {arithmetic}");
}

#[test]
fn runs_with_a_value_of_0_have_an_interval_and_a_word() {
    let dir = tempdir().unwrap();
    let path = dir.path();
    let errors = |before: [u64; 3], after: [u64; 3]| {
        for (set, values) in [("a", before), ("b", after)] {
            for (run, errors) in values.into_iter().enumerate() {
                // Each run has a throughput of its own, so that no run counts as a copy of another.
                let path = path.join(format!("{set}/run{run}/e.json"));
                fio_file(&path, 100.0 + run as f64, errors, None);
            }
        }
        let sheet = compared(path, &["--metric", "total_err"]);
        (sheet["rows"][0]["changes"][1].clone(), exits(path, 0, &WORDS).out)
    };
    const WORDS: [&str; 5] = ["compare", "a", "b", "--metric", "total_err"];
    let (change, text) = errors([0, 0, 0], [900, 1000, 1100]);
    assert!(change["gain_pct"].is_null() && change["ci95"].is_null(), "{change}");
    assert_eq!((&change["difference"], &change["significant"]), (&1000.0.into(), &true.into()));
    let low = change["difference_ci95"][0].as_f64().unwrap();
    assert!((low - (1000.0 - 4.302_653 * 100.0 / 3.0_f64.sqrt())).abs() < 1e-3, "{change}");
    assert!(text.contains("from 0*        1000 ± 10.0%  e/log\n"), "{text}");
    let word = "1 change is of runs with 0 or less: the difference of their means; from or to 0 it \
                is in no geometric mean\n";
    assert!(text.contains(word), "{text}");
    // A single 0 among others, on either side, leaves a percentage.
    let (change, text) = errors([0, 10, 20], [100, 110, 120]);
    assert_eq!(change["gain_pct"], 1000.0);
    let [low, high] = interval(&change);
    assert!(low > 700.0 && high < 1300.0 && (low + high - 2000.0).abs() < 1e-6, "{change}");
    assert!(text.contains("+1000.0%*"), "{text}");
    let (change, text) = errors([100, 110, 120], [0, 0, 0]);
    assert_eq!((&change["gain_pct"], &change["significant"]), (&(-100.0).into(), &true.into()));
    assert!(text.contains("-100.0%*"), "{text}");
    let (change, text) = errors([0, 0, 0], [0, 0, 0]);
    assert_eq!((&change["difference"], &change["significant"]), (&0.0.into(), &false.into()));
    assert!(text.contains("+0.0%            0          e/log\n"), "{text}");
    assert!(!text.contains("would see"), "runs without scatter do not say it: {text}");
    let (change, _) = errors([0, 0, 0], [0, 3, 0]);
    assert_eq!(change["significant"], false, "{change}");
    // Cases from 0 count among those that went up.
    fio_file(&path.join("a/run0/f.json"), 1.0, 0, None);
    fio_file(&path.join("b/run0/f.json"), 1.0, 7, None);
    let text = exits(path, 0, &WORDS).out;
    assert!(text.contains("b: 2 up, 0 down; from +∞ (e/log) to +∞ (f/log)\n"), "{text}");
    std::fs::remove_file(path.join("b/run0/f.json")).unwrap();
    // Without a run with 0, the table has no remark on such runs.
    let (_, text) = errors([1, 2, 3], [4, 5, 6]);
    assert!(!text.contains("of runs with 0"), "{text}");
}

#[test]
fn the_mean_of_all_cases_has_an_interval() {
    let case = |by: f64| [100.0, 101.0, 102.0].map(|run| run * by);
    let (base, more, less) = (case(1.0), case(1.2), case(1.1));
    let dir = sets(&[("x", &base, &more), ("y", &base, &less)]);
    let sheet = compared(dir.path(), &[]);
    let all = &sheet["geometric_means"][2]["changes"][1];
    assert_eq!((&all["cases"], &all["ci95_of"]), (&2.into(), &"runs".into()));
    let ([low, high], gain) = (interval(all), all["gain_pct"].as_f64().unwrap());
    let expected = ((1.2_f64 * 1.1).sqrt() - 1.0) * 100.0;
    assert!((gain - expected).abs() < 1e-9, "{all}");
    // The cases differ by 9 %, their runs by 1 %.
    assert!(low > gain - 3.0 && high < gain + 3.0 && low < gain && gain < high, "{all}");
    let text = exits(dir.path(), 0, &["compare", "a", "b"]).out;
    let told = format!("b: all cases +14.9% (+{low:.1}% to +{high:.1}% by the scatter of runs)\n");
    assert!(text.contains(&told), "{text}");
    // Single runs have the scatter of the cases alone; a single case has none.
    let single = sets(&[("x", &base[..1], &more[..1]), ("y", &base[..1], &less[..1])]);
    let all = &compared(single.path(), &[])["geometric_means"][2]["changes"][1];
    assert_eq!(all["ci95_of"], "cases");
    assert!(interval(all)[0] < 0.0, "{all}");
    let only = compared(single.path(), &["--only", "x/"]);
    let one = &only["geometric_means"][0]["changes"][1];
    assert!(one["ci95"].is_null() && one["ci95_of"].is_null(), "{one}");
}

#[test]
fn a_sentence_says_which_change_the_runs_would_show() {
    let steady = [100.0, 100.1, 100.2, 100.3];
    let noisy = [80.0, 100.0, 120.0, 100.0];
    let dir = sets(&[
        ("noisy", &noisy, &noisy.map(|run| run + 1.0)),
        ("steady", &steady, &[101.0, 101.1, 101.2, 101.3]),
    ]);
    let sheet = compared(dir.path(), &[]);
    let seen = [0, 1].map(|row: usize| {
        let change = &sheet["rows"][row]["changes"][1];
        let (seen, high) = (change["would_see_pct"].as_f64().unwrap(), interval(change)[1]);
        let gain = change["gain_pct"].as_f64().unwrap();
        // The upper end of the interval is the change plus the smallest change that the runs would
        // detect.
        assert!(((1.0 + gain / 100.0) * (1.0 + seen / 100.0) - 1.0 - high / 100.0).abs() < 1e-9);
        assert_eq!(change["significant"], gain > seen, "{change}");
        seen
    });
    assert!(seen[0] > 20.0 && seen[1] < 0.5, "{seen:?}");
    let text = exits(dir.path(), 0, &["compare", "a", "b"]).out;
    let told = format!(
        "runs of this number and this scatter would see a change of {:.1} % in the middle of the \
         cases, from {:.1} % (steady/log) to {:.1} % (noisy/log)\n",
        seen[0], seen[1], seen[0]
    );
    assert!(text.contains(&told), "{told} in {text}");
    let text = exits(dir.path(), 0, &["compare", "a", "b", "--only", "steady"]).out;
    assert!(text.contains(&format!("would see a change of {:.1} %\n", seen[1])), "{text}");
}

#[test]
fn fail_above_ends_with_5_for_a_case_that_is_surely_worse_by_more() {
    let base = [100.0, 101.0, 102.0];
    let slower = base.map(|run| run * 0.8);
    let noise = [60.0, 100.0, 130.0];
    let dir = sets(&[("slower", &base, &slower), ("noise", &base, &noise), ("one", &base, &[1.0])]);
    let of = |status: i32, more: &[&str]| {
        exits(dir.path(), status, &[&["compare", "a", "b"], more].concat())
    };
    let text = of(5, &["--fail-above", "10%"]).out;
    assert!(
        text.contains(
            "--fail-above 10: 1 case is worse by more than that: slower/log in b -20.0% ("
        ),
        "{text}"
    );
    assert!(text.contains("; 1 change has no interval and cannot count\n"), "{text}");
    let text = of(0, &["--fail-above", "25"]).out;
    assert!(text.contains("--fail-above 25: no case is worse by more than that"), "{text}");
    // The interval reaches from below -17 % to above it.
    of(0, &["--fail-above", "19.9"]);
    // With `--better lower` the change is a gain, and cases that `--only` hides are not judged.
    of(0, &["--fail-above", "10", "--better", "lower"]);
    of(0, &["--fail-above", "10", "--only", "noise"]);
    let sheet: Value = serde_json::from_str(&of(5, &["--fail-above", "10", "--json"]).out).unwrap();
    let worse = object!({"percent": 10.0, "worse": [{"case": "slower/log", "set": "b"}], "without_interval": 1});
    assert_eq!(sheet["fail_above"], worse);
    assert!(compared(dir.path(), &[])["fail_above"].is_null());
    // Where nothing can be judged, nothing passes.
    let text = of(1, &["--fail-above", "10", "--only", "one"]).err;
    assert!(text.contains("--fail-above 10: found no change with an interval"), "{text}");
    // Errors where there were none are worse by more than any percentage.
    for run in 0..3_u8 {
        let at = |set: &str| dir.path().join(format!("{set}/run{run}/errors.json"));
        fio_file(&at("a"), f64::from(run), 0, None);
        fio_file(&at("b"), f64::from(run), 5 + u64::from(run), None);
    }
    let words = ["--fail-above", "1000", "--metric", "total_err", "--only", "errors"];
    let text = of(5, &words).out;
    assert!(text.contains("errors/log in b from 0"), "{text}");
}

#[test]
fn a_page_goes_to_a_file_beside_the_table() {
    let runs = [100.0, 101.0, 102.0];
    let dir = sets(&[("x", &runs, &runs.map(|run| run * 2.0)), ("zero", &[0.0], &[5.0])]);
    let words = ["compare", "a", "b", "--report", "page.html"];
    let table = exits(dir.path(), 0, &words).out;
    assert_eq!(table, exits(dir.path(), 0, &words[..3]).out);
    let page = read_to_string(dir.path().join("page.html")).unwrap();
    assert_eq!(page, exits(dir.path(), 0, &["compare", "a", "b", "--html"]).out);
    assert!(page.contains("+100.0 %") && page.contains(">from 0</td>"), "{page}");
    let refused = exits(dir.path(), 3, &words).err;
    assert!(refused.contains("page.html: exists and stays as it is"), "{refused}");
    exits(dir.path(), 0, &[&words[..], &["--force"]].concat());
}
