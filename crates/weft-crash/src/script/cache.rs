//! Generator of the configuration of the write-back cache: its size, which is small, and its
//! throttle.

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

/// Chooses how writers are throttled: by weft's own policy or by that of one of the kernels.
pub(super) fn draw_throttle(rng: &mut Rng, options: &mut Options) {
    set_throttle(rng.index(Kernel::NAMES.len() + 1), options);
}

/// Adds a write-back cache in a sixth of the seeds, with each throttle in turn. The seed decides
/// this without a random draw, so that scripts of all other seeds stay as they were before caches
/// were added.
pub(super) fn add_by_seed(options: &mut Options, seed: u64) {
    let of_cache = (seed / 6) as usize;
    if seed % 6 == 4 {
        options.write_back = Some(of_pages(PAGES[of_cache % PAGES.len()]));
        set_throttle(of_cache / 3 % (Kernel::NAMES.len() + 1), options);
    }
}

fn of_pages(pages: u64) -> WriteBackConfig {
    WriteBackConfig::of(Bytes::kib(4 * pages))
}

/// Sets the throttle of writers to that of the kernel with this index in [`Kernel::NAMES`], or to
/// weft's own for the index after the last.
fn set_throttle(index: usize, options: &mut Options) {
    options.knobs.pool.throttle = Kernel::NAMES.get(index).map(|(_, kernel)| *kernel);
}
