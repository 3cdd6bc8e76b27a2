//! Tests of `weft sim`: output and exit status.

mod common;

use std::fs::write;

use common::{exits, json};
use serde_json::Value;
use tempfile::tempdir;

/// Two kinds of direct writes, as in the measurement of patch 004, but short.
const DIRECT: &str = "\
[global]
direct=1
ioengine=libaio
iodepth=16
time_based
runtime=200ms
[4K randwrite]
bs=4KB
rw=randwrite
numjobs=2
group_reporting
[1MB write]
stonewall
bs=1MB
rw=write
";

/// Checks statement 28 for each direction of each job that transferred data. Returns their number.
fn adds_up(sheet: &Value) -> usize {
    let mut directions = 0;
    for job in sheet["jobs"].as_array().unwrap() {
        for way in ["read", "write", "trim"] {
            let of = &job[way];
            let number = |name: &str| of[name].as_f64().unwrap();
            if number("total_ios") == 0.0 {
                continue;
            }
            directions += 1;
            let moved = number("bw_bytes") * number("runtime") / 1000.0;
            assert!((moved / number("io_bytes") - 1.0).abs() < 0.01, "{way}: {of}");
            let rate = number("iops") * number("runtime") / 1000.0;
            assert!((rate / number("total_ios") - 1.0).abs() < 0.01, "{way}: {of}");
            assert_eq!(of["clat_ns"]["N"], of["total_ios"]);
            assert!(of["clat_ns"]["percentile"]["99.000000"].as_u64().unwrap() > 0);
        }
    }
    directions
}

#[test]
fn a_job_file_becomes_fios_json_and_a_seed_is_a_run() {
    let dir = tempdir().unwrap();
    write(dir.path().join("j.fio"), DIRECT).unwrap();
    let words = ["sim", "j.fio", "--device", "ssd-sata-dc-2019", "--json"];
    let sheet = json(dir.path(), &words);
    assert!(sheet["fio version"].as_str().unwrap().starts_with("fio-3.33-compat weft-"));
    assert_eq!(adds_up(&sheet), 2, "two jobs, one of them of two clones");
    assert_eq!(sheet["jobs"][0]["jobname"], "4K randwrite");
    assert_eq!(sheet["jobs"][1]["groupid"], 1);
    let weft = &sheet["weft"];
    assert_eq!(weft["members"].as_array().unwrap().len(), 4);
    assert_eq!((&weft["stop"], &weft["requests_failed"]), (&"done".into(), &0.into()));
    let written = sheet["jobs"][0]["write"]["io_bytes"].as_u64().unwrap()
        + sheet["jobs"][1]["write"]["io_bytes"].as_u64().unwrap();
    assert!(weft["client_bytes_written"].as_u64().unwrap() >= written);
    assert_eq!(json(dir.path(), &words), sheet, "the same seed is the same run");
    let other = json(dir.path(), &[&words[..], &["--seed", "2"]].concat());
    assert_ne!(other["jobs"][0], sheet["jobs"][0]);
    // Output as text.
    let text = exits(dir.path(), 0, &words[..4]).out;
    for told in ["4K randwrite: (group 0): err=0, 200 ms", "write: IOPS=", "99.9 %", "raid5 of 4"] {
        assert!(text.contains(told), "{told} in {text}");
    }
}

/// Every level is simulated: members write as many bytes per byte of client data as the level has
/// copies; parity comes on top of one.
#[test]
fn members_write_as_often_as_the_level_has_copies() {
    let dir = tempdir().unwrap();
    write(dir.path().join("j.fio"), DIRECT.replace("200ms", "20ms")).unwrap();
    let levels = [("linear", 1), ("0", 1), ("1", 4), ("10", 2), ("5", 0), ("6", 0)];
    for (level, copies) in levels {
        let words = ["sim", "j.fio", "--level", level, "--member-size", "64M", "--json"];
        let sheet = json(dir.path(), &words);
        assert_eq!(adds_up(&sheet), 2, "{level}");
        let weft = &sheet["weft"];
        let members = weft["members"].as_array().unwrap().iter();
        let written: u64 = members.map(|of| of["bytes_written"].as_u64().unwrap()).sum();
        let bytes = weft["client_bytes_written"].as_u64().unwrap();
        match copies {
            0 => assert!(written > bytes, "{level}: parity is written"),
            // Superblocks are written as well.
            _ => assert!((copies * bytes..copies * bytes + 16384).contains(&written), "{level}"),
        }
    }
    let swept = ["sim", "j.fio", "--sweep", "level=1,10,5", "--member-size", "64M"];
    assert!(exits(dir.path(), 0, &swept).out.contains("best throughput"));
}

