//! Member I/O of kernel md on arrays without parity, replayed and compared: RAID 0, 1 and 10.
//!
//! 125 of 160 rows are compared request by request. In 20 more rows, requests that are submitted
//! together match in any order: pages of a bitmap and copies of a unit, for which the kernel and
//! weft go through the members in opposite orders. 15 rows are left out, each with its reason.

use super::*;

/// Rows that are not replayed as recorded: a part of the rows' names, and the reason.
const LEFT_OUT: &[(&str, &str)] = &[
    ("-behind", "write-behind: weft refuses it, and writes wait for write-mostly members too"),
    ("-write-error", "the copy is repeated on its own, and recorded as bad (statements.md)"),
    ("-flush-8", "flushes are batched: md-raid.md §4.1, G1"),
    ("-read-error", "a client is answered with the other copy before the first one is corrected"),
    ("-preflush-fua", "data waits for the flush: md-raid.md §4.1, strict"),
];

const LEVELS: [&str; 2] = ["raid0-", "raid1"];

/// Layouts by their names in rows: near, far and offset copies.
const LAYOUTS: [(&str, u32); 5] =
    [("n2", 0x102), ("n3", 0x103), ("f2", 0x201), ("f3", 0x301), ("o2", 0x10201)];

fn layout(name: &str) -> Option<u32> {
    LAYOUTS.iter().find(|(other, _)| *other == name).map(|(_, code)| *code)
}

fn straight_lab() -> Lab {
    let rows = rows_of(&LEVELS).into_iter().map(|row| (row.name.clone(), row)).collect();
    Lab { rows, ..lab() }
}

/// Makes an array on members with 95 MiB of data, which is written once.
fn make(lab: &mut Lab, level: Level, members: u64, change: impl FnOnce(&mut Options)) {
    lab.make_with(level, members, 64, true, |options| {
        options.full_stripes = 95 * 1024 / 64;
        change(options);
    });
    lab.data = match level {
        Level::Raid1 => 1,
        Level::Raid10 => members / 2,
        _ => members,
    };
}

/// Asserts the numbers of rows that match the recording, by precision, and that exactly the rows
/// with these parts in their names were replayed.
fn finish(lab: &Lab, parts: &[&str], counts: [u32; 3]) {
    let wrong = &lab.wrong;
    assert!(wrong.is_empty(), "{} rows differ:\n{}", wrong.len(), wrong.join("\n"));
    let done: BTreeSet<&str> = lab.done.iter().map(String::as_str).collect();
    let listed =
        lab.rows.keys().map(String::as_str).filter(|name| share(name) == parts.first().copied());
    assert_eq!(done, listed.collect());
    assert_eq!([lab.exact, lab.by_stripe, lab.by_group], counts, "{} totals", lab.totals);
}

/// Rows that each test below replays: parts of the rows' names, and the number of the rows. A row
/// that is not left out belongs to the first entry with a part of its name.
const SHARES: [(&[&str], usize); 5] = [
    (&["-check", "-repair-", "-rebuild-", "-resync"], 34),
    (&["-flush", "-fua"], 6),
    (&["-safemode"], 2),
    (&["-bitmap-"], 4),
    (&["-chunk", "-128k", "-r4k", "-4k", "-1m"], 99),
];

