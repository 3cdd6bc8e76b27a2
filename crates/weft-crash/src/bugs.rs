//! Planted bugs: the scripts that show each bug and the checkers that must report it.
//!
//! If two checkers report a bug, one of them may stop to report it unnoticed. The table therefore
//! names every checker that must report a bug, and each checker runs alone, with all others ignored
//! ([`crate::Options::only`]).
//!
//! Source   spec reliability.md §6.4

use weft_engine::knobs::{
    Activation, FlushRule, Knobs, PlanRule, PriorityRule, SchedulerKind, Writes,
};
use weft_engine::mutant::Mutant;
use weft_engine::{Fault, Flags, RequestOp, SyncAction};
use weft_ondisk::Level;
use weft_units::rng::Rng;
use weft_units::{Bytes, Span};

use crate::chunk_kib;
use crate::faults::Planned;
use crate::options::Options;
use crate::script::{Plant, Profile, Script, ScriptStep};
use crate::volumes::ARRAY;
use crate::world::Order;

/// Beginnings of the names of the checkers that can be run alone.
pub const CHECKERS: [&str; 17] = [
    "I1 ", "I2 ", "I3 ", "I4 ", "I5 ", "I6 ", "I7 ", "I8 ", "I9 ", "I10", "I11", "I12", "I13",
    "I19", "I20", "I21", "P5 ",
];

/// Planted bugs, each with the checkers that must report it within a few scripts. Each of these
/// checkers must do so even if all others are ignored.
pub const SEEN_BY: [(Mutant, &[&str]); 52] = [
    (Mutant::AckBeforeAllCopies, &["I4 "]),
    (Mutant::AckBeforeParity, &["I4 ", "I5 ", "I1 "]),
    (Mutant::AckBeforeSuperblock, &["I5 ", "I4 "]),
    (Mutant::BadBlockForgotten, &["I1 "]),
    (Mutant::BadBlocksNotWritten, &["I1 "]),
    (Mutant::BitClearedEarly, &["I20"]),
    (Mutant::BrokenAcknowledges, &["I4 "]),
    (Mutant::CacheNotResized, &["I12"]),
    (Mutant::CommandEndForgotten, &["I13"]),
    (Mutant::ChunkEdgeOffByOne, &["I1 ", "I2 ", "I7 "]),
    (Mutant::CopyOnWrongMember, &["I4 ", "I7 "]),
    (Mutant::CreditLostOnDisconnect, &["I11"]),
    (Mutant::CreditOvershoots, &["I12"]),
    (Mutant::DataBeforeBit, &["I20", "I6 "]),
    (Mutant::DiscardBeforeDirty, &["I5 "]),
    (Mutant::DiscardKeepsStripes, &["I6 "]),
    (Mutant::DiscardSkipsOneMember, &["I4 ", "I8 ", "I6 "]),
    (Mutant::DiscardUnderSync, &["I10"]),
    (Mutant::DispatchedTwice, &["I10"]),
    (Mutant::DrainBeforeWritten, &["I1 ", "I2 "]),
    (Mutant::EventsNotRaised, &["I5 ", "I4 ", "I6 "]),
    (Mutant::FailedMemberFlushed, &["I21"]),
    (Mutant::FlushBeforeFailureRecorded, &["I4 "]),
    (Mutant::FlushServedByEarlier, &["I4 "]),
    (Mutant::FlushSkipForgetsMetadata, &["I4 "]),
    (Mutant::FlushSkipForgetsStartUp, &["I1 "]),
    (Mutant::FlushSkipsOneMember, &["I4 ", "I5 "]),
    (Mutant::FrameReusedInFlight, &["I10", "I7 ", "I11"]),
    (Mutant::FullStripeWriteWithoutTail, &["I4 ", "I8 ", "I6 "]),
    (Mutant::IdleTimerNotSet, &["I13"]),
    (Mutant::LackForgotten, &["I13"]),
    (Mutant::LeaseNotGivenBack, &["I13", "I11"]),
    (Mutant::LostWakeUp, &["I13"]),
    (Mutant::MergeAcrossFlush, &["I4 "]),
    (Mutant::MirrorReadUnsynced, &["I2 "]),
    (Mutant::MissedWriteNotRecorded, &["I4 "]),
    (Mutant::OtherVolumeRefused, &["I13"]),
    (Mutant::PartErrorForgotten, &["I1 "]),
    (Mutant::PartLackForgotten, &["I1 "]),
    (Mutant::QueueStarves, &["I13"]),
    (Mutant::QueueSwitchForgets, &["I13"]),
    (Mutant::ReaddOfTooOld, &["I8 ", "I6 ", "I1 "]),
    (Mutant::ReplacementNotWritten, &["I1 ", "I2 ", "I4 ", "I6 "]),
    (Mutant::SwapNotRecorded, &["I4 "]),
    (Mutant::BadBlocksForgottenAtSwap, &["I1 ", "I2 ", "I6 ", "I7 "]),
    (Mutant::RmwNewAsOld, &["I6 ", "I2 ", "I7 "]),
    (Mutant::StaleMemberAfterAdd, &["I2 ", "I4 ", "I6 "]),
    (Mutant::SuperblockRetriedLate, &["I13"]),
    (Mutant::ToleratesByCount, &["I13"]),
    (Mutant::WaitWithoutEnd, &["I19"]),
    (Mutant::WrongQExponent, &["I6 "]),
    (Mutant::ZoneBoundaryOffByOne, &["I4 ", "I7 "]),
];

