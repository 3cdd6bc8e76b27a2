//! Tests of the contract of every drive.

use crate::bench::{BLOCK, Bench, WRITE};
use std::collections::{BTreeMap, BTreeSet};
use weft_sim::drive::{Access, Model, models};

/// Returns changes that make a model quick to set up without affecting these tests.
fn small(model: &str) -> &'static str {
    if model.starts_with("ssd") { "simulated_mib = 128" } else { "" }
}

/// Runs a mixed load of a few seconds. Returns the digest of its trace and the bench.
fn mixed(model: &str, seed: u64, count: u64) -> (u64, Bench) {
    let mut bench = Bench::of(model, small(model), seed);
    let span = bench.sectors().min(1 << 30) / BLOCK;
    let depth = bench.drive.depth().min(40) + 8;
    let volatile = bench.drive.volatile_cache();
    let wanted = move |access| {
        let plain = matches!(access, Access::Write { .. }).then_some(WRITE);
        if volatile { access } else { plain.unwrap_or(Access::Read) }
    };
    bench.closed(depth, 0, count, move |rng| {
        let length = BLOCK * (1 + rng.below(16));
        let near = rng.below(1 << 12) * BLOCK;
        let first = if rng.percent(30) { near } else { rng.below(span - 16) * BLOCK };
        match rng.below(100) {
            0..50 => (Access::Read, first, length),
            50..90 => (WRITE, first, length),
            90..95 => (wanted(Access::Write { fua: true }), first, length),
            95..98 if volatile => (Access::Flush, 0, 0),
            _ => (Access::Discard, first, length),
        }
    });
    bench.rest();
    (bench.trace.0, bench)
}

/// Statements 14 and 16 (asserted by the bench), and 15 for one drive.
#[test]
fn the_same_seed_gives_the_same_trace_and_every_command_ends_once() {
    for (model, _) in models() {
        let (first, bench) = mixed(model, 4, 3_000);
        assert_eq!(first, mixed(model, 4, 3_000).0, "{model}");
        if *model != "null" {
            assert_ne!(first, mixed(model, 5, 3_000).0, "{model}: the seed is used");
        }
        let counters = bench.drive.counters();
        assert_eq!(
            counters.reads + counters.writes + counters.flushes + counters.discards,
            bench.given(),
            "{model}: {counters:?}"
        );
    }
}

