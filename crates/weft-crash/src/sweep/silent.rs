//! Silent faults: lost writes (F3), misdirected writes (F4), and regions with old content (F7).
//!
//! Silent faults are beyond weft's promises, because md keeps no checksums of data. However,
//! `check` must count every stripe in which data and parity disagree, and on RAID 6 name the wrong
//! member. (The member is compared with the one that `weft-parity` computes here from the media.)
//! `correct` then restores the wrong strips, and must not change a stripe in which two strips are
//! wrong.

use std::collections::BTreeMap;

use weft_engine::{Flags, Mismatches, RequestOp, SyncAction, Verb};
use weft_parity::{Located, Parity};
use weft_units::rng::Rng;
use weft_units::{ByteRange, ClientId, Sectors, Slot, Span};

use super::Totals;
use crate::chunk_kib;
use crate::disk::Disk;
use crate::model::Payload;
use crate::options::Options;
use crate::script::levels;
use crate::world::Order;
use crate::world::World;

/// Numbers of silent faults that were planted, and of stripes in which they were found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Silent {
    /// Lost writes: the member kept its old content.
    pub lost: u64,
    /// Writes that were stored at another place of the same member.
    pub elsewhere: u64,
    /// Writes that were stored on another member.
    pub other_member: u64,
    /// Regions of a member that have old content.
    pub stale: u64,
    /// Stripes in which one member is wrong. `check` must count all of them.
    pub counted: u64,
    /// Stripes of RAID 6 among those counted in `counted`. `check` must name the wrong member of
    /// each.
    pub located: u64,
    /// Stripes that `correct` restored, which must be all stripes counted in `located`.
    pub corrected: u64,
    /// Stripes with two wrong strips, which `correct` must leave unchanged.
    pub left: u64,
}

sums!(Silent: lost, elsewhere, other_member, stale, counted, located, corrected, left);

/// Sectors of a stripe on each member.
const STRIPE_SECTORS: u64 = 8;

/// Writes an array twice, plants silent faults, each in stripes of its own, and verifies that a
/// check finds them. A planted fault leaves the disks as if a write of the second pass had been
/// lost, misdirected or overwritten with older content. Returns the counts, or the description of a
/// failure.
pub(super) fn silent(number: u64) -> Result<Totals, String> {
    let mut rng = Rng::new(number ^ 0x51_1e47);
    let level = rng.pick(&levels::PARITY_LOCATED);
    let members = rng.pick(&[4, 5, 6]);
    let options = Options { seed: number, ..Options::new(level, members, chunk_kib(8)) };
    let mut world = World::new(options);
    write_all(&mut world)?;
    let before = world.disks.clone();
    write_all(&mut world)?;
    if check(&mut world)?.0 != 0 {
        return Err("check counts stripes before anything is planted".to_owned());
    }
    let clean = world.disks.clone();
    let mut silent = Silent::default();
    // Number of the wrong disk, by the first column of its stripe.
    let mut wrong: BTreeMap<u64, usize> = BTreeMap::new();
    let mut stripes: Vec<u64> = (0..world.array.layout.member_size().0 / STRIPE_SECTORS).collect();
    rng.shuffle(&mut stripes);
    let mut free = stripes.into_iter().map(|stripe| stripe * STRIPE_SECTORS);
    for _ in 0..1 + rng.below(6) {
        let disk = rng.index(members);
        let (Some(column), Some(other)) = (free.next(), free.next()) else { break };
        let offset = |disk: usize| world.array.data_offset[disk].0;
        let (at, count) = (rng.below(STRIPE_SECTORS), 1 + rng.below(STRIPE_SECTORS));
        let count = count.min(STRIPE_SECTORS - at);
        let old = before[disk].peek(offset(disk) + column + at, count);
        let new = world.disks[disk].peek(offset(disk) + column + at, count);
        let place = offset(disk) + column + at;
        // Parity may be unchanged by the second pass; the loss of its write is then no fault.
        if old == new {
            continue;
        }
        let mut strays = None;
        match rng.below(4) {
            0 => silent.lost += 1,
            1 => {
                silent.elsewhere += 1;
                strays = Some((disk, offset(disk) + other + at));
            }
            2 => {
                let neighbour = (disk + 1) % members;
                silent.other_member += 1;
                strays = Some((neighbour, offset(neighbour) + other + at));
            }
            _ => silent.stale += 1,
        }
        world.disks[disk].poke(place, &old);
        wrong.insert(column, disk);
        if let Some((stray, at)) = strays
            && world.disks[stray].peek(at, count) != new
        {
            world.disks[stray].poke(at, &new);
            wrong.insert(other, stray);
        }
    }
    let mut silent = found(&mut world, &wrong, silent)?;
    if level.parity_count() == 2 {
        correct(&mut world, &wrong, &clean, &mut silent)?;
    }
    Ok(Totals { silent, ..Totals::default() })
}

