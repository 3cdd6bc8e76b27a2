//! Tests of simulated jobs: each option of fio has its effect.

use weft_engine::knobs::Knobs;
use weft_engine::knobs::SchedulerKind;
use weft_engine::page_cache::Kernel;
use weft_engine::{SyncAction, WriteBackConfig};
use weft_lab::fio_json::JobResult;
use weft_lab::job::{Direction, Job, ParseOptions, parse_text};
use weft_lab::simulate::advise::{Goal, Wanted, advise};
use weft_lab::simulate::sweep::Load;
use weft_lab::simulate::{CostTable, Outcome, Stop, Volume, WriteBackOutcome, faults, jobs};
use weft_ondisk::Level;
use weft_units::{Bytes, Span};

fn volume(model: &str) -> Volume {
    Volume {
        level: Some(Level::Raid5),
        members: Volume::members(&[model.to_owned()], 4).unwrap(),
        chunk: Bytes::kib(64),
        member_size: Some(Bytes::mib(4096)),
        // The array never becomes clean again, so superblocks do not affect the counts.
        knobs: Knobs {
            safe_mode_delay: Span::ZERO,
            scheduler: SchedulerKind::MqDeadline,
            ..Knobs::md()
        },
        write_back: None,
        sync: None,
        costs: CostTable::named("zero").unwrap(),
        memory: Bytes::mib(256),
        kernel: Kernel::V3_1,
        cpus: 2,
        faults: Vec::new(),
        seed: 7,
    }
}

fn jobs_of(text: &str) -> Vec<Job> {
    let options = ParseOptions {
        environment: &|_| None,
        include: &|name, _| Err(format!("{name}: none here")),
        extensions: &[],
    };
    parse_text("test.fio", text, &options).unwrap()
}

fn run_on(volume: &Volume, text: &str) -> Outcome {
    let outcome = jobs::run(volume, &jobs_of(text), &mut |_| true).unwrap();
    assert_eq!((outcome.stop, outcome.answered.1), (Stop::Done, 0));
    outcome
}

fn run(text: &str) -> Outcome {
    run_on(&volume("null"), text)
}

/// Requests and bytes of a direction.
fn counts(result: &JobResult, direction: Direction) -> (u64, u64) {
    let of = &result.directions[direction as usize];
    (of.total.count(), of.bytes.0)
}

fn writes(result: &JobResult) -> (u64, u64) {
    counts(result, Direction::Write)
}

fn reads(result: &JobResult) -> (u64, u64) {
    counts(result, Direction::Read)
}

#[test]
fn counts_are_those_of_the_job() {
    let outcome =
        run("[w]\nrw=randwrite\ndirect=1\nioengine=libaio\niodepth=8\nsize=8m\nfsync=16\n");
    assert_eq!(writes(&outcome.results[0]), (2048, 8 << 20));
    // A sync follows each sixteenth write except the last.
    assert_eq!(outcome.results[0].syncs.count(), 127);
    let mixed = run("[m]\nrw=randrw\nrwmixread=75\ndirect=1\nsize=16m\n");
    let (read, written) = (reads(&mixed.results[0]).0, writes(&mixed.results[0]).0);
    assert_eq!(read + written, 4096);
    assert!((2900..3250).contains(&read), "{read} of 4096");
    assert_eq!(mixed.client.1, Bytes(written * 4096));
}

#[test]
fn two_clones_are_told_apart_unless_they_are_to_be_reported_together() {
    let job = "[w]\nrw=write\ndirect=1\nbs=64k\nsize=4m\nnumjobs=2\n";
    let apart = run(job);
    assert_eq!(apart.results.iter().map(writes).collect::<Vec<_>>(), [(64, 4 << 20); 2]);
    let together = run(&format!("{job}group_reporting\n"));
    assert_eq!(together.results.iter().map(writes).collect::<Vec<_>>(), [(128, 8 << 20)]);
}

