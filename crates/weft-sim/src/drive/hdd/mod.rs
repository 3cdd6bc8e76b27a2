//! Hard disk: command queue, choice of the next access, destaging and flushes.
//!
//! One arm carries out one access at a time. When it is free, it takes the access with the transfer
//! that can begin soonest, after move and rotation. Candidates are the commands that wait for the
//! arm. If no command waits, if too much is dirty, or if a flush waits, the oldest dirty extents
//! (the *destage window*) are candidates too. A command that has waited longer than the age limit
//! goes first. Reads that continue each other are served in order of arrival: a read waits for an
//! older read if it begins within the older read or directly after it, and the head does not read
//! on for a read if it has just passed the start of an older waiting read. Without any command, the
//! head reads on behind the last read. Before the arm moves for a command, the controller's
//! overhead passes, and the choice is made at the end of this time; only an access that continues
//! under the head starts at once.
//!
//! ```text
//!     read    in a cache ─────────────────────────────▶ link ─▶ done
//!             else ─▶ waiting ─▶ arm ─────────────────▶ link ─▶ done
//!     write   cached:  room promised ─▶ link ─▶ dirty, done ┄┄▶ arm
//!             else, FUA:  link ─▶ waiting ─▶ arm ─▶ done
//!     flush   done when all that was dirty at its arrival has left
//! ```
//!
//! Assumptions beyond the specification: reads go before destaging unless more than ¾ of the limit
//! is dirty; if flushes or writes without room in the cache have waited longer than the age limit,
//! and commands have too, destaging and these commands take turns; an extent that was passed over
//! eight times the size of the window goes next; an access to the medium is never interrupted;
//! written data is not kept for reading once it is on the medium.
//!
//! Source   `experiments.md` §2.1; that the drive knows reads that continue each other: "Sequential
//!          read" in product manuals of Fujitsu (MPF3xxxAT §6.5.3, MHN2xxxAT §6.5); that it takes
//!          them in their order is assumed

mod arm;
mod geometry;
mod read_cache;
mod write_cache;

pub(super) use arm::{Seek, SeekPoints};
pub(super) use geometry::Platters;

use super::counters::Counters;
use super::events::Events;
use super::link::Link;
use super::{Access, Command, Done};
use arm::{Approach, Arm, Target};
use geometry::Geometry;
use read_cache::ReadCache;
use std::collections::VecDeque;
use std::sync::Arc;
use weft_units::rng::Rng;
use weft_units::{Bytes, Sectors, Span, Time};
use write_cache::WriteCache;

/// Parameters of an [`Hdd`].
#[derive(Clone, Debug, PartialEq)]
pub(super) struct HddParameters {
    pub(super) platters: Platters,
    pub(super) seek: Seek,
    pub(super) queue_depth: u32,
    /// Time to decode a command.
    pub(super) command_overhead: Span,
    /// Waiting time after which a command goes before all younger commands.
    pub(super) age_limit: Span,
    pub(super) link_bytes_per_second: u64,
    /// Time for which each command occupies the link in addition to the transfer of its bytes.
    pub(super) link_overhead: Span,
    /// Number of segments of the read cache. `read_segment` is the size of each; a size of zero
    /// means that there is no read cache.
    pub(super) read_segments: u32,
    pub(super) read_segment: Sectors,
    /// Largest amount of dirty data; zero if the write cache is off.
    pub(super) write_cache: Sectors,
    /// Number of dirty extents that compete for the arm: those that have been dirty longest.
    pub(super) destage_window: u32,
    /// Largest run of sectors that is destaged in one access.
    pub(super) destage_piece: Sectors,
    /// Whether a destaged run also ends where a write command of the host ended.
    pub(super) destage_by_command: bool,
}

/// A rotational disk.
#[derive(Clone, Debug)]
pub struct Hdd {
    parameters: Arc<HddParameters>,
    geometry: Arc<Geometry>,
    arm: Arm,
    /// Access that the arm is carrying out; `None` if it is free.
    active: Option<Active>,
    /// Whether the last access was a destage.
    destaged_last: bool,
    /// Time at which the controller will have chosen the next command for the arm; `None` while it
    /// is not choosing.
    choosing: Option<Time>,
    events: Events<Event>,
    link: Link,
    /// Commands that wait for the arm.
    waiting: Vec<Waiting>,
    /// Writes for which the cache has no room yet, in order of arrival, each with its time of
    /// arrival.
    outside: VecDeque<(Command, Time)>,
    /// Time at which the run that is being destaged will have made room for the first of the writes
    /// in `outside`; `None` if no such time is planned.
    room: Option<Time>,
    /// Flushes that were not answered, in order of arrival.
    flushes: VecDeque<Flush>,
    dirty: WriteCache,
    reads: ReadCache,
    held: u32,
    counters: Counters,
}

