//! Excuses: counts of checks that accepted content which clients' writes alone do not explain.
//!
//! An excuse that always holds would make its checker useless. Each excuse is therefore counted
//! together with the number of checks, and `sweep fresh` keeps the ratios below limits.

/// Largest tolerated number of columns with wrong parity, per 10,000 columns of `ended`, that are
/// excused only because the write-back cache may have been writing them.
pub const CACHED_WRONG_MAX: u64 = 5;

/// Counts of checks and of excuses, of one run or of many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExcuseCounts {
    /// Sectors that were read and compared with the model (I1, I2, I3).
    pub read: u64,
    /// Sectors read that might have been wrong, because their member was missing or unreadable and
    /// the members of their column disagreed.
    pub read_unsure: u64,
    /// Sectors read with wrong content that was excused.
    pub read_wrong: u64,
    /// Sectors read with a mixture of several writes that had been in flight together.
    pub read_mixed: u64,
    /// Sectors read that might be such a mixture and were compared byte for byte, because there
    /// were too many parts to try all of their combinations.
    pub read_mixed_bytes: u64,
    /// Data sectors that were written to members and compared with the model (I7).
    pub written: u64,
    /// Data sectors written to members with content that no client wrote, excused because it may
    /// have been reconstructed from members that disagreed.
    pub written_wrong: u64,
    /// Columns that were measured after a cut: their members were compared.
    pub measured: u64,
    /// Measured columns in which members disagreed.
    pub disagreed: u64,
    /// Measured columns with too many combinations of versions that may have been written to
    /// compare the parity with each.
    pub too_many: u64,
    /// Columns that were examined for I6 after power cuts and process crashes of arrays with a
    /// write-back cache: columns that were ever written, that are watched or that are suspect.
    pub ended: u64,
    /// The `ended` columns that are excused only because the cache may have been writing them.
    pub ended_cached: u64,
    /// The `ended_cached` columns with wrong parity or different copies.
    pub ended_cached_wrong: u64,
}

sums!(
    ExcuseCounts: read, read_unsure, read_wrong, read_mixed, read_mixed_bytes, written, written_wrong,
    measured, disagreed, too_many, ended, ended_cached, ended_cached_wrong
);