/// Options of `weft sim`, with the expected error text.
const USAGE_ERRORS: &[(&[&str], &str)] = &[
    (
        &["numjob.fio"],
        "numjob.fio:2: [1MB write]: option numjob: not one that weft reads; did you mean numjobs?",
    ),
    (&["flow.fio"], "flow.fio:3: [j]: flow=2 is not simulated: jobs are not paced by the progress"),
    (
        &["net.fio"],
        "4 errors:\n  net.fio:2: [global]: ioengine=net is not simulated: no I/O of blocks",
    ),
    (&["net.fio"], "\n  net.fio:3: [global]: option port: not one that weft reads\n"),
    (
        &["net.fio"],
        "\n  net.fio:5: [j]: option sise: not one that weft reads; did you mean size?\n",
    ),
    (&["net.fio"], "\n  net.fio:7: [k]: exitall is not simulated: no job ends another\n"),
    (&["odd.fio"], "[j]: bs: found 512 bytes, expected whole pages of 4096 bytes, or direct=1"),
    (&["large.fio"], "[j]: size: found 109951162777600 bytes"),
    (
        &["range.fio"],
        "range.fio:3: [j]: sync_file_range=write:8 is not simulated: fsync and fdatasync",
    ),
    (&["empty.fio"], "empty.fio:1: found the end of the file, expected a section [NAME]"),
    (&["bytes.fio"], "bytes.fio:3: found bytes that are no text, expected a job file"),
    (&["/dev/zero"], "/dev/zero:1: found more than 16 MiB"),
    (&["many.fio"], "[j]: numjobs: found 1000000 jobs in all, expected at most 4096"),
    (&["good.fio", "-n", "65"], "65 is not in 2..=64"),
    (&["good.fio", "--sweep", "raid-devices=4,1"], "raid-devices=1: expected a number, 2..=64"),
    (&["good.fio", "--report", "none/page.html"], "there is no folder"),
    (&["good.fio", "--report", "."], "it is a folder"),
    (&[], "found no job file"),
    (&["good.fio", "--device", "floppy"], "found \"floppy\", expected one of hdd-2007-7200"),
    (
        &["good.fio", "--device", "null", "--device", "null", "-n", "3"],
        "found 2 models for 3 members",
    ),
    (&["good.fio", "--device", "sda.toml"], "sda.toml: No such file"),
    (&["good.fio", "--device", "/dev/zero.toml"], "/dev/zero.toml: "),
    (&["good.fio", "--device", "folder.toml"], "folder.toml: found no regular file"),
    (&["good.fio", "--device", "odd.toml"], "odd.toml: rpm: found \"fast\", expected a whole"),
    (&["good.fio", "--device", "raw.toml"], "raw.toml: stream did not contain valid UTF-8"),
    (&["good.fio", "--device", "key.toml"], "key.toml: seek_leas_ms: found, expected only"),
    (&["good.fio", "--device", "key.toml"], "; did you mean seek_least_ms?"),
    (&["good.fio", "--device", "bad.toml"], "bad.toml: not TOML: TOML parse error at line 2"),
    (&["good.fio", "--drive", "rpm"], "--drive rpm on ssd-sata-dc-2019: expected KEY=VALUE"),
    (&["good.fio", "--drive", "rpm=1"], "--drive rpm=1 on ssd-sata-dc-2019: rpm: found, exp"),
    (&["good.fio", "--sweep", "drive.dies=8,none"], "dies: found \"none\", expected a whole"),
    (&["good.fio", "--level", "3"], "--level"),
    (&["good.fio", "-n", "1"], "1 is not in 2..=64"),
    (&["good.fio", "--chunk", "3K"], "chunk: found 3072 bytes"),
    (&["good.fio", "--set", "stripe_size=5K"], "stripe_size: found 5K, expected a power of two"),
    (&["good.fio", "--set", "strip=1"], "strip: no such knob"),
    (&["good.fio", "--set", "stripe_size"], "expected KNOB=VALUE"),
    (&["good.fio", "--member-size", "9T"], "member size: found"),
    (&["good.fio", "--faults=fire"], "faults: found \"fire\", expected fail=1@5s"),
    (&["good.fio", "--faults=fail=7@1s"], "found member 7"),
    (&["good.fio", "--costs", "free"], "costs: found \"free\""),
    (&["good.fio", "--write-back", "4K"], "found 4K, expected 1M to 1T, or off"),
    (&["good.fio", "--sweep", "write-back=off,x"], "--sweep write-back=x: size: found \"x\""),
    (&["good.fio", "--sync", "rebuild"], "found \"rebuild\", expected one of resync, recover, "),
    (
        &["good.fio", "--sweep", "sync=none,x"],
        "--sweep sync=x: found \"x\", expected one of resync",
    ),
    (
        &["good.fio", "--level", "0", "--sync", "check"],
        "sync: found raid0, expected a level with r",
    ),
    (&["good.fio", "--kernel", "5.4"], "found \"5.4\", expected one of 2.6.24, 3.1, "),
    (&["good.fio", "--results", "."], ".: found something in it, expected an empty or a new"),
];

