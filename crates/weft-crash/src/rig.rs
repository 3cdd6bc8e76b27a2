//! Rig: a world for short tests, which panics at the first violation and addresses blocks of 4 KiB.
//!
//! A [`Rig`] derefs to its [`World`], so that all methods of the world can be called too.

use std::fmt;
use std::ops::{Deref, DerefMut};

use weft_engine::assemble::{self, Refused};
use weft_engine::{
    Flags, MemberState, ReplyError, RequestOp, SyncAction, Token, Verb, VolumeSnapshot,
};
use weft_ondisk::{Level, Metadata};
use weft_units::{ByteRange, ClientId, Sectors, Span};

use crate::checker::parity::{Bytes, Scrub};
use crate::crash::{CutMode, CutShape};
use crate::model::Payload;
use crate::options::Options;
use crate::world::Order;
use crate::world::{Ticket, World};

/// A world for short tests.
#[derive(Clone)]
pub struct Rig {
    world: World,
    /// Order in which the methods that wait for answers complete member requests.
    pub order: Order,
    last: Option<Ticket>,
}

/// Bytes that a read returned, in the representation of the payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block(pub Vec<u8>);

/// Size of a block in bytes. Methods of [`Rig`] that access single blocks take block numbers.
pub const BLOCK: u64 = 4096;

const CLIENT: ClientId = ClientId(1);

/// A chunk of `kib` KiB.
#[must_use]
pub fn chunk_kib(kib: u64) -> Sectors {
    Sectors(kib * 2)
}

impl Block {
    /// Whether every byte has this value; false if there are no bytes.
    #[must_use]
    pub fn is_all(&self, byte: u8) -> bool {
        !self.0.is_empty() && self.0.iter().all(|found| *found == byte)
    }
}

impl Rig {
    /// RAID 4 with default options.
    #[must_use]
    pub fn raid4(members: usize, chunk: Sectors) -> Self {
        Self::raid(Level::Raid4, members, None, chunk)
    }

    /// RAID 5, left-symmetric, with default options.
    #[must_use]
    pub fn raid5(members: usize, chunk: Sectors) -> Self {
        Self::raid(Level::Raid5, members, None, chunk)
    }

    /// RAID 6, left-symmetric, with default options.
    #[must_use]
    pub fn raid6(members: usize, chunk: Sectors) -> Self {
        Self::raid(Level::Raid6, members, None, chunk)
    }

    /// An array of any level and layout; `None` for the level's default layout.
    #[must_use]
    pub fn raid(level: Level, members: usize, layout: Option<u32>, chunk: Sectors) -> Self {
        Self::of(Options { layout, ..Options::new(level, members, chunk) })
    }

    /// A rig with these options. Panics if a checker reports a violation at the start.
    #[must_use]
    pub fn of(options: Options) -> Self {
        Self { world: World::new(options), order: Order::Fifo, last: None }.checked()
    }

    /// A new rig with the options of this one, after `change` was applied to them.
    #[must_use]
    pub fn with(self, change: impl FnOnce(&mut Options)) -> Self {
        let mut options = self.world.options;
        change(&mut options);
        Self::of(options)
    }

    // --- requests that wait for nothing ---------------------------------------------------------

    /// Issues a write that fills a block with a byte, and does not wait. Returns its ticket.
    pub fn write(&mut self, block: u64, byte: u8) -> Ticket {
        let sync = Flags { sync: true, ..Flags::NONE };
        self.issue(RequestOp::Write, block * BLOCK, BLOCK, Payload::Fill(byte), sync)
    }

    /// Issues a write of `len` bytes from byte `start` on, with tags as payload and the sync flag.
    /// Returns its ticket.
    pub fn put(&mut self, start: u64, len: u64) -> Ticket {
        let sync = Flags { sync: true, ..Flags::NONE };
        self.issue(RequestOp::Write, start, len, Payload::Tags, sync)
    }

    /// Issues a write of `len` bytes from byte `start` on, with tags as payload and without the
    /// sync flag. Returns its ticket.
    pub fn put_nosync(&mut self, start: u64, len: u64) -> Ticket {
        self.issue(RequestOp::Write, start, len, Payload::Tags, Flags::NONE)
    }

