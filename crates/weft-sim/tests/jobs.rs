//! Tests of fio jobs on a simulated volume: direct I/O as in fio, and the requests of its members.

use std::cell::RefCell;
use std::rc::Rc;

use weft_engine::RequestOp;
use weft_engine::knobs::{Knobs, StripeSize, Writes};
use weft_sim::machine::{CostTable, Costs, Machine, MachineParts, Pid};
use weft_sim::workload::jobs::{Io, Job, Pace, Plug};
use weft_units::rng::Rng;
use weft_units::{ByteRange, Bytes, Sectors, Span, Time};

/// Four members with chunks of 512 KiB, as in the measurements of patch 004; the array is never
/// marked clean again.
fn parts(model: &str, stripe_size: u64) -> MachineParts {
    let stripe_size = StripeSize::new(stripe_size).expect("a size that md has");
    let knobs = Knobs { stripe_size, safe_mode_delay: Span::ZERO, ..Knobs::md() };
    let member_size = (model == "null").then_some(Sectors(1 << 21));
    MachineParts { member_size, ..MachineParts::raid5(model, Bytes::kib(512), knobs) }
}

fn write(start: u64, len: u64) -> Io {
    Io { op: RequestOp::Write, range: ByteRange::new(start, len) }
}

fn one_after_the_other(len: u64, count: u64) -> Box<dyn Iterator<Item = Io>> {
    Box::new((0..count).map(move |n| write(n * len, len)))
}

fn random(op: RequestOp, size: Bytes, seed: u64) -> Box<dyn Iterator<Item = Io>> {
    let mut rng = Rng::new(seed);
    let next = move || Io { op, range: ByteRange::new(rng.below(size.0 / 4096) * 4096, 4096) };
    Box::new(std::iter::repeat_with(next))
}

fn add(machine: &mut Machine, pace: Pace, asks: Box<dyn Iterator<Item = Io>>) -> Pid {
    machine.add_with(|pid| Box::new(Job::new(pid, pace, asks)))
}

/// A machine with an array that was marked dirty by a first write, so that later writes do not wait
/// for the superblock update.
fn in_use(parts: &MachineParts) -> Machine {
    let mut machine = Machine::new(parts);
    add(&mut machine, Pace::depth(1), Box::new(std::iter::once(write(512 << 20, 4096))));
    machine.run(an_hour());
    machine
}

fn an_hour() -> Time {
    Time(0) + Span::secs(3600)
}

#[test]
fn two_clones_write_the_same_from_the_start_with_64_in_flight_each() {
    // Statement 26. There is room for all requests, so no clone is blocked.
    let mut parts = parts("null", 4096);
    parts.knobs.stripe_cache_size = 32_768;
    let mut machine = Machine::new(&parts);
    machine.host.watch_requests();
    let clones: Vec<Pid> = (0..2)
        .map(|_| add(&mut machine, Pace::depth(64), one_after_the_other(1 << 20, 200)))
        .collect();
    machine.run(an_hour());
    let mib = |n: u64| ByteRange::new(n << 20, 1 << 20);
    let seen = machine.host.requests_seen();
    let both: Vec<ByteRange> = (0..64).chain(0..64).map(mib).collect();
    assert_eq!(seen[..128], both, "each fills its depth from offset 0");
    for pid in clones {
        let job: &Job = machine.process(pid);
        assert_eq!((job.found(RequestOp::Write).requests, job.deepest()), (200, 64));
    }
    assert_eq!(machine.host.answered(), (400, 0), "answers, failures");
}

#[test]
fn a_blocked_job_hands_no_request_over() {
    // A thousand stripes hold four of these requests.
    let mut parts = parts("hdd-2007-7200", 4096);
    parts.knobs.stripe_cache_size = 1024;
    let deepest = |plug| {
        let mut machine = in_use(&parts);
        let pace = Pace { plug, ..Pace::depth(64) };
        let pid = add(&mut machine, pace, one_after_the_other(3 << 20, 100));
        machine.run(an_hour());
        let job: &Job = machine.process(pid);
        assert_eq!(job.found(RequestOp::Write).bytes, Bytes::mib(300));
        job.deepest()
    };
    assert_eq!(deepest(Plug::Moment), 64, "all requests are one plug");
    let alone = deepest(Plug::Request);
    assert!((2..=8).contains(&alone), "{alone} in flight");
}

