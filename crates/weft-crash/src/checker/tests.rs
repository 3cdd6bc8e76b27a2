//! Tests of every checker: a correct stream of events, and a wrong one that differs in one point.

use std::collections::BTreeMap;

use smallvec::SmallVec;
use weft_engine::assemble::{Assembly, Candidate, Options, assemble};
use weft_engine::knobs::WAITS_WITHOUT_BOUND;
use weft_engine::layout::Layout;
use weft_engine::layout::geometry::Geometry;
use weft_engine::{
    Attr, ClientRequest, Command, Fault, Flags, Frame, Input, Load, MemberInfo, MemberOp, Origin,
    Output, RequestOp, Run, Segment, Snapshot, Tag, Token, Value, Verb,
};
use weft_ondisk::{Features, Level, Minor, NewArray, ResyncOffset, Role, Super1};
use weft_units::rng::Rng;
use weft_units::{
    ByteRange, Bytes, ClientId, Group, MemberIndex, Sectors, Slot, Span, Time, VolumeId,
};

use super::*;
use crate::crash::Judged;
use crate::disk::DiskOp;
use crate::model::{Payload, WriteId};
use crate::suspects::Syndrome;
use crate::{Order, World};

/// Fixture of a test: three members of RAID 5 with a chunk of 4 KiB, and the checkers. No engine
/// runs: the test makes the engine's inputs and outputs itself.
struct Stage {
    disks: Vec<Disk>,
    disk_of: Vec<usize>,
    array: Array,
    record: Record,
    written: Option<Record>,
    model: Model,
    suspects: Suspects,
    checkers: Checkers,
    supers: Vec<Super1>,
    tokens: u64,
    tags: u64,
    payload: BTreeMap<Token, (usize, bool)>,
    /// Origin of the writes to members.
    origin: Origin,
}

const CLIENT: ClientId = ClientId(1);
const EARLY: &str = "I4 no early acknowledgement";
const STALE: &str = "I8 no stale member";
const SYNC: Flags = Flags { sync: true, ..Flags::NONE };
const FUA: Flags = Flags { sync: true, fua: true, ..Flags::NONE };

impl Stage {
    fn new() -> Self {
        let size = Sectors(16_384);
        let mut array = NewArray::in_sync(Level::Raid5, 3, size);
        (array.chunk, array.size) = (Some(Sectors(8)), Some(Sectors(64)));
        let supers = array.plan().unwrap();
        let mut disks = vec![Disk::new(size, 512); 3];
        for (disk, sb) in disks.iter_mut().zip(&supers) {
            disk.poke(8, &sb.encode());
        }
        let geometry = Geometry::new(Level::Raid5, 2, 3, Sectors(8), Sectors(64)).unwrap();
        let data_offset = supers.iter().map(|sb| sb.data_offset).collect();
        let limits = Limits {
            stripes: 4,
            client_frames: 16,
            client_credit: Bytes(1024),
            member_bytes: 8192,
        };
        Self {
            record: Record::read(&disks, Minor::V1_2),
            written: None,
            disks,
            disk_of: vec![0, 1, 2],
            array: Array::new(Layout::Parity(geometry), data_offset),
            model: Model::default(),
            suspects: Suspects::default(),
            checkers: Checkers::new(limits),
            supers,
            tokens: 0,
            tags: 0,
            payload: BTreeMap::new(),
            origin: Origin::Client(CLIENT, Group::ROOT),
        }
    }

    /// Creates a fixture with superblocks that say that the array is dirty.
    fn dirty() -> Self {
        let mut stage = Self::new();
        stage.mark(false, &[2, 1, 0]);
        stage
    }

