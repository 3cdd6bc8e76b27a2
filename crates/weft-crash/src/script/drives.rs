//! Generator of drives: models of disks determine when requests are done.
//!
//! In half of the scripts all drives are of one model, otherwise they differ. While a slow drive
//! works at its requests, those of other drives complete, timers fire and clients continue. A drive
//! without a volatile cache gets no flushes. The generator has a random stream of its own.

use weft_sim::drive::models;
use weft_units::rng::Rng;

use super::{cache, mixed};
use crate::options::Options;

/// Adds drives and a flush rule to the options. In some of the scripts, also adds a write-back
/// cache and clients of different classes, or removes the bitmap.
pub(super) fn draw(rng: &mut Rng, options: &mut Options) {
    let names: Vec<&'static str> = models().iter().map(|(name, _)| *name).collect();
    let count = if rng.percent(50) { 1 } else { 2 + rng.index(options.members) };
    options.drives = (0..count).map(|_| rng.pick(&names)).collect();
    options.write_back = cache::draw_in(40, rng);
    cache::draw_throttle(rng, options);
    mixed::draw_flush_rule(rng, options);
    options.classes = rng.percent(30);
    if rng.percent(40) {
        options.bitmap = None;
    }
}