#[test]
fn what_is_not_understood_is_a_usage_error_that_names_it() {
    let dir = tempdir().unwrap();
    for (name, text) in [
        ("numjob.fio", "[1MB write]\nnumjob=2\n"),
        ("flow.fio", "[j]\nrw=write\nflow=2\n"),
        ("net.fio", "[global]\nioengine=net\nport=1\n[j]\nsise=1m\n[k]\nexitall\n"),
        ("odd.fio", "[j]\nrw=write\nbs=512\nsize=1m\n"),
        ("large.fio", "[j]\nrw=write\nsize=100t\ndirect=1\n"),
        ("range.fio", "[j]\nrw=write\nsync_file_range=write:8\n"),
        ("empty.fio", "# nothing\n"),
        ("good.fio", "[j]\nrw=write\nsize=1m\n"),
        ("endless.fio", "[j]\ninclude /dev/zero\n"),
        ("many.fio", "[j]\nrw=write\nsize=1m\nnumjobs=1000000\n"),
    ] {
        write(dir.path().join(name), text).unwrap();
    }
    std::fs::create_dir(dir.path().join("folder.toml")).unwrap();
    for (name, text) in [
        ("odd.toml", &b"base = 'hdd-2007-7200'\nrpm = 'fast'\n"[..]),
        ("key.toml", b"base = 'hdd-2007-7200'\nseek_leas_ms = 1\n"),
        ("bad.toml", b"kind = 'hdd'\nrpm\n"),
        ("raw.toml", b"\xff\xfe"),
    ] {
        write(dir.path().join(name), text).unwrap();
    }
    write(dir.path().join("bytes.fio"), b"# a job\n[j]\nrw=\xff\xfe\n").unwrap();
    for (words, told) in USAGE_ERRORS {
        let text = exits(dir.path(), 2, &[&["sim"], *words].concat());
        assert!(text.err.contains(told), "{words:?}: {text:?}");
        assert_eq!(text.out, "", "{words:?}");
    }
    let both = exits(dir.path(), 2, &["sim", "good.fio", "--csv", "--json"]);
    assert!(both.out.contains("cannot be used with"), "{both:?}");
    // An unreadable file is not a usage error.
    for (name, told) in [
        ("none.fio", "none.fio: No such file"),
        (".", ".: Is a directory"),
        ("endless.fio", "endless.fio:2: /dev/zero: found more than 16 MiB"),
    ] {
        let text = exits(dir.path(), 1, &["sim", name]);
        assert!(text.err.contains(told) && text.err.contains("; name a job file"), "{text:?}");
    }
}

/// Each random block occurs once, also on the largest disks.
#[test]
fn a_plain_random_job_runs_on_disks_of_20_tb() {
    let dir = tempdir().unwrap();
    let job = "[r]\nrw=randwrite\nbs=4k\ndirect=1\ntime_based\nruntime=100ms\n";
    write(dir.path().join("j.fio"), job).unwrap();
    for members in ["4", "12"] {
        let words = ["sim", "j.fio", "--device", "hdd-2022-20tb", "-n", members];
        let text = exits(dir.path(), 0, &words).out;
        assert!(text.contains("r: (group 0): err=0"), "{text}");
    }
}