#[test]
fn a_wall_keeps_jobs_apart_in_time() {
    let job = |name: &str, more: &str| {
        format!("[{name}]\nrw=write\ndirect=1\ntime_based\nruntime=50ms\n{more}")
    };
    let beside = run(&(job("a", "") + &job("b", "")));
    let behind = run(&(job("a", "") + &job("b", "stonewall\n")));
    assert!((50.0..52.0).contains(&(beside.elapsed.0 as f64 / 1e6)), "{:?}", beside.elapsed);
    assert!((100.0..104.0).contains(&(behind.elapsed.0 as f64 / 1e6)), "{:?}", behind.elapsed);
    let late = run(&job("a", "startdelay=70ms\n"));
    assert!((120.0..122.0).contains(&(late.elapsed.0 as f64 / 1e6)), "{:?}", late.elapsed);
    assert_eq!(late.results[0].runtime, Span::millis(50), "the delay does not count");
    let ramped = run(&job("a", "ramp_time=30ms\n"));
    assert!((80.0..82.0).contains(&(ramped.elapsed.0 as f64 / 1e6)), "{:?}", ramped.elapsed);
    assert_eq!(ramped.results[0].runtime, Span::millis(50), "the ramp does not count");
}

#[test]
fn rates_and_pauses_are_kept() {
    let of = |more: &str| {
        let text = format!("[w]\nrw=randwrite\ndirect=1\nbs=4k\ntime_based\nruntime=1\n{more}");
        writes(&run(&text).results[0]).0
    };
    assert!((249..=251).contains(&of("rate=1000k\n")));
    assert!((399..=401).contains(&of("rate_iops=400\n")));
    assert!((340..=460).contains(&of("rate_iops=400\nrate_process=poisson\n")));
    // Ten requests, and then a pause of 10 ms.
    let paused = of("thinktime=10ms\nthinktime_blocks=10\n");
    assert!((900..=1000).contains(&paused), "{paused}");
    assert!(of("") > 20_000, "without all that");
}

#[test]
fn depth_batches_and_low_marks_are_those_asked_for() {
    let of = |more: &str| {
        let text = format!(
            "[r]\nrw=randread\ndirect=1\nioengine=libaio\nbs=4k\niodepth=16\nsize=16m\n{more}"
        );
        run(&text).results.remove(0)
    };
    let plain = of("");
    assert!(plain.depth_levels[4] > 4000, "16 in flight: {:?}", plain.depth_levels);
    assert_eq!(plain.submit_sizes[1], 4096, "one by one: {:?}", plain.submit_sizes);
    let batched = of("iodepth_batch=16\niodepth_batch_complete_min=16\n");
    assert_eq!(batched.submit_sizes[3], 256, "16 at a time: {:?}", batched.submit_sizes);
    assert_eq!(batched.complete_sizes[3], 256, "{:?}", batched.complete_sizes);
    let low = of("iodepth_low=4\n");
    assert!(low.depth_levels[..4].iter().sum::<u64>() > 2000, "{:?}", low.depth_levels);
    let calls = of("ioengine=psync\n");
    assert_eq!(calls.depth_levels[0], 4096, "one call after the other: {:?}", calls.depth_levels);
}

#[test]
fn buffered_writes_return_before_the_members_have_them_and_syncs_do_not() {
    let disk = volume("hdd-2011-7200");
    let result = |more: &str| run_on(&disk, &format!("[w]\nrw=write\nbs=64k\nsize=16m\n{more}"));
    let plain = result("");
    assert_eq!(writes(&plain.results[0]), (256, 16 << 20));
    assert_eq!(
        plain.results[0].runtime,
        Span::ZERO,
        "the data fits into memory, and work has no cost"
    );
    assert_eq!(
        (plain.client.1, plain.dirty),
        (Bytes::mib(16), Bytes(0)),
        "the close writes the data back"
    );
    let synced = result("end_fsync=1\n");
    assert_eq!(synced.results[0].syncs.count(), 1);
    assert!(synced.results[0].runtime > Span::millis(50), "{:?}", synced.results[0].runtime);
    let durable = result("sync=1\n");
    let mean = durable.results[0].directions[1].completion.mean_ns();
    assert!(mean > 4e6, "each waits for a turn of the disk: {mean} ns");
    assert!(durable.members[0].traffic.flushes >= 200, "{:?}", durable.members[0].traffic);
}

#[test]
fn what_was_written_or_read_is_in_memory_and_reads_run_ahead() {
    let disk = volume("hdd-2011-7200");
    let again = run_on(
        &disk,
        "[w]\nrw=write\nbs=64k\nsize=16m\n[r]\nstonewall\nrw=read\nbs=4k\nsize=16m\n",
    );
    assert_eq!(reads(&again.results[1]), (4096, 16 << 20));
    assert!(again.client.0 < Bytes::kib(256), "only readahead reads members: {:?}", again.client);
    let cold = run_on(&disk, "[r]\nrw=read\nbs=4k\nsize=16m\noffset=64m\n");
    assert!(
        (16..17).contains(&(cold.client.0.0 >> 20)),
        "a window more at most: {:?}",
        cold.client
    );
    let waited = cold.results[0].directions[0].completion.levels()[20..].iter().sum::<u64>();
    assert!(waited < 300, "{waited} of 4096 reads waited for the disk");
}

