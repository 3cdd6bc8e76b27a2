//! Member I/O of kernel md, replayed and compared request by request.
//!
//! The tests replay the RAID 4/5/6 rows of `fixtures/traces/kernel-md-traces.csv`, in the order and
//! under the conditions of the script that recorded them, with merging off and `writes=gather`. Of
//! 460 rows:
//!
//! - 431 are compared request by request: member, kind, position, length, flags, and, if the
//!   recording has groups of completions, the order of submissions and completions;
//! - 2 are compared request by request, but in any order within a group: the first write to a chunk
//!   of the bitmap, for which the kernel writes the bitmap's pages from the last member to the
//!   first;
//! - 15 are compared by totals per member and kind, as they were recorded: six of random writes,
//!   six of writes without the sync flag, and three of 1 MiB with chunks of 512 KiB;
//! - 12 are compared request by request within each stripe, without metadata and flushes: checks,
//!   repairs and rebuilds, for which weft has another number of stripes in flight.
//!
//! The tables below name the rows that need a feature which this release does not have, and the
//! rows for which weft differs on purpose, each with its reason. The numbers of rows are asserted.
//! Rows of RAID 0, 1 and 10 are in `without_parity`.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "numbers of a test are small"
)]

use std::collections::{BTreeMap, BTreeSet};

use super::bad_blocks::stop_and_record;
use crate::{BLOCK, Logged, Options, Payload};
use weft_engine::{Flags, RequestOp, SyncAction, Verb};
use weft_ondisk::Level;
use weft_units::{SectorRange, Sectors, Span};

use expected::{Expected, Item, rows, rows_of};
use rig::{Compare, K, Lab, lab, show};

#[path = "traces/expected.rs"]
mod expected;
#[path = "traces/rig.rs"]
mod rig;
#[path = "traces/without_parity.rs"]
mod without_parity;

/// Rows that need a feature of md which weft does not have: a part of the rows' names, and the
/// feature.
const SKIPPED: &[(&str, &str)] = &[("-ppl-", "partial parity log")];

/// Rows for which weft differs on purpose: a part of the rows' names, and the reason.
const DIFFERENT: &[(&str, &str)] = &[
    ("raid5-4-flush-8", "flushes are batched: md-raid.md §4.1, G1"),
    ("raid5-4-preflush-fua", "data waits for the flush: md-raid.md §4.1, strict"),
    ("raid5-4-failed", "a failure beyond the level is refused, and the array stays as it is"),
    ("-write-error", "the strip is repeated on its own, and recorded as bad (statements.md)"),
];

/// Shares of rows, one for each test: name of the share, parts of the names of its rows, and number
/// of its rows. A row that is not left out belongs to the first share with a part of its name.
const SHARES: [(&str, &[&str], usize); 13] = [
    ("bitmaps", &["-bitmap-"], 4),
    ("degraded, beyond and below the resync point", &["-beyond-", "-below-"], 182),
    ("beyond the resync point", &["-unsynced-"], 4),
    ("flushes and FUA", &["-flush", "-fua"], 5),
    ("degraded", &["-without-"], 105),
    ("writes that no process waits for", &["-nosync-"], 10),
    ("random writes", &["-lcg-"], 6),
    ("skip_copy", &["-skipcopy-"], 2),
    ("superblocks", &["-safemode"], 1),
    ("read errors", &["-read-error", "-badblock-"], 3),
    ("check, repair and rebuild", &["-check", "-repair-", "-rebuild-"], 26),
    (
        "chunks, rows, the warm cache, rmw_level, reads",
        &["-c64-", "-c512-", "-row", "-warm-", "k-at-", "-384k", "-rmwlevel", "-r512", "-r1m"],
        43,
    ),
    ("one write", &["of", "-512"], 70),
];

/// Name of the share of a row, or the reason why the row is left out; `None` for a row that belongs
/// to no test.
fn share_of(name: &str) -> Option<&'static str> {
    let has = |part: &&str| name.contains(part);
    let left_out = SKIPPED.iter().chain(DIFFERENT).find(|(part, _)| has(part));
    let share = SHARES.iter().find(|(_, parts, _)| parts.iter().any(has));
    left_out.map(|(_, reason)| *reason).or(share.map(|(share, ..)| *share))
}

