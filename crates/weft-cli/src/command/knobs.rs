//! What do `get`, `set` and `serve --set` know of knobs?
//!
//! Their table is the engine's; here are only its texts.

use std::fmt::Write;

use weft_engine::knobs::{Knobs, TABLE};

use crate::outcome::Failure;

/// The two parts of `KNOB=VALUE`.
///
/// # Errors
/// There is no `=`.
pub(crate) fn split(setting: &str) -> Result<(&str, &str), Failure> {
    setting.split_once('=').ok_or_else(|| {
        Failure::usage(format!("{setting}: expected KNOB=VALUE; weft get lists the knobs"))
    })
}

/// Every knob with its unit, range, default and meaning, for help texts.
pub(crate) fn table() -> String {
    let defaults = Knobs::default();
    let mut text = String::from("Knobs:\n");
    for row in TABLE {
        let default = defaults.show(row.name).unwrap_or_default();
        // Strings take whatever is written to them.
        let _ = writeln!(text, "  {} ({}, {}; default {default})", row.name, row.unit, row.range);
        let _ = writeln!(text, "      {}", row.doc);
    }
    text.trim_end().to_owned()
}
