//! Tests of `weft replay` and `--sweep`: output and exit status.

mod common;

use std::fs::write;
use std::path::Path;

use common::{exits, json};
use serde_json::json;
use tempfile::tempdir;

/// A trace in fio's format: 40 writes a millisecond apart, 20 reads, a flush, a trim.
fn iolog() -> String {
    let mut log = String::from("fio version 3 iolog\n0 /dev/md5 add\n0 /dev/md5 open\n");
    for n in 0..40 {
        log += &format!("{} /dev/md5 write {} 4096\n", n * 1000, n * 65_536);
    }
    for n in 0..20 {
        log += &format!("{} /dev/md5 read {} 8192\n", 40_000 + n * 500, n * 8192);
    }
    log + "50000 /dev/md5 sync 0 0\n50100 /dev/md5 trim 0 1048576\n50200 /dev/md5 close\n"
}

fn fixture(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../weft-lab/tests/fixture");
    std::fs::read(folder.join(name)).unwrap()
}

#[test]
fn every_request_of_a_trace_is_replayed_once_and_at_its_time() {
    let dir = tempdir().unwrap();
    write(dir.path().join("t.iolog"), iolog()).unwrap();
    let sheet = json(dir.path(), &["replay", "t.iolog", "--json"]);
    let trace = &sheet["weft"]["trace"];
    assert_eq!(trace["formats"], json!(["iolog3"]));
    assert_eq!(trace["requests"], 62);
    let job = &sheet["jobs"][0];
    let count = |way: &str| (job[way]["total_ios"].as_u64(), job[way]["io_bytes"].as_u64());
    assert_eq!(count("write"), (Some(40), Some(40 * 4096)));
    assert_eq!(count("read"), (Some(20), Some(20 * 8192)));
    assert_eq!(count("trim"), (Some(1), Some(1 << 20)));
    assert_eq!(job["sync"]["total_ios"], 1);
    assert_eq!(sheet["weft"]["requests"], 62);
    let took = job["job_runtime"].as_u64().unwrap();
    assert!((50..53).contains(&took), "as long as the trace: {took} ms");
    let slower = json(dir.path(), &["replay", "t.iolog", "--time-scale", "2", "--json"]);
    assert!((100..103).contains(&slower["jobs"][0]["job_runtime"].as_u64().unwrap()));
    let closed = json(dir.path(), &["replay", "t.iolog", "--depth", "8", "--json"]);
    assert!(closed["jobs"][0]["job_runtime"].as_u64().unwrap() < 30);
    assert_eq!(closed["weft"]["requests"], 62);
    // As text, the trace comes first.
    let text = exits(dir.path(), 0, &["replay", "t.iolog"]).out;
    assert!(
        text.starts_with("trace: 62 requests in 0.050 s, format iolog3\n  20 reads, 160 KiB"),
        "{text}"
    );
    assert!(text.contains("replayed at the trace's times\nt.iolog: (group 0): err=0"), "{text}");
}

#[test]
fn what_is_beyond_the_end_is_refused_wrapped_or_left_out() {
    let dir = tempdir().unwrap();
    write(dir.path().join("t.iolog"), iolog()).unwrap();
    let small =
        ["replay", "t.iolog", "--device", "null", "--member-size", "2M", "-c", "64K", "-n", "3"];
    let refused = exits(dir.path(), 2, &small);
    assert!(refused.err.contains("trace: found requests up to byte 2560000"), "{refused:?}");
    assert!(
        refused.err.contains("the size of the volume; --wrap, --clip or --divide"),
        "{refused:?}"
    );
    let run = |more: &str| json(dir.path(), &[&small[..], &[more, "--json"]].concat());
    let wrapped = run("--wrap");
    assert_eq!(wrapped["jobs"][0]["write"]["total_ios"], 40);
    let clipped = run("--clip");
    let left = clipped["jobs"][0]["write"]["total_ios"].as_u64().unwrap();
    let dropped = clipped["weft"]["changes"]["beyond_end"].as_u64().unwrap();
    assert!(dropped > 0 && left + dropped == 40, "{left} + {dropped}");
}

