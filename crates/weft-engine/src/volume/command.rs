//! What does an administrator ask for, and when is it done?
//!
//! A command sets a state that turns work off, and is answered when that state is reached. None is
//! a procedure of its own.

use weft_units::{Bytes, ClientId, FRAME_BYTES};

use super::Volume;
use crate::error::ReplyError;
use crate::input::{Command, Verb};
use crate::knobs::{Knob, Knobs};
use crate::member::Member;
use crate::mutant::Mutant;
use crate::outbox::Outbox;
use crate::raid::parity::stripe_size::StripeSize;
use crate::token::Tag;

/// A command that is not answered yet.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) client: ClientId,
    tag: Tag,
    until: Until,
}

/// What a command waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// The superblock update of this number is done, or there will be none.
    Recorded(u64),
    /// The cache has its new size.
    Resized,
    /// Everything is finished, flushed and marked.
    Stopped,
    /// No sync runs.
    SyncStopped,
}

impl Volume {
    /// An administrator asks for something. `Ok(None)`: the answer comes later.
    pub(crate) fn command(
        &mut self,
        command: &Command,
        out: &mut Outbox,
    ) -> Option<Result<(), ReplyError>> {
        if self.stopping && !matches!(command.verb, Verb::Stop) {
            return Some(Err(ReplyError::Stopping));
        }
        let until = match &command.verb {
            Verb::Add { member, superblock: _, device_uuid } => {
                self.recovery_disabled = false;
                let added = self.array.add(member.clone(), *device_uuid);
                self.set_queues(out);
                added.map(|()| self.recorded())
            }
            Verb::Fail(member) => self.fail(&[*member], out).map(|()| self.recorded()),
            Verb::FailAll(members) => self.fail(members, out).map(|()| self.recorded()),
            Verb::Remove(index) => match self.array.position_of(*index) {
                None => Err(ReplyError::Invalid("no such member")),
                // There are no more superblocks that would tell of it.
                Some(position) if self.array.membership.broken => {
                    self.array.remove(position).map(|()| None)
                }
                Some(position) => self.array.remove(position).map(|()| self.recorded()),
            },
            Verb::Set(knob) => self.set(*knob, out),
            Verb::Stop => {
                self.stopping = true;
                if let Some(sync) = &mut self.sync {
                    sync.stop();
                }
                Ok(Some(Until::Stopped))
            }
            Verb::SyncAction(action) => self.sync_action(*action),
        };
        match until {
            Ok(None) => Some(Ok(())),
            Ok(Some(until)) => {
                let Command { client, tag, .. } = *command;
                self.commands.push(Waiting { client, tag, until });
                None
            }
            Err(error) => Some(Err(error)),
        }
    }

    /// Sets the queues of the members as the knobs say.
    fn set_queues(&mut self, out: &mut Outbox) {
        self.array.set_queues(self.knobs.member_queues(), |member| out.unschedule(member));
    }

    /// What was changed is on the members.
    pub(super) fn recorded(&self) -> Option<Until> {
        Some(Until::Recorded(self.array.last_update()))
    }

