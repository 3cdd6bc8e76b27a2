//! Member of an array: its state, its counters, and whether it answers.
//!
//! ```text
//! Spare ──slot──▶ Rebuilding ──recovered──▶ InSync
//!   └──────────────────┴─ failed, replaced ────┴──▶ Faulty ──removed──▶ (gone)
//! ```

use weft_ondisk::{BadBlocks, Superblock};
use weft_units::{SectorRange, Sectors, Slot, Time};

use crate::array::bad_blocks::BadLog;
use crate::array::flush::flush_batch::Unflushed;
use crate::array::outbox::Owner;
use crate::array::reshape::Side;
use crate::array::served::Served;
use crate::contract::input::{Account, Attr};
use crate::contract::member::MemberInfo;
use crate::contract::member::MemberState;
use crate::contract::snapshot::{MemberSnapshot, Party};
use crate::knobs::Knobs;
use crate::sched::member_queue::MemberQueue;

/// State of the write of a member's superblock in the running superblock update. A second attempt
/// is made if the first one fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    First,
    /// The first attempt failed, and the second waits to be sent.
    SecondDue,
    Second,
}

/// Member in use, or a failed member that has not been removed yet.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) info: MemberInfo,
    /// Superblock that the member had when it joined, kept up to date as the template for the next
    /// one written. `None` for a member without metadata.
    superblock: Option<Superblock>,
    /// Whether reads avoid the member: it is read only where no other member has the data (md's
    /// `write-mostly`).
    pub(crate) write_mostly: bool,
    /// First sector of the array's data on the member. During a reshape, the lower one of the first
    /// sectors of the two geometries.
    data_offset: Sectors,
    /// Distances from `data_offset` to the data of the geometry before a reshape, and to the data
    /// of the geometry after it. Zero without a reshape.
    shifts: [Sectors; 2],
    /// Number of data sectors that the array uses of the member.
    pub(crate) data_size: Sectors,
    /// Index in the superblock's table of roles. With version 0.90 it changes when the member takes
    /// a slot.
    pub(crate) number: u32,
    pub(crate) slot: Option<Slot>,
    /// Slot that this member, as a replacement, is filled to take over from another member. The
    /// member's own `slot` is `None` until then.
    pub(crate) replaces: Option<Slot>,
    pub(crate) state: MemberState,
    /// Whether a request to the member has been outstanding for longer than the knob `read_around`,
    /// so that other members are read in place of this one where possible.
    pub(crate) stalled: bool,
    /// Earliest time at which a read is to be given up that was sent to the member before it
    /// stalled and has no answer yet; `None` if there is no such read.
    pub(crate) gives_up_at: Option<Time>,
    /// Bad-block log: ranges of the member that hold no valid data.
    pub(crate) bad: BadLog,
    /// Whether a notice about the member's stall was sent.
    pub(crate) warned: bool,
    /// Time since which the member has had no space for strips, and (`superblock_full_since`) for
    /// its superblock; `None` while it has space.
    pub(crate) full_since: Option<Time>,
    pub(crate) superblock_full_since: Option<Time>,
    /// State of the superblock write in the running update.
    pub(crate) attempt: Attempt,
    /// Whether the member's superblock area may hold an older superblock: the member joined a
    /// running array, and its superblock was not written yet.
    pub(crate) superblock_is_old: bool,
    /// First sector of the member's copy of the bitmap; `None` if the array has no bitmap, or the
    /// member has no room for it.
    pub(crate) bitmap_start: Option<Sectors>,
    /// Whether the whole bitmap has to be written to the member, because its copy may differ from
    /// that of the array.
    pub(crate) lacks_bitmap: bool,
    /// Whether the member returned to the array and is under recovery, and lacks only the data of
    /// chunks with their bit set in the bitmap.
    pub(crate) follows_bitmap: bool,
    pub(crate) read_errors: u32,
    pub(crate) counters: Counters,
    pub(crate) served: Served,
    /// Counter of the member's completed writes that a flush has not yet made durable.
    pub(crate) unflushed: Unflushed,
    /// Number of unanswered requests, whether in the member's queue or sent.
    pub(crate) in_flight: u32,
    pub(crate) queue: MemberQueue<Owner>,
    /// Queue knobs of the member, if they differ from the volume's; `None` otherwise. Only the
    /// queue knobs of this set are used.
    pub(crate) knobs: Option<Box<Knobs>>,
    /// Whether outstanding requests have to be given up: because the member failed, because it got
    /// a request after it had failed, or because it is stalled and other members may now have the
    /// data.
    pub(crate) to_give_up: bool,
}

