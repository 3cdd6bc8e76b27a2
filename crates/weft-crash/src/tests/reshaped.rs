//! Tests of reshapes: data stays the same while the array gets more members, another chunk or
//! another layout, whatever interrupts the reshape.
//!
//! Each course is drawn from a seed. Clients read and write while the array grows. At any moment
//! members may fail, the reshape may be frozen, the process may be killed or the power may be cut.
//! At the end the array has grown, all data can be read (I3), and all parity is right.

use std::fmt::Debug;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use weft_engine::assemble;
use weft_engine::knobs::{Knobs, SchedulerKind};
use weft_engine::mutant::Mutant;
use weft_engine::{ArrayShape, Flags, Growth, RequestOp, SyncAction, Verb, WriteBackConfig};
use weft_ondisk::{Level, layout_id};
use weft_units::rng::Rng;
use weft_units::{Bytes, Span};

use crate::array::Array;
use crate::bugs::RESHAPES;
use crate::checker::parity;
use crate::crash::CutMode;
use crate::model::Payload;
use crate::options::Options;
use crate::rig::{Rig, chunk_kib};
use crate::world::Order;

/// Faults and interruptions that an array meets while it grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Harm {
    /// The power is cut, and the process is killed.
    Cuts,
    /// A member fails, and the array is stopped and started again.
    Failure,
    /// Members stall, have no space, or cannot read some sectors, each for a while.
    Trouble,
}

/// Counts of the events in the courses. The tests require each kind of event, because courses
/// without events test nothing.
#[derive(Debug, Default)]
struct Seen {
    cuts_inside: u32,
    resumed: u32,
    failures_inside: u32,
    troubles_inside: [u32; 3],
    forgotten: u32,
}

/// A rig for a course, and the shape that its array is to get. The checkers of the array's
/// structure are off, because they know one geometry only.
fn rig(rng: &mut Rng, seed: u64) -> (Rig, ArrayShape) {
    let level = rng.pick(&[Level::Raid4, Level::Raid5, Level::Raid5, Level::Raid6]);
    let members = rng.pick(&[4, 5]) - usize::from(level != Level::Raid6);
    let chunk = chunk_kib(rng.pick(&[4, 8, 16]));
    // If no members are added, the chunk or the layout changes.
    let more = rng.pick(&[0, 1, 1, 2, 3]);
    let mut options = Options::new(level, members, chunk);
    if level == Level::Raid5 {
        options.layout = Some(rng.pick(&[layout_id::LEFT_SYMMETRIC, 0, 3]));
    }
    options.full_stripes = rng.pick(&[12, 40, 100]);
    options.spares = more;
    options.checked = false;
    options.discards = rng.pick(&[false, true]);
    options.seed = seed;
    options.bitmap = rng.pick(&[None, Some(Bytes::kib(64))]);
    options.defer_computes = rng.pick(&[false, true]);
    if rng.pick(&[false, true]) {
        options.knobs = Knobs::default();
    }
    options.knobs.scheduler = rng.pick(&[
        SchedulerKind::None,
        SchedulerKind::MqDeadline,
        SchedulerKind::Kyber,
        SchedulerKind::Bfq,
    ]);
    options.write_back = rng.pick(&[None, None, Some(WriteBackConfig::of(Bytes::kib(256)))]);
    options.knobs.stripe_cache_size = rng.pick(&[16, 32, 64]);
    let mut to = ArrayShape::default();
    if more > 0 {
        to.raid_disks = Some((members + more) as u16);
    }
    if more == 0 || rng.below(4) == 0 {
        let mut chunks = [4, 8, 16].map(chunk_kib).to_vec();
        chunks.retain(|it| *it != chunk);
        to.chunk = Some(rng.pick(&chunks));
        let layout = rng.below(6) as u32;
        to.layout = Some(layout).filter(|_| level != Level::Raid4);
        // Data on each member is a multiple of both chunks.
        options.full_stripes = options.full_stripes.next_multiple_of(4);
    }
    (Rig::of(options), to)
}

