//! Fingerprint of the state that a power cut would find; equal fingerprints mean equal cuts.
//!
//! A cut takes the engine, its memory and the connections with it, so what counts is what stays:
//! the disks with their caches and what is outstanding there, what clients may expect, what
//! checkers remember of disks, the time. Of what has `Debug` the text is hashed as it is written;
//! bytes are hashed as they are. Names of requests do not count, their order does.
//!
//! (A fingerprint of the engine as well would almost never find two states alike: the order in
//! which two requests ended stays visible in the names that later ones get.)
//!
//! `tests/crash_points.rs` cuts states that are taken for the same side by side.

use std::fmt::{self, Write};

use super::World;
use crate::rng::Digest;

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

/// Hashes what is written to it.
#[derive(Default)]
pub(crate) struct Text(Digest);

impl Text {
    /// Bytes, and how many.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.0.add_word(u64::from_le_bytes(*word)));
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.0.add_word(u64::from_le_bytes(last));
        self.0.add_word(bytes.len() as u64);
    }

    /// The text that stands for something.
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
