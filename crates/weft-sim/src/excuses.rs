//! Excuses: how often a checker let something pass that clients' writes alone do not explain.
//!
//! An excuse that always holds is a checker that cannot fail. So each is counted together with what
//! it was asked about, and `sweep gate` holds the shares below ceilings.

/// Of 10,000 columns that I6 was asked about with a write-back cache so many may be wrong and pass
/// for the cache alone.
pub const CACHED_WRONG_MAX: u64 = 5;

/// Counts of one run, or of many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Excuses {
    /// Sectors that were read and compared with the model (I1, I2, I3).
    pub read: u64,
    /// Those of them that might have been wrong: their member was missing or unreadable, and the
    /// members of their column disagreed.
    pub read_unsure: u64,
    /// Those of them that were.
    pub read_wrong: u64,
    /// Those that needed parts of several writes that had been in flight together.
    pub read_mixed: u64,
    /// The same, byte for byte, as there were too many parts to try which of them were there.
    pub read_mixed_bytes: u64,
    /// Sectors of data that went to members and were compared with the model (I7).
    pub written: u64,
    /// Those of them that nobody wrote, and that may have been reconstructed from members that
    /// disagreed.
    pub written_wrong: u64,
    /// Columns that were measured after a cut.
    pub measured: u64,
    /// Those of them whose members disagreed.
    pub disagreed: u64,
    /// Those of which parity was not compared with choices of versions, as there were too many.
    pub too_many: u64,
    /// Columns that I6 was asked about after cuts and kills of arrays with a write-back cache.
    pub ended: u64,
    /// Those of them that it let pass for the cache alone: the cache may have been writing them.
    pub ended_cached: u64,
    /// Those of these whose parity was wrong, or whose copies differed.
    pub ended_cached_wrong: u64,
}

sums!(
    Excuses: read, read_unsure, read_wrong, read_mixed, read_mixed_bytes, written, written_wrong,
    measured, disagreed, too_many, ended, ended_cached, ended_cached_wrong
);
