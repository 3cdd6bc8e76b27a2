//! Tests of members with drives: models of disks determine when requests are done.

use crate::bugs;
use crate::script::{Profile, Script};
use crate::{Logged, Options, Order, Payload, World, chunk_kib};
use weft_engine::mutant::Mutant;
use weft_engine::{Flags, RequestOp};
use weft_ondisk::Level;
use weft_sim::drive::{Access, Command, Drive, models};
use weft_units::{ByteRange, ClientId, Sectors, Span, Time};

fn names() -> impl Iterator<Item = &'static str> + Clone {
    models().iter().map(|(name, _)| *name)
}

#[test]
fn scripts_of_every_profile_keep_their_promises_on_drives() {
    let (mut requests, mut points) = (0, 0);
    for ((profile, name), number) in Profile::every().zip(names().cycle()).zip(0..) {
        for drives in [vec![name], names().cycle().skip(number).take(4).collect()] {
            let mut script = Script::generate(500_000 + number as u64, profile);
            script.options.drives = drives;
            let report = script.run().unwrap_or_else(|failure| panic!("{failure}"));
            requests += report.requests;
            points += report.coverage.points + report.kills;
        }
    }
    assert!(requests > 10_000 && points > 200, "{requests} requests, {points} points");
}

/// A read takes exactly as long as the same command on a drive outside of a world, and longer on a
/// hard disk than on flash.
#[test]
fn a_request_takes_the_time_of_its_drive() {
    for name in names() {
        let mut options = Options::new(Level::Raid1, 2, chunk_kib(64));
        (options.drives, options.logged, options.seed) = (vec![name], true, 7);
        let mut world = World::new(options);
        let sync = Flags { sync: true, ..Flags::NONE };
        world.run(Order::Fifo);
        world.log.clear();
        let range = ByteRange::new(world.size() / 2, 4096);
        let begun = world.now;
        world.request(ClientId(1), RequestOp::Read, range, Payload::Zeros, sync);
        world.run(Order::Fifo);
        let took = world.now.since(begun);
        let Logged::Read { disk, at, count, .. } = world.log[0] else { panic!("{:?}", world.log) };
        let mut drive = Drive::of_member(&Drive::model(name).unwrap(), 7, disk as u64);
        let (first, length) = (Sectors(at), Sectors(count));
        drive.submit(begun, Command { tag: 0, access: Access::Read, first, length });
        let mut done = Vec::new();
        let mut end = begun;
        while done.is_empty() {
            end = drive.next_event().unwrap();
            drive.advance(end, &mut done);
        }
        assert_eq!(took, end.since(begun), "{name}");
        let arm = drive.rotational();
        assert_eq!(took > Span::millis(2), arm, "{name}: {took:?}");
    }
}

/// Bugs of each kind (order, superblocks, bits, parity) are found with drives as they are without
/// drives.
#[test]
fn planted_bugs_are_found_on_drives() {
    let drives = ["hdd-2011-7200", "ssd-sata-2020-slowflush", "ssd-sata-dc-2019-wc0"];
    for mutant in [
        Mutant::AckBeforeSuperblock,
        Mutant::BitClearedEarly,
        Mutant::DispatchedTwice,
        Mutant::FlushSkipsOneMember,
        Mutant::MissedWriteNotRecorded,
        Mutant::RmwNewAsOld,
    ] {
        let found = (0..250).find(|number| {
            let mut script = bugs::script(mutant, *number);
            script.options.drives = drives.to_vec();
            let plant = |world: &mut World| world.plant(mutant);
            let found = script.run_with(&plant).is_err();
            assert!(!found || script.run().is_ok(), "{mutant:?}: {number} fails without it");
            found
        });
        assert!(found.is_some(), "{mutant:?} is missed");
        println!("{mutant:?}: script {found:?}");
    }
}

/// A timer of the engine fires in time while a drive works.
#[test]
fn timers_fire_while_a_drive_works() {
    let mut options = Options::new(Level::Raid1, 2, chunk_kib(64));
    options.drives = vec!["hdd-2007-7200"];
    let mut world = World::new(options);
    world.run(Order::Fifo);
    let sync = Flags { sync: true, ..Flags::NONE };
    // Requests that take milliseconds each follow one another for more than a second.
    let begun = world.now;
    let mut late = Span::ZERO;
    for turn in 0..100 {
        let range = ByteRange::new(turn * 37 % 64 * 4096, 4096);
        world.request(
            ClientId(1),
            RequestOp::Write,
            range,
            Payload::Tags,
            Flags { fua: true, ..sync },
        );
        world.settle();
        while world.unanswered() > 0 {
            let due = world.next_wake().unwrap_or(Time(u64::MAX));
            assert!(world.step(Order::Fifo));
            late = late.max(Span(world.now.0.saturating_sub(due.0)));
        }
    }
    let took = world.now.since(begun);
    assert!(took > Span::millis(300), "{took:?}");
    assert_eq!(late, Span::ZERO);
    assert_eq!(world.failure(), None);
}
