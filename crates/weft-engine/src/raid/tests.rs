//! Tests of levels without parity: the members that a read goes to, and what follows from errors.

use std::collections::VecDeque;

use weft_ondisk::{Level, MdTime, Minor, NewArray, NewMember, Uuid};
use weft_units::{ByteRange, Bytes, ClientId, MemberIndex, Sectors, Slot, Time, VolumeId};

use crate::assemble::{Assembly, Candidate, Options, SlotState, assemble};
use crate::contract::frame::{Run, frames_needed};
use crate::knobs::Knobs;
use crate::{
    Attr, ClientRequest, Config, Engine, Fault, Flags, Input, MemberOp, Output, ReplyError,
    RequestOp, Tag, Token, Value,
};

const CHUNK: u64 = 64 << 10;

/// An array with chunks of 64 KiB on members of 4 MiB and more, which is read only.
fn assembly(
    level: Level,
    layout: Option<u32>,
    members: u8,
    change: impl Fn(&mut Vec<Candidate>),
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
    };
    let mut candidates = Candidate::of_new(&array).unwrap();
    change(&mut candidates);
    assemble(&candidates, &Options { read_only: true, ..Options::default() }).unwrap()
}

/// A read of a member: its index, the first data sector, and bytes.
type Read = (u16, u64, u64);

/// An engine of one array, and what it has said.
struct Rig {
    engine: Engine,
    now: Time,
    tag: u64,
    asked: VecDeque<(Token, Read)>,
    replies: Vec<(u64, Result<(), ReplyError>)>,
    given_up: Vec<Token>,
}

impl Rig {
    fn new(assembly: Assembly) -> Self {
        let engine = Engine::new(Config::for_volume(assembly, Knobs::default()), Time(0)).unwrap();
        let (asked, replies, given_up) = (VecDeque::new(), Vec::new(), Vec::new());
        Self { engine, now: Time(0), tag: 0, asked, replies, given_up }
    }

    /// Reads a range. Its tag.
    fn read(&mut self, start: u64, len: u64, again: bool) -> u64 {
        self.tag += 1;
        let frames = Run::new(1 + self.tag as u32 * 1024, frames_needed(start, len));
        let request = ClientRequest {
            client: ClientId(7),
            tag: Tag(self.tag),
            volume: VolumeId(0),
            op: RequestOp::Read,
            range: ByteRange::new(start, len),
            frames,
            flags: Flags { again, ..Flags::NONE },
            attr: Attr::default(),
        };
        self.handle(Input::Client(request));
        self.tag
    }

    fn handle(&mut self, input: Input) {
        self.engine.handle(self.now, input);
        let mut outputs = VecDeque::new();
        while self.engine.run(self.now, 64, &mut outputs).more {}
        for output in outputs {
            match output {
                Output::Submit { token, member, op: MemberOp::Read { at, into }, .. } => {
                    let bytes = into.iter().map(|part| u64::from(part.len)).sum();
                    self.asked.push_back((token, (member.0, at.0 - 2048, bytes)));
                }
                Output::Reply { tag, result, .. } => self.replies.push((tag.0, result)),
                Output::Abort(token) => self.given_up.push(token),
                Output::Submit { .. } | Output::Compute { .. } => panic!("{output:?}"),
                Output::Credit { .. } | Output::Notice(_) | Output::Release(_) => {}
            }
        }
    }

    /// The reads that members were asked for since the last time, which they answer now.
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
    // The data of the first member are 3 MiB, those of each other 1 MiB more.
    let mut rig = Rig::new(assembly(Level::Raid0, Some(2), 3, |_| ()));
    rig.read(CHUNK - 512, CHUNK + 1024, false);
    let chunk = CHUNK / 512;
    let expected = [(0, chunk - 1, 512), (1, 0, CHUNK), (2, 0, 512)];
    assert_eq!(rig.answer(Ok(())), expected);
    // Zone 1 begins at 9 MiB, without the first member.
    rig.read(9 << 20, 2 * CHUNK, false);
    assert_eq!(rig.answer(Ok(())), [(1, 6144, CHUNK), (2, 6144, CHUNK)]);
    assert_eq!(rig.replies, [(1, Ok(())), (2, Ok(()))]);
    // Nobody else has it, and the member stays in use.
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
        rig.read(4096, 8192, false);
        for member in 0..fails.min(3) {
            assert_eq!(rig.answer(Err(Fault::Io)), [(member, 8, 8192)], "{fails} fail");
        }
        if fails < 3 {
            assert_eq!(rig.answer(Ok(())), [(fails, 8, 8192)]);
        }
        let expected = if fails < 3 { Ok(()) } else { Err(ReplyError::Io) };
        assert_eq!(rig.replies, [(1, expected.clone())], "{fails} fail");
        // The next read begins anew.
        rig.read(4096, 8192, false);
        assert_eq!(rig.answer(Ok(())), [(0, 8, 8192)]);
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
        rig.now = rig.engine.next_wake().expect("somebody looks after the member");
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
