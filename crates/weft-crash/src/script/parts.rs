//! Generator of runs of dirty pages that the write-back cache writes in several parts, one of which
//! fails.
//!
//! A run of dirty pages is split if a FUA write replaces one of its pages on the volume while the
//! run waits for this page. Here a flush follows the FUA write at once. One of the parts then
//! fails: the bare volume's disk fails a single operation, or a member of the array has no space.
//! The generator has a random stream of its own.

use weft_engine::{Fault, Flags, RequestOp};
use weft_units::VolumeId;
use weft_units::rng::Rng;

use super::draw::Draw;
use super::{Profile, ScriptStep, cache};
use crate::faults::Planned;
use crate::options::Options;
use crate::volumes::{ARRAY, BARE};
use crate::world::BARE_BYTES;

/// Adds a bare volume and a write-back cache to the options, if the profile has such runs. Returns
/// the random stream of the generator.
pub(super) fn draw(seed: u64, profile: Profile, options: &mut Options) -> Rng {
    let mut rng = Rng::new(seed ^ 0x9a27);
    if profile.parts {
        options.bare = true;
        options.write_back = Some(cache::draw(&mut rng));
        cache::draw_throttle(&mut rng, options);
    }
    rng
}

impl Draw {
    /// Adds, at random, a run of several parts on the bare volume or on the array.
    pub(super) fn before_with_parts(&mut self, steps: &mut Vec<ScriptStep>) {
        if !self.parts.percent(15) {
            return;
        }
        // Pages that failed before are written again while no fault is planned, so that no earlier
        // failure delays the run.
        steps.extend([ScriptStep::Finish, ScriptStep::Sleep(1100)]);
        if self.parts.percent(60) {
            let disk = self.members + self.options.spares;
            let fault = self.parts.pick(&[Fault::Io, Fault::NoSpace]);
            let (after, how) = (self.parts.below(4), Planned::Once(fault));
            let fails = ScriptStep::FailOperation { disk, after, how };
            self.in_parts(BARE, BARE_BYTES.start, BARE_BYTES.end - BARE_BYTES.start, fails, steps);
        } else {
            let disk = self.parts.index(self.members);
            if self.may_hurt(disk) {
                self.in_parts(ARRAY, 0, self.size, ScriptStep::NoSpace(disk), steps);
            }
        }
        steps.push(ScriptStep::Finish);
    }

    /// Adds a write of a few adjacent pages, which the cache keeps, a FUA write of a page in their
    /// middle, so that the run of dirty pages has several parts, and a flush. `fails` is the step
    /// that makes a part of the run fail.
    fn in_parts(
        &mut self,
        volume: VolumeId,
        first: u64,
        size: u64,
        fails: ScriptStep,
        steps: &mut Vec<ScriptStep>,
    ) {
        let rng = &mut self.parts;
        let pages = 3 + rng.below(5);
        let start = first + rng.below(size / PAGE - pages) * PAGE;
        let replaced = start + (1 + rng.below(pages - 2)) * PAGE;
        let client = 1 + rng.below(3) as u32;
        let ask = |op, start, len, flags| ScriptStep::Ask { volume, client, op, start, len, flags };
        let (kept, fua) = (Flags::NONE, Flags { sync: true, fua: true, ..Flags::NONE });
        steps.extend([ask(RequestOp::Write, start, pages * PAGE, kept), ScriptStep::Finish]);
        let early = rng.percent(50);
        steps.extend(early.then_some(fails));
        steps.push(ask(RequestOp::Write, replaced, PAGE, fua));
        steps.push(ask(RequestOp::Flush, 0, 0, Flags::NONE));
        if !early {
            steps.extend([ScriptStep::Steps(rng.below(8) as u32), fails]);
        }
        steps.push(ScriptStep::Steps(rng.below(16) as u32));
        if rng.percent(50) {
            steps.push(ask(RequestOp::Read, start, pages * PAGE, kept));
        }
    }
}

const PAGE: u64 = 4096;
