//! Generator of scripts that rebuild two members at once, with a cut or crash in the middle.
//!
//! One member is replaced and partly rebuilt, then a second one is replaced, so that their recovery
//! offsets differ. Clients write meanwhile, mostly below the larger offset, and the power is cut or
//! the process crashes. Members have more recovery units than may be in flight at once, so that in
//! the middle of a recovery some units are done, some are in flight and some are left. The
//! generator has a random stream of its own.
//!
//! If the array has a bitmap, in half of the scripts one of the two members is re-added by the
//! bitmap, while the other one is fresh and has to be copied as a whole.

use weft_engine::SyncAction;
use weft_engine::{Flags, RequestOp};
use weft_ondisk::Redundancy;
use weft_units::Sectors;
use weft_units::rng::Rng;

use super::draw::Draw;
use super::{ScriptStep, levels, straight};
use crate::crash::CutMode;
use crate::options::Options;
use crate::volumes::ARRAY;

/// Chooses an array that survives the loss of two members: RAID 1 of three or more, RAID 10 or RAID
/// 6.
pub(super) fn draw(rng: &mut Rng, seed: u64, options: &mut Options) {
    options.level = rng.pick(&levels::LOSE_TWO);
    (options.layout, options.more_data, options.spares) = (None, Vec::new(), 0);
    let units = UNDER_WAY_MAX + 4 + rng.below(28);
    options.full_stripes = units;
    match options.level.row().redundancy {
        Redundancy::Mirror => {
            options.members = rng.pick(&[3, 3, 3, 3, 4]);
            // A unit of the recovery has at least 128 sectors.
            options.chunk = Sectors(128);
        }
        Redundancy::Copies => {
            options.chunk = options.chunk.min(Sectors(16));
            options.members = rng.pick(&[4, 4, 4, 4, 5, 6]);
            options.layout = Some(straight::draw_mirrors(rng, options));
        }
        Redundancy::None | Redundancy::Parity(_) => {
            options.chunk = options.chunk.min(Sectors(16));
            options.members = rng.pick(&[4, 5, 6]);
        }
    }
    options.rotational = straight::some_members(&mut Rng::new(seed ^ 0x707a), options.members);
}

impl Draw {
    /// Adds the steps of the rebuilds, which precede the profile's other steps.
    pub(super) fn rebuilds(&mut self, steps: &mut Vec<ScriptStep>) {
        for _ in 0..4 + self.rebuilds.below(6) {
            steps.push(self.write_below(self.size));
        }
        steps.push(ScriptStep::Finish);
        if self.rebuilds.percent(40) {
            steps.push(ScriptStep::Sleep(self.rebuilds.pick(&[1, 400, 3500])));
        }
        let Some((first, second)) = self.two_members() else { return };
        // Number of recovery units that the first new member has when the second member fails, in
        // most scripts.
        let units = self.options.full_stripes;
        let done = units * (20 + self.rebuilds.below(75)) / 100;
        if self.profile.bitmaps && self.rebuilds.percent(50) {
            self.is_re_added_beside_a_fresh_one(first, second, steps);
        } else {
            self.are_replaced(first, second, done, steps);
        }
        self.end_in_the_middle(done, steps);
    }

    /// Adds steps that replace a member, which is rebuilt in part, and then another one. `done` is
    /// the number of recovery units that the first new member has when the second member fails.
    fn are_replaced(
        &mut self,
        first: usize,
        second: usize,
        done: u64,
        steps: &mut Vec<ScriptStep>,
    ) {
        self.is_replaced(first, steps);
        let completions = done * (3 + self.rebuilds.below(18)) / 10;
        self.some_completions(completions, steps);
        // A running recovery continues without the second member; a recovery that starts anew
        // includes both members.
        let way = self.rebuilds.below(10);
        if way < 7 {
            steps.extend([ScriptStep::Sync(SyncAction::Frozen), ScriptStep::Finish]);
        }
        self.is_replaced(second, steps);
        match way {
            0..=5 => steps.extend([ScriptStep::Finish, ScriptStep::Sync(SyncAction::Idle)]),
            7 | 8 => steps.push(ScriptStep::Sync(SyncAction::Idle)),
            // The recovery stays frozen until the next engine starts it.
            _ => {}
        }
    }

