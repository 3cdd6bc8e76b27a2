//! Tests of solid-state drives against targets from outside the patches.

use crate::bench::{BLOCK, Bench, Run, WRITE, near, within};
use weft_sim::drive::{Access, models};
use weft_units::Span;

/// A small flash map, which is built quickly.
const SMALL: &str = "simulated_mib = 512";
/// 128 KiB.
const LARGE: u64 = 256;

/// Runs random blocks within the first `sectors`.
fn random_within(bench: &mut Bench, access: Access, sectors: u64, depth: u32, count: u64) -> Run {
    let blocks = sectors.min(bench.sectors()) / BLOCK;
    let warm_up = count / 4;
    bench.closed(depth, warm_up, count, move |rng| (access, rng.below(blocks) * BLOCK, BLOCK))
}

fn random(model: &str, changes: &str, access: Access, depth: u32, count: u64) -> f64 {
    let mut bench = Bench::of(model, changes, 7);
    random_within(&mut bench, access, u64::MAX, depth, count).iops()
}

fn stream(model: &str, changes: &str, access: Access, length: u64, depth: u32) -> Run {
    let mut bench = Bench::of(model, changes, 7);
    let depth = depth.min(bench.drive.depth());
    let stream = bench.sequential(access, 1 << 20, length);
    bench.closed(depth, 2_000, 4_000, stream)
}

/// experiments.md §2.4, rows of the Plextor M5 Pro and M5S, measured as there: over 8 GiB of a
/// fresh drive.
#[test]
fn consumer_drives_of_2012_are_as_measured() {
    let sectors = 8 << 21;
    let figures = [
        ("ssd-sata-2012-mlc", 90_388.0, 84_081.0, 540.0, 455.0),
        ("ssd-sata-2012-mlc-m5s", 73_888.0, 69_346.0, 520.0, 390.0),
    ];
    for (model, reads, writes, read_rate, write_rate) in figures {
        let mut bench = Bench::of(model, "", 7);
        let found = random_within(&mut bench, Access::Read, sectors, 32, 40_000).iops();
        near(&format!("{model}: random reads at QD32"), found, reads, 10.0);
        let mut bench = Bench::of(model, "", 7);
        let found = random_within(&mut bench, WRITE, sectors, 32, 60_000).iops();
        near(&format!("{model}: random writes at QD32, fresh"), found, writes, 10.0);
        let found = stream(model, "", Access::Read, LARGE, 32).mb_s();
        near(&format!("{model}: sequential read, MB/s"), found, read_rate, 10.0);
        let found = stream(model, "", WRITE, LARGE, 32).mb_s();
        near(&format!("{model}: sequential write, MB/s"), found, write_rate, 10.0);
    }
}

/// experiments.md §2.4, rows of the S4500 and S4600.
#[test]
fn data_centre_drives_are_as_specified() {
    let model = "ssd-sata-dc-2019";
    near("S4500: random reads at QD32", random(model, "", Access::Read, 32, 40_000), 72e3, 10.0);
    near("S4500: random writes, steady", random(model, "", WRITE, 32, 120_000), 33e3, 10.0);
    let more = "ssd-sata-dc-2019-s4600";
    near("S4600: random writes, steady", random(more, "", WRITE, 32, 160_000), 65e3, 10.0);

    let latency = |access| {
        let mut bench = Bench::of(model, SMALL, 7);
        random_within(&mut bench, access, u64::MAX, 1, 4_000).mean_us()
    };
    near("S4500: random read at QD1, µs", latency(Access::Read), 110.0, 15.0);
    near("S4500: random write at QD1, µs", latency(WRITE), 52.0, 15.0);
    for (what, access) in [("read", Access::Read), ("write", WRITE)] {
        let found = stream(model, SMALL, access, BLOCK, 1).mean_us();
        near(&format!("S4500: sequential {what} at QD1, µs"), found, 36.0, 15.0);
    }
    let read = stream(model, SMALL, Access::Read, LARGE, 32).mb_s();
    near("S4500: sequential read, MB/s", read, 500.0, 5.0);
    let fresh = "simulated_mib = 512\nprecondition = 'fresh'";
    near(
        "S4500: sequential write, MB/s",
        stream(model, fresh, WRITE, LARGE, 32).mb_s(),
        490.0,
        5.0,
    );
}

