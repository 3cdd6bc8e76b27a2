//! Grid of throttles: endless `dd`s under each dirty limit of the tables of patch 001 (IO-less
//! dirty throttling), in columns by kernel.
//!
//! The grid `single` is one disk, `jbod` ten disks behind a link, `small` the worst case of IO-less
//! throttling. A line has, for each kernel, the MiB/s and in brackets Jain's index of the writers
//! and the longest pause in ms; then the percentage by which `weft` exceeds the better of `3.1` and
//! `patch-001`.
//!
//! ```text
//! cargo run --release -p weft-sim --example throttles -- single jbod small
//! ```

use weft_engine::page_cache::{Amount, Kernel};
use weft_sim::workload::dirty_limit::{DirtyLimit, Measured};
use weft_units::Span;

const KERNELS: [&str; 4] = ["3.1", "patch-001", "mainline-3.2", "weft"];

fn main() {
    for grid in std::env::args().skip(1) {
        let (disks, limits, writers): (u16, &[u64], &[u32]) = match grid.as_str() {
            "single" => (1, &[1, 8, 100, 400, 1024], &[1, 2, 10, 100]),
            "jbod" => (10, &[100, 800], &[1, 10, 100]),
            "small" => (2, &[10], &[1, 10, 100]),
            _ => {
                eprintln!("throttles: found {grid}, expected single, jbod or small");
                std::process::exit(2);
            }
        };
        for &limit in limits {
            for &writers in writers {
                print!("{disks} x {limit}M {writers}dd");
                let measured = KERNELS.map(|kernel| cell(kernel, disks, limit, writers));
                for Measured { mib_per_second, jain, pause_max, .. } in &measured {
                    let pause = pause_max.0 / 1_000_000;
                    print!(" | {mib_per_second:6.1} ({jain:.3}, {pause})");
                }
                let [before, patch, _, weft] = measured.map(|cell| cell.mib_per_second);
                println!(" | {:+.1} %", (weft / before.max(patch) - 1.0) * 100.0);
            }
        }
    }
}

fn cell(kernel: &str, disks: u16, limit: u64, writers: u32) -> Measured {
    let kernel = Kernel::named(kernel).expect("the kernel is in the table");
    let of_box = if disks == 1 { DirtyLimit::single(kernel) } else { DirtyLimit::jbod(kernel) };
    let background = if limit == 400 { Amount::Bytes(300 << 20) } else { Amount::Percent(10) };
    DirtyLimit {
        disks,
        dirty: Amount::Bytes(limit << 20),
        background,
        writers,
        warm_up: Span::secs(10),
        measured: Span::secs(20),
        ..of_box
    }
    .run()
}