/// Members with the roles in `names`, which has the form of the rows' names: `d0+P`.
fn members_of(roles: &[&str], names: &str) -> Vec<usize> {
    let member = |name: &str| roles.iter().position(|role| *role == name).unwrap();
    names.split('+').map(member).collect()
}

fn number(level: Level) -> u64 {
    match level {
        Level::Raid4 => 4,
        Level::Raid5 => 5,
        _ => 6,
    }
}

#[test]
fn one_write_per_shape_submits_what_the_kernel_does() {
    let mut lab = lab();
    let shapes = [3, 4, 5, 6, 7, 8]
        .map(|n| (Level::Raid5, n))
        .into_iter()
        .chain([(Level::Raid4, 4)])
        .chain([4, 5, 6, 7, 8, 9].map(|n| (Level::Raid6, n)));
    for (level, n) in shapes {
        lab.make(level, n, 4);
        for k in 1..=lab.data {
            let b = lab.fresh();
            let name = format!("raid{}-{n}-{k}of{}", number(level), lab.data);
            lab.case(&name, |lab| lab.write(b, k * BLOCK));
        }
        let b = lab.fresh();
        lab.case(&format!("raid{}-{n}-512", number(level)), |lab| lab.write(b, 512));
    }
    lab.finish("one write", [70, 0, 0]);
}

#[test]
fn chunks_rows_and_the_warm_cache_submit_what_the_kernel_does() {
    let mut lab = lab();
    for (level, n) in [(Level::Raid5, 4), (Level::Raid5, 5), (Level::Raid6, 6)] {
        lab.make(level, n, 64);
        for k in 1..=lab.data {
            let b = lab.fresh();
            let name = format!("raid{}-{n}-c64-{k}of{}", number(level), lab.data);
            lab.case(&name, |lab| lab.write(b, 64 * K * k));
        }
    }
    lab.make(Level::Raid5, 4, 64);
    for row in 1..4 {
        let b = lab.fresh() + row * 192 * K;
        lab.case(&format!("raid5-4-row{row}-4k"), |lab| lab.write(b, 4096));
    }
    let b = lab.fresh();
    lab.case("raid5-4-warm-1", |lab| lab.write(b, 4096));
    lab.case("raid5-4-warm-2", |lab| lab.write(b, 4096));
    lab.case("raid5-4-warm-3", |lab| lab.write(b + 64 * K, 4096));
    lab.case("raid5-4-warm-4", |lab| lab.read(b + 64 * K, 4096));
    let b = lab.fresh();
    lab.case("raid5-4-8k-at-60k", |lab| lab.write(b + 60 * K, 8 * K));
    let b = lab.fresh();
    lab.case("raid5-4-8k-at-188k", |lab| lab.write(b + 188 * K, 8 * K));
    let b = lab.fresh();
    lab.case("raid5-4-6k-at-1k", |lab| lab.write(b + K, 6 * K));
    let b = lab.fresh();
    lab.case("raid5-4-384k", |lab| lab.write(b, 384 * K));
    lab.row += 4;
    let b = lab.fresh();
    for i in 0..3 {
        lab.case(&format!("raid5-4-c64-1m-{}", i + 1), |lab| lab.write(b + i * K * K, K * K));
    }
    lab.make(Level::Raid5, 4, 512);
    let b = lab.fresh();
    for i in 0..3 {
        lab.case(&format!("raid5-4-c512-1m-{}", i + 1), |lab| lab.write(b + i * K * K, K * K));
    }
    for (level, n, rmw) in [
        (Level::Raid5, 4, 2),
        (Level::Raid5, 4, 0),
        (Level::Raid5, 5, 0),
        (Level::Raid5, 5, 2),
        (Level::Raid6, 6, 2),
        (Level::Raid6, 7, 0),
    ] {
        lab.make(level, n, 64);
        lab.set("rmw_level", &rmw.to_string());
        for size in [4096, 512] {
            let b = lab.fresh();
            let name = format!("raid{}-{n}-rmwlevel{rmw}-{size}", number(level));
            lab.case(&name, |lab| lab.write(b, size));
        }
    }
    lab.make(Level::Raid5, 4, 64);
    let b = lab.fresh();
    lab.case("raid5-4-r512", |lab| lab.read(b + K, 512));
    lab.case("raid5-4-r1m", |lab| lab.read(b, K * K));
    // weft gives a client's request one answer; the kernel splits the request at the chunk and
    // counts two.
    if let Some(row) = lab.rows.get_mut("raid5-4-r8k-at-60k")
        && let Expected::Io { io, .. } = &mut row.expected
    {
        assert_eq!(io.acks, [1, 1]);
        io.acks.pop();
    }
    lab.case("raid5-4-r8k-at-60k", |lab| lab.read(b + 60 * K, 8 * K));
    lab.finish("chunks, rows, the warm cache, rmw_level, reads", [40, 3, 0]);
}

