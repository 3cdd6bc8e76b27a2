//! Single: one member as it is, without metadata (`--bare`).
//!
//! Nothing is cached or merged. Reads and writes pass unchanged, and clients keep their order, as
//! on the device itself ([`super::Personality::passes`]). This module handles the requests that
//! need more: zeroes and trims, and writes that wait for a flush or for room in the queue of the
//! member. An error of the member is reported to the client, and the member stays in use.

use weft_units::ByteRange;

use super::clear::Clears;
use super::straight::{self, Target, Targets};
use super::{Answer, ArrayIo, Cx, Event, Told};
use crate::array::Array;
use crate::array::outbox::Who;
use crate::contract::input::Fault;
use crate::contract::token::RequestId;

/// One member, and the requests without payload that it has under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Single {
    clears: Clears,
    events: Vec<Event>,
}

impl Single {
    /// See [`super::Personality::submit`]: one sub-request.
    pub(crate) fn submit(&mut self, io: &ArrayIo, cx: &mut Cx<'_>) -> u64 {
        if io.zeroes || io.discarded.is_some() {
            self.clears.begin(io, targets, &mut self.events, cx);
        } else {
            // Neighbours are not merged, so that an error concerns one client.
            let memory = straight::memory(io, io.range);
            straight::send(io, &target(io.range), &[memory], io.range.len, cx);
        }
        1
    }

    /// See [`super::Personality::discard_done`].
    pub(crate) fn discard_done(
        &mut self,
        request: RequestId,
        position: Option<usize>,
        result: Result<(), Fault>,
        cx: &mut Cx<'_>,
    ) {
        let of = (request, position);
        self.clears.discard_told(of, result, targets, &mut self.events, cx);
    }

    /// See [`super::Personality::part_done`].
    pub(crate) fn part_done(&mut self, part: Who, answer: Answer, cx: &mut Cx<'_>) -> Told {
        self.clears.part_told(part, answer, targets, &mut self.events, cx)
    }

    /// Events that the volume has not taken yet.
    #[inline]
    pub(crate) fn events(&mut self) -> &mut Vec<Event> {
        &mut self.events
    }
}

/// The one member as the target of a range.
fn target(range: ByteRange) -> Target {
    Target { position: 0, sector: range.start.sectors_floor(), range }
}

fn targets(range: ByteRange, _: &Array) -> Targets {
    Targets::from_slice(&[target(range)])
}

#[cfg(test)]
mod tests;
