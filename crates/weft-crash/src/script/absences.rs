//! Generator of members that are absent at one start and are there again at the next.
//!
//! A superblock update is interrupted, and the array starts without a member that may have a newer
//! superblock than the others. Writes to the array without this member begin the next update, which
//! is interrupted too. At the next start the member is back, and its update count may equal that of
//! the others.

use super::ScriptStep;
use super::draw::Draw;
use crate::crash::CutMode;

impl Draw {
    /// Adds the steps of a member's absence, which precede the profile's other steps.
    pub(super) fn absences(&mut self, steps: &mut Vec<ScriptStep>) {
        // The first member is drawn often, because the assembly may prefer it among members with
        // equal update counts.
        let first = self.absences.percent(50);
        let disk = if first { 0 } else { self.absences.index(self.members) };
        if !self.may_hurt(disk) {
            return;
        }
        for _ in 0..1 + self.absences.below(2) {
            let sleep = self.absences.pick(&[1, 400, 400, 3500]);
            steps.extend([ScriptStep::Finish, ScriptStep::Sleep(sleep)]);
            self.writes(steps);
            // The requests that complete are a part of the superblock update, including flushes
            // that precede superblock writes on some members.
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