/// md-raid.md §9, statement 40: a block that was written from the client's memory with `skip_copy`
/// is not in the cache afterwards, so that a later write of a part of the block reads it first.
#[test]
fn statement_40_a_block_written_with_skip_copy_is_read_before_a_part_of_it_is_written() {
    let mut lab = lab();
    lab.make(Level::Raid5, 4, 64);
    lab.set("skip_copy", "1");
    let b = lab.fresh();
    lab.case("raid5-4-skipcopy-1", |lab| lab.write(b, 4096));
    lab.case("raid5-4-skipcopy-2", |lab| lab.write(b, 512));
    // Without the knob the block is in the cache, and nothing is read.
    lab.set("skip_copy", "0");
    let b = lab.fresh();
    lab.write(b, 4096);
    lab.rig.log.clear();
    lab.write(b, 512);
    let found = lab.found();
    assert!(found.items.iter().all(|(_, item)| item.op == 'W'), "{}", show(&found));
    lab.finish("skip_copy", [2, 0, 0]);
}

#[test]
fn random_writes_hit_and_miss_the_cache_as_in_the_kernel() {
    let mut lab = lab();
    for (level, n, blocks, count) in [
        (Level::Raid5, 4, 768, 300),
        (Level::Raid5, 4, 2048, 1000),
        (Level::Raid5, 4, 6144, 300),
        (Level::Raid5, 5, 6144, 300),
        (Level::Raid6, 6, 768, 300),
        (Level::Raid6, 6, 6144, 300),
    ] {
        lab.make_with(level, n, 64, true, |options| options.checked = false);
        let b = lab.fresh();
        lab.case(&format!("raid{}-{n}-lcg-{blocks}", number(level)), |lab| {
            let mut x: u64 = 1;
            for _ in 0..count {
                x = (x * 1_103_515_245 + 12_345) % (1 << 31);
                lab.write(b + (x >> 8) % blocks * 4096, 4096);
            }
        });
    }
    lab.finish("random writes", [0, 6, 0]);
}

#[test]
fn writes_that_no_client_waits_for_gather_as_in_the_kernel() {
    let mut lab = lab();
    lab.make(Level::Raid5, 4, 64);
    let b = lab.fresh();
    lab.case("raid5-4-nosync-4k", |lab| lab.nosync(b, 4096, 1));
    let b = lab.fresh();
    lab.case("raid5-4-nosync-1k", |lab| lab.nosync(b, 512, 2));
    let b = lab.fresh();
    lab.case("raid5-4-nosync-10", |lab| lab.nosync(b, 4096, 10));
    let b = lab.fresh();
    lab.case("raid5-4-nosync-192k", |lab| lab.nosync(b, 4096, 48));
    for threshold in [0, 1, 8] {
        lab.set("preread_bypass_threshold", &threshold.to_string());
        lab.row += 16;
        let b = lab.fresh();
        lab.case(&format!("raid5-4-nosync-3m-threshold{threshold}"), |lab| {
            lab.nosync(b, 4096, 768);
        });
        lab.row += 16;
        let b = lab.fresh();
        lab.case(&format!("raid5-4-nosync-2m-threshold{threshold}"), |lab| {
            lab.nosync(b + 4096, 4096, 527);
        });
    }
    lab.finish("writes that no process waits for", [4, 6, 0]);
}