/// Bugs that are left out of [`SEEN_BY`] because only many scripts show them. Any checker may
/// report them.
pub const RARE: [Mutant; 3] =
    [Mutant::ZeroCopyNotPinned, Mutant::WriteWhileReadOnly, Mutant::PartlyRebuiltSettles];

/// Bugs that are left out of [`SEEN_BY`] because no script reshapes an array. The courses of
/// `tests/reshaped.rs` find them.
pub const RESHAPES: [Mutant; 3] =
    [Mutant::ReshapeLetsPass, Mutant::ReshapeNotFlushed, Mutant::ReshapeOverSource];

/// Bugs that are left out of [`SEEN_BY`] because no script resizes an array. The courses of
/// `tests/resized.rs` find them.
pub const RESIZES: [Mutant; 2] = [Mutant::ResizeNotRecorded, Mutant::ResizeNotResynced];

/// Checkers that no bug of [`SEEN_BY`] tests: the beginning of the checker's name, and a
/// description of the other test that shows that the checker works.
pub const UNUSED: [(&str, &str); 3] = [
    (
        "I3 ",
        "a unit test of the model: no way is known to plant a failed write that comes and goes",
    ),
    ("I9 ", "it alone can see WriteWhileReadOnly, which is rare"),
    ("P5 ", "a unit test of the checker: assembly is a function, in which no bug can be planted"),
];

const PROFILES: [Profile; 3] = [Profile::CUTS, Profile::FAULTS, Profile::FAULTS_AND_CUTS];

/// Profiles of levels without parity, for scripts that look for bugs of such levels.
const STRAIGHT: [Profile; 3] = [Profile::STRAIGHT[1], Profile::STRAIGHT[3], Profile::STRAIGHT[4]];

/// Profiles of arrays with a bitmap, with and without parity, on which members fail and are
/// re-added.
const BITMAPS: [Profile; 4] =
    [Profile::BITMAPS[2], Profile::BITMAPS[6], Profile::BITMAPS[3], Profile::BITMAPS[7]];

const FIRST_SEED: u64 = 20_000;

/// Script number `number` in the series of scripts that are tried for the bug `mutant`.
#[must_use]
pub fn script(mutant: Mutant, number: u64) -> Script {
    match mutant {
        Mutant::CacheNotResized => return shrinking(number),
        Mutant::CreditOvershoots => return greedy(number),
        Mutant::DiscardUnderSync => return trimming(number),
        Mutant::FlushBeforeFailureRecorded => return committing(number),
        Mutant::MergeAcrossFlush => return appending(number),
        Mutant::SuperblockRetriedLate => return filling(number),
        Mutant::WaitWithoutEnd => return starving(number),
        _ => {}
    }
    let profile = match mutant {
        Mutant::BadBlockForgotten | Mutant::BadBlocksNotWritten => {
            Profile::BAD_BLOCKS[number as usize % 2]
        }
        Mutant::BrokenAcknowledges => {
            [Profile::BEYOND_POWERED, Profile::STRAIGHT[7]][number as usize % 2]
        }
        Mutant::CommandEndForgotten
        | Mutant::DispatchedTwice
        | Mutant::IdleTimerNotSet
        | Mutant::QueueStarves
        | Mutant::QueueSwitchForgets => Profile::QUEUES,
        Mutant::DrainBeforeWritten => Profile::DRAINS[number as usize % 2],
        Mutant::FlushSkipForgetsStartUp | Mutant::OtherVolumeRefused => {
            Profile::BARES[number as usize % 2]
        }
        Mutant::LackForgotten => Profile::LACKS[1],
        Mutant::BitClearedEarly | Mutant::DataBeforeBit | Mutant::ReaddOfTooOld => {
            BITMAPS[number as usize % BITMAPS.len()]
        }
        Mutant::PartErrorForgotten | Mutant::PartLackForgotten => {
            Profile::PARTS[number as usize % 2]
        }
        Mutant::PartlyRebuiltSettles => Profile::REBUILDS[number as usize % 2],
        Mutant::BadBlocksForgottenAtSwap => Profile::REPLACES[6 + number as usize % 2],
        Mutant::ReplacementNotWritten | Mutant::SwapNotRecorded => {
            Profile::REPLACES[number as usize % 6]
        }
        Mutant::AckBeforeAllCopies
        | Mutant::CopyOnWrongMember
        | Mutant::MirrorReadUnsynced
        | Mutant::MissedWriteNotRecorded
        | Mutant::ToleratesByCount
        | Mutant::ZoneBoundaryOffByOne => STRAIGHT[number as usize % STRAIGHT.len()],
        _ => PROFILES[number as usize % PROFILES.len()],
    };
    let mut script = Script::generate(FIRST_SEED + number, profile);
    if matches!(mutant, Mutant::FlushSkipForgetsMetadata | Mutant::FlushSkipForgetsStartUp) {
        script.options.knobs.flush_batch = FlushRule::Needed;
    }
    if matches!(mutant, Mutant::IdleTimerNotSet | Mutant::QueueStarves) {
        script.options.knobs.scheduler = SchedulerKind::Bfq;
    }
    script
}

