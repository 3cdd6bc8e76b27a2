//! Rig that replays rows of the recording on an array as in the recording's script, and compares
//! the requests.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::{BLOCK, Logged, Options, Payload, Rig, chunk_kib};
use weft_engine::{Flags, RequestOp, SyncAction};
use weft_ondisk::Level;
use weft_units::{Sectors, Span};

use super::expected::{Expected, Io, Item, Row, rows};
use super::{DIFFERENT, share_of};

/// The array on which rows are replayed, the rows, and the results so far.
pub(super) struct Lab {
    pub(super) rows: BTreeMap<String, Row>,
    pub(super) rig: Rig,
    pub(super) level: Level,
    pub(super) members: u64,
    pub(super) data: u64,
    pub(super) chunk: Sectors,
    pub(super) row: u64,
    /// Start of the case's full stripe, in bytes of the array and in sectors of a member.
    pub(super) base: (u64, u64),
    /// Slot of each disk with a slot that differs from its number.
    pub(super) slots: BTreeMap<usize, usize>,
    pub(super) done: BTreeSet<String>,
    pub(super) exact: u32,
    pub(super) totals: u32,
    pub(super) by_stripe: u32,
    pub(super) by_group: u32,
    pub(super) wrong: Vec<String>,
}

/// Precision with which a row matches the recording.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Same {
    /// Requests match one by one, in the recorded order.
    Requests,
    /// The numbers of requests and sectors of each member and kind match.
    Totals,
    /// Requests match in order within each stripe.
    WithinStripes,
    /// Requests match in any order within each group.
    AnyOrder,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Compare {
    /// Requests that are submitted together match in any order.
    AnyOrder,
    /// Requests match in the recorded order.
    AsRecorded,
    /// Requests match in the recorded order within each stripe of 4 KiB, because a resync of weft
    /// has another number of stripes in flight.
    WithinStripes,
}

impl Lab {
    pub(super) fn make(&mut self, level: Level, members: u64, chunk_kib_each: u64) {
        self.make_with(level, members, chunk_kib_each, true, |_| ());
    }

    pub(super) fn make_with(
        &mut self,
        level: Level,
        members: u64,
        kib: u64,
        active: bool,
        change: impl FnOnce(&mut Options),
    ) {
        let mut options = options(level, members as usize, kib);
        change(&mut options);
        self.rig = Rig::of(options);
        self.level = level;
        self.members = members;
        self.data = members - if level == Level::Raid6 { 2 } else { 1 };
        self.chunk = chunk_kib(kib);
        self.row = 0;
        self.base = (0, 0);
        self.slots.clear();
        if active {
            self.write(0, BLOCK);
            self.row = members;
        }
    }

    /// Makes an array of 240 full stripes with a frozen resync that has passed about 100 of them,
    /// and an empty stripe cache.
    pub(super) fn make_half_synced(&mut self, level: Level, members: u64, sector: u64) {
        self.make_with(level, members, 64, false, |options| {
            options.full_stripes = 240;
            options.assume_clean = false;
            options.logical_block = sector as u32;
        });
        let half = Sectors(100 * self.chunk.0);
        while self.rig.volume().sync_completed.is_none_or(|(passed, _)| passed < half) {
            self.rig.must();
            assert!(self.rig.round() || self.rig.wake(), "the resync continues");
        }
        self.rig.sync(SyncAction::Frozen).unwrap();
        let point = self.rig.volume().resync_from.unwrap();
        assert!(point.0 >= half.0 - 4096 && point.0 < 140 * self.chunk.0, "{point:?}");
        self.rig.stop();
        self.rig.recover();
        self.rig.sync(SyncAction::Frozen).unwrap();
    }

    pub(super) fn set(&mut self, name: &str, value: &str) {
        let ticket = self.rig.set(name, value);
        self.rig.wait(ticket).unwrap();
    }

    pub(super) fn fresh(&mut self) -> u64 {
        self.row += self.members;
        self.base = (self.row * self.chunk.bytes().0 * self.data, self.row * self.chunk.0);
        self.base.0
    }

    pub(super) fn drive(&mut self) {
        self.rig.settle();
        for _ in 0..1_000_000 {
            self.rig.must();
            if !self.rig.round() && (self.rig.unanswered() == 0 || !self.rig.wake()) {
                break;
            }
        }
        assert_eq!(self.rig.unanswered(), 0);
    }

