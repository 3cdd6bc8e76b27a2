//! Drive models as TOML texts: the named models, their parameters, and the keys of a text.
//!
//! A model is a TOML text of keys without sections. The end of a key's name is its unit: `_ms`,
//! `_us`, `_kib`, `_mib`, `_mb_s` (10^6 bytes per second). Each named model is in
//! `drives/NAME.toml`, with the source of every value, or `[A]` where a value is assumed. With
//! `base = "NAME"`, a text takes over the keys of a named model and replaces those that it contains
//! itself:
//!
//! ```
//! use weft_sim::drive::Model;
//!
//! let slow = Model::from_toml("base = 'hdd-2007-7200'\nrpm = 5400")?;
//! let wrong = Model::from_toml("base = 'hdd-2007-7200'\nrpm = 'fast'").unwrap_err();
//! assert!(wrong.to_string().starts_with("rpm: found \"fast\", expected a whole number"));
//! # Ok::<(), weft_sim::drive::ModelError>(())
//! ```
//!
//! `weft sim --device` takes the name of a model or such a file, and `--drive` a single key that
//! replaces one of the model's.

mod fields;

use super::hdd::{HddParameters, Platters, Seek, SeekPoints};
use super::null::NullParameters;
use super::reduced::ReducedParameters;
use super::ssd::{FlashParameters, MappingGeometry, SsdParameters};
use fields::{Fields, wrong};
use std::sync::Arc;
use toml::{Table, Value};
use weft_engine::knobs::nearest;
use weft_units::{Bytes, Sectors, Span};

/// Names and texts of the named models.
const TEXTS: &[(&str, &str)] = &[
    ("hdd-2007-7200", include_str!("../../drives/hdd-2007-7200.toml")),
    ("hdd-2011-7200", include_str!("../../drives/hdd-2011-7200.toml")),
    ("hdd-2011-reduced", include_str!("../../drives/hdd-2011-reduced.toml")),
    ("hdd-2022-20tb", include_str!("../../drives/hdd-2022-20tb.toml")),
    ("ssd-sata-2012-mlc", include_str!("../../drives/ssd-sata-2012-mlc.toml")),
    ("ssd-sata-2012-mlc-m5s", include_str!("../../drives/ssd-sata-2012-mlc-m5s.toml")),
    ("ssd-sata-dc-2019", include_str!("../../drives/ssd-sata-dc-2019.toml")),
    ("ssd-sata-dc-2019-wc0", include_str!("../../drives/ssd-sata-dc-2019-wc0.toml")),
    ("ssd-sata-dc-2019-s4600", include_str!("../../drives/ssd-sata-dc-2019-s4600.toml")),
    ("ssd-sata-2020-slowflush", include_str!("../../drives/ssd-sata-2020-slowflush.toml")),
    ("ssd-sata-2021-consumer", include_str!("../../drives/ssd-sata-2021-consumer.toml")),
    ("ssd-nvme-dc-2019", include_str!("../../drives/ssd-nvme-dc-2019.toml")),
    ("ssd-nvme-2019-consumer", include_str!("../../drives/ssd-nvme-2019-consumer.toml")),
    ("ssd-nvme-2020-lazyflush", include_str!("../../drives/ssd-nvme-2020-lazyflush.toml")),
    ("ssd-nvme-dc-2021-pcie4", include_str!("../../drives/ssd-nvme-dc-2021-pcie4.toml")),
    ("null", include_str!("../../drives/null.toml")),
];

