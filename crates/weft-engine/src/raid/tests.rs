//! Tests of levels without parity: to which members a request goes, and how errors are handled.

use std::collections::VecDeque;

use weft_ondisk::{Level, MdTime, Minor, NewArray, NewMember, Uuid};
use weft_units::{
    ByteRange, Bytes, ClientId, MemberIndex, SectorRange, Sectors, Slot, Time, VolumeId,
};

use crate::assemble::{Assembly, Candidate, Options, SlotState, assemble};
use crate::contract::frame::{Run, frames_needed};
use crate::knobs::Knobs;
use crate::{
    Attr, ClientRequest, Command, Config, Engine, Fault, Flags, Input, MemberOp, MemberState,
    Output, ReplyError, RequestOp, Tag, Token, Value, Verb,
};

pub(super) const CHUNK: u64 = 64 << 10;

/// A read-only array with chunks of 64 KiB on members of 4 MiB and more.
fn assembly(
    level: Level,
    layout: Option<u32>,
    members: u8,
    change: impl Fn(&mut Vec<Candidate>),
) -> Assembly {
    let options = Options { read_only: true, ..Options::default() };
    assembled(level, layout, members, change, &options)
}

pub(super) fn assembled(
    level: Level,
    layout: Option<u32>,
    members: u8,
    change: impl Fn(&mut Vec<Candidate>),
    options: &Options,
) -> Assembly {
    let member = |number: u8| NewMember {
        size: Sectors(8192 + 2048 * u64::from(number)),
        device_uuid: Uuid([number + 1; 16]),
    };
    let array = NewArray {
        minor: Minor::V1_2,
        level,
        layout,
        chunk: (level != Level::Raid1).then(|| Bytes(CHUNK).sectors_floor()),
        size: None,
        data_offset: Some(Sectors(2048)),
        set_uuid: Uuid([9; 16]),
        name: "array".to_owned(),
        ctime: MdTime::default(),
        slots: (0..members).map(|number| Some(member(number))).collect(),
        spares: Vec::new(),
        assume_clean: true,
        force: false,
        bitmap: None,
    };
    let mut candidates = Candidate::of_new(&array).unwrap();
    change(&mut candidates);
    assemble(&candidates, options).unwrap()
}

/// A rig with the array that [`assembly`] creates, but writable.
fn writable(level: Level, layout: Option<u32>, members: u8) -> Rig {
    let all_of_it = |set: &mut Vec<Candidate>| {
        set.iter_mut().for_each(|candidate| candidate.member.discards = true);
    };
    Rig::new(assembled(level, layout, members, all_of_it, &Options::default()))
}

/// A read of a member: the member's index, the first data sector, and the number of bytes.
type Read = (u16, u64, u64);

/// A change of a member's data: the member's index, the first data sector, the number of bytes, and
/// the first frame of the data that is written; `None` if no data is written.
type Change = (u16, u64, u64, Option<u32>);

/// An engine of one array, and its outputs.
struct Rig {
    engine: Engine,
    now: Time,
    tag: u64,
    asked: VecDeque<(Token, Read)>,
    changes: VecDeque<(Token, Change)>,
    /// Superblock writes that members have not answered. Members answer them at once unless `slow`
    /// is set.
    superblocks: VecDeque<Token>,
    slow: bool,
    released: u32,
    replies: Vec<(u64, Result<(), ReplyError>)>,
    given_up: Vec<Token>,
}

impl Rig {
    fn new(assembly: Assembly) -> Self {
        let engine = Engine::new(Config::for_volume(assembly, Knobs::default()), Time(0)).unwrap();
        Self {
            engine,
            now: Time(0),
            tag: 0,
            asked: VecDeque::new(),
            changes: VecDeque::new(),
            superblocks: VecDeque::new(),
            slow: false,
            released: 0,
            replies: Vec::new(),
            given_up: Vec::new(),
        }
    }

    /// Sends a read of a range. Returns its tag.
    fn read(&mut self, start: u64, len: u64, again: bool) -> u64 {
        self.ask(RequestOp::Read, start, len, Flags { again, ..Flags::NONE })
    }