/// Issues a few requests of clients at random places below byte `size`: writes, reads, flushes and
/// discards.
pub(super) fn clients(rig: &mut Rig, rng: &mut Rng, size: u64) {
    for _ in 0..rng.pick(&[1, 2, 5]) {
        let len = rng.pick(&[512, 4096, 20_480]);
        let start = rng.below(size - len) / 512 * 512;
        match rng.below(8) {
            0..=4 => rig.put(start, len),
            5 => {
                let flags = Flags { discard: true, ..Flags::NONE };
                rig.issue(
                    RequestOp::WriteZeroes,
                    start,
                    (len * 16).min(size - start),
                    Payload::Zeros,
                    flags,
                )
            }
            6 => rig.flush(),
            _ => rig.get(start, len),
        };
    }
}

/// Plants a fault of a disk, lets clients continue while time passes, and ends the fault.
pub(super) fn trouble(rig: &mut Rig, rng: &mut Rng, size: u64, (disk, kind): (usize, u64)) {
    match kind {
        0 => rig.disks[disk].faults.stalled = true,
        1 => rig.disks[disk].faults.no_space = true,
        _ => {
            let first = rng.below(400) * 8 + 2048;
            rig.disks[disk].faults.bad_reads.extend(first..first + 64);
        }
    }
    for _ in 0..rng.below(4) {
        clients(rig, rng, size);
        let span = rng.pick(&[10, 500, 3000]);
        rig.pass(Span::millis(span));
    }
    (rig.disks[disk].faults.stalled, rig.disks[disk].faults.no_space) = (false, false);
}

fn course(seed: u64, harm: Harm, planted: Option<Mutant>, seen: &mut Seen) {
    let mut rng = Rng::new(seed);
    let (mut rig, to) = rig(&mut rng, seed);
    let slots = to.raid_disks.unwrap_or(rig.options.members as u16);
    let plant = |rig: &mut Rig| {
        if let Some(mutant) = planted {
            rig.engine.as_mut().expect("an engine runs").plant(mutant);
        }
    };
    plant(&mut rig);
    let size = rig.volume().size.0;
    for start in (0..size).step_by(16_384) {
        rig.store(start, 16_384.min(size - start)).unwrap();
    }
    rig.order = Order::Random;
    let fails_at = rng.below(12);
    // These trims are in flight or wait when the reshape begins. There are none with a write-back
    // cache, because they may then reach the array during the reshape, which keeps the old content;
    // the model does not allow for this.
    let trims = if rig.options.write_back.is_some() { 0 } else { rng.below(3) };
    for _ in 0..trims {
        let start = rng.below(size / 2) / 512 * 512;
        rig.trim(start, size / 3);
        rig.put(start, 4096);
    }
    let steps = rng.below(6) as usize;
    rig.steps(steps);
    rig.admin(Verb::Grow(Growth::Shape(to)));
    for turn in 0..rng.pick(&[4, 12, 30]) {
        clients(&mut rig, &mut rng, size);
        let count = if turn == 0 { rng.pick(&[60, 120]) } else { rng.pick(&[1, 2, 5, 20, 60]) };
        rig.steps(count);
        let reshapes = rig.volume().reshape;
        let inside = reshapes.is_some_and(|it| it.position.0 > 0 && it.position < it.end);
        match (harm, rng.below(10)) {
            (Harm::Cuts, 0..=2) => {
                seen.cuts_inside += u32::from(inside);
                let mode = rng.pick(&[CutMode::Subset, CutMode::Nothing, CutMode::Ordered]);
                if rng.below(3) == 0 {
                    rig.kill();
                } else {
                    rig.cut(mode);
                }
                rig.recover();
                plant(&mut rig);
                let reshapes = rig.volume().reshape;
                seen.resumed += u32::from(reshapes.is_some_and(|it| it.position.0 > 0));
                if reshapes.is_none() && !is_reshaped(&rig, to) {
                    seen.forgotten += 1;
                    rig.admin(Verb::Grow(Growth::Shape(to)));
                }
                rig.verify();
            }
            (Harm::Failure, _) if turn == fails_at => {
                seen.failures_inside += u32::from(inside);
                let disk = rng.below(slots.into()) as usize;
                rig.disks[disk].faults.gone = true;
            }
            (Harm::Failure, 0) if inside => {
                rig.stop();
                rig.recover();
                seen.resumed += 1;
            }
            (Harm::Trouble, kind @ 0..=2) => {
                seen.troubles_inside[kind as usize] += u32::from(inside);
                // Only one member has unreadable sectors, because sectors that two members cannot
                // read would be lost.
                let unreadable = (seed % u64::from(slots)) as usize;
                let disk = if kind == 2 { unreadable } else { rng.below(slots.into()) as usize };
                trouble(&mut rig, &mut rng, size, (disk, kind));
            }
            (_, 4) => {
                rig.admin(Verb::SyncAction(SyncAction::Frozen));
                rig.pass(Span::millis(200));
                rig.admin(Verb::SyncAction(SyncAction::Reshape));
            }
            _ => {}
        }
    }
    if harm == Harm::Trouble {
        // Writes that found no space are tried again.
        rig.pass(Span::secs(5));
    }
    has_grown(&mut rig, to, size);
}

