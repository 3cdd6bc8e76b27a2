//! Tests of resizes: data stays the same while an array gets a larger size or another number of
//! mirrors, whatever interrupts the change, and the new space is in sync and can be used.
//!
//! Each course is drawn from a seed, as in `reshaped`. In the space that the array gets, the disks
//! have noise in place of the parity, or of all copies but the first, so that only a resync makes
//! members agree there.

use weft_engine::layout::Layout;
use weft_engine::mutant::Mutant;
use weft_engine::{ArrayShape, Growth, SyncAction, Verb, assemble};
use weft_ondisk::{Level, layout_id};
use weft_units::rng::Rng;
use weft_units::{Bytes, Sectors, Span};

use super::reshaped::{Harm, clients, courses, find_planted, run_many, trouble};
use crate::array::Array;
use crate::bugs::RESIZES;
use crate::checker::parity;
use crate::crash::CutMode;
use crate::options::Options;
use crate::rig::{Rig, chunk_kib};
use crate::world::Order;

#[derive(Debug, Default)]
struct Seen {
    cuts_inside: u32,
    forgotten: u32,
    failures_inside: u32,
    troubles_inside: u32,
    grown: u32,
    more: u32,
    fewer: u32,
}

fn rig(rng: &mut Rng, seed: u64) -> Rig {
    const NEAR: u32 = 0x102;
    const OFFSET: u32 = 0x1_0201;
    let (level, layout) = rng.pick(&[
        (Level::Raid1, None),
        (Level::Raid1, None),
        (Level::Raid4, None),
        (Level::Raid5, Some(layout_id::LEFT_SYMMETRIC)),
        (Level::Raid6, None),
        (Level::Raid10, Some(NEAR)),
        (Level::Raid10, Some(OFFSET)),
    ]);
    let members = match level {
        Level::Raid1 => rng.pick(&[2, 3]),
        _ => rng.pick(&[4, 5]),
    };
    let mut options = Options::new(level, members, chunk_kib(rng.pick(&[4, 8, 16])));
    options.layout = layout;
    options.full_stripes = rng.pick(&[12, 40, 100]);
    options.spares = rng.pick(&[0, 1]);
    options.checked = false;
    options.discards = rng.pick(&[false, true]);
    options.seed = seed;
    options.bitmap = rng.pick(&[None, Some(Bytes::kib(64))]);
    options.defer_computes = rng.pick(&[false, true]);
    options.knobs.stripe_cache_size = rng.pick(&[16, 64]);
    Rig::of(options)
}

/// Draws the growth of the array: a larger size or, for a mirror, another number of members.
fn growth(rig: &Rig, rng: &mut Rng) -> Growth {
    let Options { level, members, .. } = rig.options;
    let size = rig.options.data_of(0);
    if level == Level::Raid1 && rng.below(2) == 0 {
        let slots = members as u16;
        return mirrors(if slots == 3 { rng.pick(&[2, 4]) } else { slots + 1 });
    }
    let chunks = rng.pick(&[2, 4, 20, 150]);
    Growth::Size(Some(size + Sectors(rig.options.chunk.0 * chunks)))
}

fn mirrors(slots: u16) -> Growth {
    Growth::Shape(ArrayShape { raid_disks: Some(slots), ..ArrayShape::default() })
}

/// The array before and after `growth`; both differ only if the size grows.
fn arrays(rig: &Rig, growth: Growth) -> [Array; 2] {
    let layout = rig.options.array_layout();
    let size = if let Growth::Size(Some(size)) = growth { size } else { layout.member_size() };
    let (level, number, members) = (layout.level(), layout.number(), layout.members());
    let after = Layout::new(level, number, members.into(), layout.chunk(), size, &[]).unwrap();
    [layout, after].map(|layout| Array::new(layout, rig.array.data_offset.clone()))
}

/// Gives the rig the geometry that belongs to the present size of the volume. Returns this size in
/// bytes.
fn see_size(rig: &mut Rig, [before, after]: &[Array; 2]) -> u64 {
    let size = rig.volume().size;
    let is_grown = size == after.layout.array_size().bytes();
    assert!(is_grown || size == before.layout.array_size().bytes(), "{size}");
    rig.array = if is_grown { after.clone() } else { before.clone() };
    size.0
}

/// Whether the array, which had `before` bytes, has its new shape.
fn is_done(rig: &Rig, growth: Growth, before: u64) -> bool {
    let volume = rig.volume();
    match growth {
        Growth::Shape(ArrayShape { raid_disks: Some(wanted), .. }) => {
            volume.slots == usize::from(wanted)
        }
        Growth::Size(_) => volume.size.0 > before,
        Growth::Shape(_) => unreachable!("a number of mirrors was drawn"),
    }
}

