//! Generator of features that no other profile combines.
//!
//! The features are bitmaps beside schedulers and caches, every knob at run time, every flush rule,
//! knobs of one member's queue, bitmaps that are added and removed, far sets, clients of different
//! classes, and mirrors that are long enough for a recovery to have a middle.
//!
//! The generator has a random stream of its own and runs after all others, so that seeds of other
//! profiles keep their meaning.

use weft_engine::layout::mirrors::Mirrors;
use weft_ondisk::{Level, layout_id};
use weft_units::rng::Rng;

use super::draw::Draw;
use super::rebuilds::UNDER_WAY_MAX;
use super::{ScriptStep, cache};
use crate::options::Options;

/// Changes the drawn array.
pub(super) fn draw(rng: &mut Rng, options: &mut Options) {
    options.write_back = cache::draw_in(50, rng);
    cache::draw_throttle(rng, options);
    draw_flush_rule(rng, options);
    options.classes = rng.percent(60);
    if options.level == Level::Raid10 && rng.percent(50) {
        let sets: Vec<u32> = FAR_SETS.into_iter().filter(|it| is_possible(*it, options)).collect();
        options.layout = if sets.is_empty() { options.layout } else { Some(rng.pick(&sets)) };
    }
    if matches!(options.level, Level::Raid1 | Level::Raid10) && rng.percent(12) {
        // A unit of a resync is a chunk, or 128 sectors.
        let unit = if options.level == Level::Raid1 { 128 } else { options.chunk.0.min(128) };
        let units = UNDER_WAY_MAX + 4 + rng.below(20);
        options.full_stripes = (units * unit).div_ceil(options.chunk.0);
    }
    if rng.percent(25) {
        options.bitmap = None;
    }
}

/// Chooses a flush rule.
pub(super) fn draw_flush_rule(rng: &mut Rng, options: &mut Options) {
    let rule = rng.pick(&FLUSH_RULES);
    options.knobs.set(options.knobs.parse("flush_batch", rule).expect("the rule is valid"));
}

fn is_possible(layout: u32, options: &Options) -> bool {
    let members = options.members;
    layout_id::is_legal(Level::Raid10, layout, members as u32)
        && Mirrors::raid10(layout, members as u16, options.chunk, options.data_of(0)).is_some()
}

impl Draw {
    /// Adds a knob of all queues or of one, or adds or removes a bitmap.
    pub(super) fn before_mixed(&mut self, steps: &mut Vec<ScriptStep>) {
        let rng = &mut self.mixed;
        match rng.below(100) {
            0..=9 => {
                let (name, values) = rng.pick(&KNOBS);
                steps.push(ScriptStep::Set(name, rng.pick(values)));
            }
            10..=12 => {
                let (name, values) = rng.pick(&OF_ONE_QUEUE);
                let disk = rng.index(self.members);
                steps.push(ScriptStep::SetQueue(disk, name, rng.pick(values)));
            }
            13 | 14 => {
                if rng.percent(70) {
                    steps.push(ScriptStep::Finish);
                }
                let chunk = rng.pick(&[None, Some(4096), Some(16384)]);
                steps.push(ScriptStep::Bitmap(chunk));
            }
            _ => {}
        }
    }
}

const FLUSH_RULES: [&str; 5] = ["batch", "md612", "needed", "parallel", "serial"];

/// RAID 10 layouts with far copies in sets of members, and with offset copies.
const FAR_SETS: [u32; 3] = [0x2_0201, 0x4_0201, 0x5_0201];

/// Run-time knobs that no other profile sets.
const KNOBS: [(&str, &[&str]); 24] = [
    ("dirty_bytes", &["8192", "32768"]),
    ("dirty_ratio", &["50", "100"]),
    ("dirty_background_bytes", &["4096", "16384"]),
    ("dirty_background_ratio", &["1", "50"]),
    ("dirty_expire_centisecs", &["0", "10", "3000"]),
    ("dirty_writeback_centisecs", &["0", "10", "500"]),
    (
        "dirty_throttle",
        &["2.6.24", "3.1", "v11", "patch-001", "mainline-3.2", "mainline-6.12", "weft", "none"],
    ),
    ("max_ratio", &["1", "50", "100"]),
    ("strictlimit", &["0", "1"]),
    ("sync_pace", &["idle", "md"]),
    ("sync_speed_min", &["1", "1000", "system"]),
    ("sync_speed_max", &["10000", "system"]),
    ("read_around", &["0", "0.010", "2"]),
    ("flush_batch", &FLUSH_RULES),
    ("scheduler", &["none", "mq-deadline", "bfq"]),
    ("nr_requests", &["0", "4", "64"]),
    ("nomerges", &["0", "1", "2"]),
    ("async_depth", &["0", "1"]),
    ("fairness", &["requests", "slots"]),
    ("group_weights", &["none", "100,900", "1,1000,10"]),
    ("idle_lowest", &["0", "1"]),
    ("waker", &["0", "1"]),
    ("check_reads", &["cache", "media"]),
    ("safe_mode_delay", &["0", "0.050", "0.200"]),
];

/// Knobs that may differ for one member's queue. The largest request is not among them: I12 has one
/// limit for all members.
const OF_ONE_QUEUE: [(&str, &[&str]); 6] = [
    ("scheduler", &["none", "mq-deadline", "bfq"]),
    ("queue_depth", &["0", "1", "3"]),
    ("nr_requests", &["0", "4"]),
    ("slice_idle", &["0", "8"]),
    ("nomerges", &["0", "2"]),
    ("rotational", &["auto", "0", "1"]),
];
