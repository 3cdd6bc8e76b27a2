//! Generator of drains: an administrator requests that all dirty pages of the write-back cache are
//! written, while clients continue.
//!
//! A drain may come before any step, and often comes right before a process crash, which must not
//! lose any write that was acknowledged before the drain was requested. On RAID 6, and on mirrors
//! of three copies, the administrator also starts the action `correct` occasionally. The generator
//! has a random stream of its own.

use weft_engine::SyncAction;
use weft_units::rng::Rng;

use super::draw::Draw;
use super::rebuilds::write_below;
use super::{ScriptStep, cache};
use crate::options::Options;
use crate::volumes::ARRAY;

/// Adds a write-back cache and its throttle to the options of the array.
pub(super) fn draw(rng: &mut Rng, options: &mut Options) {
    options.write_back = Some(cache::draw(rng));
    cache::draw_throttle(rng, options);
}

impl Draw {
    /// Adds steps before `step`: often none, otherwise a drain, with or without writes around it.
    pub(super) fn before_with_drains(&mut self, step: ScriptStep, steps: &mut Vec<ScriptStep>) {
        let dies = matches!(step, ScriptStep::Kill);
        match self.drains.below(100) {
            0..=7 => self.drain(steps),
            8..=11 if !dies && self.profile.cuts > 0 => {
                self.drain(steps);
                steps.push(ScriptStep::Kill);
            }
            12 if self.options.parities() == 2 || self.options.copies() > 2 => {
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
