//! Tests of mirrors with content: resync, recovery, check, repair, correction of read errors.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use weft_ondisk::{Level, NewBitmap, Super1, Superblock, Uuid};
use weft_units::{ByteRange, Bytes, ClientId, MemberIndex, SectorRange, Sectors, Time, VolumeId};

use crate::assemble::{Assembly, Candidate, Options};
use crate::contract::frame::{Run, Segment, frames_needed};
use crate::contract::output::{ComputeOp, Differs};
use crate::knobs::{Knobs, SyncPace};
use crate::raid::tests::{CHUNK, assembled};
use crate::{
    Attr, ClientRequest, Command, Config, Engine, Fault, Flags, Input, MemberInfo, MemberOp,
    MemberState, Notice, Origin, Output, ReplyError, RequestOp, SyncAction, Tag, Token, Value,
    Verb, VolumeSnapshot,
};

mod bitmap;
mod last_copy;

const DATA_OFFSET: u64 = 2048;

/// An engine of one array, with one byte of content per sector, on members that answer at once.
struct Machine {
    engine: Engine,
    now: Time,
    tag: u64,
    /// Content of the members' data sectors, one byte per sector.
    members: Vec<Vec<u8>>,
    /// Content of frames, one byte per sector.
    frames: BTreeMap<u32, [u8; 8]>,
    /// Sectors that cannot be read until they are written.
    bad: BTreeSet<(u16, u64)>,
    /// If set, members do not store data that is written to a sector of `bad`.
    stubborn: bool,
    /// If set, sectors of `bad` can be read again after a read has failed.
    temporary: bool,
    /// Member that never answers reads of a resync or a correction, and the memory of these reads.
    stuck: Option<(MemberIndex, Vec<Segment>)>,
    /// Member that does not answer its reads of a resync yet, and these reads.
    slow: Option<(MemberIndex, Vec<(Token, MemberOp)>)>,
    /// Faults of member requests, by member and whether the request writes.
    fails: BTreeMap<(u16, bool), Fault>,
    /// Member writes that are held back unanswered; `None` if writes are answered at once.
    held: Option<Vec<Token>>,
    /// Flushes that are held back unanswered; `None` if flushes are answered at once.
    held_flushes: Option<Vec<Token>>,
    /// Writes of metadata that are held back, with first sector and number of bytes.
    held_metadata: Option<Vec<(Token, Sectors, usize)>>,
    /// Member requests, in order: member, first sector, number of sectors, and whether it was a
    /// write.
    log: Vec<(u16, u64, u64, bool)>,
    outputs: VecDeque<Output>,
    replies: BTreeMap<u64, Result<(), ReplyError>>,
    notices: Vec<Notice>,
}

impl Machine {
    fn new(assembly: Assembly) -> Self {
        // Time stands still here: a resync that goes on only in pauses would not end.
        Self::with_knobs(assembly, Knobs { sync_pace: SyncPace::Md, ..Knobs::default() })
    }

    fn with_knobs(assembly: Assembly, knobs: Knobs) -> Self {
        let members = assembly.slots.len();
        let engine = Engine::new(Config::for_volume(assembly, knobs), Time(0)).unwrap();
        Self {
            engine,
            now: Time(0),
            tag: 0,
            members: (0..members).map(|_| vec![0; 20_000]).collect(),
            frames: BTreeMap::new(),
            bad: BTreeSet::new(),
            stubborn: false,
            temporary: false,
            stuck: None,
            slow: None,
            fails: BTreeMap::new(),
            held: None,
            held_flushes: None,
            held_metadata: None,
            log: Vec::new(),
            outputs: VecDeque::new(),
            replies: BTreeMap::new(),
            notices: Vec::new(),
        }
    }

    /// Fills the members with content that differs from sector to sector, and from member to
    /// member.
    fn scatter(&mut self) {
        for (member, number) in self.members.iter_mut().zip(0..) {
            for (content, sector) in member.iter_mut().zip(0_usize..) {
                *content = ((sector * 7 + sector / 251) % 50 + number * 50) as u8;
            }
        }
    }