    /// Issues a FUA write of `len` bytes from byte `start` on, with tags as payload. Returns its
    /// ticket.
    pub fn fua(&mut self, start: u64, len: u64) -> Ticket {
        let flags = Flags { sync: true, fua: true, ..Flags::NONE };
        self.issue(RequestOp::Write, start, len, Payload::Tags, flags)
    }

    /// Issues a write of `len` zeros from byte `start` on. Returns its ticket.
    pub fn write_zeroes(&mut self, start: u64, len: u64) -> Ticket {
        let sync = Flags { sync: true, ..Flags::NONE };
        self.issue(RequestOp::WriteZeroes, start, len, Payload::Zeros, sync)
    }

    /// Issues a trim of `len` bytes from byte `start` on. Returns its ticket.
    pub fn trim(&mut self, start: u64, len: u64) -> Ticket {
        self.issue(RequestOp::Trim, start, len, Payload::Zeros, Flags::NONE)
    }

    /// Issues a flush, and does not wait. Returns its ticket.
    pub fn flush(&mut self) -> Ticket {
        self.issue(RequestOp::Flush, 0, 0, Payload::Zeros, Flags::NONE)
    }

    /// Issues a read of `len` bytes from byte `start` on. Returns its ticket.
    pub fn get(&mut self, start: u64, len: u64) -> Ticket {
        self.issue(RequestOp::Read, start, len, Payload::Zeros, Flags::NONE)
    }

    /// Issues a request of any kind and lets the engine handle it. Returns its ticket.
    pub fn issue(
        &mut self,
        op: RequestOp,
        start: u64,
        len: u64,
        payload: Payload,
        flags: Flags,
    ) -> Ticket {
        let ticket = self.plug(op, start, len, payload, flags);
        self.settle();
        self.must();
        ticket
    }

    /// Issues a request of any kind without running the engine, and returns its ticket. The engine
    /// handles the request together with all others that are issued before the next
    /// [`World::settle`].
    pub fn plug(
        &mut self,
        op: RequestOp,
        start: u64,
        len: u64,
        payload: Payload,
        flags: Flags,
    ) -> Ticket {
        let ticket = self.world.request(CLIENT, op, ByteRange::new(start, len), payload, flags);
        self.last = Some(ticket);
        ticket
    }

    // --- requests that wait ---------------------------------------------------------------------

    /// Writes a block filled with a byte, waits until all requests are answered, and returns the
    /// rig, so that calls can be chained.
    #[must_use]
    pub fn written(mut self, block: u64, byte: u8) -> Self {
        self.write(block, byte);
        self.finish();
        self
    }

    /// Flushes, waits for success, and returns the rig, so that calls can be chained.
    #[must_use]
    pub fn flushed(mut self) -> Self {
        let ticket = self.flush();
        self.finish();
        assert_eq!(self.take_answer(ticket), Some(Ok(Vec::new())));
        self
    }

    /// Reads a block and waits for the answer.
    pub fn read(&mut self, block: u64) -> Block {
        self.read_bytes(block * BLOCK, BLOCK).unwrap_or_else(|error| panic!("read: {error}"))
    }

    /// Reads a range of bytes and waits for it.
    ///
    /// # Errors
    /// The engine's answer, if it is an error.
    pub fn read_bytes(&mut self, start: u64, len: u64) -> Result<Block, ReplyError> {
        let ticket = self.get(start, len);
        self.wait(ticket).map(Block)
    }

    /// Writes a range of bytes with tags as payload and waits for the answer.
    ///
    /// # Errors
    /// The engine's answer, if it is an error.
    pub fn store(&mut self, start: u64, len: u64) -> Result<(), ReplyError> {
        let ticket = self.put(start, len);
        self.wait(ticket).map(|_| ())
    }

    /// Runs until all requests are answered, and takes the answer of one of them.
    ///
    /// # Errors
    /// The engine's answer, if it is an error.
    pub fn wait(&mut self, ticket: Ticket) -> Result<Vec<u8>, ReplyError> {
        self.finish();
        self.take_answer(ticket).expect("every request is answered")
    }

    /// Runs until all requests are answered and nothing is outstanding.
    pub fn finish(&mut self) -> &mut Self {
        let order = self.order;
        self.world.run(order);
        self.must();
        self
    }