/// Fills the space that the array gets with noise: in the parity, and in all copies but the first.
fn add_noise(rig: &mut Rig, [before, after]: &[Array; 2]) {
    for sector in before.layout.array_size().0..after.layout.array_size().0 {
        for place in &after.column(sector).places[1..] {
            let disk = place.slot.index();
            let noise = [sector as u8 | 1; 512];
            let at = after.data_offset[disk].0 + place.sector;
            rig.disks[disk].poke(at, &noise);
        }
    }
}

/// If the mirror is to get fewer members, removes a member and the spare that took its slot.
fn make_room(rig: &mut Rig, rng: &mut Rng, growth: Growth) {
    let slots = rig.volume().slots;
    let Growth::Shape(ArrayShape { raid_disks: Some(wanted), .. }) = growth else { return };
    if usize::from(wanted) >= slots {
        return;
    }
    let disk = rng.below(3) as usize;
    rig.fail_disk(disk).remove(disk);
    rig.until_idle();
    if rig.volume().degraded == 0 {
        rig.fail_disk(3).remove(3);
    }
}

fn course(seed: u64, harm: Harm, planted: Option<Mutant>, seen: &mut Seen) {
    let mut rng = Rng::new(seed);
    let mut rig = rig(&mut rng, seed);
    let plant = |rig: &mut Rig| {
        if let Some(mutant) = planted {
            rig.engine.as_mut().expect("an engine runs").plant(mutant);
        }
    };
    plant(&mut rig);
    let growth = growth(&rig, &mut rng);
    let arrays = arrays(&rig, growth);
    // There is no noise in courses with failed writes, because such a write leaves the noise, for
    // which the model does not allow.
    if harm == Harm::Cuts {
        add_noise(&mut rig, &arrays);
    }
    let before = rig.volume().size.0;
    for start in (0..before).step_by(16_384) {
        rig.store(start, 16_384.min(before - start)).unwrap();
    }
    let slots = rig.volume().slots;
    make_room(&mut rig, &mut rng, growth);
    rig.order = Order::Random;
    let steps = rng.below(6) as usize;
    rig.steps(steps);
    rig.admin(Verb::Grow(growth));
    let fails_at = rng.below(8);
    let mut used_to = before;
    for turn in 0..rng.pick(&[4, 8, 16]) {
        let size = see_size(&mut rig, &arrays);
        if size > used_to && rng.below(2) == 0 {
            // The new space is written as a whole before any of it is read.
            for start in (used_to..size).step_by(65_536) {
                rig.put(start, 65_536.min(size - start));
            }
            used_to = size;
        }
        clients(&mut rig, &mut rng, used_to);
        let count = rng.pick(&[1, 2, 3, 5, 10, 40]);
        rig.steps(count);
        let inside = !is_done(&rig, growth, before);
        match (harm, rng.below(10)) {
            (Harm::Cuts, 0..=3) => {
                seen.cuts_inside += u32::from(inside);
                let mode = rng.pick(&[CutMode::Subset, CutMode::Nothing, CutMode::Ordered]);
                if rng.below(3) == 0 {
                    rig.kill();
                } else {
                    rig.cut(mode);
                }
                rig.recover();
                plant(&mut rig);
                see_size(&mut rig, &arrays);
                if !is_done(&rig, growth, before) {
                    seen.forgotten += 1;
                    rig.admin(Verb::Grow(growth));
                    if used_to > before {
                        // No write to the new space was answered.
                        used_to = before;
                    }
                }
                rig.verify();
            }
            (Harm::Failure, _) if turn == fails_at => {
                seen.failures_inside += u32::from(inside);
                let disk = rng.below(slots as u64) as usize;
                rig.disks[disk].faults.gone = true;
            }
            (Harm::Trouble, kind @ 0..=1) => {
                seen.troubles_inside += u32::from(inside);
                let disk = rng.below(slots as u64) as usize;
                trouble(&mut rig, &mut rng, used_to, (disk, kind));
            }
            (_, 4) => {
                rig.admin(Verb::SyncAction(SyncAction::Frozen));
                rig.pass(Span::millis(200));
                rig.admin(Verb::SyncAction(SyncAction::Recover));
            }
            _ => {}
        }
    }
    if harm == Harm::Trouble {
        rig.pass(Span::secs(5));
    }
    is_resized(&mut rig, growth, &arrays, seen);
}

