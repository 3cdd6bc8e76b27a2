//! Tests of reads of mirrors: which member reads, and the correction of what cannot be read.

use super::*;

#[test]
fn statement_34_reads_are_balanced_and_agree_where_copies_may_differ() {
    // As Linux 6.12: a write goes to each member; single reads and reads that follow each other go
    // to the first member, four reads at once alternate.
    let mut clean = Machine::new(array(Level::Raid1, None, 2));
    clean.ask(RequestOp::Write, 0, 8, 5);
    assert_eq!(clean.written(), BTreeMap::from([(0, 8), (1, 8)]));
    for start in [0, 8, 16, 4000, 800] {
        assert_eq!(clean.read_at_once(&[start]), [0], "{start}");
    }
    let apart = [1600, 2400, 3200, 4800];
    assert_eq!(clean.read_at_once(&apart), [0, 1, 0, 1]);
    assert_eq!(clean.read_at_once(&[4808]), [1], "the member that read what comes before");
    // Before a resync, all reads go to the first member, however many there are.
    let mut unclean = array(Level::Raid1, None, 2);
    unclean.resync_from = Some(Sectors::ZERO);
    let mut unclean = Machine::new(unclean);
    assert_eq!(unclean.read_at_once(&apart), [0; 4]);
    assert_eq!(unclean.volume().resync_from, None, "the resync has ended");
    assert_eq!(unclean.read_at_once(&apart), [0, 1, 0, 1]);
}

#[test]
fn statement_38_raid10_reads_are_balanced_within_the_copies_of_a_chunk() {
    // With idle members, the first copy is read, as in Linux 6.12.
    for (layout, expected) in [(0x102, [0, 2, 0, 2]), (0x201, [0, 1, 2, 3])] {
        let mut machine = Machine::new(array(Level::Raid10, Some(layout), 4));
        for (chunk, member) in (0..).zip(expected) {
            machine.log.clear();
            machine.ask(RequestOp::Read, chunk * CHUNK_SECTORS, 8, 0);
            let sector = chunk / if layout == 0x102 { 2 } else { 4 } * CHUNK_SECTORS;
            assert_eq!(machine.log, [(member, sector, 8, false)], "{layout:#x}");
        }
        // Several reads at once, all in the first chunk, go to both of its members.
        machine.log.clear();
        for start in [8, 24, 40, 56] {
            let request = machine.request(RequestOp::Read, start, 8);
            machine.engine.handle(machine.now, Input::Client(request));
        }
        machine.settle();
        let by_member = |member| machine.log.iter().filter(|it| it.0 == member).count();
        assert_eq!([0, 1, 2, 3].map(by_member), [2, 2, 0, 0], "{layout:#x}");
    }
}

#[test]
fn a_read_that_passed_is_given_up_with_its_member_and_keeps_its_memory() {
    let mut machine = Machine::new(array(Level::Raid1, None, 2));
    let request = machine.request(RequestOp::Read, 800, 8);
    let (tag, frames) = (request.tag.0, request.frames);
    machine.tell(Input::Client(request));
    let Some(Output::Submit { token, member: MemberIndex(0), .. }) = machine.outputs.pop_front()
    else {
        panic!("it is read of the first member")
    };
    machine.command(Verb::Fail(MemberIndex(0)));
    assert_eq!(
        machine.replies.get(&tag),
        Some(&Err(ReplyError::Stalled)),
        "it is to be asked again"
    );
    machine.tell(Input::Done { token, result: Err(Fault::Aborted) });
    let released = |output: &Output| matches!(output, Output::Release(run) if *run == frames);
    assert!(machine.outputs.iter().any(released), "not before its member has ended it");
    assert_eq!(machine.volume().requests_active, 0);
}

#[test]
fn reads_that_follow_each_other_are_merged() {
    let mut machine = Machine::new(array(Level::Raid1, None, 2));
    for start in [0, 8, 16] {
        let request = machine.request(RequestOp::Read, start, 8);
        machine.engine.handle(machine.now, Input::Client(request));
    }
    machine.settle();
    let read: Vec<_> = machine.log.iter().map(|it| (it.1, it.2)).collect();
    assert_eq!(read, [(0, 24)]);
}

#[test]
fn write_mostly_members_are_written_and_read_only_for_want_of_others() {
    let mostly = |set: &mut Vec<Candidate>| {
        let Ok(Superblock::V1(superblock)) = set[0].superblock.as_deref_mut() else { panic!() };
        superblock.devflags |= Super1::WRITE_MOSTLY;
    };
    let assembly = assembled(Level::Raid1, None, 2, mostly, &Options::default());
    let mut machine = Machine::new(assembly);
    machine.ask(RequestOp::Write, 0, 8, 5);
    assert_eq!(machine.written(), BTreeMap::from([(0, 8), (1, 8)]));
    assert_eq!(machine.read_at_once(&[0, 800, 1600]), [1; 3]);
    machine.bad.insert((1, 2));
    assert_eq!(machine.ask(RequestOp::Read, 0, 8, 0), [5; 8]);
    machine.command(Verb::Fail(MemberIndex(1)));
    assert_eq!(machine.read_at_once(&[0, 800]), [0; 2]);
}