#[test]
fn no_job_is_left_without_stripes_by_others() {
    for (plug, stripe) in
        [(Plug::Moment, 0), (Plug::Moment, 2000), (Plug::Request, 0), (Plug::Request, 2000)]
    {
        let mut parts = parts("ssd-sata-2020-slowflush", 4096);
        parts.costs = Costs { stripe, bio: stripe / 8, ..Costs::ZERO };
        let mut machine = in_use(&parts);
        let pace = Pace { plug, run_time: Some(Span::secs(1)), ..Pace::depth(64) };
        let clones: Vec<Pid> = (0..3)
            .map(|_| add(&mut machine, pace, one_after_the_other(1 << 20, 100_000)))
            .collect();
        machine.run(an_hour());
        let found = |pid: &Pid| machine.process::<Job>(*pid).found(RequestOp::Write).requests;
        let found: Vec<u64> = clones.iter().map(found).collect();
        let (least, most) = (found.iter().min().copied(), found.iter().max().copied());
        assert!(
            least.zip(most).is_some_and(|(least, most)| most <= 2 * least),
            "{plug:?}, {stripe}: {found:?}"
        );
    }
}

/// Sectors that each member read and wrote for a write of 4 KiB at `at`, with nothing in the cache.
fn alone(stripe_size: u64, at: u64) -> Vec<(u64, u64)> {
    let mut machine = in_use(&parts("ssd-sata-dc-2019", stripe_size));
    let before: Vec<_> = machine.host.traffic().collect();
    add(&mut machine, Pace::depth(1), Box::new(std::iter::once(write(at, 4096))));
    machine.run(an_hour());
    assert_eq!(machine.host.answered(), (2, 0));
    let moved = machine.host.traffic().zip(before);
    moved
        .map(|(now, then)| {
            (now.sectors_read - then.sectors_read, now.sectors_written - then.sectors_written)
        })
        .collect()
}

#[test]
fn a_small_write_alone_moves_four_times_the_stripe_size() {
    // Statement 27. Chunk 0 lies on member 0, the parity of its stripe on member 3.
    assert_eq!(alone(65_536, 0), [(128, 128), (0, 0), (0, 0), (128, 128)], "old data, old parity");
    assert_eq!(alone(4096, 0), [(0, 8), (8, 0), (8, 0), (0, 8)], "the other data");
    // Chunk 4 is the second of the second stripe: parity on member 2, data from member 3 on.
    let at = 4 * (512 << 10) + 8192;
    assert_eq!(alone(65_536, at), [(128, 128), (0, 0), (128, 128), (0, 0)]);
    assert_eq!(alone(4096, at), [(0, 8), (8, 0), (0, 8), (8, 0)]);
    for (stripe_size, kib) in [(65_536, 256), (4096, 16)] {
        let sectors: u64 =
            alone(stripe_size, at).iter().map(|(read, written)| read + written).sum();
        assert_eq!(sectors / 2, kib);
    }
}

/// Runs two clones that write 4 KiB at random places for some time.
fn random_writes(parts: &MachineParts, pace: Pace) -> (Machine, Vec<Pid>) {
    let mut machine = Machine::new(parts);
    let size = machine.host.size();
    let clones = (0..2)
        .map(|n| add(&mut machine, pace, random(RequestOp::Write, size, parts.seed + n)))
        .collect();
    machine.run(an_hour());
    (machine, clones)
}