/// The names of all named models, each with a description in one line.
///
/// Order    disks, solid-state drives, then the null drive; each from old to new
#[must_use]
pub fn models() -> &'static [(&'static str, &'static str)] {
    &[
        ("hdd-2007-7200", "disk of 2007: 7200 rpm, 75 to 38 MB/s, SATA 3 Gb/s"),
        ("hdd-2011-7200", "disk of 2011: 7200 rpm, 138 to 72 MB/s, SATA 6 Gb/s"),
        ("hdd-2011-reduced", "the same, reduced to 138 MB/s and the time of a jump"),
        ("hdd-2022-20tb", "disk of 2022: 20 TB CMR, 7200 rpm, 285 to 137 MB/s, SATA 6 Gb/s"),
        ("ssd-sata-2012-mlc", "consumer MLC of 2012 (Plextor M5 Pro 256 GB), no protection, fresh"),
        ("ssd-sata-2012-mlc-m5s", "its slower sibling (Plextor M5S 256 GB)"),
        (
            "ssd-sata-dc-2019",
            "data centre SATA of 2019 (Intel S4500 class), protected, steady state",
        ),
        ("ssd-sata-dc-2019-wc0", "the same, saying that it has no volatile cache: gets no flush"),
        ("ssd-sata-dc-2019-s4600", "the same with more spare flash (Intel S4600 class)"),
        ("ssd-sata-2020-slowflush", "SATA of 2020 without protection: a flush takes 2 to 3 ms"),
        ("ssd-sata-2021-consumer", "consumer SATA TLC of 2021 (870 EVO class), no protection"),
        ("ssd-nvme-dc-2019", "data centre NVMe of 2019, PCIe 3, protected, steady state"),
        ("ssd-nvme-2019-consumer", "consumer NVMe TLC of 2019 (970 EVO Plus class), no protection"),
        ("ssd-nvme-2020-lazyflush", "NVMe of 2020 with a flush of 17 ms (Apple M1 class)"),
        ("ssd-nvme-dc-2021-pcie4", "data centre NVMe of 2021, PCIe 4 (PM9A3 class), protected"),
        ("null", "ends every command after 10 µs, any number at once"),
    ]
}

/// Parameters of a drive, without the seed of its random choices.
#[derive(Clone, Debug)]
pub struct Model {
    table: Table,
    kind: DriveKind,
}

impl Model {
    /// Whether a drive of this model has an arm.
    #[must_use]
    pub fn rotational(&self) -> bool {
        matches!(self.kind, DriveKind::Hdd(_) | DriveKind::Reduced(_))
    }
}

#[derive(Clone, Debug)]
pub(super) enum DriveKind {
    Hdd(Arc<HddParameters>),
    Reduced(ReducedParameters),
    Ssd(Arc<SsdParameters>),
    Null(NullParameters),
}

/// Reason why a text or an argument is not a valid model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// No model has this name.
    #[error("model: found {found:?}, expected one of {known}, or FILE.toml{near}", near = meant(near.as_ref()))]
    Name {
        /// The name that was given.
        found: String,
        /// All names of models, joined by commas.
        known: String,
        /// The known name that is most similar; `None` if none is similar.
        near: Option<String>,
    },
    /// The file cannot be read.
    #[error("{path}: {why}; name a file with the keys of a drive, or base = \"MODEL\" and changes")]
    Unread {
        /// Path of the model's file.
        path: String,
        /// Error of the operating system, or a text that says which file was found and which was
        /// expected.
        why: String,
    },
    /// The text of a file is not a valid model.
    #[error("{path}: {source}")]
    File {
        /// Path of the model's file.
        path: String,
        /// Error in the text of the file.
        source: Box<ModelError>,
    },
    /// The text is not TOML. The value is the message of the parser.
    #[error("not TOML: {0}")]
    Syntax(String),
    /// A required key is missing.
    #[error("{key}: not found, expected {expected}")]
    Missing {
        /// Name of the key.
        key: String,
        /// Range or form that the key should have.
        expected: String,
    },
    /// A key has a value of the wrong form or outside of its range.
    #[error("{key}: found {found}, expected {expected}")]
    Wrong {
        /// Name of the key.
        key: String,
        /// Value that the key has.
        found: String,
        /// Range or form of valid values.
        expected: String,
    },
    /// The text has a key that models of its kind do not have.
    #[error("{key}: found, expected only {expected}{near}", near = meant(near.as_ref()))]
    Unknown {
        /// Name of the key.
        key: String,
        /// Names of all keys of the kind, joined by commas.
        expected: String,
        /// The known key that is most similar; `None` if none is similar.
        near: Option<String>,
    },
}

