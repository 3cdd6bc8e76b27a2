//! What does the coordinator say to shards that are behind queues, and what does it hear?
//!
//! [`crate::shard`] has the other end, and what holds for both.

use std::collections::VecDeque;

use super::Volume;
use super::shard::{About, Dealt, Detour};
use crate::input::{Fault, SyncAction};
use crate::knobs::Knobs;
use crate::membership::Membership;
use crate::mutant::Mutant;
use crate::outbox::{Outbox, Owner, RowPart, Who};
use crate::raid::parity::rows::Answer;
use crate::shard::{ShardId, ToCoordinator};

/// What a shard is told.
#[derive(Clone, Debug)]
pub(super) enum ToShard {
    /// Answer once this is quiet.
    Ask {
        number: u64,
        about: About,
    },
    Attach(Box<Dealt>),
    Detour(Detour),
    /// A member request is done, or was given up.
    Done {
        part: RowPart,
        answer: Answer,
    },
    Knobs(Box<Knobs>),
    /// As it is after so many of the shard's reports were heard. `late`: a bug has held it up.
    Membership {
        membership: Box<Membership>,
        heard: u64,
        late: bool,
    },
    /// Write again what members had no space for.
    PayOff,
    /// It is quiet: take this shape.
    Reshape(Box<Knobs>),
    /// Sync a row.
    Sync {
        key: u64,
        action: SyncAction,
    },
    /// A member request that was given up is done at last.
    Unpin(RowPart),
}

/// The coordinator's end of the queues of a shard.
#[derive(Clone, Debug)]
pub(super) struct End {
    queue: VecDeque<ToShard>,
    /// What it was told last.
    membership: Membership,
    knobs: Knobs,
    told_heard: u64,
    /// Reports that were heard.
    heard: u64,
    /// Whether the shard keeps something that a member has no space for.
    pub(super) owes: bool,
    /// Whether all of it is quiet, and the question about it.
    pub(super) quiet: bool,
    asked: Option<u64>,
    /// Which queues are out: to the shard, from it.
    out: [bool; 2],
}

impl End {
    pub(super) fn new(membership: Membership, knobs: Knobs) -> Self {
        Self {
            queue: VecDeque::new(),
            membership,
            knobs,
            told_heard: 0,
            heard: 0,
            owes: false,
            quiet: false,
            asked: None,
            out: [false; 2],
        }
    }
}

impl Volume {
    /// Whether shards are behind queues.
    #[inline]
    pub(super) fn is_far(&self) -> bool {
        !self.ends.is_empty()
    }

    /// Tells a shard something: the membership first, if that is new.
    #[inline(never)]
    pub(super) fn tell(&mut self, shard: ShardId, message: ToShard) {
        self.tell_membership(shard);
        let end = &mut self.ends[shard.index()];
        let makes_work = matches!(
            message,
            ToShard::Attach(_) | ToShard::Detour(_) | ToShard::PayOff | ToShard::Sync { .. }
        );
        if makes_work {
            (end.quiet, end.asked) = (false, None);
        }
        end.queue.push_back(message);
    }

    fn tell_membership(&mut self, shard: ShardId) {
        let membership = self.array.membership_now();
        let end = &mut self.ends[shard.index()];
        if end.membership != membership || end.told_heard != end.heard {
            end.membership = membership.clone();
            end.told_heard = end.heard;
            let (membership, heard) = (Box::new(membership), end.heard);
            end.queue.push_back(ToShard::Membership { membership, heard, late: false });
        }
    }

    /// Ends a turn: what changed is told, and what is in a queue is to be delivered.
    #[inline(never)]
    pub(super) fn send(&mut self, out: &mut Outbox) {
        for id in (0..self.ends.len() as u16).map(ShardId) {
            self.tell_membership(id);
            let (knobs, end) = (self.knobs, &mut self.ends[id.index()]);
            if end.knobs != knobs {
                end.knobs = knobs;
                end.queue.push_back(ToShard::Knobs(Box::new(knobs)));
            }
            let shard = &mut self.shards[id.index()];
            let far = shard.far.as_mut().expect("it has its end of the queues");
            far.queues.tell_owing(shard.rows.is_owing());
            let waits = [!end.queue.is_empty(), !far.queues.queue.is_empty()];
            for ((waits, is_out), owner) in
                waits.into_iter().zip(&mut end.out).zip([Owner::ToShard(id), Owner::FromShard(id)])
            {
                if waits && !std::mem::replace(is_out, true) {
                    out.deliver(self.id, owner);
                }
            }
        }
    }

    /// Delivers what is in the queue to a shard by now.
    #[inline(never)]
    pub(super) fn deliver_to(&mut self, id: ShardId, out: &mut Outbox) {
        let late = self.array.is_planted(Mutant::MembershipLate);
        let end = &mut self.ends[id.index()];
        end.out[0] = false;
        for message in std::mem::take(&mut end.queue) {
            match message {
                ToShard::Membership { membership, heard, late: false } if late => {
                    let message = ToShard::Membership { membership, heard, late };
                    self.ends[id.index()].queue.push_back(message);
                }
                message => self.told(id, message, out),
            }
        }
        self.take_events_of(id, out);
    }

