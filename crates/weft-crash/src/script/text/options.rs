//! Options as lines of a script's text.

use weft_engine::WriteBackConfig;
use weft_units::{Bytes, Sectors, Span};

use super::{interned, name_of, named, number, yes};
use crate::options::Options;
use crate::payload::PayloadMode;

/// Names and values of the options that differ from their defaults. `level`, `members` and `chunk`
/// have no defaults and are always included.
pub(super) fn changed(options: &Options) -> Vec<(&'static str, String)> {
    let defaults = lines(&Options::new(options.level, options.members, options.chunk));
    let needed = |name| matches!(name, "level" | "members" | "chunk");
    let all = lines(options).into_iter().zip(defaults);
    all.filter(|(line, default)| needed(line.0) || line != default).map(|(line, _)| line).collect()
}

/// Names and values of all options except knobs. The struct is destructured so that no new field is
/// forgotten.
fn lines(options: &Options) -> Vec<(&'static str, String)> {
    let Options { level, members, layout, chunk, full_stripes, more_data, spares, .. } = options;
    let Options { version, first_number, assume_clean, bitmap, logical_block, .. } = options;
    let Options { discards, rotational, write_mostly, one_space, torn_writes, .. } = options;
    let Options { payload, stripes_max, cache_stripes, client_frames, .. } = options;
    let Options { client_credit, greedy, seed, defer_computes, latency, checked, .. } = options;
    let Options { data_promised, disks_lie, only, lost_work_every, logged, .. } = options;
    let Options { classes, bare, beside, drives, .. } = options;
    let more_data: Vec<u64> = more_data.iter().map(|it| it.0).collect();
    vec![
        ("level", level.to_string()),
        ("members", members.to_string()),
        ("chunk", chunk.0.to_string()),
        ("seed", seed.to_string()),
        ("layout", some(layout.map(|it| format!("{it:#x}")))),
        ("full-stripes", full_stripes.to_string()),
        ("more-data", list(&more_data)),
        ("spares", spares.to_string()),
        ("bare", no_or_yes(*bare)),
        ("beside", beside.to_string()),
        ("version", version.to_string()),
        ("first-number", first_number.to_string()),
        ("assume-clean", no_or_yes(*assume_clean)),
        ("bitmap", some(bitmap.map(|it| it.0))),
        ("logical-block", logical_block.to_string()),
        ("discards", no_or_yes(*discards)),
        ("rotational", list(rotational)),
        ("write-mostly", list(write_mostly)),
        ("one-space", no_or_yes(*one_space)),
        ("torn-writes", no_or_yes(*torn_writes)),
        ("payload", name_of(&PAYLOADS, *payload).to_owned()),
        ("stripes-max", some(*stripes_max)),
        ("cache-stripes", some(*cache_stripes)),
        ("client-frames", client_frames.to_string()),
        ("client-credit", client_credit.0.to_string()),
        ("greedy", no_or_yes(*greedy)),
        ("defer-computes", no_or_yes(*defer_computes)),
        ("latency", latency.0.to_string()),
        ("drives", list(drives)),
        ("checked", no_or_yes(*checked)),
        ("data-promised", no_or_yes(*data_promised)),
        ("disks-lie", no_or_yes(*disks_lie)),
        ("only", some(*only)),
        ("lost-work-every", lost_work_every.to_string()),
        ("logged", no_or_yes(*logged)),
        ("classes", no_or_yes(*classes)),
        ("write-back-pages", some(options.write_back.map(|it| it.pages))),
    ]
}

