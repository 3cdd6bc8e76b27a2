//! `weft.toml`: the volumes of a service.
//!
//! Each table `[volume.NAME]` is one volume. Its keys are the long options of `weft serve`, which
//! checks their values, so that the file has no language of its own; `members` are the arguments.
//! Tables of `FILE.d` beside the file (`weft.d/*.toml`) count as if they stood in it. Instead of a
//! `weft.toml`, an `mdadm.conf` can be given: each of its `ARRAY` lines is a volume.
//!
//! The keys `check` and `check-for` say when the daemon checks a volume. Outside of tables they are
//! the defaults of all volumes.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, FromArgMatches};
use toml::{Table, Value};
use weft_engine::assemble::Options;
use weft_engine::knobs::{Knobs, nearest};
use weft_terminal::outcome::Failure;
use weft_terminal::terminal::{complain, label};

use super::members::is_pattern;
use super::schedule::{Schedule, interval, part_of_day};
use crate::assembly::Selection;
use crate::knobs::set_live;
use crate::mdadm_conf::Config;
use crate::volume::{NAME_RULE, is_name};
use crate::volumes_file;

/// A volume, as the file describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: String,
    /// Options of `weft serve`, each as one word, without knobs and members.
    pub(super) options: Vec<String>,
    /// Initial knobs (`set`): values as texts, by name.
    pub(super) knobs: BTreeMap<String, String>,
    /// Members or patterns of members; empty to search all block devices.
    pub(super) members: Vec<String>,
    /// Assembly options that tell the array's members from other devices; `None` if all members
    /// are of the array.
    pub(super) selection: Option<Options>,
    /// Times at which the daemon checks the volume; `None` for never.
    pub(super) check: Option<Schedule>,
}

/// Content of one file.
#[derive(Debug, Default)]
struct Tables {
    /// Tables of volumes, by name.
    volumes: Table,
    /// Keys outside of these tables, which are the defaults of all volumes.
    common: Table,
}

impl Entry {
    /// Words of the command line, without the program, that serves the volume from `members`.
    /// `options` are added to those of the entry.
    pub(super) fn command(&self, options: &[OsString], members: &[PathBuf]) -> Vec<OsString> {
        let mut words = vec!["serve".into(), format!("--name={}", self.name).into()];
        words.extend(self.options.iter().map(Into::into));
        words.extend(self.knobs.iter().map(|(knob, value)| format!("--set={knob}={value}").into()));
        words.extend_from_slice(options);
        words.push("--".into());
        words.extend(members.iter().map(Into::into));
        words
    }
}

/// Reads a `weft.toml` and the files in the folder beside it, or an mdadm.conf. Returns the volumes
/// in the order of their names. `serve` is the clap command that checks the options.
///
/// # Errors
/// A file cannot be read, or its content is invalid; the message names file and key.
pub(super) fn read(path: &Path, serve: &clap::Command) -> Result<Vec<Entry>, Failure> {
    let files = match volumes_file::is_mdadm_conf(path) {
        true => {
            let volumes = arrays(path)?;
            vec![(path.to_owned(), Tables { volumes, ..Tables::default() })]
        }
        false => {
            let paths = volumes_file::paths(path)?.into_iter();
            let tables = paths.map(|path| volumes(&path).map(|tables| (path, tables)));
            tables.collect::<Result<_, _>>()?
        }
    };
    let mut entries: BTreeMap<String, (Entry, &Path)> = BTreeMap::new();
    if files.iter().all(|(_, tables)| tables.volumes.is_empty()) {
        return Err(Failure::usage(format!(
            "{}: found no volume, expected tables [volume.NAME]",
            label(path)
        )));
    }
    let common = common(&files)?;
    for (path, tables) in &files {
        for (name, value) in &tables.volumes {
            let entry = entry(name, value, &common, serve)
                .map_err(|why| Failure::usage(format!("{}: volume.{name}: {why}", label(path))))?;
            if let Some((_, other)) = entries.insert(name.clone(), (entry, path)) {
                let (path, other) = (label(path), label(other));
                return Err(Failure::usage(format!("{path}: volume.{name} is in {other} too")));
            }
        }
    }
    let entries: Vec<Entry> = entries.into_values().map(|(entry, _)| entry).collect();
    shared(&entries).map_err(|why| Failure::usage(format!("{}: {why}", label(path))))?;
    Ok(entries)
}

