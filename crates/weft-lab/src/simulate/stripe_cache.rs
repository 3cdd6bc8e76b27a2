//! Stripe cache of a simulated volume: its memory, which is made equal when settings are compared.
//!
//! `stripe_cache_size` counts stripes, so an equal number takes sixteen times as much memory with
//! stripes of 64 KiB as with 4 KiB. A comparison of stripe sizes with equal numbers of stripes
//! would compare amounts of memory. [`Volume::set_cache_memory`] therefore sets the number of
//! stripes that fits a given memory.
//!
//! Source   reference.md: `stripe_cache_bytes`, `stripe_cache_size`

use serde::{Deserialize, Serialize};
use weft_engine::knobs::{STRIPES_MAX, STRIPES_MIN, StripeSize};
use weft_units::{Bytes, FRAME_BYTES};

use super::Volume;

/// Size of a stripe cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StripeCache {
    /// Number of stripes.
    pub stripes: u32,
    /// Memory of these stripes.
    #[serde(with = "Number")]
    pub bytes: Bytes,
}

/// Form of [`Bytes`] in JSON: a number.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Bytes")]
struct Number(u64);

impl Volume {
    /// Stripe cache of the volume; `None` for a level without parity, which has none.
    #[must_use]
    pub fn stripe_cache(&self) -> Option<StripeCache> {
        self.level.filter(|level| level.has_parity()).map(|_| {
            let stripes = self.knobs.cache_stripes(self.stripe_frames());
            StripeCache { stripes, bytes: Bytes(u64::from(stripes) * self.stripe_bytes()) }
        })
    }

    /// Memory that the knobs set aside for the stripe cache, whether the level has one or not.
    #[must_use]
    pub fn cache_memory(&self) -> Bytes {
        if self.counts_bytes() {
            return self.knobs.stripe_cache_bytes;
        }
        Bytes(u64::from(self.knobs.stripe_cache_size) * self.stripe_bytes())
    }

    /// Gives the stripe cache this memory, or as close to it as the ranges of the knobs allow: by
    /// `stripe_cache_bytes` with `stripe_size=auto`, by `stripe_cache_size` otherwise.
    pub fn set_cache_memory(&mut self, memory: Bytes) {
        let (knob, most, least) = if self.counts_bytes() {
            ("stripe_cache_bytes", memory.0, BYTES_MIN)
        } else {
            let stripes = memory.0 / self.stripe_bytes();
            ("stripe_cache_size", stripes.min(STRIPES_MAX.into()), STRIPES_MIN.into())
        };
        if let Ok(knob) = self.knobs.parse(knob, &most.max(least).to_string()) {
            self.knobs.set(knob);
        }
    }

    /// Whether `stripe_cache_bytes`, not `stripe_cache_size`, determines the size of the stripe
    /// cache.
    fn counts_bytes(&self) -> bool {
        self.knobs.stripe_size == StripeSize::AUTO && self.knobs.stripe_cache_bytes > Bytes::ZERO
    }

    fn stripe_frames(&self) -> u32 {
        let members = u16::try_from(self.members.len()).unwrap_or(u16::MAX);
        self.knobs.stripe_size.stripe_frames(members, self.chunk)
    }

    fn stripe_bytes(&self) -> u64 {
        u64::from(self.stripe_frames().max(1)) * FRAME_BYTES
    }
}

/// Lower end of the range of `stripe_cache_bytes`, in bytes.
///
/// Source   the table of knobs; a test compares them
const BYTES_MIN: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::CostTable;
    use weft_engine::knobs::Knobs;
    use weft_engine::page_cache::Kernel;
    use weft_ondisk::Level;

    fn volume(members: usize, stripe_size: &str) -> Volume {
        let mut volume = Volume {
            level: Some(Level::Raid5),
            members: Volume::members(&["null".to_owned()], members).unwrap(),
            chunk: Bytes::kib(64),
            member_size: None,
            knobs: Knobs::default(),
            write_back: None,
            sync: None,
            costs: CostTable::of_argument("zero").unwrap(),
            memory: Bytes::mib(64),
            kernel: Kernel::default(),
            cpus: 1,
            faults: Vec::new(),
            seed: 1,
        };
        volume.knobs.set(volume.knobs.parse("stripe_size", stripe_size).unwrap());
        volume
    }

    #[test]
    fn stripes_of_any_size_get_the_memory_that_is_asked_for() {
        let eight = Bytes::mib(8);
        assert_eq!(volume(6, "auto").cache_memory(), eight);
        for (members, size, stripes) in [
            (6, "auto", 341),
            (6, "4096", 341),
            (6, "65536", 21),
            (4, "65536", 32),
            (4, "4096", 512),
        ] {
            let mut of = volume(members, size);
            of.set_cache_memory(eight);
            let cache = of.stripe_cache().unwrap();
            assert_eq!(cache.stripes, stripes, "{members} {size}");
            assert!(cache.bytes <= eight && cache.bytes.0 > 7 << 20, "{members} {size}: {cache:?}");
        }
        // Without `set_cache_memory`, stripes of 64 KiB take sixteen times the memory of stripes of
        // 4 KiB.
        let as_is = ["4096", "65536"].map(|size| volume(4, size).stripe_cache().unwrap());
        assert_eq!(as_is[1].bytes.0, 16 * as_is[0].bytes.0);
        // The stripe size is at most the chunk size.
        let small = Volume { chunk: Bytes::kib(16), ..volume(4, "65536") };
        assert_eq!(small.cache_memory(), Bytes::mib(16));
    }

    #[test]
    fn a_memory_beyond_the_ranges_gets_their_ends() {
        let mut most = volume(3, "4096");
        most.set_cache_memory(Bytes(1 << 40));
        assert_eq!(most.knobs.stripe_cache_size, 32_768);
        let mut least = volume(12, "65536");
        least.set_cache_memory(Bytes::mib(8));
        assert_eq!(least.stripe_cache().unwrap().stripes, 17, "md has no smaller one");
        let mut bytes = volume(3, "auto");
        bytes.set_cache_memory(Bytes(4096));
        assert_eq!(bytes.knobs.stripe_cache_bytes, Bytes::mib(1));
        for (name, below) in [("stripe_cache_size", "16"), ("stripe_cache_bytes", "1048575")] {
            assert!(most.knobs.parse(name, below).is_err(), "{name}");
        }
        assert!(most.knobs.parse("stripe_cache_size", "32769").is_err());
        assert_eq!(Volume { level: Some(Level::Raid1), ..least }.stripe_cache(), None);
    }
}
