//! Rows of the recording: their text, parsed into the requests that it lists.

use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Item {
    pub(super) member: usize,
    pub(super) op: char,
    /// First sector, counted from the start of the case's full stripe; for metadata, from the start
    /// of the member.
    pub(super) at: i64,
    pub(super) meta: bool,
    pub(super) count: u64,
    pub(super) fua: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Io {
    /// Requests in order, each with the number of groups completed before it, if known.
    pub(super) items: Vec<(usize, Item)>,
    /// Number of groups completed before each answer.
    pub(super) acks: Vec<usize>,
}

#[derive(Clone, Debug)]
pub(super) enum Expected {
    /// Requests and sectors per member and kind.
    Counts(BTreeMap<(usize, char), (u64, u64)>),
    Io {
        io: Io,
        grouped: bool,
    },
}

#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) varies: String,
    pub(super) expected: Expected,
}

pub(super) fn rows() -> Vec<Row> {
    rows_of(&["raid4", "raid5", "raid6"])
}

/// Rows of the recording for these levels, selected by the beginning of the rows' names.
pub(super) fn rows_of(levels: &[&str]) -> Vec<Row> {
    let text = include_str!("../../../../../fixtures/traces/kernel-md-traces.csv");
    let lines = text.lines().skip(1).map(split_csv);
    lines
        .filter(|fields| levels.iter().any(|level| fields[0].starts_with(level)))
        .map(|fields| Row {
            name: fields[0].clone(),
            description: fields[1].clone(),
            varies: fields[6].clone(),
            expected: parse(&fields[7]),
        })
        .collect()
}

pub(super) fn split_csv(line: &str) -> Vec<String> {
    let (mut fields, mut field, mut quoted) = (Vec::new(), String::new(), false);
    for character in line.chars() {
        match character {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(std::mem::take(&mut field)),
            other => field.push(other),
        }
    }
    fields.push(field);
    // case, description, request, reads, writes, flushes, varies, io
    assert_eq!(fields.len(), 8, "{line}");
    fields
}

pub(super) fn parse(text: &str) -> Expected {
    if let Some(counts) = text.strip_prefix("counts ") {
        let mut map = BTreeMap::new();
        for word in counts.split(' ') {
            let (member, rest) = word.split_once(':').unwrap();
            let (requests, kib) = rest.split_once("x/").unwrap();
            let number = requests.trim_start_matches(char::is_alphabetic);
            let op = requests.chars().next().unwrap();
            let kib: u64 = kib.trim_end_matches('K').parse().unwrap();
            map.insert((member.parse().unwrap(), op), (number.parse().unwrap(), kib * 2));
        }
        return Expected::Counts(map);
    }
    let grouped = text.contains('{') || !text.contains('@');
    let mut io = Io::default();
    let mut group = 0;
    let mut rest = text;
    while !rest.is_empty() {
        rest = rest.trim_start();
        if let Some(after) = rest.strip_prefix('{') {
            rest = after;
        } else if let Some(after) = rest.strip_prefix('}') {
            group += 1;
            rest = after;
        } else if let Some(after) = rest.strip_prefix("ack") {
            io.acks.push(group);
            rest = after;
        } else if let Some(after) = rest.strip_prefix('[') {
            let (inside, after) = after.split_once(']').unwrap();
            let after = after.strip_prefix('x').unwrap();
            let end = after.find([' ', '}']).unwrap_or(after.len());
            let times: i64 = after[..end].parse().unwrap();
            let items: Vec<Item> = inside.split(' ').flat_map(parse_item).collect();
            for round in 0..times {
                for item in &items {
                    let at = item.at + round * item.count as i64;
                    io.items.push((group, Item { at, ..item.clone() }));
                }
            }
            rest = &after[end..];
        } else {
            let end = rest.find([' ', '}']).unwrap_or(rest.len());
            io.items.extend(parse_item(&rest[..end]).into_iter().map(|item| (group, item)));
            rest = &rest[end..];
        }
    }
    Expected::Io { io, grouped }
}

pub(super) fn parse_item(word: &str) -> Vec<Item> {
    let (member, rest) = word.split_once(':').unwrap();
    let member = member.parse().unwrap();
    // A completion belongs to a row that is left out.
    if rest == "done" {
        return Vec::new();
    }
    if rest == "FLUSH" {
        return vec![Item { member, op: 'F', at: 0, meta: false, count: 0, fua: false }];
    }
    let op = rest.chars().next().unwrap();
    let (rest, flags) = rest.split_once('!').unwrap_or((rest, ""));
    let (rest, times) = match rest.split_once('x') {
        Some((rest, times)) => (rest, times.parse::<i64>().unwrap()),
        None => (rest, 1),
    };
    let (at, len) = rest[2..].split_once('+').unwrap();
    let kib = |text: &str| (text.parse::<f64>().unwrap() * 2.0).round();
    let count = kib(len) as u64;
    let (meta, at) = match at.strip_prefix("meta") {
        Some(sector) => (true, sector.parse::<i64>().unwrap()),
        None => (false, kib(at) as i64),
    };
    let item = Item { member, op, at, meta, count, fua: flags.contains('f') };
    (0..times).map(|n| Item { at: at + n * count as i64, ..item.clone() }).collect()
}
