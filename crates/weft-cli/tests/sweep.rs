//! Tests of sweeps: equal memory of stripe caches, settings without effect, how to repeat a page.

mod common;

use std::fs::{read_to_string, write};
use std::path::Path;

use common::{exits, json};
use serde_json::{Value, json as object};
use tempfile::tempdir;

const JOB: &str = "[w]\nrw=randwrite\nbs=4k\ndirect=1\nioengine=libaio\niodepth=16\nsize=64m\n\
                   time_based\nruntime=20ms\n";

/// JSON of a sweep of the job.
fn swept(dir: &Path, more: &[&str]) -> Value {
    write(dir.join("j.fio"), JOB).unwrap();
    json(dir, &[&["sim", "j.fio", "--device", "ssd-nvme-dc-2019", "--json"], more].concat())
}

/// Setting, MiB and stripes of the stripe cache, for each setting of a sweep.
fn caches(sheet: &Value) -> Vec<(String, Value, Value)> {
    let settings = sheet["jobs"][0]["settings"].as_array().unwrap().iter();
    let of = |setting: &Value| {
        let cache = &setting["stripe_cache"];
        let name = setting["setting"].as_str().unwrap().to_owned();
        (name, object!(cache["bytes"].as_u64().map(|of| of >> 20)), cache["stripes"].clone())
    };
    settings.map(of).collect()
}

/// Stripes of any size have the memory of the default, unless their number is given.
#[test]
fn stripe_sizes_are_compared_with_equal_memory() {
    let dir = tempdir().unwrap();
    let path = dir.path();
    let cache = |name: &str, mib: u64, stripes: u64| (name.to_owned(), mib.into(), stripes.into());
    let sizes = ["--sweep", "stripe_size=4K,64K,auto"];
    let sheet = swept(path, &sizes);
    let equal = [cache("4K", 8, 512), cache("64K", 8, 32), cache("auto", 8, 512)];
    assert_eq!(caches(&sheet), equal);
    for (more, expected) in [
        (&["--set", "stripe_cache_size=256"][..], [(4, 256), (64, 256), (8, 512)]),
        (&["--set", "stripe_cache_bytes=16M"], [(16, 1024), (16, 64), (16, 1024)]),
        // A given stripe size that is swept is not the default; 17 stripes are the fewest.
        (&["--set", "stripe_size=64K"], [(8, 512), (8, 32), (8, 512)]),
        (&["--as", "md"], [(4, 256), (4, 17), (4, 256)]),
    ] {
        let found = caches(&swept(path, &[&sizes[..], more].concat()));
        let expected: Vec<_> = equal
            .iter()
            .zip(expected)
            .map(|((name, ..), (mib, stripes))| cache(name, mib, stripes))
            .collect();
        assert_eq!(found, expected, "{more:?}");
    }
    // The rule also applies if other options are valid only with the swept values.
    let fails = ["--faults=fail=5@1ms", "--sweep", "raid-devices=6,8"];
    assert_eq!(caches(&swept(path, &fails)).len(), 2);
    // With more members the memory stays the same; if the number of stripes itself is swept, the
    // cache has that number.
    let members = ["--set", "stripe_size=4K", "--sweep", "raid-devices=4,8"];
    assert_eq!(caches(&swept(path, &members)), [cache("4", 4, 256), cache("8", 4, 128)]);
    let stripes = ["--set", "stripe_size=4K", "--sweep", "stripe_cache_size=256,512"];
    assert_eq!(caches(&swept(path, &stripes)), [cache("256", 4, 256), cache("512", 8, 512)]);
    // The setting alone, with its stripes given, is the same run; with the default number of
    // stripes it is another one.
    let alone = |stripes: &str| {
        let set = format!("stripe_cache_size={stripes}");
        let sheet = swept(path, &["--set", "stripe_size=64K", "--set", &set, "--runs", "1"]);
        sheet["jobs"][0]["settings"][0]["throughput_mb_s"].clone()
    };
    let of_sweep = &sheet["jobs"][0]["settings"][1]["throughput_mb_s"];
    assert_eq!(&alone("32"), of_sweep);
    assert_ne!(&alone("256"), of_sweep);
}

