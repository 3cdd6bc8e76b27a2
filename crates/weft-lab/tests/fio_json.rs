//! Tests of results in fio's JSON: keys, order and units of fio 3.33.

use serde_json::Value;
use weft_lab::fio_json::{Header, JobResult, document};
use weft_lab::job::generate::{Generator, Io};
use weft_lab::job::{Direction, Job, ParseOptions, parse_text};
use weft_units::{Bytes, Span};

fn jobs(text: &str) -> Vec<Job> {
    let options = ParseOptions {
        environment: &|_| None,
        include: &|name, _| Err(name.to_owned()),
        extensions: &[],
    };
    // fio itself ran the job with its null engine, which weft refuses.
    parse_text("t.fio", &text.replace("ioengine=null\n", ""), &options).unwrap()
}

/// Runs a clone on a disk that takes 100 µs for a request and 1 µs to submit it, one at a time.
fn run(job: &Job, clone: u32) -> JobResult {
    let mut result = JobResult::new(job);
    let mut now = 0;
    for io in Generator::new(job, clone, Bytes::mib(1), 1).unwrap() {
        now += 101_000;
        match io {
            Io::DataSync | Io::Sync => result.syncs.record(Span(101_000)),
            Io::Transfer { direction, length, .. } => {
                let direction = result.direction(direction);
                direction.record(length, Span(1_000), Span(100_000));
                direction.runtime = Span(now);
                result.on_depth(1);
                result.on_submits(1, 1);
                result.on_completes(1, 1);
            }
        }
    }
    for direction in &mut result.directions {
        direction.bandwidth = vec![4e6, 5e6];
        direction.iops = vec![900.0, 1100.0];
    }
    result.runtime = Span(now);
    result
}

