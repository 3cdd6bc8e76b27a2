//! How do the rows of a shard and the coordinator speak with each other?
//!
//! By calls, as a rule. Or through queues, one each way, that carry values and nothing else: then a shard
//! acts on what it was told last, and the coordinator learns late what a shard did. What holds all the
//! same, whatever a queue takes:
//!
//! - Queues keep order. A failure is reported before anything is that missed the member; a member that
//!   has no space before the row it is owed by; memory that is pinned before the answer that would give it
//!   back.
//! - The membership as it is now goes before anything else that a shard is told. So what is asked of it
//!   under a new one (to sync a row for a member that is being rebuilt) finds it known.
//! - Who reported a member counts on it no more, without waiting for an answer.
//! - A request for a member says under which membership it was made, and is refused if the slot has
//!   changed hands since.
//!
//! A queue with something in it is an [`crate::Output::Deliver`]; its `Done` delivers what is in it by
//! then.

use std::collections::VecDeque;

use weft_units::Slot;

use crate::array::MemberRequest;
use crate::frame::{Part, Parts};
use crate::membership::{Membership, Report};
use crate::outbox::{RowPart, Who};
use crate::raid::parity::rows::Event;

/// Names a shard of one volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ShardId(pub(crate) u16);

impl ShardId {
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// What a shard has to say.
#[derive(Clone, Debug)]
pub(crate) enum ToCoordinator {
    Event(Event),
    /// It keeps something that a member has no space for, or does no more.
    Owes(bool),
    /// Nothing goes on in what was asked about under this number.
    Quiet(u64),
    /// Of a member, as it was under this membership.
    Report {
        report: Report,
        number: u64,
    },
    /// A read or write of the member that a slot had under this membership.
    Stage {
        number: u64,
        request: MemberRequest,
        parts: Parts,
        part: RowPart,
    },
}

/// A shard's end of its queues.
#[derive(Clone, Debug)]
pub(crate) struct Far {
    /// As it was told last, and what follows from its own reports.
    pub(crate) membership: Membership,
    /// Those of them that the coordinator had not heard then, with the membership that they are of.
    reports: VecDeque<(Report, u64)>,
    reported: u64,
    pub(crate) queue: VecDeque<ToCoordinator>,
    owes: bool,
}

impl Far {
    pub(crate) fn new(membership: Membership) -> Self {
        Self {
            membership,
            reports: VecDeque::new(),
            reported: 0,
            queue: VecDeque::new(),
            owes: false,
        }
    }

    /// Reports something of a member, and acts on it.
    pub(crate) fn report(&mut self, report: Report) {
        let number = self.membership.number;
        self.reported += 1;
        self.reports.push_back((report, number));
        self.membership.foresee(report);
        self.queue.push_back(ToCoordinator::Report { report, number });
    }

    /// Asks for a read or write of these parts of the member at a slot. Whether there is one.
    #[inline(never)]
    pub(crate) fn stage(
        &mut self,
        slot: Slot,
        request: &MemberRequest,
        parts: &[Part],
        who: Who,
    ) -> bool {
        let Membership { number, .. } = self.membership;
        let is_there = self.membership.member_at(slot).is_some();
        if is_there {
            let Who::Row(part) = who else {
                unreachable!("through a queue each row asks for itself")
            };
            let (request, parts) = (*request, Parts::from_slice(parts));
            self.queue.push_back(ToCoordinator::Stage { number, request, parts, part });
        }
        is_there
    }

    /// The membership after the coordinator had heard so many reports.
    pub(crate) fn learn(&mut self, membership: Membership, heard: u64) {
        self.membership = membership;
        while self.reported - heard < self.reports.len() as u64 {
            self.reports.pop_front();
        }
        for (report, number) in &self.reports {
            if self.membership.is_as_under(*number, report.slot()) {
                self.membership.foresee(*report);
            }
        }
    }

    /// Says whether it owes something, if that is new.
    pub(crate) fn tell_owing(&mut self, owes: bool) {
        if std::mem::replace(&mut self.owes, owes) != owes {
            self.queue.push_back(ToCoordinator::Owes(owes));
        }
    }
}