#[test]
fn the_table_has_the_cache_and_says_where_its_size_comes_from() {
    let dir = tempdir().unwrap();
    write(dir.path().join("j.fio"), JOB).unwrap();
    let words = ["sim", "j.fio", "--sweep", "stripe_size=4K,64K"];
    let text = |more: &[&str]| exits(dir.path(), 0, &[&words[..], more].concat()).out;
    let equal = text(&["-n", "6"]);
    assert!(equal.contains("     cache  ") && equal.contains("  7.87 MiB  "), "{equal}");
    let rule = "stripe_cache_size, which is not given, follows from the memory of the default \
                stripe cache, ";
    assert!(equal.contains(&format!("{rule}8 MiB\n")), "{equal}");
    let md = text(&["--as", "md"]);
    assert!(md.contains(&format!("{rule}4 MiB, but is 17 at least\n")), "{md}");
    let given = text(&["--set", "stripe_cache_size=100"]);
    assert!(given.contains("  25 MiB  ") && !given.contains("follows from"), "{given}");
    let bytes = text(&["--set", "stripe_cache_bytes=16M"]);
    assert!(bytes.contains("not given, follows from stripe_cache_bytes\n"), "{bytes}");
    // Equal caches that nothing changed are not mentioned.
    let words = ["sim", "j.fio", "--sweep", "priority=stream,fifo"];
    let priority = exits(dir.path(), 0, &words).out;
    assert!(!priority.contains("cache"), "{priority}");
}

#[test]
fn a_knob_that_changes_nothing_is_told_with_the_reason() {
    let dir = tempdir().unwrap();
    let of = |more: &[&str]| {
        let sheet = swept(dir.path(), more);
        let settings = sheet["jobs"][0]["settings"].as_array().unwrap();
        let same: Vec<Value> = settings.iter().map(|of| of["same_as"].clone()).collect();
        (sheet["without_effect"].clone(), same)
    };
    let none = || Value::Null;
    let (without, same) = of(&["--level", "1", "--sweep", "stripe_size=4K,64K,auto"]);
    let reason = object!([{"knob": "stripe_size", "reason": "raid1 has no stripe cache"}]);
    assert_eq!((without, same), (reason, vec![none(), "4K".into(), "4K".into()]));
    for (more, knob, reason) in [
        (&["--level", "1", "--sweep", "chunk=64K,512K"][..], "chunk", "raid1 has no chunks"),
        (&["--sweep", "slice_idle=4,8"], "slice_idle", "it is a knob of scheduler=bfq"),
        (
            &["--sweep", "dirty_throttle=weft,none"],
            "dirty_throttle",
            "it is a knob of the write-back cache, which is off",
        ),
        (&["--sweep", "sync_pace=md,idle"], "sync_pace", "it is a knob of a sync, and none runs"),
        (
            &["--sweep", "stripe_cache_size=256,512"],
            "stripe_cache_size",
            "with stripe_size=auto the size is stripe_cache_bytes",
        ),
        // It could have an effect, and has none on this load.
        (&["--sweep", "member_timeout=0,10"], "member_timeout", ""),
    ] {
        let (without, same) = of(&[more, &["--runs", "2"]].concat());
        assert_eq!(without, object!([{"knob": knob, "reason": reason}]), "{more:?}");
        assert!(same[0].is_null() && same[1].is_string(), "{more:?}: {same:?}");
    }
    // A knob with an effect is not marked, and neither is one with an effect on some levels only;
    // the settings without effect are.
    assert_eq!(of(&["--sweep", "stripe_size=4K,64K"]), (object!([]), vec![none(), none()]));
    let (without, same) = of(&["--sweep", "level=1,5", "--sweep", "stripe_size=4K,64K"]);
    assert_eq!((without, same), (object!([]), vec![none(), "1, 4K".into(), none(), none()]));
    // A single value of a knob is no sweep of it.
    let (without, _) = of(&["--level", "1", "--sweep", "stripe_size=4K"]);
    assert_eq!(without, object!([]));
    let words = ["sim", "j.fio", "--level", "1", "--sweep", "stripe_size=4K,64K"];
    let text = exits(dir.path(), 0, &words).out;
    assert!(text.contains("stripe_size changes nothing here, bit for bit: raid1 has no"), "{text}");
    assert!(text.lines().any(|line| line.starts_with("  64K ") && line.ends_with("  = 4K")));
}

