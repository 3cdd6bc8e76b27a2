//! Tests of mirrors with content: an array on members that answer at once.

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
mod reads;
mod sync;

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
    /// Member and data sector of each sector that cannot be read until it is written.
    bad: BTreeSet<(u16, u64)>,
    /// If set, members do not store data that is written to a sector of `bad`.
    stubborn: bool,
    /// If set, sectors of `bad` can be read again after a read has failed.
    temporary: bool,
    /// Member that never answers reads of a resync or a correction, and the memory of these reads;
    /// `None` if all members answer.
    stuck: Option<(MemberIndex, Vec<Segment>)>,
    /// Member that does not answer its reads of a resync yet, and these reads; `None` if all
    /// members answer.
    slow: Option<(MemberIndex, Vec<(Token, MemberOp)>)>,
    /// Faults of member requests, by member and whether the request writes.
    fails: BTreeMap<(u16, bool), Fault>,
    /// Member writes that are held back unanswered; `None` if writes are answered at once.
    held: Option<Vec<Token>>,
    /// Flushes that are held back unanswered; `None` if flushes are answered at once.
    held_flushes: Option<Vec<Token>>,
    /// Writes of metadata that are held back, with first sector and number of bytes; `None` if
    /// writes of metadata are answered at once.
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

const CHUNK_SECTORS: u64 = CHUNK / 512;

/// Adds a blank disk to the array.
fn add(machine: &mut Machine) {
    let index = machine.members.len() as u16;
    machine.members.push(vec![0xee; 20_000]);
    let member = MemberInfo::of_size(MemberIndex(index), "new", Sectors(20_000));
    let (former, device_uuid) = (None, Uuid([70 + index as u8; 16]));
    machine.command(Verb::Add { member, former, device_uuid });
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

/// Command that adds a bitmap with chunks of `sectors` sectors, and a `daemon_sleep` of one second.
fn chunks_of(sectors: u64) -> Verb {
    Verb::SetBitmap(Some(NewBitmap { chunk: Some(Bytes(sectors * 512)), daemon_sleep: 1 }))
}