#[test]
fn what_means_nothing_here_is_left_out_and_told_once() {
    let dir = tempdir().unwrap();
    let path = dir.path();
    let text = |more: &str| format!("[global]\nrw=write\nsize=1m\n{more}[a]\n[b]\nstonewall\n");
    write(path.join("plain.fio"), text("")).unwrap();
    let more = "thread\nverify=md5\nunlink=1\ncpus_allowed=0\nname=x ; a comment\n";
    write(path.join("more.fio"), text(more)).unwrap();
    let of = |job: &str| exits(path, 0, &["sim", job, "--member-size", "8M"]);
    let (plain, more) = (of("plain.fio"), of("more.fio"));
    assert_eq!(plain.out, more.out);
    let told: Vec<&str> = more.err.lines().filter(|line| line.contains("left out")).collect();
    assert_eq!(told.len(), 3, "{told:?}");
    assert_eq!(told[0], "weft: left out: thread, cpus_allowed: of no meaning to a simulation");
    assert!(told[1].starts_with("weft: left out: verify: a simulated volume stores no bytes"));
    assert!(told[2].starts_with("weft: left out: unlink: jobs have no files"));
    assert!(!plain.err.contains("left out"));
}

#[test]
fn a_job_that_only_the_volume_bounds_is_told() {
    let dir = tempdir().unwrap();
    let path = dir.path();
    let global = "[global]\nrw=write\nbs=1m\ndirect=1\n";
    write(path.join("all.fio"), format!("{global}[all of it]\n")).unwrap();
    let bounds = "[a]\nsize=1m\n[b]\nio_size=1m\n[c]\ntime_based\nruntime=10ms\n";
    write(path.join("bounded.fio"), format!("{global}{bounds}")).unwrap();
    let told = |job: &str| exits(path, 0, &["sim", job, "--member-size", "8M"]).err;
    let text = told("all.fio");
    assert!(text.contains("all of it: goes over the whole volume"), "{text}");
    assert!(!told("bounded.fio").contains("goes over the whole volume"));
}

/// The old page stays, and no other file is left behind.
#[test]
fn an_interrupted_comparison_leaves_the_old_page() {
    let dir = tempdir().unwrap();
    let job = "[r]\nrw=randrw\ndirect=1\niodepth=8\nioengine=libaio\ntime_based\nruntime=100000\n";
    write(dir.path().join("j.fio"), job).unwrap();
    let old = format!("{}old", weft_lab::report::BEGIN);
    write(dir.path().join("page.html"), &old).unwrap();
    let words = ["sim", "j.fio", "--sweep=stripe_size=4K,64K", "--report=page.html", "--force"];
    let status = common::interrupted(dir.path(), &words, 3);
    assert_eq!(status, Some(130));
    assert_eq!(common::names(dir.path()), ["j.fio", "page.html"]);
    assert_eq!(std::fs::read_to_string(dir.path().join("page.html")).unwrap(), old);
}

#[test]
fn models_are_listed() {
    let dir = tempdir().unwrap();
    let text = exits(dir.path(), 0, &["sim", "--device", "list"]).out;
    assert_eq!(text.lines().count(), weft_sim::drive::models().len(), "{text}");
    assert!(text.contains("hdd-2007-7200            disk of 2007"), "{text}");
}