    /// Completes up to `count` member requests or computations in the rig's order.
    pub fn steps(&mut self, count: usize) -> &mut Self {
        for _ in 0..count {
            let order = self.order;
            if !self.world.step(order) {
                break;
            }
        }
        self.must();
        self
    }

    // --- administration -------------------------------------------------------------------------

    /// Issues a command and waits for its answer.
    ///
    /// # Errors
    /// The engine refuses the command.
    pub fn command(&mut self, verb: Verb) -> Result<(), ReplyError> {
        let ticket = self.world.admin(verb);
        self.wait(ticket).map(|_| ())
    }

    /// Declares a disk failed, as an administrator does, and waits for the answer.
    pub fn fail_disk(&mut self, disk: usize) -> &mut Self {
        let member = self.member_of(disk);
        self.command(Verb::Fail(member)).unwrap_or_else(|error| panic!("fail {disk}: {error}"));
        self
    }

    /// Sets a knob of the queue of one disk.
    ///
    /// # Errors
    /// The engine refuses the command.
    ///
    /// # Panics
    /// Panics if there is no such knob or value.
    pub fn set_queue(&mut self, disk: usize, name: &str, value: &str) -> Result<(), ReplyError> {
        let knob = self.volume().knobs.parse(name, value);
        let knob = knob.unwrap_or_else(|error| panic!("{error}"));
        let members = [self.member_of(disk)].into();
        self.command(Verb::SetQueues { members, knob })
    }

    /// Removes a failed disk from the array, and waits for the answer.
    pub fn remove(&mut self, disk: usize) -> &mut Self {
        let member = self.member_of(disk);
        self.command(Verb::Remove(member)).unwrap_or_else(|error| panic!("remove {disk}: {error}"));
        self
    }

    /// Adds a blank disk and waits until it is accepted, but not until it is rebuilt. Returns its
    /// number.
    pub fn add(&mut self) -> usize {
        let (disk, ticket) = self.world.add_blank();
        self.wait(ticket).unwrap_or_else(|error| panic!("add {disk}: {error}"));
        disk
    }

    /// Starts a resync, recovery, check or repair, or stops it, and waits for the answer to the
    /// command.
    ///
    /// # Errors
    /// The engine refuses the command.
    pub fn sync(&mut self, action: SyncAction) -> Result<(), ReplyError> {
        self.command(Verb::SyncAction(action))
    }

    /// Runs a check of all parity or copies. Returns `mismatch_cnt` and the number of stripes
    /// compared.
    pub fn check(&mut self) -> (u64, u64) {
        self.compare(SyncAction::Check)
    }

    /// Runs a repair of all parity or copies. Returns `mismatch_cnt` and the number of stripes
    /// compared.
    pub fn repair(&mut self) -> (u64, u64) {
        self.compare(SyncAction::Repair)
    }

    fn compare(&mut self, action: SyncAction) -> (u64, u64) {
        self.sync(action).unwrap_or_else(|error| panic!("{action:?}: {error}"));
        self.until_idle();
        let volume = self.volume();
        (volume.mismatch_cnt, volume.sync_stripes)
    }

    /// Lets time pass until no resync or recovery runs.
    pub fn until_idle(&mut self) -> &mut Self {
        for _ in 0..10_000 {
            self.finish();
            if matches!(self.volume().sync_action, SyncAction::Idle | SyncAction::Frozen) {
                return self;
            }
            self.world.idle(Span::millis(100));
            self.must();
        }
        panic!("resync does not end: {:?}", self.volume());
    }

    /// Lets time pass; member requests complete and timers of the engine fire meanwhile.
    pub fn pass(&mut self, span: Span) -> &mut Self {
        self.world.idle(span);
        self.must();
        self
    }

    /// Tokens of the outstanding requests of one disk.
    #[must_use]
    pub fn outstanding_of(&self, disk: usize) -> Vec<Token> {
        let of_disk = self.outstanding().filter(|(_, request)| request.disk == Some(disk));
        of_disk.map(|(token, _)| token).collect()
    }