/// The work is per request: a gap of half a century is replayed at once, with its full length.
#[test]
fn a_gap_in_a_trace_costs_nothing() {
    let dir = tempdir().unwrap();
    let path = dir.path();
    for gap in [1000_u64, 10_000_000, 1 << 31] {
        std::fs::write(path.join("t"), format!("0,0,4096,R,0.0\n0,128,4096,r,{gap}\n")).unwrap();
        let sheet = json(path, &["replay", "--json", "t"]);
        let read = &sheet["jobs"][0]["read"];
        assert_eq!(read["total_ios"], 2, "{gap}: {sheet}");
        // fio's runtime is in whole milliseconds.
        assert!(read["runtime"].as_u64().unwrap() >= gap * 1000, "{gap}: {}", read["runtime"]);
    }
}

#[test]
fn a_request_longer_than_any_device_takes_is_refused_with_its_place() {
    let dir = tempdir().unwrap();
    let path = dir.path();
    let terabyte = 1_u64 << 40;
    for (name, line, place) in [
        ("spc", format!("0,0,{terabyte},R,0.0\n"), "t:1:5: Size"),
        ("fiu", "1 2 p 0 4294967295 R 8 0 d41d8cd98f00b204e9800998ecf8427e\n".into(), "t:1:9: "),
    ] {
        std::fs::write(path.join("t"), line).unwrap();
        let text = exits(path, 1, &["replay", "--format", name, "--wrap", "t"]).err;
        assert!(text.contains(place), "{text}");
        assert!(text.contains("expected a request of at most 256 MiB"), "{text}");
    }
    // The longest request completes, even at the end of slow disks.
    std::fs::write(path.join("t"), format!("0,2000000000,{},R,0.0\n", 256 << 20)).unwrap();
    exits(path, 0, &["replay", "--format", "spc", "--wrap", "--device", "hdd-2007-7200", "t"]);
}

#[test]
fn files_of_one_trace_are_merged_and_devices_lie_side_by_side() {
    let dir = tempdir().unwrap();
    for name in ["sda.blktrace.0", "sda.blktrace.1"] {
        write(dir.path().join(name), fixture(name)).unwrap();
    }
    let sheet = json(dir.path(), &["replay", "sda", "--json"]);
    assert_eq!(sheet["weft"]["trace"]["requests"], 8);
    let two = "7,R,0,4096,1000000\n9,W,4096,8192,1000100\n7,R,8192,4096,1000200\n";
    write(dir.path().join("two.csv"), two).unwrap();
    let words = ["replay", "two.csv", "--format", "alibaba", "--json"];
    let sheet = json(dir.path(), &words);
    assert_eq!(sheet["weft"]["trace"]["devices"].as_array().unwrap().len(), 2);
    assert_eq!(sheet["weft"]["requests"], 3);
    let only = json(dir.path(), &[&words[..], &["--only", "9"]].concat());
    assert_eq!(
        (&only["weft"]["requests"], &only["weft"]["changes"]["other_device"]),
        (&1.into(), &2.into())
    );
}