    fn tell(&mut self, input: Input) {
        self.engine.handle(self.now, input);
        self.run();
    }

    /// Runs the engine until it has no more work by itself.
    fn run(&mut self) {
        let ended = (0..1000).any(|_| !self.engine.run(self.now, 64, &mut self.outputs).more);
        assert!(ended, "turns that never end");
    }

    /// Carries out the outputs of the engine until there are no more.
    fn settle(&mut self) {
        self.run();
        while let Some(output) = self.outputs.pop_front() {
            match output {
                Output::Submit { member, op: MemberOp::Read { into, .. }, attr, .. }
                    if self.stuck.as_ref().is_some_and(|(stuck, _)| *stuck == member)
                        && attr.origin == Origin::Sync =>
                {
                    let (_, parts) = self.stuck.as_mut().expect("it is stuck");
                    parts.extend(into);
                }
                Output::Submit { token, member, op: op @ MemberOp::Read { .. }, attr, .. }
                    if self.slow.as_ref().is_some_and(|(slow, _)| *slow == member)
                        && attr.origin == Origin::Sync =>
                {
                    let (_, reads) = self.slow.as_mut().expect("it is slow");
                    reads.push((token, op));
                }
                Output::Submit { token, op: MemberOp::Write { .. }, .. } if self.held.is_some() => {
                    self.held.iter_mut().for_each(|held| held.push(token));
                }
                Output::Submit { token, op: MemberOp::Flush, .. }
                    if self.held_flushes.is_some() =>
                {
                    self.held_flushes.iter_mut().for_each(|held| held.push(token));
                }
                Output::Submit { token, op: MemberOp::WriteMetadata { at, bytes }, .. }
                    if self.held_metadata.is_some() =>
                {
                    self.held_metadata.iter_mut().for_each(|it| it.push((token, at, bytes.len())));
                }
                Output::Submit { token, member, op, .. } => {
                    let result = self.carry_out(member, &op).map(|()| Value::Nothing);
                    self.tell(Input::Done { token, result });
                }
                Output::Compute { token, ops } => self.compute(token, &ops),
                Output::Reply { tag, result, .. } => drop(self.replies.insert(tag.0, result)),
                Output::Notice(notice) => self.notices.push(notice),
                Output::Abort(_) | Output::Credit { .. } | Output::Release(_) => {}
            }
        }
    }

    fn carry_out(&mut self, member: MemberIndex, op: &MemberOp) -> Result<(), Fault> {
        let content = &mut self.members[member.index()];
        let writes = matches!(op, MemberOp::Write { .. });
        let reads = matches!(op, MemberOp::Read { .. });
        if let Some(fault) = self.fails.get(&(member.0, writes)).filter(|_| reads || writes) {
            return Err(*fault);
        }
        match op {
            MemberOp::Read { at, into } => {
                let first = at.0 - DATA_OFFSET;
                let sectors = sectors_of(into);
                let count = sectors.len() as u64;
                let stuck = self.stuck.iter().flat_map(|(_, parts)| sectors_of(parts));
                assert!(stuck.into_iter().all(|it| !sectors.contains(&it)), "memory of two reads");
                self.log.push((member.0, first, count, false));
                if (first..first + count).any(|sector| self.bad.contains(&(member.0, sector))) {
                    let here = (member.0, first)..(member.0, first + count);
                    self.bad.retain(|place| !self.temporary || !here.contains(place));
                    return Err(Fault::Io);
                }
                for ((frame, nth), sector) in sectors.into_iter().zip(first..) {
                    self.frames.entry(frame).or_default()[nth] = content[sector as usize];
                }
            }
            MemberOp::Write { at, from, .. } => {
                let first = at.0 - DATA_OFFSET;
                let sectors = sectors_of(from);
                self.log.push((member.0, first, sectors.len() as u64, true));
                for ((frame, nth), sector) in sectors.into_iter().zip(first..) {
                    content[sector as usize] = self.frames.get(&frame).map_or(0, |it| it[nth]);
                    if !self.stubborn {
                        self.bad.remove(&(member.0, sector));
                    }
                }
            }
            MemberOp::Discard { .. } | MemberOp::Flush | MemberOp::WriteMetadata { .. } => {}
        }
        Ok(())
    }