/// The figures are those of the JSON, in named columns; a sweep has a column for each knob.
#[test]
fn csv_has_the_figures_of_json_in_named_columns() {
    let dir = tempdir().unwrap();
    write(dir.path().join("j.fio"), DIRECT.replace("[1MB write]", "[1MB, \"large\"]")).unwrap();
    let table = |words: &[&str]| -> Vec<std::collections::BTreeMap<String, String>> {
        let text = exits(dir.path(), 0, words).out;
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        reader.deserialize().map(|row| row.unwrap()).collect()
    };
    let words = ["sim", "j.fio", "--device", "null"];
    let sheet = json(dir.path(), &[&words[..], &["--json"]].concat());
    let rows = table(&[&words[..], &["--csv"]].concat());
    assert_eq!(rows.len(), 2, "{rows:?}");
    for (row, job) in rows.iter().zip(sheet["jobs"].as_array().unwrap()) {
        let write = &job["write"];
        assert_eq!((&*row["job"], &*row["direction"]), (job["jobname"].as_str().unwrap(), "write"));
        for (column, value) in [
            ("requests", &write["total_ios"]),
            ("bytes", &write["io_bytes"]),
            ("clat_max_ns", &write["clat_ns"]["max"]),
            ("clat_p99_ns", &write["clat_ns"]["percentile"]["99.000000"]),
        ] {
            assert_eq!(row[column], value.to_string(), "{column}");
        }
    }
    let swept = ["--sweep", "stripe_size=4K,auto", "--sweep", "chunk=64K,128K", "--runs", "2"];
    let words = [&words[..], &swept].concat();
    let sheet = json(dir.path(), &[&words[..], &["--json"]].concat());
    let rows = table(&[&words[..], &["--csv"]].concat());
    assert_eq!(rows.len(), 8, "two jobs by four settings");
    assert_eq!(
        (&*rows[7]["stripe_size"], &*rows[7]["chunk"], &*rows[7]["runs"]),
        ("auto", "128K", "2")
    );
    let last = &sheet["jobs"][1]["settings"][3]["throughput_mb_s"];
    for (column, value) in [
        ("throughput_mb_s", &last["value"]),
        ("throughput_mb_s_low", &last["ci95"][0]),
        ("throughput_mb_s_high", &last["ci95"][1]),
    ] {
        // serde_json parses the last digit of a number quickly, not exactly.
        let (found, expected) = (rows[7][column].parse::<f64>().unwrap(), value.as_f64().unwrap());
        assert!((found / expected - 1.0).abs() < 1e-12, "{column}: {found}, {expected}");
    }
}

/// A user's own text describes a drive, and its keys are in the result; a change applies to one
/// key.
#[test]
fn a_drive_of_ones_own_is_simulated_and_changed_key_by_key() {
    let dir = tempdir().unwrap();
    let path = dir.path();
    let job = "[r]\nrw=randread\nbs=4k\ndirect=1\nsize=64m\nruntime=1\ntime_based\n";
    write(path.join("j.fio"), job).unwrap();
    write(path.join("mine.toml"), "base = 'hdd-2007-7200'\nrpm = 15000\n").unwrap();
    let of = |more: &[&str]| {
        let sheet = json(path, &[&["sim", "j.fio", "--json", "--level", "0"], more].concat());
        let rate = sheet["jobs"][0]["read"]["iops"].as_f64().unwrap();
        (rate, sheet["weft"].clone())
    };
    let (plain, _) = of(&["--device", "hdd-2007-7200"]);
    let (mine, weft) = of(&["--device", "mine.toml"]);
    let (changed, other) = of(&["--device", "hdd-2007-7200", "--drive", "rpm=15000"]);
    assert!(mine > plain * 1.1, "{mine} against {plain}");
    assert_eq!(changed.to_bits(), mine.to_bits(), "the same drive by either way");
    assert_eq!(weft["members"][0]["model"], "mine.toml");
    assert_eq!(other["members"][0]["model"], "hdd-2007-7200 rpm=15000");
    let text = weft["drives"]["mine.toml"].as_str().unwrap();
    assert!(text.contains("rpm = 15000\n") && text.contains("heads = "), "{text}");
    // The printed text can be read again and gives the same drive.
    write(path.join("again.toml"), text).unwrap();
    assert_eq!(of(&["--device", "again.toml"]).0.to_bits(), mine.to_bits());
    // A sweep also accepts keys, and drives of both kinds.
    let words = ["sim", "j.fio", "--level", "0", "--device", "mine.toml"];
    let swept = exits(path, 0, &[&words[..], &["--sweep", "drive.rpm=5400,15000"]].concat()).out;
    assert!(swept.contains("drive.rpm") && swept.contains("best throughput: 15000"), "{swept}");
    let swept = exits(path, 0, &[&words[..], &["--sweep", "device=mine.toml,null"]].concat()).out;
    assert!(swept.contains("best throughput: null"), "{swept}");
}