    pub(super) fn write(&mut self, start: u64, len: u64) {
        self.rig.put(start, len);
        self.drive();
    }

    pub(super) fn read(&mut self, start: u64, len: u64) {
        self.rig.get(start, len);
        self.drive();
    }

    pub(super) fn fua(&mut self, start: u64, len: u64) {
        self.rig.fua(start, len);
        self.drive();
    }

    pub(super) fn flush(&mut self) {
        self.rig.flush();
        self.drive();
    }

    pub(super) fn nosync(&mut self, start: u64, step: u64, count: u64) {
        for index in 0..count {
            let flags = Flags::NONE;
            self.rig.plug(RequestOp::Write, start + index * step, step, Payload::Tags, flags);
        }
        self.drive();
    }

    pub(super) fn fail(&mut self, members: &[usize]) {
        for member in members {
            self.rig.fail_disk(*member);
        }
        self.rig.pass(Span::millis(400));
    }

    pub(super) fn case(&mut self, name: &str, act: impl FnOnce(&mut Self)) {
        self.case_by(name, Compare::AsRecorded, |_| false, act);
    }

    pub(super) fn case_by(
        &mut self,
        name: &str,
        compare: Compare,
        leave_out: impl Fn(&Item) -> bool,
        act: impl FnOnce(&mut Self),
    ) {
        assert!(self.done.insert(name.to_owned()), "{name} twice");
        let row = self.rows.get(name).unwrap_or_else(|| panic!("{name} is no row")).clone();
        self.rig.log.clear();
        act(self);
        let mut found = self.found();
        found.items.retain(|(_, item)| !leave_out(item));
        match self.differs(&row, &found, compare) {
            Ok(Same::Requests) => self.exact += 1,
            Ok(Same::Totals) => self.totals += 1,
            Ok(Same::WithinStripes) => self.by_stripe += 1,
            Ok(Same::AnyOrder) => self.by_group += 1,
            Err(why) => self.wrong.push(format!("{name}: {why}")),
        }
    }

    pub(super) fn found(&self) -> Io {
        let mut io = Io::default();
        let mut group = 0;
        for logged in &self.rig.log {
            let (disk, op, at, count, fua, meta) = match *logged {
                Logged::Answer(..) => {
                    io.acks.push(group);
                    continue;
                }
                Logged::Round => {
                    group += 1;
                    continue;
                }
                Logged::Done { .. } => continue,
                Logged::Flush { disk } => (disk, 'F', 0, 0, false, false),
                Logged::Read { disk, at, count, .. } => (disk, 'R', at, count, false, false),
                Logged::Write { disk, at, count, fua, metadata, .. } => {
                    (disk, 'W', at, count, fua, metadata)
                }
            };
            let relative =
                at as i64 - self.rig.array.data_offset[disk].0 as i64 - self.base.1 as i64;
            let at = if op == 'F' {
                0
            } else if meta {
                at as i64
            } else {
                relative
            };
            let member = self.slots.get(&disk).copied().unwrap_or(disk);
            io.items.push((group, Item { member, op, at, meta, count, fua }));
        }
        io
    }

    /// Compares a row with the requests found. Returns how closely they match, or an error if they
    /// do not.
    pub(super) fn differs(&self, row: &Row, found: &Io, compare: Compare) -> Result<Same, String> {
        if let Some((_, count)) = row.description.split_once("mismatch_cnt after: ") {
            let expected: u64 = count.parse().unwrap();
            let found = self.rig.volume().mismatch_cnt;
            if found != expected {
                return Err(format!("mismatch_cnt {found}, expected {expected}"));
            }
        }
        match &row.expected {
            Expected::Counts(expected) => {
                let mut counts = BTreeMap::new();
                for (_, item) in &found.items {
                    let count: &mut (u64, u64) = counts.entry((item.member, item.op)).or_default();
                    count.0 += 1;
                    count.1 += item.count;
                }
                if counts == *expected {
                    Ok(Same::Totals)
                } else {
                    Err(format!("found {counts:?}, expected {expected:?}"))
                }
            }
            Expected::Io { io, grouped } => {
                let bare =
                    |io: &Io| io.items.iter().map(|(_, item)| item.clone()).collect::<Vec<_>>();
                let sorted = |mut items: Vec<Item>| {
                    items.sort();
                    items
                };
                if *grouped && *found == *io || !*grouped && bare(found) == bare(io) {
                    return Ok(Same::Requests);
                }
                let same = sorted(bare(found)) == sorted(bare(io));
                if row.varies == "order" && same {
                    return Ok(Same::Requests);
                }
                if compare == Compare::WithinStripes && same && by_stripe(found) == by_stripe(io) {
                    return Ok(Same::WithinStripes);
                }
                let in_groups = |io: &Io| {
                    let mut items = io.items.clone();
                    items.sort();
                    (items, io.acks.clone())
                };
                let groups = if *grouped { in_groups(found) == in_groups(io) } else { same };
                if compare == Compare::AnyOrder && groups {
                    return Ok(Same::AnyOrder);
                }
                Err(format!("\n    found    {}\n    expected {}", show(found), show(io)))
            }
        }
    }
}