/// MB/s of two clones with 64 in flight each, and sectors read per sector written.
fn rate_of(
    parts: &MachineParts,
    asks: impl Fn(u64, Bytes) -> Box<dyn Iterator<Item = Io>>,
) -> (f64, f64) {
    let mut machine = in_use(parts);
    let size = machine.host.size();
    // In its first 300 ms the drive fills its buffer and stalls once.
    let (warm_up, run_time) = (Span::millis(300), Some(Span::millis(200)));
    let pace = Pace { plug: Plug::Request, warm_up, run_time, ..Pace::depth(64) };
    let clones: Vec<Pid> = (0..2).map(|clone| add(&mut machine, pace, asks(clone, size))).collect();
    machine.run(an_hour());
    let bytes = |pid: &Pid| machine.process::<Job>(*pid).found(RequestOp::Write).bytes.0;
    let bytes: u64 = clones.iter().map(bytes).sum();
    let sectors =
        machine.host.traffic().map(|traffic| (traffic.sectors_read, traffic.sectors_written));
    let (read, written) = sectors.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    (bytes as f64 / 2e5, read as f64 / written as f64)
}

#[test]
fn auto_is_as_fast_as_the_better_stripe_size() {
    // Patch 004's jobs of fio: 1 MiB writes at the same and at other places, and 4 KiB at random.
    let one_by_one = |first: u64| {
        let write = move |n| write((first + n) << 20, 1 << 20);
        Box::new((0..).map(write)) as Box<dyn Iterator<Item = Io>>
    };
    let same = |_: u64, _: Bytes| one_by_one(0);
    let apart = |clone: u64, size: Bytes| one_by_one(clone * (size.0 >> 21));
    let anywhere = |clone: u64, size: Bytes| random(RequestOp::Write, size, clone);
    let frozen = |factor| CostTable::named("frozen").expect("the table exists").costs.times(factor);
    let fixed = |bytes| parts("ssd-sata-2020-slowflush", bytes);
    let auto = || {
        let knobs = Knobs { safe_mode_delay: Span::ZERO, ..Knobs::default() };
        MachineParts { knobs, ..fixed(4096) }
    };
    type Asks<'a> = &'a dyn Fn(u64, Bytes) -> Box<dyn Iterator<Item = Io>>;
    let cases: [(&str, Asks<'_>, u64); 4] =
        [("same", &same, 0), ("same", &same, 2), ("apart", &apart, 2), ("anywhere", &anywhere, 2)];
    for (name, asks, factor) in cases {
        let costs = frozen(factor);
        let [small, large, auto] = [fixed(4096), fixed(65_536), auto()]
            .map(|parts| rate_of(&MachineParts { costs, ..parts }, asks).0);
        assert!(
            auto >= small.max(large) * 0.99,
            "{name}, costs × {factor}: {small} {large} {auto}"
        );
    }
    // By default the volume waits for the rest of a partial stripe, which follows soon; with
    // `writes=sync` it prereads the stripe at once.
    let (_, waits) = rate_of(&auto(), same);
    let mut hasty = auto();
    hasty.knobs.writes = Writes::Sync;
    let (_, reads) = rate_of(&hasty, same);
    assert!(waits < 0.02 && reads > 0.1, "{waits} {reads}");
}

#[test]
fn what_is_in_flight_is_rate_times_latency() {
    // Statement 16, on solid-state drives and on disks, without and with CPU time.
    for (model, costs) in [
        ("ssd-sata-dc-2019", Costs { stripe: 3000, bio: 2000, ..Costs::ZERO }),
        ("hdd-2007-7200", Costs::ZERO),
    ] {
        let seconds = if model.starts_with("hdd") { 60 } else { 2 };
        let mut parts = parts(model, 4096);
        parts.costs = costs;
        let (warm_up, run_time) = (Span::millis(200), Some(Span::secs(seconds)));
        let pace = Pace { warm_up, run_time, ..Pace::depth(16) };
        let (machine, clones) = random_writes(&parts, pace);
        for pid in clones {
            let job: &Job = machine.process(pid);
            let found = job.found(RequestOp::Write);
            assert_eq!(job.measured(), Span::secs(seconds));
            let rate = found.requests as f64 / seconds as f64;
            let latency = found.time.0 as f64 / 1e9 / found.requests as f64;
            let apart = rate * latency / job.in_flight() - 1.0;
            assert!(apart.abs() < 0.005, "{model}: {apart}; {} in flight", job.in_flight());
            assert!((12.0..=16.0).contains(&job.in_flight()), "{model}: {}", job.in_flight());
            let median = found.latencies.value_at_quantile(0.5);
            assert!((found.latencies.min()..=found.latencies.max()).contains(&median));
        }
        let elapsed = machine.host.now().0;
        assert!(machine.host.engine_work().0 <= elapsed);
        for drive in machine.host.drives() {
            assert!(drive.counters().link_busy.0 <= elapsed, "one link");
        }
    }
}

#[test]
fn a_rate_and_pauses_are_kept() {
    let parts = parts("ssd-sata-dc-2019", 4096);
    // 400 a second, of many thousands that would be possible.
    let rate = Some(Bytes(400 * 4096));
    let run_time = Some(Span::secs(2));
    let (machine, clones) = random_writes(&parts, Pace { rate, run_time, ..Pace::depth(8) });
    for pid in clones {
        let found = machine.process::<Job>(pid).found(RequestOp::Write).requests;
        assert!((798..=801).contains(&found), "{found} requests");
    }
    // Four at a time, and then a pause of 10 ms.
    let pace = Pace { think: Span::millis(10), think_after: 4, run_time, ..Pace::depth(8) };
    let (machine, clones) = random_writes(&parts, pace);
    for pid in clones {
        let job: &Job = machine.process(pid);
        let found = job.found(RequestOp::Write).requests;
        assert_eq!(job.deepest(), 4);
        assert!((600..=800).contains(&found), "{found} requests");
    }
}

#[test]
fn a_job_that_ends_tells_of_each_request() {
    let mut machine = Machine::new(&parts("ssd-sata-dc-2019", 65_536));
    let told = Rc::new(RefCell::new(Vec::new()));
    let (watcher, size) = (Rc::clone(&told), machine.host.size());
    let reads = random(RequestOp::Read, size, 5).take(500);
    let flush = Io { op: RequestOp::Flush, range: ByteRange::new(0, 0) };
    let asks = Box::new(reads.chain(std::iter::once(flush)));
    let pid = machine.add_with(|pid| {
        let job = Job::new(pid, Pace::depth(4), asks);
        Box::new(job.watched(Box::new(move |ended| watcher.borrow_mut().push(*ended))))
    });
    machine.run(an_hour());
    let job: &Job = machine.process(pid);
    let (reads, told) = (job.found(RequestOp::Read), told.borrow());
    assert_eq!((reads.requests, reads.bytes), (500, Bytes(500 * 4096)));
    assert_eq!(job.found(RequestOp::Flush).requests, 1);
    assert_eq!(told.len(), 501);
    let last = told.iter().map(|ended| ended.ended).max().expect("requests have ended");
    assert_eq!(job.measured(), last.since(Time(0)));
    let sum: u64 = told
        .iter()
        .filter(|ended| ended.io.op == RequestOp::Read)
        .map(|ended| ended.ended.since(ended.begun).0)
        .sum();
    assert_eq!(sum, reads.time.0);
    assert!(told.iter().all(|ended| (1..=4).contains(&ended.in_flight)));
}

#[test]
fn the_same_seed_gives_the_same_latencies() {
    let run = |seed| {
        let mut parts = parts("ssd-sata-2020-slowflush", 4096);
        (parts.seed, parts.costs.stripe) = (seed, 2000);
        let pace = Pace { run_time: Some(Span::millis(300)), ..Pace::depth(32) };
        let (machine, clones) = random_writes(&parts, pace);
        let traffic: Vec<_> = machine.host.traffic().collect();
        let found = |pid: &Pid| {
            let found = machine.process::<Job>(*pid).found(RequestOp::Write);
            (found.requests, found.time, found.latencies.value_at_quantile(0.99))
        };
        (clones.iter().map(found).collect::<Vec<_>>(), traffic, machine.host.now())
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7).0, run(8).0, "another seed has other places");
}
