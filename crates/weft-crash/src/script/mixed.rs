//! Generator of features that no other profile combines.
//!
//! The features are bitmaps beside schedulers and caches, changes of every knob at run time, every
//! flush rule, knobs of a single member's queue, bitmaps that are added and removed, far sets of
//! RAID 10, clients of different classes, and mirrors so long that a power cut can hit the middle
//! of a recovery.
//!
//! The generator has a random stream of its own and runs after all others, so that seeds of other
//! profiles keep their meaning.

use weft_engine::knobs::FlushRule;
use weft_ondisk::Redundancy;
use weft_units::rng::Rng;

use super::draw::Draw;
use super::rebuilds::UNDER_WAY_MAX;
use super::straight::is_possible;
use super::{ScriptStep, cache, lists};
use crate::options::Options;

/// Adds features to the drawn options that no other profile combines.
pub(super) fn draw(rng: &mut Rng, options: &mut Options) {
    options.write_back = cache::draw_in(50, rng);
    cache::draw_throttle(rng, options);
    draw_flush_rule(rng, options);
    options.classes = rng.percent(60);
    let redundancy = options.level.row().redundancy;
    if redundancy == Redundancy::Copies && rng.percent(50) {
        let sets: Vec<u32> = FAR_SETS.into_iter().filter(|it| is_possible(*it, options)).collect();
        options.layout = if sets.is_empty() { options.layout } else { Some(rng.pick(&sets)) };
    }
    if options.level.has_copies() && rng.percent(12) {
        // A unit of a resync is a chunk, or 128 sectors.
        let unit = if redundancy == Redundancy::Mirror { 128 } else { options.chunk.0.min(128) };
        let units = UNDER_WAY_MAX + 4 + rng.below(20);
        options.full_stripes = (units * unit).div_ceil(options.chunk.0);
    }
    if rng.percent(25) {
        options.bitmap = None;
    }
}

/// Chooses the flush rule (knob `flush_batch`), which decides how flushes of clients become flushes
/// of members.
pub(super) fn draw_flush_rule(rng: &mut Rng, options: &mut Options) {
    options.knobs.flush_batch = rng.pick(&FlushRule::ALL);
}

impl Draw {
    /// Adds, at random, a step that sets a knob of all queues or of one, or that adds or removes a
    /// bitmap.
    pub(super) fn before_mixed(&mut self, steps: &mut Vec<ScriptStep>) {
        let rng = &mut self.mixed;
        match rng.below(100) {
            0..=9 => {
                let (name, values) = rng.pick(&lists::MIXED);
                steps.push(ScriptStep::Set(name, rng.pick(values)));
            }
            10..=12 => {
                let (name, values) = rng.pick(&lists::ONE_QUEUE);
                let disk = rng.index(self.members);
                steps.push(ScriptStep::SetQueue(disk, name, rng.pick(values)));
            }
            13 | 14 => {
                if rng.percent(70) {
                    steps.push(ScriptStep::Finish);
                }
                let chunk = rng.pick(&[None, Some(4096), Some(16384)]);
                steps.push(ScriptStep::Bitmap(chunk));
            }
            _ => {}
        }
    }
}

/// RAID 10 layouts with far copies or offset copies in sets of members.
const FAR_SETS: [u32; 3] = [0x2_0201, 0x4_0201, 0x5_0201];