    /// Sends a write of a range. Returns its tag.
    fn write(&mut self, start: u64, len: u64) -> u64 {
        self.ask(RequestOp::Write, start, len, Flags::NONE)
    }

    fn ask(&mut self, op: RequestOp, start: u64, len: u64, flags: Flags) -> u64 {
        self.tag += 1;
        let has_payload = matches!(op, RequestOp::Read | RequestOp::Write);
        let count = if has_payload { frames_needed(start, len) } else { 0 };
        let frames = if count > 0 { Run::new(Self::frame(self.tag), count) } else { Run::EMPTY };
        let request = ClientRequest {
            client: ClientId(7),
            tag: Tag(self.tag),
            volume: VolumeId(0),
            op,
            range: ByteRange::new(start, len),
            frames,
            flags,
            attr: Attr::default(),
        };
        self.handle(Input::Client(request));
        self.tag
    }

    /// First frame of the payload of the request with tag `tag`.
    fn frame(tag: u64) -> u32 {
        1 + tag as u32 * 1024
    }

    fn handle(&mut self, input: Input) {
        self.engine.handle(self.now, input);
        let mut outputs = VecDeque::new();
        while self.engine.run(self.now, 64, &mut outputs).more {}
        self.take(outputs);
        while !self.slow
            && let Some(token) = self.superblocks.pop_front()
        {
            self.handle(Input::Done { token, result: Ok(Value::Nothing) });
        }
    }

    fn take(&mut self, outputs: VecDeque<Output>) {
        for output in outputs {
            match output {
                Output::Submit { token, member, op: MemberOp::Read { at, into }, .. } => {
                    let bytes = into.iter().map(|part| u64::from(part.len)).sum();
                    self.asked.push_back((token, (member.0, at.0 - 2048, bytes)));
                }
                Output::Reply { tag, result, .. } => self.replies.push((tag.0, result)),
                Output::Abort(token) => self.given_up.push(token),
                Output::Submit { token, member, op: MemberOp::Write { at, from, .. }, .. } => {
                    let bytes = from.iter().map(|part| u64::from(part.len)).sum();
                    let frame = Some(from[0].frame.0);
                    self.changes.push_back((token, (member.0, at.0 - 2048, bytes, frame)));
                }
                Output::Submit { token, member, op: MemberOp::Discard { at, len, .. }, .. } => {
                    let change = (member.0, at.0 - 2048, len.bytes().0, None);
                    self.changes.push_back((token, change));
                }
                Output::Submit { token, op: MemberOp::WriteMetadata { .. }, .. } => {
                    self.superblocks.push_back(token);
                }
                Output::Submit { .. } | Output::Compute { .. } => panic!("{output:?}"),
                Output::Release(run) => self.released += run.count,
                Output::Credit { .. } | Output::Notice(_) => {}
            }
        }
    }

    /// Answers the changes that members were asked for, with the result that `result` returns for
    /// the member. Returns the changes.
    fn change(&mut self, result: impl Fn(u16) -> Result<(), Fault>) -> Vec<Change> {
        let changes: Vec<_> = self.changes.drain(..).collect();
        for (token, (member, ..)) in &changes {
            let result = result(*member).map(|()| Value::Nothing);
            self.handle(Input::Done { token: *token, result });
        }
        changes.into_iter().map(|(_, change)| change).collect()
    }

    fn states(&self) -> Vec<MemberState> {
        self.engine.snapshot().volumes[0].members.iter().map(|member| member.state).collect()
    }

    /// Answers the reads that members were asked for since the last call with `result`, and returns
    /// them.
    fn answer(&mut self, result: Result<(), Fault>) -> Vec<Read> {
        let asked: Vec<_> = self.asked.drain(..).collect();
        for (token, _) in &asked {
            self.handle(Input::Done { token: *token, result: result.map(|()| Value::Nothing) });
        }
        asked.into_iter().map(|(_, read)| read).collect()
    }
}