/// Refuses a member or a listener that two volumes have in common. The error names both volumes.
fn shared(entries: &[Entry]) -> Result<(), String> {
    let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
    for entry in entries {
        let listeners = entry.options.iter().filter_map(|word| word.strip_prefix("--listen="));
        // `ublk:` without a number makes a new device for each volume, so volumes may have it in
        // common.
        let listeners = listeners.filter(|at| *at != "ublk:");
        let members = entry.members.iter().map(String::as_str);
        // Volumes that select arrays may search the same devices for them.
        let members = members.filter(|member| entry.selection.is_none() && !is_pattern(member));
        for what in listeners.chain(members) {
            if let Some(other) = seen.insert(what, &entry.name) {
                let both = format!("volume.{other} and volume.{}", entry.name);
                return Err(format!("found {what} in {both}, expected it in one of them"));
            }
        }
    }
    Ok(())
}

/// Tables of volumes for the `ARRAY` lines of an mdadm.conf. The name of a volume is that of the
/// line's device or, without a device, that of the array or its UUID. A line that cannot be served
/// is reported and left out.
fn arrays(path: &Path) -> Result<Table, Failure> {
    let config = Config::read(path).map_err(Failure::usage)?;
    if let Some(remark) = config.remarks.first() {
        return Err(Failure::usage(remark));
    }
    let mut tables = Table::new();
    for line in config.arrays {
        let last = |text: &String| text.rsplit(['/', ':']).next().map(str::to_owned);
        let name = line.device.as_ref().or(line.name.as_ref()).or(line.uuid.as_ref());
        let name = name.and_then(last).unwrap_or_default();
        let keys = [("uuid", line.uuid), ("array", line.name)];
        let keys = keys.into_iter().filter_map(|(key, value)| Some((key.into(), value?.into())));
        let table: Table = keys.collect();
        let label = label(path);
        if line.is_external {
            complain(&format!("{label}: ARRAY {name}: metadata of a vendor; the line is left out"));
        } else if table.is_empty() {
            complain(&format!(
                "{label}: ARRAY {name}: neither UUID nor name; the line is left out"
            ));
        } else if tables.insert(name.clone(), Value::Table(table)).is_some() {
            return Err(Failure::usage(format!("{label}: found two ARRAY lines called {name}")));
        }
    }
    Ok(tables)
}

/// Keys outside of tables, from all files.
///
/// # Errors
/// A value is wrong, or two files have the same key.
fn common(files: &[(PathBuf, Tables)]) -> Result<Table, Failure> {
    let mut all = Table::new();
    let mut homes: BTreeMap<&str, &Path> = BTreeMap::new();
    for (path, tables) in files {
        for (key, value) in &tables.common {
            let checked = match key.as_str() {
                CHECK => text(value).and_then(|text| interval(&text).map(|_| ())),
                _ => text(value).and_then(|text| part_of_day(&text).map(|_| ())),
            };
            checked.map_err(|why| Failure::usage(format!("{}: {key}: {why}", label(path))))?;
            if let Some(other) = homes.insert(key, path) {
                let (path, other) = (label(path), label(other));
                return Err(Failure::usage(format!("{path}: {key} is in {other} too")));
            }
            all.insert(key.clone(), value.clone());
        }
    }
    Ok(all)
}

/// Schedule of a volume's checks, from its table and, for keys that it lacks, from the defaults
/// `common`; `None` for no checks.
fn schedule(table: &Table, common: &Table) -> Result<Option<Schedule>, String> {
    let value = |key: &str| table.get(key).or_else(|| common.get(key)).map(text).transpose();
    let named = |key: &'static str| move |why: String| format!("{key}: {why}");
    let every = value(CHECK).map_err(named(CHECK))?;
    let every = every.as_deref().map(interval).transpose().map_err(named(CHECK))?;
    let per_day = value(CHECK_FOR).map_err(named(CHECK_FOR))?;
    let per_day = per_day.as_deref().map(part_of_day).transpose().map_err(named(CHECK_FOR))?;
    if every.is_none() && table.contains_key(CHECK_FOR) {
        return Err(format!(
            "{CHECK_FOR}: found no {CHECK}, expected one, as {CHECK} = \"monthly\""
        ));
    }
    Ok(every.flatten().map(|every| Schedule { every, per_day }))
}

/// Reads one file, and divides its content into tables of volumes and other keys.
fn volumes(path: &Path) -> Result<Tables, Failure> {
    let text = volumes_file::text(path)?;
    let mut table: Table = text.parse().map_err(|error: toml::de::Error| {
        let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
        Failure::usage(format!("{}:{line}: {}", label(path), error.message()))
    })?;
    let volumes = table.remove("volume");
    if let Some(key) = table.keys().find(|key| ![CHECK, CHECK_FOR].contains(&key.as_str())) {
        return Err(Failure::usage(format!(
            "{}: found {key:?}, expected tables [volume.NAME], {CHECK} and {CHECK_FOR}",
            label(path)
        )));
    }
    match volumes {
        None => Ok(Tables { volumes: Table::new(), common: table }),
        Some(Value::Table(volumes)) => Ok(Tables { volumes, common: table }),
        Some(other) => Err(Failure::usage(format!(
            "{}: volume: found {}, expected tables [volume.NAME]",
            label(path),
            kind(&other)
        ))),
    }
}