    fn view(&self) -> View<'_> {
        View {
            discards: true,
            write_back: false,
            now: Time(0),
            disks: &self.disks,
            disk_of: &self.disk_of,
            beside: (0, 0),
            array: &self.array,
            record: &self.record,
            written: self.written.as_ref().unwrap_or(&self.record),
            model: &self.model,
            suspects: &self.suspects,
        }
    }

    /// Calls `act` with the checkers and a view of the simulated disks.
    fn look(&mut self, act: impl FnOnce(&mut Checkers, View<'_>)) {
        let mut checkers = self.checkers.clone();
        act(&mut checkers, self.view());
        self.checkers = checkers;
    }

    fn say(&mut self, output: &Output) {
        self.look(|checkers, view| checkers.output(view, output));
    }

    fn tell(&mut self, input: &Input) {
        self.look(|checkers, view| checkers.input(view, input));
    }

    fn flush_all(&mut self, disks: impl IntoIterator<Item = usize>) {
        for disk in disks {
            let token = self.flush(disk);
            self.done(token);
        }
    }

    fn ask(&mut self, op: RequestOp, flags: Flags, frames: Run) -> Tag {
        let range = match op {
            RequestOp::Flush => ByteRange::default(),
            _ => ByteRange::new(0, 512),
        };
        self.ask_for(range, op, flags, frames)
    }

    fn ask_for(&mut self, range: ByteRange, op: RequestOp, flags: Flags, frames: Run) -> Tag {
        self.tags += 1;
        let tag = Tag(self.tags);
        self.tell(&Input::Client(ClientRequest {
            client: CLIENT,
            tag,
            volume: VolumeId(0),
            op,
            range,
            frames,
            flags,
            attr: Attr::default(),
        }));
        tag
    }

    fn reply(&mut self, tag: Tag) {
        self.say(&Output::Reply { client: CLIENT, tag, result: Ok(()) });
    }

    fn submit(&mut self, disk: usize, op: MemberOp, disk_op: DiskOp) -> Token {
        self.tokens += 1;
        let token = Token(self.tokens);
        let attr = Attr { origin: self.origin, ..Attr::default() };
        let metadata = matches!(op, MemberOp::WriteMetadata { .. });
        self.say(&Output::Submit { token, member: MemberIndex(disk as u16), op, attr });
        if let DiskOp::Write { at, count, bytes, preflush: false, .. } = &disk_op {
            self.look(|checkers, view| checkers.write(view, disk, *at, *count, bytes));
        }
        self.disks[disk].submit(token, disk_op);
        self.payload.insert(token, (disk, metadata));
        token
    }

    fn data(&mut self, disk: usize, column: u64, bytes: &[u8], fua: bool) -> Token {
        let at = column + self.array.data_offset[disk].0;
        let part = Segment::at(Frame(disk as u32 + 1), 0, bytes.len() as u64);
        let op = MemberOp::Write { at: Sectors(at), from: SmallVec::from_slice(&[part]), fua };
        let (count, bytes) = (bytes.len() as u64 / 512, bytes.to_vec());
        self.submit(disk, op, DiskOp::Write { at, count, bytes, fua, preflush: false })
    }

    fn stored(&mut self, disk: usize, column: u64, bytes: &[u8], fua: bool) {
        let token = self.data(disk, column, bytes, fua);
        self.done(token);
    }

    fn flush(&mut self, disk: usize) -> Token {
        self.submit(disk, MemberOp::Flush, DiskOp::Flush)
    }

    fn superblock(&mut self, disk: usize, change: impl Fn(&mut Super1)) -> Token {
        let mut sb = self.supers[disk].clone();
        sb.events += 1;
        change(&mut sb);
        let bytes = sb.encode()[..512].to_vec();
        let op = MemberOp::WriteMetadata { at: Sectors(8), bytes: bytes.clone().into() };
        self.supers[disk] = sb;
        self.submit(disk, op, DiskOp::Write { at: 8, count: 1, bytes, fua: true, preflush: true })
    }

    fn recorded(&mut self, disk: usize, change: impl Fn(&mut Super1)) {
        let token = self.superblock(disk, change);
        self.done(token);
    }

    fn done(&mut self, token: Token) {
        let (disk, metadata) = self.payload.remove(&token).unwrap();
        let result = self.disks[disk].complete(token).map(|_| Value::Nothing);
        if metadata {
            let record = Record::read(&self.disks, Minor::V1_2);
            let before = self.written.as_ref().unwrap_or(&self.record);
            self.written = record.written(&self.disks, Minor::V1_2, Some(before));
            self.record = record;
        }
        self.tell(&Input::Done { token, result });
    }

    fn mark(&mut self, clean: bool, disks: &[usize]) {
        let offset = if clean { ResyncOffset::Clean } else { ResyncOffset::At(Sectors(0)) };
        let tokens: Vec<Token> = disks
            .iter()
            .map(|disk| self.superblock(*disk, |sb| sb.resync_offset = offset))
            .collect();
        tokens.into_iter().for_each(|token| self.done(token));
    }

    /// Issues a client's write of array sector 0, and completes its member writes to the disks in
    /// `parts`. The data lies in column 0 on disk 0, and its parity on disk 2. Returns the
    /// request's tag and the number of the write.
    fn write(&mut self, flags: Flags, parts: &[usize]) -> (Tag, WriteId) {
        let range = ByteRange::new(0, 512);
        let (write, bytes) = self.model.write_issued(range, Payload::Tags);
        let tag = self.ask(RequestOp::Write, flags, Run::new(8, 1));
        let tokens: Vec<Token> =
            parts.iter().map(|disk| self.data(*disk, 0, &bytes, flags.fua)).collect();
        tokens.into_iter().for_each(|token| self.done(token));
        (tag, write)
    }

    /// Issues a client's write, completes its member writes to the disks in `parts`, and answers
    /// the request.
    fn acknowledged(&mut self, parts: &[usize]) {
        let (tag, _) = self.write(SYNC, parts);
        self.finish(tag);
    }

    fn found(&self) -> Vec<&'static str> {
        self.checkers.found.iter().map(|violation| violation.checker).collect()
    }

    fn finish(&mut self, tag: Tag) {
        self.reply(tag);
        self.say(&Output::Release(Run::new(8, 1)));
        self.say(&Output::Credit { client: CLIENT, bytes: Bytes(512) });
    }
}

fn at_rest() -> Snapshot {
    Snapshot {
        volumes: Vec::new(),
        clients: Vec::new(),
        tokens_outstanding: 0,
        frames_held: 0,
        write_back: None,
    }
}

#[test]
fn a_write_done_right_passes_every_checker() {
    let mut stage = Stage::dirty();
    let (tag, write) = stage.write(SYNC, &[2, 0]);
    stage.finish(tag);
    stage.model.write_acknowledged(write, false);
    let flush = stage.ask(RequestOp::Flush, Flags::NONE, Run::EMPTY);
    stage.flush_all(0..3);
    stage.reply(flush);
    stage.mark(true, &[2, 1, 0]);
    stage.checkers.at_rest(&at_rest());
    assert_eq!(stage.checkers.found, []);
    let mut found = Vec::new();
    assert_eq!(after_cut(&stage, |_| true, &mut found).columns, 1);
    assert_eq!(found, [], "column 0 of disk 1 is zero, so parity is the data");
}

