//! Tests of the queues of members in front of disks: depth, order, stalls, failures, power cuts.

use crate::bugs::{hunt, script};
use crate::script::{Profile, Script};
use crate::{Order, Payload, Rig, World, chunk_kib};
use weft_engine::knobs::Knobs;
use weft_engine::knobs::SchedulerKind;
use weft_engine::mutant::Mutant;
use weft_engine::{Flags, MemberState, ReplyError, RequestOp};
use weft_units::Span;

const BLOCK: u64 = 4096;
const NEVER: Span = Span::secs(1 << 20);

/// RAID 5 of five members with a chunk of 64 KiB, which stays dirty. Every block of its first five
/// full stripes is on the disks, and none is in the stripe cache. Block 0 is on disk 0, block 16 on
/// disk 1 and so on, P on disk 4.
fn five(scheduler: SchedulerKind, queue_depth: u32) -> Rig {
    let mut rig = Rig::raid5(5, chunk_kib(64)).with(|o| {
        o.knobs = Knobs { scheduler, queue_depth, safe_mode_delay: NEVER, ..Knobs::md() };
    });
    for full_stripe in 0..5 {
        rig.store(full_stripe * (256 << 10), 256 << 10).unwrap();
    }
    rig.stop().recover();
    rig.store(6 * (256 << 10), BLOCK).unwrap();
    rig
}

/// Largest number of requests outstanding at a disk under random reads and writes.
fn most_at_once(scheduler: SchedulerKind, queue_depth: u32) -> usize {
    let most = most_of_each(&mut five(scheduler, queue_depth));
    most.into_iter().fold(0, usize::max)
}

/// Largest number of requests outstanding at each disk at any time under random reads and writes.
fn most_of_each(rig: &mut Rig) -> [usize; 5] {
    let sync = Flags { sync: true, ..Flags::NONE };
    for block in 0..40 {
        rig.plug(RequestOp::Write, (block * 7 % 64) * BLOCK, BLOCK, Payload::Tags, sync);
        rig.plug(RequestOp::Read, (64 + block * 11 % 64) * BLOCK, BLOCK, Payload::Tags, sync);
    }
    rig.settle();
    let mut most = [0; 5];
    loop {
        for (disk, most) in most.iter_mut().enumerate() {
            *most = rig.outstanding_of(disk).len().max(*most);
        }
        if !rig.step(Order::Random) {
            break;
        }
    }
    rig.finish().must();
    assert!(rig.verify() > 2500);
    most
}

#[test]
fn a_disk_has_no_more_at_once_than_the_depth_says() {
    for scheduler in SchedulerKind::ALL {
        for depth in [1, 2, 5] {
            assert_eq!(most_at_once(scheduler, depth), depth as usize, "{scheduler:?}");
        }
    }
    // Counterpart: with queue depth 0 the number is not bounded.
    assert!(most_at_once(SchedulerKind::None, 0) > 5);
}

#[test]
fn one_disk_has_a_queue_of_its_own_until_a_value_is_set_for_all() {
    let own = |rig: &Rig| -> Vec<bool> {
        rig.volume().members.iter().map(|member| member.queue_knobs.is_some()).collect()
    };
    let mut rig = five(SchedulerKind::None, 0);
    rig.set_queue(1, "queue_depth", "2").unwrap();
    rig.set_queue(1, "scheduler", "mq-deadline").unwrap();
    assert_eq!(own(&rig), [false, true, false, false, false]);
    let most = most_of_each(&mut rig);
    assert_eq!(most[1], 2);
    assert!([0, 2, 3, 4].iter().all(|disk| most[*disk] > 2), "{most:?}");
    // A value set for the volume applies to all disks; other values of disk 1 stay.
    rig.set("queue_depth", "1");
    assert_eq!(own(&rig), [false, true, false, false, false]);
    assert_eq!(most_of_each(&mut rig), [1; 5]);
    rig.set("scheduler", "none");
    rig.settle();
    assert_eq!(own(&rig), [false; 5]);
    // A knob of the array is not a knob of a disk.
    let refused = rig.set_queue(1, "rmw_level", "0");
    assert!(matches!(refused, Err(ReplyError::Invalid(text)) if text.contains("the volume's")));
    assert_eq!(own(&rig), [false; 5]);
}

/// A busy disk that answers each request soon after its dispatch does not count as stalled,
/// although requests wait longer in its queue.
#[test]
fn stalls_count_from_the_dispatch() {
    let mut rig = five(SchedulerKind::MqDeadline, 1);
    let reads = [0, 2, 4].map(|block| rig.get(block * BLOCK, BLOCK));
    for (turn, read) in reads.into_iter().enumerate() {
        let [token] = rig.outstanding_of(0)[..] else {
            panic!("one request is at the disk, turn {turn}")
        };
        rig.pass_time(Span::millis(1500));
        assert_eq!(rig.outstanding_of(0), [token], "no read went round the disk");
        assert!((1..5).all(|disk| rig.outstanding_of(disk).is_empty()), "turn {turn}");
        rig.complete(token);
        assert!(rig.take_answer(read).is_some_and(|answer| answer.is_ok()), "turn {turn}");
    }
    rig.finish().must();
}