/// Whether the array has the shape `to`.
fn is_reshaped(rig: &Rig, to: ArrayShape) -> bool {
    let volume = rig.volume();
    let layout = volume.layout.expect("an array has a layout");
    let is = |wanted: Option<u32>, found: u32| wanted.is_none_or(|wanted| wanted == found);
    is(to.raid_disks.map(u32::from), volume.slots as u32)
        && is(to.layout, layout.number)
        && to.chunk.is_none_or(|chunk| chunk.bytes() == layout.chunk)
}

/// Checks that the array has grown and has its data, and that all parity is right.
fn has_grown(rig: &mut Rig, to: ArrayShape, size: u64) {
    rig.until_idle();
    rig.forget_answers();
    rig.verify();
    let volume = rig.volume();
    if volume.reshape.is_none() && !is_reshaped(rig, to) {
        // A member was gone before the reshape began.
        return;
    }
    assert_eq!(volume.reshape, None, "the reshape ends: {volume:?}");
    assert!(is_reshaped(rig, to), "{to:?}: {volume:?}");
    assert_eq!(volume.size.0 > size, to.raid_disks.is_some(), "{} of {size}", volume.size);
    let how = assemble::Options { run: true, force_dirty: true, ..assemble::Options::default() };
    let assembly = rig.assemble(&how).unwrap();
    let first = |disk: usize| rig.record.of(disk).map(weft_ondisk::Superblock::data_offset);
    let offsets = (0..rig.disks.len()).map(|disk| first(disk).unwrap_or_default()).collect();
    rig.array = Array::new(assembly.layout, offsets);
    let added = volume.size.0 - size;
    if added > 0 {
        let zeros = rig.read_bytes(size, added.min(1 << 20)).unwrap();
        assert!(zeros.is_all(0), "what was added is zero");
    }
    let failed = volume.degraded > 0 || rig.disks.iter().any(|disk| disk.faults.gone);
    rig.store(volume.size.0 - 4096, 4096).unwrap();
    rig.stop();
    let scrub = rig.scrub(parity::Bytes::Visible);
    assert!(scrub.wrong.is_empty(), "{:?}", scrub.wrong);
    assert!(failed || scrub.written > 0, "{scrub:?}");
}

/// A test run that is drawn from a seed, meets the given harm, and counts its events in `S`. It
/// panics if a promise is broken.
pub(super) type Course<S> = fn(u64, Harm, Option<Mutant>, &mut S);

/// Runs a course of each seed. Returns the counts.
pub(super) fn courses<S: Default>(course: Course<S>, seeds: Range<u64>, harm: Harm) -> S {
    let mut seen = S::default();
    for seed in seeds {
        let run = AssertUnwindSafe(|| course(seed, harm, None, &mut seen));
        if let Err(panic) = catch_unwind(run) {
            eprintln!("{harm:?}, seed {seed}");
            resume_unwind(panic);
        }
    }
    seen
}