    fn told(&mut self, id: ShardId, message: ToShard, out: &mut Outbox) {
        let shard = &mut self.shards[id.index()];
        let far = shard.far.as_mut().expect("it has its end of the queues");
        match message {
            ToShard::Ask { number, about } => far.asked.push((number, about)),
            ToShard::Attach(dealt) => shard.ready.push_back(*dealt),
            ToShard::Detour(detour) => shard.detours.push_back(detour),
            ToShard::Done { part, answer } => {
                self.with_rows(id, out, |rows, cx| rows.done(part, answer, cx));
            }
            ToShard::Knobs(knobs) => far.knobs = *knobs,
            ToShard::Membership { membership, heard, .. } => far.queues.learn(*membership, heard),
            ToShard::PayOff => self.with_rows(id, out, |rows, cx| rows.pay_off(cx)),
            ToShard::Reshape(knobs) => {
                shard.reshape(&self.array.geometry, &knobs, self.ends.len() as u64);
            }
            ToShard::Sync { key, action } => far.syncs.push_back((key, action)),
            ToShard::Unpin(part) => shard.rows.unpin(part),
        }
    }

    /// Delivers what is in the queue from a shard by now.
    #[inline(never)]
    pub(super) fn deliver_from(&mut self, id: ShardId, out: &mut Outbox) {
        self.ends[id.index()].out[1] = false;
        let far = self.shards[id.index()].far.as_mut().expect("it has its end of the queues");
        let mut messages = std::mem::take(&mut far.queues.queue);
        if self.array.is_planted(Mutant::ReportLate) {
            // All else first.
            let is_report =
                |message: &ToCoordinator| matches!(message, ToCoordinator::Report { .. });
            let (reports, others): (VecDeque<_>, VecDeque<_>) =
                messages.into_iter().partition(is_report);
            messages = others;
            messages.extend(reports);
        }
        for message in messages {
            self.hear(id, message, out);
        }
    }

    fn hear(&mut self, id: ShardId, message: ToCoordinator, out: &mut Outbox) {
        let end = &mut self.ends[id.index()];
        match message {
            ToCoordinator::Event(event) => self.event(id, event, out),
            ToCoordinator::Owes(owes) => end.owes = owes,
            ToCoordinator::Quiet(number) => {
                if end.asked == Some(number) {
                    (end.quiet, end.asked) = (true, None);
                }
                self.discard_is_quiet(number);
            }
            ToCoordinator::Report { report, number } => {
                end.heard += 1;
                self.array.report(report, number, out);
            }
            ToCoordinator::Stage { number, request, parts, part } => {
                let slot = part.slot;
                let same = self.array.membership.is_as_under(number, slot)
                    || self.array.is_planted(Mutant::OldMembership);
                match self.array.position_at(slot).filter(|_| same) {
                    Some(position) => {
                        self.array.stage(position, &request, &parts, Who::Row(part), out);
                    }
                    None => {
                        let result = Err(Fault::Gone);
                        let answer = Answer { result, member: None, given_up: false };
                        self.tell(id, ToShard::Done { part, answer });
                    }
                }
            }
        }
    }

    /// Asks each shard whether it is quiet, so that the cache may take another shape.
    pub(super) fn ask_for_quiet(&mut self) {
        if self.resizing.is_none() || self.sync.is_some() {
            return;
        }
        for id in (0..self.ends.len() as u16).map(ShardId) {
            let end = &self.ends[id.index()];
            if !end.quiet && end.asked.is_none() {
                self.questions += 1;
                let number = self.questions;
                self.tell(id, ToShard::Ask { number, about: About::All });
                self.ends[id.index()].asked = Some(number);
            }
        }
    }

    /// Nobody is to be quiet any more.
    pub(super) fn forget_quiet(&mut self) {
        for end in &mut self.ends {
            (end.quiet, end.asked) = (false, None);
        }
    }

    /// Gives the shards their new shape.
    pub(super) fn tell_shape(&mut self) {
        for id in (0..self.ends.len() as u16).map(ShardId) {
            self.tell(id, ToShard::Reshape(Box::new(self.knobs)));
            self.ends[id.index()].knobs = self.knobs;
        }
        self.forget_quiet();
    }

    /// Whether members had no space for something that is only in rows.
    pub(super) fn owes(&self) -> bool {
        if self.is_far() {
            self.ends.iter().any(|end| end.owes)
        } else {
            self.shards.iter().any(|shard| shard.rows.is_owing())
        }
    }

    /// The same of the other shards.
    pub(super) fn others_owe(&self, id: ShardId) -> bool {
        let others = |place: &usize| *place != id.index();
        (0..self.shards.len()).filter(others).any(|place| {
            self.ends.get(place).map_or_else(|| self.shards[place].rows.is_owing(), |end| end.owes)
        })
    }
}