#[test]
fn direct_writes_that_are_to_be_durable_carry_fua_and_trims_are_trims() {
    let sync =
        run_on(&volume("hdd-2011-7200"), "[w]\nrw=randwrite\ndirect=1\nsync=dsync\nsize=1m\n");
    let plain = run_on(&volume("hdd-2011-7200"), "[w]\nrw=randwrite\ndirect=1\nsize=1m\n");
    let mean = |of: &Outcome| of.results[0].directions[1].completion.mean_ns();
    assert!(mean(&sync) > mean(&plain), "{} {}", mean(&sync), mean(&plain));
    let trims = run("[t]\nrw=trim\nbs=1m\nsize=64m\n");
    assert_eq!(trims.results[0].directions[Direction::Trim as usize].total.count(), 64);
    assert_eq!(trims.client, (Bytes(0), Bytes(0)));
}

#[test]
fn a_run_can_be_stopped_and_is_the_same_again() {
    let jobs = jobs_of("[w]\nrw=randwrite\ndirect=1\ntime_based\nruntime=10\n");
    let run = || {
        let mut looks = 0;
        jobs::run(&volume("ssd-sata-dc-2019"), &jobs, &mut |_| {
            looks += 1;
            looks < 5
        })
        .unwrap()
    };
    let first = run();
    assert!(matches!(first.stop, Stop::Interrupted(_)), "{:?}", first.stop);
    assert!(first.elapsed < Span::secs(1));
    assert!(writes(&first.results[0]).0 > 100);
    assert_eq!(writes(&first.results[0]), writes(&run().results[0]));
}

/// A second of random reads, with these faults.
fn with_faults(level: Level, plan: &str, text: &str) -> Outcome {
    let mut volume = volume("ssd-sata-dc-2019");
    volume.level = Some(level);
    volume.faults = faults::parse(plan, 4).unwrap();
    jobs::run(&volume, &jobs_of(text), &mut |_| true).unwrap()
}

const READS: &str =
    "[r]\nrw=randread\ndirect=1\nioengine=libaio\niodepth=8\ntime_based\nruntime=300ms\n";

#[test]
fn a_member_that_fails_is_computed_from_the_others_from_then_on() {
    // A write comes first: a failure is recorded if the array is dirty.
    let mixed = READS.replace("randread", "randrw");
    let sound = with_faults(Level::Raid5, "slow=0x1@0s", &mixed);
    assert_eq!((sound.stop, sound.recovered, &sound.events[..]), (Stop::Done, Bytes(0), &[][..]));
    let failed = with_faults(Level::Raid5, "fail=1@100ms", &mixed);
    assert_eq!(
        (failed.stop, failed.answered.1),
        (Stop::Done, 0),
        "the failure is hidden from clients"
    );
    assert!(!failed.members[1].in_sync && failed.members[0].in_sync);
    let (at, what) = &failed.events[0];
    assert!(
        what == "member 1 failed" && (100..110).contains(&(at.0 / 1_000_000)),
        "{:?}",
        failed.events
    );
    assert!(failed.recovered > Bytes(1 << 20), "{:?}", failed.recovered);
    // A second failed member is more than RAID 5 tolerates.
    let lost = with_faults(Level::Raid5, "fail=1@100ms,fail=2@150ms", &mixed);
    assert!(matches!(lost.stop, Stop::Failed(at) if at.0 > 150_000_000), "{:?}", lost.stop);
    assert!(lost.answered.1 > 0 && lost.results[0].error == 5);
    let borne = with_faults(Level::Raid6, "fail=1@100ms,fail=2@150ms", &mixed);
    assert_eq!((borne.stop, borne.answered.1), (Stop::Done, 0));
}