#[test]
fn degraded_arrays_submit_what_the_kernel_does() {
    let mut lab = lab();
    let four: &[&str] = &["d0", "d1", "d2", "P"];
    let six: &[&str] = &["Q", "d0", "d1", "d2", "d3", "P"];
    let sets: [(Level, u64, &[&str], &[&str]); 3] = [
        (Level::Raid4, 4, four, &["d0", "P"]),
        (Level::Raid5, 4, four, &["d0", "d1", "P"]),
        (
            Level::Raid6,
            6,
            six,
            &["d0", "d1", "P", "Q", "d0+d1", "d1+d2", "d0+P", "d0+Q", "d1+P", "P+Q"],
        ),
    ];
    for (level, n, roles, failures) in sets {
        for failure in failures {
            lab.make(level, n, 64);
            let members = members_of(roles, failure);
            lab.fail(&members);
            let t = format!("raid{}-{n}-without-{failure}", number(level));
            let row = 64 * K * lab.data;
            let b = lab.fresh();
            lab.case(&format!("{t}-4k"), |lab| lab.write(b, 4096));
            let b = lab.fresh();
            lab.case(&format!("{t}-512"), |lab| lab.write(b, 512));
            let b = lab.fresh();
            lab.case(&format!("{t}-row"), |lab| lab.write(b, row));
            let b = lab.fresh();
            lab.case(&format!("{t}-r4k"), |lab| lab.read(b, 4096));
            lab.case(&format!("{t}-r4k-again"), |lab| lab.read(b, 4096));
            let b = lab.fresh();
            lab.case(&format!("{t}-r4k-d1"), |lab| lab.read(b + 64 * K, 4096));
            let b = lab.fresh();
            lab.case(&format!("{t}-r512"), |lab| lab.read(b + K, 512));
        }
    }
    // DIFFERENT: a failure beyond the level is refused, and the array stays as it was.
    assert!(lab.done.insert("raid5-4-failed".to_owned()));
    lab.make(Level::Raid5, 4, 64);
    lab.fail(&[0]);
    let member = lab.rig.member_of(1);
    assert!(lab.rig.command(Verb::Fail(member)).is_err());
    let b = lab.fresh();
    lab.rig.store(b, 4096).unwrap();
    lab.finish("degraded", [105, 0, 0]);
}

#[test]
fn flush_fua_and_superblocks_reach_the_members_as_in_the_kernel() {
    let mut lab = lab();
    lab.make(Level::Raid5, 4, 64);
    lab.case("raid5-4-flush", Lab::flush);
    let b = lab.fresh();
    lab.case("raid5-4-fua", |lab| {
        lab.fua(b, 4096);
        lab.flush();
    });
    let b = lab.fresh();
    lab.case("raid5-4-fua-row", |lab| {
        lab.fua(b, 192 * K);
        lab.flush();
    });
    let b = lab.fresh();
    lab.case("raid5-4-flush-in-write", |lab| {
        lab.rig.put(b, 4096);
        lab.rig.round();
        lab.flush();
    });
    // DIFFERENT: eight flushes recorded at once share one round of four.
    assert!(lab.done.insert("raid5-4-flush-8".to_owned()));
    lab.rig.log.clear();
    for _ in 0..8 {
        lab.rig.plug(RequestOp::Flush, 0, 0, Payload::Zeros, Flags::NONE);
    }
    lab.drive();
    let found = lab.found();
    assert_eq!((found.items.len(), found.acks.len()), (4, 8), "{}", show(&found));
    // DIFFERENT: no data write before the flush of every member has completed.
    assert!(lab.done.insert("raid5-4-preflush-fua".to_owned()));
    let b = lab.fresh();
    lab.rig.log.clear();
    let flags = Flags { sync: true, fua: true, preflush: true, ..Flags::NONE };
    lab.rig.issue(RequestOp::Write, b, 512, Payload::Tags, flags);
    lab.drive();
    let found = lab.found();
    let kinds: String = found.items.iter().map(|(_, item)| item.op).collect();
    assert_eq!(kinds, "FFFFRRWW", "{}", show(&found));
    assert!(found.items.iter().all(|(_, item)| item.fua == (item.op == 'W')));
    lab.fail(&[2]);
    lab.case("raid5-4-without-d2-flush", Lab::flush);
    lab.finish("flushes and FUA", [5, 0, 0]);
}

/// Replays the rows of an array with a bitmap: the first and the second write to a chunk of the
/// bitmap. The names of the rows begin with `name`.
fn bitmap_cases(lab: &mut Lab, members: u64, name: &str) {
    lab.row = 40 / members * members;
    let b = lab.fresh();
    // A new bitmap has all bits set: wait until they are cleared.
    lab.rig.pass(Span::secs(8));
    lab.write(b + (32 << 20), 4096);
    for (case, at) in [("first", b), ("second", b + 256 * K)] {
        let case = format!("{name}-bitmap-{case}");
        // weft writes the pages from the first member to the last, the kernel in reverse order.
        lab.case_by(&case, Compare::AnyOrder, |_| false, |lab| lab.write(at, 4096));
    }
}

