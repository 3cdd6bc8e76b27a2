//! Checkers: one for each promise of the engine, judged from its inputs and outputs and from the
//! media.
//!
//! Checkers watch the inputs and outputs of an engine and the contents of the media. Of the
//! engine's own reports they use only its counters. Members in sync and the clean state are read
//! from the durable superblocks ([`Record`]), as a restart would read them.
//!
//! | Checker | Invariants | File |
//! |---|---|---|
//! | reads and the model | I1 durability, I2 old or new, I3 stable reads | `../model/mod.rs` |
//! | [`Acknowledge`] | I4 no early acknowledgement | `acknowledge.rs` |
//! | [`Dirty`] | I5 dirty before data | `dirty.rs` |
//! | [`bits`] | I20 bits before data (write-intent bitmap) | `bits.rs` |
//! | [`parity`] | I6 parity or dirty | `parity.rs` |
//! | [`Untouched`] | I7 untouched data | `untouched.rs` |
//! | [`Stale`] | I8 no stale member | `stale.rs` |
//! | [`crate::disk::Disk::read_only`] | I9 read-only (P7) | `../world/carry_out.rs` |
//! | [`SingleFlight`] | I10 single flight | `single_flight.rs` |
//! | [`ExactlyOnce`] | I11 exactly once | `exactly_once.rs` |
//! | [`Bounds`] | I12 bounds (P8) | `bounds.rs` |
//! | [`crate::World::run`], `settle` | I13 liveness, within seconds; no lost wake-up | `../world/driver.rs` |
//! | [`BoundedWait`] | I19 bounded wait | `bounded_wait.rs` |
//! | [`LeftAlone`] | I21 left alone | `left_alone.rs` |
//! | [`consent`] | P5 dirty and degraded needs consent | `consent.rs` |
//!
//! Source   spec reliability.md §5

mod acknowledge;
pub mod bits;
mod bounded_wait;
mod bounds;
pub mod consent;
mod dirty;
mod exactly_once;
mod left_alone;
pub mod parity;
mod record;
mod single_flight;
mod stale;
#[cfg(test)]
mod tests;
mod untouched;

use std::fmt;

use weft_engine::assemble::Assembly;
use weft_engine::{Input, Load, Notice, Output, RequestOp, Snapshot, Token};
use weft_units::{Bytes, MemberIndex, Span, Time};

pub use acknowledge::Acknowledge;
pub use bounded_wait::BoundedWait;
pub use bounds::{Bounds, Limits};
pub use dirty::Dirty;
pub use exactly_once::ExactlyOnce;
pub use left_alone::LeftAlone;
pub use record::Record;
pub use single_flight::SingleFlight;
pub use stale::Stale;
pub use untouched::Untouched;

use crate::array::{Array, SlotSector};
use crate::disk::Disk;
use crate::excuses::ExcuseCounts;
use crate::model::Model;
use crate::suspects::Suspects;
use crate::violation::Violation;
use crate::volumes::ARRAY;

/// State of the world that checkers read.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// Whether an acknowledged trim stores zeros.
    pub discards: bool,
    /// Whether a write may be answered before it is stored on a member (write-back cache).
    pub write_back: bool,
    /// Virtual time of the event.
    pub now: Time,
    /// All disks, present or not.
    pub disks: &'a [Disk],
    /// Disk number of each member, by member index.
    pub disk_of: &'a [usize],
    /// Disks of the volume beside the array: number of the first, and one past the number of the
    /// last.
    pub beside: (usize, usize),
    /// Geometry of the array.
    pub array: &'a Array,
    /// Content of the durable superblocks.
    pub record: &'a Record,
    /// Content of the superblocks as they were last written, including those that are unreadable
    /// now, or that a failed write tore.
    pub written: &'a Record,
    /// Model of the versions that clients wrote.
    pub model: &'a Model,
    /// Columns in which members disagree; see [`crate::suspects`].
    pub suspects: &'a Suspects,
}

impl View<'_> {
    /// Whether a write to a disk is durable when it completes: with FUA, or without a volatile
    /// cache.
    #[must_use]
    pub fn stores_at_once(&self, disk: usize, fua: bool) -> bool {
        fua || self.disks[disk].write_through
    }

    /// Whether the bad-block log of a disk lists the data sector `sector`: either the log as it can
    /// be read now, or the log as the engine last wrote it.
    #[must_use]
    pub fn is_bad(&self, disk: usize, sector: u64) -> bool {
        self.record.is_bad(disk, sector) || self.written.is_bad(disk, sector)
    }

    /// Whether the engine may answer a request with this operation before a member has all of its
    /// data (write-back cache).
    #[must_use]
    pub fn may_keep(&self, op: RequestOp) -> bool {
        self.write_back && matches!(op, RequestOp::Write | RequestOp::WriteZeroes)
    }

    /// Column ([`crate::array`]) that sector `absolute` of a disk belongs to; `None` if the sector
    /// holds no data of the array. Without parity, the slot is taken from the disk's own
    /// superblock.
    #[must_use]
    pub fn column_at(&self, disk: usize, absolute: u64) -> Option<u64> {
        self.record.column_at(self.array, disk, absolute)
    }

    /// Whether the disk belongs to the volume beside the array.
    #[must_use]
    pub fn is_beside(&self, disk: usize) -> bool {
        (self.beside.0..self.beside.1).contains(&disk)
    }

    /// Number of the disk that is this member.
    #[must_use]
    pub fn disk(&self, member: MemberIndex) -> usize {
        self.disk_of[member.index()]
    }
}

