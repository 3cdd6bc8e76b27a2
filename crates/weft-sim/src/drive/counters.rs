//! Counters of a drive: commands, bytes, cache hits, flushes and busy times.

use weft_units::{Bytes, Span};

/// Sums since the drive was made. Counters that do not apply to the kind of drive stay zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Number of read commands received.
    pub reads: u64,
    /// Number of write commands received.
    pub writes: u64,
    /// Number of flush commands received.
    pub flushes: u64,
    /// Number of discard commands received.
    pub discards: u64,
    /// Bytes of all read commands.
    pub read_bytes: Bytes,
    /// Bytes of all write commands.
    pub written_bytes: Bytes,
    /// Number of reads that were answered from a cache alone.
    pub cache_hits: u64,
    /// Time for which the link was occupied.
    pub link_busy: Span,
    /// Time for which the arm worked (disk), or the sum of this time over all dies (solid-state
    /// drive).
    pub media_busy: Span,
    /// Disk: number of accesses to the platters.
    pub media_accesses: u64,
    /// Disk: number of accesses that moved the arm.
    pub seeks: u64,
    /// Disk: time for which the arm moved, heads were switched or writes settled.
    pub seek_time: Span,
    /// Disk: time for which the arm waited for the platter to turn.
    pub rotational_wait: Span,
    /// Disk: number of runs of sectors that were destaged from the write cache to the platters.
    pub destages: u64,
    /// Disk: bytes of the runs counted in `destages`.
    pub destaged_bytes: Bytes,
    /// Solid-state drive: number of reads of dies, for the host, for readahead and for garbage
    /// collection.
    pub nand_reads: u64,
    /// Solid-state drive: number of program operations, each on all planes of a die.
    pub nand_programs: u64,
    /// Solid-state drive: bytes programmed to flash, which are data of the host, moved data,
    /// padding and the map.
    pub nand_bytes: Bytes,
    /// Solid-state drive: bytes of the host's data among `nand_bytes`.
    pub nand_host_bytes: Bytes,
    /// Solid-state drive: bytes that garbage collection moved, among `nand_bytes`.
    pub nand_moved_bytes: Bytes,
    /// Solid-state drive: bytes of padding among `nand_bytes`.
    pub nand_padding_bytes: Bytes,
    /// Solid-state drive: bytes of the map among `nand_bytes`.
    pub nand_map_bytes: Bytes,
    /// Solid-state drive: number of erasures, each of a block on all planes of a die.
    pub erases: u64,
}

impl Counters {
    /// Number of bytes programmed for each byte of the host's data that was programmed; `None` if
    /// no data of the host was programmed.
    #[must_use]
    pub fn write_amplification(&self) -> Option<f64> {
        (self.nand_host_bytes.0 > 0)
            .then(|| self.nand_bytes.0 as f64 / self.nand_host_bytes.0 as f64)
    }
}