/// Applies a line. The error describes the value that was expected.
pub(super) fn set(options: &mut Options, name: &str, value: &str) -> Result<(), String> {
    match name {
        "level" => options.level = value.parse().map_err(|it| format!("{it}"))?,
        "members" => options.members = number(value, "members")?,
        "chunk" => options.chunk = Sectors(number(value, "sectors")?),
        "seed" => options.seed = number(value, "the seed")?,
        "layout" => options.layout = maybe(value, layout)?,
        "full-stripes" => options.full_stripes = number(value, "full stripes")?,
        "more-data" => options.more_data = listed(value, |it| number(it, "sectors").map(Sectors))?,
        "spares" => options.spares = number(value, "disks")?,
        "bare" => options.bare = yes(value)?,
        "beside" => options.beside = number(value, "members of the second array")?,
        "version" => options.version = value.parse().map_err(|it| format!("{it}"))?,
        "first-number" => options.first_number = number(value, "a member's number")?,
        "assume-clean" => options.assume_clean = yes(value)?,
        "bitmap" => options.bitmap = maybe(value, |it| number(it, "bytes").map(Bytes))?,
        "logical-block" => options.logical_block = number(value, "bytes")?,
        "discards" => options.discards = yes(value)?,
        "rotational" => options.rotational = listed(value, disk)?,
        "write-mostly" => options.write_mostly = listed(value, disk)?,
        "one-space" => options.one_space = yes(value)?,
        "torn-writes" => options.torn_writes = yes(value)?,
        "payload" => options.payload = named(&PAYLOADS, value)?,
        "stripes-max" => options.stripes_max = maybe(value, |it| number(it, "stripes"))?,
        "cache-stripes" => options.cache_stripes = maybe(value, |it| number(it, "stripes"))?,
        "client-frames" => options.client_frames = number(value, "frames")?,
        "client-credit" => options.client_credit = Bytes(number(value, "bytes")?),
        "greedy" => options.greedy = yes(value)?,
        "defer-computes" => options.defer_computes = yes(value)?,
        "latency" => options.latency = Span(number(value, "nanoseconds")?),
        "drives" => options.drives = listed(value, drive)?,
        "checked" => options.checked = yes(value)?,
        "data-promised" => options.data_promised = yes(value)?,
        "disks-lie" => options.disks_lie = yes(value)?,
        "only" => options.only = maybe(value, |it| Ok(interned(it)))?,
        "lost-work-every" => options.lost_work_every = number(value, "states")?,
        "logged" => options.logged = yes(value)?,
        "classes" => options.classes = yes(value)?,
        "write-back-pages" => {
            let pages = maybe(value, |it| number(it, "pages"))?;
            options.write_back = pages.map(|pages| WriteBackConfig { pages });
        }
        _ => {
            let names: Vec<_> = lines(options).into_iter().map(|(name, _)| name).collect();
            let own = "profile, order, within-promises, assembles, knob, steps";
            return Err(format!("the name of an option: {own}, {}", names.join(", ")));
        }
    }
    Ok(())
}

const PAYLOADS: [(&str, PayloadMode); 3] =
    [("none", PayloadMode::None), ("tags", PayloadMode::Tags), ("bytes", PayloadMode::Bytes)];

fn no_or_yes(value: bool) -> String {
    if value { "yes" } else { "no" }.to_owned()
}

fn some(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "none".to_owned(), |value| value.to_string())
}

fn list(values: &[impl ToString]) -> String {
    let values: Vec<String> = values.iter().map(ToString::to_string).collect();
    if values.is_empty() { "none".to_owned() } else { values.join(",") }
}

fn maybe<T>(value: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, String> {
    if value == "none" { Ok(None) } else { parse(value).map(Some) }
}

fn listed<T>(value: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
    if value == "none" { Ok(Vec::new()) } else { value.split(',').map(parse).collect() }
}

fn disk(value: &str) -> Result<usize, String> {
    number(value, "numbers of disks, with commas between them; each")
}

fn drive(value: &str) -> Result<&'static str, String> {
    let named: Vec<_> = weft_sim::drive::models().iter().map(|(name, _)| (*name, *name)).collect();
    self::named(&named, value)
}

fn layout(value: &str) -> Result<u32, String> {
    let digits = value.strip_prefix("0x").unwrap_or_default();
    u32::from_str_radix(digits, 16).map_err(|_| "a layout, as 0x102".to_owned())
}