/// First name part of the share of a row, or the reason why the row is left out; `None` for a row
/// of no test.
fn share(name: &str) -> Option<&'static str> {
    let left_out = LEFT_OUT.iter().find(|(part, _)| name.contains(part)).map(|(_, why)| *why);
    let has = |(parts, _): &&(&[&'static str], usize)| parts.iter().any(|part| name.contains(part));
    left_out.or_else(|| SHARES.iter().find(has).map(|(parts, _)| parts[0]))
}

#[test]
fn copies_and_zones_are_where_the_kernel_has_them() {
    let mut lab = straight_lab();
    for (n, name) in [
        (4, "n2"),
        (3, "n2"),
        (5, "n2"),
        (5, "n3"),
        (4, "f2"),
        (3, "f2"),
        (6, "f3"),
        (4, "o2"),
        (3, "o2"),
        (5, "o2"),
    ] {
        make(&mut lab, Level::Raid10, n, |options| options.layout = layout(name));
        for c in 0..=n {
            lab.case(&format!("raid10-{n}-{name}-chunk{c}"), |lab| lab.write(c * 64 * K, 64 * K));
        }
        lab.case(&format!("raid10-{n}-{name}-128k"), |lab| lab.write(0, 128 * K));
        lab.case(&format!("raid10-{n}-{name}-r4k"), |lab| lab.read(0, 4096));
    }
    for (name, code) in [("original", 1), ("alternate", 2)] {
        lab.make_with(Level::Raid0, 3, 1024, true, |options| {
            options.layout = Some(code);
            options.full_stripes = 1;
            options.more_data = vec![Sectors::ZERO, Sectors(8192), Sectors(8192)];
        });
        for c in 0..11 {
            let case = format!("raid0-3-{name}-chunk{c}");
            lab.case(&case, |lab| lab.read(c * K * K, 4096));
        }
    }
    make(&mut lab, Level::Raid1, 2, |_| ());
    lab.case("raid1-2-4k", |lab| lab.write(4 * K * K, 4096));
    lab.case("raid1-2-1m", |lab| lab.write(8 * K * K, K * K));
    lab.case("raid1-2-r4k-seq", |lab| {
        (0..8).for_each(|i| lab.read(16 * K * K + i * 4096, 4096));
    });
    lab.case("raid1-2-r4k-scattered", |lab| {
        (0..8).for_each(|i| lab.read(20 * K * K + i * 7919 % 64 * 65536, 4096));
    });
    make(&mut lab, Level::Raid1, 2, |_| ());
    lab.case("raid1-2-r4k-4", |lab| {
        for i in 0..4 {
            lab.rig.get(30 * K * K + i * 131_072, 4096);
            lab.rig.settle();
        }
        lab.drive();
    });
    finish(&lab, SHARES[4].0, [99, 0, 0]);
}

#[test]
fn flushes_and_fua_of_arrays_without_parity() {
    let mut lab = straight_lab();
    for (level, n, name) in
        [(Level::Raid1, 2, "raid1-2"), (Level::Raid10, 4, "raid10-4"), (Level::Raid0, 2, "raid0-2")]
    {
        make(&mut lab, level, n, |_| ());
        lab.case(&format!("{name}-flush"), Lab::flush);
        let b = lab.fresh();
        lab.case(&format!("{name}-fua"), |lab| {
            lab.fua(b, 4096);
            lab.flush();
        });
        // Left out: in weft, eight flushes that arrive at once share one flush of each member.
        lab.rig.log.clear();
        for _ in 0..8 {
            lab.rig.plug(RequestOp::Flush, 0, 0, Payload::Zeros, Flags::NONE);
        }
        lab.drive();
        let found = lab.found();
        assert_eq!((found.items.len() as u64, found.acks.len()), (n, 8), "{}", show(&found));
        // Left out: no data write before the flush of every member has completed.
        let b = lab.fresh();
        lab.rig.log.clear();
        let flags = Flags { sync: true, fua: true, preflush: true, ..Flags::NONE };
        lab.rig.issue(RequestOp::Write, b, 512, Payload::Tags, flags);
        lab.drive();
        let found = lab.found();
        let kinds: String = found.items.iter().map(|(_, item)| item.op).collect();
        let copies = if level == Level::Raid0 { 1 } else { 2 };
        assert_eq!(kinds, "F".repeat(n as usize) + &"W".repeat(copies), "{}", show(&found));
        assert!(found.items.iter().all(|(_, item)| item.fua == (item.op == 'W')));
    }
    finish(&lab, SHARES[1].0, [6, 0, 0]);
}

#[test]
fn superblocks_and_bitmaps_of_arrays_without_parity() {
    let mut lab = straight_lab();
    for (level, n, name) in [(Level::Raid1, 2, "raid1-2"), (Level::Raid10, 4, "raid10-4")] {
        lab.make_with(level, n, 64, false, |options| {
            let knob = options.knobs.parse("safe_mode_delay", "0.200").unwrap();
            options.knobs.set(knob);
        });
        let flushes = |item: &Item| item.op == 'F';
        lab.case_by(
            &format!("{name}-safemode"),
            Compare::AsRecorded,
            flushes,
            write_twice_2_s_apart,
        );
    }
    finish(&lab, SHARES[2].0, [2, 0, 0]);

    let mut lab = straight_lab();
    for (level, n, name) in [(Level::Raid1, 2, "raid1-2"), (Level::Raid10, 4, "raid10-4")] {
        make(&mut lab, level, n, |options| options.bitmap = Some(weft_units::Bytes(K * K)));
        bitmap_cases(&mut lab, n, name);
    }
    finish(&lab, SHARES[3].0, [2, 0, 2]);
}

/// Left out: the kernel retries a read that failed, corrects the block from the other copy, and
/// only then reads it for the client. Weft answers with the other copy and then corrects the block.
#[test]
fn a_read_error_of_a_copy() {
    for (level, n, at) in [(Level::Raid1, 2, 40_960), (Level::Raid10, 4, 20_480)] {
        let mut lab = straight_lab();
        make(&mut lab, level, n, |_| ());
        let sector = lab.rig.array.data_offset[0].0 + at;
        lab.rig.disks[0].faults.bad_reads.insert(sector);
        lab.rig.log.clear();
        lab.read(20 * K * K, 4096);
        let found = lab.found();
        let short = |(_, item): &(usize, Item)| format!("{}{}", item.member, item.op);
        let said: Vec<String> = found.items.iter().map(short).collect();
        assert_eq!(said, ["0R", "1R", "0R", "1R", "0W", "0R"], "{}", show(&found));
        assert!(found.items.iter().all(|(_, item)| (item.at, item.count) == (at as i64, 8)));
        assert_eq!(found.acks, [2], "{}", show(&found));
    }
}

#[test]
fn check_repair_resync_and_rebuild_of_mirrors() {
    let mut lab = straight_lab();
    for (level, n, name) in [
        (Level::Raid1, 2, ""),
        (Level::Raid1, 3, ""),
        (Level::Raid10, 4, "n2"),
        (Level::Raid10, 4, "f2"),
        (Level::Raid10, 3, "o2"),
        (Level::Raid10, 5, "n2"),
    ] {
        // The kernel submits the copies of a unit in another order.
        let order = Compare::AnyOrder;
        let t = match level {
            Level::Raid1 => format!("raid1-{n}"),
            _ => format!("raid10-{n}-{name}"),
        };
        let small = |clean: bool| {
            move |options: &mut Options| {
                options.layout = layout(name);
                options.full_stripes = 4;
                options.checked = false;
                options.assume_clean = clean;
            }
        };
        lab.make_with(level, n, 64, false, small(true));
        sync_case_by(&mut lab, &format!("{t}-check"), order, SyncAction::Check);
        poke(&mut lab, 1, 8192, 0xa5);
        sync_case_by(&mut lab, &format!("{t}-check-bad"), order, SyncAction::Check);
        sync_case_by(&mut lab, &format!("{t}-repair-bad"), order, SyncAction::Repair);
        sync_case_by(&mut lab, &format!("{t}-check-repaired"), order, SyncAction::Check);
        lab.make_with(level, n, 64, false, small(false));
        lab.rig.sync(SyncAction::Frozen).unwrap();
        sync_case_by(&mut lab, &format!("{t}-resync"), order, SyncAction::Idle);
        if level == Level::Raid1 || name == "n2" {
            lab.make_with(level, n, 64, false, small(true));
            lab.fail(&[1]);
            lab.rig.remove(1);
            lab.rig.sync(SyncAction::Frozen).unwrap();
            let disk = lab.rig.add();
            lab.slots.insert(disk, 1);
            sync_case_by(&mut lab, &format!("{t}-rebuild-1"), order, SyncAction::Idle);
            assert_eq!(lab.rig.volume().degraded, 0, "{t}");
        }
    }
    finish(&lab, SHARES[0].0, [16, 0, 18]);
}

/// Every row is either replayed by one of the tests above or left out for a reason.
#[test]
fn no_row_without_parity_is_forgotten() {
    let mut found: BTreeMap<&str, usize> = BTreeMap::new();
    for row in rows_of(&LEVELS) {
        let share = share(&row.name).unwrap_or_else(|| panic!("{}: no test has it", row.name));
        *found.entry(share).or_default() += 1;
    }
    for (parts, count) in SHARES {
        assert_eq!(found.remove(parts[0]), Some(count), "{parts:?}");
    }
    let left_out: Vec<usize> = LEFT_OUT.iter().filter_map(|(_, why)| found.remove(why)).collect();
    assert_eq!((left_out.as_slice(), found.len()), (&[1, 6, 3, 2, 3][..], 0));
}
