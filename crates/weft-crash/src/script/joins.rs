//! Generator of members that join during a superblock update, soon followed by a power cut or
//! process crash.
//!
//! A member leaves and some time passes, so that the array is marked clean and bits of the bitmap
//! are cleared. Writes start the next superblock update. After some of its requests have completed,
//! a member is added, re-added or returned. After some more requests, the power is cut or the
//! process crashes.

use super::ScriptStep;
use super::draw::Draw;
use crate::crash::CutMode;

impl Draw {
    /// Adds the steps of members that join, which precede the profile's other steps.
    pub(super) fn joins(&mut self, steps: &mut Vec<ScriptStep>) {
        let disk = self.joins.index(self.members);
        if !self.may_hurt(disk) {
            return;
        }
        steps.extend([self.write_to_join(), ScriptStep::Finish, ScriptStep::Sleep(3500)]);
        steps.extend([ScriptStep::FailDisk(disk), ScriptStep::Finish, ScriptStep::Remove(disk)]);
        for _ in 0..1 + self.joins.below(3) {
            steps.extend([self.write_to_join(), ScriptStep::Finish]);
            let sleep = self.joins.pick(&[1, 400, 3500, 3500]);
            steps.extend([ScriptStep::Sleep(sleep), self.write_to_join(), self.write_to_join()]);
            steps.push(ScriptStep::Steps(self.joins.below(10) as u32));
            steps.push(match self.joins.below(3) {
                0 if self.added < 2 => {
                    self.added += 1;
                    ScriptStep::Add
                }
                1 => ScriptStep::Return(disk),
                _ => ScriptStep::ReAdd(disk),
            });
            steps.push(ScriptStep::Steps(self.joins.below(24) as u32));
            let modes = [CutMode::Subset, CutMode::Nothing, CutMode::Everything, CutMode::Ordered];
            steps.push(match self.joins.percent(20) {
                true => ScriptStep::Kill,
                false => ScriptStep::Cut(self.joins.pick(&modes)),
            });
        }
    }

    fn write_to_join(&mut self) -> ScriptStep {
        super::rebuilds::write_below(&mut self.joins, self.size, self.size)
    }
}