#[test]
fn a_trace_that_is_no_trace_is_told_with_its_place() {
    let dir = tempdir().unwrap();
    let mut cut = fixture("sda.blktrace.0");
    cut.truncate(cut.len() - 7);
    for (name, bytes) in [
        ("cut.blktrace.0", cut),
        ("empty.iolog", b"fio version 3 iolog\n0 /dev/md5 add\n".to_vec()),
        ("nothing", Vec::new()),
        ("wrong.iolog", b"fio version 3 iolog\n0 /dev/md5 write 0 x\n".to_vec()),
        ("letter.txt", b"Dear all,\n".to_vec()),
        ("good.iolog", iolog().into_bytes()),
    ] {
        write(dir.path().join(name), bytes).unwrap();
    }
    for (status, words, told) in [
        (1, &["cut.blktrace.0"][..], "cut.blktrace.0: record "),
        (1, &["empty.iolog"], "empty.iolog: found no request in 2 lines"),
        (1, &["nothing"], "nothing: trace format: found"),
        (1, &["wrong.iolog"], "wrong.iolog:2:20: length: found \"x\""),
        (1, &["letter.txt"], "letter.txt: trace format: found \"Dear"),
        (1, &["missing"], "missing: No such file"),
        (2, &[], "found no trace"),
        (2, &["good.iolog", "--format", "tape"], "found \"tape\", expected one of alibaba"),
        (2, &["good.iolog", "--only", "sdz"], "found \"sdz\", expected one of /dev/md5"),
        (2, &["good.iolog", "--time-scale", "0"], "expected 0.01 to 10000"),
        (2, &["good.iolog", "--depth", "0"], "--depth"),
        (2, &["good.iolog", "--align", "3K"], "expected a power of two"),
    ] {
        let text = exits(dir.path(), status, &[&["replay"], words].concat());
        assert!(text.err.contains(told), "{words:?}: {text:?}");
    }
}

#[test]
fn a_sweep_says_which_setting_is_best_and_whether_it_is_sure() {
    let dir = tempdir().unwrap();
    let job = "[4K]\ndirect=1\nioengine=libaio\niodepth=16\nbs=4k\nrw=randwrite\ntime_based\nruntime=50ms\n";
    write(dir.path().join("j.fio"), job).unwrap();
    let words =
        ["sim", "j.fio", "--sweep", "stripe_size=4K,64K", "--runs", "3", "--report", "page.html"];
    let text = exits(dir.path(), 0, &words).out;
    for told in ["4K, 3 runs each", "stripe_size", "best throughput: 4K, by ", "█", " ± "] {
        assert!(text.contains(told), "{told} in {text}");
    }
    assert!(!text.contains('\x1b'), "no colour where there is no terminal");
    let page = std::fs::read_to_string(dir.path().join("page.html")).unwrap();
    assert!(page.contains("Throughput by stripe_size") && page.contains("<svg"));
    let sheet = json(dir.path(), &[&words[..6], &["--json"]].concat());
    assert_eq!((&sheet["schema"], &sheet["runs"]), (&"weft.sweep/1".into(), &3.into()));
    let rows = sheet["jobs"][0]["settings"].as_array().unwrap();
    let rate = |row: usize| rows[row]["throughput_mb_s"]["value"].as_f64().unwrap();
    assert!(rate(0) > 3.0 * rate(1), "{rows:?}");
    let best = &sheet["jobs"][0]["best"][0];
    assert_eq!((&best["setting"], &best["level_with"]), (&"4K".into(), &json!([])));
    // Traces, parameters that are not knobs, and a grid.
    write(dir.path().join("t.iolog"), iolog()).unwrap();
    let grid =
        ["replay", "t.iolog", "--depth", "4", "--sweep", "level=5,6", "--sweep", "chunk=64K,512K"];
    let text = exits(dir.path(), 0, &grid).out;
    for told in ["level, chunk", "5, 64K", "6, 512K", "give --runs 3 or more"] {
        assert!(text.contains(told), "{told} in {text}");
    }
}

/// Settings that keep up answer as fast as the trace's requests arrive.
#[test]
fn settings_that_are_alike_have_no_best_one() {
    let dir = tempdir().unwrap();
    write(dir.path().join("t.iolog"), iolog()).unwrap();
    let words = ["replay", "t.iolog", "--sweep=stripe_size=4K,64K", "--report=page.html"];
    for (more, alike) in
        [(&["--time-scale", "1000"][..], true), (&["--depth", "16", "--force"], false)]
    {
        let text = exits(dir.path(), 0, &[&words[..], more].concat()).out;
        let page = std::fs::read_to_string(dir.path().join("page.html")).unwrap();
        assert!(page.contains("<h1>t.iolog</h1>"), "named once");
        for (told, as_told) in [
            (text.contains("throughput: all settings within 0."), alike),
            (text.contains("best throughput"), !alike),
            (page.contains("Throughput: all settings within 0."), alike),
            (page.contains("best throughput"), !alike),
        ] {
            assert_eq!(told, as_told, "{more:?}: {text}");
        }
    }
}