/// The product specification of the S4500: typical 110 and 52 µs, 99.9 % within 300 and 800 µs.
/// Counterpart: without the spread keys the spread is much smaller.
#[test]
fn latencies_spread_as_the_specification_says() {
    for (access, typical, most) in [(Access::Read, 110.0, 300.0), (WRITE, 52.0, 800.0)] {
        let percentiles = |changes: &str| {
            let mut bench = Bench::of("ssd-sata-dc-2019", &format!("{SMALL}\n{changes}"), 7);
            let run = random_within(&mut bench, access, u64::MAX, 1, 40_000);
            (run.per_mille_us(500), run.per_mille_us(999))
        };
        let (median, late) = percentiles("");
        near(&format!("S4500, {access:?}: typical, µs"), median, typical, 15.0);
        near(&format!("S4500, {access:?}: 99.9 %, µs"), late, most, 15.0);
        let (median, late) = percentiles("read_spread_us = 0\nwrite_spread_us = 0");
        assert!(late < 1.7 * median, "{access:?}: {median} {late}");
    }
}

/// Figures that the makers publish. The sources are in the models.
#[test]
fn drives_of_today_are_as_specified() {
    let model = "ssd-nvme-2019-consumer";
    let rate = |access| stream(model, "", access, LARGE, 64).mb_s();
    near("970 EVO Plus: sequential read, MB/s", rate(Access::Read), 3_500.0, 5.0);
    near("970 EVO Plus: sequential write after SLC, MB/s", rate(WRITE), 1_700.0, 10.0);
    near("970 EVO Plus: reads at QD1", random(model, "", Access::Read, 1, 4_000), 19e3, 10.0);
    near("970 EVO Plus: writes at QD1", random(model, "", WRITE, 1, 4_000), 60e3, 10.0);
    near("970 EVO Plus: reads at QD128", random(model, "", Access::Read, 128, 80_000), 600e3, 10.0);
    // The published 550,000 writes a second are missed: they are reached in SLC mode, which is not
    // modelled. Without this mode, the limit is the sequential rate in blocks of 4 KiB.
    let writes = random(model, "", WRITE, 128, 200_000);
    near("970 EVO Plus: writes at QD128 (target 550,000 missed)", writes, 1_700e6 / 4_096.0, 10.0);

    let model = "ssd-nvme-dc-2021-pcie4";
    let fresh = "simulated_mib = 512\nprecondition = 'fresh'";
    let read = stream(model, fresh, Access::Read, LARGE, 64).mb_s();
    near("PM9A3: sequential read, MB/s", read, 6_500.0, 5.0);
    near(
        "PM9A3: sequential write, MB/s",
        stream(model, fresh, WRITE, LARGE, 64).mb_s(),
        3_500.0,
        10.0,
    );
    near("PM9A3: reads at QD256", random(model, fresh, Access::Read, 256, 80_000), 900e3, 10.0);
    near("PM9A3: writes, steady", random(model, "", WRITE, 128, 200_000), 200e3, 10.0);
}

/// Figures that kitguru.net measured of an 870 EVO of 1 TB, with ATTO and at QD32, and those of its
/// data sheet at QD1.
#[test]
fn the_consumer_drive_of_2021_is_as_measured() {
    let model = "ssd-sata-2021-consumer";
    let rate = |access| stream(model, "", access, LARGE, 32).mb_s();
    near("870 EVO: sequential read, MB/s", rate(Access::Read), 561.0, 5.0);
    near("870 EVO: sequential write, MB/s", rate(WRITE), 531.0, 5.0);
    near("870 EVO: reads at QD32", random(model, "", Access::Read, 32, 40_000), 94_003.0, 10.0);
    near("870 EVO: writes at QD32", random(model, "", WRITE, 32, 60_000), 84_058.0, 10.0);
    near("870 EVO: reads at QD1", random(model, "", Access::Read, 1, 4_000), 13e3, 5.0);
    near("870 EVO: writes at QD1", random(model, "", WRITE, 1, 4_000), 36e3, 5.0);
}

