//! Counters of a drive: commands, bytes, cache hits, flushes and busy times.

use weft_units::{Bytes, Span};

/// Sums since the drive was made. Counters that a kind of drive does not have stay zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Read commands received.
    pub reads: u64,
    /// Write commands received.
    pub writes: u64,
    /// Flushes received.
    pub flushes: u64,
    /// Discards received.
    pub discards: u64,
    /// Bytes of the read commands.
    pub read_bytes: Bytes,
    /// Bytes of the write commands.
    pub written_bytes: Bytes,
    /// Reads that were answered from a cache alone.
    pub cache_hits: u64,
    /// Time during which the link was occupied.
    pub link_busy: Span,
    /// Time during which the arm (disk) worked, or the sum over all dies (solid-state drive).
    pub media_busy: Span,
    /// Disk: accesses to the platters.
    pub media_accesses: u64,
    /// Disk: accesses that moved the arm.
    pub seeks: u64,
    /// Disk: time in which the arm moved, heads were switched and writes settled.
    pub seek_time: Span,
    /// Disk: time in which only the platter moved.
    pub rotational_wait: Span,
    /// Disk: pieces of the write cache written to the platters.
    pub destages: u64,
    /// Disk: bytes of these pieces.
    pub destaged_bytes: Bytes,
    /// Solid-state drive: pages read from dies for the host, for readahead and for collection.
    pub nand_reads: u64,
    /// Solid-state drive: programs of all planes of a die.
    pub nand_programs: u64,
    /// Solid-state drive: bytes of these programs: the host's, moved ones, padding and map.
    pub nand_bytes: Bytes,
    /// Solid-state drive: bytes of the host in these programs.
    pub nand_host_bytes: Bytes,
    /// Solid-state drive: bytes in these programs that collection moved.
    pub nand_moved_bytes: Bytes,
    /// Solid-state drive: bytes of padding in these programs.
    pub nand_padding_bytes: Bytes,
    /// Solid-state drive: bytes of the map in these programs.
    pub nand_map_bytes: Bytes,
    /// Solid-state drive: blocks erased, all planes of a die.
    pub erases: u64,
}

impl Counters {
    /// Bytes programmed per programmed byte of the host; `None` before the first.
    #[must_use]
    pub fn write_amplification(&self) -> Option<f64> {
        (self.nand_host_bytes.0 > 0)
            .then(|| self.nand_bytes.0 as f64 / self.nand_host_bytes.0 as f64)
    }
}
