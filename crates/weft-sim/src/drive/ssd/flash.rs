//! Flash dies and channels: reads, programs and erasures, and the transfer of their bytes.
//!
//! A die does one thing at a time. Reads for the host and readahead go before everything else. If
//! the drive can suspend, such a read interrupts a program or an erasure. Other work is done in
//! order; the bytes of the next program are transferred over the channel while the die is still
//! busy with the preceding work.
//!
//! ```text
//!     read     wait for die ─ tR ─ wait for channel ─ bytes ─▶
//!     program  wait for turn ─ wait for channel ─ bytes ─ wait for die ─ tPROG ─▶
//! ```
//!
//! Source   `experiments.md` §2.2

use super::Event;
use crate::drive::events::Events;
use std::collections::VecDeque;
use weft_units::{Span, Time};

/// Largest number of times that reads may interrupt one program or erasure, so that none starves
/// (assumed).
const SUSPENSIONS: u32 = 16;

/// Parameters of the dies and channels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::drive) struct FlashParameters {
    pub(in crate::drive) channels: u32,
    pub(in crate::drive) dies: u32,
    /// Number of slots of 4 KiB that are programmed at once, on all planes of a die.
    pub(in crate::drive) superpage: u32,
    pub(in crate::drive) block_pages: u32,
    pub(in crate::drive) read: Span,
    pub(in crate::drive) program: Span,
    pub(in crate::drive) erase: Span,
    pub(in crate::drive) channel_bytes_per_second: u64,
    /// Time that interrupting a program or erasure takes; `None` if reads wait until it has ended.
    pub(in crate::drive) suspend: Option<Span>,
}

/// Operation that a die carries out in order, after all waiting reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// Programs a superpage of the host's data; the number is that of the program in the buffer.
    Host(u64),
    /// Programs a superpage of slots (4 KiB of flash each) that garbage collection moves.
    Moved,
    /// Programs a superpage of the map.
    Map,
    /// Reads this number of slots, which garbage collection moves.
    MoveRead(u32),
    /// Erases a block on all planes of the die.
    Erase,
}

/// Recipient of the data that a die reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    /// A read command: its index and the number of its bytes in this read.
    Command { command: u32, bytes: u32 },
    /// Readahead of the superpage with this number.
    Ahead(u64),
}

#[derive(Clone, Copy, Debug)]
struct Read {
    reader: Reader,
    slots: u32,
}

#[derive(Clone, Copy, Debug)]
enum Running {
    Read(Read),
    Op { op: Op, suspensions: u32 },
}

#[derive(Clone, Debug, Default)]
struct Die {
    running: Option<(Running, Time)>,
    /// Number of operations that the die has begun or continued. Events carry it, so that the end
    /// that was planned for an interrupted operation can be told from that of the running
    /// operation.
    begun: u32,
    /// The interrupted operation, its remaining time, and how often it was interrupted; `None` if
    /// no operation is interrupted.
    suspended: Option<(Op, Span, u32)>,
    /// The next operation, and the time at which its bytes are at the die; `None` if no operation
    /// is staged.
    staged: Option<(Op, Time)>,
    queue: VecDeque<Op>,
    reads: VecDeque<Read>,
}

/// All dies and channels of a drive.
#[derive(Clone, Debug)]
pub(super) struct Flash {
    parameters: FlashParameters,
    dies: Vec<Die>,
    /// By channel: time at which it is free.
    channels: Vec<Time>,
    /// Time for which dies were busy, summed over all dies.
    pub(super) busy: Span,
}

impl Flash {
    pub(super) fn new(parameters: &FlashParameters) -> Self {
        Self {
            dies: vec![Die::default(); parameters.dies as usize],
            channels: vec![Time(0); parameters.channels as usize],
            busy: Span::ZERO,
            parameters: parameters.clone(),
        }
    }

    /// Queues a read of `slots` slots on a die, with the data for `reader`.
    pub(super) fn read(
        &mut self,
        now: Time,
        die: u32,
        reader: Reader,
        slots: u32,
        events: &mut Events<Event>,
    ) {
        self.dies[die as usize].reads.push_back(Read { reader, slots });
        let pause = self.interrupt(now, die);
        self.begin(now, die, pause, events);
    }