#[test]
fn a_sweep_that_makes_no_sense_is_a_usage_error() {
    let dir = tempdir().unwrap();
    write(dir.path().join("j.fio"), "[j]\nrw=write\nsize=1m\ndirect=1\n").unwrap();
    let many = format!("stripe_cache_size={}", vec!["256"; 5000].join(","));
    for (sweep, told) in [
        (&["stripe_size=4K,5K"][..], "stripe_size: found 5K"),
        (&["stripe_size"], "expected KNOB=A,B,…"),
        (&["stripe_size=4K,,"], "found an empty value"),
        (&["strip=1"], "strip: no such knob"),
        (&["level=5,6", "raid-devices=3"], "raid devices: found 3, expected 4"),
        (&["level=x"], "expected linear, 0, 1"),
        (&["device=floppy"], "found \"floppy\""),
        (&["rmw_level=0", "rmw_level=1"], "rmw_level is swept already"),
        (&[&many], "found 5000 combinations, expected at most 4096"),
    ] {
        let mut words = vec!["sim", "j.fio"];
        sweep.iter().for_each(|sweep| words.extend(["--sweep", sweep]));
        let text = exits(dir.path(), 2, &words);
        assert!(text.err.contains(told), "{sweep:?}: {text:?}");
        assert_eq!(text.out, "");
    }
}

/// Two processes: one issues eight blocks at a time, the other one.
fn two_processes() -> String {
    let mut log = String::from("fio version 3 iolog\n0 /dev/md5 add\n0 /dev/md5 open\n");
    for n in 0..400_u64 {
        for at in 0..8_u64 {
            let place = (n * 8 + at) * 1_048_576 % 900_000_000;
            log += &format!("{} /dev/md5 read {place} 4096 pid=7\n", n * 2500);
        }
        log += &format!("{} /dev/md5 read {} 4096 pid=9\n", n * 2500, 1_000_000_000 + n * 8192);
    }
    log + "1000100 /dev/md5 close\n"
}

#[test]
fn processes_of_a_trace_are_told_apart_with_their_shares() {
    let dir = tempdir().unwrap();
    write(dir.path().join("t.iolog"), two_processes()).unwrap();
    let words = ["replay", "t.iolog", "--by", "process"];
    let sheet = json(dir.path(), &[&words[..], &["--json"]].concat());
    let jobs = sheet["jobs"].as_array().unwrap();
    let told = |at: usize| (&jobs[at]["jobname"], &jobs[at]["read"]["total_ios"]);
    assert_eq!(jobs.len(), 2, "{sheet}");
    assert_eq!(told(0), (&json!("process (7)"), &json!(3200)));
    assert_eq!(told(1), (&json!("process (9)"), &json!(400)));
    let took = jobs[1]["job_runtime"].as_u64().unwrap();
    assert!((990..1100).contains(&took), "each has the trace's times: {took} ms");
    let sweep = ["--sweep", "scheduler=none,bfq", "--report", "page.html"];
    let text = exits(dir.path(), 0, &[&words[..], &sweep].concat()).out;
    assert!(text.contains("shares, of all bytes that were moved"), "{text}");
    assert!(text.contains("process (7)") && text.contains("88.9 %"), "{text}");
    let page = std::fs::read_to_string(dir.path().join("page.html")).unwrap();
    assert!(page.contains("Shares over time, bfq") && page.contains("process (9)"));
    // Without the option all requests are of one client.
    let one = json(dir.path(), &["replay", "t.iolog", "--json"]);
    assert_eq!(one["jobs"].as_array().unwrap().len(), 1);
    assert_eq!(one["jobs"][0]["read"]["total_ios"], 3600);
    // A trace of one device has one client; a trace may lack processes.
    let one = json(dir.path(), &["replay", "t.iolog", "--by", "device", "--json"]);
    assert_eq!(one["jobs"][0]["jobname"], "/dev/md5");
    write(dir.path().join("u.iolog"), iolog()).unwrap();
    let text = exits(dir.path(), 2, &["replay", "u.iolog", "--by", "process"]).err;
    assert!(text.contains("does not know processes; expected --by device"), "{text}");
}