    fn compute(&mut self, token: Token, ops: &[ComputeOp]) {
        let [ComputeOp::Compare { data, p: Some(p), q: None }] = ops else { panic!("{ops:?}") };
        let content = |part: &Segment| -> Vec<u8> {
            let sectors = sectors_of(std::slice::from_ref(part));
            sectors.into_iter().map(|(frame, nth)| self.frames[&frame][nth]).collect()
        };
        assert_eq!((data.len(), data[0].part.len), (1, p.len));
        let differs = Differs { p: content(&data[0].part) != content(p), q: false };
        self.tell(Input::Done { token, result: Ok(Value::Differs(differs)) });
    }

    fn request(&mut self, op: RequestOp, start: u64, sectors: u64) -> ClientRequest {
        self.tag += 1;
        let (start, len) = (start * 512, sectors * 512);
        ClientRequest {
            client: ClientId(7),
            tag: Tag(self.tag),
            volume: VolumeId(0),
            op,
            range: ByteRange::new(start, len),
            frames: Run::new(100_000 + self.tag as u32 * 1024, frames_needed(start, len)),
            flags: Flags::NONE,
            attr: Attr::default(),
        }
    }

    fn ask(&mut self, op: RequestOp, start: u64, sectors: u64, content: u8) -> Vec<u8> {
        let request = self.request(op, start, sectors);
        let ClientRequest { range, frames, .. } = request;
        let at = sectors_of(&[frames.part(range.start.0 % 4096, range.len.0)]);
        for (frame, nth) in &at {
            self.frames.entry(*frame).or_default()[*nth] = content;
        }
        self.tell(Input::Client(request));
        self.settle();
        at.into_iter().map(|(frame, nth)| self.frames[&frame][nth]).collect()
    }

    /// Reads 4 KiB at each of the sectors `starts`, all at once. Returns the members that are read.
    fn read_at_once(&mut self, starts: &[u64]) -> Vec<u16> {
        self.log.clear();
        for start in starts {
            let request = self.request(RequestOp::Read, *start, 8);
            self.engine.handle(self.now, Input::Client(request));
        }
        self.settle();
        let member = |start: &u64| {
            let read = self.log.iter().find(|it| (it.1, it.2, it.3) == (*start, 8, false));
            read.expect("it was read").0
        };
        starts.iter().map(member).collect()
    }

    fn command(&mut self, verb: Verb) {
        self.tag += 1;
        let command =
            Command { client: ClientId(7), tag: Tag(self.tag), volume: VolumeId(0), verb };
        self.tell(Input::Admin(Box::new(command)));
        self.settle();
    }

    /// Answers the writes and flushes that were held back, and holds back no further ones.
    fn release(&mut self) {
        let held = [self.held.take(), self.held_flushes.take()];
        for token in held.into_iter().flatten().flatten() {
            self.tell(Input::Done { token, result: Ok(Value::Nothing) });
        }
        self.settle();
    }

    /// Answers the reads of the slow member that were held back.
    fn answer_reads(&mut self) {
        let (member, reads) = self.slow.take().expect("a member is slow");
        assert!(!reads.is_empty(), "nothing was read of {member:?}");
        for (token, op) in reads {
            let result = self.carry_out(member, &op).map(|()| Value::Nothing);
            self.tell(Input::Done { token, result });
        }
        self.settle();
    }

    fn states(&self) -> Vec<MemberState> {
        self.volume().members.iter().map(|it| it.state).collect()
    }

