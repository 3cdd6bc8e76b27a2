//! Generator of scripts in which members are replaced while they work.
//!
//! Clients write while the member is copied to a spare. During the copy, sectors of the member are
//! unreadable, or the member, its replacement or another member fails. Then the array is stopped,
//! the power is cut or the process crashes. The generator has a random stream of its own.

use weft_engine::Fault;
use weft_units::rng::Rng;

use super::draw::Draw;
use super::{Profile, ScriptStep, rebuilds};
use crate::crash::CutMode;
use crate::faults::Planned;
use crate::options::Options;

/// Makes the array long enough that a cut can hit the middle of a copy. Returns the random stream
/// for the steps.
pub(super) fn draw(seed: u64, profile: Profile, options: &mut Options) -> Rng {
    let mut rng = Rng::new(seed ^ 0x2e91);
    if profile.replaces {
        options.full_stripes = options.full_stripes.max(rng.pick(&[12, 40, 60]));
    }
    rng
}

impl Draw {
    /// Adds the steps of the replacements, which precede the profile's other steps.
    pub(super) fn replaces(&mut self, steps: &mut Vec<ScriptStep>) {
        if self.profile.cuts == 0 {
            // There is no write-back cache, because it would keep the pages of stripes that cannot
            // be written, and the array would refuse to stop.
            self.options.write_back = None;
        }
        self.some_writes(1, 8, steps);
        steps.push(ScriptStep::Finish);
        if self.replaces.percent(40) {
            steps.push(ScriptStep::Sleep(self.replaces.pick(&[1, 400, 3500])));
        }
        for _ in 0..1 + self.replaces.below(3) {
            let disk = self.replaces.index(self.members);
            if !self.may_hurt(disk) {
                continue;
            }
            // A spare of the array is used, unless there is none or a disk is added for the
            // replacement.
            let mut spare = self.members;
            if self.spares == 0 || self.replaces.percent(30) {
                steps.extend([ScriptStep::Add, ScriptStep::Finish]);
                spare = self.members + self.spares + self.options.disks_beside() + self.added;
                self.added += 1;
            }
            if self.profile.cuts == 0 || self.replaces.percent(30) {
                self.cannot_be_read(disk, steps);
            }
            steps.push(ScriptStep::Replace(disk));
            self.some_writes(0, 3, steps);
            steps.push(ScriptStep::Steps(self.replaces.below(40) as u32));
            if self.profile.cuts > 0 {
                self.meets_a_fault(disk, spare, steps);
            } else {
                // The replacement records the lost blocks before any client reads them.
                steps.push(ScriptStep::Sleep(3500));
            }
            self.some_writes(0, 4, steps);
            steps.push(ScriptStep::Steps(self.replaces.below(60) as u32));
            self.ends(steps);
            self.some_writes(0, 3, steps);
            if self.replaces.percent(60) {
                steps.push(ScriptStep::Finish);
            }
        }
    }

    fn some_writes(&mut self, least: u64, most: u64, steps: &mut Vec<ScriptStep>) {
        for _ in 0..least + self.replaces.below(most - least + 1) {
            steps.push(rebuilds::write_below(&mut self.replaces, self.size, self.size));
        }
    }

    /// Adds steps that make sectors of the member `disk` unreadable. In scripts without power cuts,
    /// the same sectors may become unreadable on so many other members that their data is lost,
    /// which the replacement then records as bad blocks.
    fn cannot_be_read(&mut self, disk: usize, steps: &mut Vec<ScriptStep>) {
        for _ in 0..1 + self.replaces.below(3) {
            let column = self.replaces.below(self.columns);
            let with_others = self.profile.cuts == 0 && self.replaces.percent(50);
            // A sector is not unreadable for good if other members lose it too: newly written data
            // would then be on the replacement only, which would record it as lost because no other
            // member supplies it.
            let dead = !with_others && self.replaces.percent(40);
            steps.push(ScriptStep::BadRead { disk, column, dead });
            let mut others: Vec<usize> = (0..self.members).filter(|it| *it != disk).collect();
            let has_parity = self.options.level.has_parity();
            let most = if has_parity { self.parities } else { others.len() };
            if !with_others {
                continue;
            }
            for _ in 0..most.min(others.len()) {
                let disk = others.swap_remove(self.replaces.index(others.len()));
                steps.push(ScriptStep::BadRead { disk, column, dead });
            }
        }
    }

    /// Adds, at random, a fault while the member `disk` is replaced by the disk `spare`: of either,
    /// or of another member.
    fn meets_a_fault(&mut self, disk: usize, spare: usize, steps: &mut Vec<ScriptStep>) {
        let after = self.replaces.below(12);
        let how = Planned::Once(Fault::Io);
        match self.replaces.below(12) {
            0..=1 => steps.push(ScriptStep::FailDisk(disk)),
            2 => steps.push(ScriptStep::FailDisk(spare)),
            3 => steps.push(ScriptStep::FailOperation { disk: spare, after, how }),
            4 => steps.push(ScriptStep::FailOperation { disk, after, how }),
            5 => {
                let other = self.replaces.index(self.members);
                if self.may_hurt(other) {
                    steps.push(ScriptStep::FailDisk(other));
                }
            }
            6 => steps.push(ScriptStep::Stall(self.replaces.pick(&[disk, spare]))),
            _ => {}
        }
    }

    /// Adds, at random, steps that end the engine: a power cut, a process crash or a stop.
    fn ends(&mut self, steps: &mut Vec<ScriptStep>) {
        let modes = [CutMode::Subset, CutMode::Nothing, CutMode::Everything, CutMode::Ordered];
        let mode = self.replaces.pick(&modes);
        let cuts = self.profile.cuts > 0;
        match self.replaces.below(10) {
            0..=5 if !cuts => steps.push(ScriptStep::Finish),
            0..=3 => steps.push(ScriptStep::Cut(mode)),
            4 => steps.push(ScriptStep::Kill),
            5 => {
                let (after, stop) = (self.replaces.below(40) as u32, self.replaces.percent(50));
                steps.push(ScriptStep::CutAgain { mode, after, stop });
            }
            6 => steps.extend([ScriptStep::Stop, ScriptStep::Stopped]),
            _ => {}
        }
    }
}
