//! Counters of a drive: commands, bytes, cache hits, flushes and busy times.

use weft_units::{Bytes, Span};

/// Sums since the drive was made. What a kind of drive does not have stays zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Read commands taken.
    pub reads: u64,
    /// Write commands taken.
    pub writes: u64,
    /// Flushes taken.
    pub flushes: u64,
    /// Discards taken.
    pub discards: u64,
    /// Bytes that the host asked to read.
    pub read_bytes: Bytes,
    /// Bytes that the host asked to write.
    pub written_bytes: Bytes,
    /// Reads that were answered from a cache alone.
    pub cache_hits: u64,
    /// Time during which the link carried a command.
    pub link_busy: Span,
    /// Time during which the arm (disk) worked, or the sum over all dies (solid-state drive).
    pub media_busy: Span,
    /// Disk: accesses to the platters.
    pub media_accesses: u64,
    /// Disk: accesses that moved the arm.
    pub seeks: u64,
    /// Disk: time in which the arm moved, heads were switched and writes settled.
    pub seek_time: Span,
    /// Disk: time in which nothing but the platter moved.
    pub rotational_wait: Span,
    /// Disk: pieces of the write cache brought to the platters.
    pub destages: u64,
    /// Disk: their bytes.
    pub destaged_bytes: Bytes,
    /// Solid-state drive: pages read from dies for the host, ahead of it and for collection.
    pub nand_reads: u64,
    /// Solid-state drive: programs of all planes of a die.
    pub nand_programs: u64,
    /// Solid-state drive: bytes in these programs: the host's, moved ones, padding and map.
    pub nand_bytes: Bytes,
    /// Solid-state drive: bytes of the host in them.
    pub nand_host_bytes: Bytes,
    /// Solid-state drive: bytes in them that collection moved.
    pub nand_moved_bytes: Bytes,
    /// Solid-state drive: bytes in them that only fill up.
    pub nand_padding_bytes: Bytes,
    /// Solid-state drive: bytes of the map in them.
    pub nand_map_bytes: Bytes,
    /// Solid-state drive: blocks erased, all planes of a die.
    pub erases: u64,
}

impl Counters {
    /// Bytes programmed for each byte of the host that was programmed; `None` before the first.
    #[must_use]
    pub fn write_amplification(&self) -> Option<f64> {
        (self.nand_host_bytes.0 > 0)
            .then(|| self.nand_bytes.0 as f64 / self.nand_host_bytes.0 as f64)
    }
}
