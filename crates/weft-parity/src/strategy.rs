//! Strategy of the kernels: in which order strips are read, and how results are stored.
//!
//! Every strategy gives the same bytes. The fastest one depends on where the strips are and on the
//! maker of the CPU. Callers say where the strips are; the CPU is queried once.
//!
//! | Strips | AMD | other CPUs |
//! |---|---|---|
//! | in a cache, or not known ([`Strategy::for_cached`]) | swapped | in order |
//! | in no cache, with results not read soon ([`Strategy::for_cold`]) | by size | by size |
//!
//! # In a cache
//!
//! AMD's CPUs watch each load instruction, and prefetch once its addresses are a constant distance
//! apart. A kernel steps through the strips with one instruction, and the strips of a stripe often
//! lie at a constant distance. The CPU then prefetches the data at the same distance behind the
//! last strip, into the very lines of the first-level cache that the strips need. That halves the
//! rate: XOR 8+1 with strips of 64 KiB ran at 0.51 of ISA-L. (The loop of ISA-L steps from the last
//! strip to the first, and ISA-L loses up to half with strips placed in reverse.) This explanation
//! follows from the orders that were tried; there were no hardware counters to confirm it. If the
//! strips are read as 1, 0, 3, 2, 5, 4, no two consecutive distances are equal. A kernel for each
//! count of strips helps less: each of its loads steps through one strip, and prefetches beyond its
//! end (0.7 of ISA-L with strips of 16 KiB).
//!
//! Without this effect, wider columns are faster as long as the sums stay in registers: XOR 8+1
//! with 4, 16 and 64 KiB ran at 1.02, 0.95 and 0.94 of ISA-L with one vector of 64 bytes at a time,
//! at 1.11, 0.80 and 1.01 with eight, at 1.35, 1.07 and 1.00 with sixteen, and at 1.40, 1.09 and
//! 1.02 with twenty. AVX-512 therefore takes 20 vectors for P, and 12 for P and Q. In a page of 4
//! KiB, which is 64 vectors, either width leaves a rest of four.
//!
//! Source: an AMD EPYC of family 26 (Zen 5) with 1 MiB of L2; medians of 11 rounds in turns. Older
//! families have not been measured and get the same strategy. Intel's CPUs have been measured with
//! strips in order only, and keep that order. `weft-bench parity --strategy swapped` measures other
//! CPUs.
//!
//! # In no cache
//!
//! An ordinary store first reads the line that it changes, and evicts another line from the caches.
//! A streaming store (non-temporal, in Intel's words) does neither, and a streaming kernel
//! prefetches its sources. Streaming gives 1.1 to 1.4 times the rate if strips come from memory and
//! results leave for a device. It costs up to two thirds of the rate if strips are in a cache, or
//! if a CPU reads the results soon.

use std::fmt;

/// Order in which strips are read, and way in which results are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// Strips are read from first to last or from last to first, and results go into the caches.
    InOrder,
    /// Strips are swapped in pairs (1, 0, 3, 2, …) and read in wide columns; results go into the
    /// caches.
    ///
    /// Only some kernels have this variant: [`xor`](crate::Parity::xor) of every level except
    /// scalar, [`pq`](crate::Parity::pq) and [`recover_two`](crate::Parity::recover_two) of
    /// AVX-512. All others work as with [`Strategy::InOrder`].
    Swapped,
    /// Strips are read in order and prefetched, and results bypass the caches.
    ///
    /// Kernels without streaming stores (scalar, NEON) store through the caches and do not
    /// prefetch. Other kernels do the same if a result is not aligned to a vector: to 16, 32 or 64
    /// bytes, by level.
    Streaming,
}

impl Strategy {
    /// All strategies, for measurements and tests that try each of them.
    pub const ALL: [Self; 3] = [Self::InOrder, Self::Swapped, Self::Streaming];

