//! Generator of a bare volume beside the array: its clients' requests and its disk's failures.
//!
//! The clients of the array also use the bare volume, so that both volumes share credit and frames,
//! in addition to the write-back cache. In a third of the scripts requests of the disk fail
//! occasionally, which must not affect the array. The generator has a random stream of its own.
//!
//! A second array in place of the bare volume is drawn in the same way, except that in every script
//! requests of its first member may fail.

use weft_engine::{Fault, Flags, RequestOp};
use weft_units::rng::Rng;

use super::draw::Draw;
use super::{Profile, ScriptStep, cache, mixed};
use crate::faults::Planned;
use crate::options::Options;
use crate::volumes::BARE;
use crate::world::BARE_BYTES;

/// Adds a bare volume or a second array to the options, with a write-back cache in most scripts.
/// Also chooses the throttle, the flush rule and the classes of clients.
pub(super) fn draw(rng: &mut Rng, profile: Profile, options: &mut Options) {
    options.bare = profile.bare;
    options.write_back = cache::draw_in(60, rng);
    cache::draw_throttle(rng, options);
    mixed::draw_flush_rule(rng, options);
    options.classes = rng.percent(30);
    if profile.two_arrays {
        options.beside = rng.pick(&[2, 2, 3]);
    }
}

impl Draw {
    /// Adds steps, at random: requests of the bare volume, a drain of its dirty pages from the
    /// write-back cache, or a fault of its disk.
    pub(super) fn before_with_bare(&mut self, steps: &mut Vec<ScriptStep>) {
        let disk = self.members + self.options.spares;
        match self.bare.below(100) {
            0..=49 => {
                for _ in 0..1 + self.bare.below(3) {
                    let step = self.ask_bare();
                    steps.push(step);
                }
            }
            50..=53 => steps.push(ScriptStep::Drain(BARE)),
            54..=56 if !self.options.bare || self.options.seed.is_multiple_of(3) => {
                // A second array never lacks space, because it would refuse writes and could not be
                // stopped.
                let third = if self.options.bare { Fault::NoSpace } else { Fault::Gone };
                let fault = self.bare.pick(&[Fault::Io, Fault::Io, third]);
                let (after, how) = (self.bare.below(6), Planned::Once(fault));
                steps.push(ScriptStep::FailOperation { disk, after, how });
            }
            57 if self.options.bare && self.options.seed.is_multiple_of(9) => {
                let (after, how) = (self.bare.below(6), Planned::Gone);
                steps.push(ScriptStep::FailOperation { disk, after, how });
            }
            _ => {}
        }
    }

    fn ask_bare(&mut self) -> ScriptStep {
        let rng = &mut self.bare;
        let op = match rng.below(100) {
            0..=49 => RequestOp::Write,
            50..=74 => RequestOp::Read,
            75..=89 => RequestOp::Flush,
            90..=94 => RequestOp::Trim,
            _ => RequestOp::WriteZeroes,
        };
        let client = 1 + rng.below(3) as u32;
        // Requests are confined to a few places, so that they overlap.
        let block = u64::from(self.options.logical_block);
        let unit = rng.pick(&[block, 4096, 4096]);
        let most = rng.pick(&[1, 2, 8, 16]);
        let places = rng.pick(&[16, 16, 96]);
        let start = BARE_BYTES.start + rng.below(places) * 4096 + rng.below(4096 / unit) * unit;
        let len = (1 + rng.below(most)) * unit;
        let stores = matches!(op, RequestOp::Write | RequestOp::WriteZeroes);
        let flags = Flags {
            sync: rng.percent(60),
            fua: stores && rng.percent(15),
            preflush: stores && rng.percent(8),
            discard: op == RequestOp::WriteZeroes && rng.percent(30),
            ahead: op == RequestOp::Read && rng.percent(5),
            ..Flags::NONE
        };
        let (start, len) = if op == RequestOp::Flush { (0, 0) } else { (start, len) };
        ScriptStep::Ask { volume: BARE, client, op, start, len, flags }
    }
}
