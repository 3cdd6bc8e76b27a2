//! Tests of a single member: its requests, and the replies to clients. The content of bare volumes,
//! also after power cuts, is tested in `weft-crash` (`script/bare.rs`).

use std::collections::{BTreeMap, VecDeque};

use weft_units::{ByteRange, Bytes, ClientId, MemberIndex, Sectors, Time, VolumeId};

use crate::contract::frame::{Run, Segments, ZERO_FRAME, frames_needed};
use crate::knobs::{Knob, SchedulerKind};
use crate::{
    Attr, ClientRequest, Command, Config, Engine, Fault, Flags, Input, MemberInfo, MemberOp,
    MemberState, Notice, Output, ReplyError, RequestOp, SyncAction, Tag, Token, TokenWaits, Value,
    Verb,
};

const CLIENT: ClientId = ClientId(7);
const SIZE: u64 = 16 << 20;

/// An engine of one member, and its outputs.
struct Rig {
    config: Config,
    engine: Engine,
    now: Time,
    tag: u64,
    frame: u32,
    /// Member requests that are not answered.
    asked: VecDeque<(Token, MemberOp)>,
    replies: BTreeMap<u64, Result<(), ReplyError>>,
    released: Vec<Run>,
    credit: u64,
    notices: Vec<Notice>,
}

impl Rig {
    fn new(change: impl FnOnce(&mut MemberInfo)) -> Self {
        Self::with(false, change)
    }

    fn with(read_only: bool, change: impl FnOnce(&mut MemberInfo)) -> Self {
        let mut member = MemberInfo::of_size(MemberIndex(0), "disk", Bytes(SIZE).sectors_floor());
        change(&mut member);
        let config = Config::for_single(member, read_only);
        let frame = config.client_frames_first();
        Self {
            engine: Engine::new(config.clone(), Time(0)).unwrap(),
            config,
            now: Time(0),
            tag: 0,
            frame,
            asked: VecDeque::new(),
            replies: BTreeMap::new(),
            released: Vec::new(),
            credit: 0,
            notices: Vec::new(),
        }
    }

    /// Sends a request with frames of its own. Returns the request's tag and frames.
    fn ask(&mut self, op: RequestOp, start: u64, len: u64, flags: Flags) -> (u64, Run) {
        self.tag += 1;
        let range = ByteRange::new(start, len);
        let has_payload = matches!(op, RequestOp::Read | RequestOp::Write);
        let count = if has_payload { frames_needed(start, len) } else { 0 };
        let frames = if count > 0 { Run::new(self.frame, count) } else { Run::EMPTY };
        self.frame += count;
        let (tag, volume, attr) = (Tag(self.tag), VolumeId(0), Attr::default());
        let request = ClientRequest { client: CLIENT, tag, volume, op, range, frames, flags, attr };
        self.engine.handle(self.now, Input::Client(request));
        self.run();
        (self.tag, frames)
    }

    fn command(&mut self, verb: Verb) -> u64 {
        self.tag += 1;
        let command = Command { client: CLIENT, tag: Tag(self.tag), volume: VolumeId(0), verb };
        self.engine.handle(self.now, Input::Admin(Box::new(command)));
        self.run();
        self.tag
    }

    fn run(&mut self) {
        let mut outputs = VecDeque::new();
        while self.engine.run(self.now, 64, &mut outputs).more {}
        for output in outputs {
            match output {
                Output::Submit { token, op, .. } => self.asked.push_back((token, op)),
                Output::Reply { tag, result, .. } => {
                    assert!(
                        self.replies.insert(tag.0, result).is_none(),
                        "{tag:?}: answered twice"
                    );
                }
                Output::Release(run) => self.released.push(run),
                Output::Credit { bytes, .. } => self.credit += bytes.0,
                Output::Notice(notice) => self.notices.push(notice),
                Output::Abort(_) | Output::Compute { .. } => panic!("{output:?}"),
            }
        }
    }

    /// Answers the member's oldest request with `result`, and returns the request.
    fn done(&mut self, result: Result<(), Fault>) -> MemberOp {
        let (token, op) = self.asked.pop_front().expect("a request is outstanding");
        let result = result.map(|()| Value::Nothing);
        self.engine.handle(self.now, Input::Done { token, result });
        self.run();
        op
    }

    fn reply(&mut self, tag: u64) -> Option<Result<(), ReplyError>> {
        self.replies.remove(&tag)
    }
}

