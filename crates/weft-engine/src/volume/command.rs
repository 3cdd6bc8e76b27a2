//! Commands of an administrator, and the states of the volume that they wait for.
//!
//! A command changes the volume's state so that some work stops, and is answered when the volume
//! has reached the state that the command waits for. No command is a procedure of its own.

use weft_ondisk::NewBitmap;
use weft_units::{Bytes, FRAME_BYTES, MemberIndex, Sectors};

use super::Volume;
use crate::array::issuer::Issuer;
use crate::array::member::Member;
use crate::array::outbox::Outbox;
use crate::array::resync_window::Wanted;
use crate::assemble::Reshaping;
use crate::contract::error::ReplyError;
use crate::contract::input::{ArrayShape, Growth, Verb};
use crate::knobs::Knob;
use crate::layout::geometry::Geometry;
use crate::raid::{ArrayView, Busy, Personality};
use crate::sched::member_queue::QueueSettings;

/// Change of the volume that is made once no stripe is in use and no request is partly split into
/// sub-requests.
#[derive(Clone, Debug)]
pub(super) enum WhenQuiet {
    /// Reshape the array to this geometry.
    BeginReshape(Geometry),
    /// Use only the geometry after the reshape, because the whole array is reshaped.
    EndReshape,
    /// Use the layout of the resized array, which its superblocks record.
    EndResize,
    Set(Knob),
}

/// Command that is not answered yet.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) issuer: Issuer,
    until: Until,
}

/// State that a command waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// The command waits until the superblock update with this number is done, or can no longer be
    /// done.
    Recorded(u64),
    /// The command waits until the array has its new size or number of slots, or until the
    /// beginning of a reshape is recorded.
    Grown,
    /// The command waits until the knob has its new value.
    Set,
    /// The command waits until the array has no bitmap, and no write of the bitmap is in flight.
    WithoutBitmap,
    /// The command waits until all requests are finished, and the array is flushed and recorded as
    /// clean.
    Stopped,
    /// The command waits until no sync runs.
    SyncStopped,
}

impl Volume {
    /// Carries out a command of an administrator. Returns the answer; `None` if the command is
    /// answered later.
    pub(crate) fn command(
        &mut self,
        verb: &Verb,
        issuer: Issuer,
        out: &mut Outbox,
    ) -> Option<Result<(), ReplyError>> {
        if self.stopping && !matches!(verb, Verb::Stop) {
            return Some(Err(ReplyError::Stopping));
        }
        if let Some(error) = self.raid.refuses(verb) {
            return Some(Err(error));
        }
        if self.array.is_resizing() && verb.changes_members() {
            return Some(Err(ReplyError::Busy("the array is being resized; try again")));
        }
        let until = match verb {
            Verb::Add { member, former, device_uuid } => {
                self.recovery_disabled = false;
                let again = former
                    .as_ref()
                    .and_then(|former| self.array.re_add(member.clone(), former).ok());
                let added = again.map_or_else(|| self.array.add(member.clone(), *device_uuid), Ok);
                self.set_queues(out);
                added.map(|()| self.recorded())
            }
            Verb::ReAdd { member, former } => {
                let added = self.array.re_add(member.clone(), former);
                self.recovery_disabled &= added.is_err();
                self.set_queues(out);
                added.map(|()| self.recorded())
            }
            Verb::Fail(member) => self.fail(&[*member], out),
            Verb::FailAll(members) => self.fail(members, out),
            Verb::Remove(index) => match self.array.position_of(*index) {
                None => Err(ReplyError::Invalid("no such member")),
                // A broken array does not write the superblocks that would record the removal.
                Some(position) if self.array.membership.broken => {
                    self.array.remove(position).map(|()| None)
                }
                Some(position) => self.array.remove(position).map(|()| self.recorded()),
            },
            Verb::Replace(replace) => {
                let asked = self.array.replace(*replace);
                self.recovery_disabled &= asked.is_err();
                asked.map(|()| None)
            }
            Verb::Grow(growth) => self.grow(*growth),
            Verb::Set(knob) => self.set(*knob, out),
            Verb::SetQueues { members, knob } => self.set_queues_of(members, *knob, out),
            Verb::SetBitmap(wanted) => self.set_bitmap(wanted.as_ref()),
            // Without a write-back cache there is nothing to drain.
            Verb::Drain => Ok(None),
            Verb::Stop => {
                self.stopping = true;
                if let Some(sync) = &mut self.sync {
                    sync.stop();
                }
                Ok(Some(Until::Stopped))
            }
            Verb::SyncAction(action) => self.sync_action(*action, Wanted::all_from(Sectors::ZERO)),
            Verb::SyncRange { action, from, to } => {
                self.sync_range(*action, Wanted { from: *from, to: *to })
            }
        };
        match until {
            Ok(None) => Some(Ok(())),
            Ok(Some(until)) => {
                self.commands.push(Waiting { issuer, until });
                None
            }
            Err(error) => Some(Err(error)),
        }
    }

