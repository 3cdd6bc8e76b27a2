//! Knobs as texts, for `get`, `set` and `serve --set`.
//!
//! The table of knobs is the engine's.

use std::fmt::Write;

use weft_engine::knobs::{Knob, KnobError, Knobs, TABLE};
use weft_terminal::outcome::Failure;

use crate::size;

/// Splits `KNOB=VALUE`.
///
/// # Errors
/// The text has no `=`.
pub(crate) fn split(setting: &str) -> Result<(&str, &str), Failure> {
    setting.split_once('=').ok_or_else(|| {
        Failure::usage(format!("{setting}: expected KNOB=VALUE; weft get lists the knobs"))
    })
}

/// Converts a knob's value to the engine's form: sizes may have a unit, as in `64K` or `1G`. All
/// commands that change knobs use this function.
pub(crate) fn plain(name: &str, value: &str) -> String {
    let unit = TABLE.iter().find(|row| row.name == name).map(|row| row.unit);
    let size = match unit {
        Some("bytes") => size::bytes(value).ok().map(|bytes| bytes.0),
        // A size that is no multiple of a KiB stays as it is and is refused with the range.
        Some("KiB") => size::kib(value)
            .ok()
            .and_then(|bytes| bytes.0.is_multiple_of(1024).then_some(bytes.0 >> 10)),
        _ => None,
    };
    size.map_or_else(|| value.to_owned(), |size| size.to_string())
}

/// Changes a knob of a simulated volume.
///
/// # Errors
/// No such knob exists, or its value is out of range.
pub(crate) fn set(knobs: &mut Knobs, name: &str, value: &str) -> Result<Knob, KnobError> {
    set_parsed(knobs, name, value, Knobs::parse)
}

/// Changes a knob of a live volume.
///
/// # Errors
/// No such knob exists, its value is out of range, or the value only reproduces a former kernel.
pub(crate) fn set_live(knobs: &mut Knobs, name: &str, value: &str) -> Result<Knob, KnobError> {
    set_parsed(knobs, name, value, Knobs::parse_live)
}

fn set_parsed(
    knobs: &mut Knobs,
    name: &str,
    value: &str,
    parse: fn(&Knobs, &str, &str) -> Result<Knob, KnobError>,
) -> Result<Knob, KnobError> {
    // An error names the value as written by the user.
    let knob = match parse(knobs, name, &plain(name, value)) {
        Err(KnobError::Value { name, expected, .. }) => {
            return Err(KnobError::Value { name, found: value.to_owned(), expected });
        }
        other => other?,
    };
    knobs.set(knob);
    Ok(knob)
}

/// Text with every knob, its unit, range in a live volume, default and meaning, for help texts.
pub(crate) fn table() -> String {
    let defaults = Knobs::default();
    let mut text = String::from("Knobs:\n");
    for row in TABLE {
        let default = defaults.show(row.name).unwrap_or_default();
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "  {} ({}, {}; default {default})",
            row.name,
            row.unit,
            row.range_live()
        );
        let _ = writeln!(text, "      {}", row.doc);
    }
    text.trim_end().to_owned()
}

/// Help text with the table of knobs, and with the settings of `get` and `set` that are not knobs.
pub(crate) fn table_of_running() -> String {
    let BesideKnobs { name, unit, range, doc } = BITMAP;
    format!("{}\n\nBeside the knobs:\n  {name} ({unit}, {range})\n      {doc}", table())
}

/// Setting of a running volume that is no knob, and that `get` and `set` have beside the knobs.
pub(crate) struct BesideKnobs {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) range: &'static str,
    pub(crate) doc: &'static str,
}

/// The write-intent bitmap of a running array, which `set` adds and removes.
pub(crate) const BITMAP: BesideKnobs = BesideKnobs {
    name: "bitmap",
    unit: "word",
    range: "internal | none",
    doc: "Whether the array has a write-intent bitmap on its members. Kept when the volume is \
          stopped.",
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_units_and_other_knobs_do_not() {
        for (name, value, expected) in [
            ("stripe_cache_bytes", "16M", "16777216"),
            ("stripe_cache_bytes", "8388608", "8388608"),
            ("stripe_cache_bytes", "1G", "1073741824"),
            ("stripe_size", "64K", "65536"),
            ("stripe_size", "auto", "auto"),
            ("max_sectors_kb", "512", "512"),
            ("max_sectors_kb", "1M", "1024"),
            ("back_seek_max", "16M", "16384"),
            ("max_sectors_kb", "1s", "1s"),
            ("stripe_cache_size", "1K", "1K"),
            ("no_such_knob", "1K", "1K"),
        ] {
            assert_eq!(plain(name, value), expected, "{name}={value}");
        }
        let mut knobs = Knobs::default();
        set(&mut knobs, "stripe_size", "64K").unwrap();
        assert_eq!(knobs.show("stripe_size").as_deref(), Some("65536"));
        let error = set(&mut knobs, "stripe_size", "3K").unwrap_err().to_string();
        assert!(error.contains("found 3K"), "{error}");
    }

    /// Every knob with a unit of size accepts sizes with a unit.
    #[test]
    fn all_size_knobs_are_known() {
        for row in TABLE {
            let is_size = ["bytes", "KiB"].contains(&row.unit);
            let known = [
                "back_seek_max",
                "dirty_background_bytes",
                "dirty_bytes",
                "max_sectors_kb",
                "stripe_cache_bytes",
                "stripe_size",
            ];
            assert_eq!(is_size, known.contains(&row.name), "{}", row.name);
        }
    }
}
