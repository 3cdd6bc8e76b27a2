//! Single: one member as it is, without metadata (`--bare`).
//!
//! Nothing is cached or merged. Reads and writes pass to the member unchanged, and clients keep
//! their order themselves, as with a real device ([`super::Personality::passes`]). This module
//! handles the other requests: zeroes and trims, and writes that wait for a flush or for room in
//! the member's queue. An error of the member goes to the client, and the member stays in use.

use weft_units::{ByteRange, Sectors};

use super::clear::Clears;
use super::personality::{Discards, RaidLevel, Requests, Settings};
use super::straight::{self, Target, Targets};
use super::{Answer, ArrayIo, ArrayView, Cx, Event, PartOutcome};
use crate::array::outbox::CompletionTarget;
use crate::contract::error::ReplyError;
use crate::contract::input::{Fault, Verb};
use crate::contract::token::RequestId;

/// Personality of one member without metadata.
#[derive(Clone, Debug, Default)]
pub(crate) struct Single {
    clears: Clears,
    events: Vec<Event>,
}

impl Requests for Single {
    fn passes(
        &mut self,
        range: ByteRange,
        _: bool,
        _: impl FnOnce() -> bool,
        _: ArrayView<'_>,
    ) -> Option<(usize, Sectors)> {
        Some((0, range.start.sectors_floor()))
    }

    /// Sends a request to the member, or begins to carry out a write-zeroes or trim. The request
    /// counts as one sub-request, the number that is returned.
    fn submit(&mut self, io: &ArrayIo, cx: &mut Cx<'_>) -> u64 {
        if io.zeroes() || io.discarded.is_some() {
            self.clears.begin(io, targets, &mut self.events, cx);
        } else {
            // The request is not merged with others, so that an error concerns only one client.
            let memory = straight::memory(io, io.range);
            straight::send(io, &target(io.range), &[memory], io.range.len, cx);
        }
        1
    }
}

impl Discards for Single {
    fn discard_done(
        &mut self,
        request: RequestId,
        position: Option<usize>,
        result: Result<(), Fault>,
        cx: &mut Cx<'_>,
    ) {
        let of = (request, position);
        self.clears.discard_told(of, result, targets, &mut self.events, cx);
    }
}

impl Settings for Single {
    fn refuses(&self, verb: &Verb) -> Option<ReplyError> {
        match verb {
            Verb::Set(knob) if !knob.is_of_queues() => {
                Some(ReplyError::Invalid("a bare member has only the knobs of its queue"))
            }
            Verb::Drain | Verb::Set(_) | Verb::SetQueues { .. } | Verb::Stop => None,
            _ => Some(ReplyError::Invalid("a bare member has no array to administer")),
        }
    }
}

impl RaidLevel for Single {
    fn part_done(
        &mut self,
        part: CompletionTarget,
        answer: Answer,
        cx: &mut Cx<'_>,
    ) -> PartOutcome {
        self.clears.part_told(part, answer, targets, &mut self.events, cx)
    }

    #[inline]
    fn events(&mut self) -> &mut Vec<Event> {
        &mut self.events
    }
}

/// Place of a range on the only member.
fn target(range: ByteRange) -> Target {
    Target { position: 0, sector: range.start.sectors_floor(), range }
}

fn targets(range: ByteRange, _: ArrayView<'_>) -> Targets {
    Targets::from_slice(&[target(range)])
}

#[cfg(test)]
mod tests;