/// Number of the first script, below `scripts`, in which a checker reports the bug that `plant`
/// plants; `None` if no script shows the bug. Only the checker `only` counts; with `None`, all
/// checkers count.
#[must_use]
pub fn hunt(
    mutant: Mutant,
    only: Option<&'static str>,
    scripts: u64,
    plant: Plant<'_>,
) -> Option<u64> {
    (0..scripts).find(|number| {
        let mut script = script(mutant, *number);
        script.options.only = only;
        // Failed assertions of the engine do not count, because checkers are tested here.
        script.run_with(plant).is_err_and(|failure| failure.violation.checker != "panic")
    })
}

/// Options for scripts that are written for one bug: a small RAID 5 array.
fn small(number: u64) -> Options {
    let mut options = Options::new(Level::Raid5, 3, chunk_kib(4));
    options.full_stripes = 64;
    options.seed = number;
    options
}

fn made(profile: &'static str, options: Options, order: Order, steps: Vec<ScriptStep>) -> Script {
    Script { profile, options, order, steps, within_promises: true, assembles: true }
}

fn write(client: u32, start: u64, len: u64, sync: bool) -> ScriptStep {
    let flags = Flags { sync, ..Flags::NONE };
    ScriptStep::Ask { volume: ARRAY, client, op: RequestOp::Write, start, len, flags }
}

/// Script that shrinks the stripe cache and then writes more stripes at once than the cache still
/// has.
fn shrinking(number: u64) -> Script {
    let mut options = small(number);
    options.knobs.stripe_cache_size = 64;
    let mut steps = vec![ScriptStep::Set("stripe_cache_size", "17"), ScriptStep::Finish];
    steps
        .extend((0..3).map(|client| write(client + 1, u64::from(client) * 131_072, 131_072, true)));
    made("shrinking", options, Order::Random, steps)
}

/// Script in which clients send requests beyond their credit, which the engine must refuse.
fn greedy(number: u64) -> Script {
    let mut options = small(number);
    (options.client_credit, options.greedy) = (Bytes(32_768), true);
    let mut rng = Rng::new(number);
    let mut steps = Vec::new();
    for _ in 0..8 {
        for _ in 0..1 + rng.below(12) {
            let (client, blocks) = (1 + rng.below(2) as u32, 1 + rng.below(4));
            steps.push(write(client, rng.below(32) * 4096, blocks * 4096, true));
        }
        steps.push(ScriptStep::Finish);
    }
    made("greedy", options, Order::Random, steps)
}

/// Script in which a client issues a write and an adjacent FUA write before either is dispatched.
fn appending(number: u64) -> Script {
    let mut options = Options::new(Level::Raid1, 2, chunk_kib(64));
    options.seed = number;
    let mut steps = vec![write(1, 0, 4096, true), ScriptStep::Finish];
    for turn in 0..8 {
        let start = (1 + 4 * turn) * 4096;
        let flags = Flags { sync: true, fua: true, ..Flags::NONE };
        let (op, start_fua) = (RequestOp::Write, start + 4096);
        steps.push(write(1, start, 4096, true));
        steps.push(ScriptStep::Ask {
            volume: ARRAY,
            client: 1,
            op,
            start: start_fua,
            len: 4096,
            flags,
        });
        steps.push(ScriptStep::Finish);
    }
    made("appending", options, Order::Random, steps)
}

