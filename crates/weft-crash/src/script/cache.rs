//! Generator of the configuration of the write-back cache: a small size, and its throttle.

use weft_engine::WriteBackConfig;
use weft_engine::page_cache::Kernel;
use weft_units::Bytes;
use weft_units::rng::Rng;

use crate::options::Options;

/// Sizes of caches, in pages of dirty data.
const PAGES: [u64; 3] = [8, 32, 128];

/// A write-back cache of random size.
pub(super) fn draw(rng: &mut Rng) -> WriteBackConfig {
    of_pages(rng.pick(&PAGES))
}

/// A write-back cache of random size in `percent` of the scripts; `None` in all other scripts.
pub(super) fn draw_in(percent: u64, rng: &mut Rng) -> Option<WriteBackConfig> {
    let config = draw(rng);
    rng.percent(percent).then_some(config)
}

/// Chooses how writers are throttled: by weft's own policy, or as in one of several kernel
/// versions.
pub(super) fn draw_throttle(rng: &mut Rng, options: &mut Options) {
    // The index after the last kernel's is weft's own policy.
    let kernel = Kernel::NAMES.get(rng.index(Kernel::NAMES.len() + 1));
    options.knobs.pool.throttle = kernel.map(|(_, kernel)| *kernel);
}

/// Adds a write-back cache and its throttle in a sixth of the scripts. The random stream is
/// separate, so that the cache of a script does not depend on other draws.
pub(super) fn add_to_some(options: &mut Options) {
    let mut rng = Rng::new(options.seed ^ 0xcac4);
    if rng.below(6) == 0 {
        options.write_back = Some(draw(&mut rng));
        draw_throttle(&mut rng, options);
    }
}

fn of_pages(pages: u64) -> WriteBackConfig {
    WriteBackConfig::of(Bytes::kib(4 * pages))
}

#[cfg(test)]
mod tests {
    use super::super::{Profile, Script};

    #[test]
    fn a_cache_is_in_a_sixth_of_the_scripts_of_every_remainder_of_the_seed() {
        let mut cached = [0; 6];
        for seed in 0..1200 {
            let script = Script::generate(seed, Profile::CUTS);
            cached[(seed % 6) as usize] += u32::from(script.options.write_back.is_some());
        }
        assert!(cached.iter().all(|count| (15..=60).contains(count)), "{cached:?}");
    }
}