#[test]
fn chunks_of_raid0_are_read_where_they_lie_and_an_error_is_told() {
    // The first member has 3 MiB of data, each other one 1 MiB more.
    let mut rig = Rig::new(assembly(Level::Raid0, Some(2), 3, |_| ()));
    rig.read(CHUNK - 512, CHUNK + 1024, false);
    let chunk = CHUNK / 512;
    let expected = [(0, chunk - 1, 512), (1, 0, CHUNK), (2, 0, 512)];
    assert_eq!(rig.answer(Ok(())), expected);
    // Zone 1 begins at 9 MiB, without the first member.
    rig.read(9 << 20, 2 * CHUNK, false);
    assert_eq!(rig.answer(Ok(())), [(1, 6144, CHUNK), (2, 6144, CHUNK)]);
    assert_eq!(rig.replies, [(1, Ok(())), (2, Ok(()))]);
    // No other member has the data, and the member stays in use.
    rig.read(0, 4096, false);
    rig.answer(Err(Fault::Io));
    rig.read(0, 4096, false);
    assert_eq!(rig.answer(Ok(())), [(0, 0, 4096)]);
    assert_eq!(rig.replies[2..], [(3, Err(ReplyError::Io)), (4, Ok(()))]);
}

#[test]
fn a_read_that_a_member_fails_goes_to_the_next_copy_and_fails_with_the_last() {
    for fails in 0..4 {
        let mut rig = Rig::new(assembly(Level::Raid1, None, 3, |_| ()));
        rig.read(4096, 4096, false);
        for member in 0..fails.min(3) {
            assert_eq!(rig.answer(Err(Fault::Io)), [(member, 8, 4096)], "{fails} fail");
        }
        if fails < 3 {
            assert_eq!(rig.answer(Ok(())), [(fails, 8, 4096)]);
        } else {
            // The member is read once more, because the first read may have been merged with
            // others.
            assert_eq!(rig.answer(Err(Fault::Io)), [(0, 8, 4096)]);
        }
        let expected = if fails < 3 { Ok(()) } else { Err(ReplyError::Io) };
        assert_eq!(rig.replies, [(1, expected.clone())], "{fails} fail");
        // The next read starts without failed copies.
        rig.read(4096, 4096, false);
        assert_eq!(rig.answer(Ok(())), [(0, 8, 4096)]);
        assert_eq!(rig.engine.snapshot().tokens_outstanding, 0);
    }
}

#[test]
fn a_read_across_chunks_goes_to_the_first_copy_of_each_that_can_be_read() {
    let far = 0x201;
    let without = |slot: usize| move |set: &mut Vec<Candidate>| drop(set.remove(slot));
    let mut rig = Rig::new(assembly(Level::Raid10, None, 4, |_| ()));
    rig.read(CHUNK / 2, CHUNK, false);
    let half = CHUNK / 1024;
    assert_eq!(rig.answer(Ok(())), [(0, half, CHUNK / 2), (2, 0, CHUNK / 2)]);
    // Without the first member its mirror is read; indices are those of the members that are left.
    let mut rig = Rig::new(assembly(Level::Raid10, None, 4, without(0)));
    rig.read(0, 2 * CHUNK, false);
    assert_eq!(rig.answer(Ok(())), [(1, 0, CHUNK), (2, 0, CHUNK)]);
    // Far copies are in the second half of the next member: the used part has 48 chunks.
    let mut rig = Rig::new(assembly(Level::Raid10, Some(far), 4, without(0)));
    rig.read(0, 4096, false);
    assert_eq!(rig.answer(Ok(())), [(1, 24 * CHUNK / 512, 4096)]);
}

#[test]
fn blocks_that_are_known_to_be_bad_are_read_from_another_copy() {
    let mut array = assembly(Level::Raid1, None, 2, |_| ());
    let SlotState::InSync(member) = &mut array.slots[0] else { panic!("it is in sync") };
    member.suspect = vec![weft_units::SectorRange::new(16, 8)];
    let mut rig = Rig::new(array);
    rig.read(0, 4096, false);
    rig.read(8192, 4096, false);
    assert_eq!(rig.answer(Ok(())), [(0, 0, 4096), (1, 16, 4096)]);
}