/// The advice is given as create and serve commands, is reproducible, and respects fixed options.
#[test]
fn advice_is_one_line_with_figures_that_another_run_repeats() {
    let dir = tempdir().unwrap();
    write(dir.path().join("t.iolog"), iolog()).unwrap();
    let words = ["replay", "t.iolog", "--depth", "16", "--device", "hdd-2011-reduced", "-n", "4"];
    let advise = ["--set", "priority=fifo", "--advise=mb/s", "--runs", "2", "--seed", "5"];
    let advise = [&words[..], &advise].concat();
    let sheet = json(dir.path(), &[&advise[..], &["--json"]].concat());
    assert_eq!((&sheet["schema"], &sheet["goal"]), (&json!("weft.advice/1"), &json!("throughput")));
    let (create, serve) = (sheet["create"].as_str().unwrap(), sheet["serve"].as_str().unwrap());
    assert!(create.starts_with("weft create --level 5 --raid-devices 4 --chunk "), "{create}");
    assert!(serve.contains(" --set priority=fifo"), "given, and kept: {serve}");
    let names: Vec<&str> =
        sheet["steps"].as_array().unwrap().iter().map(|of| of["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"chunk") && names.contains(&"stripe_size"), "{names:?}");
    assert!(!names.contains(&"priority") && !names.contains(&"raid-devices"), "{names:?}");
    // create accepts its arguments.
    let options: Vec<&str> = create.split(' ').skip(1).filter(|word| *word != "MEMBER…").collect();
    let made = ["--member-size", "64M", "--dry-run", "a", "b", "c", "d"];
    exits(dir.path(), 0, &[&options[..], &made].concat());
    // A sweep of the same settings and seeds gives the same results, and sim accepts serve's
    // arguments.
    let chunk = create.split(' ').skip_while(|word| *word != "--chunk").nth(1).unwrap();
    let settings: Vec<&str> = serve.split(' ').skip(2).filter(|word| *word != "MEMBER…").collect();
    let again = ["--chunk", chunk, "--runs", "5", "--seed", "1000008", "--json"];
    let again = json(dir.path(), &[&words[..], &settings, &again].concat());
    assert_eq!(again["jobs"][0]["settings"][0]["throughput_mb_s"], sheet["value"]);
    // Untuned md equals --as md.
    let md = ["--as", "md", "--runs", "5", "--seed", "1000008", "--json"];
    let md = json(dir.path(), &[&words[..], &md].concat());
    assert_eq!(md["jobs"][0]["settings"][0]["throughput_mb_s"], sheet["against_md"]["value"]);
    // As text, the advice is the last line.
    let text = exits(dir.path(), 0, &advise).out;
    let last = text.lines().last().unwrap();
    let begin = format!("use this: {create}; {serve} (throughput ");
    assert!(last.starts_with(&begin) && last.contains(" against md untuned, "), "{text}");
    // It is better than the defaults, with its whole interval.
    assert_eq!(sheet["keep_defaults"], false);
    assert!(sheet["against_defaults"]["ci95"][0].as_f64().unwrap() > 0.0, "{sheet}");
    assert!(last.contains(" against the defaults, "), "{text}");
    for (words, told) in [
        (&["--level", "single", "--advise"][..], "--advise: found nothing to vary"),
        (&["--advise=iops"], "[possible values: p99, mb/s]"),
        (&["--advise", "--runs", "1"], "--runs: found 1, expected 2 or more"),
        (&["--advise", "--csv"], "cannot be used with"),
    ] {
        let text = exits(dir.path(), 2, &[&["replay", "t.iolog"], words].concat());
        assert!(text.err.contains(told), "{words:?}: {text:?}");
    }
}