#[test]
fn what_a_member_cannot_read_is_read_elsewhere_written_again_and_read_back() {
    let mut machine = Machine::new(array(Level::Raid1, None, 2));
    machine.ask(RequestOp::Write, 0, 512, 5);
    machine.log.clear();
    machine.bad.insert((0, 9));
    assert_eq!(machine.ask(RequestOp::Read, 8, 8, 0), [5; 8]);
    assert!(machine.bad.is_empty(), "it was written");
    // md: R(0) fails, R(1); R(0) fails, R(1), W(0), R(0).
    let expected = [
        (0, 8, 8, false),
        (1, 8, 8, false),
        (0, 8, 8, false),
        (1, 8, 8, false),
        (0, 8, 8, true),
        (0, 8, 8, false),
    ];
    assert_eq!(machine.log, expected);
    let corrected = |notice: &Notice| {
        matches!(notice, Notice::ReadErrorCorrected { member: MemberIndex(0), at, sectors }
            if *at == Sectors(DATA_OFFSET + 8) && *sectors == Sectors(8))
    };
    assert!(machine.notices.iter().any(corrected), "{:?}", machine.notices);
    // Data that a member does not keep is recorded as bad, and read from the other member.
    machine.stubborn = true;
    machine.bad.insert((1, 100));
    machine.bad.insert((0, 200));
    assert_eq!(machine.ask(RequestOp::Read, 200, 1, 0), [5]);
    let volume = machine.volume();
    let bad = |member: usize| volume.members[member].bad_blocks.clone();
    assert_eq!((bad(0), bad(1)), (vec![SectorRange::new(DATA_OFFSET + 200, 8)], vec![]));
    assert!(volume.members.iter().all(|it| it.state == MemberState::InSync));
    machine.log.clear();
    assert_eq!(machine.ask(RequestOp::Read, 200, 1, 0), [5]);
    assert_eq!(machine.log, [(1, 200, 1, false)]);
}

/// A client that has read the second copy must not read the first copy later. Where the copies are
/// equal, a read error that was temporary needs no write.
#[test]
fn where_copies_may_differ_what_was_read_replaces_the_copy_that_failed_even_for_a_moment() {
    for (from, expected) in [(Some(Sectors::ZERO), 2), (None, 1)] {
        let mut assembly = array(Level::Raid1, None, 2);
        assembly.resync_from = from;
        let mut machine = Machine::new(assembly);
        machine.command(Verb::SyncAction(SyncAction::Frozen));
        (machine.members[0][9], machine.members[1][9]) = (1, 2);
        assert_eq!(machine.ask(RequestOp::Read, 9, 1, 0), [1], "the first copy");
        machine.temporary = true;
        machine.bad.insert((0, 9));
        machine.written();
        assert_eq!(machine.ask(RequestOp::Read, 9, 1, 0), [2], "the second one");
        assert_eq!(machine.ask(RequestOp::Read, 9, 1, 0), [expected], "{from:?}");
        let written = machine.written();
        assert_eq!(written, BTreeMap::from_iter(from.map(|_| (0, 1))), "{from:?}");
    }
}

#[test]
fn blocks_of_4_kib_are_corrected() {
    let mut machine = Machine::new(array(Level::Raid1, None, 2));
    machine.ask(RequestOp::Write, 0, 64, 5);
    machine.bad.insert((0, 9));
    assert_eq!(machine.ask(RequestOp::Read, 9, 2, 0), [5; 2]);
    let corrects = |it: &&(u16, u64, u64, bool)| it.0 == 0 && it.3 && it.2 < 64;
    let corrected: Vec<_> = machine.log.iter().filter(corrects).collect();
    assert_eq!(corrected, [&(0, 8, 8, true)]);
}

#[test]
fn the_only_copy_differs_from_none() {
    let mut machine = Machine::new(array(Level::Raid1, None, 2));
    machine.command(Verb::SyncAction(SyncAction::Frozen));
    machine.command(Verb::Fail(MemberIndex(1)));
    machine.fails.insert((0, true), Fault::Io);
    machine.ask(RequestOp::Write, 0, 8, 1);
    assert_eq!(machine.replies.get(&machine.tag), Some(&Err(ReplyError::Io)));
    assert_eq!(machine.volume().resync_from, None);
}

/// Each part of a correction has memory for a unit of 64 KiB, and the member requests of the parts
/// are merged.
#[test]
fn a_long_range_that_cannot_be_read_is_corrected_in_parts() {
    let mut machine = Machine::new(array(Level::Raid1, None, 2));
    machine.ask(RequestOp::Write, 0, 512, 5);
    machine.bad.insert((0, 9));
    machine.log.clear();
    assert_eq!(machine.ask(RequestOp::Read, 8, 136, 0), [5; 136]);
    let written: Vec<_> = machine.log.iter().filter(|request| request.3).collect();
    assert_eq!(written, [&(0, 8, 136, true)]);
    assert!(machine.bad.is_empty());
}