/// Script in which a client issues a write and, after its answer, a write with PREFLUSH that
/// depends on it. A member fails a request or goes away at about the time of its flush. The arrays
/// are mirrors, because with parity a write waits in any case until a failure is recorded.
fn committing(number: u64) -> Script {
    let mut options = Options::new(Level::Raid1, 3, chunk_kib(64));
    options.seed = number;
    let mut rng = Rng::new(number);
    options.knobs.flush_batch = rng.pick(&[FlushRule::Batch, FlushRule::Parallel]);
    let mut steps = Vec::new();
    let fails_at = rng.below(4);
    for turn in 0..6 {
        steps.extend([write(1, turn * 32_768, 16_384, true), ScriptStep::Finish]);
        if turn == fails_at {
            let how = if rng.percent(50) { Planned::Gone } else { Planned::Once(Fault::Io) };
            let (disk, after) = (rng.index(3), rng.below(2));
            steps.push(ScriptStep::FailOperation { disk, after, how });
        }
        let flags = Flags { sync: true, preflush: true, ..Flags::NONE };
        let (op, start) = (RequestOp::Write, turn * 32_768 + 16_384);
        steps.push(ScriptStep::Ask { volume: ARRAY, client: 1, op, start, len: 4096, flags });
        steps.push(ScriptStep::Finish);
    }
    made("committing", options, Order::Random, steps)
}

/// Script in which trims arrive while parity is repaired.
fn trimming(number: u64) -> Script {
    let mut options = small(number);
    options.discards = true;
    let mut rng = Rng::new(number);
    let (stripe, stripes) = (8192, 64);
    let mut steps = Vec::new();
    for _ in 0..12 {
        steps.extend([write(1, 0, stripe * stripes, true), ScriptStep::Finish]);
        steps.extend([
            ScriptStep::Sync(SyncAction::Repair),
            ScriptStep::Steps(rng.below(40) as u32),
        ]);
        let (start, flags) = (rng.below(stripes) * stripe, Flags::NONE);
        let len = stripe * stripes - start;
        steps.push(ScriptStep::Ask {
            volume: ARRAY,
            client: 2,
            op: RequestOp::Trim,
            start,
            len,
            flags,
        });
        steps.extend([ScriptStep::Steps(rng.below(60) as u32), ScriptStep::Finish]);
    }
    made("trimming", options, Order::Random, steps)
}

/// Script in which a disk has no space for data or for its superblock for a while. Writes use the
/// memory of their clients (zero-copy).
fn filling(number: u64) -> Script {
    let mut options = small(number);
    options.knobs.skip_copy = true;
    let mut rng = Rng::new(number);
    let stripe = 8192;
    let mut steps = Vec::new();
    for turn in 0..6 {
        let disk = rng.index(3);
        let start = rng.below(32) * stripe;
        // In every other round the array is clean when the space ends, so that the superblock
        // update finds no space.
        let before = if turn % 2 == 0 { ScriptStep::Sleep(500) } else { write(1, 0, 4096, true) };
        steps.extend([before, ScriptStep::NoSpace(disk), write(2, start, stripe * 8, true)]);
        steps.extend([
            ScriptStep::Sleep(100),
            write(1, stripe * 48, stripe * 4, true),
            ScriptStep::Steps(20),
        ]);
        steps.extend([ScriptStep::NoSpace(disk), ScriptStep::Finish, ScriptStep::Sleep(3000)]);
    }
    made("filling", options, Order::Random, steps)
}

/// Script with a load that starves a block under most priority rules unless its wait is bounded.
/// One client writes the block without the sync flag, and another client writes the full stripes
/// beside it without a pause.
fn starving(number: u64) -> Script {
    let priorities = [
        (PriorityRule::Bypass, 1),
        (PriorityRule::Fifo, 1),
        (PriorityRule::Bypass, 0),
        (PriorityRule::Bypass, 17),
        (PriorityRule::Stream, 1),
    ];
    let (priority, preread_bypass_threshold) = priorities[number as usize % priorities.len()];
    let number = number / priorities.len() as u64;
    let mut options = small(number);
    options.latency = Span::millis(1);
    options.knobs = Knobs {
        stripe_cache_size: 32,
        priority,
        preread_bypass_threshold,
        preread_wait_max: Span::millis(20),
        activation: if number.is_multiple_of(2) {
            Activation::AtUnplug
        } else {
            Activation::EachTurn
        },
        writes: if (number / 2).is_multiple_of(2) { Writes::Gather } else { Writes::Auto },
        plan_rule: if (number / 4).is_multiple_of(2) { PlanRule::Md } else { PlanRule::Least },
        ..Knobs::md()
    };
    let (block, stripe) = (4096, 8192);
    // The array is already dirty, so that no request waits for a superblock update.
    let mut steps =
        vec![write(1, 0, block, true), ScriptStep::Finish, write(2, stripe, block, false)];
    // Each write fills a full stripe, or is one block of a stripe that must be preread at once.
    // Three requests complete for each write.
    for turn in 0..460 {
        let len = if turn % 3 == 0 { block } else { stripe };
        steps.push(write(1, (2 + turn % 60) * stripe, len, true));
        if turn > 4 {
            steps.push(ScriptStep::Steps(3));
        }
    }
    made("starving", options, Order::Fifo, steps)
}
