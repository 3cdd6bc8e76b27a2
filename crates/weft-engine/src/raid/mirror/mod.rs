//! Mirror: RAID 1 and RAID 10, where each chunk is on several members.
//!
//! A read goes to one copy, and to another one if its member fails to read it or has bad blocks
//! there. Where copies may differ, since the array was not stopped, reads take the first copy that
//! can be read: two of them agree.
//!
//! Source   md-raid.md §5.4 and §5.5

use std::collections::VecDeque;

use weft_units::{ByteRange, Bytes};

use super::{Answer, ArrayIo, Cx, Event, Told, straight};
use crate::array::membership::Around;
use crate::array::outbox::{StraightPart, Who};
use crate::contract::error::ReplyError;
use crate::contract::input::Fault;
use crate::layout::mirrors::Mirrors;
use crate::layout::slot_set::SlotSet;

/// An array of copies.
#[derive(Clone, Debug)]
pub(crate) struct Mirror {
    places: Mirrors,
    /// Reads that another copy is to give.
    again: VecDeque<(ArrayIo, StraightPart)>,
    /// Members that did not give what they were asked for, by what that was.
    asked: Vec<(StraightPart, SlotSet)>,
    events: Vec<Event>,
}

impl Mirror {
    pub(crate) fn new(places: Mirrors) -> Self {
        Self { places, again: VecDeque::new(), asked: Vec::new(), events: Vec::new() }
    }

    /// See [`super::Personality::read_straight`].
    pub(crate) fn read_straight(&mut self, io: &ArrayIo, cx: &mut Cx<'_>) -> u64 {
        let (mut start, end) = (io.range.start.0, io.range.end().0);
        let mut sub_requests = 0;
        while start < end {
            let sector = Bytes(start).sectors_floor();
            let to = (sector + self.places.left_in_chunk(sector)).bytes().0.min(end);
            sub_requests += 1;
            if !self.read_copy(io, ByteRange::new(start, to - start), SlotSet::EMPTY, cx) {
                let (request, result) = (io.id, Err(ReplyError::Io));
                self.events.push(Event::SubRequestsDone { request, sub_requests: 1, result });
            }
            start = to;
        }
        sub_requests
    }

    /// Reads the first copy that can be read of members that were not asked. Whether there is one.
    fn read_copy(&self, io: &ArrayIo, range: ByteRange, asked: SlotSet, cx: &mut Cx<'_>) -> bool {
        for copy in self.places.copies(range.start.sectors_floor()) {
            let sectors = straight::frames_of(copy.sector, range);
            let readable = cx.membership().readable(sectors, Around::Always);
            if readable.without(asked).contains(copy.slot)
                && let Some(position) = cx.array.position_at(copy.slot)
            {
                straight::read(io, range, position, copy.sector, cx);
                return true;
            }
        }
        false
    }

    /// See [`super::Personality::read_again`].
    pub(crate) fn read_again(&mut self, part: StraightPart, io: &ArrayIo) {
        self.again.push_back((*io, part));
    }

    /// See [`super::Personality::split_waiting`]: other copies are read.
    pub(crate) fn split_waiting(&mut self, cx: &mut Cx<'_>) {
        while let Some((io, part)) = self.again.pop_front() {
            let request = part.request;
            let asked = self.asked.iter().find(|(of, _)| *of == part);
            let asked = asked.map_or(SlotSet::EMPTY, |(_, slots)| *slots);
            let range = ByteRange::new(part.start.0, part.len.into());
            let reads = self.read_copy(&io, range, asked, cx);
            if !reads {
                let result = Err(ReplyError::Io);
                self.asked.retain(|(of, _)| *of != part);
                self.events.push(Event::SubRequestsDone { request, sub_requests: 0, result });
            }
            let sub_requests = reads.into();
            self.events.push(Event::Split { request, sub_requests, whole: false });
        }
    }

    /// Whether another turn has something to do already.
    pub(crate) fn has_work(&self) -> bool {
        !self.again.is_empty()
    }

    /// See [`super::Personality::member_answered`].
    pub(crate) fn member_answered(
        &mut self,
        position: Option<usize>,
        result: Result<(), Fault>,
        cx: &mut Cx<'_>,
    ) {
        match (result, position) {
            (Err(Fault::Gone), Some(position)) => cx.array.fail(position, cx.out),
            (Err(_), Some(position)) => cx.array.members[position].read_errors += 1,
            (Ok(()), _) | (_, None) => {}
        }
    }

    /// See [`super::Personality::part_done`].
    pub(crate) fn part_done(&mut self, part: Who, answer: Answer, cx: &mut Cx<'_>) -> Told {
        let Who::Straight(part) = part else { unreachable!("there are no stripes") };
        if answer.given_up {
            return Told::GivenUp(part.request);
        }
        if answer.result.is_ok() {
            if !self.asked.is_empty() {
                self.asked.retain(|(of, _)| *of != part);
            }
            return Told::Done(part.request);
        }
        let position = answer.member.and_then(|member| cx.array.position_of(member));
        // One that failed meanwhile is at no slot, and is not asked again.
        if let Some(slot) = position.and_then(|position| cx.array.members[position].slot) {
            match self.asked.iter_mut().find(|(of, _)| *of == part) {
                Some((_, slots)) => slots.insert(slot),
                None => self.asked.push((part, SlotSet::only(slot))),
            }
        }
        Told::ReadFailed { part, asked: answer.member.is_some() }
    }

    /// Events since they were last taken.
    #[inline]
    pub(crate) fn events(&mut self) -> &mut Vec<Event> {
        &mut self.events
    }
}