#[test]
fn blocks_that_cannot_be_read_are_computed_and_written_again() {
    let outcome = with_faults(Level::Raid5, "media=2/50", READS);
    assert_eq!((outcome.stop, outcome.answered.1), (Stop::Done, 0));
    assert!(outcome.unreadable > 10, "{}", outcome.unreadable);
    // Each block fails twice: once in the read past the cache, and again for the stripe.
    let blocks = outcome.members[2].corrected / 8;
    assert!((outcome.unreadable / 3..=outcome.unreadable).contains(&blocks), "{outcome:?}");
    assert!(outcome.members[2].in_sync && outcome.recovered > Bytes(0));
    assert!(outcome.members.iter().enumerate().all(|(n, of)| n == 2 || of.corrected == 0));
}

#[test]
fn a_slow_member_slows_the_volume_from_then_on() {
    let (sound, slow) = (
        with_faults(Level::Raid5, "slow=0x1@0s", READS),
        with_faults(Level::Raid5, "slow=0x20@150ms", READS),
    );
    let count = |of: &Outcome| reads(&of.results[0]).0 as f64;
    let share = count(&slow) / count(&sound);
    assert!((0.5..0.85).contains(&share), "half of the time as before: {share}");
}

#[test]
fn faults_that_are_drawn_are_borne() {
    for (level, seeds) in [(Level::Raid5, 0..6), (Level::Raid6, 6..9)] {
        for seed in seeds {
            let mut volume = volume("ssd-sata-dc-2019");
            (volume.level, volume.seed) = (Some(level), seed);
            volume.faults = faults::drawn(Some(level), 4, Span::millis(100), seed);
            assert!(volume.faults.len() >= 2, "{:?}", volume.faults);
            let text = READS.replace("randread", "randrw").replace("300ms", "100ms");
            let outcome = jobs::run(&volume, &jobs_of(&text), &mut |_| true).unwrap();
            assert_eq!((outcome.stop, outcome.answered.1), (Stop::Done, 0), "{:?}", volume.faults);
        }
    }
}

#[test]
fn a_write_back_cache_answers_from_memory_and_a_flush_waits_for_the_members() {
    let text =
        "[j]\nrw=randwrite\nbs=4k\ndirect=1\niodepth=8\nioengine=libaio\nsize=64m\nio_size=8m\n";
    let mut volume = volume("hdd-2007-7200");
    let slowest = |outcome: &Outcome| outcome.results[0].directions[1].completion.max();
    let without = run_on(&volume, text);
    assert!(without.write_back.is_none() && slowest(&without) > Span::millis(10));
    volume.write_back = Some(WriteBackConfig::of(Bytes::mib(32)));
    let with = run_on(&volume, text);
    assert_eq!(writes(&with.results[0]), (2048, 8 << 20));
    assert!(slowest(&with) < Span::millis(1), "{:?}", slowest(&with));
    let cache = with.write_back.unwrap();
    let all = WriteBackOutcome {
        limit: Bytes::mib(32),
        dirty_max: Bytes::mib(8),
        dirty: Bytes::mib(8),
        written: Bytes(0),
    };
    assert_eq!(cache, all, "the dirty pages stay below half of the limit and younger than 30 s");
    assert_eq!(with.to_json(&volume)["write_back"]["dirty_bytes_max"], 8 << 20);
    let flushed = run_on(&volume, &format!("{text}end_fsync=1\n"));
    let cache = flushed.write_back.unwrap();
    assert_eq!((cache.dirty, cache.written), (Bytes(0), Bytes::mib(8)));
    assert!(flushed.results[0].syncs.max() > Span::millis(100));
    // The load writes twice the size of the cache: writes without room wait until data is written
    // back to the members, and the limit is never exceeded.
    volume.write_back = Some(WriteBackConfig::of(Bytes::mib(4)));
    let small = run_on(&volume, text);
    let cache = small.write_back.unwrap();
    assert!((Bytes::mib(2)..=Bytes::mib(4)).contains(&cache.dirty_max), "{cache:?}");
    assert!(slowest(&small) > Span::millis(1) && cache.written >= Bytes::mib(4), "{cache:?}");
}

/// A writer that is faster than its drive is throttled by the rules of the named kernel.
#[test]
fn the_page_cache_goes_by_the_kernel_that_is_named() {
    let text = "[j]\nrw=write\nbs=1m\nsize=256m\nioengine=sync\n";
    let mut volume = Volume { memory: Bytes::mib(64), ..volume("hdd-2007-7200") };
    let mut found = |kernel| {
        volume.kernel = kernel;
        let outcome = run_on(&volume, text);
        outcome.results[0].directions[1].completion.max()
    };
    let kernels = [Kernel::V2_6_24, Kernel::V3_1, Kernel::named("mainline-6.12").unwrap()];
    let [old, vanilla, io_less] = kernels.map(&mut found);
    assert!(old != vanilla && vanilla != io_less, "{old:?} {vanilla:?} {io_less:?}");
}