/// Checks that the array has its new shape and its data, and that members agree.
fn is_resized(rig: &mut Rig, growth: Growth, arrays: &[Array; 2], seen: &mut Seen) {
    let before = arrays[0].layout.array_size().bytes().0;
    rig.until_idle();
    if !is_done(rig, growth, before) {
        // The growth was refused because a sync ran, or a member is gone.
        let answer = rig.command(Verb::Grow(growth));
        let gone = rig.disks.iter().any(|disk| disk.faults.gone);
        assert!(answer.is_ok() || gone, "{answer:?}");
        rig.until_idle();
    }
    rig.forget_answers();
    see_size(rig, arrays);
    rig.verify();
    let volume = rig.volume();
    let gone = rig.disks.iter().any(|disk| disk.faults.gone);
    match growth {
        Growth::Shape(ArrayShape { raid_disks: Some(slots), .. }) => {
            let count = u32::from(volume.slots == usize::from(slots));
            *if slots == 2 { &mut seen.fewer } else { &mut seen.more } += count;
            assert!(count == 1 || gone, "{} of {slots}", volume.slots);
        }
        Growth::Shape(_) => unreachable!("a number of mirrors was drawn"),
        Growth::Size(_) if volume.size.0 == before => assert!(gone, "{} stays", volume.size),
        Growth::Size(_) => {
            seen.grown += 1;
            let added = volume.size.0 - before;
            rig.store(before, added.min(1 << 20)).unwrap();
            let last = 512.min(added);
            rig.store(volume.size.0 - last, last).unwrap();
        }
    }
    let (mismatches, compared) = if gone { (0, 1) } else { rig.check() };
    assert!(mismatches == 0 && compared > 0, "{mismatches} of {compared}");
    let how = assemble::Options { run: true, force_dirty: true, ..assemble::Options::default() };
    let assembly = rig.assemble(&how).unwrap();
    rig.array = Array::new(assembly.layout, rig.array.data_offset.clone());
    rig.stop();
    let scrub = rig.scrub(parity::Bytes::Visible);
    assert!(scrub.wrong.is_empty(), "{:?}", scrub.wrong);
}

#[test]
fn an_array_that_is_cut_off_while_it_is_resized_keeps_its_data() {
    let seen = courses(course, 0..300, Harm::Cuts);
    assert!(seen.cuts_inside > 20 && seen.forgotten > 10, "{seen:?}");
    assert!(seen.grown > 100 && seen.more > 15 && seen.fewer > 5, "{seen:?}");
}

#[test]
fn an_array_that_loses_a_member_while_it_is_resized_keeps_its_data() {
    let seen = courses(course, 0..300, Harm::Failure);
    assert!(seen.failures_inside > 10 && seen.grown > 100, "{seen:?}");
}

#[test]
fn an_array_with_members_in_trouble_is_resized() {
    let seen = courses(course, 0..300, Harm::Trouble);
    assert!(seen.troubles_inside > 20 && seen.grown > 100, "{seen:?}");
}

/// A RAID 5 under load, and the growth of its size that is about to be requested.
fn loaded(rng: &mut Rng, seed: u64) -> (Rig, Growth) {
    let mut options = Options::new(Level::Raid5, 4, chunk_kib(8));
    (options.full_stripes, options.seed, options.checked) = (40, seed, false);
    options.defer_computes = rng.pick(&[false, true]);
    let mut rig = Rig::of(options);
    rig.order = Order::Random;
    for _ in 0..rng.below(30) {
        rig.put(rng.below(900_000) / 512 * 512, 4096);
    }
    let steps = rng.below(20) as usize;
    rig.steps(steps);
    let size = Growth::Size(Some(rig.options.data_of(0) + Sectors(160)));
    (rig, size)
}

/// A resize does not begin while a reshape waits for stripes or is being recorded, and the reverse.
#[test]
fn a_resize_and_a_reshape_do_not_meet() {
    let mut done = [0; 3];
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let (mut rig, size) = loaded(&mut rng, seed);
        let chunk = Some(chunk_kib(16));
        let chunk = Growth::Shape(ArrayShape { chunk, ..ArrayShape::default() });
        let mut both = [size, chunk];
        both.rotate_left(usize::from(rng.below(2) == 0));
        for growth in both {
            rig.admin(Verb::Grow(growth));
            let steps = rng.below(12) as usize;
            rig.steps(steps);
        }
        rig.until_idle();
        rig.forget_answers();
        rig.verify();
        let volume = rig.volume();
        let (larger, other) = (volume.size.0 > 983_040, volume.layout.unwrap().chunk.0 == 16_384);
        assert!(volume.reshape.is_none() && (larger || other), "{volume:?}");
        done[usize::from(larger) + 2 * usize::from(other) - 1] += 1;
    }
    assert!(done[0] > 20 && done[1] > 20, "{done:?}");
}

/// An array that breaks at any step of a resize stays broken, and the engine does not panic.
#[test]
fn an_array_that_breaks_while_it_is_resized_panics_nowhere() {
    let mut broken = 0;
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let (mut rig, size) = loaded(&mut rng, seed);
        rig.admin(Verb::Grow(size));
        let steps = rng.below(80) as usize;
        rig.steps(steps);
        for disk in [0, 2] {
            rig.disks[disk].faults.gone = true;
        }
        rig.put(4096, 65_536);
        rig.steps(400);
        broken += u32::from(rig.volume().array_state == "broken");
    }
    assert!(broken > 200, "{broken}");
}

#[test]
fn planted_bugs_of_resizes_are_found() {
    find_planted(course, &RESIZES);
}

#[test]
#[ignore = "thousands of courses: REACH=20000 cargo test -p weft-crash resized -- --ignored"]
fn many_courses() {
    run_many(course);
}
