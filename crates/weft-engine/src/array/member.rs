//! Member of an array: its state, its counters, and whether it answers.
//!
//! ```text
//! Spare ──slot──▶ Rebuilding ──recovered──▶ InSync
//!   └──────────────────┴───── failed ──────────┴──▶ Faulty ──removed──▶ (gone)
//! ```

use weft_ondisk::{BadBlocks, Superblock};
use weft_units::{SectorRange, Sectors, Slot, Time};

use crate::array::flush::flush_batch::Unflushed;
use crate::array::outbox::Owner;
use crate::array::served::Served;
use crate::contract::input::{Account, Attr};
use crate::contract::member::MemberInfo;
use crate::contract::member::MemberState;
use crate::contract::snapshot::{MemberSnapshot, Party};
use crate::knobs::Knobs;
use crate::sched::member_queue::MemberQueue;

/// Attempt to write the superblock of a member in an update. A second one follows a first that
/// fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    First,
    /// The first failed, and the second waits to be sent.
    SecondDue,
    Second,
}

/// A member in use, or one that failed and was not removed yet.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) info: MemberInfo,
    /// Superblock that the member had when it joined; the template of those written. `None` for a
    /// member without metadata.
    superblock: Option<Superblock>,
    /// Read only where no other member has the data.
    pub(crate) write_mostly: bool,
    /// First sector of its data.
    data_offset: Sectors,
    /// Sectors of its data that the array uses.
    pub(crate) data_size: Sectors,
    /// Place in the table of roles. With version 0.90 the member gets another one when it takes a
    /// slot.
    pub(crate) number: u32,
    pub(crate) slot: Option<Slot>,
    pub(crate) state: MemberState,
    /// A request has been outstanding for longer than `read_around`.
    pub(crate) stalled: bool,
    /// Time at which the oldest read that was sent shortly before the stall is to be given up.
    pub(crate) gives_up_at: Option<Time>,
    /// Sectors of its data that hold nothing. Only members of read-only arrays have any.
    pub(crate) bad: BadBlocks,
    /// A notice has said that the member has not answered for a long time.
    pub(crate) warned: bool,
    /// Time since which it has had no space for strips, and for its superblock.
    pub(crate) full_since: Option<Time>,
    pub(crate) superblock_full_since: Option<Time>,
    /// Attempt to write its superblock in the running update.
    pub(crate) attempt: Attempt,
    /// The place of its superblock may hold another one: the member joined after the start, and its
    /// superblock was not written since.
    pub(crate) superblock_is_old: bool,
    /// First sector of its bitmap, if the array has one and there is room for it.
    pub(crate) bitmap_start: Option<Sectors>,
    /// All of its bitmap is to be written, because it may differ from the array's.
    pub(crate) lacks_bitmap: bool,
    /// The member that is being rebuilt was a member before, and lacks only what the bitmap names.
    pub(crate) follows_bitmap: bool,
    /// Read errors in a row.
    pub(crate) read_errors: u32,
    pub(crate) counters: Counters,
    pub(crate) served: Served,
    /// Its writes that need a flush.
    pub(crate) unflushed: Unflushed,
    /// Requests that are not answered, whether they wait in its queue or were sent.
    pub(crate) in_flight: u32,
    pub(crate) queue: MemberQueue<Owner>,
    /// Knobs of its queue, where they differ from the volume's. Knobs of other things mean nothing
    /// here.
    pub(crate) knobs: Option<Box<Knobs>>,
    /// Whether its outstanding requests are to be reviewed: it failed, or was sent a request after
    /// that, or it is stalled and the others may now have the data.
    pub(crate) to_give_up: bool,
}

/// Counters of a member since the start.
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
            write_mostly: superblock.as_ref().is_some_and(Superblock::is_write_mostly),
            number: superblock.as_ref().map_or(0, Superblock::dev_number),
            superblock,
            slot,
            state,
            stalled: false,
            gives_up_at: None,
            bad: BadBlocks::default(),
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

    /// Its superblock, which every member of an array has.
    pub(crate) fn superblock(&self) -> &Superblock {
        self.superblock.as_ref().expect("members of an array have superblocks")
    }

    /// Its superblock; a bare member has none.
    pub(crate) fn superblock_if_any(&self) -> Option<&Superblock> {
        self.superblock.as_ref()
    }

    /// Mutable access to [`Member::superblock`].
    pub(crate) fn superblock_mut(&mut self) -> &mut Superblock {
        self.superblock.as_mut().expect("members of an array have superblocks")
    }

    /// Marks its bitmap as to be written, at the place that its superblock gives.
    pub(crate) fn needs_bitmap(&mut self) {
        let room = self.superblock().bitmap_room(self.info.size);
        self.bitmap_start = room.ok().flatten().map(|room| room.start);
        self.lacks_bitmap = true;
    }

    pub(crate) fn is_faulty(&self) -> bool {
        self.state == MemberState::Faulty
    }

    /// Whether its superblock is to be written a second time.
    pub(crate) fn is_to_try_again(&self) -> bool {
        self.attempt == Attempt::SecondDue && !self.is_faulty()
    }

    /// Whether it is a spare, and its superblock says so.
    pub(crate) fn may_take_slot(&self) -> bool {
        self.state == MemberState::Spare && !self.superblock_is_old
    }

    /// Whether the place of its superblock is to be wiped first: a crash can tear the superblock
    /// into blocks.
    pub(crate) fn is_to_wipe(&self) -> bool {
        let tears = || {
            let block = self.info.logical_block;
            self.superblock().encode_for(block).len() as u64 > u64::from(block)
        };
        self.superblock_is_old && !self.is_faulty() && tears()
    }

    /// Time since which it has had no space.
    pub(crate) fn is_full_since(&self) -> Option<Time> {
        [self.full_since, self.superblock_full_since].into_iter().flatten().min()
    }

    /// Counts a read or write that was sent to it.
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

    /// Counts sectors of a read or write, sent on its own or merged into another one.
    #[inline]
    pub(crate) fn moved(&mut self, attr: &Attr, write: bool, length: Sectors) {
        self.served.add(attr, write, length);
    }

    /// Counts requests that were merged into another one in its queue.
    pub(crate) fn merged(&mut self, write: bool, requests: u64) {
        if write {
            self.counters.writes -= requests;
        } else {
            self.counters.reads -= requests;
        }
    }

    /// Counts a flush that was sent to it.
    pub(crate) fn sent_flush(&mut self) {
        self.out();
        self.counters.flushes += 1;
    }

    fn out(&mut self) {
        self.in_flight += 1;
        self.to_give_up |= self.is_faulty();
    }

    /// Absolute sector of a data sector.
    pub(crate) fn data_sector(&self, sector: Sectors) -> Sectors {
        self.data_offset + sector
    }

    pub(crate) fn snapshot(&self, party: impl Fn(Account) -> Party) -> MemberSnapshot {
        let accounts = self.served.accounts();
        let served = accounts.map(|it| (party(it), Sectors(self.served.sectors(it))));
        MemberSnapshot {
            member: self.info.index,
            label: self.info.label.clone(),
            // Only metadata gives a member a place in an array.
            slot: self.slot.filter(|_| self.superblock.is_some()),
            dev_number: self.number,
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
            in_flight: self.in_flight,
            queue_depth: self.queue.depth(),
            write_mostly: self.write_mostly,
            queue_knobs: self.knobs.clone(),
        }
    }
}