#[test]
fn a_member_that_fails_is_reported_and_one_too_many_fails_the_run() {
    let dir = tempdir().unwrap();
    let job = "[r]\nrw=randrw\ndirect=1\niodepth=8\nioengine=libaio\ntime_based\nruntime=200ms\n";
    write(dir.path().join("j.fio"), job).unwrap();
    let text = exits(dir.path(), 0, &["sim", "j.fio", "--faults=fail=1@50ms"]).out;
    for told in ["faults: member 1 fails at 0.050 s", "s: member 1 failed", " computed from other"]
    {
        assert!(text.contains(told), "{told} in {text}");
    }
    let two = exits(dir.path(), 1, &["sim", "j.fio", "--faults=fail=1@50ms,fail=2@90ms"]);
    assert!(two.err.contains("requests failed, the first before 0."), "{two:?}");
    assert!(two.out.contains("err=5"), "{two:?}");
    let sheet = json(dir.path(), &["sim", "j.fio", "--json", "--faults"]);
    assert!(sheet["weft"]["faults"].as_array().unwrap().len() >= 2, "{sheet}");
}

#[test]
fn a_sweep_of_schedulers_says_what_share_each_job_got() {
    let dir = tempdir().unwrap();
    let job = "[global]\ndirect=1\nrw=randread\nbs=4k\nioengine=libaio\niodepth=64\ntime_based\n\
               runtime=2s\n[heavy]\nprioclass=2\nprio=0\n[light]\nprioclass=2\nprio=4\n";
    write(dir.path().join("j.fio"), job).unwrap();
    let words = ["sim", "j.fio", "--level", "0", "-n", "2", "--device", "ssd-sata-2012-mlc"];
    let sweep = ["--sweep", "scheduler=none,mq-deadline,bfq", "--report", "page.html"];
    let words = [&words[..], &sweep].concat();
    let text = exits(dir.path(), 0, &words).out;
    assert!(text.contains("shares, of all bytes that were moved"), "{text}");
    let page = std::fs::read_to_string(dir.path().join("page.html")).unwrap();
    assert!(page.contains("Shares over time, mq-deadline"));
    let sheet = json(dir.path(), &[&words[..], &["--json", "--force"]].concat());
    let share = |job: usize, setting: usize| {
        sheet["jobs"][job]["settings"][setting]["share"].as_f64().unwrap()
    };
    for setting in 0..3 {
        assert!((share(0, setting) + share(1, setting) - 1.0).abs() < 1e-9, "{sheet}");
    }
    assert!((share(0, 0) - 0.5).abs() < 0.02, "no job is preferred: {sheet}");
    assert!((share(0, 1) - 0.5).abs() < 0.02, "mq-deadline has classes and no weights: {sheet}");
    assert!(share(0, 2) > 0.6, "twice the weight: {sheet}");
}

/// A drive alone reads and writes exactly the requested bytes.
#[test]
fn a_single_drive_is_simulated_as_it_is() {
    let dir = tempdir().unwrap();
    let job = "[one]\nrw=randwrite\nbs=4k\niodepth=4\ndirect=1\nsize=256m\nio_size=4m\n";
    write(dir.path().join("j.fio"), job).unwrap();
    let words = ["sim", "j.fio", "--level", "single", "--device", "ssd-sata-2012-mlc"];
    let text = exits(dir.path(), 0, &words).out;
    assert!(text.contains("volume: a single member, "), "{text}");
    let sheet = json(dir.path(), &[&words[..], &["--json"]].concat());
    assert_eq!(sheet["weft"]["volume"]["level"], "single");
    let members = sheet["weft"]["members"].as_array().unwrap();
    assert_eq!(members.len(), 1);
    assert_eq!(members[0]["bytes_written"], 4 << 20, "{sheet}");
    assert_eq!(members[0]["bytes_read"], 0, "no parity is read: {sheet}");
    let sweep = [&words[..], &["--sweep", "level=single,1", "--json"]].concat();
    let swept = json(dir.path(), &sweep);
    let settings = swept["jobs"][0]["settings"].as_array().unwrap();
    assert_eq!((settings.len(), &settings[0]["setting"]), (2, &"single".into()), "{swept}");
    for (more, named) in [
        (&["-n", "3"][..], "found 3 members, expected one"),
        (&["--device", "ssd-sata-2012-mlc"], "found 2 members, expected one"),
    ] {
        let text = exits(dir.path(), 2, &[&words[..], more].concat()).err;
        assert!(text.contains(named), "{text}");
    }
    let text = exits(dir.path(), 2, &["sim", "j.fio", "--level", "7"]).err;
    assert!(text.contains("7") && text.contains("or single"), "{text}");
}