    /// Adds steps in which two members leave and miss writes. Then one of them is re-added by the
    /// bitmap, and a blank disk takes the slot of the other.
    fn is_re_added_beside_a_fresh_one(
        &mut self,
        first: usize,
        second: usize,
        steps: &mut Vec<ScriptStep>,
    ) {
        // After this pause, only the bits of later writes are set.
        if self.rebuilds.percent(70) {
            steps.extend([ScriptStep::Finish, ScriptStep::Sleep(3500)]);
        }
        for disk in [first, second] {
            steps.extend([ScriptStep::FailDisk(disk), ScriptStep::Finish]);
            steps.push(ScriptStep::Remove(disk));
            for _ in 0..1 + self.rebuilds.below(3) {
                steps.push(self.write_below(self.size));
            }
        }
        steps.push(ScriptStep::Finish);
        let frozen = self.rebuilds.percent(75);
        if frozen {
            steps.extend([ScriptStep::Sync(SyncAction::Frozen), ScriptStep::Finish]);
        }
        let between = self.rebuilds.below(8) as u32;
        steps.extend([ScriptStep::ReAdd(first), ScriptStep::Steps(between), ScriptStep::Add]);
        self.added += 1;
        if frozen {
            let action = self.rebuilds.pick(&[SyncAction::Recover, SyncAction::Idle]);
            steps.extend([ScriptStep::Finish, ScriptStep::Sync(action)]);
        }
    }

    /// Adds steps that end the rebuilds in their middle: writes below the offset of `done` recovery
    /// units, which the first rebuild has reached, and then a power cut or process crash.
    fn end_in_the_middle(&mut self, done: u64, steps: &mut Vec<ScriptStep>) {
        let units = self.options.full_stripes;
        let rest = self.rebuilds.below(units / 4);
        self.some_completions(rest, steps);
        for _ in 0..1 + self.rebuilds.below(2) {
            let below = (self.size * done / units).max(4096);
            for _ in 0..4 + self.rebuilds.below(12) {
                steps.push(self.write_below(below));
            }
            let after = self.rebuilds.below(24) as u32;
            steps.push(ScriptStep::Steps(after));
            let modes = [CutMode::Subset, CutMode::Subset, CutMode::Nothing, CutMode::Everything];
            steps.push(match self.rebuilds.percent(50) {
                true => ScriptStep::Kill,
                false => ScriptStep::Cut(self.rebuilds.pick(&modes)),
            });
            let after = self.rebuilds.below(units);
            self.some_completions(after, steps);
        }
    }

    /// Draws two members; `None` if the array cannot lose both.
    fn two_members(&mut self) -> Option<(usize, usize)> {
        let first = self.rebuilds.index(self.members);
        let second = self.rebuilds.index(self.members);
        let two = first != second && self.may_hurt(first) && self.may_hurt(second);
        two.then_some((first, second))
    }

    /// Adds steps that fail and remove a member and add a blank disk, which takes its slot.
    fn is_replaced(&mut self, disk: usize, steps: &mut Vec<ScriptStep>) {
        let few = |rng: &mut Rng| ScriptStep::Steps(rng.below(6) as u32);
        steps.extend([ScriptStep::FailDisk(disk), few(&mut self.rebuilds)]);
        steps.push(ScriptStep::Remove(disk));
        steps.extend([ScriptStep::Add, few(&mut self.rebuilds)]);
        self.added += 1;
    }

    /// Adds steps in which about `count` requests complete, with client writes in between.
    fn some_completions(&mut self, count: u64, steps: &mut Vec<ScriptStep>) {
        let parts = 1 + self.rebuilds.below(3);
        for _ in 0..parts {
            steps.push(ScriptStep::Steps((count / parts) as u32));
            if self.rebuilds.percent(50) {
                steps.push(self.write_below(self.size));
            }
        }
    }

    fn write_below(&mut self, below: u64) -> ScriptStep {
        write_below(&mut self.rebuilds, below, self.size)
    }
}

/// A write of whole blocks that begins before the byte offset `below`, for an array of `size`
/// bytes.
pub(super) fn write_below(rng: &mut Rng, below: u64, size: u64) -> ScriptStep {
    let start = rng.below(below) / 4096 * 4096;
    let len = (4096 * (1 + rng.below(4))).min(size - start);
    let flags = Flags { sync: true, fua: rng.percent(15), ..Flags::NONE };
    let client = 1 + rng.below(3) as u32;
    ScriptStep::Ask { volume: ARRAY, client, op: RequestOp::Write, start, len, flags }
}

/// Largest number of recovery units of a mirror that are in flight at once.
pub(super) const UNDER_WAY_MAX: u64 = 32;