/// A command that waits for the arm.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    tag: u64,
    first: u64,
    end: u64,
    write: bool,
    arrived: Time,
    target: Target,
}

/// A flush that was not answered.
#[derive(Clone, Copy, Debug)]
struct Flush {
    tag: u64,
    /// Epoch of the write cache that must be destaged before the flush completes.
    epoch: u64,
    arrived: Time,
}

#[derive(Clone, Copy, Debug)]
enum Active {
    /// Reads for the host. `moved` says whether the arm had to move, instead of reading on.
    Read { command: Waiting, moved: bool },
    /// Writes data of the host straight to the platters, past the write cache.
    Write { tag: u64, first: u64, end: u64 },
    /// Destages the dirty sectors from `first` to `end`. The first of them is under the head at the
    /// time `begins`.
    Destage { first: Target, end: u64, begins: Time },
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// The arm's access has ended.
    Arm,
    /// The controller has chosen the arm's next command.
    Chosen,
    /// A write for which the cache has room has arrived over the link and is decoded.
    Taken(Command),
    /// The next write has room in the cache, because enough has reached the platters.
    Room,
    /// The bytes of a write that bypasses the cache have arrived over the link.
    Came(Command),
    /// The command with this tag is complete.
    Done(u64),
}

/// Choice of the arm's next access.
enum Choice {
    /// The waiting command with this index, for which the head only has to read on until this time.
    ReadOn(usize, Time),
    /// The waiting command with this index, which the arm reaches after this approach.
    Waiting(usize, Approach),
    /// The dirty extent of this age, which the arm reaches after this approach.
    Destage(u64, Approach),
}

impl Hdd {
    pub(super) fn new(parameters: &Arc<HddParameters>, seed: u64) -> Self {
        let parameters = Arc::clone(parameters);
        let geometry = Arc::new(Geometry::new(&parameters.platters));
        let phase = Rng::new(seed).below(geometry.turn);
        Self {
            arm: Arm::new(phase),
            active: None,
            choosing: None,
            destaged_last: false,
            events: Events::new(),
            link: Link::new(parameters.link_bytes_per_second),
            waiting: Vec::new(),
            outside: VecDeque::new(),
            room: None,
            flushes: VecDeque::new(),
            dirty: WriteCache::new(parameters.write_cache.0, parameters.destage_by_command),
            reads: ReadCache::new(parameters.read_segments, parameters.read_segment.0),
            held: 0,
            counters: Counters::default(),
            geometry,
            parameters,
        }
    }

    pub(super) fn depth(&self) -> u32 {
        self.parameters.queue_depth
    }

    pub(super) fn volatile_cache(&self) -> bool {
        self.parameters.write_cache.0 > 0
    }

