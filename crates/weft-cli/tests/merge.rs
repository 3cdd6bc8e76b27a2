//! Tests of sweeps by settings that run alone: `--list`, `--part` and `weft merge`.

mod common;

use std::fs::{read_to_string, write};
use std::path::Path;
use std::process::Command;

use common::{exits, json};
use tempfile::tempdir;

/// Two jobs that run together, so that each has a share.
const JOBS: &str = "\
[global]
direct=1
ioengine=libaio
iodepth=8
time_based
runtime=20ms
size=16m
[writes]
rw=randwrite
bs=4k
[it's mixed]
rw=randrw
bs=16k
";

/// Runs each line of `--list` with a shell, in reverse order. Returns the files of their outputs.
fn each_alone(dir: &Path, words: &[&str]) -> Vec<String> {
    let listed = exits(dir, 0, &[words, &["--list"]].concat()).out;
    let mut files = Vec::new();
    for (at, line) in listed.lines().enumerate().collect::<Vec<_>>().into_iter().rev() {
        let ran = Command::new("sh").args(["-c", line]).current_dir(dir).output().unwrap();
        assert!(ran.status.success(), "{line}: {ran:?}");
        files.push(format!("{at}.json"));
        write(dir.join(&files[files.len() - 1]), ran.stdout).unwrap();
    }
    files
}

/// Settings that ran alone, merged, are the sweep in every form, byte for byte.
fn merge_is_the_sweep(dir: &Path, words: &[&str], settings: usize) {
    let files = each_alone(dir, words);
    assert_eq!(files.len(), settings, "{words:?}");
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    for form in [&[][..], &["--json"], &["--csv"]] {
        let sweep = exits(dir, 0, &[words, form].concat()).out;
        assert!(sweep.len() > 200, "{sweep}");
        let merged = exits(dir, 0, &[&["merge"], &files[..], form].concat()).out;
        assert_eq!(merged, sweep, "{words:?} {form:?}");
    }
    // A page says how to repeat it, with its name.
    let page = |words: &[&str]| {
        exits(dir, 0, &[words, &["--report", "page.html", "--force"]].concat());
        read_to_string(dir.join("page.html")).unwrap()
    };
    let (sweep, merged) = (page(words), page(&[&["merge"], &files[..]].concat()));
    assert!(merged == sweep, "{words:?}: the pages differ");
}

#[test]
fn settings_that_ran_alone_are_merged_into_the_sweep() {
    let dir = tempdir().unwrap();
    write(dir.path().join("a job.fio"), JOBS).unwrap();
    let sweep = ["--sweep", "stripe_size=4K,64K,auto", "--sweep=raid-devices=4,5"];
    let words = [&["sim", "a job.fio", "--runs", "3", "--seed=7"][..], &sweep].concat();
    merge_is_the_sweep(dir.path(), &words, 6);
}

#[test]
fn a_sweep_without_a_knob_and_with_one_run_is_merged_too() {
    let dir = tempdir().unwrap();
    write(dir.path().join("j.fio"), JOBS).unwrap();
    merge_is_the_sweep(dir.path(), &["sim", "j.fio", "--runs", "2"], 1);
    let dir = tempdir().unwrap();
    write(dir.path().join("j.fio"), JOBS).unwrap();
    merge_is_the_sweep(dir.path(), &["sim", "j.fio", "--sweep", "level=1,5", "-n4"], 2);
}

/// Settings that are equal, knobs without effect and why, sizes of caches, and own drives.
#[test]
fn what_a_sweep_says_of_its_settings_is_merged_too() {
    let dir = tempdir().unwrap();
    let path = dir.path();
    write(path.join("j.fio"), JOBS).unwrap();
    write(path.join("mine.toml"), "base = 'ssd-nvme-dc-2019'\nflush_us = 5\n").unwrap();
    let words = ["sim", "j.fio", "--as", "md", "--sweep", "level=1,10,5"];
    let words = [&words[..], &["--sweep", "stripe_size=4K,64K", "--device=mine.toml"]].concat();
    merge_is_the_sweep(path, &words, 6);
    let page = read_to_string(path.join("page.html")).unwrap();
    for told in [
        "stripe cache, 4 MiB, but is 17 at least.",
        "the same as 1, 4K, bit for bit",
        "\nflush_us = 5</pre>",
        "--sweep level=1,10,5 --sweep stripe_size=4K,64K --report page.html</pre>",
    ] {
        assert!(page.contains(told), "{told} in {page}");
    }
    let words = ["sim", "j.fio", "-n4", "--sweep", "level=1,10", "--sweep=stripe_size=4K,64K"];
    merge_is_the_sweep(path, &words, 4);
    let text = exits(path, 0, &words).out;
    let reason = "bit for bit: raid1 has no stripe cache; raid10 has no stripe cache\n";
    assert!(text.contains(reason), "{text}");
}

#[test]
fn a_replay_is_merged_with_what_it_says_of_the_trace() {
    let dir = tempdir().unwrap();
    let mut log = String::from("fio version 3 iolog\n0 web add\n0 web open\n");
    for n in 0..200_u64 {
        log += &format!("{} web write {} 4096\n", n * 500, n * 7919 % 4096 * 4096);
    }
    write(dir.path().join("t.iolog"), log + "100001 web close\n").unwrap();
    let words = ["replay", "t.iolog", "--sweep", "scheduler=none,mq-deadline", "--runs=2"];
    merge_is_the_sweep(dir.path(), &words, 2);
}

#[test]
fn a_list_is_lines_for_a_shell_and_runs_nothing() {
    let dir = tempdir().unwrap();
    let long = JOBS.replace("20ms", "1000h");
    write(dir.path().join("it's.fio"), long).unwrap();
    let words = ["sim", "--sweep", "chunk=64K,512K", "it's.fio", "-n", "6", "--list"];
    let listed = exits(dir.path(), 0, &words).out;
    let lines: Vec<&str> = listed.lines().collect();
    assert_eq!(lines.len(), 2, "{listed}");
    assert!(
        lines[1].ends_with("sim --part=2/2 --sweep=chunk=512K 'it'\\''s.fio' -n 6"),
        "{listed}"
    );
}

#[test]
fn parts_that_are_no_sweep_are_refused() {
    let dir = tempdir().unwrap();
    write(dir.path().join("j.fio"), JOBS).unwrap();
    let words = ["sim", "j.fio", "--sweep", "stripe_size=4K,64K,auto"];
    let files = each_alone(dir.path(), &words);
    let [auto, large, small] = &files[..] else { panic!("{files:?}") };
    let whole = read_to_string(dir.path().join(small)).unwrap();
    write(dir.path().join("cut.json"), &whole[..whole.len() / 2]).unwrap();
    write(dir.path().join("empty.json"), "").unwrap();
    write(dir.path().join("planted.json"), whole.replacen("\"writes\"", "\"reads\"", 1)).unwrap();
    let other = ["sim", "j.fio", "--part=1/3", "--sweep=stripe_size=4K", "--seed=2"];
    write(dir.path().join("other.json"), exits(dir.path(), 0, &other).out).unwrap();
    let failed = ["sim", "j.fio", "--part=1/3", "--sweep=stripe_size=5K", "--json"];
    write(dir.path().join("failed.json"), exits(dir.path(), 2, &failed).out).unwrap();
    for (named, told) in [
        (&[auto.as_str(), small][..], "found 2 of 3 parts, expected all; run what is missing: 2"),
        (&[auto, large, "cut.json"], "cut.json: found no whole JSON"),
        (&[auto, large, "empty.json"], "empty.json: found nothing, expected what weft sim --part"),
        (&[auto, large, "other.json"], "other.json: arguments: found"),
        (&[auto, large, "failed.json"], "failed.json: found the error \"stripe_size: found 5K"),
        (&[auto, large, "planted.json"], "planted.json: jobs: found reads with 1 runs"),
        (&["absent.json"], "absent.json: No such file"),
        (&["j.fio"], "j.fio: found no whole JSON"),
    ] {
        let text = exits(dir.path(), 1, &[&["merge"], named].concat());
        assert!(text.err.contains(told), "{told:?} in {text:?}");
        assert_eq!(text.out, "");
    }
    // A part in more than one file, and several parts in one, are what a cluster may leave.
    let all: String =
        files.iter().map(|file| read_to_string(dir.path().join(file)).unwrap()).collect();
    write(dir.path().join("all.json"), all).unwrap();
    let merged = json(dir.path(), &["merge", "all.json", small, "--json"]);
    assert_eq!(merged["jobs"][0]["settings"].as_array().unwrap().len(), 3);
}

#[test]
fn a_part_is_one_setting() {
    let dir = tempdir().unwrap();
    write(dir.path().join("j.fio"), JOBS).unwrap();
    for (words, told) in [
        (
            &["--sweep=stripe_size=4K,64K", "--part=1/2"][..],
            "--part: found 2 settings, expected one",
        ),
        (&["--part=3/2"], "found \"3/2\", expected I/N"),
        (&["--list", "--csv"], "cannot be used with"),
        (&["--part=1/2", "--report=a.html"], "cannot be used with"),
        (&["--sweep=stripe_size=4K,5K", "--list"], "stripe_size: found 5K"),
    ] {
        let text = exits(dir.path(), 2, &[&["sim", "j.fio"], words].concat());
        assert!(text.err.contains(told), "{told:?} in {text:?}");
        assert_eq!(text.out, "");
    }
}
