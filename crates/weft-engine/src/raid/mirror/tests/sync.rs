//! Tests of resync, recovery, check and repair of mirrors.

use super::*;

#[test]
fn statement_43_a_resync_makes_every_copy_the_first_one_and_a_check_agrees() {
    // RAID 1 reads one copy and writes the others; RAID 10 compares, and writes what differs.
    let cases = [
        (Level::Raid1, None, 2, SIZE),
        (Level::Raid1, None, 3, 2 * SIZE),
        (Level::Raid10, None, 4, 2 * SIZE),
        (Level::Raid10, None, 3, SIZE / CHUNK_SECTORS * 3 / 2 * CHUNK_SECTORS),
        (Level::Raid10, Some(0x201), 4, 2 * SIZE),
        (Level::Raid10, Some(0x1_0201), 5, SIZE * 5 / 2),
    ];
    for (level, layout, members, copied) in cases {
        let mut assembly = array(level, layout, members);
        assembly.resync_from = Some(Sectors::ZERO);
        let mut machine = Machine::new(assembly);
        machine.scatter();
        let before = machine.members.clone();
        machine.settle();
        let volume = machine.volume();
        assert_eq!(volume.resync_from, None, "{level} {layout:?}");
        assert_eq!(machine.written().values().sum::<u64>(), copied, "{level} {layout:?}");
        if level == Level::Raid1 {
            let same = |content: &Vec<u8>| content[..SIZE as usize] == before[0][..SIZE as usize];
            assert!(machine.members.iter().all(same));
            assert_eq!(volume.mismatch_cnt, 0, "nothing is compared");
        } else {
            assert_eq!(volume.mismatch_cnt, volume.size.sectors_floor().0, "{layout:?}");
        }
        machine.command(Verb::SyncAction(SyncAction::Check));
        let volume = machine.volume();
        assert_eq!((volume.sync_action, volume.mismatch_cnt), (SyncAction::Idle, 0));
        let passed = volume.sync_completed.expect("a check ran").0;
        assert_eq!(passed, volume.size.sectors_floor(), "all of it was looked at");
        assert!(machine.written().is_empty(), "a check writes nothing");
    }
}

#[test]
fn a_check_counts_what_differs_and_a_repair_mends_it() {
    let mut machine = Machine::new(array(Level::Raid1, None, 3));
    for (member, sector) in [(1, 5), (2, 1000), (2, 1001), (1, SIZE - 1)] {
        machine.members[member][sector as usize] = 9;
    }
    machine.command(Verb::SyncAction(SyncAction::Check));
    let volume = machine.volume();
    assert_eq!(volume.mismatch_cnt, 3 * 128, "units, as md counts");
    assert_eq!(volume.mismatches.by_member, [(MemberIndex(1), 2), (MemberIndex(2), 1)]);
    assert!(machine.written().is_empty());
    machine.command(Verb::SyncAction(SyncAction::Repair));
    assert_eq!(machine.volume().mismatch_cnt, 3 * 128);
    assert_eq!(machine.written(), BTreeMap::from([(1, 256), (2, 128)]));
    machine.command(Verb::SyncAction(SyncAction::Check));
    assert_eq!(machine.volume().mismatch_cnt, 0);
}

#[test]
fn a_check_from_a_position_leaves_out_what_is_before() {
    let mut machine = Machine::new(array(Level::Raid1, None, 3));
    for (member, sector) in [(1, 5), (2, 1000), (1, SIZE - 1)] {
        machine.members[member][sector as usize] = 9;
    }
    // Sectors 896 to 1023 are one unit.
    for (from, counted, first) in [(0, 3, 0), (127, 3, 0), (128, 2, 128), (1001, 2, 896)] {
        machine.log.clear();
        let verb = Verb::SyncRange { action: SyncAction::Check, from: Sectors(from), to: None };
        machine.command(verb);
        let volume = machine.volume();
        assert_eq!(volume.mismatch_cnt, counted * 128, "from {from}");
        assert_eq!(volume.sync_completed, Some((Sectors(SIZE), Sectors(SIZE))), "from {from}");
        assert_eq!(volume.sync_stripes, (SIZE - first) / 128, "from {from}");
        let read = machine.log.iter().map(|(_, start, ..)| *start).min();
        assert_eq!(read, Some(first), "from {from}");
    }
    let from = Sectors(1024);
    machine.command(Verb::SyncRange { action: SyncAction::Repair, from, to: None });
    assert_eq!(machine.written(), BTreeMap::from([(1, 128)]), "the copy that differs in one unit");
    machine.command(Verb::SyncAction(SyncAction::Check));
    assert_eq!(machine.volume().mismatch_cnt, 2 * 128, "those before are left");
}

