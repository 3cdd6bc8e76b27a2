//! Tests of `weft compare`: the mail's own tables, repeats, formats, errors.

mod common;

use std::fs::{create_dir_all, write};
use std::path::Path;
use std::process::Command;

use common::{command, exits, json};
use serde_json::{Value, json as object};
use tempfile::{TempDir, tempdir};

const CSV: &str = include_str!("../../../fixtures/compare/mail-001.csv");
const MAIL: &str = include_str!("../../../fixtures/compare/mail-001.txt");

/// Rows of a published table: case, vanilla, change as printed, IO-less.
fn published(table: &str) -> Vec<[&'static str; 4]> {
    let rows = CSV.lines().skip(1).map(|line| line.split(',').collect::<Vec<&str>>());
    let of_table = rows.filter(|row| row[0] == table);
    of_table.map(|row| <[&str; 4]>::try_from(&row[1..]).unwrap()).collect()
}

/// Creates a run folder with this value of `nr_written` at its end.
fn run_folder(path: &Path, nr_written: &str) {
    create_dir_all(path).unwrap();
    let text = format!("nr_free_pages 81234\nnr_dirtied 9\nnr_written {nr_written}\npgpgin 1\n");
    write(path.join("vmstat-end"), text).unwrap();
}

/// Creates the run folders of the mail's own tables.
fn folders_of_the_mail() -> TempDir {
    let dir = tempdir().unwrap();
    for [case, vanilla, _, ioless] in ["jbod", "single"].into_iter().flat_map(published) {
        // Kernels report less memory than the machine has.
        let name = case.replace("-16384M-", "-15984M-").replace("-4096M-", "-2942M-");
        let name = name.strip_suffix('X').unwrap();
        for (kernel, count) in [("vanilla+", vanilla), ("bgthresh3+", ioless)] {
            run_folder(&dir.path().join(format!("{name}3.1.0-rc4-{kernel}")), count);
        }
    }
    dir
}

