//! Generator of members that are absent at one start and are there again at the next.
//!
//! A superblock update is cut off in the middle, and the array starts without a member that may
//! have been ahead of the others. Without it, writes begin the next update, which is cut off too.
//! At the next start the member is back, with an update count that may equal that of the others.

use super::ScriptStep;
use super::draw::Draw;
use crate::crash::CutMode;

impl Draw {
    /// Adds the steps of a member's absence, which precede the profile's other steps.
    pub(super) fn absences(&mut self, steps: &mut Vec<ScriptStep>) {
        // Of members with equal update counts, the assembly may prefer the first.
        let first = self.absences.percent(50);
        let disk = if first { 0 } else { self.absences.index(self.members) };
        if !self.may_hurt(disk) {
            return;
        }
        for _ in 0..1 + self.absences.below(2) {
            let sleep = self.absences.pick(&[1, 400, 400, 3500]);
            steps.extend([ScriptStep::Finish, ScriptStep::Sleep(sleep)]);
            self.writes(steps);
            // Some of the superblocks are written, and on some members a flush comes before that.
            let some = 3 * self.members as u64;
            steps.extend([ScriptStep::Steps(self.absences.below(some) as u32)]);
            steps.push(ScriptStep::Away(disk));
            self.cut_off(steps);
            if self.absences.percent(30) {
                let sleep = self.absences.pick(&[1, 400, 3500]);
                steps.extend([ScriptStep::Finish, ScriptStep::Sleep(sleep)]);
            }
            self.writes(steps);
            steps.push(match self.absences.percent(50) {
                true => ScriptStep::Finish,
                false => ScriptStep::Steps(self.absences.below(16) as u32),
            });
            self.cut_off(steps);
        }
    }

    /// Adds, at random, a step after which a disk is absent at the next start.
    pub(super) fn may_be_absent(&mut self, steps: &mut Vec<ScriptStep>) {
        let disk = self.absences.index(self.members);
        if self.absences.percent(40) && self.may_hurt(disk) {
            steps.push(ScriptStep::Away(disk));
        }
    }

    fn writes(&mut self, steps: &mut Vec<ScriptStep>) {
        for _ in 0..1 + self.absences.below(3) {
            steps.push(super::rebuilds::write_below(&mut self.absences, self.size, self.size));
        }
    }

    fn cut_off(&mut self, steps: &mut Vec<ScriptStep>) {
        let modes = [CutMode::Subset, CutMode::Subset, CutMode::Nothing, CutMode::Everything];
        steps.push(match self.absences.percent(10) {
            true => ScriptStep::Kill,
            false => ScriptStep::Cut(self.absences.pick(&modes)),
        });
    }
}