#[test]
fn a_sync_beside_a_job_and_a_trace_is_told_with_what_it_cost() {
    let dir = tempdir().unwrap();
    let job = "[r]\nrw=randread\nbs=4k\niodepth=4\nioengine=libaio\ndirect=1\nsize=64m\n\
               time_based\nruntime=2\n";
    write(dir.path().join("j.fio"), job).unwrap();
    let words = ["sim", "j.fio", "--device", "hdd-2011-7200", "--member-size", "1G", "--as", "md"];
    let recover = ["--sync", "recover", "--set", "sync_speed_min=100000"];
    let text = exits(dir.path(), 0, &[&words[..], &recover].concat()).out;
    assert!(text.contains("recover: ") && text.contains(" of 1022 MiB of each member"), "{text}");
    assert!(text.contains("r: ") && text.contains(" MB/s with it, "), "{text}");
    assert!(text.contains("rebuilding") && !text.contains("failed"), "{text}");
    let found = json(dir.path(), &[&words[..], &recover, &["--json"]].concat());
    let sync = &found["weft"]["sync"];
    assert_eq!((&sync["action"], &sync["finished"]), (&"recover".into(), &false.into()));
    let rate = |of: &str| sync["jobs"][0][of]["bytes_per_second"].as_f64().unwrap();
    assert!(rate("with") < 0.95 * rate("without"), "{sync}");
    // `none` runs no sync.
    assert!(json(dir.path(), &[&words[..], &["--json"]].concat())["weft"]["sync"].is_null());
    let sweep = [&words[..], &["--sweep", "sync=none,recover,check"]].concat();
    let text = exits(dir.path(), 0, &sweep).out;
    assert!(text.contains("  check  ") && text.contains("best throughput: none"), "{text}");
    let trace = "fio version 2 iolog\nvol add\nvol open\nvol read 0 65536\nvol close\n";
    write(dir.path().join("t.log"), trace).unwrap();
    let replay = ["replay", "t.log", "--device", "hdd-2011-7200", "--sync", "resync"];
    let text = exits(dir.path(), 0, &replay).out;
    assert!(text.contains("resync: 0 B of 878.38 GiB of each member"), "{text}");
}

#[test]
fn sizes_of_a_write_back_cache_are_swept_and_their_runs_are_compared() {
    let dir = tempdir().unwrap();
    let job = "[w]\nrw=randwrite\nbs=4k\niodepth=8\nioengine=libaio\ndirect=1\nsize=64m\nio_size=4m\n\
               end_fsync=1\n";
    write(dir.path().join("j.fio"), job).unwrap();
    let words = ["sim", "j.fio", "--device", "hdd-2011-7200", "--member-size", "64M"];
    let text = exits(dir.path(), 0, &[&words[..], &["--write-back", "16M"]].concat()).out;
    let told =
        "write-back cache of 16 MiB: 4 MiB written back, 0 B dirty at the end, 4 MiB at most";
    assert!(text.contains(told), "{text}");
    let sweep = ["--sweep", "write-back=off,1M,16M", "--runs", "2", "--results", "kept"];
    let text = exits(dir.path(), 0, &[&words[..], &sweep].concat()).out;
    assert!(text.contains("best throughput: 16M"), "{text}");
    let files = |setting: &str| common::names(&dir.path().join("kept").join(setting));
    assert_eq!(files("."), ["16M", "1M", "off"]);
    assert_eq!(files("16M"), ["run1.json", "run2.json"]);
    let compared = json(dir.path(), &["compare", "kept/off", "kept/16M", "--json"]);
    assert!(compared.to_string().contains("\"w\""), "{compared}");
    // A single setting has no folder of its own.
    let again = ["--write-back", "16M", "--results", "one"];
    exits(dir.path(), 0, &[&words[..], &again].concat());
    assert_eq!(common::names(&dir.path().join("one")), ["run1.json"]);
    let run = |path: &str| std::fs::read(dir.path().join(path)).unwrap();
    assert_eq!(run("one/run1.json"), run("kept/16M/run1.json"), "the same seed is the same run");
}
