//! Fingerprint of the state that a power cut would find; equal fingerprints mean equal cuts.
//!
//! A cut takes the engine, its memory and the connections with it, so the fingerprint covers what
//! stays: the disks with their caches and outstanding requests, what clients may expect, what
//! checkers remember of disks, and the time. Values with `Debug` are hashed by their text as it is
//! written; bytes are hashed as they are. The names of requests do not count, their order does.
//!
//! (A fingerprint that included the engine would almost never match another: the order in which two
//! requests ended stays visible in the names of later ones.)
//!
//! `tests/crash_points.rs` cuts states with equal fingerprints side by side and compares them.

use std::fmt::{self, Write};

use weft_units::digest::Digest;

use super::World;

impl World {
    /// One number for each part of what a cut would find.
    #[must_use]
    pub fn cut_fingerprints(&self) -> [(&'static str, u64); 4] {
        let Self { disks, model, orphans, at_stake, suspects, measure_due, checkers, .. } = self;
        let Self { options, now, array, record, next_tag, .. } = self;
        let mut of_disks = Text::default();
        disks.iter().for_each(|disk| disk.hash_into(&mut of_disks));
        [
            ("disks", of_disks.0.0),
            ("clients", text(&(model, orphans, at_stake, suspects, measure_due))),
            ("checkers", text(&checkers.after_a_stop())),
            ("surroundings", text(&(options, now, &array.data_offset, record, next_tag))),
        ]
    }
}

/// Hasher of the text that is written to it.
#[derive(Default)]
pub(crate) struct Text(Digest);

impl Text {
    /// Adds bytes and their number.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.0.add_word(u64::from_le_bytes(*word)));
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.0.add_word(u64::from_le_bytes(last));
        self.0.add_word(bytes.len() as u64);
    }

    /// Adds the `Debug` text of a value.
    pub(crate) fn debug(&mut self, of: &dyn fmt::Debug) {
        let _ = write!(self, "{of:?}");
    }
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.bytes(text.as_bytes());
        Ok(())
    }
}

fn text(of: &dyn fmt::Debug) -> u64 {
    let mut text = Text::default();
    text.debug(of);
    text.0.0
}