#[test]
fn a_position_is_refused_beyond_the_end_and_where_nothing_is_compared() {
    // A check of RAID 10 counts sectors of the array: two members' worth on four.
    for (level, size) in [(Level::Raid1, SIZE), (Level::Raid10, 2 * SIZE)] {
        let members = if level == Level::Raid1 { 2 } else { 4 };
        let mut machine = Machine::new(array(level, None, members));
        for (action, from, is_taken) in [
            (SyncAction::Check, size - 1, true),
            (SyncAction::Check, size, false),
            (SyncAction::Repair, u64::MAX, false),
            (SyncAction::Resync, 0, false),
            (SyncAction::Recover, 0, false),
            (SyncAction::Idle, 0, false),
        ] {
            machine.command(Verb::SyncRange { action, from: Sectors(from), to: None });
            let answer = &machine.replies[&machine.tag];
            assert_eq!(answer.is_ok(), is_taken, "{level} {action:?} {from}: {answer:?}");
            if matches!(action, SyncAction::Check | SyncAction::Repair) {
                assert!(is_taken || *answer == Err(ReplyError::OutOfRange), "{answer:?}");
            }
        }
        assert_eq!(machine.volume().sync_stripes, 1, "the last unit was checked");
    }
}

#[test]
fn statement_44_a_repair_of_raid10_rewrites_the_copy_of_the_higher_slot() {
    let mut machine = Machine::new(array(Level::Raid10, None, 4));
    machine.members[2][300] = 9;
    machine.command(Verb::SyncAction(SyncAction::Repair));
    assert_eq!(machine.volume().mismatch_cnt, 128);
    assert_eq!(machine.written(), BTreeMap::from([(3, 128)]), "slot 2 is the first copy");
    assert_eq!(machine.members[3][300], 9);
}

#[test]
fn a_new_member_gets_its_copies_and_counts_once_it_has_all() {
    for (level, layout, members) in
        [(Level::Raid1, None, 2), (Level::Raid10, None, 5), (Level::Raid10, Some(0x201), 4)]
    {
        let mut machine = Machine::new(array(level, layout, members));
        let size = machine.volume().size.sectors_floor().0;
        for start in (0..size).step_by(1024) {
            let sectors = (size - start).min(1024);
            machine.ask(RequestOp::Write, start, sectors, (start / 1024 % 250) as u8 + 1);
        }
        let expected = machine.members[1].clone();
        machine.command(Verb::Fail(MemberIndex(1)));
        machine.command(Verb::Remove(MemberIndex(1)));
        machine.members.push(vec![0xee; 20_000]);
        let member = MemberInfo::of_size(MemberIndex(members.into()), "new", Sectors(20_000));
        machine.written();
        let (former, device_uuid) = (None, Uuid([77; 16]));
        machine.command(Verb::Add { member, former, device_uuid });
        let volume = machine.volume();
        assert!(volume.members.iter().all(|it| it.state == MemberState::InSync), "{volume:?}");
        let used = (size * if level == Level::Raid1 { 1 } else { 2 })
            .div_ceil(if level == Level::Raid1 { 1 } else { members.into() });
        let new = machine.members.last().unwrap();
        assert_eq!(new[..used as usize], expected[..used as usize], "{level} {layout:?}");
        let written = machine.written();
        assert_eq!(written.len(), 1, "{written:?}");
    }
}

#[test]
fn a_check_corrects_what_cannot_be_read_and_errors_here_and_there_cost_nothing() {
    let mut machine = Machine::new(array(Level::Raid10, None, 4));
    machine.ask(RequestOp::Write, 0, 512, 5);
    machine.bad.extend([(0, 3), (1, 90), (2, 17), (3, 18)]);
    // No member has all of the first unit; the members of the second mirror lack the same block.
    machine.command(Verb::SyncAction(SyncAction::Check));
    assert_eq!(machine.bad, BTreeSet::from([(2, 17), (3, 18)]));
    for start in [0, 88] {
        assert_eq!(machine.ask(RequestOp::Read, start, 8, 0), [5; 8], "block {start}");
    }
    machine.ask(RequestOp::Read, 128 + 16, 8, 0);
    assert_eq!(machine.replies.values().filter(|it| **it == Err(ReplyError::Io)).count(), 1);
    machine.ask(RequestOp::Write, 128 + 16, 8, 6);
    assert_eq!(machine.ask(RequestOp::Read, 128 + 16, 8, 0), [6; 8]);
    let states = machine.volume().members.iter().map(|it| it.state).collect::<Vec<_>>();
    assert_eq!(states, [MemberState::InSync; 4]);
}