/// A volume with stripes too large for its load is detected for every goal; a fixed parameter is
/// not changed, and a parameter without effect keeps its value.
#[test]
fn advice_finds_a_planted_wrong_setting_and_leaves_what_makes_no_difference() {
    let job =
        "[w]\nrw=randwrite\nbs=4k\ndirect=1\nioengine=libaio\niodepth=16\nio_size=2m\nsize=256m\n";
    let load = Load::Jobs(jobs_of(job));
    let mut wrong = volume("ssd-sata-dc-2019");
    wrong.knobs.set(wrong.knobs.parse("stripe_size", "65536").unwrap());
    let fixed = ["raid-devices", "stripe_cache_size", "chunk"].map(str::to_owned);
    for goal in [Goal::Throughput, Goal::P99] {
        let wanted = Wanted { load: &load, volume: &wrong, goal, runs: 3, fixed: &fixed };
        let advice = advise(&wanted, &|_| true).unwrap().unwrap();
        let stripe_size = advice.volume.knobs.show("stripe_size").unwrap();
        assert!(["4096", "auto"].contains(&stripe_size.as_str()), "{goal:?}: {stripe_size}");
        assert_eq!((advice.volume.members.len(), advice.volume.chunk), (4, Bytes::kib(64)));
        assert_eq!(advice.volume.seed, wrong.seed);
        let step = advice.steps.iter().find(|step| step.name == "stripe_size").unwrap();
        let (at_first, taken) = (&step.values[0], &step.values[step.taken]);
        assert_eq!(at_first.0, "65536");
        match goal {
            Goal::Throughput => assert!(taken.1.value > 1.5 * at_first.1.value, "{step:?}"),
            Goal::P99 => assert!(taken.1.value * 1.5 < at_first.1.value, "{step:?}"),
        }
        assert!(advice.next.is_some());
        // The found volume is advised because it is better than the given volume.
        let given = advice.given.unwrap();
        assert!(goal.is_better(&given.ratio), "{given:?}");
        assert!(given.differs.contains(&("stripe_size", "65536".to_owned())), "{given:?}");
    }
    let fixed = ["raid-devices", "stripe_size", "chunk", "priority", "stripe_cache_bytes"];
    let fixed = fixed.map(str::to_owned);
    let wanted = Wanted { load: &load, volume: &wrong, goal: Goal::P99, runs: 2, fixed: &fixed };
    let error = advise(&wanted, &|_| true).unwrap_err().to_string();
    assert!(error.contains("found nothing to vary"), "{error}");
    // The callback stops the search.
    let wanted = Wanted { fixed: &[], ..wanted };
    assert!(advise(&wanted, &|_| false).unwrap().is_none());
}

/// The given volume is advised if no volume that was tried is better by seeds that the search has
/// not used. Other stripe sizes are tried with the same memory for the stripe cache.
#[test]
fn advice_keeps_the_defaults_where_nothing_is_better() {
    let job =
        "[r]\nrw=randread\nbs=4k\ndirect=1\nioengine=libaio\niodepth=8\nio_size=4m\nsize=256m\n";
    let load = Load::Jobs(jobs_of(job));
    let mut given = volume("ssd-sata-dc-2019");
    given.knobs = Knobs { scheduler: SchedulerKind::MqDeadline, ..Knobs::default() };
    let fixed = ["raid-devices", "chunk"].map(str::to_owned);
    let wanted = Wanted { load: &load, volume: &given, goal: Goal::P99, runs: 3, fixed: &fixed };
    let advice = advise(&wanted, &|_| true).unwrap().unwrap();
    assert!(advice.given.is_none(), "{advice:?}");
    let shown = |volume: &Volume, knob: &str| volume.knobs.show(knob);
    for knob in ["stripe_size", "stripe_cache_bytes", "priority"] {
        assert_eq!(shown(&advice.volume, knob), shown(&given, knob));
    }
    let next = advice.next.unwrap();
    assert!(!wanted.goal.is_better(&next.ratio.inverse()) && !next.differs.is_empty(), "{next:?}");
    let step = advice.steps.iter().find(|step| step.name == "stripe_cache_bytes").unwrap();
    assert_eq!(step.values.len(), 3, "{step:?}");
}