#[test]
fn a_read_is_asked_of_another_copy_when_its_member_stalls() {
    let mut rig = Rig::new(assembly(Level::Raid1, None, 2, |_| ()));
    let tag = rig.read(0, 4096, false);
    while rig.given_up.is_empty() {
        rig.now = rig.engine.next_wake().expect("a wake-up is due for the member");
        rig.handle(Input::Wake);
    }
    assert_eq!(rig.replies, [(tag, Err(ReplyError::Stalled))]);
    let (late, first) = rig.asked.pop_front().unwrap();
    assert_eq!(first, (0, 0, 4096));
    let tag = rig.read(0, 4096, true);
    assert_eq!(rig.answer(Ok(())), [(1, 0, 4096)]);
    assert_eq!(rig.replies[1..], [(tag, Ok(()))]);
    rig.handle(Input::Done { token: late, result: Ok(Value::Nothing) });
    assert_eq!(rig.engine.snapshot().frames_held, 0);
}

/// A read waits for its slow member where copies may differ, because another copy might return
/// other data, and where the only other copy is unreadable.
#[test]
fn a_read_waits_for_its_member_where_no_other_copy_may_stand_in() {
    let chunk = Bytes(CHUNK).sectors_floor();
    // Parts of RAID 10 are resynced by sectors of the array: member 0 has chunks 0 and 2.
    type Change = fn(&mut Assembly, Sectors);
    let cases: [(Level, u64, Change, bool); 5] = [
        (Level::Raid1, 0, |_, _| (), true),
        (Level::Raid1, 0, |array, _| array.resync_from = Some(Sectors(4)), false),
        (Level::Raid10, 2 * CHUNK, |array, chunk| array.resync_from = Some(chunk), false),
        (Level::Raid10, 0, |array, chunk| array.resync_from = Some(chunk), true),
        (
            Level::Raid1,
            0,
            |array, _| {
                let SlotState::InSync(member) = &mut array.slots[1] else { panic!("in sync") };
                member.suspect = vec![weft_units::SectorRange::new(0, 8)];
            },
            false,
        ),
    ];
    for ((level, start, change, goes_round), number) in cases.into_iter().zip(0..) {
        let mut array = assembly(level, None, 2, |_| ());
        change(&mut array, chunk);
        let mut rig = Rig::new(array);
        rig.read(start, 4096, false);
        for _ in 0..8 {
            let Some(wake) = rig.engine.next_wake() else { break };
            rig.now = wake;
            rig.handle(Input::Wake);
        }
        assert_eq!(!rig.given_up.is_empty(), goes_round, "case {number}");
        if !goes_round {
            // Another read waits as well, for the same copy, and both are answered by it.
            rig.read(start, 4096, false);
            let asked = rig.answer(Ok(()));
            assert_eq!((asked.len(), asked[0]), (2, asked[1]), "case {number}");
            assert_eq!(rig.replies, [(1, Ok(())), (2, Ok(()))], "case {number}");
        }
    }
}

#[test]
fn members_that_hold_each_chunk_are_enough() {
    let array = assembly(Level::Raid10, None, 4, |set| {
        set.remove(3);
        set.remove(0);
    });
    assert_eq!(array.degraded(), 2);
    assert_eq!(array.slots.iter().filter(|slot| **slot == SlotState::Missing).count(), 2);
    let members: Vec<_> = array.members().map(|(slot, it)| (slot, it.info.index)).collect();
    let expected = [(Some(Slot(1)), MemberIndex(1)), (Some(Slot(2)), MemberIndex(2))];
    assert_eq!(members, expected);
}

// Writes.

const CHUNK_SECTORS: u64 = CHUNK / 512;