#[test]
fn i4a_an_acknowledgement_before_parity_is_caught() {
    let mut stage = Stage::dirty();
    stage.acknowledged(&[0]);
    assert_eq!(stage.found(), [EARLY]);
}

#[test]
fn i4b_fua_that_is_not_durable_is_caught() {
    for fua in [false, true] {
        let mut stage = Stage::dirty();
        let (_, bytes) = stage.model.write_issued(ByteRange::new(0, 512), Payload::Tags);
        let tag = stage.ask(RequestOp::Write, FUA, Run::new(8, 1));
        for (disk, durable) in [(2, fua), (0, true)] {
            stage.stored(disk, 0, &bytes, durable);
        }
        stage.finish(tag);
        assert_eq!(stage.found(), vec![EARLY; usize::from(!fua)]);
    }
}

/// A FUA write is in flight while its member is rebuilt and flushed, and a later write replaces the
/// same parity. The flush makes the parity of the FUA write durable. Found by the profile
/// `beyond-powered`, seed 37807.
#[test]
fn i4b_fua_may_be_made_durable_by_a_flush_that_later_writes_follow() {
    for flushed in [false, true] {
        let mut stage = Stage::dirty();
        let (_, bytes) = stage.model.write_issued(ByteRange::new(0, 512), Payload::Tags);
        let tag = stage.ask(RequestOp::Write, FUA, Run::new(8, 1));
        stage.stored(0, 0, &bytes, true);
        stage.stored(2, 0, &bytes, false);
        if flushed {
            stage.flush_all([2]);
        }
        stage.stored(2, 0, &bytes, false);
        stage.finish(tag);
        assert_eq!(stage.found(), vec![EARLY; usize::from(!flushed)]);
    }
}

#[test]
fn i4c_a_flush_that_leaves_one_member_out_is_caught() {
    for skipped in 0..3 {
        let mut stage = Stage::dirty();
        stage.acknowledged(&[2, 0]);
        let flush = stage.ask(RequestOp::Flush, Flags::NONE, Run::EMPTY);
        stage.flush_all((0..3).filter(|disk| *disk != skipped));
        stage.reply(flush);
        // The write stores nothing on disk 1.
        assert_eq!(stage.found(), vec![EARLY; usize::from(skipped != 1)], "{skipped}");
    }
}

/// A member goes away before it was flushed. The engine answers the flush either before or after
/// the survivors have recorded the failure; only the former is a violation.
#[test]
fn i4d_a_flush_that_is_answered_before_a_failure_is_recorded_is_caught() {
    for told in [vec![], vec![0], vec![0, 1]] {
        let mut stage = Stage::dirty();
        stage.acknowledged(&[2, 0]);
        let flush = stage.ask(RequestOp::Flush, Flags::NONE, Run::EMPTY);
        stage.disks[2].faults.gone = true;
        stage.flush_all(0..2);
        let fails = |sb: &mut Super1| sb.roles[2] = Role::Faulty.code();
        let tokens: Vec<Token> = told.iter().map(|disk| stage.superblock(*disk, fails)).collect();
        tokens.into_iter().for_each(|token| stage.done(token));
        stage.reply(flush);
        assert_eq!(stage.found(), vec![EARLY; usize::from(told.is_empty())], "{told:?}");
    }
}

/// An engine that has written a superblock cannot know that the superblock becomes unreadable
/// afterwards, so a failure that was recorded there counts as recorded.
#[test]
fn i4d_a_failure_is_recorded_where_it_was_written_and_nowhere_else() {
    for told in [vec![], vec![0, 1]] {
        let mut stage = Stage::dirty();
        stage.acknowledged(&[2, 0]);
        // These are all members except the failed one.
        for disk in [0, 1] {
            let at = weft_ondisk::Version::V1_2.position(stage.disks[disk].size()).unwrap();
            stage.disks[disk].faults.dead_reads.insert(at.0);
        }
        for disk in &told {
            stage.recorded(*disk, |sb| sb.roles[2] = Role::Faulty.code());
        }
        let flush = stage.ask(RequestOp::Flush, Flags::NONE, Run::EMPTY);
        stage.flush_all([0, 1]);
        stage.reply(flush);
        assert_eq!(stage.found(), vec![EARLY; usize::from(told.is_empty())], "{told:?}");
    }
}

#[test]
fn i4c_a_flush_of_a_member_that_began_too_early_is_caught() {
    let mut stage = Stage::dirty();
    let tokens: Vec<Token> = (0..3).map(|disk| stage.flush(disk)).collect();
    stage.acknowledged(&[2, 0]);
    let flush = stage.ask(RequestOp::Flush, Flags::NONE, Run::EMPTY);
    tokens.into_iter().for_each(|token| stage.done(token));
    stage.reply(flush);
    assert_eq!(stage.found(), [EARLY; 2]);
}

