//! Generator of scripts that rebuild a member while others cannot be read everywhere.
//!
//! Some sectors become unreadable on so many of the remaining members that the stripe loses a
//! block. A member is then replaced. The recovery of its slot records bad blocks and ends; clients
//! write over some of them; the array is stopped and started, and members return. The generator has
//! a random stream of its own.

use weft_engine::{Flags, RequestOp, SyncAction};

use super::draw::Draw;
use super::{ScriptStep, rebuilds};
use crate::volumes::ARRAY;

impl Draw {
    /// Adds the steps of the rebuild, which precede the profile's other steps.
    pub(super) fn bad_blocks(&mut self, steps: &mut Vec<ScriptStep>) {
        // There is no write-back cache, because it would keep the pages of stripes that cannot be
        // written, and the array would refuse to stop.
        self.options.write_back = None;
        // Only written content can be lost.
        let filled = self.size.min(FILLED_MAX);
        for start in (0..filled).step_by(65_536) {
            let (op, flags, len) = (RequestOp::Write, Flags::NONE, (filled - start).min(65_536));
            let client = 1 + self.bad.below(3) as u32;
            steps.push(ScriptStep::Ask { volume: ARRAY, client, op, start, len, flags });
        }
        steps.push(ScriptStep::Finish);
        // A new engine starts with an empty stripe cache.
        if self.bad.percent(80) {
            steps.extend([ScriptStep::Stop, ScriptStep::Stopped]);
        }
        let replaced = self.bad.index(self.members);
        for _ in 0..1 + self.bad.below(4) {
            self.loses_a_block(replaced, steps);
        }
        steps.extend([ScriptStep::FailDisk(replaced), ScriptStep::Finish]);
        steps.push(ScriptStep::Remove(replaced));
        if self.profile.bitmaps && self.bad.percent(50) {
            steps.push(ScriptStep::ReAdd(replaced));
        }
        steps.push(ScriptStep::Add);
        self.added += 1;
        if self.bad.percent(30) {
            steps.push(ScriptStep::Steps(self.bad.below(60) as u32));
        } else {
            steps.push(ScriptStep::Finish);
        }
        for _ in 0..self.bad.below(4) {
            let action = self.bad.pick(&[SyncAction::Check, SyncAction::Repair]);
            steps.push(match self.bad.below(4) {
                0 => ScriptStep::Sync(action),
                1 => self.read_much(),
                _ => rebuilds::write_below(&mut self.bad, self.size, self.size),
            });
        }
        if self.bad.percent(70) {
            steps.extend([ScriptStep::Finish, ScriptStep::Stop, ScriptStep::Stopped]);
            steps.extend([self.read_much(), ScriptStep::Finish]);
        }
    }

    /// Adds steps that make a sector, or a whole block, unreadable on so many members that the
    /// stripe lacks data once the member `replaced` is gone too.
    fn loses_a_block(&mut self, replaced: usize, steps: &mut Vec<ScriptStep>) {
        let mut others: Vec<usize> = (0..self.members).filter(|disk| *disk != replaced).collect();
        let lost = if self.options.level.has_parity() { self.parities } else { others.len() };
        let filled = self.columns * self.size.min(FILLED_MAX) / self.size;
        let (block, dead) = (self.bad.below(filled.div_ceil(8)) * 8, self.bad.percent(40));
        let sectors = self.bad.pick(&[1, 1, 8]);
        let first = block + self.bad.below(9 - sectors);
        for _ in 0..lost.min(others.len()) {
            let disk = others.swap_remove(self.bad.index(others.len()));
            let bad = |column| ScriptStep::BadRead { disk, column, dead };
            steps.extend((first..first + sectors).map(bad));
        }
    }

    fn read_much(&mut self) -> ScriptStep {
        let (op, flags, len) = (RequestOp::Read, Flags::NONE, self.size.min(65_536));
        let start = self.bad.below((self.size - len) / 4096 + 1) * 4096;
        ScriptStep::Ask { volume: ARRAY, client: 1, op, start, len, flags }
    }
}

/// Number of bytes at the start of the array that are written before the rebuild.
const FILLED_MAX: u64 = 512 << 10;
