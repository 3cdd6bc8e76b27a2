//! What stands between the engine and a disk?
//!
//! The block layer's queue of one member: what the engine submits is merged and sorted there while the disk
//! is busy, and the disk holds no more commands than it has tags. A flush and whatever carries FUA are not
//! merged. A disk without a volatile cache is never told to flush, as the kernel does.

use std::collections::VecDeque;

use smallvec::{SmallVec, smallvec};
use weft_engine::Token;
use weft_engine::sched::mq_deadline::{Direction, Level, MqDeadline, Request, Settings};
use weft_units::{Sectors, Time};

use crate::drive::{Access, Command, Done, Drive};

/// What a member was asked for, after merging.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Commands that read.
    pub reads: u64,
    /// Commands that write.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Sectors read.
    pub sectors_read: u64,
    /// Sectors written.
    pub sectors_written: u64,
}

/// A disk and its queue.
#[derive(Debug)]
pub(super) struct Member {
    drive: Drive,
    queue: MqDeadline,
    /// What passes the scheduler by: flushes and FUA.
    direct: VecDeque<(u64, Access, Sectors, Sectors)>,
    /// By tag: what the commands at the disk are made of.
    at_disk: Vec<Option<InFlight>>,
    /// Tags that no command has.
    tags: Vec<usize>,
    done: Vec<Done>,
    /// What the disk was asked for.
    pub(super) traffic: Traffic,
}

#[derive(Debug)]
struct InFlight {
    /// Of the scheduler; `None` passed it by.
    level: Option<Level>,
    tokens: SmallVec<[u64; 4]>,
}

/// What the engine wants of a member.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wanted {
    Flush,
    Move { direction: Direction, first: Sectors, len: Sectors, fua: bool, level: Level },
}

impl Member {
    pub(super) fn new(drive: Drive, settings: Settings) -> Self {
        let depth = drive.depth().min(TAGS_MAX) as usize;
        Self {
            drive,
            queue: MqDeadline::new(settings),
            direct: VecDeque::new(),
            at_disk: (0..depth).map(|_| None).collect(),
            tags: (0..depth).rev().collect(),
            done: Vec::new(),
            traffic: Traffic::default(),
        }
    }

    pub(super) fn drive(&self) -> &Drive {
        &self.drive
    }

    /// Queues. [`Member::push`] brings it to the disk. False: there is nothing to do, it is done.
    #[must_use]
    pub(super) fn submit(&mut self, now: Time, token: Token, wanted: Wanted) -> bool {
        let cached = self.drive.volatile_cache();
        match wanted {
            Wanted::Flush if !cached => return false,
            Wanted::Flush => {
                self.direct.push_back((token.0, Access::Flush, Sectors::ZERO, Sectors::ZERO));
            }
            Wanted::Move { direction: Direction::Write, first, len, fua: true, .. } if cached => {
                self.direct.push_back((token.0, Access::Write { fua: true }, first, len));
            }
            Wanted::Move { direction, first, len, level, .. } => {
                let request = Request { id: token.0, direction, level, first, len, merges: true };
                self.queue.insert(&request, now);
            }
        }
        true
    }

    /// Gives the disk what it takes.
    pub(super) fn push(&mut self, now: Time) {
        while let Some(tag) = self.tags.pop() {
            let (access, first, length, in_flight) =
                if let Some((token, access, first, length)) = self.direct.pop_front() {
                    (access, first, length, InFlight { level: None, tokens: smallvec![token] })
                } else if let Some(next) = self.queue.dispatch(now) {
                    let access = match next.direction {
                        Direction::Read => Access::Read,
                        Direction::Write => Access::Write { fua: false },
                    };
                    let in_flight = InFlight { level: Some(next.level), tokens: next.ids };
                    (access, next.first, next.len, in_flight)
                } else {
                    self.tags.push(tag);
                    return;
                };
            self.traffic.count(access, length);
            self.at_disk[tag] = Some(in_flight);
            self.drive.submit(now, Command { tag: tag as u64, access, first, length });
        }
    }

    /// When the disk has something to say.
    pub(super) fn next_event(&self) -> Option<Time> {
        self.drive.next_event()
    }

    /// Everything that the disk has done until now, as tokens.
    pub(super) fn advance(&mut self, now: Time, mut ended: impl FnMut(Token)) {
        let mut done = std::mem::take(&mut self.done);
        self.drive.advance(now, &mut done);
        for Done { tag } in done.drain(..) {
            let tag = tag as usize;
            let in_flight = self.at_disk[tag].take().expect("a disk ends what it was given");
            self.tags.push(tag);
            if let Some(level) = in_flight.level {
                self.queue.completed(level);
            }
            in_flight.tokens.into_iter().for_each(|token| ended(Token(token)));
        }
        self.done = done;
    }
}

impl Traffic {
    fn count(&mut self, access: Access, length: Sectors) {
        match access {
            Access::Read => {
                self.reads += 1;
                self.sectors_read += length.0;
            }
            Access::Write { .. } => {
                self.writes += 1;
                self.sectors_written += length.0;
            }
            Access::Flush => self.flushes += 1,
            Access::Discard => {}
        }
    }
}

/// For disks that take any number of commands.
const TAGS_MAX: u32 = 1024;
