//! Block-layer queue of one simulated member: merging, sorting, the plug of 2008, command tags.
//!
//! The block layer's queue of one member: what the engine submits is merged and sorted there while
//! the disk is busy, and the disk holds no more commands than it has tags. A flush and whatever
//! carries FUA are not merged. A disk without a volatile cache is never told to flush, as the
//! kernel does.
//!
//! In 2008 a queue that was empty kept what came (it was *plugged*) until four requests were in it,
//! until 3 ms had passed, until its disk had ended a command, or until whoever brought it was done:
//! raid5d was when no stripe was left to handle. So stripes that were handled one after the other
//! became one request though the disk had nothing to do.

use std::collections::VecDeque;

use smallvec::{SmallVec, smallvec};
use weft_engine::Token;
use weft_engine::sched::mq_deadline::{MqDeadline, Settings};
use weft_engine::sched::{Direction, IoPriority, QueuedRequest};
use weft_units::{Bytes, Sectors, Span, Time};

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
    /// Commands that read, by size.
    pub read_sizes: Sizes,
    /// Commands that write, by size.
    pub write_sizes: Sizes,
}

/// How many commands there were of which size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes([u64; SIZES]);

/// Sizes up to 4 KiB, 8 KiB, … 4 MiB, and what is larger.
const SIZES: usize = 12;

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
    /// Whether its queue is one that plugs, and until when it is plugged.
    plugs: bool,
    plugged: Option<Time>,
    /// Requests and bytes that the disk was given.
    pub(super) traffic: Traffic,
}

#[derive(Debug)]
struct InFlight {
    /// Of the scheduler; `None` passed it by.
    level: Option<IoPriority>,
    tokens: SmallVec<[u64; 4]>,
}

/// Request of the engine to a member.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wanted {
    Flush,
    Move { direction: Direction, first: Sectors, len: Sectors, fua: bool, level: IoPriority },
}

impl Member {
    pub(super) fn new(drive: Drive, settings: Settings, plugs: bool) -> Self {
        let depth = drive.depth().min(TAGS_MAX) as usize;
        Self {
            drive,
            queue: MqDeadline::new(settings, Sectors(1024)),
            direct: VecDeque::new(),
            at_disk: (0..depth).map(|_| None).collect(),
            tags: (0..depth).rev().collect(),
            done: Vec::new(),
            plugs,
            plugged: None,
            traffic: Traffic::default(),
        }
    }

    pub(super) fn drive(&self) -> &Drive {
        &self.drive
    }

    /// Commands that the disk has.
    pub(super) fn commands(&self) -> u32 {
        (self.at_disk.len() - self.tags.len()) as u32
    }

    /// Queues. [`Member::push`] brings it to the disk. False: there is nothing to do, it is done.
    #[must_use]
    pub(super) fn submit(&mut self, now: Time, token: Token, wanted: Wanted) -> bool {
        let cached = self.drive.volatile_cache();
        match wanted {
            Wanted::Flush if !cached => return false,
            Wanted::Flush => {
                self.plugged = None;
                self.direct.push_back((token.0, Access::Flush, Sectors::ZERO, Sectors::ZERO));
            }
            Wanted::Move { direction: Direction::Write, first, len, fua: true, .. } if cached => {
                self.plugged = None;
                self.direct.push_back((token.0, Access::Write { fua: true }, first, len));
            }
            Wanted::Move { direction, first, len, level, .. } => {
                if self.plugs && self.queue.is_empty() {
                    self.plugged = Some(now + UNPLUG_DELAY);
                }
                let request =
                    QueuedRequest { id: token.0, direction, level, first, len, merges: true };
                self.queue.insert(&request, now);
                if self.queue.waiting() >= UNPLUG_REQUESTS {
                    self.plugged = None;
                }
            }
        }
        true
    }

    /// Whoever brought requests is done.
    pub(super) fn unplug(&mut self) {
        self.plugged = None;
    }

    /// Gives the disk what it takes.
    pub(super) fn push(&mut self, now: Time) {
        if self.plugged.is_some_and(|until| now < until) {
            return;
        }
        self.plugged = None;
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

    /// When the disk has something to say, or its queue is unplugged.
    pub(super) fn next_event(&self) -> Option<Time> {
        [self.drive.next_event(), self.plugged].into_iter().flatten().min()
    }

    /// Everything that the disk has done until now, as tokens.
    pub(super) fn advance(&mut self, now: Time, mut ended: impl FnMut(Token)) {
        let mut done = std::mem::take(&mut self.done);
        self.drive.advance(now, &mut done);
        for Done { tag } in done.drain(..) {
            self.plugged = None;
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
                self.read_sizes.count(length);
            }
            Access::Write { .. } => {
                self.writes += 1;
                self.sectors_written += length.0;
                self.write_sizes.count(length);
            }
            Access::Flush => self.flushes += 1,
            Access::Discard => {}
        }
    }
}