/// A write with PREFLUSH waits for its flush, and a write of other bytes of the same sector does
/// not. A member write is therefore known to carry the data of the write with PREFLUSH only if no
/// other request is in flight in its sectors.
#[test]
fn i4e_data_before_its_flush_is_caught_beside_other_writes() {
    let preflush = Flags { preflush: true, ..SYNC };
    let (write, frames) = (RequestOp::Write, Run::new(8, 1));
    for beside in [None, Some((0, 512)), Some((512, 100)), Some((900, 124)), Some((1024, 512))] {
        for (flushed, sectors) in [(true, 1), (false, 1), (false, 2)] {
            let mut stage = Stage::dirty();
            stage.acknowledged(&[2, 0]);
            stage.ask_for(ByteRange::new(612, 288), write, preflush, frames);
            if let Some((start, len)) = beside {
                stage.ask_for(ByteRange::new(start, len), write, SYNC, frames);
            }
            if flushed {
                stage.flush_all(0..3);
            }
            stage.data(0, 2 - sectors, &vec![1; sectors as usize * 512], false);
            let shared = matches!(beside, Some((512 | 900, _)));
            // Sector 0 is outside the range of the write with PREFLUSH.
            let wrong = !flushed && sectors == 1 && !shared;
            let early = stage.found().contains(&EARLY);
            assert_eq!(early, wrong, "{beside:?} {flushed} {sectors}");
        }
    }
}

#[test]
fn i4d_a_failure_that_is_not_recorded_everywhere_is_caught() {
    for recorded in [vec![], vec![0], vec![0, 1]] {
        let mut stage = Stage::dirty();
        stage.disks[2].faults.gone = true;
        let (tag, _) = stage.write(SYNC, &[2, 0]);
        for disk in &recorded {
            stage.recorded(*disk, |sb| sb.roles[2] = Role::Faulty.code());
        }
        stage.finish(tag);
        assert_eq!(stage.found(), vec![EARLY; usize::from(recorded.len() < 2)], "{recorded:?}");
    }
}

#[test]
fn i5_data_on_a_clean_array_is_caught() {
    for marked in [vec![0, 1], vec![2, 1, 0]] {
        let mut stage = Stage::new();
        stage.mark(false, &marked);
        stage.acknowledged(&[2, 0]);
        let expected = if marked.len() == 3 { 0 } else { 2 };
        assert_eq!(stage.found(), vec!["I5 dirty before data"; expected]);
    }
}

/// A member leaves an array that is dirty, or still clean, and then failed writes tear the
/// superblocks of the other members. The only superblock that can still be parsed is that of the
/// member that left, and it says clean.
#[test]
fn i5_superblocks_that_a_failed_write_tore_say_what_they_said_before() {
    for dirty in [true, false] {
        let mut stage = Stage::new();
        for disk in [1, 0] {
            let offset = if dirty { ResyncOffset::At(Sectors(0)) } else { ResyncOffset::Clean };
            stage.recorded(disk, |sb| sb.resync_offset = offset);
            stage.recorded(disk, |sb| sb.roles[2] = Role::Faulty.code());
        }
        for disk in [1, 0] {
            let op = MemberOp::WriteMetadata { at: Sectors(8), bytes: [1; 512].into() };
            let (at, bytes) = (8, vec![1; 512]);
            let torn = DiskOp::Write { at, count: 1, bytes, fua: true, preflush: true };
            let token = stage.submit(disk, op, torn);
            stage.done(token);
        }
        assert_eq!(stage.record.freshest(), stage.record.of(2));
        stage.stored(0, 0, &[7; 512], false);
        assert_eq!(stage.found(), vec!["I5 dirty before data"; usize::from(!dirty)]);
    }
}

#[test]
fn i5_clean_too_early_is_caught() {
    for flushed in [false, true] {
        let mut stage = Stage::dirty();
        stage.acknowledged(&[2, 0]);
        stage.flush_all((0..3).filter(|_| flushed));
        stage.mark(true, &[1]);
        assert_eq!(stage.found().is_empty(), flushed);
        assert!(stage.found().iter().all(|name| *name == "I5 dirty before data"));
    }
}

/// A disk shrinks and loses its superblock, and a write to the disk is never answered. The write
/// does not count if the superblock that says clean also says that the disk has left.
#[test]
fn i5_a_write_to_a_disk_that_left_without_its_superblock_is_no_write() {
    for left in [true, false] {
        let mut stage = Stage::dirty();
        stage.data(2, 0, &[1; 512], false);
        stage.disks[2].faults.ends_at = Some(0);
        let role = if left { Role::Faulty } else { Role::Active(Slot(2)) };
        stage.recorded(0, |sb| sb.roles[2] = role.code());
        assert_eq!(stage.record.of(2), None);
        stage.superblock(0, |sb| sb.resync_offset = ResyncOffset::Clean);
        let found: Vec<_> = stage.found().into_iter().filter(|it| it.starts_with("I5")).collect();
        assert_eq!(found.len(), usize::from(!left), "{found:?}");
    }
}

/// I5 reports superblocks that say clean, or dirty only from sector 16 on, while a resync writes to
/// a member in sync.
#[test]
fn i5_clean_while_a_resync_writes_is_caught() {
    let found = |column: u64, changes: bool, mark: ResyncOffset, done: bool| {
        let mut stage = Stage::dirty();
        stage.origin = Origin::Sync;
        let token = stage.data(0, column, &[u8::from(changes); 512], false);
        if done {
            stage.done(token);
        }
        stage.superblock(1, |sb| sb.resync_offset = mark);
        // I7 reports this write, which no client issued.
        stage.found().into_iter().filter(|name| name.starts_with("I5")).collect::<Vec<_>>()
    };
    let partly = ResyncOffset::At(Sectors(16));
    for done in [false, true] {
        assert_eq!(found(3, true, ResyncOffset::Clean, done), ["I5 dirty before data"]);
        assert_eq!(found(3, true, partly, done), ["I5 dirty before data"]);
        assert!(found(16, true, partly, done).is_empty());
    }
    // A correction of a block that could not be read writes the same content.
    assert!(found(3, false, ResyncOffset::Clean, false).is_empty());
}

