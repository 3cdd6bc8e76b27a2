//! Power cuts: which sectors that were not durable each member keeps.
//!
//! Each member keeps any subset of the sectors that were not durable ([`CutMode::Subset`]), or all
//! that came before some moment of its own ([`CutMode::Ordered`]: a cache that writes back in
//! order). Writes that were outstanding count as not durable. Members are cut independently of each
//! other, so one may have kept everything and the next nothing.
//!
//! Source   spec reliability.md §4 (F1, F11, F12), §6.1

use std::collections::BTreeSet;

use weft_units::Span;

use crate::checker::parity::Judged;

/// Rule by which sectors that were not durable survive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CutMode {
    /// All of it, what is outstanding included: as if the process alone had died late.
    Everything,
    /// Nothing survives that was not durable.
    Nothing,
    /// Writes survive in order, up to a moment that the seed chooses for each member.
    Ordered,
    /// Any subset of the sectors that were not durable survives.
    #[default]
    Subset,
    /// Any part of it, and of a superblock that is outstanding also a beginning of a sector (F2):
    /// beyond the promises, which take a sector for whole or not, but found by the checksum.
    Torn,
}

/// Effect of a cut on one member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CutReport {
    /// Sectors of which a version survived that was not durable.
    pub kept: BTreeSet<u64>,
    /// Sectors of which a version was lost.
    pub lost: BTreeSet<u64>,
    /// Sectors of which a version became durable by the flush of a metadata write under way.
    pub settled: BTreeSet<u64>,
    /// Writes that were outstanding.
    pub writes_in_flight: usize,
    /// Whether a metadata write was outstanding.
    pub metadata_in_flight: bool,
    /// Whether one of those is there in part, and is neither what was there before nor what was
    /// written.
    pub metadata_torn: bool,
}

/// What a cut did to the array, for asserting that a set of cuts is worth something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CutShape {
    /// A stripe has sectors that survived and sectors that did not, or parity that is wrong.
    pub half_written_stripe: bool,
    /// A strict subset of what was not durable is lost: something was, something was not.
    pub strict_subset: bool,
    /// A metadata write was outstanding.
    pub inside_metadata: bool,
    /// Resync was running.
    pub during_sync: bool,
    /// Superblocks that are there in part.
    pub torn_superblocks: u64,
    /// Columns whose parity was judged.
    pub judged: Judged,
}

/// Number of cuts of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// All cuts.
    pub points: u64,
    /// See [`CutShape::half_written_stripe`].
    pub half_written_stripe: u64,
    /// See [`CutShape::strict_subset`].
    pub strict_subset: u64,
    /// See [`CutShape::inside_metadata`].
    pub inside_metadata: u64,
    /// See [`CutShape::during_sync`].
    pub during_sync: u64,
    /// See [`CutShape::torn_superblocks`].
    pub torn_superblocks: u64,
    /// Cuts after which the parity of something was judged (I6).
    pub judged: u64,
    /// Cuts after which parity was judged that superblocks promise: of an array that is clean, or
    /// dirty only from some sector on.
    pub judged_promised: u64,
    /// Cuts after which parity was judged of an array that lacks a member.
    pub judged_degraded: u64,
    /// Cuts and stops after which parity was judged of an array that is dirty only from some sector
    /// on.
    pub judged_partly: u64,
    /// Columns whose parity was judged, in all of them.
    pub judged_columns: u64,
    /// Columns that were compared as their bits of the bitmap were cleared (I20).
    pub judged_by_bits: u64,
    /// Members of which an assembly could not read the superblock.
    pub unreadable_superblocks: u64,
    /// Members that left and were taken back for what the bitmap says that they miss.
    pub re_added: u64,
    /// Discards that failed, in whose stead zeros were stored.
    pub discards_failed: u64,
    /// Drains that were answered, of all or of what could be written.
    pub drains: u64,
    /// Assemblies that were refused, as too many superblocks were torn or not to be read.
    pub refused: u64,
    /// Assemblies of what is dirty and degraded, each refused before there was consent.
    pub consents: u64,
    /// The longest that it took until everything was answered, with all members answering.
    pub longest_finish: Span,
    /// The longest that resync took at the end of a script.
    pub longest_sync: Span,
    /// Scripts that ended early, as torn superblocks left fewer members than the level needs.
    pub given_up: u64,
    /// Sectors that were predicted to be possibly wrong (write hole) and looked at.
    pub hole_predicted: u64,
    /// Predicted sectors that were wrong.
    pub hole_wrong: u64,
}

impl Coverage {
    /// Counts one cut.
    pub fn add(&mut self, shape: CutShape) {
        self.points += 1;
        self.half_written_stripe += u64::from(shape.half_written_stripe);
        self.strict_subset += u64::from(shape.strict_subset);
        self.inside_metadata += u64::from(shape.inside_metadata);
        self.during_sync += u64::from(shape.during_sync);
        self.torn_superblocks += shape.torn_superblocks;
        self.judged += u64::from(shape.judged.columns > 0);
        self.judged_promised += u64::from(shape.judged.promised > 0);
        self.judged_degraded += u64::from(shape.judged.degraded > 0);
        self.judged_partly += u64::from(shape.judged.partly > 0);
        self.judged_columns += shape.judged.columns;
    }

    /// Adds what another run counted.
    pub fn merge(&mut self, other: Self) {
        self.points += other.points;
        self.half_written_stripe += other.half_written_stripe;
        self.strict_subset += other.strict_subset;
        self.inside_metadata += other.inside_metadata;
        self.during_sync += other.during_sync;
        self.torn_superblocks += other.torn_superblocks;
        self.judged += other.judged;
        self.judged_promised += other.judged_promised;
        self.judged_degraded += other.judged_degraded;
        self.judged_partly += other.judged_partly;
        self.judged_columns += other.judged_columns;
        self.judged_by_bits += other.judged_by_bits;
        self.consents += other.consents;
        self.longest_sync = self.longest_sync.max(other.longest_sync);
        self.longest_finish = self.longest_finish.max(other.longest_finish);
        self.unreadable_superblocks += other.unreadable_superblocks;
        self.refused += other.refused;
        self.re_added += other.re_added;
        self.discards_failed += other.discards_failed;
        self.drains += other.drains;
        self.given_up += other.given_up;
        self.hole_predicted += other.hole_predicted;
        self.hole_wrong += other.hole_wrong;
    }

    /// Percent of all cuts.
    #[must_use]
    pub fn percent(&self, count: u64) -> u64 {
        (count * 100).checked_div(self.points).unwrap_or(0)
    }
}