/// Converts the table of a volume to its entry, and lets `serve` check the options. `common` has
/// the keys that are the defaults of all volumes. The error is the reason, without the volume's
/// name.
fn entry(
    name: &str,
    value: &Value,
    common: &Table,
    serve: &clap::Command,
) -> Result<Entry, String> {
    if !is_name(name) {
        return Err(format!("expected a name of {NAME_RULE}"));
    }
    let Value::Table(table) = value else {
        return Err(format!("found {}, expected a table", kind(value)));
    };
    let (options, knobs, members) = (Vec::new(), BTreeMap::new(), Vec::new());
    let (name, check) = (name.to_owned(), schedule(table, common)?);
    let mut entry = Entry { name, options, knobs, members, selection: None, check };
    for (key, value) in table {
        let named = |why: String| format!("{key}: {why}");
        if let Some((_, why)) = REFUSED.iter().find(|(refused, _)| refused == key) {
            return Err(named((*why).to_owned()));
        }
        match key.as_str() {
            "members" if is_strings(value) => entry.members = texts(value).map_err(named)?,
            "members" => return Err(named("expected a string or a list of strings".to_owned())),
            "set" => entry.knobs = live_knobs(value).map_err(named)?,
            CHECK | CHECK_FOR => {}
            _ => {
                let arg = option(key, serve).map_err(named)?;
                entry.options.extend(words(key, value, arg).map_err(named)?);
            }
        }
    }
    let members: Vec<PathBuf> = entry.members.iter().map(PathBuf::from).collect();
    let members = if members.is_empty() { vec!["searched".into()] } else { members };
    let parsed = serve.clone().try_get_matches_from(entry.command(&[], &members));
    let selection = parsed.and_then(|parsed| Selection::from_arg_matches(&parsed));
    let selection = selection.map_err(|error| first_line(&error))?;
    if !selection.is_any() {
        let options = selection.options().map_err(|error| error.message().to_owned())?;
        entry.selection = Some(options);
    } else if entry.members.is_empty() {
        return Err("members: found none, expected files or devices, or uuid or array, by which \
                    they are found among all block devices"
            .into());
    }
    Ok(entry)
}

/// Option of `serve` with the long name `key`.
///
/// # Errors
/// `serve` has no such option; the message has the nearest name.
fn option<'a>(key: &str, serve: &'a clap::Command) -> Result<&'a Arg, String> {
    let all = || serve.get_arguments().filter_map(|arg| Some((arg.get_long()?, arg)));
    if let Some((_, arg)) = all().find(|(name, _)| *name == key) {
        return Ok(arg);
    }
    let names = all().map(|(name, _)| name).chain(["members", CHECK, CHECK_FOR]);
    let near = nearest(key, names).map(|name| format!(" ({name}?)")).unwrap_or_default();
    Err(format!("is no option of weft serve{near}; weft serve --help lists them"))
}

/// Words of a command line that give the option `arg`, with the long name `key`, this value.
fn words(key: &str, value: &Value, arg: &Arg) -> Result<Vec<String>, String> {
    let with = |value: String| format!("--{key}={value}");
    Ok(match arg.get_action() {
        ArgAction::SetTrue => match value {
            Value::Boolean(true) => vec![format!("--{key}")],
            Value::Boolean(false) => Vec::new(),
            other => return Err(format!("found {}, expected true or false", kind(other))),
        },
        ArgAction::Append if value.is_table() => {
            pairs(value)?.map(|(name, value)| with(format!("{name}={value}"))).collect()
        }
        ArgAction::Append => texts(value)?.into_iter().map(with).collect(),
        _ => vec![with(text(value)?)],
    })
}

/// Texts of the values in a list; for a value that is not a list, its one text.
fn texts(value: &Value) -> Result<Vec<String>, String> {
    match value {
        Value::Array(values) => values.iter().map(text).collect(),
        value => Ok(vec![text(value)?]),
    }
}

/// Keys of a table, each with its value as text; true and false become 1 and 0. Any value but a
/// table is refused.
fn pairs(value: &Value) -> Result<impl Iterator<Item = (String, String)>, String> {
    let Value::Table(table) = value else {
        return Err(format!("found {}, expected a table of names and values", kind(value)));
    };
    let pair = |(name, value): (&String, &Value)| match value {
        // true and false are the values 1 and 0 of a knob.
        Value::Boolean(truth) => Ok((name.clone(), u8::from(*truth).to_string())),
        value => match text(value) {
            Ok(text) => Ok((name.clone(), text)),
            Err(why) => Err(format!("{name}: {why}")),
        },
    };
    Ok(table.iter().map(pair).collect::<Result<Vec<_>, String>>()?.into_iter())
}

