//! Tests of mirrors with one copy left of some data, and of arrays that are broken.

use super::*;

#[test]
fn what_was_read_for_a_rebuild_is_not_written_once_the_array_is_broken() {
    for broken in [false, true] {
        let mut machine = being_rebuilt(Level::Raid10, 4);
        if broken {
            machine.fails.extend([2, 3].map(|member| ((member, false), Fault::Gone)));
            machine.ask(RequestOp::Read, CHUNK_SECTORS, 8, 0);
            let result = machine.replies.get(&machine.tag);
            assert_eq!(result, Some(&Err(ReplyError::Io)), "the second chunk has no copy left");
        }
        machine.answer_reads();
        let rebuilt = machine.written().get(&4).copied().unwrap_or_default();
        assert_eq!(rebuilt == 0, broken, "{rebuilt} sectors");
    }
}

#[test]
fn a_broken_array_gets_no_bitmap() {
    let mut machine = Machine::new(array(Level::Raid10, None, 4));
    machine.fails.extend([0, 1].map(|member| ((member, false), Fault::Gone)));
    machine.ask(RequestOp::Read, 0, 8, 0);
    machine.command(chunks_of(128));
    assert_eq!(machine.replies.get(&machine.tag), Some(&Err(ReplyError::ReadOnly)));
}

/// A mirror with one copy left of its first chunk, on the member returned beside it.
fn with_a_last_copy(level: Level, members: u8, fail_last_dev: bool) -> (Machine, MemberIndex) {
    let knobs = Knobs { fail_last_dev, sync_pace: SyncPace::Md, ..Knobs::default() };
    let mut machine = Machine::with_knobs(array(level, None, members), knobs);
    machine.ask(RequestOp::Write, 0, 8, 7);
    machine.command(Verb::Fail(MemberIndex(0)));
    assert_eq!(machine.replies.get(&machine.tag), Some(&Ok(())), "another one has a copy");
    (machine, MemberIndex(1))
}

/// md-raid.md §6.7: a command fails the member with a last copy only if `fail_last_dev` is set.
#[test]
fn the_last_copy_is_failed_by_command_only_with_fail_last_dev() {
    for (level, members) in [(Level::Raid1, 2), (Level::Raid10, 4)] {
        for fail_last_dev in [false, true] {
            let (mut machine, last) = with_a_last_copy(level, members, fail_last_dev);
            machine.command(Verb::Fail(last));
            let answer = machine.replies[&machine.tag].clone();
            let refused = matches!(answer, Err(ReplyError::Refused(_)));
            assert_eq!((answer.is_ok(), refused), (fail_last_dev, !fail_last_dev), "{answer:?}");
            assert_eq!(machine.states()[1] == MemberState::Faulty, fail_last_dev);
            assert_eq!(machine.volume().array_state == "broken", fail_last_dev);
            machine.ask(RequestOp::Read, 0, 8, 0);
            assert_eq!(machine.replies[&machine.tag].is_ok(), !fail_last_dev);
        }
    }
}

/// md-raid.md §5.5 and §6.7: an error of a write fails the member with a last copy only if
/// `fail_last_dev` is set.
#[test]
fn the_last_copy_is_failed_by_an_error_of_a_write_only_with_fail_last_dev() {
    for (level, members) in [(Level::Raid1, 2), (Level::Raid10, 4)] {
        for fail_last_dev in [false, true] {
            let (mut machine, last) = with_a_last_copy(level, members, fail_last_dev);
            machine.fails.insert((last.0, false), Fault::Io);
            for _ in 0..30 {
                machine.ask(RequestOp::Read, 0, 8, 0);
                assert_eq!(machine.replies[&machine.tag], Err(ReplyError::Io));
            }
            assert_eq!(machine.states()[1], MemberState::InSync, "reads fail no last copy");
            machine.fails = BTreeMap::from([((last.0, true), Fault::Io)]);
            machine.ask(RequestOp::Write, 0, 8, 9);
            assert_eq!(machine.replies[&machine.tag], Err(ReplyError::Io));
            assert_eq!(machine.states()[1] == MemberState::Faulty, fail_last_dev);
            assert_eq!(machine.volume().array_state == "broken", fail_last_dev);
            machine.fails.clear();
            for op in [RequestOp::Read, RequestOp::Write] {
                machine.ask(op, 0, 8, 9);
                assert_eq!(machine.replies[&machine.tag].is_ok(), !fail_last_dev, "{op:?}");
            }
        }
    }
}