/// A sync of members of 256 MiB beside paced 4 KiB writes.
fn synced(action: SyncAction, level: Level, seconds: u64) -> Outcome {
    let volume = Volume {
        level: Some(level),
        members: Volume::members(&["ssd-sata-dc-2019".to_owned()], 4).unwrap(),
        member_size: Some(Bytes::mib(256)),
        sync: Some(action),
        knobs: Knobs { scheduler: SchedulerKind::MqDeadline, ..Knobs::default() },
        ..volume("null")
    };
    let text = format!(
        "[paced]\nrw=randwrite\nbs=4k\ndirect=1\nrate_iops=200\ntime_based\n\
         runtime={seconds}\nsize=64m"
    );
    run_on(&volume, &text)
}

#[test]
fn a_sync_beside_a_load_passes_every_member_and_says_how_fast() {
    let actions = [SyncAction::Resync, SyncAction::Recover, SyncAction::Check, SyncAction::Repair];
    for level in [Level::Raid1, Level::Raid4, Level::Raid5, Level::Raid6, Level::Raid10] {
        for action in actions {
            let outcome = synced(action, level, 6);
            let sync = outcome.sync.as_ref().unwrap();
            let what = format!("{level} {}: {sync:?}", sync.action);
            assert!(sync.finished && sync.completed == sync.total, "{what}");
            assert!(sync.total.bytes() > Bytes::mib(250), "{what}");
            assert!(sync.speed() > 40e6 && sync.took > Span::millis(200), "{what}");
            // The sync covered every member: it read those that it compares and wrote the last one.
            let read = Bytes(outcome.members[0].traffic.sectors_read * 512);
            let written = Bytes(outcome.members[3].traffic.sectors_written * 512);
            match action {
                SyncAction::Recover => assert!(written > Bytes::mib(250), "{what}: {written:?}"),
                _ => assert!(read > Bytes::mib(250), "{what}: {read:?}"),
            }
            assert!(outcome.members.iter().all(|it| it.in_sync && !it.rebuilding), "{what}");
        }
    }
    assert!(run_on(&volume("null"), "[a]\nrw=read\nsize=1m\ndirect=1").sync.is_none());
}

#[test]
fn a_sync_that_outlives_its_load_is_told_and_costs_it_something() {
    let with = |sync, max| {
        let mut knobs = Knobs { scheduler: SchedulerKind::MqDeadline, ..Knobs::md() };
        let knob = knobs.parse("sync_speed_max", max).unwrap();
        knobs.set(knob);
        let members = Volume::members(&["hdd-2011-7200".to_owned()], 4).unwrap();
        let volume = Volume { member_size: None, members, sync, knobs, ..volume("null") };
        run_on(
            &volume,
            "[job]\nrw=randread\nbs=4k\niodepth=4\ndirect=1\ntime_based\nruntime=3\nsize=1g",
        )
    };
    let mut fast = with(Some(SyncAction::Recover), "200000");
    let slow = with(Some(SyncAction::Recover), "2000").sync.unwrap();
    let without = with(None, "200000");
    fast.compare_without_sync(&without);
    assert!(fast.members[3].rebuilding && !fast.members[3].in_sync);
    let sync = fast.sync.unwrap();
    assert!(!sync.finished && sync.left() > Some(Span::secs(600)), "{sync:?}");
    assert!(sync.speed() > 3.0 * slow.speed() && slow.speed() < 4e6, "{sync:?}, {slow:?}");
    let (name, alone, beside) = &sync.jobs[0];
    assert!(name == "job" && beside.rate < 0.9 * alone.rate, "{sync:?}");
}

#[test]
fn a_level_without_redundancy_has_nothing_to_sync() {
    let refused = |level, members| {
        let members = Volume::members(&["null".to_owned()], members).unwrap();
        let sync = Some(SyncAction::Check);
        let volume = Volume { level, members, sync, ..volume("null") };
        volume.machine().err().map(|error| error.to_string())
    };
    let expected = "expected a level with redundancy: 1, 4, 5, 6 or 10";
    for (level, members, found) in [
        (Some(Level::Raid0), 2, "raid0"),
        (Some(Level::Linear), 2, "linear"),
        (None, 1, "a single member"),
    ] {
        let error = refused(level, members).unwrap();
        assert_eq!(error, format!("volume: sync: found {found}, {expected}"));
    }
    assert_eq!(refused(Some(Level::Raid5), 3), None);
}
