//! Drawing of drains: an administrator has everything written that is dirty, while clients go on.
//!
//! A drain stands anywhere, and often right before the process dies: nothing that was acknowledged
//! before it was asked for may be gone then. RAID 6 is corrected now and then, too. Drawn from a
//! stream of its own.

use weft_engine::SyncAction;

use super::draw::Draw;
use super::rebuilds::write_below;
use super::{ScriptStep, cache};
use crate::options::Options;
use crate::rng::Rng;
use crate::world::ARRAY;

/// Gives the array that was drawn a write-back cache.
pub(super) fn draw(rng: &mut Rng, options: &mut Options) {
    options.write_back = Some(cache::draw(rng));
    cache::draw_throttle(rng, options);
}

impl Draw {
    /// A drain, of what was written just now or of whatever there is.
    pub(super) fn before_with_drains(&mut self, step: ScriptStep, steps: &mut Vec<ScriptStep>) {
        let dies = matches!(step, ScriptStep::Kill);
        match self.drains.below(100) {
            0..=7 => self.drain(steps),
            8..=11 if !dies && self.profile.cuts > 0 => {
                self.drain(steps);
                steps.push(ScriptStep::Kill);
            }
            12 if self.options.parities() == 2 => {
                steps.push(ScriptStep::Sync(SyncAction::Correct));
            }
            _ if dies && self.drains.percent(60) => self.drain(steps),
            _ => {}
        }
    }

    fn drain(&mut self, steps: &mut Vec<ScriptStep>) {
        for _ in 0..self.drains.below(4) {
            steps.push(write_below(&mut self.drains, self.size, self.size));
        }
        if self.drains.percent(40) {
            steps.push(ScriptStep::Steps(self.drains.below(12) as u32));
        }
        steps.push(ScriptStep::Drain(ARRAY));
        match self.drains.below(10) {
            0..=4 => steps.push(ScriptStep::Finish),
            5..=7 => {
                steps.push(write_below(&mut self.drains, self.size, self.size));
                steps.push(ScriptStep::Steps(self.drains.below(40) as u32));
            }
            _ => {}
        }
    }
}