/// A disk does not answer a write in time. Reads that wait in its queue behind the write are served
/// from other members, and are never sent to the disk.
#[test]
fn what_waits_behind_a_stalled_disk_is_read_round_it() {
    let bounded = SchedulerKind::ALL.map(|scheduler| (scheduler, 1, 1));
    for (scheduler, depth, sent) in bounded.into_iter().chain([(SchedulerKind::None, 0, 5)]) {
        let mut rig = five(scheduler, depth);
        rig.disks[0].faults.stalled = true;
        // A filled stripe needs no preread.
        let sync = Flags { sync: true, ..Flags::NONE };
        for disk in 0..4 {
            rig.plug(RequestOp::Write, (disk * 16 + 8) * BLOCK, BLOCK, Payload::Tags, sync);
        }
        rig.pass(Span::millis(1));
        let stuck = rig.outstanding_of(0);
        assert_eq!(stuck.len(), 1, "the write");
        let reads = [0, 2, 4, 6].map(|block| rig.get(block * BLOCK, BLOCK));
        assert_eq!(rig.outstanding_of(0).len(), sent, "{scheduler:?} {depth}");
        rig.pass(Span::millis(2500));
        for read in reads {
            let answer = rig.take_answer(read);
            assert!(answer.is_some_and(|answer| answer.is_ok()), "{scheduler:?} {depth}");
        }
        assert!(rig.outstanding_of(0).starts_with(&stuck));
        rig.disks[0].faults.stalled = false;
        rig.finish().must();
        assert!(rig.verify() > 2500);
    }
}

#[test]
fn what_waits_for_a_disk_that_fails_is_given_up_with_it() {
    for scheduler in SchedulerKind::ALL {
        let mut rig = five(scheduler, 1);
        rig.disks[1].faults.stalled = true;
        let sync = Flags { sync: true, ..Flags::NONE };
        let writes: Vec<_> = (0..16)
            .map(|block| {
                rig.plug(RequestOp::Write, (16 + block) * BLOCK, BLOCK, Payload::Tags, sync)
            })
            .collect();
        rig.settle();
        rig.fail_disk(1);
        rig.run(Order::Fifo);
        for write in writes {
            assert_eq!(rig.take_answer(write), Some(Ok(Vec::new())), "{scheduler:?}");
        }
        assert_eq!(rig.volume().members[1].state, MemberState::Faulty);
        rig.disks[1].faults.stalled = false;
        rig.finish().must();
        rig.remove(1);
        assert!(rig.verify() > 2500);
    }
}

/// Knobs of a queue change while requests wait in it.
#[test]
fn another_scheduler_takes_over_what_waits() {
    let mut rig = five(SchedulerKind::MqDeadline, 1);
    let sync = Flags { sync: true, ..Flags::NONE };
    for block in 0..32 {
        rig.plug(RequestOp::Write, block * BLOCK, BLOCK, Payload::Tags, sync);
    }
    rig.settle();
    let names = SchedulerKind::ALL.map(SchedulerKind::name);
    for value in names.into_iter().chain(names) {
        rig.steps(5);
        rig.set("scheduler", value);
        rig.steps(5);
        rig.set("queue_depth", if value == "none" { "2" } else { "0" });
    }
    rig.finish().must();
    assert!(rig.verify() > 2500);
}

/// Scripts with power cuts, faults, administrators' commands, and changes of schedulers and queue
/// depths.
#[test]
fn scripts_with_schedulers_keep_every_promise() {
    let (mut cuts, mut requests, mut bounded) = (0, 0, 0);
    let mut scripts = SchedulerKind::ALL.map(|kind| (kind, 0));
    for seed in 700_000..700_120 {
        let script = Script::generate(seed, Profile::QUEUES);
        let Knobs { scheduler, queue_depth, .. } = script.options.knobs;
        scripts
            .iter_mut()
            .filter(|(kind, _)| *kind == scheduler)
            .for_each(|(_, count)| *count += 1);
        bounded += u64::from(queue_depth > 0);
        let report = script.run().unwrap_or_else(|failure| panic!("{failure}"));
        cuts += report.coverage.points;
        requests += report.requests;
    }
    println!("{cuts} cuts, {requests} requests; {scripts:?}, {bounded} bounded");
    let orders = |kind| kind != SchedulerKind::None;
    assert!(scripts.iter().all(|(kind, count)| *count > 15 || !orders(*kind)), "{scripts:?}");
    assert!(bounded > 60, "{bounded} bounded");
    assert!(cuts > 200 && requests > 2000, "{cuts} cuts, {requests} requests");
}

/// Scripts with schedulers find a planted bug: a queue that does not learn that its disk has
/// completed a command.
#[test]
fn scripts_with_schedulers_find_a_queue_that_forgets() {
    let mutant = Mutant::CommandEndForgotten;
    let plant = |world: &mut World| world.plant(mutant);
    let found = hunt(mutant, Some("I13"), 20, &plant);
    let number = found.expect("one in 20 scripts shows it");
    println!("seen in script {number}");
    assert!(script(mutant, number).run().is_ok(), "the script passes without the bug");
}
