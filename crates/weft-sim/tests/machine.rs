//! Tests of time in a simulated machine, against calculated values.

use weft_engine::knobs::{Activation, CacheForm, Knobs, PriorityRule, Writes};
use weft_engine::layout::geometry::Geometry;
use weft_engine::page_cache::{Kernel, PoolConfig};
use weft_ondisk::Level;
use weft_sim::drive::Model;
use weft_sim::machine::{Costs, Machine, MachineParts, Pid, Sizes};
use weft_sim::workload::dd::{Dd, Device};
use weft_units::{Bytes, Sectors, Span, Time};

/// Four disks with chunks of 64 KiB, as in the measurements of patch 000.
fn parts(model: &str, knobs: Knobs) -> MachineParts {
    MachineParts::raid5(model, Bytes::kib(64), knobs)
}

fn knobs_of_2008(priority: PriorityRule) -> Knobs {
    Knobs {
        priority,
        activation: Activation::AtUnplug,
        stripe_cache_form: CacheForm::Of2008,
        writes: Writes::Gather,
        ..Knobs::md()
    }
}

/// A `dd` of some MiB onto the block device, with a GiB of memory under 2.6.24.
fn dd(parts: &MachineParts, mib: u64) -> (Machine, Pid) {
    let mut machine = Machine::new(parts);
    let pool = PoolConfig::new(Kernel::V2_6_24, 4, 262_144, 230_000);
    machine.add_page_cache(pool, Box::new(Device), Bytes(4096));
    let dd = machine.add_with(|pid| Box::new(Dd::new(pid, Bytes::mib(1), mib)));
    (machine, dd)
}

fn an_hour() -> Time {
    Time(0) + Span::secs(3600)
}

/// Sectors that all members together read and wrote.
fn moved(machine: &Machine) -> (u64, u64) {
    machine
        .host
        .traffic()
        .fold((0, 0), |sum, of| (sum.0 + of.sectors_read, sum.1 + of.sectors_written))
}

#[test]
fn dd_hands_over_one_page_after_the_other() {
    let mut parts = parts("null", knobs_of_2008(PriorityRule::Bypass));
    parts.member_size = Some(Sectors(1 << 21));
    let (mut machine, _) = dd(&parts, 256);
    machine.host.watch_requests();
    machine.run(an_hour());
    let requests = machine.host.requests_seen();
    assert_eq!(requests.len(), 256 * 256);
    let mut next = 0;
    for range in requests {
        assert_eq!((range.start.0, range.len.0), (next, 4096));
        next += 4096;
    }
    let answered = machine.host.answered();
    assert_eq!(answered, (65_536, 0), "answers, failures");
}

/// Statement 25 of `experiments.md` §7; the test before shows that pages arrive in this order.
#[test]
fn experiments_25_the_pages_of_a_stripe_are_a_chunk_apart() {
    let geometry =
        Geometry::new(Level::Raid5, 2, 4, Sectors(128), Sectors(1 << 21)).expect("an array");
    // Sector on the member, which identifies a stripe.
    let stripe = |page: u64| geometry.locate(Sectors(page * 8)).sector;
    for first in (0..1 << 12).filter(|number| number / 16 % 3 == 0) {
        let alike: Vec<u64> =
            (first..first + 48).filter(|other| stripe(*other) == stripe(first)).collect();
        assert_eq!(alike, [first, first + 16, first + 32]);
    }
}

#[test]
fn pages_counted_are_pages_written_and_nothing_stays_behind() {
    let (mut machine, pid) = dd(&parts("hdd-2007-7200", knobs_of_2008(PriorityRule::Fifo)), 300);
    machine.run(an_hour());
    let dd: &Dd = machine.process(pid);
    assert_eq!(dd.bytes(), Bytes::mib(300));
    assert!(dd.closed.expect("dd ended") >= dd.written.expect("before it was closed"));
    let cache = machine.host.page_cache();
    assert_eq!(cache.sums().total(), 0, "no page is dirty");
    assert_eq!(cache.pool().counts().total(), 0);
    // Every data page once and a page of parity per three, plus what partial stripes add.
    let (_, written) = moved(&machine);
    let least = 300 * 2048 * 4 / 3;
    assert!((least..least * 11 / 10).contains(&written), "{written} of {least}");
}

/// The first writer waits for the superblock that marks the array dirty, as in md.
#[test]
fn no_writer_goes_on_before_the_array_is_marked_dirty() {
    let (mut machine, _) = dd(&parts("hdd-2007-7200", knobs_of_2008(PriorityRule::Fifo)), 64);
    machine.host.watch_requests();
    machine.run(an_hour());
    let seen = machine.host.watched();
    let marked = seen[0].answered.expect("the request was answered");
    assert!(marked.0 > 1_000_000, "a superblock was written first: {marked:?}");
    let ahead = seen.iter().filter(|of| of.at.0 < 1_000_000).count();
    assert!(ahead <= 2, "{ahead} pages: one of dd and one of the flusher");
}