fn fua() -> Flags {
    Flags { fua: true, ..Flags::NONE }
}

fn holes() -> Flags {
    Flags { discard: true, ..Flags::NONE }
}

#[test]
fn each_request_is_one_of_the_member_and_is_there_at_once() {
    let mut rig = Rig::new(|member| member.discards = true);
    let at = Sectors(9);
    let (read, into) = rig.ask(RequestOp::Read, 4608, 9216, Flags::NONE);
    let (write, from) = rig.ask(RequestOp::Write, 4608, 512, Flags::NONE);
    // A neighbouring write is not merged, because an error would then concern both requests.
    let (next, after) = rig.ask(RequestOp::Write, 5120, 512, fua());
    let (trim, _) = rig.ask(RequestOp::Trim, 4608, 1024, Flags::NONE);
    let (zeroes, _) = rig.ask(RequestOp::WriteZeroes, 8192, 1024, holes());
    let (flush, _) = rig.ask(RequestOp::Flush, 0, 0, Flags::NONE);
    let part = |run: Run, len| Segments::from_slice(&[run.part(512, len)]);
    let hole = |at| MemberOp::Discard { at, len: Sectors(2), fua: false };
    let after = Segments::from_slice(&[after.part(1024, 512)]);
    let expected = [
        (read, MemberOp::Read { at, into: part(into, 9216) }),
        (write, MemberOp::Write { at, from: part(from, 512), fua: false }),
        (next, MemberOp::Write { at: Sectors(10), from: after, fua: true }),
        (trim, hole(at)),
        (zeroes, hole(Sectors(16))),
        (flush, MemberOp::Flush),
    ];
    assert_eq!(rig.engine.snapshot().volumes[0].requests_active, 6);
    for (tag, op) in expected {
        assert_eq!(rig.reply(tag), None, "before the member has");
        assert_eq!(rig.done(Ok(())), op);
        assert_eq!(rig.reply(tag), Some(Ok(())));
    }
    // The frames of the read went back with its reply.
    assert_eq!(rig.released.len(), 2);
    assert_eq!(rig.credit, 9216 + 512 + 512);
    let snapshot = rig.engine.snapshot();
    assert_eq!((snapshot.tokens_outstanding, snapshot.frames_held), (0, 0));
    let member = &snapshot.volumes[0].members[0];
    assert_eq!((member.reads, member.writes, member.flushes), (1, 4, 1));
    assert_eq!((member.sectors_read, member.sectors_written), (18, 6));
    assert_eq!(rig.engine.next_wake(), None, "an idle member needs no clock");
}

#[test]
fn error_of_the_member_is_that_of_the_request_and_costs_no_other() {
    let faults = [
        (Fault::Aborted, ReplyError::Io),
        (Fault::Gone, ReplyError::Io),
        (Fault::Io, ReplyError::Io),
        (Fault::NoSpace, ReplyError::NoSpace),
    ];
    let mut asked = 0;
    for (fault, error) in faults {
        for op in [RequestOp::Read, RequestOp::Write, RequestOp::WriteZeroes, RequestOp::Flush] {
            let mut rig = Rig::new(|_| ());
            let len = if op == RequestOp::Flush { 0 } else { 4096 };
            let (tag, frames) = rig.ask(op, 0, len, Flags::NONE);
            let (other, _) = rig.ask(op, 4096, len, Flags::NONE);
            rig.done(Err(fault));
            assert_eq!(rig.reply(tag), Some(Err(error.clone())), "{op:?} {fault:?}");
            assert!(frames.count == 0 || rig.released == [frames]);
            rig.done(Ok(()));
            assert_eq!(rig.reply(other), Some(Ok(())), "{op:?} {fault:?}");
            let (again, _) = rig.ask(op, 0, len, Flags::NONE);
            rig.done(Ok(()));
            assert_eq!(rig.reply(again), Some(Ok(())), "{op:?} {fault:?}");
            let volume = &rig.engine.snapshot().volumes[0];
            assert_eq!((volume.array_state, volume.degraded), ("active", 0));
            assert_eq!(volume.members[0].state, MemberState::InSync);
            asked += 1;
        }
    }
    assert_eq!(asked, 16);
}

