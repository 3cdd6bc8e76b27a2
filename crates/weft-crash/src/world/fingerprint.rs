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

use std::fmt;

use super::World;
use crate::text_digest::TextDigest;

impl World {
    /// One number for each part of what a cut would find.
    #[must_use]
    pub fn cut_fingerprints(&self) -> [(&'static str, u64); 4] {
        let Self { disks, model, orphans, at_stake, suspects, measure_due, checkers, .. } = self;
        let Self { options, now, array, record, next_tag, .. } = self;
        let mut of_disks = TextDigest::default();
        disks.iter().for_each(|disk| disk.hash_into(&mut of_disks));
        [
            ("disks", of_disks.value()),
            ("clients", text(&(model, orphans, at_stake, suspects, measure_due))),
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