/// End of a message about an unknown name, which suggests the similar one if there is any.
fn meant(near: Option<&String>) -> String {
    near.map_or_else(String::new, |near| format!("; did you mean {near}?"))
}

impl Model {
    /// Makes a model from a user's text.
    ///
    /// # Errors
    /// The text is not TOML, or a key is missing, unknown or has an invalid value. The error has
    /// the key, the value found and the valid values.
    pub fn from_toml(text: &str) -> Result<Self, ModelError> {
        let table = parsed(text)?;
        match table.get("base") {
            None => Self::of(table),
            Some(Value::String(name)) => Self::of(merged(Self::named(name)?.table, &table)),
            Some(value) => Err(wrong("base", value, "the name of a model")),
        }
    }

    fn of(table: Table) -> Result<Self, ModelError> {
        let kind = kind(&table)?;
        Ok(Self { table, kind })
    }

    /// The named model with this name.
    pub(super) fn named(name: &str) -> Result<Self, ModelError> {
        let text = TEXTS.iter().find(|(of, _)| *of == name);
        let (_, text) = text.ok_or_else(|| ModelError::Name {
            found: name.to_owned(),
            known: TEXTS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", "),
            near: nearest(name, TEXTS.iter().map(|(name, _)| *name)).map(str::to_owned),
        })?;
        Self::from_toml(text)
    }

    /// The model of an argument `--device MODEL` or `--device FILE.toml`: if the argument ends in
    /// `.toml` it is the path of a file.
    ///
    /// # Errors
    /// No model has this name; or the file cannot be read, is larger than 1 MiB, or does not have a
    /// valid model, as for [`Model::from_toml`].
    pub fn of_argument(argument: &str) -> Result<Self, ModelError> {
        if !argument.ends_with(".toml") {
            return Self::named(argument);
        }
        let unread = |why: String| ModelError::Unread { path: argument.to_owned(), why };
        let metadata = std::fs::metadata(argument).map_err(|error| unread(error.to_string()))?;
        if !metadata.is_file() || metadata.len() > TEXT_BYTES_MAX {
            let found = if metadata.is_file() { "a larger one" } else { "no regular file" };
            return Err(unread(format!("found {found}, expected a file of 1 MiB at most")));
        }
        let text = std::fs::read_to_string(argument).map_err(|error| unread(error.to_string()))?;
        Self::from_toml(&text)
            .map_err(|source| ModelError::File { path: argument.to_owned(), source: source.into() })
    }

    /// This model with the keys of `text` replaced. The text is as for [`Model::from_toml`],
    /// without `base`.
    ///
    /// # Errors
    /// The text or the resulting model is not valid; see [`Model::from_toml`].
    pub fn with(&self, text: &str) -> Result<Self, ModelError> {
        let changes = parsed(text)?;
        if let Some(value) = changes.get("base") {
            return Err(wrong("base", value, "no base: there is one already"));
        }
        Self::of(merged(self.table.clone(), &changes))
    }

    /// This model with one key replaced. `value` is written as in TOML, or is a word without
    /// quotes.
    ///
    /// # Errors
    /// The resulting model is not valid; see [`Model::from_toml`].
    pub fn with_key(&self, key: &str, value: &str) -> Result<Self, ModelError> {
        let literal = format!("value = {value}").parse::<Table>().ok();
        let literal = literal.filter(|table| table.len() == 1);
        let literal = literal.and_then(|mut table| table.remove("value"));
        let value = literal.unwrap_or_else(|| Value::String(value.to_owned()));
        if key == "base" {
            return Err(wrong("base", &value, "no base: there is one already"));
        }
        let mut table = self.table.clone();
        table.insert(key.to_owned(), value);
        Self::of(table)
    }

    /// All keys with their values as TOML, in order of their names, for reports and hashes.
    #[must_use]
    pub fn to_toml(&self) -> String {
        self.table.to_string()
    }

    pub(super) fn kind(&self) -> &DriveKind {
        &self.kind
    }
}

