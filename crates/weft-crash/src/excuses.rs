//! Excuses: how often a checker accepted content that clients' writes alone do not explain.
//!
//! A checker cannot fail if its excuse always holds. Each excuse is therefore counted together with
//! the number of checks, and `sweep gate` keeps the ratios below limits.

/// Limit, of 10,000 columns that I6 judges with a write-back cache, of wrong columns that are
/// excused only by the cache.
pub const CACHED_WRONG_MAX: u64 = 5;

/// Counts of one run or of many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Excuses {
    /// Sectors that were read and compared with the model (I1, I2, I3).
    pub read: u64,
    /// Sectors read that might have been wrong: their member was missing or unreadable, and the
    /// members of their column disagreed.
    pub read_unsure: u64,
    /// Sectors read that were wrong.
    pub read_wrong: u64,
    /// Sectors read that consisted of parts of several writes that had been in flight together.
    pub read_mixed: u64,
    /// Sectors like these that were compared byte for byte, because there were too many parts to
    /// try all of their combinations.
    pub read_mixed_bytes: u64,
    /// Data sectors that were written to members and compared with the model (I7).
    pub written: u64,
    /// Sectors written that no client wrote, and that may have been reconstructed from members that
    /// disagreed.
    pub written_wrong: u64,
    /// Columns that were measured after a cut.
    pub measured: u64,
    /// Measured columns in which members disagreed.
    pub disagreed: u64,
    /// Measured columns with parity that was not compared with the possible versions, because there
    /// were too many.
    pub too_many: u64,
    /// Columns that I6 judged after cuts and kills of arrays with a write-back cache.
    pub ended: u64,
    /// Columns of these that were excused only by the cache, which may have been writing them.
    pub ended_cached: u64,
    /// Excused columns with wrong parity or different copies.
    pub ended_cached_wrong: u64,
}

sums!(
    Excuses: read, read_unsure, read_wrong, read_mixed, read_mixed_bytes, written, written_wrong,
    measured, disagreed, too_many, ended, ended_cached, ended_cached_wrong
);
