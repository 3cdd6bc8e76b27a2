//! Striped: RAID 0 and linear, where each sector is on one member.
//!
//! An error of a member is told to the client, as by md: nobody else has the data, and the member
//! stays in use.

use weft_units::{ByteRange, Bytes};

use super::{Answer, ArrayIo, Cx, Event, Told, straight};
use crate::array::outbox::{StraightPart, Who};
use crate::layout::striped::Striped as Places;

/// An array of which each sector is on one member.
#[derive(Clone, Debug)]
pub(crate) struct Striped {
    places: Places,
    events: Vec<Event>,
}

impl Striped {
    pub(crate) fn new(places: Places) -> Self {
        Self { places, events: Vec::new() }
    }

    /// See [`super::Personality::read_straight`].
    pub(crate) fn read_straight(&mut self, io: &ArrayIo, cx: &mut Cx<'_>) -> u64 {
        let (mut start, end) = (io.range.start.0, io.range.end().0);
        let mut sub_requests = 0;
        while start < end {
            let extent = self.places.locate(Bytes(start).sectors_floor());
            let to = (Bytes(start).sectors_floor() + extent.len).bytes().0.min(end);
            let position = cx.array.position_at(extent.slot);
            let position = position.expect("an array without redundancy fails no member");
            let range = ByteRange::new(start, to - start);
            straight::read(io, range, position, extent.sector, cx);
            sub_requests += 1;
            start = to;
        }
        sub_requests
    }

    /// See [`super::Personality::part_done`].
    pub(crate) fn part_done(&mut self, part: Who, answer: Answer) -> Told {
        let Who::Straight(StraightPart { request, .. }) = part else {
            unreachable!("there are no stripes")
        };
        match answer.result {
            Ok(()) => Told::Done(request),
            Err(fault) => Told::Failed(request, fault.into()),
        }
    }

    /// Events since they were last taken.
    #[inline]
    pub(crate) fn events(&mut self) -> &mut Vec<Event> {
        &mut self.events
    }
}
