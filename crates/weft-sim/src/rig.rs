//! Rig: a world for short tests that panics at the first violation and counts in blocks of 4 KiB.
//!
//! A [`Rig`] derefs to its [`World`], so everything that it does not wrap can still be called.

use std::fmt;
use std::ops::{Deref, DerefMut};

use weft_engine::assemble::{self, Refused};
use weft_engine::{Flags, ReplyError, RequestOp, SyncAction, Verb, VolumeSnapshot};
use weft_ondisk::Level;
use weft_units::{ByteRange, ClientId, Sectors, Span};

use crate::checker::parity::{Bytes, Scrub};
use crate::crash::{CutMode, CutShape};
use crate::driver::Order;
use crate::model::Payload;
use crate::options::Options;
use crate::world::{Ticket, World};

/// A world for tests.
#[derive(Clone)]
pub struct Rig {
    world: World,
    /// Which request completes next in the calls that wait.
    pub order: Order,
    last: Option<Ticket>,
}

/// Content of a block that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block(pub Vec<u8>);

/// Bytes of the blocks that a rig speaks in.
pub const BLOCK: u64 = 4096;

const CLIENT: ClientId = ClientId(1);

/// A chunk of so many KiB.
#[must_use]
pub fn chunk_kib(kib: u64) -> Sectors {
    Sectors(kib * 2)
}

impl Block {
    /// Whether every byte is this one.
    #[must_use]
    pub fn is_all(&self, byte: u8) -> bool {
        !self.0.is_empty() && self.0.iter().all(|found| *found == byte)
    }
}

impl Rig {
    /// RAID 4.
    #[must_use]
    pub fn raid4(members: usize, chunk: Sectors) -> Self {
        Self::raid(Level::Raid4, members, None, chunk)
    }

    /// RAID 5, left-symmetric.
    #[must_use]
    pub fn raid5(members: usize, chunk: Sectors) -> Self {
        Self::raid(Level::Raid5, members, None, chunk)
    }

    /// RAID 6, left-symmetric.
    #[must_use]
    pub fn raid6(members: usize, chunk: Sectors) -> Self {
        Self::raid(Level::Raid6, members, None, chunk)
    }

    /// Any level and layout.
    #[must_use]
    pub fn raid(level: Level, members: usize, layout: Option<u32>, chunk: Sectors) -> Self {
        Self::of(Options { layout, ..Options::new(level, members, chunk) })
    }

    /// A rig with these options.
    #[must_use]
    pub fn of(options: Options) -> Self {
        Self { world: World::new(options), order: Order::Fifo, last: None }.checked()
    }

    /// The same with other options, from the start.
    #[must_use]
    pub fn with(self, change: impl FnOnce(&mut Options)) -> Self {
        let mut options = self.world.options;
        change(&mut options);
        Self::of(options)
    }

    // --- requests that wait for nothing ---------------------------------------------------------

    /// Begins to fill a block with a byte.
    pub fn write(&mut self, block: u64, byte: u8) -> Ticket {
        let sync = Flags { sync: true, ..Flags::NONE };
        self.issue(RequestOp::Write, block * BLOCK, BLOCK, Payload::Fill(byte), sync)
    }

    /// Begins to write tags: any bytes, any length.
    pub fn put(&mut self, start: u64, len: u64) -> Ticket {
        let sync = Flags { sync: true, ..Flags::NONE };
        self.issue(RequestOp::Write, start, len, Payload::Tags, sync)
    }

    /// Begins to write tags without saying that somebody waits.
    pub fn put_nosync(&mut self, start: u64, len: u64) -> Ticket {
        self.issue(RequestOp::Write, start, len, Payload::Tags, Flags::NONE)
    }

    /// Begins to write tags durably.
    pub fn fua(&mut self, start: u64, len: u64) -> Ticket {
        let flags = Flags { sync: true, fua: true, ..Flags::NONE };
        self.issue(RequestOp::Write, start, len, Payload::Tags, flags)
    }

    /// Begins to write zeros.
    pub fn write_zeroes(&mut self, start: u64, len: u64) -> Ticket {
        let sync = Flags { sync: true, ..Flags::NONE };
        self.issue(RequestOp::WriteZeroes, start, len, Payload::Zeros, sync)
    }

    /// Begins to trim.
    pub fn trim(&mut self, start: u64, len: u64) -> Ticket {
        self.issue(RequestOp::Trim, start, len, Payload::Zeros, Flags::NONE)
    }

    /// Begins a flush.
    pub fn flush(&mut self) -> Ticket {
        self.issue(RequestOp::Flush, 0, 0, Payload::Zeros, Flags::NONE)
    }

    /// Begins to read.
    pub fn get(&mut self, start: u64, len: u64) -> Ticket {
        self.issue(RequestOp::Read, start, len, Payload::Zeros, Flags::NONE)
    }

    /// Begins anything. The engine gets its turn.
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

    /// Begins anything. The engine is told and does not get its turn: what follows before
    /// [`World::settle`] is seen together with it.
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

    /// Fills a block and waits.
    #[must_use]
    pub fn written(mut self, block: u64, byte: u8) -> Self {
        self.write(block, byte);
        self.finish();
        self
    }

    /// Flushes and waits.
    #[must_use]
    pub fn flushed(mut self) -> Self {
        let ticket = self.flush();
        self.finish();
        assert_eq!(self.take_answer(ticket), Some(Ok(Vec::new())));
        self
    }

    /// Reads a block.
    pub fn read(&mut self, block: u64) -> Block {
        self.read_bytes(block * BLOCK, BLOCK).unwrap_or_else(|error| panic!("read: {error}"))
    }