    /// Configures the queues of all members from their knobs.
    fn set_queues(&mut self, out: &mut Outbox) {
        self.array.set_queues(&self.knobs, |member| out.unschedule(member));
    }

    /// Sets a knob of member queues for `members` only. Fails for another knob and for an unknown
    /// member.
    fn set_queues_of(
        &mut self,
        members: &[MemberIndex],
        knob: Knob,
        out: &mut Outbox,
    ) -> Result<Option<Until>, ReplyError> {
        if !knob.is_of_queues() {
            return Err(ReplyError::Invalid(
                "this knob is the volume's, and not of a member's queue",
            ));
        }
        let position = |member| self.array.position_of(member);
        let positions: Option<Vec<usize>> = members.iter().copied().map(position).collect();
        for position in positions.ok_or(ReplyError::Invalid("no such member"))? {
            let own = &mut self.array.members[position].knobs;
            let mut knobs = own.as_deref().copied().unwrap_or(self.knobs);
            knobs.set(knob);
            *own = (QueueSettings::of(&knobs) != QueueSettings::of(&self.knobs))
                .then(|| Box::new(knobs));
        }
        self.set_queues(out);
        Ok(None)
    }

    /// Sets a knob of the volume and of every member that has queue knobs of its own.
    fn put(&mut self, knob: Knob, out: &mut Outbox) {
        self.knobs.set(knob);
        for member in &mut self.array.members {
            if let Some(own) = &mut member.knobs {
                own.set(knob);
                if QueueSettings::of(own) == QueueSettings::of(&self.knobs) {
                    member.knobs = None;
                }
            }
        }
        self.set_queues(out);
    }

    /// State of a command that is answered when its change is recorded in the superblocks; never
    /// `None`.
    pub(super) fn recorded(&self) -> Option<Until> {
        Some(Until::Recorded(self.array.last_update()))
    }

    fn set(&mut self, knob: Knob, out: &mut Outbox) -> Result<Option<Until>, ReplyError> {
        let mut knobs = self.knobs;
        knobs.set(knob);
        // Setting the current value is accepted at any time.
        if knobs == self.knobs && !knob.is_of_queues() {
            return Ok(None);
        }
        if !self.raid.sets_when_quiet(knob) {
            self.put(knob, out);
            return Ok(None);
        }
        let busy = Busy {
            syncs: self.sync.is_some(),
            quiesces: self.quiescing.is_some(),
            unanswered: self.is_unanswered(),
        };
        self.raid.check(knob, &knobs, busy)?;
        self.quiescing = Some(Box::new(WhenQuiet::Set(knob)));
        Ok(Some(Until::Set))
    }

    fn grow(&mut self, growth: Growth) -> Result<Option<Until>, ReplyError> {
        if self.sync.is_some() {
            return Err(ReplyError::Busy("a sync is running"));
        }
        if self.quiescing.is_some() {
            return Err(ReplyError::Busy(
                "another change waits until nothing is in progress; try again",
            ));
        }
        // A reshape that stopped at a stripe that could not be copied goes on.
        if let Growth::Shape(to) = growth
            && self.array.is_reshaping_to(to)
        {
            (self.frozen, self.recovery_disabled) = (false, false);
            return Ok(None);
        }
        let resizes = match growth {
            Growth::Shape(to) => match self.array.set_mirrors(to, self.memory.frames) {
                Some(resizes) => resizes,
                None => return self.reshape(to),
            },
            Growth::Size(size) => self.array.grow_size(size),
        };
        resizes.map(|resizes| resizes.then_some(Until::Grown))
    }