impl Sizes {
    fn count(&mut self, length: Sectors) {
        let pages = length.0.div_ceil(8).max(1);
        let size = pages.next_power_of_two().trailing_zeros() as usize;
        self.0[size.min(SIZES - 1)] += 1;
    }

    /// How many there were of at most this size, and larger than half of it. The last one stands
    /// for all that are larger than the one before.
    pub fn iter(&self) -> impl Iterator<Item = (Bytes, u64)> + '_ {
        self.0.iter().enumerate().map(|(size, count)| (Bytes::kib(4 << size), *count))
    }

    /// Both together.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|size| self.0[size] + other.0[size]))
    }
}

/// `unplug_thresh` and `unplug_delay` of a queue in 2.6.24.
const UNPLUG_REQUESTS: usize = 4;
const UNPLUG_DELAY: Span = Span::millis(3);

/// For disks that take any number of commands.
const TAGS_MAX: u32 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes of 4 KiB at these places, in a queue that plugs or does not.
    fn written(plugs: bool, at: &[u64]) -> Member {
        let model = Drive::model("null").expect("the model exists");
        let mut member = Member::new(Drive::new(&model, 1), Settings::default(), plugs);
        for (token, first) in (0..).zip(at) {
            let (direction, level) = (Direction::Write, IoPriority::BestEffort);
            let (first, len) = (Sectors(*first), Sectors(8));
            let wanted = Wanted::Move { direction, first, len, fua: false, level };
            assert!(member.submit(Time(0), Token(token), wanted));
            member.push(Time(0));
        }
        member
    }

    #[test]
    fn a_queue_of_2008_keeps_what_comes_until_it_is_unplugged() {
        // It was not plugged: each is a command of its own.
        assert_eq!(written(false, &[0, 8, 16]).traffic.writes, 3);
        let mut member = written(true, &[0, 8, 16]);
        assert_eq!((member.traffic.writes, member.next_event()), (0, Some(Time(3_000_000))));
        member.unplug();
        member.push(Time(1));
        assert_eq!((member.traffic.writes, member.traffic.sectors_written), (1, 24));
        // Nobody unplugs it.
        let mut member = written(true, &[0, 8, 16]);
        member.push(Time(2_999_999));
        assert_eq!(member.traffic.writes, 0);
        member.push(Time(3_000_000));
        assert_eq!(member.traffic.writes, 1);
        // Four requests, and not four parts of one.
        assert_eq!(written(true, &[0, 8, 16, 24, 32]).traffic.writes, 0);
        assert_eq!(written(true, &[0, 80, 160]).traffic.writes, 0);
        assert_eq!(written(true, &[0, 80, 160, 240]).traffic.writes, 4);
    }

    #[test]
    fn a_command_that_ends_unplugs_its_queue() {
        let mut member = written(true, &[0, 80, 160, 240]);
        let ends = member.drive.next_event().expect("it has commands");
        let (direction, level) = (Direction::Write, IoPriority::BestEffort);
        let wanted =
            Wanted::Move { direction, first: Sectors(800), len: Sectors(8), fua: false, level };
        assert!(member.submit(Time(0), Token(9), wanted));
        member.push(Time(0));
        assert_eq!(member.traffic.writes, 4);
        let mut ended = 0;
        member.advance(ends, |_| ended += 1);
        member.push(ends);
        assert!(ended > 0 && ends < Time(3_000_000));
        assert_eq!(member.traffic.writes, 5);
    }

    #[test]
    fn sizes_are_counted_up_to_powers_of_two() {
        let mut sizes = Sizes::default();
        for sectors in [1, 8, 9, 16, 17, 512, 8192, 8193, 100_000] {
            sizes.count(Sectors(sectors));
        }
        let found: Vec<(u64, u64)> = sizes
            .iter()
            .filter(|size| size.1 > 0)
            .map(|(size, count)| (size.0 >> 10, count))
            .collect();
        assert_eq!(found, [(4, 2), (8, 2), (16, 1), (256, 1), (4096, 1), (8192, 2)]);
        assert_eq!(sizes.and(&sizes).iter().map(|size| size.1).sum::<u64>(), 18);
    }
}
