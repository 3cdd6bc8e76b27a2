//! Job files in practice, and the requests of their jobs, compared with fio's own.

use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use weft_lab::job::generate::{Generator, Io};
use weft_lab::job::{
    Blocks, Direction, Distribution, Engine, Job, JobError, ParseOptions, Size, left_out,
    parse_text,
};
use weft_lab::replay::{Op, ReadOptions, Trace};
use weft_testing::skip;
use weft_units::{Bytes, Span};

fn parse(text: &str) -> Result<Vec<Job>, JobError> {
    let options = ParseOptions {
        environment: &|name| (name == "SIZE").then(|| "64k".to_owned()),
        include: &|name, _| match name {
            "common.fio" => Ok("bs=8k\n# from another file\nsize=1m\n".to_owned()),
            "loop.fio" => Ok("include loop.fio\n".to_owned()),
            "section.fio" => Ok("[x]\n".to_owned()),
            "bad.fio" => Ok("\nnumjob=1\n".to_owned()),
            _ => Err("no such file".to_owned()),
        },
        extensions: &["weft_stripe_size"],
    };
    parse_text("t.fio", text, &options)
}

fn job(lines: &str) -> Job {
    parse(&format!("[j]\n{lines}\n")).unwrap().remove(0)
}

/// The job of seed 004's mail, with the option that fio refuses replaced by the intended one.
const SEED_004: &str = "[global]\nioengine=libaio\ndirect=1\nnumjobs=2\niodepth=64\nfilename=/dev/md5\n\
    group_reporting\n\n[4KB randwrite]\nbs=4KB\nrw=randwrite\n\n[64KB write]\nstonewall\nbs=1MB\nrw=write\n";

