//! Tests of IO-less throttling with processes, a flusher and a disk.
//!
//! `dd` processes write files of their own to one disk of 2007 behind a page cache, as in the
//! single-disk runs of patch 001. The tests check bounds; comparing the speed at different limits
//! is for an experiment with a disk and a file system of that time.

use weft_engine::knobs::Knobs;
use weft_engine::page_cache::{Amount, DirtyThrottle, InodeId, Kernel, PAGE_BYTES, PoolConfig};
use weft_sim::machine::{Costs, Machine, MachineParts, PageAllocator, Pid};
use weft_sim::workload::dd::Dd;
use weft_sim::workload::dirty_limit::DirtyLimit;
use weft_units::{Bytes, Span, Time};

/// Kernels in which writers only sleep.
const IO_LESS: [Kernel; 5] = [
    Kernel::IoLess(DirtyThrottle::V11),
    Kernel::IoLess(DirtyThrottle::Patch001),
    Kernel::IoLess(DirtyThrottle::Mainline3_2),
    Kernel::IoLess(DirtyThrottle::Mainline6_12),
    Kernel::Weft,
];

/// Files one after the other, 4 GiB apart.
#[derive(Debug)]
struct InARow;

impl PageAllocator for InARow {
    fn place(&mut self, inode: InodeId, page: u64, count: u64) -> (Bytes, u64) {
        (Bytes(u64::from(inode.0) * (4 << 30) + page * PAGE_BYTES), count)
    }
}

/// Endless writers on one disk.
struct Writers {
    machine: Machine,
    dds: Vec<Pid>,
}

impl Writers {
    fn new(kernel: Kernel, limit_mib: u64, count: usize) -> Self {
        let costs = Costs { syscall: 2_000, copy: 400, ..Costs::ZERO };
        let raid5 = MachineParts::raid5("hdd-2007-7200", Bytes::kib(64), Knobs::md());
        let mut machine = Machine::new(&MachineParts { level: None, members: 1, costs, ..raid5 });
        let pool = PoolConfig {
            dirty: Amount::Bytes(limit_mib << 20),
            ..PoolConfig::new(kernel, 8, 2942 * 256, 700_000)
        };
        machine.add_page_cache(pool, Box::new(InARow), Bytes::kib(512));
        let dd = |pid| -> Box<_> { Box::new(Dd::new(pid, Bytes::kib(4), 1 << 20)) };
        let dds = (0..count).map(|_| machine.add_with(|pid| dd(pid))).collect();
        Self { machine, dds }
    }

    /// Runs for some seconds. Returns the largest number of dirty pages.
    fn run(&mut self, seconds: u64) -> u64 {
        let end = Time(0) + Span::secs(seconds);
        let mut most = 0;
        // Writers that have not started have no event to wait for.
        self.machine.run(self.machine.host.now());
        while let Some(next) = self.machine.next_event().filter(|next| *next <= end) {
            self.machine.run(next);
            most = most.max(self.machine.host.page_cache().pool().counts().total());
        }
        most
    }

    fn done(&self) -> Vec<Bytes> {
        self.dds.iter().map(|pid| self.machine.process::<Dd>(*pid).done()).collect()
    }
}

#[test]
fn writeback_statement_60_dirty_pages_stay_within_the_limit_and_what_is_dirtied_between_two_looks()
{
    for kernel in IO_LESS {
        for (limit, count) in [(1, 1), (1, 10), (8, 10), (100, 2)] {
            let most = Writers::new(kernel, limit, count).run(5);
            let pages = limit * 256;
            // All writers run on one CPU.
            let bound = pages + (pages / 256).max(16) + 8 * count as u64;
            assert!(most <= bound, "{kernel:?} {limit} MiB, {count}: {most} pages");
            assert!(most > pages * 3 / 4, "{kernel:?}: beyond free run, {most} pages");
        }
    }
}

#[test]
fn writeback_statement_61_two_equal_writers_of_one_disk_get_equal_parts() {
    for kernel in IO_LESS {
        let mut writers = Writers::new(kernel, 100, 2);
        writers.run(30);
        let [one, other] = writers.done()[..] else { panic!("two writers") };
        let apart = one.0.abs_diff(other.0);
        assert!(apart * 20 < one.0.max(other.0), "{kernel:?}: {one:?} and {other:?}");
    }
}

#[test]
fn no_writer_sleeps_for_ever() {
    for kernel in IO_LESS {
        for (limit, count) in [(1, 1), (1, 10), (100, 10)] {
            let mut writers = Writers::new(kernel, limit, count);
            let mut before = writers.done();
            for second in [5, 10, 15] {
                writers.run(second);
                let now = writers.done();
                let moved = before.iter().zip(&now).all(|(before, now)| now > before);
                assert!(moved, "{kernel:?} {limit} MiB: {before:?} {now:?}");
                before = now;
            }
        }
    }
}

/// A cell of the tables: MiB/s under a kernel.
fn cell(kernel: &str, disks: u16, limit_mib: u64, writers: u32) -> f64 {
    let kernel = Kernel::named(kernel).expect("the kernel is in the table");
    let of_box = if disks == 1 { DirtyLimit::single(kernel) } else { DirtyLimit::jbod(kernel) };
    let dirty = Amount::Bytes(limit_mib << 20);
    DirtyLimit { disks, dirty, writers, ..of_box }.run().mib_per_second
}

/// Tests cells in which 3.1 or patch 001 is slow, and cells in which neither is. The example
/// `throttles` has the whole grid.
#[test]
fn turns_are_as_fast_as_the_better_of_3_1_and_patch_001() {
    for (disks, limit, writers) in [(1, 1, 1), (1, 8, 2), (1, 100, 1), (2, 10, 1), (2, 10, 10)] {
        let of = |kernel| cell(kernel, disks, limit, writers);
        let (before, patch, weft) = (of("3.1"), of("patch-001"), of("weft"));
        assert!(
            weft > before.max(patch) * 0.99,
            "{disks} disks, {limit} MiB, {writers}: {before}, {patch} and {weft} MiB/s"
        );
    }
}

#[test]
fn writeback_statement_62_turns_of_a_hundred_writers_on_each_of_two_disks() {
    let [patch, weft] = ["patch-001", "weft"].map(|kernel| cell(kernel, 2, 10, 100));
    assert!(weft >= 100.0, "{weft} MiB/s");
    assert!(patch < 40.0, "{patch} MiB/s: the rig shows the cost of trickles");
}