    /// Reads anything.
    ///
    /// # Errors
    /// The engine says so.
    pub fn read_bytes(&mut self, start: u64, len: u64) -> Result<Block, ReplyError> {
        let ticket = self.get(start, len);
        self.wait(ticket).map(Block)
    }

    /// Writes tags and waits.
    ///
    /// # Errors
    /// The engine says so.
    pub fn store(&mut self, start: u64, len: u64) -> Result<(), ReplyError> {
        let ticket = self.put(start, len);
        self.wait(ticket).map(|_| ())
    }

    /// Runs until everything is answered and takes this answer.
    ///
    /// # Errors
    /// What the engine answered.
    pub fn wait(&mut self, ticket: Ticket) -> Result<Vec<u8>, ReplyError> {
        self.finish();
        self.take_answer(ticket).expect("everything is answered")
    }

    /// Runs until everything is answered and nothing is outstanding.
    pub fn finish(&mut self) -> &mut Self {
        let order = self.order;
        self.world.run(order);
        self.must();
        self
    }

    /// Ends this many requests, as the rig's order says.
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

    /// Gives a command and waits for its answer.
    ///
    /// # Errors
    /// The engine refuses.
    pub fn command(&mut self, verb: Verb) -> Result<(), ReplyError> {
        let ticket = self.world.admin(verb);
        self.wait(ticket).map(|_| ())
    }

    /// Declares a disk failed.
    pub fn fail_disk(&mut self, disk: usize) -> &mut Self {
        let member = self.member_of(disk);
        self.command(Verb::Fail(member)).unwrap_or_else(|error| panic!("fail {disk}: {error}"));
        self
    }

    /// Sets a knob of the queue of one disk.
    ///
    /// # Errors
    /// The engine refuses.
    ///
    /// # Panics
    /// There is no such knob or value.
    pub fn set_queue(&mut self, disk: usize, name: &str, value: &str) -> Result<(), ReplyError> {
        let knob = self.volume().knobs.parse(name, value);
        let knob = knob.unwrap_or_else(|error| panic!("{error}"));
        let members = [self.member_of(disk)].into();
        self.command(Verb::SetQueues { members, knob })
    }

    /// Forgets a failed disk.
    pub fn remove(&mut self, disk: usize) -> &mut Self {
        let member = self.member_of(disk);
        self.command(Verb::Remove(member)).unwrap_or_else(|error| panic!("remove {disk}: {error}"));
        self
    }

    /// Adds a blank disk and waits until it is taken in, not until it is rebuilt.
    pub fn add(&mut self) -> usize {
        let (disk, ticket) = self.world.add_blank();
        self.wait(ticket).unwrap_or_else(|error| panic!("add {disk}: {error}"));
        disk
    }

    /// Starts a kind of resync.
    ///
    /// # Errors
    /// The engine refuses.
    pub fn sync(&mut self, action: SyncAction) -> Result<(), ReplyError> {
        self.command(Verb::SyncAction(action))
    }

    /// Compares all parity. Returns `mismatch_cnt` and the stripes looked at.
    pub fn check(&mut self) -> (u64, u64) {
        self.compare(SyncAction::Check)
    }

    /// Compares all parity and mends it. Returns `mismatch_cnt` and the stripes looked at.
    pub fn repair(&mut self) -> (u64, u64) {
        self.compare(SyncAction::Repair)
    }

    fn compare(&mut self, action: SyncAction) -> (u64, u64) {
        self.sync(action).unwrap_or_else(|error| panic!("{action:?}: {error}"));
        self.until_idle();
        let volume = self.volume();
        (volume.mismatch_cnt, volume.sync_stripes)
    }

    /// Waits until no resync runs.
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

    /// Lets time pass.
    pub fn pass(&mut self, span: Span) -> &mut Self {
        self.world.idle(span);
        self.must();
        self
    }

    /// Stops the volume, waits, and drops the engine.
    pub fn stop(&mut self) -> &mut Self {
        self.command(Verb::Stop).unwrap_or_else(|error| panic!("stop: {error}"));
        self.world.stopped();
        self
    }

    /// The volume's states.
    #[must_use]
    pub fn volume(&self) -> VolumeSnapshot {
        self.world.snapshot().volumes.swap_remove(0)
    }

    // --- power ----------------------------------------------------------------------------------

    /// The power goes; any subset of what is not durable survives.
    pub fn power_cut(&mut self) -> &mut Self {
        self.cut(CutMode::Subset);
        self
    }

    /// The power goes in a way of its own.
    pub fn cut(&mut self, mode: CutMode) -> CutShape {
        let shape = self.world.power_cut(mode);
        self.must();
        shape
    }

    /// The process dies; members keep what they completed, in their caches.
    pub fn kill(&mut self) -> &mut Self {
        self.world.kill();
        self.must();
        self
    }

    /// Starts again from the media. Dirty and degraded is consented to.
    pub fn recover(&mut self) -> &mut Self {
        self.try_recover().unwrap_or_else(|refused| panic!("recover: {refused}"));
        self
    }

    /// The same, where a refusal is an answer.
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

    /// Reads everything twice: what is found once is found again (I3). Returns sectors read.
    pub fn verify(&mut self) -> u64 {
        let order = self.order;
        let read = self.world.verify(order);
        self.must();
        self.world.verify(order);
        self.must();
        read
    }

    /// Recomputes all parity from what is on the media and insists that it is right. Returns
    /// columns that hold something.
    pub fn scrub_clean(&self) -> u64 {
        let Scrub { wrong, written, columns } = self.world.scrub(Bytes::Visible);
        assert!(wrong.is_empty(), "{} of {columns} columns are wrong: {wrong:?}", wrong.len());
        assert_eq!(columns, self.array.layout.resync_size().0, "somebody is missing");
        written
    }

    fn checked(self) -> Self {
        self.must();
        self
    }

    /// Panics if a promise was not kept.
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