/// Largest size in bytes of a model's file.
const TEXT_BYTES_MAX: u64 = 1 << 20;

fn parsed(text: &str) -> Result<Table, ModelError> {
    let syntax = |error: toml::de::Error| ModelError::Syntax(error.to_string().trim().to_owned());
    text.parse().map_err(syntax)
}

/// The table `base` with the keys of `changes` added or replaced.
fn merged(mut base: Table, changes: &Table) -> Table {
    for (key, value) in changes.iter().filter(|(key, _)| *key != "base") {
        base.insert(key.clone(), value.clone());
    }
    base
}

fn kind(table: &Table) -> Result<DriveKind, ModelError> {
    let mut fields = Fields::new(table);
    let kind = match fields.word("kind", &["hdd", "reduced", "ssd", "null"])? {
        "hdd" => DriveKind::Hdd(Arc::new(hdd(&mut fields)?)),
        "reduced" => DriveKind::Reduced(reduced(&mut fields)?),
        "ssd" => DriveKind::Ssd(Arc::new(ssd(&mut fields)?)),
        _ => DriveKind::Null(null(&mut fields)?),
    };
    fields.end()?;
    Ok(kind)
}

fn hdd(fields: &mut Fields<'_>) -> Result<HddParameters, ModelError> {
    let rate_outer = fields.rate("sustained_outer_mb_s")?;
    let platters = Platters {
        heads: fields.count("heads", 1..=64)?,
        cylinders: fields.count("cylinders", 1_000..=10_000_000)?,
        zones: fields.count("zones", 1..=256)?,
        rpm: fields.count("rpm", 1_000..=30_000)?,
        head_switch_ns: fields.millis("head_switch_ms", 0.0..=20.0)?.0,
        cylinder_switch_ns: fields.millis("cylinder_switch_ms", 0.0..=20.0)?.0,
        rate_outer,
        rate_inner: rate_outer.min(fields.rate("sustained_inner_mb_s")?),
    };
    let seek = seek(fields, platters.cylinders)?;
    Ok(HddParameters {
        platters,
        seek,
        queue_depth: fields.count("queue_depth", 1..=65_535)?,
        command_overhead: fields.micros("command_overhead_us", 0.0..=10_000.0)?,
        age_limit: fields.millis("age_limit_ms", 1.0..=60_000.0)?,
        link_bytes_per_second: fields.rate("link_mb_s")?,
        link_overhead: fields.micros("link_overhead_us", 0.0..=1_000.0)?,
        read_segments: fields.count("read_segments", 1..=1_024)?,
        read_segment: fields.kib("read_segment_kib", 0..=1_048_576)?,
        write_cache: fields.kib("write_cache_kib", 0..=1_048_576)?,
        destage_window: fields.count("destage_window", 1..=65_536)?,
        destage_piece: fields.kib("destage_piece_kib", 4..=65_536)?,
        destage_by_command: fields.word("destage_unit", &["piece", "command"])? == "command",
    })
}

