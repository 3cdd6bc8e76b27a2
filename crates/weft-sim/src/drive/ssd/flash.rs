//! Flash dies and channels: reads, programs and erasures, and the transfer of their bytes.
//!
//! A die does one thing at a time. Reads of the host go before everything else and, if the drive
//! can suspend, interrupt a program or an erasure. Other work is done in order; the bytes of the
//! next program pass over the channel while the die is still busy with the one before.
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

/// Largest number of times that reads may interrupt one program, so that no program starves. [A]
const SUSPENSIONS: u32 = 16;

/// Parameters of dies and channels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::drive) struct FlashParameters {
    pub(in crate::drive) channels: u32,
    pub(in crate::drive) dies: u32,
    /// Slots of 4 KiB that all planes of a die program at once.
    pub(in crate::drive) superpage: u32,
    pub(in crate::drive) block_pages: u32,
    pub(in crate::drive) read: Span,
    pub(in crate::drive) program: Span,
    pub(in crate::drive) erase: Span,
    pub(in crate::drive) channel_bytes_per_second: u64,
    /// Time of interrupting a program; `None` if reads wait for its end.
    pub(in crate::drive) suspend: Option<Span>,
}

/// Work of a die that waits for its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// Programs the host's superpage of this number.
    Host(u64),
    /// Programs moved slots.
    Moved,
    /// Programs the map.
    Map,
    /// Reads slots to move them.
    MoveRead(u32),
    /// Erases a block.
    Erase,
}

/// Cause of a die's read: the host or collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    /// A read of this many bytes for a command.
    Command { command: u32, bytes: u32 },
    /// A superpage that is read ahead.
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
    /// Number of operations begun, by which the planned end of an interrupted one is recognised.
    begun: u32,
    /// Interrupted operation, its remaining time, and the number of its interruptions.
    suspended: Option<(Op, Span, u32)>,
    /// Next operation, and the time at which its bytes will be there.
    staged: Option<(Op, Time)>,
    queue: VecDeque<Op>,
    reads: VecDeque<Read>,
}

/// All dies and channels.
#[derive(Clone, Debug)]
pub(super) struct Flash {
    parameters: FlashParameters,
    dies: Vec<Die>,
    /// Time at which each channel is free.
    channels: Vec<Time>,
    /// Busy time, summed over all dies.
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

    /// Queues a read for the host, or a readahead.
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

    /// Queues work that is done in order.
    pub(super) fn work(&mut self, now: Time, die: u32, op: Op, events: &mut Events<Event>) {
        self.dies[die as usize].queue.push_back(op);
        self.stage(now, die);
        self.begin(now, die, Span::ZERO, events);
    }

    /// Interrupts a program or erasure, if that is possible. Returns the time that it costs.
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

    /// Transfers the bytes of the next work to the die.
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

    /// Sends slots over a die's channel. Returns the end of the transfer.
    fn transfer(&mut self, now: Time, die: u32, slots: u32) -> Time {
        let bytes = u128::from(slots) * 4096;
        let rate = u128::from(self.parameters.channel_bytes_per_second);
        let channel = &mut self.channels[(die % self.parameters.channels) as usize];
        *channel = (*channel).max(now) + Span((bytes * 1_000_000_000 / rate) as u64);
        *channel
    }

    /// Starts the next work of an idle die.
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

    /// Ends what a die began, unless it was interrupted. Returns the work that has ended.
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
