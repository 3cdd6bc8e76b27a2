//! Rows of the kernel's recording, test by test: which rows each test of `traces.rs` replays.
//!
//! A list is what a test must have replayed when it ends, and all lists together, with the rows that are
//! skipped or different for a reason, are the file: a row that no test replays, or that two do, is found.

/// One write of each shape.
pub(crate) const ONE_WRITE: &str = "\
    raid5-3-1of2 raid5-3-2of2 raid5-3-512 raid5-4-1of3 raid5-4-2of3 raid5-4-3of3 raid5-4-512 \
    raid5-5-1of4 raid5-5-2of4 raid5-5-3of4 raid5-5-4of4 raid5-5-512 raid5-6-1of5 raid5-6-2of5 \
    raid5-6-3of5 raid5-6-4of5 raid5-6-5of5 raid5-6-512 raid5-7-1of6 raid5-7-2of6 raid5-7-3of6 \
    raid5-7-4of6 raid5-7-5of6 raid5-7-6of6 raid5-7-512 raid5-8-1of7 raid5-8-2of7 raid5-8-3of7 \
    raid5-8-4of7 raid5-8-5of7 raid5-8-6of7 raid5-8-7of7 raid5-8-512 raid4-4-1of3 raid4-4-2of3 \
    raid4-4-3of3 raid4-4-512 raid6-4-1of2 raid6-4-2of2 raid6-4-512 raid6-5-1of3 raid6-5-2of3 \
    raid6-5-3of3 raid6-5-512 raid6-6-1of4 raid6-6-2of4 raid6-6-3of4 raid6-6-4of4 raid6-6-512 \
    raid6-7-1of5 raid6-7-2of5 raid6-7-3of5 raid6-7-4of5 raid6-7-5of5 raid6-7-512 raid6-8-1of6 \
    raid6-8-2of6 raid6-8-3of6 raid6-8-4of6 raid6-8-5of6 raid6-8-6of6 raid6-8-512 raid6-9-1of7 \
    raid6-9-2of7 raid6-9-3of7 raid6-9-4of7 raid6-9-5of7 raid6-9-6of7 raid6-9-7of7 raid6-9-512";

/// Chunks, rows, the warm cache, rmw_level, reads.
pub(crate) const CHUNKS: &str = "\
    raid5-4-c64-1of3 raid5-4-c64-2of3 raid5-4-c64-3of3 raid5-5-c64-1of4 raid5-5-c64-2of4 \
    raid5-5-c64-3of4 raid5-5-c64-4of4 raid6-6-c64-1of4 raid6-6-c64-2of4 raid6-6-c64-3of4 \
    raid6-6-c64-4of4 raid5-4-row1-4k raid5-4-row2-4k raid5-4-row3-4k raid5-4-warm-1 \
    raid5-4-warm-2 raid5-4-warm-3 raid5-4-warm-4 raid5-4-8k-at-60k raid5-4-8k-at-188k \
    raid5-4-6k-at-1k raid5-4-384k raid5-4-c64-1m-1 raid5-4-c64-1m-2 raid5-4-c64-1m-3 \
    raid5-4-c512-1m-1 raid5-4-c512-1m-2 raid5-4-c512-1m-3 raid5-4-rmwlevel2-4096 \
    raid5-4-rmwlevel2-512 raid5-4-rmwlevel0-4096 raid5-4-rmwlevel0-512 raid5-5-rmwlevel0-4096 \
    raid5-5-rmwlevel0-512 raid5-5-rmwlevel2-4096 raid5-5-rmwlevel2-512 raid6-6-rmwlevel2-4096 \
    raid6-6-rmwlevel2-512 raid6-7-rmwlevel0-4096 raid6-7-rmwlevel0-512 raid5-4-r512 raid5-4-r1m \
    raid5-4-r8k-at-60k";

/// skip_copy.
pub(crate) const SKIP_COPY: &str = "\
    raid5-4-skipcopy-1 raid5-4-skipcopy-2";

/// Random writes.
pub(crate) const RANDOM: &str = "\
    raid5-4-lcg-768 raid5-4-lcg-2048 raid5-4-lcg-6144 raid5-5-lcg-6144 raid6-6-lcg-768 \
    raid6-6-lcg-6144";

/// Writes that nobody waits for.
pub(crate) const NOSYNC: &str = "\
    raid5-4-nosync-4k raid5-4-nosync-1k raid5-4-nosync-10 raid5-4-nosync-192k \
    raid5-4-nosync-3m-threshold0 raid5-4-nosync-2m-threshold0 raid5-4-nosync-3m-threshold1 \
    raid5-4-nosync-2m-threshold1 raid5-4-nosync-3m-threshold8 raid5-4-nosync-2m-threshold8";