#[test]
fn writes_and_a_resync_of_the_same_range_wait_for_each_other() {
    let mut assembly = array(Level::Raid1, None, 2);
    assembly.resync_from = Some(Sectors::ZERO);
    let mut machine = Machine::new(assembly);
    machine.scatter();
    // The resync has asked for its first units; members answer later.
    machine.tell(Input::Wake);
    let frames = Run::new(90_000, 1);
    machine.frames.insert(90_000, [42; 8]);
    let request = ClientRequest {
        client: ClientId(7),
        tag: Tag(1000),
        volume: VolumeId(0),
        op: RequestOp::Write,
        range: ByteRange { start: Bytes(0), len: Bytes(4096) },
        frames,
        flags: Flags::NONE,
        attr: Attr::default(),
    };
    machine.tell(Input::Client(request));
    machine.settle();
    assert_eq!(machine.replies.get(&1000), Some(&Ok(())));
    for member in &machine.members {
        assert_eq!(member[..8], [42; 8]);
    }
    assert_eq!(machine.members[0][..SIZE as usize], machine.members[1][..SIZE as usize]);
    assert_eq!(machine.volume().resync_from, None);
}

#[test]
fn an_unclean_mirror_with_one_copy_left_needs_no_resync_after_recovery() {
    let without = |set: &mut Vec<Candidate>| drop(set.remove(1));
    let mut assembly =
        assembled(Level::Raid1, None, 2, without, &Options { run: true, ..Options::default() });
    assembly.resync_from = Some(Sectors::ZERO);
    let mut machine = Machine::new(assembly);
    machine.settle();
    let member = MemberInfo::of_size(MemberIndex(1), "new", Sectors(20_000));
    let (former, device_uuid) = (None, Uuid([77; 16]));
    machine.command(Verb::Add { member, former, device_uuid });
    assert_eq!(machine.written(), BTreeMap::from([(1, SIZE)]));
    assert_eq!(machine.volume().resync_from, None);
}

#[test]
fn a_resync_takes_from_another_copy_only_what_the_first_lacks() {
    let cases = [
        (Level::Raid1, None, 2),
        (Level::Raid1, None, 3),
        (Level::Raid10, None, 4),
        (Level::Raid10, Some(0x201), 4),
    ];
    for (level, layout, members) in cases {
        let mut assembly = array(level, layout, members);
        assembly.resync_from = Some(Sectors::ZERO);
        let mut machine = Machine::new(assembly);
        machine.scatter();
        let before = machine.members.clone();
        machine.bad.insert((0, 77));
        machine.settle();
        assert_eq!(machine.volume().resync_from, None, "{level} {layout:?}");
        let differ = |content: &[u8]| -> Vec<usize> {
            (0..128).filter(|nth| content[*nth] != before[0][*nth]).collect()
        };
        assert_eq!(differ(&machine.members[0]), [77], "{level} {layout:?}");
        assert!(machine.bad.is_empty(), "{level} {layout:?}");
        let volume = machine.volume();
        assert!(volume.members.iter().all(|it| it.state == MemberState::InSync), "{volume:?}");
        machine.command(Verb::SyncAction(SyncAction::Check));
        assert_eq!(machine.volume().mismatch_cnt, 0, "{level} {layout:?}");
    }
}

#[test]
fn a_member_that_is_given_up_keeps_its_memory_and_its_successor_is_rebuilt() {
    let mut machine = Machine::new(array(Level::Raid1, None, 2));
    machine.ask(RequestOp::Write, 0, 512, 5);
    add(&mut machine);
    machine.bad.insert((0, 9));
    machine.stuck = Some((MemberIndex(0), Vec::new()));
    assert_eq!(machine.ask(RequestOp::Read, 8, 8, 0), [5; 8]);
    assert!(!machine.stuck.as_ref().unwrap().1.is_empty(), "the correction begins with a read");
    // The other copy is read once the successor has the slot.
    machine.slow = Some((MemberIndex(1), Vec::new()));
    machine.command(Verb::Fail(MemberIndex(0)));
    machine.answer_reads();
    assert_eq!(machine.members[2][..512], [5; 512]);
    let states: Vec<_> = machine.volume().members.iter().map(|it| it.state).collect();
    assert_eq!(states, [MemberState::Faulty, MemberState::InSync, MemberState::InSync]);
    let corrects = |notice: &Notice| matches!(notice, Notice::ReadErrorCorrected { .. });
    assert!(!machine.notices.iter().any(corrects), "nothing is known of what it holds");
    // The correction was for the member that is gone: only the rebuild writes its successor.
    assert_eq!(machine.written().get(&2), Some(&SIZE));
}

/// There is memory for one unit, and a read that was given up may still use that memory.
#[test]
fn a_resync_goes_on_once_a_read_that_was_given_up_has_ended() {
    let mut assembly = array(Level::Raid1, None, 3);
    assembly.resync_from = Some(Sectors::ZERO);
    let mut machine =
        Machine::with_knobs(assembly, Knobs { sync_pace: SyncPace::Md, ..one_unit() });
    machine.scatter();
    machine.slow = Some((MemberIndex(0), Vec::new()));
    machine.settle();
    machine.command(Verb::Fail(MemberIndex(0)));
    assert!(machine.volume().resync_from.is_some(), "it waits for memory");
    machine.answer_reads();
    assert_eq!(machine.volume().resync_from, None);
    assert_eq!(machine.members[1][..SIZE as usize], machine.members[2][..SIZE as usize]);
}