/// Runs a command of the mail, with weft in place of its script.
fn as_in_the_mail(dir: &Path, line: &str) -> String {
    let weft = command(dir, &["compare"]);
    let program = weft.get_program().to_str().unwrap().to_owned();
    let line = line.replace("$ ./compare.rb", &format!("'{program}' compare"));
    let output = Command::new("sh").args(["-c", &line]).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{line}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

#[test]
fn the_tables_of_the_mail_come_out_of_its_run_folders_to_the_digit() {
    let dir = folders_of_the_mail();
    let mut lines = MAIL.lines().peekable();
    let mut tables = 0;
    while let Some(line) = lines.next() {
        let mut mail = Vec::new();
        while let Some(row) = lines.next_if(|line| !line.starts_with('$')) {
            mail.push(row);
        }
        let printed = as_in_the_mail(dir.path(), line);
        let (table, rest) = printed.split_once("\n\n").expect("a table, then its remarks");
        assert_eq!(
            table.lines().map(words).collect::<Vec<_>>(),
            mail.iter().map(|row| words(row)).collect::<Vec<_>>()
        );
        assert!(rest.contains("geometric mean, all cases"), "{rest}");
        tables += 1;
    }
    assert_eq!(tables, 2);
    // One page less in one folder changes the table.
    let folder = "thresh=1M/xfs-1dd-4k-8p-2942M-1M:10-3.1.0-rc4-vanilla+";
    run_folder(&dir.path().join(folder), "2537480");
    let printed = as_in_the_mail(dir.path(), MAIL.lines().rfind(|l| l.starts_with('$')).unwrap());
    assert!(printed.contains("2537480") && !printed.contains("2537481"), "{printed}");
}

#[test]
fn columns_stand_where_the_script_of_the_mail_put_them() {
    let dir = folders_of_the_mail();
    let printed = as_in_the_mail(dir.path(), MAIL.lines().next().unwrap());
    let mut expected = vec![
        "      3.1.0-rc4-vanilla+      3.1.0-rc4-bgthresh3+".to_owned(),
        "------------------------  ------------------------".to_owned(),
    ];
    for [case, vanilla, change, ioless] in published("jbod") {
        expected.push(format!("{vanilla:>24}  {change:>11} {ioless:>12}  {case}"));
    }
    assert_eq!(printed.lines().take(12).collect::<Vec<_>>(), expected);
    let means = "                               +16.3%     10 cases  geometric mean, all cases";
    assert!(printed.lines().any(|line| line == means), "{printed}");
    let single = as_in_the_mail(dir.path(), "$ ./compare.rb thresh*/*vanilla+ thresh*/*bgthresh3+");
    assert!(single.contains("+9.1%     28 cases  geometric mean, all cases"), "{single}");
    assert!(single.contains("21 up, 7 down; from -4.0% (thresh=100M/ext4-1dd-"), "{single}");
}

#[test]
fn folders_below_an_argument_are_a_set_whatever_they_are_called() {
    let dir = tempdir().unwrap();
    for [case, vanilla, _, ioless] in published("earlier") {
        run_folder(&dir.path().join("vanilla").join(case), vanilla);
        run_folder(&dir.path().join("IO-less").join(case), ioless);
    }
    let printed = exits(dir.path(), 0, &["compare", "vanilla/", "IO-less"]).out;
    assert!(printed.starts_with(&format!("{:>24}  {:>24}\n", "vanilla", "IO-less")), "{printed}");
    for [case, vanilla, change, ioless] in published("earlier") {
        let row = format!("{vanilla:>24}  {change:>11} {ioless:>12}  {case}");
        assert!(printed.lines().any(|line| line == row), "{row} in {printed}");
    }
    assert!(printed.contains("-19.6%      4 cases"), "{printed}");
    // If each set has folders of one kernel, the kernel distinguishes the sets, not the cases.
    for (set, kernel, count) in [("old", "3.0", "100"), ("new", "3.1-rc4", "120")] {
        let name = format!("{set}/thresh=1M/xfs-1dd-4k-8p-2942M-1M:10-{kernel}");
        run_folder(&dir.path().join(name), count);
    }
    let printed = exits(dir.path(), 0, &["compare", "old", "new"]).out;
    assert!(printed.contains("  thresh=1M/xfs-1dd-4k-8p-4096M-1M:10-X\n"), "{printed}");
    // One folder with the runs of all kernels is split by a field of their names.
    let mail = folders_of_the_mail();
    let printed =
        exits(mail.path(), 0, &["compare", ".", "--by", "kernel", "--base", "3.1.0-rc4-vanilla+"]);
    assert!(printed.out.contains("geometric mean, thresh=400M-300M"), "{printed:?}");
    assert!(printed.out.contains("     38 cases  geometric mean, all cases"), "{printed:?}");
    let words =
        ["compare", ".", "--by", "fs", "--group", "thresh", "--only", "thresh=8M", "--json"];
    let sheet = json(mail.path(), &words);
    let names: Vec<&str> =
        sheet["sets"].as_array().unwrap().iter().map(|set| set["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["ext4", "xfs"]);
    assert_eq!(sheet["rows"].as_array().unwrap().len(), 6);
    assert!(sheet["rows"].as_array().unwrap().iter().all(|row| row["group"] == "8M"));
}

#[test]
fn a_missing_cell_is_shown_and_rows_are_sorted_and_filtered() {
    let dir = tempdir().unwrap();
    let cases = [("a/x", "100", Some("150")), ("a/y", "300", Some("270")), ("b/z", "200", None)];
    for (case, before, after) in cases {
        run_folder(&dir.path().join("before").join(case), before);
        if let Some(after) = after {
            run_folder(&dir.path().join("after").join(case), after);
        }
    }
    run_folder(&dir.path().join("after/b/zero"), "0");
    run_folder(&dir.path().join("before/b/zero"), "5");
    let cases = |more: &[&str]| -> Vec<String> {
        let words = [&["compare", "before", "after", "--json"], more].concat();
        let sheet = json(dir.path(), &words);
        let rows = sheet["rows"].as_array().unwrap().iter();
        rows.map(|row| row["case"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(cases(&[]), ["a/x", "a/y", "b/z", "b/zero"]);
    assert_eq!(cases(&["--reverse"]), ["b/zero", "b/z", "a/y", "a/x"]);
    assert_eq!(cases(&["--sort", "change"])[..3], ["b/zero", "a/y", "a/x"]);
    assert_eq!(cases(&["--sort", "value"]), ["b/zero", "a/x", "b/z", "a/y"]);
    assert_eq!(cases(&["--common"]), ["a/x", "a/y", "b/zero"]);
    assert_eq!(cases(&["--at-least", "20%"]), ["a/x", "b/zero"]);
    assert_eq!(cases(&["--only", "/y", "--only", "/z"]), ["a/y", "b/z", "b/zero"]);
    let printed = exits(dir.path(), 0, &["compare", "before", "after"]).out;
    assert!(
        printed.contains("                     200                         -  b/z\n"),
        "{printed}"
    );
    // The mail's script had no change to 0.
    assert!(
        printed.contains("                       5      -100.0%            0  b/zero\n"),
        "{printed}"
    );
    assert!(printed.contains("\n1 cell is missing (-)\n"), "{printed}");
    let words = ["compare", "before", "after", "--at-least", "101"];
    let refused = exits(dir.path(), 2, &words).err;
    assert!(refused.contains("--at-least 101: found no case, expected one of the 4"), "{refused}");
}

/// Output of fio with one job.
fn fio(bytes: u64, latency: u64) -> Value {
    let write = object!({
        "io_bytes": bytes * 2, "bw_bytes": bytes, "bw": bytes / 1024, "iops": bytes as f64 / 4096.0,
        "total_ios": bytes / 2048,
        "clat_ns": {"mean": latency, "percentile": {"50.000000": latency, "99.900000": latency * 3},
            "bins": {"1": 2}},
    });
    let read = object!({"io_bytes": 0, "bw_bytes": 0, "iops": 0.0, "total_ios": 0});
    let job = object!({"jobname": "log", "error": 0, "job options": {"bs": "4k"}, "read": read, "write": write});
    object!({"fio version": "fio-3.33", "jobs": [job]})
}

fn fio_file(path: &Path, bytes: u64, latency: u64) {
    create_dir_all(path.parent().unwrap()).unwrap();
    // fio may print notes before the JSON.
    let text = format!(
        "note: both iodepth >= 1 and synchronous I/O engine are selected\n{}\n",
        fio(bytes, latency)
    );
    write(path, text).unwrap();
}

#[test]
fn repeats_have_a_spread_and_only_a_change_beyond_it_has_a_mark() {
    let dir = tempdir().unwrap();
    let scatter: [u64; 4] = [0, 2, 4, 6];
    for (run, more) in scatter.into_iter().enumerate() {
        let at = |set: &str, file: &str| dir.path().join(format!("{set}/run{run}/{file}.json"));
        fio_file(&at("old", "big"), 1_000_000 + more * 1000, 50);
        fio_file(&at("new", "big"), 1_200_000 + more * 1000, 40 + more);
        fio_file(&at("old", "same"), 1_000_000 + more * 40_000, 50 + more);
        fio_file(&at("new", "same"), 1_010_000 + (6 - more) * 40_000, 50 + more);
    }
    write(dir.path().join("old/package.json"), "{\"name\": \"something else\"}").unwrap();
    let sheet = json(dir.path(), &["compare", "old", "new", "--json"]);
    assert_eq!(
        (&sheet["schema"], &sheet["metric"]),
        (&"weft.compare/1".into(), &"bw_bytes".into())
    );
    assert_eq!(sheet["sets"][0], object!({"name": "old", "runs": 8}));
    let [big, same] = [0, 1].map(|row| &sheet["rows"][row]);
    assert_eq!((&big["case"], &same["case"]), (&"big/log".into(), &"same/log".into()));
    assert_eq!(big["cells"][0]["mean"], 1_003_000.0);
    assert_eq!(big["cells"][1]["values"].as_array().unwrap().len(), 4);
    let change = &big["changes"][1];
    let gain = change["gain_pct"].as_f64().unwrap();
    // The ratio of geometric means, which is near that of the arithmetic ones: 200/10.03 %.
    assert!((gain - 200.0 / 10.03).abs() < 1e-3, "{change}");
    let [low, high] = [0, 1].map(|end| change["ci95"][end].as_f64().unwrap());
    assert!(19.0 < low && low < gain && gain < high && high < 21.0, "{change}");
    assert_eq!((&change["significant"], &change["paired"]), (&true.into(), &false.into()));
    assert_eq!(same["changes"][1]["significant"], false);
    assert!(same["changes"][1]["ci95"][0].as_f64().unwrap() < 0.0, "{same}");
    let text = exits(dir.path(), 0, &["compare", "old", "new"]).out;
    // The standard deviation of 0, 2, 4, 6 thousands is 2582 of 1003000.
    let row = text.lines().find(|line| line.ends_with("big/log")).unwrap();
    assert!(row.contains("1003000 ±  0.3%       +19.9%*"), "{row}");
    let row = text.lines().find(|line| line.ends_with("same/log")).unwrap();
    assert!(row.contains("+0.9% ") && !row.contains('*'), "{row}");
    assert!(text.contains("* at 1 of 2 changes: the 95 % interval leaves 0 out"), "{text}");
    // Percentiles have their common names.
    let words = ["compare", "old", "new", "--metric", "write.clat_ns.percentile.99.9", "--json"];
    assert_eq!(json(dir.path(), &words)["rows"][0]["cells"][0]["mean"], 150.0);
    // Two files are two sets; one run has no interval, and so no mark.
    let words = ["compare", "old/run0/big.json", "new/run0/big.json"];
    let text = exits(dir.path(), 0, &words).out;
    assert!(text.contains("+20.0%      1200000  log\n"), "{text}");
    assert!(text.contains("nothing says whether it is more than chance"), "{text}");
    let metrics = exits(dir.path(), 0, &["compare", "old", "new", "--metric", "list"]).out;
    assert!(
        metrics.lines().any(|name| name == "write.iops") && !metrics.contains("bins"),
        "{metrics}"
    );
}

#[test]
fn colours_say_which_way_is_better_and_are_for_terminals_alone() {
    let dir = tempdir().unwrap();
    fio_file(&dir.path().join("a/f.json"), 1_000_000, 100);
    fio_file(&dir.path().join("b/f.json"), 1_200_000, 200);
    let printed = |metric: &str, variable: &str, more: &[&str]| {
        let words = [&["compare", "a", "b", "--metric", metric], more].concat();
        let mut command = command(dir.path(), &words);
        let output = command.env_remove("NO_COLOR").env(variable, "1").output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let (green, red) = ("\x1b[32m", "\x1b[31m");
    assert!(printed("bw_bytes", "CLICOLOR_FORCE", &[]).contains(&format!("{green}+20.0%")));
    let worse = printed("write.clat_ns.mean", "CLICOLOR_FORCE", &[]);
    assert!(worse.contains(&format!("{red}+100.0%")), "{worse}");
    let lower = printed("bw_bytes", "CLICOLOR_FORCE", &["--better", "lower"]);
    assert!(lower.contains(&format!("{red}+20.0%")), "{lower}");
    assert!(!printed("bw_bytes", "NO_COLOR", &[]).contains('\x1b'));
    // Without the colour codes, the text is the same.
    let coloured = printed("bw_bytes", "CLICOLOR_FORCE", &[]);
    let plain = ["\x1b[1m", "\x1b[0m", green, red].iter().fold(coloured, |t, c| t.replace(c, ""));
    assert_eq!(plain, printed("bw_bytes", "NO_COLOR", &[]));
}

#[test]
fn the_page_has_every_case_and_fetches_nothing() {
    let dir = folders_of_the_mail();
    let words = ["compare", ".", "--by", "kernel", "--base", "3.1.0-rc4-vanilla+", "--html"];
    let page = exits(dir.path(), 0, &words).out;
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    for [case, _, change, _] in ["jbod", "single"].into_iter().flat_map(published) {
        assert!(page.contains(&format!(">{case}</td>")), "{case}");
        assert!(page.contains(&change.replace('%', " %")), "{change}");
    }
    assert!(!page.contains("<script") && !page.contains("http"), "{}", page.len());
}

#[test]
fn counters_of_a_run_are_those_of_its_end_less_those_of_its_beginning() {
    let dir = tempdir().unwrap();
    for (set, begin, end) in [("a", "100", "300"), ("b", "200", "500")] {
        run_folder(&dir.path().join(set), end);
        write(dir.path().join(set).join("vmstat-begin"), format!("nr_written {begin}\n")).unwrap();
    }
    let grew = json(dir.path(), &["compare", "a", "b", "--metric", "nr_written.run", "--json"]);
    let row = &grew["rows"][0];
    assert_eq!(
        (&row["cells"][0]["mean"], &row["cells"][1]["mean"]),
        (&200.0.into(), &300.0.into())
    );
    let text = exits(dir.path(), 0, &["compare", "a", "b"]).out;
    assert!(text.contains("300       +66.7%          500  run\n"), "{text}");
    assert!(
        text.contains("counts since boot") && text.contains("--metric nr_written.run"),
        "{text}"
    );
}

#[test]
fn results_of_reproduce_are_pairs_by_seed_and_their_columns_are_sets() {
    let dir = tempdir().unwrap();
    let words =
        ["reproduce", "004", "--only", "isolated", "--quick", "--runs", "2", "--results", "kept"];
    exits(dir.path(), 0, &words);
    let metric = ["--metric", "member_kib_per_write", "--json"];
    let words =
        [&["compare", "kept", "--by", "column", "--base", "baseline"][..], &metric].concat();
    let sheet = json(dir.path(), &words);
    let names: Vec<&str> =
        sheet["sets"].as_array().unwrap().iter().map(|set| set["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["baseline", "auto", "patched"]);
    let row = &sheet["rows"][0];
    assert_eq!((&row["case"], &row["cells"][0]["mean"]), (&"004-isolated".into(), &256.0.into()));
    assert_eq!(row["changes"][2]["gain_pct"], -93.75);
    assert_eq!(
        (&row["changes"][2]["paired"], &row["changes"][2]["significant"]),
        (&true.into(), &true.into())
    );
    // The same folder twice: every case is present, and nothing differs.
    let words = [&["compare", "kept", "kept"][..], &metric].concat();
    let sheet = json(dir.path(), &words);
    let rows = sheet["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 3);
    assert!(rows.iter().all(|row| row["changes"][1]["significant"] == false), "{sheet}");
    let text = exits(dir.path(), 2, &["compare", "kept"]).err;
    assert!(
        text.contains("found only kept, expected two or more") && text.contains("--by column"),
        "{text}"
    );
    let text = exits(dir.path(), 2, &["compare", "kept", "--by", "column", "--base", "old"]).err;
    assert!(
        text.contains("--base old: found no such set, expected one of auto, baseline"),
        "{text}"
    );
}

#[test]
fn simulated_jobs_are_compared_as_fios() {
    let dir = tempdir().unwrap();
    let job = "[w]\nrw=randwrite\nbs=4k\ndirect=1\nioengine=libaio\niodepth=4\nsize=64m\nruntime=50ms\ntime_based\n";
    write(dir.path().join("job.fio"), job).unwrap();
    for (file, device) in [("hdd.json", "hdd-2011-7200"), ("ssd.json", "ssd-nvme-dc-2019")] {
        let text = exits(dir.path(), 0, &["sim", "job.fio", "--device", device, "--json"]).out;
        write(dir.path().join(file), text).unwrap();
    }
    let sheet =
        json(dir.path(), &["compare", "hdd.json", "ssd.json", "--metric", "iops", "--json"]);
    let row = &sheet["rows"][0];
    assert_eq!(row["case"], "w");
    assert!(row["changes"][1]["gain_pct"].as_f64().unwrap() > 1000.0, "{row}");
}

#[test]
fn what_cannot_be_compared_names_the_file_and_says_what_to_do() {
    let dir = tempdir().unwrap();
    let at = |path: &str| dir.path().join(path);
    fio_file(&at("good/f.json"), 1000, 10);
    fio_file(&at("other/g.json"), 1000, 10);
    create_dir_all(at("empty")).unwrap();
    write(at("empty/notes"), "").unwrap();
    write(at("torn.json"), &fio(1000, 10).to_string()[..200]).unwrap();
    write(at("sweep.json"), "{\"schema\": \"weft.sweep/1\"}").unwrap();
    write(at("nameless.json"), "{\"jobs\": [{\"read\": {}}]}").unwrap();
    write(at("idle.json"), "{\"jobs\": [{\"jobname\": \"a\"}]}").unwrap();
    run_folder(&at("cut/x"), "12x");
    run_folder(&at("void/x"), "1");
    write(at("void/x/vmstat-end"), "").unwrap();
    create_dir_all(at("weft/0")).unwrap();
    write(at("weft/0/params.json"), "{\"patch\": \"004\", \"case\": 5}").unwrap();
    write(at("weft/0/summary.json"), "{}").unwrap();
    let errors: [(i32, &[&str], &[&str]); 17] = [
        (1, &["good", "absent"][..], &["absent: No such file", "name a folder of runs"][..]),
        (1, &["good", "empty"], &["empty: runs: found none among 1 files", "vmstat-end"]),
        (1, &["good", "torn.json"], &["torn.json: JSON: found EOF", "copy the file again"]),
        (1, &["good", "sweep.json"], &["sweep.json: jobs: found none", "--output-format=json"]),
        (1, &["good", "nameless.json"], &["nameless.json: jobs[0].jobname: found none"]),
        (1, &["good", "idle.json"], &["idle.json: jobs[0].read, write, trim: found none"]),
        (1, &["good", "cut"], &["cut/x/vmstat-end: line 3: found \"nr_written 12x\""]),
        (1, &["good", "void"], &["void/x/vmstat-end: counters: found none"]),
        (1, &["good", "weft"], &["weft/0/params.json: case: found 5, expected a text"]),
        (1, &["good", "other"], &["cases: found none", "good has f/log, other has g/log"]),
        (2, &["good"], &["found only good, expected two or more"]),
        (
            2,
            &["good", "good", "--metric", "iop"],
            &["--metric iop: found in no run", "iops, write.iops", "--metric list"],
        ),
        (2, &["good", "good", "--by", "kernel"], &["f.json: --by kernel: found a run without one"]),
        (2, &["good", "good", "--only", "zz"], &["--only zz: found no case", "f/log"]),
        (2, &["good", "good", "--at-least", "x"], &["expected a number of percent"]),
        (2, &["good", "good", "--html", "--json"], &["cannot be used with"]),
        (2, &[], &["<RUNS>..."]),
    ];
    for (status, words, told) in errors {
        let words = [&["compare"], words].concat();
        let text = exits(dir.path(), status, &words);
        for told in told {
            assert!(text.err.contains(told), "{words:?}: {told}: {text:?}");
        }
        assert!(words.contains(&"--json") || text.out.is_empty(), "{words:?}: {text:?}");
    }
    let sheet = weft_error(dir.path(), &["compare", "good", "torn.json", "--json"]);
    assert_eq!((&sheet["schema"], &sheet["exit"]), (&"weft.error/1".into(), &1.into()));
    // A folder of a run that never ended is reported and left out.
    let mail = folders_of_the_mail();
    create_dir_all(mail.path().join("thresh=9M/xfs-1dd-4k-8p-2942M-9M:10-3.1.0-rc4-vanilla+"))
        .unwrap();
    let words = "$ ./compare.rb thresh*/*vanilla+ thresh*/*bgthresh3+ 2>&1";
    let printed = as_in_the_mail(mail.path(), words);
    assert!(printed.contains("vanilla+: found no run in it: it is left out"), "{printed}");
    assert!(printed.contains("28 cases"), "{printed}");
}

/// JSON of a command that fails.
fn weft_error(dir: &Path, words: &[&str]) -> Value {
    serde_json::from_str(&exits(dir, 1, words).out).unwrap()
}