fn seek(fields: &mut Fields<'_>, cylinders: u32) -> Result<Seek, ModelError> {
    let settle = fields.millis("write_settle_ms", 0.0..=20.0)?.0;
    let points = SeekPoints {
        least: fields.millis("seek_least_ms", 0.01..=100.0)?.0,
        average: fields.millis("seek_average_ms", 0.01..=100.0)?.0,
        most: fields.millis("seek_most_ms", 0.01..=100.0)?.0,
    };
    Seek::through(points, cylinders, settle).ok_or_else(|| ModelError::Wrong {
        key: "seek_average_ms".into(),
        found: format!("{}", points.average as f64 / 1e6),
        expected: format!(
            "from {} to {}: else the curve through the three times would fall somewhere",
            (points.least * 2 + points.most) as f64 / 3e6,
            (points.least * 7 + points.most * 8) as f64 / 15e6
        ),
    })
}

fn reduced(fields: &mut Fields<'_>) -> Result<ReducedParameters, ModelError> {
    let capacity = u64::from(fields.count("capacity_gb", 1..=1_000_000)?) * 1_000_000_000;
    let cylinders = fields.count("cylinders", 1_000..=10_000_000)?;
    let rpm: u32 = fields.count("rpm", 1_000..=30_000)?;
    Ok(ReducedParameters {
        capacity: Bytes(capacity).sectors_floor(),
        queue_depth: fields.count("queue_depth", 1..=65_535)?,
        bytes_per_second: fields.rate("rate_mb_s")?,
        command_overhead: fields.micros("command_overhead_us", 0.0..=10_000.0)?,
        seek: seek(fields, cylinders)?,
        cylinders,
        half_turn: 30_000_000_000 / u64::from(rpm),
    })
}

/// Reads the parameters of a solid-state drive. A slot is 4 KiB, whatever the size of the flash's
/// own pages.
fn ssd(fields: &mut Fields<'_>) -> Result<SsdParameters, ModelError> {
    let planes = fields.count("planes", 1..=16)?;
    let page_kib = fields.count("page_kib", 4..=256)?;
    if !page_kib.is_multiple_of(4) {
        return Err(ModelError::Wrong {
            key: "page_kib".into(),
            found: page_kib.to_string(),
            expected: "a multiple of 4".into(),
        });
    }
    let superpage = planes * page_kib / 4;
    let dies = fields.count("dies", 1..=4_096)?;
    // Vendors count gigabytes of 10^9 bytes.
    let capacity = u64::from(fields.count("capacity_gb", 1..=1_000_000)?) * 1_000_000_000;
    let pages = capacity / 4_096;
    let simulated = u64::from(fields.count("simulated_mib", 64..=16_384)?) * 256;
    let over_provisioning = fields.percent("over_provisioning_percent", 1.0..=400.0)?;
    let shape = MappingGeometry {
        pages,
        simulated: simulated.min(pages.div_ceil(256) * 256),
        over_provisioning,
        dies,
        superpage,
        choices: fields.count("collection_choices", 0..=1_000)?,
    };
    let row_mib = f64::from(dies * superpage) / 256.0;
    if u64::from(dies * superpage) * 16 > shape.simulated {
        return Err(ModelError::Wrong {
            key: "simulated_mib".into(),
            found: (shape.simulated / 256).to_string(),
            expected: format!(
                "at least {}: 16 times a page of all planes of all dies",
                row_mib * 16.0
            ),
        });
    }
    let suspends = fields.flag("suspend")?;
    let suspend = fields.micros("suspend_us", 0.0..=10_000.0)?;
    let flash = FlashParameters {
        channels: fields.count("channels", 1..=64)?,
        dies,
        superpage,
        block_pages: fields.count("block_pages", 1..=100_000)?,
        read: fields.micros("read_us", 0.1..=100_000.0)?,
        program: fields.micros("program_us", 0.1..=100_000.0)?,
        erase: fields.micros("erase_us", 0.1..=1_000_000.0)?,
        channel_bytes_per_second: fields.rate("channel_mb_s")?,
        suspend: suspends.then_some(suspend),
    };
    Ok(SsdParameters {
        shape,
        flash,
        queue_depth: fields.count("queue_depth", 1..=65_535)?,
        command: fields.micros("command_us", 0.0..=10_000.0)?,
        random_write: fields.micros("random_write_us", 0.0..=10_000.0)?,
        read_spread: fields.micros("read_spread_us", 0.0..=10_000.0)?,
        write_spread: fields.micros("write_spread_us", 0.0..=10_000.0)?,
        link_bytes_per_second: fields.rate("link_mb_s")?,
        link_overhead_read: fields.micros("link_overhead_read_us", 0.0..=1_000.0)?,
        link_overhead_write: fields.micros("link_overhead_write_us", 0.0..=1_000.0)?,
        read_ahead: fields.kib("read_ahead_kib", 0..=65_536)?,
        write_buffer: fields.kib("write_buffer_kib", 4..=16_777_216)?,
        volatile_cache: fields.flag("volatile_cache")?,
        power_loss_protection: fields.flag("power_loss_protection")?,
        flush: fields.micros("flush_us", 0.0..=1e6)?,
        flush_clean: fields.micros("flush_clean_us", 0.0..=1e6)?,
        flush_coalesces: fields.flag("flush_coalesces")?,
        flush_queueable: fields.flag("flush_queueable")?,
        is_steady: fields.word("precondition", &["fresh", "steady"])? == "steady",
    })
}