/// One request waits while 20 other requests are issued and answered, each after the time `each`.
/// Returns the names of the checkers that report a violation.
fn waits_beside_others(
    each: Span,
    wait_max: Span,
    overlap: bool,
    silent: bool,
) -> Vec<&'static str> {
    waits_while_others_write(each, wait_max, Bytes(u64::MAX), overlap, silent)
}

/// Variant of [`waits_beside_others`] with a bound on the bytes that other requests may write
/// meanwhile; each request writes 512 bytes.
fn waits_while_others_write(
    each: Span,
    wait_max: Span,
    passed_max: Bytes,
    overlap: bool,
    silent: bool,
) -> Vec<&'static str> {
    let (mut waits, mut found) = (BoundedWait::default(), Vec::new());
    let mut now = Time(1_000);
    waits.allow(wait_max, passed_max, now);
    let write = |tag: u64, at: u64| {
        Input::Client(ClientRequest {
            client: CLIENT,
            tag: Tag(tag),
            volume: VolumeId(0),
            op: RequestOp::Write,
            range: ByteRange::new(at, 512),
            frames: Run::new(8, 1),
            flags: SYNC,
            attr: Attr::default(),
        })
    };
    // Requests that request 100 may wait for, because they overlap it, arrive earlier.
    (1..=20).for_each(|tag| waits.input(now, &write(tag, if overlap { 0 } else { tag * 4096 })));
    waits.input(now, &write(100, 0));
    let attr = Attr { origin: Origin::Client(CLIENT, Group::ROOT), ..Attr::default() };
    let flush = |token| Output::Submit {
        token: Token(token),
        member: MemberIndex(0),
        op: MemberOp::Flush,
        attr,
    };
    if silent {
        waits.output(now, &flush(1000), &mut found);
    }
    for tag in 1..=20 {
        waits.output(now, &flush(tag), &mut found);
        now = now + each;
        waits.input(now, &Input::Done { token: Token(tag), result: Ok(Value::Nothing) });
        let reply = Output::Reply { client: CLIENT, tag: Tag(tag), result: Ok(()) };
        waits.output(now, &reply, &mut found);
    }
    found.iter().map(|violation| violation.checker).collect()
}

#[test]
fn i19_a_request_that_waits_while_others_are_done_is_caught() {
    let (wait_max, each) = (Span::millis(10), Span::millis(100));
    // The request waits for 2 s; 1.04 s are allowed once 16 others are answered.
    let found = waits_beside_others(each, wait_max, false, false);
    assert!(!found.is_empty() && found.iter().all(|name| *name == "I19 bounded wait"), "{found:?}");
    let good = [
        waits_beside_others(Span::millis(50), wait_max, false, false),
        waits_beside_others(each, Span::millis(300), false, false),
        waits_beside_others(each, WAITS_WITHOUT_BOUND, false, false),
        waits_beside_others(each, wait_max, true, false),
        waits_beside_others(each, wait_max, false, true),
    ];
    assert!(good.iter().all(Vec::is_empty), "{good:?}");
}

#[test]
fn i19_a_request_that_waits_while_too_much_is_written_is_caught() {
    let while_written = |passed_max: u64, wait_max: Span, overlap: bool| {
        let each = Span::millis(1);
        waits_while_others_write(each, wait_max, Bytes(passed_max), overlap, false)
    };
    // The others write 20 times 512 bytes; four times the bytes that may pass a stripe are allowed.
    let found = while_written(2048, Span::secs(1), false);
    assert!(!found.is_empty() && found.iter().all(|name| *name == "I19 bounded wait"), "{found:?}");
    let good = [
        while_written(2560, Span::secs(1), false),
        while_written(2048, WAITS_WITHOUT_BOUND, false),
        while_written(2048, Span::secs(1), true),
    ];
    assert!(good.iter().all(Vec::is_empty), "{good:?}");
}

#[test]
fn i6_wrong_parity_of_a_clean_array_and_of_a_quiet_stripe_is_caught() {
    for (dirty, quiet) in [(false, false), (true, false), (true, true)] {
        let mut stage = Stage::new();
        if dirty {
            stage.mark(false, &[2, 1, 0]);
        }
        let at = stage.array.data_offset[0].0 + 5;
        stage.disks[0].poke(at, &[1; 512]);
        let mut found = Vec::new();
        let is_quiet = |column| quiet || column != 5;
        let judged = after_cut(&stage, is_quiet, &mut found);
        assert_eq!(found.len(), usize::from(!dirty || quiet));
        assert_eq!((judged.columns, judged.promised), (found.len() as u64, u64::from(!dirty)));
        let scrub =
            parity::scrub(&stage.disks, &stage.array, &stage.record, 0..64, parity::Bytes::Visible);
        assert_eq!((scrub.columns, scrub.written, scrub.wrong.len()), (64, 1, 1));
        stage.disks[2].poke(at, &[1; 512]);
        let scrub =
            parity::scrub(&stage.disks, &stage.array, &stage.record, 0..64, parity::Bytes::Durable);
        assert!(scrub.wrong.is_empty());
        let mut found = Vec::new();
        let judged = after_cut(&stage, |_| true, &mut found);
        assert_eq!((found.len(), judged.columns), (0, 1));
    }
}