    /// Begins a reshape to the shape `to` as soon as nothing uses the stripes. Returns the state
    /// that the command waits for.
    fn reshape(&mut self, to: ArrayShape) -> Result<Option<Until>, ReplyError> {
        if self.has_deferred() || self.is_unanswered() {
            return Err(ReplyError::Busy("requests are in progress for long; try again"));
        }
        let (before, after) = self.array.can_reshape(to)?;
        let needed = Personality::frames_to_reshape(&before, &after, &self.knobs);
        if self.memory.frames < needed {
            let (found, needed) = (frames_as_bytes(self.memory.frames), frames_as_bytes(needed));
            return Err(ReplyError::Refused(format!(
                "stripe_cache_size: found memory of {found}, expected at least {needed} for a \
                 reshape; start with a larger one"
            )));
        }
        self.quiescing = Some(Box::new(WhenQuiet::BeginReshape(after)));
        Ok(Some(Until::Grown))
    }

    /// Adds the bitmap `wanted`, or removes the bitmap if `wanted` is `None`. As in md, this is
    /// refused while a sync runs, because the sync depends on the bitmap. Returns the state that
    /// the command waits for; `None` if nothing has to change.
    fn set_bitmap(&mut self, wanted: Option<&NewBitmap>) -> Result<Option<Until>, ReplyError> {
        if self.sync.is_some() {
            return Err(ReplyError::Busy("a sync is running"));
        }
        match wanted {
            Some(new) => Ok(self.array.add_bitmap(new)?.then(|| self.recorded()).flatten()),
            None => Ok(self.array.remove_bitmap()?.then_some(Until::WithoutBitmap)),
        }
    }

    /// Makes the change in `quiescing`, if there is one, once no stripe is in use and no request is
    /// partly split into sub-requests.
    pub(super) fn act_when_quiet(&mut self, out: &mut Outbox) {
        if self.quiescing.is_none() {
            return;
        }
        if self.can_never_set() {
            let broken = self.array.membership.broken;
            let error = if broken { ReplyError::Io } else { ReplyError::Stopping };
            self.give_up_quiescing(&error, out);
        }
        let ends_in_vain = match self.quiescing.as_deref() {
            // Strips may wait for space for long.
            Some(WhenQuiet::EndReshape) => self.lacks_space(),
            Some(WhenQuiet::EndResize) => self.lacks_space() || self.array.membership.broken,
            _ => false,
        };
        if ends_in_vain {
            self.quiescing = None;
        }
        if !self.may_act() {
            return;
        }
        match self.quiescing.take().map(|change| *change) {
            Some(WhenQuiet::Set(knob)) => {
                self.put(knob, out);
                self.raid.apply(knob, ArrayView::of(&self.array), &self.knobs);
            }
            Some(WhenQuiet::BeginReshape(after)) => {
                let to = ArrayShape {
                    raid_disks: Some(after.members()),
                    layout: Some(after.layout()),
                    chunk: Some(after.chunk()),
                };
                // A member may have failed since the command.
                match self.array.can_reshape(to) {
                    _ if self.stopping => self.give_up_quiescing(&ReplyError::Stopping, out),
                    Ok(_) => self.begin_reshape(&after),
                    Err(error) => self.give_up_quiescing(&error, out),
                }
            }
            Some(WhenQuiet::EndReshape) => {
                let geometry = self.array.end_reshape();
                self.raid = Personality::parity(self.memory, &geometry, &self.knobs);
            }
            Some(WhenQuiet::EndResize) => {
                let layout = self.array.end_resize();
                self.raid.resize(&layout);
            }
            None => {}
        }
    }

    fn begin_reshape(&mut self, after: &Geometry) {
        (self.frozen, self.recovery_disabled) = (false, false);
        let before = self.array.begin_reshape(after);
        let (after, position) = (after.clone(), Sectors::ZERO);
        let reshape = Reshaping { after, position, held: false };
        self.raid = Personality::reshape(self.memory, &before, &reshape, &self.knobs);
    }

    /// Last change of a reshape or resize, if it can be made now: the superblocks record that the
    /// whole array is reshaped, or all members record the new size. `None` also while a sync runs,
    /// another change waits, a member lacks space, or a member does not answer, which may keep
    /// stripes in use for long.
    #[inline]
    pub(super) fn end_of_growth(&self) -> Option<WhenQuiet> {
        if !self.array.is_growing() {
            return None;
        }
        self.end_of_growth_now()
    }

    #[cold]
    fn end_of_growth_now(&self) -> Option<WhenQuiet> {
        let end = if self.array.is_reshaped() {
            WhenQuiet::EndReshape
        } else if self.array.is_resize_recorded() {
            WhenQuiet::EndResize
        } else {
            return None;
        };
        // No sync may run: its ranges may wait for requests, and these would wait for the change.
        // Ranges of a correction of mirrors may wait likewise, so mirrors have to be quiet; mirrors
        // have no stripes that a member without an answer could keep in use.
        let is_ready = match self.raid {
            Personality::Mirror(_) => self.raid.is_quiet(),
            _ => !self.is_unanswered(),
        };
        let is_free = self.quiescing.is_none() && self.sync.is_none();
        (is_free && is_ready && !self.lacks_space()).then_some(end)
    }