#[test]
fn experiments_26_the_job_of_seed_004_starts_both_clones_at_0() {
    let jobs = parse(SEED_004).unwrap();
    assert_eq!((jobs[0].name.as_str(), jobs[0].group), ("4KB randwrite", 0));
    let write = &jobs[1];
    assert_eq!((write.name.as_str(), write.group, write.stonewall), ("64KB write", 1, true));
    assert_eq!((write.clone_count, write.submission.depth), (2, 64));
    assert_eq!((write.submission.engine, write.submission.direct), (Engine::Overlapping, true));
    assert_eq!(write.pattern.blocks[1], Blocks::one(Bytes::mib(1)));
    assert_eq!(
        write.options,
        [("stonewall", "1"), ("bs", "1MB"), ("rw", "write")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
    );
    for clone in 0..2 {
        let mut ios = Generator::new(write, clone, Bytes::mib(100), 1).unwrap();
        let (direction, length) = (Direction::Write, Bytes::mib(1));
        assert_eq!(ios.next(), Some(Io::Transfer { direction, offset: Bytes(0), length }));
        assert_eq!(ios.count(), 99);
    }
    let error = parse(&SEED_004.replace("numjobs", "numjob")).unwrap_err().to_string();
    assert_eq!(
        error,
        "t.fio:4: [global]: option numjob: not one that weft reads; did you mean numjobs?"
    );
}

#[test]
fn options_become_typed_values() {
    let j = job(
        "rw=randrw:4\nbs=4k,8k\nrwmixwrite=30\nsize=50%\noffset=1m\nruntime=2m\ntime_based\n\
        rate=1m,2m\nrate_iops=,50\nthinktime=10\nsync=dsync\nrandom_distribution=zipf:1.2\nrandseed=7\n\
        percentile_list=50:99.9\nfilename=/dev/a:/dev/b\nweft_stripe_size=auto\nBLOCKSIZE_RANGE=1k-4k,,\n\
        fsync=8\nioengine=io_uring\niodepth=8\niodepth_batch=4\n\
        startdelay=500ms\nprioclass=2\nprio=3\nloops=3\nbuffered=0\nnew_group=0",
    );
    assert_eq!(j.pattern.directions, [Direction::Read, Direction::Write]);
    assert_eq!((j.pattern.random, j.pattern.step, j.pattern.read_percent), (true, 4, 70));
    let k = Bytes::kib;
    assert_eq!(j.pattern.blocks[0], Blocks::Range { low: k(1), high: k(4) });
    assert_eq!(j.pattern.blocks[1..], [Blocks::one(k(8)), Blocks::one(k(8))]);
    assert_eq!(
        (j.target.size, j.target.offset),
        (Some(Size::Percent(50)), Some(Size::Bytes(k(1024))))
    );
    assert_eq!((j.pace.runtime, j.pace.time_based), (Some(Span::secs(120)), true));
    assert_eq!(j.pace.rate, [Some(k(1024)), Some(k(2048)), Some(k(2048))]);
    assert_eq!(j.pace.rate_iops, [None, Some(50), Some(50)]);
    assert_eq!((j.pace.think_time, j.start_delay), (Span(10_000), Span::millis(500)));
    assert_eq!(j.pattern.distribution, Distribution::Zipf(1.2));
    assert_eq!(j.report.percentiles, [50.0, 99.9]);
    assert_eq!(j.target.filenames, ["/dev/a", "/dev/b"]);
    assert_eq!(j.extensions, [("weft_stripe_size".to_owned(), "auto".to_owned())]);
    assert_eq!((j.submission.batch, j.submission.depth_low, j.submission.direct), (4, 8, true));
    assert_eq!((j.class.prio, j.class.prio_class, j.loops), (Some(3), Some(2), 3));
}

#[test]
fn global_holds_for_sections_after_it_and_the_environment_and_other_files_are_used() {
    let jobs = parse(
        "; a comment\n[global]\nrw=write\nsize=${SIZE}\n[a]\n[global]\nrw=read\n[b b]\ninclude common.fio\n\
         bs=16k\n[c]\nwait_for_previous\n[d]\nnew_group\n",
    )
    .unwrap();
    let all: Vec<_> = jobs
        .iter()
        .map(|job| (job.name.as_str(), job.pattern.directions[0], job.target.size, job.group))
        .collect();
    let size = |kib| Some(Size::Bytes(Bytes::kib(kib)));
    assert_eq!(all[0], ("a", Direction::Write, size(64), 0));
    assert_eq!(all[1], ("b b", Direction::Read, size(1024), 0));
    assert_eq!(all[2], ("c", Direction::Read, size(64), 1));
    assert_eq!(all[3], ("d", Direction::Read, size(64), 2));
    assert_eq!(jobs[1].pattern.blocks[0], Blocks::one(Bytes::kib(16)));
    let base = job("bs=4k\nkb_base=1000");
    assert_eq!(base.pattern.blocks[0], Blocks::one(Bytes(4000)));
}

#[test]
fn what_is_not_understood_is_told_by_file_line_section_and_option() {
    let table = [
        (
            "[a]\nhttp_host=x",
            "t.fio:2: [a]: option http_host: not one that weft reads; weft sim --help lists those",
        ),
        (
            "[a]\nthraed",
            "t.fio:2: [a]: option thraed: not one that weft reads; did you mean thread?",
        ),
        (
            "[a]\niodepht=4",
            "t.fio:2: [a]: option iodepht: not one that weft reads; did you mean iodepth?",
        ),
        (
            "[a]\nweft_other=1",
            "t.fio:2: [a]: option weft_other: not one that weft reads; weft sim --help lists those",
        ),
        ("[a]\nbs=4q", "t.fio:2: [a]: bs: found \"4q\", expected a size such as"),
        ("[a]\nbs=0", "t.fio:2: [a]: bs: found \"0\""),
        ("[a]\nbs", "t.fio:2: [a]: bs: found \"no value\", expected OPTION=VALUE"),
        ("[a]\nrw=randwrit", "t.fio:2: [a]: rw: found \"randwrit\", expected read, write"),
        ("[a]\nrw=read:0", "t.fio:2: [a]: rw: found \"read:0\""),
        ("[a]\nsize=0%", "t.fio:2: [a]: size: found \"0%\""),
        ("[a]\nsize=${NONE}", "t.fio:2: [a]: size: found \"${NONE}\", expected a variable"),
        ("[a]\nbssplit=4k/50", "t.fio:2: [a]: bssplit: found \"4k/50\", expected sizes"),
        ("[a]\nrandom_distribution=zipf", "t.fio:2: [a]: random_distribution: found \"zipf\""),
        (
            "[a]\nrw=randread\nrandom_distribution=zoned:50/50",
            "found \"zoned:50/50\", expected zoned:",
        ),
        (
            "[a]\nrandom_distribution=zipf:1",
            "t.fio:1: [a]: random_distribution: found \"a sequential rw\"",
        ),
        ("[a]\ntime_based", "t.fio:1: [a]: time_based: found \"no runtime\""),
        (
            "[a]\niodepth_batch=2",
            "t.fio:1: [a]: iodepth_batch: found \"2\", expected at most iodepth, 1",
        ),
        ("[a]\nprio=8", "t.fio:2: [a]: prio: found \"8\", expected a number of 0..=7"),
        ("[a]\nkb_base=10", "t.fio:2: [a]: kb_base: found \"10\", expected 1000 or 1024"),
        ("[a]\nioengine=libaoi", "t.fio:2: [a]: ioengine: found \"libaoi\", expected an engine of"),
        ("[a]\nioengine=net", "t.fio:2: [a]: ioengine=net is not simulated: no I/O of blocks, but"),
        ("[a]\nioengine=null", "t.fio:2: [a]: ioengine=null is not simulated: it has no I/O"),
        (
            "[a]\nflow=2",
            "t.fio:2: [a]: flow=2 is not simulated: jobs are not paced by the progress",
        ),
        ("[a]\nexitall", "t.fio:2: [a]: exitall is not simulated: no job ends another"),
        ("[a]\nrw=trimwrite", "t.fio:2: [a]: rw=trimwrite is not simulated: a job trims or writes"),
        ("[a]\nrw=randread:-8k", "t.fio:2: [a]: rw: found \"randread:-8k\", expected read, write"),
        ("[a]\nrw=read:-0", "t.fio:2: [a]: rw: found \"read:-0\""),
        ("[a]\nnumjobs=0", "t.fio:2: [a]: numjobs: found \"0\", expected a number above 0"),
        ("[global]\nbs=x\n[a]\n[b]", "t.fio:2: [global]: bs: found \"x\""),
        ("bs=4k", "t.fio:1: found \"bs=4k\", expected a section [NAME] before"),
        ("[a", "t.fio:1: found \"[a\", expected [NAME]"),
        ("[a] b", "t.fio:1: found \"[a] b\", expected [NAME] and nothing after"),
        ("[global]\nbs=4k", "t.fio:2: found the end of the file, expected a section"),
        ("[a]\ninclude none.fio", "t.fio:2: none.fio: no such file"),
        ("[a]\ninclude loop.fio", "loop.fio:1: found \"include loop.fio\", expected files that"),
        ("[a]\ninclude section.fio", "section.fio:1: found \"[x]\", expected no section"),
        ("[a]\ninclude bad.fio", "bad.fio:2: [a]: option numjob"),
    ];
    for (text, expected) in table {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{text:?}: {error}");
    }
}

#[test]
fn all_errors_of_all_sections_are_told_at_once_in_the_order_of_lines() {
    let text = "[global]\nbs=4q\nnumjob=2\n[a]\nflow=2\nrw=red\n[b]\nport=1\nsize=${NONE}\n\
        include bad.fio\n[c\n[d]\n";
    let error = parse(text).unwrap_err();
    let lines = [
        "8 errors:",
        "  bad.fio:2: [b]: option numjob: not one that weft reads; did you mean numjobs?",
        "  t.fio:2: [global]: bs: found \"4q\", expected a size such as 4096, 4k or 1g",
        "  t.fio:3: [global]: option numjob: not one that weft reads; did you mean numjobs?",
        "  t.fio:5: [a]: flow=2 is not simulated: jobs are not paced by the progress of others",
        "  t.fio:6: [a]: rw: found \"red\", expected read, write, trim, randread, randwrite, rw or \
         randrw, then perhaps :NUMBER, which may be negative if offsets are sequential",
        "  t.fio:8: [b]: option port: not one that weft reads",
        "  t.fio:9: [b]: size: found \"${NONE}\", expected a variable that is set",
        "  t.fio:11: found \"[c\", expected [NAME]",
        "  weft sim --help lists the options that are read, left out and refused",
    ];
    assert_eq!(error.to_string().lines().collect::<Vec<_>>(), lines);
    // A message does not grow with the file.
    let many = format!("[a]\n{}", "x=1\n".repeat(1000));
    let error = parse(&many).unwrap_err().to_string();
    assert_eq!(error.lines().count(), 103);
    assert!(error.contains("\n  t.fio:101: [a]: option x") && error.contains("\n  and 900 more\n"));
}

#[test]
fn what_means_nothing_to_a_simulation_is_left_out_and_kept_with_its_reason() {
    let jobs = parse(
        "[global]\nthread\nuri=${NONE}\nverify=crc32c\n[a]\nrw=write\nunlink=1\n[b]\nthread=1\nss=iops:1%\n",
    )
    .unwrap();
    assert_eq!(jobs.len(), 2);
    let told = left_out(&jobs);
    let of = |at: usize| (told[at].1.as_slice(), told[at].0);
    assert_eq!(told.len(), 4);
    assert_eq!(of(0), (&["thread", "uri"][..], "of no meaning to a simulation"));
    assert_eq!(of(1).0, ["verify"]);
    assert!(of(1).1.contains("nothing is read again"), "{told:?}");
    assert_eq!(of(2).0, ["unlink"]);
    assert_eq!(of(3).0, ["ss"]);
    // The job equals a job without these options.
    let plain = Job { left_out: Vec::new(), options: Vec::new(), ..jobs[0].clone() };
    let bare = Job { options: Vec::new(), ..parse("[a]\nrw=write\n").unwrap().remove(0) };
    assert_eq!(plain, bare);
    // Values that turn off a refused option are not reported.
    let off =
        job("zonemode=none\nflow=0\nrw_sequencer=sequential\nexitall=0\nread_beyond_wp=false");
    assert!(off.left_out.is_empty());
}

#[test]
fn comments_names_aliases_and_escapes_are_those_of_fio() {
    let jobs = parse(
        "[global]\nname=all\nnumjobs=4 ; four\n[a]\nname=mine\t# other\ntimeout=60\nnr_files=1\n\
         ba=8k\nfilename=/dev/b\\:0:/dev/c#1\n[b] ; the second\n  # nothing\nsize=1m;2m\n",
    )
    .unwrap();
    assert_eq!((jobs[0].name.as_str(), jobs[0].clone_count), ("mine", 4));
    assert_eq!(jobs[0].pace.runtime, Some(Span::secs(60)));
    assert_eq!(jobs[0].pattern.block_align, Some([Bytes::kib(8); 3]));
    assert_eq!(jobs[0].target.filenames, ["/dev/b:0", "/dev/c"]);
    assert_eq!(jobs[1].name, "b");
    assert_eq!(jobs[1].target.size, Some(Size::Bytes(Bytes::mib(1))));
}

#[test]
fn engines_say_whether_requests_overlap_and_whether_they_are_direct() {
    let of = |engine: &str, direct: u8| {
        // `direct` may stand before the engine or after it.
        let lines = [format!("ioengine={engine}"), format!("direct={direct}")];
        let jobs =
            [lines.join("\n"), [lines[1].as_str(), &lines[0]].join("\n")].map(|text| job(&text));
        assert_eq!(jobs[0].submission, jobs[1].submission);
        (jobs[0].submission.engine, jobs[0].submission.direct)
    };
    for engine in ["io_uring", "libaio", "posixaio", "libblkio"] {
        assert_eq!(of(engine, 0), (Engine::Overlapping, false), "{engine}");
        assert_eq!(of(engine, 1), (Engine::Overlapping, true), "{engine}");
    }
    for engine in ["psync", "pvsync", "pvsync2", "sync"] {
        assert_eq!(of(engine, 1), (Engine::Synchronous, true), "{engine}");
    }
    assert_eq!(of("mmap", 1), (Engine::Synchronous, false));
    assert_eq!(of("nbd", 0), (Engine::Overlapping, true));
}

#[test]
fn the_last_zone_may_be_the_rest() {
    let zones = |text: &str| {
        let lines = format!("rw=randread\nrandom_distribution=zoned:{text}");
        parse(&format!("[j]\n{lines}\n")).map(|jobs| jobs[0].pattern.distribution.clone())
    };
    let rest = Distribution::Zoned(vec![(50, 5), (30, 15), (20, 80)]);
    assert_eq!(zones("50/5:30/15:20/").unwrap(), rest);
    assert_eq!(zones("50/5:30/15:20").unwrap(), rest);
    // fio 3.33 shares the rest likewise.
    let shared = Distribution::Zoned(vec![(50, 10), (30, 45), (20, 45)]);
    assert_eq!(zones("50/10:30:20/").unwrap(), shared);
    for bad in ["50/5:30/15", "50/5:50/", "60/100:40/", "/50:/50", "100/0", ""] {
        assert_eq!(zones(bad).is_ok(), bad == "50/5:50/", "{bad}");
    }
}

#[test]
fn a_job_that_fills_the_device_goes_to_its_end() {
    let filled = ours("rw=write\nsize=1m\nio_size=8k\nfill_device=1\nbs=4k");
    assert_eq!(filled.bytes, 4000 << 10);
    assert_eq!(ours("rw=write\nsize=1m\nfill_fs=0\nbs=4k").bytes, 1 << 20);
}

#[test]
fn a_job_that_does_not_fit_the_volume_is_refused() {
    let table = [
        ("size=2m", "[j]: size: found 2097152 bytes from byte 0, expected 1..=1048576"),
        ("offset=1m", "[j]: offset: found clone 0 beyond the end"),
        ("size=1k", "[j]: bs: found 4096 bytes, expected at most the region of 1024"),
        ("nrfiles=2", "[j]: nrfiles: found 2 files, expected one"),
    ];
    for (lines, expected) in table {
        let error = Generator::new(&job(lines), 0, Bytes::mib(1), 1).expect_err(lines).to_string();
        assert!(error.contains(expected), "{lines}: {error}");
    }
}

/// Counts of a clone's requests: reads, writes, trims, syncs; bytes; ranges in order.
#[derive(Debug, Default)]
struct Tally {
    counts: [u64; 4],
    bytes: u64,
    ranges: Vec<(u64, u64)>,
    lengths: BTreeMap<u64, u64>,
}

impl Tally {
    fn add(&mut self, direction: usize, offset: u64, length: u64) {
        self.counts[direction] += 1;
        self.bytes += length;
        self.ranges.push((offset, length));
        *self.lengths.entry(length).or_default() += 1;
    }

    fn offsets(&self) -> BTreeSet<u64> {
        self.ranges.iter().map(|range| range.0).collect()
    }
}

fn ours(lines: &str) -> Tally {
    let mut tally = Tally::default();
    for io in Generator::new(&job(lines), 0, Bytes::kib(4000), 1).unwrap() {
        match io {
            Io::DataSync | Io::Sync => tally.counts[3] += 1,
            Io::Transfer { direction, offset, length } => {
                tally.add(direction as usize, offset.0, length.0);
            }
        }
    }
    tally
}

/// Counts of fio itself, from the log that it writes. With the null engine, fio moves no bytes.
fn fios(lines: &str) -> Option<Tally> {
    fios_with("ioengine=null\nfilename=/dev/none", lines)
}

/// Counts of fio itself, with an engine and a file.
fn fios_with(engine: &str, lines: &str) -> Option<Tally> {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let file = folder.path().join("job.fio");
    let global = format!("[global]\n{engine}\nfilesize=4000k\n");
    std::fs::write(&file, format!("{global}[j]\n{lines}\n")).unwrap();
    let output = std::process::Command::new("fio")
        .arg(&file)
        .arg(format!("--write_iolog={}", log.display()))
        .args(["--thread", "--output=/dev/null"])
        .current_dir(folder.path())
        .output();
    let Ok(output) = output else {
        skip("fio is not installed");
        return None;
    };
    // fio requires the option in the file if there is a file.
    if !log.exists() {
        let lines = format!("{global}write_iolog={}\n[j]\n{lines}\n", log.display());
        std::fs::write(&file, lines).unwrap();
        let mut fio = std::process::Command::new("fio");
        fio.arg(&file).args(["--output=/dev/null"]).current_dir(folder.path());
        assert!(fio.status().unwrap().success(), "{output:?}");
    }
    let mut tally = Tally::default();
    for record in Trace::open(&[&log], &ReadOptions::default()).unwrap() {
        let record = record.unwrap();
        match record.op {
            Op::Read => tally.add(0, record.offset.0, record.length.0),
            Op::Write => tally.add(1, record.offset.0, record.length.0),
            Op::Discard => tally.add(2, record.offset.0, record.length.0),
            Op::Flush => tally.counts[3] += 1,
        }
    }
    Some(tally)
}

#[test]
fn sequential_jobs_make_the_same_requests_as_fio() {
    for lines in [
        "rw=write\nbs=4k",
        "rw=read\nbs=32k",
        "rw=write\nbs=4k\nio_size=100k",
        "rw=write\nbs=4k\nio_size=6000k",
        "rw=write\nbs=4k\nloops=2",
        "rw=write\nbs=4k\noffset=500k",
        "rw=write:1k\nbs=4k",
        "rw=write\nbs=4k\nfsync=10",
        "rw=write\nbs=4k\nfdatasync=7",
        "rw=read\nbs=4k\nfsync=3",
    ] {
        let Some(theirs) = fios(lines) else { return };
        let ours = ours(lines);
        assert_eq!(ours.counts, theirs.counts, "{lines}");
        assert_eq!(ours.ranges, theirs.ranges, "{lines}");
    }
}

#[test]
fn jobs_backwards_make_the_same_requests_as_fio() {
    for lines in [
        "rw=read:-8k\nbs=4k",
        "rw=read:-12k\nbs=4k",
        "rw=write:-4k\nbs=4k\nio_size=100k",
        "rw=read:-20k\nbs=8k\nio_size=9000k",
        "rw=read:-8k\nbs=4k\nloops=2",
    ] {
        // Without a file, fio 3.33 reads the first block only.
        let Some(theirs) = fios_with("ioengine=psync\nfilename=data", lines) else { return };
        let ours = ours(lines);
        assert_eq!(ours.counts, theirs.counts, "{lines}");
        assert_eq!(ours.ranges, theirs.ranges, "{lines}");
    }
}

#[test]
fn random_jobs_make_as_many_requests_of_the_same_sizes_in_the_same_places_as_fio() {
    // Lines, whether counts, bytes and offsets are exact, and the tolerance of shares.
    let table = [
        ("rw=randwrite\nbs=4k", true, 0.0),
        ("rw=randwrite\nbs=3k", true, 0.0),
        ("rw=randread\nbs=8k\nio_size=6000k", true, 0.0),
        ("rw=randwrite\nbs=4k\nloops=2\nfsync=16", true, 0.0),
        ("rw=randwrite\nbs=4k\noffset=500k", true, 0.0),
        ("rw=randwrite\nbs=4k\nnorandommap", false, 0.0),
        ("rw=randrw\nbs=4k\nrwmixread=70\nio_size=16000k", false, 0.04),
        ("rw=randwrite\nbssplit=4k/50:8k/30:16k/20\nnorandommap\nio_size=40000k", false, 0.04),
        ("rw=randwrite\nbsrange=1k-8k\nnorandommap\nio_size=20000k", false, 0.04),
        ("rw=rw\nbs=4k\nrwmixread=30\nio_size=16000k", false, 0.04),
    ];
    for (lines, exact, apart) in table {
        let Some(theirs) = fios(lines) else { return };
        let ours = ours(lines);
        assert_eq!(
            ours.bytes.abs_diff(theirs.bytes) / 20_480,
            0,
            "{lines}: {} {}",
            ours.bytes,
            theirs.bytes
        );
        if exact {
            assert_eq!(ours.counts, theirs.counts, "{lines}");
            assert_eq!(ours.bytes, theirs.bytes, "{lines}");
            assert_eq!(ours.offsets(), theirs.offsets(), "{lines}");
        }
        let share = |tally: &Tally, count: u64| count as f64 / tally.ranges.len() as f64;
        for at in 0..3 {
            let (ours, theirs) = (share(&ours, ours.counts[at]), share(&theirs, theirs.counts[at]));
            assert!((ours - theirs).abs() <= apart, "{lines}: direction {at}: {ours} {theirs}");
        }
        let sizes: BTreeSet<u64> =
            ours.lengths.keys().chain(theirs.lengths.keys()).copied().collect();
        for size in sizes {
            let of = |tally: &Tally| share(tally, tally.lengths.get(&size).copied().unwrap_or(0));
            let (ours, theirs) = (of(&ours), of(&theirs));
            assert!((ours - theirs).abs() <= apart, "{lines}: size {size}: {ours} {theirs}");
        }
        if lines.contains("norandommap") && exact {
            assert!(ours.offsets().len() < ours.ranges.len());
        }
    }
}

#[test]
fn mixed_sizes_cover_the_region_once() {
    let tally = ours("rw=randwrite\nbssplit=4k/50:8k/30:64k/20");
    let mut ranges = tally.ranges.clone();
    ranges.sort_unstable();
    let mut end = 0;
    for (offset, length) in ranges {
        assert_eq!(offset, end);
        end = offset + length;
    }
    assert_eq!((end, tally.bytes), (4000 << 10, 4000 << 10));
}

#[test]
fn clones_differ_and_a_seed_repeats() {
    let job = job("rw=randwrite\nbs=4k\noffset_increment=1m\nsize=1m");
    let first = |clone, seed| -> Vec<Io> {
        Generator::new(&job, clone, Bytes::mib(4), seed).unwrap().take(50).collect()
    };
    assert_eq!(first(1, 9), first(1, 9));
    assert_ne!(first(1, 9), first(1, 10));
    let offsets = |clone| {
        let ios = first(clone, 9).into_iter();
        ios.map(move |io| match io {
            Io::Transfer { offset, .. } => offset.0 - (u64::from(clone) << 20),
            Io::DataSync | Io::Sync => panic!("no sync was asked for"),
        })
        .collect::<Vec<_>>()
    };
    assert!(offsets(2).iter().all(|offset| *offset < 1 << 20));
    assert_ne!(offsets(1), offsets(2));
}

#[test]
fn a_generator_means_the_same_on_every_machine() {
    // The sum is from a run of this test. A generator that used mathematical functions of the
    // platform would give other sums on other machines.
    let job = job("rw=randrw\nbssplit=4k/60:64k/40\nrandom_distribution=zipf:1.1\nsize=1g");
    let mut sum = 0xcbf2_9ce4_8422_2325_u64;
    for io in Generator::new(&job, 3, Bytes::mib(1024), 42).unwrap().take(10_000) {
        let Io::Transfer { direction, offset, length } = io else { panic!("no sync") };
        for word in [direction as u64, offset.0, length.0] {
            sum = (sum ^ word).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    assert_eq!(sum, GENERATOR_SUM);
}

const GENERATOR_SUM: u64 = 16_222_209_224_451_806_289;

#[test]
fn a_job_for_a_time_goes_on() {
    let job = job("rw=randread\nbs=4k\nsize=64k\ntime_based\nruntime=10");
    let count = Generator::new(&job, 0, Bytes::mib(1), 1).unwrap().take(100_000).count();
    assert_eq!(count, 100_000);
    let done = ours("rw=write\nbs=4k\nsize=64k\nend_fsync=1\nfsync_on_close=1");
    assert_eq!(done.counts, [0, 16, 0, 2]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_the_parser_panic(
        words in proptest::collection::vec(
            prop_oneof![
                Just("[j]\n".to_owned()), Just("[".to_owned()), Just("=".to_owned()),
                Just("\n".to_owned()), Just("${".to_owned()), Just("}".to_owned()),
                Just("bs=".to_owned()), Just("bssplit=".to_owned()), Just("rw=randrw:".to_owned()),
                Just("random_distribution=zoned:".to_owned()), Just("size=".to_owned()),
                Just("include ".to_owned()), Just("18446744073709551615".to_owned()),
                Just("4k/".to_owned()), Just(":".to_owned()), Just(",".to_owned()), Just("9%".to_owned()),
                "\\PC{0,6}",
            ], 0..30)
    ) {
        let _ = parse(&words.concat());
    }

    /// With any pattern, requests stay in their region, and their bytes add up to the requested
    /// number.
    #[test]
    fn requests_stay_in_their_region_and_end(
        rw in proptest::sample::select(vec!["read", "write", "rw", "randread", "randwrite", "randrw", "trim",
            "randwrite:3", "write:4k", "read:1k"]),
        blocks in proptest::sample::select(vec!["bs=4k", "bs=3k", "bsrange=1k-9k", "bssplit=1k/20:7k/80",
            "bs=4k,12k", "bssplit=4k/50:64k/50"]),
        extra in proptest::sample::select(vec!["loops=1", "norandommap", "percentage_random=40", "blockalign=512",
            "loops=3", "io_size=13k", "io_size=777k"]),
        distribution in proptest::sample::select(vec!["random", "zipf:0.9", "pareto:0.3", "normal:20",
            "zoned:90/5:10/95"]),
        size_kib in 64u64..600,
        seed in any::<u64>(),
    ) {
        let random = if rw.starts_with("rand") { format!("random_distribution={distribution}") } else { String::new() };
        let job = job(&format!("rw={rw}\n{blocks}\n{extra}\n{random}\noffset=8k\nsize={size_kib}k"));
        let ios = Generator::new(&job, 0, Bytes::kib(1000), seed).unwrap();
        let (mut bytes, mut largest, mut ended) = (0, 0, 0);
        for io in ios.take(10_000) {
            let Io::Transfer { offset, length, .. } = io else { panic!("no sync was asked for") };
            prop_assert!(length.0 > 0);
            prop_assert!(offset.0 >= 8 << 10);
            prop_assert!(offset.0 + length.0 <= (8 + size_kib) << 10, "{:?}", io);
            bytes += length.0;
            largest = largest.max(length.0);
            ended += 1;
        }
        prop_assert!(ended < 10_000);
        let loops = if extra == "loops=3" { 3 } else { 1 };
        let total = match extra { "io_size=13k" => 13 << 10, "io_size=777k" => 777 << 10, _ => (size_kib << 10) * loops };
        prop_assert!(bytes <= total + largest, "{} of {}", bytes, total);
        if !rw.contains(":") || rw.starts_with("rand") {
            prop_assert!(bytes + (64 << 10) * loops >= total, "{} of {}", bytes, total);
        }
    }
}
