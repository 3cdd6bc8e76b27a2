//! Members that do not answer: other members are read instead, and the member is failed after
//! `member_timeout`.
//!
//! A member is stalled, and other members are read, after `read_around` without an answer; the
//! member is failed after `member_timeout` if the array can run without it. A notice is sent after
//! 30 seconds regardless of the knobs. A request that is given up counts as done for the requests
//! that wait for it; memory that the member may still use stays reserved until the member answers.
//! Where parity was not checked since a crash, reads wait for the member instead, because
//! reconstructed data may be wrong. A resync and a check wait too, because they need the member's
//! own content.

use weft_units::{MemberIndex, Span, Time};

use super::Volume;
use super::command::Until;
use crate::array::outbox::{Chain, CompletionTarget, Outbox, Outstanding, Owner};
use crate::array::twin::{TwinAnswer, is_twin};
use crate::contract::error::ReplyError;
use crate::contract::input::Fault;
use crate::contract::output::{MemberOp, Notice};
use crate::contract::token::RequestId;
use crate::raid::Answer;
use crate::raid::ArrayView;
use crate::sched::member_queue::Waiting;

impl Volume {
    /// Declares the members `indices` failed, all or none of them, and gives up their outstanding
    /// requests. Returns the state that the command waits for, in which superblocks record the
    /// failure; `None` if the failure breaks the array.
    pub(super) fn fail(
        &mut self,
        indices: &[MemberIndex],
        out: &mut Outbox,
    ) -> Result<Option<Until>, ReplyError> {
        let position = |index: &MemberIndex| {
            self.array.position_of(*index).ok_or(ReplyError::Invalid("no such member"))
        };
        let positions = indices.iter().map(position).collect::<Result<Vec<_>, _>>()?;
        if self.array.membership.read_only {
            return Err(ReplyError::ReadOnly);
        }
        let breaks = self.array.breaks_without(&positions);
        if breaks && !self.array.fails_last(&self.knobs) {
            return Err(ReplyError::Refused(self.too_few(&positions)));
        }
        let broken = self.array.membership.broken || breaks;
        for position in positions {
            self.array.fail(position, &self.knobs, out);
            self.give_up(position, None, out);
        }
        assert_eq!(self.array.membership.broken, broken, "the members that are left suffice");
        self.take_events(out);
        Ok(self.recorded().filter(|_| !breaks))
    }

    /// Error text that explains why `positions` cannot all be failed: the members that stay in use
    /// and the reason, those that can be failed, tried in the order given, and the next step.
    fn too_few(&self, positions: &[usize]) -> String {
        let (mut may, mut stay): (Vec<usize>, Vec<usize>) = Default::default();
        for position in positions {
            may.push(*position);
            if self.array.breaks_without(&may) {
                stay.extend(may.pop());
            }
        }
        let labels = |positions: &[usize]| {
            let label = |position: &usize| self.array.members[*position].info.label.as_str();
            positions.iter().map(label).collect::<Vec<_>>().join(", ")
        };
        let (what, one, it) = match stay.len() {
            1 => ("a member", "one", "it stays"),
            _ => ("members", "ones", "they stay"),
        };
        let result = match may.len() {
            0 => format!("{it} in use"),
            _ => format!("none was failed, and only {} may be", labels(&may)),
        };
        let (why, next) = self.why_needed();
        let stay = labels(&stay);
        format!(
            "{stay}: found {what} that the array needs, expected {one} that it can do without: \
             {why}; {result}; {next}"
        )
    }

    /// Reason why the array needs a member that cannot be failed, and the next step of an
    /// administrator.
    fn why_needed(&self) -> (&'static str, &'static str) {
        let membership = &self.array.membership;
        if !membership.is_redundant {
            let next = "to do without the member, copy the content to another array";
            return ("without redundancy, data is lost with any member", next);
        }
        let copies = self.raid.has_copies();
        let why = match copies {
            true => "without it, some data would have no copy left",
            false => "too few members would be left to know every byte",
        };
        // A broken array takes no member.
        let next = match (membership.broken, copies) {
            (true, _) => "the array is broken: stop it, and serve it again",
            (false, true) => {
                "weft add a member and weft wait for its rebuild first, or weft set \
                 fail_last_dev=1, with which the data is given up"
            }
            (false, false) => "weft add a member and weft wait for its rebuild first",
        };
        (why, next)
    }