/// The bit of a clean chunk of the bitmap is durable on every member before the stripe is read, and
/// the second write of the same chunk needs no write of the bitmap.
#[test]
fn bitmaps_of_arrays_with_parity_are_written_before_the_data_as_in_the_kernel() {
    let mut lab = lab();
    for (level, n, name) in [(Level::Raid5, 4, "raid5-4"), (Level::Raid6, 5, "raid6-5")] {
        lab.make_with(level, n, 64, true, |options| {
            options.bitmap = Some(weft_units::Bytes(K * K));
            options.full_stripes = 1024;
        });
        bitmap_cases(&mut lab, n, name);
        // Counterpart: a write with its bit already set does not match the row of a first write.
        // This write is to the same chunk of the bitmap.
        lab.row -= 2 * n;
        let b = lab.fresh();
        lab.rig.log.clear();
        lab.write(b, 4096);
        let mut row = lab.rows[&format!("{name}-bitmap-first")].clone();
        let found = lab.found();
        assert!(lab.differs(&row, &found, Compare::AnyOrder).is_err(), "{}", show(&found));
        let Expected::Io { io, .. } = &mut row.expected else { panic!("the row has requests") };
        let pages = io.items.extract_if(.., |(_, item)| item.meta).count() as u64;
        assert_eq!(pages, n);
        io.items.iter_mut().for_each(|(group, _)| *group -= 1);
        io.acks.iter_mut().for_each(|group| *group -= 1);
        assert!(lab.differs(&row, &found, Compare::AnyOrder).is_ok(), "{}", show(&found));
    }
    assert_eq!(lab.by_group, 2);
    lab.finish("bitmaps", [2, 0, 0]);
}

/// weft differs from the kernel's row: it flushes every member before it marks the array clean, so
/// that no superblock says clean while another member's cache holds the data (I5).
#[test]
fn superblocks_go_dirty_and_clean_as_in_the_kernel() {
    let mut lab = lab();
    lab.make_with(Level::Raid5, 4, 64, false, |options| {
        let knob = options.knobs.parse("safe_mode_delay", "0.200").unwrap();
        options.knobs.set(knob);
    });
    lab.case_by(
        "raid5-4-safemode",
        Compare::AsRecorded,
        |item| item.op == 'F',
        write_twice_2_s_apart,
    );
    lab.finish("superblocks", [1, 0, 0]);
}

fn write_twice_2_s_apart(lab: &mut Lab) {
    for i in [1, 2] {
        lab.rig.put(i * 6144 * K, 4096);
        lab.drive();
        let until = lab.rig.now + Span::secs(2);
        while lab.rig.outstanding().next().is_some() || lab.rig.wake() {
            while lab.rig.round() {}
            if lab.rig.now >= until {
                break;
            }
        }
    }
    ungroup_flushes(&mut lab.rig.log);
}

/// Removes rounds in which only flushes were submitted.
fn ungroup_flushes(log: &mut Vec<Logged>) {
    let mut kept: Vec<Logged> = Vec::new();
    let mut round: Vec<Logged> = Vec::new();
    for logged in log.drain(..) {
        let ends = logged == Logged::Round;
        round.push(logged);
        if ends {
            let submitted = round
                .iter()
                .any(|logged| matches!(logged, Logged::Read { .. } | Logged::Write { .. }));
            if submitted {
                kept.append(&mut round);
            } else {
                kept.extend(round.drain(..).filter(|logged| matches!(logged, Logged::Answer(..))));
            }
        }
    }
    kept.append(&mut round);
    *log = kept;
}