/// Knobs of a table, with their values as texts. A knob that a live volume does not take is
/// refused.
fn live_knobs(value: &Value) -> Result<BTreeMap<String, String>, String> {
    let checked = |(name, value): (String, String)| {
        let knob = set_live(&mut Knobs::default(), &name, &value);
        knob.map(|_| (name, value)).map_err(|error| error.to_string())
    };
    pairs(value)?.map(checked).collect()
}

/// Text of a string or number, as a command line has it; other values are refused.
fn text(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) if text.contains('\0') => Err("found a NUL byte".into()),
        Value::String(text) => Ok(text.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Float(number) => Ok(number.to_string()),
        other => Err(format!("found {}, expected a string or number", kind(other))),
    }
}

/// Whether a value is a string or a list of strings.
fn is_strings(value: &Value) -> bool {
    value.as_array().map_or(value.is_str(), |values| values.iter().all(Value::is_str))
}

/// Type of a value, for messages.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "a string",
        Value::Integer(_) | Value::Float(_) => "a number",
        Value::Boolean(_) => "true or false",
        Value::Datetime(_) => "a date",
        Value::Array(_) => "a list",
        Value::Table(_) => "a table",
    }
}

/// First line of an error of clap without its leading `error:`, followed by the first tip, if there
/// is one.
fn first_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    let first = first.strip_prefix("error: ").unwrap_or(first).to_owned();
    lines
        .find(|line| line.starts_with("tip: "))
        .map_or(first.clone(), |tip| format!("{first}; {}", tip.trim_start_matches("tip: ")))
}

/// Key for the interval between checks; [`CHECK_FOR`] is the key for the time per day in which they
/// run.
const CHECK: &str = "check";
const CHECK_FOR: &str = "check-for";

/// Options of `serve` that a file may not have, each with the reason.
const REFUSED: [(&str, &str); 8] = [
    ("accept-lost-writes", "is for one start: weft daemon NAME -- --accept-lost-writes"),
    ("commit-overlay", "is no service: weft serve --overlay DIR --commit-overlay MEMBER…"),
    ("discard-overlay", "is no service: weft serve --overlay DIR --discard-overlay MEMBER…"),
    ("exec", "a service has no end of its own: start the command when the service is ready"),
    ("force", "overwrites the log of each former start: name another with record, once"),
    ("force-dirty", "is for one start: weft daemon NAME -- --force-dirty"),
    ("name", "the table's name is that of the volume"),
    ("record", "is for one start: weft daemon NAME -- --record FILE"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use weft_testing::fuzz;
    use weft_units::rng::{Rng, mix};

    /// Damaged files are read, or refused in a sentence that names the file. `WEFT_FUZZ_SEED=n`
    /// sets another seed.
    #[test]
    fn damaged_files_are_judged() {
        let good =
            b"# disks\n[volume.one]\nmembers = ['/dev/sd?1', \"/dev/sdx\"]\nread-only = true\n\
                     listen = ['ublk:3', 'nbd://127.0.0.1:10809/one']\nwrite-back = '64M'\n\
                     set = { scheduler = 'bfq', stripe_cache_size = 512 }\nweight = 200\n\
                     [volume.two]\nuuid = '3aaa0122:29827cfa:5331ad66:ca767371'\n\
                     client = { a = 'weight:5' }\ncheck = '30d'\ncheck-for = '6h'\n";
        let cli = crate::Cli::command();
        let serve = cli.find_subcommand("serve").unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("weft.toml");
        std::fs::write(&path, good).unwrap();
        let names: Vec<String> =
            read(&path, serve).unwrap().into_iter().map(|entry| entry.name).collect();
        assert_eq!(names, ["one", "two"]);
        let mut refused = 0;
        let cases = fuzz::cases(2000);
        for case in 0..cases as u64 {
            let mut rng = Rng::new(mix(fuzz::seed()) ^ mix(case));
            let mut text = good.to_vec();
            for _ in 0..=rng.below(4) {
                let at = usize::try_from(rng.below(text.len() as u64)).unwrap();
                match rng.below(4) {
                    0 => text[at] = rng.next_u64().to_le_bytes()[0],
                    1 => text.truncate(at.max(1)),
                    2 => text.insert(at, b"[]{}='\"\n.,#"[usize::try_from(rng.below(11)).unwrap()]),
                    _ => _ = text.remove(at),
                }
                if text.is_empty() {
                    break;
                }
            }
            std::fs::write(&path, &text).unwrap();
            if let Err(error) = read(&path, serve) {
                refused += 1;
                assert!(error.message().contains("weft.toml"), "{error:?}");
            }
        }
        assert!(refused > cases / 2 && refused < cases, "{refused} of {cases} refused");
    }
}