    /// Time without an answer after which other members are read instead of a member, and time
    /// after which the member is failed. Zero: never.
    pub(super) fn patience_with_members(&self) -> (Span, Span) {
        if self.array.membership.is_redundant {
            (self.knobs.read_around, self.knobs.member_timeout)
        } else {
            (Span::ZERO, Span::ZERO)
        }
    }

    /// Checks for how long each member has not answered, and handles those that have stalled.
    pub(super) fn watch_members(&mut self, out: &mut Outbox) {
        let (read_around, member_timeout) = self.patience_with_members();
        for position in 0..self.array.members.len() {
            let now = out.now;
            let member = &mut self.array.members[position];
            let waited =
                out.oldest(member.info.index).map_or(Span::ZERO, |issued| now.since(issued));
            let to_give_up = std::mem::take(&mut member.to_give_up);
            member.gives_up_at = None;
            if member.is_faulty() {
                // No client request waits for the outstanding requests of a failed member, whatever
                // made it fail.
                if to_give_up {
                    self.give_up(position, None, out);
                }
                continue;
            }
            let index = member.info.index;
            let stalled = read_around > Span::ZERO && waited >= read_around;
            let was_stalled = member.stalled;
            let warn = waited >= STALL_WARNING && !std::mem::replace(&mut member.warned, true);
            member.warned &= waited >= STALL_WARNING;
            if warn {
                out.notice(Notice::MemberStalled { member: index, read_around: stalled });
            }
            if stalled && self.quiescing.is_some() {
                // The member may keep requests in progress, and no command waits that long.
                let why = "a member does not answer, so that requests stay in progress; try again";
                self.give_up_quiescing(&ReplyError::Busy(why), out);
            }
            if stalled != was_stalled {
                self.array.set_stalled(position, stalled);
                if stalled && !warn {
                    out.notice(Notice::MemberStalled { member: index, read_around: true });
                }
            }
            if member_timeout > Span::ZERO && waited >= member_timeout {
                if !self.array.breaks(position) {
                    self.array.fail(position, &self.knobs, out);
                    self.give_up(position, None, out);
                }
            } else if stalled && self.array.can_read_around(position) {
                let next = self.give_up(position, Some(read_around), out);
                self.array.members[position].gives_up_at = next;
            }
        }
        self.take_events(out);
    }

    /// Gives up a member's outstanding requests: all of them, or with `reads_after` only the reads
    /// that other members can answer and that have been outstanding for that long (longer if they
    /// were given up before). The owners of the requests are notified now; later answers only free
    /// memory. Returns the time at which the next read is to be given up; `None` if there is no
    /// such read.
    fn give_up(
        &mut self,
        position: usize,
        reads_after: Option<Span>,
        out: &mut Outbox,
    ) -> Option<Time> {
        let now = out.now;
        let mut next: Option<Time> = None;
        self.give_up_waiting(position, reads_after.is_none(), out);
        for token in out.tokens_of(self.array.members[position].info.index) {
            let found = out.outstanding_mut(token).filter(|it| !it.detached);
            let Some(found) = found else { continue };
            if let Owner::Passed(request) = found.owner
                && self.raid.has_copies()
            {
                found.owner = Owner::Parts(self.keep_passed(&request), Chain::NONE);
            }
            let Outstanding { owner, write, issued, .. } = *found;
            if let Some(after) = reads_after {
                let (false, Owner::Parts(first, merged)) = (write, owner) else { continue };
                let parts = out.parts(first, merged);
                if !parts
                    .iter()
                    .any(|part| self.raid.gains_by_giving_up(*part, ArrayView::of(&self.array)))
                {
                    continue;
                }
                let due = issued + self.patience(first, after);
                if due > now {
                    next = Some(next.map_or(due, |next| next.min(due)));
                    continue;
                }
            }
            out.abort(token);
            let fault = Err(Fault::Aborted);
            match owner {
                Owner::Compute(_) => unreachable!("a computation has no member"),
                Owner::Passed(_) => unreachable!("without redundancy nothing is given up"),
                Owner::Discard(request) => {
                    self.with_raid(out, |raid, cx| {
                        raid.discard_done(request, Some(position), fault, cx);
                    });
                }
                Owner::TwinDiscard(part) => {
                    let member = Some(self.array.members[position].info.index);
                    let answer = TwinAnswer { member, result: fault, given_up: true, pins: false };
                    self.twin_done(part, answer, out);
                }
                Owner::Flush(flight) => self.flush_done(flight, Some(position), fault, out),
                Owner::Parts(first, merged) => {
                    let member = Some(self.array.members[position].info.index);
                    let (given_up, pins) = (true, true);
                    let answer = Answer { result: fault, member, given_up, pins, write };
                    let parts = out.parts(first, merged);
                    if let Some(each) = self.parts_given_up(&parts) {
                        out.replace_parts(token, &each);
                    }
                    for part in parts {
                        self.part_done(part, answer, out);
                    }
                }
                Owner::Bitmap { all } => {
                    self.array.bitmap_done(Some(position), all, fault, &self.knobs, out);
                }
                Owner::Superblock => {
                    self.array.superblock_done(Some(position), fault, &self.knobs, out);
                }
            }
        }
        next
    }

