//! Stores of results: into the caches, or past them.
//!
//! An ordinary store first reads the line that it changes, and pushes something else out of the
//! caches. A streaming store (non-temporal, in Intel's words) does neither, and a streaming kernel
//! prefetches its sources. Where strips come from memory and results leave for a device
//! that is worth 1.1 to 1.4 times the rate. Where strips are in a cache, or a CPU reads the results
//! soon, it costs up to half of it. So a caller says which of the two it is, and this file what
//! follows.

/// Way in which results are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Store {
    /// Into the caches: right unless [`Store::for_cold`] says otherwise.
    #[default]
    Cached,
    /// Past the caches.
    Streaming,
}

impl Store {
    /// What is faster for strips of which no cache holds anything, and results that nobody on a CPU
    /// reads soon.
    ///
    /// Long strips gain always. With short ones the first lines of each strip, which nobody asked
    /// for ahead, are what is waited for: still a gain when two results would be read before they
    /// are written, and none for a single one or where more than ten strips compete for prefetches.
    ///
    /// Shape    `sources` strips are read and `results` are written, of `strip_bytes` each
    /// Source   `weft bench parity --only DRAM --store streaming`, and `cached`: ratios to ISA-L on
    ///          an Intel Xeon with AVX-512, streaming and cached: XOR 4+1 4K 1.20 and 1.24, 64K
    ///          1.20 and 0.97; XOR 8+1 4K 1.06 and 1.09, 64K 1.09 and 0.98; P+Q 6+2 4K 1.17 and
    ///          0.99, 64K 1.35 and 1.03; P+Q 10+2 4K 1.20 and 1.07, 64K 1.29 and 1.15; P+Q 16+2 4K
    ///          1.03 and 1.12, 64K 1.20 and 1.10
    #[must_use]
    pub const fn for_cold(sources: usize, results: usize, strip_bytes: usize) -> Self {
        let long = strip_bytes >= 16 << 10;
        if long || (results > 1 && sources <= 10) { Self::Streaming } else { Self::Cached }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_strips_are_streamed_only_where_two_results_gain() {
        for (sources, results, strip_bytes, expected) in [
            (4, 1, 4 << 10, Store::Cached),
            (4, 1, 64 << 10, Store::Streaming),
            (8, 1, 64 << 10, Store::Streaming),
            (6, 2, 4 << 10, Store::Streaming),
            (16, 2, 4 << 10, Store::Cached),
            (16, 2, 64 << 10, Store::Streaming),
        ] {
            let found = Store::for_cold(sources, results, strip_bytes);
            assert_eq!(found, expected, "{sources}+{results} {strip_bytes}");
        }
    }
}