fn after_cut(stage: &Stage, quiet: impl Fn(u64) -> bool, found: &mut Vec<Violation>) -> Judged {
    parity::after_cut(stage.view(), 0..64, quiet, parity::Bytes::Durable, found)
}

/// RAID 6 with one member missing, each in turn: the remaining parity is compared.
#[test]
fn i6_judges_the_parity_that_is_left() {
    for lost in 0..4 {
        for wrong in [None, Some(0), Some(1), Some(2), Some(3)] {
            let mut world = World::new(crate::Options::new(Level::Raid6, 4, Sectors(8)));
            let all = ByteRange::new(0, world.size());
            world.request(CLIENT, RequestOp::Write, all, Payload::Tags, SYNC);
            world.run(Order::Fifo);
            world.idle(Span::secs(60));
            world.disks[lost].faults.gone = true;
            if let Some(disk) = wrong {
                let at = world.array.data_offset[disk].0 + 5;
                world.disks[disk].flip_bit(at, 7).unwrap();
            }
            world.stopped();
            let scrub = world.scrub(parity::Bytes::Visible);
            let caught = wrong.is_some_and(|disk| disk != lost);
            assert_eq!(scrub.wrong.len(), usize::from(caught), "{lost} {wrong:?}");
            assert!(scrub.written > 0 && scrub.written == scrub.columns, "{scrub:?}");
            // With a second member missing nothing is left to compare.
            world.disks[(lost + 1) % 4].faults.gone = true;
            world.stopped();
            assert_eq!(world.scrub(parity::Bytes::Visible).columns, 0);
        }
    }
}

#[test]
fn i6_knows_raid6() {
    let geometry = Geometry::new(Level::Raid6, 2, 5, Sectors(8), Sectors(64)).unwrap();
    let placement = geometry.placement(geometry.full_stripe_of(Sectors(0)));
    let data: Vec<(u8, Vec<u8>)> = (0..3u16)
        .map(|x| (placement.exponent(placement.data_slot(x)), vec![x as u8 + 1; 512]))
        .collect();
    let (p, q) = parity::syndromes(&weft_parity::Parity::detect(), &data, true);
    assert_eq!(p[0], 1 ^ 2 ^ 3);
    assert_eq!(q[0], 1 ^ (2 * 2) ^ (4 * 3));
}

/// Whether an assembly without consent has to be refused follows from the superblocks, and from the
/// slots that an assembly with consent fills.
#[test]
fn p5_dirty_and_degraded_without_consent_is_caught() {
    for (dirty, lost, level) in [
        (true, Some(0), Level::Raid5),
        (true, None, Level::Raid5),
        (false, Some(1), Level::Raid5),
        (true, Some(0), Level::Raid4),
        (true, Some(2), Level::Raid4),
    ] {
        let mut world = World::new(crate::Options::new(level, 3, Sectors(8)));
        world.request(CLIENT, RequestOp::Write, ByteRange::new(0, 4096), Payload::Tags, SYNC);
        world.run(Order::Fifo);
        if !dirty {
            world.idle(Span::secs(60));
        }
        world.stopped();
        if let Some(disk) = lost {
            world.disks[disk].faults.gone = true;
        }
        let how = |force_dirty| Options { run: true, force_dirty, ..Options::default() };
        let with = world.assemble(&how(true));
        let array = &world.array;
        let needed =
            consent::needs_consent(array, with.as_ref().unwrap(), world.record.dirty_from());
        // The last disk of RAID 4 holds only parity.
        assert_eq!(needed, dirty && lost.is_some_and(|lost| level == Level::Raid5 || lost < 2));
        assert_eq!(consent::judge(needed, &world.assemble(&how(false))), None);
        assert_eq!(consent::judge(needed, &with).is_some(), needed, "consent was not given");
        let refused = world.assemble(&how(false));
        assert_eq!(consent::judge(false, &refused).is_some(), needed, "refused without need");
    }
}

#[test]
fn i7_data_that_no_client_wrote_is_caught() {
    let mut stage = Stage::dirty();
    let (_, bytes) = stage.model.write_issued(ByteRange::new(0, 512), Payload::Tags);
    stage.data(0, 0, &bytes, false);
    assert!(stage.found().is_empty());
    stage.data(1, 0, &bytes, false);
    assert_eq!(stage.found(), ["I7 untouched data"], "the right bytes at the wrong place");
}

/// In a column in which members disagree, content that no client wrote is allowed only if it may
/// have been reconstructed, and only at a slot that was lost.
#[test]
fn i7_data_that_no_client_wrote_is_caught_in_a_suspect_column_too() {
    let found = |lost: &[u16], error: u8| {
        let mut stage = Stage::dirty();
        let (_, bytes) = stage.model.write_issued(ByteRange::new(0, 512), Payload::Tags);
        let syndrome = Syndrome { p: vec![9; 512], q: Vec::new() };
        stage.suspects.insert(0, [syndrome].into(), lost.iter().copied());
        let content: Vec<u8> = bytes.iter().map(|byte| byte ^ error).collect();
        stage.data(0, 0, &content, false);
        (stage.found(), stage.checkers.excuses.written_wrong)
    };
    assert_eq!(found(&[0], 0), (vec![], 0));
    assert_eq!(found(&[0], 9), (vec![], 1), "what reconstruction gives");
    assert_eq!(found(&[0], 8), (vec!["I7 untouched data"], 0), "other content");
    assert_eq!(found(&[], 9), (vec!["I7 untouched data"], 0), "its member was never lost");
    assert_eq!(found(&[1], 9), (vec!["I7 untouched data"], 0), "another slot was lost");
}