#[test]
fn patch_000_saves_prereads_and_time() {
    let found = |priority| {
        let mut parts = parts("hdd-2007-7200", knobs_of_2008(priority));
        parts.costs = Costs { bio: 3000, stripe: 2000, submit: 1000, xor: 300, ..Costs::ZERO };
        let (mut machine, pid) = dd(&parts, 512);
        machine.run(an_hour());
        let closed = machine.process::<Dd>(pid).closed.expect("dd ended");
        (closed, moved(&machine).0)
    };
    let (before, reads_before) = found(PriorityRule::Fifo);
    let (after, reads_after) = found(PriorityRule::Bypass);
    assert!(reads_after * 2 < reads_before, "{reads_after} sectors instead of {reads_before}");
    assert!(after.0 * 103 < before.0 * 100, "{after:?} instead of {before:?}");
}

#[test]
fn an_observer_sees_the_lists_and_changes_nothing() {
    let run = |priority, looks: Option<Span>| {
        let mut parts = parts("hdd-2007-7200", knobs_of_2008(priority));
        parts.costs = Costs { bio: 3000, stripe: 2000, ..Costs::ZERO };
        let (mut machine, pid) = dd(&parts, 128);
        if let Some(every) = looks {
            machine.host.watch_over_time(every);
        }
        machine.run(an_hour());
        (machine.process::<Dd>(pid).closed.expect("dd ended"), machine)
    };
    let (alone, unseen) = run(PriorityRule::Bypass, None);
    let (seen_too, seen) = run(PriorityRule::Bypass, Some(Span::millis(1)));
    assert_eq!(alone, seen_too);
    assert!(unseen.host.traffic().eq(seen.host.traffic()) && unseen.host.history().is_none());
    let history = seen.host.history().expect("samples were taken");
    let all = history.joined(1)[0];
    // Events after the last look are not in the samples.
    let (read, written) = moved(&seen);
    assert!(all.sums.read.0 <= read * 512 && all.sums.written.0 <= written * 512);
    assert!(all.sums.written.0 * 100 > written * 512 * 99, "{:?} of {written} sectors", all.sums);
    assert!(all.sums.answered.0 * 100 > Bytes::mib(128).0 * 99);
    assert!(all.sums.engine.0 * 100 > seen.host.engine_work().0 * 99);
    // The mechanism of patch 000: stripes wait on the hold list, which did not exist before it.
    assert!(all.held.most > 0 && all.active.most <= 256 && all.at_disks.most > 0, "{all:?}");
    assert!(all.mean(all.held) < f64::from(all.held.most));
    let (_, before) = run(PriorityRule::Fifo, Some(Span::millis(1)));
    let all = before.host.history().expect("samples were taken").joined(1)[0];
    assert!(all.held.most == 0 && all.delayed.most > 0, "{all:?}");
    for of in seen.host.traffic() {
        let count = |sizes: &Sizes| sizes.iter().map(|size| size.1).sum::<u64>();
        assert_eq!((count(&of.read_sizes), count(&of.write_sizes)), (of.reads, of.writes));
        let most: u64 = of.write_sizes.iter().map(|(size, count)| size.0 / 512 * count).sum();
        assert!(
            (most / 2..=most).contains(&of.sectors_written),
            "{} of {most}",
            of.sectors_written
        );
    }
}

#[test]
fn the_same_seed_takes_the_same_time() {
    let run = |seed| {
        let mut parts = parts("hdd-2007-7200", knobs_of_2008(PriorityRule::Bypass));
        (parts.seed, parts.costs) = (seed, Costs { bio: 3000, stripe: 2000, ..Costs::ZERO });
        let (mut machine, pid) = dd(&parts, 128);
        machine.run(an_hour());
        let traffic: Vec<_> = machine.host.traffic().collect();
        (machine.process::<Dd>(pid).closed, traffic, machine.host.engine_work())
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7).0, run(8).0, "platters start at other angles");
}

#[test]
fn a_busy_engine_is_a_server_of_its_own() {
    let mut parts = parts("null", knobs_of_2008(PriorityRule::Bypass));
    parts.member_size = Some(Sectors(1 << 21));
    // Each stripe is handled once at least.
    parts.costs = Costs { stripe: 100_000, ..Costs::ZERO };
    let (mut machine, pid) = dd(&parts, 64);
    machine.run(an_hour());
    let took = machine.process::<Dd>(pid).closed.expect("dd ended").0;
    let stripes = 64 * 256 / 3;
    assert!(took > stripes * 100_000, "{took} ns for {stripes} stripes");
    let work = machine.host.engine_work().0;
    assert!(work <= took, "one thread: {work} ns of work in {took}");
}

#[test]
fn a_drive_without_a_volatile_cache_never_sees_a_flush() {
    let model = Model::from_toml("kind = \"null\"\ncapacity_gb = 1\n");
    assert!(model.is_err(), "a model has all of its keys");
    let (mut machine, _) = dd(&parts("null", knobs_of_2008(PriorityRule::Bypass)), 16);
    machine.run(an_hour());
    assert!(machine.host.drives().all(|drive| !drive.volatile_cache()));
    assert!(machine.host.traffic().all(|of| of.flushes == 0 && of.writes > 0));
}