    /// Name of the strategy for users: `in-order`, `swapped` or `streaming`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::InOrder => "in-order",
            Self::Swapped => "swapped",
            Self::Streaming => "streaming",
        }
    }

    /// The strategy with this [`name`](Self::name), `None` for any other text.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|strategy| strategy.name() == name)
    }

    /// Fastest strategy for strips that are in a cache, on a CPU of this maker.
    #[must_use]
    pub const fn for_cached(maker: Maker) -> Self {
        match maker {
            Maker::Amd => Self::Swapped,
            Maker::Other => Self::InOrder,
        }
    }

    /// Fastest strategy on a CPU of this maker if the strips are in no cache and no CPU reads the
    /// results soon.
    ///
    /// With long strips (16 KiB or more), streaming is faster; on AMD's CPUs only if there are
    /// fewer than eight strips per result, so that stores are a large part of the work. With short
    /// strips, most of the time is spent on the first lines of each strip, which are not
    /// prefetched. Streaming is then faster only if there are two results, because ordinary stores
    /// first read the lines that they change, and at most ten strips, because more would compete
    /// for prefetches.
    ///
    /// Shape    `sources` strips are read and `results` are written, of `strip_bytes` each
    /// Source   `weft-bench parity --only DRAM --strategy streaming`, and `in-order`: ratios to
    ///          ISA-L on an Intel Xeon with AVX-512: XOR 4+1 4K 1.20 and 1.24, 64K 1.20 and 0.97;
    ///          XOR 8+1 4K 1.06 and 1.09, 64K 1.09 and 0.98; P+Q 6+2 4K 1.17 and 0.99, 64K 1.35
    ///          and 1.03; P+Q 10+2 4K 1.20 and 1.07, 64K 1.29 and 1.15; P+Q 16+2 4K 1.03 and 1.12,
    ///          64K 1.20 and 1.10. On an AMD EPYC of family 26: XOR 4+1 4K 1.17 and 1.26, 64K 1.24
    ///          and 1.11; XOR 8+1 4K 1.10 and 1.19, 64K 0.94 and 1.12; P+Q 6+2 4K 1.35 and 1.24,
    ///          64K 1.13 and 1.05; P+Q 10+2 4K 1.43 and 1.39, 64K 1.09 and 0.99; P+Q 16+2 4K 1.12
    ///          and 1.24, 64K 1.24 and 1.32
    #[must_use]
    pub const fn for_cold(
        maker: Maker,
        sources: usize,
        results: usize,
        strip_bytes: usize,
    ) -> Self {
        let many_stores = match maker {
            Maker::Amd => sources < 8 * results,
            Maker::Other => true,
        };
        let long = strip_bytes >= 16 << 10 && many_stores;
        if long || (results > 1 && sources <= 10) { Self::Streaming } else { Self::InOrder }
    }

    /// Returns the strategy with the same order of reads that stores into the caches, for results
    /// that are read at once.
    pub(crate) const fn into_caches(self) -> Self {
        match self {
            Self::InOrder | Self::Streaming => Self::InOrder,
            Self::Swapped => Self::Swapped,
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Maker of the CPU, as far as a strategy depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Maker {
    /// AMD. Strips that are in a cache are read with [`Strategy::Swapped`] on its CPUs.
    Amd,
    /// Any other maker, or not known.
    Other,
}

impl Maker {
    /// Maker with this name of twelve bytes, in the form that an x86-64 CPU reports it.
    ///
    /// Source   AMD, "AMD64 Architecture Programmer's Manual", volume 3, CPUID function 0
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "only x86-64 asks"))]
    pub(crate) fn from_name(name: &[u8; 12]) -> Self {
        if name == b"AuthenticAMD" { Self::Amd } else { Self::Other }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cold_results_are_streamed_where_that_was_measured_to_gain() {
        let (in_order, streaming) = (Strategy::InOrder, Strategy::Streaming);
        for (sources, results, strip_bytes, amd, other) in [
            (4, 1, 4 << 10, in_order, in_order),
            (4, 1, 64 << 10, streaming, streaming),
            (8, 1, 64 << 10, in_order, streaming),
            (6, 2, 4 << 10, streaming, streaming),
            (16, 2, 4 << 10, in_order, in_order),
            (16, 2, 64 << 10, in_order, streaming),
        ] {
            for (maker, expected) in [(Maker::Amd, amd), (Maker::Other, other)] {
                let found = Strategy::for_cold(maker, sources, results, strip_bytes);
                assert_eq!(found, expected, "{maker:?}: {sources}+{results} {strip_bytes}");
            }
        }
    }

    #[test]
    fn cached_strips_are_swapped_on_the_cpus_of_one_maker() {
        assert_eq!(Strategy::for_cached(Maker::from_name(b"AuthenticAMD")), Strategy::Swapped);
        assert_eq!(Strategy::for_cached(Maker::from_name(b"GenuineIntel")), Strategy::InOrder);
        assert_eq!(Maker::detect(), Maker::detect());
    }

    #[test]
    fn each_strategy_is_found_by_its_name() {
        for strategy in Strategy::ALL {
            assert_eq!(Strategy::from_name(strategy.name()), Some(strategy));
            assert_eq!(strategy.to_string(), strategy.name());
        }
        assert_eq!(Strategy::from_name("fast"), None);
    }

    #[test]
    fn results_that_are_read_at_once_stay_in_the_caches() {
        let kept = Strategy::ALL.map(Strategy::into_caches);
        assert_eq!(kept, [Strategy::InOrder, Strategy::Swapped, Strategy::InOrder]);
    }
}