/// Counters of a member since the engine started or, if later, since the member joined.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) flushes: u64,
    pub(crate) corrected: u64,
}

impl Member {
    pub(crate) fn new(
        info: MemberInfo,
        superblock: Option<Superblock>,
        slot: Option<Slot>,
        state: MemberState,
        data_size: Sectors,
    ) -> Self {
        Self {
            data_size,
            queue: MemberQueue::new(info.device),
            knobs: None,
            unflushed: Unflushed::new(info.device.write_cache),
            info,
            data_offset: superblock.as_ref().map_or(Sectors::ZERO, Superblock::data_offset),
            shifts: [Sectors::ZERO; 2],
            write_mostly: superblock.as_ref().is_some_and(Superblock::is_write_mostly),
            number: superblock.as_ref().map_or(0, Superblock::dev_number),
            superblock,
            slot,
            replaces: None,
            state,
            stalled: false,
            gives_up_at: None,
            bad: BadLog::default(),
            warned: false,
            full_since: None,
            superblock_full_since: None,
            attempt: Attempt::First,
            superblock_is_old: false,
            bitmap_start: None,
            lacks_bitmap: false,
            follows_bitmap: false,
            read_errors: 0,
            counters: Counters::default(),
            served: Served::default(),
            in_flight: 0,
            to_give_up: false,
        }
    }

    /// Superblock of the member. Panics for a member without metadata.
    pub(crate) fn superblock(&self) -> &Superblock {
        self.superblock.as_ref().expect("members of an array have superblocks")
    }

    /// Superblock of the member; `None` for a member without metadata.
    pub(crate) fn superblock_if_any(&self) -> Option<&Superblock> {
        self.superblock.as_ref()
    }

    /// Superblock of the member, to be changed. Panics for a member without metadata.
    pub(crate) fn superblock_mut(&mut self) -> &mut Superblock {
        self.superblock.as_mut().expect("members of an array have superblocks")
    }

    /// Requests that the whole bitmap be written to the member, at the place that the member's
    /// superblock gives.
    pub(crate) fn needs_bitmap(&mut self) {
        let room = self.superblock().bitmap_room(self.info.size);
        self.bitmap_start = room.ok().flatten().map(|room| room.start);
        self.lacks_bitmap = true;
    }

    /// First sector and content of the member's bad-block log with `bad` as its list; `None` if the
    /// member has no log or `bad` does not fit it.
    pub(crate) fn encode_bad(&self, bad: &BadBlocks) -> Option<(Sectors, Vec<u8>)> {
        let (superblock, size) = (self.superblock_if_any()?, self.info.size);
        let room = superblock.badblocks_room(size)?;
        let bytes = bad.encode(room.len.bytes().0 as usize, &superblock.badblocks_context(size));
        Some((room.start, bytes.ok()?))
    }

    /// Whether the member has a bad-block log, in which bad blocks can be recorded.
    pub(crate) fn has_bad_log(&self) -> bool {
        let superblock = self.superblock_if_any();
        superblock.is_some_and(|superblock| superblock.badblocks_room(self.info.size).is_some())
    }

    /// Sets the member's data sectors to cover the data of both geometries of the reshape that its
    /// superblock records.
    pub(crate) fn begin_moving(&mut self) {
        let superblock = self.superblock();
        let before = superblock.data_offset();
        let after = superblock.data_offset_after().expect("the data stays on its member");
        self.data_offset = before.min(after);
        self.shifts = [before - self.data_offset, after - self.data_offset];
        self.data_size = self.data_size + before.max(after) - self.data_offset;
    }

    /// Sets the member's data sectors to those that its superblock records, after a reshape.
    pub(crate) fn end_moving(&mut self) {
        let [before, after] = std::mem::take(&mut self.shifts);
        self.data_size -= before.max(after);
        self.data_offset = self.superblock().data_offset();
    }

    /// Distance from `data_offset` to the member's data in the geometry `side` of a reshape.
    pub(crate) fn shift(&self, side: Side) -> Sectors {
        let [before, after] = self.shifts;
        match side {
            Side::Before => before,
            Side::After => after,
        }
    }

    /// Slot for which the member receives writes: the member's own slot or, for a replacement, the
    /// slot of the member that it replaces. `None` for a spare and a failed member.
    pub(crate) fn written_slot(&self) -> Option<Slot> {
        self.slot.or(self.replaces)
    }

