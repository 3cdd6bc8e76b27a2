//! Tests of the dbench workload and of the reduced ext4 below it.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::rc::Rc;

use weft_engine::knobs::{Knobs, StripeSize};
use weft_engine::page_cache::{Kernel, PoolConfig};
use weft_engine::{Attr, Class, RequestOp};
use weft_sim::machine::{Costs, Machine, MachineParts, Seen};
use weft_sim::workload::dbench::{
    Client, Load, Op, OperationKind, Run, Settings, Synthetic, Table,
};
use weft_sim::workload::ext4::Ext4;
use weft_testing::skip;
use weft_units::{Bytes, Sectors, Span};

/// Costs of a call into the kernel and of a copy, as on a slow machine.
const COSTS: Costs = Costs { syscall: 2_000, copy: 200, ..Costs::ZERO };

struct Bench {
    machine: Machine,
    fs: Ext4,
    run: Run,
}

impl Bench {
    /// A run to its end on ext4 on RAID 5 of four disks, as in the measurements of patch 004.
    fn new(model: &str, costs: Costs, settings: &Settings) -> Self {
        let knobs = Knobs { stripe_size: StripeSize::new(4096).unwrap(), ..Knobs::md() };
        let (member_size, whole) = (Some(Sectors(1 << 23)), Bytes::kib(512));
        let parts = MachineParts { member_size, costs, ..MachineParts::raid5(model, whole, knobs) };
        let mut machine = Machine::new(&parts);
        let pool = PoolConfig::new(Kernel::V3_1, 8, 1 << 22, 1 << 22);
        let fs = Ext4::mount(&mut machine, pool);
        machine.host.watch_requests();
        let run = settings.start(&mut machine, &fs);
        machine.run(run.until());
        let table = run.table(&machine);
        assert_eq!(table.missed, 0, "every operation has its object");
        Self { machine, fs, run }
    }

    /// A run of one client with a load of a few lines.
    fn of_text(model: &str, costs: Costs, text: &str, change: impl FnOnce(&mut Settings)) -> Self {
        let load = Load::parse(text).expect("the text is a load");
        let mut settings = settings(1, 1);
        settings.load = Some(Rc::new(load));
        change(&mut settings);
        Self::new(model, costs, &settings)
    }

    fn table(&self) -> Table {
        self.run.table(&self.machine)
    }

    fn requests(&self) -> &[Seen] {
        self.machine.host.watched()
    }

    fn kind(&self, seen: &Seen) -> Request {
        let journal = self.fs.journal_area();
        match seen.op {
            RequestOp::Flush => Request::Flush,
            RequestOp::Write if journal.overlaps(seen.range) => {
                if seen.flags.fua {
                    Request::Commit
                } else {
                    Request::Journal
                }
            }
            RequestOp::Write if seen.range.start < self.fs.data_start() => Request::Metadata,
            RequestOp::Write => Request::Data,
            op => panic!("{op:?} is not part of the workload"),
        }
    }