    /// Lets `seconds` pass, and runs the engine after each second.
    fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now.0 += 1_000_000_000;
            self.tell(Input::Wake);
            self.settle();
        }
    }

    fn bits(&self) -> Option<u64> {
        self.volume().bitmap.map(|bitmap| bitmap.dirty)
    }

    fn volume(&self) -> VolumeSnapshot {
        self.engine.snapshot().volumes.remove(0)
    }

    /// Number of sectors written to each member since the last call.
    fn written(&mut self) -> BTreeMap<u16, u64> {
        let mut written = BTreeMap::new();
        for (member, _, sectors, write) in self.log.drain(..) {
            *written.entry(member).or_default() += if write { sectors } else { 0 };
        }
        written.retain(|_, sectors| *sectors > 0);
        written
    }
}

fn sectors_of(parts: &[Segment]) -> Vec<(u32, usize)> {
    let mut sectors = Vec::new();
    for part in parts {
        assert_eq!((part.offset % 512, part.len % 512), (0, 0), "whole sectors");
        for at in (part.slab_start()..part.slab_end()).step_by(512) {
            let frame = if part.is_zero() { u32::MAX } else { (at / 4096) as u32 };
            sectors.push((frame, (at % 4096 / 512) as usize));
        }
    }
    sectors
}

fn array(level: Level, layout: Option<u32>, members: u8) -> Assembly {
    assembled(level, layout, members, |_| (), &Options::default())
}

/// Number of sectors of each member of these arrays: 3 MiB.
const SIZE: u64 = 6144;

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

const CHUNK_SECTORS: u64 = CHUNK / 512;

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