#[test]
fn a_read_error_is_corrected_as_in_the_kernel() {
    let mut lab = lab();
    for (level, n, member) in [(Level::Raid5, 4, 0), (Level::Raid6, 6, 1)] {
        lab.make(level, n, 64);
        let b = lab.fresh();
        let sector = lab.rig.array.data_offset[member].0 + lab.base.1;
        lab.rig.disks[member].faults.bad_reads.insert(sector);
        lab.case(&format!("raid{}-{n}-read-error", number(level)), |lab| lab.read(b, 4096));
    }
    lab.make(Level::Raid5, 4, 64);
    stop_and_record(&mut lab.rig, 0, SectorRange::new(4096, 8));
    lab.rig.recover();
    lab.case("raid5-4-badblock-r", |lab| lab.read(6144 * K, 4096));
    lab.finish("read errors", [3, 0, 0]);
}

fn run_sync(lab: &mut Lab, action: SyncAction) {
    lab.rig.admin(Verb::SyncAction(action));
    for _ in 0..100_000 {
        lab.drive();
        let running = lab.rig.volume().sync_action;
        if matches!(running, SyncAction::Idle | SyncAction::Frozen) {
            break;
        }
        lab.rig.pass(Span::millis(1));
    }
    // Commands are not requests of the trace.
    lab.rig.log.retain(|logged| !matches!(logged, Logged::Answer(..)));
}

fn sync_case(lab: &mut Lab, name: &str, action: SyncAction) {
    sync_case_by(lab, name, Compare::WithinStripes, action);
}

fn sync_case_by(lab: &mut Lab, name: &str, compare: Compare, action: SyncAction) {
    lab.case_by(
        name,
        compare,
        |item| item.meta || item.op == 'F',
        |lab| {
            run_sync(lab, action);
        },
    );
}

fn again(lab: &mut Lab) {
    lab.rig.stop();
    lab.rig.recover();
}

fn poke(lab: &mut Lab, member: usize, byte_offset: u64, byte: u8) {
    let at = lab.rig.array.data_offset[member].0 + byte_offset / 512;
    lab.rig.disks[member].poke(at, &[byte; 512]);
}

#[test]
fn check_repair_and_rebuild_submit_what_the_kernel_does() {
    let mut lab = lab();
    let small = |options: &mut Options| {
        options.full_stripes = 1;
        // The content of the array is changed directly on the media.
        options.checked = false;
    };
    for (level, n) in [(Level::Raid5, 4), (Level::Raid6, 5), (Level::Raid6, 6)] {
        let t = format!("raid{}-{n}", number(level));
        lab.make_with(level, n, 64, false, small);
        sync_case(&mut lab, &format!("{t}-check"), SyncAction::Check);
        sync_case(&mut lab, &format!("{t}-check-again"), SyncAction::Check);
        again(&mut lab);
        poke(&mut lab, 1, 4096, 0xa5);
        sync_case(&mut lab, &format!("{t}-check-bad"), SyncAction::Check);
        sync_case(&mut lab, &format!("{t}-repair-bad"), SyncAction::Repair);
        sync_case(&mut lab, &format!("{t}-check-repaired"), SyncAction::Check);
        again(&mut lab);
        poke(&mut lab, n as usize - 1, 8192, 0x5a);
        sync_case(&mut lab, &format!("{t}-repair-P"), SyncAction::Repair);
        if level == Level::Raid6 {
            again(&mut lab);
            poke(&mut lab, 0, 8192, 0x5a);
            sync_case(&mut lab, &format!("{t}-repair-Q"), SyncAction::Repair);
        }
    }
    for (level, n, members) in [
        (Level::Raid5, 4, vec![1]),
        (Level::Raid5, 4, vec![3]),
        (Level::Raid6, 6, vec![1]),
        (Level::Raid6, 6, vec![5]),
        (Level::Raid6, 6, vec![1, 2]),
        (Level::Raid6, 6, vec![1, 5]),
    ] {
        lab.make_with(level, n, 64, false, small);
        lab.fail(&members);
        for member in &members {
            lab.rig.remove(*member);
        }
        lab.rig.sync(SyncAction::Frozen).unwrap();
        for member in &members {
            let disk = lab.rig.add();
            lab.slots.insert(disk, *member);
        }
        let names: Vec<String> = members.iter().map(ToString::to_string).collect();
        let name = format!("raid{}-{n}-rebuild-{}", number(level), names.join("+"));
        sync_case(&mut lab, &name, SyncAction::Idle);
        assert_eq!(lab.rig.volume().degraded, 0, "{name}");
    }
    lab.finish("check, repair and rebuild", [14, 0, 12]);
}