#[test]
fn requests_that_make_no_sense_are_refused_before_the_member_is_asked() {
    let mut rig = Rig::new(|member| member.logical_block = 4096);
    let blocks = ReplyError::Invalid("not whole logical blocks");
    for (start, len, expected) in [
        (512, 4096, &blocks),
        (4096, 512, &blocks),
        (SIZE - 4096, 8192, &ReplyError::OutOfRange),
        (u64::MAX - 4095, 4096, &ReplyError::OutOfRange),
    ] {
        for op in [RequestOp::Read, RequestOp::Write, RequestOp::WriteZeroes] {
            let (tag, _) = rig.ask(op, start, len, Flags::NONE);
            assert_eq!(rig.reply(tag), Some(Err(expected.clone())), "{op:?} {start} {len}");
        }
    }
    assert_eq!(rig.credit, 2 * (4096 + 512 + 8192 + 4096), "it is given back");
    let mut sealed = Rig::with(true, |member| member.discards = true);
    for op in [RequestOp::Write, RequestOp::WriteZeroes, RequestOp::Trim] {
        let (tag, _) = sealed.ask(op, 0, 4096, holes());
        assert_eq!(sealed.reply(tag), Some(Err(ReplyError::ReadOnly)), "{op:?}");
    }
    let refused = ReplyError::Invalid("a bare member has no array to administer");
    for verb in [Verb::Fail(MemberIndex(0)), Verb::SyncAction(SyncAction::Check)] {
        let tag = rig.command(verb);
        assert_eq!(rig.reply(tag), Some(Err(refused.clone())));
    }
    let tag = rig.command(Verb::Set(Knob::SkipCopy(true)));
    let refused = ReplyError::Invalid("a bare member has only the knobs of its queue");
    assert_eq!(rig.reply(tag), Some(Err(refused)));
    let tag = rig.command(Verb::Set(Knob::Scheduler(SchedulerKind::MqDeadline)));
    assert_eq!(rig.reply(tag), Some(Ok(())));
    assert!(rig.asked.is_empty() && sealed.asked.is_empty());
    // A trim that the member cannot carry out is ignored, because it is advice.
    let (tag, _) = rig.ask(RequestOp::Trim, 0, 4096, Flags::NONE);
    assert_eq!(rig.reply(tag), Some(Ok(())));
    assert!(rig.asked.is_empty());
}

/// Sector, number of bytes and FUA flag of a write of zeroes.
fn zeroes_of(op: &MemberOp) -> (u64, u64, bool) {
    let MemberOp::Write { at, from, fua } = op else { panic!("{op:?}") };
    assert!(from.iter().all(|part| part.frame == ZERO_FRAME && part.offset == 0));
    (at.0, from.iter().map(|part| u64::from(part.len)).sum(), *fua)
}

#[test]
fn zeroes_are_stored_step_by_step_and_end_with_the_first_error() {
    let (start, len) = (512, (5 << 19) + 512);
    let steps = [(1, 1 << 20, true), (2049, 1 << 20, true), (4097, (1 << 19) + 512, true)];
    for fails_at in [None, Some(0), Some(1), Some(2)] {
        let mut rig = Rig::new(|_| ());
        let (tag, _) = rig.ask(RequestOp::WriteZeroes, start, len, fua());
        let mut seen = Vec::new();
        while !rig.asked.is_empty() {
            assert_eq!((rig.asked.len(), rig.reply(tag)), (1, None), "one at a time");
            let fails = fails_at == Some(seen.len());
            seen.push(zeroes_of(&rig.done(if fails { Err(Fault::Io) } else { Ok(()) })));
        }
        assert_eq!(seen, steps[..fails_at.map_or(3, |step| step + 1)]);
        let expected = if fails_at.is_some() { Err(ReplyError::Io) } else { Ok(()) };
        assert_eq!(rig.reply(tag), Some(expected));
        assert_eq!(rig.engine.snapshot().tokens_outstanding, 0);
    }
}