/// Checks that each planted bug is found by at least one course.
pub(super) fn find_planted<S: Default>(course: Course<S>, bugs: &[Mutant]) {
    for mutant in bugs {
        let finds = |seed: u64| {
            let run = || course(seed, Harm::Cuts, Some(*mutant), &mut S::default());
            catch_unwind(AssertUnwindSafe(run)).is_err()
        };
        let found = (0..400).find(|seed| finds(*seed));
        assert!(found.is_some(), "{mutant:?} is not found in 400 courses");
    }
}

/// Runs courses with each kind of harm: as many as the environment variable `REACH` says (3000 by
/// default), from the seed `FIRST` on.
pub(super) fn run_many<S: Default + Debug>(course: Course<S>) {
    let number = |name| std::env::var(name).ok().and_then(|number| number.parse().ok());
    let (reach, first) = (number("REACH").unwrap_or(3000), number("FIRST").unwrap_or(0));
    for harm in [Harm::Trouble, Harm::Cuts, Harm::Failure] {
        eprintln!("{harm:?}: {:?}", courses(course, first..first + reach, harm));
    }
}

#[test]
fn an_array_that_is_cut_off_while_it_grows_keeps_its_data() {
    let seen = courses(course, 0..300, Harm::Cuts);
    assert!(seen.cuts_inside > 50 && seen.resumed > 30 && seen.forgotten > 10, "{seen:?}");
}

#[test]
fn an_array_that_loses_a_member_while_it_grows_goes_on() {
    let seen = courses(course, 0..300, Harm::Failure);
    assert!(seen.failures_inside > 50 && seen.resumed > 30, "{seen:?}");
}

#[test]
fn an_array_with_members_in_trouble_grows() {
    let seen = courses(course, 0..300, Harm::Trouble);
    assert!(seen.troubles_inside.iter().all(|count| *count > 20), "{seen:?}");
}

#[test]
fn a_reshape_that_stops_at_what_cannot_be_read_goes_on_when_it_is_asked_for_again() {
    let mut stopped = 0;
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let (mut rig, to) = rig(&mut rng, seed);
        let (size, slots) = (rig.volume().size.0, rig.options.members);
        for start in (0..size).step_by(16_384) {
            rig.store(start, 16_384.min(size - start)).unwrap();
        }
        // A restart empties the stripe cache.
        rig.stop();
        rig.recover();
        rig.until_idle();
        let half = rig.volume().layout.expect("it has a layout").member_size.0 / 2;
        let lost = rng.pick(&[1, slots]);
        for disk in 0..lost {
            let first = rig.record.of(disk).expect("a member").data_offset().0 + half / 512 / 8 * 8;
            rig.disks[disk].faults.bad_reads.extend(first..first + 8);
        }
        if let Err(error) = rig.command(Verb::Grow(Growth::Shape(to))) {
            assert!(error.to_string().starts_with("stripe_cache_size: "), "{seed}: {error}");
            continue;
        }
        rig.until_idle();
        let reshape = rig.volume().reshape;
        assert_eq!(reshape.is_some(), lost > 1, "{seed}: {lost} members cannot read: {reshape:?}");
        if let Some(reshape) = reshape {
            stopped += 1;
            assert!(reshape.position < reshape.end, "{reshape:?}");
            let other = ArrayShape { raid_disks: Some(reshape.to + 1), ..to };
            rig.command(Verb::Grow(Growth::Shape(other))).unwrap_err();
            // As long as the sectors stay unreadable, the reshape stops at the same position again.
            rig.command(Verb::Grow(Growth::Shape(to))).unwrap();
            rig.until_idle();
            assert_eq!(rig.volume().reshape, Some(reshape), "{seed}");
            for disk in 0..lost {
                rig.disks[disk].faults.bad_reads.clear();
            }
            rig.command(Verb::Grow(Growth::Shape(to))).unwrap();
        }
        has_grown(&mut rig, to, size);
    }
    assert!(stopped > 10, "{stopped}");
}

#[test]
fn planted_bugs_of_reshapes_are_found() {
    find_planted(course, &RESHAPES);
}

#[test]
#[ignore = "thousands of courses: REACH=20000 cargo test -p weft-crash reshaped -- --ignored"]
fn many_courses() {
    run_many(course);
}
