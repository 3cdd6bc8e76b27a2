//! Tests of the write-back cache's speed: random writes to RAID 5 on disks with and without the
//! cache, each with the flush at the end.

use weft_engine::knobs::Knobs;
use weft_engine::{RequestOp, WriteBackConfig};
use weft_sim::machine::{Machine, MachineParts};
use weft_sim::workload::jobs::{Io, Job, Pace};
use weft_units::rng::Rng;
use weft_units::{ByteRange, Bytes, Span, Time};

/// Returns the time of `count` random 4 KiB writes to the first `area` bytes, 32 at a time, and of
/// the flush after them, and the sectors that the members read.
fn random_writes(model: &str, cache: Option<Bytes>, area: Bytes, count: usize) -> (Span, u64) {
    let write_back = cache.map(WriteBackConfig::of);
    let knobs = Knobs { safe_mode_delay: Span::ZERO, ..Knobs::default() };
    let parts = MachineParts { write_back, ..MachineParts::raid5(model, Bytes::kib(512), knobs) };
    let mut machine = Machine::new(&parts);
    let mut rng = Rng::new(14);
    let ask = move |_| {
        let range = ByteRange::new(rng.below(area.0 / 4096) * 4096, 4096);
        Io { op: RequestOp::Write, range }
    };
    let pace = Pace { last_flushes: 1, ..Pace::depth(32) };
    let job = Box::new((0..count).map(ask));
    machine.add_with(|pid| Box::new(Job::new(pid, pace, job)));
    machine.run(Time(0) + Span::secs(36_000));
    let (answered, failed) = machine.host.answered();
    assert_eq!((answered, failed), (count as u64 + 1, 0));
    if let Some(cache) = machine.host.snapshot().write_back {
        assert_eq!((cache.dirty_pages, cache.writeback_pages), (0, 0), "the flush wrote all");
        assert!(machine.host.dirty_pages_max() <= cache.limit_pages);
    }
    let reads = machine.host.traffic().map(|member| member.sectors_read).sum();
    (machine.host.now().since(Time(0)), reads)
}

/// Speed-up by a cache: time without it divided by time with it.
fn gain(model: &str, cache: Bytes, area: Bytes, count: usize) -> f64 {
    let without = random_writes(model, None, area, count).0;
    let with = random_writes(model, Some(cache), area, count).0;
    without.0 as f64 / with.0 as f64
}

#[test]
fn random_writes_to_raid5_on_disks_are_three_times_as_fast_with_a_cache() {
    // 128 MiB of writes over 256 MiB, with a quarter of that as a cache.
    for (model, least) in [("hdd-2007-7200", 3.0), ("hdd-2011-7200", 3.0), ("hdd-2022-20tb", 3.0)] {
        let gain = gain(model, Bytes::mib(64), Bytes::mib(256), 32_768);
        println!("{model}: {gain:.1}");
        assert!((least..20.0).contains(&gain), "{model}: {gain:.2}");
    }
}

#[test]
fn a_cache_of_the_size_of_the_area_makes_full_stripes() {
    // On average each block is written four times: stripes fill, and parity needs no reads.
    let area = Bytes::mib(32);
    let (without, reads_without) = random_writes("hdd-2011-7200", None, area, 32_768);
    let (with, reads) = random_writes("hdd-2011-7200", Some(Bytes::mib(64)), area, 32_768);
    let gain = without.0 as f64 / with.0 as f64;
    println!("{gain:.1}, {reads} of {reads_without}");
    assert!(gain > 10.0, "{gain:.1}");
    assert!(reads * 10 < reads_without, "{reads} of {reads_without} sectors are read");
}

#[test]
fn what_is_written_once_and_flushed_at_once_gains_nothing() {
    // Counterpart: a flush after each write leaves the cache one write to sort.
    let one = |cache| random_writes("hdd-2011-7200", cache, Bytes::mib(1024), 1).0;
    let (without, with) = (one(None), one(Some(Bytes::mib(64))));
    let ratio = without.0 as f64 / with.0 as f64;
    assert!((0.5..1.5).contains(&ratio), "{ratio:.2}");
}