#[test]
fn a_write_of_raid0_goes_to_the_members_of_its_chunks_and_an_error_is_told() {
    let mut rig = writable(Level::Raid0, Some(2), 3);
    let frame = Rig::frame(rig.write(CHUNK - 4096, CHUNK + 8192));
    let ok = |_| Ok(());
    let last = CHUNK_SECTORS - 8;
    let whole = [
        (0, last, 4096, Some(frame)),
        (1, 0, CHUNK, Some(frame + 1)),
        (2, 0, 4096, Some(frame + 17)),
    ];
    assert_eq!(rig.change(ok), whole);
    // A request that lies on one member passes unchanged. The array is not marked dirty, because it
    // has no redundancy that has to agree.
    let frame = Rig::frame(rig.write(9 << 20, 4096));
    assert_eq!(rig.engine.snapshot().volumes[0].requests_active, 1);
    assert_eq!(rig.change(ok), [(1, 6144, 4096, Some(frame))]);
    rig.write(0, 4096);
    rig.change(|_| Err(Fault::Io));
    rig.write(0, 2 * CHUNK);
    rig.change(|member| if member == 1 { Err(Fault::NoSpace) } else { Ok(()) });
    let expected =
        [(1, Ok(())), (2, Ok(())), (3, Err(ReplyError::Io)), (4, Err(ReplyError::NoSpace))];
    assert_eq!(rig.replies, expected);
    assert_eq!(rig.states(), [MemberState::InSync; 3]);
    let snapshot = rig.engine.snapshot();
    assert_eq!((snapshot.tokens_outstanding, snapshot.frames_held), (0, 0));
    assert_eq!(snapshot.volumes[0].events, 0);
}

#[test]
fn a_write_goes_to_every_copy_where_its_layout_has_them() {
    let far = 24 * CHUNK_SECTORS;
    type Case<'a> = (Level, Option<u32>, u8, &'a [(u16, u64)]);
    let cases: [Case<'_>; 5] = [
        (Level::Raid1, None, 3, &[(0, 0), (1, 0), (2, 0)]),
        (Level::Raid10, None, 4, &[(0, 0), (1, 0)]),
        (Level::Raid10, None, 3, &[(0, 0), (1, 0)]),
        (Level::Raid10, Some(0x201), 4, &[(0, 0), (1, far)]),
        (Level::Raid10, Some(0x1_0201), 4, &[(0, 0), (1, CHUNK_SECTORS)]),
    ];
    for (level, layout, members, places) in cases {
        let mut rig = writable(level, layout, members);
        let frame = Rig::frame(rig.write(0, 4096));
        let expected: Vec<Change> =
            places.iter().map(|(member, sector)| (*member, *sector, 4096, Some(frame))).collect();
        assert_eq!(rig.replies, [], "before every copy is written");
        assert_eq!(rig.change(|_| Ok(())), expected, "{level} {layout:?}");
        assert_eq!(rig.replies, [(1, Ok(()))]);
        assert_eq!(rig.released, 1);
        assert_eq!(rig.engine.snapshot().frames_held, 0);
    }
}

#[test]
fn a_copy_that_fails_to_be_written_is_recorded_as_bad_before_the_answer() {
    let mut rig = writable(Level::Raid1, None, 2);
    rig.write(8192, 8192);
    rig.slow = true;
    rig.change(|member| if member == 0 { Err(Fault::Io) } else { Ok(()) });
    // Only one block of the write may have failed, so each block is written once more.
    let blocks: Vec<_> = rig.changes.iter().map(|(_, it)| (it.0, it.1, it.2)).collect();
    assert_eq!(blocks, [(0, 16, 4096), (0, 24, 4096)]);
    let (token, _) = rig.changes.pop_front().unwrap();
    rig.handle(Input::Done { token, result: Ok(Value::Nothing) });
    rig.change(|_| Err(Fault::Io));
    assert_eq!((rig.replies.len(), rig.superblocks.len()), (0, 1), "the log comes first");
    let bad = |rig: &Rig| rig.engine.snapshot().volumes[0].members[0].bad_blocks.clone();
    assert_eq!(bad(&rig), [SectorRange::new(2048 + 24, 8)]);
    rig.slow = false;
    rig.handle(Input::Wake);
    assert_eq!(rig.replies, [(1, Ok(()))]);
    // Both copies of the block have failed.
    rig.write(12_288, 4096);
    rig.change(|_| Err(Fault::Io));
    rig.change(|_| Err(Fault::Io));
    assert_eq!(rig.replies[1..], [(2, Err(ReplyError::Io))]);
    assert_eq!(rig.states(), [MemberState::InSync; 2]);
    // Both members fail another write, but not its repetition.
    rig.write(0, 8192);
    rig.change(|_| Err(Fault::Io));
    rig.change(|_| Ok(()));
    assert_eq!(rig.replies[2..], [(3, Ok(()))]);
    assert_eq!(bad(&rig), [SectorRange::new(2048 + 24, 8)]);
}