/// Statement 9.
#[test]
fn reads_take_what_their_parts_take_and_reach_the_narrowest_part() {
    // command + tR + 4 KiB over the channel + link; then the link's bound in IOPS.
    let cases = [
        ("ssd-sata-2012-mlc", 20.0 + 50.0 + 20.48 + 7.41 + 3.2, 94_250.0),
        ("ssd-sata-dc-2019", 20.0 + 70.0 + 10.24 + 8.19 + 5.7, 71_980.0),
        ("ssd-nvme-dc-2019", 6.0 + 60.0 + 6.14 + 1.24 + 1.0, 446_200.0),
    ];
    for (model, parts, bound) in cases {
        let changes = "simulated_mib = 512\nqueue_depth = 512\nread_spread_us = 0";
        let mut bench = Bench::of(model, changes, 7);
        let one = random_within(&mut bench, Access::Read, u64::MAX, 1, 3_000).mean_us();
        near(&format!("{model}: read at QD1, µs"), one, parts, 5.0);
        let depth = if model.contains("nvme") { 128 } else { 64 };
        let many = random(model, changes, Access::Read, depth, 50_000);
        near(&format!("{model}: reads at QD{depth}, link-bound"), many, bound, 10.0);
    }
    // A link and channels of unlimited rate: the dies are the limit.
    let wide = "simulated_mib = 512\nqueue_depth = 4096\nlink_mb_s = 100000\nchannel_mb_s = 100000\n\
                link_overhead_read_us = 0";
    let found = random("ssd-nvme-dc-2019", wide, Access::Read, 1_024, 200_000);
    near("dies alone", found, 64.0 / 60e-6, 10.0);
    let narrow = "simulated_mib = 512\nqueue_depth = 4096\nchannel_mb_s = 100\nlink_mb_s = 100000";
    let found = random("ssd-nvme-dc-2019", narrow, Access::Read, 512, 60_000);
    near("channels alone", found, 8.0 * 100e6 / 4_096.0, 10.0);
}

/// Statement 10.
#[test]
fn steady_writes_are_slower_than_fresh_and_rise_with_spare_flash() {
    for model in ["ssd-sata-dc-2019", "ssd-nvme-dc-2019"] {
        let mut before = 0.0;
        for percent in [7, 10, 14, 20, 28] {
            let changes = format!("{SMALL}\ndies = 16\nover_provisioning_percent = {percent}");
            let steady = random(model, &changes, WRITE, 32, 60_000);
            assert!(steady > before, "{model}: {percent} % gives {steady} after {before}");
            let fresh = format!("{changes}\nprecondition = 'fresh'");
            let fresh = random(model, &fresh, WRITE, 32, 20_000);
            assert!(steady < fresh, "{model}: {percent} %: steady {steady}, fresh {fresh}");
            before = steady;
        }
    }
}

/// Statement 11: every byte is accounted for, with flushes that pad and with overwrites.
#[test]
fn every_byte_in_the_flash_is_accounted_for() {
    for model in ["ssd-sata-dc-2019", "ssd-sata-2020-slowflush"] {
        let mut bench = Bench::of(model, SMALL, 7);
        let blocks = bench.sectors() / BLOCK;
        let mut count = 0_u64;
        bench.closed(16, 0, 30_000, |rng| {
            count += 1;
            match count % 97 {
                0 => (Access::Flush, 0, 0),
                _ => (WRITE, rng.below(blocks - 4) * BLOCK, BLOCK * (1 + rng.below(4))),
            }
        });
        bench.rest();
        bench.one(Access::Flush, 0, 0);
        let c = bench.drive.counters().clone();
        let parts =
            c.nand_host_bytes + c.nand_moved_bytes + c.nand_padding_bytes + c.nand_map_bytes;
        assert_eq!(c.nand_bytes, parts, "{model}");
        assert_eq!(c.nand_bytes.0, c.nand_programs * 32_768, "{model}: whole superpages");
        assert!(c.nand_moved_bytes > c.nand_host_bytes, "{model}: {c:?}");
        let left = c.written_bytes.0 - c.nand_host_bytes.0;
        if model == "ssd-sata-2020-slowflush" {
            assert_eq!(left, 0, "a flush leaves nothing in the buffer");
            assert!(c.nand_padding_bytes.0 > 0 && c.nand_map_bytes.0 > 0);
        } else {
            assert!(left < 32_768, "{left} bytes are less than a superpage");
            assert_eq!((c.nand_padding_bytes.0, c.nand_map_bytes.0), (0, 0));
        }
        let amplification = c.write_amplification().expect("data was written");
        let exact = c.nand_bytes.0 as f64 / c.nand_host_bytes.0 as f64;
        assert!((amplification - exact).abs() < 1e-12 && amplification > 2.0);
    }
}

