//! Striped: RAID 0 and linear, where each sector is on one member.
//!
//! As in md, an error of a member goes to the client: no other member has the data, and the member
//! stays in use. A read or write that lies on one member passes unchanged, and clients keep the
//! order of such requests themselves.

use smallvec::{SmallVec, smallvec};
use weft_units::{ByteRange, Bytes, Sectors};

use super::clear::Clears;
use super::personality::{Discards, RaidLevel, Requests, Settings};
use super::straight::{self, Target, Targets};
use super::{Answer, ArrayIo, ArrayView, Cx, Event, PartOutcome};
use crate::array::outbox::CompletionTarget;
use crate::contract::frame::Segments;
use crate::contract::input::Fault;
use crate::contract::token::RequestId;
use crate::layout::striped::Striped as Places;
use crate::mutant::Mutant;

/// Personality of RAID 0 and linear.
#[derive(Clone, Debug)]
pub(crate) struct Striped {
    places: Places,
    clears: Clears,
    events: Vec<Event>,
}

impl Striped {
    pub(crate) fn new(places: Places) -> Self {
        Self { places, clears: Clears::default(), events: Vec::new() }
    }
}

impl Requests for Striped {
    #[inline]
    fn passes(
        &mut self,
        range: ByteRange,
        _: bool,
        _: impl FnOnce() -> bool,
        array: ArrayView<'_>,
    ) -> Option<(usize, Sectors)> {
        let extent = self.places.locate(range.start.sectors_floor());
        (range.len <= extent.len.bytes()).then(|| (position_at(&extent, array), extent.sector))
    }

    #[inline]
    fn read_straight(&mut self, io: &ArrayIo, cx: &mut Cx<'_>) -> Option<u64> {
        Some(self.submit(io, cx))
    }

    /// Sends a read or write to its members, or begins to carry out a write-zeroes or trim. Returns
    /// the number of sub-requests.
    #[inline]
    fn submit(&mut self, io: &ArrayIo, cx: &mut Cx<'_>) -> u64 {
        if io.zeroes() || io.discarded.is_some() {
            let targets = |range, array: ArrayView<'_>| targets(&self.places, range, array);
            self.clears.begin(io, targets, &mut self.events, cx);
            return 1;
        }
        let runs = runs(&targets(&self.places, io.range, cx.view()), io);
        for (run, memory) in &runs {
            // The request is not merged with others, so that an error concerns only one client.
            straight::send(io, run, memory, run.range.len, cx);
        }
        runs.len() as u64
    }
}

impl Discards for Striped {
    fn discard_done(
        &mut self,
        request: RequestId,
        position: Option<usize>,
        result: Result<(), Fault>,
        cx: &mut Cx<'_>,
    ) {
        let targets = |range, array: ArrayView<'_>| targets(&self.places, range, array);
        let of = (request, position);
        self.clears.discard_told(of, result, targets, &mut self.events, cx);
    }
}

impl Settings for Striped {}

impl RaidLevel for Striped {
    fn part_done(
        &mut self,
        part: CompletionTarget,
        answer: Answer,
        cx: &mut Cx<'_>,
    ) -> PartOutcome {
        let targets = |range, array: ArrayView<'_>| targets(&self.places, range, array);
        self.clears.part_told(part, answer, targets, &mut self.events, cx)
    }

    #[inline]
    fn events(&mut self) -> &mut Vec<Event> {
        &mut self.events
    }
}

/// Merges targets that are adjacent on their member into runs, each with its memory. The range of a
/// run begins at the range of its first target, and its length is the sum of the lengths of its
/// targets.
fn runs(targets: &Targets, io: &ArrayIo) -> SmallVec<[(Target, Segments); 4]> {
    let mut runs: SmallVec<[(Target, Segments); 4]> = SmallVec::new();
    for target in targets {
        let memory = straight::memory(io, target.range);
        let last = runs.iter_mut().rev().find(|(run, _)| run.position == target.position);
        match last {
            Some((run, parts)) if run.sector + run.range.len.sectors_floor() == target.sector => {
                run.range.len += target.range.len;
                parts.push(memory);
            }
            _ => runs.push((*target, smallvec![memory])),
        }
    }
    runs
}

/// Targets of a range, in the order of the array.
fn targets(places: &Places, range: ByteRange, array: ArrayView<'_>) -> Targets {
    let (mut start, end) = (range.start, range.end());
    let mut targets = Targets::new();
    while start < end {
        let extent = places.locate(start.sectors_floor());
        let mut len = extent.len.bytes().min(Bytes(end.0 - start.0));
        let (next, block) = (start + len, array.request_unit());
        if array.is_planted(Mutant::ZoneBoundaryOffByOne)
            && next < end
            && len > block
            && places.is_zone_end(next.sectors_floor())
        {
            len -= block;
            let after = places.locate(next.sectors_floor());
            targets.push(Target {
                position: position_at(&after, array),
                sector: after.sector,
                range: ByteRange { start: start + len, len: block },
            });
        }
        targets.push(Target {
            position: position_at(&extent, array),
            sector: extent.sector,
            range: ByteRange { start, len },
        });
        start = next;
    }
    targets
}

fn position_at(extent: &crate::layout::striped::Extent, array: ArrayView<'_>) -> usize {
    let position = array.position_at(extent.slot);
    position.expect("an array without redundancy fails no member")
}
