//! What does a power cut leave?
//!
//! Each member keeps any subset of the sectors that were not durable ([`CutMode::Subset`]), or all that
//! came before some moment of its own ([`CutMode::Ordered`]: a cache that writes back in order). Writes
//! that were outstanding count as not durable. Members are cut independently of each other, so one may
//! have kept everything and the next nothing.
//!
//! Source   spec reliability.md §4 (F1, F11, F12), §6.1

use std::collections::BTreeSet;

/// What survives of what was not durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CutMode {
    /// All of it, what is outstanding included: as if the process alone had died late.
    Everything,
    /// None of it.
    Nothing,
    /// What came first, up to a moment that the seed chooses for each member.
    Ordered,
    /// Any part of it.
    #[default]
    Subset,
}

/// What a cut did to one member.
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
    /// Whether one of them was a metadata write.
    pub metadata_in_flight: bool,
}

/// What a cut did to the array, for asserting that a set of cuts is worth something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CutShape {
    /// A row has sectors that survived and sectors that did not, or parity that is wrong.
    pub half_written_row: bool,
    /// A strict subset of what was not durable is lost: something was, something was not.
    pub strict_subset: bool,
    /// A metadata write was outstanding.
    pub inside_metadata: bool,
    /// Row sync was running.
    pub during_sync: bool,
}

/// How often each kind of cut came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// All cuts.
    pub points: u64,
    /// See [`CutShape::half_written_row`].
    pub half_written_row: u64,
    /// See [`CutShape::strict_subset`].
    pub strict_subset: u64,
    /// See [`CutShape::inside_metadata`].
    pub inside_metadata: u64,
    /// See [`CutShape::during_sync`].
    pub during_sync: u64,
    /// Sectors that were predicted to be possibly wrong (write hole) and looked at.
    pub hole_predicted: u64,
    /// Those of them that were.
    pub hole_wrong: u64,
}

impl Coverage {
    /// Counts one cut.
    pub fn add(&mut self, shape: CutShape) {
        self.points += 1;
        self.half_written_row += u64::from(shape.half_written_row);
        self.strict_subset += u64::from(shape.strict_subset);
        self.inside_metadata += u64::from(shape.inside_metadata);
        self.during_sync += u64::from(shape.during_sync);
    }

    /// Adds what another run counted.
    pub fn merge(&mut self, other: Self) {
        self.points += other.points;
        self.half_written_row += other.half_written_row;
        self.strict_subset += other.strict_subset;
        self.inside_metadata += other.inside_metadata;
        self.during_sync += other.during_sync;
        self.hole_predicted += other.hole_predicted;
        self.hole_wrong += other.hole_wrong;
    }

    /// Percent of all cuts.
    #[must_use]
    pub fn percent(&self, count: u64) -> u64 {
        (count * 100).checked_div(self.points).unwrap_or(0)
    }
}
