//! Fingerprint of the state that a power cut would leave; equal fingerprints mean equal cuts.
//!
//! A power cut destroys the engine, its memory and the connections, so the fingerprint covers the
//! rest: the disks with their caches and outstanding requests, the values that clients may read,
//! the state of checkers that outlives an engine, and the time. Values with `Debug` are hashed by
//! their text, bytes as they are. The tokens of requests do not count, but their order does.
//!
//! (Fingerprints that included the engine would almost never be equal, because the order in which
//! two requests completed stays visible in the tokens of later requests.)
//!
//! `tests/all/crash_points.rs` cuts states with equal fingerprints side by side and compares them.

use std::fmt;

use super::World;
use crate::text_digest::TextDigest;

impl World {
    /// Fingerprints of the four parts of the state that a power cut would leave, each with the name
    /// of its part.
    #[must_use]
    pub fn cut_fingerprints(&self) -> [(&'static str, u64); 4] {
        let Self {
            disks, model, orphans, watched_columns, suspects, measure_due, checkers, ..
        } = self;
        let Self { options, now, array, record, next_tag, .. } = self;
        let mut of_disks = TextDigest::default();
        disks.iter().for_each(|disk| disk.hash_into(&mut of_disks));
        [
            ("disks", of_disks.value()),
            ("clients", text(&(model, orphans, watched_columns, suspects, measure_due))),
            ("checkers", text(&checkers.after_a_stop())),
            ("surroundings", text(&(options, now, &array.data_offset, record, next_tag))),
        ]
    }
}

fn text(of: &dyn fmt::Debug) -> u64 {
    let mut text = TextDigest::default();
    text.debug(of);
    text.value()
}