/// Reads of 4 KiB that follow each other are merged, and there is no other copy.
#[test]
fn of_reads_that_were_merged_only_the_one_with_the_bad_sector_fails() {
    let mut machine = Machine::new(array(Level::Raid1, None, 2));
    machine.ask(RequestOp::Write, 0, 64, 5);
    machine.command(Verb::Fail(MemberIndex(1)));
    machine.bad.insert((0, 9));
    machine.log.clear();
    let requests: Vec<ClientRequest> =
        [0, 8, 16, 24].map(|start| machine.request(RequestOp::Read, start, 8)).into();
    for request in &requests {
        machine.engine.handle(machine.now, Input::Client(*request));
    }
    machine.settle();
    assert_eq!(machine.log[0], (0, 0, 32, false), "they are one request first");
    let fails = |request: &ClientRequest| machine.replies[&request.tag.0].is_err();
    let failed: Vec<bool> = requests.iter().map(fails).collect();
    assert_eq!(failed, [false, true, false, false]);
}

#[test]
fn a_read_that_no_member_can_give_as_a_whole_is_pieced_together() {
    let mut machine = Machine::new(array(Level::Raid1, None, 2));
    for block in 0..64 {
        machine.ask(RequestOp::Write, block * 8, 8, block as u8);
    }
    machine.bad.extend([(0, 9), (0, 300), (1, 100), (1, 500)]);
    let expected: Vec<u8> = (8_u64..512).map(|sector| (sector / 8) as u8).collect();
    assert_eq!(machine.ask(RequestOp::Read, 8, 504, 0xff), expected);
    assert_eq!(machine.bad, BTreeSet::from([(1, 100), (1, 500)]), "unread sectors stay bad");
    machine.bad.clear();
    assert_eq!(read_behind(&mut machine, 504), expected);
    // When both lack the same block, the client gets the error, and both stay.
    machine.bad.extend([(0, 9), (1, 10)]);
    machine.ask(RequestOp::Read, 0, 512, 0xff);
    assert_eq!(machine.replies[&machine.tag], Err(ReplyError::Io));
    assert_eq!(machine.volume().degraded, 0);
    machine.bad.clear();
    assert_eq!(read_behind(&mut machine, 8), [1; 8]);
}

/// Reads `sectors` from sector 8 on, behind a read of the first sectors, so that the read does not
/// pass to a member unchanged. Asserts that no correction is left afterwards.
fn read_behind(machine: &mut Machine, sectors: u64) -> Vec<u8> {
    machine.ask(RequestOp::Read, 0, 8, 0xff);
    machine.log.clear();
    let content = machine.ask(RequestOp::Read, 8, sectors, 0xff);
    assert_eq!(machine.log.len(), 1, "{:?}", machine.log);
    content
}

#[test]
fn where_copies_may_differ_only_what_the_first_lacks_is_another_ones() {
    let mut assembly = array(Level::Raid1, None, 2);
    assembly.resync_from = Some(Sectors::ZERO);
    let mut machine = Machine::new(assembly);
    machine.scatter();
    machine.command(Verb::SyncAction(SyncAction::Frozen));
    let first = machine.volume().resync_from.expect("it was stopped").0;
    let (at, first_copy, second) = (first as usize, machine.members[0].clone(), 1);
    machine.members[second][at..].fill(0xdd);
    machine.bad.insert((0, first + 77));
    let read = machine.ask(RequestOp::Read, first, 128, 0);
    let differ: Vec<usize> = (0..128).filter(|nth| read[*nth] != first_copy[at + nth]).collect();
    assert_eq!(differ, [77]);
    assert_eq!(read[77], 0xdd);
    // The copies stay equal to the one that was read.
    assert_eq!(machine.ask(RequestOp::Read, first, 128, 0), read);
    assert!(machine.bad.is_empty());
}

#[test]
fn a_member_without_space_is_not_read_until_it_has_what_it_missed() {
    let mut machine = Machine::new(array(Level::Raid1, None, 2));
    machine.ask(RequestOp::Write, 0, 8, 1);
    machine.fails.insert((0, true), Fault::NoSpace);
    machine.ask(RequestOp::Write, 0, 8, 2);
    assert_eq!((machine.members[0][0], machine.members[1][0]), (1, 2));
    assert_eq!(machine.ask(RequestOp::Read, 0, 8, 0), [2; 8]);
    machine.fails.clear();
    machine.pass(60);
    assert_eq!((machine.members[0][..8].to_vec(), machine.bits()), (vec![2; 8], None));
    assert_eq!(machine.states(), [MemberState::InSync; 2]);
}