fn null(fields: &mut Fields<'_>) -> Result<NullParameters, ModelError> {
    let gib = fields.count("capacity_gib", 1..=1_048_576)?;
    let capacity: Sectors = Bytes(u64::from(gib) << 30).sectors_floor();
    let time: Span = fields.micros("time_us", 0.0..=1e9)?;
    Ok(NullParameters { capacity, time })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_named_model_is_one_and_is_listed() {
        let names: Vec<&str> = TEXTS.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, models().iter().map(|(name, _)| *name).collect::<Vec<_>>());
        for name in names {
            let model = Model::named(name).unwrap_or_else(|error| panic!("{name}: {error}"));
            let listed = models().iter().find(|(of, _)| *of == name).map(|(_, line)| *line);
            assert_eq!(model.table["summary"].as_str(), listed, "{name}");
            let again = Model::from_toml(&model.to_toml()).unwrap();
            assert_eq!(again.to_toml(), model.to_toml());
        }
    }

    #[test]
    fn every_text_in_the_folder_is_a_named_model() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("drives");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        files.sort();
        let mut named: Vec<String> = TEXTS.iter().map(|(name, _)| format!("{name}.toml")).collect();
        named.sort();
        assert_eq!(files, named);
    }

    #[test]
    fn what_is_wrong_is_named_with_what_was_expected() {
        let of = |text: &str| Model::from_toml(text).unwrap_err().to_string();
        let on_hdd = |text: &str| of(&format!("base = 'hdd-2007-7200'\n{text}"));
        let cases = [
            (of("kind = 'tape'"), "kind: found \"tape\", expected hdd or reduced or ssd or null"),
            (of("summary = 'x'"), "kind: not found, expected hdd"),
            (of("base = 'hdd-1956'"), "model: found \"hdd-1956\", expected one of hdd-2007"),
            (of("base = 7"), "base: found 7, expected the name of a model"),
            (of("kind = 'null'\ncapacity_gib = 8"), "time_us: not found, expected a number from 0"),
            (of("kind ="), "not TOML: "),
            (on_hdd("heads = 0"), "heads: found 0, expected a whole number from 1 to 64"),
            (on_hdd("heads = 2.5"), "heads: found 2.5, expected a whole number"),
            (on_hdd("headz = 2"), "headz: found, expected only age_limit_ms, base, command"),
            (on_hdd("link_mb_s = inf"), "link_mb_s: found inf, expected a number from 1 to"),
            (on_hdd("seek_average_ms = 3"), "seek_average_ms: found 3, expected from 6.5"),
        ];
        for (found, expected) in cases {
            assert!(found.starts_with(expected), "{found}\nshould start with\n{expected}");
        }
    }
}