    fn count(&self, kind: Request) -> u64 {
        self.requests().iter().filter(|seen| self.kind(seen) == kind).count() as u64
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Data,
    Journal,
    Commit,
    Metadata,
    Flush,
}

fn settings(clients: u32, seconds: u64) -> Settings {
    Settings { warm_up: Span::ZERO, ..Settings::new(clients, Span::secs(seconds)) }
}

/// All operations of one pass.
fn pass(seed: u64, client: u32) -> Vec<Op> {
    let mut generator = Synthetic::new(seed, client);
    let mut ops = generator.next_part();
    while !generator.begins_pass() {
        ops.extend(generator.next_part());
    }
    ops
}

/// Counts of a pass of the stock load, from experiments.md §1.6.
const PASS: [(OperationKind, u64); 16] = [
    (OperationKind::ReadX, 124_199),
    (OperationKind::NtCreateX, 79_230),
    (OperationKind::QueryPath, 71_814),
    (OperationKind::Close, 58_200),
    (OperationKind::WriteX, 39_502),
    (OperationKind::FindFirst, 27_765),
    (OperationKind::Unlink, 16_000),
    (OperationKind::QueryFs, 13_168),
    (OperationKind::QueryFile, 12_585),
    (OperationKind::SetFile, 6_454),
    (OperationKind::Flush, 5_553),
    (OperationKind::Rename, 3_355),
    (OperationKind::LockX, 258),
    (OperationKind::UnlockX, 258),
    (OperationKind::Deltree, 2),
    (OperationKind::Mkdir, 1),
];
const PASS_WRITTEN: u64 = 1_015_974_170;
const PASS_READ: u64 = 1_472_088_767;

fn counts(ops: &[Op]) -> BTreeMap<OperationKind, u64> {
    let mut counts = BTreeMap::new();
    for op in ops {
        *counts.entry(op.kind()).or_default() += 1;
    }
    counts
}

fn bytes(ops: &[Op], kind: OperationKind) -> u64 {
    ops.iter().filter(|op| op.kind() == kind).map(Op::bytes).sum()
}

/// Pages that are dirty at each flush of a load, if nothing else writes them back.
fn dirty_pages(ops: &[Op]) -> Vec<usize> {
    let mut open = BTreeMap::new();
    let mut dirty: BTreeMap<_, BTreeSet<u64>> = BTreeMap::new();
    let mut found = Vec::new();
    for op in ops {
        match op {
            Op::Open(path, Some((handle, _))) => {
                open.insert(*handle, *path);
            }
            Op::Write { handle, offset, len } => {
                let pages = offset / 4096..(offset + u64::from(*len)).div_ceil(4096);
                dirty.entry(open[handle]).or_default().extend(pages);
            }
            Op::Flush(handle) => {
                found.push(dirty.remove(&open[handle]).unwrap_or_default().len());
            }
            Op::Rename(from, to) => {
                let pages = dirty.remove(from).unwrap_or_default();
                dirty.insert(*to, pages);
            }
            Op::Unlink(path) => {
                dirty.remove(path);
            }
            _ => {}
        }
    }
    found
}

fn is_within(found: f64, expected: f64, percent: f64) -> bool {
    (found / expected - 1.0).abs() * 100.0 <= percent
}

#[test]
fn experiments_17_the_synthetic_load_has_the_marginals_of_the_stock_one() {
    for client in 0..3 {
        let ops = pass(u64::from(client), 1 + client);
        assert_eq!(counts(&ops), PASS.into(), "the counts of a pass are exact");
        for (kind, expected) in
            [(OperationKind::WriteX, PASS_WRITTEN), (OperationKind::ReadX, PASS_READ)]
        {
            let found = bytes(&ops, kind);
            assert!(is_within(found as f64, expected as f64, 2.0), "{kind:?}: {found}");
        }
        let dirty = dirty_pages(&ops);
        let mean = dirty.iter().sum::<usize>() as f64 / dirty.len() as f64;
        assert!(is_within(mean, 5.5, 5.0), "{mean} pages at a flush");
        assert!(dirty.iter().all(|pages| (1..=66).contains(pages)));
    }
}

#[test]
fn a_part_of_the_load_has_the_shares_of_the_whole() {
    // A short run sees the sixth part of a pass, without the prologue.
    let mut generator = Synthetic::new(9, 1);
    generator.next_part();
    let ops: Vec<Op> = (0..21).flat_map(|_| generator.next_part()).collect();
    let (found, all) = (counts(&ops), PASS.iter().map(|(_, count)| count).sum::<u64>());
    for (kind, count) in PASS.into_iter().filter(|(_, count)| count * 100 >= all) {
        let (found, share) = (found[&kind] as f64 / ops.len() as f64, count as f64 / all as f64);
        assert!(is_within(found, share, 2.0), "{kind:?}: {found} instead of {share}");
    }
    let (written, writes) =
        (bytes(&ops, OperationKind::WriteX) as f64, found[&OperationKind::WriteX] as f64);
    assert!(is_within(written / writes, 25_719.6, 2.0), "{}", written / writes);
    let (read, reads) =
        (bytes(&ops, OperationKind::ReadX) as f64, found[&OperationKind::ReadX] as f64);
    assert!(is_within(read / reads, 11_852.7, 2.0), "{}", read / reads);
    assert_ne!(pass(9, 1)[..5000], pass(9, 2)[..5000], "each client has its own operations");
    assert_eq!(pass(9, 1), pass(9, 1));
}

/// The user's own stock load, if there is one: weft has none.
fn stock_load() -> Option<String> {
    let named = std::env::var("WEFT_DBENCH_LOAD").ok();
    let path = named.clone().unwrap_or_else(|| "/usr/share/dbench/client.txt".into());
    match std::fs::read_to_string(&path) {
        Ok(text) => Some(text),
        Err(error) if named.is_some() => panic!("WEFT_DBENCH_LOAD={path}: {error}"),
        Err(_) => None,
    }
}

#[test]
fn experiments_18_the_stock_load_is_read_to_the_byte() {
    let Some(text) = stock_load() else {
        skip(
            "no stock load (Debian package dbench; or WEFT_DBENCH_LOAD, a client.txt of dbench 4.0)",
        );
        return;
    };
    let load = Load::parse(&text).unwrap();
    assert_eq!(load.ops.len(), 458_344);
    assert_eq!(counts(&load.ops), PASS.into());
    assert_eq!(bytes(&load.ops, OperationKind::WriteX), PASS_WRITTEN);
    assert_eq!(bytes(&load.ops, OperationKind::ReadX), PASS_READ);
    let dirty = dirty_pages(&load.ops);
    let mean = dirty.iter().sum::<usize>() as f64 / dirty.len() as f64;
    assert!(is_within(mean, 5.5, 5.0), "{mean} pages at a flush");
    // The load runs, and no operation lacks its object.
    let settings = Settings { load: Some(Rc::new(load)), ..settings(2, 2) };
    let bench = Bench::new("null", COSTS, &settings);
    assert!(bench.table().row(OperationKind::Flush).count > 5_000);
}

#[test]
fn experiments_19_throughput_is_passes_and_reads_count() {
    // A pass takes a third of a second.
    let costs = Costs { syscall: 200, copy: 50, ..Costs::ZERO };
    let bench = Bench::new("null", costs, &settings(2, 1));
    let passes = |pid| bench.machine.process::<Client>(pid).passes;
    let passes: u64 = bench.run.clients.iter().map(|pid| passes(*pid)).sum();
    assert!(passes >= 4, "{passes} begun, more than one each");
    let moved = bench.run.throughput(&bench.machine) * 1e6;
    let pass = (PASS_WRITTEN + PASS_READ) as f64;
    assert!(moved <= passes as f64 * pass * 1.02, "{moved} bytes in {passes} passes begun");
    assert!(moved >= (passes - 2) as f64 * pass * 0.98, "{moved} bytes in {passes} passes begun");
}

#[test]
fn experiments_20_a_twentieth_of_the_throughput_reaches_the_volume() {
    let bench = Bench::new("ssd-sata-2020-slowflush", COSTS, &settings(6, 12));
    let moved = bench.run.throughput(&bench.machine);
    assert!(moved < 400.0, "{moved} MB/s");
    let data = bench.requests().iter().filter(|seen| bench.kind(seen) == Request::Data);
    let data: u64 = data.map(|seen| seen.range.len.0).sum();
    let share = data as f64 * 100.0 / bench.table().bytes as f64;
    assert!((4.5..=5.5).contains(&share), "{share} %");
    // `kind` panics at a read, so all of these requests are writes and flushes.
    assert!(bench.requests().len() > 1000);
}

const WRITES: &str = r#"
NTCreateX "\a\b" 0x40 0x2 1 NT_STATUS_OK
WriteX 1 0 65536 65536 NT_STATUS_OK
WriteX 1 65536 100 100 NT_STATUS_OK
WriteX 1 100 8192 8192 NT_STATUS_OK
Close 1 NT_STATUS_OK
Unlink "\a\b" 0x6 NT_STATUS_OK
"#;

/// Number of times that data was made durable. A write of data may begin only after all earlier
/// data is durable, by a flush that began after this data was written. `Err` is the index of the
/// first request that breaks this rule.
fn durable_writes(bench: &Bench) -> Result<u64, usize> {
    let (mut durable, mut times, mut answered) = (true, 0, None);
    for (place, seen) in bench.requests().iter().enumerate() {
        match bench.kind(seen) {
            Request::Data if durable => (durable, answered) = (false, seen.answered),
            Request::Data => return Err(place),
            Request::Commit | Request::Flush => {
                let Some(ended) = seen.answered else { continue };
                let Some(written) = answered else { return Err(place) };
                if seen.at < written || (seen.op == RequestOp::Write && !seen.flags.preflush) {
                    return Err(place);
                }
                let next = bench.requests().get(place + 1);
                if next.is_some_and(|next| next.at < ended) {
                    return Err(place + 1);
                }
                (durable, times) = (true, times + 1);
            }
            Request::Journal | Request::Metadata => {}
        }
    }
    Ok(times)
}

#[test]
fn experiments_21_a_synchronous_write_is_durable_when_it_returns() {
    let model = "ssd-sata-2020-slowflush";
    let sync = |settings: &mut Settings| settings.sync_open = true;
    let bench = Bench::of_text(model, COSTS, WRITES, sync);
    let writes = bench.table().row(OperationKind::WriteX);
    assert!(writes.count > 100, "{writes:?}");
    assert!(writes.mean_ms() > 2.0, "{} ms, and a flush takes 2 to 3", writes.mean_ms());
    // The last write may not have ended in time.
    let durable = durable_writes(&bench).expect("in order");
    assert!((writes.count..=writes.count + 1).contains(&durable), "{durable} of {writes:?}");

    // Counterpart: writes without sync reach no disk in this time.
    let buffered = Bench::of_text(model, COSTS, WRITES, |_| {});
    assert!(buffered.table().row(OperationKind::WriteX).count > 100);
    assert_eq!(durable_writes(&buffered), Ok(0));
}

#[test]
fn a_flush_of_a_clean_file_is_an_empty_flush() {
    let text = r#"
NTCreateX "\a\b" 0x40 0x4 1 NT_STATUS_OK
WriteX 1 0 5000 5000 NT_STATUS_OK
Flush 1 NT_STATUS_OK
Flush 1 NT_STATUS_OK
Flush 1 NT_STATUS_OK
Close 1 NT_STATUS_OK
"#;
    let bench = Bench::of_text("ssd-sata-2020-slowflush", COSTS, text, |_| {});
    let (flushes, commits) = (bench.table().row(OperationKind::Flush).count, bench.fs.commits());
    assert!(flushes > 30);
    assert!((flushes / 3..=flushes / 3 + 1).contains(&commits.transactions), "{commits:?}");
    assert_eq!(commits.empty_flushes, bench.count(Request::Flush));
    assert!(commits.empty_flushes.abs_diff(2 * flushes / 3) <= 2, "{commits:?}, {flushes}");
}

#[test]
fn a_commit_is_a_descriptor_blocks_in_a_row_and_a_commit_block() {
    let bench = Bench::of_text(
        "ssd-sata-2020-slowflush",
        COSTS,
        &WRITES.replace("Close", "Flush 1 NT_STATUS_OK\nClose"),
        |_| {},
    );
    let commits = bench.fs.commits();
    assert!(commits.transactions > 30, "{commits:?}");
    let (mut next, mut blocks, mut under_way) = (bench.fs.journal_area().start.0, 0, Vec::new());
    for seen in bench.requests() {
        match bench.kind(seen) {
            Request::Journal => {
                blocks += 1;
                under_way.push(seen.answered);
            }
            Request::Commit => {
                assert!(seen.flags.fua && seen.flags.preflush);
                let done = under_way.drain(..).all(|at| at.is_some_and(|at| at <= seen.at));
                assert!(done, "the commit block follows its blocks");
            }
            _ => continue,
        }
        assert_eq!((seen.range.start.0, seen.range.len.0), (next, 4096));
        next += 4096;
    }
    // A descriptor for each transaction; the transaction under way at the end is already counted.
    let expected = commits.metadata_blocks + bench.count(Request::Commit);
    assert!(expected.abs_diff(blocks) <= commits.metadata_blocks / commits.transactions + 1);
}

#[test]
fn operations_take_what_a_published_table_has_for_them_if_that_is_wanted() {
    for (percent, read, rename) in [(0, 0.0, 0.0), (100, 0.004, 0.051), (200, 0.008, 0.102)] {
        let settings = Settings { operation_percent: percent, ..settings(2, 1) };
        let bench = Bench::new("ssd-sata-2012-mlc", Costs::ZERO, &settings);
        let mean = |kind| bench.table().row(kind).mean_ms();
        assert!(bench.table().row(OperationKind::Flush).count > 50);
        let found = [OperationKind::ReadX, OperationKind::Rename].map(mean);
        let near = |found: f64, expected: f64| (found - expected).abs() < 1e-6;
        assert!(near(found[0], read) && near(found[1], rename), "{found:?}");
    }
}

#[test]
fn clients_that_wait_share_a_commit() {
    let model = "ssd-sata-2020-slowflush";
    let text = WRITES.replace("Close", "Flush 1 NT_STATUS_OK\nClose");
    let bench = Bench::of_text(model, COSTS, &text, |settings| settings.clients = 8);
    let flushes = bench.table().row(OperationKind::Flush).count;
    let transactions = bench.fs.commits().transactions;
    assert!(transactions * 3 < flushes, "{transactions} commits for {flushes} flushes");
}

#[test]
fn changes_that_no_client_waits_for_are_committed_after_five_seconds() {
    let text =
        "NTCreateX \"\\a\\b\" 0x40 0x2 1 NT_STATUS_OK\nSET_FILE_INFORMATION 1 1004 NT_STATUS_OK";
    let costs = Costs { syscall: 1_000_000, ..Costs::ZERO };
    let measured = |settings: &mut Settings| settings.measured = Span::secs(12);
    let bench = Bench::of_text("null", costs, text, measured);
    let commits = bench.requests().iter().filter(|seen| bench.kind(seen) == Request::Commit);
    let times: Vec<u64> = commits.map(|seen| seen.at.0 / 100_000_000).collect();
    assert_eq!(times, [50, 100], "tenths of seconds");
}

#[test]
fn freed_blocks_are_used_again_when_the_transaction_is_on_disk() {
    let text = WRITES.replace("Close", "Flush 1 NT_STATUS_OK\nClose");
    let bench = Bench::of_text("null", COSTS, &text, |settings| settings.measured.0 /= 20);
    let data = bench.requests().iter().filter(|seen| bench.kind(seen) == Request::Data);
    let starts: Vec<u64> = data.map(|seen| seen.range.start.0).collect();
    assert!(starts.len() > 100);
    assert!(
        starts.windows(2).all(|pair| pair[0] != pair[1]),
        "freed blocks are not reused within a transaction"
    );
    let places: BTreeSet<u64> = starts.iter().copied().collect();
    assert!(places.len() <= 3, "{places:?}");
}

#[test]
fn a_full_journal_brings_metadata_home_once() {
    let text = WRITES.replace("Close", "Flush 1 NT_STATUS_OK\nClose");
    let costs = Costs { syscall: 1_000, ..Costs::ZERO };
    let bench = Bench::of_text("null", costs, &text, |_| {});
    let commits = bench.fs.commits();
    assert!(commits.checkpoints > 2, "{commits:?}");
    // Only six blocks of metadata change, each of them repeatedly.
    let home = bench.count(Request::Metadata);
    assert!(home <= 6 * commits.checkpoints, "{home} writes in {commits:?}");
    assert!(home >= commits.checkpoints);
    let written = commits.metadata_blocks + 2 * commits.transactions;
    assert!(written / commits.checkpoints >= 24_576, "three quarters of the journal each");
}

#[test]
fn the_same_seed_does_the_same() {
    let found = |seed| {
        let settings = Settings { seed, ..settings(3, 2) };
        let bench = Bench::new("ssd-sata-2020-slowflush", COSTS, &settings);
        let traffic: Vec<_> = bench.machine.host.traffic().collect();
        (bench.table(), traffic, bench.fs.commits())
    };
    let first = found(1);
    assert_eq!(first, found(1));
    assert_ne!(first, found(2));
}

#[test]
#[should_panic(expected = "a pass of this load takes no time")]
fn a_load_that_never_waits_is_refused() {
    Bench::of_text("null", Costs::ZERO, "QUERY_FS_INFORMATION 1 NT_STATUS_OK", |_| {});
}

#[test]
fn files_are_kept_while_they_are_open() {
    let text = r#"
NTCreateX "\a\b" 0x40 0x2 1 NT_STATUS_OK
Unlink "\a\b" 0x6 NT_STATUS_OK
WriteX 1 0 4096 4096 NT_STATUS_OK
Flush 1 NT_STATUS_OK
NTCreateX "\a\b" 0x40 0x2 2 NT_STATUS_OK
NTCreateX "\a\c" 0x40 0x2 3 NT_STATUS_OK
Rename "\a\b" "\a\c" NT_STATUS_OK
WriteX 3 0 4096 4096 NT_STATUS_OK
Flush 3 NT_STATUS_OK
Close 3 NT_STATUS_OK
Close 2 NT_STATUS_OK
Close 1 NT_STATUS_OK
Deltree "\a" NT_STATUS_OK
"#;
    let bench = Bench::of_text("null", COSTS, text, |settings| settings.measured.0 /= 100);
    assert!(bench.table().row(OperationKind::Deltree).count > 10);
    let (data, flushes) =
        (bench.count(Request::Data), bench.table().row(OperationKind::Flush).count);
    assert!(data.abs_diff(flushes) <= 1, "{data} writes for {flushes} flushes");
}

#[test]
fn schedulers_see_each_process_and_writes_that_no_client_waits_for() {
    let bench = Bench::new("null", COSTS, &settings(3, 7));
    let mut data = HashSet::new();
    let mut journal = HashSet::new();
    let mut home = HashSet::new();
    for seen in bench.requests() {
        match bench.kind(seen) {
            Request::Data if seen.flags.sync => data.insert(seen.attr),
            Request::Journal | Request::Commit => journal.insert(Attr { meta: false, ..seen.attr }),
            Request::Metadata | Request::Data => home.insert(seen.attr),
            Request::Flush => false,
        };
    }
    let of = |attrs: &HashSet<Attr>| attrs.iter().map(|of| of.origin).collect::<HashSet<_>>();
    assert_eq!(of(&data).len(), 3, "an fsync's writes are its client's: {data:?}");
    assert!(data.iter().all(|attr| attr.class == Class::None && !attr.background));
    let [jbd2] = journal.iter().copied().collect::<Vec<_>>()[..] else { panic!("{journal:?}") };
    assert_eq!((jbd2.class, jbd2.background), (Class::BestEffort(3), false));
    assert!(!of(&data).contains(&jbd2.origin));
    let [flusher] = home.iter().copied().collect::<Vec<_>>()[..] else { panic!("{home:?}") };
    assert!(flusher.background && !of(&data).contains(&flusher.origin));
}