/// Statement 12, and the flush rows of experiments.md §2.4.
#[test]
fn flushes_take_what_protection_leaves_to_them() {
    // Few dies, so that the buffer fills while the host writes.
    let slow = format!("{SMALL}\ndies = 4\nchannels = 4\nwrite_buffer_kib = 65536");
    let flush_after = |model: &str, writes: u64| {
        let mut bench = Bench::of(model, &slow, 7);
        let stream = bench.sequential(WRITE, 1 << 20, BLOCK);
        if writes > 0 {
            bench.closed(16, 0, writes, stream);
        }
        bench.one(Access::Flush, 0, 0).0 as f64 / 1e3
    };
    for (model, _) in models().iter().filter(|(model, _)| model.starts_with("ssd")) {
        let found = [0, 1, 200, 4_000].map(|writes| flush_after(model, writes));
        println!("{model}: flush after 0, 1, 200, 4000 writes: {found:?} µs");
        let mut fsync = Bench::of(model, SMALL, 7);
        let begun = fsync.now;
        fsync.one(WRITE, 1 << 22, 4 * BLOCK);
        fsync.one(Access::Flush, 0, 0);
        let fsync = (fsync.now - begun).0 as f64 / 1e6;
        if model.contains("dc") {
            assert!(found.iter().all(|took| *took <= 60.0), "{model}: {found:?}");
            within(&format!("{model}: flush after a write, µs"), found[1], 12.0, 58.0);
        } else if *model == "ssd-nvme-2020-lazyflush" {
            near("M1: flush, ms", found[1] / 1e3, 17.5, 10.0);
        } else {
            assert!(found[0] < found[1] && found[1] >= 1_200.0, "{model}: {found:?}");
            assert!(found[1] < found[2] && found[2] * 2.0 < found[3], "{model}: {found:?}");
            within(&format!("{model}: 16 KiB and flush, ms"), fsync, 0.9, 5.0);
        }
    }
}

/// experiments.md §2.4, the row of the Apple M1.
#[test]
fn a_slow_flush_bounds_writes_that_need_it() {
    let model = "ssd-nvme-2020-lazyflush";
    near("M1: writes without flush", random(model, "", WRITE, 1, 4_000), 12e3, 10.0);
    let mut bench = Bench::of(model, "", 7);
    let begun = bench.now;
    for count in 0..50 {
        bench.one(WRITE, count * 8_000, BLOCK);
        bench.one(Access::Flush, 0, 0);
    }
    let rate = 50e9 / (bench.now - begun).0 as f64;
    near("M1: writes with a flush each", rate, 57.5, 10.0);
}

/// Flushes that arrive together share a round where the drive coalesces, and run in turn elsewhere.
#[test]
fn flushes_of_many_share_a_round_where_the_drive_coalesces() {
    let rounds = |changes: &str| {
        let mut bench = Bench::of("ssd-sata-2020-slowflush", changes, 7);
        for count in 0..16 {
            bench.one(WRITE, count * 8_000, BLOCK);
        }
        let begun = bench.now;
        for _ in 0..16 {
            bench.submit(Access::Flush, 0, 0);
        }
        bench.rest();
        bench.now - begun
    };
    let together = rounds(SMALL);
    let in_turn = rounds("simulated_mib = 512\nflush_coalesces = false");
    assert!(together < Span::millis(5), "{together:?}");
    assert!(in_turn > Span(together.0 + 10 * 300_000), "{in_turn:?} against {together:?}");
    // A FUA write of such a drive takes as long as a flush.
    let mut bench = Bench::of("ssd-sata-2020-slowflush", SMALL, 7);
    let took = bench.one(Access::Write { fua: true }, 0, BLOCK);
    within("FUA write, ms", took.0 as f64 / 1e6, 1.5, 5.0);
    let took = bench.one(WRITE, 0, BLOCK);
    assert!(took < Span(100_000), "{took:?}");
}

/// Data that is buffered or was read ahead is read without a flash access.
#[test]
fn what_is_in_memory_is_read_without_the_flash() {
    let mut bench = Bench::of("ssd-sata-dc-2019", SMALL, 7);
    bench.one(WRITE, 80_000, BLOCK);
    let took = bench.one(Access::Read, 80_000, BLOCK);
    assert!(took < Span(40_000), "{took:?}");
    assert_eq!(bench.drive.counters().nand_reads, 0);
    assert!(bench.one(Access::Read, 160_000, BLOCK) > Span(100_000));
    bench.one(Access::Read, 160_008, BLOCK);
    bench.rest();
    let took = bench.one(Access::Read, 160_064, BLOCK);
    assert!(took < Span(40_000), "{took:?}");
}
