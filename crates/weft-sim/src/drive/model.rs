//! Which drives are there, and what is one made of?
//!
//! A model is a TOML text of keys without sections. Units end a key's name: `_ms`, `_us`, `_kib`, `_mib`,
//! `_mb_s` (millions of bytes a second). Each named model lies in `drives/NAME.toml` with the source
//! of every value, or `[A]` where it is assumed. `base = "NAME"` takes a named model and replaces what
//! is said besides:
//!
//! ```
//! use weft_sim::drive::Model;
//!
//! let slow = Model::from_toml("base = 'hdd-2007-7200'\nrpm = 5400")?;
//! let wrong = Model::from_toml("base = 'hdd-2007-7200'\nrpm = 'fast'").unwrap_err();
//! assert!(wrong.to_string().starts_with("rpm: found \"fast\", expected a whole number"));
//! # Ok::<(), weft_sim::drive::ModelError>(())
//! ```

mod fields;

use super::hdd::{HddParameters, Platters, Seek, SeekPoints};
use super::null::NullParameters;
use fields::{Fields, wrong};
use std::sync::Arc;
use toml::{Table, Value};
use weft_units::{Bytes, Sectors, Span};

/// The texts of the named models.
const TEXTS: &[(&str, &str)] = &[
    ("hdd-2007-7200", include_str!("../../drives/hdd-2007-7200.toml")),
    ("hdd-2011-7200", include_str!("../../drives/hdd-2011-7200.toml")),
    ("null", include_str!("../../drives/null.toml")),
];

/// The named models, and what each is in one line.
///
/// Order    disks, solid-state drives, then the null drive; by age
#[must_use]
pub fn models() -> &'static [(&'static str, &'static str)] {
    &[
        ("hdd-2007-7200", "disk of 2007: 7200 rpm, 75 to 38 MB/s, SATA 3 Gb/s"),
        ("hdd-2011-7200", "disk of 2011: 7200 rpm, 138 to 72 MB/s, SATA 6 Gb/s"),
        ("null", "ends every command after 10 µs, any number at once"),
    ]
}

/// What a drive is made of: everything but its seed.
#[derive(Clone, Debug)]
pub struct Model {
    table: Table,
    kind: Kind,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    Hdd(Arc<HddParameters>),
    Null(NullParameters),
}

/// Why a text is no model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// There is no model of this name.
    #[error("model: found {found:?}, expected one of {known}")]
    Name {
        /// The name.
        found: String,
        /// Those that there are.
        known: String,
    },
    /// The text is not TOML.
    #[error("not TOML: {0}")]
    Syntax(String),
    /// A key is needed and not there.
    #[error("{key}: not found, expected {expected}")]
    Missing {
        /// The key.
        key: String,
        /// What it should have.
        expected: String,
    },
    /// A key has a value which it cannot have.
    #[error("{key}: found {found}, expected {expected}")]
    Wrong {
        /// The key.
        key: String,
        /// What it has.
        found: String,
        /// What it should have.
        expected: String,
    },
    /// A key that models of this kind do not have.
    #[error("{key}: found, expected only {expected}")]
    Unknown {
        /// The key.
        key: String,
        /// Those that there are.
        expected: String,
    },
}

impl Model {
    /// A model from a user's own text.
    ///
    /// # Errors
    /// A text that is not TOML, and keys that are missing, unknown or have values which they cannot
    /// have, each with the key, what was found and what is expected.
    pub fn from_toml(text: &str) -> Result<Self, ModelError> {
        let table: Table = text.parse().map_err(|error: toml::de::Error| {
            ModelError::Syntax(error.to_string().trim().to_owned())
        })?;
        let table = match table.get("base") {
            None => table,
            Some(Value::String(name)) => merged(Self::named(name)?.table, &table),
            Some(value) => return Err(wrong("base", value, "the name of a model")),
        };
        let kind = kind(&table)?;
        Ok(Self { table, kind })
    }

    /// A named model.
    pub(super) fn named(name: &str) -> Result<Self, ModelError> {
        let text = TEXTS.iter().find(|(of, _)| *of == name);
        let (_, text) = text.ok_or_else(|| ModelError::Name {
            found: name.to_owned(),
            known: TEXTS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", "),
        })?;
        Self::from_toml(text)
    }

    /// The same model with some keys replaced: `text` as in [`Model::from_toml`], without `base`.
    ///
    /// # Errors
    /// As [`Model::from_toml`].
    pub fn with(&self, text: &str) -> Result<Self, ModelError> {
        let changes: Table = text.parse().map_err(|error: toml::de::Error| {
            ModelError::Syntax(error.to_string().trim().to_owned())
        })?;
        if let Some(value) = changes.get("base") {
            return Err(wrong("base", value, "no base: there is one already"));
        }
        let table = merged(self.table.clone(), &changes);
        let kind = kind(&table)?;
        Ok(Self { table, kind })
    }

    /// Every key with its value, in the order of their names: for reports, and to hash.
    #[must_use]
    pub fn to_toml(&self) -> String {
        self.table.to_string()
    }

    pub(super) fn kind(&self) -> &Kind {
        &self.kind
    }
}

/// A table with what another says besides.
fn merged(mut base: Table, changes: &Table) -> Table {
    for (key, value) in changes.iter().filter(|(key, _)| *key != "base") {
        base.insert(key.clone(), value.clone());
    }
    base
}

fn kind(table: &Table) -> Result<Kind, ModelError> {
    let mut fields = Fields::new(table);
    let kind = match fields.word("kind", &["hdd", "null"])? {
        "hdd" => Kind::Hdd(Arc::new(hdd(&mut fields)?)),
        _ => Kind::Null(null(&mut fields)?),
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
    let settle = fields.millis("write_settle_ms", 0.0..=20.0)?.0;
    let points = SeekPoints {
        least: fields.millis("seek_least_ms", 0.01..=100.0)?.0,
        average: fields.millis("seek_average_ms", 0.01..=100.0)?.0,
        most: fields.millis("seek_most_ms", 0.01..=100.0)?.0,
    };
    let seek =
        Seek::through(points, platters.cylinders, settle).ok_or_else(|| ModelError::Wrong {
            key: "seek_average_ms".into(),
            found: format!("{}", points.average as f64 / 1e6),
            expected: format!(
                "from {} to {}: else the curve through the three times would fall somewhere",
                (points.least * 2 + points.most) as f64 / 3e6,
                (points.least * 7 + points.most * 8) as f64 / 15e6
            ),
        })?;
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
            let again = Model::from_toml(&model.to_toml()).unwrap();
            assert_eq!(again.to_toml(), model.to_toml());
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_what_was_expected() {
        let of = |text: &str| Model::from_toml(text).unwrap_err().to_string();
        let on_hdd = |text: &str| of(&format!("base = 'hdd-2007-7200'\n{text}"));
        let cases = [
            (of("kind = 'tape'"), "kind: found \"tape\", expected hdd"),
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