    pub(super) fn capacity(&self) -> Sectors {
        self.geometry.capacity()
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(super) fn next_event(&self) -> Option<Time> {
        self.events.next_at()
    }

    pub(super) fn durable(&self, first: Sectors, length: Sectors) -> bool {
        !self.dirty.has_any(first.0, first.0 + length.0)
    }

    pub(super) fn submit(&mut self, now: Time, command: Command) {
        assert!(self.held < self.depth(), "the host keeps to the depth of the disk");
        self.held += 1;
        self.counters.take(&command);
        match command.access {
            Access::Read => self.read(now, &command),
            Access::Write { fua } if fua || !self.volatile_cache() => {
                let overhead = self.parameters.link_overhead;
                let came = self.link.pass(now, command.length.bytes(), overhead);
                self.events.plan(came, Event::Came(command));
            }
            Access::Write { .. } => {
                self.outside.push_back((command, now));
                self.take_writes(now);
            }
            Access::Flush => {
                let epoch = self.dirty.close_epoch();
                self.flushes.push_back(Flush { tag: command.tag, epoch, arrived: now });
                self.end_flushes(now);
                self.use_arm(now);
            }
            Access::Discard => {
                let done = now + self.parameters.command_overhead;
                self.events.plan(done, Event::Done(command.tag));
            }
        }
        self.counters.link_busy = self.link.busy;
    }

    pub(super) fn advance(&mut self, now: Time, done: &mut Vec<Done>) {
        while let Some((at, event)) = self.events.pop(now) {
            match event {
                Event::Arm => self.arm_is_free(at),
                Event::Chosen => {
                    if self.choosing == Some(at) {
                        self.choosing = None;
                        self.set_out(at);
                    }
                }
                Event::Taken(command) => {
                    let (first, end) = (command.first.0, command.first.0 + command.length.0);
                    self.overwrite(at, first, end);
                    self.dirty.insert(&self.geometry, first, end);
                    self.take_writes(at);
                    self.use_arm(at);
                    self.held -= 1;
                    done.push(Done { tag: command.tag });
                }
                Event::Room => {
                    if self.room == Some(at) {
                        self.room = None;
                        self.take_writes(at);
                    }
                }
                Event::Came(command) => self.wait_for_arm(at, &command, command.first.0),
                Event::Done(tag) => {
                    self.held -= 1;
                    done.push(Done { tag });
                }
            }
            self.counters.link_busy = self.link.busy;
        }
    }

    /// Starts a read: answers it from a cache, or adds it to the commands that wait for the arm.
    fn read(&mut self, now: Time, command: &Command) {
        let (first, end) = (command.first.0, command.first.0 + command.length.0);
        self.catch_up(now);
        if self.dirty.has(first, end) || self.reads.has(first, end) {
            self.reads.follow(&self.geometry, first, end);
            self.counters.cache_hits += 1;
            let overhead = self.parameters.link_overhead;
            let ready = now + self.parameters.command_overhead;
            let done = self.link.pass(ready, command.length.bytes(), overhead);
            self.events.plan(done, Event::Done(command.tag));
            return;
        }
        let from = self.reads.missing_from(first, end);
        self.wait_for_arm(now, command, from);
    }

    fn wait_for_arm(&mut self, now: Time, command: &Command, from: u64) {
        self.waiting.push(Waiting {
            tag: command.tag,
            first: command.first.0,
            end: command.first.0 + command.length.0,
            write: command.access != Access::Read,
            arrived: now,
            target: Target::new(&self.geometry, from),
        });
        self.use_arm(now);
    }

    /// Accepts writes into the cache as far as there is room.
    fn take_writes(&mut self, now: Time) {
        while let Some((command, _)) = self.outside.front().copied() {
            if !self.dirty.promise(command.length.0) {
                self.make_room(now, command.length.0);
                if !self.dirty.promise(command.length.0) {
                    return;
                }
            }
            self.outside.pop_front();
            let overhead = self.parameters.link_overhead;
            let came = self.link.pass(now, command.length.bytes(), overhead);
            self.events.plan(came + self.parameters.command_overhead, Event::Taken(command));
        }
    }

    /// Frees the room of those sectors of the run being destaged that have passed under the head.
    /// If the room does not suffice for `wanted` sectors, plans the time at which it will.
    fn make_room(&mut self, now: Time, wanted: u64) {
        let Some(Active::Destage { first, end, begins }) = self.active else { return };
        let length = end - first.sector;
        let passed = if now < begins {
            0
        } else {
            self.geometry.passed(&first.place, (now - begins).0, length)
        };
        self.dirty.passed(first.sector + passed);
        let missing = self.dirty.missing(wanted);
        // A run that is too short to free so many sectors needs no event: its end frees all of its
        // room.
        if missing > 0 && passed + missing < length {
            let at = begins + Span(self.geometry.transfer(&first.place, passed + missing));
            // Times are rounded down, but time must still advance.
            let at = at.max(now + Span(1));
            if self.room != Some(at) {
                self.room = Some(at);
                self.events.plan(at, Event::Room);
            }
        }
    }

    /// Removes sectors that a write overwrites from the read cache, and ends a readahead that they
    /// touch.
    fn overwrite(&mut self, now: Time, first: u64, end: u64) {
        self.catch_up(now);
        if let Some(stood) = self.reads.forget(first, end) {
            self.arm.stand_behind(&self.geometry, stood);
        }
    }

    /// Adds to the read cache what the head has read ahead since the last call.
    fn catch_up(&mut self, now: Time) {
        if self.active.is_none()
            && let Some(stands) = self.reads.catch_up(&self.geometry, now.0)
        {
            self.arm.stand_behind(&self.geometry, stands);
        }
    }

    /// Handles the end of the arm's access.
    fn arm_is_free(&mut self, now: Time) {
        match self.active.take().expect("the arm was at work") {
            Active::Read { command, moved } => {
                let Waiting { tag, first, end, .. } = command;
                if moved {
                    self.reads.begin(&self.geometry, first, end, now.0);
                } else {
                    self.reads.extend(&self.geometry, end, now.0);
                }
                self.arm.stand_behind(&self.geometry, end);
                let overhead = self.parameters.link_overhead;
                let done = self.link.follow(now, Sectors(end - first).bytes(), overhead);
                self.events.plan(done, Event::Done(tag));
            }
            Active::Write { tag, first, end } => {
                self.arm.stand_behind(&self.geometry, end);
                // The data that this write replaces stays dirty until now, because a flush may wait
                // for it.
                self.dirty.supersede(&self.geometry, first, end);
                self.take_writes(now);
                self.end_flushes(now);
                self.events.plan(now, Event::Done(tag));
            }
            Active::Destage { end, .. } => {
                self.room = None;
                self.arm.stand_behind(&self.geometry, end);
                self.dirty.left();
                self.take_writes(now);
                self.end_flushes(now);
            }
        }
        self.use_arm(now);
    }

    /// Completes, in order of arrival, the flushes for which all dirty data of their epoch has been
    /// destaged.
    fn end_flushes(&mut self, now: Time) {
        while let Some(Flush { tag, epoch, .. }) = self.flushes.front().copied() {
            if !self.dirty.is_clean_until(epoch) {
                return;
            }
            self.flushes.pop_front();
            self.events.plan(now + self.parameters.command_overhead, Event::Done(tag));
        }
    }

    /// Starts a free arm, at once if no choice among commands is needed, otherwise after the
    /// overhead.
    fn use_arm(&mut self, now: Time) {
        if self.active.is_some() || (self.waiting.is_empty() && self.dirty.is_empty()) {
            return;
        }
        self.catch_up(now);
        if let Some(stands) = self.reads.stands_at() {
            self.arm.stand_behind(&self.geometry, stands);
        }
        self.answer_from_stream(now);
        let continues = |it: &Waiting| it.write && self.arm.is_before(it.target.sector);
        if self.waiting.is_empty() || self.waiting.iter().any(continues) {
            self.choosing = None;
            self.set_out(now);
        } else if self.choosing.is_none() {
            let chosen = now + self.parameters.command_overhead;
            self.choosing = Some(chosen);
            self.events.plan(chosen, Event::Chosen);
        }
    }

    /// Chooses the arm's next access and starts it. Called when the controller's overhead has
    /// passed, or at once where no overhead applies.
    fn set_out(&mut self, now: Time) {
        self.catch_up(now);
        if let Some(stands) = self.reads.stands_at() {
            self.arm.stand_behind(&self.geometry, stands);
        }
        self.answer_from_stream(now);
        match self.pick(now) {
            None => {}
            Some(Choice::ReadOn(index, until)) => {
                let command = self.waiting.swap_remove(index);
                self.work(now, until, Active::Read { command, moved: false });
            }
            Some(Choice::Waiting(index, approach)) => {
                let it = self.waiting.swap_remove(index);
                if it.write {
                    self.overwrite(now, it.first, it.end);
                }
                self.reads.stop();
                let transfer = self.geometry.transfer(&it.target.place, it.end - it.target.sector);
                let until = now + self.count(approach) + Span(transfer);
                let active = if it.write {
                    Active::Write { tag: it.tag, first: it.first, end: it.end }
                } else {
                    Active::Read { command: it, moved: true }
                };
                self.work(now, until, active);
            }
            Some(Choice::Destage(age, approach)) => {
                self.reads.stop();
                let most = self.parameters.destage_piece.0;
                let (first, length) = self.dirty.leave(&self.geometry, age, most);
                self.counters.destages += 1;
                let bytes = Sectors(length).bytes();
                self.counters.destaged_bytes = Bytes(self.counters.destaged_bytes.0 + bytes.0);
                let (first, end) = (Target::new(&self.geometry, first), first + length);
                let begins = now + self.count(approach);
                let until = begins + Span(self.geometry.transfer(&first.place, length));
                self.work(now, until, Active::Destage { first, end, begins });
            }
        }
    }

    /// Adds the times of an approach (move and rotational wait) to the counters. Returns their sum.
    fn count(&mut self, approach: Approach) -> Span {
        self.counters.seeks += u64::from(approach.seek > 0);
        self.counters.seek_time = Span(self.counters.seek_time.0 + approach.seek);
        let rotation = self.counters.rotational_wait.0 + approach.rotation;
        self.counters.rotational_wait = Span(rotation);
        Span(approach.total())
    }

    fn work(&mut self, now: Time, until: Time, active: Active) {
        self.counters.media_accesses += 1;
        self.counters.media_busy = Span(self.counters.media_busy.0 + (until - now).0);
        self.destaged_last = matches!(active, Active::Destage { .. });
        self.active = Some(active);
        self.events.plan(until, Event::Arm);
    }

    /// Completes the waiting reads for which the readahead has read all sectors.
    fn answer_from_stream(&mut self, now: Time) {
        let mut index = 0;
        while index < self.waiting.len() {
            let it = self.waiting[index];
            if it.write || !self.reads.stream_has(it.first, it.end) {
                index += 1;
                continue;
            }
            self.waiting.remove(index);
            self.reads.follow(&self.geometry, it.first, it.end);
            self.counters.cache_hits += 1;
            let bytes = Sectors(it.end - it.first).bytes();
            let overhead = self.parameters.link_overhead;
            let done = self.link.pass(now, bytes, overhead);
            self.events.plan(done, Event::Done(it.tag));
        }
    }

    /// Chooses the arm's next access: the one that can begin soonest; `None` if there is none.
    fn pick(&self, now: Time) -> Option<Choice> {
        let mut best: Option<(u64, Choice)> = None;
        let mut consider = |cost: u64, choice: Choice| {
            if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                best = Some((cost, choice));
            }
        };
        let is_overdue = |arrived: Time| now.since(arrived) > self.parameters.age_limit;
        let oldest = self.waiting.iter().enumerate().min_by_key(|(_, it)| it.arrived);
        let mut overdue = oldest.filter(|(_, it)| is_overdue(it.arrived)).map(|(index, _)| index);
        // Writes and flushes that wait for destaging may be overdue too. They take turns with
        // commands.
        let flushing = self.flushes.front().map(|flush| flush.arrived);
        let outside = self.outside.front().map(|(_, arrived)| *arrived);
        let starved = flushing.is_some_and(is_overdue) || outside.is_some_and(is_overdue);
        let destage_only = starved && !(overdue.is_some() && self.destaged_last);
        if destage_only {
            overdue = None;
        }
        let candidates = if destage_only { &[][..] } else { &self.waiting[..] };
        for (index, it) in candidates.iter().enumerate() {
            if overdue.is_some_and(|overdue| overdue != index) {
                continue;
            }
            let read_by = (!it.write).then(|| self.reads.read_by(&self.geometry, it.first, it.end));
            if overdue.is_none() && self.is_behind_older(it, read_by.flatten().is_some()) {
                continue;
            }
            if let Some(until) = read_by.flatten() {
                consider(0, Choice::ReadOn(index, Time(until)));
                continue;
            }
            let approach = self.approach(now, &it.target, it.write);
            consider(approach.total(), Choice::Waiting(index, approach));
        }
        let flush = self.flushes.back().map(|flush| flush.epoch);
        let destage = candidates.is_empty() || flush.is_some() || self.dirty.is_pressing();
        if destage && overdue.is_none() {
            let count = self.parameters.destage_window as usize;
            // An extent that was passed over repeatedly goes before the others.
            let count = if self.dirty.passed_over() > 8 * count { 1 } else { count };
            for (age, extent) in self.dirty.window(count, flush) {
                let approach = self.approach(now, &extent.start, true);
                consider(approach.total(), Choice::Destage(age, approach));
            }
        }
        best.map(|(_, choice)| choice)
    }

    /// Whether an older read has to be served before the read `it`. That is the case if `it`
    /// continues a waiting older read or, where the head would serve `it` by reading on
    /// (`reads_on`), if the head has passed a waiting older read. False for the oldest read.
    fn is_behind_older(&self, it: &Waiting, reads_on: bool) -> bool {
        let passed = |older: &Waiting| reads_on && self.reads.passed(older.first, older.end);
        let continues = |older: &Waiting| older.first < it.first && it.first <= older.end;
        // Of reads that arrived together, the one with the lower sector counts as older.
        let is_older = |of: &Waiting| (of.arrived, of.first) < (it.arrived, it.first);
        let mut older = self.waiting.iter().filter(|other| !other.write && is_older(other));
        !it.write && older.any(|older| continues(older) || passed(older))
    }

    fn approach(&self, start: Time, target: &Target, write: bool) -> Approach {
        self.arm.approach(&self.geometry, &self.parameters.seek, start.0, target, write)
    }
}