fn told(results: &[JobResult]) -> Value {
    let header = Header {
        weft_version: "0.1.0".to_owned(),
        timestamp_ms: 1_700_000_000_123,
        time: "Tue Nov 14 22:13:20 2023".to_owned(),
        global_options: [("ioengine", "null"), ("size", "1m"), ("bs", "4k")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec(),
        weft: serde_json::json!({"seed": 1}),
    };
    let text = serde_json::to_string_pretty(&document(&header, results)).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Every key with its parent keys; a list is represented by its first item.
fn keys(value: &Value, above: &str, into: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                into.push(format!("{above}/{key}"));
                keys(value, &format!("{above}/{key}"), into);
            }
        }
        Value::Array(items) => {
            if let Some(first) = items.first() {
                keys(first, &format!("{above}[]"), into);
            }
        }
        Value::Bool(_) | Value::Null | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn the_keys_are_those_of_fio() {
    let job = &jobs(include_str!("fixture/fio_json.fio"))[0];
    let json = told(&[run(job, 0)]);
    let mut ours = Vec::new();
    keys(&json, "", &mut ours);
    ours.retain(|key| !key.starts_with("/weft") && key != "/disk_util");
    ours.sort_unstable();
    let mut theirs: Vec<&str> = include_str!("fixture/fio_json_keys.txt").lines().collect();
    theirs.sort_unstable();
    assert_eq!(ours, theirs);
    assert!(json["fio version"].as_str().unwrap().starts_with("fio-"));
    assert_eq!(json["weft"]["seed"], 1);
}

#[test]
fn keys_stand_in_the_order_of_fio() {
    let results = [run(&jobs(include_str!("fixture/fio_json.fio"))[0], 0)];
    let header = Header {
        weft_version: String::new(),
        timestamp_ms: 0,
        time: String::new(),
        global_options: Vec::new(),
        weft: Value::Null,
    };
    let text = serde_json::to_string(&document(&header, &results)).unwrap();
    // Keys of a job, each of which occurs at most once before the next.
    let order = include_str!("fixture/fio_json_keys.txt").lines();
    let names =
        order.filter_map(|key| key.strip_prefix("/jobs[]/")).filter(|key| !key.contains('/'));
    let mut rest = &text[text.find("\"jobs\"").unwrap()..];
    for name in names {
        let at =
            rest.find(&format!("\"{name}\":")).unwrap_or_else(|| panic!("{name} comes earlier"));
        rest = &rest[at..];
    }
}

#[test]
fn experiments_28_bandwidth_times_runtime_is_bytes() {
    let text = "[global]\nsize=1m\n[a]\nrw=randrw\nbs=4k\n[b]\nrw=write\nbs=3k\nfsync=4\n[c]\nrw=trim\nio_size=4k\n";
    let results: Vec<_> = jobs(text).iter().map(|job| run(job, 0)).collect();
    let json = told(&results);
    let mut checked = 0;
    for job in json["jobs"].as_array().unwrap() {
        for name in ["read", "write", "trim"] {
            let part = &job[name];
            let number = |key: &str| part[key].as_f64().unwrap();
            let bytes = number("io_bytes");
            if bytes > 0.0 {
                let again = number("bw_bytes") * number("runtime") / 1000.0;
                assert!((again - bytes).abs() <= bytes / 100.0, "{name}: {part}");
                assert!((number("bw") - number("bw_bytes") / 1024.0).abs() <= 1.0);
                assert_eq!(number("io_kbytes"), (bytes / 1024.0).floor());
                assert_eq!(number("total_ios"), part["lat_ns"]["N"].as_f64().unwrap());
                checked += 1;
            }
        }
    }
    assert_eq!(checked, 4);
    let write = &json["jobs"][1];
    assert_eq!(write["write"]["total_ios"], 341);
    assert_eq!(write["sync"]["total_ios"], 85);
}

#[test]
fn latencies_and_depths_fall_into_the_buckets_of_fio() {
    let job =
        &jobs("[a]\nrw=write\nbs=4k\nsize=64k\npercentile_list=99.9:50\nlat_percentiles=1\n")[0];
    let mut result = JobResult::new(job);
    for (ns, outstanding) in [
        (1, 1),
        (2, 2),
        (999, 3),
        (1_000, 63),
        (99_999, 64),
        (100_000, 1000),
        (1_999_999, 0),
        (2_000_000_000, 8),
    ] {
        result.direction(Direction::Write).record(Bytes(4096), Span::ZERO, Span(ns));
        result.on_depth(outstanding);
    }
    for size in [0, 1, 4, 5, 33, 64, 65, 9] {
        result.on_submits(size, 1);
    }
    let job = &told(&[result])["jobs"][0];
    let eighth = 12.5;
    for (group, name, expected) in [
        ("latency_ns", "2", eighth),
        ("latency_ns", "4", eighth),
        ("latency_ns", "1000", eighth),
        ("latency_us", "2", eighth),
        ("latency_us", "100", eighth),
        ("latency_us", "250", eighth),
        ("latency_ms", "2", eighth),
        ("latency_ms", ">=2000", eighth),
        ("iodepth_level", "1", 2.0 * eighth),
        ("iodepth_level", "2", 2.0 * eighth),
        ("iodepth_level", "32", eighth),
        ("iodepth_level", ">=64", 2.0 * eighth),
        ("iodepth_submit", "0", eighth),
        ("iodepth_submit", "4", 2.0 * eighth),
        ("iodepth_submit", "8", eighth),
        ("iodepth_submit", "64", 2.0 * eighth),
        ("iodepth_submit", ">=64", eighth),
    ] {
        assert_eq!(job[group][name], expected, "{group} {name}");
    }
    let percentiles = |key: &str| job["write"][key]["percentile"].as_object().unwrap().len();
    assert_eq!((percentiles("clat_ns"), percentiles("lat_ns")), (2, 2));
    assert!(job["write"]["clat_ns"]["percentile"]["50.000000"].as_u64().unwrap() >= 1000);
}

#[test]
fn clones_that_are_reported_together_add_up() {
    let job = &jobs("[a]\nrw=randwrite\nbs=4k\nsize=64k\nnumjobs=2\n")[0];
    let (first, second) = (run(job, 0), run(job, 1));
    let mut both = first.clone();
    both.merge(&second);
    let json = told(&[both]);
    let write = &json["jobs"][0]["write"];
    assert_eq!(
        (&write["total_ios"], &write["io_bytes"]),
        (&Value::from(32), &Value::from(131_072))
    );
    assert_eq!(write["iops_mean"], 2000.0);
    assert_eq!(write["bw_samples"], 2);
    assert_eq!(write["clat_ns"]["mean"], 100_000.0);
}
