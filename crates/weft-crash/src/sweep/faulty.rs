//! Load with faults: thousands of requests while members fail one at a time, return and are
//! rebuilt.

use weft_engine::{Fault, SyncAction, Verb};
use weft_units::rng::Rng;
use weft_units::{ClientId, Span};

use super::{DEPTH, Totals, ask, members_min};
use crate::checker::parity::Bytes;
use crate::chunk_kib;
use crate::faults::{Faults, Planned};
use crate::model::Payload;
use crate::options::Options;
use crate::payload::PayloadMode;
use crate::script::{self, levels};
use crate::world::Order;
use crate::world::World;

/// Number of requests of a load with faults.
pub(super) const REQUESTS: u64 = 20_000;
/// Number of requests from the start of a fault to its end, and from its end to the start of the
/// next.
const PERIOD: u64 = 60;
const FULL_STRIPES: u64 = 16;

/// Runs the load with this number. At most one member is hurt at any time, so all promises hold.
/// `straight` selects mirrors instead of levels with parity. Returns the counts, or the description
/// of a failure.
pub(super) fn faulty(number: u64, straight: bool) -> Result<Totals, String> {
    let mut rng = Rng::new(number ^ 0xfa_17ed);
    let level = rng.pick(&levels::PARITY);
    let members = rng.pick(&[3, 4, 4, 5]).max(members_min(level));
    let mut options = Options::new(level, members, chunk_kib(rng.pick(&[16, 64])));
    options.payload = PayloadMode::Tags;
    options.seed = number;
    options.full_stripes = FULL_STRIPES;
    options.torn_writes = true;
    options.discards = rng.percent(50);
    let order = rng.pick(&[Order::Fifo, Order::Lifo, Order::Random]);
    if straight {
        script::straight::draw(number, true, &mut options);
    }
    let members = options.members;
    let mut world = World::new(options);
    let blocks = world.size() / 4096;
    let mut hurt = None;
    for number in 0..REQUESTS {
        if number % PERIOD == 0 {
            match hurt.take() {
                None => {
                    let disk = rng.index(members);
                    hurt_one(&mut world, disk, &mut rng);
                    hurt = Some(disk);
                }
                Some(disk) => heal(&mut world, disk, order)?,
            }
        }
        let (op, range, flags) = ask(&mut rng, blocks, 15);
        world.request(ClientId(1 + (number % 4) as u32), op, range, Payload::Tags, flags);
        world.settle();
        while world.unanswered() >= DEPTH && world.failure().is_none() {
            if !world.step(order) && !world.wake() {
                return Err(format!("{} requests are never answered", world.unanswered()));
            }
        }
        if let Some(violation) = world.failure() {
            return Err(format!("request {number}: {violation}"));
        }
    }
    if let Some(disk) = hurt {
        heal(&mut world, disk, order)?;
    }
    world.run(order);
    let requests = world.requests_answered();
    let verified = world.verify(Order::Fifo);
    world.idle(Span::secs(60));
    let scrub = world.scrub(Bytes::Visible);
    if let Some(violation) = world.failure() {
        return Err(violation.to_string());
    }
    if let Some(column) = scrub.wrong.first() {
        return Err(format!("at rest the parity or copies of column {column} are wrong"));
    }
    if scrub.columns == 0 || requests < REQUESTS {
        return Err(format!("{requests} requests answered, {} columns compared", scrub.columns));
    }
    let mut totals = Totals {
        requests,
        faulty_requests: requests,
        verified,
        scrubbed: scrub.written,
        ..Totals::default()
    };
    world.disks.iter().for_each(|disk| totals.io_errors.merge(disk.stats.io_errors));
    Ok(totals)
}

/// Plants a random fault of a member.
fn hurt_one(world: &mut World, disk: usize, rng: &mut Rng) {
    let first = world.array.data_offset[disk].0;
    let columns = world.array.layout.member_size().0;
    let operations = world.disks[disk].operations();
    let faults = &mut world.disks[disk].faults;
    match rng.below(8) {
        0 => faults.flush_error = true,
        1 => faults.no_space = true,
        2 => faults.ends_at = Some(rng.pick(&[0, first, first + columns / 2])),
        3 => faults.gone = true,
        4 => faults.bad_reads.extend((0..8).map(|_| first + rng.below(columns))),
        5 | 6 => faults.bad_writes.extend((0..64).map(|_| first + rng.below(columns))),
        _ => {
            let how = Planned::Once(rng.pick(&[Fault::Io, Fault::Io, Fault::NoSpace]));
            faults.schedule.extend((0..8).map(|_| (operations + rng.below(40), how)));
        }
    }
}

/// Ends the faults of a disk. If the engine failed the member, the disk is removed, added again and
/// rebuilt. If some of its blocks were recorded as bad, a repair rewrites them. Returns an error if
/// a member or a block is still missing afterwards.
fn heal(world: &mut World, disk: usize, order: Order) -> Result<(), String> {
    world.disks[disk].faults = Faults { tears: true, ..Faults::default() };
    world.run(order);
    if world.snapshot().volumes[0].degraded > 0 {
        if !world.is_out(disk) {
            let member = world.member_of(disk);
            world.admin(Verb::Remove(member));
            world.run(order);
        }
        world.add(disk, None);
        world.run(order);
        for _ in 0..200 {
            if world.snapshot().volumes[0].degraded == 0 || world.failure().is_some() {
                break;
            }
            world.idle(Span::millis(500));
        }
    }
    let bad = |world: &World| {
        let snapshot = world.snapshot();
        snapshot.volumes[0].members.iter().map(|member| member.bad_blocks.len()).sum::<usize>()
    };
    if bad(world) > 0 && world.failure().is_none() {
        world.admin(Verb::SyncAction(SyncAction::Repair));
        world.run(order);
    }
    match (world.failure(), world.snapshot().volumes[0].degraded, bad(world)) {
        (Some(violation), ..) => Err(violation.to_string()),
        (None, 0, 0) => Ok(()),
        (None, 0, bad) => Err(format!("{bad} ranges of bad blocks are left after a repair")),
        (None, missing, _) => {
            Err(format!("{missing} members are missing after disk {disk} joined"))
        }
    }
}