#[test]
fn i8_a_member_that_missed_a_write_is_caught_when_believed() {
    for missed in [false, true] {
        let mut stage = Stage::dirty();
        stage.acknowledged(if missed { &[0] } else { &[2, 0] });
        stage.checkers.found.clear();
        let mut rng = Rng::new(1);
        for disk in &mut stage.disks {
            disk.power_cut(crate::crash::CutMode::Everything, &mut rng);
        }
        stage.checkers.power_cut(&[]);
        let assembly = assembled(&stage);
        stage.look(|checkers, view| checkers.assembled(view, &assembly));
        assert_eq!(stage.found(), vec![STALE; usize::from(missed)]);
    }
}

/// A power cut takes rebuilt data from a member: either the only version of the data, or a later
/// one that followed a durable version.
#[test]
fn i8_a_member_that_lost_what_was_rebuilt_is_caught_when_believed() {
    for flushed in [false, true] {
        let mut stage = Stage::dirty();
        stage.stored(1, 0, &[0; 512], false);
        if flushed {
            stage.flush_all([1]);
            // The power cut takes only the second write.
            stage.stored(1, 0, &[0; 512], false);
        }
        stage.checkers.found.clear();
        stage.checkers.power_cut(&[(1, 0)]);
        let assembly = assembled(&stage);
        stage.look(|checkers, view| checkers.assembled(view, &assembly));
        assert_eq!(stage.found(), vec![STALE; usize::from(!flushed)]);
    }
}

fn assembled(stage: &Stage) -> Assembly {
    let candidates: Vec<Candidate> = (0..3)
        .map(|disk| {
            let (index, label) = (MemberIndex(disk as u16), format!("disk{disk}"));
            let size = stage.disks[disk].size();
            let superblock =
                Super1::parse(&stage.disks[disk].peek(8, 8), Minor::V1_2, Sectors(16_384)).unwrap();
            Candidate::with_superblock(MemberInfo::of_size(index, label, size), superblock)
        })
        .collect();
    assemble(&candidates, &Options::default()).unwrap()
}

#[test]
fn i10_two_writes_of_one_sector_are_caught() {
    let mut stage = Stage::dirty();
    stage.data(2, 0, &[0; 1024], false);
    stage.data(2, 2, &[0; 512], false);
    assert_eq!(stage.found(), [] as [&str; 0]);
    stage.data(2, 1, &[0; 512], false);
    assert_eq!(stage.found(), ["I10 single flight"]);
}

#[test]
fn i10_a_frame_that_is_read_and_written_is_caught() {
    let mut stage = Stage::new();
    let part = |frame| Segment::at(Frame(frame), 0, 512);
    let submit = |stage: &mut Stage, op| {
        stage.tokens += 1;
        let token = Token(stage.tokens);
        stage.say(&Output::Submit { token, member: MemberIndex(0), op, attr: Attr::default() });
    };
    let read =
        |frame| MemberOp::Read { at: Sectors(8), into: SmallVec::from_slice(&[part(frame)]) };
    submit(&mut stage, read(3));
    submit(&mut stage, read(4));
    assert!(stage.found().is_empty());
    submit(&mut stage, read(3));
    assert_eq!(stage.found(), ["I10 single flight"]);
    stage.checkers.found.clear();
    let token = Token(stage.tokens + 1);
    let ops = vec![weft_engine::ComputeOp::Copy { from: part(4), to: part(5) }];
    stage.say(&Output::Compute { token, ops });
    assert_eq!(stage.found(), ["I10 single flight"], "a frame of a read in flight is copied from");
    stage.checkers.found.clear();
    let ops = vec![weft_engine::ComputeOp::Zero { to: part(0) }];
    stage.say(&Output::Compute { token: Token(token.0 + 1), ops });
    assert_eq!(stage.found(), ["I10 single flight"], "the frame of zeros");
}

#[test]
fn i10_frames_that_come_back_too_early_are_caught() {
    let mut stage = Stage::new();
    let tag = stage.ask(RequestOp::Read, Flags::NONE, Run::new(8, 1));
    let into = SmallVec::from_slice(&[Segment::at(Frame(8), 0, 512)]);
    stage.tokens += 1;
    let token = Token(stage.tokens);
    let op = MemberOp::Read { at: Sectors(8), into };
    stage.say(&Output::Submit { token, member: MemberIndex(0), op, attr: Attr::default() });
    let mut early = stage.checkers.clone();
    early.output(stage.view(), &Output::Reply { client: CLIENT, tag, result: Ok(()) });
    assert_eq!(early.found[0].checker, "I10 single flight");
    stage.tell(&Input::Done { token, result: Ok(Value::Nothing) });
    stage.reply(tag);
    assert!(stage.found().is_empty());
}