#[test]
fn a_page_says_how_to_repeat_it() {
    let dir = tempdir().unwrap();
    let path = dir.path();
    write(path.join("a job.fio"), JOB).unwrap();
    write(path.join("mine.toml"), "base = 'ssd-nvme-dc-2019'\nflush_us = 5\n").unwrap();
    let words = ["sim", "a job.fio", "--device", "mine.toml", "--seed", "7", "--runs", "2"];
    let sweep = ["--sweep", "stripe_size=4K,64K", "--report", "page.html"];
    exits(path, 0, &[&words[..], &sweep].concat());
    let page = read_to_string(path.join("page.html")).unwrap();
    let (facts, rest) = page.split_once("</dl>").unwrap();
    for (name, fact) in [
        ("Level", "raid5"),
        ("Members", "4"),
        ("Drives", "mine.toml"),
        ("Chunk", "64 KiB"),
        ("Stripe cache", "8 MiB, 512 stripes; 8 MiB, 32 stripes"),
        ("Seed", "7"),
        ("Runs of each setting", "2"),
    ] {
        assert!(facts.contains(&format!("<dt>{name}</dt><dd>{fact}</dd>")), "{name}: {facts}");
    }
    let command = "<pre>weft sim 'a job.fio' --device mine.toml --seed 7 --runs 2 \
                   --sweep stripe_size=4K,64K --report page.html</pre>";
    assert!(rest.contains(command), "{rest}");
    assert!(rest.contains("<pre>[w]\nrw=randwrite\n"), "{rest}");
    assert!(rest.contains("\nflush_us = 5</pre>"), "{rest}");
    // Its command gives the same page, and a trace has its hash there.
    let again = [&words[..], &sweep, &["--force"]].concat();
    exits(path, 0, &again);
    let same = read_to_string(path.join("page.html")).unwrap();
    assert_eq!(same.replace(" --force</pre>", "</pre>"), page);
    let trace = "fio version 2 iolog\nvol add\nvol open\nvol write 0 65536\nvol close\n";
    write(path.join("t.log"), trace).unwrap();
    exits(path, 0, &["replay", "t.log", "--report", "trace.html"]);
    let page = read_to_string(path.join("trace.html")).unwrap();
    let hash = format!("<dt>t.log</dt><dd>{} bytes, SHA-256 ", trace.len());
    assert!(page.contains(&hash), "{page}");
    assert!(page.contains("<pre>weft replay t.log --report trace.html</pre>"), "{page}");
}

/// Random reads of a RAID 5 do not depend on anything that is searched.
#[test]
fn advice_says_to_keep_the_defaults_where_nothing_is_better() {
    let dir = tempdir().unwrap();
    let job =
        "[r]\nrw=randread\nbs=4k\ndirect=1\nioengine=libaio\niodepth=8\nsize=64m\nio_size=2m\n";
    write(dir.path().join("j.fio"), job).unwrap();
    let words = ["sim", "j.fio", "--device", "ssd-nvme-dc-2019", "-n", "4", "--chunk", "64K"];
    let words = [&words[..], &["--advise", "--runs", "2"]].concat();
    let text = exits(dir.path(), 0, &words).out;
    let last = text.lines().last().unwrap();
    assert!(last.starts_with("keep the defaults; nothing that was tried is better ("), "{text}");
    assert!(last.contains(" against md untuned, by 5 other seeds)"), "{text}");
    let sheet = json(dir.path(), &[&words[..], &["--json"]].concat());
    assert_eq!((&sheet["keep_defaults"], &sheet["against_defaults"]), (&true.into(), &Value::Null));
    assert_eq!(sheet["serve"], "weft serve MEMBER…");
    // The page has the same line, every value that was tried, and how to repeat it.
    exits(dir.path(), 0, &[&words[..], &["--report", "page.html"]].concat());
    let page = read_to_string(dir.path().join("page.html")).unwrap();
    assert!(page.contains("Keep the defaults; nothing that was tried is better ("), "{page}");
    for told in ["99 % latency by stripe_size", ">auto (kept)</", ">65536</", "<dt>Seed</dt>"] {
        assert!(page.contains(told), "{told} in {page}");
    }
    let command = "--chunk 64K --advise --runs 2 --report page.html</pre>";
    assert!(page.contains(command) && page.contains("<pre>[r]\nrw=randread\n"), "{page}");
}