    pub(crate) fn is_faulty(&self) -> bool {
        self.state == MemberState::Faulty
    }

    /// Whether the first attempt to write the member's superblock in the running update failed, so
    /// that a second one is due.
    pub(crate) fn is_to_try_again(&self) -> bool {
        self.attempt == Attempt::SecondDue && !self.is_faulty()
    }

    /// Whether the member is a spare that its own superblock on disk names as a spare, so that it
    /// may take an empty slot.
    pub(crate) fn may_take_slot(&self) -> bool {
        self.state == MemberState::Spare && !self.superblock_is_old
    }

    /// Whether zeros have to be written over the member's superblock area before a superblock is
    /// written there. Zeros are needed if an older superblock may be there and the new superblock
    /// is larger than a block, because a crash could leave half of each superblock.
    pub(crate) fn is_to_wipe(&self) -> bool {
        let tears = || {
            let block = self.info.logical_block;
            self.superblock().encode_for(block).len() as u64 > u64::from(block)
        };
        self.superblock_is_old && !self.is_faulty() && tears()
    }

    /// Time since which the member has had no space for strips or for its superblock; `None` if it
    /// has space for both.
    pub(crate) fn is_full_since(&self) -> Option<Time> {
        [self.full_since, self.superblock_full_since].into_iter().flatten().min()
    }

    /// Counts a read or write that was sent to the member.
    #[inline]
    pub(crate) fn sent(&mut self, attr: &Attr, write: bool, length: Sectors) {
        self.out();
        if write {
            self.counters.writes += 1;
        } else {
            self.counters.reads += 1;
        }
        self.moved(attr, write, length);
    }

    /// Adds the sectors of a read or write to the member's counters, whether the request is sent on
    /// its own or merged into another one.
    #[inline]
    pub(crate) fn moved(&mut self, attr: &Attr, write: bool, length: Sectors) {
        self.served.add(attr, write, length);
    }

    /// Subtracts `requests` from the member's number of reads, or of writes with `write`: they were
    /// counted when they were sent, and were then merged into another request in the queue.
    pub(crate) fn merged(&mut self, write: bool, requests: u64) {
        if write {
            self.counters.writes -= requests;
        } else {
            self.counters.reads -= requests;
        }
    }

    /// Counts a flush that was sent to the member.
    pub(crate) fn sent_flush(&mut self) {
        self.out();
        self.counters.flushes += 1;
    }

    fn out(&mut self) {
        self.in_flight += 1;
        self.to_give_up |= self.is_faulty();
    }

    /// Sector of the member at which data sector `sector` lies.
    pub(crate) fn data_sector(&self, sector: Sectors) -> Sectors {
        self.data_offset + sector
    }

    /// Bad blocks of the member, in sectors from its start.
    fn bad_ranges(&self) -> impl Iterator<Item = SectorRange> {
        let ranges = self.bad.blocks().ranges().iter();
        ranges.map(|range| SectorRange { start: self.data_sector(range.start), len: range.len })
    }

    /// Snapshot of the member, without its part in replacements, which the array knows.
    pub(crate) fn snapshot(&self, party: impl Fn(Account) -> Party) -> MemberSnapshot {
        let accounts = self.served.accounts();
        let served = accounts.map(|it| (party(it), Sectors(self.served.sectors(it))));
        MemberSnapshot {
            member: self.info.index,
            label: self.info.label.clone(),
            // A member without metadata has no slot in an array.
            slot: self.slot.filter(|_| self.superblock.is_some()),
            dev_number: self.number,
            replaces: self.replaces,
            want_replacement: false,
            reserved_for: None,
            state: self.state,
            data: self
                .superblock
                .as_ref()
                .map(|_| SectorRange { start: self.data_offset, len: self.data_size }),
            reads: self.counters.reads,
            writes: self.counters.writes,
            flushes: self.counters.flushes,
            sectors_read: self.served.moved(false),
            sectors_written: self.served.moved(true),
            served: served.filter(|(_, sectors)| *sectors > Sectors::ZERO).collect(),
            corrected: self.counters.corrected,
            bad_blocks: self.bad_ranges().collect(),
            in_flight: self.in_flight,
            queue_depth: self.queue.depth(),
            write_mostly: self.write_mostly,
            queue_knobs: self.knobs.clone(),
        }
    }
}
