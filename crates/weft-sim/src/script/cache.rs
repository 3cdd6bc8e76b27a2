//! Drawing of the write-back cache, which is small, and of its throttle.

use weft_engine::WriteBackConfig;
use weft_engine::page_cache::Kernel;
use weft_units::Bytes;

use crate::options::Options;
use crate::rng::Rng;

/// Pages of dirty data that a cache takes.
const PAGES: [u64; 3] = [8, 32, 128];

/// A write-back cache.
pub(super) fn draw(rng: &mut Rng) -> WriteBackConfig {
    of_pages(rng.pick(&PAGES))
}

/// A write-back cache in so many of a hundred scripts.
pub(super) fn draw_in(percent: u64, rng: &mut Rng) -> Option<WriteBackConfig> {
    let config = draw(rng);
    rng.percent(percent).then_some(config)
}

/// weft's own throttle, or one of the kernel's.
pub(super) fn draw_throttle(rng: &mut Rng, options: &mut Options) {
    set_throttle(rng.index(Kernel::NAMES.len() + 1), options);
}

/// A write-back cache in a sixth of the seeds, with each throttle in turn. The seed says which, so
/// that scripts of the other seeds are those they were before caches were drawn.
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

/// The index behind the last kernel is weft's own.
fn set_throttle(index: usize, options: &mut Options) {
    options.knobs.pool.throttle = Kernel::NAMES.get(index).map(|(_, kernel)| *kernel);
}