    /// Whether a member had no space and was not found to have space since, or may lack data
    /// because of that.
    fn lacks_space(&self) -> bool {
        let resyncs = self.array.is_resizing() && self.array.resyncs_only_for_space();
        resyncs || self.has_deferred() || self.raid.is_unproven()
    }

    /// Whether a member does not answer, so that some requests may stay in progress for long.
    fn is_unanswered(&self) -> bool {
        let unanswered = |it: &Member| it.stalled || (it.is_faulty() && it.in_flight > 0);
        self.array.members.iter().any(unanswered)
    }

    /// Whether the change in `quiescing` can never be made, because strips for which a member had
    /// no space stay in memory: the array is broken, or the volume stops without writing them.
    pub(super) fn can_never_set(&self) -> bool {
        self.quiescing.is_some() && self.never_writes_deferred()
    }

    /// Answers the command that asked for the change in `quiescing` with an error, because stripes
    /// stay in use.
    pub(super) fn give_up_quiescing(&mut self, error: &ReplyError, out: &mut Outbox) {
        self.quiescing = None;
        self.commands.retain(|waiting| {
            let given_up = match waiting.until {
                // A resize that is being recorded takes effect later.
                Until::Grown => !self.array.is_resizing(),
                until => until == Until::Set,
            };
            if given_up {
                out.answer(waiting.issuer, Err(error.clone()));
            }
            !given_up
        });
    }

    /// Whether the change in `quiescing` can be made now. If it replaces the personality, no
    /// request may wait for stripes, because the new personality would not get that request.
    pub(super) fn may_act(&self) -> bool {
        let is_ready = self.quiescing.is_some() && self.sync.is_none() && self.raid.is_quiet();
        is_ready && (self.keeps_waiting() || !self.raid.has_waiting())
    }

    /// Whether requests may go on waiting for stripes while the change in `quiescing` is made. They
    /// may not if the change replaces the personality.
    pub(super) fn keeps_waiting(&self) -> bool {
        let keeps = |change: &WhenQuiet| matches!(change, WhenQuiet::EndResize | WhenQuiet::Set(_));
        self.quiescing.as_deref().is_some_and(keeps)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.passing == 0
            && self.requests.iter().flatten().all(|request| request.answered)
            && self.sync.is_none()
    }

    pub(super) fn answer_commands(&mut self, out: &mut Outbox) {
        if self.commands.is_empty() {
            return;
        }
        let idle = self.stopping && self.is_idle();
        let stopped = idle && self.array.is_settled();
        // While a member has no space, no superblock update is recorded, including the update of a
        // stop.
        let stuck = self.array.is_stuck(self.knobs.no_space_wait);
        let set = self.quiescing.is_none();
        let grows = self.array.reshape_begins() || self.array.is_resizing();
        let sync_stopped = self.sync.is_none();
        self.commands.retain(|waiting| {
            let answer = match waiting.until {
                // No more superblocks are written, and the last ones may not have recorded the
                // change.
                Until::Recorded(_) | Until::WithoutBitmap if self.array.membership.broken => {
                    Some(Err(ReplyError::Io))
                }
                Until::Recorded(update) if self.array.update_done(update) => Some(Ok(())),
                Until::WithoutBitmap if !self.array.has_bitmap() => Some(Ok(())),
                Until::Recorded(_) | Until::WithoutBitmap => {
                    stuck.then_some(Err(ReplyError::NoSpace))
                }
                Until::Grown if self.array.membership.broken => Some(Err(ReplyError::Io)),
                Until::Grown if set && !grows => Some(Ok(())),
                Until::Grown => stuck.then_some(Err(ReplyError::NoSpace)),
                Until::Set => set.then_some(Ok(())),
                Until::Stopped if idle && stuck => Some(Err(ReplyError::NoSpace)),
                Until::Stopped => stopped.then(|| self.array.stop_result()),
                Until::SyncStopped => sync_stopped.then_some(Ok(())),
            };
            let waits = answer.is_none();
            if let Some(result) = answer {
                out.answer(waiting.issuer, result);
            }
            waits
        });
    }
}

fn frames_as_bytes(frames: u32) -> Bytes {
    Bytes(u64::from(frames) * FRAME_BYTES)
}