    /// Parts to which the late answer of a given-up member request is reported, in place of its
    /// `parts`; `None` if `parts` stay as they are. Parts of twin writes are never replaced.
    fn parts_given_up(&self, parts: &[CompletionTarget]) -> Option<Vec<CompletionTarget>> {
        let (twins, own): (Vec<_>, Vec<_>) = parts.iter().partition(|part| is_twin(**part));
        let given_up = self.raid.parts_given_up(&own);
        if twins.is_empty() {
            return given_up;
        }
        Some(given_up.unwrap_or(own).into_iter().chain(twins).collect())
    }

    /// Gives up requests in the queue of a member: all of them if the member `failed`, otherwise
    /// the reads that another member can answer. They were not sent to the member, so they pin no
    /// memory.
    fn give_up_waiting(&mut self, position: usize, failed: bool, out: &mut Outbox) {
        // The queue is left alone unless a request in it is given up: putting requests back queues
        // them anew, and the scheduler may then dispatch a request that it had held back.
        let mut waiting = self.array.members[position].queue.waiting();
        if !failed && !waiting.any(|request| self.gains_by_giving_up(request, out)) {
            return;
        }
        drop(waiting);
        let member = &mut self.array.members[position];
        let index = member.info.index;
        for request in out.take_waiting(member) {
            if failed {
                let write = !matches!(request.op, MemberOp::Flush | MemberOp::Read { .. });
                let (id, owner) = (self.id, request.owner);
                let given_up = Outstanding::new(id, Some(index), write, owner, request.since);
                let given_up = Outstanding { at_member: false, ..given_up };
                self.done(&given_up, &Err(Fault::Gone), out);
                continue;
            }
            let gains = self.gains_by_giving_up(&request, out);
            let (true, Owner::Parts(first, mut merged)) = (gains, request.owner) else {
                out.put_back(&mut self.array.members[position], request);
                continue;
            };
            let parts = out.parts(first, merged);
            while out.next_part(&mut merged).is_some() {}
            let in_flight = &mut self.array.members[position].in_flight;
            assert!(*in_flight > 0, "a request in a member's queue is counted");
            *in_flight -= 1;
            let result = Err(Fault::Aborted);
            let (given_up, pins, write) = (false, false, false);
            let answer = Answer { result, member: None, given_up, pins, write };
            for part in parts {
                self.part_done(part, answer, out);
            }
        }
    }

    /// Whether a queued request contains a read that other members may answer.
    fn gains_by_giving_up(&self, request: &Waiting<Owner>, out: &Outbox) -> bool {
        let (MemberOp::Read { .. }, Owner::Parts(first, merged)) = (&request.op, request.owner)
        else {
            return false;
        };
        let parts = out.parts(first, merged);
        parts.iter().any(|part| self.raid.gains_by_giving_up(*part, ArrayView::of(&self.array)))
    }

    /// Time after which the read with the first part `first` is given up. It is `after` at first,
    /// and doubles each time the read is given up; otherwise a read that always takes longer than
    /// `after` would never end.
    fn patience(&self, first: CompletionTarget, after: Span) -> Span {
        Span(after.0.saturating_mul(1 << self.raid.given_up(first).min(20)))
    }

    /// Records that the member has answered a given-up member request, which can no longer use the
    /// frames of request `id`.
    pub(super) fn unpin(&mut self, id: RequestId, out: &mut Outbox) {
        let request = self.active(id);
        assert!(request.pins > 0, "memory is freed as often as it was pinned");
        request.pins -= 1;
        self.forget(id, out);
    }
}

/// Time without an answer after which a notice names the member, regardless of the knobs.
pub(super) const STALL_WARNING: Span = Span::secs(30);