#[test]
fn writes_beyond_the_resync_point_reconstruct_as_in_the_kernel() {
    let mut lab = lab();
    for n in [5, 7] {
        lab.make_with(Level::Raid5, n, 64, false, |options| options.assume_clean = false);
        lab.rig.sync(SyncAction::Frozen).unwrap();
        lab.write(0, 4096);
        lab.row = 1200 / n * n;
        for size in [4096, 512] {
            let b = lab.fresh();
            lab.case(&format!("raid5-{n}-unsynced-{size}"), |lab| lab.write(b, size));
        }
    }
    lab.finish("beyond the resync point", [4, 0, 0]);
}

/// A resync is frozen half way, and members fail. Beyond the resync point a degraded stripe is read
/// as a whole and never read-modify-written; below this point stripes are handled as if all were in
/// sync.
#[test]
fn degraded_writes_beyond_and_below_the_resync_point_are_the_kernels() {
    let mut lab = lab();
    let (four, five) = (&["d0", "d1", "d2", "P"][..], &["d0", "d1", "d2", "d3", "P"][..]);
    let six = &["Q", "d0", "d1", "d2", "d3", "P"][..];
    let one = &["d0", "d1", "P"][..];
    let two = &["d0", "d1", "P", "Q", "d0+d1", "d1+d2", "d0+P", "d0+Q", "d1+P", "d1+Q", "P+Q"][..];
    for (level, roles, failures, sector) in [
        (Level::Raid5, four, one, 512),
        (Level::Raid5, five, one, 512),
        (Level::Raid6, six, two, 512),
        (Level::Raid5, five, &["d1"], 4096),
        (Level::Raid6, six, &["d1"], 4096),
    ] {
        for failure in failures {
            let n = roles.len() as u64;
            let members = members_of(roles, failure);
            lab.make_half_synced(level, n, sector);
            lab.write(0, 4096);
            lab.fail(&members);
            let sectors = if sector == 512 { String::new() } else { format!("-sector{sector}") };
            let t = format!("raid{}-{n}-unsynced{sectors}-without-{failure}", number(level));
            for (side, row) in [("beyond", 160), ("below", 20)] {
                lab.row = row / n * n;
                for size in [4096, 512].into_iter().filter(|size| *size >= sector) {
                    for (block, at) in [("", 0), ("-d1", 64 * K)] {
                        let b = lab.fresh() + at;
                        let name = format!("{t}-{side}-{size}{block}");
                        lab.case(&name, |lab| lab.write(b, size));
                    }
                }
                let (b, len) = (lab.fresh(), 64 * K * lab.data);
                lab.case(&format!("{t}-{side}-row"), |lab| lab.write(b, len));
            }
        }
    }
    lab.finish("degraded, beyond and below the resync point", [182, 0, 0]);
}

/// Every row of the file is replayed by one test above, or is left out for a reason.
#[test]
fn no_row_is_forgotten() {
    let all = rows();
    assert_eq!(all.len(), 480);
    let mut found: BTreeMap<&str, usize> = BTreeMap::new();
    for row in &all {
        let share = share_of(&row.name).unwrap_or_else(|| panic!("{}: no test has it", row.name));
        *found.entry(share).or_default() += 1;
    }
    for (share, _, count) in SHARES {
        assert_eq!(found.remove(share), Some(count), "{share}");
    }
    let reasons: BTreeSet<&str> = SKIPPED.iter().chain(DIFFERENT).map(|(_, why)| *why).collect();
    assert_eq!(found.keys().copied().collect::<BTreeSet<_>>(), reasons, "a reason is stale");
    let count = |list: &[(&str, &str)]| {
        all.iter().filter(|row| list.iter().any(|(part, _)| row.name.contains(part))).count()
    };
    assert_eq!((count(SKIPPED), count(DIFFERENT)), (10, 9));
    let totals = all.iter().filter(|row| matches!(row.expected, Expected::Counts(_)));
    assert_eq!(totals.filter(|row| !reasons.contains(share_of(&row.name).unwrap())).count(), 15);
    // A row without a test is noticed, and a row that is left out belongs to no test.
    assert_eq!(share_of("raid5-4-reshape"), None);
    assert_eq!(share_of("raid5-4-flush-8"), Some(DIFFERENT[0].1));
    assert_eq!(share_of("raid5-4-flush"), Some("flushes and FUA"));
}