/// All checkers that watch a run.
#[derive(Clone, Debug)]
pub struct Checkers {
    acknowledge: Acknowledge,
    dirty: Dirty,
    untouched: Untouched,
    stale: Stale,
    single_flight: SingleFlight,
    exactly_once: ExactlyOnce,
    bounds: Bounds,
    bounded_wait: BoundedWait,
    left_alone: LeftAlone,
    /// Counts of checks that accepted content which clients' writes alone do not explain (excuses).
    pub excuses: ExcuseCounts,
    /// Violations, the earliest first.
    pub found: Vec<Violation>,
}

impl Checkers {
    /// Checkers for an engine that is about to start.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            acknowledge: Acknowledge::default(),
            dirty: Dirty::default(),
            untouched: Untouched,
            stale: Stale::default(),
            single_flight: SingleFlight::default(),
            exactly_once: ExactlyOnce::default(),
            bounds: Bounds::new(limits),
            bounded_wait: BoundedWait::default(),
            left_alone: LeftAlone::default(),
            excuses: ExcuseCounts::default(),
            found: Vec::new(),
        }
    }

    /// Shows an input of the engine to all checkers. If the input completes a write, the media
    /// already have its data.
    pub fn input(&mut self, view: View<'_>, input: &Input) {
        let found = &mut self.found;
        self.single_flight.input(input);
        self.exactly_once.input(input, found);
        self.bounds.input(input);
        self.left_alone.input(input);
        // The checkers below concern only the array and its members.
        if matches!(input, Input::Client(request) if request.volume != ARRAY) {
            return;
        }
        self.acknowledge.input(view, input);
        self.stale.input(view, input);
        self.dirty.input(input);
        self.bounded_wait.input(view.now, input);
    }

    /// Shows an output of the engine to all checkers. If the output submits a write, the media do
    /// not have its data yet.
    pub fn output(&mut self, view: View<'_>, output: &Output) {
        let found = &mut self.found;
        self.single_flight.output(view, output, found);
        self.exactly_once.output(output, found);
        self.bounds.output(view, output, found);
        self.left_alone.output(output, found);
        // The checkers below concern only the array and its members.
        let member = match output {
            Output::Submit { member, .. } | Output::Notice(Notice::MemberFailed { member, .. }) => {
                Some(*member)
            }
            _ => None,
        };
        if member.is_some_and(|member| view.is_beside(view.disk(member))) {
            return;
        }
        self.acknowledge.output(view, output, found);
        self.dirty.output(view, output, found);
        self.stale.output(view, output);
        self.bounded_wait.output(view.now, output, found);
    }

    /// Checks the content of a write of `count` sectors from sector `at` that is about to be
    /// submitted to a disk (I5, I7, I20).
    pub fn write(&mut self, view: View<'_>, disk: usize, at: u64, count: u64, bytes: &[u8]) {
        if view.is_beside(disk) {
            return;
        }
        self.untouched.write(view, (disk, at), bytes, &mut self.excuses, &mut self.found);
        self.dirty.write(view, disk, (at, count), bytes, &mut self.found);
    }

    /// Checks the counters after each round of the engine.
    pub fn settled(&mut self, load: &Load) {
        self.bounds.settled(load, &mut self.found);
        self.left_alone.settled();
    }

    /// Checks the counters when no request and no member request is outstanding.
    pub fn at_rest(&mut self, snapshot: &Snapshot) {
        self.bounds.at_rest(snapshot);
        self.exactly_once.at_rest(snapshot, &mut self.found);
    }

    /// Drops the state that concerns the engine, which has stopped. Facts about members stay.
    pub fn stopped(&mut self) {
        let limits = self.bounds.limits();
        let found = std::mem::take(&mut self.found);
        let excuses = self.excuses;
        let mut stale = std::mem::take(&mut self.stale);
        stale.stopped();
        *self = Self { stale, excuses, found, ..Self::new(limits) };
    }

    /// State that outlives the engine, for the fingerprint of the state that a power cut leaves.
    pub(crate) fn after_a_stop(&self) -> impl fmt::Debug {
        (self.bounds.limits(), self.stale.after_a_stop())
    }

    /// Records a power cut, after [`Self::stopped`]. `lost` lists the content that members not in
    /// sync lost, by disk and data sector.
    pub fn power_cut(&mut self, lost: &[(usize, u64)]) {
        self.stale.power_cut(lost);
    }

    /// Checks an assembly from which an engine is about to start: no member in sync may lack
    /// acknowledged content (I8).
    pub fn assembled(&mut self, view: View<'_>, assembly: &Assembly) {
        self.stale.assembled(view, assembly, &mut self.found);
    }

    /// Records that a disk joins the array; it may have been a member before. The disk lacks the
    /// acknowledged content of its data sectors `columns`. With `keeps`, its old content is valid
    /// in all other sectors.
    pub fn disk_added(&mut self, disk: usize, keeps: bool, columns: impl Iterator<Item = u64>) {
        self.stale.disk_added(disk, keeps, columns);
    }

    /// Whether a member request or computation with this token is outstanding.
    #[must_use]
    pub fn knows(&self, token: Token) -> bool {
        self.single_flight.knows(token)
    }

    /// Sets the bounds of a stripe's wait from `now` on: its duration, and the bytes of other
    /// requests that may be written before the stripe.
    pub fn allow_waits(&mut self, wait_max: Span, passed_max: Bytes, now: Time) {
        self.bounded_wait.allow(wait_max, passed_max, now);
    }

    /// Changes the limits, because a knob of the engine has changed.
    pub fn limit(&mut self, change: impl FnOnce(&mut Limits)) {
        self.bounds.change(change);
    }
}