    fn set(&mut self, knob: Knob, out: &mut Outbox) -> Result<Option<Until>, ReplyError> {
        let mut knobs = self.knobs;
        knobs.set(knob);
        // The present value is taken at any time.
        if knobs == self.knobs {
            return Ok(None);
        }
        match knob {
            Knob::StripeCacheBytes(_)
            | Knob::StripeCacheForm(_)
            | Knob::StripeCacheSize(_)
            | Knob::StripeSize(_) => {}
            _ => {
                self.knobs.set(knob);
                self.set_queues(out);
                return Ok(None);
            }
        }
        if self.sync.is_some() {
            return Err(ReplyError::Busy("a sync is running"));
        }
        if self.resizing.is_some() {
            return Err(ReplyError::Busy("the stripe cache is being resized"));
        }
        let unanswered =
            |member: &Member| member.stalled || (member.is_faulty() && member.in_flight > 0);
        if self.array.members.iter().any(unanswered) || self.has_deferred() {
            return Err(ReplyError::Busy(
                "stripes are in use for as long as a member does not answer",
            ));
        }
        let stripe_frames = knobs.stripe_size.stripe_frames(&self.array.geometry);
        let room = self.raid.frames() / stripe_frames;
        let too_large = |name: &str, found: u64, room: u64| {
            Err(ReplyError::Refused(format!(
                "{name}: found {found}, expected at most {room}, for which memory was set aside at the \
                 start; start with a larger one"
            )))
        };
        match knob {
            Knob::StripeCacheBytes(bytes) => {
                // As at the start: a size counts as far as it holds whole stripes of `auto`, so
                // that the size with which the volume was started is taken again.
                let auto = Knobs { stripe_size: StripeSize::AUTO, ..knobs };
                let stripe_frames = auto.stripe_size.stripe_frames(&self.array.geometry);
                let room = self.raid.frames() / stripe_frames;
                if bytes > Bytes::ZERO && auto.cache_stripes(&self.array.geometry) > room {
                    let bytes_max =
                        u64::from(room + 1) * u64::from(stripe_frames) * FRAME_BYTES - 1;
                    return too_large("stripe_cache_bytes", bytes.0, bytes_max);
                }
            }
            Knob::StripeCacheSize(stripes) if stripes > room => {
                return too_large("stripe_cache_size", u64::from(stripes), u64::from(room));
            }
            _ => {}
        }
        if room == 0 {
            return Err(ReplyError::Refused(format!(
                "stripe_size: a stripe of {stripe_frames} frames does not fit into the {} of the cache",
                self.raid.frames()
            )));
        }
        self.resizing = Some(knob);
        Ok(Some(Until::Resized))
    }

    /// Gives the cache its new size once no stripe is in use.
    pub(super) fn resize(&mut self, out: &mut Outbox) {
        if self.can_never_resize() {
            self.give_up_resize(&ReplyError::Io, out);
        }
        if self.may_resize()
            && let Some(knob) = self.resizing.take()
        {
            self.knobs.set(knob);
            self.set_queues(out);
            if matches!(knob, Knob::StripeCacheSize(_))
                && self.array.is_planted(Mutant::CacheNotResized)
            {
                return;
            }
            self.raid.resize(&self.array.geometry, &self.knobs);
        }
    }

    /// What a member had no space for is not written any more, and stays in its stripes.
    pub(super) fn can_never_resize(&self) -> bool {
        self.resizing.is_some() && self.array.membership.broken && self.has_deferred()
    }

    /// The cache does not take its new size, for stripes stay in use.
    pub(super) fn give_up_resize(&mut self, error: &ReplyError, out: &mut Outbox) {
        self.resizing = None;
        self.commands.retain(|waiting| {
            let given_up = waiting.until == Until::Resized;
            if given_up {
                out.reply(waiting.client, waiting.tag, Err(error.clone()));
            }
            !given_up
        });
    }

    pub(super) fn may_resize(&self) -> bool {
        self.resizing.is_some() && self.sync.is_none() && self.raid.is_quiet()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.requests.iter().flatten().all(|request| request.answered) && self.sync.is_none()
    }

    pub(super) fn answer_commands(&mut self, out: &mut Outbox) {
        if self.commands.is_empty() {
            return;
        }
        let idle = self.stopping && self.is_idle();
        let stopped = idle && self.array.is_settled();
        // Until there is space nothing more is recorded, also not that it was stopped.
        let stuck = self.array.is_stuck(self.knobs.no_space_wait);
        let resized = self.resizing.is_none();
        let sync_stopped = self.sync.is_none();
        self.commands.retain(|waiting| {
            let answer = match waiting.until {
                // There are no more superblocks to record it on, and the last ones may not do.
                Until::Recorded(_) if self.array.membership.broken => Some(Err(ReplyError::Io)),
                Until::Recorded(update) if self.array.update_done(update) => Some(Ok(())),
                Until::Recorded(_) => stuck.then_some(Err(ReplyError::NoSpace)),
                Until::Resized => resized.then_some(Ok(())),
                Until::Stopped if idle && stuck => Some(Err(ReplyError::NoSpace)),
                Until::Stopped => stopped.then_some(Ok(())),
                Until::SyncStopped => sync_stopped.then_some(Ok(())),
            };
            let waits = answer.is_none();
            if let Some(result) = answer {
                out.reply(waiting.client, waiting.tag, result);
            }
            waits
        });
    }
}
