//! Null drive: a fixed time for every command.
//!
//! The drive is for tests, and for measurements that show only the costs of the host.

use super::counters::Counters;
use super::events::Events;
use super::{Access, Command, Done};
use weft_units::{Bytes, Sectors, Span, Time};

/// Parameters of a [`Null`] drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NullParameters {
    pub(super) capacity: Sectors,
    pub(super) time: Span,
}

/// A drive that completes every command after a fixed time, any number at once, and has no volatile
/// cache.
#[derive(Clone, Debug)]
pub struct Null {
    parameters: NullParameters,
    events: Events<u64>,
    counters: Counters,
}

impl Null {
    pub(super) fn new(parameters: &NullParameters) -> Self {
        let parameters = parameters.clone();
        Self { parameters, events: Events::new(), counters: Counters::default() }
    }

    pub(super) fn depth(&self) -> u32 {
        u32::MAX
    }

    pub(super) fn volatile_cache(&self) -> bool {
        false
    }

    pub(super) fn capacity(&self) -> Sectors {
        self.parameters.capacity
    }

    pub(super) fn submit(&mut self, now: Time, command: Command) {
        self.counters.take(&command);
        self.events.plan(now + self.parameters.time, command.tag);
    }

    pub(super) fn next_event(&self) -> Option<Time> {
        self.events.next_at()
    }

    pub(super) fn advance(&mut self, now: Time, done: &mut Vec<Done>) {
        while let Some((_, tag)) = self.events.pop(now) {
            done.push(Done { tag });
        }
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(super) fn durable(&self, _first: Sectors, _length: Sectors) -> bool {
        true
    }
}

impl Counters {
    /// Counts a command that the host submitted.
    pub(super) fn take(&mut self, command: &Command) {
        let bytes = command.length.bytes();
        match command.access {
            Access::Read => {
                self.reads += 1;
                self.read_bytes = Bytes(self.read_bytes.0 + bytes.0);
            }
            Access::Write { .. } => {
                self.writes += 1;
                self.written_bytes = Bytes(self.written_bytes.0 + bytes.0);
            }
            Access::Flush => self.flushes += 1,
            Access::Discard => self.discards += 1,
        }
    }
}