/// Corrects the planted faults, and verifies that a stripe with two wrong strips is left unchanged.
/// The two strips have a wrong byte each, at different offsets. (Two strips with the same error
/// could look like one wrong third strip.) Returns an error if `correct` did anything else.
fn correct(
    world: &mut World,
    wrong: &BTreeMap<u64, usize>,
    clean: &[Disk],
    silent: &mut Silent,
) -> Result<(), String> {
    stop(world);
    let mut columns = (0..world.array.layout.member_size().0).step_by(STRIPE_SECTORS as usize);
    let both = columns.find(|column| !wrong.contains_key(column));
    let both = both.ok_or("no stripe is left to make wrong twice")?;
    let places = [0, 1].map(|disk: usize| {
        let at = world.array.data_offset[disk].0 + both;
        let mut content = clean[disk].peek(at, STRIPE_SECTORS);
        content[disk] ^= 0x5a;
        (disk, at, content)
    });
    for (disk, place, content) in &places {
        world.disks[*disk].poke(*place, content);
    }
    let (counted, left) = compare(world, SyncAction::Correct)?;
    let corrected = (counted / STRIPE_SECTORS).saturating_sub(left.not_located);
    if (corrected, left.not_located, left.by_member.len()) != (wrong.len() as u64, 1, 0) {
        return Err(format!(
            "correct counts {counted} and leaves {left:?}, planted were {wrong:?} and two at {both}"
        ));
    }
    for (column, disk) in wrong {
        let place = world.array.data_offset[*disk].0 + column;
        if world.disks[*disk].peek(place, STRIPE_SECTORS)
            != clean[*disk].peek(place, STRIPE_SECTORS)
        {
            return Err(format!("disk {disk} is not corrected at {column}"));
        }
    }
    if places.iter().any(|(disk, at, it)| world.disks[*disk].peek(*at, STRIPE_SECTORS) != *it) {
        return Err(format!("two strips are wrong at {both}, and one was written"));
    }
    let (left, _) = check(world)?;
    if left != STRIPE_SECTORS {
        return Err(format!("after correct mismatch_cnt is {left}, expected {STRIPE_SECTORS}"));
    }
    (silent.corrected, silent.left) = (corrected, 1);
    Ok(())
}

/// Verifies that a check counts every wrong stripe, and on RAID 6 names the wrong disk. `wrong`
/// maps the first column of each wrong stripe to that disk. Returns `silent` with the stripes that
/// were found, or an error if the check missed any.
fn found(
    world: &mut World,
    wrong: &BTreeMap<u64, usize>,
    mut silent: Silent,
) -> Result<Silent, String> {
    let (counted, named) = check(world)?;
    if counted != wrong.len() as u64 * STRIPE_SECTORS {
        let planted = wrong.len() as u64 * STRIPE_SECTORS;
        return Err(format!(
            "mismatch_cnt is {counted}, planted were {planted} sectors: {wrong:?}"
        ));
    }
    silent.counted = wrong.len() as u64;
    if world.options.parities() > 1 {
        for (column, disk) in wrong {
            let found = culprit(world, *column);
            if found != Some(*disk) {
                return Err(format!("stripe at {column}: located {found:?}, planted disk {disk}"));
            }
            let named = named.first.iter().find(|mismatch| mismatch.sector.0 == *column);
            let named = named.and_then(|it| it.wrong).map(|it| usize::from(it.member.0));
            if named != Some(*disk) {
                return Err(format!(
                    "stripe at {column}: check names {named:?}, planted disk {disk}"
                ));
            }
            silent.located += 1;
        }
    } else if named.not_located != silent.counted {
        return Err(format!("with one parity check names members: {named:?}"));
    }
    Ok(silent)
}

/// Writes every sector, and lets two seconds pass. Returns the violation that a checker has
/// reported, if any.
fn write_all(world: &mut World) -> Result<(), String> {
    let size = world.size();
    let flags = Flags { sync: true, ..Flags::NONE };
    for start in (0..size).step_by(64 << 10) {
        let range = ByteRange::new(start, (64 << 10).min(size - start));
        world.request(ClientId(1), RequestOp::Write, range, Payload::Tags, flags);
        world.run(Order::Fifo);
    }
    world.idle(Span::secs(2));
    world.failure().map_or(Ok(()), |violation| Err(violation.to_string()))
}

/// Restarts the engine so that its caches are empty, and checks the whole array. Returns
/// `mismatch_cnt` and the mismatches, or an error if the check does not end.
fn check(world: &mut World) -> Result<(u64, Mismatches), String> {
    stop(world);
    compare(world, SyncAction::Check)
}

fn stop(world: &mut World) {
    world.admin(Verb::Stop);
    world.run(Order::Fifo);
    world.stopped();
}

fn compare(world: &mut World, action: SyncAction) -> Result<(u64, Mismatches), String> {
    world.start(&weft_engine::assemble::Options::default()).map_err(|it| it.to_string())?;
    world.admin(Verb::SyncAction(action));
    world.run(Order::Fifo);
    world.idle(Span::secs(60));
    let volume = &world.snapshot().volumes[0];
    match world.failure() {
        Some(violation) => Err(violation.to_string()),
        None if volume.sync_action != SyncAction::Idle => Err(format!("{action:?} does not end")),
        None => Ok((volume.mismatch_cnt, volume.mismatches.clone())),
    }
}

/// Number of the disk with a wrong strip, if one wrong strip explains the error in a stripe; `None`
/// otherwise.
fn culprit(world: &World, column: u64) -> Option<usize> {
    let geometry = world.array.geometry();
    let placement = geometry.placement(geometry.full_stripe_of(Sectors(column)));
    let disk = |slot: Slot| world.record.in_sync(slot);
    let read = |slot: Slot| {
        let disk = disk(slot)?;
        Some(world.disks[disk].peek(column + world.array.data_offset[disk].0, STRIPE_SECTORS))
    };
    let slots: Vec<Slot> = (0..geometry.members())
        .map(Slot)
        .filter(|slot| placement.data_index(*slot).is_some())
        .collect();
    let blocks: Vec<Vec<u8>> = slots.iter().filter_map(|slot| read(*slot)).collect();
    let data: Vec<(u8, &[u8])> = slots
        .iter()
        .map(|slot| placement.exponent(*slot))
        .zip(blocks.iter().map(|it| &it[..]))
        .collect();
    let q = placement.q?;
    match Parity::detect().locate(&data, &read(placement.p)?, &read(q)?) {
        Located::Data(index) => disk(slots[index]),
        Located::P => disk(placement.p),
        Located::Q => disk(q),
        Located::Clean | Located::Unknown => None,
    }
}