#[test]
fn a_member_that_is_gone_at_a_write_fails_and_the_answer_waits_until_others_say_so() {
    let mut rig = writable(Level::Raid1, None, 2);
    rig.write(0, 4096);
    rig.slow = true;
    rig.change(|member| if member == 0 { Err(Fault::Gone) } else { Ok(()) });
    assert_eq!(rig.states(), [MemberState::Faulty, MemberState::InSync]);
    assert_eq!((rig.replies.len(), rig.superblocks.len()), (0, 1));
    rig.slow = false;
    rig.handle(Input::Wake);
    assert_eq!(rig.replies, [(1, Ok(()))]);
    // The last member stays, and its errors are reported.
    rig.write(0, 4096);
    assert_eq!(rig.change(|_| Err(Fault::Io)).len(), 1);
    assert_eq!(rig.change(|_| Err(Fault::Io)).len(), 1, "once more");
    rig.write(0, 4096);
    rig.change(|_| Ok(()));
    assert_eq!(rig.replies[1..], [(2, Err(ReplyError::Io)), (3, Ok(()))]);
    assert_eq!(rig.states(), [MemberState::Faulty, MemberState::InSync]);
}

#[test]
fn an_error_of_a_copy_that_no_other_has_is_told_whatever_other_mirrors_have() {
    // Members 0 and 1 hold the same data, and so do 2 and 3.
    let mut rig = writable(Level::Raid10, None, 4);
    rig.write(0, 2 * CHUNK);
    rig.change(|member| if member == 0 || member == 2 { Err(Fault::Gone) } else { Ok(()) });
    rig.write(0, 2 * CHUNK);
    while !rig.changes.is_empty() {
        rig.change(|member| if member == 1 { Err(Fault::Io) } else { Ok(()) });
    }
    assert_eq!(rig.replies, [(1, Ok(())), (2, Err(ReplyError::Io))]);
    let [faulty, in_sync] = [MemberState::Faulty, MemberState::InSync];
    assert_eq!(rig.states(), [faulty, in_sync, faulty, in_sync]);
}

#[test]
fn a_copy_without_space_is_told_and_copies_are_to_be_made_equal_again() {
    let mut rig = writable(Level::Raid1, None, 2);
    rig.write(8192, 4096);
    rig.change(|member| if member == 0 { Err(Fault::NoSpace) } else { Ok(()) });
    assert_eq!(rig.replies, [(1, Err(ReplyError::NoSpace))]);
    assert_eq!(rig.states(), [MemberState::InSync; 2]);
    let volume = &rig.engine.snapshot().volumes[0];
    assert_eq!((volume.resync_from, volume.no_space), (Some(Sectors(16)), true));
}

#[test]
fn a_write_that_a_failed_member_keeps_is_answered_and_pins_its_memory() {
    let mut rig = writable(Level::Raid1, None, 2);
    rig.write(0, 4096);
    let (late, (member, ..)) = rig.changes.pop_front().unwrap();
    rig.change(|_| Ok(()));
    assert_eq!(rig.replies, []);
    let verb = Verb::Fail(MemberIndex(member));
    let command = Command { client: ClientId(7), tag: Tag(99), volume: VolumeId(0), verb };
    rig.handle(Input::Admin(Box::new(command)));
    assert_eq!(rig.given_up, [late]);
    assert!(rig.replies.contains(&(1, Ok(()))), "{:?}", rig.replies);
    assert_eq!((rig.released, rig.engine.snapshot().frames_held), (0, 1));
    rig.handle(Input::Done { token: late, result: Err(Fault::Io) });
    assert_eq!((rig.released, rig.engine.snapshot().frames_held), (1, 0));
}

