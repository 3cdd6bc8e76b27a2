//! Tests of boxes: their counts, and statements of writeback.md that hold on any disk.

use weft_engine::page_cache::{Amount, Kernel};
use weft_units::{Bytes, Span};

use super::{DirtyLimit, FileSystem, Measured};
use crate::drive::Drive;

const MIB: u64 = 1 << 20;
const BEFORE_AND_AFTER: [&str; 3] = ["3.1", "patch-001", "mainline-3.2"];

fn short(cell: DirtyLimit) -> DirtyLimit {
    DirtyLimit { warm_up: Span::secs(2), measured: Span::secs(4), ..cell }
}

fn single(name: &str, limit_mib: u64, writers: u32) -> DirtyLimit {
    let kernel = Kernel::named(name).unwrap();
    let dirty = Amount::Bytes(limit_mib * MIB);
    short(DirtyLimit { dirty, writers, ..DirtyLimit::single(kernel) })
}

fn jbod(name: &str, disks: u16, limit_mib: u64, writers: u32) -> DirtyLimit {
    let kernel = Kernel::named(name).unwrap();
    let dirty = Amount::Bytes(limit_mib * MIB);
    short(DirtyLimit { disks, dirty, writers, ..DirtyLimit::jbod(kernel) })
}

#[test]
fn a_stream_has_the_rate_of_its_disk_and_a_long_run() {
    for name in BEFORE_AND_AFTER {
        let Measured { mib_per_second, idle, run_bytes, jain, .. } = single(name, 100, 1).run();
        // 61 MB/s are 58.2 MiB/s.
        assert!((57.0..58.3).contains(&mib_per_second), "{name}: {mib_per_second} MiB/s");
        assert!(idle[0] < 0.01, "{name}: idle {idle:?}");
        assert!(run_bytes[0] > 50.0 * MIB as f64, "{name}: {run_bytes:?}");
        assert!((jain - 1.0).abs() < 1e-12, "{name}: a sole writer is equal to itself");
    }
}

#[test]
fn ten_disks_share_their_link_and_two_do_not_fill_it() {
    for name in BEFORE_AND_AFTER {
        let ten = jbod(name, 10, 800, 1).run().mib_per_second;
        assert!((690.0..710.0).contains(&ten), "{name}: {ten} MiB/s");
        let two = jbod(name, 2, 800, 1).run().mib_per_second;
        assert!((228.0..236.0).contains(&two), "{name}: {two} MiB/s");
        let slower = DirtyLimit { link: Some(Bytes::mib(350)), ..jbod(name, 10, 800, 1) };
        let slower = slower.run().mib_per_second;
        assert!((345.0..360.0).contains(&slower), "{name}: {slower} MiB/s");
    }
}

#[test]
fn experiments_32_only_ext4_asks_for_flushes_once_in_5_s_on_each_disk() {
    let of = |file_system| {
        let cell = DirtyLimit { file_system, ..jbod("3.1", 3, 100, 2) };
        DirtyLimit { measured: Span::secs(19), ..cell }.run()
    };
    assert_eq!(of(FileSystem::Xfs).flushes, 0);
    // Commits at 5, 10, 15 and 20 s.
    assert_eq!(of(FileSystem::Ext4).flushes, 3 * 4);
}

#[test]
fn experiments_32_pages_counted_are_pages_with_completed_writes() {
    let measured = single("patch-001", 8, 2).run();
    let last = measured.samples.last().unwrap();
    assert!(measured.pages_since_start >= last.written);
    assert!(measured.pages < measured.pages_since_start);
    let rate = measured.pages as f64 / 256.0 / 4.0;
    assert!((rate - measured.mib_per_second).abs() < 1e-9, "{rate}");
}

#[test]
fn writeback_statement_60_dirty_pages_stay_within_the_limit_and_a_burst() {
    for (limit, writers) in [(1, 1), (1, 10), (8, 2), (100, 10)] {
        let pages = limit * 256;
        let vanilla = single("3.1", limit, writers).run().dirty_max;
        assert!(vanilla <= pages + 1024 * u64::from(writers.min(8)), "{limit} MiB: {vanilla}");
        let io_less = single("patch-001", limit, writers).run().dirty_max;
        let burst = (pages / 256).max(16) * 8 + 8 * u64::from(writers);
        assert!(io_less <= pages + burst, "{limit} MiB, {writers} writers: {io_less} pages");
    }
}

#[test]
fn writeback_statement_61_two_equal_writers_get_equal_parts() {
    for name in BEFORE_AND_AFTER {
        let cell = DirtyLimit { measured: Span::secs(30), ..single(name, 100, 2) };
        let jain = cell.run().jain;
        // Two rates that differ by 5 % have an index of 0.9994.
        assert!(jain > 0.9994, "{name}: {jain}");
    }
}

#[test]
fn vanilla_lets_a_disk_run_dry_at_a_small_limit_and_says_how_long_writers_wait() {
    let measured = single("3.1", 1, 1).run();
    assert!(measured.idle[0] > 0.3, "{:?}", measured.idle);
    // Pauses of 4, 8, 16, 32 and 64 ms, the first of which starts within a tick.
    let (least, most) = (Span::millis(120), Span::millis(124));
    assert!((least..=most).contains(&measured.pause_p99), "{:?}", measured.pause_p99);
    assert!(measured.pause_max >= measured.pause_p99);
    let longest = measured.pauses.iter().map(|pause| pause.length).max().unwrap();
    assert!(longest.0.abs_diff(measured.pause_max.0) < 1_000_000, "{longest:?}");
}

#[test]
fn samples_cover_the_run_and_show_dirty_pages_between_free_run_and_limit() {
    let measured = DirtyLimit { warm_up: Span::secs(10), ..single("patch-001", 100, 1) }.run();
    assert_eq!((measured.free_run, measured.setpoint(), measured.limit), (19_200, 22_400, 25_600));
    let samples = &measured.samples;
    assert_eq!(samples.len(), 140);
    assert!(samples.windows(2).all(|two| two[0].at < two[1].at));
    for sample in &samples[samples.len() / 2..] {
        assert_eq!(sample.disks, [sample.all.total()]);
        assert!((18_200..25_600).contains(&sample.all.total()), "{sample:?}");
        assert!(sample.busy[0] > 0.99, "{sample:?}");
    }
}

#[test]
fn a_seed_gives_the_same_run_and_another_one_another() {
    let cell = jbod("patch-001", 2, 10, 3);
    let run = cell.run();
    assert_eq!(run, cell.run());
    assert_ne!(run, DirtyLimit { seed: 2, ..cell }.run());
}

#[test]
fn any_model_of_a_disk_will_do_and_a_cache_that_loses_power_is_flushed() {
    let model = Drive::model("hdd-2011-7200").unwrap();
    let cell = DirtyLimit { model, file_system: FileSystem::Ext4, ..single("3.1", 100, 2) };
    let measured = cell.run();
    assert!(measured.mib_per_second > 90.0, "{} MiB/s", measured.mib_per_second);
    assert_eq!(measured.flushes, 1);
}