/// Statement 15: debug and release builds and other machines compute the same times.
#[test]
fn every_build_finds_the_same_times() {
    let mut found = String::new();
    for (model, _) in models() {
        found += &format!("{:016x} {model}\n", mixed(model, 4, 3_000).0);
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/drives/traces.golden");
    if std::env::var_os("WEFT_SIM_UPDATE").is_some() {
        std::fs::write(path, &found).unwrap();
    }
    let golden = std::fs::read_to_string(path).unwrap();
    assert_eq!(found, golden, "another time on purpose? WEFT_SIM_UPDATE=1");
}

/// Statement 8 for the time at which data becomes durable: data that an acknowledged flush or FUA
/// covers stays durable from then on. Data without a flush may or may not be durable.
#[test]
fn what_a_flush_answered_for_is_durable_from_then_on() {
    for (model, _) in models() {
        let mut bench = Bench::of(model, small(model), 9);
        if !bench.drive.volatile_cache() {
            continue;
        }
        let mut volatile_seen = 0;
        let mut acknowledged: BTreeSet<u64> = BTreeSet::new();
        let mut covered: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        let mut pending: BTreeMap<u64, (u64, bool)> = BTreeMap::new();
        let mut durable: BTreeSet<u64> = BTreeSet::new();
        let mut outstanding = 0;
        for step in 0..4_000_u64 {
            if outstanding < 20 {
                outstanding += 1;
                // Each range is written once, so that no older version can be durable.
                let at = (step * 7_919 % 65_536) * 64 + bench.rng.below(4) * (1 << 24);
                if bench.rng.percent(4) {
                    let tag = bench.submit(Access::Flush, 0, 0);
                    covered.insert(tag, acknowledged.iter().copied().collect());
                } else {
                    let fua = bench.rng.percent(4);
                    let tag = bench.submit(Access::Write { fua }, at, BLOCK);
                    pending.insert(tag, (at, fua));
                }
            }
            if outstanding >= 20 || bench.rng.percent(50) {
                let mut fresh: BTreeSet<u64> = BTreeSet::new();
                for (tag, _) in bench.step().expect("commands are outstanding") {
                    outstanding -= 1;
                    if let Some((at, fua)) = pending.remove(&tag) {
                        if fua {
                            durable.insert(at)
                        } else {
                            acknowledged.insert(at)
                        };
                    }
                    if let Some(places) = covered.remove(&tag) {
                        fresh.extend(places.iter().filter(|at| !durable.contains(at)));
                        durable.extend(places);
                    }
                }
                let durable_now = |at: u64| {
                    bench.drive.durable(weft_units::Sectors(at), weft_units::Sectors(BLOCK))
                };
                // All durable ranges are checked every 32 steps, new ones at every step.
                for at in durable.iter().filter(|at| step % 32 == 0 || fresh.contains(*at)) {
                    assert!(durable_now(*at), "{model}: {at} at {:?}, step {step}", bench.now);
                }
                if step % 32 == 0 {
                    volatile_seen += acknowledged.iter().filter(|at| !durable_now(**at)).count();
                }
            }
        }
        let protected = Model::to_toml(&weft_sim::drive::Drive::model(model).unwrap());
        let protected = protected.contains("power_loss_protection = true");
        assert_eq!(
            volatile_seen == 0,
            protected,
            "{model}: volatile data is seen unless protected"
        );
        assert!(durable.len() > 1_000, "{model}: {}", durable.len());
    }
}

/// Statement 13: where no cache is volatile, flushes are omitted and FUA writes become plain.
#[test]
fn a_drive_without_a_volatile_cache_wants_no_flush_and_no_fua() {
    let fua = Access::Write { fua: true };
    for (model, changes, volatile) in [
        ("hdd-2007-7200", "", true),
        ("hdd-2007-7200", "write_cache_kib = 0", false),
        ("ssd-sata-dc-2019", "simulated_mib = 128", true),
        ("ssd-sata-dc-2019-wc0", "simulated_mib = 128", false),
        ("null", "", false),
    ] {
        let bench = Bench::of(model, changes, 1);
        assert_eq!(bench.drive.volatile_cache(), volatile);
        assert_eq!(bench.drive.rotational(), model.starts_with("hdd"));
        assert_eq!(bench.drive.wanted(Access::Flush), volatile.then_some(Access::Flush));
        assert_eq!(bench.drive.wanted(fua), Some(if volatile { fua } else { WRITE }));
        assert_eq!(bench.drive.wanted(Access::Read), Some(Access::Read));
    }
}

/// A user's text is either refused with an error or gives a drive that answers its commands. One or
/// two keys at a time have values around the ends of all ranges.
#[test]
fn a_model_that_is_taken_answers_its_commands_whatever_its_keys_are() {
    let values = [
        "-1", "0", "0.01", "1", "3", "64", "1000", "1e5", "65535", "16384", "100000", "10000000",
        "1000000", "1e300", "nan", "true", "fresh", "steady", "[]", "'", "\n", "",
    ];
    let (mut taken, mut refused) = (0, 0);
    for name in ["hdd-2022-20tb", "hdd-2011-reduced", "ssd-sata-2012-mlc", "null"] {
        let plain = Model::of_argument(name).and_then(|of| of.with(small(name))).unwrap();
        let text = plain.to_toml();
        let keys: Vec<&str> = text.lines().filter_map(|line| line.split(" = ").next()).collect();
        let mut rng = weft_units::rng::Rng::new(7);
        for _ in 0..1_500 {
            let mut model = Ok(plain.clone());
            for _ in 0..1 + rng.below(2) {
                let key = keys[rng.below(keys.len() as u64) as usize];
                let value = values[rng.below(values.len() as u64) as usize];
                // Larger maps take memory and time, and no other code paths.
                if !(key == "simulated_mib" && value.len() > 4) {
                    model = model.and_then(|model| model.with_key(key, value));
                }
            }
            match model {
                Ok(model) => {
                    let mut bench = Bench::with(&model, 3);
                    let end = bench.sectors() - 64;
                    for step in 0..12 {
                        let first = end / 11 * step / BLOCK * BLOCK;
                        bench.submit(if step % 2 == 0 { WRITE } else { Access::Read }, first, 64);
                        bench.rest();
                    }
                    taken += 1;
                }
                Err(error) => {
                    let text = error.to_string();
                    assert!(keys.iter().any(|key| text.starts_with(key)), "{text}");
                    refused += 1;
                }
            }
        }
    }
    assert!(taken > 500 && refused > 1_000, "{taken} taken, {refused} refused");
}

/// The error for a key or a name with a typo suggests the nearest one.
#[test]
fn a_key_that_is_not_known_is_told_with_the_nearest() {
    let model = Model::of_argument("hdd-2007-7200").unwrap();
    for (key, value, told) in [
        ("rmp", "7200", "rmp: found, expected only age_limit_ms, "),
        ("rmp", "7200", "; did you mean rpm?"),
        ("write_cache", "0", "; did you mean write_cache_kib?"),
        ("base", "null", "base: found \"null\", expected no base"),
        ("rpm", "fast", "rpm: found \"fast\", expected a whole number from 1000 to 30000"),
        ("rpm", "7200\nheads = 3", "rpm: found "),
        ("no such", "1", "no such: found, expected only "),
    ] {
        let error = model.with_key(key, value).unwrap_err().to_string();
        assert!(error.contains(told), "{error}");
    }
    let far = model.with_key("colour", "red").unwrap_err().to_string();
    assert!(!far.contains("did you mean"), "{far}");
    let error = Model::of_argument("hdd-2007-72OO").unwrap_err().to_string();
    assert!(error.ends_with("or FILE.toml; did you mean hdd-2007-7200?"), "{error}");
    assert!(model.with_key("rpm", "5400").unwrap().to_toml().contains("rpm = 5400"));
}

/// A buffer smaller than a program accepts writes until the program is full, and continues.
#[test]
fn writes_end_however_small_the_buffer_is() {
    let model = Model::of_argument("ssd-sata-2012-mlc").unwrap();
    let model = model.with("simulated_mib = 128\nwrite_buffer_kib = 4\nplanes = 4").unwrap();
    let mut bench = Bench::with(&model, 3);
    for place in 0..100 {
        // A program has eight pages of 4 KiB here; these are five.
        bench.submit(WRITE, place * 4_096, 5 * BLOCK);
        bench.rest();
    }
    assert_eq!(bench.drive.counters().writes, 100);
}
