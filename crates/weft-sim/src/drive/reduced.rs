//! Reduced disk: a constant rate, and a move for each command that does not continue the last one.
//!
//! Commands are carried out one after the other, in order of arrival. A move takes the arm's time
//! for the distance, the settling time of a write, and half a revolution; there are no tracks and
//! no zones. A command that continues where the last one ended never waits for the rotation,
//! however late it arrives. The disk thus behaves as if it had just enough buffer for a stream to
//! lose nothing at a gap, yet it completes no write before it is on the platter.
//!
//! The model is for experiments that depend only on a disk's rate and the cost of a jump. A disk
//! with tracks and without a cache would lose a revolution at each gap, and one with a cache of
//! many MiB would answer before it writes.
//!
//! Source   writeback.md §6.1, §6.2: rate, seek by distance, rotation

use super::counters::Counters;
use super::events::Events;
use super::hdd::Seek;
use super::{Access, Command, Done};
use std::collections::VecDeque;
use weft_units::{Sectors, Span, Time};

/// Parameters of a [`Reduced`] disk.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ReducedParameters {
    pub(super) capacity: Sectors,
    pub(super) queue_depth: u32,
    pub(super) bytes_per_second: u64,
    pub(super) command_overhead: Span,
    pub(super) seek: Seek,
    /// Number of cylinders that the seek curve covers.
    pub(super) cylinders: u32,
    /// Duration of half a revolution, ns.
    pub(super) half_turn: u64,
}

/// A disk with a constant rate, and a move for each command that does not continue the last one.
#[derive(Clone, Debug)]
pub struct Reduced {
    parameters: ReducedParameters,
    events: Events<u64>,
    counters: Counters,
    /// Commands in order of arrival; the first one is being carried out.
    commands: VecDeque<Command>,
    /// Sector after the last command.
    position: u64,
}

impl Reduced {
    pub(super) fn new(parameters: &ReducedParameters) -> Self {
        Self {
            parameters: parameters.clone(),
            events: Events::new(),
            counters: Counters::default(),
            commands: VecDeque::new(),
            position: 0,
        }
    }

    pub(super) fn depth(&self) -> u32 {
        self.parameters.queue_depth
    }

    pub(super) fn volatile_cache(&self) -> bool {
        false
    }

    pub(super) fn capacity(&self) -> Sectors {
        self.parameters.capacity
    }

    pub(super) fn submit(&mut self, now: Time, command: Command) {
        let held = self.commands.len();
        assert!((held as u64) < u64::from(self.depth()), "the host keeps to the depth of the disk");
        self.counters.take(&command);
        self.commands.push_back(command);
        if held == 0 {
            self.begin(now, self.parameters.command_overhead.0);
        }
    }

    /// Starts the command at the front, if there is one. It takes `decoding` ns before its move.
    fn begin(&mut self, now: Time, decoding: u64) {
        let Some(command) = self.commands.front() else { return };
        let (first, length) = (command.first.0, command.length.0);
        let mut time = decoding;
        if matches!(command.access, Access::Read | Access::Write { .. }) {
            if first != self.position {
                let moved = self.move_to(first, command.access != Access::Read);
                self.counters.seeks += 1;
                self.counters.seek_time.0 += moved;
                self.counters.rotational_wait.0 += self.parameters.half_turn;
                time += moved + self.parameters.half_turn;
            }
            let rate = u128::from(self.parameters.bytes_per_second);
            time += (u128::from(command.length.bytes().0) * 1_000_000_000 / rate) as u64;
            self.position = first + length;
            self.counters.media_accesses += 1;
        }
        self.counters.media_busy.0 += time;
        self.events.plan(now + Span(time), command.tag);
    }

    /// Time in ns for which the arm moves to a sector, without the rotation.
    fn move_to(&self, sector: u64, write: bool) -> u64 {
        let ReducedParameters { capacity, cylinders, seek, .. } = &self.parameters;
        let sectors = sector.abs_diff(self.position);
        let distance =
            (u128::from(sectors) * u128::from(*cylinders) / u128::from(capacity.0)) as u64;
        seek.time(distance.max(1)) + if write { seek.settle } else { 0 }
    }

    pub(super) fn next_event(&self) -> Option<Time> {
        self.events.next_at()
    }

    pub(super) fn advance(&mut self, now: Time, done: &mut Vec<Done>) {
        while let Some((at, tag)) = self.events.pop(now) {
            self.commands.pop_front();
            done.push(Done { tag });
            // The next command was decoded while this one was carried out.
            self.begin(at, 0);
        }
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(super) fn durable(&self, _first: Sectors, _length: Sectors) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use crate::drive::{Access, Command, Done, Drive};
    use weft_units::{Sectors, Time};

    fn write(tag: u64, first: u64) -> Command {
        let (first, length) = (Sectors(first), Sectors(1000));
        Command { tag, access: Access::Write { fua: false }, first, length }
    }

    #[test]
    fn a_stream_has_the_rate_gaps_or_not_and_a_jump_takes_seek_settling_and_half_a_turn() {
        let model = Drive::model("hdd-2011-reduced").unwrap();
        let model = model.with("rate_mb_s = 128\ncommand_overhead_us = 0").unwrap();
        let mut drive = Drive::new(&model, 1);
        let mut at = |at: u64, command: Command| {
            drive.submit(Time(at), command);
            let ends = drive.next_event().unwrap();
            let mut done = Vec::new();
            drive.advance(ends, &mut done);
            assert_eq!(done, [Done { tag: command.tag }]);
            ends.0 - at
        };
        // 512 kB at 128 MB/s are 4 ms.
        assert_eq!(at(0, write(1, 0)), 4_000_000);
        assert_eq!(at(4_000_000, write(2, 1000)), 4_000_000);
        assert_eq!(at(1_000_000_000, write(3, 2000)), 4_000_000, "a gap costs nothing");
        let near = at(2_000_000_000, write(4, 4000));
        let far = at(3_000_000_000, write(5, 1_000_000_000));
        assert_eq!(near, 4_000_000 + 600_000 + 1_000_000 + 4_166_666);
        assert!(far > near + 5_000_000, "{far} ns");
        assert_eq!((drive.counters().seeks, drive.counters().media_accesses), (2, 5));
    }
}