#[test]
fn trims_discard_runs_of_each_member_and_zeroes_are_stored_where_that_fails() {
    let four = 4 * CHUNK;
    // The trim covers chunks 1 to 4 of a RAID 0: two adjacent chunks of the second member, and one
    // chunk of each other member.
    let mut rig = writable(Level::Raid0, Some(2), 3);
    rig.ask(RequestOp::Trim, CHUNK, four, Flags::NONE);
    let chunk = CHUNK_SECTORS;
    let runs = [(1, 0, 2 * CHUNK, None), (2, 0, CHUNK, None), (0, chunk, CHUNK, None)];
    assert_eq!(rig.change(|_| Ok(())), runs);
    // In a RAID 10, the range is two adjacent chunks of each member.
    let mut rig = writable(Level::Raid10, None, 4);
    let holes = Flags { discard: true, ..Flags::NONE };
    rig.ask(RequestOp::WriteZeroes, 0, four, holes);
    assert_eq!(rig.change(|_| Ok(())), [0, 1, 2, 3].map(|member| (member, 0, 2 * CHUNK, None)));
    assert_eq!(rig.replies, [(1, Ok(()))]);
    // If a member cannot discard, a write-zeroes stores zeroes, and a trim ends.
    for (op, is_stored) in [(RequestOp::WriteZeroes, true), (RequestOp::Trim, false)] {
        let mut rig = writable(Level::Raid0, Some(2), 3);
        rig.ask(op, 0, CHUNK, holes);
        assert_eq!(rig.change(|_| Err(Fault::Io)), [(0, 0, CHUNK, None)]);
        let stored = [(0, 0, CHUNK, Some(0))];
        assert_eq!(rig.change(|_| Ok(())), stored[..usize::from(is_stored)]);
        assert_eq!(rig.replies, [(1, Ok(()))]);
    }
}

#[test]
fn zeroes_are_written_in_steps_to_every_copy_until_one_that_is_needed_fails() {
    let mut rig = writable(Level::Raid1, None, 2);
    let mib = 1 << 20;
    let tag = rig.ask(RequestOp::WriteZeroes, 0, 2 * mib + 4096, Flags::NONE);
    for (step, len) in [(0, mib), (1, mib), (2, 4096)] {
        let at = step * mib / 512;
        assert_eq!(rig.changes.len(), 2, "one step at a time");
        assert_eq!(rig.change(|_| Ok(())), [(0, at, len, Some(0)), (1, at, len, Some(0))]);
    }
    assert_eq!(rig.replies, [(tag, Ok(()))]);
    let tag = rig.ask(RequestOp::WriteZeroes, 0, 3 * mib, Flags::NONE);
    rig.change(|member| if member == 0 { Err(Fault::Gone) } else { Ok(()) });
    assert_eq!(rig.change(|_| Ok(())), [(1, 2048, mib, Some(0))], "it goes on with the other");
    rig.change(|_| Err(Fault::Io));
    assert_eq!(rig.replies[1..], [(tag, Err(ReplyError::Io))]);
    let snapshot = rig.engine.snapshot();
    assert_eq!((snapshot.tokens_outstanding, rig.changes.len()), (0, 0));
}

#[test]
fn requests_are_of_whole_blocks_of_the_member_with_the_largest() {
    for (level, block) in [(Level::Raid1, 4096), (Level::Raid5, 512)] {
        let large = |set: &mut Vec<Candidate>| set[1].member.logical_block = 4096;
        let array = assembled(level, None, 3, large, &Options::default());
        let mut rig = Rig::new(array);
        rig.write(512, 512);
        let refused = Err(ReplyError::Invalid("not whole logical blocks"));
        assert_eq!(rig.replies.contains(&(1, refused)), block == 4096, "{level}");
    }
}