#[test]
fn member_that_cannot_have_holes_after_all_stores_zeroes_from_then_on() {
    let mut rig = Rig::new(|member| member.discards = true);
    let (zeroes, _) = rig.ask(RequestOp::WriteZeroes, 0, 8192, holes());
    let (trim, _) = rig.ask(RequestOp::Trim, 8192, 8192, Flags::NONE);
    for _ in 0..2 {
        assert!(matches!(rig.done(Err(Fault::Io)), MemberOp::Discard { .. }));
    }
    assert_eq!((rig.reply(zeroes), rig.reply(trim)), (None, Some(Ok(()))), "a trim is advice");
    assert_eq!(zeroes_of(&rig.done(Ok(()))), (0, 8192, false));
    assert_eq!(rig.reply(zeroes), Some(Ok(())));
    let (zeroes, _) = rig.ask(RequestOp::WriteZeroes, 0, 4096, holes());
    assert_eq!(zeroes_of(&rig.done(Ok(()))), (0, 4096, false));
    assert_eq!(rig.reply(zeroes), Some(Ok(())));
    // Another error does not show that the member cannot discard.
    for (fault, error) in [(Fault::Gone, ReplyError::Io), (Fault::NoSpace, ReplyError::NoSpace)] {
        let mut rig = Rig::new(|member| member.discards = true);
        for _ in 0..2 {
            let (tag, _) = rig.ask(RequestOp::WriteZeroes, 0, 8192, holes());
            assert!(matches!(rig.done(Err(fault)), MemberOp::Discard { .. }));
            assert_eq!(rig.reply(tag), Some(Err(error.clone())));
        }
    }
}

#[test]
fn write_with_preflush_waits_for_a_flush_and_ends_with_its_error() {
    let flags = Flags { preflush: true, fua: true, ..Flags::NONE };
    for fault in [None, Some(Fault::Io)] {
        let mut rig = Rig::new(|_| ());
        let (tag, frames) = rig.ask(RequestOp::Write, 4096, 4096, flags);
        assert_eq!(rig.done(fault.map_or(Ok(()), Err)), MemberOp::Flush);
        if fault.is_none() {
            let from = Segments::from_slice(&[frames.part(0, 4096)]);
            let write = MemberOp::Write { at: Sectors(8), from, fua: true };
            assert_eq!((rig.reply(tag), rig.done(Ok(()))), (None, write));
        }
        assert_eq!(rig.reply(tag), Some(fault.map_or(Ok(()), |_| Err(ReplyError::Io))));
        assert_eq!((&rig.released[..], rig.asked.len()), (&[frames][..], 0));
    }
}

#[test]
fn waits_for_a_token_are_counted_until_the_request_has_one() {
    let mut rig = Rig::new(|member| member.device.depth = Some(1));
    let mut config = rig.config.clone();
    let knobs = &mut config.volumes[0].knobs;
    (knobs.scheduler, knobs.nr_requests) = (SchedulerKind::MqDeadline, 2);
    rig.engine = Engine::new(config, Time(0)).unwrap();
    let waits = |rig: &Rig| {
        let TokenWaits { begun, ended } = rig.engine.token_waits(VolumeId(0));
        (begun, ended)
    };
    // One of five requests is at the member, and one is in the scheduler. The last request is
    // merged with the one in the scheduler.
    for (block, begun) in [(0, 0), (10, 0), (20, 1), (30, 2), (11, 2)] {
        rig.ask(RequestOp::Write, block * 4096, 4096, Flags::NONE);
        assert_eq!(waits(&rig), (begun, 0), "block {block}");
    }
    for ended in [1, 2, 2] {
        rig.done(Ok(()));
        assert_eq!(waits(&rig), (2, ended));
    }
}

/// A member that takes one command at a time. Requests wait in its queue, both with `none` and with
/// the other schedulers, which merge waiting requests.
#[test]
fn requests_that_wait_in_the_queue_of_the_member_are_all_answered() {
    for scheduler in SchedulerKind::ALL {
        for fault in [None, Some(Fault::NoSpace)] {
            let mut rig = Rig::new(|member| member.device.depth = Some(1));
            let mut config = rig.config.clone();
            config.volumes[0].knobs.scheduler = scheduler;
            rig.engine = Engine::new(config, Time(0)).unwrap();
            let mut tags = Vec::new();
            for number in 0..8 {
                let op = [RequestOp::Write, RequestOp::Read][number as usize / 4];
                tags.push(rig.ask(op, number * 4096, 4096, Flags::NONE).0);
                assert_eq!(rig.asked.len(), 1, "one at a time");
            }
            let mut commands = 0;
            while !rig.asked.is_empty() {
                rig.done(fault.map_or(Ok(()), Err));
                commands += 1;
            }
            assert!(if scheduler == SchedulerKind::None { commands <= 8 } else { commands < 8 });
            for tag in tags {
                let expected = fault.map_or(Ok(()), |fault| Err(fault.into()));
                assert_eq!(rig.reply(tag), Some(expected), "{scheduler:?} {fault:?}");
            }
            let snapshot = rig.engine.snapshot();
            assert_eq!((snapshot.tokens_outstanding, snapshot.frames_held), (0, 0));
            assert_eq!(snapshot.volumes[0].members[0].in_flight, 0);
        }
    }
}