/// Adds a blank disk to the array.
fn add(machine: &mut Machine) {
    let index = machine.members.len() as u16;
    machine.members.push(vec![0xee; 20_000]);
    let member = MemberInfo::of_size(MemberIndex(index), "new", Sectors(20_000));
    let (former, device_uuid) = (None, Uuid([70 + index as u8; 16]));
    machine.command(Verb::Add { member, former, device_uuid });
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

/// An array in which member 1 was replaced by a member that is being rebuilt, while member 0 has
/// not answered yet.
fn being_rebuilt(level: Level, members: u8) -> Machine {
    let mut machine = Machine::new(array(level, None, members));
    machine.scatter();
    machine.command(Verb::Fail(MemberIndex(1)));
    machine.slow = Some((MemberIndex(0), Vec::new()));
    add(&mut machine);
    machine.written();
    machine
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

#[test]
fn a_resync_that_has_ended_holds_no_bit_of_a_bitmap_that_is_added() {
    let mut assembly = array(Level::Raid1, None, 2);
    assembly.resync_from = Some(Sectors::ZERO);
    let mut machine = Machine::new(assembly);
    machine.settle();
    assert_eq!(machine.volume().resync_from, None);
    machine.command(Verb::SetBitmap(Some(NewBitmap { chunk: None, daemon_sleep: 1 })));
    machine.ask(RequestOp::Write, 0, 8, 1);
    assert_eq!(machine.bits(), Some(1));
    machine.pass(20);
    assert_eq!(machine.bits(), Some(0));
}

/// No bit is cleared while a write is outstanding that began before there was a bitmap, or that
/// needs a bit of a bitmap that is being removed.
#[test]
fn writes_that_outlast_a_change_of_the_bitmap() {
    let mut machine = Machine::with_knobs(
        array(Level::Raid1, None, 2),
        Knobs { read_around: weft_units::Span::ZERO, ..Knobs::default() },
    );
    let internal =
        || Verb::SetBitmap(Some(NewBitmap { chunk: Some(Bytes(65536)), daemon_sleep: 1 }));
    machine.held = Some(Vec::new());
    machine.ask(RequestOp::Write, 0, 8, 1);
    machine.command(internal());
    assert!(machine.replies[&machine.tag].is_ok(), "it does not wait for the write");
    let all = machine.bits().unwrap();
    machine.pass(20);
    assert_eq!((all, machine.bits()), (SIZE / 128, Some(all)), "the write may be anywhere");
    machine.release();
    machine.pass(20);
    assert_eq!(machine.bits(), Some(0));

    // A write with a bit outlasts the bitmap; the next write sets a bit of the next bitmap.
    machine.held = Some(Vec::new());
    machine.ask(RequestOp::Write, 500, 8, 2);
    assert_eq!(machine.bits(), Some(1));
    machine.command(Verb::SetBitmap(None));
    let removal = machine.tag;
    machine.pass(3);
    assert_eq!((machine.bits(), machine.replies.get(&removal)), (None, None));
    machine.ask(RequestOp::Write, 900, 8, 3);
    machine.command(internal());
    let busy = machine.replies.get(&machine.tag);
    assert!(matches!(busy, Some(Err(ReplyError::Busy(_)))), "{busy:?}");
    machine.release();
    assert_eq!(machine.replies.get(&removal), Some(&Ok(())));
    machine.command(internal());
    assert!(machine.replies[&machine.tag].is_ok());
    machine.pass(20);
    machine.ask(RequestOp::Write, 500, 8, 4);
    assert_eq!(machine.bits(), Some(1));
}

/// Command that adds a bitmap with chunks of `sectors` sectors, and a `daemon_sleep` of one second.
fn chunks_of(sectors: u64) -> Verb {
    Verb::SetBitmap(Some(NewBitmap { chunk: Some(Bytes(sectors * 512)), daemon_sleep: 1 }))
}

#[test]
fn a_chunk_keeps_its_bit_until_the_resync_has_passed_its_end() {
    for chunk in [128, 8192] {
        let mut assembly = array(Level::Raid1, None, 2);
        assembly.resync_from = Some(Sectors::ZERO);
        let mut machine = Machine::new(assembly);
        machine.slow = Some((MemberIndex(0), Vec::new()));
        machine.settle();
        machine.command(Verb::SyncAction(SyncAction::Frozen));
        machine.answer_reads();
        let from = machine.volume().resync_from.expect("it was stopped").0;
        assert!(from > 0 && from.is_multiple_of(128) && from < SIZE, "{from}");
        machine.command(chunks_of(chunk));
        machine.pass(20);
        assert_eq!(
            machine.bits(),
            Some(SIZE.div_ceil(chunk) - from / chunk),
            "{chunk}, from {from}"
        );
        machine.command(Verb::SyncAction(SyncAction::Idle));
        machine.pass(20);
        assert_eq!((machine.volume().resync_from, machine.bits()), (None, Some(0)));
    }
}

/// A bit is cleared after a flush of all members, and not if something has happened meanwhile.
#[test]
fn a_bit_stays_if_its_chunk_is_written_or_a_member_fails_during_the_flush() {
    for (writes, fails, left) in [(false, false, 0), (true, false, 1), (false, true, 1)] {
        let mut machine = Machine::new(array(Level::Raid1, None, 2));
        machine.command(chunks_of(128));
        machine.ask(RequestOp::Write, 0, 8, 1);
        machine.held_flushes = Some(Vec::new());
        machine.pass(5);
        assert!(machine.held_flushes.as_ref().is_some_and(|held| !held.is_empty()));
        assert_eq!(machine.bits(), Some(1));
        if writes {
            machine.held = Some(Vec::new());
            machine.ask(RequestOp::Write, 8, 8, 2);
        }
        if fails {
            machine.command(Verb::Fail(MemberIndex(1)));
        }
        let held = machine.held_flushes.take().unwrap_or_default();
        for token in held {
            machine.tell(Input::Done { token, result: Ok(Value::Nothing) });
        }
        machine.settle();
        assert_eq!(machine.bits(), Some(left), "{writes} {fails}");
    }
}