#[test]
fn a_copy_that_is_being_rebuilt_goes_where_the_one_that_counts_was_not_written() {
    let mut machine = being_rebuilt(Level::Raid1, 2);
    machine.fails.insert((0, true), Fault::Io);
    machine.ask(RequestOp::Write, SIZE - 8, 8, 5);
    assert_eq!(machine.replies.get(&machine.tag), Some(&Err(ReplyError::Io)));
    assert_eq!(machine.written(), BTreeMap::from([(2, 8)]), "the other copy differs from then on");
    machine.answer_reads();
    assert_eq!(machine.states(), [MemberState::InSync, MemberState::Faulty, MemberState::Faulty]);
}

/// The block of 4 KiB that cannot be read is the only one that is lost, until it is written.
#[test]
fn a_copy_that_could_not_be_rebuilt_is_recorded_as_bad() {
    let mut machine = being_rebuilt(Level::Raid1, 2);
    machine.bad.insert((0, 77));
    machine.answer_reads();
    assert_eq!(machine.states()[2], MemberState::InSync);
    let bad = |machine: &Machine| machine.volume().members[2].bad_blocks.clone();
    assert_eq!(bad(&machine), [SectorRange::new(DATA_OFFSET + 72, 8)]);
    let recorded = |notice: &Notice| matches!(notice, Notice::BadBlocks { .. });
    assert_eq!(machine.notices.iter().filter(|it| recorded(it)).count(), 1);
    machine.command(Verb::Fail(MemberIndex(0)));
    let mut read = |sector: u64| {
        machine.ask(RequestOp::Read, sector, 1, 0);
        machine.replies[&machine.tag].clone()
    };
    let lost = Err(ReplyError::Io);
    assert_eq!([71, 72, 79, 80].map(&mut read), [Ok(()), lost.clone(), lost, Ok(())]);
    machine.ask(RequestOp::Write, 73, 1, 5);
    let left = [(72, 1), (74, 6)].map(|(at, len)| SectorRange::new(DATA_OFFSET + at, len));
    assert_eq!(bad(&machine), left);
    assert_eq!(machine.ask(RequestOp::Read, 73, 1, 0), [5]);
}

#[test]
fn a_member_without_a_log_does_not_count_with_a_copy_that_could_not_be_rebuilt() {
    for bad in [false, true] {
        let spoil = |set: &mut Vec<Candidate>| {
            for candidate in set {
                let Ok(Superblock::V1(new)) = candidate.superblock.as_deref_mut() else { panic!() };
                (new.bblog_size, new.bblog_offset) = (0, 0);
            }
        };
        let assembly = assembled(Level::Raid1, None, 2, spoil, &Options::default());
        let mut machine = Machine::new(assembly);
        machine.scatter();
        machine.command(Verb::Fail(MemberIndex(1)));
        machine.slow = Some((MemberIndex(0), Vec::new()));
        add(&mut machine);
        machine.bad.extend(bad.then_some((0, 77)));
        machine.answer_reads();
        let counts = machine.states()[2] == MemberState::InSync;
        assert_eq!(counts, !bad, "{:?}", machine.states());
    }
}

/// Knobs with the least memory: one unit.
fn one_unit() -> Knobs {
    Knobs { stripe_cache_size: 1, stripe_cache_bytes: Bytes::ZERO, ..Knobs::default() }
}

#[test]
fn two_members_are_rebuilt_with_the_memory_of_one_unit() {
    let mut machine = Machine::with_knobs(array(Level::Raid10, None, 4), one_unit());
    let size = machine.volume().size.sectors_floor().0;
    for start in (0..size).step_by(1024) {
        machine.ask(RequestOp::Write, start, (size - start).min(1024), (start / 1024) as u8 + 1);
    }
    machine.command(Verb::SyncAction(SyncAction::Frozen));
    for member in [1, 3] {
        machine.command(Verb::Fail(MemberIndex(member)));
        add(&mut machine);
    }
    machine.command(Verb::SyncAction(SyncAction::Idle));
    let states: Vec<_> = machine.volume().members.iter().map(|it| it.state).collect();
    let (failed, whole) = (MemberState::Faulty, MemberState::InSync);
    assert_eq!(states, [whole, failed, whole, failed, whole, whole]);
    for (new, copied) in [(4, 0), (5, 2)] {
        assert_eq!(machine.members[new][..SIZE as usize], machine.members[copied][..SIZE as usize]);
    }
}