    /// Queues an operation that the die carries out in order, after all waiting reads.
    pub(super) fn work(&mut self, now: Time, die: u32, op: Op, events: &mut Events<Event>) {
        self.dies[die as usize].queue.push_back(op);
        self.stage(now, die);
        self.begin(now, die, Span::ZERO, events);
    }

    /// Interrupts the program or erasure that a die is carrying out, if the drive can do that.
    /// Returns the time that the interruption takes; zero if there was none.
    fn interrupt(&mut self, now: Time, die: u32) -> Span {
        let Some(pause) = self.parameters.suspend else { return Span::ZERO };
        let die = &mut self.dies[die as usize];
        let Some((Running::Op { op, suspensions }, ends)) = die.running else {
            return Span::ZERO;
        };
        if matches!(op, Op::MoveRead(_)) || suspensions >= SUSPENSIONS || ends.since(now) < pause {
            return Span::ZERO;
        }
        die.running = None;
        die.suspended = Some((op, ends - now, suspensions + 1));
        self.busy = Span(self.busy.0 - (ends - now).0);
        pause
    }

    /// Transfers the bytes of the next operation to the die, unless an operation is staged already.
    fn stage(&mut self, now: Time, index: u32) {
        let die = &mut self.dies[index as usize];
        if die.staged.is_some() {
            return;
        }
        let Some(op) = die.queue.pop_front() else { return };
        let ready = match op {
            Op::Host(_) | Op::Moved | Op::Map => {
                self.transfer(now, index, self.parameters.superpage)
            }
            Op::MoveRead(_) | Op::Erase => now,
        };
        self.dies[index as usize].staged = Some((op, ready));
    }

    /// Transfers slots over the channel of a die. Returns the end of the transfer.
    fn transfer(&mut self, now: Time, die: u32, slots: u32) -> Time {
        let bytes = u128::from(slots) * 4096;
        let rate = u128::from(self.parameters.channel_bytes_per_second);
        let channel = &mut self.channels[(die % self.parameters.channels) as usize];
        *channel = (*channel).max(now) + Span((bytes * 1_000_000_000 / rate) as u64);
        *channel
    }

    /// Starts the next operation of a die, if the die is idle, after the time `pause` for a read
    /// that interrupted an operation.
    fn begin(&mut self, now: Time, index: u32, pause: Span, events: &mut Events<Event>) {
        let die = &mut self.dies[index as usize];
        if die.running.is_some() {
            return;
        }
        let (running, ends) = if let Some(read) = die.reads.pop_front() {
            (Running::Read(read), now + pause + self.parameters.read)
        } else if let Some((op, left, suspensions)) = die.suspended.take() {
            (Running::Op { op, suspensions }, now + left)
        } else if let Some((op, ready)) = die.staged.take() {
            let takes = match op {
                Op::Host(_) | Op::Moved | Op::Map => self.parameters.program,
                Op::MoveRead(_) => self.parameters.read,
                Op::Erase => self.parameters.erase,
            };
            (Running::Op { op, suspensions: 0 }, now.max(ready) + takes)
        } else {
            return;
        };
        die.running = Some((running, ends));
        die.begun += 1;
        self.busy = Span(self.busy.0 + (ends - now).0);
        events.plan(ends, Event::Die { die: index, begun: die.begun });
        self.stage(now, index);
    }

    /// Ends operation number `begun` of a die (the value of the die's count `begun` since its
    /// start). Returns the operation; `None` if it was interrupted, or was a read for the host or
    /// readahead.
    pub(super) fn end(
        &mut self,
        now: Time,
        index: u32,
        begun: u32,
        events: &mut Events<Event>,
    ) -> Option<Op> {
        let die = &mut self.dies[index as usize];
        if die.begun != begun || die.running.is_none() {
            return None;
        }
        let (running, _) = die.running.take()?;
        let ended = match running {
            Running::Read(Read { reader, slots }) => {
                let over = self.transfer(now, index, slots);
                events.plan(over, Event::Arrived(reader));
                None
            }
            Running::Op { op, .. } => {
                if let Op::MoveRead(slots) = op {
                    self.transfer(now, index, slots);
                }
                Some(op)
            }
        };
        self.begin(now, index, Span::ZERO, events);
        ended
    }
}