#[test]
fn stop_waits_for_what_is_under_way_and_flushes_what_was_written() {
    for result in [Ok(()), Err(Fault::Io)] {
        let mut rig = Rig::new(|_| ());
        let (write, _) = rig.ask(RequestOp::Write, 0, 4096, Flags::NONE);
        let stop = rig.command(Verb::Stop);
        let (late, _) = rig.ask(RequestOp::Read, 0, 4096, Flags::NONE);
        assert_eq!(rig.reply(late), Some(Err(ReplyError::Stopping)));
        assert_eq!(rig.asked.len(), 1, "no flush before the write is done");
        rig.done(Ok(()));
        assert_eq!((rig.reply(write), rig.reply(stop)), (Some(Ok(())), None));
        assert_eq!(rig.done(result), MemberOp::Flush);
        assert_eq!(rig.reply(stop), Some(result.map_err(ReplyError::from)));
        assert_eq!((rig.asked.len(), rig.engine.next_wake()), (0, None));
    }
    let mut rig = Rig::with(true, |_| ());
    let (flush, _) = rig.ask(RequestOp::Flush, 0, 0, Flags::NONE);
    rig.done(Err(Fault::Io));
    assert_eq!(rig.reply(flush), Some(Err(ReplyError::Io)));
    let stop = rig.command(Verb::Stop);
    assert_eq!((rig.reply(stop), rig.asked.len()), (Some(Ok(())), 0), "there is nothing to flush");
}

#[test]
fn client_that_is_gone_is_not_answered_and_its_frames_come_back() {
    let mut rig = Rig::new(|_| ());
    let (_, read) = rig.ask(RequestOp::Read, 0, 4096, Flags::NONE);
    let (_, write) = rig.ask(RequestOp::Write, 0, 4096, Flags::NONE);
    rig.ask(RequestOp::WriteZeroes, 0, 3 << 20, Flags::NONE);
    let snapshot = rig.engine.snapshot();
    assert_eq!((snapshot.frames_held, snapshot.volumes[0].requests_active), (2, 3));
    rig.engine.handle(rig.now, Input::ClientGone(CLIENT));
    rig.run();
    while !rig.asked.is_empty() {
        rig.done(Ok(()));
    }
    assert_eq!(rig.released, [read, write]);
    assert!(rig.replies.is_empty() && rig.credit == 0);
    let snapshot = rig.engine.snapshot();
    assert_eq!((snapshot.frames_held, snapshot.clients.len()), (0, 0));
}

#[test]
fn credit_of_one_turn_comes_back_in_one() {
    let mut rig = Rig::new(|_| ());
    rig.ask(RequestOp::Read, 0, 4096, Flags::NONE);
    rig.ask(RequestOp::Write, 4096, 8192, Flags::NONE);
    for (token, _) in std::mem::take(&mut rig.asked) {
        let result = Ok(Value::Nothing);
        rig.engine.handle(rig.now, Input::Done { token, result });
    }
    let mut outputs = VecDeque::new();
    rig.engine.run(rig.now, 64, &mut outputs);
    let credit = outputs.iter().filter_map(|output| match output {
        Output::Credit { client, bytes } => Some((*client, bytes.0)),
        _ => None,
    });
    assert_eq!(credit.collect::<Vec<_>>(), [(CLIENT, 12_288)]);
}

#[test]
fn member_that_does_not_answer_is_spoken_of_and_waited_for() {
    let mut rig = Rig::new(|_| ());
    let (tag, _) = rig.ask(RequestOp::Read, 0, 4096, Flags::NONE);
    assert_eq!(rig.engine.next_wake(), Some(Time(30_000_000_000)));
    for seconds in [29, 30, 90_000] {
        rig.now = Time(seconds * 1_000_000_000);
        rig.engine.handle(rig.now, Input::Wake);
        rig.run();
        let stalled = Notice::MemberStalled { member: MemberIndex(0), read_around: false };
        assert_eq!(rig.notices, if seconds < 30 { vec![] } else { vec![stalled] });
        assert_eq!(rig.reply(tag), None);
    }
    rig.done(Ok(()));
    assert_eq!(rig.reply(tag), Some(Ok(())));
}