    /// Completes requests of the other disks until `disk` has at least `count` requests
    /// outstanding. Returns the tokens of all outstanding requests of `disk`.
    ///
    /// # Panics
    /// Panics if no other request is outstanding before that.
    pub fn hold_back(&mut self, disk: usize, count: usize) -> Vec<Token> {
        while self.outstanding_of(disk).len() < count {
            let other = self.outstanding().find(|(_, request)| request.disk != Some(disk));
            let token = other.map(|(token, _)| token);
            self.complete(token.expect("other requests are outstanding"));
        }
        self.outstanding_of(disk)
    }

    /// Stops the array, waits for the answer, and drops the engine.
    pub fn stop(&mut self) -> &mut Self {
        self.command(Verb::Stop).unwrap_or_else(|error| panic!("stop: {error}"));
        self.world.stopped();
        self
    }

    /// State of a disk as a member; `None` if it is not a member.
    #[must_use]
    pub fn state_of(&self, disk: usize) -> Option<MemberState> {
        let label = format!("disk{disk}");
        self.volume().members.iter().find(|member| member.label == label).map(|member| member.state)
    }

    /// Metadata of a disk, as reads without errors would return it.
    ///
    /// # Panics
    /// Panics if the disk has no superblock.
    #[must_use]
    pub fn metadata(&self, disk: usize) -> Metadata {
        let disk = &self.disks[disk];
        let read = |at: Sectors, len: usize| Ok(disk.peek(at.0, len as u64 / 512));
        Metadata::read(disk.whole_size(), read).expect("the disk has a superblock")
    }

    /// State of the array's volume.
    #[must_use]
    pub fn volume(&self) -> VolumeSnapshot {
        self.world.snapshot().volumes.swap_remove(0)
    }

    // --- power ----------------------------------------------------------------------------------

    /// Cuts the power. Any subset of the content that is not durable survives.
    pub fn power_cut(&mut self) -> &mut Self {
        self.cut(CutMode::Subset);
        self
    }

    /// Cuts the power; `mode` decides what survives. Returns the circumstances of the cut.
    pub fn cut(&mut self, mode: CutMode) -> CutShape {
        let shape = self.world.power_cut(mode);
        self.must();
        shape
    }

    /// Crashes the process while the power stays on. Disks keep all completed writes, including
    /// those in their volatile caches.
    pub fn kill(&mut self) -> &mut Self {
        self.world.kill();
        self.must();
        self
    }

    /// Starts an engine from the media, with consent if the array is dirty and degraded. Panics if
    /// the assembly is refused.
    pub fn recover(&mut self) -> &mut Self {
        self.try_recover().unwrap_or_else(|refused| panic!("recover: {refused}"));
        self
    }

    /// Variant of [`Self::recover`] that does not panic if the assembly is refused.
    ///
    /// # Errors
    /// The assembly is refused.
    pub fn try_recover(&mut self) -> Result<(), Refused> {
        let how =
            assemble::Options { run: true, force_dirty: true, ..assemble::Options::default() };
        self.world.start(&how)?;
        self.must();
        Ok(())
    }

    /// Reads everything that was ever written, twice: the second time must return the same (I3).
    /// Returns the number of sectors read.
    pub fn verify(&mut self) -> u64 {
        let order = self.order;
        let read = self.world.verify(order);
        self.must();
        self.world.verify(order);
        self.must();
        read
    }

    /// Recomputes all parity from the media and asserts that it is right and that no member is
    /// missing. Returns the number of columns that hold data.
    pub fn scrub_clean(&self) -> u64 {
        let Scrub { wrong, written, columns } = self.world.scrub(Bytes::Visible);
        assert!(wrong.is_empty(), "{} of {columns} columns are wrong: {wrong:?}", wrong.len());
        assert_eq!(columns, self.array.layout.resync_size().0, "a member is missing");
        written
    }

    fn checked(self) -> Self {
        self.must();
        self
    }

    /// Panics with the violation if a checker has reported one.
    pub fn must(&self) {
        if let Some(violation) = self.world.failure() {
            panic!("{violation}\n{:?}", self.world.options);
        }
    }
}

impl Deref for Rig {
    type Target = World;
    fn deref(&self) -> &World {
        &self.world
    }
}

impl DerefMut for Rig {
    fn deref_mut(&mut self) -> &mut World {
        &mut self.world
    }
}

impl fmt::Debug for Rig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rig").field("options", &self.world.options).finish_non_exhaustive()
    }
}