/// Events of a write, in any order. Each letter of a case is one event: `e` the write is answered
/// (with an error), `r` its frames are given back, `c` its credit is returned, `g` its client
/// disconnects, `f` a flush is submitted (always with the same token), `d` a completion arrives
/// that was not requested.
#[test]
fn i11_what_ends_twice_or_never_is_caught() {
    for (ends, what) in [
        ("erc", ""),
        ("ec", "frames never came back"),
        ("rc", "never answered"),
        ("er", "credit never came back"),
        ("ercr", "frames came back twice"),
        ("erce", "answered twice"),
        ("gr", ""),
        ("gre", "answered though gone"),
        ("ercff", "a token is used twice"),
        ("ercd", "done and never asked for"),
    ] {
        let mut stage = Stage::new();
        let tag = stage.ask(RequestOp::Write, SYNC, Run::new(8, 1));
        // An empty model allows the content of every write.
        stage.model = Model::default();
        let (client, bytes, member) = (CLIENT, Bytes(512), MemberIndex(0));
        for end in ends.chars() {
            match end {
                'e' => {
                    let result = Err(weft_engine::ReplyError::Io);
                    stage.say(&Output::Reply { client, tag, result });
                }
                'r' => stage.say(&Output::Release(Run::new(8, 1))),
                'c' => stage.say(&Output::Credit { client, bytes }),
                'g' => stage.tell(&Input::ClientGone(client)),
                'f' => {
                    let (token, op, attr) = (Token(1), MemberOp::Flush, Attr::default());
                    stage.say(&Output::Submit { token, member, op, attr });
                }
                _ => stage.tell(&Input::Done { token: Token(5), result: Err(Fault::Io) }),
            }
        }
        stage.checkers.at_rest(&at_rest());
        let found = stage.found().contains(&"I11 exactly once");
        assert_eq!(found, !what.is_empty(), "{ends}: {what}");
    }
}

#[test]
fn i12_what_exceeds_its_bounds_is_caught() {
    let mut stage = Stage::new();
    let submit = |stage: &mut Stage, at, len| {
        stage.tokens += 1;
        let into = SmallVec::from_slice(&[Segment::at(Frame(stage.tokens as u32 * 8), 0, len)]);
        stage.say(&Output::Submit {
            token: Token(stage.tokens),
            member: MemberIndex(0),
            op: MemberOp::Read { at: Sectors(at), into },
            attr: Attr::default(),
        });
    };
    submit(&mut stage, 0, 8192);
    assert!(stage.found().is_empty());
    submit(&mut stage, 0, 8192 + 512);
    submit(&mut stage, 16_383, 1024);
    submit(&mut stage, 0, 100);
    assert_eq!(stage.found(), ["I12 bounds"; 3]);
    stage.checkers.settled(&Load { frames_held: 17, ..Load::default() });
    assert_eq!(stage.found(), ["I12 bounds"; 4]);
    // The credit covers two requests of 512 bytes.
    for (requests, answered, found) in [(2, 0, 4), (3, 1, 4), (3, 0, 5)] {
        let mut stage = Stage { checkers: stage.checkers.clone(), ..Stage::new() };
        for _ in 0..requests {
            stage.ask(RequestOp::Write, SYNC, Run::new(8, 1));
        }
        for _ in 0..answered {
            stage.say(&Output::Credit { client: CLIENT, bytes: Bytes(512) });
        }
        stage.checkers.settled(&Load::default());
        assert_eq!(stage.found(), vec!["I12 bounds"; found], "{requests} and {answered}");
    }
}

#[test]
fn i21_a_request_to_a_member_that_has_left_is_caught() {
    let (member, by, slot, volume) = (MemberIndex(1), MemberIndex(3), Slot(1), ARRAY);
    let failed = Output::Notice(Notice::MemberFailed { volume, member, slot: Some(slot) });
    let replaced = Output::Notice(Notice::MemberReplaced { volume, member, by, slot });
    let (client, tag) = (CLIENT, Tag(7));
    let answered = |result| Output::Reply { client, tag, result };
    for (output, leaves) in [
        (failed, true),
        (replaced, true),
        (answered(Ok(())), true),
        (answered(Err(weft_engine::ReplyError::Io)), false),
    ] {
        for (to, caught) in [(member, leaves), (MemberIndex(0), false)] {
            let mut stage = Stage::new();
            let verb = Verb::Remove(member);
            stage.tell(&Input::Admin(Box::new(Command { client, tag, volume, verb })));
            let (op, attr) = (MemberOp::Flush, Attr::default());
            let request = |token| Output::Submit { token, member: to, op: op.clone(), attr };
            stage.say(&request(Token(1)));
            stage.say(&output);
            stage.say(&request(Token(2)));
            assert!(!stage.found().contains(&"I21 left alone"), "the engine has not settled yet");
            stage.checkers.settled(&Load::default());
            stage.say(&request(Token(3)));
            assert_eq!(stage.found().contains(&"I21 left alone"), caught, "{to:?}: {output:?}");
        }
    }
}

#[test]
fn the_record_believes_what_any_survivor_says() {
    let mut stage = Stage::new();
    assert_eq!(stage.record.in_sync(Slot(2)), Some(2));
    stage.recorded(0, |sb| sb.roles[2] = Role::Faulty.code());
    assert_eq!(stage.record.in_sync(Slot(2)), None);
    assert_eq!(stage.record.believed(Slot(2)), Some(2), "disk 1 still counts it as in sync");
    stage.recorded(1, |sb| sb.roles[2] = Role::Faulty.code());
    assert_eq!(stage.record.believed(Slot(2)), None);
    stage.recorded(1, |sb| {
        sb.feature_map.insert(Features::RECOVERY);
        sb.recovery_offset_raw = 8;
    });
    assert_eq!(stage.record.in_sync(Slot(1)), None, "the member is being rebuilt");
}
