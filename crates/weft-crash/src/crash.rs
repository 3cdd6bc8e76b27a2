//! Power cuts: the choice of the non-durable sectors that survive on each member.
//!
//! On each member, either any subset of the sectors that are not durable survives
//! ([`CutMode::Subset`]), or all writes before a moment that differs by member survive
//! ([`CutMode::Ordered`]: a cache that writes back in order). Outstanding writes count as not
//! durable. Members are cut independently of each other, so one may keep everything and the next
//! one nothing.
//!
//! Source   spec reliability.md §4 (F1, F11, F12), §6.1

use std::collections::BTreeSet;

use weft_units::Span;

/// Rule that decides which sectors survive a power cut although they were not durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CutMode {
    /// Everything survives, including outstanding writes, as if they had reached the media and only
    /// the process had crashed.
    Everything,
    /// Nothing survives that was not durable.
    Nothing,
    /// Writes survive in order, up to a moment that the seed chooses for each member.
    Ordered,
    /// Any subset of the sectors that were not durable survives.
    #[default]
    Subset,
    /// Any part survives, as in `Subset`. In addition, one sector of an outstanding superblock may
    /// hold only the first part of its new content (F2). This is beyond the promises, which assume
    /// that sectors are atomic, but the superblock's checksum detects it.
    Torn,
}

/// Effect of a cut on one member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CutReport {
    /// Sectors of which a version survived although it was not durable.
    pub kept: BTreeSet<u64>,
    /// Sectors of which a version was lost.
    pub lost: BTreeSet<u64>,
    /// Sectors of which a version became durable by the flush of an outstanding metadata write.
    pub settled: BTreeSet<u64>,
    /// Number of writes that were outstanding when the power was cut.
    pub writes_in_flight: usize,
    /// Whether a metadata write was outstanding.
    pub metadata_in_flight: bool,
    /// Whether an outstanding metadata write was torn: its sectors hold neither the old nor the new
    /// content as a whole.
    pub metadata_torn: bool,
}

/// Counts of the columns in which parity or copies were judged after a cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Judged {
    /// Columns that hold data and in which parity or copies could be compared.
    pub columns: u64,
    /// Judged columns in which superblocks promise that parity is right: the array is clean, or
    /// dirty only from a later column on.
    pub promised: u64,
    /// Promised columns of arrays that are dirty only from a later column on.
    pub partly: u64,
    /// Columns of a degraded array in which the parity or copies that are left were compared.
    pub degraded: u64,
}

/// Circumstances of a cut. Tests use them to assert that a set of cuts covers enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CutShape {
    /// Whether any stripe has sectors that survived and sectors that were lost.
    pub half_written_stripe: bool,
    /// Whether some content that was not durable survived, and some was lost.
    pub strict_subset: bool,
    /// Whether a metadata write was outstanding.
    pub inside_metadata: bool,
    /// Whether a resync was running.
    pub during_sync: bool,
    /// Number of torn superblocks.
    pub torn_superblocks: u64,
    /// Counts of the columns in which parity or copies were judged.
    pub judged: Judged,
}

/// Counts of cuts, by their circumstances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Number of power cuts.
    pub points: u64,
    /// Cuts with a half-written stripe; see [`CutShape::half_written_stripe`].
    pub half_written_stripe: u64,
    /// Cuts in which some volatile content survived and some was lost; see
    /// [`CutShape::strict_subset`].
    pub strict_subset: u64,
    /// Cuts with an outstanding metadata write; see [`CutShape::inside_metadata`].
    pub inside_metadata: u64,
    /// Cuts while a resync was running; see [`CutShape::during_sync`].
    pub during_sync: u64,
    /// Superblocks that were torn, over all cuts; see [`CutShape::torn_superblocks`].
    pub torn_superblocks: u64,
    /// Cuts after which the parity of any column was judged (I6).
    pub judged: u64,
    /// Cuts after which columns were judged that superblocks promise to be right; see
    /// [`Judged::promised`].
    pub judged_promised: u64,
    /// Number of cuts after which parity or copies were compared in a column of a degraded array.
    pub judged_degraded: u64,
    /// Cuts and stops of an array that was dirty only from a later column on, after which promised
    /// columns were judged.
    pub judged_partly: u64,
    /// Columns in which parity or copies were judged, over all cuts.
    pub judged_columns: u64,
    /// Columns in which members were compared because their bits in the bitmap were clear (I20).
    pub judged_by_bits: u64,
    /// Number of superblocks of members that an assembly could not read.
    pub unreadable_superblocks: u64,
    /// Members that left and were re-added by the bitmap.
    pub re_added: u64,
    /// Working members that were replaced: the replacement got all data and took the slot.
    pub replaced: u64,
    /// Replacements that failed before they had all data.
    pub replacements_failed: u64,
    /// Number of ranges that recoveries recorded as bad blocks.
    pub bad_blocks: u64,
    /// Number of ranges that members in sync could not write or keep, recorded as bad blocks.
    pub unwritten_blocks: u64,
    /// Number of blocks that verification could not read, because of bad blocks and read errors.
    pub lost_blocks: u64,
    /// Discards that failed and were replaced by writes of zeros.
    pub discards_failed: u64,
    /// Commands to write out the write-back cache (drains) that were answered, even if some pages
    /// could not be written.
    pub drains: u64,
    /// Assemblies that were refused because too many superblocks were torn or unreadable.
    pub refused: u64,
    /// Assemblies of dirty and degraded arrays, each refused before consent was given.
    pub consents: u64,
    /// Longest time from the start of [`crate::World::run`] until all requests were answered. Only
    /// runs count that end without a stalled member and without a lack of space. The service time
    /// of members is not included.
    pub longest_finish: Span,
    /// Longest time that the resyncs at the end of a script took.
    pub longest_sync: Span,
    /// Scripts that ended early because torn superblocks left fewer members than the level needs.
    pub given_up: u64,
    /// Sectors read that the model predicted as possibly wrong (write hole).
    pub hole_predicted: u64,
    /// Sectors counted in `hole_predicted` that were indeed wrong.
    pub hole_wrong: u64,
}

impl Coverage {
    /// Counts a cut, by its circumstances.
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

    /// Adds the counts of another run.
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
        self.replaced += other.replaced;
        self.replacements_failed += other.replacements_failed;
        self.longest_sync = self.longest_sync.max(other.longest_sync);
        self.longest_finish = self.longest_finish.max(other.longest_finish);
        self.unreadable_superblocks += other.unreadable_superblocks;
        self.refused += other.refused;
        self.re_added += other.re_added;
        self.bad_blocks += other.bad_blocks;
        self.unwritten_blocks += other.unwritten_blocks;
        self.lost_blocks += other.lost_blocks;
        self.discards_failed += other.discards_failed;
        self.drains += other.drains;
        self.given_up += other.given_up;
        self.hole_predicted += other.hole_predicted;
        self.hole_wrong += other.hole_wrong;
    }

    /// `count` as a percentage of all cuts, rounded down; 0 without cuts.
    #[must_use]
    pub fn percent(&self, count: u64) -> u64 {
        (count * 100).checked_div(self.points).unwrap_or(0)
    }
}
