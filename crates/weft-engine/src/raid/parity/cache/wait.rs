//! Which rows have waited long enough, by weft's own rule?
//!
//! Rows that were delayed wait on a list of their own, each until its own time ([`Patience`]). When the
//! first of these times comes all are looked at again: a stream may have moved on meanwhile, or away. When
//! one goes, all go that no stream will fill: disks sort what they are given together. Nothing waits while
//! requests find no row and no full-row write will free one.

use weft_units::Time;

use super::{Activation, Cache, List, Patience, Row, Variant};

/// What is known of the rows that wait.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Waiting {
    /// The first time that one of them may have come to, while disks are idle and while they are not.
    next: Option<(Time, Time)>,
    /// When the last full-row write ended.
    idle_since: Option<Time>,
    /// Since the last of them came, those that no stream fills were sent off to make room.
    made_room: bool,
}

impl Cache {
    /// Delayed rows begin to wait, and those that have waited long enough become held ones.
    pub(crate) fn activate_each(
        &mut self,
        activation: Activation,
        variant: Variant,
        now: Time,
        patience: &impl Fn(&Row) -> Patience,
    ) {
        self.waiting.idle_since = self.idle_since(now);
        if self.lists.first(List::Delayed).is_none() {
            self.plug.no_row_waits(activation, self.starved.is_some(), now);
        } else if self.plug.opens(activation, variant, self.pressure(variant), now) {
            while let Some(id) = self.lists.pop(List::Delayed) {
                self.lists.push(List::Wait, id);
                self.waits(patience(self.row(id)));
                self.waiting.made_room = false;
            }
        }
        if self.has_waited(variant, now) {
            self.end_waits(now, patience);
        }
    }

    fn end_waits(&mut self, now: Time, patience: &impl Fn(&Row) -> Patience) {
        let (idle_since, stuck) = (self.idle_since(now), self.is_stuck());
        self.waiting.next = None;
        self.waiting.made_room = self.starved.is_some();
        let mut next = self.lists.first(List::Wait);
        while let Some(id) = next {
            next = self.lists.next(id);
            let of_row = patience(self.row(id));
            let streams = matches!(of_row, Patience::Streams { .. });
            if streams && now < of_row.until(idle_since) && !stuck {
                self.waits(of_row);
                continue;
            }
            self.lists.remove(id);
            self.row_mut(id).delayed = false;
            self.permit_preread(id);
            self.lists.push(List::Hold, id);
        }
    }

    /// A row waits from now on, or still.
    fn waits(&mut self, patience: Patience) {
        let idle_since = self.waiting.idle_since.unwrap_or(Time(0));
        let (idle, busy) = (patience.until(Some(idle_since)), patience.until(None));
        let next = self.waiting.next.unwrap_or((idle, busy));
        self.waiting.next = Some((next.0.min(idle), next.1.min(busy)));
    }

    fn idle_since(&self, now: Time) -> Option<Time> {
        (self.full_row_writes == 0).then(|| self.waiting.idle_since.unwrap_or(now))
    }

    /// Whether rows wait of which one may have waited long enough.
    pub(super) fn has_waited(&self, variant: Variant, now: Time) -> bool {
        if self.lists.first(List::Wait).is_none() {
            return false;
        }
        // By another rule none of them waits here.
        let wait_here = matches!(variant, Variant::Stream { .. });
        let is_time = self.waiting_wake().is_some_and(|at| at <= now);
        !wait_here || is_time || self.is_stuck() || self.is_crowded()
    }

    /// When one of those that wait may have waited long enough.
    pub(super) fn waiting_wake(&self) -> Option<Time> {
        let (idle, busy) = self.waiting.next.filter(|_| self.lists.first(List::Wait).is_some())?;
        Some(if self.full_row_writes == 0 { idle } else { busy })
    }

    /// Requests find no row, and none is on its way to be free.
    fn is_stuck(&self) -> bool {
        let ready = self.lists.first(List::Handle).is_some();
        self.starved.is_some() && self.full_row_writes == 0 && !ready
    }

    /// Requests find no row, and more than half of all wait.
    fn is_crowded(&self) -> bool {
        let crowds = self.lists.waiting() > self.size() / 2;
        self.starved.is_some() && !self.waiting.made_room && crowds
    }

    /// The rule has changed: rows that wait are delayed ones again.
    pub(super) fn wait_no_more(&mut self) {
        while let Some(id) = self.lists.pop(List::Wait) {
            self.lists.push(List::Delayed, id);
        }
    }
}