/// Arrays with members missing.
pub(crate) const DEGRADED: &str = "\
    raid4-4-without-d0-4k raid4-4-without-d0-512 raid4-4-without-d0-row raid4-4-without-d0-r4k \
    raid4-4-without-d0-r4k-again raid4-4-without-d0-r4k-d1 raid4-4-without-d0-r512 \
    raid4-4-without-P-4k raid4-4-without-P-512 raid4-4-without-P-row raid4-4-without-P-r4k \
    raid4-4-without-P-r4k-again raid4-4-without-P-r4k-d1 raid4-4-without-P-r512 \
    raid5-4-without-d0-4k raid5-4-without-d0-512 raid5-4-without-d0-row raid5-4-without-d0-r4k \
    raid5-4-without-d0-r4k-again raid5-4-without-d0-r4k-d1 raid5-4-without-d0-r512 \
    raid5-4-without-d1-4k raid5-4-without-d1-512 raid5-4-without-d1-row raid5-4-without-d1-r4k \
    raid5-4-without-d1-r4k-again raid5-4-without-d1-r4k-d1 raid5-4-without-d1-r512 \
    raid5-4-without-P-4k raid5-4-without-P-512 raid5-4-without-P-row raid5-4-without-P-r4k \
    raid5-4-without-P-r4k-again raid5-4-without-P-r4k-d1 raid5-4-without-P-r512 \
    raid6-6-without-d0-4k raid6-6-without-d0-512 raid6-6-without-d0-row raid6-6-without-d0-r4k \
    raid6-6-without-d0-r4k-again raid6-6-without-d0-r4k-d1 raid6-6-without-d0-r512 \
    raid6-6-without-d1-4k raid6-6-without-d1-512 raid6-6-without-d1-row raid6-6-without-d1-r4k \
    raid6-6-without-d1-r4k-again raid6-6-without-d1-r4k-d1 raid6-6-without-d1-r512 \
    raid6-6-without-P-4k raid6-6-without-P-512 raid6-6-without-P-row raid6-6-without-P-r4k \
    raid6-6-without-P-r4k-again raid6-6-without-P-r4k-d1 raid6-6-without-P-r512 \
    raid6-6-without-Q-4k raid6-6-without-Q-512 raid6-6-without-Q-row raid6-6-without-Q-r4k \
    raid6-6-without-Q-r4k-again raid6-6-without-Q-r4k-d1 raid6-6-without-Q-r512 \
    raid6-6-without-d0+d1-4k raid6-6-without-d0+d1-512 raid6-6-without-d0+d1-row \
    raid6-6-without-d0+d1-r4k raid6-6-without-d0+d1-r4k-again raid6-6-without-d0+d1-r4k-d1 \
    raid6-6-without-d0+d1-r512 raid6-6-without-d1+d2-4k raid6-6-without-d1+d2-512 \
    raid6-6-without-d1+d2-row raid6-6-without-d1+d2-r4k raid6-6-without-d1+d2-r4k-again \
    raid6-6-without-d1+d2-r4k-d1 raid6-6-without-d1+d2-r512 raid6-6-without-d0+P-4k \
    raid6-6-without-d0+P-512 raid6-6-without-d0+P-row raid6-6-without-d0+P-r4k \
    raid6-6-without-d0+P-r4k-again raid6-6-without-d0+P-r4k-d1 raid6-6-without-d0+P-r512 \
    raid6-6-without-d0+Q-4k raid6-6-without-d0+Q-512 raid6-6-without-d0+Q-row \
    raid6-6-without-d0+Q-r4k raid6-6-without-d0+Q-r4k-again raid6-6-without-d0+Q-r4k-d1 \
    raid6-6-without-d0+Q-r512 raid6-6-without-d1+P-4k raid6-6-without-d1+P-512 \
    raid6-6-without-d1+P-row raid6-6-without-d1+P-r4k raid6-6-without-d1+P-r4k-again \
    raid6-6-without-d1+P-r4k-d1 raid6-6-without-d1+P-r512 raid6-6-without-P+Q-4k \
    raid6-6-without-P+Q-512 raid6-6-without-P+Q-row raid6-6-without-P+Q-r4k \
    raid6-6-without-P+Q-r4k-again raid6-6-without-P+Q-r4k-d1 raid6-6-without-P+Q-r512";