pub(super) fn by_stripe(io: &Io) -> BTreeMap<i64, Vec<Item>> {
    let mut rows: BTreeMap<i64, Vec<Item>> = BTreeMap::new();
    for (_, item) in &io.items {
        rows.entry(item.at).or_default().push(item.clone());
    }
    rows
}

pub(super) fn show(io: &Io) -> String {
    let mut text = String::new();
    let groups = io.items.iter().map(|(group, _)| *group).max().unwrap_or(0);
    for group in 0..=groups.max(io.acks.iter().copied().max().unwrap_or(0)) {
        for _ in io.acks.iter().filter(|at| **at == group) {
            text.push_str("ack ");
        }
        let items: Vec<&Item> =
            io.items.iter().filter(|(at, _)| *at == group).map(|(_, item)| item).collect();
        if items.is_empty() {
            continue;
        }
        text.push('{');
        for item in items.iter().take(24) {
            let meta = if item.meta { "meta" } else { "" };
            let fua = if item.fua { "!f" } else { "" };
            let (at, count) = (item.at as f64 / 2.0, item.count as f64 / 2.0);
            let at = if item.meta { item.at as f64 } else { at };
            let _ = write!(text, "{}:{}@{meta}{at}+{count}{fua} ", item.member, item.op);
        }
        if items.len() > 24 {
            let _ = write!(text, "… {} more", items.len() - 24);
        }
        text.push_str("} ");
    }
    text
}

pub(super) fn options(level: Level, members: usize, chunk: u64) -> Options {
    let mut options = Options::new(level, members, chunk_kib(chunk));
    options.full_stripes = 90 * 1024 / chunk;
    options.logged = true;
    options.client_frames = 2048;
    options.knobs = weft_engine::knobs::Knobs::md();
    for (name, value) in [
        ("max_sectors_kb", "0"),
        ("writes", "gather"),
        ("safe_mode_delay", "0"),
        ("read_around", "0"),
        ("check_reads", "cache"),
    ] {
        let knob = options.knobs.parse(name, value).unwrap();
        options.knobs.set(knob);
    }
    options
}

pub(super) const K: u64 = 1024;

pub(super) fn lab() -> Lab {
    Lab {
        rows: rows().into_iter().map(|row| (row.name.clone(), row)).collect(),
        rig: Rig::of(options(Level::Raid5, 4, 64)),
        level: Level::Raid5,
        members: 4,
        data: 3,
        chunk: chunk_kib(64),
        row: 0,
        base: (0, 0),
        slots: BTreeMap::new(),
        done: BTreeSet::new(),
        exact: 0,
        totals: 0,
        by_stripe: 0,
        by_group: 0,
        wrong: Vec::new(),
    }
}

impl Lab {
    /// Asserts that exactly the rows of a share of [`SHARES`] were replayed. `counts` are the
    /// expected numbers of rows that match request by request, by totals and within stripes.
    pub(super) fn finish(self, share: &str, counts: [u32; 3]) {
        println!(
            "{} stripes as recorded, {} totals, {} within stripes",
            self.exact, self.totals, self.by_stripe
        );
        assert!(
            self.wrong.is_empty(),
            "{} rows differ:\n{}",
            self.wrong.len(),
            self.wrong.join("\n")
        );
        let different = |name: &&String| DIFFERENT.iter().any(|(other, _)| name.as_str() == *other);
        let done: BTreeSet<&str> =
            self.done.iter().filter(|name| !different(name)).map(String::as_str).collect();
        let names = self.rows.keys().map(String::as_str);
        let listed: BTreeSet<&str> = names.filter(|name| share_of(name) == Some(share)).collect();
        assert_eq!(done, listed);
        assert_eq!([self.exact, self.totals, self.by_stripe], counts);
    }
}