/// Flushes and FUA.
pub(crate) const DURABLE: &str = "\
    raid5-4-flush raid5-4-fua raid5-4-fua-row raid5-4-flush-in-write raid5-4-without-d2-flush";

/// Superblocks.
pub(crate) const SUPERBLOCKS: &str = "\
    raid5-4-safemode";

/// Read errors.
pub(crate) const READ_ERRORS: &str = "\
    raid5-4-read-error raid6-6-read-error";

/// Check, repair and rebuild.
pub(crate) const SYNCS: &str = "\
    raid5-4-check raid5-4-check-again raid5-4-check-bad raid5-4-repair-bad \
    raid5-4-check-repaired raid5-4-repair-P raid6-5-check raid6-5-check-again raid6-5-check-bad \
    raid6-5-repair-bad raid6-5-check-repaired raid6-5-repair-P raid6-5-repair-Q raid6-6-check \
    raid6-6-check-again raid6-6-check-bad raid6-6-repair-bad raid6-6-check-repaired \
    raid6-6-repair-P raid6-6-repair-Q raid5-4-rebuild-1 raid5-4-rebuild-3 raid6-6-rebuild-1 \
    raid6-6-rebuild-5 raid6-6-rebuild-1+2 raid6-6-rebuild-1+5";

/// Beyond the resync point.
pub(crate) const UNSYNCED: &str = "\
    raid5-5-unsynced-4096 raid5-5-unsynced-512 raid5-7-unsynced-4096 raid5-7-unsynced-512";

/// With members missing, beyond the resync point and below it.
pub(crate) const UNSYNCED_DEGRADED: &str = "\
    raid5-4-unsynced-without-d0-beyond-4096 raid5-4-unsynced-without-d0-beyond-4096-d1 \
    raid5-4-unsynced-without-d0-beyond-512 raid5-4-unsynced-without-d0-beyond-512-d1 \
    raid5-4-unsynced-without-d0-beyond-row raid5-4-unsynced-without-d0-below-4096 \
    raid5-4-unsynced-without-d0-below-4096-d1 raid5-4-unsynced-without-d0-below-512 \
    raid5-4-unsynced-without-d0-below-512-d1 raid5-4-unsynced-without-d0-below-row \
    raid5-4-unsynced-without-d1-beyond-4096 raid5-4-unsynced-without-d1-beyond-4096-d1 \
    raid5-4-unsynced-without-d1-beyond-512 raid5-4-unsynced-without-d1-beyond-512-d1 \
    raid5-4-unsynced-without-d1-beyond-row raid5-4-unsynced-without-d1-below-4096 \
    raid5-4-unsynced-without-d1-below-4096-d1 raid5-4-unsynced-without-d1-below-512 \
    raid5-4-unsynced-without-d1-below-512-d1 raid5-4-unsynced-without-d1-below-row \
    raid5-4-unsynced-without-P-beyond-4096 raid5-4-unsynced-without-P-beyond-4096-d1 \
    raid5-4-unsynced-without-P-beyond-512 raid5-4-unsynced-without-P-beyond-512-d1 \
    raid5-4-unsynced-without-P-beyond-row raid5-4-unsynced-without-P-below-4096 \
    raid5-4-unsynced-without-P-below-4096-d1 raid5-4-unsynced-without-P-below-512 \
    raid5-4-unsynced-without-P-below-512-d1 raid5-4-unsynced-without-P-below-row \
    raid5-5-unsynced-without-d0-beyond-4096 raid5-5-unsynced-without-d0-beyond-4096-d1 \
    raid5-5-unsynced-without-d0-beyond-512 raid5-5-unsynced-without-d0-beyond-512-d1 \
    raid5-5-unsynced-without-d0-beyond-row raid5-5-unsynced-without-d0-below-4096 \
    raid5-5-unsynced-without-d0-below-4096-d1 raid5-5-unsynced-without-d0-below-512 \
    raid5-5-unsynced-without-d0-below-512-d1 raid5-5-unsynced-without-d0-below-row \
    raid5-5-unsynced-without-d1-beyond-4096 raid5-5-unsynced-without-d1-beyond-4096-d1 \
    raid5-5-unsynced-without-d1-beyond-512 raid5-5-unsynced-without-d1-beyond-512-d1 \
    raid5-5-unsynced-without-d1-beyond-row raid5-5-unsynced-without-d1-below-4096 \
    raid5-5-unsynced-without-d1-below-4096-d1 raid5-5-unsynced-without-d1-below-512 \
    raid5-5-unsynced-without-d1-below-512-d1 raid5-5-unsynced-without-d1-below-row \
    raid5-5-unsynced-without-P-beyond-4096 raid5-5-unsynced-without-P-beyond-4096-d1 \
    raid5-5-unsynced-without-P-beyond-512 raid5-5-unsynced-without-P-beyond-512-d1 \
    raid5-5-unsynced-without-P-beyond-row raid5-5-unsynced-without-P-below-4096 \
    raid5-5-unsynced-without-P-below-4096-d1 raid5-5-unsynced-without-P-below-512 \
    raid5-5-unsynced-without-P-below-512-d1 raid5-5-unsynced-without-P-below-row \
    raid6-6-unsynced-without-d0-beyond-4096 raid6-6-unsynced-without-d0-beyond-4096-d1 \
    raid6-6-unsynced-without-d0-beyond-512 raid6-6-unsynced-without-d0-beyond-512-d1 \
    raid6-6-unsynced-without-d0-beyond-row raid6-6-unsynced-without-d0-below-4096 \
    raid6-6-unsynced-without-d0-below-4096-d1 raid6-6-unsynced-without-d0-below-512 \
    raid6-6-unsynced-without-d0-below-512-d1 raid6-6-unsynced-without-d0-below-row \
    raid6-6-unsynced-without-d1-beyond-4096 raid6-6-unsynced-without-d1-beyond-4096-d1 \
    raid6-6-unsynced-without-d1-beyond-512 raid6-6-unsynced-without-d1-beyond-512-d1 \
    raid6-6-unsynced-without-d1-beyond-row raid6-6-unsynced-without-d1-below-4096 \
    raid6-6-unsynced-without-d1-below-4096-d1 raid6-6-unsynced-without-d1-below-512 \
    raid6-6-unsynced-without-d1-below-512-d1 raid6-6-unsynced-without-d1-below-row \
    raid6-6-unsynced-without-P-beyond-4096 raid6-6-unsynced-without-P-beyond-4096-d1 \
    raid6-6-unsynced-without-P-beyond-512 raid6-6-unsynced-without-P-beyond-512-d1 \
    raid6-6-unsynced-without-P-beyond-row raid6-6-unsynced-without-P-below-4096 \
    raid6-6-unsynced-without-P-below-4096-d1 raid6-6-unsynced-without-P-below-512 \
    raid6-6-unsynced-without-P-below-512-d1 raid6-6-unsynced-without-P-below-row \
    raid6-6-unsynced-without-Q-beyond-4096 raid6-6-unsynced-without-Q-beyond-4096-d1 \
    raid6-6-unsynced-without-Q-beyond-512 raid6-6-unsynced-without-Q-beyond-512-d1 \
    raid6-6-unsynced-without-Q-beyond-row raid6-6-unsynced-without-Q-below-4096 \
    raid6-6-unsynced-without-Q-below-4096-d1 raid6-6-unsynced-without-Q-below-512 \
    raid6-6-unsynced-without-Q-below-512-d1 raid6-6-unsynced-without-Q-below-row \
    raid6-6-unsynced-without-d0+d1-beyond-4096 raid6-6-unsynced-without-d0+d1-beyond-4096-d1 \
    raid6-6-unsynced-without-d0+d1-beyond-512 raid6-6-unsynced-without-d0+d1-beyond-512-d1 \
    raid6-6-unsynced-without-d0+d1-beyond-row raid6-6-unsynced-without-d0+d1-below-4096 \
    raid6-6-unsynced-without-d0+d1-below-4096-d1 raid6-6-unsynced-without-d0+d1-below-512 \
    raid6-6-unsynced-without-d0+d1-below-512-d1 raid6-6-unsynced-without-d0+d1-below-row \
    raid6-6-unsynced-without-d1+d2-beyond-4096 raid6-6-unsynced-without-d1+d2-beyond-4096-d1 \
    raid6-6-unsynced-without-d1+d2-beyond-512 raid6-6-unsynced-without-d1+d2-beyond-512-d1 \
    raid6-6-unsynced-without-d1+d2-beyond-row raid6-6-unsynced-without-d1+d2-below-4096 \
    raid6-6-unsynced-without-d1+d2-below-4096-d1 raid6-6-unsynced-without-d1+d2-below-512 \
    raid6-6-unsynced-without-d1+d2-below-512-d1 raid6-6-unsynced-without-d1+d2-below-row \
    raid6-6-unsynced-without-d0+P-beyond-4096 raid6-6-unsynced-without-d0+P-beyond-4096-d1 \
    raid6-6-unsynced-without-d0+P-beyond-512 raid6-6-unsynced-without-d0+P-beyond-512-d1 \
    raid6-6-unsynced-without-d0+P-beyond-row raid6-6-unsynced-without-d0+P-below-4096 \
    raid6-6-unsynced-without-d0+P-below-4096-d1 raid6-6-unsynced-without-d0+P-below-512 \
    raid6-6-unsynced-without-d0+P-below-512-d1 raid6-6-unsynced-without-d0+P-below-row \
    raid6-6-unsynced-without-d0+Q-beyond-4096 raid6-6-unsynced-without-d0+Q-beyond-4096-d1 \
    raid6-6-unsynced-without-d0+Q-beyond-512 raid6-6-unsynced-without-d0+Q-beyond-512-d1 \
    raid6-6-unsynced-without-d0+Q-beyond-row raid6-6-unsynced-without-d0+Q-below-4096 \
    raid6-6-unsynced-without-d0+Q-below-4096-d1 raid6-6-unsynced-without-d0+Q-below-512 \
    raid6-6-unsynced-without-d0+Q-below-512-d1 raid6-6-unsynced-without-d0+Q-below-row \
    raid6-6-unsynced-without-d1+P-beyond-4096 raid6-6-unsynced-without-d1+P-beyond-4096-d1 \
    raid6-6-unsynced-without-d1+P-beyond-512 raid6-6-unsynced-without-d1+P-beyond-512-d1 \
    raid6-6-unsynced-without-d1+P-beyond-row raid6-6-unsynced-without-d1+P-below-4096 \
    raid6-6-unsynced-without-d1+P-below-4096-d1 raid6-6-unsynced-without-d1+P-below-512 \
    raid6-6-unsynced-without-d1+P-below-512-d1 raid6-6-unsynced-without-d1+P-below-row \
    raid6-6-unsynced-without-d1+Q-beyond-4096 raid6-6-unsynced-without-d1+Q-beyond-4096-d1 \
    raid6-6-unsynced-without-d1+Q-beyond-512 raid6-6-unsynced-without-d1+Q-beyond-512-d1 \
    raid6-6-unsynced-without-d1+Q-beyond-row raid6-6-unsynced-without-d1+Q-below-4096 \
    raid6-6-unsynced-without-d1+Q-below-4096-d1 raid6-6-unsynced-without-d1+Q-below-512 \
    raid6-6-unsynced-without-d1+Q-below-512-d1 raid6-6-unsynced-without-d1+Q-below-row \
    raid6-6-unsynced-without-P+Q-beyond-4096 raid6-6-unsynced-without-P+Q-beyond-4096-d1 \
    raid6-6-unsynced-without-P+Q-beyond-512 raid6-6-unsynced-without-P+Q-beyond-512-d1 \
    raid6-6-unsynced-without-P+Q-beyond-row raid6-6-unsynced-without-P+Q-below-4096 \
    raid6-6-unsynced-without-P+Q-below-4096-d1 raid6-6-unsynced-without-P+Q-below-512 \
    raid6-6-unsynced-without-P+Q-below-512-d1 raid6-6-unsynced-without-P+Q-below-row \
    raid5-5-unsynced-sector4096-without-d1-beyond-4096 \
    raid5-5-unsynced-sector4096-without-d1-beyond-4096-d1 \
    raid5-5-unsynced-sector4096-without-d1-beyond-row \
    raid5-5-unsynced-sector4096-without-d1-below-4096 \
    raid5-5-unsynced-sector4096-without-d1-below-4096-d1 \
    raid5-5-unsynced-sector4096-without-d1-below-row \
    raid6-6-unsynced-sector4096-without-d1-beyond-4096 \
    raid6-6-unsynced-sector4096-without-d1-beyond-4096-d1 \
    raid6-6-unsynced-sector4096-without-d1-beyond-row \
    raid6-6-unsynced-sector4096-without-d1-below-4096 \
    raid6-6-unsynced-sector4096-without-d1-below-4096-d1 \
    raid6-6-unsynced-sector4096-without-d1-below-row";

/// All of them.
pub(crate) const ALL: [&str; 12] = [
    ONE_WRITE,
    CHUNKS,
    SKIP_COPY,
    RANDOM,
    NOSYNC,
    DEGRADED,
    DURABLE,
    SUPERBLOCKS,
    READ_ERRORS,
    SYNCS,
    UNSYNCED,
    UNSYNCED_DEGRADED,
];
